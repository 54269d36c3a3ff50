package kahn_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestDeferrals: runs that are being started, come to rest or fail are deferred, and their deferrals are removed later.
func TestDeferrals(t *testing.T) {
	t.Parallel()
	inBubble(t, "runs that rest", func(t *testing.T) {
		var d kahn.Deferrals
		for i := range 2000 {
			id := fmt.Sprint(i)
			require.Zero(t, d.Begin(id))
			d.Begun(id)
			d.Pause(id, 0, 50*ms)
			time.Sleep(ms)
			ids, starting, wait, noted := d.Except(time.Hour)
			require.Zero(t, starting)
			require.LessOrEqual(t, wait, 50*ms)
			require.LessOrEqual(t, noted, 51)
			require.LessOrEqual(t, len(ids), 50)
		}
	})
	inBubble(t, "runs that fail", func(t *testing.T) {
		var d kahn.Deferrals
		d.Begin("b")
		d.Begin("a")
		ids, starting, wait, _ := d.Except(time.Hour)
		require.Equal(t, []string{"a", "b"}, ids)
		require.Equal(t, 2, starting)
		require.Equal(t, time.Hour, wait)
		d.Pause("a", 3, time.Minute)
		ids, starting, wait, _ = d.Except(time.Hour)
		require.Equal(t, []string{"a", "b"}, ids)
		require.Equal(t, 1, starting)
		require.Equal(t, time.Minute, wait)
		time.Sleep(time.Minute)
		ids, _, _, _ = d.Except(time.Hour)
		require.Equal(t, []string{"b"}, ids)
		require.Equal(t, 3, d.Begin("a"), "its failures count on")
		d.Pause("a", 4, time.Minute)
		time.Sleep(3 * time.Minute)
		_, _, _, noted := d.Except(time.Hour)
		require.Equal(t, 1, noted)
		require.Zero(t, d.Begin("a"), "another process has performed it")
	})
}

// TestRunnerWatch: a watcher of a Runner sees the existing runs and their changes, and never misses the last change.
func TestRunnerWatch(t *testing.T) {
	t.Parallel()
	inBubble(t, "changes", func(t *testing.T) {
		rn := &kahn.Runner{MaxRuns: 1, History: 1}
		work := graph(kahn.Node{ID: "a", Do: takes(10 * ms)})
		_, err := rn.Start(t.Context(), work, nil, kahn.RunID("r1"))
		require.NoError(t, err)
		var got []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			for c := range rn.Watch(context.Background()) {
				text := fmt.Sprintf("%s %v", c.Run.ID(), c.Status)
				if c.Removed {
					text += " removed"
				}
				got = append(got, text)
			}
		}()
		synctest.Wait()
		_, err = rn.Start(t.Context(), graph(gate("g"), after("b", "g")), nothing, kahn.RunID("r2"))
		require.NoError(t, err)
		time.Sleep(15 * ms) // r1 has ended, r2 waits
		synctest.Wait()
		r2, _ := rn.Run("r2")
		require.NoError(t, r2.Signal(context.Background(), "g", 1))
		_, _ = r2.Wait()
		synctest.Wait()
		got = slices.DeleteFunc(got, func(text string) bool { return text == "r2 running" }) // r2 may run so briefly that the watcher misses this status
		require.Equal(t, []string{"r1 running", "r2 pending", "r1 completed", "r2 suspended", "r2 completed", "r1 completed removed"}, got)
		require.NoError(t, rn.Shutdown(t.Context()))
		<-done
		var none context.Context
		for range rn.Watch(none) {
			t.Error("a nil context yields something")
		}
	})
	inBubble(t, "a run that was pending", func(t *testing.T) {
		rn := &kahn.Runner{MaxRuns: 1}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, id := range []string{"r1", "r2"} {
			_, err := rn.Start(t.Context(), graph(kahn.Node{ID: "a", Do: takes(10 * ms)}), nil, kahn.RunID(id))
			require.NoError(t, err)
		}
		statuses := map[string][]kahn.RunStatus{}
		for c := range rn.Watch(ctx) {
			statuses[c.Run.ID()] = append(statuses[c.Run.ID()], c.Status)
		}
		require.Equal(t, map[string][]kahn.RunStatus{
			"r1": {kahn.RunRunning, kahn.RunCompleted}, "r2": {kahn.RunPending, kahn.RunRunning, kahn.RunCompleted},
		}, statuses)
	})
	inBubble(t, "a slow consumer", func(t *testing.T) {
		rn := &kahn.Runner{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		statuses := map[string][]kahn.RunStatus{}
		for i := range 50 {
			_, err := rn.Start(t.Context(), graph(kahn.Node{ID: "a", Do: takes(time.Duration(i) * ms)}), nil, kahn.RunID(fmt.Sprint("r", i)))
			require.NoError(t, err)
		}
		time.AfterFunc(time.Minute, cancel)
		for c := range rn.Watch(ctx) {
			time.Sleep(5 * ms)
			statuses[c.Run.ID()] = append(statuses[c.Run.ID()], c.Status)
		}
		require.Len(t, statuses, 50)
		for id, list := range statuses {
			require.Equal(t, kahn.RunCompleted, list[len(list)-1], id)
			require.LessOrEqual(t, len(list), 2)
		}
	})
	t.Run("breaking off", func(t *testing.T) {
		rn := &kahn.Runner{}
		run, err := rn.Start(t.Context(), graph(after("a")), nothing)
		require.NoError(t, err)
		_, _ = run.Wait()
		for range 3 {
			for c := range rn.Watch(t.Context()) {
				require.Equal(t, run, c.Run)
				break
			}
		}
		require.Zero(t, rn.Watchers())
	})
}

// TestHistoryIsTaughtWithoutTheLock: while an ended run waits for the lock of its History, it can be inspected. Wait returns after the History
// has learned the durations of the run.
func TestHistoryIsTaughtWithoutTheLock(t *testing.T) {
	t.Parallel()
	for path, g := range map[string]*kahn.Graph{
		"A": graph(kahn.Node{ID: "A"}), "S/A": graph(subgraph("S", graph(kahn.Node{ID: "A"}))),
	} {
		h, proceed := new(kahn.History), make(chan bool)
		run, err := kahn.Start(t.Context(), g, func(context.Context, *kahn.Step) (any, error) { <-proceed; return nil, nil }, h)
		require.NoError(t, err)
		release := h.Hold()
		close(proceed)
		ended := make(chan bool)
		go func() {
			for !run.Status().Terminal() {
				runtime.Gosched()
			}
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("nobody can look at the run")
		}
		select {
		case <-run.Done():
			t.Error("the run is over, and its History does not know")
		default:
		}
		release()
		_, err = run.Wait()
		require.NoError(t, err)
		_, ok := h.Mean("", path)
		require.True(t, ok, path)
	}
}
