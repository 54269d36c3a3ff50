package kahn

import (
	"iter"
	"time"
)

// limits are the slots and rates of groups, keys and the whole run. A ready node takes all its slots and tokens or none: one that
// lacks something waits in the line of the group that lacks it and holds nobody else back. A slot that becomes free, and a token
// that falls due, goes to the best node of the line.
type limits struct {
	groups []line // by group, and last that of the whole run if there is one; nil if the run has nothing of the kind
	whole  bool   // the last line is that of the whole run
	active bool   // there is something to take and to return besides the slots of the run's own limit
	rates  *rates // nil without rates; common to a tree of runs
}

// rates are what the buckets of a run, and of those nested in it, have in common.
type rates struct {
	now     int64   // the run's clock as the coordinator last told it
	awaited awaited // buckets for whose next token a node waits
}

// line is where the nodes of a run wait that lack a slot or a token of a group.
type line struct {
	*slots         // nil: no limit
	nodes  []int32 // schedule positions, a binary heap; nodes that were stopped are passed over
	listed bool    // the run is in waiting
}

// slots are the slots and the tokens of a group, a key or a whole run. In a tree of runs those of keys, of the whole run, and of
// groups that nested runs refer to, are common.
type slots struct {
	limit   int // 0 means no limit
	used    int
	bucket  *bucket   // nil without a rate
	waiting []waiting // lines that are not empty, or were not

	due   int64 // when the next token falls due, while it is awaited
	index int   // among the awaited plus one; 0 means that it is not
}

type waiting struct {
	s *State
	g int32
}

// makeLimits makes the lines of a run. Those that a tree has in common are replaced by shareGroups.
func makeLimits(p *Plan, c *config) limits {
	var l limits
	rated := c.startRate != Rate{}
	for i := range p.groups {
		g := &p.groups[i]
		limit, rate := g.Limit, g.Rate
		if g.key {
			limit, rate = c.keyLimit, c.keyRate
		}
		if limit == 0 && rate == (Rate{}) || p.member == nil && !p.composite { // no limit, or no members
			continue
		}
		l.make(p)
		l.groups[i].slots = &slots{limit: limit, bucket: newBucket(rate, 0)}
		rated = rated || rate != Rate{}
	}
	if c.startRate != (Rate{}) {
		l.make(p)
		l.whole = true
		l.groups = append(l.groups, line{slots: &slots{bucket: newBucket(c.startRate, 0)}})
	}
	if rated {
		l.rates = &rates{}
	}
	return l
}

func (l *limits) make(p *Plan) {
	if l.groups == nil {
		l.groups = make([]line, len(p.groups), len(p.groups)+1)
		l.active = true
	}
}

// lacks reports whether there is no slot, or no token for who needs one. If it is the token the bucket is awaited.
func (l *limits) lacks(x *slots, token bool) bool {
	switch {
	case x == nil:
		return false
	case x.limit > 0 && x.used >= x.limit:
		return true
	case x.bucket == nil || !token || x.bucket.tokens(l.rates.now) > 0:
		return false
	}
	l.rates.awaited.add(x)
	return true
}

// takesToken reports whether the start of a ready node is the start of a step.
func (s *State) takesToken(r Ref) bool { return !s.plan.facts[r].is(factComposite | factMocked) }

// acquire takes the slots and tokens of a ready node, or puts it in line for one that it lacks.
func (s *State) acquire(r Ref) bool {
	l := &s.limits
	if !l.active {
		return true
	}
	token := s.takesToken(r)
	for g := range s.lines(r) {
		if x := &l.groups[g]; l.lacks(x.slots, token) {
			x.push(s.pos[r])
			if !x.listed {
				x.listed = true
				x.waiting = append(x.waiting, waiting{s, g})
			}
			s.decline(r)
			return false
		}
	}
	for g := range s.lines(r) {
		x := &l.groups[g]
		if x.slots == nil {
			continue
		}
		x.used++
		if x.bucket != nil && token {
			x.bucket.take()
			s.offer(g) // more tokens may have come at once
		}
	}
	if s.tree != nil {
		s.tree.used++
	}
	return true
}

// lines yields the lines that a ready node has to pass: those of its groups and its key, and that of the whole run. A composite,
// which is ready as the item of a map, is no start of a step: what it consists of passes the run's line.
func (s *State) lines(r Ref) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		if s.limits.groups == nil {
			return
		}
		if s.plan.member != nil {
			for _, g := range s.plan.member[r] {
				if !yield(g) {
					return
				}
			}
		}
		if s.limits.whole && !s.plan.facts[r].is(factComposite) {
			yield(int32(len(s.limits.groups) - 1))
		}
	}
}

// release returns the slots of a node.
func (s *State) release(r Ref) {
	if !s.limits.active {
		return
	}
	if s.tree != nil {
		s.tree.used--
	}
	for g := range s.lines(r) {
		if x := &s.limits.groups[g]; x.slots != nil {
			x.used--
			s.offer(g)
		}
	}
}

// refund returns the tokens of a node that runs and turned out not to need them.
func (s *State) refund(r Ref) {
	if s.limits.rates == nil || !s.takesToken(r) {
		return
	}
	for g := range s.lines(r) {
		if x := &s.limits.groups[g]; x.slots != nil && x.bucket != nil {
			x.bucket.put()
			s.offer(g)
		}
	}
}

// decline passes on the slots that a node may have been offered, and will not take.
func (s *State) decline(r Ref) {
	for g := range s.lines(r) {
		s.offer(g)
	}
}

// offer makes the best node contend again that waits in the line of a group from which something can be had: of this run, else
// of the one that has waited longest.
func (s *State) offer(g int32) {
	x := s.limits.groups[g].slots
	if x != nil && s.offerOwn(g) == lineEmpty {
		x.offer()
	}
}

// offer makes the best node contend again of the run that has waited longest.
func (x *slots) offer() {
	for len(x.waiting) > 0 {
		w := x.waiting[0]
		switch w.s.offerOwn(w.g) {
		case lineMoved:
			if r := w.s.turn.run; r != nil {
				r.tree.touch(r)
			}
			return
		case lineStuck:
			return
		}
		w.s.limits.groups[w.g].listed = false
		x.waiting = x.waiting[1:]
	}
}

// lineState is the answer to an offer.
type lineState uint8

const (
	lineEmpty lineState = iota // nobody waits
	lineMoved                  // a node contends again
	lineStuck                  // nothing is to be had
)

// offerOwn is offer for the nodes of this run.
func (s *State) offerOwn(g int32) lineState {
	x := &s.limits.groups[g]
	for len(x.nodes) > 0 {
		r := s.at[x.nodes[0]]
		waits := statusOf(s.words[r]) == Ready
		if waits && s.limits.lacks(x.slots, s.takesToken(r)) {
			return lineStuck
		}
		pos := x.pop()
		if waits {
			s.ready.Insert(int(pos))
			return lineMoved
		}
	}
	return lineEmpty
}

// Advance tells the State what time it is since the beginning of the run, for rates alone: tokens that have fallen due by now go to
// the nodes that wait for one. A time before the last one changes nothing. A coordinator of a plan with rates calls it before Next,
// and again at [State.NextToken].
func (s *State) Advance(now time.Duration) error {
	if err := s.drive(); err != nil {
		return err
	}
	defer s.unlock()
	s.setTime(int64(now))
	return nil
}

// setTime is Advance with the lock held.
func (s *State) setTime(now int64) {
	q := s.limits.rates
	if q == nil {
		return
	}
	q.now = max(q.now, now)
	for x, ok := q.awaited.next(q.now); ok; x, ok = q.awaited.next(q.now) {
		x.offer()
	}
}

// NextToken returns when the next token falls due that a ready node waits for. ok is false if none waits for one.
func (s *State) NextToken() (at time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due, ok := s.nextToken()
	return time.Duration(due), ok
}

func (s *State) nextToken() (due int64, ok bool) {
	if q := s.limits.rates; q != nil && len(q.awaited) > 0 {
		return q.awaited[0].due, true
	}
	return 0, false
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

// shareGroups makes what a tree has in common that of this run: the slots and rates of keys, of the whole run, and of groups that a
// graph around this one declares.
func (r *Run) shareGroups() {
	l, t := &r.st.limits, r.tree
	if r.outer != nil {
		l.rates = t.root.st.limits.rates
	} else if l.rates == nil {
		l.rates = &rates{} // for those of nested runs
	}
	for i := range r.plan.groups {
		g := &r.plan.groups[i]
		switch {
		case g.key && l.groups != nil && l.groups[i].slots != nil:
			if known := t.keys[g.Name]; known != nil {
				l.groups[i].slots = known
			}
			t.keys[g.Name] = l.groups[i].slots
		case g.inherited:
			if common := r.outer.slotsOf(g.Name); common != nil {
				l.make(r.plan)
				l.groups[i].slots = common
			}
		}
	}
	if root := &t.root.st.limits; l.whole && root.whole {
		l.groups[len(l.groups)-1].slots = root.groups[len(root.groups)-1].slots
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
