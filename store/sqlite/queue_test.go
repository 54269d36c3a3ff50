package sqlite_test

import (
	"bufio"
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
	"github.com/seed-c794f7ef/kahn/storetest"
)

func TestQueues(t *testing.T) {
	t.Parallel()
	storetest.RunQueues(t, func(t *testing.T) store.QueueStore {
		return openStore(t, file(t), sqlite.Options{Synchronous: sqlite.Normal})
	})
}

func TestTurns(t *testing.T) {
	t.Parallel()
	storetest.RunTurns(t, func(t *testing.T) store.TurnStore {
		return openStore(t, file(t), sqlite.Options{Synchronous: sqlite.Normal})
	})
}

func TestGrants(t *testing.T) {
	t.Parallel()
	storetest.RunGrants(t, func(t *testing.T) store.GrantStore {
		return openStore(t, file(t), sqlite.Options{Synchronous: sqlite.Normal})
	})
	s := openStore(t, file(t), sqlite.Options{Synchronous: sqlite.Normal})
	ask := func(limit string, want int) ([]store.Granted, error) {
		return s.Grant(t.Context(), "holder", time.Hour, []store.GrantRequest{{Limit: limit, Most: 2, Want: want}})
	}
	for _, limit := range []string{"dead", "live", "given back"} {
		_, err := ask(limit, 1)
		require.NoError(t, err)
	}
	_, err := ask("given back", 0)
	require.NoError(t, err)
	_, err = s.DB().ExecContext(t.Context(), "UPDATE kahn_grants SET expires = 1 WHERE name = 'dead'")
	require.NoError(t, err)
	_, err = ask("new", 1)
	require.NoError(t, err)
	var names string
	require.NoError(t, s.DB().QueryRowContext(t.Context(), "SELECT group_concat(name) FROM (SELECT name FROM kahn_grants ORDER BY name)").Scan(&names))
	require.Equal(t, "live,new", names, "limits of which nobody has anything have no row")
	_, err = s.DB().ExecContext(t.Context(), "UPDATE kahn_grants SET state = '['")
	require.NoError(t, err)
	_, err = ask("new", 1)
	require.ErrorIs(t, err, sqlite.ErrDamaged)
}

// TestOneOwner: if two processes use the same owner name by mistake, the second one gets an error, and no step is called twice.
func TestOneOwner(t *testing.T) {
	t.Parallel()
	path := file(t)
	first, second := openStore(t, path, sqlite.Options{}), openStore(t, path, sqlite.Options{})
	begun, end := make(chan bool), make(chan bool)
	calls := 0
	g := heldUp(func() {
		calls++
		begun <- true
	}, end)
	opts := func(s *sqlite.Store) []kahn.Option {
		return []kahn.Option{kahn.RunID("r"), kahn.Durable(s), kahn.Lease("us", 0)}
	}
	run, err := kahn.Start(t.Context(), g, nil, opts(first)...)
	require.NoError(t, err)
	<-begun
	_, err = kahn.Execute(t.Context(), g, nil, opts(second)...)
	require.ErrorIs(t, err, kahn.ErrLeased)
	require.ErrorIs(t, err, store.ErrOwnerInUse)
	require.ErrorContains(t, err, `"us"`)
	end <- true
	_, err = run.Wait()
	require.NoError(t, err)
	require.Equal(t, 1, calls)
}

// heldUp returns a graph whose only step calls "called" and then waits for "until".
func heldUp(called func(), until <-chan bool) *kahn.Graph {
	return (&kahn.Graph{Name: "w"}).Add(kahn.Node{ID: "a", Do: func(context.Context, *kahn.Step) (any, error) {
		called()
		<-until
		return nil, nil
	}})
}

// TestServeAfterDeath: Serve takes over the runs of a killed process without waiting for its leases to run out. While the first process lives, a
// second Serve with the same owner name performs no runs and reports ErrOwnerInUse.
func TestServeAfterDeath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, filepath.Join(dir, "runs.db"), sqlite.Options{})
	open := make(chan bool)
	close(open)
	g := heldUp(func() {}, open)
	n, err := kahn.Prepare(g, kahn.RunID("r"))
	require.NoError(t, err)
	_, _, err = s.Create(t.Context(), n)
	require.NoError(t, err)
	first := child(dir, "serve")
	stdout, err := first.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, first.Start())
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && lines.Text() != "called" {
		continue
	}
	require.Equal(t, "called", lines.Text())

	told, over := make(chan error, 10), make(chan error, 1)
	rn := &kahn.Runner{Options: []kahn.Option{kahn.Lease("us", 0)}}
	go func() {
		over <- rn.Serve(t.Context(), kahn.Service{Store: s, Workflows: []kahn.Workflow{{Graph: g}}, OnError: func(_ string, _ store.Queue, err error) { told <- err }})
	}()
	require.ErrorIs(t, <-told, store.ErrOwnerInUse)
	stored, err := s.Load(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, kahn.RunRunning, stored.Status)
	require.NoError(t, first.Process.Kill())
	_ = first.Wait() // the error says that the process was killed
	require.Eventually(t, func() bool {
		stored, err := s.Load(t.Context(), "r")
		return err == nil && stored.Status == kahn.RunCompleted
	}, 20*time.Second, 10*time.Millisecond, "its lease lasts 30 seconds")
	require.NoError(t, rn.Shutdown(t.Context()))
	require.NoError(t, <-over)
}

func TestServeTogether(t *testing.T) {
	t.Parallel()
	path := file(t)
	storetest.RunServe(t, func(t *testing.T) store.QueueStore {
		return openStore(t, path, sqlite.Options{Synchronous: sqlite.Normal})
	})
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	storetest.RunSchedules(t, func(t *testing.T) store.ScheduleStore {
		return openStore(t, file(t), sqlite.Options{Synchronous: sqlite.Normal})
	})
}
