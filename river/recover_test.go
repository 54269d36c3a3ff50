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

// abandon makes the only job of a run one of a process that has died: it is running, and nobody holds the run.
func (x *tables) abandon(t *testing.T, id string) {
	t.Helper()
	_, err := x.pool.Exec(t.Context(), "UPDATE "+pgx.Identifier{x.schema, "river_job"}.Sanitize()+
		" SET state = 'running', attempt = 1, attempted_at = now() - interval '1 minute', attempted_by = '{dead}' WHERE args->>'run' = $1", id)
	require.NoError(t, err)
}

// TestRecover: the runs of processes that have died go on, soon after their leases have run out.
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

// mortal is the store of a process that dies: from then on nothing it does reaches the database.
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

// begin lets a run begin in a process that dies while it pays.
func (x *tables) begin(t *testing.T, id string) {
	t.Helper()
	process := &mortal{Store: x.store}
	run, err := kahn.Start(t.Context(), order(), func(context.Context, *kahn.Step) (any, error) {
		process.dead.Store(true)
		return nil, nil
	}, kahn.RunID(id), kahn.Durable(process), kahn.LeaseTime(500*time.Millisecond))
	require.NoError(t, err)
	_, err = run.Wait()
	require.ErrorIs(t, err, kahn.ErrStore)
}
