package riverkahn_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	riverkahn "github.com/seed-c794f7ef/kahn/river"
	"github.com/seed-c794f7ef/kahn/store"
)

// abandon makes the only job of a run look like the job of a dead process: the job is running, and the run is not leased.
func (x *tables) abandon(t *testing.T, id string) {
	t.Helper()
	_, err := x.pool.Exec(t.Context(), "UPDATE "+pgx.Identifier{x.schema, "river_job"}.Sanitize()+
		" SET state = 'running', finalized_at = NULL, attempt = 1, attempted_at = now() - interval '1 minute', attempted_by = '{dead}' WHERE args->>'run' = $1", id)
	require.NoError(t, err)
}

// TestRecover: the runs of dead processes continue soon after their leases have run out.
func TestRecover(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	c := x.client(t)
	for _, id := range []string{"never acquired", "acquired", "held"} {
		create(t, c, order(), id)
		x.abandon(t, id)
	}
	_, _, err := x.store.Acquire(t.Context(), "acquired", "dead", 500*time.Millisecond)
	require.NoError(t, err)
	_, _, err = x.store.Acquire(t.Context(), "held", "alive", time.Minute)
	require.NoError(t, err)
	create(t, c, order(), "without a job")
	_, err = x.pool.Exec(t.Context(), "DELETE FROM "+pgx.Identifier{x.schema, "river_job"}.Sanitize()+" WHERE args->>'run' = 'without a job'")
	require.NoError(t, err)
	x.begin(t, "without a job")

	x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: order(), Step: echo}}})
	for _, id := range []string{"never acquired", "acquired"} {
		x.reaches(t, id, kahn.RunCompleted)
		x.states(t, id, rivertype.JobStateDiscarded, rivertype.JobStateCompleted)
		require.Len(t, x.jobs(t, id)[0].Errors, 1)
	}
	x.reaches(t, "without a job", kahn.RunCompleted)
	x.states(t, "without a job", rivertype.JobStateCompleted)
	x.states(t, "held", rivertype.JobStateRunning)
}

// TestStray: a due run continues even if its job is gone, and a waiting run gets no second job.
func TestStray(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	runs, jobs := pgx.Identifier{x.store.Schema(), "runs"}.Sanitize(), pgx.Identifier{x.schema, "river_job"}.Sanitize()
	execute := func(text string) {
		_, err := x.pool.Exec(t.Context(), text)
		require.NoError(t, err)
	}
	never, later := gated(0), gated(time.Hour)
	later.Name = "approval within an hour"
	flows := []riverkahn.Workflow{{Graph: never, Step: echo}, {Graph: later, Step: echo}, {Graph: order(), Step: echo}}
	first := &riverkahn.Performer{Workflows: flows}
	c := x.perform(t, first)
	for _, id := range []string{"posted", "asleep"} {
		create(t, c, never, id)
		x.states(t, id, rivertype.JobStateCompleted)
	}
	for _, id := range []string{"cancelled job", "deleted job", "later", "posted in time"} {
		create(t, c, later, id)
		x.states(t, id, rivertype.JobStateCompleted, rivertype.JobStateScheduled)
	}
	require.NoError(t, first.Stop(t.Context(), c.River))
	create(t, c, order(), "pending")
	n, err := kahn.Prepare(order(), kahn.RunID("tomorrow"))
	require.NoError(t, err)
	n.NotBefore = time.Now().Add(24 * time.Hour)
	_, _, err = c.Create(t.Context(), n, riverkahn.CreateOptions{})
	require.NoError(t, err)
	execute("UPDATE " + jobs + " SET state = 'cancelled', finalized_at = now() WHERE state = 'scheduled' AND args->>'run' = 'cancelled job'")
	execute("DELETE FROM " + jobs + " WHERE state <> 'completed' AND args->>'run' IN ('deleted job', 'later', 'pending', 'tomorrow')")
	execute("UPDATE " + runs + " SET wake = now() - interval '1 second' WHERE id IN ('cancelled job', 'deleted job')")
	for _, id := range []string{"posted", "posted in time"} {
		_, err = x.store.Post(t.Context(), id, signal(t, "1", "yes"))
		require.NoError(t, err)
	}

	x.perform(t, &riverkahn.Performer{Workflows: flows})
	for _, id := range []string{"posted", "posted in time", "pending"} {
		x.reaches(t, id, kahn.RunCompleted)
	}
	for _, id := range []string{"cancelled job", "deleted job"} {
		x.states(t, id, map[string][]rivertype.JobState{
			"cancelled job": {rivertype.JobStateCompleted, rivertype.JobStateCancelled, rivertype.JobStateCompleted, rivertype.JobStateScheduled},
			"deleted job":   {rivertype.JobStateCompleted, rivertype.JobStateCompleted, rivertype.JobStateScheduled},
		}[id]...)
	}
	require.Len(t, x.jobs(t, "asleep"), 1)
	require.Len(t, x.jobs(t, "later"), 1)
	require.Empty(t, x.jobs(t, "tomorrow"))
}

// lose makes the only job of a step look like the job of a silent process, after a number of earlier losses.
func (x *tables) lose(t *testing.T, losses int) {
	t.Helper()
	_, err := x.pool.Exec(t.Context(), "UPDATE "+pgx.Identifier{x.schema, "river_job"}.Sanitize()+
		" SET state = 'running', attempt = 1, attempted_at = now() - interval '1 minute', attempted_by = '{dead}', args = jsonb_set(args, '{losses}', to_jsonb($1::int)) WHERE kind = 'kahn_step'", losses)
	require.NoError(t, err)
}

// TestRecoverAndPost: posting two requests while runs and steps are recovered causes no deadlock.
func TestRecoverAndPost(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	flow := riverkahn.Workflow{Graph: mails(kahn.Node{}), Step: echo, Options: []kahn.Option{kahn.Lease("", 500*time.Millisecond)}}
	first := &riverkahn.Performer{Workflows: []riverkahn.Workflow{flow}}
	c := x.perform(t, first)
	create(t, c, flow.Graph, "letter")
	x.states(t, "letter", rivertype.JobStateCompleted)
	require.NoError(t, first.Stop(t.Context(), c.River))
	x.lose(t, 2)
	_, err := x.pool.Exec(t.Context(), "DELETE FROM "+pgx.Identifier{x.schema, "river_job"}.Sanitize()+" WHERE kind = 'kahn_run'")
	require.NoError(t, err)
	require.NoError(t, c.Wake(t.Context(), "letter"))
	x.abandon(t, "letter")
	require.Eventually(t, func() (over bool) {
		require.NoError(t, x.pool.QueryRow(t.Context(), "SELECT expires < now() FROM "+pgx.Identifier{x.store.Schema(), "runs"}.Sanitize()).Scan(&over))
		return over
	}, 10*time.Second, 10*time.Millisecond)

	tx, err := x.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // does nothing after a commit
	_, err = x.store.PostTx(t.Context(), tx, "letter", store.Request{ID: "a", Kind: store.KindCancel})
	require.NoError(t, err)
	x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{flow}})
	const waits = `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1 AND query_start < now() - interval '1.2 seconds'` // a lock wait of 1.2 seconds is longer than deadlock_timeout
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, x.pool.QueryRow(t.Context(), waits, "%"+x.schema+"%").Scan(&n))
		return n > 0
	}, 20*time.Second, 10*time.Millisecond, "nobody recovers the step")
	_, err = c.PostTx(t.Context(), tx, "letter", store.Request{ID: "b", Kind: store.KindCancel})
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	x.reaches(t, "letter", kahn.RunCancelled)
}

// TestLostStepOfEndedRun: if a step was lost too often, but its run has ended, the search still recovers other steps.
func TestLostStepOfEndedRun(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	g := mails(kahn.Node{})
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: echo}, {Graph: order(), Step: echo}}})
	create(t, c, g, "letter")
	x.states(t, "letter", rivertype.JobStateCompleted)
	_, err := c.Post(t.Context(), "letter", store.Request{ID: "a", Kind: store.KindCancel})
	require.NoError(t, err)
	x.reaches(t, "letter", kahn.RunCancelled)
	x.lose(t, 2)
	require.Eventually(t, func() bool { return x.stepJobs(t)[0] == rivertype.JobStateDiscarded }, 10*time.Second, 5*time.Millisecond)
}

// TestRecoverUnderServer: lost runs are also found while River's leader is a client with only a Server.
func TestRecoverUnderServer(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	x.serve(t, echo, nil)
	require.Eventually(t, func() (elected bool) {
		require.NoError(t, x.pool.QueryRow(t.Context(), "SELECT count(*) > 0 FROM "+pgx.Identifier{x.schema, "river_leader"}.Sanitize()).Scan(&elected))
		return elected
	}, 10*time.Second, 5*time.Millisecond)
	c := x.perform(t, &riverkahn.Performer{}) // the Performer has no workflows, so this process does not perform the run
	create(t, c, order(), "lost")
	x.abandon(t, "lost")
	x.states(t, "lost", rivertype.JobStateDiscarded, rivertype.JobStateAvailable)
}

// mortal is a store whose process can die: once dead is set, no call reaches the database.
type mortal struct {
	store.Store
	dead atomic.Bool
}

var errDead = errors.New("the process is dead")

func (m *mortal) Renew(ctx context.Context, l store.Lease, ttl time.Duration) error {
	if m.dead.Load() {
		return errDead
	}
	return m.Store.Renew(ctx, l, ttl)
}

func (m *mortal) Release(ctx context.Context, l store.Lease) error {
	if m.dead.Load() {
		return errDead
	}
	return m.Store.Release(ctx, l)
}

func (m *mortal) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if m.dead.Load() {
		return 0, errDead
	}
	return m.Store.Commit(ctx, l, c)
}

// begin begins a run in a process that dies during the step "pay".
func (x *tables) begin(t *testing.T, id string) {
	t.Helper()
	process := &mortal{Store: x.store}
	run, err := kahn.Start(t.Context(), order(), func(context.Context, *kahn.Step) (any, error) {
		process.dead.Store(true)
		return nil, nil
	}, kahn.RunID(id), kahn.Durable(process), kahn.Lease("", 500*time.Millisecond))
	require.NoError(t, err)
	_, err = run.Wait()
	require.ErrorIs(t, err, kahn.ErrStore)
}
