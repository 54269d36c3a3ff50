package kahn

// node is what signals, computeds and effects have in common: a place in the graph of dependencies. A computed knows what
// it depends on; what it depends on knows the computed only while something observes it. So an unobserved computed holds
// no subscription, and can be collected.
type node struct {
	scope   *Scope
	version uint64 // when the value last changed, by the scope's clock
	seen    uint64 // the evaluation that has read it last
	subs    *link  // who is to be notified, in the order of subscription
	lastSub *link
	watch   *watchHooks // of a signal, may be nil

	deps    *link  // what the last evaluation has read, in the order of use
	lastDep *link  // while one is under way: the last one that it has read; the rest of deps is of the one before
	eval    uint64 // its number
	valid   uint64 // the clock when a computed was last known to be up to date
	mute    int    // reads are not tracked
	flags   nodeFlags

	// One of these says what the node is; a batch is none of them.
	signal   interface{ reverted() bool }
	computed interface{ recompute() }
	effect   *Effect
}

type nodeFlags uint8

const (
	flagRunning  nodeFlags = 1 << iota // its callback is on the stack
	flagNotified                       // something that it depends on may have changed; its dependents have been told
	flagValue                          // a computed has a value, or an error
	flagHooked                         // it is in Scope.hooks
	flagTorn                           // an effect has been disposed of
)

// link is one dependency. It is in the list of deps of its target, and while the target is observed in the list of
// subs of its source. Links are reused from one evaluation to the next.
type link struct {
	source, target   *node
	version          uint64 // of the source when the target has read it
	nextDep          *link
	prevSub, nextSub *link
	attached         bool
}

type watchHooks struct {
	watched, unwatched func(Writer)
	told               bool
}

// begin makes n the callback that is running, and returns the one that was.
func (n *node) begin() (outer *node) {
	sc := n.scope
	outer, sc.active = sc.active, n
	sc.evals++
	n.eval, n.lastDep = sc.evals, nil
	n.flags |= flagRunning
	return outer
}

// end undoes begin and drops the dependencies that were not read again.
func (n *node) end(outer *node) {
	n.scope.active = outer
	n.flags &^= flagRunning
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

// call calls f as the callback of n, untracked and with n's writer, and returns its panic as an error.
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

// track makes the source a dependency of the callback that is running. The source is up to date.
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

// attach subscribes a target to its source, and if that is a computed that nobody observed, it to its sources, and so on.
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

// detach is the opposite of attach. It does nothing for a link that is not attached.
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
				source.valid = sc.clock // up to date until now, when it ceases to be told of changes
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

// hook notes that a node has gained its first subscriber or lost its last, if it wants to know.
func (sc *Scope) hook(n *node) {
	if n.watch != nil && n.flags&flagHooked == 0 {
		n.flags |= flagHooked
		sc.hooks = append(sc.hooks, n)
	}
}

// notify tells everything that depends on n that it may be out of date, the nearest first and each once, and queues the
// effects among it.
func (sc *Scope) notify(n *node) {
	l := n.subs
	if l == nil {
		return
	}
	work := sc.work
	for next := 0; ; next++ {
		for ; l != nil; l = l.nextSub {
			t := l.target
			if t.flags&flagNotified != 0 {
				continue
			}
			t.flags |= flagNotified
			if t.effect != nil {
				sc.queue = append(sc.queue, t.effect)
			} else {
				work = append(work, t.subs)
			}
		}
		if next == len(work) {
			break
		}
		l = work[next]
	}
	clear(work) // nothing is kept from being collected
	sc.work = work[:0]
}

// fresh reports whether a computed is known to be up to date without a look at what it depends on.
func (n *node) fresh() bool {
	if n.subs != nil {
		return n.flags&(flagValue|flagNotified) == flagValue
	}
	return n.flags&flagValue != 0 && n.valid == n.scope.clock
}

// check is the place that refresh has come to in the dependencies of a computed.
type check struct {
	n  *node
	at *link
}

// refresh brings a computed up to date: it looks at its dependencies in the order of use, each brought up to date before,
// and evaluates it if one has changed. It does not recurse, except through user code that reads what it has not read before.
func (n *node) refresh() {
	if n.fresh() {
		return
	}
	sc := n.scope
	base := len(sc.stack)
	sc.stack = append(sc.stack, check{n, n.deps})
next:
	for len(sc.stack) > base {
		top := &sc.stack[len(sc.stack)-1]
		n := top.n
		changed := n.flags&flagValue == 0
		for ; top.at != nil && !changed; top.at = top.at.nextDep {
			source := top.at.source
			if source.computed != nil && !source.fresh() && source.flags&flagRunning == 0 {
				sc.stack = append(sc.stack, check{source, source.deps})
				continue next
			}
			changed = source.version != top.at.version || source.flags&flagRunning != 0
		}
		*top = check{}
		sc.stack = sc.stack[:len(sc.stack)-1]
		if changed {
			n.computed.recompute()
		} else {
			n.valid = sc.clock
			n.flags &^= flagNotified
		}
	}
}
