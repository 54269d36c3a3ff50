//go:build server

package temporal

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// site is a development server with its data in a file, and three workers, each a process of its own. A killed process is restarted.
type site struct {
	t       testing.TB
	dir     string // the folder in which steps count their calls; its base name is the task queue
	data    string
	address string
	server  *exec.Cmd
	workers []*exec.Cmd
}

func newSite(t testing.TB) *site {
	t.Helper()
	require.NotEmpty(t, os.Getenv("KAHN_TEMPORAL_DEV"), "the binary of cmd/temporal-dev")
	x := &site{t: t, dir: filepath.Join(t.TempDir(), fmt.Sprint("site-", time.Now().UnixNano())), data: filepath.Join(t.TempDir(), "temporal.db")}
	require.NoError(t, os.Mkdir(x.dir, 0o700))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	x.address = l.Addr().String()
	require.NoError(t, l.Close())
	t.Cleanup(func() {
		x.killWorkers()
		x.kill(x.server)
	})
	x.startServer()
	for range 3 {
		x.startWorker()
	}
	return x
}

func (x *site) startServer() {
	_, port, err := net.SplitHostPort(x.address)
	require.NoError(x.t, err)
	x.server, _, err = startDev(port, x.data)
	require.NoError(x.t, err)
}

// startDev starts the binary of cmd/temporal-dev, and returns when it listens.
func startDev(port, data string) (server *exec.Cmd, address string, err error) {
	server = exec.Command(os.Getenv("KAHN_TEMPORAL_DEV"), "-port", port, "-db", data, "-namespace", "default")
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err == nil {
		_, err = fmt.Fscan(out, &address)
	}
	return server, address, err
}

func (x *site) startWorker() {
	w := exec.Command(os.Args[0])
	w.Env = append(os.Environ(), "KAHN_TEMPORAL="+x.address, "KAHN_TEMPORAL_NAMESPACE=default", "KAHN_TEMPORAL_WORKER="+x.dir)
	require.NoError(x.t, w.Start())
	x.workers = append(x.workers, w)
}

// kill kills a process, as a loss of power would.
func (x *site) kill(p *exec.Cmd) {
	if err := p.Process.Kill(); err != nil {
		x.t.Error(err)
	}
	if err := p.Wait(); err == nil {
		x.t.Error("the process had ended")
	}
}

func (x *site) killWorkers() {
	for _, w := range x.workers {
		x.kill(w)
	}
	x.workers = nil
}

// calls waits until the steps were called n times.
func (x *site) calls(n int) {
	require.Eventually(x.t, func() bool {
		files, err := os.ReadDir(x.dir)
		return err == nil && len(files) >= n
	}, 2*time.Minute, 10*time.Millisecond)
}

// crashes lists what can happen to a site during a run.
var crashes = map[string]func(x *site){
	"workers": func(x *site) {
		x.kill(x.workers[0])
		x.workers = x.workers[1:]
		x.startWorker()
	},
	"server": func(x *site) {
		x.kill(x.server)
		x.startServer()
	},
	"both": func(x *site) {
		x.killWorkers()
		x.kill(x.server)
		x.startServer()
		for range 3 {
			x.startWorker()
		}
	},
	"stopped": func(x *site) { // the worker is stopped for longer than LostAfter, so its results come too late
		w := x.workers[0].Process
		require.NoError(x.t, w.Signal(syscall.SIGSTOP))
		time.Sleep(lostSoon + time.Second)
		require.NoError(x.t, w.Signal(syscall.SIGCONT))
	},
}

// TestServerCrash performs a graph of 300 nodes while processes are killed or stopped three times. The Result equals the Result of a run
// in one process, only interrupted attempts are performed twice, and no result is recorded twice.
func TestServerCrash(t *testing.T) {
	for name, crash := range crashes {
		t.Run(name, func(t *testing.T) {
			x := newSite(t)
			c, err := client.Dial(client.Options{HostPort: x.address, Namespace: "default", Logger: discard})
			require.NoError(t, err)
			t.Cleanup(c.Close)
			g := layers(20, 15)
			w := Workflow{ID: filepath.Base(x.dir), TaskQueue: filepath.Base(x.dir), Plan: plan(t, g)}
			run, err := Start(t.Context(), c, w, nil)
			require.NoError(t, err)
			first := run.get.GetRunID()
			const times, atWork = 3, 3 * 10 // atWork is how many steps run at the same time
			for i := range times {
				x.calls(40 + 80*i)
				crash(x)
			}
			var res *kahn.Result
			require.Eventually(t, func() bool { // the client gives up while no server is running
				res, err = run.Wait(t.Context())
				return res != nil
			}, 3*time.Minute, time.Second, "%v", err)
			require.NoError(t, err)
			require.Equal(t, 300, res.Count(kahn.Completed))
			repeated := 0
			for n := range res.Nodes() {
				require.Equal(t, n.ID, n.Output)
				require.Equal(t, 1, n.Attempts, n.ID)
				data, err := os.ReadFile(filepath.Join(x.dir, n.ID))
				require.NoError(t, err)
				calls := strings.Split(strings.TrimSpace(string(data)), "\n")
				for _, call := range calls {
					require.Equal(t, calls[0], call, "the number and the key are the same")
				}
				repeated += len(calls) - 1
			}
			t.Logf("%v; %d calls were repeated", res.Duration, repeated)
			require.LessOrEqual(t, repeated, times*atWork)
			for path, times := range recordedResults(t, c, w.ID, first) {
				require.Equal(t, 1, times, path)
			}
			var events []event.Event
			log, err := run.Events(t.Context())
			require.NoError(t, err)
			for e, err := range log.Events(t.Context(), 0) {
				require.NoError(t, err)
				events = append(events, e)
			}
			require.NoError(t, kahntest.CheckEvents(g, res, events))
		})
	}
}

// recordedResults counts each node's results in the histories of a workflow.
func recordedResults(t testing.TB, c client.Client, id, first string) map[string]int {
	results := map[string]int{}
	for _, h := range histories(t, c, id, first) {
		scheduled := map[int64]string{}
		for _, e := range h.Events {
			if a := e.GetActivityTaskScheduledEventAttributes(); a != nil {
				var in task
				require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(a.Input, &in))
				scheduled[e.EventId] = in.Path
			}
			if a := e.GetActivityTaskCompletedEventAttributes(); a != nil {
				results[scheduled[a.ScheduledEventId]]++
			}
		}
	}
	require.Len(t, results, 300)
	return results
}
