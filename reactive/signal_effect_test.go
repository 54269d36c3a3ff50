package reactive_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/reactive"
)

// TestEffects contains the tests of the conformance list (see TestSignals) that concern effects.
func TestEffects(t *testing.T) {
	t.Run("30 self-cycle", func(t *testing.T) {
		sc := new(reactive.Scope)
		var c *reactive.Computed[int]
		c = reactive.NewComputed(sc, func(r reactive.Reader) int { return c.Get(r) + 1 })
		withTimeout(t, func() {
			_, err := c.Load()
			require.ErrorIs(t, err, reactive.ErrCycle)
			_, err = reactive.NewEffect(sc, func(w reactive.Writer) { c.Get(w) })
			require.ErrorIs(t, err, reactive.ErrCycle)
		})
	})
	t.Run("31 cycle of four", func(t *testing.T) {
		for _, peek := range []bool{false, true} {
			sc := new(reactive.Scope)
			var ring [4]*reactive.Computed[int]
			for i := range ring {
				ring[i] = reactive.NewComputed(sc, func(r reactive.Reader) int {
					if next := ring[(i+1)%4]; peek {
						return next.Peek(r)
					} else {
						return next.Get(r)
					}
				})
			}
			withTimeout(t, func() {
				for _, c := range ring {
					_, err := c.Load()
					require.ErrorIs(t, err, reactive.ErrCycle)
				}
			})
		}
	})
	t.Run("32 recovered cycle is no dependency", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 1)
		calls := 0
		var c *reactive.Computed[int]
		c = reactive.NewComputed(sc, func(r reactive.Reader) int {
			calls++
			func() {
				defer func() { _ = recover() }()
				c.Get(r)
			}()
			return s.Get(r)
		})
		withTimeout(t, func() {
			_, seen := observe(t, sc, c)
			require.NoError(t, s.Store(2))
			require.Equal(t, []int{1, 2}, seen.seen)
			require.Equal(t, 2, calls)
			seen.n = 0
			other := reactive.NewSignal(sc, 0)
			require.NoError(t, other.Store(1))
			require.Equal(t, 2, load(t, c))
			require.Equal(t, 2, calls)
		})
	})
	t.Run("33 panic is cached", func(t *testing.T) {
		sc := new(reactive.Scope)
		s, other := reactive.NewSignal(sc, 1), reactive.NewSignal(sc, 1)
		c, p := computed(sc, func(r reactive.Reader) int { s.Get(r); panic("no") })
		_, err1 := c.Load()
		_, err2 := c.Load()
		require.Error(t, err1)
		require.Same(t, err1, err2)
		require.NoError(t, other.Store(2))
		_, err3 := c.Load()
		require.Same(t, err1, err3)
		require.Equal(t, 1, p.n)
		require.NoError(t, s.Store(2))
		_, err := c.Load()
		require.Error(t, err)
		require.Equal(t, 2, p.n)
	})
	t.Run("34 panic values survive", func(t *testing.T) {
		sc := new(reactive.Scope)
		for _, value := range []any{"text", 42, fmt.Errorf("wrapped: %w", errTest), nil} {
			c := reactive.NewComputed(sc, func(reactive.Reader) int { panicHere(value); return 0 })
			d, _ := computed(sc, func(r reactive.Reader) int { return c.Get(r) })
			_, err := d.Load()
			var pe *reactive.PanicError
			require.ErrorAs(t, err, &pe)
			if value == nil {
				require.IsType(t, new(runtime.PanicNilError), pe.Value)
			} else {
				require.Equal(t, value, pe.Value)
			}
			require.Contains(t, string(pe.Stack), "panicHere")
			_, isError := value.(error)
			require.Equal(t, isError, errors.Is(err, errTest))
		}
	})
	t.Run("35 outer computed recovers", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		inner, _ := computed(sc, func(r reactive.Reader) int {
			if s.Get(r) == 0 {
				panic(errTest)
			}
			return s.Get(r)
		})
		tries, _ := computed(sc, func(r reactive.Reader) string {
			v, err := inner.Try(r)
			return fmt.Sprint(v, errors.Is(err, errTest))
		})
		recovers := reactive.NewComputed(sc, func(r reactive.Reader) (v int) {
			defer func() {
				if recover() != nil {
					v = -1
				}
			}()
			return inner.Get(r)
		})
		require.Equal(t, "0 true", load(t, tries))
		require.Equal(t, -1, load(t, recovers))
		_, seen := observe(t, sc, recovers)
		require.NoError(t, s.Store(5))
		require.Equal(t, []int{-1, 5}, seen.seen)
		require.Equal(t, "5 false", load(t, tries))
	})
	t.Run("36 heals when the source changes", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 1)
		c, _ := computed(sc, func(r reactive.Reader) int {
			if v := s.Get(r); v != 2 {
				return v
			}
			panic(errTest)
		})
		d, _ := computed(sc, func(r reactive.Reader) int { return c.Get(r) * 10 })
		_, seen := observe(t, sc, d)
		require.ErrorIs(t, s.Store(2), errTest)
		_, err := d.Load()
		require.ErrorIs(t, err, errTest)
		require.NoError(t, s.Store(1))
		require.Equal(t, 10, load(t, d))
		require.NoError(t, s.Store(3))
		require.Equal(t, []int{10, 10, 30}, seen.seen, "an error came between the two tens")
	})
	t.Run("37 writing inside a computed", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 1)
		_, err := reactive.NewEffect(sc, func(w reactive.Writer) {
			// The compiler refuses s.Set(r, 2), which signals_test.go in internal/mutants checks. At run time the scope refuses the writer of the
			// effect around the computed.
			reactive.NewComputed(sc, func(r reactive.Reader) int { s.Set(w, 2); return 0 }).Get(w)
		})
		require.ErrorIs(t, err, reactive.ErrTracker)
		require.Equal(t, 1, s.Load())
	})
	t.Run("38 Goexit releases the lock", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		exit := atomic.Bool{}
		c, _ := computed(sc, func(r reactive.Reader) int {
			v := s.Get(r)
			if exit.Load() {
				runtime.Goexit()
			}
			return v
		})
		_, before := observe(t, sc, s)
		effects := 0
		effect(t, sc, func(w reactive.Writer) {
			s.Get(w)
			effects++
			if exit.Load() {
				runtime.Goexit()
			}
		})
		_, after := observe(t, sc, s)
		require.Equal(t, 0, load(t, c))
		exit.Store(true)
		withTimeout(t, func() { _ = s.Store(1) })
		require.Equal(t, []int{0, 1}, before.seen)
		require.Equal(t, []int{0, 1}, after.seen, "the others run nevertheless")
		require.Equal(t, 2, effects)
		withTimeout(t, func() { _, _ = c.Load() })
		withTimeout(t, func() { _ = reactive.Batch(sc, func(w reactive.Writer) { s.Set(w, 2); runtime.Goexit() }) })
		withTimeout(t, func() {
			_, _ = reactive.NewEffect(sc, func(w reactive.Writer) { s.Get(w); runtime.Goexit() })
		})
		exit.Store(false)
		withTimeout(t, func() {
			require.NoError(t, s.Store(3))
			require.Equal(t, 3, load(t, c))
		})
		require.Equal(t, []int{0, 1, 2, 3}, after.seen)
		require.Equal(t, 4, effects)
	})

	t.Run("39 first run is immediate", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 1)
		require.NoError(t, reactive.Batch(sc, func(w reactive.Writer) {
			s.Set(w, 2)
			_, p := observe(t, w, s)
			require.Equal(t, []int{2}, p.seen)
			s.Set(w, 3)
			require.Equal(t, []int{2}, p.seen)
		}))
		_, p := observe(t, sc, s)
		require.Equal(t, []int{3}, p.seen)
	})
	t.Run("40 once per batch", func(t *testing.T) {
		sc := new(reactive.Scope)
		a, b := reactive.NewSignal(sc, 1), reactive.NewSignal(sc, 1)
		sum, _ := computed(sc, func(r reactive.Reader) int { return a.Get(r) + b.Get(r) })
		var p probe[int]
		effect(t, sc, func(w reactive.Writer) { p.see(a.Get(w) + b.Get(w) + sum.Get(w)) })
		require.NoError(t, reactive.Batch(sc, func(w reactive.Writer) { a.Set(w, 2); b.Set(w, 3); a.Set(w, 4) }))
		require.Equal(t, []int{4, 14}, p.seen)
	})
	t.Run("41 cleanup precedes the next run", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 1)
		var order []string
		effect(t, sc, func(w reactive.Writer) {
			v := s.Get(w)
			order = append(order, fmt.Sprint("run ", v))
			if v < 3 {
				w.OnCleanup(func(reactive.Writer) { order = append(order, fmt.Sprint("clean ", v)) })
			}
		})
		for v := 2; v < 5; v++ {
			require.NoError(t, s.Store(v))
		}
		require.Equal(t, "run 1,clean 1,run 2,clean 2,run 3,run 4", strings.Join(order, ","))
	})
	t.Run("42 cleanup on dispose once", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 1)
		cleaned := 0
		e := effect(t, sc, func(w reactive.Writer) { s.Get(w); w.OnCleanup(func(reactive.Writer) { cleaned++ }) })
		require.Zero(t, cleaned)
		e.Dispose()
		require.Equal(t, 1, cleaned)
		e.Dispose()
		require.NoError(t, s.Store(2))
		require.Equal(t, 1, cleaned)
	})
	t.Run("43 dispose while running", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		var order []string
		var e *reactive.Effect
		e = effect(t, sc, func(w reactive.Writer) {
			v := s.Get(w)
			w.OnCleanup(func(reactive.Writer) { order = append(order, fmt.Sprint("clean ", v)) })
			if v == 1 {
				e.Dispose()
			}
			order = append(order, fmt.Sprint("end ", v))
		})
		require.NoError(t, s.Store(1))
		require.NoError(t, s.Store(2))
		require.Equal(t, "end 0,clean 0,end 1,clean 1", strings.Join(order, ","))
	})
	t.Run("44 reads after a self-dispose", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		after, on, off := watched(sc)
		runs := 0
		var e *reactive.Effect
		e = effect(t, sc, func(w reactive.Writer) {
			runs++
			if s.Get(w) == 1 {
				e.Dispose()
				after.Get(w)
			}
		})
		require.NoError(t, s.Store(1))
		require.Equal(t, *on, *off)
		require.NoError(t, after.Store(1))
		require.NoError(t, s.Store(2))
		require.Equal(t, 2, runs)
	})
	t.Run("45 a cleanup that disposes", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		runs := 0
		var e *reactive.Effect
		e = effect(t, sc, func(w reactive.Writer) {
			s.Get(w)
			runs++
			w.OnCleanup(func(reactive.Writer) { e.Dispose() })
		})
		require.NoError(t, s.Store(1))
		require.NoError(t, s.Store(2))
		require.Equal(t, 1, runs)
	})
	t.Run("46 a cleanup that writes a dependency", func(t *testing.T) {
		sc := new(reactive.Scope)
		s, dep := reactive.NewSignal(sc, 0), reactive.NewSignal(sc, 0)
		var p probe[int]
		effect(t, sc, func(w reactive.Writer) {
			s.Get(w)
			p.see(dep.Get(w))
			w.OnCleanup(func(w reactive.Writer) { dep.Set(w, dep.Peek(w)+1) })
		})
		require.NoError(t, s.Store(1))
		require.Equal(t, []int{0, 1}, p.seen)
	})
	t.Run("47 cleanup is batched and untracked", func(t *testing.T) {
		sc := new(reactive.Scope)
		s, a, b, read := reactive.NewSignal(sc, 0), reactive.NewSignal(sc, 0), reactive.NewSignal(sc, 0), reactive.NewSignal(sc, 0)
		runs := 0
		e := effect(t, sc, func(w reactive.Writer) {
			runs++
			s.Get(w)
			w.OnCleanup(func(w reactive.Writer) { a.Set(w, runs); b.Set(w, runs); read.Get(w) })
		})
		var pairs [][2]int
		effect(t, sc, func(w reactive.Writer) { pairs = append(pairs, [2]int{a.Get(w), b.Get(w)}) })
		require.NoError(t, s.Store(1))
		require.NoError(t, read.Store(1))
		require.Equal(t, 2, runs)
		e.Dispose()
		require.Equal(t, [][2]int{{0, 0}, {1, 1}, {2, 2}}, pairs)
	})
	t.Run("48 panic in the first run", func(t *testing.T) {
		sc := new(reactive.Scope)
		s, on, off := watched(sc)
		runs := 0
		e, err := reactive.NewEffect(sc, func(w reactive.Writer) { runs++; s.Get(w); panic(errTest) })
		require.Nil(t, e)
		require.ErrorIs(t, err, errTest)
		require.NoError(t, s.Store(1))
		require.Equal(t, 1, runs)
		require.Equal(t, *on, *off)
	})
	t.Run("49 a later panic", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		var order []string
		effect(t, sc, func(w reactive.Writer) {
			v := s.Get(w)
			w.OnCleanup(func(reactive.Writer) { order = append(order, fmt.Sprint("clean ", v)) })
			if v == 1 {
				panic(errTest)
			}
			order = append(order, fmt.Sprint("run ", v))
		})
		require.ErrorIs(t, s.Store(1), errTest)
		require.Equal(t, "run 0,clean 0,clean 1", strings.Join(order, ","), "what the failed run left is cleaned up at once")
		require.NoError(t, s.Store(2))
		require.Equal(t, "run 0,clean 0,clean 1,run 2", strings.Join(order, ","))
	})
	t.Run("50 a panic in a cleanup disposes", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		runs, cleaned := 0, 0
		effect(t, sc, func(w reactive.Writer) {
			s.Get(w)
			runs++
			w.OnCleanup(func(reactive.Writer) { cleaned++ })
			w.OnCleanup(func(reactive.Writer) { panic(errTest) })
		})
		require.ErrorIs(t, s.Store(1), errTest)
		require.NoError(t, s.Store(2))
		require.Equal(t, []int{1, 1}, []int{runs, cleaned})
		e := effect(t, sc, func(w reactive.Writer) { w.OnCleanup(func(reactive.Writer) { panic(errTest) }) })
		e.Dispose()
		require.ErrorIs(t, sc.Err(), errTest, "Dispose has nobody to tell")
		require.NoError(t, sc.Err())
	})
	t.Run("51 self-writing effect converges", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		runs := 0
		effect(t, sc, func(w reactive.Writer) {
			runs++
			if v := s.Get(w); v%10 != 0 || v == 0 {
				s.Set(w, v+1)
			}
		})
		require.Equal(t, 10, s.Load())
		require.Equal(t, 11, runs)
		require.NoError(t, s.Store(11))
		require.Equal(t, 20, s.Load())
	})
	t.Run("52 endless loop hits the cap", func(t *testing.T) {
		for _, through := range []bool{false, true} {
			sc := new(reactive.Scope)
			s, go_ := reactive.NewSignal(sc, 0), reactive.NewSignal(sc, false)
			c, _ := computed(sc, func(r reactive.Reader) int { return s.Get(r) * 2 })
			runs := 0
			effect(t, sc, func(w reactive.Writer) {
				if !go_.Get(w) {
					return
				}
				runs++
				if through {
					s.Set(w, c.Get(w)/2+1)
				} else {
					s.Set(w, s.Get(w)+1)
				}
			})
			withTimeout(t, func() { require.ErrorIs(t, go_.Store(true), reactive.ErrEffectLoop) })
			require.Equal(t, 100, runs)
			require.NoError(t, go_.Store(false))
			_, p := observe(t, sc, s)
			before := s.Load()
			require.NoError(t, s.Store(-1))
			require.Equal(t, []int{before, -1}, p.seen)
		}
	})
	t.Run("a long chain of effects is not a loop", func(t *testing.T) {
		const length = 1000
		sc := new(reactive.Scope)
		signals := make([]*reactive.Signal[int], length+1)
		for i := range signals {
			signals[i] = reactive.NewSignal(sc, 0)
		}
		for i := range length {
			effect(t, sc, func(w reactive.Writer) { signals[i+1].Set(w, signals[i].Get(w)) })
		}
		for x := range 3 {
			require.NoError(t, signals[0].Store(x))
			require.Equal(t, x, signals[length].Load())
		}
	})
	t.Run("53 triggered then disposed in one batch", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		e, p := observe(t, sc, s)
		require.NoError(t, reactive.Batch(sc, func(w reactive.Writer) { s.Set(w, 1); e.Dispose() }))
		require.NoError(t, s.Store(2))
		require.Equal(t, []int{0}, p.seen)
	})
	t.Run("54 a child's change does not rerun the parent", func(t *testing.T) {
		sc := new(reactive.Scope)
		mine, childs := reactive.NewSignal(sc, 0), reactive.NewSignal(sc, 0)
		parent, child := 0, 0
		effect(t, sc, func(w reactive.Writer) {
			parent++
			mine.Get(w)
			effect(t, w, func(w reactive.Writer) { child++; childs.Get(w) })
		})
		require.NoError(t, childs.Store(1))
		require.Equal(t, []int{1, 2}, []int{parent, child})
		require.NoError(t, mine.Store(1))
		require.Equal(t, []int{2, 3}, []int{parent, child})
		require.NoError(t, childs.Store(2))
		require.Equal(t, []int{2, 4}, []int{parent, child}, "the first child is gone")
	})
	t.Run("55 a rerun disposes children in reverse order", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		deep, _ := computed(sc, func(r reactive.Reader) int { return s.Get(r) })
		var order []string
		note := func(w reactive.Writer, what string) {
			w.OnCleanup(func(reactive.Writer) { order = append(order, what) })
		}
		e := effect(t, sc, func(w reactive.Writer) {
			v := deep.Get(w)
			note(w, "parent")
			for i := range 3 {
				effect(t, w, func(w reactive.Writer) {
					order = append(order, fmt.Sprint("run ", v, i))
					s.Get(w) // the child is notified before its parent, but the parent runs first
					note(w, fmt.Sprint("child ", i))
					effect(t, w, func(w reactive.Writer) { note(w, fmt.Sprint("grandchild ", i)) })
				})
			}
		})
		order = nil
		require.NoError(t, s.Store(1))
		require.Equal(t, []string{"grandchild 2", "child 2", "grandchild 1", "child 1", "grandchild 0", "child 0", "parent",
			"run 1 0", "run 1 1", "run 1 2"}, order)
		order = nil
		e.Dispose()
		require.Equal(t, []string{"grandchild 2", "child 2", "grandchild 1", "child 1", "grandchild 0", "child 0", "parent"}, order)
	})

	t.Run("an effect made in a cleanup does not outlive it", func(t *testing.T) {
		sc := new(reactive.Scope)
		again, s := reactive.NewSignal(sc, 0), reactive.NewSignal(sc, 0)
		made, cleaned := 0, 0
		var errs []error
		var body func(w reactive.Writer)
		body = func(w reactive.Writer) {
			again.Get(w)
			w.OnCleanup(func(w reactive.Writer) {
				_, err := reactive.NewEffect(w, func(w reactive.Writer) {
					s.Get(w)
					made++
					w.OnCleanup(func(w reactive.Writer) {
						cleaned++
						_, err := reactive.NewEffect(w, body)
						errs = append(errs, err)
					})
				})
				errs = append(errs, err)
			})
		}
		e := effect(t, sc, body)
		require.NoError(t, again.Store(1))
		require.Equal(t, []int{1, 1}, []int{made, cleaned}, "the owner lives on: the effect ran, and ended before the owner ran again")
		require.Len(t, errs, 2)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], reactive.ErrDisposed, "the effect of the cleanup was being disposed of itself")
		require.NoError(t, s.Store(1))
		require.Equal(t, 1, made)
		e.Dispose()
		require.Equal(t, 1, made)
		require.Len(t, errs, 3)
		require.ErrorIs(t, errs[2], reactive.ErrDisposed)
		require.NoError(t, s.Store(2))
		require.Equal(t, 1, made, "nothing of a disposed effect runs")
		require.NoError(t, sc.Err())
	})

	t.Run("56 nested batches", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		_, p := observe(t, sc, s)
		require.NoError(t, reactive.Batch(sc, func(w reactive.Writer) {
			require.NoError(t, reactive.Batch(w, func(w reactive.Writer) { s.Set(w, 1) }))
			require.Equal(t, 1, p.n)
			s.Set(w, 2)
		}))
		require.Equal(t, []int{0, 2}, p.seen)
		effect(t, sc, func(w reactive.Writer) {
			require.NoError(t, reactive.Batch(w, func(w reactive.Writer) { s.Set(w, 3) }))
			require.Equal(t, 2, p.n, "an effect is a batch")
		})
		require.Equal(t, []int{0, 2, 3}, p.seen)
	})
	t.Run("57 reads inside a batch", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 1)
		c, p := computed(sc, func(r reactive.Reader) int { return s.Get(r) * 10 })
		_, seen := observe(t, sc, c)
		require.NoError(t, reactive.Batch(sc, func(w reactive.Writer) {
			s.Set(w, 2)
			require.Equal(t, []int{2, 2, 20, 20}, []int{s.Get(w), s.Peek(w), c.Get(w), c.Peek(w)})
			s.Set(w, 3)
			require.Equal(t, 30, c.Get(w))
		}))
		require.Equal(t, []int{10, 30}, seen.seen)
		require.Equal(t, 3, p.n)
	})
	t.Run("58 write then revert", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 1)
		c, _ := computed(sc, func(r reactive.Reader) int { return s.Get(r) })
		_, p := observe(t, sc, s)
		_, q := observe(t, sc, c)
		require.NoError(t, reactive.Batch(sc, func(w reactive.Writer) { s.Set(w, 2); s.Set(w, 3); s.Set(w, 1) }))
		require.Equal(t, []int{1, 1}, []int{p.n, q.n})
		require.Equal(t, 1, s.Load())
		require.NoError(t, s.Store(2))
		require.Equal(t, []int{1, 2}, p.seen)
	})
	t.Run("59 read in a reverted batch", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 1)
		lazy, _ := computed(sc, func(r reactive.Reader) int { return s.Get(r) })
		live, _ := computed(sc, func(r reactive.Reader) int { return s.Get(r) })
		_, p := observe(t, sc, live)
		require.Equal(t, 1, load(t, lazy))
		require.NoError(t, reactive.Batch(sc, func(w reactive.Writer) {
			s.Set(w, 2)
			require.Equal(t, []int{2, 2}, []int{lazy.Get(w), live.Get(w)})
			s.Set(w, 1)
		}))
		require.Equal(t, []int{1, 1}, []int{load(t, lazy), load(t, live)})
		require.NoError(t, s.Store(2))
		require.Equal(t, []int{2, 2}, []int{load(t, lazy), load(t, live)})
		require.Equal(t, 2, p.seen[len(p.seen)-1])
	})
	t.Run("60 a failing callback flushes", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		_, p := observe(t, sc, s)
		require.ErrorIs(t, reactive.Batch(sc, func(w reactive.Writer) { s.Set(w, 1); panic(errTest) }), errTest)
		require.Equal(t, []int{0, 1}, p.seen)
		require.Equal(t, 1, s.Load())
	})
	t.Run("61 failing effects do not stop others", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		other := errors.New("other")
		for _, err := range []error{errTest, other} {
			effect(t, sc, func(w reactive.Writer) {
				if s.Get(w) == 1 {
					panic(err)
				}
			})
		}
		_, p := observe(t, sc, s)
		err := s.Store(1)
		require.ErrorIs(t, err, errTest)
		require.ErrorIs(t, err, other)
		require.Equal(t, []int{0, 1}, p.seen)
		require.NoError(t, s.Store(2), "an error is reported once")
	})
	t.Run("62 writes after a batch", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		_, p := observe(t, sc, s)
		require.NoError(t, reactive.Batch(sc, func(w reactive.Writer) { s.Set(w, 1) }))
		require.NoError(t, s.Store(2))
		require.NoError(t, s.Store(3))
		require.Equal(t, []int{0, 1, 2, 3}, p.seen)
	})
	t.Run("63 untracked", func(t *testing.T) {
		sc := new(reactive.Scope)
		a, b, c := reactive.NewSignal(sc, 0), reactive.NewSignal(sc, 0), reactive.NewSignal(sc, 0)
		runs := 0
		effect(t, sc, func(w reactive.Writer) {
			runs++
			reactive.Untracked(w, func(w reactive.Writer) {
				reactive.Untracked(w, func(w reactive.Writer) { b.Get(w) })
				b.Get(w)
				c.Set(w, runs)
			})
			func() {
				defer func() { _ = recover() }()
				reactive.Untracked(w, func(reactive.Writer) { panic("restored nevertheless") })
			}()
			a.Get(w)
		})
		require.NoError(t, b.Store(1))
		require.Equal(t, 1, runs)
		require.NoError(t, a.Store(1))
		require.Equal(t, 2, runs)
		require.Equal(t, 2, c.Load())
		d, p := computed(sc, func(r reactive.Reader) int {
			reactive.Untracked(r, func(r reactive.Reader) { a.Get(r) })
			return b.Get(r)
		})
		load(t, d)
		require.NoError(t, a.Store(2))
		load(t, d)
		require.Equal(t, 1, p.n)
	})
}

func panicHere(v any) { panic(v) }
