//go:build unix

package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/postgres/audit"
	"github.com/seed-c794f7ef/kahn/store/postgres/localserver"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// The environment variables that make TestChild a child process of another test, and that name its task.
const (
	childDir  = "KAHN_POSTGRES_DIR"
	childTask = "KAHN_POSTGRES_TASK"
)

// schemaOf returns the schema for all processes that work in a folder.
func schemaOf(dir string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(dir)) // writing to a hash never fails
	return fmt.Sprintf("dir_%x", h.Sum64())
}

// TestChild is the main function of the child processes that other tests start. In a normal test run it is skipped.
func TestChild(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		t.Skip("it is a process of other tests")
	}
	pool := postgrestest.NewPool(t, database)
	var s store.Store = openStore(t, pool, schemaOf(dir))
	switch task := os.Getenv(childTask); task {
	case "run":
		require.NoError(t, storetest.Killed(t.Context(), dir, s, kahn.Lease("worker", 0)))
	case "torn":
		require.NoError(t, storetest.Killed(t.Context(), dir, storetest.Torn(s), kahn.Lease("worker", 0)))
	case "asked":
		require.NoError(t, storetest.ServeAsked(t.Context(), listening(t, pool, dir), kahn.Lease("", askedLease)))
	case "torn answers":
		require.NoError(t, storetest.ServeAsked(t.Context(), storetest.TornAnswers(listening(t, pool, dir)), kahn.Lease("", askedLease)))
	case "share":
		require.NoError(t, share(t.Context(), dir, s, sharedLease))
	case "unfenced":
		require.NoError(t, share(t.Context(), dir, &unfenced{s}, time.Minute))
	default:
		t.Fatal(task)
	}
}

// child returns the command that starts TestChild with a task.
func child(dir, task string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(os.Environ(), postgrestest.DatabaseURL+"="+database, childDir+"="+dir, childTask+"="+task)
	return cmd
}

// starter returns a function that makes the command for a folder, with the given task: see child.
func starter(task string) func(dir string) *exec.Cmd {
	return func(dir string) *exec.Cmd { return child(dir, task) }
}

// TestCrash kills processes while they perform a run; the next process continues the run.
func TestCrash(t *testing.T) {
	t.Parallel()
	storetest.RunKill(t, size(20, 500), starter("run"), starter("torn"))
}

// askedLease is shorter than the time for which most of the killed processes live.
const askedLease = 150 * time.Millisecond

// listening opens a store that listens for notifications of requests.
func listening(t *testing.T, pool *pgxpool.Pool, dir string) *postgres.Store {
	t.Helper()
	return openWith(t, pool, postgres.Options{Schema: schemaOf(dir), Listen: database})
}

// TestCrashAsked kills processes while they perform runs, and posts requests for these runs from this process.
func TestCrashAsked(t *testing.T) {
	t.Parallel()
	pool := postgrestest.NewPool(t, database)
	storetest.RunKillAsked(t, size(5, 300), starter("asked"), starter("torn answers"), func(t *testing.T, dir string) storetest.Served {
		return openStore(t, pool, schemaOf(dir))
	}, kahntest.CheckEvents)
}

// The runs that several processes perform together.
const (
	sharedRuns  = 6
	sharedSteps = 60
	sharedLease = 400 * time.Millisecond
)

// share performs all these runs, two at a time, until they have ended; several processes call it at once. Each call of a step appends a line to
// a log.
func share(ctx context.Context, dir string, s store.Store, lease time.Duration) error {
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	step := func(_ context.Context, step *kahn.Step) (any, error) {
		_, err := fmt.Fprintln(log, step.RunID(), strings.TrimPrefix(step.ID(), "n"), step.Attempt())
		time.Sleep(5 * time.Millisecond)
		return step.ID(), err
	}
	perform := func(i int) error {
		_, err := kahn.Execute(ctx, row(sharedSteps), step, kahn.RunID(fmt.Sprint("r", i)), kahn.Durable(s), kahn.Lease("", lease), kahn.MaxCrashes(-1))
		return err
	}
	errs := make([]error, 2)
	var workers sync.WaitGroup
	for w := range errs {
		workers.Go(func() {
			for ended, i := map[int]bool{}, rand.IntN(sharedRuns); len(ended) < sharedRuns && errs[w] == nil; i = (i + 1) % sharedRuns {
				switch err := perform(i); {
				case err == nil, errors.Is(err, kahn.ErrFinished):
					ended[i] = true
				case errors.Is(err, kahn.ErrStore), errors.Is(err, store.ErrLeased):
					time.Sleep(5 * time.Millisecond) // another process performs the run
				default:
					errs[w] = err
				}
			}
		})
	}
	workers.Wait()
	return errors.Join(append(errs, log.Close())...)
}

// unfenced is a store with a defect: its methods return no error when the lease has run out, or another process has taken over the run.
type unfenced struct{ store.Store }

func (s *unfenced) Acquire(ctx context.Context, run, owner string, _ time.Duration) (store.Lease, *store.Run, error) {
	return s.Store.Acquire(ctx, run, owner, sharedLease)
}

func (s *unfenced) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if err := s.Renew(ctx, l, sharedLease); err != nil {
		return 0, err
	}
	a, err := s.Store.Commit(ctx, l, c)
	if errors.Is(err, store.ErrFenced) {
		return store.AppliedNow, nil
	}
	return a, err
}

func (s *unfenced) Renew(ctx context.Context, l store.Lease, _ time.Duration) error {
	err := s.Store.Renew(ctx, l, sharedLease)
	if errors.Is(err, store.ErrFenced) {
		return nil
	}
	return err
}

// stopAndKill starts three processes that share runs. Again and again it stops the first process for longer than the leases last, and kills and
// restarts the second. It returns how often it has done so.
func stopAndKill(t *testing.T, task, dir string) (times int) {
	t.Helper()
	random := rand.New(rand.NewPCG(23, 29))
	start := func() *exec.Cmd {
		cmd := child(dir, task)
		cmd.Stdout = new(bytes.Buffer)
		require.NoError(t, cmd.Start())
		return cmd
	}
	wait := func(cmd *exec.Cmd) <-chan error {
		ended := make(chan error, 1)
		go func() {
			err := cmd.Wait()
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, cmd.Stdout)
			}
			ended <- err
		}()
		return ended
	}
	stopped, killed, steady := start(), start(), start()
	stoppedEnds, steadyEnds := wait(stopped), wait(steady)
	for {
		select {
		case err := <-steadyEnds: // the third process ends when all runs have ended
			require.NoError(t, err)
			require.NoError(t, stopped.Process.Signal(syscall.SIGCONT))
			require.NoError(t, <-stoppedEnds)
			require.NoError(t, killed.Wait())
			return times
		case <-time.After(time.Duration(50+random.IntN(100)) * time.Millisecond):
		}
		times++
		_ = stopped.Process.Signal(syscall.SIGSTOP) // an error means that the process has ended
		_ = killed.Process.Kill()
		_ = killed.Wait()
		time.Sleep(sharedLease + 100*time.Millisecond)
		_ = stopped.Process.Signal(syscall.SIGCONT)
		killed = start()
	}
}

// TestStopped: other processes take over the runs of processes that are stopped or killed. No commit, attempt or completion is stored twice, and
// no attempt is recorded after another process has completed its node. A process that was stopped just before it called a step may still call
// the step later.
func TestStopped(t *testing.T) {
	t.Parallel()
	pool := postgrestest.NewPool(t, database)
	for range size(1, 20) {
		dir := t.TempDir()
		s := openStore(t, pool, schemaOf(dir))
		require.NoError(t, audit.Begin(t.Context(), pool, schemaOf(dir)))
		times := stopAndKill(t, "share", dir)
		log := postgrestest.ReadCalls(t, filepath.Join(dir, "log"))
		require.Equal(t, sharedRuns*sharedSteps, log.Nodes)
		t.Logf("%d times: %+v", times, log)
		require.Zero(t, log.Twice)
		require.LessOrEqual(t, log.Landed, 2*times, "more than one call of each run that a process performs lands each time that it is stopped")
		report, err := audit.Read(t.Context(), pool, schemaOf(dir))
		require.NoError(t, err)
		require.Empty(t, report.Faults)
		for i := range sharedRuns {
			res, err := kahn.ReadResult(t.Context(), row(sharedSteps), s, fmt.Sprint("r", i))
			require.NoError(t, err)
			require.Equal(t, kahn.RunCompleted, res.Status)
			require.Equal(t, sharedSteps, res.Count(kahn.Completed))
		}
	}
}

// TestStoppedControl checks that TestStopped would find a store that does not refuse writes under an old lease.
func TestStoppedControl(t *testing.T) {
	t.Parallel()
	for range 10 { // chance decides where the process is stopped
		dir := t.TempDir()
		stopAndKill(t, "unfenced", dir)
		if postgrestest.ReadCalls(t, filepath.Join(dir, "log")).Twice > 0 {
			return
		}
	}
	t.Fatal("a store that does not fence went unnoticed")
}

// TestNoLockIsHeld: a process that is stopped during its writes holds no locks.
func TestNoLockIsHeld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pool := postgrestest.NewPool(t, database)
	openStore(t, pool, schemaOf(dir))
	cmd := child(dir, "share")
	require.NoError(t, cmd.Start())
	random := rand.New(rand.NewPCG(31, 37))
	for range 10 {
		time.Sleep(time.Duration(20+random.IntN(30)) * time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "SET LOCAL lock_timeout = '5s'") // the server first finishes the running statement
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "SELECT FROM "+table(schemaOf(dir), "runs")+" FOR UPDATE")
		require.NoError(t, err)
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	}
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
}

// TestOutages: the server is shut down, stopped at once, and killed, while runs write to it. The runs continue when the server is up again.
func TestOutages(t *testing.T) {
	t.Parallel()
	c, err := localserver.NewCluster(localserver.NoSync)
	if errors.Is(err, localserver.ErrNoServer) {
		t.Skip("there is no server of this machine to be stopped:", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Remove()) })
	s := openStore(t, postgrestest.NewPool(t, c.URL("postgres")), "outages")
	restarting := func(times, every int) func(progress func() int) {
		return func(progress func() int) {
			for i := range times {
				for progress() < every*(i+1) {
					time.Sleep(time.Millisecond)
				}
				require.NoError(t, c.Signal([]syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL}[i%3]))
				require.NoError(t, c.Start())
			}
		}
	}
	performing(t, s, s, chains, restarting(3, 100))
	short := openStore(t, postgrestest.NewPool(t, c.URL("postgres")), "short")
	performing(t, short, short, performance{runs: size(300, 10_000), steps: 2}, restarting(size(2, 60), size(200, 300)))
}

// bouncer starts PgBouncer in transaction mode in front of a server.
func bouncer(t *testing.T, c *localserver.Cluster, port int) *exec.Cmd {
	t.Helper()
	config := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n"+
		"default_pool_size = 3\nignore_startup_parameters = extra_float_digits\n", c.Port, port)
	file := filepath.Join(c.Dir, "bouncer.ini")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(config, "* = ", "* = user=kahn ", 1)), 0o600))
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(file, localserver.Nobody, localserver.Nobody))
	}
	cmd := c.Command(bouncerPath(), file)
	require.NoError(t, cmd.Start())
	return cmd
}

// bouncerPath returns the path of the program pgbouncer, "" if it is not installed.
func bouncerPath() string {
	for _, path := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	return ""
}

// TestBouncer: the store works through PgBouncer in transaction mode, with fewer server connections than the pool has, and continues after
// PgBouncer restarts.
func TestBouncer(t *testing.T) {
	t.Parallel()
	if bouncerPath() == "" {
		t.Skip("there is no pgbouncer (apt-get install pgbouncer)")
	}
	c, err := localserver.NewCluster(localserver.NoSync)
	if errors.Is(err, localserver.ErrNoServer) {
		t.Skip("PgBouncer would stand before a server of this machine:", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Remove()) })
	port, err := localserver.FreePort()
	require.NoError(t, err)
	cmd := bouncer(t, c, port)
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // an error means that the process has ended
		require.Error(t, cmd.Wait())
	})
	pool := postgrestest.NewPool(t, fmt.Sprintf("postgres://kahn@127.0.0.1:%d/postgres?sslmode=disable", port), func(config *pgxpool.Config) {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		config.MaxConns = 10
	})
	require.Eventually(t, func() bool { return pool.Ping(t.Context()) == nil }, 10*time.Second, 10*time.Millisecond)
	open := newStores(pool)
	storetest.Run(t, func(t *testing.T) store.Store { return open(t) })
	s := openStore(t, pool, newSchema())
	performing(t, s, s, chains, func(progress func() int) {
		for i := range 3 {
			for progress() < 100*(i+1) {
				time.Sleep(time.Millisecond)
			}
			require.NoError(t, cmd.Process.Kill())
			require.Error(t, cmd.Wait())
			cmd = bouncer(t, c, port)
		}
	})
}
