package kahn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

// worker is a goroutine that performs steps, one after the other, until none remains.
type worker struct {
	run      *Run
	task     machine.Task
	step     *Step       // the Step of the task; nil for a check
	failed   *conclusion // the conclusion of the attempt whose fallback is running; otherwise nil
	caught   error       // the panic that ended perform; otherwise nil
	now      int64       // the time, read once per completion, since the end of one step is the start of the next
	recorded *writing    // the transaction in which a store records the task's start; otherwise nil
	ending   *ending     // the task's ending, if it has waited for room in the outbox; otherwise nil
	unspent  unspent     // the remaining Timeout of the attempt, if the step has returned a graph
	phase    phase
	way      way         // how the worker performs the task
	handed   bool        // whether the host calls the task's step
	alone    bool        // see single.alone; guarded by the run's lock
	resumed  bool        // whether the worker settles next a result that was put off, see single
	guarding bool        // whether the task is a check whose guard is running
	checking *evaluation // the evaluation, if the task is a check; otherwise nil
	unused   *evaluation // the evaluation of an earlier check, for the next one; or nil

	// flight is the flight of a memoized attempt whose output nested runs will produce: its step has returned a graph, or the node is a composite. It
	// is nil in all other cases, and once the nested run has begun.
	flight *flight

	kept [2]json.RawMessage // the encoded output of the last attempt, or the encoded info and state that its step passed to Suspend
}

// phase records whether the worker is in user code. If user code calls Goexit, exit reads the phase.
type phase uint8

const (
	phaseEngine phase = iota
	phaseUser         // also while the engine calls methods of a user's errors and values
)

// lock takes the run's lock for a worker. A worker that finds the lock taken yields a few times before it blocks. If two workers take turns with
// the lock, each turn moves all cache lines of the run between processors. Blocking and waking a goroutine takes longer than a short step.
// Without yielding, a node of a wide graph took four times as long with two threads as with one. The worker blocks after about 0.1 ms. It blocks at
// once if maxYielding other workers are yielding, since a yield may be slow. A goroutine that yields waits for the scheduler's whole queue, which
// may contain a goroutine for each ready sub-graph of the run.
func (r *Run) lock() {
	if !r.st.TryLock() {
		r.st.LockYielding()
	}
}

func (r *Run) work() {
	w := worker{run: r, now: r.now()}
	defer w.exit()
	w.goOn(w.arrive())
}

// arrive takes the first task of a worker.
func (w *worker) arrive() bool {
	r := w.run
	r.lock()
	if r.tree != nil && r.manual == nil {
		r.tree.arrived()
	}
	r.st.Answer()
	r.order().arrived(r)
	r.life().arrived(r)
	return w.take()
}

// goOn performs tasks until none remains.
func (w *worker) goOn(more bool) {
	for more {
		more = w.perform()
		if w.phase == phaseUser {
			// User code has panicked, but recover returned nil. Under GODEBUG=panicnil=1, panic(nil) has this effect.
			w.phase, w.caught = phaseEngine, newPanicError(nil)
		}
		if w.caught != nil {
			more = w.crashed()
		}
	}
}

// life determines how the attempts of a run begin: at once, after a store has recorded their start, or by a call of the host. A life has no
// state. Callers of its methods hold the run's lock.
type life interface {
	// arrived is called when a worker is about to take its first task.
	arrived(r *Run)
	// mayTake reports whether the worker may take a task.
	mayTake(r *Run, now int64) bool
	// begun is called when an attempt has begun. `attempt` is its number in the State, and `before` is the number of earlier attempts. begun returns
	// how the attempt is performed, and the transaction for which the attempt must wait, or nil.
	begun(step *Step, attempt, before int32, now int64) (way, *writing)
	// begunInside is like begun, for a composite.
	begunInside(r *Run, ref machine.Ref, before int32, now int64)
}

// way is the way in which a worker performs a task.
type way uint8

const (
	wayCheck way = iota // check, or the conclusion of a composite
	wayFull             // the methods `attempt` and `finish`
	wayPlain            // performPlain, which both performs and finishes the attempt
	wayHost             // the host calls the step
)

func (r *Run) life() life {
	switch {
	case r.durable != nil:
		return storedLife{}
	case r.manual != nil:
		return handLife{}
	}
	return plainLife{}
}

type plainLife struct{}

func (plainLife) arrived(*Run) {}

func (plainLife) mayTake(*Run, int64) bool { return true }

func (plainLife) begun(step *Step, _, _ int32, _ int64) (way, *writing) {
	if step.flags&stepAgain == 0 && step.run.plan.net.Is(step.ref, machine.FlagPlain) {
		return wayPlain, nil
	}
	return wayFull, nil
}

func (plainLife) begunInside(*Run, machine.Ref, int32, int64) {}

// handLife is the life of a run that a Coordinator drives.
type handLife struct{ plainLife }

func (l handLife) begun(step *Step, attempt, before int32, now int64) (way, *writing) {
	if step.forHost() {
		return wayHost, nil
	}
	return l.plainLife.begun(step, attempt, before, now)
}

// perform performs tasks until none remains. One deferred function serves all attempts, which saves 5 ns for each node that does not panic. So a
// panic in a step also ends perform, and then goOn handles the panic.
func (w *worker) perform() (more bool) {
	defer func() {
		if w.phase == phaseUser { // user code has panicked, or has called Goexit, which the method `exit` handles
			if v := recover(); v != nil {
				w.caught = w.panicked(v)
			}
		}
	}()
	for more = true; more; {
		switch w.way {
		case wayCheck:
			more = w.check()
		case wayPlain:
			more = w.performPlain()
		case wayHost:
			more = w.handOver()
		default:
			more = w.attemptAndFinish()
		}
	}
	return more
}

// The method `crashed` finishes an attempt that has panicked.
func (w *worker) crashed() (more bool) {
	res := attemptResult{err: w.caught, kind: CausePanic}
	if w.run.plan.node(w.task.Ref).Test != nil { // the test may have panicked because a failed node has no output
		res.err, res.kind = w.run.slip(w.task.Ref, w.caught), CauseConditionError
	}
	w.caught, w.now = nil, w.run.now()
	return w.finish(res, true)
}

// performPlain performs a plain node and, if possible, the plain nodes that come next. It combines the methods `attempt`, `finish` and `take`, for
// nodes that complete and were not stopped.
func (w *worker) performPlain() (more bool) {
	r, step := w.run, w.step
	s := &r.st
	for {
		ref := step.ref
		do := r.step
		if r.plan.net.Is(ref, factOwn) && !r.wrapped {
			do = r.plan.node(ref).Do
		}
		w.phase = phaseUser
		value, err := do(step, step)
		special := err == nil && r.careful && (r.cfg.checkValues || r.mayEnd && r.ctx.Err() != nil) // Err is called in phaseUser, since the caller's context is user code, too
		w.phase = phaseEngine
		w.now = r.now()
		if err != nil || special || r.careful && r.single.isDue(w.now) {
			return w.finishPlain(value, err)
		}
		step.returned() // called before other goroutines can see the end of the node
		r.lock()
		rec := &r.records[ref]
		if r.current(ref) != step || s.Word(ref).Is(machine.WordStopping) || s.IsLeft() || r.putsOff(w.now) {
			s.Unlock()
			return w.finishPlain(value, err)
		}
		rec.active, rec.end = activeNone, w.now
		if value != nil {
			rec.value = value
		}
		if len(r.extras) > 0 {
			r.fold(ref)
		}
		s.Complete(ref)
		next, ok := noRef, false
		if r.tree == nil && r.durable == nil && !s.IsObserved() { // in all other cases, release must be called after each node
			next, ok = s.NextPlain()
		}
		if !ok {
			return w.take()
		}
		rec = &r.records[next]
		step = &rec.first
		step.run, step.ref, step.attempt = r, next, 1
		rec.active, rec.attempts, rec.start = activeFirst, 1, w.now
		w.step, w.task.Ref = step, next
		if r.log != nil {
			r.flush(w.now)
		}
		s.Announce()
		s.Unlock()
	}
}

// attemptAndFinish and finishPlain are separate functions to keep frames small. A goroutine begins with 2 kB of stack, and enlarging the stack
// takes as long as performing ten nodes.
//
//go:noinline
func (w *worker) attemptAndFinish() (more bool) { return w.finish(w.attempt(), true) }

//go:noinline
func (w *worker) finishPlain(value any, err error) (more bool) {
	return w.finish(attemptResult{value: value, err: err}, true)
}

// exit is called when the worker ends. If user code has called runtime.Goexit, the attempt or the check fails; a guard with GuardSkip skips its
// node instead. Another worker does the remaining work. Without a Goexit, exit does nothing.
func (w *worker) exit() {
	if w.phase != phaseUser {
		return
	}
	w.phase = phaseEngine
	w.now = w.run.now()
	switch {
	case w.failed != nil: // the fallback has called Goexit
		w.finishFallback(conclusion{Outcome: machine.Outcome{Status: Failed, Cause: CauseGoexit}, err: errors.Join(w.failed.err, ErrGoexit)}, false)
		return
	case w.step != nil:
		w.finish(attemptResult{err: ErrGoexit, kind: CauseGoexit}, false)
		return
	}
	w.run.st.Lock()
	if !w.endCheck() {
		w.run.st.Unlock()
		return
	}
	w.run.ringDue(w.now)
	res := checkResult{verdict: machine.CheckVerdict{Fail: CauseGoexit}, err: ErrGoexit}
	if w.guarding {
		res = w.run.plan.guarded(w.task.Ref, false, ErrGoexit)
		res.guard.path = w.run.path(w.task.Ref)
		if res.verdict == (machine.CheckVerdict{}) { // the guard allowed the node, but the goroutine that would check the inputs has ended
			res.guard.policy, res.verdict.Fail, res.err = GuardFail, CauseConditionError, ErrGoexit
		}
	}
	w.run.settleCheck(w.task.Token, res, w.now)
	w.leave()
}

// take takes the next task and releases the lock, which the caller holds. If there are more tasks, the State announces them. If take returns
// false, the run no longer counts this worker, and the worker must return.
func (w *worker) take() bool {
	r := w.run
	s := &r.st
	w.evaluated()
	if r.single != nil && r.durable != nil {
		r.flush(w.now) // whether a task must wait for a write depends on the changes of the worker's last task, see Run.awaitsWrite
	}
	// While the run halts (see single.halts), no task starts. A run halts until the task without a slot has been evaluated, until the store has
	// written the change for which a task waits, or until the interrupted attempt has returned or was abandoned.
	if r.isLost() || r.single.halts() || !r.life().mayTake(r, w.now) {
		w.leave()
		return false
	}
	s.Advance(w.now)
	t, alone, ok := r.order().next(r, w.now)
	if !ok {
		w.leave()
		return false
	}
	w.task, w.step, w.alone, w.way = t, nil, alone, wayCheck
	switch {
	case !t.Check:
		before := r.records[t.Ref].attempts
		w.step = r.beginAttempt(t, w.now)
		if r.plan.net.Is(t.Ref, machine.FlagComposite) {
			w.way = wayFull
			r.beginWhole(t.Ref, before, w.now)
		} else {
			w.way, w.recorded = r.life().begun(w.step, t.Attempt, before, w.now)
		}
		if r.leaving {
			r.boundTest(t.Ref)
		}
	case !t.Returned:
		w.beginCheck()
	}
	if s.OnlyGates() {
		r.order().onlyGates(r, w.now)
	}
	if s.HasNews() || len(r.ending) > 0 || r.tree != nil {
		r.release(w.now)
		return true
	}
	r.order().announce(r)
	s.Unlock()
	return true
}

// beginInside begins a composite.
func (r *Run) beginInside(t machine.Task, now int64) {
	before := r.records[t.Ref].attempts
	step := r.beginAttempt(t, now)
	if step.flags&stepAdmitting != 0 { // the node has a Memo, but the run has none, so the attempt starts at once
		r.records[t.Ref].attempts = step.attempt
		r.st.Admitted(t.Ref)
	}
	r.life().begunInside(r, t.Ref, before, now)
	r.beginComposite(step, nil, now)
}

// The method `leave` makes the run no longer count the worker, and releases the lock.
func (w *worker) leave() {
	w.evaluated()
	w.run.dismiss()
	w.run.release(w.now)
}

// beginAttempt makes the Step of an attempt that the State has started.
func (r *Run) beginAttempt(t machine.Task, now int64) *Step {
	rec := &r.records[t.Ref]
	step := r.last(t.Ref)
	if step.run != nil {
		step = &Step{} // a Step is never reused: it is also a context, and a context may be used after its attempt
	}
	if len(r.extras) > 0 {
		r.forgetExpansion(t.Ref)
	}
	step.run, step.ref, step.attempt = r, t.Ref, t.Attempt
	if r.reentered {
		step.attempt = r.attemptOf(t.Ref, t.Attempt)
		if x := r.extras[t.Ref]; x != nil && x.kept != nil {
			step.flags |= stepAgain
			r.st.Hush(t.Ref)
		}
	}
	if len(r.extras) > 0 && r.doomed(t.Ref) != nil {
		step.flags |= stepCrashed
	}
	r.activate(step)
	if rec.attempts == 0 {
		rec.start = now
	} else {
		r.extra(t.Ref).began = cmp.Or(now, -1) // began is not 0, since 0 means that there was no earlier attempt
	}
	rec.attempts = step.attempt
	if word := r.st.Word(t.Ref); word.Is(machine.WordSubstituted | machine.WordAdmitting) {
		if word.Is(machine.WordSubstituted) {
			step.flags |= stepSubstituted
		}
		if word.Is(machine.WordAdmitting) {
			step.flags |= stepAdmitting
			rec.attempts = 0
		}
	}
	if r.plan.net.Is(t.Ref, machine.FlagCleanup) {
		step.flags |= stepDetached
	}
	if r.plan.net.Is(t.Ref, factTimed) {
		n := r.plan.node(t.Ref)
		if !r.recordsStart(t.Ref) { // if the start is recorded, the timeout begins when the record is written
			r.armTimeout(n, step, false, now)
		}
		r.armOverall(n, step, false)
	}
	return step
}

// last returns the Step of the node's last attempt or fallback in this life of the run. If there is none, it returns the Step for the first attempt,
// whose field run is nil. A composite that was restored with a running attempt has a Step in its extra, and record.first stays unused.
func (r *Run) last(ref machine.Ref) *Step {
	if len(r.extras) > 0 {
		if x := r.extras[ref]; x != nil && x.later != nil {
			return x.later
		}
	}
	return &r.records[ref].first
}

// attemptResult is the result of a call of user code.
type attemptResult struct {
	value any
	err   error
	kind  CauseKind // the kind of err, if it is known without inspecting err

	hit    *event.Hit // set if the value comes from another run; otherwise nil
	judged bool       // whether the contract and the moderator have accepted the value
	inside bool       // whether there is no result yet, because nested runs perform the node
}

// The method `attempt` calls the user's function. If the store must first record the attempt's start, the method waits for the store.
func (w *worker) attempt() (res attemptResult) {
	n := w.run.plan.node(w.task.Ref)
	if w.recorded != nil {
		if res = w.awaitRecord(); res.err != nil {
			return res
		}
	}
	if w.step.flags&stepCrashed != 0 {
		return w.run.resultOfDoom(w.task.Ref)
	}
	w.phase = phaseUser
	switch {
	case !w.run.plan.net.Is(w.task.Ref, factOwn):
		res.value, res.err = w.run.step(w.step, w.step)
	default:
		res = w.own(n)
	}
	w.phase = phaseEngine
	w.now = w.run.now()
	return res
}

// The method `own` performs the attempt of a node that needs more than a call of the host's step function.
func (w *worker) own(n *node) (res attemptResult) {
	if m := w.run.memoOf(w.task.Ref); m != nil {
		w.run.beginReading(w.step)
		if w.step.flags&stepAgain != 0 {
			return w.performOwn(n)
		}
		return m.through(w, func() attemptResult { return w.performForKeeps(n) })
	}
	return w.performOwn(n)
}

// performForKeeps performs an attempt whose output a memo may keep. It judges the output at once, since a memo must not keep a refused output. If the node is a
// composite, performForKeeps judges only the inputs.
func (w *worker) performForKeeps(n *node) attemptResult {
	if w.run.plan.net.Is(w.task.Ref, machine.FlagComposite) {
		res := w.admission()
		res.inside = res.err == nil
		return res
	}
	res := w.performOwn(n)
	if res.err != nil || !w.run.plan.net.Is(w.task.Ref, factJudge) {
		return res
	}
	if refused := w.judgeOutput(res.value); refused.err != nil {
		return refused
	}
	res.judged = true
	return res
}

// performOwn does the same as the method `own`, but without the memo.
func (w *worker) performOwn(n *node) (res attemptResult) {
	r, step := w.run, w.step
	if res = w.admission(); res.err != nil {
		return res
	}
	if r.cfg.test != nil {
		d := r.plan.doubles[step.ref]
		d.called()
		if d.mock != nil {
			return d.mock.perform(n, step)
		}
	}
	switch {
	case n.Kind == KindTrigger:
		res.value = r.payload()
	case n.Test != nil:
		res.value, res.err = r.callTest(step.ref, n)
		if res.err != nil {
			res.value, res.kind = nil, CauseConditionError
		}
	case n.Do != nil && !r.wrapped:
		res.value, res.err = n.Do(step, step)
	default:
		res.value, res.err = r.step(step, step)
	}
	return res
}

// The method `panicked` returns a recovered panic as an error.
func (w *worker) panicked(v any) error {
	err := newPanicError(v) // still in phaseUser: if v is an error, newPanicError calls its method Unwrap
	w.phase = phaseEngine
	return err
}

// protect calls user code outside an attempt, and returns a panic of this code as an error. If the code calls Goexit, the method `exit` handles it.
func (w *worker) protect(f func() error) error {
	was := w.phase
	w.phase = phaseUser
	err := foreign.Contain(f, w.panicked)
	w.phase = was
	return err
}

// checkResult is the result of a check.
type checkResult struct {
	verdict  machine.CheckVerdict
	err      error // the error of a failed check, see verdict.Fail
	guardErr error
	guard    *guardProblem
	merged   map[string]any
	items    *items // the items, if the node is a map
	key      string // the node's key, if the node takes its key from the value of an input
}

// check performs a node's check and takes the next task. If the nested run of a composite has ended, check concludes the composite instead.
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

// evaluation is a check that a worker performs. Guards and merge functions cannot be interrupted. So if the check's node is stopped or the run is
// left, the run waits at most CancelGrace for the worker. A stopped node ends at once, even if its check is still running. While a run is being
// stopped, each check of a cleanup node may take CleanupTimeout.
type evaluation struct {
	alone     bool  // see single.alone
	abandoned bool  // whether the run no longer counts the check's worker
	grace     timer // armed when the node is stopped, the run is left, or a stopped run cleans up
	cleanup   bool  // whether grace is armed for a cleanup node
	armed     bool  // whether grace was ever armed; then a callback of its timer may still refer to the evaluation
}

// beginCheck registers the check. The callers of beginCheck and of endCheck hold the run's lock.
func (w *worker) beginCheck() {
	if w.checking, w.unused = w.unused, nil; w.checking == nil {
		w.checking = &evaluation{}
	}
	w.checking.alone = w.alone
	if w.run.checks == nil {
		w.run.rare().checks = map[machine.Ref]*evaluation{}
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
	if !e.armed {
		w.unused = e
	}
	return true
}

// evaluate checks, in this order, the guard, the merges, the required ports, the key, and the items if the node is a map.
func (w *worker) evaluate() (res checkResult) {
	r, ref := w.run, w.task.Ref
	if n := r.plan.node(ref); n.When != nil {
		pass := true
		w.guarding = true // not reset by a defer, since exit reads it if the guard calls Goexit
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
	if findKey(r, ref, flags&stepSubstituted != 0, &res); res.verdict != (machine.CheckVerdict{}) {
		return res
	}
	return w.checkItems(res, flags)
}

// The method `guarded` turns the result of a guard into the result of the check.
func (p *Plan) guarded(ref machine.Ref, pass bool, err error) (res checkResult) {
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

// warnOfGuard adds a warning about a guard that could not decide, unless the run already has a warning for the same node of the graph. The caller
// holds the run's lock.
func (r *Run) warnOfGuard(ref machine.Ref, problem *guardProblem) {
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

// settleCheck reports the result of a check to the State. The caller holds the run's lock.
func (r *Run) settleCheck(t machine.Token, res checkResult, now int64) {
	if !r.st.Word(t.Ref).Is(machine.WordChecking) || r.isLost() {
		return // the node was stopped meanwhile, or the run has lost its store: the check is repeated when the run continues
	}
	switch {
	case res.guardErr == nil && res.merged == nil && res.key == "":
		if res.items != nil {
			r.extraInside(t.Ref).items = res.items
		}
	default:
		x := r.extra(t.Ref)
		x.guardErr, x.merged, x.items, x.Key = res.guardErr, res.merged, res.items, res.key
		r.bindKey(t.Ref, res.key)
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

// finish ends an attempt. If goOn is set, finish takes the worker's next task before it releases the lock. It reports whether there is a next
// task.
func (w *worker) finish(res attemptResult, goOn bool) bool {
	if res.inside {
		return w.goInside()
	}
	w.phase = phaseUser
	c := w.conclude(res)
	if w.step.flags&stepAgain != 0 {
		c = w.again(c)
	}
	w.phase = phaseEngine
	return w.finishAs(c, res, goOn)
}

// finishAs does the same as finish, for a result whose conclusion is known.
func (w *worker) finishAs(c conclusion, res attemptResult, goOn bool) bool {
	r, step := w.run, w.step
	ref, returned := step.ref, w.now
	step.returned() // called before other goroutines can see the end of the node
	drawn := c.Status == Failed && res.err != errBoardAgain
	if drawn && !w.resumed {
		w.draw(res, &c)
	}
	w.resumed = false
	var cause *stopCause // why the caller's context ended, if it has: the step may have noticed this before the run
	// If goOn is false, user code has called Goexit. Perhaps a method of the caller's context has called it. So callerCause, which calls the context,
	// is not called.
	if r.mayEnd && goOn {
		cause = w.callerCause()
	}
	for waited := r.durable == nil; ; waited = true {
		if mine, more := w.enterEnd(&c, res, goOn, waited); !mine {
			return more
		}
		x := r.extras[ref]
		if c.expand != nil && c.expand.outdated(x) { // a signal for a node inside has arrived
			r.st.Unlock()
			w.phase = phaseUser
			c = w.again(w.conclude(res))
			w.phase = phaseEngine
			continue
		}
		if drawn || x == nil || x.timedOut == timeoutNone {
			break
		}
		r.st.Unlock() // the attempt has timed out, so it has failed, regardless of the result of its step
		w.draw(res, &c)
		drawn = true
	}
	if cause != nil {
		r.outermost().endForContext(cause, w.now)
		if r.outer != nil {
			r.spread()
		}
		r.collectStops()
	}
	r.fold(ref)
	if x := r.extras[ref]; x != nil && x.comp != nil && r.undoesInside(step, x, &c, res, w.now) {
		return w.next(goOn)
	}
	retried, crashes := false, int32(0)
	if x := r.extras[ref]; x != nil || c.Status == Failed {
		if x != nil {
			crashes = x.Crashes
		}
		c, retried = r.amend(step, x, c, w.now)
	}
	if c.expand == nil {
		w.dropFlight()
	}
	switch {
	case retried:
	case c.suspend != nil:
		if r.suspend(step, c.suspend, w.now); c.suspend.run == "" {
			r.extras[ref].texts = &texts{info: w.kept[0], saved: w.kept[1]}
		}
	case c.expand != nil:
		r.expand(step, c.expand, w.now)
		r.armUnspent(step, w.unspent, w.now)
		if x := r.extras[ref]; w.kept[1] != nil || x.texts != nil {
			x.own().texts = &texts{saved: w.kept[1]}
		}
		r.tree.board(place{r, ref}, w.flight)
		w.flight = nil
	case c.Status == Failed && goOn && r.wantsFallback(ref):
		w.beginFallback(c)
		r.extras[ref].Crashes = crashes // undoes amend's change, since the attempt has not ended yet
		r.release(w.now)
		return w.fallback()
	default:
		r.outputText(ref, c.Status, w.kept[0])
		r.settle(step, c, returned)
	}
	return w.next(goOn)
}

// enterEnd takes the lock, so that the worker can end its attempt. Then it rings the due alarms and, in a durable run, waits until the outbox has
// room for the result. If `mine` is false, the worker must not end the attempt now: the attempt was abandoned, the run has lost its store, or the
// result was put off because tasks precede it in the run's order. In that case enterEnd has released the lock, and `more` reports whether the worker
// has taken another task.
func (w *worker) enterEnd(c *conclusion, res attemptResult, goOn, waited bool) (mine, more bool) {
	r, step, failed := w.run, w.step, w.failed
	for w.failed = nil; ; waited = true {
		r.lock()
		if r.records[step.ref].returned {
			w.endWait(c.Status == Failed)
		}
		r.ringDue(w.now)
		switch {
		case r.current(step.ref) != step: // the attempt was abandoned, and the run no longer counts this worker
			w.dropFlight()
			r.release(w.now) // starts the nodes that the alarms have made ready
			return false, false
		case r.isLost():
			w.dropFlight()
			r.drop(step, w.now)
			return false, w.next(goOn)
		case !w.alone && r.putsOff(w.now):
			w.failed = failed
			return false, w.putOff(*c, res, goOn)
		}
		if c.expand != nil && !waited {
			w.unspent = step.unspent(w.now)
		}
		if waited || !w.awaitRoom(r.sizeOf(c, &w.kept)) {
			return true, false
		}
	}
}

// next takes the worker's next task if goOn is set. Otherwise it makes the run no longer count the worker. In both cases next releases the lock.
func (w *worker) next(goOn bool) bool {
	if goOn {
		return w.take()
	}
	w.leave()
	return false
}

// callerCause returns why the caller's context ended, or nil if it has not ended. A context that panics counts as ended.
func (w *worker) callerCause() (cause *stopCause) {
	err := w.protect(func() error {
		if w.run.ctx.Err() != nil {
			cause = callerCause(w.run.ctx)
		}
		return nil
	})
	if err != nil {
		cause = &stopCause{err, context.Canceled}
	}
	return cause
}

var errAbandoned = errors.New("abandoned: the step ignored its context")

// launch starts a worker that the run has already counted. The caller holds the run's lock.
func (r *Run) launch() {
	if h := r.manual; h != nil {
		h.jobs = append(h.jobs, r)
		return
	}
	if r.tree != nil && !r.tree.mayLaunch(r) {
		return
	}
	if r.worker == nil {
		r.worker = r.work // allocated once for all workers
	}
	go r.worker()
}
