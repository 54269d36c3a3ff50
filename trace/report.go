package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Report describes a finished run: how long its nodes ran and waited, which failures stopped which nodes, and why nodes did not run. Encode it as
// JSON. Durations are in nanoseconds. A point in time is the duration since the start of the run.
type Report struct {
	Workflow string         `json:"workflow,omitempty"`
	RunID    string         `json:"run_id"`
	Status   kahn.RunStatus `json:"status"`
	Degraded bool           `json:"degraded,omitempty"`
	Cause    string         `json:"cause,omitempty"` // why the whole run was stopped
	// StopRequest names who requested the stop of the run, and the reason. RedriveRequest names who requested the redrive, and the reason. Each
	// field is nil if there was no request of its kind.
	StopRequest    *kahn.Request `json:"stop_request,omitempty"`
	RedriveRequest *kahn.Request `json:"redrive_request,omitempty"`

	Start    time.Time           `json:"start"`
	Duration time.Duration       `json:"duration_ns"`
	Statuses map[kahn.Status]int `json:"statuses"` // the number of nodes in each status

	// Work is the total time of all attempts. QueueWait is the total time for which nodes waited for slots, and Backoff is the total time for which
	// nodes waited for their next attempt. Slots is the highest number of attempts that held a slot at the same time.
	Work      time.Duration `json:"work_ns"`
	QueueWait time.Duration `json:"queue_wait_ns"`
	Backoff   time.Duration `json:"backoff_ns"`
	Retries   int           `json:"retries"`
	Slots     int           `json:"slots"`

	// Warnings has the Warnings of the Result as texts, for example the errors of guards that could not decide.
	Warnings []string `json:"warnings,omitempty"`

	CriticalPath []Step `json:"critical_path"` // from the run's beginning to the node that ended last
	// DependencyPath is the chain of dependencies whose nodes took the longest time in total, and DependencyTime is this time. The run would have
	// taken this long if no node had waited for a slot or a wave. The steps of DependencyPath have neither Via nor Wait.
	DependencyPath []Step        `json:"dependency_path"`
	DependencyTime time.Duration `json:"dependency_time_ns"`
	Nodes          []Node        `json:"nodes"`    // in declaration order, without nodes in composites
	Failures       []Failure     `json:"failures"` // trees of failures, each in preorder; the root of a tree is an origin
	// Compensations lists the nodes that the run has undone or tried to undo, in the order in which it began to undo them. The list includes nodes
	// in composites.
	Compensations []Compensation `json:"compensations,omitempty"`
}

// Compensation describes how the run has undone one node, or tried to.
type Compensation struct {
	Node     string            `json:"node"` // the path of the node
	Status   kahn.Compensation `json:"status"`
	Attempts int               `json:"attempts"`
	Certain  bool              `json:"certain"` // whether the node completed; then it certainly had an effect
	Start    time.Duration     `json:"start_ns"`
	Duration time.Duration     `json:"duration_ns"` // if the compensation has not ended, the time until the run's last event
	Error    string            `json:"error,omitempty"`
}

// Step is one node on the critical path or the dependency path. The next node on the path waited for this node.
type Step struct {
	Node string `json:"node"` // the id of the node, or its path if it is in a composite
	// Via is the way in which the previous node delayed this node: for example by its end, or by holding a slot.
	Via   Via           `json:"via,omitempty"`
	Start time.Duration `json:"start_ns"`
	// Duration is the time from Start until the next node on the path could start. Usually this is the time until this node ended. If the next node
	// waited for a slot, it is the time until the end of the attempt that held the slot.
	Duration time.Duration `json:"duration_ns"`
	// Wait is how long the node was ready and waited for a slot before its first start.
	Wait time.Duration `json:"wait_ns"`
}

// Node is the part of a report about one node.
type Node struct {
	ID       string        `json:"id"`
	Status   kahn.Status   `json:"status"`
	Tier     int           `json:"tier"`
	Attempts int           `json:"attempts"`
	Start    time.Duration `json:"start_ns"`    // the start of the first attempt
	Duration time.Duration `json:"duration_ns"` // from Start to the node's end
	// QueueWait, Backoff and SignalWait are how long the node waited for slots, between attempts, and for signals.
	QueueWait  time.Duration `json:"queue_wait_ns"`
	Backoff    time.Duration `json:"backoff_ns"`
	SignalWait time.Duration `json:"signal_wait_ns,omitempty"`
	// Slack is how much later the node could have ended without making the run longer, all else being equal. It is zero on the critical
	// path, and for nodes that did not run.
	Slack    time.Duration `json:"slack_ns"`
	Critical bool          `json:"critical,omitempty"`
	// Why is the reason why the node did not run. It is empty if the node ran.
	Why string `json:"why,omitempty"`
}

// Failure is a node that failed, was aborted or was cancelled.
type Failure struct {
	Node   string      `json:"node"`
	Parent string      `json:"parent,omitempty"` // the node from which the failure came; empty for an origin
	Depth  int         `json:"depth"`            // 0 for an origin
	Status kahn.Status `json:"status"`
	Cause  string      `json:"cause"`
	// Origins lists the nodes whose failures reached this node. It is empty if there is only one such node.
	Origins []string `json:"origins,omitempty"`
	Error   string   `json:"error,omitempty"` // the error of an origin, shortened to about a kilobyte
}

// said returns a request, or nil if it is empty.
func said(q kahn.Request) *kahn.Request {
	if q == (kahn.Request{}) {
		return nil
	}
	return &q
}

// NewReport returns the report of a run. The parameter "events" has the run's events, in order; deltas and logs may be missing: see [Recorder].
func NewReport(res *kahn.Result, events []event.Event) *Report {
	if res == nil {
		res = &kahn.Result{} // the run did not begin
	}
	p := res.Plan()
	a := analyse(p, res, newTimeline(p, events))
	r := &Report{
		Workflow: p.Name(), RunID: res.ID(), Status: res.Status, Degraded: res.Degraded, Start: res.Start, Duration: res.Duration,
		Statuses: map[kahn.Status]int{}, Slots: a.slots, CriticalPath: []Step{}, DependencyPath: []Step{}, Nodes: []Node{}, Failures: []Failure{},
	}
	if res.Cause.Kind != kahn.CauseNone {
		r.Cause = res.Cause.Kind.String()
	}
	r.StopRequest, r.RedriveRequest = said(res.StopRequest), said(res.RedriveRequest)
	for i := range a.spans {
		s := &a.spans[i]
		if !a.nodes[s.node].composite { // count the nodes inside a composite instead of the composite
			r.Work += s.end - s.start
		}
		if s.status == kahn.Retrying {
			r.Retries++
		}
	}
	results := make([]kahn.NodeResult, p.Len())
	for ref := range results {
		results[ref], _ = res.Node(p.ID(machine.Ref(ref)))
	}
	for i := range a.nodes {
		r.QueueWait += a.nodes[i].total[waitSlot]
		r.Backoff += a.nodes[i].total[waitBackoff]
	}
	critical := map[int]bool{}
	for i, id := range a.path {
		critical[id] = true
		n := &a.nodes[id]
		step := Step{Node: n.path, Via: a.binds[id].via, Start: n.end}
		if n.started > 0 {
			step.Start, step.Duration = n.start, a.until(i)-n.start
			if n.queued > 0 {
				step.Wait = n.start - n.queuedAt
			}
		}
		r.CriticalPath = append(r.CriticalPath, step)
	}
	chain, took := a.chain(p)
	r.DependencyTime = took
	for _, id := range chain {
		n := &a.nodes[id]
		r.DependencyPath = append(r.DependencyPath, Step{Node: n.path, Start: n.start, Duration: n.end - n.start})
	}
	whys := explain(res, p, results)
	// If the Warnings of the Result contain errors of guards, the loop below must not add these errors again.
	warned := slices.ContainsFunc(res.Warnings, func(w error) bool { return errors.Is(w, kahn.ErrGuard) })
	for ref := range p.Declared() {
		n, nr := &a.nodes[ref], &results[ref]
		node := Node{
			ID: n.path, Status: nr.Status, Tier: nr.Tier, Attempts: nr.Attempts, Why: whys[ref], Critical: critical[int(ref)],
			QueueWait: n.total[waitSlot], Backoff: n.total[waitBackoff], SignalWait: n.total[waitSignal],
		}
		if n.started > 0 {
			node.Start, node.Duration, node.Slack = n.start, n.end-n.start, a.slack[ref]
		}
		if !warned && nr.GuardErr != nil && nr.Skip.Kind != kahn.SkipWhenGuard && nr.Cause.Kind != kahn.CauseConditionError {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s: guard could not decide: %s", n.path, foreign.ErrorText(nr.GuardErr)))
		}
		r.Statuses[nr.Status]++
		r.Nodes = append(r.Nodes, node)
	}
	for _, w := range res.Warnings {
		r.Warnings = append(r.Warnings, foreign.ErrorText(w))
	}
	r.Failures = append(r.Failures, failures(p, results)...)
	r.Compensations = compensations(events)
	return r
}

// The function compensations collects, from the events of a run, the nodes that the run has undone or tried to undo.
func compensations(events []event.Event) (list []Compensation) {
	at := map[string]int{} // by path: the index of the unfinished compensation
	for _, e := range events {
		undo, is := e.Payload.(event.Compensation)
		if !is {
			continue
		}
		path, now := cmp.Or(e.Path, e.Node), e.Time.Sub(events[0].Time)
		i, known := at[path]
		if !known {
			i, at[path] = len(list), len(list)
			list = append(list, Compensation{Node: path, Start: now - undo.Duration, Certain: undo.Certain})
		}
		c := &list[i]
		c.Status, c.Attempts, c.Duration = kahn.CompensationRunning, e.Attempt, events[len(events)-1].Time.Sub(events[0].Time)-c.Start
		if e.Type != event.NodeCompensated {
			continue
		}
		delete(at, path)
		if c.Status, c.Duration = kahn.CompensationDone, now-c.Start; undo.Err != nil {
			c.Status, c.Error = kahn.CompensationFailed, foreign.ErrorText(undo.Err)
		}
	}
	return list
}

// The function failures arranges failed and stopped nodes as trees: the parent of a node is the node that made it fail or stop.
func failures(p *kahn.Plan, results []kahn.NodeResult) (forest []Failure) {
	bad := func(ref machine.Ref) bool {
		switch results[ref].Status {
		case kahn.Failed, kahn.Aborted, kahn.Cancelled:
			return true
		}
		return false
	}
	upstream := func(ref machine.Ref) bool {
		kind := results[ref].Cause.Kind
		return kind == kahn.CauseUpstreamFailure || kind == kahn.CauseUpstreamCancelled
	}
	const none = machine.Ref(-1)
	parents := make([]machine.Ref, p.Len())
	for ref := range parents {
		parents[ref] = none
		origins := results[ref].Cause.Origins
		if !bad(machine.Ref(ref)) || upstream(machine.Ref(ref)) || len(origins) == 0 || origins[0] == results[ref].ID {
			continue
		}
		if origin, ok := p.Ref(origins[0]); ok && bad(origin) && !upstream(origin) {
			parents[ref] = origin // the failure of another node stopped the run or a group, and thereby this node
		}
	}
	for e := range p.Edges() {
		from, _ := p.Ref(e.From)
		if to, _ := p.Ref(e.To); !e.DataOnly && bad(from) && bad(to) && upstream(to) && parents[to] == none {
			parents[to] = from
		}
	}
	children := make([][]machine.Ref, p.Len())
	var stack []machine.Ref
	for ref := range p.Declared() {
		switch {
		case !bad(ref):
		case parents[ref] == none:
			stack = append(stack, ref)
		default:
			children[parents[ref]] = append(children[parents[ref]], ref)
		}
	}
	slices.Reverse(stack)
	depth := make([]int, p.Len())
	for len(stack) > 0 {
		ref := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		nr := &results[ref]
		f := Failure{Node: nr.ID, Status: nr.Status, Cause: nr.Cause.Kind.String()}
		if parent := parents[ref]; parent != none {
			depth[ref] = depth[parent] + 1
			f.Parent, f.Depth = results[parent].ID, depth[ref]
		} else if nr.Err != nil {
			f.Error = nr.Err.Error() // Err is a NodeError: its text is bounded, and its method Error does not panic
		}
		if len(nr.Cause.Origins) > 1 {
			f.Origins = nr.Cause.Origins
		}
		forest = append(forest, f)
		for _, child := range slices.Backward(children[ref]) {
			stack = append(stack, child)
		}
	}
	return forest
}
