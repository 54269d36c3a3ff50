package riverkahn_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	riverkahn "github.com/seed-c794f7ef/kahn/river"
)

// bearable is the greatest latency that the tests accept. docs/river.md has the usual latency.
const bearable = 2 * time.Second

// samples returns how often a latency is measured.
func samples() int {
	if os.Getenv("KAHN_LONG") != "" {
		return 1000
	}
	return 10
}

// latencies sorts a list of latencies and logs their quantiles.
func latencies(t *testing.T, what string, list []time.Duration) {
	t.Helper()
	slices.Sort(list)
	t.Logf("%s: median %v, 99th percentile %v, longest %v", what, list[len(list)/2], list[len(list)*99/100], list[len(list)-1])
	require.Less(t, list[len(list)*99/100], bearable)
}

// TestLatency measures the time from the creation of a run to the call of its first step.
func TestLatency(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	began := make(chan time.Time, 1)
	g := (&kahn.Graph{Name: "latency"}).Add(kahn.Node{ID: "only"})
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: func(context.Context, *kahn.Step) (any, error) {
		began <- time.Now()
		return nil, nil
	}}}})
	var list []time.Duration
	for i := range samples() {
		created := time.Now()
		create(t, c, g, fmt.Sprint("r", i))
		list = append(list, (<-began).Sub(created))
	}
	latencies(t, "create to start", list)
}
