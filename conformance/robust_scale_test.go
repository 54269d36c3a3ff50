package conformance_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// A graph of a million nodes of any shape compiles and runs in one or two seconds: no function takes quadratic time or recurses.
func TestMillionNodes(t *testing.T) {
	n := size(100_000, 10_000, 1_000_000)
	for _, shape := range []struct {
		name          string
		edge          func(i int) (from, to int)
		tiers         int
		failed        int // the number of failed nodes if every step fails
		victim        int // one of the nodes that are then aborted
		victimOrigins int
	}{
		{"chain", func(i int) (int, int) { return i - 1, i }, n, 1, n - 1, 1},
		{"fan-out", func(i int) (int, int) { return 0, i }, 2, 1, n - 1, 1},
		{"fan-in", func(i int) (int, int) { return i, 0 }, 2, n - 1, 0, n - 1},
	} {
		t.Run(shape.name, func(t *testing.T) {
			nodes, edges := make([]kahn.Node, n), make([]kahn.Edge, n-1)
			for i := range nodes {
				nodes[i].ID = strconv.Itoa(i)
			}
			for i := range edges {
				from, to := shape.edge(i + 1)
				edges[i] = kahn.Edge{From: nodes[from].ID, To: nodes[to].ID}
			}
			p, err := graph(nodes...).Connect(edges...).Compile()
			if err != nil {
				t.Fatal(err)
			}
			if tiers := p.Tier(machine.Ref(n-1)) + 1; p.Len() != n || tiers != shape.tiers {
				t.Errorf("%d nodes, %d tiers", p.Len(), tiers)
			}

			var calls atomic.Int64
			res, err := p.Execute(t.Context(), func(context.Context, *kahn.Step) (any, error) {
				calls.Add(1)
				return nil, nil
			}, kahn.Limit(2))
			if err != nil || res.Count(kahn.Completed) != n || calls.Load() != int64(n) {
				t.Fatalf("%v, %d completed, %d calls", err, res.Count(kahn.Completed), calls.Load())
			}

			// The chain of aborts and the list of origins are as long as the graph.
			res, err = p.Execute(t.Context(), always(errStep), kahn.Limit(2), kahn.Waves)
			if err == nil || res.Count(kahn.Failed) != shape.failed || res.Count(kahn.Aborted) != n-shape.failed || len(err.Error()) > 20_000 {
				t.Errorf("%d failed, %d aborted, %.300v", res.Count(kahn.Failed), res.Count(kahn.Aborted), err)
			}
			if victim, _ := res.Node(nodes[shape.victim].ID); victim.Status != kahn.Aborted || len(victim.Cause.Origins) != shape.victimOrigins {
				t.Errorf("%s is %v with %d origins", victim.ID, victim.Status, len(victim.Cause.Origins))
			}
		})
	}
}

// Reading the results of a failed run takes time in proportion to their size. Every node of the chain has one origin. Finding the origin of one
// node must not repeat the search for all nodes before it.
func TestResultsOfLongChain(t *testing.T) {
	const n = 20_000
	nodes := make([]kahn.Node, n)
	for i := range nodes {
		nodes[i].ID = strconv.Itoa(i)
		if i > 0 {
			nodes[i].After = []string{strconv.Itoa(i - 1)}
		}
	}
	res, err := kahn.Execute(t.Context(), graph(nodes...), always(errStep))
	if err == nil {
		t.Fatal("no error")
	}
	begin := time.Now()
	for r := range res.Nodes() {
		if len(r.Cause.Origins) != 1 || r.Cause.Origins[0] != "0" {
			t.Fatalf("the origins of %s are %v", r.ID, r.Cause.Origins)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Fatalf("%v for the first %s of %d nodes", took, r.ID, n)
		}
	}
}
