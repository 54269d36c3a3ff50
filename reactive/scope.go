package reactive

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// Scope is a group of signals, computeds and effects that change together. The zero value is ready for use. A Scope must not be copied, and a
// callback must not use signals of several Scopes.
//
// A Scope has one lock. The goroutine that runs a callback of the scope holds this lock. A callback gets a tracker: a [Reader] or a [Writer]. The
// tracker proves that the caller holds the lock. So a method with a tracker as its argument does not take the lock, and always sees the newest
// values. Store, Wait and Changes are for code outside callbacks; so are Batch, NewEffect and Subscribe if their argument is the scope. All of these
// take the lock. Load of a computed takes the lock if the scope has changed. In a callback of the scope a call that takes the lock returns an error
// that matches [ErrTracker]; Changes yields no values there. Dispose, and Load of a signal, never wait for the lock. Callbacks run on the goroutine
// that caused the change, one at a time. A panic in a callback becomes an error. A callback may call runtime.Goexit, which ends the goroutine and
// leaves the scope usable. Callbacks should be short, since other goroutines wait for them.
type Scope struct {
	mu        sync.Mutex    // guards the fields below, and all nodes
	clock     uint64        // advances with every change of a signal; versions are values of the clock
	done      uint64        // the clock at the last commit
	committed atomic.Uint64 // a copy of done, which Load reads without the lock

	active  *node        // the innermost node whose callback runs
	evals   uint64       // the number of runs of computeds and effects that have begun
	batch   node         // the tracker of batches
	written []revertible // signals written more than once since the last commit

	queue   []*Effect // effects that may have to run, starting at index head
	head    int
	running *Effect   // the queued effect whose function is running
	round   int       // the queue's length when the current round began
	rounds  int       // rounds since the queue was last empty
	flushes uint64    // the number of times that the queue became empty
	leaving []*Effect // effects that are being disposed of
	hooks   []*node   // nodes that got their first subscriber or lost their last subscriber
	stack   []check   // see refresh
	work    []*link   // see notify and attach
	errs    []error   // the errors of callbacks since the lock was taken

	root     Effect      // the parent of effects that were not created in another effect
	asked    atomic.Bool // whether there is work for the holder of the lock, see serve
	disposed atomic.Bool

	askMu  sync.Mutex // guards the fields below; no other lock is taken while it is held
	doomed []*Effect  // effects to dispose of
	late   []error    // errors that Err will return
	lost   int        // the number of errors that were dropped because late was full

	feed func() // publishes the changes of a Source; nil for a scope without a Source
}

const (
	maxRounds = 100     // how often one effect may run before the queue is empty
	maxChain  = 1 << 20 // how many rounds may follow each other before the queue is empty; effects may keep creating effects
	maxLate   = 16      // how many errors the scope keeps for Err
)

// Errors of this package.
var (
	// ErrCycle is returned if a computed depends on itself.
	ErrCycle = errors.New("cycle")
	// ErrEffectLoop is returned if effects keep changing their own dependencies.
	ErrEffectLoop = errors.New("effects do not come to rest")
	// ErrDisposed is returned if the scope or the effect has been disposed of.
	ErrDisposed = errors.New("disposed")
	// ErrTracker is returned if a callback breaks one of these rules: use a tracker only while its callback runs, and only for its own scope; do not
	// write in a computed; do not register a cleanup in a batch; do not call a function that takes the scope's lock.
	ErrTracker = errors.New("tracker misused")
)

// misuse is the value with which this package panics if a callback breaks a rule. It becomes the callback's error.
type misuse struct {
	kind error
	text string
}

func (m *misuse) Error() string { return m.kind.Error() + ": " + m.text }
func (m *misuse) Unwrap() error { return m.kind }

// Owner owns an effect or a batch. Outside callbacks the owner is a [*Scope]. In a callback it is the callback's [Writer].
type Owner interface {
	place() (*Scope, *node)
}

// Reader is the tracker with which a computed reads values. The computed depends on every value that it reads with Get, but not on values that it
// reads with Peek. A tracker is valid until its callback returns.
type Reader interface {
	tracker() *node
}

// Writer is the tracker of an effect, a batch or a cleanup. The callback reads and writes values with it.
type Writer interface {
	Reader
	Owner
	// OnCleanup registers the cleanup f. The function f is called once: before the effect runs again, or when the effect is disposed of. The
	// cleanups of an effect are called in reverse order. If a run panics, its cleanups are called at once. Only effects have cleanups: in a batch
	// OnCleanup panics.
	OnCleanup(f func(Writer))
}

type (
	readTracker  node
	writeTracker node
)

func (t *readTracker) tracker() *node          { return (*node)(t) }
func (t *writeTracker) tracker() *node         { return (*node)(t) }
func (t *writeTracker) place() (*Scope, *node) { return t.scope, (*node)(t) }
func (sc *Scope) place() (*Scope, *node)       { return sc, nil }

func (t *writeTracker) OnCleanup(f func(Writer)) {
	t.scope.prove(t)
	e := t.effect
	if e == nil {
		panic(&misuse{ErrTracker, "a batch has no cleanup"})
	}
	e.cleanups = append(e.cleanups, f)
}

// The method `prove` panics unless the tracker's callback is running. While a callback runs, its goroutine holds the lock.
func (sc *Scope) prove(t Reader) {
	switch t := t.(type) {
	case *readTracker:
		if (*node)(t) == sc.active {
			return
		}
	case *writeTracker:
		if (*node)(t) == sc.active {
			return
		}
	}
	sc.proveOuter(t)
}

// proveOuter is the part of prove for a tracker whose callback is not the innermost running callback. It panics if this callback is not running, or
// belongs to another scope.
func (sc *Scope) proveOuter(t Reader) {
	if n := t.tracker(); n.scope != sc || n.flags&flagRunning == 0 {
		panic(&misuse{ErrTracker, "its callback has returned, or is of another scope"})
	}
}

// proveWriting is like prove, but for writes. It also panics if the innermost running callback belongs to a computed. A computed must not write, not
// even with the Writer of the effect or batch that reads the computed.
func (sc *Scope) proveWriting(t Writer) {
	if w, ok := t.(*writeTracker); ok && (*node)(w) == sc.active {
		return
	}
	sc.proveOuter(t)
	if sc.active.computed != nil {
		panic(&misuse{ErrTracker, "a computed does not write"})
	}
}

// Batch calls f. Then each effect that depends on a changed value runs once. If `in` is the Writer of a callback, the batch is part of that
// callback's batch: effects run when the outermost batch ends. Until the outermost batch ends, Load sees none of its writes; afterwards Load sees
// all of them. If a value is the same before and after the batch, it counts as unchanged.
//
// The error joins the panic of f, if f panicked, and the errors of the effects that ran. Batch keeps the writes of f even if f panics. A nested
// Batch returns nil, and does not recover from panics.
func Batch(in Owner, f func(Writer)) (err error) {
	sc, at := in.place()
	if at != nil {
		w := (*writeTracker)(at)
		sc.proveWriting(w)
		f(w)
		return nil
	}
	if err := sc.lock(); err != nil {
		return err
	}
	defer sc.leave(&err)
	sc.batch.scope, sc.batch.mute = sc, 1
	return sc.batch.call(f)
}

// Untracked calls f. Values that f reads do not become dependencies of the running callback. If r is a Writer, f may write.
func Untracked[R Reader](r R, f func(R)) {
	n := r.tracker()
	n.scope.prove(r)
	n = n.scope.active
	n.mute++
	defer func() { n.mute-- }()
	f(r)
}

// Dispose ends every effect, subscription, Wait and Changes of the scope, and calls the cleanups of the effects. Afterwards no effect runs, and no
// computed calls its function. Signals can still be read and set. Dispose may be called from anywhere, any number of times. Dispose does not wait
// for a running callback. In a callback, a call of Dispose takes effect when the callback has returned.
func (sc *Scope) Dispose() {
	sc.disposed.Store(true)
	sc.asked.Store(true)
	sc.serve()
}

// Err returns the errors that no other call returns, and removes them from the scope. Examples are the error of an effect that ran after a change of
// a [Source], and the error of a cleanup that ran after a Dispose. The scope keeps the first 16 errors and counts the others.
func (sc *Scope) Err() error {
	sc.askMu.Lock()
	defer sc.askMu.Unlock()
	if sc.lost > 0 {
		sc.late = append(sc.late, fmt.Errorf("%d more errors of effects", sc.lost))
	}
	err := errors.Join(sc.late...)
	sc.late, sc.lost = nil, 0
	return err
}

// The method `leave` ends a call that has taken the scope's lock: it runs effects, adds their errors to *err, and releases the lock.
func (sc *Scope) leave(err *error) {
	sc.active = nil // still set if a callback has called runtime.Goexit
	sc.commit()
	if sc.quiet() {
		sc.mu.Unlock()
		sc.serve()
		return
	}
	defer sc.unlock()
	sc.flush()
	if len(sc.errs) > 0 {
		*err = errors.Join(append([]error{*err}, sc.errs...)...)
		clear(sc.errs)
		sc.errs = sc.errs[:0]
	}
}

// The method `quiet` reports whether the lock can be released without further work.
func (sc *Scope) quiet() bool {
	return len(sc.queue) == 0 && len(sc.hooks) == 0 && len(sc.errs) == 0 && !sc.asked.Load()
}

// unlock releases the lock, and does the work that other goroutines requested while the lock was held.
func (sc *Scope) unlock() {
	sc.mu.Unlock()
	sc.serve()
}

// serve does the work that goroutines without the lock have requested. If another goroutine holds the lock, that goroutine does the work before
// or after it releases the lock. So the callers of serve never wait for a callback, and a callback that calls serve never waits for itself.
func (sc *Scope) serve() {
	for sc.asked.Load() && sc.mu.TryLock() {
		sc.answer()
	}
}

func (sc *Scope) answer() {
	defer sc.mu.Unlock()
	sc.flush()
	sc.tellLater(sc.errs...)
	clear(sc.errs)
	sc.errs = sc.errs[:0]
}

// tellLater stores errors until Err returns them.
func (sc *Scope) tellLater(errs ...error) {
	sc.askMu.Lock()
	defer sc.askMu.Unlock()
	for _, err := range errs {
		switch {
		case err == nil:
		case len(sc.late) < maxLate:
			sc.late = append(sc.late, err)
		default:
			sc.lost++
		}
	}
}

// flush commits the writes and runs effects until no work is left.
func (sc *Scope) flush() {
	for !sc.run() {
	}
}

// The method `run` does the work of flush until an effect panics or calls runtime.Goexit. After a panic, run returns false, and flush calls it
// again. So one deferred function is enough for all effects. After runtime.Goexit, the deferred function runs the remaining effects.
func (sc *Scope) run() (done bool) {
	defer func() {
		if done {
			return
		}
		goexit := true // false if the callback panicked; but it stays true if a cleanup that abort calls ends the goroutine by runtime.Goexit
		defer func() {
			if goexit {
				sc.flush()
			}
		}()
		switch e := sc.running; {
		case e == nil:
		case e.flags&flagRunning == 0: // a cleanup has called Goexit before the effect could run again
			sc.running = nil
			e.doom()
		default:
			v := recover()
			sc.running = nil
			if err := e.abort(v, nil); err != nil {
				sc.errs = append(sc.errs, err)
			}
			goexit = v == nil
		}
	}()
	sc.active, sc.stack = nil, sc.stack[:0]
	for {
		sc.commit()
		sc.callHooks()
		for sc.head < len(sc.queue) {
			if sc.head >= sc.round {
				if sc.rounds++; sc.rounds > maxChain {
					sc.giveUp()
					break
				}
				sc.round = len(sc.queue)
			}
			e := sc.queue[sc.head]
			sc.head++
			if a := e.oldestQueued(); a != e {
				a.rerun() // may dispose of e
				sc.commit()
			}
			e.rerun()
			sc.commit()
			sc.callHooks()
		}
		clear(sc.queue)
		sc.queue, sc.head, sc.round = sc.queue[:0], 0, 0
		if sc.asked.Load() {
			sc.rest()
			sc.takeOrders()
			continue
		}
		if sc.done == sc.clock && len(sc.hooks) == 0 {
			break
		}
	}
	sc.rest()
	return true
}

// The method `rest` resets the counts of rounds and runs.
func (sc *Scope) rest() {
	sc.rounds = 0
	sc.flushes++
}

// giveUp removes all effects from the queue, and records an error. Otherwise the effects would refill the queue forever.
func (sc *Scope) giveUp() {
	for _, e := range sc.queue[sc.head:] {
		e.flags &^= flagNotified
	}
	sc.errs = append(sc.errs, fmt.Errorf("%w: one of them ran %d times", ErrEffectLoop, maxRounds))
	sc.head = len(sc.queue)
	sc.rest()
}

// takeOrders disposes of the doomed effects, or of all effects if the scope's Dispose was called. Then it lets the source publish its changes.
func (sc *Scope) takeOrders() {
	sc.asked.Store(false)
	sc.askMu.Lock()
	sc.leaving = append(sc.leaving, sc.doomed...)
	clear(sc.doomed)
	sc.doomed = sc.doomed[:0]
	sc.askMu.Unlock()
	if sc.disposed.Load() {
		sc.root.dropChildren()
	}
	for len(sc.leaving) > 0 { // an effect leaves the list after its teardown, since a cleanup may call Goexit
		sc.leaving[0].tearDown()
		sc.leaving[0] = nil
		sc.leaving = sc.leaving[1:]
	}
	if sc.feed != nil {
		sc.feed()
	}
}

// commit makes the writes since the last commit visible to Load, all at once.
func (sc *Scope) commit() {
	if sc.done == sc.clock {
		return
	}
	if len(sc.written) > 0 {
		for _, s := range sc.written {
			s.revert()
		}
		clear(sc.written)
		sc.written = sc.written[:0]
	}
	sc.done = sc.clock
	sc.committed.Store(sc.clock)
}

// callHooks calls the OnWatch functions of signals that have got their first subscriber or lost their last subscriber.
func (sc *Scope) callHooks() {
	for len(sc.hooks) > 0 {
		n := sc.hooks[len(sc.hooks)-1]
		sc.hooks = sc.hooks[:len(sc.hooks)-1]
		n.flags &^= flagHooked
		h := n.watch
		on := n.subs != nil
		if on == h.told || sc.disposed.Load() && on {
			continue
		}
		h.told = on
		f := h.unwatched
		if on {
			f = h.watched
		}
		if f == nil {
			continue
		}
		sc.batch.scope, sc.batch.mute = sc, 1
		if err := sc.batch.call(f); err != nil {
			sc.errs = append(sc.errs, err)
		}
	}
}

// PanicError is the error of a callback that has panicked. Value is the panic value. Stack is the stack of the goroutine that panicked, in the form
// of runtime/debug.Stack. If Value is an error, Unwrap returns it.
type PanicError = foreign.PanicError

// The function `caught` turns a panic value into an error. If a panic passes through several callbacks, only the innermost wraps it.
func caught(v any) error {
	switch v := v.(type) {
	case *PanicError:
		return v
	case *misuse:
		return v
	}
	if err, ok := v.(error); ok {
		v = foreign.Bounded(err, func(error) foreign.Next { return foreign.Descend }, foreign.Renders)
	}
	return foreign.NewPanicError(v)
}
