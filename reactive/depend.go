package reactive

import "github.com/seed-c794f7ef/kahn/internal/foreign"

// node is the common part of signals, computeds and effects: a vertex of the dependency graph. The nodes that a computed reads are its sources.
// The computed always has links to its sources. A computed is observed while an effect reads it, directly or through other computeds. Only an
// observed computed is subscribed to its sources: they have links to it. So an unobserved computed can be garbage-collected, even if its sources
// remain.
//
// A change accesses the first fields of every node that it affects. These fields fit into one cache line.
type node struct {
	scope   *Scope
	flags   nodeFlags
	mute    int32  // > 0 while reads are not tracked
	version uint64 // the time of the value's last change, by the scope's clock
	seen    uint64 // the number of the last evaluation that read the node
	subs    *link  // the nodes to notify, in the order of subscription
	deps    *link  // the nodes that the last evaluation read, in the order of first use
	lastDep *link  // during an evaluation: the link to the node that was first read last; later links are from the previous evaluation
	eval    uint64 // the number of the node's last evaluation

	// At most one of these two fields is set. For signals and batches both are nil.
	computed evaluator
	effect   *Effect

	valid   uint64 // for an unobserved computed: the last time, by the scope's clock, at which the computed was known to be up to date
	lastSub *link
	watch   *watchHooks // for a signal; may be nil
}

// evaluator is a Computed of any type.
type evaluator interface {
	evaluate()      // calls the function; if the function panics, evaluate panics too
	fail(err error) // makes err the outcome
}

type nodeFlags uint8

const (
	flagRunning   nodeFlags = 1 << iota // the callback is on the stack
	flagNotified                        // a source may have changed; the node's dependents have been notified
	flagValue                           // a computed has an up-to-date value or error
	flagHooked                          // the node is in Scope.hooks
	flagTorn                            // the effect was disposed of
	flagMade                            // the computed has had a value or an error
	flagComputed                        // the node is a computed
	flagRewritten                       // the signal was written more than once since the last commit
)

// link is one dependency: the target has read the source. Every link is in the deps of its target. While the target is an effect or an observed
// computed, the link is also in the subs of its source. The next evaluation of the target reuses the link if it
// reads the same source at the same position.
type link struct {
	source, target   *node
	version          uint64 // the version of the source when the target read it
	nextDep          *link
	prevSub, nextSub *link
	attached         bool
}

type watchHooks struct {
	watched, unwatched func(Writer)
	told               bool
}

// begin makes n the running callback, and returns the previous one.
func (n *node) begin() (outer *node) {
	sc := n.scope
	outer, sc.active = sc.active, n
	sc.evals++
	n.eval, n.lastDep = sc.evals, nil
	n.flags |= flagRunning
	return outer
}

// The method `end` makes `outer` the running callback again, and drops the dependencies that n has not read in this evaluation.
func (n *node) end(outer *node) {
	n.scope.active = outer
	n.flags &^= flagRunning
	if n.lastDep == nil || n.lastDep.nextDep != nil {
		n.shorten()
	}
}

// shorten drops the dependencies after n.lastDep, the last dependency of this evaluation.
func (n *node) shorten() {
	rest := n.deps
	if n.lastDep != nil {
		rest, n.lastDep.nextDep = n.lastDep.nextDep, nil
	} else {
		n.deps = nil
	}
	for ; rest != nil; rest = rest.nextDep {
		n.scope.detach(rest)
	}
}

// The method `call` runs f as a callback of n, with n's Writer. Values that f reads do not become dependencies. If f panics, `call` returns the
// panic as an error.
func (n *node) call(f func(Writer)) (err error) {
	sc := n.scope
	outer, running := sc.active, n.flags&flagRunning
	sc.active = n
	n.flags |= flagRunning
	n.mute++
	defer func() {
		sc.active = outer
		n.mute--
		n.flags = n.flags&^flagRunning | running
		if v := recover(); v != nil {
			err = caught(v)
		}
	}()
	f((*writeTracker)(n))
	return nil
}

// track makes the source a dependency of the running callback. The source must be up to date.
func (sc *Scope) track(source *node) {
	n := sc.active
	if n.mute > 0 || source.seen == n.eval {
		return
	}
	source.seen = n.eval
	next := n.deps
	if n.lastDep != nil {
		next = n.lastDep.nextDep
	}
	if next != nil && next.source == source {
		next.version = source.version
		n.lastDep = next
		return
	}
	l := &link{source: source, target: n, version: source.version, nextDep: next}
	if n.lastDep != nil {
		n.lastDep.nextDep = l
	} else {
		n.deps = l
	}
	n.lastDep = l
	if n.effect != nil || n.subs != nil {
		sc.attach(l)
	}
}

// attach subscribes the target of l to its source. If the source is a computed that had no subscriber before, attach also subscribes this computed
// to its own sources, and so on.
func (sc *Scope) attach(l *link) {
	work := sc.work
	for {
		source := l.source
		l.attached, l.prevSub, l.nextSub = true, source.lastSub, nil
		source.lastSub = l
		if l.prevSub != nil {
			l.prevSub.nextSub = l
		} else {
			source.subs = l
			sc.hook(source)
			work = appendLink(work, source.deps)
		}
		if len(work) == 0 {
			break
		}
		l = work[len(work)-1]
		work[len(work)-1] = nil
		work = appendLink(work[:len(work)-1], l.nextDep)
	}
	sc.work = work
}

// detach reverses attach. If l is not attached, detach does nothing.
func (sc *Scope) detach(l *link) {
	if !l.attached {
		return
	}
	work := sc.work
	for {
		source := l.source
		if l.prevSub != nil {
			l.prevSub.nextSub = l.nextSub
		} else {
			source.subs = l.nextSub
		}
		if l.nextSub != nil {
			l.nextSub.prevSub = l.prevSub
		} else {
			source.lastSub = l.prevSub
		}
		l.attached, l.prevSub, l.nextSub = false, nil, nil
		if source.subs == nil {
			sc.hook(source)
			if source.flags&(flagNotified|flagValue) == flagValue {
				source.valid = sc.clock // the source is up to date now, and gets no further notifications
			}
			source.flags &^= flagNotified
			work = appendLink(work, source.deps)
		}
		if len(work) == 0 {
			break
		}
		l = work[len(work)-1]
		work[len(work)-1] = nil
		work = appendLink(work[:len(work)-1], l.nextDep)
	}
	sc.work = work
}

func appendLink(list []*link, l *link) []*link {
	if l == nil {
		return list
	}
	return append(list, l)
}

// The method `hook` records that a node with OnWatch functions has got its first subscriber or lost its last subscriber.
func (sc *Scope) hook(n *node) {
	if n.watch != nil && n.flags&flagHooked == 0 {
		n.flags |= flagHooked
		sc.hooks = append(sc.hooks, n)
	}
}

// notify finds the effects and the observed computeds that depend on n, directly or through other computeds. It marks each of them once as
// possibly out of date, and queues the effects.
func (sc *Scope) notify(n *node) {
	l := n.subs
	if l == nil {
		return
	}
	work := sc.work
	for {
		t, next := l.target, l.nextSub
		if t.flags&flagNotified == 0 {
			t.flags |= flagNotified
			if t.effect != nil {
				sc.queue = append(sc.queue, t.effect)
			} else { // the target is a computed; it is subscribed to its source, so it has subscribers itself
				work = appendLink(work, next)
				next = t.subs
			}
		}
		for next == nil {
			if len(work) == 0 {
				sc.work = work
				return
			}
			next = work[len(work)-1]
			work[len(work)-1] = nil // lets the garbage collector free the link
			work = work[:len(work)-1]
		}
		l = next
	}
}

// The method `fresh` reports whether a computed is certainly up to date, without looking at the dependencies of the computed.
func (n *node) fresh() bool {
	if n.subs != nil {
		return n.flags&(flagValue|flagNotified) == flagValue
	}
	return n.flags&flagValue != 0 && n.valid == n.scope.clock
}

// The type `check` is an entry of the stack of `refresh`: a computed n, and the dependency that must be refreshed before the check of n continues.
type check struct {
	n  *node
	at *link
}

// refresh brings the outcome of a computed up to date. It refreshes the computed's dependencies in the order of use until it finds a dependency that has
// changed. If there is one, refresh evaluates the computed. The only recursion is through user code: if the function of a computed reads another
// computed that is out of date, this read calls refresh.
func (n *node) refresh() {
	if n.fresh() {
		return
	}
	sc := n.scope
	base, l := len(sc.stack), n.deps
	for {
		failed := sc.climb(base, n, l)
		if failed == nil {
			return
		}
		if failed.flags&flagValue == 0 { // recover returned nil because the function called panic(nil) under GODEBUG=panicnil=1
			failed.computed.fail(foreign.NewPanicError(nil))
		}
		if len(sc.stack) == base {
			return
		}
		n, l = sc.pop()
	}
}

// climb is the part of refresh that checks n, beginning at its dependency l, and then the computeds on the stack above `base`. If the function of
// a computed panics, the panic becomes the error of this computed, and climb returns early with this computed. If the function calls
// runtime.Goexit, the computed has neither a value nor an error.
func (sc *Scope) climb(base int, n *node, l *link) (failed *node) {
	outer := sc.active
	defer func() {
		if failed == nil {
			return
		}
		if v := recover(); v != nil {
			failed.computed.fail(caught(v))
		}
		failed.end(outer)
	}()
next:
	for {
		changed := n.flags&flagValue == 0
		for ; l != nil && !changed; l = l.nextDep {
			source := l.source
			if source.flags&(flagComputed|flagRunning) == flagComputed && !source.fresh() {
				sc.stack = append(sc.stack, check{n, l})
				n, l = source, source.deps
				continue next
			}
			changed = source.version != l.version || source.flags&flagRunning != 0
		}
		if changed {
			failed = n
			n.computed.evaluate()
			failed = nil
		} else {
			n.valid = sc.clock
			n.flags &^= flagNotified
		}
		if len(sc.stack) == base {
			return nil
		}
		n, l = sc.pop()
	}
}

func (sc *Scope) pop() (*node, *link) {
	top := &sc.stack[len(sc.stack)-1]
	n, l := top.n, top.at
	*top = check{}
	sc.stack = sc.stack[:len(sc.stack)-1]
	return n, l
}
