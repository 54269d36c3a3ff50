package conformance_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// A cleanup composite is still running when its run begins to undo nodes, and ends during the undoing. The nodes inside it are undone after the other
// nodes, and the run ends, also if it is left and resumed on the way.
func TestCleanupCompositeThatEndsDuringTheUndoingIsUndone(t *testing.T) {
	for _, outer := range []string{"", "s/", "m[0]/", "c/"} {
		for _, stored := range []bool{false, true} {
			for _, leaves := range []time.Duration{0, 15 * time.Minute, 45 * time.Minute, 75 * time.Minute} {
				inBubble(t, fmt.Sprintf("in %q, stored %v, left after %v", outer, stored, leaves), func(t *testing.T) {
					testUndoneCleanup(t, outer, stored, leaves)
				})
			}
		}
	}
}

func testUndoneCleanup(t *testing.T, outer string, stored bool, leaves time.Duration) {
	var l undoLog
	undo := func(_ context.Context, s *kahn.Step) error {
		time.Sleep(time.Hour)
		l.add(s.Path()[len(outer):])
		return nil
	}
	tidies := func(context.Context, *kahn.Step) (any, error) {
		time.Sleep(30 * time.Minute)
		return 1, nil
	}
	soldOut := func(context.Context, *kahn.Step) (any, error) { return nil, errSoldOut }
	tidy := graph(kahn.Node{ID: "x", Do: tidies, Compensate: undo, CompensateTimeout: 3 * time.Hour})
	inner := graph(
		kahn.Node{ID: "pay", Do: succeeds(1), Compensate: undo, CompensateTimeout: 3 * time.Hour}, kahn.Node{ID: "ship", After: []string{"pay"}, Do: soldOut},
		kahn.Node{ID: "tidy", Cleanup: true, Sub: tidy},
	)
	g := inner
	switch outer {
	case "s/":
		g = graph(kahn.Node{ID: "s", Sub: inner})
	case "c/":
		g = graph(kahn.Node{ID: "c", Cleanup: true, Sub: inner})
	case "m[0]/":
		g = graph(kahn.Node{ID: "m", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []int{1}}, Sub: inner})
	}
	opts := []kahn.Option{kahn.RunID("r"), kahn.CleanupTimeout(24 * time.Hour), kahn.CancelGrace(time.Minute)}
	if stored {
		opts = append(opts, kahn.Durable(new(store.Memory)))
	}
	run, err := kahn.Start(t.Context(), g, nil, opts...)
	require.NoError(t, err)
	if leaves > 0 {
		time.Sleep(leaves)
		run.Leave()
		res, err := run.Wait()
		if !res.Status.Terminal() { // the compensation that was running may have been the last one
			require.NoError(t, err)
			again := opts[:len(opts):len(opts)]
			if !stored {
				again = append(again, kahn.Resume(reload(t, res.Snapshot())))
			}
			run, err = kahn.Start(t.Context(), g, nil, again...)
			require.NoError(t, err)
		}
	}
	res, err := run.Wait()
	require.ErrorContains(t, err, errSoldOut.Error())
	require.Equal(t, kahn.RunFailed, res.Status)
	require.Equal(t, "pay tidy/x", l.String())
}
