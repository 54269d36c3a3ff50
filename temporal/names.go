package temporal

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
)

// The types of workflows and activities that the host does not name.
const (
	WorkflowName = "kahn.Run"     // the type of the workflows that former versions started for runs
	BatchName    = "kahn.Batch"   // the type of the child workflows that former versions started for batches
	ActivityName = "kahn.Step"    // the type of activities for nodes without a kind, and of all activities in runs that former versions started
	UnnamedGraph = "kahn.Unnamed" // the type of the workflows for a graph without a Name, or with a Name that begins with "kahn."
	ItemsName    = "kahn.Items"   // the type of the child workflows that perform attempts of items, see Settings.MapChildren
)

// Kind says how the attempts of nodes of a kind are performed, see Options.Kinds.
type Kind struct {
	// TaskQueue is the queue of the attempts' activities; "" means the queue of the run. The workers that poll this queue must have the
	// same plans and Options.
	TaskQueue string
	// Local makes the attempts local activities: the worker that has the workflow task performs them, without further tasks and with one
	// event in the history. It is for steps that take less than a second or two. Local activities send no heartbeats. If the run
	// stops a local activity, it does not wait for the end of the step. TaskQueue and the fields below have no effect. Do not change Local
	// before all existing runs have ended.
	Local bool
	// LostAfter, if it is not zero, replaces Options.LostAfter.
	LostAfter time.Duration
	// StartToClose bounds an attempt: if the attempt takes longer, its worker counts as lost. Set it for steps that may hang while their worker
	// still sends heartbeats. Zero means no bound.
	StartToClose time.Duration
	// ScheduleToStart bounds the time until a worker takes an attempt. If no worker takes the attempt in time, the attempt fails, and the step is
	// not called. The node's Retry then decides whether there is another attempt. Zero means no bound.
	ScheduleToStart time.Duration
	// Priority is the priority of the attempts' tasks. The tasks inherit its empty fields from the workflow, see Workflow.Priority.
	Priority sdk.Priority
	// If FairByKey is set, the concurrency key of a node is also the fairness key of its tasks, see Node.Key and Node.KeyFrom. A fairness key is cut
	// after 64 bytes. Items whose concurrency keys come from Map.Key have no fairness key.
	FairByKey bool
	// If Workflow is not nil, a child workflow of the host's own performs each attempt of the kind, in place of an activity: see [StepWorkflow]. The
	// workflow of the run calls the function Workflow for each attempt, and calls it again in each replay. So its result must depend only on the
	// Step, and the function must change nothing. If two calls return different results, the workflow task fails with [ErrImpure]. If the function
	// returns an error, the node fails and is not retried. For nodes of the kind, kahn calls neither Do nor the worker's step function. Local must
	// be false, and the times above must be zero. Do not change Workflow before all existing runs have ended.
	Workflow func(*kahn.Step) (StepWorkflow, error)
}

// workflowType returns the type of the workflows that perform the runs of a graph.
func workflowType(graph string, by func(string) string) string {
	if by != nil {
		graph = by(graph)
	}
	if graph == "" || strings.HasPrefix(graph, "kahn.") {
		return UnnamedGraph
	}
	return graph
}

// activityType returns the type of the activities of a kind.
func (o Options) activityType(kind string) string {
	if o.ActivityType != nil {
		kind = o.ActivityType(kind)
	}
	return cmp.Or(kind, ActivityName)
}

// isNamed reports whether a workflow was started by a version that names workflows after graphs and activities after kinds. A worker of a former
// version never performs such a workflow, because it has not registered the workflow's type. So the history of such a workflow needs no version
// markers.
func isNamed(ctx workflow.Context) bool {
	switch workflow.GetInfo(ctx).WorkflowType.Name {
	case WorkflowName, BatchName:
		return false
	}
	return true
}

// The type typed has the kind and the key of an attempt. From these the activity of the attempt gets its type and its fairness key.
type typed struct {
	Kind string `json:"kind,omitempty"`
	Key  string `json:"key,omitempty"` // see Kind.FairByKey
}

// The method typed returns the kind of an attempt, and its key if FairByKey of the kind is set.
func (x *interpreter) typed(s *kahn.Step) (t typed) {
	t.Kind = s.Kind()
	if x.Kinds[t.Kind].FairByKey {
		n, _ := x.plan.At(s.Path())
		if t.Key = n.Key; n.KeyFrom != "" {
			if of, err := x.c.Run().Node(s.Path()); err == nil {
				t.Key = of.Key
			}
		}
	}
	return t
}

// maxFairnessKey is the length to which a fairness key is cut, in bytes.
const maxFairnessKey = 64

// The method priority returns the priority of the tasks of an attempt.
func (h *host) priority(t typed) sdk.Priority {
	priority := h.Kinds[t.Kind].Priority
	if t.Key != "" {
		priority.FairnessKey = strings.ToValidUTF8(t.Key[:min(len(t.Key), maxFairnessKey)], "")
	}
	return priority
}

// The method performing returns the options for the activity of an attempt. If a worker hands the attempt back without a result, Temporal
// repeats the activity; the repetition does not count as another attempt of the node. If the worker is lost, Temporal does not repeat the
// activity: the run then decides whether another worker performs the attempt again.
func (h *host) performing(path string, t typed) workflow.ActivityOptions {
	k := h.Kinds[t.Kind]
	final := []string{"TemporalTimeout:Heartbeat"} // as short as possible, since the history repeats this list for each attempt
	if k.StartToClose > 0 {
		final = append(final, "TemporalTimeout:StartToClose")
	}
	return workflow.ActivityOptions{
		TaskQueue: k.TaskQueue, ScheduleToStartTimeout: k.ScheduleToStart, StartToCloseTimeout: cmp.Or(k.StartToClose, forever), HeartbeatTimeout: cmp.Or(k.LostAfter, h.LostAfter),
		WaitForCancellation: true, Summary: shorten(path, maxSummary), Priority: h.priority(t),
		RetryPolicy: &sdk.RetryPolicy{
			InitialInterval: 200 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second,
			NonRetryableErrorTypes: final,
		},
	}
}

// The method activity begins the activity of an attempt. If the parameter "named" is set, the activity has the type of its kind; otherwise
// its type is [ActivityName], as in former versions.
func (h *host) activity(ctx workflow.Context, named bool, path string, t typed, in task) workflow.Future {
	switch {
	case !named:
		return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, h.performing(path, t)), ActivityName, in)
	case h.Kinds[t.Kind].Local:
		return workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
			StartToCloseTimeout: forever, Summary: shorten(path, maxSummary), RetryPolicy: &sdk.RetryPolicy{MaximumAttempts: 1},
		}), h.activityType(t.Kind), in)
	}
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, h.performing(path, t)), h.activityType(t.Kind), in)
}

// checkKinds returns the errors in the Kinds.
func (o Options) checkKinds() (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(o.Kinds)) {
		k := o.Kinds[name]
		if k.LostAfter < 0 || k.StartToClose < 0 || k.ScheduleToStart < 0 {
			errs = append(errs, fmt.Errorf("kahn/temporal: %w: LostAfter, StartToClose and ScheduleToStart of kind %q must not be negative", kahn.ErrBadOption, name))
		}
		if err := errors.Join(unitless("StartToClose", k.StartToClose), unitless("ScheduleToStart", k.ScheduleToStart)); err != nil {
			errs = append(errs, fmt.Errorf("kahn/temporal: kind %q: %w", name, err))
		}
		if k.LostAfter > 0 && k.LostAfter <= cmp.Or(o.Heartbeat, defaultHeartbeat) {
			errs = append(errs, fmt.Errorf("kahn/temporal: %w: LostAfter of kind %q, %v, must be longer than Heartbeat", kahn.ErrBadOption, name, k.LostAfter))
		}
		if k.Workflow != nil && (k.Local || k.LostAfter != 0 || k.StartToClose != 0 || k.ScheduleToStart != 0) {
			errs = append(errs, fmt.Errorf("kahn/temporal: %w: Local, LostAfter, StartToClose and ScheduleToStart of kind %q are for activities, and a Workflow performs the kind", kahn.ErrBadOption, name))
		}
	}
	return errs
}

// The function `unitless` returns an error for a time that is so short that the author probably forgot the unit, as in 30 for 30*time.Second.
func unitless(name string, d time.Duration) error {
	if 0 < d && d < time.Millisecond {
		return fmt.Errorf("%w: %s %v: is its unit missing?", kahn.ErrBadOption, name, d)
	}
	return nil
}
