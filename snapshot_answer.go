package kahn

import (
	"fmt"

	"github.com/seed-c794f7ef/kahn/machine"
)

// early applies the signals of a snapshot, for gates that were not reached, and for nodes that wait inside of an expanded node.
func (h *held) early(signals []signalState) {
	for _, s := range signals {
		ref, ok := h.plan.Ref(s.Node)
		if i, known := h.at[ref]; ok && (h.plan.net.Is(ref, machine.FlagGate) || known && h.nodes[i].Status == Suspended) {
			h.signals[ref] = Decision{s.Value.value, s.Actor, s.Comment, s.ID}
		}
	}
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
			x.kept.add(n.Inside, n.prefixInside(prefix), nil)
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
	if _, repeated, err := s.repeats(x.file.Answered); repeated || err != nil {
		return err
	}
	if err := x.held.answer(name, s.Decision); err != nil {
		return err
	}
	if s.ID != "" {
		x.answered++
	}
	x.file.Answered = s.take(x.file.Answered, nil)
	return nil
}

// answer takes a signal for a node, by path or token. It calls user code.
func (h *held) answer(name string, d Decision) error {
	in, ref, kept, err := h.answerable(name)
	switch {
	case err != nil:
		return err
	case kept != nil:
		return kept.answer(name, d)
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
	in       *insideState
	answered bool
	of       *keptWaits // nil before the run goes on
}

// keptNodes are those that a signal may be for, or have been for: by path, and while they wait by token.
type keptNodes map[string]*keptNode

func (k keptNodes) add(in *insideState, prefix string, of *keptWaits) {
	answered := make(map[string]bool, len(in.Signals))
	for i := range in.Signals {
		answered[in.Signals[i].Node] = true
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		switch {
		case n.Status.Terminal() || n.Status == Suspended:
			x := &keptNode{n, in, answered[n.ID], of}
			k.name(prefix+n.ID, x)
			if n.Status == Suspended && n.Wait != nil {
				k.name(n.Wait.Token, x)
			}
		case n.Inside != nil: // it runs, or is about to be asked for its graph
			k.add(n.Inside, n.prefixInside(prefix), of)
		}
	}
}

// name names a node, unless another one goes by the name.
func (k keptNodes) name(name string, x *keptNode) {
	if old := k[name]; old == nil || old.of != nil && (old.of == x.of || old.of.known) {
		k[name] = x
	}
}

// answer leaves a signal for the node with what it is inside of.
func (k *keptNode) answer(name string, d Decision) error {
	switch {
	case k.Status.Terminal():
		return fmt.Errorf("%w: node %s is %v", ErrAnswered, quoteID(name), k.Status)
	case k.answered:
		return fmt.Errorf("%w: node %s", ErrAnswered, quoteID(name))
	}
	k.answered = true
	k.in.Signals = append(k.in.Signals, signalState{k.ID, *storedValue(d.Value), d.Actor, d.Comment, d.ID})
	return nil
}
