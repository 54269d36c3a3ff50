package ordset

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAgainstMap compares sets of many sizes, including the boundaries between levels, with a map.
func TestAgainstMap(t *testing.T) {
	for _, n := range []int{1, 2, 63, 64, 65, 4095, 4096, 4097, 262144, 262145} {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		s, model := Make(n), map[int]bool{}
		for range 3000 {
			switch i := rng.IntN(n); rng.IntN(4) {
			case 0, 1:
				s.Insert(i)
				model[i] = true
			case 2:
				require.Equal(t, model[i], s.Remove(i))
				delete(model, i)
			case 3:
				want, found := 0, false
				for k := range model {
					if !found || k < want {
						want, found = k, true
					}
				}
				got, ok := s.PopMin()
				require.Equal(t, found, ok)
				require.Equal(t, want, got)
				delete(model, want)
			}
			require.Equal(t, len(model), s.Len())
			i := rng.IntN(n)
			require.Equal(t, model[i], s.Has(i))
		}
	}
}

func TestEdges(t *testing.T) {
	var zero Set
	_, ok := zero.PopMin()
	require.False(t, ok)
	require.False(t, zero.Remove(0))
	require.False(t, zero.Has(0))
	require.False(t, (*Set)(nil).Has(0))

	empty := Make(0)
	_, ok = empty.PopMin()
	require.False(t, ok)

	s := Make(100_000)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.Insert(99_999)
		s.Insert(5)
		s.PopMin()
		s.Remove(99_999)
	}))
}
