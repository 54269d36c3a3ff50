package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// A redriven run stays at its position in the Runner, and its log continues where the previous epoch ended.
func TestRunnerRedrive(t *testing.T) {
	t.Parallel()
	inBubble(t, "redrive", func(t *testing.T) {
		rn := &kahn.Runner{Options: []kahn.Option{kahn.Limit(3)}}
		var calls atomic.Int32
		g := graph(
			kahn.Node{ID: "a", Do: takes(10 * ms)}, kahn.Node{ID: "S", After: []string{"a"}, Sub: graph(kahn.Node{ID: "x", Do: takes(5 * ms)})},
			kahn.Node{ID: "bad", After: []string{"a"}, Do: func(ctx context.Context, s *kahn.Step) (any, error) {
				if _, err := takes(10*ms)(ctx, s); err != nil || calls.Add(1) < 3 {
					return nil, errors.Join(err, errStep)
				}
				return "mended", nil
			}},
			after("b", "bad"),
		)
		first, err := rn.Start(t.Context(), g, nothing, kahn.RunID("r"), kahn.Inputs(map[string]any{"in": 1}))
		require.NoError(t, err)
		_, err = rn.Redrive(t.Context(), "r", nil, kahn.Request{})
		require.ErrorIs(t, err, kahn.ErrDuplicateRun)
		_, err = rn.Redrive(t.Context(), "s", nil, kahn.Request{})
		require.ErrorIs(t, err, kahn.ErrUnknownRun)
		res, _ := first.Wait()
		require.Equal(t, kahn.RunFailed, res.Status)
		before := readAll(t, first, 0)
		cursor := before[len(before)-3].ID
		_, err = rn.Redrive(t.Context(), "r", []string{"bda"}, kahn.Request{})
		require.ErrorIs(t, err, kahn.ErrUnknownNode)

		again, err := rn.Redrive(t.Context(), "r", nil, kahn.Request{Actor: "ann"})
		require.NoError(t, err)
		known, _ := rn.Run("r")
		require.Equal(t, again, known)
		res, _ = again.Wait()
		require.Equal(t, kahn.RunFailed, res.Status)
		require.Equal(t, "ann", res.RedriveRequest.Actor)
		last, err := rn.Redrive(t.Context(), "r", []string{"bad"}, kahn.Request{})
		require.NoError(t, err)
		res, err = last.Wait()
		require.NoError(t, err)
		require.Equal(t, kahn.Request{}, res.RedriveRequest, "nobody has said anything this time")
		require.EqualValues(t, 3, calls.Load())
		out, _ := res.Node("bad")
		require.Equal(t, "mended", out.Output)

		events := readAll(t, last, 0)
		require.Equal(t, before, events[:len(before)], "the old events are there, with their times and epochs")
		for i, e := range events {
			require.EqualValues(t, i+1, e.ID)
			if i > 0 {
				require.False(t, e.Time.Before(events[i-1].Time))
			}
		}
		require.Equal(t, events[cursor:], readAll(t, last, cursor))
		first0, last0 := last.EventRange()
		require.Equal(t, []uint64{1, uint64(len(events))}, []uint64{first0, last0})
		checkEvents(t, g, res, events)
		epochs := map[int]bool{}
		for _, e := range events {
			epochs[e.Epoch] = true
		}
		require.Len(t, epochs, 4) // the epochs of the first life, of the two redrives, and of the run's own events
	})
	inBubble(t, "under a key", func(t *testing.T) {
		rn, keys := &kahn.Runner{}, new(kahn.IdempotencyStore)
		g, fail := graph(after("a")), true
		step := func(context.Context, *kahn.Step) (any, error) {
			if fail {
				return nil, errStep
			}
			return nil, nil
		}
		run, err := rn.Start(t.Context(), g, step, kahn.Idempotent(keys, "k"))
		require.NoError(t, err)
		_, _ = run.Wait()
		fail = false
		again, err := rn.Redrive(t.Context(), run.ID(), nil, kahn.Request{})
		require.NoError(t, err)
		require.NotEqual(t, run, again)
		_, err = again.Wait()
		require.NoError(t, err)
		joined, err := rn.Start(t.Context(), g, step, kahn.Idempotent(keys, "k"))
		require.NoError(t, err)
		require.Equal(t, again, joined, "the redriven run is that of the key")
	})
}

// If a run continues in the same process, its log continues, too, whether the run continues from a snapshot, from a snapshot in a file, or from
// a store.
func TestLogOverLives(t *testing.T) {
	t.Parallel()
	long := graph()
	for i := range 40 {
		n := kahn.Node{ID: fmt.Sprint("n", i), Do: takes(10 * ms)}
		if i > 0 {
			n.After = []string{fmt.Sprint("n", i-1)}
		}
		long.Add(n)
	}
	// The start and the end of the run, three events per node, and three times three events when the run rests, continues, and has a node ready
	// again.
	const all = 2 + 40*3 + 3*3
	for name, test := range map[string]struct {
		stored, filed, runner bool
		retain                int
		first                 uint64
	}{
		"snapshot":        {first: 1},
		"file and runner": {filed: true, runner: true, first: 1},
		"store":           {stored: true, runner: true, first: 1},
		"file alone":      {filed: true},
		"retained":        {retain: 70, first: all - 70 + 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			rn := &kahn.Runner{}
			store := new(store.Memory)
			var from *kahn.Snapshot
			var sunk []kahn.Event
			var cursor uint64
			var read []kahn.Event
			for life := 1; ; life++ {
				opts := []kahn.Option{kahn.RunID("r"), kahn.OnEvent(func(e kahn.Event) { sunk = append(sunk, e) })}
				if test.retain > 0 {
					opts = append(opts, kahn.Retain(test.retain))
				}
				if test.stored {
					opts = append(opts, kahn.Durable(store))
				} else if from != nil {
					opts = append(opts, kahn.Resume(from))
				}
				start := kahn.Start
				if test.runner {
					start = rn.Start
				}
				run, err := start(t.Context(), long, nil, opts...)
				require.NoError(t, err)
				time.AfterFunc(95*ms, run.Leave)
				res, _ := run.Wait()
				if res.Status == kahn.RunCompleted {
					first, last := run.EventRange()
					if test.first > 0 {
						require.Equal(t, []uint64{test.first, all}, []uint64{first, last}, "life %d", life)
						read = append(read, readAll(t, run, cursor)...)
						require.Equal(t, sunk, read, "a cursor survives")
						checkEvents(t, long, res, read)
						if first == 1 {
							require.Equal(t, sunk, readAll(t, run, 0))
						} else {
							for _, err := range run.Events(t.Context(), first-2) {
								var gap *event.GapError
								require.ErrorAs(t, err, &gap)
								require.Equal(t, first, gap.First)
							}
						}
					} else {
						require.Greater(t, first, uint64(90))
					}
					break
				}
				if test.first > 0 { // a reader that returns gets the events that it has not seen
					for e, err := range run.Events(t.Context(), cursor) {
						require.NoError(t, err)
						if e.ID > uint64(life)*25 {
							break
						}
						read, cursor = append(read, e), e.ID
					}
				}
				time.Sleep(time.Second)
				from = res.Snapshot()
				if test.filed {
					data, err := json.Marshal(from)
					require.NoError(t, err)
					from = new(kahn.Snapshot)
					require.NoError(t, json.Unmarshal(data, from))
				}
			}
		})
	}
}

// A run continues from a snapshot that was taken in the middle, and is not affected by what the first run did afterwards.
func TestLogOfTwoLives(t *testing.T) {
	t.Parallel()
	inBubble(t, "two", func(t *testing.T) {
		g := graph(kahn.Node{ID: "a", Do: takes(10 * ms)}, kahn.Node{ID: "b", After: []string{"a"}, Do: takes(10 * ms)})
		run, err := kahn.Start(t.Context(), g, nil, kahn.RunID("r"))
		require.NoError(t, err)
		time.Sleep(15 * ms)
		s := run.Snapshot()
		_, _ = run.Wait()
		other, err := kahn.Start(t.Context(), g, nil, kahn.Resume(s))
		require.NoError(t, err)
		res, _ := other.Wait()
		events := readAll(t, other, 0)
		checkEvents(t, g, res, events)
		var types []string
		for _, e := range events {
			types = append(types, strings.TrimPrefix(string(e.Type), "node."))
		}
		require.Equal(t, "run.started queued started completed queued started run.recovered queued started completed run.completed", strings.Join(types, " "))
	})
}

// RetryNow ends the backoff of one node, at any depth, once, and has no other effect.
func TestRetryNow(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 1} {
		inBubble(t, fmt.Sprint("limit ", limit), func(t *testing.T) {
			begun := time.Now()
			var tries atomic.Int32
			slow := kahn.Retry{MaxAttempts: 3, InitialDelay: time.Hour, Jitter: kahn.JitterNone}
			stubborn := func(context.Context, *kahn.Step) (any, error) {
				if tries.Add(1) < 3 {
					return nil, errStep
				}
				return nil, nil
			}
			g := graph(after("done"), kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "x", Retry: slow, Do: stubborn})}, kahn.Node{ID: "y", After: []string{"S"}, Do: takes(10 * ms)})
			rec := newRecorder()
			run, err := kahn.Start(t.Context(), g, nothing, kahn.Limit(limit), kahn.OnEvent(rec.add))
			require.NoError(t, err)
			for range 2 {
				synctest.Wait()
				require.NoError(t, run.RetryNow("S/x"))
			}
			require.ErrorIs(t, run.RetryNow("done"), kahn.ErrTransition)
			require.ErrorIs(t, run.RetryNow("S/z"), kahn.ErrUnknownNode)
			synctest.Wait()
			require.ErrorIs(t, run.RetryNow("S/x"), kahn.ErrTransition)
			res, err := run.Wait()
			require.NoError(t, err)
			require.Equal(t, 10*ms, time.Since(begun))
			require.ErrorIs(t, run.RetryNow("S/x"), kahn.ErrFinished)
			require.Empty(t, leftovers(run))
			checkEvents(t, g, res, rec.all())
			require.Equal(t, 2, len(slices.Collect(func(yield func(kahn.Event) bool) {
				for _, e := range rec.all() {
					if e.Type == event.NodeRetried && !yield(e) {
						return
					}
				}
			})))
		})
	}
}
