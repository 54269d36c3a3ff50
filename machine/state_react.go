package machine

// OnFailure determines what a node's failure does to nodes that are not its descendants.
type OnFailure uint8

const (
	failuresContinue OnFailure = iota // no effect
	failuresDrain                     // running nodes may finish, and no other node starts
	failuresStop                      // like failuresDrain, but running nodes are asked to stop
)

// Reaction decides whether the failure of a node stops the run, and in which manner. abortRun means that the step returned an
// error that ends the run.
func (s *Locked) Reaction(r Ref, abortRun bool) (manner StopManner, stops bool) {
	f := &s.net.facts[r]
	manner = StopAsking
	if s.stops.Drains {
		manner = StopDraining
	}
	switch {
	case r == s.net.end || s.stopped != CauseNone:
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

// The method `react` applies the consequences of a node's failure for nodes that are not its descendants. If a group of the node has CancelOnFailure,
// `react` stops the members of this group. If the failure stops the run, `react` stops the run. If the node has not failed, it does nothing. A Run does
// not call it: a Run applies these consequences itself, because its groups span nested runs.
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

// stopMembers stops the unfinished members of a group, once. A failure never stops a cleanup node or the end node.
func (s *Locked) stopMembers(g int32, origin Ref, manner StopManner) {
	s.ownAftermath().noteFailed(g)
	// Each status is read just before the node is stopped: when the loop stopped an earlier member, the next tier may have begun, and so the status of
	// this node may have changed.
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

// Drain is like [State.Stop], but does not ask running nodes to stop: they may finish their attempts, and are not retried.
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
