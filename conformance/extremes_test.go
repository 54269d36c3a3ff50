package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// Every option and field accepts its largest number: no number is truncated or overflows.
func TestExtremeNumbers(t *testing.T) {
	t.Parallel()
	const longest = time.Duration(math.MaxInt64)
	group := func(limit int) func(*kahn.Graph, *kahn.Node) {
		return func(g *kahn.Graph, n *kahn.Node) {
			g.Groups, n.Groups = []kahn.Group{{Name: "g", Limit: limit}}, []string{"g"}
		}
	}
	node := func(f func(*kahn.Node)) func(*kahn.Graph, *kahn.Node) {
		return func(_ *kahn.Graph, n *kahn.Node) { f(n) }
	}
	key := node(func(n *kahn.Node) { n.Key = "k" })
	cleanup := node(func(n *kahn.Node) { n.Cleanup = true })
	items := func(m kahn.Map) func(*kahn.Graph, *kahn.Node) {
		return node(func(n *kahn.Node) {
			m.Over = "items"
			n.Map, n.Params = &m, map[string]any{"items": []int{1}}
		})
	}
	retry := func(r kahn.Retry) func(*kahn.Graph, *kahn.Node) {
		return node(func(n *kahn.Node) {
			if r.MaxAttempts == 0 {
				r.MaxAttempts = 2
			}
			n.Retry = r
		})
	}
	for _, c := range []struct {
		name string
		set  func(*kahn.Graph, *kahn.Node)
		opt  kahn.Option
	}{
		{"Group.Limit 2^31-1", group(math.MaxInt32), nil},
		{"Group.Limit 2^31", group(1 << 31), nil},
		{"Group.Limit 2^32", group(1 << 32), nil},
		{"Group.Limit", group(math.MaxInt), nil},
		{"KeyLimit 2^31", key, kahn.KeyLimit(1 << 31)},
		{"KeyLimit 2^32", key, kahn.KeyLimit(1 << 32)},
		{"KeyLimit", key, kahn.KeyLimit(math.MaxInt)},
		{"Limit 2^32", nil, kahn.Limit(1 << 32)},
		{"Limit", nil, kahn.Limit(math.MaxInt)},
		{"Map.Limit 2^32", items(kahn.Map{Limit: 1 << 32}), nil},
		{"Map.Limit", items(kahn.Map{Limit: math.MaxInt}), nil},
		{"Map.ToleratedCount 2^32", items(kahn.Map{ToleratedCount: 1 << 32}), nil},
		{"Map.ToleratedCount", items(kahn.Map{ToleratedCount: math.MaxInt}), nil},
		{"Map.ToleratedPercent", items(kahn.Map{ToleratedPercent: 100}), nil},
		{"Retain", nil, kahn.Retain(math.MaxInt)},
		{"Priority", node(func(n *kahn.Node) { n.Priority = math.MaxInt }), nil},
		{"least Priority", node(func(n *kahn.Node) { n.Priority = math.MinInt }), nil},
		{"Estimate", node(func(n *kahn.Node) { n.Estimate = longest }), nil},
		{"Timeout", node(func(n *kahn.Node) { n.Timeout = longest }), nil},
		{"Timeout of a cleanup node", node(func(n *kahn.Node) { n.Timeout, n.Cleanup = longest, true }), nil},
		{"OverallTimeout", node(func(n *kahn.Node) { n.OverallTimeout = longest }), nil},
		{"both timeouts", node(func(n *kahn.Node) { n.Timeout, n.OverallTimeout = longest, longest }), nil},
		{"Timeout of the run", nil, kahn.Timeout(longest)},
		{"CancelGrace", nil, kahn.CancelGrace(longest)},
		{"CleanupTimeout", cleanup, kahn.CleanupTimeout(longest)},
		{"Retry.MaxAttempts", retry(kahn.Retry{MaxAttempts: math.MaxInt}), nil},
		{"Retry.MaxDelay", retry(kahn.Retry{MaxDelay: longest}), nil},
		{"Retry.MaxRetryAfter", retry(kahn.Retry{MaxRetryAfter: longest}), nil},
		{"Retry.Multiplier", retry(kahn.Retry{Multiplier: math.MaxFloat64}), nil},
		{"least Retry.Multiplier", retry(kahn.Retry{Multiplier: math.SmallestNonzeroFloat64}), nil},
		{"a retry that waits for ever less", retry(kahn.Retry{InitialDelay: longest, MaxDelay: ms, Multiplier: math.MaxFloat64}), nil},
		{"DefaultRetry", node(func(n *kahn.Node) { n.Retry = kahn.Retry{} }), kahn.Retry{MaxAttempts: math.MaxInt, Multiplier: math.MaxFloat64}},
	} {
		for _, limit := range []int{0, 1} { // with one slot, timers fire in order
			for _, nested := range []bool{false, true} {
				inBubble(t, fmt.Sprintf("%s/limit %d, nested %v", c.name, limit, nested), func(t *testing.T) {
					calls := 0
					n := kahn.Node{ID: "a", After: []string{"before"}, Retry: kahn.Retry{MaxAttempts: 2}}
					g := new(kahn.Graph)
					if c.set != nil {
						c.set(g, &n)
					}
					n.Do = func(ctx context.Context, s *kahn.Step) (any, error) {
						calls++
						if err := notOver(ctx); err != nil {
							t.Error(err)
						}
						if calls == 1 {
							return nil, errStep
						}
						return 1, nil
					}
					g.Add(kahn.Node{ID: "before", Do: takes(ms)}, n) // the clock then is past zero when n begins
					if nested {
						inner := g
						g = graph(kahn.Node{ID: "S", Sub: inner, Timeout: n.Timeout, OverallTimeout: n.OverallTimeout, Priority: n.Priority})
					}
					opts := []kahn.Option{kahn.Limit(limit)}
					if c.opt != nil {
						opts = append(opts, c.opt)
					}
					r := tryControlled(t, t.Context(), g, nil, func(run *kahn.Run) {
						hour := time.AfterFunc(time.Hour, func() { run.Cancel() }) // otherwise a run that hangs would hang the test
						t.Cleanup(func() { hour.Stop() })
					}, opts...)
					if r.Status != kahn.RunCompleted || calls != 2 {
						t.Errorf("%v after %d calls: %v\n%s", r.Status, calls, r.err, eventText(r.events))
					}
				})
			}
		}
	}
}

// notOver returns an error if the deadline of a context has passed, or if the context or a child of it
// has ended.
func notOver(ctx context.Context) error {
	if d, ok := ctx.Deadline(); ok && !d.After(time.Now()) {
		return fmt.Errorf("the deadline is %v, now is %v", d, time.Now())
	}
	sub, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	return errors.Join(ctx.Err(), sub.Err())
}

// Invalid numbers are refused before anything runs.
func TestNumbersThatMeanNothing(t *testing.T) {
	t.Parallel()
	two := []string{"x", "y"}
	loop := func(max int) *kahn.Loop { return &kahn.Loop{While: whileLess(2), MaxIterations: max} }
	bad := map[string]struct {
		n    kahn.Node
		kind error
	}{
		"AtLeast(0)":     {kahn.Node{After: two, Join: kahn.AtLeast(0)}, kahn.ErrBadJoin},
		"AtLeast(-1)":    {kahn.Node{After: two, Join: kahn.AtLeast(-1)}, kahn.ErrBadJoin},
		"AtLeast(2^24)":  {kahn.Node{After: two, Join: kahn.AtLeast(1 << 24)}, kahn.ErrBadJoin}, // the lower 24 bits of 2^24 are zero
		"AtLeast(2^32)":  {kahn.Node{After: two, Join: kahn.AtLeast(1<<32 + 1)}, kahn.ErrBadJoin},
		"AtLeast(max)":   {kahn.Node{After: two, Join: kahn.AtLeast(math.MaxInt)}, kahn.ErrBadJoin},
		"MaxIterations":  {kahn.Node{Sub: graph(after("z")), Loop: loop(math.MinInt)}, kahn.ErrBadValue},
		"gate":           {kahn.Node{Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: math.MinInt64}}, kahn.ErrBadValue},
		"Estimate":       {kahn.Node{Estimate: math.MinInt64}, kahn.ErrBadValue},
		"Timeout":        {kahn.Node{Timeout: math.MinInt64}, kahn.ErrBadValue},
		"OverallTimeout": {kahn.Node{OverallTimeout: math.MinInt64}, kahn.ErrBadValue},
		"MaxAttempts":    {kahn.Node{Retry: kahn.Retry{MaxAttempts: math.MinInt}}, kahn.ErrBadValue},
		"Multiplier NaN": {kahn.Node{Retry: kahn.Retry{Multiplier: math.NaN()}}, kahn.ErrBadValue},
		"MaxRetryAfter":  {kahn.Node{Retry: kahn.Retry{MaxRetryAfter: math.MinInt64}}, kahn.ErrBadValue},
	}
	for name, m := range map[string]kahn.Map{
		"Limit": {Limit: math.MinInt}, "ToleratedCount": {ToleratedCount: math.MinInt}, "percent NaN": {ToleratedPercent: math.NaN()},
		"percent infinite": {ToleratedPercent: math.Inf(1)}, "percent -infinite": {ToleratedPercent: math.Inf(-1)},
		"percent above 100": {ToleratedPercent: math.Nextafter(100, 101)}, "percent below 0": {ToleratedPercent: -math.SmallestNonzeroFloat64},
	} {
		m.Over = "items"
		bad["Map: "+name] = struct {
			n    kahn.Node
			kind error
		}{kahn.Node{Map: &m}, kahn.ErrBadValue}
	}
	for name, c := range bad {
		c.n.ID = "a"
		if _, err := graph(after("x"), after("y"), c.n).Compile(); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v, expected %v", name, err, c.kind)
		}
	}
	for name, opt := range map[string]kahn.Option{
		"KeyLimit": kahn.KeyLimit(math.MinInt), "Limit": kahn.Limit(math.MinInt), "Retain": kahn.Retain(math.MinInt),
		"Timeout": kahn.Timeout(math.MinInt64), "CancelGrace": kahn.CancelGrace(math.MinInt64),
	} {
		if _, err := kahn.Start(t.Context(), graph(after("x")), neverStep(t), opt); !errors.Is(err, kahn.ErrBadOption) {
			t.Errorf("%s: %v", name, err)
		}
	}
	g := graph()
	g.Groups = []kahn.Group{{Name: "g", Limit: math.MinInt}}
	if _, err := g.Compile(); !errors.Is(err, kahn.ErrBadValue) {
		t.Errorf("Group.Limit: %v", err)
	}
}

// Times that are summed over the lives of a run saturate instead of overflowing.
func TestExtremeTimesGoOn(t *testing.T) {
	const longest = time.Duration(math.MaxInt64)
	inBubble(t, "a gate", func(t *testing.T) {
		time.Sleep(ms)
		g := graph(kahn.Node{ID: "a", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: longest}})
		first := pause(t, g, nil)
		if d := first.Waiting[0].Deadline; d.Before(time.Now()) {
			t.Errorf("it waits until %v", d)
		}
		time.Sleep(time.Hour)
		first.resume(g, nil, map[string]any{"a": 1}).expect("a:ok", "completed")
	})
	inBubble(t, "an overall timeout", func(t *testing.T) {
		g := graph(kahn.Node{ID: "a", OverallTimeout: longest, Retry: kahn.Retry{MaxAttempts: 3}}, gate("g"))
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if err := notOver(ctx); err != nil {
				t.Error(err)
			}
			if _, again := s.Resumed(); again {
				return 1, nil
			}
			if s.Attempt() == 1 {
				return nil, errStep
			}
			return nil, kahn.Suspend("", nil, nil)
		}
		first := pause(t, g, step)
		time.Sleep(time.Hour)
		first.resume(g, step, map[string]any{"a": 1, "g": 1}).expect("a:ok g:ok", "completed")
	})
	inBubble(t, "a delay of no length at all out of one without end", func(t *testing.T) {
		policy := kahn.Retry{MaxAttempts: 4, InitialDelay: longest, MaxDelay: -1, Multiplier: math.MaxFloat64, Jitter: kahn.JitterFull}
		r := try(t, graph(kahn.Node{ID: "a", Retry: policy}), script(errStep, errStep, errStep), random(0))
		r.expect("a:ok", "completed")
		r.expectDelays("a", 0, 0, 0)
	})
	inBubble(t, "iterations", func(t *testing.T) {
		n := kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{While: whileLess(3), MaxIterations: math.MaxInt}}
		try(t, graph(n), takes(ms)).expect("L:ok", "completed")
	})
	inBubble(t, "a reader after the last number", func(t *testing.T) {
		run, err := kahn.Start(t.Context(), graph(after("a")), nothing)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := run.Wait(); err != nil {
			t.Fatal(err)
		}
		for e, err := range run.Events(t.Context(), math.MaxUint64) {
			t.Errorf("event %v, %v", e, err)
		}
	})
}
