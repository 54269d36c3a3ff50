package kahn_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// census counts the steps that run at the same time, over several runs, and records their starts.
type census struct {
	mu      sync.Mutex
	begin   time.Time
	running map[string]int
	most    map[string]int
	starts  map[string][]time.Duration
	order   []string
}

func newCensus() *census {
	return &census{begin: time.Now(), running: map[string]int{}, most: map[string]int{}, starts: map[string][]time.Duration{}}
}

// step returns a step function that takes d. The census counts each call under the name "" and under the names that bounds returns.
func (x *census) step(run string, d time.Duration, bounds func(*kahn.Step) []string) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		names := []string{""}
		if bounds != nil {
			names = append(names, bounds(s)...)
		}
		x.mu.Lock()
		x.order = append(x.order, fmt.Sprintf("%s.%s@%v", run, s.Path(), time.Since(x.begin)))
		for _, name := range names {
			x.running[name]++
			x.most[name] = max(x.most[name], x.running[name])
			x.starts[name] = append(x.starts[name], time.Since(x.begin))
		}
		x.mu.Unlock()
		defer func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			for _, name := range names {
				x.running[name]--
			}
		}()
		return takes(d)(ctx, s)
	}
}

// idle expects that the runs of a Runner hold no shared slots.
func idle(t *testing.T, rn *kahn.Runner) {
	t.Helper()
	synctest.Wait()
	if used, claims, _ := rn.PoolUse(); used != 0 || claims != 0 {
		t.Errorf("%d slots in use and %d claims, with no run left", used, claims)
	}
}

func TestRunnerLimits(t *testing.T) {
	four := func() *kahn.Graph { return graph(after("A"), after("B"), after("C"), after("D")) }
	start := func(t *testing.T, rn *kahn.Runner, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) *kahn.Run {
		t.Helper()
		run, err := rn.Start(t.Context(), g, step, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	completed := func(t *testing.T, runs ...*kahn.Run) {
		t.Helper()
		for _, run := range runs {
			if res, err := run.Wait(); err != nil || res.Status != kahn.RunCompleted {
				t.Errorf("%v %v", res.Status, err)
			}
		}
	}
	inBubble(t, "the limit is that of all runs together, and they take turns", func(t *testing.T) {
		rn, x := &kahn.Runner{Limit: 1}, newCensus()
		a := start(t, rn, four(), x.step("a", time.Second, nil))
		synctest.Wait()
		b := start(t, rn, four(), x.step("b", time.Second, nil))
		completed(t, a, b)
		if got := strings.Join(x.order, " "); got != "a.A@0s a.B@1s b.A@2s a.C@3s b.B@4s a.D@5s b.C@6s b.D@7s" { // B of a has waited longer than A of b
			t.Error(got)
		}
		idle(t, rn)
	})
	inBubble(t, "a rate and a burst", func(t *testing.T) {
		rn, x := &kahn.Runner{Rate: kahn.Rate{Starts: 1, Per: time.Second, Burst: 2}}, newCensus()
		a := start(t, rn, four(), x.step("a", 0, nil))
		synctest.Wait()
		b := start(t, rn, four(), x.step("b", 0, nil))
		completed(t, a, b)
		slices.Sort(x.order[:2]) // The burst allows two steps at once; Go's scheduler decides which of the two starts first.
		if got := strings.Join(x.order, " "); got != "a.A@0s a.B@0s a.C@1s b.A@2s a.D@3s b.B@4s b.C@5s b.D@6s" {
			t.Error(got)
		}
		idle(t, rn)
	})
	inBubble(t, "keys, also inside of composites", func(t *testing.T) {
		rn, x := &kahn.Runner{KeyLimit: 1, KeyRate: kahn.Rate{Starts: 1, Per: 3 * time.Second, Burst: 9}}, newCensus()
		keyed := func(id string) kahn.Node { return kahn.Node{ID: id, Key: "k"} }
		bounds := func(s *kahn.Step) []string {
			if s.ID() == "free" {
				return nil
			}
			return []string{"k"}
		}
		inner := graph(kahn.Node{ID: "S", Sub: graph(keyed("x"), keyed("y"))}, keyed("A"), after("free"))
		runs := []*kahn.Run{start(t, rn, inner, x.step("a", time.Second, bounds)), start(t, rn, graph(keyed("A"), keyed("B")), x.step("b", time.Second, bounds))}
		completed(t, runs...)
		if x.most["k"] != 1 || len(x.starts["k"]) != 5 || time.Since(x.begin) != 5*time.Second {
			t.Errorf("at most %d at once, %d starts, %v", x.most["k"], len(x.starts["k"]), time.Since(x.begin))
		}
		idle(t, rn)
		if _, _, keys := rn.PoolUse(); keys != 1 {
			t.Errorf("%d keys, though its bucket is not full", keys)
		}
		time.Sleep(time.Minute)
		if _, _, keys := rn.PoolUse(); keys != 0 {
			t.Errorf("%d keys that nobody uses", keys)
		}
	})
	inBubble(t, "a run that ends while it waits leaves the queue", func(t *testing.T) {
		for name, end := range map[string]func(*kahn.Run){
			"cancel": func(r *kahn.Run) { r.Cancel() },
			"leave":  (*kahn.Run).Leave,
			"abort":  func(run *kahn.Run) { run.AbortAll(nil) },
			"node":   func(run *kahn.Run) { _ = run.CancelNode("A") },
		} {
			rn, x := &kahn.Runner{Limit: 1}, newCensus()
			a := start(t, rn, graph(after("A"), after("B", "A")), x.step("a", time.Second, nil))
			synctest.Wait()
			b := start(t, rn, graph(after("A")), x.step("b", time.Second, nil))
			c := start(t, rn, graph(after("A")), x.step("c", time.Second, nil))
			synctest.Wait()
			end(b)
			if _, err := b.Wait(); time.Since(x.begin) != 0 {
				t.Errorf("%s: b ended after %v: %v", name, time.Since(x.begin), err)
			}
			completed(t, a, c)
			if got := strings.Join(x.order, " "); got != "a.A@0s c.A@1s a.B@2s" {
				t.Errorf("%s: %s", name, got)
			}
			idle(t, rn)
		}
	})
	inBubble(t, "a run that cannot use its turn passes it on", func(t *testing.T) {
		// b waits for two slots: a slot of its own limit and a slot of the Runner. While x holds b's own slot, c gets the Runner's slot.
		rn, x := &kahn.Runner{Limit: 2}, newCensus()
		a := start(t, rn, graph(after("A")), x.step("a", 2*time.Second, nil))
		b := start(t, rn, graph(after("A"), after("B")), x.step("b", 10*time.Second, nil), kahn.Limit(1))
		synctest.Wait()
		c := start(t, rn, graph(after("A")), x.step("c", time.Second, nil))
		completed(t, a, b, c)
		if !slices.Contains(x.order, "c.A@2s") || !slices.Contains(x.order, "b.B@10s") {
			t.Error(x.order)
		}
		idle(t, rn)
	})
	inBubble(t, "waiting for a slot of others is no rest, and a step that waits holds none", func(t *testing.T) {
		rn, x := &kahn.Runner{Limit: 1}, newCensus()
		a := start(t, rn, graph(kahn.Node{ID: "g", Kind: kahn.KindGate}, after("A")), x.step("a", time.Second, nil))
		b := start(t, rn, graph(after("A")), x.step("b", time.Second, nil))
		time.Sleep(500 * ms)
		if a.Status() != kahn.RunRunning || b.Status() != kahn.RunRunning {
			t.Errorf("a is %v, b %v", a.Status(), b.Status())
		}
		time.Sleep(2 * time.Second)
		if a.Status() != kahn.RunSuspended {
			t.Errorf("a is %v", a.Status())
		}
		if err := a.Signal(context.Background(), "g", true); err != nil {
			t.Fatal(err)
		}
		completed(t, a, b)
		idle(t, rn)
	})
	inBubble(t, "a turn that a better node of the run makes useless goes to the next run", func(t *testing.T) {
		// When the key becomes free, Y takes the only slot of b, so c gets the key.
		for range 50 { // the order at that instant is random
			rn, x := &kahn.Runner{KeyLimit: 1}, newCensus()
			keyed := kahn.Node{ID: "X", Key: "k"}
			a := start(t, rn, graph(keyed), x.step("a", time.Second, nil))
			synctest.Wait()
			y := kahn.Node{ID: "Y", Priority: 1, After: []string{"G"}, Do: takes(time.Hour)}
			b := start(t, rn, graph(kahn.Node{ID: "G", Kind: kahn.KindGate}, keyed, y), x.step("b", time.Second, nil), kahn.Limit(1))
			synctest.Wait()
			c := start(t, rn, graph(keyed), x.step("c", time.Second, nil))
			time.Sleep(time.Second)
			if err := b.Signal(context.Background(), "G", true); err != nil {
				t.Fatal(err)
			}
			completed(t, c)
			if took := time.Since(x.begin); took > 3*time.Second {
				t.Fatalf("c waited until %v: %v", took, x.order)
			}
			completed(t, a, b)
			idle(t, rn)
		}
	})
	inBubble(t, "a run whose turn is taken by the cleanup of another one has the next", func(t *testing.T) {
		for i := range 300 { // in some runs the cleanup begins after the slot was granted but before it is taken
			rn, x := &kahn.Runner{Limit: 1}, newCensus()
			begun := make(chan *kahn.Run, 1)
			slow := x.step("a", time.Second, nil)
			a := start(t, rn, graph(after("A")), func(ctx context.Context, s *kahn.Step) (any, error) {
				value, err := slow(ctx, s)
				go (<-begun).Cancel()
				for range i % 8 {
					runtime.Gosched()
				}
				return value, err
			})
			synctest.Wait()
			b := start(t, rn, graph(after("A")), x.step("b", time.Second, nil))
			synctest.Wait()
			c := start(t, rn, graph(after("A"), kahn.Node{ID: "C", Cleanup: true}), x.step("c", time.Second, nil))
			begun <- c
			completed(t, a, b)
			if took := time.Since(x.begin); took > 3*time.Second {
				t.Fatalf("b ended after %v: %v", took, x.order)
			}
			_, _ = c.Wait()
			idle(t, rn)
		}
	})
	inBubble(t, "what lacks a slot waits for no token that it does not need", func(t *testing.T) {
		// A takes the only token of the hour. X is mocked and needs no token, but waits for the slot of A.
		rn := &kahn.Runner{Limit: 1, Rate: kahn.Rate{Starts: 1, Per: time.Hour}}
		begin := time.Now()
		a := start(t, rn, graph(after("A")), takes(time.Second))
		synctest.Wait()
		late := start(t, rn, graph(after("L")), takes(time.Second)) // L needs a token and has waited longer, but must not hold back the other nodes
		synctest.Wait()
		b := start(t, rn, graph(after("X")), nil, kahn.TestMode{Mocks: map[string]kahn.Mock{"X": {}}})
		completed(t, a, b)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("it took %v", took)
		}
		completed(t, late)
		if took := time.Since(begin); took != time.Hour+time.Second {
			t.Errorf("the run that needs a token took %v", took)
		}
		idle(t, rn)
	})
	inBubble(t, "a node whose inputs are refused, or whose run is stopped meanwhile, takes no token", func(t *testing.T) {
		for _, stop := range []bool{false, true} {
			rn, begin := &kahn.Runner{Rate: kahn.Rate{Starts: 1, Per: time.Hour}}, time.Now()
			slow := func(ctx context.Context, _ event.Phase, _ *kahn.Step, _ any) error {
				if _, err := takes(time.Second)(ctx, nil); err != nil {
					return err
				}
				return kahn.Flag("spam")
			}
			a := start(t, rn, graph(kahn.Node{ID: "A", Moderation: kahn.ModerateInput}), nothing, kahn.Moderate(slow))
			synctest.Wait()
			b := start(t, rn, graph(after("B")), nothing)
			if stop {
				time.Sleep(500 * ms)
				a.Cancel()
			}
			if res, _ := a.Wait(); res.Count(kahn.Completed) > 0 {
				t.Error("A was not refused")
			}
			completed(t, b)
			if took := time.Since(begin); took > time.Second {
				t.Errorf("B started after %v, stop %v", took, stop)
			}
			idle(t, rn)
		}
	})
	inBubble(t, "a cleanup node of a stopped run takes no token, and gives none back if its inputs are refused", func(t *testing.T) {
		rn, begin := &kahn.Runner{Rate: kahn.Rate{Starts: 1, Per: time.Hour}}, time.Now()
		completed(t, start(t, rn, graph(after("A")), nothing)) // takes the token of the hour
		spam := func(context.Context, event.Phase, *kahn.Step, any) error { return kahn.Flag("spam") }
		stopped := start(t, rn, graph(after("W"), kahn.Node{ID: "C", Cleanup: true, Moderation: kahn.ModerateInput, After: []string{"W"}}), nothing, kahn.Moderate(spam))
		synctest.Wait()
		require.NoError(t, stopped.Cancel())
		res, err := stopped.Wait()
		require.Error(t, err)
		c, _ := res.Node("C")
		require.Equal(t, kahn.CauseModeration, c.Cause.Kind)
		completed(t, start(t, rn, graph(after("B")), nothing))
		require.Equal(t, time.Hour, time.Since(begin))
		idle(t, rn)
	})
	inBubble(t, "nobody rings when no run is left", func(t *testing.T) {
		rn := &kahn.Runner{Rate: kahn.Rate{Starts: 1, Per: time.Hour}, KeyRate: kahn.Rate{Starts: 1, Per: time.Minute}}
		run := start(t, rn, graph(kahn.Node{ID: "A", Key: "k"}, kahn.Node{ID: "B", Key: "k"}), nothing)
		synctest.Wait()
		if status, _ := run.NodeStatus("B"); status != kahn.Ready {
			t.Errorf("B is %v", status)
		}
		run.Cancel()
		_, _ = run.Wait()
		if rn.Rings() {
			t.Error("the timer is armed")
		}
		idle(t, rn)
	})
	for name, rn := range map[string]*kahn.Runner{
		"Limit": {Limit: -1}, "KeyLimit": {KeyLimit: -1}, "Rate": {Rate: kahn.Rate{Starts: 1}}, "KeyRate": {KeyRate: kahn.Rate{Per: 1}},
	} {
		if _, err := rn.Execute(t.Context(), four(), nothing); !errors.Is(err, kahn.ErrBadOption) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRandomRunnerLimits performs random runs with their own limits and random shared limits, and cancels or leaves some of them. No limit may be
// exceeded, every slot must be returned, and every run must end.
func TestRandomRunnerLimits(t *testing.T) {
	for seed := range seeds(t, size(100, 40, 10_000)) {
		synctest.Test(t, func(t *testing.T) { randomRunner(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func randomRunner(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 11))
	rate := func() kahn.Rate {
		if rnd.IntN(2) == 0 {
			return kahn.Rate{}
		}
		return kahn.Rate{Starts: 1 + rnd.IntN(9), Per: time.Duration(1+rnd.IntN(1000)) * ms, Burst: rnd.IntN(4)}
	}
	rn := &kahn.Runner{Limit: rnd.IntN(4), Rate: rate(), KeyLimit: rnd.IntN(3), KeyRate: rate(), MaxRuns: rnd.IntN(4)}
	if rn.Limit+rn.KeyLimit == 0 && rn.Rate == rn.KeyRate {
		rn.Limit = 1
	}
	x := newCensus()
	var build func(depth int) *kahn.Graph
	build = func(depth int) *kahn.Graph {
		g := new(kahn.Graph)
		for i := range 1 + rnd.IntN(6) {
			n := kahn.Node{ID: fmt.Sprint("n", i), Priority: rnd.IntN(2)}
			if i > 0 && rnd.IntN(2) == 0 {
				n.After = []string{fmt.Sprint("n", rnd.IntN(i))}
			}
			if rnd.IntN(2) == 0 {
				n.Key = fmt.Sprint("k", rnd.IntN(2))
			}
			if depth == 0 && rnd.IntN(4) == 0 {
				n.Sub, n.Key = build(1), ""
			}
			g.Add(n)
		}
		return g
	}
	var runs []*kahn.Run
	for i := range 1 + rnd.IntN(5) {
		g := build(0)
		keys := map[string]string{}
		for _, n := range g.Nodes() {
			keys[n.ID] = n.Key
			if n.Sub != nil {
				for _, in := range n.Sub.Nodes() {
					keys[n.ID+"/"+in.ID] = in.Key
				}
			}
		}
		run, err := rn.Start(t.Context(), g, x.step(fmt.Sprint(i), time.Duration(rnd.IntN(300))*ms, func(s *kahn.Step) []string {
			if k := keys[s.Path()]; k != "" {
				return []string{k}
			}
			return nil
		}), kahn.Limit(rnd.IntN(3)), rate(), kahn.KeyLimit(rnd.IntN(3)))
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
		if rnd.IntN(2) == 0 {
			time.Sleep(time.Duration(rnd.IntN(500)) * ms)
		}
		if rnd.IntN(4) == 0 {
			[]func(){func() { run.Cancel() }, run.Leave}[rnd.IntN(2)]()
		}
	}
	for _, run := range runs {
		_, _ = run.Wait()
	}
	for name, bound := range map[string]struct {
		limit int
		rate  kahn.Rate
	}{"": {rn.Limit, rn.Rate}, "k0": {rn.KeyLimit, rn.KeyRate}, "k1": {rn.KeyLimit, rn.KeyRate}} {
		if bound.limit > 0 && x.most[name] > bound.limit {
			t.Errorf("%d of %q at once, limit %d", x.most[name], name, bound.limit)
		}
		if times := x.starts[name]; bound.rate != (kahn.Rate{}) {
			withinRate(t, name, bound.rate, times)
		}
	}
	idle(t, rn)
}

// withinRate expects that no time window that begins with one of the starts contains more starts than the rate allows.
func withinRate(t *testing.T, bound string, rate kahn.Rate, times []time.Duration) {
	t.Helper()
	slices.Sort(times)
	burst := cmp.Or(rate.Burst, 1)
	for i := range times { // only windows that begin with a start
		for j := i; j < len(times); j++ {
			allowed := burst + int(int64(times[j]-times[i])*int64(rate.Starts)/int64(rate.Per))
			if j-i+1 > allowed {
				t.Errorf("%q, %v: %d starts within %v, %d allowed", bound, rate, j-i+1, times[j]-times[i], allowed)
			}
		}
	}
}

// TestRandomSharedStops performs random runs of all kinds of nodes with shared limits and their own limits. The host cancels, leaves, signals and
// resumes them at random. The limits must hold for every run that is not being stopped, a stopped run must end soon, and in the end every slot
// must be returned.
func TestRandomSharedStops(t *testing.T) {
	for seed := range seeds(t, size(50, 20, 20_000)) {
		synctest.Test(t, func(t *testing.T) { randomSharedStops(t, seed) })
	}
}

// sharer makes random graphs whose nodes share groups and keys.
type sharer struct {
	*rand.Rand
	rare bool
}

func (x *sharer) one(n int) bool { return x.IntN(n) == 0 }

func (x *sharer) rate() kahn.Rate {
	switch {
	case x.one(2):
		return kahn.Rate{}
	case x.rare && x.one(3):
		return kahn.Rate{Starts: 1, Per: time.Hour, Burst: 1 + x.IntN(3)}
	}
	return kahn.Rate{Starts: 1 + x.IntN(9), Per: time.Duration(1+x.IntN(1000)) * ms, Burst: x.IntN(4)}
}

func (x *sharer) graph(depth int) *kahn.Graph {
	g := new(kahn.Graph)
	n := 1 + x.IntN(6)
	for i := range n {
		node := kahn.Node{ID: fmt.Sprint("n", i), Priority: x.IntN(2)}
		for range x.IntN(3) {
			if i > 0 {
				if from := fmt.Sprint("n", x.IntN(i)); !slices.Contains(node.After, from) {
					node.After = append(node.After, from)
				}
			}
		}
		if x.one(2) {
			node.Key = fmt.Sprint("k", x.IntN(2))
		}
		if x.one(3) {
			node.Groups = []string{"g"}
		}
		if x.one(4) {
			node.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: time.Duration(1+x.IntN(500)) * ms, Jitter: kahn.JitterNone}
		}
		if x.one(6) {
			node.Cleanup = true
		}
		switch kind := x.IntN(9); {
		case kind == 0 && !node.Cleanup:
			node = kahn.Node{ID: node.ID, Kind: kahn.KindGate, After: node.After}
		case kind == 1 && depth < 2:
			node.Sub, node.Key, node.Groups = x.graph(depth+1), "", nil
		case kind == 2:
			node.Map = &kahn.Map{Over: "list", Limit: x.IntN(3), FailFast: x.one(2)}
			if x.one(2) {
				node.Key, node.Map.Key = "", func(item any) string { return fmt.Sprint("k", item) }
			}
			if x.one(3) && depth < 2 {
				node.Sub, node.Map.Key, node.Key, node.Groups = x.graph(depth+1), nil, "", nil
			}
			node.Params = map[string]any{"list": []any{0, 1, 0, 1}[:x.IntN(5)]}
		case kind == 3 && depth < 2:
			node.Sub, node.Key, node.Groups = x.graph(depth+1), "", nil
			node.Loop = &kahn.Loop{MaxIterations: 2, OnLimit: kahn.LoopStop, While: func(kahn.View) (bool, error) { return true, nil }}
		}
		g.Add(node)
	}
	if x.one(3) {
		end := kahn.Node{ID: "end", Kind: kahn.KindEnd}
		if x.one(2) {
			end.Key = "k0"
		}
		g.Add(end)
	}
	return g
}

func randomSharedStops(t *testing.T, seed uint64) {
	x := &sharer{Rand: rand.New(rand.NewPCG(seed, 23))}
	x.rare = x.one(2)
	rn := &kahn.Runner{Limit: x.IntN(4), Rate: x.rate(), KeyLimit: x.IntN(3), KeyRate: x.rate(), MaxRuns: x.IntN(4), CancelOnShutdown: x.one(2)}
	if rn.Limit+rn.KeyLimit == 0 && rn.Rate == rn.KeyRate {
		rn.Limit = 1
	}
	moods := rand.New(rand.NewPCG(seed, 29))
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		mood := uint64(len(s.Path()))*7 + uint64(s.Attempt()) + seed
		if _, resumed := s.Resumed(); mood%11 == 0 && !resumed {
			return nil, kahn.Suspend("", nil, nil)
		}
		if _, err := takes(time.Duration(mood%7*50)*ms)(ctx, s); err != nil {
			return nil, err
		}
		if mood%5 == 0 {
			return nil, errStep
		}
		return nil, nil
	}
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	type life struct {
		run   *kahn.Run
		g     *kahn.Graph
		opts  []kahn.Option
		rec   *recorder
		store store.Store

		events    []kahn.Event // from before the run was resumed
		abandoned bool         // whether an attempt was abandoned before the run was resumed; the next attempt may overlap with it
	}
	var lives []*life
	begin := func(l *life, opts ...kahn.Option) {
		l.rec = newRecorder()
		run, err := rn.Start(t.Context(), l.g, step, slices.Concat(l.opts, opts, []kahn.Option{kahn.OnEvent(l.rec.add)})...)
		if err != nil {
			t.Fatal(err)
		}
		l.run = run
	}
	wait := func(l *life) *kahn.Result {
		res, err := l.run.Wait()
		if left := l.run.Leftovers(); left != "" && res.Status.Terminal() {
			t.Errorf("left over of a run that is %v: %s, %v", res.Status, left, err)
		}
		last := l.rec.all()
		if len(last) == 0 { // an earlier call has already waited
			return res
		}
		l.events, l.rec = append(l.events, last...), newRecorder()
		l.abandoned = l.abandoned || len(res.Abandoned) > 0
		for what, events := range map[string][]kahn.Event{"all lives": l.events, "the last life": last} {
			if err := kahntest.CheckEvents(l.g, res, events); err != nil && !l.abandoned {
				t.Errorf("%s: %v\n%s", what, err, eventText(events))
			}
		}
		return res
	}
	for i := range 1 + x.IntN(4) {
		l := &life{g: x.graph(0)}
		l.g.Groups = []kahn.Group{{Name: "g", Limit: x.IntN(3), Rate: x.rate(), CancelOnFailure: x.one(4)}}
		l.opts = []kahn.Option{kahn.RunID(fmt.Sprint(i)), kahn.Limit(x.IntN(4)), x.rate(), kahn.KeyLimit(x.IntN(3)), kahn.KeyRate(x.rate()),
			kahn.CleanupTimeout(time.Second)}
		if x.one(5) {
			l.opts = append(l.opts, kahn.Waves)
		}
		if x.one(4) {
			l.opts = append(l.opts, kahn.SuspendStop)
		}
		if x.one(4) {
			l.opts = append(l.opts, kahn.AbortRunning)
		}
		if x.one(4) {
			l.opts = append(l.opts, kahn.Drain)
		}
		if x.one(3) {
			l.store = new(store.Memory)
			l.opts = append(l.opts, kahn.Durable(l.store))
		}
		begin(l)
		lives = append(lives, l)
	}
	for range x.IntN(12) {
		if x.one(2) {
			time.Sleep(time.Duration(x.IntN(500)) * ms)
		}
		if x.one(2) {
			synctest.Wait()
		}
		l := lives[x.IntN(len(lives))]
		switch x.IntN(8) {
		case 0:
			l.run.Cancel()
		case 1:
			l.run.AbortAll(nil)
		case 2:
			_ = l.run.CancelNode(fmt.Sprint("n", x.IntN(6)))
		case 3, 4:
			for _, w := range l.run.Waiting() {
				_ = l.run.Signal(context.Background(), cmp.Or(w.Token, w.Node), true)
			}
		default: // a run that was left may or may not continue
			l.run.Leave()
			select {
			case <-l.run.Done():
			case <-time.After(time.Minute): // time for the cleanup nodes of a stopped run
				t.Errorf("a run that is being left has not ended\n%s", eventText(l.rec.all()))
				return
			}
			switch res := wait(l); {
			case res.Status != kahn.RunSuspended:
			case l.store != nil:
				begin(l)
			default:
				begin(l, kahn.Resume(res.Snapshot()))
			}
		}
	}
	if x.one(2) {
		time.Sleep(time.Duration(x.IntN(3000)) * ms)
	}
	stopped := time.Now()
	if x.one(2) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(moods.IntN(2000))*ms)
		_ = rn.Shutdown(ctx)
		cancel()
	} else {
		for _, l := range lives {
			l.run.Cancel()
			if x.one(2) {
				time.Sleep(time.Duration(x.IntN(300)) * ms)
			}
		}
	}
	for _, l := range lives {
		_ = wait(l)
	}
	if took := time.Since(stopped); took > time.Minute {
		t.Errorf("the runs took %v to stop", took)
	}
	idle(t, rn)
}

// TestStoppedRunWaitsForNobody: a run that is being stopped ends within a time that its own options bound, even if it shares limits with other
// runs, and even if tokens are rare. Cleanup nodes and the end node of the run wait neither for other runs nor for tokens.
func TestStoppedRunWaitsForNobody(t *testing.T) {
	rare := kahn.Rate{Starts: 1, Per: time.Hour}
	clean := func(n kahn.Node) kahn.Node { n.ID, n.Key, n.Cleanup = "C", "k", true; return n }
	flaky := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.Attempt() == 1 {
			return nil, errStep
		}
		return nil, nil
	}
	cleanups := map[string]kahn.Node{
		"step":  {After: []string{"A"}},
		"early": {},
		"retry": {Do: flaky, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 10 * ms}},
		"sub":   {Sub: graph(kahn.Node{ID: "x", Key: "k", Groups: []string{"g"}}, kahn.Node{ID: "y", Key: "k", After: []string{"x"}})},
		"map":   {Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []any{1, 2, 3}}},
		"loop":  {Sub: graph(kahn.Node{ID: "x", Key: "k"}), Loop: &kahn.Loop{MaxIterations: 3, OnLimit: kahn.LoopStop, While: func(kahn.View) (bool, error) { return true, nil }}},
	}
	for name, node := range cleanups {
		for bound, limited := range map[string]struct {
			runner *kahn.Runner
			opts   []kahn.Option
			rate   kahn.Rate
		}{
			"StartRate":  {opts: []kahn.Option{rare}},
			"KeyRate":    {opts: []kahn.Option{kahn.KeyRate(rare)}},
			"Group.Rate": {rate: rare},
			"Rate":       {runner: &kahn.Runner{Rate: rare}},
			"KeyRate'":   {runner: &kahn.Runner{KeyRate: rare}},
			"Limit":      {runner: &kahn.Runner{Limit: 1}},
			"KeyLimit":   {runner: &kahn.Runner{KeyLimit: 1}},
		} {
			for stop, end := range map[string]func(*kahn.Run){"cancel": func(r *kahn.Run) { r.Cancel() }, "abort": func(r *kahn.Run) { r.AbortAll(nil) }} {
				for _, one := range []int{0, 1} {
					inBubble(t, fmt.Sprint(name, " ", bound, " ", stop, " ", one), func(t *testing.T) {
						g := graph(kahn.Node{ID: "A", Key: "k", Groups: []string{"g"}, Priority: 1}, after("B", "A"), clean(node), kahn.Node{ID: "end", Kind: kahn.KindEnd, Key: "k"})
						g.Groups = []kahn.Group{{Name: "g", Rate: limited.rate}}
						rn := limited.runner
						if rn == nil {
							rn = new(kahn.Runner)
						} else {
							rn = &kahn.Runner{Rate: rn.Rate, KeyRate: rn.KeyRate, Limit: rn.Limit, KeyLimit: rn.KeyLimit}
						}
						if rn.Limit+rn.KeyLimit > 0 { // another run holds the slot
							other, err := rn.Start(t.Context(), graph(kahn.Node{ID: "A", Key: "k"}), takes(time.Hour))
							if err != nil {
								t.Fatal(err)
							}
							defer func() {
								other.Cancel()
								_, _ = other.Wait()
								idle(t, rn)
							}()
							synctest.Wait()
						}
						rec := newRecorder()
						run, err := rn.Start(t.Context(), g, takes(time.Second), append(limited.opts, kahn.Limit(one), kahn.OnEvent(rec.add))...)
						if err != nil {
							t.Fatal(err)
						}
						time.Sleep(500 * ms)
						synctest.Wait()
						begin := time.Now()
						end(run)
						res, err := run.Wait()
						if took := time.Since(begin); took > 10*time.Second {
							t.Errorf("the run took %v to stop: %v %v\n%s", took, res.Status, err, eventText(rec.all()))
						}
						checkEvents(t, g, res, rec.all())
						if left := run.Leftovers(); left != "" {
							t.Error(left)
						}
						for _, id := range []string{"C", "end"} {
							if n, _ := res.Node(id); n.Status != kahn.Completed {
								t.Errorf("%s is %v: %v\n%s", id, n.Status, n.Err, eventText(rec.all()))
							}
						}
					})
				}
			}
		}
	}
}

// TestGroupOfNestedRuns: a nested run whose graph declares a shared group leaves the group when it ends. So a long loop does not accumulate
// members.
func TestGroupOfNestedRuns(t *testing.T) {
	t.Parallel()
	rn, most := &kahn.Runner{Shared: &kahn.Shared{Store: new(store.Memory), Groups: []kahn.Group{{Name: "db", Limit: 2}}}}, 0
	body := (&kahn.Graph{Groups: []kahn.Group{{Name: "db"}}}).Add(kahn.Node{ID: "a", Groups: []string{"db"}})
	g := new(kahn.Graph).Add(kahn.Node{ID: "loop", Sub: body, Loop: &kahn.Loop{MaxIterations: 300, OnLimit: kahn.LoopStop, While: func(kahn.View) (bool, error) { return true, nil }}})
	_, err := rn.Execute(t.Context(), g, func(context.Context, *kahn.Step) (any, error) {
		most = max(most, rn.GroupRuns("db"))
		return nil, nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, most)
	require.Zero(t, rn.GroupRuns("db"))
	used, claims, _ := rn.PoolUse()
	require.Zero(t, used+claims)
	require.NoError(t, rn.Shutdown(t.Context()))
}
