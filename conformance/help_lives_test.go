package conformance_test

import (
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// This file helps to test runs with several lives. A life of a run is the time in which one process performs it. A life ends because the run is
// suspended or left, or because the process dies. The next life continues the run.

// reload encodes a snapshot as JSON and decodes it, as if another process read it.
func reload(t testing.TB, s *kahn.Snapshot) *kahn.Snapshot {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	back := new(kahn.Snapshot)
	if err := json.Unmarshal(data, back); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return back
}

// resume continues a run that was left, from its snapshot as JSON. It returns the run with the events of all lives.
func (r trial) resume(g *kahn.Graph, step kahn.StepFunc, signals map[string]any, opts ...kahn.Option) trial {
	r.t.Helper()
	return r.goOn(g, step, append(slices.Clone(opts), kahn.Resume(reload(r.t, r.Snapshot())), kahn.EarlySignals(signals)))
}

func (r trial) redrive(g *kahn.Graph, step kahn.StepFunc, nodes ...string) trial {
	r.t.Helper()
	return r.goOn(g, step, []kahn.Option{kahn.Redrive(reload(r.t, r.Snapshot()), nodes)})
}

func (r trial) goOn(g *kahn.Graph, step kahn.StepFunc, opts []kahn.Option) trial {
	r.t.Helper()
	rec := newRecorder()
	res, err := executeRun(r.t, r.t.Context(), g, step, append(opts, kahn.OnEvent(rec.add))...)
	if res == nil {
		r.t.Fatal(err)
	}
	next := trial{res, r.t, err, append(slices.Clone(r.events), rec.all()...)}
	for i, e := range next.events {
		if e.ID != uint64(i+1) {
			r.t.Fatalf("event %d has id %d\n%s", i+1, e.ID, eventText(next.events))
		}
	}
	checkEvents(r.t, g, res, next.events)
	checkEvents(r.t, g, res, rec.all())
	if res.ID() != r.ID() {
		r.t.Errorf("run %s goes on as %s", r.ID(), res.ID())
	}
	if res.Status != kahn.RunSuspended && !slices.Contains(runTerminal, next.last()) {
		r.t.Errorf("the last event of a run that is %v is %s", res.Status, next.last())
	}
	return next
}

// pause executes a graph until the run is suspended, and checks the events by the rules for a run without an end.
func pause(t testing.TB, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) trial {
	t.Helper()
	rec := newRecorder()
	res, err := executeRun(t, t.Context(), g, step, append(slices.Clone(opts), kahn.OnEvent(rec.add))...)
	if err != nil {
		t.Fatalf("a suspended run is no error: %v", err)
	}
	r := trial{res, t, err, rec.all()}
	checkEvents(t, g, res, r.events)
	last := r.events[len(r.events)-1]
	changed, ok := last.Payload.(event.StatusChange)
	if !ok || changed.From != kahn.RunRunning || changed.To != kahn.RunSuspended || !slices.Equal(changed.Waiting, waitIDs(res.Waiting)) {
		t.Errorf("the last event is %v, waiting for %v", last, res.Waiting)
	}
	for _, w := range res.Waiting {
		r.count(event.NodeSuspended, w.Node, 1)
	}
	return r
}

func waitIDs(list []kahn.Wait) (ids []string) {
	for _, w := range list {
		ids = append(ids, w.Node)
	}
	return ids
}

// left starts a run, leaves it after the time d, and returns it as a trial.
func left(t *testing.T, g *kahn.Graph, step kahn.StepFunc, d time.Duration, opts ...kahn.Option) trial {
	t.Helper()
	rec := newRecorder()
	run, err := startRun(t, t.Context(), g, step, append(slices.Clone(opts), kahn.OnEvent(rec.add))...)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(d)
	run.Leave()
	res, err := run.Wait()
	return trial{res, t, err, rec.all()}
}

// crashed starts a run and returns its snapshot after the time d, as if the process died then.
func crashed(t *testing.T, g *kahn.Graph, step kahn.StepFunc, d time.Duration, opts ...kahn.Option) *kahn.Snapshot {
	t.Helper()
	run, err := startRun(t, t.Context(), g, step, opts...)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(d)
	synctest.Wait()
	s := reload(t, run.Snapshot())
	run.Cancel()
	_, _ = run.Wait()
	return s
}

// crash begins a run and calls host. When host returns, the process dies. crash returns the options with which another process continues the run
// from a snapshot or from the store.
func crash(t *testing.T, g *kahn.Graph, step kahn.StepFunc, durable bool, host func(*kahn.Run), opts ...kahn.Option) []kahn.Option {
	t.Helper()
	j, id := new(journal), kahn.RunID("crash")
	mine := append(slices.Clone(opts), id)
	if durable {
		mine = append(mine, kahn.Durable(j))
	}
	run, err := kahn.Start(t.Context(), g, step, mine...)
	if err != nil {
		t.Fatal(err)
	}
	host(run)
	opts = append(slices.Clone(opts), id)
	if durable {
		opts = append(opts, kahn.Durable(j.replay(t, "crash", j.len())))
	} else {
		opts = append(opts, kahn.Resume(reload(t, run.Snapshot())))
	}
	run.Cancel()
	_, _ = run.Wait()
	return opts
}

func lasting(d time.Duration) func(*kahn.Run) { return func(*kahn.Run) { time.Sleep(d) } }

// dies starts a run over a store, waits, and returns a copy of the store, as if the process died then.
func dies(t *testing.T, g *kahn.Graph, step kahn.StepFunc, store *journal, after time.Duration, opts ...kahn.Option) *journal {
	t.Helper()
	run, err := kahn.Start(t.Context(), g, step, append(opts, kahn.Durable(store), kahn.RunID("r"))...)
	require.NoError(t, err)
	time.Sleep(after)
	synctest.Wait()
	next := store.replay(t, "r", store.len())
	run.Cancel()
	_, _ = run.Wait()
	next.writes = store.writes[:next.len()]
	return next
}

// lives continues a run life after life, from snapshots as JSON or from a store.
type lives struct {
	t      *testing.T
	g      *kahn.Graph
	step   kahn.StepFunc
	opts   []kahn.Option
	store  store.Store
	runner *kahn.Runner // performs the current life
	last   *kahn.Snapshot
	events []kahn.Event
}

// next performs the next life. If the parameter "after" is not 0, next lets that time pass, and then calls act or, if act is nil, shuts the
// Runner down without waiting.
func (l *lives) next(after time.Duration, act func(*kahn.Run)) (*kahn.Result, error) {
	l.t.Helper()
	rn := new(kahn.Runner)
	l.runner = rn
	rec := newRecorder()
	opts := append(slices.Clone(l.opts), kahn.OnEvent(rec.add), kahn.RunID("r"))
	switch {
	case l.store != nil:
		opts = append(opts, kahn.Durable(l.store))
	case l.last != nil:
		opts = append(opts, kahn.Resume(l.last))
	}
	run, err := rn.Start(l.t.Context(), l.g, l.step, opts...)
	if err != nil {
		l.t.Fatal(err)
	}
	if after > 0 {
		time.Sleep(after)
		synctest.Wait()
		if act != nil {
			act(run)
		} else {
			shutDown(l.t, rn)
		}
	}
	res, err := run.Wait()
	if left := leftovers(run); left != "" && res.Status.Terminal() {
		l.t.Errorf("left over: %s", left)
	}
	data, jsonErr := json.Marshal(res.Snapshot())
	if l.last = new(kahn.Snapshot); jsonErr != nil || json.Unmarshal(data, l.last) != nil {
		l.t.Fatal(jsonErr)
	}
	l.events = append(l.events, rec.all()...)
	if err := kahntest.CheckEvents(l.g, res, l.events); err != nil {
		l.t.Errorf("%v\n%s", err, eventText(l.events))
	}
	return res, err
}
