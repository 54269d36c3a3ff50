package machine

import (
	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/internal/ordset"
)

// Compensation says how far the undoing of what was done has come: of a node, or of a run.
type Compensation uint8

// The states of a compensation. The state of a run, and of a composite without a compensation of its own, is about the nodes
// inside.
const (
	CompensationNone    Compensation = iota // nothing is undone
	CompensationRunning                     // it has begun, or its turn is to come
	CompensationDone                        // what was done is undone
	CompensationFailed                      // it has failed for good
)

var compensationNames = enum.Of[Compensation]("compensation", "none", "running", "done", "failed")

// String returns "none", "running", "done" or "failed".
func (c Compensation) String() string { return compensationNames.Name(c) }

// MarshalText encodes c as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (c Compensation) MarshalText() ([]byte, error) { return compensationNames.Text(c) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for anything else.
func (c *Compensation) UnmarshalText(text []byte) error { return compensationNames.Parse(c, text) }

// undoing is what a State knows of the undoing of its nodes, which a Run performs by Reverse, NextUndo and Undone. It counts cleanup nodes apart
// from the others, so that the end of these is seen where the last of them ends.
type undoing struct {
	cleanups int       // cleanup nodes that are not terminal
	asked    moment    // the last moment at which the host was asked
	holds    bool      // nodes that have not started wait until everything is undone
	reversal *reversal // running, or nil
}

// moment is a moment at which it is known whether the run is about to end badly.
type moment uint8

const (
	beforeAll     moment = iota
	beforeCleanup        // all nodes are terminal but cleanup nodes and the end node
	beforeEnd            // all but the end node
)

// reversal is a pass over the graph in the reverse order of its edges: the turn of a node comes when the turns of all that follow it are over.
// The turn of a node that is not to be undone is over at once. Each edge is visited once, and nothing recurs.
type reversal struct {
	open  []int32     // by Ref: edges to nodes whose turns are not over
	state []undoState // by Ref
	ready ordset.Set  // by schedule position: nodes whose turn has come, and that contend for slots
	left  int         // nodes to be undone whose turns are not over
	work  []Ref       // nodes whose turns are over, and whose in-edges are still to be visited
}

type undoState uint8

const (
	undoNothing  undoState = iota
	undoAhead              // its turn has not come
	undoContends           // it contends for slots, or waits in a line for one
	undoAtWork             // it holds its slots
	undoPauses             // it backs off
	undoOver
)

// AllowUndo prepares the State for the undoing of its nodes. Nothing has begun, or a nested run with nodes that may have to be undone is about to.
func (s *Locked) AllowUndo() {
	if s.undo != nil {
		return
	}
	s.ownAftermath().undo = &undoing{}
	for r := range s.words {
		if r := Ref(r); s.net.facts[r].is(FlagCleanup) && r != s.net.end && !statusOf(s.words[r]).Terminal() {
			s.left--
			s.undo.cleanups++
		}
	}
}

// AllowsUndo reports whether AllowUndo was called.
func (s *Locked) AllowsUndo() bool { return s.undo != nil }

// leftOf is the count of the nodes that are not terminal in which a node counts that is not the end node.
func (s *Locked) leftOf(r Ref) *int {
	if s.undo != nil && s.net.facts[r].is(FlagCleanup) {
		return &s.undo.cleanups
	}
	return &s.left
}

// brink asks the host whether it has something to undo, where the end of the run does not follow yet.
func (s *Locked) brink() {
	if s.undo != nil {
		s.isOver()
	}
}

// isOver reports whether everything but the end node is over: all nodes are terminal, and what is to be undone is undone. At each moment the host is
// asked once.
func (s *Locked) isOver() bool {
	u := s.undo
	if s.left > 0 {
		return false
	}
	now := beforeCleanup
	if u.cleanups == 0 {
		now = beforeEnd
	}
	if u.asked < now && !u.holds {
		u.asked = now
		if s.host != nil && s.host.Reverses() {
			return false
		}
	}
	return u.cleanups == 0 && !u.holds
}

// Reverse begins to undo the nodes that undoes selects. It returns how many these are; nothing has begun if there are none. With hold, nodes that
// have not started wait, and the run is not Done, until everything is undone.
func (s *Locked) Reverse(undoes func(Ref) bool, hold bool) int {
	n := len(s.words)
	x := &reversal{open: make([]int32, n), state: make([]undoState, n)}
	for i := range s.words {
		r := Ref(i)
		if r == s.net.end {
			continue
		}
		in := s.net.in.row(r)
		s.visits += int64(len(in)) + 1
		for _, e := range in {
			x.open[s.net.edges[e].From]++
		}
		if undoes(r) {
			x.state[r] = undoAhead
			x.left++
		}
	}
	if x.left == 0 {
		return 0
	}
	left := x.left
	x.ready = ordset.Make(n)
	if s.undo.reversal = x; hold {
		s.undo.holds = true
		s.busy++ // the run does not rest
		if s.hold == holdNothing {
			s.holdBack()
		}
	}
	for r := range Ref(n) {
		if r != s.net.end && x.open[r] == 0 {
			x.turn(s, r)
		}
	}
	x.pass(s)
	return left
}

// turn begins the turn of a node.
func (x *reversal) turn(s *Locked, r Ref) {
	if x.state[r] == undoAhead {
		x.state[r] = undoContends
		x.ready.Insert(int(s.order.pos[r]))
		return
	}
	x.work = append(x.work, r)
}

// pass visits the in-edges of the nodes whose turns are over.
func (x *reversal) pass(s *Locked) {
	for len(x.work) > 0 {
		last := len(x.work) - 1
		r := x.work[last]
		x.work = x.work[:last]
		for _, e := range s.net.in.row(r) {
			s.visits++
			from := s.net.edges[e].From
			if x.open[from]--; x.open[from] == 0 {
				x.turn(s, from)
			}
		}
	}
}

// NextUndo hands out a node that is to be undone now, with the slots of its groups and its key.
func (s *Locked) NextUndo() (Ref, bool) {
	if s.undo == nil || s.undo.reversal == nil {
		return NoRef, false
	}
	x := s.undo.reversal
	for i, ok := x.ready.PopMin(); ok; i, ok = x.ready.PopMin() {
		if r := s.order.at[i]; !s.takesSlotsBack(r) || s.claimUndo(r) {
			x.state[r] = undoAtWork
			return r, true
		}
	}
	return NoRef, false
}

// claimUndo takes the slots of a node that is to be undone.
func (s *Locked) claimUndo(r Ref) bool {
	defer s.limits.lockPool()()
	return s.claim(r, s.takesToken(r))
}

// takesSlotsBack reports whether a node takes slots to be undone: slots of the groups and of the key of a step. The limit of the run does not count.
func (s *Locked) takesSlotsBack(r Ref) bool {
	return s.limits.active && !s.net.facts[r].is(FlagInline|FlagComposite)
}

// PauseUndo releases the slots of a node that is to be undone by another attempt, and ContinueUndo makes it contend again.
func (s *Locked) PauseUndo(r Ref) {
	if s.takesSlotsBack(r) {
		s.yield(r)
	}
	s.undo.reversal.state[r] = undoPauses
}

// ContinueUndo is the reverse of PauseUndo.
func (s *Locked) ContinueUndo(r Ref) {
	s.undo.reversal.state[r] = undoContends
	s.undo.reversal.ready.Insert(int(s.order.pos[r]))
}

// Undone ends the turn of a node, whether or not it was undone. It reports whether that was the last one; the nodes that were held may start then.
func (s *Locked) Undone(r Ref) (last bool) {
	x := s.undo.reversal
	if x.state[r] == undoAtWork && s.takesSlotsBack(r) {
		s.yield(r)
	}
	x.state[r] = undoOver
	x.work = append(x.work, r)
	x.pass(s)
	if x.left--; x.left > 0 {
		return false
	}
	s.undo.reversal = nil
	if s.undo.holds {
		s.undo.holds = false
		s.busy--
		if s.hold == holdFresh && !(s.asleep > 0 && s.holds && !s.Hurries()) {
			s.lift()
		}
		s.maybeEnd()
	}
	return true
}

// Undoes reports whether nodes are being undone.
func (s *Locked) Undoes() bool { return s.undo != nil && s.undo.reversal != nil }

// beingUndone reports whether a node is to be undone now.
func (s *Locked) beingUndone(r Ref) bool {
	return s.Undoes() && s.undo.reversal.state[r] >= undoContends && s.undo.reversal.state[r] < undoOver
}

// waitsInLine reports whether a node that has been put into a line still waits: it is ready, or to be undone.
func (s *Locked) waitsInLine(r Ref) bool {
	return statusOf(s.words[r]) == Ready || s.Undoes() && s.undo.reversal.state[r] == undoContends
}

// contend makes a node contend for slots that has left a line.
func (s *Locked) contend(pos int32) {
	if r := s.order.at[pos]; s.Undoes() && s.undo.reversal.state[r] == undoContends {
		s.undo.reversal.ready.Insert(int(pos))
		return
	}
	s.ready.Insert(int(pos))
}
