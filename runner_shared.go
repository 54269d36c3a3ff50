package kahn

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/seed-c794f7ef/kahn/internal/due"
	"github.com/seed-c794f7ef/kahn/store"
)

// Shared sets bounds for all Runners, in any process, that have the same Store and Name. Each Runner takes grants from the store, in batches. A grant
// is a slot or a token that belongs to the Runner until the grant's lease ends. A node stays ready until its Runner has a grant for the node. No
// attempt of the node, and no Timeout, begins earlier. If the Runner has an unused grant, the node needs no call of the store. The Runners divide a
// limit evenly, but no Runner gets more than it needs. If there are fewer slots than Runners, the Runners take turns. A Runner returns a grant that
// it has not used for about a second. A Runner without runs returns its grants at once, in the background. [Runner.Shutdown] waits for this.
//
// The grants of a process that dies are free when their lease ends. If a process is suspended, or does not reach the store, for longer than the
// lease, it also loses its grants. The process then starts no steps, but its running steps may exceed the limit until they end. Steps of durable runs
// exceed the limit for at most one [Lease], since the process also loses the leases of these runs. While the store fails, nodes wait and the limits
// hold. If a run is being stopped, its cleanup nodes, its end node and its compensations start even if this exceeds the limits.
type Shared struct {
	// Store must be a [store.GrantStore].
	Store store.Store
	// Name identifies the set of bounds, since one store can have several sets. Name must not contain a slash. It may be empty.
	Name string
	// Limit, Rate, KeyLimit and KeyRate bound the same things as the fields of a [Runner] with these names. Each Runner uses the values of its own
	// Shared, so all processes should set the same values.
	Limit    int
	Rate     Rate
	KeyLimit int
	KeyRate  Rate
	// Groups sets bounds for groups of nodes. The Limit and the Rate of an element apply to all groups with its Name together, in all runs. If a
	// graph declares the group with a Limit or a Rate, these also apply within each run. CancelOnFailure must not be set.
	Groups []Group
	// Lease is the time for which the store keeps grants that are not renewed. Zero means 30 s; any other Lease below 1 s is refused.
	Lease time.Duration
	// OnError receives the errors of the store. If the store continues to fail, OnError is called again after the 2nd, 4th, 8th failure, and so
	// on. If OnError is nil, [slog.Default] logs the errors as warnings.
	OnError func(err error)
}

const (
	defaultGrantLease = 30 * time.Second
	minGrantLease     = time.Second
	// grantCheck is the interval at which a Runner with grants calls the store, to renew the grants, to return unused grants, and to learn which
	// other Runners need grants.
	grantCheck = 500 * time.Millisecond
	// minGrantCheck is the first interval after the Runner has got more grants, or after the number of other Runners that use the limit has changed.
	// Each later interval is twice as long as the one before it, up to grantCheck.
	minGrantCheck = 25 * time.Millisecond
	// A Runner that waits for slots repeats its request. The pauses between its requests double from minGrantPause up to maxGrantPause.
	minGrantPause = 10 * time.Millisecond
	maxGrantPause = 250 * time.Millisecond
	// maxTokenPause bounds the pause of a Runner that waits for tokens, since other Runners may return tokens before the next token is due.
	maxTokenPause = 5 * time.Second
	// While the store fails, the pauses between requests double from minFailPause up to maxFailPause.
	minFailPause = 100 * time.Millisecond
	maxFailPause = 5 * time.Second
	// grantBatch is the largest number of limits in one call of Grant.
	grantBatch = 500
	// A request names at most grantRuns of the runs that hold slots of the limit.
	grantRuns = 5
	// A Runner that no longer needs its grants tries to return them. After giveBackTries failures it stops trying, and the lease of the grants
	// expires.
	giveBackTries = 3
)

// granter requests grants from the store, for all limits of a pool, in one goroutine. The goroutine runs as long as the process has
// grants, or nodes that wait for grants. The lock of the pool guards the granter.
type granter struct {
	pool   *pool // this field and the next four do not change
	shared Shared
	store  store.GrantStore
	holder string
	wake   chan struct{} // wakes the goroutine when it must call the store earlier than planned

	queue     due.Queue[*far] // the limits, ordered by the times of their next requests to the store
	over      chan struct{}   // closed when the goroutine ends; nil if there was none
	running   bool
	failures  int   // the number of successive failures of the store
	notBefore int64 // the earliest time of the next request after a failure; 0 if the last request succeeded
	reportAt  int   // the number of failures at which the next report is made
}

// The type `far` describes a limit that several processes share: how much of it this process has, and how much it needs.
type far struct {
	due.Entry // the limit's entry in the granter's queue
	granter   *granter
	share     *share
	limit     string // the name of the limit in the store
	most      int    // the number of slots; 0 means any number
	every     int64  // the time between two tokens
	burst     int    // the greatest number of unused tokens; 0 means that there is no rate

	granted     int   // the number of granted slots; during a request, only the slots that the request keeps
	fair        int   // how many of the granted slots the process may use, by the last answer of the store
	until       int64 // when the granted slots are lost
	peak        int   // the greatest number of slots taken at once since the time in the field `checked`
	checked     int64
	tokens      int
	tokensUntil int64
	used        bool  // whether a token was taken since the time in the field `checked`
	next        int64 // when the store has the next token

	asked  bool // whether a request is being made
	owes   bool // whether the last request has failed, so that the process does not know its grants
	got    bool // whether the last request got more slots than it kept, or all the tokens that it wanted
	keeps  int
	wants  int   // the number of tokens, or of slots besides the kept slots, that the last request wanted
	retry  int64 // the earliest time of the next request for more slots or tokens
	pause  time.Duration
	check  time.Duration       // the time until the next request that renews the grants
	last   int64               // when the last request was made
	others []store.GrantHolder // the other processes, from the last answer of the store
}

// granter returns a granter for the bounds in s, or nil if s is nil. It returns an error if s is invalid.
func (s *Shared) granter() (*granter, error) {
	if s == nil {
		return nil, nil
	}
	g := &granter{shared: *s, wake: make(chan struct{}, 1), holder: machineAndProcess() + "/" + uuid.NewString()}
	var ok bool
	g.store, ok = s.Store.(store.GrantStore)
	var wrong string
	switch {
	case s.Store == nil:
		wrong = "Store is nil"
	case !ok:
		wrong = fmt.Sprintf("%T does not implement store.GrantStore", s.Store)
	case s.Limit < 0:
		wrong = fmt.Sprintf("Limit %d is negative", s.Limit)
	case s.KeyLimit < 0:
		wrong = fmt.Sprintf("KeyLimit %d is negative", s.KeyLimit)
	case s.Limit == 0 && s.KeyLimit == 0 && s.Rate == Rate{} && s.KeyRate == Rate{} && len(s.Groups) == 0:
		wrong = "none of Limit, KeyLimit, Rate, KeyRate and Groups is set"
	case s.Lease < 0 || s.Lease > 0 && s.Lease < minGrantLease:
		wrong = fmt.Sprintf("Lease %v is less than the minimum, %v", s.Lease, minGrantLease)
	case !utf8.ValidString(s.Name) || strings.Contains(s.Name, "\x00") || len(s.Name) > maxGrantText:
		wrong = fmt.Sprintf("Name %s is not UTF-8, contains a NUL byte, or is longer than %d bytes", quoteID(s.Name), maxGrantText)
	case strings.Contains(s.Name, "/"): // in the name of a limit, the first slash ends the Name
		wrong = fmt.Sprintf("Name %s contains a slash", quoteID(s.Name))
	}
	if wrong != "" {
		return nil, fmt.Errorf("%w: Runner.Shared: %s", ErrBadOption, wrong)
	}
	if err := s.Rate.validate(); err != nil {
		return nil, fmt.Errorf("%w: Runner.Shared.Rate: %w", ErrBadOption, err)
	}
	if err := s.KeyRate.validate(); err != nil {
		return nil, fmt.Errorf("%w: Runner.Shared.KeyRate: %w", ErrBadOption, err)
	}
	if err := s.checkGroups(); err != nil {
		return nil, fmt.Errorf("%w: Runner.Shared.Groups: %w", ErrBadOption, err)
	}
	if g.shared.Lease == 0 {
		g.shared.Lease = defaultGrantLease
	}
	return g, nil
}

// checkGroups returns an error about the first invalid group.
func (s *Shared) checkGroups() error {
	seen := make(map[string]bool, len(s.Groups))
	for i, g := range s.Groups {
		if text, is := named("group", i+1, g.Name, seen[g.Name]); is {
			return errors.New(text)
		}
		seen[g.Name] = true
		switch err := g.Rate.validate(); {
		case err != nil:
			return fmt.Errorf("group %s: %w", quoteID(g.Name), err)
		case g.Limit < 0:
			return fmt.Errorf("group %s: Limit %d is negative", quoteID(g.Name), g.Limit)
		case g.CancelOnFailure:
			return fmt.Errorf("group %s: CancelOnFailure is for a graph's own group: a failure in one run stops no node of another run", quoteID(g.Name))
		case g.Limit == 0 && g.Rate == Rate{}:
			return fmt.Errorf("group %s has neither Limit nor Rate", quoteID(g.Name))
		}
	}
	return nil
}

// The method `bounds` reports whether g sets bounds: for each key if `keys` is true, or else for all steps together.
func (g *granter) bounds(keys bool) bool {
	switch {
	case g == nil:
		return false
	case keys:
		return g.shared.KeyLimit > 0 || g.shared.KeyRate != Rate{}
	}
	return g.shared.Limit > 0 || g.shared.Rate != Rate{}
}

// maxGrantText is the greatest length, in bytes, of a Shared.Name. The name of a limit in the store may contain a key or the name of a group. If the
// key or the group's name is longer than maxGrantText, limitName replaces it by its digest.
const maxGrantText = 200

// The method `extend` connects a share with a limit in the store: the limit of all steps if key is empty, otherwise the limit of the key. It does
// nothing if g does not set this limit.
func (g *granter) extend(x *share, key string) {
	switch {
	case !g.bounds(key != ""):
	case key == "":
		x.far = g.far(x, "/all", g.shared.Limit, g.shared.Rate)
	default:
		x.far = g.far(x, limitName("key", key), g.shared.KeyLimit, g.shared.KeyRate)
	}
}

// The method `groups` returns a share for each group in Shared.Groups, or nil if there are none.
func (g *granter) groups() map[string]*share {
	if g == nil || len(g.shared.Groups) == 0 {
		return nil
	}
	shares := make(map[string]*share, len(g.shared.Groups))
	for _, of := range g.shared.Groups {
		x := g.pool.share(0, Rate{})
		x.far = g.far(x, limitName("group", of.Name), of.Limit, of.Rate)
		shares[of.Name] = x
	}
	return shares
}

// limitName returns the end of a limit's name in the store. If the name is too long or is not a text, limitName uses its digest.
func limitName(what, name string) string {
	if len(name) <= maxGrantText && utf8.ValidString(name) && !strings.Contains(name, "\x00") {
		return "/" + what + "/" + name
	}
	digest := sha256.Sum256([]byte(name))
	return "/" + what + "-sha256/" + hex.EncodeToString(digest[:])
}

// far returns a new far for a limit in the store.
func (g *granter) far(x *share, name string, limit int, rate Rate) *far {
	f := &far{granter: g, share: x, limit: g.shared.Name + name, most: limit}
	if rate != (Rate{}) {
		f.every, f.burst = (int64(rate.Per)-1)/int64(rate.Starts)+1, max(rate.Burst, 1)
	}
	return f
}

func (f *far) rated() bool { return f != nil && f.burst > 0 }

// The method `active` reports whether a request to the store is needed, now or later.
func (f *far) active() bool {
	return f != nil && (f.asked || f.owes || f.granted > 0 || f.tokens > 0 || f.granter.queue.Has(f))
}

// The method `usable` returns the number of slots that may be taken.
func (f *far) usable() int {
	if f.granted == 0 || f.share.pool.now() >= f.until {
		return 0
	}
	return min(f.granted, f.fair)
}

func (f *far) hasSlot(taken int) bool { return f == nil || f.most == 0 || taken < f.usable() }

// hasToken reports whether there is a token that is not promised to a claim. Without a rate the result is true.
func (f *far) hasToken() bool {
	return !f.rated() || f.tokens > f.share.promised[1] && f.share.pool.now() < f.tokensUntil
}

// The method `take` records that a slot was taken. If token is set, it also takes a token. There may be no token if a run that is being stopped has
// not waited for one.
func (f *far) take(token bool) {
	if f == nil {
		return
	}
	f.peak = max(f.peak, f.share.used)
	if token && f.tokens > 0 {
		f.tokens--
		f.used = true
	}
}

func (f *far) putToken() {
	if f.rated() {
		f.tokens++
	}
}

// The method `lacks` reports whether claims wait because this process has too few granted slots, or because it has no granted token. If the share's
// own limit is reached, both results are false. If the share's own bucket is empty, the result `tokens` is false.
func (f *far) lacks() (slots, tokens bool) {
	x := f.share
	waiting, taken := x.waiting[0].Len()+x.waiting[1].Len(), x.taken()
	if waiting == 0 || x.limit > 0 && taken >= x.limit {
		return false, false
	}
	if !f.hasSlot(taken) {
		return true, false
	}
	return false, x.waiting[1].Len() > 0 && !f.hasToken() && x.bucketFree()
}

// The method `note` determines the time of the next request to the store. It is called after each change of the share or of its grants.
func (f *far) note() {
	if f == nil || f.asked {
		return
	}
	g, x, now, at := f.granter, f.share, f.share.pool.now(), int64(math.MaxInt64)
	if f.granted > 0 || f.tokens > 0 {
		at = f.last + int64(f.check)
		switch {
		case len(x.stakes) == 0:
			at = now
		case f.most > 0 && f.granted > f.fair && x.taken() < f.granted: // other processes need slots that this process no longer uses
			at = min(at, max(now, f.last+int64(minGrantPause)))
		}
	}
	// If the process lacks slots although it has all slots of the limit, a request for more slots would be useless.
	if slots, tokens := f.lacks(); tokens || slots && !(f.usable() > 0 && f.usable() == f.most) {
		if now-f.last > int64(grantCheck) {
			f.pause = 0
		}
		at = min(at, max(now, f.retry))
	}
	if f.owes {
		at = now
	}
	if at == math.MaxInt64 {
		g.queue.Remove(f)
		return
	}
	if at = max(at, g.notBefore); g.queue.Has(f) {
		if f.Due == at {
			return
		}
		g.queue.Remove(f)
	}
	if first := g.queue.Add(f, at); !g.running {
		g.running, g.over = true, make(chan struct{})
		go g.work()
	} else if first {
		select {
		case g.wake <- struct{}{}:
		default: // the channel already has an element, which wakes the goroutine
		}
	}
}

// giveBack waits until all grants of a Runner without runs are returned, or until ctx ends.
func (rn *Runner) giveBack(ctx context.Context) {
	p, _ := rn.limits()
	if p == nil || p.granter == nil {
		return
	}
	p.mu.Lock()
	running, over := p.granter.running, p.granter.over
	p.mu.Unlock()
	if !running {
		return
	}
	select {
	case <-over:
	case <-ctx.Done(): // the grants are returned in the background
	}
}

// The method `work` makes requests to the store until no more are needed.
func (g *granter) work() {
	over := false
	defer func() {
		if !over { // the store called Goexit
			go g.work()
		}
	}()
	for {
		batch, requests, wait, done := g.collect()
		if done {
			over = true
			return
		}
		if len(batch) > 0 {
			g.ask(batch, requests)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-g.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// The method `collect` returns the requests that are due now or soon. If there are none, it returns the time to wait. The result `done` is true if no
// more requests are needed.
func (g *granter) collect() (batch []*far, requests []store.GrantRequest, wait time.Duration, done bool) {
	p := g.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if g.queue.Len() == 0 {
		g.running = false
		close(g.over)
		return nil, nil, 0, true
	}
	if at := g.queue.Due(); at > now {
		return nil, nil, time.Duration(at - now), false
	}
	for len(batch) < grantBatch {
		f, ok := g.queue.Next(now + int64(minGrantPause))
		if !ok {
			break
		}
		batch, requests = append(batch, f), append(requests, f.request(now))
	}
	return batch, requests, 0, false
}

// The method `request` returns the next request to the store. Until the answer arrives, the process may use only the slots that the request keeps.
func (f *far) request(now int64) store.GrantRequest {
	x, taken := f.share, f.share.taken()
	slots, tokens := f.lacks()
	r := store.GrantRequest{Limit: f.limit, Most: f.most, Every: time.Duration(f.every), Burst: f.burst}
	if now >= f.until {
		f.granted = 0
	}
	if now >= f.tokensUntil {
		f.tokens = min(f.tokens, x.promised[1])
	}
	check := now-f.checked >= int64(grantCheck) || len(x.stakes) == 0
	waiting := x.waiting[0].Len() + x.waiting[1].Len()
	grows := 0
	if f.got { // if nodes still lack slots or tokens after a successful request, the next request is for twice as many
		grows = 2 * f.wants
	}
	f.wants = 0
	if f.most > 0 {
		r.Keep = taken
		switch {
		case slots:
			f.wants = max(waiting, grows)
		case len(x.stakes) == 0: // unused slots are returned
		case f.granted > f.fair:
			r.Keep = max(taken, f.fair)
		case check:
			r.Keep = max(taken, min(f.granted, f.peak))
		default:
			r.Keep = max(taken, f.granted)
		}
		if r.Want = r.Keep; slots {
			r.Want = max(min(r.Keep+f.wants, f.most), r.Keep)
			if limit := x.ownLimit(); limit > 0 {
				r.Want = max(min(r.Want, limit), r.Keep)
			}
		}
		r.Runs = x.holding()
	}
	if tokens {
		f.wants = max(x.waiting[1].Len(), grows)
		if f.most > 0 {
			f.wants = min(f.wants, f.usable()-taken)
		}
		f.wants = min(f.wants, f.burst)
		r.Tokens = f.wants
	} else if spare := f.tokens - x.promised[1]; spare > 0 && check && !f.used {
		r.Back = min(spare, f.burst)
		f.tokens -= r.Back
	}
	if check {
		f.checked, f.peak, f.used = now, taken, false
	}
	f.asked, f.last, f.keeps, f.granted = true, now, r.Keep, min(f.granted, r.Keep)
	return r
}

// ownLimit returns the share's own limit or, if it is smaller, this process's own limit of all steps. It returns 0 if there is neither limit.
func (x *share) ownLimit() int {
	if all := x.pool.whole; all != nil && all.limit > 0 && (x.limit == 0 || all.limit < x.limit) {
		return all.limit
	}
	return x.limit
}

// The method `holding` returns the sorted ids of at most grantRuns runs that hold slots. The caller holds the pool's lock.
func (x *share) holding() (ids []string) {
	for _, k := range x.stakes {
		if _, used := k.lines.Bounds(); used > 0 {
			ids = append(ids, strings.ToValidUTF8(k.run.ID(), "\uFFFD"))
		}
	}
	slices.Sort(ids)
	return ids[:min(len(ids), grantRuns)]
}

// The method `ask` calls the store and applies the answers. During the call, the pool is not locked.
func (g *granter) ask(batch []*far, requests []store.GrantRequest) {
	p, sent := g.pool, g.pool.now()
	var answers []store.Granted
	err := fmt.Errorf("%w: Grant has ended the goroutine that called it", ErrStore)
	defer func() {
		p.mu.Lock()
		g.settle(batch, answers, sent, err)
		report := g.countFailure(err)
		p.mu.Unlock()
		if report {
			g.report(err)
		}
	}()
	err = guarded(func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), g.shared.Lease/3)
		defer cancel()
		answers, err = g.store.Grant(ctx, g.holder, g.shared.Lease, requests)
		if err == nil && len(answers) != len(requests) {
			err = fmt.Errorf("%d answers to %d requests for grants", len(answers), len(requests))
		}
		return err
	})
}

// countFailure reports whether the host must get the error of a call: after 1, 2, 4, 8 successive failures, and so on. A nil error resets the
// count. The caller holds the pool's lock.
func (g *granter) countFailure(err error) bool {
	if err == nil {
		g.failures, g.reportAt = 0, 0
		return false
	}
	if g.failures < max(g.reportAt, 1) {
		return false
	}
	g.reportAt = 2 * g.failures
	return true
}

// The method `report` reports an error of the store to the host.
func (g *granter) report(err error) {
	err = fmt.Errorf("%w: grants: %w", ErrStore, err)
	tell := g.shared.OnError
	if tell == nil {
		tell = func(err error) { slog.Warn("nodes wait for a limit that processes share", "error", err) }
	}
	if failed := contain(func() error { tell(err); return nil }); failed != nil {
		slog.Error("Shared.OnError has failed", "error", failed, "unreported", err)
	}
}

// The method `settle` applies the answers of the store. If err is not nil, it sets the earliest time of the next request instead. Then it calls back
// the runs whose claims can be served now. The caller holds the pool's lock.
func (g *granter) settle(batch []*far, answers []store.Granted, sent int64, err error) {
	now := g.pool.now()
	if err != nil {
		g.failures++
		g.notBefore = now + int64(min(minFailPause<<min(g.failures-1, 10), maxFailPause))
	} else {
		g.notBefore = 0
	}
	for i, f := range batch {
		f.asked, f.owes, f.got = false, err != nil, false
		if err == nil {
			f.answered(&answers[i], sent, now)
		} else if x := f.share; g.failures >= giveBackTries && x.taken()+x.waiting[0].Len()+x.waiting[1].Len() == 0 {
			f.owes, f.granted, f.tokens = false, 0, 0 // the grants end with their lease
		}
		f.share.call()
	}
}

// The method `answered` applies an answer of the store.
func (f *far) answered(a *store.Granted, sent, now int64) {
	f.granted, f.fair, f.until = a.Held, a.Fair, sent+int64(f.granter.shared.Lease)
	f.tokens += a.Tokens
	if f.tokens > 0 {
		f.tokensUntil = f.until
	}
	f.got = a.Held > f.keeps || a.Tokens > 0 && a.Tokens == f.wants
	f.next = now + int64(a.Next)
	if f.check = min(max(2*f.check, minGrantCheck), grantCheck); f.got || len(a.Others) != len(f.others) {
		f.check = minGrantCheck
	}
	f.others = a.Others
	if f.pause = min(max(2*f.pause, minGrantPause), maxGrantPause); f.got || f.wants == 0 { // a request that wanted nothing was not refused
		f.pause = 0
	}
	f.retry = now + int64(f.pause)
	if a.Next > 0 { // the pause has a random part, so that neither of two processes is always the first
		f.retry = now + int64(min(a.Next, maxTokenPause)) + rand.Int64N(int64(minGrantPause))
	}
}
