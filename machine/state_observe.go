package machine

import (
	"errors"
	"slices"

	"github.com/seed-c794f7ef/kahn/reactive"
)

// ErrDriven is returned if a Run drives the State: only that Run may change it.
var ErrDriven = errors.New("the state is driven by a run")

// observers holds the signals and the watchers of a State. It is created when it is first needed.
//
// The statuses of the nodes are in State.words. The signals show copies of the statuses, or values that follow from the statuses. Transitions of
// observed nodes are noted under the State's lock. After the lock is released, the source of the signals publishes all noted transitions at once.
//
// The signals lag behind State.words from the first noted transition to the next publication. Meanwhile `pending` is true, and the signals show the
// State as it was at the last publication. The moment of this publication is called the shown point. A signal that is created meanwhile also shows
// this point, because the field `undo` keeps the words that the changed nodes had then.
//
// The State's lock guards every field unless a comment states otherwise.
type observers struct {
	st     *Locked
	source reactive.Source
	nodes  map[Ref]*nodeSignals
	closed bool // the scope is disposed of: transitions are no longer noted

	pending bool           // whether a noted change has not been published
	dirty   []*nodeSignals // the nodes with changes that have not been published
	undo    map[Ref]uint64 // the words at the shown point, for nodes that have changed since; empty unless pending

	work      *reactive.Value[int] // see WorkSignal
	workCount int
	hadStops  int

	due       *reactive.Value[int] // changes when Drive must act; nil without Drive
	dueCount  int
	aborts    []Token // calls that must end because their nodes were stopped
	hadAborts int

	run     *reactive.Value[RunStatus]
	lastRun RunStatus // the status as noted
	shown   RunStatus // the status as published

	// The field `last` has the status of each node, and `counts` has the number of nodes in each status. They are set only if a count signal, a
	// watcher or Tally needs them.
	last     []Status
	counts   [statusCount]int
	counters [statusCount]*reactive.Value[int]
	watchers []Watcher
	waiters  map[Ref][]Watcher

	endFeeds map[Ref]bool // the predecessors of the end node
}

// Watcher is notified of each status that a node enters. The State calls Note with the State's lock held.
type Watcher interface{ Note(r Ref, to Status) }

// nodeSignals are the signals of one node.
type nodeSignals struct {
	ref     Ref
	status  *reactive.Value[Status] // these three signals are nil until they are requested
	ready   *reactive.Value[bool]
	blocked *reactive.Value[bool]
	waiting bool // whether a predecessor has started
	dirty   bool
}

// nodeView holds the observable values of a node.
type nodeView struct {
	status         Status
	ready, blocked bool
}

// StatusSignal returns the status of a node as a signal. The first call creates the signal, and later calls return it. Like all methods of a
// State that return signals, StatusSignal may be called at any time and on any goroutine. For a Ref outside the plan, the signal stays [Idle].
//
// The signals of a State belong to one [reactive.Scope]. They show the State as it was at one point between two transitions, so effects and
// computeds never see values of different points. If a node passes through several statuses in one call, the signal shows the last. A method of the
// State usually runs the effects of its changes before it returns. But if a callback of the scope is running, the effects run after the callback. A
// coordinator that calls methods of [Locked] must publish the signals itself, see [Locked.SignalsDue].
func (st *State) StatusSignal(r Ref) *reactive.Value[Status] {
	s := st.lock()
	defer s.Unlock()
	n := s.observe(r)
	if n.status == nil {
		s.obs.feed(n)
		s.obs.compare(n)
		n.status = reactive.NewValue(&s.obs.source, s.obs.shownView(n.ref).status)
	}
	return n.status
}

// ReadySignal returns a signal that becomes true when the node is ready for the first time: its join is satisfied, its guard has let it pass,
// and its inputs are complete. The signal then stays true, even if the node's contract or moderation refuses the inputs.
func (st *State) ReadySignal(r Ref) *reactive.Value[bool] {
	s := st.lock()
	defer s.Unlock()
	n := s.observe(r)
	if n.ready == nil {
		n.ready = reactive.NewValue(&s.obs.source, s.obs.shownView(n.ref).ready)
	}
	return n.ready
}

// BlockedSignal returns a signal that becomes true when failed, aborted or cancelled predecessors make the node's join
// impossible. The signal then stays true. The node's [UpstreamPolicy] decides what happens to the node; under [UpstreamSubstitute] it may
// still become ready.
func (st *State) BlockedSignal(r Ref) *reactive.Value[bool] {
	s := st.lock()
	defer s.Unlock()
	n := s.observe(r)
	if n.blocked == nil {
		n.blocked = reactive.NewValue(&s.obs.source, s.obs.shownView(n.ref).blocked)
	}
	return n.blocked
}

// RunStatusSignal returns the status of the run as a signal. The [Host] computes the status. Without a host, the signal shows the
// result of [State.RunStatus] under the rule in [Setup].
func (st *State) RunStatusSignal() *reactive.Value[RunStatus] {
	s := st.lock()
	defer s.Unlock()
	o := s.observers()
	if o.closed {
		o.shown = s.runStatusNow()
	}
	if o.run == nil {
		o.run = reactive.NewValue(&o.source, o.shown)
	}
	return o.run
}

// CountSignal returns the number of nodes in a status, the end node included, as a signal.
func (st *State) CountSignal(status Status) *reactive.Value[int] {
	s := st.lock()
	defer s.Unlock()
	o := s.observers()
	if status >= statusCount {
		return reactive.NewValue(&o.source, 0)
	}
	if o.counters[status] == nil {
		o.census()
		n := 0
		for r := range s.words {
			if o.shownView(Ref(r)).status == status {
				n++
			}
		}
		o.counters[status] = reactive.NewValue(&o.source, n)
	}
	return o.counters[status]
}

// Scope returns the scope of the State's signals. Create effects on these signals in this scope, and related signals and computeds, too.
// [reactive.Scope.Err] returns errors of effects that the State ran.
func (st *State) Scope() *reactive.Scope {
	s := st.lock()
	defer s.Unlock()
	return s.observers().source.Scope()
}

// Dispose ends the observation of the State. All effects and subscriptions of its scope end. All calls of Wait and Changes on its signals end,
// too: see [reactive.Scope.Dispose]. The signals keep their values. Dispose may be called repeatedly, also in an effect. The State itself continues.
func (st *State) Dispose() { st.Scope().Dispose() }

// The method `observers` returns the observers of the State. The first call creates them.
func (s *Locked) observers() *observers {
	if s.obs == nil {
		o := &observers{st: s, nodes: map[Ref]*nodeSignals{}, undo: map[Ref]uint64{}}
		o.source.Init(o.publish)
		o.lastRun = s.runStatusNow()
		o.shown = o.lastRun
		if end := s.net.end; end != NoRef {
			o.endFeeds = map[Ref]bool{}
			for _, i := range s.net.in.row(end) {
				o.endFeeds[s.net.edges[i].From] = true
			}
		}
		s.ownLog().obs, s.noted = o, true
	}
	return s.obs
}

// The method `observe` returns the signals of a node.
func (s *Locked) observe(r Ref) *nodeSignals {
	o := s.observers()
	if s.known(r) != nil {
		return &nodeSignals{ref: NoRef}
	}
	n := o.nodes[r]
	if n == nil {
		n = &nodeSignals{ref: r}
		o.nodes[r] = n
		o.mark(r)
		o.compare(n)
	}
	return n
}

// The method `compare` makes a node dirty if the node has changed since the shown point. It is called when an observation of the node begins.
func (o *observers) compare(n *nodeSignals) {
	if o.pending && n.ref != NoRef && o.view(n) != o.shownView(n.ref) {
		o.markDirty(n)
	}
}

// The method `mark` sets the flag wordObserved of a node. The method `note` looks for this flag to find transitions of observed nodes. The method
// `mark` skips a terminal node, which has no more transitions and whose word must not be written.
func (o *observers) mark(r Ref) {
	if w := &o.st.words[r]; !statusOf(*w).Terminal() {
		*w |= wordObserved
	}
}

// The method `feed` marks the predecessors of an idle node. When the first predecessor starts, the node becomes Waiting. The node's own word does
// not change then, so the method `note` looks for the start of a marked predecessor.
func (o *observers) feed(n *nodeSignals) {
	s := o.st
	if n.ref == NoRef || statusOf(s.words[n.ref]) != Idle {
		return
	}
	n.waiting = s.Status(n.ref) == Waiting
	if n.waiting {
		return
	}
	for _, i := range s.net.in.row(n.ref) {
		s.words[s.net.edges[i].From] |= wordFeeds // the source has not started, and so is not terminal
	}
}

// The method `view` returns the present values of a node.
func (o *observers) view(n *nodeSignals) nodeView {
	w := o.st.words[n.ref]
	v := viewOf(w)
	if v.status == Idle && n.waiting {
		v.status = Waiting
	}
	return v
}

func viewOf(w uint64) nodeView {
	v := nodeView{status: statusOf(w), ready: w&WordReached != 0, blocked: w&WordBlocked != 0}
	switch {
	case w&WordAdmitting != 0:
		v.status = Ready
	case w&WordDormant != 0:
		v.status = Suspended
	}
	return v
}

// shownView returns a node's values at the shown point.
func (o *observers) shownView(r Ref) nodeView {
	if r == NoRef {
		return nodeView{}
	}
	v := viewOf(o.shownWord(r))
	if v.status != Idle {
		return v
	}
	for _, i := range o.st.net.in.row(r) {
		if started(o.shownWord(o.st.net.edges[i].From)) {
			v.status = Waiting
			break
		}
	}
	return v
}

func (o *observers) shownWord(r Ref) uint64 {
	if was, ok := o.undo[r]; ok {
		return was
	}
	return o.st.words[r]
}

// The method `note` records that the word of node r has changed. The parameter `was` is the old word. If there are unpublished changes, o.undo gets
// the word that the node had before its first unpublished transition. The method sets o.pending before it writes to o.undo, because o.undo must be
// empty while o.pending is false.
func (o *observers) note(r Ref, was uint64) {
	if o.closed && o.last == nil {
		return
	}
	s := o.st
	w := s.words[r]
	if o.due != nil && !o.closed {
		o.noteAbort(r, was)
	}
	// A node that was already terminal when it was first observed lacks wordObserved. The word of a terminal node changes only if a store refuses or
	// loses the node's end.
	if was&wordObserved != 0 || statusOf(was).Terminal() {
		if n := o.nodes[r]; n != nil {
			o.markDirty(n)
		}
	}
	if status := s.runStatusNow(); status != o.lastRun {
		o.lastRun = status
		o.pend()
	}
	// A word with the status Idle does not show whether the node is Waiting, so a change to such a word is not counted. Usually such a change has only
	// set WordBlocked.
	if to := viewOf(w).status; o.last != nil && to != Idle {
		o.count(r, to)
	}
	if (was&wordFeeds != 0 || o.last != nil) && started(w) && !started(was) {
		o.start(r)
	}
	if o.pending {
		if _, kept := o.undo[r]; !kept {
			o.undo[r] = was
		}
	}
}

// The method `restored` records a transition of each node whose word the restoration of the State has changed. It is needed if the State was observed
// before the restoration. It also gives the nodes their marks back.
func (o *observers) restored(before []uint64) {
	for i, was := range before {
		w := &o.st.words[i]
		if !statusOf(*w).Terminal() {
			*w |= was & (wordObserved | wordFeeds)
		}
		if *w != was {
			o.note(Ref(i), was)
		}
	}
}

// The method `start` makes the successors of a started node Waiting.
func (o *observers) start(r Ref) {
	s := o.st
	arcs := s.net.Out(r)
	s.visits += int64(len(arcs))
	for _, a := range arcs {
		o.await(a.to)
	}
	if o.endFeeds[r] {
		o.await(s.net.end)
	}
}

func (o *observers) await(r Ref) {
	w := o.st.words[r]
	if statusOf(w) != Idle {
		return
	}
	if o.last != nil && o.last[r] == Idle {
		o.count(r, Waiting)
	}
	if w&wordObserved != 0 {
		if n := o.nodes[r]; n.status != nil && !n.waiting {
			n.waiting = true
			o.markDirty(n)
		}
	}
}

// markDirty records that the signals of a node no longer show the node's current state.
func (o *observers) markDirty(n *nodeSignals) {
	if !n.dirty && !o.closed {
		n.dirty = true
		o.dirty = append(o.dirty, n)
		o.pend()
	}
}

func (o *observers) pend() {
	if !o.pending && !o.closed {
		o.pending = true
		o.source.Announce()
	}
}

// The method `census` makes the State record the status of every node from now on. Only the first call has an effect.
func (o *observers) census() {
	if o.last != nil {
		return
	}
	o.last = make([]Status, len(o.st.words))
	for r := range o.last {
		o.last[r] = o.st.Status(Ref(r))
		o.counts[o.last[r]]++
	}
}

func (o *observers) count(r Ref, to Status) {
	from := o.last[r]
	if from == to {
		return
	}
	o.last[r] = to
	o.counts[from]--
	o.counts[to]++
	if o.counters[from] != nil || o.counters[to] != nil {
		o.pend()
	}
	for _, w := range o.watchers {
		w.Note(r, to)
	}
	for _, w := range o.waiters[r] {
		w.Note(r, to)
	}
}

// Watch makes the State notify w of each status that node r enters. If r is NoRef, the State notifies w of the statuses of all nodes. The result is
// the current status of each node, by Ref. The State keeps this slice up to date, and the caller must not write to it.
func (s *Locked) Watch(r Ref, w Watcher) []Status {
	o := s.observers()
	o.census()
	if r == NoRef {
		o.watchers = append(o.watchers, w)
		return o.last
	}
	if o.waiters == nil {
		o.waiters = map[Ref][]Watcher{}
	}
	o.waiters[r] = append(o.waiters[r], w)
	return o.last
}

// Unwatch removes a watcher.
func (s *Locked) Unwatch(r Ref, w Watcher) {
	o := s.obs
	is := func(x Watcher) bool { return x == w }
	if r == NoRef {
		o.watchers = slices.DeleteFunc(o.watchers, is)
		return
	}
	rest := slices.DeleteFunc(o.waiters[r], is)
	if o.waiters[r] = rest; len(rest) == 0 {
		delete(o.waiters, r)
	}
}

// Tally returns the number of nodes in each status. From the first call on, the State keeps these counts up to date.
func (s *Locked) Tally() [statusCount]int {
	o := s.observers()
	o.census()
	return o.counts
}

// IsObserved reports whether a signal, a watcher, the Scope or the Tally of the State was ever requested.
func (s *Locked) IsObserved() bool { return s.obs != nil }

// ObservedNodes counts the nodes that have signals.
func (s *Locked) ObservedNodes() int {
	if s.obs == nil {
		return 0
	}
	return len(s.obs.nodes)
}

// SignalsDue reports whether there are noted changes that the signals do not show yet. The coordinator calls it before it releases the lock. If the
// result is true, the coordinator calls PublishSignals after it has released the lock.
func (s *Locked) SignalsDue() bool {
	o := s.obs
	if status := s.runStatusNow(); status != o.lastRun {
		o.lastRun = status
		o.pend()
	}
	return o.pending
}

// PublishSignals publishes the noted changes. The caller must not hold the lock. Effects run during the call, and may end the goroutine with
// runtime.Goexit.
func (s *Locked) PublishSignals() { s.obs.source.DeliverAll() }

// ObservedWords returns the words of all nodes, or nil if IsObserved returns false. The coordinator calls it before it restores the State.
func (s *Locked) ObservedWords() []uint64 {
	if s.obs == nil {
		return nil
	}
	return slices.Clone(s.words)
}

// RestoredFrom notes a change of each node whose word has changed since the call of ObservedWords. The argument `before` is the result of that
// call.
func (s *Locked) RestoredFrom(before []uint64) {
	if before != nil {
		s.obs.restored(before)
	}
}

// The method `publish` writes the noted changes to the signals. It commits the values under the State's lock. Signals are created under this lock,
// too, so all signals show the same point.
func (o *observers) publish(p *reactive.Publication) {
	o.st.mu.Lock()
	defer o.st.mu.Unlock()
	if p.Disposed() {
		o.closed, o.pending, o.dirty, o.undo = true, false, nil, nil
	}
	if o.pending {
		o.show(p)
		p.Commit()
	}
}

// The method `show` publishes the current values of the nodes that have changed. The current State then becomes the shown point.
func (o *observers) show(p *reactive.Publication) {
	o.pending = false
	for _, n := range o.dirty {
		n.dirty = false
		v := o.view(n)
		reactive.Publish(p, n.status, v.status)
		reactive.Publish(p, n.ready, v.ready)
		reactive.Publish(p, n.blocked, v.blocked)
	}
	clear(o.dirty)
	o.dirty = o.dirty[:0]
	clear(o.undo)
	o.shown = o.lastRun
	reactive.Publish(p, o.run, o.shown)
	reactive.Publish(p, o.work, o.workCount)
	reactive.Publish(p, o.due, o.dueCount)
	for status, counter := range o.counters {
		reactive.Publish(p, counter, o.counts[status])
	}
}

// runStatusNow returns the run's status. It asks the host or, if there is none, computes the status from the State.
func (s *Locked) runStatusNow() RunStatus {
	if s.host != nil {
		return s.host.RunStatus()
	}
	if !s.Done() {
		return RunRunning
	}
	if s.obs != nil && s.obs.lastRun != RunRunning {
		return s.obs.lastRun // the run has ended, so this status no longer changes
	}
	status, _ := s.RunStatus(s.rule)
	return status
}

// The method `drive` takes the lock for a call that changes the State, unless a Run drives the State. The call ends with unlockAndDeliver.
func (st *State) drive() (*Locked, error) {
	s := st.lock()
	if s.host != nil {
		s.Unlock()
		return nil, ErrDriven
	}
	return s, nil
}

// unlockAndDeliver releases the lock and runs the effects that the call has caused.
func (s *Locked) unlockAndDeliver() {
	o := s.obs
	if o != nil && (o.work != nil || o.due != nil) {
		o.noteWork()
	}
	s.mu.Unlock()
	if o != nil {
		o.source.Deliver()
	}
}
