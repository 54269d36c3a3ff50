package conformance_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/race"
)

// Every durable run hashes its graph. Nodes without JSON values are hashed in shared buffers, so the allocations have a bound for the whole
// graph, not for each node.
func TestHashAllocates(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates, too")
	}
	const n = 1000
	p, err := chainGraph(n).Compile()
	require.NoError(t, err)
	require.LessOrEqual(t, objectsOfHash(p), uint64(40))

	configured := graph()
	for i := range n {
		configured.Add(kahn.Node{ID: fmt.Sprint("n", i), Config: []int{i}})
	}
	p, err = configured.Compile()
	require.NoError(t, err)
	require.Greater(t, objectsOfHash(p), uint64(n), "the control: what needs an encoder allocates")
}

func objectsOfHash(p *kahn.Plan) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p.Hash()
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}
