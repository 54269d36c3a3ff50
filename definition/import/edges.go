package importer

import (
	"slices"
	"strconv"

	"github.com/seed-c794f7ef/kahn/definition"
)

var (
	merges = map[string]string{"last_write_wins": "last_write_wins", "concat": "concat", "array": "array", "json_object": "json_object"}
	// causes maps the causes that a retry may list to their names in package definition.
	causes = map[string]string{
		"timeout": "timeout", "provider_error": "step_error", "rate_limit": "rate_limit", "contract_violated": "contract_violated_output",
	}
	parentFailures = map[string]string{"skip": "skip", "propagate": "propagate", "substitute_default": "substitute_default"}
)

// besideConfig lists fields of a node that must not be in the node's config. In the config they are errors, since the converter itself writes
// fields with these names into the config of the converted node.
var besideConfig = map[string]string{
	"lens_id": "the lens_id stands beside the config", "version_id": "the version_id stands beside the config",
}

// kindLens is the kind of all nodes except the end node.
const kindLens = "lens"

// The method `edges` converts a document of nodes and edges.
func (r *reader) edges(top place) *definition.Value {
	var name string
	var nodes, edges place
	r.findIDs(top.member("nodes").items(), "id")
	const inputs = "the inputs are given when a run begins"
	r.read(top, format{fields: map[string]func(place){
		"id": func(place) {}, "version": func(place) {},
		"name":  func(p place) { name = p.text() },
		"nodes": func(p place) { nodes = p },
		"edges": func(p place) { edges = p },
	}, refused: map[string]string{"description": "workflows have no descriptions", "rootInputs": inputs, "root_inputs": inputs}})
	if nodes.Value == nil {
		r.add(top, definition.ErrMissing, `the field "nodes" is missing`)
		return nil
	}
	var links []definition.Value
	asJSON := map[string]bool{} // nodes whose merges are rendered as JSON text
	if edges.Value != nil {
		r.list(edges, func(p place) { links = append(links, r.edge(p, asJSON)) })
	}
	type ordered struct {
		node    definition.Value
		ordinal int
	}
	var list []ordered
	r.list(nodes, func(p place) {
		node, ordinal := r.lens(p, asJSON)
		list = append(list, ordered{node, ordinal})
	})
	slices.SortStableFunc(list, func(a, b ordered) int { return a.ordinal - b.ordinal })
	converted := make([]definition.Value, len(list))
	for i := range list {
		converted[i] = list[i].node
	}
	return document(top, name, r.nodeList(nodes, converted), edgeList(edges, links))
}

func edgeList(from place, links []definition.Value) definition.Value {
	if from.Value == nil {
		return definition.Value{Type: definition.List, Key: "edges"}
	}
	return list(from, "edges", links)
}

// edge converts an edge.
func (r *reader) edge(p place, asJSON map[string]bool) definition.Value {
	edge := object(p)
	end := func(key string) func(place) {
		return func(p place) {
			if id, ok := r.reference(p); ok {
				put(&edge, text(p, key, id))
			}
		}
	}
	for _, key := range []string{"source_node_id", "target_node_id"} {
		if p.Type == definition.Object && !p.has(key) {
			r.add(p, definition.ErrMissing, "the field %q is missing", key)
		}
	}
	r.read(p, format{fields: map[string]func(place){
		"id":             func(place) {},
		"source_node_id": end("from"),
		"target_node_id": end("to"),
		"source_output_key": func(p place) {
			if p.text() != "output" { // "output" is the default
				put(&edge, copied(p, "key"))
			}
		},
		"target_param_label": func(p place) { put(&edge, copied(p, "param")) },
		"merge_strategy":     r.merge(&edge, func() { asJSON[p.member("target_node_id").text()] = true }),
	}})
	return edge
}

// merge reads a merge strategy. It calls the function `rendered` if the result of the strategy is rendered as JSON text.
func (r *reader) merge(to *definition.Value, rendered func()) func(place) {
	return func(p place) {
		if p.Type == definition.Null {
			return
		}
		strategy, ok := r.choice(p, merges)
		if ok {
			put(to, text(p, "merge", strategy))
		}
		if strategy == "array" || strategy == "json_object" {
			rendered()
		}
	}
}

// lens converts a node. It returns the converted node and the node's ordinal.
func (r *reader) lens(p place, asJSON map[string]bool) (node definition.Value, ordinal int) {
	id := p.member("id").text()
	r.node = id
	defer func() { r.node = "" }()
	node, settings := object(p), object(p)
	setting := func(p place) {
		if p.Type != definition.Null {
			put(&settings, *p.Value)
		}
	}
	r.read(p, format{fields: map[string]func(place){
		"id":         func(p place) { put(&node, copied(p, "id")) },
		"lens_id":    setting,
		"version_id": setting,
		"label": func(p place) {
			if p.Type != definition.Null {
				put(&node, copied(p, "label"))
			}
		},
		"ordinal": func(p place) {
			n, err := strconv.ParseInt(p.Text, 10, 32)
			if r.expect(p, definition.Number) && err != nil {
				r.add(p, definition.ErrValue, "expected an integer, got %.60s", p.Text)
			}
			ordinal = int(n)
		},
		"config": func(p place) {
			known := map[string]func(place){
				"moderation": func(p place) { put(&node, copied(p, "moderation")) },
				"timeout_ms": func(p place) {
					if d, ok := r.milliseconds(p); ok {
						put(&node, text(p, "timeout", d))
					}
				},
				"merge": r.merge(&node, func() { asJSON[id] = true }),
				"retry": func(p place) { put(&node, r.retry(p)) },
				"on_parent_failure": func(p place) {
					if policy, ok := r.choice(p, parentFailures); ok {
						put(&node, text(p, "on_upstream_failure", policy))
					}
				},
			}
			r.read(p, format{fields: known, refused: besideConfig, rest: func(p place) {
				if !r.addTypo(p, known) {
					put(&settings, *p.Value)
				}
			}})
		},
	}})
	if isEnd(id) {
		put(&node, text(p, "kind", "end"))
	} else {
		put(&node, text(p, "kind", kindLens))
	}
	if len(settings.Items) > 0 {
		put(&node, named("config", settings))
	}
	if asJSON[id] {
		put(&node, scalar(p, "merge_json", definition.Bool, "true"))
	}
	return node, ordinal
}

// retry converts a node's retry. Fields that the retry lacks get the defaults of package kahn.
func (r *reader) retry(p place) definition.Value {
	retry := object(p)
	delay := func(key string) func(place) {
		return func(p place) {
			if d, ok := r.milliseconds(p); ok {
				put(&retry, text(p, key, d))
			}
		}
	}
	r.read(p, format{fields: map[string]func(place){
		"attempts":       func(p place) { put(&retry, copied(p, "max_attempts")) },
		"backoff_ms":     delay("initial_delay"),
		"max_backoff_ms": delay("max_delay"),
		"retry_on": func(p place) {
			var on []definition.Value
			r.list(p, func(p place) {
				if cause, ok := r.choice(p, causes); ok {
					on = append(on, text(p, "", cause))
				}
			})
			put(&retry, list(p, "retry_on", on))
		},
	}})
	return named("retry", retry)
}
