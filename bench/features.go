package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// feature is an option or a field of a node that hosts may use or leave out. Its cost is the difference between the contestant with the feature and
// the contestant without it.
type feature struct {
	name          string
	shape         *shape
	with, without contestant

	// handWith and handWithout are the hand-written executor with and without a counterpart of the feature. Both are nil if there is no counterpart.
	handWith, handWithout *contestant
	measured              float64 // kahn's cost divided by the cost of the counterpart, measured on two busy cores; see budget.gate
}

// plainStep does nothing.
func plainStep(context.Context, *kahn.Step) (any, error) { return nil, nil }

// kahnOn returns a contestant that runs kahn under a context that may end, as nearly all contexts may. It passes the parameter `change` to graphOf.
func kahnOn(step kahn.StepFunc, change func(n *kahn.Node), opts ...kahn.Option) contestant {
	return contestant{"kahn", func(j job) (func() error, error) {
		plan, err := graphOf(j.shape, change).Compile()
		if err != nil {
			return nil, err
		}
		return func() error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			_, err := plan.Execute(ctx, step, opts...)
			return err
		}, nil
	}}
}

// graphOf returns the graph of a shape. If change is not nil, graphOf calls it with each node before it adds the node.
func graphOf(s *shape, change func(n *kahn.Node)) *kahn.Graph {
	plain, g := kahnGraph(s, false), &kahn.Graph{}
	for _, n := range plain.Nodes() {
		if change != nil {
			change(&n)
		}
		g.Add(n)
	}
	return g.Connect(plain.Edges()...)
}

// handOn returns a contestant that runs the hand-written executor with a clock, under a context that may end.
func handOn(step stepFunc) *contestant {
	return &contestant{"hand-written", func(j job) (func() error, error) {
		h := newHandWritten(j.shape, step)
		h.clock = true
		return func() error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			_, err := h.run(ctx)
			return err
		}, nil
	}}
}

const featureTimeout = time.Hour // the timeout of steps that return at once

// asksDone is a step that calls the method Done of its context, as a waiting step does.
func asksDone(ctx context.Context, _ *kahn.Step) (any, error) {
	if ctx.Done() == nil {
		return nil, fmt.Errorf("the context of a step cannot end")
	}
	return nil, nil
}

// The function `features` returns the rows of the table "features". The first three features have a counterpart in the standard library.
func features() []feature {
	all := chain(1000)
	plain, hand := kahnOn(plainStep, nil), handOn(func(context.Context, int) error { return nil })
	timeout := func(n *kahn.Node) { n.Timeout = featureTimeout }
	within := func(limit time.Duration, asks bool) *contestant {
		return handOn(func(ctx context.Context, _ int) error {
			var cancel context.CancelFunc
			if limit > 0 {
				ctx, cancel = context.WithTimeout(ctx, limit)
			} else {
				ctx, cancel = context.WithCancel(ctx)
			}
			defer cancel()
			if asks && ctx.Done() == nil {
				return fmt.Errorf("the context of a step cannot end")
			}
			return nil
		})
	}
	same := func(next kahn.StepFunc) kahn.StepFunc { return next }
	return []feature{
		{name: "ctx.Done()", shape: all, with: kahnOn(asksDone, nil), without: plain, handWith: within(0, true), handWithout: hand, measured: 1.35},
		{name: "Timeout", shape: all, with: kahnOn(plainStep, timeout), without: plain, handWith: within(featureTimeout, false), handWithout: hand, measured: 0.6},
		{name: "Timeout and ctx.Done()", shape: all, with: kahnOn(asksDone, timeout), without: plain, handWith: within(featureTimeout, true), handWithout: hand, measured: 1.35},
		{name: "OnEvent", shape: all, with: kahnOn(plainStep, nil, kahn.OnEvent(func(kahn.Event) {})), without: plain},
		{name: "OnNode", shape: all, with: kahnOn(plainStep, nil, kahn.OnNode(func(kahn.NodeResult) {})), without: plain},
		{name: "Use", shape: all, with: kahnOn(plainStep, nil, kahn.Use(same)), without: plain},
		{name: "a History", shape: all, with: kahnOn(plainStep, nil, &kahn.History{}), without: plain},
		{name: "When", shape: all, with: kahnOn(plainStep, func(n *kahn.Node) { n.When = func(kahn.View) (bool, error) { return true, nil } }), without: plain},
		{name: "Limit(1)", shape: all, with: kahnOn(plainStep, nil, kahn.Limit(1)), without: plain},
		{name: "Retry", shape: all, with: kahnOn(plainStep, func(n *kahn.Node) { n.Retry = kahn.RetryStandard() }), without: plain},
		{name: "Upstream of three", shape: layered(1000), with: upstreamOn(true), without: upstreamOn(false)},
		{name: "Start, and Wait", shape: all, with: kahnBegun(func(ctx context.Context, g *kahn.Graph) (*kahn.Run, error) { return kahn.Start(ctx, g, plainStep) }), without: plain},
		{name: "a Runner", shape: all, with: kahnBegun(inRunner()), without: plain},
	}
}

// upstreamOn returns a contestant whose steps return a value. If `read` is true, each step also reads the values of its predecessors by their ids.
func upstreamOn(read bool) contestant {
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if read {
			for _, id := range s.Config().([]string) {
				if _, ok := s.Upstream(id); !ok {
					return nil, fmt.Errorf("%s has no value from %s", s.ID(), id)
				}
			}
		}
		return s, nil
	}
	return contestant{"kahn", func(j job) (func() error, error) {
		in, i := j.shape.predecessors(), 0
		return kahnOn(step, func(n *kahn.Node) {
			ids := []string{}
			for _, from := range in.row(i) {
				ids = append(ids, strconv.Itoa(int(from)))
			}
			n.Config = ids
			i++
		}).prepare(j)
	}}
}

// kahnBegun returns a contestant that begins a run by the function `begin`, and then waits for the end of the run.
func kahnBegun(begin func(context.Context, *kahn.Graph) (*kahn.Run, error)) contestant {
	return contestant{"kahn", func(j job) (func() error, error) {
		g := graphOf(j.shape, nil)
		return func() error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			run, err := begin(ctx, g)
			if err != nil {
				return err
			}
			_, err = run.Wait()
			return err
		}, nil
	}}
}

// inRunner returns a function that begins runs in a Runner. The Runner does not remember ended runs.
func inRunner() func(context.Context, *kahn.Graph) (*kahn.Run, error) {
	rn := &kahn.Runner{History: -1}
	return func(ctx context.Context, g *kahn.Graph) (*kahn.Run, error) { return rn.Start(ctx, g, plainStep) }
}

// addition is the cost that a feature adds.
type addition struct {
	cpu, bytes, allocs float64 // per node; cpu is processor time in ns, which other load on the machine hardly changes
	relative           float64 // the processor time with the feature divided by the time without it
	hand               float64 // the ns per node that the counterpart adds; 0 if there is no counterpart
	ratio              float64 // cpu divided by hand
}

// The method `measure` measures a feature in several rounds.
func (f *feature) measure(rounds int, target time.Duration) (a addition, err error) {
	all := []contestant{f.with, f.without}
	if f.handWith != nil {
		all = append(all, *f.handWith, *f.handWithout)
	}
	entries, err := contestOn(f.shape, rounds, target, all...)
	if err != nil {
		return a, fmt.Errorf("%s: %w", f.name, err)
	}
	with, without := entries[0], entries[1]
	cpu := func(e *entry) float64 { return e.median(func(r reading) float64 { return r.cpu }) }
	a = addition{cpu: cpu(with) - cpu(without), bytes: with.bytes() - without.bytes(), allocs: with.allocs() - without.allocs(), relative: cpu(with) / cpu(without)}
	if f.handWith != nil {
		a.hand = cpu(entries[2]) - cpu(entries[3])
		a.ratio = a.cpu / a.hand
	}
	return a, nil
}

// additions prints the table "features".
func additions(out io.Writer, rounds int, target time.Duration) error {
	t := table{header: []string{"feature", "more CPU ns/node", "B/node", "allocs/node", "a run takes", "the standard library", "kahn / that"}}
	for _, f := range features() {
		a, err := f.measure(rounds, target)
		if err != nil {
			return err
		}
		hand, ratio := "-", "-"
		if a.hand != 0 {
			hand, ratio = short(a.hand), times(a.ratio)
		}
		t.add(f.name, short(a.cpu), short(a.bytes), short(a.allocs), times(a.relative), hand, ratio)
	}
	fmt.Fprint(out, "### What a feature adds to a run of 1,000 steps that do nothing, under a context that may end\n\n")
	t.print(out)
	return nil
}

// additionBudget is the budget for the cost that a feature adds in kahn, divided by the cost that its counterpart in the standard library adds to the
// hand-written executor.
const additionBudget = 1.2

// checkAdditions measures the ratio of each feature that has a counterpart. ok is false if a ratio exceeds both additionBudget and 1.5 times the
// feature's field `measured`.
func checkAdditions(out io.Writer, rounds int, target time.Duration) (ok bool, err error) {
	ok = true
	t := table{header: []string{"kahn / the standard library", "more CPU ns/node", "measured", "budget", "fails above", "verdict"}}
	for _, f := range features() {
		if f.handWith == nil {
			continue
		}
		limit := (&budget{ratio: additionBudget, measured: f.measured}).gate()
		verdict, a := "TOO MUCH", addition{}
		for try := 0; try < tries && verdict != "ok"; try++ {
			if a, err = f.measure(rounds*(1+try), target); err != nil {
				return false, err
			}
			if a.ratio <= limit {
				verdict = "ok"
			}
		}
		ok = ok && verdict == "ok"
		t.add(f.name, short(a.cpu), times(a.ratio), times(additionBudget), times(limit), verdict)
	}
	fmt.Fprintln(out)
	t.print(out)
	return ok, nil
}
