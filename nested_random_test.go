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

// treeGen makes random graphs with composites.
type treeGen struct {
	rng      *rand.Rand
	inline   bool          // with guards, conditions and gates
	timeless bool          // without retries and timeouts
	patient  bool          // without timeouts, and steps are retried as often as they fail: attempts that are cut short count, too
	data     bool          // with parameters, merges and ports
	waits    bool          // with more gates, some of which have a timeout
	cleanups bool          // with cleanup nodes even so, and more of them
	tick     time.Duration // delays and timeouts are a few of them, so that many end at the same instant; 0 means random times
	expands  bool          // steps, too, return graphs
	calm     bool          // nothing that makes a status depend on what comes first
	fine     bool          // delays and timeouts that hardly ever end at the same instant
}

// randomTree makes a graph of a few nodes, some of which are composites down to the given depth.
func randomTree(rng *rand.Rand, depth int) *kahn.Graph { return treeGen{rng: rng}.tree(depth) }

func (x treeGen) delay(n int) time.Duration {
	if x.tick > 0 {
		return time.Duration(1+x.rng.IntN(5)) * x.tick
	}
	if x.fine {
		return time.Duration(1 + x.rng.IntN(n*int(ms)))
	}
	return time.Duration(1+x.rng.IntN(n)) * ms
}

// inlined adds a guard or inputs to be judged inline to a node, or turns it into a condition or a gate.
func (x treeGen) inlined(n *kahn.Node) {
	pass := x.rng.IntN(4) > 0
	switch x.rng.IntN(8) {
	case 0, 1, 2:
		n.When = func(kahn.View) (bool, error) { return pass, nil }
	case 3:
		if !n.Cleanup && n.Key == "" && n.Groups == nil {
			*n = kahn.Node{ID: n.ID, In: n.In, Test: func(kahn.View) (any, error) { return pass, nil }}
		}
	case 4:
		if x.waits || x.rng.IntN(8) == 0 {
			*n = kahn.Node{ID: n.ID, In: n.In, Kind: kahn.KindGate}
		}
		if x.waits && !x.timeless && !x.patient && x.rng.IntN(2) == 0 {
			n.Gate = &kahn.Gate{Timeout: x.delay(100), OnTimeout: kahn.GateTimeout(x.rng.IntN(2))}
		}
	}
}

// bind lets edges deliver to parameters, which may be merged, and to ports, which may be required. Which edges an early join has waited for
// depends on the order of their ends, so a node with one gets parameters only where that order is determined.
func (x treeGen) bind(n *kahn.Node) {
	if n.Join == kahn.AnySucceeded && x.patient {
		return
	}
	names := []string{"a", "b"}
	bound := map[string]bool{}
	for i := range n.In {
		if x.rng.IntN(4) > 0 {
			n.In[i].Param = names[x.rng.IntN(2)]
			bound[n.In[i].Param] = true
		}
	}
	n.Merge = []string{"", kahn.MergeArray, kahn.MergeConcat, kahn.MergeObject}[x.rng.IntN(4)]
	if n.Map == nil && n.Sub == nil && x.rng.IntN(3) == 0 {
		n.Ports = []kahn.Port{{Name: "a", Required: bound["a"] && x.rng.IntN(2) == 0}, {Name: "b"}, {Name: "items"}, {Name: "p", Default: "port"}}
	}
}

// expand turns a sub-graph into a node whose step returns that graph.
func (x treeGen) expand(n *kahn.Node) {
	g, d := n.Sub, x.delay(20)
	n.Sub = nil
	n.Do = func(ctx context.Context, s *kahn.Step) (any, error) {
		if _, err := takes(d)(ctx, s); err != nil {
			return nil, err
		}
		return nil, kahn.Expand(g, nil, "state")
	}
}

func (x treeGen) tree(depth int) *kahn.Graph {
	g, rng := graph(), x.rng
	g.Groups = []kahn.Group{{Name: "g", Limit: 1 + rng.IntN(2)}}
	for i := range 1 + rng.IntN(5) {
		n := kahn.Node{ID: fmt.Sprint("n", i), Priority: rng.IntN(3)}
		for j := range i {
			if rng.IntN(3) == 0 {
				n.In = append(n.In, kahn.Edge{From: fmt.Sprint("n", j), On: []kahn.On{kahn.OnSuccess, kahn.OnSuccess, kahn.OnFailure, kahn.OnAlways}[rng.IntN(4)]})
			}
		}
		if rng.IntN(4) == 0 {
			n.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: x.delay(50)}
		}
		if rng.IntN(6) == 0 {
			n.Timeout = x.delay(60)
		}
		n.ContinueOnFail = rng.IntN(5) == 0
		c := rng.IntN(10)
		n.Cleanup = c == 0 && !x.waits || c < 3 && x.cleanups // else a stopped run would have no waiting nodes
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
				if n.Sub = x.tree(depth - 1); x.expands && rng.IntN(2) == 0 {
					x.expand(&n)
				}
			case 2:
				n.Map = &kahn.Map{Over: "items", Limit: rng.IntN(3), ToleratedCount: rng.IntN(3), FailFast: rng.IntN(2) == 0, Compact: rng.IntN(2) == 0}
			case 3:
				n.Map = &kahn.Map{Over: "items", Limit: rng.IntN(3), ToleratedPercent: float64(rng.IntN(101))}
				if n.Sub = x.tree(depth - 1); x.expands && rng.IntN(2) == 0 {
					x.expand(&n)
				}
			case 4:
				times := 1 + rng.IntN(3)
				n.Sub = x.tree(depth - 1)
				n.Loop = &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < times, nil }, MaxIterations: 1 + rng.IntN(4), OnLimit: kahn.LoopLimit(rng.IntN(2)), Pause: time.Duration(times-1) * 3 * ms}
			}
			n.Params = map[string]any{"items": numbers(rng.IntN(4))}
		}
		if x.patient {
			if n.Timeout = 0; n.Retry.MaxAttempts > 0 && n.Sub == nil {
				n.Retry.MaxAttempts = 10_000
			}
		}
		if x.data {
			x.bind(&n)
		}
		if x.timeless {
			n.Retry, n.Timeout = kahn.Retry{}, 0
			if n.Loop != nil {
				n.Loop.Pause = 0
			}
		}
		if x.calm {
			n.CancelLosers = false
			if n.Map != nil {
				n.Map.FailFast = false
			}
		}
		if x.inline {
			x.inlined(&n)
		}
		g.Add(n)
	}
	if rng.IntN(3) == 0 {
		g.Add(kahn.Node{ID: "end", Kind: kahn.KindEnd})
	}
	return g
}

// TestRandomTrees runs random composites whose steps fail, are slow or ignore their context, under limits, stopped at a
// random moment, and checks the events, and that no goroutine, slot or timer is left.
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
				time.AfterFunc(after, func() { run.Cancel() })
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
			time.Sleep(time.Second) // abandoned steps return
		})
		if t.Failed() {
			return
		}
	}
}
