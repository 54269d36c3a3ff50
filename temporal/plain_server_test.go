//go:build server

package temporal

import (
	"context"
	"fmt"
	"slices"
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

// size is the size of a graph of layers.
type size struct{ Deep, Wide int }

// plainActivity and plainWorkflow implement the graph of layers by hand for Temporal, with a coroutine for each node.
func plainActivity(_ context.Context, id string, _ []string) (string, error) { return id, nil }

func plainWorkflow(ctx workflow.Context, s size) ([]string, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour, HeartbeatTimeout: defaultLostAfter, RetryPolicy: &sdk.RetryPolicy{MaximumAttempts: 1},
	})
	nodes := make([][]workflow.Future, s.Deep)
	for d := range s.Deep {
		for i := range s.Wide {
			node, done := workflow.NewFuture(ctx)
			nodes[d] = append(nodes[d], node)
			workflow.Go(ctx, func(ctx workflow.Context) {
				var inputs []string
				if d > 0 {
					inputs = make([]string, 2)
					for k := range inputs {
						if err := nodes[d-1][(i+k)%s.Wide].Get(ctx, &inputs[k]); err != nil {
							done.SetError(err)
							return
						}
					}
				}
				done.Chain(workflow.ExecuteActivity(ctx, "plain", fmt.Sprintf("n%d-%d", d, i), inputs))
			})
		}
	}
	last := make([]string, s.Wide)
	for i := range last {
		if err := nodes[s.Deep-1][i].Get(ctx, &last[i]); err != nil {
			return nil, err
		}
	}
	return last, nil
}

// TestServerPlain compares the cost of graphs with the cost of plain Temporal code of the same shape.
func TestServerPlain(t *testing.T) {
	c := dial(t)
	for name, s := range map[string]size{"4 layers of 250": {4, 250}, "a chain of 200": {200, 1}, "20 layers of 25": {20, 25}} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, c, plan(t, layers(s.Deep, s.Wide)), Options{Step: func(_ context.Context, s *kahn.Step) (any, error) { return s.ID(), nil }})
			plain := worker.New(c, w.TaskQueue+"-plain", worker.Options{})
			plain.RegisterWorkflowWithOptions(plainWorkflow, workflow.RegisterOptions{Name: "plain"})
			plain.RegisterActivityWithOptions(plainActivity, activity.RegisterOptions{Name: "plain"})
			require.NoError(t, plain.Start())
			t.Cleanup(plain.Stop)
			id := w.ID
			var byKahn, byHand []time.Duration
			const rounds = 5
			for i := range rounds {
				w.ID = fmt.Sprint(id, "-", i)
				began := time.Now()
				res, err := Execute(t.Context(), c, w, nil)
				require.NoError(t, err)
				require.Equal(t, s.Deep*s.Wide, res.Count(kahn.Completed))
				byKahn = append(byKahn, time.Since(began))
				began = time.Now()
				run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: w.TaskQueue + "-plain"}, "plain", s)
				require.NoError(t, err)
				require.NoError(t, run.Get(t.Context(), nil))
				byHand = append(byHand, time.Since(began))
			}
			slices.Sort(byKahn)
			slices.Sort(byHand)
			steps := time.Duration(s.Deep * s.Wide)
			kahns, hands := byKahn[rounds/2], byHand[rounds/2]
			t.Logf("%s: a step: %v by kahn, %v by hand, median of %d: %+.0f %%", name, (kahns / steps).Round(time.Microsecond), (hands / steps).Round(time.Microsecond), rounds,
				100*(float64(kahns)/float64(hands)-1))
		})
	}
}
