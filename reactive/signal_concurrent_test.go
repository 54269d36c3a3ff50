package reactive_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/reactive"
)

// TestSignalsFromManyGoroutines contains the tests of the conformance list (see TestSignals) that concern
// concurrency.
func TestSignalsFromManyGoroutines(t *testing.T) {
	t.Run("64 many writers", func(t *testing.T) {
		sc := new(reactive.Scope)
		a, b := reactive.NewSignal(sc, 0), reactive.NewSignal(sc, 0)
		sum, _ := computed(sc, func(r reactive.Reader) int { return a.Get(r) + b.Get(r) })
		var torn atomic.Bool
		effect(t, sc, func(w reactive.Writer) {
			if a.Get(w) != b.Get(w) || sum.Get(w) != 2*a.Get(w) {
				torn.Store(true)
			}
		})
		const writers, writes = 8, 500
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for range writes {
					if err := reactive.Batch(sc, func(w reactive.Writer) { a.Set(w, a.Get(w)+1); b.Set(w, b.Get(w)+1) }); err != nil {
						t.Error(err)
					}
				}
			})
			wg.Go(func() { // observers subscribe and unsubscribe
				for range writes / 10 {
					e, err := reactive.NewEffect(sc, func(w reactive.Writer) {
						if sum.Get(w)%2 != 0 {
							torn.Store(true)
						}
					})
					if err != nil {
						t.Error(err)
						return
					}
					if v, err := sum.Load(); err != nil || v%2 != 0 {
						torn.Store(true)
					}
					e.Dispose()
				}
			})
		}
		wg.Wait()
		require.False(t, torn.Load())
		require.Equal(t, []int{writers * writes, writers * writes, 2 * writers * writes}, []int{a.Load(), b.Load(), load(t, sum)})
	})
	t.Run("65 Load never sees half a batch", func(t *testing.T) {
		sc := new(reactive.Scope)
		a, b := reactive.NewSignal(sc, [4]int{}), reactive.NewSignal(sc, 0)
		sum := reactive.NewComputed(sc, func(r reactive.Reader) int { return a.Get(r)[3] + b.Get(r) })
		require.Equal(t, 0, load(t, sum))
		require.NoError(t, reactive.Batch(sc, func(w reactive.Writer) {
			a.Set(w, [4]int{1, 1, 1, 1})
			require.Equal(t, [4]int{}, a.Load(), "not before it is complete")
			v, err := sum.Load()
			require.NoError(t, err)
			require.Zero(t, v)
			b.Set(w, 1)
			b.Set(w, 2)
			require.Zero(t, b.Load())
			b.Set(w, 1)
		}))
		const batches = 3000
		var done atomic.Bool
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for !done.Load() {
					x := a.Load()
					y := b.Load()
					if x[0] > y || x[0] != x[3] {
						t.Errorf("%d of a batch, then %d of the same", x, y)
						return
					}
				}
			})
		}
		for i := range batches {
			require.NoError(t, reactive.Batch(sc, func(w reactive.Writer) { b.Set(w, i+2); a.Set(w, [4]int{i + 2, 0, 0, i + 2}) }))
			if i%500 == 0 {
				runtime.Gosched()
			}
		}
		done.Store(true)
		wg.Wait()
		require.Equal(t, batches+1, b.Load())
	})
	t.Run("66 Wait", func(t *testing.T) {
		sc := new(reactive.Scope)
		s, on, off := watched(sc)
		c, _ := computed(sc, func(r reactive.Reader) int { return s.Get(r) * 2 })
		withTimeout(t, func() {
			for i := range 2000 { // the write races with the registration
				go func() {
					if err := s.Store(i + 1); err != nil {
						t.Error(err)
					}
				}()
				v, err := c.Wait(t.Context(), func(v int) bool { return v >= 2*(i+1) })
				if err != nil || v != 2*(i+1) {
					t.Errorf("%d %v", v, err)
					return
				}
			}
		})
		require.NoError(t, s.Store(0))
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		waiting := make(chan struct{})
		go func() {
			<-waiting
			cancel(errTest)
		}()
		first := true
		v, err := s.Wait(ctx, func(v int) bool {
			if !first {
				return v == 1
			}
			first = false
			close(waiting)
			return false
		})
		require.Zero(t, v)
		require.ErrorIs(t, err, errTest)
		require.Equal(t, *on, *off, "nobody is subscribed any more")
		broken, _ := computed(sc, func(r reactive.Reader) int {
			if s.Get(r) == 1 {
				panic(errTest)
			}
			return 0
		})
		go func() { _ = s.Store(1) }()
		_, err = broken.Wait(t.Context(), func(v int) bool { return v != 0 })
		require.ErrorIs(t, err, errTest)
		go sc.Dispose()
		_, err = s.Wait(t.Context(), func(v int) bool { return v == 99 })
		require.ErrorIs(t, err, reactive.ErrDisposed)
	})
	t.Run("67 Changes", func(t *testing.T) {
		sc := new(reactive.Scope)
		s, on, off := watched(sc)
		c, _ := computed(sc, func(r reactive.Reader) int { return s.Get(r) })
		const last = 1000
		var got []int
		withTimeout(t, func() {
			first := make(chan struct{})
			written := make(chan struct{})
			go func() {
				<-first
				for i := range last {
					if err := s.Store(i + 1); err != nil {
						t.Error(err)
					}
				}
				close(written) // before the consumer requests its second value
			}()
			for v := range c.Changes(t.Context()) {
				got = append(got, v)
				if v == 0 {
					close(first)
					<-written
				}
				if v == last {
					break
				}
			}
		})
		require.Equal(t, []int{0, last}, got)
		require.Equal(t, *on, *off)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range s.Changes(ctx) {
			cancel()
		}
		require.Equal(t, *on, *off)
		for v := range s.Changes(t.Context()) {
			if v == 7 {
				sc.Dispose()
			} else {
				require.NoError(t, s.Store(7))
			}
		}
	})
	t.Run("68 tracker used after its callback", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		var r reactive.Reader
		var trackers []reactive.Writer
		c := reactive.NewComputed(sc, func(rr reactive.Reader) int { r = rr; return s.Get(rr) })
		load(t, c)
		effect(t, sc, func(w reactive.Writer) {
			trackers = append(trackers, w)
			w.OnCleanup(func(w reactive.Writer) { trackers = append(trackers, w) })
		}).Dispose()
		require.NoError(t, reactive.Batch(sc, func(w reactive.Writer) { trackers = append(trackers, w) }))
		require.Len(t, trackers, 3)
		require.Panics(t, func() { s.Get(r) })
		require.Panics(t, func() { c.Peek(r) })
		for _, w := range trackers {
			require.Panics(t, func() { s.Get(w) })
			require.Panics(t, func() { s.Peek(w) })
			require.Panics(t, func() { s.Set(w, 1) })
			require.Panics(t, func() { c.Get(w) })
			require.Panics(t, func() { w.OnCleanup(func(reactive.Writer) {}) })
			require.Panics(t, func() { reactive.Untracked(w, func(reactive.Writer) {}) })
			require.Panics(t, func() { _ = reactive.Batch(w, func(reactive.Writer) {}) })
			require.Panics(t, func() { _, _ = reactive.NewEffect(w, func(reactive.Writer) {}) })
		}
		require.Zero(t, s.Load())
		stranger := reactive.NewSignal(new(reactive.Scope), 0)
		require.ErrorIs(t, reactive.Batch(sc, func(w reactive.Writer) { stranger.Set(w, 1) }), reactive.ErrTracker)
	})
	t.Run("72 nothing is allocated", func(t *testing.T) {
		sc := new(reactive.Scope)
		s := reactive.NewSignal(sc, 0)
		var last *reactive.Computed[int]
		for range 10 {
			from := last
			last = reactive.NewComputed(sc, func(r reactive.Reader) int {
				if from == nil {
					return s.Get(r)
				}
				return from.Get(r) + s.Get(r)
			})
			at := last
			effect(t, sc, func(w reactive.Writer) { at.Get(w); s.Get(w) })
		}
		i := 0
		require.Zero(t, testing.AllocsPerRun(100, func() {
			i++
			if err := s.Store(i); err != nil {
				panic(err)
			}
		}))
		require.Zero(t, testing.AllocsPerRun(100, func() { _ = s.Load(); _, _ = last.Load() }))
	})
}

// TestScopeDispose: Dispose ends all effects, subscriptions and waits, both inside and outside callbacks.
func TestScopeDispose(t *testing.T) {
	sc := new(reactive.Scope)
	s := reactive.NewSignal(sc, 0)
	c, p := computed(sc, func(r reactive.Reader) int { return s.Get(r) })
	never, q := computed(sc, func(r reactive.Reader) int { return s.Get(r) })
	var order []string
	runs := 0
	for _, name := range []string{"a", "b"} {
		effect(t, sc, func(w reactive.Writer) {
			runs++
			if c.Get(w) == 1 {
				sc.Dispose()
			}
			w.OnCleanup(func(reactive.Writer) { order = append(order, name) })
		})
	}
	require.NoError(t, s.Store(1))
	require.Equal(t, []string{"a", "b", "a"}, order, "a's cleanup and its run, which disposes; then everything is cleaned up")
	require.Equal(t, 3, runs)
	sc.Dispose()
	require.NoError(t, s.Store(2))
	require.Equal(t, 3, runs)
	require.Equal(t, 2, s.Load())
	require.Equal(t, 1, load(t, c), "the last value")
	require.Equal(t, 2, p.n)
	_, err := never.Load()
	require.ErrorIs(t, err, reactive.ErrDisposed)
	require.Zero(t, q.n)
	_, err = reactive.NewEffect(sc, func(reactive.Writer) {})
	require.ErrorIs(t, err, reactive.ErrDisposed)
	require.Equal(t, []int{2}, slices.Collect(s.Changes(t.Context())))
}

// TestDeepChains: a change of a deep dependency graph that was already evaluated causes no recursion.
func TestDeepChains(t *testing.T) {
	const depth = 100_000
	sc := new(reactive.Scope)
	s := reactive.NewSignal(sc, 0)
	last := reactive.NewComputed(sc, func(r reactive.Reader) int { return s.Get(r) })
	for range depth {
		from := last
		last = reactive.NewComputed(sc, func(r reactive.Reader) int { return from.Get(r) + 1 })
		load(t, last)
	}
	e, p := observe(t, sc, last)
	require.NoError(t, s.Store(1))
	e.Dispose()
	require.NoError(t, s.Store(2))
	require.Equal(t, depth+2, load(t, last))
	require.Equal(t, []int{depth, depth + 1}, p.seen)
}

// TestDisposeWaitsForNobody: while a callback runs, Dispose on another goroutine returns at once.
func TestDisposeWaitsForNobody(t *testing.T) {
	sc := new(reactive.Scope)
	s := reactive.NewSignal(sc, 0)
	e, p := observe(t, sc, s)
	entered, leave := make(chan struct{}), make(chan struct{})
	go func() {
		_ = reactive.Batch(sc, func(w reactive.Writer) {
			s.Set(w, 1)
			close(entered)
			<-leave
		})
	}()
	<-entered
	withTimeout(t, e.Dispose)
	require.Zero(t, s.Load())
	close(leave)
	_, err := s.Wait(t.Context(), func(v int) bool { return v == 1 })
	require.NoError(t, err)
	require.NoError(t, s.Store(2))
	require.Equal(t, []int{0}, p.seen)
}
