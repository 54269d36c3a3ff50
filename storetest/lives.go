package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// Lives performs random graphs over stores, and interrupts each run many times. A life of a run is its execution by one process. If the process
// stops or dies before the run has ended, the next process continues the run in a new life. In the first kind of run, a process dies after each
// write, or after a sample of the writes if there are many. In the second kind, several processes die, each after a random write. In the third
// kind, calls of the store fail at random. In the fourth kind, a process dies after each write of a redrive, or after a sample. In the fifth kind,
// answers for nodes at any depth arrive between lives and during them. A life of this kind ends by itself, by a leave, by a shutdown or by a kill,
// and no node may ask again for an acknowledged answer. A run of these kinds must have the same outcome as a run without interruption. A run of the
// last kind is signalled, left, shut down and stopped at any time, so its outcome is not known. Each of its lives must end in time with the stored
// status, and the events of all its lives must form one stream.
//
// The seed of the first graph is "first", and each further seed is one higher; a failure names its seed. The function "open" returns a new and
// empty store each time. Lives calls it in bubbles of testing/synctest, so the store must use time.Now, not the clock of a server. The parameter
// "check" must be kahntest.CheckEvents.
func Lives(t *testing.T, first uint64, graphs int, open func(t *testing.T) store.Store, check func(*kahn.Graph, *kahn.Result, []kahn.Event) error) {
	for _, kind := range []struct {
		name    string
		f       func(r *trial, t *testing.T)
		expands bool
	}{
		{"every write", (*trial).everyWrite, false}, {"lives after lives", (*trial).livesAfterLives, false}, {"faults", (*trial).faults, false}, {"redrives", (*trial).redrives, false},
		{"answers", (*trial).answered, true}, {"stops", (*trial).stops, false},
	} {
		t.Run(kind.name, func(t *testing.T) {
			for seed := first; seed != first+uint64(graphs); seed++ {
				synctest.Test(t, func(t *testing.T) {
					r := newTrial(seed, kind.expands)
					r.open, r.check, r.name = open, check, fmt.Sprintf("seed %d", seed)
					r.want = r.unstored(t)
					kind.f(r, t)
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}

// trial is a random graph with steps. The steps give each node the same outcome, however the run is interrupted.
type trial struct {
	name   string
	random *rand.Rand
	g      *kahn.Graph
	opts   []kahn.Option
	want   *kahn.Result
	open   func(t *testing.T) store.Store
	check  func(*kahn.Graph, *kahn.Result, []kahn.Event) error

	mu        sync.Mutex
	steps     map[string]conduct // the conduct of each step, by the id of its node
	expands   bool               // the steps of some nodes return graphs
	expanded  map[string]bool    // the nodes whose steps return graphs
	mended    bool               // steps that failed in every attempt now succeed
	completed map[string]int     // how often each node has completed in this life, by path
}

// The method `life` performs the graph over the store s, as a new process does, and answers the nodes that wait. The parameter "more" has the
// options of a redrive. The store "inner" is s without faults: the method reads from it what is stored.
func (r *trial) life(t *testing.T, s, inner store.Store, more ...kahn.Option) (*kahn.Result, error) {
	res, err := r.part(t, s, inner, len(more) > 0, more...)
	for res != nil && err == nil && res.Status == kahn.RunSuspended && !res.Left {
		res, err = r.part(t, s, inner, false, kahn.EarlySignals(answers(res)))
	}
	return res, err
}

// The method `part` performs the run until the run has ended, was left or waits for an answer. The method `life` calls `part` again with the answers.
func (r *trial) part(t *testing.T, s, inner store.Store, redrive bool, more ...kahn.Option) (*kahn.Result, error) {
	before := map[string]bool{}
	if stored, err := inner.Load(t.Context(), "r"); err == nil && !redrive {
		for id, node := range stored.Nodes {
			before[id] = node.Terminal // composites are not retried here, so each node's key in the store equals its path
		}
	}
	r.mu.Lock()
	clear(r.completed)
	r.mu.Unlock()
	var mu sync.Mutex
	var events []kahn.Event
	more = append(more, kahn.Durable(s), kahn.RunID("r"), kahn.MaxCrashes(-1), kahn.OnEvent(func(e kahn.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}))
	res, err := kahn.Execute(t.Context(), r.g, r.step, append(more, r.opts...)...)
	if res != nil && res.Status.Terminal() && !errors.Is(err, kahn.ErrStore) {
		if err := r.check(r.g, res, events); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
	}
	for id, n := range r.completed {
		if before[id] || n > 1 {
			t.Errorf("%s: %s was called %d times although it had ended: %v", r.name, id, n, before[id])
		}
	}
	return res, err
}

// recorder is a store that records the commits it applied.
type recorder struct {
	store.Store
	commits []store.Commit
}

func (s *recorder) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	a, err := s.Store.Commit(ctx, l, c)
	if a == store.AppliedNow {
		s.commits = append(s.commits, c)
	}
	return a, err
}

// The method `after` makes a new store with the given commits and no lease, as if a process had died after these commits and its lease had run out.
func (r *trial) after(t *testing.T, commits []store.Commit) store.Store {
	s := r.open(t)
	lease, _, err := s.Acquire(t.Context(), "r", "replay", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commits {
		if a, err := s.Commit(t.Context(), lease, c); err != nil || a != store.AppliedNow {
			t.Fatalf("%s: %+v: %v, %v", r.name, c, a, err)
		}
	}
	if err := s.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	return s
}

// goOn continues the run after the given commits, compares its outcome, and returns the commits of the new life.
func (r *trial) goOn(t *testing.T, commits []store.Commit) []store.Commit {
	s := &recorder{Store: r.after(t, commits)}
	res, err := r.life(t, s, s)
	if errors.Is(err, kahn.ErrStore) || res == nil {
		t.Fatalf("%s: after %d writes: %v", r.name, len(commits), err)
	}
	r.compare(t, res)
	return s.commits
}

func (r *trial) everyWrite(t *testing.T) {
	whole := r.goOn(t, nil)
	for _, n := range r.cuts(len(whole)) {
		if r.goOn(t, whole[:n]); t.Failed() {
			t.Logf("%s: after %d of %d writes", r.name, n, len(whole))
			return
		}
	}
}

// cuts returns after how many writes a process dies: all numbers from 0 to writes-1, or a sample if there are many.
func (r *trial) cuts(writes int) (list []int) {
	const most = 24
	step := 1 + writes/most
	for n := r.random.IntN(step); n < writes; n += step {
		list = append(list, n)
	}
	return list
}

func (r *trial) livesAfterLives(t *testing.T) {
	commits := r.goOn(t, nil)
	for life, cut := 2, 0; life <= 5 && cut < len(commits) && !t.Failed(); life++ {
		cut += r.random.IntN(len(commits) - cut)
		commits = append(slices.Clone(commits[:cut]), r.goOn(t, commits[:cut])...)
	}
}

func (r *trial) faults(t *testing.T) {
	rate := 4 + r.random.IntN(12)
	inner := r.open(t)
	var mu sync.Mutex
	store := WithFaults(inner, func(string) Fault {
		mu.Lock()
		defer mu.Unlock()
		var f Fault
		switch r.random.IntN(rate) {
		case 0:
			f.Before = true
		case 1:
			f.After = true
		}
		f.Latency = time.Duration(r.random.IntN(3)) * time.Millisecond
		return f
	})
	for range 500 {
		res, err := r.life(t, store, inner)
		time.Sleep(time.Minute) // a lease that was not released expires
		if errors.Is(err, kahn.ErrFinished) {
			// A former life wrote the end of the run, but its acknowledgement was lost. So the test reads the outcome from the store.
			stored, err := inner.Load(t.Context(), "r")
			if err != nil {
				t.Errorf("%s: the run has ended and cannot be loaded: %v", r.name, err)
			} else if stored.Status != r.want.Status {
				t.Errorf("%s: the run has ended as %v, expected %v", r.name, stored.Status, r.want.Status)
			}
			return
		}
		if res != nil && !errors.Is(err, kahn.ErrStore) {
			r.compare(t, res)
			return
		}
	}
	t.Fatalf("%s: the run does not get to its end", r.name)
}

// compare compares res with the result of the run without a store.
func (r *trial) compare(t *testing.T, res *kahn.Result) {
	r.nodes(t, res, r.want, "")
	if res.Status != r.want.Status || res.Degraded != r.want.Degraded {
		t.Errorf("%s: the run is %v, expected %v", r.name, res.Status, r.want.Status)
	}
}

// The method `nodes` compares the outcomes of all nodes, including the nodes inside composites.
func (r *trial) nodes(t *testing.T, res, want *kahn.Result, prefix string) {
	for node := range want.Nodes() {
		id, _, _ := strings.Cut(node.ID, "[")
		got, _ := res.Node(node.ID)
		if got.Status != node.Status || !reflect.DeepEqual(got.Output, node.Output) || got.Cause.Kind != node.Cause.Kind || got.Skip != node.Skip ||
			!slices.Equal(got.Cause.Origins, node.Cause.Origins) {
			t.Errorf("%s: %s%s is %v %v %v, expected %v %v %v", r.name, prefix, node.ID, got.Status, got.Output, got.Cause, node.Status, node.Output, node.Cause)
		}
		switch {
		case got.Sub == nil && r.expanded[id]: // the node ended in an earlier life, and only that life knew the node's graph
		case (got.Sub == nil) != (node.Sub == nil):
			t.Errorf("%s: what is inside of %s%s: %v, expected %v", r.name, prefix, node.ID, got.Sub, node.Sub)
		case got.Sub != nil:
			r.nodes(t, got.Sub, node.Sub, prefix+node.ID+" ")
		}
	}
}
