package typed_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/typed"
)

func ret[T any](v T) func(context.Context) (T, error) {
	return func(context.Context) (T, error) { return v, nil }
}

func same[T any](_ context.Context, v T) (T, error) { return v, nil }

// run runs a pipeline, requires these statuses, and checks its events.
func run[T any](t *testing.T, p *typed.Pipeline[T], statuses string, opts ...kahn.Option) (T, *kahn.Result, error) {
	t.Helper()
	g, err := p.Graph()
	require.NoError(t, err)
	trial := kahntest.Run(t, g, nil, append(opts, p.Encoding())...)
	require.NotNil(t, trial.Result)
	kahntest.RequireStatuses(t, trial.Result, statuses)
	out, err := p.Output(trial.Result)
	if trial.Err != nil {
		err = trial.Err
	}
	return out, trial.Result, err
}

func TestSum(t *testing.T) {
	t.Parallel()
	p := typed.New("sum", func(b *typed.Block) typed.Val[string] {
		x := typed.Root[int](b, "x")
		y := typed.Do1(b, "twice", func(_ context.Context, v int) (int, error) { return 2 * v, nil }, x)
		return typed.Do3(b, "text", func(_ context.Context, x, y int, s string) (string, error) { return s + strconv.Itoa(x+y), nil },
			x, y, typed.Do0(b, "word", ret("=")))
	})
	out, _, err := run(t, p, "twice:ok word:ok text:ok", kahn.Inputs(map[string]any{"x": 3}))
	require.NoError(t, err)
	require.Equal(t, "=9", out)
}

func TestIf(t *testing.T) {
	t.Parallel()
	p := typed.New("if", func(b *typed.Block) typed.Val[string] {
		x := typed.Root[int](b, "x")
		big, small := typed.If(typed.Do1(b, "big?", func(_ context.Context, v int) (bool, error) { return v > 10, nil }, x))
		half := typed.Do1(big, "half", func(_ context.Context, v int) (int, error) { return v / 2, nil }, x)
		text := typed.Do2(big, "text", func(_ context.Context, v, w int) (string, error) { return strconv.Itoa(v) + "," + strconv.Itoa(w), nil }, half, x)
		return typed.Either(b, "out", text, typed.Do1(small, "plain", func(_ context.Context, v int) (string, error) { return strconv.Itoa(v), nil }, x))
	})
	out, _, err := run(t, p, "big?:ok half:ok text:ok out:ok plain:S/br", kahn.Inputs(map[string]any{"x": 30}))
	require.NoError(t, err)
	require.Equal(t, "15,30", out)
	out, _, err = run(t, p, "big?:ok half:S/br text:S/up out:ok plain:ok", kahn.Inputs(map[string]any{"x": 3}))
	require.NoError(t, err)
	require.Equal(t, "3", out)
}

func TestTry(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	p := typed.New("try", func(b *typed.Block) typed.Val[string] {
		x := typed.Do1(b, "x", func(_ context.Context, v int) (int, error) {
			if v < 0 {
				return 0, broken
			}
			return v, nil
		}, typed.Root[int](b, "x in"))
		typed.Do1(b, "needs-x", same[int], x)
		return typed.Do1(b, "out", func(_ context.Context, r typed.Tried[int]) (string, error) {
			if r.Err != nil {
				return r.Err.Error(), nil
			}
			return strconv.Itoa(r.Value), nil
		}, typed.Try(b, "tried", x))
	})
	out, _, err := run(t, p, "x:ok needs-x:ok tried:ok out:ok", kahn.Inputs(map[string]any{"x in": 1}))
	require.NoError(t, err)
	require.Equal(t, "1", out)
	out, res, err := run(t, p, "x:F needs-x:S/br tried:ok out:ok", kahn.Inputs(map[string]any{"x in": -1}))
	require.NoError(t, err)
	require.Equal(t, "broken", out)
	require.True(t, res.Degraded)
}

// If a run has no result, the error names at most five of the failures that Trys have caught.
func TestManyFailures(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for failures, more := range map[int]bool{1: false, 5: false, 6: true, 50: true} {
		p := typed.New("many", func(b *typed.Block) typed.Val[int] {
			var first typed.Val[int]
			for i := range failures {
				x := typed.Do0(b, fmt.Sprint("x", i), func(context.Context) (int, error) { return 0, broken })
				typed.Try(b, fmt.Sprint("tried", i), x)
				if i == 0 {
					first = x
				}
			}
			return typed.Do1(b, "out", same[int], first)
		})
		_, err := typed.Run(context.Background(), p)
		require.ErrorIs(t, err, kahn.ErrNoValue)
		require.ErrorIs(t, err, broken)
		require.Equal(t, min(failures, 5), strings.Count(err.Error(), broken.Error()), "%v", err)
		require.Equal(t, more, strings.HasSuffix(err.Error(), "; and more"), "%v", err)
	}
}
