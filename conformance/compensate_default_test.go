package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// A compensation reads the parameters with which its node ran, including the defaults for a predecessor that has failed. This also holds for the
// items of a map, and after the run was continued.
func TestCompensationReadsDefaults(t *testing.T) {
	for _, row := range []string{"node", "items", "sub"} {
		for _, encoded := range []bool{false, true} {
			t.Run(fmt.Sprint(row, ", as JSON ", encoded), func(t *testing.T) {
				var done, undone []any
				read := func(to *[]any) func(s *kahn.Step) {
					return func(s *kahn.Step) {
						x, _ := s.Param("x")
						*to = append(*to, x)
					}
				}
				n := kahn.Node{ID: "n", OnUpstreamFailure: kahn.UpstreamSubstitute}
				do := func(_ context.Context, s *kahn.Step) (any, error) {
					read(&done)(s)
					return 1, nil
				}
				undo := func(_ context.Context, s *kahn.Step) error {
					read(&undone)(s)
					return nil
				}
				switch row {
				case "node":
					n.Do, n.Compensate = do, undo
				case "items":
					n.Map, n.Do, n.Compensate, n.In = &kahn.Map{Over: "list"}, do, undo, []kahn.Edge{{From: "list", Param: "list"}}
				case "sub":
					n.Sub, n.Compensate = graph(kahn.Node{ID: "x", Do: succeeds(1)}), undo
					done = []any{"default"}
				}
				g := graph(
					kahn.Node{ID: "a", Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("a failed") }},
					kahn.Node{ID: "list", Do: func(context.Context, *kahn.Step) (any, error) { return []int{7}, nil }}, n,
					kahn.Node{ID: "ask", Kind: kahn.KindGate, After: []string{"n"}},
					kahn.Node{ID: "last", After: []string{"ask"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("last failed") }},
				)
				g.Connect(kahn.Edge{From: "a", To: "n", Param: "x", Default: "default"})
				res, err := kahn.Execute(t.Context(), g, nil)
				require.NoError(t, err)
				require.Equal(t, kahn.RunSuspended, res.Status)
				from := res.Snapshot()
				if encoded {
					data, err := json.Marshal(from)
					require.NoError(t, err)
					from = new(kahn.Snapshot)
					require.NoError(t, json.Unmarshal(data, from))
				}
				run, err := kahn.Start(t.Context(), g, nil, kahn.Resume(from))
				require.NoError(t, err)
				err = run.Signal(t.Context(), "ask", 1)
				require.NoError(t, err)
				_, err = run.Wait()
				require.ErrorContains(t, err, "last failed")
				require.Equal(t, []any{"default"}, done)
				require.Equal(t, []any{"default"}, undone)
			})
		}
	}
}
