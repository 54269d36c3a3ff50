package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// faultyUndo describes a compensation with a fault, and its expected end under the default CompensateRetry. See the table in docs/saga.md.
type faultyUndo struct {
	name      string
	do        func(ctx context.Context) error
	lasts     time.Duration // how long the call takes, even if it is asked to stop; 0 if it returns when asked, or at once
	heeds     bool          // whether the call returns when it is asked to stop
	returns   error
	attempts  int
	is        error
	says      string
	abandoned bool
}

var faultyUndos = []faultyUndo{
	{name: "panics", do: func(context.Context) error { panic("oh") }, returns: &kahn.PanicError{Value: "oh"}, attempts: 1, says: "oh"},
	{name: "ends its goroutine", do: func(context.Context) error { runtime.Goexit(); return nil }, returns: kahn.ErrGoexit, attempts: 1, is: kahn.ErrGoexit},
	{name: "heeds its timeout", do: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, heeds: true, returns: context.DeadlineExceeded, attempts: 10, is: kahn.ErrTimeout},
	{name: "succeeds after its timeout", do: func(context.Context) error { time.Sleep(12 * ms); return nil }, lasts: 12 * ms, attempts: 10, is: kahn.ErrTimeout},
	{name: "ignores its timeout", do: func(context.Context) error { time.Sleep(time.Hour); return nil }, lasts: time.Hour, attempts: 1, is: kahn.ErrTimeout, abandoned: true},
}

// graph returns a saga whose only compensation is the faulty one, and counts the attempts of this compensation.
func (x *faultyUndo) graph(attempts *atomic.Int32) *kahn.Graph {
	return graph(
		kahn.Node{ID: "pay", Do: succeeds("receipt"), CompensateTimeout: 10 * ms, CompensateRetry: kahn.Retry{InitialDelay: -1}, Compensate: func(ctx context.Context, _ *kahn.Step) error {
			attempts.Add(1)
			return x.do(ctx)
		}},
		kahn.Node{ID: "ship", After: []string{"pay"}, Do: always(errSoldOut)})
}

func (x *faultyUndo) check(t *testing.T, attempts int, res *kahn.Result, err error) {
	t.Helper()
	pay := must(res.Node("pay"))
	require.Equal(t, x.attempts, attempts)
	require.Equal(t, kahn.Completed, pay.Status)
	require.Equal(t, kahn.CompensationFailed, pay.Compensation)
	require.Equal(t, x.attempts, pay.Undoing.Attempts)
	require.Equal(t, kahn.CauseCompensationFailed, res.Cause.Kind)
	require.ErrorIs(t, err, kahn.ErrCompensation)
	if x.is != nil {
		require.ErrorIs(t, pay.CompensationErr, x.is)
	}
	require.ErrorContains(t, pay.CompensationErr, x.says)
	require.Equal(t, x.abandoned, len(res.Abandoned) > 0)
}

// A compensation that panics, calls Goexit or takes too long ends like a step that does the same, under Execute and under a Coordinator.
func TestCompensationsThatMisbehave(t *testing.T) {
	for _, x := range faultyUndos {
		for _, stored := range []bool{false, true} {
			inBubble(t, fmt.Sprint(x.name, " ", stored), func(t *testing.T) {
				var attempts atomic.Int32
				opts := []kahn.Option{kahn.CancelGrace(5 * ms)}
				if stored {
					opts = append(opts, kahn.Durable(new(store.Memory)), kahn.RunID("r"))
				}
				res, err := kahn.Execute(t.Context(), x.graph(&attempts), nil, opts...)
				x.check(t, int(attempts.Load()), res, err)
				time.Sleep(2 * time.Hour) // the abandoned call returns, and changes nothing
				require.Equal(t, kahn.CompensationFailed, must(res.Node("pay")).Compensation)
			})
		}
		t.Run(x.name+" for a Coordinator", func(t *testing.T) {
			var attempts atomic.Int32
			now := time.Unix(0, 0)
			c, err := kahn.NewCoordinator(compiled(t, x.graph(&attempts)), now, kahn.CancelGrace(5*ms))
			require.NoError(t, err)
			for !c.Run().Status().Terminal() {
				s, ok := c.Next()
				if !ok { // the compensation backs off
					due, ok := c.Due()
					require.True(t, ok)
					now = due
					c.Advance(now)
					continue
				}
				if !s.Compensating() {
					value, err := s.Do()(s, s)
					require.NoError(t, c.Return(s, value, err))
					continue
				}
				attempts.Add(1)
				ends := now.Add(x.lasts)
				for stopped := !x.heeds; ends.After(now) || !stopped; {
					due, ok := c.Due()
					require.True(t, ok)
					if x.lasts > 0 && !due.Before(ends) {
						due = ends
					}
					if now = due; now.Sub(time.Unix(0, 0)) > time.Minute {
						break
					}
					c.Advance(now)
					if asked, ok := c.NextStop(); ok {
						require.Same(t, s, asked)
						require.ErrorIs(t, s.Err(), context.DeadlineExceeded)
						stopped = true
					}
					if c.Run().Status().Terminal() {
						break
					}
				}
				err := c.Return(s, nil, x.returns)
				require.Equal(t, x.abandoned, err != nil, "%v", err)
			}
			res, err := c.Result()
			x.check(t, int(attempts.Load()), res, err)
		})
	}
}

// A compensation two composites deep has failed, and an operator repeats it or declares it done. The process dies before the repair ends, and
// another process continues the run: it calls the step of the expanded node again to get the graph.
func TestRepairsInsideAfterCrash(t *testing.T) {
	const path = "S/E/pay"
	for _, expands := range []bool{false, true} {
		for _, stored := range []bool{false, true} {
			for _, mode := range []kahn.RedriveMode{kahn.RepeatCompensations, kahn.CompensatedByHand} {
				for _, names := range [][]string{nil, {path}} {
					inBubble(t, fmt.Sprint(expands, stored, mode, names), func(t *testing.T) {
						refund := kahn.Permanent(errors.New("no such charge"))
						wait := true
						keys := map[string]int{}
						inner := graph(kahn.Node{ID: "pay", Do: succeeds(1), Compensate: func(_ context.Context, s *kahn.Step) error {
							keys[s.IdempotencyKey()]++
							return refund
						}})
						e := subgraph("E", inner)
						if expands {
							e = kahn.Node{ID: "E", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }}
						}
						undone := 0
						g := graph(
							kahn.Node{ID: "look", Do: succeeds(1), Compensate: func(context.Context, *kahn.Step) error {
								if wait {
									time.Sleep(time.Minute)
									return nil
								}
								undone++
								return nil
							}},
							subgraph("S", graph(e), "look"),
							kahn.Node{ID: "ship", After: []string{"S"}, Do: always(errSoldOut)})
						opts := crash(t, g, nil, stored, func(*kahn.Run) { time.Sleep(ms) })
						wait = false
						res, err := kahn.Execute(t.Context(), g, nil, opts...)
						require.ErrorIs(t, err, kahn.ErrCompensation)
						require.Equal(t, 1, undone)
						require.Len(t, keys, 1)
						again := slices.Clone(opts)
						if stored {
							again = append(again, kahn.Redrive(nil, names, kahn.Request{Actor: "ann"}), mode)
						} else { // the new snapshot replaces the earlier one
							again = append(again[:len(opts)-1], kahn.Redrive(reload(t, res.Snapshot()), names, kahn.Request{Actor: "ann"}), mode)
						}
						preview, err := kahn.RedrivePreview(compiled(t, g), reload(t, res.Snapshot()), names, mode)
						require.NoError(t, err)
						require.Equal(t, []string{path}, preview)
						refund = nil
						res, err = kahn.Execute(t.Context(), g, nil, again...)
						require.ErrorContains(t, err, errSoldOut.Error())
						require.NotErrorIs(t, err, kahn.ErrCompensation)
						require.NotEqual(t, kahn.CauseCompensationFailed, res.Cause.Kind)
						require.Equal(t, kahn.CompensationDone, must(res.Node("S")).Compensation)
						require.Equal(t, 1, undone)
						require.Len(t, keys, 1, "it is repeated under its key")
						for _, n := range keys {
							want := 1
							if mode == kahn.RepeatCompensations {
								want = 2
							}
							require.Equal(t, want, n)
						}
					})
				}
			}
		}
	}
}
