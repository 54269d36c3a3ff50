package reactive

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
)

// Effect is a callback that runs when it is created, and again when a value that it has read has changed.
type Effect struct {
	node
	f        func(Writer)
	wake     chan struct{} // wakes the goroutine that waits for a value; nil if the effect has a function
	cleanups []func(Writer)
	doomed   atomic.Bool // Dispose was called
	flush    uint64      // the number of the last flush in which the effect ran again
	reruns   int         // how often the effect ran again in that flush

	parent     *Effect // the effect in whose run this effect was created, or the scope's root
	lastChild  *Effect
	prev, next *Effect // the neighbours of the effect among its parent's children
}

// NewEffect runs f at once. f runs again if a value that its last run got with its Writer has changed. f runs at most once for each batch, with
// all values up to date. The writes of one run of f are a batch. The order of effects is undefined, except that an effect runs before the effects
// that were created in it.
//
// If an effect is created with the Writer of another effect, the other effect is its owner. The new effect is disposed of before the owner runs
// again, and when the owner is disposed of. The effects of one owner are disposed of in reverse order of creation. Values that the new effect
// reads do not become dependencies of the owner. If an effect is created in a cleanup, it is disposed of when the cleanup has returned. NewEffect
// returns [ErrDisposed] if the scope has been disposed of. It also does so while the owner is being disposed of, and after that.
//
// If the first run panics, NewEffect returns a nil Effect and the panic as an error. The first run may cause other effects to run. Outside
// callbacks, the error of NewEffect includes the errors of these effects. If a later run panics, the call that caused the run returns the panic,
// and the effect remains. If a cleanup panics, the effect is disposed of.
func NewEffect(in Owner, f func(Writer)) (e *Effect, err error) {
	sc, at := in.place()
	if at != nil {
		sc.proveWriting((*writeTracker)(at))
		return sc.newEffect(at.effect, f)
	}
	if err := sc.lock(); err != nil {
		return nil, err
	}
	defer sc.leave(&err)
	return sc.newEffect(nil, f)
}

// newEffect creates an effect. The parameter owner is the effect in whose callback the new effect is created, or nil if there is none.
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

// adopt makes e the last child of owner or, if owner is nil, of the scope's root.
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

// Dispose ends the effect: its cleanups are called, and f never runs again. Dispose may be called from anywhere, any number of times. Dispose does
// not wait for callbacks. If a callback of the scope is running, the cleanups are called after this callback.
func (e *Effect) Dispose() {
	if !e.doomed.Load() {
		e.doom()
		e.scope.serve()
	}
}

// The method `doom` marks the effect, and requests that a holder of the lock disposes of it.
func (e *Effect) doom() {
	sc := e.scope
	e.doomed.Store(true)
	sc.askMu.Lock()
	sc.doomed = append(sc.doomed, e)
	sc.askMu.Unlock()
	sc.asked.Store(true)
}

// tearDown disposes of e and of the effects that e owns. If a cleanup calls Goexit, e stays in its owner's list, and the next call of tearDown
// calls the remaining cleanups.
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

// quit removes the effect from its owner's list.
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

// The method `clear` disposes of the effects that the last run of e created, and calls the cleanups. After each cleanup it disposes of the effects
// that the cleanup created. It reports whether a cleanup failed.
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

// cleanUp calls a cleanup. If the cleanup panics, cleanUp returns the panic as an error. If the cleanup calls Goexit, the effect is disposed of
// later: see `doom`.
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

// oldestQueued looks for queued effects among e's owner, the owner's owner, and so on. It returns the outermost of them, or e if none of them is
// queued.
func (e *Effect) oldestQueued() *Effect {
	oldest := e
	for p := e.parent; p != nil; p = p.parent {
		if p.flags&flagNotified != 0 {
			oldest = p
		}
	}
	return oldest
}

// rerun runs a notified effect again if a value that the effect has read has changed. If the effect has no function, rerun instead wakes the
// goroutine that waits for a value.
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

// The method `run` calls the effect's function for the first time. If the function panics, `run` returns the panic as an error.
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

// abort is called if a run of f has panicked or called Goexit. It ends the run and calls the effect's cleanups. If v is a panic value, abort
// returns it as an error.
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
	default: // a wake-up is already pending
	}
}

// listen returns an effect without a function. When n may have changed, the effect sends to its channel `wake`, which has room for one message.
func listen(n *node) (*Effect, error) {
	sc := n.scope
	e := &Effect{wake: make(chan struct{}, 1)}
	var ignored error
	if err := sc.lock(); err != nil {
		return nil, err
	}
	defer func() { sc.tellLater(ignored) }()
	defer sc.leave(&ignored)
	if sc.disposed.Load() {
		e.scope = sc
		e.flags = flagTorn
		return e, nil
	}
	e.adopt(sc, nil)
	if n.computed != nil {
		n.refresh()
	}
	e.deps = &link{source: n, target: &e.node, version: n.version}
	sc.attach(e.deps)
	return e, nil
}

func wait[T any](ctx context.Context, n *node, load func() (T, uint64, error), predicate func(T) bool) (T, error) {
	x, _, err := load()
	if err != nil || predicate(x) {
		return x, err
	}
	e, err := listen(n)
	if err != nil {
		return x, err
	}
	defer e.Dispose()
	for {
		// This line must come before the call of load. Then, if `disposed` is true, the value that load returns is the last one.
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
		e, err := listen(n)
		if err != nil {
			return
		}
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
