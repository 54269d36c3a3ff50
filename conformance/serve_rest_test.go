package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// pausing returns a graph with a loop that pauses.
func pausing(name string, iterations int, pause time.Duration) *kahn.Graph {
	again := func(v kahn.View) (bool, error) { return v.Iteration() < iterations, nil }
	return flow(name, kahn.Node{ID: "L", Sub: graph(kahn.Node{ID: "x"}), Loop: &kahn.Loop{MaxIterations: iterations, While: again, Pause: pause}}, kahn.Node{ID: "b", After: []string{"L"}})
}

// held returns the number of runs with a lease.
func (s *served) held(t *testing.T) (n int) {
	t.Helper()
	page, err := s.List(t.Context(), store.Query{})
	require.NoError(t, err)
	for _, r := range page.Runs {
		state, err := kahn.ReadRun(t.Context(), s, r.ID)
		require.NoError(t, err)
		if state.Holder != "" {
			n++
		}
	}
	return n
}

// perishing is a store as seen by a process that dies after a number of writes.
type perishing struct {
	*served
	writes atomic.Int64
}

func (s *perishing) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if s.writes.Add(-1) < 0 {
		return 0, store.ErrFenced
	}
	return s.served.Commit(ctx, l, c)
}

func (s *perishing) Renew(ctx context.Context, l store.Lease, d time.Duration) error {
	if s.writes.Load() < 0 {
		return store.ErrFenced
	}
	return s.served.Renew(ctx, l, d)
}

func (s *perishing) Release(ctx context.Context, l store.Lease) error {
	if s.writes.Load() < 0 {
		return store.ErrFenced
	}
	return s.served.Release(ctx, l)
}

// A process dies at each write of a run with pauses, including the write with which the process leaves the run for a pause. Another process
// continues the run: each pause keeps its length, and steps whose end was stored are not called again.
func TestServeRestsAndDies(t *testing.T) {
	t.Parallel()
	inBubble(t, "at each write", func(t *testing.T) {
		last := false
		for writes := int64(0); !last; writes++ {
			s, loops := new(served), pausing("loops", 3, time.Hour)
			s.create(t, loops, time.Time{}, "loop")
			mortal := &perishing{served: s}
			mortal.writes.Store(writes)
			v := s.service(loops)
			v.Store, v.Poll, v.OnError = mortal, 10*time.Second, func(string, store.Queue, error) {}
			end := serve(t, &kahn.Runner{MaxRuns: 1}, v)
			time.Sleep(2*time.Hour + 30*time.Minute)
			end()
			last = mortal.writes.Load() >= 0
			v.Store, v.OnError = s, s.told
			end = serve(t, &kahn.Runner{MaxRuns: 1}, v)
			time.Sleep(3 * time.Hour)
			require.Equal(t, kahn.RunCompleted, s.status(t, "loop"), writes)
			calls := len(s.take())
			require.GreaterOrEqual(t, calls, 4, writes)
			require.LessOrEqual(t, calls, 5, writes) // the interrupted call is repeated
			end()
			require.Less(t, writes, int64(50))
		}
	})
}

// Serve leaves a run that only waits, so the run takes no place of MaxRuns and has no lease. Serve continues the run in time.
func TestServeRests(t *testing.T) {
	t.Parallel()
	inBubble(t, "a loop that pauses", func(t *testing.T) {
		s, loops, other := new(served), pausing("loops", 3, time.Hour), flow("other")
		s.create(t, loops, time.Time{}, "loop")
		begin := time.Now()
		end := serve(t, &kahn.Runner{MaxRuns: 1}, s.service(loops, other))
		time.Sleep(time.Second)
		require.Equal(t, []string{"loop x"}, s.take())
		require.Equal(t, kahn.RunSuspended, s.status(t, "loop"))
		require.Zero(t, s.held(t))
		s.create(t, other, time.Time{}, "other")
		time.Sleep(time.Second)
		require.Equal(t, []string{"other a"}, s.take())
		time.Sleep(time.Until(begin.Add(time.Hour - time.Second)))
		require.Empty(t, s.take())
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"loop x"}, s.take())
		time.Sleep(time.Hour)
		require.Equal(t, []string{"loop x", "loop b"}, s.take())
		require.Equal(t, kahn.RunCompleted, s.status(t, "loop"))
		end()
	})
	inBubble(t, "a backoff, and a gate beside it", func(t *testing.T) {
		s := new(served)
		g := flow("w", kahn.Node{ID: "r", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Hour, MaxDelay: time.Hour, Jitter: kahn.JitterNone}},
			kahn.Node{ID: "g", Kind: kahn.KindGate}, kahn.Node{ID: "c", After: []string{"r", "g"}})
		s.create(t, g, time.Time{}, "run")
		fails := true
		v := s.service(g)
		v.Workflows[0].Step = func(ctx context.Context, step *kahn.Step) (any, error) {
			if step.ID() == "r" && fails {
				return nil, errors.New("busy")
			}
			return s.step(ctx, step)
		}
		end := serve(t, &kahn.Runner{MaxRuns: 1}, v)
		time.Sleep(time.Second)
		require.Empty(t, s.take())
		require.Zero(t, s.held(t))
		fails = false
		q, err := kahn.PrepareSignal("g", kahn.Decision{Value: "yes"})
		require.NoError(t, err)
		_, err = s.Post(t.Context(), "run", q) // the run takes the request, and rests again
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Empty(t, s.take())
		require.Zero(t, s.held(t))
		time.Sleep(time.Hour)
		require.Equal(t, []string{"run r", "run c"}, s.take())
		end()
	})
	inBubble(t, "a request to cancel is taken at once", func(t *testing.T) {
		s, loops := new(served), pausing("loops", 3, time.Hour)
		s.create(t, loops, time.Time{}, "loop")
		end := serve(t, &kahn.Runner{MaxRuns: 1}, s.service(loops))
		time.Sleep(time.Second)
		_, err := s.Post(t.Context(), "loop", store.Request{ID: "c", Kind: store.KindCancel})
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, kahn.RunCancelled, s.status(t, "loop"))
		end()
	})
	inBubble(t, "the run's Timeout ends it while it rests", func(t *testing.T) {
		s, loops := new(served), pausing("loops", 3, time.Hour)
		s.create(t, loops, time.Time{}, "loop")
		v := s.service(loops)
		v.Workflows[0].Options = []kahn.Option{kahn.Timeout(30 * time.Minute)}
		end := serve(t, &kahn.Runner{}, v)
		time.Sleep(time.Second)
		require.Equal(t, kahn.RunSuspended, s.status(t, "loop"))
		time.Sleep(30 * time.Minute)
		require.Equal(t, kahn.RunFailed, s.status(t, "loop"))
		end()
	})
	inBubble(t, "what keeps its place", func(t *testing.T) {
		for name, tt := range map[string]struct {
			g     *kahn.Graph
			after time.Duration
			opts  []kahn.Option
		}{
			"a short pause":         {g: pausing("w", 3, 4*time.Second)},
			"a pause below a bound": {g: pausing("w", 3, time.Hour), after: 2 * time.Hour},
			"never":                 {g: pausing("w", 3, time.Hour), after: -1},
			"a rate":                {g: pausing("w", 3, time.Hour), opts: []kahn.Option{kahn.Rate{Starts: 1, Per: 3 * time.Hour}}},
		} {
			s := new(served)
			s.create(t, tt.g, time.Time{}, name)
			v := s.service(tt.g)
			v.RestAfter, v.Workflows[0].Options = tt.after, tt.opts
			end := serve(t, &kahn.Runner{}, v)
			time.Sleep(time.Second)
			require.Equal(t, kahn.RunRunning, s.status(t, name), name)
			require.Equal(t, 1, s.held(t), name)
			end()
		}
	})
	inBubble(t, "a process that dies, and one that is shut down, in between", func(t *testing.T) {
		s, loops := new(served), pausing("loops", 5, time.Hour)
		s.create(t, loops, time.Time{}, "loop")
		var calls []string
		for life := range 5 {
			end := serve(t, &kahn.Runner{MaxRuns: 1}, s.service(loops))
			if life == 0 {
				time.Sleep(time.Second)
			} else {
				time.Sleep(time.Hour)
			}
			calls = append(calls, s.take()...)
			end()
		}
		require.Equal(t, "loop x loop x loop x loop x loop x loop b", strings.Join(calls, " "))
		require.Equal(t, kahn.RunCompleted, s.status(t, "loop"))
		state, err := kahn.ReadRun(t.Context(), s, "loop")
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, state.Status)
	})
}

// Runs that Serve has left while they wait use no goroutines.
func TestServeManyThatRest(t *testing.T) { // not parallel, since it counts goroutines
	inBubble(t, "many runs that sleep", func(t *testing.T) {
		s, loops := new(served), pausing("loops", 2, 10*time.Hour)
		n := size(1_000, 200, 10_000)
		for i := range n {
			s.create(t, loops, time.Time{}, fmt.Sprint("loop ", i))
		}
		rn := &kahn.Runner{MaxRuns: 8, History: -1}
		before := runtime.NumGoroutine()
		v := s.service(loops)
		v.Poll = time.Minute
		end := serve(t, rn, v)
		time.Sleep(9 * time.Hour)
		require.Len(t, s.take(), n)
		for range rn.Runs() {
			t.Error("a run that rests is kept in memory")
		}
		require.Less(t, runtime.NumGoroutine()-before, 50)
		end()
	})
}
