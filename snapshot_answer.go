package kahn

import (
	"errors"
	"fmt"
	"strings"
)

// early applies the signals of a snapshot, for gates that were not reached, and for nodes that wait inside of an expanded node.
func (h *held) early(signals []signalState) {
	for _, s := range signals {
		ref, ok := h.plan.Ref(s.Node)
		if i, known := h.at[ref]; ok && (h.plan.facts[ref].is(factGate) || known && h.nodes[i].Status == Suspended) {
			h.signals[ref] = Decision{s.Value.value, s.Actor, s.Comment}
		}
	}
}

// find finds the node that a signal is for: by its path, or by a token that is not the id of a node. Paths lead to where a
// nested run has begun.
func (h *held) find(name string) (*held, Ref, bool) {
	if ref, ok := h.tokens[name]; ok {
		return h, ref, true
	}
	if ref, ok := h.plan.Ref(name); ok {
		return h, ref, true
	}
	for _, in := range h.inside {
		if !in.begun() {
			continue
		}
		rest, ok := strings.CutPrefix(name, in.within.prefixInside(""))
		if !ok {
			continue
		}
		if x, ref, ok := in.find(rest); ok {
			return x, ref, true
		}
	}
	return h.findToken(name)
}

// findToken finds the node inside of composites that waits under a token.
func (h *held) findToken(token string) (*held, Ref, bool) {
	for _, in := range h.inside {
		if !in.continues() {
			continue
		}
		if ref, ok := in.tokens[token]; ok && in.plan.names[ref] != token {
			return in, ref, true
		}
		if x, ref, ok := in.findToken(token); ok {
			return x, ref, true
		}
	}
	return nil, noRef, false
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
	for _, in := range h.inside {
		if !in.continues() {
			continue
		}
		if rest, ok := strings.CutPrefix(prefix, in.within.prefixInside("")); ok {
			if x := in.performed(rest); x != nil {
				return x
			}
		}
	}
	return nil
}

// answer takes a signal for a node, by path or token.
func (h *held) answer(name string, value any) error {
	in, ref, ok := h.find(name)
	if !ok {
		if err := h.answerKept(name, decisionOf(value)); err != errNotKept {
			return err
		}
		return h.unknownGate(name)
	}
	i, known := in.at[ref]
	gate := in.plan.facts[ref].is(factGate)
	switch {
	case !known && !gate:
		return h.unknownGate(name)
	case known && in.nodes[i].Status.Terminal():
		return fmt.Errorf("%w: node %s is %v", ErrAnswered, quoteID(name), in.nodes[i].Status)
	case in.within != nil && !in.continues():
		return fmt.Errorf("%w: what %s is inside of is %v", ErrUnknownGate, quoteID(name), in.within.Status)
	case known && in.nodes[i].Status != Suspended && !gate:
		return fmt.Errorf("%w: node %s is %v", ErrUnknownGate, quoteID(name), in.nodes[i].Status)
	}
	if _, twice := in.signals[ref]; twice {
		return fmt.Errorf("%w: two signals for node %s", ErrDuplicateGate, quoteID(name))
	}
	d := decisionOf(value)
	if gate {
		if err := in.plan.refuse(ref, name, d.Value); err != nil {
			return err
		}
	}
	in.signals[ref] = d
	return nil
}

// errNotKept means that no node inside of an expanded node waits for the signal.
var errNotKept = errors.New("not kept")

// answerKept takes a signal for a node inside of one that was expanded, and whose graph is not known. It is judged when that is.
func (h *held) answerKept(name string, d Decision) error {
	for i := range h.nodes {
		n := h.kept[i]
		if n == nil || n.Status != Running {
			continue
		}
		if err := n.answer(name, n.prefixInside(""), d); err != errNotKept {
			return err
		}
	}
	for _, in := range h.inside {
		if !in.continues() {
			continue
		}
		rest, within := strings.CutPrefix(name, in.within.prefixInside(""))
		if !within {
			rest = name // a token, or a name outside of the composite
		}
		if err := in.answerKept(rest, d); err != errNotKept {
			return err
		}
	}
	return errNotKept
}

// answer takes a signal for a node inside of this one: by its path, whose prefix is given, or by its token.
func (n *nodeState) answer(name, prefix string, d Decision) error {
	in := n.Inside
	for i := range in.Nodes {
		x := &in.Nodes[i]
		path := prefix + x.ID
		waits := x.Status == Suspended
		switch {
		case path == name && x.Status.Terminal():
			return fmt.Errorf("%w: node %s is %v", ErrAnswered, quoteID(name), x.Status)
		case waits && (path == name || x.Wait != nil && x.Wait.Token == name):
			if in.answers(x.ID) {
				return fmt.Errorf("%w: node %s", ErrAnswered, quoteID(name))
			}
			in.Signals = append(in.Signals, signalState{x.ID, *store(d.Value), d.Actor, d.Comment})
			return nil
		case x.Inside != nil && x.Status == Running:
			if err := x.answer(name, x.prefixInside(prefix), d); err != errNotKept {
				return err
			}
		}
	}
	return errNotKept
}
