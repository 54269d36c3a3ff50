package conformance_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// keyFrom returns a node that takes its key from a parameter.
func keyFrom(id, from string, params map[string]any) kahn.Node {
	return kahn.Node{ID: id, KeyFrom: from, Params: params}
}

func host(value any) map[string]any { return map[string]any{"host": value} }

// shares checks that nodes that need the same slot began one after the other. The order may vary, since their checks end in any order.
func shares(t *testing.T, r *kahn.Result, begun time.Time, apart time.Duration, ids ...string) {
	t.Helper()
	var at, want []time.Duration
	for i, id := range ids {
		x, ok := r.Node(id)
		require.True(t, ok, id)
		at, want = append(at, x.Start.Sub(begun)), append(want, time.Duration(i)*apart)
	}
	require.ElementsMatch(t, want, at, "%v", ids)
}

// The values of KeyFrom limit nodes as keys do, at any depth, for any kind of scalar.
func TestKeyFrom(t *testing.T) {
	t.Parallel()
	second := takes(time.Second)
	inBubble(t, "values of parameters", func(t *testing.T) {
		begun := time.Now()
		r := try(t, graph(keyFrom("a", "host", host("x")), keyFrom("b", "host", host("y")), keyFrom("c", "host", host("x")), kahn.Node{ID: "d", Key: "x"}), second, kahn.KeyLimit(1))
		shares(t, r.Result, begun, time.Second, "a", "c", "d")
		shares(t, r.Result, begun, time.Second, "b")
	})
	inBubble(t, "by priority", func(t *testing.T) {
		a, b, c := keyFrom("a", "host", host("x")), keyFrom("b", "host", host("x")), keyFrom("c", "host", host("x"))
		a.After, b.After, c.After, c.Priority = []string{"from"}, []string{"from"}, []string{"from"}, 1
		from := kahn.Node{ID: "from", Do: takes(500 * ms)} // all three are ready while d holds the slot
		try(t, graph(from, a, b, c, kahn.Node{ID: "d", Key: "x"}), second, kahn.KeyLimit(1), kahn.Limit(3)).expectSorted("from@0s d@0s c@1s a@2s b@3s")
	})
	inBubble(t, "values of edges, paths and root inputs", func(t *testing.T) {
		g := graph(kahn.Node{ID: "from", Do: func(context.Context, *kahn.Step) (any, error) {
			return map[string]any{"order": map[string]any{"customer": 7}}, nil
		}})
		g.Inputs = []kahn.Input{{Name: "tenant"}, {Name: "a.b", Optional: true}}
		g.Add(kahn.Node{ID: "a", KeyFrom: "in.order.customer", In: []kahn.Edge{{From: "from", Param: "in"}}},
			kahn.Node{ID: "b", KeyFrom: "tenant", After: []string{"from"}},
			kahn.Node{ID: "c", KeyFrom: "a.b", After: []string{"from"}},
			kahn.Node{ID: "d", Key: "7", After: []string{"from"}})
		for _, row := range []struct {
			inputs map[string]any
			ids    []string // nodes that share a key
			alone  []string
		}{
			{map[string]any{"tenant": 7.0}, []string{"a", "b", "d"}, []string{"c"}},
			{map[string]any{"tenant": "", "a.b": "7"}, []string{"a", "c", "d"}, []string{"b"}},
			{map[string]any{"tenant": true, "a.b": nil}, []string{"a", "d"}, []string{"b", "c"}},
		} {
			begun := time.Now()
			r := try(t, g, second, kahn.KeyLimit(1), kahn.Inputs(row.inputs))
			shares(t, r.Result, begun, time.Second, row.ids...)
			for _, id := range row.alone {
				shares(t, r.Result, begun, time.Second, id)
			}
		}
	})
	inBubble(t, "items", func(t *testing.T) {
		m := keyFrom("M", "item.host", map[string]any{"list": []any{host("x"), host("x"), host("y"), host("")}})
		m.Map = &kahn.Map{Over: "list"}
		try(t, graph(m), second, kahn.KeyLimit(1)).expectSorted("M@0s M[0]@0s M[2]@0s M[3]@0s M[1]@1s")
		m.KeyFrom, m.Params = "host", map[string]any{"list": []any{1, 2}, "host": "x"}
		require.Equal(t, 3*time.Second, try(t, graph(m, keyFrom("N", "host", host("x"))), second, kahn.KeyLimit(1)).Duration)
	})
	inBubble(t, "at any depth", func(t *testing.T) {
		inner := graph(keyFrom("x", "tenant", nil))
		g := graph(keyFrom("a", "tenant", nil), kahn.Node{ID: "S", Sub: inner}, kahn.Node{ID: "L", Sub: inner, Loop: &kahn.Loop{MaxIterations: 2, While: func(v kahn.View) (bool, error) { i, _ := v.Root("iteration"); return i != 2, nil }}})
		for _, limit := range []int{0, 5} {
			r := try(t, g, second, kahn.KeyLimit(1), kahn.Limit(limit), kahn.Inputs(map[string]any{"tenant": "t"}))
			require.Equal(t, 4*time.Second, r.Duration, eventText(r.events))
		}
	})
	inBubble(t, "a rate", func(t *testing.T) {
		begun := time.Now()
		r := try(t, graph(keyFrom("a", "host", host(1)), keyFrom("b", "host", host("2")), keyFrom("c", "host", host("1"))), nop, kahn.KeyRate(kahn.Rate{Starts: 1, Per: time.Minute}))
		shares(t, r.Result, begun, time.Minute, "a", "c")
		shares(t, r.Result, begun, time.Minute, "b")
	})
	inBubble(t, "of all runs", func(t *testing.T) {
		rn := &kahn.Runner{KeyLimit: 2}
		g := graph(keyFrom("a", "tenant", nil))
		var runs []*kahn.Run
		for i, tenant := range []string{"acme", "acme", "acme", "other"} {
			run, err := rn.Start(t.Context(), g, second, kahn.RunID(fmt.Sprint("run-", i)), kahn.Inputs(map[string]any{"tenant": tenant}))
			require.NoError(t, err)
			runs = append(runs, run)
			synctest.Wait()
		}
		y, err := runs[2].Why("a")
		require.NoError(t, err)
		require.Equal(t, kahn.Bound{Scope: kahn.BoundRunnerKey, Name: "acme", Limit: 2, Used: 2}, y.Bound)
		require.Equal(t, []string{"run-0", "run-1"}, y.Runs)
		require.Equal(t, "it waits for a slot of the key acme in all runs: 2 of 2, held by run run-0, run-1", y.String())
		begun := time.Now()
		for _, run := range runs {
			_, err := run.Wait()
			require.NoError(t, err)
		}
		require.Equal(t, 2*time.Second, time.Since(begun))
	})
	inBubble(t, "why", func(t *testing.T) {
		b := keyFrom("b", "host", host("x"))
		b.After = []string{"from"}
		run, err := kahn.Start(t.Context(), graph(keyFrom("a", "host", host("x")), kahn.Node{ID: "from", Do: takes(500 * ms)}, b), second, kahn.KeyLimit(1))
		require.NoError(t, err)
		time.Sleep(600 * ms)
		y, err := run.Why("b")
		require.NoError(t, err)
		require.Equal(t, "it waits for a slot of the key x, held by a", y.String())
		_, _ = run.Wait()
		x, err := run.Node("b")
		require.NoError(t, err)
		require.Equal(t, "x", x.Key)
	})
}

// If a value cannot be a key, its node fails and its step is not called.
func TestKeyFromOfNoScalar(t *testing.T) {
	t.Parallel()
	var nobody *string
	for text, value := range map[string]any{
		"kahn: no value":                      nil,
		"neither a text, nor a number":        []string{"x"},
		"a map[string]int is neither a text":  map[string]int{},
		"the key from \"host\": no value":     nobody,
		"longer than 1000 bytes":              strings.Repeat("x", 1001),
		"a func() is neither a text, nor a n": func() {},
	} {
		called := false
		for _, m := range []*kahn.Map{nil, {Over: "list"}} {
			n := keyFrom("a", "host", map[string]any{"host": value, "list": []any{value}})
			if n.Map = m; m != nil {
				n.KeyFrom = "item"
			}
			res, _ := kahn.Execute(t.Context(), graph(n), func(context.Context, *kahn.Step) (any, error) { called = true; return nil, nil }, kahn.KeyLimit(1))
			x, _ := res.Node("a")
			require.Equal(t, kahn.CauseContractInput, x.Cause.Kind, text)
			want := strings.TrimPrefix(text, "kahn: ")
			if m != nil {
				want = strings.Replace(want, `"host"`, `"item"`, 1)
			}
			require.ErrorContains(t, x.Err, want)
		}
		require.False(t, called, text)
	}
	g := graph(kahn.Node{ID: "a", KeyFrom: "p.host", Ports: []kahn.Port{{Name: "p"}}})
	res, err := kahn.Execute(t.Context(), g, nop, kahn.KeyLimit(1))
	require.NoError(t, err)
	require.Equal(t, kahn.RunCompleted, res.Status, "an optional port without a value is no key")
	g = graph(kahn.Node{ID: "a", KeyFrom: "tenant"})
	res, _ = kahn.Execute(t.Context(), g, nop, kahn.KeyLimit(1))
	x, _ := res.Node("a")
	require.ErrorIs(t, x.Err, kahn.ErrNoValue)
}

// TestKeyFromNamesWhatThereIs: the error about a key without a value lists the inputs of the run, or the members of the value, and
// suggests the nearest name.
func TestKeyFromNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	inputs := map[string]any{"tenant": map[string]any{"name": "acme"}, "day": "2026-01-02"}
	for from, want := range map[string]string{
		"tennant":         `the key from "tennant": no value: the run has no such input; did you mean "tenant"? (there is "day", "tenant")`,
		"tennant.name":    `the key from "tennant.name": no value: the run has no such input; did you mean "tenant"? (there is "day", "tenant")`,
		"customer.nam":    `the key from "customer.nam": no value: "customer" has no "nam"; did you mean "name"? (there is "id", "name")`,
		"customer.name.x": `the key from "customer.name.x": no value: "customer" has no "name.x" (there are none)`,
		"null":            `the key from "null": no value`,
	} {
		n := keyFrom("a", from, map[string]any{"customer": map[string]any{"id": 1, "name": "acme"}, "null": nil})
		res, _ := kahn.Execute(t.Context(), graph(n), nop, kahn.KeyLimit(1), kahn.Inputs(inputs))
		x, _ := res.Node("a")
		require.ErrorIs(t, x.Err, kahn.ErrNoValue, from)
		require.True(t, strings.HasSuffix(x.Err.Error(), ": "+want), x.Err.Error())
	}
}

// Compile refuses a KeyFrom that cannot give a key, and warns about a Key that looks like a template.
func TestKeyFromProblems(t *testing.T) {
	t.Parallel()
	declared := func(n kahn.Node) *kahn.Graph {
		g := graph(n)
		g.Inputs = []kahn.Input{{Name: "tenant"}}
		return g
	}
	for text, g := range map[string]*kahn.Graph{
		"it has both a Key and a KeyFrom":                                         graph(kahn.Node{ID: "a", Key: "k", KeyFrom: "host"}),
		"it has both a Map.Key and a KeyFrom":                                     graph(kahn.Node{ID: "a", Params: map[string]any{"of": nil}, KeyFrom: "item", Map: &kahn.Map{Over: "of", Key: func(any) string { return "" }}}),
		"this node never holds a slot":                                            graph(kahn.Node{ID: "a", KeyFrom: "host", Sub: graph(after("x"))}),
		`KeyFrom names "tennant", which nothing provides; did you mean "tenant"?`: declared(kahn.Node{ID: "a", KeyFrom: "tennant.id"}),
	} {
		_, err := g.Compile()
		require.ErrorIs(t, err, kahn.ErrBadValue, text)
		require.ErrorContains(t, err, text)
	}
	p, err := graph(kahn.Node{ID: "a", Key: "{{tenant}}"}).Compile()
	require.NoError(t, err)
	require.ErrorContains(t, fmt.Errorf("%v", p.Warnings()), "name the value in KeyFrom")
	plain, err := declared(kahn.Node{ID: "a"}).Compile()
	require.NoError(t, err)
	keyed, err := declared(kahn.Node{ID: "a", KeyFrom: "tenant"}).Compile()
	require.NoError(t, err)
	require.Equal(t, plain.Hash(), keyed.Hash())
	res, err := keyed.Execute(t.Context(), nop, kahn.Inputs(map[string]any{"tenant": 1}))
	require.NoError(t, err)
	require.ErrorContains(t, res.Warnings[0], "its KeyFrom bounds nothing")
}

// A node has the same key in a later life, since the key is in the snapshot and in the store.
func TestKeyFromOverLives(t *testing.T) {
	t.Parallel()
	inner := graph(keyFrom("x", "tenant", nil), keyFrom("y", "tenant", nil))
	g := graph(keyFrom("a", "host", host("t")), kahn.Node{ID: "S", Sub: inner}, keyFrom("b", "host", host("t")))
	inputs := kahn.Inputs(map[string]any{"tenant": "t"})
	inBubble(t, "a snapshot", func(t *testing.T) {
		for _, rn := range []*kahn.Runner{{}, {KeyLimit: 1}} {
			run, err := rn.Start(t.Context(), g, takes(time.Second), inputs, kahn.KeyLimit(1))
			require.NoError(t, err)
			synctest.Wait()
			run.Leave()
			res, err := run.Wait()
			require.NoError(t, err)
			require.Equal(t, kahn.RunSuspended, res.Status)
			begun := time.Now()
			run, err = rn.Start(t.Context(), g, takes(time.Second), kahn.KeyLimit(1), kahn.Resume(res.Snapshot()))
			require.NoError(t, err)
			res, err = run.Wait()
			require.NoError(t, err)
			require.Equal(t, kahn.RunCompleted, res.Status)
			require.Equal(t, 3*time.Second, time.Since(begun))
		}
	})
	inBubble(t, "a store", func(t *testing.T) {
		m := &store.Memory{}
		run, err := kahn.Start(t.Context(), g, takes(time.Second), inputs, kahn.KeyLimit(1), kahn.Durable(m), kahn.RunID("r"))
		require.NoError(t, err)
		synctest.Wait()
		run.Leave()
		_, err = run.Wait()
		require.NoError(t, err)
		rn, begun := &kahn.Runner{KeyLimit: 1}, time.Now()
		run, err = rn.Start(t.Context(), g, takes(time.Second), kahn.Durable(m), kahn.RunID("r"))
		require.NoError(t, err)
		res, err := run.Wait()
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
		require.Equal(t, 3*time.Second, time.Since(begun))
	})
}

// The checks of a coordinator give the keys to the State, and the State's snapshot keeps the keys.
func TestKeyFromOfACoordinator(t *testing.T) {
	t.Parallel()
	p, err := graph(keyFrom("a", "host", host("x")), keyFrom("b", "host", host("x")), keyFrom("c", "host", host("y")), keyFrom("d", "host", host("x"))).Compile()
	require.NoError(t, err)
	st, err := kahn.NewState(p, kahn.KeyLimit(1))
	require.NoError(t, err)
	started := func(st *machine.State) (ids []string, tokens []machine.Token) {
		for task, ok := st.Next(); ok; task, ok = st.Next() {
			if task.Check {
				verdict, _, err, guardErr := p.Check(st, task.Ref, &kahn.Values{})
				require.NoError(t, err)
				require.NoError(t, guardErr)
				require.NoError(t, st.Checked(task.Token, verdict))
				continue
			}
			ids, tokens = append(ids, p.ID(task.Ref)), append(tokens, task.Token)
		}
		return ids, tokens
	}
	ids, tokens := started(st)
	require.Equal(t, []string{"a", "c"}, ids)
	x := st.Snapshot()
	other, err := kahn.RestoreState(p, x, kahn.KeyLimit(1))
	require.NoError(t, err)
	for _, st := range []*machine.State{st, other} {
		ids, _ = started(st)
		require.Empty(t, ids)
		require.NoError(t, st.Settle(tokens[1], machine.Outcome{Status: kahn.Completed}))
		ids, _ = started(st)
		require.Empty(t, ids)
		require.NoError(t, st.Settle(tokens[0], machine.Outcome{Status: kahn.Completed}))
		ids, _ = started(st)
		require.Equal(t, []string{"b"}, ids)
	}
	x.Keys = map[machine.Ref]string{99: "x"}
	_, err = kahn.RestoreState(p, x, kahn.KeyLimit(1))
	require.ErrorIs(t, err, machine.ErrBadValue)
}
