package inspector

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// died stores a run in the state that it has when its process dies: one node has ended, and the step of another is running.
func died(memory *store.Memory, id string, g *kahn.Graph, atWork chan struct{}) error {
	own := &store.Memory{}
	run, err := kahn.Start(context.Background(), g, nil, kahn.RunID(id), kahn.Durable(own))
	if err != nil {
		return err
	}
	<-atWork
	row, err := own.Load(context.Background(), id)
	if err == nil {
		err = memory.Insert(context.Background(), row)
	}
	_ = run.Cancel()
	_, _ = run.Wait()
	return err
}

// works returns a graph with a step that closes atWork and then waits; if atWork is nil, the step ends at once.
func works(atWork chan struct{}) *kahn.Graph {
	return (&kahn.Graph{Name: "works"}).Add(
		kahn.Node{ID: "first", Do: func(context.Context, *kahn.Step) (any, error) { return 1, nil }},
		kahn.Node{ID: "long", After: []string{"first"}, Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
			if atWork == nil {
				return 2, nil
			}
			close(atWork)
			<-ctx.Done()
			return nil, ctx.Err()
		}},
	)
}

// The response for a run says that the run's process has died, and since when. The run's duration does not grow, and this process can continue
// the run.
func TestProcessThatDied(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), nil)
	atWork := make(chan struct{})
	require.NoError(t, died(x.memory, "died", works(atWork), atWork))
	g := works(nil)
	plan, err := g.Compile()
	require.NoError(t, err)
	d := serveRunner(t, x.rn, Options{Store: x.memory, Workflows: []Workflow{{Plan: plan, Perform: func(ctx context.Context, opts ...kahn.Option) (*kahn.Run, error) {
		return x.rn.Start(ctx, g, nil, opts...)
	}}}})
	row := get[runRow](d, "api/v1/run", "run", "died")
	require.Equal(t, kahn.RunRunning, row.Status)
	require.Equal(t, []string{"redrive", "cancel"}, slices.DeleteFunc(row.Actions, func(a string) bool { return a == "fork" }))
	heard, err := time.Parse(time.RFC3339Nano, row.Gone)
	require.NoError(t, err)
	require.Empty(t, row.Note, "a note beside Gone and the actions would say again that the run has no process")
	require.True(t, row.CanContinue)
	started, err := time.Parse(time.RFC3339Nano, row.Started)
	require.NoError(t, err)
	require.InDelta(t, heard.Sub(started).Seconds()*1000, *row.Millis, 0.001)
	long := get[nodeReply](d, "api/v1/node", "run", "died", "path", "long")
	require.Equal(t, []any{kahn.Running, row.Gone}, []any{long.Status, long.Gone})
	for _, r := range get[storedReply](d, "api/v1/stored").Runs {
		require.Equal(t, r.ID == "died", r.Gone != "", r.ID)
	}

	lease, _, err := x.memory.Acquire(t.Context(), "died", "another process", time.Hour)
	require.NoError(t, err)
	held := serveRunner(t, x.rn, Options{Store: x.memory, Workflows: []Workflow{{Plan: plan, Perform: func(context.Context, ...kahn.Option) (*kahn.Run, error) { return nil, nil }}}})
	row = get[runRow](held, "api/v1/run", "run", "died")
	require.Equal(t, []any{"", "Another process performs the run."}, []any{row.Gone, row.Note})
	require.NotContains(t, row.Actions, "redrive")
	require.Nil(t, row.Millis, "it goes on")
	require.NoError(t, x.memory.Release(t.Context(), lease))

	d.post("api/v1/redrive", "{}", "run", "died")
	run, ok := x.rn.Run("died")
	require.True(t, ok)
	_, err = run.Wait()
	require.NoError(t, err)
	require.NotNil(t, get[runRow](d, "api/v1/run", "run", "died").Millis)
}

// short returns a graph with a step that fails at once, and a cleanup node after it.
func short() *kahn.Graph {
	return (&kahn.Graph{Name: "short"}).Add(
		kahn.Node{ID: "breaks", Do: func(context.Context, *kahn.Step) (any, error) { return nil, errBroken }},
		kahn.Node{ID: "tidy", After: []string{"breaks"}, Cleanup: true, Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }},
	)
}

// A run of less than a millisecond has a duration, both in the Runner and in the store. If a cleanup node has run, its edges count as taken.
func TestShortRuns(t *testing.T) {
	t.Parallel()
	g := short()
	plan, err := g.Compile()
	require.NoError(t, err)
	memory, rn := &store.Memory{}, &kahn.Runner{}
	run, err := rn.Start(t.Context(), g, nil, kahn.RunID("live"))
	require.NoError(t, err)
	_, _ = run.Wait()
	_, err = kahn.Execute(t.Context(), g, nil, kahn.RunID("stored"), kahn.Durable(memory))
	require.ErrorIs(t, err, errBroken)
	d := serveRunner(t, rn, Options{Store: memory, Workflows: []Workflow{{Plan: plan}}})
	for _, id := range []string{"live", "stored"} {
		row := get[runRow](d, "api/v1/run", "run", id)
		require.NotNil(t, row.Millis, id)
		require.Positive(t, *row.Millis, id)
		tidy := get[nodeReply](d, "api/v1/node", "run", id, "path", "tidy")
		require.Equal(t, []neighbour{{Path: "breaks", Status: kahn.Failed, Edge: "taken"}}, tidy.Upstream, id)
		require.Equal(t, "taken", get[nodeReply](d, "api/v1/node", "run", id, "path", "breaks").Following[0].Edge, id)
		require.Equal(t, &value{JSON: json.RawMessage("null"), Type: "null", Bytes: 4}, tidy.Output, id)
	}
}

// If a gate has no info, the response has none, even for a stored run.
func TestGateWithoutInfo(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), nil)
	require.Nil(t, get[gatesReply](x.desk, "api/v1/gates").Gates[0].Info)
	require.Nil(t, get[nodeReply](x.desk, "api/v1/node", "run", "order 17", "path", "review/approve").Gate.Info)
}
