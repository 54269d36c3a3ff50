package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// size returns how many cases a random test tries: full if KAHN_LONG is set, else usual.
func size(usual, full int) int {
	if os.Getenv("KAHN_LONG") != "" {
		return full
	}
	return usual
}

// first returns the first seed of a random test: a random one if KAHN_LONG is set, else 0.
func first() uint64 {
	if os.Getenv("KAHN_LONG") != "" {
		return rand.Uint64()
	}
	return 0
}

// TestLives performs random graphs. Each run is interrupted and continued many times, over a new database.
func TestLives(t *testing.T) {
	t.Parallel()
	storetest.Lives(t, first(), size(6, 300), func(t *testing.T) store.Store {
		return openStore(t, file(t), sqlite.Options{Synchronous: sqlite.Normal, Now: "test_now()"})
	}, kahntest.CheckEvents)
}

// The environment variables that make TestChild a child process of another test, and that name its task.
const (
	childDir  = "KAHN_SQLITE_DIR"
	childTask = "KAHN_SQLITE_TASK"
)

// TestChild is the main function of the child processes that other tests start. In a normal test run it is skipped.
func TestChild(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		t.Skip("it is a process of other tests")
	}
	path := filepath.Join(dir, "runs.db")
	switch task := os.Getenv(childTask); task {
	case "run", "torn":
		var s store.Store = openStore(t, path, sqlite.Options{})
		if task == "torn" {
			s = storetest.Torn(s)
		}
		require.NoError(t, storetest.Killed(t.Context(), dir, s))
	case "asked", "torn answers": // until the parent kills the process
		var s storetest.Served = openStore(t, path, sqlite.Options{})
		if task == "torn answers" {
			s = storetest.TornAnswers(s)
		}
		require.NoError(t, storetest.ServeAsked(t.Context(), s))
	case "hold": // until the parent kills the process or closes its input
		s := openStore(t, path, sqlite.Options{})
		begun(t, s, "held")
		_, err := s.DB().Begin()
		require.NoError(t, err)
		fmt.Println("holds")
		_, err = io.Copy(io.Discard, os.Stdin)
		require.NoError(t, err)
	case "serve": // until the parent kills the process
		g := heldUp(func() { fmt.Println("called") }, nil)
		rn := &kahn.Runner{Options: []kahn.Option{kahn.Lease("us", 0)}}
		require.NoError(t, rn.Serve(t.Context(), kahn.Service{Store: openStore(t, path, sqlite.Options{}), Workflows: []kahn.Workflow{{Graph: g}}}))
	case "limit":
		limitFiles(t, 200_000)
		s := openStore(t, path, sqlite.Options{})
		t.Cleanup(func() { limitFiles(t, 1<<40) }) // Close writes the log into the database, which needs a higher limit
		_, err := kahn.Execute(t.Context(), bulky(nil), nil, kahn.RunID("r"), kahn.Durable(s), kahn.Lease("", 300*time.Millisecond))
		require.ErrorIs(t, err, kahn.ErrStore)
		fmt.Println("error:", err)
	case "nobody":
		becomeNobody(t)
		_, err := sqlite.Open(path, sqlite.Options{})
		require.ErrorIs(t, err, store.ErrUnusable)
		fmt.Println("error:", err)
	default:
		t.Fatal(task)
	}
}

// child returns the command that starts TestChild with a task.
func child(dir, task string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(os.Environ(), childDir+"="+dir, childTask+"="+task)
	return cmd
}

// starter returns a function that makes the command for a folder, with the given task: see child.
func starter(task string) func(dir string) *exec.Cmd {
	return func(dir string) *exec.Cmd { return child(dir, task) }
}

// TestCrash kills processes while they perform a run; the next process continues the run. No process waits for the lease of a killed process to
// run out.
func TestCrash(t *testing.T) {
	t.Parallel()
	storetest.RunKill(t, size(20, 500), starter("run"), starter("torn"))
}

// TestCrashAsked kills processes while they perform runs, and posts requests for these runs from this process.
func TestCrashAsked(t *testing.T) {
	t.Parallel()
	storetest.RunKillAsked(t, size(5, 300), starter("asked"), starter("torn answers"), func(t *testing.T, dir string) storetest.Served {
		return openStore(t, filepath.Join(dir, "runs.db"), sqlite.Options{})
	}, kahntest.CheckEvents)
}

// bulky returns a graph whose outputs do not fit into a database of 200,000 bytes. Its steps count their calls in "calls".
func bulky(calls map[string]int) *kahn.Graph {
	var mu sync.Mutex
	g := new(kahn.Graph)
	for i := range 12 {
		n := kahn.Node{ID: fmt.Sprint("n", i), Do: func(_ context.Context, s *kahn.Step) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			if calls != nil {
				calls[s.ID()]++
			}
			return strings.Repeat(s.ID()+" ", 10_000), nil
		}}
		if i > 0 {
			n.After = []string{fmt.Sprint("n", i-1)}
		}
		g.Add(n)
	}
	return g
}

// goesOn continues a run that a fault has stopped. Steps of nodes that are stored as ended are not called again; every other step is called
// once.
func goesOn(t *testing.T, path, fault string) {
	t.Helper()
	s := openStore(t, path, sqlite.Options{})
	before, err := s.Load(t.Context(), "r")
	require.NoError(t, err)
	done := 0
	for _, n := range before.Nodes {
		if n.Terminal {
			done++
		}
	}
	require.Greater(t, done, 1, "%s: it came before the run had got anywhere", fault)
	require.Less(t, done, 12, "%s: it did not come", fault)
	calls := map[string]int{}
	res, err := kahn.Execute(t.Context(), bulky(calls), nil, kahn.RunID("r"), kahn.Durable(s))
	require.NoError(t, err)
	require.Equal(t, 12, res.Count(kahn.Completed))
	require.Len(t, calls, 12-done)
	for id, n := range calls {
		require.False(t, before.Nodes[id].Terminal, id)
		require.Equal(t, 1, n, id)
	}
}

// TestFull: Execute returns an error when the database reaches MaxBytes; the run continues once the bound is lifted.
func TestFull(t *testing.T) {
	t.Parallel()
	path := file(t)
	s := openStore(t, path, sqlite.Options{MaxBytes: 200_000})
	_, err := kahn.Execute(t.Context(), bulky(nil), nil, kahn.RunID("r"), kahn.Durable(s), kahn.Lease("", 300*time.Millisecond))
	require.ErrorIs(t, err, kahn.ErrStore)
	require.ErrorContains(t, err, "no space")
	goesOn(t, path, "a full database")
}

// TestTooLarge: a value that exceeds MaxBytes fails only its own node.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t), sqlite.Options{MaxBytes: 50_000})
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "a", Do: func(context.Context, *kahn.Step) (any, error) { return strings.Repeat("x", 60_000), nil }},
		kahn.Node{ID: "b", Do: func(context.Context, *kahn.Step) (any, error) { return "small", nil }, In: []kahn.Edge{{From: "a", On: kahn.OnFailure}}},
	)
	res, err := kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(s))
	require.NoError(t, err)
	a, _ := res.Node("a")
	require.ErrorIs(t, a.Err, store.ErrRejected)
	require.Equal(t, kahn.CauseStoreRejected, a.Cause.Kind)
	b, _ := res.Node("b")
	require.Equal(t, kahn.Completed, b.Status)
}

// TestFileLimit is TestFull with a limit of the operating system, under which a write may stop halfway.
func TestFileLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, err := child(dir, "limit").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Regexp(t, "no space|file system has failed", string(out))
	goesOn(t, filepath.Join(dir, "runs.db"), "a limit of files")
}

// TestReadOnly: Open returns an error that says that the database cannot be written.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := sqlite.Open(filepath.Join(dir, "runs.db"), sqlite.Options{})
	require.NoError(t, err)
	begun(t, s, "r")
	require.NoError(t, s.Close())
	require.NoError(t, os.Chmod(filepath.Join(dir, "runs.db"), 0o444))
	for _, d := range []string{dir, filepath.Dir(dir)} {
		require.NoError(t, os.Chmod(d, 0o555))
	}
	out, err := child(dir, "nobody").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "cannot be written")
	for _, d := range []string{filepath.Dir(dir), dir} {
		require.NoError(t, os.Chmod(d, 0o755))
	}
	require.NoError(t, os.Chmod(filepath.Join(dir, "runs.db"), 0o644))
	begun(t, openStore(t, filepath.Join(dir, "runs.db"), sqlite.Options{}), "another")
}

// TestBusy: a commit waits while another process writes, for at most BusyTimeout, and a run survives a shorter wait. The lease of a killed
// process is free at once.
func TestBusy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "runs.db")
	s := openStore(t, path, sqlite.Options{BusyTimeout: 50 * time.Millisecond})
	lease := begun(t, s, "r")
	holder := child(dir, "hold")
	_, err := holder.StdinPipe() // the pipe keeps the child's input open
	require.NoError(t, err)
	out, err := holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	said := ""
	for buf := make([]byte, 256); !strings.Contains(said, "holds"); {
		n, err := out.Read(buf)
		require.NoError(t, err, said)
		said += string(buf[:n])
	}
	begin := time.Now()
	_, err = s.Commit(t.Context(), lease, store.Commit{Sequence: 2})
	require.ErrorContains(t, err, "another process is writing to the database")
	require.False(t, errors.Is(err, store.ErrUnusable) || errors.Is(err, store.ErrRejected), err)
	require.GreaterOrEqual(t, time.Since(begin), 50*time.Millisecond)
	stored, err := s.Load(t.Context(), "r")
	require.NoError(t, err, "reading does not wait")
	require.Equal(t, uint64(1), stored.Sequence)

	require.NoError(t, holder.Process.Kill())
	_ = holder.Wait() // the error says that the process was killed
	_, _, err = s.Acquire(t.Context(), "held", "next", time.Minute)
	require.NoError(t, err, "the lease of a process that was killed is free")

	var tx *sql.Tx
	calls := 0
	g := new(kahn.Graph).Add(kahn.Node{ID: "a", Do: func(context.Context, *kahn.Step) (any, error) {
		calls++
		var err error
		tx, err = s.DB().Begin()
		time.AfterFunc(300*time.Millisecond, func() { _ = tx.Rollback() })
		return nil, err
	}})
	_, err = kahn.Execute(t.Context(), g, nil, kahn.RunID("outlasts"), kahn.Durable(s))
	require.NoError(t, err)
	require.Equal(t, 1, calls)
}

// TestDamage changes each page of a database in several ways. Afterwards Load returns either the stored run or an error that matches
// store.ErrUnusable, never wrong data.
func TestDamage(t *testing.T) {
	t.Parallel()
	path := file(t)
	s, err := sqlite.Open(path, sqlite.Options{})
	require.NoError(t, err)
	want := map[string]*store.Run{}
	for i := range 3 {
		id := fmt.Sprint("r", i)
		_, err := kahn.Execute(t.Context(), bulky(nil), nil, kahn.RunID(id), kahn.Durable(s))
		require.NoError(t, err)
		want[id], err = s.Load(t.Context(), id)
		require.NoError(t, err)
	}
	require.NoError(t, s.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(5, 6))
	found, tries := 0, size(50, 3000)
	damaged := filepath.Join(t.TempDir(), "damaged.db")
	for range tries {
		data := append([]byte{}, whole...)
		at := random.IntN(len(data)/1024) * 1024 // the start of a random page
		if random.IntN(4) == 0 {
			at = random.IntN(40) * 1024 // the first pages contain the roots of the trees
		}
		switch random.IntN(3) {
		case 0:
			clear(data[at : at+1024])
		case 1:
			data[at+random.IntN(1024)] ^= byte(1 + random.IntN(255))
		case 2:
			other := random.IntN(len(data)/1024) * 1024
			copy(data[at:at+1024], whole[other:other+1024])
		}
		require.NoError(t, os.WriteFile(damaged, data, 0o600))
		if damageShows(t, damaged, want) {
			found++
		}
		for _, name := range []string{"-wal", "-shm"} {
			_ = os.Remove(damaged + name)
		}
	}
	t.Logf("%d of %d changes were found, the others were of no account", found, tries)
	require.Greater(t, found, tries/3)
}

// damageShows reports whether Open or Load returns an error. Wrong data fails the test.
func damageShows(t *testing.T, path string, want map[string]*store.Run) (shows bool) {
	s, err := sqlite.Open(path, sqlite.Options{})
	if err != nil {
		require.ErrorIs(t, err, store.ErrUnusable)
		return true
	}
	defer func() { _ = s.Close() }() // the database is damaged, so Close may fail
	for id, run := range want {
		got, err := s.Load(t.Context(), id)
		switch {
		case err != nil:
			require.ErrorIs(t, err, store.ErrUnusable)
			shows = true
		default:
			require.True(t, reflect.DeepEqual(run, got), "%s is wrong", id)
		}
	}
	return shows
}

// TestChanged: Load detects a change of any stored column, in rows of runs and of nodes.
func TestChanged(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t), sqlite.Options{})
	_, err := kahn.Execute(t.Context(), bulky(nil), nil, kahn.RunID("r"), kahn.Durable(s), kahn.Inputs(map[string]any{"x": 1}),
		kahn.Describe(store.Spec{Labels: map[string]string{"tenant": "x"}}), kahn.Describe(store.Spec{Parent: "mother"}))
	require.NoError(t, err)
	want, err := s.Load(t.Context(), "r")
	require.NoError(t, err)
	for _, change := range []string{
		"kahn_runs SET status = 'running'", "kahn_runs SET sequence = sequence + 1", "kahn_runs SET nodes = nodes - 1", "kahn_runs SET wake = 7", "kahn_runs SET record = x'7b7d'",
		"kahn_runs SET workflow = 'other'", "kahn_runs SET plan = ''", "kahn_runs SET inputs = NULL", "kahn_runs SET labels = NULL", "kahn_runs SET labels = '{'",
		"kahn_runs SET parent = NULL", "kahn_runs SET workflow = '', plan = '', inputs = NULL, labels = NULL, parent = NULL",
		"kahn_runs SET record = NULL", "kahn_nodes SET key = 'other'", "kahn_nodes SET sequence = 3", "kahn_nodes SET attempt = 2", "kahn_nodes SET terminal = 0", "kahn_nodes SET queued = 1",
		"kahn_nodes SET completed = 0", "kahn_nodes SET resolved = 7", "kahn_nodes SET required = 7", "kahn_nodes SET status = 'failed'", "kahn_nodes SET cause = 'timeout'", "kahn_nodes SET started = 7",
		"kahn_nodes SET ended = NULL", "kahn_nodes SET hash = x'00'", "kahn_nodes SET value = NULL", "kahn_nodes SET value = x'22'", "kahn_nodes SET record = NULL",
	} {
		where := " WHERE id = 'r'"
		if strings.HasPrefix(change, "kahn_nodes") {
			where = " WHERE key = 'n7'"
		}
		tx, err := s.DB().Begin()
		require.NoError(t, err)
		_, err = tx.Exec("CREATE TABLE kept AS SELECT * FROM " + strings.Fields(change)[0] + where)
		require.NoError(t, err)
		_, err = tx.Exec("UPDATE " + change + where)
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		_, err = s.Load(t.Context(), "r")
		require.ErrorIs(t, err, sqlite.ErrDamaged, change)
		for _, owner := range []string{"one", "another"} { // a refused Acquire takes no lease
			_, _, err = s.Acquire(t.Context(), "r", owner, time.Minute)
			require.ErrorIs(t, err, sqlite.ErrDamaged, change)
		}
		var columns string // the columns that are stored, not computed
		require.NoError(t, s.DB().QueryRow("SELECT group_concat(name) FROM pragma_table_info(?)", strings.Fields(change)[0]).Scan(&columns))
		_, err = s.DB().Exec(fmt.Sprintf("REPLACE INTO %s (%s) SELECT %[2]s FROM kept; DROP TABLE kept", strings.Fields(change)[0], columns))
		require.NoError(t, err)
	}
	got, err := s.Load(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// TestClock: a clock that is set forward ends leases early, and a clock that is set back prolongs them. No two processes ever perform a run at
// the same time.
func TestClock(t *testing.T) {
	s := openStore(t, file(t), sqlite.Options{Now: "jumping_now()"})
	ended := 0
	g := func(jump time.Duration) *kahn.Graph {
		return new(kahn.Graph).Add(kahn.Node{ID: "a", Do: func(context.Context, *kahn.Step) (any, error) {
			shift.Add(jump.Milliseconds())
			ended++
			return nil, nil
		}})
	}
	_, err := kahn.Execute(t.Context(), g(-24*time.Hour), nil, kahn.RunID("back"), kahn.Durable(s))
	require.NoError(t, err)
	_, err = kahn.Execute(t.Context(), g(24*time.Hour), nil, kahn.RunID("forward"), kahn.Durable(s))
	require.ErrorIs(t, err, store.ErrFenced)
	_, err = kahn.Execute(t.Context(), g(0), nil, kahn.RunID("forward"), kahn.Durable(s))
	require.NoError(t, err)
	require.Equal(t, 3, ended)

	lease, _, err := s.Acquire(t.Context(), "r", "one", time.Minute)
	require.NoError(t, err)
	shift.Add(-time.Hour.Milliseconds())
	_, _, err = s.Acquire(t.Context(), "r", "two", time.Minute)
	require.ErrorIs(t, err, store.ErrLeased)
	commit(t, s, lease, store.Commit{Sequence: 1, Ready: []string{"a"}})
	shift.Add(2 * time.Hour.Milliseconds())
	_, err = s.Commit(t.Context(), lease, store.Commit{Sequence: 2})
	require.ErrorIs(t, err, store.ErrFenced)
	require.ErrorIs(t, s.Renew(t.Context(), lease, time.Minute), store.ErrFenced)
	next, stored, err := s.Acquire(t.Context(), "r", "two", time.Minute)
	require.NoError(t, err)
	require.True(t, stored.Nodes["a"].Queued)
	commit(t, s, next, store.Commit{Sequence: 2})
}

// TestOpenedTogether: if several processes open the same new file at once, all of them succeed.
func TestOpenedTogether(t *testing.T) {
	t.Parallel()
	for range 20 {
		path := file(t)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				s, err := sqlite.Open(path, sqlite.Options{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}
