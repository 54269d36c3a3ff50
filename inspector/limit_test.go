package inspector

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// A response has at most as many nodes as the page draws, and the number of all nodes.
func TestGraphOfManyNodes(t *testing.T) {
	t.Parallel()
	rn := &kahn.Runner{}
	d := serveRunner(t, rn, Options{})
	g := &kahn.Graph{}
	for i := range mostNodes + 1 {
		g.Add(kahn.Node{ID: fmt.Sprint("n", i), Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }})
	}
	run, err := rn.Start(t.Context(), g, nil, kahn.RunID("wide"))
	require.NoError(t, err)
	_, err = run.Wait()
	require.NoError(t, err)
	reply := get[graphReply](d, "api/v1/graph", "run", "wide")
	require.Equal(t, 20_001, reply.Total)
	require.Len(t, reply.Nodes, 20_000)
}
