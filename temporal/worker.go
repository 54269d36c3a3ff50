package temporal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// Options configures a worker.
type Options struct {
	// Plans are the plans that the worker performs. A run identifies its plan by the plan's name and by a hash of everything in the plan
	// that affects a run. So keep a former version of a plan here until the runs of that version have ended.
	Plans []*kahn.Plan
	// Step performs the nodes without a Do of their own, as the step function of kahn.Execute does.
	Step kahn.StepFunc
	// Pure declares that the Go functions of the plans, except steps, depend on their arguments alone and change nothing. The workflow calls
	// these functions again whenever Temporal replays the history of a run. If Pure is false, the history records the result of each call of
	// When, Test, Fallback, While and Until, and workers refuse plans with functions that [Check] names. All workers must agree on Pure, and
	// it must not change while there are runs. The worker verifies the declaration: when it calls a function for the first time,
	// it calls the function twice. In replays and in the test environment of the SDK, it makes every call twice. If the results differ, the
	// workflow task fails with [ErrImpure].
	Pure bool
	// WorkflowType maps the Name of a graph to the type of its runs' workflows, see Workflow.Type; nil means the Name itself. ActivityType maps
	// a kind to the type of the activities that perform its attempts; "" stands for nodes without a kind, and nil means the kind itself.
	// Temporal's metrics, lists and rate limits distinguish workflows and activities by these types. All workers must have the same functions,
	// which must not change while there are runs.
	WorkflowType, ActivityType func(name string) string
	// Kinds says, for each kind, how Temporal performs its attempts, see [Kind]; "" stands for nodes without a kind. For a compensation by
	// CompensateBy, the Kind in CompensateBy counts. [Options.Warnings] lists the kinds that the Plans do not have.
	Kinds map[string]Kind
	// Types are the host's own types of values: see kahn.Types.
	Types kahn.Types
	// Blobs keeps values, calls, results and snapshots of more than 32 KiB of JSON. Temporal gets only references, so its size limits do not apply to
	// values. All workers of a task queue, and the programs that start and read its runs, must have the same store. PruneBlobs
	// removes the blobs that no run needs any more. If Blobs is nil, the values themselves are stored in Temporal.
	Blobs store.BlobStore
	// If View is set, each step gets the results of all its ancestors, see kahn.Step.View. Without View, a step sees only the results of its
	// predecessors that have an error, and the call of a step contains little more than the step's inputs.
	View bool
	// MaxBytes is the most bytes of JSON that Temporal gets for one call or one result. A longer call or result fails the node, without a
	// retry. Zero means 1 MiB. Temporal itself refuses 2 MiB.
	MaxBytes int
	// ContinueAfter is the number of attempts after which a run begins no more attempts in its workflow execution. When the running attempts have
	// ended, the run continues in a new execution, so that the history stays within Temporal's bounds. The run also does this earlier if
	// Temporal suggests it. Zero means 1,000.
	ContinueAfter int
	// Heartbeat is the interval at which the worker reports a running step to Temporal. The answer says whether the step has to stop.
	// Heartbeat must be less than LostAfter. Zero means 1 s.
	Heartbeat time.Duration
	// LostAfter is how long Temporal waits for a heartbeat of an attempt. Then the worker counts as lost, and another worker performs the
	// attempt again, see Settings.MaxCrashes. Zero means 10 s.
	LostAfter time.Duration
	// DataConverter is the client's data converter. kahn uses it for the histories that [Options.Replayer] replays, for the heartbeat details
	// of an attempt whose worker was lost, and for Blobs. Nil means the SDK's default, and that blobs are not encoded.
	DataConverter converter.DataConverter
	// FailureConverter is the client's failure converter. Only Options.Replayer uses it. Nil means the SDK's default, which encrypts nothing.
	FailureConverter converter.FailureConverter
	// Worker has the SDK's options of the worker. Worker.WorkerStopTimeout is how long a stopped worker waits for its running attempts. Then the
	// worker ends the contexts of these attempts with the cause kahn.ErrLeft, and other workers perform the attempts again. If a step ignores the
	// end of its context, the worker abandons the step after 4 more seconds.
	Worker worker.Options
}

const (
	defaultMaxBytes      = 1 << 20
	defaultContinueAfter = 1000
	defaultHeartbeat     = time.Second
	defaultLostAfter     = 10 * time.Second
)

// Registry has the methods of a worker, or of the test environment of the SDK, that [Options.Register] calls.
type Registry interface {
	RegisterWorkflowWithOptions(w any, options workflow.RegisterOptions)
	RegisterActivityWithOptions(a any, options activity.RegisterOptions)
}

// NewWorker returns a worker for a task queue. If o.Worker.DisableWorkflowWorker is set, the worker performs attempts but no
// workflow tasks. Set this option for a worker of the TaskQueue of a [Kind]. Errors are as for [Options.Register].
func NewWorker(c client.Client, taskQueue string, o Options) (worker.Worker, error) {
	if c == nil {
		return nil, fmt.Errorf("kahn/temporal: %w: no client", kahn.ErrBadOption)
	}
	own := o.Worker
	// Temporal cancels an activity in the answer to a heartbeat, so the SDK must not delay a heartbeat by more than the interval.
	own.MaxHeartbeatThrottleInterval = cmp.Or(own.MaxHeartbeatThrottleInterval, o.Heartbeat, defaultHeartbeat)
	// The SDK's default is one second. For a large graph, the decisions and the snapshot may take longer.
	own.DeadlockDetectionTimeout = cmp.Or(own.DeadlockDetectionTimeout, 5*time.Second)
	own.Interceptors = append(slices.Clip(own.Interceptors), o.Interceptor())
	stopAfter := max(own.WorkerStopTimeout, 0)
	own.WorkerStopTimeout = stopAfter + stopGrace + stopRoom // Stop returns as soon as Temporal has the results
	w := worker.New(c, taskQueue, own)
	if own.DisableWorkflowWorker {
		return w, o.register(attemptsOnly{w}, stopAfter)
	}
	return w, o.register(w, stopAfter)
}

// Register registers the workflows and the activities with a worker. The worker may also have workflows and activities of the host's own.
// The error matches [ErrUnsupported] if a plan cannot run on Temporal, [kahn.ErrNoStep] if a plan needs a step function that is missing, and
// [kahn.ErrBadOption] if the worker already has a type that a graph or a kind needs. After an error, do not start the worker. Register logs the
// [Options.Warnings].
//
// If the host made the worker itself, activity.RecordHeartbeat in steps needs [Options.Interceptor]. Within the worker.Options.WorkerStopTimeout
// of this worker, steps must return after the end of their contexts. If the worker does not report an attempt to Temporal in this time, the
// attempt counts as a crash.
func (o Options) Register(r Registry) error { return o.register(r, -1) }

// register does what Register does. A stopped worker leaves its running attempts after the time stopAfter. If stopAfter is negative, the worker
// leaves these attempts when the SDK ends their contexts.
func (o Options) register(r Registry, stopAfter time.Duration) error {
	h := newHost(o)
	h.stopAfter = stopAfter
	switch r.(type) {
	case workflows, interface{ IsWorkflowCompleted() bool }: // a replayer, or the test environment of the SDK
		h.pure.always = true
	}
	h.MaxBytes = cmp.Or(o.MaxBytes, defaultMaxBytes)
	h.ContinueAfter = cmp.Or(o.ContinueAfter, defaultContinueAfter)
	h.Heartbeat = cmp.Or(o.Heartbeat, defaultHeartbeat)
	h.LostAfter = cmp.Or(o.LostAfter, defaultLostAfter)
	if h.MaxBytes < 0 || h.ContinueAfter < 0 || h.Heartbeat < 0 || h.LostAfter < 0 {
		return fmt.Errorf("kahn/temporal: %w: MaxBytes, ContinueAfter, Heartbeat and LostAfter must not be negative", kahn.ErrBadOption)
	}
	if err := unitless("Heartbeat", h.Heartbeat); err != nil {
		return fmt.Errorf("kahn/temporal: %w", err)
	}
	if h.Heartbeat >= h.LostAfter {
		return fmt.Errorf("kahn/temporal: %w: a Heartbeat of %v is not less than LostAfter, %v: attempts would count as lost between two heartbeats", kahn.ErrBadOption, h.Heartbeat, h.LostAfter)
	}
	errs := o.checkKinds()
	for _, p := range o.Plans {
		if err := check(p, o.Pure); err != nil {
			errs = append(errs, err)
			continue
		}
		if path, ok := o.stepless(p); ok && o.Step == nil {
			errs = append(errs, fmt.Errorf("kahn/temporal: %w: node %q needs one", kahn.ErrNoStep, path))
			continue
		}
		h.add(p)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := h.registerWith(r); err != nil {
		return err
	}
	o.logWarnings()
	return nil
}

// Replayer returns a replayer for histories of runs. A test can replay them to check that a new version of a worker decides like the old one. Errors
// are as for [Options.Register]. The replay returns an error if DataConverter cannot read a history.
func (o Options) Replayer() (worker.WorkflowReplayer, error) {
	r, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DataConverter: strict{o.converter()}, FailureConverter: o.FailureConverter, Interceptors: o.Worker.Interceptors})
	if err != nil {
		return nil, fmt.Errorf("kahn/temporal: %w", err)
	}
	return r, o.Register(workflows{r})
}

// strict is a data converter for replays. It panics if it cannot read the input of a workflow. If it returned an error, the SDK would fail the
// workflow, and a replay of the history of a failed run would wrongly succeed.
type strict struct{ converter.DataConverter }

// FromPayload implements [converter.DataConverter].
func (s strict) FromPayload(payload *commonpb.Payload, into any) error {
	err := s.DataConverter.FromPayload(payload, into)
	return s.check(err, into)
}

// FromPayloads implements [converter.DataConverter].
func (s strict) FromPayloads(payloads *commonpb.Payloads, into ...any) error {
	err := s.DataConverter.FromPayloads(payloads, into...)
	return s.check(err, into...)
}

// WithWorkflowContext implements [workflow.ContextAware].
func (s strict) WithWorkflowContext(ctx workflow.Context) converter.DataConverter {
	if aware, is := s.DataConverter.(workflow.ContextAware); is {
		return strict{aware.WithWorkflowContext(ctx)}
	}
	return s
}

// WithContext implements [workflow.ContextAware].
func (s strict) WithContext(ctx context.Context) converter.DataConverter {
	if aware, is := s.DataConverter.(workflow.ContextAware); is {
		return strict{aware.WithContext(ctx)}
	}
	return s
}

// WithSerializationContext implements [converter.DataConverterWithSerializationContext].
func (s strict) WithSerializationContext(ctx converter.SerializationContext) converter.DataConverter {
	return strict{converter.WithDataConverterSerializationContext(s.DataConverter, ctx)}
}

func (strict) check(err error, into ...any) error {
	for _, v := range into {
		switch v.(type) {
		case *input, *batch:
			if err != nil {
				panic(fmt.Errorf("kahn/temporal: the history needs another Options.DataConverter: %w", err))
			}
		}
	}
	return err
}

// workflows registers only workflows.
type workflows struct{ worker.WorkflowReplayer }

func (workflows) RegisterActivityWithOptions(any, activity.RegisterOptions) {}

// attemptsOnly registers only activities. It is for a worker that performs no workflow tasks.
type attemptsOnly struct{ worker.Worker }

func (attemptsOnly) RegisterWorkflowWithOptions(any, workflow.RegisterOptions) {}

// stepless returns the path of a step that has no Do, and whose Kind has no Workflow.
func (o Options) stepless(p *kahn.Plan) (path string, ok bool) {
	for prefix, p := range levels(p) {
		for r := range p.Declared() {
			n := p.Node(r)
			if hasAttempts(n) && n.Do == nil && !n.Disabled && o.Kinds[n.Kind].Workflow == nil {
				return prefix + n.ID, true
			}
		}
	}
	return "", false
}

// hasAttempts reports whether a node is a step, so that workers perform its attempts.
func hasAttempts(n kahn.Node) bool {
	return n.Sub == nil && n.Test == nil && n.TestExpr == "" && n.Kind != kahn.KindTrigger && (n.Kind != kahn.KindGate || n.Do != nil)
}

// host holds what a worker needs to perform runs and attempts.
type host struct {
	Options
	plans map[planID]*kahn.Plan
	// foresights has a foresight for each plan; the keys are the results of planID.short.
	foresights map[string]*foresight
	cache      *cache // the cache of Options.Blobs; nil if there are no Blobs
	// stopAfter is the time after which a stopped worker leaves its running attempts; negative for a worker that the host made.
	stopAfter time.Duration
	texts     texts
	given     kahn.Codec // reads the values of calls
	pure      verified
}

func newHost(o Options) *host {
	h := &host{Options: o, plans: map[planID]*kahn.Plan{}, foresights: map[string]*foresight{}, texts: textsIn(nil, o.Types, 0)}
	if o.Blobs != nil {
		h.cache = &cache{BlobStore: CodedBlobs(o.Blobs, o.DataConverter)}
		h.texts = textsIn(h.cache, o.Types, 0)
	}
	h.given = &readOnce{Codec: h.texts.Codec}
	return h
}

// The method add adds a plan that the host performs.
func (h *host) add(p *kahn.Plan) {
	id := idOf(p)
	h.plans[id], h.foresights[id.short()] = p, &foresight{plan: p}
}

// The method plan returns the plan of a run.
func (h *host) plan(id planID) (*kahn.Plan, error) {
	if p := h.plans[id]; p != nil {
		return p, nil
	}
	for _, p := range h.Plans {
		if id.Name == "" && fingerprint(p) == id.Print { // a client may leave out the name
			return p, nil
		}
	}
	text := fmt.Sprintf("%q with the fingerprint %s", id.Name, id.Print)
	for _, p := range h.Plans {
		if p.Name() == id.Name {
			return nil, fmt.Errorf("kahn/temporal: %w %s; it has a plan of that name with the fingerprint %s", ErrUnknownPlan, text, fingerprint(p))
		}
	}
	return nil, fmt.Errorf("kahn/temporal: %w %s", ErrUnknownPlan, text)
}

// planID identifies a plan in the inputs of workflows and activities.
type planID struct {
	Name  string `json:"name,omitempty"`
	Print string `json:"fingerprint"`
}

func idOf(p *kahn.Plan) planID { return planID{p.Name(), fingerprint(p)} }
