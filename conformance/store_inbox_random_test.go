package conformance_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestRequestsInManyLives posts requests at random times. The run is left, fenced and continued at random times. Each request takes effect once,
// in the order in which the requests were posted. Every step waits for the same token, so a request that took effect twice would answer two
// steps.
func TestRequestsInManyLives(t *testing.T) {
	t.Parallel()
	for seed := range seeds(t, size(60, 10, 2_000)) {
		synctest.Test(t, func(t *testing.T) { manyLives(t, seed) })
		if t.Failed() {
			return
		}
	}
}

const askedSteps = 8

func manyLives(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 17))
	db, g := new(store.Memory), graph(kahn.Node{ID: "0"})
	for i := 1; i < askedSteps; i++ {
		g.Add(kahn.Node{ID: fmt.Sprint(i), After: []string{fmt.Sprint(i - 1)}})
	}
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if answer, ok := s.Resumed(); ok {
			return answer, nil
		}
		return nil, kahn.Suspend("token", nil, nil)
	}
	lives := [][]kahn.Option{nil, {kahn.Limit(1)}, {kahn.StoreEvents()}}
	rec, fenced, kind := newRecorder(), false, random.IntN(3)
	opts := append(slices.Clone(lives[kind]), kahn.Durable(db), kahn.RunID("r"), kahn.Lease("us", 0), kahn.OnEvent(rec.add))
	_, err := kahn.Execute(t.Context(), g, step, opts...)
	require.NoError(t, err)
	delays := make([]time.Duration, 100)
	for i := range delays {
		delays[i] = time.Duration(random.IntN(4)) * time.Millisecond
	}
	var poster sync.WaitGroup
	poster.Go(func() {
		for i := 0; ; i++ {
			time.Sleep(delays[i%len(delays)])
			q, err := kahn.PrepareSignal("token", kahn.Decision{Value: float64(i), ID: fmt.Sprint(i)})
			if err == nil {
				_, err = db.Post(t.Context(), "r", q)
			}
			if err != nil {
				require.ErrorIs(t, err, kahn.ErrFinished)
				return
			}
		}
	})
	var res *kahn.Result
	for life := 0; res == nil || res.Status != kahn.RunCompleted; life++ {
		require.Less(t, life, 1000)
		time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
		run, err := kahn.Start(t.Context(), g, step, opts...)
		require.NoError(t, err)
		time.Sleep(time.Duration(random.IntN(8)) * time.Millisecond)
		if random.IntN(3) == 0 {
			_, _, err := db.Acquire(t.Context(), "r", "us", time.Minute) // the next write of the run is fenced
			require.NoError(t, err)
			time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
		}
		run.Leave()
		if res, err = run.Wait(); err != nil {
			fenced = true
			require.ErrorIs(t, err, kahn.ErrFenced)
			stored, err := db.Load(t.Context(), "r")
			require.NoError(t, err)
			require.False(t, stored.Status.Terminal())
		}
	}
	poster.Wait()
	list, err := db.LoadRequests(t.Context(), "r", 0, store.MaxPage)
	require.NoError(t, err)
	var applied, answers []any
	for _, q := range list {
		require.NotEqual(t, store.RequestWaiting, q.Status)
		if q.Status == store.RequestApplied {
			applied = append(applied, q.ID)
		}
	}
	for n := range res.Nodes() {
		answers = append(answers, fmt.Sprint(n.Output))
	}
	require.Equal(t, applied, answers, "seed %d", seed)
	events := rec.all()
	if kind == 2 {
		events = storedEvents(t, db, "r")
	} else if fenced { // the previous life has published the end of a failed run
		return
	}
	require.NoError(t, kahntest.CheckEvents(g, res, events), "seed %d", seed)
}
