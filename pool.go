package kahn

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// pool holds the slots and tokens that the runs of a Runner share: those of all of them together, and those of each key. A run that
// lacks something joins a queue, and is called back when its turn has come; a run that is not in the queue takes nothing while one
// that is could have it, so that a run with many nodes does not keep a slot from one that has waited longer.
//
// mu is a leaf: it is taken with a run's lock held, and nothing else is locked under it. So a run is never called from here, but on
// a goroutine of its own.
type pool struct {
	start    time.Time // the zero of the clock of the buckets; immutable, as are keyLimit and keyRate
	keyLimit int
	keyRate  Rate

	mu      sync.Mutex // guards what follows, and everything in the shares
	whole   *share     // nil if only keys are bounded
	keys    map[string]*share
	swept   int // how many keys were left when those that nobody uses were last removed
	awaited awaited[*share]
	timer   *time.Timer // for the first of the awaited
}

// share is one thing that the runs of a Runner share: their slots, and those of one key.
type share struct {
	pool   *pool
	limit  int // 0 means no limit
	used   int
	bucket *bucket // nil without a rate
	queue  []*claim
	refs   int // runs that may use the key
	appointment
}

// claim is the place of a run in the queue of a share.
type claim struct {
	run   *Run   // the outermost
	lines *slots // in which its nodes wait
	state claimState
	share *share
	at    *State // whose node contends, once it was heard
}

type claimState uint8

const (
	claimWaits  claimState = iota // it counts as one of the run's timers
	claimCalled                   // a goroutine is on its way to the run, and still counts
	claimHeard                    // the run has heard of it, and is about to take or to drop it
)

// makePool returns what the runs of the Runner share, nil if that is nothing.
func (rn *Runner) makePool() (*pool, error) {
	if rn.Limit < 0 || rn.KeyLimit < 0 {
		return nil, fmt.Errorf("%w: Runner: Limit %d, KeyLimit %d: negative", ErrBadOption, rn.Limit, rn.KeyLimit)
	}
	if err := rn.Rate.validate(); err != nil {
		return nil, fmt.Errorf("%w: Runner.Rate: %w", ErrBadOption, err)
	}
	if err := rn.KeyRate.validate(); err != nil {
		return nil, fmt.Errorf("%w: Runner.KeyRate: %w", ErrBadOption, err)
	}
	p := &pool{start: time.Now(), keyLimit: rn.KeyLimit, keyRate: rn.KeyRate}
	if rn.Limit > 0 || rn.Rate != (Rate{}) {
		p.whole = p.share(rn.Limit, rn.Rate)
	}
	if p.whole == nil && !p.boundsKeys() {
		return nil, nil
	}
	return p, nil
}

func (p *pool) boundsKeys() bool { return p != nil && (p.keyLimit > 0 || p.keyRate != Rate{}) }

func (p *pool) share(limit int, rate Rate) *share {
	return &share{pool: p, limit: limit, bucket: newBucket(rate, p.now())}
}

func (p *pool) now() int64 { return int64(time.Since(p.start)) }

// key returns the share of a key, for a run that has not used it before.
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
		p.keys[name] = x
	}
	x.refs++
	return x
}

// sweep removes the keys that no run uses and whose buckets a new one would not differ from.
func (p *pool) sweep() {
	now := p.now()
	for name, x := range p.keys {
		if x.refs == 0 && (x.bucket == nil || x.bucket.full(now)) {
			delete(p.keys, name)
		}
	}
	p.swept = len(p.keys)
}

// free returns how many starts are possible now.
func (x *share) free(token bool) int {
	free := math.MaxInt
	if x.limit > 0 {
		free = x.limit - x.used
	}
	if x.bucket != nil && token {
		free = min(free, int(min(x.bucket.tokens(x.pool.now()), math.MaxInt)))
	}
	return free
}

func (x *share) claimOf(r *Run) int {
	return slices.IndexFunc(x.queue, func(c *claim) bool { return c.run == r })
}

// lacks reports whether a run has to wait, and if so puts it into the queue: nothing is to be had, or those that have waited longer
// come first.
func (x *share) lacks(r *Run, lines *slots, token bool) bool {
	place := x.claimOf(r)
	ahead := place
	if place < 0 {
		ahead = len(x.queue)
	}
	if x.free(token) > ahead {
		return false
	}
	switch {
	case place < 0:
		r.timers++
		x.queue = append(x.queue, &claim{run: r, lines: lines, share: x})
	case x.queue[place].state == claimHeard: // somebody else was faster: wait for the next call
		r.timers++
		x.queue[place].state = claimWaits
	}
	x.call()
	return true
}

// take takes a slot and a token for a run, which then has to ask again.
func (x *share) take(r *Run, token bool) {
	x.used++
	if x.bucket != nil && token {
		x.bucket.take()
	}
	x.drop(r)
}

// drop takes a run out of the queue.
func (x *share) drop(r *Run) {
	if i := x.claimOf(r); i >= 0 {
		if x.queue[i].state == claimWaits {
			r.timers--
		}
		x.queue = slices.Delete(x.queue, i, i+1)
	}
	x.call()
}

// call calls back the runs whose turn has come, and sees when the next token falls due if others wait for one.
func (x *share) call() {
	free := x.free(true)
	for i, c := range x.queue {
		if i >= free {
			break
		}
		if c.state == claimWaits {
			c.state = claimCalled
			go c.run.callback(func(int64) { c.run.claimed(x, c) })
		}
	}
	if x.bucket != nil && len(x.queue) > free {
		if due, ok := x.bucket.next(); ok && x.pool.awaited.add(x, due) {
			x.pool.arm()
		}
	}
}

// arm sets the timer for the first of the awaited.
func (p *pool) arm() {
	if len(p.awaited) == 0 {
		return
	}
	wait := time.Duration(p.awaited[0].due - p.now())
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
	for x, ok := p.awaited.next(now); ok; x, ok = p.awaited.next(now) {
		x.call()
	}
	p.arm()
}

// joinPool connects the lines of the outermost run with what it shares with others, before it begins.
func (r *Run) joinPool() {
	l := &r.st.limits
	if l.pool == nil {
		return
	}
	if l.pool.whole != nil {
		lines := l.groups[len(l.groups)-1].slots
		lines.share = l.pool.whole
		r.pooled = append(r.pooled, lines)
	}
	for i := range r.plan.groups {
		if g := &r.plan.groups[i]; g.key && r.tree == nil && l.pool.boundsKeys() && l.groups[i].slots != nil { // else the tree does
			r.shareKey(l.groups[i].slots, g.Name)
		}
	}
}

func (r *Run) shareKey(lines *slots, key string) {
	lines.share = r.st.limits.pool.key(key)
	r.pooled = append(r.pooled, lines)
}

// claimed lets the run's nodes contend for what its claim has brought, with the run's lock held.
func (r *Run) claimed(x *share, c *claim) {
	x.pool.mu.Lock()
	defer x.pool.mu.Unlock()
	if !slices.Contains(x.queue, c) {
		return
	}
	c.state = claimHeard
	switch c.at = c.lines.offer(); {
	case c.state == claimWaits: // there is nothing after all
	case c.at == nil:
		x.drop(r)
	default:
		r.heard = append(r.heard, c)
	}
}

// yieldTurns is called with the run's lock held before that is released. A run that cannot use its turn now, since its own limits
// are in the way, gives it to the next.
func (r *Run) yieldTurns() {
	if len(r.heard) == 0 || r.st.limits.pool == nil {
		return
	}
	defer r.st.limits.lockPool()()
	r.heard = slices.DeleteFunc(r.heard, func(c *claim) bool {
		switch {
		case c.state != claimHeard || !slices.Contains(c.share.queue, c):
			return true
		case c.at.hasNext():
			return false
		}
		c.share.drop(r)
		return true
	})
}

// leavePool gives back what the run has in common with others, when it ends.
func (r *Run) leavePool() {
	p := r.st.limits.pool
	if p == nil || r.outer != nil {
		return
	}
	r.st.limits.pool = nil
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, lines := range r.pooled {
		x := lines.share
		x.used -= lines.used
		lines.used, lines.share = 0, nil
		x.refs--
		x.drop(r)
	}
	r.pooled, r.heard = nil, nil
}
