package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// This file tests the consequences of a node's end in rare cases: without readers of events, in the queue of a group, between two attempts, and
// in the causes of failures.

// TestEndWithoutListeners: the end node runs last even if the run has no readers of events. Such a run performs plain nodes in a fast loop.
func TestEndWithoutListeners(t *testing.T) {
	for name, nodes := range map[string][]kahn.Node{
		"one":    {after("A")},
		"chain":  {after("A"), after("B", "A"), after("C", "B")},
		"fan":    {after("A"), after("B", "A"), after("C", "A"), after("D", "B", "C")},
		"apart":  {after("A"), after("B"), after("C")},
		"nobody": {},
	} {
		for _, limit := range []int{0, 1, 2} {
			for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
				inBubble(t, fmt.Sprintf("%s, limit %d, %v", name, limit, mode), func(t *testing.T) {
					end := kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: func(_ context.Context, s *kahn.Step) (any, error) { return s.ID(), nil }}
					var c calls
					res, err := kahn.Execute(t.Context(), graph(append(slices.Clone(nodes), end)...), c.count(takes(ms)), kahn.Limit(limit), mode)
					if err != nil || res.Status != kahn.RunCompleted || res.Output() != "end" {
						t.Fatalf("%v with output %v, %v", res.Status, res.Output(), err)
					}
					last, _ := res.Node("end")
					for n := range res.Nodes() {
						if n.Status != kahn.Completed || n.ID != "end" && (n.Start.Add(n.Duration).After(last.Start) || c.of(n.ID) != 1) {
							t.Errorf("%s is %v, began at %v and took %v, the end began at %v", n.ID, n.Status, n.Start, n.Duration, last.Start)
						}
					}
				})
			}
		}
	}
}

// TestLineOfAGroup: a free slot goes to the best node that is waiting for it, regardless of the order of arrival. A node that has stopped waiting gets
// no slot.
func TestLineOfAGroup(t *testing.T) {
	for seed := range uint64(20) {
		inBubble(t, fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			const n = 12
			g := graph(kahn.Node{ID: "holder", Priority: 1000, Groups: []string{"g"}, Do: takes(100 * ms)})
			g.Groups = []kahn.Group{{Name: "g", Limit: 1}}
			var want []string
			priorities := map[string]int{}
			for i, arrival := range random.Perm(n) {
				id := fmt.Sprint("m", i)
				priorities[id] = random.IntN(n)
				g.Add(kahn.Node{ID: "before_" + id, Do: takes(time.Duration(1+arrival) * ms)},
					kahn.Node{ID: id, After: []string{"before_" + id}, Groups: []string{"g"}, Priority: priorities[id], Do: takes(ms)})
				want = append(want, id)
			}
			gone := want[random.IntN(n)]
			slices.SortStableFunc(want, func(a, b string) int { return priorities[b] - priorities[a] })
			want = slices.DeleteFunc(want, func(id string) bool { return id == gone })
			r := tryControlled(t, t.Context(), g, nil, func(run *kahn.Run) {
				time.Sleep(50 * ms)
				if err := run.CancelNode(gone); err != nil {
					t.Error(err)
				}
			})
			var got []string
			for _, id := range strings.Fields(r.started()) {
				if _, ok := priorities[id]; ok {
					got = append(got, id)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("started %v, expected %v", got, want)
			}
			if want := (100 + n - 1) * ms; r.Duration != want {
				t.Errorf("the run took %v, expected %v: one after the other", r.Duration, want)
			}
		})
	}
}

// TestContinueOnFailBetweenAttempts: ContinueOnFail also tolerates a failure between two attempts.
func TestContinueOnFailBetweenAttempts(t *testing.T) {
	follows := func(t *testing.T, r trial, kind kahn.CauseKind) {
		t.Helper()
		r.cause("X", kind)
		if r.err != nil {
			t.Errorf("error %v", r.err)
		}
	}
	next := kahn.Node{ID: "N", After: []string{"X"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
		if v, ok := s.Upstream("X"); ok {
			t.Errorf("X has delivered %v", v)
		}
		return nil, nil
	}}

	inBubble(t, "a merge that breaks", func(t *testing.T) {
		broken := kahn.Node{ID: "X", ContinueOnFail: true, In: []kahn.Edge{{From: "A", Param: "p", Merge: "broken"}, {From: "B", Param: "p", Merge: "broken"}}, Do: neverStep(t)}
		merge := func([]kahn.Contribution) (any, error) { return nil, errStep }
		r := try(t, graph(after("A"), after("B"), broken, next).RegisterMerge("broken", merge), takes(0))
		r.expect("A:ok B:ok X:F N:ok", "completed+d")
		follows(t, r, kahn.CauseMergeError)
		broken.ContinueOnFail = false
		r = try(t, graph(after("A"), after("B"), broken, next).RegisterMerge("broken", merge), takes(0))
		r.expect("A:ok B:ok X:F N:X", "failed")
	})
	inBubble(t, "a guard that cannot decide", func(t *testing.T) {
		guarded := kahn.Node{ID: "X", ContinueOnFail: true, GuardErrors: kahn.GuardFail, When: func(kahn.View) (bool, error) { return false, errStep }, Do: neverStep(t)}
		r := try(t, graph(guarded, next), nil)
		r.expect("X:F N:ok", "completed+d")
		follows(t, r, kahn.CauseConditionError)
	})
	inBubble(t, "no time left while it waits for a slot", func(t *testing.T) {
		r := try(t, graph(
			kahn.Node{ID: "X", ContinueOnFail: true, Priority: 1, OverallTimeout: 50 * ms, Retry: thrice(10 * ms), Do: always(errStep)},
			kahn.Node{ID: "L", Do: takes(time.Second)}, next,
		), nil, kahn.Limit(1))
		r.expect("X:F L:ok N:ok", "completed+d")
		follows(t, r, kahn.CauseTimeout)
		if at := r.at(event.NodeFailed, "X"); at != 50*ms {
			t.Errorf("X failed at %v", at)
		}
	})
	inBubble(t, "no time left while it is suspended", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(kahn.Node{ID: "X", ContinueOnFail: true, OverallTimeout: 50 * ms, Do: suspends}, next), nil, nil)
		r.expect("X:F N:ok", "completed+d")
		follows(t, r, kahn.CauseTimeout)
	})
}

// suspends is a step that waits for a signal.
func suspends(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("", nil, nil) }

// TestFailFastBetweenAttempts: if a node's timeout passes between two attempts, the node's failure stops the same other nodes as any failure
// does.
func TestFailFastBetweenAttempts(t *testing.T) {
	late := kahn.Node{ID: "X", Priority: 1, OverallTimeout: 50 * ms, Retry: thrice(10 * ms), Do: always(errStep)}
	inBubble(t, "what runs is stopped", func(t *testing.T) {
		r := try(t, graph(late, kahn.Node{ID: "L", Do: untilStopped}, after("N", "L")), neverStep(t), kahn.Limit(1), kahn.AbortRunning)
		r.expect("X:F L:X N:X", "failed")
		r.cause("X", kahn.CauseTimeout)
		r.cause("L", kahn.CauseFailFast)
		if r.Duration != 50*ms {
			t.Errorf("the run took %v", r.Duration)
		}
	})
	inBubble(t, "nothing is started any more", func(t *testing.T) {
		r := try(t, graph(late, kahn.Node{ID: "L", Do: takes(time.Second)}, after("N", "L")), neverStep(t), kahn.Limit(1), kahn.StopScheduling)
		r.expect("X:F L:ok N:X", "failed")
		r.cause("N", kahn.CauseFailFast)
	})
	inBubble(t, "its group is stopped", func(t *testing.T) {
		member := late
		member.Groups = []string{"g"}
		g := graph(member, kahn.Node{ID: "L", Groups: []string{"g"}, Do: untilStopped}, kahn.Node{ID: "B", After: []string{"L"}, Join: kahn.AllDone})
		g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
		r := try(t, g, takes(0), kahn.Limit(1))
		r.expect("X:F L:X B:ok", "failed")
		r.cause("L", kahn.CauseSiblingFailure)
	})
	inBubble(t, "without a word about failures nothing is stopped", func(t *testing.T) {
		r := try(t, graph(late, kahn.Node{ID: "L", Do: takes(time.Second)}, after("N", "L")), takes(0), kahn.Limit(1))
		r.expect("X:F L:ok N:ok", "failed")
	})
}

// TestTokenOfAStoppedMember: a node that waits for a signal is stopped with its group. The token under which it waited is free for another node.
func TestTokenOfAStoppedMember(t *testing.T) {
	waits := func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("ticket", nil, nil) }
	inBubble(t, "", func(t *testing.T) {
		g := graph(
			kahn.Node{ID: "S", Groups: []string{"g"}, Do: waits}, kahn.Node{ID: "F", Groups: []string{"g"}, Do: fails(10 * ms)},
			kahn.Node{ID: "L", Do: takes(20 * ms)}, kahn.Node{ID: "T", After: []string{"L"}, Do: func(ctx context.Context, s *kahn.Step) (any, error) {
				if v, ok := s.Resumed(); ok {
					return v, nil
				}
				return waits(ctx, s)
			}},
		)
		g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
		r := tryControlled(t, t.Context(), g, nil, func(run *kahn.Run) {
			time.Sleep(15 * ms)
			if waiting := run.Waiting(); len(waiting) != 0 {
				t.Errorf("after F has failed: %v", waiting)
			}
			if err := run.Signal(context.Background(), "ticket", "early"); !errors.Is(err, kahn.ErrUnknownGate) {
				t.Errorf("nobody waits, and the answer to a signal is %v", err)
			}
			time.Sleep(15 * ms)
			if err := run.Signal(context.Background(), "ticket", "yes"); err != nil {
				t.Error(err)
			}
		})
		r.expect("S:X F:F L:ok T:ok", "failed")
		if v := r.node("T").Output; v != "yes" {
			t.Errorf("T has %v", v)
		}
	})
}

// TestStateHoldsBackAndGoesOn: with SuspendStop no new node starts while a node waits. Once no node waits, all ready nodes start.
func TestStateHoldsBackAndGoesOn(t *testing.T) {
	g := graph(kahn.Node{ID: "S", Priority: 2}, kahn.Node{ID: "T", Priority: 1}, after("A"), after("B"))
	plan, st := stateOf(t, g, kahn.SuspendStop)
	begin := func(want string) machine.Task {
		t.Helper()
		task, ok := st.Next()
		if !ok || plan.ID(task.Ref) != want {
			t.Fatalf("%v, %v, expected %s", task, ok, want)
		}
		return task
	}
	nothing := func() {
		t.Helper()
		if task, ok := st.Next(); ok {
			t.Fatalf("%s is handed out", plan.ID(task.Ref))
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s, x := begin("S"), begin("T")
	do(st.Suspend(s.Token))
	nothing()
	do(st.Suspend(x.Token))
	do(st.Resume(s.Token))
	s = begin("S") // S has started before, and continues
	nothing()
	do(st.Settle(s.Token, completed))
	nothing() // T still waits
	do(st.Resume(x.Token))
	x = begin("T")
	a, b := begin("A"), begin("B")
	for _, task := range []machine.Task{x, a, b} {
		do(st.Settle(task.Token, completed))
	}
	if status, _ := st.RunStatus(machine.StatusEscaped); status != kahn.RunCompleted {
		t.Errorf("the run is %v", status)
	}
}

// TestParentFailureNamesAFailure: a skip names the first failed predecessor whose end affected the join.
func TestParentFailureNamesAFailure(t *testing.T) {
	for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
		inBubble(t, mode.String(), func(t *testing.T) {
			r := try(t, graph(
				kahn.Node{ID: "data", Do: fails(ms)}, kahn.Node{ID: "good", Do: takes(ms)}, kahn.Node{ID: "first", Do: fails(20 * ms)}, kahn.Node{ID: "second", Do: fails(10 * ms)},
				kahn.Node{ID: "T", OnUpstreamFailure: kahn.UpstreamSkip, In: []kahn.Edge{{From: "data", DataOnly: true}, {From: "good"}, {From: "first"}, {From: "second"}}},
			), neverStep(t), mode)
			r.expect("data:F good:ok first:F second:F T:S/pf", "failed")
			if skip := r.node("T").Skip; skip.Kind != kahn.SkipParentFailure || skip.Node != "first" {
				t.Errorf("T is skipped by %v", skip)
			}
		})
	}
}

// TestDegradedVerdict: handled failures make a run degraded if the end node's verdict is completed, but not if the verdict is failed.
func TestDegradedVerdict(t *testing.T) {
	says := func(v any) kahn.Node {
		return kahn.Node{ID: "Z", Kind: kahn.KindEnd, Do: func(context.Context, *kahn.Step) (any, error) { return v, nil }}
	}
	escapes := []kahn.Node{{ID: "A", Do: always(errStep)}}
	caught := []kahn.Node{{ID: "C", Do: always(errStep)}, {ID: "H", In: []kahn.Edge{{From: "C", On: kahn.OnFailure}}}}
	tolerated := []kahn.Node{{ID: "C", ContinueOnFail: true, Do: always(errStep)}, after("H")}
	skipped := []kahn.Node{{ID: "C", Do: always(errStep)}, {ID: "H", After: []string{"C"}, OnUpstreamFailure: kahn.UpstreamSkip}}
	completed, failed, open := kahn.EndVerdict{Status: kahn.RunCompleted}, kahn.EndVerdict{Status: kahn.RunFailed}, kahn.EndVerdict{}
	for _, x := range []struct {
		name    string
		nodes   []kahn.Node
		verdict any
		run     string
	}{
		{"nothing failed", []kahn.Node{after("A")}, completed, "completed"},
		{"nothing failed, called failed", []kahn.Node{after("A")}, failed, "failed"},
		{"excused", escapes, completed, "completed"},
		{"nothing said", escapes, "", "failed"},
		{"an open verdict", escapes, open, "failed"},
		{"caught", caught, completed, "completed+d"},
		{"caught, nothing said", caught, "", "completed+d"},
		{"caught, an open verdict", caught, open, "completed+d"},
		{"caught, called failed", caught, failed, "failed"},
		{"tolerated", tolerated, completed, "completed+d"},
		{"tolerated, called failed", tolerated, failed, "failed"},
		{"one excused, one caught", slices.Concat(escapes, caught), completed, "completed+d"},
		{"one excused, one tolerated", slices.Concat(escapes, tolerated), completed, "completed+d"},
		{"one excused, one stepped aside for", slices.Concat(escapes, skipped), completed, "completed+d"},
	} {
		for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
			inBubble(t, fmt.Sprintf("%s, %v", x.name, mode), func(t *testing.T) {
				r := try(t, graph(append(slices.Clone(x.nodes), says(x.verdict))...), takes(0), mode)
				status := r.Status.String()
				if r.Degraded {
					status += "+d"
				}
				if status != x.run {
					t.Errorf("%s, expected %s", status, x.run)
				}
			})
		}
	}
	inBubble(t, "an end node that fails", func(t *testing.T) {
		r := try(t, graph(append(slices.Clone(caught), kahn.Node{ID: "Z", Kind: kahn.KindEnd, Do: always(errStep)})...), takes(0))
		r.expect("C:F H:ok Z:F", "failed")
		if r.Cause.Kind != kahn.CauseEndFailed {
			t.Errorf("cause %v", r.Cause)
		}
	})
}

// TestMixedOrigins: a node is aborted because of several nodes. If one of these has failed, the node's cause is an upstream failure. If all of
// them were cancelled, the cause is an upstream cancel.
func TestMixedOrigins(t *testing.T) {
	for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
		for _, first := range []string{"F", "C"} { // the node that ends first
			inBubble(t, fmt.Sprintf("%v, %s first", mode, first), func(t *testing.T) {
				early, late := ms, 20*ms
				if first == "C" {
					early, late = late, ms
				}
				g := graph(
					kahn.Node{ID: "F", Do: fails(early)}, kahn.Node{ID: "C", Do: untilStopped}, kahn.Node{ID: "D", Do: untilStopped},
					after("mixed", "C", "F"), after("below", "mixed"), after("asked", "D", "C"), after("both", "asked", "below"),
					kahn.Node{ID: "passed", After: []string{"asked"}, OnUpstreamFailure: kahn.UpstreamPropagate},
					after("last", "passed"),
				)
				cancel := func(run *kahn.Run) {
					time.Sleep(late)
					for _, id := range []string{"C", "D"} {
						if err := run.CancelNode(id); err != nil {
							t.Error(err)
						}
					}
				}
				r := tryControlled(t, t.Context(), g, neverStep(t), cancel, mode)
				r.expect("F:F C:C D:C mixed:X below:X asked:X both:X passed:F last:X", "failed")
				for id, want := range map[string]string{
					"mixed": "upstream_failure [F C]", "below": "upstream_failure [F C]", "asked": "upstream_cancelled [C D]",
					"both": "upstream_failure [F C D]", "passed": "upstream_cancelled [C D]", "last": "upstream_cancelled [C D]",
				} {
					if c := r.node(id).Cause; fmt.Sprint(c.Kind, " ", c.Origins) != want {
						t.Errorf("%s goes back to %v %v, expected %s", id, c.Kind, c.Origins, want)
					}
				}
			})
		}
	}
	// The leaf J is aborted because A and B have failed or were cancelled. Only the leaf decides the run's status: failed if A has failed, and
	// otherwise cancelled.
	for name, failed := range map[string]bool{"failed": true, "cancelled": false} {
		for _, rule := range []kahn.StatusRule{kahn.StatusEscaped, kahn.StatusStrict} {
			inBubble(t, fmt.Sprintf("%s by %v", name, rule), func(t *testing.T) {
				other := kahn.Node{ID: "A", Do: untilStopped}
				if failed {
					other.Do = fails(ms)
				}
				r := tryControlled(t, t.Context(), graph(other, kahn.Node{ID: "B", Do: untilStopped}, after("J", "B", "A")), neverStep(t), func(run *kahn.Run) {
					time.Sleep(10 * ms)
					for _, id := range []string{"A", "B"}[map[bool]int{true: 1}[failed]:] {
						if err := run.CancelNode(id); err != nil {
							t.Error(err)
						}
					}
				}, rule)
				if r.Status.String() != name {
					t.Errorf("the run is %v", r.Status)
				}
			})
		}
	}
}

// TestLeavesRule: edge cases of the status rule that judges leaves only. A run with bad leaves has failed if no leaf was cancelled. An end node
// that fails does not turn a cancelled run into a failed run.
func TestLeavesRule(t *testing.T) {
	stop := func(f func(*kahn.Run)) func(*kahn.Run) {
		return func(run *kahn.Run) {
			time.Sleep(ms)
			f(run)
		}
	}
	end := kahn.Node{ID: "Z", Kind: kahn.KindEnd, Do: takes(0)}
	broken := kahn.Node{ID: "Z", Kind: kahn.KindEnd, Do: always(errStep)}
	abort := func(run *kahn.Run) { run.AbortAll(errStep) }
	running, queued := kahn.Node{ID: "A", Do: untilStopped}, after("B", "A")
	for _, x := range []struct {
		name   string
		nodes  []kahn.Node
		host   func(*kahn.Run)
		expect string
		run    string
	}{
		{"aborted", []kahn.Node{running, queued}, stop(abort), "A:X B:X", "failed"},
		{"aborted, with an end", []kahn.Node{running, queued, end}, stop(abort), "A:X B:X Z:ok", "failed"},
		{"cancelled", []kahn.Node{running, queued}, stop(func(r *kahn.Run) { r.Cancel() }), "A:C B:C", "cancelled"},
		{"cancelled, with an end", []kahn.Node{running, queued, end}, stop(func(r *kahn.Run) { r.Cancel() }), "A:C B:C Z:ok", "cancelled"},
		{"cancelled, with an end that fails", []kahn.Node{running, queued, broken}, stop(func(r *kahn.Run) { r.Cancel() }), "A:C B:C Z:F", "cancelled"},
		{"completed, with an end that fails", []kahn.Node{{ID: "A", Do: takes(0)}, broken}, nil, "A:ok Z:F", "failed"},
		{"a failure before a good leaf", []kahn.Node{{ID: "A", Do: always(errStep)}, {ID: "B", After: []string{"A"}, Join: kahn.AllDone}, end}, nil, "A:F B:ok Z:ok", "completed+d"},
		{"a failure beside a cancellation", []kahn.Node{{ID: "F", Do: always(errStep)}, running}, stop(func(r *kahn.Run) { r.Cancel() }), "F:F A:C", "failed"},
	} {
		inBubble(t, x.name, func(t *testing.T) {
			r := tryControlled(t, t.Context(), graph(x.nodes...), takes(0), x.host, kahn.StatusLeaves)
			r.expect(x.expect, x.run)
		})
	}
}

// TestEndThatHandlesFailures: an end node with Handles handles exactly the failures that reach it.
func TestEndThatHandlesFailures(t *testing.T) {
	end := kahn.Node{ID: "Z", Kind: kahn.KindEnd, Handling: kahn.Handles}
	breaks := kahn.Node{ID: "A", Do: always(errStep)}
	disabled := kahn.Node{ID: "D", After: []string{"A"}, Disabled: true}
	toEnd := func(e kahn.Edge) kahn.Node {
		z := end
		z.In = []kahn.Edge{e}
		return z
	}
	for _, x := range []struct {
		name   string
		nodes  []kahn.Node
		expect string
		run    string
	}{
		{"a leaf", []kahn.Node{breaks, end}, "A:F Z:ok", "completed+d"},
		{"a victim that is a leaf", []kahn.Node{breaks, after("B", "A"), end}, "A:F B:X Z:ok", "completed+d"},
		{"a failure behind a node that is disabled", []kahn.Node{breaks, disabled, end}, "A:F D:S/ann Z:ok", "failed"},
		{"an edge of its own", []kahn.Node{breaks, disabled, toEnd(kahn.Edge{From: "A"})}, "A:F D:S/ann Z:ok", "completed+d"},
		{"a catch edge of its own", []kahn.Node{breaks, disabled, toEnd(kahn.Edge{From: "A", On: kahn.OnFailure})}, "A:F D:S/ann Z:ok", "completed+d"},
		{"an edge that takes whatever comes", []kahn.Node{breaks, disabled, toEnd(kahn.Edge{From: "A", On: kahn.OnAlways})}, "A:F D:S/ann Z:ok", "failed"},
		{"an edge for data", []kahn.Node{breaks, disabled, toEnd(kahn.Edge{From: "A", DataOnly: true})}, "A:F D:S/ann Z:ok", "failed"},
		{"another node's edge", []kahn.Node{breaks, disabled, after("E"), toEnd(kahn.Edge{From: "E"})}, "A:F D:S/ann E:ok Z:ok", "failed"},
	} {
		for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
			inBubble(t, fmt.Sprintf("%s, %v", x.name, mode), func(t *testing.T) {
				try(t, graph(x.nodes...), takes(0), mode).expect(x.expect, x.run)
			})
		}
	}
}

// TestLoserOfSeveralJoins: a node that feeds only decided joins is stopped as a loser if any of these joins stops its losers. The order in which
// the joins were decided does not matter.
func TestLoserOfSeveralJoins(t *testing.T) {
	for _, order := range [][]string{{"J", "K"}, {"K", "J"}} {
		inBubble(t, strings.Join(order, " "), func(t *testing.T) {
			g := graph(kahn.Node{ID: "A", Do: takes(ms)}, kahn.Node{ID: "B", Do: untilStopped})
			for _, id := range order {
				g.Add(kahn.Node{ID: id, After: []string{"A", "B"}, Join: kahn.AnySucceeded, CancelLosers: id == "J", Do: takes(ms)})
			}
			r := try(t, g, nil)
			r.expect("A:ok B:C "+order[0]+":ok "+order[1]+":ok", "completed")
			r.cause("B", kahn.CauseSuperseded)
		})
	}
}

// TestSettleNext: a coordinator drives a State with one call per node. A refused call returns no task.
func TestSettleNext(t *testing.T) {
	plan, st := stateOf(t, graph(after("A"), after("B", "A"), after("C", "B")))
	task, ok := st.Next()
	for _, id := range []string{"A", "B", "C"} {
		if !ok || plan.ID(task.Ref) != id {
			t.Fatalf("%v, %v, expected %s", task, ok, id)
		}
		stale := machine.Token{Ref: task.Ref, Attempt: task.Attempt + 1}
		if other, ok, err := st.SettleNext(stale, completed); ok || other != (machine.Task{}) || !errors.Is(err, kahn.ErrStale) {
			t.Errorf("a stale token: %v, %v, %v", other, ok, err)
		}
		var err error
		before := task
		if task, ok, err = st.SettleNext(task.Token, completed); err != nil {
			t.Fatal(err)
		}
		if st.Status(before.Ref) != kahn.Completed {
			t.Errorf("%s is %v", id, st.Status(before.Ref))
		}
	}
	if ok || !st.Done() {
		t.Errorf("at the end there is %v, %v", task, ok)
	}
	run, err := kahn.Start(t.Context(), graph(after("A")), takes(0))
	if err != nil {
		t.Fatal(err)
	}
	if task, ok, err := run.State().SettleNext(machine.Token{Attempt: 1}, completed); ok || task != (machine.Task{}) || !errors.Is(err, machine.ErrDriven) {
		t.Errorf("of a Run: %v, %v, %v", task, ok, err)
	}
	if _, err := run.Wait(); err != nil {
		t.Error(err)
	}
}

// TestOriginOfAStoppedMember: if a failure stops a group, the failed node is the origin of the stopped members and of their dependents. If the
// failure reaches a node in two ways, the node still has one origin.
func TestOriginOfAStoppedMember(t *testing.T) {
	var asked error
	inBubble(t, "", func(t *testing.T) {
		g := graph(
			kahn.Node{ID: "F", Groups: []string{"g"}, Do: fails(10 * ms)}, kahn.Node{ID: "M", Groups: []string{"g"}, Do: untilStopped},
			after("N", "M"), after("both", "M", "F"),
			kahn.Node{ID: "O", After: []string{"N", "both"}, Join: kahn.AllDone, Do: func(_ context.Context, s *kahn.Step) (any, error) {
				asked = errors.Join(s.UpstreamErr("N"), s.UpstreamErr("both"))
				return nil, nil
			}},
		)
		g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
		r := try(t, g, neverStep(t))
		r.expect("F:F M:X N:X both:X O:ok", "failed")
		r.cause("M", kahn.CauseSiblingFailure)
		if err := r.node("M").Err; !errors.Is(err, kahn.ErrAborted) || !strings.Contains(err.Error(), `"F"`) || !strings.Contains(err.Error(), `"g"`) {
			t.Errorf("M has %v", err)
		}
		for _, id := range []string{"M", "N", "both"} {
			if o := r.node(id).Cause.Origins; !slices.Equal(o, []string{"F"}) {
				t.Errorf("%s goes back to %v", id, o)
			}
		}
		for _, err := range asked.(interface{ Unwrap() []error }).Unwrap() {
			var upstream *kahn.UpstreamError
			if !errors.As(err, &upstream) || !slices.Equal(upstream.Origins, []string{"F"}) || upstream.Kind != kahn.CauseUpstreamFailure {
				t.Errorf("O was told %v", err)
			}
		}
	})
}

// TestAbandonedCondition: with one slot, no node begins while a condition is evaluated. Once the condition is abandoned, other nodes begin.
func TestAbandonedCondition(t *testing.T) {
	for _, nested := range []bool{false, true} {
		inBubble(t, fmt.Sprint("nested ", nested), func(t *testing.T) {
			block := make(chan struct{})
			defer close(block)
			stuck := graph(
				kahn.Node{ID: "I", Test: func(kahn.View) (any, error) { <-block; return true, nil }},
				kahn.Node{ID: "K", After: []string{"I"}, Cleanup: true},
			)
			want := "I:C K:ok"
			if nested {
				stuck, want = graph(subgraph("S", stuck), kahn.Node{ID: "Z", After: []string{"S"}, Cleanup: true}), "S:C Z:ok"
			}
			var c paths
			r := tryControlled(t, t.Context(), stuck, c.count(takes(ms)), soon(func(r *kahn.Run) { r.Cancel() }), kahn.Limit(1), kahn.CancelGrace(time.Second))
			r.expect(want, "cancelled")
			c.once(t, map[bool][]string{false: {"K"}, true: {"S/K", "Z"}}[nested]...)
			if len(r.Abandoned) != 1 || r.Duration > 2*time.Second {
				t.Errorf("abandoned %v, after %v", r.Abandoned, r.Duration)
			}
		})
	}
}

// TestAtLeastIsEnough: AtLeast(k) needs exactly k successes, regardless of the outcomes of the other predecessors.
func TestAtLeastIsEnough(t *testing.T) {
	for k := 1; k <= 3; k++ {
		for good := 0; good <= 3; good++ {
			for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
				inBubble(t, fmt.Sprintf("%d of 3 where %d are wanted, %v", good, k, mode), func(t *testing.T) {
					g, want, ids := new(kahn.Graph), "", []string{"A", "B", "C"}
					for i, id := range ids {
						step, status := takes(ms), "ok"
						if i >= good {
							step, status = fails(100*ms), "F"
						}
						g.Add(kahn.Node{ID: id, Do: step})
						want += id + ":" + status + " "
					}
					join, run := "J:X", "failed"
					if good >= k {
						join, run = "J:ok", map[bool]string{true: "completed", false: "completed+d"}[good == 3]
					}
					r := try(t, g.Add(kahn.Node{ID: "J", After: ids, Join: kahn.AtLeast(k), Do: takes(ms)}), nil, mode)
					r.expect(want+join, run)
					if good >= k && mode == kahn.Eager && r.at(event.NodeStarted, "J") != ms {
						t.Errorf("J began at %v", r.at(event.NodeStarted, "J"))
					}
				})
			}
		}
	}
}

// TestGroupsOfTheirOwn: two graphs that declare a group with the same name have separate groups.
func TestGroupsOfTheirOwn(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		limited := func() *kahn.Graph {
			g := graph(kahn.Node{ID: "x", Groups: []string{"g"}}, kahn.Node{ID: "y", Groups: []string{"g"}})
			g.Groups = []kahn.Group{{Name: "g", Limit: 1}}
			return g
		}
		g := limited().Add(subgraph("S", limited()), subgraph("T", limited()))
		r := try(t, g, takes(10*ms))
		r.expect("x:ok y:ok S:ok T:ok", "completed")
		if r.Duration != 20*ms {
			t.Errorf("the run took %v: three times two after each other, side by side", r.Duration)
		}
	})
}
