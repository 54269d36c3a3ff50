package kahn

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// Execute runs the graph. It returns when the run has ended, is suspended or was left, and all goroutines of the run have returned. But it abandons
// an attempt that ignores the end of its context for longer than [CancelGrace], and a sink that is busy so long, but at least a second, after the
// run's end. The Result names both.
//
// The function step performs each node that has neither a Do nor a Test, and is neither a gate, a trigger nor a sub-graph. If there is no such node,
// step may be nil. All ready steps run at once, on several goroutines, unless the graph or an option such as [Limit] bounds them. When ctx ends, the
// run is cancelled. A durable run is left instead: see [Durable].
//
// The error is nil if the run completed or is suspended, see [Gate]. If the run failed or was cancelled, Execute returns the Result and a
// [*RunError]. If the run was left because ctx ended, Execute returns the Result and an error that matches [ErrLeft] and the cause. If the run did
// not begin, the Result is nil. The error then matches an error of [Graph.Compile], [ErrNoContext], [ErrNoGraph], [ErrNoStep], [ErrMissingInput],
// [ErrUnknownInput] (see [InputError]), [ErrNoModerator], [ErrUnknownKind] (see [Kinds]), [ErrBadOption], [ErrNotEncodable] or one of the store.
func Execute(ctx context.Context, g *Graph, step StepFunc, opts ...Option) (*Result, error) {
	p, err := g.Compile()
	if err != nil {
		return nil, err
	}
	return p.Execute(ctx, step, opts...)
}

// Start begins a run as [Execute] does, but returns without waiting for the run's end. Start returns an error if the run does not begin. Unlike
// Execute, Start keeps the run's events for [Run.Events], as many as [Retain] permits.
func Start(ctx context.Context, g *Graph, step StepFunc, opts ...Option) (*Run, error) {
	p, err := g.Compile()
	if err != nil {
		return nil, err
	}
	return p.Start(ctx, step, opts...)
}

// Execute runs the plan, as the function [Execute] runs a graph.
func (p *Plan) Execute(ctx context.Context, step StepFunc, opts ...Option) (*Result, error) {
	return p.execute(ctx, step, opts, false)
}

// Start begins a run of the plan, as the function [Start] begins a run of a graph.
func (p *Plan) Start(ctx context.Context, step StepFunc, opts ...Option) (*Run, error) {
	r, _, err := p.run(ctx, step, opts, true, false)
	return r, err
}

// Enqueue begins or continues a durable run, but writes only the first transaction. It performs no node, so it needs no step functions. Afterwards
// any process can perform the run, with [Runner.Serve] or [Start]. Use Enqueue, for example, to redrive or fork a run that other processes then
// perform. Package bulk does so for all runs that a filter selects. Enqueue takes the options of Start. If the option [Durable] is missing, the
// error matches [ErrBadOption].
//
// The argument `listed` is nil, or the run as its store has listed it. If the status of the stored run has changed since then, Enqueue leaves the run
// unchanged, and the error matches [ErrTransition].
func (p *Plan) Enqueue(ctx context.Context, listed *store.Run, opts ...Option) error {
	return p.write(ctx, append(slices.Clone(opts), optionFunc(func(c *config) error {
		if c.store == nil {
			return fmt.Errorf("%w: Enqueue is for a durable run: see Durable", ErrBadOption)
		}
		c.listed = listed
		return nil
	})))
}

// write begins or continues a run, writes its first transaction, and releases the lease. It performs no node.
func (p *Plan) write(ctx context.Context, opts []Option) error {
	r, _, err := p.run(ctx, nil, append(opts, optionFunc(func(c *config) error {
		c.idle = true
		return nil
	})), false, false)
	if err == nil {
		_, err = r.Wait()
	}
	return err
}

// execute begins a run and waits for it. If a run with the same idempotency key exists, execute joins that run instead. When the context of a joined
// caller ends, this caller stops waiting, and the run continues. If a durable run is left because the first caller's context has ended, a joined
// caller continues the run.
func (p *Plan) execute(ctx context.Context, step StepFunc, opts []Option, readable bool) (*Result, error) {
	for {
		r, joined, err := p.run(ctx, step, opts, readable, true)
		if err != nil {
			return nil, err
		}
		if joined {
			select {
			case <-r.Done():
			case <-ctx.Done():
				return nil, bounded(context.Cause(ctx))
			}
		} else {
			r.attend()
		}
		res, err := r.Wait()
		if !joined || !r.freesKey() || ctx.Err() != nil {
			return res, err
		}
		c, failed := configure(opts, readable)
		if failed != nil || !sameStore(r.cfg.store, c.store) || c.runID != "" && c.runID != r.ID() {
			return res, err
		}
		opts = append(slices.Clone(opts), RunID(r.ID())) // the first caller's context has ended, but this caller's context has not
	}
}

// The method `run` begins a run, or finds the existing run with the same idempotency key. If `readable` is true, the caller returns the Run to the
// host, and the host may read the run's events. If `attended` is true, the caller calls attend.
func (p *Plan) run(ctx context.Context, step StepFunc, opts []Option, readable, attended bool) (_ *Run, joined bool, _ error) {
	if ctx == nil {
		return nil, false, ErrNoContext
	}
	if !p.isCompiled() {
		return nil, false, ErrNoGraph
	}
	cfg, err := configure(opts, readable)
	if err != nil {
		return nil, false, err
	}
	if cfg.given != nil {
		cfg.given.plan, cfg.given.step = p, step
	}
	r := newRun(p, cfg)
	r.step, r.stepless, r.ctx, r.base = step, step == nil, ctx, ctx
	r.unheld, r.attended, r.manual = !readable || cfg.served, attended, cfg.manual
	if t := r.cfg.test; t != nil {
		if err := t.validate(p); err != nil {
			return nil, false, err
		}
	}
	if err := r.choosePlan(); err != nil {
		return nil, false, err
	}
	// The trigger decides which nodes the run has. If the trigger may come from the store, fromStore checks the nodes after it has loaded the run.
	if r.cfg.store == nil || r.cfg.fired != nil || r.plan.prunes == nil {
		if err := r.checkPerformers(r.plan, nil); err != nil {
			return nil, false, err
		}
	}
	if err := r.wrap(); err != nil {
		return nil, false, err
	}
	if !r.cfg.defaultRetry.isZero() {
		r.cfg.defaultRetry = r.cfg.defaultRetry.withDefaults()
	}
	mayEnd, ended, err := askCaller(ctx)
	switch {
	case err != nil: // a method of the context has failed, so the store must not get this context
		return nil, false, err
	case ended != nil && r.isLeftByCaller() && !cfg.idle:
		return nil, false, callerLeft(ended)
	}
	from, err := r.origin()
	if err != nil {
		return nil, false, err
	}
	if other, err := r.reserve(); err != nil || other != nil {
		return other, other != nil, err
	}
	from, now, err := r.take(from)
	switch {
	case err != nil:
		if _, ended, _ := askCaller(ctx); ended != nil && r.isLeftByCaller() && errors.Is(err, ended.is) {
			err = fmt.Errorf("%w: %w", ErrLeft, err)
		}
		return nil, false, err
	case r.cfg.refused != nil: // the run ends like a pending run that is cancelled
		r.followInbox(false)
		_ = r.Cancel(*r.cfg.refused) // cannot fail, since Cancel fails only for a run at rest
		return r, false, nil
	case !now: // the run stays pending
		if mayEnd {
			r.followCaller()
		}
		r.followInbox(false)
		return r, false, nil
	}
	if cfg.idle {
		r.followInbox(false)
		r.Leave()
		return r, false, nil
	}
	r.followInbox(true)
	r.begin(from, 0)
	return r, false, nil
}

// The method `reserve` reserves the run's idempotency key and, under a Runner, the run's id. While the id is reserved, the Runner begins no other run
// with this id. If the caller can join an existing run with this key, reserve returns that run and reserves nothing.
func (r *Run) reserve() (other *Run, err error) {
	s, rn := r.cfg.idempotency, r.cfg.runner
	if s != nil {
		if other, err = s.reserve(r); err != nil || other != nil {
			return other, err
		}
	}
	if rn != nil {
		if err = rn.reserve(r.ID()); err != nil && s != nil {
			s.settle(r, nil)
		}
	}
	return nil, err
}

// take acquires the lease of a run whose key and id are reserved, prepares the run, and asks the Runner to admit it. The bool reports whether the run
// begins now; otherwise it stays pending.
func (r *Run) take(from *restoration) (_ *restoration, now bool, err error) {
	var entry *idempotent
	taken := false
	defer func() { // deferred, so that it also runs if the store or a codec calls Goexit
		if !taken {
			if left := r.discard(); left != nil {
				err = errors.Join(err, left)
			}
		}
		if s := r.cfg.idempotency; s != nil {
			s.settle(r, entry)
		}
	}()
	if r.cfg.store != nil {
		if from, err = r.fromStore(); err != nil {
			return nil, false, err
		}
	}
	var claim *idempotent
	if r.cfg.idempotency != nil {
		if claim, err = newIdempotent(r); err != nil { // newIdempotent reads the graph and the inputs with which the run continues
			return nil, false, err
		}
	}
	r.prepare(from)
	now = true
	if r.cfg.runner != nil {
		if now, err = r.cfg.runner.admit(r, from); err != nil {
			return nil, false, err
		}
	}
	taken, entry = true, claim
	return from, now, nil
}

// checkPerformers returns an error if the nodes of the plan need a step function, a moderator or a kind that the run does not have. The plan is the
// run's own plan, or the plan of a graph into which a node expands. In the second case, in test mode, `within` is the node's double; otherwise
// `within` is nil.
func (r *Run) checkPerformers(p *Plan, within *double) error {
	if r.cfg.idle {
		return nil
	}
	stepless, moderated := p.stepless, p.moderated
	if t := r.cfg.test; t != nil && p.tested == nil {
		stepless, moderated = t.leftSteps(p, within), t.leftModerated(p, within)
	}
	if r.stepless && len(stepless) > 0 {
		return fmt.Errorf("%w: %s needs one", ErrNoStep, p.some(stepless, (*Plan).needsStep, r.cfg.test == nil))
	}
	if r.cfg.moderator == nil && len(moderated) > 0 {
		return fmt.Errorf("%w: %s asks for one", ErrNoModerator, p.some(moderated, (*Plan).needsModerator, r.cfg.test == nil))
	}
	if r.cfg.kinds != nil {
		var kinds []string
		if err := contain(func() error { kinds = r.cfg.kinds.Kinds(); return nil }); err != nil {
			return fmt.Errorf("%w: Kinds: %w", ErrBadOption, err)
		}
		m, _ := r.cfg.kinds.(Mux)
		return p.checkKinds(m, kinds, r.cfg.test, within)
	}
	return nil
}

// The method `some` returns a text that names the first of the nodes. If `deep` is true and this node is a composite, the text names a node inside it
// instead: the first that the function `of` returns for the plan inside. If that node is a composite, too, `some` continues inside that node, and so
// on. In test mode `deep` is false, since the composite may be mocked.
func (p *Plan) some(nodes []machine.Ref, of func(*Plan) []machine.Ref, deep bool) string {
	path, at, r := p.names[nodes[0]], p, nodes[0]
	for deep && at.sub(r) != nil && len(of(at.sub(r))) > 0 {
		if at.node(r).Map != nil {
			path += "[]"
		}
		at = at.sub(r)
		r = of(at)[0]
		path += "/" + at.names[r]
	}
	text := "node " + quoteID(path)
	if len(nodes) > 1 {
		text += fmt.Sprintf(", the first of %d,", len(nodes))
	}
	return text
}

// choosePlan reduces the run's plan to the part for the trigger that has fired, if any. In test mode it then replaces the plan by a plan with mocks.
func (r *Run) choosePlan() error {
	if err := r.fire(); err != nil {
		return err
	}
	r.warn(r.cfg.warnings(r.plan)...)
	if t := r.cfg.test; t != nil {
		r.plan = t.plan(r.plan, nil)
		return errors.Join(t.checkGates(r.plan, nil)...)
	}
	return nil
}

// The method `warnings` returns the warnings about a plan, without the warnings about groups that [Shared] bounds. It adds warnings about options
// whose durations seem to lack a unit, and about node fields that have no effect because the run lacks an option. In test mode it does not warn of
// such fields, since a real run may have the option.
func (c *config) warnings(p *Plan) []error {
	warnings := slices.Clip(p.warnings)
	if c.pool != nil && c.pool.groups != nil {
		warnings = slices.DeleteFunc(slices.Clone(warnings), func(w error) bool {
			problem, ok := w.(*Problem)
			return ok && problem.group != "" && c.pool.groups[problem.group] != nil
		})
	}
	if p.keyed != nil && c.test == nil && c.keyLimit == 0 && c.keyRate == (Rate{}) && !c.pool.boundsKeys() {
		warnings = append(warnings, p.keyed)
	}
	if p.memoized != nil && c.test == nil && c.memo == nil {
		warnings = append(warnings, p.memoized)
	}
	for _, t := range [...]struct {
		name string
		d    time.Duration
	}{{"Timeout", c.timeout}, {"CancelGrace", c.cancelGrace}, {"CleanupTimeout", c.cleanupTimeout}} {
		if lacksUnit(t.d) {
			warnings = append(warnings, fmt.Errorf("%w: %s %v: is its unit missing?", ErrBadOption, t.name, t.d))
		}
	}
	return warnings
}

// discard gives up a reserved run that will not begin. The run may already be prepared.
func (r *Run) discard() error {
	if r.cfg.runner != nil {
		r.cfg.runner.unreserve(r.ID())
	}
	r.leavePool()
	if r.log != nil {
		r.log.close()
	}
	if r.durable == nil {
		return nil
	}
	return r.releaseLease()
}

// The method `origin` returns the state from which a run without a store continues, or nil if the run starts from the beginning. For a run with a
// store, `origin` returns nil, and makes the checks that do not depend on the store. It makes them before Acquire takes the lease. Acquire creates a
// run that the store does not have, and this run stays in the store even if a later check fails.
func (r *Run) origin() (from *restoration, err error) {
	if err := r.cfg.checkEvents(); err != nil {
		return nil, err
	}
	given := r.cfg.inputs
	if r.cfg.store != nil {
		if r.cfg.from != nil && !r.cfg.fork {
			return nil, fmt.Errorf("%w: a run continues from its store or from a snapshot, not from both (Redrive(nil) redrives the run in the store)", ErrBadOption)
		}
		if given != nil { // if no inputs are given, the stored run may have them
			if err := r.plan.checkInputs(given, given); err != nil {
				return nil, err
			}
		}
		return nil, r.keepGiven()
	}
	if r.cfg.from != nil {
		if from, err = r.restoration(nil); err != nil {
			return nil, err
		}
	}
	return from, r.checkOrigin(from, given)
}

// fromStore takes the lease of the run. It returns the stored state, or nil if the run starts from the beginning.
func (r *Run) fromStore() (from *restoration, err error) {
	given := r.cfg.inputs
	if from, err = r.acquire(); err != nil {
		return nil, err
	}
	if r.cfg.refused != nil { // a refused run performs nothing
		return from, nil
	}
	if err = r.checkPerformers(r.plan, nil); err != nil {
		return nil, err
	}
	return from, r.checkOrigin(from, given)
}

// checkOrigin checks the inputs of a run. If the run starts from the beginning, checkOrigin also checks its early signals.
func (r *Run) checkOrigin(from *restoration, given map[string]any) error {
	if from == nil {
		if err := r.earlySignals(); err != nil {
			return err
		}
	}
	return r.plan.checkInputs(given, r.cfg.inputs)
}

// askCaller reports whether a context can end. If the context has ended, askCaller returns the cause. The methods of the context are user code, so
// the caller must not hold the run's lock.
func askCaller(ctx context.Context) (mayEnd bool, ended *stopCause, err error) {
	if t := reflect.TypeOf(ctx); (t == cancelContext || t == timerContext) && ctx.Err() == nil {
		return true, nil, nil // these contexts can end, so askCaller need not call Done, which would allocate a channel
	}
	err = contain(func() error {
		if mayEnd = ctx.Done() != nil; ctx.Err() != nil {
			ended = callerCause(ctx)
		}
		return nil
	})
	if err != nil {
		return false, nil, fmt.Errorf("the context: %w", err)
	}
	return mayEnd, ended, nil
}

// cancelContext and timerContext are the types of the contexts that WithCancel and WithDeadline of package context return. Such a context can end.
var cancelContext, timerContext = func() (cancel, timer reflect.Type) {
	ended, stop := context.WithCancel(context.Background())
	stop()
	late, stop := context.WithTimeout(context.Background(), time.Hour)
	stop()
	return reflect.TypeOf(ended), reflect.TypeOf(late)
}()

// attend waits for the run on the goroutine of Execute. When the caller's context ends, attend stops or leaves the run; for runs without attend,
// followCaller does this. The context's methods are user code. If one of them panics or calls Goexit, the context counts as ended.
func (r *Run) attend() {
	runtime.Gosched() // lets the worker go first: a run of a few fast steps takes less time than the wait below
	if r.isOver() {
		return
	}
	cause := callerGone
	defer func() {
		if cause != nil {
			r.endAttended(cause)
		}
	}()
	err := contain(func() error {
		ended := r.ctx.Done()
		if ended == nil { // the context cannot end, so it never stops the run
			cause = nil
			return nil
		}
		select {
		case <-r.Done():
			cause = nil
		case <-ended:
			cause = callerCause(r.ctx)
		}
		return nil
	})
	if err != nil {
		cause = &stopCause{err, context.Canceled}
	}
}

// endAttended stops or leaves a run for which Execute no longer waits.
func (r *Run) endAttended(cause *stopCause) {
	now := r.now()
	r.st.Lock()
	if !r.concluded() {
		r.endForContext(cause, now)
	}
	r.release(now)
}

// followCaller makes sure that the run is stopped or left when the caller's context ends. When the run has concluded, leaveCaller stops
// this. Both functions may call methods of the context, so the caller must not hold the run's lock.
func (r *Run) followCaller() {
	s := &r.st
	s.Lock()
	if r.attended || r.followed || r.concluded() {
		s.Unlock()
		return
	}
	r.followed = true
	r.timers++
	s.Unlock()
	var unfollow func() bool
	cause := callerGone
	defer func() {
		if unfollow == nil {
			r.endFollow(func(now int64) { r.endForContext(cause, now) })
			return
		}
		s.Lock()
		r.rare().unfollow = unfollow
		r.release(r.now()) // also concludes a run that has already ended
	}()
	err := contain(func() error {
		unfollow = context.AfterFunc(r.ctx, r.callerEnded)
		return nil
	})
	if err != nil {
		cause = &stopCause{err, context.Canceled}
	}
}

// callerEnded runs on a separate goroutine when the caller's context has ended.
func (r *Run) callerEnded() {
	cause := callerGone
	defer func() { r.endFollow(func(now int64) { r.endForContext(cause, now) }) }()
	if err := contain(func() error { cause = callerCause(r.ctx); return nil }); err != nil {
		cause = &stopCause{err, context.Canceled}
	}
}

// endFollow records that the run no longer follows its caller's context, and calls f under the run's lock unless the run has ended. Only the first
// call of endFollow has an effect.
func (r *Run) endFollow(f func(now int64)) {
	if r.unfollowed.CompareAndSwap(false, true) {
		r.callback(f)
	}
}

// leaveCaller stops following the caller's context. If the context has already ended, callerEnded calls endFollow instead.
func (r *Run) leaveCaller(unfollow func() bool) {
	left := true // stays true if unfollow panics or calls Goexit
	defer func() {
		if left {
			r.endFollow(func(int64) {})
		}
	}()
	_ = contain(func() error { // the run has ended, so a panic has no effect on it
		left = unfollow()
		return nil
	})
}
