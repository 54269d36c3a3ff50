package conformance_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/strict"
)

func init() { strict.Transitions = true }

// layered returns layers of the given width, each node with in-edges from random nodes of the layer before.
func layered(n, width, in int) *kahn.Graph {
	rng := rand.New(rand.NewPCG(7, uint64(n)))
	var g kahn.Graph
	for i := range n {
		g.Add(kahn.Node{ID: fmt.Sprint("n", i)})
		if i < width {
			continue
		}
		layer := i / width * width
		for _, j := range rng.Perm(width)[:in] {
			g.Connect(kahn.Edge{From: fmt.Sprint("n", layer-width+j), To: fmt.Sprint("n", i)})
		}
	}
	return &g
}

func compiled(t *testing.T, g *kahn.Graph) *kahn.Plan {
	t.Helper()
	p, err := g.Compile()
	require.NoError(t, err)
	return p
}

// nothing is the step that does nothing.
func nothing(context.Context, *kahn.Step) (any, error) { return nil, nil }

// thrice is a policy of three attempts with the same delay before each.
func thrice(d time.Duration) kahn.Retry {
	return kahn.Retry{MaxAttempts: 3, InitialDelay: d, MaxDelay: d, Jitter: kahn.JitterNone}
}
