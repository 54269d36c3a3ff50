package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/trees"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// durations matches durations in events, which differ from run to run.
var durations = regexp.MustCompile(`"(duration_ms|durationMs)":[0-9.e+-]+`)

// sameButTimes renders events without run ids and times.
func sameButTimes(t *testing.T, events []kahn.Event) []string {
	lines := make([]string, len(events))
	for i, e := range events {
		e.RunID, e.TraceID, e.Time = "", "", time.Time{}
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		lines[i] = durations.ReplaceAllString(string(data), "")
	}
	return lines
}

// requireSameOrder compares the events of two runs.
func requireSameOrder(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			from := max(0, i-5)
			t.Fatalf("%s: event %d is another one\n%s\nthe first time\n%s", what, i+1,
				strings.Join(got[from:min(i+3, len(got))], "\n"), strings.Join(want[from:min(i+3, len(want))], "\n"))
		}
	}
}

// orderRow is a way to run random composites with one slot.
type orderRow struct {
	name   string
	fake   bool          // whether the run uses fake time
	grain  time.Duration // the durations of steps are multiples of grain
	most   int           // the largest multiple; 0 if steps take no time
	quick  bool          // whether most steps take no time
	stored bool          // whether the run uses a store
	gen    trees.Maker
	failed []uint64 // seeds that once failed
}

// TestLimitOneOrder: with one slot, the graph and the durations of its steps determine the order of all events. The test runs random composites
// repeatedly.
//
// KAHN_SEED=<n> runs the composites of one seed many times. KAHN_LONG=1 runs the composites of 20,000 new seeds in each row.
func TestLimitOneOrder(t *testing.T) {
	first, seeds, times := uint64(0), uint64(size(84, 20, 20_000)), size(3, 3, 5)
	if long() {
		first = rand.Uint64N(1e12) * 1e6
		t.Logf("seeds from %d", first)
	}
	one := os.Getenv("KAHN_SEED")
	if one != "" {
		n, err := strconv.ParseUint(one, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, seeds, times = n, 1, 400
	}
	for _, row := range []orderRow{
		{name: "fake time", fake: true, grain: 1009 * time.Nanosecond, most: 40_000, gen: trees.Maker{Inline: true, Fine: true}},
		{name: "equal times", fake: true, grain: 1009 * time.Nanosecond, most: 40_000, quick: true, gen: trees.Maker{Inline: true, Tick: 10 * ms}, failed: []uint64{7000140}},
		{name: "no time", gen: trees.Maker{Inline: true, Timeless: true}},
		{name: "waits", fake: true, grain: 1009 * time.Nanosecond, most: 40_000, gen: trees.Maker{Inline: true, Fine: true, Waits: true}, failed: []uint64{7000363}},
		{name: "waits, equal times", fake: true, grain: 1009 * time.Nanosecond, most: 40_000, quick: true, gen: trees.Maker{Inline: true, Tick: 10 * ms, Waits: true}, failed: []uint64{7000616}},
		{name: "waits, no time", gen: trees.Maker{Inline: true, Timeless: true, Waits: true}},
		{name: "over a store", fake: true, grain: 1009 * time.Nanosecond, most: 40_000, stored: true, gen: trees.Maker{Inline: true, Fine: true}, failed: []uint64{804955622155000511}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			check := func(seed uint64, times int) {
				var once []string
				for i := range times {
					var lines []string
					run := func(t *testing.T) { lines = runOrdered(t, seed, row) }
					if row.fake {
						synctest.Test(t, run)
					} else {
						run(t)
					}
					if i == 0 {
						once = lines
					}
					requireSameOrder(t, fmt.Sprint("seed ", seed, ", run ", i), lines, once)
				}
			}
			for seed := range seeds {
				check(first+seed, times)
			}
			if one == "" {
				for _, seed := range row.failed {
					check(seed, 10*times)
				}
			}
		})
	}
}

// TestLimitOneOverAStore: a loop continues only after a store has written the end of its iteration. This wait does not change the order of later
// events.
func TestLimitOneOverAStore(t *testing.T) {
	t.Parallel()
	for range 50 {
		inBubble(t, "", func(t *testing.T) {
			var called []string
			step := func(_ context.Context, s *kahn.Step) (any, error) {
				called = append(called, s.ID())
				return s.ID() == "c", nil
			}
			loop := kahn.Node{ID: "L", Sub: graph(kahn.Node{ID: "x"}), Loop: &kahn.Loop{MaxIterations: 3, While: func(v kahn.View) (bool, error) { return v.Iteration() < 3, nil }}}
			test := kahn.Node{ID: "t", Kind: kahn.KindCondition, Test: func(kahn.View) (any, error) { called = append(called, "t"); return nil, nil }, After: []string{"first"}}
			g := graph(kahn.Node{ID: "first", Priority: 3}, test, loop, kahn.Node{ID: "last", Priority: -1})
			try(t, g, step, kahn.Limit(1), kahn.Durable(new(store.Memory)))
			require.Equal(t, []string{"first", "t", "x", "x", "x", "last"}, called)
		})
	}
}

func runOrdered(t *testing.T, seed uint64, row orderRow) []string {
	rng := rand.New(rand.NewPCG(11, seed))
	gen := row.gen
	gen.Rand = rng
	g := gen.Graph(3)
	opts := []kahn.Option{kahn.Limit(1), kahn.KeyLimit(rng.IntN(2)), kahn.Mode(rng.IntN(2)), kahn.FailureMode(rng.IntN(3)),
		kahn.StopMode(rng.IntN(2)), kahn.CancelGrace(time.Hour), kahn.Random(func() float64 { return 0.5 })}
	salt := rng.Uint64()
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		h := rand.New(rand.NewPCG(salt, uint64(len(s.Path())*31+s.Attempt())+uint64(s.Index()+1)*7+uint64(s.Path()[len(s.Path())-1])))
		d := time.Duration(h.IntN(row.most+1)) * row.grain
		if row.quick && h.IntN(4) > 0 {
			d = 0
		}
		if d == 0 && rand.IntN(4) == 0 { // a random delay, which must not change the order
			runtime.Gosched()
		}
		switch h.IntN(12) {
		case 0, 1:
			time.Sleep(d)
			return nil, errStep
		case 2:
			return nil, kahn.Skip("no")
		case 5:
			if row.gen.Waits {
				time.Sleep(d)
				return nil, kahn.Suspend("", nil, nil)
			}
		case 3, 4:
			if d > 0 {
				return takes(d)(ctx, s)
			}
		}
		time.Sleep(d) // ignores its context
		return nil, nil
	}
	stop, after := rng.IntN(8), time.Duration(1+rng.IntN(int(200*ms)))
	if row.fake && stop == 0 {
		opts = append(opts, kahn.Timeout(after))
	}
	if row.fake && rng.IntN(2) == 0 {
		opts = append(opts, kahn.CancelGrace(20*ms))
	}
	if row.stored {
		opts = append(opts, kahn.Durable(new(store.Memory)))
	}
	rec := newRecorder()
	opts = append(opts, kahn.OnEvent(rec.add))
	if !row.fake {
		res, _ := kahn.Execute(t.Context(), g, step, opts...)
		return requireOrdered(t, seed, g, res, rec)
	}
	run, err := kahn.Start(t.Context(), g, step, opts...)
	if err != nil {
		t.Fatal(seed, err)
	}
	switch stop {
	case 1:
		time.AfterFunc(after, func() { run.Cancel() })
	case 2:
		time.AfterFunc(after, func() { run.AbortAll(errHost) })
	case 3:
		time.AfterFunc(after, func() { _ = run.CancelNode("n0") })
	}
	time.Sleep(10*time.Hour + 1) // until the run has ended, or waits only for signals
	run.Leave()
	res, _ := run.Wait()
	return requireOrdered(t, seed, g, res, rec)
}

// requireOrdered checks a run before its events are compared with the events of other runs.
func requireOrdered(t *testing.T, seed uint64, g *kahn.Graph, res *kahn.Result, rec *recorder) []string {
	if slices.ContainsFunc(withoutOutlasting(res.Warnings), func(err error) bool { return !isStatic(err) }) {
		t.Fatalf("seed %d: %v", seed, res.Warnings)
	}
	if len(res.Abandoned) > 0 {
		return sameButTimes(t, rec.all())
	}
	if err := kahntest.CheckEvents(g, res, rec.all()); err != nil {
		t.Fatalf("seed %d: %v\n%s", seed, err, eventText(rec.all()))
	}
	return sameButTimes(t, rec.all())
}

// again runs a graph repeatedly, with one slot and in fake time, and compares the events.
func again(t *testing.T, g *kahn.Graph, step kahn.StepFunc, look func(trial), opts ...kahn.Option) {
	var first []string
	for i := range 20 {
		inBubble(t, fmt.Sprint("run ", i), func(t *testing.T) {
			r := try(t, g, step, append(opts, kahn.Limit(1))...)
			look(r)
			lines := sameButTimes(t, r.events)
			if i == 0 {
				first = lines
			}
			requireSameOrder(t, fmt.Sprint("run ", i), lines, first)
		})
	}
}

// TestLimitOneEqualTimes: the backoffs of several nodes end at the same instant, and a timeout passes at the instant at which a step returns. The
// timers fire first, in the order in which they were set.
func TestLimitOneEqualTimes(t *testing.T) {
	g := graph()
	for i := range 8 {
		g.Add(kahn.Node{ID: fmt.Sprint("R", i), Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 50 * ms, Jitter: kahn.JitterNone}})
	}
	g.Add(kahn.Node{ID: "T", After: []string{"R7"}, Timeout: 20 * ms}, after("Z", "R0"))
	again(t, g, func(ctx context.Context, s *kahn.Step) (any, error) {
		switch {
		case s.ID() == "T":
			time.Sleep(20 * ms)
		case s.ID() != "Z" && s.Attempt() == 1:
			return nil, errStep
		}
		return nil, nil
	}, func(r trial) {
		r.t.Helper()
		queued := ""
		for _, e := range r.events {
			if e.Type == event.NodeQueued && e.Attempt == 2 {
				queued += e.Path + " "
			}
		}
		if queued != "R0 R7 R1 R2 R3 R4 R5 R6 " { // the order of the first attempts: the longest path first, then declaration order
			r.t.Error("queued again in the order", queued)
		}
		r.cause("T", kahn.CauseTimeout)
	})
}

// TestLimitOneBeginsAgain: an item of a map is retried, or times out, at the instant at which another step returns. A task that needs no slot
// precedes the others.
func TestLimitOneBeginsAgain(t *testing.T) {
	item := func(sub *kahn.Graph) kahn.Node {
		return kahn.Node{ID: "M", Priority: 1, Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []int{0}}, Sub: sub}
	}
	backs := item(graph(after("x")))
	backs.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: 20 * ms, Jitter: kahn.JitterNone}
	late := item(graph(gate("x")))
	late.Timeout = 20 * ms
	for name, row := range map[string]struct {
		node        kahn.Node
		first, then event.Type // an event of the item, and an event of the other step
	}{
		"a backoff": {backs, event.NodeStarted, event.NodeCompleted},
		"a timeout": {late, event.NodeFailed, event.NodeCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when a bubble begins
			again(t, graph(row.node, after("A")), func(_ context.Context, s *kahn.Step) (any, error) {
				for range rand.IntN(4) { // random yields, which must not change the order
					runtime.Gosched()
				}
				switch {
				case s.ID() == "A":
					time.Sleep(20 * ms)
				case time.Since(begun) < 20*ms: // the first attempt of the item
					return nil, errStep
				}
				return nil, nil
			}, func(r trial) {
				r.t.Helper()
				order := ""
				for _, e := range r.events {
					if e.Time.Sub(r.events[0].Time) == 20*ms && (e.Path == "M[0]" && e.Type == row.first || e.Path == "A" && e.Type == row.then) {
						order += e.Path + " "
					}
				}
				if order != "M[0] A " {
					r.t.Error("in the order", order)
				}
			})
		})
	}
}

// TestLimitOneAnsweredGate: a gate that was answered early leads to a guard while steps hold the slot. The order of events is the same in every
// run.
func TestLimitOneAnsweredGate(t *testing.T) {
	g := graph(after("L"), gate("G"), kahn.Node{ID: "C", After: []string{"G"}, When: func(kahn.View) (bool, error) { return false, nil }}, after("M", "L"))
	for name, g := range map[string]*kahn.Graph{"plain": g, "nested": graph(kahn.Node{ID: "S", Sub: g})} {
		t.Run(name, func(t *testing.T) {
			again(t, g, func(context.Context, *kahn.Step) (any, error) {
				for range rand.IntN(4) { // random yields, which must not change the order
					runtime.Gosched()
				}
				return nil, nil
			}, func(trial) {}, kahn.TestMode{})
		})
	}
}

// TestLimitOneInterrupted: at one instant a timeout interrupts a step and ends a nested run. The order of events is the same in every run.
func TestLimitOneInterrupted(t *testing.T) {
	inner := graph(kahn.Node{ID: "run", Priority: 1}, kahn.Node{ID: "loop", Sub: graph(after("X"))})
	again(t, graph(kahn.Node{ID: "S", Sub: inner, Timeout: 10 * ms}), func(ctx context.Context, s *kahn.Step) (any, error) {
		<-ctx.Done()
		for range rand.IntN(3) { // random yields, which must not change the order
			runtime.Gosched()
		}
		return nil, ctx.Err()
	}, func(r trial) { r.expect("S:F", "failed") })
}

// TestWaitingForSlotIsNotSuspended: a node inside a sub-graph waits for a slot that an outer node holds, while a gate inside waits for its
// signal. The sub-graph is not suspended, since it can continue without a signal.
func TestWaitingForSlotIsNotSuspended(t *testing.T) {
	inner := graph(kahn.Node{ID: "G", Kind: kahn.KindGate}, kahn.Node{ID: "L"})
	for name, g := range map[string]*kahn.Graph{
		"run":   graph(kahn.Node{ID: "M", Priority: 1}, kahn.Node{ID: "S", Sub: inner}),
		"group": graph(kahn.Node{ID: "M", Priority: 1, Key: "k"}, kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "G", Kind: kahn.KindGate}, kahn.Node{ID: "L", Key: "k"})}),
	} {
		inBubble(t, name, func(t *testing.T) {
			rec := newRecorder()
			opts := []kahn.Option{kahn.OnEvent(rec.add), kahn.Limit(1)}
			if name == "group" {
				opts[1] = kahn.KeyLimit(1)
			}
			res, err := kahn.Execute(t.Context(), g, takes(10*ms), opts...)
			if err != nil || res.Status != kahn.RunSuspended {
				t.Fatal(res.Status, err)
			}
			order := ""
			for _, e := range rec.all() {
				if e.Type == event.NodeSuspended || e.Type == event.NodeCompleted {
					order += e.Path + " "
				}
			}
			if order != "S/G M S/L S " {
				t.Error("ended or suspended in the order", order)
			}
			checkEvents(t, g, res, rec.all())
		})
	}
}

// TestOrderInALine: a free slot of a group goes to the node with the highest priority of the nodes that can use it, also if a node with a higher
// priority was stopped meanwhile, or needs the slot of another group, too.
func TestOrderInALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := func(id string, priority int, d time.Duration, groups ...string) kahn.Node {
			return kahn.Node{ID: id, Priority: priority, Groups: groups, Do: takes(d)}
		}
		g := graph(node("first", 9, 10*ms, "g"), node("other", 8, 30*ms, "h"),
			node("both", 7, 10*ms, "g", "h"), node("stopped", 6, 10*ms, "g"), node("next", 5, 10*ms, "g", "free"), node("last", 4, 10*ms, "g"))
		g.Groups = []kahn.Group{{Name: "g", Limit: 1}, {Name: "h", Limit: 1}, {Name: "free", Limit: 1}}
		r := tryControlled(t, t.Context(), g, nil, func(run *kahn.Run) {
			time.Sleep(5 * ms)
			require.NoError(t, run.CancelNode("stopped"))
		})
		require.Equal(t, "first other next last both", r.started())
	})
}

// TestLimitOneTimedOutDraws: a nested run counts as failed only because it timed out. A random number for the delay of its retry is drawn
// nevertheless.
func TestLimitOneTimedOutDraws(t *testing.T) {
	for name, do := range map[string]kahn.StepFunc{
		"stops":     func(ctx context.Context, _ *kahn.Step) (any, error) { <-ctx.Done(); return nil, ctx.Err() },
		"completes": func(ctx context.Context, _ *kahn.Step) (any, error) { time.Sleep(10 * ms); return nil, nil },
	} {
		for _, sub := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", nested ", sub), func(t *testing.T) {
				n := kahn.Node{ID: "S", Timeout: 10 * ms, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 64 * ms, Jitter: kahn.JitterFull}}
				if n.Do = do; sub {
					n.Do, n.Sub = nil, graph(kahn.Node{ID: "X", Do: do}, gate("G"))
				}
				again(t, graph(n), nil, func(r trial) {
					r.expect("S:F", "failed")
					for _, e := range r.events {
						if p, ok := e.Payload.(event.Retry); ok && p.Delay != 48*ms {
							r.t.Error("a delay of", p.Delay)
						}
					}
				}, kahn.Random(func() float64 { return 0.75 }))
			})
		}
	}
}

// TestLimitOneAcrossTree: nodes of two nested runs compete for the slot. The best node of all graphs runs first, as if they were one graph.
func TestLimitOneAcrossTree(t *testing.T) {
	never := func(kahn.View) (bool, error) { return false, nil }
	items := func(priority int) kahn.Node {
		return kahn.Node{ID: "M", Priority: priority, Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []int{1, 2}}, Sub: graph(kahn.Node{ID: "a", When: never})}
	}
	for _, row := range []struct {
		name   string
		s1, s2 *kahn.Graph
		want   string
	}{
		{"priority", graph(kahn.Node{ID: "a", Priority: 1}), graph(kahn.Node{ID: "x", Priority: 2}, after("y", "x")), "S1 S2 S2/x S1/a S2/y "},
		{"the longest path", graph(after("a"), after("b", "a")), graph(after("x"), after("y", "x"), after("z", "y")), "S1 S2 S2/x S1/a S2/y S1/b S2/z "},
		{"declaration", graph(after("a"), after("b", "a")), graph(after("x"), after("y", "x")), "S1 S2 S1/a S2/x S1/b S2/y "},
		// Nodes that need no slot run at once, before the next nested run begins.
		{"guards", graph(kahn.Node{ID: "a", When: never}), graph(kahn.Node{ID: "x", When: never}), "S1 S1/a S2 S2/x "},
		// Items are ordered by priority and path. Guards and composites count as nodes of priority 0 without a path, so an item begins before
		// them.
		{"items", graph(items(0)), graph(after("x")), "S1 S1/M S1/M[0] S1/M[1] S1/M[0]/a S1/M[1]/a S2 S2/x "},
		{"items of low priority", graph(items(-1)), graph(after("x")), "S1 S1/M S2 S1/M[0] S1/M[0]/a S1/M[1] S1/M[1]/a S2/x "},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			r := try(t, graph(subgraph("S1", row.s1), subgraph("S2", row.s2)), takes(ms), kahn.Limit(1))
			order := ""
			for _, e := range r.events {
				if e.Type == event.NodeStarted || e.Type == event.NodeSkipped && strings.Contains(e.Path, "/") && !strings.HasSuffix(e.Path, "]") {
					order += e.Path + " "
				}
			}
			if order != row.want {
				t.Errorf("begun in the order %s, not %s", order, row.want)
			}
		})
	}
}

// putOffGraph returns a graph whose step A returns at the instant at which the timeout of a gate makes two slow guards due.
func putOffGraph(timeout time.Duration) *kahn.Graph {
	slowly := func(kahn.View) (bool, error) {
		time.Sleep(7 * time.Second)
		return true, nil
	}
	return graph(
		kahn.Node{ID: "A", Timeout: timeout, Do: takes(10 * time.Second)},
		kahn.Node{ID: "G", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: 10 * time.Second, OnTimeout: kahn.GateLabel}},
		kahn.Node{ID: "B", When: slowly, Do: nothing}, kahn.Node{ID: "C", When: slowly, Do: nothing},
	).Connect(kahn.Edge{From: "G", To: "B", Label: "timeout"}, kahn.Edge{From: "G", To: "C", Label: "timeout"})
}

// If a step returns in time and the result is processed later, after slow guards, the result still counts as in time.
func TestPutOffResultIsInTime(t *testing.T) {
	t.Parallel()
	inBubble(t, "a timeout meanwhile", func(t *testing.T) {
		g, rec := putOffGraph(15*time.Second), newRecorder()
		res, err := kahn.Execute(t.Context(), g, nil, kahn.Limit(1), kahn.OnEvent(rec.add))
		require.NoError(t, err)
		checkEvents(t, g, res, rec.all())
		kahntest.RequireStatuses(t, res, "A:ok G:ok B:ok C:ok")
	})
	inBubble(t, "the store fails meanwhile", func(t *testing.T) {
		db := &unusable{Store: new(store.Memory)}
		run, err := kahn.Start(t.Context(), putOffGraph(0), nil, kahn.Limit(1), kahn.Durable(db), kahn.RunID("r"))
		require.NoError(t, err)
		time.Sleep(11 * time.Second)
		db.dead.Store(true)
		res, err := run.Wait()
		require.ErrorIs(t, err, kahn.ErrStore)
		require.Equal(t, []string{"C"}, res.Abandoned, "its guard is at work when the store is lost")
		time.Sleep(10 * time.Second)
	})
}

// With one slot, the timeout of a gate makes a condition due at the instant at which a step returns. The condition is evaluated before the step's
// result is processed, even if the test takes long.
func TestOneSlotResultWaitsForTest(t *testing.T) {
	for name, more := range map[string]kahn.Node{"one graph": after("B", "A"), "a graph with a composite": subgraph("B", graph(after("x")), "A")} {
		inBubble(t, name, func(t *testing.T) {
			g := gate("G")
			g.Gate = &kahn.Gate{Timeout: 10 * ms, OnTimeout: kahn.GateLabel}
			tests := kahn.If("C", func(kahn.View) (bool, error) {
				synctest.Wait() // everything that does not wait for this test happens now
				return true, nil
			}, "G")
			r := try(t, graph(kahn.Node{ID: "A", Do: takes(10 * ms)}, g, tests, more), nothing, kahn.Limit(1))
			r.order("node.completed G", "node.completed C", "node.completed A")
		})
	}
}

// With one slot, a check counts as a node of priority 0 without a path. An item that is expected to take no time, and becomes due at the same time as a
// check, precedes the check if the item's map was declared first.
func TestOrderOfAnItemAndACheck(t *testing.T) {
	for _, mapFirst := range []bool{true, false} {
		inBubble(t, fmt.Sprint("the map first ", mapFirst), func(t *testing.T) {
			var order []string
			notes := func(what string) func(kahn.View) (bool, error) {
				return func(kahn.View) (bool, error) { order = append(order, what); return true, nil }
			}
			m := mapped("M", []int{1}, kahn.Map{Estimate: func(any) time.Duration { return 0 }})
			m.Sub = graph(kahn.Node{ID: "in", When: notes("item"), Do: func(context.Context, *kahn.Step) (any, error) {
				if len(order) == 1 {
					return nil, errStep
				}
				return nil, nil
			}})
			m.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: 10 * ms, Jitter: kahn.JitterNone}
			expires := kahn.Node{ID: "G", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: 10 * ms}, ContinueOnFail: true}
			s := subgraph("S", graph(expires, kahn.Node{ID: "x", When: notes("check"), After: []string{"G"}}))
			g := graph(kahn.Node{ID: "Z", Estimate: time.Hour})
			if mapFirst {
				g.Add(m, s)
			} else {
				g.Add(s, m)
			}
			try(t, g, nop, kahn.Limit(1))
			want := "[item item check]"
			if !mapFirst {
				want = "[item check item]"
			}
			require.Equal(t, want, fmt.Sprint(order))
		})
	}
}
