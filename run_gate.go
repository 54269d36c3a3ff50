package kahn

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/saturate"
	"github.com/seed-c794f7ef/kahn/machine"
)

// answer is what a signal does to a node, or what an answer of the run itself does to a gate. The effect of a signal is computed without the run's
// lock, since user code may determine the labels of the signal's value.
type answer struct {
	machine.Outcome           // the outcome of a gate
	decision        *Decision // the signal; nil if there was none
	value           any       // the output of a completed gate
	said            string    // the answer, see conclusion.answer
	err             error
	text            json.RawMessage // the encoded value of the signal; nil if the codec has not encoded it
}

// answer computes the effect of a signal. The parameter `text` is the encoded value, or nil if the codec has not encoded the value yet. An error is
// returned if the node is a gate and the value is not one of its choices.
func (r *Run) answer(ref machine.Ref, d Decision, text json.RawMessage) (a answer, err error) {
	a.text = text
	if r.plan.net.Is(ref, machine.FlagGate) {
		if err := r.plan.refuse(ref, r.path(ref), d.Value); err != nil {
			return answer{}, err
		}
		a = r.gateOutcome(ref, d.Value, text)
	}
	a.decision = &d
	return a, nil
}

// gateOutcome returns the outcome of a gate for an answer. It does not check that the answer is one of the choices.
func (r *Run) gateOutcome(ref machine.Ref, value any, text json.RawMessage) answer {
	w := worker{run: r, task: machine.Task{Token: machine.Token{Ref: ref}}, kept: [2]json.RawMessage{text}}
	c := w.concludeKept(attemptResult{value: value})
	return answer{Outcome: c.Outcome, value: c.value, said: c.answer, err: c.err, text: w.kept[0]}
}

// labelOutcome returns the outcome of a gate that the run itself answers with a label. The caller holds the run's lock, so labelOutcome must not call
// user code. No user code is needed: a string is its own label, every codec can encode it, and contracts check only values from outside.
func (r *Run) labelOutcome(ref machine.Ref, label string) answer {
	c := conclusion{Outcome: machine.Outcome{Status: Completed}, value: label}
	if r.plan.net.Router(ref) >= 0 {
		if err := r.plan.takeBranches(ref, r.path(ref), &c); err != nil {
			failed := noBranches(err)
			return answer{Outcome: machine.Outcome{Status: Failed, Cause: failed.kind}, err: failed.err}
		}
	}
	return answer{Outcome: c.Outcome, value: c.value, said: c.answer}
}

// trySignal tries once to deliver a signal. It returns the transaction that writes the answer, or nil if the run has no store. If the error is
// errNotKept, the caller must try again: the run began or ended during the call, or the graph of an expanded node became known. In the last case,
// the nodes that wait inside the expanded node are now nodes of its nested run.
func (r *Run) trySignal(s *signal) (*writing, error) {
	root := r
	r.st.Lock()
	if r.from != nil {
		r.st.Unlock()
		return r.signalPending(s)
	}
	if in, repeated, err := root.waiters().answered.repeats(s); repeated || err != nil {
		r.st.Unlock()
		return in, err
	}
	over, ended := r.concluded(), ErrFinished // in an ended run no node waits, so the error is the same for every gate
	switch {
	case root.isLost():
		ended = root.durable.failed
	case root.isPutAway():
		ended = ErrAtRest
	}
	r, gate := r.waiter(s.gate)
	ref, ok := r.gateOf(gate)
	waits := root.waiters()
	kept, found := len(waits.keptAt) > 0, waits.found
	var choices []string
	if n := waits.keptNode(s.gate); n != nil && !ok {
		choices = n.choices()
	}
	var unknown error
	if !ok && !over && !kept {
		unknown = r.noGate(gate)
	}
	r.st.Unlock()
	switch {
	case over:
		return nil, ended
	case !ok && !kept:
		return nil, unknown
	}
	text, err := r.keepSignal(s)
	if err != nil {
		return nil, err
	}
	if err := refuseOther(s.gate, s.Value, choices, true); err != nil {
		return nil, err
	}
	deliver := func(int64) error {
		return root.answerKept(s, text, found, func() error { return r.noGate(gate) })
	}
	if ok {
		a, err := r.answer(ref, s.Decision, text)
		if err != nil {
			return nil, err
		}
		deliver = func(now int64) error { return r.signal(ref, a, now) }
	}
	if s.unsent {
		return nil, root.judgeSignal(r, ref, ok, s, found)
	}
	var in *writing
	err = errNotKept // remains the result if the run has ended meanwhile, since r.control then does not call the function
	r.control(func(now int64) {
		var repeated bool
		if in, repeated, err = root.waiters().answered.repeats(s); repeated || err != nil { // another caller was first
			return
		}
		if err = deliver(now); err != nil {
			return
		}
		if s.ID != "" {
			root.outdate()
		}
		s.answered(root)
		in = root.pendingWrite()
		root.waiters().answered.take(s, in)
	})
	return in, err
}

// judgeSignal returns the error that the delivery of a signal would return. It does not deliver the signal. If `known` is false, gateOf has found
// no node: the node may be inside an expanded node whose graph is not known yet.
func (r *Run) judgeSignal(in *Run, ref machine.Ref, known bool, s *signal, seen int) error {
	r.st.Lock()
	defer r.st.Unlock()
	if known {
		return in.refusal(ref)
	}
	switch waits := r.waiters(); {
	case waits.keptNode(s.gate) != nil:
		return waits.keptNode(s.gate).refusalAt(s.gate, r.wallClock())
	case waits.found > seen:
		return errNotKept
	}
	return in.noGate(s.gate)
}

// pendingGate is the node that a signal answers while the restored run is still pending.
type pendingGate struct {
	in   *held // nil if the node's graph is not known
	ref  machine.Ref
	kept *keptNode
}

// findPending returns the node that a signal answers. If the signal repeats an earlier signal, findPending returns the transaction of the earlier
// signal instead of a node. The error is errNotKept if the run has begun. The caller holds the run's lock.
func (r *Run) findPending(s *signal) (*pendingGate, *writing, error) {
	x := r.from
	if x == nil {
		return nil, nil, errNotKept
	}
	if in, repeated, err := x.answered.repeats(s); repeated || err != nil {
		return nil, in, err
	}
	in, ref, kept, err := x.held.answerable(s.gate)
	if err != nil {
		return nil, nil, err
	}
	if in == nil {
		if err := kept.refusalAt(s.gate, r.wallClock()); err != nil {
			return nil, nil, err
		}
		return &pendingGate{kept: kept}, nil, nil
	}
	if _, answered := in.signals[ref]; answered {
		return nil, nil, answeredAlready(s.gate)
	}
	if i, known := in.at[ref]; known {
		if err := in.nodes[i].late(s.gate, r.wallClock()); err != nil {
			return nil, nil, err
		}
	}
	return &pendingGate{in: in, ref: ref}, nil, nil
}

// signalPending tries to deliver a signal to a restored run that is still pending. It adds the answer to Run.from, the state from which the run
// continues. The run delivers the answer when it begins, or when it ends without having begun.
func (r *Run) signalPending(s *signal) (*writing, error) {
	r.st.Lock()
	at, written, err := r.findPending(s)
	r.st.Unlock()
	if at == nil {
		return written, err
	}
	text, err := r.keepSignal(s)
	if err != nil {
		return nil, err
	}
	var a answer
	if at.in != nil {
		a, err = at.in.run.answer(at.ref, s.Decision, text)
	} else {
		err = refuseOther(s.gate, s.Value, at.kept.choices(), true)
	}
	if err != nil {
		return nil, err
	}
	r.st.Lock()
	defer r.st.Unlock()
	if at, written, err = r.findPending(s); at == nil { // another caller was first, or the run has begun
		return written, err
	}
	if s.unsent {
		return nil, nil
	}
	if at.kept != nil {
		at.kept.answer(s.Decision, text, false)
	} else {
		at.in.signals[at.ref], at.in.answers[at.ref] = s.Decision, a
		at.in.accept(at.ref)
	}
	x := r.from
	s.answered(r)
	if r.durable != nil {
		written = r.durable.outbox.writing // the first transaction that this process writes
	}
	x.answered.take(s, written)
	return written, nil
}

// pendingWrite returns the transaction that writes all changes so far, or nil if all changes are written.
func (r *Run) pendingWrite() *writing {
	switch d := r.durable; {
	case d == nil:
		return nil
	case d.hasWork():
		return d.outbox.writing
	case d.current != nil:
		return d.current.writing
	}
	return nil
}

// gateOf returns the node that a signal names by a token or by the node's id. The second result is false if the run has no such node, or if the
// node is neither a gate nor suspended.
func (r *Run) gateOf(gate string) (machine.Ref, bool) {
	if ref, ok := r.tokens[gate]; ok {
		return ref, true
	}
	ref, ok := r.plan.Ref(gate)
	return ref, ok && (r.plan.net.Is(ref, machine.FlagGate) || r.st.Word(ref).Status() == Suspended)
}

// noGate returns the error for a signal if gateOf finds no node. noGate may visit many nodes.
func (r *Run) noGate(gate string) error {
	if at, lost := r.locate(gate); lost == nil && !at.run.isEndedInside() {
		if x := at.run.extras[at.ref]; x != nil && x.decision != nil {
			return answeredAlready(gate)
		}
	}
	return r.plan.unknownGate(gate, r.statusInside)
}

// isEndedInside reports whether the run is nested in a composite that has ended.
func (r *Run) isEndedInside() bool {
	return r.outer != nil && r.outer.st.Status(r.within.ref).Terminal()
}

// statusInside returns the status of a node in a nested run, and reports whether the nested run exists and its composite has not ended. The
// parameter `prefix` is the prefix of the paths in the nested run, relative to this run. If `prefix` is empty, the node is a node of this run.
func (r *Run) statusInside(prefix string, ref machine.Ref) (status Status, runs bool) {
	if prefix != "" {
		if r.tree == nil {
			return Idle, false
		}
		if r = r.tree.nested[r.prefix+prefix]; r == nil || r.isEndedInside() {
			return Idle, false
		}
	}
	if ref == noRef {
		return Idle, true
	}
	if r.tree != nil {
		r.tree.steps++
	}
	return r.st.Word(ref).Status(), true
}

// refusal returns an error if the node accepts no signal. The caller holds the run's lock.
func (r *Run) refusal(ref machine.Ref) error {
	if r.isLost() {
		return r.durable.failed
	}
	gate, x := r.plan.net.Is(ref, machine.FlagGate), r.extras[ref]
	_, answered := r.signals[ref]
	answered = answered || !gate && x != nil && x.decision != nil
	switch status := r.st.Word(ref).Status(); {
	case status == Suspended && x.wait.Run != "":
		return awaitsRun(r.path(ref), x.wait.Run)
	case status == Suspended:
	case answered, !gate && !status.Terminal():
		return answeredAlready(r.path(ref))
	case status.Terminal():
		return endedUnanswered(r.path(ref), status)
	}
	return nil
}

// answeredAlready returns the error for a second answer. The text of the error does not depend on whether the run was restored between the two
// answers.
func answeredAlready(path string) error {
	return fmt.Errorf("%w: node %s", ErrAnswered, quoteID(path))
}

// endedUnanswered returns the error for a signal to a node that has already ended. The node is a gate, or a step that has waited.
func endedUnanswered(path string, status Status) error {
	if status == Completed {
		return answeredAlready(path)
	}
	return &machine.TransitionError{Node: path, From: status, To: Completed}
}

// signal applies an answer to a node. If the node is a gate that does not wait yet, signal keeps the answer until the run reaches the gate. The
// caller holds the run's lock.
func (r *Run) signal(ref machine.Ref, a answer, now int64) error {
	if err := r.refusal(ref); err != nil {
		return err
	}
	if r.st.Word(ref).Status() != Suspended {
		if r.signals == nil {
			r.rare().signals = map[machine.Ref]answer{}
		}
		r.signals[ref] = a
		r.outdate()
		return nil
	}
	r.wake(now)
	if r.plan.net.Is(ref, machine.FlagGate) {
		r.settleGate(ref, a, now)
		return nil
	}
	r.signalled(ref, &a, now)
	defer r.flushSignalled(now)
	return r.reenter(ref, now)
}

// reenter makes a node ready after its wait, so that its step is called again.
func (r *Run) reenter(ref machine.Ref, now int64) error {
	x := r.extra(ref)
	x.ready = now
	x.reentries++
	r.reentered = true
	r.endWait(x)
	return r.st.Requeue(r.st.Token(ref), Suspended)
}

// refusesSignal returns an error if the run would refuse every signal for the node. It returns nil if the run would accept a signal with a suitable
// value.
func (r *Run) refusesSignal(name string) error {
	r.st.Lock()
	defer r.st.Unlock()
	if r.from != nil {
		_, _, err := r.findPending(&signal{gate: name})
		return err
	}
	at, gate := r.waiter(name)
	if ref, ok := at.gateOf(gate); ok {
		return at.refusal(ref)
	}
	if n := r.waiters().keptNode(name); n != nil {
		return n.refusalAt(name, r.wallClock())
	}
	return at.noGate(gate)
}

// signalled records the signal that has answered a node, and logs the signal's event. The caller then applies the consequences of the signal, and
// calls flushSignalled at once. So no other event comes between the signal and its consequences, in the log or in a store.
func (r *Run) signalled(ref machine.Ref, a *answer, now int64) {
	x, d := r.extra(ref), a.decision
	x.decision = d
	r.depends()
	if kept := x.texts.known(); a.text != nil {
		kept.signal = a.text
		x.texts = &kept
	}
	r.event(entry{kind: evNodeSignalled, ref: ref, attempt: r.records[ref].attempts, at: now, arg: event.Answer{Value: d.Value, Actor: d.Actor, Comment: d.Comment, ID: d.ID}})
}

func (r *Run) flushSignalled(now int64) {
	if r.log != nil {
		r.flush(now)
	}
}

// reachGate is called when the run has reached a gate. If the gate was already answered, reachGate settles it; otherwise the gate waits.
func (r *Run) reachGate(ref machine.Ref, now int64) {
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
	x.wait = &Wait{Node: r.plan.names[ref], Token: r.path(ref), Since: r.timeAt(now), Choices: slices.Clone(r.plan.choices(ref))}
	if g := r.plan.node(ref).Gate; g != nil && g.Timeout > 0 {
		x.wait.Deadline = x.wait.Since.Add(g.Timeout)
		r.armGate(ref, x, g.Timeout)
		r.warnOfGate(ref, now, saturate.Add(now, int64(g.Timeout)))
	}
	if err := r.st.Suspend(machine.Token{Ref: ref}); err != nil {
		r.st.NoteBug(err)
	}
}

// ErrGateOutlasts is matched by the warning about a gate whose deadline lies after the end of the run's [Timeout]. If no signal answers the gate,
// the Timeout ends the run before the gate's deadline.
var ErrGateOutlasts = errors.New("the deadline of the gate lies beyond the run's Timeout")

// mostOutlasting is the maximum number of gates for which a run gets the warning ErrGateOutlasts.
const mostOutlasting = 100

// warnOfGate adds a warning to the Result if the run's deadline precedes the gate's deadline. It adds at most one warning for each declared gate.
// The parameter `due` is the gate's deadline. Both `now` and `due` are times of the run's clock.
func (r *Run) warnOfGate(ref machine.Ref, now, due int64) {
	root, g := r.outermost(), r.plan.node(ref).Gate
	if root.bound == 0 || due <= root.bound || root.bound <= now {
		return
	}
	switch x := root.remark(); {
	case x.outlasting[g] || len(x.outlasting) >= mostOutlasting:
	case x.outlasting == nil:
		x.outlasting = map[*Gate]bool{}
		fallthrough
	default:
		x.outlasting[g] = true
		root.warn(fmt.Errorf("%w: node %s waits until %s, and the run until %s", ErrGateOutlasts, quoteID(r.path(ref)),
			r.timeAt(due).Format(time.RFC3339), r.timeAt(root.bound).Format(time.RFC3339)))
	}
}

func (r *Run) armGate(ref machine.Ref, x *extra, d time.Duration) {
	x.own().gate = r.afterAsStored(d, func(now int64) {
		if r.st.Word(ref).Status() == Suspended {
			r.gateTimedOut(ref, now)
		}
	})
}

// gateTimedOut ends the wait of a gate whose Timeout has passed, or of a step whose deadline for a signal has passed.
func (r *Run) gateTimedOut(ref machine.Ref, now int64) {
	r.wake(now)
	if !r.plan.net.Is(ref, machine.FlagGate) {
		if err := r.reenter(ref, now); err != nil {
			r.st.NoteBug(err)
		}
		return
	}
	if g := r.plan.node(ref).Gate; g.OnTimeout == GateLabel {
		r.settleGate(ref, r.labelOutcome(ref, timeoutLabel), now)
		return
	}
	err := fmt.Errorf("%w: no signal within %v", ErrTimeout, r.plan.node(ref).Gate.Timeout)
	r.settleGate(ref, answer{Outcome: machine.Outcome{Status: Failed, Cause: CauseGateTimeout}, err: err}, now)
}

// settleGate ends a gate with the outcome of an answer.
func (r *Run) settleGate(ref machine.Ref, a answer, now int64) {
	rec := &r.records[ref]
	rec.end = now
	if rec.value = a.value; a.Status != Completed {
		rec.value = a.err
	}
	r.outputText(ref, a.Status, a.text)
	if a.decision != nil {
		r.signalled(ref, &a, now)
	}
	if x := r.extras[ref]; x != nil {
		r.endWait(x)
	}
	if a.said != "" {
		r.extra(ref).Answer = a.said
	}
	if err := r.st.Settle(machine.Token{Ref: ref}, a.Outcome); err != nil {
		r.st.NoteBug(err)
	}
	if a.decision != nil {
		r.flushSignalled(now)
	}
	if a.Status == Failed {
		r.react(ref, false)
	}
}

// earlySignals accepts the signals that the options give to a run that starts from the beginning. An error is returned if a signal is not for a
// gate.
func (r *Run) earlySignals() error {
	if len(r.cfg.signals) == 0 {
		return nil
	}
	r.rare().signals = map[machine.Ref]answer{}
	for _, name := range slices.Sorted(maps.Keys(r.cfg.signals)) {
		ref, ok := r.plan.Ref(name)
		if !ok || !r.plan.net.Is(ref, machine.FlagGate) {
			return r.plan.unknownGate(name, func(prefix string, _ machine.Ref) (Status, bool) { return Idle, prefix == "" })
		}
		early := signal{gate: name, Decision: decisionOf(r.cfg.signals[name])}
		if err := early.identify(); err != nil {
			return err
		}
		text, err := r.keep(early.Value)
		if err != nil {
			return fmt.Errorf("signal for %s: %w", quoteID(name), err)
		}
		a, err := r.answer(ref, early.Decision, text)
		if err != nil {
			return err
		}
		r.waiters().answered.take(&early, nil)
		r.signals[ref] = a
	}
	if d := r.durable; d != nil {
		d.holdAnswers(&r.waiters().answered)
	}
	return nil
}

// The method `answers` computes the effects of the signals. The caller does not hold the run's lock, since user code may determine the labels of a
// signal's value. If the value of a signal is not one of the gate's choices, its error is in `refused`. These errors are in the order of the nodes'
// refs.
func (r *Run) answers(signals map[machine.Ref]Decision) (answers map[machine.Ref]answer, refused []error) {
	answers = make(map[machine.Ref]answer, len(signals))
	for _, ref := range slices.Sorted(maps.Keys(signals)) {
		a, err := r.answer(ref, signals[ref], nil)
		if err != nil {
			refused = append(refused, err)
			continue
		}
		answers[ref] = a
	}
	return answers, refused
}

// waiter returns the run in which a node waits, and the node's name in that run. The parameter `gate` is the node's path or token. If no node waits
// under this path or token, waiter returns r and `gate`. The run r must be an outermost run. For speed, waiter does not search all runs, but
// follows the parts of the path.
func (r *Run) waiter(gate string) (*Run, string) {
	if r.tree == nil || r.waitsUnder(gate) {
		return r, gate
	}
	if in := r.itemsOf(gate); in != nil {
		return in, gate
	}
	for i := range min(len(gate), r.tree.longest) {
		if gate[i] != '/' {
			continue
		}
		in, name := r.tree.nested[gate[:i+1]], gate[i+1:]
		r.tree.steps++
		switch {
		case in == nil || in.concluded():
		case in.waitsUnder(name):
			return in, name
		default:
			if items := in.itemsOf(name); items != nil {
				return items, name
			}
		}
	}
	if in := r.tree.tokens[gate]; len(in) > 0 {
		return in[0], gate
	}
	return r, gate
}

// itemsOf returns the run of a map's items if `name` names one of these items and the item waits. Otherwise it returns nil. The item has the same
// name in the run of the items.
func (r *Run) itemsOf(name string) *Run {
	i := strings.LastIndexByte(name, '[')
	if i < 0 {
		return nil
	}
	ref, ok := r.plan.Ref(name[:i])
	if !ok {
		return nil
	}
	if x := r.extras[ref]; x != nil {
		if c := x.atWork(); c != nil && c.items != nil && c.waitsUnder(name) {
			return c
		}
	}
	return nil
}

func (r *Run) waitsUnder(gate string) bool {
	_, ok := r.gateOf(gate)
	return ok
}
