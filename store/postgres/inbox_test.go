package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
	"github.com/seed-c794f7ef/kahn/storetest"
)

func TestInbox(t *testing.T) {
	t.Parallel()
	pool := postgrestest.NewPool(t, database)
	open := newStores(pool)
	storetest.RunInbox(t, func(t *testing.T) store.Inbox { return open(t) })
}

func TestAwaits(t *testing.T) {
	t.Parallel()
	pool := postgrestest.NewPool(t, database)
	open := newStores(pool)
	storetest.RunAwaits(t, func(t *testing.T) store.Awaiter { return open(t) })
}

func openWith(t *testing.T, pool *pgxpool.Pool, o postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), pool, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// TestInboxOfAnotherProcess: a running run takes a request of another process, either after a notification of the server or by polling.
func TestInboxOfAnotherProcess(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]postgres.Options{
		"listening": {Listen: database, Poll: time.Hour},
		"polling":   {Poll: 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Schema = newSchema()
			storetest.RunPost(t, openWith(t, postgrestest.NewPool(t, database), o), openStore(t, postgrestest.NewPool(t, database), o.Schema))
		})
	}
}

// TestListenerReconnects: no request is missed, although the server ends the connection of the listener again and again.
func TestListenerReconnects(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	s, other := openWith(t, pool, postgres.Options{Schema: schema, Listen: database, Poll: time.Hour}), openStore(t, pool, schema)
	storetest.Begin(t, s, "r")
	told := make(chan string, 100)
	defer s.WatchRequests("r", func(run string) { told <- run })()
	for _, id := range []string{"1", "2", "3"} {
		var ended int
		listeners := "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query = 'LISTEN ' || $1"
		require.Eventually(t, func() bool {
			require.NoError(t, pool.QueryRow(t.Context(), listeners, postgres.Channel(schema)).Scan(&ended))
			return ended == 1
		}, 10*time.Second, 5*time.Millisecond)
		_, err := other.Post(t.Context(), "r", store.Request{ID: id, Kind: store.KindCancel})
		require.NoError(t, err)
		select {
		case run := <-told:
			require.Equal(t, "r", run)
		case <-time.After(20 * time.Second):
			t.Fatal("nothing is told of ", id)
		}
	}
}

// TestPostTx: one transaction commits or rolls back both the posted request and the program's own row.
func TestPostTx(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	s := openWith(t, pool, postgres.Options{Schema: schema, Listen: database})
	answers := table(schema, "answers")
	_, err := pool.Exec(t.Context(), "CREATE TABLE "+answers+" (id text)")
	require.NoError(t, err)
	storetest.RunPostTx(t, s, func(run string, q store.Request, fails error) (posted bool, err error) {
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "INSERT INTO "+answers+" VALUES ($1)", q.ID)
		require.NoError(t, err)
		if posted, err = s.PostTx(t.Context(), tx, run, q); err == nil {
			err = fails
		}
		if err != nil {
			_, alive := tx.Exec(t.Context(), "SELECT 1")
			require.NoError(t, alive)
			return posted, errors.Join(err, tx.Rollback(t.Context()))
		}
		return posted, tx.Commit(t.Context())
	}, func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+answers).Scan(&n))
		return n
	})
}

// TestListenOptions: Open refuses bad values of Listen and Poll.
func TestListenOptions(t *testing.T) {
	t.Parallel()
	pool := postgrestest.NewPool(t, database)
	for _, o := range []postgres.Options{{Listen: "host=\x00"}, {Listen: "port=x"}, {Poll: -1}} {
		o.Schema = newSchema()
		_, err := postgres.Open(t.Context(), pool, o)
		require.ErrorIs(t, err, kahn.ErrBadValue)
	}
}
