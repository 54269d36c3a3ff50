package reactive_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/reactive"
)

// TestCallsThatWaitForThemselves: in a callback of the scope, functions that need no tracker return an error instead of blocking forever.
func TestCallsThatWaitForThemselves(t *testing.T) {
	for name, call := range map[string]func(*reactive.Scope, *reactive.Signal[int], *reactive.Computed[int]) error{
		"Computed.Load": func(_ *reactive.Scope, _ *reactive.Signal[int], c *reactive.Computed[int]) error {
			_, err := c.Load()
			return err
		},
		"Store": func(_ *reactive.Scope, s *reactive.Signal[int], _ *reactive.Computed[int]) error { return s.Store(7) },
		"Batch": func(sc *reactive.Scope, _ *reactive.Signal[int], _ *reactive.Computed[int]) error {
			return reactive.Batch(sc, func(reactive.Writer) {})
		},
		"NewEffect": func(sc *reactive.Scope, _ *reactive.Signal[int], _ *reactive.Computed[int]) error {
			_, err := reactive.NewEffect(sc, func(reactive.Writer) {})
			return err
		},
		"Subscribe": func(sc *reactive.Scope, s *reactive.Signal[int], _ *reactive.Computed[int]) error {
			_, err := s.Subscribe(sc, func(reactive.Writer, int) {})
			return err
		},
		"Wait": func(_ *reactive.Scope, s *reactive.Signal[int], _ *reactive.Computed[int]) error {
			_, err := s.Wait(context.Background(), func(v int) bool { return v == 7 })
			return err
		},
		"Changes": func(_ *reactive.Scope, s *reactive.Signal[int], _ *reactive.Computed[int]) error {
			for range s.Changes(context.Background()) {
				return nil
			}
			return reactive.ErrTracker
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for where, within := range map[string]func(*reactive.Scope, func()) error{
					"effect": func(sc *reactive.Scope, f func()) error {
						_, err := reactive.NewEffect(sc, func(reactive.Writer) { f() })
						return err
					},
					"batch": func(sc *reactive.Scope, f func()) error { return reactive.Batch(sc, func(reactive.Writer) { f() }) },
					"cleanup": func(sc *reactive.Scope, f func()) error {
						e, err := reactive.NewEffect(sc, func(w reactive.Writer) { w.OnCleanup(func(reactive.Writer) { f() }) })
						e.Dispose()
						return err
					},
					"computed": func(sc *reactive.Scope, f func()) error {
						_, err := reactive.NewComputed(sc, func(reactive.Reader) int { f(); return 1 }).Load()
						return err
					},
				} {
					var sc reactive.Scope
					s := reactive.NewSignal(&sc, 1)
					c := reactive.NewComputed(&sc, func(r reactive.Reader) int { return s.Get(r) })
					called := false
					require.NoError(t, within(&sc, func() {
						called = true
						require.ErrorIs(t, call(&sc, s, c), reactive.ErrTracker, where)
					}))
					require.True(t, called)
					require.NoError(t, s.Store(2), "the scope goes on")
					require.Equal(t, 2, load(t, c))
				}
			})
		})
	}
}

// TestCallsIntoAnotherScope: a callback may use another scope like any other code, even while a goroutine uses that scope.
func TestCallsIntoAnotherScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var here, there reactive.Scope
		s := reactive.NewSignal(&there, 1)
		busy := make(chan struct{})
		go func() {
			_ = reactive.Batch(&there, func(w reactive.Writer) {
				close(busy)
				time.Sleep(50 * time.Millisecond)
				s.Set(w, 2)
			})
		}()
		<-busy
		c := reactive.NewComputed(&there, func(r reactive.Reader) int { return 10 * s.Get(r) })
		effect(t, &here, func(reactive.Writer) { require.Equal(t, 20, load(t, c)) })
	})
}
