package kahn

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/machine"
)

// ErrUnknownTrigger means that no trigger has the id given to [Fire] or [Plan.Prune]. For Fire, it is a warning in Result.Warnings.
var ErrUnknownTrigger = errors.New("unknown trigger")

// ErrPrunedInput is a warning about a trigger: if the trigger fires, a node runs without one of its predecessors, which is pruned.
var ErrPrunedInput = errors.New("a node runs without a pruned predecessor")

// The type fired contains the arguments of the option Fire.
type fired struct {
	trigger string
	payload any
	text    json.RawMessage // the encoded payload; nil if it is not encoded yet
}

// Fire runs only the part of the graph to which a trigger leads: the trigger, all nodes that follow it at any distance, and the end node. The
// parameter "trigger" is the id of a node of [KindTrigger]. All other nodes are pruned: they and their edges are not part of the run, and
// Result.Pruned names them. Under [PruneClosure], predecessors of the nodes that follow the trigger run, too.
//
// Every trigger that is part of the run completes at once. Its output is the payload; in a run without Fire, the output is null. If
// no trigger has the id, nothing is pruned, and the Result has a warning that matches [ErrUnknownTrigger].
//
// A run that continues from a [Snapshot] or its store keeps its trigger and payload, so the host can leave Fire out. If the host passes Fire again,
// the trigger and the [PruneMode] must be the same; otherwise the run does not continue, and the error matches [ErrBadOption]. The run ignores the
// new payload.
func Fire(trigger string, payload any) Option {
	return optionFunc(func(c *config) error { c.fired = &fired{trigger: trigger, payload: payload}; return nil })
}

// PruneMode is an option that determines which part of a graph runs when a trigger fires.
type PruneMode uint8

// The prune modes.
const (
	// PruneForward, the default, runs the nodes to which the trigger leads. A node may then run without one of its predecessors. Plan.Warnings
	// warns about this, unless the predecessor is another trigger or follows only other triggers.
	PruneForward PruneMode = iota
	// PruneClosure runs the nodes to which the trigger leads, and all their direct and indirect predecessors except other triggers.
	PruneClosure

	pruneModeCount
)

var pruneModeNames = enum.Of[PruneMode]("prune mode", "forward", "closure")

// String returns the name of m: "forward" or "closure".
func (m PruneMode) String() string { return pruneModeNames.Name(m) }

// MarshalText encodes m as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (m PruneMode) MarshalText() ([]byte, error) { return pruneModeNames.Text(m) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (m *PruneMode) UnmarshalText(text []byte) error { return pruneModeNames.Parse(m, text) }

func (m PruneMode) apply(c *config) error {
	if m >= pruneModeCount {
		return fmt.Errorf("%w: %v", ErrBadOption, m)
	}
	c.prune = m
	return nil
}

// The type prunes makes and caches the pruned plans of a plan with triggers.
type prunes struct {
	source *Graph // a copy of the graph as it was compiled, with its own settings and the inherited ones
	force  *force

	mu    sync.Mutex // guards plans
	plans map[pruneKey]*Plan
}

type pruneKey struct {
	trigger machine.Ref
	mode    PruneMode
}

// Prune returns the plan of the nodes that run when a trigger fires. A host that drives its own [machine.State] calls Prune; other hosts use
// [Fire]. Further calls return the same plan. If p is itself a pruned plan, Prune prunes the entire plan instead. The error matches
// [ErrUnknownTrigger] if no trigger has the id.
func (p *Plan) Prune(trigger string, mode PruneMode) (*Plan, error) {
	p = p.orEmpty()
	if p.whole != nil {
		return p.whole.Prune(trigger, mode)
	}
	r, ok := p.find(trigger)
	if !ok || p.node(r).Kind != KindTrigger {
		return nil, fmt.Errorf("%w: %s%s", ErrUnknownTrigger, quoteID(trigger),
			instead(trigger, p.choose("", func(r machine.Ref) bool { return p.node(r).Kind == KindTrigger })))
	}
	x := p.prunes
	key := pruneKey{r, mode}
	x.mu.Lock()
	q := x.plans[key]
	x.mu.Unlock()
	if q != nil {
		return q, nil
	}
	q, err := p.prune(r, mode)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if first := x.plans[key]; first != nil { // another goroutine has made the plan meanwhile
		return first, nil
	}
	if x.plans == nil {
		x.plans = map[pruneKey]*Plan{}
	}
	x.plans[key] = q
	return q, nil
}

// entire returns the plan from which p was pruned, or p itself if p is not a pruned plan.
func (p *Plan) entire() *Plan {
	if p.whole != nil {
		return p.whole
	}
	return p
}

// withPruned returns the plan, and a pruned plan for each pair of a trigger and a PruneMode.
func (p *Plan) withPruned() ([]*Plan, error) {
	list := []*Plan{p}
	if p.prunes == nil {
		return list, nil
	}
	for _, r := range p.declared {
		for mode := range pruneModeCount {
			if p.node(r).Kind != KindTrigger {
				continue
			}
			part, err := p.Prune(p.names[r], mode)
			if err != nil {
				return nil, err
			}
			list = append(list, part)
		}
	}
	return list, nil
}

// prune makes the plan of the nodes that run when a trigger fires. It calls the evaluator and the schema compiler, so the caller must not hold a
// lock.
func (p *Plan) prune(r machine.Ref, mode PruneMode) (*Plan, error) {
	x := p.prunes
	active := p.reach(r, mode)
	g := &Graph{
		Name: x.source.Name, Defaults: x.source.Defaults, Inputs: x.source.Inputs, Groups: x.source.Groups,
		Evaluator: x.source.Evaluator, StrictGuards: x.source.StrictGuards, Schemas: x.source.Schemas, merges: x.source.merges,
	}
	var pruned []string
	for i, n := range x.source.nodes {
		if active[p.declared[i]] {
			g.nodes = append(g.nodes, n)
		} else {
			pruned = append(pruned, n.ID)
		}
	}
	for _, e := range x.source.edges {
		from, _ := p.find(e.from)
		to, _ := p.find(e.to)
		if active[from] && active[to] {
			g.edges = append(g.edges, e)
		}
	}
	n := nesting{top: x.force, plans: map[nestedKey]*Plan{}}
	for ref, sub := range p.subs {
		n.plans[nestedKey{p.node(ref).Sub, x.force}] = sub // the sub-graph is not compiled again, since the host may have changed it meanwhile
	}
	q, ps := n.compilePruned(g)
	if err := ps.err(); err != nil {
		return nil, err
	}
	rare := q.rare()
	rare.pruned, rare.whole = pruned, p
	rare.warnings = append(slices.Clone(p.warnings), p.prunedInputs(r, active)...)
	return q, nil
}

// The method source copies the graph as it was compiled, since later changes of the graph must not affect the pruned plans.
func (c *compiler) source() *Graph {
	g := c.g
	return &Graph{
		Name: g.Name, Defaults: c.force.Defaults, Inputs: slices.Clone(g.Inputs), Groups: slices.Clone(g.Groups),
		Evaluator: c.evaluator, StrictGuards: g.StrictGuards, Schemas: c.schemas,
		nodes: g.nodes, edges: g.edges, merges: maps.Clone(g.merges),
	}
}

// The method reach reports, by Ref, which nodes are part of a run that the trigger fires.
func (p *Plan) reach(trigger machine.Ref, mode PruneMode) []bool {
	active := make([]bool, len(p.names))
	stack := []machine.Ref{trigger}
	visit := func(r machine.Ref) {
		if !active[r] {
			active[r] = true
			stack = append(stack, r)
		}
	}
	active[trigger] = true
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, a := range p.net.Out(at) {
			visit(a.To())
		}
	}
	if mode == PruneClosure {
		for r, is := range active {
			if is {
				stack = append(stack, machine.Ref(r))
			}
		}
		for len(stack) > 0 {
			at := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for _, i := range p.net.In(at) {
				if from := p.net.Source(i); p.node(from).Kind != KindTrigger {
					visit(from)
				}
			}
		}
	}
	if p.end != noRef {
		active[p.end] = true
	}
	return active
}

// prunedInputs returns a warning about each edge from a pruned node to an active node. It leaves out the edges to the end node, and the edges from
// other triggers and from nodes that follow only other triggers.
func (p *Plan) prunedInputs(trigger machine.Ref, active []bool) (warnings []error) {
	plain := make([]bool, len(p.names)) // by Ref: whether the node is, or follows, a root that is not a trigger
	for r := range p.names {
		row := p.net.In(machine.Ref(r))
		plain[r] = len(row) == 0 && p.node(machine.Ref(r)).Kind != KindTrigger ||
			slices.ContainsFunc(row, func(i int32) bool { return plain[p.net.Source(i)] })
	}
	for i := range p.net.Edges() {
		e := p.edgeAt(i)
		if e.To != p.end && active[e.To] && !active[e.From] && plain[e.From] {
			warnings = append(warnings, fmt.Errorf("%w: if %s fires, %s runs without %s", ErrPrunedInput,
				quoteID(p.names[trigger]), quoteID(p.names[e.To]), quoteID(p.names[e.From])))
		}
	}
	return warnings
}

// Warnings returns warnings about parts of the graph that are valid but probably mistakes:
//   - guards that ask for nodes or inputs outside their view, see [Expression] ([ErrBadExpression]);
//   - retry policies without MaxAttempts, or with a MaxDelay shorter than InitialDelay, and groups that have no effect ([ErrBadValue]);
//   - timeouts and delays below 1 µs, whose unit is probably missing, and cleanup nodes that follow no node ([ErrBadValue]);
//   - kinds such as "Gate", which differ only in case from a kind with a meaning ([ErrBadValue]);
//   - parameters that several nodes deliver, without a Merge ([ErrMergeConflict]);
//   - conditions, and gates with declared choices, whose answer no node uses ([ErrNoMatch]);
//   - nodes with an early join whose required ports get their values from several nodes ([ErrBadJoin]);
//   - for each trigger, nodes that lose a predecessor when the trigger fires under [PruneForward] ([ErrPrunedInput]).
//
// Warnings visits the graph once for each trigger.
func (p *Plan) Warnings() []error {
	p = p.orEmpty()
	warnings := slices.Clone(p.warnings)
	if p.prunes == nil {
		return warnings
	}
	for _, r := range p.declared {
		if p.node(r).Kind == KindTrigger {
			warnings = append(warnings, p.prunedInputs(r, p.reach(r, PruneForward))...)
		}
	}
	return warnings
}

// The method fire replaces the run's plan by the plan of the nodes that run when the trigger fires.
func (r *Run) fire() error {
	if r.cfg.from != nil {
		if err := r.firedBefore(r.cfg.from.file.Fired); err != nil {
			return err
		}
	}
	if r.cfg.fired == nil {
		return nil
	}
	p, err := r.plan.Prune(r.cfg.fired.trigger, r.cfg.prune)
	switch {
	case errors.Is(err, ErrUnknownTrigger):
		r.warn(err)
		return nil
	case err != nil:
		return err
	}
	r.plan = p
	return nil
}

// firedBefore gives a continuing run the trigger and the payload with which the run began. It returns an error if the option Fire names another
// trigger or prune mode.
func (r *Run) firedBefore(x *firedState) error {
	own := r.cfg.fired
	switch {
	case x == nil && own == nil:
		return nil
	case x == nil:
		return fmt.Errorf("%w: Fire(%s): the run continues, and no trigger fired it when it began", ErrBadOption, quoteID(own.trigger))
	case own != nil && (own.trigger != x.Trigger || r.cfg.prune != x.Prune):
		return fmt.Errorf("%w: Fire(%s) with pruning %v: the run continues, and trigger %s fired it with pruning %v when it began", ErrBadOption,
			quoteID(own.trigger), r.cfg.prune, quoteID(x.Trigger), x.Prune)
	}
	f := &fired{trigger: x.Trigger}
	if v := x.Payload; v != nil {
		f.payload = v.value
		if v.raw != nil {
			var err error
			if f.payload, err = decodeValue(r.cfg.codec, v.raw); err != nil {
				return fmt.Errorf("snapshot: the payload of %s: %w", quoteID(x.Trigger), err)
			}
		}
	}
	r.cfg.fired, r.cfg.prune = f, x.Prune
	return nil
}

// The method payload returns the payload with which the run was fired. It returns nil for a run that no trigger fired, and for a
// nested run.
func (r *Run) payload() any {
	if r.cfg.fired == nil || r.outer != nil {
		return nil
	}
	return r.cfg.fired.payload
}

// checkTrigger validates a node of KindTrigger.
func checkTrigger(n *node, bad report) {
	if n.Do != nil || n.Test != nil || n.TestExpr != "" || n.composite() {
		bad(ErrBadValue, "", "a trigger cannot have a Do, Test, TestExpr, Sub, Map or Loop: its output is its payload")
	}
	if n.InputSchema != nil || n.Moderation.covers(event.PhaseInput) {
		bad(ErrBadValue, "", "a trigger has no step, so it cannot have an InputSchema or a Moderation of inputs")
	}
}
