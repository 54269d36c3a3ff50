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

// pool holds the slots and tokens that the runs of a Runner share, for all runs together and for each key. A run that lacks a slot or a
// token joins a queue, and is called back when its turn has come. A run outside the queue takes nothing that a run in the queue could use,
// so a run with many nodes does not keep a slot from a run that has waited longer.
//
// mu may be taken while a run's lock is held, but no other lock may be taken while mu is held. So the pool calls a run on a new goroutine,
// which does not hold mu.
type pool struct {
	start    time.Time // the zero of the buckets' clock; immutable, like keyLimit, keyRate and granter
	keyLimit int
	keyRate  Rate
	granter  *granter // nil unless several processes share limits

	mu      sync.Mutex // guards the fields below, and everything in the shares
	whole   *share     // nil if only keys are bounded
	keys    map[string]*share
	swept   int               // the number of keys after the last sweep
	awaited due.Queue[*share] // the shares with claims that wait for the next token, by the time at which that token is due
	timer   *time.Timer       // rings when the first token of awaited is due
}

// share holds slots and tokens that the runs of a Runner share, for all runs or for one key. Free slots and tokens are promised to the
// claims that have waited longest; a run without a claim takes only what is not promised.
type share struct {
	pool      *pool
	limit     int // 0 means no limit
	used      int
	bucket    *bucket.Bucket       // nil without a rate
	waiting   [2]due.Queue[*claim] // the first for claims that need no token, the second for claims that need one; in the order of their arrival
	promised  [2]int               // how many claims were called back and have neither taken anything nor been dropped; by the same index as waiting
	arrivals  int64
	refs      int      // how many runs may use the key
	stakes    []*stake // of all runs, unordered
	far       *far     // the limits shared with other processes; nil if there are none
	due.Entry          // the share's place in awaited
}

// stake connects one run to a share.
type stake struct {
	run   *Run           // the outermost run
	lines *machine.Slots // the run's own slots; its nodes wait in their queues
	share *share
	claim *claim // nil unless the run waits
	index int    // in share.stakes
}

// stakes connect one run to all its shares. The run's lock guards them.
type stakes struct {
	all   []*stake
	heard []*claim // claims whose turn has come and that are not used yet
}

// claim is the place of a run among the runs that wait for a share.
type claim struct {
	*stake
	due.Entry      // the claim's place in waiting, by arrival
	token     bool // the node that the run would start first also needs a token
	state     claimState
	at        *machine.Locked // the State whose node contends, after the claim was heard
}

type claimState uint8

const (
	claimWaits  claimState = iota // the claim counts as one of the run's timers
	claimCalled                   // a goroutine is calling the run, and the claim still counts as a timer
	claimHeard                    // the run was called, and takes or drops the claim next
	claimDone
)

// limits returns the limits that the runs share, as a pool.
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
	if p.whole == nil && !p.boundsKeys() {
		return nil, nil
	}
	return p, nil
}

func (p *pool) boundsKeys() bool {
	return p != nil && (p.keyLimit > 0 || p.keyRate != Rate{} || p.granter.bounds(true))
}

func (p *pool) share(limit int, rate Rate) *share {
	return &share{pool: p, limit: limit, bucket: bucket.New(rate.count(), p.now())}
}

func (p *pool) now() int64 { return int64(time.Since(p.start)) }

// key returns the share of a key, and counts one more run that may use the key.
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

// sweep removes the keys that no run uses and whose buckets are full.
func (p *pool) sweep() {
	now := p.now()
	for name, x := range p.keys {
		if x.refs == 0 && (x.bucket == nil || x.bucket.Full(now)) && !x.far.active() {
			delete(p.keys, name)
		}
	}
	p.swept = len(p.keys)
}

// needs returns the index in share.waiting for a claim: 1 if the claim needs a token and the share has a rate, otherwise 0.
func (x *share) needs(token bool) int {
	if token && x.rated() {
		return 1
	}
	return 0
}

func (x *share) rated() bool { return x.bucket != nil || x.far.rated() }

// taken returns how many slots are taken or promised.
func (x *share) taken() int { return x.used + x.promised[0] + x.promised[1] }

// hasSlot reports whether there is a free slot if the given number of slots is taken.
func (x *share) hasSlot(taken int) bool {
	return (x.limit == 0 || taken < x.limit) && x.far.hasSlot(taken)
}

// slotFree and tokenFree report whether an unpromised slot or token is free.
func (x *share) slotFree() bool { return x.hasSlot(x.taken()) }

func (x *share) tokenFree() bool { return x.bucketFree() && x.far.hasToken() }

// bucketFree reports whether an unpromised token is free in the bucket of this process.
func (x *share) bucketFree() bool {
	return x.bucket == nil || x.bucket.Tokens(x.pool.now()) > int64(x.promised[1])
}

// Lacks reports whether the run must wait, because nothing is free or because runs that have waited longer come first. If the run must
// wait, Lacks makes sure that the run has a claim.
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
		x.waiting[x.needs(c.token)].Remove(c) // another node of the run would start first now, and differs in its need of a token
	default:
		x.promised[x.needs(c.token)]--
		free := x.hasSlot(x.used) && (!token || x.tokenFree())
		if free {
			c.token = token
		}
		if free || c.state == claimCalled { // claimed decides a called claim again
			x.promised[x.needs(c.token)]++
			return !free
		}
		r.timers++ // a run that is being stopped has taken the slot without waiting
	}
	c.state, c.token = claimWaits, token
	x.waiting[x.needs(token)].Add(c, c.Due)
	x.call()
	return c.state == claimWaits
}

// Rated reports whether the share has tokens.
func (k *stake) Rated() bool { return k.share.rated() }

// Take takes a slot for the run and, if token is set, a token. It ends the run's claim.
func (k *stake) Take(token bool) {
	x := k.share
	x.used++
	if token && x.bucket != nil {
		x.bucket.Take()
	}
	x.far.take(token)
	k.Drop()
}

// GiveBack returns a token that was not needed if token is set, and otherwise a slot.
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

// waits reports whether the run waits for a slot or a token, and whether it waits for a token. The parameter token says whether the node
// needs a token. waits changes nothing.
func (k *stake) waits(token bool) (waits, forToken bool) {
	if k.claim == nil || k.claim.state != claimWaits {
		return false, false
	}
	return true, token && k.Rated() && k.share.slotFree()
}

// nextToken returns when the next token falls due, as far as is known; zero if a token is free.
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

// call calls back the runs whose turn has come. If other runs wait for a token, call arms the timer for the next token.
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

// next returns the claim that has waited longest among the claims that could be served now, or nil.
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

// arm sets the timer for the first token of awaited, or stops it if awaited is empty.
func (p *pool) arm() {
	if p.awaited.Len() == 0 {
		if p.timer != nil {
			p.timer.Stop() // a timer that has fired calls ring, which finds nothing to do
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
	for i := range r.plan.groups {
		if lines := r.st.SlotsOf(int32(i)); lines != nil && r.plan.groups[i].key && r.tree == nil { // in a run with nested runs, the tree calls shareKey
			r.shareKey(lines, r.plan.groups[i].Name)
		}
	}
}

// shareKey connects the slots of a key to the slots of other runs, if the pool bounds keys.
func (r *Run) shareKey(lines *machine.Slots, key string) {
	if p := r.cfg.pool; p.boundsKeys() {
		r.join(lines, p.key(key))
	}
}

// forget removes the stake of a run that leaves.
func (x *share) forget(k *stake) {
	last := len(x.stakes) - 1
	x.stakes[k.index] = x.stakes[last]
	x.stakes[k.index].index = k.index
	x.stakes[last] = nil
	x.stakes = x.stakes[:last]
}

// isFar reports whether other processes hold the slots or tokens that claims wait for.
func (x *share) isFar() bool {
	return x.far != nil && (x.limit == 0 || x.taken() < x.limit) && (!x.far.hasSlot(x.taken()) || x.bucketFree() && !x.far.hasToken())
}

// bound returns the bound that a claim waits for. The caller holds pool.mu.
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

// holders returns the ids of other runs that hold slots, sorted, at most whyMost. If another process does not name its runs, the list
// has the name of the process. The caller holds pool.mu.
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
	k := &stake{run: r, lines: lines, share: x}
	lines.Connect(k)
	x.pool.mu.Lock()
	k.index = len(x.stakes)
	x.stakes = append(x.stakes, k)
	x.pool.mu.Unlock()
	if r.shared == nil {
		r.shared = &stakes{}
	}
	r.shared.all = append(r.shared.all, k)
}

// claimed is called when the turn of a claim has come. It lets the run's nodes contend for the slot. The caller holds the run's lock.
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

// yieldTurns ends the claims whose turn has come but which the run cannot use now because of its own limits. So other runs are called. The
// caller holds the run's lock and is about to release it.
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

// leavePool returns the run's slots to the pool and ends its claims, when the run ends.
func (r *Run) leavePool() {
	if r.shared == nil { // the run shares nothing, was discarded before it joined, or has left already
		return
	}
	r.st.LeavePool()
	p := r.cfg.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range r.shared.all {
		k.share.used -= k.lines.Disconnect()
		k.share.refs--
		k.share.forget(k)
		k.Drop() // after the last run has left, this also gives back the grants of limits shared with other processes
	}
	r.shared = nil
}
