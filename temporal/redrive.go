package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/converter"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// redriving is the part of a workflow's input that describes a redrive. The input also has the snapshot of the ended run.
type redriving struct {
	store.Redriving
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// prepareRedrive checks a redrive and returns it as data.
func prepareRedrive(nodes []string, by kahn.Request, opts []kahn.Option) (*redriving, error) {
	q, err := kahn.PrepareRedrive(nodes, by, opts...)
	if err != nil {
		return nil, fmt.Errorf("kahn/temporal: %w", err)
	}
	r := &redriving{Actor: by.Actor, Reason: by.Reason}
	if err := json.Unmarshal(q.Value, &r.Redriving); err != nil {
		return nil, fmt.Errorf("kahn/temporal: %w", err)
	}
	return r, nil
}

// The method options returns the options of a Coordinator for a redrive from a snapshot.
func (r *redriving) options(from *kahn.Snapshot) []kahn.Option {
	opts := []kahn.Option{kahn.Redrive(from, r.Nodes, kahn.Request{Actor: r.Actor, Reason: r.Reason})}
	for _, mode := range []struct {
		set  bool
		mode kahn.RedriveMode
	}{
		{r.KeepDescendants, kahn.KeepDescendants}, {r.DespiteHandlers, kahn.DespiteHandlers}, {r.Anew, kahn.Anew},
		{r.RepeatCompensations, kahn.RepeatCompensations}, {r.CompensatedByHand, kahn.CompensatedByHand},
	} {
		if mode.set {
			opts = append(opts, mode.mode)
		}
	}
	return opts
}

// Redrive continues a run that has ended, under the rules of kahn.Redrive. The parameter "nodes" has the paths of the nodes to redrive; if it is
// empty, Redrive takes all nodes that failed, were aborted or were cancelled. The parameter "q" says who asks. The options may be [kahn.Anew],
// [kahn.DespiteHandlers] and [kahn.KeepDescendants], and for failed compensations [kahn.RepeatCompensations] and [kahn.CompensatedByHand].
//
// The run continues in a new execution of its workflow, under the same id, on the same task queue and with the same settings. The method Wait of the
// returned Run waits for this execution. Redrive queries the former execution; the query needs a live worker. The error matches [kahn.ErrTransition]
// if the run has not ended, or continues already; other errors are as for kahn.Redrive. If Redrive returns an error, nothing was started.
func (r *Run) Redrive(ctx context.Context, nodes []string, q kahn.Request, opts ...kahn.Option) (*Run, error) {
	what, err := prepareRedrive(nodes, q, opts)
	if err != nil {
		return nil, err
	}
	last, err := r.ended(ctx)
	if err != nil {
		return nil, fmt.Errorf("kahn/temporal: workflow %q: %w", r.of.ID, err)
	}
	next, err := last.redriven(r.of, what)
	if err != nil {
		return nil, fmt.Errorf("kahn/temporal: workflow %q: %w", r.of.ID, err)
	}
	w := r.of
	w.TaskQueue = last.queue
	o := w.startOptions(next, last.memo)
	if next.Plan.Print != last.memo.Plan.Print {
		o.Memo[adoptedName] = next.Plan
	}
	o.WorkflowIDReusePolicy = enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE
	run, err := r.client.ExecuteWorkflow(ctx, o, last.of, next)
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &started) {
		err = fmt.Errorf("%w: the run continues already: %w", kahn.ErrTransition, err)
	}
	if err != nil {
		return nil, fmt.Errorf("kahn/temporal: workflow %q: %w", w.ID, err)
	}
	return &Run{r.client, w, run}, nil
}

// lastExecution is the execution in which a run has ended.
type lastExecution struct {
	execution
	in    input
	out   output
	of    string // the type of the workflow
	queue string
	memo  memo
}

// The method ended finds the execution in which the run has ended.
func (r *Run) ended(ctx context.Context) (last lastExecution, err error) {
	about, err := r.client.DescribeWorkflowExecution(ctx, r.of.ID, "")
	if err != nil {
		return last, known(err)
	}
	info := about.GetWorkflowExecutionInfo()
	if info.GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return last, fmt.Errorf("%w: the run has not ended", kahn.ErrTransition)
	}
	last.of = info.GetType().GetName()
	last.ID = info.GetExecution().GetRunId()
	read := r.of.converter()
	if err := read.FromPayload(info.GetMemo().GetFields()[memoName], &last.memo); err != nil {
		return last, fmt.Errorf("the memo: %w", undecoded(err))
	}
	history := r.client.GetWorkflowHistory(ctx, r.of.ID, last.ID, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	began, err := history.Next()
	if err != nil {
		return last, err
	}
	started := began.GetWorkflowExecutionStartedEventAttributes()
	last.queue = started.GetTaskQueue().GetName()
	if err := read.FromPayloads(started.GetInput(), &last.in); err != nil {
		return last, fmt.Errorf("the input: %w", undecoded(err))
	}
	if err := r.client.GetWorkflow(ctx, r.of.ID, last.ID).Get(ctx, &last.out); err != nil {
		if err := outputOf(err, &last.out); err != nil {
			return last, err
		}
	}
	var answer eventsAnswer
	err = r.query(ctx, last.ID, EventsQuery, &answer, eventsRequest{})
	last.First = answer.Page.First
	if last.in.RunID == "" { // the execution was not started by Start
		last.in.RunID, last.in.Plan, last.in.StateVersion = answer.RunID, last.memo.Plan, last.memo.StateVersion
	}
	return last, err
}

// redriven returns the input of the execution with which the run continues. It tries the redrive in a Coordinator, and returns the
// Coordinator's error. So Redrive starts no execution that would refuse the redrive.
func (e lastExecution) redriven(w Workflow, what *redriving) (input, error) {
	next := e.in
	if e.out.Error != "" {
		return next, &refusal{text: e.out.Error, err: ErrTooLarge}
	}
	next.Inputs, next.Fired, next.Beats, next.Adopting, next.Snapshot, next.Redriving, next.Continued = nil, nil, nil, nil, &e.out.Snapshot, what, e.in.Continued+1
	next.Earlier = append(next.Earlier, e.execution)
	t := w.texts()
	from, err := next.Snapshot.open(t)
	if err != nil {
		return next, err
	}
	opts := append(next.Settings.options(), kahn.RunID(next.RunID), kahn.Encoding(t.Codec), kahn.Retain(0), uncalled)
	_, err = kahn.NewCoordinator(w.Plan, time.Now(), append(opts, what.options(from)...)...)
	return next, err
}

// uncalled is an option for a Coordinator that only checks a start, a redrive or an adoption. With this option the Coordinator calls no guard, test
// or fallback of the plan. Only workers call these functions.
var uncalled = kahn.GraphCalls(func(string, string, func() (any, error)) (any, error) { return nil, kahn.ErrCallAborted })

// converter returns the data converter of the client.
func (w Workflow) converter() converter.DataConverter {
	if w.DataConverter != nil {
		return w.DataConverter
	}
	return converter.GetDefaultDataConverter()
}
