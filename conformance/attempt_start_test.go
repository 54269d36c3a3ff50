package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// heldStore is a store that is slow to write starts of attempts and renewals of the lease.
type heldStore struct {
	store.Memory
	start, renew time.Duration
}

func (h *heldStore) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	a, err := h.Memory.Commit(ctx, l, c)
	if len(c.Started) > 0 {
		time.Sleep(h.start)
	}
	return a, err
}

func (h *heldStore) Renew(ctx context.Context, l store.Lease, ttl time.Duration) error {
	time.Sleep(h.renew)
	return h.Memory.Renew(ctx, l, ttl)
}

// TestAttemptBeginsWithItsCall: an attempt's timeout begins when the step is called, not when the store is asked to write the start. If the
// attempt's time is over or the lease has expired when the start is written, the step is not called.
func TestAttemptBeginsWithItsCall(t *testing.T) {
	everywhere := func(n kahn.Node) *kahn.Graph {
		item := n
		n.ID = "A"
		item.ID, item.Map, item.Params = "M", &kahn.Map{Over: "items"}, map[string]any{"items": []any{1}}
		return graph(n, item, subgraph("S", graph(n)))
	}
	for _, row := range []struct {
		name string
		node kahn.Node
		want string
	}{
		{"the timeout is longer than the step", kahn.Node{Timeout: 500 * ms}, "A:ok M:ok S:ok"},
		{"the timeout is shorter than the step", kahn.Node{Timeout: 50 * ms}, "A:F M:F S:F"},
		{"the overall timeout goes on", kahn.Node{OverallTimeout: 500 * ms}, "A:F M:F S:F"},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			var c paths
			r := try(t, everywhere(row.node), c.count(func(ctx context.Context, s *kahn.Step) (any, error) {
				deadline, _ := ctx.Deadline()
				if left := time.Until(deadline); ctx.Err() != nil || row.node.Timeout > 0 && left != row.node.Timeout {
					t.Errorf("%s is called with %v left: %v", s.Path(), left, ctx.Err())
				}
				return takes(100*ms)(ctx, s)
			}), kahn.Durable(&heldStore{start: time.Second}), kahn.RunID("one"))
			r.expect(row.want, map[bool]string{true: "completed", false: "failed"}[r.err == nil])
			calls := 1
			if row.node.OverallTimeout > 0 {
				calls = 0 // the timeout has passed before the call
			}
			for _, path := range []string{"A", "M[0]", "S/A"} {
				if c.n[path] != calls {
					t.Errorf("%s was called %d times, expected %d", path, c.n[path], calls)
				}
			}
		})
	}

	inBubble(t, "stopped while the start is written", func(t *testing.T) {
		r := tryControlled(t, t.Context(), everywhere(kahn.Node{}), neverStep(t), func(run *kahn.Run) {
			time.Sleep(100 * ms)
			run.Cancel()
		}, kahn.Durable(&heldStore{start: time.Second}), kahn.RunID("one"))
		r.expect("A:C M:C S:C", "cancelled")
	})

	for _, row := range []struct {
		start, renew time.Duration
		called       bool
	}{
		{29 * time.Second, time.Hour, true}, {30 * time.Second, time.Hour, false}, {45 * time.Second, time.Hour, false},
		{35 * time.Second, 0, true},
		{35 * time.Second, 25 * time.Second, false}, // the renewal begins after 10 s and ends after 35 s, when the lease of 30 s has run out
	} {
		inBubble(t, fmt.Sprintf("the start takes %v, a renewal %v", row.start, row.renew), func(t *testing.T) {
			for _, g := range []*kahn.Graph{graph(after("A")), graph(subgraph("S", graph(after("A"))))} {
				calls := 0
				rec := newRecorder()
				res, err := kahn.Execute(t.Context(), g, func(context.Context, *kahn.Step) (any, error) {
					calls++
					return nil, nil
				}, kahn.Durable(&heldStore{start: row.start, renew: row.renew}), kahn.RunID("one"), kahn.OnEvent(rec.add))
				checkEvents(t, g, res, rec.all())
				if called := calls == 1; called != row.called || (err == nil) != row.called || err != nil && !errors.Is(err, kahn.ErrStore) {
					t.Errorf("%d calls: %v", calls, err)
				}
			}
		})
	}
}
