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
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// asksTwice is a step that waits twice under the token "t" and returns the answers.
func asksTwice(_ context.Context, s *kahn.Step) (any, error) {
	var saved []any
	if before, ok := s.SavedState().([]any); ok {
		saved = before
	}
	if v, ok := s.Resumed(); ok {
		saved = append(saved, v)
	}
	if len(saved) < 2 {
		return nil, kahn.Suspend("t", nil, saved)
	}
	return fmt.Sprint(saved), nil
}

// TestSignalID: a signal with an ID answers only one wait, even if it is sent several times, and at any stage of the run.
func TestSignalID(t *testing.T) {
	t.Parallel()
	of := func(id string, value any) kahn.Decision { return kahn.Decision{Value: value, ID: id} }
	signal := func(t *testing.T, run *kahn.Run, gate, id string, value any, want error) {
		t.Helper()
		if err := run.Signal(context.Background(), gate, of(id, value)); !errors.Is(err, want) {
			t.Errorf("signal %s %v for %s: %v, expected %v", id, value, gate, err, want)
		}
		synctest.Wait()
	}
	for _, durable := range []bool{false, true} {
		inBubble(t, fmt.Sprint("in one life, durable ", durable), func(t *testing.T) {
			opts := []kahn.Option{kahn.RunID("r")}
			if durable {
				opts = append(opts, kahn.Durable(new(store.Memory)))
			}
			rec := newRecorder()
			g := graph(gate("G"), subgraph("S", graph(gate("H"))), kahn.Node{ID: "A", Do: asksTwice}, after("B", "A"), gate("late", "B"))
			run, err := kahn.Start(t.Context(), g, takes(0), append(opts, kahn.OnEvent(rec.add))...)
			require.NoError(t, err)
			synctest.Wait()
			for range 2 {
				signal(t, run, "G", "1", map[string]any{"a": 1, "b": 2.0}, nil)
				signal(t, run, "late", "1", "early", nil)
				signal(t, run, "S/H", "1", "inside", nil)
				signal(t, run, "t", "1", "one", nil) // the repeated signal does not answer the second wait
			}
			signal(t, run, "G", "1", map[string]any{"b": 2, "a": 1.0}, nil) // equal as JSON
			signal(t, run, "G", "1", 2, kahn.ErrSignalConflict)
			signal(t, run, "G", "2", 2, kahn.ErrAnswered)
			signal(t, run, "G", "", 1, kahn.ErrAnswered)
			signal(t, run, "G", "3", func() {}, kahn.ErrNotEncodable)
			signal(t, run, "t", "2", "two", nil)
			res, err := run.Wait()
			require.NoError(t, err)
			a, _ := res.Node("A")
			require.Equal(t, "[one two]", a.Output)
			gateResult, _ := res.Node("G")
			require.Equal(t, "1", gateResult.Decision.ID)
			signal(t, run, "t", "2", "two", nil) // the node has ended
			signal(t, run, "t", "2", "three", kahn.ErrSignalConflict)
			signal(t, run, "t", "3", "three", kahn.ErrFinished)
			answers := 0
			for _, e := range rec.all() {
				if e.Type == event.NodeSignalled {
					answers++
				}
			}
			require.Equal(t, 5, answers)
		})
	}

	inBubble(t, "over lives, at every write", func(t *testing.T) {
		g := graph(gate("G"), kahn.Node{ID: "A", Do: asksTwice}, gate("late", "A", "G"), kahn.Node{ID: "W", Do: takes(time.Minute)}) // A keeps the run from coming to rest
		signals := func(run *kahn.Run) {
			signal(t, run, "G", "1", true, nil)
			signal(t, run, "t", "1", "one", nil)
			signal(t, run, "late", "1", "early", nil)
			signal(t, run, "t", "2", "two", nil)
		}
		whole := new(journal)
		perform := func(s store.Store) *kahn.Result {
			run, err := kahn.Start(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(s))
			require.NoError(t, err)
			synctest.Wait()
			signals(run)
			res, err := run.Wait()
			require.NoError(t, err)
			return res
		}
		perform(whole)
		for writes := range whole.len() {
			res := perform(whole.replay(t, "r", writes))
			a, _ := res.Node("A")
			require.Equal(t, "[one two]", a.Output, "after %d writes", writes)
		}
	})

	inBubble(t, "early signals of a host that repeats itself", func(t *testing.T) {
		s := new(store.Memory)
		g := graph(gate("G"), gate("H"))
		opts := []kahn.Option{kahn.RunID("r"), kahn.Durable(s)}
		early := func(value any) []kahn.Option {
			return append(opts, kahn.EarlySignals(map[string]any{"G": of("1", value)}))
		}
		for range 2 {
			res, err := kahn.Execute(t.Context(), g, nil, early("yes")...)
			require.NoError(t, err)
			require.Equal(t, kahn.RunSuspended, res.Status)
		}
		_, err := kahn.Execute(t.Context(), g, nil, early("no")...)
		require.ErrorIs(t, err, kahn.ErrSignalConflict)
		// After a redrive G asks again, although it was answered before.
		_, err = kahn.Execute(t.Context(), g, nil, append(opts, kahn.Redrive(nil, []string{"G"}))...)
		require.NoError(t, err)
		res, err := kahn.Execute(t.Context(), g, nil, append(early("no"), kahn.RunID("r"))...)
		require.NoError(t, err)
		n, _ := res.Node("G")
		require.Equal(t, "no", n.Output)
	})
}

// TestSignalIsStored: Signal returns once the answer is in the store. Otherwise its error says that it is unknown whether the answer was stored.
func TestSignalIsStored(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, s store.Store) *kahn.Run {
		run, err := kahn.Start(t.Context(), graph(gate("G"), after("B", "G"), gate("H", "B")), takes(0), kahn.RunID("r"), kahn.Durable(s))
		require.NoError(t, err)
		synctest.Wait()
		return run
	}
	signalled := func(t *testing.T, s store.Store, gate string) bool {
		snapshot, err := kahn.ReadSnapshot(t.Context(), s, "r")
		require.NoError(t, err)
		for _, waiting := range snapshot.Waiting() {
			if waiting == gate {
				return false
			}
		}
		return true
	}
	inBubble(t, "a slow store", func(t *testing.T) {
		inner := new(store.Memory)
		slow := &brokenStore{Store: inner, commit: func(store.Commit) error { time.Sleep(time.Second); return nil }}
		run := begin(t, slow)
		time.Sleep(5 * time.Second)
		start := time.Now()
		require.NoError(t, run.Signal(context.Background(), "G", kahn.Decision{Value: 1, ID: "1"}))
		require.True(t, signalled(t, inner, "G"))
		require.GreaterOrEqual(t, time.Since(start), time.Second)
		// A repeated signal returns at once if its answer is stored. Before that it waits, too.
		time.Sleep(5 * time.Second)
		start = time.Now()
		require.NoError(t, run.Signal(context.Background(), "G", kahn.Decision{Value: 1, ID: "1"}))
		require.Zero(t, time.Since(start))
		errs := make(chan error, 2)
		for range 2 {
			go func() { errs <- run.Signal(context.Background(), "H", kahn.Decision{Value: 1, ID: "1"}) }()
		}
		for range 2 {
			require.NoError(t, <-errs)
			require.GreaterOrEqual(t, time.Since(start), time.Second)
		}
		_, err := run.Wait()
		require.NoError(t, err)
	})
	inBubble(t, "a store that is out of reach", func(t *testing.T) {
		down := &brokenStore{Store: new(store.Memory)}
		run := begin(t, down)
		time.Sleep(time.Second)
		down.commit = func(store.Commit) error { return errDisk }
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, run.Signal(ctx, "G", 1), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		err := run.Signal(context.Background(), "H", 1)
		require.ErrorIs(t, err, kahn.ErrStore)
		require.ErrorIs(t, err, errDisk)
		require.LessOrEqual(t, time.Since(start), time.Minute)
		res, err := run.Wait()
		require.ErrorIs(t, err, kahn.ErrStore)
		require.True(t, res.Left)
		require.False(t, signalled(t, down.Store, "G"))
	})
	inBubble(t, "no context", func(t *testing.T) {
		run := begin(t, new(store.Memory))
		var none context.Context
		require.ErrorIs(t, run.Signal(none, "G", 1), kahn.ErrNoContext)
		run.Cancel()
		_, _ = run.Wait()
	})
}
