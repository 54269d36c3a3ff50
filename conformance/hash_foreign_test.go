package conformance_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// hashing is a Config that calls a function when it is hashed.
type hashing struct{ does *func() }

func (h hashing) MarshalJSON() ([]byte, error) {
	(*h.does)()
	return []byte("1"), nil
}

// Hashing a plan calls user code. This code may call Goexit, or ask for the hash.
func TestHashCallsUserCode(t *testing.T) {
	t.Parallel()
	does := func() {}
	g := graph(kahn.Node{ID: "A"}, kahn.Node{ID: "B", Config: hashing{&does}})
	want, err := graph(kahn.Node{ID: "A"}, kahn.Node{ID: "B", Config: 1}).Compile()
	require.NoError(t, err)
	p, err := g.Compile()
	require.NoError(t, err)

	does = runtime.Goexit
	returned := make(chan bool)
	go func() {
		defer close(returned)
		p.Hash()
		returned <- true
	}()
	require.False(t, <-returned)

	asked := []string{}
	does = func() { asked = append(asked, p.Hash()) }
	within(t, func() { require.Equal(t, want.Hash(), p.Hash()) })
	require.Equal(t, []string{""}, asked)
	require.Equal(t, want.Hash(), p.Hash())
	require.Len(t, asked, 1) // the hash was computed once, and kept
}

// The Default of an input may be a struct that has no JSON form. The hash covers its exported fields, and nothing else.
func TestHashOfADefaultWithoutJSON(t *testing.T) {
	t.Parallel()
	type settings struct {
		Call  func()
		Limit int
		note  string
	}
	of := func(x settings) string {
		g := graph(kahn.Node{ID: "A"})
		g.Inputs = []kahn.Input{{Name: "in", Default: x}}
		return compiled(t, g).Hash()
	}
	call := func() {}
	require.Equal(t, of(settings{call, 1, ""}), of(settings{call, 1, "a note"}))
	require.NotEqual(t, of(settings{call, 1, ""}), of(settings{call, 2, ""}))
	require.NotEqual(t, of(settings{call, 1, ""}), of(settings{nil, 1, ""}))
}

// A run without a store computes the hash of a graph that a step has returned when a snapshot needs the hash, and not under the run's lock. The run
// that continues compares the graph with this hash.
func TestHashOfExpansionCallsUserCode(t *testing.T) {
	t.Parallel()
	does := func() {}
	outer := graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []int{1, 2}}, Sub: graph(after("E"))})
	returns := func(inner *kahn.Graph, x kahn.StepFunc) kahn.StepFunc {
		return func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "E" {
				return nil, kahn.Expand(inner, nil, nil)
			}
			return x(ctx, s)
		}
	}
	inner := func() *kahn.Graph { return graph(kahn.Node{ID: "x", Config: hashing{&does}}) }

	began, end := make(chan bool), make(chan bool)
	run, err := kahn.Start(t.Context(), outer, returns(inner(), func(context.Context, *kahn.Step) (any, error) {
		began <- true
		<-end
		return nil, nil
	}))
	require.NoError(t, err)
	<-began
	<-began
	asked := 0
	does = func() { run.Status(); asked++ }
	var s *kahn.Snapshot
	within(t, func() { s = run.Snapshot() })
	require.NotZero(t, asked)
	was := asked
	within(t, func() { run.Snapshot() })
	require.Equal(t, was, asked, "the hashes were kept")
	close(end)
	_, err = run.Wait()
	require.NoError(t, err)

	does = func() {}
	res, err := kahn.Execute(t.Context(), outer, returns(inner(), nothing), kahn.Resume(reload(t, s)))
	require.NoError(t, err)
	require.Equal(t, kahn.RunCompleted, res.Status)
	_, err = kahn.Execute(t.Context(), outer, returns(graph(kahn.Node{ID: "x", Config: 2}), nothing), kahn.Resume(reload(t, s)))
	require.ErrorIs(t, err, kahn.ErrGraphChanged)
}
