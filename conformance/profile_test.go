package conformance_test

import (
	"bytes"
	"context"
	"errors"
	"runtime/pprof"
	"runtime/trace"
	"strings"
	"testing"

	"github.com/seed-c794f7ef/kahn"
)

// goroutines returns the profile of all goroutines with their labels.
func goroutines(t testing.TB) string {
	t.Helper()
	var text strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		t.Error(err)
	}
	return text.String()
}

// The labels are those of the goroutine that runs the step, for as long as it does, whatever becomes of it.
func TestPprofLabels(t *testing.T) {
	inner := graph(after("x"))
	g := graph(after("A"), after("B", "A"), kahn.Node{ID: "S", After: []string{"B"}, Kind: "sub", Sub: inner})
	g.Name = "labelled"
	seen := map[string]string{}
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		node, _ := pprof.Label(ctx, "kahn.node")
		workflow, _ := pprof.Label(ctx, "kahn.workflow")
		seen[node] = workflow
		if want := `"kahn.node":"` + node + `"`; !strings.Contains(goroutines(t), want) {
			t.Errorf("no goroutine is labelled %s", want)
		}
		if s.ID() == "A" {
			panic("it keeps no label back")
		}
		return nil, nil
	}
	_, err := kahn.Execute(t.Context(), g, step, kahn.PprofLabels())
	var p *kahn.PanicError
	if !errors.As(err, &p) || seen["A"] != "labelled" || len(seen) != 1 {
		t.Errorf("%v, %v", seen, err)
	}
	g = graph(after("B"), kahn.Node{ID: "S", After: []string{"B"}, Sub: inner}, kahn.Node{ID: "plain", After: []string{"S"}, Do: step})
	if _, err := kahn.Execute(t.Context(), g, step, kahn.PprofLabels()); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"B", "S/x", "plain"} {
		if _, ok := seen[path]; !ok {
			t.Errorf("no labels for %s: %v", path, seen)
		}
	}
	if strings.Contains(goroutines(t), "kahn.node") {
		t.Error("labels are left behind")
	}
	if _, err := kahn.Execute(t.Context(), graph(after("A")), func(ctx context.Context, _ *kahn.Step) (any, error) {
		if node, ok := pprof.Label(ctx, "kahn.node"); ok {
			t.Errorf("labelled %s without having been asked to", node)
		}
		return nil, nil
	}); err != nil {
		t.Error(err)
	}
}

// The execution trace holds the task of the run and a region for every step.
func TestRuntimeTrace(t *testing.T) {
	var buf bytes.Buffer
	if err := trace.Start(&buf); err != nil {
		t.Fatal(err)
	}
	g := graph(after("first node"), after("second node", "first node"))
	g.Name = "traced workflow"
	_, err := kahn.Execute(t.Context(), g, func(ctx context.Context, _ *kahn.Step) (any, error) {
		trace.Log(ctx, "category", "said by a step")
		return nil, nil
	}, kahn.RuntimeTrace(), kahn.RunID("run 7"))
	trace.Stop()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"kahn.run", "first node", "second node", "traced workflow", "run 7", "said by a step"} {
		if !bytes.Contains(buf.Bytes(), []byte(text)) {
			t.Errorf("the trace does not hold %q", text)
		}
	}
	// And without a trace being taken nothing happens.
	if _, err := kahn.Execute(t.Context(), g, nothing, kahn.RuntimeTrace()); err != nil {
		t.Error(err)
	}
}
