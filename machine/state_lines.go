package machine

import (
	"cmp"
	"math"
	"slices"
)

// A line holds the nodes of a run that wait for a slot or a token of one group. The waiting nodes form crowds.
type line struct {
	*Slots                       // nil: no limit
	queues [queueCount]lineQueue // one for nodes that need a token, and one for the other nodes, which a lack of tokens must not hold back
	passes bool                  // whether the line is in limits.offered
}

// lineQueue holds either the nodes of a line that need a token, or the nodes that need none.
type lineQueue struct {
	crowds
	listed  bool   // whether Slots.waiting contains the queue
	parked  bool   // whether the queue is set aside until the run has a free slot of its own, see park
	keeps   bool   // whether the queue keeps its arrival although it is not listed: see KeepLine
	arrival uint64 // if the queue is listed or parked, or if keeps is set: its place in the order of Slots.waiting
}

// The queues of a line.
const (
	needSlot = iota
	needToken

	queueCount
)

// queueFor returns the number of the queue in which a node waits. The argument `token` tells whether the node takes a token when it starts. If the
// group has no rate, every node waits in the queue needSlot.
func (x *line) queueFor(token bool) int {
	if token && (x.bucket != nil || x.share != nil && x.share.Rated()) {
		return needToken
	}
	return needSlot
}

// A crowd holds nodes that wait together, because they lack the same slot or token. There are two kinds of crowds. A bunch holds the nodes with the
// same groups and the same key. It waits in the line of its key, or as a part of a throng. A throng consists of all bunches with the same groups,
// except bunches that wait in the line of their key. It waits in the line of one group. When many nodes move from one line to another, only their
// few crowds are moved, and not each node.
type crowd struct {
	lines  []int32 // the lines that all nodes of the crowd must pass: for a bunch its key's line, if the key has a limit; for a throng its groups' lines
	token  bool    // whether the nodes of the crowd need tokens
	throng *crowd  // for a bunch: its throng
	nodes  []int32 // for a bunch: schedule positions, as a binary heap; stopped nodes are skipped
	parts  crowds  // for a throng: its bunches
	pos    int32   // the schedule position of the crowd's best node, which may have been stopped since
	in     *crowds // the heap in which the crowd waits; nil for an empty crowd
	index  int     // the crowd's index in that heap
}

// The type `crowds` is a binary heap of crowds, ordered by their best nodes.
type crowds []*crowd

func (q *crowds) up(i int) {
	for h := *q; i > 0; {
		parent := (i - 1) / 2
		if h[parent].pos <= h[i].pos {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (q *crowds) down(i int) {
	for h := *q; ; {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].pos < h[child].pos {
			child++
		}
		if h[i].pos <= h[child].pos {
			return
		}
		h.swap(i, child)
		i = child
	}
}

func (q crowds) swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *crowds) add(c *crowd) {
	c.in, c.index = q, len(*q)
	*q = append(*q, c)
	q.up(c.index)
}

// The method `drop` removes a crowd from the heap in which it waits.
func (c *crowd) drop() {
	q, i := c.in, c.index
	last := len(*q) - 1
	q.swap(i, last)
	(*q)[last] = nil
	*q = (*q)[:last]
	if i < last {
		q.up(i)
		q.down(i)
	}
	c.in = nil
}

// The method `moved` records a crowd's new best node, and restores the heap order.
func (c *crowd) moved(pos int32) {
	if c.pos == pos {
		return
	}
	c.pos = pos
	if c.in != nil {
		c.in.up(c.index)
		c.in.down(c.index)
	}
}

// bunchOf returns the bunch of a node.
func (s *Locked) bunchOf(r Ref, token bool) *crowd {
	l := s.limits
	key, groups := l.scratch[0][:0], l.scratch[1][:0]
	for g := range s.lines(r) {
		switch {
		case l.groups[g].Slots == nil:
		case int(g) < len(s.net.bounds) && s.net.bounds[g].Key:
			key = append(key, g)
		default:
			groups = append(groups, g)
		}
	}
	l.scratch = [2][]int32{key, groups}
	name := crowdName(key, groups, token)
	if c := l.crowds[string(name)]; c != nil {
		return c
	}
	if l.crowds == nil {
		l.crowds = map[string]*crowd{}
	}
	c := &crowd{lines: append([]int32(nil), key...), token: token, pos: math.MaxInt32}
	l.crowds[string(name)] = c
	of := crowdName(nil, groups, token)
	of[0] = 'g'
	if c.throng = l.crowds[string(of)]; c.throng == nil {
		c.throng = &crowd{lines: append([]int32(nil), groups...), token: token, pos: math.MaxInt32}
		l.crowds[string(of)] = c.throng
	}
	return c
}

// crowdName returns the name under which bunchOf stores a crowd in a map. All crowds have different names.
func crowdName(key, groups []int32, token bool) []byte {
	name := make([]byte, 2, 64)
	if token {
		name[1] = 't'
	}
	for _, part := range [][]int32{key, groups} {
		name = append(name, byte(len(part)), byte(len(part)>>8), byte(len(part)>>16), byte(len(part)>>24))
		for _, g := range part {
			name = append(name, byte(g), byte(g>>8), byte(g>>16), byte(g>>24))
		}
	}
	return name
}

// enqueue adds a node to its bunch, because the node lacks a slot or a token of group g. A bunch that does not wait yet joins the line of
// g, if g is its key. Otherwise it joins its throng, and a throng that does not wait yet joins the line of g. After that, claim offers the slots
// for which the node contended to other nodes, see passOn.
func (s *Locked) enqueue(g int32, r Ref, token bool) {
	c, pos := s.bunchOf(r, token), s.order.pos[r]
	c.push(pos)
	s.visits++
	if c.in == nil && len(c.lines) > 0 && c.lines[0] == g {
		s.await(c, g)
		return
	}
	if c.in == nil {
		c.throng.parts.add(c)
	}
	if c.in != &c.throng.parts {
		return // the bunch waits in the line of its key
	}
	c.throng.moved(c.throng.parts[0].pos)
	if c.throng.in == nil {
		s.await(c.throng, g)
	}
}

// The method `await` adds a crowd to the line of a group.
func (s *Locked) await(c *crowd, g int32) {
	x := &s.limits.groups[g]
	of := x.queueFor(c.token)
	q := &x.queues[of]
	q.add(c)
	s.visits++
	switch {
	case q.parked:
		if !s.isFull() { // the run undoes nodes, which need no slot of the run's own limit
			s.unpark(g, of)
		}
	case !q.listed && q.keeps:
		s.unpark(g, of)
	case !q.listed:
		x.arrivals++
		q.listed, q.arrival = true, x.arrivals
		x.waiting[of] = append(x.waiting[of], waiting{s, g, x.arrivals})
	}
	q.keeps = false
}

// queueAt names a queue of a line.
type queueAt struct {
	g  int32
	of int
}

// isFull reports whether the run has no free slot of its own: then none of its ready nodes can start. While the run undoes nodes, isFull returns
// false, since undoing a node takes no slot of the run's own limit.
func (s *Locked) isFull() bool { return s.limit > 0 && s.running >= s.limit && !s.Undoes() }

// The method `park` sets aside a queue of a run that has no free slot of its own. The queue's nodes could not use a slot or a token of the
// line, so the slot or token is offered to other runs. Without park, a waiting item of a map could keep a token from the nodes inside the running
// items, and the run would hang.
func (s *Locked) park(g int32, of int) {
	q := &s.limits.groups[g].queues[of]
	q.listed, q.parked = false, true
	s.limits.parked = append(s.limits.parked, queueAt{g, of})
}

// The method `unpark` puts a queue back into Slots.waiting, in the order of the arrivals.
func (s *Locked) unpark(g int32, of int) {
	x := &s.limits.groups[g]
	q := &x.queues[of]
	q.listed, q.parked = true, false
	i, _ := slices.BinarySearchFunc(x.waiting[of], q.arrival, func(w waiting, arrival uint64) int { return cmp.Compare(w.arrival, arrival) })
	x.waiting[of] = slices.Insert(x.waiting[of], i, waiting{s, g, q.arrival})
}

// occupy takes a slot of the run's own limit.
func (s *Locked) occupy() {
	s.running++
	if len(s.limits.offered) > 0 {
		s.pass()
	}
}

// The method `pass` is called when a node of the run has started. If the run has no free slot left, pass offers other runs the slots and tokens
// that were offered to the run's other nodes.
func (s *Locked) pass() {
	l := s.limits
	full := s.isFull()
	if !full && s.ready.Len() > 0 {
		return
	}
	list := l.offered
	l.offered = nil
	for _, g := range list {
		l.groups[g].passes = false
	}
	if !full {
		return
	}
	defer l.lockPool()()
	for _, g := range list {
		s.offer(g)
	}
}

// The method `offered` records that a node of group g contends because of an offer. If the run has no limit of its own, it does nothing.
func (s *Locked) offered(g int32) {
	if x := &s.limits.groups[g]; s.limit > 0 && s.limit < math.MaxInt32 && !x.passes {
		x.passes = true
		s.limits.offered = append(s.limits.offered, g)
	}
}

// vacate gives back a slot of the run's own limit. If the run now has a free slot, the queues that were set aside get offers again.
func (s *Locked) vacate() {
	s.running--
	l := s.limits
	if len(l.parked) == 0 || s.isFull() {
		return
	}
	list := l.parked
	l.parked = nil
	defer l.lockPool()()
	for _, at := range list {
		switch q := &l.groups[at.g].queues[at.of]; {
		case q.parked && len(q.crowds) > 0:
			s.unpark(at.g, at.of)
			s.offer(at.g)
		default:
			q.parked = false
		}
	}
}

// The method `push` adds a node to a bunch.
func (c *crowd) push(pos int32) {
	c.nodes = append(c.nodes, pos)
	for i := len(c.nodes) - 1; i > 0; {
		parent := (i - 1) / 2
		if c.nodes[parent] <= c.nodes[i] {
			break
		}
		c.nodes[parent], c.nodes[i] = c.nodes[i], c.nodes[parent]
		i = parent
	}
	c.moved(c.nodes[0])
}

// The method `pop` removes the best node of a bunch.
func (c *crowd) pop() {
	last := len(c.nodes) - 1
	c.nodes[0] = c.nodes[last]
	c.nodes = c.nodes[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && c.nodes[child+1] < c.nodes[child] {
			child++
		}
		if c.nodes[i] <= c.nodes[child] {
			break
		}
		c.nodes[i], c.nodes[child] = c.nodes[child], c.nodes[i]
		i = child
	}
}

// sortOut drops stopped nodes from the front of a crowd, and restores the order of the heap in which the crowd waits. It removes an empty crowd
// from this heap.
func (s *Locked) sortOut(c *crowd) {
	for len(c.nodes) > 0 && !s.waitsInLine(s.order.at[c.nodes[0]]) {
		c.pop()
	}
	pos := int32(math.MaxInt32)
	switch {
	case len(c.nodes) > 0:
		pos = c.nodes[0]
	case len(c.parts) > 0:
		pos = c.parts[0].pos
	}
	c.moved(pos)
	if pos == math.MaxInt32 && c.in != nil {
		c.drop()
	}
}

// The method `first` returns the crowd with the best waiting node of a queue, and the node's position. If no node waits, it returns nil and a
// position behind all nodes.
func (s *Locked) first(g int32, of int) (*crowd, int32) {
	q := &s.limits.groups[g].queues[of]
	for len(q.crowds) > 0 {
		c := q.crowds[0]
		bunch := c
		if len(c.parts) > 0 {
			bunch = c.parts[0]
			s.sortOut(bunch)
		}
		s.sortOut(c)
		if c.in != nil && c.index == 0 && (bunch == c || c.parts[0] == bunch) { // otherwise another crowd is first now, and the loop looks at it
			return c, c.pos
		}
	}
	return nil, math.MaxInt32
}

// offerQueue does the work of offerOwn for one queue of the line. If the best node of the queue also lacks a slot or a token of another group or
// of its key, the node's crowd moves to that line, and offerQueue tries the next best node.
func (s *Locked) offerQueue(g int32, of int) lineState {
	x := &s.limits.groups[g]
	for {
		c, pos := s.first(g, of)
		switch {
		case c == nil:
			return lineEmpty
		case s.isFull(): // checked first, since the node then need not wait for a token
			return lineFull
		case s.lacks(x.Slots, c.token && !s.Hurries()):
			return lineStuck
		}
		s.visits++
		bunch, throng := c, c
		if c.throng != nil {
			throng = c.throng
		} else {
			bunch = c.parts[0]
		}
		if other, ok := s.lacksAny(throng, g); ok {
			c.drop()
			if c == bunch {
				throng.parts.add(bunch)
				throng.moved(throng.parts[0].pos)
			}
			if throng.in == nil {
				s.await(throng, other)
			}
			continue
		}
		if key, ok := s.lacksAny(bunch, g); ok {
			bunch.drop()
			s.sortOut(throng)
			s.await(bunch, key)
			continue
		}
		bunch.pop()
		s.sortOut(bunch)
		if c != bunch {
			s.sortOut(c)
		}
		s.contend(pos)
		s.offered(g)
		return lineMoved
	}
}

// lacksAny returns the first of a crowd's lines that lacks a free slot or, if the crowd needs tokens, a token. It skips the line of the group `but`.
func (s *Locked) lacksAny(c *crowd, but int32) (g int32, lacks bool) {
	token := c.token && !s.Hurries()
	for _, g := range c.lines {
		if g != but && s.lacks(s.limits.groups[g].Slots, token) {
			return g, true
		}
	}
	return 0, false
}

// eachWaiting yields the positions of the nodes in a line. Some of these nodes may have been stopped.
func (x *line) eachWaiting(yield func(pos int32) bool) {
	for i := range x.queues {
		if !x.queues[i].eachWaiting(yield) {
			return
		}
	}
}

// eachWaiting yields the positions of the nodes in a queue. It returns false if the function `yield` has returned false.
func (q *lineQueue) eachWaiting(yield func(pos int32) bool) bool {
	for _, c := range q.crowds {
		for _, bunch := range append(crowds{c}, c.parts...) {
			for _, pos := range bunch.nodes {
				if !yield(pos) {
					return false
				}
			}
		}
	}
	return true
}
