package conformance_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// A running node was asked to stop. Whichever write the process dies at, the next life ends the node in the same way.
func TestStopsOfNodesAndCrashes(t *testing.T) {
	t.Parallel()
	slow := func(takes time.Duration) kahn.StepFunc { // needs a second to stop
		return func(ctx context.Context, _ *kahn.Step) (any, error) {
			select {
			case <-time.After(takes):
				return nil, nil
			case <-ctx.Done():
				time.Sleep(time.Second)
				return nil, ctx.Err()
			}
		}
	}
	fails := func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("down") }
	at := func(after time.Duration, f kahn.StepFunc) kahn.StepFunc {
		return func(ctx context.Context, s *kahn.Step) (any, error) {
			select {
			case <-time.After(after):
				return f(ctx, s)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	asks := func(ctx context.Context, p *kahntest.Process) error {
		return p.Post(context.WithoutCancel(ctx), store.Request{ID: "node", Kind: store.KindCancelNode, Node: "D", Actor: "ann"})
	}
	asking := func(p *kahntest.Process) kahn.StepFunc {
		return at(10*time.Second, func(ctx context.Context, _ *kahn.Step) (any, error) { return nil, asks(ctx, p) })
	}
	for name, graphOf := range map[string]func(p *kahntest.Process) *kahn.Graph{
		"a request": func(p *kahntest.Process) *kahn.Graph {
			return graph(kahn.Node{ID: "A", Do: asking(p)}, kahn.Node{ID: "D", Do: slow(time.Minute)}, after("E", "D"))
		},
		"a request, for a composite": func(p *kahntest.Process) *kahn.Graph {
			return graph(kahn.Node{ID: "A", Do: asking(p)}, kahn.Node{ID: "D", Sub: graph(kahn.Node{ID: "x", Do: slow(time.Minute)}, after("y", "x"))}, after("E", "D"))
		},
		"a request, for a map": func(p *kahntest.Process) *kahn.Graph {
			return graph(kahn.Node{ID: "A", Do: asking(p)}, kahn.Node{ID: "D", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []any{1, 2}}, Do: slow(time.Minute)}, after("E", "D"))
		},
		"CancelLosers": func(*kahntest.Process) *kahn.Graph {
			return graph(kahn.Node{ID: "A", Do: at(10*time.Second, nothing)}, kahn.Node{ID: "D", Do: slow(time.Minute)},
				kahn.Node{ID: "J", After: []string{"A", "D"}, Join: kahn.AnySucceeded, CancelLosers: true})
		},
		"CancelOnLateFailure": func(*kahntest.Process) *kahn.Graph {
			return graph(kahn.Node{ID: "A", Do: nothing}, kahn.Node{ID: "B", Do: at(10*time.Second, fails)},
				kahn.Node{ID: "D", After: []string{"A", "B"}, Join: kahn.AnySucceeded, CancelOnLateFailure: true, Do: slow(time.Minute)}, after("E", "D"))
		},
		"a group": func(*kahntest.Process) *kahn.Graph {
			g := graph(kahn.Node{ID: "A", Groups: []string{"g"}, Do: at(10*time.Second, fails)}, kahn.Node{ID: "D", Groups: []string{"g"}, Do: slow(time.Minute)}, after("E", "D"))
			g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
			return g
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kahntest.InFakeTime(t, func(t *testing.T) {
				crashes, err := kahntest.CheckCrashes(t.Context(), func(p *kahntest.Process) (*kahn.Graph, kahn.StepFunc) { return graphOf(p), nothing })
				require.NoError(t, err)
				require.Greater(t, crashes, 3)
			})
		})
	}
}
