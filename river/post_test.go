package riverkahn_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	riverkahn "github.com/seed-c794f7ef/kahn/river"
	"github.com/seed-c794f7ef/kahn/store"
)

// signal returns a request that answers the gate of the graph gated.
func signal(t *testing.T, id, value string) store.Request {
	t.Helper()
	q, err := kahn.PrepareSignal("approve", kahn.Decision{Value: value, ID: id})
	require.NoError(t, err)
	return q
}

// TestPost: a request wakes a waiting run, once, in the transaction that posts the request.
func TestPost(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	g := gated(time.Hour)
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: echo}}})
	outside := x.client(t)
	for _, id := range []string{"answered", "cancelled"} {
		create(t, c, g, id)
		x.reaches(t, id, kahn.RunSuspended)
	}
	tx, err := x.pool.Begin(t.Context())
	require.NoError(t, err)
	posted, err := outside.PostTx(t.Context(), tx, "answered", signal(t, "1", "no"))
	require.NoError(t, err)
	require.True(t, posted)
	require.NoError(t, tx.Rollback(t.Context()))

	posted, err = outside.Post(t.Context(), "answered", signal(t, "1", "yes"))
	require.NoError(t, err)
	require.True(t, posted)
	posted, err = outside.Post(t.Context(), "answered", signal(t, "1", "yes"))
	require.NoError(t, err)
	require.False(t, posted)
	x.reaches(t, "answered", kahn.RunCompleted)
	res, err := kahn.ReadResult(t.Context(), g, x.store, "answered")
	require.NoError(t, err)
	gate, _ := res.Node("approve")
	require.Equal(t, "yes", gate.Output)

	_, err = outside.Post(t.Context(), "cancelled", store.Request{ID: "c", Kind: store.KindCancel})
	require.NoError(t, err)
	x.reaches(t, "cancelled", kahn.RunCancelled)
	_, err = outside.Post(t.Context(), "cancelled", signal(t, "2", "yes"))
	require.ErrorIs(t, err, store.ErrEnded)
}

// TestPostAtRest: a request is not lost if it is posted just when its run begins to wait, or begins.
func TestPostAtRest(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	g := gated(0)
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: echo}}})
	outside := x.client(t)
	runs := 4 * samples()
	for i := range runs {
		id := fmt.Sprint("r", i)
		create(t, c, g, id)
		posting := time.Duration(i%40) * time.Millisecond
		time.AfterFunc(posting, func() {
			if _, err := outside.Post(context.WithoutCancel(t.Context()), id, signal(t, "1", "yes")); err != nil && !errors.Is(err, store.ErrEnded) {
				t.Error(err)
			}
		})
		if i%8 == 0 {
			x.reaches(t, id, kahn.RunCompleted)
		}
	}
	for i := range runs {
		x.reaches(t, fmt.Sprint("r", i), kahn.RunCompleted)
	}
}

// TestSignalLatency measures the time from a signal for a waiting run to the call of the next step.
func TestSignalLatency(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	g := gated(0)
	went := make(chan time.Time, 1)
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "ship" {
			went <- time.Now()
		}
		return nil, nil
	}}}})
	var list []time.Duration
	for i := range samples() {
		id := fmt.Sprint("r", i)
		create(t, c, g, id)
		require.Eventually(t, func() bool {
			jobs := x.jobs(t, id)
			return jobs[len(jobs)-1].State == "completed"
		}, 10*time.Second, 2*time.Millisecond)
		posted := time.Now()
		_, err := c.Post(t.Context(), id, signal(t, "1", "yes"))
		require.NoError(t, err)
		list = append(list, (<-went).Sub(posted))
	}
	latencies(t, "signal to continuation", list)
}
