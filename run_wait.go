package kahn

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// waits lists the nodes that wait for signals, in an outermost run and in the runs nested in it. The run's lock guards the list. At most one event
// run.status.changed names a given wait.
type waits struct {
	total int
	began []place // the nodes that began to wait after the last event run.status.changed; some of them may no longer wait

	answered takenSignals

	kept   []*keptWaits         // the waits inside expanded nodes, in the order in which the method `keep` has added them
	keptAt map[place]*keptWaits // maps a node to its entry in `kept`, while the node's graph is not known
	lent   []*keptWaits         // the entries of `kept` whose field `owned` is false
	names  keptNodes
	found  int   // the number of graphs that have become known
	steps  int64 // the number of visits to kept nodes
}

// waiters returns the waits of the outermost run.
func (r *Run) waiters() *waits {
	r = r.outermost()
	if r.waits == nil {
		r.rare().waits = &waits{}
	}
	return r.waits
}

// beganToWait records that a node of the run has begun to wait.
func (r *Run) beganToWait(ref machine.Ref) {
	r.depends()
	if r.log == nil {
		return
	}
	x := r.waiters()
	x.total++
	x.began = append(x.began, place{r, ref})
	if len(x.began) > 2*x.total+64 { // tellStatus empties x.began, but is not called in a run that is never suspended
		x.began = stillWaiting(x.began)
	}
}

func (r *Run) endedWait() {
	if r.log != nil {
		r.waiters().total--
	}
}

// keptWaits are the waiting nodes inside an expanded node. The node was expanded before the run was continued. Its keptWaits are used until its graph
// is known again.
type keptWaits struct {
	place
	told  bool // whether an event has named the waiting nodes
	known bool // whether the graph is known
	owned bool // whether waits.names lists the nodes inside; false while a snapshot may share these nodes
}

// state returns the node's state in the snapshot, or nil if the node no longer waits for its graph.
func (k *keptWaits) state() *nodeState {
	if k.known || k.run.st.Word(k.ref).Status().Terminal() {
		return nil
	}
	return k.run.extras[k.ref].kept
}

func (k *keptWaits) paths() []string {
	n := k.state()
	if n == nil {
		return nil
	}
	return n.Inside.waiting(nil, n.prefixInside(k.run.prefix), false)
}

// keep adds the waits inside an expanded node whose graph is not known.
func (x *waits) keep(at place) {
	k := &keptWaits{place: at}
	x.kept = append(x.kept, k)
	if x.keptAt == nil {
		x.keptAt = map[place]*keptWaits{}
	}
	x.keptAt[at] = k
	x.lent = append(x.lent, k)
}

// drop removes the waits inside a node because the node's graph is known again. It reports whether an event has named these waits.
func (x *waits) drop(at place) (told bool) {
	k := x.keptAt[at]
	if k == nil {
		return false
	}
	delete(x.keptAt, at)
	k.known = true
	x.found++
	if len(x.kept) > 2*len(x.keptAt)+64 {
		x.kept = slices.DeleteFunc(x.kept, func(k *keptWaits) bool { x.steps++; return k.known })
	}
	return k.told
}

// lend records that a snapshot shares the states of the nodes inside an expanded node. After that, the run must not change these states.
func (x *waits) lend(at place) {
	if k := x.keptAt[at]; k != nil && k.owned {
		k.owned = false
		x.lent = append(x.lent, k)
	}
}

// keptNode returns the node with this name inside an expanded node whose graph is not known. It returns nil if there is none.
func (x *waits) keptNode(name string) *keptNode {
	for _, k := range x.lent {
		n := k.state()
		if n == nil {
			continue
		}
		if x.names == nil {
			x.names = keptNodes{}
		}
		n = &cloneNodes([]nodeState{*n})[0]
		k.run.extras[k.ref].kept, k.owned = n, true
		x.steps += int64(len(n.Inside.Nodes))
		x.names.add(n, k.run.prefix, k)
	}
	x.lent = nil
	if n := x.names[name]; n != nil && n.of.state() != nil {
		return n
	}
	return nil
}

// stillWaiting returns the places whose nodes are still waiting, without duplicates, in the order of declaration.
func stillWaiting(places []place) []place {
	places = slices.DeleteFunc(places, func(at place) bool { return at.run.st.Word(at.ref).Status() != Suspended })
	slices.SortFunc(places, place.compare)
	return slices.Compact(places)
}

// compare orders places by declaration, as if each nested graph were declared directly after its composite.
func (at place) compare(other place) int {
	a, b := at.run.placeInTree(), other.run.placeInTree()
	both := min(len(a), len(b))
	if c := slices.Compare(a[:both], b[:both]); c != 0 {
		return c
	}
	next := func(order []int32, at place) int32 {
		if len(order) > both {
			return order[both]
		}
		return at.run.plan.decl[at.ref]
	}
	return cmp.Or(cmp.Compare(next(a, at), next(b, other)), cmp.Compare(len(a), len(b)))
}

// tellStatus logs a change of the run's status, with the new waits. The run must be an outermost run.
func (r *Run) tellStatus(from, to RunStatus, now int64) {
	if r.log == nil {
		return
	}
	x := r.waiters()
	changed := event.StatusChange{From: from, To: to, TotalWaiting: x.total}
	for _, k := range x.kept {
		paths := k.paths()
		x.steps += int64(1 + len(paths))
		if changed.TotalWaiting += len(paths); !k.told {
			k.told = true
			changed.Waiting = append(changed.Waiting, paths...)
		}
	}
	for _, at := range stillWaiting(x.began) {
		changed.Waiting = append(changed.Waiting, at.run.path(at.ref))
	}
	clear(x.began)
	x.began = x.began[:0]
	r.event(entry{kind: evRunStatus, at: now, arg: changed})
}

// ErrSignalConflict is matched by the error of a signal whose [Decision].ID was already used with another value.
var ErrSignalConflict = errors.New("the id of the signal was used with another value")

// Signal answers a node that waits: a gate completes with the value, and a step that returned [Suspend] is called again. gate is the node's id, its
// path if it is in a composite, or the token that the step passed to Suspend. A gate may be answered before the run reaches it. If
// the value is a [Decision], it also says who has answered; if the Decision has an ID, the signal may be repeated. For a durable run, Signal returns
// when the answer is stored. If ctx ends before that, Signal returns an error that wraps the cause, and the store may still get the answer.
//
// The error matches [ErrAnswered] for a second answer, [ErrUnknownGate] if gate names neither a gate nor a waiting step, and [ErrTransition] if the
// node was stopped or skipped. It matches [ErrNotEncodable] if the run's [Encoding] cannot encode the value, [ErrSignalConflict] if the ID was used
// with another value, [ErrBadValue] if the ID is not UTF-8, and [ErrFinished] if the run has ended. The error is a [*ChoiceError] if a [Gate]
// refuses the value. The error matches [ErrStore] if a durable run is left before the store has confirmed the answer. Repeat the signal with the
// same ID to learn whether the answer is stored. If the run is at rest, Signal posts the answer in the store; the error matches [ErrAtRest] if
// the run has no store or the store is not a [store.Inbox]. See docs/people.md.
func (r *Run) Signal(ctx context.Context, gate string, value any) error {
	if ctx == nil {
		return ErrNoContext
	}
	s := signal{gate: gate, Decision: decisionOf(value)}
	if err := s.identify(); err != nil {
		return err
	}
	written, err := r.deliverSignal(&s)
	if err == ErrAtRest {
		return r.postSignal(ctx, &s)
	}
	if err != nil || written == nil {
		return err
	}
	select {
	case <-written.done:
		err = written.err
	case <-ctx.Done():
		err = bounded(context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("signal for %s: %w", quoteID(gate), err)
	}
	return nil
}

// CheckSignal changes nothing. It returns the error with which Signal would refuse the answer now, or nil. A host that accepts a request before it
// performs it can call CheckSignal. Signal may still refuse the answer later, if another signal answers the node first or the run ends.
func (r *Run) CheckSignal(gate string, value any) error {
	s := signal{gate: gate, Decision: decisionOf(value), unsent: true}
	if err := s.identify(); err != nil {
		return err
	}
	_, err := r.deliverSignal(&s)
	if err == ErrAtRest && r.mailbox() != nil {
		return r.judgeAtRest(&s)
	}
	return err
}

// deliverSignal delivers a signal. It returns the transaction that writes the answer. Without a store, it returns nil.
func (r *Run) deliverSignal(s *signal) (*writing, error) {
	written, err := r.trySignal(s)
	for err == errNotKept {
		written, err = r.trySignal(s)
	}
	return written, err
}

// isPutAway reports whether the run has ended at rest. If so, another Run can continue it from its store or its snapshot. The caller holds the
// run's lock.
func (r *Run) isPutAway() bool { return r.concluded() && r.verdict.status == RunSuspended }

// judgeAtRest is for a run at rest. It returns why Signal refuses the signal, or nil if Signal may post it in the store. It calls user code.
func (r *Run) judgeAtRest(s *signal) error {
	r.st.Lock()
	at, lost := r.locate(s.gate)
	if lost != nil || !at.run.plan.net.Is(at.ref, machine.FlagGate) || at.run.isEndedInside() {
		defer r.st.Unlock()
		waits := r.waiting()
		i := slices.IndexFunc(waits, func(w Wait) bool { return w.Node == s.gate || w.Token == s.gate })
		switch {
		case i >= 0 && waits[i].Run != "":
			return awaitsRun(s.gate, waits[i].Run)
		case i >= 0 || len(r.waiters().keptAt) > 0: // the signal may also be for a node in a graph that is not known
			return nil
		}
		return r.noGate(s.gate)
	}
	err := at.run.refusal(at.ref)
	r.st.Unlock()
	if err != nil {
		return err
	}
	return at.run.plan.refuse(at.ref, s.gate, s.Value)
}

// signal is a signal that is being delivered to its node.
type signal struct {
	Decision
	gate   string // the node's path, or its token
	sum    string // the digest of the value; "" without an ID
	number uint64 // the number of the signal's request in the inbox; 0 if the signal did not come from the inbox
	unsent bool   // whether the signal is only checked, and changes nothing
	unkept bool   // whether the value cannot be encoded now
}

// keepSignal encodes the value of a signal with Run.keep. If encoding fails now but may succeed later, keepSignal sets s.unkept.
func (r *Run) keepSignal(s *signal) (json.RawMessage, error) {
	text, err := r.keep(s.Value)
	if err == nil {
		return text, nil
	}
	s.unkept = !errors.Is(err, ErrRejected)
	return nil, fmt.Errorf("signal for %s: %w", quoteID(s.gate), err)
}

// The method `answered` answers the signal's request if the signal came from the inbox. The caller holds the run's lock, and applies the signal
// before it releases the lock.
func (s *signal) answered(root *Run) {
	if s.number > 0 {
		root.durable.answerRequest(s.number, nil)
	}
}

// identify computes the digest of the value, which is used to compare signals with the same ID. It calls user code.
func (s *signal) identify() error {
	if s.ID == "" {
		return nil
	}
	if !utf8.ValidString(s.ID) {
		return fmt.Errorf("%w: the ID of a signal, %s, is not UTF-8", ErrBadValue, quoteID(s.ID))
	}
	data, err := canonical(map[string]any{"": s.Value})
	if err != nil {
		return fmt.Errorf("signal for %s: %w", quoteID(s.gate), err)
	}
	sum := sha256.Sum256(data)
	s.sum = hex.EncodeToString(sum[:16])
	return nil
}

// answeredState is a signal that has an ID and has answered a node.
type answeredState struct {
	ID   string   `json:"id"`
	Gate string   `json:"gate"` // the node's name as the signal gave it
	Sum  string   `json:"sum"`  // the digest of the value
	in   *writing // the transaction that writes the signal; nil if there is no store, or if the signal was stored before the run was continued
}

// takenSignals are the signals with IDs that the run has accepted, in the order of acceptance. Snapshots share the list, so the run only appends
// to it.
type takenSignals struct {
	list   []answeredState
	at     map[signalName]int // indexes in the list
	before int                // the first `before` entries were accepted before the run was continued
	stored int                // the first `stored` entries have records in the store or are in a transaction
}

// signalName identifies a signal with an ID.
type signalName struct{ id, gate string }

// takenBefore returns the accepted signals of a snapshot. Other runs may share the list. The first `stored` signals of the list have records in the
// store.
func takenBefore(list []answeredState, stored int) takenSignals {
	x := takenSignals{list: slices.Clip(list), before: len(list), stored: stored}
	for i := range list {
		x.index(i)
	}
	return x
}

func (x *takenSignals) index(i int) {
	if x.at == nil {
		x.at = map[signalName]int{}
	}
	name := signalName{x.list[i].ID, x.list[i].Gate}
	if _, known := x.at[name]; !known {
		x.at[name] = i
	}
}

// take appends a signal to the list if the signal has an ID.
func (x *takenSignals) take(s *signal, in *writing) {
	if s.ID != "" {
		x.list = append(x.list, answeredState{s.ID, s.gate, s.sum, in})
		x.index(len(x.list) - 1)
	}
}

// The method `repeats` reports whether the signal repeats an earlier one: whether both have the same gate and ID. It returns the transaction that
// writes the earlier signal. If the values differ, it returns an error instead. But if the transaction has failed, `repeats` returns it even if the
// values differ, and the caller learns from it that the earlier signal may not be stored.
func (x *takenSignals) repeats(s *signal) (in *writing, repeated bool, err error) {
	i, known := x.at[signalName{s.ID, s.gate}]
	if s.ID == "" || !known {
		return nil, false, nil
	}
	a := &x.list[i]
	if a.Sum != s.sum && !a.in.failed() {
		return nil, false, fmt.Errorf("%w: signal %s for %s", ErrSignalConflict, quoteID(s.ID), quoteID(s.gate))
	}
	return a.in, true, nil
}

// The method `unstored` returns the signals that the next transaction must write, and the number of the first of them. Later calls do not return
// these signals again.
func (x *takenSignals) unstored() (list []answeredState, first int) {
	list, first = x.list[x.stored:], x.stored+1
	x.stored = len(x.list)
	return list, first
}

// signalKey returns the key of a signal's record in the store. The signals with IDs are numbered from 1, in the order in which the run has accepted
// them. The key is not the id of any node.
func (p *Plan) signalKey(number int) string {
	key := fmt.Sprint("#signal", number)
	for _, taken := p.Ref(key); taken; _, taken = p.Ref(key) {
		key = "#" + key
	}
	return key
}

// signalNumber returns the number of the signal with this key, or 0 if no signal has this key.
func signalNumber(key string) int {
	number, _ := strings.CutPrefix(strings.TrimLeft(key, "#"), "signal")
	n, _ := strconv.Atoi(number)
	return n
}

// ErrLeft is the cause of an attempt's context if the attempt is interrupted because its run is being left, see [Runner.Shutdown]. If a durable run
// is left because its caller's context has ended, the run's error matches ErrLeft, see [Durable].
var ErrLeft = errors.New("the run is being left")

// interrupt leaves the run, see Leave, and interrupts its running attempts. If the step of an interrupted attempt returns an error, the node is ready
// again, and the attempt does not count towards MaxAttempts. A stopped run usually continues to its end, see the method `leave`. If its stop lets
// attempts finish, interrupt stops these attempts, too.
func (r *Run) interrupt() {
	r.control(func(now int64) {
		if r.stage == stagePending {
			r.openUnbegun(now)
		}
		r.leave()
		r.interruptAttempts()
		r.interruptUndoing()
	})
}

// leaveForContext leaves a run because its caller's context has ended, and interrupts the running attempts. If the run has never begun and has no
// early signals, it stays pending in its store.
func (r *Run) leaveForContext(cause *stopCause, now int64) {
	if r.leftFor == nil {
		r.rare().leftFor = cause
	}
	if r.stage == stagePending && r.from == nil && len(r.signals) == 0 {
		r.leaving = true
		r.endAtRest(now)
		return
	}
	if r.stage == stagePending {
		r.openUnbegun(now)
	}
	r.leave()
	r.interruptAttempts()
	r.interruptUndoing()
}

func (r *Run) interruptAttempts() {
	if r.st.StoppedFor() != CauseNone {
		if r.stopManner == machine.StopDraining {
			r.stopManner = machine.StopAsking
			r.wake(r.now()) // after the stop, waiting nodes no longer hold other nodes back: see SuspendMode
			r.outdate()
			r.st.Stop(r.st.StoppedFor(), r.stopOrigin, machine.StopAsking)
		}
		return
	}
	for ref, w := range r.st.Words() {
		if w.Status() != Running || w.Is(machine.WordStopping) {
			continue
		}
		step := r.current(ref)
		switch x := r.extras[ref]; {
		case w.Is(machine.WordDraining):
			r.st.AskToStop(ref, w.Kind(), r.st.StopOrigin(ref))
		case x != nil && x.atWork() != nil:
			x.comp.child.interruptAttempts()
			r.tree.touch(x.comp.child)
		case step == nil || x != nil && x.comp != nil && step.flags&stepFallback == 0:
			// A worker is about to conclude the composite.
		case x == nil || x.timedOut == timeoutNone && !x.left:
			x = r.extra(ref)
			x.left = true
			r.disarmAttempt(ref)
			r.armGrace(step, x)
			r.orderStop(step, &stopCause{ErrLeft, context.Canceled})
		}
	}
}

// cutShort reports whether an attempt has no result because it was interrupted when the run was left. An attempt has a result if it succeeds,
// suspends, expands or times out, or if its node was stopped meanwhile. If a draining stop lets the attempt finish, cutShort replaces this stop by a
// plain stop of the node.
func (r *Run) cutShort(step *Step, x *extra, c *conclusion) bool {
	if x == nil || !x.left || x.timedOut != timeoutNone || r.st.Word(step.ref).Is(machine.WordStopping) || c.suspend != nil || c.expand != nil {
		return false
	}
	if r.st.Word(step.ref).Is(machine.WordDraining) {
		r.st.StopDrained(step.ref)
		return false
	}
	const returned = machine.CauseSet(1<<CauseStepError | 1<<CauseRateLimit | 1<<CauseTimeout)
	if r.st.Word(step.ref).Is(machine.WordAdmitting) {
		return true // the interrupt may have reached the check of the inputs, so the result of the check does not matter
	}
	mocked := c.Cause == CauseConditionError && r.cfg.test != nil // only a mocked condition can be interrupted, since only a mock has a context
	// If a fallback fails, c.Cause may be any cause, since a failed fallback keeps the cause of the original failure.
	return c.Status == Failed && (returned.Has(c.Cause) || mocked || step.flags&stepFallback != 0) || c.Status == Cancelled
}

// giveBack makes the node of an interrupted attempt ready again. Usually the node's next attempt begins when the run continues.
func (r *Run) giveBack(step *Step, x *extra, now int64) {
	ref := step.ref
	quiet := r.st.Word(ref).Is(machine.WordAdmitting) || step.flags&stepAgain != 0
	x.left = false
	r.landFlight(ref, false)
	r.fold(ref)
	if quiet { // the step was not called, or the attempt began before the run was continued: the next attempt gets the same number
		x.reentries++
		r.reentered = true
	} else {
		x.Cut++
	}
	r.disarmAttempt(ref)
	r.disarm(&x.grace)
	r.records[ref].active, r.records[ref].end = activeNone, now
	if err := r.st.Requeue(r.st.Token(ref), Running); err != nil {
		r.st.NoteBug(err)
	}
	if quiet {
		r.st.Hush(ref) // observers are not notified of a change of the node's status
	}
}

// Leave ends the run in its current state: no more steps start. When the running attempts have returned, Wait returns a Result in status
// [RunSuspended] with a [Snapshot] from which another run can continue. The run does not wait for backoffs to end. If a guard, a merge or the test of
// a condition does not return within [CancelGrace], the run abandons this function, and Result.Abandoned names the node. When the run continues, it
// calls the function again. A run that only waits for signals is left at once. A run ends as usual if it has no node left to start, or if it is
// stopped before its last record is written.
func (r *Run) Leave() {
	r.control(func(int64) {
		if r.stage == stagePending {
			r.openUnbegun(r.now())
		}
		r.leave()
	})
}

// The method `leave` keeps the run, and the runs nested in it, from starting more steps. A stopped run and its nested runs are not left: they
// continue to their end, with their cleanup. There is one exception: a stopped run that undoes nodes is left if it has a store or a Coordinator,
// since compensations may take long. If a nested run is being left, the run around it is also being left.
func (r *Run) leave() {
	if r.leaving || r.st.StoppedFor() != CauseNone && !((r.durable != nil || r.manual != nil) && r.isUndoing()) {
		return
	}
	r.leaving = true
	r.st.Leave()
	r.leaveChecks()
	r.leaveTests()
	r.leaveReturns()
	if !r.nests {
		return
	}
	for _, c := range r.children() {
		c.leave()
		c.tree.touch(c)
	}
}

// leaveReturns bounds the time of user code that a composite calls after its nested run has ended, for example the test of a loop. If the run
// abandons this code, it calls the code again when it continues.
func (r *Run) leaveReturns() {
	if !r.nests {
		return
	}
	for ref, x := range r.extras {
		if x.comp != nil && x.comp.working {
			r.armReturnGrace(ref, x)
		}
	}
}

func (r *Run) armReturnGrace(ref machine.Ref, x *extra) {
	step := r.current(ref)
	if x.grace != nil || step == nil || step.flags&stepFallback != 0 {
		return
	}
	x.own().grace = r.after(r.cfg.cancelGrace, func(int64) {
		if r.leaving && r.current(ref) == step && x.comp.working && !r.records[ref].returned {
			r.abandonReturn(step, x)
		}
	})
}

// abandonReturn abandons the worker that concludes a composite. When the run continues, another worker concludes the composite.
func (r *Run) abandonReturn(step *Step, x *extra) {
	r.disarmAttempt(step.ref)
	// The conclusion of the abandoned worker belongs to the old Step. The new Step makes the run ignore it.
	r.activate(&Step{run: r, ref: step.ref, attempt: step.attempt, flags: step.flags})
	x.grace = nil
	x.comp.working, x.comp.put = false, true
	r.leftBehind(step.ref)
	r.dismiss()
	if q := r.single; q != nil && q.alone > 0 {
		q.alone--
	}
}

// resumeReturns reverses leaveReturns, because the run is not left after all.
func (r *Run) resumeReturns() {
	if !r.nests {
		return
	}
	for ref, x := range r.extras {
		switch {
		case x.comp == nil:
		case x.comp.put:
			x.comp.put = false
			r.st.EvaluateInline(ref)
		case x.comp.working && x.timedOut == timeoutNone && !r.st.Word(ref).Is(machine.WordStopping):
			r.disarm(&x.grace) // a later stop sets its own grace
		}
	}
}

// stay reverses the method `leave` for the run and the runs nested in it, because a stop takes precedence over leaving.
func (r *Run) stay(now int64) {
	if !r.leaving {
		return
	}
	r.leaving = false
	r.resumeChecks()
	r.resumeTests()
	r.resumeReturns()
	r.st.Stay()
	if !r.nests {
		return
	}
	for _, c := range r.children() {
		c.stay(now)
		if c.stage == stageResting && c.st.MayGoOn() {
			c.wake(now)
		}
		c.tree.touch(c)
	}
}

// leaveChecks bounds the time of running checks. If the run abandons a check, no work is lost, since the check is repeated when the run continues.
// Running steps may finish, because otherwise their work would be lost.
func (r *Run) leaveChecks() {
	for ref := range r.checks {
		r.armCheck(ref, false)
	}
}

// resumeChecks reverses leaveChecks, because the run is not left after all. Checks that were abandoned are performed again.
func (r *Run) resumeChecks() {
	for ref, e := range r.checks {
		if e.grace != nil && r.st.Word(ref).Is(machine.WordChecking) {
			if e.grace.Stop() {
				r.timers--
			}
			e.grace = nil
		}
	}
	for _, ref := range r.remarked().abandoned {
		if r.st.Word(ref).Is(machine.WordChecking) && r.checks[ref] == nil {
			r.st.EvaluateInline(ref)
		}
	}
}

// leaveTests bounds the time of running tests of conditions.
func (r *Run) leaveTests() {
	for ref, w := range r.st.Words() {
		if w.Status() == Running {
			r.boundTest(ref)
		}
	}
}

// boundTest bounds the time of a condition's running test. If the run abandons the test, it calls the test again when it continues. boundTest does
// nothing for a mocked condition, since the mock is interrupted like a step.
func (r *Run) boundTest(ref machine.Ref) {
	if !r.isTested(ref) || r.st.Word(ref).Is(machine.WordStopping|machine.WordDraining) {
		return
	}
	if x := r.extra(ref); !x.left && x.timedOut == timeoutNone {
		x.left = true
		r.armGrace(r.current(ref), x)
	}
}

// isTested reports whether a node is a condition without a mock, and its test is running.
func (r *Run) isTested(ref machine.Ref) bool {
	net := r.plan.net
	return net.Is(ref, machine.FlagInline) && !net.Is(ref, machine.FlagComposite|machine.FlagMocked) && r.current(ref) != nil
}

// resumeTests reverses leaveTests, because the run is not left after all. The caller stops the run, and the stop sets its own grace for each test.
// Tests that were abandoned are called again, see [machine.Locked.Stay].
func (r *Run) resumeTests() {
	for ref, x := range r.extras {
		if x.left && x.timedOut == timeoutNone && r.isTested(ref) {
			x.left = false
			r.disarm(&x.grace)
		}
	}
}

// suspend makes a node wait because its step returned Suspend or AwaitRun. If the step returned SuspendUntil, the node backs off instead: see sleep.
func (r *Run) suspend(step *Step, e *suspendError, now int64) {
	ref := step.ref
	x := r.extra(ref)
	id := r.plan.names[ref]
	if e.sleeps {
		r.sleep(step, x, e, now)
		return
	}
	x.wait = &Wait{Node: id, Token: e.token, Info: e.info, Since: r.timeAt(now), Deadline: e.until}
	if e.token == "" {
		x.wait.Token = id
	}
	if e.run == "" {
		x.saved, x.decision = e.state, nil
	} else {
		kept := x.texts.known()
		kept.info = nil
		x.texts = &kept
		x.wait.Run, x.wait.Token, x.wait.Info = e.run, r.path(ref), "waits for the end of run "+quoteID(e.run)
	}
	if r.tokens == nil {
		r.rare().tokens = map[string]machine.Ref{}
	}
	r.tokens[x.wait.Token] = ref
	r.tree.addToken(x.wait.Token, r)
	r.records[ref].active, r.records[ref].end = activeNone, now
	r.disarmAttempt(ref)
	r.disarm(&x.grace)
	if !e.until.IsZero() {
		r.armGate(ref, x, e.until.Sub(r.timeAt(now)))
	}
	if err := r.st.Suspend(r.st.Token(ref)); err != nil {
		r.st.NoteBug(err)
	}
	if r.st.StoppedFor() != CauseNone {
		r.boundWait(ref)
	}
}

// awaitAgain is called for a restored node that awaits the end of another run. It makes the next transaction ask the store again about the awaited
// run, for two reasons. The store may have no record of the wait, since the waiting run may be a fork or come from another store. Or the store may
// have answered while the node's graph was not known. If no store can answer, the step is called again, and its call of AwaitRun returns the reason.
func (r *Run) awaitAgain(ref machine.Ref, x *extra) {
	if r.mayAwait() {
		r.durable.pending(place{r, ref}).change()
		return
	}
	x.wait.Deadline = x.wait.Since
}

// sleep makes a node back off because its step returned SuspendUntil. The attempt continues, so the next call of the step is a re-entry.
func (r *Run) sleep(step *Step, x *extra, e *suspendError, now int64) {
	ref := step.ref
	x.saved, x.decision, x.Sleeps = e.state, nil, true
	x.reentries++
	r.reentered = true
	r.records[ref].active, r.records[ref].end = activeNone, now
	r.disarmAttempt(ref)
	r.disarm(&x.grace)
	if err := r.st.Retry(r.st.Token(ref)); err != nil {
		r.st.NoteBug(err)
	}
	x.due = max(now, int64(e.until.Sub(r.start)))
	r.event(entry{kind: evNodeSuspended, ref: ref, attempt: step.attempt, at: now, arg: event.Suspension{Deadline: r.timeAt(x.due)}})
	r.awaitBackoff(ref, x, now)
}

// duplicateToken returns an error if another node in the graph has the token as its id, or another waiting node has the same token.
func (r *Run) duplicateToken(ref machine.Ref, token string) error {
	if token == "" {
		token = r.plan.names[ref]
	}
	if other, ok := r.tokens[token]; ok && other != ref {
		return fmt.Errorf("%w: node %s waits for %s already", ErrDuplicateGate, quoteID(r.plan.names[other]), quoteID(token))
	}
	if other, ok := r.plan.Ref(token); ok && other != ref {
		return fmt.Errorf("%w: node %s cannot wait under the name %s, which is the id of another node", ErrDuplicateGate, quoteID(r.plan.names[ref]), quoteID(token))
	}
	return nil
}

// endWait ends the wait of a node.
func (r *Run) endWait(x *extra) {
	r.disarm(&x.gate)
	if x.wait != nil {
		if _, ok := r.tokens[x.wait.Token]; ok {
			delete(r.tokens, x.wait.Token)
			r.tree.dropToken(x.wait.Token, r)
		}
		x.wait, x.answered = nil, x.wait
	}
}

// rest suspends the run if no worker runs and nothing remains to be started. The run then ends as suspended in two cases: it was started by
// Execute or Serve (r.unheld), or it is being left. rest is called when a node is suspended, or when the run is being left.
func (r *Run) rest(now int64) {
	s := &r.st
	switch {
	case r.concluded() || r.workers > 0 || s.Done() || s.HasNext():
		return
	case r.leaving && r.outer == nil: // a run that is being left is suspended even if nodes back off or are held in composites
		if t := r.tree; t != nil && (t.workers > 0 || len(t.touched) > 0 || t.limit == 1 && len(t.waiting)+len(t.gated) > 0) {
			// The root is not suspended yet: workers still run, or touched runs are still to be handled, or tree.pass must still start tasks or
			// reach gates.
			return
		}
	case !s.OnlySleeps():
		// If the run is a nested run that is being left, it may have nodes that could begin. Then it does not wait for a signal, so restAll suspends
		// it later.
		return
	}
	if r.outer == nil && (s.Rated() || s.Pooled()) && s.WaitsForSlot() { // a node waits for a token, or for a slot that several runs share: it continues without a signal
		return
	}
	if r.outer != nil {
		if r.unwritten == 0 && !s.WaitsForSlot() {
			r.restInside()
		}
		return
	}
	if r.leaving {
		r.restAll(now)
	}
	if r.stage != stageResting {
		r.stage = stageResting
		if b := r.bell; b != nil && b.alarms.Len() == 0 {
			b.silence()
		}
		r.tellStatus(RunRunning, RunSuspended, now)
		if r.durable != nil {
			r.durable.changeStatus()
			r.commitPending()
		}
		if !r.leaving && !r.unheld && r.cfg.runner != nil {
			r.cfg.runner.changed(r, rests)
		}
	}
	if !r.leaving && !r.unheld {
		return
	}
	if d := r.durable; d != nil && (d.writing || d.hasWork() || d.inbox.isBusy()) {
		return // until the run's last record is written, a stop may still arrive
	}
	r.endAtRest(now)
}

// endAtRest ends the run as suspended. Another run can continue it from its store or its snapshot.
func (r *Run) endAtRest(now int64) {
	r.stage, r.ended = stageConcluded, now
	r.verdict = verdict{status: RunSuspended}
	r.disarm(&r.deadline)
	r.disarm(&r.tokenDue)
	r.leavePool()
	r.disarmAll(true)
	r.putAside()
	if r.log != nil {
		r.log.close()
	}
	if r.durable != nil {
		r.settleLease()
	}
}

// wake records that a suspended run continues.
func (r *Run) wake(now int64) {
	if r.stage == stageResting && r.outer != nil {
		r.stage = stageRunning
		r.wakeOuter(now)
		return
	}
	if r.stage == stageResting {
		r.stage = stageRunning
		if r.cfg.runner != nil {
			r.cfg.runner.changed(r, wakes)
		}
		r.tellStatus(RunSuspended, RunRunning, now)
		if r.durable != nil {
			r.durable.changeStatus()
		}
	}
}
