package kahn

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// checkResult is the result of a check.
type checkResult struct {
	verdict  machine.CheckVerdict
	err      error // of the verdict's Fail
	guardErr error
	guard    *guardProblem
	merged   map[string]any
	items    *items // of a map
}

// check performs a node's check and takes the next task.
func (w *worker) check() bool {
	if w.task.Returned {
		return w.returned()
	}
	w.phase = phaseUser
	res := w.evaluate()
	w.phase = phaseEngine
	w.now = w.run.now()
	w.run.lock()
	if !w.endCheck() {
		w.run.st.Unlock()
		return false
	}
	w.run.ringDue(w.now)
	w.run.settleCheck(w.task.Token, res, w.now)
	return w.take()
}

// evaluation is a check that a worker performs. Nothing can interrupt a guard or a merge: when its node is stopped, which
// settles the node, or the run is left, the run waits for the worker no longer than CancelGrace. The checks of cleanup nodes
// in a run that is being stopped have CleanupTimeout.
type evaluation struct {
	alone     bool  // see single.alone
	abandoned bool  // the run no longer counts its worker
	grace     timer // armed when the node is stopped, the run is left, or a stopped run cleans up
	cleanup   bool  // grace is armed for a cleanup node
}

// beginCheck and endCheck are called with the lock held. endCheck reports whether the run still counts the worker.
func (w *worker) beginCheck() {
	w.checking = &evaluation{alone: w.alone}
	if w.run.checks == nil {
		w.run.checks = map[Ref]*evaluation{}
	}
	w.run.checks[w.task.Ref] = w.checking
	switch {
	case w.run.leaving:
		w.run.armCheck(w.task.Ref, false)
	case w.run.st.Hurries():
		w.run.armCheck(w.task.Ref, true)
	}
}

func (w *worker) endCheck() bool {
	r, e := w.run, w.checking
	w.checking = nil
	if e.abandoned {
		return false
	}
	delete(r.checks, w.task.Ref)
	if e.grace != nil && e.grace.Stop() {
		r.timers--
	}
	return true
}

// armCheck bounds how long the run waits for a check: for one whose node was stopped, or whose run is being left, by the grace; for that of
// a cleanup node by the cleanup timeout. It is not an alarm, since it must go off even when everything else has ended.
func (r *Run) armCheck(ref Ref, cleanup bool) {
	e := r.checks[ref]
	if e == nil || e.grace != nil && (cleanup || !e.cleanup) {
		return
	}
	if e.grace != nil && e.grace.Stop() { // a cleanup node that is stopped itself
		r.timers--
	}
	d := r.cfg.cancelGrace
	if e.cleanup = cleanup; cleanup {
		d = r.cfg.cleanupTimeout
	}
	r.timers++
	e.grace = r.startTimer(d, func() {
		now := r.now()
		r.st.Lock()
		r.timers--
		stopped := !r.st.Word(ref).Is(machine.WordChecking)
		if r.checks[ref] == e && (r.leaving || stopped || cleanup) { // else the run is not left after all
			r.abandonCheck(ref, e)
			if cleanup && !stopped {
				r.settleCheck(machine.Token{Ref: ref}, checkResult{verdict: machine.CheckVerdict{Fail: CauseTimeout}, err: timeoutAfter(d, errAbandoned)}, now)
			}
		}
		r.release(now)
	})
}

// boundChecks bounds the checks of the cleanup nodes of a run that was stopped, so that it ends.
func (r *Run) boundChecks() {
	for ref := range r.checks {
		if r.st.Word(ref).Is(machine.WordChecking) {
			r.armCheck(ref, true)
		}
	}
}

// abandonCheck gives up on a check that does not return, and whose result will be dropped. A node that was not stopped still
// needs a check, but no worker performs it while the run is being left.
func (r *Run) abandonCheck(ref Ref, e *evaluation) {
	e.abandoned = true
	delete(r.checks, ref)
	r.leftBehind(ref)
	r.dismiss()
	if e.alone {
		r.single.alone--
	}
}

// evaluate checks, in this order, the guard, the merges and the required ports.
func (w *worker) evaluate() (res checkResult) {
	r, ref := w.run, w.task.Ref
	if n := r.plan.node(ref); n.When != nil {
		pass := true
		w.guarding = true // not deferred: exit asks for it if the guard ends its goroutine
		err := w.protect(func() (err error) {
			pass, err = r.callWhen(ref, n)
			return err
		})
		w.guarding = false
		res = r.plan.guarded(ref, pass, r.slip(ref, err))
		if res.guard != nil {
			res.guard.path = r.path(ref)
		}
		if res.verdict != (machine.CheckVerdict{}) {
			return res
		}
	}
	if r.plan.inputsOf(ref) == nil {
		return w.checkItems(res, 0)
	}
	var flags stepFlags
	r.lock()
	if r.st.Word(ref).Is(machine.WordSubstituted) {
		flags |= stepSubstituted
	}
	r.st.Unlock()
	if checkInputs(r, ref, flags&stepSubstituted != 0, w.protect, &res); res.verdict != (machine.CheckVerdict{}) {
		return res
	}
	return w.checkItems(res, flags)
}

// guarded is the result of a guard.
func (p *Plan) guarded(ref Ref, pass bool, err error) (res checkResult) {
	if err != nil {
		err = bounded(err)
		policy := p.guard(ref)
		res.guardErr, res.guard = err, &guardProblem{p.names[ref], policy, err, "guard could not decide: " + errorText(err)}
		switch pass = true; policy {
		case GuardSkip:
			pass = false
		case GuardFail:
			res.verdict.Fail, res.err = CauseConditionError, err
			return res
		}
	}
	if !pass {
		res.verdict.Skip = SkipWhenGuard
	}
	return res
}

// guardProblem is the warning about a guard that could not decide.
type guardProblem struct {
	path   string
	policy GuardPolicy
	err    error
	log    string
}

func (g *guardProblem) Error() string {
	return fmt.Sprintf("%v: node %s %s: %s", ErrGuard, quoteID(g.path), [guardCount]string{GuardAllow: "runs", GuardSkip: "is skipped", GuardFail: "fails"}[g.policy], errorText(g.err))
}

func (g *guardProblem) Unwrap() []error { return []error{ErrGuard, g.err} }

// warnOfGuard adds the warning, once for each node of the graph, with the lock held.
func (r *Run) warnOfGuard(ref Ref, problem *guardProblem) {
	x, n := r.outermost().remark(), r.plan.node(ref)
	if x.warnedGuards[n] {
		return
	}
	if x.warnedGuards == nil {
		x.warnedGuards = map[*node]bool{}
	}
	x.warnedGuards[n] = true
	x.warnings = append(x.warnings, problem)
}

// checkInputs merges the parameters of a node and checks its required ports. protect calls the functions that merge.
func checkInputs(of source, ref Ref, substituted bool, protect func(func() error) error, res *checkResult) {
	p := of.graph()
	n, in := p.node(ref), p.inputsOf(ref)
	for i := range in.params {
		group := &in.params[i]
		if group.strategy == MergeLast {
			continue
		}
		value, ok, err := merge(of, ref, substituted, group, protect)
		if err != nil {
			res.verdict.Fail, res.err = CauseMergeError, fmt.Errorf("parameter %s: %w", quoteID(group.name), err)
			return
		}
		if ok {
			if res.merged == nil {
				res.merged = map[string]any{}
			}
			res.merged[group.name] = value
		}
	}
	for i := range n.Ports {
		if port := &n.Ports[i]; port.Required {
			if v, ok := assembled(of, ref, substituted, port.Name, res.merged); !ok || isNull(v) {
				res.verdict = machine.CheckVerdict{Skip: SkipNullPropagation, Port: i}
				return
			}
		}
	}
}

// checkItems makes, after all other checks, the items that a map is to be performed over.
func (w *worker) checkItems(res checkResult, flags stepFlags) checkResult {
	r, ref := w.run, w.task.Ref
	m := r.plan.node(ref).Map
	if m == nil || !r.plan.net.Is(ref, machine.FlagComposite) { // it is mocked
		return res
	}
	value, ok := r.assembled(ref, flags, m.Over, res.merged)
	if !ok {
		if names := r.paramNames(ref); !slices.Contains(names, m.Over) {
			res.verdict.Fail = CauseContractInput
			res.err = fmt.Errorf("parameter %s: %w: %s", quoteID(m.Over), ErrNoValue, noSuchParam(m.Over, names))
			return res
		}
	}
	if res.items, res.err = r.plan.itemsOf(ref, value, w.protect); res.err != nil {
		res.verdict.Fail = CauseContractInput
		if p := (*PanicError)(nil); errors.As(res.err, &p) {
			res.verdict.Fail = CausePanic
		}
		return res
	}
	text, err := r.keep(value)
	if err != nil { // the list goes into snapshots
		res.verdict.Fail, res.err = causeOfKeep(err), fmt.Errorf("parameter %s: %w", quoteID(m.Over), err)
	}
	res.items.text = text
	return res
}

// merge merges the values that the edges of one parameter deliver. ok is false if no edge delivers one.
func merge(of source, ref Ref, substituted bool, group *param, protect func(func() error) error) (value any, ok bool, err error) {
	p := of.graph()
	var in []Contribution
	var keys []string
	for i, e := range group.edges {
		if v, ok := deliver(of, ref, substituted, e); ok {
			source := p.node(p.net.Source(e))
			in = append(in, Contribution{From: source.ID, Label: source.Label, Value: v})
			keys = append(keys, group.keys[i])
		}
	}
	if len(in) == 0 {
		return nil, false, nil
	}
	err = protect(func() (err error) {
		if group.fn != nil {
			for i := range in {
				in[i].Value = of.clone(in[i].Value)
			}
			value, err = group.fn(in)
		} else {
			value, err = mergeValues(group.strategy, p.node(ref).MergeJSON, in, keys)
		}
		return err
	})
	return value, true, bounded(err)
}

// settleCheck reports a check to the state, with the lock held.
func (r *Run) settleCheck(t machine.Token, res checkResult, now int64) {
	if !r.st.Word(t.Ref).Is(machine.WordChecking) || r.isLost() {
		return // the node was stopped meanwhile, or its check is for whoever goes on with the run
	}
	if res.guardErr != nil || res.merged != nil || res.items != nil {
		x := r.extra(t.Ref)
		x.guardErr, x.merged, x.items = res.guardErr, res.merged, res.items
		if res.guardErr != nil {
			r.warnOfGuard(t.Ref, res.guard)
			r.event(entry{kind: evNodeLog, ref: t.Ref, at: now, arg: event.LogRecord{Level: slog.LevelWarn, Message: res.guard.log}})
		}
	}
	if res.verdict.Fail != CauseNone {
		r.records[t.Ref].value = res.err
	}
	if err := r.st.Checked(t, res.verdict); err != nil {
		r.st.NoteBug(err)
	}
	if res.verdict.Fail != CauseNone {
		r.react(t.Ref, false)
	}
}
