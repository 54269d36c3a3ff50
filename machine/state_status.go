package machine

import (
	"slices"
)

// StatusRule determines how the statuses of the nodes yield the status of a run. The option StatusRule of package kahn has the same values.
type StatusRule uint8

// The status rules.
const (
	StatusEscaped StatusRule = iota // failed if a failure was not handled
	StatusLeaves                    // completed if all nodes without successors completed or were skipped
	StatusStrict                    // failed if a failure was not tolerated, even if it was handled
)

// Done reports whether all nodes are terminal, including the end node.
func (st *State) Done() bool {
	s := st.lock()
	defer s.Unlock()
	return s.Done()
}

// Done is [State.Done]. It returns false while the run waits until nodes are undone.
func (s *Locked) Done() bool {
	return s.left == 0 && (s.net.end == NoRef || statusOf(s.words[s.net.end]).Terminal()) && (s.undo == nil || s.undo.cleanups == 0 && !s.undo.holds)
}

// RunStatus returns the status of the run by the given rule, and whether the run is degraded. It computes both from the nodes only. If the end node
// gives the run another status, the coordinator must apply that status. Until the run is Done, RunStatus returns [RunRunning].
func (st *State) RunStatus(rule StatusRule) (status RunStatus, degraded bool) {
	s := st.lock()
	defer s.Unlock()
	if !s.Done() {
		return RunRunning, false
	}
	return s.RunStatus(rule)
}

// Untroubled reports whether everything has gone well so far: no node failed, was aborted or was cancelled, no composite had failures inside, and the
// run was not stopped.
func (s *Locked) Untroubled() bool { return s.badNodes+s.tolerated == 0 && s.stopped == CauseNone }

// RunStatusByRule calls RunStatus with the State's own rule.
func (s *Locked) RunStatusByRule() (status RunStatus, degraded bool) { return s.RunStatus(s.rule) }

// Cause returns why a node failed, was aborted or was cancelled, and the origins of the node's end, in declaration order. Both results are final once
// the run is Done.
func (st *State) Cause(r Ref) (CauseKind, []Ref) {
	s := st.lock()
	defer s.Unlock()
	if s.known(r) != nil {
		return CauseNone, nil
	}
	if w := s.words[r]; !statusOf(w).Terminal() || statusOf(w) == Completed || statusOf(w) == Skipped {
		return CauseNone, nil
	}
	s.originsLock.Lock()
	defer s.originsLock.Unlock()
	origins, byRequest := s.originsOf(r)
	return s.causeKind(r, byRequest), s.written(origins)
}

// Bad reports whether a terminal node counts against the run. A node does so if it failed without ContinueOnFail, was aborted, or was cancelled. A
// loser of an early decision does not count against the run.
func (s *Locked) Bad(r Ref) bool {
	w := s.words[r]
	switch statusOf(w) {
	case Failed:
		return w&WordTolerated == 0
	case Aborted:
		return true
	case Cancelled:
		return kindOf(w) != CauseSuperseded
	}
	return false
}

// RunStatus computes the status of a run in which all nodes but cleanup nodes and the end node are terminal. If no node is bad and no failure was
// tolerated, RunStatus visits no node. Otherwise its work is linear in the nodes and in the edges of the bad nodes.
func (s *Locked) RunStatus(rule StatusRule) (status RunStatus, degraded bool) {
	if s.badNodes+s.tolerated == 0 {
		return RunCompleted, false
	}
	var anyBad, failure, cancel bool       // whether there are bad nodes, bad nodes that count as failures, and bad nodes that only requests stopped
	var escapedFailure, escapedCancel bool // the same for bad nodes whose failure or stop was not handled, see consumed
	byRequest := s.requestClasses()
	for i := range s.words {
		r := Ref(i)
		if r == s.net.end || !s.Bad(r) {
			continue
		}
		anyBad = true
		if byRequest(r) {
			cancel = true
			escapedCancel = escapedCancel || !s.consumed(r)
		} else {
			failure = true
			escapedFailure = escapedFailure || !s.consumed(r)
		}
	}
	switch rule {
	case StatusLeaves:
		status = s.byLeaves()
	case StatusStrict:
		status = worst(failure, cancel)
	default:
		status = worst(escapedFailure, escapedCancel)
	}
	return status, status == RunCompleted && (anyBad || s.tolerated > 0)
}

func worst(failure, cancel bool) RunStatus {
	switch {
	case failure:
		return RunFailed
	case cancel:
		return RunCancelled
	}
	return RunCompleted
}

// byLeaves returns the status of a run under StatusLeaves. A leaf is a node without successors; the end node is no leaf and does not count as a
// successor. If all leaves completed or were skipped, the run has completed. Otherwise all nodes count: if a node was cancelled and no node failed,
// the run was cancelled. In all other cases the run has failed.
func (s *Locked) byLeaves() RunStatus {
	allGood, cancelled, failed := true, false, false
	for i, w := range s.words {
		r := Ref(i)
		if r == s.net.end {
			continue
		}
		status := statusOf(w)
		cancelled = cancelled || status == Cancelled
		failed = failed || status == Failed
		if len(s.net.Out(r)) == 0 && status.Terminal() && status != Completed && status != Skipped {
			allGood = false
		}
	}
	switch {
	case allGood:
		return RunCompleted
	case cancelled && !failed:
		return RunCancelled
	}
	return RunFailed
}

// The method `consumed` reports whether the failure of a bad node was handled. It looks at each target, except observers, that the failure has
// reached through an edge. The failure was handled if such a target became ready. An error boundary must also have completed. The failure also counts
// as handled if it was passed on through an edge of the class F: the target is bad, or was skipped by its upstream policy.
func (s *Locked) consumed(b Ref) bool {
	for _, a := range s.net.Out(b) {
		f := &s.net.facts[a.to]
		if a.is(EdgeData) || f.is(FlagObserver) {
			continue
		}
		class, _ := s.class(b, a)
		caught := class == seenS && a.is(EdgeFailure)
		if class != seenF && !caught {
			continue
		}
		t := s.words[a.to]
		handled := t&WordReached != 0
		if f.join == Boundary {
			handled = statusOf(t) == Completed
		}
		// If the target has an earlier epoch than b, it ran before b failed. So it did not handle the failure.
		if handled && (s.epochs == nil || s.epochs[a.to] >= s.epochs[b]) {
			return true
		}
		if class == seenF && (s.Bad(a.to) || statusOf(t) == Skipped && SkipKind(kindOf(t)) == SkipParentFailure) {
			return true
		}
	}
	return s.consumedByEnd(b)
}

// consumedByEnd reports whether the end node handled the failure of a bad node. An end node handles failures only if its Handling says so. Whether it
// became ready need not be checked, since an end node always becomes ready.
func (s *Locked) consumedByEnd(b Ref) bool {
	end := s.net.end
	if end == NoRef || s.net.facts[end].is(FlagObserver) {
		return false
	}
	for _, i := range s.net.EdgesFrom(end, b) {
		if e := &s.net.edges[i]; e.From == b && !e.isData() {
			if class, _ := s.class(b, e.arc()); class == seenF || class == seenS && e.Flags&EdgeFailure != 0 {
				return true
			}
		}
	}
	return false
}

// requestClasses returns a function that reports whether a bad node was stopped only by requests. All ancestors of the node must be terminal. The
// function returns true for a cancelled node, and false for a failed node. For an aborted node it returns true only if the node is a victim (see
// Victim) and all its origins were cancelled. A victim that failed is not an origin: its successors have the same origins as the victim.
func (s *Locked) requestClasses() func(Ref) bool {
	if s.cancelled == 0 {
		return func(Ref) bool { return false }
	}
	requested := make([]bool, len(s.words)) // by Ref: whether requests stopped all origins of the node
	for i, w := range s.words {             // predecessors have lower Refs, so they come first
		requested[i] = statusOf(w) == Cancelled || s.Victim(Ref(i)) &&
			!slices.ContainsFunc(s.net.in.row(Ref(i)), func(j int32) bool {
				e := &s.net.edges[j]
				return !e.isData() && s.isF(e) && !requested[e.From]
			})
	}
	return func(r Ref) bool { return requested[r] && statusOf(s.words[r]) != Failed }
}

// isF reports whether an edge has resolved to the class F (failed).
func (s *Locked) isF(e *Edge) bool {
	if !statusOf(s.words[e.From]).Terminal() {
		return false
	}
	class, _ := s.class(e.From, e.arc())
	return class == seenF
}

// AllSkipped reports whether the run has nodes and all of them were skipped.
func (s *Locked) AllSkipped() bool {
	return len(s.words) > 0 && !slices.ContainsFunc(s.words, func(w uint64) bool { return statusOf(w) != Skipped })
}

// Carries reports whether an in-edge carries a failure or a stop to its target: the edge has resolved to the class F, and is not data-only.
func (s *Locked) Carries(edge int32) bool {
	e := &s.net.edges[edge]
	return !e.isData() && s.isF(e)
}

// Unhandled reports whether no successor of r handles the failure of r. The end node does not count as a successor. Unhandled returns false for the
// end node, and for a node with ContinueOnFail.
func (s *Locked) Unhandled(r Ref) bool {
	p := s.net
	if p.facts[r].is(FlagTolerant) || r == p.end {
		return false
	}
	for _, a := range p.Out(r) {
		if !p.handles(&Edge{To: a.to, Flags: uint8(a.facts)}) {
			continue
		}
		if class, _ := s.class(r, a); !a.is(EdgeFailure) || class == seenS {
			return false
		}
	}
	return true
}

// Victim reports whether a terminal node was aborted, or failed without running, because of its predecessors. A skipped node is no victim.
func (s *Locked) Victim(r Ref) bool {
	w := s.words[r]
	return statusOf(w) == Aborted && IsUpstream(kindOf(w)) || w&WordPropagated != 0 && statusOf(w) == Failed
}

// causeKind returns the cause of a bad node. For a victim, the cause depends only on the parameter `byRequest`, which is true if requests stopped all
// origins of the node. So the order in which the predecessors ended does not matter.
func (s *Locked) causeKind(r Ref, byRequest bool) CauseKind {
	switch {
	case !s.Victim(r):
		return kindOf(s.words[r])
	case byRequest:
		return CauseUpstreamCancelled
	}
	return CauseUpstreamFailure
}

// Taken returns the numbers of the labels that a completed condition has taken.
func (st *State) Taken(r Ref) []int32 {
	s := st.lock()
	defer s.Unlock()
	if s.known(r) != nil {
		return nil
	}
	return s.Route(r)
}

// SkipOf returns why a node was skipped. Kind is zero if the node was not skipped.
func (st *State) SkipOf(r Ref) Skip {
	s := st.lock()
	defer s.Unlock()
	if s.known(r) != nil {
		return Skip{Node: NoRef, Edge: -1, Port: -1}
	}
	return s.SkipOf(r)
}

// Route returns the numbers of the labels that a completed condition has taken.
func (s *Locked) Route(r Ref) (taken []int32) {
	f := &s.net.facts[r]
	if f.router < 0 || statusOf(s.words[r]) != Completed {
		return nil
	}
	for id := range s.net.routes[f.router] {
		if s.taken[f.labels+id] {
			taken = append(taken, id)
		}
	}
	return taken
}

// Skip is the reason why a node was skipped, in numbers.
type Skip struct {
	Kind SkipKind
	// Node is the node that caused the skip. For condition_branch it is the predecessor whose outcome selected other edges, usually a condition. For
	// upstream_skipped it is a skipped predecessor, and for parent_failure the first predecessor in declaration order that failed or was stopped. For
	// superseded it is the node whose early decision superseded this node. For other kinds it is NoRef.
	Node Ref
	Edge int32 // the in-edge from Node, or -1
	Port int   // for null_propagation, the port; otherwise -1
}

// SkipOf is [State.SkipOf].
func (s *Locked) SkipOf(r Ref) Skip {
	w := s.words[r]
	x := Skip{Node: NoRef, Edge: -1, Port: -1}
	if statusOf(w) != Skipped {
		return x
	}
	x.Kind = SkipKind(kindOf(w))
	switch arg := uint32(w); x.Kind {
	case SkipConditionBranch, SkipUpstreamSkipped:
		if arg != noEdge {
			x.Edge = int32(arg)
		}
	case SkipSuperseded:
		x.Node = Ref(arg)
	case SkipNullPropagation:
		x.Port = int(arg)
	case SkipParentFailure:
		for _, i := range s.net.in.row(r) {
			if e := &s.net.edges[i]; !e.isData() && s.isF(e) {
				x.Edge = i
				break
			}
		}
	}
	if x.Edge >= 0 {
		x.Node = s.net.edges[x.Edge].From
	}
	return x
}

// HandledFailures reports whether at least one failure was tolerated or handled.
func (s *Locked) HandledFailures() bool {
	if s.tolerated > 0 {
		return true
	}
	for i := range s.words {
		if r := Ref(i); r != s.net.end && s.Bad(r) && s.consumed(r) {
			return true
		}
	}
	return false
}

// KnownOrigins returns one known origin for each predecessor whose failure reached the node, without duplicates, in declaration order of the
// in-edges. Unlike originsOf, it visits only the in-edges of this node, so a cascade of failures takes linear time.
func (s *Locked) KnownOrigins(r Ref) []Ref {
	var origins []Ref
	seen := map[Ref]bool{}
	for _, i := range s.net.in.row(r) {
		e := &s.net.edges[i]
		if e.isData() || !s.isF(e) {
			continue
		}
		if o := s.OriginOf(e.From); o != NoRef && !seen[o] {
			seen[o] = true
			origins = append(origins, o)
		}
	}
	return origins
}
