package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/seed-c794f7ef/kahn/machine"
)

// Awaiter is an [Inbox] whose runs may await other runs: a commit with [Commit].Awaits records that a node of its run awaits the end of another run.
// The store answers the node with a request of the kind KindEnded. The request's Value is an [Ended] in JSON. [Memory], store/sqlite and
// store/postgres implement it; other stores need not.
//
// The store posts the answer in the transaction that ends the awaited run, whatever ends this run. In three cases, the transaction that begins the
// await already posts the answer: the awaited run has ended already; the awaited run is not stored, for example after Prune; or the awaited run
// awaits the awaiting run, directly or through others. If two concurrent commits together close a cycle, the store checks one after the other, and
// finds the cycle when it checks the second commit. If a new run replaces the awaited run, see [Replace], the node awaits the new run.
//
// When the store posts the answer, it removes the await. If the awaiting node or its run ends earlier, the process that performs the run withdraws
// the await by a commit with an [Await] whose Run is "". The store posts no answer to an awaiting run that has ended.
type Awaiter interface {
	Inbox
	// LoadAwaits returns the unanswered awaits of a run's nodes, sorted by node. The error matches ErrUnknownRun if the run is not stored.
	LoadAwaits(ctx context.Context, run string) ([]Await, error)
}

// Await says that a node of a run awaits the end of another run.
type Await struct {
	Node string `json:"node"` // the path of the node; it is also the Node of the request with the answer
	// Run is the id of the awaited run. A node awaits at most one run, so Run replaces the run that the node awaited before. If Run is "", the await
	// is withdrawn.
	Run string `json:"run,omitempty"`
}

// Ended says how the awaited run ended. It is the Value of a request of the kind KindEnded.
type Ended struct {
	Run    string            `json:"run"`
	Status machine.RunStatus `json:"status,omitempty"` // RunPending if Unknown or Cycle is set; otherwise a terminal status
	// Unknown is set if no run of this id is stored.
	Unknown bool `json:"unknown,omitempty"`
	// Cycle is set if the await would have closed a cycle. Each run in Cycle awaits the next one. The first is the awaited run, and the last is
	// the awaiting run.
	Cycle []string `json:"cycle,omitempty"`
}

// endedID is the prefix of the id of a request with which a store answers a node.
const endedID = "kahn:ended:"

// Request returns the request with which a store answers a node. The number of the request becomes a part of its id. The method is
// for implementations of [Awaiter].
func (e *Ended) Request(node string, number uint64) (Request, error) {
	value, err := json.Marshal(e)
	return Request{ID: fmt.Sprint(endedID, number), Kind: KindEnded, Node: node, Value: value}, err
}

// Ended returns the Value of a request of the kind KindEnded. The error matches [machine.ErrBadValue] if the Value is not an Ended.
func (r *Request) Ended() (e Ended, err error) {
	if err = json.Unmarshal(r.Value, &e); err != nil {
		return e, fmt.Errorf("%w: request %q: %w", machine.ErrBadValue, r.ID, err)
	}
	return e, nil
}

// FindCycle returns a chain of runs in which each run awaits the next one, as in [Ended].Cycle. The chain begins with the run "awaited" and ends
// with the run "run". FindCycle returns nil if there is no such chain. The function "awaits" returns the runs that a run awaits, in any order. If
// it returns an error, FindCycle stops and returns this error. FindCycle is for implementations of [Awaiter].
func FindCycle(run, awaited string, awaits func(run string) ([]string, error)) (cycle []string, err error) {
	from := map[string]string{awaited: ""} // maps each run that the search has found to the run that awaits it
	for queue := []string{awaited}; len(queue) > 0; queue = queue[1:] {
		if queue[0] == run {
			for at := run; at != ""; at = from[at] {
				cycle = append(cycle, at)
			}
			slices.Reverse(cycle)
			return cycle, nil
		}
		next, err := awaits(queue[0])
		if err != nil {
			return nil, err
		}
		slices.Sort(next)
		for _, id := range next {
			if _, found := from[id]; !found {
				from[id] = queue[0]
				queue = append(queue, id)
			}
		}
	}
	return nil, nil
}

var _ Awaiter = (*Memory)(nil)

// The type `awaiting` identifies a node that awaits another run. It consists of the node's run and the node's path.
type awaiting struct{ run, node string }

// The method `await` stores the awaits of a commit of the run r, and returns the runs for which it has posted requests. If the commit has ended r,
// these are the runs that awaited r. If one of the new awaits is answered at once, r is also among them.
func (m *Memory) await(r *memoryRun, c *Commit) (posted []string) {
	for _, a := range c.Awaits {
		m.withdraw(r, a.Node)
		if a.Run == "" || r.Status.Terminal() {
			continue
		}
		e := Ended{Run: a.Run}
		if of := m.runs[a.Run]; of == nil {
			e.Unknown = true
		} else if of.Status.Terminal() {
			e.Status = of.Status
		} else {
			e.Cycle, _ = FindCycle(r.ID, a.Run, func(run string) (list []string, err error) {
				if x := m.runs[run]; x != nil && !x.Status.Terminal() {
					for _, awaited := range x.awaits {
						list = append(list, awaited)
					}
				}
				return list, nil
			})
		}
		if e.Unknown || e.Status.Terminal() || e.Cycle != nil {
			m.tellEnded(r, a.Node, e)
			posted = append(posted, r.ID)
			continue
		}
		if r.awaits == nil {
			r.awaits = map[string]string{}
		}
		r.awaits[a.Node] = a.Run
		if m.awaited == nil {
			m.awaited = map[string]map[awaiting]bool{}
		}
		if m.awaited[a.Run] == nil {
			m.awaited[a.Run] = map[awaiting]bool{}
		}
		m.awaited[a.Run][awaiting{r.ID, a.Node}] = true
	}
	return append(posted, m.endAwaits(r)...)
}

// endAwaits does nothing unless r has ended. If r has ended, endAwaits answers the nodes that await r, and returns the runs of these nodes.
func (m *Memory) endAwaits(r *memoryRun) (posted []string) {
	if !r.Status.Terminal() {
		return nil
	}
	var list []awaiting
	for a := range m.awaited[r.ID] {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b awaiting) int { return slices.Compare([]string{a.run, a.node}, []string{b.run, b.node}) })
	for _, a := range list {
		by := m.runs[a.run]
		if m.withdraw(by, a.node); !by.Status.Terminal() {
			m.tellEnded(by, a.node, Ended{Run: r.ID, Status: r.Status})
			posted = append(posted, a.run)
		}
	}
	return posted
}

// withdraw removes the await of a node.
func (m *Memory) withdraw(r *memoryRun, node string) {
	awaited, ok := r.awaits[node]
	if !ok {
		return
	}
	delete(r.awaits, node)
	if delete(m.awaited[awaited], awaiting{r.ID, node}); len(m.awaited[awaited]) == 0 {
		delete(m.awaited, awaited)
	}
}

// withdrawAll removes all awaits of a run.
func (m *Memory) withdrawAll(r *memoryRun) {
	for node := range r.awaits {
		m.withdraw(r, node)
	}
}

// tellEnded posts the answer to the await of a node.
func (m *Memory) tellEnded(r *memoryRun, node string, e Ended) {
	q, _ := e.Request(node, r.Posted+1) // the error is nil, since an Ended always has a JSON form
	r.add(q)
}

// LoadAwaits implements [Awaiter].
func (m *Memory) LoadAwaits(ctx context.Context, run string) (list []Await, err error) {
	r, unlock, err := m.lockRun(ctx, run)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for node, awaited := range r.awaits {
		list = append(list, Await{node, awaited})
	}
	slices.SortFunc(list, func(a, b Await) int { return slices.Compare([]string{a.Node}, []string{b.Node}) })
	return list, nil
}
