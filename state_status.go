package kahn

import (
	"slices"
)

// statusFold tells how the status of a run follows from those of its nodes.
type statusFold uint8

const (
	foldEscaped statusFold = iota // failed if the failure of a node was not handled
	foldLeaves                    // by the nodes without successors
	foldStrict                    // failed if any node failed
)

// Done reports whether every node is terminal, the end node included.
func (s *State) Done() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done()
}

func (s *State) done() bool {
	return s.left == 0 && (s.net.end == noRef || statusOf(s.words[s.net.end]).Terminal())
}

// RunStatus returns the status of the run by the given rule, and whether it is degraded, computed from the nodes: the
// coordinator applies the verdict of an end node. Until Done the run is [RunRunning].
func (s *State) RunStatus(rule StatusRule) (status RunStatus, degraded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done() {
		return RunRunning, false
	}
	return s.runStatus(statusFold(rule))
}

// runStatusByRule is the status of the run by the rule of the State, once all nodes but the end node are terminal.
func (s *State) runStatusByRule() (status RunStatus, degraded bool) { return s.runStatus(s.rule) }

// Cause returns why a node failed, was aborted or was cancelled, and its origins, in the order of declaration. Both are
// final once the run is Done.
func (s *State) Cause(r Ref) (CauseKind, []Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known(r) != nil {
		return CauseNone, nil
	}
	if w := s.words[r]; !statusOf(w).Terminal() || statusOf(w) == Completed || statusOf(w) == Skipped {
		return CauseNone, nil
	}
	origins, byRequest := s.originsOf(r)
	return s.causeKind(r, byRequest), s.written(origins)
}

// bad reports whether a terminal node counts against the run: it failed without ContinueOnFail, was aborted, or was
// cancelled other than as a loser.
func (s *State) bad(r Ref) bool {
	w := s.words[r]
	switch statusOf(w) {
	case Failed:
		return w&wordTolerated == 0
	case Aborted:
		return true
	case Cancelled:
		return kindOf(w) != CauseSuperseded
	}
	return false
}

// runStatus computes the status of a run whose nodes, but for the end node, are all terminal. Runs without a bad node, the
// common case, cost nothing; others cost one pass over the edges of the bad nodes.
func (s *State) runStatus(rule statusFold) (status RunStatus, degraded bool) {
	if s.badNodes+s.tolerated == 0 {
		return RunCompleted, false
	}
	var anyBad, failure, cancel bool // over all bad nodes
	var escapedFailure, escapedCancel bool
	byRequest := s.requestClasses()
	for i := range s.words {
		r := Ref(i)
		if r == s.net.end || !s.bad(r) {
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
	case foldLeaves:
		status = s.byLeaves()
	case foldStrict:
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

// byLeaves judges by leaves, the nodes without successors but the end node: all completed or skipped means completed; else
// any cancelled node, if none failed, means cancelled.
func (s *State) byLeaves() RunStatus {
	allGood, cancelled, failed := true, false, false
	for i, w := range s.words {
		r := Ref(i)
		if r == s.net.end {
			continue
		}
		status := statusOf(w)
		cancelled = cancelled || status == Cancelled
		failed = failed || status == Failed
		if len(s.net.outOf(r)) == 0 && status != Completed && status != Skipped {
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

// consumed reports whether the failure of a bad node was handled: one of its edges that let the failure through leads to a
// node that is no observer and that reached ready (an error boundary: that completed), or passed the failure on by being bad
// itself, or was skipped for it by its upstream policy.
func (s *State) consumed(b Ref) bool {
	for _, a := range s.net.outOf(b) {
		f := &s.net.facts[a.to]
		if a.is(arcData) || f.is(factObserver) {
			continue
		}
		class, _ := s.class(b, a)
		caught := class == seenS && a.is(arcFailure)
		if class != seenF && !caught {
			continue
		}
		t := s.words[a.to]
		handled := t&wordReached != 0
		if f.join == Boundary {
			handled = statusOf(t) == Completed
		}
		if handled && (s.epochs == nil || s.epochs[a.to] >= s.epochs[b]) { // else it ran in an earlier epoch, before this failure
			return true
		}
		if class == seenF && (s.bad(a.to) || statusOf(t) == Skipped && SkipKind(kindOf(t)) == SkipParentFailure) {
			return true
		}
	}
	return s.consumedByEnd(b)
}

// consumedByEnd is for an end node that is no observer, which HandlesFailure makes it: it always reaches ready.
func (s *State) consumedByEnd(b Ref) bool {
	end := s.net.end
	if end == noRef || s.net.facts[end].is(factObserver) {
		return false
	}
	for _, i := range s.net.edgesFrom(end, b) {
		if e := &s.net.edges[i]; e.from == b && !e.isData() {
			if class, _ := s.class(b, e.arc()); class == seenF || class == seenS && e.flags&arcFailure != 0 {
				return true
			}
		}
	}
	return false
}

// requestClasses tells the bad nodes whose origins are requests to stop from those with failures among their origins, once
// everything is terminal. A node that failed by itself belongs to the failures; an aborted one does if any failure is among
// its origins. A node that failed only because of its predecessors passes on their origins.
func (s *State) requestClasses() func(Ref) bool {
	if s.cancelled == 0 {
		return func(Ref) bool { return false }
	}
	requested := make([]bool, len(s.words)) // all origins were stopped by a request
	for i, w := range s.words {             // predecessors come first
		requested[i] = statusOf(w) == Cancelled || s.victim(Ref(i)) &&
			!slices.ContainsFunc(s.net.in.row(Ref(i)), func(j int32) bool {
				e := &s.net.edges[j]
				return !e.isData() && s.isF(e) && !requested[e.from]
			})
	}
	return func(r Ref) bool { return requested[r] && statusOf(s.words[r]) != Failed }
}

// isF reports whether an edge resolved to F.
func (s *State) isF(e *edge) bool {
	if !statusOf(s.words[e.from]).Terminal() {
		return false
	}
	class, _ := s.class(e.from, e.arc())
	return class == seenF
}

// allSkipped reports whether there are nodes, and all of them were skipped.
func (s *State) allSkipped() bool {
	return len(s.words) > 0 && !slices.ContainsFunc(s.words, func(w uint64) bool { return statusOf(w) != Skipped })
}

// carries reports whether an in-edge, which is not data-only, has resolved to F.
func (s *State) carries(edge int32) bool {
	e := &s.net.edges[edge]
	return !e.isData() && s.isF(e)
}

// unhandled reports whether nothing in the graph was there to handle the failure of a node.
func (s *State) unhandled(r Ref) bool {
	p := s.net
	if p.facts[r].is(factTolerant) || r == p.end {
		return false
	}
	for _, a := range p.outOf(r) {
		if !p.handles(&edge{to: a.to, flags: uint8(a.facts)}) {
			continue
		}
		if class, _ := s.class(r, a); !a.is(arcFailure) || class == seenS {
			return false
		}
	}
	return true
}

// victim reports whether a terminal node ended because of its predecessors.
func (s *State) victim(r Ref) bool {
	w := s.words[r]
	return statusOf(w) == Aborted && isUpstream(kindOf(w)) || w&wordPropagated != 0 && statusOf(w) == Failed
}

// causeKind is the kind of cause of a bad node, once everything is terminal: for a victim it depends on all failed
// predecessors, whichever failed first.
func (s *State) causeKind(r Ref, byRequest bool) CauseKind {
	switch {
	case !s.victim(r):
		return kindOf(s.words[r])
	case byRequest:
		return CauseUpstreamCancelled
	}
	return CauseUpstreamFailure
}

// route returns the numbers of the labels whose branches a completed condition has taken.
func (s *State) route(r Ref) (taken []int32) {
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

// skip is why a node was skipped, in numbers.
type skip struct {
	kind SkipKind
	// node is the condition of a condition_branch, the source of an upstream_skipped, of a parent_failure the first failed predecessor
	// known, and the successor that made a node superseded; else noRef.
	node Ref
	edge int32 // the in-edge from node, or -1
	port int   // of null_propagation, else -1
}

func (s *State) skip(r Ref) skip {
	w := s.words[r]
	x := skip{node: noRef, edge: -1, port: -1}
	if statusOf(w) != Skipped {
		return x
	}
	x.kind = SkipKind(kindOf(w))
	switch arg := uint32(w); x.kind {
	case SkipConditionBranch, SkipUpstreamSkipped:
		if arg != noEdge {
			x.edge = int32(arg)
		}
	case SkipSuperseded:
		x.node = Ref(arg)
	case SkipNullPropagation:
		x.port = int(arg)
	case SkipParentFailure:
		for _, i := range s.net.in.row(r) {
			if e := &s.net.edges[i]; !e.isData() && s.isF(e) {
				x.edge = i
				break
			}
		}
	}
	if x.edge >= 0 {
		x.node = s.net.edges[x.edge].from
	}
	return x
}

// handledFailures reports whether any failure was tolerated or handled.
func (s *State) handledFailures() bool {
	if s.tolerated > 0 {
		return true
	}
	for i := range s.words {
		if r := Ref(i); r != s.net.end && s.bad(r) && s.consumed(r) {
			return true
		}
	}
	return false
}

// knownOrigins returns one origin of each failed predecessor of a node, as known now, in the order of declaration. Unlike
// origins it follows only one edge, so that a cascade stays linear.
func (s *State) knownOrigins(r Ref) []Ref {
	var origins []Ref
	seen := map[Ref]bool{}
	for _, i := range s.net.in.row(r) {
		e := &s.net.edges[i]
		if e.isData() || !s.isF(e) {
			continue
		}
		if o := s.originOf(e.from); o != noRef && !seen[o] {
			seen[o] = true
			origins = append(origins, o)
		}
	}
	return origins
}
