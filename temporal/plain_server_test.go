//go:build server

package temporal

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
)

// wiring is a graph whose nodes kahn and plain code perform: for each node the nodes that it follows. A node follows only nodes before it.
type wiring [][]int

func nodeID(i int) string { return fmt.Sprint("n", i) }

// inLayers returns the wiring of layers, whose nodes follow two nodes of the layer before; with one node in a layer it is a chain.
func inLayers(deep, wide int) (s wiring) {
	for i := range deep * wide {
		var before []int
		if first := i/wide*wide - wide; first >= 0 {
			before = append(before, first+i%wide)
			if wide > 1 {
				before = append(before, first+(i+1)%wide)
			}
		}
		s = append(s, before)
	}
	return s
}

// inFan returns the wiring of one node, many nodes that follow it, and one node that follows all of these.
func inFan(steps int) wiring {
	s := wiring{nil}
	var middle []int
	for i := 1; i < steps-1; i++ {
		s, middle = append(s, []int{0}), append(middle, i)
	}
	return append(s, middle)
}

func (s wiring) graph() *kahn.Graph {
	g := &kahn.Graph{Name: "kahns"}
	for i, before := range s {
		n := kahn.Node{ID: nodeID(i), Kind: "plain"}
		for _, from := range before {
			n.After = append(n.After, nodeID(from))
		}
		g.Add(n)
	}
	return g
}

// plainActivity and plainWorkflow are the same graph in plain code for Temporal, with a coroutine for each node.
func plainActivity(_ context.Context, id string, _ []string) (string, error) { return id, nil }

func (s wiring) plainWorkflow(ctx workflow.Context) ([]string, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour, HeartbeatTimeout: defaultLostAfter, RetryPolicy: &sdk.RetryPolicy{MaximumAttempts: 1},
	})
	var nodes []workflow.Future
	for i, before := range s {
		node, done := workflow.NewFuture(ctx)
		nodes = append(nodes, node)
		workflow.Go(ctx, func(ctx workflow.Context) {
			inputs := make([]string, len(before))
			for k, from := range before {
				if err := nodes[from].Get(ctx, &inputs[k]); err != nil {
					done.SetError(err)
					return
				}
			}
			done.Chain(workflow.ExecuteActivity(ctx, "plain", nodeID(i), inputs))
		})
	}
	all := make([]string, len(s))
	for i := range all {
		if err := nodes[i].Get(ctx, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// mostBytes bounds the bytes of a run's history, in relation to plain code.
const mostBytes = 1.3

// TestServerCosts compares graphs with plain Temporal code of the same shape, in alternating rounds: the medians of the latency of a step, and the
// bytes of the history. It logs the rows of the table in docs/costs.md, and fails if the history is too long.
func TestServerCosts(t *testing.T) {
	c := dial(t)
	const rounds = 5
	var rows strings.Builder
	for _, row := range []struct {
		name   string
		wiring wiring
	}{
		{"chain of 100", inLayers(100, 1)}, {"fan of 100", inFan(100)}, {"10 layers of 10", inLayers(10, 10)},
		{"chain of 10", inLayers(10, 1)}, {"20 layers of 25", inLayers(20, 25)},
	} {
		stamp := time.Now().UnixNano()
		w := Workflow{TaskQueue: fmt.Sprint("kahns-", stamp), Plan: plan(t, row.wiring.graph())}
		ours, err := NewWorker(c, w.TaskQueue, Options{Plans: []*kahn.Plan{w.Plan}, Step: func(_ context.Context, s *kahn.Step) (any, error) { return s.ID(), nil }})
		require.NoError(t, err)
		require.NoError(t, ours.Start())
		queue := fmt.Sprint("plain-", stamp)
		plain := worker.New(c, queue, worker.Options{})
		plain.RegisterWorkflowWithOptions(row.wiring.plainWorkflow, workflow.RegisterOptions{Name: "plain"})
		plain.RegisterActivityWithOptions(plainActivity, activity.RegisterOptions{Name: "plain"})
		require.NoError(t, plain.Start())
		var byKahn, byHand median
		for i := range rounds {
			w.ID = fmt.Sprint(w.TaskQueue, "-", i)
			byKahn.measure(t, c, w.ID, func() {
				res, err := Execute(t.Context(), c, w, nil)
				require.NoError(t, err)
				require.Equal(t, len(row.wiring), res.Count(kahn.Completed))
			})
			id := fmt.Sprint(queue, "-", i)
			byHand.measure(t, c, id, func() {
				run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: queue}, "plain")
				require.NoError(t, err)
				var all []string
				require.NoError(t, run.Get(t.Context(), &all))
				require.Len(t, all, len(row.wiring))
			})
		}
		ours.Stop()
		plain.Stop()
		steps := int64(len(row.wiring))
		times, bytes := float64(byKahn.time())/float64(byHand.time()), float64(byKahn.bytes())/float64(byHand.bytes())
		fmt.Fprintf(&rows, "| %s | %.1f | %.1f | %.2f | %d | %d | %.2f |\n", row.name, ms(byKahn.time(), steps), ms(byHand.time(), steps), times, byKahn.bytes()/steps, byHand.bytes()/steps, bytes)
		if bytes >= mostBytes {
			t.Errorf("%s: the history has %d bytes a step, and %d in plain code", row.name, byKahn.bytes()/steps, byHand.bytes()/steps)
		}
	}
	t.Logf("\n| graph | ms a step | plain code | times | bytes a step | plain code | times |\n|---|--:|--:|--:|--:|--:|--:|\n%s", &rows)
}

func ms(d time.Duration, steps int64) float64 { return d.Seconds() * 1e3 / float64(steps) }

// median has the times and the histories' bytes of several runs.
type median struct {
	times []time.Duration
	sizes []int64
}

func (m *median) measure(t *testing.T, c client.Client, id string, run func()) {
	began := time.Now()
	run()
	m.times = append(m.times, time.Since(began))
	about, err := c.DescribeWorkflowExecution(t.Context(), id, "")
	require.NoError(t, err)
	m.sizes = append(m.sizes, about.GetWorkflowExecutionInfo().GetHistorySizeBytes())
}

func (m *median) time() time.Duration { slices.Sort(m.times); return m.times[len(m.times)/2] }
func (m *median) bytes() int64        { slices.Sort(m.sizes); return m.sizes[len(m.sizes)/2] }
