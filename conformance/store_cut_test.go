package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestStoreAtEveryWrite runs random graphs over a store. After each write it resumes from the store's content, as after a crash. The nodes and
// the run must have the same outcomes as in the uninterrupted run, and no step of an ended node may be called.
func TestStoreAtEveryWrite(t *testing.T) {
	t.Parallel()
	graphs := size(15, 4, 1_500)
	cuts := 0
	for seed := range seeds(t, graphs) {
		synctest.Test(t, func(t *testing.T) {
			cuts += newCutter(1000+seed, int(seed%3)).everyWrite(t, fmt.Sprint("seed ", seed))
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d graphs, %d cuts", graphs, cuts)
}

// everyWrite resumes a run after each of its writes.
func (c *cutter) everyWrite(t *testing.T, name string) (cuts int) {
	whole := new(journal)
	c.more = []kahn.Option{kahn.Durable(whole), kahn.RunID("r")}
	_, want := c.run(t, nil, false)
	checkEvents(t, c.g, c.res, c.events)
	for writes := range whole.writes {
		store := whole.replay(t, "r", writes)
		before, err := store.Load(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		if before.Status.Terminal() {
			continue // the write of a delta count, after the run's end
		}
		c.more = []kahn.Option{kahn.Durable(store), kahn.RunID("r")}
		_, got := c.run(t, nil, false)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s, after %d writes: \ngot  %v\nwant %v", name, writes, got, want)
		}
		if err := kahntest.CheckEvents(c.g, c.res, c.events); err != nil {
			t.Errorf("%s, after %d writes: %v\n%s", name, writes, err, eventText(c.events))
		}
		if again := c.repeatedKey(before); again != "" {
			t.Errorf("%s, after %d writes: %s was performed again", name, writes, again)
		}
		if t.Failed() {
			break
		}
		cuts++
	}
	return cuts
}

// If the store fails while a run is being stopped, the run's cleanup nodes end, at every depth, since their results could not be written.
func TestStoreFailureEndsCleanup(t *testing.T) {
	for _, depth := range []int{0, 1, 2} {
		for _, cleanup := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("depth %d, cleanup %v", depth, cleanup), func(t *testing.T) {
				begin := time.Now()
				db := &brokenStore{Store: new(store.Memory), commit: func(store.Commit) error {
					if time.Since(begin) > 1100*ms {
						return kahn.ErrFenced
					}
					return nil
				}}
				slow := func(context.Context, *kahn.Step) (any, error) { time.Sleep(2 * time.Second); return nil, errStep }
				g := graph(kahn.Node{ID: "A", Cleanup: cleanup, Do: slow}, kahn.Node{ID: "C", Cleanup: true, After: []string{"A"}})
				for range depth {
					g = graph(subgraph("S", g))
				}
				g.Add(kahn.Node{ID: "K", Cleanup: true, After: []string{"O"}}, kahn.Node{ID: "O", Do: untilStopped})
				rec := newRecorder()
				run, err := kahn.Start(t.Context(), g, func(ctx context.Context, s *kahn.Step) (any, error) {
					if s.ID() == "C" {
						t.Errorf("%s was called", s.Path())
					}
					return takes(200*ms)(ctx, s)
				}, kahn.RunID("r"), kahn.Durable(db), kahn.OnEvent(rec.add))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				run.Cancel()
				_, err = run.Wait()
				if !errors.Is(err, kahn.ErrStore) {
					t.Error(err)
				}
				if took := time.Since(begin); took > 3*time.Second {
					t.Errorf("it ended after %v", took)
				}
				if left := leftovers(run); left != "" {
					t.Error(left)
				}
			})
		}
	}
}
