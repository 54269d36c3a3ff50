package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// TestScenarioLosers: an early join may stop the nodes that only it was waiting for.
func TestScenarioLosers(t *testing.T) {
	join := kahn.Node{ID: "J", After: []string{"A", "B"}, Join: kahn.AnySucceeded, CancelLosers: true}
	slowB := func(ctx context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "B" {
			return untilStopped(ctx, s)
		}
		return takes(10*ms)(ctx, s)
	}
	inBubble(t, "120 a running loser is cancelled", func(t *testing.T) {
		r := try(t, graph(after("A"), after("B"), join), slowB)
		r.expect("A:ok B:C J:ok", "completed")
		r.cause("B", kahn.CauseSuperseded)
		r.count(event.NodeCancelled, "B", 1)
		if !errors.Is(r.node("B").Err, kahn.ErrSuperseded) || r.Duration != 20*ms {
			t.Errorf("B has %v, the run took %v", r.node("B").Err, r.Duration)
		}
	})
	inBubble(t, "120 a success that arrives anyway is kept", func(t *testing.T) {
		r := try(t, graph(after("A"), after("B"), join), func(ctx context.Context, s *kahn.Step) (any, error) {
			_, err := slowB(ctx, s)
			if s.ID() == "B" {
				return "done after all", nil
			}
			return nil, err
		})
		r.expect("A:ok B:ok J:ok", "completed")
	})
	inBubble(t, "121 what only losers need is superseded with them", func(t *testing.T) {
		wide := join
		wide.After = []string{"A", "P"}
		r := try(t, graph(after("A"), after("B"), after("P", "B"), wide), slowB)
		r.expect("A:ok B:C P:S/superseded J:ok", "completed")
		if skip := r.node("P").Skip; skip.Node != "J" {
			t.Errorf("P is skipped by %v", skip)
		}
	})
	inBubble(t, "122 what feeds an undecided node is no loser", func(t *testing.T) {
		r := try(t, graph(after("A"), after("B"), join, after("K", "B")), func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "B" {
				return takes(100*ms)(ctx, s)
			}
			return takes(10*ms)(ctx, s)
		})
		r.expect("A:ok B:ok J:ok K:ok", "completed")
	})
	inBubble(t, "122 without the option nothing is stopped", func(t *testing.T) {
		plain := join
		plain.CancelLosers = false
		r := try(t, graph(after("A"), after("B"), plain), takes(10*ms))
		r.expect("A:ok B:ok J:ok", "completed")
	})
	inBubble(t, "121 a loser that backs off is cancelled, one that is queued is skipped", func(t *testing.T) {
		three := join
		three.After = []string{"A", "B", "C"}
		begin := time.Now()
		retry := kahn.Node{ID: "B", Priority: 1, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Hour, MaxDelay: time.Hour, Jitter: kahn.JitterNone}}
		r := try(t, graph(after("A"), retry, kahn.Node{ID: "C", Priority: -1}, three), func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "B" {
				return nil, errStep
			}
			return takes(10*ms)(ctx, s)
		}, kahn.Limit(1))
		r.expect("A:ok B:C C:S/superseded J:ok", "completed")
		if took := time.Since(begin); r.Duration != 20*ms || took != 20*ms {
			t.Errorf("the run took %v, Wait %v", r.Duration, took)
		}
	})
}

// TestScenarioGroups: a group limits how many members run, or stops all members when one fails.
func TestScenarioGroups(t *testing.T) {
	limited := func(nodes ...kahn.Node) *kahn.Graph {
		g := graph(nodes...)
		g.Groups = []kahn.Group{{Name: "g", Limit: 1}, {Name: "h", Limit: 1}}
		return g
	}
	inBubble(t, "126 a node that lacks a group slot holds nobody back", func(t *testing.T) {
		g := limited(kahn.Node{ID: "G1", Groups: []string{"g"}}, kahn.Node{ID: "G2", Groups: []string{"g"}}, after("X"))
		r := try(t, g, takes(10*ms), kahn.Limit(2))
		r.expect("G1:ok G2:ok X:ok", "completed")
		if a, b, c := r.at(event.NodeStarted, "G1"), r.at(event.NodeStarted, "X"), r.at(event.NodeStarted, "G2"); a != 0 || b != 0 || c != 10*ms {
			t.Errorf("G1 started at %v, X at %v, G2 at %v", a, b, c)
		}
	})
	inBubble(t, "126 slots of several groups are taken together or not at all", func(t *testing.T) {
		g := limited(kahn.Node{ID: "A", Groups: []string{"g"}}, kahn.Node{ID: "AB", Groups: []string{"g", "h"}, Priority: 1},
			kahn.Node{ID: "B", Groups: []string{"h"}}, kahn.Node{ID: "B2", Groups: []string{"h"}})
		r := try(t, g, takes(10*ms))
		r.expect("A:ok AB:ok B:ok B2:ok", "completed")
		if a, b, c := r.at(event.NodeStarted, "AB"), r.at(event.NodeStarted, "A"), r.at(event.NodeStarted, "B2"); a != 0 || b != 10*ms || c != 20*ms {
			t.Errorf("AB started at %v, A at %v, B2 at %v", a, b, c)
		}
	})
	inBubble(t, "126 a slot that one cannot use goes to the next in line", func(t *testing.T) {
		// AB waits for g, then for h. While AB waits for h, another node must get the slot of g.
		g := limited(kahn.Node{ID: "A", Groups: []string{"g"}, Priority: 9}, kahn.Node{ID: "B", Groups: []string{"h"}, Priority: 9},
			kahn.Node{ID: "AB", Groups: []string{"g", "h"}, Priority: 5}, kahn.Node{ID: "A2", Groups: []string{"g"}})
		r := try(t, g, func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "B" {
				return takes(100*ms)(ctx, s)
			}
			return takes(10*ms)(ctx, s)
		})
		if at := r.at(event.NodeStarted, "A2"); at != 10*ms {
			t.Errorf("A2 started at %v", at)
		}
		if at := r.at(event.NodeStarted, "AB"); at != 100*ms {
			t.Errorf("AB started at %v", at)
		}
	})
	inBubble(t, "126 the same key", func(t *testing.T) {
		var g kahn.Graph
		for i := range 6 {
			g.Add(kahn.Node{ID: fmt.Sprint(i), Key: []string{"x", "y"}[i%2]})
		}
		r := try(t, &g, takes(10*ms), kahn.KeyLimit(1))
		if r.Duration != 30*ms {
			t.Errorf("three of a key took %v", r.Duration)
		}
		if r := try(t, &g, takes(10*ms)); r.Duration != 10*ms {
			t.Errorf("without a limit they took %v", r.Duration)
		}
	})
	together := func() *kahn.Graph {
		g := graph(kahn.Node{ID: "A", Groups: []string{"g"}}, kahn.Node{ID: "B", Groups: []string{"g"}}, after("C", "B"), after("D"))
		g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
		return g
	}
	failA := func(other kahn.StepFunc) kahn.StepFunc {
		return func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "A" {
				return fails(10*ms)(ctx, s)
			}
			return other(ctx, s)
		}
	}
	inBubble(t, "179 a failed member takes the others along, and nobody else", func(t *testing.T) {
		r := try(t, together(), failA(func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "B" {
				return untilStopped(ctx, s)
			}
			return takes(20*ms)(ctx, s)
		}))
		r.expect("A:F B:X C:X D:ok", "failed")
		r.cause("B", kahn.CauseSiblingFailure)
		r.cause("C", kahn.CauseUpstreamFailure)
		if origins := r.node("C").Cause.Origins; !slices.Equal(origins, []string{"A"}) {
			t.Errorf("C goes back to %v", origins)
		}
	})
	inBubble(t, "179 members that have not started", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Groups: []string{"g"}, Priority: 1}, kahn.Node{ID: "B", Groups: []string{"g"}}, after("C", "B"), after("D"))
		g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
		r := try(t, g, failA(neverStep(t)), kahn.Limit(1), kahn.AbortRunning)
		r.expect("A:F B:X C:X D:X", "failed")
		r.cause("B", kahn.CauseSiblingFailure)
	})
	inBubble(t, "180 drain keeps the result", func(t *testing.T) {
		r := try(t, together(), failA(takes(20*ms)), kahn.Drain)
		r.expect("A:F B:ok C:ok D:ok", "failed")
	})
	inBubble(t, "180 a draining member is not retried", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Groups: []string{"g"}}, kahn.Node{ID: "B", Groups: []string{"g"}, Retry: kahn.RetryStandard()})
		g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
		r := try(t, g, failA(fails(20*ms)), kahn.Drain)
		r.expect("A:F B:F", "failed")
		r.count(event.NodeRetried, "B", 0)
	})
	inBubble(t, "180 a run that drains", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(after("A"), after("B", "A")), takes(50*ms), soon(func(r *kahn.Run) { r.Cancel() }), kahn.Drain)
		r.expect("A:ok B:C", "cancelled")
	})

	for name, g := range map[string]*kahn.Graph{
		"unknown":  graph(kahn.Node{ID: "A", Groups: []string{"?"}}),
		"twice":    limited(kahn.Node{ID: "A", Groups: []string{"g", "g"}}),
		"negative": {Groups: []kahn.Group{{Name: "g", Limit: -1}}},
		"unnamed":  {Groups: []kahn.Group{{Limit: 1}}},
	} {
		if _, err := g.Compile(); !errors.Is(err, kahn.ErrBadValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestScenarioLateFailure(t *testing.T) {
	run := func(t *testing.T, cancel bool, opts ...kahn.Option) trial {
		g := graph(after("A"), after("B"), kahn.Node{ID: "J", After: []string{"A", "B"}, Join: kahn.AnySucceeded, CancelOnLateFailure: cancel})
		return try(t, g, func(ctx context.Context, s *kahn.Step) (any, error) {
			switch s.ID() {
			case "A":
				return nil, nil
			case "B":
				return fails(10*ms)(ctx, s)
			}
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(50 * ms):
				return nil, nil
			}
		}, opts...)
	}
	inBubble(t, "189 the decision stands", func(t *testing.T) { run(t, false).expect("A:ok B:F J:ok", "completed+d") })
	inBubble(t, "190 unless the node says otherwise", func(t *testing.T) {
		r := run(t, true)
		r.expect("A:ok B:F J:X", "failed")
		r.cause("J", kahn.CauseUpstreamFailure)
		if r.Duration != 10*ms {
			t.Errorf("it took %v", r.Duration)
		}
	})
	inBubble(t, "190 also while it is queued", func(t *testing.T) {
		g := graph(after("A"), kahn.Node{ID: "B", Priority: 1},
			kahn.Node{ID: "J", After: []string{"A", "B"}, Join: kahn.AnySucceeded, CancelOnLateFailure: true, Priority: -1, Do: neverStep(t)}, after("X"))
		r := try(t, g, func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "B" {
				return fails(15*ms)(ctx, s)
			}
			return takes(10*ms)(ctx, s)
		}, kahn.Limit(2))
		r.expect("A:ok B:F J:X X:ok", "failed")
	})
}

// TestEstimates: the path that took longest in an earlier run starts first.
func TestEstimates(t *testing.T) {
	inBubble(t, "124 by an earlier run", func(t *testing.T) {
		g := graph(after("short"), after("long"), after("longer", "long"), after("also", "short"), after("more", "also"))
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "long" {
				return takes(time.Second)(ctx, s)
			}
			return takes(ms)(ctx, s)
		}
		first := try(t, g, step, kahn.Limit(1))
		if got := first.started(); !strings.HasPrefix(got, "short") {
			t.Errorf("by the number of nodes: %s", got)
		}
		second := try(t, g, step, kahn.Limit(1), kahn.Estimates(first.Result))
		if got := second.started(); !strings.HasPrefix(got, "long") {
			t.Errorf("by the earlier run: %s", got)
		}
		if r := try(t, g, step, kahn.Estimates(nil)); r.err != nil {
			t.Error(r.err)
		}
	})
	inBubble(t, "124 declared", func(t *testing.T) {
		g := graph(after("A"), kahn.Node{ID: "B", Estimate: time.Minute}, kahn.Node{ID: "C", Priority: 5})
		if got := try(t, g, takes(ms), kahn.Limit(1)).started(); got != "C B A" {
			t.Errorf("%s", got)
		}
	})
}
