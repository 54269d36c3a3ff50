package importer

import (
	"strings"

	"github.com/seed-c794f7ef/kahn/definition"
)

// The method `steps` converts a document of steps.
func (r *reader) steps(top place) *definition.Value {
	var name string
	steps, groups := place{}, place{}
	once := func(to *place, what string) func(place) {
		return func(p place) {
			if to.Value != nil {
				r.add(p, definition.ErrDuplicate, "the document has %s at the top and in its spec", what)
			}
			*to = p
		}
	}
	prose := map[string]string{
		"description": "workflows have no descriptions", "triggers": `a trigger is a step of type "trigger"`,
		"inputs": "what a run is given is the payload of its trigger",
	}
	spec := format{refused: prose, fields: map[string]func(place){
		"steps": once(&steps, "steps"), "groups": once(&groups, "groups"),
		"name": func(p place) {
			if other := p.text(); name != "" && name != other {
				r.add(p, definition.ErrDuplicate, "the document is named %.60q and %.60q", name, other)
			} else {
				name = other
			}
		},
	}}
	ignored := func(place) {} // for fields that only describe the document: they are ignored
	whole := format{refused: prose, fields: map[string]func(place){
		"apiVersion": ignored, "kind": ignored, "version": ignored, "id": ignored,
		"spec": func(p place) { r.read(p, spec) },
		"metadata": func(p place) {
			r.read(p, format{fields: map[string]func(place){"id": ignored, "name": spec.fields["name"]}, refused: prose})
		},
		"name": spec.fields["name"], "steps": spec.fields["steps"], "groups": spec.fields["groups"],
	}}
	r.read(top, whole)
	if steps.Value == nil {
		r.add(top, definition.ErrMissing, `the field "steps" is missing`)
		return nil
	}
	if !r.expect(steps, definition.List) {
		return nil
	}
	outside := r.readGroups(groups, steps)
	nodes := r.graphOf(steps, outside)
	r.checkPerformed()
	defaults := object(top, named("retry", newPolicy(top).retry()))
	return document(top, name, named("defaults", defaults), nodes)
}

// graphOf converts the steps of a graph to the list of the graph's nodes.
func (r *reader) graphOf(at place, steps []place) definition.Value {
	r.findIDs(steps, "id")
	r.inputs = make(map[string][]string, len(steps))
	for _, p := range steps {
		r.inputs[p.member("id").text()] = portNames(p.member("inputs"))
	}
	nodes := make([]definition.Value, len(steps))
	for i, p := range steps {
		nodes[i] = r.step(p)
	}
	return r.nodeList(at, nodes)
}

// step converts a step.
func (r *reader) step(p place) definition.Value {
	node, config := object(p), place{}
	id, kind, outputs := p.member("id").text(), p.member("type").text(), portNames(p.member("outputs"))
	r.node = id
	defer func() { r.node = "" }()
	if isEnd(id) && kind != "" && !isEnd(kind) {
		r.add(p.member("type"), definition.ErrUnsupported, "the step %.60q is the end of the workflow, which has no type of its own", id)
	}
	var timeout, retry definition.Value
	limits := map[string]func(place){
		"retryPolicy": func(p place) {
			if retry.Key != "" {
				r.add(p, definition.ErrDuplicate, "retryPolicy occurs in the step and in its config")
			}
			retry = r.retryPolicy(p)
		},
		"timeoutMs": func(p place) {
			if timeout.Key != "" {
				r.add(p, definition.ErrDuplicate, "timeoutMs occurs in the step and in its config")
			}
			if d, ok := r.milliseconds(p); ok {
				timeout = text(p, "timeout", d)
			}
		},
	}
	r.read(p, format{
		fields: map[string]func(place){
			"id": func(p place) { put(&node, copied(p, "id")) },
			"type": func(p place) {
				if r.expect(p, definition.Text) && !isEnd(id) && kind != kindLoop {
					put(&node, copied(p, "kind"))
				}
			},
			"name": func(p place) { put(&node, copied(p, "label")) }, "label": func(p place) { put(&node, copied(p, "label")) },
			"when": func(p place) { put(&node, copied(p, "when")) }, "disabled": func(p place) { put(&node, copied(p, "disabled")) },
			"next":        func(p place) { put(&node, list(p, "next", r.targets(p, outputs))) },
			"branches":    func(p place) { put(&node, r.branches(p)) },
			"inputs":      func(p place) { put(&node, r.inputPorts(p)...) },
			"outputs":     func(p place) { put(&node, r.outputPorts(p)...) },
			"config":      func(p place) { config = p },
			"retryPolicy": limits["retryPolicy"], "timeoutMs": limits["timeoutMs"],
		},
		refused: map[string]string{
			"description": "nodes have no descriptions; a label is one line",
			"mock":        "a mock is not part of a workflow: it is an option of a run, or part of a case of its tests",
			"skip":        "a step that is left out is disabled: true",
			"group":       "a step is in the group that lists it in its steps; a loop names the group that it performs in its config",
		},
	})
	if isEnd(id) {
		put(&node, text(p.member("id"), "kind", "end"))
	}
	switch {
	case kind == kindLoop && !isEnd(id):
		put(&node, r.loop(p, config, limits)...)
	case config.Value != nil:
		rest := object(config)
		limits["expression"] = func(p place) {
			if kind == "condition" {
				put(&node, copied(p, "test"))
			} else {
				put(&rest, *p.Value)
			}
		}
		r.read(config, format{fields: limits, rest: func(p place) { put(&rest, *p.Value) }})
		if len(rest.Items) > 0 {
			put(&node, named("config", rest))
		}
	}
	switch {
	case timeout.Key == "":
	case kind == "gate":
		put(&node, named("gate", object(p, timeout)))
	default:
		put(&node, timeout)
	}
	if retry.Key != "" {
		put(&node, retry)
	}
	return node
}

// The method `targets` reads the steps that follow a step: one step or a list of steps. It returns the edges to them. A following step is
// written as an id, or as an object with the id and the ports that the edge connects. For an id, targets compares the outputs of the step with
// the input ports of the following step. It returns one edge for each name that both have, or one edge without ports if they have no name in
// common.
func (r *reader) targets(p place, outputs []string) (edges []definition.Value) {
	offered := make(map[string]bool, len(outputs))
	for _, port := range outputs {
		offered[port] = true
	}
	r.one(p, func(p place) {
		if p.Type == definition.Object {
			edges = append(edges, r.connection(p))
			return
		}
		id, ok := r.reference(p)
		if !ok {
			return
		}
		plain := true
		for _, port := range r.inputs[id] {
			if r.compared++; r.compared > maxCompared {
				return
			}
			if offered[port] {
				plain = false
				edges = append(edges, object(p, text(p, "to", id), text(p, "key", port), text(p, "param", port)))
			}
		}
		if plain {
			edges = append(edges, text(p, "", id))
		}
	})
	return edges
}

// maxCompared bounds how many input ports are compared with outputs, in the whole document.
const maxCompared = 200_000

// The method `connection` reads an edge between ports.
func (r *reader) connection(p place) definition.Value {
	edge := object(p)
	r.read(p, format{fields: map[string]func(place){
		"target": func(p place) {
			if id, ok := r.reference(p); ok {
				put(&edge, text(p, "to", id))
			}
		},
		"sourceHandle": func(p place) { put(&edge, copied(p, "key")) },
		"targetHandle": func(p place) { put(&edge, copied(p, "param")) },
	}})
	if !p.has("target") {
		r.add(p, definition.ErrMissing, `the field "target" is missing`)
	}
	return edge
}

func (r *reader) branches(p place) definition.Value {
	labels := object(p)
	r.read(p, format{rest: func(p place) { put(&labels, list(p, p.Key, r.targets(p, nil))) }})
	return named("branches", labels)
}

// policy is a converted retryPolicy.
type policy struct {
	at                                   place
	attempts, initial, longest, multiply definition.Value
}

// newPolicy returns the policy of a step without a retryPolicy.
func newPolicy(at place) policy {
	return policy{
		at:       at,
		attempts: scalar(at, "max_attempts", definition.Number, "3"),
		initial:  text(at, "initial_delay", "1s"),
		longest:  text(at, "max_delay", "30s"),
		multiply: scalar(at, "multiplier", definition.Number, "2"),
	}
}

func (x policy) retry() definition.Value {
	return named("retry", object(x.at, x.attempts, x.initial, x.longest, x.multiply, text(x.at, "jitter", "none")))
}

func (r *reader) retryPolicy(p place) definition.Value {
	x := newPolicy(p)
	delay := func(to *definition.Value) func(place) {
		return func(p place) {
			if d, ok := r.milliseconds(p); ok {
				*to = text(p, to.Key, d)
			}
		}
	}
	r.read(p, format{fields: map[string]func(place){
		"maxAttempts":    func(p place) { x.attempts = copied(p, "max_attempts") },
		"initialDelayMs": delay(&x.initial),
		"maxDelayMs":     delay(&x.longest),
		"backoff": func(p place) {
			if strings.EqualFold(p.text(), "linear") {
				r.add(p, definition.ErrUnsupported, `the backoff "linear" is not supported; there are exponential, fixed and constant`)
			} else if factor, ok := r.choice(p, map[string]string{"exponential": "2", "fixed": "1", "constant": "1"}); ok {
				x.multiply = scalar(p, "multiplier", definition.Number, factor)
			}
		},
	}})
	return x.retry()
}
