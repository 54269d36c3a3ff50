package kahn

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// InputError says that the root inputs of a run are not those that its graph declares, see Graph.Inputs. It matches
// [ErrUnknownInput] if Unknown names one and [ErrMissingInput] if Missing does.
type InputError struct {
	Unknown  []string // that were given and are not declared, sorted
	Missing  []string // that were not given, are not Optional and have no Default, in the order of declaration
	Declared []string // all that the graph declares, in the order of declaration
}

// Error names the inputs, the first of them if they are many, lists the declared inputs, and suggests a similar name.
func (e *InputError) Error() string {
	const most = 5
	var parts []string
	add := func(kind error, names []string, rest func(name string) string) {
		for i, name := range names {
			if i == most {
				parts = append(parts, fmt.Sprintf("%v: %d more", kind, len(names)-most))
				break
			}
			parts = append(parts, fmt.Sprintf("%v: %s%s", kind, quoteID(name), rest(name)))
		}
	}
	add(ErrUnknownInput, e.Unknown, func(name string) string { return instead(name, e.Declared) })
	add(ErrMissingInput, e.Missing, func(string) string { return "" })
	return strings.Join(parts, "; ")
}

// Is reports whether target is [ErrUnknownInput] or [ErrMissingInput], and names are unknown or missing.
func (e *InputError) Is(target error) bool {
	return target == ErrUnknownInput && len(e.Unknown) > 0 || target == ErrMissingInput && len(e.Missing) > 0
}

// required reports whether the host must give a run the input.
func (in *Input) required() bool { return !in.Optional && in.Default == nil }

// sameInput compares declarations. It cannot notice a changed element of a map or slice, which both sides share: a Default
// must not be changed once a graph has been compiled.
func sameInput(a, b Input) bool {
	return a.Name == b.Name && a.Optional == b.Optional && reflect.DeepEqual(a.Default, b.Default)
}

// checkInputs checks the inputs that the host gave to a run, and those that the run has: they differ in a run that goes on.
func (p *Plan) checkInputs(given, has map[string]any) error {
	if len(p.inputs) == 0 {
		return nil
	}
	var e InputError
	for name := range given {
		if p.input(name) == nil {
			e.Unknown = append(e.Unknown, name)
		}
	}
	for i := range p.inputs {
		in := &p.inputs[i]
		if _, ok := has[in.Name]; !ok && in.required() {
			e.Missing = append(e.Missing, in.Name)
		}
	}
	if len(e.Unknown)+len(e.Missing) == 0 {
		return nil
	}
	slices.Sort(e.Unknown)
	e.Declared = p.inputNames()
	return &e
}

// input finds a declared input, or returns nil.
func (p *Plan) input(name string) *Input {
	if i, ok := p.inputIndex[name]; ok {
		return &p.inputs[i]
	}
	return nil
}

// notInput is the error for a root input that no run of the graph can have, and nil if a run may have it: a graph that does
// not declare its Inputs takes any, and the nested runs of a map or a loop have further inputs.
func (p *Plan) notInput(name string) error {
	if len(p.inputs) == 0 || p.input(name) != nil {
		return nil
	}
	switch name {
	case inputItem, inputIndex, inputIteration, inputPrevious:
		return nil
	}
	return fmt.Errorf("%w: %s%s", ErrUnknownInput, quoteID(name), instead(name, p.inputNames()))
}

// inputNames lists the declared inputs.
func (p *Plan) inputNames() []string {
	names := make([]string, len(p.inputs))
	for i := range p.inputs {
		names[i] = p.inputs[i].Name
	}
	return names
}

// indexInputs validates Graph.Inputs.
func (c *compiler) indexInputs() {
	if len(c.g.Inputs) == 0 {
		return
	}
	inputs := slices.Clone(c.g.Inputs)
	index := make(map[string]int, len(inputs))
	for i := range inputs {
		name := inputs[i].Name
		_, taken := index[name]
		if text, is := named("input", i+1, name, taken); is {
			c.add("Inputs: %w: %s", ErrBadValue, text).Field = fmt.Sprintf("Inputs[%d]", i)
		}
		index[name] = i
	}
	c.inputs, c.inputIndex = inputs, index
}

// checkOver reports a map over a parameter that has no source: no edge, no static value, no port, and, for a map that gets
// root inputs without a port, no root input.
func (c *compiler) checkOver(r Ref) {
	p, n := c.p, c.p.node(r)
	if c.isPruned || n.Map.Over == "" {
		return
	}
	given := c.givenTo(r)
	if given[n.Map.Over] {
		return
	}
	if len(n.Ports) == 0 && len(p.net.In(r)) == 0 {
		if p.notInput(n.Map.Over) == nil {
			return
		}
		for _, name := range p.inputNames() {
			given[name] = true
		}
	}
	c.ofNode(n.ID, "Map.Over", "%w: Map.Over names the parameter %s, which nothing provides%s", ErrBadValue, quoteID(n.Map.Over),
		c.instead(n.Map.Over, func() []string { return slices.Sorted(maps.Keys(given)) }))
}

// givenTo are the names of the parameters of a node that edges, static values and ports provide.
func (c *compiler) givenTo(r Ref) map[string]bool {
	p, n := c.p, c.p.node(r)
	given := map[string]bool{}
	if in := p.inputsOf(r); in != nil {
		for i := range in.params {
			given[in.params[i].name] = true
		}
	}
	for name := range n.Params {
		given[name] = true
	}
	for i := range n.Ports {
		given[n.Ports[i].Name] = true
	}
	return given
}

// checkInputsOf compares the parameters of a composite with the inputs that its graph declares. They are the inputs of the nested
// runs; a composite with neither in-edges nor ports hands on those of the run around it.
func (c *compiler) checkInputsOf(r Ref, sub *Plan) {
	if len(sub.inputs) == 0 {
		return
	}
	p := c.p
	n := p.node(r)
	given := c.givenTo(r)
	handsOn := len(n.Ports) == 0 && len(p.net.In(r)) == 0
	for i := range sub.inputs {
		in := &sub.inputs[i]
		if !in.required() || given[in.Name] || n.instanceInput(in.Name) || c.isPruned {
			continue
		}
		outer := p.input(in.Name)
		switch {
		case !handsOn || outer == nil:
			c.ofNode(n.ID, "", "%w: nothing provides the input %s of its graph", ErrUnboundPort, quoteID(in.Name))
		case outer.Optional && outer.Default == nil:
			c.ofNode(n.ID, "", "%w: its graph needs the input %s, which is Optional around it", ErrUnboundPort, quoteID(in.Name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if sub.input(name) == nil && (n.Map == nil || name != n.Map.Over) {
			c.ofNode(n.ID, "", "%w of its graph: %s%s", ErrUnknownInput, quoteID(name), c.instead(name, sub.inputNames))
		}
	}
}
