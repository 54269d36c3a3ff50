package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// planner has a step that returns graphs and records its calls.
type planner struct {
	paths
	graphs expansions
	states []any // the saved states with which the step was called
}

func (p *planner) step(step kahn.StepFunc) kahn.StepFunc {
	return p.count(func(ctx context.Context, s *kahn.Step) (any, error) {
		if g := p.graphs[s.Path()]; g != nil {
			p.mu.Lock()
			p.states = append(p.states, s.SavedState())
			p.mu.Unlock()
			return nil, kahn.Expand(g, nil, fmt.Sprint("plan of ", s.Path(), ", attempt ", s.Attempt()))
		}
		return step(ctx, s)
	})
}

func TestExpandGoesOn(t *testing.T) {
	xyz := func() *kahn.Graph { return graph(after("x"), after("y", "x"), after("z", "y")) }
	twice := kahn.Retry{MaxAttempts: 2, InitialDelay: ms, Jitter: kahn.JitterNone}

	for _, opts := range [][]kahn.Option{nil, {kahn.Limit(1)}, {kahn.Waves}} {
		inBubble(t, fmt.Sprintf("the step is called again, %v", opts), func(t *testing.T) {
			p := &planner{graphs: expansions{"E": xyz()}}
			g := graph(after("E"), after("B", "E"))
			r := left(t, g, p.step(takes(10*ms)), 15*ms, opts...)
			r = r.resume(g, p.step(takes(10*ms)), nil, opts...)
			r.expect("E:ok B:ok", "completed")
			if got := fmt.Sprint(p.states, p.n); got != "[<nil> plan of E, attempt 1] map[B:1 E:2 E/x:1 E/y:1 E/z:1]" {
				t.Errorf("called: %s", got)
			}
			if n := r.node("E"); n.Attempts != 1 || n.Output != "z" || n.Sub.Count(kahn.Completed) != 3 {
				t.Errorf("E is %+v", n)
			}
		})
	}
	inBubble(t, "no event tells of it", func(t *testing.T) {
		p := &planner{graphs: expansions{"E": xyz()}}
		g := graph(after("E"))
		rec := newRecorder()
		s := crashed(t, g, p.step(takes(10*ms)), 15*ms, kahn.OnEvent(rec.add))
		last := slices.IndexFunc(rec.all(), func(e kahn.Event) bool { return e.Type == event.NodeStarted && e.Path == "E/y" })
		r := trial{nil, t, nil, rec.all()[:last+1]}
		again := newRecorder()
		res, err := kahn.Execute(t.Context(), g, p.step(takes(10*ms)), kahn.OnEvent(again.add), kahn.Resume(s))
		r = trial{res, t, err, append(r.events, again.all()...)}
		r.expect("E:ok", "completed")
		checkEvents(t, g, res, r.events)
		r.count(event.NodeQueued, "E", 1)
		r.count(event.NodeStarted, "E", 1)
		r.count(event.NodeStarted, "E/y", 2)
		if r.node("E").Attempts != 1 || p.n["E"] != 2 || p.n["E/x"] != 1 {
			t.Errorf("called: %v", p.n)
		}
	})
	inBubble(t, "in the same attempt", func(t *testing.T) {
		p := &planner{graphs: expansions{"E": xyz()}}
		failing := p.step(func(ctx context.Context, s *kahn.Step) (any, error) {
			if p.n["E/x"] == 1 {
				return nil, errStep
			}
			return takes(10*ms)(ctx, s)
		})
		g := graph(kahn.Node{ID: "E", Retry: twice})
		r := left(t, g, failing, 15*ms).resume(g, failing, nil)
		r.expect("E:ok", "completed")
		if got := fmt.Sprint(p.states); got != "[<nil> <nil> plan of E, attempt 2]" || r.node("E").Attempts != 2 {
			t.Errorf("states %s, %d attempts", got, r.node("E").Attempts)
		}
	})

	changed := func(second kahn.StepFunc) func(ctx context.Context, s *kahn.Step) (any, error) {
		return func(ctx context.Context, s *kahn.Step) (any, error) {
			switch {
			case s.Path() != "E":
				return takes(10*ms)(ctx, s)
			case s.SavedState() != nil:
				return second(ctx, s)
			}
			return nil, kahn.Expand(xyz(), nil, "state")
		}
	}
	for name, c := range map[string]struct {
		step  kahn.StepFunc
		cause kahn.CauseKind
		is    error
	}{
		"another graph": {func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(graph(after("x")), nil, 1) }, kahn.CauseSubrun, kahn.ErrGraphChanged},
		"a value":       {func(context.Context, *kahn.Step) (any, error) { return 1, nil }, kahn.CauseSubrun, kahn.ErrGraphChanged},
		"a skip":        {func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Skip("no") }, kahn.CauseSubrun, kahn.ErrGraphChanged},
		"a wait":        {func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("", nil, nil) }, kahn.CauseSubrun, kahn.ErrGraphChanged},
		"an error":      {fails(ms), kahn.CauseStepError, errStep},
		"a panic":       {func(context.Context, *kahn.Step) (any, error) { panic("no") }, kahn.CausePanic, nil},
	} {
		inBubble(t, name, func(t *testing.T) {
			g := graph(after("E"))
			r := left(t, g, changed(c.step), 15*ms)
			r = r.resume(g, changed(c.step), nil)
			r.cause("E", c.cause)
			if n := r.node("E"); n.Attempts != 1 || c.is != nil && !errors.Is(n.Err, c.is) {
				t.Errorf("E is %+v", n)
			}
			r.count(event.NodeStarted, "E", 1)
			g = graph(kahn.Node{ID: "E", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: ms, RetryOn: []kahn.CauseKind{kahn.CauseStepError, kahn.CausePanic}}})
			r = left(t, g, changed(c.step), 15*ms).resume(g, changed(c.step), nil)
			r.expect("E:ok", "completed") // a new attempt has no state
			if n := r.node("E"); n.Attempts != 2 || n.Sub.Len() != 3 {
				t.Errorf("E is %+v", n)
			}
		})
	}
	inBubble(t, "it is left again before the graph is known", func(t *testing.T) {
		p := &planner{graphs: expansions{"E": graph(after("x"), gate("g"), after("y", "x", "g"))}}
		g := graph(after("E"))
		r := left(t, g, p.step(takes(10*ms)), 5*ms)
		slow := p.step(takes(10 * ms))
		for range 3 { // the step does not return in time
			rec := newRecorder()
			rn := new(kahn.Runner)
			run, err := rn.Start(t.Context(), g, func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.Path() == "E" {
					return untilStopped(ctx, s)
				}
				return slow(ctx, s)
			}, kahn.Resume(reload(t, r.Snapshot())), kahn.OnEvent(rec.add))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * ms)
			ctx, cancel := context.WithTimeout(t.Context(), ms)
			_ = rn.Shutdown(ctx)
			cancel()
			res, err := run.Wait()
			r = trial{res, t, err, append(r.events, rec.all()...)}
			checkEvents(t, g, res, r.events)
			if res.Status != kahn.RunSuspended {
				t.Fatalf("it is %v\n%s", res.Status, eventText(r.events))
			}
		}
		if got := fmt.Sprint(r.Snapshot().Waiting()); got != "[E/g]" {
			t.Errorf("waiting: %s", got)
		}
		r = r.resume(g, slow, map[string]any{"E/g": true})
		r.expect("E:ok", "completed")
		if n := r.node("E"); n.Attempts != 1 {
			t.Errorf("E is %+v", n)
		}
		r.count(event.NodeStarted, "E", 2) // E starts a second time when the nodes inside continue
	})
	for _, limit := range []int{0, 1, 2} {
		inBubble(t, fmt.Sprintf("a step that is interrupted returns its graph, limit %d", limit), func(t *testing.T) {
			g := graph(kahn.Node{ID: "E", Priority: 1}, after("B"), subgraph("S", graph(after("x"), kahn.Node{ID: "c", Cleanup: true})))
			step := func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.Path() == "E" {
					time.Sleep(10 * ms)
					return nil, kahn.Expand(xyz(), nil, "state")
				}
				return takes(10*ms)(ctx, s)
			}
			rn, rec := new(kahn.Runner), newRecorder()
			run, err := rn.Start(t.Context(), g, step, kahn.Limit(limit), kahn.OnEvent(rec.add))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * ms)
			if err := run.CancelNode("S"); err != nil { // the cleanup node inside still runs
				t.Error(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_ = rn.Shutdown(ctx)
			select {
			case <-run.Done():
			case <-time.After(time.Second):
				t.Fatalf("it has not ended\n%s", eventText(rec.all()))
			}
			res, err := run.Wait()
			r := trial{res, t, err, rec.all()}
			checkEvents(t, g, res, r.events)
			r = r.resume(g, step, nil, kahn.Limit(limit))
			r.expect("E:ok B:ok S:C", "cancelled")
			r.count(event.NodeCompleted, "S/c", 1)
			if n := r.node("E"); n.Attempts != 1 {
				t.Errorf("E is %+v", n)
			}
		})
	}
	inBubble(t, "what has ended", func(t *testing.T) {
		p := &planner{graphs: expansions{"E": xyz()}}
		g := graph(after("E"), gate("B", "E"))
		r := left(t, g, p.step(takes(10*ms)), 35*ms)
		if n := r.node("E"); n.Status != kahn.Completed {
			t.Fatalf("E is %+v", n)
		}
		again, err := kahn.Execute(t.Context(), g, takes(10*ms), kahn.Resume(r.Snapshot()))
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := again.Node("E"); n.Sub == nil || n.Sub.Count(kahn.Completed) != 3 {
			t.Errorf("in the same process E is %+v", n)
		}
		next := r.resume(g, neverStep(t), map[string]any{"B": true})
		if n := next.node("E"); n.Sub != nil || n.Output != "z" {
			t.Errorf("from a file E is %+v", n)
		}
		redriven := next.redrive(g, p.step(takes(10*ms)), "E")
		if n := redriven.node("E"); n.Sub == nil || n.Output != "z" {
			t.Errorf("driven again E is %+v", n)
		}
	})
	inBubble(t, "a run that is stopped before the graph is known", func(t *testing.T) {
		p := &planner{graphs: expansions{"E": graph(after("x"), gate("g"))}}
		g := graph(after("E"))
		r := left(t, g, p.step(takes(10*ms)), 5*ms)
		rec := newRecorder()
		run, err := kahn.Start(t.Context(), g, untilStopped, kahn.Resume(reload(t, r.Snapshot())), kahn.OnEvent(rec.add))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * ms)
		run.Cancel()
		res, err := run.Wait()
		r = trial{res, t, err, append(r.events, rec.all()...)}
		r.expect("E:C", "cancelled")
		checkEvents(t, g, res, r.events)
	})
	inBubble(t, "a store", func(t *testing.T) {
		store := new(store.Memory)
		p := &planner{graphs: expansions{"E": graph(after("x"), after("F", "x")), "E/F": xyz(), "M[1]": xyz()}}
		g := graph(after("E"), mapped("M", []int{1, 2}, kahn.Map{}))
		opts := []kahn.Option{kahn.Durable(store), kahn.RunID("r"), kahn.Encoding(kahn.Types{"ints": []int(nil)})}
		r := left(t, g, p.step(takes(10*ms)), 15*ms, opts...)
		r = r.goOn(g, p.step(takes(10*ms)), opts)
		r.expect("E:ok M:ok", "completed")
		for path, n := range p.n {
			if want := map[bool]int{false: 1, true: 2}[p.graphs[path] != nil]; n != want {
				t.Errorf("%s was called %d times", path, n)
			}
		}
	})
}

func TestExpandWaits(t *testing.T) {
	inner := func() *kahn.Graph { return graph(gate("g"), after("x", "g"), after("w")) }
	for _, opts := range [][]kahn.Option{nil, {kahn.Limit(1)}, {kahn.SuspendStop}} {
		inBubble(t, fmt.Sprintf("a signal by path and by token, %v", opts), func(t *testing.T) {
			step := expands(waitsOnce("E/w"), expansions{"E": inner()})
			r := tryControlled(t, t.Context(), graph(after("E")), step, func(run *kahn.Run) {
				time.Sleep(50 * ms)
				if got := fmt.Sprint(run.Waiting()[0].Node, run.Waiting()[1].Node, run.Status()); got != "E/gE/wsuspended" {
					t.Errorf("waiting: %s", got)
				}
				if err := errors.Join(run.Signal(context.Background(), "E/g", true), run.Signal(context.Background(), "E/w", 1)); err != nil {
					t.Error(err)
				}
			}, opts...)
			r.expect("E:ok", "completed")
		})
		inBubble(t, fmt.Sprintf("answers for what is inside of a graph that is not known, %v", opts), func(t *testing.T) {
			p := &planner{graphs: expansions{"E": graph(after("F")), "E/F": inner()}}
			g := graph(after("E"))
			r := left(t, g, p.step(waitsOnce("E/F/w")), 50*ms, opts...)
			for name, err := range map[string]error{"E/F/q": kahn.ErrUnknownGate, "E/F/x": kahn.ErrUnknownGate} {
				if _, got := kahn.Execute(t.Context(), g, nop, kahn.Resume(reload(t, r.Snapshot())), kahn.EarlySignals(map[string]any{name: 1})); !errors.Is(got, err) {
					t.Errorf("a signal for %s: %v", name, got)
				}
			}
			step := p.step(waitsOnce("E/F/w"))
			r = r.resume(g, step, map[string]any{"E/F/w": 1}, opts...)
			if got := fmt.Sprint(r.Status, r.Waiting[0].Node, len(r.Waiting)); got != "suspendedE/F/g1" {
				t.Errorf("it is %s", got)
			}
			r = r.resume(g, step, map[string]any{"E/F/g": true}, opts...)
			r.expect("E:ok", "completed")
			p.mu.Lock()
			defer p.mu.Unlock()
			if got := fmt.Sprint(p.n); got != "map[E:3 E/F:3 E/F/w:2 E/F/x:1]" {
				t.Errorf("called: %s", got)
			}
		})
	}
	inBubble(t, "a signal while the step is called again", func(t *testing.T) {
		g := graph(after("E"))
		step := expands(waitsOnce("E/w"), expansions{"E": inner()})
		r := left(t, g, step, 50*ms)
		slow := func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.Path() == "E" {
				time.Sleep(10 * ms)
			}
			return step(ctx, s)
		}
		rec := newRecorder()
		run, err := kahn.Start(t.Context(), g, slow, kahn.Resume(reload(t, r.Snapshot())), kahn.OnEvent(rec.add))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * ms)
		if err := errors.Join(run.Signal(context.Background(), "E/g", true), run.Signal(context.Background(), "E/w", 1)); err != nil {
			t.Error(err)
		}
		if err := run.Signal(context.Background(), "E/w", 2); !errors.Is(err, kahn.ErrAnswered) {
			t.Error(err)
		}
		if err := run.Signal(context.Background(), "E/z", 2); !errors.Is(err, kahn.ErrUnknownGate) {
			t.Error(err)
		}
		if got := reload(t, run.Snapshot()).Waiting(); len(got) > 0 {
			t.Errorf("a snapshot waits for %v", got)
		}
		res, err := run.Wait()
		r = trial{res, t, err, append(r.events, rec.all()...)}
		r.expect("E:ok", "completed")
		checkEvents(t, g, res, r.events)
	})
	// Encoding a value takes 20 ms, and steps that take less return their graphs during the encoding.
	for name, test := range map[string]struct {
		node    string
		graphs  expansions
		expands map[string]time.Duration
		signals map[string]any
	}{
		"a signal whose value is encoded while the graph becomes known": {
			node:    "E",
			graphs:  expansions{"E": graph(gate("g"))},
			expands: map[string]time.Duration{"E": 10 * ms},
			signals: map[string]any{"E/g": slowlyEncoded{20 * ms}},
		},
		"a signal whose value is encoded while one graph becomes known and another one in it is asked for": {
			node:    "D",
			graphs:  expansions{"D": graph(after("E"), after("F")), "D/E": graph(gate("g")), "D/F": graph(gate("h"))},
			expands: map[string]time.Duration{"D": 10 * ms, "D/E": ms, "D/F": time.Second},
			signals: map[string]any{"D/E/g": slowlyEncoded{20 * ms}, "D/F/h": true},
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			g := graph(after(test.node))
			step := expands(takes(ms), test.graphs)
			r := left(t, g, step, 50*ms)
			slow := func(ctx context.Context, s *kahn.Step) (any, error) {
				time.Sleep(test.expands[s.Path()])
				return step(ctx, s)
			}
			rec := newRecorder()
			run, err := kahn.Start(t.Context(), g, slow, kahn.Resume(reload(t, r.Snapshot())), kahn.Encoding(kahn.Types{"slow": slowlyEncoded{}}), kahn.OnEvent(rec.add))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * ms)
			for path, value := range test.signals {
				if err := run.Signal(context.Background(), path, value); err != nil {
					t.Error(err)
					run.Cancel()
				}
			}
			res, err := run.Wait()
			r = trial{res, t, err, append(r.events, rec.all()...)}
			r.expect(test.node+":ok", "completed")
			checkEvents(t, g, res, r.events)
		})
	}
	inBubble(t, "a signal for an expanded node inside of another one whose step waits for its turn", func(t *testing.T) {
		asks := kahn.Node{ID: "X", Priority: 1, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if _, ok := s.Resumed(); !ok {
				return nil, kahn.Suspend("", nil, nil)
			}
			time.Sleep(time.Second)
			return nil, nil
		}}
		g := graph(after("D"))
		step := expands(takes(ms), expansions{"D": graph(asks, after("E")), "D/E": graph(gate("g"))})
		r := left(t, g, step, 50*ms)
		rec := newRecorder()
		run, err := kahn.Start(t.Context(), g, step, kahn.Resume(reload(t, r.Snapshot())), kahn.EarlySignals(map[string]any{"D/X": 1}), kahn.Limit(1), kahn.OnEvent(rec.add))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * ms)
		s := reload(t, run.Snapshot()) // X has the only slot
		if got := s.Waiting(); !slices.Equal(got, []string{"D/E/g"}) {
			t.Errorf("the snapshot waits for %q", got)
		}
		run.Cancel()
		_, _ = run.Wait()
		if res, err := kahn.Execute(t.Context(), g, step, kahn.Resume(s), kahn.EarlySignals(map[string]any{"D/E/g": true})); err != nil || res.Status != kahn.RunCompleted {
			t.Error(err)
		}
	})
	inBubble(t, "a snapshot that is taken between signals has those before it", func(t *testing.T) {
		g := graph(after("D"))
		step := expands(takes(ms), expansions{"D": graph(gate("a"), subgraph("S", graph(gate("b"), gate("c"))), after("z", "a", "S"))})
		r := left(t, g, step, 50*ms)
		slow := func(ctx context.Context, s *kahn.Step) (any, error) {
			time.Sleep(time.Second)
			return step(ctx, s)
		}
		names := []string{"D/S/b", "D/a", "D/S/c"}
		for n := range len(names) + 1 { // the number of steps that return their graphs before the snapshot
			run, err := kahn.Start(t.Context(), g, slow, kahn.Resume(r.Snapshot()))
			if err != nil {
				t.Fatal(err)
			}
			var s *kahn.Snapshot
			for i, name := range names {
				if i == n {
					s = run.Snapshot()
				}
				if err := run.Signal(context.Background(), name, true); err != nil {
					t.Error(err)
				}
				if err := run.Signal(context.Background(), name, false); !errors.Is(err, kahn.ErrAnswered) {
					t.Error(err)
				}
			}
			if s == nil {
				s = run.Snapshot()
			}
			rest := map[string]any{}
			for _, name := range names[n:] {
				rest[name] = true
			}
			if got, want := slices.Sorted(slices.Values(s.Waiting())), slices.Sorted(maps.Keys(rest)); !slices.Equal(got, want) {
				t.Errorf("after %d signals the snapshot waits for %q, and not for %q", n, got, want)
			}
			if res, err := kahn.Execute(t.Context(), g, step, kahn.Resume(reload(t, s)), kahn.EarlySignals(rest)); err != nil || res.Status != kahn.RunCompleted {
				t.Errorf("after %d signals: %v", n, err)
			}
			if res, err := run.Wait(); err != nil || res.Status != kahn.RunCompleted {
				t.Error(err)
			}
		}
	})
	inBubble(t, "a step that waits before it returns its graph", func(t *testing.T) {
		g := graph(after("E"))
		step := func(_ context.Context, s *kahn.Step) (any, error) {
			answer, ok := s.Resumed()
			switch {
			case s.Path() != "E":
				return s.ID(), nil
			case !ok:
				return nil, kahn.Suspend("plan", nil, "first")
			}
			return nil, kahn.Expand(graph(kahn.Node{ID: answer.(string)}, gate("g")), nil, "second")
		}
		r := left(t, g, step, ms).resume(g, step, map[string]any{"plan": "x"})
		r = r.resume(g, step, map[string]any{"E/g": true})
		r.expect("E:ok", "completed")
		r.count(event.NodeCompleted, "E/x", 1)
	})
	inBubble(t, "a gate whose time is up while the run is away", func(t *testing.T) {
		g := graph(after("E"))
		step := expands(takes(ms), expansions{"E": graph(kahn.Node{ID: "g", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: 50 * ms}})})
		r := left(t, g, step, 10*ms)
		time.Sleep(100 * ms)
		r = r.resume(g, step, map[string]any{"E/g": true})
		r.cause("E", kahn.CauseSubrun)
		if n, _ := r.node("E").Sub.Node("g"); n.Cause.Kind != kahn.CauseGateTimeout {
			t.Errorf("E/g is %+v", n)
		}
	})
}

// slowlyEncoded is a value whose encoding takes a while.
type slowlyEncoded struct{ takes time.Duration }

func (v slowlyEncoded) MarshalJSON() ([]byte, error) {
	time.Sleep(v.takes)
	return []byte("true"), nil
}
