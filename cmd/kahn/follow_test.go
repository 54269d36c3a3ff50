package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/progress"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// log is a writer that can be read while it is written.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// following is a command that follows a run.
type following struct {
	out, err log
	stop     context.CancelFunc
	code     chan int
}

// follows starts a command that follows a run in a store.
func follows(t *testing.T, args ...string) *following {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	f := &following{stop: stop, code: make(chan int, 1)}
	t.Cleanup(stop)
	go func() {
		f.code <- kahnCommand(ctx, append([]string{"run", "-follow"}, args...), newTerminal(strings.NewReader(""), &f.out, &f.err))
	}()
	return f
}

// shows waits until the command has written a text to the standard error.
func (f *following) shows(t *testing.T, text string) {
	t.Helper()
	until(t, &f.err, text, func() bool { return strings.Contains(f.err.String(), text) })
}

// opened opens a new store.
func opened(t *testing.T) (file string, db *sqlite.Store) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "runs.db")
	db, err := sqlite.Open(file, sqlite.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return file, db
}

// A run of another process is shown from its beginning to its end: its nodes, the number of its items, its logs, and what it waits for. If the
// run stores events, each event is shown. Otherwise the changes of its records are shown. The command only reads the store.
func TestFollow(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]kahn.Option{"events": {kahn.StoreEvents()}, "records": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, db := opened(t)
			half, rest := make(chan struct{}), make(chan struct{})
			g := new(kahn.Graph).Add(
				kahn.Node{ID: "fetch"},
				kahn.Node{ID: "m", After: []string{"fetch"}, Params: map[string]any{"list": []any{0, 1, 2, 3}}, Map: &kahn.Map{Over: "list", Limit: 1}},
				kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"m"}},
				kahn.Node{ID: "ship", After: []string{"approve"}},
			)
			labels := map[string]string{labelFile: "/flows/order.yaml"}
			run, err := kahn.Start(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
				switch s.Index() {
				case 2:
					close(half)
					<-rest
				case -1:
					s.Emit("line of " + s.ID())
				}
				return nil, nil
			}, append(opts, kahn.Durable(db), kahn.RunID("r"), kahn.Describe(store.Spec{Labels: labels}))...)
			require.NoError(t, err)
			<-half
			f := follows(t, "r", "-store", file, "-v", "-progress", "tty")
			f.shows(t, "=> m 2/4 items")
			close(rest)
			f.shows(t, "?? approve")
			f.shows(t, "approve waits for an answer; to answer: kahn run -store "+file+" -run r -answer approve=VALUE /flows/order.yaml")
			before, err := db.Load(t.Context(), "r")
			require.NoError(t, err)
			owner, _, err := db.ReadLease(t.Context(), "r")
			require.NoError(t, err)
			require.NoError(t, run.Signal(t.Context(), "approve", true))
			_, err = run.Wait()
			require.NoError(t, err)
			require.Equal(t, exitOK, <-f.code)
			require.Contains(t, f.err.String(), "[4/4] run completed")
			require.Contains(t, f.out.String(), "run completed after ")
			require.Equal(t, name == "events", strings.Contains(f.out.String(), "ship | line of ship\n"), f.out.String())
			require.NotEmpty(t, owner)
			require.Equal(t, kahn.RunSuspended, before.Status)
		})
	}
}

// Ctrl-C ends the command and not the run, and the store is unchanged.
func TestFollowIsLeft(t *testing.T) {
	t.Parallel()
	file, db := opened(t)
	g := new(kahn.Graph).Add(kahn.Node{ID: "approve", Kind: kahn.KindGate})
	run, err := kahn.Start(t.Context(), g, nil, kahn.Durable(db), kahn.RunID("r"), kahn.StoreEvents())
	require.NoError(t, err)
	f := follows(t, "r", "-store", file)
	f.shows(t, "approve waits for an answer\n")
	before, err := db.Load(t.Context(), "r")
	require.NoError(t, err)
	f.stop()
	require.Equal(t, exitCancelled, <-f.code)
	require.Contains(t, f.err.String(), "run r is no longer followed; nothing was changed\n")
	after, err := db.Load(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.NoError(t, run.Signal(t.Context(), "approve", true)) // the process still holds its lease
	res, err := run.Wait()
	require.NoError(t, err)
	require.Equal(t, kahn.RunCompleted, res.Status)
}

// commits writes a running run with the given events, as the run's process would. If holds is true, the process keeps its lease; otherwise the
// lease is released.
func commits(t *testing.T, db *sqlite.Store, holds bool, events ...event.Event) {
	t.Helper()
	lease, row, err := db.Acquire(t.Context(), "r", "p", time.Hour)
	require.NoError(t, err)
	c := store.Commit{Sequence: row.Sequence + 1, Status: kahn.RunRunning, Run: json.RawMessage("{}")}
	for i, e := range events {
		e.RunID = "r"
		data, err := e.MarshalStored()
		require.NoError(t, err)
		c.Events = append(c.Events, store.EventRecord{ID: row.LastEvent + uint64(i) + 1, Data: data})
		if e.Type == event.NodeStarted {
			c.Nodes = append(c.Nodes, store.NodeRecord{Node: e.Node, Columns: store.Columns{Status: kahn.Running, Start: e.Time}})
		}
	}
	applied, err := db.Commit(t.Context(), lease, c)
	require.NoError(t, err)
	require.Equal(t, store.AppliedNow, applied)
	if !holds {
		require.NoError(t, db.Release(t.Context(), lease))
	}
}

// If the run's process dies, the command reports once since when the process is gone. When another process continues the run, the command shows
// the new events.
func TestFollowOfALostRun(t *testing.T) {
	t.Parallel()
	file, db := opened(t)
	now := time.Now().UTC()
	commits(t, db, false,
		event.Event{Type: event.RunStarted, Time: now, Payload: event.Start{TotalNodes: 2}},
		event.Event{Type: event.NodeStarted, Node: "a", Attempt: 1, Time: now.Add(time.Hour)})
	f := follows(t, "r", "-store", file)
	f.shows(t, "a: started")
	f.shows(t, "run r: its process is gone since "+now.Add(time.Hour).Local().Format(time.DateTime)+"\n")
	commits(t, db, true, event.Event{Type: event.RunRecovered, Time: now, Payload: event.Recovery{From: 2}},
		event.Event{Type: event.NodeStarted, Node: "a", Attempt: 2, Time: now})
	f.shows(t, "a: attempt 2 started")
	f.shows(t, "run r has a process again\n")
	require.Equal(t, 1, strings.Count(f.err.String(), "is gone since"))
	f.stop()
	require.Equal(t, exitCancelled, <-f.code)
}

// The follower reports only once that the process is gone, and only once what the run waits for, however often it looks at the store.
func TestFollowerSaysThingsOnce(t *testing.T) {
	t.Parallel()
	_, db := opened(t)
	var out, errs bytes.Buffer
	h := &host{t: newTerminal(strings.NewReader(""), &out, &errs), store: "runs.db", show: progress.Plain}
	w := watcher{follower: &follower{h: h, db: db, id: "r", screen: newScreen(h)}}
	commits(t, db, false, event.Event{Type: event.RunStarted, Time: time.Now(), Payload: event.Start{TotalNodes: 1}})
	for range 3 {
		require.NoError(t, w.look(t.Context()))
	}
	w.screen.close()
	require.Equal(t, 1, strings.Count(errs.String(), "is gone since"), errs.String())
}

// A run that has ended is reported at once, with the exit code that kahn run would return. Its events are shown with -v and in JSON.
func TestFollowOfAnEndedRun(t *testing.T) {
	t.Parallel()
	file, db := opened(t)
	g := new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}})
	perform := func(id string, step kahn.StepFunc) {
		run, err := kahn.Start(t.Context(), g, step, kahn.Durable(db), kahn.RunID(id), kahn.StoreEvents())
		require.NoError(t, err)
		if id == "cancelled" {
			require.NoError(t, run.Cancel())
		}
		_, _ = run.Wait()
	}
	perform("good", func(context.Context, *kahn.Step) (any, error) { return nil, nil })
	perform("bad", func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("no stock") })
	perform("cancelled", func(ctx context.Context, _ *kahn.Step) (any, error) { <-ctx.Done(); return nil, ctx.Err() })
	for _, row := range []struct {
		id   string
		code int
		out  string
	}{{"good", exitOK, "run completed after "}, {"bad", exitProblems, "a: failed: node \"a\": step_error: no stock\n"}, {"cancelled", exitCancelled, "run cancelled after "}} {
		code, stdout, stderr := invoke(t, "", "run", "-follow", row.id, "-store", file)
		require.Equal(t, row.code, code)
		require.Contains(t, stdout, row.out)
		require.Equal(t, "run "+row.id+" had ended before\n", stderr)
	}
	code, _, stderr := invoke(t, "", "run", "-follow", "bad", "-store", file, "-v", "-progress", "plain")
	require.Equal(t, exitProblems, code)
	require.Contains(t, stderr, "00:00 a: failed after ")
	require.Contains(t, stderr, "00:00 [2/2] run failed: 1 failed 1 aborted in ")
	code, _, stderr = invoke(t, "", "run", "-follow", "good", "-store", file, "-progress", "json")
	require.Equal(t, exitOK, code)
	var last struct{ Type string }
	for line := range strings.Lines(stderr) {
		require.NoError(t, json.Unmarshal([]byte(line), &last), line)
	}
	require.Equal(t, string(event.RunCompleted), last.Type)
}

// The redrive of an ended run is shown as part of the same run: the nodes are counted once.
func TestFollowOfARedrive(t *testing.T) {
	t.Parallel()
	file, db := opened(t)
	g := new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}})
	fails := true
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "b" && fails {
			return nil, errors.New("no stock")
		}
		return nil, nil
	}
	stored := []kahn.Option{kahn.Durable(db), kahn.RunID("r"), kahn.StoreEvents()}
	_, err := kahn.Execute(t.Context(), g, step, stored...)
	require.Error(t, err)
	fails = false
	_, err = kahn.Execute(t.Context(), g, step, append(stored, kahn.Redrive(nil, nil))...)
	require.NoError(t, err)
	code, _, stderr := invoke(t, "", "run", "-follow", "r", "-store", file, "-v", "-progress", "plain")
	require.Equal(t, exitOK, code)
	require.Contains(t, stderr, "b: failed after ")
	require.Contains(t, stderr, "[2/2] run completed in ")
	require.NotContains(t, stderr, "[2/2] run failed")
}

// The error for an unknown id lists similar ids. Flags for performing a run are refused.
func TestFollowRefuses(t *testing.T) {
	t.Parallel()
	file, db := opened(t)
	g := new(kahn.Graph).Add(kahn.Node{ID: "a"})
	none := filepath.Join(t.TempDir(), "none.db")
	expect(t, exitUsage, `there is no run "x" in `+file+"; the file has no runs", "", "run", "-follow", "x", "-store", file)
	for _, id := range []string{"order-1001", "order-1002", "refund-7"} {
		_, err := kahn.Execute(t.Context(), g, func(context.Context, *kahn.Step) (any, error) { return nil, nil }, kahn.Durable(db), kahn.RunID(id))
		require.NoError(t, err)
	}
	for _, row := range []struct {
		want string
		args []string
	}{
		{`there is no run "refnud-7" in ` + file + `; did you mean "refund-7"?`, []string{"refnud-7", "-store", file}},
		{`; did you mean order-100`, []string{"order-100", "-store", file}},
		{`; the newest are `, []string{"something else", "-store", file}},
		{"there is no " + none, []string{"x", "-store", none}},
		{"-follow needs -store", []string{"x"}},
		{"-limit does not go with -follow", []string{"x", "-store", file, "-limit", "3"}},
		{"-answer does not go with -follow", []string{"x", "-store", file, "-answer", "a=b"}},
		{`unexpected argument "flow.yaml"`, []string{"x", "-store", file, "flow.yaml"}},
	} {
		expect(t, exitUsage, row.want, "", append([]string{"run", "-follow"}, row.args...)...)
	}
	missing(t, none)
	expect(t, exitUsage, "FILE is missing", "", "run", "-store", file)
}
