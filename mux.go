package kahn

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn/machine"
)

// Mux dispatches on the Kind of a node. Its Step method is the StepFunc of a host whose graphs are data:
//
//	steps := kahn.Mux{"http": doHTTP, "sql": doSQL}
//	kahn.Execute(ctx, g, steps.Step, kahn.Kinds(steps))
//
// With the option [Kinds] a run is refused if the graph has a node of another kind. Without it such a node fails when its turn
// comes.
type Mux map[string]StepFunc

// Step performs s with the function for its Kind. A kind that is missing, or nil, fails the node with an error that
// matches [ErrUnknownKind] and is not retried.
func (m Mux) Step(ctx context.Context, s *Step) (any, error) {
	if fn := m[s.Kind()]; fn != nil {
		return fn(ctx, s)
	}
	return nil, Permanent(unknownKind(s.Kind(), m.Kinds()))
}

// Kinds returns the kinds that have a function, sorted.
func (m Mux) Kinds() []string {
	kinds := make([]string, 0, len(m))
	for _, kind := range slices.Sorted(maps.Keys(m)) {
		if m[kind] != nil {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Check compiles the graph and reports the nodes, those of nested graphs included, whose Kind has no function although they
// need one: each is a problem of the [*GraphError] that is returned, and matches [ErrUnknownKind]. The error is also that of
// [Graph.Compile].
func (m Mux) Check(g *Graph) error {
	p, err := g.compiled()
	if err != nil {
		return err
	}
	return p.checkKinds(m.Kinds(), nil, nil)
}

// KindLister lists the kinds of nodes that a step function can perform. A [Mux] is one.
type KindLister interface {
	// Kinds returns the kinds, each once.
	Kinds() []string
}

// Kinds tells which kinds of nodes the run's step function can perform. A graph in which another node needs that function,
// at any depth, is refused before anything runs, with the error of [Mux.Check]. Nodes with a Do of their own, those that the engine performs,
// disabled ones, and in test mode mocked ones need no kind. A nil lister is an error that matches [ErrBadOption].
func Kinds(of KindLister) Option {
	return optionFunc(func(c *config) error {
		if of == nil {
			return fmt.Errorf("%w: Kinds(nil)", ErrBadOption)
		}
		c.kinds = of
		return nil
	})
}

// checkKinds reports the nodes that need the host's step function and whose kind is none of its kinds. Mocked nodes need
// none. within is, in test mode, the double of the node that is expanded into the plan, if there is one.
func (p *Plan) checkKinds(kinds []string, t *testMode, within *double) error {
	known := make(map[string]bool, len(kinds))
	for _, kind := range kinds {
		known[kind] = true
	}
	ps := problems{graph: p.name}
	seen := map[*Plan]bool{} // a graph that is used in several places is looked at once
	var look func(p *Plan, t *testMode, within *double, prefix string)
	look = func(p *Plan, t *testMode, within *double, prefix string) {
		needy := p.stepless
		if t != nil {
			needy = t.left(p, within, (*Plan).needsStep)
		} else if seen[p] {
			return
		} else {
			seen[p] = true
		}
		for _, r := range needy {
			n := p.node(r)
			path := prefix + n.ID
			if p.itemOf != "" {
				path = strings.TrimSuffix(prefix, "/") + "[]"
			}
			inner := p.sub(r)
			if n.Map != nil && n.Sub != nil {
				inner = p.items[r]
			}
			if inner == nil {
				if !known[n.Kind] {
					ps.ofNode(path, "Kind", "%w: %s%s", ErrUnknownKind, quoteID(n.Kind), ps.instead(n.Kind, func() []string { return kinds })).Node = strings.ReplaceAll(path, "[]", "")
				}
				continue
			}
			inside, d := t, (*double)(nil)
			if t != nil {
				if d = t.double(p, r, within); !t.names(d) {
					inside, d = nil, nil // everything in it is real
				}
			}
			look(inner, inside, d, path+"/")
		}
	}
	look(p, t, within, "")
	return ps.err()
}

func unknownKind(kind string, kinds []string) error {
	return fmt.Errorf("%w: %s%s", ErrUnknownKind, quoteID(kind), instead(kind, kinds))
}

// choose lists, after a prefix, the names of nodes, in the order of declaration, among which the caller may choose instead
// of an unknown name.
func (p *Plan) choose(prefix string, could func(Ref) bool) (names []string) {
	for _, r := range p.declared {
		if len(names) == maxListed {
			break
		}
		if could == nil || could(r) {
			names = append(names, prefix+p.names[r])
		}
	}
	return names
}

// unknownNode is the error for an id or a path that no node has.
func (p *Plan) unknownNode(path string) error {
	prefix, rest := "", path
	for {
		composite, inside, ok := strings.Cut(rest, "/")
		r, known := p.compositeOf(composite)
		if !ok || !known {
			return fmt.Errorf("%w: %s%s", ErrUnknownNode, quoteID(path), instead(path, p.choose(prefix, nil)))
		}
		p, prefix, rest = p.sub(r), prefix+composite+"/", inside
	}
}

// unknownOwn is the error for an id of no node to a function that takes ids of the graph itself, and no paths.
func (p *Plan) unknownOwn(id string) error {
	part, _, _ := strings.Cut(id, "/")
	if r, ok := p.compositeOf(part); ok {
		return fmt.Errorf("%w: %s: only nodes of the graph itself can be named, such as %s", ErrUnknownNode, quoteID(id), quoteID(p.names[r]))
	}
	return p.unknownNode(id)
}

// compositeOf finds the node with a Sub that a part of a path names, by its id, or by that and the index of an item or the number of
// an iteration.
func (p *Plan) compositeOf(part string) (Ref, bool) {
	r, ok := p.find(part)
	if i := strings.LastIndexAny(part, "[#"); !ok && i >= 0 {
		r, ok = p.find(part[:i])
	}
	return r, ok && p.sub(r) != nil
}

// unknownGate is the error for a name under which no node waits or will wait. status returns the status of a node of the
// graph whose nodes have a prefix in their paths, if one is asked for, and false if no run performs that graph.
func (p *Plan) unknownGate(name string, status func(prefix string, r Ref) (Status, bool)) error {
	prefix, rest := "", name
	var within, why string // the outermost composite that prevents an answer to the gate, and the reason
	for {
		part, inside, ok := strings.Cut(rest, "/")
		r, known := p.compositeOf(part)
		if !ok || !known {
			break
		}
		n := p.node(r)
		switch {
		case part != n.ID:
		case n.Loop != nil:
			part += "#1"
		case n.Map != nil:
			part += "[0]"
		}
		sub, path := p.sub(r), prefix+part+"/"
		if within == "" {
			if _, runs := status(path, noRef); !runs {
				s, _ := status(prefix, r)
				switch within, why = prefix+n.ID, "is "+s.String(); s {
				case Running: // another iteration or item
					within, why = prefix+part, "is not running"
				case Idle, Waiting, Ready:
					why = "has not begun"
				}
			}
		}
		p, prefix, rest = sub, path, inside
	}
	if r, ok := p.find(rest); ok && p.net.Is(r, machine.FlagGate) && prefix != "" {
		switch path := prefix + rest; {
		case path != name:
			return fmt.Errorf("%w: %s; did you mean %s?", ErrUnknownGate, quoteID(name), quoteID(path))
		case within != "":
			return fmt.Errorf("%w: %s is inside of %s, which %s", ErrUnknownGate, quoteID(name), quoteID(within), why)
		}
	}
	gates := p.choose(prefix, func(r Ref) bool {
		s, _ := status(prefix, r)
		return p.net.Is(r, machine.FlagGate) || s == Suspended
	})
	return fmt.Errorf("%w: %s%s", ErrUnknownGate, quoteID(name), instead(name, gates))
}
