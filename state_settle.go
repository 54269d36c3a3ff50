package kahn

import (
	"fmt"

	"github.com/seed-c794f7ef/kahn/internal/ordset"
)

// finish makes a node terminal. The caller visits its out-edges.
func (s *State) finish(r Ref, to Status, bits uint64) {
	w := s.words[r]
	s.check(r, to)
	s.words[r] = w&(wordReached|wordBlocked|wordObserved) | wordDecided | uint64(to)<<statusShift | bits
	s.count(r, to, bits)
	if x := s.stateTimes; x != nil {
		x.clock++
		x.settledAt[r] = x.clock
	}
	s.log(r, w, to)
}

// count counts a node that has become terminal.
func (s *State) count(r Ref, to Status, bits uint64) {
	if r != s.net.end {
		s.left--
	}
	if s.waves && s.net.facts[r].tier == s.tier {
		s.pending--
	}
	switch to {
	case Failed:
		s.badNodes++
		if bits&wordTolerated != 0 {
			s.tolerated++
		}
	case Aborted:
		s.badNodes++
	case Cancelled:
		s.badNodes++
		s.cancelled++
	}
}

// check checks a transition against the table. One that is not in it is a defect of this package: tests panic, a run goes on
// and reports it. Transitions that happen for every node are checked in tests alone, see verifying. Two writes are no
// transitions: a restored word, and overrule, which takes back a change that a store could not write.
func (s *State) check(r Ref, to Status) {
	from := statusOf(s.words[r])
	if from.CanBecome(to) {
		return
	}
	err := fmt.Errorf("internal error: %w", &TransitionError{Node: s.net.id(r), From: from, To: to})
	s.noteBug(err)
}

func (s *State) noteBug(err error) {
	if verifying {
		panic(err)
	}
	if s.bug == nil {
		s.bug = err
	}
}

// verifying is set by the package's own tests: every transition is checked, and one that is not in the table panics.
var verifying bool

func (s *State) setStatus(r Ref, to Status) {
	w := s.words[r]
	s.check(r, to)
	s.words[r] = w&^wordStatus | uint64(to)<<statusShift
	s.log(r, w, to)
}

// log notes a transition for the event log and the signals, if there are any. was is the node's word before.
func (s *State) log(r Ref, was uint64, to Status) {
	if s.noted {
		s.note(r, was, to)
	}
}

func (s *State) note(r Ref, was uint64, to Status) {
	if s.logged {
		s.changes = append(s.changes, change{ref: r, attempt: int32(s.words[r] & wordCount), status: to})
	}
	if s.obs != nil {
		s.obs.note(r, was)
	}
}

// kept returns the transitions since the last drop.
func (s *State) kept() []change { return s.changes }

// dropChanges forgets these.
func (s *State) dropChanges() { s.changes = s.changes[:0] }

// hushReady keeps the transitions to Ready from the log.
func (s *State) hushReady() {
	for i := range s.changes {
		if c := &s.changes[i]; c.status == Ready {
			c.quiet = true
		}
	}
}

// visitAll visits the out-edges of all nodes in the work list.
func (s *State) visitAll() {
	for i := 0; i < len(s.work); i++ {
		s.visit(s.work[i])
	}
	s.work = s.work[:0]
}

// visit resolves the out-edges of a terminal node: O(1) each, none twice. Nodes whose join may decide now are touched; the
// caller judges them in the order of their Refs. A plain node, all of whose edges are satisfied, is ready without being
// judged.
func (s *State) visit(r Ref) {
	arcs := s.net.outOf(r)
	s.visits += int64(len(arcs))
	if statusOf(s.words[r]) != Completed || s.net.facts[r].is(factForks) {
		s.visitSlow(r, arcs)
		return
	}
	words := s.words
	for i := range arcs {
		to := uint32(arcs[i].to) // not negative: an index that needs no sign
		if w := words[to]; w&(wordSpecial|wordDecided) == 0 && uint32(w) > 1 {
			words[to] = (w - 1) | wordS // most edges come no further
		} else if w&wordDecided == 0 {
			s.visitLast(Ref(to), w)
		}
	}
}

// visitLast is visit for an edge after which the target's join may decide.
func (s *State) visitLast(r Ref, w uint64) {
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

func (s *State) visitSlow(r Ref, arcs []arc) {
	for _, a := range arcs {
		w := s.words[a.to]
		f := &s.net.facts[a.to]
		if w&wordDecided != 0 {
			if f.is(factLateCancel) && !statusOf(w).Terminal() && !a.is(arcData) {
				if class, _ := s.class(r, a); class == seenF {
					s.late = append(s.late, a.to)
				}
			}
			continue
		}
		if f.wide >= 0 && a.is(arcPort) {
			s.wide[f.wide].ports--
		}
		w--
		if !a.is(arcData) {
			class, bypass := s.class(r, a)
			if class == seenN && bypass {
				if f.mode == SkipSatisfy {
					class = seenS
				} else {
					w |= wordBypass
				}
			}
			if a.is(arcSide) && (class == seenS || class == seenF && f.join == Boundary) {
				class = 0 // it does not count in the join
			}
			w |= uint64(class) << seenShift
			if f.wide >= 0 {
				if class == seenS {
					s.wide[f.wide].s++
				} else {
					s.wide[f.wide].other++
				}
			}
		}
		s.words[a.to] = w
		if !s.waves {
			s.touch(a.to)
		}
	}
}

// class is the class into which an edge resolves, once its source is terminal. No other function decides this. bypass
// reports, for a neutral edge, that its source was skipped for a reason of its own and not because of a branch.
func (s *State) class(from Ref, a arc) (class uint8, bypass bool) {
	w := s.words[from]
	switch statusOf(w) {
	case Completed:
		if a.is(arcFailure) || a.is(arcLabelled) && !s.taken[a.label()] {
			return seenX, false
		}
		return seenS, false
	case Skipped:
		return seenN, w&wordBypass != 0
	case Failed, Aborted:
		if w&wordTolerated != 0 && !a.is(arcFailure) {
			if a.is(arcLabelled) {
				return seenX, false
			}
			return seenS, false
		}
		switch {
		case a.is(arcAlways), a.is(arcFailure) && s.net.filters[a.label()].has(kindOf(w)):
			return seenS, false
		case a.is(arcFailure):
			return seenF, false
		case s.net.facts[from].catch.has(kindOf(w)):
			return seenX, false
		}
	case Cancelled:
		if a.is(arcAlways) {
			return seenS, false
		}
	}
	if a.is(arcShielded) && !a.is(arcFailure) {
		return seenN, false
	}
	return seenF, false
}

func (s *State) touch(r Ref) {
	if s.touched == nil {
		s.touched = ordset.New(len(s.words))
	}
	s.touched.Insert(int(r))
}

// cascade judges the joins of touched nodes in the order of their Refs, which is topological: when a node is judged, the
// rest of the cascade cannot change its counts, and so the order of consequences is by tier and declaration.
func (s *State) cascade() {
	for {
		i, ok := s.touched.PopMin()
		if !ok {
			break
		}
		if r := Ref(i); s.judge(r) {
			s.visit(r)
		}
	}
	for len(s.late) > 0 {
		r := s.late[0]
		s.late = s.late[1:]
		if !statusOf(s.words[r]).Terminal() {
			kind, origin := s.upstream(r)
			_ = s.stopNode(r, kind, origin, stopAsking) // it is not terminal, and not the end node: it has successors
		}
	}
}

// judge applies the join of an undecided node to its counts, and reports whether the node became terminal.
func (s *State) judge(r Ref) (terminal bool) {
	w := s.words[r]
	if w&wordDecided != 0 {
		return false
	}
	f := &s.net.facts[r]
	c := counts{seen: uint8(w >> seenShift & 15), open: w&wordCount != 0, total: f.total}
	if f.wide >= 0 {
		x := &s.wide[f.wide]
		c.s, c.other, c.portOpen = x.s, x.other, x.ports > 0
	}
	d := decide(f.join, f.mode, f.policy, c)
	if f.is(factBranch) && (d == decideSkip || d == decideSubstitute) {
		d = s.onBranch(r, f, d)
	}
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
			s.finish(r, Skipped, uint64(SkipParentFailure)<<kindShift|wordBypass|noEdge)
		case UpstreamPropagate:
			kind, origin := s.upstream(r)
			s.finish(r, Failed, uint64(kind)<<kindShift|wordPropagated|uint64(uint32(origin)))
		default:
			kind, origin := s.upstream(r)
			s.finish(r, Aborted, uint64(kind)<<kindShift|uint64(uint32(origin)))
		}
		return true
	default:
		if d == decideSubstitute {
			s.blocked(r)
			w |= wordSubstituted | wordBlocked
		}
		s.words[r] = w&^wordCount | wordDecided // from now on the low bits count attempts
		if x := s.stateTimes; x != nil {
			x.decidedAt[r] = x.clock
		}
		if s.net.losers && c.open {
			defer s.supersede(r)
		}
		if f.is(factCheck) || f.is(factAdmit) && !s.admits { // a Run judges inputs when their node has its slot
			s.words[r] |= wordChecking
			s.busy++
			s.evaluateInline(r)
			return false
		}
		s.makeReady(r)
		return false
	}
}

func (s *State) blocked(r Ref) {
	was := s.words[r]
	s.words[r] |= wordBlocked
	if s.logged {
		s.changes = append(s.changes, change{ref: r, blocked: true})
	}
	if s.obs != nil {
		s.obs.note(r, was)
	}
}

func (s *State) makeReady(r Ref) {
	if verifying {
		s.check(r, Ready)
	}
	was := s.words[r]
	w := was
	if w&wordDecided == 0 {
		w = w&^wordCount | wordDecided
	}
	s.words[r] = w&^wordStatus | wordReady | wordReached
	if !s.parks || !s.parksNode(r) {
		s.queue(r)
	}
	s.log(r, was, Ready)
}

// parksNode reports whether a node that becomes ready is to be queued by the host: one that is evaluated as soon as it is taken,
// and no attempt of which is recorded before.
func (s *State) parksNode(r Ref) bool {
	f := &s.net.facts[r]
	return s.parks && f.is(factInline) && !f.is(factGate) && !f.is(factComposite)
}

// queue makes a ready node contend for being handed out.
func (s *State) queue(r Ref) {
	switch f := &s.net.facts[r]; {
	case s.words[r]&wordPlain != 0:
		s.ready.Insert(int(s.pos[r]))
	case f.is(factGate):
		s.gates = append(s.gates, r)
	case f.is(factInline):
		s.evaluateInline(r)
	default:
		s.ready.Insert(int(s.pos[r]))
	}
}

// evaluateInline queues a check or an inline node.
func (s *State) evaluateInline(r Ref) {
	if s.inline == nil {
		s.inline = ordset.New(len(s.words))
	}
	s.inline.Insert(int(r))
}

// skipBits finds the reason why the join skips r, and the root of the skip, in one pass over r's in-edges, all of which are
// resolved.
func (s *State) skipBits(r Ref, w uint64) uint64 {
	f := &s.net.facts[r]
	seen := uint8(w >> seenShift & 15)
	rule := uint64(SkipRuleUnsatisfied)<<kindShift | wordBypass | noEdge
	if seen != seenX {
		switch f.join.rule() {
		case OneFailed, AllFailed, AllSkipped:
			return rule
		case AnySucceeded, joinAtLeast:
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
		class, bypass := s.class(e.from, e.arc())
		if class == seenX {
			return uint64(SkipConditionBranch)<<kindShift | w&wordBypass | uint64(i)
		}
		if class == seenN && firstN == noEdge && !(bypass && f.mode == SkipSatisfy) {
			firstN = uint64(i)
		}
	}
	return uint64(SkipUpstreamSkipped)<<kindShift | w&wordBypass | firstN
}

// upstream names, for a node that its predecessors keep from running, the kind of cause and one origin, as far as they are
// known now: of the failed predecessors the first one in the order of declaration, cancelled ones last.
func (s *State) upstream(r Ref) (CauseKind, Ref) {
	kind, origin := CauseUpstreamCancelled, noRef
	for _, i := range s.net.in.row(r) {
		e := &s.net.edges[i]
		w := s.words[e.from]
		if e.isData() || !statusOf(w).Terminal() {
			continue
		}
		if class, _ := s.class(e.from, e.arc()); class != seenF {
			continue
		}
		from := s.originOf(e.from)
		if !s.cancelClass(e.from) {
			return CauseUpstreamFailure, from
		}
		if origin == noRef {
			origin = from
		}
	}
	return kind, origin
}

// originOf returns one origin of a terminal bad node: itself if it failed or was cancelled by itself. It is noRef for a node
// that was stopped from outside.
func (s *State) originOf(r Ref) Ref {
	w := s.words[r]
	if statusOf(w) == Aborted || w&wordPropagated != 0 {
		return Ref(int32(uint32(w)))
	}
	return r
}

// cancelClass reports whether a terminal bad node was stopped because of a request, as far as is known now.
func (s *State) cancelClass(r Ref) bool {
	w := s.words[r]
	return statusOf(w) == Cancelled || kindOf(w) == CauseUpstreamCancelled
}

// maybeEnd starts the end node when everything else is terminal.
func (s *State) maybeEnd() {
	if s.left == 0 && s.net.end != noRef && statusOf(s.words[s.net.end]) == Idle {
		s.makeReady(s.net.end)
	}
}

func (s *State) settle(t Token, out Outcome) error {
	if err := s.current(t, s.settledFrom(t.Ref)); err != nil {
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
					return fmt.Errorf("%w: node %s: no label number %d", ErrBadValue, quoteID(s.net.id(r)), id)
				}
			}
			for _, id := range out.Route {
				s.taken[f.labels+id] = true
			}
		}
		if out.Degraded {
			bits = wordTolerated
			s.tolerated++
		}
	case Failed:
		if out.Cause == CauseNone || out.Cause >= causeCount {
			return fmt.Errorf("%w: node %s: failed with cause %v", ErrBadValue, quoteID(s.net.id(r)), out.Cause)
		}
		bits = uint64(out.Cause) << kindShift
		if w&wordStopping != 0 && returnsError.has(out.Cause) {
			out.Status, out.Cause = kindOf(w).stopStatus(), kindOf(w)
			bits = uint64(out.Cause)<<kindShift | uint64(uint32(s.stopOrigin(r)))
			if out.Cause == CauseSuperseded && w&wordAdmitting != 0 { // it has not started
				out.Status, bits = Skipped, uint64(SkipSuperseded)<<kindShift|uint64(uint32(s.stopOrigin(r)))
			}
		} else if f.is(factTolerant) {
			bits |= wordTolerated
		}
	case Aborted, Cancelled:
		if w&wordStopping != 0 {
			out.Status, out.Cause = kindOf(w).stopStatus(), kindOf(w)
		}
		if out.Cause == CauseNone || out.Cause >= causeCount {
			return fmt.Errorf("%w: node %s: %v with cause %v", ErrBadValue, quoteID(s.net.id(r)), out.Status, out.Cause)
		}
		bits = uint64(out.Cause)<<kindShift | uint64(uint32(s.stopOrigin(r)))
	case Skipped:
		if r == s.net.end {
			return &TransitionError{Node: s.net.id(r), From: Running, To: Skipped}
		}
		if statusOf(w) != Running {
			return &TransitionError{Node: s.net.id(r), From: statusOf(w), To: Skipped}
		}
		bits = uint64(SkipSelf)<<kindShift | wordBypass | noEdge
	default:
		return &TransitionError{Node: s.net.id(r), From: Running, To: out.Status}
	}
	s.withdraw(r)
	s.finish(r, out.Status, bits)
	s.settled(r)
	return nil
}

// complete is settle for a plain node that has completed.
func (s *State) complete(r Ref) {
	if verifying {
		s.check(r, Completed)
	}
	s.busy--
	s.running--
	if s.waves || s.noted || s.stateTimes != nil || s.limits.active {
		s.release(r)
		s.finish(r, Completed, 0)
		s.settled(r)
		return
	}
	s.left--
	s.words[r] = s.words[r]&wordReached | wordDecided | wordDone
	s.visit(r)
	if s.touched.Len() > 0 || len(s.late) > 0 {
		s.cascade()
	}
	if s.left == 0 {
		s.maybeEnd()
	}
}

// returnsError are the failures that a returned error causes: on a node that was asked to stop they mean that it has
// stopped. A panic or a timeout that came first remains a failure.
const returnsError = causeSet(1<<CauseStepError | 1<<CauseRateLimit | 1<<CauseContractOutput | 1<<CauseSubrun | 1<<CauseMapItems)

// settled applies the consequences of a node's end.
func (s *State) settled(r Ref) {
	if s.waves {
		s.visit(r)
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

// overrule makes a node, whose end was not written, one that a store error ended: failed if it was the node's own end.
func (s *State) overrule(r Ref, own bool) {
	w := s.words[r]
	switch statusOf(w) {
	case Failed:
		s.badNodes--
		if w&wordTolerated != 0 {
			s.tolerated--
		}
	case Aborted:
		s.badNodes--
	case Cancelled:
		s.badNodes--
		s.cancelled--
	}
	origin := noRef
	to, arg := Aborted, uint64(uint32(origin))
	if own {
		to, arg = Failed, 0
	}
	s.badNodes++
	s.origins = nil // final origins may change now
	if t := s.net.facts[r].tier; s.waves && t < s.tier {
		s.tier, s.pending = t, 0 // the end of the tier was not written either
	}
	s.words[r] = w&(wordReached|wordBlocked|wordObserved) | wordDecided | uint64(to)<<statusShift | uint64(CauseStoreError)<<kindShift | arg
	s.log(r, w, to)
}

// setBack gives a node that has not ended in its store the status that it has there. The State is not used any more.
func (s *State) setBack(r Ref, to Status, dormant bool, attempts int32) {
	was := s.words[r]
	w := was & (wordObserved | wordFeeds)
	if to != Idle {
		w |= wordDecided | wordReached | uint64(to)<<statusShift | uint64(attempts)
	}
	if dormant {
		w |= wordDormant
	}
	if statusOf(was).Terminal() && r != s.net.end {
		s.left++
	}
	if to == Suspended && statusOf(was) != Suspended {
		s.asleep++
	}
	s.words[r] = w
	s.log(r, was, to)
}

// onBranch decides about a node with side edges, all of whose edges are resolved, that its join would skip or run with
// defaults. It visits the in-edges once. Another way in may save the node from being skipped if none of its routers was
// asked; and there are no defaults for a branch that was not taken.
func (s *State) onBranch(r Ref, f *facts, d decision) decision {
	var path, side, spare, always uint8 // the classes of the edges, by the role of each
	asked := false
	for _, i := range s.net.in.row(r) {
		e := &s.net.edges[i]
		if e.isData() {
			continue
		}
		class, bypass := s.class(e.from, e.arc())
		if e.isRouting() && (statusOf(s.words[e.from]) != Skipped || bypass) {
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
		case e.flags&arcAlways != 0:
			always |= class
		default:
			path |= class
		}
	}
	if asked {
		side, spare = side|spare, 0
	}
	switch {
	case d == decideSubstitute && side&seenF != 0 && (path|spare|always)&seenF == 0 && (path|spare)&seenS == 0:
		return decideSkip
	case d == decideSkip && f.join == AllSucceeded && f.mode != SkipStrict && spare&seenS != 0,
		d == decideSkip && f.join == Boundary && spare&(seenS|seenF) != 0:
		return decideReady
	}
	return d
}
