package temporal

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/temporal"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// Workflow describes a run as a workflow of Temporal.
type Workflow struct {
	// ID is the id of the Temporal workflow.
	ID string
	// TaskQueue is the queue that the workers poll.
	TaskQueue string
	// Plan is the graph. The workers call its steps.
	Plan *kahn.Plan
	// Type is the type of the workflow. The workers must have registered this type, see Options.WorkflowType. "" means the Name of the graph, or
	// [UnnamedGraph] if the graph has no Name.
	Type string
	// Priority is the priority of the workflow's tasks. Activities inherit this priority, see [Kind]. Temporal's priorities range from 1, the
	// most urgent, to 5; the default is 3.
	Priority sdk.Priority
	// Settings are the options of the run.
	Settings Settings
	// Fire names the trigger that fires at the start of the run, see kahn.Fire. Nil means that no trigger fires.
	Fire *Fire
	// Types are the host's own types of values, see Options.Types.
	Types kahn.Types
	// Blobs is the store of the workers, see Options.Blobs.
	Blobs store.BlobStore
	// DataConverter is the client's data converter. It decodes the memo and the input of an existing workflow, and it encodes and
	// decodes the blobs, see Options.DataConverter. Nil means the SDK's default.
	DataConverter converter.DataConverter
	// If SearchAttributes is set, the workflow gets the search attributes [WorkflowAttribute] and [StatusAttribute]. A Store, Temporal's own page
	// and Temporal's command line use these attributes to find runs by graph and status. The namespace must have the attributes, see
	// [RegisterSearchAttributes]; otherwise Start starts nothing and returns the error of the service.
	SearchAttributes bool
	// Memo is the memo of the workflow, which Temporal shows in lists. Start itself sets the member "kahn".
	Memo map[string]any
	// Attributes are the host's own search attributes, which the namespace must have.
	Attributes sdk.SearchAttributes
	// ExecutionTimeout bounds how long all executions of the workflow together may take, see Options.ContinueAfter. After this time Temporal ends the
	// workflow: no node is undone, and the run has no Result. See Settings.Timeout for a timeout of the run itself. Zero means no bound.
	ExecutionTimeout time.Duration
	// RetryFailed lets a new run begin under the id of a run that has failed or was cancelled. Without RetryFailed, Start returns the former run.
	RetryFailed bool
}

// Fire is a trigger with its payload.
type Fire struct {
	Trigger string
	Payload any
	Prune   kahn.PruneMode
}

// Run is a run that a workflow performs. Its methods may be called from any goroutine.
type Run struct {
	client client.Client
	of     Workflow
	get    client.WorkflowRun
}

// memo is the data of a run that Temporal keeps beside its workflow and shows in lists.
type memo struct {
	Plan         planID `json:"plan"`
	Key          string `json:"key"` // a hash of the plan, the settings, the inputs and the trigger
	StateVersion int    `json:"state_version"`
}

const memoName = "kahn"

// Start starts a run, and does not wait for its end. If a workflow with this id exists, and its plan, settings, inputs and trigger are the
// same, Start returns its run, even if the run has ended. If any of these differ, Start returns an error that matches [kahn.ErrKeyConflict].
//
// The error matches [ErrUnsupported] if the plan does not carry over. If inputs or settings are bad, Start returns the error of
// kahn.NewCoordinator. In all these cases Start has started nothing.
func Start(ctx context.Context, c client.Client, w Workflow, inputs map[string]any) (*Run, error) {
	in, err := w.input(inputs)
	if err != nil {
		return nil, err
	}
	if size := len(in.text()); size > maxPayload {
		return nil, fmt.Errorf("kahn/temporal: workflow %q: %w", w.ID, tooLong("inputs are", "Workflow.Blobs", size))
	}
	m := memo{in.Plan, in.key(), in.StateVersion}
	o := w.startOptions(in, m)
	if w.RetryFailed {
		o.WorkflowIDReusePolicy = enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY
	}
	run, err := c.ExecuteWorkflow(ctx, o, w.workflowType(), in)
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &started) {
		return w.attachTo(ctx, c, in)
	}
	if err != nil {
		return nil, fmt.Errorf("kahn/temporal: workflow %q: %w", w.ID, err)
	}
	return &Run{c, w, run}, nil
}

// workflowType returns the type of the workflow of the run.
func (w Workflow) workflowType() string {
	return workflowType(cmp.Or(w.Type, w.Plan.Name()), nil)
}

// startOptions returns the options that start the workflow of a run.
func (w Workflow) startOptions(in input, m memo) client.StartWorkflowOptions {
	o := client.StartWorkflowOptions{
		ID: w.ID, TaskQueue: w.TaskQueue, WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE, WorkflowExecutionErrorWhenAlreadyStarted: true,
		Priority: w.Priority, Memo: map[string]any{}, TypedSearchAttributes: w.Attributes, WorkflowExecutionTimeout: w.ExecutionTimeout, StaticSummary: shorten(in.Plan.Name, maxSummary),
	}
	maps.Copy(o.Memo, w.Memo)
	o.Memo[memoName] = m
	if in.SearchAttributes {
		o.TypedSearchAttributes = sdk.NewSearchAttributes(w.Attributes.Copy(), workflowAttribute.ValueSet(in.Plan.Name), statusAttribute.ValueSet(kahn.RunRunning.String()))
	}
	return o
}

// Execute starts a run, or finds it if it was started before, and waits for its end. It returns the Result and the error as kahn.Execute does;
// the Result has no events. If Temporal fails, it returns an error and no Result. If ctx ends, Execute stops waiting, and the run continues.
func Execute(ctx context.Context, c client.Client, w Workflow, inputs map[string]any) (*kahn.Result, error) {
	run, err := Start(ctx, c, w, inputs)
	if err != nil {
		return nil, err
	}
	return run.Wait(ctx)
}

// Attach returns the run of a workflow that was started before. It uses the fields ID, Plan, Types, Blobs and DataConverter of w. Attach does not ask
// Temporal whether the workflow exists. If the workflow does not exist, the methods of the Run return an error.
func Attach(c client.Client, w Workflow) *Run {
	return &Run{c, w, c.GetWorkflow(context.Background(), w.ID, "")}
}

// The method input checks w and the inputs of the run, and returns the input of the Temporal workflow.
func (w Workflow) input(inputs map[string]any) (input, error) {
	if err := check(w.Plan, true); err != nil {
		return input{}, err
	}
	if err := unitless("ExecutionTimeout", w.ExecutionTimeout); err != nil {
		return input{}, fmt.Errorf("kahn/temporal: %w", err)
	}
	opts := append(w.Settings.options(), kahn.Inputs(inputs), kahn.Retain(0), uncalled)
	if f := w.Fire; f != nil {
		opts = append(opts, kahn.Fire(f.Trigger, f.Payload), f.Prune)
	}
	if _, err := kahn.NewCoordinator(w.Plan, time.Now(), opts...); err != nil {
		return input{}, fmt.Errorf("kahn/temporal: %w", err)
	}
	in := input{Plan: idOf(w.Plan), StateVersion: machine.StateVersion, WorkflowID: w.ID, Settings: w.Settings, SearchAttributes: w.SearchAttributes, ShortCalls: true}
	if f := w.Fire; f != nil {
		payload, err := w.texts().Encode(f.Payload)
		if err != nil {
			return input{}, fmt.Errorf("kahn/temporal: the payload of %q: %w", f.Trigger, err)
		}
		in.Fired = &fired{f.Trigger, payload, f.Prune}
	}
	var err error
	in.Inputs, err = encodeAll(w.texts(), inputs)
	return in, err
}

// The method key returns a hash of the plan, the settings, the inputs and the trigger of a run. The hash does not depend on StateVersion, so that a
// program of a later version finds the run. Nor does it depend on SearchAttributes and ShortCalls, since they do not affect what the run does.
func (in input) key() string {
	in.RunID, in.WorkflowID, in.StateVersion, in.SearchAttributes, in.ShortCalls = "", "", 0, false, false
	in.Settings.former = in.Settings != (Settings{}) // selects the JSON form whose hash programs of former versions compute
	sum := sha256.Sum256(in.text())
	return hex.EncodeToString(sum[:])
}

// The method text returns the JSON of the input.
func (in input) text() []byte {
	data, err := json.Marshal(in)
	if err != nil {
		panic(fmt.Sprintf("kahn/temporal: the input has no JSON form: %v", err)) // this is a bug, because all values of an input have a JSON form
	}
	return data
}

// maxPayload is the most bytes of JSON that a client gives to Temporal in one payload. Temporal refuses 2 MiB, and a payload has other
// parts, too.
const maxPayload = 2<<20 - 64<<10

// tooLong returns the error for JSON of more than maxPayload bytes.
func tooLong(what, see string, size int) error {
	return &refusal{text: fmt.Sprintf("the %s %d bytes of JSON, and Temporal takes %d: see %s", what, size, maxPayload, see), err: ErrTooLarge}
}

// attachTo returns the run of the existing workflow with this id if its plan, settings, inputs and trigger are the same. If the run has adopted
// another version of its plan, attachTo compares the plan with that version.
func (w Workflow) attachTo(ctx context.Context, c client.Client, in input) (*Run, error) {
	about, err := c.DescribeWorkflowExecution(ctx, w.ID, "")
	if err != nil {
		return nil, fmt.Errorf("kahn/temporal: workflow %q: %w", w.ID, err)
	}
	var old memo
	fields := about.GetWorkflowExecutionInfo().GetMemo().GetFields()
	err = w.converter().FromPayload(fields[memoName], &old)
	now := old.Plan
	if adopted := fields[adoptedName]; err == nil && adopted != nil {
		err = w.converter().FromPayload(adopted, &now)
	}
	if err != nil {
		return nil, fmt.Errorf("kahn/temporal: workflow %q: %w: its memo cannot be read, so it is not known which run it is: %w", w.ID, kahn.ErrKeyConflict, undecoded(err))
	}
	same := now.Print == in.Plan.Print
	in.Plan = old.Plan // the key is a hash of the plan with which the run began
	if !same || old.Key != in.key() {
		return nil, fmt.Errorf("kahn/temporal: workflow %q: %w: it was started by other means, or with another plan, other settings or other inputs: Attach returns its run", w.ID, kahn.ErrKeyConflict)
	}
	return Attach(c, w), nil
}

// The method texts returns a value of type texts that writes and reads the values of the run.
func (w Workflow) texts() texts {
	if w.Blobs == nil {
		return textsIn(nil, w.Types, 0)
	}
	return textsIn(&cache{BlobStore: CodedBlobs(w.Blobs, w.DataConverter)}, w.Types, 0)
}

// ID returns the id of the workflow.
func (r *Run) ID() string { return r.of.ID }

// Wait waits for the end of the run, and returns the same Result and error as [Execute].
func (r *Run) Wait(ctx context.Context) (*kahn.Result, error) {
	var out output
	if err := r.get.Get(ctx, &out); err != nil {
		if err := outputOf(err, &out); err != nil {
			return nil, fmt.Errorf("kahn/temporal: workflow %q: %w", r.of.ID, err)
		}
	}
	return r.of.result(out)
}

// outputOf finds the output in the error of a workflow that has failed or was cancelled, and stores it in *out. If the error contains no output,
// outputOf returns the error.
func outputOf(err error, out *output) error {
	var failed *sdk.ApplicationError
	var cancelled *sdk.CanceledError
	switch {
	case errors.As(err, &failed) && failed.Type() == refusedRun:
		return decodeRefusal(err)
	case errors.As(err, &failed) && failed.HasDetails():
		return undecoded(failed.Details(out))
	case errors.As(err, &cancelled) && cancelled.HasDetails():
		return undecoded(cancelled.Details(out))
	}
	return unreadable(err)
}

// The method result returns the Result of an output.
func (w Workflow) result(out output) (*kahn.Result, error) {
	t := w.texts()
	s, err := out.Snapshot.open(t)
	if err != nil {
		return nil, err
	}
	res, err := s.Result(w.Plan, kahn.Encoding(t.Codec), out.Rule)
	if out.Error != "" {
		err = errors.Join(&refusal{text: out.Error, err: ErrTooLarge}, err)
	}
	return res, err
}

// Signal answers a waiting node as kahn.Run.Signal does, and returns the same errors. The parameter "gate" is the id, the path or the token of
// the node. A [kahn.Decision] records who decided; a Decision with an ID may be sent again. If the workflow does not exist, Signal and the other
// methods that send a request to the run return an error that matches kahn.ErrUnknownRun.
func (r *Run) Signal(ctx context.Context, gate string, value any) error {
	q, err := r.of.signalRequest(gate, value)
	if err != nil {
		return err
	}
	return r.update(ctx, SignalUpdate, q)
}

// signalRequest returns the argument of SignalUpdate, and of the signal SignalName.
func (w Workflow) signalRequest(gate string, value any) (q signalRequest, err error) {
	d, is := value.(kahn.Decision)
	if !is {
		d.Value = value
	}
	data, err := w.texts().Encode(d.Value)
	if err != nil {
		return q, fmt.Errorf("kahn/temporal: the signal for %q: %w", gate, err)
	}
	if len(data) > maxPayload {
		return q, fmt.Errorf("kahn/temporal: the signal for %q: %w", gate, tooLong("value is", "Workflow.Blobs", len(data)))
	}
	return signalRequest{gate, data, d.Actor, d.Comment, d.ID}, nil
}

// Cancel asks the run to stop, as kahn.Run.Cancel does: its steps are asked to stop, and its cleanup nodes still run.
func (r *Run) Cancel(ctx context.Context, q kahn.Request) error {
	return r.update(ctx, StopUpdate, stopRequest{Actor: q.Actor, Reason: q.Reason})
}

// Abort stops the run because of a failure, as kahn.Run.AbortAll does: the run fails with the text of err.
func (r *Run) Abort(ctx context.Context, err error, q kahn.Request) error {
	stop := stopRequest{Abort: true, Actor: q.Actor, Reason: q.Reason}
	if err != nil {
		stop.Error = err.Error()
	}
	return r.update(ctx, StopUpdate, stop)
}

// CancelNode asks one node to stop, as kahn.Run.CancelNode does.
func (r *Run) CancelNode(ctx context.Context, id string) error {
	return r.update(ctx, StopUpdate, stopRequest{Node: id})
}

func (r *Run) update(ctx context.Context, name string, argument any) error {
	done, err := updating.take(ctx, r.of.ID)
	if err != nil {
		return fmt.Errorf("kahn/temporal: workflow %q: %w", r.of.ID, err)
	}
	defer done()
	h, err := r.client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: r.of.ID, UpdateName: name, Args: []any{argument}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = h.Get(ctx, nil)
	}
	if err = decodeRefusal(r.unreached(ctx, err)); err != nil {
		return fmt.Errorf("kahn/temporal: workflow %q: %w", r.of.ID, err)
	}
	return nil
}

// unreached translates the error of an update if Temporal has found no running workflow. The returned error matches kahn.ErrFinished if the run
// has ended, and kahn.ErrUnknownRun if there is no run. unreached returns any other error unchanged.
func (r *Run) unreached(ctx context.Context, err error) error {
	var none *serviceerror.NotFound
	if !errors.As(err, &none) {
		return err
	}
	about, lookErr := r.client.DescribeWorkflowExecution(ctx, r.of.ID, "")
	if lookErr == nil && about.GetWorkflowExecutionInfo().GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return fmt.Errorf("%w: %w", kahn.ErrFinished, err)
	}
	return known(err)
}

// Waiting returns the status of the run, and the nodes that wait for a signal. The query needs a live worker.
func (r *Run) Waiting(ctx context.Context) (kahn.RunStatus, []kahn.Wait, error) {
	var s state
	if err := r.query(ctx, "", StateQuery, &s); err != nil {
		return 0, nil, err
	}
	waits, err := s.waits(r.of.texts())
	return s.Status, waits, err
}

func (s state) waits(codec kahn.Codec) (waits []kahn.Wait, err error) {
	for _, w := range s.Waiting {
		wait := kahn.Wait{Node: w.Node, Token: w.Token, Since: w.Since, Deadline: w.Deadline, Choices: w.Choices}
		if wait.Info, err = codec.Decode(w.Info); err != nil {
			return nil, fmt.Errorf("kahn/temporal: the info of node %q: %w", w.Node, err)
		}
		waits = append(waits, wait)
	}
	return waits, nil
}
