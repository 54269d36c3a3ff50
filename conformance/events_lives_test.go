package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// indices renders the delta indices of each path. The paths are in the order of their first delta.
func (r trial) indices() string {
	var paths []string
	byPath := map[string][]int{}
	for _, e := range r.events {
		if d, ok := e.Payload.(event.Delta); ok {
			if byPath[e.Path] == nil {
				paths = append(paths, e.Path)
			}
			byPath[e.Path] = append(byPath[e.Path], d.Index)
		}
	}
	var text []string
	for _, path := range paths {
		text = append(text, fmt.Sprint(path, byPath[path]))
	}
	return strings.Join(text, " ")
}

// emits returns a step that emits n deltas and then calls next.
func emits(n int, next kahn.StepFunc) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		for range n {
			s.Emit("chunk")
		}
		return next(ctx, s)
	}
}

// TestDeltasOfAllAttempts: a client drops deltas with indices that it has seen. So the delta indices of a node must keep increasing when the
// node, a composite around it, or the run is attempted again.
func TestDeltasOfAllAttempts(t *testing.T) {
	retry := kahn.Retry{MaxAttempts: 2, InitialDelay: ms, Jitter: kahn.JitterNone}
	inBubble(t, "composites", func(t *testing.T) {
		calls := map[string]int{}
		// x fails in each odd call, and y, which follows x, in its first three calls. So T fails twice, and S once.
		step := emits(1, func(_ context.Context, s *kahn.Step) (any, error) {
			calls[s.Path()]++
			if n := calls[s.Path()]; s.ID() == "x" && n%2 == 1 || s.ID() == "y" && n <= 3 {
				return nil, errStep
			}
			return nil, nil
		})
		inner := graph(kahn.Node{ID: "x", Retry: retry}, after("y", "x"))
		middle := graph(kahn.Node{ID: "T", Sub: inner, Retry: retry})
		r := try(t, graph(kahn.Node{ID: "S", Sub: middle, Retry: retry}, kahn.Node{ID: "y", After: []string{"S"}, ContinueOnFail: true}), step, kahn.Limit(1))
		r.expect("S:ok y:F", "completed+d")
		if got := r.indices(); got != "S/T/x[1 2 3 4 5 6 7 8] S/T/y[1 2 3 4] y[1]" {
			t.Error(got)
		}
	})

	inBubble(t, "items and iterations", func(t *testing.T) {
		failed := map[string]bool{}
		step := emits(2, func(_ context.Context, s *kahn.Step) (any, error) {
			if strings.HasPrefix(s.Path(), "M[1]") || strings.HasPrefix(s.Path(), "L#2") {
				if !failed[s.Path()] {
					failed[s.Path()] = true
					return nil, errStep
				}
			}
			return nil, nil
		})
		g := graph(
			// The Retry of a map applies to its items.
			kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []int{1, 2}}, Retry: retry, Sub: graph(after("x"))},
			kahn.Node{ID: "L", After: []string{"M"}, Loop: &kahn.Loop{MaxIterations: 2, OnLimit: kahn.LoopStop, While: func(kahn.View) (bool, error) { return true, nil }}, Retry: retry, Sub: graph(after("x"))},
		)
		r := try(t, g, step, kahn.Limit(1))
		if got := r.indices(); got != "M[0]/x[1 2] M[1]/x[1 2 3 4] L#1/x[1 2 3 4] L#2/x[1 2 3 4]" {
			t.Error(got)
		}
	})

	inBubble(t, "redriven", func(t *testing.T) {
		broken := true
		step := emits(2, func(_ context.Context, s *kahn.Step) (any, error) {
			if broken && s.ID() == "x" {
				return nil, errStep
			}
			return nil, nil
		})
		g := graph(after("A"), after("x", "A"), kahn.Node{ID: "S", Sub: graph(after("x")), After: []string{"A"}}, gate("G", "x", "S"), after("B", "G"))
		r := try(t, g, step, kahn.Limit(1))
		r.expect("A:ok x:F S:F G:X B:X", "failed")
		broken = false
		r = r.redrive(g, step)
		r.expect("A:ok x:ok S:ok G:suspended B:waiting", "suspended")
		r = r.resume(g, step, map[string]any{"G": 1})
		r = r.redrive(g, step, "A")
		r.expect("A:ok x:ok S:ok G:suspended B:waiting", "suspended")
		if got := r.indices(); got != "A[1 2 3 4] x[1 2 3 4 5 6] S/x[1 2 3 4 5 6] B[1 2]" {
			t.Error(got)
		}
	})

	inBubble(t, "crashed", func(t *testing.T) {
		// Life 1 ends when the store refuses the commit of C, while A and S/x are in the middle of their attempts. Their deltas from before the
		// start of B are kept.
		db := &brokenStore{Store: new(store.Memory)}
		db.commit = func(c store.Commit) error {
			if endsOf(c, "C") {
				return errDisk
			}
			return nil
		}
		life := 1
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			switch {
			case s.ID() == "A" || s.ID() == "x":
				s.Emit("a")
				s.Emit("b")
				if life == 1 {
					<-ctx.Done()
				}
			case life == 1:
				time.Sleep(time.Second)
			}
			return nil, ctx.Err()
		}
		g := graph(after("A"), kahn.Node{ID: "S", Sub: graph(after("x"))}, after("B"), after("C", "B"))
		first := try(t, g, step, kahn.Durable(db), kahn.RunID("one"))
		if first.Cause.Kind != kahn.CauseStoreError {
			t.Fatal(first.Cause)
		}
		db.commit, life = nil, 2
		time.Sleep(time.Minute) // the lease runs out
		rec := newRecorder()
		res, err := kahn.Execute(t.Context(), g, step, kahn.Durable(db), kahn.RunID("one"), kahn.OnEvent(rec.add))
		if err != nil {
			t.Fatal(err)
		}
		events := rec.all()
		from := events[0].Payload.(event.Recovery).From
		checkEvents(t, g, res, events)
		second := trial{res, t, err, append(slices.Clone(first.events[:from]), events...)}
		checkEvents(t, g, res, second.events)
		if got := second.indices(); got != "A[1 2 3 4] S/x[1 2 3 4]" && got != "S/x[1 2 3 4] A[1 2 3 4]" {
			t.Error(got)
		}
	})
}

// TestEventsOfCrashes lets the store fail at each write of random runs in turn, as if the process died there, and continues from the stored run.
// The confirmed events of the first life and the events of the second life must form one stream, and the nodes must have the statuses of an
// uninterrupted run. The store and the host's code take random times, because their timing decides what a transaction contains.
func TestEventsOfCrashes(t *testing.T) {
	t.Parallel()
	graphs, crashes, seams := size(8, 2, 400), 0, 0
	for seed := range seeds(t, graphs) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 11))
			c := newCutter(seed, int(seed%2))
			c.slow = time.Duration(r.IntN(3)) * ms / 2
			most := 1 + r.IntN(3)
			n, whole := c.crashAtEveryWrite(t, fmt.Sprint("seed ", seed), func() time.Duration { return time.Duration(r.IntN(most)) * ms })
			crashes, seams = crashes+n, seams+whole
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d graphs, %d crashes, %d of them without a gap", graphs, crashes, seams)
	if seams < crashes*19/20 {
		t.Errorf("%d of %d crashes left a gap", crashes-seams, crashes)
	}
}

// TestEventsWithTheirFacts: a process dies while the host's code runs for a node, after readers have seen the node's event. The next life does
// not log the event again.
func TestEventsWithTheirFacts(t *testing.T) {
	t.Parallel()
	pass := func(c *cutter, id string) kahn.Node {
		return kahn.Node{ID: id, When: func(kahn.View) (bool, error) { c.visit("guard " + id); return true, nil }}
	}
	substitute := func(c *cutter) *kahn.Graph {
		n := pass(c, "B")
		n.After, n.OnUpstreamFailure = []string{"A"}, kahn.UpstreamSubstitute
		return graph(kahn.Node{ID: "A"}, n)
	}
	for name, build := range map[string]func(c *cutter) *kahn.Graph{
		"a blocked join":          substitute,
		"a blocked join in a sub": func(c *cutter) *kahn.Graph { return graph(subgraph("S", substitute(c))) },
		"a blocked join in a map": func(c *cutter) *kahn.Graph {
			n := mapped("M", numbers(2), kahn.Map{})
			n.Sub = substitute(c)
			return graph(n)
		},
		"a wave of guards":             func(c *cutter) *kahn.Graph { return graph(pass(c, "B"), pass(c, "C")) },
		"a later wave of guards":       func(c *cutter) *kahn.Graph { n := pass(c, "B"); n.After = []string{"C"}; return graph(after("C"), n) },
		"a wave in which a gate waits": func(c *cutter) *kahn.Graph { return graph(gate("G"), pass(c, "B"), after("C", "B", "G")) },
	} {
		for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
			inBubble(t, fmt.Sprint(name, ", ", mode), func(t *testing.T) {
				c := &cutter{broken: map[string]bool{"A": true}, opts: []kahn.Option{mode}, slow: ms}
				c.g = build(c)
				if crashes, _ := c.crashAtEveryWrite(t, name, func() time.Duration { return 0 }); crashes < 2 {
					t.Errorf("%d crashes", crashes)
				}
			})
		}
	}
}

// crashAtEveryWrite crashes a run at each of its writes in turn, and continues it. seams counts the cases in which readers had seen the last
// stored event.
func (c *cutter) crashAtEveryWrite(t *testing.T, name string, takes func() time.Duration) (crashes, seams int) {
	c.more = []kahn.Option{kahn.RunID("one")}
	_, want := c.run(t, nil, false)
	for failing := 1; !t.Failed(); failing++ {
		writes := 0
		db := &brokenStore{Store: new(store.Memory), commit: func(store.Commit) error {
			time.Sleep(takes())
			if writes++; writes >= failing {
				return errDisk
			}
			return nil
		}}
		c.more = []kahn.Option{kahn.Durable(db), kahn.RunID("one"), kahn.Lease("", 20*ms)}
		c.run(t, nil, false)
		if writes < failing {
			break // there are no more writes
		}
		crashes++
		first := c.events
		db.commit = nil
		time.Sleep(time.Minute) // the lease runs out
		_, got := c.run(t, nil, false)
		whole := c.events
		switch kept := int(c.events[0].ID) - 1; {
		case kept <= len(first):
			for _, e := range first[kept:] {
				if e.Type != event.NodeDelta && e.Type != event.NodeLog {
					t.Errorf("%s, write %d: the store does not hold what was shown: %v\n%s", name, failing, e, eventText(first))
				}
			}
			whole = append(slices.Clone(first[:kept]), c.events...)
			seams++
		default: // no reader has seen the last stored event, so a reader that continues after it would get a GapError
		}
		if err := errors.Join(kahntest.CheckEvents(c.g, c.res, c.events), kahntest.CheckEvents(c.g, c.res, whole)); err != nil {
			t.Errorf("%s, write %d: %v\n%s", name, failing, err, eventText(whole))
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s, write %d:\ngot  %v\nwant %v", name, failing, got, want)
		}
	}
	return crashes, seams
}

// TestCheckerOfTheLastLife: a step that was answered in an earlier life is queued. It is cancelled, or the run is left again, before the step
// continues. If the checker gets only the last life's events, the node's next event is the first that says which attempt was queued.
func TestCheckerOfTheLastLife(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		inBubble(t, "", func(t *testing.T) {
			g := graph(after("A"), after("O"))
			step := func(ctx context.Context, s *kahn.Step) (any, error) {
				if _, resumed := s.Resumed(); s.ID() == "A" && !resumed {
					return nil, kahn.Suspend("", nil, nil)
				}
				return takes(time.Second)(ctx, s)
			}
			rn := &kahn.Runner{Limit: 1}
			r := pause(t, g, step)
			other, err := rn.Start(t.Context(), graph(after("X")), takes(time.Hour)) // takes the slot
			require.NoError(t, err)
			synctest.Wait()
			life := func(signals map[string]any, act func(run *kahn.Run)) []kahn.Event {
				rec := newRecorder()
				run, err := rn.Start(t.Context(), g, step, kahn.Resume(reload(t, r.Snapshot())), kahn.EarlySignals(signals), kahn.OnEvent(rec.add))
				require.NoError(t, err)
				synctest.Wait()
				act(run)
				r.Result, _ = run.Wait()
				r.events = append(r.events, rec.all()...)
				checkEvents(t, g, r.Result, r.events)
				return rec.all()
			}
			life(map[string]any{"A": 1}, (*kahn.Run).Leave)
			last := life(nil, func(run *kahn.Run) {
				if cancel {
					require.NoError(t, run.CancelNode("A"))
				}
				run.Leave()
			})
			require.Equal(t, 1, r.node("A").Attempts)
			checkEvents(t, g, r.Result, last)
			if cancel {
				i := slices.IndexFunc(last, func(e kahn.Event) bool { return e.Type == event.NodeCancelled })
				require.Equal(t, "A", last[i].Path)
				last[i].Attempt = 2
				require.Error(t, kahntest.CheckEvents(g, r.Result, last))
			}
			other.Cancel()
			_, _ = other.Wait()
		})
	}
}

// TestCheckerAtSeams changes the events where one life ends and the next begins, in ways that the checker of events must detect.
func TestCheckerAtSeams(t *testing.T) {
	inBubble(t, "resumed", func(t *testing.T) {
		g := graph(after("A"), kahn.Node{ID: "B", After: []string{"A"}}, gate("G", "A"), after("C", "B", "G"))
		step := emits(1, takes(0))
		r := pause(t, g, step)
		left := len(r.events)
		r = r.resume(g, step, map[string]any{"G": 1}).redrive(g, step, "B")
		r.expect("A:ok B:ok G:ok C:ok", "completed")
		find := func(kind event.Type, node string, n int) int {
			for i, e := range r.events {
				if e.Type == kind && e.Node == node {
					if n--; n == 0 {
						return i
					}
				}
			}
			t.Fatalf("no %s of %s", kind, node)
			return 0
		}
		for name, damage := range map[string]func(events []kahn.Event){
			"a reset of deltas":                           func(e []kahn.Event) { e[find(event.NodeDelta, "B", 2)].Payload = event.Delta{Index: 1} },
			"the end of a gate, led to by the resumption": func(e []kahn.Event) { e[find(event.NodeCompleted, "G", 1)].Parent = uint64(left + 1) },
			"the end of a gate, led to by the start":      func(e []kahn.Event) { e[find(event.NodeCompleted, "G", 1)].Parent = 1 },
			"an invalidation led to by nothing":           func(e []kahn.Event) { e[find(event.NodeInvalidated, "B", 1)].Parent = 0 },
			"a start of what was not invalidated":         func(e []kahn.Event) { e[find(event.NodeQueued, "B", 2)].Path = "A" },
			"an epoch that was not begun": func(e []kahn.Event) {
				for i := range e {
					if p, ok := e[i].Payload.(event.StatusChange); ok && p.From.Terminal() {
						e[i].Payload = event.StatusChange{From: kahn.RunSuspended, To: kahn.RunRunning}
					}
				}
			},
		} {
			events := slices.Clone(r.events)
			damage(events)
			if kahntest.CheckEvents(g, r.Result, events) == nil {
				t.Errorf("%s: not found\n%s", name, eventText(events))
			}
		}
		// If the checker gets only the later events, it must still find the errors among these.
		last := slices.Clone(r.events[find(event.NodeInvalidated, "B", 1)-1:])
		if err := kahntest.CheckEvents(g, r.Result, last); err != nil {
			t.Fatalf("%v\n%s", err, eventText(last))
		}
		for i := range last {
			lost := slices.Delete(slices.Clone(last), i, i+1)
			for j := range lost {
				lost[j].ID = last[0].ID + uint64(j)
			}
			if kahntest.CheckEvents(g, r.Result, lost) == nil {
				t.Errorf("the loss of %v was not found", last[i])
			}
		}
	})
}

// TestWavesOfARedriveOfNothing: a run was left in the middle of a wave. If a redrive repeats no node, the run continues in that wave. If the
// redrive repeats a node, it starts a new epoch of the run, which counts waves from the beginning.
func TestWavesOfARedriveOfNothing(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		inBubble(t, fmt.Sprint("with a failure: ", fails), func(t *testing.T) {
			g := graph(gate("G"), kahn.Node{ID: "A", Do: func(context.Context, *kahn.Step) (any, error) {
				if fails {
					return nil, errStep
				}
				return nil, nil
			}}, after("B", "G"))
			rn := new(kahn.Runner)
			run, err := rn.Start(t.Context(), g, takes(0), kahn.Waves, kahn.RunID("r"))
			for life := range 3 {
				require.NoError(t, err)
				synctest.Wait()
				require.Equal(t, kahn.RunSuspended, run.Status())
				run.Leave()
				res, err := run.Wait()
				require.NoError(t, err)
				var events []kahn.Event
				started := 0
				for e, err := range run.Events(t.Context(), 0) {
					require.NoError(t, err)
					if events = append(events, e); e.Type == event.WaveStarted {
						started++
					}
				}
				checkEvents(t, g, res, events)
				want := 1
				if fails {
					want += min(life, 1) // G waits, and A is not started because of it: the second redrive finds A ready
				}
				require.Equal(t, want, started, eventText(events))
				run, err = rn.Redrive(t.Context(), "r", nil, kahn.Request{})
				require.NoError(t, err)
			}
			run.Cancel()
			_, _ = run.Wait()
		})
	}
}
