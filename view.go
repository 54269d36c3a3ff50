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

// View shows a guard, a condition or a step a part of the run: its own node, the root inputs, the trigger's payload, and the results of the node's
// ancestors. If a join decided early, an ancestor may still be running; the View then shows its current status.
//
// For a node that is not an ancestor, Status returns [Idle], and Output, Err and Decision return nil. A guard or condition that calls one of these
// four methods for this node then fails with [ErrNotAncestor], unless a trigger has pruned the node. [View.Has] causes no error. In a graph that
// declares its Inputs, a guard or condition that asks for an undeclared root input fails with [ErrUnknownInput]. If a guard fails, GuardErrors of
// its node determines what happens. A condition or the test of a loop fails with [CauseConditionError]. The View of a [Step] returns the same
// values, but causes none of these errors.
//
// A condition, the test of a loop or a guard in Go fails with [ErrUnreadFailure] if it reads the output of a failed, aborted or cancelled
// ancestor, but asks for neither the ancestor's status nor its error: see [View.Unread].
type View struct {
	data  *ViewData // for a View without a run: the data that the View shows; otherwise nil
	run   *Run
	ref   machine.Ref
	judge bool // whether the View belongs to a guard, a condition or the test of a loop
	blind bool // whether the View belongs to a guard that is a text; a guard of this kind may read the output of a failed node, see Unread

	reader *Step // for the step of a memoized node: records the inputs and nodes that the step reads through the View; otherwise nil
}

// ID returns the id of the node to which the View belongs.
func (v View) ID() string {
	if v.data != nil {
		return v.data.ID
	}
	return v.node().ID
}

// everyNode is the ref in the View of a loop's test. This View shows all nodes of the loop's last iteration.
const everyNode machine.Ref = math.MaxInt32

// The method node returns the node to which the View belongs.
func (v View) node() *node {
	if v.ref == everyNode {
		return v.run.outer.plan.node(v.run.within.ref)
	}
	return v.run.plan.node(v.ref)
}

// The method base returns the context that carries the caller's values. For a View without a run, it returns an empty context.
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

// Root returns a root input. The result "ok" is false if the run has no root input with this name.
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

// Trigger returns the payload of the trigger that fired the run. The result "ok" is false if no trigger fired the run.
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

// The method given returns the data of a node. Only a View without a run has this data.
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

// Output returns the output of an ancestor, or nil if the ancestor has not completed.
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

// Err returns the error of an ancestor that failed, was aborted or was cancelled: a [*NodeError] or an [*UpstreamError]. If the ancestor is a map
// that completed although some of its items failed, Err returns a [*MapError].
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
// Decision returns nil if no signal answered the ancestor, for example after a gate's Timeout. The ancestor's [NodeResult] has the same Decision.
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

// Unread returns the error for a condition, the test of a loop or a guard in Go that reads the output of the ancestor with this id, but asks for
// neither the ancestor's status nor its error. For a failed node, Output returns nil. Without this error, the function could mistake the nil for an
// output. The error matches [ErrUnreadFailure] and wraps the node's error.
//
// Unread returns nil if the node is not an ancestor, has not ended, completed, was skipped, is superseded, or failed under ContinueOnFail. In a guard
// that is a text, Unread always returns nil. An [Expression] calls Unread for each node whose output its text names, unless the text also
// names the node's status or error. The expression does so even if the evaluation does not reach the output.
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

// The method unread returns the error for a function that has read the output of a failed node. The parameter "r" is the function's node, or
// everyNode for the test of a loop. The parameter "id" names the failed node, and "err" is the error of the failed node.
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

// Error returns the text. The text contains the node's error in a shortened form.
func (e *unreadFailure) Error() string { return e.text }

// Unwrap returns ErrUnreadFailure and the error of the failed node.
func (e *unreadFailure) Unwrap() []error { return []error{ErrUnreadFailure, e.err} }

// The method asks is called when the View's function has asked for the status or the error of node r. If the function is a guard or a condition and
// the node has failed, asks records the node. The caller holds the run's lock.
func (v View) asks(r machine.Ref) {
	if v.judge && v.run.st.Bad(r) {
		v.run.slipsOf(v.ref).ask(r)
	}
}

// RunStatus returns, in the end node, the final status of the run, computed from the run's nodes. The end node runs after all other nodes. In any
// other node, RunStatus returns [RunRunning].
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

// ancestor returns the node with this id, and reports whether the View may show the node.
func (v View) ancestor(id string) (machine.Ref, bool) { return v.run.plan.sees(v.ref, id) }

// The method sees returns the node with this id, and reports whether node r may see it. The search takes constant time if the intervals of
// [machine.Net.IsAncestor] give the answer.
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

// The method ask does what the method `ancestor` does. In a guard or a condition, it also records an error if the View must not show the node.
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

// slips records the possible mistakes of a guard or a condition in its calls to the View during one evaluation. A K identifies a node.
type slips[K comparable] struct {
	err   error // the error for the first node or input that the function asked for and must not see
	seen  []K   // the failed nodes whose outputs the function read, in the order of the first reads
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

// The method unread returns the first failed node whose output the function read, but for whose status and error the function did not ask.
func (s *slips[K]) unread() (k K, ok bool) {
	for _, k := range s.seen {
		if !slices.Contains(s.asked, k) {
			return k, true
		}
	}
	return k, false
}

// slipsOf returns the slips of a node's current evaluation, and creates them if necessary. The caller holds the run's lock.
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

// noteSlip is called when a guard or a condition has asked for a node or an input that it must not see. It stores err, unless an earlier error is
// stored. The caller of the guard or condition gets the stored error from the method `slip`.
func (r *Run) noteSlip(ref machine.Ref, err error) {
	r.st.Lock()
	defer r.st.Unlock()
	if s := r.slipsOf(ref); s.err == nil {
		s.err = err
	}
}

// The method slip removes the slips of a node's evaluation. The parameter "err" is the error of the guard or condition itself, or nil. If the slips
// contain a mistake, slip returns the error for this mistake joined with err. Otherwise it returns err.
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

// notAncestor returns the error for an id that does not name an ancestor of r. The error lists the nearest ancestors of r. If the id names a node of
// the graph, the error suggests no other id, since the author may have meant this node.
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

// nearestAncestors returns the names of at most 50 ancestors of r. The limit keeps the error of notAncestor cheap in a large graph.
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
// from JSON, or the output of a map, to a list with T's element type, unless an element is null. If Param cannot return the value as a T, the error
// matches [ErrType]. If there is no value, the error matches [ErrNoValue] and contains the reason: the node has no such parameter, nothing was
// delivered, or the value is null. If an early join did not wait for the node that would deliver the value, the error matches [ErrTooEarly] instead
// of ErrNoValue.
func Param[T any](s *Step, name string) (T, error) {
	v, ok := s.Param(name)
	return typed[T](v, ok, "parameter", name, func() error { return s.noParam(name) })
}

// Upstream returns, as a T, the value that the edge from the node with this id delivered. The errors are as for [Param].
func Upstream[T any](s *Step, id string) (T, error) {
	v, ok := s.Upstream(id)
	return typed[T](v, ok, "upstream", id, func() error { return s.noUpstream(id) })
}

// Root returns a root input as a T. The errors are as for [Param], but never match [ErrTooEarly].
func Root[T any](s *Step, name string) (T, error) {
	v, ok := s.Root(name)
	return typed[T](v, ok, "root input", name, func() error { return fmt.Errorf("%w: %s", ErrNoValue, s.noRoot(name)) })
}

// noParam returns an error that explains why the step has no value for a parameter.
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

// The type early describes an early join that started its node, and lists the edges for which the join did not wait.
type early struct {
	Join  string      `json:"join"`
	Edges []earlyEdge `json:"edges"`
}

// earlyEdge describes an edge for which an early join did not wait: the edge's source, the edge's parameter, and the current status of the
// source.
type earlyEdge struct {
	From   string `json:"from"`
	Param  string `json:"param,omitempty"`
	Status Status `json:"status"`
}

// The method early returns the edges for which the node's join did not wait, or nil if there are none. If an edge's source has ended by now, early
// includes the edge only if the edge would deliver something.
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

// tooEarly returns an error if an early join did not wait for an edge to the parameter or from the node id. Otherwise it returns nil.
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

// paramNames returns the sorted names of the parameters that a node may have.
func (r *Run) paramNames(ref machine.Ref) (names []string) {
	r.eachParam(ref, func(name string) { names = append(names, name) })
	slices.Sort(names)
	return slices.Compact(names)
}

// undelivered returns a text about the edges to a parameter. It names each source that has not completed, or whose output lacks the edge's Key.
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

// lackedKey returns a text if the output of an edge's source lacks the edge's Key. The text names the Key and lists the members of the output. The
// result "ok" is false if the source has not completed, if its output has the Key, or if the edge waits for a failure.
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

// noUpstream returns an error that explains why no edge from the node id has delivered a value.
func (s *Step) noUpstream(id string) error {
	if err := s.tooEarly(id, ""); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", ErrNoValue, s.emptyEdge(id))
}

// emptyEdge explains why no edge from the node id delivered a value: no such edge exists, or the edge resolved in time, but delivered nothing.
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

// noRoot returns a text that explains why there is no root input with this name.
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
