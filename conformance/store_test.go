package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

func TestScenarioStore(t *testing.T) {
	inBubble(t, "a run with a store is a run", func(t *testing.T) {
		db := new(store.Memory)
		g := graph(kahn.Node{ID: "A", Retry: kahn.RetryStandard()}, after("B", "A"), kahn.Node{ID: "?", After: []string{"A"}, Test: func(kahn.View) (any, error) { return true, nil }},
			branch("T", "?", "true"), branch("N", "?", "false"), kahn.Node{ID: "Z", Kind: kahn.KindEnd})
		r := try(t, g, script(errStep, nil), kahn.Durable(db), kahn.RunID("one"))
		r.expect("A:ok B:F ?:ok T:F N:S/br Z:F", "failed")
		stored, err := db.Load(t.Context(), "one")
		if err != nil || stored.Status != kahn.RunFailed {
			t.Fatalf("%+v, %v", stored, err)
		}
		if n := stored.Nodes["A"]; n.Attempt != 2 || !n.Terminal || !n.Completed || n.Queued {
			t.Errorf("A is stored as %+v", n)
		}
		if n := stored.Nodes["B"]; n.Resolved != 1 || n.Required != 1 {
			t.Errorf("B is stored as %+v", n)
		}
		if _, err := kahn.Execute(t.Context(), g, neverStep(t), kahn.Durable(db), kahn.RunID("one")); !errors.Is(err, kahn.ErrFinished) {
			t.Error(err)
		}
	})

	inBubble(t, "133 a commit fails", func(t *testing.T) {
		db := &brokenStore{Store: new(store.Memory), commit: func(c store.Commit) error {
			if endsOf(c, "A") {
				return errDisk
			}
			return nil
		}}
		r := try(t, graph(after("A"), after("B", "A"), kahn.Node{ID: "K", Cleanup: true, After: []string{"B"}}), takes(0), kahn.Durable(db), kahn.RunID("one"))
		r.expect("A:ready B:waiting K:idle", "suspended")
		r.count(event.NodeStarted, "A", 1)
		r.count(event.NodeCompleted, "A", 0)
		r.count(event.NodeStarted, "B", 0)
		r.count(event.NodeQueued, "B", 0)
		if !r.Left || r.Cause.Kind != kahn.CauseStoreError || !errors.Is(r.err, errDisk) || !errors.Is(r.err, kahn.ErrStore) {
			t.Errorf("left %v, %v, %v", r.Left, r.Cause, r.err)
		}
		if r.Duration != 30*time.Second { // as long as a lease
			t.Errorf("it was left after %v", r.Duration)
		}
		// The store still contains the unchanged run, and another process continues it.
		db.commit = nil
		time.Sleep(time.Minute) // the lease runs out
		var c calls
		again := try2(t, graph(after("A"), after("B", "A"), kahn.Node{ID: "K", Cleanup: true, After: []string{"B"}}), c.count(takes(0)), kahn.Durable(db), kahn.RunID("one"))
		again.expect("A:ok B:ok K:ok", "completed")
		if again.node("A").Attempts != 2 || c.of("A") != 1 {
			t.Errorf("%d attempts of A, %d calls", again.node("A").Attempts, c.of("A"))
		}
	})

	for _, at := range []string{"S/x", "S/y", "M[1]", "L#2/z"} {
		inBubble(t, "133 a commit inside fails: "+at, func(t *testing.T) {
			inner := new(store.Memory)
			db := &brokenStore{Store: inner, commit: func(c store.Commit) error {
				if endsOf(c, at) {
					return errDisk
				}
				return nil
			}}
			g := graph(subgraph("S", graph(after("x"), after("y", "x"))), mapped("M", numbers(2), kahn.Map{}), after("B", "S", "M", "L"),
				kahn.Node{ID: "L", Sub: graph(after("z")), Loop: &kahn.Loop{While: whileLess(2), MaxIterations: 2}})
			var c paths
			rec := newRecorder()
			res, err := kahn.Execute(t.Context(), g, c.count(takes(10*ms)), kahn.Durable(db), kahn.RunID("one"), kahn.OnEvent(rec.add))
			if res.Status != kahn.RunSuspended || !res.Left || !errors.Is(err, errDisk) {
				t.Errorf("%v, %v", res.Status, err)
			}
			checkEvents(t, g, res, rec.all())
			for _, e := range rec.all() {
				if e.Path == at && e.Type == event.NodeCompleted || e.Node == "B" && e.Type == event.NodeQueued {
					t.Errorf("%v was published", e)
				}
			}
			top := strings.FieldsFunc(at, func(r rune) bool { return strings.ContainsRune("/[#", r) })[0]
			if n, _ := res.Node(top); n.Status != kahn.Running {
				t.Errorf("%s is %v %v", top, n.Status, n.Cause)
			}
			stored, _ := inner.Load(t.Context(), "one")
			c.n = nil
			db.commit = nil
			time.Sleep(time.Minute) // the lease runs out
			r := try2(t, g, c.count(takes(10*ms)), kahn.Durable(db), kahn.RunID("one"))
			r.expect("S:ok M:ok B:ok L:ok", "completed")
			for _, path := range []string{"S/x", "S/y", "M[0]", "M[1]", "L#1/z", "L#2/z"} {
				want := 1
				if stored.Nodes[path].Terminal {
					want = 0
				}
				if c.n[path] != want {
					t.Errorf("%s was called %d times, expected %d", path, c.n[path], want)
				}
			}
			if c.n[at] != 1 {
				t.Errorf("%s was called %d times", at, c.n[at])
			}
		})
	}

	inBubble(t, "a node of a sub-graph whose id looks like an item's", func(t *testing.T) {
		db, g := new(store.Memory), graph(subgraph("S", graph(after("[0]"), gate("G", "[0]"))))
		var c paths
		pause(t, g, c.count(takes(0)), kahn.Durable(db), kahn.RunID("one"))
		run, err := kahn.Start(t.Context(), g, c.count(takes(0)), kahn.Durable(db), kahn.RunID("one"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := run.Signal(t.Context(), "S/G", true); err != nil {
			t.Error(err)
		}
		if _, err := run.Wait(); err != nil || c.n["S/[0]"] != 1 {
			t.Errorf("%v, S/[0] was called %d times", err, c.n["S/[0]"])
		}
	})

	inBubble(t, "the test of a loop, and the next iteration, see what is durable", func(t *testing.T) {
		var durable time.Time
		db := &brokenStore{Store: new(store.Memory), commit: func(c store.Commit) error {
			if endsOf(c, "L#1/x") {
				time.Sleep(time.Second)
				durable = time.Now()
			}
			return nil
		}}
		l := kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 2, While: func(v kahn.View) (bool, error) {
			if v.Iteration() == 1 && (durable.IsZero() || time.Now().Before(durable)) {
				t.Error("the test was asked too early")
			}
			return v.Iteration() < 2, nil
		}}}
		try(t, graph(l), takes(10*ms), kahn.Durable(db)).expect("L:ok", "completed")
	})

	inBubble(t, "a retry of a composite has records of its own", func(t *testing.T) {
		db := new(store.Memory)
		fail := true
		step := func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "y" && fail {
				fail = false
				return nil, errStep
			}
			return s.Path(), nil
		}
		g := graph(kahn.Node{ID: "S", Sub: graph(after("x"), after("y", "x")), Retry: kahn.RetryStandard()})
		r := try(t, g, step, kahn.Durable(db), kahn.RunID("one"))
		r.expect("S:ok", "completed")
		stored, err := db.Load(t.Context(), "one")
		if err != nil {
			t.Fatal(err)
		}
		got := slices.Sorted(maps.Keys(stored.Nodes))
		if !slices.Equal(got, []string{"S", "S#try2/x", "S#try2/y", "S/x", "S/y"}) {
			t.Errorf("stored: %v", got)
		}
	})

	inBubble(t, "an answer for a gate that was not reached is stored", func(t *testing.T) {
		g := graph(after("A"), gate("G", "A"), subgraph("S", graph(after("x"), gate("g", "x"))))
		journaled := &journal{}
		run, err := kahn.Start(t.Context(), g, takes(time.Second), kahn.Durable(journaled), kahn.RunID("one"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, gate := range []string{"G", "S/g"} {
			if err := run.Signal(context.Background(), gate, "early"); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		writes := journaled.len()
		_, _ = run.Wait()
		db := &journaled.replay(t, "one", writes).Memory
		r := try2(t, g, takes(0), kahn.Durable(db), kahn.RunID("one"))
		r.expect("A:ok G:ok S:ok", "completed")
		if r.node("G").Output != "early" || r.node("S").Output != "early" {
			t.Errorf("outputs %v, %v", r.node("G").Output, r.node("S").Output)
		}
	})

	inBubble(t, "the start of an attempt is not recorded", func(t *testing.T) {
		// The start of A is in the same transaction as its end, so the end is not written either.
		db := &brokenStore{Store: new(store.Memory), start: func(s store.Attempt) error {
			if s.Node == "B" {
				return errDisk
			}
			return nil
		}}
		var c calls
		r := try(t, graph(after("A"), after("B", "A"), kahn.Node{ID: "L", Do: takes(time.Hour)}, after("C", "L")), c.count(takes(0)), kahn.Durable(db))
		r.expect("A:ready B:waiting L:ready C:waiting", "suspended")
		if c.of("A") != 1 || c.of("B") != 0 || r.Duration > time.Minute {
			t.Errorf("A was called %d times, B %d times, the run took %v", c.of("A"), c.of("B"), r.Duration)
		}
	})

	inBubble(t, "the start of another attempt is not recorded", func(t *testing.T) {
		db := &brokenStore{Store: new(store.Memory), start: func(s store.Attempt) error {
			if s.Attempt == 2 {
				return errDisk
			}
			return nil
		}}
		var c calls
		g := graph(kahn.Node{ID: "A", Retry: kahn.RetryStandard()}, kahn.Node{ID: "L", Do: takes(time.Hour)}, after("C", "L"))
		r := try(t, g, c.count(script(errStep, nil)), kahn.Durable(db))
		r.expect("A:retrying L:ready C:waiting", "suspended")
		if c.of("A") != 1 || r.node("A").Attempts != 1 || r.Duration > time.Minute {
			t.Errorf("A was called %d times, the run took %v", c.of("A"), r.Duration)
		}
	})

	for _, failures := range []int{1, 2, 7} {
		for _, lost := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("every write fails %d times, acknowledgements lost: %v", failures, lost), func(t *testing.T) {
				tries := map[string]int{}
				inner := new(store.Memory)
				fail := func(key string, write func()) error {
					if tries[key]++; tries[key] <= failures && key != "commit1" { // commit1 is not repeated
						if lost {
							write()
						}
						return errDisk
					}
					return nil
				}
				var lease store.Lease
				db := &leaseSpy{&brokenStore{Store: inner}, &lease}
				db.brokenStore.commit = func(c store.Commit) error {
					return fail(fmt.Sprint("commit", c.Sequence), func() { _, _ = inner.Commit(t.Context(), lease, c) })
				}
				var c calls
				r := try(t, graph(after("A"), after("B", "A"), after("C", "A"), after("D", "B", "C")), c.count(takes(0)), kahn.Durable(db))
				r.expect("A:ok B:ok C:ok D:ok", "completed")
				for _, id := range []string{"A", "B", "C", "D"} {
					if c.of(id) != 1 {
						t.Errorf("%s was called %d times", id, c.of(id))
					}
				}
			})
		}
	}

	inBubble(t, "a gate is suspended in the store and answered from there", func(t *testing.T) {
		db := new(store.Memory)
		g := graph(after("A"), gate("G", "A"), after("B", "G"))
		var c calls
		r := pause(t, g, c.count(takes(0)), kahn.Durable(db), kahn.RunID("one"))
		r.expect("A:ok G:suspended B:waiting", "suspended")
		stored, err := db.Load(t.Context(), "one")
		if err != nil || stored.Status != kahn.RunSuspended {
			t.Fatalf("%+v, %v", stored, err)
		}
		r = try2(t, g, c.count(takes(0)), kahn.Durable(db), kahn.RunID("one"), kahn.EarlySignals(map[string]any{"G": "yes"}))
		r.expect("A:ok G:ok B:ok", "completed")
		if c.of("A") != 1 || c.of("B") != 1 || r.node("A").Output != "A" {
			t.Errorf("calls %v", c.n)
		}
	})

	inBubble(t, "two processes: the second waits for the lease, the first is fenced", func(t *testing.T) {
		db := new(store.Memory)
		stuck := &brokenStore{Store: &deafStore{db}}
		g := graph(kahn.Node{ID: "A", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.Attempt() == 1 {
				return takes(time.Hour)(ctx, s)
			}
			return "second", nil
		}}, after("B", "A"))
		run, err := kahn.Start(t.Context(), g, takes(0), kahn.Durable(stuck), kahn.RunID("one"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := kahn.Execute(t.Context(), g, neverStep(t), kahn.Durable(db), kahn.RunID("one")); !errors.Is(err, kahn.ErrLeased) {
			t.Error(err)
		}
		time.Sleep(31 * time.Second) // the lease expires, since its renewals are lost
		r := try2(t, g, takes(0), kahn.Durable(db), kahn.RunID("one"))
		r.expect("A:ok B:ok", "completed")
		res, err := run.Wait()
		if res.Status != kahn.RunSuspended || !res.Left || !errors.Is(err, kahn.ErrStore) {
			t.Errorf("the first process: %v, %v", res.Status, err)
		}
	})

	inBubble(t, "a store that panics or exits", func(t *testing.T) {
		for name, f := range map[string]func(store.Commit) error{
			"panics": func(c store.Commit) error {
				if c.Sequence > 1 {
					panic("store")
				}
				return nil
			},
			"goexit": func(c store.Commit) error {
				if c.Sequence > 1 {
					(&testing.T{}).FailNow()
				}
				return nil
			},
		} {
			r := try(t, graph(after("A"), after("B", "A")), takes(0), kahn.Durable(&brokenStore{Store: new(store.Memory), commit: f}))
			if r.Status != kahn.RunSuspended || !r.Left || r.Cause.Kind != kahn.CauseStoreError {
				t.Errorf("%s: %v, %v", name, r.Status, r.err)
			}
		}
	})
}

// leaseSpy is a store that records the lease that a run acquires.
type leaseSpy struct {
	*brokenStore
	lease *store.Lease
}

func (s *leaseSpy) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (store.Lease, *store.Run, error) {
	l, r, err := s.brokenStore.Acquire(ctx, run, owner, ttl)
	*s.lease = l
	return l, r, err
}

// deafStore is a store that fails to renew leases.
type deafStore struct{ store.Store }

func (deafStore) Renew(context.Context, store.Lease, time.Duration) error { return errDisk }

// TestLeaseOptions lists what the lease options pass to the store, and the values that they refuse.
func TestLeaseOptions(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		var owners []string
		var times []time.Duration
		store := &acquisitions{Store: new(store.Memory), seen: func(owner string, ttl time.Duration) {
			owners, times = append(owners, owner), append(times, ttl)
		}}
		g := graph(after("A"))
		for i, opts := range [][]kahn.Option{nil, nil, {kahn.Lease("us", 0), kahn.Lease("", time.Minute), kahn.Lease("", 0)}} {
			try(t, g, takes(0), append(opts, kahn.Durable(store), kahn.RunID(fmt.Sprint(i)))...).expect("A:ok", "completed")
		}
		if owners[0] == owners[1] || owners[0] == "" || owners[2] != "us" || !slices.Equal(times, []time.Duration{30 * time.Second, 30 * time.Second, time.Minute}) {
			t.Errorf("%q for %v", owners, times)
		}
		host, pid, _ := strings.Cut(owners[0], "/")
		if name, err := os.Hostname(); err == nil && host != name || !strings.HasPrefix(pid, fmt.Sprint(os.Getpid(), "/")) {
			t.Errorf("%q names neither host nor process", owners[0])
		}
		for _, d := range []time.Duration{-1, 30} { // the second one lacks its unit
			if _, err := kahn.Execute(t.Context(), g, takes(0), kahn.Lease("us", d)); !errors.Is(err, kahn.ErrBadOption) {
				t.Error(err)
			}
		}
	})

	inBubble(t, "a host finds its own leases again", func(t *testing.T) {
		store := new(store.Memory)
		g := graph(after("A"))
		if _, _, err := store.Acquire(t.Context(), "r", "us", time.Hour); err != nil { // the process then died
			t.Fatal(err)
		}
		if _, err := kahn.Execute(t.Context(), g, takes(0), kahn.Durable(store), kahn.RunID("r"), kahn.Lease("them", 0)); !errors.Is(err, kahn.ErrLeased) {
			t.Error(err)
		}
		try(t, g, takes(0), kahn.Durable(store), kahn.RunID("r"), kahn.Lease("us", 0)).expect("A:ok", "completed")
	})
}

// acquisitions is a store that reports calls of Acquire to seen.
type acquisitions struct {
	store.Store
	seen func(owner string, ttl time.Duration)
}

func (a *acquisitions) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (store.Lease, *store.Run, error) {
	a.seen(owner, ttl)
	return a.Store.Acquire(ctx, run, owner, ttl)
}

// pickyStore is a store that refuses values with a certain word.
type pickyStore struct{ store.Memory }

func (*pickyStore) CheckValue(value json.RawMessage) error {
	switch {
	case strings.Contains(string(value), "huge"):
		return fmt.Errorf("%w: %d bytes are too many", kahn.ErrRejected, len(value))
	case strings.Contains(string(value), "panic"):
		panic("picky")
	case strings.Contains(string(value), "timeout"):
		return context.DeadlineExceeded
	}
	return nil
}

// TestRejectedValues: if the store refuses a value, only the node of this value fails, wherever the value comes from.
func TestRejectedValues(t *testing.T) {
	says := func(v any) kahn.StepFunc { return func(context.Context, *kahn.Step) (any, error) { return v, nil } }
	suspends := func(info, state any) kahn.StepFunc {
		return func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("", info, state) }
	}
	list := kahn.Map{Over: "items"}
	for name, n := range map[string]kahn.Node{
		"an output":               {Do: says("huge")},
		"the output of a retried": {Do: says("huge"), Retry: kahn.RetryStandard()},
		"the output of a test":    {Test: func(kahn.View) (any, error) { return "huge", nil }},
		"the state of a wait":     {Do: suspends(nil, "huge")},
		"the info of a wait":      {Do: suspends("huge", nil)},
		"the list of a map":       {Map: &list, Params: map[string]any{"items": []string{"huge"}}},
		"the state of a graph": {Do: func(context.Context, *kahn.Step) (any, error) {
			return nil, kahn.Expand(graph(after("x")), nil, "huge")
		}},
	} {
		inBubble(t, name, func(t *testing.T) {
			n.ID = "A"
			g := graph(n, after("B"), kahn.Node{ID: "H", In: []kahn.Edge{{From: "A", On: kahn.OnFailure}}})
			store := new(pickyStore)
			r := try(t, g, takes(0), kahn.Durable(store), kahn.RunID("r"))
			r.expect("A:F B:ok H:ok", "completed+d")
			r.cause("A", kahn.CauseStoreRejected)
			if err := r.node("A").Err; !errors.Is(err, kahn.ErrRejected) || r.node("A").Attempts > 1 {
				t.Errorf("%v after %d attempts", err, r.node("A").Attempts)
			}
			if stored, err := store.Load(t.Context(), "r"); err != nil || stored.Status != kahn.RunCompleted || !stored.Nodes["A"].Terminal {
				t.Errorf("%+v, %v", stored, err)
			}
		})
	}

	for _, value := range []string{"panic", "timeout"} {
		inBubble(t, "a check without an answer: "+value, func(t *testing.T) {
			store := new(pickyStore)
			try(t, graph(kahn.Node{ID: "A", Do: says(value)}), takes(0), kahn.Durable(store), kahn.RunID("r")).expect("A:ok", "completed")
			stored, err := store.Load(t.Context(), "r")
			if err != nil || string(stored.Nodes["A"].Value) != fmt.Sprintf("%q", value) {
				t.Errorf("%+v, %v", stored, err)
			}
		})
	}

	inBubble(t, "a signal", func(t *testing.T) {
		run, err := kahn.Start(t.Context(), graph(gate("G")), takes(0), kahn.Durable(new(pickyStore)))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := run.Signal(context.Background(), "G", "huge"); !errors.Is(err, kahn.ErrRejected) {
			t.Error(err)
		}
		if err := run.Signal(context.Background(), "G", "small"); err != nil {
			t.Error(err)
		}
		if res, err := run.Wait(); err != nil || res.Status != kahn.RunCompleted {
			t.Errorf("%v, %v", res.Status, err)
		}
	})
}
