package reactive

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
)

// Effect is a callback that runs at once, and again whenever a value that it has read changes.
type Effect struct {
	node
	f        func(Writer)
	wake     chan struct{} // wakes the goroutine that waits for a value; nil if the effect has a function
	cleanups []func(Writer)
	doomed   atomic.Bool // Dispose was called
	flush    uint64      // the number of the last flush in which the effect ran
	reruns   int         // the number of runs of the effect in that flush

	parent     *Effect // the effect in whose run this effect was created, or the scope's root
	lastChild  *Effect
	prev, next *Effect // the neighbours of the effect among its parent's children
}

// NewEffect runs f at once, and again after every change of a value that the last run of f has read with its Writer. f runs once for each batch,
// with all values up to date. The writes of one run of f are a batch. Effects run in no particular order, but an effect runs before the effects
// that were created in it.
//
// An effect that is created with the Writer of another effect belongs to that effect, which is its owner. The new effect is disposed of before its
// owner runs again, and when its owner is disposed of. The effects of one owner are disposed of in reverse order of creation. Values that the new
// effect reads are not dependencies of its owner. An effect that is created in a cleanup is disposed of when the cleanup has returned. NewEffect
// returns [ErrDisposed] in a disposed scope, and while the owner is being disposed of.
//
// If the first run panics, there is no effect: NewEffect returns nil and a [*PanicError]. The first run may cause other effects to run. If NewEffect
// is called outside callbacks, its error includes their errors. If a later run panics, the call that caused the run returns the panic, and the effect
// remains. A panic in a cleanup disposes of the effect.
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

// Dispose ends the effect: its cleanups are called, and f never runs again. Dispose may be called from anywhere, any number of times. It does not
// wait for callbacks: if a callback of the scope is running, the cleanups are called after this callback.
func (e *Effect) Dispose() {
	if !e.doomed.Load() {
		e.doom()
		e.scope.serve()
	}
}

// The method `doom` marks the effect, so that the holder of the lock tears it down.
func (e *Effect) doom() {
	sc := e.scope
	e.doomed.Store(true)
	sc.askMu.Lock()
	sc.doomed = append(sc.doomed, e)
	sc.askMu.Unlock()
	sc.asked.Store(true)
}

// tearDown disposes of the effect and of the effects that it owns. If a cleanup calls Goexit, the effect stays in its owner's list, and the next
// call continues where this call stopped.
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

// The method `clear` disposes of the effects that were created in the last run, calls the cleanups, and disposes of the effects that were created in
// the cleanups. It reports whether a cleanup failed.
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

// cleanUp calls a cleanup and returns its panic as an error. If the cleanup calls Goexit, the next holder of the lock disposes of the effect.
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

// oldestQueued returns the outermost queued effect among e's owners, or e if none of them is queued.
func (e *Effect) oldestQueued() *Effect {
	oldest := e
	for p := e.parent; p != nil; p = p.parent {
		if p.flags&flagNotified != 0 {
			oldest = p
		}
	}
	return oldest
}

// rerun runs a notified effect if a value that it has read has changed. If the effect has no function, rerun only wakes the waiting goroutine.
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

// The method `run` calls the effect's function for the first time and returns its panic as an error.
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

// abort ends a run of f that did not return, and calls the effect's cleanups at once.
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

// listen returns an effect that sends to its wake channel whenever n may have changed. The channel has room for one message.
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
		// This line comes before the call of load: if `disposed` is true, the value that load returns no longer changes.
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
