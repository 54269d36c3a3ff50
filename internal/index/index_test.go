package index

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAgainstMap compares tables of many sizes with a map. Some strings occur more than once.
func TestAgainstMap(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 3, short, short + 1, 31, 32, 33, 1000, 4097} {
		rng := rand.New(rand.NewPCG(1962, uint64(n)))
		table, model, list := Make(n), map[string]int{}, make([]string, n)
		for i := range list {
			list[i] = strconv.Itoa(rng.IntN(2 * n))
			_, taken := model[list[i]]
			require.Equal(t, !taken, table.Add(list, i))
			if !taken {
				model[list[i]] = i
			}
		}
		same := func() {
			for i := range 2*n + 1 {
				want, known := model[strconv.Itoa(i)]
				got, ok := table.Find(list, strconv.Itoa(i))
				require.Equal(t, known, ok)
				require.Equal(t, want, got)
			}
		}
		same()
		to := rng.Perm(n)
		moved := make([]string, n)
		for i, place := range to {
			moved[place] = list[i]
		}
		for s, i := range model {
			model[s] = to[i]
			if n <= short {
				model[s] = slices.Index(moved, s) // a short table finds the first of equal strings
			}
		}
		list = moved
		table.Move(func(i int) int { return to[i] })
		same()
	}
}

func TestNothing(t *testing.T) {
	t.Parallel()
	var zero Table
	_, ok := zero.Find(nil, "")
	require.False(t, ok)
	empty := Make(0)
	_, ok = empty.Find(nil, "a")
	require.False(t, ok)
}
