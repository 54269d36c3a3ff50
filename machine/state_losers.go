package machine

import (
	"slices"

	"github.com/seed-c794f7ef/kahn/internal/ordset"
)

// loserSearch is the state of the search for losers. The State keeps it from one decision to the next.
type loserSearch struct {
	wanted     []int32    // by Ref: how many of the node's arcs, counted from the first, are known to lead to decided nodes
	candidates ordset.Set // by Ref, in descending order; empty between calls
}

// supersede stops the losers of an early decision. A loser is an unfinished node that no undecided node needs: all its out-edges lead to decided
// nodes, and at least one of these nodes has CancelLosers or is a loser itself. A cleanup node is never a loser. supersede visits the unfinished
// predecessors of r and of losers in reverse topological order, so that it visits each node after the node's successors. A decided node stays
// decided, so the numbers in `wanted` never decrease, and each out-edge is counted once, however many decisions there are.
func (s *Locked) supersede(r Ref) {
	if s.losers == nil {
		s.ownAftermath().losers = &loserSearch{make([]int32, len(s.words)), ordset.Make(len(s.words))}
	}
	last, wanted := len(s.words)-1, s.losers.wanted
	s.addCandidates(r)
	for i, ok := s.losers.candidates.PopMin(); ok; i, ok = s.losers.candidates.PopMin() {
		x := Ref(last - i)
		arcs := s.net.Out(x)
		for ; int(wanted[x]) < len(arcs) && s.words[arcs[wanted[x]].to]&WordDecided != 0; wanted[x]++ {
			s.visits++
		}
		if int(wanted[x]) < len(arcs) || s.net.facts[x].is(FlagCleanup) || !slices.ContainsFunc(arcs, s.leadsToLoss) {
			continue
		}
		switch statusOf(s.words[x]) {
		case Running:
			s.AskToStop(x, CauseSuperseded, r)
		case Retrying, Suspended:
			s.withdraw(x)
			s.finish(x, Cancelled, uint64(CauseSuperseded)<<kindShift|uint64(uint32(r)))
		default:
			s.withdraw(x)
			s.finish(x, Skipped, uint64(SkipSuperseded)<<kindShift|uint64(uint32(r)))
		}
		// All out-edges of x lead to decided nodes, so visit need not resolve them.
		s.addCandidates(x)
	}
}

// addCandidates adds the unfinished predecessors of a node to the candidates.
func (s *Locked) addCandidates(r Ref) {
	row := s.net.in.row(r)
	s.visits += int64(len(row))
	for _, i := range row {
		if from := s.net.edges[i].From; !statusOf(s.words[from]).Terminal() {
			s.losers.candidates.Insert(len(s.words) - 1 - int(from))
		}
	}
}

// leadsToLoss reports whether the target of an edge cancels losers, or is itself a loser. The target is decided.
func (s *Locked) leadsToLoss(a Arc) bool {
	if s.net.facts[a.to].is(FlagCancelLosers) {
		return true
	}
	w := s.words[a.to]
	switch statusOf(w) {
	case Skipped:
		return SkipKind(kindOf(w)) == SkipSuperseded
	case Cancelled:
		return kindOf(w) == CauseSuperseded
	}
	return w&WordStopping != 0 && kindOf(w) == CauseSuperseded
}
