package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// brokenCache is a cache whose methods return errors.
type brokenCache struct{}

func (brokenCache) Get(context.Context, string) ([]byte, bool, error) { return nil, false, errDisk }
func (brokenCache) Put(context.Context, string, []byte) error         { return errDisk }

// crashingCache is a cache that finds no entry, and whose Put calls the function, which does not return.
type crashingCache func()

func (crashingCache) Get(context.Context, string) ([]byte, bool, error) { return nil, false, nil }
func (c crashingCache) Put(context.Context, string, []byte) error       { c(); return nil }

// slowCache is a cache whose nth Get takes delays[n]. Get returns the value that was stored when Get was called.
type slowCache struct {
	values map[string][]byte
	first  []byte // if not nil, the first Get returns it
	asked  int
	delays []time.Duration
	mu     sync.Mutex
}

func (c *slowCache) Get(_ context.Context, key string) ([]byte, bool, error) {
	c.mu.Lock()
	v, ok := c.values[key]
	if c.asked == 0 && c.first != nil {
		v, ok = c.first, true
	}
	d := c.delays[c.asked]
	c.asked++
	c.mu.Unlock()
	time.Sleep(d)
	return v, ok, nil
}

func (c *slowCache) Put(_ context.Context, key string, value []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values[key] = value
	return nil
}

func TestScenarioMemo(t *testing.T) {
	memoized := func(step kahn.StepFunc, extra ...kahn.Node) *kahn.Graph {
		return graph(append([]kahn.Node{{ID: "A", Memo: "v1", Do: step}, after("B", "A")}, extra...)...)
	}

	inBubble(t, "what the contract refuses is not kept", func(t *testing.T) {
		var c calls
		memo := new(kahn.Memo)
		numbered := func(_ context.Context, s *kahn.Step) (any, error) { return s.Attempt(), nil }
		g := graph(kahn.Node{ID: "A", Memo: "v1", OutputSchema: wants(2), Do: c.count(numbered),
			Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: ms, RetryOn: []kahn.CauseKind{kahn.CauseContractOutput}}})
		for range 2 {
			r := try(t, g, nil, memo)
			r.expect("A:ok", "completed")
			if out := r.node("A").Output; out != 2 || c.of("A") != 2 {
				t.Errorf("output %v after %d calls", out, c.of("A"))
			}
		}
	})
	inBubble(t, "a cache that crashes fails the node alone", func(t *testing.T) {
		for _, judged := range []bool{false, true} {
			for kind, crash := range map[kahn.CauseKind]func(){kahn.CausePanic: func() { panic("no disk") }, kahn.CauseGoexit: runtime.Goexit} {
				a := kahn.Node{ID: "A", Memo: "v1"}
				if judged {
					a.OutputSchema = wants("A")
				}
				r := try(t, graph(a, after("B", "A"), after("C")), takes(ms), &kahn.Memo{Cache: crashingCache(crash)}, kahn.Limit(1))
				r.expect("A:F B:X C:ok", "failed")
				r.cause("A", kind)
			}
		}
	})
	inBubble(t, "228 a hit is not a call", func(t *testing.T) {
		var c calls
		memo := new(kahn.Memo)
		g := memoized(c.count(takes(time.Second)))
		in := func(n any) kahn.Option { return kahn.Inputs(map[string]any{"n": n}) }
		try(t, g, takes(0), memo, in(1)).expect("A:ok B:ok", "completed")
		r := try(t, g, takes(0), memo, in(1.0))
		r.expect("A:ok B:ok", "completed")
		r.count(event.NodeStarted, "A", 0)
		if n := r.node("A"); !n.Memoized || n.Output != "A" || n.Attempts != 0 || r.Duration != 0 || c.of("A") != 1 {
			t.Errorf("%+v after %v, %d calls", n, r.Duration, c.of("A"))
		}
		if done := r.find(event.NodeCompleted, "A")[0].Payload.(event.Completion); !done.Memoized {
			t.Errorf("%+v", done)
		}
		if r.node("B").Memoized {
			t.Error("B did not ask for it")
		}
		try(t, g, takes(0), memo, in(2)) // the step does not read the input
		try(t, g, takes(0))              // no Memo
		other := memoized(c.count(takes(time.Second)))
		try(t, graph(kahn.Node{ID: "A", Memo: "v2", Do: c.count(takes(0))}), takes(0), memo, in(1))
		if try(t, other, takes(0), memo, in(1)); c.of("A") != 3 {
			t.Errorf("%d calls", c.of("A"))
		}
	})

	inBubble(t, "229 failures are never kept", func(t *testing.T) {
		var c calls
		memo := new(kahn.Memo)
		g := memoized(c.count(func(context.Context, *kahn.Step) (any, error) {
			switch c.of("A") {
			case 1:
				return nil, errStep
			case 2:
				return nil, kahn.Skip("not today")
			case 3:
				panic("broken")
			}
			return "value", nil
		}))
		for _, want := range []string{"A:F B:X", "A:S/self B:S/up", "A:F B:X", "A:ok B:ok", "A:ok B:ok"} {
			r := try(t, g, takes(0), memo)
			if got := fmt.Sprintf("A:%s B:%s", shortStatus(r.node("A")), shortStatus(r.node("B"))); got != want {
				t.Errorf("got %s, expected %s", got, want)
			}
		}
		if c.of("A") != 4 {
			t.Errorf("%d calls", c.of("A"))
		}
	})

	inBubble(t, "runs at the same time share one call", func(t *testing.T) {
		var c calls
		memo := new(kahn.Memo)
		g := memoized(c.count(takes(time.Second)))
		var runs []*kahn.Run
		for range 10 {
			run, err := kahn.Start(t.Context(), g, takes(0), memo)
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, run)
		}
		synctest.Wait()
		hits := 0
		for _, run := range runs {
			res, err := run.Wait()
			if err != nil || res.Duration != time.Second {
				t.Errorf("%v after %v", err, res.Duration)
			}
			if n, _ := res.Node("A"); n.Memoized {
				hits++
			}
		}
		if c.of("A") != 1 || hits != 9 {
			t.Errorf("%d calls, %d hits", c.of("A"), hits)
		}
	})

	inBubble(t, "whoever waits takes over from one that fails, and may be stopped", func(t *testing.T) {
		var c calls
		memo := new(kahn.Memo)
		g := memoized(c.count(func(ctx context.Context, s *kahn.Step) (any, error) {
			if c.of("A") == 1 {
				time.Sleep(time.Second)
				(&testing.T{}).FailNow() // runtime.Goexit
			}
			return takes(time.Second)(ctx, s)
		}))
		first, _ := kahn.Start(t.Context(), g, takes(0), memo)
		synctest.Wait()
		second, _ := kahn.Start(t.Context(), g, takes(0), memo)
		third, _ := kahn.Start(t.Context(), g, takes(0), memo)
		synctest.Wait()
		third.Cancel()
		res, _ := third.Wait()
		if res.Status != kahn.RunCancelled || res.Duration != 0 {
			t.Errorf("the third is %v after %v", res.Status, res.Duration)
		}
		if res, _ := first.Wait(); res.Status != kahn.RunFailed {
			t.Errorf("the first is %v", res.Status)
		}
		if res, _ := second.Wait(); res.Status != kahn.RunCompleted || res.Duration != 2*time.Second || c.of("A") != 2 {
			t.Errorf("the second is %v after %v, %d calls", res.Status, res.Duration, c.of("A"))
		}
	})

	inBubble(t, "one call, however long the cache takes to answer", func(t *testing.T) {
		var c calls
		cache := &slowCache{values: map[string][]byte{}, delays: []time.Duration{0, 20 * ms}}
		memo := &kahn.Memo{Cache: cache}
		g := memoized(c.count(takes(10 * ms)))
		first, _ := kahn.Start(t.Context(), g, takes(0), memo)
		time.Sleep(ms)
		r := try(t, g, takes(0), memo)
		r.expect("A:ok B:ok", "completed")
		if n := r.node("A"); c.of("A") != 1 || !n.Memoized || n.Output != "A" || r.Duration != 9*ms || cache.asked != 1 {
			t.Errorf("%d calls, the cache was asked %d times: %+v after %v", c.of("A"), cache.asked, n, r.Duration)
		}
		_, _ = first.Wait()
	})

	inBubble(t, "a cache that answers too late has not answered", func(t *testing.T) {
		for _, grace := range []time.Duration{5 * ms, time.Minute} { // with a short grace the attempt is abandoned
			memo := &kahn.Memo{Cache: &slowCache{first: []byte("late"), delays: []time.Duration{time.Second}}}
			r := try(t, graph(kahn.Node{ID: "A", Memo: "1", Timeout: 5 * ms, Do: neverStep(t)}), nil, memo, kahn.CancelGrace(grace))
			r.expect("A:F", "failed")
			before := fmt.Sprintf("%+v", r.node("A"))
			time.Sleep(time.Minute)
			if n := fmt.Sprintf("%+v", r.node("A")); n != before {
				t.Errorf("after the end %s, which was %s", n, before)
			}
		}
	})

	inBubble(t, "what cannot be memoized is called", func(t *testing.T) {
		var c calls
		for _, opts := range [][]kahn.Option{{&kahn.Memo{Cache: brokenCache{}}}, {new(kahn.Memo), kahn.Inputs(map[string]any{"f": func() {}})}} {
			r := try(t, memoized(c.count(func(_ context.Context, s *kahn.Step) (any, error) {
				s.Root("f")
				return "A", nil
			})), takes(0), opts...)
			r.expect("A:ok B:ok", "completed")
			if len(r.find(event.NodeLog, "A")) == 0 {
				t.Errorf("nothing was logged:\n%s", eventText(r.events))
			}
		}
		if c.of("A") != 2 {
			t.Errorf("%d calls", c.of("A"))
		}
		if _, err := graph(kahn.Node{ID: "C", Memo: "v1", Test: func(kahn.View) (any, error) { return true, nil }}).Compile(); !errors.Is(err, kahn.ErrBadValue) {
			t.Error(err)
		}
		if _, err := kahn.Execute(t.Context(), graph(), nil, (*kahn.Memo)(nil)); !errors.Is(err, kahn.ErrBadOption) {
			t.Error(err)
		}
	})

	inBubble(t, "the inputs of a nested run are its composite's parameters", func(t *testing.T) {
		memo := new(kahn.Memo)
		inner := graph(after("first"), kahn.Node{ID: "A", After: []string{"first"}, Memo: "v1", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			x, _ := s.Root("x")
			return x, nil
		}})
		for _, x := range []int{1, 2, 1} {
			g := graph(kahn.Node{ID: "S", Sub: inner, Params: map[string]any{"x": x}})
			if r := try(t, g, takes(0), memo); r.Output() != x {
				t.Errorf("%v with the parameter %d", r.Output(), x)
			}
		}
	})

	inBubble(t, "a signal is no input", func(t *testing.T) {
		memo := new(kahn.Memo)
		g := memoized(func(_ context.Context, s *kahn.Step) (any, error) {
			if v, ok := s.Resumed(); ok {
				return v, nil
			}
			return nil, kahn.Suspend("", nil, nil)
		})
		for i := range 2 {
			r := tryControlled(t, t.Context(), g, takes(0), func(run *kahn.Run) {
				synctest.Wait()
				if err := run.Signal(context.Background(), "A", i); err != nil {
					t.Error(err)
				}
			}, memo)
			if n := r.node("A"); n.Output != i || n.Memoized {
				t.Errorf("%v, memoized %v", n.Output, n.Memoized)
			}
		}
	})
}
