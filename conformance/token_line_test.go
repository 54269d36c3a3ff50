package conformance_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// TestLackOfATokenHoldsBackNoSlot: a node in a group's queue that lacks only a rate token does not hold back later nodes in the queue that need
// no token.
func TestLackOfATokenHoldsBackNoSlot(t *testing.T) {
	hourly := kahn.Rate{Starts: 1, Per: time.Hour}
	slot := []kahn.Group{{Name: "g", Limit: 1, Rate: hourly}}
	member := func(id string, priority int) kahn.Node {
		return kahn.Node{ID: id, Priority: priority, Groups: []string{"g"}}
	}
	inBubble(t, "a mocked node", func(t *testing.T) {
		g := graph(member("A", 3), member("B", 2), member("C", 1), member("D", 0))
		g.Groups = slot
		mocks := kahn.TestMode{Mocks: map[string]kahn.Mock{"C": {Do: takes(10 * ms)}}}
		r := try(t, g, takes(10*ms), mocks)
		r.expect("A:ok B:ok C:ok D:ok", "completed")
		if c := r.at(event.NodeCompleted, "C"); c != 20*ms {
			t.Errorf("C completed at %v", c)
		}
		if b, d := r.at(event.NodeStarted, "B"), r.at(event.NodeStarted, "D"); b != time.Hour || d != 2*time.Hour {
			t.Errorf("B started at %v, D at %v", b, d)
		}
	})
	inBubble(t, "the cleanup of a nested run that is stopped", func(t *testing.T) {
		inner := member("c", 0)
		inner.Cleanup = true
		g := graph(member("A", 3), member("B", 2), kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "x", Do: takes(time.Minute)}, inner)})
		g.Groups = slot
		r := tryControlled(t, t.Context(), g, takes(10*ms), func(run *kahn.Run) {
			synctest.Wait()
			if err := run.CancelNode("S"); err != nil {
				t.Error(err)
			}
		})
		if c := r.at(event.NodeCompleted, "S/c"); c != 20*ms {
			t.Errorf("S/c completed at %v\n%s", c, eventText(r.events))
		}
		if b := r.at(event.NodeStarted, "B"); b != time.Hour {
			t.Errorf("B started at %v", b)
		}
	})
	inBubble(t, "a composite whose nodes wait for a signal, for a slot and for a token", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Priority: 1, Groups: []string{"g"}, Do: takes(time.Minute)}, kahn.Node{ID: "S", Sub: graph(gate("w"), member("C", 0), member("B", 1))})
		g.Groups = slot
		mocks := kahn.TestMode{Unmock: []string{"S/w"}, Mocks: map[string]kahn.Mock{"S/C": {Do: takes(10 * ms)}}}
		r := tryControlled(t, t.Context(), g, takes(10*ms), func(run *kahn.Run) {
			time.Sleep(2 * time.Hour)
			if err := run.Signal(t.Context(), "S/w", nil); err != nil {
				t.Error(err)
			}
		}, mocks)
		r.expect("A:ok S:ok", "completed")
		if c, b := r.at(event.NodeCompleted, "S/C"), r.at(event.NodeStarted, "S/B"); c != time.Minute+10*ms || b != time.Hour {
			t.Errorf("S/C completed at %v, S/B started at %v", c, b)
		}
	})
	inBubble(t, "what the runs of a Runner share", func(t *testing.T) {
		runner := &kahn.Runner{Limit: 1, Rate: hourly}
		first, err := runner.Start(t.Context(), graph(after("A")), takes(10*ms))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		mocks := kahn.TestMode{Mocks: map[string]kahn.Mock{"C": {Do: takes(10 * ms)}}}
		g := graph(kahn.Node{ID: "B", Priority: 1}, after("C"))
		begin := time.Now()
		second, err := runner.Start(t.Context(), g, takes(10*ms), mocks)
		if err != nil {
			t.Fatal(err)
		}
		var times []time.Duration
		for _, id := range []string{"C", "B"} {
			if _, err := second.WaitFor(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			times = append(times, time.Since(begin))
		}
		if times[0] != 20*ms || times[1] != time.Hour+10*ms {
			t.Errorf("C and B ended at %v", times)
		}
		for _, run := range []*kahn.Run{first, second} {
			if _, err := run.Wait(); err != nil {
				t.Error(err)
			}
		}
	})
}
