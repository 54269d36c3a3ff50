package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// faultyStore is a store that fails at some writes, which it counts from 0. A lost write is applied, but not acknowledged.
type faultyStore struct {
	*store.Memory
	fails func(write int) (fails, lost bool)

	mu     sync.Mutex
	writes int
	first  bool // whether the first write failed
	ended  bool // whether the end of the run was applied
	lost   bool // whether a write was applied but not acknowledged
}

var errDown = errors.New("the store is down")

func (s *faultyStore) write(f func() (store.Applied, error)) (store.Applied, error) {
	s.mu.Lock()
	fails, lost := s.fails(s.writes)
	s.first, s.lost = s.first || fails && s.writes == 0, s.lost || lost
	s.writes++
	s.mu.Unlock()
	if fails && !lost {
		return 0, errDown
	}
	a, err := f()
	if fails && err == nil {
		return 0, errDown
	}
	return a, err
}

func (s *faultyStore) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	return s.write(func() (store.Applied, error) {
		a, err := s.Memory.Commit(ctx, l, c)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended = s.ended || a == store.AppliedNow && c.Status.Terminal()
		return a, err
	})
}

// faultyGraph returns a graph whose run needs many writes. It has an expanded node, a loop that pauses, a map of sub-graphs, gates, a step that
// waits, a step that is retried, and a cleanup node.
func faultyGraph() *kahn.Graph {
	yields := func(ctx context.Context, s *kahn.Step) (any, error) {
		time.Sleep(ms)
		return s.Path(), nil
	}
	return graph(
		kahn.Node{ID: "A", Do: yields},
		gate("G", "A"),
		kahn.Node{ID: "D", After: []string{"A"}, Do: func(context.Context, *kahn.Step) (any, error) {
			return nil, kahn.Expand(graph(kahn.Node{ID: "x", Do: yields}, gate("g", "x"), kahn.Node{ID: "y", After: []string{"g"}, Do: yields}), nil, "plan")
		}},
		kahn.Node{ID: "L", After: []string{"A"}, Sub: graph(kahn.Node{ID: "x", Do: yields}), Loop: &kahn.Loop{
			MaxIterations: 5, Pause: 20 * ms, Collect: true, While: func(v kahn.View) (bool, error) { return v.Iteration() < 3, nil },
		}},
		kahn.Node{ID: "M", After: []string{"A"}, Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []int{1, 2}}, Sub: graph(kahn.Node{ID: "x", Do: yields})},
		kahn.Node{ID: "S", After: []string{"A"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if v, ok := s.Resumed(); ok {
				return v, nil
			}
			return nil, kahn.Suspend("token", nil, 1)
		}},
		kahn.Node{ID: "R", After: []string{"A"}, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 5 * ms, Jitter: kahn.JitterNone}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if s.Attempt() == 1 {
				return nil, errStep
			}
			return "second", nil
		}},
		kahn.Node{ID: "E", After: []string{"G", "D", "L", "M", "S", "R"}, Do: yields},
		kahn.Node{ID: "C", After: []string{"R"}, Cleanup: true, Do: yields},
		kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: yields},
	)
}

// TestStoreFailsAtEveryWrite lets the store fail at each write in turn: briefly, after it has applied the write, or permanently. The run ends in
// this process and is resumed when the store works again. The outcome is the same as without a failure.
func TestStoreFailsAtEveryWrite(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(k, write int) (fails, lost bool){
		"once":               func(k, n int) (bool, bool) { return n == k, false },
		"the answer is lost": func(k, n int) (bool, bool) { return n == k, true },
		"for good":           func(k, n int) (bool, bool) { return n >= k, false },
		"lost for good":      func(k, n int) (bool, bool) { return n >= k, n == k },
	} {
		for _, limit := range []int{0, 1} {
			t.Run(fmt.Sprint(name, ", limit ", limit), func(t *testing.T) {
				t.Parallel()
				var want outcome
				for k, writes := -1, 0; k < writes; k++ {
					synctest.Test(t, func(t *testing.T) {
						store := &faultyStore{Memory: new(store.Memory), fails: func(n int) (bool, bool) {
							if k < 0 {
								return false, false
							}
							return fails(k, n)
						}}
						got := faultyLives(t, store)
						if k < 0 {
							want, writes = got, store.writes
							require.Greater(t, writes, 15)
							require.Equal(t, kahn.RunCompleted, got.Status)
						}
						if got.Nodes == nil {
							require.True(t, store.ended, "it has ended before its last write")
							return
						}
						require.Equal(t, want, got, "write %d of %d", k, writes)
					})
					if t.Failed() {
						return
					}
				}
			})
		}
	}
}

// faultyLives performs the graph in one life or in two. The store works again after the first life.
func faultyLives(t *testing.T, store *faultyStore) outcome {
	g := faultyGraph()
	for life := 1; ; life++ {
		rec := newRecorder()
		run, err := kahn.Start(t.Context(), g, neverStep(t), kahn.Durable(store), kahn.RunID("r"), kahn.OnEvent(rec.add), kahn.Rate{Starts: 2, Per: 3 * ms, Burst: 2})
		if life == 2 && errors.Is(err, kahn.ErrFinished) { // the write of the run's end was applied
			return outcome{}
		}
		require.NoError(t, err)
		var res *kahn.Result
		for waited := 0; res == nil; waited++ {
			require.Less(t, waited, 100_000, "it has not ended: %v", run.Status())
			select {
			case <-run.Done():
				res, err = run.Wait()
			case <-time.After(10 * ms):
				for _, w := range run.Waiting() {
					if err := run.Signal(context.Background(), w.Token, true); !errors.Is(err, kahn.ErrStore) && !errors.Is(err, kahn.ErrFinished) {
						require.NoError(t, err)
					}
				}
			}
		}
		if res.Left {
			require.Empty(t, heldSlots(run))
		} else {
			require.Empty(t, leftovers(run))
		}
		if err == nil || !errors.Is(err, kahn.ErrStore) {
			require.NoError(t, err)
			require.NoError(t, kahntest.CheckEvents(g, res, rec.all()), eventText(rec.all()))
			out := outcome{Status: res.Status}
			out.add(&cutter{expands: map[string]*kahn.Graph{"D": graph()}}, res, "") // interrupted attempts count
			return out
		}
		require.Equal(t, 1, life)
		require.True(t, res.Left)
		require.Equal(t, kahn.RunSuspended, res.Status)
		require.NoError(t, kahntest.CheckEvents(g, res, rec.all()), eventText(rec.all()))
		lookAround(run, res)
		if !store.lost {
			asStored(t, store, run)
		}
		for _, e := range rec.all() {
			require.False(t, store.first && e.Type == event.NodeStarted, "something was called before the run could be written")
		}
		store.mu.Lock()
		store.fails = func(int) (bool, bool) { return false, false }
		store.mu.Unlock()
		time.Sleep(time.Minute)
	}
}

// asStored expects that the nodes of a run that was left agree with the store.
func asStored(t *testing.T, db store.Store, run *kahn.Run) {
	stored, err := db.Load(t.Context(), "r")
	require.NoError(t, err)
	for path, n := range stored.Nodes {
		got, err := run.Node(path)
		if path == "end" || err != nil {
			continue // inside a composite that has started again
		}
		require.Equal(t, n.Terminal, got.Status.Terminal(), "%s is %v", path, got.Status)
		if got.Sub == nil && n.Attempt > 0 && path != "S" { // S is called twice in one attempt
			require.Equal(t, int(n.Attempt), got.Attempts, path)
		}
	}
}

// lookAround calls every reading method of an ended run and of its Result.
func lookAround(run *kahn.Run, res *kahn.Result) {
	for n := range res.Nodes() {
		_ = n.History()
		_, _ = run.Node(n.ID)
		_, _ = run.Inside(n.ID)
		_, _, _ = run.Inputs(n.ID)
		_, _ = run.Why(n.ID)
		_, _ = res.Why(n.ID)
	}
	_ = run.Waiting()
	_ = run.Counts()
	_ = run.Snapshot()
	_ = res.Snapshot().Waiting()
}
