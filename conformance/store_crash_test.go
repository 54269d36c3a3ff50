package conformance_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// TestCrashesAndTheRetryBudget: an attempt that a crash interrupts has a number, but does not count against MaxAttempts. An attempt that runs
// when a snapshot is taken counts.
func TestCrashesAndTheRetryBudget(t *testing.T) {
	again := func(attempts int) kahn.Retry {
		return kahn.Retry{MaxAttempts: attempts, InitialDelay: 10 * ms, Multiplier: 1, Jitter: kahn.JitterNone}
	}
	for _, row := range []struct {
		name    string
		host    func(*kahn.Run) // acts until the crash; a step fails after 20 ms
		retry   kahn.Retry
		durable bool
		calls   string // the attempts of the next life
	}{
		{"in the only attempt", lasting(10 * ms), again(1), true, "2"},
		{"in the first of two", lasting(10 * ms), again(2), true, "2 3"},
		{"in the second of two", lasting(40 * ms), again(2), true, "3"},
		{"in the backoff before the second of two", lasting(25 * ms), again(2), true, "2"},
		{"in the first of two, by a snapshot", lasting(10 * ms), again(2), false, "2"},
	} {
		for _, where := range []string{"A", "S/A", "M[0]"} {
			inBubble(t, row.name+", "+where, func(t *testing.T) {
				g := map[string]*kahn.Graph{
					"A":    graph(kahn.Node{ID: "A", Retry: row.retry}),
					"S/A":  graph(subgraph("S", graph(kahn.Node{ID: "A", Retry: row.retry}))),
					"M[0]": graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []any{1}}, Retry: row.retry}),
				}[where]
				step := func(context.Context, *kahn.Step) (any, error) {
					time.Sleep(20 * ms)
					return nil, errStep
				}
				opts := crash(t, g, step, row.durable, row.host)
				calls := ""
				r := try2(t, g, func(ctx context.Context, s *kahn.Step) (any, error) {
					if calls != "" {
						calls += " "
					}
					calls += fmt.Sprint(s.Attempt())
					return step(ctx, s)
				}, opts...)
				if r.Status != kahn.RunFailed || calls != row.calls {
					t.Errorf("%v after attempts %s, expected %s", r.Status, calls, row.calls)
				}
			})
		}
	}

	inBubble(t, "crash after crash", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Retry: again(2)})
		store := new(journal)
		for life := range 4 {
			run, err := kahn.Start(t.Context(), g, takes(time.Second), kahn.Durable(store), kahn.RunID("r"), kahn.MaxCrashes(-1))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(life+1) * ms)
			next := store.replay(t, "r", store.len())
			run.Cancel()
			_, _ = run.Wait()
			store = next
		}
		r := try2(t, g, script(nil, nil, nil, nil, errStep, nil), kahn.Durable(store), kahn.RunID("r"), kahn.MaxCrashes(-1))
		r.expect("A:ok", "completed")
		if n := r.node("A"); n.Attempts != 6 {
			t.Errorf("%d attempts", n.Attempts)
		}
	})
}
