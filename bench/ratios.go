package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// budget bounds the time that kahn may take for a shape, relative to the time of the hand-written executor.
type budget struct {
	shape    *shape
	ratio    float64       // kahn may take at most this many times as long as the hand-written executor; 0 means that `extra` is the budget
	extra    time.Duration // if ratio is 0, kahn may take at most this much longer; -check shows it, but does not check it
	measured float64       // the ratio measured on two cores of a busy machine; see the method `gate`
	bytes    float64       // the maximum number of bytes per node; 0 means no limit
	rivals   *shape        // the shape that the libraries get; nil means the same shape
}

// gate returns the ratio above which -check fails: 1.5 times the measured ratio, to allow for noise, or the budget if the budget is higher.
func (b *budget) gate() float64 { return max(b.ratio, 1.5*b.measured) }

// The function `budgets` returns the budgets for the shapes of the table "ratios". The libraries would take most of a minute to build or run the
// layered graph, so they get a smaller layered graph.
//
// On each shape with several nodes, kahn exceeds the budget. For the chain, the fan and the layered graph the reason is that kahn reads the clock:
// even the hand-written executor takes more than twice as long if it reads the clock. docs/costs.md shows the profile. The measured ratios come
// from a machine whose clock takes 40 ns; with a clock of 30 ns they are smaller, by up to a third.
func budgets() []budget {
	return []budget{
		{shape: chain(1000), ratio: 4, measured: 6.6},
		{shape: fan(1000), ratio: 2.5, measured: 5},
		{shape: layered(10_000), ratio: 2, measured: 4.8, bytes: 100, rivals: layered(1000)},
		{shape: bipartite(300), ratio: 1.3, measured: 1.7},
		{shape: single(), extra: 600 * time.Nanosecond, measured: 3.1},
	}
}

func (b *budget) String() string {
	text := fmt.Sprintf("%s, %s nodes, %s edges; kahn at most ", b.shape.name, thousands(b.shape.n), thousands(len(b.shape.edges)))
	if b.ratio > 0 {
		return text + fmt.Sprintf("%gx", b.ratio)
	}
	return text + b.extra.String() + " more"
}

// The function `ratios` measures every contestant on every shape.
func ratios(out io.Writer, budgets []budget, rounds int, target time.Duration) error {
	for _, b := range budgets {
		all := []contestant{handPlain, handClocked, kahnEager, errgroupChans}
		var smaller []contestant
		if b.rivals == nil {
			all = append(all, libraries...)
		} else {
			smaller = libraries
		}
		entries, err := contestOn(b.shape, rounds, target, all...)
		if err != nil {
			return err
		}
		t := table{header: []string{"executor", "nodes", "ns/node", "/ hand-written", "/ with clock", "/ kahn", "B/node", "allocs/node"}}
		row := func(e, hand, clocked, own *entry) {
			nodes := thousands(e.shape.n)
			if e.shape != b.shape {
				nodes += "*"
			}
			t.add(e.name, nodes, short(e.ns()), times(e.over(hand)), times(e.over(clocked)), times(e.over(own)), short(e.bytes()), short(e.allocs()))
		}
		for _, e := range entries {
			row(e, entries[0], entries[1], entries[2])
		}
		for _, c := range smaller {
			extra, err := contestOn(b.rivals, rounds, target, handPlain, handClocked, kahnEager, c)
			if err != nil {
				return err
			}
			row(extra[3], extra[0], extra[1], extra[2])
		}
		fmt.Fprintf(out, "### %v\n\n", &b)
		t.print(out)
		if len(smaller) > 0 {
			fmt.Fprintf(out, "\\* A smaller graph of the same shape, with ratios on that: the full one takes most of a minute to build, or to run.\n\n")
		}
		if b.ratio == 0 {
			fmt.Fprintf(out, "kahn takes %s ns more than the hand-written executor.\n\n", short(entries[2].more(entries[0])))
		}
	}
	return nil
}

const tries = 4

// The function `check` compares kahn's ratio on each shape with the gate of the shape, and kahn's memory with the bounds for memory. If one of them
// is too large, check measures the shape again, in more rounds. ok is false if a shape fails every try. base is the hand-written executor, with or
// without a clock.
func check(out io.Writer, base contestant, budgets []budget, rounds int, target time.Duration) (ok bool, err error) {
	ok = true
	fmt.Fprintf(out, "kahn against %s\n\n", base.name)
	t := table{header: []string{"shape", "measured", "budget", "fails above", "B/node", "allocs/node", "verdict"}}
	for _, b := range budgets {
		fits := false
		var e, hand *entry
		for try := 0; try < tries && !fits; try++ {
			entries, err := contestOn(b.shape, rounds*(1+try), target, base, kahnEager)
			if err != nil {
				return false, err
			}
			hand, e = entries[0], entries[1]
			fits = e.over(hand) <= b.gate()
			if b.bytes > 0 { // allocations do not depend on the machine, so the bound needs no allowance for noise
				fits = fits && e.bytes() <= b.bytes && e.allocs() <= 1
			}
		}
		verdict, limit := "ok", times(b.ratio)
		if !fits {
			verdict, ok = "TOO MUCH", false
		}
		if b.ratio == 0 {
			limit = fmt.Sprintf("+%v (is %+.0f ns)", b.extra, e.more(hand))
		}
		t.add(b.shape.name, times(e.over(hand)), limit, times(b.gate()), short(e.bytes()), short(e.allocs()), verdict)
	}
	t.print(out)
	return ok, nil
}

// The function `pick` returns the budget of the shape with the given name, or all budgets if the name is empty.
func pick(all []budget, name string) []budget {
	if name == "" {
		return all
	}
	return slices.DeleteFunc(all, func(b budget) bool { return b.shape.name != name })
}
