// Package trees makes random graphs with composites, and steps for them. Tests run these graphs.
package trees

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

const ms = time.Millisecond

// Maker makes random graphs. Its fields decide what the graphs contain.
type Maker struct {
	Rand     *rand.Rand
	Inline   bool          // the graph has guards, conditions and gates
	Timeless bool          // the graph has no retries and no timeouts
	Patient  bool          // the graph has no timeouts, and more retries than interrupted attempts can use up
	Data     bool          // nodes have parameters, merges and ports
	Waits    bool          // together with Inline: more nodes become gates, and some gates have a timeout
	Cleanups bool          // three nodes in ten are cleanup nodes; without Cleanups one in ten is, or none if Waits is set
	Tick     time.Duration // delays and timeouts are small multiples of Tick, so that many end at the same instant; if Tick is 0, they are random
	Expands  bool          // steps return some of the sub-graphs
	Calm     bool          // no CancelLosers and no FailFast, so statuses do not depend on the order of events
	Fine     bool          // delays and timeouts hardly ever end at the same instant
}

// Graph makes a graph of a few nodes. Some nodes are composites, nested at most to the given depth.
func (x Maker) Graph(depth int) *kahn.Graph {
	g, rng := new(kahn.Graph), x.Rand
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
		n.Cleanup = c == 0 && !x.Waits || c < 3 && x.Cleanups // one node in ten; none if x.Waits is set; three in ten if x.Cleanups is set
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
				if n.Sub = x.Graph(depth - 1); x.Expands && rng.IntN(2) == 0 {
					x.expand(&n)
				}
			case 2:
				n.Map = &kahn.Map{Over: "items", Limit: rng.IntN(3), ToleratedCount: rng.IntN(3), FailFast: rng.IntN(2) == 0, Compact: rng.IntN(2) == 0}
			case 3:
				n.Map = &kahn.Map{Over: "items", Limit: rng.IntN(3), ToleratedPercent: float64(rng.IntN(101))}
				if n.Sub = x.Graph(depth - 1); x.Expands && rng.IntN(2) == 0 {
					x.expand(&n)
				}
			case 4:
				times := 1 + rng.IntN(3)
				n.Sub = x.Graph(depth - 1)
				n.Loop = &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < times, nil }, MaxIterations: 1 + rng.IntN(4), OnLimit: kahn.LoopLimit(rng.IntN(2)), Pause: time.Duration(times-1) * 3 * ms}
			}
			n.Params = map[string]any{"items": numbers(rng.IntN(4))}
		}
		if x.Patient {
			if n.Timeout = 0; n.Retry.MaxAttempts > 0 && n.Sub == nil {
				n.Retry.MaxAttempts = 10_000
			}
		}
		if x.Data {
			x.bind(&n)
		}
		if x.Timeless {
			n.Retry, n.Timeout = kahn.Retry{}, 0
			if n.Loop != nil {
				n.Loop.Pause = 0
			}
		}
		if x.Calm {
			n.CancelLosers = false
			if n.Map != nil {
				n.Map.FailFast = false
			}
		}
		if x.Inline {
			x.inlined(&n)
		}
		g.Add(n)
	}
	if rng.IntN(3) == 0 {
		g.Add(kahn.Node{ID: "end", Kind: kahn.KindEnd})
	}
	return g
}

func (x Maker) delay(n int) time.Duration {
	if x.Tick > 0 {
		return time.Duration(1+x.Rand.IntN(5)) * x.Tick
	}
	if x.Fine {
		return max(time.Microsecond, time.Duration(1+x.Rand.IntN(n*int(ms)))) // kahn rejects a shorter time, because its unit was probably forgotten
	}
	return time.Duration(1+x.Rand.IntN(n)) * ms
}

// The method `inlined` adds a guard to a node, turns the node into a condition or a gate, or does nothing.
func (x Maker) inlined(n *kahn.Node) {
	pass := x.Rand.IntN(4) > 0
	switch x.Rand.IntN(8) {
	case 0, 1, 2:
		n.When = func(kahn.View) (bool, error) { return pass, nil }
	case 3:
		if !n.Cleanup && n.Key == "" && n.Groups == nil {
			*n = kahn.Node{ID: n.ID, In: n.In, Test: func(kahn.View) (any, error) { return pass, nil }}
		}
	case 4:
		if x.Waits || x.Rand.IntN(8) == 0 {
			*n = kahn.Node{ID: n.ID, In: n.In, Kind: kahn.KindGate}
		}
		if x.Waits && !x.Timeless && !x.Patient && x.Rand.IntN(2) == 0 {
			n.Gate = &kahn.Gate{Timeout: x.delay(100), OnTimeout: kahn.GateTimeout(x.Rand.IntN(2))}
		}
	}
}

// The method `bind` lets edges to a node set parameters of the node, and may give the node ports. Several values for one parameter may be merged, and
// ports may be required. The inputs of a node with the join AnySucceeded depend on the order in which its predecessors end. If x.Patient is set, this
// order is not determined, so bind does nothing for a node with this join.
func (x Maker) bind(n *kahn.Node) {
	if n.Join == kahn.AnySucceeded && x.Patient {
		return
	}
	names := []string{"a", "b"}
	bound := map[string]bool{}
	for i := range n.In {
		if x.Rand.IntN(4) > 0 {
			n.In[i].Param = names[x.Rand.IntN(2)]
			bound[n.In[i].Param] = true
		}
	}
	n.Merge = []string{"", kahn.MergeArray, kahn.MergeConcat, kahn.MergeObject}[x.Rand.IntN(4)]
	if n.Map == nil && n.Sub == nil && x.Rand.IntN(3) == 0 {
		n.Ports = []kahn.Port{{Name: "a", Required: bound["a"] && x.Rand.IntN(2) == 0}, {Name: "b"}, {Name: "items"}, {Name: "p", Default: "port"}}
	}
}

// The method `expand` replaces the sub-graph of a node by a step that returns this graph.
func (x Maker) expand(n *kahn.Node) {
	g, d := n.Sub, x.delay(20)
	n.Sub = nil
	n.Do = func(ctx context.Context, s *kahn.Step) (any, error) {
		if _, err := takes(d)(ctx, s); err != nil {
			return nil, err
		}
		return nil, kahn.Expand(g, nil, "state")
	}
}

// The function `numbers` returns the integers from 0 to n-1.
func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

var errStep = errors.New("the step broke")

// Step returns a step. The salt, the path of a node and the number of an attempt decide whether the attempt is slow, fails, returns Skip, suspends or
// ignores its context.
func Step(salt uint64) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		path := s.Path()
		h := rand.New(rand.NewPCG(salt, uint64(len(path)*31+s.Attempt())+uint64(s.Index()+1)*7+uint64(path[len(path)-1])))
		d := time.Duration(h.IntN(40)) * ms
		switch h.IntN(12) {
		case 0:
			time.Sleep(d + 30*ms) // this attempt ignores its context
			return nil, ctx.Err()
		case 1:
			time.Sleep(d)
			return nil, errStep
		case 2:
			return nil, kahn.Skip("no")
		case 3, 4:
			if _, ok := s.Resumed(); !ok {
				if _, err := takes(d)(ctx, s); err != nil {
					return nil, err
				}
				return nil, kahn.Suspend("", nil, nil)
			}
		}
		return takes(d)(ctx, s)
	}
}

// The function `takes` returns a step that takes the time d, unless it is stopped.
func takes(d time.Duration) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		select {
		case <-time.After(d):
			return s.ID(), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
