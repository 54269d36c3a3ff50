package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// conduct says what the step of a node does. The step does the same in every life, so the outcome does not depend on where lives end.
type conduct struct {
	fails bool // the step fails in every attempt; the step of a map fails only for the first item
	flaky bool // the step fails in the first attempt
	waits bool // the step waits for a signal, which becomes part of its output
}

func newTrial(seed uint64, expands bool) *trial {
	r := &trial{random: rand.New(rand.NewPCG(seed, 1)), steps: map[string]conduct{}, completed: map[string]int{}, expands: expands, expanded: map[string]bool{}}
	if n, depth := 3+r.random.IntN(12), int(seed%3); expands {
		r.g = r.graph(1+n/3, 1+depth, "n") // waiting nodes should be deep inside
	} else {
		r.g = r.graph(n, depth, "n")
	}
	r.opts = []kahn.Option{kahn.Limit(r.random.IntN(4)), kahn.Mode(r.random.IntN(4) / 3)} // one run in four uses waves
	return r
}

// The method `graph` makes a graph of n nodes, with composites nested up to the given depth.
func (r *trial) graph(n, depth int, name string) *kahn.Graph {
	g := new(kahn.Graph)
	for i := range n {
		node := kahn.Node{ID: fmt.Sprint(name, i)}
		for j := range i {
			if r.random.IntN(3) == 0 {
				node.After = append(node.After, fmt.Sprint(name, j))
			}
		}
		if r.random.IntN(4) == 0 {
			node.OnUpstreamFailure = kahn.UpstreamSkip
		}
		if r.random.IntN(6) == 0 {
			node.ContinueOnFail = true
		}
		switch kind := r.random.IntN(12); {
		case depth > 0 && kind < 4:
			r.composite(&node, kind, depth)
			if r.expands && node.Sub != nil && node.Loop == nil && r.random.IntN(3) > 0 {
				r.expand(&node)
			}
		case kind == 4:
			node.Kind, node.ContinueOnFail = kahn.KindGate, false
		default:
			do := conduct{fails: r.random.IntN(8) == 0, waits: r.random.IntN(10) == 0}
			if r.expands {
				do = conduct{waits: r.random.IntN(2) == 0}
			}
			if !do.fails && r.random.IntN(8) == 0 {
				do.flaky, node.Retry = true, kahn.Retry{MaxAttempts: 2, InitialDelay: 3 * time.Millisecond, Jitter: kahn.JitterNone}
			}
			r.steps[node.ID] = do
		}
		g.Add(node)
	}
	return g
}

// The method `composite` turns a node into a composite of one of four kinds.
func (r *trial) composite(node *kahn.Node, kind, depth int) {
	inner := func() *kahn.Graph { return r.graph(1+r.random.IntN(4), depth-1, node.ID+"x") }
	node.Params = map[string]any{"items": []int{1, 2, 3}[:r.random.IntN(4)]}
	switch kind {
	case 0:
		node.Sub = inner()
	case 1:
		node.Map = &kahn.Map{Over: "items", Limit: r.random.IntN(3), ToleratedCount: r.random.IntN(2)}
		r.steps[node.ID] = conduct{fails: r.random.IntN(8) == 0, waits: r.random.IntN(10) == 0 || r.expands}
	case 2:
		node.Map, node.Sub = &kahn.Map{Over: "items"}, inner()
	case 3:
		times := 1 + r.random.IntN(3)
		node.Sub = inner()
		node.Loop = &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < times, nil }, MaxIterations: 3, Collect: true,
			Pause: time.Duration(r.random.IntN(2)) * time.Millisecond}
	}
}

// The method `expand` replaces the sub-graph of a node by a step that pauses and then returns that graph.
func (r *trial) expand(node *kahn.Node) {
	g, takes := node.Sub, time.Duration(5+r.random.IntN(25))*time.Millisecond
	node.Sub, r.expanded[node.ID] = nil, true
	node.Do = func(ctx context.Context, _ *kahn.Step) (any, error) {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(takes):
			return nil, kahn.Expand(g, nil, "state")
		}
	}
}

func (r *trial) step(_ context.Context, s *kahn.Step) (any, error) {
	time.Sleep(time.Duration(len(s.ID())) * time.Millisecond)
	id, _, _ := strings.Cut(s.ID(), "[")
	answer, answered := s.Resumed()
	switch do := r.steps[id]; {
	case do.fails && !r.mended && s.Index() <= 0, do.flaky && s.Attempt() == 1:
		return nil, errors.New("broken")
	case do.waits && !answered:
		return nil, kahn.Suspend("", "asks", s.Path())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.completed[s.Path()]++
	if answered {
		return fmt.Sprint(answer, " for ", s.SavedState()), nil
	}
	return fmt.Sprint(s.ID(), s.Iteration()), nil
}

// The function `answers` returns the answers for the nodes that wait. A node gets the same answer in every life.
func answers(res *kahn.Result) map[string]any {
	given := map[string]any{}
	for _, w := range res.Waiting {
		given[w.Token] = "answer to " + w.Token
	}
	return given
}

// The method `unstored` performs the graph without a store.
func (r *trial) unstored(t *testing.T) *kahn.Result {
	res, err := kahn.Execute(t.Context(), r.g, r.step, r.opts...)
	for err == nil && res.Status == kahn.RunSuspended {
		res, err = kahn.Execute(t.Context(), r.g, r.step, append(r.opts, kahn.Resume(res.Snapshot()), kahn.EarlySignals(answers(res)))...)
	}
	if res == nil {
		t.Fatalf("%s: %v", r.name, err)
	}
	return res
}
