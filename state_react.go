package kahn

// onFailure tells what the failure of a node does to the run beyond the node's descendants.
type onFailure uint8

const (
	failuresContinue onFailure = iota // nothing
	failuresDrain                     // what runs may finish, and nothing else starts
	failuresStop                      // what runs is asked to stop, too
)

// reaction decides whether the failure of a node stops the run, and in which manner. abortRun says that the step has asked for it.
func (s *State) reaction(r Ref, abortRun bool) (manner stopManner, stops bool) {
	f := &s.net.facts[r]
	manner = stopAsking
	if s.drains {
		manner = stopDraining
	}
	switch {
	case r == s.net.end || s.stopped != CauseNone:
		return manner, false
	case abortRun || f.is(factCritical):
		return manner, true
	case s.onFailure == failuresContinue || f.is(factHandled|factTolerant):
		return manner, false
	case s.onFailure == failuresDrain:
		return stopDraining, true
	}
	return manner, true
}

// react applies what the failure of a node does beyond its descendants, if the node has failed: it stops the members of its groups that
// have CancelOnFailure, or the run. A Run, whose groups span nested runs, does that itself.
func (s *State) react(r Ref, abortRun bool) {
	if statusOf(s.words[r]) != Failed {
		return
	}
	manner, stops := s.reaction(r, abortRun)
	if r != s.net.end && !s.net.facts[r].is(factTolerant) {
		for _, g := range s.net.groupsOf(r) {
			if s.net.bounds[g].cancels && !s.failedGroups[g] {
				s.stopMembers(g, r, manner)
			}
		}
	}
	if stops && !s.done() {
		s.stop(CauseFailFast, r, manner)
	}
}

// stopMembers stops the unfinished members of a group, once. No failure stops a cleanup node or the end node.
func (s *State) stopMembers(g int32, origin Ref, manner stopManner) {
	if s.failedGroups == nil {
		s.failedGroups = map[int32]bool{}
	}
	s.failedGroups[g] = true
	s.visits += int64(len(s.words))
	for _, r := range s.net.declared { // to stop a node may begin the next tier
		if statusOf(s.words[r]).Terminal() || s.net.facts[r].is(factCleanup) {
			continue
		}
		for _, of := range s.net.groupsOf(r) {
			if of == g {
				if err := s.stopNode(r, CauseSiblingFailure, origin, manner); err != nil {
					s.noteBug(err)
				}
				break
			}
		}
	}
}

// Drain is [State.Stop], but running nodes are not asked to stop: they may finish their attempts, and are not retried.
func (s *State) Drain(kind CauseKind) error { return s.stopAll(kind, stopDraining) }

func (s *State) stopAll(kind CauseKind, manner stopManner) error {
	if err := s.drive(); err != nil {
		return err
	}
	defer s.unlock()
	if kind == CauseNone || kind >= causeCount {
		return badCause(kind)
	}
	s.stop(kind, noRef, manner)
	return nil
}
