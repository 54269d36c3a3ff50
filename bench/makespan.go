package main

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// waiting is a workload whose steps wait, like steps that call a service. The table "makespan" divides the duration of a run by the least possible
// duration.
type waiting struct {
	name  string
	shape *shape
	waits []time.Duration // by node
	limit int
	kinds []string // the kinds of the nodes; may be nil
}

// The method `bound` returns the least possible duration of a run. A run takes at least as long as its longest path. If there is a limit, the run
// also takes at least the total duration of the steps, divided by the limit.
func (w *waiting) bound() time.Duration {
	ends := make([]time.Duration, w.shape.n) // by node: the earliest end
	in := w.shape.predecessors()
	longest, work := time.Duration(0), time.Duration(0)
	for node, d := range w.waits {
		for _, from := range in.row(node) {
			ends[node] = max(ends[node], ends[from])
		}
		ends[node] += d
		longest = max(longest, ends[node])
		work += d
	}
	if w.limit == 0 {
		return longest
	}
	return max(longest, work/time.Duration(w.limit))
}

func workloads() []waiting {
	const ms = time.Millisecond
	same := func(n int, d time.Duration) []time.Duration {
		waits := make([]time.Duration, n)
		for i := range waits {
			waits[i] = d
		}
		return waits
	}
	// The chain is declared last. An executor that takes nodes in declaration order begins the chain after all other nodes.
	late := beside("beside", independent(20), chain(10))
	// Each tier has one slow step, and the slow steps of successive tiers are in different chains. If an executor waits until all steps of a tier have
	// ended, each tier takes as long as its slow step.
	three := beside("rotating", chain(9), beside("", chain(9), chain(9)))
	rotating := same(three.n, 5*ms)
	for i := range rotating {
		if i%9%3 == i/9 {
			rotating[i] = 30 * ms
		}
	}
	many := independent(1000)
	return []waiting{
		{"a chain of 10 beside 20 nodes, 10 ms each, limit 2", late, same(late.n, 10*ms), 2, nil},
		{"three chains of 9, slow steps (30 ms) rotating among fast ones (5 ms)", three, rotating, 0, nil},
		{"1,000 nodes of 20 ms, no limit", many, same(many.n, 20*ms), 0, nil},
		kinds(),
	}
}

// kinds returns a workload with many chains of short steps and a few chains of long steps. The chains with the most steps are not the chains that
// take longest. So an executor finds the best order only if it knows how long the steps of each kind take.
func kinds() waiting {
	s, n := &shape{name: "kinds"}, 0
	w := waiting{name: "20 chains of five steps of 4 ms beside 2 of three of 60 ms, limit 4", shape: s, limit: 4}
	add := func(chains, steps int, kind string, d time.Duration) {
		for range chains {
			for k := range steps {
				if k > 0 {
					s.edges = append(s.edges, [2]int32{int32(n - 1), int32(n)})
				}
				w.waits, w.kinds = append(w.waits, d), append(w.kinds, kind)
				n++
			}
		}
	}
	add(20, 5, "short", 4*time.Millisecond)
	add(2, 3, "long", 60*time.Millisecond)
	s.n = n
	return w
}

// makespan runs the workloads in real time. In every executor each sleep ends some tenths of a millisecond late. The difference between the
// hand-written executor and the bound shows how much time this delay costs.
func makespan(out io.Writer, rounds int) error {
	const hand = 0
	contestants := append([]contestant{handPlain, kahnEager, kahnLearned, kahnKinds, kahnWaves, errgroupChans}, libraries...)
	for _, w := range workloads() {
		runs := make([]func() error, len(contestants))
		took := make([][]float64, len(contestants))
		for i, c := range contestants {
			run, err := c.prepare(job{shape: w.shape, limit: w.limit, kinds: w.kinds, visit: func(node int) { time.Sleep(w.waits[node]) }})
			if err != nil && !errors.Is(err, errNoLimit) {
				return fmt.Errorf("%s, %s: %w", c.name, w.name, err)
			}
			runs[i] = run
		}
		for range rounds {
			for i, run := range runs {
				if run == nil {
					continue
				}
				start := time.Now()
				if err := run(); err != nil {
					return fmt.Errorf("%s, %s: %w", contestants[i].name, w.name, err)
				}
				took[i] = append(took[i], float64(time.Since(start))/float64(time.Millisecond))
			}
		}
		bound := float64(w.bound()) / float64(time.Millisecond)
		fmt.Fprintf(out, "### %s; at least %s ms\n\n", w.name, short(bound))
		t := table{header: []string{"executor", "ms", "/ bound", "/ hand-written"}}
		for i, c := range contestants {
			if runs[i] == nil {
				t.add(c.name, "no limit", "-", "-")
				continue
			}
			m := median(took[i])
			t.add(c.name, short(m), fmt.Sprintf("%.3fx", m/bound), fmt.Sprintf("%.3fx", m/median(took[hand])))
		}
		t.print(out)
	}
	return nil
}
