package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// In the process of the clients, which streams starts, TestMain calls main instead of the tests.
func TestMain(m *testing.M) {
	if url := os.Getenv(drainURL); url != "" {
		if err := drain(url, os.Getenv(drainClients)); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

func TestStream(t *testing.T) {
	for _, clients := range []int{0, 3} {
		r, err := stream(clients, 4, time.Millisecond)
		if err != nil || r.took < 4*time.Millisecond || r.sent != clients*(2+3*4) {
			t.Errorf("%d clients: %+v, %v", clients, r, err)
		}
	}
}

func smallShapes() []*shape {
	return []*shape{
		single(), chain(50), fan(50), layered(500), bipartite(20), independent(30),
		beside("beside", independent(5), chain(5)),
	}
}

// everybody lists all contestants. It includes the libraries if the build tag rivals is set.
var everybody = append([]contestant{kahnEager, kahnBuilt, kahnWaves, handPlain, handClocked, errgroupChans}, libraries...)

// TestEachNodeOnceAfterItsPredecessors checks that the comparison is fair: every executor does the same work in a valid order.
func TestEachNodeOnceAfterItsPredecessors(t *testing.T) {
	for _, s := range smallShapes() {
		in := s.predecessors()
		for _, c := range everybody {
			for _, limit := range []int{0, 1, 3} {
				began, ended := make([]atomic.Int32, s.n), make([]atomic.Int32, s.n)
				var now, most atomic.Int32
				run, err := c.prepare(job{shape: s, limit: limit, visit: func(node int) {
					for n := now.Add(1); ; {
						if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
							break
						}
					}
					began[node].Add(1)
					for _, from := range in.row(node) {
						if ended[from].Load() != began[node].Load() {
							t.Errorf("%s, %s: node %d before its predecessor %d", c.name, s.name, node, from)
						}
					}
					ended[node].Add(1)
					now.Add(-1)
				}})
				if errors.Is(err, errNoLimit) {
					continue
				}
				if err != nil {
					t.Fatalf("%s, %s: %v", c.name, s.name, err)
				}
				for again := range int32(3) { // a prepared contestant runs several times
					if err := run(); err != nil {
						t.Fatalf("%s, %s: %v", c.name, s.name, err)
					}
					for node := range s.n {
						if n := ended[node].Load(); n != again+1 {
							t.Fatalf("%s, %s: node %d has run %d times in %d runs", c.name, s.name, node, n, again+1)
						}
					}
				}
				if limit > 0 && int(most.Load()) > limit {
					t.Errorf("%s, %s: %d steps at once, limit %d", c.name, s.name, most.Load(), limit)
				}
			}
		}
	}
}

// TestDepths checks that the typed pipelines and the graphs by hand compute the same: the length of the longest path to the last node.
func TestDepths(t *testing.T) {
	double := &shape{name: "double", n: 5, edges: [][2]int32{{0, 2}, {1, 2}, {2, 3}, {0, 4}, {3, 4}}}
	for _, s := range []*shape{single(), chain(50), sized(10), sized(30), layered(500), double} {
		longest, in := make([]depth, s.n), s.predecessors()
		for i := range longest {
			for _, from := range in.row(i) {
				longest[i] = max(longest[i], longest[from])
			}
			longest[i]++
		}
		for _, d := range []depths{depthsByHand, depthsTyped} {
			run, err := d.make(s)
			if err != nil {
				t.Fatalf("%s, %s: %v", d.name, s.name, err)
			}
			if got, err := run(context.Background()); err != nil || got != longest[s.n-1] {
				t.Errorf("%s, %s: %v, %v instead of %v", d.name, s.name, got, err, longest[s.n-1])
			}
		}
	}
	for _, d := range []depths{depthsByHand, depthsTyped} {
		if _, err := d.make(fan(4)); err == nil {
			t.Errorf("%s: no error for a node with four predecessors", d.name)
		}
	}
}

// TestNothingWaitsForAThread checks that no executor has a hidden limit: in a graph without edges every step waits until all steps have begun.
func TestNothingWaitsForAThread(t *testing.T) {
	s := independent(200)
	for _, c := range everybody {
		for range 3 {
			var arrived atomic.Int32
			all := make(chan struct{})
			run, err := c.prepare(job{shape: s, visit: func(int) {
				if int(arrived.Add(1)) == s.n {
					close(all)
				}
				select {
				case <-all:
				case <-time.After(10 * time.Second):
					t.Errorf("%s: %d of %d steps at once", c.name, arrived.Load(), s.n)
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			if err := run(); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
	}
}

func TestHandWrittenStopsAtAnError(t *testing.T) {
	broken := errors.New("broken")
	s := chain(10)
	for _, clock := range []bool{false, true} {
		var steps atomic.Int32
		h := newHandWritten(s, func(_ context.Context, node int) error {
			steps.Add(1)
			if node == 4 {
				return broken
			}
			return nil
		})
		h.clock = clock
		if _, err := h.run(context.Background()); !errors.Is(err, broken) {
			t.Errorf("clock %v: %v instead of the step's error", clock, err)
		}
		if steps.Load() != 5 {
			t.Errorf("clock %v: %d steps instead of 5", clock, steps.Load())
		}
	}
	w := newWithErrgroup(s, func(_ context.Context, node int) error {
		if node == 4 {
			return broken
		}
		return nil
	})
	if err := w.run(context.Background()); !errors.Is(err, broken) {
		t.Errorf("errgroup: %v instead of the step's error", err)
	}
}

func TestHandWrittenRecordsTimes(t *testing.T) {
	s := chain(3)
	h := newHandWritten(s, func(context.Context, int) error { time.Sleep(2 * time.Millisecond); return nil })
	h.clock = true
	r, err := h.run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	end := int64(0)
	for node, at := range r.times {
		if at.start < end || at.duration < int64(2*time.Millisecond) {
			t.Errorf("node %d: %+v after %d", node, at, end)
		}
		end = at.start + at.duration
	}
}

func TestSized(t *testing.T) {
	for _, n := range sizes {
		s := sized(n)
		if s.n != n {
			t.Errorf("%d nodes instead of %d", s.n, n)
		}
		for i, in := range s.indegrees() {
			if in > 3 || n > 3 && n < 1000 && in != 3 && i >= 5 {
				t.Errorf("%d nodes: node %d has %d predecessors", n, i, in)
			}
		}
	}
}

// TestSprint measures a contestant whose run takes a millisecond.
func TestSprint(t *testing.T) {
	slow := contestant{"slow", func(job) (func() error, error) {
		return func() error { time.Sleep(time.Millisecond); return nil }, nil
	}}
	ns, err := sprint(sized(3), 5, 10*time.Millisecond, kahnEager, slow)
	if err != nil || len(ns) != 2 || ns[1] < float64(time.Millisecond) || ns[0] >= ns[1] {
		t.Errorf("%v, %v", ns, err)
	}
	broken := errors.New("broken")
	failing := contestant{"failing", func(job) (func() error, error) { return func() error { return broken }, nil }}
	if _, err := sprint(sized(1), 2, time.Millisecond, failing.once()); !errors.Is(err, broken) {
		t.Errorf("%v instead of the run's error", err)
	}
}

func TestShapes(t *testing.T) {
	for _, want := range []struct {
		s     *shape
		n, m  int
		maxIn int32
	}{
		{single(), 1, 0, 0},
		{chain(1000), 1000, 999, 1},
		{fan(1000), 1002, 2000, 1000},
		{layered(10_000), 10_000, 29_700, 3},
		{bipartite(300), 600, 90_000, 300},
	} {
		s := want.s
		if s.n != want.n || len(s.edges) != want.m {
			t.Errorf("%s: %d nodes and %d edges instead of %d and %d", s.name, s.n, len(s.edges), want.n, want.m)
		}
		seen := map[[2]int32]bool{}
		for _, e := range s.edges {
			if e[0] >= e[1] || e[0] < 0 || int(e[1]) >= s.n || seen[e] {
				t.Errorf("%s: edge %v", s.name, e)
			}
			seen[e] = true
		}
		for node, in := range s.indegrees() {
			if in > want.maxIn {
				t.Errorf("%s: node %d has %d predecessors", s.name, node, in)
			}
		}
	}
}

func TestBounds(t *testing.T) {
	for i, want := range []time.Duration{150 * time.Millisecond, 120 * time.Millisecond, 20 * time.Millisecond} {
		if w := workloads()[i]; w.bound() != want {
			t.Errorf("%s: bound %v instead of %v", w.name, w.bound(), want)
		}
	}
}

func TestCommand(t *testing.T) {
	var out bytes.Buffer
	if _, err := run(&out, []string{"-quick", "-rounds", "1", "-shape", "single", "-table", "ratios"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range everybody {
		if c.name != kahnWaves.name && !strings.Contains(out.String(), "| "+c.name+" ") {
			t.Errorf("no row for %s in\n%s", c.name, &out)
		}
	}
	out.Reset()
	if _, err := run(&out, []string{"-quick", "-check", "-clock", "-shape", "single"}); err != nil || !strings.Contains(out.String(), "single") {
		t.Errorf("%v\n%s", err, &out)
	}
	for _, args := range [][]string{{"-table", "none"}, {"-shape", "none"}, {"-rounds", "0"}} {
		if _, err := run(&out, args); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}

// TestCheckFails: check fails for a budget that no executor can meet.
func TestCheckFails(t *testing.T) {
	var out bytes.Buffer
	ok, err := check(&out, handPlain, []budget{{shape: chain(100), ratio: 0.001, measured: 0.0005}}, 1, time.Millisecond)
	if ok || err != nil || !strings.Contains(out.String(), "TOO MUCH") {
		t.Errorf("%v, %v\n%s", ok, err, &out)
	}
}

// BenchmarkRun runs only one contestant on one shape. It is for profiles.
func BenchmarkRun(b *testing.B) {
	for _, shape := range budgets() {
		for _, c := range []contestant{kahnEager, handPlain, handClocked, errgroupChans} {
			b.Run(shape.shape.name+"/"+strings.NewReplacer(" ", "-", ",", "").Replace(c.name), func(b *testing.B) {
				run, err := c.prepare(job{shape: shape.shape})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					if err := run(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(shape.shape.n), "ns/node")
			})
		}
	}
}

// TestScales performs each row of the table scale with few units.
func TestScales(t *testing.T) {
	for _, x := range scales() {
		r, err := x.at(3000)
		if err != nil || r.bytes <= 0 || r.objects <= 0 {
			t.Errorf("%s: %+v, %v", x.name, r, err)
		}
	}
}

// TestFeatures performs each row of the table features: with the feature, without it, and with its hand-written counterpart.
func TestFeatures(t *testing.T) {
	for _, f := range features() {
		all := []contestant{f.with, f.without}
		if f.handWith != nil {
			all = append(all, *f.handWith, *f.handWithout)
		}
		for i, c := range all {
			run, err := c.prepare(job{shape: layered(300)})
			if err == nil {
				err = run()
			}
			if err != nil {
				t.Errorf("%s, %d: %v", f.name, i, err)
			}
		}
	}
}
