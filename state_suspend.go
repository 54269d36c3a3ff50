package kahn

// Suspend reports that the attempt, or a gate that was reached, waits for a signal from outside. The node holds no slot
// meanwhile. A step is entered again with Resume, a gate is settled when its signal comes.
//
// The error matches [ErrStale] if the token is not current, and [ErrTransition] for the end node and for a node that was
// asked to stop, which cannot wait.
func (s *State) Suspend(t Token) error {
	if err := s.drive(); err != nil {
		return err
	}
	defer s.unlock()
	return s.suspend(t)
}

func (s *State) suspend(t Token) error {
	from := Running
	if s.known(t.Ref) == nil && s.net.facts[t.Ref].is(factGate) {
		from = Ready
	}
	if err := s.current(t, from); err != nil {
		return err
	}
	if t.Ref == s.net.end || s.words[t.Ref]&wordStopping != 0 {
		return &TransitionError{Node: s.net.id(t.Ref), From: from, To: Suspended}
	}
	s.withdraw(t.Ref)
	s.setStatus(t.Ref, Suspended)
	s.fallAsleep()
	if s.host != nil {
		s.host.beganToWait(t.Ref)
	}
	return nil
}

// fallAsleep counts a node that is suspended.
func (s *State) fallAsleep() {
	s.asleep++
	if s.holds && !s.hurries() { // else only cleanup is left, which is not held
		s.hold = max(s.hold, holdFresh)
	}
}

// sleep marks a running composite that can only wait. For a stop it is still running, so that its inner nodes are stopped
// first.
func (s *State) sleep(r Ref) {
	was := s.words[r]
	s.doze(r)
	s.log(r, was, Suspended)
}

// doze is sleep without a transition for the log.
func (s *State) doze(r Ref) {
	was := s.words[r]
	s.words[r] |= wordDormant
	s.busy--
	if s.occupies(r) { // an item of a map holds no slot of the map while it waits
		s.running--
	}
	s.fallAsleep()
	if s.obs != nil {
		s.obs.note(r, was)
	}
}

// rouse lets a composite go on, as a new attempt of the State; an expanded node goes on in the same attempt, whose start a
// store has recorded.
func (s *State) rouse(r Ref) {
	if s.isExpanded(r) {
		s.words[r]--
	}
	was := s.words[r]
	s.log(r, was, Ready)
	s.words[r] = was&^wordDormant + 1
	s.busy++
	if s.occupies(r) {
		s.running++ // at once, even above the limit: the nested run goes on already
	}
	s.awake()
	s.log(r, was, Running)
}

// hush keeps the change of a node, if it is the last one, from the log.
func (s *State) hush(r Ref) {
	if n := len(s.changes); n > 0 && s.changes[n-1].ref == r {
		s.changes[n-1].quiet = true
	}
}

// awake counts a node that is no longer suspended.
func (s *State) awake() {
	s.asleep--
	if s.asleep == 0 && s.hold == holdFresh {
		s.lift()
	}
}

// hold says which ready nodes must not start.
type hold uint8

const (
	holdNothing hold = iota
	holdFresh        // nodes that have not been started before: something is suspended
	holdAll          // the run is being left
)

// passOver takes the best ready nodes out of the queue as long as the hold applies to them.
func (s *State) passOver() {
	for i, ok := s.ready.PopMin(); ok; i, ok = s.ready.PopMin() {
		r := s.at[i]
		if s.hold == holdFresh && s.words[r]&wordCount != 0 {
			s.ready.Insert(i)
			return
		}
		s.held = append(s.held, r)
		s.decline(r)
	}
}

// leave keeps all nodes from starting.
func (s *State) leave() { s.hold = holdAll }

// isLeft reports whether leave was called, and stay or a stop has not ended that.
func (s *State) isLeft() bool { return s.hold == holdAll }

// stay is the reverse of leave.
func (s *State) stay() {
	s.lift()
	if s.asleep > 0 && s.holds {
		s.hold = holdFresh
	}
}

// liftFresh lets nodes start although something is suspended. It reports whether none could.
func (s *State) liftFresh() bool {
	if s.hold != holdFresh {
		return false
	}
	s.lift()
	return true
}

// heldBack reports whether the hold keeps a ready node from starting: all nodes, or because something is suspended.
func (s *State) heldBack(r Ref) (all, fresh bool) {
	f := &s.net.facts[r]
	inline := f.is(factInline | factGate)
	return (!inline || f.is(factMocked)) && s.hold == holdAll, !inline && s.hold == holdFresh && s.words[r]&wordCount == 0
}

// sleepers is how many nodes are suspended.
func (s *State) sleepers() int { return s.asleep }

// onlySleeps reports whether nodes are suspended and none runs, retries or is being checked.
func (s *State) onlySleeps() bool { return s.asleep > 0 && s.busy == 0 }

// lift ends the hold.
func (s *State) lift() {
	s.hold = holdNothing
	for _, r := range s.held {
		if statusOf(s.words[r]) == Ready {
			s.queue(r)
		}
	}
	s.held = nil
}

// Resume makes a suspended step ready again: it is entered from its start, as a new attempt of the State.
func (s *State) Resume(t Token) error {
	if err := s.drive(); err != nil {
		return err
	}
	defer s.unlock()
	if s.known(t.Ref) == nil && s.net.facts[t.Ref].is(factGate) {
		return &TransitionError{Node: s.net.id(t.Ref), From: s.status(t.Ref), To: Ready}
	}
	return s.requeue(t, Suspended)
}

// settledFrom is the status that a node has to be in for its outcome: a gate is not started.
func (s *State) settledFrom(r Ref) Status {
	if s.known(r) == nil && s.net.facts[r].is(factGate) {
		if status := statusOf(s.words[r]); status == Ready || status == Suspended {
			return status
		}
	}
	return Running
}
