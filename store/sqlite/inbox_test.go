package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
	"github.com/seed-c794f7ef/kahn/storetest"
)

func TestInbox(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]func() string{"file": func() string { return file(t) }, "memory": func() string { return ":memory:" }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.RunInbox(t, func(t *testing.T) store.Inbox { return openStore(t, path(), sqlite.Options{}) })
		})
	}
}

func TestAwaits(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]func() string{"file": func() string { return file(t) }, "memory": func() string { return ":memory:" }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.RunAwaits(t, func(t *testing.T) store.Awaiter { return openStore(t, path(), sqlite.Options{}) })
		})
	}
}

// TestInboxOfAnotherProcess: a running run takes requests that another process posts to the file.
func TestInboxOfAnotherProcess(t *testing.T) {
	t.Parallel()
	path := file(t)
	storetest.RunPost(t, openStore(t, path, sqlite.Options{}), openStore(t, path, sqlite.Options{}))
}

// TestPostTx: one transaction commits or rolls back both the posted request and the program's own row.
func TestPostTx(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t), sqlite.Options{})
	_, err := s.DB().Exec("CREATE TABLE answers (id TEXT)")
	require.NoError(t, err)
	storetest.RunPostTx(t, s, func(run string, q store.Request, fails error) (posted bool, err error) {
		tx, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.Exec("INSERT INTO answers VALUES (?)", q.ID)
		require.NoError(t, err)
		if posted, err = s.PostTx(t.Context(), tx, run, q); err == nil {
			err = fails
		}
		if err != nil {
			return posted, errors.Join(err, tx.Rollback())
		}
		return posted, tx.Commit()
	}, func() (answers int) {
		require.NoError(t, s.DB().QueryRow("SELECT count(*) FROM answers").Scan(&answers))
		return answers
	})
}

// TestDamagedRequests: LoadRequests, FindRequest and Post detect a request that was changed.
func TestDamagedRequests(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t), sqlite.Options{})
	lease := storetest.Begin(t, s, "r")
	_, err := s.Post(t.Context(), "r", store.Request{ID: "1", Kind: store.KindCancelNode, Node: "a"})
	require.NoError(t, err)
	_, err = s.DB().Exec("UPDATE kahn_requests SET node = 'b'")
	require.NoError(t, err)
	_, err = s.LoadRequests(t.Context(), "r", 0, 10)
	require.ErrorIs(t, err, sqlite.ErrDamaged)
	_, err = s.FindRequest(t.Context(), "r", "1")
	require.ErrorIs(t, err, sqlite.ErrDamaged)
	_, err = s.Post(t.Context(), "r", store.Request{ID: "1", Kind: store.KindCancelNode, Node: "a"})
	require.ErrorIs(t, err, sqlite.ErrDamaged)
	storetest.Commit(t, s, lease, store.Commit{Sequence: 2})
}

// TestPollOptions: Open refuses a negative Poll.
func TestPollOptions(t *testing.T) {
	t.Parallel()
	_, err := sqlite.Open(file(t), sqlite.Options{Poll: -1})
	require.ErrorIs(t, err, kahn.ErrBadValue)
}

// TestManyOpenRuns: 200 open runs of one process all get the requests that another Store has posted.
func TestManyOpenRuns(t *testing.T) {
	t.Parallel()
	const runs = 200
	path := file(t)
	s, other := openStore(t, path, sqlite.Options{Synchronous: sqlite.Normal}), openStore(t, path, sqlite.Options{Synchronous: sqlite.Normal})
	g := new(kahn.Graph).Add(kahn.Node{ID: "gate", Kind: kahn.KindGate})
	var open []*kahn.Run
	for i := range runs {
		run, err := kahn.Start(t.Context(), g, func(context.Context, *kahn.Step) (any, error) { return nil, nil }, kahn.RunID(fmt.Sprint(i)), kahn.Durable(s))
		require.NoError(t, err)
		open = append(open, run)
	}
	for i := range open {
		q, err := kahn.PrepareSignal("gate", i)
		require.NoError(t, err)
		_, err = other.Post(t.Context(), fmt.Sprint(i), q)
		require.NoError(t, err)
	}
	for i, run := range open {
		select {
		case <-run.Done():
		case <-time.After(time.Minute):
			t.Fatal("run ", i, " has no answer")
		}
		res, err := run.Wait()
		require.NoError(t, err)
		require.Equal(t, i, res.Output())
	}
}
