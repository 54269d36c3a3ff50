package kahn

// limits are the slots of groups and keys. A ready node takes all its slots or none: one that lacks a slot waits in the
// line of the group that lacks it and holds nobody else back. A slot that becomes free goes to the best node of the line.
type limits struct {
	groups []slots // by group; nil if the run has no group that limits
	active bool    // there are slots to take and to return besides those of the run's own limit
}

type slots struct {
	limit, used int32   // no limit: 0
	line        []int32 // schedule positions of waiting nodes, a binary heap; nodes that were stopped are passed over
}

func makeLimits(p *Plan, keyLimit int) limits {
	var l limits
	if p.member == nil {
		return l // groups without members
	}
	for i, g := range p.groups {
		limit := g.Limit
		if g.key {
			limit = keyLimit
		}
		if limit == 0 {
			continue
		}
		if l.groups == nil {
			l.groups = make([]slots, len(p.groups))
		}
		l.groups[i].limit = int32(limit)
		l.active = true
	}
	return l
}

// acquire takes the slots of a ready node, or puts it in line for one that it lacks.
func (s *State) acquire(r Ref) bool {
	if !s.limits.active {
		return true
	}
	members := s.members(r)
	for _, g := range members {
		if x := &s.limits.groups[g]; x.limit > 0 && x.used >= x.limit {
			x.push(s.pos[r])
			s.decline(r)
			return false
		}
	}
	for _, g := range members {
		s.limits.groups[g].used++
	}
	if s.tree != nil {
		s.tree.used++
	}
	return true
}

// members returns the groups of a node, if the run has any that limits.
func (s *State) members(r Ref) []int32 {
	if s.limits.groups == nil {
		return nil
	}
	return s.plan.member[r]
}

// release returns the slots of a node.
func (s *State) release(r Ref) {
	if !s.limits.active {
		return
	}
	if s.tree != nil {
		s.tree.used--
	}
	for _, g := range s.members(r) {
		s.limits.groups[g].used--
		s.offer(g)
	}
}

// decline passes on the slots that a node may have been offered, and will not take.
func (s *State) decline(r Ref) {
	for _, g := range s.members(r) {
		s.offer(g)
	}
}

// offer makes the best waiting node of a group that has a free slot contend again.
func (s *State) offer(g int32) {
	x := &s.limits.groups[g]
	for len(x.line) > 0 && x.used < x.limit {
		pos := x.pop()
		if statusOf(s.words[s.at[pos]]) == Ready {
			s.ready.Insert(int(pos))
			return
		}
	}
}

func (x *slots) push(pos int32) {
	x.line = append(x.line, pos)
	for i := len(x.line) - 1; i > 0; {
		parent := (i - 1) / 2
		if x.line[parent] <= x.line[i] {
			return
		}
		x.line[parent], x.line[i] = x.line[i], x.line[parent]
		i = parent
	}
}

func (x *slots) pop() int32 {
	top, last := x.line[0], len(x.line)-1
	x.line[0] = x.line[last]
	x.line = x.line[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return top
		}
		if child+1 < last && x.line[child+1] < x.line[child] {
			child++
		}
		if x.line[i] <= x.line[child] {
			return top
		}
		x.line[child], x.line[i] = x.line[i], x.line[child]
		i = child
	}
}
