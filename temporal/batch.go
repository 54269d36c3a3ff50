package temporal

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/workflow"
)

// The signals between a run and a child workflow that performs a batch of its attempts.
const (
	endedSignal = "kahn.Ended" // sent to the run, with a report
	stopSignal  = "kahn.Stop"  // sent to the child, with the indexes of the attempts that it must stop
)

const (
	maxBatch   = 100 // attempts in a batch
	minBatch   = 4   // the fewest attempts in a batch; activities perform fewer attempts, since this makes the history shorter
	linger     = 250 * time.Millisecond
	fewBeside  = 10      // n attempts wait for more to join their batch only while more than n*fewBeside attempts are running
	batchBytes = 1 << 20 // the most bytes of the calls in a batch, and of the outcomes in a report; a longer call or outcome is sent alone
)

// batch is the input of a child workflow that performs attempts for a run. The run decides when to begin the attempts, and what follows from their
// outcomes.
type batch struct {
	Number int    `json:"number"` // the batch's number among the batches of an execution of the run
	Plan   planID `json:"plan"`
	Run    string `json:"run,omitempty"` // the id of the run, for its short calls
	Calls  []call `json:"calls"`
}

// call is a task of a batch. It names no plan, since its batch names the plan.
type call struct {
	Path     string          `json:"path"`
	Call     json.RawMessage `json:"call"`
	Short    bool            `json:"short,omitempty"`
	Deadline time.Time       `json:"deadline,omitzero"` // the attempt's deadline; the child reports an earlier outcome before it
	Details  details         `json:"details,omitempty"`
	typed
}

// report is what a child workflow sends to its run.
type report struct {
	Number   int      `json:"number"` // the number of the batch
	Outcomes []placed `json:"outcomes,omitempty"`
}

// placed is the outcome of an attempt of a batch.
type placed struct {
	Place int `json:"place"`
	outcome
}

// The type batches has the child workflows that perform batches for a run.
type batches struct {
	most   int             // the most attempts in a batch; 0 until it is known, negative if the run makes no batches
	large  map[string]bool // whether a map is large, by the path of the map; isLarge sets the entries
	count  int
	active []*child

	lingering, lingered bool // lingering: attempts wait for more to join their batch; lingered: the wait is over
}

// child is a child workflow that performs a batch.
type child struct {
	number   int
	attempts []*attempt // nil for attempts that have ended
	stops    []int      // the indexes of attempts that the child must still be asked to stop
	done     workflow.ChildWorkflowFuture
}

// batchesVersion names the change of the workflow's code that introduced batches. An execution that began before the change continues
// without batches.
const batchesVersion = "kahn.Batch"

// lingers reports whether the attempts in x.begun must wait a moment, so that more attempts join their batch. They wait once. They do not wait if
// they fill a batch, if one of them may not be part of a batch, or if too few attempts are running. When a running attempt ends, a new attempt may
// begin; without the wait, each new attempt would be performed alone.
func (x *interpreter) lingers() bool {
	b, n := &x.batches, len(x.begun)
	if b.lingered || n >= b.most || n*fewBeside >= len(x.calls) || slices.ContainsFunc(x.begun, func(a *attempt) bool { return !x.joins(a) }) {
		return false
	}
	if !b.lingering {
		b.lingering = true
		x.wait.AddFuture(workflow.NewTimer(x.ctx, linger), func(workflow.Future) { b.lingering, b.lingered = false, true })
	}
	return true
}

// joins reports whether an attempt may be performed in a batch.
func (x *interpreter) joins(a *attempt) bool {
	return x.workflowOf(a.step) == nil && x.isOfLargeMap(a.step.Path())
}

// isOfLargeMap reports whether a path leads into a large map, see Settings.MapChildren. It returns false if the run makes no batches.
func (x *interpreter) isOfLargeMap(path string) bool {
	above := x.in.Settings.MapChildren
	if above == 0 {
		above = defaultMapChildren
	}
	if above < 0 || x.batches.most < 0 {
		return false
	}
	for i := range len(path) {
		if path[i] == '[' && x.isLarge(path[:i], above) {
			if x.batches.most == 0 {
				x.batches.most = -1
				if x.since(batchesVersion) {
					x.batches.most = min(above, maxBatch)
				}
			}
			return x.batches.most > 0
		}
	}
	return false
}

// isLarge reports whether a path names a map with more items than the given number.
func (x *interpreter) isLarge(path string, above int) bool {
	large, known := x.batches.large[path]
	if known {
		return large
	}
	if n, ok := x.plan.At(path); ok && n.Map != nil {
		in, err := x.c.Run().Inside(path)
		large = err == nil && in.Plan != nil && in.Plan.Len() > above
	}
	if x.batches.large == nil {
		x.batches.large = map[string]bool{}
	}
	x.batches.large[path] = large
	return large
}

// performBatch begins a child workflow that performs the given attempts.
func (x *interpreter) performBatch(attempts []*attempt) {
	b := &child{number: x.batches.count, attempts: attempts}
	x.batches.count++
	x.batches.active = append(x.batches.active, b)
	in := batch{Number: b.number, Plan: x.in.Plan, Calls: make([]call, len(attempts))}
	if x.in.ShortCalls {
		in.Run = x.in.RunID
	}
	x.count++
	for place, a := range attempts {
		if !a.again {
			x.count--
		}
		in.Calls[place] = x.asData(a)
		in.Calls[place].Deadline, _ = a.step.Deadline()
		if x.named {
			in.Calls[place].typed = x.typed(a.step)
		}
		a.cancel = func() { b.stops = append(b.stops, place) }
	}
	ctx := workflow.WithChildOptions(x.ctx, workflow.ChildWorkflowOptions{
		ParentClosePolicy: enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL, StaticSummary: shorten(attempts[0].step.Path(), maxSummary),
	})
	name := BatchName
	if x.named {
		name = ItemsName
	}
	b.done = workflow.ExecuteChildWorkflow(ctx, name, in)
	x.wait.AddFuture(b.done, func(f workflow.Future) {
		x.hear() // handles the reports that the child sent before its end
		var last report
		err := f.Get(x.ctx, &last)
		x.conclude(b, last, err)
	})
}

// asData returns the call of an attempt as data.
func (x *interpreter) asData(a *attempt) call {
	return call{Path: a.step.Path(), Call: a.data, Short: a.short, Details: x.beats[nameOf(a.step)]}
}

// The method `hear` handles the reports that child workflows have sent.
func (x *interpreter) hear() {
	for {
		var r report
		if !workflow.GetSignalChannel(x.ctx, endedSignal).ReceiveAsync(&r) {
			return
		}
		if i := slices.IndexFunc(x.batches.active, func(b *child) bool { return b.number == r.Number }); i >= 0 {
			x.take(x.batches.active[i], r)
		}
	}
}

// The method `take` passes to the run the outcomes that a report contains. It skips the outcome of an attempt for which the run already has an outcome.
func (x *interpreter) take(b *child, r report) {
	for _, p := range r.Outcomes {
		if p.Place < 0 || p.Place >= len(b.attempts) || b.attempts[p.Place] == nil {
			continue
		}
		a := b.attempts[p.Place]
		b.attempts[p.Place] = nil
		x.ended(a, p.outcome)
	}
}

// conclude handles the last report of a child workflow. If an attempt has no outcome, for example because the child was terminated,
// the worker of the attempt counts as lost.
func (x *interpreter) conclude(b *child, last report, err error) {
	x.take(b, last)
	x.batches.active = slices.DeleteFunc(x.batches.active, func(other *child) bool { return other == b })
	for _, a := range slices.Backward(b.attempts) { // in reverse order, since x.ended puts each attempt at the front of x.begun
		if a != nil {
			x.ended(a, outcome{Ended: endedSilent, Error: fmt.Sprintf("kahn/temporal: the child workflow of the attempt has ended: %v", err)})
		}
	}
}

// stopBatches asks each child workflow to stop the attempts in child.stops.
func (x *interpreter) stopBatches() {
	for _, b := range x.batches.active {
		if places := b.stops; len(places) > 0 {
			b.stops = nil
			workflow.Go(x.ctx, func(ctx workflow.Context) { // the signal waits for the start of the child
				if err := b.done.SignalChildWorkflow(ctx, stopSignal, places).Get(ctx, nil); err != nil {
					workflow.GetLogger(ctx).Debug("a child workflow has ended before it was asked to stop attempts", "error", err)
				}
			})
		}
	}
}
