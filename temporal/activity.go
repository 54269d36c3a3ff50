package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	sdk "go.temporal.io/sdk/temporal"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// task is the input of the activity. The task of a short call has Of instead of Plan, and its JSON is a shortTask. The workflow of a short call can
// read remarks and short results.
type task struct {
	Plan      planID          `json:"plan"`
	Of        string          `json:"-"`              // the plan, see planID.short
	Run       string          `json:"-"`              // for a short call: the id of the run; "" if it equals the run id of the workflow's execution
	Execution string          `json:"-"`              // for a short call without Run: the end of the run id of the workflow's execution
	Path      string          `json:"path"`           // of the node
	Call      json.RawMessage `json:"call,omitempty"` // the call without its Config, which comes from the plan; a long call is replaced by a reference
	// Remarks says that the workflow can read remarks in the result, see the type remarked.
	Remarks bool `json:"remarks,omitempty"`
	// Details are the details of the earlier attempt's heartbeats.
	Details details `json:"details,omitempty"`
}

// The types of the activity's failures.
const (
	failedStep  = "kahn.StepFailed"  // the step failed; the failure's details are the Reply
	badActivity = "kahn.BadActivity" // the result of the attempt cannot be written
	// After these failures Temporal gives the attempt to another worker.
	lostWorker  = "kahn.WorkerLost"  // the worker was stopped during the attempt
	unknownPlan = "kahn.UnknownPlan" // the worker does not have the plan
)

const (
	handOver  = 100 * time.Millisecond // the time until Temporal gives an attempt of a stopped worker to another worker
	stopGrace = 4 * time.Second        // how long a stopped worker waits for a step that ignores the end of its context
	stopRoom  = time.Second            // the time after stopGrace in which a stopped worker sends its results to Temporal
)

// The method `step` is the activity: it performs one attempt. The result of the activity is the step's [kahn.Reply]. An error of the step also fails
// the activity, so that the history of the workflow shows it.
func (h *host) step(ctx context.Context, t task) (json.RawMessage, error) {
	p, err := h.planOf(t)
	if err != nil {
		return nil, sdk.NewApplicationErrorWithOptions(err.Error(), unknownPlan, sdk.ApplicationErrorOptions{})
	}
	pulse := pulseOf(ctx)
	if pulse != nil {
		pulse.begin(ctx, t.Details)
	}
	given := ctx
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	left := make(chan struct{})
	// attend returns when the method `step` returns, because ctx ends then.
	go h.attend(ctx, given, pulse, func() { end(kahn.ErrLeft); close(left) })
	info := activity.GetInfo(ctx)
	if t.isOfAnother(info.WorkflowExecution.RunID) {
		return nil, sdk.NewNonRetryableApplicationError("kahn/temporal: the workflow was reset, and the attempt begins again", lostWorker, nil)
	}
	call, err := h.read(t, info.WorkflowExecution.RunID, info.ScheduledTime)
	if err != nil {
		return h.answer(t, kahn.Reply{Err: unlessBlobs(fmt.Errorf("kahn/temporal: the call: %w", err))}, remarked{})
	}
	do := h.Step
	if n, ok := p.At(call.Path); ok {
		call.View.Config = n.Config
		var own kahn.StepFunc
		if call.Config, own = functionOf(n, call.Compensating); own != nil {
			do = own
		}
	}
	to := &recorder{log: activity.GetLogger(ctx), codec: h.texts.Codec}
	reply, returned := h.perform(ctx, call, do, to, left)
	beside := remarked{Details: pulse.recorded()}
	if reply.Err == nil {
		beside.Details = nil
	}
	if t.Remarks || t.Of != "" {
		beside.Remarks = to.told()
	}
	if !returned || reply.Err != nil && ctx.Err() != nil && isClosed(activity.GetWorkerStopChannel(ctx)) && h.isCutShort(call.Path, reply) {
		return nil, sdk.NewApplicationErrorWithOptions("kahn/temporal: the worker was stopped during the attempt", lostWorker, sdk.ApplicationErrorOptions{NextRetryDelay: handOver})
	}
	return h.answer(t, reply, beside)
}

// functionOf returns the config and the node's own function for a call of the step. If the parameter "undoes" is true, it returns the config and the function of the
// compensation. The result "do" is nil if the worker's step function performs the call.
func functionOf(n kahn.Node, undoes bool) (config any, do kahn.StepFunc) {
	switch {
	case !undoes:
		return n.Config, n.Do
	case n.CompensateBy != nil:
		return n.CompensateBy.Config, nil
	case n.Compensate == nil: // only a bug leads here: the node has no compensation
		return n.Config, nil
	}
	return n.Config, func(ctx context.Context, s *kahn.Step) (any, error) { return nil, n.Compensate(ctx, s) }
}

// attend reports to Temporal, once in each interval of Options.Heartbeat, that the attempt is running. The first report comes one Heartbeat after
// the start, so a short attempt costs no request. If Temporal answers that the attempt is to stop, the SDK ends the context of the activity. When
// the worker stops, attend waits for h.stopAfter, and then calls the function "leave". If h.stopAfter is negative, attend never calls it.
func (h *host) attend(ctx, given context.Context, p *pulse, leave func()) {
	ticker := time.NewTicker(h.Heartbeat)
	defer ticker.Stop()
	var over <-chan time.Time
	stopped := activity.GetWorkerStopChannel(given)
	if h.stopAfter < 0 {
		stopped = nil
	}
	done := ctx.Done()
	for {
		select {
		case <-done:
			return
		case <-stopped:
			stopped, over = nil, time.After(h.stopAfter)
		case <-over:
			leave()
			return
		case <-ticker.C:
			if p != nil {
				p.beat(given)
			} else {
				activity.RecordHeartbeat(given)
			}
		}
	}
}

// isCutShort reports whether the attempt must be performed again, because its worker stops. If the reply is a wait, a skip, a panic or a Goexit, it
// is a result of the attempt, and isCutShort returns false.
func (h *host) isCutShort(path string, reply kahn.Reply) bool {
	_, data, _ := h.write(path, reply, remarked{})
	form, err := formOf(data)
	return err == nil && form.Skip == nil && form.Suspend == nil && form.Panic == nil && !form.Goexit
}

// replyForm has the members of a reply's JSON that decide how the reply is handled.
type replyForm struct {
	Skip    *string         `json:"skip"`
	Suspend json.RawMessage `json:"suspend"`
	Panic   json.RawMessage `json:"panic"`
	Goexit  bool            `json:"goexit"`
}

func formOf(data json.RawMessage) (form replyForm, err error) {
	err = json.Unmarshal(data, &form)
	return form, err
}

// perform calls the step of an attempt. When the worker stops, the channel "left" is closed, and perform then waits at most stopGrace for the
// step. If the step has not returned by then, perform drops its result and returns false.
func (h *host) perform(ctx context.Context, call kahn.Call, do kahn.StepFunc, to *recorder, left <-chan struct{}) (reply kahn.Reply, returned bool) {
	replies := begin(ctx, call, do, to)
	select {
	case reply = <-replies:
		return reply, true
	case <-left:
	}
	select {
	case reply = <-replies:
		return reply, true
	case <-time.After(stopGrace):
		return reply, false
	}
}

// The function `begin` calls the step of an attempt on a new goroutine, because the step may call runtime.Goexit.
func begin(ctx context.Context, call kahn.Call, do kahn.StepFunc, to *recorder) <-chan kahn.Reply {
	cancel := func() {}
	if !call.Deadline.IsZero() {
		ctx, cancel = context.WithDeadline(ctx, call.Deadline)
	}
	replies := make(chan kahn.Reply, 1)
	go func() {
		reply := kahn.Reply{Err: kahn.ErrGoexit, Codec: call.Codec}
		defer func() {
			cancel()
			replies <- reply
		}()
		reply = call.Perform(ctx, do, to)
		reply.Err = unlessRetryable(reply.Err)
	}()
	return replies
}

// unlessRetryable makes an error permanent if it is or wraps a non-retryable error of Temporal's SDK, so that the node is not retried. So the code of
// an existing activity keeps its meaning when it becomes a step function.
func unlessRetryable(err error) error {
	var application *sdk.ApplicationError
	if errors.As(err, &application) && application.NonRetryable() {
		return kahn.Permanent(err)
	}
	return err
}

// The method `answer` returns the reply as the result of the activity, or as an error if the step failed.
func (h *host) answer(t task, reply kahn.Reply, beside remarked) (json.RawMessage, error) {
	reply, data, result := h.write(t.Path, reply, beside)
	form, err := formOf(data)
	if err != nil {
		return nil, sdk.NewNonRetryableApplicationError(err.Error(), badActivity, nil)
	}
	if reply.Err == nil || form.Skip != nil || form.Suspend != nil {
		if t.Of != "" {
			result = shortResult(result)
		}
		return result, nil
	}
	return nil, sdk.NewApplicationErrorWithOptions(shorten(reply.Err.Error(), maxMessage), failedStep, sdk.ApplicationErrorOptions{
		NonRetryable: true, Details: []any{result},
	})
}

// The method `write` returns the JSON of a reply, and the result of the activity. This result is the JSON together with remarks and details. If it is
// too long, the remarks and details are dropped. If the reply cannot be written, or is still too long, it is replaced by a reply with an error.
func (h *host) write(path string, reply kahn.Reply, beside remarked) (_ kahn.Reply, data, result json.RawMessage) {
	reply.Codec = h.texts.Codec
	data, err := json.Marshal(reply)
	whole, more := data, len(beside.Remarks) > 0 || len(beside.Details) > 0
	if err == nil && more {
		beside.Reply = data
		whole, err = json.Marshal(beside)
	}
	if err == nil {
		result, err = h.texts.write(whole)
	}
	if err == nil {
		err = h.fits(path, "result", result)
	}
	switch {
	case err == nil:
		return reply, data, result
	case more:
		return h.write(path, reply, remarked{})
	}
	reply = kahn.Reply{Err: unlessBlobs(err)}
	if data, err = json.Marshal(reply); err != nil {
		panic(fmt.Sprintf("kahn/temporal: an error has no JSON form: %v", err)) // this is a bug, because every error has a JSON form
	}
	return reply, data, data
}

// The method `fits` returns an error if a call or a result is longer than MaxBytes.
func (h *host) fits(path, what string, data json.RawMessage) error {
	if len(data) <= h.MaxBytes {
		return nil
	}
	return fmt.Errorf("kahn/temporal: node %q: the %s is %d bytes of JSON, and the worker takes %d: see Options.Blobs and Options.MaxBytes", path, what, len(data), h.MaxBytes)
}

// unlessBlobs makes an error permanent, unless the BlobStore has failed. After a failure of the BlobStore the node is retried, if its Retry allows
// it. A missing blob is permanent, too.
func unlessBlobs(err error) error {
	if errors.Is(err, errBlobs) && !errors.Is(err, store.ErrNoBlob) {
		return err
	}
	return kahn.Permanent(err)
}

const (
	maxMessage = 2 << 10 // the most bytes in a failure's message; the failure's details have the whole error
	maxSummary = 200     // the most bytes in a summary; Temporal takes 400
)

// shorten returns a text. If it is longer than the given number of bytes, shorten cuts it there, and adds an ellipsis.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// outcome is JSON that says how the activity of an attempt ended.
type outcome struct {
	Reply json.RawMessage `json:"reply,omitempty"` // what the step returned
	// Ended says how an activity without a Reply ended. Error is the text of its error.
	Ended ending `json:"ended,omitempty"`
	Error string `json:"error,omitempty"`
	// Details are the details of the activity's last heartbeat.
	Details details `json:"details,omitempty"`
}

// ending says how an activity without a Reply ended.
type ending string

const (
	endedRefused ending = "refused"  // the worker cannot perform the attempt
	endedStopped ending = "stopped"  // the worker was stopped during the attempt, or does not have the plan
	endedSilent  ending = "silent"   // the worker sends no heartbeats
	endedUntaken ending = "untaken"  // no worker took the attempt in time
	endedUnbegun ending = "unbegun"  // the attempt was stopped before a worker had it
	endedOther   ending = "by error" // the error is Temporal's
)

// outcomeOf returns the outcome of an activity with the given result and error.
func outcomeOf(data json.RawMessage, err error) outcome {
	var failure *sdk.ApplicationError
	var timeout *sdk.TimeoutError
	switch {
	case err == nil:
		return outcome{Reply: data}
	case errors.As(err, &failure) && failure.Type() == failedStep:
		if err := failure.Details(&data); err != nil {
			return outcome{Ended: endedOther, Error: failure.Message()}
		}
		return outcome{Reply: data}
	case errors.As(err, &failure) && (failure.Type() == lostWorker || failure.Type() == unknownPlan):
		return outcome{Ended: endedStopped, Error: failure.Message()}
	case errors.As(err, &failure):
		return outcome{Ended: endedRefused, Error: failure.Message()}
	case errors.As(err, &timeout) && timeout.TimeoutType() == enums.TIMEOUT_TYPE_SCHEDULE_TO_START:
		return outcome{Ended: endedUntaken, Error: timeout.Message()}
	case errors.As(err, &timeout):
		return outcome{Ended: endedSilent, Error: timeout.Message(), Details: lastDetails(timeout)}
	case sdk.IsCanceledError(err):
		return outcome{Ended: endedUnbegun}
	}
	return outcome{Ended: endedOther, Error: err.Error()}
}

// The method `lost` reports whether the attempt has no result because its worker is gone or does not have the plan.
func (o outcome) lost() bool { return o.Ended == endedStopped || o.Ended == endedSilent }

// replyOf returns the Reply to the call of an attempt, and the remarks and details of its step.
func (t texts) replyOf(o outcome) (reply kahn.Reply, told remarked) {
	switch o.Ended {
	case endedRefused, endedStopped:
		return kahn.Reply{Err: kahn.Permanent(errors.New(o.Error))}, told
	case endedSilent:
		return kahn.Reply{Err: kahn.Permanent(fmt.Errorf("%w: %s", kahn.ErrCrashed, o.Error))}, told
	case endedUntaken:
		return kahn.Reply{Err: kahn.NoEffect(fmt.Errorf("kahn/temporal: no worker has taken the attempt in time, see Kind.ScheduleToStart: %s", o.Error))}, told
	case endedUnbegun:
		return kahn.Reply{Err: context.Canceled}, told
	case endedOther:
		return kahn.Reply{Err: errors.New(o.Error)}, told
	}
	reply.Codec = t.Codec
	text, err := t.read(o.Reply)
	if err == nil && isValue(text) {
		if reply.Value, err = t.Codec.Decode(text); err == nil {
			return reply, told
		}
	}
	if err == nil {
		told, err = split(text)
	}
	if err == nil {
		err = json.Unmarshal(told.Reply, &reply)
	}
	if err != nil {
		return kahn.Reply{Err: kahn.Permanent(fmt.Errorf("kahn/temporal: the reply: %w", err))}, told
	}
	return reply, told
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
