package conformance_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// Why reports what is being undone, what was undone, what could not be undone, and that cleanup nodes and the end node wait for compensations.
func TestWhyOfCompensations(t *testing.T) {
	bothModes(t, "why", func(t *testing.T, mode kahn.Mode) {
		slow := func(context.Context, *kahn.Step) error { time.Sleep(10 * ms); return nil }
		g := graph(
			kahn.Node{ID: "a", Do: succeeds(1), Compensate: func(context.Context, *kahn.Step) error { return kahn.Permanent(errors.New("closed")) }},
			subgraph("S", graph(kahn.Node{ID: "x", Do: succeeds(1), Compensate: slow}), "a"),
			kahn.Node{ID: "b", Do: always(errSoldOut), Compensate: slow, After: []string{"S"}},
			kahn.Node{ID: "tidy", Cleanup: true, Do: succeeds(1), After: []string{"b"}},
			kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: succeeds(1)},
		)
		ask := func(run *kahn.Run, path string) string {
			y, err := run.Why(path)
			require.NoError(t, err)
			return y.String()
		}
		r := tryControlled(t, t.Context(), g, nil, func(run *kahn.Run) {
			synctest.Wait()
			require.Equal(t, "it failed: step_error: sold out; it is being undone", ask(run, "b"))
			require.Equal(t, "it has completed", ask(run, "a"))
			require.Equal(t, "it waits for compensations, now of b", ask(run, "tidy"))
			require.Equal(t, "it waits for compensations, now of b", ask(run, "end"))
			time.Sleep(15 * ms)
			require.Equal(t, "it failed: step_error: sold out; it was undone", ask(run, "b"))
			require.Equal(t, "it has completed; it is being undone", ask(run, "S/x"))
			require.Equal(t, "it has completed; it is being undone", ask(run, "S"))
			require.Equal(t, "it waits for compensations, now of S/x", ask(run, "end"))
		}, mode)
		y, err := r.Why("a")
		require.NoError(t, err)
		require.Equal(t, kahn.CompensationFailed, y.Compensation)
		require.Equal(t, "it has completed; it could not be undone: closed", y.String())
		y, err = r.Why("S")
		require.NoError(t, err)
		require.Equal(t, "it has completed; it was undone", y.String())
	})
}
