package machine

import (
	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/internal/ordset"
)

// Compensation is the progress of undoing a node, or a run.
type Compensation uint8

// The states of a compensation. For a run, and for a composite that has no compensation itself, the state summarizes the
// nodes inside.
const (
	CompensationNone    Compensation = iota // no node is undone
	CompensationRunning                     // the compensation has begun, or waits for its turn
	CompensationDone                        // the node was undone
	CompensationFailed                      // the compensation failed, and is not retried
)

var compensationNames = enum.Of[Compensation]("compensation", "none", "running", "done", "failed")

// String returns "none", "running", "done" or "failed".
func (c Compensation) String() string { return compensationNames.Name(c) }

// MarshalText encodes c as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (c Compensation) MarshalText() ([]byte, error) { return compensationNames.Text(c) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (c *Compensation) UnmarshalText(text []byte) error { return compensationNames.Parse(c, text) }

// The type `undoing` is the part of a State that concerns the compensation of nodes. The Run undoes the nodes, and calls Reverse, NextUndo and
// Undone. The struct counts cleanup nodes separately, so that the State notices when all other nodes have ended.
type undoing struct {
	cleanups int32     // cleanup nodes that are not terminal
	asked    moment    // the latest moment at which the State called Host.Reverses
	holds    bool      // whether unstarted nodes must wait until no node is left to undo
	reversal *reversal // the current pass, or nil
}

// A moment is a point near the end of a run, at which the host may begin to undo nodes.
type moment uint8

const (
	beforeAll     moment = iota
	beforeCleanup        // all nodes but the cleanup nodes and the end node are terminal
	beforeEnd            // all nodes but the end node are terminal
)

// A reversal is a pass over the graph against the direction of its edges. The turn of a node, in which it is undone, begins when the turns of all its
// successors are over. A node that needs no undoing ends its turn at once. The pass visits each edge once and does not recurse.
type reversal struct {
	open  []int32     // by Ref: the number of edges to nodes whose turns are not over
	state []undoState // by Ref
	ready ordset.Set  // by schedule position: the nodes that contend for slots because their turn has come
	left  int         // the number of nodes to be undone whose turns are not over
	work  []Ref       // nodes whose turns are over, and whose in-edges are still to be visited
}

type undoState uint8

const (
	undoNothing  undoState = iota
	undoAhead              // the turn of the node has not begun
	undoContends           // the node contends for the slots that undoing it needs, or waits in the line of a group for one of them
	undoAtWork             // the node is being undone, and holds its slots
	undoPauses             // undoing the node failed and will be repeated after a backoff, or the node is a composite and nodes inside it are being undone
	undoOver
)

// AllowUndo prepares the State for undoing its nodes. Call it before the run begins. Also call it for each nested run with nodes that may have to be
// undone, before the nested run begins.
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

// leftOf returns the counter of unfinished nodes to which node r belongs. r must not be the end node.
func (s *Locked) leftOf(r Ref) *int32 {
	if s.undo != nil && s.net.facts[r].is(FlagCleanup) {
		return &s.undo.cleanups
	}
	return &s.left
}

// The method `brink` gives the host a chance to undo nodes before the run ends, for example before the cleanup nodes of the run begin. It calls
// isOver, which asks the host, and ignores the result of isOver.
func (s *Locked) brink() {
	if s.undo != nil {
		s.isOver()
	}
}

// isOver reports whether the end node may run: all other nodes are terminal, and no node must be undone before it. At each moment (see the type
// moment), isOver calls Host.Reverses once, and the host may begin to undo nodes in this call.
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

// Reverse begins to undo the nodes for which `undoes` returns true, and returns the number of these nodes. If the number is 0, Reverse changes
// nothing. If `hold` is set, unstarted nodes wait until everything is undone, and the run is not Done until then.
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
		s.busy++ // while turns are left, the run counts as busy, as if one more node were running
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

// The method `turn` begins the turn of a node.
func (x *reversal) turn(s *Locked, r Ref) {
	if x.state[r] == undoAhead {
		x.state[r] = undoContends
		x.ready.Insert(int(s.order.pos[r]))
		return
	}
	x.work = append(x.work, r)
}

// The method `pass` visits the in-edges of the nodes whose turns are over.
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

// NextUndo chooses a node that can be undone now, takes the slots of the node's groups and key, and returns the node. It returns false if there
// is no such node.
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

// claimUndo takes the slots that undoing a node needs.
func (s *Locked) claimUndo(r Ref) bool {
	defer s.limits.lockPool()()
	return s.claim(r, s.takesToken(r))
}

// takesSlotsBack reports whether undoing a node takes slots. Undoing a step takes slots of the step's groups and key, but not of the run's own
// limit.
func (s *Locked) takesSlotsBack(r Ref) bool {
	return s.limits.active && !s.net.facts[r].is(FlagInline|FlagComposite)
}

// PauseUndo releases the slots that undoing a node has taken, for example because the compensation failed and will be retried. If the node must
// contend for slots again after the pause, the host calls ContinueUndo.
func (s *Locked) PauseUndo(r Ref) {
	if s.takesSlotsBack(r) {
		s.yield(r)
	}
	s.undo.reversal.state[r] = undoPauses
}

// ContinueUndo makes a node contend for slots again after PauseUndo.
func (s *Locked) ContinueUndo(r Ref) {
	s.undo.reversal.state[r] = undoContends
	s.undo.reversal.ready.Insert(int(s.order.pos[r]))
}

// Undone ends the turn of a node, whether or not the node was undone. It reports whether this was the last turn. After the last turn, the nodes
// that Reverse held back may start.
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

// Undoes reports whether the run is undoing nodes.
func (s *Locked) Undoes() bool { return s.undo != nil && s.undo.reversal != nil }

// beingUndone reports whether the turn of a node has come and is not over.
func (s *Locked) beingUndone(r Ref) bool {
	return s.Undoes() && s.undo.reversal.state[r] >= undoContends && s.undo.reversal.state[r] < undoOver
}

// A line for a slot may contain nodes that no longer wait, for example stopped nodes. waitsInLine reports whether a node in a line still waits: it is
// ready, or contends to be undone.
func (s *Locked) waitsInLine(r Ref) bool {
	return statusOf(s.words[r]) == Ready || s.Undoes() && s.undo.reversal.state[r] == undoContends
}

// The method `contend` lets a node that has left a line contend for slots again.
func (s *Locked) contend(pos int32) {
	if r := s.order.at[pos]; s.Undoes() && s.undo.reversal.state[r] == undoContends {
		s.undo.reversal.ready.Insert(int(pos))
		return
	}
	s.ready.Insert(int(pos))
}
