package machine

import (
	"iter"
	"maps"
	"math"
	"sync"

	"github.com/seed-c794f7ef/kahn/internal/bucket"
	"github.com/seed-c794f7ef/kahn/internal/due"
)

// The type `limits` holds the slots and rates of groups, keys and the whole run. A ready node takes all the slots and tokens that it needs, or none.
// A node that lacks a slot or a token of a group waits in the group's line, and does not hold back other nodes. When a slot becomes free or a token
// falls due, the best node of the line contends again. This is the first node in schedule order.
type limits struct {
	groups []line      // by group; if whole is set, the last line is for the whole run; nil if the run has no such limits
	whole  bool        // the last line belongs to the whole run
	active bool        // whether there are slots or tokens besides the slots of the run's own limit
	rates  *rates      // nil without rates; shared by a tree of runs
	pool   sync.Locker // guards limits that the run shares with other runs; nil if there are none

	crowds  map[string]*crowd // the crowds of nodes that wait or have waited, by crowdName
	scratch [2][]int32        // see bunchOf

	exempt map[Ref]bool // running nodes that took no token because the run hurried
	late   *lateLines   // nil unless keys are limited and some nodes take their keys from values

	// commons belongs to the outermost run: the limits of the nested runs without lines, first the limits of nodes that need no slot of the tree, then the
	// limits of nodes that need one. In such limits, common is set.
	commons [2]*limits
	common  bool

	parked  []queueAt // the queues that are set aside while the run has no free slot of its own, see park
	offered []int32   // in a run with a limit of its own: the lines whose nodes contend because of an offer, see pass
}

// lateLines are the lines of nodes with late keys. A late key comes from a value, and is unknown until the node has been checked. In the plan, each
// node with a late key has a group of its own. In a run, all nodes with the same key wait in the line of one group. If the graph itself declares the
// key, this is the group that the key has in the plan. Otherwise it is the group of the first node that gets the key.
type lateLines struct {
	of     map[string]int32 // by key: the group in whose line the nodes with this key wait
	to     []int32          // by group: the group in whose line the nodes of this group wait, usually the group itself
	keys   map[Ref]string   // by node: the late key
	limits Bound            // the limit and the rate of each key
}

// noLimits is shared by all runs without limits. It is never written: writers call ownLimits first.
var noLimits limits

// ownLimits returns the run's own limits, and creates them on first use.
func (s *Locked) ownLimits() *limits {
	if l := s.limits; l == &noLimits || l.common {
		s.limits = &limits{active: l.active, rates: l.rates, pool: l.pool}
	}
	return s.limits
}

// commonLimits returns the limits that the nested runs without lines share, until a run calls ownLimits. The receiver is the outermost run's limits.
func (l *limits) commonLimits() *limits {
	if c := l.commons[0]; c == nil || c.rates != l.rates || c.pool != l.pool {
		active := &limits{active: true, rates: l.rates, pool: l.pool, common: true}
		l.commons = [2]*limits{{rates: l.rates, pool: l.pool, common: true, commons: [2]*limits{nil, active}}, active}
	}
	return l.commons[0]
}

// The type `rates` holds what the buckets of a run and of its nested runs share: the clock and a queue.
type rates struct {
	now     int64             // the run's clock, as set by Advance
	awaited due.Queue[*Slots] // the Slots with nodes that wait for the next token
}

// Slots are the slots and the tokens of a group, a key or a whole run. The runs of a tree share the Slots of keys, of the whole run, and of
// groups to which nested runs refer.
type Slots struct {
	limit     int // 0 means no limit
	used      int
	bucket    *bucket.Bucket        // nil without a rate
	share     SharedLimit           // gives access to slots that other runs use, too; or nil
	waiting   [queueCount][]waiting // the queues of runs that have or had waiting nodes, in the order of their arrival
	arrivals  uint64
	due.Entry // the position of these slots in rates.awaited
}

// SharedLimit is a run's access to slots and tokens that other runs use, too. The lock of the pool guards it.
type SharedLimit interface {
	Rated() bool           // whether the limit has tokens
	Lacks(token bool) bool // whether the run must wait, since no slot or, if token is true, no token is free for it; if so, the run joins the queue
	Take(token bool)       // takes a slot, and a token if token is true, and ends the wait
	GiveBack(token bool)   // returns a slot or, if token is true, an unused token
	Drop()                 // ends the wait
}

// SlotSetup holds the options for the limits of a run, except Setup.Limit.
type SlotSetup struct {
	KeyLimit            int                // for all nodes with the same key; 0 means no limit
	KeyRate, StartRate  bucket.Rate        // KeyRate is for all nodes with the same key, and StartRate for all nodes of the run
	Pool                sync.Locker        // guards limits that the run shares with other runs; nil if there are none
	PoolsKeys, PoolsAll bool               // whether the run shares the limits of keys, and whether it shares the limit for all its nodes
	PoolsGroup          func(g int32) bool // reports whether the run shares the limit of a group; nil if it shares no limit of a group
}

type waiting struct {
	s       *Locked
	g       int32
	arrival uint64
}

// makeLimits makes the limits of a run. Later the Run of package kahn replaces some Slots by Slots that the runs of its tree share, see UseSlots.
func makeLimits(p *Net, c *SlotSetup) *limits {
	var l limits
	rated := c.StartRate != bucket.Rate{}
	for i := range p.bounds {
		b := p.bounds[i]
		if b.Key {
			b.Limit, b.Rate = c.KeyLimit, c.KeyRate
		}
		late := p.lateKeys != nil && p.lateKeys.isLate[int32(i)]
		pooled := b.Key && c.PoolsKeys || !b.Key && c.PoolsGroup != nil && c.PoolsGroup(int32(i))
		if b.Limit == 0 && b.Rate == (bucket.Rate{}) && !pooled || p.member == nil && !p.nests { // no limit, or no members
			continue
		}
		l.make(p)
		if late {
			l.makeLate(p, b)
		} else {
			l.groups[i].Slots = newSlots(b)
		}
		rated = rated || b.Rate != bucket.Rate{}
	}
	if c.StartRate != (bucket.Rate{}) || c.PoolsAll {
		l.make(p)
		l.whole = true
		l.groups = append(l.groups, line{Slots: newSlots(Bound{Rate: c.StartRate})})
	}
	if rated {
		l.rates = &rates{}
	}
	if l.pool = c.Pool; !l.active && l.pool == nil {
		return &noLimits
	}
	own := l
	return &own
}

// makeLate creates the lateLines on first use.
func (l *limits) makeLate(p *Net, b Bound) {
	if l.late != nil {
		return
	}
	l.late = &lateLines{of: maps.Clone(p.lateKeys.declared), to: make([]int32, len(p.bounds)), keys: map[Ref]string{}, limits: b}
	for g := range l.late.to {
		l.late.to[g] = int32(g)
	}
}

// BindKey gives a node its late key, before the node is ready. If key is "", the limit of keys does not apply to the node. If the run limits keys and
// has no slots for the key yet, BindKey creates these slots and returns them. Otherwise it returns nil.
func (s *Locked) BindKey(r Ref, key string) (made *Slots) {
	late := s.limits.late
	if late == nil || key == "" {
		return nil
	}
	own, is := s.net.lateKeys.group[r]
	if !is || late.keys[r] != "" {
		return nil
	}
	late.keys[r] = key
	if g, known := late.of[key]; known {
		late.to[own] = g
		return nil
	}
	if late.of == nil {
		late.of = map[string]int32{}
	}
	late.of[key] = own
	made = newSlots(late.limits)
	s.limits.groups[own].Slots = made
	return made
}

// GroupOfKey returns the group in whose line the nodes with a late key wait.
func (s *Locked) GroupOfKey(key string) int32 { return s.limits.late.of[key] }

// KeyOf returns the late key of a node. It returns "" if the node has none or the run does not limit keys.
func (s *Locked) KeyOf(r Ref) string {
	if late := s.limits.late; late != nil {
		return late.keys[r]
	}
	return ""
}

// LateKeys yields the late keys that the graph itself does not declare, in no particular order. With each key it yields the group in whose line the
// nodes with the key wait.
func (s *Locked) LateKeys() iter.Seq2[string, int32] {
	return func(yield func(string, int32) bool) {
		late := s.limits.late
		if late == nil {
			return
		}
		for key, g := range late.of {
			if s.net.lateKeys.isLate[g] && !yield(key, g) {
				return
			}
		}
	}
}

// newSlots returns Slots of which none is taken. Their bucket is full.
func newSlots(b Bound) *Slots { return &Slots{limit: b.Limit, bucket: bucket.New(b.Rate, 0)} }

func (l *limits) make(p *Net) {
	if l.groups == nil {
		l.groups = make([]line, len(p.bounds), len(p.bounds)+1)
		l.active = true
	}
}

// The method `lacks` reports whether a node must wait, because x has no free slot or, if `token` is true, no token. If the token falls due later,
// Advance lets the node contend again.
func (s *Locked) lacks(x *Slots, token bool) bool {
	switch {
	case x == nil:
		return false
	case x.limit > 0 && x.used >= x.limit:
		return true
	case x.bucket != nil && token && x.bucket.Tokens(s.limits.rates.now) == 0:
		if due, ok := x.bucket.Next(); ok {
			s.limits.rates.awaited.Add(x, due)
		}
		return true
	}
	return x.share != nil && !s.Hurries() && x.share.Lacks(token)
}

// takesToken reports whether a ready node takes a token when it starts. Composites and mocked nodes take none. In a run that hurries (see Hurries),
// no node takes one.
func (s *Locked) takesToken(r Ref) bool {
	return !s.net.facts[r].is(FlagComposite|FlagMocked) && !s.Hurries()
}

// Hurries reports whether the run, or a run around it, is being stopped. During a stop, cleanup nodes and the end node still start. They take no
// tokens, and do not wait for other runs that share a limit. So only the run's own options determine how long the stop can take.
func (s *Locked) Hurries() bool {
	return s.stopped != CauseNone || s.host != nil && s.host.Hurries()
}

// Hurry makes all nodes that wait in lines contend for slots. It is called when the run begins to hurry.
func (s *Locked) Hurry() {
	defer s.limits.lockPool()()
	for g := range s.limits.groups {
		x := &s.limits.groups[g]
		if len(x.queues[needSlot].crowds)+len(x.queues[needToken].crowds) == 0 {
			continue
		}
		for pos := range x.eachWaiting {
			if s.waitsInLine(s.order.at[pos]) {
				s.contend(pos)
			}
		}
		for i := range x.queues {
			x.queues[i].crowds = nil
		}
		s.offer(int32(g)) // nodes of this run no longer wait in the line, so its slots are offered to other runs
	}
	if s.limits.crowds != nil {
		s.limits.crowds = nil
	}
}

// acquire takes the slots and tokens that a ready node needs. If one is missing, acquire takes none, puts the node into a line, and returns false.
func (s *Locked) acquire(r Ref) bool {
	l := s.limits
	if !l.active {
		return true
	}
	defer l.lockPool()()
	token := s.takesToken(r)
	if !s.claim(r, token) {
		return false
	}
	if !token && !s.net.facts[r].is(FlagComposite|FlagMocked) {
		if l = s.ownLimits(); l.exempt == nil {
			l.exempt = map[Ref]bool{}
		}
		l.exempt[r] = true
	}
	if s.tree != nil {
		s.tree.Used++
	}
	return true
}

// The method `claim` takes the slots and tokens of a node's lines. If a line lacks one, claim takes none, puts the node into this line, and returns
// false. The caller holds the pool's lock.
func (s *Locked) claim(r Ref, token bool) bool {
	l := s.limits
	for g := range s.lines(r) {
		if x := &l.groups[g]; s.lacks(x.Slots, token) {
			s.enqueue(g, r, token)
			s.passOn(r)
			return false
		}
	}
	for g := range s.lines(r) {
		x := &l.groups[g]
		if x.Slots == nil {
			continue
		}
		x.used++
		if x.bucket != nil && token {
			x.bucket.Take()
		}
		if x.share != nil {
			x.share.Take(token)
		}
		if x.bucket != nil || x.share != nil {
			s.offer(g) // several slots or tokens may have become free at once
		}
	}
	return true
}

// The method `lines` yields the lines that a ready node must pass: the lines of its groups, the line of its key, and the line of the whole run. A
// composite does not pass the line of the whole run, since it starts no step itself: the nodes inside the composite pass this line. A node that is
// being undone does not pass it either.
func (s *Locked) lines(r Ref) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		if s.limits.groups == nil {
			return
		}
		if s.net.member != nil {
			for _, g := range s.net.member[r] {
				if late := s.limits.late; late != nil {
					g = late.to[g]
				}
				if !yield(g) {
					return
				}
			}
		}
		if s.limits.whole && !s.net.facts[r].is(FlagComposite) && !s.beingUndone(r) {
			yield(int32(len(s.limits.groups) - 1))
		}
	}
}

// The method `release` gives back the slots of a node, including its slot of the tree of runs.
func (s *Locked) release(r Ref) {
	if !s.limits.active {
		return
	}
	if s.tree != nil {
		s.tree.Used--
	}
	delete(s.limits.exempt, r)
	s.yield(r)
}

// The method `yield` gives back the slots of a node's lines, and offers them to other nodes.
func (s *Locked) yield(r Ref) {
	defer s.limits.lockPool()()
	for g := range s.lines(r) {
		if x := &s.limits.groups[g]; x.Slots != nil {
			x.used--
			if x.share != nil {
				x.share.GiveBack(false)
			}
			s.offer(g)
		}
	}
}

// Refund gives back the tokens of a running node whose step is not called, for example because the node's inputs were refused.
func (s *Locked) Refund(r Ref) {
	if !s.limits.active || s.limits.exempt[r] || s.net.facts[r].is(FlagComposite|FlagMocked) {
		return
	}
	defer s.limits.lockPool()()
	for g := range s.lines(r) {
		x := &s.limits.groups[g]
		if x.Slots == nil {
			continue
		}
		if x.bucket != nil {
			x.bucket.Put()
		}
		if x.share != nil && x.share.Rated() {
			x.share.GiveBack(true)
		}
		s.offer(g)
	}
}

// The method `decline` offers slots to other nodes: the slots for which node r contended. It is called if node r will not take these slots.
func (s *Locked) decline(r Ref) {
	if s.limits.active {
		defer s.limits.lockPool()()
		s.passOn(r)
	}
}

// passOn does the same as decline, but the caller holds the pool's lock.
func (s *Locked) passOn(r Ref) {
	for g := range s.lines(r) {
		s.offer(g)
	}
}

// lockPool locks the pool that the run shares with other runs, if there is one, and returns the function that unlocks it.
func (l *limits) lockPool() (unlock func()) {
	if l.pool == nil {
		return func() {}
	}
	l.pool.Lock()
	return l.pool.Unlock
}

// The method `offer` lets the best node in the line of a group contend again if a slot or token is free. It first tries the nodes of this run. If
// none of them can contend, it tries the nodes of other runs in the tree, see Slots.Offer.
func (s *Locked) offer(g int32) {
	x := s.limits.groups[g].Slots
	if x == nil || s.offerOwn(g) == lineMoved {
		return
	}
	if x.Offer() == nil && x.share != nil && len(x.waiting[needSlot])+len(x.waiting[needToken]) == 0 {
		x.share.Drop()
	}
}

// Offer makes one waiting node contend again, and returns the State of the node's run. It chooses the run that has waited longest, and the best node
// of this run. It skips a run that has no free slot of its own. If no token is free, Offer considers only nodes that need no token. If it finds no
// node, it returns nil.
func (x *Slots) Offer() *Locked {
	tokens := true // false once an offer has found no token
	for {
		of := needSlot
		if w := x.waiting; tokens && len(w[needToken]) > 0 && (len(w[needSlot]) == 0 || w[needToken][0].arrival < w[needSlot][0].arrival) {
			of = needToken
		}
		if len(x.waiting[of]) == 0 {
			return nil
		}
		w := x.waiting[of][0]
		switch w.s.offerQueue(w.g, of) {
		case lineMoved:
			if w.s.host != nil {
				w.s.host.Contends()
			}
			return w.s
		case lineStuck:
			if of == needSlot {
				return nil
			}
			tokens = false
		case lineFull:
			w.s.park(w.g, of)
			x.waiting[of] = x.waiting[of][1:]
		case lineEmpty:
			w.s.limits.groups[w.g].queues[of].listed = false
			x.waiting[of] = x.waiting[of][1:]
		}
	}
}

// lineState is the result of an offer.
type lineState uint8

const (
	lineEmpty lineState = iota // no node waits
	lineMoved                  // a node contends again
	lineStuck                  // no slot or token is free
	lineFull                   // the run has no free slot of its own
)

// offerOwn does the part of offer that concerns the nodes of this run.
func (s *Locked) offerOwn(g int32) lineState {
	if s.isFull() {
		return lineEmpty // if a slot or token is free, Offer will set the line aside
	}
	stuck := lineEmpty
	_, token := s.first(g, needToken)
	if _, slot := s.first(g, needSlot); token < slot {
		if stuck = s.offerQueue(g, needToken); stuck == lineMoved {
			return lineMoved
		}
	}
	if state := s.offerQueue(g, needSlot); state != lineEmpty {
		return state
	}
	return stuck
}

// Advance sets the State's clock, in nanoseconds since the beginning of the run. Only rates use the clock: nodes that wait for tokens contend for the
// tokens that are due at the new time. A call with an earlier time than a previous call changes nothing. A coordinator of a plan with rates calls
// Advance before Next, and again at the time that [State.NextToken] returns.
func (st *State) Advance(now int64) error {
	s, err := st.drive()
	if err != nil {
		return err
	}
	defer s.unlockAndDeliver()
	s.Advance(now)
	return nil
}

// Advance is like [State.Advance], but the caller holds the lock.
func (s *Locked) Advance(now int64) {
	q := s.limits.rates
	if q == nil {
		return
	}
	q.now = max(q.now, now)
	if q.awaited.Len() == 0 || q.awaited.Due() > q.now {
		return
	}
	defer s.limits.lockPool()()
	for x, ok := q.awaited.Next(q.now); ok; x, ok = q.awaited.Next(q.now) {
		x.Offer()
	}
}

// NextToken returns the earliest time at which a token falls due for a waiting node, in nanoseconds since the beginning of the run. ok is false
// if no node waits for a token.
func (st *State) NextToken() (at int64, ok bool) {
	s := st.lock()
	defer s.Unlock()
	return s.NextToken()
}

// NextToken is [State.NextToken].
func (s *Locked) NextToken() (due int64, ok bool) {
	if q := s.limits.rates; q != nil && q.awaited.Len() > 0 {
		return q.awaited.Due(), true
	}
	return 0, false
}

// SlotsOf returns the slots of a group or key. It returns nil if the group or key has none.
func (s *Locked) SlotsOf(g int32) *Slots {
	if s.limits.groups == nil {
		return nil
	}
	return s.limits.groups[g].Slots
}

// UseSlots makes the nodes of a group or key use the slots of another run.
func (s *Locked) UseSlots(g int32, x *Slots) {
	s.ownLimits().make(s.net)
	s.limits.groups[g].Slots = x
}

// MakeSlots creates the slots of a group if they do not exist. They may be missing if the group has members only in nested runs.
func (s *Locked) MakeSlots(g int32) {
	if s.SlotsOf(g) == nil {
		s.UseSlots(g, newSlots(s.net.bounds[g]))
	}
}

// WholeSlots returns the slots and tokens of the whole run, or nil if it has neither.
func (s *Locked) WholeSlots() *Slots {
	if !s.limits.whole {
		return nil
	}
	return s.limits.groups[len(s.limits.groups)-1].Slots
}

// ShareLimits makes the run use the clock, the pool and the WholeSlots of the outermost run. The parameter `root` is the outermost run, which may be
// this run.
func (s *Locked) ShareLimits(root *Locked) {
	of := root.ownLimits()
	if of.rates == nil {
		of.rates = &rates{}
	}
	if s.limits == &noLimits {
		s.limits = of.commonLimits()
		return
	}
	l := s.limits
	l.pool, l.rates = of.pool, of.rates
	if l.whole && of.whole {
		l.groups[len(l.groups)-1].Slots = root.WholeSlots()
	}
}

// ShareTree makes the nodes of the run take slots of a tree in addition to the run's own slots.
func (s *Locked) ShareTree(t *TreeSlots) {
	if s.limit == 0 {
		s.limit = math.MaxInt32
	}
	s.tree = t
	switch l := s.limits; {
	case !l.common:
		s.ownLimits().active = true
	case !l.active:
		s.limits = l.commons[1]
	}
}

// OwnSlots returns the run's own limit, and how many of its slots are taken. If the result `limit` is 0 or [math.MaxInt32], the run has no limit of
// its own.
func (s *Locked) OwnSlots() (limit, used int) { return int(s.limit), int(s.running) }

// InTree reports whether the nodes of the run take the slots of a tree.
func (s *Locked) InTree() bool { return s.tree != nil }

// HoldsSlot reports whether a node holds a slot of its run.
func (s *Locked) HoldsSlot(r Ref) bool {
	w := s.words[r]
	return statusOf(w) == Running && w&WordDormant == 0 && s.occupies(r)
}

// SharesLine reports whether two nodes, possibly of different runs of a tree, need slots or tokens of the same Slots.
func (s *Locked) SharesLine(r Ref, other *Locked, o Ref) bool {
	for g := range s.lines(r) {
		if x := s.limits.groups[g].Slots; x != nil && other.Needs(o, x) {
			return true
		}
	}
	return false
}

// Needs reports whether a node needs a slot or a token of x.
func (s *Locked) Needs(r Ref, x *Slots) bool {
	for g := range s.lines(r) {
		if s.limits.groups[g].Slots == x {
			return true
		}
	}
	return false
}

// Shortage describes what a ready node lacks.
type Shortage struct {
	Slots  *Slots
	Group  int32 // the group of the slots; -1 for the whole run
	Token  bool  // the node lacks a token, not a slot
	Shared bool  // the node waits for a limit that other runs share; only the coordinator knows these runs
	Due    int64 // if Token is set: when the token falls due, by the run's clock; 0 if Shared is set or the time is unknown
}

// Lacking returns the first slot or token that a ready node lacks, or false if the node lacks none. It has no side effects, and ignores the run's own
// limit. The parameter `now` is the run's clock. Lacking calls the function `foreign` for a shared limit. The parameter `token` of this function is
// true if the node needs a token. It returns whether the node must wait for the limit, and whether the node waits for a token.
func (s *Locked) Lacking(r Ref, now int64, foreign func(x SharedLimit, token bool) (waits, forToken bool)) (Shortage, bool) {
	defer s.limits.lockPool()()
	token := s.takesToken(r)
	for g := range s.lines(r) {
		x := s.limits.groups[g].Slots
		if x == nil {
			continue
		}
		found := Shortage{Slots: x, Group: g}
		if s.limits.whole && int(g) == len(s.limits.groups)-1 {
			found.Group = -1
		}
		if x.limit > 0 && x.used >= x.limit {
			return found, true
		}
		if x.bucket != nil && token {
			if b := *x.bucket; b.Tokens(max(now, s.limits.rates.now)) == 0 {
				found.Token = true
				found.Due, _ = b.Next()
				return found, true
			}
		}
		if x.share != nil && !s.Hurries() {
			if waits, forToken := foreign(x.share, token); waits {
				found.Token, found.Shared = forToken, true
				return found, true
			}
		}
	}
	return Shortage{}, false
}

// Bounds returns the number of slots, where 0 means no limit, and how many of them are taken.
func (x *Slots) Bounds() (limit, used int) { return x.limit, x.used }

// Rated reports whether nodes may take tokens. In a tree of runs it always returns true. If it returns true, the coordinator sets the clock with
// Advance.
func (s *Locked) Rated() bool { return s.limits.rates != nil }

// TokensBack reports whether the run's own buckets will all be full at the given time if no node takes a token before then. It ignores the buckets of
// shared limits.
func (s *Locked) TokensBack(at int64) bool {
	for i := range s.limits.groups {
		if x := s.limits.groups[i].Slots; x != nil && x.bucket != nil {
			if b := *x.bucket; !b.Full(at) {
				return false
			}
		}
	}
	return true
}

// Pooled reports whether the run shares limits with other runs.
func (s *Locked) Pooled() bool { return s.limits.pool != nil }

// LockPool locks the limits that the run shares with other runs, and returns the function that unlocks them.
func (s *Locked) LockPool() (unlock func()) { return s.limits.lockPool() }

// LeavePool ends the sharing of limits with other runs.
func (s *Locked) LeavePool() { s.limits.pool = nil }

// Connect makes the slots part of a limit that other runs use, too. The parameter `to` is the run's access to that limit.
func (x *Slots) Connect(to SharedLimit) { x.share = to }

// Shared returns the SharedLimit that Connect has set, or nil if the slots are not connected.
func (x *Slots) Shared() SharedLimit { return x.share }

// Disconnect reverses Connect. It returns the number of slots that are taken. The caller gives these slots back to the shared limit.
func (x *Slots) Disconnect() (used int) {
	used, x.used, x.share = x.used, 0, nil
	return used
}

// WaitsForSlot reports whether some node of an idle run waits for a slot that another run of the tree holds, or waits in a line for a slot or a
// token.
func (s *Locked) WaitsForSlot() bool {
	// If the run's own limit has no free slot, the ready nodes wait for other items of the same map, not for another run.
	if s.ready.Len() > 0 && (s.limit == 0 || s.running < s.limit) {
		return true
	}
	for i := range s.limits.groups {
		for pos := range s.limits.groups[i].eachWaiting {
			if w := s.words[s.order.at[pos]]; statusOf(w) == Ready && (s.hold == holdNothing || s.hold == holdFresh && w&wordCount != 0) {
				return true
			}
		}
	}
	return false
}
