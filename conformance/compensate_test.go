package conformance_test

import (
	"context"
	"errors"
	"fmt"
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
)

// undoLog records the compensations of nodes: "b" when the compensation of b begins, "b." when it has ended.
type undoLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *undoLog) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *undoLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, " ")
}

func (l *undoLog) undo(_ context.Context, s *kahn.Step) error {
	l.add(s.Path())
	return nil
}

// slow is a compensation that takes some time.
func (l *undoLog) slow(_ context.Context, s *kahn.Step) error {
	l.add(s.Path())
	time.Sleep(10 * ms)
	l.add(s.Path() + ".")
	return nil
}

var errSoldOut = errors.New("sold out")

func succeeds(v any) kahn.StepFunc {
	return func(context.Context, *kahn.Step) (any, error) { return v, nil }
}

// The successors of a node are undone before the node, and independent nodes at the same time. A node without a compensation delays no other
// node.
func TestCompensationGoesBackwards(t *testing.T) {
	bothModes(t, "diamond", func(t *testing.T, mode kahn.Mode) {
		var l undoLog
		do := func(id string, sources ...string) kahn.Node {
			return kahn.Node{ID: id, Do: succeeds(id), Compensate: l.slow, After: sources}
		}
		plain := kahn.Node{ID: "m", Do: succeeds(nil), After: []string{"b", "c"}}
		g := graph(do("a"), do("b", "a"), do("c", "a"), plain, do("d", "m"), do("z"), kahn.Node{ID: "x", Do: always(errSoldOut), After: []string{"d", "z"}})
		r := try(t, g, nil, mode)
		require.ErrorIs(t, r.err, errSoldOut)
		r.expect("a:ok b:ok c:ok m:ok d:ok z:ok x:F", "failed")
		at := map[string]time.Duration{}
		for _, e := range r.events {
			if e.Type == event.NodeCompensating {
				at[e.Node] = r.since(e)
			}
		}
		require.Equal(t, map[string]time.Duration{"d": 0, "z": 0, "b": 10 * ms, "c": 10 * ms, "a": 20 * ms}, at)
		for _, id := range []string{"a", "b", "c", "d", "z"} {
			require.Equal(t, kahn.CompensationDone, r.node(id).Compensation, id)
		}
		require.Equal(t, kahn.CompensationNone, r.node("m").Compensation)
	})
}

// A node whose effect is unknown is undone, too, but not a node that reports no effect or has not begun.
func TestCompensationOfUnknownEffects(t *testing.T) {
	bothModes(t, "all", func(t *testing.T, mode kahn.Mode) {
		var l undoLog
		certain := map[string]bool{}
		outputs := map[string]any{}
		undo := func(ctx context.Context, s *kahn.Step) error {
			l.mu.Lock()
			outputs[s.ID()], certain[s.ID()] = s.Compensated()
			l.mu.Unlock()
			return nil
		}
		node := func(id string, do kahn.StepFunc) kahn.Node { return kahn.Node{ID: id, Do: do, Compensate: undo} }
		slow := node("slow", func(ctx context.Context, _ *kahn.Step) (any, error) { <-ctx.Done(); return nil, ctx.Err() })
		slow.Timeout = 10 * ms
		twice := node("twice", func(_ context.Context, s *kahn.Step) (any, error) {
			if s.Attempt() == 1 {
				return nil, errors.New("connection reset")
			}
			return nil, kahn.NoEffect(errSoldOut)
		})
		twice.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: -1}
		saved := node("saved", always(errSoldOut))
		saved.Fallback = func(context.Context, error) (any, error) { return "other shop", nil }
		deaf := node("deaf", func(context.Context, *kahn.Step) (any, error) { time.Sleep(time.Hour); return nil, nil })
		deaf.Timeout = 10 * ms
		later := node("later", succeeds(1))
		later.After = []string{"none"}
		g := graph(node("done", succeeds("receipt")), node("failed", always(errSoldOut)), node("none", always(kahn.NoEffect(errSoldOut))), slow, twice, saved,
			deaf, later, node("panics", func(context.Context, *kahn.Step) (any, error) { panic("oh") }),
			node("exits", func(context.Context, *kahn.Step) (any, error) { runtime.Goexit(); return nil, nil }),
			node("skips", always(kahn.Skip("nothing to do"))))
		r := try(t, g, nil, mode, kahn.CancelGrace(5*ms))
		require.Equal(t, map[string]bool{"done": true, "failed": false, "slow": false, "twice": false, "saved": false, "deaf": false, "panics": false, "exits": false}, certain)
		require.Equal(t, "receipt", outputs["done"])
		require.Equal(t, "other shop", outputs["saved"])
		require.Nil(t, outputs["failed"])
		require.Equal(t, kahn.RunFailed, r.Status)
		time.Sleep(time.Hour)
	})
}

// A run that completes undoes nothing, even if failures were handled.
func TestNoCompensationOfCompletedRuns(t *testing.T) {
	var l undoLog
	n := func(id string, do kahn.StepFunc, in ...kahn.Edge) kahn.Node {
		return kahn.Node{ID: id, Do: do, Compensate: l.undo, In: in}
	}
	bothModes(t, "caught", func(t *testing.T, mode kahn.Mode) {
		g := graph(n("a", succeeds(1)), n("b", always(errSoldOut), kahn.Edge{From: "a"}), n("c", succeeds(2), kahn.Edge{From: "b", On: kahn.OnFailure}))
		r := try(t, g, nil, mode)
		r.expect("a:ok b:F c:ok", "completed+d")
		require.Empty(t, l.String())
		require.Equal(t, kahn.CompensationNone, r.node("b").Compensation)
	})
}

// Compensations run after cleanup nodes that had started, and before the other cleanup nodes and the end node.
func TestCompensationBeforeCleanup(t *testing.T) {
	bothModes(t, "order", func(t *testing.T, mode kahn.Mode) {
		var l undoLog
		log := func(d time.Duration) kahn.StepFunc {
			return func(_ context.Context, s *kahn.Step) (any, error) {
				l.add(s.ID())
				time.Sleep(d)
				return nil, nil
			}
		}
		g := graph(
			kahn.Node{ID: "a", Do: log(0), Compensate: func(_ context.Context, s *kahn.Step) error { l.add("undo-" + s.ID()); time.Sleep(10 * ms); return nil }},
			kahn.Node{ID: "x", Do: always(errSoldOut), After: []string{"a"}},
			kahn.Node{ID: "tidy", Cleanup: true, Do: log(0), After: []string{"x"}},
			kahn.Node{ID: "guarded", Cleanup: true, Do: log(0), When: func(kahn.View) (bool, error) { l.add("guard"); return true, nil }, After: []string{"x"}},
			kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: log(0)},
		)
		r := try(t, g, nil, mode, kahn.Limit(1))
		r.expect("a:ok x:F tidy:ok guarded:ok end:ok", "failed")
		require.Equal(t, "a undo-a", strings.Join(l.lines[:2], " "))
		require.Equal(t, "end", l.lines[len(l.lines)-1])
		require.ElementsMatch(t, []string{"tidy", "guard", "guarded"}, l.lines[2:5])
	})
	bothModes(t, "a composite that has started is attempted again meanwhile", func(t *testing.T, mode kahn.Mode) {
		var l undoLog
		tries := graph(kahn.Node{ID: "try", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if l.add("try"); strings.Count(l.String(), "try") == 1 {
				return nil, errSoldOut
			}
			return nil, nil
		}})
		g := graph(
			kahn.Node{ID: "a", Do: succeeds(1), Compensate: func(context.Context, *kahn.Step) error {
				l.add("undo")
				time.Sleep(time.Hour)
				l.add("undone")
				return nil
			}},
			kahn.Node{ID: "x", Do: fails(time.Second), After: []string{"a"}},
			kahn.Node{ID: "tidy", Cleanup: true, Sub: tries, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Minute, Jitter: kahn.JitterNone}, After: []string{"a"}},
		)
		r := try(t, g, nil, mode)
		r.expect("a:ok x:F tidy:ok", "failed")
		require.Equal(t, "try undo try undone", l.String())
	})
}

// If all nodes have completed, and then the end node fails or its verdict fails the run, the completed nodes are undone. If nodes were undone, an
// end node cannot complete the run.
func TestCompensationAndVerdicts(t *testing.T) {
	for name, end := range map[string]kahn.StepFunc{
		"verdict": succeeds(kahn.EndVerdict{Status: kahn.RunFailed}),
		"failure": always(errSoldOut),
	} {
		bothModes(t, name, func(t *testing.T, mode kahn.Mode) {
			var l undoLog
			g := graph(kahn.Node{ID: "a", Do: succeeds(1), Compensate: l.undo}, kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: end})
			r := try(t, g, nil, mode)
			require.Equal(t, kahn.RunFailed, r.Status)
			require.Equal(t, "a", l.String())
			require.Equal(t, kahn.CompensationDone, r.node("a").Compensation)
		})
	}
	bothModes(t, "completes", func(t *testing.T, mode kahn.Mode) {
		var l undoLog
		g := graph(kahn.Node{ID: "a", Do: succeeds(1), Compensate: l.undo}, kahn.Node{ID: "x", Do: always(errSoldOut)},
			kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: succeeds(kahn.EndVerdict{Status: kahn.RunCompleted})})
		r := try(t, g, nil, mode)
		require.Equal(t, "a", l.String())
		require.Equal(t, kahn.RunFailed, r.Status)
	})
	bothModes(t, "a cleanup node fails the run", func(t *testing.T, mode kahn.Mode) {
		var l undoLog
		g := graph(kahn.Node{ID: "a", Do: succeeds(1), Compensate: l.undo}, kahn.Node{ID: "tidy", Cleanup: true, Do: always(errSoldOut), After: []string{"a"}},
			kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: func(context.Context, *kahn.Step) (any, error) { l.add("end"); return nil, nil }})
		r := try(t, g, nil, mode)
		require.Equal(t, "a end", l.String())
		require.Equal(t, kahn.RunFailed, r.Status)
	})
}

// A compensation is attempted ten times, and each attempt may take its timeout. If all attempts fail, the run fails.
func TestCompensationFails(t *testing.T) {
	bothModes(t, "for good", func(t *testing.T, mode kahn.Mode) {
		var last error
		attempts := 0
		g := graph(
			kahn.Node{ID: "a", Do: succeeds(1), CompensateTimeout: 10 * ms, Compensate: func(ctx context.Context, s *kahn.Step) error {
				attempts++
				require.Equal(t, attempts, s.Attempt())
				require.True(t, s.Compensating())
				last = s.LastErr()
				<-ctx.Done()
				return nil
			}},
			kahn.Node{ID: "b", Do: succeeds(1), Compensate: func(context.Context, *kahn.Step) error { return kahn.Permanent(errors.New("closed")) }},
			kahn.Node{ID: "x", Do: always(errSoldOut), After: []string{"a", "b"}},
		)
		r := try(t, g, nil, mode, kahn.Random(func() float64 { return 0.5 }))
		require.Equal(t, 10, attempts)
		require.ErrorIs(t, last, kahn.ErrTimeout)
		require.Equal(t, kahn.CauseCompensationFailed, r.Cause.Kind)
		require.ErrorIs(t, r.err, kahn.ErrCompensation)
		require.ErrorIs(t, r.err, errSoldOut)
		require.Equal(t, kahn.CompensationFailed, r.node("a").Compensation)
		require.ErrorIs(t, r.node("a").CompensationErr, kahn.ErrTimeout)
		require.ErrorContains(t, r.node("b").CompensationErr, "closed")
		require.ErrorContains(t, r.err, `node "b": compensation failed: closed`)
		require.Equal(t, "a:ok b:ok x:F", undoneStatuses(r))
	})
	bothModes(t, "cancelled stays", func(t *testing.T, mode kahn.Mode) {
		g := graph(
			kahn.Node{ID: "a", Do: succeeds(1), Compensate: func(context.Context, *kahn.Step) error { return kahn.Permanent(errors.New("closed")) }},
			kahn.Node{ID: "b", Do: func(ctx context.Context, _ *kahn.Step) (any, error) { <-ctx.Done(); return nil, ctx.Err() }, After: []string{"a"}},
		)
		r := tryControlled(t, t.Context(), g, nil, func(run *kahn.Run) { synctest.Wait(); _ = run.Cancel() }, mode)
		require.Equal(t, kahn.RunCancelled, r.Status)
		require.ErrorIs(t, r.err, kahn.ErrCompensation)
	})
	bothModes(t, "panics and exits", func(t *testing.T, mode kahn.Mode) {
		g := graph(
			kahn.Node{ID: "a", Do: succeeds(1), Compensate: func(context.Context, *kahn.Step) error { panic("oh") }},
			kahn.Node{ID: "b", Do: succeeds(1), Compensate: func(context.Context, *kahn.Step) error { runtime.Goexit(); return nil }},
			kahn.Node{ID: "x", Do: always(errSoldOut), After: []string{"a", "b"}},
		)
		r := try(t, g, nil, mode)
		require.ErrorContains(t, r.node("a").CompensationErr, "oh")
		require.ErrorIs(t, r.node("b").CompensationErr, kahn.ErrGoexit)
	})
	bothModes(t, "deaf", func(t *testing.T, mode kahn.Mode) {
		g := graph(
			kahn.Node{ID: "a", Do: succeeds(1), CompensateTimeout: 10 * ms, Compensate: func(context.Context, *kahn.Step) error { time.Sleep(time.Hour); return nil }},
			kahn.Node{ID: "x", Do: always(errSoldOut), After: []string{"a"}},
		)
		r := try(t, g, nil, mode, kahn.CancelGrace(5*ms))
		require.Equal(t, kahn.CompensationFailed, r.node("a").Compensation)
		require.Equal(t, []string{"a"}, r.Abandoned)
		time.Sleep(time.Hour)
	})
}

func undoneStatuses(r trial) string {
	var parts []string
	for n := range r.Nodes() {
		parts = append(parts, n.ID+":"+shortStatus(n))
	}
	return strings.Join(parts, " ")
}

// A stop of the run begins compensations, but does not interrupt running ones. A second AbortAll interrupts them.
func TestCompensationAndStops(t *testing.T) {
	waits := func(ctx context.Context, _ *kahn.Step) (any, error) { <-ctx.Done(); return nil, ctx.Err() }
	for name, stop := range map[string]func(*kahn.Run, context.CancelFunc){
		"cancel": func(r *kahn.Run, _ context.CancelFunc) { _ = r.Cancel() },
		"abort":  func(r *kahn.Run, _ context.CancelFunc) { _ = r.AbortAll(nil) },
		"ctx":    func(_ *kahn.Run, cancel context.CancelFunc) { cancel() },
		"time":   func(*kahn.Run, context.CancelFunc) { time.Sleep(100 * ms) },
		"twice":  func(r *kahn.Run, _ context.CancelFunc) { _ = r.Cancel(); time.Sleep(5 * ms); _ = r.Cancel() },
	} {
		bothModes(t, name, func(t *testing.T, mode kahn.Mode) {
			var l undoLog
			g := graph(kahn.Node{ID: "a", Do: succeeds(1), Compensate: l.slow}, kahn.Node{ID: "b", Do: waits, Compensate: l.slow, After: []string{"a"}},
				kahn.Node{ID: "c", Do: succeeds(1), Compensate: l.slow, After: []string{"b"}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := tryControlled(t, ctx, g, nil, func(run *kahn.Run) { synctest.Wait(); stop(run, cancel) }, mode, kahn.Timeout(100*ms))
			require.Equal(t, "b b. a a.", l.String())
			require.NotEqual(t, kahn.RunCompleted, r.Status)
			require.Equal(t, kahn.CompensationDone, r.node("b").Compensation)
			if name == "time" {
				require.Equal(t, event.RunTimedOut, r.last())
			}
		})
	}
	bothModes(t, "a second AbortAll", func(t *testing.T, mode kahn.Mode) {
		var l undoLog
		stops := func(ctx context.Context, s *kahn.Step) error { l.add(s.ID()); <-ctx.Done(); return context.Cause(ctx) }
		g := graph(kahn.Node{ID: "a", Do: succeeds(1), Compensate: stops}, kahn.Node{ID: "b", Do: waits, Compensate: stops, After: []string{"a"}},
			kahn.Node{ID: "late", Do: waits, After: []string{"a"}, Compensate: func(context.Context, *kahn.Step) error { return errors.New("again") }})
		bored := errors.New("bored")
		r := tryControlled(t, t.Context(), g, nil, func(run *kahn.Run) {
			synctest.Wait()
			_ = run.Cancel()
			time.Sleep(10 * ms)
			_ = run.AbortAll(bored)
		}, mode)
		require.Equal(t, "b", l.String())
		require.Equal(t, kahn.RunCancelled, r.Status)
		require.ErrorIs(t, r.node("b").CompensationErr, bored)
		require.ErrorIs(t, r.node("a").CompensationErr, bored)
		require.ErrorIs(t, r.node("late").CompensationErr, bored)
	})
	// If the attempt of a composite fails, the completed nodes inside are undone.
	do := func(ctx context.Context, s *kahn.Step) (any, error) {
		if strings.Contains(s.Path(), "[0]") || strings.Contains(s.Path(), "#1") {
			return 1, nil
		}
		<-ctx.Done()
		return nil, kahn.NoEffect(ctx.Err())
	}
	var l undoLog
	x := kahn.Node{ID: "x", Do: do, Compensate: func(ctx context.Context, s *kahn.Step) error {
		l.add(s.Path())
		<-ctx.Done()
		return context.Cause(ctx)
	}}
	items, many := map[string]any{"items": []int{0, 1}}, &kahn.Map{Over: "items"}
	steps := x
	steps.Params, steps.Map = items, many
	again := &kahn.Loop{MaxIterations: 3, While: func(kahn.View) (bool, error) { return true, nil }}
	for name, node := range map[string]kahn.Node{
		"x[0]":     steps,
		"M[0]/x":   {ID: "M", Sub: graph(x), Params: items, Map: many},
		"L#1/x":    {ID: "L", Sub: graph(x), Loop: again},
		"L#1/S/x":  {ID: "L", Sub: graph(kahn.Node{ID: "S", Sub: graph(x)}), Loop: again},
		"S/M[0]/x": {ID: "S", Sub: graph(kahn.Node{ID: "M", Sub: graph(x), Params: items, Map: many})},
		"M[0]/e/x": {ID: "M", Sub: graph(kahn.Node{ID: "e", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(graph(x), nil, nil) }}), Params: items, Map: many},
	} {
		bothModes(t, "a second AbortAll while "+name+" is undone", func(t *testing.T, mode kahn.Mode) {
			l.lines = nil
			bored := errors.New("bored")
			r := tryControlled(t, t.Context(), graph(node), nil, func(run *kahn.Run) {
				synctest.Wait()
				_ = run.AbortAll(nil)
				time.Sleep(10 * ms)
				require.Equal(t, name, l.String())
				_ = run.AbortAll(bored)
			}, mode)
			require.Equal(t, name, l.String())
			require.Equal(t, 10*ms, r.Duration)
			require.Equal(t, kahn.CauseCompensationFailed, r.Cause.Kind)
			require.ErrorIs(t, r.err, bored)
		})
	}
}

// Compensations take slots of groups and keys, but not slots of the run's limit.
func TestCompensationTakesSlots(t *testing.T) {
	bothModes(t, "slots", func(t *testing.T, mode kahn.Mode) {
		var l undoLog
		node := func(id string) kahn.Node { return kahn.Node{ID: id, Do: succeeds(1), Compensate: l.slow} }
		grouped, keyed := func(id string) kahn.Node { n := node(id); n.Groups = []string{"db"}; return n }, func(id string) kahn.Node { n := node(id); n.Key = "k"; return n }
		g := graph(grouped("a"), grouped("b"), grouped("c"), keyed("d"), keyed("e"), node("f"), node("g"),
			kahn.Node{ID: "x", Do: always(errSoldOut), After: []string{"a", "b", "c", "d", "e", "f", "g"}})
		g.Groups = []kahn.Group{{Name: "db", Limit: 2}}
		r := try(t, g, nil, mode, kahn.Limit(1), kahn.KeyLimit(1))
		begun := map[time.Duration]int{}
		for _, e := range r.events {
			if e.Type == event.NodeCompensating {
				begun[r.since(e)]++
			}
		}
		require.Equal(t, map[time.Duration]int{0: 5, 10 * ms: 2}, begun)
	})
}

// With CompensateBy, the run's step function undoes the node. It gets the kind and config of the compensation, and another idempotency key than
// for the step. Middleware gets the same.
func TestCompensationByKind(t *testing.T) {
	bothModes(t, "kind", func(t *testing.T, mode kahn.Mode) {
		var l undoLog
		keys := map[string]bool{}
		step := func(_ context.Context, s *kahn.Step) (any, error) {
			keys[s.IdempotencyKey()] = true
			amount, _ := s.Param("amount")
			l.add(fmt.Sprint(s.Kind(), ":", s.Config(), ":", amount))
			if s.Kind() == "refuse" {
				return nil, errSoldOut
			}
			return "receipt", nil
		}
		g := graph(
			kahn.Node{ID: "pay", Kind: "charge", Config: "eur", Params: map[string]any{"amount": 7}, CompensateBy: &kahn.CompensateBy{Kind: "refund", Config: "slowly"}},
			kahn.Node{ID: "x", Kind: "refuse", After: []string{"pay"}},
		)
		seen := 0
		use := kahn.Use(func(next kahn.StepFunc) kahn.StepFunc {
			return func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.Compensating() {
					seen++
				}
				return next(context.WithValue(ctx, &seen, 1), s)
			}
		})
		try(t, g, step, mode)
		try(t, g, step, mode, use)
		one := "charge:eur:7 refuse:<nil>:<nil> refund:slowly:7"
		require.Equal(t, one+" "+one, l.String())
		require.Equal(t, 1, seen)
		require.Len(t, keys, 6)
	})
}

// Compile refuses an invalid compensation, and a compensation of a node that is never undone.
func TestCompensationIsRefused(t *testing.T) {
	undo := func(context.Context, *kahn.Step) error { return nil }
	for name, n := range map[string]kahn.Node{
		"cleanup":   {ID: "n", Cleanup: true, Compensate: undo},
		"end":       {ID: "n", Kind: kahn.KindEnd, Compensate: undo},
		"gate":      {ID: "n", Kind: kahn.KindGate, Compensate: undo},
		"condition": {ID: "n", Test: func(kahn.View) (any, error) { return true, nil }, Compensate: undo},
		"asks":      {ID: "n", Kind: kahn.KindCondition, Do: succeeds("true"), CompensateBy: &kahn.CompensateBy{Kind: "undo"}},
		"trigger":   {ID: "n", Kind: kahn.KindTrigger, Compensate: undo},
		"both":      {ID: "n", Do: succeeds(1), Compensate: undo, CompensateBy: &kahn.CompensateBy{Kind: "undo"}},
		"neither":   {ID: "n", Do: succeeds(1), CompensateTimeout: time.Second},
		"kindless":  {ID: "n", Do: succeeds(1), CompensateBy: &kahn.CompensateBy{}},
		"negative":  {ID: "n", Do: succeeds(1), Compensate: undo, CompensateTimeout: -1},
		"retry":     {ID: "n", Do: succeeds(1), Compensate: undo, CompensateRetry: kahn.Retry{MaxAttempts: -1}},
	} {
		_, err := graph(n).Compile()
		require.ErrorIs(t, err, kahn.ErrBadValue, name)
		var at *kahn.Problem
		require.ErrorAs(t, err, &at, name)
		if !strings.HasPrefix(at.Field, "Compensate") && name != "gate" && name != "trigger" { // gates and triggers have further problems
			t.Errorf("%s: field %q: %v", name, at.Field, err)
		}
		if !strings.Contains(err.Error(), "is never undone") && slices.Contains([]string{"cleanup", "end", "gate", "condition", "asks", "trigger"}, name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := kahn.Execute(t.Context(), graph(kahn.Node{ID: "n", Do: succeeds(1), CompensateBy: &kahn.CompensateBy{Kind: "undo"}}), nil)
	require.ErrorIs(t, err, kahn.ErrNoStep)
}

// The events of compensations come after the nodes' end events and before the run's end event.
func TestCompensationEvents(t *testing.T) {
	bothModes(t, "events", func(t *testing.T, mode kahn.Mode) {
		g := graph(kahn.Node{ID: "a", Do: succeeds(1), Compensate: func(_ context.Context, s *kahn.Step) error {
			if s.Attempt() == 1 {
				return errors.New("busy")
			}
			return nil
		}}, kahn.Node{ID: "x", Do: always(errSoldOut), After: []string{"a"}})
		r := try(t, g, nil, mode, kahn.Random(func() float64 { return 0 }))
		var got []string
		for _, e := range r.events[slices.IndexFunc(r.events, func(e kahn.Event) bool { return e.Type == event.NodeFailed })+1:] {
			line := fmt.Sprint(e.Type, " ", e.Node, " ", e.Attempt)
			if p, ok := e.Payload.(event.Compensation); ok {
				line = fmt.Sprint(line, " ", p.Certain, " ", p.Err, " ", p.Duration)
			}
			got = append(got, line)
		}
		got = slices.DeleteFunc(got, func(line string) bool { return strings.HasPrefix(line, "wave") })
		require.Equal(t, []string{
			"node.compensating a 1 true <nil> 0s", "node.compensating a 2 true busy 0s", "node.compensated a 2 false <nil> 250ms", "run.failed  0",
		}, got)
	})
}

// A State without a Run cannot undo nodes, so NewState refuses a graph with compensations.
func TestCompensationIsRefusedElsewhere(t *testing.T) {
	g := graph(subgraph("S", graph(kahn.Node{ID: "a", Do: succeeds(1), Compensate: func(context.Context, *kahn.Step) error { return nil }})))
	plan := compiled(t, g)
	_, err := kahn.NewState(plan)
	require.ErrorIs(t, err, kahn.ErrBadOption)
	require.ErrorContains(t, err, "the graph has nodes with a Compensate, which a State cannot undo: use a Coordinator")
}

// A nested run that fails is undone when it ends, before its composite is attempted again or a node handles the failure. If the outer run fails,
// completed nested runs are undone, the last iteration first. If their composite has a Compensate function, this function is called instead.
func TestCompensationInside(t *testing.T) {
	step := func(l *undoLog, id string, do kahn.StepFunc, sources ...string) kahn.Node {
		return kahn.Node{ID: id, Do: do, Compensate: l.undo, After: sources}
	}
	bothModes(t, "again", func(t *testing.T, mode kahn.Mode) {
		var l undoLog
		attempts := 0
		sub := graph(step(&l, "pay", succeeds(1)), kahn.Node{ID: "ship", After: []string{"pay"}, Do: func(context.Context, *kahn.Step) (any, error) {
			l.add("ship")
			if attempts++; attempts == 1 {
				return nil, errSoldOut
			}
			return nil, nil
		}})
		s := subgraph("S", sub)
		s.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: -1}
		r := try(t, graph(s), nil, mode)
		r.expect("S:ok", "completed")
		require.Equal(t, "ship S/pay ship", l.String())
	})
	bothModes(t, "handled", func(t *testing.T, mode kahn.Mode) {
		var l undoLog
		g := graph(step(&l, "a", succeeds(1)), subgraph("S", graph(step(&l, "pay", succeeds(1)), step(&l, "ship", always(errSoldOut), "pay")), "a"),
			kahn.Node{ID: "sorry", In: []kahn.Edge{{From: "S", On: kahn.OnFailure}}, Do: func(context.Context, *kahn.Step) (any, error) { l.add("sorry"); return nil, nil }})
		r := try(t, g, nil, mode)
		r.expect("a:ok S:F sorry:ok", "completed+d")
		require.Equal(t, "S/ship S/pay sorry", l.String())
	})
	bothModes(t, "loop", func(t *testing.T, mode kahn.Mode) {
		var l undoLog
		loop := subgraph("L", graph(step(&l, "x", succeeds(1)), step(&l, "y", succeeds(1), "x")))
		loop.Loop = &kahn.Loop{MaxIterations: 9, While: whileLess(2)}
		items := mapped("M", numbers(2), kahn.Map{})
		items.Do, items.Compensate, items.After = succeeds(1), l.undo, []string{"L"}
		r := try(t, graph(loop, items, kahn.Node{ID: "x", Do: always(errSoldOut), After: []string{"M"}}), nil, mode)
		require.ElementsMatch(t, []string{"M[0]", "M[1]"}, l.lines[:2])
		require.Equal(t, []string{"L#2/y", "L#2/x", "L#1/y", "L#1/x"}, l.lines[2:])
		require.Equal(t, kahn.CompensationDone, r.node("L").Compensation)
		require.Equal(t, kahn.CompensationDone, r.node("M").Compensation)
	})
	bothModes(t, "own", func(t *testing.T, mode kahn.Mode) {
		var l undoLog
		s := subgraph("S", graph(step(&l, "pay", succeeds("receipt"))))
		s.Compensate = func(_ context.Context, s *kahn.Step) error {
			output, certain := s.Compensated()
			l.add(fmt.Sprint(s.Path(), " ", output, " ", certain))
			return nil
		}
		try(t, graph(s, kahn.Node{ID: "x", Do: always(errSoldOut), After: []string{"S"}}), nil, mode)
		require.Equal(t, "S receipt true", l.String())
	})
	bothModes(t, "a failed one is not attempted again", func(t *testing.T, mode kahn.Mode) {
		pay := kahn.Node{ID: "pay", Do: succeeds(1), Compensate: func(context.Context, *kahn.Step) error { return kahn.Permanent(errors.New("closed")) }}
		s := subgraph("S", graph(pay, kahn.Node{ID: "ship", After: []string{"pay"}, Do: always(errSoldOut)}))
		s.Retry = kahn.Retry{MaxAttempts: 5, InitialDelay: -1}
		g := graph(s, kahn.Node{ID: "sorry", In: []kahn.Edge{{From: "S", On: kahn.OnFailure}}, Do: succeeds(1)})
		r := try(t, g, nil, mode)
		require.Equal(t, kahn.RunFailed, r.Status)
		require.Equal(t, kahn.CauseCompensationFailed, r.Cause.Kind)
		require.Equal(t, 1, r.node("S").Attempts)
		require.ErrorContains(t, r.err, `node "S/pay": compensation failed: closed`)
	})
	bothModes(t, "expanded", func(t *testing.T, mode kahn.Mode) {
		var l undoLog
		inner := graph(step(&l, "pay", succeeds(1)))
		g := graph(kahn.Node{ID: "E", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }},
			kahn.Node{ID: "x", Do: always(errSoldOut), After: []string{"E"}}, kahn.Node{ID: "tidy", Cleanup: true, After: []string{"x"}, Do: func(context.Context, *kahn.Step) (any, error) { l.add("tidy"); return nil, nil }})
		try(t, g, nil, mode)
		require.Equal(t, "E/pay tidy", l.String())
	})
}
