package kahn

import "slices"

// Next hands out a task: checks and inline nodes first, which hold no slot, then the best ready node if a slot is free.
// Ready nodes are ordered by priority, longest remaining path, and declaration.
func (s *State) Next() (Task, bool) {
	if s.drive() != nil {
		return Task{}, false
	}
	defer s.unlock()
	return s.next()
}

func (s *State) next() (Task, bool) {
	for s.inline.Len() > 0 {
		i, _ := s.inline.PopMin()
		r := Ref(i)
		switch w := s.words[r]; {
		case w&wordChecking != 0:
			return Task{Token: Token{Ref: r}, Check: true}, true
		case statusOf(w) == Running:
			return Task{Token: Token{Ref: r, Attempt: int32(w & wordCount)}, Check: true, returned: true}, true
		case s.hold == holdAll && s.net.facts[r].is(factMocked):
			s.held = append(s.held, r) // like a step, the mock of a gate or a composite must not begin
			continue
		}
		return s.start(r), true
	}
	if s.hold != holdNothing {
		s.passOver()
	}
	if s.limit == 0 || s.slotFree() {
		for {
			i, ok := s.ready.PopMin()
			if !ok {
				break
			}
			if r := s.at[i]; s.acquire(r) {
				s.running++
				return s.start(r), true
			}
		}
	}
	return s.nextGate()
}

// nextGate hands out the gates, after everything that can be started: a suspension must stop only later nodes.
func (s *State) nextGate() (Task, bool) {
	for len(s.gates) > 0 {
		r := s.gates[0]
		if s.gates = s.gates[1:]; statusOf(s.words[r]) == Ready {
			return Task{Token: Token{Ref: r}, Gate: true}, true
		}
	}
	return Task{}, false
}

// hasNext reports whether next would return something.
func (s *State) hasNext() bool {
	return s.inline.Len() > 0 || s.ready.Len() > 0 && (s.limit == 0 || s.slotFree()) || len(s.gates) > 0
}

// hasNews reports whether the coordinator has to attend to more than its next task: changes to write down or to publish, attempts to
// stop, the end, tokens, or other runs.
func (s *State) hasNews() bool {
	return s.noted || len(s.stopping) > 0 || len(s.unchecked) > 0 || s.left == 0 || s.limits.rates != nil || s.limits.pool != nil
}

// slotFree reports whether a ready node may start, under a limit.
func (s *State) slotFree() bool {
	return s.running < s.limit && (s.tree == nil || s.host.grants())
}

func (s *State) start(r Ref) Task {
	if verifying && s.words[r]&wordAdmitting == 0 {
		s.check(r, Running)
	}
	was := s.words[r]
	w := was&^wordStatus | wordRunning
	w++ // the attempt
	s.busy++
	if s.admits && (w&wordCount == 1 || was&wordAdmitting != 0) && s.net.facts[r].is(factAdmit) {
		s.words[r] = w | wordAdmitting
	} else {
		s.words[r] = w
		s.log(r, was, Running)
	}
	return Task{Token: Token{Ref: r, Attempt: int32(w & wordCount)}}
}

// nextPlain is next if that would start a plain node for the first time. If it returns false, next may still have a task.
func (s *State) nextPlain() (Ref, bool) {
	if s.ready.Len() == 0 || s.inline.Len() > 0 || len(s.gates) > 0 || s.limits.active || s.limit > 0 && !s.slotFree() || s.hold != holdNothing || len(s.stopping) > 0 {
		return noRef, false
	}
	i, _ := s.ready.PopMin()
	r := s.at[i]
	w := s.words[r]
	if w&(wordPlain|wordSubstituted|wordCount) != wordPlain {
		s.ready.Insert(i)
		return noRef, false
	}
	if verifying {
		s.check(r, Running)
	}
	s.words[r] = w&^wordStatus | wordRunning | 1
	s.log(r, w, Running)
	s.busy++
	s.running++
	return r, true
}

// mayGoOn reports whether a run that rested when it was left has something to do.
func (s *State) mayGoOn() bool {
	if s.busy > 0 || s.done() {
		return true
	}
	for _, w := range s.words {
		if statusOf(w) == Ready && (s.hold == holdNothing || w&wordCount != 0) {
			return true
		}
	}
	return false
}

// onlyGates reports whether there are gates to hand out, and nothing else.
func (s *State) onlyGates() bool {
	return len(s.gates) > 0 && s.inline.Len() == 0 && (s.ready.Len() == 0 || !s.slotFree())
}

// hasGates reports whether there may be gates to hand out.
func (s *State) hasGates() bool { return len(s.gates) > 0 }

// takeGates hands out the gates that is selects. More of them may come meanwhile.
func (s *State) takeGates(is func(Ref) bool, reach func(Ref)) {
	reached := false
	for i := 0; i < len(s.gates); i++ {
		if r := s.gates[i]; statusOf(s.words[r]) == Ready && is(r) {
			reach(r)
			reached = true
		}
	}
	if reached { // else the run would seem to have something left to do
		s.gates = slices.DeleteFunc(s.gates, func(r Ref) bool { return statusOf(s.words[r]) != Ready })
	}
}

// firstInline returns the first of the nodes whose check or inline evaluation is due.
func (s *State) firstInline() (Ref, bool) {
	i, ok := s.inline.Min()
	return Ref(i), ok
}

// firstReady returns the best of the nodes that contend for a slot.
func (s *State) firstReady() (Ref, bool) {
	pos, ok := s.ready.Min()
	if !ok {
		return noRef, false
	}
	return s.at[pos], true
}

// contends reports whether a node contends for a slot: it is not in line for something that it lacks.
func (s *State) contends(r Ref) bool { return s.ready.Has(int(s.pos[r])) }

// wantsSlot reports whether a node contends for a slot that the run's own limit leaves it. Nodes that are held do not.
func (s *State) wantsSlot() bool {
	if s.hold != holdNothing {
		s.passOver()
	}
	return s.ready.Len() > 0 && (s.limit == 0 || s.running < s.limit)
}

// isQueued reports whether a ready node contends for being handed out, or waits in line for something that it lacks.
func (s *State) isQueued(r Ref) bool {
	f := &s.net.facts[r]
	switch {
	case f.is(factGate):
		return slices.Contains(s.gates, r)
	case f.is(factInline):
		return s.inline != nil && s.inline.Has(int(r))
	case s.contends(r) || slices.Contains(s.held, r):
		return true
	}
	for g := range s.lines(r) {
		for _, q := range s.limits.groups[g].queues {
			if slices.Contains(q.nodes, s.pos[r]) {
				return true
			}
		}
	}
	return false
}
