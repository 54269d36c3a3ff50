package sagas

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// Graph returns a random graph. Most of its nodes have a compensation.
func (w *World) Graph(r *rand.Rand, depth int) *kahn.Graph {
	g := new(kahn.Graph)
	n := 2 + r.IntN(7)
	g.Groups = []kahn.Group{{Name: "two", Limit: 2}}
	for i := range n {
		node := kahn.Node{ID: fmt.Sprintf("n%d", i), Do: w.do, CompensateRetry: kahn.Retry{MaxAttempts: 30, InitialDelay: ms}}
		if r.IntN(5) > 0 {
			node.Compensate = w.undo
		} else {
			node.CompensateRetry, node.Do = kahn.Retry{}, func(context.Context, *kahn.Step) (any, error) { return nil, nil }
		}
		for j := range i {
			if r.IntN(3) == 0 {
				e := kahn.Edge{From: fmt.Sprintf("n%d", j)}
				switch r.IntN(10) {
				case 0:
					e.On = kahn.OnFailure
				case 1:
					e.On = kahn.OnAlways
				case 2:
					e.DataOnly = true
				}
				node.In = append(node.In, e)
			}
		}
		if r.IntN(4) == 0 {
			node.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: 3 * ms}
		}
		if r.IntN(6) == 0 {
			node.Timeout = 10 * ms
		}
		switch r.IntN(8) {
		case 0:
			node.Groups = []string{"two"}
		case 1:
			node.Key = "k"
		}
		node.ContinueOnFail, node.Critical = r.IntN(12) == 0, r.IntN(12) == 0
		if r.IntN(10) == 0 {
			node.Fallback = func(context.Context, error) (any, error) { return nil, errSoldOut }
		}
		if len(node.In) > 1 && r.IntN(6) == 0 {
			node.Join = []kahn.Join{kahn.AnySucceeded, kahn.AllDone, kahn.OneFailed}[r.IntN(3)]
		}
		if w.Adapt != nil {
			w.Adapt(&node, false)
		}
		if w.composite(r, &node, depth); w.Adapt != nil {
			w.Adapt(&node, true)
		}
		g.Add(node)
	}
	for i := range r.IntN(3) {
		node := kahn.Node{ID: fmt.Sprintf("tidy%d", i), Cleanup: true, After: []string{fmt.Sprintf("n%d", r.IntN(n))}, Do: w.cleanup}
		if w.Adapt != nil {
			w.Adapt(&node, true)
		}
		g.Add(node)
	}
	if r.IntN(4) == 0 {
		verdict := any(nil)
		switch r.IntN(4) {
		case 0:
			verdict = kahn.EndVerdict{Status: kahn.RunFailed}
		case 1:
			verdict = kahn.EndVerdict{Status: kahn.RunCompleted}
		}
		g.Add(kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: func(context.Context, *kahn.Step) (any, error) { return verdict, nil }})
	}
	return g
}

func (w *World) cleanup(_ context.Context, s *kahn.Step) (any, error) {
	if w.rng(s, 2).IntN(8) == 0 {
		return nil, errSoldOut
	}
	return nil, nil
}

// The method `composite` may turn the node n into a composite: a sub-graph, a loop, a map of steps or of sub-graphs, or a step that returns a graph.
func (w *World) composite(r *rand.Rand, n *kahn.Node, depth int) {
	if depth == 0 || r.IntN(3) > 0 {
		return
	}
	own := n.Compensate != nil && r.IntN(4) == 0
	n.Fallback, n.Timeout = nil, 0
	if r.IntN(4) == 0 {
		n.Timeout = 40 * ms
	}
	switch r.IntN(5) {
	case 0:
		n.Do, n.Groups, n.Key, n.Sub = nil, nil, "", w.Graph(r, depth-1)
	case 1:
		n.Do, n.Groups, n.Key, n.Sub = nil, nil, "", w.Graph(r, depth-1)
		n.Loop = &kahn.Loop{MaxIterations: 3, OnLimit: []kahn.LoopLimit{kahn.LoopFail, kahn.LoopStop}[r.IntN(2)], While: while(1 + r.IntN(4))}
	case 2:
		n.Map, n.Params = &kahn.Map{Over: "items", ToleratedCount: r.IntN(3), FailFast: r.IntN(3) == 0}, map[string]any{"items": []int{0, 1, 2}[:r.IntN(4)]}
		return // a map itself has no compensation; its items have one
	case 3:
		n.Do, n.Groups, n.Key, n.Sub = nil, nil, "", w.Graph(r, depth-1)
		n.Map, n.Params = &kahn.Map{Over: "items", ToleratedCount: r.IntN(3), Limit: r.IntN(3)}, map[string]any{"items": []int{0, 1, 2}[:r.IntN(4)]}
	case 4:
		inner := w.Graph(r, depth-1)
		w.Graphs = append(w.Graphs, inner)
		number := len(w.Graphs) - 1
		n.Do = func(_ context.Context, s *kahn.Step) (any, error) {
			if !own && w.forgets(s) {
				return nil, errSoldOut
			}
			return nil, kahn.Expand(inner, nil, number)
		}
		n.Groups, n.Key = nil, ""
	}
	if n.Compensate = nil; own {
		n.Compensate = func(ctx context.Context, s *kahn.Step) error {
			w.Mu.Lock()
			defer w.Mu.Unlock()
			if w.dead {
				return errors.New("the process has died")
			}
			w.Clock++
			w.Undone[s.Path()]++
			w.Begun[s.Path()] = w.Clock
			w.Clock++
			w.Ended[s.Path()] = w.Clock
			for path := range w.keys { // undo all nodes inside
				if strings.HasPrefix(path, s.Path()+"/") || strings.HasPrefix(path, s.Path()+"#") {
					if w.HasUndone(path); w.Begun[path] > 0 {
						w.Ended[path] = w.Clock
					}
				}
			}
			return nil
		}
	} else {
		n.CompensateRetry = kahn.Retry{}
	}
}

// Conditions returns random options for a run, and the function `host`, which may stop the run or one of its nodes.
func Conditions(r *rand.Rand, cancel func()) (opts []kahn.Option, host func(*kahn.Run)) {
	opts = []kahn.Option{[]kahn.Mode{kahn.Eager, kahn.Waves}[r.IntN(2)], []kahn.FailureMode{kahn.Continue, kahn.StopScheduling, kahn.AbortRunning}[r.IntN(3)]}
	if r.IntN(3) == 0 {
		opts = append(opts, kahn.Limit(1+r.IntN(3)))
	}
	if r.IntN(3) == 0 {
		opts = append(opts, kahn.KeyLimit(1))
	}
	if r.IntN(5) == 0 {
		opts = append(opts, kahn.StatusStrict)
	}
	if r.IntN(6) == 0 {
		opts = append(opts, kahn.Timeout(time.Duration(1+r.IntN(60))*ms))
	}
	at, how := time.Duration(r.IntN(60))*ms, r.IntN(8)
	return opts, func(run *kahn.Run) {
		time.Sleep(at)
		switch how {
		case 0:
			_ = run.Cancel()
		case 1:
			_ = run.AbortAll(nil)
		case 2:
			cancel()
		case 3:
			_ = run.CancelNode("n1")
		}
	}
}

func while(less int) func(kahn.View) (bool, error) {
	return func(v kahn.View) (bool, error) { return v.Iteration() < less, nil }
}
