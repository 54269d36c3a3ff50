package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// TestSnapshotAtEveryCut runs random graphs and takes snapshots at as many moments as possible: during attempts, guards, conditions and merges,
// after events, in backoffs, and while gates and steps wait. From each snapshot the test continues the run as another process would. The nodes and
// the run must have the same outcomes as in the uninterrupted run, and no step of an ended node may be called. The events before and after the
// interruption must form one stream.
func TestSnapshotAtEveryCut(t *testing.T) {
	t.Parallel()
	graphs := size(14, 2, 1_000)
	cuts := 0
	for seed := range seeds(t, graphs) {
		synctest.Test(t, func(t *testing.T) {
			cuts += newCutter(seed, int(seed%3)).everyCut(t, fmt.Sprint("seed ", seed))
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d graphs, %d cuts", graphs, cuts)
	if cuts < 10*graphs {
		t.Errorf("only %d cuts of %d graphs", cuts, graphs)
	}
}

// everyCut continues from every snapshot of a run.
func (c *cutter) everyCut(t *testing.T, name string) (cuts int) {
	snapshots, want := c.run(t, nil, true)
	events := c.events
	checkEvents(t, c.g, c.res, events)
	for _, data := range snapshots {
		s := new(kahn.Snapshot)
		if err := json.Unmarshal(data, s); err != nil {
			t.Fatal(err)
		}
		_, got := c.run(t, s, false)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: resumed from\n%s\ngot  %v\nwant %v", name, data, got, want)
		}
		whole := append(slices.Clone(events[:lastEvent(t, data)]), c.events...)
		if err := errors.Join(kahntest.CheckEvents(c.g, c.res, c.events), kahntest.CheckEvents(c.g, c.res, whole)); err != nil {
			t.Errorf("%s: resumed from\n%s\n%v\n%s", name, data, err, eventText(whole))
		}
		if again := c.repeated(data); again != "" {
			t.Errorf("%s: resumed from\n%s\n%s was performed again", name, data, again)
		}
		if t.Failed() {
			break
		}
	}
	return len(snapshots)
}

// TestCompositesAtEveryCut interrupts the scenarios about composites in the same way as TestSnapshotAtEveryCut and TestStoreAtEveryWrite interrupt
// random graphs.
func TestCompositesAtEveryCut(t *testing.T) {
	list := []string{"a", "b", "c"}
	whole := func(v kahn.View) (bool, error) { return v.Iteration() == 3, nil }
	quickly := func(ctx context.Context, s *kahn.Step) (any, error) {
		if s.Index() == 0 {
			time.Sleep(ms)
			return nil, errStep
		}
		return takes(20*ms)(ctx, s)
	}
	null := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	failFast := mapped("M", numbers(10), kahn.Map{FailFast: true})
	failFast.Do = quickly
	rescue := func(context.Context, *kahn.Step) (any, error) {
		return kahn.EndVerdict{Status: kahn.RunCompleted, Output: "rescued"}, nil
	}
	end := kahn.Node{ID: "end", Kind: kahn.KindEnd}
	trigger := func(id string) kahn.Node { return kahn.Node{ID: id, Kind: kahn.KindTrigger} }
	for name, c := range map[string]*cutter{
		"234": {g: graph(mapped("M", list, kahn.Map{}))},
		"236": {g: graph(kahn.Node{ID: "A", Do: null}, kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, Ports: []kahn.Port{{Name: "items", Required: true}},
			In: []kahn.Edge{{From: "A", Param: "items"}}}, after("B"))},
		"237":         {g: graph(mapped("M", "x", kahn.Map{}), after("B"))},
		"238":         {g: graph(mapped("M", list, kahn.Map{})), broken: map[string]bool{"M": true}},
		"240":         {g: graph(failFast)},
		"241":         {g: graph(mapped("M", numbers(20), kahn.Map{Limit: 4}))},
		"242":         {g: graph(mapped("M", list, kahn.Map{})), suspends: map[string]bool{"M": true}},
		"244":         {g: graph(subgraph("S", graph(after("x"), kahn.Node{ID: "h", In: []kahn.Edge{{From: "x", On: kahn.OnFailure}}}))), broken: map[string]bool{"x": true}},
		"245":         {g: graph(subgraph("S", graph(after("x"), end)), kahn.Node{ID: "H", In: []kahn.Edge{{From: "S", On: kahn.OnFailure}}}), broken: map[string]bool{"x": true}},
		"245 verdict": {g: graph(subgraph("S", graph(after("x"), kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: rescue})), after("B", "S")), broken: map[string]bool{"x": true}},
		"246":         {g: graph(subgraph("S", graph(gate("g"), after("x", "g"))), after("B", "S"))},
		"248":         {g: graph(kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{Until: whole, MaxIterations: 10}})},
		"249":         {g: graph(kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{While: func(kahn.View) (bool, error) { return true, nil }, MaxIterations: 5}})},
		"250":         {g: graph(trigger("T1"), after("A", "T1"), trigger("T2"), subgraph("B", graph(after("x")), "T2")), opts: []kahn.Option{kahn.Fire("T1", nil)}},
		"252":         {g: graph(trigger("T1"), after("R"), subgraph("A", graph(after("x")), "T1", "R")), opts: []kahn.Option{kahn.Fire("T1", nil)}},
		"253":         {g: graph(trigger("T1"), after("A", "T1"), trigger("T2"), subgraph("B", graph(after("x")), "T2")), opts: []kahn.Option{kahn.Fire("T3", nil)}},
	} {
		inBubble(t, name, func(t *testing.T) {
			cuts := c.everyCut(t, name)
			writes := c.everyWrite(t, name)
			if cuts < 2 || writes < 2 {
				t.Errorf("%d cuts, %d writes", cuts, writes)
			}
		})
	}
}

// lastEvent returns the id of the last event before a snapshot.
func lastEvent(t *testing.T, snapshot []byte) uint64 {
	var file struct {
		LastEvent uint64 `json:"last_event"`
	}
	if err := json.Unmarshal(snapshot, &file); err != nil {
		t.Fatal(err)
	}
	return file.LastEvent
}
