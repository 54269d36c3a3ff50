package machine

import (
	"slices"

	"github.com/seed-c794f7ef/kahn/internal/ordset"
)

// Suspend reports that an attempt, or a gate that was reached, waits for a signal from outside. While the node waits, it holds no slot. When the
// signal arrives, call Resume for a step, or Settle for a gate.
//
// The error matches [ErrStale] if the token is not current. It matches [ErrTransition] if the node is the end node or was asked to stop, because
// these nodes cannot wait.
func (st *State) Suspend(t Token) error {
	s, err := st.drive()
	if err != nil {
		return err
	}
	defer s.unlockAndDeliver()
	return s.Suspend(t)
}

// Suspend is [State.Suspend].
func (s *Locked) Suspend(t Token) error {
	from := Running
	if s.known(t.Ref) == nil && s.net.facts[t.Ref].is(FlagGate) {
		from = Ready
	}
	if err := s.Current(t, from); err != nil {
		return err
	}
	if t.Ref == s.net.end || s.words[t.Ref]&WordStopping != 0 {
		return &TransitionError{Node: s.net.ID(t.Ref), From: from, To: Suspended}
	}
	s.withdraw(t.Ref)
	s.setStatus(t.Ref, Suspended)
	s.fallAsleep()
	if s.host != nil {
		s.host.BeganToWait(t.Ref)
	}
	return nil
}

// fallAsleep counts a node that has just been suspended. It begins a hold of fresh nodes if the run has the option Setup.Holds.
func (s *Locked) fallAsleep() {
	s.asleep++
	// A run that hurries begins no hold: only cleanup nodes and the end node can still start, and they must run.
	if s.holds && !s.Hurries() {
		s.holdBack()
	}
}

// noteAgain records a queued node that has started before. A later hold of fresh nodes must not keep this node from starting.
func (s *Locked) noteAgain(r Ref) {
	x := s.hasAside()
	if len(x.again) > len(s.words) {
		x.again = slices.DeleteFunc(x.again, func(r Ref) bool { return statusOf(s.words[r]) != Ready })
	}
	x.again = append(x.again, r)
}

func (s *Locked) hasAside() *setAside {
	if s.aside == nil {
		s.aside = &setAside{fresh: ordset.Make(len(s.words))}
	}
	return s.aside
}

// holdBack begins a hold of fresh nodes, which are nodes that have not started before. It sets all fresh nodes aside at once instead of one by one,
// since a run may begin as many holds as it has nodes.
func (s *Locked) holdBack() {
	if s.hold != holdNothing {
		return
	}
	s.hold = holdFresh
	if s.limits.groups != nil {
		return // with groups, passOver later takes each held node out of the queue, and offers the node's slots to other nodes
	}
	x := s.hasAside()
	s.ready, x.fresh = x.fresh, s.ready
	x.again = slices.DeleteFunc(x.again, func(r Ref) bool {
		s.visits++
		if statusOf(s.words[r]) != Ready {
			return true
		}
		if pos := int(s.order.pos[r]); x.fresh.Remove(pos) {
			s.ready.Insert(pos)
		}
		return false
	})
}

// Sleep marks a running composite whose nested run can only wait. A stop treats the composite as running, so that its inner nodes are stopped first.
func (s *Locked) Sleep(r Ref) {
	was := s.words[r]
	s.Doze(r)
	s.log(r, was, Suspended)
}

// Doze is like Sleep, but records no transition for the log.
func (s *Locked) Doze(r Ref) {
	was := s.words[r]
	s.words[r] |= WordDormant
	s.busy--
	if s.occupies(r) { // an item of a map holds no slot of the map while the item waits
		s.vacate()
	}
	s.fallAsleep()
	if s.obs != nil {
		s.obs.note(r, was)
	}
}

// Rouse lets a composite continue, as a new attempt of the State. But an expanded node continues in the same attempt, because a store may have
// recorded the start of this attempt.
func (s *Locked) Rouse(r Ref) {
	if s.IsExpanded(r) {
		s.words[r]--
	}
	was := s.words[r]
	s.log(r, was, Ready)
	s.words[r] = was&^WordDormant + 1
	s.busy++
	if s.occupies(r) {
		s.occupy() // the composite takes a slot even above the limit, since its nested run already continues
	}
	s.awake()
	s.log(r, was, Running)
}

// Hush marks the latest change as a change without an event, if it is a change of node r.
func (s *Locked) Hush(r Ref) {
	if n := len(s.changes); n > 0 && s.changes[n-1].Ref == r {
		s.changes[n-1].Quiet = true
	}
}

// The method `awake` decrements the count of suspended nodes. If no suspended node is left, awake ends the hold of fresh nodes.
func (s *Locked) awake() {
	s.asleep--
	if s.asleep == 0 && s.hold == holdFresh {
		s.lift()
	}
}

// The type `hold` determines which ready nodes must not start at present.
type hold uint8

const (
	holdNothing hold = iota
	holdFresh        // nodes that have never started, because some node is suspended or is being undone
	holdAll          // all nodes that wait for a slot, because the run is being left
)

// passOver takes ready nodes out of the queue, the best first, until it finds a node that may start.
func (s *Locked) passOver() {
	x := s.hasAside()
	for i, ok := s.ready.PopMin(); ok; i, ok = s.ready.PopMin() {
		r := s.order.at[i]
		if s.hold == holdFresh && s.words[r]&wordCount != 0 {
			s.ready.Insert(i)
			return
		}
		s.visits++
		if s.hold == holdFresh && s.limits.groups == nil {
			x.fresh.Insert(i)
			continue
		}
		x.held = append(x.held, r)
		s.decline(r)
	}
}

// Leave keeps steps and mocks from starting, because the process leaves the run. Next still hands out checks, conditions and gates. Later the run can
// continue from its snapshot, for example in another process.
func (s *Locked) Leave() { s.hold = holdAll }

// IsLeft reports whether the run is being left: Leave was called, and no Stay or stop followed.
func (s *Locked) IsLeft() bool { return s.hold == holdAll }

// Stay reverses Leave.
func (s *Locked) Stay() {
	s.lift()
	if s.asleep > 0 && s.holds && !s.Hurries() {
		s.holdBack()
	}
}

// LiftFresh ends a hold of fresh nodes, so that these nodes may start although some node is suspended. It reports whether it has ended such a hold.
// While nodes are being undone, it does nothing.
func (s *Locked) LiftFresh() bool {
	if s.hold != holdFresh || s.undo != nil && s.undo.holds {
		return false
	}
	s.lift()
	return true
}

// HeldBack reports whether a hold keeps a ready node from starting. The result `all` is true if this is a hold of all nodes, and `fresh` is true if
// it is a hold of fresh nodes.
func (s *Locked) HeldBack(r Ref) (all, fresh bool) {
	f := &s.net.facts[r]
	inline := f.is(FlagInline | FlagGate)
	return (!inline || f.is(FlagMocked) || f.is(FlagInline) && s.isLeftBehind(r)) && s.hold == holdAll, !inline && s.hold == holdFresh && s.words[r]&wordCount == 0
}

// Sleepers returns the number of suspended nodes.
func (s *Locked) Sleepers() int { return int(s.asleep) }

// OnlySleeps reports whether some node is suspended, and no node runs, backs off or is being checked.
func (s *Locked) OnlySleeps() bool { return s.asleep > 0 && s.busy == 0 }

// The method `lift` ends the hold. While nodes are being undone, a hold of fresh nodes remains.
func (s *Locked) lift() {
	s.hold = holdNothing
	if s.undo != nil && s.undo.holds {
		s.hold = holdFresh
	}
	x := s.aside
	if x == nil {
		return
	}
	if x.fresh.Len() > s.ready.Len() {
		s.ready, x.fresh = x.fresh, s.ready
	}
	for i, ok := x.fresh.PopMin(); ok; i, ok = x.fresh.PopMin() {
		s.visits++
		s.ready.Insert(i)
	}
	held := x.held
	x.held = nil
	for _, r := range held {
		s.visits++
		switch w := s.words[r]; {
		case w&WordChecking != 0:
			s.EvaluateInline(r)
		case statusOf(w) == Ready:
			s.Queue(r)
		}
	}
}

// Resume makes the node of a suspended step ready again. The step then runs from its start, as a new attempt of the State.
func (st *State) Resume(t Token) error {
	s, err := st.drive()
	if err != nil {
		return err
	}
	defer s.unlockAndDeliver()
	if s.known(t.Ref) == nil && s.net.facts[t.Ref].is(FlagGate) {
		return &TransitionError{Node: s.net.ID(t.Ref), From: s.Status(t.Ref), To: Ready}
	}
	return s.Requeue(t, Suspended)
}

// settledFrom returns the status that a node must have when its outcome is reported. A gate never runs, so it must be Ready or Suspended. Any other
// node must be Running.
func (s *Locked) settledFrom(r Ref) Status {
	if s.known(r) == nil && s.net.facts[r].is(FlagGate) {
		if status := statusOf(s.words[r]); status == Ready || status == Suspended {
			return status
		}
	}
	return Running
}
