package reactive

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
)

// Effect is a callback that runs now, and again whenever something that it has read has changed.
type Effect struct {
	node
	f        func(Writer)
	wake     chan struct{} // instead of f: who waits here is to look for himself
	cleanups []func(Writer)
	doomed   atomic.Bool // Dispose was called
	flush    uint64      // in which it has run last
	reruns   int         // in that one

	parent     *Effect // whose run has made it, or the scope's root
	lastChild  *Effect
	prev, next *Effect // children of the same parent
}

// NewEffect runs f at once, and again after every change of what its last run has read with its Writer: once for a batch,
// with all values up to date. What f writes is a batch. Effects run in no particular order, except that the effect that an
// effect was made in comes first.
//
// Made with the Writer of an effect, it belongs to that: it is disposed of, in the reverse order of making, before the owner
// runs again and when it is disposed of. What an owned effect reads is not a dependency of its owner. One that is made in a
// cleanup is disposed of when that has returned; while its owner is being disposed of it is refused with [ErrDisposed], as
// everywhere in a scope that was disposed of.
//
// If the first run panics the effect is nil and the error is a [*PanicError], and the effect depends on nothing. Made from
// outside, the error also joins those of effects that the first run has caused to run. Later panics are errors of whoever
// caused the run, and the effect lives on; but a panic in a cleanup disposes of it.
func NewEffect(in Owner, f func(Writer)) (e *Effect, err error) {
	sc, at := in.place()
	if at != nil {
		sc.proveWriting((*writeTracker)(at))
		return sc.newEffect(at.effect, f)
	}
	sc.mu.Lock()
	defer sc.leave(&err)
	return sc.newEffect(nil, f)
}

// newEffect makes an effect that belongs to owner, which is nil outside of effects.
func (sc *Scope) newEffect(owner *Effect, f func(Writer)) (*Effect, error) {
	if sc.disposed.Load() || owner != nil && owner.flags&flagTorn != 0 {
		return nil, ErrDisposed
	}
	e := &Effect{f: f}
	e.adopt(sc, owner)
	ok := false
	defer func() {
		if !ok {
			e.tearDown()
		}
	}()
	if err := e.run(); err != nil {
		return nil, err
	}
	ok = true
	if e.doomed.Load() {
		e.tearDown()
	}
	return e, nil
}

// adopt makes the effect the last child of its owner, or of the root.
func (e *Effect) adopt(sc *Scope, owner *Effect) {
	e.scope, e.effect = sc, e
	if e.parent = owner; owner == nil {
		e.parent = &sc.root
	}
	e.prev = e.parent.lastChild
	if e.prev != nil {
		e.prev.next = e
	}
	e.parent.lastChild = e
}

// Dispose ends the effect: its cleanup is called, and then neither runs again. It may be called from anywhere, any number
// of times, and does not wait for callbacks: when one is running, its own or another one, the cleanup is called after it.
func (e *Effect) Dispose() {
	if !e.doomed.Load() {
		e.doom()
		e.scope.serve()
	}
}

// doom leaves it to the holder of the lock to tear the effect down.
func (e *Effect) doom() {
	sc := e.scope
	e.doomed.Store(true)
	sc.askMu.Lock()
	sc.doomed = append(sc.doomed, e)
	sc.askMu.Unlock()
	sc.asked.Store(true)
}

// tearDown disposes of the effect and of what it owns. If a cleanup ends the goroutine, the effect stays with its owner, and
// the next call goes on where this one has stopped.
func (e *Effect) tearDown() {
	if e.flags&flagTorn == 0 {
		e.flags |= flagTorn
		e.doomed.Store(true)
		for l := e.deps; l != nil; l = l.nextDep {
			e.scope.detach(l)
		}
		e.deps = nil
		if e.wake != nil {
			e.wakeUp()
		}
	}
	e.clear()
	e.quit()
}

// quit takes the effect from its owner's list.
func (e *Effect) quit() {
	if e.parent == nil {
		return
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		e.parent.lastChild = e.prev
	}
	if e.prev != nil {
		e.prev.next = e.next
	}
	e.parent, e.prev, e.next = nil, nil, nil
}

func (e *Effect) dropChildren() {
	for e.lastChild != nil {
		e.lastChild.tearDown()
	}
}

// clear disposes of what the last run has left: the effects that it has made, then its cleanups, and whatever these have made
// in turn. It reports whether a cleanup failed.
func (e *Effect) clear() (failed bool) {
	e.dropChildren()
	for left := len(e.cleanups) + maxRounds; len(e.cleanups) > 0; left-- {
		if left == 0 {
			clear(e.cleanups)
			e.cleanups = e.cleanups[:0]
			e.scope.errs = append(e.scope.errs, fmt.Errorf("%w: %d cleanups of cleanups", ErrEffectLoop, maxRounds))
			return true
		}
		last := len(e.cleanups) - 1
		f := e.cleanups[last]
		e.cleanups[last] = nil
		e.cleanups = e.cleanups[:last]
		if err := e.cleanUp(f); err != nil {
			e.scope.errs = append(e.scope.errs, err)
			failed = true
		}
		e.dropChildren()
	}
	return failed
}

// cleanUp calls a cleanup and returns its panic as an error. If it ends the goroutine, the effect is disposed of by whoever
// holds the lock next.
func (e *Effect) cleanUp(f func(Writer)) error {
	returned := false
	defer func() {
		if !returned {
			e.doom()
		}
	}()
	err := e.call(f)
	returned = true
	return err
}

// oldestQueued returns the outermost of the effect and those that it belongs to that is to run.
func (e *Effect) oldestQueued() *Effect {
	oldest := e
	for p := e.parent; p != nil; p = p.parent {
		if p.flags&flagNotified != 0 {
			oldest = p
		}
	}
	return oldest
}

// rerun runs a notified effect if something that it has read has changed.
func (e *Effect) rerun() {
	if e.flags&flagNotified == 0 {
		return
	}
	e.flags &^= flagNotified
	if e.doomed.Load() || e.scope.disposed.Load() {
		return
	}
	if e.wake != nil {
		e.wakeUp()
		return
	}
	if !e.outdated() {
		return
	}
	if e.flush != e.scope.flushes {
		e.flush, e.reruns = e.scope.flushes, 0
	}
	if e.reruns++; e.reruns > maxRounds {
		e.scope.giveUp()
		return
	}
	e.scope.running = e
	if failed := e.clear(); failed || e.doomed.Load() {
		e.scope.running = nil
		e.tearDown()
		return
	}
	outer := e.begin()
	e.f((*writeTracker)(&e.node))
	e.end(outer)
	e.scope.running = nil
	if e.doomed.Load() {
		e.tearDown()
	}
}

func (e *Effect) outdated() bool {
	for l := e.deps; l != nil; l = l.nextDep {
		if l.source.flags&flagComputed != 0 {
			l.source.refresh()
		}
		if l.version != l.source.version {
			return true
		}
	}
	return false
}

// run calls the effect's function for the first time and returns its panic as an error.
func (e *Effect) run() (err error) {
	ok := false
	outer := e.begin()
	defer func() {
		if !ok {
			err = e.abort(recover(), outer)
		}
	}()
	e.f((*writeTracker)(&e.node))
	e.end(outer)
	ok = true
	return nil
}

// abort ends a run of the function that did not return, and cleans up after it at once.
func (e *Effect) abort(v any, outer *node) (err error) {
	if v != nil {
		err = caught(v)
	}
	e.end(outer)
	e.clear()
	return err
}

func (e *Effect) wakeUp() {
	select {
	case e.wake <- struct{}{}:
	default: // it has been told already
	}
}

// listen returns an effect that wakes its holder, with room for one message, whenever n may have changed.
func listen(n *node) *Effect {
	sc := n.scope
	e := &Effect{wake: make(chan struct{}, 1)}
	var ignored error
	sc.mu.Lock()
	defer func() { sc.tellLater(ignored) }()
	defer sc.leave(&ignored)
	if sc.disposed.Load() {
		e.scope = sc
		e.flags = flagTorn
		return e
	}
	e.adopt(sc, nil)
	if n.computed != nil {
		n.refresh()
	}
	e.deps = &link{source: n, target: &e.node, version: n.version}
	sc.attach(e.deps)
	return e
}

func wait[T any](ctx context.Context, n *node, load func() (T, uint64, error), predicate func(T) bool) (T, error) {
	x, _, err := load()
	if err != nil || predicate(x) {
		return x, err
	}
	e := listen(n)
	defer e.Dispose()
	for {
		// What was disposed of is seen with the last value.
		disposed := n.scope.disposed.Load()
		if x, _, err = load(); err != nil || predicate(x) {
			return x, err
		}
		if disposed {
			return x, ErrDisposed
		}
		select {
		case <-e.wake:
		case <-ctx.Done():
			return x, context.Cause(ctx)
		}
	}
}

func changes[T any](ctx context.Context, n *node, load func() (T, uint64, error)) iter.Seq[T] {
	return func(yield func(T) bool) {
		e := listen(n)
		defer e.Dispose()
		seen := uint64(noStamp)
		for ctx.Err() == nil {
			disposed := n.scope.disposed.Load()
			x, version, err := load()
			if version != seen && err == nil {
				seen = version
				if !yield(x) {
					return
				}
			}
			if disposed {
				return
			}
			select {
			case <-e.wake:
			case <-ctx.Done():
			}
		}
	}
}
