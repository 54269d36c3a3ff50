package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestStepInALaterLife compares the values of a Step with the events of the lives before its own.
func TestStepInALaterLife(t *testing.T) {
	type told struct {
		attempt int
		last    string
		resumed string
		state   any
	}
	tell := func(s *kahn.Step) told {
		value, ok := s.Resumed()
		return told{s.Attempt(), fmt.Sprint(s.LastErr()), fmt.Sprintf("%v %t", value, ok), s.SavedState()}
	}
	again := kahn.Retry{MaxAttempts: 9, InitialDelay: 10 * ms, Multiplier: 1, Jitter: kahn.JitterNone}
	first, second := errors.New("first"), errors.New("second")
	life := func(errs ...error) kahn.StepFunc { // attempt i fails with errs[i-1] unless that is nil; other attempts take a second
		return func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.Attempt() <= len(errs) && errs[s.Attempt()-1] != nil {
				return nil, errs[s.Attempt()-1]
			}
			return takes(time.Second)(ctx, s)
		}
	}
	waits := func(ctx context.Context, s *kahn.Step) (any, error) {
		if _, ok := s.Resumed(); ok {
			return takes(time.Second)(ctx, s)
		}
		return nil, kahn.Suspend("token", nil, "state")
	}
	answered := func(value any) func(*kahn.Run) {
		return func(run *kahn.Run) {
			time.Sleep(ms)
			if err := run.Signal(context.Background(), "token", value); err != nil {
				t.Error(err)
			}
			time.Sleep(ms)
		}
	}
	for _, row := range []struct {
		name string
		life kahn.StepFunc
		host func(*kahn.Run) // until the crash
		want told
	}{
		{"in the first attempt", life(), lasting(ms), told{2, "<nil>", "<nil> false", nil}},
		{"in the second", life(first), lasting(20 * ms), told{3, "first", "<nil> false", nil}},
		{"in the third", life(first, second), lasting(40 * ms), told{4, "second", "<nil> false", nil}},
		{"in the backoff", life(first, second), lasting(15 * ms), told{3, "second", "<nil> false", nil}},
		{"after an answer", waits, answered("yes"), told{2, "<nil>", "yes true", "state"}},
		{"after a null answer", waits, answered(nil), told{2, "<nil>", "<nil> true", "state"}},
	} {
		for i, where := range []string{"A", "S/A", "L#1/A", "M[0]", "A", "S/A", "L#1/A", "M[0]"} {
			durable := i >= 4
			inBubble(t, fmt.Sprintf("%s of %s, durable %t", row.name, where, durable), func(t *testing.T) {
				a := kahn.Node{ID: "A", Retry: again}
				g := map[string]*kahn.Graph{
					"A": graph(a), "S/A": graph(subgraph("S", graph(a))),
					"L#1/A": graph(kahn.Node{ID: "L", Sub: graph(a), Loop: &kahn.Loop{MaxIterations: 2, While: whileLess(1)}}),
					"M[0]":  graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []any{1}}, Retry: again}),
				}[where]
				opts := crash(t, g, row.life, durable, row.host)
				var steps []*kahn.Step
				var got []told
				r := try2(t, g, func(_ context.Context, s *kahn.Step) (any, error) {
					if steps, got = append(steps, s), append(got, tell(s)); len(got) < 3 {
						return nil, fmt.Errorf("later %d", len(got))
					}
					return nil, nil
				}, opts...)
				if r.Status != kahn.RunCompleted {
					t.Fatal(r.err)
				}
				one, two := row.want, row.want
				one.attempt, one.last = one.attempt+1, "later 1"
				two.attempt, two.last = two.attempt+2, "later 2"
				if want := []told{row.want, one, two}; fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("the attempts were told %v, expected %v", got, want)
				}
				for i, s := range steps { // a retained Step always describes its own attempt
					if tell(s) != got[i] {
						t.Errorf("attempt %d is told %v afterwards, it was %v", s.Attempt(), tell(s), got[i])
					}
				}
			})
		}
	}
}

// TestCutAttempt: an attempt that a crash interrupts has no end. An attempt whose inputs were being judged has not begun.
func TestCutAttempt(t *testing.T) {
	inBubble(t, "a node that is cancelled before it is attempted again took no time", func(t *testing.T) {
		g := graph(after("Z"), after("A", "Z"))
		opts := crash(t, g, takes(time.Second), false, lasting(1500*ms))
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		res, err := kahn.Execute(ctx, g, neverStep(t), opts...)
		if n, _ := res.Node("A"); n.Status != kahn.Cancelled || n.Attempts != 1 || n.Duration != 0 {
			t.Errorf("%v after %d attempts in %v: %v", n.Status, n.Attempts, n.Duration, err)
		}
	})
	for _, durable := range []bool{false, true} {
		for _, row := range []struct {
			at      time.Duration // when the process dies; the inputs are judged for 10 ms
			attempt int           // the number of the attempt after the crash
			judged  int           // how often the inputs are judged again
			left    time.Duration // how much of the OverallTimeout is left
		}{
			{5 * ms, 1, 1, time.Hour - 10*ms},
			{15 * ms, 2, 0, time.Hour - time.Minute - 15*ms},
		} {
			inBubble(t, fmt.Sprintf("a crash after %v, durable %t", row.at, durable), func(t *testing.T) {
				judged := 0
				g := graph(kahn.Node{ID: "A", Moderation: kahn.ModerateInput, OverallTimeout: time.Hour})
				moderate := kahn.Moderate(func(context.Context, event.Phase, *kahn.Step, any) error {
					judged++
					time.Sleep(10 * ms)
					return nil
				})
				opts := crash(t, g, takes(time.Second), durable, lasting(row.at), moderate)
				time.Sleep(time.Minute)
				judged = 0
				r := try2(t, g, func(_ context.Context, s *kahn.Step) (any, error) {
					deadline, _ := s.Deadline()
					if left := time.Until(deadline); s.Attempt() != row.attempt || left != row.left {
						t.Errorf("attempt %d has %v left, expected %d with %v", s.Attempt(), left, row.attempt, row.left)
					}
					return nil, nil
				}, opts...)
				r.expect("A:ok", "completed")
				if judged != row.judged || r.node("A").Attempts != row.attempt {
					t.Errorf("judged %d times, %d attempts", judged, r.node("A").Attempts)
				}
			})
		}
	}
}

// TestNodeBeingStoppedOutlivesItsTimeout: the OverallTimeout of a composite that is being stopped does not fail the composite, even if the deadline
// passes between two lives.
func TestNodeBeingStoppedOutlivesItsTimeout(t *testing.T) {
	t.Parallel()
	suspends := func(_ context.Context, s *kahn.Step) (any, error) {
		if answer, ok := s.Resumed(); ok {
			return answer, nil
		}
		return nil, kahn.Suspend("", nil, nil)
	}
	for _, stored := range []bool{false, true} {
		for _, leaves := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("stored %v, leaves %v", stored, leaves), func(t *testing.T) {
				s := subgraph("S", graph(kahn.Node{ID: "x", Do: untilStopped}, kahn.Node{ID: "c", Cleanup: true, After: []string{"x"}, Do: suspends}))
				s.OverallTimeout = time.Minute
				l := &lives{t: t, g: graph(s, kahn.Node{ID: "late", In: []kahn.Edge{{From: "S", On: kahn.OnFailure}}}), step: takes(0), opts: []kahn.Option{kahn.CleanupTimeout(time.Hour)}}
				if stored {
					l.store = new(store.Memory)
				}
				answer := func(run *kahn.Run) {
					if err := run.Signal(t.Context(), "S/c", "done"); err != nil {
						t.Error(err)
					}
				}
				res, err := l.next(10*ms, func(run *kahn.Run) {
					if err := run.CancelNode("S"); err != nil {
						t.Error(err)
					}
					time.Sleep(10 * ms)
					if leaves {
						run.Leave()
						return
					}
					time.Sleep(2 * time.Minute)
					answer(run)
				})
				if leaves {
					if n, _ := res.Node("S"); err != nil || n.Status.Terminal() {
						t.Fatalf("%v: S is %v", err, n.Status)
					}
					time.Sleep(2 * time.Minute)
					res, err = l.next(10*ms, answer)
				}
				if n, _ := res.Node("S"); n.Status != kahn.Cancelled || res.Status != kahn.RunCancelled {
					t.Errorf("%v: S is %v, the run %v", err, n.Status, res.Status)
				}
				for _, e := range l.events {
					if e.Type == event.NodeTimedOut {
						t.Errorf("%s of %s\n%s", e.Type, e.Path, eventText(l.events))
					}
				}
			})
		}
	}
}

// TestHistoryOfACutAttempt: if a crash interrupts an attempt, the next attempt is in the node's History, with its own times.
func TestHistoryOfACutAttempt(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{false, true} {
		inBubble(t, fmt.Sprint("durable ", durable), func(t *testing.T) {
			g := graph(after("A"))
			opts := crash(t, g, takes(time.Second), durable, lasting(500*ms))
			time.Sleep(time.Minute)
			begin := time.Now()
			r := try2(t, g, takes(time.Second), opts...)
			r.expect("A:ok", "completed")
			list := r.node("A").History()
			if len(list) != 1 || list[0].Number != 2 || begin.Sub(list[0].Start).Abs() > time.Nanosecond || !list[0].End.Equal(begin.Add(time.Second)) || list[0].Err != nil {
				t.Errorf("%+v, begun at %v", list, begin)
			}
		})
	}
}
