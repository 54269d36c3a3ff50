package riverkahn_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	riverkahn "github.com/seed-c794f7ef/kahn/river"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestAdopt: if a waiting run gets another plan, its job moves to the queue of that plan: at once if a Client adopts the run, and soon if a
// program without River does. If the run has not begun, its job keeps its scheduled time. If a program without River adopts a run that has not
// begun, the job moves when the run is due.
func TestAdopt(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	former, g := gated(time.Hour), gated(time.Hour)
	g.Add(kahn.Node{ID: "bill", After: []string{"ship"}})
	first := &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: former, Step: echo}}}
	c := x.perform(t, first)
	ids := []string{"by a client", "by another program"}
	for _, id := range ids {
		create(t, c, former, id)
		x.states(t, id, rivertype.JobStateCompleted, rivertype.JobStateScheduled)
	}
	require.NoError(t, first.Stop(t.Context(), c.River))
	tomorrow := time.Now().Add(24 * time.Hour)
	for _, id := range []string{"not begun", "not begun either"} {
		n, err := kahn.Prepare(former, kahn.RunID(id))
		require.NoError(t, err)
		n.NotBefore = tomorrow
		_, _, err = c.Create(t.Context(), n, riverkahn.CreateOptions{Priority: 2})
		require.NoError(t, err)
	}

	client := x.client(t)
	for _, id := range []string{"by a client", "not begun"} {
		adopted, err := client.Adopt(t.Context(), g, id)
		require.NoError(t, err)
		require.NotEmpty(t, adopted.Run)
	}
	for _, id := range []string{"by another program", "not begun either"} {
		_, err := kahn.Adopt(t.Context(), g, x.store, id)
		require.NoError(t, err)
	}
	stored, err := x.store.Head(t.Context(), "not begun")
	require.NoError(t, err)
	queue := riverkahn.QueueOf(stored.Workflow, stored.Plan)
	jobs := x.jobs(t, "not begun")
	require.Len(t, jobs, 1)
	require.Equal(t, queue, jobs[0].Queue)
	require.Equal(t, rivertype.JobStateScheduled, jobs[0].State)
	require.Equal(t, 2, jobs[0].Priority)
	require.WithinDuration(t, tomorrow, jobs[0].ScheduledAt, time.Millisecond)
	jobs = x.jobs(t, "by a client")
	require.Equal(t, queue, jobs[len(jobs)-1].Queue)
	stored, err = x.store.Head(t.Context(), "by a client")
	require.NoError(t, err)
	require.WithinDuration(t, stored.WakeAt, jobs[len(jobs)-1].ScheduledAt, time.Millisecond, "the gate asks again")

	x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: echo}}})
	for i, id := range ids {
		_, err := client.Post(t.Context(), id, signal(t, string(rune('1'+i)), "yes"))
		require.NoError(t, err)
		x.reaches(t, id, kahn.RunCompleted)
		res, err := kahn.ReadResult(t.Context(), g, x.store, id)
		require.NoError(t, err)
		require.Equal(t, 4, res.Count(kahn.Completed))
	}
	require.NotEqual(t, queue, x.jobs(t, "not begun either")[0].Queue, "nobody has looked for it yet")
	for _, text := range []string{
		"UPDATE " + pgx.Identifier{x.store.Schema(), "runs"}.Sanitize() + " SET wake = now() WHERE id = 'not begun either'",
		"UPDATE " + pgx.Identifier{x.schema, "river_job"}.Sanitize() + " SET state = 'available', scheduled_at = now() WHERE args->>'run' = 'not begun either'",
	} { // make the run due now
		_, err := x.pool.Exec(t.Context(), text)
		require.NoError(t, err)
	}
	x.reaches(t, "not begun either", kahn.RunSuspended)

	_, err = client.Adopt(t.Context(), g, "by a client")
	require.ErrorIs(t, err, kahn.ErrFinished)
	_, err = client.Adopt(t.Context(), g, "nobody")
	require.ErrorIs(t, err, store.ErrUnknownRun)
}
