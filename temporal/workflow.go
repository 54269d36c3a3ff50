package temporal

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// input is the input of the workflow.
type input struct {
	Plan         planID                     `json:"plan"`
	StateVersion int                        `json:"state_version"`         // the machine.StateVersion with which the run began; it stays the same until the run ends
	RunID        string                     `json:"run_id,omitempty"`      // the id of the run; "" if it is the run id of the workflow's first execution
	WorkflowID   string                     `json:"workflow_id,omitempty"` // the first part of the ids of child workflows; in replays the SDK does not know it
	Settings     Settings                   `json:"settings,omitzero"`
	Inputs       map[string]json.RawMessage `json:"inputs,omitempty"`
	Fired        *fired                     `json:"fired,omitempty"`
	// ShortCalls says that the calls of attempts are short, see the type foresight.
	ShortCalls bool `json:"short_calls,omitempty"`
	// If SearchAttributes is set, the workflow keeps the search attribute for the status of its run up to date.
	SearchAttributes bool `json:"search_attributes,omitempty"`
	// If the execution continues another one, Snapshot is the state of the run, and Continued is the number of earlier executions.
	Snapshot  *packed `json:"snapshot,omitempty"`
	Continued int     `json:"continued,omitempty"`
	Beats     beats   `json:"beats,omitempty"`
	// Redriving describes the redrive if the execution continues a run that had ended, see Run.Redrive.
	Redriving *redriving `json:"redriving,omitempty"`
	// Adopting is set in the first execution after the run has moved to another plan, see Run.Adopt.
	Adopting *adopting `json:"adopting,omitempty"`
	// Earlier lists the earlier executions of the workflow, for readers of their events.
	Earlier []execution `json:"earlier,omitempty"`
}

// fired is a [Fire] as data.
type fired struct {
	Trigger string          `json:"trigger"`
	Payload json.RawMessage `json:"payload"`
	Prune   kahn.PruneMode  `json:"prune,omitempty"`
}

// output is the result of the workflow. If the run has failed or was cancelled, the output is in the details of the workflow's failure.
type output struct {
	Status   kahn.RunStatus  `json:"status"`
	Rule     kahn.StatusRule `json:"status_rule,omitempty"` // the status rule of the run
	Snapshot packed          `json:"snapshot"`
	// Error says why the Snapshot has no outputs.
	Error string `json:"error,omitempty"`
}

// The types of the workflow's failures.
const (
	failedRun  = "kahn.RunFailed"  // the run failed; the failure's details are the output, and its cause is what failed first, see causeOf
	refusedRun = "kahn.RunRefused" // the run did not begin
)

// interpreter is one execution of the workflow. It drives one run. Only the workflow's coroutines call its methods, one coroutine at a time.
type interpreter struct {
	*host
	root    workflow.Context // cancelled when Temporal asks the run to stop
	heard   bool             // the run was cancelled because Temporal asked the workflow to stop
	named   bool             // see isNamed
	texts   texts            // the host's texts; they store errors of Blobs in the field "broken", see watched
	calling *writtenOnce     // the codec of texts
	broken  error            // an error that fails the workflow task, for example of Blobs, or ErrImpure
	ctx     workflow.Context // never cancelled, so that cleanup continues after the run was cancelled
	in      input
	plan    *kahn.Plan
	c       *kahn.Coordinator
	wait    workflow.Selector
	wake    workflow.Channel // has a message when an update has changed the run

	calls    map[*kahn.Step]*attempt // the running attempts
	begun    []*attempt              // the attempts that wait to be given to Temporal
	bytes    int                     // the bytes of the calls that were given to Temporal since the end of the last pause
	pausing  bool                    // a timer will begin another workflow task
	count    int                     // the number of attempts in this execution; a batch counts as one attempt
	lost     map[string]int          // by path: how many consecutive attempts of the node have lost their worker
	beats    beats                   // by path: the heartbeat details of the last attempt
	room     room                    // the room in the snapshot for results
	leaving  bool                    // this execution has to end
	adopting *adoptRequest           // the plan with which the next execution continues; nil for the same plan
	full     bool                    // the run cannot continue as new
	batches  batches                 // attempts that child workflows perform
	shown    kahn.RunStatus          // the value of the search attribute, if known

	timer  workflow.CancelFunc // cancels the timer; nil if no timer is set
	fires  time.Time           // when the timer fires
	timers int                 // the number of the last timer; a timer with a lower number was replaced, and does nothing
}

// attempt is an attempt that an activity or a child workflow performs.
type attempt struct {
	step   *kahn.Step
	data   json.RawMessage // the call, or the arguments of the child workflow; nil until it is written
	short  bool            // data is a short call
	by     *StepWorkflow   // the child workflow that performs the attempt; nil for an activity
	cancel func()
	asked  bool // the attempt was asked to stop
	again  bool // the attempt runs again, because its worker was lost
}

// maxTaskBytes is the most bytes of calls in one workflow task. If a single call is longer, a task contains only this call. Temporal refuses 4 MiB.
const maxTaskBytes = 2 << 20

// run is the workflow.
func (h *host) run(root workflow.Context, in input) (*output, error) {
	err := h.complete(root, &in)
	var plan *kahn.Plan
	if err == nil {
		plan, err = h.plan(in.Plan)
	}
	if err == nil && in.StateVersion != machine.StateVersion {
		err = fmt.Errorf("kahn/temporal: the run began with machine.StateVersion %d, and the worker has machine.StateVersion %d", in.StateVersion, machine.StateVersion)
	}
	if err != nil {
		leaveToAnother(err)
	}
	in.Plan.Name = plan.Name() // a client may leave it out
	x := &interpreter{
		host: h, root: root, named: isNamed(root), in: in, plan: plan, calls: map[*kahn.Step]*attempt{}, lost: map[string]int{}, beats: in.Beats,
		wait: workflow.NewSelector(root), wake: workflow.NewBufferedChannel(root, 1),
	}
	if in.Continued == 0 {
		x.shown = kahn.RunRunning // the value that Start has set
	}
	x.ctx, _ = workflow.NewDisconnectedContext(root)
	x.texts = h.watched(x.ctx, &x.broken)
	x.calling = &writtenOnce{Codec: x.texts.Codec}
	x.texts.Codec = x.calling
	opts, err := x.options()
	x.mend()
	if err != nil {
		leaveToAnother(err)
	}
	if x.c, err = kahn.NewCoordinator(plan, workflow.Now(root), opts...); err != nil {
		x.mend()
		if in.Continued > 0 && in.Redriving == nil {
			leaveToAnother(err)
		}
		return nil, refuse(err)
	}
	if err := errors.Join(x.handle(), in.Adopting.note(x.ctx, in.Plan)); err != nil {
		return nil, refuse(err)
	}
	x.wait.AddReceive(x.wake, func(c workflow.ReceiveChannel, _ bool) { c.ReceiveAsync(nil) })
	x.wait.AddReceive(root.Done(), func(c workflow.ReceiveChannel, _ bool) {
		// After the channel is closed, the Selector would call this function again and again if the function did not receive from the channel.
		c.ReceiveAsync(nil)
		x.cancel()
	})
	x.wait.AddReceive(workflow.GetSignalChannel(x.ctx, endedSignal), func(workflow.ReceiveChannel, bool) { x.hear() })
	x.wait.AddReceive(workflow.GetSignalChannel(x.ctx, SignalName), func(workflow.ReceiveChannel, bool) { x.hearAnswers() })
	for {
		res, err := x.drive()
		snapshot, packErr := x.texts.pack(res.Snapshot())
		x.mend()
		switch {
		case packErr == nil:
			return x.end(res, err, snapshot)
		case res.Status != kahn.RunSuspended || !x.since(boundVersion):
			return nil, x.tooLarge(res, packErr)
		}
		if err := x.stay(res.Snapshot(), packErr); err != nil {
			return nil, refuse(err)
		}
	}
}

// leaveToAnother fails the workflow task, so that Temporal repeats the task, usually on another worker. The interpreter calls it if the worker lacks
// something that the run needs, such as the plan, a type or a blob. During a rolling deploy, other workers of the task queue may have what this
// worker lacks.
func leaveToAnother(err error) {
	panic(fmt.Errorf("kahn/temporal: the workflow task is left to another worker: %w", err))
}

// The method options returns the options of the Coordinator.
func (x *interpreter) options() ([]kahn.Option, error) {
	in := x.in
	x.room.begin(in)
	opts := x.always()
	if in.Snapshot != nil {
		from, err := in.Snapshot.open(x.texts)
		switch {
		case in.Redriving != nil:
			return append(opts, in.Redriving.options(from)...), err
		case in.Adopting != nil:
			return append(opts, in.Adopting.options(from)...), err
		}
		return append(opts, kahn.Resume(from)), err
	}
	if f := in.Fired; f != nil {
		payload, err := x.texts.Decode(f.Payload)
		if err != nil {
			return nil, fmt.Errorf("kahn/temporal: the payload of %q: %w", f.Trigger, err)
		}
		opts = append(opts, kahn.Fire(f.Trigger, payload), f.Prune)
	}
	inputs, err := decodeAll(x.texts, in.Inputs)
	return append(opts, kahn.Inputs(inputs)), err
}

// The method `always` returns the options that the Coordinator gets both when a run begins and when it continues.
func (x *interpreter) always() []kahn.Option {
	in := x.in
	opts := append(in.Settings.options(), kahn.RunID(in.RunID), kahn.Encoding(x.texts.Codec))
	calls := x.decide
	if x.Pure {
		calls = x.verify
	}
	opts = append(opts, kahn.GraphCalls(calls))
	seed := sha256.Sum256(fmt.Appendf(nil, "%d %s", in.Continued, in.RunID))
	random := rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:]), binary.LittleEndian.Uint64(seed[8:])))
	return append(opts, kahn.Random(random.Float64))
}

// drive performs the run until the run or this execution has to end.
func (x *interpreter) drive() (*kahn.Result, error) {
	for {
		x.hearAnswers()
		x.begin()
		x.stop()
		if x.leaving && !x.full {
			// One call of Leave may not suffice: if the run was stopped and has not begun to undo its nodes, Leave does nothing. So every
			// turn of the loop calls Leave.
			x.c.Run().Leave()
		}
		res, err := x.c.Result()
		if !errors.Is(err, kahn.ErrNotEnded) {
			return res, err
		}
		x.listen()
		if !x.leaving && !x.full && (x.count >= x.ContinueAfter || workflow.GetInfo(x.ctx).GetContinueAsNewSuggested()) {
			x.leaving = true
			x.c.Run().Leave()
			continue
		}
		x.arm()
		x.mend()
		x.show(x.c.Run().Status())
		x.wait.Select(x.ctx)
		x.listen()
		x.c.Advance(workflow.Now(x.ctx))
	}
}

// Each constant names a change of the workflow's code. These changes are older than the names of workflows, see isNamed. An execution that began
// before a change continues without the change.
const (
	cancelVersion = "kahn.Cancel"  // the workflow handles a cancellation by Temporal before the results in the same workflow task
	crashVersion  = "kahn.Crashes" // stopped workers do not count as crashes, and too many crashes fail the node with an error of their own
	boundVersion  = "kahn.Bounded" // an output that does not fit into the snapshot fails its node
)

// The method since reports whether the execution began after a change of the workflow's code.
func (x *interpreter) since(change string) bool {
	return x.named || workflow.GetVersion(x.ctx, change, workflow.DefaultVersion, 1) == 1
}

// graceVersion names a change of how the workflow handles a cancellation by Temporal. With the change, a cancellation takes effect when it arrives,
// so that running steps get the whole CancelGrace. Without the change, a cancellation takes effect at the time of the preceding event. The change is
// newer than the names of workflows, so isNamed does not imply it.
const graceVersion = "kahn.Grace"

// cancel cancels the run because Temporal has cancelled the workflow.
func (x *interpreter) cancel() {
	x.heard = true
	// Versions without the change did not perform steps by child workflows. So a run with such a child needs no record of the change. A record would
	// even do harm: the SDK (1.48.0) cannot replay a record directly before the cancellation of a child workflow, because it miscounts the events.
	if x.hasWorkflows() || workflow.GetVersion(x.ctx, graceVersion, workflow.DefaultVersion, 1) == 1 {
		x.c.Advance(workflow.Now(x.ctx))
	}
	_ = x.c.Run().Cancel() // the only error is that the run has ended
}

// listen cancels the run if Temporal has cancelled the workflow. While the run is being left, this request may arrive in the same workflow task as
// the last result. The workflow handles the request before that result, since a stop takes precedence over continuing as new.
func (x *interpreter) listen() {
	if x.root.Err() != nil && !x.heard && x.since(cancelVersion) {
		x.cancel()
	}
}

// mend fails the workflow task if x.broken is set, so that this error does not become part of the run.
func (x *interpreter) mend() {
	if x.broken != nil {
		panic(fmt.Errorf("kahn/temporal: the workflow task is repeated: %w", x.broken))
	}
}

// begin gives Temporal as many of the waiting attempts as fit into a workflow task.
func (x *interpreter) begin() {
	x.calling.begin()
	defer x.calling.end()
	x.queue()
	for {
		n, size := x.next()
		if n > 0 && x.lingers() {
			return
		}
		if n == 0 || x.bytes > 0 && x.bytes+size > maxTaskBytes {
			break
		}
		together := slices.Clone(x.begun[:n])
		x.begun = x.begun[n:]
		x.bytes += size
		for _, a := range together {
			x.calls[a.step] = a
		}
		switch first := together[0]; {
		case n > 1:
			x.performBatch(together)
		case first.by != nil:
			x.performBy(first, *first.by)
		default:
			x.perform(first)
		}
	}
	x.batches.lingered = false
	if len(x.begun) > 0 && !x.pausing {
		x.pausing = true
		x.wait.AddFuture(workflow.NewTimer(x.ctx, time.Millisecond), func(workflow.Future) { x.bytes, x.pausing = 0, false })
	}
}

// The method next writes the calls of the attempts that Temporal gets next: a batch, or only the first waiting attempt. It returns the
// number of these attempts, and the bytes of their calls.
func (x *interpreter) next() (n, size int) {
	for {
		if len(x.begun) == 0 {
			return 0, 0
		}
		if x.written(0) {
			break
		}
	}
	for n < len(x.begun) && x.joins(x.begun[n]) && n < x.batches.most {
		if !x.written(n) {
			continue
		}
		if size+len(x.begun[n].data) > batchBytes {
			break
		}
		size += len(x.begun[n].data)
		n++
	}
	if n < minBatch {
		return 1, len(x.begun[0].data)
	}
	return n, size
}

// The method written writes the call of a waiting attempt, unless the attempt has its call already. If the call cannot be written, the method
// drops the attempt and returns false.
func (x *interpreter) written(i int) bool {
	if x.begun[i].data != nil || x.encode(x.begun[i]) {
		return true
	}
	x.begun = slices.Delete(x.begun, i, i+1)
	x.queue()
	return false
}

// The method queue takes the attempts that the Coordinator hands out, and appends them to x.begun.
func (x *interpreter) queue() {
	for s, ok := x.c.Next(); ok; s, ok = x.c.Next() {
		x.begun = append(x.begun, &attempt{step: s})
	}
}

// callOf returns the call of an attempt.
func (x *interpreter) callOf(s *kahn.Step) kahn.Call {
	if x.View {
		return s.Call()
	}
	return s.CallWithoutView()
}

// encode writes the call of an attempt. If the call has no JSON form, or is longer than MaxBytes, the node fails.
func (x *interpreter) encode(a *attempt) bool {
	s := a.step
	if f := x.workflowOf(s); f != nil {
		if err := x.describe(a, f); err != nil {
			x.report(s, kahn.Reply{Err: kahn.NoEffect(kahn.Permanent(err))}, nil)
			return false
		}
		x.count++
		return true
	}
	call := x.callOf(s)
	call.Config, call.View.Config = nil, nil // the worker has the plan, which contains the Config
	var data json.RawMessage
	var err error
	if x.in.ShortCalls {
		data, a.short, err = x.shortText(x.in.Plan, call, workflow.Now(x.ctx))
	} else {
		data, err = json.Marshal(call)
	}
	if err == nil {
		data, err = x.texts.write(data)
	}
	if err == nil {
		err = x.fits(s.Path(), "call", data)
	}
	if err != nil {
		x.report(s, kahn.Reply{Err: kahn.NoEffect(kahn.Permanent(err))}, nil)
		return false
	}
	a.data = data
	x.count++
	return true
}

// Temporal requires a timeout for each activity. The run itself bounds the time of attempts, so Temporal's timeout never expires in practice.
const forever = 10 * 365 * 24 * time.Hour

// perform begins the activity of an attempt.
func (x *interpreter) perform(a *attempt) {
	var ctx workflow.Context
	ctx, a.cancel = workflow.WithCancel(x.ctx)
	in := workflow.GetInfo(x.ctx).WorkflowExecution.RunID
	x.wait.AddFuture(x.activity(ctx, x.named, nameOf(a.step), x.typed(a.step), x.asData(a).task(x.in.Plan, x.in.RunID, in)), func(f workflow.Future) {
		var data json.RawMessage
		err := f.Get(x.ctx, &data)
		x.ended(a, outcomeOf(data, err))
	})
}

// The method `ended` reports the result of an attempt to the run. If the attempt has lost its worker, the method instead puts it first in x.begun, so
// that another worker performs it. If the run has asked this attempt to stop, or its node has lost too many workers, the method reports the loss.
func (x *interpreter) ended(a *attempt, o outcome) {
	x.listen()
	s := a.step
	reply, told := x.texts.replyOf(o)
	x.c.Advance(workflow.Now(x.ctx))
	for _, m := range told.Remarks {
		m.tell(s, x.texts.Codec)
	}
	x.note(nameOf(s), o, reply, told.Details)
	if !o.lost() || a.asked {
		x.report(s, reply, o.Reply)
		return
	}
	if o.Ended != endedStopped || !x.since(crashVersion) {
		n, _ := x.plan.At(s.Path())
		x.lost[nameOf(s)]++
		if most := x.in.Settings.maxCrashes(n); most >= 0 && x.lost[nameOf(s)] > most {
			x.crash(s, reply)
			return
		}
	}
	delete(x.calls, s)
	a.again = true
	x.begun = slices.Insert(x.begun, 0, a)
}

// The method crash fails the node of an attempt whose worker was lost too often.
func (x *interpreter) crash(s *kahn.Step, reply kahn.Reply) {
	if !x.since(crashVersion) {
		x.report(s, reply, nil)
		return
	}
	x.forget(s)
	must(x.c.Crash(s, reply.Err))
}

// undoPrefix is the first part of the name of an attempt to undo a node.
const undoPrefix = "undo:"

// nameOf returns the path of an attempt's node. For an attempt to undo the node, undoPrefix precedes the path.
func nameOf(s *kahn.Step) string {
	if s.Compensating() {
		return undoPrefix + s.Path()
	}
	return s.Path()
}

// The method report passes the reply of a step to the run, and resets the node's count of lost workers. The parameter "data" is the JSON of the
// reply's value. If the run no longer waits for the reply, report drops it.
func (x *interpreter) report(s *kahn.Step, reply kahn.Reply, data json.RawMessage) {
	x.forget(s)
	if !s.Compensating() { // the value of a compensation does not count
		reply = x.bound(s, reply, data)
	}
	must(x.c.Return(s, reply.Value, reply.Err))
}

func (x *interpreter) forget(s *kahn.Step) {
	delete(x.calls, s)
	delete(x.lost, nameOf(s))
}

// The function must panics if err is not nil. It ignores kahn.ErrStale, which means that the run no longer waits for the result.
func must(err error) {
	if err != nil && !errors.Is(err, kahn.ErrStale) {
		panic(err) // this is a bug, because the Coordinator returns no other error here
	}
}

// The method stop cancels the attempts that the Coordinator wants to stop.
func (x *interpreter) stop() {
	for s, ok := x.c.NextStop(); ok; s, ok = x.c.NextStop() {
		if a := x.calls[s]; a != nil {
			a.asked = true
			a.cancel()
			continue
		}
		if i := slices.IndexFunc(x.begun, func(a *attempt) bool { return a.step == s }); i >= 0 { // Temporal does not have the attempt yet
			x.begun = slices.Delete(x.begun, i, i+1)
			x.report(s, kahn.Reply{Err: kahn.NoEffect(s.Err())}, nil)
		}
	}
	x.stopBatches()
}

// The method arm sets a timer for the next time at which the run has something to do, unless a timer for this time or an earlier
// time is set.
func (x *interpreter) arm() {
	due, ok := x.c.Due()
	if !ok || x.timer != nil && !due.Before(x.fires) {
		return
	}
	if x.timer != nil {
		x.timer()
	}
	var ctx workflow.Context
	ctx, x.timer = workflow.WithCancel(x.ctx)
	x.fires = due
	x.timers++
	number := x.timers
	x.wait.AddFuture(workflow.NewTimer(ctx, due.Sub(workflow.Now(x.ctx))), func(workflow.Future) {
		if number == x.timers {
			x.timer = nil
		}
	})
}

// The method end ends the execution. If the run was left, it returns the error that starts a new execution; otherwise the run's output or failure.
func (x *interpreter) end(res *kahn.Result, err error, snapshot *packed) (*output, error) {
	if res.Status == kahn.RunSuspended { // the run was left
		next := x.in
		next.Inputs, next.Fired, next.Redriving, next.Adopting = nil, nil, nil, nil
		next.Snapshot, next.Continued, next.Beats = snapshot, x.in.Continued+1, x.unfinishedBeats()
		first, _ := x.c.Run().EventRange()
		next.Earlier = append(next.Earlier, execution{workflow.GetInfo(x.ctx).WorkflowExecution.RunID, first})
		var o workflow.ContinueAsNewErrorOptions
		if x.adopted(&next, res.Snapshot()) {
			o.InitialVersioningBehavior = workflow.ContinueAsNewVersioningBehaviorAutoUpgrade // a pinned run leaves the version that lacks the plan
		}
		return nil, workflow.NewContinueAsNewErrorWithOptions(x.ctx, o, workflow.GetInfo(x.ctx).WorkflowType.Name, next)
	}
	x.show(res.Status)
	out := &output{Status: res.Status, Rule: x.in.Settings.StatusRule, Snapshot: *snapshot}
	switch res.Status {
	case kahn.RunCompleted:
		return out, nil
	case kahn.RunCancelled:
		return nil, sdk.NewCanceledError(*out)
	}
	return nil, sdk.NewApplicationErrorWithOptions(err.Error(), failedRun, sdk.ApplicationErrorOptions{NonRetryable: true, Cause: causeOf(err), Details: []any{*out}})
}
