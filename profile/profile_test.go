package profile_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"runtime/trace"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/profile"
)

func graph(nodes ...kahn.Node) *kahn.Graph { return new(kahn.Graph).Add(nodes...) }

func after(id string, sources ...string) kahn.Node { return kahn.Node{ID: id, After: sources} }

func nothing(context.Context, *kahn.Step) (any, error) { return nil, nil }

// goroutines returns the profile of all goroutines with their labels.
func goroutines(t testing.TB) string {
	t.Helper()
	var text strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		t.Error(err)
	}
	return text.String()
}

// The goroutine that runs a step has the labels exactly while the step runs, however the step ends.
func TestLabels(t *testing.T) {
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
	_, err := kahn.Execute(t.Context(), g, step, profile.Labels())
	var p *kahn.PanicError
	if !errors.As(err, &p) || seen["A"] != "labelled" || len(seen) != 1 {
		t.Errorf("%v, %v", seen, err)
	}
	g = graph(after("B"), kahn.Node{ID: "S", After: []string{"B"}, Sub: inner}, kahn.Node{ID: "plain", After: []string{"S"}, Do: step})
	if _, err := kahn.Execute(t.Context(), g, step, profile.Labels()); err != nil {
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

// The execution trace contains the task of the run and a region for every step.
func TestTrace(t *testing.T) {
	var buf bytes.Buffer
	if err := trace.Start(&buf); err != nil {
		t.Fatal(err)
	}
	g := graph(after("first node"), after("second node", "first node"))
	g.Name = "traced workflow"
	_, err := kahn.Execute(t.Context(), g, func(ctx context.Context, _ *kahn.Step) (any, error) {
		trace.Log(ctx, "category", "said by a step")
		return nil, nil
	}, profile.Trace(), kahn.RunID("run 7"))
	trace.Stop()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"kahn.run", "first node", "second node", "traced workflow", "run 7", "said by a step"} {
		if !bytes.Contains(buf.Bytes(), []byte(text)) {
			t.Errorf("the trace does not hold %q", text)
		}
	}
	// While no trace is taken, the option has no effect.
	if _, err := kahn.Execute(t.Context(), g, nothing, profile.Trace()); err != nil {
		t.Error(err)
	}
}

// A run that does not begin, or that joins another run, also ends its task in the execution trace.
func TestTraceTasksEnd(t *testing.T) {
	var buf bytes.Buffer
	require.NoError(t, trace.Start(&buf))
	keys := new(kahn.IdempotencyStore)
	opts := []kahn.Option{profile.Trace(), kahn.Idempotent(keys, "key")}
	g := graph(after("a"))
	_, err := kahn.Execute(t.Context(), g, nothing, opts...)
	require.NoError(t, err)
	_, err = kahn.Execute(t.Context(), g, nothing, opts...) // the call joins the run
	require.NoError(t, err)
	rn := new(kahn.Runner)
	require.NoError(t, rn.Shutdown(t.Context()))
	_, err = rn.Start(t.Context(), g, nothing, profile.Trace())
	require.ErrorIs(t, err, kahn.ErrShutdown)
	trace.Stop()
	file := filepath.Join(t.TempDir(), "trace")
	require.NoError(t, os.WriteFile(file, buf.Bytes(), 0o600))
	text, err := exec.CommandContext(t.Context(), "go", "tool", "trace", "-d=parsed", file).CombinedOutput()
	require.NoError(t, err, "%s", text)
	begun := bytes.Count(text, []byte(" TaskBegin "))
	require.Positive(t, begun)
	require.Equal(t, begun, bytes.Count(text, []byte(" TaskEnd ")))
}
