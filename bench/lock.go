package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
)

// A run has one lock, under which workers settle their steps. This file predicts the cost of this lock on more cores than the machine has. It
// measures how long a worker holds the lock to settle a step. Then it simulates workers. Each of them performs a step, waits for the lock and settles
// the step, again and again.

// section describes how long a worker holds the lock to settle one step.
type section struct {
	own  float64 // ns, if the same worker was the last holder of the lock
	move float64 // additional ns if the last holder was on another core: the run's cache lines must move
}

// simulate returns the simulated time per node in ns. Each worker has its own core, and a step takes about the time `step`. The lock goes to the
// worker that has waited longest.
func (c section) simulate(workers int, step time.Duration) float64 {
	const nodes = 20_000
	rng := rand.New(rand.NewPCG(1, uint64(workers)))
	length := func() float64 { return float64(step) * (0.9 + 0.2*rng.Float64()) }
	asks := make([]float64, workers) // when each worker wants the lock
	for w := range asks {
		asks[w] = length()
	}
	var free float64 // when the lock becomes free
	for last, n := -1, 0; n < nodes; n++ {
		w := slices.Index(asks, slices.Min(asks))
		free = max(free, asks[w]) + c.own
		if last != w {
			free += c.move
		}
		last, asks[w] = w, free+length()
	}
	return free / nodes
}

// The method `fit` chooses c.move so that simulate, with two workers, returns about the measured time per node, `ns`.
func (c *section) fit(step time.Duration, ns float64) {
	low, high := 0.0, float64(step)
	for range 40 {
		if c.move = (low + high) / 2; c.simulate(2, step) < ns {
			low = c.move
		} else {
			high = c.move
		}
	}
}

// spin returns a step that keeps its core busy for the time d.
func spin(d time.Duration) func(int) {
	return func(int) {
		for begin := time.Now(); time.Since(begin) < d; {
		}
	}
}

// lockSteps are the durations of the steps. The method `fit` gets the measurement for the first duration above zero.
var lockSteps = []time.Duration{0, time.Microsecond, 10 * time.Microsecond, 100 * time.Microsecond}

// The function `lock` prints the simulation of two workers next to measurements on two cores, and then the simulation of more workers.
func lock(out io.Writer, rounds int, target time.Duration) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var c section
	t := table{header: []string{"step", "ns/node, one thread", "two threads", "simulated", "speed-up", "simulated"}}
	for i, step := range lockSteps {
		s := independent(int(min(10_000, target/max(step, time.Microsecond)))) // enough nodes for a run of about the target time, but at most 10,000
		all := []*entry{}
		for _, threads := range []int{1, 2} {
			one := kahnEager.with(threads)
			all = append(all, &entry{shape: s, contestant: contestant{one.name, func(j job) (func() error, error) {
				if j.limit = threads; step > 0 {
					j.visit = spin(step)
				}
				return one.prepare(j)
			}}})
		}
		if err := contest(all, rounds, target); err != nil {
			return err
		}
		single, double := all[0].ns(), all[1].ns()
		simulated, ratio := "-", "-"
		switch i {
		case 0: // empty steps are not simulated: if the lock is not free, a worker yields, and the other worker continues
			c.own = single
		case 1:
			c.fit(step, double)
			simulated, ratio = "fitted", "fitted"
		default:
			ns := c.simulate(2, step)
			simulated, ratio = short(ns), times((float64(step)+c.own)/ns)
		}
		t.add(step.String(), short(single), short(double), simulated, times(all[0].over(all[1])), ratio)
	}
	fmt.Fprintf(out, "### one lock a run: independent steps that keep a core busy, measured on two threads; the lock is held for %.0f ns, %.0f more when the core changes\n\n",
		c.own, c.move)
	t.print(out)
	workers := []int{1, 2, 4, 8, 16, 32, 64, 128}
	more := table{header: []string{"step"}}
	for _, w := range workers {
		more.header = append(more.header, fmt.Sprint(w))
	}
	for _, step := range lockSteps[1:] {
		cells := []string{step.String()}
		for _, w := range workers {
			cells = append(cells, times((float64(step)+c.own)/c.simulate(w, step)))
		}
		more.add(cells...)
	}
	fmt.Fprint(out, "### the speed-up by number of workers, each on a core of its own, simulated\n\n")
	more.print(out)
	return nil
}
