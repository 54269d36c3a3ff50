package conformance_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// starts renders the starts of attempts, as "A@0s A@1s B@2s", in the order of the events.
func (r trial) starts() string {
	var list []string
	for _, e := range r.events {
		if e.Type == event.NodeStarted {
			list = append(list, fmt.Sprintf("%s@%v", e.Path, r.since(e)))
		}
	}
	return strings.Join(list, " ")
}

func (r trial) expectStarts(want string) {
	r.t.Helper()
	if got := r.starts(); got != want {
		r.t.Errorf("starts\n%s\nexpected\n%s\n%s", got, want, eventText(r.events))
	}
}

func TestRates(t *testing.T) {
	perSecond := func(n, burst int) kahn.Rate { return kahn.Rate{Starts: n, Per: time.Second, Burst: burst} }
	inBubble(t, "the rate of a run spaces the starts", func(t *testing.T) {
		r := try(t, graph(after("A"), after("B"), after("C")), takes(10*ms), perSecond(1, 0))
		r.expectStarts("A@0s B@1s C@2s")
		r.expect("A:ok B:ok C:ok", "completed")
	})
	inBubble(t, "a burst starts at once", func(t *testing.T) {
		r := try(t, graph(after("A"), after("B"), after("C"), after("D")), takes(10*ms), perSecond(2, 3))
		r.expectStarts("A@0s B@0s C@0s D@500ms")
	})
	inBubble(t, "tokens are saved up to the burst", func(t *testing.T) {
		// A takes one of three tokens. A runs for a minute, in which the bucket fills up again.
		r := try(t, graph(after("A"), after("B", "A"), after("C", "A"), after("D", "A"), after("E", "A")), func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "A" {
				return takes(time.Minute)(ctx, s)
			}
			return nil, nil
		}, perSecond(1, 3))
		r.expectStarts("A@0s B@1m0s C@1m0s D@1m0s E@1m1s")
	})
	inBubble(t, "the order is that of the queue", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "A"}, kahn.Node{ID: "B", Priority: 1}, kahn.Node{ID: "C", Estimate: time.Hour}), nop, perSecond(1, 1))
		r.expectStarts("B@0s C@1s A@2s")
	})
	inBubble(t, "a group's rate holds nobody else back", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Groups: []string{"g"}}, kahn.Node{ID: "B", Groups: []string{"g"}}, after("C"))
		g.Groups = []kahn.Group{{Name: "g", Rate: perSecond(1, 1)}}
		try(t, g, takes(10*ms), kahn.Limit(1)).expectStarts("A@0s C@10ms B@1s")
	})
	inBubble(t, "all tokens or none", func(t *testing.T) {
		// B waits an hour for a token of h. Meanwhile C and D take tokens of g.
		g := graph(kahn.Node{ID: "A", Groups: []string{"h"}}, kahn.Node{ID: "B", Groups: []string{"g", "h"}},
			kahn.Node{ID: "C", Groups: []string{"g"}}, kahn.Node{ID: "D", Groups: []string{"g"}})
		g.Groups = []kahn.Group{{Name: "g", Rate: perSecond(1, 1)}, {Name: "h", Rate: kahn.Rate{Starts: 1, Per: time.Hour}}}
		try(t, g, takes(10*ms)).expectStarts("A@0s C@0s D@1s B@1h0m0s")
	})
	inBubble(t, "tokens that were saved up while no slot was free are all used", func(t *testing.T) {
		member := func(id string, priority int) kahn.Node {
			return kahn.Node{ID: id, Groups: []string{"g"}, Priority: priority}
		}
		g := graph(member("A", 2), member("B", 2), member("C", 1), member("D", 1), after("X", "A"), after("Y", "B"))
		g.Groups = []kahn.Group{{Name: "g", Rate: perSecond(1, 2)}}
		r := try(t, g, func(ctx context.Context, s *kahn.Step) (any, error) {
			return takes(map[string]time.Duration{"X": 10 * time.Second, "Y": 10 * time.Second, "C": time.Minute}[s.ID()])(ctx, s)
		}, kahn.Limit(2))
		if c, d := r.at(event.NodeStarted, "C"), r.at(event.NodeStarted, "D"); c != 10*time.Second || d != c {
			t.Errorf("C started at %v, D at %v\n%s", c, d, eventText(r.events))
		}
	})
	inBubble(t, "a key's rate", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "A", Key: "x"}, kahn.Node{ID: "B", Key: "x"}, kahn.Node{ID: "C", Key: "y"}), nop, kahn.KeyRate(perSecond(1, 1)))
		r.expectStarts("A@0s C@0s B@1s")
	})
	inBubble(t, "a retry takes a token, and its backoff is not spent waiting twice", func(t *testing.T) {
		flaky := kahn.Node{ID: "A", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 10 * ms, Jitter: kahn.JitterNone}}
		r := try(t, graph(flaky), func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.Attempt() == 1 {
				return nil, errStep
			}
			return nil, nil
		}, perSecond(1, 1))
		r.expectStarts("A@0s A@1s")
	})
	inBubble(t, "an attempt's timeout does not include the wait, the overall one does", func(t *testing.T) {
		r := try(t, graph(after("A"), kahn.Node{ID: "B", Timeout: 500 * ms}), takes(10*ms), perSecond(1, 1))
		r.expect("A:ok B:ok", "completed")
		late := kahn.Node{ID: "B", OverallTimeout: 500 * ms, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 10 * ms, Jitter: kahn.JitterNone}}
		r = try(t, graph(late), func(context.Context, *kahn.Step) (any, error) { return nil, errStep }, perSecond(1, 1))
		r.expect("B:F", "failed")
		r.cause("B", kahn.CauseTimeout)
		if r.Duration != 500*ms {
			t.Errorf("the run took %v", r.Duration)
		}
	})
	inBubble(t, "the run's timeout and a cancel end the wait", func(t *testing.T) {
		slow := kahn.Rate{Starts: 1, Per: time.Hour}
		r := try(t, graph(after("A"), after("B")), nop, slow, kahn.Timeout(time.Minute))
		r.expect("A:ok B:X", "failed")
		if r.Duration != time.Minute {
			t.Errorf("the run took %v", r.Duration)
		}
		begin := time.Now()
		r = tryControlled(t, t.Context(), graph(after("A"), after("B")), nop, func(run *kahn.Run) { synctest.Wait(); run.Cancel() }, slow)
		r.expect("A:ok B:C", "cancelled")
		if took := time.Since(begin); took != 0 {
			t.Errorf("the run took %v", took)
		}
	})
	inBubble(t, "the run does not rest while a node waits for a token", func(t *testing.T) {
		res, err := kahn.Execute(t.Context(), graph(kahn.Node{ID: "g", Kind: kahn.KindGate}, after("A"), after("B")), nop, perSecond(1, 1))
		if err != nil || res.Status != kahn.RunSuspended || res.Duration != time.Second {
			t.Fatalf("%v %v after %v", res.Status, err, res.Duration)
		}
		if b, _ := res.Node("B"); b.Status != kahn.Completed {
			t.Errorf("B is %v", b.Status)
		}
	})
	inBubble(t, "a run that is left does not wait for tokens", func(t *testing.T) {
		run, err := kahn.Start(t.Context(), graph(after("A"), after("B")), nop, kahn.Rate{Starts: 1, Per: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		run.Leave()
		res, err := run.Wait()
		if err != nil || res.Status != kahn.RunSuspended || res.Duration != 0 {
			t.Fatalf("%v %v after %v", res.Status, err, res.Duration)
		}
	})
	inBubble(t, "no alarm is left when a token falls due as a step returns", func(t *testing.T) {
		for range 50 { // the order of the events of one instant is random
			g := graph(after("P"), kahn.Node{ID: "A", Groups: []string{"g"}}, kahn.Node{ID: "B", Groups: []string{"g"}},
				kahn.Node{ID: "C", Groups: []string{"h"}}, kahn.Node{ID: "D", Groups: []string{"h"}})
			g.Groups = []kahn.Group{{Name: "g", Rate: perSecond(1, 1)}, {Name: "h", Rate: kahn.Rate{Starts: 1, Per: time.Hour}}}
			begin := time.Now()
			tryLeft(t, g, takes(time.Second), 1500*ms)
			if took := time.Since(begin); took != 2*time.Second {
				t.Fatalf("the run was left at 1.5s, and ended after %v", took)
			}
		}
	})
	inBubble(t, "gates, conditions, composites and mocks take no token", func(t *testing.T) {
		g := graph(kahn.Node{ID: "G", Kind: kahn.KindGate}, kahn.Node{ID: "T", Test: func(kahn.View) (any, error) { return true, nil }},
			kahn.Node{ID: "S", Sub: graph(after("x"), after("y"))}, after("M"), after("Z", "G", "T", "S", "M"))
		r := try(t, g, nop, perSecond(1, 1), kahn.TestMode{Mocks: map[string]kahn.Mock{"M": {Value: 1}, "G": {Value: "ok"}}})
		r.expectStarts("T@0s S@0s S/x@0s S/y@1s Z@2s")
	})
	inBubble(t, "what a memo answers takes no token", func(t *testing.T) {
		memo := new(kahn.Memo)
		g := graph(kahn.Node{ID: "A", Memo: "1"}, after("B"), after("C"))
		option := perSecond(1, 1)
		try(t, g, nop, option, memo).expectStarts("A@0s B@1s C@2s")
		r := try(t, g, nop, option, memo)
		r.expectStarts("B@0s C@1s")
	})
	inBubble(t, "what is refused takes no token", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", InputSchema: wants(0), Priority: 1, ContinueOnFail: true}, after("B"), after("C"))
		try(t, g, nop, perSecond(1, 1), kahn.Limit(1)).expectStarts("B@0s C@1s")
	})
	inBubble(t, "a node that was stopped in line holds back nobody who needs no token", func(t *testing.T) {
		// X has the slot of g and the only token of the hour. A waits for both; the other nodes wait only for the slot.
		in := func(n kahn.Node) kahn.Node { n.Groups = []string{"g"}; return n }
		items := kahn.Node{ID: "L", Map: &kahn.Map{Over: "list"}, Sub: graph(after("x")), Params: map[string]any{"list": []any{1}}}
		for _, waits := range []kahn.Node{after("M"), items} {
			g := graph(in(kahn.Node{ID: "X", Priority: 2}), in(kahn.Node{ID: "A", Priority: 1}), in(waits))
			g.Groups = []kahn.Group{{Name: "g", Limit: 1, Rate: kahn.Rate{Starts: 1, Per: time.Hour}}}
			var opts []kahn.Option
			if waits.ID == "M" {
				opts = append(opts, kahn.TestMode{Mocks: map[string]kahn.Mock{"M": {Value: 1}}})
			}
			r := tryControlled(t, t.Context(), g, takes(10*ms), func(run *kahn.Run) {
				time.Sleep(5 * ms)
				if err := run.CancelNode("A"); err != nil {
					t.Error(err)
				}
			}, opts...)
			if at := r.at(event.NodeCompleted, waits.ID); r.node("A").Status != kahn.Cancelled || at > 20*ms {
				t.Errorf("%s completed after %v\n%s", waits.ID, at, eventText(r.events))
			}
		}
	})
	inBubble(t, "at any depth", func(t *testing.T) {
		inner := graph(kahn.Node{ID: "x", Groups: []string{"g"}, Key: "k"}, kahn.Node{ID: "y", Key: "k"})
		g := graph(kahn.Node{ID: "S", Sub: inner, Priority: 1}, kahn.Node{ID: "T", Sub: inner}, kahn.Node{ID: "A", Groups: []string{"g"}})
		g.Groups = []kahn.Group{{Name: "g", Rate: perSecond(1, 1)}}
		one := kahn.Limit(1) // makes the order unique
		try(t, g, nop, one).expectStarts("S@0s T@0s S/x@0s S/y@0s T/y@0s T/x@1s A@2s")
		g.Groups[0].Rate = kahn.Rate{Starts: 1000, Per: time.Second}
		try(t, g, nop, one, kahn.KeyRate(kahn.Rate{Starts: 1, Per: time.Minute})).expectStarts("S@0s T@0s S/x@0s A@1ms S/y@1m0s T/x@2m0s T/y@3m0s")
	})
}

// tryLeft starts a run, and leaves the run when the time "after" has passed.
func tryLeft(t *testing.T, g *kahn.Graph, step kahn.StepFunc, after time.Duration, opts ...kahn.Option) {
	t.Helper()
	run, err := kahn.Start(t.Context(), g, step, opts...)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(after)
	run.Leave()
	if res, err := run.Wait(); err != nil || res.Status != kahn.RunSuspended {
		t.Errorf("%v %v", res.Status, err)
	}
}

// expectSorted does the same as expectStarts, but ignores the order of nodes that start at the same time.
func (r trial) expectSorted(want string) {
	r.t.Helper()
	sorted := func(text string) string {
		list := strings.Fields(text)
		slices.Sort(list)
		return strings.Join(list, " ")
	}
	if got := sorted(r.starts()); got != sorted(want) {
		r.t.Errorf("starts\n%s\nexpected\n%s\n%s", got, sorted(want), eventText(r.events))
	}
}

func TestRateProblems(t *testing.T) {
	for name, rate := range map[string]kahn.Rate{
		"no starts":       {Per: time.Second},
		"negative starts": {Starts: -1, Per: time.Second},
		"no interval":     {Starts: 1},
		"negative":        {Starts: 1, Per: -1},
		"negative burst":  {Starts: 1, Per: 1, Burst: -1},
		"only a burst":    {Burst: 3},
		"overflow":        {Starts: 1, Per: math.MaxInt64, Burst: 2},
		"overflow burst":  {Starts: 1, Per: time.Second, Burst: math.MaxInt},
		"overflow gain":   {Starts: math.MaxInt, Per: 1, Burst: 2},
	} {
		t.Run(name, func(t *testing.T) {
			for _, option := range []kahn.Option{rate, kahn.KeyRate(rate)} {
				if _, err := kahn.Execute(t.Context(), graph(after("A")), nop, option); !errors.Is(err, kahn.ErrBadOption) {
					t.Errorf("option: %v", err)
				}
			}
			g := graph(after("A"))
			g.Groups = []kahn.Group{{Name: "g", Rate: rate}}
			if _, err := g.Compile(); !errors.Is(err, kahn.ErrBadValue) || !strings.Contains(err.Error(), `group "g"`) {
				t.Errorf("group: %v", err)
			}
		})
	}
	for _, rate := range []kahn.Rate{{Starts: math.MaxInt - 1, Per: 1}, {Starts: 1, Per: math.MaxInt64 - 1}, {Starts: math.MaxInt, Per: math.MaxInt64, Burst: 1 << 62}} {
		if _, err := kahn.Execute(t.Context(), graph(after("A"), after("B", "A")), nop, rate, kahn.Timeout(time.Millisecond)); errors.Is(err, kahn.ErrBadOption) {
			t.Errorf("%v: %v", rate, err)
		}
	}
}

// TestStateRates: a State tells its coordinator when the next rate token is available.
func TestStateRates(t *testing.T) {
	g := graph(after("A"), after("B"), after("C"))
	p, err := g.Compile()
	if err != nil {
		t.Fatal(err)
	}
	st, err := kahn.NewState(p, kahn.Rate{Starts: 2, Per: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var starts []string
	now := time.Duration(0)
	for !st.Done() {
		if task, ok := st.Next(); ok {
			starts = append(starts, fmt.Sprint(p.ID(task.Ref), "@", now))
			if err := st.Settle(task.Token, machine.Outcome{Status: kahn.Completed}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		at, ok := st.NextToken()
		if !ok || time.Duration(at) <= now {
			t.Fatalf("nothing to do at %v, and the next token is due at %d, %v", now, at, ok)
		}
		now = time.Duration(at)
		if err := st.Advance(at); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(starts, " "); got != "A@0s B@500ms C@1s" {
		t.Error(got)
	}
	if _, ok := st.NextToken(); ok {
		t.Error("a token is due that nobody waits for")
	}
}

// Random graphs with groups, keys, maps and sub-graphs run under random rates and limits. No time window has more starts than its rate allows, no
// limit is exceeded, and every node runs.
func TestRandomRates(t *testing.T) {
	t.Parallel()
	for seed := range seeds(t, size(170, 50, 10_000)) {
		synctest.Test(t, func(t *testing.T) { randomRates(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func randomRates(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	rate := func() kahn.Rate {
		if rnd.IntN(3) == 0 {
			return kahn.Rate{}
		}
		return kahn.Rate{Starts: 1 + rnd.IntN(9), Per: time.Duration(1+rnd.IntN(1000)) * ms, Burst: rnd.IntN(4)}
	}
	limit := func() int { return rnd.IntN(4) }
	groups := []kahn.Group{{Name: "g0", Limit: limit(), Rate: rate()}, {Name: "g1", Limit: limit(), Rate: rate()}}
	runRate, keyRate, runLimit, keyLimit := rate(), rate(), limit(), limit()
	retried := map[string]bool{}    // by path: whether the node had a second attempt
	member := map[string][]string{} // by path: the bounds on the node's starts
	var build func(prefix string, depth int) *kahn.Graph
	build = func(prefix string, depth int) *kahn.Graph {
		g := new(kahn.Graph)
		n := 1 + rnd.IntN(8)
		for i := range n {
			id := fmt.Sprint("n", i)
			node := kahn.Node{ID: id, Priority: rnd.IntN(3)}
			for range rnd.IntN(3) {
				if i > 0 {
					if from := fmt.Sprint("n", rnd.IntN(i)); !slices.Contains(node.After, from) {
						node.After = append(node.After, from)
					}
				}
			}
			for j, name := range []string{"g0", "g1"} {
				if rnd.IntN(3) == j {
					node.Groups = append(node.Groups, name)
				}
			}
			if rnd.IntN(2) == 0 {
				node.Key = fmt.Sprint("k", rnd.IntN(2))
			}
			bounds := slices.Clone(node.Groups)
			if node.Key != "" {
				bounds = append(bounds, node.Key)
			}
			switch {
			case depth < 2 && rnd.IntN(5) == 0:
				node.Sub, node.Groups, node.Key = build(prefix+id+"/", depth+1), nil, ""
			case rnd.IntN(5) == 0:
				items := make([]any, rnd.IntN(5))
				node.Map, node.Params = &kahn.Map{Over: "list", Limit: limit()}, map[string]any{"list": items}
				for i := range items {
					member[fmt.Sprintf("%s%s[%d]", prefix, id, i)] = bounds
				}
			default:
				member[prefix+id] = bounds
				if rnd.IntN(4) == 0 {
					retried[prefix+id] = true
					node.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: time.Duration(1+rnd.IntN(100)) * ms, Jitter: kahn.JitterNone}
				}
			}
			g.Add(node)
		}
		return g
	}
	g := build("", 0)
	g.Groups = groups
	rates := map[string]kahn.Rate{"": runRate, "g0": groups[0].Rate, "g1": groups[1].Rate, "k0": keyRate, "k1": keyRate}
	limits := map[string]int{"": runLimit, "g0": groups[0].Limit, "g1": groups[1].Limit, "k0": keyLimit, "k1": keyLimit}

	var mu sync.Mutex
	begin := time.Now()
	starts, running := map[string][]time.Duration{}, map[string]int{}
	r := try(t, g, func(ctx context.Context, s *kahn.Step) (any, error) {
		bounds, known := member[s.Path()]
		if !known {
			t.Errorf("no bounds of %s", s.Path())
		}
		mu.Lock()
		for _, b := range append([]string{""}, bounds...) {
			starts[b] = append(starts[b], time.Since(begin))
			if running[b]++; limits[b] > 0 && running[b] > limits[b] {
				t.Errorf("%d of %q run at once, limit %d", running[b], b, limits[b])
			}
		}
		d := time.Duration(rnd.IntN(200)) * ms
		fails := rnd.IntN(3) == 0 && s.Attempt() == 1 && retried[s.Path()]
		mu.Unlock()
		time.Sleep(d)
		mu.Lock()
		for _, b := range append([]string{""}, bounds...) {
			running[b]--
		}
		mu.Unlock()
		if fails {
			return nil, errStep
		}
		return nil, nil
	}, runRate, kahn.KeyRate(keyRate), kahn.Limit(runLimit), kahn.KeyLimit(keyLimit))
	if r.Status != kahn.RunCompleted {
		t.Errorf("the run ended as %v: %v", r.Status, r.err)
	}
	for bound, times := range starts {
		rate := rates[bound]
		if rate == (kahn.Rate{}) {
			continue
		}
		withinRate(t, bound, rate, times)
	}
}

// withinRate expects that no time window contains more of the given starts than the rate allows.
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
