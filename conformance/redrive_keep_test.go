package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// keeping redrives a trial with KeepDescendants, and returns the new trial and its calls.
func (r trial) keeping(g *kahn.Graph, step kahn.StepFunc, opts []kahn.Option, nodes ...string) (trial, []string) {
	r.t.Helper()
	var c paths
	opts = append(slices.Clone(opts), kahn.KeepDescendants, kahn.DespiteHandlers, kahn.Redrive(reload(r.t, r.Snapshot()), nodes))
	next := r.goOn(g, c.count(step), opts)
	var called []string
	for path := range c.n {
		called = append(called, path)
	}
	slices.Sort(called)
	return next, called
}

func TestRedriveKeepsDescendants(t *testing.T) {
	modes := map[string][]kahn.Option{"eager": nil, "waves": {kahn.Waves}, "limit 1": {kahn.Limit(1)}}
	each := func(name string, f func(t *testing.T, opts []kahn.Option)) {
		for mode, opts := range modes {
			inBubble(t, name+", "+mode, func(t *testing.T) { f(t, opts) })
		}
	}
	called := func(t *testing.T, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("called %v, expected %v", got, want)
		}
	}

	each("what has completed stays, with its output", func(t *testing.T, opts []kahn.Option) {
		g := graph(after("A"), after("B", "A"), after("C", "B"), after("D"))
		r := try(t, g, func(context.Context, *kahn.Step) (any, error) { return 1, nil }, opts...)
		r, again := r.keeping(g, func(context.Context, *kahn.Step) (any, error) { return 2, nil }, opts, "A")
		r.expect("A:ok B:ok C:ok D:ok", "completed")
		called(t, again, "A")
		if a, b := r.node("A"), r.node("B"); a.Output != 2 || b.Output != 1 || a.Attempts != 1 {
			t.Errorf("A %v, B %v, %d attempts", a.Output, b.Output, a.Attempts)
		}
		r.count(event.NodeInvalidated, "A", 1)
		r.count(event.NodeInvalidated, "B", 0)
		r = r.redrive(g, func(context.Context, *kahn.Step) (any, error) { return 3, nil }, "A") // without KeepDescendants
		if b := r.node("B"); b.Output != 3 {
			t.Errorf("B %v", b.Output)
		}
	})
	each("what failed, was aborted or cancelled below runs again, behind what stays, too", func(t *testing.T, opts []kahn.Option) {
		g := graph(after("A"), after("B", "A"), after("C", "B"), after("D", "C"), after("E", "B"), after("F"), after("G", "F"))
		r := try(t, g, breaks("C", "F"), opts...)
		r.expect("A:ok B:ok C:F D:X E:ok F:F G:X", "failed")
		named, again := r.keeping(g, takes(0), opts, "A")
		named.expect("A:ok B:ok C:ok D:ok E:ok F:F G:X", "failed") // F does not follow A
		called(t, again, "A", "C", "D")
		all, again := r.keeping(g, takes(0), opts)
		all.expect("A:ok B:ok C:ok D:ok E:ok F:ok G:ok", "completed")
		called(t, again, "C", "D", "F", "G")
	})
	each("a sub-graph that has failed has failed in a later life, whatever an earlier epoch answered", func(t *testing.T, opts []kahn.Option) {
		g := graph(after("A"), kahn.Node{ID: "S", Sub: graph(after("x"), kahn.Node{ID: "h", After: []string{"x"}, Join: kahn.OneFailed})})
		r := try(t, g, breaks("S/x"), opts...)
		r.expect("A:ok S:ok", "completed+d")
		lasts := func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "A" {
				<-ctx.Done()
			}
			return nil, errors.New("odd")
		}
		run, err := kahn.Start(t.Context(), g, lasts, append(opts, kahn.Redrive(reload(t, r.Snapshot()), []string{"A", "S/x"}), kahn.KeepDescendants, kahn.DespiteHandlers)...)
		require.NoError(t, err)
		synctest.Wait()
		again := reload(t, run.Snapshot())
		require.NoError(t, run.Cancel())
		_, _ = run.Wait()
		res, err := kahn.Execute(t.Context(), g, takes(0), append(opts, kahn.Resume(again))...)
		require.Error(t, err)
		s, _ := res.Node("S")
		require.Equal(t, kahn.Failed, s.Status)
		require.Equal(t, kahn.RunFailed, s.Sub.Status)
	})
	each("a node inside a composite that follows a named node waits for it", func(t *testing.T, opts []kahn.Option) {
		g := graph(after("A"), kahn.Node{ID: "S", After: []string{"A"}, Sub: graph(after("x"))})
		r := try(t, g, takes(0), opts...)
		var ended []string
		r, _ = r.keeping(g, func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "A" {
				time.Sleep(10 * ms)
			}
			ended = append(ended, s.Path())
			return nil, nil
		}, opts, "A", "S/x")
		r.expect("A:ok S:ok", "completed")
		require.Equal(t, []string{"A", "S/x"}, ended)
	})
	each("a composite that continues inside is attempted again before its wave", func(t *testing.T, opts []kahn.Option) {
		policy := kahn.Retry{MaxAttempts: 2, InitialDelay: ms}
		g := graph(after("A"), after("D"), kahn.Node{ID: "S", After: []string{"D"}, Sub: graph(after("x")), Retry: policy})
		r := try(t, g, breaks("S/x"), opts...)
		r.expect("A:ok D:ok S:F", "failed")
		calls := 0
		r, _ = r.keeping(g, func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "A" {
				time.Sleep(10 * ms)
			} else if calls++; calls == 1 {
				return nil, errors.New("once more")
			}
			return nil, nil
		}, opts, "A", "S/x")
		r.expect("A:ok D:ok S:ok", "completed")
		r.count(event.NodeRetried, "S", 2) // once in each epoch
	})
	each("what was skipped stays, whatever a condition says now", func(t *testing.T, opts []kahn.Option) {
		label := "yes"
		c := kahn.Node{ID: "C", Routes: true, Do: func(context.Context, *kahn.Step) (any, error) { return label, nil }}
		g := graph(c, branch("Y", "C", "yes"), branch("N", "C", "no"), after("Z", "N"))
		r := try(t, g, takes(0), opts...)
		r.expect("C:ok Y:ok N:S/br Z:S/up", "completed")
		label = "no"
		r, again := r.keeping(g, neverStep(t), opts, "C")
		r.expect("C:ok Y:ok N:S/br Z:S/up", "completed")
		called(t, again)
	})
	each("a kept node handles no failure that it has not seen", func(t *testing.T, opts []kahn.Option) {
		// H ran because A failed. K would have run after a success or a failure of B. S was skipped because A failed.
		g := graph(after("A"), kahn.Node{ID: "H", In: []kahn.Edge{{From: "A", On: kahn.OnFailure}}}, after("B"),
			kahn.Node{ID: "K", After: []string{"B"}, Join: kahn.AllDone, Handling: kahn.Handles})
		r := try(t, g, breaks("A"), opts...)
		r.expect("A:F H:ok B:ok K:ok", "completed+d")
		for _, id := range []string{"A", "B"} {
			next, again := r.keeping(g, breaks(id), opts, id)
			called(t, again, id)
			if next.node(id).Status != kahn.Failed || next.Status != kahn.RunFailed {
				t.Errorf("%s failed again, and the run is %v", id, next.Status)
			}
			// The next life still counts the failure as unhandled, unless the nodes that handle the failure run again, too.
			last := next.goOn(g, takes(0), []kahn.Option{kahn.KeepDescendants, kahn.DespiteHandlers, kahn.Redrive(reload(t, next.Snapshot()), []string{otherOf(id)})})
			if last.Status != kahn.RunFailed {
				t.Errorf("%s is failed still, and the run is %v", id, last.Status)
			}
			if whole := next.goOn(g, breaks(id), []kahn.Option{kahn.DespiteHandlers, kahn.Redrive(reload(t, next.Snapshot()), []string{id})}); whole.Status != kahn.RunCompleted || !whole.Degraded {
				t.Errorf("%s failed, what handles it ran, and the run is %v", id, whole.Status)
			}
		}
	})
	each("the end node runs again", func(t *testing.T, opts []kahn.Option) {
		g := graph(after("A"), after("B", "A"), kahn.Node{ID: "end", Kind: kahn.KindEnd})
		r := try(t, g, takes(0), opts...)
		_, again := r.keeping(g, takes(0), opts, "A")
		called(t, again, "A", "end")
	})
	each("a composite that completed stays with all that is inside, one that failed begins anew", func(t *testing.T, opts []kahn.Option) {
		g := graph(after("A"), subgraph("S", graph(after("x"), after("y", "x")), "A"), subgraph("T", graph(after("x"), after("y", "x")), "A"))
		r := try(t, g, breaks("T/y"), opts...)
		r.expect("A:ok S:ok T:F", "failed")
		r, again := r.keeping(g, takes(0), opts, "A")
		r.expect("A:ok S:ok T:ok", "completed")
		called(t, again, "A", "T/x", "T/y")
		if n := r.node("S"); n.Sub == nil || n.Sub.Count(kahn.Completed) != 2 {
			t.Errorf("of S there is %v", n.Sub)
		}
	})
	each("lives of the new epoch", func(t *testing.T, opts []kahn.Option) {
		g := graph(after("A"), gate("G", "A"), after("B", "G"), after("C", "A"))
		r := pause(t, g, takes(0), opts...).resume(g, takes(0), map[string]any{"G": 1}, opts...)
		r, again := r.keeping(g, waitsOnce("A"), opts, "A")
		r.expect("A:suspended G:ok B:ok C:ok", "suspended")
		called(t, again, "A")
		r = r.resume(g, breaksAfterWait("A"), map[string]any{"A": 1}, opts...)
		r.expect("A:F G:ok B:ok C:ok", "failed")
	})
	inBubble(t, "a graph that has changed", func(t *testing.T) {
		old := graph(after("A"), after("B", "A"))
		r := try(t, old, takes(0))
		changed := kahn.Node{ID: "A", Config: "new"}
		opts := []kahn.Option{kahn.AllowGraphChange()}
		next, again := r.keeping(graph(changed, after("B", "A")), takes(0), opts, "A")
		next.expect("A:ok B:ok", "completed")
		called(t, again, "A")
		for name, g := range map[string]*kahn.Graph{
			"the kept node":      graph(changed, kahn.Node{ID: "B", After: []string{"A"}, Config: "new"}),
			"an edge to it":      graph(changed, after("C"), after("B", "A", "C")),
			"the kept node left": graph(changed),
		} {
			_, err := kahn.Execute(t.Context(), g, neverStep(t), kahn.KeepDescendants, kahn.AllowGraphChange(), kahn.Redrive(r.Snapshot(), []string{"A"}))
			if !errors.Is(err, kahn.ErrGraphChanged) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	inBubble(t, "it is for a redrive", func(t *testing.T) {
		if _, err := kahn.Execute(t.Context(), graph(after("A")), neverStep(t), kahn.KeepDescendants); !errors.Is(err, kahn.ErrBadOption) {
			t.Error(err)
		}
	})
}

func otherOf(id string) string { return map[string]string{"A": "B", "B": "A"}[id] }

// breaksAfterWait returns a step that fails for one node, and must not be called for other nodes.
func breaksAfterWait(id string) kahn.StepFunc {
	return func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == id {
			return nil, errStep
		}
		return nil, fmt.Errorf("%s is called", s.ID())
	}
}

// TestRedrivenLoser: a redriven loser of an early join is superseded again, since the join is decided. The Parent of its event is the event that
// started the epoch, not an event of a node.
func TestRedrivenLoser(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		join := after("J", "A", "B")
		join.Join, join.CancelLosers = kahn.AnySucceeded, true
		join.When = func(kahn.View) (bool, error) { return true, nil }
		g := graph(kahn.Node{ID: "A", Do: takes(ms)}, kahn.Node{ID: "B", Do: takes(time.Second)}, join)
		r := try(t, g, takes(ms))
		r.expect("A:ok B:C J:ok", "completed")
		r = r.redrive(g, takes(ms), "B")
		r.expect("A:ok B:S/superseded J:ok", "completed")
	})
}
