package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/seed-c794f7ef/kahn/machine"
)

// Awaiter is an [Inbox] whose runs may await others: a commit with [Commit].Awaits stores that a node of its run awaits the end of another run, and
// the store answers with a request of the kind KindEnded, whose Value is an [Ended] in JSON. [Memory], store/sqlite and store/postgres implement it; a
// store need not.
//
// The answer is posted in the transaction that ends the awaited run, whatever ends it. It is posted with the commit that awaits if that run has ended
// already, is not stored, as after Prune, or awaits this one, by itself or through others. Whoever is served first closes no cycle: two commits that
// would close one together are judged one after the other. A run that was created anew under its id, see [Replace], is awaited still.
//
// An answer ends the wait. Neither the end of the awaiting run nor that of the node does: whoever performs the run withdraws what it awaits no more.
// An answer for a run that has ended meanwhile is not posted.
type Awaiter interface {
	Inbox
	// LoadAwaits returns what the nodes of a run await and has no answer yet, sorted by the nodes. The error matches ErrUnknownRun if the run is not
	// stored.
	LoadAwaits(ctx context.Context, run string) ([]Await, error)
}

// Await says that a node of a run awaits the end of another run.
type Await struct {
	Node string `json:"node"` // its path: the Node of the request that answers
	// Run is the id of the awaited run. A node awaits one run: this one replaces the one before, and "" withdraws that one.
	Run string `json:"run,omitempty"`
}

// Ended is the Value of a KindEnded: what has become of an awaited run.
type Ended struct {
	Run    string            `json:"run"`
	Status machine.RunStatus `json:"status,omitempty"` // RunPending if the run has not ended: it is Unknown, or there is a Cycle
	// Unknown tells that no run of this id is stored.
	Unknown bool `json:"unknown,omitempty"`
	// Cycle are runs of which each awaits the next one, from the awaited run to the one that would have awaited it.
	Cycle []string `json:"cycle,omitempty"`
}

// endedID begins the ids of requests that a store posts.
const endedID = "kahn:ended:"

// Request is the request with the given number by which a store answers a node. It is for implementations of [Awaiter].
func (e *Ended) Request(node string, number uint64) (Request, error) {
	value, err := json.Marshal(e)
	return Request{ID: fmt.Sprint(endedID, number), Kind: KindEnded, Node: node, Value: value}, err
}

// Ended returns what a KindEnded says. The error matches [machine.ErrBadValue] if its Value is none.
func (r *Request) Ended() (e Ended, err error) {
	if err = json.Unmarshal(r.Value, &e); err != nil {
		return e, fmt.Errorf("%w: request %q: %w", machine.ErrBadValue, r.ID, err)
	}
	return e, nil
}

// FindCycle returns the runs by which an awaited run awaits the run that would await it, as in [Ended].Cycle; nil if there are none. awaits returns what
// a run awaits, in any order, and an error of it ends the search. It is for implementations of [Awaiter].
func FindCycle(run, awaited string, awaits func(run string) ([]string, error)) (cycle []string, err error) {
	from := map[string]string{awaited: ""} // by run: through which one it was found
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

// awaiting is a node of a run in memory that awaits another run.
type awaiting struct{ run, node string }

// await keeps what a commit awaits, and returns the runs for which requests were posted: those that awaited this one if the commit has ended it, and
// this one if it has an answer at once.
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

// endAwaits answers those who await a run, if it has ended, and returns their runs.
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

// withdraw forgets what a node awaits.
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

// withdrawAll forgets what a run awaits.
func (m *Memory) withdrawAll(r *memoryRun) {
	for node := range r.awaits {
		m.withdraw(r, node)
	}
}

// tellEnded posts an answer.
func (m *Memory) tellEnded(r *memoryRun, node string, e Ended) {
	q, _ := e.Request(node, r.Posted+1) // it has a JSON form
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
