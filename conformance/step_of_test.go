package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// StepOf finds the attempt in the attempt's context and in every derived context, with every driver.
func TestStepOf(t *testing.T) {
	type key struct{}
	// found returns the paths that StepOf finds in ctx and in contexts that each function of package context derives from ctx.
	found := func(ctx context.Context) string {
		later := time.Now().Add(time.Hour)
		timeout, end := context.WithTimeout(ctx, time.Hour)
		defer end()
		deadline, end := context.WithDeadlineCause(context.WithValue(timeout, key{}, 1), later, errors.ErrUnsupported)
		defer end()
		ended, end := context.WithCancel(deadline)
		end()
		s := kahn.StepOf(ctx)
		for _, derived := range []context.Context{timeout, deadline, ended, context.WithoutCancel(ended), context.WithValue(ended, key{}, 2)} {
			if kahn.StepOf(derived) != s {
				return fmt.Sprintf("%v, and of %v %v", s, derived, kahn.StepOf(derived))
			}
		}
		if s == nil {
			return "none"
		}
		return s.Path()
	}
	own := func(ctx context.Context, s *kahn.Step) (any, error) {
		if f := kahn.StepOf(ctx); f.IdempotencyKey() != s.IdempotencyKey() || f.Attempt() != s.Attempt() {
			return nil, fmt.Errorf("StepOf returned %v in %v", f, s)
		}
		return found(ctx), nil
	}
	adds := kahn.Use(func(next kahn.StepFunc) kahn.StepFunc {
		return func(ctx context.Context, s *kahn.Step) (any, error) {
			if got := found(ctx); got != s.Path() {
				return nil, fmt.Errorf("middleware found %s in %s", got, s.Path())
			}
			return next(context.WithValue(ctx, key{}, s.Path()), s)
		}
	})
	apart := kahn.Use(func(next kahn.StepFunc) kahn.StepFunc {
		return func(_ context.Context, s *kahn.Step) (any, error) { return next(context.Background(), s) }
	})

	t.Run("none", func(t *testing.T) {
		var none context.Context
		require.Nil(t, kahn.StepOf(none))
		require.Equal(t, "none", found(context.Background()))
	})
	sub := graph(kahn.Node{ID: "in"})
	g := graph(kahn.Node{ID: "a"}, kahn.Node{ID: "S", Sub: sub, After: []string{"a"}},
		kahn.Node{ID: "L", Sub: sub, Loop: &kahn.Loop{MaxIterations: 1, OnLimit: kahn.LoopStop, While: func(kahn.View) (bool, error) { return true, nil }}}, kahn.Node{ID: "end", Kind: kahn.KindEnd})
	for name, opts := range map[string][]kahn.Option{"plain": nil, "a value": {adds}, "values": {adds, adds}, "store": {adds, kahn.Durable(&store.Memory{}), kahn.RunID("r")}} {
		t.Run(name, func(t *testing.T) {
			seen := map[string]bool{}
			step := func(ctx context.Context, s *kahn.Step) (any, error) {
				out, err := own(ctx, s)
				seen[fmt.Sprint(out)] = true
				return out, err
			}
			_, err := kahn.Execute(t.Context(), g, step, append(opts, kahn.Limit(1))...)
			require.NoError(t, err)
			require.Equal(t, map[string]bool{"a": true, "S/in": true, "L#1/in": true, "end": true}, seen)
		})
	}
	t.Run("a context that middleware does not derive", func(t *testing.T) {
		res, err := kahn.Execute(t.Context(), graph(kahn.Node{ID: "a"}), func(_ context.Context, s *kahn.Step) (any, error) { return found(s), nil }, apart)
		require.NoError(t, err)
		require.Equal(t, "a", res.Output())
	})
	t.Run("a run in a step", func(t *testing.T) {
		res, err := kahn.Execute(t.Context(), graph(kahn.Node{ID: "outer"}), func(ctx context.Context, _ *kahn.Step) (any, error) {
			inner, err := kahn.Execute(context.WithValue(ctx, key{}, 1), graph(kahn.Node{ID: "inner"}), own, adds)
			return fmt.Sprint(inner.Output(), " in ", found(ctx)), err
		}, adds)
		require.NoError(t, err)
		require.Equal(t, "inner in outer", res.Output())
	})
	t.Run("fallback, after a stop", func(t *testing.T) {
		var stopped string
		n := kahn.Node{ID: "a", Timeout: time.Millisecond, Fallback: func(ctx context.Context, _ error) (any, error) { return found(ctx), nil }}
		res, err := kahn.Execute(t.Context(), graph(n), func(ctx context.Context, _ *kahn.Step) (any, error) {
			<-ctx.Done()
			stopped = found(ctx)
			return nil, ctx.Err()
		}, adds)
		require.NoError(t, err)
		require.Equal(t, "a", res.Output())
		require.Equal(t, "a", stopped)
	})
	t.Run("an attempt as data", func(t *testing.T) {
		reply := kahn.Call{ID: "a", Path: "S/a", Attempt: 2, IdempotencyKey: "k"}.Perform(context.WithValue(t.Context(), key{}, 1), own, nil)
		require.NoError(t, reply.Err)
		require.Equal(t, "S/a", reply.Value)
	})
	t.Run("Coordinator", func(t *testing.T) {
		p, err := graph(kahn.Node{ID: "a"}).Compile()
		require.NoError(t, err)
		c, err := kahn.NewCoordinator(p, time.Now())
		require.NoError(t, err)
		s, ok := c.Next()
		require.True(t, ok)
		require.Same(t, s, kahn.StepOf(context.WithValue(s, key{}, 1)))
	})
}
