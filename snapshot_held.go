package kahn

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-c794f7ef/kahn/machine"
)

// held are the nodes of one run in a snapshot, matched with the run's plan.
type held struct {
	plan    *Plan
	nodes   []nodeState
	refs    []Ref              // by node
	at      map[Ref]int        // the reverse
	tokens  map[string]Ref     // of the steps that wait
	signals map[Ref]Decision   // for nodes that wait, and gates that were not reached
	inside  []*held            // of composites, in the order of nodes
	kept    map[int]*nodeState // of expanded nodes whose graphs are not known, by index
	named   *heldNames         // of an outermost run, once a signal was looked for

	within *nodeState // the composite whose nodes these are; nil for the outermost run
	ref    Ref        // of that
	list   *items     // of a map

	run      *Run // the run that goes on; nil until it is made
	answers  map[Ref]answer
	accepted map[Ref]bool // the nodes that wait and whose signals came in time
	refused  []error      // of signals that the snapshot had accepted for gates of another version of the graph
}

// holdNodes matches nodes with a plan. Nodes of the outermost run have hashes, which cover their inside.
func holdNodes(p *Plan, nodes []nodeState, prefix string, outermost bool) (*held, error) {
	h := &held{plan: p, nodes: nodes, at: map[Ref]int{}, tokens: map[string]Ref{}, signals: map[Ref]Decision{}, kept: map[int]*nodeState{}}
	for i := range nodes {
		n := &nodes[i]
		name := quoteID(prefix + n.ID)
		ref, ok := p.Ref(n.ID)
		if !ok || outermost && n.Hash != p.nodeHash(ref) {
			return nil, fmt.Errorf("%w: node %s is %v in the snapshot", ErrGraphChanged, name, n.Status)
		}
		if _, twice := h.at[ref]; twice || n.Status >= statusCount || n.Status == Waiting || n.Status == Idle && !n.Checking {
			return nil, fmt.Errorf("%w: snapshot: node %s in status %v", ErrBadValue, name, n.Status)
		}
		if n.Status == Suspended && n.Wait == nil {
			return nil, fmt.Errorf("%w: snapshot: node %s waits for nothing", ErrBadValue, name)
		}
		if !n.sound(p, ref) {
			return nil, fmt.Errorf("%w: snapshot: what is said of node %s, which is %v", ErrBadValue, name, n.Status)
		}
		h.at[ref] = i
		h.refs = append(h.refs, ref)
		if n.Status == Suspended && !p.net.Is(ref, machine.FlagGate) {
			h.tokens[n.Wait.Token] = ref
		}
		if n.expanded() {
			if n.Inside.plan != nil && n.Status.Terminal() {
				in, err := holdGraph(n.Inside.plan, ref, n, prefix)
				if err != nil {
					return nil, err
				}
				h.inside = append(h.inside, in)
			} else if err := h.keep(i, prefix); err != nil {
				return nil, err
			}
			continue
		}
		if !p.net.Is(ref, machine.FlagComposite) {
			n.Inside = nil // it is mocked
			continue
		}
		in, err := holdInside(p, ref, n, prefix)
		if err != nil {
			return nil, err
		}
		if in != nil {
			h.inside = append(h.inside, in)
		}
	}
	return h, nil
}

// maxStored bounds the counters of a snapshot, so that they can go on counting.
const maxStored = 1 << 30

// sound reports whether the state of a node is consistent enough to make a word of it: files may have been written by other
// programs.
func (n *nodeState) sound(p *Plan, ref Ref) bool {
	for _, count := range []int32{n.Attempts, n.Cut, n.Crashes, n.Started, n.Entries, n.Settled, n.Decided} {
		if count < 0 || count > maxStored {
			return false
		}
	}
	deciders := len(p.net.In(ref))
	if n.Skip == SkipNullPropagation {
		deciders = len(p.node(ref).Ports)
	}
	stopped := n.Status == Failed || n.Status == Aborted || n.Status == Cancelled
	switch {
	case n.By < 0 || n.By > deciders || n.TimedOut > timeoutOverall || n.Checking && n.Status != Idle:
		return false
	case (n.Status == Skipped) != (n.Skip != SkipNone), n.Skip == SkipNullPropagation && n.By == 0:
		return false
	case n.Skip == SkipSuperseded:
		_, known := p.Ref(n.Origin)
		return known
	}
	return !n.Status.Terminal() || stopped == (n.Cause != CauseNone) // a running node may have been asked to stop
}

// holdInside is holdNodes for the inside of a composite, if there is one.
func holdInside(p *Plan, ref Ref, n *nodeState, prefix string) (h *held, err error) {
	node := p.node(ref)
	var list *items
	if node.Map != nil && !n.Checking && !n.Status.Terminal() {
		var value any
		if n.List != nil {
			value = n.List.value
		}
		if list, err = p.itemsOf(ref, value, contain); err != nil {
			return nil, fmt.Errorf("snapshot: node %s: %w", quoteID(prefix+n.ID), err)
		}
	}
	in := n.Inside
	if in == nil {
		if list != nil { // the map has not begun
			return &held{within: n, ref: ref, list: list}, nil
		}
		return nil, nil
	}
	if !in.Due.IsZero() {
		if node.Loop == nil || n.Status != Running || in.Iteration < 2 || len(in.Nodes) > 0 {
			return nil, fmt.Errorf("%w: snapshot: node %s pauses", ErrBadValue, quoteID(prefix+n.ID))
		}
		return &held{within: n, ref: ref}, nil
	}
	inner := p.sub(ref)
	if node.Map != nil {
		if list == nil {
			if in.Items > len(in.Nodes) { // all items of a map that has ended have
				return nil, fmt.Errorf("%w: snapshot: node %s has %d items", ErrBadValue, quoteID(prefix+n.ID), in.Items)
			}
			list = &items{m: node.Map, plan: p.items[ref].repeated(n.ID, min(max(in.Items, 0), maxNodes))}
		}
		inner = list.plan
	}
	if bad := in.Items < 0 || in.Items != 0 && (node.Map == nil || in.Items != len(inner.names)) || (in.Iteration > 0) != (node.Loop != nil); bad {
		return nil, fmt.Errorf("%w: snapshot: what is inside of node %s", ErrBadValue, quoteID(prefix+n.ID))
	}
	if h, err = holdGraph(inner, ref, n, prefix); err == nil {
		h.list = list
	}
	return h, err
}

// holdGraph is holdInside for a graph that is known.
func holdGraph(inner *Plan, ref Ref, n *nodeState, prefix string) (*held, error) {
	in := n.Inside
	in.Nodes = inner.inOrder(in.Nodes) // a store has none
	h, err := holdNodes(inner, in.Nodes, n.prefixInside(prefix), false)
	if err != nil {
		return nil, err
	}
	h.within, h.ref = n, ref
	h.early(in.Signals)
	return h, nil
}

// inOrder puts nodes into the order of their declaration.
func (p *Plan) inOrder(nodes []nodeState) []nodeState {
	type numbered struct{ at, i int32 }
	order := make([]numbered, len(nodes))
	for i := range nodes {
		order[i] = numbered{-1, int32(i)}
		if ref, ok := p.Ref(nodes[i].ID); ok {
			order[i].at = p.decl[ref]
		}
	}
	compare := func(a, b numbered) int { return cmp.Compare(a.at, b.at) }
	if slices.IsSortedFunc(order, compare) {
		return nodes
	}
	slices.SortStableFunc(order, compare)
	sorted := make([]nodeState, len(nodes))
	for i, x := range order {
		sorted[i] = nodes[x.i]
	}
	return sorted
}

// expanded reports whether the node was expanded: only snapshots taken in this process hold its graph.
func (n *nodeState) expanded() bool { return n.Inside != nil && n.Inside.Expanded != "" }

// keep keeps the inside of an expanded node whose graph is not known. If the nested run has not ended, the step is called
// again, in the same attempt.
func (h *held) keep(i int, prefix string) error {
	n := &h.nodes[i]
	if n.Inside.Items != 0 || n.Inside.Iteration != 0 || !n.Status.Terminal() && n.Status != Running && n.Status != Ready {
		return fmt.Errorf("%w: snapshot: what is inside of node %s", ErrBadValue, quoteID(prefix+n.ID))
	}
	kept := *n
	h.kept[i], n.Inside = &kept, nil
	if n.Status == Running {
		n.Status, n.Entries = Ready, max(n.Entries, n.Started-n.Attempts)+1
	}
	if kept.Status == Ready {
		kept.Status = Running
	}
	kept.Draining, n.Dormant = false, false
	kept.Inside.deeper = kept.Inside.signalsDeeper(nil, "")
	return nil
}

// begun reports whether there is a nested run.
func (h *held) begun() bool { return h.plan != nil }

// continues reports whether the nested run goes on, and is not only the result of its composite.
func (h *held) continues() bool { return h.begun() && h.within.Status == Running }

// pauses reports whether the composite is a loop that waits for its next iteration.
func (h *held) pauses() bool {
	return h.within != nil && h.within.Inside != nil && !h.within.Inside.Due.IsZero()
}

// each calls f for the runs that go on, the outermost first.
func (h *held) each(f func(h *held)) {
	f(h)
	for _, in := range h.inside {
		if in.continues() {
			in.each(f)
		}
	}
}
