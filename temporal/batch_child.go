package temporal

import (
	"encoding/json"
	"time"

	"go.temporal.io/sdk/workflow"
)

// How long a child workflow keeps an outcome to itself, so that several share a report. Outcomes that others have to follow soon wait for less.
const (
	afterStop    = 100 * time.Millisecond // an attempt that was asked to stop
	afterFailure = time.Second
	afterSuccess = time.Second // or a part of the time since the child began, so that the reports of a long batch become rare
	partOfAge    = 4
)

// performer is one execution of the workflow that performs a batch.
type performer struct {
	*host
	ctx   workflow.Context // is not cancelled
	in    batch
	run   workflow.Execution
	began time.Time
	wait  workflow.Selector
	calls []workflow.CancelFunc // of the running attempts; nil for the others

	asked   map[int]bool // attempts that are to stop
	running int          // attempts
	telling int          // reports in flight
	ended   []placed     // not reported to the run yet
	size    int          // of these in bytes
	due     time.Time    // of the next report
	timer   workflow.CancelFunc
}

// batch is the workflow that performs a batch. It returns when all attempts have ended, with the outcomes that were not reported to the run
// before.
func (h *host) batch(root workflow.Context, in batch) (report, error) {
	b := &performer{host: h, in: in, began: workflow.Now(root), wait: workflow.NewSelector(root), calls: make([]workflow.CancelFunc, len(in.Calls)), asked: map[int]bool{}}
	b.ctx, _ = workflow.NewDisconnectedContext(root)
	if parent := workflow.GetInfo(root).ParentWorkflowExecution; parent != nil {
		b.run = *parent
	}
	b.wait.AddReceive(workflow.GetSignalChannel(root, stopSignal), func(c workflow.ReceiveChannel, _ bool) {
		var places []int
		c.Receive(root, &places)
		for _, place := range places {
			b.stop(place)
		}
	})
	b.wait.AddReceive(root.Done(), func(c workflow.ReceiveChannel, _ bool) {
		c.ReceiveAsync(nil) // see host.run
		for place := range in.Calls {
			b.stop(place)
		}
	})
	for place := range in.Calls {
		b.begin(place)
	}
	for b.running > 0 || b.telling > 0 {
		b.wait.Select(b.ctx)
	}
	return report{in.Number, b.ended}, nil
}

// begin begins the activity of an attempt.
func (b *performer) begin(place int) {
	c := b.in.Calls[place]
	ctx, cancel := workflow.WithCancel(b.ctx)
	b.calls[place] = cancel
	b.running++
	b.wait.AddFuture(b.activity(ctx, isNamed(b.ctx), c.Path, c.typed, task{b.in.Plan, c.Path, c.Call, true, c.Details}), func(f workflow.Future) {
		var data json.RawMessage
		err := f.Get(b.ctx, &data)
		b.calls[place] = nil
		b.running--
		b.keep(placed{place, outcomeOf(data, err)}, err != nil)
	})
}

// stop asks an attempt to stop.
func (b *performer) stop(place int) {
	if place >= 0 && place < len(b.calls) && b.calls[place] != nil {
		b.asked[place] = true
		b.calls[place]()
	}
	b.plan(afterStop)
}

// keep keeps an outcome until the next report.
func (b *performer) keep(p placed, failed bool) {
	size := len(p.Reply) + len(p.Error) + p.Details.size()
	if len(b.ended) > 0 && b.size+size > batchBytes {
		b.tell()
	}
	b.ended = append(b.ended, p)
	b.size += size
	b.plan(b.patience(p.Place, failed))
}

// patience is how long an outcome may wait for others.
func (b *performer) patience(place int, failed bool) time.Duration {
	if b.asked[place] {
		return afterStop
	}
	now, wait := workflow.Now(b.ctx), afterFailure
	if !failed {
		wait = max(afterSuccess, now.Sub(b.began)/partOfAge)
	}
	if deadline := b.in.Calls[place].Deadline; !deadline.IsZero() {
		wait = min(wait, max(0, deadline.Sub(now)/2))
	}
	return wait
}

// plan has the next report not later than after the given time.
func (b *performer) plan(after time.Duration) {
	due := workflow.Now(b.ctx).Add(after)
	if b.running == 0 || len(b.ended) == 0 || b.timer != nil && !due.Before(b.due) {
		return
	}
	if b.timer != nil {
		b.timer()
	}
	ctx, cancel := workflow.WithCancel(b.ctx)
	b.due, b.timer = due, cancel
	b.wait.AddFuture(workflow.NewTimer(ctx, after), func(f workflow.Future) {
		if f.Get(ctx, nil) == nil && due.Equal(b.due) {
			b.timer = nil
			b.tell()
		}
	})
}

// tell reports the outcomes so far. Outcomes that do not reach the run are in the next report, or in the last one.
func (b *performer) tell() {
	if len(b.ended) == 0 {
		return
	}
	told := b.ended
	b.ended, b.size = nil, 0
	b.telling++
	f := workflow.SignalExternalWorkflow(b.ctx, b.run.ID, b.run.RunID, endedSignal, report{b.in.Number, told})
	b.wait.AddFuture(f, func(f workflow.Future) {
		b.telling--
		if f.Get(b.ctx, nil) != nil {
			b.ended = append(told, b.ended...)
		}
	})
}
