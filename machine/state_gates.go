package machine

// gateQueue holds gates in the order in which they became ready. Removing any gate takes constant time. All methods except add treat a nil
// queue as an empty queue.
type gateQueue struct {
	refs []Ref        // in order; may still contain gates that were removed
	in   map[Ref]bool // the gates that were not removed
}

func (q *gateQueue) len() int {
	if q == nil {
		return 0
	}
	return len(q.in)
}

func (q *gateQueue) has(r Ref) bool { return q != nil && q.in[r] }

func (q *gateQueue) add(r Ref) {
	q.refs = append(q.refs, r)
	q.in[r] = true
}

func (q *gateQueue) remove(r Ref) {
	if q != nil {
		delete(q.in, r)
	}
}

// The method `pop` removes the first gate and returns it.
func (q *gateQueue) pop() (Ref, bool) {
	for q.len() > 0 {
		r := q.refs[0]
		q.refs = q.refs[1:]
		if q.has(r) {
			q.remove(r)
			return r, true
		}
	}
	return NoRef, false
}

// The method `list` returns the queued gates in a new slice, or nil if there are none.
func (q *gateQueue) list() (gates []Ref) {
	if q == nil {
		return nil
	}
	for _, r := range q.refs {
		if q.has(r) {
			gates = append(gates, r)
		}
	}
	return gates
}

// queueGate adds a ready gate to the queue.
func (s *Locked) queueGate(r Ref) {
	if s.gates == nil {
		s.gates = &gateQueue{in: map[Ref]bool{}}
	}
	s.gates.add(r)
}

// NextGate hands out a gate. A gate that waits may keep other nodes from starting (see Setup.Holds). Therefore Next calls NextGate only if
// no other node can start.
func (s *Locked) NextGate() (Task, bool) {
	if s.undo != nil && s.undo.holds {
		return Task{}, false
	}
	if r, ok := s.gates.pop(); ok {
		return Task{Token: Token{Ref: r}, Gate: true}, true
	}
	return Task{}, false
}

// HasGates reports whether NextGate would hand out a gate.
func (s *Locked) HasGates() bool { return s.gates.len() > 0 && (s.undo == nil || !s.undo.holds) }

// OnlyGates reports whether the State can hand out gates and nothing else.
func (s *Locked) OnlyGates() bool {
	return s.HasGates() && s.inline.Len() == 0 && (s.ready.Len() == 0 || !s.slotFree())
}

// TakeGates calls `reach` with each queued gate for which `is` returns true. The function `reach` settles the gate or makes it wait. If
// `reach` queues more gates, TakeGates looks at these, too.
func (s *Locked) TakeGates(is func(Ref) bool, reach func(Ref)) {
	for i := 0; s.gates != nil && i < len(s.gates.refs); i++ {
		if r := s.gates.refs[i]; s.gates.has(r) && is(r) {
			reach(r)
		}
	}
}
