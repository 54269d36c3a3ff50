package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/notify"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
)

func cancels(id string) store.Request { return store.Request{ID: id, Kind: store.KindCancel} }

// answer waits for the result of a call in another goroutine.
func answer(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the call does not return")
		return nil
	}
}

// TestLockedRun: while the program's own transaction locks a run, commits and renewals of other runs proceed, and calls for the locked run wait
// for the transaction.
func TestLockedRun(t *testing.T) {
	t.Parallel()
	pool := postgrestest.NewPool(t, database, func(c *pgxpool.Config) { c.MaxConns = 8 })
	s := openWith(t, pool, postgres.Options{Schema: newSchema(), Timeout: time.Minute})
	leases := []store.Lease{begun(t, s, "r0"), begun(t, s, "r1"), begun(t, s, "r2")}
	calls := map[string]func(l store.Lease) error{
		"commit": func(l store.Lease) error {
			a, err := s.Commit(t.Context(), l, store.Commit{Sequence: 2, Ready: []string{"a"}})
			if err == nil && a != store.AppliedNow {
				err = fmt.Errorf("%v", a)
			}
			return err
		},
		"renew":   func(l store.Lease) error { return s.Renew(t.Context(), l, time.Minute) },
		"release": func(l store.Lease) error { return s.Release(t.Context(), l) },
	}
	for _, what := range []string{"commit", "renew", "release"} {
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // does nothing after a commit
		_, err = s.PostTx(t.Context(), tx, "r1", cancels(what))
		require.NoError(t, err)
		results := make([]chan error, len(leases))
		for _, i := range []int{1, 0, 2} {
			results[i] = make(chan error, 1)
			go func() { results[i] <- calls[what](leases[i]) }()
			if i == 1 { // the calls for the other runs begin later
				require.Eventually(t, func() bool { return s.Underway() > 0 }, 10*time.Second, time.Millisecond)
			}
		}
		require.NoError(t, answer(t, results[0]), what)
		require.NoError(t, answer(t, results[2]), what)
		require.Empty(t, results[1], what)
		_, err = s.PostTx(t.Context(), tx, "r0", cancels(what)) // locks the rows in an order that differs from the order of the ids
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, answer(t, results[1]), what)
	}
}

// TestPostedTwiceAtOnce: if two transactions post the same request at once, the second one waits, and then reports that it has posted nothing.
func TestPostedTwiceAtOnce(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	f := openForeign(t, pool, schema)
	for name, s := range map[string]store.Inbox{"store": f.Store, "function": f} {
		begun(t, f.Store, name)
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // does nothing after a commit
		_, err = f.PostTx(t.Context(), tx, name, cancels("1"))
		require.NoError(t, err)
		posted, result := true, make(chan error, 1)
		go func() {
			var err error
			posted, err = s.Post(t.Context(), name, cancels("1"))
			result <- err
		}()
		require.Eventually(t, func() bool {
			var waits bool
			err := pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity a WHERE $1 = ANY (pg_blocking_pids(a.pid)))", int32(tx.Conn().PgConn().PID())).Scan(&waits)
			return err == nil && waits
		}, 20*time.Second, time.Millisecond, name)
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, answer(t, result), name)
		require.False(t, posted, name)
	}
}

// TestLockedForLong: a commit fails if its run stays locked for longer than Options.Timeout, and succeeds when it is repeated later.
func TestLockedForLong(t *testing.T) {
	t.Parallel()
	pool := postgrestest.NewPool(t, database)
	s := openWith(t, pool, postgres.Options{Schema: newSchema(), Timeout: 5 * time.Second})
	lease := begun(t, s, "r")
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // does nothing after a commit
	_, err = s.PostTx(t.Context(), tx, "r", cancels("1"))
	require.NoError(t, err)
	_, err = s.Commit(t.Context(), lease, store.Commit{Sequence: 2, Ready: []string{"a"}})
	require.ErrorContains(t, err, "another transaction has locked the run")
	require.NotErrorIs(t, err, store.ErrUnusable)
	require.NotErrorIs(t, err, store.ErrRejected)
	require.ErrorContains(t, s.Renew(t.Context(), lease, time.Minute), "another transaction has locked the run")
	require.NoError(t, tx.Commit(t.Context()))
	commit(t, s, lease, store.Commit{Sequence: 2, Ready: []string{"a"}})
	require.NoError(t, s.Renew(t.Context(), lease, time.Minute))
}

// TestAnswerOfLaterRequest: a commit may answer a request that was posted after the run was loaded, and still takes one statement. An answer to
// a request that was never posted is a conflict.
func TestAnswerOfLaterRequest(t *testing.T) {
	t.Parallel()
	counter := new(statements)
	s := openStore(t, postgrestest.NewPool(t, database, func(c *pgxpool.Config) { c.ConnConfig.Tracer = counter }), newSchema())
	lease := begun(t, s, "r")
	for i, id := range []string{"a", "b"} {
		_, err := s.Post(t.Context(), "r", cancels(id))
		require.NoError(t, err)
		before := counter.count.Load()
		commit(t, s, lease, store.Commit{Sequence: uint64(i) + 2, Taken: []store.TakenRequest{{Number: uint64(i) + 1}}})
		require.EqualValues(t, 1, counter.count.Load()-before)
	}
	a, err := s.Commit(t.Context(), lease, store.Commit{Sequence: 4, Taken: []store.TakenRequest{{Number: 3}}})
	require.NoError(t, err)
	require.Equal(t, store.Conflict, a)
}

// TestLook: look finds only the requests that were posted since the last look. It also finds them if their transaction had begun before the
// last look.
func TestLook(t *testing.T) { // not parallel: while transactions of other tests run, look finds old requests again
	pool := postgrestest.NewPool(t, database)
	s := openStore(t, pool, newSchema())
	for i := range 100 {
		begun(t, s, fmt.Sprint("r", i))
		_, err := s.Post(t.Context(), fmt.Sprint("r", i), cancels("1"))
		require.NoError(t, err)
	}
	l := postgres.NewLookout(s)
	look := func(asked notify.Question) []string {
		t.Helper()
		runs, err := l.Look(t.Context(), asked)
		require.NoError(t, err)
		return runs
	}
	nothing := func() { // wait until look finds nothing: look finds a request again while a transaction that began before the request is running
		t.Helper()
		require.Eventually(t, func() bool { return len(look(notify.Question{})) == 0 }, 20*time.Second, time.Millisecond)
	}
	require.Len(t, look(notify.Question{}), 100)
	nothing()
	early, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = early.Rollback(context.WithoutCancel(t.Context())) }() // does nothing after a commit
	_, err = s.PostTx(t.Context(), early, "r7", cancels("2"))
	require.NoError(t, err)
	require.Empty(t, look(notify.Question{}))
	_, err = s.Post(t.Context(), "r8", cancels("2"))
	require.NoError(t, err)
	require.Equal(t, []string{"r8"}, look(notify.Question{}))
	require.NoError(t, early.Commit(t.Context()))
	require.Contains(t, look(notify.Question{}), "r7")
	require.Subset(t, look(notify.Question{Names: []string{"r1", "r2", "none"}}), []string{"r1", "r2"})
	require.Len(t, look(notify.Question{All: true}), 100)
	nothing()
}

// TestAnnouncementsWithoutOwner: Announce without an Owner does not wait for other announcements.
func TestAnnouncementsWithoutOwner(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	s := openWith(t, pool, postgres.Options{Schema: schema, Timeout: 2 * time.Second})
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(hashtextextended($1, 1))", "kahn "+schema+" ")
		require.NoError(t, err)
		return s.Announce(t.Context(), store.Announcement{Process: "p", TTL: time.Minute, Queues: []store.Queue{{Workflow: "w"}}})
	}))
}
