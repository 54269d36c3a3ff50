package kahn

import (
	"fmt"
)

// AbortNode makes a node aborted at once, also if it is running: its late outcome will be stale. kind is a cause of the
// engine's failure logic, such as CauseAbortAll. A terminal node is left alone: an error that matches [ErrTransition].
func (s *State) AbortNode(r Ref, kind CauseKind) error { return s.end1(r, kind, Aborted) }

// CancelNode makes a node cancelled at once, also if it is running: its late outcome will be stale. A terminal node is
// left alone, and the end node cannot be cancelled: an error that matches [ErrTransition].
func (s *State) CancelNode(r Ref) error { return s.end1(r, CauseCancelNode, Cancelled) }

func (s *State) end1(r Ref, kind CauseKind, to Status) error {
	if err := s.drive(); err != nil {
		return err
	}
	defer s.unlock()
	if err := s.known(r); err != nil {
		return err
	}
	if from := s.status(r); from.Terminal() || r == s.net.end {
		return &TransitionError{Node: s.net.id(r), From: from, To: to}
	}
	if kind == CauseNone || kind >= causeCount || kind.stopStatus() != to {
		return fmt.Errorf("%w: cause %v for %v", ErrBadValue, kind, to)
	}
	s.withdraw(r)
	s.finish(r, to, uint64(kind)<<kindShift|uint64(uint32(r)))
	s.settled(r)
	return nil
}

// AbortAll makes every node that is not terminal aborted at once, running ones included, whose late outcomes will be
// stale. Cleanup nodes and the end node are left alone and still run. Terminal nodes stay as they are.
func (s *State) AbortAll() {
	if s.drive() != nil {
		return
	}
	defer s.unlock()
	s.stop(CauseAbortAll, noRef, stopInstantly)
}

// CancelAll is AbortAll for a request to stop: nodes become cancelled.
func (s *State) CancelAll() {
	if s.drive() != nil {
		return
	}
	defer s.unlock()
	s.stop(CauseCancelRun, noRef, stopInstantly)
}

// Stop stops the run in two phases: nodes that have not started become aborted or cancelled, depending on the cause, at
// once; the coordinator asks running nodes to stop, see NextStop, and settles them. Cleanup nodes and the end node still
// run. The first cause stands.
func (s *State) Stop(kind CauseKind) error { return s.stopAll(kind, stopAsking) }

func badCause(kind CauseKind) error { return fmt.Errorf("%w: cause %v", ErrBadValue, kind) }

// StopNode is the two-phase form of AbortNode and CancelNode: the coordinator asks a running node to stop, see NextStop; any
// other becomes terminal at once.
func (s *State) StopNode(r Ref, kind CauseKind) error {
	if err := s.drive(); err != nil {
		return err
	}
	defer s.unlock()
	return s.stopNode(r, kind, noRef, stopAsking)
}

// stopNode stops one node because of another, or of none.
func (s *State) stopNode(r Ref, kind CauseKind, origin Ref, manner stopManner) error {
	if err := s.known(r); err != nil {
		return err
	}
	if kind == CauseNone || kind >= causeCount {
		return fmt.Errorf("%w: cause %v", ErrBadValue, kind)
	}
	to := kind.stopStatus()
	if from := s.status(r); from.Terminal() || r == s.net.end {
		return &TransitionError{Node: s.net.id(r), From: from, To: to}
	}
	if statusOf(s.words[r]) == Running {
		s.stopRunning(r, kind, origin, manner)
		return nil
	}
	s.withdraw(r)
	s.finish(r, to, uint64(kind)<<kindShift|uint64(uint32(origin)))
	s.settled(r)
	return nil
}

// NextStop hands out a running attempt that is to be asked to stop, each once.
func (s *State) NextStop() (Token, bool) {
	if s.drive() != nil {
		return Token{}, false
	}
	defer s.unlock()
	return s.nextStop()
}

func (s *State) nextStop() (Token, bool) {
	for len(s.stopping) > 0 {
		r := s.stopping[0]
		s.stopping = s.stopping[1:]
		if w := s.words[r]; statusOf(w) == Running {
			return Token{Ref: r, Attempt: int32(w & wordCount)}, true
		}
	}
	return Token{}, false
}

type stopManner uint8

const (
	stopInstantly stopManner = iota // running nodes become terminal too
	stopAsking                      // running nodes are asked
	stopDraining                    // running nodes may finish
)

// stop stops everything but cleanup nodes and the end. It sets all statuses before it visits an edge, so that a stopped node
// is not a victim of another stopped node.
func (s *State) stop(kind CauseKind, origin Ref, manner stopManner) {
	if s.stopped == CauseNone {
		s.stopped = kind
	}
	s.lift() // cleanup nodes are to run
	bits := uint64(kind)<<kindShift | uint64(uint32(origin))
	for i := range s.words {
		r, w := Ref(i), s.words[i]
		if statusOf(w).Terminal() || s.net.facts[r].is(factCleanup) && !s.closed {
			continue
		}
		if statusOf(w) == Running && manner != stopInstantly {
			s.stopRunning(r, kind, origin, manner)
			continue
		}
		s.withdraw(r)
		s.finish(r, kind.stopStatus(), bits)
		s.work = append(s.work, r)
	}
	s.hurry()
	s.visitAll()
	if s.waves {
		if s.pending == 0 {
			s.advance()
		}
		return
	}
	s.cascade()
	s.maybeEnd()
}

// stopRunning asks a running node to stop, or lets it finish its attempt without another one.
func (s *State) stopRunning(r Ref, kind CauseKind, origin Ref, manner stopManner) {
	switch w := s.words[r]; {
	case manner != stopDraining || w&wordAdmitting != 0: // what is not admitted has not started
		s.askToStop(r, kind, origin)
	case w&(wordStopping|wordDraining) == 0:
		s.setStop(r, wordDraining, kind, origin)
	}
}

func (s *State) askToStop(r Ref, kind CauseKind, origin Ref) {
	if s.words[r]&wordStopping != 0 {
		return // the first cause stands
	}
	s.setStop(r, wordStopping, kind, origin)
	s.stopping = append(s.stopping, r)
}

// stopDraining makes a running node that may finish one that was asked to stop: it cannot do what it has returned.
func (s *State) stopDraining(r Ref) { s.words[r] |= wordStopping }

// setStop notes the cause for which a running node is stopped, with wordStopping or wordDraining.
func (s *State) setStop(r Ref, flag uint64, kind CauseKind, origin Ref) {
	s.words[r] = s.words[r]&^wordKind | flag | uint64(kind)<<kindShift
	if s.origin == nil {
		s.origin = map[Ref]Ref{}
	}
	s.origin[r] = origin
}

// stopOrigin is the origin of a node that was asked to stop, or noRef.
func (s *State) stopOrigin(r Ref) Ref {
	origin, ok := s.origin[r]
	if !ok {
		origin = noRef
	}
	return origin
}

// withdraw removes a node that is about to be stopped from all queues and counts.
func (s *State) withdraw(r Ref) {
	w := s.words[r]
	switch {
	case w&wordChecking != 0:
		if !s.inline.Remove(int(r)) && s.host != nil { // a worker is performing its check in vain
			s.unchecked = append(s.unchecked, r)
		}
		s.busy--
	case statusOf(w) == Ready:
		if !s.inline.Remove(int(r)) && s.ready.Remove(int(s.pos[r])) {
			s.decline(r)
		} // or it is in a line for a slot, which will pass over it
	case statusOf(w) == Running:
		s.leaveRunning(r)
	case statusOf(w) == Retrying:
		s.busy--
	case statusOf(w) == Suspended:
		s.awake()
		if s.host != nil {
			s.host.endedWait()
		}
	}
}
