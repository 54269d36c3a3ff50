package reactive

import (
	"context"
	"iter"
	"sync/atomic"
)

// Value is an observable value that can change. The host sets the value of a [Signal]. The machine behind a [Source] sets the values of the Source.
//
// Load is for code outside callbacks; Get and Peek are for callbacks, which have a tracker.
type Value[T any] struct {
	node
	cell   cell[T]
	before uint64 // the version at the last commit, if the value has been written since
	equal  func(a, b T) bool
}

// Signal is a [Value] that can be set.
type Signal[T any] struct {
	Value[T]
}

// NewSignal returns a signal with the value v. A write changes nothing if the new value is == to the current value.
func NewSignal[T comparable](sc *Scope, v T) *Signal[T] {
	return NewSignalFunc(sc, v, func(a, b T) bool { return a == b })
}

// NewSignalFunc returns a signal that compares values with the function `equal` instead of ==. This function runs as a callback of the scope.
func NewSignalFunc[T any](sc *Scope, v T, equal func(a, b T) bool) *Signal[T] {
	s := &Signal[T]{}
	s.init(sc, v, equal)
	return s
}

func (v *Value[T]) init(sc *Scope, x T, equal func(a, b T) bool) {
	v.scope, v.equal = sc, equal
	v.cell.slots[0].Store(&slot[T]{value: x})
}

// OnWatch registers two functions: `watched` is called after the signal has got its first subscriber, and `unwatched` after it has lost its last
// subscriber. Each of them may be nil. Call OnWatch before the signal is used.
func (s *Signal[T]) OnWatch(watched, unwatched func(Writer)) {
	s.watch = &watchHooks{watched: watched, unwatched: unwatched}
}

// Load returns the value. It takes no lock, and may be called anywhere. It does not see the writes of an unfinished batch.
func (v *Value[T]) Load() T {
	x, _ := v.load()
	return x
}

// The method `load` returns the value and its version.
func (v *Value[T]) load() (T, uint64) {
	for {
		if x, stamp, now := v.cell.load(&v.scope.committed); stamp <= now {
			return x, stamp
		}
	}
}

// Get returns the value and makes it a dependency of the callback.
func (v *Value[T]) Get(r Reader) T {
	v.scope.prove(r)
	v.scope.track(&v.node)
	return v.cell.current()
}

// Peek returns the value without making it a dependency of the callback.
func (v *Value[T]) Peek(r Reader) T {
	v.scope.prove(r)
	return v.cell.current()
}

// Store sets the value, runs the effects that depend on it, and returns their errors. Store is for code outside callbacks.
func (s *Signal[T]) Store(v T) error { return s.store(v) }

func (v *Value[T]) store(x T) (err error) {
	if err := v.scope.lock(); err != nil {
		return err
	}
	defer v.scope.leave(&err)
	v.set(x)
	return nil
}

// Set sets the value in a callback. Effects run when the callback's batch has ended.
func (s *Signal[T]) Set(w Writer, v T) {
	s.scope.proveWriting(w)
	s.set(v)
}

// The method `set` sets the value and notifies dependents. The caller holds the scope's lock.
func (v *Value[T]) set(x T) {
	if v.write(x) && v.subs != nil {
		v.scope.notify(&v.node)
	}
}

// The method `write` sets the value without notifying dependents. It reports whether the value has changed.
func (v *Value[T]) write(x T) bool {
	if v.equal(v.cell.current(), x) {
		return false
	}
	sc := v.scope
	sc.clock++
	if v.version <= sc.done {
		v.before = v.version
		v.cell.put(x, sc.clock)
	} else {
		v.cell.slots[v.cell.newest].Load().value = x // readers do not use this slot before the commit
		if v.flags&flagRewritten == 0 {
			v.flags |= flagRewritten
			sc.written = append(sc.written, v)
		}
	}
	v.version = sc.clock
	return true
}

// revertible is a Value of any type.
type revertible interface{ revert() }

// revert undoes the writes since the last commit if the newest value equals the value at that commit. Otherwise it keeps the writes.
func (v *Value[T]) revert() {
	v.flags &^= flagRewritten
	if !v.same() {
		return
	}
	v.cell.revert()
	v.version = v.before
	sc := v.scope
	sc.clock++ // callbacks that have read an intermediate value must run again
	sc.notify(&v.node)
}

// The method `same` reports whether the newest value equals the previous one. If the function v.equal panics, the result is false.
func (v *Value[T]) same() (same bool) {
	defer func() { _ = recover() }() // drop the panic: the value then counts as changed
	return v.equal(v.cell.current(), v.cell.previous())
}

// cell holds a value for one writer, which holds a lock, and many readers, which hold none. The writer never waits for readers, and readers never
// wait for the writer. A cell has two slots. Readers see one slot. The writer prepares the other slot. Readers see the prepared slot when the clock
// of commits reaches the slot's stamp. If readers still read the slot that the writer needs, the writer replaces this slot with a new one.
type cell[T any] struct {
	slots  [2]atomic.Pointer[slot[T]] // nil until used
	newest int8
}

type slot[T any] struct {
	stamp   atomic.Uint64
	readers atomic.Int32 // how many calls of load are checking the stamp again or reading value
	value   T
}

const noStamp = 1<<64 - 1

func (s *slot[T]) stamped() uint64 {
	if s == nil {
		return noStamp
	}
	return s.stamp.Load()
}

// The method `load` returns the newest value whose stamp the clock has reached, the stamp of this value, and the time `now` of the clock. If the
// clock has reached no stamp, or the writer reused the slot during load, the stamp is noStamp, which is later than every time.
func (c *cell[T]) load(clock *atomic.Uint64) (v T, stamp, now uint64) {
	now = clock.Load()
	s, other := c.slots[0].Load(), c.slots[1].Load()
	stamp = s.stamped()
	if x := other.stamped(); x <= now && (stamp > now || stamp < x) {
		s, stamp = other, x
	}
	if stamp > now {
		return v, noStamp, now
	}
	s.readers.Add(1)
	if s.stamp.Load() == stamp {
		v = s.value
	} else {
		stamp = noStamp
	}
	s.readers.Add(-1)
	return v, stamp, now
}

// The method `current` returns the newest value, and `previous` returns the value before it. Only the writer may call them.
func (c *cell[T]) current() T  { return c.slots[c.newest].Load().value }
func (c *cell[T]) previous() T { return c.slots[1-c.newest].Load().value }

// put prepares the next value in the slot that does not contain the newest value. The clock has not reached the new stamp, so new readers do not use
// this slot. If earlier readers still use the slot, put replaces the slot with a new one.
func (c *cell[T]) put(v T, stamp uint64) *slot[T] {
	c.newest = 1 - c.newest
	s := c.slots[c.newest].Load()
	if s != nil {
		s.stamp.Store(stamp)
	}
	if s == nil || s.readers.Load() != 0 {
		s = &slot[T]{}
		s.stamp.Store(stamp)
		c.slots[c.newest].Store(s)
	}
	s.value = v
	return s
}

// revert makes the previous value the newest again.
func (c *cell[T]) revert() {
	c.slots[c.newest].Load().stamp.Store(noStamp)
	c.newest = 1 - c.newest
}

// Wait waits for a value for which `predicate` returns true, and returns this value. Wait may miss a value that is soon replaced, but not a value
// that stays. If ctx ends first, Wait returns the last value it saw and the result of [context.Cause]. If the scope is disposed of, Wait returns the
// last value it saw and [ErrDisposed]. Wait calls the function `predicate` on the caller's goroutine, without the lock.
func (v *Value[T]) Wait(ctx context.Context, predicate func(T) bool) (T, error) {
	return wait(ctx, &v.node, func() (T, uint64, error) { x, stamp := v.load(); return x, stamp, nil }, predicate)
}

// Changes yields the current value, and then the newest value after each change, until ctx ends or the scope is disposed of. A slow consumer may
// miss intermediate values, but not the last one. It delays no other code.
func (v *Value[T]) Changes(ctx context.Context) iter.Seq[T] {
	return changes(ctx, &v.node, func() (T, uint64, error) { x, stamp := v.load(); return x, stamp, nil })
}

// Subscribe calls f with the value, and again after every change. The Writer belongs to the returned effect, which depends on this value only. The
// parameter `in` and the error have the same meaning as in [NewEffect].
func (v *Value[T]) Subscribe(in Owner, f func(w Writer, v T)) (*Effect, error) {
	return NewEffect(in, func(w Writer) {
		x := v.Get(w)
		Untracked(w, func(w Writer) { f(w, x) })
	})
}
