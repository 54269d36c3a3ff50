package kahn

import "slices"

// restored is what a State knows of a node whose join has decided, in a form in which another State goes on with it.
type restored struct {
	status                                                        Status // Idle for a node that is checked
	checking, reached, substituted, propagated, tolerated, bypass bool
	// route are the labels that a completed condition has taken.
	route []int32
	// cause is that of a node that failed or was stopped, or for which a running one was asked to stop; skip that of a skipped one.
	cause CauseKind
	skip  SkipKind
	// origin is the node that caused a stop or a supersession, or noRef. by is the deciding in-edge of a skip, among the node's
	// in-edges, or its port, from 1; else 0.
	origin           Ref
	by               int
	settled, decided int32 // logical times
	started          int32 // attempts
	// Of a composite whose nested run goes on, and that is running; dormant if all that is left in there waits. draining: it is not
	// to be retried.
	inside, dormant, draining bool
	judging                   bool // a node that has a slot: its inputs were being judged
}

// restore restores the state of a node.
func (s *State) restore(r Ref, n *restored) {
	w := uint64(wordDecided)
	for _, f := range []struct {
		set bool
		bit uint64
	}{
		{n.reached, wordReached}, {n.substituted, wordSubstituted}, {n.propagated, wordPropagated}, {n.tolerated, wordTolerated},
		{n.bypass, wordBypass}, {n.checking, wordChecking},
	} {
		if f.set {
			w |= f.bit
		}
	}
	if x := s.stateTimes; x != nil {
		x.settledAt[r], x.decidedAt[r] = n.settled, n.decided
		x.clock = max(x.clock, n.settled, n.decided)
	}
	if !n.status.Terminal() {
		s.words[r] = w | uint64(uint32(n.started))
		return
	}
	arg := uint64(noEdge)
	switch {
	case n.status == Skipped && n.by > 0:
		arg = uint64(n.by - 1)
		if n.skip != SkipNullPropagation {
			arg = uint64(s.net.in.row(r)[n.by-1])
		}
	case n.status == Completed || n.status == Failed && !n.propagated:
		arg = 0
	case n.origin != noRef:
		arg = uint64(uint32(n.origin))
	}
	w |= uint64(n.status)<<statusShift | uint64(n.cause)<<kindShift | uint64(n.skip)<<kindShift | arg
	if n.status == Completed && n.tolerated {
		s.tolerated++ // see settle
	}
	for _, id := range n.route {
		s.taken[s.net.facts[r].labels+id] = true
	}
	s.words[r] = w
	s.count(r, n.status, w)
}

// saved is the reverse of restore, as far as the State knows.
func (s *State) saved(r Ref) restored {
	w := s.word(r)
	n := restored{
		status: w.status(), checking: w.is(wordChecking), reached: w.is(wordReached), substituted: w.is(wordSubstituted), propagated: w.is(wordPropagated),
		tolerated: w.is(wordTolerated), bypass: w.is(wordBypass), origin: noRef,
	}
	if x := s.stateTimes; x != nil {
		n.settled, n.decided = x.settledAt[r], x.decidedAt[r]
	}
	switch n.status {
	case Skipped:
		x := s.skip(r)
		n.skip = x.kind
		switch {
		case n.skip == SkipSuperseded:
			n.origin = x.node
		case n.skip == SkipNullPropagation:
			n.by = x.port + 1
		case x.edge >= 0 && n.skip != SkipParentFailure:
			n.by = slices.Index(s.net.in.row(r), x.edge) + 1
		}
	case Failed, Aborted, Cancelled:
		n.cause = w.kind()
		if n.status != Failed || n.propagated {
			n.origin = w.by()
		}
	case Completed:
		n.route = s.route(r)
	default:
		if n.started = w.attempts(); w.is(wordStopping | wordDraining) {
			n.cause, n.origin = w.kind(), s.stopOrigin(r)
		}
	}
	return n
}

// rebuild computes from the restored words, in place of begin, everything that follows from them: the counts of undecided
// nodes, the queues, and, if the graph has changed, which nodes are ready now. In Waves mode the first tier with unfinished
// nodes goes on if the run was in it, else it starts.
func (s *State) rebuild(refs []Ref, nodes []restored, inWave bool) {
	for _, r := range s.net.disabled {
		if s.words[r]&wordDecided == 0 {
			s.finish(r, Skipped, uint64(SkipAnnotation)<<kindShift|wordBypass|noEdge)
		}
	}
	for r := range s.words {
		if !statusOf(s.words[r]).Terminal() {
			continue
		}
		if x := s.stateTimes; x != nil && x.settledAt[r] == 0 {
			x.clock++
			x.settledAt[r] = x.clock
		}
		s.visit(Ref(r))
	}
	s.late = nil // failures before the snapshot have had their effect
	for i, r := range refs {
		w := s.words[r]
		switch {
		case statusOf(w).Terminal():
		case w&wordChecking != 0:
			s.busy++
			s.evaluateInline(r)
		case nodes[i].status == Suspended:
			s.words[r] |= uint64(Suspended) << statusShift
			s.fallAsleep()
			s.host.beganToWait(r)
		case nodes[i].status == Retrying:
			s.words[r] |= uint64(Retrying)<<statusShift | wordReached
			s.busy++
		case nodes[i].inside && nodes[i].status == Running:
			s.continueComposite(r, &nodes[i])
		case s.host.keeps(r): // its step is called again, and has started before
			s.makeReady(r)
			s.hush(r)
		default:
			if nodes[i].judging && s.net.facts[r].is(factAdmit) {
				s.words[r] |= wordAdmitting // its inputs were being judged
			}
			s.makeReady(r)
		}
	}
	if s.waves {
		if s.tier = s.firstOpenTier(); s.tier < int32(len(s.net.tiers)-1) {
			if !inWave {
				s.logWave(s.tier, 1)
			}
			if !s.openTier() {
				s.advance()
			}
		}
		return
	}
	if len(s.net.tiers) < 2 {
		return
	}
	for r := range Ref(s.net.tiers[1]) {
		if r != s.net.end {
			s.touch(r)
		}
	}
	s.cascade()
	s.maybeEnd()
}

// continueComposite makes a composite Running whose nested run goes on, in the same attempt.
func (s *State) continueComposite(r Ref, n *restored) {
	s.words[r] |= wordRunning | wordReached
	if n.cause != CauseNone || n.draining {
		flag := uint64(wordStopping)
		if n.draining {
			flag = wordDraining
		}
		s.setStop(r, flag, n.cause, n.origin)
	}
	if n.dormant {
		s.words[r] |= wordDormant
		s.fallAsleep()
		return
	}
	s.busy++
	if !s.net.facts[r].is(factInline) { // an item, which holds a slot of its map while it does not wait
		s.running++
		s.acquire(r)
	}
}

// hasEnded reports whether a node has ended, and nothing has told of it yet: what waves had put off to their next tier is decided when
// the run goes on in the other mode.
func (s *State) hasEnded() bool {
	return slices.ContainsFunc(s.changes, func(c change) bool { return c.wave == 0 && c.status.Terminal() })
}

// firstOpenTier is the lowest tier with a node that is not terminal.
func (s *State) firstOpenTier() int32 {
	for r, w := range s.words {
		if !statusOf(w).Terminal() {
			return s.net.facts[r].tier
		}
	}
	return int32(len(s.net.tiers) - 1)
}
