package conformance_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// cut is a store whose process dies at one write, before or after the store applies it.
type cut struct {
	*store.Memory
	left    int // the number of writes before that write; if negative, the process does not die
	applied bool
}

func (s *cut) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if s.left--; s.left != -1 {
		return s.Memory.Commit(ctx, l, c)
	}
	if s.applied {
		if a, err := s.Memory.Commit(ctx, l, c); err != nil || a != store.AppliedNow {
			return a, err
		}
	}
	return 0, fmt.Errorf("%w: the process has died", kahn.ErrUnusable)
}

// A process dies at each write of Adopt. Afterwards the run has either the old plan or the complete new plan, and Adopt may be called again.
func TestAdoptIsCut(t *testing.T) {
	t.Parallel()
	v1 := versionOf("small", kahn.Node{ID: "old", After: []string{"fetch"}})
	v2 := versionOf("large", kahn.Node{ID: "new", After: []string{"fetch"}})
	p1, err := v1.Compile()
	require.NoError(t, err)
	p2, err := v2.Compile()
	require.NoError(t, err)
	finish := func(db *store.Memory, g *kahn.Graph) string {
		res, err := kahn.Execute(t.Context(), g, nothing, kahn.RunID("r"), kahn.Durable(db), kahn.Lease("us", 0))
		require.NoError(t, err)
		text := res.Status.String()
		for n := range res.Nodes() {
			text += fmt.Sprint(" ", n.ID, ":", n.Status)
		}
		return text
	}
	whole := new(store.Memory)
	require.Contains(t, finish(whole, v1), "suspended")
	_, err = kahn.Adopt(t.Context(), v2, whole, "r", kahn.Lease("us", 0))
	require.NoError(t, err)
	want := finish(whole, v2)
	cuts := 0
	for left := 0; ; left++ {
		died := false
		for _, applied := range []bool{false, true} {
			db := new(store.Memory)
			require.Contains(t, finish(db, v1), "suspended")
			s := &cut{Memory: db, left: left, applied: applied}
			_, err := kahn.Adopt(t.Context(), v2, s, "r", kahn.Lease("us", 0))
			if s.left >= 0 {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, kahn.ErrStore)
			died = true
			cuts++
			stored, err := db.Load(t.Context(), "r")
			require.NoError(t, err)
			if left == 0 && !applied { // the first write contains the whole change; the second one releases the run
				require.Equal(t, p1.Hash(), stored.Plan)
			} else {
				require.Equal(t, p2.Hash(), stored.Plan)
			}
			got, err := kahn.Adopt(t.Context(), v2, db, "r", kahn.Lease("us", 0))
			require.NoError(t, err)
			require.Contains(t, got.Keep, "fetch")
			require.Equal(t, want, finish(db, v2))
		}
		if !died {
			break
		}
	}
	require.Positive(t, cuts)
}
