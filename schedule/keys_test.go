package schedule_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/schedule"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestKeys: all runs of a schedule have its key and priority, and take turns with the runs of other keys. A run waits only for earlier runs of its
// own key, and not even for these if it has a higher priority.
func TestKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, d := new(store.Memory), new(diary)
		g := (&kahn.Graph{Name: "report"}).Add(kahn.Node{ID: "a", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			d.note("%s", s.RunID())
			time.Sleep(time.Second)
			return nil, nil
		}})
		rn := &kahn.Runner{MaxRuns: 1}
		x := kahn.Service{Store: db, Workflows: []kahn.Workflow{{Graph: g}}, Poll: time.Second}
		broken := func(time.Time) (map[string]any, error) { return nil, errors.New("no rates") }
		s, err := schedule.New(rn, x,
			schedule.Schedule{Name: "acme", Workflow: "report", Cron: "0 * * * *", Key: "acme", Priority: 7},
			schedule.Schedule{Name: "globex", Workflow: "report", Cron: "0 * * * *", Key: "globex"},
			schedule.Schedule{Name: "broken", Workflow: "report", Cron: "0 * * * *", Key: "broken", Inputs: broken})
		require.NoError(t, err)
		over := make(chan error, 1)
		go func() { over <- s.Serve(t.Context()) }()
		time.Sleep(59*time.Minute + 58500*time.Millisecond)
		for _, id := range []string{"1", "2", "3", "4"} { // these runs are due before the ticks
			n, err := kahn.Prepare(g, kahn.RunID("acme-"+id), kahn.RunKey("acme"))
			require.NoError(t, err)
			_, _, err = db.Create(t.Context(), n)
			require.NoError(t, err)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		require.NoError(t, rn.Shutdown(t.Context()))
		require.NoError(t, <-over)
		list := d.take()
		require.Len(t, list, 6)
		behind := map[string]int{} // by run: how many runs begin before it
		for i, id := range list {
			behind[id] = i
		}
		tick := "@2000-01-01T01:00:00Z"
		require.Less(t, behind["globex"+tick], behind["acme-4"], "in %v", list)
		require.Less(t, behind["acme"+tick], behind["acme-4"], "in %v", list)
		require.LessOrEqual(t, max(behind["globex"+tick], behind["acme"+tick]), 3, "in %v", list)
		for key, priority := range map[string]int{"acme": 7, "globex": 0, "broken": 0} {
			page, err := db.List(t.Context(), store.Query{Filter: store.Filter{Key: key, Prefix: key + "@"}})
			require.NoError(t, err)
			require.Len(t, page.Runs, 2, "a tick of %s, and the next one, which is made from the row of the schedule", key)
			for _, r := range page.Runs {
				require.Equal(t, priority, r.Priority, r.ID)
			}
		}
	})
}
