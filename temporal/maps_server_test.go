//go:build server

package temporal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// hasten returns the graph with delays that are short enough for a real clock.
func hasten(g *kahn.Graph) *kahn.Graph {
	fast := &kahn.Graph{Groups: g.Groups}
	for _, n := range g.Nodes() {
		n.Retry.InitialDelay /= 10_000
		if n.Loop != nil {
			n.Loop.Pause /= 10_000
		}
		if n.Sub != nil {
			n.Sub = hasten(n.Sub)
		}
		fast.Add(n)
	}
	return fast
}

// TestServerMaps runs random maps, whose items child workflows perform, on a real service. They end as in one process, and every history
// replays.
func TestServerMaps(t *testing.T) {
	c := dial(t)
	const n = 20
	batches, from := 0, rand.Uint64() // a random seed: the tests with a server run in the long mode only
	for seed := from; seed != from+n; seed++ {
		rng := rand.New(rand.NewPCG(24, seed))
		node := kahn.Node{Retry: kahn.Retry{MaxAttempts: 1 + rng.IntN(3)}}
		if rng.IntN(2) == 0 {
			node.Sub = randomGraph(rng, 1)
		}
		g := hasten(overItems(rng.IntN(20), kahn.Map{Limit: []int{0, 0, 5}[rng.IntN(3)], ToleratedPercent: float64(rng.IntN(101))}, node))
		s := Settings{MapChildren: 3 + rng.IntN(5), CleanupTimeout: 1_000_000 * time.Hour} // answers take real time here
		want := here(t, g, seed, s)
		p := plan(t, g)
		o := Options{Step: fatedStep(seed)}
		w := serve(t, c, p, o)
		w.Settings = s
		run, err := Start(t.Context(), c, w, nil)
		require.NoError(t, err)
		first := run.get.GetRunID()
		require.Eventually(t, func() bool {
			status, waits, err := run.Waiting(t.Context())
			for _, w := range waits {
				if err == nil {
					err = run.Signal(t.Context(), w.Node, fate(seed, w.Node, 0) < 5)
				}
			}
			return err == nil && status.Terminal()
		}, time.Minute, 50*time.Millisecond)
		res, err := run.Wait(t.Context())
		require.NotNil(t, res, "%v", err)
		got := describe(res, "")
		slices.Sort(want)
		slices.Sort(got)
		require.Equal(t, want, got, "seed %d", seed)

		o.Plans = []*kahn.Plan{p}
		all := histories(t, c, w.ID, first)
		for _, child := range childrenIn(all) {
			batches++
			all = append(all, histories(t, c, child.id, child.run)...)
		}
		for _, h := range all {
			replayer, err := o.Replayer()
			require.NoError(t, err)
			require.NoError(t, replayer.ReplayWorkflowHistory(discard, h), "seed %d", seed)
		}
	}
	require.Greater(t, batches, n)
}

type childOf struct{ id, run string }

// childrenIn returns the child workflows in histories that perform items.
func childrenIn(all []*historypb.History) (list []childOf) {
	for _, h := range all {
		for _, e := range h.Events {
			if a := e.GetChildWorkflowExecutionStartedEventAttributes(); a != nil && a.WorkflowType.Name == ItemsName {
				list = append(list, childOf{a.WorkflowExecution.WorkflowId, a.WorkflowExecution.RunId})
			}
		}
	}
	return list
}

// TestServerLargeMap performs a map of 10,000 items, and reports the length of the run's histories.
func TestServerLargeMap(t *testing.T) {
	c := dial(t)
	items := make([]string, 10_000)
	for i := range items {
		items[i] = fmt.Sprint("item ", i)
	}
	blobs := store.Dir(t.TempDir())
	g := new(kahn.Graph).Add(kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": items}})
	w := serve(t, c, plan(t, g), Options{Blobs: blobs, Step: func(_ context.Context, s *kahn.Step) (any, error) { return kahn.Param[string](s, "item") }})
	w.Blobs = blobs
	began := time.Now()
	run, err := Start(t.Context(), c, w, nil)
	require.NoError(t, err)
	first := run.get.GetRunID()
	res, err := run.Wait(t.Context())
	require.NoError(t, err)
	took := time.Since(began)
	list := res.Output().([]any)
	require.Len(t, list, len(items))
	for i, v := range list {
		require.Equal(t, items[i], v)
	}
	events, of := 0, map[enums.EventType]int{}
	all := histories(t, c, w.ID, first)
	for _, h := range all {
		events += len(h.Events)
		for _, e := range h.Events {
			of[e.EventType]++
		}
	}
	t.Logf("%v, %v an item; %d events in %d executions; %d activities and %d child workflows", took.Round(time.Millisecond), (took / 10_000).Round(time.Microsecond), events, len(all),
		of[enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED], of[enums.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED])
	require.Less(t, events, 10_000/2)
}
