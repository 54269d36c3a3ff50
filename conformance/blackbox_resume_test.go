package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// inside expects the statuses of the named nodes, at any depth.
func (r trial) inside(want string) {
	r.t.Helper()
	if err := kahntest.CompareStatuses(r.Result, want+" ..."); err != nil {
		r.t.Errorf("%v\n%s", err, eventText(r.events))
	}
}

// waits expects the paths of the waiting nodes in the Result and in its Snapshot.
func (r trial) waits(want ...string) {
	r.t.Helper()
	if got := waitIDs(r.Waiting); !slices.Equal(got, want) || !slices.Equal(r.Snapshot().Waiting(), want) {
		r.t.Errorf("waits for %v, the snapshot for %v, expected %v", got, r.Snapshot().Waiting(), want)
	}
}

// keys records the idempotency keys of each path.
type keys struct {
	mu sync.Mutex
	by map[string][]string
}

func (k *keys) record(step kahn.StepFunc) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		k.mu.Lock()
		if k.by == nil {
			k.by = map[string][]string{}
		}
		k.by[s.Path()] = append(k.by[s.Path()], s.IdempotencyKey())
		k.mu.Unlock()
		return step(ctx, s)
	}
}

// check expects that each path always had the same key, and that different paths had different keys.
func (k *keys) check(t *testing.T) {
	t.Helper()
	owner := map[string]string{}
	for path, all := range k.by {
		for _, key := range all {
			if key != all[0] {
				t.Errorf("%s had the keys %v", path, all)
			}
		}
		if other, ok := owner[all[0]]; ok {
			t.Errorf("%s and %s have the same key", path, other)
		}
		owner[all[0]] = path
	}
}

// matryoshka returns a map in a loop in a sub-graph. In each of two iterations the items of the map wait for a signal. tests counts the calls of
// the loop's test.
func matryoshka(tests *int) *kahn.Graph {
	item := graph(after("x"), gate("g", "x"), after("y", "g"))
	m := mapped("M", numbers(3), kahn.Map{})
	m.Sub = item
	l := kahn.Node{ID: "L", After: []string{"a"}, Sub: graph(m, after("z", "M")), Loop: &kahn.Loop{MaxIterations: 5, While: func(v kahn.View) (bool, error) {
		*tests++
		return v.Iteration() < 2, nil
	}}}
	return graph(subgraph("S", graph(after("a"), l, after("w", "L"))), after("A", "S"))
}

// TestBlackBoxResume combines waits, leaving and all kinds of composites.
func TestBlackBoxResume(t *testing.T) {
	paths3 := func(format string) (list []string) {
		for i := range 3 {
			list = append(list, fmt.Sprintf(format, i))
		}
		return list
	}
	for name, opts := range map[string][]kahn.Option{"eager": nil, "limit 1": {kahn.Limit(1)}, "waves": {kahn.Waves, kahn.SuspendDrain}} {
		inBubble(t, "a map in a loop in a sub-graph, answered piece by piece, "+name, func(t *testing.T) {
			tests := 0
			g := matryoshka(&tests)
			var c paths
			var k keys
			step := k.record(c.count(func(ctx context.Context, s *kahn.Step) (any, error) {
				if v, ok := s.Upstream("g"); ok {
					return v, nil
				}
				return takes(10*ms)(ctx, s)
			}))
			r := pause(t, g, step, opts...)
			r.waits(paths3("S/L#1/M[%d]/g")...)
			r = r.resume(g, step, map[string]any{"S/L#1/M[1]/g": "b"}, opts...)
			r.expect("S:suspended A:waiting", "suspended")
			r.waits("S/L#1/M[0]/g", "S/L#1/M[2]/g")
			if c.n["S/L#1/M[1]/y"] != 1 || tests != 0 {
				t.Errorf("calls %v, %d tests", c.n, tests)
			}
			r = r.resume(g, step, map[string]any{"S/L#1/M[0]/g": "a", "S/L#1/M[2]/g": "c"}, opts...)
			r.waits(paths3("S/L#2/M[%d]/g")...)
			if tests != 1 {
				t.Errorf("%d tests", tests)
			}
			r = r.resume(g, step, map[string]any{"S/L#2/M[2]/g": "f", "S/L#2/M[0]/g": "d"}, opts...)
			r.waits("S/L#2/M[1]/g")
			r = r.resume(g, step, map[string]any{"S/L#2/M[1]/g": "e"}, opts...)
			r.expect("S:ok A:ok", "completed")
			if tests != 2 {
				t.Errorf("%d tests", tests)
			}
			want := []string{"S/a", "S/w", "A", "S/L#1/z", "S/L#2/z"}
			for _, f := range []string{"S/L#1/M[%d]/x", "S/L#1/M[%d]/y", "S/L#2/M[%d]/x", "S/L#2/M[%d]/y"} {
				want = append(want, paths3(f)...)
			}
			c.once(t, want...)
			k.check(t)
			for _, n := range []string{"S", "A"} {
				if r.node(n).Attempts != 1 {
					t.Errorf("%s was attempted %d times", n, r.node(n).Attempts)
				}
			}
			l, _ := r.node("S").Sub.Node("L")
			m, _ := l.Sub.Node("M")
			if got := fmt.Sprint(m.Output); got != "[d e f]" {
				t.Errorf("the map came to %s", got)
			}
		})
	}

	for name, opts := range map[string][]kahn.Option{
		"stop": {kahn.SuspendStop}, "stop, limit 1": {kahn.SuspendStop, kahn.Limit(1)}, "waves": {kahn.Waves}, "waves, limit 2": {kahn.Waves, kahn.Limit(2)},
	} {
		inBubble(t, "the same when nothing new is started while something waits, "+name, func(t *testing.T) {
			tests := 0
			g := matryoshka(&tests)
			g.Add(after("P"), kahn.Node{ID: "Q", After: []string{"P"}}, kahn.Node{ID: "E", Kind: kahn.KindEnd})
			var c paths
			var k keys
			step := k.record(c.count(takes(10 * ms)))
			r := pause(t, g, step, opts...)
			lives := 1
			for ; r.Status == kahn.RunSuspended && lives < 20; lives++ { // one waiting node is answered before each life
				r = r.resume(g, step, map[string]any{r.Waiting[len(r.Waiting)-1].Node: lives}, opts...)
			}
			r.expect("S:ok A:ok P:ok Q:ok E:ok", "completed")
			if len(c.n) != 20 || tests != 2 || lives != 7 {
				t.Errorf("%d paths, %d tests, %d lives", len(c.n), tests, lives)
			}
			for path, n := range c.n {
				if n != 1 {
					t.Errorf("%s was called %d times", path, n)
				}
			}
			k.check(t)
		})
	}

	inBubble(t, "deadlines of gates in items go on while the run is left", func(t *testing.T) {
		item := graph(after("x"), kahn.Node{ID: "g", Kind: kahn.KindGate, After: []string{"x"}, Gate: &kahn.Gate{Timeout: time.Hour}}, after("y", "g"))
		m := mapped("M", numbers(3), kahn.Map{ToleratedCount: 2})
		m.Sub = item
		g := graph(subgraph("S", graph(m)), after("A", "S"))
		step := takes(10 * time.Minute) // the nodes x of the items run one after the other, so the deadlines are 70, 80 and 90 minutes after the start
		r := pause(t, g, step, kahn.Limit(1))
		r.waits(paths3("S/M[%d]/g")...)
		begin := r.Start
		for i, w := range r.Waiting {
			if want := time.Duration(70+10*i) * time.Minute; w.Deadline.Sub(begin) != want {
				t.Errorf("the deadline of %s is after %v, expected %v", w.Node, w.Deadline.Sub(begin), want)
			}
		}
		snapshot := reload(t, r.Snapshot())
		time.Sleep(time.Until(begin.Add(75 * time.Minute)))
		rec := newRecorder()
		run, err := kahn.Start(t.Context(), g, step, kahn.Limit(1), kahn.Resume(snapshot), kahn.OnEvent(rec.add))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if w := run.Waiting(); len(w) != 2 || w[0].Node != "S/M[1]/g" || w[0].Deadline.Sub(begin) != 80*time.Minute {
			t.Errorf("waiting %+v", w)
		}
		time.Sleep(time.Minute)
		if err := run.Signal(context.Background(), "S/M[1]/g", "yes"); err != nil {
			t.Error(err)
		}
		res, err := run.Wait()
		r = trial{res, t, err, append(r.events, rec.all()...)}
		checkEvents(t, g, res, r.events)
		r.expect("S:ok A:ok", "completed+d")
		r.inside("S/M[0]:F S/M[0]/g:F S/M[0]/y:X S/M[1]:ok S/M[1]/y:ok S/M[2]:F S/M[2]/g:F")
		if end := r.find(event.NodeFailed, "S/M[2]/g"); len(end) != 1 || end[0].Time.Sub(begin) != 90*time.Minute || end[0].Payload.(event.NodeEnd).Cause != kahn.CauseGateTimeout {
			t.Errorf("%v", end)
		}
		if got := fmt.Sprint(r.node("S").Output); got != "[<nil> y <nil>]" {
			t.Errorf("%s", got)
		}
	})

	inBubble(t, "a second attempt of a composite waits anew for its own answer", func(t *testing.T) {
		var c paths
		var k keys
		failed := false
		step := k.record(c.count(func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "y" && !failed {
				failed = true
				return nil, errStep
			}
			v, _ := s.Upstream("g")
			return v, nil
		}))
		g := graph(kahn.Node{ID: "S", Retry: kahn.RetryStandard(), Sub: graph(after("x"), gate("g", "x"), after("y", "g"))}, after("A", "S"))
		r := pause(t, g, step)
		r = r.resume(g, step, map[string]any{"S/g": "first"})
		r.expect("S:suspended A:waiting", "suspended")
		r.waits("S/g")
		if n := r.node("S"); n.Attempts != 2 || !errors.Is(n.LastErr, errStep) {
			t.Errorf("%d attempts, %v", n.Attempts, n.LastErr)
		}
		r = r.resume(g, step, map[string]any{"S/g": "second"})
		r.expect("S:ok A:ok", "completed")
		if r.node("S").Output != "second" || c.n["S/x"] != 2 || c.n["S/y"] != 2 {
			t.Errorf("%v, calls %v", r.node("S").Output, c.n)
		}
		k.check(t)
		r.count(event.NodeRetried, "S", 1)
	})

	inBubble(t, "what an early join has seen is kept inside, also when more arrives before the resumption", func(t *testing.T) {
		var mu sync.Mutex
		saw := map[string]map[string]any{}
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() != "n" {
				d := map[string]time.Duration{"a": 10 * ms, "b": 50 * ms}[s.ID()]
				return takes(d)(ctx, s)
			}
			if _, ok := s.Resumed(); !ok {
				return nil, kahn.Suspend("", nil, s.UpstreamAll())
			}
			mu.Lock()
			defer mu.Unlock()
			saw[s.Path()] = s.UpstreamAll()
			return s.SavedState(), nil
		}
		any2 := func() *kahn.Graph {
			return graph(after("a"), after("b"), kahn.Node{ID: "n", After: []string{"a", "b"}, Join: kahn.AnySucceeded})
		}
		g := any2()
		g.Add(subgraph("S", any2()))
		r := pause(t, g, step)
		r.inside("b:ok S/b:ok n:suspended S/n:suspended")
		r = r.resume(g, step, map[string]any{"n": 1, "S/n": 1})
		r.inside("n:ok S:ok")
		for _, path := range []string{"n", "S/n"} {
			if got := fmt.Sprint(saw[path]); got != "map[a:a]" {
				t.Errorf("%s saw %s", path, got)
			}
		}
		if got := fmt.Sprint(r.node("S").Output); got != "map[a:a]" {
			t.Errorf("the saved state is %s", got)
		}
	})

	inBubble(t, "a composite that fails after the resumption is caught, tolerated, made up for", func(t *testing.T) {
		item := graph(gate("g"), after("y", "g"))
		m := func(id string) kahn.Node {
			n := mapped(id, numbers(2), kahn.Map{})
			n.Sub = item
			return n
		}
		tolerated, madeUp, caught, other := m("T"), m("F"), m("C"), m("O")
		tolerated.ContinueOnFail = true
		madeUp.Fallback = func(_ context.Context, err error) (any, error) {
			var failed *kahn.MapError
			if !errors.As(err, &failed) || failed.Failed != 1 {
				return nil, err
			}
			return failed.Results, nil
		}
		var seen error
		g := graph(tolerated, after("t", "T"), madeUp, after("f", "F"), caught, after("c", "C"),
			kahn.Node{ID: "h", In: []kahn.Edge{{From: "C", On: kahn.OnFailure, Causes: []kahn.CauseKind{kahn.CauseMapItems}, Param: "err"}}},
			other, kahn.Node{ID: "o", In: []kahn.Edge{{From: "O", On: kahn.OnFailure, Causes: []kahn.CauseKind{kahn.CauseSubrun}}}})
		step := func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "h" {
				seen, _ = kahn.Param[error](s, "err")
				return "h", nil
			}
			if s.ID() == "y" && s.Index() == 1 {
				return nil, errStep
			}
			return s.ID(), nil
		}
		r := pause(t, g, step)
		first := map[string]any{}
		second := map[string]any{}
		for _, id := range []string{"T", "F", "C", "O"} {
			first[id+"[1]/g"], second[id+"[0]/g"] = true, true
		}
		r = r.resume(g, step, first)
		r.inside("T:suspended T[1]:F F:suspended F[1]:F C:suspended O:suspended h:waiting")
		r = r.resume(g, step, second)
		r.expect("T:F t:ok F:ok f:ok C:F c:S/br h:ok O:F o:X", "failed")
		if got := fmt.Sprint(r.node("F").Output); got != "[y <nil>]" || !r.node("F").Fallback {
			t.Errorf("the fallback made %s", got)
		}
		var own *kahn.NodeError
		if !errors.As(seen, &own) || own.Node != "C" || own.Kind != kahn.CauseMapItems {
			t.Errorf("h saw %v", seen)
		}
		r.cause("O", kahn.CauseMapItems)
		r.cause("T", kahn.CauseMapItems)
		if got := r.node("o").Cause.Origins; !slices.Equal(got, []string{"O"}) {
			t.Errorf("origins %v", got)
		}
	})

	inBubble(t, "a map that failed begins anew, waits, and goes on", func(t *testing.T) {
		m := mapped("M", numbers(4), kahn.Map{ToleratedCount: 1})
		m.Sub = graph(after("x"), kahn.Node{ID: "e", Kind: kahn.KindEnd})
		g := graph(after("B"), m, after("A", "M"), kahn.Node{ID: "E", Kind: kahn.KindEnd})
		var c paths
		var k keys
		r := try(t, g, k.record(c.count(breaks("M[1]/x", "M[3]/x"))))
		r.expect("B:ok M:F A:X E:ok", "failed")
		c.n = nil
		rec := newRecorder()
		res, err := kahn.Execute(t.Context(), g, k.record(c.count(func(ctx context.Context, s *kahn.Step) (any, error) {
			if _, ok := s.Resumed(); !ok && s.Path() == "M[2]/x" {
				return nil, kahn.Suspend("two", nil, nil)
			}
			return breaks("M[1]/x")(ctx, s)
		})), kahn.OnEvent(rec.add), kahn.Redrive(reload(t, r.Snapshot()), []string{"M"}), kahn.Anew)
		if err != nil {
			t.Fatal(err)
		}
		r = trial{res, t, err, append(r.events, rec.all()...)}
		checkEvents(t, g, res, r.events)
		r.expect("B:ok M:suspended A:waiting E:waiting", "suspended")
		if c.n["B"] != 0 || c.n["M[0]/x"] != 1 || c.n["E"] != 0 || c.n["M[1]/e"] != 1 || c.n["M[2]/e"] != 0 {
			t.Errorf("calls %v", c.n)
		}
		if s := r.Snapshot(); s.Epoch() != 2 {
			t.Errorf("epoch %d", s.Epoch())
		}
		c.n = nil
		r = r.resume(g, k.record(c.count(breaks())), map[string]any{"two": 1})
		r.expect("B:ok M:ok A:ok E:ok", "completed+d")
		c.once(t, "M[2]/x", "M[2]/e", "A", "E")
		if got := r.items("M"); got != "ok F ok ok" {
			t.Errorf("items %s", got)
		}
		for _, path := range []string{"M", "A", "E"} {
			r.count(event.NodeInvalidated, path, 1)
		}
		r.count(event.NodeInvalidated, "B", 0)
		for _, e := range r.find(event.NodeCompleted, "A") {
			if e.Epoch != 2 || e.Attempt != 1 {
				t.Errorf("%v of epoch %d, attempt %d", e, e.Epoch, e.Attempt)
			}
		}
		k.check(t)
	})

	inBubble(t, "what has ended, or waits, is the same in the snapshots of all later lives", func(t *testing.T) {
		composites := func() []kahn.Node {
			m := mapped("M", numbers(3), kahn.Map{ToleratedCount: 1})
			m.Sub = graph(after("x"), after("y", "x"))
			waits := mapped("N", numbers(3), kahn.Map{})
			waits.Sub = graph(after("x"), gate("g", "x"))
			tolerated := mapped("P", numbers(2), kahn.Map{})
			tolerated.ContinueOnFail = true
			rescue := func(context.Context, error) (any, error) { return "rescued", nil }
			caught := graph(after("x"), kahn.Node{ID: "h", In: []kahn.Edge{{From: "x", On: kahn.OnFailure}}})
			return []kahn.Node{m, waits, mapped("O", []int{}, kahn.Map{}), tolerated,
				{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 3, While: whileLess(3), Collect: true}},
				{ID: "K", Sub: graph(after("x"), gate("g", "x")), Loop: &kahn.Loop{MaxIterations: 3, While: whileLess(3), Collect: true}},
				{ID: "F", Sub: graph(after("x")), Fallback: rescue}, subgraph("D", caught)}
		}
		g := graph(composites()...)
		g.Add(subgraph("X", graph(composites()...)), gate("G", "M"), kahn.Node{ID: "E", Kind: kahn.KindEnd})
		step := breaks("M[1]/x", "P[0]", "F/x", "D/x", "X/M[1]/x", "X/P[0]", "X/F/x", "X/D/x")
		r := pause(t, g, step)
		r.waits("N[0]/g", "N[1]/g", "N[2]/g", "K#1/g", "X/N[0]/g", "X/N[1]/g", "X/N[2]/g", "X/K#1/g", "G")
		// These fields differ: the position of the log, and the times at which the run continued or a snapshot was taken.
		passing := regexp.MustCompile(`(?m)^\s*"(taken|last_event|latest|first|ended)": .*$`)
		before := ""
		for life := range 4 {
			data, err := json.MarshalIndent(r.Snapshot(), "", " ")
			if err != nil {
				t.Fatal(err)
			}
			text := passing.ReplaceAllString(string(data), "")
			if life > 0 && text != before {
				t.Fatalf("before life %d\n%s\nafter it\n%s", life, before, text)
			}
			before = text
			sub, _ := r.node("X").Sub.Node("M")
			if sub.Sub.Len() != 3 || sub.Sub.Duration != 20*ms {
				t.Errorf("X/M is over %d items, and took %v", sub.Sub.Len(), sub.Sub.Duration)
			}
			time.Sleep(time.Hour)
			r = r.resume(g, neverStep(t), nil)
		}
	})

	for name, x := range map[string]struct {
		stop   func(*kahn.Run)
		inner  string
		outer  string
		status kahn.RunStatus
		last   event.Type
	}{
		"cancel":      {func(r *kahn.Run) { r.Cancel() }, "C", "S:C A:C", kahn.RunCancelled, event.RunCancelled},
		"abort":       {func(r *kahn.Run) { r.AbortAll(errHost) }, "X", "S:X A:X", kahn.RunFailed, event.RunFailed},
		"run timeout": {func(*kahn.Run) {}, "X", "S:X A:X", kahn.RunFailed, event.RunTimedOut},
	} {
		inBubble(t, "what waits inside is stopped after the resumption, and cleaned up: "+name, func(t *testing.T) {
			item := graph(after("x"), gate("g", "x"), after("y", "g"), kahn.Node{ID: "c", Cleanup: true, After: []string{"y"}}, kahn.Node{ID: "e", Kind: kahn.KindEnd})
			m := mapped("M", numbers(2), kahn.Map{ToleratedPercent: 100})
			m.Sub = item
			g := graph(subgraph("S", graph(m, kahn.Node{ID: "c", Cleanup: true, After: []string{"M"}})), after("A", "S"))
			r := pause(t, g, takes(10*ms))
			var c paths
			rec := newRecorder()
			run, err := kahn.Start(t.Context(), g, c.count(func(ctx context.Context, s *kahn.Step) (any, error) {
				time.Sleep(time.Second)
				return s.ID(), ctx.Err()
			}), kahn.Resume(reload(t, r.Snapshot())), kahn.EarlySignals(map[string]any{}), kahn.Timeout(time.Minute), kahn.OnEvent(rec.add))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Second)
			x.stop(run)
			res, err := run.Wait()
			r = trial{res, t, err, append(r.events, rec.all()...)}
			checkEvents(t, g, res, r.events)
			r.expect(x.outer, x.status.String())
			i := x.inner
			r.inside(fmt.Sprintf("S/M:%[1]s S/M[0]:%[1]s S/M[1]/x:ok S/M[1]/g:%[1]s S/M[1]/y:%[1]s S/M[1]/c:ok S/M[1]/e:ok S/c:ok", i))
			c.once(t, "S/M[0]/c", "S/M[0]/e", "S/M[1]/c", "S/M[1]/e", "S/c")
			if r.last() != x.last {
				t.Errorf("the last event is %s", r.last())
			}
			r.order("node.completed S/M[1]/c", "node.completed S/M[1]/e", "node.completed S/c")
		})
	}
}

// TestBlackBoxLives combines nesting with snapshots and stores.
func TestBlackBoxLives(t *testing.T) {
	inBubble(t, "a runner is shut down with composites that wait, run and are pending; the next one goes on from the store", func(t *testing.T) {
		store := new(store.Memory)
		waiting := graph(subgraph("S", graph(after("x"), gate("g", "x"), after("y", "g"))), after("A", "S"))
		m := mapped("M", numbers(4), kahn.Map{Limit: 2})
		m.Sub = graph(after("x"), after("y", "x"))
		working := graph(m, after("A", "M"))
		rn := &kahn.Runner{MaxRuns: 1, Options: []kahn.Option{kahn.Durable(store)}}
		graphs := map[string]*kahn.Graph{"waiting": waiting, "working": working, "pending": working}
		counted := map[string]*paths{"waiting": {}, "working": {}, "pending": {}}
		for _, id := range []string{"waiting", "working", "pending"} {
			if _, err := rn.Start(t.Context(), graphs[id], counted[id].count(takes(time.Second)), kahn.RunID(id)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(4500 * ms) // the last nodes y of the run "working" are running
		for id, want := range map[string]kahn.RunStatus{"waiting": kahn.RunSuspended, "working": kahn.RunRunning, "pending": kahn.RunPending} {
			if run, ok := rn.Run(id); !ok || run.Status() != want {
				t.Errorf("%s is %v", id, run.Status())
			}
		}
		if err := rn.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		for id := range graphs {
			run, _ := rn.Run(id)
			if res, err := run.Wait(); err != nil || res.Status != kahn.RunSuspended {
				t.Errorf("%s: %v, %v", id, res.Status, err)
			}
		}
		if n := counted["pending"].n; len(n) != 0 {
			t.Errorf("the pending run has called %v", n)
		}
		next := &kahn.Runner{Options: []kahn.Option{kahn.Durable(store)}}
		for id, want := range map[string]string{"waiting": "S:ok A:ok", "working": "M:ok A:ok", "pending": "M:ok A:ok"} {
			opts := []kahn.Option{kahn.RunID(id)}
			if id == "waiting" {
				opts = append(opts, kahn.EarlySignals(map[string]any{"S/g": "yes"}))
			}
			res, err := next.Execute(t.Context(), graphs[id], counted[id].count(takes(time.Second)), opts...)
			if res == nil {
				t.Fatal(err)
			}
			trial{res, t, err, nil}.expect(want, "completed")
		}
		counted["waiting"].once(t, "S/x", "S/y", "A")
		for _, id := range []string{"working", "pending"} {
			counted[id].once(t, "M[0]/x", "M[0]/y", "M[1]/x", "M[1]/y", "M[2]/x", "M[2]/y", "M[3]/x", "M[3]/y", "A")
		}
	})

	inBubble(t, "an answer for an iteration that has not begun is refused or kept, and never lost", func(t *testing.T) {
		sub := graph(after("x"), gate("g", "x"), after("y", "g"))
		g := graph(kahn.Node{ID: "L", Sub: sub, Loop: &kahn.Loop{MaxIterations: 2, While: whileLess(2)}})
		run, err := kahn.Start(t.Context(), g, takes(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * ms)
		if err := run.Signal(context.Background(), "L#1/g", "early"); err != nil {
			t.Errorf("a gate of an iteration that has begun: %v", err)
		}
		ahead := run.Signal(context.Background(), "L#2/g", "ahead")
		time.Sleep(time.Minute)
		switch waiting := waitIDs(run.Waiting()); {
		case errors.Is(ahead, kahn.ErrUnknownGate) && slices.Equal(waiting, []string{"L#2/g"}):
			if err := run.Signal(context.Background(), "L#2/g", "now"); err != nil {
				t.Error(err)
			}
		case ahead != nil || len(waiting) > 0:
			t.Errorf("%v, and waits for %v", ahead, waiting)
		}
		if err := run.Signal(context.Background(), "L#1/g", "again"); err == nil {
			t.Error("an iteration that is over takes an answer")
		}
		res, err := run.Wait()
		trial{res, t, err, nil}.expect("L:ok", "completed")
	})

	inBubble(t, "one snapshot that is resumed three times at once under one key goes on once", func(t *testing.T) {
		store := new(kahn.IdempotencyStore)
		var c paths
		g := graph(subgraph("S", graph(after("x"), gate("g", "x"), after("y", "g"))))
		step := c.count(takes(time.Second))
		key, err := kahn.IdempotencyKey("w", map[string]any{"n": 1})
		if err != nil {
			t.Fatal(err)
		}
		res, err := kahn.Execute(t.Context(), g, step, kahn.Idempotent(store, key))
		if err != nil || res.Status != kahn.RunSuspended {
			t.Fatal(res.Status, err)
		}
		id, snapshot := res.ID(), reload(t, res.Snapshot())
		results := make(chan *kahn.Result, 3)
		for range 3 {
			go func() {
				res, _ := kahn.Execute(t.Context(), g, step, kahn.Idempotent(store, key), kahn.Resume(snapshot), kahn.EarlySignals(map[string]any{"S/g": "yes"}))
				results <- res
			}()
		}
		for range 3 {
			if res := <-results; res == nil || res.Status != kahn.RunCompleted || res.ID() != id || res.Output() != "y" {
				t.Errorf("%+v", res)
			}
		}
		c.once(t, "S/x", "S/y")
	})

	for _, lost := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("a store that fails at every third write, acknowledgements lost: %v", lost), func(t *testing.T) {
			var mu sync.Mutex
			writes := 0
			store := storetest.WithFaults(new(store.Memory), func(method string) storetest.Fault {
				if method != "Commit" {
					return storetest.Fault{}
				}
				mu.Lock()
				defer mu.Unlock()
				writes++
				bad := writes%3 == 0 // the first write of a life never fails, since the run would then be left at once
				return storetest.Fault{Latency: ms, Before: bad && !lost, After: bad && lost}
			})
			tests := 0
			g := matryoshka(&tests)
			var c paths
			var k keys
			step := k.record(c.count(takes(10 * ms)))
			var events []kahn.Event
			var r trial
			durable := []kahn.Option{kahn.Durable(store), kahn.RunID("r")}
			for life := range 5 {
				signals := map[string]any{}
				if life > 0 {
					for i, w := range r.Waiting {
						if i != 1 || len(r.Waiting) < 3 { // while three nodes wait, the second gets no answer
							signals[w.Node] = "yes"
						}
					}
				}
				rec := newRecorder()
				writes = 0
				res, err := kahn.Execute(t.Context(), g, step, append(slices.Clone(durable), kahn.EarlySignals(signals), kahn.OnEvent(rec.add))...)
				if res == nil {
					t.Fatal(err)
				}
				events = append(events, rec.all()...)
				r = trial{res, t, err, events}
				checkEvents(t, g, res, events)
			}
			r.expect("S:ok A:ok", "completed")
			if len(c.n) != 17 || tests != 2 {
				t.Errorf("%d paths, %d tests", len(c.n), tests)
			}
			for path, n := range c.n {
				if n != 1 {
					t.Errorf("%s was called %d times", path, n)
				}
			}
			k.check(t)
		})
	}

	inBubble(t, "a store that fails for good inside of a composite that is caught ends the run all the same", func(t *testing.T) {
		// The failure of the store does not count as a failure of the composite: no node may handle it, and no cleanup node may start.
		broken := false
		store := storetest.WithFaults(new(store.Memory), func(method string) storetest.Fault {
			return storetest.Fault{Before: broken && method == "Commit"}
		})
		var c paths
		step := c.count(func(_ context.Context, s *kahn.Step) (any, error) {
			broken = s.Path() == "S/T/x"
			return s.ID(), nil
		})
		inner := graph(after("x"), after("y", "x"), kahn.Node{ID: "c", Cleanup: true, After: []string{"y"}}, kahn.Node{ID: "e", Kind: kahn.KindEnd})
		s := subgraph("S", graph(kahn.Node{ID: "T", Sub: inner, Retry: kahn.RetryStandard(), ContinueOnFail: true}))
		s.Fallback = func(context.Context, error) (any, error) { return "made up", nil }
		g := graph(s, kahn.Node{ID: "H", In: []kahn.Edge{{From: "S", On: kahn.OnFailure}}}, kahn.Node{ID: "E", Kind: kahn.KindEnd})
		r := try(t, g, step, kahn.Durable(store), kahn.RunID("r"))
		if r.Status != kahn.RunSuspended || !r.Left || r.Cause.Kind != kahn.CauseStoreError || !errors.Is(r.err, kahn.ErrStore) {
			t.Errorf("%v, %v, %v", r.Status, r.Cause, r.err)
		}
		c.once(t, "S/T/x")
		broken = false
		c.n = nil
		time.Sleep(time.Hour) // the lease is not released while the store is down
		res, err := kahn.Execute(t.Context(), g, c.count(takes(0)), kahn.Durable(store), kahn.RunID("r"))
		if res == nil {
			t.Fatal(err)
		}
		trial{res, t, err, nil}.expect("S:ok H:S/br E:ok", "completed")
		c.once(t, "S/T/x", "S/T/y", "S/T/c", "S/T/e", "E")
	})

	inBubble(t, "a run that a trigger fired, with its closure, waits inside, goes on and is redriven", func(t *testing.T) {
		m := mapped("M", nil, kahn.Map{})
		m.Params = nil
		m.In = []kahn.Edge{{From: "T1", Param: "items"}, {From: "R"}}
		m.Sub = graph(after("x"), gate("g", "x"), after("y", "g"))
		g := graph(trigger("T1"), trigger("T2"), after("R"), after("Q", "R"), m, kahn.Node{ID: "J", After: []string{"M", "T2"}}, after("K", "T2"), kahn.Node{ID: "E", Kind: kahn.KindEnd})
		var c paths
		broken := true
		step := c.count(func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "J" && broken {
				return nil, errStep
			}
			return s.Path(), nil
		})
		r := pause(t, g, step, kahn.Fire("T1", []string{"p", "q"}), kahn.PruneClosure)
		r.waits("M[0]/g", "M[1]/g")
		r = r.resume(g, step, map[string]any{"M[1]/g": 1})
		r = r.resume(g, step, map[string]any{"M[0]/g": 1})
		r.expect("T1:ok R:ok M:ok J:F E:ok", "failed")
		pruned := []string{"T2", "Q", "K"}
		if !slices.Equal(r.Pruned, pruned) {
			t.Errorf("pruned %v", r.Pruned)
		}
		broken = false
		c.n = nil
		r = r.redrive(g, step)
		r.expect("T1:ok R:ok M:ok J:ok E:ok", "completed")
		c.once(t, "J", "E")
		r = r.redrive(g, step, "T1")
		r.expect("T1:ok R:ok M:suspended J:waiting E:idle", "suspended")
		r.waits("M[0]/g", "M[1]/g") // the payload of the first life is kept
		if !slices.Equal(r.Pruned, pruned) || r.node("T1").Attempts > 1 || c.n["R"] != 0 {
			t.Errorf("pruned %v, calls %v", r.Pruned, c.n)
		}
	})
}
