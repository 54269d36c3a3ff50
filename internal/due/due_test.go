package due

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

type task struct {
	Entry
	name int
}

// TestRandomOrders compares the queue with a list that is sorted after each call.
func TestRandomOrders(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		q, model := Queue[*task]{}, []*task(nil)
		all := make([]*task, 20)
		for i := range all {
			all[i] = &task{name: i}
		}
		for range 300 {
			x := all[rng.IntN(len(all))]
			there := slices.Contains(model, x)
			require.Equal(t, there, q.Has(x))
			switch rng.IntN(4) {
			case 0, 1:
				due := rng.Int64N(6) - 2
				first := q.Add(x, due)
				if !there {
					require.Equal(t, due, x.Due)
					model = append(model, x)
					slices.SortStableFunc(model, func(a, b *task) int { return cmp.Compare(a.Due, b.Due) })
				}
				require.Equal(t, !there && model[0] == x, first)
			case 2:
				model = slices.DeleteFunc(model, func(y *task) bool { return y == x })
				require.Equal(t, there, q.Remove(x))
			case 3:
				now := rng.Int64N(6) - 2
				var want *task
				if len(model) > 0 && model[0].Due <= now {
					want, model = model[0], model[1:]
				}
				got, ok := q.Next(now)
				require.Equal(t, want != nil, ok)
				require.Same(t, want, got)
			}
			require.Equal(t, len(model), q.Len())
			first, ok := q.First()
			require.Equal(t, len(model) > 0, ok)
			if ok {
				require.Same(t, model[0], first)
				require.Equal(t, model[0].Due, q.Due())
			} else {
				require.EqualValues(t, math.MaxInt64, q.Due())
			}
		}
	}
}

// TestGrowth: adding and removing an element takes a number of comparisons that grows with the logarithm of the queue's length.
func TestGrowth(t *testing.T) {
	const n = 1 << 14
	var q Queue[*task]
	all := make([]task, n)
	for i := range all {
		q.Add(&all[i], int64(n-i))
	}
	for i := range all {
		q.Remove(&all[(i*7919)%n])
	}
	require.Zero(t, q.Len())
	require.Less(t, q.Steps(), int64(4*14*n))
}
