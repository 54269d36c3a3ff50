package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// got describes the value that a step found in a parameter.
type got struct {
	value any
	ok    bool
}

// keeps is a step that returns what it finds in the parameter p.
func keeps(_ context.Context, s *kahn.Step) (any, error) {
	v, ok := s.Param("p")
	if all, found := s.Params()["p"]; found != ok || !reflect.DeepEqual(all, v) {
		return nil, fmt.Errorf("Param says %v, %v and Params %v, %v", v, ok, all, found)
	}
	return got{v, ok}, nil
}

func (r trial) param(node string, want any) {
	r.t.Helper()
	if g, err := kahn.Output[got](r.Result, node); err != nil || !g.ok || !reflect.DeepEqual(g.value, want) {
		r.t.Errorf("%s.p = %#v, %v (%v), expected %#v", node, g.value, g.ok, err, want)
	}
}

// An error that is merged as text keeps its text, even if a snapshot has dropped its fields. Snapshots keep the fields of only a few error types.
func TestMergedErrors(t *testing.T) {
	for _, row := range []struct {
		node kahn.Node
		want string
	}{
		{kahn.Node{Merge: kahn.MergeConcat}, `node "S": subrun: run failed: node "x": step_error: the step broke` + "\n\nfine"},
		{kahn.Node{Merge: kahn.MergeArray, MergeJSON: true}, `["node \"S\": subrun: run failed: node \"x\": step_error: the step broke","fine"]`},
		{kahn.Node{Merge: kahn.MergeObject, MergeJSON: true}, `{"A":"fine","S":"node \"S\": subrun: run failed: node \"x\": step_error: the step broke"}`},
	} {
		n := row.node
		n.ID, n.In = "J", []kahn.Edge{{From: "S", On: kahn.OnFailure, Param: "p"}, {From: "A", Param: "p"}, {From: "G"}}
		g := graph(subgraph("S", graph(after("x"))), after("A"), gate("G", "A"), n)
		step := func(_ context.Context, s *kahn.Step) (any, error) {
			switch s.ID() {
			case "x":
				return nil, errStep
			case "A":
				return "fine", nil
			}
			return kahn.Param[string](s, "p")
		}
		whole, err := kahn.Execute(t.Context(), g, step, kahn.EarlySignals(map[string]any{"G": true}))
		if err != nil {
			t.Fatal(err)
		}
		cut, err := kahn.Execute(t.Context(), g, step)
		if err != nil {
			t.Fatal(err)
		}
		cut, err = kahn.Execute(t.Context(), g, step, kahn.Resume(reload(t, cut.Snapshot())), kahn.EarlySignals(map[string]any{"G": true}))
		if err != nil {
			t.Fatal(err)
		}
		for how, res := range map[string]*kahn.Result{"in one life": whole, "from a snapshot": cut} {
			if res.Output() != row.want {
				t.Errorf("%s, %s: %q, expected %q", n.Merge, how, res.Output(), row.want)
			}
		}
	}
}

func TestScenarioMerge(t *testing.T) {
	bothModes(t, "192 an edge without a key delivers the output", func(t *testing.T, mode kahn.Mode) {
		r := try(t, graph(kahn.Node{ID: "A", Do: yields(ms, 7)}, kahn.Node{ID: "B", In: into("A"), Do: keeps}), nil, mode)
		r.expect("A:ok B:ok", "completed")
		r.param("B", 7)
	})

	for _, row := range []struct {
		name   string
		node   kahn.Node // node J without its edges
		edges  []kahn.Edge
		a, b   any
		labels [2]string
		want   any
		aFirst bool // whether A ends first
	}{
		{name: "193 without a strategy the last edge wins", edges: into("A", "B"), a: "a", b: "b", want: "b"},
		{name: "193 declared the other way round", edges: into("B", "A"), a: "a", b: "b", want: "a", aFirst: true},
		{name: "193 a delivered null counts", edges: into("A", "B"), a: "a", b: nil, want: nil},
		{name: "194 concat", node: kahn.Node{Merge: kahn.MergeConcat}, edges: into("A", "B"), a: "a", b: "b", want: "a\n\nb"},
		{name: "194 concat of other values", node: kahn.Node{Merge: kahn.MergeConcat}, edges: into("A", "B"), a: []byte("a"),
			b: map[string]any{"k": []int{1, 2}}, want: "a\n\n" + `{"k":[1,2]}`},
		{name: "196 json_object, labels that differ", node: kahn.Node{Merge: kahn.MergeObject}, edges: into("A", "B"), a: 1, b: 2,
			labels: [2]string{"L", "M"}, want: map[string]any{"L": 1, "M": 2}},
		{name: "196 json_object, labels that collide", node: kahn.Node{Merge: kahn.MergeObject}, edges: into("A", "B"), a: 1, b: 2,
			labels: [2]string{"L", "L"}, want: map[string]any{"A": 1, "B": 2}},
		{name: "196 json_object, one label empty", node: kahn.Node{Merge: kahn.MergeObject}, edges: into("A", "B"), a: 1, b: 2,
			labels: [2]string{"L", ""}, want: map[string]any{"L": 1, "B": 2}},
		{name: "196 json_object as text", node: kahn.Node{Merge: kahn.MergeObject, MergeJSON: true}, edges: into("A", "B"), a: 1, b: nil,
			want: `{"A":1,"B":null}`},
		{name: "197 the strategy of an edge beats the node's", node: kahn.Node{Merge: kahn.MergeConcat},
			edges: []kahn.Edge{{From: "A", Param: "p", Merge: kahn.MergeArray}, {From: "B", Param: "p"}}, a: "a", b: "b", want: []any{"a", "b"}},
		{name: "197 array keeps nulls", node: kahn.Node{Merge: kahn.MergeArray}, edges: into("A", "B"), a: nil, b: "b", want: []any{nil, "b"}},
		{name: "197 array as text", node: kahn.Node{Merge: kahn.MergeArray, MergeJSON: true}, edges: into("A", "B"), a: nil, b: "b",
			want: `[null,"b"]`},
		{name: "200 concat drops nulls", node: kahn.Node{Merge: kahn.MergeConcat}, edges: into("A", "B"), a: nil, b: "b", want: "b"},
		{name: "200 concat drops typed nulls", node: kahn.Node{Merge: kahn.MergeConcat}, edges: into("A", "B"), a: []string(nil), b: "b", want: "b"},
	} {
		bothModes(t, row.name, func(t *testing.T, mode kahn.Mode) {
			first, second := 20*ms, 10*ms // the nodes do not complete in declaration order
			if row.aFirst {
				first, second = second, first
			}
			j := row.node
			j.ID, j.In, j.Do = "J", row.edges, keeps
			r := try(t, graph(
				kahn.Node{ID: "A", Label: row.labels[0], Do: yields(first, row.a)},
				kahn.Node{ID: "B", Label: row.labels[1], Do: yields(second, row.b)},
				j), nil, mode)
			r.expect("A:ok B:ok J:ok", "completed")
			r.param("J", row.want)
		})
	}

	// The type of a merged value does not depend on the number of edges that deliver.
	bothModes(t, "197 an array of one", func(t *testing.T, mode kahn.Mode) {
		r := try(t, graph(
			kahn.Node{ID: "A", Disabled: true},
			kahn.Node{ID: "B", Do: yields(ms, "b")},
			kahn.Node{ID: "J", In: into("A", "B"), Merge: kahn.MergeArray, Do: keeps}), takes(0), mode)
		r.expect("A:S/ann B:ok J:ok", "completed")
		r.param("J", []any{"b"})
	})

	bothModes(t, "197 a registered strategy sees the order of declaration", func(t *testing.T, mode kahn.Mode) {
		g := graph(
			kahn.Node{ID: "A", Label: "first", Do: yields(20*ms, "a")},
			kahn.Node{ID: "B", Do: yields(10*ms, "b")},
			kahn.Node{ID: "J", In: into("A", "B"), Merge: "names", Do: keeps})
		g.RegisterMerge("names", func(in []kahn.Contribution) (any, error) { return fmt.Sprint(in), nil })
		try(t, g, nil, mode).param("J", "[{A first a} {B  b}]")
	})

	t.Run("198 edges that disagree about the strategy", func(t *testing.T) {
		_, err := graph(after("A"), after("B"), kahn.Node{ID: "J", In: []kahn.Edge{
			{From: "A", Param: "p", Merge: kahn.MergeArray}, {From: "B", Param: "p", Merge: kahn.MergeConcat}}}).Compile()
		if !errors.Is(err, kahn.ErrMergeConflict) || !strings.Contains(err.Error(), `"J"`) {
			t.Errorf("Compile: %v", err)
		}
		// Edges of different parameters may have different settings.
		_, err = graph(after("A"), after("B"), kahn.Node{ID: "J", In: []kahn.Edge{
			{From: "A", Param: "p", Merge: kahn.MergeArray}, {From: "B", Param: "q", Merge: kahn.MergeConcat}}}).Compile()
		if err != nil {
			t.Errorf("Compile: %v", err)
		}
	})
}

func TestScenarioInputs(t *testing.T) {
	input := kahn.Inputs(map[string]any{"p": 1})
	static := map[string]any{"p": 2}
	port := []kahn.Port{{Name: "p", Default: 0}}
	for _, row := range []struct {
		name  string
		b     kahn.Node
		input bool
		want  any // nil for no value
	}{
		{"201 an edge comes first", kahn.Node{In: into("A"), Params: static, Ports: port}, true, 3},
		{"201 an edge that delivers nothing", kahn.Node{After: []string{"A"}, In: into("off"), Params: static, Ports: port}, true, 2},
		{"201 then the static value", kahn.Node{After: []string{"A"}, Params: static, Ports: port}, true, 2},
		{"201 of an untyped root, too", kahn.Node{Params: static}, true, 2},
		{"201 then the root input, for a port", kahn.Node{After: []string{"A"}, Ports: port}, true, 1},
		{"201 then the root input, for an untyped root", kahn.Node{}, true, 1},
		{"201 but not for an untyped node behind others", kahn.Node{After: []string{"A"}}, true, nil},
		{"201 nor for an undeclared parameter of a typed root", kahn.Node{Ports: []kahn.Port{{Name: "q"}}}, true, nil},
		{"201 then the default of the port", kahn.Node{After: []string{"A"}, Ports: port}, false, 0},
		{"201 and then nothing", kahn.Node{After: []string{"A"}, Ports: []kahn.Port{{Name: "p"}}}, false, nil},
	} {
		bothModes(t, row.name, func(t *testing.T, mode kahn.Mode) {
			opts := []kahn.Option{mode}
			if row.input {
				opts = append(opts, input)
			}
			b := row.b
			b.ID, b.Do = "B", keeps
			r := try(t, graph(kahn.Node{ID: "A", Do: yields(ms, 3)}, kahn.Node{ID: "off", Disabled: true, Do: neverStep(t)}, b), nil, opts...)
			r.expect("A:ok off:S/ann B:ok", "completed")
			if row.want != nil {
				r.param("B", row.want)
			} else if g, _ := kahn.Output[got](r.Result, "B"); g.ok {
				t.Errorf("B.p = %v", g.value)
			}
		})
	}

	for _, row := range []struct {
		name   string
		output any
	}{
		{"202 the label is the source handle", map[string]any{"branch": true, "yes": 5}},
		{"202 of Outputs, too", kahn.Outputs{"branch": true, "yes": 5}},
	} {
		bothModes(t, row.name, func(t *testing.T, mode kahn.Mode) {
			r := try(t, graph(
				kahn.Node{ID: "C", Kind: kahn.KindCondition, Do: yields(ms, row.output)},
				kahn.Node{ID: "T", In: []kahn.Edge{{From: "C", Label: "yes", Param: "p"}}, Do: keeps},
				kahn.Node{ID: "N", In: []kahn.Edge{{From: "C", Label: "no", Param: "p"}}, Do: neverStep(t)}), nil, mode)
			r.expect("C:ok T:ok N:S/br", "completed")
			r.param("T", 5)
		})
	}

	bothModes(t, "202 a key comes before the label", func(t *testing.T, mode kahn.Mode) {
		r := try(t, graph(
			kahn.Node{ID: "C", Kind: kahn.KindCondition, Do: yields(ms, kahn.Outputs{"branch": true, "yes": 5, "data": 7})},
			kahn.Node{ID: "T", In: []kahn.Edge{{From: "C", Label: "yes", Key: "data", Param: "p"}}, Do: keeps}), nil, mode)
		r.param("T", 7)
	})

	bothModes(t, "202 without such a port it is the output", func(t *testing.T, mode kahn.Mode) {
		r := try(t, graph(
			kahn.Node{ID: "C", Kind: kahn.KindCondition, Do: yields(ms, true)},
			kahn.Node{ID: "T", In: []kahn.Edge{{From: "C", Label: "yes", Param: "p"}}, Do: keeps}), nil, mode)
		r.param("T", true)
	})

	for _, row := range []struct {
		name   string
		output any
		want   string
	}{
		{"204 a nil slice is null", []string(nil), "S/null"},
		{"204 a nil map is null", map[string]int(nil), "S/null"},
		{"204 a nil pointer is null", (*int)(nil), "S/null"},
		{"204 nil is null", nil, "S/null"},
		{"204 an empty slice is a value", []string{}, "ok"},
		{"204 an empty map is a value", map[string]int{}, "ok"},
		{"204 zero is a value", 0, "ok"},
		{"204 false is a value", false, "ok"},
		{"204 the empty string is a value", "", "ok"},
	} {
		bothModes(t, row.name, func(t *testing.T, mode kahn.Mode) {
			do := neverStep(t)
			if row.want == "ok" {
				do = keeps
			}
			r := try(t, graph(
				kahn.Node{ID: "A", Do: yields(ms, row.output)},
				kahn.Node{ID: "B", In: into("A"), Ports: []kahn.Port{{Name: "p", Required: true}}, Do: do}), nil, mode)
			r.expect("A:ok B:"+row.want, "completed")
			if row.want == "ok" {
				r.param("B", row.output)
			} else if skip := r.node("B").Skip; skip != (event.SkipReason{Kind: kahn.SkipNullPropagation, Node: "A", Port: "p"}) {
				t.Errorf("%+v", skip)
			}
		})
	}

	inBubble(t, "205 an attempt gets maps of its own", func(t *testing.T) {
		static := map[string]any{"s": "static"}
		r := try(t, graph(
			kahn.Node{ID: "A", Do: yields(ms, "a")},
			kahn.Node{ID: "B", In: into("A"), Params: static, Retry: kahn.RetryStandard(), Do: func(_ context.Context, s *kahn.Step) (any, error) {
				params, upstream := s.Params(), s.UpstreamAll()
				if len(params) != 2 || params["p"] != "a" || params["s"] != "static" || len(upstream) != 1 || upstream["A"] != "a" {
					t.Errorf("attempt %d sees %v and %v", s.Attempt(), params, upstream)
				}
				params["p"], params["more"], upstream["A"], upstream["more"] = "changed", 1, "changed", 1
				delete(params, "s")
				if v, ok := s.Param("p"); v != "a" || !ok {
					t.Errorf("Param after the change: %v, %v", v, ok)
				}
				return script(errStep)(s, s)
			}}), nil)
		r.expect("A:ok B:ok", "completed")
		if len(static) != 1 {
			t.Errorf("the node's own map is %v", static)
		}
	})
}

func TestScenarioGuard(t *testing.T) {
	errPath := errors.New("nodes.A.output.flag: no such path")
	unresolvable := func(v kahn.View) (bool, error) {
		if v.Output("A") != "A" {
			return false, fmt.Errorf("the output of A is %v", v.Output("A"))
		}
		return false, errPath
	}
	malformed := func(kahn.View) (bool, error) { return false, errPath }
	panics := func(kahn.View) (bool, error) { panic(errPath) }
	for _, row := range []struct {
		name   string
		when   func(kahn.View) (bool, error)
		policy kahn.GuardPolicy
		byRun  bool // whether the policy comes from the run
		want   string
		cause  kahn.CauseKind
	}{
		{"206 a guard that cannot be resolved fails its node", unresolvable, 0, false, "F", kahn.CauseConditionError},
		{"208 a malformed guard fails its node", malformed, 0, false, "F", kahn.CauseConditionError},
		{"208 explicitly", malformed, kahn.GuardAllow, false, "ok", kahn.CauseNone},
		{"209 GuardErrors fail", malformed, kahn.GuardFail, false, "F", kahn.CauseConditionError},
		{"209 GuardErrors fail, by the graph's defaults", malformed, kahn.GuardFail, true, "F", kahn.CauseConditionError},
		{"209 GuardErrors skip", malformed, kahn.GuardSkip, false, "S/when", kahn.CauseNone},
		{"210 a guard that panics fails its node", panics, 0, false, "F", kahn.CauseConditionError},
		{"210 GuardErrors allow", panics, kahn.GuardAllow, false, "ok", kahn.CauseNone},
		{"210 GuardErrors fail", panics, kahn.GuardFail, false, "F", kahn.CauseConditionError},
		{"210 GuardErrors skip", panics, kahn.GuardSkip, false, "S/when", kahn.CauseNone},
	} {
		bothModes(t, row.name, func(t *testing.T, mode kahn.Mode) {
			evaluated := 0
			var c calls
			b := kahn.Node{ID: "B", After: []string{"A"}, GuardErrors: row.policy, Retry: kahn.RetryStandard(),
				When: func(v kahn.View) (bool, error) { evaluated++; return row.when(v) }}
			g := graph()
			if row.byRun {
				g.Defaults.GuardErrors, b.GuardErrors = row.policy, 0
			}
			g.Add(after("A"), b)
			r := try(t, g, c.count(takes(ms)), mode)
			if row.want == "F" {
				r.expect("A:ok B:F", "failed")
			} else {
				r.expect("A:ok B:"+row.want, "completed")
			}
			r.cause("B", row.cause)
			n := r.node("B")
			if !errors.Is(n.GuardErr, errPath) || evaluated != 1 || (c.of("B") == 1) != (row.want == "ok") {
				t.Errorf("%+v, evaluated %d times, %d calls", n, evaluated, c.of("B"))
			}
			if row.want == "F" && !errors.Is(r.err, errPath) {
				t.Errorf("error %v", r.err)
			}
			if row.want == "ok" {
				logs := r.find(event.NodeLog, "B")
				if len(logs) != 1 || logs[0].Payload.(event.LogRecord).Level != slog.LevelWarn ||
					!strings.Contains(logs[0].Payload.(event.LogRecord).Message, errPath.Error()) {
					t.Errorf("logs %v", logs)
				}
			}
		})
	}

	bothModes(t, "206 a guard is evaluated once, not for each attempt", func(t *testing.T, mode kahn.Mode) {
		evaluated := 0
		r := try(t, graph(kahn.Node{ID: "A", Retry: kahn.RetryStandard(), When: func(kahn.View) (bool, error) { evaluated++; return true, nil }}),
			script(errStep, errStep), mode)
		r.expect("A:ok", "completed")
		if evaluated != 1 {
			t.Errorf("evaluated %d times", evaluated)
		}
	})
}

// An always edge of a failed or aborted node delivers the node's error. If the failure is tolerated, the edge delivers no value.
func TestScenarioErrorsAsValues(t *testing.T) {
	for name, row := range map[string]struct {
		source kahn.Node
		want   string // the delivered error; "" for none
	}{
		"failed":    {kahn.Node{ID: "A", Do: always(errStep)}, `node "A": step_error: ` + errStep.Error()},
		"tolerated": {kahn.Node{ID: "A", Do: always(errStep), ContinueOnFail: true}, ""},
		"aborted":   {kahn.Node{ID: "A", After: []string{"fails"}}, `node "A": upstream_failure of "fails"`},
	} {
		bothModes(t, name, func(t *testing.T, mode kahn.Mode) {
			g := graph(row.source, kahn.Node{ID: "B", Do: keeps, In: []kahn.Edge{{From: "A", On: kahn.OnAlways, Param: "p"}}})
			if name == "aborted" {
				g.Add(kahn.Node{ID: "fails", Do: always(errStep)})
			}
			r := try(t, g, nothing, mode)
			b, err := kahn.Output[got](r.Result, "B")
			delivered := ""
			if b.value != nil {
				delivered = fmt.Sprint(b.value)
			}
			if err != nil || b.ok != (row.want != "") || delivered != row.want {
				t.Errorf("B.p = %v, %t (%v), expected %q", b.value, b.ok, err, row.want)
			}
		})
	}
}
