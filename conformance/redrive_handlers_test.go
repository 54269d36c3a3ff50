package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// shopOf returns a graph in which shipping fails, and the payment is refunded.
func shopOf() *kahn.Graph {
	return graph(kahn.Node{ID: "charge"}, kahn.Node{ID: "ship", After: []string{"charge"}},
		kahn.Node{ID: "refund", In: []kahn.Edge{{From: "ship", On: kahn.OnFailure}, {From: "charge", Param: "receipt"}}},
		kahn.Node{ID: "mail", After: []string{"refund"}})
}

// broken returns a step function that fails for the named nodes.
func broken(bad ...string) kahn.StepFunc {
	return func(_ context.Context, s *kahn.Step) (any, error) {
		if slices.Contains(bad, s.ID()) {
			return nil, errors.New(s.ID() + " is broken")
		}
		return s.ID(), nil
	}
}

// TestRedriveHandlers: a redrive is refused if it would repeat a handled failure. The rows list which failures count as handled.
func TestRedriveHandlers(t *testing.T) {
	reads := func(id string) func(kahn.View) (bool, error) {
		return func(v kahn.View) (bool, error) { return v.Status(id) == kahn.Failed, nil }
	}
	inside := func(n kahn.Node) *kahn.Graph {
		n.Sub = shopOf()
		return graph(kahn.Node{ID: "before"}, n, kahn.Node{ID: "after", After: []string{n.ID}})
	}
	for name, tt := range map[string]struct {
		g     *kahn.Graph
		bad   []string
		nodes []string
		opts  []kahn.Option
		want  string // text of the error; "" if the redrive is performed
		runs  string // the nodes that run again
	}{
		"a catch edge":                 {g: shopOf(), bad: []string{"ship"}, want: `"refund" has run because of "ship"`},
		"named":                        {g: shopOf(), bad: []string{"ship"}, nodes: []string{"ship"}, want: `"refund" has run because of "ship"`},
		"named from the start":         {g: shopOf(), bad: []string{"ship"}, nodes: []string{"charge"}, want: `"refund" has run because of "ship"`},
		"the handler itself":           {g: shopOf(), bad: []string{"ship"}, nodes: []string{"refund"}, want: `"refund" has run because of "ship"`},
		"kept":                         {g: shopOf(), bad: []string{"ship"}, opts: []kahn.Option{kahn.KeepDescendants}, want: `"refund" has run because of "ship", and would be kept`},
		"despite":                      {g: shopOf(), bad: []string{"ship"}, opts: []kahn.Option{kahn.DespiteHandlers}, runs: "ship"},
		"what follows the handler":     {g: shopOf(), bad: []string{"ship", "mail"}, nodes: []string{"mail"}, runs: "mail"},
		"a handler that failed, too":   {g: shopOf(), bad: []string{"ship", "refund"}, runs: "ship"},
		"nothing was handled":          {g: shopOf(), bad: []string{"charge"}, runs: "charge ship"},
		"a catch edge of another kind": {g: graph(kahn.Node{ID: "a"}, kahn.Node{ID: "h", In: []kahn.Edge{{From: "a", On: kahn.OnFailure, Causes: []kahn.CauseKind{kahn.CauseTimeout}}}}), bad: []string{"a"}, runs: "a"},
		"OneFailed": {g: graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "h", Join: kahn.OneFailed, After: []string{"a", "b"}}),
			bad: []string{"a"}, want: `"h" has run because of "a"`},
		"AllFailed": {g: graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "h", Join: kahn.AllFailed, After: []string{"a", "b"}}),
			bad: []string{"a", "b"}, want: `"h" has run because of "a" and 1 more`},
		"AllDone is no handler": {g: graph(kahn.Node{ID: "a"}, kahn.Node{ID: "h", Join: kahn.AllDone, After: []string{"a"}}), bad: []string{"a"}, runs: "a h"},
		"a cleanup node, and the end": {g: graph(kahn.Node{ID: "a"}, kahn.Node{ID: "h", Cleanup: true, In: []kahn.Edge{{From: "a", On: kahn.OnFailure}}},
			kahn.Node{ID: "end", Kind: kahn.KindEnd, In: []kahn.Edge{{From: "a", On: kahn.OnFailure}}}), bad: []string{"a"}, runs: "a end"},
		"tolerated, and caught": {g: graph(kahn.Node{ID: "a", ContinueOnFail: true}, kahn.Node{ID: "h", In: []kahn.Edge{{From: "a", On: kahn.OnFailure}}}),
			bad: []string{"a"}, want: `"h" has run because of "a"`},
		"a boundary": {g: graph(kahn.Node{ID: "a"}, kahn.If("bad?", reads("a"), "a"), kahn.Node{ID: "h", In: []kahn.Edge{{From: "bad?", Label: "true"}}},
			kahn.Node{ID: "more", After: []string{"h"}}, kahn.Node{ID: "no", In: []kahn.Edge{{From: "bad?", Label: "false"}}}),
			bad: []string{"a"}, want: `"h" has run because of "a"; "more" has run because of "a"`},
		"a boundary far away": {g: graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}}, kahn.If("bad?", reads("a"), "b"),
			kahn.Node{ID: "h", In: []kahn.Edge{{From: "bad?", Label: "true"}}}), bad: []string{"a"}, want: `"h" has run because of "a"`},
		"a boundary that asks for another node": {g: graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.If("good?", func(v kahn.View) (bool, error) { return v.Output("b") != nil, nil }, "a", "b"),
			kahn.Node{ID: "h", In: []kahn.Edge{{From: "good?", Label: "true"}}}), bad: []string{"a"}, runs: "a h"},
		"another way in": {g: graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.If("bad?", reads("a"), "a"), kahn.Node{ID: "x", In: []kahn.Edge{{From: "bad?", Label: "true"}}},
			kahn.Node{ID: "both", After: []string{"x", "b"}}), bad: []string{"a"}, nodes: []string{"both"}, runs: "both"},
		"a side edge is no way in": {g: graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.If("bad?", reads("a"), "a"),
			kahn.Node{ID: "h", In: []kahn.Edge{{From: "bad?", Label: "true"}, {From: "b", Param: "b"}}}), bad: []string{"a"}, want: `"h" has run because of "a"`},
		"a condition in a branch": {g: graph(kahn.Node{ID: "a"}, kahn.If("bad?", reads("a"), "a"), kahn.Node{ID: "h", Kind: kahn.KindCondition, In: []kahn.Edge{{From: "bad?", Label: "true"}}},
			kahn.Node{ID: "x", In: []kahn.Edge{{From: "h", Label: "h"}}}), bad: []string{"a"}, want: `"h" has run because of "a"; "x" has run because of "a"`},
		"inside of a sub-graph":              {g: inside(kahn.Node{ID: "S"}), bad: []string{"ship"}, nodes: []string{"S"}, want: `"S/refund" has run because of "S/ship"`},
		"inside of a failed sub-graph":       {g: inside(kahn.Node{ID: "S"}), bad: []string{"ship", "mail"}, want: `"S/refund" has run because of "S/ship"`},
		"inside of a composite that follows": {g: inside(kahn.Node{ID: "S"}), bad: []string{"ship"}, nodes: []string{"before"}, runs: "before"},
		"beside a handler in a completed sub-graph": {g: graph(kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "ship"}, kahn.Node{ID: "refund", In: []kahn.Edge{{From: "ship", On: kahn.OnFailure}}}, kahn.Node{ID: "count"})}),
			bad: []string{"ship"}, nodes: []string{"S/count"}, runs: "S/count"},
		"inside of items": {g: inside(kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []int{1, 2}}}), bad: []string{"ship"}, nodes: []string{"M"},
			want: `"M[0]/refund" has run because of "M[0]/ship"; "M[1]/refund"`},
		"inside of a loop": {g: inside(kahn.Node{ID: "L", Loop: &kahn.Loop{MaxIterations: 2, OnLimit: kahn.LoopStop, While: func(kahn.View) (bool, error) { return true, nil }}}),
			bad: []string{"ship"}, nodes: []string{"L"}, want: `"L#2/refund" has run because of "L#2/ship"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, err := kahn.Execute(t.Context(), tt.g, broken(tt.bad...), kahn.RunID("r"))
			require.NotNil(t, first, err)
			m := &store.Memory{}
			_, err = kahn.Execute(t.Context(), tt.g, broken(tt.bad...), kahn.RunID("r"), kahn.Durable(m))
			if err != nil {
				var failed *kahn.RunError
				require.ErrorAs(t, err, &failed)
			}
			text, err := json.Marshal(first.Snapshot())
			require.NoError(t, err)
			var read kahn.Snapshot
			require.NoError(t, json.Unmarshal(text, &read))
			for from, opts := range map[string][]kahn.Option{
				"a snapshot": {kahn.Redrive(first.Snapshot(), tt.nodes)}, "a file": {kahn.Redrive(&read, tt.nodes)}, "a store": {kahn.Redrive(nil, tt.nodes), kahn.Durable(m), kahn.RunID("r")},
			} {
				var again []string
				res, err := kahn.Execute(t.Context(), tt.g, func(_ context.Context, s *kahn.Step) (any, error) {
					again = append(again, s.Path())
					return s.ID(), nil
				}, slices.Concat(opts, tt.opts, []kahn.Option{kahn.Limit(1)})...)
				if tt.want != "" {
					require.ErrorIs(t, err, kahn.ErrHandlers, from)
					require.ErrorContains(t, err, tt.want, from)
					require.Nil(t, res, from)
					require.Empty(t, again, from)
					continue
				}
				require.NoError(t, err, from)
				require.Equal(t, tt.runs, strings.Join(again, " "), from)
			}
			if tt.opts == nil {
				p, err := tt.g.Compile()
				require.NoError(t, err)
				list, err := kahn.RedrivePreview(p, &read, tt.nodes)
				require.NotEmpty(t, list)
				require.Equal(t, tt.want != "", errors.Is(err, kahn.ErrHandlers))
				if c, err := kahn.NewCoordinator(p, time.Now(), kahn.Redrive(&read, tt.nodes)); tt.want != "" {
					require.ErrorIs(t, err, kahn.ErrHandlers)
					require.Nil(t, c)
				}
			}
		})
	}
}

// A fork is refused if it would keep nodes that precede a handled failure. If it keeps no such node, the fork is allowed.
func TestForkHandlers(t *testing.T) {
	t.Parallel()
	m := &store.Memory{}
	old, err := kahn.Execute(t.Context(), shopOf(), broken("ship"), kahn.Durable(m), kahn.RunID("r"))
	require.NoError(t, err)
	s := old.Snapshot()
	p := compiled(t, shopOf())
	list, err := kahn.ForkPreview(p, s, nil)
	require.ErrorIs(t, err, kahn.ErrHandlers)
	require.Equal(t, []string{"ship", "refund", "mail"}, list)
	_, err = kahn.Execute(t.Context(), shopOf(), broken(), kahn.Fork(s), kahn.RunID("f"), kahn.Durable(m))
	require.ErrorIs(t, err, kahn.ErrHandlers)
	require.ErrorContains(t, err, `"refund" has run because of "ship"`)
	_, err = m.Load(t.Context(), "f")
	require.ErrorIs(t, err, store.ErrUnknownRun)
	res, err := kahn.Execute(t.Context(), shopOf(), broken(), kahn.Fork(s), kahn.RunID("f"), kahn.Durable(m), kahn.DespiteHandlers)
	require.NoError(t, err)
	require.Equal(t, kahn.Skipped, status(res, "refund"))

	_, err = kahn.ForkPreview(p, s, []string{"charge"})
	require.NoError(t, err)
	res, err = kahn.Execute(t.Context(), shopOf(), broken(), kahn.Fork(s, "charge"), kahn.RunID("g"))
	require.NoError(t, err)
	require.Equal(t, kahn.Completed, status(res, "ship"))
}

// A fork is refused if it would keep the nodes before a composite and repeat a handled failure inside, even if it keeps no node inside.
func TestForkHandlersInside(t *testing.T) {
	t.Parallel()
	inner := graph(kahn.Node{ID: "ship"}, kahn.Node{ID: "refund", In: []kahn.Edge{{From: "ship", On: kahn.OnFailure}}}, kahn.Node{ID: "mail", After: []string{"refund"}})
	g := graph(kahn.Node{ID: "before"}, kahn.Node{ID: "S", After: []string{"before"}, Sub: inner})
	old, err := kahn.Execute(t.Context(), g, broken("ship", "mail"))
	require.Error(t, err)
	_, err = kahn.ForkPreview(compiled(t, g), old.Snapshot(), nil)
	require.ErrorIs(t, err, kahn.ErrHandlers)
	require.ErrorContains(t, err, `"S/refund" has run because of "S/ship"`)
	_, err = kahn.ForkPreview(compiled(t, g), old.Snapshot(), []string{"before"})
	require.NoError(t, err, "nothing is kept")
}

func status(res *kahn.Result, id string) kahn.Status {
	n, _ := res.Node(id)
	return n.Status
}

// A Runner performs a redrive that repeats a handled failure only with the option DespiteHandlers. The option does not affect other runs.
func TestRedriveHandlersOfRunner(t *testing.T) {
	t.Parallel()
	healed := false
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		if healed {
			return s.ID(), nil
		}
		return broken("ship")(ctx, s)
	}
	_, err := kahn.Execute(t.Context(), shopOf(), step, kahn.DespiteHandlers)
	require.ErrorIs(t, err, kahn.ErrBadOption)
	m := &store.Memory{}
	for name, opts := range map[string][]kahn.Option{"in memory": nil, "in a store": {kahn.Durable(m)}} {
		healed = false
		rn := &kahn.Runner{Options: opts}
		_, err := rn.Execute(t.Context(), shopOf(), step, kahn.RunID(name))
		require.NoError(t, err)
		healed = true
		_, err = rn.Redrive(t.Context(), name, nil, kahn.Request{})
		require.ErrorIs(t, err, kahn.ErrHandlers)
		for range 2 { // the second time no node has to be repeated, and the option of the first call does not apply
			run, err := rn.Redrive(t.Context(), name, []string{"ship"}, kahn.Request{Actor: "ann"}, kahn.DespiteHandlers)
			require.NoError(t, err)
			res, err := run.Wait()
			require.NoError(t, err)
			require.Equal(t, kahn.Skipped, status(res, "refund"))
			require.Equal(t, "ann", res.RedriveRequest.Actor)
		}
	}
}

// Snapshots and stores record which nodes a condition has read. Runs of older versions lack this record, so all predecessors of the condition count
// as read.
func TestRedriveHandlersAsked(t *testing.T) {
	t.Parallel()
	g := graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.If("good?", func(v kahn.View) (bool, error) { return v.Output("b") != nil, nil }, "a", "b"),
		kahn.Node{ID: "h", In: []kahn.Edge{{From: "good?", Label: "true"}}}, kahn.Node{ID: "wait", Kind: kahn.KindGate, After: []string{"h"}})
	m := &store.Memory{}
	_, err := kahn.Execute(t.Context(), g, broken("a"), kahn.Durable(m), kahn.RunID("r"))
	require.NoError(t, err)
	_, err = kahn.Execute(t.Context(), g, broken("a"), kahn.Durable(m), kahn.RunID("r"), kahn.EarlySignals(map[string]any{"wait": true})) // another life
	require.NoError(t, err)
	s, err := kahn.ReadSnapshot(t.Context(), m, "r")
	require.NoError(t, err)
	_, err = kahn.RedrivePreview(compiled(t, g), s, nil)
	require.NoError(t, err, "it has not asked for a")

	text, err := json.Marshal(s)
	require.NoError(t, err)
	require.Contains(t, string(text), `"asked":[]`)
	var older kahn.Snapshot
	require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(string(text), `"asked":[],`, "")), &older))
	_, err = kahn.RedrivePreview(compiled(t, g), &older, nil)
	require.ErrorIs(t, err, kahn.ErrHandlers)
}

// After a restart of the process, the graph that a step returned is unknown. Failures in this graph count as handled only if the step's node
// completed.
func TestRedriveHandlersExpanded(t *testing.T) {
	t.Parallel()
	g := graph(kahn.Node{ID: "x"}, kahn.Node{ID: "after", After: []string{"x"}})
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "x" {
			return nil, kahn.Expand(shopOf(), nil, nil)
		}
		return broken("ship")(ctx, s)
	}
	res, err := kahn.Execute(t.Context(), g, step)
	require.NoError(t, err)
	text, err := json.Marshal(res.Snapshot())
	require.NoError(t, err)
	var read kahn.Snapshot
	require.NoError(t, json.Unmarshal(text, &read))
	_, err = kahn.RedrivePreview(compiled(t, g), res.Snapshot(), []string{"x"})
	require.ErrorContains(t, err, `"x/refund" has run because of "x/ship"`)
	_, err = kahn.RedrivePreview(compiled(t, g), &read, []string{"x"})
	require.ErrorContains(t, err, `"x" has run because of "x/ship"`)
	_, err = kahn.RedrivePreview(compiled(t, g), &read, []string{"after"})
	require.NoError(t, err)
}
