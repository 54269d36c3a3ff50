package conformance_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

var sagaSteps = []string{"reserve", "charge", "ship", "notify"}

// saga returns the graph of the order in docs/saga.md. do performs a step or its compensation. The step notify has no compensation.
func saga(do func(ctx context.Context, s *kahn.Step, name string) (any, error)) *kahn.Graph {
	g := &kahn.Graph{Name: "saga"}
	for i, name := range sagaSteps {
		n := kahn.Node{ID: name, After: sagaSteps[max(i-1, 0):i]}
		n.Do = func(ctx context.Context, s *kahn.Step) (any, error) { return do(ctx, s, name) }
		if name != "notify" {
			n.Compensate = func(ctx context.Context, s *kahn.Step) error { _, err := do(ctx, s, "undo "+name); return err }
		}
		g.Add(n)
	}
	return g
}

// Whichever step of an order fails, the completed steps are undone in reverse order, and the run does not complete. The same holds if the run is
// cancelled or times out.
func TestSagaOfAnOrder(t *testing.T) {
	for fails, want := range map[string]string{
		"":        "reserve charge ship notify",
		"reserve": "",
		"charge":  "reserve undo:reserve",
		"ship":    "reserve charge undo:charge undo:reserve",
		"notify":  "reserve charge ship undo:ship undo:charge undo:reserve",
	} {
		var did []string
		res, err := kahn.Execute(t.Context(), saga(func(_ context.Context, s *kahn.Step, name string) (any, error) {
			if name == fails {
				return nil, kahn.NoEffect(errors.New("declined"))
			}
			did = append(did, strings.ReplaceAll(name, " ", ":"))
			return "receipt", nil
		}), nil)
		require.Equal(t, want, strings.Join(did, " "), fails)
		require.Equal(t, fails == "", err == nil)
		require.Equal(t, fails == "", res.Status == kahn.RunCompleted)
	}
	for name, want := range map[string]kahn.RunStatus{"cancelled": kahn.RunCancelled, "timed out": kahn.RunFailed} {
		synctest.Test(t, func(t *testing.T) {
			var did []string
			run, err := kahn.Start(t.Context(), saga(func(ctx context.Context, s *kahn.Step, name string) (any, error) {
				if name == "ship" {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				did = append(did, name)
				return "receipt", nil
			}), nil, kahn.Timeout(time.Hour))
			require.NoError(t, err)
			synctest.Wait()
			if name == "cancelled" {
				require.NoError(t, run.Cancel())
			}
			res, err := run.Wait()
			require.Error(t, err)
			require.Equal(t, want, res.Status)
			require.Equal(t, []string{"reserve", "charge", "undo ship", "undo charge", "undo reserve"}, did, name)
		})
	}
}

// An edge into the end node does not change the order: a node is undone after each of its successors.
func TestCompensationBesideTheEnd(t *testing.T) {
	bothModes(t, "an edge into the end node", func(t *testing.T, mode kahn.Mode) {
		var l undoLog
		r := try(t, graph(
			kahn.Node{ID: "a", Do: succeeds(1), Compensate: l.undo},
			kahn.Node{ID: "b", Do: succeeds(2), Compensate: l.undo, After: []string{"a"}},
			kahn.Node{ID: "x", Do: always(errSoldOut), After: []string{"b"}},
			kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: succeeds(nil), After: []string{"a"}},
		), nil, mode)
		r.expect("a:ok b:ok x:F end:ok", "failed")
		require.Equal(t, "b a", l.String())
	})
}
