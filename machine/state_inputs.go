package machine

import (
	"iter"

	"github.com/seed-c794f7ef/kahn/internal/enum"
)

// Delivery is the kind of value that an edge delivers to its target.
type Delivery uint8

var deliveryNames = enum.Of[Delivery]("delivery", "nothing", "output", "error", "default")

// The deliveries.
const (
	DeliverNothing Delivery = iota
	DeliverOutput           // the source's output, or the part of it that the edge's key selects
	DeliverError            // the source's error, delivered by a catch edge or an always edge
	DeliverDefault          // the edge's Default, else the target's Default, else "": the target runs with defaults; the source failed or was skipped
)

// String returns "nothing", "output", "error" or "default".
func (d Delivery) String() string { return deliveryNames.Name(d) }

// Inputs yields each in-edge of a node, in declaration order: the edge's number (see [Net.Edge]) and what the edge delivers. The deliveries are
// fixed when the node's join decides: if the source of an edge has not ended by then, the edge delivers nothing.
func (st *State) Inputs(r Ref) iter.Seq2[int32, Delivery] {
	return func(yield func(int32, Delivery) bool) {
		if (*Locked)(st).known(r) != nil {
			return
		}
		for _, i := range st.net.in.row(r) {
			s := st.lock()
			d := s.Delivery(r, i, s.words[r]&WordSubstituted != 0)
			s.Unlock()
			if !yield(i, d) {
				return
			}
		}
	}
}

// Delivery returns what an in-edge delivers to a node whose join is decided. It reads the word of the edge's source. If the node has an early
// rule, the source may still run, and the caller must hold the lock. Otherwise the source is terminal, and its word changes only if a store
// refuses or loses the source's end.
func (s *Locked) Delivery(to Ref, i int32, substituted bool) Delivery {
	if from := s.net.edges[i].From; s.net.facts[to].is(FlagEarly) && (s.settledAt[from] == 0 || s.settledAt[from] > s.decidedAt[to]) {
		return DeliverNothing
	}
	return s.DeliveryOf(to, i, substituted)
}

// DeliveryOf does the work of Delivery for an edge that resolved before the join was decided.
func (s *Locked) DeliveryOf(to Ref, i int32, substituted bool) Delivery {
	e := &s.net.edges[i]
	f := &s.net.facts[to]
	status := statusOf(s.words[e.From])
	if e.Flags&EdgeData != 0 {
		if status == Completed {
			return DeliverOutput
		}
		return DeliverNothing
	}
	class, bypass := s.class(e.From, e.arc())
	switch {
	case class == seenS && status == Completed:
		return DeliverOutput
	case class == seenS && e.Flags&(EdgeFailure|EdgeAlways) != 0 && status != Cancelled &&
		(e.Flags&EdgeFailure != 0 || s.words[e.From]&WordTolerated == 0):
		return DeliverError
	case class == seenF && substituted, class == seenN && substituted && !(bypass && f.mode == SkipSatisfy):
		return DeliverDefault
	}
	return DeliverNothing
}
