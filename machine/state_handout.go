package machine

import "github.com/seed-c794f7ef/kahn/internal/strict"

// Next hands out a task, or returns false if there is none. Checks and inline nodes, which need no slot, come first. The best ready node comes next,
// if a slot is free. Gates come last. Ready nodes are ordered by priority, longest remaining path, and declaration.
func (st *State) Next() (Task, bool) {
	s, err := st.drive()
	if err != nil {
		return Task{}, false
	}
	defer s.unlockAndDeliver()
	return s.Next()
}

// Next is [State.Next].
func (s *Locked) Next() (Task, bool) {
	for s.inline.Len() > 0 {
		i, _ := s.inline.PopMin()
		r := Ref(i)
		switch w := s.words[r]; {
		case s.heldInline(r, w):
			aside := s.hasAside()
			aside.held = append(aside.held, r)
			continue
		case w&WordChecking != 0:
			return Task{Token: Token{Ref: r}, Check: true}, true
		case statusOf(w) == Running:
			return Task{Token: Token{Ref: r, Attempt: int32(w & wordCount)}, Check: true, Returned: true}, true
		}
		return s.start(r), true
	}
	if s.hold != holdNothing {
		s.passOver()
	}
	if s.slotFree() {
		for {
			i, ok := s.ready.PopMin()
			if !ok {
				break
			}
			if r := s.order.at[i]; s.acquire(r) {
				s.occupy()
				return s.start(r), true
			}
		}
	}
	return s.NextGate()
}

// TakeEnded hands out the conclusion of a composite whose nested run has ended, before all other tasks. It returns false if there is nothing to conclude.
func (s *Locked) TakeEnded(r Ref) (Task, bool) {
	w := s.words[r]
	if statusOf(w) != Running || s.inline == nil || !s.inline.Remove(int(r)) {
		return Task{}, false
	}
	return Task{Token: Token{Ref: r, Attempt: int32(w & wordCount)}, Check: true, Returned: true}, true
}

// heldInline reports whether a check or an inline node must not begin now. Like steps, mocks of gates and composites must not begin while the run is
// being left (see Leave). While a reversal holds new nodes back (see Reverse), no check and no new inline node may begin.
func (s *Locked) heldInline(r Ref, w uint64) bool {
	if statusOf(w) == Running {
		return false // the nested run of the composite has ended
	}
	return s.hold == holdAll && w&WordChecking == 0 && s.net.facts[r].is(FlagMocked) ||
		s.undo != nil && s.undo.holds && (w&WordChecking != 0 || w&wordCount == 0)
}

// HasNext reports whether Next may have a task. If HasNext returns true, a hold, or a missing slot or token, may still keep all queued nodes from
// starting. Next then takes these nodes out of the queue and returns false.
func (s *Locked) HasNext() bool {
	return s.inline.Len() > 0 || s.ready.Len() > 0 && s.slotFree() || s.HasGates()
}

// Announce announces that there is a task, if HasNext returns true and no announcement is open. For a State with a [Host] it calls the host, which
// starts a worker. For any other State, the signal of [State.WorkSignal] changes. Before the coordinator releases the lock, it
// first takes its own tasks, and then calls Announce for the other tasks. The announcement is open until Answer is called.
func (s *Locked) Announce() {
	if s.announced || !s.HasNext() {
		return
	}
	s.announced = true
	if s.host != nil {
		s.host.Announced()
	}
}

// Answer closes the announcement: the worker that was started for it takes tasks from now on. If this worker leaves tasks, Announce announces
// them again.
func (s *Locked) Answer() { s.announced = false }

// IsAnnounced reports whether an announcement is open.
func (s *Locked) IsAnnounced() bool { return s.announced }

// HasNews reports whether the coordinator may have more to do than its next task: to store or publish changes, to stop running attempts or checks, to
// end the run, to wait for tokens, or to give turns to other runs that share the run's limits.
func (s *Locked) HasNews() bool {
	return s.noted || len(s.stopping) > 0 || len(s.unchecked) > 0 || s.left == 0 || s.limits.rates != nil || s.limits.pool != nil
}

// slotFree reports whether a ready node can get a slot of the run's own limit and a slot of the tree of runs.
func (s *Locked) slotFree() bool {
	return s.limit == 0 || s.running < s.limit && (s.tree == nil || s.host.Grants())
}

func (s *Locked) start(r Ref) Task {
	if strict.Transitions && s.words[r]&WordAdmitting == 0 {
		s.check(r, Running)
	}
	was := s.words[r]
	w := was&^wordStatus | wordRunning
	w++ // counts the attempt
	s.busy++
	if s.admits && (w&wordCount == 1 || was&WordAdmitting != 0) && s.net.facts[r].is(FlagAdmit) {
		s.words[r] = w | WordAdmitting
	} else {
		s.words[r] = w
		s.log(r, was, Running)
	}
	return Task{Token: Token{Ref: r, Attempt: int32(w & wordCount)}}
}

// NextPlain is a fast form of Next. It starts only plain nodes, and only their first attempts. If it returns false, Next may still have a task.
func (s *Locked) NextPlain() (Ref, bool) {
	if s.ready.Len() == 0 || s.inline.Len() > 0 || s.HasGates() || s.limits.active || !s.slotFree() || s.hold != holdNothing || len(s.stopping) > 0 {
		return NoRef, false
	}
	i, _ := s.ready.PopMin()
	r := s.order.at[i]
	w := s.words[r]
	if w&(wordPlain|WordSubstituted|wordCount) != wordPlain {
		s.ready.Insert(i)
		return NoRef, false
	}
	if strict.Transitions {
		s.check(r, Running)
	}
	s.words[r] = w&^wordStatus | wordRunning | 1
	s.log(r, w, Running)
	s.busy++
	s.running++
	return r, true
}

// MayGoOn reports whether a suspended run can continue now, for example because a hold has ended.
func (s *Locked) MayGoOn() bool {
	if s.busy > 0 || s.Done() {
		return true
	}
	for _, w := range s.words {
		if statusOf(w) == Ready && (s.hold == holdNothing || w&wordCount != 0) {
			return true
		}
	}
	return false
}

// HasWork reports whether the run does more than wait for signals and backoffs. It returns true if a node is Ready (even if a hold keeps it from
// starting), is being checked, or runs. It also returns true if the run is not Done although no node is in progress or suspended. Two kinds of
// running nodes do not count: dormant composites, and `pausing` other nodes that only wait, such as loops between two iterations.
func (s *Locked) HasWork(pausing int) bool {
	backoffs := 0
	for _, w := range s.words {
		switch statusOf(w) {
		case Ready:
			return true
		case Retrying:
			backoffs++
		}
	}
	return int(s.busy) > backoffs+pausing || s.busy+s.asleep == 0 && !s.Done()
}

// FirstInline returns the first node whose check or inline evaluation is due.
func (s *Locked) FirstInline() (Ref, bool) {
	i, ok := s.inline.Min()
	return Ref(i), ok
}

// FirstReady returns the best node that contends for a slot.
func (s *Locked) FirstReady() (Ref, bool) {
	pos, ok := s.ready.Min()
	if !ok {
		return NoRef, false
	}
	return s.order.at[pos], true
}

// Contends reports whether a node contends for a slot. Such a node does not wait in a line.
func (s *Locked) Contends(r Ref) bool { return s.ready.Has(int(s.order.pos[r])) }

// WantsSlot reports whether a node contends for a slot and the run's own limit has a free slot. Nodes that a hold keeps from starting do not
// count.
func (s *Locked) WantsSlot() bool {
	if s.hold != holdNothing {
		s.passOver()
	}
	return s.ready.Len() > 0 && (s.limit == 0 || s.running < s.limit)
}
