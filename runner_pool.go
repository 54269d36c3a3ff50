package kahn

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/bucket"
	"github.com/seed-c794f7ef/kahn/internal/due"
	"github.com/seed-c794f7ef/kahn/machine"
)

// A pool contains the slots and tokens that the runs of a Runner share: for all runs together, for each key, and for each group in Runner.Shared. A
// run that lacks a slot or a token joins a queue, and the pool calls the run back when its turn comes. A run outside the queue takes nothing that a
// run in the queue could use. So a run with many nodes does not take a slot for which another run has waited longer.
//
// mu may be taken while a run's lock is held, but no other lock may be taken while mu is held. Since a callback takes the run's lock, the pool calls
// back a run on a new goroutine, which does not hold mu.
type pool struct {
	start    time.Time // the zero of the buckets' clock; immutable, like keyLimit, keyRate, granter and groups
	keyLimit int
	keyRate  Rate
	granter  *granter          // nil unless several processes share limits
	groups   map[string]*share // the groups that processes share, by name

	mu      sync.Mutex // guards the fields below, and everything in the shares
	whole   *share     // nil if only keys and groups are bounded
	keys    map[string]*share
	swept   int               // the number of keys after the last sweep
	awaited due.Queue[*share] // the shares with claims that wait for the next token, ordered by the time when the token is due
	timer   *time.Timer       // rings when the first token for which a share in awaited waits is due
}

// A share contains the slots and tokens for all runs of a Runner, for one group, or for one key. Free slots and tokens are promised to the claims
// that have waited longest; a run without a claim takes only slots and tokens that are not promised.
type share struct {
	pool      *pool
	limit     int // the number of slots; 0 means no limit
	used      int
	bucket    *bucket.Bucket       // nil without a rate
	waiting   [2]due.Queue[*claim] // waiting[0] contains the claims that need no token, waiting[1] the claims that need one; both in the order of arrival
	promised  [2]int               // the number of claims whose run was called back and has not used or dropped its turn yet; indexed like waiting
	arrivals  int64
	refs      int      // the number of runs that may use the key
	stakes    []*stake // the stakes of all runs, unordered
	far       *far     // the limits shared with other processes; nil if there are none
	due.Entry          // the share's entry in the queue pool.awaited
}

// stake connects one run to a share.
type stake struct {
	run   *Run           // the outermost run
	lines *machine.Slots // the slots of the run or of a run inside it, with the queues of waiting nodes
	share *share
	claim *claim // nil unless the run waits
	index int    // the index in share.stakes
	place int    // the index in stakes.all
}

// stakes contains the stakes that connect one run to all its shares. The run's lock guards it.
type stakes struct {
	all   []*stake // unordered
	heard []*claim // the claims whose turn has come and that the run has not used yet
}

// claim is the position of a run among the runs that wait for a share.
type claim struct {
	*stake
	due.Entry      // the claim's entry in waiting, by arrival
	token     bool // whether the node that the run would start first also needs a token
	state     claimState
	at        *machine.Locked // the State to which the slot was offered when the run was called back
}

type claimState uint8

const (
	claimWaits  claimState = iota // the claim counts as one of the run's timers
	claimCalled                   // a goroutine is calling back the run, and the claim still counts as a timer
	claimHeard                    // the run was called back, and must now use or drop the claim
	claimDone
)

// The method `limits` returns the pool with the limits that the runs share.
func (rn *Runner) limits() (*pool, error) {
	rn.pooling.Do(func() { rn.pool, rn.badPool = rn.makePool() })
	return rn.pool, rn.badPool
}

// makePool returns the pool of the Runner, or nil if its runs share no limits.
func (rn *Runner) makePool() (*pool, error) {
	for _, x := range []struct {
		name  string
		bound int
	}{{"MaxRuns", rn.MaxRuns}, {"Limit", rn.Limit}, {"KeyLimit", rn.KeyLimit}} {
		if x.bound < 0 {
			return nil, fmt.Errorf("%w: Runner.%s %d is negative", ErrBadOption, x.name, x.bound)
		}
	}
	if err := rn.Rate.validate(); err != nil {
		return nil, fmt.Errorf("%w: Runner.Rate: %w", ErrBadOption, err)
	}
	if err := rn.KeyRate.validate(); err != nil {
		return nil, fmt.Errorf("%w: Runner.KeyRate: %w", ErrBadOption, err)
	}
	g, err := rn.Shared.granter()
	if err != nil {
		return nil, err
	}
	p := &pool{start: time.Now(), keyLimit: rn.KeyLimit, keyRate: rn.KeyRate, granter: g}
	if g != nil {
		g.pool = p
	}
	if rn.Limit > 0 || rn.Rate != (Rate{}) || g.bounds(false) {
		p.whole = p.share(rn.Limit, rn.Rate)
		g.extend(p.whole, "")
	}
	p.groups = g.groups()
	if p.whole == nil && p.groups == nil && !p.boundsKeys() {
		return nil, nil
	}
	return p, nil
}

// The method `setup` sets the fields of x that say which limits a run shares with other runs.
func (p *pool) setup(x *machine.SlotSetup, of *Plan) {
	x.Pool, x.PoolsKeys, x.PoolsAll = &p.mu, p.boundsKeys(), p.whole != nil
	if p.groups != nil {
		x.PoolsGroup = func(g int32) bool { return p.group(of, g) != nil }
	}
}

func (p *pool) boundsKeys() bool {
	return p != nil && (p.keyLimit > 0 || p.keyRate != Rate{} || p.granter.bounds(true))
}

func (p *pool) share(limit int, rate Rate) *share {
	return &share{pool: p, limit: limit, bucket: bucket.New(rate.count(), p.now())}
}

func (p *pool) now() int64 { return int64(time.Since(p.start)) }

// The method `key` returns the share of a key, and counts one more run that may use the key.
func (p *pool) key(name string) *share {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.keys[name]
	if x == nil {
		if p.keys == nil {
			p.keys = map[string]*share{}
		}
		if len(p.keys) >= 2*p.swept+64 {
			p.sweep()
		}
		x = p.share(p.keyLimit, p.keyRate)
		p.granter.extend(x, name)
		p.keys[name] = x
	}
	x.refs++
	return x
}

// The method `sweep` removes each key that no run uses, if the key's bucket is full and the key needs no more requests to the store.
func (p *pool) sweep() {
	now := p.now()
	for name, x := range p.keys {
		if x.refs == 0 && (x.bucket == nil || x.bucket.Full(now)) && !x.far.active() {
			delete(p.keys, name)
		}
	}
	p.swept = len(p.keys)
}

// The method `needs` returns the index in share.waiting for a claim: 1 if the claim needs a token and the share has a rate, otherwise 0.
func (x *share) needs(token bool) int {
	if token && x.rated() {
		return 1
	}
	return 0
}

func (x *share) rated() bool { return x.bucket != nil || x.far.rated() }

// The method `taken` returns the number of slots that are taken or promised.
func (x *share) taken() int { return x.used + x.promised[0] + x.promised[1] }

// hasSlot reports whether there is a free slot if the given number of slots is taken.
func (x *share) hasSlot(taken int) bool {
	return (x.limit == 0 || taken < x.limit) && x.far.hasSlot(taken)
}

// slotFree and tokenFree report whether a slot or token is free and not promised.
func (x *share) slotFree() bool { return x.hasSlot(x.taken()) }

func (x *share) tokenFree() bool { return x.bucketFree() && x.far.hasToken() }

// bucketFree reports whether the bucket of this process has a token that is not promised. Without a bucket the result is true.
func (x *share) bucketFree() bool {
	return x.bucket == nil || x.bucket.Tokens(x.pool.now()) > int64(x.promised[1])
}

// Lacks reports whether the run must wait: either no slot or no token is free for it, or runs that have waited longer come first. If the run must
// wait and has no claim, Lacks makes one.
func (k *stake) Lacks(token bool) bool {
	x, r := k.share, k.run
	token = x.needs(token) > 0
	x.call() // slots that became free since the last call go to waiting claims
	c := k.claim
	switch {
	case c == nil:
		if x.slotFree() && (!token || x.tokenFree()) {
			return false
		}
		x.arrivals++
		c = &claim{stake: k, Entry: due.Entry{Due: x.arrivals}}
		k.claim = c
		r.timers++
	case c.state == claimWaits:
		if c.token == token {
			return true
		}
		x.waiting[x.needs(c.token)].Remove(c) // the run would now start another node first than before, and only one of the two nodes needs a token
	default:
		x.promised[x.needs(c.token)]--
		free := x.hasSlot(x.used) && (!token || x.tokenFree())
		if free {
			c.token = token
		}
		if free || c.state == claimCalled { // in the state claimCalled, Run.claimed decides again
			x.promised[x.needs(c.token)]++
			return !free
		}
		// The slot or token is no longer free: a run that is being stopped, for example, takes a slot without waiting. So the claim waits again, and
		// counts as a timer again.
		r.timers++
	}
	c.state, c.token = claimWaits, token
	x.waiting[x.needs(token)].Add(c, c.Due)
	x.call()
	return c.state == claimWaits
}

// Rated reports whether the share has tokens.
func (k *stake) Rated() bool { return k.share.rated() }

// Take takes a slot for the run and, if token is set, a token. Take ends the run's claim.
func (k *stake) Take(token bool) {
	x := k.share
	x.used++
	if token && x.bucket != nil {
		x.bucket.Take()
	}
	x.far.take(token)
	k.Drop()
}

// GiveBack returns a slot to the share or, if the parameter `token` is true, a token that was not needed.
func (k *stake) GiveBack(token bool) {
	x := k.share
	switch {
	case !token:
		x.used--
	case x.bucket != nil:
		x.bucket.Put()
	}
	if token {
		x.far.putToken()
	}
	x.call()
}

// The method `waits` reports whether the run waits for a slot or a token. The result forToken is true if the run waits for a token. The
// parameter `token` is true if the node needs a token. The method changes nothing.
func (k *stake) waits(token bool) (waits, forToken bool) {
	if k.claim == nil || k.claim.state != claimWaits {
		return false, false
	}
	return true, token && k.Rated() && k.share.slotFree()
}

// nextToken returns the time when the next token is due. It returns zero if a token is free or the time is not known.
func (k *stake) nextToken() time.Time {
	x := k.share
	due, now := int64(0), x.pool.now()
	if x.far.rated() && !x.far.hasToken() {
		due = x.far.next
	}
	if b := x.bucket; b != nil {
		if b := *b; b.Tokens(now) == 0 {
			at, _ := b.Next()
			due = max(due, at)
		}
	}
	if due == 0 {
		return time.Time{}
	}
	return x.pool.start.Add(time.Duration(due))
}

// Drop ends the claim of a run.
func (k *stake) Drop() {
	x := k.share
	if c := k.claim; c != nil {
		if c.state == claimWaits {
			c.run.timers--
			x.waiting[x.needs(c.token)].Remove(c)
		} else {
			x.promised[x.needs(c.token)]--
		}
		c.state, k.claim = claimDone, nil
	}
	x.call()
}

// The method `call` calls back the runs whose turn has come. If other runs wait for a token, the method arms the timer for the next token.
func (x *share) call() {
	for c := x.next(); c != nil; c = x.next() {
		x.waiting[x.needs(c.token)].Remove(c)
		c.state = claimCalled
		x.promised[x.needs(c.token)]++
		go c.run.callback(func(int64) { c.run.claimed(x, c) })
	}
	x.far.note()
	p := x.pool
	if x.waiting[1].Len() > 0 && !x.bucketFree() {
		if due, ok := x.bucket.Next(); ok && p.awaited.Add(x, due) {
			p.arm()
		}
	} else if p.awaited.Remove(x) {
		p.arm()
	}
}

// The method `next` returns the claim that has waited longest among the claims that could be served now, or nil if there is none.
func (x *share) next() (c *claim) {
	if !x.slotFree() {
		return nil
	}
	q := &x.waiting[0]
	if other := &x.waiting[1]; other.Due() < q.Due() && x.tokenFree() {
		q = other
	}
	c, _ = q.First()
	return c
}

// The method `arm` sets the timer for the first share in `awaited`, to the time when that share's next token is due. It stops the timer if `awaited`
// is empty.
func (p *pool) arm() {
	if p.awaited.Len() == 0 {
		if p.timer != nil {
			p.timer.Stop() // if the timer has already fired, it calls ring, which finds nothing to do
		}
		return
	}
	wait := time.Duration(p.awaited.Due() - p.now())
	if p.timer == nil {
		p.timer = time.AfterFunc(wait, p.ring)
	} else {
		p.timer.Reset(wait)
	}
}

func (p *pool) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for x, ok := p.awaited.Next(now); ok; x, ok = p.awaited.Next(now) {
		x.call()
	}
	p.arm()
}

// joinPool connects the slots of the outermost run to the pool, before the run begins.
func (r *Run) joinPool() {
	p := r.cfg.pool
	if p == nil {
		return
	}
	if p.whole != nil {
		r.join(r.st.WholeSlots(), p.whole)
	}
	if r.tree != nil { // the tree has already called shareKey and shareGroup
		return
	}
	for i := range r.plan.groups {
		switch lines := r.st.SlotsOf(int32(i)); {
		case lines == nil:
		case r.plan.groups[i].key:
			r.shareKey(lines, r.plan.groups[i].Name)
		default:
			r.shareGroup(lines, int32(i))
		}
	}
}

// shareGroupsOf looks at each group that the run's graph declares. If the pool bounds the group, and the group's slots are not connected to the pool
// yet, shareGroupsOf connects them.
func (r *Run) shareGroupsOf() {
	if p := r.cfg.pool; p == nil || p.groups == nil {
		return
	}
	for i := range r.plan.groups {
		if lines := r.st.SlotsOf(int32(i)); lines != nil {
			r.shareGroup(lines, int32(i))
		}
	}
}

// shareKey connects the slots of a key to the slots of other runs, if the pool bounds keys.
func (r *Run) shareKey(lines *machine.Slots, key string) {
	if p := r.cfg.pool; p.boundsKeys() {
		r.join(lines, p.key(key))
	}
}

// shareGroup connects the slots of a group to the slots of other runs, if the pool bounds the group. r may be a nested run.
func (r *Run) shareGroup(lines *machine.Slots, g int32) {
	if x := r.cfg.pool.group(r.plan, g); x != nil && lines.Shared() == nil {
		r.outermost().join(lines, x)
	}
}

// The method `group` returns the share of a group that a plan declares, or nil if processes do not share the group.
func (p *pool) group(of *Plan, g int32) *share {
	if p == nil || p.groups == nil || of.groups[g].key || of.groups[g].inherited {
		return nil
	}
	return p.groups[of.groups[g].Name]
}

// The method `forget` removes the stake of a run that leaves the pool.
func (x *share) forget(k *stake) {
	last := len(x.stakes) - 1
	x.stakes[k.index] = x.stakes[last]
	x.stakes[k.index].index = k.index
	x.stakes[last] = nil
	x.stakes = x.stakes[:last]
}

// isFar reports whether other processes hold the slots or tokens for which claims wait.
func (x *share) isFar() bool {
	return x.far != nil && (x.limit == 0 || x.taken() < x.limit) && (!x.far.hasSlot(x.taken()) || x.bucketFree() && !x.far.hasToken())
}

// The method `bound` returns the bound that makes the run wait. The caller holds pool.mu.
func (k *stake) bound() Bound {
	x := k.share
	if !x.isFar() {
		return Bound{Scope: BoundRunner, Limit: x.limit, Used: x.used}
	}
	b := Bound{Scope: BoundShared, Limit: x.far.most, Used: x.used}
	for _, o := range x.far.others {
		b.Used += o.Held
	}
	return b
}

// The method `holders` returns the sorted ids of at most whyMost other runs that hold slots. If another process holds slots and does not report its
// runs, the list contains the name of that process. The caller holds pool.mu.
func (k *stake) holders() (ids []string) {
	for _, other := range k.share.stakes {
		if _, used := other.lines.Bounds(); used > 0 && other.run != k.run {
			ids = append(ids, other.run.ID())
		}
	}
	if k.share.isFar() {
		for _, o := range k.share.far.others {
			switch {
			case o.Held > 0 && len(o.Runs) == 0:
				ids = append(ids, o.Holder)
			case o.Held > 0:
				ids = append(ids, o.Runs...)
			}
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	return ids[:min(len(ids), whyMost)]
}

func (r *Run) join(lines *machine.Slots, x *share) {
	if r.shared == nil {
		r.rare().shared = &stakes{}
	}
	k := &stake{run: r, lines: lines, share: x, place: len(r.shared.all)}
	r.shared.all = append(r.shared.all, k)
	lines.Connect(k)
	x.pool.mu.Lock()
	k.index = len(x.stakes)
	x.stakes = append(x.stakes, k)
	x.pool.mu.Unlock()
}

// The method `claimed` is called when a claim's turn has come. It lets the run's nodes contend for the slot. The caller holds the run's lock.
func (r *Run) claimed(x *share, c *claim) {
	x.pool.mu.Lock()
	defer x.pool.mu.Unlock()
	if c.state != claimCalled {
		return
	}
	c.state = claimHeard
	switch c.at = c.lines.Offer(); {
	case c.state != claimHeard: // Offer has ended the claim
	case c.at == nil:
		c.Drop()
	default:
		r.shared.heard = append(r.shared.heard, c)
	}
}

// yieldTurns ends each claim whose turn has come if the run's own limits keep the run from using the claim now. Then the pool calls back other
// runs. The caller holds the run's lock and is about to release it.
func (r *Run) yieldTurns() {
	if r.shared == nil || len(r.shared.heard) == 0 {
		return
	}
	defer r.st.LockPool()()
	r.shared.heard = slices.DeleteFunc(r.shared.heard, func(c *claim) bool {
		switch {
		case c.state != claimHeard:
			return true
		case c.at.HasNext():
			return false
		}
		c.Drop()
		return true
	})
}

// leavePool is called when a run ends. It returns the run's slots to the pool, and ends the run's claims. A nested run returns the slots of the
// groups that its own graph declares. The outermost run returns all remaining slots.
func (r *Run) leavePool() {
	p, root := r.cfg.pool, r.outermost()
	switch {
	case root.shared == nil: // the run shares nothing, was discarded before it joined, or has already left
	case r == root:
		r.st.LeavePool()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, k := range r.shared.all {
			k.leave()
		}
		r.runRare.shared = nil
	case p.groups != nil:
		p.mu.Lock()
		defer p.mu.Unlock()
		for i := range r.plan.groups {
			lines := r.st.SlotsOf(int32(i))
			if lines == nil || p.group(r.plan, int32(i)) == nil {
				continue
			}
			if k, ok := lines.Shared().(*stake); ok {
				root.shared.drop(k)
			}
		}
	}
}

// The method `drop` ends the stake of a nested run. The caller holds the lock of the pool.
func (s *stakes) drop(k *stake) {
	last := s.all[len(s.all)-1]
	s.all[k.place], last.place = last, k.place
	s.all[len(s.all)-1] = nil
	s.all = s.all[:len(s.all)-1]
	k.leave()
}

// The method `leave` returns the stake's slots to the pool, and ends the stake's claim. When the last run leaves a share whose limit is in a store,
// the granter returns the grants to the store.
func (k *stake) leave() {
	k.share.used -= k.lines.Disconnect()
	k.share.refs--
	k.share.forget(k)
	k.Drop()
}
