package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/reactive"
)

// The function `signals` measures the reactive layer. First it measures the cost of a node in a State that the benchmark drives: once without
// observers, and once with an effect for each node, which observes whether the node is ready. It measures the same for a naive version: each node has
// a signal for its status, and a computed that reads the statuses of all its predecessors. Finally it measures the reactive layer without a State.
func signals(out io.Writer, rounds int, target time.Duration) error {
	shapes := []*shape{chain(1000), fanIn(1000), fanIn(10_000), layered(10_000), bipartite(300)}
	t := table{header: []string{"ns/node", "State, unobserved", "observed", "naive, unobserved", "observed", "naive / State, observed"}}
	for _, s := range shapes {
		entries, err := contestOn(s, rounds, target,
			contestant{"State", func(j job) (func() error, error) { return stateRun(j.shape, false) }},
			contestant{"State, observed", func(j job) (func() error, error) { return stateRun(j.shape, true) }},
			contestant{"naive", func(j job) (func() error, error) { return naiveRun(j.shape, false) }},
			contestant{"naive, observed", func(j job) (func() error, error) { return naiveRun(j.shape, true) }})
		if err != nil {
			return err
		}
		t.add(fmt.Sprintf("%s, %s nodes", s.name, thousands(s.n)), short(entries[0].ns()), short(entries[1].ns()), short(entries[2].ns()),
			short(entries[3].ns()), times(entries[3].over(entries[1])))
	}
	fmt.Fprint(out, "### the state of a run as signals, setting up included; one effect a node where observed\n\n")
	t.print(out)

	p := table{header: []string{"propagation", "ns/cell", "atomic adds"}}
	add := timed(target, func(n int) {
		var c atomic.Int64
		for range n {
			c.Add(1)
		}
	})
	row := func(name string, ns float64) { p.add(name, short(ns), times(ns/add)) }
	for _, w := range []int{1, 10, 100} {
		for _, h := range []int{1, 10, 100} {
			source, err := grid(w, h)
			if err != nil {
				return err
			}
			v := 0
			row(fmt.Sprintf("%d chains of %d computeds and an effect", w, h), timed(target, func(n int) {
				for range n {
					v++
					_ = source.Store(v)
				}
			})/float64(w*h))
		}
	}
	sc := new(reactive.Scope)
	s := reactive.NewSignal(sc, 0)
	c := reactive.NewComputed(sc, func(r reactive.Reader) int { return s.Get(r) + 1 })
	row("Store, no observers", timed(target, func(n int) {
		for i := range n {
			_ = s.Store(-i)
		}
	}))
	row("Set in a batch, no observers", timed(target, func(n int) {
		_ = reactive.Batch(sc, func(w reactive.Writer) {
			for i := range n {
				s.Set(w, i)
			}
		})
	}))
	row("Signal.Load", timed(target, func(n int) {
		for range n {
			s.Load()
		}
	}))
	row("Computed.Load, cached", timed(target, func(n int) {
		for range n {
			_, _ = c.Load()
		}
	}))
	fmt.Fprint(out, "### the layer alone\n\n")
	p.print(out)
	return nil
}

// The function `timed` measures an operation, which f performs n times. It chooses n so that a call of f takes at least a fifth of the target time.
// It calls f five times with this n, and returns the ns per operation in the fastest call.
func timed(target time.Duration, f func(n int)) float64 {
	n, best := 1, 0.0
	for round := 0; round < 5; {
		start := time.Now()
		f(n)
		took := time.Since(start)
		if took < target/5 {
			n *= 2
			continue
		}
		if ns := float64(took) / float64(n); round == 0 || ns < best {
			best = ns
		}
		round++
	}
	return best
}

// grid makes a signal, and w chains of h computeds that begin at the signal and end at an effect. It returns the signal.
func grid(w, h int) (*reactive.Signal[int], error) {
	sc := new(reactive.Scope)
	source := reactive.NewSignal(sc, 0)
	for range w {
		last := reactive.NewComputed(sc, func(r reactive.Reader) int { return source.Get(r) + 1 })
		for range h - 1 {
			from := last
			last = reactive.NewComputed(sc, func(r reactive.Reader) int { return from.Get(r) + 1 })
		}
		if _, err := reactive.NewEffect(sc, func(w reactive.Writer) { last.Get(w) }); err != nil {
			return nil, err
		}
	}
	return source, nil
}

// fanIn returns `width` nodes, and a node that follows all of them.
func fanIn(width int) *shape {
	s := &shape{name: "fan-in", n: width + 1}
	for i := range int32(width) {
		s.edges = append(s.edges, [2]int32{i, int32(width)})
	}
	return s
}

// stateRun returns a function that drives a new State until all nodes have completed.
func stateRun(s *shape, observed bool) (func() error, error) {
	plan, err := kahnGraph(s, false).Compile()
	if err != nil {
		return nil, err
	}
	return func() error {
		st, err := kahn.NewState(plan)
		if err != nil {
			return err
		}
		flips := 0
		if observed {
			for ref := range plan.Declared() {
				ready := st.ReadySignal(ref)
				if _, err := reactive.NewEffect(st.Scope(), func(w reactive.Writer) {
					if ready.Get(w) {
						flips++
					}
				}); err != nil {
					return err
				}
			}
		}
		task, ok := st.Next()
		for ok && err == nil {
			last := task
			if task, ok, err = st.SettleNext(last.Token, machine.Outcome{Status: kahn.Completed}); err != nil {
				return err
			}
		}
		if !st.Done() || observed && flips != s.n {
			return fmt.Errorf("%d of %d nodes were ready", flips, s.n)
		}
		return nil
	}, nil
}

// naiveRun is like stateRun, but has no State. Each node has a signal for its status, and a computed that reads the statuses of all its
// predecessors.
func naiveRun(s *shape, observed bool) (func() error, error) {
	in := s.predecessors()
	return func() error {
		sc := new(reactive.Scope)
		status := make([]*reactive.Signal[kahn.Status], s.n)
		ready := make([]*reactive.Computed[bool], s.n)
		var queue []int
		for i := range s.n {
			status[i] = reactive.NewSignal(sc, kahn.Idle)
			preds := in.row(i)
			ready[i] = reactive.NewComputed(sc, func(r reactive.Reader) bool {
				for _, p := range preds {
					if st := status[p].Get(r); st != kahn.Completed && st != kahn.Skipped {
						return false
					}
				}
				return true
			})
			if !observed {
				continue
			}
			if _, err := reactive.NewEffect(sc, func(w reactive.Writer) {
				if ready[i].Get(w) {
					queue = append(queue, i)
				}
			}); err != nil {
				return err
			}
		}
		if !observed { // the nodes complete in the order of their numbers, which increase along the edges
			for i := range s.n {
				if is, err := ready[i].Load(); err != nil || !is {
					return fmt.Errorf("node %d is not ready: %w", i, err)
				}
				if err := status[i].Store(kahn.Completed); err != nil {
					return err
				}
			}
			return nil
		}
		for next := 0; next < len(queue); next++ {
			if err := status[queue[next]].Store(kahn.Completed); err != nil {
				return err
			}
		}
		if len(queue) != s.n {
			return fmt.Errorf("%d of %d nodes were ready", len(queue), s.n)
		}
		return nil
	}, nil
}
