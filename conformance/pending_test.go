package conformance_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// If a resumed run is left or stopped while it is still pending, it keeps the results of its earlier lives.
func TestPendingRunThatGoesOn(t *testing.T) {
	for name, db := range map[string]store.Store{"snapshot": nil, "store": new(store.Memory)} {
		for _, cancel := range []bool{false, true} {
			inBubble(t, name, func(t *testing.T) {
				if db != nil {
					db = new(store.Memory)
				}
				var mu sync.Mutex
				var calls []string
				step := func(ctx context.Context, s *kahn.Step) (any, error) {
					mu.Lock()
					calls = append(calls, s.ID())
					mu.Unlock()
					return takes(time.Second)(ctx, s)
				}
				g := graph(after("A"), after("B", "A"), kahn.Node{ID: "K", Cleanup: true, After: []string{"B"}})
				rn := &kahn.Runner{MaxRuns: 1}
				var last *kahn.Snapshot
				var whole []kahn.Event
				begin := func() (*kahn.Run, func() *kahn.Result) {
					rec := newRecorder()
					opts := []kahn.Option{kahn.RunID("r"), kahn.OnEvent(rec.add)}
					if db != nil {
						opts = append(opts, kahn.Durable(db))
					} else if last != nil {
						opts = append(opts, kahn.Resume(last))
					}
					run, err := rn.Start(t.Context(), g, step, opts...)
					if err != nil {
						t.Fatal(err)
					}
					return run, func() *kahn.Result {
						res, _ := run.Wait()
						last = res.Snapshot()
						whole = append(whole, rec.all()...)
						checkEvents(t, g, res, whole)
						return res
					}
				}
				run, wait := begin()
				time.Sleep(500 * ms)
				run.Leave()
				wait()
				other, err := rn.Start(t.Context(), graph(after("O")), takes(time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				run, wait = begin()
				if run.Status() != kahn.RunPending {
					t.Fatalf("it is %v", run.Status())
				}
				if cancel {
					run.Cancel()
				} else {
					run.Leave()
				}
				res := wait()
				if a, _ := res.Node("A"); a.Status != kahn.Completed {
					t.Errorf("A is %v, the run %v", a.Status, res.Status)
				}
				other.Cancel()
				_, _ = other.Wait()
				if !cancel {
					_, wait = begin()
					wait()
				}
				if got := strings.Join(calls, " "); !cancel && got != "A B K" || cancel && got != "A" {
					t.Errorf("calls %s\n%s", got, eventText(whole))
				}
			})
		}
	}
}

// A run that was left before it began continues in no wave, regardless of its mode.
func TestPendingRunThatGoesOnInWaves(t *testing.T) {
	for _, stored := range []bool{false, true} {
		for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
			inBubble(t, "", func(t *testing.T) {
				g := graph(after("A"), after("B", "A"))
				rn := &kahn.Runner{MaxRuns: 1}
				opts := []kahn.Option{kahn.RunID("r")}
				if stored {
					opts = append(opts, kahn.Durable(new(store.Memory)))
				}
				other, err := rn.Start(t.Context(), graph(after("O")), takes(time.Hour))
				require.NoError(t, err)
				first, second := newRecorder(), newRecorder()
				run, err := rn.Start(t.Context(), g, takes(ms), append(opts, mode, kahn.OnEvent(first.add))...)
				require.NoError(t, err)
				require.Equal(t, kahn.RunPending, run.Status())
				run.Leave()
				res, err := run.Wait()
				require.NoError(t, err)
				checkEvents(t, g, res, first.all())
				if opts = append(opts, kahn.Waves, kahn.OnEvent(second.add)); !stored {
					opts = append(opts, kahn.Resume(reload(t, res.Snapshot())))
				}
				res, err = kahn.Execute(t.Context(), g, takes(ms), opts...)
				require.NoError(t, err)
				checkEvents(t, g, res, append(first.all(), second.all()...))
				waves := 0
				for _, e := range second.all() {
					if e.Type == event.WaveStarted {
						waves++
					}
				}
				require.Equal(t, 2, waves, eventText(second.all()))
				other.Cancel()
				_, _ = other.Wait()
			})
		}
	}
}
