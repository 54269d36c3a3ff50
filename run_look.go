package kahn

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// This file contains the functions that show the state of a run before it ends. They hold the run's lock only while they copy the state. They
// encode, clone and return values without the lock.

// Plan returns the plan that the run executes.
func (r *Run) Plan() *Plan {
	if tested := r.plan.tested; tested != nil {
		return tested
	}
	return r.plan
}

// Name returns the name of the graph.
func (r *Run) Name() string { return r.plan.name }

// Started returns the time when the run began, like [Result.Start]. For a resumed run, this is the time when it was last resumed. While the run is
// pending, Started returns the zero time.
func (r *Run) Started() time.Time {
	r.st.Lock()
	defer r.st.Unlock()
	if r.stage < stageRunning {
		return time.Time{}
	}
	return r.timeAt(r.began)
}

// FirstStarted returns the time when the first node of the run started, in this process or in an earlier one. If the run was not continued,
// FirstStarted returns the same time as [Run.Started]. Nodes that a fork took from another run do not count.
func (r *Run) FirstStarted() time.Time {
	began := r.Started()
	r.st.Lock()
	defer r.st.Unlock()
	if first := r.remarked().first; !first.IsZero() && first.Before(began) {
		return first
	}
	return began
}

// Stored reports whether the run has a store, for example through the option [Durable]. While the run is pending, the store may not contain it yet.
func (r *Run) Stored() bool { return r.cfg.store != nil }

// Counts maps each status to the number of the graph's nodes with this status. It counts the end node, but not the nodes inside composites. A
// status without nodes is not in the map. The first call on a running run counts all nodes. From then on the run updates the counts, so that the
// time for a call does not depend on the size of the graph.
func (r *Run) Counts() map[Status]int {
	var counts [statusCount]int
	s := &r.st
	s.Lock()
	if r.stage >= stageRunning && !r.concluded() {
		counts = s.Tally()
	} else {
		for ref := range s.Words() {
			counts[s.Status(ref)]++
		}
	}
	s.Unlock()
	named := map[Status]int{}
	for status, n := range counts {
		if n > 0 {
			named[Status(status)] = n
		}
	}
	return named
}

// Node returns the current state of a node: its status and attempts. After the node has ended, this is the same data as in the [Result], but some
// origins may still be missing. The Duration of a running node is the time until now. For a node in a composite, use its path, such as "S/x",
// "M[2]" or "L#1/x", see [Event]. The ID of the result is the path. Every error is a [*PathError], which matches [ErrUnknownNode].
func (r *Run) Node(path string) (NodeResult, error) {
	id := r.ID()
	r.st.Lock()
	at, err := r.locate(path)
	if err != nil {
		r.st.Unlock()
		return NodeResult{}, err.complete()
	}
	res := at.run.resultSoFar(at.ref, at.run.now())
	r.st.Unlock()
	res.RunID = id
	return res, nil
}

// Nodes yields the current state of each node of the graph, in the order of declaration. Each state is as [Run.Node] returns it. Nodes reads all
// statuses, attempts and errors at one moment: when the range statement starts. See [Run.Inside] for the nodes inside composites.
func (r *Run) Nodes() iter.Seq[NodeResult] {
	return func(yield func(NodeResult) bool) {
		r.lookAround(r.ID()).each(yield)
	}
}

// Inside describes the nodes inside a composite: see [Run.Inside].
type Inside struct {
	// Plan is the plan of the nested run: of the sub-graph, of the graph into which the node was expanded, or of a map's items. Plan is nil while
	// it is not known: before a map has its list, and in a resumed run until an expanded node has returned its graph again.
	Plan *Plan
	// Prefix is the part of each node's path that precedes the node's id.
	Prefix string
	// Iteration is the number of the current or last iteration of a loop, from 1; 0 for any other composite.
	Iteration int
	// Nodes are the current states of the nodes, in the order of declaration. Nodes is nil if the composite has not begun.
	Nodes []NodeResult
}

// Inside returns the current nodes inside a composite, or inside a node that was expanded. These are the nodes of its running nested run or, if
// none is running, of its last nested run. The error matches [ErrBadValue] if path names a node that is neither a composite nor expanded. Other
// errors are as for [Run.Node].
func (r *Run) Inside(path string) (Inside, error) {
	id := r.ID()
	r.st.Lock()
	at, err := r.locate(path)
	if err != nil {
		r.st.Unlock()
		return Inside{}, err.complete()
	}
	child, p := at.child(), at.run.plan.sub(at.ref)
	expandable := at.run.keeps(at.ref)
	r.st.Unlock()
	n := at.run.plan.node(at.ref)
	switch {
	case child != nil:
		return Inside{Plan: child.Plan(), Prefix: child.prefix, Iteration: child.iteration, Nodes: slices.Collect(child.lookAround(id).each)}, nil
	case n.Map != nil || expandable:
		return Inside{}, nil
	case p != nil:
		return Inside{Plan: p}, nil
	}
	return Inside{}, fmt.Errorf("%w: %s is not a composite", ErrBadValue, quoteID(path))
}

// The type around contains the data that is copied under the run's lock to show the run.
type around struct {
	run   *Run
	id    string // the id of the run
	words []machine.Word
	kept  []keptResult // the results of nodes whose records may change, or must be read under the lock; in the order of declaration
}

type keptResult struct {
	ref machine.Ref
	res NodeResult
}

// lookAround copies the data that is needed to report the states of all nodes at one moment. For a node that is not decided yet, it copies only the
// node's word. In a run without a store, it does the same for a node without an `extra` that has completed or has not begun. The method `each`
// reads the records of these completed nodes later, without the lock. That is safe because the record of a terminal node does not change, unless a
// store fails to write the node's end.
func (r *Run) lookAround(id string) *around {
	s := &r.st
	a := &around{run: r, id: id}
	s.Lock()
	defer s.Unlock()
	now := r.now()
	a.words = s.CopyWords()
	for _, ref := range r.plan.declared {
		w := a.words[ref]
		if !w.Is(machine.WordDecided) {
			continue
		}
		if r.extras[ref] == nil && r.durable == nil {
			switch w.Status() {
			case Completed:
				continue
			case Ready:
				if r.records[ref].attempts == 0 {
					continue
				}
			}
		}
		a.kept = append(a.kept, keptResult{ref, r.resultSoFar(ref, now)})
	}
	return a
}

func (a *around) each(yield func(NodeResult) bool) {
	r, kept := a.run, a.kept
	for _, ref := range r.plan.declared {
		var res NodeResult
		if len(kept) > 0 && kept[0].ref == ref {
			res, kept = kept[0].res, kept[1:]
		} else if w := a.words[ref]; w.Is(machine.WordDecided) && w.Status() == Completed {
			res = r.resultOf(ref, w, nil)
			res.ID = r.path(ref)
		} else {
			res = r.unbegun(ref)
			res.Status = statusAmong(r.plan, a.words, ref)
		}
		res.RunID = a.id
		if !yield(res) {
			return
		}
	}
}

// unbegun returns the result of a node that has not begun. The caller sets the Status.
func (r *Run) unbegun(ref machine.Ref) NodeResult {
	n := r.plan.node(ref)
	return NodeResult{ID: r.path(ref), Kind: n.Kind, Label: n.Label, Tier: r.plan.Tier(ref)}
}

// statusAmong returns a node's status as [machine.State.Status] does, but computes it from a copy of the words.
func statusAmong(p *Plan, words []machine.Word, ref machine.Ref) Status {
	if status := words[ref].Shown(); status != Idle {
		return status
	}
	for _, i := range p.net.In(ref) {
		if words[p.net.Source(i)].Started() {
			return Waiting
		}
	}
	return Idle
}

// resultSoFar returns the result of a node of an unfinished run. The caller holds the run's lock.
func (r *Run) resultSoFar(ref machine.Ref, now int64) NodeResult {
	w := r.st.Word(ref)
	if !w.Is(machine.WordDecided) || w.Is(machine.WordChecking) {
		res := r.unbegun(ref)
		res.Status = r.st.Status(ref)
		return res
	}
	res := r.nodeResult(ref)
	res.ID, res.Status = r.path(ref), r.st.Status(ref)
	switch {
	case res.Status.Terminal():
		r.addCause(ref, &res)
	case w.Status() == Running && res.Attempts > 0 && !r.concluded():
		res.Duration = time.Duration(now - r.records[ref].start)
	}
	return res
}

// child returns the current or last nested run of the composite, or nil if there is none.
func (at place) child() *Run {
	x := at.run.extras[at.ref]
	if x == nil || x.comp == nil {
		return nil
	}
	if w := at.run.st.Word(at.ref); x.comp.isExpansion() && !w.Is(machine.WordExpanded) && !w.Status().Terminal() {
		return nil // the child belongs to an earlier attempt
	}
	return x.comp.child
}

// PathError is the error for a path that names no node of a run. The node may not exist yet, or may no longer exist. PathError matches
// [ErrUnknownNode].
type PathError struct {
	Path string
	// Within is the path of the innermost composite to which Path leads; empty for the graph itself. The rest of Path names no node in it.
	Within string
	// Reason says why the composite does not contain the node now, such as "has not begun" or "is at iteration 2"; empty if there are Choices.
	Reason string
	// Choices are the paths of the nodes in the composite or graph that Within names, in the order of declaration; empty if there is a Reason.
	Choices []string

	in     *Plan // the plan with the choices
	prefix string
}

// Error names the path and states the Reason. If Reason is empty, Error suggests a similar path and lists the choices. If there are many choices,
// it lists only the first ones.
func (e *PathError) Error() string {
	if e.Reason != "" {
		return fmt.Sprintf("%v: %s: %s %s", ErrUnknownNode, quoteID(e.Path), quoteID(e.Within), e.Reason)
	}
	return fmt.Sprintf("%v: %s%s", ErrUnknownNode, quoteID(e.Path), instead(e.Path, e.Choices))
}

// Is reports whether target is [ErrUnknownNode].
func (e *PathError) Is(target error) bool { return target == ErrUnknownNode }

// The method `complete` lists the choices. There may be many, so the caller must not hold the run's lock.
func (e *PathError) complete() error {
	if e.in != nil {
		e.Choices = e.in.choose(e.prefix, nil)
	}
	return e
}

// locate returns the node of a path and the run that performs the node. The caller holds the run's lock. If locate returns an error, the caller
// must release the lock, and then call the error's method `complete`.
func (r *Run) locate(path string) (place, *PathError) {
	c, rest := r, path
	for {
		if ref, ok := c.plan.Ref(rest); ok {
			return place{c, ref}, nil
		}
		next, after := c.enterPath(rest)
		if next == nil {
			return place{}, c.astray(path, rest)
		}
		c, rest = next, after
	}
}

// enterPath follows the first part of a path into a nested run. It returns the nested run and the path within that run, or nil if there is no such
// run. For the run of a map's items, enterPath returns the whole path, since the names of the items contain the map's id.
func (r *Run) enterPath(path string) (*Run, string) {
	for end := range r.plan.partEnds(path) {
		at, part := r.composite(path[:end])
		switch c := at.child(); {
		case c == nil:
		case c.items != nil && strings.HasPrefix(part, "["):
			return c, path
		case end == len(path) || c.items != nil:
		case c.iteration == 0 && part == "" || c.iteration > 0 && part == "#"+strconv.Itoa(c.iteration):
			return c, path[end+1:]
		}
	}
	return nil, ""
}

// partEnds yields the positions at which the first part of a path may end. The first part is a node's id, perhaps followed by the number of an item
// or an iteration. The positions are the path's end and each slash, but only as far as the longest possible part reaches. So a very long wrong path
// does not make the caller hold the run's lock for long.
func (p *Plan) partEnds(path string) iter.Seq[int] {
	const number = len("[9223372036854775807]")
	return func(yield func(int) bool) {
		for end := range min(len(path), p.longest+number) + 1 {
			if (end == len(path) || path[end] == '/') && !yield(end) {
				return
			}
		}
	}
}

// composite returns the node that a part of a path names, and the text after the node's id: "", "[2]" or "#1".
func (r *Run) composite(part string) (at place, number string) {
	ref, ok := r.plan.Ref(part)
	if i := strings.LastIndexAny(part, "[#"); !ok && i >= 0 {
		if ref, ok = r.plan.Ref(part[:i]); ok {
			number = part[i:]
		}
	}
	if !ok {
		return place{r, noRef}, ""
	}
	return place{r, ref}, number
}

// astray returns the error for a path whose remaining part `rest` names no node of this run.
func (r *Run) astray(path, rest string) *PathError {
	before := path[:len(path)-len(rest)]
	for end := range r.plan.partEnds(rest) {
		at, part := r.composite(rest[:end])
		if at.ref == noRef || end == len(rest) && part == "" {
			continue
		}
		c, kept := at.child(), r.keeps(at.ref)
		if !r.plan.node(at.ref).composite() && c == nil && !kept {
			continue
		}
		e := &PathError{Path: path, Within: before + r.plan.names[at.ref]}
		switch status := r.st.Status(at.ref); {
		case kept:
			e.Reason = "has not returned its graph again"
		case c == nil && status.Terminal():
			e.Reason = "is " + status.String() + ", and nothing in it was performed"
		case c == nil:
			e.Reason = "has not begun"
		case c.iteration > 0:
			e.Reason = fmt.Sprintf("is at iteration %d", c.iteration)
		default:
			e.in, e.prefix = c.plan, before
		}
		return e
	}
	return &PathError{Path: path, Within: strings.TrimSuffix(before, "/"), in: r.plan, prefix: before}
}

// Inputs returns the inputs of a node's step or, if the step has not begun, the inputs known so far. For a composite, these are the root inputs of
// its graph. For an item of a map, they include "item" and "index". The values are shared with the run; with [CloneInputs], they are copies. Inputs
// returns an error if the copying function panics. Other errors are as for [Run.Node].
//
// The result `params` contains the parameters by name, as in [Step.Params]. The result `open` lists the parameters that may still change, in
// alphabetical order. A parameter may change if an edge to it has not delivered a value yet, or if its delivered values have not been merged yet.
func (r *Run) Inputs(path string) (params map[string]any, open []string, err error) {
	r.st.Lock()
	at, lost := r.locate(path)
	if lost != nil {
		r.st.Unlock()
		return nil, nil, lost.complete()
	}
	g := at.gather()
	r.st.Unlock()
	params = map[string]any{}
	return params, g.open, bounded(contain(func() error {
		at.run.eachParam(at.ref, func(name string) {
			if _, done := params[name]; done {
				return
			}
			if v, ok := g.param(name); ok {
				params[name] = at.run.clone(v)
			}
		})
		return nil
	}))
}

// gathered contains the part of a node's inputs that is read under the run's lock.
type gathered struct {
	at     place // the node whose in-edges deliver; for an item, the map
	item   place // an item, or the same node as in the field `at`
	merged map[string]any
	fed    map[string][]delivered // by parameter: the deliveries of its edges, in the order of declaration
	open   []string
}

type delivered struct {
	value      any
	key, label string // for an output: the edge's key and label
	output     bool
}

// gather collects the values that the edges of a node deliver. The caller holds the run's lock.
func (at place) gather() *gathered {
	g := &gathered{at: at, item: at, fed: map[string][]delivered{}}
	if at.run.items != nil {
		g.at = place{at.run.outer, at.run.within.ref}
	}
	r, ref := g.at.run, g.at.ref
	s, w := &r.st, r.st.Word(ref)
	if x := r.extras[ref]; x != nil {
		g.merged = x.merged // this map no longer changes
	}
	in := r.plan.inputsOf(ref)
	if in == nil {
		return g
	}
	decided, ended := w.Is(machine.WordDecided), w.Status().Terminal()
	substituted := w.Is(machine.WordSubstituted)
	if step := r.last(ref); step.run != nil {
		substituted = step.flags&stepSubstituted != 0
	} else if ended {
		substituted = false
	}
	for i := range in.params {
		p := &in.params[i]
		open := false
		feed := func(d delivered) { g.fed[p.name] = append(g.fed[p.name], d) }
		for _, e := range p.edges {
			edge := r.plan.edgeAt(e)
			if !s.Word(edge.From).Status().Terminal() {
				open = open || !decided
				continue
			}
			var d machine.Delivery
			if decided {
				d = s.Delivery(ref, e, substituted)
			} else {
				d = s.DeliveryOf(ref, e, false)
			}
			switch d {
			case machine.DeliverOutput:
				label := edge.Label
				if edge.Flags&machine.EdgeLabelled == 0 {
					label = ""
				}
				feed(delivered{value: r.records[edge.From].value, key: edge.Key, label: label, output: true})
			case machine.DeliverError:
				feed(delivered{value: r.nodeError(edge.From)})
			case machine.DeliverDefault:
				feed(delivered{value: r.plan.defaultOf(edge.terms, ref)})
			}
		}
		if p.strategy != MergeLast {
			if _, merged := g.merged[p.name]; !merged && (!decided || w.Is(machine.WordChecking)) {
				open = open || len(g.fed[p.name]) > 0
			}
			delete(g.fed, p.name) // merged values are in g.merged
		}
		if open {
			g.open = append(g.open, p.name)
		}
	}
	slices.Sort(g.open)
	return g
}

// param returns a parameter like [Run.param], but from the gathered inputs and without the lock.
func (g *gathered) param(name string) (any, bool) {
	if items := g.item.run.items; items != nil {
		if v, ok := items.input(g.item.ref, name); ok {
			return v, true
		}
	}
	if v, ok := g.merged[name]; ok {
		return v, true
	}
	for _, d := range slices.Backward(g.fed[name]) {
		if !d.output {
			return d.value, true
		}
		if v, ok := portOf(d.value, d.key, d.label); ok {
			return v, true
		}
	}
	return unfed(g.at.run, g.at.ref, name)
}

// SnapshotNode is the state of a node in a [Snapshot]: see [Snapshot.Nodes].
type SnapshotNode struct {
	// NodeResult is the result of the node, as [Run.Node] returns it, with the path as its ID. If the snapshot comes from a file or a store,
	// Output and the Value of Decision are json.RawMessage, as the run's [Codec] has encoded them. Duration is zero while the node runs. Sub is
	// nil.
	NodeResult
	// Wait describes the wait of a suspended node. Choices are the answers that a waiting gate accepts. Choices is nil if the gate accepts any answer,
	// and if [Snapshot.Nodes] gets no plan.
	Wait    *Wait
	Choices []string
	// Until is the time when a backoff, a sleep (see [SuspendUntil]) or a pause between two iterations ends; zero if there is none. Sleeps is true
	// only for a sleep.
	Until  time.Time
	Sleeps bool
	// Composite reports whether the node may contain nodes. Inside lists the nodes inside it: for a map, the items that have begun; for a loop, the
	// nodes of the current or last iteration, but none during a pause. If Plan is nil, Inside does not contain idle nodes.
	Composite bool
	Inside    []SnapshotNode
	// Items is the number of items of a map, including items that have not begun. It is 0 for other nodes, and before the map has its list.
	Items int
	// Prefix is the part of an inner node's path that precedes the node's id. Plan is the plan of the graph inside; nil for a map that has its items,
	// and if the plan is not known. Iteration counts from 1 in a loop, and is 0 elsewhere.
	Prefix    string
	Plan      *Plan
	Iteration int
}

// Nodes returns the snapshot's nodes for display. If p is the plan of the run, Nodes returns all nodes of the plan, in the order of declaration.
// The error matches [ErrGraphChanged] if p has a different hash than the run's plan. If p is nil, Nodes returns only the nodes that are not idle.
// These nodes have no Kind, Label, Tier or origins. Their Skip contains only the kind and the message. They are in the order of declaration or, if
// the snapshot is from a store, in the order of their ids.
func (s *Snapshot) Nodes(p *Plan) ([]SnapshotNode, error) {
	s = orZero(s)
	if p != nil && p.Hash() != s.file.Hash {
		return nil, fmt.Errorf("%w: the snapshot is of a graph with the hash %s, the plan has %s", ErrGraphChanged, quoteID(s.file.Hash), p.Hash())
	}
	return (&looker{stop: s.file.Stop, run: s.file.Run}).nodes(p, s.file.Nodes, ""), nil
}

// looker makes the results of the nodes of a run or of a nested run.
type looker struct {
	stop *stopState
	run  string
}

func (l *looker) nodes(p *Plan, states []nodeState, prefix string) []SnapshotNode {
	list := make([]SnapshotNode, 0, len(states))
	if p == nil {
		for i := range states {
			list = append(list, l.node(nil, noRef, &states[i], prefix))
		}
		return list
	}
	at := make(map[string]*nodeState, len(states))
	for i := range states {
		at[states[i].ID] = &states[i]
	}
	ended := decided(p, states)
	for _, ref := range p.declared {
		n := at[p.names[ref]]
		if n == nil {
			n = &nodeState{ID: p.names[ref]}
		}
		x := l.node(p, ref, n, prefix)
		if x.Status == Idle && slices.ContainsFunc(p.net.In(ref), func(i int32) bool { return at[p.names[p.net.Source(i)]].begun() }) {
			x.Status = Waiting
		}
		switch {
		case !ended.Word(ref).Status().Terminal():
		case n.Status == Skipped:
			x.Skip = n.skip(p, ended.SkipOf(ref), ref, at)
		case n.Status != Completed:
			x.addOrigins(ended.CauseOf(ref))
		}
		list = append(list, x)
	}
	return list
}

// addOrigins sets the kind of the node's cause, and adds the nodes whose failure or cancellation reached this node.
func (x *SnapshotNode) addOrigins(kind CauseKind, origins []string) {
	x.Cause.Kind = kind
	if kind != CauseContext && kind != CauseCancelRun { // these causes have no origin
		x.Cause.Origins = origins
	}
	if victim, ok := x.Err.(*UpstreamError); ok {
		victim.Kind, victim.Origins = kind, x.Cause.Origins
	}
}

// The method `begun` reports whether a node has begun, or has ended without having begun. A nil node has not begun.
func (n *nodeState) begun() bool {
	return n != nil && (n.Started > 0 || n.Attempts > 0 || n.Status > Ready)
}

// node makes the result of a node, including the nodes inside it. If p is not nil, the result contains the node's properties from the plan.
func (l *looker) node(p *Plan, ref machine.Ref, n *nodeState, prefix string) SnapshotNode {
	x := l.result(n, prefix)
	var sub *Plan
	if p != nil {
		given := p.node(ref)
		x.Kind, x.Label, x.Tier, x.Composite = given.Kind, given.Label, p.Tier(ref), given.composite()
		sub = p.sub(ref)
		if x.Wait != nil && isGate(given) {
			x.Choices = slices.Clone(p.choices(ref))
		}
	}
	l.addInside(&x, n, sub, prefix)
	return x
}

// result makes the result of one node.
func (l *looker) result(n *nodeState, prefix string) SnapshotNode {
	x := SnapshotNode{NodeResult: NodeResult{
		ID: prefix + n.ID, RunID: l.run, Status: n.Status, Attempts: int(n.Attempts), Memoized: n.Memoized, Hit: clonePtr(n.Hit), Fallback: n.Fallback, Tolerated: n.Tolerated,
		Abandoned: n.Abandoned, GuardErr: n.GuardErr.restore(), LastErr: n.LastErr.restore(), Labels: slices.Clone(n.Labels), Skip: event.SkipReason{Kind: n.Skip, Message: n.Message},
		Cause: Cause{Kind: n.Cause}, attempts: n.history(), Usage: n.Usage.all(),
	}, Until: n.Due, Sleeps: n.Sleeps}
	if n.Status == Running && n.Dormant {
		x.Status = Suspended
	}
	if n.Attempts > 0 {
		x.Start = n.Start
		if n.Status != Running && n.End.After(n.Start) {
			x.Duration = n.End.Sub(n.Start)
		}
	}
	if n.Status == Completed && n.Value != nil {
		x.Output = n.Value.shown()
	}
	if n.Signalled || n.Signal != nil {
		x.Decision = &Decision{Actor: n.Actor, Comment: n.Comment, ID: n.SignalID}
		if n.Signal != nil {
			x.Decision.Value = n.Signal.shown()
		}
	}
	if n.Wait != nil && n.Status == Suspended {
		x.Wait = &Wait{Node: x.ID, Token: n.Wait.Token, Info: n.Wait.Info.shown(), Since: n.Wait.Since, Deadline: n.Wait.Deadline, Run: n.Wait.Run, Choices: n.Wait.Choices}
	}
	switch {
	case n.Undo != nil:
		x.Compensation = n.Undo.Status
		if x.Compensation == CompensationFailed {
			x.CompensationErr = n.Undo.Err.restore()
		}
		x.Undoing = n.Undo.shown(n.Status == Completed && !n.Memoized && !n.Fallback)
	case n.Inside != nil:
		x.Compensation = n.Inside.undone()
	}
	if x.Err = l.errorOf(n); x.Err != nil {
		x.Cause.Err = x.Err
	}
	return x
}

// addInside adds the nodes inside a composite. The parameter `sub` is the plan of the composite's sub-graph, or of each item.
func (l *looker) addInside(x *SnapshotNode, n *nodeState, sub *Plan, prefix string) {
	in := n.Inside
	if in == nil {
		if x.Composite {
			x.Prefix, x.Plan = x.ID+"/", sub
		}
		return
	}
	inner := looker{in.Stop, l.run}
	x.Composite, x.Prefix, x.Iteration, x.Items = true, n.prefixInside(prefix), in.Iteration, in.Items
	switch {
	case in.Items > 0:
		for i := range in.Nodes {
			item := &in.Nodes[i]
			y := inner.result(item, prefix)
			y.Composite = sub != nil
			inner.addInside(&y, item, sub, prefix)
			x.Inside = append(x.Inside, y)
		}
		return
	case n.expanded():
		sub = in.plan
	}
	x.Plan = sub
	if in.Due.IsZero() {
		x.Inside = inner.nodes(sub, in.Nodes, x.Prefix)
	} else {
		x.Until = in.Due
	}
}

// The method `shown` returns the encoded value if there is one, and otherwise the value itself.
func (v *stored) shown() any {
	if v.raw != nil {
		return v.raw
	}
	return v.value
}

// errorOf returns the error of a node that failed, was aborted or was cancelled, for the field Err of [NodeResult].
func (l *looker) errorOf(n *nodeState) error {
	own := func(err error) error {
		return &NodeError{Node: n.ID, Attempt: int(n.Attempts), Kind: n.Cause, Err: err}
	}
	switch n.Status {
	case Failed:
		if !n.Propagated {
			return own(n.Err.restore())
		}
	case Aborted, Cancelled:
		switch {
		case n.Cause == CauseExternal:
			return own(n.Err.restore())
		case n.Cause == CauseSuperseded:
			return own(ErrSuperseded)
		case !machine.IsUpstream(n.Cause):
			return own(cmp.Or(l.stop.errorOf(n.Cause), n.StopErr).restore())
		}
	default:
		return nil
	}
	return &UpstreamError{Node: n.ID, Kind: n.Cause}
}

// errorOf returns the error of the stop with this kind of cause, or nil if there was no such stop.
func (s *stopState) errorOf(kind CauseKind) *storedError {
	if s == nil {
		return nil
	}
	if s.Kind == kind {
		return s.Err
	}
	for _, later := range s.Later {
		if later.Kind == kind {
			return later.Err
		}
	}
	return nil
}

// history returns [NodeResult.History] of a node that was attempted more than once. For other nodes it returns nil.
func (n *nodeState) history() (list []Attempt) {
	if len(n.Errs) == 0 && n.Began.IsZero() {
		return nil
	}
	last := int32(0)
	for i, e := range n.Errs {
		a := Attempt{Err: e.restore()}
		if last = 0; i < len(n.Retried) {
			kept := n.Retried[i]
			last = kept.Number
			a.Number, a.Start, a.End, a.Delay = int(last), kept.Start, kept.End, kept.Delay
		}
		list = append(list, a)
	}
	if last >= n.Attempts {
		return list
	}
	current := Attempt{Number: int(n.Attempts), Start: n.Began}
	switch n.Status {
	case Running:
		return append(list, current)
	case Completed, Skipped:
		if n.Fallback {
			current.Err = n.LastErr.restore()
		}
	case Failed:
		current.Err = n.Err.restore()
	case Aborted, Cancelled:
		current.Err = cmp.Or(n.Err, n.LastErr).restore()
	}
	// If End is before Began, it belongs to an earlier attempt: the process ended during the current attempt, so this attempt begins again.
	if !n.End.Before(n.Began) {
		current.End = n.End
	}
	return append(list, current)
}

// The function `decided` returns a State in which the nodes of a graph have ended as recorded in the snapshot. The caller reads the reasons of
// skips and the origins of failures from this State.
func decided(p *Plan, states []nodeState) *machine.Locked {
	s, setup := new(machine.Locked), byDefault[0].setup(p)
	s.Init(&p.net, &setup)
	for i := range states {
		n := &states[i]
		if ref, ok := p.Ref(n.ID); ok && n.Status.Terminal() && n.sound(p, ref) {
			word := p.restored(ref, n)
			s.Restore(ref, &word)
		}
	}
	return s
}

// skip returns why the node was skipped. The parameter `at` maps ids to the states of the graph's nodes.
func (n *nodeState) skip(p *Plan, x machine.Skip, ref machine.Ref, at map[string]*nodeState) event.SkipReason {
	reason := p.skipReason(ref, x)
	reason.Message = n.Message
	if from := at[reason.Node]; x.Kind == SkipConditionBranch && x.Node != noRef && reason.Label != "" && from != nil {
		if reason.Answer = from.Answer; reason.Answer == "" {
			reason.Answer = p.branchNames(x.Node, p.routeOf(x.Node, from.Labels))
		}
	}
	return reason
}

// Waiting describes the nodes that wait for a signal or for another run, in the order of declaration.
func (r *Run) Waiting() []Wait {
	r.st.Lock()
	defer r.st.Unlock()
	return r.waiting()
}

func (r *Run) waiting() (list []Wait) {
	if r.st.Sleepers() == 0 && !r.nests {
		return nil
	}
	for _, ref := range r.plan.declared {
		if status := r.st.Word(ref).Status(); status == Suspended {
			list = append(list, r.waitAt(ref))
		} else if c := (place{r, ref}).child(); c != nil && !status.Terminal() {
			list = append(list, c.waiting()...)
		}
	}
	return list
}

// waitAt returns the wait of a suspended node.
func (r *Run) waitAt(ref machine.Ref) Wait {
	wait := *r.extras[ref].wait
	if wait.Token == wait.Node {
		wait.Token = r.path(ref)
	}
	wait.Node = r.path(ref)
	return wait
}
