package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

func trigger(id string) kahn.Node { return kahn.Node{ID: id, Kind: kahn.KindTrigger} }

func TestScenarioTrigger(t *testing.T) {
	two := func() *kahn.Graph {
		return graph(trigger("T1"), after("A", "T1"), trigger("T2"), after("B", "T2"))
	}
	inBubble(t, "250 what the trigger leads to", func(t *testing.T) {
		g := two()
		for range 2 {
			r := try(t, g, func(_ context.Context, s *kahn.Step) (any, error) {
				payload, ok := s.View().Trigger()
				upstream, _ := s.Upstream("T1")
				return fmt.Sprint(payload, ok, upstream), nil
			}, kahn.Fire("T1", "hello"))
			r.expect("T1:ok A:ok", "completed")
			if !slices.Equal(r.Pruned, []string{"T2", "B"}) || len(r.Warnings) > 0 {
				t.Errorf("pruned %v, warnings %v", r.Pruned, r.Warnings)
			}
			if r.node("T1").Output != "hello" || r.Output() != "hellotruehello" {
				t.Errorf("T1 = %v, A = %v", r.node("T1").Output, r.Output())
			}
			r.count(event.NodeQueued, "T1", 0)
		}
		if r := try(t, g, takes(0), kahn.Fire("T2", nil), kahn.Waves); !slices.Equal(r.Pruned, []string{"T1", "A"}) {
			t.Errorf("pruned %v", r.Pruned)
		}
	})
	inBubble(t, "250 the end node stays, edges of pruned nodes vanish", func(t *testing.T) {
		r := try(t, graph(trigger("T1"), trigger("T2"), after("A", "T1"), after("B", "T2"), kahn.Node{ID: "J", After: []string{"A", "B"}, Join: kahn.AllFailed},
			kahn.Node{ID: "K", After: []string{"A", "B"}}, kahn.Node{ID: "end", Kind: kahn.KindEnd}), takes(0), kahn.Fire("T1", nil))
		r.expect("T1:ok A:ok J:S/rule K:ok end:ok", "completed")
	})
	inBubble(t, "251 a count that pruning makes impossible", func(t *testing.T) {
		r := try(t, graph(trigger("T1"), trigger("T2"), kahn.Node{ID: "A", After: []string{"T1", "T2"}, Join: kahn.AtLeast(2)}), takes(0), kahn.Fire("T1", nil))
		r.expect("T1:ok A:S/rule", "completed")
	})
	inBubble(t, "252 a root that no trigger leads to", func(t *testing.T) {
		g := graph(trigger("T1"), after("R"), kahn.Node{ID: "A", After: []string{"T1"}, In: []kahn.Edge{{From: "R", Param: "r"}}})
		step := func(_ context.Context, s *kahn.Step) (any, error) {
			_, ok := s.Param("r")
			return ok, nil
		}
		r := try(t, g, step, kahn.Fire("T1", nil))
		r.expect("T1:ok A:ok", "completed")
		if r.Output() != false || !slices.Equal(r.Pruned, []string{"R"}) {
			t.Errorf("%v, pruned %v", r.Output(), r.Pruned)
		}
		if len(r.Warnings) != 1 || !errors.Is(r.Warnings[0], kahn.ErrPrunedInput) {
			t.Errorf("warnings %v", r.Warnings)
		}
		plan, err := g.Compile()
		if err != nil {
			t.Fatal(err)
		}
		if w := plan.Warnings(); len(w) != 1 || w[0].Error() != r.Warnings[0].Error() {
			t.Errorf("warnings %v", w)
		}
		r = try(t, g, step, kahn.Fire("T1", nil), kahn.PruneClosure)
		r.expect("T1:ok R:ok A:ok", "completed")
		if r.Output() != true || len(r.Pruned) > 0 || len(r.Warnings) > 0 {
			t.Errorf("%v, pruned %v, warnings %v", r.Output(), r.Pruned, r.Warnings)
		}
	})
	inBubble(t, "252 a required port whose edge is pruned", func(t *testing.T) {
		g := graph(trigger("T1"), after("R"), kahn.Node{ID: "A", After: []string{"T1"}, In: []kahn.Edge{{From: "R", Param: "r"}}, Ports: []kahn.Port{{Name: "r", Required: true}}})
		g.Inputs = []kahn.Input{{Name: "r", Optional: true}}
		try(t, g, takes(0), kahn.Fire("T1", nil)).expect("T1:ok A:S/null", "completed")
	})
	inBubble(t, "252 the closure leaves other triggers out", func(t *testing.T) {
		r := try(t, graph(trigger("T1"), trigger("T2"), after("A", "T1", "T2"), after("R"), after("Q", "R"), after("B", "A", "Q"), after("C", "T2")), takes(0),
			kahn.Fire("T1", nil), kahn.PruneClosure)
		r.expect("T1:ok A:ok R:ok Q:ok B:ok", "completed")
		if !slices.Equal(r.Pruned, []string{"T2", "C"}) {
			t.Errorf("pruned %v", r.Pruned)
		}
	})
	inBubble(t, "253 an unknown trigger", func(t *testing.T) {
		for _, id := range []string{"T3", "A", ""} {
			r := try(t, two(), takes(0), kahn.Fire(id, "p"))
			r.expect("T1:ok A:ok T2:ok B:ok", "completed")
			if len(r.Warnings) != 1 || !errors.Is(r.Warnings[0], kahn.ErrUnknownTrigger) || r.Pruned != nil {
				t.Errorf("warnings %v, pruned %v", r.Warnings, r.Pruned)
			}
			if r.node("T2").Output != "p" {
				t.Errorf("T2 = %v", r.node("T2").Output)
			}
		}
	})
	inBubble(t, "253 none", func(t *testing.T) {
		r := try(t, two(), takes(0))
		r.expect("T1:ok A:ok T2:ok B:ok", "completed")
		if len(r.Warnings) > 0 || r.node("T1").Output != nil {
			t.Errorf("warnings %v, T1 = %v", r.Warnings, r.node("T1").Output)
		}
	})
	inBubble(t, "250 composites behind a trigger", func(t *testing.T) {
		child := graph(after("x"))
		g := graph(trigger("T1"), trigger("T2"), subgraph("S", child, "T1"), subgraph("U", child, "T2"))
		if _, err := g.Compile(); err != nil {
			t.Fatal(err)
		}
		r := try(t, g, takes(0), kahn.Fire("T1", nil))
		r.expect("T1:ok S:ok", "completed")
		r.count(event.NodeCompleted, "S/x", 1)
	})
	inBubble(t, "250 by hand", func(t *testing.T) {
		plan, err := two().Compile()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Prune("A", kahn.PruneForward); !errors.Is(err, kahn.ErrUnknownTrigger) {
			t.Errorf("%v", err)
		}
		pruned, err := plan.Prune("T1", kahn.PruneForward)
		if err != nil || pruned.Len() != 2 {
			t.Fatalf("%v, %v", pruned, err)
		}
		if again, _ := plan.Prune("T1", kahn.PruneForward); again != pruned {
			t.Error("it was made twice")
		}
		if again, err := pruned.Prune("T1", kahn.PruneForward); again != pruned {
			t.Errorf("a pruned plan is pruned into another one: %v", err)
		}
		if _, err := pruned.Prune("A", kahn.PruneForward); !errors.Is(err, kahn.ErrUnknownTrigger) {
			t.Errorf("%v", err)
		}
		res, err := pruned.Execute(t.Context(), takes(0), kahn.Fire("T1", "payload"))
		if err != nil || res.Status != kahn.RunCompleted || res.Plan() != pruned {
			t.Errorf("%v, %v", res, err)
		}
		st, err := kahn.NewState(pruned)
		if err != nil {
			t.Fatal(err)
		}
		for task, ok := st.Next(); ok; task, ok = st.Next() {
			if err := st.Settle(task.Token, machine.Outcome{Status: kahn.Completed}); err != nil {
				t.Fatal(err)
			}
		}
		if !st.Done() {
			t.Error("it is not done")
		}
	})

	text := graph(kahn.Node{ID: "T", Kind: kahn.KindTrigger, TestExpr: "size"})
	text.Evaluator = fluent
	for name, g := range map[string]*kahn.Graph{
		"a step":       graph(kahn.Node{ID: "T", Kind: kahn.KindTrigger, Do: takes(0)}),
		"a test":       text,
		"a composite":  graph(kahn.Node{ID: "T", Kind: kahn.KindTrigger, Sub: graph()}),
		"a catch edge": graph(trigger("T"), kahn.Node{ID: "A", In: []kahn.Edge{{From: "T", On: kahn.OnFailure}}}),
	} {
		if _, err := g.Compile(); !errors.Is(err, kahn.ErrBadValue) && !errors.Is(err, kahn.ErrBadEdge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := kahn.Execute(t.Context(), two(), nil, kahn.Fire("T1", nil)); !errors.Is(err, kahn.ErrNoStep) {
		t.Errorf("%v", err)
	}
	if _, err := executeRun(t, t.Context(), graph(trigger("T1")), nil, kahn.Fire("T1", nil)); err != nil {
		t.Errorf("%v", err)
	}
	if _, err := kahn.Execute(t.Context(), graph(), nil, kahn.PruneMode(9)); !errors.Is(err, kahn.ErrBadOption) {
		t.Errorf("%v", err)
	}
}

// TestFiredGoesOn: a fired run that continues has the same trigger and payload.
func TestFiredGoesOn(t *testing.T) {
	payload := func(_ context.Context, s *kahn.Step) (any, error) {
		v, _ := s.Upstream("T1")
		return v, nil
	}
	g := graph(kahn.Node{ID: "T1", Kind: kahn.KindTrigger}, kahn.Node{ID: "T2", Kind: kahn.KindTrigger}, kahn.Node{ID: "R"},
		kahn.Node{ID: "G", Kind: kahn.KindGate, After: []string{"T1", "R"}}, kahn.Node{ID: "A", After: []string{"T1", "G"}, Do: payload}, after("B", "T2"))
	wrong := map[string][]kahn.Option{
		"another trigger": {kahn.Fire("T2", "hello"), kahn.PruneClosure}, "another mode": {kahn.Fire("T1", "hello")},
	}
	fire := []kahn.Option{kahn.Fire("T1", "hello"), kahn.PruneClosure}
	same := map[string][]kahn.Option{"without the option": nil, "with it": {kahn.Fire("T1", "goodbye"), kahn.PruneClosure}}
	signals := map[string]any{"G": true}
	ended := func(t *testing.T, res *kahn.Result, err error) {
		t.Helper()
		if res == nil {
			t.Fatal(err)
		}
		trial{res, t, err, nil}.expect("T1:ok R:ok G:ok A:ok", "completed")
		if a, _ := res.Node("A"); a.Output != "hello" || !slices.Equal(res.Pruned, []string{"T2", "B"}) {
			t.Errorf("%v, pruned %v", a.Output, res.Pruned)
		}
	}
	inBubble(t, "250 from a snapshot", func(t *testing.T) {
		res, err := executeRun(t, t.Context(), g, takes(0), fire...)
		if err != nil || res.Status != kahn.RunSuspended {
			t.Fatal(err)
		}
		for _, snapshot := range []*kahn.Snapshot{res.Snapshot(), reload(t, res.Snapshot())} {
			for _, opts := range same {
				res, err := resumeRun(t, t.Context(), g, takes(0), snapshot, signals, opts...)
				ended(t, res, err)
				res, err = kahn.Execute(t.Context(), g, takes(0), append(opts, kahn.Redrive(reload(t, res.Snapshot()), []string{"A"}))...)
				ended(t, res, err)
			}
			for name, opts := range wrong {
				if _, err := kahn.Execute(t.Context(), g, neverStep(t), append(opts, kahn.Resume(snapshot), kahn.EarlySignals(signals))...); !errors.Is(err, kahn.ErrBadOption) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		res, err = executeRun(t, t.Context(), graph(gate("G")), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kahn.Execute(t.Context(), graph(gate("G")), nil, kahn.Fire("T1", nil), kahn.Resume(res.Snapshot()), kahn.EarlySignals(signals)); !errors.Is(err, kahn.ErrBadOption) {
			t.Error(err)
		}
	})
	for name, opts := range same {
		inBubble(t, "250 from a store, "+name, func(t *testing.T) {
			durable := []kahn.Option{kahn.Durable(new(store.Memory)), kahn.RunID("r")}
			res, err := executeRun(t, t.Context(), g, takes(0), append(durable, fire...)...)
			if err != nil || res.Status != kahn.RunSuspended {
				t.Fatal(err)
			}
			for name, opts := range wrong {
				if _, err := kahn.Execute(t.Context(), g, neverStep(t), append(durable, opts...)...); !errors.Is(err, kahn.ErrBadOption) {
					t.Errorf("%s: %v", name, err)
				}
			}
			durable = append(durable, kahn.EarlySignals(signals))
			res, err = executeRun(t, t.Context(), g, takes(0), append(durable, opts...)...)
			ended(t, res, err)
		})
	}
	inBubble(t, "what was pruned needs no step function", func(t *testing.T) {
		own := func(context.Context, *kahn.Step) (any, error) { return "own", nil }
		g := graph(trigger("T1"), trigger("T2"), gate("G", "T1"), kahn.Node{ID: "A", After: []string{"G"}, Do: own}, after("B", "T2"))
		store := new(store.Memory)
		execute := func(id string, opts ...kahn.Option) (*kahn.Result, error) {
			return executeRun(t, t.Context(), g, nil, append(opts, kahn.Durable(store), kahn.RunID(id))...)
		}
		if _, err := execute("anew"); !errors.Is(err, kahn.ErrNoStep) {
			t.Error(err)
		}
		pass := func(next kahn.StepFunc) kahn.StepFunc { return next }
		if _, err := execute("anew", kahn.Use(pass)); !errors.Is(err, kahn.ErrNoStep) {
			t.Error(err)
		}
		if _, err := execute("anew", kahn.Fire("T2", nil)); !errors.Is(err, kahn.ErrNoStep) {
			t.Error(err)
		}
		for _, id := range []string{"r", "anew"} { // the refused calls stored no run
			if res, err := execute(id, kahn.Fire("T1", nil)); err != nil || res.Status != kahn.RunSuspended {
				t.Fatal(err)
			}
			res, err := execute(id, kahn.EarlySignals(signals))
			if err != nil {
				t.Fatal(err)
			}
			trial{res, t, err, nil}.expect("T1:ok G:ok A:ok", "completed")
		}
	})
}
