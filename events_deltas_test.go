package kahn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestDeltaCounts makes random changes, and compares the counts with a plain map and with the counts in a snapshot.
func TestDeltaCounts(t *testing.T) {
	t.Parallel()
	paths := []string{"S/x", "a#0/x", "a#01/x", "a#/x", "a#x/y", "a#+1/x", "a#2", "a#2-/x"} // none of them in a loop
	for range 3 {
		for i := range 12 {
			paths = append(paths, fmt.Sprintf("L#%d/x", i+1), fmt.Sprintf("L#2/K#%d/x/y", i+1), fmt.Sprintf("M[3]/L#%d/n#z", i+1))
		}
	}
	for seed := range seeds(t, size(200, 50, 20_000)) {
		rng := rand.New(rand.NewPCG(17, seed))
		want, got := map[string]int{}, new(kahn.DeltaCounts)
		for range rng.IntN(200) {
			path := paths[rng.IntN(len(paths))]
			want[path] = 1 + rng.IntN(2)
			got.Set(path, want[path])
			if rng.IntN(50) == 0 {
				got = kahn.ReadDeltas(got.Saved())
			}
		}
		for _, path := range append(paths, "L#13/x", "L#1/y", "L#2/K#1/x") {
			require.Equal(t, want[path], got.Of(path), "seed %d: %s", seed, path)
		}
		saved := got.Saved()
		require.LessOrEqual(t, len(saved), len(want))
		again := kahn.ReadDeltas(saved)
		require.Equal(t, saved, again.Saved())
		for path, n := range want { // records in a store contain single iterations, in addition to the counts in the run's record
			saved[path] = max(saved[path], n)
		}
		again = kahn.ReadDeltas(saved)
		for path, n := range want {
			require.Equal(t, n, again.Of(path), "seed %d: %s", seed, path)
		}
	}
	for _, damaged := range []map[string]int{{"L#1-9000000000000000000/x": 1, "L#5-7/x": 2}, {"L#7-5/x": 1}, {"L#99999999999999999999-3/x": 2}, {"L#-5/x": 3}} {
		kahn.ReadDeltas(damaged).Set("L#6/x", 4)
	}
}

// TestGrowthOfDeltas: the memory for the delta counts of a loop does not grow with the number of iterations.
func TestGrowthOfDeltas(t *testing.T) {
	t.Parallel()
	for _, emitted := range []func(i int) int{func(int) int { return 1 }, func(i int) int { return 1 + i/100 }} {
		turns := 0
		g := graph(kahn.Node{ID: "L", Sub: graph(kahn.Node{ID: "a"}, after("b", "a")), Loop: &kahn.Loop{Until: func(v kahn.View) (bool, error) {
			turns++
			return v.Iteration() >= 400, nil
		}, MaxIterations: 1000}})
		rec := newRecorder()
		res, err := kahn.Execute(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
			for range emitted(turns) {
				s.Emit("x")
			}
			return nil, nil
		}, kahn.OnEvent(rec.add))
		require.NoError(t, err)
		checkEvents(t, g, res, rec.all())
		data, err := json.Marshal(res.Snapshot())
		require.NoError(t, err)
		var file struct{ Deltas map[string]int }
		require.NoError(t, json.Unmarshal(data, &file))
		require.LessOrEqual(t, len(file.Deltas), 10, "%v", slices.Sorted(maps.Keys(file.Deltas)))

		// All iterations are performed again, and their deltas continue the counts.
		turns = 0
		var again *kahn.Result
		again, err = kahn.Execute(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
			s.Emit("x")
			return nil, nil
		}, kahn.OnEvent(rec.add), kahn.Redrive(reload(t, res.Snapshot()), []string{"L"}))
		require.NoError(t, err)
		checkEvents(t, g, again, rec.all())
	}
}
