package kahn_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// journal is a store that keeps what was written to it.
type journal struct {
	kahn.MemoryStore
	mu     sync.Mutex
	writes []any // AttemptStart or Commit, those that were applied
}

func (j *journal) add(write any, a kahn.Applied) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if a == kahn.AppliedNow {
		j.writes = append(j.writes, write)
	}
}

func (j *journal) len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.writes)
}

func (j *journal) StartAttempt(ctx context.Context, l kahn.Lease, s kahn.AttemptStart) (kahn.Applied, error) {
	a, err := j.MemoryStore.StartAttempt(ctx, l, s)
	j.add(s, a)
	return a, err
}

func (j *journal) Commit(ctx context.Context, l kahn.Lease, c kahn.Commit) (kahn.Applied, error) {
	a, err := j.MemoryStore.Commit(ctx, l, c)
	j.add(c, a)
	return a, err
}

// replay makes the store that a process leaves which dies after so many writes.
func (j *journal) replay(t *testing.T, run string, writes int) *journal {
	t.Helper()
	copied := new(journal)
	lease, _, err := copied.Acquire(t.Context(), run, "replay", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	j.mu.Lock()
	list := slices.Clone(j.writes[:writes])
	j.mu.Unlock()
	for _, w := range list {
		var a kahn.Applied
		switch w := w.(type) {
		case kahn.AttemptStart:
			a, err = copied.StartAttempt(t.Context(), lease, w)
		case kahn.Commit:
			a, err = copied.Commit(t.Context(), lease, w)
		}
		if err != nil || a != kahn.AppliedNow {
			t.Fatalf("%+v: %v, %v", w, a, err)
		}
	}
	if err := copied.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	return copied
}

// TestStoreAtEveryWrite runs random graphs over a store and goes on with what it held after each write, as after a crash. What
// the nodes and the run come to is what the uncut run came to, and nothing that had ended is called again.
func TestStoreAtEveryWrite(t *testing.T) {
	graphs := 150
	if raceEnabled {
		graphs = 15
	}
	cuts := 0
	for seed := range graphs {
		synctest.Test(t, func(t *testing.T) {
			cuts += newCutter(uint64(1000+seed), seed%3).everyWrite(t, fmt.Sprint("seed ", seed))
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d graphs, %d cuts", graphs, cuts)
}

// everyWrite goes on after every write of a run.
func (c *cutter) everyWrite(t *testing.T, name string) (cuts int) {
	whole := new(journal)
	c.more = []kahn.Option{kahn.WithStore(whole), kahn.RunID("r")}
	_, want := c.run(t, nil, false)
	checkEvents(t, c.g, c.res, c.events)
	for writes := range whole.writes {
		store := whole.replay(t, "r", writes)
		before, err := store.Load(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		if before.Status.Terminal() {
			continue // a deltas' count that came late
		}
		c.more = []kahn.Option{kahn.WithStore(store), kahn.RunID("r")}
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

// repeatedKey names a node that was called although it had ended in a store. What is inside of a composite that is retried may
// be called again.
func (c *cutter) repeatedKey(r *kahn.StoredRun) string {
	for key, n := range r.Nodes {
		retried := false
		for _, id := range strings.FieldsFunc(key, func(r rune) bool { return strings.ContainsRune("/[#", r) }) {
			retried = retried || c.retried[id]
		}
		if n.Terminal && !retried && c.called["step "+key]+c.called["test "+key] > 0 {
			return fmt.Sprintf("%s, in %+v", key, n)
		}
	}
	return ""
}
