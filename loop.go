package kahn

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/internal/saturate"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Loop performs a node's Sub repeatedly. Each iteration is a new nested run. After each iteration a test decides whether another iteration follows.
// There is at least one iteration. The output of the last iteration is the output of the node, unless Collect is set.
//
// The root inputs of an iteration are the node's parameters and the input "iteration", which is the number of the iteration, counted from 1. From the
// second iteration on, the input "previous" is the output of the previous iteration. If an iteration fails, the node fails with [CauseSubrun]. A
// retry of the node begins with the first iteration. The node's OverallTimeout and Timeout bound all iterations together.
type Loop struct {
	// While and Until are tests. The loop continues as long as While returns true, or until Until returns true. Exactly one of While, Until and
	// UntilExpr must be set. The test sees all nodes of the ended iteration, and the iteration's root inputs. If the test returns an error or panics,
	// the node fails with [CauseConditionError].
	While func(View) (bool, error)
	Until func(View) (bool, error)
	// UntilExpr is an alternative to Until: an expression that the graph's Evaluator parses. The loop ends when [Truthy] returns true for the
	// value of the expression.
	UntilExpr string
	// MaxIterations is the largest number of iterations. It must be positive.
	MaxIterations int
	// OnLimit selects what happens if the test demands another iteration after MaxIterations iterations. Default: [LoopFail].
	OnLimit LoopLimit
	// Collect makes the output of the node an []any with the outputs of all iterations.
	Collect bool
	// Pause is the time that the loop waits between two iterations; zero means that it does not wait. A loop that pauses holds no slot, and the event
	// node.paused reports the pause. Stops and timeouts end the pause at once. The pause also passes while no process performs the run, so a resumed run
	// waits only for the rest of the pause. A resumed run does not call the loop's test again.
	Pause time.Duration
}

// LoopLimit selects what happens if the test of a loop demands another iteration after MaxIterations iterations.
type LoopLimit uint8

// The values of LoopLimit.
const (
	LoopFail LoopLimit = iota // the loop fails with [CauseLoopLimit] and an error that matches [ErrLoopLimit]
	LoopStop                  // the loop completes

	loopLimitCount
)

var loopLimitNames = enum.Of[LoopLimit]("loop limit", "fail", "stop")

// String returns the name of l: "fail" or "stop".
func (l LoopLimit) String() string { return loopLimitNames.Name(l) }

// MarshalText encodes l as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (l LoopLimit) MarshalText() ([]byte, error) { return loopLimitNames.Text(l) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (l *LoopLimit) UnmarshalText(text []byte) error { return loopLimitNames.Parse(l, text) }

// ErrLoopLimit is matched by the error of a loop that fails because it has reached its MaxIterations.
var ErrLoopLimit = errors.New("loop limit reached")

func (l *Loop) check(n *node, bad report) {
	tests := 0
	for _, set := range []bool{l.While != nil, l.Until != nil, l.UntilExpr != ""} {
		if set {
			tests++
		}
	}
	switch {
	case n.Sub == nil:
		bad(ErrBadValue, "Loop", "a loop needs a Sub to repeat")
	case n.Map != nil:
		bad(ErrBadValue, "Loop", "it is both a map and a loop")
	case tests != 1:
		bad(ErrBadValue, "Loop", "a loop has exactly one of While, Until and UntilExpr")
	case l.MaxIterations <= 0:
		bad(ErrBadValue, "Loop.MaxIterations", "Loop.MaxIterations %d is not positive: a loop must have a bound", l.MaxIterations)
	case l.OnLimit >= loopLimitCount:
		text, _ := wrong(enumField{"Loop.OnLimit", int(l.OnLimit), loopLimitNames.Names()})
		bad(ErrBadValue, "Loop.OnLimit", "%s", text)
	case l.Pause < 0:
		bad(ErrBadValue, "Loop.Pause", "Loop.Pause %v is negative", l.Pause)
	}
}

// The method `again` returns the loop's test as a function. This function returns true if another iteration follows.
func (l *Loop) again(parsed Expression) func(View) (bool, error) {
	switch {
	case l.While != nil:
		return l.While
	case l.Until != nil:
		return func(v View) (bool, error) {
			done, err := l.Until(v)
			return !done, err
		}
	}
	return func(v View) (bool, error) {
		value, err := evaluate(parsed, v)
		return err == nil && !Truthy(value), err
	}
}

// iterationRun makes the nested run of one iteration of a loop. The argument `previous` is the output of the previous iteration.
func (r *Run) iterationRun(step *Step, number int, previous any) *Run {
	prefix := fmt.Sprintf("%s#%d/", r.path(step.ref), number)
	c := r.nested(step, r.plan.sub(step.ref), prefix, int32(number))
	c.round = &round{number, previous}
	c.setKeys()
	return c
}

// The type `iterations` is the combined result of the completed iterations of a loop.
type iterations struct {
	degraded int   // the number of the first degraded iteration; 0 for none
	last     any   // the output of the last completed iteration
	all      []any // the outputs of all iterations, if the loop collects them
}

// The method `with` returns the result with the completed iteration c added.
func (it iterations) with(c *Run, collect bool) iterations {
	if it.degraded == 0 && c.verdict.degraded {
		it.degraded = c.iteration
	}
	it.last = c.output()
	if collect {
		it.all = append(it.all, it.last)
	}
	return it
}

// ofIteration is called after the run of an iteration has ended. If another iteration follows, `more` is true, and soFar is the result of all
// iterations until now. Otherwise ofIteration returns the conclusion of the loop.
func (w *worker) ofIteration(comp *composite) (c conclusion, soFar iterations, more bool) {
	r, ref, child := w.run, w.task.Ref, comp.child
	n := r.plan.node(ref)
	if child.verdict.status != RunCompleted {
		return w.ofChild(child), soFar, false
	}
	soFar = comp.before.with(child, n.Loop.Collect)
	again := false
	err := w.protect(func() (err error) {
		again, err = r.callLoop(ref, child)
		return err
	})
	err = child.slip(everyNode, err)
	switch {
	case err != nil:
		return w.failure(attemptResult{err: bounded(err), kind: CauseConditionError}), soFar, false
	case again && child.iteration < n.Loop.MaxIterations:
		return conclusion{}, soFar, true
	case again && n.Loop.OnLimit == LoopFail:
		err := fmt.Errorf("%w: %d iterations", ErrLoopLimit, child.iteration)
		return conclusion{Outcome: machine.Outcome{Status: Failed, Cause: CauseLoopLimit}, err: err, noRetry: event.NoRetryCause}, soFar, false
	}
	value := soFar.last
	if n.Loop.Collect {
		value = soFar.all
	}
	c = w.conclude(attemptResult{value: value})
	c.Degraded = soFar.degraded > 0 && c.Status == Completed
	return c, soFar, false
}

// The method `iterate` begins the next iteration of a loop, or the pause before this iteration. It then returns true, and holds the run's lock. If
// the loop must stop, iterate returns the conclusion of the loop and false. If the attempt of the loop was abandoned, it returns an empty conclusion
// and false. If iterate returns false, it does not hold the lock.
func (w *worker) iterate(comp *composite, soFar iterations) (c conclusion, begun bool) {
	r, ref, step := w.run, w.task.Ref, w.step
	s := &r.st
	s.Lock()
	if r.current(ref) != step { // the attempt was abandoned; finish also checks this
		s.Unlock()
		return c, false
	}
	kind := r.stoppedFor(ref)
	if s.Word(ref).Is(machine.WordStopping) || r.extras[ref].timedOut != timeoutNone || kind != CauseNone && !r.plan.net.Is(ref, machine.FlagCleanup) {
		c = r.stoppedLoop(ref)
		s.Unlock()
		return c, false
	}
	w.now = r.now()
	r.disarm(&r.extras[ref].grace) // the test returned before the grace ended
	comp.own().before = soFar
	p := &pause{next: comp.child.iteration + 1, failed: comp.child.failedGroups.all()}
	d := r.plan.node(ref).Loop.Pause
	if d <= 0 {
		r.nextIteration(step, comp, p, w.now)
		return c, true
	}
	p.due = saturate.Add(w.now, int64(d))
	comp.own().pause, comp.working = p, false
	r.event(entry{kind: evNodePaused, ref: ref, attempt: r.records[ref].attempts, at: w.now, arg: event.Pause{Iteration: comp.child.iteration, Delay: d}})
	r.awaitIteration(ref, w.now)
	return c, true
}

// stoppedFor returns the cause for which the run was stopped. If the run was not stopped, but a draining stop lets the loop finish only its current
// iteration, stoppedFor returns the cause of this stop. Otherwise it returns CauseNone.
func (r *Run) stoppedFor(ref machine.Ref) CauseKind {
	if w := r.st.Word(ref); w.Is(machine.WordDraining) && r.st.StoppedFor() == CauseNone {
		return w.Kind()
	}
	return r.st.StoppedFor()
}

// stoppedLoop returns the conclusion of a loop that must stop before its next iteration. If stoppedFor returns a cause, the conclusion has this
// cause. Otherwise the conclusion is a failure that is not final: when the node is settled, the timeout or the stop of the loop decides the outcome.
// The caller holds the run's lock.
func (r *Run) stoppedLoop(ref machine.Ref) conclusion {
	c := conclusion{Outcome: machine.Outcome{Status: Failed, Cause: CauseStepError}, err: ErrAborted, noRetry: event.NoRetryStopping}
	if r.extras[ref].timedOut != timeoutNone {
		c.err = ErrTimeout
	}
	if kind := r.stoppedFor(ref); kind != CauseNone {
		c.Outcome = machine.Outcome{Status: kind.StopStatus(), Cause: kind}
	}
	return c
}

// nextIteration begins the next iteration of a loop, at once or after a pause. The caller holds the run's lock.
func (r *Run) nextIteration(step *Step, comp *composite, p *pause, now int64) {
	next := r.iterationRun(step, p.next, comp.before.last)
	for _, f := range p.failed {
		if !next.plan.declaresGroup(f.Group) {
			failed, _ := next.failedGroups.with(f)
			next.setFailedGroups(failed)
		}
	}
	if c := comp.child; c != nil && c.st.AllowsUndo() {
		comp.own().past = append(comp.own().past, c)
	}
	r.beginChild(comp, next, now)
}

// A pause is the time between two iterations of a loop. During the pause the loop is still running in the State, so a stop reaches the loop. The
// pause keeps the run from being suspended, unless the run is being left.
type pause struct {
	next   int            // the number of the next iteration
	due    int64          // the time when the next iteration begins, in ns since the run's start
	failed []groupFailure // the groups with a member that failed in this attempt of the loop
	over   bool           // whether the pause was interrupted; then a worker concludes the loop
}

// awaitIteration arms the alarm that ends the pause of a loop and begins the next iteration.
func (r *Run) awaitIteration(ref machine.Ref, now int64) {
	x := r.extra(ref)
	p := x.comp.pause
	x.backoff = r.afterAsStored(time.Duration(p.due-now), func(now int64) {
		step := r.current(ref)
		if step == nil || x.comp.pause != p || p.over {
			return // the loop was stopped during the pause
		}
		r.wake(now) // the run may be suspended by now if it is being left: see endBackoff
		x.comp.own().pause = nil
		r.nextIteration(step, x.comp, p, now)
	})
}

// pauses reports whether the node is a loop that waits for its next iteration. It returns false for an interrupted pause, which stays in the composite
// until the next attempt of the loop: the loop is then being concluded, waits for another attempt or has ended.
func (x *extra) pauses() bool { return x.comp != nil && x.comp.pause != nil && !x.comp.pause.over }

// interruptPause ends the pause of a loop that must stop. After that a worker concludes the loop, as after an iteration.
func (r *Run) interruptPause(ref machine.Ref, x *extra) {
	if p := x.comp.pause; !p.over {
		p.over = true
		r.disarm(&x.backoff)
		r.returnedTo(ref)
	}
}

// continuePause continues the pause of a loop when the run is restored from a snapshot or a store.
func (r *Run) continuePause(ref machine.Ref, x *extra, now int64) {
	switch {
	case x.comp.pause.over:
	case r.st.Word(ref).Is(machine.WordStopping|machine.WordDraining) || x.timedOut != timeoutNone:
		r.interruptPause(ref, x)
	default:
		r.awaitIteration(ref, now)
	}
}

// Iteration returns the number, from 1, of the current iteration of the innermost loop around the step; 0 outside
// loops.
func (s *Step) Iteration() int {
	if c := s.given(); c != nil {
		return c.View.Iteration
	}
	s.read(readLoop, "")
	return s.run.innermostIteration()
}

// Iteration returns the number, from 1, of the current iteration of the innermost loop around the node; 0 outside loops.
// In the test of a loop, Iteration returns the number of the ended iteration.
func (v View) Iteration() int {
	if v.data != nil {
		return v.data.Iteration
	}
	v.reads(readLoop, "")
	return v.run.innermostIteration()
}

func (r *Run) innermostIteration() int {
	for ; r != nil; r = r.outer {
		if r.iteration > 0 {
			return r.iteration
		}
		r.seen.note(readLoop, "")
	}
	return 0
}
