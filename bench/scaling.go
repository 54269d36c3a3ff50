package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// The function `scaling` measures the layered shape at growing sizes. It shows whether a node takes the same time in large and small graphs, and how
// much memory a node needs.
func scaling(out io.Writer, sizes []int, rounds int, target time.Duration) error {
	t := table{header: []string{"nodes", "kahn ns/node", "hand-written", "with clock", "errgroup", "/ hand-written", "/ with clock"}}
	m := table{header: []string{"nodes", "graph B/node", "plan", "run, held", "run, allocated", "hand-written run, held"}}
	for _, n := range sizes {
		s := layered(n)
		all := []contestant{kahnEager, handPlain, handClocked}
		waiting := "-"
		// errgroup gets no graph above 100,000 nodes: the stacks of its goroutines would take a gigabyte.
		if n <= 100_000 {
			all = append(all, errgroupChans)
		}
		if n > 100_000 {
			rounds = min(rounds, 5) // fewer rounds, because compiling the graph for each sample takes long
		}
		entries, err := contestOn(s, rounds, target, all...)
		if err != nil {
			return err
		}
		if len(entries) > 3 {
			waiting = short(entries[3].ns())
		}
		own := entries[0]
		t.add(thousands(n), short(own.ns()), short(entries[1].ns()), short(entries[2].ns()), waiting, times(own.over(entries[1])), times(own.over(entries[2])))
		held, err := measureMemory(s)
		if err != nil {
			return err
		}
		m.add(thousands(n), short(held.graph), short(held.plan), short(held.run), short(own.bytes()), short(held.hand))
	}
	fmt.Fprint(out, "### layered, growing; the ratio may become 1.5 times as large at most\n\n")
	t.print(out)
	fmt.Fprint(out, "### layered, growing: memory; a run of 1,000,000 nodes at most 256 B a node\n\n")
	m.print(out)
	return nil
}

// The type `memory` holds sizes in bytes per node: of a graph, its plan, the Result of a run, and a run of the hand-written executor.
type memory struct {
	graph, plan, run, hand float64
}

func measureMemory(s *shape) (m memory, err error) {
	ctx := context.Background()
	n := float64(s.n)
	step := kahnStep(nil)
	if _, err := new(kahn.Graph).Add(kahn.Node{ID: "warm"}).Compile(); err != nil {
		return m, err
	}
	base := heap()
	g := kahnGraph(s, false)
	graph := heap()
	plan, err := g.Compile()
	if err != nil {
		return m, err
	}
	compiled := heap()
	res, err := plan.Execute(ctx, step)
	if err != nil {
		return m, err
	}
	ended := heap()
	m.graph, m.plan, m.run = (graph-base)/n, (compiled-graph)/n, (ended-compiled)/n
	runtime.KeepAlive(g)
	runtime.KeepAlive(plan)
	runtime.KeepAlive(res)

	h := newHandWritten(s, handStep(nil))
	h.clock = true
	base = heap()
	run, err := h.run(ctx)
	m.hand = (heap() - base) / n
	runtime.KeepAlive(run)
	runtime.KeepAlive(h)
	runtime.KeepAlive(s)
	return m, err
}

// The function `heap` returns how many bytes the live objects on the heap take.
func heap() float64 {
	runtime.GC()
	runtime.GC() // frees objects whose finalizers the first call has queued
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return float64(s.HeapAlloc)
}

// The method `with` returns a copy of c that sets GOMAXPROCS to the given number of threads.
func (c contestant) with(threads int) contestant {
	prepare := c.prepare
	return contestant{fmt.Sprintf("%s, %d", c.name, threads), func(j job) (func() error, error) {
		runtime.GOMAXPROCS(threads)
		return prepare(j)
	}}
}

// contestThreads measures each contestant with one, two and eight threads, all in turn. It returns a list for each contestant, with an entry for
// each number of threads.
func contestThreads(s *shape, rounds int, target time.Duration, contestants ...contestant) ([][]*entry, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var all []contestant
	for _, c := range contestants {
		for _, n := range threads {
			all = append(all, c.with(n))
		}
	}
	entries, err := contestOn(s, rounds, target, all...)
	if err != nil {
		return nil, err
	}
	return slices.Collect(slices.Chunk(entries, len(threads))), nil
}

var threads = []int{1, 2, 8}

// The function `contention` measures the layered shape with one, two and eight threads. This is the worst case: the steps do nothing, so the workers
// need the lock all the time.
func contention(out io.Writer, rounds int, target time.Duration) error {
	s := layered(10_000)
	by, err := contestThreads(s, rounds, target, kahnEager, handPlain, handClocked)
	if err != nil {
		return err
	}
	t := table{header: []string{"threads", "kahn ns/node", "/ one thread", "hand-written", "/ one thread", "/ hand-written", "/ with clock"}}
	for i, n := range threads {
		own, hand, clocked := by[0][i], by[1][i], by[2][i]
		t.add(fmt.Sprint(n), short(own.ns()), times(own.over(by[0][0])), short(hand.ns()), times(hand.over(by[1][0])),
			times(own.over(hand)), times(own.over(clocked)))
	}
	fmt.Fprintf(out, "### layered, %s nodes, by number of threads (GOMAXPROCS); %d cores\n\n", thousands(s.n), runtime.NumCPU())
	t.print(out)
	return nil
}

// collapse bounds the time per node with several threads, divided by the time with one thread. -check fails if the ratio exceeds it in every try.
const collapse = 3

// checkThreads divides the time with several threads by the time with one thread. ok is false if in every try a ratio exceeds collapse.
func checkThreads(out io.Writer, rounds int, target time.Duration) (ok bool, err error) {
	s := layered(10_000)
	for try := 0; try < tries && !ok; try++ {
		by, err := contestThreads(s, rounds*(1+try), target, kahnEager)
		if err != nil {
			return false, err
		}
		ok = true
		t := table{header: []string{"threads", "/ one thread", "fails above", "verdict"}}
		for i, e := range by[0][1:] {
			verdict := "ok"
			if e.over(by[0][0]) > collapse {
				verdict, ok = "TOO MUCH", false
			}
			t.add(fmt.Sprint(threads[i+1]), times(e.over(by[0][0])), times(collapse), verdict)
		}
		t.print(out)
	}
	return ok, nil
}
