package conformance_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestAttemptsAfterStoreError: an attempt counts in the Result and in the events only if its start was written. An attempt counts, too, if the
// write of its start succeeded, and only the write of its continuation after a wait failed.
func TestAttemptsAfterStoreError(t *testing.T) {
	fenced := func(from int) (*brokenStore, *int) {
		starts := 0
		return &brokenStore{Store: new(store.Memory), start: func(store.Attempt) error {
			if starts++; starts >= from {
				return kahn.ErrFenced
			}
			return nil
		}}, &starts
	}
	for name, c := range map[string]struct {
		node     kahn.Node
		step     kahn.StepFunc
		options  []kahn.Option
		from     int // the number of the first start that the store refuses
		attempts int
	}{
		"the first":  {kahn.Node{ID: "A"}, nop, nil, 1, 0},
		"the second": {kahn.Node{ID: "A", Retry: kahn.RetryStandard()}, fails(0), nil, 2, 1},
		"the first, whose inputs were to be judged": {kahn.Node{ID: "A", Moderation: kahn.ModerateInput}, nop,
			[]kahn.Option{kahn.Moderate(hitModerator(func() {}))}, 1, 0},
		"the second, whose inputs were to be judged": {kahn.Node{ID: "A", Moderation: kahn.ModerateInput, Retry: kahn.RetryStandard()}, fails(0),
			[]kahn.Option{kahn.Moderate(hitModerator(func() {}))}, 2, 1},
		"the first, entered again": {kahn.Node{ID: "A"}, suspends, nil, 2, 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			db, _ := fenced(c.from)
			r := tryControlled(t, t.Context(), graph(c.node), c.step, func(run *kahn.Run) {
				time.Sleep(ms)
				_ = run.Signal(context.Background(), "A", nil) // refused if no node waits
			}, append(c.options, kahn.Durable(db), kahn.RunID("one"))...)
			r.expect("A:X", "failed")
			if n := r.node("A"); n.Cause.Kind != kahn.CauseStoreError || n.Attempts != c.attempts {
				t.Errorf("%v after %d attempts, expected %d", n.Cause, n.Attempts, c.attempts)
			}
		})
	}
}

// TestAdmittedAfterStoreError: the run records in the store that a node's inputs were accepted, while the step already runs. If this write
// fails, events and Result show that the attempt has not begun.
func TestAdmittedAfterStoreError(t *testing.T) {
	inBubble(t, "the commit is refused", func(t *testing.T) {
		db := &brokenStore{Store: new(store.Memory), commit: func(c store.Commit) error {
			if c.Sequence > 1 && len(c.Started) == 0 { // other commits report the node as ready, or begin the attempt
				return kahn.ErrFenced
			}
			return nil
		}}
		r := tryControlled(t, t.Context(), graph(kahn.Node{ID: "A", Moderation: kahn.ModerateInput}), takes(ms), func(*kahn.Run) {},
			kahn.Moderate(hitModerator(func() {})), kahn.Durable(db), kahn.RunID("one"))
		r.expect("A:X", "failed")
		if n := r.node("A"); n.Attempts != 0 {
			t.Errorf("%d attempts, of which no event tells", n.Attempts)
		}
	})
}

// TestStartIsShownWhenItIsWritten: the start of an attempt and its event become durable at the same time. If the run ends at that moment, the
// store has both or neither.
func TestStartIsShownWhenItIsWritten(t *testing.T) {
	for _, late := range []time.Duration{0, 1} {
		inBubble(t, fmt.Sprintf("the lease is lost %v later", late), func(t *testing.T) {
			for range 200 {
				store := &heldStore{start: 35 * time.Second, renew: 25*time.Second + late}
				rec := newRecorder()
				g := graph(after("A"))
				res, err := kahn.Execute(t.Context(), g, func(ctx context.Context, _ *kahn.Step) (any, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}, kahn.Durable(store), kahn.RunID("one"), kahn.OnEvent(rec.add))
				checkEvents(t, g, res, rec.all())
				if err == nil {
					t.Error("a run went on whose lease had run out")
				}
			}
		})
	}
}
