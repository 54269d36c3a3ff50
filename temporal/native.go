package temporal

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Input is the input of a run's workflow, for clients that start it without [Start]: a Schedule, a start with a signal, another SDK, the
// command line. Its JSON is an object whose members are all optional:
//
//	{"inputs": {"order": 17}, "settings": {"limit": 5}, "plan": {"name": "orders", "fingerprint": "…"}, "search_attributes": true}
//
// If the fingerprint is missing, the run has the worker's first plan with the given name. If the name is missing, too, the run has the
// worker's first plan for the type of the workflow. The id of the run is the run id of the workflow's first execution. See docs/temporal.md in
// the repository for all members.
type Input struct{ input }

// Input returns the input of the run's workflow. The same input may start any number of runs. The method returns the same errors as [Start] for
// a bad plan, inputs or settings. The type of the workflow must be as in [Workflow].Type.
func (w Workflow) Input(inputs map[string]any) (Input, error) {
	in, err := w.input(inputs)
	in.WorkflowID = ""
	return Input{in}, err
}

// The type begun has the plan and the version of an execution that was not started by Start. The first worker of the execution chooses both.
// The history records this choice, so that a replay does not depend on its worker.
type begun struct {
	Plan         planID `json:"plan"`
	StateVersion int    `json:"state_version"`
	ShortCalls   bool   `json:"short_calls,omitempty"`
	Unknown      string `json:"unknown,omitempty"` // says why the worker has chosen no plan
}

// The method complete fills in what the input of a workflow leaves out.
func (h *host) complete(ctx workflow.Context, in *input) error {
	if in.RunID != "" {
		return nil
	}
	in.RunID = cmp.Or(workflow.GetInfo(ctx).FirstRunID, workflow.GetInfo(ctx).WorkflowExecution.RunID) // the SDK's test environment has no FirstRunID
	if in.Plan.Print == "" || in.Plan.Name == "" || in.StateVersion == 0 {
		var b begun
		name := workflow.GetInfo(ctx).WorkflowType.Name
		if err := workflow.SideEffect(ctx, func(workflow.Context) any { return h.begun(in.Plan, in.StateVersion, name) }).Get(&b); err != nil {
			return err
		}
		if b.Unknown != "" {
			return errors.New(b.Unknown)
		}
		in.Plan, in.StateVersion, in.ShortCalls = b.Plan, b.StateVersion, in.ShortCalls || b.ShortCalls
	}
	if _, has := workflow.GetInfo(ctx).Memo.GetFields()[memoName]; has {
		return nil
	}
	return workflow.UpsertMemo(ctx, map[string]any{memoName: memo{in.Plan, "", in.StateVersion}}) // Store.List reads the memo
}

// The method begun chooses the plan and the version of a run.
func (h *host) begun(id planID, version int, workflow string) begun {
	if version == 0 {
		version = machine.StateVersion
	}
	if id.Print != "" {
		if p, err := h.plan(id); err == nil {
			id.Name = p.Name()
		}
		return begun{Plan: id, StateVersion: version, ShortCalls: true}
	}
	for _, p := range h.Plans {
		if id.Name == p.Name() || id.Name == "" && workflowType(p.Name(), h.WorkflowType) == workflow {
			return begun{Plan: idOf(p), StateVersion: version, ShortCalls: true}
		}
	}
	return begun{Unknown: fmt.Sprintf("kahn/temporal: %v for the workflow %q with the name %q", ErrUnknownPlan, workflow, id.Name)}
}

// Child is a run that a workflow of the host has started.
type Child struct {
	of     Workflow
	future workflow.ChildWorkflowFuture
	err    error // why the run was not started
}

// ExecuteChild starts a run as a child of the host's own workflow, and does not wait for it. If w has no ID, Temporal chooses one; if w has
// no TaskQueue, the child uses the queue of its parent. If the context is cancelled, the run is cancelled and undoes its effects, and Wait
// waits for the end of the run. If the parent ends before the run, Temporal asks the run to cancel. For a bad Workflow or
// bad inputs, Wait returns the same errors as [Start].
func ExecuteChild(ctx workflow.Context, w Workflow, inputs map[string]any) *Child {
	in, err := w.Input(inputs)
	if err != nil {
		return &Child{err: err}
	}
	o := w.startOptions(in.input, memo{in.Plan, in.key(), in.StateVersion})
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: w.ID, TaskQueue: w.TaskQueue, Memo: o.Memo, TypedSearchAttributes: o.TypedSearchAttributes, StaticSummary: o.StaticSummary, Priority: w.Priority,
		WorkflowExecutionTimeout: w.ExecutionTimeout, WaitForCancellation: true, ParentClosePolicy: enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
	})
	return &Child{of: w, future: workflow.ExecuteChildWorkflow(ctx, w.workflowType(), in)}
}

// Wait waits for the end of the run. It returns the same Result and error as [Run.Wait]. If the run has failed, errors.As also finds an
// ApplicationError of the SDK in the error. Its message is the error of the node that failed first; its type and details come from the
// ApplicationError of the step, if there is one. If ctx was cancelled and the run has ended as cancelled, the error also wraps the CanceledError of
// the SDK. A workflow that returns this error ends as cancelled, not as failed.
func (c *Child) Wait(ctx workflow.Context) (*kahn.Result, error) {
	if c.err != nil {
		return nil, c.err
	}
	var out output
	failure := c.future.Get(ctx, &out)
	if failure != nil {
		if err := outputOf(failure, &out); err != nil {
			return nil, fmt.Errorf("kahn/temporal: the run: %w", err)
		}
	}
	res, err := c.of.result(out)
	err = withCause(err, failure)
	if cancelled := ctx.Err(); cancelled != nil && res != nil && res.Status == kahn.RunCancelled {
		err = fmt.Errorf("%w: %w", cancelled, err)
	}
	return res, err
}

// Future returns the future of the child workflow, for a Selector. If the run was not started, Future returns nil, and Wait returns the reason.
func (c *Child) Future() workflow.ChildWorkflowFuture { return c.future }

// Signal answers a waiting node of the run with a signal of Temporal. A nil error does not mean that the run accepts the answer. If the run refuses
// the answer, it logs a warning.
func (c *Child) Signal(ctx workflow.Context, gate string, value any) error {
	if c.err != nil {
		return c.err
	}
	r, err := c.of.signalRequest(gate, value)
	if err != nil {
		return err
	}
	return c.future.SignalChildWorkflow(ctx, SignalName, r).Get(ctx, nil)
}

// SignalName is the name of the signal that answers a node. The signal has the same argument as SignalUpdate.
const SignalName = "kahn.Answer"

// hearAnswers handles the signals that answer nodes. The sender of a signal gets no reply, so if the run refuses a signal, it logs a warning.
func (x *interpreter) hearAnswers() {
	for {
		var data json.RawMessage
		if !workflow.GetSignalChannel(x.ctx, SignalName).ReceiveAsync(&data) {
			return
		}
		var r signalRequest
		err := json.Unmarshal(data, &r)
		if err == nil {
			err = x.checkSignal(r)
		}
		if err == nil {
			x.c.Advance(workflow.Now(x.ctx))
			err = x.signal(r)
		}
		if err != nil {
			workflow.GetLogger(x.ctx).Warn("kahn/temporal: a signal was refused", "node", r.Gate, "error", err)
		}
	}
}
