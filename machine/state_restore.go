package machine

import "slices"

// Facts is what a snapshot stores about a node whose join has decided, except references to other nodes and to branches.
type Facts struct {
	Status      Status `json:"status"`             // Idle for a node that is being checked
	Checking    bool   `json:"checking,omitempty"` // the join is satisfied, but the check has no result yet
	Reached     bool   `json:"reached,omitempty"`
	Substituted bool   `json:"substituted,omitempty"`
	Propagated  bool   `json:"propagated,omitempty"`
	Tolerated   bool   `json:"tolerated,omitempty"`
	Bypass      bool   `json:"bypass,omitempty"`
	// Cause is why a node failed or was stopped, or why a running node was asked to stop. Skip is why a node was
	// skipped.
	Cause CauseKind `json:"cause,omitempty"`
	Skip  SkipKind  `json:"skip,omitempty"`
	// By is, for a skipped node, the number of the in-edge or of the port that decided the skip: its position among the node's in-edges or ports,
	// counted from 1. By is 0 if neither an edge nor a port decided.
	By      int   `json:"by,omitempty"`
	Settled int32 `json:"settled,omitempty"` // logical times, for joins that decide early
	Decided int32 `json:"decided,omitempty"`
	Started int32 `json:"started,omitempty"` // the number of attempts that have begun; the State counts each re-entry of a step as an attempt, too
	// Dormant and Draining belong to a composite that is running because its nested run has not ended. Dormant means that the nested run can only
	// wait, and Draining that the composite will not be retried.
	Dormant  bool `json:"dormant,omitempty"`
	Draining bool `json:"draining,omitempty"`
}

// Restored is the state of a node whose join has decided, in a form from which another State can continue.
type Restored struct {
	Facts
	// Route contains the labels that a completed condition has taken.
	Route []int32
	// Origin is the node that caused a stop or a supersession, or NoRef.
	Origin  Ref
	Inside  bool // for a composite: its nested run continues
	Judging bool // the node had a slot, and its inputs were being judged
}

// Restore restores the state of a node.
func (s *Locked) Restore(r Ref, n *Restored) {
	w := uint64(WordDecided)
	for _, f := range []struct {
		set bool
		bit uint64
	}{
		{n.Reached, WordReached}, {n.Substituted, WordSubstituted}, {n.Propagated, WordPropagated}, {n.Tolerated, WordTolerated},
		{n.Bypass, WordBypass}, {n.Checking, WordChecking},
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
			arg = uint64(s.net.in.row(r)[n.By-1])
		}
	case n.Status == Completed || n.Status == Failed && !n.Propagated:
		arg = 0
	case n.Origin != NoRef:
		arg = uint64(uint32(n.Origin))
	}
	w |= uint64(n.Status)<<statusShift | uint64(n.Cause)<<kindShift | uint64(n.Skip)<<kindShift | arg
	if n.Status == Completed && n.Tolerated {
		s.tolerated++ // see Settle
	}
	for _, id := range n.Route {
		s.taken[s.net.facts[r].labels+id] = true
	}
	s.words[r] = w
	s.count(r, n.Status, w)
}

// Saved is the reverse of Restore: it returns the state of a node. It leaves the fields zero that only the coordinator knows.
func (s *Locked) Saved(r Ref) Restored {
	w := s.Word(r)
	n := Restored{Origin: NoRef, Facts: Facts{
		Status: w.Status(), Checking: w.Is(WordChecking), Reached: w.Is(WordReached), Substituted: w.Is(WordSubstituted), Propagated: w.Is(WordPropagated),
		Tolerated: w.Is(WordTolerated), Bypass: w.Is(WordBypass),
	}}
	if x := s.stateTimes; x != nil {
		n.Settled, n.Decided = x.settledAt[r], x.decidedAt[r]
	}
	switch n.Status {
	case Skipped:
		x := s.SkipOf(r)
		n.Skip = x.Kind
		switch {
		case n.Skip == SkipSuperseded:
			n.Origin = x.Node
		case n.Skip == SkipNullPropagation:
			n.By = x.Port + 1
		case x.Edge >= 0 && n.Skip != SkipParentFailure:
			n.By = slices.Index(s.net.in.row(r), x.Edge) + 1
		}
	case Failed, Aborted, Cancelled:
		n.Cause = w.Kind()
		if n.Status != Failed || n.Propagated {
			n.Origin = w.By()
		}
	case Completed:
		n.Route = s.Route(r)
	default:
		if n.Started = w.attempts(); w.Is(WordStopping | WordDraining) {
			n.Cause, n.Origin = w.Kind(), s.StopOrigin(r)
		}
	}
	return n
}

// Rebuild replaces Begin for a restored State. It computes what follows from the restored words: the counts of undecided nodes, the queues and, if
// the graph has changed, which nodes are ready now. In Waves mode the run continues with the first tier that has unfinished nodes. If inWave is true,
// the run had already begun this tier. Otherwise Rebuild begins it.
func (s *Locked) Rebuild(refs []Ref, nodes []Restored, inWave bool) {
	for _, r := range s.net.disabled {
		if s.words[r]&WordDecided == 0 {
			s.finish(r, Skipped, uint64(SkipAnnotation)<<kindShift|WordBypass|noEdge)
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
	s.ownAftermath().late = nil // the snapshot already contains the effects of earlier failures
	for i, r := range refs {
		w := s.words[r]
		switch {
		case statusOf(w).Terminal():
		case w&WordChecking != 0:
			s.busy++
			s.EvaluateInline(r)
		case nodes[i].Status == Suspended:
			s.words[r] |= uint64(Suspended) << statusShift
			s.fallAsleep()
			s.host.BeganToWait(r)
		case nodes[i].Status == Retrying:
			s.words[r] |= uint64(Retrying)<<statusShift | WordReached
			s.busy++
		case nodes[i].Inside && nodes[i].Status == Running:
			s.continueComposite(r, &nodes[i])
		case s.host.Keeps(r): // the step of the node started before, and is called again
			s.makeReady(r)
			s.Hush(r)
		default:
			if nodes[i].Judging && s.net.facts[r].is(FlagAdmit) {
				s.words[r] |= WordAdmitting // the inputs of the node were being judged
			}
			s.makeReady(r)
		}
	}
	if s.waves {
		s.brink()
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
		s.brink()
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

// continueComposite makes a composite Running, in the same attempt, because its nested run continues.
func (s *Locked) continueComposite(r Ref, n *Restored) {
	s.words[r] |= wordRunning | WordReached
	if n.Cause != CauseNone || n.Draining {
		flag := uint64(WordStopping)
		if n.Draining {
			flag = WordDraining
		}
		s.setStop(r, flag, n.Cause, n.Origin)
	}
	if n.Dormant {
		s.words[r] |= WordDormant
		s.fallAsleep()
		return
	}
	s.busy++
	if !s.net.facts[r].is(FlagInline) { // the node is an item that does not wait, so it holds a slot of its map
		s.running++
		s.acquire(r)
	}
}

// HasEnded reports whether the changes since the last DropChanges include the end of a node. Rebuild may end
// nodes: if a run in Waves mode continues without waves, Rebuild decides the nodes that the run had postponed to its next tier.
func (s *Locked) HasEnded() bool {
	return slices.ContainsFunc(s.changes, func(c Change) bool { return c.Wave == 0 && c.Status.Terminal() })
}

// firstOpenTier returns the lowest tier with a node that is not terminal.
func (s *Locked) firstOpenTier() int32 {
	for r, w := range s.words {
		if !statusOf(w).Terminal() {
			return s.net.facts[r].tier
		}
	}
	return int32(len(s.net.tiers) - 1)
}
