package kahn

import (
	"fmt"
	"time"
)

// Gate bounds the wait of a gate: a node of [KindGate] without a Do, which is performed by nobody but completed by a signal
// from outside. What the signal brings is the gate's output, and routes like that of a condition; beside the spellings of
// true and false, approve, approved, reject and rejected match each other.
//
// A gate takes its choices only: Choices if it declares some, else the labels of its out-edges; and where one of these is
// approved, approve, true, yes, rejected, reject, false or no, in any case, all of these words. Any other answer is refused with
// a [*ChoiceError], and the gate waits on. A choice without an edge takes no branch. A gate with an edge labelled "default", and
// one with neither Choices nor labelled edges, takes anything.
//
// While a node waits it holds neither a slot nor a goroutine. [Execute] goes on with everything that does not depend on it
// and returns, when nothing else is left to do, a Result in status [RunSuspended] with a [Snapshot] to resume from. A [Run]
// that was begun with [Start] lives on until [Run.Signal] answers, or until [Run.Leave].
type Gate struct {
	// Timeout is how long the gate waits. It goes on while the run is not in memory: what counts is the wall clock. Zero
	// means for ever.
	Timeout time.Duration
	// OnTimeout tells what happens then. Default: [GateFail].
	OnTimeout GateTimeout
	// Choices declares the answers that the gate takes. Default: the labels of its out-edges.
	Choices []string `json:",omitempty"`
}

// GateTimeout tells what happens to a gate whose time is up.
type GateTimeout uint8

// What happens to a gate whose time is up.
const (
	GateFail  GateTimeout = iota // it fails, with the cause gate_timeout
	GateLabel                    // it completes with the output "timeout", which is also its label: if it has labelled edges, one is "timeout" or "default"

	gateTimeoutCount
)

var gateTimeoutNames = [gateTimeoutCount]string{"fail", "label"}

// timeoutLabel is the output of a gate under GateLabel.
const timeoutLabel = "timeout"

// String returns "fail" or "label".
func (t GateTimeout) String() string { return enumName(gateTimeoutNames[:], int(t), "GateTimeout") }

// MarshalText encodes t as its name. A value outside the enum is an error that matches [ErrBadValue].
func (t GateTimeout) MarshalText() ([]byte, error) {
	return enumText(gateTimeoutNames[:], int(t), "gate timeout")
}

// UnmarshalText decodes a name. Anything else is an error that matches [ErrBadValue].
func (t *GateTimeout) UnmarshalText(text []byte) error {
	return enumParse(t, gateTimeoutNames[:], text, "gate timeout")
}

// SuspendMode tells what becomes of the rest of the run while a node is suspended. It is an option. Default: SuspendDrain,
// in [Waves] SuspendStop.
type SuspendMode uint8

// The suspend modes.
const (
	suspendDefault SuspendMode = iota
	SuspendDrain               // everything that does not depend on the suspended node goes on
	SuspendStop                // what has been started is finished, retries included; nothing else is started

	suspendModeCount
)

var suspendModeNames = [suspendModeCount]string{"", "drain", "stop"}

// String returns "drain" or "stop", or "" for the zero value.
func (m SuspendMode) String() string { return enumName(suspendModeNames[:], int(m), "SuspendMode") }

// MarshalText encodes m as its name. A value outside the enum is an error that matches [ErrBadValue].
func (m SuspendMode) MarshalText() ([]byte, error) {
	return enumText(suspendModeNames[:], int(m), "suspend mode")
}

// UnmarshalText decodes a name. Anything else is an error that matches [ErrBadValue].
func (m *SuspendMode) UnmarshalText(text []byte) error {
	return enumParse(m, suspendModeNames[:], text, "suspend mode")
}

func (m SuspendMode) apply(c *config) error {
	if m == suspendDefault || m >= suspendModeCount {
		return fmt.Errorf("%w: %v", ErrBadOption, m)
	}
	c.onSuspend = m
	return nil
}

// Suspend, returned by a step, makes its node wait for a signal: the node is suspended, and when the signal comes the step
// is entered again from its start. It then finds the signal's value with [Step.Resumed] and its own state with
// [Step.SavedState]; the number of the attempt is the same, its Timeout begins anew.
//
// token is the name under which the signal will come, empty for the node's id; it must be neither that of another node nor
// one that another node waits under, else the step fails with an error that matches [ErrDuplicateGate]. info is for whoever
// is to answer. Both info and state go into a snapshot.
//
// The end node, and a node that was asked to stop, cannot wait: the former fails, the latter stops.
func Suspend(token string, info, state any) error { return &suspendError{token, info, state} }

type suspendError struct {
	token       string
	info, state any
}

func (e *suspendError) Error() string { return "suspended, waiting for " + quoteID(e.token) }

// Wait is the wait of a node for a signal.
type Wait struct {
	Node string
	// Token is the name under which Run.Signal reaches the node, beside the node's id.
	Token string
	// Info is what the step that suspended itself had to say.
	Info any
	// Since is when the wait began.
	Since time.Time
	// Deadline is when the wait ends, zero if never.
	Deadline time.Time
}

// Decision is a signal that tells who has decided, and why. The Value is what any other signal brings: it routes, and it is what the
// gate's dependents, or the step that goes on, receive. All of it is kept in [NodeResult] and told by the event node.signalled.
type Decision struct {
	Value any
	// Actor names who has decided.
	Actor string
	// Comment is what they had to say.
	Comment string
}

// decisionOf is a signal as a Decision.
func decisionOf(signal any) Decision {
	switch d := signal.(type) {
	case Decision:
		return d
	case *Decision:
		if d != nil {
			return *d
		}
		return Decision{}
	}
	return Decision{Value: signal}
}

// isGate reports whether the node is completed by a signal.
func isGate(n *Node) bool {
	return n.Kind == KindGate && n.Do == nil && n.Test == nil && n.TestExpr == "" && !n.composite()
}

// answer is what a signal means for a node, worked out without the lock: labels may be user code.
type answer struct {
	Outcome            // of a gate
	decision *Decision // what came; nil if nobody has answered
	value    any       // of a completed gate
	said     string    // see conclusion.answer
	err      error
}

// answer judges a signal. What is no choice of a gate is refused.
func (r *Run) answer(ref Ref, d Decision) (a answer, err error) {
	if r.plan.facts[ref].is(factGate) {
		if err := r.plan.refuse(ref, r.path(ref), d.Value); err != nil {
			return answer{}, err
		}
		a = r.gateOutcome(ref, d.Value)
	}
	a.decision = &d
	return a, nil
}

// gateOutcome is the outcome of a gate with a given answer, whether or not that is one of the choices.
func (r *Run) gateOutcome(ref Ref, value any) answer {
	c := (&worker{run: r, task: Task{Token: Token{Ref: ref}}}).conclude(attemptResult{value: value})
	return answer{Outcome: c.Outcome, value: c.value, said: c.answer, err: c.err}
}

// Signal answers a node that waits: a gate completes with the value, a step that returned [Suspend] is entered again. gate
// is the node's id, inside a composite its path, or the token that the step gave. A gate may be answered before it is
// reached; it does not wait then. A value that is a [Decision] tells who has answered, too.
//
// The first answer wins: a second one is refused with an error that matches [ErrAnswered]. A name that is neither that of a
// gate nor one that a step waits under is refused with [ErrUnknownGate], an answer that is none of the choices of a [Gate] with a
// [*ChoiceError], a node that was stopped or skipped with
// [ErrTransition], a value that the run's [Encoding] cannot encode with [ErrNotEncodable], and any answer after the run's
// end with [ErrFinished].
func (r *Run) Signal(gate string, value any) error {
	root := r
	r.st.mu.Lock()
	over := r.concluded
	r, gate = r.waiter(gate)
	ref, err := r.gateOf(gate)
	kept := err != nil && len(root.waits.kept) > 0
	r.st.mu.Unlock()
	d := decisionOf(value)
	switch {
	case over:
		return ErrFinished // nothing waits any more, whatever it is called
	case kept:
		return root.answerKept(gate, d, err)
	case err != nil:
		return err
	}
	if r.cfg.checkValues {
		if _, err := encodeValue(r.cfg.codec, d.Value); err != nil {
			return fmt.Errorf("signal for %s: %w", quoteID(gate), err)
		}
	}
	a, err := r.answer(ref, d)
	if err != nil {
		return err
	}
	err = ErrFinished
	r.control(func(now int64) { err = r.signal(ref, a, now) })
	return err
}

// gateOf finds the node that a signal is for.
func (r *Run) gateOf(gate string) (Ref, error) {
	if ref, ok := r.tokens[gate]; ok {
		return ref, nil
	}
	ref, ok := r.plan.Ref(gate)
	if !ok || !r.plan.facts[ref].is(factGate) && statusOf(r.st.words[ref]) != Suspended {
		if x := r.extras[ref]; ok && x != nil && x.decision != nil {
			return ref, fmt.Errorf("%w: node %s", ErrAnswered, quoteID(gate))
		}
		return noRef, r.plan.unknownGate(gate, func(ref Ref) bool { return statusOf(r.st.words[ref]) == Suspended })
	}
	return ref, nil
}

// signal takes an answer, with the lock held.
func (r *Run) signal(ref Ref, a answer, now int64) error {
	gate := r.plan.facts[ref].is(factGate)
	_, early := r.signals[ref]
	switch status := statusOf(r.st.words[ref]); {
	case status == Suspended:
		r.wake(now)
		if gate {
			r.settleGate(ref, a, now)
			return nil
		}
		x := r.extras[ref]
		r.signalled(ref, a.decision, now)
		x.reentries++
		r.reentered = true
		r.endWait(x)
		defer r.flushSignalled(now)
		return r.st.requeue(r.st.token(ref), Suspended)
	case status == Completed || early || !gate:
		return fmt.Errorf("%w: node %s", ErrAnswered, quoteID(r.plan.names[ref]))
	case status.Terminal():
		return &TransitionError{Node: r.plan.names[ref], From: status, To: Completed}
	}
	if r.signals == nil {
		r.signals = map[Ref]answer{}
	}
	r.signals[ref] = a
	if r.outdate(); r.durable != nil && r.outer == nil {
		r.durable.add(r, nil)
	}
	return nil
}

// signalled keeps and tells what has answered a node, before what follows from it. The caller flushes that at once, with
// flushSignalled, so that nothing comes between the two, in the log as in a store.
func (r *Run) signalled(ref Ref, d *Decision, now int64) {
	r.extra(ref).decision = d
	r.event(entry{kind: evNodeSignalled, ref: ref, attempt: r.records[ref].attempts, at: now, arg: NodeSignalled{Value: d.Value, Actor: d.Actor, Comment: d.Comment}})
}

func (r *Run) flushSignalled(now int64) {
	if r.log != nil {
		r.flush(now)
	}
}

// reachGate does with a gate that was reached what there is to do: it has its answer, or it waits.
func (r *Run) reachGate(ref Ref, now int64) {
	if a, ok := r.signals[ref]; ok {
		delete(r.signals, ref)
		r.settleGate(ref, a, now)
		return
	}
	if r.cfg.test != nil && r.plan.doubles[ref].role == TestAuto {
		r.settleGate(ref, r.approve(ref), now)
		return
	}
	x := r.extra(ref)
	x.wait = &Wait{Node: r.plan.names[ref], Token: r.path(ref), Since: r.timeAt(now)}
	if g := r.plan.node(ref).Gate; g != nil && g.Timeout > 0 {
		x.wait.Deadline = x.wait.Since.Add(g.Timeout)
		r.armGate(ref, x, g.Timeout)
	}
	if err := r.st.suspend(Token{Ref: ref}); err != nil {
		r.st.noteBug(err)
	}
}

func (r *Run) armGate(ref Ref, x *extra, d time.Duration) {
	x.gate = r.after(d, func(now int64) {
		if statusOf(r.st.words[ref]) == Suspended {
			r.gateTimedOut(ref, now)
		}
	})
}

// gateTimedOut ends the wait of a gate whose time is up.
func (r *Run) gateTimedOut(ref Ref, now int64) {
	r.wake(now)
	if g := r.plan.node(ref).Gate; g.OnTimeout == GateLabel {
		r.settleGate(ref, r.gateOutcome(ref, timeoutLabel), now) // the label of a string needs no user code
		return
	}
	err := fmt.Errorf("%w: no signal within %v", ErrTimeout, r.plan.node(ref).Gate.Timeout)
	r.settleGate(ref, answer{Outcome: Outcome{Status: Failed, Cause: CauseGateTimeout}, err: err}, now)
}

// settleGate makes a gate terminal.
func (r *Run) settleGate(ref Ref, a answer, now int64) {
	rec := &r.records[ref]
	rec.end = now
	if rec.value = a.value; a.Status != Completed {
		rec.value = a.err
	}
	if a.decision != nil {
		r.signalled(ref, a.decision, now)
	}
	if x := r.extras[ref]; x != nil {
		r.endWait(x)
	}
	if a.said != "" {
		r.extra(ref).answer = a.said
	}
	if err := r.st.settle(Token{Ref: ref}, a.Outcome); err != nil {
		r.st.noteBug(err)
	}
	if a.decision != nil {
		r.flushSignalled(now)
	}
	if a.Status == Failed {
		r.react(ref, false)
	}
}

// suspend makes the node of an attempt wait that asked for it.
func (r *Run) suspend(step *Step, e *suspendError, now int64) {
	ref := step.ref
	x := r.extra(ref)
	id := r.plan.names[ref]
	x.wait = &Wait{Node: id, Token: e.token, Info: e.info, Since: r.timeAt(now)}
	if e.token == "" {
		x.wait.Token = id
	}
	x.saved, x.decision = e.state, nil
	if r.tokens == nil {
		r.tokens = map[string]Ref{}
	}
	r.tokens[x.wait.Token] = ref
	r.tree.addToken(x.wait.Token, r)
	r.records[ref].active, r.records[ref].end = activeNone, now
	r.disarm(&x.attempt)
	r.disarm(&x.grace)
	if err := r.st.suspend(r.st.token(ref)); err != nil {
		r.st.noteBug(err)
	}
	r.boundWaits()
}

// duplicateToken reports a token under which a signal would not find one node.
func (r *Run) duplicateToken(ref Ref, token string) error {
	if token == "" {
		token = r.plan.names[ref]
	}
	if other, ok := r.tokens[token]; ok && other != ref {
		return fmt.Errorf("%w: node %s waits for %s already", ErrDuplicateGate, quoteID(r.plan.names[other]), quoteID(token))
	}
	if other, ok := r.plan.Ref(token); ok && other != ref {
		return fmt.Errorf("%w: %s is another node", ErrDuplicateGate, quoteID(token))
	}
	return nil
}

// endWait forgets what a node waited for.
func (r *Run) endWait(x *extra) {
	r.disarm(&x.gate)
	if x.wait != nil {
		if _, ok := r.tokens[x.wait.Token]; ok {
			delete(r.tokens, x.wait.Token)
			r.tree.dropToken(x.wait.Token, r)
		}
		x.wait = nil
	}
}

// Waiting returns the nodes that wait for a signal, in the order of declaration.
func (r *Run) Waiting() []Wait {
	r.st.mu.Lock()
	defer r.st.mu.Unlock()
	return r.waiting()
}

func (r *Run) waiting() (list []Wait) {
	if r.st.asleep == 0 {
		return nil
	}
	for _, ref := range r.plan.declared {
		switch w := r.st.words[ref]; {
		case statusOf(w) == Suspended:
			wait := *r.extras[ref].wait
			if wait.Token == wait.Node {
				wait.Token = r.path(ref)
			}
			wait.Node = r.path(ref)
			list = append(list, wait)
		case w&wordDormant != 0:
			list = append(list, r.extras[ref].comp.child.waiting()...)
		}
	}
	return list
}

// Leave asks the run to end as it stands: nothing is started any more, and when the attempts that run have returned, Wait
// returns a Result in status [RunSuspended] with a [Snapshot] from which another run can go on. Nodes that back off do not
// wait for their next attempt. A guard or merge that does not return within [CancelGrace] is left behind, and its node is named
// in Result.Abandoned; it is asked again when the run goes on. A run that has nothing left to do but to wait for signals ends at once; one that was stopped, or
// is stopped before its last record is written, and one that has no node left to start, ends as usual.
func (r *Run) Leave() {
	r.control(func(int64) {
		if r.pending {
			r.openUnbegun(r.now())
		}
		r.leave()
	})
}

// rest is called when something is suspended, or the run is being left, and no worker is at work: if nothing is left to do
// the run is suspended, and if nobody holds it, or it is being left, that is its end.
func (r *Run) rest(now int64) {
	s := &r.st
	switch {
	case r.concluded || r.workers > 0 || s.done() || s.hasNext():
		return
	case r.leaving && r.outer == nil: // what backs off does not count, nor what is held inside of composites
		if t := r.tree; t != nil && (t.workers > 0 || len(t.touched) > 0 || t.limit == 1 && len(t.waiting)+len(t.gated) > 0) {
			return // with one slot, what can be done is done when the tree passes the turn on
		}
	case s.busy > 0 || s.asleep == 0: // a nested run that is held back by its being left does not wait for anything
		return
	}
	if r.outer == nil && (s.limits.rates != nil || s.limits.pool != nil) && s.waitsForSlot() { // for a token
		return
	}
	if r.outer != nil {
		if r.unwritten == 0 && !s.waitsForSlot() {
			r.restInside()
		}
		return
	}
	if r.leaving {
		r.restAll(now)
	}
	if !r.resting {
		r.resting = true
		r.tellStatus(RunRunning, RunSuspended, now)
		if r.durable != nil {
			r.durable.changeStatus(r, RunSuspended)
			r.commitPending()
		}
	}
	if !r.leaving && !r.unheld {
		if r.cfg.runner != nil {
			r.cfg.runner.changed(r, rests)
		}
		return
	}
	if d := r.durable; d != nil && (d.writing || len(d.outbox) > 0) {
		return // until the last record of this life is written something may stop the run
	}
	r.concluded, r.ended = true, now
	r.verdict = verdict{status: RunSuspended}
	r.disarm(&r.deadline)
	r.disarm(&r.tokenDue)
	r.leavePool()
	for ref, x := range r.extras {
		r.disarmNode(ref)
		r.disarm(&x.overall)
		r.disarm(&x.gate)
	}
	r.putAside()
	if r.log != nil {
		r.log.close()
	}
	if r.durable != nil {
		r.settleLease()
	}
}

// wake tells that a run that was suspended goes on.
func (r *Run) wake(now int64) {
	if r.resting && r.outer != nil {
		r.resting = false
		r.wakeOuter(now)
		return
	}
	if r.resting {
		r.resting = false
		if r.cfg.runner != nil {
			r.cfg.runner.changed(r, wakes)
		}
		r.tellStatus(RunSuspended, RunRunning, now)
		if r.durable != nil {
			r.durable.changeStatus(r, RunRunning)
		}
	}
}

func (r *Run) timeAt(now int64) time.Time { return r.start.Add(time.Duration(now)) }

// attemptOf is the number of an attempt as people count: a step that was suspended is entered again in the same attempt.
func (r *Run) attemptOf(ref Ref, started int32) int32 {
	if x := r.extras[ref]; x != nil {
		return started - x.reentries
	}
	return started
}

// Resumed returns the value of the signal that ended the node's wait. ok is false if the step was not suspended before.
func (s *Step) Resumed() (value any, ok bool) {
	_, d := s.resumption()
	if d == nil {
		return nil, false
	}
	return s.run.clone(d.Value), true
}

// resumption returns what a step that was suspended has left for itself, and the signal that has come, or nil.
func (s *Step) resumption() (saved any, d *Decision) {
	s.run.st.mu.Lock()
	defer s.run.st.mu.Unlock()
	if x := s.run.extras[s.ref]; x != nil {
		return x.saved, x.decision
	}
	return nil, nil
}

// SavedState returns the state that the step gave to [Suspend] or [Expand], or nil.
func (s *Step) SavedState() any {
	saved, _ := s.resumption()
	return s.run.clone(saved)
}

// checkGate validates what belongs to a gate alone.
func (c *compiler) checkGate(n *Node, bad func(kind error, format string, args ...any)) {
	switch {
	case !isGate(n):
		if n.Gate != nil {
			bad(ErrBadValue, "Gate belongs on a node of kind %q without a Do", KindGate)
		}
		return
	case n.Timeout != 0 || n.OverallTimeout != 0 || n.Fallback != nil || !n.Retry.isZero() || n.Cleanup:
		bad(ErrBadValue, "a gate has no attempts: Timeout, OverallTimeout, Retry, Fallback and Cleanup are not for it; see Gate.Timeout")
	}
	if n.Gate != nil && (n.Gate.Timeout < 0 || n.Gate.OnTimeout >= gateTimeoutCount) {
		bad(ErrBadValue, "Gate: %v, %v", n.Gate.Timeout, n.Gate.OnTimeout)
	}
	if n.Gate != nil {
		if text := badChoices(n.Gate.Choices); text != "" {
			bad(ErrBadValue, "Gate.%s", text)
		}
	}
}
