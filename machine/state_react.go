package machine

// OnFailure determines how the failure of a node affects nodes that are not descendants of the failed node.
type OnFailure uint8

const (
	failuresContinue OnFailure = iota // no effect
	failuresDrain                     // running nodes may finish; no other node starts, except cleanup nodes and the end node
	failuresStop                      // like failuresDrain, but running nodes are asked to stop
)

// Reaction decides whether the failure of a node stops the run. The result `manner` applies to this stop, and to a stop of the node's groups. The
// parameter `abortRun` is true if the step returned an error that ends the run. Nothing is left to stop when the end node fails.
func (s *Locked) Reaction(r Ref, abortRun bool) (manner StopManner, stops bool) {
	f := &s.net.facts[r]
	manner = StopAsking
	if s.stops.Drains {
		manner = StopDraining
	}
	switch {
	case s.stopped != CauseNone:
		return manner, false
	case abortRun || f.is(FlagCritical):
		return manner, true
	case s.stops.OnFailure == failuresContinue || f.is(factHandled|FlagTolerant):
		return manner, false
	case s.stops.OnFailure == failuresDrain:
		return StopDraining, true
	}
	return manner, true
}

// The method `react` applies the effects of a node's failure on nodes that are not descendants of the failed node. If a group of the node has
// CancelOnFailure, `react` stops the members of this group, unless the failure is tolerated. It also stops the run if Reaction says so. If the node
// has not failed, `react` does nothing. A Run does not call `react`, but applies these effects itself, because its groups span nested runs.
func (s *Locked) react(r Ref, abortRun bool) {
	if statusOf(s.words[r]) != Failed {
		return
	}
	manner, stops := s.Reaction(r, abortRun)
	if r != s.net.end && !s.net.facts[r].is(FlagTolerant) {
		for _, g := range s.net.Groups(r) {
			if s.net.bounds[g].Cancels && !s.failedGroups[g] {
				s.stopMembers(g, r, manner)
			}
		}
	}
	if stops && !s.Done() {
		s.Stop(CauseFailFast, r, manner)
	}
}

// noteFailed records that the members of a group were stopped.
func (x *aftermath) noteFailed(g int32) {
	if x.failedGroups == nil {
		x.failedGroups = map[int32]bool{}
	}
	x.failedGroups[g] = true
}

// stopMembers stops the members of a group that have not ended, and records this. It does not stop cleanup nodes or the end node.
func (s *Locked) stopMembers(g int32, origin Ref, manner StopManner) {
	s.ownAftermath().noteFailed(g)
	// The stop of a member may end the current tier. Then the next tier begins, and the statuses of other members change. So the loop reads the status
	// of a member just before it stops the member.
	for _, r := range s.membersOf(g) {
		s.visits++
		if statusOf(s.words[r]).Terminal() || s.net.facts[r].is(FlagCleanup) {
			continue
		}
		if err := s.StopNode(r, CauseSiblingFailure, origin, manner); err != nil {
			s.NoteBug(err)
		}
	}
}

// membersOf returns the members of a group, in the order of declaration.
func (s *Locked) membersOf(g int32) []Ref {
	x := s.ownAftermath()
	if x.members == nil {
		x.members = make([][]Ref, len(s.net.bounds))
		for _, r := range s.net.declared {
			s.visits++
			for _, of := range s.net.Groups(r) {
				if of := &x.members[of]; len(*of) == 0 || (*of)[len(*of)-1] != r { // a node may name a group twice
					*of = append(*of, r)
				}
			}
		}
	}
	return x.members[g]
}

// Drain is like [State.Stop], but it does not ask running nodes to stop. These nodes may finish their attempts, but they are not retried.
func (st *State) Drain(kind CauseKind) error { return st.stopAll(kind, StopDraining) }

func (st *State) stopAll(kind CauseKind, manner StopManner) error {
	s, err := st.drive()
	if err != nil {
		return err
	}
	defer s.unlockAndDeliver()
	if !kind.stops() {
		return badCause(kind)
	}
	s.Stop(kind, NoRef, manner)
	return nil
}
