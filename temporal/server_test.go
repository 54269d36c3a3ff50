//go:build server

package temporal

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// The tests with the tag server start the binary of cmd/temporal-dev, which KAHN_TEMPORAL_DEV names. Tests that do not kill the service can
// also use another service, at the address KAHN_TEMPORAL, with the namespace KAHN_TEMPORAL_NAMESPACE.

func dial(t testing.TB) client.Client {
	t.Helper()
	require.NotEmpty(t, os.Getenv("KAHN_TEMPORAL"), "the address of a Temporal service")
	c, err := client.Dial(client.Options{HostPort: os.Getenv("KAHN_TEMPORAL"), Namespace: os.Getenv("KAHN_TEMPORAL_NAMESPACE"), Logger: discard, Identity: "test"})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// serve runs a worker for a plan until the test has ended.
func serve(t testing.TB, c client.Client, p *kahn.Plan, o Options) Workflow {
	t.Helper()
	w := Workflow{ID: fmt.Sprintf("%s-%d", t.Name(), time.Now().UnixNano()), Plan: p}
	w.TaskQueue = w.ID
	o.Plans = append(o.Plans, p)
	worker, err := NewWorker(c, w.TaskQueue, o)
	require.NoError(t, err)
	require.NoError(t, worker.Start())
	t.Cleanup(worker.Stop)
	return w
}

func TestServerGate(t *testing.T) {
	c := dial(t)
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "a" && s.Attempt() == 1 {
			return nil, errStep
		}
		return s.ID(), nil
	}
	w := serve(t, c, plan(t, kahntest.Graph(t, "a>ask ask-[yes]>b ask-[no]>c ask{gate}")), Options{Step: step})
	w.Settings.DefaultRetry = &kahn.Retry{MaxAttempts: 2, InitialDelay: 10 * time.Millisecond}
	run, err := Start(t.Context(), c, w, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		status, waits, err := run.Waiting(t.Context())
		return err == nil && status == kahn.RunSuspended && len(waits) == 1 && waits[0].Node == "ask"
	}, 10*time.Second, 50*time.Millisecond)
	require.ErrorIs(t, run.Signal(t.Context(), "ask", "perhaps"), kahn.ErrChoice)
	require.ErrorIs(t, run.Signal(t.Context(), "nobody", "yes"), kahn.ErrUnknownGate)
	require.NoError(t, run.Signal(t.Context(), "ask", kahn.Decision{Value: "yes", Actor: "me", ID: "1"}))
	res, err := run.Wait(t.Context())
	require.NoError(t, err)
	kahntest.RequireStatuses(t, res, "a:ok ask:ok b:ok c:S/br")

	again, err := Execute(t.Context(), c, w, nil)
	require.NoError(t, err)
	require.Equal(t, res.ID(), again.ID(), "it is the same run")
	w.Settings.Limit = 7
	_, err = Start(t.Context(), c, w, nil)
	require.ErrorIs(t, err, kahn.ErrKeyConflict)
}

// A cancellation by any means reaches a running step within two seconds. Cleanup nodes run, and the Result says who asked.
func TestServerCancel(t *testing.T) {
	c := dial(t)
	for name, cancel := range map[string]func(run *Run) error{
		"update":   func(run *Run) error { return run.Cancel(t.Context(), kahn.Request{Actor: "me"}) },
		"temporal": func(run *Run) error { return c.CancelWorkflow(t.Context(), run.ID(), "") },
		"node":     func(run *Run) error { return run.CancelNode(t.Context(), "a") },
	} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan bool, 1)
			var stopped atomic.Int64
			step := func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.ID() != "a" {
					return nil, nil
				}
				begun <- true
				<-ctx.Done()
				stopped.Store(time.Now().UnixNano())
				return nil, ctx.Err()
			}
			w := serve(t, c, plan(t, kahntest.Graph(t, "a>b b>clean clean{clean}")), Options{Step: step})
			run, err := Start(t.Context(), c, w, nil)
			require.NoError(t, err)
			<-begun
			asked := time.Now()
			require.NoError(t, cancel(run))
			res, err := run.Wait(t.Context())
			require.Error(t, err)
			require.Equal(t, kahn.RunCancelled, res.Status, "%v", err)
			require.Less(t, time.Unix(0, stopped.Load()).Sub(asked), 2*time.Second)
			clean, _ := res.Node("clean")
			require.Equal(t, kahn.Completed, clean.Status)
		})
	}
}

// A step that ignores the end of its context is abandoned: the run no longer waits for it.
func TestServerAbandoned(t *testing.T) {
	c := dial(t)
	release := make(chan struct{})
	w := serve(t, c, plan(t, new(kahn.Graph).Add(kahn.Node{ID: "a", Timeout: time.Second})), Options{Step: func(context.Context, *kahn.Step) (any, error) { <-release; return nil, nil }})
	t.Cleanup(func() { close(release) }) // before the worker stops
	w.Settings.CancelGrace = time.Second
	res, err := Execute(t.Context(), c, w, nil)
	require.Error(t, err)
	a, _ := res.Node("a")
	require.True(t, a.Abandoned)
}

// Values of 3 MiB, which Temporal would refuse, and a value of 100 KiB for 60 successors become blobs. The run also completes if a node has a
// long path, because it is in many nested composites.
func TestServerBlobs(t *testing.T) {
	c := dial(t)
	blobs := store.Dir(t.TempDir())
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "root" {
			return strings.Repeat("r", 3<<20), nil
		}
		return longStep(ctx, s)
	}
	w := serve(t, c, plan(t, longValues()), Options{Step: step, Blobs: blobs})
	w.Blobs = blobs
	run, err := Start(t.Context(), c, w, map[string]any{"text": long("i")})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return run.Signal(t.Context(), "ask", long("a")) == nil }, 10*time.Second, 50*time.Millisecond)
	res, err := run.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, []any{60, 60 * (3<<20/4 + len("n00")), long("a")}, res.Output())

	inner := new(kahn.Graph).Add(kahn.Node{ID: "x"})
	for range 10 {
		inner = new(kahn.Graph).Add(kahn.Node{ID: strings.Repeat("S", 60), Sub: inner})
	}
	w = serve(t, c, plan(t, inner), Options{Step: func(_ context.Context, s *kahn.Step) (any, error) { return len(s.Path()), nil }})
	res, err = Execute(t.Context(), c, w, nil)
	require.NoError(t, err)
	require.Equal(t, 10*61+1, res.Output())
}

// TestServerHistories records the histories that TestReplay replays.
func TestServerHistories(t *testing.T) {
	c := dial(t)
	host, err := os.Hostname()
	require.NoError(t, err)
	dir := filepath.Join("testdata", "histories", shortHistories)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	serveShips(t, c, shipsQueue)
	for name, r := range records {
		o := r.options
		if r.adopts != nil {
			o.Plans = []*kahn.Plan{plan(t, r.adopts(true))}
		}
		o.Step = recordedStep
		w := serve(t, c, plan(t, r.graph(true)), o)
		w.Settings = r.settings
		run, err := Start(t.Context(), c, w, nil)
		require.NoError(t, err)
		first := run.get.GetRunID()
		if r.adopts != nil {
			run = adoptWaiting(t, c, w, o.Plans[0])
		}
		for answered := 0; answered < len(r.answers) || r.cancel || r.stop; {
			_, waits, err := run.Waiting(t.Context())
			require.NoError(t, err)
			if len(waits) > 0 && r.cancel {
				require.NoError(t, run.Cancel(t.Context(), kahn.Request{}))
				break
			}
			if len(waits) > 0 && r.stop {
				require.NoError(t, c.CancelWorkflow(t.Context(), w.ID, ""))
				break
			}
			for _, x := range waits {
				require.NoError(t, run.Signal(t.Context(), x.Node, r.answers[x.Node]))
				answered++
			}
			time.Sleep(20 * time.Millisecond)
		}
		res, err := run.Wait(t.Context())
		require.NotNil(t, res, "%v", err)
		all := histories(t, c, w.ID, first)
		if r.redrive != nil {
			again, err := r.redrive(t.Context(), run)
			require.NoError(t, err)
			res, err = again.Wait(t.Context())
			require.NotNil(t, res, "%v", err)
			all = append(all, histories(t, c, w.ID, again.get.GetRunID())...)
		}
		if children := childrenIn(all); len(children) > 0 {
			all = append(all, histories(t, c, children[0].id, children[0].run)...)
		}
		for number, history := range all {
			data, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(history)
			require.NoError(t, err)
			data = bytes.ReplaceAll(data, []byte(`"`+host+`:`), []byte(`"host:`)) // the host's name is part of the names of task queues
			require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d.json", name, number)), append(data, '\n'), 0o644))
		}
		t.Log(name, res.Status)
	}
}

// histories returns the histories of a workflow's executions, from the execution with the given run id on.
func histories(t testing.TB, c client.Client, id, first string) (list []*historypb.History) {
	for run := first; run != ""; {
		history, next := new(historypb.History), ""
		for events := c.GetWorkflowHistory(t.Context(), id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
			e, err := events.Next()
			require.NoError(t, err)
			history.Events = append(history.Events, e)
			next = e.GetWorkflowExecutionContinuedAsNewEventAttributes().GetNewExecutionRunId()
		}
		list, run = append(list, history), next
	}
	return list
}

// folder is where the steps of a test count their calls as files; the steps may run in several processes.
type folder struct{ dir string }

func (w folder) step(ctx context.Context, s *kahn.Step) (any, error) {
	f, err := os.OpenFile(filepath.Join(w.dir, s.Path()), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err = fmt.Fprintln(f, s.Attempt(), s.IdempotencyKey()); err == nil {
		err = f.Close()
	}
	select {
	case <-time.After(100 * time.Millisecond):
		return s.Path(), err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// layers returns a graph of layers. Each node follows two nodes of the layer before.
func layers(deep, wide int) *kahn.Graph {
	g := &kahn.Graph{Name: "layers"}
	for d := range deep {
		for i := range wide {
			n := kahn.Node{ID: fmt.Sprintf("n%d-%d", d, i)}
			if d > 0 {
				n.After = []string{fmt.Sprintf("n%d-%d", d-1, i)}
			}
			if d > 0 && wide > 1 {
				n.After = append(n.After, fmt.Sprintf("n%d-%d", d-1, (i+1)%wide))
			}
			g.Add(n)
		}
	}
	return g
}

// testWithServer starts a service for the tests if the environment names none.
func testWithServer(m *testing.M) (code int) {
	if os.Getenv("KAHN_TEMPORAL") == "" && os.Getenv("KAHN_TEMPORAL_DEV") != "" {
		server, address, err := startDev("0", "")
		if err != nil {
			panic(err)
		}
		defer func() {
			_ = server.Process.Kill()
			_ = server.Wait() // the error says that the process was killed
		}()
		for name, value := range map[string]string{"KAHN_TEMPORAL": address, "KAHN_TEMPORAL_NAMESPACE": "default"} {
			if err := os.Setenv(name, value); err != nil {
				panic(err)
			}
		}
	}
	return m.Run()
}

// lostSoon is the LostAfter of workers that the tests kill.
const lostSoon = 3 * time.Second

// TestMain runs a worker instead of the tests if the environment asks for one: TestServerCrash starts such processes and kills them.
func TestMain(m *testing.M) {
	dir := os.Getenv("KAHN_TEMPORAL_WORKER")
	if dir == "" {
		os.Exit(testWithServer(m))
	}
	c, err := client.Dial(client.Options{HostPort: os.Getenv("KAHN_TEMPORAL"), Namespace: os.Getenv("KAHN_TEMPORAL_NAMESPACE"), Logger: discard})
	if err != nil {
		panic(err)
	}
	p, err := layers(20, 15).Compile()
	if err != nil {
		panic(err)
	}
	o := Options{Plans: []*kahn.Plan{p}, Step: folder{dir}.step, LostAfter: lostSoon, ContinueAfter: 100}
	o.Worker.MaxConcurrentActivityExecutionSize = 10
	w, err := NewWorker(c, filepath.Base(dir), o)
	if err != nil {
		panic(err)
	}
	panic(w.Run(nil))
}

// A reader follows the events of a run across its executions while it is running, and can read them after its end.
func TestServerEvents(t *testing.T) {
	c := dial(t)
	g := layers(5, 4)
	w := serve(t, c, plan(t, g), Options{Step: folder{t.TempDir()}.step, ContinueAfter: 6})
	run, err := Start(t.Context(), c, w, nil)
	require.NoError(t, err)
	for _, when := range []string{"at work", "ended"} {
		log, err := run.Events(t.Context())
		require.NoError(t, err)
		var events []event.Event
		for e, err := range log.Events(t.Context(), 0) {
			require.NoError(t, err, when)
			events = append(events, e)
		}
		res, err := run.Wait(t.Context())
		require.NoError(t, err)
		require.NoError(t, kahntest.CheckEvents(g, res, events), when)
		snapshot, err := run.Snapshot(t.Context())
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, snapshot.Status())
	}
}

// TestServerLarge measures a wide graph, a chain, and 10,000 nodes that continue as new.
func TestServerLarge(t *testing.T) {
	c := dial(t)
	for name, row := range map[string]struct{ deep, wide int }{"wide": {4, 250}, "chain": {200, 1}, "10,000": {20, 500}} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, c, plan(t, layers(row.deep, row.wide)), Options{Step: func(_ context.Context, s *kahn.Step) (any, error) { return s.ID(), nil }})
			began := time.Now()
			res, err := Execute(t.Context(), c, w, nil)
			require.NoError(t, err)
			require.Equal(t, row.deep*row.wide, res.Count(kahn.Completed))
			took := time.Since(began)
			t.Logf("%v, %v a step", took, took/time.Duration(res.Len()))
		})
	}
}

// A Store lists the runs of a namespace.
func TestServerStore(t *testing.T) {
	c := dial(t)
	g := layers(3, 2)
	w := serve(t, c, plan(t, g), Options{Step: func(_ context.Context, s *kahn.Step) (any, error) { return s.ID(), nil }, ContinueAfter: 2})
	s := Store{Client: c}
	_, err := s.Load(t.Context(), w.ID)
	require.ErrorIs(t, err, kahn.ErrUnknownRun)
	_, err = Execute(t.Context(), c, w, nil)
	require.NoError(t, err)
	row, err := s.Load(t.Context(), w.ID)
	require.NoError(t, err)
	require.Equal(t, []any{w.ID, "layers", w.Plan.Hash(), kahn.RunCompleted}, []any{row.ID, row.Workflow, row.Plan, row.Status})
	snapshot, err := s.ReadSnapshot(t.Context(), w.ID)
	require.NoError(t, err)
	nodes, err := snapshot.Nodes(w.Plan)
	require.NoError(t, err)
	require.Len(t, nodes, 6)
	events, err := store.ReadEvents(t.Context(), s, w.ID, 0, 0)
	require.NoError(t, err)
	require.Equal(t, event.RunStarted, events[0].Type)
	require.Eventually(t, func() bool { // Temporal lists a workflow some time after its end
		page, err := s.List(t.Context(), store.Query{Filter: store.Filter{Prefix: w.ID[:len(w.ID)-3], Workflow: "layers", Statuses: []kahn.RunStatus{kahn.RunCompleted}}})
		return err == nil && len(page.Runs) == 1 && page.Runs[0].ID == w.ID && !page.Runs[0].Ended.IsZero() && page.Next == ""
	}, 10*time.Second, 100*time.Millisecond)
	counts, err := s.Count(t.Context(), store.Filter{Prefix: w.ID})
	require.NoError(t, err)
	require.Equal(t, []store.Count{{Workflow: "layers", Status: kahn.RunCompleted, Runs: 1}}, counts)
}

// Operators answer a gate by the run's id, and stop a waiting run. The error of a request after the end says that the run has ended.
func TestServerStoreRequests(t *testing.T) {
	c := dial(t)
	s := Store{Client: c}
	w := serve(t, c, plan(t, kahntest.Graph(t, "ask-[yes]>b ask-[no]>c ask{gate}")), Options{Step: recordedStep})
	for _, end := range []struct {
		ask    func() error
		status kahn.RunStatus
	}{
		{func() error { return s.Signal(t.Context(), w.ID, "ask", kahn.Decision{Value: "yes", ID: "1"}) }, kahn.RunCompleted},
		{func() error { return s.Cancel(t.Context(), w.ID, kahn.Request{Actor: "ann"}) }, kahn.RunCancelled},
		{func() error { return s.Abort(t.Context(), w.ID, nil, kahn.Request{Actor: "ann"}) }, kahn.RunFailed},
	} {
		w.ID += "-" + end.status.String()
		require.ErrorIs(t, end.ask(), kahn.ErrUnknownRun)
		run, err := Start(t.Context(), c, w, nil)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			row, err := s.Load(t.Context(), w.ID)
			return err == nil && row.Status == kahn.RunSuspended
		}, 10*time.Second, 50*time.Millisecond)
		require.ErrorIs(t, s.Signal(t.Context(), w.ID, "ask", "perhaps"), kahn.ErrChoice)
		require.NoError(t, end.ask())
		res, _ := run.Wait(t.Context())
		require.Equal(t, end.status, res.Status)
		require.ErrorIs(t, end.ask(), kahn.ErrFinished)
	}
}

// Temporal cancels a workflow long after its last event. The running steps still get the whole CancelGrace, and the history replays.
func TestServerCancelLate(t *testing.T) {
	c := dial(t)
	begun, o := make(chan bool, 1), Options{}
	o.Step = func(ctx context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "a" {
			begun <- true
			<-ctx.Done()
			time.Sleep(300 * time.Millisecond) // the step cleans up
		}
		return s.ID(), nil
	}
	w := serve(t, c, plan(t, kahntest.Graph(t, "a>b b>clean clean{clean}")), o)
	w.Settings.CancelGrace = 2 * time.Second
	run, err := Start(t.Context(), c, w, nil)
	require.NoError(t, err)
	first := run.get.GetRunID()
	<-begun
	time.Sleep(w.Settings.CancelGrace + time.Second) // nothing happens in the history
	require.NoError(t, c.CancelWorkflow(t.Context(), w.ID, ""))
	res, err := run.Wait(t.Context())
	require.Error(t, err)
	a, _ := res.Node("a")
	require.Equal(t, []any{kahn.Completed, false}, []any{a.Status, a.Abandoned}, "%v", a.Err)
	o.Plans = []*kahn.Plan{w.Plan}
	replayer, err := o.Replayer()
	require.NoError(t, err)
	require.NoError(t, replayer.ReplayWorkflowHistory(discard, histories(t, c, w.ID, first)[0]))
}
