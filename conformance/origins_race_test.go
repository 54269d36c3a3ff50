package conformance_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestOriginsAreReadByMany: Wait computes the origins of a failed run while other goroutines look at its nodes. Under the race detector this test
// failed when both used one cache without a lock. A handled failure and a nested run make the origins of both runs be computed.
func TestOriginsAreReadByMany(t *testing.T) {
	t.Parallel()
	fails := func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("no") }
	nodes := []kahn.Node{
		{ID: "a", Do: fails}, {ID: "handler", In: []kahn.Edge{{From: "a", On: kahn.OnFailure}}, Do: nothing}, {ID: "b", After: []string{"a"}, Do: nothing},
		{ID: "d", Do: fails}, {ID: "e", After: []string{"d"}, Do: nothing}, {ID: "f", After: []string{"b", "e"}, Do: nothing},
	}
	for range 50 {
		run, err := kahn.Start(t.Context(), graph(nodes...).Add(kahn.Node{ID: "S", Sub: graph(nodes...), ContinueOnFail: true}), nil)
		require.NoError(t, err)
		var looking sync.WaitGroup
		for _, look := range []func(){
			func() { _, _ = run.Wait() },
			func() {
				for n := range run.Nodes() {
					_ = n.Cause
				}
			},
			func() { _, _ = run.Inside("S") },
			func() { _, _ = run.Why("f") },
			func() { _, _ = run.Node("S/f") },
			func() {
				res, _ := run.Wait()
				for n := range res.Nodes() {
					_ = n.Sub
				}
			},
			func() { _, _ = run.State().Cause(0) },
		} {
			looking.Go(func() {
				<-run.Done()
				look()
			})
		}
		looking.Wait()
	}
}
