package kahn_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/trees"
)

// TestCoordinatorAnyOrder makes all calls of a Coordinator and of its Run in random orders. Results of any kind are reported, some twice, some
// for attempts that were abandoned or that belong to other runs. Each call must return, the events must be in order, and the run must end.
func TestCoordinatorAnyOrder(t *testing.T) {
	t.Parallel()
	foreign := nextOf(t, coordinate(t, graph(after("foreign"))), "foreign")
	for seed := range seeds(t, size(200, 60, 8000)) {
		rng := rand.New(rand.NewPCG(17, seed))
		g := trees.Maker{Rand: rng, Inline: true, Waits: rng.IntN(2) == 0, Cleanups: rng.IntN(3) == 0, Data: rng.IntN(2) == 0, Tick: 5 * ms}.Graph(2)
		var events []kahn.Event
		c := coordinate(t, g, kahn.RunID("r"), kahn.OnEvent(func(e kahn.Event) { events = append(events, e) }), kahn.Limit(rng.IntN(3)), kahn.Mode(rng.IntN(2)),
			kahn.FailureMode(rng.IntN(3)), kahn.StopMode(rng.IntN(2)), kahn.CancelGrace(20*ms), kahn.Random(rng.Float64))
		x := anyOrder{t: t, c: c, rng: rng, open: []*kahn.Step{nil, new(kahn.Step), foreign, kahn.NewStep(t.Context(), kahn.Call{}, nil)}, now: deskEpoch}
		for range 100 {
			x.act(x.rng.IntN(18))
		}
		for acts := 0; !c.Run().Status().Terminal(); acts++ {
			require.Less(t, acts, 100_000, "seed %d: the run does not end", seed)
			x.act(0)
			if len(x.under) > 0 {
				x.act(1)
				continue
			}
			x.act(4)
			answerAll(c.Run())
		}
		res, _ := c.Result()
		if slices.ContainsFunc(res.Warnings, func(err error) bool { return !isStatic(err) }) {
			t.Fatalf("seed %d: %v", seed, res.Warnings)
		}
		if left := c.Run().Leftovers(); left != "" {
			t.Fatalf("seed %d: left over: %s", seed, left)
		}
		if checkEvents(t, g, res, events); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		for _, s := range x.open {
			require.ErrorIs(t, c.Return(s, nil, nil), kahn.ErrStale)
		}
	}
}

type anyOrder struct {
	t     *testing.T
	c     *kahn.Coordinator
	rng   *rand.Rand
	under []*kahn.Step // returned by Next, without a result yet
	open  []*kahn.Step // steps whose results the run does not wait for any more
	now   time.Time
}

func (x *anyOrder) act(what int) {
	run, rng := x.c.Run(), x.rng
	path := []string{"n0", "n1", "n2/n0", "n1[0]", "n3#1/n0", "", "nobody"}[rng.IntN(7)]
	switch what {
	case 0:
		for s, ok := x.c.Next(); ok; s, ok = x.c.Next() {
			x.under = append(x.under, s)
		}
	case 1, 2, 3:
		if len(x.under) == 0 {
			return
		}
		i := rng.IntN(len(x.under))
		s := x.under[i]
		x.under = slices.Delete(x.under, i, i+1)
		value, err := x.result()
		if err := x.c.Return(s, value, err); err != nil {
			require.ErrorIs(x.t, err, kahn.ErrStale)
			require.Less(x.t, len(err.Error()), 200)
		}
		x.open = append(x.open, s)
	case 4:
		if at, ok := x.c.Due(); ok {
			x.now = at
			x.c.Advance(at)
		}
	case 5:
		x.now = x.now.Add(time.Duration(rng.IntN(30)-5) * ms)
		x.c.Advance(x.now)
	case 6:
		s, ok := x.c.NextStop()
		require.Equal(x.t, ok, s != nil)
		if ok {
			require.Error(x.t, s.Err())
		}
	case 7:
		require.ErrorIs(x.t, x.c.Return(x.open[rng.IntN(len(x.open))], 1, nil), kahn.ErrStale)
	case 8:
		answerAll(run)
	case 9:
		_ = run.Signal(context.Background(), path, true)
	case 10:
		_ = run.CancelNode(path)
	case 11:
		_ = run.RetryNow(path)
	case 12:
		_, _ = run.Why(path)
		_, _, _ = run.Inputs(path)
		for range run.Nodes() {
			_ = run.Counts()
		}
	case 13:
		_, err := run.Snapshot().MarshalJSON()
		require.NoError(x.t, err)
	case 14:
		_, err := x.c.Result()
		require.Equal(x.t, run.Status().Terminal(), err == nil || !isNotEnded(err))
	case 15:
		if rng.IntN(60) == 0 {
			run.Cancel()
		}
	case 16:
		if rng.IntN(60) == 0 {
			run.AbortAll(errHost)
		}
	case 17:
		if len(x.under) > 0 {
			s := x.under[rng.IntN(len(x.under))]
			s.Emit("a chunk")
			s.Log(0, "a line")
			s.Tokens(1, 2)
			_ = s.Call()
		}
	}
}

// result returns a random result of a step.
func (x *anyOrder) result() (any, error) {
	switch x.rng.IntN(16) {
	case 0, 1:
		return nil, errStep
	case 2:
		return nil, kahn.Skip("no")
	case 3:
		return nil, kahn.Suspend("", nil, 1)
	case 4:
		return nil, kahn.RateLimited(errStep, 3*ms)
	case 5:
		return nil, &kahn.PanicError{Value: "step"}
	case 6:
		return nil, kahn.ErrGoexit
	case 7:
		return nil, (*kahn.PanicError)(nil)
	case 8:
		return nil, kahn.Expand(graph(after("in")), nil, nil)
	case 9:
		return nil, kahn.ErrCallAborted
	case 10:
		return []any{1, 2}, nil
	}
	return map[string]any{"a": 1}, nil
}

func isNotEnded(err error) bool { return errors.Is(err, kahn.ErrNotEnded) }

func coordinate(t *testing.T, g *kahn.Graph, opts ...kahn.Option) *kahn.Coordinator {
	plan, err := g.Compile()
	require.NoError(t, err)
	c, err := kahn.NewCoordinator(plan, deskEpoch, opts...)
	require.NoError(t, err)
	return c
}

// nextOf returns the next attempt, which must be an attempt of the node at path.
func nextOf(t *testing.T, c *kahn.Coordinator, path string) *kahn.Step {
	t.Helper()
	s, ok := c.Next()
	require.True(t, ok, "there is no next attempt")
	require.Equal(t, path, s.Path())
	return s
}

var deskEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // as in package synctest

// answerAll answers all nodes that wait.
func answerAll(run *kahn.Run) {
	for _, w := range run.Waiting() {
		_ = run.Signal(context.Background(), w.Token, len(w.Token)%3 > 0)
	}
}
