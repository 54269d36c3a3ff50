package temporal

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
)

// unconnected returns a worker of the SDK that has no connection to a service.
func unconnected(t *testing.T, o worker.Options) worker.Worker {
	t.Helper()
	c, err := client.NewLazyClient(client.Options{Logger: discard})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return worker.New(c, "orders", o)
}

// A type that the worker has already is an error that names the type, whose it is, and what to do. Without it the SDK panics.
func TestRegisterTwice(t *testing.T) {
	t.Parallel()
	g := (&kahn.Graph{Name: "orders"}).Add(kahn.Node{ID: "charge", Kind: "bank", CompensateBy: &kahn.CompensateBy{Kind: "refund"}}, kahn.Node{ID: "tell"})
	o := Options{Plans: []*kahn.Plan{plan(t, g)}, Step: nothing}
	own := func(context.Context) error { return nil }
	for name, row := range map[string]struct {
		before func(w worker.Worker) error
		change func(o *Options)
		texts  []string // none if Register succeeds
	}{
		"an activity of the host": {before: func(w worker.Worker) error {
			w.RegisterActivityWithOptions(own, activity.RegisterOptions{Name: "bank"})
			return nil
		}, texts: []string{`an activity of the type "bank"`, `kind "bank" (node "charge" of graph "orders")`, "rename your activity or the kind", "Options.ActivityType"}},
		"an activity for a compensation": {before: func(w worker.Worker) error {
			w.RegisterActivityWithOptions(own, activity.RegisterOptions{Name: "refund"})
			return nil
		}, texts: []string{`kind "refund" (node "charge" of graph "orders")`}},
		"an activity with the host's name of a kind": {before: func(w worker.Worker) error {
			w.RegisterActivityWithOptions(own, activity.RegisterOptions{Name: "do-bank"})
			return nil
		}, change: func(o *Options) { o.ActivityType = func(kind string) string { return "do-" + kind } },
			texts: []string{`an activity of the type "do-bank"`, `kind "bank" (node "charge" of graph "orders")`}},
		"an activity for nodes without a kind": {before: func(w worker.Worker) error {
			w.RegisterActivityWithOptions(own, activity.RegisterOptions{Name: "do-"})
			return nil
		}, change: func(o *Options) { o.ActivityType = func(kind string) string { return "do-" + kind } },
			texts: []string{`an activity of the type "do-"`, `nodes without a kind (node "tell" of graph "orders")`}},
		"a workflow of the host": {before: func(w worker.Worker) error {
			w.RegisterWorkflowWithOptions(func(workflow.Context) error { return nil }, workflow.RegisterOptions{Name: "orders"})
			return nil
		}, texts: []string{`a workflow of the type "orders"`, `the type of graph "orders"`, "rename your workflow or the graph", "Options.WorkflowType"}},
		"Register twice": {before: func(w worker.Worker) error {
			return Options{Plans: []*kahn.Plan{plan(t, (&kahn.Graph{Name: "other"}).Add(kahn.Node{ID: "a"}))}, Step: nothing}.Register(w)
		}, texts: []string{`workflow type "kahn.Batch"`, "an earlier Register", "call Register once for each worker", "Options.Plans"}},
		"a name that Temporal reserves": {change: func(o *Options) { o.ActivityType = func(string) string { return "__temporal_bank" } }, texts: []string{`"__temporal_bank"`, "reserved"}},
		"a worker without workflows":    {before: func(worker.Worker) error { return nil }},
		"kinds that share a type":       {change: func(o *Options) { o.ActivityType = func(string) string { return "step" } }},
		"a graph that has two versions": {change: func(o *Options) {
			o.Plans = append(o.Plans, plan(t, (&kahn.Graph{Name: "orders"}).Add(kahn.Node{ID: "a", Kind: "bank"})))
		}},
	} {
		o, w := o, unconnected(t, worker.Options{})
		if row.before != nil {
			require.NoError(t, row.before(w), name)
		}
		if row.change != nil {
			row.change(&o)
		}
		err := o.Register(w)
		if row.texts == nil {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, kahn.ErrBadOption, name)
		for _, text := range row.texts {
			require.ErrorContains(t, err, text, name)
		}
	}
	require.ErrorIs(t, o.Register(nil), kahn.ErrBadOption)
	err := o.Register(unconnected(t, worker.Options{DisableWorkflowWorker: true}))
	require.ErrorContains(t, err, "workflow worker disabled", "such a worker comes from NewWorker")
}

// After a second Register, the worker has nothing of the second Options.
func TestRegisterTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	w := &listed{Worker: unconnected(t, worker.Options{})}
	of := func(name string) Options {
		return Options{Plans: []*kahn.Plan{plan(t, (&kahn.Graph{Name: name}).Add(kahn.Node{ID: "a", Kind: name + "-kind"}))}, Step: nothing}
	}
	require.NoError(t, of("one").Register(w))
	require.Error(t, of("two").Register(w))
	require.ElementsMatch(t, []string{"kahn.Batch", "kahn.Items", "kahn.Run", "one", "kahn.Step", "one-kind"}, w.types)
}

// listed lists the types that the worker has accepted.
type listed struct {
	worker.Worker
	types []string
}

func (l *listed) RegisterWorkflowWithOptions(w any, o workflow.RegisterOptions) {
	l.Worker.RegisterWorkflowWithOptions(w, o)
	l.types = append(l.types, o.Name)
}

func (l *listed) RegisterActivityWithOptions(a any, o activity.RegisterOptions) {
	l.Worker.RegisterActivityWithOptions(a, o)
	l.types = append(l.types, o.Name)
}

// An entry of Kinds for a kind without attempts is a warning that names similar kinds and all choices. Compensations count, and a composite, a
// condition or a gate does not, because workers perform no attempts of these nodes.
func TestUnknownKinds(t *testing.T) {
	inner := (&kahn.Graph{Name: "inner"}).Add(kahn.Node{ID: "x", Kind: "deep"})
	g := (&kahn.Graph{Name: "orders"}).Add(
		kahn.Node{ID: "charge", Kind: "gpu", CompensateBy: &kahn.CompensateBy{Kind: "refund"}}, kahn.Node{ID: "ask", Kind: kahn.KindGate},
		kahn.Node{ID: "sub", Kind: "composite", Sub: inner}, kahn.Node{ID: "plain"})
	o := Options{Plans: []*kahn.Plan{plan(t, g)}, Step: nothing, Kinds: map[string]Kind{
		"gpu": {TaskQueue: "gpu"}, "refund": {LostAfter: time.Minute}, "deep": {}, "": {LostAfter: time.Minute},
	}}
	require.Empty(t, o.Warnings())
	o.Kinds["gpus"], o.Kinds["composite"], o.Kinds[kahn.KindGate] = Kind{}, Kind{}, Kind{}
	warnings := o.Warnings()
	require.Len(t, warnings, 3)
	choices := `they have attempts of the kinds "", "deep", "gpu", "refund"`
	for i, text := range []string{`Options.Kinds["composite"]`, `Options.Kinds["gate"]`, `Options.Kinds["gpus"] has no effect, because the plans have no attempts of this kind; did you mean "gpu"?; ` + choices} {
		require.ErrorIs(t, warnings[i], kahn.ErrUnknownKind)
		require.ErrorContains(t, warnings[i], text)
		require.ErrorContains(t, warnings[i], choices)
	}
	none := Options{Plans: []*kahn.Plan{plan(t, (&kahn.Graph{Name: "kinds"}).Add(kahn.Node{ID: "a", Kind: "a"}))}, Kinds: map[string]Kind{"": {}}}
	require.Len(t, none.Warnings(), 1, "each node has a kind")

	var log bytes.Buffer
	former := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(former) })
	require.NoError(t, o.Register(unconnected(t, worker.Options{})))
	for _, name := range []string{"gpus", "composite", "gate"} {
		require.Contains(t, log.String(), `Options.Kinds[\"`+name+`\"]`)
	}
	require.Contains(t, log.String(), "level=WARN")
}
