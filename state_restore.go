package kahn

import "slices"

// restoreWord restores the state of a node whose join has decided.
func (s *State) restoreWord(r Ref, n *nodeState) {
	w := wordDecided
	for _, f := range []struct {
		set bool
		bit uint64
	}{
		{n.Reached, wordReached}, {n.Substituted, wordSubstituted}, {n.Propagated, wordPropagated}, {n.Tolerated, wordTolerated},
		{n.Bypass, wordBypass}, {n.Checking, wordChecking},
	} {
		if f.set {
			w |= f.bit
		}
	}
	if x := s.stateTimes; x != nil {
		x.settledAt[r], x.decidedAt[r] = n.Settled, n.Decided
		x.clock = max(x.clock, n.Settled, n.Decided)
	}
	if !n.Status.Terminal() {
		s.words[r] = w | uint64(uint32(n.Started))
		return
	}
	arg := uint64(noEdge)
	switch {
	case n.Status == Skipped && n.By > 0:
		arg = uint64(n.By - 1)
		if n.Skip != SkipNullPropagation {
			arg = uint64(s.plan.in.row(r)[n.By-1])
		}
	case n.Status == Completed || n.Status == Failed && !n.Propagated:
		arg = 0
	case n.Origin != "":
		if o, ok := s.plan.Ref(n.Origin); ok {
			arg = uint64(uint32(o))
		}
	}
	w |= uint64(n.Status)<<statusShift | uint64(n.Cause)<<kindShift | uint64(n.Skip)<<kindShift | arg
	if n.Status == Completed && n.Tolerated {
		s.tolerated++ // see settle
	}
	if f := &s.plan.facts[r]; f.router >= 0 {
		for _, label := range n.Labels {
			if id, ok := s.plan.routers[f.router].byLabel[label]; ok {
				s.taken[f.labels+id] = true
			}
		}
		s.noteBranches(r, f)
	}
	s.words[r] = w
	s.count(r, n.Status, w)
}

// rebuild computes from the restored words, in place of begin, everything that follows from them: the counts of undecided
// nodes, the queues, and, if the graph has changed, which nodes are ready now. In Waves mode the first tier with unfinished
// nodes goes on if the run was in it, else it starts.
func (s *State) rebuild(restored []Ref, nodes []nodeState, inWave bool) {
	for _, r := range s.plan.disabled {
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
	for i, r := range restored {
		w := s.words[r]
		switch {
		case statusOf(w).Terminal():
		case w&wordChecking != 0:
			s.busy++
			s.evaluateInline(r)
		case nodes[i].Status == Suspended:
			s.words[r] |= uint64(Suspended) << statusShift
			s.fallAsleep()
			s.host.beganToWait(r)
		case nodes[i].Inside != nil && nodes[i].Status == Running:
			s.continueComposite(r, &nodes[i])
		case s.host.keeps(r): // its step is called again, and has started before
			s.makeReady(r)
			s.hush(r)
		default:
			if n := &nodes[i]; n.Started > 0 && n.Attempts == 0 && s.plan.facts[r].is(factAdmit) {
				s.words[r] |= wordAdmitting // its inputs were being judged
			}
			s.makeReady(r)
		}
	}
	if s.waves {
		if s.tier = s.firstOpenTier(); s.tier < int32(len(s.plan.tiers)-1) {
			if !inWave {
				s.logWave(s.tier, 1)
			}
			if !s.openTier() {
				s.advance()
			}
		}
		return
	}
	if len(s.plan.tiers) < 2 {
		return
	}
	for r := range Ref(s.plan.tiers[1]) {
		if r != s.plan.end {
			s.touch(r)
		}
	}
	s.cascade()
	s.maybeEnd()
}

// continueComposite makes a composite Running whose nested run goes on, in the same attempt.
func (s *State) continueComposite(r Ref, n *nodeState) {
	s.words[r] |= wordRunning | wordReached
	if n.Cause != CauseNone || n.Draining {
		flag, origin := wordStopping, noRef
		if n.Draining {
			flag = wordDraining
		}
		if o, ok := s.plan.Ref(n.Origin); ok {
			origin = o
		}
		s.setStop(r, flag, n.Cause, origin)
	}
	if n.Dormant {
		s.words[r] |= wordDormant
		s.fallAsleep()
		return
	}
	s.busy++
	if !s.plan.facts[r].is(factInline) { // an item, which holds a slot of its map while it does not wait
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
			return s.plan.facts[r].tier
		}
	}
	return int32(len(s.plan.tiers) - 1)
}
