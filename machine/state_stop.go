package machine

import (
	"fmt"
)

// AbortNode aborts a node at once, even if the node is running. A later outcome of the node is stale. The parameter `kind` is a cause for which the
// engine aborts nodes, such as CauseAbortAll. The error matches [ErrBadValue] if `kind` is any other cause, and [ErrUnknownNode] if r is outside the
// plan. It matches [ErrTransition] if the node is terminal or is the end node, and [ErrDriven] if a Run drives the State.
func (st *State) AbortNode(r Ref, kind CauseKind) error {
	if !causesOf[Aborted].Has(kind) {
		return fmt.Errorf("%w for %v", badCause(kind), Aborted)
	}
	return st.stopNode(r, kind, r, StopInstantly)
}

// CancelNode cancels a node at once, even if the node is running. A later outcome of the node is stale. The error matches [ErrTransition] if the node
// is terminal or is the end node, and [ErrUnknownNode] if r is outside the plan. It matches [ErrDriven] if a Run drives the State.
func (st *State) CancelNode(r Ref) error { return st.stopNode(r, CauseCancelNode, r, StopInstantly) }

// AbortAll aborts at once every node that is not terminal. Cleanup nodes and the end node are not aborted, and still run. Later outcomes of the
// aborted nodes are stale. If a Run drives the State, AbortAll does nothing.
func (st *State) AbortAll() {
	s, err := st.drive()
	if err != nil {
		return
	}
	defer s.unlockAndDeliver()
	s.Stop(CauseAbortAll, NoRef, StopInstantly)
}

// CancelAll is like AbortAll, but the nodes become Cancelled. Call it if the run is stopped on request.
func (st *State) CancelAll() {
	s, err := st.drive()
	if err != nil {
		return
	}
	defer s.unlockAndDeliver()
	s.Stop(CauseCancelRun, NoRef, StopInstantly)
}

// Stop stops the run in two phases. Nodes that are not running are aborted or cancelled at once, depending on the cause. NextStop returns the running
// attempts: the coordinator asks each of them to stop, and reports its end with Settle. Cleanup nodes and the end node still run. If the run was
// stopped before, it keeps the cause of the first stop. The error matches [ErrBadValue] for a cause for which nothing can be stopped: [CauseNone],
// [CauseEndFailed], [CauseCompensationFailed], or a node's own failure except [CauseStoreError]. It matches [ErrDriven] if a Run drives the State.
func (st *State) Stop(kind CauseKind) error { return st.stopAll(kind, StopAsking) }

func badCause(kind CauseKind) error { return fmt.Errorf("%w: cause %v", ErrBadValue, kind) }

// StopNode is the two-phase form of AbortNode and CancelNode. If the node is running, the coordinator asks it to stop, see NextStop. Any other node
// becomes terminal at once, with the StopStatus of the cause. The error matches [ErrBadValue] for a cause that [State.Stop] rejects, and
// [ErrUnknownNode] if r is outside the plan. It matches [ErrTransition] if the node is terminal or is the end node, and [ErrDriven] if a Run drives
// the State.
func (st *State) StopNode(r Ref, kind CauseKind) error {
	return st.stopNode(r, kind, NoRef, StopAsking)
}

func (st *State) stopNode(r Ref, kind CauseKind, origin Ref, manner StopManner) error {
	s, err := st.drive()
	if err != nil {
		return err
	}
	defer s.unlockAndDeliver()
	return s.StopNode(r, kind, origin, manner)
}

// StopNode stops one node. origin is the node that caused the stop, or NoRef.
func (s *Locked) StopNode(r Ref, kind CauseKind, origin Ref, manner StopManner) error {
	if err := s.MayStop(r, kind); err != nil {
		return err
	}
	if s.stopOne(r, kind, origin, manner) {
		s.settled(r)
	}
	return nil
}

// MayStop returns the error that StopNode would return, or nil if StopNode would stop the node. It changes nothing.
func (s *Locked) MayStop(r Ref, kind CauseKind) error {
	if err := s.known(r); err != nil {
		return err
	}
	if !kind.stops() {
		return badCause(kind)
	}
	if statusOf(s.words[r]).Terminal() || r == s.net.end {
		return &TransitionError{Node: s.net.ID(r), From: s.Status(r), To: kind.StopStatus()}
	}
	return nil
}

// stopOne stops a node that is not terminal. It reports whether the node is terminal now. If so, the caller visits the node's out-edges.
func (s *Locked) stopOne(r Ref, kind CauseKind, origin Ref, manner StopManner) (ended bool) {
	if statusOf(s.words[r]) == Running && manner != StopInstantly {
		s.stopRunning(r, kind, origin, manner)
		return false
	}
	s.withdraw(r)
	s.finish(r, kind.StopStatus(), uint64(kind)<<kindShift|uint64(uint32(origin)))
	return true
}

// NextStop returns a running attempt that the coordinator must ask to stop, or false if there is none. It returns each attempt once.
func (st *State) NextStop() (Token, bool) {
	s, err := st.drive()
	if err != nil {
		return Token{}, false
	}
	defer s.unlockAndDeliver()
	return s.NextStop()
}

// NextStop is [State.NextStop].
func (s *Locked) NextStop() (Token, bool) {
	for len(s.stopping) > 0 {
		r := s.stopping[0]
		s.stopping = s.stopping[1:]
		if w := s.words[r]; statusOf(w) == Running {
			return Token{Ref: r, Attempt: int32(w & wordCount)}, true
		}
	}
	return Token{}, false
}

// StopManner determines what a stop does to running nodes.
type StopManner uint8

// The manners of a stop.
const (
	StopInstantly StopManner = iota // running nodes become terminal, too
	StopAsking                      // running nodes are asked to stop
	StopDraining                    // running nodes may finish
)

// Stop stops all nodes except cleanup nodes and the end node. After Close, it also stops these nodes. It sets the statuses of all nodes before it
// visits the first edge. Otherwise a node could become a victim of another stopped node, instead of being stopped itself.
func (s *Locked) Stop(kind CauseKind, origin Ref, manner StopManner) {
	if s.stopped == CauseNone {
		s.stopped = kind
	}
	s.lift() // cleanup nodes must run
	s.visits += int64(len(s.words))
	for i := range s.words {
		r, w := Ref(i), s.words[i]
		if statusOf(w).Terminal() || s.net.facts[r].is(FlagCleanup) && !s.closed {
			continue
		}
		if s.stopOne(r, kind, origin, manner) {
			s.work = append(s.work, r)
		}
	}
	s.Hurry()
	s.visitAll()
	if s.waves {
		s.brink()
		if s.pending == 0 {
			s.advance()
		}
		return
	}
	s.cascade()
	s.maybeEnd()
}

// stopRunning asks a running node to stop. Under StopDraining, it instead lets the node finish its attempt, but forbids a retry.
func (s *Locked) stopRunning(r Ref, kind CauseKind, origin Ref, manner StopManner) {
	switch w := s.words[r]; {
	case manner != StopDraining || w&WordAdmitting != 0: // a node whose inputs are still being judged has not started
		s.AskToStop(r, kind, origin)
	case w&(WordStopping|WordDraining) == 0:
		s.setStop(r, WordDraining, kind, origin)
	}
}

// AskToStop asks a running node to stop. origin is the node that caused the stop, or NoRef. A node that was already asked to stop keeps its first
// cause.
func (s *Locked) AskToStop(r Ref, kind CauseKind, origin Ref) {
	if s.words[r]&WordStopping != 0 {
		return
	}
	s.setStop(r, WordStopping, kind, origin)
	s.stopping = append(s.stopping, r) // setStop has made the aftermath, which contains s.stopping
}

// StopDrained marks a draining node as asked to stop, because its attempt returned a wait or a graph. A draining node must not begin to wait, and
// must not be expanded.
func (s *Locked) StopDrained(r Ref) { s.words[r] |= WordStopping }

// setStop records why a running node is stopped. flag is WordStopping or WordDraining.
func (s *Locked) setStop(r Ref, flag uint64, kind CauseKind, origin Ref) {
	s.words[r] = s.words[r]&^wordKind | flag | uint64(kind)<<kindShift
	x := s.ownAftermath()
	if x.origin == nil {
		x.origin = map[Ref]Ref{}
	}
	x.origin[r] = origin
}

// StopOrigin returns the origin of a node's stop, or NoRef.
func (s *Locked) StopOrigin(r Ref) Ref {
	origin, ok := s.origin[r]
	if !ok {
		origin = NoRef
	}
	return origin
}

// withdraw removes a node from all queues and counts before its status changes.
func (s *Locked) withdraw(r Ref) {
	w := s.words[r]
	switch {
	case w&WordChecking != 0:
		if !s.inline.Remove(int(r)) && s.host != nil { // a worker is checking the node, and the verdict will have no effect
			x := s.ownAftermath()
			x.unchecked = append(x.unchecked, r)
		}
		s.busy--
	case statusOf(w) == Ready && s.net.facts[r].is(FlagGate):
		s.gates.remove(r)
	case statusOf(w) == Ready:
		// A node that is in none of these sets waits in a line for a slot. It stays there, and the line will skip it.
		if pos := int(s.order.pos[r]); !s.inline.Remove(int(r)) && (s.ready.Remove(pos) || s.aside != nil && s.aside.fresh.Remove(pos)) {
			s.decline(r)
		}
	case statusOf(w) == Running:
		s.leaveRunning(r)
	case statusOf(w) == Retrying:
		s.busy--
	case statusOf(w) == Suspended:
		s.awake()
		if s.host != nil {
			s.host.EndedWait()
		}
	}
}
