package inspector

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestHit requires that the panel, the table, the log and the timeline say which outputs come from an earlier run, and from which run. Clients
// that may not know of that run do not see its id.
func TestHit(t *testing.T) {
	t.Parallel()
	memory := &store.Memory{}
	g := func() *kahn.Graph {
		return (&kahn.Graph{Name: "cached"}).Add(
			kahn.Node{ID: "load", Memo: "v1", Do: func(context.Context, *kahn.Step) (any, error) { return "rows", nil }},
			kahn.Node{ID: "send", After: []string{"load"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }},
		)
	}
	memo := &kahn.Memo{}
	d := newDesk(t, func(o *Options) {
		for _, id := range []string{"first", "second"} {
			run, err := o.Runner.Start(t.Context(), g(), nil, memo, kahn.RunID(id), kahn.Describe(store.Spec{Labels: map[string]string{"of": id}}))
			require.NoError(t, err)
			_, _ = run.Wait()
		}
		run, err := kahn.Start(t.Context(), g(), nil, memo, kahn.RunID("third"), kahn.Durable(memory))
		require.NoError(t, err)
		_, _ = run.Wait()
		plan, err := g().Compile()
		require.NoError(t, err)
		o.Store, o.Workflows = memory, []Workflow{{Plan: plan}}
	})
	for _, id := range []string{"second", "third"} {
		node := get[nodeReply](d, "api/v1/node", "run", id, "path", "load")
		require.Equal(t, []string{"memoized"}, node.Flags)
		require.Equal(t, "first", node.Hit.Run)
		require.NotEmpty(t, node.Hit.At)
		rows := get[nodesReply](d, "api/v1/nodes", "run", id).Nodes
		require.Equal(t, []bool{true, false}, []bool{rows[0].Memoized, rows[1].Memoized})
		require.Equal(t, 1, get[timelineReply](d, "api/v1/timeline", "run", id).Memoized)
	}
	require.Nil(t, get[nodeReply](d, "api/v1/node", "run", "first", "path", "load").Hit)
	require.Zero(t, get[timelineReply](d, "api/v1/timeline", "run", "first").Memoized)
	lines := get[logReply](d, "api/v1/log", "run", "second", "path", "load").Lines
	require.True(t, strings.HasPrefix(lines[len(lines)-1].Text, "completed, with the output of run first of "), lines)

	hidden := newDesk(t, func(o *Options) {
		o.Runner = d.rn
		o.Visible = func(_ *http.Request, run RunInfo) bool { return run.ID != "first" }
	})
	require.Equal(t, "", get[nodeReply](hidden, "api/v1/node", "run", "second", "path", "load").Hit.Run)
	code, body, _ := hidden.ask(http.MethodGet, "api/v1/log?run=second", "")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, string(body), "with the output of an earlier run of ")
	require.NotContains(t, string(body), "run first")
}
