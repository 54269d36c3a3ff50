package temporal

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
)

// The types of workflows and activities that have no name of the host's.
const (
	WorkflowName = "kahn.Run"     // of runs that former versions have started
	BatchName    = "kahn.Batch"   // of child workflows that former versions have started
	ActivityName = "kahn.Step"    // of the attempts of nodes without a kind, and of all attempts of runs that former versions have started
	UnnamedGraph = "kahn.Unnamed" // of the runs of a graph without a Name, or whose Name begins with "kahn."
	ItemsName    = "kahn.Items"   // of the child workflows that perform attempts of items, see Settings.MapChildren
)

// Kind is how the attempts of nodes of a kind are performed, see Options.Kinds.
type Kind struct {
	// TaskQueue is the queue of their activities; "" is the run's. The workers that poll it have the same plans and Options.
	TaskQueue string
	// Local makes them local activities: the worker that has the workflow task performs them, without a task and with one event in the history. It is for steps
	// that take less than a second or two. A step that is to stop is not waited for, and sends no heartbeats; TaskQueue and the fields below do not matter.
	// Change it only when no run is left that has begun before.
	Local bool
	// LostAfter, if it is not zero, is used in place of Options.LostAfter.
	LostAfter time.Duration
	// StartToClose bounds an attempt: if it takes longer, its worker counts as lost. It is for steps that hang while their worker lives. Zero: no bound.
	StartToClose time.Duration
	// ScheduleToStart bounds the time until a worker takes an attempt. After it the attempt has failed, without an effect, and the node's Retry decides. Zero: no bound.
	ScheduleToStart time.Duration
	// Priority is the priority of the tasks. What it leaves empty is inherited from the workflow, see Workflow.Priority.
	Priority sdk.Priority
	// FairByKey makes the concurrency key of a node, by Key or KeyFrom, the fairness key of its tasks, cut after 64 bytes. Items of a map that have keys of their own have none.
	FairByKey bool
}

// workflowType is the type of the workflows of a graph's runs.
func workflowType(graph string, by func(string) string) string {
	if by != nil {
		graph = by(graph)
	}
	if graph == "" || strings.HasPrefix(graph, "kahn.") {
		return UnnamedGraph
	}
	return graph
}

// activityType is the type of the activities of a kind.
func (o Options) activityType(kind string) string {
	if o.ActivityType != nil {
		kind = o.ActivityType(kind)
	}
	return cmp.Or(kind, ActivityName)
}

// activityTypes returns the activity types of the plans, sorted.
func (o Options) activityTypes() []string {
	types := map[string]bool{ActivityName: true}
	for _, p := range o.Plans {
		if p == nil {
			continue
		}
		for _, p := range levels(p) {
			for r := range p.Declared() {
				n := p.Node(r)
				types[o.activityType(n.Kind)] = true
				if n.CompensateBy != nil {
					types[o.activityType(n.CompensateBy.Kind)] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(types))
}

// workflowTypes returns the workflow types of the plans, sorted.
func (o Options) workflowTypes() []string {
	types := map[string]bool{WorkflowName: true}
	for _, p := range o.Plans {
		types[workflowType(p.Name(), o.WorkflowType)] = true
	}
	return slices.Sorted(maps.Keys(types))
}

// isNamed reports whether a workflow is one of a version that names workflows and activities. A worker of a former version does not have its type, and so
// never takes it; what it does needs no other mark in its history.
func isNamed(ctx workflow.Context) bool {
	switch workflow.GetInfo(ctx).WorkflowType.Name {
	case WorkflowName, BatchName:
		return false
	}
	return true
}

// typed is what the activity of an attempt is, beside its input.
type typed struct {
	Kind string `json:"kind,omitempty"`
	Key  string `json:"key,omitempty"` // see Kind.FairByKey
}

// typed returns it for an attempt.
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

// maxFairnessKey is the length of a fairness key.
const maxFairnessKey = 64

// performing are the options of the activity of an attempt. Temporal repeats the activity when a worker hands the attempt back without a result; that is no
// other attempt of the node. After the loss of a worker the run decides.
func (h *host) performing(path string, t typed) workflow.ActivityOptions {
	k := h.Kinds[t.Kind]
	priority := k.Priority
	if t.Key != "" {
		priority.FairnessKey = strings.ToValidUTF8(t.Key[:min(len(t.Key), maxFairnessKey)], "")
	}
	return workflow.ActivityOptions{
		TaskQueue: k.TaskQueue, ScheduleToStartTimeout: k.ScheduleToStart, StartToCloseTimeout: cmp.Or(k.StartToClose, forever), HeartbeatTimeout: cmp.Or(k.LostAfter, h.LostAfter),
		WaitForCancellation: true, Summary: shorten(path, maxSummary), Priority: priority,
		RetryPolicy: &sdk.RetryPolicy{
			InitialInterval: 200 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second,
			NonRetryableErrorTypes: []string{"TemporalTimeout:Heartbeat", "TemporalTimeout:StartToClose", "PanicError"},
		},
	}
}

// activity begins the activity of an attempt, by the name that the execution's version gives it.
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

// checkKinds finds what is wrong with the Kinds.
func (o Options) checkKinds() (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(o.Kinds)) {
		k := o.Kinds[name]
		if k.LostAfter < 0 || k.StartToClose < 0 || k.ScheduleToStart < 0 {
			errs = append(errs, fmt.Errorf("kahn/temporal: %w: LostAfter, StartToClose and ScheduleToStart of kind %q are not negative", kahn.ErrBadOption, name))
		}
		if k.LostAfter > 0 && k.LostAfter <= cmp.Or(o.Heartbeat, defaultHeartbeat) {
			errs = append(errs, fmt.Errorf("kahn/temporal: %w: LostAfter of kind %q, %v, is not more than Heartbeat", kahn.ErrBadOption, name, k.LostAfter))
		}
	}
	return errs
}
