package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// Build makes a net of nodes and edges in the order of their declaration, by whose indices the edges name the nodes. A zero Join is
// [AllSucceeded], a zero Skip [SkipCascade], a zero Upstream [UpstreamAbort]. The ids are for errors. Of an edge with [EdgeLabelled]
// LabelID is the number of its label among those of its source, from 0; an edge with [EdgeFailure] lets every failure through. A
// [Builder] can do more.
//
// A cycle, an edge to a node that is not there, and lists of nodes of different lengths are errors that match [ErrBadValue].
func Build(ids []string, nodes []NodeSpec, edges []Edge) (*Net, error) {
	if len(ids) != len(nodes) {
		return nil, fmt.Errorf("%w: %d ids for %d nodes", ErrBadValue, len(ids), len(nodes))
	}
	outside := func(r Ref) bool { return r < 0 || int(r) >= len(nodes) }
	for i, e := range edges {
		if outside(e.From) || outside(e.To) {
			return nil, fmt.Errorf("%w: edge number %d leads from node number %d to %d of %d", ErrBadValue, i, e.From, e.To, len(nodes))
		}
	}
	var b Builder
	b.Begin(len(nodes), slices.Clone(edges), -1)
	if cycle := b.Levels(); cycle != nil {
		names := make([]string, len(cycle))
		for i, at := range cycle {
			names[i] = foreign.Quote(ids[at])
		}
		return nil, fmt.Errorf("%w: cycle: %s", ErrBadValue, strings.Join(names, " -> "))
	}
	p := &Net{}
	b.Number(p, ids)
	for i, r := range p.declared {
		b.Rule(r, nodes[i].completed())
	}
	for i, e := range edges {
		switch {
		case e.Flags&EdgeFailure != 0:
			b.Catch(int32(i), nil)
		case e.Flags&EdgeLabelled != 0:
			b.Routed(p.edges[i].From)
			b.Label(int32(i), e.LabelID)
		}
	}
	if !b.Lay() {
		return nil, fmt.Errorf("%w: more than %d labels", ErrBadValue, MostLabels)
	}
	b.Shield()
	b.FindSides()
	b.Finish()
	b.OrderBy(func(Ref) int64 { return 1 }, nil)
	return p, nil
}

// completed returns the spec with the defaults of Build.
func (x NodeSpec) completed() NodeSpec {
	if x.Join == joinDefault {
		x.Join = AllSucceeded
	}
	if x.Skip == skipModeDefault {
		x.Skip = SkipCascade
	}
	if x.Upstream == upstreamDefault {
		x.Upstream = UpstreamAbort
	}
	if x.Flags&(FlagInline|FlagAdmit|FlagGate|FlagComposite) == 0 {
		x.Flags |= FlagPlain
	}
	return x
}
