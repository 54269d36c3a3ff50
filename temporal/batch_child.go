package temporal

import (
	"encoding/json"
	"time"

	"go.temporal.io/sdk/workflow"
)

// A child workflow delays the report of an outcome, so that one report carries several outcomes. The delay is shorter if the run reacts to the
// outcome at once.
const (
	afterStop    = 100 * time.Millisecond // the delay for an attempt that was asked to stop
	afterFailure = time.Second
	afterSuccess = time.Second // the minimum; the delay grows to 1/partOfAge of the child's age, so that a long batch sends few reports
	partOfAge    = 4
)

// performer is one execution of the workflow that performs a batch.
type performer struct {
	*host
	ctx   workflow.Context // never cancelled
	in    batch
	run   workflow.Execution
	began time.Time
	wait  workflow.Selector
	calls []workflow.CancelFunc // functions that cancel the running attempts; nil for attempts that do not run

	asked   map[int]bool // the indexes of attempts that were asked to stop
	running int          // how many attempts are running
	telling int          // how many reports are being sent
	ended   []placed     // the outcomes that the child has not yet reported to the run
	size    int          // the size of ended, in bytes
	due     time.Time    // the time of the next report
	timer   workflow.CancelFunc
}

// The method `batch` is the workflow that performs a batch. It returns when all attempts have ended. Its result has the outcomes that
// the run has not received in a report.
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
		c.ReceiveAsync(nil) // take the value of the closed channel, see host.run
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

// The method `begin` begins the activity of an attempt.
func (b *performer) begin(place int) {
	c := b.in.Calls[place]
	ctx, cancel := workflow.WithCancel(b.ctx)
	b.calls[place] = cancel
	b.running++
	b.wait.AddFuture(b.activity(ctx, isNamed(b.ctx), c.Path, c.typed, c.task(b.in.Plan, b.in.Run, "")), func(f workflow.Future) {
		var data json.RawMessage
		err := f.Get(b.ctx, &data)
		b.calls[place] = nil
		b.running--
		b.keep(placed{place, outcomeOf(data, err)}, err != nil)
	})
}

// The method `stop` asks an attempt to stop.
func (b *performer) stop(place int) {
	if place >= 0 && place < len(b.calls) && b.calls[place] != nil {
		b.asked[place] = true
		b.calls[place]()
	}
	b.plan(afterStop)
}

// The method `keep` adds an outcome to the next report.
func (b *performer) keep(p placed, failed bool) {
	size := len(p.Reply) + len(p.Error) + p.Details.size()
	if len(b.ended) > 0 && b.size+size > batchBytes {
		b.tell()
	}
	b.ended = append(b.ended, p)
	b.size += size
	b.plan(b.patience(p.Place, failed))
}

// patience returns how long the report of an outcome may be delayed.
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

// The method `plan` sets the timer of the next report, so that it fires after the given time at the latest. It sets no timer if there are no outcomes
// to report. It also sets no timer if no attempt is running, since the workflow then returns the outcomes as its result.
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

// The method `tell` reports the outcomes so far. If the report does not reach the run, the next report or the result has these outcomes.
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
