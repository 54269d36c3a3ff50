package kahn

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
)

// SnapshotNode is what a [Snapshot] holds of a node: see [Snapshot.Nodes].
type SnapshotNode struct {
	// NodeResult is that of [Run.Node], and its ID is the path. Output, and Value of its Decision, are json.RawMessage, as the run's [Codec]
	// has written them, if the snapshot comes from a file or a store. Duration is zero as long as the node runs. Sub is nil.
	NodeResult
	// Wait is what a suspended node waits for, and Choices are the answers that a gate takes, nil if any.
	Wait    *Wait
	Choices []string
	// Until is when a backoff, or a pause between two iterations, ends; zero without one.
	Until time.Time
	// Composite says that something may be inside of the node. Inside is what has begun there: of a map the items, of a loop the nodes of
	// the current or last iteration.
	Composite bool
	Inside    []SnapshotNode
	// Prefix is what the paths of the nodes inside begin with. Plan is that of the graph inside, nil for the items of a map and
	// if it is not known. Iteration counts from 1 in a loop, and is 0 elsewhere.
	Prefix    string
	Plan      *Plan
	Iteration int
}

// Nodes returns what the snapshot holds of the nodes of the graph, to be looked at. p is the plan of the run: all of its nodes
// are returned, in the order of declaration. A plan with another hash is an error that matches [ErrGraphChanged]. With a nil plan the
// nodes that are not idle are returned, without Kind, Label, Tier and origins, and without what a skip says beside its kind; the order is that of
// declaration, or in a store that of the ids.
func (s *Snapshot) Nodes(p *Plan) ([]SnapshotNode, error) {
	s = orZero(s)
	if p != nil && p.Hash() != s.file.Hash {
		return nil, fmt.Errorf("%w: the snapshot is of a graph with the hash %s, the plan has %s", ErrGraphChanged, quoteID(s.file.Hash), p.Hash())
	}
	return (&looker{stop: s.file.Stop, run: s.file.Run}).nodes(p, s.file.Nodes, ""), nil
}

// looker makes results of the nodes of one run, or nested run.
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

// addOrigins adds the nodes whose failure or cancellation reached this one.
func (x *SnapshotNode) addOrigins(kind CauseKind, origins []string) {
	x.Cause.Kind = kind
	if kind != CauseContext && kind != CauseCancelRun { // these have no origin
		x.Cause.Origins = origins
	}
	if victim, ok := x.Err.(*UpstreamError); ok {
		victim.Kind, victim.Origins = kind, x.Cause.Origins
	}
}

// begun reports whether a node has begun, or never will. A node of which there is nothing has not.
func (n *nodeState) begun() bool {
	return n != nil && (n.Started > 0 || n.Attempts > 0 || n.Status > Ready)
}

// node makes the result of a node with what the plan knows and with what is inside. p is nil if the plan is not known.
func (l *looker) node(p *Plan, ref Ref, n *nodeState, prefix string) SnapshotNode {
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
		ID: prefix + n.ID, RunID: l.run, Status: n.Status, Attempts: int(n.Attempts), Memoized: n.Memoized, Fallback: n.Fallback, Tolerated: n.Tolerated,
		Abandoned: n.Abandoned, GuardErr: n.GuardErr.restore(), LastErr: n.LastErr.restore(), Labels: slices.Clone(n.Labels), Skip: SkipReason{Kind: n.Skip, Message: n.Message},
		Cause: Cause{Kind: n.Cause}, attempts: n.history(),
	}, Until: n.Due}
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
		x.Wait = &Wait{Node: x.ID, Token: n.Wait.Token, Info: n.Wait.Info.shown(), Since: n.Wait.Since, Deadline: n.Wait.Deadline}
	}
	if x.Err = l.errorOf(n); x.Err != nil {
		x.Cause.Err = x.Err
	}
	return x
}

// addInside adds what is inside of a composite. sub is the plan of its sub-graph, or of that of each item.
func (l *looker) addInside(x *SnapshotNode, n *nodeState, sub *Plan, prefix string) {
	in := n.Inside
	if in == nil {
		if x.Composite {
			x.Prefix, x.Plan = x.ID+"/", sub
		}
		return
	}
	inner := looker{in.Stop, l.run}
	x.Composite, x.Prefix, x.Iteration = true, n.prefixInside(prefix), in.Iteration
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

// shown is a value as it is known: itself, or the text that a codec has written.
func (v *stored) shown() any {
	if v.raw != nil {
		return v.raw
	}
	return v.value
}

// errorOf is the error of a node that has ended otherwise than by completing or being skipped, as [NodeResult].Err has it.
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

// errorOf is the error of the stop for a kind of cause, nil if there was none.
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

// history is [NodeResult.History] of a node that was attempted more than once, else nil.
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
	if !n.End.Before(n.Began) { // else its life ended before it, and it is begun again
		current.End = n.End
	}
	return append(list, current)
}

// decided is the State in which the nodes of a graph have ended, from which the reasons of skips and the origins of failures follow.
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

// skip is the reason of a skipped node. at has the states of the nodes of its graph by their ids.
func (n *nodeState) skip(p *Plan, x machine.Skip, ref Ref, at map[string]*nodeState) SkipReason {
	reason := p.skipReason(ref, x)
	reason.Message = n.Message
	if from := at[reason.Node]; x.Kind == SkipConditionBranch && x.Node != noRef && reason.Label != "" && from != nil {
		if reason.Answer = from.Answer; reason.Answer == "" {
			reason.Answer = p.branchNames(x.Node, p.routeOf(x.Node, from.Labels))
		}
	}
	return reason
}
