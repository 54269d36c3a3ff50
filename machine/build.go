package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// Build makes a net from nodes and edges, both in declaration order. An edge names its nodes by their indices. A zero Join means [AllSucceeded], a
// zero Skip means [SkipCascade], and a zero Upstream means [UpstreamAbort]. The argument `ids` has the ids of the nodes, for error messages. In an
// edge with [EdgeLabelled], LabelID is the number of the label, counted from 0, among the labels of the edge's source. An edge with [EdgeFailure]
// handles failures of every cause. To make a net with other properties, such as an edge that handles failures of only some causes, use a [Builder].
//
// The error matches [ErrBadValue] if the edges have a cycle or an argument is invalid. An argument is invalid, for example, if ids and nodes differ
// in length, if an edge names a node that does not exist, or if a LabelID is not in the range from 0 to [MostLabels]-1.
func Build(ids []string, nodes []NodeSpec, edges []Edge) (*Net, error) {
	if len(ids) != len(nodes) {
		return nil, fmt.Errorf("%w: %d ids for %d nodes", ErrBadValue, len(ids), len(nodes))
	}
	for i, x := range nodes {
		if wrong := x.wrong(); wrong != "" {
			return nil, fmt.Errorf("%w: node %s: %s", ErrBadValue, foreign.Quote(ids[i]), wrong)
		}
	}
	for i, e := range edges {
		if wrong := e.wrong(len(nodes)); wrong != "" {
			return nil, fmt.Errorf("%w: edge number %d %s", ErrBadValue, i, wrong)
		}
	}
	var b Builder
	b.Begin(len(nodes), slices.Clone(edges), -1)
	if cycles := b.Levels(); cycles != nil {
		names := make([]string, len(cycles[0]))
		for i, e := range cycles[0] {
			names[i] = foreign.Quote(ids[b.edges[e].From])
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

// The method `wrong` returns the reason why Build rejects a node, or "".
func (x NodeSpec) wrong() string {
	const set = FlagEarly | factHandled | flagBranch | flagForks // the flags that only the Builder sets
	switch {
	case !x.Join.Valid():
		return fmt.Sprintf("join rule %v", x.Join)
	case x.Skip >= skipModeCount:
		return fmt.Sprintf("skip mode %v", x.Skip)
	case x.Upstream >= upstreamCount:
		return fmt.Sprintf("upstream policy %v", x.Upstream)
	case x.Ports < 0:
		return fmt.Sprintf("%d parameters", x.Ports)
	case x.Flags&set != 0:
		return fmt.Sprintf("flags %#x are set by Build alone", x.Flags&set)
	}
	return ""
}

// The method `wrong` returns the reason why Build rejects an edge in a net with the given number of nodes, or "".
func (e Edge) wrong(nodes int) string {
	const set = edgeShielded | edgePort | edgeWide | edgeSide // the flags that the Builder sets when it makes a net
	outside := func(r Ref) bool { return r < 0 || int(r) >= nodes }
	switch {
	case outside(e.From) || outside(e.To):
		return fmt.Sprintf("leads from node number %d to %d of %d", e.From, e.To, nodes)
	case e.Flags&set != 0 || e.standing != standsIn:
		return "belongs to another net"
	case e.Flags&EdgeLabelled != 0 && (e.LabelID < 0 || e.LabelID >= MostLabels):
		return fmt.Sprintf("needs a label number from 0 to %d, not %d", MostLabels-1, e.LabelID)
	}
	return ""
}

// The method `completed` replaces the zero fields of the spec by the defaults of Build. It sets FlagPlain exactly if none of FlagInline, FlagAdmit,
// FlagGate and FlagComposite is set.
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
	if x.Flags &^= FlagPlain; x.Flags&(FlagInline|FlagAdmit|FlagGate|FlagComposite) == 0 {
		x.Flags |= FlagPlain
	}
	return x
}
