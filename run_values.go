package kahn

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/seed-c794f7ef/kahn/machine"
)

// Values are what a coordinator of a [machine.State] keeps of its run: the State knows statuses, and no value. The methods of Plan that take Values
// are pure functions of the plan, the State and the Values, but for the functions of the graph that they call. They are what runs use. Composites are
// for a [Coordinator].
type Values struct {
	// Root are the root inputs of the run.
	Root map[string]any
	// Outputs are those of the nodes that have completed, by id.
	Outputs map[string]any
	// Errs are the errors of the nodes that failed by themselves or were stopped, by id. Other nodes see each as a [*NodeError]: of that type
	// if the coordinator has made it one, with the number of the attempt.
	Errs map[string]error
	// Merged are the parameters that checks have merged, by the id of the node: [Checked.Merged].
	Merged map[string]map[string]any
	// Trigger is the payload that the run was fired with, if Fired is set.
	Fired   bool
	Trigger any
	// Moderator judges the inputs of the nodes that ask for it; they fail without one.
	Moderator Moderator
}

// Checked is the result of a check.
type Checked struct {
	// Verdict is for [machine.State.Checked].
	Verdict machine.CheckVerdict
	// Err tells why the verdict fails the node, and GuardErr why its guard could not decide.
	Err, GuardErr error
	// Merged are the merged parameters of the node, for Values.Merged; nil if there are none.
	Merged map[string]any
}

// Check performs the check of a node that the State has handed out: its guard, merges, required ports, input contract and the moderation of
// its inputs, in this order. A panic of one of their functions fails the node.
func (p *Plan) Check(st *machine.State, r Ref, v *Values) (c Checked) {
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
		of.judge(r, &res)
	}
	return Checked{Verdict: res.verdict, Err: res.err, GuardErr: res.guardErr, Merged: res.merged}
}

// Inputs returns the parameters of a node and the values that its predecessors delivered, by name and by id, as [Call] has them. The node has been
// checked, if it has a check.
func (p *Plan) Inputs(st *machine.State, r Ref, v *Values) (params, upstream map[string]any) {
	of := kept{p, (*machine.Locked)(st), v}
	return of.params(r, v.Merged[p.names[r]]), of.upstream(r)
}

// Evaluate performs a condition with a test: it returns what the test has answered, and the outcome of the attempt for [machine.State.Settle]. The error is that
// of an outcome that failed.
func (p *Plan) Evaluate(st *machine.State, r Ref, v *Values) (value any, out machine.Outcome, err error) {
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

// Conclude returns the outcome of an attempt that has returned the value or the error, for [machine.State.Settle]: the branches that the value takes, a value
// that violates the node's output contract or has no branch, the cause of an error, a step that skips itself. The error is that of an
// outcome that failed. An attempt that suspends itself has no outcome yet: its status is [Suspended], for [machine.State.Suspend]. Whether there is
// another attempt is for [Retry.Next] to say.
//
// The value of a gate is its answer; of a [Decision] it is the Value. Conclude accepts any answer, also the label of a gate whose time is up. One
// that is no choice of the gate takes no branch.
func (p *Plan) Conclude(r Ref, value any, err error) (machine.Outcome, error) {
	if err != nil {
		return p.concludeError(r, err)
	}
	if p.net.Is(r, machine.FlagGate) {
		value = decisionOf(value).Value
	}
	c := conclusion{Outcome: machine.Outcome{Status: Completed}, value: value}
	kind := CauseConditionError
	err = contain(func() error {
		if violated := p.violated(r, PhaseOutput, value); violated != nil {
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

func (p *Plan) concludeError(r Ref, err error) (machine.Outcome, error) {
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
	case cause == CauseNone || cause == CauseExternal: // what its node cannot do
		cause = CauseStepError
	}
	return machine.Outcome{Status: Failed, Cause: cause, AbortRun: facts.abortRun}, err
}

// RunStatus returns the status of a run whose State is Done, as its Result would have it: that of [machine.State.RunStatus], unless the end node has
// failed or returned an [EndVerdict]. cause tells why the run was stopped as a whole, or that its end node failed. Until the State is Done
// the status is [RunRunning].
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

// Sub returns the plan of the sub-graph of a node, compiled with the defaults and the groups of the graphs around it; nil for a node without one.
func (p *Plan) Sub(r Ref) *Plan {
	if r < 0 || int(r) >= len(p.names) {
		return nil
	}
	return p.sub(r)
}

// kept is a source: Values beside a State.
type kept struct {
	plan *Plan
	st   *machine.Locked
	v    *Values
}

func (k kept) graph() *Plan    { return k.plan }
func (k kept) clone(v any) any { return v }

func (k kept) deliveryTo(to Ref, i int32, substituted bool) (d machine.Delivery, output any) {
	k.st.Lock()
	defer k.st.Unlock()
	if d = k.st.Delivery(to, i, substituted); d == machine.DeliverOutput {
		output = k.outputOf(k.plan.net.Source(i))
	}
	return d, output
}

func (k kept) outputOf(ref Ref) any { return k.v.Outputs[k.plan.names[ref]] }

func (k kept) substituted(ref Ref) bool {
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

func (k kept) failureOf(ref Ref) error { return k.node(ref).Err }

// node is what a View shows of a node: its status, and the output and the error as of that moment.
func (k kept) node(ref Ref) NodeData {
	k.st.Lock()
	defer k.st.Unlock()
	n := NodeData{Status: k.st.Status(ref), Err: k.nodeError(ref)}
	if n.Status == Completed {
		n.Output = k.outputOf(ref)
	}
	return n
}

// nodeError is Run.nodeError for the errors that the coordinator keeps. The lock of the State is held.
func (k kept) nodeError(ref Ref) error {
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

// stopErrors are the errors of nodes that were stopped, unless the coordinator has others.
var stopErrors = map[CauseKind]error{
	CauseFailFast: ErrAborted, CauseAbortAll: ErrAborted, CauseSiblingFailure: ErrAborted, CauseRunTimeout: ErrRunTimeout, CauseContext: ErrCancelled,
	CauseCancelRun: ErrCancelled, CauseCancelNode: ErrNodeStopped, CauseExternal: ErrCallAborted, CauseSuperseded: ErrSuperseded,
}

func (k kept) params(r Ref, merged map[string]any) map[string]any {
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

func (k kept) upstream(r Ref) map[string]any {
	m, substituted := map[string]any{}, k.substituted(r)
	for _, i := range k.plan.net.In(r) {
		if v, ok := deliver(k, r, substituted, i); ok {
			m[k.plan.names[k.plan.net.Source(i)]] = v
		}
	}
	return m
}

// root are the root inputs, with the defaults that the graph declares.
func (k kept) root() map[string]any {
	m := make(map[string]any, len(k.v.Root))
	for name, v := range k.v.Root {
		m[name] = v
	}
	for i := range k.plan.inputs {
		if in := &k.plan.inputs[i]; in.Default != nil && m[in.Name] == nil {
			if _, given := m[in.Name]; !given {
				m[in.Name] = in.Default
			}
		}
	}
	return m
}

// View returns what the View of a node shows, as data, in time linear in the ancestors of the node.
func (p *Plan) View(st *machine.State, r Ref, v *Values) ViewData {
	return kept{p, (*machine.Locked)(st), v}.view(r)
}

func (k kept) view(r Ref) ViewData {
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

// judge holds the inputs of a node against its contract, and asks the moderator.
func (k kept) judge(r Ref, res *checkResult) {
	n, p := k.plan.node(r), k.plan
	if p.contracts[r][PhaseInput] == nil && !n.Moderation.covers(PhaseInput) {
		return
	}
	params := k.params(r, res.merged)
	err := contain(func() error {
		if violated := p.violated(r, PhaseInput, params); violated != nil {
			res.verdict.Fail, res.err = CauseContractInput, violated
			return nil
		}
		if !n.Moderation.covers(PhaseInput) {
			return nil
		}
		step := NewStep(context.Background(), Call{
			ID: n.ID, Path: n.ID, Kind: n.Kind, Label: n.Label, Config: n.Config, Attempt: 1, Params: params, Upstream: k.upstream(r), Root: k.root(),
			View: k.view(r),
		}, nil)
		if refused := moderated(k.v.Moderator, step, PhaseInput, params, contain); refused != nil {
			res.verdict.Fail, res.err = CauseModeration, refused
		}
		return nil
	})
	if err != nil {
		res.verdict.Fail, res.err = CausePanic, err
	}
}

// asking answers the View of a guard or a condition, and keeps the first error of one that asks for what it cannot see. What is
// not asked for is not looked up, so that a guard costs what it asks for, however many ancestors its node has.
type asking struct {
	of  kept
	ref Ref
	err error
}

func (a *asking) view() View {
	n := a.of.plan.node(a.ref)
	return View{judge: true, data: &ViewData{ID: n.ID, Config: n.Config, Fired: a.of.v.Fired, Trigger: a.of.v.Trigger, RunStatus: RunRunning, asks: a}}
}

// node returns what the View shows of a node, if that is an ancestor.
func (a *asking) node(id string) (n NodeData, ok bool) {
	ref, ok := a.of.plan.sees(a.ref, id)
	if ok {
		n = a.of.node(ref)
	}
	return n, ok
}

// misses keeps the error of a guard or a condition that has asked for a node that is no ancestor.
func (a *asking) misses(id string) {
	if p := a.of.plan; a.err == nil && !slices.Contains(p.pruned, id) {
		a.err = p.notAncestor(a.ref, id)
	}
}

// input returns a root input, and keeps the error if there is none of the name.
func (a *asking) input(name string) (value any, ok bool) {
	if value, ok = a.of.input(name); !ok && a.err == nil {
		a.err = a.of.plan.notInput(name)
	}
	return value, ok
}

// slip returns what was kept, together with the error of the guard or the condition itself.
func (a *asking) slip(err error) error { return joinSlip(a.err, err) }

// joinSlip joins the error of a guard or a condition with that of what it has asked for.
func joinSlip(slip, err error) error {
	switch {
	case slip == nil:
		return err
	case err == nil:
		return slip
	}
	return fmt.Errorf("%w: %w", slip, err)
}
