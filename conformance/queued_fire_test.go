package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// twoTriggers returns a graph with two triggers, each with its branch, and a step function that records its calls.
func twoTriggers() (*kahn.Graph, kahn.StepFunc, *callList) {
	var calls callList
	g := (&kahn.Graph{Name: "two"}).Add(
		kahn.Node{ID: "web", Kind: kahn.KindTrigger}, kahn.Node{ID: "cron", Kind: kahn.KindTrigger},
		kahn.Node{ID: "serve", In: []kahn.Edge{{From: "web", Param: "p"}}}, kahn.Node{ID: "sweep", In: []kahn.Edge{{From: "cron", Param: "p"}}},
		kahn.Node{ID: "log", After: []string{"serve", "sweep"}},
	)
	return g, func(_ context.Context, s *kahn.Step) (any, error) {
		v, _ := s.Param("p")
		calls.add(fmt.Sprint(s.ID(), " ", v))
		return nil, nil
	}, &calls
}

// Prepare with the option Fire stores a trigger in the run. The process that performs the run fires this trigger.
func TestPrepareWithFire(t *testing.T) {
	for name, perform := range map[string]func(*testing.T, *store.Memory, *kahn.Graph, kahn.StepFunc) error{
		"Serve": func(t *testing.T, db *store.Memory, g *kahn.Graph, step kahn.StepFunc) error {
			rn := new(kahn.Runner)
			go func() {
				_ = rn.Serve(t.Context(), kahn.Service{Store: db, Workflows: []kahn.Workflow{{Graph: g, Step: step}}})
			}()
			time.Sleep(time.Minute)
			return rn.Shutdown(t.Context())
		},
		"Execute": func(t *testing.T, db *store.Memory, g *kahn.Graph, step kahn.StepFunc) error {
			_, err := kahn.Execute(t.Context(), g, step, kahn.Durable(db), kahn.RunID("1"))
			return err
		},
		"Execute, fired again": func(t *testing.T, db *store.Memory, g *kahn.Graph, step kahn.StepFunc) error {
			_, err := kahn.Execute(t.Context(), g, step, kahn.Durable(db), kahn.RunID("1"), kahn.Fire("web", "another payload"))
			return err
		},
		"Execute, with the inputs": func(t *testing.T, db *store.Memory, g *kahn.Graph, step kahn.StepFunc) error {
			_, err := kahn.Execute(t.Context(), g, step, kahn.Durable(db), kahn.RunID("1"), kahn.Inputs(map[string]any{"x": 1}))
			return err
		},
		"after Adopt": func(t *testing.T, db *store.Memory, g *kahn.Graph, step kahn.StepFunc) error {
			other := (&kahn.Graph{Name: "two"}).Add(kahn.Node{ID: "web", Kind: kahn.KindTrigger}, kahn.Node{ID: "cron", Kind: kahn.KindTrigger},
				kahn.Node{ID: "serve", Label: "changed", Config: map[string]any{"new": true}, In: []kahn.Edge{{From: "web", Param: "p"}}}, kahn.Node{ID: "log", After: []string{"serve", "cron"}})
			if _, err := kahn.Adopt(t.Context(), other, db, "1"); err != nil {
				return err
			}
			_, err := kahn.Execute(t.Context(), other, step, kahn.Durable(db), kahn.RunID("1"))
			return err
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			g, step, calls := twoTriggers()
			db := new(store.Memory)
			n, err := kahn.Prepare(g, kahn.RunID("1"), kahn.Fire("web", map[string]any{"n": int64(7)}), kahn.Inputs(map[string]any{"x": 1}))
			if err == nil {
				_, _, err = db.Create(t.Context(), n)
			}
			if err == nil {
				err = perform(t, db, g, step)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := calls.list(); !slices.Equal(got, []string{"serve map[n:7]", "log <nil>"}) {
				t.Errorf("called %q", got)
			}
			if s := load(t, db, "1"); s.Status != kahn.RunCompleted {
				t.Error(s.Status)
			}
		})
	}
}

func TestPrepareWithFireRefused(t *testing.T) {
	g, step, calls := twoTriggers()
	if _, err := kahn.Prepare(g, kahn.Fire("wob", nil)); !errors.Is(err, kahn.ErrUnknownTrigger) || !strings.Contains(err.Error(), "web") {
		t.Error(err)
	}
	if _, err := kahn.Prepare(g, kahn.Fire("web", func() {})); !errors.Is(err, kahn.ErrNotEncodable) {
		t.Error(err)
	}
	if _, err := kahn.Prepare(g, kahn.Inputs(map[string]any{"#fire": 1})); !errors.Is(err, kahn.ErrNotEncodable) {
		t.Error(err)
	}
	db := new(store.Memory)
	n, err := kahn.Prepare(g, kahn.RunID("1"), kahn.Fire("web", 1))
	if err == nil {
		_, _, err = db.Create(t.Context(), n)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, opts := range [][]kahn.Option{{kahn.Fire("cron", 1)}, {kahn.Fire("web", 1), kahn.PruneClosure}} {
		if _, err := kahn.Execute(t.Context(), g, step, append(opts, kahn.Durable(db), kahn.RunID("1"))...); !errors.Is(err, store.ErrMismatch) {
			t.Error(err)
		}
	}
	n.IfExists = store.Reuse
	if _, _, err := db.Create(t.Context(), n); err != nil {
		t.Error(err)
	}
	other, err := kahn.Prepare(g, kahn.RunID("1"), kahn.Fire("web", 2))
	if err != nil {
		t.Fatal(err)
	}
	other.IfExists = store.Reuse
	if _, _, err := db.Create(t.Context(), other); !errors.Is(err, store.ErrMismatch) {
		t.Error(err)
	}
	if len(calls.list()) > 0 {
		t.Error(calls.list())
	}
}

// withoutOutlasting returns all warnings except for warnings that a gate may outlast its run.
func withoutOutlasting(warnings []error) []error {
	return slices.DeleteFunc(slices.Clone(warnings), func(err error) bool { return errors.Is(err, kahn.ErrGateOutlasts) })
}

// If the deadline of a gate in a loop is later than the deadline of the run, the run has one warning.
func TestGateOutlastsRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := (&kahn.Graph{Name: "in"}).Add(kahn.Node{ID: "ok?", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Minute, OnTimeout: kahn.GateLabel}},
			kahn.Node{ID: "late", In: []kahn.Edge{{From: "ok?", Label: "timeout"}}})
		g := (&kahn.Graph{Name: "g"}).Add(kahn.Node{ID: "L", Sub: body, Loop: &kahn.Loop{While: func(kahn.View) (bool, error) { return true, nil }, MaxIterations: 5, OnLimit: kahn.LoopStop}})
		run, err := kahn.Start(t.Context(), g, func(context.Context, *kahn.Step) (any, error) { return nil, nil }, kahn.Timeout(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i <= 5; i++ {
			synctest.Wait()
			if err := run.Signal(t.Context(), fmt.Sprintf("L#%d/ok?", i), "timeout"); err != nil {
				t.Fatal(i, err)
			}
		}
		res, err := run.Wait()
		if err != nil || len(res.Warnings) != 1 {
			t.Error(err, res.Warnings)
		}
	})
}

// A gate whose deadline is later than the run's Timeout causes a warning in each life of the run.
func TestGateOutlastsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := kahn.Node{ID: "ok?", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: 72 * time.Hour}}
		warned := func(res *kahn.Result) (texts []string) {
			for _, w := range res.Warnings {
				if errors.Is(w, kahn.ErrGateOutlasts) {
					texts = append(texts, w.Error())
				}
			}
			return texts
		}
		for _, row := range []struct {
			g     *kahn.Graph
			after time.Duration
			path  string // "" if there is no warning
		}{
			{(&kahn.Graph{Name: "g"}).Add(gate), 24 * time.Hour, "ok?"},
			{(&kahn.Graph{Name: "g"}).Add(kahn.Node{ID: "S", Sub: (&kahn.Graph{Name: "in"}).Add(gate)}), 24 * time.Hour, "S/ok?"},
			{(&kahn.Graph{Name: "g"}).Add(gate), 72 * time.Hour, ""},
			{(&kahn.Graph{Name: "g"}).Add(gate), 0, ""},
		} {
			db := new(store.Memory)
			for range 2 {
				res, err := kahn.Execute(t.Context(), row.g, nil, kahn.Durable(db), kahn.RunID("1"), kahn.Timeout(row.after))
				if err != nil {
					t.Fatal(err)
				}
				texts := warned(res)
				if row.path == "" && len(texts) > 0 || row.path != "" && (len(texts) != 1 || !strings.Contains(texts[0], `node "`+row.path+`" waits until`)) {
					t.Errorf("%v, %q: %q", row.after, row.path, texts)
				}
				time.Sleep(time.Minute)
			}
		}
	})
}

// ReadRun describes a run in each of its states, and needs no graph.
func TestReadRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := new(store.Memory)
		ctx := t.Context()
		read := func() *kahn.StoredRun {
			t.Helper()
			x, err := kahn.ReadRun(ctx, db, "1")
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		if _, err := kahn.ReadRun(ctx, db, "1"); !errors.Is(err, kahn.ErrUnknownRun) {
			t.Error(err)
		}
		gate := kahn.Node{ID: "ok?", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour}}
		g := (&kahn.Graph{Name: "orders"}).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "S", After: []string{"a"}, Sub: (&kahn.Graph{Name: "in"}).Add(gate)}, kahn.Node{ID: "z", After: []string{"S"}})
		step := func(context.Context, *kahn.Step) (any, error) { time.Sleep(time.Second); return nil, nil }
		n, err := kahn.Prepare(g, kahn.RunID("1"), kahn.Describe(store.Spec{Labels: map[string]string{"k": "v"}}))
		if err == nil {
			_, _, err = db.Create(ctx, n)
		}
		if err != nil {
			t.Fatal(err)
		}
		if x := read(); x.Status != kahn.RunPending || x.Workflow != "orders" || x.Labels["k"] != "v" || x.Holder != "" || x.Epoch != 0 || len(x.Counts) > 0 {
			t.Errorf("pending: %+v", x)
		}
		run, err := kahn.Start(ctx, g, step, kahn.Durable(db), kahn.RunID("1"), kahn.Lease("me", 0))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second / 2)
		if x := read(); x.Status != kahn.RunRunning || x.Holder != "me" || !x.HeldUntil.After(time.Now()) || x.Counts[kahn.Running] != 1 {
			t.Errorf("running: %+v", x)
		}
		time.Sleep(time.Second)
		x := read()
		if x.Status != kahn.RunSuspended || len(x.Waiting) != 1 || x.Waiting[0].Node != "S/ok?" || x.Waiting[0].Deadline != x.Waiting[0].Since.Add(time.Hour) || x.Counts[kahn.Completed] != 1 {
			t.Errorf("suspended: %+v", x)
		}
		run.Leave()
		if _, err := run.Wait(); err != nil {
			t.Fatal(err)
		}
		if x := read(); x.Holder != "" || !x.HeldUntil.IsZero() || !x.WakeAt.Equal(x.Waiting[0].Deadline) {
			t.Errorf("left: %+v", x)
		}
		if err := run.Signal(ctx, "S/ok?", true); err != nil {
			t.Fatal(err)
		}
		if x := read(); x.Requests != 1 {
			t.Errorf("posted: %+v", x)
		}
		if _, err := kahn.Execute(ctx, g, step, kahn.Durable(db), kahn.RunID("1")); err != nil {
			t.Fatal(err)
		}
		if x := read(); x.Status != kahn.RunCompleted || x.Ended.IsZero() || x.Counts[kahn.Completed] != 3 || len(x.Waiting)+x.Requests > 0 || x.Holder != "" {
			t.Errorf("ended: %+v", x)
		}
	})
}
