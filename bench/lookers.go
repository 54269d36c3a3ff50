package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

const (
	lookerCount = 50
	lookerStep  = time.Millisecond // how long each step waits
	lookerSlots = 10
	// lookerLimit bounds the time of a run with lookers, divided by the time of a run without lookers. -check fails if the ratio is above lookerLimit.
	// lookerLimit is 1.5 times the ratio that was measured on a busy machine.
	lookerLimit = 1.65
)

// gaze holds the measurements of a run of 10,000 steps, with or without lookers. A looker is a goroutine that asks the run for its state.
type gaze struct {
	took  time.Duration
	cpu   time.Duration // the processor time of the whole process
	looks int64         // the number of calls of Counts, Node and Why
	nodes int64         // the number of results that Nodes yielded
}

// gazed performs a run of p, and measures it. Each looker calls Counts, Node and Why a hundred times per second, and Nodes once per second. The first
// calls of Nodes are spread over the first second.
func gazed(p *kahn.Plan, lookers int) (g gaze, err error) {
	user, kernel, err := processTimes()
	if err != nil {
		return g, err
	}
	begun := time.Now()
	run, err := p.Start(context.Background(), func(context.Context, *kahn.Step) (any, error) {
		time.Sleep(lookerStep)
		return nil, nil
	}, kahn.Limit(lookerSlots))
	if err != nil {
		return g, err
	}
	var all sync.WaitGroup
	var looks, nodes, failed atomic.Int64
	for k := range lookers {
		all.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-run.Done():
					return
				case <-tick.C:
				}
				path := p.ID(machine.Ref(rand.IntN(p.Len())))
				counts := run.Counts()
				_, err := run.Node(path)
				_, err2 := run.Why(path)
				if errors.Join(err, err2) != nil || len(counts) == 0 {
					failed.Add(1)
				}
				looks.Add(3)
				if i%100 == 2*k%100 {
					for range run.Nodes() {
						nodes.Add(1)
					}
				}
			}
		})
	}
	_, err = run.Wait()
	g.took = time.Since(begun)
	all.Wait()
	g.looks, g.nodes = looks.Load(), nodes.Load()
	userAfter, kernelAfter, err2 := processTimes()
	g.cpu = userAfter - user + kernelAfter - kernel
	err = errors.Join(err, err2)
	if n := failed.Load(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d looks failed", n))
	}
	return g, err
}

// contestGazes performs one run without lookers (alone) and one run with lookers (watched) in each round. It returns the median times of both kinds
// of run, the average numbers of looks and nodes, and the median of the rounds' ratios.
func contestGazes(rounds int) (alone, watched gaze, ratio float64, err error) {
	p, err := kahnGraph(layered(10_000), false).Compile()
	if err != nil {
		return alone, watched, 0, err
	}
	var ratios []float64
	var took, cpu [2][]float64
	for round := range rounds {
		var by [2]gaze
		for turn := range by {
			i := (turn + round) % 2
			if by[i], err = gazed(p, i*lookerCount); err != nil {
				return alone, watched, 0, err
			}
			took[i], cpu[i] = append(took[i], float64(by[i].took)), append(cpu[i], float64(by[i].cpu))
		}
		ratios = append(ratios, float64(by[1].took)/float64(by[0].took))
		watched.looks, watched.nodes = watched.looks+by[1].looks, watched.nodes+by[1].nodes
	}
	alone.took, watched.took = time.Duration(median(took[0])), time.Duration(median(took[1]))
	alone.cpu, watched.cpu = time.Duration(median(cpu[0])), time.Duration(median(cpu[1]))
	watched.looks, watched.nodes = watched.looks/int64(rounds), watched.nodes/int64(rounds)
	return alone, watched, median(ratios), nil
}

// The function `lookers` measures how much longer a run takes while lookers observe it.
func lookers(out io.Writer, rounds int) error {
	alone, watched, ratio, err := contestGazes(rounds)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "### a run of 10,000 steps of %v, %d at a time, and %d lookers\n\n", lookerStep, lookerSlots, lookerCount)
	t := table{header: []string{"run", "takes", "/ alone", "CPU", "looks", "nodes yielded"}}
	t.add("alone", alone.took.Round(time.Millisecond).String(), times(1), alone.cpu.Round(time.Millisecond).String(), "0", "0")
	t.add(fmt.Sprintf("%d lookers", lookerCount), watched.took.Round(time.Millisecond).String(), fmt.Sprintf("%.3f", ratio), watched.cpu.Round(time.Millisecond).String(), thousands(int(watched.looks)), thousands(int(watched.nodes)))
	t.print(out)
	return nil
}

// checkLookers divides the time of a run with lookers by the time of a run without lookers. ok is false if the ratio exceeds lookerLimit in every
// try.
func checkLookers(out io.Writer, rounds int) (ok bool, err error) {
	for try := 0; try < tries && !ok; try++ {
		_, _, ratio, err := contestGazes(rounds)
		if err != nil {
			return false, err
		}
		verdict := "ok"
		if ok = ratio <= lookerLimit; !ok {
			verdict = "TOO MUCH"
		}
		t := table{header: []string{"lookers", "/ alone", "fails above", "verdict"}}
		t.add(fmt.Sprint(lookerCount), fmt.Sprintf("%.3f", ratio), times(lookerLimit), verdict)
		t.print(out)
	}
	return ok, nil
}
