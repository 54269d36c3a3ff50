package conformance_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

func sleepStep(ctx context.Context, s *kahn.Step) (any, error) {
	time.Sleep(time.Second)
	if s.ID() == "n2" {
		return nil, errTest
	}
	return nil, nil
}

func TestWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run, err := kahn.Start(t.Context(), chainGraph(4), sleepStep)
		require.NoError(t, err)
		begin := time.Now()
		status, err := run.WaitFor(t.Context(), "n1", kahn.Waiting, kahn.Running)
		require.NoError(t, err)
		require.Contains(t, []kahn.Status{kahn.Waiting, kahn.Running}, status)
		require.Zero(t, time.Since(begin))
		status, err = run.WaitFor(t.Context(), "n1", kahn.Ready)
		require.NoError(t, err)
		require.Equal(t, kahn.Ready, status, "however briefly")
		require.Equal(t, time.Second, time.Since(begin))
		status, err = run.WaitFor(t.Context(), "n1", kahn.Running, kahn.Completed)
		require.NoError(t, err)
		require.Equal(t, kahn.Running, status)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errTest)
		defer cancel()
		status, err = run.WaitFor(ctx, "n3")
		require.ErrorIs(t, err, errTest)
		require.Equal(t, kahn.Idle, status)
		_, err = run.WaitFor(t.Context(), "nobody")
		require.ErrorIs(t, err, kahn.ErrUnknownNode)
		status, err = run.WaitFor(t.Context(), "n3", kahn.Completed)
		var te *machine.TransitionError
		require.ErrorAs(t, err, &te)
		require.Equal(t, machine.TransitionError{Node: "n3", From: kahn.Aborted, To: kahn.Completed}, *te)
		require.Equal(t, kahn.Aborted, status)
		require.Equal(t, 3*time.Second, time.Since(begin))
		_, err = run.Wait()
		require.ErrorIs(t, err, errTest)
		status, err = run.WaitFor(t.Context(), "n2")
		require.NoError(t, err)
		require.Equal(t, kahn.Failed, status)
	})
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run, err := kahn.Start(t.Context(), chainGraph(4), sleepStep)
		require.NoError(t, err)
		begin := time.Now()
		last := map[string]kahn.Status{}
		n := 0
		for id, status := range run.Watch(t.Context()) {
			require.False(t, last[id].Terminal(), "nothing comes after a terminal status, nor twice")
			last[id] = status
			n++
		}
		require.Equal(t, map[string]kahn.Status{"n0": kahn.Completed, "n1": kahn.Completed, "n2": kahn.Failed, "n3": kahn.Aborted}, last)
		require.Equal(t, 3*time.Second, time.Since(begin))
		_, err = run.Wait()
		require.Error(t, err)
		require.Greater(t, n, 4)

		// A slow consumer does not delay the run, and sees the last statuses.
		run, err = kahn.Start(t.Context(), chainGraph(4), sleepStep)
		require.NoError(t, err)
		n = 0
		clear(last)
		for id, status := range run.Watch(t.Context()) {
			if n == 0 {
				time.Sleep(time.Minute)
				require.Equal(t, kahn.RunFailed, run.Status())
			}
			n++
			last[id] = status
		}
		require.Equal(t, map[string]kahn.Status{"n0": kahn.Completed, "n1": kahn.Completed, "n2": kahn.Failed, "n3": kahn.Aborted}, last)
		require.LessOrEqual(t, n, 5)

		run, err = kahn.Start(t.Context(), chainGraph(4), sleepStep)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		begin = time.Now()
		for range run.Watch(ctx) {
		}
		require.Equal(t, 1500*time.Millisecond, time.Since(begin))
		for range run.Watch(t.Context()) {
			break
		}
		_, err = run.Wait()
		require.True(t, errors.Is(err, errTest))
	})
}
