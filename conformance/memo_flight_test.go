package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// flock holds runs that share a memo.
type flock struct {
	t     *testing.T
	g     *kahn.Graph
	calls paths
	rn    kahn.Runner
	runs  []*kahn.Run
	recs  []*recorder
}

// start starts a run, and waits until nothing more happens at the current time.
func (f *flock) start(step kahn.StepFunc, opts ...kahn.Option) *kahn.Run {
	f.t.Helper()
	rec := newRecorder()
	run, err := f.rn.Start(f.t.Context(), f.g, f.calls.count(step), append(opts, kahn.OnEvent(rec.add))...)
	require.NoError(f.t, err)
	f.runs, f.recs = append(f.runs, run), append(f.recs, rec)
	synctest.Wait()
	return run
}

// end waits for all runs, and returns the status of node E in each, with the duration of the run.
func (f *flock) end() (ends []string) {
	f.t.Helper()
	for i, run := range f.runs {
		res, _ := run.Wait()
		checkEvents(f.t, f.g, res, f.recs[i].all())
		n, _ := res.Node("E")
		text := fmt.Sprint(shortStatus(n), " ", res.Duration)
		if n.Memoized {
			text += " memoized"
		}
		ends = append(ends, text)
	}
	return ends
}

// TestMemoFlight: if several runs need the same memoized node, one calls the step and the others wait until its node ends, even if the step has
// returned a graph. If the node fails, the next run calls the step.
func TestMemoFlight(t *testing.T) {
	t.Parallel()
	once := map[string]int{"E": 1, "E/y": 1}
	inner := func() *kahn.Graph { return graph(after("y")) }
	quickly := func(ctx context.Context, s *kahn.Step) (any, error) {
		if s.Path() == "B" {
			return nil, nil
		}
		return takes(time.Second)(ctx, s)
	}
	slowly := func(step kahn.StepFunc, g *kahn.Graph) kahn.StepFunc { // E takes a second to return its graph
		return func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.Path() != "E" {
				return step(ctx, s)
			}
			if _, err := takes(time.Second)(ctx, s); err != nil {
				return nil, err
			}
			return nil, kahn.Expand(g, nil, "state")
		}
	}
	expanding := slowly(quickly, inner())
	failing := func(ctx context.Context, s *kahn.Step) (any, error) { // in the first run a node of the returned graph fails
		if s.Path() == "E/y" {
			_, err := takes(time.Second)(ctx, s)
			return nil, errors.Join(err, errStep)
		}
		return expanding(ctx, s)
	}
	hourly := slowly(takes(time.Hour), inner())
	store := kahn.Durable(new(store.Memory))
	for _, kind := range []struct {
		name   string
		runner *kahn.Runner
		opts   []kahn.Option
	}{
		{name: "unbounded", runner: &kahn.Runner{}},
		{name: "one slot for all runs", runner: &kahn.Runner{Limit: 1}}, // a run that waits for the node of another run must leave the slot to the nodes inside
		{name: "one slot for a key", runner: &kahn.Runner{KeyLimit: 1}},
		{name: "few starts", runner: &kahn.Runner{Rate: kahn.Rate{Starts: 1000, Per: time.Second, Burst: 4}}},
		{name: "one slot for each run", runner: &kahn.Runner{}, opts: []kahn.Option{kahn.Limit(1)}},
		{name: "waves", runner: &kahn.Runner{}, opts: []kahn.Option{kahn.Waves}},
		{name: "durable", runner: &kahn.Runner{}, opts: []kahn.Option{store}},
		{name: "durable, one slot", runner: &kahn.Runner{Limit: 1}, opts: []kahn.Option{store, kahn.Limit(1)}},
	} {
		fly := func(name string, f func(t *testing.T, f *flock)) {
			inBubble(t, kind.name+", "+name, func(t *testing.T) {
				g := graph(kahn.Node{ID: "E", Memo: "v1", Key: "k"}, after("B", "E"))
				x := &flock{t: t, g: g}
				x.rn.Limit, x.rn.KeyLimit, x.rn.Rate = kind.runner.Limit, kind.runner.KeyLimit, kind.runner.Rate
				x.rn.Options = append([]kahn.Option{new(kahn.Memo)}, kind.opts...)
				f(t, x)
			})
		}
		fly("three at once", func(t *testing.T, f *flock) {
			for range 3 {
				f.start(expanding) // the other runs begin to wait before the step returns its graph
			}
			ends := f.end()
			require.Equal(t, "ok 2s", ends[0])
			for _, end := range ends[1:] {
				require.Contains(t, end, "memoized")
			}
			delete(f.calls.n, "B")
			require.Equal(t, once, f.calls.n)
		})
		fly("who comes later waits, too", func(t *testing.T, f *flock) {
			f.start(expanding)
			time.Sleep(1500 * ms)
			f.start(expanding)
			_, _ = f.runs[0].WaitFor(t.Context(), "E")
			_, _ = f.runs[1].WaitFor(t.Context(), "E")
			n, err := f.runs[1].Node("E")
			require.NoError(t, err)
			require.True(t, n.Memoized)
			f.end()
			delete(f.calls.n, "B")
			require.Equal(t, once, f.calls.n)
		})
		fly("another one flies after a failure", func(t *testing.T, f *flock) {
			f.start(failing)
			f.start(expanding)
			f.start(expanding)
			ends := f.end()
			require.Equal(t, "F 2s", ends[0])
			require.NotContains(t, ends[1]+ends[2], "F")
			require.Equal(t, map[string]int{"E": 2, "E/y": 2, "B": 2}, f.calls.n)
		})
		fly("after a stop", func(t *testing.T, f *flock) {
			f.start(hourly)
			f.start(expanding)
			time.Sleep(1500 * ms)
			f.runs[0].Cancel()
			require.Equal(t, []string{"C 1.5s", "ok 3.5s"}, f.end())
		})
		fly("after a node that was cancelled", func(t *testing.T, f *flock) {
			f.start(hourly)
			f.start(expanding)
			time.Sleep(1500 * ms)
			require.NoError(t, f.runs[0].CancelNode("E"))
			require.Equal(t, []string{"C 1.5s", "ok 3.5s"}, f.end())
		})
		fly("after a run that was left", func(t *testing.T, f *flock) {
			two := slowly(quickly, graph(after("y"), after("z", "y")))
			f.start(two)
			f.start(two)
			time.Sleep(1500 * ms)
			f.runs[0].Leave() // y may finish
			require.Equal(t, "ok 5s", f.end()[1])
		})
		fly("who waits can be stopped", func(t *testing.T, f *flock) {
			f.start(expanding)
			second := f.start(expanding)
			time.Sleep(1500 * ms)
			second.Cancel()
			require.Equal(t, []string{"ok 2s", "C 1.5s"}, f.end())
			delete(f.calls.n, "B")
			require.Equal(t, once, f.calls.n)
		})
		fly("who waits can be left", func(t *testing.T, f *flock) {
			f.start(expanding)
			second := f.start(expanding)
			time.Sleep(1500 * ms)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.Error(t, f.rn.Shutdown(ctx))
			res, err := second.Wait()
			require.NoError(t, err)
			require.Equal(t, kahn.RunSuspended, res.Status)
			f.end()
		})
	}
	for limit, want := range map[int]string{0: "[ok 3s memoized ok 3s]", 2: "[ok 4s ok 3s]"} { // with enough slots each run calls the step instead of waiting
		inBubble(t, fmt.Sprint("an attempt after another one, ", limit), func(t *testing.T) {
			retried := kahn.Retry{MaxAttempts: 2, InitialDelay: 100 * ms, Jitter: kahn.JitterNone}
			f := &flock{t: t, g: graph(kahn.Node{ID: "E", Memo: "v1", Retry: retried})}
			f.rn.Limit, f.rn.Options = limit, []kahn.Option{new(kahn.Memo)}
			brittle := func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.Path() == "E/y" && f.calls.of("E/y") == 1 {
					return nil, errStep
				}
				return expanding(ctx, s)
			}
			f.start(brittle)
			f.start(brittle)
			require.Equal(t, want, fmt.Sprint(f.end())) // the second run calls the step while the first backs off
		})
	}
}
