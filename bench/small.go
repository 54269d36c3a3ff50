package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// sizes are the numbers of nodes of the tables small and build.
var sizes = []int{1, 3, 10, 30, 100, 1000, 10_000}

// sized is a graph of n nodes as they are common: a chain of few, else layers, in each of which every node has three predecessors.
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

// once returns the contestant that builds and compiles its graph before every run.
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

// sprint measures short runs: in each round every contestant has a turn of about 0.2 ms, and what counts is the median of the fastest
// tenth of its turns, since a single preemption would be longer than all of its runs. It returns ns a run.
func sprint(s *shape, turns int, contestants ...contestant) ([]float64, error) {
	const turn = 200 * time.Microsecond
	runs, reps, took := make([]func() error, len(contestants)), make([]int, len(contestants)), make([][]float64, len(contestants))
	measure := func(i, n int) (float64, error) {
		start := time.Now()
		for range n {
			if err := runs[i](); err != nil {
				return 0, fmt.Errorf("%s, %d nodes: %w", contestants[i].name, s.n, err)
			}
		}
		return float64(time.Since(start)) / float64(n), nil
	}
	for i, c := range contestants {
		var err error
		if runs[i], err = c.prepare(job{shape: s}); err != nil {
			return nil, err
		}
		fastest := 0.0
		for range 3 { // the first one does what is done once
			ns, err := measure(i, 1)
			if err != nil {
				return nil, err
			}
			if fastest == 0 || ns < fastest {
				fastest = ns
			}
		}
		reps[i] = max(1, int(float64(turn)/fastest))
	}
	for round := range turns {
		for k := range contestants {
			i := (k + round) % len(contestants)
			ns, err := measure(i, reps[i])
			if err != nil {
				return nil, err
			}
			took[i] = append(took[i], ns)
		}
	}
	medians := make([]float64, len(contestants))
	for i := range took {
		slices.Sort(took[i])
		medians[i] = median(took[i][:max(1, len(took[i])/10)])
	}
	return medians, nil
}

// turnsOf is how many turns a size gets, so that all sizes take about as long.
func turnsOf(rounds, n int) int { return max(rounds, rounds*4000/max(n, 100)) }

const mostForRivals = 1000 // nodes: above it they take seconds to build

// sprints prints one row a size: every contestant's time by the contestants, and kahn's ratio to the fastest of the others.
func sprints(out io.Writer, title string, rounds int, of func(contestant) contestant, own contestant) error {
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
		ns, err := sprint(sized(n), turnsOf(rounds, n), all...)
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

func small(out io.Writer, rounds int) error {
	return sprints(out, "a run, the graph prepared before; ns a run, medians of the fastest tenth", rounds, func(c contestant) contestant { return c }, kahnEager)
}

func build(out io.Writer, rounds int) error {
	return sprints(out, "built and run once; ns altogether, medians of the fastest tenth", rounds, contestant.once, kahnBuilt)
}

// sprintBudget is what kahn may take at a size, in the time of errgroup and channels.
type sprintBudget struct {
	n        int
	measured float64 // on two cores
	ratio    float64 // the budget; 0 means none
}

// gate is that of a budget.
func (b *sprintBudget) gate() float64 { return (&budget{ratio: b.ratio, measured: b.measured}).gate() }

// checkSprints holds the ratios of the tables small and build to errgroup and channels.
func checkSprints(out io.Writer, rounds int) (ok bool, err error) {
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
				ns, err := sprint(sized(b.n), turnsOf(rounds*(1+try), b.n), part.of(part.own), part.of(errgroupChans))
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

// A chain of three must not be behind errgroup, and ten nodes and more must be ahead of every peer; the single node has a budget in
// time, see budgets. A graph that is built for one run is ahead of the libraries from three nodes on, and takes one to three times as
// long as errgroup. The figures are those of two idle cores: where others are at work the goroutines of errgroup suffer more.
var (
	runBudgets   = []sprintBudget{{1, 1.6, 0}, {3, 0.8, 1}, {10, 0.5, 1}, {30, 0.3, 1}, {100, 0.25, 1}, {1000, 0.2, 1}}
	buildBudgets = []sprintBudget{{1, 3.2, 1}, {3, 2.1, 1}, {10, 1.9, 1}, {30, 1.6, 1}, {100, 1.4, 1}, {1000, 1.1, 1}, {10_000, 1.9, 1}}
)
