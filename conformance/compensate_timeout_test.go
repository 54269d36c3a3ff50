package conformance_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// The Timeout of a composite bounds its attempt, not the compensations after the attempt has failed: they change neither the cause nor whether the
// attempt is retried.
func TestTimeoutWhileTheInsideIsUndone(t *testing.T) {
	slowUndo := func(context.Context, *kahn.Step) error { time.Sleep(3 * time.Second); return nil }
	inside := graph(kahn.Node{ID: "a", Compensate: slowUndo}, after("b", "a"))
	items := map[string]any{"items": numbers(1)}
	for name, node := range map[string]kahn.Node{
		"sub":  {ID: "S", Sub: inside},
		"loop": {ID: "S", Sub: inside, Loop: &kahn.Loop{MaxIterations: 2, While: whileLess(2)}},
		"item": {ID: "S", Sub: inside, Map: &kahn.Map{Over: "items"}, Params: items},
	} {
		node.Timeout = 2 * time.Second
		node.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: time.Second, Jitter: kahn.JitterNone, RetryOn: []kahn.CauseKind{kahn.CauseTimeout}}
		inBubble(t, name, func(t *testing.T) {
			r := try(t, graph(node), func(_ context.Context, s *kahn.Step) (any, error) {
				if s.ID() == "b" {
					time.Sleep(time.Second)
					return nil, errStep
				}
				return nil, nil
			})
			failed := r.node("S")
			if node.Map != nil {
				failed = must(failed.Sub.Node("S[0]"))
			}
			require.Equal(t, kahn.Failed, failed.Status)
			require.Equal(t, kahn.CauseSubrun, failed.Cause.Kind)
			require.ErrorIs(t, failed.Cause.Err, errStep)
			require.Empty(t, r.find(event.NodeTimedOut, "S"))
			require.Equal(t, 4*time.Second, r.Duration)
		})
	}
}
