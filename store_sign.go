package kahn

import (
	"time"

	"github.com/seed-c794f7ef/kahn/store"
)

// LastSign returns the time of the last sign of life from the process of a stored run. There is a sign when the run is created, when an attempt of a
// node begins or ends, and when a node begins to wait. If no process performs the run any more (see [store.LeaseReader]), the last process stopped
// at this time or later. The argument `run` contains the start of each node's first attempt and the end of its last attempt. The argument `nodes`
// contains the times of all other attempts and of waits: see [Snapshot.Nodes]. Without `nodes` the result may be too early.
func LastSign(run *store.Run, nodes []SnapshotNode) time.Time {
	s := sign(run.Created)
	for _, n := range run.Nodes {
		s.see(n.Start)
		s.see(n.End)
	}
	s.addNodes(nodes)
	return time.Time(s)
}

// A sign is the latest of the times that LastSign has seen so far.
type sign time.Time

func (s *sign) see(at time.Time) {
	if at.After(time.Time(*s)) {
		*s = sign(at)
	}
}

func (s *sign) addNodes(nodes []SnapshotNode) {
	for i := range nodes {
		n := &nodes[i]
		for _, a := range n.History() {
			s.see(a.Start)
			s.see(a.End)
		}
		if n.Wait != nil {
			s.see(n.Wait.Since)
		}
		if n.Status.Terminal() && !n.Start.IsZero() {
			s.see(n.Start.Add(n.Duration))
		}
		s.addNodes(n.Inside)
	}
}
