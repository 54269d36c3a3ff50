package kahn

import (
	"encoding/json"
	"fmt"

	"github.com/seed-c794f7ef/kahn/machine"
)

// formerState is the nested run of an expanded node's last attempt, while the node waits for its next attempt. If a stop ends the node before this
// attempt begins, the nested run belongs to the node's result. For a node whose graph the plan knows, nodeState.Inside contains the nested run; for an
// expanded node Inside would mean that its step must be called again in the same attempt. Older readers ignore a formerState: they lose the nested run.
type formerState struct {
	Inside *insideState `json:"inside"`
	Saved  *stored      `json:"saved,omitempty"` // the state that the step of the ended attempt gave to Expand
}

// endedExpansion is what a composite keeps of an expanded node's ended attempt besides the nested run, while the node waits for its next attempt: the
// state that the step gave to Expand, and the encoded state if it is known.
type endedExpansion struct {
	saved any
	text  json.RawMessage
}

// stored returns the state that the step gave to Expand.
func (e *endedExpansion) stored() *stored {
	if e.saved == nil {
		return nil
	}
	return &stored{e.saved, e.text}
}

// The method `formerState` returns the state of an expanded node's nested run, without its nodes. It returns nil unless the attempt of this nested run
// has ended and the node waits for its next attempt.
func (x *extra) formerState() *formerState {
	switch {
	case x.former != nil:
		in := *x.former.Inside
		in.Nodes = nil
		return &formerState{&in, x.former.Saved}
	case x.comp != nil && x.comp.ended != nil:
		return &formerState{x.comp.state(), x.comp.ended.stored()}
	}
	return nil
}

// formerNodes returns the states of the nodes in the run that formerState describes.
func (x *extra) formerNodes() []nodeState {
	if x.former != nil {
		return x.former.Inside.Nodes
	}
	return x.comp.child.nodeStates()
}

func (f *formerState) clone() *formerState {
	if f = clonePtr(f); f != nil {
		f.Inside, f.Saved = f.Inside.clone(), clonePtr(f.Saved)
	}
	return f
}

// of returns the node with this id as it would be if it had ended with its last attempt.
func (f *formerState) of(n *nodeState) *nodeState {
	return &nodeState{ID: n.ID, Facts: machine.Facts{Status: Failed, Substituted: n.Substituted}, Attempts: n.Attempts, Inside: f.Inside, Saved: f.Saved}
}

// holdFormer matches the nested run of node i's last attempt with its graph. If the graph is not known, holdFormer keeps the state of this run.
func (h *held) holdFormer(i int, ref machine.Ref, prefix string) error {
	n := &h.nodes[i]
	f := n.Former
	if n.Former = nil; n.Status.Terminal() {
		return nil
	}
	in := f.Inside
	if in == nil || in.Expanded == "" || in.Items != 0 || in.Iteration != 0 || n.Inside != nil || n.Status != Retrying && n.Status != Ready {
		return fmt.Errorf("%w: snapshot: the state of the last attempt of node %s is not valid", ErrBadValue, quoteID(prefix+n.ID))
	}
	if in.plan == nil || in.isUnfinished() {
		if h.former == nil {
			h.former = map[int]*formerState{}
		}
		h.former[i] = f.clone() // the copy may be needed after the file is no longer used
		return nil
	}
	inner, err := holdGraph(in.plan, ref, f.of(n), prefix)
	if err != nil {
		return err
	}
	inner.ended = &endedExpansion{}
	if f.Saved != nil {
		inner.ended.saved = f.Saved.value
	}
	h.inside = append(h.inside, inner)
	return nil
}

// findFormer finds the plans of the last attempt's nested run, and of the runs inside it, as findGraphs does.
func (p *Plan) findFormer(n *nodeState, prefix string, graph func(path string, state any) (*Graph, error)) error {
	f := n.Former
	if f == nil || f.Inside == nil || f.Inside.Expanded == "" || !f.Inside.Undoes {
		return nil
	}
	ended := f.of(n)
	if err := p.findGraph(ended, prefix, graph); err != nil || f.Inside.plan == nil {
		return err
	}
	return f.Inside.plan.findGraphs(f.Inside.Nodes, ended.prefixInside(prefix), graph)
}
