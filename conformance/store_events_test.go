package conformance_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// sameEvents compares a stored log with the events that readers in the process have seen. It returns an error about the first difference.
func sameEvents(stored, seen []kahn.Event) error {
	if len(stored) != len(seen) {
		return fmt.Errorf("%d events are stored, and %d were seen", len(stored), len(seen))
	}
	for i := range stored {
		a, err1 := json.Marshal(stored[i])
		b, err2 := json.Marshal(seen[i])
		if err1 != nil || err2 != nil || string(a) != string(b) {
			return fmt.Errorf("stored as %s, seen as %s, %w, %w", a, b, err1, err2)
		}
	}
	return nil
}

// nodeEnds maps each event type that ends a node to the node's final status.
var nodeEnds = map[event.Type]kahn.Status{
	event.NodeCompleted: kahn.Completed, event.NodeFailed: kahn.Failed, event.NodeAborted: kahn.Aborted, event.NodeCancelled: kahn.Cancelled, event.NodeSkipped: kahn.Skipped,
}

// ofOneMoment returns an error if a stored log and a stored run differ: if a node has ended according to the log, it must have ended according to
// the stored run, and vice versa. The same holds for starts of attempts and for the run.
func (c *cutter) ofOneMoment(r *store.Run, events []kahn.Event) error {
	if uint64(len(events)) != r.LastEvent {
		return fmt.Errorf("%d events, the last one with id %d", len(events), r.LastEvent)
	}
	ended, begun := map[string]kahn.Status{}, map[string]int32{}
	over := false
	for i, e := range events {
		if e.ID != uint64(i+1) {
			return fmt.Errorf("event %d has the id %d", i+1, e.ID)
		}
		switch status, ends := nodeEnds[e.Type]; {
		case ends:
			ended[e.Path] = status
		case e.Node != "" && e.Type != event.NodeDelta && e.Type != event.NodeLog:
			delete(ended, e.Path)
		}
		if e.Type == event.NodeStarted {
			begun[e.Path]++ // also when the step is called again after an answer
		}
		_, over = e.Payload.(event.RunEnd)
	}
	if over != r.Status.Terminal() {
		return fmt.Errorf("the run is stored as %v, and its last event is %v", r.Status, events[len(events)-1])
	}
	retried := map[string]bool{} // paths that several nodes share
	for key := range r.Nodes {
		if path := tries.ReplaceAllString(key, ""); path != key || c.again(key) {
			retried[path] = true
		}
	}
	for key, n := range r.Nodes {
		if retried[tries.ReplaceAllString(key, "")] || passes.MatchString(key) {
			continue
		}
		status, told := ended[key]
		if told != n.Terminal || told && status != n.Status {
			return fmt.Errorf("node %s is stored as %v, and its events say %v", key, n.Status, status)
		}
		if n.Attempt > 0 && begun[key] != n.Attempt && !c.expanded(lastOf(key)) { // a later life expands a node again without an event
			return fmt.Errorf("attempt %d of node %s is stored, and its events tell of %d", n.Attempt, key, begun[key])
		}
	}
	for path := range ended {
		if n, ok := r.Nodes[path]; !retried[path] && !c.again(path) && (!ok || !n.Terminal) {
			return fmt.Errorf("the events tell that %s has ended, and it is stored as %v", path, n.Status)
		}
	}
	return nil
}

var (
	tries  = regexp.MustCompile(`#try[0-9]+`)      // a composite's attempt number in a key
	passes = regexp.MustCompile(`(#[0-9]+|\[\])$`) // the end of the key of an output that a loop has collected, or of a map's list
)

// again reports whether a node is in a composite that may be attempted again.
func (c *cutter) again(key string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(key, func(r rune) bool { return strings.ContainsRune("/[#", r) }), func(id string) bool { return c.retried[id] })
}

// TestStoredEventsAtEveryWrite interrupts runs with stored events after each write, as TestStoreAtEveryWrite does. After every write the stored log
// matches the stored run. After the next life the log is one stream of all lives, and readers have seen only stored events. The next life stores its
// events without the option.
func TestStoredEventsAtEveryWrite(t *testing.T) {
	t.Parallel()
	graphs := size(6, 2, 800)
	cuts := 0
	for seed := range seeds(t, graphs) {
		synctest.Test(t, func(t *testing.T) {
			c := newCutter(5000+seed, int(seed%3))
			c.slow = time.Duration(seed%2) * ms
			cuts += c.storedAtEveryWrite(t, fmt.Sprint("seed ", seed))
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d graphs, %d cuts", graphs, cuts)
}

func (c *cutter) storedAtEveryWrite(t *testing.T, name string) (cuts int) {
	whole := new(journal)
	c.more = []kahn.Option{kahn.Durable(whole), kahn.RunID("r"), kahn.StoreEvents()}
	_, want := c.run(t, nil, false)
	checkEvents(t, c.g, c.res, c.events)
	if err := sameEvents(storedEvents(t, whole, "r"), c.events); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	for writes := range whole.writes {
		db := whole.replay(t, "r", writes)
		before, err := db.Load(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		if writes > 0 {
			c.more = []kahn.Option{kahn.Durable(db), kahn.RunID("r")}
		}
		prefix := storedPrefix(t, db, before)
		if err := c.ofOneMoment(before, prefix); writes > 0 && err != nil {
			t.Errorf("%s, after %d writes: %v\n%s", name, writes, err, eventText(prefix))
		}
		if writes == 0 || before.Status.Terminal() {
			continue
		}
		_, got := c.run(t, nil, false)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s, after %d writes: \ngot  %v\nwant %v", name, writes, got, want)
		}
		after, err := db.Load(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		stored := storedEvents(t, db, "r")
		if err := c.ofOneMoment(after, stored); err != nil {
			t.Errorf("%s, after %d writes, at the end: %v\n%s", name, writes, err, eventText(stored))
		}
		if err := sameEvents(stored, append(slices.Clone(prefix), c.events...)); err != nil {
			t.Errorf("%s, after %d writes: %v", name, writes, err)
		}
		if err := kahntest.CheckEvents(c.g, c.res, stored); err != nil {
			t.Errorf("%s, after %d writes: %v\n%s", name, writes, err, eventText(stored))
		}
		if t.Failed() {
			break
		}
		cuts++
	}
	return cuts
}

// storedPrefix returns the stored log of a run, or nothing if the run has not started.
func storedPrefix(t *testing.T, s store.EventStore, r *store.Run) []kahn.Event {
	if r.Sequence == 0 {
		return nil
	}
	return storedEvents(t, s, r.ID)
}
