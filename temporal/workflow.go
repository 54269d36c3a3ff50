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
	// If SearchAttributes is set, the workflow sets the search attributes of its run.
	SearchAttributes bool `json:"search_attributes,omitempty"`
	// If the execution continues another one, Snapshot is the state of the run, and Continued is the number of earlier executions.
	Snapshot  *packed `json:"snapshot,omitempty"`
	Continued int     `json:"continued,omitempty"`
	Beats     beats   `json:"beats,omitempty"`
	// Redriving is the redrive with which an execution continues a run that had ended, see Run.Redrive.
	Redriving *redriving `json:"redriving,omitempty"`
	// Adopting is set in the first execution with another version of the plan, see Run.Adopt.
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

// interpreter is one execution of the workflow: it drives one run. All its methods are called by the workflow's coroutines, one at a time.
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
	lost     map[string]int          // how often in a row workers were lost during attempts of a node, by path
	beats    beats                   // the details of the last attempts' heartbeats, by path
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

// maxTaskBytes is the most bytes of calls in one workflow task. A longer call gets a task of its own. Temporal refuses 4 MiB.
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
		// If the channel is closed while the Selector waits, the Selector calls this function again and again, until the channel's value is taken.
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

// leaveToAnother fails the workflow task, so that Temporal repeats it, usually on another worker. It is for a worker that lacks something that the
// run started with, such as its plan, a type or a blob. During a rolling deploy such a worker polls the task queue together with workers that lack
// nothing.
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

// The method `always` returns those options of the Coordinator that do not depend on whether the run begins or continues.
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
			// One call of Leave may not suffice: Leave does nothing for a stopped run that has not begun to undo its nodes. So every
			// turn of the loop calls it.
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

// These constants name changes of the workflow's code. When the changes were made, histories already existed, and workflows had no names yet, see
// isNamed. An execution that began before a change continues without it.
const (
	cancelVersion = "kahn.Cancel"  // a cancellation by Temporal is handled before results in the same workflow task
	crashVersion  = "kahn.Crashes" // stopped workers do not count as crashes, and too many crashes fail the node with an error of their own
	boundVersion  = "kahn.Bounded" // an output that does not fit into the snapshot fails its node
)

// The method since reports whether the execution began after a change of the workflow's code.
func (x *interpreter) since(change string) bool {
	return x.named || workflow.GetVersion(x.ctx, change, workflow.DefaultVersion, 1) == 1
}

// graceVersion names a change of cancellations by Temporal. Since the change, a cancellation takes effect at the time of its arrival, so that
// running steps get the whole CancelGrace. Without the change, it takes effect at the time of the preceding event. Workflows with names existed
// when the change was made.
const graceVersion = "kahn.Grace"

// cancel cancels the run because Temporal asked for it.
func (x *interpreter) cancel() {
	x.heard = true
	// A former version has begun no run in which a workflow performs a step. So such a run needs no record of the change. It must have none, since the SDK
	// (1.48.0) cannot replay a record directly before the cancellation of a child workflow: it miscounts the events.
	if x.hasWorkflows() || workflow.GetVersion(x.ctx, graceVersion, workflow.DefaultVersion, 1) == 1 {
		x.c.Advance(workflow.Now(x.ctx))
	}
	_ = x.c.Run().Cancel() // the only error is that the run has ended
}

// listen cancels the run if Temporal has asked for it. The request may arrive in the same workflow task as the last result of a run that is
// being left. The request is handled before that result, since a stop takes precedence over continuing as new.
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

// begin gives attempts to Temporal, as many as fit into a workflow task.
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

// The method written writes the call of a waiting attempt, unless the call is written already. If the call cannot be written, it
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

// encode writes the call of an attempt. A call that has no JSON form, or is too long for the worker, fails its node.
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

// Temporal requires a timeout for each activity. The run itself bounds attempts, so the timeout is forever.
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

// The method `ended` reports the result of an attempt to the run. If the worker of the attempt is gone, the method puts the attempt in front of the
// attempts that wait to be given to Temporal, unless the attempt was asked to stop or has lost too many workers.
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

// undoPrefix begins the names of attempts to undo nodes, to distinguish them from other attempts.
const undoPrefix = "undo:"

// nameOf returns a name for an attempt that distinguishes attempts to undo a node from its other attempts.
func nameOf(s *kahn.Step) string {
	if s.Compensating() {
		return undoPrefix + s.Path()
	}
	return s.Path()
}

// The method report passes the reply of a step to the run, and resets the count of lost workers. The parameter "data" is the reply's JSON. A
// result for which the run no longer waits is dropped.
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

// The method end ends the execution: it returns the output or the failure of the run, or continues as a new execution.
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
