package kahn

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Param returns a parameter of the step as a T. It is exact: a value of another type is an error that matches [ErrType], no
// value one that matches [ErrNoValue] and says why there is none: the node has no such parameter, nothing was delivered, or it is
// null.
func Param[T any](s *Step, name string) (T, error) {
	v, ok := s.Param(name)
	return typed[T](v, ok, "parameter", name, func() string { return s.noParam(name) })
}

// Upstream returns the value that the edge from a node delivered, as a T. Errors are those of [Param].
func Upstream[T any](s *Step, id string) (T, error) {
	v, ok := s.Upstream(id)
	return typed[T](v, ok, "upstream", id, func() string { return s.noUpstream(id) })
}

// Root returns a root input as a T. Errors are those of [Param].
func Root[T any](s *Step, name string) (T, error) {
	v, ok := s.Root(name)
	return typed[T](v, ok, "root input", name, func() string { return s.noRoot(name) })
}

// typed returns v as a T. missing says why there is no value.
func typed[T any](v any, ok bool, what, name string, missing func() string) (T, error) {
	t, is := v.(T)
	switch {
	case is && ok:
		return t, nil
	case !ok:
		return t, fmt.Errorf("%s %s: %w: %s", what, quoteID(name), ErrNoValue, missing())
	case v == nil:
		return t, fmt.Errorf("%s %s: %w: it is null", what, quoteID(name), ErrNoValue)
	}
	return t, fmt.Errorf("%s %s: %w: %T instead of %T", what, quoteID(name), ErrType, v, *new(T))
}

// noParam says why the step has no value for a parameter.
func (s *Step) noParam(name string) string {
	if c := s.given(); c != nil {
		return "the call has no such parameter" + instead(name, slices.Sorted(maps.Keys(c.Params)))
	}
	names := s.run.paramNames(s.ref)
	if slices.Contains(names, name) {
		return "nothing was delivered" + s.lackedKeys(name)
	}
	return noSuchParam(name, names)
}

func noSuchParam(name string, names []string) string {
	return "the node has no such parameter" + instead(name, names)
}

// paramNames lists the parameters that a node may have, in order.
func (r *Run) paramNames(ref Ref) (names []string) {
	r.eachParam(ref, func(name string) { names = append(names, name) })
	slices.Sort(names)
	return slices.Compact(names)
}

// lackedKeys names the edges of a parameter whose sources have completed with outputs that lack the edges' Keys.
func (s *Step) lackedKeys(name string) string {
	r, ref, _ := s.run.home(s.ref, s.flags)
	var b strings.Builder
	in := r.plan.inputsOf(ref)
	if in == nil {
		return ""
	}
	p, _ := in.param(name)
	if p == nil {
		return ""
	}
	for _, i := range p.edges {
		e := r.plan.edgeAt(i)
		if text, ok := r.lackedKey(e); ok {
			b.WriteString("; the output of " + quoteID(r.plan.names[e.From]) + text)
		}
	}
	return b.String()
}

// lackedKey names the members of the source's output if the edge's Key is not among them. ok is false if the source did not
// complete or has the key.
func (r *Run) lackedKey(e planEdge) (text string, ok bool) {
	r.st.Lock()
	status := r.st.Status(e.From)
	r.st.Unlock()
	if status != Completed || e.On == OnFailure || e.Key == "" {
		return "", false
	}
	output := r.records[e.From].value
	if _, has := portOf(output, e.Key, ""); has {
		return "", false
	}
	return " has no " + quoteID(e.Key) + instead(e.Key, memberNames(output, e.Key)), true
}

// noUpstream says why no edge from a node has delivered a value.
func (s *Step) noUpstream(id string) string {
	if c := s.given(); c != nil {
		return "the call has no value from it" + instead(id, slices.Sorted(maps.Keys(c.Upstream)))
	}
	r, ref, _ := s.run.home(s.ref, s.flags)
	p := r.plan
	var sources []string
	for _, i := range p.net.In(ref) {
		e := p.edgeAt(i)
		if from := p.names[e.From]; from != id {
			sources = append(sources, from)
			continue
		}
		r.st.Lock()
		status := r.st.Status(e.From)
		r.st.Unlock()
		switch {
		case status != Completed:
			return fmt.Sprintf("it is %v", status)
		case e.On == OnFailure:
			return "it completed, and the edge is for its failure"
		}
		if text, ok := r.lackedKey(e); ok {
			return "its output" + text
		}
		return "it completed, but the edge delivered nothing" // its branch was not taken, or the join was decided before
	}
	slices.Sort(sources)
	return "no edge from it leads to this node" + instead(id, slices.Compact(sources))
}

// noRoot says why there is no root input of a name.
func (s *Step) noRoot(name string) string {
	if c := s.given(); c != nil {
		return "the call has no such input" + instead(name, slices.Sorted(maps.Keys(c.Root)))
	}
	var names []string
	s.run.eachInput(func(name string) { names = append(names, name) })
	slices.Sort(names)
	return "the run has no such input" + instead(name, slices.Compact(names))
}
