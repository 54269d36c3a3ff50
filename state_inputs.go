package kahn

import (
	"iter"

	"github.com/seed-c794f7ef/kahn/internal/enum"
)

// Delivery is the kind of value that an edge delivers to its target.
type Delivery uint8

var deliveryNames = [...]string{"nothing", "output", "error", "default"}

// The deliveries.
const (
	DeliverNothing Delivery = iota
	DeliverOutput           // the source's output, by the edge's key
	DeliverError            // the source's error, over a catch or always edge
	DeliverDefault          // the edge's Default, else the target's, else "": the source failed and is substituted
)

// String returns "nothing", "output", "error" or "default".
func (d Delivery) String() string { return enum.Name(deliveryNames[:], int(d), "Delivery") }

// Inputs yields the numbers of the in-edges of a node, see [Plan.Edge], in the order of declaration, with the delivery of each
// once the node's join is decided: edges that were open then never deliver.
func (s *State) Inputs(r Ref) iter.Seq2[int32, Delivery] {
	return func(yield func(int32, Delivery) bool) {
		if s.known(r) != nil {
			return
		}
		for _, i := range s.net.in.row(r) {
			s.mu.Lock()
			d := s.delivery(r, i, s.words[r]&wordSubstituted != 0)
			s.mu.Unlock()
			if !yield(i, d) {
				return
			}
		}
	}
}

// delivery returns the delivery of an in-edge of a node whose join is decided. It reads the word of the edge's source, which
// does not change any more if the source is terminal: it always is, except for a node with an early rule, for which the lock
// must be held.
func (s *State) delivery(to Ref, i int32, substituted bool) Delivery {
	if from := s.net.edges[i].from; s.net.facts[to].is(factEarly) && (s.settledAt[from] == 0 || s.settledAt[from] > s.decidedAt[to]) {
		return DeliverNothing
	}
	return s.deliveryOf(to, i, substituted)
}

// deliveryOf is delivery for an edge that has resolved in time.
func (s *State) deliveryOf(to Ref, i int32, substituted bool) Delivery {
	e := &s.net.edges[i]
	f := &s.net.facts[to]
	status := statusOf(s.words[e.from])
	if e.flags&arcData != 0 {
		if status == Completed {
			return DeliverOutput
		}
		return DeliverNothing
	}
	class, bypass := s.class(e.from, e.arc())
	switch {
	case class == seenS && status == Completed:
		return DeliverOutput
	case class == seenS && e.flags&(arcFailure|arcAlways) != 0 && status != Cancelled &&
		(e.flags&arcFailure != 0 || s.words[e.from]&wordTolerated == 0):
		return DeliverError
	case class == seenF && substituted, class == seenN && substituted && !(bypass && f.mode == SkipSatisfy):
		return DeliverDefault
	}
	return DeliverNothing
}
