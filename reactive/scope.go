package reactive

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// Scope holds signals, computeds and effects that change together. The zero value is ready for use. A Scope must not be
// copied, and what belongs to different Scopes does not mix.
//
// A Scope has one lock. It is held while a callback of the scope runs, and a callback gets a tracker, a [Reader] or a
// [Writer], that proves it: what is called with a tracker needs no lock and always sees the newest values. What takes no
// tracker is for the outside: Store, Batch(scope, ...), NewEffect(scope, ...), Subscribe, Wait, Changes, and Load of a computed
// that is out of date take the lock, and would wait for it forever inside a callback. Load of a signal and Dispose never
// wait.
//
// Callbacks run on the goroutine that caused the change, one at a time. They may panic, which becomes an error, and may call
// runtime.Goexit, which ends that goroutine and leaves the scope usable. They should be short: everybody else waits.
type Scope struct {
	mu        sync.Mutex    // guards what follows, and all nodes
	clock     uint64        // advances with every change of a signal; versions are readings of it
	done      uint64        // its reading at the last commit
	committed atomic.Uint64 // the same: what Load may see

	active  *node        // whose callback runs, the innermost one
	evals   uint64       // callbacks begun so far: each has a number of its own
	batch   node         // the tracker of batches
	written []revertible // signals that were written more than once since the last commit

	queue   []*Effect // effects that may have to run, from head
	head    int
	running *Effect   // of the queue, whose function runs
	round   int       // the queue's length when the current round began
	rounds  int       // since the queue was last empty
	flushes uint64    // how often it was
	leaving []*Effect // effects that are being disposed of
	hooks   []*node   // signals that have gained their first subscriber or lost their last
	stack   []check   // see refresh
	work    []*link   // see notify and attach
	errs    []error   // of callbacks since the lock was taken

	root     Effect      // the parent of effects that have none
	asked    atomic.Bool // something is to be done by whoever holds the lock, see serve
	disposed atomic.Bool

	askMu  sync.Mutex // guards what follows; nothing else is locked under it
	doomed []*Effect  // effects to dispose of
	late   []error    // errors that nobody could be told
	lost   int        // more of these

	feed func() // brings in changes from elsewhere, or learns that the scope was disposed of. May be nil
}

const (
	maxRounds = 100     // how often effects that cause each other to run let one of them run
	maxChain  = 1 << 20 // how many rounds they have without such a one: effects that go on making new ones
	maxLate   = 16      // errors that are kept for Err
)

// Errors of this package.
var (
	// ErrCycle: a computed depends on itself.
	ErrCycle = errors.New("cycle")
	// ErrEffectLoop: effects keep changing what they depend on.
	ErrEffectLoop = errors.New("effects do not come to rest")
	// ErrDisposed: the scope or the effect has been disposed of.
	ErrDisposed = errors.New("disposed")
	// ErrTracker: a tracker was used where it proves nothing: after its callback returned, with a signal of another scope,
	// or to write inside a computed.
	ErrTracker = errors.New("tracker misused")
)

// misuse is what this package panics with in a callback that does what it must not. It becomes the callback's error.
type misuse struct {
	kind error
	text string
}

func (m *misuse) Error() string { return m.kind.Error() + ": " + m.text }
func (m *misuse) Unwrap() error { return m.kind }

// Owner is where effects and batches belong: to a [*Scope], from outside of its callbacks, or to the callback whose
// [Writer] it is.
type Owner interface {
	place() (*Scope, *node)
}

// Reader is the tracker of a computed: it can read. What is read with it, and not peeked at, is what the computed depends
// on. It is good until its callback returns.
type Reader interface {
	tracker() *node
}

// Writer is the tracker of effects, batches and cleanups: it can read and write.
type Writer interface {
	Reader
	Owner
	// OnCleanup has f called before the effect runs again, and when it is disposed of. Several are called in reverse order,
	// those of a run that panics at once. Only effects have cleanups: in a batch it panics.
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

// prove checks that a tracker's callback is running, and so that the lock is held.
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

// proveWriting is prove for a writer, which may be borrowed from around a computed.
func (sc *Scope) proveWriting(t Writer) {
	if w, ok := t.(*writeTracker); ok && (*node)(w) == sc.active {
		return
	}
	sc.proveOuter(t)
	if sc.active.computed != nil {
		panic(&misuse{ErrTracker, "a computed does not write"})
	}
}

// Batch calls f and lets effects run when it has returned, once each, with all that f has written. With the Writer of a
// callback it is part of that callback's batch: effects run when the outermost one ends. Load on other goroutines sees
// nothing of a batch until f has returned, and then all of it. A write that is reverted before the end has not happened.
//
// The error joins the panic of f, if there was one, and those of the effects that ran; f's writes stand. A nested Batch
// returns nil and lets panics pass.
func Batch(in Owner, f func(Writer)) (err error) {
	sc, at := in.place()
	if at != nil {
		w := (*writeTracker)(at)
		sc.proveWriting(w)
		f(w)
		return nil
	}
	sc.mu.Lock()
	defer sc.leave(&err)
	sc.batch.scope, sc.batch.mute = sc, 1
	return sc.batch.call(f)
}

// Untracked calls f with what is read not becoming a dependency of the callback that r is the tracker of. A Writer may
// write.
func Untracked[R Reader](r R, f func(R)) {
	n := r.tracker()
	n.scope.prove(r)
	n = n.scope.active
	n.mute++
	defer func() { n.mute-- }()
	f(r)
}

// Dispose ends every effect, subscription, Wait and Changes of the scope. Their cleanups are called; after that no callback
// runs, and signals keep their last values. It may be called from anywhere, any number of times, and does not wait for a
// callback that is running: inside one it takes effect when that has returned.
func (sc *Scope) Dispose() {
	sc.disposed.Store(true)
	sc.asked.Store(true)
	sc.serve()
}

// Err returns and forgets the errors of effects that no caller was told: those of effects that ran because of a
// [Source], and of cleanups after a Dispose. It keeps a handful.
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

// leave ends a visit to the scope that began with taking its lock: effects run, the lock is released, and errors are
// added to err.
func (sc *Scope) leave(err *error) {
	sc.active = nil // a goroutine that ends in a callback leaves it behind
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

// quiet reports whether there is nothing to do but to release the lock.
func (sc *Scope) quiet() bool {
	return len(sc.queue) == 0 && len(sc.hooks) == 0 && len(sc.errs) == 0 && !sc.asked.Load()
}

// unlock releases the lock and does what was asked for in the meantime.
func (sc *Scope) unlock() {
	sc.mu.Unlock()
	sc.serve()
}

// serve does what was asked for, unless somebody holds the lock, who will do it before going. So nobody waits for a callback,
// least of all for one that called.
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

// flush commits what was written and runs effects until nothing is left to do.
func (sc *Scope) flush() {
	for !sc.run() {
	}
}

// run is flush until an effect does not return, and so all effects have one guard against that. One that ends the goroutine
// does not keep the others from running.
func (sc *Scope) run() (done bool) {
	defer func() {
		if done {
			return
		}
		goexit := true // of the callback, or of a cleanup that is called here
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
				a.rerun() // which may dispose of e
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

// rest begins a new count of how often effects run.
func (sc *Scope) rest() {
	sc.rounds = 0
	sc.flushes++
}

// giveUp takes everything off a queue that will not become empty.
func (sc *Scope) giveUp() {
	for _, e := range sc.queue[sc.head:] {
		e.flags &^= flagNotified
	}
	sc.errs = append(sc.errs, fmt.Errorf("%w: one of them ran %d times", ErrEffectLoop, maxRounds))
	sc.head = len(sc.queue)
	sc.rest()
}

// takeOrders disposes of what is to be disposed of, and brings in what the feed has.
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

// commit publishes what was written since the last commit, all at once, to Load.
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

// callHooks tells signals that have asked for it that somebody watches them, or nobody does any more.
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
// runtime/debug.Stack returns it. It unwraps to the value if that is an error.
type PanicError = foreign.PanicError

// caught turns what a callback panicked with into an error. What passes through several callbacks stays what it was.
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
