package kahn

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn/machine"
)

// View is the part of a run that a guard, a condition or a step can see: the node itself, root inputs, and the results of the node's ancestors.
// If a join decided early, an ancestor may still be running; the View then shows its current status.
//
// For a node that is not an ancestor, Status returns [Idle], and Output, Err and Decision return nil. The guard or condition that asked then fails
// with [ErrNotAncestor]. If a guard fails, the node's GuardErrors determines what happens; a condition or the test of a loop fails with
// [CauseConditionError]. [View.Has] causes no such error. In a graph that declares its Inputs, a guard or condition that asks for an undeclared root
// input fails in the same way, with [ErrUnknownInput]. A question about a node that a trigger has pruned is permitted. In all these
// cases the View of a [Step] returns the same values, but causes no error.
//
// A condition, the test of a loop or a guard in Go fails with [ErrUnreadFailure] if it reads the output of a failed, aborted or cancelled
// ancestor without also asking for the ancestor's status or error: see [View.Unread].
type View struct {
	data  *ViewData // for a View that was made from data and has no run; otherwise nil
	run   *Run
	ref   machine.Ref
	judge bool // whether the View belongs to a guard, a condition or the test of a loop
	blind bool // whether the View belongs to a guard that is a text; such a guard may read the output of a failed node, see Unread

	reader *Step // for a memoized node: the Step, which records everything that is read through the View; otherwise nil
}

// ID returns the id of the node to which the View belongs.
func (v View) ID() string {
	if v.data != nil {
		return v.data.ID
	}
	return v.node().ID
}

// everyNode is the ref for the View of a loop's test, which sees all nodes of its run.
const everyNode machine.Ref = math.MaxInt32

// The method node returns the node to which the View belongs.
func (v View) node() *node {
	if v.ref == everyNode {
		return v.run.outer.plan.node(v.run.within.ref)
	}
	return v.run.plan.node(v.ref)
}

// The method base returns the context with the caller's values.
func (v View) base() context.Context {
	if v.data != nil {
		return context.Background()
	}
	return v.run.base
}

// Config returns the Config of the node to which the View belongs.
func (v View) Config() any {
	if v.data != nil {
		return v.data.Config
	}
	return v.node().Config
}

// Root returns a root input.
func (v View) Root(name string) (value any, ok bool) {
	if v.data != nil {
		return v.data.root(name)
	}
	v.reads(readRoot, name)
	value, ok = v.run.input(name)
	if !ok && v.judge {
		if err := v.run.plan.notInput(name); err != nil {
			v.run.noteSlip(v.ref, err)
		}
	}
	return v.run.clone(value), ok
}

// Trigger returns the payload with which the run was fired. The result "ok" is false for a run that no trigger fired.
func (v View) Trigger() (payload any, ok bool) {
	if v.data != nil {
		return v.data.Trigger, v.data.Fired
	}
	v.reads(readTrigger, "")
	v.run.seenBy(readTrigger)
	if f := v.run.cfg.fired; f != nil {
		return v.run.clone(f.payload), true
	}
	return nil, false
}

// Has reports whether id is the id of an ancestor.
func (v View) Has(id string) bool {
	if v.data != nil {
		_, ok := v.data.node(id)
		return ok
	}
	_, ok := v.ancestor(id)
	return ok
}

// The method given returns the data of a node, for a View that was made from data.
func (v View) given(id string) NodeData {
	n, ok := v.data.node(id)
	if !ok && v.judge {
		v.data.asks.misses(id)
	}
	return n
}

// Status returns the status of an ancestor.
func (v View) Status(id string) Status {
	if v.data != nil {
		v.data.asks.asksFor(id)
		return v.given(id).Status
	}
	r, ok := v.ask(id)
	if !ok {
		return Idle
	}
	v.run.st.Lock()
	defer v.run.st.Unlock()
	v.asks(r)
	return v.run.st.Status(r)
}

// Output returns the output of an ancestor, or nil if it has not completed.
func (v View) Output(id string) any {
	if v.data != nil {
		n := v.given(id)
		if v.judge && !v.blind && n.isUnread() {
			v.data.asks.reads(id)
		}
		return n.Output
	}
	r, ok := v.ask(id)
	if !ok {
		return nil
	}
	var value any
	v.run.st.Lock()
	switch status := v.run.st.Word(r).Status(); {
	case status == Completed:
		value = v.run.records[r].value
	case v.judge && !v.blind && v.run.st.Bad(r):
		v.run.slipsOf(v.ref).read(r)
	}
	v.run.st.Unlock()
	return v.run.clone(value)
}

// Err returns the error of an ancestor that failed, was aborted or was cancelled: a [*NodeError] or an [*UpstreamError]. For a map that
// completed although some of its items failed, it returns a [*MapError].
func (v View) Err(id string) error {
	if v.data != nil {
		v.data.asks.asksFor(id)
		return v.given(id).Err
	}
	r, ok := v.ask(id)
	if !ok {
		return nil
	}
	v.run.st.Lock()
	defer v.run.st.Unlock()
	v.asks(r)
	if items := v.run.endedItems(r); items != nil {
		if failed := items.failedItems(); failed != nil {
			return failed
		}
	}
	return v.run.nodeError(r)
}

// Decision returns the signal that answered an ancestor (a gate or a waiting step): the signal's value, its sender and the sender's comment.
// It returns nil if no signal answered the node, for example after the Timeout of a gate. [NodeResult] contains the same Decision.
func (v View) Decision(id string) *Decision {
	if v.data != nil {
		return clonePtr(v.given(id).Decision)
	}
	r, ok := v.ask(id)
	if !ok {
		return nil
	}
	v.run.st.Lock()
	var d *Decision
	if x := v.run.extras[r]; x != nil {
		d = clonePtr(x.decision)
	}
	v.run.st.Unlock()
	if d != nil {
		d.Value = v.run.clone(d.Value)
	}
	return d
}

// Unread returns the error with which a condition, the test of a loop or a guard in Go fails if it reads the output of this ancestor, but asks for
// neither the ancestor's status nor its error. For a failed node, Output returns nil. Without this error, the function could mistake this nil for an
// output. The error matches [ErrUnreadFailure] and contains the node and its cause.
//
// Unread returns nil if the node is not an ancestor, is superseded, failed under ContinueOnFail, or has neither failed nor been aborted or
// cancelled. It also returns nil in every guard that is a text. If the text of an [Expression] names the output of a node, but neither the node's
// status nor its error, the expression calls Unread for the node, even if the evaluation does not reach the output.
func (v View) Unread(id string) error {
	if v.blind {
		return nil
	}
	if v.data != nil {
		if n, ok := v.data.node(id); ok && n.isUnread() {
			return v.unreadError(id, n.Err)
		}
		return nil
	}
	r, ok := v.ancestor(id)
	if !ok {
		return nil
	}
	v.run.st.Lock()
	var err error
	bad := v.run.st.Bad(r)
	if bad {
		err = v.run.nodeError(r)
	}
	v.run.st.Unlock()
	if bad {
		return v.unreadError(id, err)
	}
	return nil
}

func (v View) unreadError(id string, err error) error {
	switch {
	case v.data == nil:
		return v.run.plan.unread(v.ref, id, err)
	case v.data.asks != nil:
		return v.data.asks.of.plan.unread(v.data.asks.ref, id, err)
	}
	return unreadError(id, err, true)
}

// The method unread returns the error for a function that has read the output of a failed node. The parameter "r" is the node of the function, or
// everyNode for the test of a loop. The parameter "id" is the failed node.
func (p *Plan) unread(r machine.Ref, id string, err error) error {
	mayJoin := false
	if r != everyNode {
		join, _, _ := p.net.Rules(r)
		mayJoin = join != AllSucceeded
	}
	return unreadError(id, err, mayJoin)
}

func unreadError(id string, err error, mayJoin bool) error {
	ways := "ask for its status or its error as well"
	if mayJoin {
		ways += ", or set Join: AllSucceeded to be stopped by failures"
	}
	return &unreadFailure{fmt.Sprintf("%v: the output of node %s was read, and it has none (%s): %s", ErrUnreadFailure, quoteID(id), errorText(err), ways), err}
}

// unreadFailure is the error of a function that has read the output of a failed node. It matches ErrUnreadFailure and the node's error.
type unreadFailure struct {
	text string
	err  error
}

// Error returns the text, which has a shortened form of the node's error.
func (e *unreadFailure) Error() string { return e.text }

// Unwrap returns ErrUnreadFailure and the error of the failed node.
func (e *unreadFailure) Unwrap() []error { return []error{ErrUnreadFailure, e.err} }

// The method asks records that a guard or a condition has asked for the status or the error of a node. The caller holds the run's
// lock.
func (v View) asks(r machine.Ref) {
	if v.judge && v.run.st.Bad(r) {
		v.run.slipsOf(v.ref).ask(r)
	}
}

// RunStatus returns the final status of the run, as computed from its nodes. It is meant for the end node, which runs after all other nodes; for
// other nodes it returns [RunRunning].
func (v View) RunStatus() RunStatus {
	if v.data != nil {
		return v.data.RunStatus
	}
	if v.ref != v.run.plan.end {
		return RunRunning
	}
	v.run.st.Lock()
	defer v.run.st.Unlock()
	status, _ := v.run.st.RunStatus(machine.StatusRule(v.run.cfg.statusRule))
	return status
}

// ancestor returns the node with this id. It reports whether the View may show the node.
func (v View) ancestor(id string) (machine.Ref, bool) { return v.run.plan.sees(v.ref, id) }

// sees returns the node with this id. It reports whether r may see the node. It takes constant time if the intervals of [machine.Net.IsAncestor]
// decide.
func (p *Plan) sees(r machine.Ref, id string) (machine.Ref, bool) {
	target, ok := p.find(id)
	if !ok || target >= r {
		return noRef, false
	}
	if r == p.end || r == everyNode || len(p.net.EdgesFrom(r, target)) > 0 || p.net.IsAncestor(target, r) {
		return target, true
	}
	return noRef, false
}

// ask does what the method `ancestor` does. It also records an error if the View must not show the node.
func (v View) ask(id string) (machine.Ref, bool) {
	v.reads(readNode, id)
	r, ok := v.ancestor(id)
	if !ok && v.judge && !slices.Contains(v.run.plan.pruned, id) {
		v.run.noteSlip(v.ref, v.run.plan.notAncestor(v.ref, id))
	}
	return r, ok
}

func (v View) reads(kind, name string) {
	if v.reader != nil {
		v.reader.read(kind, name)
	}
}

// slips are the possible mistakes that a guard or a condition makes in its questions to the View during one evaluation. K identifies nodes.
type slips[K comparable] struct {
	err   error // the error for the first question about something that the function must not see
	seen  []K   // the failed nodes whose outputs the function read, in order
	asked []K   // the failed nodes for whose status or error the function asked
}

func (s *slips[K]) read(k K) {
	if !slices.Contains(s.seen, k) {
		s.seen = append(s.seen, k)
	}
}

func (s *slips[K]) ask(k K) {
	if !slices.Contains(s.asked, k) {
		s.asked = append(s.asked, k)
	}
}

// The method unread returns the first failed node whose output was read without a question for its status or error.
func (s *slips[K]) unread() (k K, ok bool) {
	for _, k := range s.seen {
		if !slices.Contains(s.asked, k) {
			return k, true
		}
	}
	return k, false
}

// slipsOf returns the slips of a node's running evaluation. The caller holds the run's lock.
func (r *Run) slipsOf(ref machine.Ref) *slips[machine.Ref] {
	s := r.slips[ref]
	if s == nil {
		if r.slips == nil {
			r.rare().slips = map[machine.Ref]*slips[machine.Ref]{}
		}
		s = &slips[machine.Ref]{}
		r.slips[ref] = s
		r.slipped.Store(true)
	}
	return s
}

// noteSlip keeps the first error of a guard or a condition that asked for something it must not see. The code that has called the guard or
// condition gets this error from the method `slip`.
func (r *Run) noteSlip(ref machine.Ref, err error) {
	r.st.Lock()
	defer r.st.Unlock()
	if s := r.slipsOf(ref); s.err == nil {
		s.err = err
	}
}

// The method slip removes the slips of a node's evaluation. It returns their error joined with err, the error of the guard or
// condition itself.
func (r *Run) slip(ref machine.Ref, err error) error {
	if !r.slipped.Load() {
		return err
	}
	r.st.Lock()
	s := r.slips[ref]
	delete(r.slips, ref)
	if s != nil && len(s.asked) > 0 && ref != everyNode {
		r.extra(ref).asked = s.asked
	}
	var failed machine.Ref
	var failure error
	unread := false
	if s != nil && s.err == nil {
		if failed, unread = s.unread(); unread {
			failure = r.nodeError(failed)
		}
	}
	r.st.Unlock()
	switch {
	case s == nil:
		return err
	case unread:
		return joinSlip(r.plan.unread(ref, r.plan.names[failed], failure), err)
	}
	return joinSlip(s.err, err)
}

// notAncestor returns the error for a node that is not an ancestor of r. It lists the nearest ancestors. The error does not suggest another name for
// a node that exists, since the author may have meant this node.
func (p *Plan) notAncestor(r machine.Ref, id string) error {
	near := p.nearestAncestors(r)
	if _, known := p.find(id); !known {
		return fmt.Errorf("%w: %s%s", ErrNotAncestor, quoteID(id), instead(id, near))
	}
	rest := "this node has no ancestors"
	if len(near) > 0 {
		rest = "ancestors: " + quoteList(near)
	}
	return fmt.Errorf("%w: %s: no edge leads from it to this node, directly or through others (%s)", ErrNotAncestor, quoteID(id), rest)
}

// nearestAncestors returns the names of a few ancestors of r, so that a mistake takes no more time in a large graph than in a small one.
func (p *Plan) nearestAncestors(r machine.Ref) []string {
	const most = 50
	if r == everyNode || r == p.end {
		names := p.names
		if r == p.end && r != noRef {
			names = names[:r] // the end node has the last Ref
		}
		return names[:min(len(names), most)]
	}
	var near []string
	seen, queue := map[machine.Ref]bool{}, []machine.Ref{r}
	for head := 0; head < len(queue) && len(near) < most; head++ {
		for _, i := range p.net.In(queue[head]) {
			if from := p.net.Source(i); !seen[from] && len(near) < most {
				seen[from] = true
				queue, near = append(queue, from), append(near, p.names[from])
			}
		}
	}
	return near
}

// Param returns a parameter of the step as a T. It converts an integral number from JSON, such as 3.0, to an integer type. It converts a list
// from JSON, or the output of a map, to a list with T's element type; no element may be null. The error matches [ErrType] if the value has
// another type. It matches [ErrNoValue] if there is no value, and contains the reason: the node has no such parameter, nothing was delivered, or
// the value is null. If there is no value because an early join did not wait for the node that would deliver it, the error matches [ErrTooEarly]
// instead.
func Param[T any](s *Step, name string) (T, error) {
	v, ok := s.Param(name)
	return typed[T](v, ok, "parameter", name, func() error { return s.noParam(name) })
}

// Upstream returns the value that the edge from a node delivered, as a T. Errors are as for [Param].
func Upstream[T any](s *Step, id string) (T, error) {
	v, ok := s.Upstream(id)
	return typed[T](v, ok, "upstream", id, func() error { return s.noUpstream(id) })
}

// Root returns a root input as a T. Errors are as for [Param].
func Root[T any](s *Step, name string) (T, error) {
	v, ok := s.Root(name)
	return typed[T](v, ok, "root input", name, func() error { return fmt.Errorf("%w: %s", ErrNoValue, s.noRoot(name)) })
}

// noParam returns an error with the reason why the step has no value for a parameter.
func (s *Step) noParam(name string) error {
	if err := s.tooEarly("", name); err != nil {
		return err
	}
	var text string
	if c := s.given(); c != nil {
		text = "the call has no such parameter" + instead(name, slices.Sorted(maps.Keys(c.Params)))
		if slices.ContainsFunc(c.Predecessors, func(p Predecessor) bool { return p.ID == name }) {
			text += nameless(name)
		}
	} else if names := s.run.paramNames(s.ref); slices.Contains(names, name) {
		text = "nothing was delivered" + s.undelivered(name)
	} else {
		r, ref, _ := s.run.home(s.ref, s.flags)
		text = r.plan.noSuchParam(ref, name, names)
	}
	return fmt.Errorf("%w: %s", ErrNoValue, text)
}

// The type early contains the edges that had not resolved when a node's early join started the node.
type early struct {
	Join  string      `json:"join"`
	Edges []earlyEdge `json:"edges"`
}

// earlyEdge describes an edge that had not resolved when the early join started the node: its source, the parameter to which it leads, and the
// source's current status.
type earlyEdge struct {
	From   string `json:"from"`
	Param  string `json:"param,omitempty"`
	Status Status `json:"status"`
}

// The method early returns the edges for which the node did not wait, or nil. An edge that would deliver nothing is included only while its
// source has not ended.
func (s *Step) early() *early {
	r, ref, flags := s.run.home(s.ref, s.flags)
	net := &r.plan.net
	if !net.Is(ref, machine.FlagEarly) {
		return nil
	}
	r.st.Lock()
	defer r.st.Unlock()
	var x *early
	for _, i := range net.In(ref) {
		substituted := flags&stepSubstituted != 0
		from := net.Source(i)
		if status := r.st.Status(from); status.Terminal() &&
			(r.st.Delivery(ref, i, substituted) != machine.DeliverNothing || r.st.DeliveryOf(ref, i, substituted) == machine.DeliverNothing) {
			continue
		}
		if x == nil {
			join, _, _ := net.Rules(ref)
			x = &early{Join: join.String()}
		}
		x.Edges = append(x.Edges, earlyEdge{r.plan.names[from], r.plan.termsOf(i).Param, r.st.Status(from)})
	}
	return x
}

// tooEarly returns an error if an early join did not wait for the parameter, or for the input from the node "id". Otherwise it returns nil.
func (s *Step) tooEarly(id, param string) error {
	var x *early
	if c := s.given(); c != nil {
		x = c.early
	} else {
		x = s.early()
	}
	if x == nil {
		return nil
	}
	for _, e := range x.Edges {
		if id != "" && e.From == id || param != "" && e.Param == param {
			return fmt.Errorf("%w: %s is %v, and the join %s began this node without it; %v waits for all, and takes what succeeded",
				ErrTooEarly, quoteID(e.From), e.Status, x.Join, AllDoneMinOne)
		}
	}
	return nil
}

func (p *Plan) noSuchParam(ref machine.Ref, name string, names []string) string {
	text := "the node has no such parameter" + instead(name, names)
	if p.follows(ref, name) {
		text += nameless(name)
	}
	return text
}

// paramNames lists the parameters that a node may have, in order.
func (r *Run) paramNames(ref machine.Ref) (names []string) {
	r.eachParam(ref, func(name string) { names = append(names, name) })
	slices.Sort(names)
	return slices.Compact(names)
}

// undelivered returns, as text, which predecessors should deliver the parameter but have not completed, or have outputs without the edge's Key.
func (s *Step) undelivered(name string) string {
	r, ref, _ := s.run.home(s.ref, s.flags)
	var b strings.Builder
	in := r.plan.inputsOf(ref)
	if in == nil {
		return ""
	}
	p, _ := in.param(name)
	if p == nil {
		return ""
	}
	for _, i := range p.edges {
		e := r.plan.edgeAt(i)
		from := quoteID(r.plan.names[e.From])
		r.st.Lock()
		status := r.st.Status(e.From)
		r.st.Unlock()
		if status != Completed {
			fmt.Fprintf(&b, "; %s is %v", from, status)
		} else if text, ok := r.lackedKey(e); ok {
			b.WriteString("; the output of " + from + text)
		}
	}
	return b.String()
}

// lackedKey returns, as text, the members of the source's output if none of them is the edge's Key. The result "ok" is false if the source did not
// complete, if its output has the key, or if the edge waits for a failure.
func (r *Run) lackedKey(e planEdge) (text string, ok bool) {
	r.st.Lock()
	status := r.st.Status(e.From)
	r.st.Unlock()
	if status != Completed || e.On == OnFailure {
		return "", false
	}
	output := r.records[e.From].value
	if _, has := portOf(output, e.Key, ""); has {
		return "", false
	}
	return " has no " + quoteID(e.Key) + instead(e.Key, memberNames(output, e.Key)), true
}

// noUpstream returns an error with the reason why no edge from a node has delivered a value.
func (s *Step) noUpstream(id string) error {
	if err := s.tooEarly(id, ""); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", ErrNoValue, s.emptyEdge(id))
}

// emptyEdge returns why no edge from a node delivered a value: there is no such edge, or it resolved in time and delivered nothing.
func (s *Step) emptyEdge(id string) string {
	if c := s.given(); c != nil {
		return "the call has no value from it" + instead(id, slices.Sorted(maps.Keys(c.Upstream)))
	}
	r, ref, _ := s.run.home(s.ref, s.flags)
	p := r.plan
	var sources []string
	for _, i := range p.net.In(ref) {
		e := p.edgeAt(i)
		if from := p.names[e.From]; from != id {
			sources = append(sources, from)
			continue
		}
		r.st.Lock()
		status := r.st.Status(e.From)
		r.st.Unlock()
		switch {
		case status != Completed:
			return fmt.Sprintf("it is %v", status)
		case e.On == OnFailure:
			return "it completed, but the edge waits for its failure"
		}
		if text, ok := r.lackedKey(e); ok {
			return "its output" + text
		}
		return "it completed, but the edge delivered nothing" // the branch of this edge was not taken
	}
	slices.Sort(sources)
	return "no edge from it leads to this node" + instead(id, slices.Compact(sources))
}

// noRoot returns why there is no root input with this name.
func (s *Step) noRoot(name string) string {
	if c := s.given(); c != nil {
		return "the call has no such input" + instead(name, slices.Sorted(maps.Keys(c.Root)))
	}
	var names []string
	s.run.eachInput(func(name string) { names = append(names, name) })
	slices.Sort(names)
	text := "the run has no such input" + instead(name, slices.Compact(names))
	if r, _, _ := s.run.home(s.ref, s.flags); r.outer != nil {
		text += "; the inputs of a graph inside another one are the parameters of its node"
	}
	return text
}
