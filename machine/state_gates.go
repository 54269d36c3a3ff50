package machine

// gateQueue holds gates in the order in which they became ready. One leaves from anywhere in constant time.
type gateQueue struct {
	refs []Ref        // gates that have left included
	in   map[Ref]bool // gates that have not left
}

func (q *gateQueue) has(r Ref) bool { return q.in[r] }

func (q *gateQueue) add(r Ref) {
	if q.in == nil {
		q.in = map[Ref]bool{}
	}
	q.refs = append(q.refs, r)
	q.in[r] = true
}

func (q *gateQueue) remove(r Ref) { delete(q.in, r) }

// pop takes out the first gate.
func (q *gateQueue) pop() (Ref, bool) {
	for len(q.refs) > 0 {
		r := q.refs[0]
		q.refs = q.refs[1:]
		if q.has(r) {
			q.remove(r)
			return r, true
		}
	}
	return NoRef, false
}

// list returns the gates in a slice of its own, nil if there are none.
func (q *gateQueue) list() (gates []Ref) {
	for _, r := range q.refs {
		if q.has(r) {
			gates = append(gates, r)
		}
	}
	return gates
}

// NextGate hands out the gates, after everything that can be started: a suspension must stop only later nodes.
func (s *Locked) NextGate() (Task, bool) {
	if s.undo != nil && s.undo.holds {
		return Task{}, false
	}
	if r, ok := s.gates.pop(); ok {
		return Task{Token: Token{Ref: r}, Gate: true}, true
	}
	return Task{}, false
}

// HasGates reports whether there are gates to hand out.
func (s *Locked) HasGates() bool { return len(s.gates.in) > 0 && (s.undo == nil || !s.undo.holds) }

// OnlyGates reports whether there are gates to hand out, and nothing else.
func (s *Locked) OnlyGates() bool {
	return s.HasGates() && s.inline.Len() == 0 && (s.ready.Len() == 0 || !s.slotFree())
}

// TakeGates hands out the gates that is selects to reach, which settles them or makes them wait. More gates may come meanwhile.
func (s *Locked) TakeGates(is func(Ref) bool, reach func(Ref)) {
	for i := 0; i < len(s.gates.refs); i++ {
		if r := s.gates.refs[i]; s.gates.has(r) && is(r) {
			reach(r)
		}
	}
}
