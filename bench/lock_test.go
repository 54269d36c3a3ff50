package main

import (
	"math"
	"testing"
	"time"
)

// near reports whether two numbers differ by less than two per cent.
func near(a, b float64) bool { return math.Abs(a-b) < 0.02*b }

func TestSimulatedLock(t *testing.T) {
	c := section{own: 100, move: 300}
	for _, test := range []struct {
		workers int
		step    time.Duration
		want    float64
	}{
		{1, 10_000, 10_100},      // the lock never moves
		{2, 10_000, 10_400. / 2}, // waits are short
		{1000, 10_000, 400},      // all workers wait
	} {
		if got := c.simulate(test.workers, test.step); !near(got, test.want) {
			t.Errorf("%d workers: %.0f ns a node, want %.0f", test.workers, got, test.want)
		}
	}
	fitted := section{own: 100}
	fitted.fit(1000, c.simulate(2, 1000))
	if !near(fitted.move, c.move) {
		t.Errorf("fitted %.0f ns, want %.0f", fitted.move, c.move)
	}
}
