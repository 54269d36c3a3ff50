package conformance_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestOddKeys: the Key of an edge may be any text. If the output has the whole text as a key, the edge delivers this entry. Otherwise each dot
// leads one level down.
func TestOddKeys(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a.", 10_000)
	quotes := `"q" 'q' ` + "`q`\n\x00"
	output := map[string]any{"": "empty", "a": map[string]any{"": map[string]any{"b": "stepwise"}, "b": "ab"}, "x..y": "literal", quotes: "quotes", long: "long", "..": "dots"}
	for key, want := range map[string]any{
		"a.b": "ab", "a..b": "stepwise", "x..y": "literal", quotes: "quotes", long: "long", "..": "dots", // found
		".": nil, "a.": map[string]any{"b": "stepwise"}, ".a": nil, "x.y": nil, "b": nil, long + "b": nil, "...": nil, "a.b.c": nil,
	} {
		name := fmt.Sprintf("%.40q", key)
		g := graph(kahn.Node{ID: "A", Do: yields(0, output)}, kahn.Node{ID: "B", In: []kahn.Edge{{From: "A", Key: key, Param: "p"}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			v, err := kahn.Param[any](s, "p")
			if err != nil {
				require.ErrorIs(t, err, kahn.ErrNoValue, name)
				require.Less(t, len(err.Error()), 4000, name)
			}
			require.Equal(t, want != nil, err == nil, "%s: %v", name, err)
			return v, nil
		}})
		rec := newRecorder()
		res, err := kahn.Execute(t.Context(), g, nil, kahn.OnEvent(rec.add))
		require.NoError(t, err, name)
		b, _ := res.Node("B")
		require.Equal(t, want, b.Output, name)
		checkEvents(t, g, res, rec.all())
	}
}

// TestOddArguments asks plans and muxes about nodes and kinds that do not exist.
func TestOddArguments(t *testing.T) {
	t.Parallel()
	p := compiled(t, graph(after("A"), after("B", "A"), kahn.Node{ID: "end", Kind: kahn.KindEnd}))
	for _, id := range []string{"", "C", "A/B", "A[0]", strings.Repeat("A", 1<<16), "\x00"} {
		require.Nil(t, p.Ancestors(id))
		require.Nil(t, p.Descendants(id))
	}
	require.Equal(t, []string{"A", "B"}, p.Ancestors("end"))
	require.Empty(t, p.Descendants("end"))
	require.Empty(t, p.Ancestors("A"))
	require.Equal(t, []string{"B", "end"}, p.Descendants("A"))
	for _, m := range []kahn.Mux{nil, {}, {"": nil}, {"k": nil}} {
		require.ErrorIs(t, m.Check(nil), kahn.ErrNoGraph)
		require.NoError(t, m.Check(new(kahn.Graph)))
		require.ErrorIs(t, m.Check(graph(kahn.Node{ID: "A", Kind: "k"})), kahn.ErrUnknownKind)
		require.ErrorIs(t, m.Check(graph(kahn.Node{ID: "A"})), kahn.ErrUnknownKind)
		require.ErrorIs(t, m.Check(graph(kahn.Node{ID: "A", After: []string{"B"}})), kahn.ErrUnknownNode)
		require.NoError(t, m.Check(graph(kahn.Node{ID: "A", Do: nop})))
		require.Empty(t, m.Kinds())
	}
}
