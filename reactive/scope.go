package reactive

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// Scope holds signals, computeds and effects that change together. The zero value is ready for use. A Scope must not be
// copied, and signals of different Scopes must not be mixed in one callback.
//
// A Scope has one lock, and holds it while one of its callbacks runs. A callback gets a tracker, a [Reader] or a [Writer], as proof
// of the lock: a method that takes a tracker takes no lock, and always sees the newest values. Methods without a tracker are for
// code outside of callbacks: Store, Batch(scope, ...), NewEffect(scope, ...), Subscribe, Wait, Changes, and Load of a computed
// that is out of date take the lock. In a callback of the scope they return an error that matches [ErrTracker]; Changes yields
// nothing. Load of a signal and Dispose never wait.
//
// Callbacks run on the goroutine that caused the change, one at a time. A callback may panic, which becomes an error, and
// may call runtime.Goexit, which ends that goroutine and leaves the scope usable. Callbacks should be short: other
// goroutines wait meanwhile.
type Scope struct {
	mu        sync.Mutex    // guards what follows, and all nodes
	clock     uint64        // advances with every change of a signal; versions are readings of it
	done      uint64        // its reading at the last commit
	committed atomic.Uint64 // the same: what Load may see

	active  *node        // the node whose callback runs, the innermost one
	evals   uint64       // callbacks begun so far: the number of the next one
	batch   node         // the tracker of batches
	written []revertible // signals written more than once since the last commit

	queue   []*Effect // effects that may have to run, from head
	head    int
	running *Effect   // the effect of the queue whose function runs
	round   int       // the queue's length when the current round began
	rounds  int       // since the queue was last empty
	flushes uint64    // how often the queue became empty
	leaving []*Effect // effects that are being disposed of
	hooks   []*node   // signals that gained their first subscriber or lost their last one
	stack   []check   // see refresh
	work    []*link   // see notify and attach
	errs    []error   // of callbacks since the lock was taken

	root     Effect      // the parent of effects that have none
	asked    atomic.Bool // there is work for the holder of the lock, see serve
	disposed atomic.Bool

	askMu  sync.Mutex // guards what follows; nothing else is locked under it
	doomed []*Effect  // effects to dispose of
	late   []error    // errors that no call could return
	lost   int        // how many more of these were dropped

	feed func() // of a Source: publishes changes, or notices that the scope was disposed of; may be nil
}

const (
	maxRounds = 100     // how often effects that cause each other to run let one of them run
	maxChain  = 1 << 20 // rounds without such an effect: effects that keep making new effects
	maxLate   = 16      // errors that are kept for Err
)

// Errors of this package.
var (
	// ErrCycle: a computed depends on itself.
	ErrCycle = errors.New("cycle")
	// ErrEffectLoop: effects keep changing their own dependencies.
	ErrEffectLoop = errors.New("effects do not come to rest")
	// ErrDisposed: the scope or the effect has been disposed of.
	ErrDisposed = errors.New("disposed")
	// ErrTracker: a tracker was used where it is not valid: after its callback returned, with a signal of another scope, or
	// to write inside a computed. Or a callback has called a function for code outside of callbacks.
	ErrTracker = errors.New("tracker misused")
)

// misuse is the value this package panics with when a callback breaks a rule. It becomes the callback's error.
type misuse struct {
	kind error
	text string
}

func (m *misuse) Error() string { return m.kind.Error() + ": " + m.text }
func (m *misuse) Unwrap() error { return m.kind }

// Owner owns an effect or a batch: a [*Scope], outside of its callbacks, or a [Writer], inside the callback that got it.
type Owner interface {
	place() (*Scope, *node)
}

// Reader is the tracker of a computed: it can read. The computed depends on every value that it reads with Get, not on values
// that it peeks at. A tracker is valid until its callback returns.
type Reader interface {
	tracker() *node
}

// Writer is the tracker of effects, batches and cleanups: it can read and write.
type Writer interface {
	Reader
	Owner
	// OnCleanup registers f to be called before the effect runs again, and when it is disposed of. Cleanups are called in reverse
	// order; if a run panics, its cleanups are called at once. Only effects have cleanups: in a batch OnCleanup panics.
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

// prove checks that the tracker's callback is running, which means that the lock is held.
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

// proveOuter is prove for any tracker, also of a callback that is not the innermost.
func (sc *Scope) proveOuter(t Reader) {
	if n := t.tracker(); n.scope != sc || n.flags&flagRunning == 0 {
		panic(&misuse{ErrTracker, "its callback has returned, or is of another scope"})
	}
}

// proveWriting is prove for a writer. A computed may have captured the writer of the callback around it: that is refused.
func (sc *Scope) proveWriting(t Writer) {
	if w, ok := t.(*writeTracker); ok && (*node)(w) == sc.active {
		return
	}
	sc.proveOuter(t)
	if sc.active.computed != nil {
		panic(&misuse{ErrTracker, "a computed does not write"})
	}
}

// Batch calls f. When f has returned, the effects that depend on its writes run, once each. With the Writer of a callback,
// Batch is part of that callback's batch: effects run when the outermost one ends. Load on other goroutines sees nothing of
// a batch until f has returned, and then all of it. A write that is undone before the end of the batch counts as no write.
//
// The error joins the panic of f, if there was one, and the panics of the effects that ran; f's writes stand. A nested Batch
// returns nil and lets panics pass.
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

// Untracked calls f. Values read in f do not become dependencies of the callback that got r. With a Writer, f may write.
func Untracked[R Reader](r R, f func(R)) {
	n := r.tracker()
	n.scope.prove(r)
	n = n.scope.active
	n.mute++
	defer func() { n.mute-- }()
	f(r)
}

// Dispose ends every effect, subscription, Wait and Changes of the scope and calls their cleanups. After that no callback
// runs, and signals keep their last values. It may be called from anywhere, any number of times. It does not wait for a running
// callback: called inside one, it takes effect when that has returned.
func (sc *Scope) Dispose() {
	sc.disposed.Store(true)
	sc.asked.Store(true)
	sc.serve()
}

// Err returns, and forgets, the errors of effects that no call has returned: of effects that ran because of a [Source], and of
// cleanups after a Dispose. The scope keeps the first 16, and counts the others.
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

// leave ends a call that has taken the scope's lock: it runs effects, releases the lock, and adds their errors to err.
func (sc *Scope) leave(err *error) {
	sc.active = nil // runtime.Goexit in a callback leaves it set
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

// quiet reports whether there is no work left to do before the lock is released.
func (sc *Scope) quiet() bool {
	return len(sc.queue) == 0 && len(sc.hooks) == 0 && len(sc.errs) == 0 && !sc.asked.Load()
}

// unlock releases the lock and does the work that other goroutines have left meanwhile.
func (sc *Scope) unlock() {
	sc.mu.Unlock()
	sc.serve()
}

// serve does the work that was left for the holder of the lock. If another goroutine holds the lock, that one does it before
// it releases the lock. So no goroutine waits for a callback, and a callback never waits for itself.
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

// tellLater keeps errors for Err.
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

// run is flush until an effect panics or ends the goroutine: all effects share one deferred function. After runtime.Goexit in an
// effect the others still run.
func (sc *Scope) run() (done bool) {
	defer func() {
		if done {
			return
		}
		goexit := true // in the callback, or in a cleanup called below
		defer func() {
			if goexit {
				sc.flush()
			}
		}()
		switch e := sc.running; {
		case e == nil:
		case e.flags&flagRunning == 0: // a cleanup before its next run has ended the goroutine
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

// rest resets the count of how often effects ran.
func (sc *Scope) rest() {
	sc.rounds = 0
	sc.flushes++
}

// giveUp clears a queue that would never become empty.
func (sc *Scope) giveUp() {
	for _, e := range sc.queue[sc.head:] {
		e.flags &^= flagNotified
	}
	sc.errs = append(sc.errs, fmt.Errorf("%w: one of them ran %d times", ErrEffectLoop, maxRounds))
	sc.head = len(sc.queue)
	sc.rest()
}

// takeOrders disposes of doomed effects, and makes the source publish its changes.
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
	for len(sc.leaving) > 0 { // an effect leaves the list when it is gone: a cleanup may end the goroutine
		sc.leaving[0].tearDown()
		sc.leaving[0] = nil
		sc.leaving = sc.leaving[1:]
	}
	if sc.feed != nil {
		sc.feed()
	}
}

// commit publishes the writes since the last commit, all at once, to Load.
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

// callHooks calls the OnWatch functions of signals that have gained their first subscriber or lost their last one.
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

// PanicError is the error of a callback that has panicked: the value, in the field Value, and the Stack of its goroutine, as
// runtime/debug.Stack returns it. It unwraps to a value of type error.
type PanicError = foreign.PanicError

// caught turns a panic value into an error. A panic that passes through several callbacks becomes an error once.
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
