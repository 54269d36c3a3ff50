package machine

import (
	"fmt"
	"math"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// This file checks the words of a snapshot against the net. A node's word is plausible if a State can give this word to the node while the node's
// predecessors have their words from the snapshot. If all words are plausible, a State that continues from the snapshot obeys the transition rules,
// and its run can end.

// firstWord returns the word that a node has when a State without a [Host] begins. In such a State, a node with FlagAdmit gets wordSpecial, because a
// check judges the node's inputs before the node becomes ready.
func (p *Net) firstWord(r Ref) uint64 {
	if p.facts[r].is(FlagAdmit) {
		return p.words[r] | wordSpecial
	}
	return p.words[r]
}

// checkWords returns an error if a node has an implausible word. The error names the first such node. checkWords also returns an error if the logical
// time or the tier does not match the words. The caller has already set the labels, counters, times and the tier.
func (s *Locked) checkWords() error {
	open, ended := 0, int32(0) // open counts the nodes that are not terminal, without the end node; ended counts the terminal nodes
	for r, w := range s.words {
		switch {
		case statusOf(w).Terminal():
			ended++
		case Ref(r) != s.net.end:
			open++
		}
	}
	if s.stateTimes != nil && s.clock != ended {
		return fmt.Errorf("%w: the logical time is %d, and %d nodes have ended", ErrBadValue, s.clock, ended)
	}
	inTier := false
	for i, w := range s.words {
		r := Ref(i)
		if !s.plausible(r, open) {
			return fmt.Errorf("%w: the state of node %s is impossible", ErrBadValue, foreign.Quote(s.net.ID(r)))
		}
		inTier = inTier || s.net.facts[r].tier == s.tier && !statusOf(w).Terminal()
	}
	if s.waves && s.tier < s.net.TierCount() && !inTier {
		return fmt.Errorf("%w: all nodes of tier %d have ended", ErrBadValue, s.tier)
	}
	return nil
}

// The method `plausible` reports whether the word of a node is plausible. The parameter `open` is the number of nodes that are not terminal, without
// the end node.
func (s *Locked) plausible(r Ref, open int) bool {
	w := s.words[r]
	status := statusOf(w)
	switch {
	case status >= statusCount, !s.inTime(r), status != Completed && s.hasRoute(r):
		return false
	case !status.Terminal() && w&WordDecided == 0:
		return s.plausibleOpen(r, open)
	case !status.Terminal():
		return s.plausibleLive(r, open)
	case w&WordDecided == 0, !s.plausibleEnd(r):
		return false
	case w&WordReached == 0:
		return r != s.net.end
	}
	flags, ok := s.letsRun(r, open)
	return ok && w&WordSubstituted&^flags == 0 // snapshots of older versions lack the flag
}

// inTime reports whether a node's logical times are possible. No time may be negative or later than the clock. A node that has ended must have an end
// time, and any other node must have none.
func (s *Locked) inTime(r Ref) bool {
	t := s.stateTimes
	return t == nil || min(t.settledAt[r], t.decidedAt[r]) >= 0 && max(t.settledAt[r], t.decidedAt[r]) <= t.clock &&
		(t.settledAt[r] > 0) == statusOf(s.words[r]).Terminal()
}

// hasRoute reports whether node r is a condition that has taken a label.
func (s *Locked) hasRoute(r Ref) bool {
	f := &s.net.facts[r]
	if f.router < 0 {
		return false
	}
	for id := range s.net.routes[f.router] {
		if s.taken[f.labels+id] {
			return true
		}
	}
	return false
}

// The method `resolved` computes the word and the extra counters that a node must have if its join has not decided. It starts from the node's first
// word (see firstWord) and resolves each in-edge whose source is terminal.
func (s *Locked) resolved(r Ref) (w uint64, x *wide) {
	w = s.net.firstWord(r)
	if s.net.facts[r].wide >= 0 {
		x = &wide{ports: s.net.portEdges(r)}
	}
	if r == s.net.end {
		return w, x // edges into the end node are not counted: see maybeEnd
	}
	for _, i := range s.net.in.row(r) {
		if e := &s.net.edges[i]; statusOf(s.words[e.From]).Terminal() {
			w = s.resolve(w, x, e.From, e.arc())
		}
	}
	return w, x
}

// plausibleOpen reports whether the word of a node is plausible. The join of the node has not decided. The word and the extra counters must be equal
// to the results of the method `resolved`. In Waves mode, the node's tier must not have begun. In Eager mode, the resolved edges must not be enough
// for a decision, and the end node must still wait for another node.
func (s *Locked) plausibleOpen(r Ref, open int) bool {
	f := &s.net.facts[r]
	w, x := s.resolved(r)
	switch {
	case s.words[r] != w, x != nil && s.wide[f.wide] != *x:
		return false
	case s.waves:
		return f.tier > s.tier
	case r == s.net.end:
		return open > 0
	}
	return s.decision(r, w, x) == undecided
}

// letsRun reports whether a node's join lets the node run. The result `flags` has the flags that the join sets in the node's word. If the rule may
// decide before all edges have resolved, letsRun does not check the join: it returns the flags that are in the word, and true.
func (s *Locked) letsRun(r Ref, open int) (flags uint64, ok bool) {
	const left = wordSeen | WordBypass
	switch {
	case r == s.net.end:
		return 0, open == 0
	case s.net.facts[r].is(FlagEarly):
		return s.words[r] & (left | WordSubstituted | WordBlocked), true
	}
	w, x := s.resolved(r)
	if w&wordCount != 0 {
		return 0, false
	}
	switch s.decision(r, w, x) {
	case decideReady:
		return w & left, true
	case decideSubstitute:
		return w&left | WordSubstituted | WordBlocked, true
	}
	return 0, false
}

// plausibleLive reports whether the word of a node is plausible. The join of the node has decided, and the node has not ended.
func (s *Locked) plausibleLive(r Ref, open int) bool {
	const joined = wordSeen | WordBypass | WordSubstituted | WordBlocked
	const fixed = wordSpecial | wordPlain
	const stops = WordStopping | WordDraining
	w, f := s.words[r], &s.net.facts[r]
	begun, gate := w&wordCount, f.is(FlagGate)
	flags, ok := s.letsRun(r, open)
	switch {
	case !ok, w&joined != flags, w&fixed != s.net.firstWord(r)&fixed, begun >= math.MaxInt32, s.waves && f.tier != s.tier,
		w&^(wordCount|wordStatus|wordKind|joined|fixed|stops|WordDecided|WordChecking|WordReached) != 0:
		return false
	case w&stops == 0 && kindOf(w) != CauseNone, w&stops != 0 && !kindOf(w).stops():
		return false
	case w&WordChecking != 0:
		return statusOf(w) == Idle && w&(WordReached|stops) == 0 && begun == 0 && f.is(FlagCheck|FlagAdmit)
	case w&WordReached == 0:
		return false
	}
	switch statusOf(w) {
	case Ready:
		return w&WordStopping == 0 && (begun == 0 || !gate)
	case Running:
		return begun > 0 && !gate
	case Retrying:
		return begun > 0 && !gate && w&stops == 0
	case Suspended:
		return w&WordStopping == 0 && (begun == 0) == gate && r != s.net.end
	}
	return false
}

// plausibleEnd reports whether a terminal node can have its word. It does not look at the node's predecessors.
func (s *Locked) plausibleEnd(r Ref) bool {
	w, f := s.words[r], &s.net.facts[r]
	kind, arg := kindOf(w), uint32(w)
	flags := w &^ (wordCount | wordStatus | wordKind | WordDecided | WordReached | WordSubstituted | WordBlocked)
	origin := Ref(int32(arg)) == NoRef || s.known(Ref(int32(arg))) == nil
	switch status := statusOf(w); {
	case status == Completed:
		return kind == CauseNone && arg == 0 && flags&^WordTolerated == 0 && w&WordReached != 0
	case status == Skipped:
		return s.plausibleSkip(r, flags)
	case flags == WordPropagated:
		return status == Failed && upstreamCauses.Has(kind) && w&WordReached == 0 && origin
	case status == Failed:
		return ownFailures.Has(kind) && arg == 0 && (flags == WordTolerated && f.is(FlagTolerant) || flags == 0 && !f.is(FlagTolerant))
	default:
		return causesOf[status].Has(kind) && flags == 0 && origin
	}
}

// plausibleSkip reports whether a skipped node can have its word. A node that was skipped because a branch was not taken, or because predecessors
// were skipped, may have WordBypass. A superseded node must not have it, and any other skipped node must have it.
func (s *Locked) plausibleSkip(r Ref, flags uint64) bool {
	w := s.words[r]
	arg := uint32(w)
	switch kind := SkipKind(kindOf(w)); {
	case flags&^WordBypass != 0 || kind == SkipNone || kind >= skipCount:
		return false
	case kind == SkipConditionBranch || kind == SkipUpstreamSkipped:
		return arg == noEdge || int64(arg) < int64(s.net.Edges()) && s.net.edges[arg].To == r
	case kind == SkipSuperseded:
		return flags == 0 && s.known(Ref(int32(arg))) == nil
	case kind == SkipNullPropagation:
		return flags != 0 && s.net.facts[r].hasPort(int(arg))
	}
	return flags != 0 && arg == noEdge
}
