package kahn

// limits are the slots of groups and keys. A ready node takes all its slots or none: one that lacks a slot waits in the
// line of the group that lacks it and holds nobody else back. A slot that becomes free goes to the best node of the line.
type limits struct {
	groups []line // by group; nil if the run has no group that limits
	active bool   // there are slots to take and to return besides those of the run's own limit
}

// line is where the nodes of a run wait that lack a slot of a group.
type line struct {
	*slots         // nil: no limit
	nodes  []int32 // schedule positions, a binary heap; nodes that were stopped are passed over
	listed bool    // the run is in waiting
}

// slots are those of a group or a key. In a tree of runs those of keys, and of groups that nested runs refer to, are common.
type slots struct {
	limit, used int
	waiting     []waiting // in a tree of runs: those whose lines are not empty, or were not
}

type waiting struct {
	s *State
	g int32
}

func (x *slots) full() bool { return x != nil && x.used >= x.limit }

func makeLimits(p *Plan, keyLimit int) limits {
	var l limits
	if p.member == nil && !p.composite {
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
			l.groups = make([]line, len(p.groups))
		}
		l.groups[i].slots = &slots{limit: limit}
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
		if x := &s.limits.groups[g]; x.full() {
			x.push(s.pos[r])
			if !x.listed && s.turn.run != nil {
				x.listed = true
				x.waiting = append(x.waiting, waiting{s, g})
			}
			s.decline(r)
			return false
		}
	}
	for _, g := range members {
		if x := &s.limits.groups[g]; x.slots != nil {
			x.used++
		}
	}
	if s.tree != nil {
		s.tree.used++
	}
	return true
}

// members returns the groups of a node, if the run has any that limits.
func (s *State) members(r Ref) []int32 {
	if s.limits.groups == nil || s.plan.member == nil {
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
		if x := &s.limits.groups[g]; x.slots != nil {
			x.used--
			s.offer(g)
		}
	}
}

// decline passes on the slots that a node may have been offered, and will not take.
func (s *State) decline(r Ref) {
	for _, g := range s.members(r) {
		s.offer(g)
	}
}

// offer makes the best waiting node of a group that has a free slot contend again: of this run, else of the one that has
// waited longest.
func (s *State) offer(g int32) {
	x := s.limits.groups[g].slots
	if x == nil || s.offerOwn(g) {
		return
	}
	for len(x.waiting) > 0 && !x.full() {
		w := x.waiting[0]
		if w.s.offerOwn(w.g) {
			w.s.turn.run.tree.touch(w.s.turn.run)
			return
		}
		w.s.limits.groups[w.g].listed = false
		x.waiting = x.waiting[1:]
	}
}

// offerOwn is offer for the nodes of this run.
func (s *State) offerOwn(g int32) bool {
	x := &s.limits.groups[g]
	for len(x.nodes) > 0 && !x.full() {
		pos := x.pop()
		if statusOf(s.words[s.at[pos]]) == Ready {
			s.ready.Insert(int(pos))
			return true
		}
	}
	return false
}

func (x *line) push(pos int32) {
	x.nodes = append(x.nodes, pos)
	for i := len(x.nodes) - 1; i > 0; {
		parent := (i - 1) / 2
		if x.nodes[parent] <= x.nodes[i] {
			return
		}
		x.nodes[parent], x.nodes[i] = x.nodes[i], x.nodes[parent]
		i = parent
	}
}

func (x *line) pop() int32 {
	top, last := x.nodes[0], len(x.nodes)-1
	x.nodes[0] = x.nodes[last]
	x.nodes = x.nodes[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return top
		}
		if child+1 < last && x.nodes[child+1] < x.nodes[child] {
			child++
		}
		if x.nodes[i] <= x.nodes[child] {
			return top
		}
		x.nodes[child], x.nodes[i] = x.nodes[i], x.nodes[child]
		i = child
	}
}

// waitsForSlot reports whether a node, of a run that does nothing at the moment, lacks nothing but a slot that another run
// of the tree holds.
func (s *State) waitsForSlot() bool {
	if s.hold != holdNothing {
		s.passOver()
	}
	if s.ready.Len() > 0 && (s.limit == 0 || s.running < s.limit) { // else its own slots are held by items that wait
		return true
	}
	for i := range s.limits.groups {
		for _, pos := range s.limits.groups[i].nodes {
			if w := s.words[s.at[pos]]; statusOf(w) == Ready && (s.hold == holdNothing || s.hold == holdFresh && w&wordCount != 0) {
				return true
			}
		}
	}
	return false
}

// shareGroups makes the slots of keys, and of groups that a graph around this one declares, those of the tree.
func (r *Run) shareGroups() {
	l := &r.st.limits
	for i := range r.plan.groups {
		g := &r.plan.groups[i]
		switch {
		case g.key && l.groups != nil && l.groups[i].slots != nil:
			if known := r.tree.keys[g.Name]; known != nil {
				l.groups[i].slots = known
			}
			r.tree.keys[g.Name] = l.groups[i].slots
		case g.inherited:
			common := r.outer.slotsOf(g.Name)
			if common == nil {
				continue
			}
			if l.groups == nil {
				l.groups = make([]line, len(r.plan.groups))
			}
			l.groups[i].slots, l.active = common, true
		}
	}
}

// slotsOf returns the slots of a group that the run's graph, or the nearest around it, declares; nil if it has no limit.
func (r *Run) slotsOf(name string) *slots {
	for ; r != nil; r = r.outer {
		for i := range r.plan.groups {
			if g := &r.plan.groups[i]; g.Name == name && !g.key && !g.inherited {
				if r.st.limits.groups == nil {
					return nil
				}
				return r.st.limits.groups[i].slots
			}
		}
	}
	return nil
}
