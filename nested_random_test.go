package kahn_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// randomTree makes a graph of a few nodes, some of which are composites down to the given depth.
func randomTree(rng *rand.Rand, depth int) *kahn.Graph {
	g := graph()
	g.Groups = []kahn.Group{{Name: "g", Limit: 1 + rng.IntN(2)}}
	for i := range 1 + rng.IntN(5) {
		n := kahn.Node{ID: fmt.Sprint("n", i), Priority: rng.IntN(3)}
		for j := range i {
			if rng.IntN(3) == 0 {
				n.In = append(n.In, kahn.Edge{From: fmt.Sprint("n", j), On: []kahn.On{kahn.OnSuccess, kahn.OnSuccess, kahn.OnFailure, kahn.OnAlways}[rng.IntN(4)]})
			}
		}
		if rng.IntN(4) == 0 {
			n.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: time.Duration(1+rng.IntN(50)) * ms}
		}
		if rng.IntN(6) == 0 {
			n.Timeout = time.Duration(1+rng.IntN(60)) * ms
		}
		n.ContinueOnFail = rng.IntN(5) == 0
		n.Cleanup = rng.IntN(10) == 0
		if rng.IntN(4) == 0 && depth > 0 {
			n.Groups = []string{"g"}
		}
		if rng.IntN(5) == 0 {
			n.Key = "k"
		}
		if len(n.In) > 1 && rng.IntN(3) == 0 && !n.Cleanup {
			n.Join, n.CancelLosers = kahn.AnySucceeded, rng.IntN(2) == 0
		}
		kind := rng.IntN(8)
		if depth > 0 && kind < 5 {
			switch kind {
			case 0, 1:
				n.Sub = randomTree(rng, depth-1)
			case 2:
				n.Map = &kahn.Map{Over: "items", Limit: rng.IntN(3), ToleratedCount: rng.IntN(3), FailFast: rng.IntN(2) == 0, Compact: rng.IntN(2) == 0}
			case 3:
				n.Map = &kahn.Map{Over: "items", Limit: rng.IntN(3), ToleratedPercent: float64(rng.IntN(101))}
				n.Sub = randomTree(rng, depth-1)
			case 4:
				times := 1 + rng.IntN(3)
				n.Sub = randomTree(rng, depth-1)
				n.Loop = &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < times, nil }, MaxIterations: 1 + rng.IntN(4), OnLimit: kahn.LoopLimit(rng.IntN(2))}
			}
			n.Params = map[string]any{"items": numbers(rng.IntN(4))}
		}
		g.Add(n)
	}
	if rng.IntN(3) == 0 {
		g.Add(kahn.Node{ID: "end", Kind: kahn.KindEnd})
	}
	return g
}

// TestRandomTrees runs random composites whose steps fail, take their time or ignore their context, under limits, stopped at
// a random moment, and looks for goroutines, slots and timers that are left, and at the events.
func TestRandomTrees(t *testing.T) {
	n := uint64(300)
	if testing.Short() {
		n = 50
	}
	for seed := range n {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, seed))
			g := randomTree(rng, 3)
			opts := []kahn.Option{kahn.Limit(rng.IntN(3)), kahn.KeyLimit(rng.IntN(2)), kahn.Mode(rng.IntN(2)), kahn.FailureMode(rng.IntN(3)),
				kahn.StopMode(rng.IntN(2)), kahn.CancelGrace(20 * ms), kahn.Random(func() float64 { return 0.5 })}
			stop, after := rng.IntN(6), time.Duration(rng.IntN(200))*ms
			salt := rng.Uint64()
			step := func(ctx context.Context, s *kahn.Step) (any, error) {
				h := rand.New(rand.NewPCG(salt, uint64(len(s.Path())*31+s.Attempt())+uint64(s.Index()+1)*7+uint64(s.Path()[len(s.Path())-1])))
				d := time.Duration(h.IntN(40)) * ms
				switch h.IntN(12) {
				case 0:
					time.Sleep(d + 30*ms) // whatever its context says
					return nil, ctx.Err()
				case 1, 2:
					time.Sleep(d)
					return nil, errStep
				case 3:
					return nil, kahn.Skip("no")
				}
				return takes(d)(ctx, s)
			}
			rec := newRecorder()
			run, err := kahn.Start(t.Context(), g, step, append(opts, kahn.OnEvent(rec.add))...)
			if err != nil {
				t.Fatal(seed, err)
			}
			switch stop {
			case 0, 1:
				time.AfterFunc(after, run.Cancel)
			case 2:
				time.AfterFunc(after, func() { run.AbortAll(errHost) })
			case 3:
				time.AfterFunc(after, func() { _ = run.CancelNode("n0") })
			}
			res, _ := run.Wait()
			if left := run.Leftovers(); left != "" {
				t.Errorf("seed %d: left over: %s", seed, left)
			}
			if len(res.Warnings) > 0 || !res.Status.Terminal() {
				t.Errorf("seed %d: %v, warnings %v", seed, res.Status, res.Warnings)
			}
			if len(res.Abandoned) == 0 {
				if err := kahntest.CheckEvents(g, res, rec.all()); err != nil {
					t.Errorf("seed %d: %v\n%s", seed, err, eventText(rec.all()))
				}
			}
			time.Sleep(time.Second) // what was abandoned returns
		})
		if t.Failed() {
			return
		}
	}
}
