package kahn_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestEffectsMadeInCleanups: they do not outlive the effect whose cleanup it is, whatever the reason for the cleanup.
func TestEffectsMadeInCleanups(t *testing.T) {
	type maker = func(kahn.Writer)
	again := func(t *testing.T, trigger *kahn.Signal[int], f func(w kahn.Writer, x int)) maker {
		return func(w kahn.Writer) { f(w, trigger.Get(w)) }
	}
	for name, end := range map[string]func(t *testing.T, sc *kahn.Scope, trigger *kahn.Signal[int], made maker){
		"disposed of": func(t *testing.T, sc *kahn.Scope, _ *kahn.Signal[int], made maker) {
			effect(t, sc, func(w kahn.Writer) { w.OnCleanup(made) }).Dispose()
		},
		"disposed of twice": func(t *testing.T, sc *kahn.Scope, _ *kahn.Signal[int], made maker) {
			e := effect(t, sc, func(w kahn.Writer) { w.OnCleanup(made) })
			e.Dispose()
			e.Dispose()
		},
		"disposed of in a batch": func(t *testing.T, sc *kahn.Scope, _ *kahn.Signal[int], made maker) {
			e := effect(t, sc, func(w kahn.Writer) { w.OnCleanup(made) })
			require.NoError(t, kahn.Batch(sc, func(kahn.Writer) { e.Dispose() }))
		},
		"disposed of by itself in a flush": func(t *testing.T, sc *kahn.Scope, trigger *kahn.Signal[int], made maker) {
			var e *kahn.Effect
			e = effect(t, sc, again(t, trigger, func(w kahn.Writer, x int) {
				if x == 1 {
					w.OnCleanup(made)
					e.Dispose()
				}
			}))
			require.NoError(t, trigger.Store(1))
		},
		"disposed of by another in a flush": func(t *testing.T, sc *kahn.Scope, trigger *kahn.Signal[int], made maker) {
			e := effect(t, sc, again(t, trigger, func(w kahn.Writer, _ int) { w.OnCleanup(made) }))
			effect(t, sc, again(t, trigger, func(_ kahn.Writer, x int) {
				if x == 1 {
					e.Dispose()
				}
			}))
			require.NoError(t, trigger.Store(1))
		},
		"first run panicked": func(t *testing.T, sc *kahn.Scope, _ *kahn.Signal[int], made maker) {
			_, err := kahn.NewEffect(sc, func(w kahn.Writer) { w.OnCleanup(made); panic(errTest) })
			require.ErrorIs(t, err, errTest)
		},
		"panicked": func(t *testing.T, sc *kahn.Scope, trigger *kahn.Signal[int], made maker) {
			effect(t, sc, again(t, trigger, func(w kahn.Writer, x int) {
				if x == 1 {
					w.OnCleanup(made)
					panic(errTest)
				}
			}))
			require.ErrorIs(t, trigger.Store(1), errTest)
		},
		"ran again": func(t *testing.T, sc *kahn.Scope, trigger *kahn.Signal[int], made maker) {
			effect(t, sc, again(t, trigger, func(w kahn.Writer, x int) {
				if x == 0 {
					w.OnCleanup(made)
				}
			}))
			require.NoError(t, trigger.Store(1))
		},
		"owner ran again": func(t *testing.T, sc *kahn.Scope, trigger *kahn.Signal[int], made maker) {
			effect(t, sc, again(t, trigger, func(w kahn.Writer, x int) {
				if x == 0 {
					effect(t, w, func(w kahn.Writer) { w.OnCleanup(made) })
				}
			}))
			require.NoError(t, trigger.Store(1))
		},
		"owner disposed of": func(t *testing.T, sc *kahn.Scope, _ *kahn.Signal[int], made maker) {
			effect(t, sc, func(w kahn.Writer) { effect(t, w, func(w kahn.Writer) { w.OnCleanup(made) }) }).Dispose()
		},
		"scope disposed of": func(t *testing.T, sc *kahn.Scope, _ *kahn.Signal[int], made maker) {
			effect(t, sc, func(w kahn.Writer) { w.OnCleanup(made) })
			sc.Dispose()
			sc.Dispose()
		},
		"another cleanup panicked": func(t *testing.T, sc *kahn.Scope, trigger *kahn.Signal[int], made maker) {
			effect(t, sc, again(t, trigger, func(w kahn.Writer, _ int) {
				w.OnCleanup(made)
				w.OnCleanup(func(kahn.Writer) { panic(errTest) })
			}))
			require.ErrorIs(t, trigger.Store(1), errTest)
		},
	} {
		for kin, f := range map[string]func(w kahn.Writer, sc *kahn.Scope, s *kahn.Signal[int], seen func(kahn.Writer)) error{
			"effect": func(w kahn.Writer, _ *kahn.Scope, _ *kahn.Signal[int], seen func(kahn.Writer)) error {
				_, err := kahn.NewEffect(w, seen)
				return err
			},
			"subscription": func(w kahn.Writer, _ *kahn.Scope, s *kahn.Signal[int], seen func(kahn.Writer)) error {
				_, err := s.Subscribe(w, func(w kahn.Writer, _ int) { seen(w) })
				return err
			},
			"effect in a batch": func(w kahn.Writer, _ *kahn.Scope, _ *kahn.Signal[int], seen func(kahn.Writer)) (err error) {
				return errors.Join(err, kahn.Batch(w, func(w kahn.Writer) { _, err = kahn.NewEffect(w, seen) }))
			},
			"effect of an effect": func(w kahn.Writer, _ *kahn.Scope, _ *kahn.Signal[int], seen func(kahn.Writer)) error {
				_, err := kahn.NewEffect(w, func(w kahn.Writer) { effect(t, w, seen) })
				return err
			},
			"effect of a computed": func(w kahn.Writer, sc *kahn.Scope, s *kahn.Signal[int], seen func(kahn.Writer)) error {
				c := kahn.NewComputed(sc, func(r kahn.Reader) int { return s.Get(r) })
				_, err := kahn.NewEffect(w, func(w kahn.Writer) { c.Get(w); seen(w) })
				return err
			},
		} {
			t.Run(name+", "+kin, func(t *testing.T) {
				sc := new(kahn.Scope)
				s, on, off := watched(sc)
				runs, ended, cleanups := 0, 0, 0
				end(t, sc, kahn.NewSignal(sc, 0), func(w kahn.Writer) {
					cleanups++
					err := f(w, sc, s, func(w kahn.Writer) {
						s.Get(w)
						runs++
						w.OnCleanup(func(kahn.Writer) { ended++ })
					})
					if err != nil {
						require.ErrorIs(t, err, kahn.ErrDisposed)
					}
				})
				require.Positive(t, cleanups)
				before := runs
				require.NoError(t, s.Store(1))
				require.Equal(t, before, runs, "it has outlived its owner")
				require.Equal(t, runs, ended, "each run was cleaned up after")
				require.Equal(t, *on, *off)
			})
		}
	}
}

// TestOwnerIsTheWritersEffect: an effect belongs to the effect whose Writer it was made with, also inside of another.
func TestOwnerIsTheWritersEffect(t *testing.T) {
	sc := new(kahn.Scope)
	s, trigger := kahn.NewSignal(sc, 0), kahn.NewSignal(sc, 0)
	runs := 0
	outer := effect(t, sc, func(o kahn.Writer) {
		first := true
		effect(t, o, func(i kahn.Writer) {
			trigger.Get(i)
			if first {
				first = false
				effect(t, o, func(w kahn.Writer) { s.Get(w); runs++ })
			}
		})
	})
	require.NoError(t, trigger.Store(1)) // the inner one runs again
	require.NoError(t, s.Store(1))
	require.Equal(t, 2, runs)
	outer.Dispose()
	require.NoError(t, s.Store(2))
	require.Equal(t, 2, runs)
}

// TestGoexitInCleanups: whatever is disposed of while a cleanup ends its goroutine is disposed of all the same: no cleanup is
// left out, none is called twice, and who waits is told.
func TestGoexitInCleanups(t *testing.T) {
	for name, end := range map[string]func(sc *kahn.Scope, trigger *kahn.Signal[int], outer *kahn.Effect){
		"disposed of":       func(_ *kahn.Scope, _ *kahn.Signal[int], outer *kahn.Effect) { outer.Dispose() },
		"scope disposed of": func(sc *kahn.Scope, _ *kahn.Signal[int], _ *kahn.Effect) { sc.Dispose() },
		"ran again":         func(_ *kahn.Scope, trigger *kahn.Signal[int], _ *kahn.Effect) { _ = trigger.Store(1) },
		"panicked":          func(_ *kahn.Scope, trigger *kahn.Signal[int], _ *kahn.Effect) { _ = trigger.Store(2) },
		"in a batch": func(sc *kahn.Scope, _ *kahn.Signal[int], outer *kahn.Effect) {
			_ = kahn.Batch(sc, func(kahn.Writer) { outer.Dispose() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			withTimeout(t, func() {
				sc := new(kahn.Scope)
				trigger, s := kahn.NewSignal(sc, 0), kahn.NewSignal(sc, 0)
				called, reads := map[string]int{}, 0
				leave := func(name string) func(kahn.Writer) {
					return func(kahn.Writer) { called[name]++; runtime.Goexit() }
				}
				outer := effect(t, sc, func(w kahn.Writer) {
					x := trigger.Get(w)
					if x == 1 {
						return
					}
					w.OnCleanup(leave("outer 1"))
					w.OnCleanup(leave("outer 2"))
					for _, name := range []string{"a", "b", "c"} {
						effect(t, w, func(w kahn.Writer) {
							s.Get(w)
							reads++
							w.OnCleanup(leave(name + "1"))
							w.OnCleanup(leave(name + "2"))
						})
					}
					if x == 2 {
						panic(errTest)
					}
				})
				done := make(chan struct{})
				go func() {
					defer close(done)
					end(sc, trigger, outer)
				}()
				<-done
				before := reads
				_ = s.Store(7)
				require.Equal(t, before, reads, "nothing that was disposed of runs")
				require.Equal(t, map[string]int{"outer 1": 1, "outer 2": 1, "a1": 1, "a2": 1, "b1": 1, "b2": 1, "c1": 1, "c2": 1}, called)
			})
		})
	}
}

// TestCleanupsWithoutEnd: a cleanup that registers itself again and again is given up, and its effect disposed of.
func TestCleanupsWithoutEnd(t *testing.T) {
	for _, dispose := range []bool{false, true} {
		withTimeout(t, func() {
			sc := new(kahn.Scope)
			trigger := kahn.NewSignal(sc, 0)
			calls, runs := 0, 0
			var forever func(w kahn.Writer)
			forever = func(w kahn.Writer) { calls++; w.OnCleanup(forever) }
			e := effect(t, sc, func(w kahn.Writer) { trigger.Get(w); runs++; w.OnCleanup(forever) })
			if dispose {
				e.Dispose()
				require.ErrorIs(t, sc.Err(), kahn.ErrEffectLoop)
			} else {
				require.ErrorIs(t, trigger.Store(1), kahn.ErrEffectLoop)
			}
			require.NoError(t, trigger.Store(2))
			require.Equal(t, 1, runs)
			require.LessOrEqual(t, calls, 200)
		})
	}
}
