package machine

import (
	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/internal/ordset"
)

// Compensation is the progress of undoing a node, or a run.
type Compensation uint8

// The states of a compensation. For a run, the state summarizes all nodes of the run. For a composite without a compensation of its own, it
// summarizes the nodes inside.
const (
	CompensationNone    Compensation = iota // nothing was undone, and nothing is being undone
	CompensationRunning                     // the node is being undone, or waits for its turn
	CompensationDone                        // the node was undone
	CompensationFailed                      // the compensation failed, and will not be retried
)

var compensationNames = enum.Of[Compensation]("compensation", "none", "running", "done", "failed")

// String returns "none", "running", "done" or "failed".
func (c Compensation) String() string { return compensationNames.Name(c) }

// MarshalText encodes c as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (c Compensation) MarshalText() ([]byte, error) { return compensationNames.Text(c) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (c *Compensation) UnmarshalText(text []byte) error { return compensationNames.Parse(c, text) }

// The type `undoing` is the part of a State that concerns the compensation of nodes. The Run undoes the nodes, and calls Reverse, NextUndo and
// Undone. Cleanup nodes have a counter of their own, so that the State notices when all other nodes have ended.
type undoing struct {
	cleanups int32         // cleanup nodes that are not terminal
	asked    moment        // the latest moment at which the State called Host.Reverses
	holds    bool          // whether nodes that have not started must wait until no node is left to undo
	reversal *reversal     // the current pass, or nil
	lines    map[Ref]int32 // in a restored State: the groups in whose lines nodes waited for slots in order to be undone, until their turns begin
}

// A moment is a point near the end of a run. At this point the host may begin to undo nodes.
type moment uint8

const (
	beforeAll     moment = iota
	beforeCleanup        // all nodes except the cleanup nodes and the end node are terminal
	beforeEnd            // all nodes except the end node are terminal
)

// A reversal is a pass over the graph against the direction of the edges. Each node has a turn, in which it is undone if necessary. The turn begins
// when the turns of all the node's successors are over. If the node need not be undone, its turn ends at once. The pass visits each edge once and
// does not recurse.
type reversal struct {
	open  []int32     // by Ref: the number of out-edges to nodes whose turns are not over
	state []undoState // by Ref
	ready ordset.Set  // by schedule position: the nodes whose turns have begun, and that contend for slots
	left  int         // how many of the nodes to be undone have not ended their turns
	work  []Ref       // nodes whose turns are over, and whose in-edges the pass has not visited yet
}

type undoState uint8

const (
	undoNothing  undoState = iota
	undoAhead              // the turn of the node has not begun
	undoContends           // the node contends for slots in order to be undone, or waits for a slot in the line of a group
	undoAtWork             // the node is being undone, and holds its slots
	undoPauses             // the host has called PauseUndo: a backoff precedes the next attempt, or nodes inside the composite are being undone
	undoOver
)

// AllowUndo prepares the State for undoing nodes. If some node of a run may have to be undone, call AllowUndo for this run and for all runs around
// it. Call it before the run with these nodes begins. The runs around this run may already be running.
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

// leftOf returns the counter of unfinished nodes that counts node r. The node must not be the end node.
func (s *Locked) leftOf(r Ref) *int32 {
	if s.undo != nil && s.net.facts[r].is(FlagCleanup) {
		return &s.undo.cleanups
	}
	return &s.left
}

// The method `brink` lets the host begin to undo nodes if a moment has come (see the type moment). To do so it calls isOver, and ignores the result.
func (s *Locked) brink() {
	if s.undo != nil {
		s.isOver()
	}
}

// isOver reports whether the end node may run: all other nodes are terminal, and the end node need not wait until nodes are undone.
// isOver also calls Host.Reverses, at most once for each moment (see the type moment). During this call the host may begin to undo nodes.
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
// nothing. If `hold` is set, nodes that have not started wait until the last turn is over, and the run is not Done before then.
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
		s.busy++ // until the last turn is over, the run counts as busy, as if one more node were running
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

// The method `turn` begins the turn of a node. If the node need not be undone, the turn is over at once.
func (x *reversal) turn(s *Locked, r Ref) {
	if x.state[r] == undoAhead {
		x.state[r] = undoContends
		if g, waited := s.undo.lines[r]; waited {
			delete(s.undo.lines, r)
			s.enqueue(g, r, s.takesToken(r))
			return
		}
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

// NextUndo chooses a node that can be undone now, takes the slots of the node's groups and key, and returns the node. If no node can be undone now,
// NextUndo returns false.
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

// claimUndo takes the slots for undoing a node. If a slot is missing, claimUndo puts the node into the line for it and returns false.
func (s *Locked) claimUndo(r Ref) bool {
	defer s.limits.lockPool()()
	return s.claim(r, s.takesToken(r))
}

// takesSlotsBack reports whether a node takes slots while it is undone. Meanwhile a step holds slots of its groups and its key, but no slot of the
// run's own limit.
func (s *Locked) takesSlotsBack(r Ref) bool {
	return s.limits.active && !s.net.facts[r].is(FlagInline|FlagComposite)
}

// PauseUndo releases the slots of a node that is being undone, for example because its compensation failed and will be retried. After the pause, the
// host can call ContinueUndo, and the node contends for slots again.
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

// DelayUndo does what NextUndo and then PauseUndo do for a node whose turn has begun, but takes no slots in between. If the node does not contend for
// slots, DelayUndo changes nothing and returns false.
func (s *Locked) DelayUndo(r Ref) bool {
	if !s.Undoes() || s.undo.reversal.state[r] != undoContends || !s.undo.reversal.ready.Remove(int(s.order.pos[r])) {
		return false
	}
	s.undo.reversal.state[r] = undoPauses
	return true
}

// Undone ends the turn of a node that was undone or could not be undone. It reports whether this was the last turn. After the last turn, the hold
// that Reverse has begun is over.
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

// beingUndone reports whether a node's turn to be undone has begun and is not over.
func (s *Locked) beingUndone(r Ref) bool {
	return s.Undoes() && s.undo.reversal.state[r] >= undoContends && s.undo.reversal.state[r] < undoOver
}

// waitsInLine reports whether a node in a line for a slot still waits: the node is ready, or contends for slots in order to be undone. A line may
// also contain nodes that no longer wait, for example stopped nodes.
func (s *Locked) waitsInLine(r Ref) bool {
	return statusOf(s.words[r]) == Ready || s.Undoes() && s.undo.reversal.state[r] == undoContends
}

// The method `contend` makes the node at a schedule position contend for slots again. The node has left its line.
func (s *Locked) contend(pos int32) {
	if r := s.order.at[pos]; s.Undoes() && s.undo.reversal.state[r] == undoContends {
		s.undo.reversal.ready.Insert(int(pos))
		return
	}
	s.ready.Insert(int(pos))
}
