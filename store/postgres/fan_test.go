package postgres_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
)

func fan(n int) *kahn.Graph {
	g := new(kahn.Graph)
	for i := range n {
		g.Add(kahn.Node{ID: fmt.Sprint("n", i)})
	}
	return g
}

// TestLargeValuesThatEndTogether: steps that all return 1 MB at the same moment complete under default options, and no step is called twice.
func TestLargeValuesThatEndTogether(t *testing.T) {
	pool := postgrestest.NewPool(t, database)
	s := openStore(t, pool, newSchema())
	sizes := []int{40}
	if size(0, 1) == 1 {
		sizes = []int{400, 800, 1200}
	}
	for _, n := range sizes {
		var calls, most atomic.Int64
		var all sync.WaitGroup
		all.Add(n)
		stop := make(chan struct{})
		go func() { // record the largest amount of memory that the runtime holds
			var m runtime.MemStats
			for {
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Millisecond):
					runtime.ReadMemStats(&m)
					most.Store(max(most.Load(), int64(m.Sys-m.HeapReleased)))
				}
			}
		}()
		start := time.Now()
		res, err := kahn.Execute(t.Context(), fan(n), func(context.Context, *kahn.Step) (any, error) {
			calls.Add(1)
			all.Done()
			all.Wait()
			return strings.Repeat("x", 1<<20), nil
		}, kahn.Durable(s), kahn.RunID(fmt.Sprint("fan-", n)))
		close(stop)
		require.NoError(t, err)
		t.Logf("%d values of 1 MB: %v, %d calls, at most %d MB", n, time.Since(start).Round(time.Millisecond), calls.Load(), most.Load()>>20)
		require.Equal(t, n, res.Count(kahn.Completed))
		require.EqualValues(t, n, calls.Load())
	}
}

// TestFirstStepOfAWideFan logs how long a run of 100,000 roots takes until its first step is called.
func TestFirstStepOfAWideFan(t *testing.T) {
	pool := postgrestest.NewPool(t, database)
	s := openStore(t, pool, newSchema())
	n := size(10_000, 100_000)
	g := fan(n)
	plan, err := g.Compile() // compile now, so that Execute need not: the graph keeps its plan
	require.NoError(t, err)
	require.NotEmpty(t, plan.Hash())
	var first atomic.Int64
	var calls atomic.Int64
	start := time.Now()
	res, err := kahn.Execute(t.Context(), g, func(context.Context, *kahn.Step) (any, error) {
		if calls.Add(1) == 1 {
			first.Store(int64(time.Since(start)))
		}
		return nil, nil
	}, kahn.Durable(s), kahn.RunID("wide"))
	require.NoError(t, err)
	t.Logf("%d roots: the first step after %v, all after %v", n, time.Duration(first.Load()).Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
	require.Equal(t, n, res.Count(kahn.Completed))
}

// TestCompensationsOfABatch: a commit without Compensation leaves the run's compensation unchanged, even if it shares a statement with commits
// that set theirs.
func TestCompensationsOfABatch(t *testing.T) {
	t.Parallel()
	s := openStore(t, postgrestest.NewPool(t, database), newSchema())
	const runs, rounds = 40, 6
	var all errgroup.Group
	for i := range runs {
		all.Go(func() error {
			id := fmt.Sprint("r", i)
			lease, _, err := s.Acquire(t.Context(), id, id, time.Minute)
			if err != nil {
				return err
			}
			for n := range uint64(rounds) {
				c := store.Commit{Sequence: n + 1, Run: []byte("{}"), Status: kahn.RunRunning}
				if n == uint64(i%rounds) {
					c.Compensation = new(kahn.Compensation)
					*c.Compensation = kahn.Compensation(1 + i%3)
				}
				if a, err := s.Commit(t.Context(), lease, c); err != nil || a != store.AppliedNow {
					return fmt.Errorf("run %s: %v, %w", id, a, err)
				}
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
	for i := range runs {
		r, err := s.Load(t.Context(), fmt.Sprint("r", i))
		require.NoError(t, err)
		require.Equal(t, kahn.Compensation(1+i%3), r.Compensation, "run %d", i)
	}
}
