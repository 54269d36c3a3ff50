package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	modernc "modernc.org/sqlite"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
	"github.com/seed-c794f7ef/kahn/storetest"
)

func openStore(t *testing.T, path string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(path, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// file returns the path of a new database.
func file(t *testing.T) string { return filepath.Join(t.TempDir(), "runs #1 50%.db") }

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store { return openStore(t, file(t), sqlite.Options{}) })
}

func TestStoreNormal(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store {
		return openStore(t, file(t), sqlite.Options{Synchronous: sqlite.Normal, MaxBytes: 64 << 20, BusyTimeout: time.Second})
	})
}

func TestStoreInMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store { return openStore(t, ":memory:", sqlite.Options{}) })
}

// begun acquires a run and makes its first commit. commit makes a commit that must be applied.
var begun, commit = storetest.Begin, storetest.Commit

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]sqlite.Options{
		"Synchronous(2)": {Synchronous: 2}, "BusyTimeout -1ns": {BusyTimeout: -1}, "MaxBytes -1": {MaxBytes: -1},
		"BusyTimeout 5ns: is its unit missing?": {BusyTimeout: 5}, "Poll 5ns: is its unit missing?": {Poll: 5},
	} {
		_, err := sqlite.Open(file(t), o)
		require.ErrorIs(t, err, machine.ErrBadValue)
		require.ErrorContains(t, err, name)
	}
	_, err := sqlite.Open("", sqlite.Options{})
	require.ErrorIs(t, err, machine.ErrBadValue)
	_, err = sqlite.Open(file(t), sqlite.Options{Now: "no_such_function()"})
	require.ErrorContains(t, err, "no_such_function")
	_, err = sqlite.Open(filepath.Join(t.TempDir(), "none", "runs.db"), sqlite.Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestColumns: plain SQL can read the state of a run.
func TestColumns(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t), sqlite.Options{})
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "a", Do: func(context.Context, *kahn.Step) (any, error) { return map[string]any{"n": "x"}, nil }},
		kahn.Node{ID: "b", After: []string{"a"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("broken") }},
		kahn.Node{ID: "c", After: []string{"b"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }},
	)
	before := time.Now()
	_, err := kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(s))
	require.Error(t, err)
	var status string
	var ended int64
	require.NoError(t, s.DB().QueryRow("SELECT status, ended FROM kahn_runs WHERE id = 'r'").Scan(&status, &ended))
	require.Equal(t, "failed", status)
	require.WithinDuration(t, before, time.UnixMilli(ended), time.Minute)
	rows, err := s.DB().Query("SELECT key, n.status, cause, value, started, attempt FROM kahn_nodes n JOIN kahn_runs ON node / 16777216 = run WHERE id = 'r' ORDER BY key")
	require.NoError(t, err)
	var got []string
	for rows.Next() {
		var key, status string
		var cause, value sql.NullString
		var started sql.NullInt64
		var attempt int
		require.NoError(t, rows.Scan(&key, &status, &cause, &value, &started, &attempt))
		got = append(got, fmt.Sprintf("%s %s %s %s %d", key, status, cause.String, value.String, attempt))
		if started.Int64 != 0 {
			require.WithinDuration(t, before, time.Unix(0, started.Int64), time.Minute)
		}
	}
	require.NoError(t, rows.Err())
	require.Equal(t, []string{`a completed  {"n":"x"} 1`, "b failed step_error  1", "c aborted upstream_failure  0"}, got)
}

// transactions counts the write transactions of each database, over all its connections.
var transactions sync.Map // of *atomic.Int64, by path

func init() {
	modernc.RegisterConnectionHook(func(conn modernc.ExecQuerierContext, dsn string) error {
		count, _ := transactions.LoadOrStore(strings.SplitN(dsn, "?", 2)[0], new(atomic.Int64))
		conn.(modernc.HookRegisterer).RegisterCommitHook(func() int32 {
			if count.(*atomic.Int64).Add(1) < 0 {
				return 1 // a result other than 0 makes SQLite roll back the transaction
			}
			return 0
		})
		return nil
	})
	modernc.MustRegisterScalarFunction("test_now", 0, func(*modernc.FunctionContext, []driver.Value) (driver.Value, error) {
		return time.Now().UnixMilli(), nil
	})
	modernc.MustRegisterScalarFunction("jumping_now", 0, func(*modernc.FunctionContext, []driver.Value) (driver.Value, error) {
		return time.Now().UnixMilli() + shift.Load(), nil
	})
}

// shift is added to the time of databases whose Options.Now is jumping_now().
var shift atomic.Int64

// counter returns the counter of write transactions of a database. While its value is negative, every commit of a transaction fails.
func counter(t *testing.T, s *sqlite.Store) (found *atomic.Int64) {
	t.Helper()
	var path string
	require.NoError(t, s.DB().QueryRow("SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&path))
	dir := filepath.Dir(path)
	transactions.Range(func(dsn, count any) bool {
		if strings.Contains(dsn.(string), filepath.Base(dir)) && strings.Contains(dsn.(string), filepath.Base(filepath.Dir(dir))) && !strings.Contains(dsn.(string), "-process-") {
			found = count.(*atomic.Int64)
		}
		return true
	})
	require.NotNil(t, found)
	return found
}

// TestTransactionsAreShared: runs that commit at the same moment share a transaction, and each commit gets its own answer.
func TestTransactionsAreShared(t *testing.T) {
	t.Parallel()
	const runs, commits = 50, 20
	s := openStore(t, file(t), sqlite.Options{})
	leases := make([]store.Lease, runs)
	for i := range leases {
		leases[i] = begun(t, s, fmt.Sprint("r", i))
	}
	require.NoError(t, s.Release(t.Context(), leases[7]))
	transactions := counter(t, s)
	before := transactions.Load()
	var wg sync.WaitGroup
	for i, lease := range leases {
		wg.Go(func() {
			for sequence := range uint64(commits) {
				applied, err := s.Commit(t.Context(), lease, store.Commit{
					Sequence: sequence + 2, Started: []store.Attempt{{Node: "a", Attempt: int32(sequence + 1)}}, Nodes: []store.NodeRecord{{Node: "a", Columns: store.Columns{Record: []byte(`{}`)}}},
				})
				if i == 7 {
					if !errors.Is(err, store.ErrFenced) {
						t.Errorf("a lease that was released: %v, %v", applied, err)
					}
				} else if err != nil || applied != store.AppliedNow {
					t.Errorf("run %d: %v, %v", i, applied, err)
				}
			}
		})
	}
	wg.Wait()
	if n := transactions.Load() - before; n > runs*commits/4 {
		t.Errorf("%d transactions for %d commits", n, runs*commits)
	}
	for i := range leases {
		r, err := s.Load(t.Context(), fmt.Sprint("r", i))
		require.NoError(t, err)
		if want := uint64(commits + 1); i != 7 && r.Sequence != want {
			t.Errorf("run %d is at commit %d of %d", i, r.Sequence, want)
		}
	}
}

// TestNotCommitted: if a shared transaction cannot be committed, every call that shares it returns an error and can be repeated.
func TestNotCommitted(t *testing.T) {
	t.Parallel()
	const runs = 10
	s := openStore(t, file(t), sqlite.Options{})
	leases := make([]store.Lease, runs)
	for i := range leases {
		leases[i] = begun(t, s, fmt.Sprint("r", i))
	}
	next := func(i int) (store.Applied, error) {
		return s.Commit(t.Context(), leases[i], store.Commit{Sequence: 2, Started: []store.Attempt{{Node: "a", Attempt: 1}}})
	}
	transactions := counter(t, s)
	transactions.Store(-1000)
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			if a, err := next(i); err == nil {
				t.Errorf("run %d: %v", i, a)
			}
		})
	}
	wg.Wait()
	transactions.Store(0)
	for i := range runs {
		if a, err := next(i); err != nil || a != store.AppliedNow {
			t.Errorf("run %d: %v, %v", i, a, err)
		}
		r, err := s.Load(t.Context(), leases[i].Run)
		require.NoError(t, err)
		require.Equal(t, int32(1), r.Nodes["a"].Attempt)
	}
}

// TestOneCannotBeWritten: if the database refuses one commit, the other commits of the same transaction are still applied.
func TestOneCannotBeWritten(t *testing.T) {
	t.Parallel()
	const runs = 20
	s := openStore(t, file(t), sqlite.Options{})
	leases := make([]store.Lease, runs)
	for i := range leases {
		leases[i] = begun(t, s, fmt.Sprint("r", i))
	}
	_, err := s.DB().Exec("CREATE TRIGGER poison BEFORE INSERT ON kahn_nodes WHEN NEW.key = 'n3' BEGIN SELECT RAISE(ABORT, 'poison'); END")
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i, lease := range leases {
		wg.Go(func() {
			for sequence := range uint64(5) {
				if i == 3 {
					sequence = 0 // repeat the same commit
				}
				a, err := s.Commit(t.Context(), lease, store.Commit{Sequence: sequence + 2, Ready: []string{fmt.Sprint("m", sequence), fmt.Sprint("n", i)}})
				switch {
				case i == 3 && (err == nil || !strings.Contains(err.Error(), "poison")):
					t.Errorf("run 3: %v, %v", a, err)
				case i != 3 && (err != nil || a != store.AppliedNow):
					t.Errorf("run %d: %v, %v", i, a, err)
				}
			}
		})
	}
	wg.Wait()
	for i, lease := range leases {
		r, err := s.Load(t.Context(), lease.Run)
		require.NoError(t, err)
		if want := map[bool]int{true: 0, false: 6}[i == 3]; len(r.Nodes) != want {
			t.Errorf("run %d has %d nodes, expected %d", i, len(r.Nodes), want)
		}
	}
}

// TestContext: a call returns if its context ends while the call waits in line; a call that is being performed is finished.
func TestContext(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t), sqlite.Options{BusyTimeout: 10 * time.Second})
	lease := begun(t, s, "r")
	tx, err := s.DB().Begin() // another writer blocks the database
	require.NoError(t, err)
	alone, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = s.Commit(alone, lease, store.Commit{Sequence: 2}) // the leader waits for the database, and later calls wait for the leader
	require.ErrorIs(t, err, context.DeadlineExceeded)
	first := make(chan error, 1)
	go func() {
		_, err := s.Commit(context.WithoutCancel(t.Context()), lease, store.Commit{Sequence: 2})
		first <- err
	}()
	var calls sync.WaitGroup
	for range 10 { // any of these calls may become the leader
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := s.Commit(ctx, lease, store.Commit{Sequence: 3}); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-first)
	r, err := s.Load(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, uint64(2), r.Sequence)
}

func TestClosed(t *testing.T) {
	t.Parallel()
	path := file(t)
	s, err := sqlite.Open(path, sqlite.Options{})
	require.NoError(t, err)
	lease := begun(t, s, "r")
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, err = s.Commit(t.Context(), lease, store.Commit{Sequence: 2})
	require.ErrorIs(t, err, sqlite.ErrClosed)
	_, err = s.Load(t.Context(), "r")
	require.ErrorIs(t, err, sqlite.ErrClosed)
	_, err = s.List(t.Context(), store.Query{})
	require.ErrorIs(t, err, sqlite.ErrClosed)
	_, _, err = s.Create(t.Context(), store.NewRun{ID: "new"})
	require.ErrorIs(t, err, sqlite.ErrClosed)
	_, err = s.Prune(t.Context(), store.PruneQuery{EndedBefore: time.Now()})
	require.ErrorIs(t, err, sqlite.ErrClosed)
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	require.NoError(t, err)
	require.Equal(t, []string{path}, left, "files that are left beside the database")
	_, stored, err := openStore(t, path, sqlite.Options{}).Acquire(t.Context(), "r", "next", time.Minute)
	require.NoError(t, err, "the lease was given back")
	require.Equal(t, uint64(1), stored.Sequence)
}

// TestTwoProcesses: two Stores of one file, as in two processes, respect each other's leases.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	path := file(t)
	one, two := openStore(t, path, sqlite.Options{}), openStore(t, path, sqlite.Options{})
	lease := begun(t, one, "r")
	_, _, err := two.Acquire(t.Context(), "r", "other", time.Minute)
	require.ErrorIs(t, err, store.ErrLeased)
	_, _, err = two.Acquire(t.Context(), "r", "owner", time.Minute)
	require.ErrorIs(t, err, store.ErrLeased, "an owner of the same name in another process")
	require.NoError(t, one.Release(t.Context(), lease))
	again, _, err := two.Acquire(t.Context(), "r", "owner", time.Minute)
	require.NoError(t, err)
	require.Equal(t, lease.Epoch+1, again.Epoch)
	_, err = one.Commit(t.Context(), lease, store.Commit{Sequence: 2})
	require.ErrorIs(t, err, store.ErrFenced)
	commit(t, two, again, store.Commit{Sequence: 2, Ready: []string{"a"}})
	require.NoError(t, two.Release(t.Context(), again))
	lease, stored, err := one.Acquire(t.Context(), "r", "owner", time.Minute)
	require.NoError(t, err)
	require.True(t, stored.Nodes["a"].Queued)
	commit(t, one, lease, store.Commit{Sequence: 3, Ready: []string{"b"}})
}

func TestBackup(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t), sqlite.Options{})
	lease := begun(t, s, "r")
	copied := file(t)
	require.NoError(t, s.Backup(t.Context(), copied))
	require.ErrorIs(t, s.Backup(t.Context(), copied), os.ErrExist)
	commit(t, s, lease, store.Commit{Sequence: 2})
	b := openStore(t, copied, sqlite.Options{})
	next, stored, err := b.Acquire(t.Context(), "r", "next", time.Minute)
	require.NoError(t, err, "nobody holds the leases of a copy")
	require.Equal(t, uint64(1), stored.Sequence)
	commit(t, b, next, store.Commit{Sequence: 2, Status: kahn.RunCompleted})
	commit(t, s, lease, store.Commit{Sequence: 3})
	require.Error(t, s.Backup(t.Context(), filepath.Join(t.TempDir(), "none", "copy.db")))

	once := file(t)
	var wg sync.WaitGroup
	var made atomic.Int64
	for range 8 {
		wg.Go(func() {
			if err := s.Backup(t.Context(), once); err == nil {
				made.Add(1)
			} else if !errors.Is(err, os.ErrExist) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(1), made.Load())
	_, err = openStore(t, once, sqlite.Options{}).Load(t.Context(), "r")
	require.NoError(t, err, "a Backup that was refused has removed the copy of another one")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	failed := file(t)
	require.Error(t, s.Backup(ended, failed))
	require.NoFileExists(t, failed)
}

// TestOtherPages: bounds in bytes also apply to databases with other page sizes, and to every connection.
func TestOtherPages(t *testing.T) {
	t.Parallel()
	for _, pages := range []int{1024, 4096, 65536} {
		path := file(t)
		db, err := sql.Open("sqlite", path)
		require.NoError(t, err)
		_, err = db.Exec(fmt.Sprintf("PRAGMA page_size=%d; CREATE TABLE host (x)", pages))
		require.NoError(t, err)
		require.NoError(t, db.Close())
		s := openStore(t, path, sqlite.Options{MaxBytes: 3_000_000})
		var log, most int
		require.NoError(t, s.DB().QueryRow("PRAGMA wal_autocheckpoint").Scan(&log))
		require.NoError(t, s.DB().QueryRow("PRAGMA max_page_count").Scan(&most))
		require.Equal(t, []int{4_096_000 / pages, 3_000_000 / pages}, []int{log, most})
		_, err = s.DB().Exec("INSERT INTO host VALUES (zeroblob(4000000))")
		require.ErrorContains(t, err, "full")
	}
}

func TestMigrations(t *testing.T) {
	t.Parallel()
	schema := func(db *sql.DB) (list []string) {
		rows, err := db.Query("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
		require.NoError(t, err)
		for rows.Next() {
			var text string
			require.NoError(t, rows.Scan(&text))
			list = append(list, text)
		}
		require.NoError(t, rows.Err())
		return list
	}
	path := file(t)
	s := openStore(t, path, sqlite.Options{})
	byHand, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	byHand.SetMaxOpenConns(1)
	for i, m := range sqlite.Migrations() {
		require.Equal(t, i+1, m.Version)
		_, err := byHand.Exec(m.SQL)
		require.NoError(t, err)
	}
	require.Equal(t, schema(byHand), schema(s.DB()))
	require.NoError(t, byHand.Close())

	_, err = s.DB().Exec("UPDATE kahn_schema SET version = 99")
	require.NoError(t, err)
	_, err = sqlite.Open(path, sqlite.Options{})
	require.ErrorIs(t, err, sqlite.ErrSchema)
	require.ErrorContains(t, err, "99")
	_, err = s.DB().Exec("DELETE FROM kahn_schema")
	require.NoError(t, err)
	_, err = sqlite.Open(path, sqlite.Options{})
	require.ErrorIs(t, err, sqlite.ErrDamaged)
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	storetest.RunAdmin(t, func(t *testing.T) store.Admin {
		return openStore(t, file(t), sqlite.Options{Synchronous: sqlite.Normal})
	})
}

func TestAdminInMemory(t *testing.T) {
	t.Parallel()
	storetest.RunAdmin(t, func(t *testing.T) store.Admin { return openStore(t, ":memory:", sqlite.Options{}) })
	storetest.RunQueues(t, func(t *testing.T) store.QueueStore { return openStore(t, ":memory:", sqlite.Options{}) })
	storetest.RunTurns(t, func(t *testing.T) store.TurnStore { return openStore(t, ":memory:", sqlite.Options{}) })
	storetest.RunSchedules(t, func(t *testing.T) store.ScheduleStore { return openStore(t, ":memory:", sqlite.Options{}) })
	storetest.RunGrants(t, func(t *testing.T) store.GrantStore { return openStore(t, ":memory:", sqlite.Options{}) })
}

// TestUnknownRunNamesTheFile: each error about an unknown run has the full path of the file, since the usual cause is another file.
func TestUnknownRunNamesTheFile(t *testing.T) {
	t.Parallel()
	path := file(t)
	where := fmt.Sprintf("unknown run: the file %q does not have it; it is in another file, or was removed", path)
	s, inMemory := openStore(t, path, sqlite.Options{}), openStore(t, ":memory:", sqlite.Options{})
	q, err := kahn.PrepareSignal("g", "yes")
	require.NoError(t, err)
	for name, ask := range map[string]func(s *sqlite.Store) error{
		"Load":         func(s *sqlite.Store) error { _, err := s.Load(t.Context(), "r"); return err },
		"Post":         func(s *sqlite.Store) error { _, err := s.Post(t.Context(), "r", q); return err },
		"LoadRequests": func(s *sqlite.Store) error { _, err := s.LoadRequests(t.Context(), "r", 0, 1); return err },
		"FindRequest":  func(s *sqlite.Store) error { _, err := s.FindRequest(t.Context(), "r", "q"); return err },
		"ReadLease":    func(s *sqlite.Store) error { _, _, err := s.ReadLease(t.Context(), "r"); return err },
		"ReadRun":      func(s *sqlite.Store) error { _, err := kahn.ReadRun(t.Context(), s, "r"); return err },
	} {
		err := ask(s)
		require.ErrorIs(t, err, store.ErrUnknownRun, name)
		require.ErrorContains(t, err, where, name)
		err = ask(inMemory)
		require.ErrorIs(t, err, store.ErrUnknownRun, name)
		require.NotContains(t, err.Error(), "file", name)
	}
}
