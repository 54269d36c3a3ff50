package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// If a graph declares inputs, a run accepts only these. Otherwise it accepts any inputs.
func TestInputs(t *testing.T) {
	declared := []kahn.Input{{Name: "reader"}, {Name: "region", Default: "eu"}, {Name: "note", Optional: true}}
	params := func(_ context.Context, s *kahn.Step) (any, error) { return s.Params(), nil }
	g := graph(kahn.Node{ID: "A", Do: params}, kahn.Node{ID: "B", After: []string{"A"},
		Ports: []kahn.Port{{Name: "region", Required: true, Default: "unused"}}, Do: params},
		kahn.Node{ID: "C", Ports: []kahn.Port{{Name: "note", Required: true}}, Do: params})
	g.Inputs = declared
	for _, row := range []struct {
		in   map[string]any
		want string // "" if the run is refused
		is   []error
		text string
	}{
		{map[string]any{"reader": 1}, "map[A:map[reader:1 region:eu] B:map[region:eu] C:<nil>]", nil, ""},
		{map[string]any{"reader": nil, "region": "us", "note": "n"}, "map[A:map[note:n reader:<nil> region:us] B:map[region:us] C:map[note:n]]", nil, ""},
		{map[string]any{"redaer": 1}, "", []error{kahn.ErrUnknownInput, kahn.ErrMissingInput},
			`unknown root input: "redaer"; did you mean "reader"? (there is "reader", "region", "note"); missing root input: "reader"`},
		{map[string]any{"reader": 1, "z": 1, "a": 1}, "", []error{kahn.ErrUnknownInput},
			`unknown root input: "a" (there is "reader", "region", "note"); unknown root input: "z" (there is "reader", "region", "note")`},
		{nil, "", []error{kahn.ErrMissingInput}, `missing root input: "reader"`},
	} {
		inBubble(t, fmt.Sprint(row.in), func(t *testing.T) {
			if row.text == "" {
				r := try(t, g, nil, kahn.Inputs(row.in))
				got := map[string]any{}
				for _, id := range []string{"A", "B", "C"} {
					got[id] = r.node(id).Output
				}
				require.Equal(t, row.want, fmt.Sprint(got))
				return
			}
			plan, err := g.Compile()
			require.NoError(t, err)
			runner := new(kahn.Runner)
			for name, call := range map[string]func(...kahn.Option) error{
				"Execute": func(o ...kahn.Option) error { _, err := kahn.Execute(t.Context(), g, neverStep(t), o...); return err },
				"Plan":    func(o ...kahn.Option) error { _, err := plan.Execute(t.Context(), neverStep(t), o...); return err },
				"Start":   func(o ...kahn.Option) error { _, err := kahn.Start(t.Context(), g, neverStep(t), o...); return err },
				"Runner":  func(o ...kahn.Option) error { _, err := runner.Start(t.Context(), g, neverStep(t), o...); return err },
				"store": func(o ...kahn.Option) error {
					_, err := kahn.Execute(t.Context(), g, neverStep(t), append(o, kahn.Durable(new(store.Memory)), kahn.RunID("r"))...)
					return err
				},
			} {
				err := call(kahn.Inputs(row.in))
				require.EqualError(t, err, row.text, name)
				for _, is := range []error{kahn.ErrUnknownInput, kahn.ErrMissingInput} {
					require.Equal(t, slices.Contains(row.is, is), errors.Is(err, is), "%s: %v", name, is)
				}
				var slip *kahn.InputError
				require.ErrorAs(t, err, &slip)
				require.Equal(t, []string{"reader", "region", "note"}, slip.Declared)
			}
			for run := range runner.Runs() {
				t.Errorf("run %s is registered", run.ID())
			}
		})
	}
	inBubble(t, "none are declared", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "A", Do: params}), nil, kahn.Inputs(map[string]any{"x": 1}))
		require.Equal(t, map[string]any{"x": 1}, r.node("A").Output)
	})
	inBubble(t, "a long list is cut", func(t *testing.T) {
		in := map[string]any{"reader": 1}
		for i := range 7 {
			in[fmt.Sprint("x", i)] = i
		}
		_, err := kahn.Execute(t.Context(), g, neverStep(t), kahn.Inputs(in))
		require.ErrorContains(t, err, `unknown root input: "x4" (`)
		require.ErrorContains(t, err, `; unknown root input: 2 more`)
	})
	inBubble(t, "the typed accessor and a condition see a default", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Do: func(_ context.Context, s *kahn.Step) (any, error) { return kahn.Root[string](s, "region") }},
			kahn.If("eu?", func(v kahn.View) (bool, error) { region, ok := v.Root("region"); return ok && region == "eu", nil }), branch("B", "eu?", "true"))
		g.Inputs = []kahn.Input{{Name: "region", Default: "eu"}}
		r := try(t, g, nop)
		r.expect("A:ok eu?:ok B:ok", "completed")
		require.Equal(t, "eu", r.node("A").Output)
	})
	inBubble(t, "a run that goes on has its inputs", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if _, ok := s.Resumed(); ok {
				return s.Params(), nil
			}
			return nil, kahn.Suspend("", nil, nil)
		}})
		g.Inputs = declared
		paused := pause(t, g, nil, kahn.Inputs(map[string]any{"reader": "r"}))
		r := paused.resume(g, nil, map[string]any{"A": 1})
		require.Equal(t, map[string]any{"reader": "r", "region": "eu"}, r.node("A").Output)
		_, err := kahn.Execute(t.Context(), g, neverStep(t), kahn.Inputs(map[string]any{"redaer": 1}), kahn.Resume(paused.Snapshot()), kahn.EarlySignals(map[string]any{"A": 1}))
		require.ErrorIs(t, err, kahn.ErrUnknownInput)

		fewer := graph(g.Nodes()...)
		fewer.Inputs = declared[1:]
		_, err = kahn.Execute(t.Context(), fewer, nop, kahn.AllowGraphChange(), kahn.Resume(paused.Snapshot()), kahn.EarlySignals(map[string]any{"A": 1}))
		require.NoError(t, err, "nobody has made a slip: the snapshot has the input")
	})
}

// A guard may ask for the inputs that a map or a loop adds, although the graph does not declare them: the graph may run inside one of them. A guard
// that asks for any other input makes a slip.
func TestInputsOfTheEngineInGuards(t *testing.T) {
	for name, want := range map[string]error{"item": nil, "index": nil, "iteration": nil, "previous": nil, "iterations": kahn.ErrUnknownInput} {
		g := graph(kahn.Node{ID: "A", GuardErrors: kahn.GuardFail, When: func(v kahn.View) (bool, error) {
			_, ok := v.Root(name)
			require.False(t, ok)
			return true, nil
		}})
		g.Inputs = []kahn.Input{{Name: "rows", Optional: true}}
		_, err := kahn.Execute(t.Context(), g, nop)
		require.Equal(t, want != nil, err != nil, "%s: %v", name, err)
		require.ErrorIs(t, err, want)
	}
}

// Compile compares the parameters of a composite with the inputs that its graph declares.
func TestInputsOfComposites(t *testing.T) {
	t.Parallel()
	inner := func(in ...kahn.Input) *kahn.Graph {
		g := graph(after("x"))
		g.Inputs = in
		return g
	}
	rows, region, note := kahn.Input{Name: "rows"}, kahn.Input{Name: "region", Default: "eu"}, kahn.Input{Name: "note", Optional: true}
	given := func(params ...string) map[string]any {
		m := map[string]any{}
		for _, p := range params {
			m[p] = []int{1}
		}
		return m
	}
	never := func(kahn.View) (bool, error) { return false, nil }
	for _, row := range []struct {
		name  string
		node  kahn.Node
		outer []kahn.Input
		is    error
		text  string // "" if the graph compiles
	}{
		{"an edge", kahn.Node{Sub: inner(rows, region, note), In: []kahn.Edge{{From: "A", Param: "rows"}}}, nil, nil, ""},
		{"a static value", kahn.Node{Sub: inner(rows), Params: given("rows")}, nil, nil, ""},
		{"a port", kahn.Node{Sub: inner(rows), After: []string{"A"}, Ports: []kahn.Port{{Name: "rows"}}}, nil, nil, ""},
		{"a slip in an edge", kahn.Node{Sub: inner(rows, region), In: []kahn.Edge{{From: "A", Param: "rows"}, {From: "A", Param: "regoin"}}}, nil, kahn.ErrUnknownInput,
			`node "S": unknown root input of its graph: "regoin"; did you mean "region"? (there is "rows", "region")`},
		{"a slip in a static value", kahn.Node{Sub: inner(rows), Params: given("rosw")}, nil, kahn.ErrUnknownInput, `did you mean "rows"?`},
		{"a slip in a port", kahn.Node{Sub: inner(region), Ports: []kahn.Port{{Name: "regoin"}}}, nil, kahn.ErrUnknownInput, `did you mean "region"?`},
		{"nothing", kahn.Node{Sub: inner(rows), After: []string{"A"}}, []kahn.Input{rows}, kahn.ErrUnboundPort, `node "S": unbound required port: nothing provides the input "rows" of its graph`},
		{"nothing at a root", kahn.Node{Sub: inner(rows)}, []kahn.Input{region}, kahn.ErrUnboundPort, `nothing provides the input "rows"`},
		{"the inputs of the graph around it", kahn.Node{Sub: inner(rows)}, []kahn.Input{rows}, nil, ""},
		{"a default of the graph around it", kahn.Node{Sub: inner(kahn.Input{Name: "region"})}, []kahn.Input{region}, nil, ""},
		{"an optional one of the graph around it", kahn.Node{Sub: inner(kahn.Input{Name: "note"})}, []kahn.Input{note}, kahn.ErrUnboundPort,
			`its graph requires the input "note", but the surrounding graph declares this input as Optional and without a Default`},
		{"a map", kahn.Node{Sub: inner(kahn.Input{Name: "item"}, rows), Map: &kahn.Map{Over: "list"}, Params: given("list", "rows")}, nil, nil, ""},
		{"a slip in a map", kahn.Node{Sub: inner(kahn.Input{Name: "itme"}), Map: &kahn.Map{Over: "list"}, Params: given("list")}, nil, kahn.ErrUnboundPort, `the input "itme"`},
		{"a slip at a map", kahn.Node{Sub: inner(rows), Map: &kahn.Map{Over: "list"}, Params: given("list", "rows", "rosw")}, nil, kahn.ErrUnknownInput, `"rosw"; did you mean "rows"?`},
		{"a loop", kahn.Node{Sub: inner(kahn.Input{Name: "iteration"}, rows), Loop: &kahn.Loop{While: never, MaxIterations: 1}, Params: given("rows")}, nil, nil, ""},
		{"a slip at a loop", kahn.Node{Sub: inner(rows), Loop: &kahn.Loop{While: never, MaxIterations: 1}, Params: given("rows", "rosw")}, nil, kahn.ErrUnknownInput, `"rosw"`},
		{"a graph that declares none", kahn.Node{Sub: inner(), Params: given("any")}, nil, nil, ""},
		{"twice", kahn.Node{}, []kahn.Input{rows, rows}, kahn.ErrBadValue, `Inputs: bad value: input "rows" is declared twice`},
		{"no name", kahn.Node{}, []kahn.Input{{Optional: true}}, kahn.ErrBadValue, `Inputs: bad value: input number 1 has no name`},
		{"deep", kahn.Node{Sub: graph(kahn.Node{ID: "T", Sub: inner(rows), Params: given("rosw", "rows")})}, nil, kahn.ErrUnknownInput, `in "S": node "T": unknown root input of its graph: "rosw"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.node.ID = "S"
			g := graph(after("A"), row.node)
			g.Inputs = row.outer
			_, err := g.Compile()
			if row.text == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, row.is)
			require.ErrorContains(t, err, row.text)
		})
	}
}

// The default of an input also applies inside composites, and the graph's hash depends on it.
func TestInputDefaults(t *testing.T) {
	params := func(_ context.Context, s *kahn.Step) (any, error) { return s.Params(), nil }
	sub := graph(kahn.Node{ID: "x", Do: params})
	sub.Inputs = []kahn.Input{{Name: "region", Default: "inner"}, {Name: "rows", Optional: true}}
	off := after("off")
	off.Disabled = true
	for _, row := range []struct {
		node kahn.Node
		want string
	}{
		{kahn.Node{Sub: sub}, "map[region:outer]"}, // the outer input is passed on to the inner graph
		{kahn.Node{Sub: sub, Params: map[string]any{"rows": 1}}, "map[region:outer rows:1]"},
		{kahn.Node{Sub: sub, After: []string{"A"}}, "map[region:inner]"},
		{kahn.Node{Sub: sub, After: []string{"A"}, In: []kahn.Edge{{From: "off", Param: "region", DataOnly: true}}}, "map[region:inner]"}, // the edge delivers nothing
		{kahn.Node{Sub: sub, In: []kahn.Edge{{From: "A", Param: "region"}}}, "map[region:<nil>]"},
	} {
		inBubble(t, row.want, func(t *testing.T) {
			row.node.ID = "S"
			g := graph(after("A"), off, row.node)
			g.Inputs = []kahn.Input{{Name: "region", Default: "outer"}}
			r := try(t, g, nop)
			require.Equal(t, row.want, fmt.Sprint(r.node("S").Output))
		})
	}
	hash := func(in ...kahn.Input) string {
		g := graph(after("A"))
		g.Inputs = in
		p, err := g.Compile()
		require.NoError(t, err)
		return p.Hash()
	}
	require.Equal(t, hash(), hash(kahn.Input{Name: "a"}))
	require.NotEqual(t, hash(), hash(kahn.Input{Name: "a", Default: 1}))
	require.NotEqual(t, hash(kahn.Input{Name: "a", Default: 1}), hash(kahn.Input{Name: "a", Default: 2}))

	g := graph(after("A"))
	g.Inputs = []kahn.Input{{Name: "a", Default: map[string]any{"list": []int{1}}}}
	one, err := g.Compile()
	require.NoError(t, err)
	two, _ := g.Compile()
	require.Same(t, one, two, "nothing has changed")
	g.Inputs[0].Optional = true
	two, _ = g.Compile()
	require.NotSame(t, one, two)
}

// Compile reports a Key that is not one of the declared outputs.
func TestOutputs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		outputs []string
		edge    kahn.Edge
		text    string // "" if the graph compiles
	}{
		{nil, kahn.Edge{Key: "anything"}, ""},
		{[]string{"rows", "header"}, kahn.Edge{}, ""},
		{[]string{"rows", "header"}, kahn.Edge{Param: "p"}, ""},
		{[]string{"rows", "header"}, kahn.Edge{Key: "rows"}, ""},
		{[]string{"rows", "header"}, kahn.Edge{Key: "output"}, ""},
		{[]string{"rows", "header"}, kahn.Edge{Key: "rows.first.name"}, ""},
		{[]string{"a.b"}, kahn.Edge{Key: "a.b"}, ""},
		{[]string{"a.b"}, kahn.Edge{Key: "a.b.c"}, ""},
		{[]string{"rows", "header"}, kahn.Edge{Key: "haeder", On: kahn.OnFailure}, ""}, // the edge delivers the error
		{[]string{"rows", "header"}, kahn.Edge{Key: "haeder"},
			`edge "A" -> "B": bad edge: the Key "haeder" names none of the Outputs of "A"; did you mean "header"? (there is "rows", "header")`},
		{[]string{"rows", "header"}, kahn.Edge{Key: "haeder", DataOnly: true}, `did you mean "header"?`},
		{[]string{"rows", "header"}, kahn.Edge{Key: "rowsx.first"}, `the Key "rowsx.first" names none of the Outputs of "A" (there is "rows", "header")`},
		{[]string{"rows", "header"}, kahn.Edge{Key: "output.rows"}, `"output.rows"`},
		{[]string{"a.b"}, kahn.Edge{Key: "a"}, `(there is "a.b")`},
		{[]string{"rows", "rows"}, kahn.Edge{}, `node "A": bad value: output "rows" is declared twice`},
	} {
		t.Run(fmt.Sprint(row.outputs, row.edge.Key, row.edge.On), func(t *testing.T) {
			t.Parallel()
			row.edge.From = "A"
			_, err := graph(kahn.Node{ID: "A", Outputs: row.outputs}, kahn.Node{ID: "B", In: []kahn.Edge{row.edge}}).Compile()
			if row.text == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, row.text)
			}
		})
	}
}
