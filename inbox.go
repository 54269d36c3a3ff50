package kahn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn/internal/due"
	"github.com/seed-c794f7ef/kahn/internal/saturate"
	"github.com/seed-c794f7ef/kahn/store"
)

// inbox holds the requests that were posted to the store for the run. The run's lock guards all fields except the atomic fields.
//
// To take a request means to perform it and to answer it. One goroutine at a time takes the requests, in their order. It returns when no request is
// waiting, and until then it counts as a timer of the run. The answer to a request is put into the outbox in the same critical section in which the
// request takes effect. A life of the run begins when a process begins or continues the run. The requests that are waiting at that time are taken
// before any step is called. Signals are taken before the run begins, since the codec that decodes their values must not be called under the run's
// lock. Requests that cancel a continued run, or a node of it, are taken in the critical section in which the run begins: if they were taken
// earlier, the run's cleanup nodes would not run. If a run has never begun and is cancelled, it ends at once.
//
// If the value of a signal cannot be read now, the signal is put aside and tried again after a pause. The key or the blob that the value needs may
// arrive in the meantime. Later requests do not wait for the signal. But a store accepts answers only in the order of the requests, so the later
// answers are sent to the store after the answer to the signal. Until the later answers are sent, the record of the run contains them, so that the
// next life does not perform the later requests again.
type inbox struct {
	from    store.Inbox
	waiting []store.PostedRequest // loaded but not yet taken
	loaded  uint64                // the number of the last request loaded
	taken   uint64                // the number of the last request whose answer was put into the outbox
	taking  bool                  // whether a goroutine takes requests, or will soon; if so, no second goroutine starts
	idle    chan struct{}         // closed when the first goroutine that takes requests ends
	more    atomic.Bool           // whether the store may have more requests
	open    atomic.Bool           // whether the run is prepared, so that its lock may be taken
	stop    func()                // ends the watch; nil before the watch has begun
	retry   *time.Timer           // repeats a load after a failure of the store; nil if no load has failed

	aside  []store.PostedRequest // the requests that could not be read, in their order
	unread map[uint64]error      // maps the number of an unanswered request to the reason why the request could not be read
	passes int                   // the number of successive rounds in which a request could not be read
	again  *time.Timer           // tries the requests in aside again; nil if there are none
	ahead  []aheadState          // the answers to requests that follow an unanswered request, in their order
}

// ErrUndecoded is matched by the error of a run that comes to rest while its [Encoding] cannot read the value of a request. The key or the blob
// that the value needs may be missing. The request stays in the store, and the next process that continues the run tries again.
var ErrUndecoded = errors.New("the value of a request cannot be read now")

// openInbox loads the requests that are waiting for an acquired run, and begins to watch for more.
func (r *Run) openInbox(stored *store.Run) (err error) {
	from, ok := r.durable.store.(store.Inbox)
	if !ok || r.cfg.idle { // if r.cfg.idle is true, the run only writes its first transaction, so it takes no requests
		return nil
	}
	in := &inbox{from: from, loaded: stored.Taken, taken: stored.Taken, taking: true, idle: make(chan struct{})}
	if stored.Posted > stored.Taken {
		list, err := in.load(r.ctx, r.ID(), in.loaded)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrStore, err)
		}
		in.add(list)
	}
	r.durable.inbox = in
	return guarded(func() error {
		in.stop = sync.OnceFunc(from.WatchRequests(r.ID(), func(string) {
			if in.more.Store(true); in.open.Load() {
				r.wakeInbox()
			}
		}))
		return nil
	})
}

// The method `load` returns at most store.MaxPage requests: the first ones after the request with the given number. The caller does not hold the
// run's lock.
func (in *inbox) load(ctx context.Context, run string, after uint64) (list []store.PostedRequest, err error) {
	err = guarded(func() (err error) {
		list, err = in.from.LoadRequests(ctx, run, after, store.MaxPage)
		return err
	})
	return list, err
}

// The method `add` appends a page of requests to the waiting requests.
func (in *inbox) add(page []store.PostedRequest) {
	for _, q := range page {
		if in.loaded = q.Number; !in.hasAnswer(q.Number) {
			in.waiting = append(in.waiting, q)
		}
	}
	if len(page) == store.MaxPage {
		in.more.Store(true)
	}
}

// hasAnswer reports whether a request was answered.
func (in *inbox) hasAnswer(number uint64) bool {
	_, ahead := slices.BinarySearchFunc(in.ahead, number, func(t store.TakenRequest, number uint64) int { return cmp.Compare(t.Number, number) })
	return number <= in.taken || ahead
}

// The method `restore` sets in.ahead to the answers in the record of the run. The run has not sent these answers to the store yet.
func (in *inbox) restore(ahead []store.TakenRequest) {
	if in == nil || len(ahead) == 0 {
		return
	}
	in.ahead = ahead
	in.waiting = slices.DeleteFunc(in.waiting, func(q store.PostedRequest) bool { return in.hasAnswer(q.Number) })
}

// The method `holds` reports whether there are answers that the store has not received yet.
func (in *inbox) holds() bool { return in != nil && len(in.ahead) > 0 }

// answersAhead returns the answers that the store has not received yet.
func (in *inbox) answersAhead() []store.TakenRequest {
	if in == nil {
		return nil
	}
	return slices.Clone(in.ahead)
}

// The method `end` is called for the commit that ends the run. It adds all answers that the store has not received yet to the commit. A store accepts
// answers only in the order of the requests. So `end` also refuses each earlier request that could not be read. Once the run has ended, the store
// refuses all waiting requests.
func (in *inbox) end(c *store.Commit) {
	for _, t := range in.ahead {
		for in.taken++; in.taken < t.Number; in.taken++ {
			c.Taken = append(c.Taken, store.TakenRequest{Number: in.taken, Refused: store.ErrEnded.Error()})
		}
		c.Taken = append(c.Taken, t)
	}
	in.ahead = nil
}

// unreadable returns the error of a run that comes to rest although it could not read some requests. It returns nil if the run has read all requests.
func (in *inbox) unreadable() error {
	if in == nil || len(in.unread) == 0 {
		return nil
	}
	err := in.unread[slices.Min(slices.Collect(maps.Keys(in.unread)))]
	if more := len(in.unread) - 1; more > 0 {
		err = fmt.Errorf("%w; further requests that cannot be read: %d", err, more)
	}
	return err
}

// isBusy reports whether a goroutine takes requests. Until this goroutine finishes, a run at rest does not end.
func (in *inbox) isBusy() bool { return in != nil && in.taking }

// The method `close` ends the watch. The caller does not hold the run's lock.
func (in *inbox) close() error {
	if in == nil || in.stop == nil {
		return nil
	}
	return guarded(func() error { in.stop(); return nil })
}

// giveUp stops the timer in.retry, which loads the requests again, and the timer in.again, which tries the requests in in.aside again.
func (in *inbox) giveUp() {
	if in == nil {
		return
	}
	for _, t := range []*time.Timer{in.retry, in.again} {
		if t != nil {
			t.Stop()
		}
	}
}

// followInbox begins to take the requests of a prepared run. If the argument is true, the run begins as soon as followInbox returns. So followInbox
// first waits until all requests that have already arrived are taken.
func (r *Run) followInbox(now bool) {
	if r.durable == nil || r.durable.inbox == nil {
		return
	}
	in := r.durable.inbox
	r.st.Lock()
	in.open.Store(true)
	begun := r.mayTake() && (len(in.waiting) > 0 || in.more.Load())
	if in.taking = false; begun {
		r.startTaking()
	}
	r.st.Unlock()
	if begun && now {
		<-in.idle
	}
}

// wakeInbox starts a goroutine that takes requests, unless one is already running.
func (r *Run) wakeInbox() {
	r.st.Lock()
	defer r.st.Unlock()
	if !r.durable.inbox.taking && r.mayTake() {
		r.startTaking()
	}
}

// mayTake reports whether the run can still write the answers to requests. If it cannot, it must not take requests.
func (r *Run) mayTake() bool {
	d := r.durable
	return !d.given && d.failed == nil && !r.concluded()
}

// startTaking starts the goroutine that takes requests. The caller holds the run's lock.
func (r *Run) startTaking() {
	r.durable.inbox.taking = true
	r.timers++
	go r.takeRequests()
}

// takeRequests takes requests until none is waiting.
func (r *Run) takeRequests() {
	var q *store.PostedRequest
	over := false
	defer func() { // needed if the store or a codec calls Goexit
		if over {
			return
		}
		if q != nil {
			r.setAside(q, ErrGoexit)
		} else {
			r.st.Lock()
			r.repeatLoad()
			r.st.Unlock()
		}
		go r.takeRequests()
	}()
	for {
		q = nil
		if q, over = r.nextRequest(); over {
			return
		}
		r.perform(q)
	}
}

// nextRequest returns the next request to take. If there is none, the result `over` is true, and the calling goroutine must return.
func (r *Run) nextRequest() (q *store.PostedRequest, over bool) {
	in := r.durable.inbox
	r.st.Lock()
	for r.mayTake() && (len(in.waiting) == 0 || r.stage == stagePending && !r.startsPending()) && in.more.Swap(false) {
		ctx, cancel := context.WithTimeout(r.durable.ctx, r.cfg.leaseTime)
		after := in.loaded
		r.st.Unlock()
		list, err := in.load(ctx, r.ID(), after)
		cancel()
		r.st.Lock()
		if err != nil {
			r.repeatLoad()
			break
		}
		in.add(list)
	}
	if r.mayTake() && len(in.waiting) > 0 && (r.stage != stagePending || r.startsPending()) {
		q, in.waiting = &in.waiting[0], in.waiting[1:]
		r.st.Unlock()
		return q, false
	}
	in.taking = false
	select {
	case <-in.idle:
	default:
		close(in.idle)
	}
	r.timers--
	r.release(r.now())
	return nil, true
}

// startsPending reports whether the first waiting request is taken before the run begins. In a continued run, this applies only to a signal. In a
// run that has never begun, it applies to every request except the cancel of a node. If a cancel of the run is waiting too, it also applies to the
// cancel of a node, since the run then ends and never begins.
func (r *Run) startsPending() bool {
	waiting := r.durable.inbox.waiting
	if r.from != nil {
		return waiting[0].Kind == store.KindSignal
	}
	return waiting[0].Kind != store.KindCancelNode || slices.ContainsFunc(waiting, func(q store.PostedRequest) bool { return q.Kind == store.KindCancel })
}

// asksRedrive reports whether the first waiting request is a redrive.
func (in *inbox) asksRedrive() bool {
	return in != nil && len(in.waiting) > 0 && in.waiting[0].Kind == store.KindRedrive
}

// restoreAsked redrives an ended run as the first waiting request demands. Then it refuses the redrives that directly follow this request. If the
// run cannot be redriven as demanded, restoreAsked refuses the request and returns an error. The run stays due, so a later call takes the next
// redrive. If this process cannot judge the request, restoreAsked returns an error, and the request stays in the store.
func (r *Run) restoreAsked(stored *store.Run) (*restoration, error) {
	in, c := r.durable.inbox, r.cfg
	q := in.waiting[0]
	in.waiting = in.waiting[1:]
	what, err := q.Redriving()
	if err == nil {
		c.redrive, c.redriven, c.repeats = true, what.Nodes, 0
		for mode, set := range redrivingModes(&what) {
			if *set {
				c.repeats |= mode
			}
		}
		if by := asked([]Request{{Actor: q.Actor, Reason: q.Comment}}); by != (Request{}) {
			c.redrivenBy = &by
		}
		var x *restoration
		if x, err = r.restoreStored(stored); err == nil {
			r.durable.answerRequest(q.Number, nil)
			r.refuseRedrives()
			return x, nil
		}
		if !slices.ContainsFunc([]error{ErrUnknownNode, ErrHandlers, ErrBadOption, ErrCompensation}, func(kind error) bool { return errors.Is(err, kind) }) {
			return nil, err // the request stays for a process that can judge it
		}
	}
	d, answer := r.durable, store.TakenRequest{Number: q.Number, Refused: cmp.Or(errorText(err), "refused")}
	var applied store.Applied
	failed := guarded(func() (err error) {
		applied, err = d.store.Commit(r.ctx, d.lease, store.Commit{Sequence: d.sequence + 1, Taken: []store.TakenRequest{answer}})
		return err
	})
	switch {
	case failed != nil:
		return nil, fmt.Errorf("%w: %w", ErrStore, failed)
	case applied != store.AppliedNow:
		return nil, fmt.Errorf("%w: the store did not apply the refusal of request %s: its answer was %v", ErrStore, quoteID(q.ID), applied)
	}
	return nil, fmt.Errorf("%w: run %s is %v; the redrive %s was refused: %w", ErrFinished, quoteID(stored.ID), stored.Status, quoteID(q.ID), err)
}

// redrivingModes maps each mode of a redrive to its field in the posted request.
func redrivingModes(what *store.Redriving) map[RedriveMode]*bool {
	return map[RedriveMode]*bool{Anew: &what.Anew, DespiteHandlers: &what.DespiteHandlers, KeepDescendants: &what.KeepDescendants,
		RepeatCompensations: &what.RepeatCompensations, CompensatedByHand: &what.CompensatedByHand}
}

// refuseRedrives refuses the redrives at the head of the waiting requests, because the run was redriven after they were posted.
func (r *Run) refuseRedrives() {
	for in := r.durable.inbox; in.asksRedrive(); in.waiting = in.waiting[1:] {
		r.durable.answerRequest(in.waiting[0].Number, r.redrivenBefore())
	}
}

// redrivenBefore returns the error for a redrive that was posted before another redrive of the run began.
func (r *Run) redrivenBefore() error {
	return fmt.Errorf("%w: run %s was redriven after the request was posted", ErrNotEnded, quoteID(r.ID()))
}

// The function `stops` reports whether a request cancels the run or one of its nodes. Such a request needs no user code.
func stops(kind store.RequestKind) bool {
	return kind == store.KindCancel || kind == store.KindCancelNode
}

// takeStops is called when the run begins. It takes the waiting requests that cancel the run or a node, or that report the end of an awaited run.
// When it meets a request of another kind, it starts a goroutine that takes this request and the later ones. The caller holds the run's lock.
func (r *Run) takeStops(now int64) {
	if r.durable == nil || r.durable.inbox == nil || r.durable.inbox.taking {
		return
	}
	in := r.durable.inbox
	for len(in.waiting) > 0 && (stops(in.waiting[0].Kind) || in.waiting[0].Kind == store.KindEnded) && r.mayTake() {
		q := &in.waiting[0]
		in.waiting = in.waiting[1:]
		r.durable.answerRequest(q.Number, r.performNow(q, now))
	}
	if len(in.waiting) > 0 && r.mayTake() {
		r.startTaking()
	}
}

// repeatLoad loads the requests again after a pause, because the store has failed. If the store keeps failing, the loads end when the run loses its
// lease. The caller holds the run's lock.
func (r *Run) repeatLoad() {
	if in := r.durable.inbox; r.mayTake() {
		if in.retry != nil {
			in.retry.Stop() // in.again stays armed, so that the requests in aside are tried again even if the store keeps failing
		}
		in.retry = time.AfterFunc(minPause, func() {
			in.more.Store(true)
			r.wakeInbox()
		})
	}
}

// The method `perform` performs a request. It calls user code, so the caller must not hold the run's lock.
func (r *Run) perform(q *store.PostedRequest) {
	var err error
	switch {
	case q.Kind == store.KindSignal:
		read := false
		if read, err = r.performSignal(q); !read {
			r.setAside(q, err)
			return
		}
	case stops(q.Kind), q.Kind == store.KindEnded:
		r.control(func(now int64) {
			err = r.performNow(q, now)
			r.durable.answerRequest(q.Number, err)
		})
	case q.Kind == store.KindRedrive:
		err = r.redrivenBefore()
	default:
		err = fmt.Errorf("%w: a run does not perform requests of the kind %v", ErrBadValue, q.Kind)
	}
	r.reply(q, err)
}

// performEnded delivers the end of another run to the node that the request names. It refuses the request if this node does not await the run that
// has ended. It also refuses the request if the node is in a graph that is not known yet. In this case, the run asks the store about the awaited run
// again when the node is restored: see awaitAgain. The caller holds the run's lock.
func (r *Run) performEnded(q *store.PostedRequest, now int64) error {
	e, err := q.Ended()
	if err != nil {
		return err
	}
	at, name := r.waiter(q.Node)
	ref, ok := at.plan.Ref(name)
	x := at.extras[ref]
	if !ok || at.st.Word(ref).Status() != Suspended || x == nil || x.wait == nil || x.wait.Run != e.Run {
		return fmt.Errorf("%w: node %s does not await run %s", ErrUnknownGate, quoteID(q.Node), quoteID(e.Run))
	}
	x.awaited = slices.DeleteFunc(x.awaited, func(a awaitedRun) bool { return a.Run == e.Run })
	x.awaited = append(x.awaited, awaitedRun{e, at.records[ref].attempts})
	delete(r.durable.awaits, q.Node) // the store ends the await when it gets the answer to this request
	at.wake(now)
	if r.tree != nil {
		r.tree.touch(at)
	}
	return at.reenter(ref, now)
}

// mayAwait reports whether nodes of the run may await other runs.
func (r *Run) mayAwait() bool {
	if r.durable == nil {
		return false
	}
	_, ok := r.durable.store.(store.Awaiter)
	return ok && r.durable.inbox != nil
}

// The method `await` adds an Await of the node to c, the commit that contains the node's record. When the awaited run ends, the store posts a
// request that reports the end to the node. If the node no longer awaits a run, the Await has no Run. If the node awaits the same run as before, or
// still awaits no run, await adds nothing.
func (d *durable) await(c *store.Commit, path string, n *nodeState) {
	run := ""
	if n.Status == Suspended && n.Wait != nil {
		run = n.Wait.Run
	}
	switch {
	case d.awaits[path] == run:
		return
	case run == "":
		delete(d.awaits, path)
	case d.awaits == nil:
		d.awaits = map[string]string{path: run}
	default:
		d.awaits[path] = run
	}
	c.Awaits = append(c.Awaits, store.Await{Node: path, Run: run})
}

// withdrawAwaits withdraws all awaits if the commit ends this run: for each node that awaits another run, it adds an Await without a Run to the
// commit. Otherwise it does nothing.
func (d *durable) withdrawAwaits(c *store.Commit) {
	if !c.Status.Terminal() {
		return
	}
	for _, path := range slices.Sorted(maps.Keys(d.awaits)) {
		c.Awaits = append(c.Awaits, store.Await{Node: path})
	}
	clear(d.awaits)
}

// performNow performs a request that needs no user code. The caller holds the run's lock.
func (r *Run) performNow(q *store.PostedRequest, now int64) error {
	if q.Kind == store.KindEnded {
		return r.performEnded(q, now)
	}
	return r.performStop(q, now)
}

// performStop cancels the run or one of its nodes. The caller holds the run's lock.
func (r *Run) performStop(q *store.PostedRequest, now int64) error {
	if q.Kind == store.KindCancel {
		r.cancel(shortened(Request{Actor: q.Actor, Reason: q.Comment}))
		return nil
	}
	ref, ok := r.plan.Ref(q.Node)
	if !ok {
		return r.plan.unknownOwn(q.Node)
	}
	return r.cancelNode(ref, now)
}

// performSignal delivers a signal. If the node accepts answers but the value cannot be decoded or encoded now, performSignal has no effect and
// returns false.
func (r *Run) performSignal(q *store.PostedRequest) (read bool, err error) {
	s := signal{gate: q.Node, Decision: Decision{nil, q.Actor, q.Comment, q.ID}, number: q.Number}
	if s.Value, err = decodeValue(r.cfg.codec, q.Value); err == nil {
		err = s.identify()
	}
	if err == nil {
		if _, err = r.deliverSignal(&s); !s.unkept {
			return true, err
		}
	}
	if refused := r.refusesSignal(s.gate); refused != nil {
		return true, refused
	}
	return false, err
}

// setAside puts a request that could not be read into in.aside, and reports the reason.
func (r *Run) setAside(q *store.PostedRequest, err error) {
	in := r.durable.inbox
	err = fmt.Errorf("%w: request %s for %s waits: %w", ErrUndecoded, quoteID(q.ID), quoteID(q.Node), err)
	r.st.Lock()
	if !r.mayTake() || in.hasAnswer(q.Number) {
		r.st.Unlock()
		return
	}
	if in.unread == nil {
		in.unread = map[uint64]error{}
	}
	again := in.unread[q.Number] != nil // the first failure is not reported here: the run's error reports it if the run comes to rest
	if !again {
		r.warn(err)
	}
	in.unread[q.Number] = err
	in.aside = append(in.aside, *q)
	if in.again == nil {
		in.passes++
		in.again = time.AfterFunc(retryPause(in.passes), r.takeAside)
	}
	r.st.Unlock()
	if again && r.cfg.report != nil {
		r.cfg.report(err)
	}
}

// takeAside tries the requests of in.aside again.
func (r *Run) takeAside() {
	r.st.Lock()
	defer r.st.Unlock()
	in := r.durable.inbox
	in.again = nil
	if !r.mayTake() {
		return
	}
	in.waiting, in.aside = append(in.aside, in.waiting...), nil
	if !in.taking {
		r.startTaking()
	}
}

// The method `reply` answers a request without effect: the run has refused the request, or the request repeats a signal that the run already
// received. A request with an effect was answered when it took effect, so reply does nothing for it.
func (r *Run) reply(q *store.PostedRequest, err error) {
	r.control(func(int64) { r.durable.answerRequest(q.Number, err) })
}

// answerRequest puts the answer to a request into the outbox. If an earlier request has no answer yet, the answer is put into the record of the run
// instead. If the run's changes are no longer written to the store, answerRequest does nothing, and the next life of the run takes the request. The
// caller holds the run's lock.
func (d *durable) answerRequest(number uint64, err error) {
	in := d.inbox
	if d.failed != nil || in.hasAnswer(number) {
		return
	}
	if delete(in.unread, number); len(in.unread) == 0 {
		in.passes = 0
	}
	t := store.TakenRequest{Number: number}
	if err != nil {
		t.Refused = cmp.Or(errorText(err), "refused")
	}
	if number > in.taken+1 || len(in.ahead) > 0 {
		d.stale, d.outbox.due = true, true
	}
	at, _ := slices.BinarySearchFunc(in.ahead, number, func(t store.TakenRequest, number uint64) int { return cmp.Compare(t.Number, number) })
	in.ahead = slices.Insert(in.ahead, at, t)
	for len(in.ahead) > 0 && in.ahead[0].Number == in.taken+1 {
		in.taken++
		d.outbox.commit.Taken = append(d.outbox.commit.Taken, in.ahead[0])
		in.ahead = in.ahead[1:]
	}
}

// PrepareSignal returns a request that answers a waiting node of a durable run, or a gate that the run has not reached. Any process may store the
// request with the method Post of a [store.Inbox]. The process that performs the run applies the request by the rules of [Run.Signal]. The argument
// `gate` is the path or the token of the node. The value may be a [Decision]. Of the options, only [Encoding] matters: pass the Encoding of the
// run. If the Decision has no ID, PrepareSignal makes a unique ID. A program that sets the ID may prepare and post the same request again.
//
// If the run cannot decode the value, the request stays in the store, see [ErrUndecoded]. But if the node accepts no answer at all, the run refuses
// the request.
//
// The error matches [ErrNotEncodable] if the value cannot be encoded; other errors match [ErrBadValue] or [ErrBadOption]. To cancel a run or a
// node, post a [store.Request] of the kind [store.KindCancel] or [store.KindCancelNode], which has no value.
func PrepareSignal(gate string, value any, opts ...Option) (q store.Request, err error) {
	c, err := configure(opts, false)
	if err != nil {
		return q, err
	}
	s := signal{gate: gate, Decision: decisionOf(value)}
	if s.ID == "" {
		s.ID = newRunID()
	}
	if err := s.identify(); err != nil {
		return q, err
	}
	q = store.Request{ID: s.ID, Kind: store.KindSignal, Node: gate, Actor: s.Actor, Comment: s.Comment}
	if q.Value, err = encodeValue(c.codec, s.Value); err != nil {
		return q, fmt.Errorf("signal for %s: %w", quoteID(gate), err)
	}
	return q, q.Check()
}

// PrepareRedrive returns a request that redrives an ended durable run. Any process may store the request with the method Post of a [store.Inbox],
// even without the graph. A process that has the graph begins the redrive by the rules of [Redrive], when it serves the run ([Runner.Serve]) or calls
// [Execute] with the run's [RunID]. The redrive begins at the nodes with the given paths. If no path is given, it begins at all nodes that failed,
// were aborted or were cancelled. The argument `by` says who requests the redrive, and why. Of the options, only a [RedriveMode] matters.
//
//	q, err := kahn.PrepareRedrive([]string{"M[3]"}, kahn.Request{Actor: "ann"})
//	...
//	_, err = db.Post(ctx, "order-17", q)
//
// The method FindRequest of the Inbox returns the outcome. For example, the run refuses the redrive if a path names no node, or if nodes have handled
// failures, see [ErrHandlers]. The refusal contains the text of the error. The request gets a new ID. A program that sets its own ID may post the
// request again. The error of PrepareRedrive matches [ErrBadValue] or [ErrBadOption].
func PrepareRedrive(nodes []string, by Request, opts ...Option) (q store.Request, err error) {
	c := byDefault[0]
	if err := c.apply(append(slices.Clone(opts), Redrive(nil, nodes, by))); err != nil {
		return q, err
	}
	for _, node := range nodes {
		if !utf8.ValidString(node) {
			return q, fmt.Errorf("%w: node %s is not UTF-8", ErrBadValue, quoteID(node))
		}
	}
	what := store.Redriving{Nodes: c.redriven}
	for mode, set := range redrivingModes(&what) {
		*set = c.repeats&mode != 0
	}
	q = store.Request{ID: newRunID(), Kind: store.KindRedrive, Actor: by.Actor, Comment: by.Reason}
	if q.Value, err = json.Marshal(what); err != nil {
		return q, fmt.Errorf("%w: %w", ErrBadValue, err)
	}
	return q, q.Check()
}

// A wake is an entry in durable.alarms, the queue of the alarms that the next life of the run also needs.
type wake struct{ due.Entry }

// afterAsStored calls the method `after` for an alarm that the next life of the run also needs: the end of a backoff, the end of a pause, or a
// deadline. The store records when the earliest of these alarms is due.
func (r *Run) afterAsStored(d time.Duration, f func(now int64)) *alarm {
	a := r.after(d, f)
	if r.durable != nil {
		a.stored = new(wake)
		r.durable.alarms.Add(a.stored, saturate.Add(r.now(), int64(max(d, 0))))
	}
	return a
}

// wakeAt returns the time when a process must continue the run even if no signal arrives, or the zero time if there is no such time. If the run was
// left with work to do, wakeAt returns the current time: see hasWork.
func (d *durable) wakeAt(root *Run) time.Time {
	switch {
	case d.status.Terminal():
		return time.Time{}
	case d.status == RunSuspended && root.leaving && root.hasWork():
		return root.timeAt(root.now()).UTC().Round(0)
	case d.alarms.Len() == 0:
		return time.Time{}
	}
	return root.timeAt(d.alarms.Due()).UTC().Round(0)
}

// hasWork reports whether the run, or a run nested in it, has more to do than to wait for signals, backoffs and pauses.
func (r *Run) hasWork() bool {
	return r.st.HasWork(r.pausing()) || slices.ContainsFunc(r.descendants(), func(c *Run) bool { return c.st.HasWork(c.pausing()) })
}

// The method `pausing` returns the number of loops that pause between two iterations.
func (r *Run) pausing() (n int) {
	for _, x := range r.extras {
		if x.pauses() {
			n++
		}
	}
	return n
}

// postSignal posts a signal for a run at rest. The next life of the run takes it.
func (r *Run) postSignal(ctx context.Context, s *signal) error {
	if r.mailbox() == nil {
		return ErrAtRest
	}
	if err := r.judgeAtRest(s); err != nil {
		return err
	}
	text, err := r.keep(s.Value)
	if err == nil {
		err = r.post(ctx, store.Request{ID: s.ID, Kind: store.KindSignal, Node: s.gate, Value: text, Actor: s.Actor, Comment: s.Comment})
	}
	if errors.Is(err, store.ErrRequestConflict) {
		err = fmt.Errorf("%w: %w", ErrSignalConflict, err)
	}
	if err != nil {
		return fmt.Errorf("signal for %s: %w", quoteID(s.gate), err)
	}
	return nil
}

// The method `mailbox` returns the store's inbox, or nil if the store has none. Requests in the inbox are for the next life of the run.
func (r *Run) mailbox() store.Inbox {
	if r.durable == nil {
		return nil
	}
	in, _ := r.durable.store.(store.Inbox)
	return in
}

// The method `post` posts a request for the next life of a run at rest. A request without an id gets a new one.
func (r *Run) post(ctx context.Context, q store.Request) error {
	in := r.mailbox()
	if in == nil {
		return ErrAtRest
	}
	if q.ID == "" {
		q.ID = newRunID()
	}
	err := guarded(func() error {
		_, err := in.Post(ctx, r.ID(), q)
		return err
	})
	known := func(kind error) bool { return errors.Is(err, kind) }
	if err == nil || slices.ContainsFunc([]error{ErrFinished, ErrUnknownRun, ErrBadValue, store.ErrRequestConflict}, known) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrStore, err)
}
