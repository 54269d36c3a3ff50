package kahn

import (
	"slices"
	"time"
)

// Queued returns when the attempt became ready to start: when the last predecessor that its join waited for ended, the backoff before it
// was over, or the signal came for which the step waited. Until the attempt's start, which is the time of its event node.started, it was
// checked, and waited for slots, for tokens and for the store. It is for the time in which the attempt runs.
func (s *Step) Queued() time.Time {
	if c := s.given(); c != nil {
		return c.Queued
	}
	r := s.run
	r.st.Lock()
	defer r.st.Unlock()
	return r.timeAt(r.readyAt(s.ref))
}

// Predecessor is a node that another one follows: see [Step.Predecessors].
type Predecessor struct {
	ID     string
	Path   string // as in [Event]
	Status Status
}

// Predecessors returns the nodes that this one follows by edges of any kind, each once and in the order in which the edges are declared, with
// their statuses now: all of them have ended, but for some behind a join that decides early. Those of an item are those of the map;
// the first nodes of a sub-graph have none.
func (s *Step) Predecessors() []Predecessor {
	if c := s.given(); c != nil {
		return append([]Predecessor{}, c.Predecessors...)
	}
	r, ref, _ := s.run.home(s.ref, s.flags)
	var refs []Ref
	for _, i := range r.plan.net.In(ref) {
		refs = append(refs, r.plan.net.Source(i))
	}
	list := make([]Predecessor, 0, len(refs))
	seen := make(map[Ref]bool, len(refs))
	r.st.Lock()
	defer r.st.Unlock()
	for _, from := range refs {
		if !seen[from] {
			seen[from] = true
			list = append(list, Predecessor{ID: r.plan.names[from], Path: r.path(from), Status: r.st.Status(from)})
		}
	}
	return slices.Clip(list)
}

// Epoch returns the epoch of the lease under which the run is performed, a fencing token for the world outside: it is higher in each
// life of the run, so whoever gets requests of steps may refuse one with a lower epoch than it has seen, which comes from a process that
// has lost the run and does not know it yet. It is 0 for a run that is not [Durable].
func (s *Step) Epoch() uint64 {
	if c := s.given(); c != nil {
		return c.Epoch
	}
	if d := s.run.durable; d != nil {
		return d.lease.Epoch
	}
	return 0
}
