package reactive

import (
	"context"
	"iter"
	"sync/atomic"
)

// Value is a value that changes and can be observed. The holder of a [Signal] sets it; a [Source] sets its own values.
//
// Load is for the outside; Get and Peek are for callbacks, which have a tracker.
type Value[T any] struct {
	node
	cell   cell[T]
	before uint64 // the version at the last commit, if the value was written since
	equal  func(a, b T) bool
}

// Signal is a [Value] that can be set.
type Signal[T any] struct {
	Value[T]
}

// NewSignal returns a signal with the value v. Writing a value that is == to the present one changes nothing.
func NewSignal[T comparable](sc *Scope, v T) *Signal[T] {
	return NewSignalFunc(sc, v, func(a, b T) bool { return a == b })
}

// NewSignalFunc is NewSignal with equal in place of ==. equal is called as a callback of the scope.
func NewSignalFunc[T any](sc *Scope, v T, equal func(a, b T) bool) *Signal[T] {
	s := &Signal[T]{}
	s.init(sc, v, equal)
	return s
}

func (v *Value[T]) init(sc *Scope, x T, equal func(a, b T) bool) {
	v.scope, v.equal = sc, equal
	v.cell.slots[0].Store(&slot[T]{value: x})
}

// OnWatch registers watched to be called when the signal gets its first subscriber, and unwatched when it loses its last one, after
// the change that caused it. Either may be nil. Call OnWatch before the signal is used.
func (s *Signal[T]) OnWatch(watched, unwatched func(Writer)) {
	s.watch = &watchHooks{watched: watched, unwatched: unwatched}
}

// Load returns the value. It takes no lock, and may be called anywhere. It sees nothing of a batch until the batch is complete.
func (v *Value[T]) Load() T {
	x, _ := v.load()
	return x
}

// load also returns the version.
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

// Peek is Get without the dependency.
func (v *Value[T]) Peek(r Reader) T {
	v.scope.prove(r)
	return v.cell.current()
}

// Store sets the value; effects have run when it returns. The error joins theirs. Store is for code outside of callbacks.
func (s *Signal[T]) Store(v T) error { return s.store(v) }

func (v *Value[T]) store(x T) (err error) {
	if err := v.scope.lock(); err != nil {
		return err
	}
	defer v.scope.leave(&err)
	v.set(x)
	return nil
}

// Set sets the value in a callback. Effects run when the batch that the callback is part of has ended.
func (s *Signal[T]) Set(w Writer, v T) {
	s.scope.proveWriting(w)
	s.set(v)
}

// set is called with the lock held.
func (v *Value[T]) set(x T) {
	if v.write(x) && v.subs != nil {
		v.scope.notify(&v.node)
	}
}

// write is set without notifying dependents. It reports whether the value has changed.
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
		v.cell.slots[v.cell.newest].Load().value = x // no reader has seen this slot yet
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

// revert undoes the writes since the last commit if the value is equal to the one before them. Otherwise they stand.
func (v *Value[T]) revert() {
	v.flags &^= flagRewritten
	if !v.same() {
		return
	}
	v.cell.revert()
	v.version = v.before
	sc := v.scope
	sc.clock++ // callbacks that saw the value in between must read it again
	sc.notify(&v.node)
}

// same compares the newest value with the one before it, and survives an equality that panics.
func (v *Value[T]) same() (same bool) {
	defer func() { _ = recover() }() // write has called it on these values before, and has returned that panic
	return v.equal(v.cell.current(), v.cell.previous())
}

// cell holds a value for one writer, which holds a lock, and many readers, which hold none: the writer never waits for readers,
// nor readers for the writer. It has two slots: readers see one, and the writer prepares the other. Readers see the second one
// when the clock of commits reaches its stamp. A slot that is still being read is left to its readers, and a new one takes its
// place.
type cell[T any] struct {
	slots  [2]atomic.Pointer[slot[T]] // nil until used
	newest int8
}

type slot[T any] struct {
	stamp   atomic.Uint64
	readers atomic.Int32 // goroutines that read value, provided that the stamp is still the one they expect
	value   T
}

const noStamp = 1<<64 - 1

func (s *slot[T]) stamped() uint64 {
	if s == nil {
		return noStamp
	}
	return s.stamp.Load()
}

// load returns the newest value that is stamped at or before the clock, its stamp, and the clock's reading. If there is none, because
// none was put or because the clock has moved on meanwhile, the stamp is after the reading.
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

// current and previous are for the writer.
func (c *cell[T]) current() T  { return c.slots[c.newest].Load().value }
func (c *cell[T]) previous() T { return c.slots[1-c.newest].Load().value }

// put prepares the next value, with a stamp that the clock has not reached. New readers do not read the slot that it takes,
// and the readers that still read it are counted.
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

// Wait returns the value as soon as the predicate holds for it. It may miss values that last only for a moment, but never the
// present one. The error is the cause of ctx's end, or matches [ErrDisposed]; the value is then the last one seen. The predicate is
// called on the caller's goroutine, without the lock.
func (v *Value[T]) Wait(ctx context.Context, predicate func(T) bool) (T, error) {
	return wait(ctx, &v.node, func() (T, uint64, error) { x, stamp := v.load(); return x, stamp, nil }, predicate)
}

// Changes yields the value and then, whenever it has changed, the newest one, until ctx or the scope ends. A slow consumer
// misses values in between, never the last one, and delays no other code.
func (v *Value[T]) Changes(ctx context.Context) iter.Seq[T] {
	return changes(ctx, &v.node, func() (T, uint64, error) { x, stamp := v.load(); return x, stamp, nil })
}

// Subscribe calls f with the value, and again after every change. w is the Writer of an effect that depends on this value alone. See
// [NewEffect] for in and the error.
func (v *Value[T]) Subscribe(in Owner, f func(w Writer, v T)) (*Effect, error) {
	return NewEffect(in, func(w Writer) {
		x := v.Get(w)
		Untracked(w, func(w Writer) { f(w, x) })
	})
}
