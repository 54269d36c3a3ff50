//go:build unix

package riverkahn_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	riverkahn "github.com/seed-c794f7ef/kahn/river"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres/audit"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
)

// The environment variables of a child process: they name the schema of River, and the file that records calls.
const (
	childSchema = "KAHN_RIVER_SCHEMA"
	childLog    = "KAHN_RIVER_LOG"
)

const (
	sharedSteps = 40
	sharedLease = 400 * time.Millisecond
)

// chain returns a graph of n steps that follow one another.
func chain(n int) *kahn.Graph {
	g := &kahn.Graph{Name: "chain"}
	for i := range n {
		node := kahn.Node{ID: fmt.Sprint("n", i)}
		if i > 0 {
			node.After = []string{fmt.Sprint("n", i-1)}
		}
		g.Add(node)
	}
	return g
}

// TestChild, in a child process, performs the runs of chain until its input ends. In the process of go test it is skipped.
func TestChild(t *testing.T) {
	schema := os.Getenv(childSchema)
	if schema == "" {
		t.Skip("it is a process of other tests")
	}
	x := openTables(t, postgrestest.NewPool(t, database), schema)
	log, err := os.OpenFile(os.Getenv(childLog), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	p := &riverkahn.Performer{Store: x.store, RecoverEvery: 100 * time.Millisecond, Workflows: []riverkahn.Workflow{{
		Graph: chain(sharedSteps), MaxRuns: 3, Options: []kahn.Option{kahn.Lease("", sharedLease), kahn.MaxCrashes(-1)},
		Step: func(_ context.Context, s *kahn.Step) (any, error) {
			_, err := fmt.Fprintln(log, s.RunID(), strings.TrimPrefix(s.ID(), "n"), s.Attempt())
			time.Sleep(5 * time.Millisecond)
			return s.ID(), err
		},
	}}}
	config := x.config()
	require.NoError(t, p.Register(config))
	client, err := river.NewClient(riverpgxv5.New(x.pool), config)
	require.NoError(t, err)
	require.NoError(t, client.Start(context.Background()))
	_, err = fmt.Println("ready")
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, os.Stdin)
	require.NoError(t, err)
	require.NoError(t, p.Stop(context.Background(), client))
	require.NoError(t, log.Close())
}

// process is a child process that runs TestChild.
type process struct {
	*exec.Cmd
	input io.Closer
}

func startProcess(t *testing.T, schema, log string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), postgrestest.DatabaseURL+"="+database, childSchema+"="+schema, childLog+"="+log)
	input, err := cmd.StdinPipe()
	require.NoError(t, err)
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.ReadFull(output, make([]byte, len("ready")))
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, output) }() // ends when the process ends
	return &process{cmd, input}
}

// end closes the input of the process, which makes it stop, and waits for its end.
func (p *process) end(t *testing.T) {
	t.Helper()
	require.NoError(t, p.input.Close())
	require.NoError(t, p.Wait())
}

// TestProcesses: three processes share runs. Again and again the test stops one process for longer than its leases last, and kills another. All
// runs end, and nothing is stored twice.
func TestProcesses(t *testing.T) {
	t.Parallel()
	runs := 8
	if os.Getenv("KAHN_LONG") != "" {
		runs = 300
	}
	x := newTables(t)
	require.NoError(t, audit.Begin(t.Context(), x.pool, x.store.Schema()))
	log := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(log, nil, 0o600))
	start := func() *process { return startProcess(t, x.schema, log) }
	steady, stopped, killed := start(), start(), start()
	c := x.client(t)
	for i := range runs {
		create(t, c, chain(sharedSteps), fmt.Sprint("r", i))
	}
	times, random := 0, rand.New(rand.NewPCG(5, 7))
	for ; x.open(t) > 0; times++ {
		time.Sleep(time.Duration(50+random.IntN(200)) * time.Millisecond)
		require.NoError(t, stopped.Process.Signal(syscall.SIGSTOP))
		require.NoError(t, killed.Process.Kill())
		require.Error(t, killed.Wait())
		time.Sleep(sharedLease + 300*time.Millisecond)
		require.NoError(t, stopped.Process.Signal(syscall.SIGCONT))
		killed = start()
	}
	for _, p := range []*process{steady, stopped, killed} {
		p.end(t)
	}
	calls := postgrestest.ReadCalls(t, log)
	t.Logf("%d times: %+v", times, calls)
	require.NotZero(t, times)
	require.Equal(t, runs*sharedSteps, calls.Nodes)
	require.Zero(t, calls.Twice)
	require.LessOrEqual(t, calls.Landed, 3*times, "more than one call of each run that a process performs lands each time that it is stopped")
	report, err := audit.Read(t.Context(), x.pool, x.store.Schema())
	require.NoError(t, err)
	require.Empty(t, report.Faults)
	for i := range runs {
		res, err := kahn.ReadResult(t.Context(), chain(sharedSteps), x.store, fmt.Sprint("r", i))
		require.NoError(t, err)
		require.Equal(t, sharedSteps, res.Count(kahn.Completed))
	}
}

// open counts the runs that have not ended.
func (x *tables) open(t *testing.T) (n int) {
	t.Helper()
	counts, err := x.store.Count(t.Context(), store.Filter{Statuses: []kahn.RunStatus{kahn.RunPending, kahn.RunRunning, kahn.RunSuspended}})
	require.NoError(t, err)
	for _, c := range counts {
		n += c.Runs
	}
	return n
}
