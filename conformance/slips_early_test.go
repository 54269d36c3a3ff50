package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// sumGraph returns a graph that adds the outputs of a fast node and a slow node. Its last node treats an unreadable output as a missing output.
func sumGraph(join kahn.Join, missing func(s *kahn.Step) error) *kahn.Graph {
	return graph(
		kahn.Node{ID: "fast", Do: yields(0, 1)},
		kahn.Node{ID: "slow", Do: yields(time.Second, 1)},
		kahn.Node{ID: "sum", Join: join, In: []kahn.Edge{{From: "fast"}, {From: "slow", Param: "more"}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			n, err := kahn.Upstream[int](s, "fast")
			if err == nil {
				err = missing(s)
			}
			if errors.Is(err, kahn.ErrNoValue) {
				err = nil
			}
			return n, err
		}},
	)
}

// The error for reading an input that has not been delivered yet differs from the error for reading an input that does not exist.
func TestEarlyJoinsLoseNothingInSilence(t *testing.T) {
	t.Parallel()
	asks := map[string]struct {
		ask  func(s *kahn.Step) error
		text string
	}{
		"Upstream":      {func(s *kahn.Step) error { _, err := kahn.Upstream[int](s, "slow"); return err }, `upstream "slow"`},
		"Param":         {func(s *kahn.Step) error { _, err := kahn.Param[int](s, "more"); return err }, `parameter "more"`},
		"UpstreamItems": {func(s *kahn.Step) error { _, _, err := kahn.UpstreamItems[int](s, "slow"); return err }, `upstream "slow"`},
		"a call": {func(s *kahn.Step) error {
			data, err := json.Marshal(s.Call())
			if err != nil {
				return err
			}
			var c kahn.Call
			if err := json.Unmarshal(data, &c); err != nil {
				return err
			}
			_, err = kahn.Upstream[int](kahn.NewStep(context.Background(), c, nil), "slow")
			return err
		}, `upstream "slow"`},
	}
	for name, x := range asks {
		for _, join := range []kahn.Join{kahn.AnySucceeded, kahn.AtLeast(1), kahn.OneDone} {
			for driver, opts := range map[string][]kahn.Option{"Execute": nil, "over a store": {kahn.Durable(new(store.Memory)), kahn.RunID("1")}} {
				synctest.Test(t, func(t *testing.T) {
					res, err := kahn.Execute(t.Context(), sumGraph(join, x.ask), nop, opts...)
					require.ErrorIs(t, err, kahn.ErrTooEarly, "%s, %v, %s", name, join, driver)
					require.NotErrorIs(t, err, kahn.ErrNoValue)
					require.Equal(t, kahn.RunFailed, res.Status)
					n, _ := res.Node("sum")
					require.EqualError(t, errors.Unwrap(n.Err), x.text+`: too early: "slow" is running, and the join `+join.String()+
						` began this node without it; all_done_min_one waits for all, and takes what succeeded`)
				})
			}
		}
		synctest.Test(t, func(t *testing.T) {
			res, err := kahn.Execute(t.Context(), sumGraph(kahn.AllDoneMinOne, func(s *kahn.Step) error {
				if v, ok := s.Upstream("slow"); !ok || v != 1 {
					return errStep
				}
				return nil
			}), nop)
			require.NoError(t, err)
			require.Equal(t, kahn.RunCompleted, res.Status)
		})
	}
}

// The error does not depend on how late the step reads the input: predecessors that ended after the join's decision do not count.
func TestEarlyJoinsAskedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := sumGraph(kahn.AnySucceeded, func(s *kahn.Step) error {
			time.Sleep(time.Minute)
			if _, err := kahn.Param[int](s, "nothing"); !errors.Is(err, kahn.ErrNoValue) {
				return errStep
			}
			_, err := kahn.Upstream[int](s, "slow")
			return err
		})
		res, err := kahn.Execute(t.Context(), g, nop)
		require.ErrorIs(t, err, kahn.ErrTooEarly)
		n, _ := res.Node("sum")
		require.ErrorContains(t, n.Err, `"slow" is completed, and the join any_succeeded began this node without it`)
	})
}

// Under a Coordinator, a step gets the same error as under Execute.
func TestEarlyJoinsOfACoordinator(t *testing.T) {
	t.Parallel()
	c := coordinate(t, sumGraph(kahn.AnySucceeded, nil))
	var got []error
	var fast *kahn.Step
	for s, ok := c.Next(); ok; s, ok = c.Next() {
		switch s.ID() {
		case "fast":
			fast = s
		case "slow":
			require.NoError(t, c.Return(fast, 1, nil))
		case "sum":
			_, err := kahn.Upstream[int](s, "slow")
			_, later := kahn.Upstream[int](kahn.NewStep(t.Context(), s.Call(), nil), "slow")
			got = append(got, err, later)
		}
	}
	require.Len(t, got, 2)
	for _, err := range got {
		require.ErrorIs(t, err, kahn.ErrTooEarly)
	}
}

// A predecessor that failed, was skipped or took another branch before the join's decision has no value.
func TestEarlyJoinsWithoutAValue(t *testing.T) {
	t.Parallel()
	for _, other := range []kahn.Node{{ID: "slow", Do: always(errStep)}, {ID: "slow", Disabled: true}} {
		g := graph(other, kahn.Node{ID: "fast", After: []string{"gone"}}, kahn.Node{ID: "gone", Join: kahn.AllDone, After: []string{"slow"}},
			kahn.Node{ID: "sum", Join: kahn.AnySucceeded, After: []string{"fast", "slow"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
				_, err := kahn.Upstream[int](s, "slow")
				return nil, err
			}})
		res, err := kahn.Execute(t.Context(), g, nop)
		require.ErrorIs(t, err, kahn.ErrNoValue)
		require.NotErrorIs(t, err, kahn.ErrTooEarly)
		n, _ := res.Node("sum")
		require.Equal(t, kahn.Failed, n.Status)
	}
}
