package reactive_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/reactive"
)

// probe counts the evaluations of a computed or the runs of an effect, and records the values that the effect saw.
type probe[T any] struct {
	n    int
	seen []T
}

func (p *probe[T]) see(v T) {
	p.n++
	p.seen = append(p.seen, v)
}

// computed returns a computed that counts its evaluations.
func computed[T comparable](sc *reactive.Scope, f func(reactive.Reader) T) (*reactive.Computed[T], *probe[T]) {
	p := &probe[T]{}
	return reactive.NewComputed(sc, func(r reactive.Reader) T {
		p.n++
		return f(r)
	}), p
}

type source[T any] interface {
	Get(reactive.Reader) T
}

// observe creates an effect that records every value of s.
func observe[T any](t testing.TB, in reactive.Owner, s source[T]) (*reactive.Effect, *probe[T]) {
	t.Helper()
	p := &probe[T]{}
	e, err := reactive.NewEffect(in, func(w reactive.Writer) { p.see(s.Get(w)) })
	require.NoError(t, err)
	return e, p
}

// watched returns a signal that counts how often it gets its first subscriber and loses its last one.
func watched(sc *reactive.Scope) (s *reactive.Signal[int], on, off *int) {
	on, off = new(int), new(int)
	s = reactive.NewSignal(sc, 0)
	s.OnWatch(func(reactive.Writer) { *on++ }, func(reactive.Writer) { *off++ })
	return s, on, off
}

func load[T any](t testing.TB, c *reactive.Computed[T]) T {
	t.Helper()
	v, err := c.Load()
	require.NoError(t, err)
	return v
}

func effect(t testing.TB, in reactive.Owner, f func(reactive.Writer)) *reactive.Effect {
	t.Helper()
	e, err := reactive.NewEffect(in, f)
	require.NoError(t, err)
	return e
}

// TestSignals is the conformance list of signals, computeds, effects and batches. The name of each subtest begins with its number in the list.
func TestSignals(t *testing.T) {
	t.Run("1 Set then Load", func(t *testing.T) {
		s := reactive.NewSignal(new(reactive.Scope), 1)
		require.Equal(t, 1, s.Load())
		require.NoError(t, s.Store(2))
		require.Equal(t, 2, s.Load())
		require.NoError(t, s.Store(3))
		require.NoError(t, s.Store(4))
		require.Equal(t, 4, s.Load())
		require.NoError(t, reactive.Batch(new(reactive.Scope), func(reactive.Writer) {}))
	})
	t.Run("2 equal write changes nothing", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 1)
		_, p := observe(t, sc, s)
		require.NoError(t, s.Store(1))
		require.NoError(t, s.Store(1))
		require.Equal(t, []int{1}, p.seen)
		c, q := computed(sc, func(r reactive.Reader) int { return s.Get(r) })
		require.Equal(t, 1, load(t, c))
		require.NoError(t, s.Store(1))
		require.Equal(t, 1, load(t, c))
		require.Equal(t, 1, q.n)
	})
	t.Run("3 custom equality", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignalFunc(sc, []int{1, 2}, func(a, b []int) bool { return len(a) == len(b) })
		_, p := observe(t, sc, s)
		require.NoError(t, s.Store([]int{3, 4}))
		require.Equal(t, []int{1, 2}, s.Load())
		require.NoError(t, s.Store([]int{5}))
		require.Equal(t, [][]int{{1, 2}, {5}}, p.seen)
		c := reactive.NewComputedFunc(sc, func(r reactive.Reader) []int { return append([]int{0}, s.Get(r)...) }, slices.Equal[[]int])
		_, q := observe(t, sc, c)
		require.NoError(t, s.Store(nil))
		require.NoError(t, s.Store([]int{7}))
		require.Equal(t, [][]int{{0, 5}, {0}, {0, 7}}, q.seen)
	})
	t.Run("4 Peek does not subscribe", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 1)
		c, _ := computed(sc, func(r reactive.Reader) int { return s.Get(r) * 10 })
		runs := 0
		effect(t, sc, func(w reactive.Writer) { runs++; require.Equal(t, s.Peek(w)*10, c.Peek(w)) })
		d, p := computed(sc, func(r reactive.Reader) int { return s.Peek(r) })
		require.Equal(t, 1, load(t, d))
		require.NoError(t, s.Store(2))
		require.Equal(t, 1, runs)
		require.Equal(t, 1, load(t, d), "what was peeked at is no dependency")
		require.Equal(t, 1, p.n)
	})
	t.Run("5 watched and unwatched", func(t *testing.T) {
		sc := new(reactive.Scope)
		s, on, off := watched(sc)
		c, _ := computed(sc, func(r reactive.Reader) int { return s.Get(r) })
		require.Equal(t, 0, load(t, c))
		require.Zero(t, *on, "nobody subscribed")
		e1, _ := observe(t, sc, c)
		e2, _ := observe(t, sc, s)
		require.Equal(t, 1, *on)
		e1.Dispose()
		require.Zero(t, *off)
		e2.Dispose()
		require.Equal(t, []int{1, 1}, []int{*on, *off})
		e3, _ := observe(t, sc, s)
		e3.Dispose()
		require.Equal(t, []int{2, 2}, []int{*on, *off})
	})
	t.Run("6 disposing the middle listener", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		_, a := observe(t, sc, s)
		middle, b := observe(t, sc, s)
		_, c := observe(t, sc, s)
		middle.Dispose()
		require.NoError(t, s.Store(1))
		require.Equal(t, [][]int{{0, 1}, {0}, {0, 1}}, [][]int{a.seen, b.seen, c.seen})
	})
	t.Run("7 Subscribe", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 1)
		c, _ := computed(sc, func(r reactive.Reader) int { return -s.Get(r) })
		var p, q probe[int]
		e, err := s.Subscribe(sc, func(_ reactive.Writer, v int) { p.see(v) })
		require.NoError(t, err)
		f, err := c.Subscribe(sc, func(_ reactive.Writer, v int) { q.see(v) })
		require.NoError(t, err)
		require.NoError(t, s.Store(2))
		e.Dispose()
		require.NoError(t, s.Store(3))
		f.Dispose()
		require.NoError(t, s.Store(4))
		require.Equal(t, []int{1, 2}, p.seen)
		require.Equal(t, []int{-1, -2, -3}, q.seen)
	})
	t.Run("8 Subscribe callback is untracked", func(t *testing.T) {
		sc := new(reactive.Scope)
		s, other := reactive.NewSignal(sc, 1), reactive.NewSignal(sc, 1)
		outer, inner := 0, 0
		effect(t, sc, func(w reactive.Writer) {
			outer++
			_, err := s.Subscribe(w, func(in reactive.Writer, _ int) {
				inner++
				other.Get(in)
				if inner == 1 {
					other.Get(w) // a read with the tracker of the enclosing effect
				}
			})
			require.NoError(t, err)
		})
		require.NoError(t, other.Store(2))
		require.Equal(t, []int{1, 1}, []int{outer, inner})
		require.NoError(t, s.Store(2))
		require.Equal(t, []int{1, 2}, []int{outer, inner})
		c, _ := computed(sc, func(r reactive.Reader) int { return s.Get(r) })
		_, err := c.Subscribe(sc, func(w reactive.Writer, _ int) { inner++; other.Get(w) })
		require.NoError(t, err)
		require.NoError(t, other.Store(3))
		require.Equal(t, []int{1, 3}, []int{outer, inner})
	})

	t.Run("9 not evaluated before the first read", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 1)
		c, p := computed(sc, func(r reactive.Reader) int { return s.Get(r) })
		require.NoError(t, s.Store(2))
		require.Zero(t, p.n)
		require.Equal(t, 2, load(t, c))
		require.Equal(t, 1, p.n)
	})
	t.Run("10 two reads one evaluation", func(t *testing.T) {
		sc := new(reactive.Scope)
		s, other := reactive.NewSignal(sc, 1), reactive.NewSignal(sc, 1)
		c, p := computed(sc, func(r reactive.Reader) int { return s.Get(r) })
		load(t, c)
		load(t, c)
		require.NoError(t, other.Store(2)) // the scope changes, although c does not depend on other
		load(t, c)
		load(t, c)
		require.Equal(t, 1, p.n)
	})
	t.Run("11 many writes one evaluation", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		c, p := computed(sc, func(r reactive.Reader) int { return s.Get(r) })
		load(t, c)
		for i := range 10 {
			require.NoError(t, s.Store(i+1))
		}
		require.Equal(t, 10, load(t, c))
		require.Equal(t, 2, p.n)
	})
	t.Run("12 diamond evaluated once", func(t *testing.T) {
		sc := new(reactive.Scope)
		a := reactive.NewSignal(sc, "a")
		b, _ := computed(sc, func(r reactive.Reader) string { return a.Get(r) + "b" })
		c, _ := computed(sc, func(r reactive.Reader) string { return a.Get(r) + "c" })
		d, p := computed(sc, func(r reactive.Reader) string { return b.Get(r) + " " + c.Get(r) })
		_, q := observe(t, sc, d)
		require.NoError(t, a.Store("x"))
		require.Equal(t, []string{"ab ac", "xb xc"}, q.seen)
		require.Equal(t, 2, p.n)
		require.NoError(t, a.Store("y"))
		require.Equal(t, "yb yc", load(t, d))
		require.Equal(t, 3, p.n)
	})
	t.Run("13 diamond with a tail", func(t *testing.T) {
		sc := new(reactive.Scope)
		a := reactive.NewSignal(sc, "a")
		b, _ := computed(sc, func(r reactive.Reader) string { return a.Get(r) + "b" })
		c, _ := computed(sc, func(r reactive.Reader) string { return a.Get(r) + "c" })
		d, p := computed(sc, func(r reactive.Reader) string { return b.Get(r) + c.Get(r) })
		e, q := computed(sc, func(r reactive.Reader) string { return d.Get(r) + "e" })
		require.Equal(t, "abace", load(t, e))
		_, seen := observe(t, sc, e)
		require.NoError(t, a.Store("x"))
		require.Equal(t, []string{"abace", "xbxce"}, seen.seen)
		require.Equal(t, []int{2, 2}, []int{p.n, q.n})
	})
	t.Run("14 jagged diamond in order", func(t *testing.T) {
		sc := new(reactive.Scope)
		var order []string
		node := func(name string, from ...source[string]) *reactive.Computed[string] {
			return reactive.NewComputed(sc, func(r reactive.Reader) string {
				v := ""
				for _, s := range from {
					v += s.Get(r)
				}
				order = append(order, name)
				return v + name
			})
		}
		a := reactive.NewSignal(sc, "a")
		b := node("b", a)
		c := node("c", a)
		d := node("d", c)
		e := node("e", b, d)
		f, g := node("f", e), node("g", e)
		observe(t, sc, f)
		observe(t, sc, g)
		order = nil
		require.NoError(t, a.Store("x"))
		require.Equal(t, []string{"b", "c", "d", "e", "f", "g"}, order)
		require.Equal(t, "xbxcdeg", load(t, g))
	})
	t.Run("15 short and long path", func(t *testing.T) {
		sc := new(reactive.Scope)
		a := reactive.NewSignal(sc, 1)
		long1, _ := computed(sc, func(r reactive.Reader) int { return a.Get(r) })
		long2, _ := computed(sc, func(r reactive.Reader) int { return long1.Get(r) })
		long3, _ := computed(sc, func(r reactive.Reader) int { return long2.Get(r) })
		sink, p := computed(sc, func(r reactive.Reader) [2]int { return [2]int{a.Get(r), long3.Get(r)} })
		_, q := observe(t, sc, sink)
		var both [][2]int
		effect(t, sc, func(w reactive.Writer) { both = append(both, [2]int{long3.Get(w), a.Get(w)}) })
		require.NoError(t, a.Store(2))
		require.Equal(t, [][2]int{{1, 1}, {2, 2}}, q.seen)
		require.Equal(t, [][2]int{{1, 1}, {2, 2}}, both)
		require.Equal(t, 2, p.n)
	})
	t.Run("16 same result stops", func(t *testing.T) {
		sc := new(reactive.Scope)
		a := reactive.NewSignal(sc, 1)
		odd, p := computed(sc, func(r reactive.Reader) bool { return a.Get(r)%2 == 1 })
		down, q := computed(sc, func(r reactive.Reader) bool { return !odd.Get(r) })
		_, seen := observe(t, sc, down)
		require.NoError(t, a.Store(3))
		require.Equal(t, []int{2, 1, 1}, []int{p.n, q.n, seen.n})
	})
	t.Run("17 one of two branches changes", func(t *testing.T) {
		sc := new(reactive.Scope)
		a := reactive.NewSignal(sc, 1)
		same, _ := computed(sc, func(r reactive.Reader) int { a.Get(r); return 0 })
		other, _ := computed(sc, func(r reactive.Reader) int { return a.Get(r) })
		join, p := computed(sc, func(r reactive.Reader) int { return same.Get(r) + other.Get(r) })
		_, seen := observe(t, sc, join)
		require.NoError(t, a.Store(2))
		require.Equal(t, []int{1, 2}, seen.seen)
		require.Equal(t, 2, p.n)
	})
	t.Run("18 one of three branches changes", func(t *testing.T) {
		sc := new(reactive.Scope)
		a := reactive.NewSignal(sc, 1)
		other, _ := computed(sc, func(r reactive.Reader) int { return a.Get(r) })
		same1, _ := computed(sc, func(r reactive.Reader) int { a.Get(r); return 0 })
		same2, _ := computed(sc, func(r reactive.Reader) int { a.Get(r); return 0 })
		join, p := computed(sc, func(r reactive.Reader) int { return other.Get(r) + same1.Get(r) + same2.Get(r) })
		_, seen := observe(t, sc, join)
		require.NoError(t, a.Store(2))
		require.Equal(t, []int{1, 2}, seen.seen)
		require.Equal(t, 2, p.n)
	})
	t.Run("19 no branch changes", func(t *testing.T) {
		sc := new(reactive.Scope)
		a := reactive.NewSignal(sc, 1)
		same1, _ := computed(sc, func(r reactive.Reader) int { a.Get(r); return 1 })
		same2, _ := computed(sc, func(r reactive.Reader) int { a.Get(r); return 2 })
		join, p := computed(sc, func(r reactive.Reader) int { return same1.Get(r) + same2.Get(r) })
		_, seen := observe(t, sc, join)
		require.NoError(t, a.Store(2))
		require.Equal(t, []int{1, 1}, []int{p.n, seen.n})
	})
	t.Run("20 branch switch drops a dependency", func(t *testing.T) {
		sc := new(reactive.Scope)
		which := reactive.NewSignal(sc, true)
		a, on, off := watched(sc)
		b := reactive.NewSignal(sc, 7)
		c, p := computed(sc, func(r reactive.Reader) int {
			if which.Get(r) {
				return a.Get(r)
			}
			return b.Get(r)
		})
		_, seen := observe(t, sc, c)
		require.NoError(t, which.Store(false))
		require.Equal(t, []int{1, 1}, []int{*on, *off})
		require.NoError(t, a.Store(5))
		require.Equal(t, 2, p.n)
		require.NoError(t, b.Store(8))
		require.Equal(t, []int{0, 7, 8}, seen.seen)
	})
	t.Run("21 dropped in the batch not recomputed", func(t *testing.T) {
		sc := new(reactive.Scope)
		which, a := reactive.NewSignal(sc, true), reactive.NewSignal(sc, 1)
		branch, p := computed(sc, func(r reactive.Reader) int { return a.Get(r) })
		c, _ := computed(sc, func(r reactive.Reader) int {
			if which.Get(r) {
				return branch.Get(r)
			}
			return -1
		})
		_, seen := observe(t, sc, c)
		require.NoError(t, reactive.Batch(sc, func(w reactive.Writer) { a.Set(w, 2); which.Set(w, false) }))
		require.Equal(t, []int{1, -1}, seen.seen)
		require.Equal(t, 1, p.n)
	})
	t.Run("22 dependencies checked in order of use", func(t *testing.T) {
		sc := new(reactive.Scope)
		index, list := reactive.NewSignal(sc, 2), reactive.NewSignalFunc(sc, []int{1, 2, 3}, nil2)
		inRange, _ := computed(sc, func(r reactive.Reader) bool { return index.Get(r) < len(list.Get(r)) })
		item, _ := computed(sc, func(r reactive.Reader) int { return list.Get(r)[index.Get(r)] }) // panics: the index is out of range
		c, _ := computed(sc, func(r reactive.Reader) int {
			if inRange.Get(r) {
				return item.Get(r)
			}
			return -1
		})
		evaluations := 0
		guarded, _ := computed(sc, func(r reactive.Reader) int { evaluations++; return c.Get(r) })
		_, seen := observe(t, sc, guarded)
		require.NoError(t, list.Store([]int{1}))
		require.NoError(t, list.Store([]int{1, 2, 4}))
		require.Equal(t, []int{3, -1, 4}, seen.seen)
		calls := 0
		late, _ := computed(sc, func(r reactive.Reader) int { calls++; return list.Get(r)[index.Get(r)] })
		d, _ := computed(sc, func(r reactive.Reader) int {
			if inRange.Get(r) {
				return late.Get(r)
			}
			return -1
		})
		require.Equal(t, 4, load(t, d))
		require.NoError(t, list.Store([]int{1}))
		require.Equal(t, -1, load(t, d))
		require.Equal(t, 1, calls, "what came first said that it is not needed")
	})
	t.Run("23 lazy branches stay consistent", func(t *testing.T) {
		sc := new(reactive.Scope)
		a := reactive.NewSignal(sc, 0)
		negative, _ := computed(sc, func(r reactive.Reader) bool { return a.Get(r) < 0 })
		double, _ := computed(sc, func(r reactive.Reader) int { return a.Get(r) * 2 })
		c, _ := computed(sc, func(r reactive.Reader) int {
			if negative.Get(r) {
				return 0
			}
			return double.Get(r)
		})
		sum, _ := computed(sc, func(r reactive.Reader) int { return c.Get(r) + double.Get(r) })
		_, seen := observe(t, sc, c)
		for _, v := range []int{1, -1, -2, 3} {
			require.NoError(t, a.Store(v))
			require.Equal(t, load(t, c)+2*v, load(t, sum))
		}
		require.Equal(t, []int{0, 2, 0, 6}, seen.seen)
	})
	t.Run("24 unobserved computed holds no subscription", func(t *testing.T) {
		sc := new(reactive.Scope)
		s, on, off := watched(sc)
		c, p := computed(sc, func(r reactive.Reader) int { return s.Get(r) })
		d, q := computed(sc, func(r reactive.Reader) int { return c.Get(r) })
		load(t, d)
		require.Zero(t, *on)
		e, _ := observe(t, sc, d)
		require.Equal(t, 1, *on)
		e.Dispose()
		require.Equal(t, 1, *off)
		require.NoError(t, s.Store(1))
		require.Equal(t, []int{1, 1}, []int{p.n, q.n}, "nobody asked")
		require.Equal(t, 1, load(t, d))
		require.NoError(t, s.Store(2))
		require.Equal(t, 2, load(t, d))
		require.Equal(t, []int{1, 1}, []int{*on, *off})
	})
	t.Run("25 never observed is collected", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 1)
		collected(t, func() weak.Pointer[reactive.Computed[int]] {
			c := reactive.NewComputed(sc, func(r reactive.Reader) int { return s.Get(r) })
			load(t, c)
			return weak.Make(c)
		})
		runtime.KeepAlive(s)
	})
	t.Run("26 collected after the last listener", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 1)
		collected(t, func() weak.Pointer[reactive.Computed[int]] {
			c := reactive.NewComputed(sc, func(r reactive.Reader) int { return s.Get(r) })
			e, _ := observe(t, sc, c)
			require.NoError(t, s.Store(2))
			e.Dispose()
			return weak.Make(c)
		})
		require.NoError(t, s.Store(3))
	})
	t.Run("27 change before the first subscription", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 1)
		c, _ := computed(sc, func(r reactive.Reader) int { return s.Get(r) })
		d, _ := computed(sc, func(r reactive.Reader) int { return c.Get(r) })
		require.Equal(t, 1, load(t, d))
		require.NoError(t, s.Store(2))
		_, seen := observe(t, sc, d)
		require.Equal(t, []int{2}, seen.seen)
	})
	t.Run("28 change right after the first subscription", func(t *testing.T) {
		sc := new(reactive.Scope)
		s, other := reactive.NewSignal(sc, 1), reactive.NewSignal(sc, 0)
		c, _ := computed(sc, func(r reactive.Reader) int { return s.Get(r) })
		d, _ := computed(sc, func(r reactive.Reader) int { return c.Get(r) })
		e, _ := computed(sc, func(r reactive.Reader) int { return d.Get(r) })
		require.Equal(t, 1, load(t, e))
		require.NoError(t, other.Store(1)) // all evaluated computeds must be checked again
		_, seen := observe(t, sc, e)
		require.NoError(t, s.Store(2))
		require.NoError(t, s.Store(3))
		require.Equal(t, []int{1, 2, 3}, seen.seen)
	})
	t.Run("29 the zero value is a value", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 1)
		c, p := computed(sc, func(r reactive.Reader) int { return s.Get(r) * 0 })
		require.Equal(t, 0, load(t, c))
		require.Equal(t, 0, load(t, c))
		require.Equal(t, 1, p.n)
		equalCalls := 0
		d := reactive.NewComputedFunc(sc, func(r reactive.Reader) int { return s.Get(r) * 0 }, func(a, b int) bool { equalCalls++; return a == b })
		_, seen := observe(t, sc, d)
		require.Equal(t, []int{0}, seen.seen)
		require.Zero(t, equalCalls, "there was nothing to compare with")
		require.NoError(t, s.Store(2))
		require.Equal(t, []int{0}, seen.seen)
		require.Equal(t, 1, equalCalls)
	})
}

// nil2 is an equality function that always returns false.
func nil2(a, b []int) bool { return false }

// collected fails the test unless the value that f points to is garbage-collected.
func collected[T any](t *testing.T, f func() weak.Pointer[T]) {
	t.Helper()
	p := f()
	for range 20 {
		runtime.GC()
		if p.Value() == nil {
			return
		}
	}
	t.Error("still held")
}

var errTest = errors.New("test")

// withTimeout fails the test if f does not return, for example because a lock is not released.
func withTimeout(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
		buf := make([]byte, 1<<16)
		t.Fatal("hangs\n", string(buf[:runtime.Stack(buf, true)]))
	}
}
