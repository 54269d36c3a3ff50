package kahn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Coordinator lets a host drive a run itself, for example from a workflow of a distributed engine, an event loop or a simulation. A Coordinator has
// no goroutines, no clock and no context: the host calls the steps, reports their results and sets the time. docs/driving.md shows the host's loop.
//
// A run under a Coordinator has the same statuses, events, snapshots and Result as under [Execute]. This also holds for a run with composites,
// retries, timeouts, limits and gates. With the options [RunID] and [Random], two runs behave in the same way if the host passes the same options,
// results and times in the same order.
//
// Only one goroutine at a time may call a Coordinator; a call during another call panics. A method of a Coordinator may call the sinks, the codec,
// and the functions in the graph and in options. These must not call the Coordinator. Any goroutine may call the methods of the [Run]. Attempts and
// events that result from these methods may wait for the next call of the Coordinator, see [Coordinator.Wake]. After the channel of [Run.Done] is
// closed, the host must call [Coordinator.Result]. [Run.Wait] may wait for this call: only a goroutine that never calls the Coordinator may use it.
type Coordinator struct {
	run *Run
	h   *manual
}

// NewCoordinator begins a run at the given time. With the option [Resume] it continues a run from a snapshot. The run then repeats the calls that
// were in flight, unless the snapshot comes from [Coordinator.Snapshot]. The nodes need no Do, because the host calls the steps.
//
// NewCoordinator returns the errors of [Plan.Start]. The error also matches [ErrBadOption] if the time is before the year 1 or after the year 9999,
// because JSON cannot express this time. The options [CancelWithContext], [Durable], [Idempotent], [*Memo] and [Use] are refused with the same error.
// A Coordinator cannot offer the last four, because they wait for other work or wrap the calls of steps.
func NewCoordinator(p *Plan, now time.Time, opts ...Option) (*Coordinator, error) {
	if y := now.UTC().Year(); y < 1 || y > 9999 {
		return nil, fmt.Errorf("%w: the run would begin in the year %d, which is not from 1 to 9999", ErrBadOption, y)
	}
	h := &manual{start: now, wake: make(chan struct{}, 1), told: make(chan struct{}), calls: map[*Step]inFlight{}}
	manually := optionFunc(func(c *config) error {
		for _, refused := range []struct {
			name string
			set  bool
		}{
			{"Durable", c.store != nil}, {"Idempotent", c.idempotency != nil}, {"Memo", c.memo != nil},
			{"Use", len(c.middleware) > 0}, {"CancelWithContext", c.ctxCancels},
		} {
			if refused.set {
				return fmt.Errorf("%w: a Coordinator does not support %s", ErrBadOption, refused.name)
			}
		}
		c.manual = h
		h.takeClock(p, c)
		return nil
	})
	notCalled := func(context.Context, *Step) (any, error) { return nil, ErrNoStep }
	r, err := p.Start(context.Background(), notCalled, append(opts[:len(opts):len(opts)], manually)...)
	if err != nil {
		return nil, err
	}
	c := &Coordinator{run: r, h: h}
	defer c.enter()()
	h.reverseAgain(r)
	h.settle(r)
	if h.keepsFlight { // the clock of the restored run still shows the time of the snapshot
		h.advance(r, now)
	}
	return c, nil
}

// enter begins a call of the Coordinator, and returns the function that ends the call.
func (c *Coordinator) enter() (exit func()) {
	if c.h == nil {
		panic("the zero Coordinator was used: call NewCoordinator")
	}
	if !c.h.busy.CompareAndSwap(false, true) {
		panic("a method of a Coordinator was called during another call, by a second goroutine or by a function that the Coordinator calls")
	}
	return c.exit
}

func (c *Coordinator) exit() { c.h.busy.Store(false) }

// Result returns what [Execute] would return. It does not wait for the end of the run: if the run has not ended, the error matches [ErrNotEnded].
func (c *Coordinator) Result() (*Result, error) {
	defer c.enter()()
	c.h.settle(c.run)
	select {
	case <-c.h.told:
		return c.run.Wait()
	default:
		return nil, fmt.Errorf("%w: it is %v", ErrNotEnded, c.run.Status())
	}
}

// Run returns the run. With its methods you can read the run's status, events and Snapshot, signal the run and stop it.
func (c *Coordinator) Run() *Run { return c.run }

// Next returns the next attempt that has begun. It returns each attempt once. The host then calls the attempt's step: in this process with the
// Step, or in another process with the result of [Step.Call]. Next also returns attempts to undo a node: see [Step.Compensating] and [Step.Do].
// If Next has already returned all attempts that have begun, ok is false.
func (c *Coordinator) Next() (s *Step, ok bool) {
	defer c.enter()()
	h := c.h
	select {
	case <-h.wake: // no other method removes the message, so a host that calls Due after Next and then waits is woken
	default:
	}
	h.settle(c.run) // only now, after the message was removed: settle reads all earlier changes, and a later change puts a new message into the channel
	for len(h.begun) > 0 {
		s, h.begun = h.begun[0], h.begun[1:]
		if c.waitsFor(s) {
			return s, true
		}
	}
	return nil, false
}

// waitsFor reports whether the run waits for the result of an attempt.
func (c *Coordinator) waitsFor(s *Step) bool {
	if s == nil {
		return false
	}
	x, known := c.h.calls[s]
	if !known {
		return false
	}
	c.run.st.Lock()
	defer c.run.st.Unlock()
	return x.current(s)
}

// Return reports the result of an attempt: the value and the error of the step, or a [*PanicError] for a panic. The value of an attempt to undo a
// node is ignored. Return applies all consequences of the result before it returns. If the run does not wait for the attempt, Return changes nothing
// and its error matches [ErrStale]. For example, the attempt was abandoned, or its result was already reported.
func (c *Coordinator) Return(s *Step, value any, err error) error {
	return c.end(s, attemptResult{value: value, err: err, kind: causeOfEnd(err)})
}

// Crash reports that the host gives up an attempt, because the attempt's process has died too often. If the host repeats the attempt in another
// process instead, it must not call Crash. The node fails with [CauseCrashed], as under [MaxCrashes]: the run does not retry the node, and calls its
// Fallback. If the attempt was to undo the node, the node counts as not undone, and the run does not try again to undo it. The node's error matches
// [ErrCrashed] and err. Crash returns the errors of [Coordinator.Return].
func (c *Coordinator) Crash(s *Step, err error) error {
	switch {
	case err == nil:
		err = ErrCrashed
	case !errors.Is(err, ErrCrashed):
		err = fmt.Errorf("%w: %w", ErrCrashed, err)
	}
	return c.end(s, attemptResult{err: err, kind: CauseCrashed})
}

// end ends an attempt and applies the consequences.
func (c *Coordinator) end(s *Step, res attemptResult) error {
	defer c.enter()()
	if s != nil {
		s = s.known()
	}
	if !c.waitsFor(s) {
		delete(c.h.calls, s)
		if s == nil {
			return fmt.Errorf("%w: the Step is nil", ErrStale)
		}
		return fmt.Errorf("%w: the run does not wait for the result of %v", ErrStale, s)
	}
	x := c.h.calls[s]
	delete(c.h.calls, s)
	if x.undo != nil {
		x.undo.answered(s, res)
		c.h.settle(c.run)
		return nil
	}
	w := x.worker
	w.now = c.run.now()
	c.h.work(w, func() bool { return w.finish(res, true) })
	c.h.settle(c.run)
	return nil
}

// NextStop returns the next attempt whose step the host must stop. It returns each attempt once. context.Cause(s) is the reason why the step must
// stop. After the time of [CancelGrace] the run no longer waits for the attempt's result. If there is no attempt to return, ok is false.
func (c *Coordinator) NextStop() (s *Step, ok bool) {
	defer c.enter()()
	c.h.settle(c.run)
	for {
		c.run.st.Lock()
		if len(c.h.stops) == 0 {
			c.run.st.Unlock()
			return nil, false
		}
		s, c.h.stops = c.h.stops[0], c.h.stops[1:]
		c.run.st.Unlock()
		if x := c.h.calls[s]; !x.told && c.waitsFor(s) { // an attempt may be in the list twice, for example after its timeout and a stop of the run
			x.told = true
			c.h.calls[s] = x
			return s, true
		}
	}
}

// Due returns the time at which the host must call [Coordinator.Advance] next. At this time a timeout, a grace period, a backoff, a pause, a sleep
// (see [SuspendUntil]) or a wait for a [Rate] ends. If the run waits for no time, ok is false.
func (c *Coordinator) Due() (at time.Time, ok bool) {
	defer c.enter()()
	c.h.settle(c.run)
	c.run.st.Lock()
	defer c.run.st.Unlock()
	first, ok := c.h.timers.First()
	if !ok {
		return time.Time{}, false
	}
	return c.run.timeAt(first.Due), true
}

// Wake returns a channel that receives a message when another goroutine has signalled or stopped the run, or has called a similar method of [Run].
// The host then calls [Coordinator.Next], which removes the message and begins the attempts that have become possible. A message may also come
// without a request. A host with one goroutine does not need Wake.
func (c *Coordinator) Wake() <-chan struct{} { return c.h.wake }

// Advance sets the run's clock to now, and does everything that is due by then. For example, it ends backoffs, and stops attempts whose timeout has
// passed. If the clock is already later than now, the clock does not change.
func (c *Coordinator) Advance(now time.Time) {
	defer c.enter()()
	c.h.advance(c.run, now)
}

// Values holds the values of a run that a host drives with a [machine.State]. A State contains only statuses. A [Run] does not need Values. The
// methods of Plan that take Values apply the same rules as a Run. Their results depend only on the plan, the State, the Values and the functions of
// the graph. For a graph with composites, use a [Coordinator].
type Values struct {
	// Root contains the root inputs of the run.
	Root map[string]any
	// Outputs contains the outputs of completed nodes, by the id of the node.
	Outputs map[string]any
	// Errs contains the errors of the nodes that failed by themselves or were stopped, by the id of the node. Other nodes see each error as a
	// [*NodeError]. This NodeError has the number of the attempt only if the error in Errs is itself a [*NodeError].
	Errs map[string]error
	// Merged contains the parameters that [Plan.Check] has merged, by the id of the node.
	Merged map[string]map[string]any
	// Fired says whether a trigger has started the run. If so, Trigger is the payload of the event.
	Fired   bool
	Trigger any
	// Moderator judges the inputs of nodes, like the function of [Moderate]. Without a Moderator, a node fails if its Moderation covers inputs.
	Moderator func(ctx context.Context, phase event.Phase, node *Step, value any) error
}

// Check checks a node that the State has handed out: its guard, merges, required ports, key, input contract and input moderation, in this order. If
// the guard panics, Node.GuardErrors determines what happens to the node. If anything else panics, the node fails.
//
// Pass the verdict to [machine.State.Checked]. err is the reason why the node fails its check, and guardErr is the reason why the guard could not
// decide. merged contains the merged parameters of the node, or is nil if there are none. Put merged into Values.Merged.
func (p *Plan) Check(st *machine.State, r machine.Ref, v *Values) (verdict machine.CheckVerdict, merged map[string]any, err, guardErr error) {
	of := kept{p, (*machine.Locked)(st), v}
	substituted := of.substituted(r)
	var res checkResult
	if n := p.node(r); n.When != nil {
		pass := true
		asks := &asking{of: of, ref: r}
		err := contain(func() (err error) {
			pass, err = n.When(asks.view())
			return err
		})
		res = p.guarded(r, pass, asks.slip(err))
	}
	if res.verdict == (machine.CheckVerdict{}) && p.inputsOf(r) != nil {
		checkInputs(of, r, substituted, contain, &res)
	}
	if res.verdict == (machine.CheckVerdict{}) {
		findKey(of, r, substituted, &res)
	}
	if res.verdict == (machine.CheckVerdict{}) {
		of.judge(r, &res)
	}
	if res.verdict == (machine.CheckVerdict{}) {
		res.verdict.Key = res.key
	}
	return res.verdict, res.merged, res.err, res.guardErr
}

// Inputs returns a node's parameters, by name, and the values that its predecessors delivered, by the predecessor's id: see Params and Upstream of
// [Call]. If the State has asked for a check of the node, call [Plan.Check] before Inputs.
func (p *Plan) Inputs(st *machine.State, r machine.Ref, v *Values) (params, upstream map[string]any) {
	of := kept{p, (*machine.Locked)(st), v}
	return of.params(r, v.Merged[p.names[r]]), of.upstream(r)
}

// Evaluate evaluates a condition with a Test or TestExpr. It returns the answer and the outcome of the attempt. Pass the outcome to
// [machine.State.Settle]. The error is not nil if the outcome is a failure.
func (p *Plan) Evaluate(st *machine.State, r machine.Ref, v *Values) (value any, out machine.Outcome, err error) {
	if p.node(r).Test == nil {
		return nil, machine.Outcome{Status: Failed, Cause: CauseConditionError}, fmt.Errorf("%w: node %s has no test to evaluate", ErrBadValue, quoteID(p.names[r]))
	}
	asks := &asking{of: kept{p, (*machine.Locked)(st), v}, ref: r}
	err = contain(func() (err error) {
		value, err = p.node(r).Test(asks.view())
		return err
	})
	if err = asks.slip(err); err != nil {
		return nil, machine.Outcome{Status: Failed, Cause: CauseConditionError}, bounded(err)
	}
	out, err = p.Conclude(r, value, nil)
	return value, out, err
}

// Conclude returns the outcome of an attempt whose step has returned the value or the error. It checks the value against the node's output contract,
// determines the branches that the value takes or the cause of the error, and recognizes [Skip]. Pass the outcome to [machine.State.Settle], or to
// [machine.State.Suspend] if its status is [Suspended]. The returned error is nil if the status is [Completed]; otherwise it is the reason for the
// status. [Retry.Next] says whether a failed node gets another attempt.
//
// For a gate, pass the answer as the value. If the answer is a [Decision], Conclude uses its Value. Conclude does not check whether the [Gate]
// permits the answer. When the Timeout of a gate has passed, pass "timeout" as the answer. An answer that is not a choice of the gate takes no
// branch.
func (p *Plan) Conclude(r machine.Ref, value any, err error) (machine.Outcome, error) {
	if err != nil {
		return p.concludeError(r, err)
	}
	if p.net.Is(r, machine.FlagGate) {
		value = decisionOf(value).Value
	}
	c := conclusion{Outcome: machine.Outcome{Status: Completed}, value: value}
	kind := CauseConditionError
	err = contain(func() error {
		if violated := p.violated(r, event.PhaseOutput, value); violated != nil {
			kind = CauseContractOutput
			return violated
		}
		if p.net.Router(r) < 0 {
			return nil
		}
		return p.takeBranches(r, p.names[r], &c)
	})
	if e, is := err.(*noMatchError); is {
		kind, err = CauseNoBranchMatch, e.error
	}
	if err != nil {
		return machine.Outcome{Status: Failed, Cause: kind}, bounded(err)
	}
	return c.Outcome, nil
}

func (p *Plan) concludeError(r machine.Ref, err error) (machine.Outcome, error) {
	facts := inspectError(err)
	if facts.unsafe {
		err = bounded(err)
	}
	cause := CauseOf(err)
	switch {
	case cause == CauseExternal && r != p.end:
		return machine.Outcome{Status: Cancelled, Cause: cause}, err
	case facts.skip != nil && r != p.end:
		return machine.Outcome{Status: Skipped}, nil
	case facts.suspend != nil && r != p.end:
		return machine.Outcome{Status: Suspended}, nil
	case cause == CauseNone || cause == CauseExternal: // the end node fails instead of being skipped, suspended or cancelled
		cause = CauseStepError
	}
	return machine.Outcome{Status: Failed, Cause: cause, AbortRun: facts.abortRun}, err
}

// RunStatus returns the status of the run's Result. Until the State is Done, this is [RunRunning]. Then it is the status of
// [machine.State.RunStatus], unless the end node has failed or has returned an [EndVerdict]. The cause is the reason why the whole run was stopped,
// or [CauseEndFailed] if the run has failed because its end node failed.
func (p *Plan) RunStatus(st *machine.State, v *Values, rule StatusRule) (status RunStatus, degraded bool, cause CauseKind) {
	s := (*machine.Locked)(st)
	s.Lock()
	defer s.Unlock()
	if !s.Done() {
		return RunRunning, false, CauseNone
	}
	var output any
	if p.end != noRef {
		output = v.Outputs[p.names[p.end]]
	}
	x := verdictOf(s, p.end, rule, output)
	return x.status, x.degraded, x.cause
}

// Sub returns the plan of a node's sub-graph. This plan was compiled with the defaults and the groups of the enclosing graphs. For a node without a
// sub-graph, Sub returns nil.
func (p *Plan) Sub(r machine.Ref) *Plan {
	if r < 0 || int(r) >= len(p.names) {
		return nil
	}
	return p.sub(r)
}

// The type `kept` implements the interface `source`: it reads from Values and a State.
type kept struct {
	plan *Plan
	st   *machine.Locked
	v    *Values
}

func (k kept) graph() *Plan    { return k.plan }
func (k kept) clone(v any) any { return v }

func (k kept) deliveryTo(to machine.Ref, i int32, substituted bool) (d machine.Delivery, output any) {
	k.st.Lock()
	defer k.st.Unlock()
	if d = k.st.Delivery(to, i, substituted); d == machine.DeliverOutput {
		output = k.outputOf(k.plan.net.Source(i))
	}
	return d, output
}

func (k kept) outputOf(ref machine.Ref) any { return k.v.Outputs[k.plan.names[ref]] }

func (k kept) substituted(ref machine.Ref) bool {
	k.st.Lock()
	defer k.st.Unlock()
	return k.st.Word(ref).Is(machine.WordSubstituted)
}

func (k kept) input(name string) (any, bool) {
	if v, ok := k.v.Root[name]; ok {
		return v, true
	}
	if in := k.plan.input(name); in != nil && in.Default != nil {
		return in.Default, true
	}
	return nil, false
}

func (k kept) eachInput(f func(name string)) {
	for name := range k.v.Root {
		f(name)
	}
	for i := range k.plan.inputs {
		f(k.plan.inputs[i].Name)
	}
}

func (k kept) failureOf(ref machine.Ref) error { return k.node(ref).Err }

// node returns what a View shows of a node: its current status, output and error.
func (k kept) node(ref machine.Ref) NodeData {
	k.st.Lock()
	defer k.st.Unlock()
	n := NodeData{Status: k.st.Status(ref), Err: k.nodeError(ref)}
	if n.Status == Completed {
		n.Output = k.outputOf(ref)
	}
	n.Tolerated = n.isUnread() && !k.st.Bad(ref)
	return n
}

// nodeError returns the error of a node. It does the same as Run.nodeError, with the errors in Values. The caller holds the State's lock.
func (k kept) nodeError(ref machine.Ref) error {
	w, id := k.st.Word(ref), k.plan.names[ref]
	switch status := w.Status(); {
	case status != Failed && status != Aborted && status != Cancelled:
		return nil
	case status == Failed && !w.Is(machine.WordPropagated), status != Failed && !machine.IsUpstream(w.Kind()):
		if e, is := k.v.Errs[id].(*NodeError); is && e.Node == id {
			return e
		}
		return &NodeError{Node: id, Kind: w.Kind(), Err: cmp.Or(k.v.Errs[id], stopErrors[w.Kind()])}
	}
	kind, origins := k.st.CauseOf(ref)
	return &UpstreamError{Node: id, Kind: kind, Origins: origins}
}

// stopErrors maps the causes of stopped nodes to errors. These errors are used for nodes without an error in Values.Errs.
var stopErrors = map[CauseKind]error{
	CauseFailFast: ErrAborted, CauseAbortAll: ErrAborted, CauseBudget: ErrBudget, CauseSiblingFailure: ErrAborted, CauseRunTimeout: ErrRunTimeout, CauseContext: ErrCancelled,
	CauseCancelRun: ErrCancelled, CauseCancelNode: ErrNodeStopped, CauseExternal: ErrCallAborted, CauseSuperseded: ErrSuperseded,
}

func (k kept) params(r machine.Ref, merged map[string]any) map[string]any {
	m, substituted := map[string]any{}, k.substituted(r)
	add := func(name string) {
		if v, ok := assembled(k, r, substituted, name, merged); ok {
			m[name] = v
		}
	}
	if k.plan.eachOwnParam(r, add) {
		for name := range k.root() {
			add(name)
		}
	}
	return m
}

func (k kept) upstream(r machine.Ref) map[string]any {
	m, substituted := map[string]any{}, k.substituted(r)
	for _, i := range k.plan.net.In(r) {
		if v, ok := deliver(k, r, substituted, i); ok {
			m[k.plan.names[k.plan.net.Source(i)]] = v
		}
	}
	return m
}

// root returns the root inputs. For an input that is not given, it returns the default that the graph declares.
func (k kept) root() map[string]any {
	m := make(map[string]any, len(k.v.Root))
	for name, v := range k.v.Root {
		m[name] = v
	}
	for i := range k.plan.inputs {
		in := &k.plan.inputs[i]
		if _, given := m[in.Name]; !given && in.Default != nil {
			m[in.Name] = in.Default
		}
	}
	return m
}

// View returns the data of the node's View. It takes time linear in the number of the node's ancestors.
func (p *Plan) View(st *machine.State, r machine.Ref, v *Values) ViewData {
	return kept{p, (*machine.Locked)(st), v}.view(r)
}

func (k kept) view(r machine.Ref) ViewData {
	n := k.plan.node(r)
	d := ViewData{ID: n.ID, Config: n.Config, Root: k.root(), Fired: k.v.Fired, Trigger: k.v.Trigger, RunStatus: RunRunning, Nodes: map[string]NodeData{}}
	if r == k.plan.end {
		k.st.Lock()
		d.RunStatus, _ = k.st.RunStatusByRule()
		k.st.Unlock()
	}
	for _, id := range k.plan.Ancestors(n.ID) {
		ref, _ := k.plan.find(id)
		d.Nodes[id] = k.node(ref)
	}
	return d
}

// judge checks the inputs of a node against the node's contract. Then it calls the moderator, if the node's Moderation covers inputs.
func (k kept) judge(r machine.Ref, res *checkResult) {
	n, p := k.plan.node(r), k.plan
	if p.contracts[r][event.PhaseInput] == nil && !n.Moderation.covers(event.PhaseInput) {
		return
	}
	params := k.params(r, res.merged)
	err := contain(func() error {
		if violated := p.violated(r, event.PhaseInput, params); violated != nil {
			res.verdict.Fail, res.err = CauseContractInput, violated
			return nil
		}
		if !n.Moderation.covers(event.PhaseInput) {
			return nil
		}
		step := NewStep(context.Background(), Call{
			ID: n.ID, Path: n.ID, Kind: n.Kind, Label: n.Label, Config: n.Config, Attempt: 1, Params: params, Upstream: k.upstream(r), Root: k.root(),
			View: k.view(r),
		}, nil)
		if refused := moderated(k.v.Moderator, step, event.PhaseInput, params); refused != nil {
			res.verdict.Fail, res.err = CauseModeration, refused
		}
		return nil
	})
	if err != nil {
		res.verdict.Fail, res.err = CausePanic, err
	}
}

// asking answers the questions that a guard or a condition asks its View. It stores the error of the first question that the View cannot answer. It
// looks up only what the guard or the condition asks for, so its cost does not depend on the number of ancestors.
type asking struct {
	of  kept
	ref machine.Ref
	slips[string]
}

func (a *asking) view() View {
	n := a.of.plan.node(a.ref)
	return View{judge: true, data: &ViewData{ID: n.ID, Config: n.Config, Fired: a.of.v.Fired, Trigger: a.of.v.Trigger, RunStatus: RunRunning, asks: a}}
}

// node returns what the View shows of a node, if the node is an ancestor.
func (a *asking) node(id string) (n NodeData, ok bool) {
	ref, ok := a.of.plan.sees(a.ref, id)
	if ok {
		n = a.of.node(ref)
	}
	return n, ok
}

// The method `misses` is called when the guard or the condition has asked for a node that is not an ancestor. It stores an error, unless a trigger
// has pruned this node.
func (a *asking) misses(id string) {
	if p := a.of.plan; a.err == nil && !slices.Contains(p.pruned, id) {
		a.err = p.notAncestor(a.ref, id)
	}
}

// asksFor is called when the guard or the condition has asked for a node's status or error. It records the node if the node has failed. The receiver
// may be nil, because not every View has an asking.
func (a *asking) asksFor(id string) {
	if a == nil {
		return
	}
	if ref, ok := a.of.plan.sees(a.ref, id); ok && a.of.node(ref).isUnread() {
		a.ask(id)
	}
}

// The method `reads` records that the guard or the condition has read the output of a failed node.
func (a *asking) reads(id string) {
	if a != nil {
		a.read(id)
	}
}

// input returns a root input. It stores an error if no run of the graph can have a root input with this name.
func (a *asking) input(name string) (value any, ok bool) {
	if value, ok = a.of.input(name); !ok && a.err == nil {
		a.err = a.of.plan.notInput(name)
	}
	return value, ok
}

// slip returns the stored error joined with err, the error of the guard or the condition itself. If no error is stored, slip looks for a failed node
// whose output was read without a question for the node's status or error. If there is one, slip returns the error about this node joined with err.
func (a *asking) slip(err error) error {
	if failed, ok := a.unread(); ok && a.err == nil {
		ref, _ := a.of.plan.find(failed)
		return joinSlip(a.of.plan.unread(a.ref, failed, a.of.failureOf(ref)), err)
	}
	return joinSlip(a.err, err)
}

// joinSlip joins two errors: the error about a question that the View cannot answer, and the error of the guard or the condition that asked this
// question.
func joinSlip(slip, err error) error {
	switch {
	case slip == nil:
		return err
	case err == nil:
		return slip
	}
	return fmt.Errorf("%w: %w", slip, err)
}

// GraphCalls makes the run call the function `by` instead of each guard, each fallback, and each test of a condition or a loop. These may be Go
// functions or texts. path is the path of the node, and field is the replaced field: "When", "Test", "Loop" or "Fallback". The function `by` either
// calls its argument `call` and returns the results of `call`, or returns recorded results. So an engine that replays histories can record the
// results of functions that are not pure. The value of a guard or of a loop's test is a bool. The error of `call` also reports the questions that the
// [View] could not answer. The run uses the results of `by`. If the value has the wrong type, the run uses an error that matches [ErrBadValue]
// instead. The option's error matches [ErrBadOption] if `by` is nil.
//
// The run holds no lock while it calls `by`, so `by` may block. Several goroutines may call `by` at once, unless [Limit] is 1. To identify a call,
// use its path, its field, and its position among the calls of its node.
func GraphCalls(by func(path, field string, call func() (any, error)) (any, error)) Option {
	return optionFunc(func(c *config) error {
		if by == nil {
			return fmt.Errorf("%w: GraphCalls(nil)", ErrBadOption)
		}
		c.graphCalls = by
		return nil
	})
}

// byHost makes a call through the function of GraphCalls.
func byHost[T any](r *Run, ref machine.Ref, field string, call func() (T, error)) (value T, err error) {
	got, err := r.cfg.graphCalls(r.path(ref), field, func() (any, error) { return call() })
	if err != nil {
		return value, err
	}
	value, ok := got.(T)
	if _, takesNil := any(&value).(*any); !ok && !takesNil {
		return value, fmt.Errorf("%w: GraphCalls has returned a %T for %s of node %s, not a %T", ErrBadValue, got, field, quoteID(r.path(ref)), value)
	}
	return value, nil
}

// The function `judged` calls a guard or a test. The returned error also reports the questions that the View could not answer. So a host that
// records the error records these questions, too. If the guard or the test panics, `judged` does not return. The run then adds the questions to the
// error for the panic.
func judged[T any](r *Run, ref machine.Ref, call func() (T, error)) (T, error) {
	value, err := call()
	return value, r.slip(ref, err)
}

// callWhen calls the guard of a node.
func (r *Run) callWhen(ref machine.Ref, n *node) (bool, error) {
	if r.cfg.graphCalls != nil {
		return byHost(r, ref, "When", func() (bool, error) { return r.callWhenHere(ref, n) })
	}
	return r.callWhenHere(ref, n)
}

func (r *Run) callWhenHere(ref machine.Ref, n *node) (bool, error) {
	return judged(r, ref, func() (bool, error) { return n.When(View{run: r, ref: ref, judge: true}) })
}

// callTest calls the test of a condition.
func (r *Run) callTest(ref machine.Ref, n *node) (any, error) {
	if r.cfg.graphCalls != nil {
		return byHost(r, ref, "Test", func() (any, error) { return r.callTestHere(ref, n) })
	}
	return r.callTestHere(ref, n)
}

func (r *Run) callTestHere(ref machine.Ref, n *node) (any, error) {
	value, err := judged(r, ref, func() (any, error) { return n.Test(View{run: r, ref: ref, judge: true}) })
	r.askedOrNot(ref)
	return value, err
}

// askedOrNot is called when the test of a condition has returned. If a predecessor is bad (see [machine.Locked.Bad]) and the test has asked for
// no failed node, askedOrNot sets the condition's list `asked` to an empty list. A nil list would mean that the questions of the test are not
// known.
func (r *Run) askedOrNot(ref machine.Ref) {
	r.st.Lock()
	defer r.st.Unlock()
	if r.st.Untroubled() {
		return
	}
	for _, i := range r.plan.net.In(ref) {
		if r.st.Bad(r.plan.net.Source(i)) {
			if x := r.extra(ref); x.asked == nil {
				x.asked = []machine.Ref{}
			}
			return
		}
	}
}

// callLoop calls the test of a loop. The test's View shows the run of the last iteration.
func (r *Run) callLoop(ref machine.Ref, of *Run) (again bool, err error) {
	call := func() (bool, error) {
		return judged(of, everyNode, func() (bool, error) { return r.plan.loops[ref](View{run: of, ref: everyNode, judge: true}) })
	}
	if r.cfg.graphCalls == nil {
		return call()
	}
	return byHost(r, ref, "Loop", call)
}

// callFallback calls the fallback of a node.
func (r *Run) callFallback(s *Step, failed error) (any, error) {
	f := r.plan.node(s.ref).Fallback
	if r.cfg.graphCalls == nil {
		return f(s, failed)
	}
	return byHost(r, s.ref, "Fallback", func() (any, error) { return f(s, failed) })
}
