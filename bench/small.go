package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// sizes are the numbers of nodes in the tables "small" and "build".
var sizes = []int{1, 3, 10, 30, 100, 1000, 10_000}

// sized returns a common kind of graph with n nodes: a chain if n is at most 3, otherwise layers whose nodes have three predecessors each.
func sized(n int) *shape {
	switch {
	case n <= 3:
		return chain(n)
	case n < 1000:
		s := &shape{name: "layers", n: n}
		const width = 5
		for i := width; i < n; i++ {
			before := i - i%width - width
			for k := range 3 {
				s.edges = append(s.edges, [2]int32{int32(before + (i+k)%width), int32(i)})
			}
		}
		return s
	}
	return layered(n)
}

// The method `once` returns a copy of c that builds and compiles its graph before every run.
func (c contestant) once() contestant {
	return contestant{c.name, func(j job) (func() error, error) {
		return func() error {
			run, err := c.prepare(j)
			if err != nil {
				return err
			}
			return run()
		}, nil
	}}
}

// sprint measures runs of a shape, under a context that may end. For each contestant it returns the ns per run, as the median of the samples. Each
// sample is long enough to include the work of the garbage collector.
func sprint(s *shape, rounds int, target time.Duration, contestants ...contestant) ([]float64, error) {
	for i, c := range contestants {
		contestants[i] = c.underContext()
	}
	entries, err := contestOn(s, rounds, target, contestants...)
	if err != nil {
		return nil, err
	}
	ns := make([]float64, len(entries))
	for i, e := range entries {
		ns[i] = e.ns() * float64(s.n)
	}
	return ns, nil
}

const mostForRivals = 1000 // the libraries get no graph with more nodes, since they would take seconds to build it

// sprints prints one row per size. The row contains the time of every contestant, and three ratios: kahn's time divided by the time of errgroup,
// kahn's time divided by the time of the hand-written executor, and the time of the fastest library divided by kahn's time.
func sprints(out io.Writer, title string, rounds int, target time.Duration, of func(contestant) contestant, own contestant) error {
	others := append([]contestant{handPlain, errgroupChans}, libraries...)
	header := []string{"nodes", "kahn ns"}
	for _, c := range others {
		header = append(header, c.name)
	}
	t := table{header: append(header, "kahn / errgroup", "/ hand-written", "fastest library / kahn")}
	for _, n := range sizes {
		all := []contestant{of(own)}
		for _, c := range others {
			if n <= mostForRivals || c.name == handPlain.name || c.name == errgroupChans.name {
				all = append(all, of(c))
			}
		}
		ns, err := sprint(sized(n), rounds, target, all...)
		if err != nil {
			return err
		}
		row := []string{thousands(n)}
		for i := range len(others) + 1 {
			if i < len(ns) {
				row = append(row, short(ns[i]))
			} else {
				row = append(row, "-")
			}
		}
		library := "-"
		if len(ns) > 3 {
			library = times(slices.Min(ns[3:]) / ns[0])
		}
		t.add(append(row, times(ns[0]/ns[2]), times(ns[0]/ns[1]), library)...)
	}
	fmt.Fprintf(out, "### %s\n\n", title)
	t.print(out)
	return nil
}

func small(out io.Writer, rounds int, target time.Duration) error {
	return sprints(out, "a run, the graph prepared before, under a context that may end; ns a run, medians", rounds, target, func(c contestant) contestant { return c }, kahnEager)
}

func build(out io.Writer, rounds int, target time.Duration) error {
	return sprints(out, "built and run once, under a context that may end; ns altogether, medians", rounds, target, contestant.once, kahnBuilt)
}

// sprintBudget bounds kahn's time for a graph of n nodes, divided by the time of "errgroup and channels".
type sprintBudget struct {
	n        int
	measured float64 // the ratio measured on two cores
	ratio    float64 // the budget; 0 means that there is no budget
}

// gate returns the ratio above which -check fails. It follows the rule of budget.gate.
func (b *sprintBudget) gate() float64 { return (&budget{ratio: b.ratio, measured: b.measured}).gate() }

// checkSprints measures kahn's time like the tables "small" and "build", and divides it by the time of "errgroup and channels". ok is false if the
// ratio of a graph is above its gate in every try.
func checkSprints(out io.Writer, rounds int, target time.Duration) (ok bool, err error) {
	ok = true
	t := table{header: []string{"kahn / errgroup", "nodes", "measured", "budget", "fails above", "verdict"}}
	for _, part := range []struct {
		name    string
		of      func(contestant) contestant
		own     contestant
		budgets []sprintBudget
	}{
		{"run", func(c contestant) contestant { return c }, kahnEager, runBudgets},
		{"built and run once", contestant.once, kahnBuilt, buildBudgets},
	} {
		for _, b := range part.budgets {
			verdict, ratio := "TOO MUCH", 0.0
			for try := 0; try < tries && verdict != "ok"; try++ {
				ns, err := sprint(sized(b.n), rounds*(1+try), target, part.of(part.own), part.of(errgroupChans))
				if err != nil {
					return false, err
				}
				if ratio = ns[0] / ns[1]; ratio <= b.gate() {
					verdict = "ok"
				}
			}
			budget := "-"
			if b.ratio > 0 {
				budget = times(b.ratio)
			}
			ok = ok && verdict == "ok"
			t.add(part.name, thousands(b.n), times(ratio), budget, times(b.gate()), verdict)
		}
	}
	t.print(out)
	return ok, nil
}

// The budget for a run of a prepared graph is the time of errgroup and channels for the same graph, or 1.7 times this time if the graph has a single
// node. The budget for a graph that is built for one run is the time of errgroup and channels, but no measured ratio meets this budget. kahn should
// also be faster than the other libraries for graphs of three nodes or more; -check does not test this. The field `measured` is the ratio on two idle
// cores, including the garbage collector. On busy cores the goroutines of errgroup lose more time than kahn's workers.
var (
	runBudgets   = []sprintBudget{{1, 1.9, 1.7}, {3, 1, 1}, {10, 0.7, 1}, {30, 0.4, 1}, {100, 0.4, 1}, {1000, 0.25, 1}}
	buildBudgets = []sprintBudget{{1, 4.5, 1}, {3, 3.2, 1}, {10, 2.3, 1}, {30, 2.1, 1}, {100, 1.8, 1}, {1000, 1.1, 1}, {10_000, 1.9, 1}}
)
