package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
)

// wakeTime: each applied commit replaces WakeAt, even if its own WakeAt is zero. A commit that is not applied leaves WakeAt unchanged. A store
// refuses a time in the year 0 or 10,000.
func wakeTime(ctx context.Context, s store.Store) error {
	lease, err := begun(ctx, s, "r")
	if err != nil {
		return err
	}
	first, second := time.Date(2031, 2, 3, 4, 5, 6, 7e6, time.UTC), time.Date(1999, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600))
	for i, row := range []struct {
		sequence     uint64
		wake, stored time.Time
		want         store.Applied
		ready        []string
	}{
		{2, first, first, store.AppliedNow, nil}, {2, second, first, store.Duplicate, nil}, {4, second, first, store.Conflict, nil},
		{3, second, second, store.AppliedNow, nil}, {4, time.Time{}, time.Time{}, store.AppliedNow, nil},
		{5, first, first, store.AppliedNow, []string{"a"}}, {6, time.Time{}, time.Time{}, store.AppliedNow, []string{"b"}},
	} {
		got, err := s.Commit(ctx, lease, store.Commit{Sequence: row.sequence, WakeAt: row.wake, Ready: row.ready})
		if err := expect(fmt.Sprint("commit ", i+1), got, err, row.want); err != nil {
			return err
		}
		r, err := s.Load(ctx, "r")
		if err != nil {
			return err
		}
		if !r.WakeAt.Equal(row.stored) || r.WakeAt.IsZero() != row.stored.IsZero() {
			return fmt.Errorf("after commit %d the run is to wake at %v instead of %v", i+1, r.WakeAt, row.stored)
		}
	}
	for _, year := range []int{0, 10_000} {
		_, err := s.Commit(ctx, lease, store.Commit{Sequence: 7, WakeAt: time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)})
		if err := expectError(fmt.Sprint("a time to wake in the year ", year), err, store.ErrRejected); err != nil {
			return err
		}
	}
	return nil
}
