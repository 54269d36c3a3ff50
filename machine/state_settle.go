package machine

import (
	"fmt"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/internal/ordset"
	"github.com/seed-c794f7ef/kahn/internal/strict"
)

// The method `finish` makes a node terminal. The caller then visits the node's out-edges.
func (s *Locked) finish(r Ref, to Status, bits uint64) {
	w := s.words[r]
	s.check(r, to)
	s.words[r] = w&(WordReached|WordSubstituted|WordBlocked|wordObserved) | WordDecided | uint64(to)<<statusShift | bits
	s.count(r, to, bits)
	if x := s.stateTimes; x != nil {
		x.clock++
		x.settledAt[r] = x.clock
	}
	s.log(r, w, to)
}

// The method `count` updates the counters for a node that has become terminal.
func (s *Locked) count(r Ref, to Status, bits uint64) {
	if r != s.net.end {
		*s.leftOf(r)--
	}
	if s.waves && s.net.facts[r].tier == s.tier {
		s.pending--
	}
	switch to {
	case Failed:
		s.badNodes++
		if bits&WordTolerated != 0 {
			s.tolerated++
		}
	case Aborted:
		s.badNodes++
	case Cancelled:
		s.badNodes++
		s.cancelled++
	}
}

// The method `check` finds defects of this package: transitions that are not in the table of allowed transitions (see Status.CanBecome). In kahn's
// own tests, `check` panics if it finds a defect. In production it records the defect, and the run continues. Frequent transitions are checked only
// in kahn's own tests, see strict.Transitions. Restore, Overrule and SetBack do not call `check`, since they set a status that does not follow from
// the node's previous status.
func (s *Locked) check(r Ref, to Status) {
	from := statusOf(s.words[r])
	if from.CanBecome(to) {
		return
	}
	err := fmt.Errorf("internal error: %w", &TransitionError{Node: s.net.ID(r), From: from, To: to})
	s.NoteBug(err)
}

// NoteBug records a defect of the coordinator or of this package, unless an earlier defect is recorded (see Defect). In kahn's own tests it panics.
func (s *Locked) NoteBug(err error) {
	if strict.Transitions {
		panic(err)
	}
	if s.bug == nil {
		s.ownLog().bug = err
	}
}

func (s *Locked) setStatus(r Ref, to Status) {
	w := s.words[r]
	s.check(r, to)
	s.words[r] = w&^wordStatus | uint64(to)<<statusShift
	s.log(r, w, to)
}

// The method `log` records a transition if the run has an event log or signals. The parameter `was` is the node's word before the transition.
func (s *Locked) log(r Ref, was uint64, to Status) {
	if s.noted {
		s.note(r, was, to)
	}
}

func (s *Locked) note(r Ref, was uint64, to Status) {
	if s.logged {
		s.logChange(Change{Ref: r, Attempt: int32(s.words[r] & wordCount), Status: to})
	}
	if s.obs != nil {
		s.obs.note(r, was)
	}
}

func (s *Locked) logChange(c Change) {
	x := s.ownLog()
	x.changes = append(x.changes, c)
}

// Changes returns the transitions since the last DropChanges.
func (s *Locked) Changes() []Change { return s.changes }

// DropChanges forgets the recorded transitions.
func (s *Locked) DropChanges() {
	if len(s.changes) > 0 {
		s.stateLog.changes = s.changes[:0]
	}
}

// HushReady marks the recorded transitions to Ready as transitions without events.
func (s *Locked) HushReady() {
	for i := range s.changes {
		if c := &s.changes[i]; c.Status == Ready {
			c.Quiet = true
		}
	}
}

// visitAll visits the out-edges of all nodes in the work list.
func (s *Locked) visitAll() {
	for i := 0; i < len(s.work); i++ {
		s.visit(s.work[i])
	}
	s.work = s.work[:0]
}

// The method `visit` resolves the out-edges of a terminal node, in constant time for each edge. In Waves mode it does nothing else. In Eager mode, it
// also adds a target to s.touched if the target's join may decide now. The caller judges the nodes of this set in the order of their Refs. But if no
// event log is kept and all edges of the target are satisfied, visit usually makes the target ready itself.
func (s *Locked) visit(r Ref) {
	arcs := s.net.Out(r)
	s.visits += int64(len(arcs))
	if statusOf(s.words[r]) != Completed || s.net.facts[r].is(flagForks) {
		s.visitSlow(r, arcs)
		return
	}
	words := s.words
	for i := range arcs {
		to := uint32(arcs[i].to) // a Ref of an arc is never negative, and an unsigned index needs no sign extension
		if w := words[to]; w&(wordSpecial|WordDecided) == 0 && uint32(w) > 1 {
			words[to] = (w - 1) | wordS // for most edges visit does no more than this
		} else if w&WordDecided == 0 {
			s.visitLast(Ref(to), w)
		}
	}
}

// visitLast resolves an edge from a completed node to node r, after which the join of r may be able to decide. The parameter w is the word of r.
func (s *Locked) visitLast(r Ref, w uint64) {
	w = (w - 1) | wordS
	s.words[r] = w
	switch {
	case s.waves:
	case w&(wordSpecial|wordNotOK) == 0 && !s.logged:
		s.makeReady(r)
	default:
		s.touch(r)
	}
}

func (s *Locked) visitSlow(r Ref, arcs []Arc) {
	for _, a := range arcs {
		w := s.words[a.to]
		f := &s.net.facts[a.to]
		if w&WordDecided != 0 {
			if f.is(FlagLateCancel) && !statusOf(w).Terminal() && !a.is(EdgeData) {
				if class, _ := s.class(r, a); class == seenF {
					x := s.ownAftermath()
					x.late = append(x.late, a.to)
				}
			}
			continue
		}
		var x *wide
		if f.wide >= 0 {
			x = &s.wide[f.wide]
		}
		s.words[a.to] = s.resolve(w, x, r, a)
		if !s.waves {
			s.touch(a.to)
		}
	}
}

// The method `resolve` resolves the edge a. The source `from` of the edge is terminal, and the join of the target has not decided. The parameter w is
// the target's word, and resolve returns the new word. If the target has extra counters, x points to them, and resolve updates them. The order in
// which the edges of a target are resolved does not matter.
func (s *Locked) resolve(w uint64, x *wide, from Ref, a Arc) uint64 {
	if x != nil && a.is(edgePort) {
		x.ports--
	}
	w--
	if a.is(EdgeData) {
		return w
	}
	f := &s.net.facts[a.to]
	class, bypass := s.class(from, a)
	if class == seenN && bypass {
		if f.mode == SkipSatisfy {
			class = seenS
		} else {
			w |= WordBypass
		}
	}
	if a.is(edgeSide) && (class == seenS || class == seenF && f.join == Boundary) {
		class = 0 // the edge does not count in the join
	}
	switch {
	case x == nil:
	case class == seenS:
		x.s++
	default:
		x.other++
	}
	return w | uint64(class)<<seenShift
}

// The method `class` returns the class into which an edge from a terminal node resolves. The result `bypass` is true if this node was skipped and its
// word has WordBypass. Then the edge counts as satisfied for a target with SkipSatisfy.
func (s *Locked) class(from Ref, a Arc) (class uint8, bypass bool) {
	w := s.words[from]
	switch statusOf(w) {
	case Completed:
		if a.is(EdgeFailure) || a.is(EdgeLabelled) && !s.taken[a.label()] {
			return seenX, false
		}
		return seenS, false
	case Skipped:
		return seenN, w&WordBypass != 0
	case Failed, Aborted:
		if w&WordTolerated != 0 && !a.is(EdgeFailure) {
			if a.is(EdgeLabelled) {
				return seenX, false
			}
			return seenS, false
		}
		switch {
		case a.is(EdgeAlways), a.is(EdgeFailure) && s.net.filters[a.label()].Has(kindOf(w)):
			return seenS, false
		case a.is(EdgeFailure):
			return seenF, false
		case s.net.facts[from].catch.Has(kindOf(w)):
			return seenX, false
		}
	case Cancelled:
		if a.is(EdgeAlways) {
			return seenS, false
		}
	}
	if a.is(edgeShielded) && !a.is(EdgeFailure) {
		return seenN, false
	}
	return seenF, false
}

func (s *Locked) touch(r Ref) {
	if s.touched == nil {
		s.touched = ordset.New(len(s.words))
	}
	s.touched.Insert(int(r))
}

// The method `cascade` judges the joins of touched nodes in the order of their Refs. In this order, a node comes after its predecessors. So the
// consequences occur in the order of tiers and declaration.
//
// Then cascade stops the late nodes, which must not continue because a predecessor has failed. After each stop, it judges the nodes that this stop
// has touched, before it stops the next late node.
func (s *Locked) cascade() {
	for {
		if i, ok := s.touched.PopMin(); ok {
			if r := Ref(i); s.judge(r) {
				s.visit(r)
			}
			continue
		}
		if len(s.late) == 0 {
			return
		}
		r := s.late[0]
		s.late = s.late[1:]
		if statusOf(s.words[r]).Terminal() {
			continue
		}
		if kind, origin := s.upstream(r); s.stopOne(r, kind, origin, StopAsking) {
			s.visit(r)
		}
	}
}

// The method `judge` applies the join rule of an undecided node to the counts of the node's in-edges. It reports whether the node became terminal.
func (s *Locked) judge(r Ref) (terminal bool) {
	w := s.words[r]
	if w&WordDecided != 0 {
		return false
	}
	f := &s.net.facts[r]
	var x *wide
	if f.wide >= 0 {
		x = &s.wide[f.wide]
	}
	d := s.decision(r, w, x)
	switch d {
	case undecided:
		return false
	case decideSkip:
		s.finish(r, Skipped, s.skipBits(r, w))
		return true
	case decideBlocked:
		s.blocked(r)
		switch f.policy {
		case UpstreamSkip:
			s.finish(r, Skipped, uint64(SkipParentFailure)<<kindShift|WordBypass|noEdge)
		case UpstreamPropagate:
			kind, origin := s.upstream(r)
			s.finish(r, Failed, uint64(kind)<<kindShift|WordPropagated|uint64(uint32(origin)))
		default:
			kind, origin := s.upstream(r)
			s.finish(r, Aborted, uint64(kind)<<kindShift|uint64(uint32(origin)))
		}
		return true
	default:
		if d == decideSubstitute {
			s.blocked(r)
			w |= WordSubstituted | WordBlocked
		}
		s.words[r] = w&^wordCount | WordDecided // from now on the low bits count attempts
		if x := s.stateTimes; x != nil {
			x.decidedAt[r] = x.clock
		}
		if s.net.losers && w&wordCount != 0 {
			defer s.supersede(r)
		}
		// If s.admits is set, the host judges the inputs of a node with FlagAdmit later, when the node has its slot.
		if f.is(FlagCheck) || f.is(FlagAdmit) && !s.admits {
			s.words[r] |= WordChecking
			s.busy++
			s.EvaluateInline(r)
			return false
		}
		s.makeReady(r)
		return false
	}
}

// The method `decision` returns what the join of an undecided node decides now. The parameter w is the node's word. If the node has extra counters, x
// points to them.
func (s *Locked) decision(r Ref, w uint64, x *wide) decision {
	f := &s.net.facts[r]
	c := counts{seen: uint8(w >> seenShift & 15), open: w&wordCount != 0, total: f.total}
	if x != nil {
		c.s, c.other, c.portOpen = x.s, x.other, x.ports > 0
	}
	d := decide(f.join, f.mode, f.policy, c)
	if f.is(flagBranch) && (d == decideSkip || d == decideSubstitute) {
		d = s.onBranch(r, f, d)
	}
	return d
}

func (s *Locked) blocked(r Ref) {
	was := s.words[r]
	s.words[r] |= WordBlocked
	if s.logged {
		s.logChange(Change{Ref: r, Blocked: true})
	}
	if s.obs != nil {
		s.obs.note(r, was)
	}
}

func (s *Locked) makeReady(r Ref) {
	if strict.Transitions {
		s.check(r, Ready)
	}
	was := s.words[r]
	w := was
	if w&WordDecided == 0 {
		w = w&^wordCount | WordDecided
	}
	s.words[r] = w&^wordStatus | wordReady | WordReached
	if !s.parks || !s.ParksNode(r) {
		s.Queue(r)
	}
	s.log(r, was, Ready)
}

// ParksNode reports whether the host, not the State, queues a node that becomes ready. This is so if parking is on, and the node is inline but
// neither a gate nor a composite. Such a node is evaluated as soon as Next hands it out, and the start of its attempt is not stored. So the host
// queues the node only after the store has recorded that the node is ready.
func (s *Locked) ParksNode(r Ref) bool {
	f := &s.net.facts[r]
	return s.parks && f.is(FlagInline) && !f.is(FlagGate) && !f.is(FlagComposite)
}

// Queue queues a ready node for Next.
func (s *Locked) Queue(r Ref) {
	if (s.holds || s.undo != nil) && s.words[r]&wordCount != 0 {
		s.noteAgain(r)
	}
	switch f := &s.net.facts[r]; {
	case s.words[r]&wordPlain != 0:
		s.ready.Insert(int(s.order.pos[r]))
	case f.is(FlagGate):
		s.queueGate(r)
	case f.is(FlagInline) && s.isLeftBehind(r):
		x := s.hasAside()
		x.held = append(x.held, r)
	case f.is(FlagInline):
		s.EvaluateInline(r)
	default:
		s.ready.Insert(int(s.order.pos[r]))
	}
}

// isLeftBehind reports whether an inline node has begun in a run that is being left (see Leave). The function that evaluates the node, such as a
// Test, has not returned. It must not be called again before the run continues. For a composite isLeftBehind returns false.
func (s *Locked) isLeftBehind(r Ref) bool {
	return s.hold == holdAll && s.words[r]&wordCount != 0 && !s.net.facts[r].is(FlagComposite)
}

// EvaluateInline queues a check or an inline node.
func (s *Locked) EvaluateInline(r Ref) {
	if s.inline == nil {
		s.inline = ordset.New(len(s.words))
	}
	s.inline.Insert(int(r))
}

// skipBits returns bits for the word of a node that the join skips: the reason for the skip, and the in-edge that decided the skip. All in-edges of r
// have resolved, and skipBits visits each of them at most once.
func (s *Locked) skipBits(r Ref, w uint64) uint64 {
	f := &s.net.facts[r]
	seen := uint8(w >> seenShift & 15)
	rule := uint64(SkipRuleUnsatisfied)<<kindShift | WordBypass | noEdge
	if seen != seenX {
		switch f.join.Rule() {
		case OneFailed, AllFailed, AllSkipped:
			return rule
		case AnySucceeded, RuleAtLeast:
			if seen&seenS != 0 {
				return rule
			}
		}
	}
	firstN := uint64(noEdge)
	for _, i := range s.net.in.row(r) {
		e := &s.net.edges[i]
		if e.isData() {
			continue
		}
		class, bypass := s.class(e.From, e.arc())
		if class == seenX {
			return uint64(SkipConditionBranch)<<kindShift | w&WordBypass | uint64(i)
		}
		if class == seenN && firstN == noEdge && !(bypass && f.mode == SkipSatisfy) {
			firstN = uint64(i)
		}
	}
	return uint64(SkipUpstreamSkipped)<<kindShift | w&WordBypass | firstN
}

// The method `upstream` returns the cause and one origin for a node that predecessors keep from running. It considers only predecessors that have
// ended. A predecessor for which cancelClass returns true counts only if there is no other bad predecessor. Among equals, the first in declaration
// order counts.
func (s *Locked) upstream(r Ref) (CauseKind, Ref) {
	kind, origin := CauseUpstreamCancelled, NoRef
	for _, i := range s.net.in.row(r) {
		e := &s.net.edges[i]
		w := s.words[e.From]
		if e.isData() || !statusOf(w).Terminal() {
			continue
		}
		if class, _ := s.class(e.From, e.arc()); class != seenF {
			continue
		}
		from := s.OriginOf(e.From)
		if !s.cancelClass(e.From) {
			return CauseUpstreamFailure, from
		}
		if origin == NoRef {
			origin = from
		}
	}
	return kind, origin
}

// OriginOf returns one origin of a terminal bad node. This is the node itself if it failed by itself or was cancelled. Otherwise it is the node whose
// failure or stop caused the end of this node, or NoRef if there is no such node.
func (s *Locked) OriginOf(r Ref) Ref {
	w := s.words[r]
	if statusOf(w) == Aborted || w&WordPropagated != 0 {
		return Ref(int32(uint32(w)))
	}
	return r
}

// cancelClass reports whether a terminal bad node was cancelled, or could not run because of cancelled predecessors. It ignores failures after the
// end of the node.
func (s *Locked) cancelClass(r Ref) bool {
	w := s.words[r]
	return statusOf(w) == Cancelled || kindOf(w) == CauseUpstreamCancelled
}

// maybeEnd makes the end node ready once all other nodes are terminal. If nodes may have to be undone, isOver decides whether the end node must still
// wait.
func (s *Locked) maybeEnd() {
	if s.undo != nil && !s.isOver() {
		return
	}
	if s.left == 0 && s.net.end != NoRef && statusOf(s.words[s.net.end]) == Idle {
		s.makeReady(s.net.end)
	}
}

// Settle is [State.Settle].
func (s *Locked) Settle(t Token, out Outcome) error {
	if err := s.Current(t, s.settledFrom(t.Ref)); err != nil {
		return err
	}
	r, f := t.Ref, &s.net.facts[t.Ref]
	w := s.words[r]
	var bits uint64
	switch out.Status {
	case Completed:
		if f.router >= 0 {
			for _, id := range out.Route {
				if id < 0 || id >= s.net.routes[f.router] {
					return fmt.Errorf("%w: node %s: no label number %d", ErrBadValue, foreign.Quote(s.net.ID(r)), id)
				}
			}
			for _, id := range out.Route {
				s.taken[f.labels+id] = true
			}
		}
		if out.Degraded {
			bits = WordTolerated
			s.tolerated++
		}
	case Failed:
		if !ownFailures.Has(out.Cause) {
			return s.badCauseOf(r, out)
		}
		bits = uint64(out.Cause) << kindShift
		if w&WordStopping != 0 && returnsError.Has(out.Cause) {
			out.Status, out.Cause = kindOf(w).StopStatus(), kindOf(w)
			bits = uint64(out.Cause)<<kindShift | uint64(uint32(s.StopOrigin(r)))
			if out.Cause == CauseSuperseded && w&WordAdmitting != 0 { // the node has not started
				out.Status, bits = Skipped, uint64(SkipSuperseded)<<kindShift|uint64(uint32(s.StopOrigin(r)))
			}
		} else if f.is(FlagTolerant) {
			bits |= WordTolerated
		}
	case Aborted, Cancelled:
		if w&WordStopping != 0 {
			out.Status, out.Cause = kindOf(w).StopStatus(), kindOf(w)
		}
		if !causesOf[out.Status].Has(out.Cause) {
			return s.badCauseOf(r, out)
		}
		bits = uint64(out.Cause)<<kindShift | uint64(uint32(s.StopOrigin(r)))
	case Skipped:
		if r == s.net.end {
			return &TransitionError{Node: s.net.ID(r), From: Running, To: Skipped}
		}
		if statusOf(w) != Running {
			return &TransitionError{Node: s.net.ID(r), From: statusOf(w), To: Skipped}
		}
		bits = uint64(SkipSelf)<<kindShift | WordBypass | noEdge
	default:
		return &TransitionError{Node: s.net.ID(r), From: Running, To: out.Status}
	}
	s.withdraw(r)
	s.finish(r, out.Status, bits)
	s.settled(r)
	return nil
}

//go:noinline
func (s *Locked) badCauseOf(r Ref, out Outcome) error {
	return fmt.Errorf("node %s: %w for %v", foreign.Quote(s.net.ID(r)), badCause(out.Cause), out.Status)
}

// Complete does the work of Settle for a running node with FlagPlain that has completed.
func (s *Locked) Complete(r Ref) {
	if strict.Transitions {
		s.check(r, Completed)
	}
	s.busy--
	s.vacate()
	if s.waves || s.noted || s.stateTimes != nil || s.limits.active {
		s.release(r)
		s.finish(r, Completed, 0)
		s.settled(r)
		return
	}
	s.left--
	s.words[r] = s.words[r]&(WordReached|WordSubstituted) | WordDecided | wordDone
	s.visit(r)
	if s.touched.Len() > 0 { // a success makes no node late, so there are no late nodes to stop
		s.cascade()
	}
	if s.left == 0 {
		s.maybeEnd()
	}
}

// returnsError contains the causes of failures that a stop can bring about: a step may return an error because it was asked to stop. If a node was
// asked to stop and fails for one of these causes, it gets the status of the stop. If it fails for another cause, such as a panic or a timeout, it
// becomes Failed.
const returnsError = CauseSet(1<<CauseStepError | 1<<CauseRateLimit | 1<<CauseContractOutput | 1<<CauseSubrun | 1<<CauseMapItems)

// The method `settled` applies the consequences of a node's end to other nodes.
func (s *Locked) settled(r Ref) {
	if s.waves {
		s.visit(r)
		s.brink()
		if s.pending == 0 {
			s.advance()
		}
		return
	}
	s.visit(r)
	if s.touched.Len() > 0 || len(s.late) > 0 {
		s.cascade()
	}
	if s.left == 0 {
		s.maybeEnd()
	}
}

// Overrule replaces the end of a node by an end with CauseStoreError, because the real end could not be written. If own is true, an attempt of the
// node ended in the transaction that was not written, and the node becomes Failed. Otherwise the node becomes Aborted.
func (s *Locked) Overrule(r Ref, own bool) {
	w := s.words[r]
	switch statusOf(w) {
	case Failed, Aborted:
		s.badNodes--
	case Cancelled:
		s.badNodes--
		s.cancelled--
	}
	if w&WordTolerated != 0 { // the node failed or completed, see Settle
		s.tolerated--
	}
	origin := NoRef
	to, arg := Aborted, uint64(uint32(origin))
	if own {
		to, arg = Failed, 0
	}
	s.badNodes++
	s.originsLock.Lock()
	s.origins = nil // origins that were final may change
	s.originsLock.Unlock()
	if t := s.net.facts[r].tier; s.waves && t < s.tier {
		s.tier, s.pending = t, 0 // the end of the node's tier was not written either
	}
	s.words[r] = w&(WordReached|WordSubstituted|WordBlocked|wordObserved) | WordDecided | uint64(to)<<statusShift | uint64(CauseStoreError)<<kindShift | arg
	s.log(r, w, to)
}

// SetBack gives a node the status that it has in the store. This status is not terminal. The run has lost its store, and the State makes no more
// decisions.
func (s *Locked) SetBack(r Ref, to Status, dormant bool, attempts int32) {
	was := s.words[r]
	w := was & (wordObserved | wordFeeds)
	if to != Idle {
		w |= WordDecided | WordReached | uint64(to)<<statusShift | uint64(attempts)
	}
	if dormant {
		w |= WordDormant
	}
	if statusOf(was).Terminal() && r != s.net.end {
		*s.leftOf(r)++
	}
	if to == Suspended && statusOf(was) != Suspended {
		s.asleep++
	}
	s.words[r] = w
	s.log(r, was, to)
}

// onBranch corrects the decision d for a node on a branch: to skip the node, or to run it with defaults. All in-edges of the node have resolved, and
// onBranch visits each of them once. If all routers of the node were skipped because of branches not taken, a spare edge may let the node run (see
// net_side.go). Under AllSucceeded, a node on a branch that was not taken is skipped instead of run with defaults. Under rules other than
// AllSucceeded and Boundary, onBranch corrects nothing.
func (s *Locked) onBranch(r Ref, f *facts, d decision) decision {
	var rest, side, spare uint8 // the classes of the edges, by the role of the edge
	asked := false
	for _, i := range s.net.in.row(r) {
		e := &s.net.edges[i]
		if e.isData() {
			continue
		}
		class, bypass := s.class(e.From, e.arc())
		if e.isRouting() && (statusOf(s.words[e.From]) != Skipped || bypass) {
			asked = true
		}
		if class == seenN && bypass && f.mode == SkipSatisfy {
			class = seenS
		}
		switch {
		case e.standing == standsBy:
			side |= class
		case e.standing == standsSpare:
			spare |= class
		default: // a routing edge, an edge that is another way in, or an always edge
			rest |= class
		}
	}
	if asked {
		side, spare = side|spare, 0
	}
	rest |= spare
	switch {
	case d == decideSubstitute && side&seenF != 0 && f.join == AllSucceeded && rest&(seenF|seenS) == 0:
		return decideSkip
	case d == decideSkip && f.join == AllSucceeded && f.mode != SkipStrict && spare&seenS != 0,
		d == decideSkip && f.join == Boundary && spare&(seenS|seenF) != 0:
		return decideReady
	}
	return d
}
