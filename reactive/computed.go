package reactive

import (
	"context"
	"iter"
)

// Computed is a value that a function computes from signals and other computeds. A read of the computed calls the function if it is the first
// read, or if a value that the function has read has changed since the last call. A computed has no subscriptions unless an effect reads it,
// directly or through other computeds. The function must depend only on values that it reads with its Reader, and must not have side effects.
//
// If the function panics, the panic becomes the computed's error. The error remains until a value that the function has read changes. If the
// computed depends on itself, the error matches [ErrCycle].
type Computed[T any] struct {
	node
	f     func(Reader) T
	equal func(a, b T) bool
	value T
	err   error
	cell  cell[outcomeOf[T]] // the outcome of the last Load; until the scope changes, later calls of Load return it too
}

type outcomeOf[T any] struct {
	value   T
	err     error
	version uint64
}

// NewComputed returns a computed. A result of f that is == to the previous result counts as unchanged, so dependents of the computed do not run
// because of it.
func NewComputed[T comparable](sc *Scope, f func(Reader) T) *Computed[T] {
	return NewComputedFunc(sc, f, func(a, b T) bool { return a == b })
}

// NewComputedFunc returns a computed that compares values with the function `equal` instead of ==. Calls of `equal` count as a part of f: a panic
// of `equal` becomes the computed's error.
func NewComputedFunc[T any](sc *Scope, f func(Reader) T, equal func(a, b T) bool) *Computed[T] {
	c := &Computed[T]{f: f, equal: equal}
	c.scope, c.computed = sc, c
	c.flags = flagComputed
	return c
}

// Load returns the value or the error. Load is for code outside callbacks. If the scope has changed since the last Load, Load takes the lock. In a
// callback of the scope, Load would then wait for its own goroutine, so it returns an error that matches [ErrTracker]. In a disposed scope, Load
// does not call the function. It then returns the last value or error, or [ErrDisposed] if there is none.
func (c *Computed[T]) Load() (T, error) {
	x, _, err := c.load()
	return x, err
}

// The method `load` is like Load, but also returns the version of the outcome.
func (c *Computed[T]) load() (T, uint64, error) {
	if x, stamp, now := c.cell.load(&c.scope.committed); stamp == now {
		return x.value, x.version, x.err
	}
	return c.loadSlow()
}

func (c *Computed[T]) loadSlow() (x T, version uint64, err error) {
	sc := c.scope
	var ignored error // the errors of effects that run during Load; Load does not return these errors, because other calls caused the effects to run
	if err := sc.lock(); err != nil {
		return x, 0, err
	}
	defer func() { sc.tellLater(ignored) }()
	defer sc.leave(&ignored)
	c.pull()
	if c.flags&flagValue == 0 {
		return x, 0, ErrDisposed
	}
	if s := c.cell.slots[c.cell.newest].Load(); s != nil && s.value.version == c.version {
		s.stamp.Store(sc.clock) // the outcome is the same as at the last Load
	} else {
		c.cell.put(outcomeOf[T]{c.value, c.err, c.version}, noStamp).stamp.Store(sc.clock)
	}
	return c.value, c.version, c.err
}

// Get returns the value and makes it a dependency of the callback. If the computed has an error, Get panics with this error. Unless the callback
// recovers, the callback fails with the same error. See Try.
func (c *Computed[T]) Get(r Reader) T {
	c.read(r)
	if c.err != nil {
		panic(c.err)
	}
	return c.value
}

// Try is like Get, but returns the error instead of panicking.
func (c *Computed[T]) Try(r Reader) (T, error) {
	c.read(r)
	return c.value, c.err
}

func (c *Computed[T]) read(r Reader) {
	sc := c.scope
	sc.prove(r)
	if !c.fresh() {
		c.pull()
	}
	sc.track(&c.node)
}

// Peek is like Get, but does not make the value a dependency.
func (c *Computed[T]) Peek(r Reader) T {
	c.scope.prove(r)
	c.pull()
	if c.err != nil {
		panic(c.err)
	}
	return c.value
}

// pull refreshes the computed, unless the scope was disposed of. If the computed depends on itself, pull panics.
func (c *Computed[T]) pull() {
	if c.flags&flagRunning != 0 {
		panic(&misuse{ErrCycle, "a computed depends on itself"})
	}
	if !c.scope.disposed.Load() {
		c.refresh()
	}
}

// evaluate calls the function and stores the value.
func (c *Computed[T]) evaluate() {
	c.flags &^= flagValue | flagNotified
	outer := c.begin()
	x := c.f((*readTracker)(&c.node))
	if c.flags&flagMade == 0 || c.err != nil || !c.equal(c.value, x) {
		c.value, c.err = x, nil
		c.version = c.scope.clock
	}
	c.settled()
	c.end(outer)
}

func (c *Computed[T]) fail(err error) {
	c.err = err
	c.version = c.scope.clock
	c.settled()
}

// The method `settled` records that the value or the error is up to date.
func (c *Computed[T]) settled() {
	c.valid = c.scope.clock
	c.flags |= flagValue | flagMade
}

// Wait is like [Value.Wait]. If the computed has an error, Wait returns this error.
func (c *Computed[T]) Wait(ctx context.Context, predicate func(T) bool) (T, error) {
	return wait(ctx, &c.node, c.load, predicate)
}

// Changes is like [Value.Changes]. While the computed has an error, Changes yields no values.
func (c *Computed[T]) Changes(ctx context.Context) iter.Seq[T] {
	return changes(ctx, &c.node, c.load)
}

// Subscribe is like [Value.Subscribe]. If the effect runs while the computed has an error, the run fails with this error, and f is not called.
func (c *Computed[T]) Subscribe(in Owner, f func(w Writer, v T)) (*Effect, error) {
	return NewEffect(in, func(w Writer) {
		x := c.Get(w)
		Untracked(w, func(w Writer) { f(w, x) })
	})
}
