package kahn

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
)

// early applies the signals of a snapshot, for gates that were not reached, and for nodes that wait inside of an expanded node.
func (h *held) early(signals []signalState) {
	for _, s := range signals {
		ref, ok := h.plan.Ref(s.Node)
		if i, known := h.at[ref]; ok && (h.plan.net.Is(ref, machine.FlagGate) || known && h.nodes[i].Status == Suspended) {
			h.signals[ref] = Decision{s.Value.value, s.Actor, s.Comment, s.ID}
			if known && !s.given {
				h.accept(ref)
			}
		}
	}
}

// accept takes note that a signal for a node that waits was accepted before the deadline of the wait: it is delivered even if that has passed since.
func (h *held) accept(ref Ref) {
	if h.accepted == nil {
		h.accepted = map[Ref]bool{}
	}
	h.accepted[ref] = true
}

// late is the error of a signal for a node whose wait has ended while the run was away, or its graph was not known; nil if it has not.
func (n *nodeState) late(name string, now time.Time) error {
	if n.Status != Suspended || n.Wait == nil || n.Wait.Deadline.IsZero() || n.Wait.Deadline.After(now) {
		return nil
	}
	return fmt.Errorf("%w: the deadline of node %s has passed", ErrAnswered, quoteID(name))
}

// heldNames finds what is inside of composites by name, so that no signal takes a search among all that is nested.
type heldNames struct {
	runs   map[string]heldRun  // by what paths into them begin with: the prefix, or for the items of a map its path and a bracket
	tokens map[string]heldNode // the steps that wait, by tokens that are not the ids of nodes
	kept   keptNodes

	longest int // the length of the longest key in runs
}

type heldRun struct {
	*held
	prefix    string
	continues bool // it, and all that it is inside of
}

type heldNode struct {
	in  *held
	ref Ref
}

// names returns the names of what is inside of an outermost run.
func (h *held) names() *heldNames {
	if h.named == nil {
		h.named = &heldNames{runs: map[string]heldRun{}, tokens: map[string]heldNode{}, kept: keptNodes{}}
		h.named.add(h, "", true)
	}
	return h.named
}

func (x *heldNames) add(h *held, prefix string, continues bool) {
	for i := range h.nodes {
		if n := h.kept[i]; n != nil && n.Status == Running && continues {
			x.kept.add(n, prefix, nil)
		}
	}
	for _, in := range h.inside {
		if !in.begun() {
			continue
		}
		run := heldRun{in, in.within.prefixInside(prefix), continues && in.continues()}
		key := run.prefix
		if in.list != nil {
			key = prefix + in.within.ID + "["
		}
		x.runs[key] = run
		x.longest = max(x.longest, len(key))
		if run.continues {
			for token, ref := range in.tokens {
				if _, taken := x.tokens[token]; !taken && in.plan.names[ref] != token {
					x.tokens[token] = heldNode{in, ref}
				}
			}
		}
		x.add(in, run.prefix, run.continues)
	}
}

// find finds the node that a signal is for: by its path, or by a token that is not the id of a node. Paths lead to where a
// nested run has begun.
func (h *held) find(name string) (*held, Ref, bool) {
	if ref, ok := h.nodeNamed(name); ok {
		return h, ref, true
	}
	names := h.names()
	for i := range min(len(name), names.longest) {
		if name[i] != '/' && name[i] != '[' {
			continue
		}
		if in, ok := names.runs[name[:i+1]]; ok {
			if ref, ok := in.nodeNamed(name[len(in.prefix):]); ok {
				return in.held, ref, true
			}
		}
	}
	at, ok := names.tokens[name]
	return at.in, at.ref, ok
}

// nodeNamed finds the node of this run that goes by a name.
func (h *held) nodeNamed(name string) (Ref, bool) {
	if ref, ok := h.tokens[name]; ok {
		return ref, true
	}
	return h.plan.Ref(name)
}

// unknownGate is the error for a name under which no node waits.
func (h *held) unknownGate(name string) error {
	return h.plan.unknownGate(name, func(prefix string, r Ref) (Status, bool) {
		in := h.performed(prefix)
		if in == nil {
			return Idle, false
		}
		if i, known := in.at[r]; known {
			return in.nodes[i].Status, true
		}
		return Idle, true
	})
}

// performed finds the run that goes on under a prefix in the paths within this one; nil if there is none.
func (h *held) performed(prefix string) *held {
	if prefix == "" {
		return h
	}
	if in := h.names().runs[prefix]; in.continues {
		return in.held
	}
	return nil
}

// answer takes a signal for a node, by path or token, unless it repeats one that an earlier life of the run has taken.
func (x *restoration) answer(name string, value any) error {
	s := signal{gate: name, Decision: decisionOf(value)}
	if err := s.identify(); err != nil {
		return err
	}
	if _, repeated, err := x.answered.repeats(&s); repeated || err != nil {
		return err
	}
	if err := x.held.answer(name, s.Decision); err != nil {
		return err
	}
	x.answered.take(&s, nil)
	return nil
}

// answer takes a signal for a node, by path or token. It calls user code.
func (h *held) answer(name string, d Decision) error {
	in, ref, kept, err := h.answerable(name)
	switch {
	case err != nil:
		return err
	case kept != nil:
		if err = kept.refusal(name); err == nil {
			kept.answer(d, nil, true)
		}
		return err
	}
	if _, twice := in.signals[ref]; twice {
		return fmt.Errorf("%w: two signals for node %s", ErrDuplicateGate, quoteID(name))
	}
	if in.plan.net.Is(ref, machine.FlagGate) {
		if err := in.plan.refuse(ref, name, d.Value); err != nil {
			return err
		}
	}
	in.signals[ref] = d
	return nil
}

// answerable finds the node that a signal is for, by path or token, and the run that it is in, or a node whose graph is not known. The
// error tells why the node cannot be answered.
func (h *held) answerable(name string) (in *held, ref Ref, kept *keptNode, err error) {
	in, ref, ok := h.find(name)
	if !ok {
		if kept = h.names().kept[name]; kept == nil {
			err = h.unknownGate(name)
		}
		return nil, noRef, kept, err
	}
	i, known := in.at[ref]
	gate := in.plan.net.Is(ref, machine.FlagGate)
	switch {
	case !known && !gate:
		err = h.unknownGate(name)
	case known && in.nodes[i].Status.Terminal():
		err = fmt.Errorf("%w: node %s is %v", ErrAnswered, quoteID(name), in.nodes[i].Status)
	case in.within != nil && !in.continues():
		err = fmt.Errorf("%w: what %s is inside of is %v", ErrUnknownGate, quoteID(name), in.within.Status)
	case known && in.nodes[i].Status != Suspended && !gate:
		err = fmt.Errorf("%w: node %s is %v", ErrUnknownGate, quoteID(name), in.nodes[i].Status)
	}
	return in, ref, nil, err
}

// keptNode is a node inside of one that was expanded, and whose graph is not known. A signal for it is judged when that is.
type keptNode struct {
	*nodeState
	in       *insideState // the nearest composite
	expanded *insideState // what is inside of the expanded node
	path     string       // from there
	answered bool
	of       *keptWaits // nil before the run goes on
}

// keptNodes are those that a signal may be for, or have been for: by path, and while they wait by token.
type keptNodes map[string]*keptNode

// add adds the nodes inside of an expanded node. prefix is that of its path.
func (k keptNodes) add(n *nodeState, prefix string, of *keptWaits) {
	prefix = n.prefixInside(prefix)
	k.addInside(n.Inside, "", func(x *keptNode) {
		x.expanded, x.of = n.Inside, of
		k.name(prefix+x.path, x)
		if x.Status == Suspended && x.Wait != nil {
			k.name(x.Wait.Token, x)
		}
	})
}

// addInside calls add for the nodes inside of a composite. prefix is that of their paths.
func (k keptNodes) addInside(in *insideState, prefix string, add func(*keptNode)) {
	answered := make(map[string]bool, len(in.Signals))
	for i := range in.Signals {
		answered[in.Signals[i].Node] = true
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		switch {
		case n.Status.Terminal() || n.Status == Suspended:
			add(&keptNode{nodeState: n, in: in, path: prefix + n.ID, answered: answered[n.ID]})
		case n.Inside != nil: // it runs, or is about to be asked for its graph
			k.addInside(n.Inside, n.prefixInside(prefix), add)
		}
	}
}

// name names a node, unless another one goes by the name.
func (k keptNodes) name(name string, x *keptNode) {
	if old := k[name]; old == nil || old.of != nil && (old.of == x.of || old.of.known) {
		k[name] = x
	}
}

// refusal is the error of a signal for a node that takes none.
func (k *keptNode) refusal(name string) error {
	switch {
	case k.Status.Terminal():
		return fmt.Errorf("%w: node %s is %v", ErrAnswered, quoteID(name), k.Status)
	case k.answered:
		return fmt.Errorf("%w: node %s", ErrAnswered, quoteID(name))
	}
	return nil
}

// refusalAt is refusal for a signal that comes now.
func (k *keptNode) refusalAt(name string, now time.Time) error {
	if err := k.refusal(name); err != nil {
		return err
	}
	return k.late(name, now)
}

// answer leaves a signal, whose text may be known, for the node with what it is inside of. given tells that the run goes on with the signal: a
// deadline that has passed comes first.
func (k *keptNode) answer(d Decision, text json.RawMessage, given bool) {
	k.answered = true
	s := signalState{k.ID, stored{d.Value, text}, d.Actor, d.Comment, d.ID, given}
	if k.in.Signals = append(k.in.Signals, s); k.in != k.expanded {
		s.Node = k.path
		k.expanded.deeper = append(k.expanded.deeper, s)
	}
}

// signalsDeeper returns the signals for nodes inside of the composites in this one, by their paths from here. prefix is that of these paths.
func (in *insideState) signalsDeeper(list []signalState, prefix string) []signalState {
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if n.Inside == nil || n.Status.Terminal() {
			continue
		}
		within := n.prefixInside(prefix)
		for _, s := range n.Inside.Signals {
			s.Node = within + s.Node
			list = append(list, s)
		}
		list = n.Inside.signalsDeeper(list, within)
	}
	return list
}

// placeSignals is the reverse for a node of a store: it leaves each signal with the nearest composite of its node. One that is there already
// was in an earlier transaction.
func (in *insideState) placeSignals() {
	nodes := keptNodes{}
	nodes.addInside(in, "", func(x *keptNode) { nodes[x.path] = x })
	in.Signals = slices.DeleteFunc(in.Signals, func(s signalState) bool {
		x := nodes[s.Node]
		if x == nil || x.in == in {
			return false
		}
		if !x.answered {
			x.answered, s.Node = true, x.ID
			x.in.Signals = append(x.in.Signals, s)
		}
		return true
	})
}
