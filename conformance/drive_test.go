package conformance_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// TestDriveAndRunsBeginTheSame performs every row of the matrix twice in lockstep: by effects on WorkSignal, and with the workers of a Run. Both
// ask the State for work, so after each end of a step both have begun the same attempts.
func TestDriveAndRunsBeginTheSame(t *testing.T) {
	t.Parallel()
	rows, err := readMatrix("testdata/matrix.txt")
	require.NoError(t, err)
	begun := 0
	for _, r := range rows {
		for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
			for limit := range 3 {
				s, err := r.parse()
				require.NoError(t, err)
				s.timeless = true
				s.seed = uint64(len(r.name) + limit)
				begun += s.lockstep(t, fmt.Sprintf("%s, %v, limit %d", r.name, mode, limit), mode, kahn.Limit(limit))
			}
		}
	}
	require.Greater(t, begun, 1000)
}

// lockstep performs the scenario both ways, and returns the number of attempts begun.
func (s *scenario) lockstep(t *testing.T, name string, opts ...kahn.Option) (total int) {
	plan, err := s.graph.Compile()
	require.NoError(t, err)
	st, err := kahn.NewState(plan, opts...)
	require.NoError(t, err)
	x := &coordinator{t, s, plan, st, rand.New(rand.NewPCG(s.seed, 3)), map[string]any{}, nil, 0}
	tasks := map[string]machine.Task{} // tasks that Drive has started
	var driven []string
	require.NoError(t, st.Drive(func(task machine.Task) {
		id := plan.ID(task.Ref)
		switch {
		case task.Check:
			require.NoError(t, st.Checked(task.Token, x.verdict(task.Ref)))
		case plan.Node(task.Ref).Test != nil:
			x.settle(task)
		default:
			tasks[id], driven = task, append(driven, id)
		}
	}, func(machine.Token) {}))

	c, err := kahn.NewCoordinator(plan, deskEpoch, opts...)
	require.NoError(t, err)
	steps := map[string]*kahn.Step{} // steps that the Run has started
	var open []string
	same := func() {
		var launched []string
		for step, ok := c.Next(); ok; step, ok = c.Next() {
			steps[step.ID()], launched = step, append(launched, step.ID())
		}
		require.ElementsMatch(t, driven, launched, name)
		total += len(launched)
		slices.Sort(launched)
		open, driven = append(open, launched...), nil
	}
	for same(); len(open) > 0; same() {
		i := x.rng.IntN(len(open))
		id := open[i]
		open = slices.Delete(open, i, i+1)
		x.settle(tasks[id])
		if s.outcomes[id] == "cancel" {
			require.NoError(t, c.Run().CancelNode(id))
			require.NoError(t, c.Return(steps[id], nil, context.Canceled), name)
			continue
		}
		value, err := s.outcome(id)
		require.NoError(t, c.Return(steps[id], value, err), name)
	}
	_, _ = c.Result()
	require.True(t, st.Done() && c.Run().Status().Terminal(), name)
	return total
}
