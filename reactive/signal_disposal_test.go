package reactive_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/reactive"
)

// TestEffectsMadeInCleanups: an effect that is created in a cleanup is disposed of, whatever the reason for which the cleanup was called.
func TestEffectsMadeInCleanups(t *testing.T) {
	type maker = func(reactive.Writer)
	again := func(t *testing.T, trigger *reactive.Signal[int], f func(w reactive.Writer, x int)) maker {
		return func(w reactive.Writer) { f(w, trigger.Get(w)) }
	}
	for name, end := range map[string]func(t *testing.T, sc *reactive.Scope, trigger *reactive.Signal[int], made maker){
		"disposed of": func(t *testing.T, sc *reactive.Scope, _ *reactive.Signal[int], made maker) {
			effect(t, sc, func(w reactive.Writer) { w.OnCleanup(made) }).Dispose()
		},
		"disposed of twice": func(t *testing.T, sc *reactive.Scope, _ *reactive.Signal[int], made maker) {
			e := effect(t, sc, func(w reactive.Writer) { w.OnCleanup(made) })
			e.Dispose()
			e.Dispose()
		},
		"disposed of in a batch": func(t *testing.T, sc *reactive.Scope, _ *reactive.Signal[int], made maker) {
			e := effect(t, sc, func(w reactive.Writer) { w.OnCleanup(made) })
			require.NoError(t, reactive.Batch(sc, func(reactive.Writer) { e.Dispose() }))
		},
		"disposed of by itself in a flush": func(t *testing.T, sc *reactive.Scope, trigger *reactive.Signal[int], made maker) {
			var e *reactive.Effect
			e = effect(t, sc, again(t, trigger, func(w reactive.Writer, x int) {
				if x == 1 {
					w.OnCleanup(made)
					e.Dispose()
				}
			}))
			require.NoError(t, trigger.Store(1))
		},
		"disposed of by another in a flush": func(t *testing.T, sc *reactive.Scope, trigger *reactive.Signal[int], made maker) {
			e := effect(t, sc, again(t, trigger, func(w reactive.Writer, _ int) { w.OnCleanup(made) }))
			effect(t, sc, again(t, trigger, func(_ reactive.Writer, x int) {
				if x == 1 {
					e.Dispose()
				}
			}))
			require.NoError(t, trigger.Store(1))
		},
		"first run panicked": func(t *testing.T, sc *reactive.Scope, _ *reactive.Signal[int], made maker) {
			_, err := reactive.NewEffect(sc, func(w reactive.Writer) { w.OnCleanup(made); panic(errTest) })
			require.ErrorIs(t, err, errTest)
		},
		"panicked": func(t *testing.T, sc *reactive.Scope, trigger *reactive.Signal[int], made maker) {
			effect(t, sc, again(t, trigger, func(w reactive.Writer, x int) {
				if x == 1 {
					w.OnCleanup(made)
					panic(errTest)
				}
			}))
			require.ErrorIs(t, trigger.Store(1), errTest)
		},
		"ran again": func(t *testing.T, sc *reactive.Scope, trigger *reactive.Signal[int], made maker) {
			effect(t, sc, again(t, trigger, func(w reactive.Writer, x int) {
				if x == 0 {
					w.OnCleanup(made)
				}
			}))
			require.NoError(t, trigger.Store(1))
		},
		"owner ran again": func(t *testing.T, sc *reactive.Scope, trigger *reactive.Signal[int], made maker) {
			effect(t, sc, again(t, trigger, func(w reactive.Writer, x int) {
				if x == 0 {
					effect(t, w, func(w reactive.Writer) { w.OnCleanup(made) })
				}
			}))
			require.NoError(t, trigger.Store(1))
		},
		"owner disposed of": func(t *testing.T, sc *reactive.Scope, _ *reactive.Signal[int], made maker) {
			effect(t, sc, func(w reactive.Writer) { effect(t, w, func(w reactive.Writer) { w.OnCleanup(made) }) }).Dispose()
		},
		"scope disposed of": func(t *testing.T, sc *reactive.Scope, _ *reactive.Signal[int], made maker) {
			effect(t, sc, func(w reactive.Writer) { w.OnCleanup(made) })
			sc.Dispose()
			sc.Dispose()
		},
		"another cleanup panicked": func(t *testing.T, sc *reactive.Scope, trigger *reactive.Signal[int], made maker) {
			effect(t, sc, again(t, trigger, func(w reactive.Writer, _ int) {
				w.OnCleanup(made)
				w.OnCleanup(func(reactive.Writer) { panic(errTest) })
			}))
			require.ErrorIs(t, trigger.Store(1), errTest)
		},
	} {
		for kin, f := range map[string]func(w reactive.Writer, sc *reactive.Scope, s *reactive.Signal[int], seen func(reactive.Writer)) error{
			"effect": func(w reactive.Writer, _ *reactive.Scope, _ *reactive.Signal[int], seen func(reactive.Writer)) error {
				_, err := reactive.NewEffect(w, seen)
				return err
			},
			"subscription": func(w reactive.Writer, _ *reactive.Scope, s *reactive.Signal[int], seen func(reactive.Writer)) error {
				_, err := s.Subscribe(w, func(w reactive.Writer, _ int) { seen(w) })
				return err
			},
			"effect in a batch": func(w reactive.Writer, _ *reactive.Scope, _ *reactive.Signal[int], seen func(reactive.Writer)) (err error) {
				return errors.Join(err, reactive.Batch(w, func(w reactive.Writer) { _, err = reactive.NewEffect(w, seen) }))
			},
			"effect of an effect": func(w reactive.Writer, _ *reactive.Scope, _ *reactive.Signal[int], seen func(reactive.Writer)) error {
				_, err := reactive.NewEffect(w, func(w reactive.Writer) { effect(t, w, seen) })
				return err
			},
			"effect of a computed": func(w reactive.Writer, sc *reactive.Scope, s *reactive.Signal[int], seen func(reactive.Writer)) error {
				c := reactive.NewComputed(sc, func(r reactive.Reader) int { return s.Get(r) })
				_, err := reactive.NewEffect(w, func(w reactive.Writer) { c.Get(w); seen(w) })
				return err
			},
		} {
			t.Run(name+", "+kin, func(t *testing.T) {
				sc := new(reactive.Scope)
				s, on, off := watched(sc)
				runs, ended, cleanups := 0, 0, 0
				end(t, sc, reactive.NewSignal(sc, 0), func(w reactive.Writer) {
					cleanups++
					err := f(w, sc, s, func(w reactive.Writer) {
						s.Get(w)
						runs++
						w.OnCleanup(func(reactive.Writer) { ended++ })
					})
					if err != nil {
						require.ErrorIs(t, err, reactive.ErrDisposed)
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

// TestOwnerIsTheWritersEffect: an effect belongs to the effect with whose Writer it was created, even if it is created in another effect.
func TestOwnerIsTheWritersEffect(t *testing.T) {
	sc := new(reactive.Scope)
	s, trigger := reactive.NewSignal(sc, 0), reactive.NewSignal(sc, 0)
	runs := 0
	outer := effect(t, sc, func(o reactive.Writer) {
		first := true
		effect(t, o, func(i reactive.Writer) {
			trigger.Get(i)
			if first {
				first = false
				effect(t, o, func(w reactive.Writer) { s.Get(w); runs++ })
			}
		})
	})
	require.NoError(t, trigger.Store(1)) // the inner effect runs again
	require.NoError(t, s.Store(1))
	require.Equal(t, 2, runs)
	outer.Dispose()
	require.NoError(t, s.Store(2))
	require.Equal(t, 2, runs)
}

// TestGoexitInCleanups: a disposal completes even if a cleanup calls Goexit. Every cleanup is called once, and goroutines in Wait are woken.
func TestGoexitInCleanups(t *testing.T) {
	for name, end := range map[string]func(sc *reactive.Scope, trigger *reactive.Signal[int], outer *reactive.Effect){
		"disposed of":       func(_ *reactive.Scope, _ *reactive.Signal[int], outer *reactive.Effect) { outer.Dispose() },
		"scope disposed of": func(sc *reactive.Scope, _ *reactive.Signal[int], _ *reactive.Effect) { sc.Dispose() },
		"ran again":         func(_ *reactive.Scope, trigger *reactive.Signal[int], _ *reactive.Effect) { _ = trigger.Store(1) },
		"panicked":          func(_ *reactive.Scope, trigger *reactive.Signal[int], _ *reactive.Effect) { _ = trigger.Store(2) },
		"in a batch": func(sc *reactive.Scope, _ *reactive.Signal[int], outer *reactive.Effect) {
			_ = reactive.Batch(sc, func(reactive.Writer) { outer.Dispose() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			withTimeout(t, func() {
				sc := new(reactive.Scope)
				trigger, s := reactive.NewSignal(sc, 0), reactive.NewSignal(sc, 0)
				called, reads := map[string]int{}, 0
				leave := func(name string) func(reactive.Writer) {
					return func(reactive.Writer) { called[name]++; runtime.Goexit() }
				}
				outer := effect(t, sc, func(w reactive.Writer) {
					x := trigger.Get(w)
					if x == 1 {
						return
					}
					w.OnCleanup(leave("outer 1"))
					w.OnCleanup(leave("outer 2"))
					for _, name := range []string{"a", "b", "c"} {
						effect(t, w, func(w reactive.Writer) {
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

// TestCleanupsWithoutEnd: if a cleanup registers itself again and again, the scope gives up and disposes of the effect.
func TestCleanupsWithoutEnd(t *testing.T) {
	for _, dispose := range []bool{false, true} {
		withTimeout(t, func() {
			sc := new(reactive.Scope)
			trigger := reactive.NewSignal(sc, 0)
			calls, runs := 0, 0
			var forever func(w reactive.Writer)
			forever = func(w reactive.Writer) { calls++; w.OnCleanup(forever) }
			e := effect(t, sc, func(w reactive.Writer) { trigger.Get(w); runs++; w.OnCleanup(forever) })
			if dispose {
				e.Dispose()
				require.ErrorIs(t, sc.Err(), reactive.ErrEffectLoop)
			} else {
				require.ErrorIs(t, trigger.Store(1), reactive.ErrEffectLoop)
			}
			require.NoError(t, trigger.Store(2))
			require.Equal(t, 1, runs)
			require.LessOrEqual(t, calls, 200)
		})
	}
}
