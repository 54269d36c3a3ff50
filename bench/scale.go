package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"strconv"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// scaled is a kind of work whose size can be doubled. The function `perform` performs n units. It returns the data whose size is measured.
type scaled struct {
	name, unit string
	most       int               // the largest size that is measured; larger runs take minutes
	before     func(n int) error // called before the measurement; may be nil
	perform    func(n int) (left any, err error)
}

var three = func() *kahn.Graph {
	g := &kahn.Graph{}
	g.Add(kahn.Node{ID: "a", Do: plainStep}, kahn.Node{ID: "b", Do: plainStep, After: []string{"a"}}, kahn.Node{ID: "c", Do: plainStep, After: []string{"b"}})
	return g
}

// The function `scales` returns the rows of the table "scale".
func scales() []scaled {
	run := func(g *kahn.Graph, opts ...kahn.Option) (*kahn.Result, error) {
		return kahn.Execute(context.Background(), g, plainStep, opts...)
	}
	mapOf := func(n int, body *kahn.Graph) *kahn.Graph {
		items := make([]any, n)
		for i := range items {
			items[i] = i
		}
		g := &kahn.Graph{}
		node := kahn.Node{ID: "map", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": items}}
		if body != nil {
			node.Sub = body
		} else {
			node.Do = plainStep
		}
		return g.Add(node)
	}
	var ended *store.Memory
	var graph *kahn.Graph
	return []scaled{
		{name: "graph, built, compiled and run", unit: "node", most: 1_000_000, perform: func(n int) (any, error) { return run(kahnGraph(layered(n), false)) }},
		{name: "map of steps", unit: "item", most: 1_000_000, perform: func(n int) (any, error) { return run(mapOf(n, nil)) }},
		{name: "map of graphs of three nodes", unit: "item", most: 100_000, perform: func(n int) (any, error) { return run(mapOf(n, three())) }},
		{name: "loop of three nodes", unit: "iteration", most: 100_000, perform: func(n int) (any, error) {
			done := 0
			return run(new(kahn.Graph).Add(kahn.Node{ID: "loop", Sub: three(), Loop: &kahn.Loop{MaxIterations: n, Until: func(kahn.View) (bool, error) {
				done++
				return done == n, nil
			}}}))
		}},
		{name: "expansions into three nodes", unit: "expansion", most: 100_000, perform: func(n int) (any, error) {
			g := &kahn.Graph{}
			for i := range n {
				g.Add(kahn.Node{ID: strconv.Itoa(i), Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(three(), nil, nil) }})
			}
			return run(g)
		}},
		{name: "durable run in memory", unit: "node", most: 100_000, perform: func(n int) (any, error) {
			db := &store.Memory{}
			res, err := run(kahnGraph(layered(n), false), kahn.RunID("r"), kahn.Durable(db))
			return []any{db, res}, err
		}},
		{name: "result of a durable run, read", unit: "node", most: 100_000, before: func(n int) (err error) {
			ended, graph = &store.Memory{}, kahnGraph(layered(n), false)
			_, err = run(graph, kahn.RunID("r"), kahn.Durable(ended))
			return err
		}, perform: func(int) (any, error) { return kahn.ReadResult(context.Background(), graph, ended, "r") }},
		{name: "readers of a run with 3,000 events", unit: "event and reader", most: 300_000, perform: func(n int) (any, error) {
			r, err := kahn.Start(context.Background(), kahnGraph(layered(1000), false), plainStep)
			if err != nil {
				return nil, err
			}
			if _, err := r.Wait(); err != nil {
				return nil, err
			}
			for read := 0; read < n; {
				for _, err := range r.Events(context.Background(), 0) {
					if err != nil {
						return nil, err
					}
					read++
				}
			}
			return r, nil
		}},
	}
}

// scaleReading holds the costs of a unit, measured at one size.
type scaleReading struct{ cpu, bytes, objects, held float64 }

// The method `at` performs n units, and measures the costs of one unit.
func (x *scaled) at(n int) (r scaleReading, err error) {
	if x.before != nil {
		if err := x.before(n); err != nil {
			return r, fmt.Errorf("%s, %d: %w", x.name, n, err)
		}
	}
	base := heap()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	user, kernel, err := processTimes()
	if err != nil {
		return r, err
	}
	left, err := x.perform(n)
	if err != nil {
		return r, fmt.Errorf("%s, %d: %w", x.name, n, err)
	}
	userAfter, kernelAfter, err := processTimes()
	if err != nil {
		return r, err
	}
	runtime.ReadMemStats(&after)
	units := float64(n)
	r.cpu = float64(userAfter-user+kernelAfter-kernel) / units
	r.bytes, r.objects = float64(after.TotalAlloc-before.TotalAlloc)/units, float64(after.Mallocs-before.Mallocs)/units
	r.held = (heap() - base) / units
	runtime.KeepAlive(left)
	return r, nil
}

// The function `scale` measures each row at three sizes, each twice the previous size. It prints the costs at the largest size. For the processor
// time and the allocated bytes it also prints the exponent of the growth. All sizes are divided by the parameter `divided`, see divisor.
func scale(out io.Writer, divided int) error {
	t := table{header: []string{"work", "of", "units", "CPU ns", "exponent", "B allocated", "exponent", "objects", "B kept"}}
	for _, x := range scales() {
		sizes := []int{x.most / divided / 4, x.most / divided / 2, x.most / divided}
		readings := make([]scaleReading, len(sizes))
		for i, n := range sizes {
			var err error
			if readings[i], err = x.at(n); err != nil {
				return err
			}
		}
		first, last := readings[0], readings[2]
		exponent := func(before, after float64) string { return short(1 + math.Log2(after/before)/2) }
		t.add(x.name, x.unit, thousands(sizes[2]), short(last.cpu), exponent(first.cpu, last.cpu), short(last.bytes), exponent(first.bytes, last.bytes),
			short(last.objects), short(last.held))
	}
	fmt.Fprint(out, "### What a unit costs, and the exponents of the last two doublings; 1.25 at most\n\n")
	t.print(out)
	return nil
}
