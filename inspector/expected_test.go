package inspector

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

func TestLateAfter(t *testing.T) {
	t.Parallel()
	for estimate, want := range map[time.Duration]time.Duration{
		0: time.Second, time.Millisecond: time.Second + time.Millisecond, time.Second: 2 * time.Second, time.Minute: 2 * time.Minute, 1<<63 - 1: 1<<63 - 1,
	} {
		require.Equal(t, want, lateAfter(estimate), "%v", estimate)
	}
}

// taught returns a History of one workflow, in which the nodes took as long as given.
func taught(t *testing.T, workflow string, nodes map[string]time.Duration) *kahn.History {
	t.Helper()
	type node struct {
		Mean time.Duration `json:"mean_ns"`
	}
	means := map[string]node{}
	for path, d := range nodes {
		means[path] = node{d}
	}
	data, err := json.Marshal(map[string]any{"workflows": []any{map[string]any{"name": workflow, "nodes": means}}})
	require.NoError(t, err)
	h := &kahn.History{}
	require.NoError(t, json.Unmarshal(data, h))
	return h
}

// A live run with a History shows how long it and its nodes will take, and which nodes are late. Without a History it shows nothing.
func TestExpected(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	stays := func(ctx context.Context, _ *kahn.Step) (any, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	}
	g := (&kahn.Graph{Name: "nightly"}).Add(kahn.Node{ID: "load"}, kahn.Node{ID: "late", Label: "Count the rows"}, kahn.Node{ID: "report", After: []string{"load", "late"}})
	asks := (&kahn.Graph{Name: "nightly"}).Add(kahn.Node{ID: "load"}, kahn.Node{ID: "ask", Kind: kahn.KindGate, After: []string{"load"}})
	rn := &kahn.Runner{}
	h := taught(t, "nightly", map[string]time.Duration{"load": time.Hour, "late": 0, "report": 30 * time.Minute})
	for id, opts := range map[string][]kahn.Option{"known": {h}, "unknown": nil} {
		_, err := rn.Start(t.Context(), g, stays, append(opts, kahn.RunID(id))...)
		require.NoError(t, err)
	}
	waiting, err := rn.Start(t.Context(), asks, stays, h, kahn.RunID("waiting"))
	require.NoError(t, err)
	for _, id := range []string{"known", "unknown"} {
		run, _ := rn.Run(id)
		for _, path := range []string{"load", "late"} {
			_, err := run.WaitFor(t.Context(), path, kahn.Running)
			require.NoError(t, err)
		}
	}
	_, err = waiting.WaitFor(t.Context(), "load", kahn.Running)
	require.NoError(t, err)
	d := &desk{t: t, rn: rn, audit: &syncBuffer{}}
	d.server = httptest.NewServer(http.StripPrefix("/debug/kahn", Handler(free(Options{Runner: rn}))))
	t.Cleanup(d.server.Close)
	t.Cleanup(func() { _ = rn.Shutdown(context.Background()) })
	const minute = 60_000.0

	row := get[runRow](d, "api/v1/run", "run", "known")
	require.NotNil(t, row.Remaining)
	require.InDelta(t, 90*minute, *row.Remaining, minute)
	require.False(t, row.RemainingWaits)
	require.NotNil(t, row.Late, "the step late is expected to take no time")
	require.Positive(t, *row.Late)
	require.Equal(t, []string{"late", "Count the rows"}, []string{row.LateNode, row.LateLabel})
	require.Zero(t, *row.LateEstimate)
	require.Equal(t, &runningNode{Path: "load"}, row.Running)
	late := *row.Late
	row = get[runRow](d, "api/v1/run", "run", "waiting")
	require.InDelta(t, 60*minute, *row.Remaining, minute)
	require.True(t, row.RemainingWaits)
	require.Nil(t, row.Late)
	require.Empty(t, row.LateNode)

	reply := get[stateReply](d, "api/v1/state", "run", "known")
	require.Len(t, reply.Late, 2)
	require.InDelta(t, 120*minute, reply.Late[0], minute)
	require.Less(t, reply.Late[1], 1001.0)
	spans := get[timelineReply](d, "api/v1/timeline", "run", "known")
	require.InDelta(t, 90*minute, *spans.Remaining, minute)
	require.GreaterOrEqual(t, *spans.Late, late)
	require.Equal(t, "late", spans.LateNode)
	for _, s := range spans.Spans {
		want := map[string]float64{"load": 120 * minute, "late": 1000}[s.Path]
		require.InDelta(t, s.Start+want, *s.Late, 0.01, s.Path)
	}
	require.Nil(t, get[timelineReply](d, "api/v1/timeline", "run", "waiting").Remaining)

	require.Eventually(t, func() bool { return get[nodeReply](d, "api/v1/node", "run", "known", "path", "late").Late }, 10*time.Second, 50*time.Millisecond)
	nodes := get[nodesReply](d, "api/v1/nodes", "run", "known").Nodes
	require.Equal(t, []float64{60 * minute, 0, 30 * minute}, []float64{*nodes[0].Estimate, *nodes[1].Estimate, *nodes[2].Estimate})
	require.Equal(t, []bool{false, true, false}, []bool{nodes[0].Late, nodes[1].Late, nodes[2].Late})
	require.Negative(t, get[stateReply](d, "api/v1/state", "run", "known").Late[1])

	for _, path := range []string{"run", "state", "nodes", "timeline"} {
		_, body, _ := d.ask("GET", "api/v1/"+path+"?run=unknown", "")
		require.NotEmpty(t, body, path)
		for _, name := range []string{"remaining", "estimate_ms", "late_in_ms", "late_ms", `"late":`, "late_"} {
			require.False(t, strings.Contains(string(body), name), "%s has %s: %s", path, name, body)
		}
	}
}
