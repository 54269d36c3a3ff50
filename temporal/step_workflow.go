package temporal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"go.temporal.io/api/enums/v1"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/seed-c794f7ef/kahn"
)

// StepWorkflow describes the child workflow that performs an attempt, see Kind.Workflow. Temporal does not retry the child: the Retry of the node
// decides about retries, and each attempt is a new child workflow.
type StepWorkflow struct {
	// Type is the type of the workflow. The workers of the workflow's task queue must have registered this type.
	Type string
	// Args are the arguments of the workflow. Together they have at most Options.MaxBytes.
	Args []any
	// Result is a pointer to a new value. kahn reads the result of the child into this value, which becomes the output of the node: see
	// Options.Types. If Result is nil, kahn reads the result as JSON, with the rules of kahn.Types: a number without a type becomes a float64.
	Result any
	// ID is the id of the workflow. "" means the id of the run's workflow, the path of the node and the number of the attempt: order-17/ship/2. If
	// the run was not started by [Start], its run id takes the place of the workflow's id. An attempt to undo the node has "undo:" before the path.
	// If a workflow with this id is already running, the attempt fails without effect.
	ID string
	// TaskQueue is the queue of the workflow. "" means the TaskQueue of the Kind or, if the Kind has none, the queue of the run.
	TaskQueue string
	// ExecutionTimeout and RunTimeout are Temporal's timeouts of the child. When one of them expires, the attempt fails. When the Timeout of the node
	// expires, kahn cancels the child instead. Zero means no bound.
	ExecutionTimeout, RunTimeout time.Duration
	// Memo and Attributes are the memo and the search attributes of the workflow.
	Memo       map[string]any
	Attributes sdk.SearchAttributes
	// Priority is the priority of the workflow's tasks. For an empty field, the priority of the node's activities counts, see [Kind].
	Priority sdk.Priority
}

// maxID is the longest id that Temporal takes for a workflow, in bytes.
const maxID = 1000

// workflowOf returns the function that describes the child workflow for an attempt, or nil if an activity performs the attempt. In a run that a
// former version has started, activities perform all attempts.
func (x *interpreter) workflowOf(s *kahn.Step) func(*kahn.Step) (StepWorkflow, error) {
	f := x.Kinds[s.Kind()].Workflow
	if f == nil || !x.named {
		return nil
	}
	if n, _ := x.plan.At(s.Path()); s.Compensating() && n.CompensateBy == nil {
		return nil // an activity calls the Go function Compensate of the node
	}
	return f
}

// describe calls the function f, and sets the child workflow of an attempt and the bytes of its arguments. The history does not record the result
// of f, so a replay calls f again. Therefore describe verifies f like [interpreter.verify]. The function gets a new Step, like a step on a worker.
// kahn drops what f logs and emits through this Step, so the number of calls makes no difference.
func (x *interpreter) describe(a *attempt, f func(*kahn.Step) (StepWorkflow, error)) error {
	s := a.step
	var data []byte
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		w, err := f(s)
		if err == nil {
			data, err = x.argsOf(w)
		}
		if err != nil {
			return nil, err
		}
		return w, nil
	}
	of := x.callOf(s)
	of.Codec = x.texts.Codec
	call := func() (any, error) {
		reply := of.Perform(context.Background(), step, nil)
		return reply.Value, reply.Err
	}
	first := caught(x.ctx, call)
	if x.pure.asks(x.in.Plan.Print, nameOf(s), "Kind.Workflow") {
		if again := caught(x.ctx, call); !x.alike(first, again) {
			x.broken = fmt.Errorf("%w: Kind.Workflow of kind %q has returned %s for node %q, and then %s", ErrImpure, s.Kind(), first, s.Path(), again)
			return x.broken
		}
	}
	if first.goexit {
		first.err = kahn.ErrGoexit
	}
	if first.err != nil {
		return fmt.Errorf("kahn/temporal: Kind.Workflow of kind %q: %w", s.Kind(), first.err)
	}
	w := first.value.(StepWorkflow)
	a.by, a.data = &w, append(json.RawMessage{}, data...)
	return x.fits(s.Path(), "call", a.data)
}

// argsOf checks a StepWorkflow, and returns its arguments, encoded for Temporal.
func (x *interpreter) argsOf(w StepWorkflow) ([]byte, error) {
	if w.Type == "" {
		return nil, fmt.Errorf("%w: the workflow has no Type", kahn.ErrBadOption)
	}
	if to := reflect.ValueOf(w.Result); w.Result != nil && (to.Kind() != reflect.Pointer || to.IsNil()) {
		return nil, fmt.Errorf("%w: Result is a %T, not a pointer to a value", kahn.ErrBadOption, w.Result)
	}
	if err := errors.Join(unitless("ExecutionTimeout", w.ExecutionTimeout), unitless("RunTimeout", w.RunTimeout)); err != nil {
		return nil, err
	}
	payloads, err := x.converter().ToPayloads(w.Args...)
	if err != nil {
		return nil, fmt.Errorf("the arguments: %w", err)
	}
	return proto.Marshal(payloads)
}

// hasWorkflows reports whether the child workflow of a StepWorkflow is running.
func (x *interpreter) hasWorkflows() bool {
	for _, a := range x.calls {
		if a.by != nil {
			return true
		}
	}
	return false
}

// performBy begins the child workflow of an attempt.
func (x *interpreter) performBy(a *attempt, w StepWorkflow) {
	s, k := a.step, x.Kinds[a.step.Kind()]
	if w.ID == "" {
		w.ID = fmt.Sprintf("%s/%s/%d", cmp.Or(x.in.WorkflowID, x.in.RunID), nameOf(s), s.Attempt())
		if len(w.ID) > maxID {
			w.ID = "" // the SDK then chooses an id
		}
	}
	priority := x.priority(x.typed(s))
	priority.PriorityKey = cmp.Or(w.Priority.PriorityKey, priority.PriorityKey)
	priority.FairnessKey = cmp.Or(w.Priority.FairnessKey, priority.FairnessKey)
	priority.FairnessWeight = cmp.Or(w.Priority.FairnessWeight, priority.FairnessWeight)
	var ctx workflow.Context
	ctx, a.cancel = workflow.WithCancel(x.ctx)
	child := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: w.ID, TaskQueue: cmp.Or(w.TaskQueue, k.TaskQueue), WorkflowExecutionTimeout: w.ExecutionTimeout, WorkflowRunTimeout: w.RunTimeout,
		Memo: w.Memo, TypedSearchAttributes: w.Attributes, Priority: priority, StaticSummary: shorten(s.Path(), maxSummary),
		WaitForCancellation: true, ParentClosePolicy: enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
	}), w.Type, w.Args...)
	x.wait.AddFuture(child, func(workflow.Future) {
		x.listen()
		x.c.Advance(workflow.Now(x.ctx))
		reply, data := x.replyBy(a, child)
		x.report(s, reply, data)
	})
}

// replyBy returns the reply and the JSON of the result of a child workflow that has ended or could not begin.
func (x *interpreter) replyBy(a *attempt, child workflow.ChildWorkflowFuture) (kahn.Reply, json.RawMessage) {
	var text json.RawMessage
	into := a.by.Result
	if into == nil {
		into = &text
	}
	err := child.Get(x.ctx, into)
	var failed *sdk.ChildWorkflowExecutionError
	switch {
	case errors.As(err, &failed):
		return kahn.Reply{Err: failureBy(a, failed)}, nil
	case err != nil && child.GetChildWorkflowExecution().Get(x.ctx, nil) != nil: // it has not begun
		err = fmt.Errorf("kahn/temporal: workflow %q has not begun: %w", a.by.Type, err)
		if a.asked {
			err = fmt.Errorf("%w: %w", context.Canceled, err)
		}
		return kahn.Reply{Err: kahn.NoEffect(err)}, nil
	case err != nil:
		return kahn.Reply{Err: kahn.Permanent(fmt.Errorf("kahn/temporal: the result of workflow %q: %w", a.by.Type, err))}, nil
	}
	var value any
	switch {
	case a.by.Result != nil:
		value = reflect.ValueOf(a.by.Result).Elem().Interface()
	case text != nil:
		value, err = x.texts.Decode(text)
	}
	if err == nil {
		text, err = x.texts.Encode(value)
	}
	if err == nil {
		err = x.fits(a.step.Path(), "result", text)
	}
	if err != nil {
		return kahn.Reply{Err: kahn.Permanent(fmt.Errorf("kahn/temporal: the result of workflow %q: %w", a.by.Type, err))}, nil
	}
	return kahn.Reply{Value: value}, text
}

// failureBy returns the error of an attempt whose child workflow has failed. If the run has cancelled the child, the error matches
// context.Canceled. If the child has returned a non-retryable error, the node is not retried.
func failureBy(a *attempt, failed *sdk.ChildWorkflowExecutionError) error {
	err := fmt.Errorf("kahn/temporal: workflow %q: %w", a.by.Type, failed.Unwrap())
	if a.asked && sdk.IsCanceledError(failed) {
		return fmt.Errorf("%w: %w", context.Canceled, err)
	}
	return unlessRetryable(err)
}
