package importer

import (
	"cmp"
	"maps"
	"slices"

	"github.com/seed-c794f7ef/kahn/definition"
)

// kindLoop is the type of a step that performs a group.
const kindLoop = "loop"

// maxNested bounds how deep groups may be nested.
const maxNested = 16

// group is a list of steps that a loop performs.
type group struct {
	place
	id, name  string
	steps     []place
	graph     definition.Value // set after the group was converted
	converted bool
	open      bool // the group is being converted
	performed bool // some loop performs the group
}

// readGroups reads the groups of a document. It returns the steps that are in no group.
func (r *reader) readGroups(groups, steps place) (outside []place) {
	byID := map[string]place{}
	for _, p := range steps.items() {
		byID[p.member("id").text()] = p
	}
	delete(byID, "")
	if groups.Value != nil {
		r.list(groups, func(p place) { r.readGroup(p, byID) })
	}
	for _, p := range steps.items() {
		if r.members[p.member("id").text()] == "" {
			outside = append(outside, p)
		}
	}
	return outside
}

func (r *reader) readGroup(p place, byID map[string]place) {
	g := &group{place: p}
	g.id = p.member("id").text()
	member := func(p place) {
		if p.Type == definition.Object {
			g.steps = append(g.steps, p)
			return
		}
		id, ok := p.text(), r.expect(p, definition.Text)
		step, known := byID[id]
		switch {
		case !ok:
		case !known:
			suggest(r.add(p, definition.ErrReference, "there is no step %.60q", id), id, byID)
		case r.members[id] != "":
			r.add(p, definition.ErrDuplicate, "the step %.60q is in the group %.60q already", id, r.members[id])
		default:
			r.members[id] = cmp.Or(g.id, "?")
			g.steps = append(g.steps, step)
		}
	}
	r.read(p, format{fields: map[string]func(place){
		"id":    func(p place) { r.expect(p, definition.Text) },
		"name":  func(p place) { g.name = p.text() },
		"steps": func(p place) { r.list(p, member) },
	}})
	switch {
	case p.Type != definition.Object:
	case g.id == "":
		r.add(p, definition.ErrMissing, `the field "id" is missing`)
	case r.groups[g.id] != nil:
		r.add(p.member("id"), definition.ErrDuplicate, "there is a group %.60q already", g.id)
	default:
		r.groups[g.id] = g
	}
}

// checkPerformed reports groups that no loop performs, because their steps would be lost.
func (r *reader) checkPerformed() {
	for _, id := range slices.Sorted(maps.Keys(r.groups)) {
		if g := r.groups[id]; !g.performed {
			r.add(g.member("id"), definition.ErrUnsupported, "no step of type %q performs the group %.60q, so its steps would never run", kindLoop, id)
		}
	}
}

// body returns the graph of a group. The first call for a group converts the group.
func (r *reader) body(p place, g *group) definition.Value {
	g.performed = true
	switch {
	case g.converted:
		return g.graph
	case g.open:
		r.add(p, definition.ErrReference, "the group %.60q performs itself", g.id)
		return definition.Value{}
	case r.nested == maxNested:
		r.add(p, definition.ErrLimit, "more than %d groups are nested", maxNested)
		return definition.Value{}
	}
	outer, node := r.scope, r.node
	r.scope, r.node = scope{ids: map[string]bool{}, group: g.id}, ""
	r.nested++
	g.open = true
	graph := object(g.place)
	if g.name != "" {
		put(&graph, text(g.member("name"), "name", g.name))
	}
	put(&graph, r.graphOf(g.place, g.steps))
	g.graph, g.converted, g.open = named("graph", graph), true, false
	r.nested--
	r.scope, r.node = outer, node
	return g.graph
}

// loop converts the config of a step that performs a group. Such a step repeats the group until an expression is true, or performs the group once
// for each item of a list.
func (r *reader) loop(at, config place, limits map[string]func(place)) (fields []definition.Value) {
	if config.Value == nil {
		r.add(at, definition.ErrMissing, `a loop has a config with the "group" that it performs`)
		return nil
	}
	var body definition.Value
	var until, most, over place
	loop, items := object(config), object(config)
	whole := func(to *definition.Value, key string, at *place) func(place) {
		return func(p place) {
			*at = p
			put(to, copied(p, key))
		}
	}
	var rest place
	known := map[string]func(place){
		"group": func(p place) {
			if !r.expect(p, definition.Text) {
				return
			}
			if g := r.groups[p.Text]; g != nil {
				body = r.body(p, g)
			} else {
				suggest(r.add(p, definition.ErrReference, "there is no group %.60q", p.Text), p.Text, r.groups)
			}
		},
		"until":         whole(&loop, "until", &until),
		"maxIterations": whole(&loop, "max_iterations", &most),
		"collect":       whole(&loop, "collect", &rest),
		"delayMs": func(p place) {
			if d, ok := r.milliseconds(p); ok {
				put(&loop, text(p, "pause", d))
			}
		},
		"over":           whole(&items, "over", &over),
		"maxConcurrency": whole(&items, "limit", &rest),
	}
	maps.Copy(known, limits)
	refused := map[string]string{
		"while": "a loop ends by until: write the opposite condition there",
		"index": "the number of an iteration is the input iteration of the group",
		"item":  "the item is the input item of the group, and its number index",
	}
	r.read(config, format{fields: known, refused: refused})
	switch {
	case config.Type != definition.Object:
	case !config.has("group"):
		r.add(config, definition.ErrMissing, `a loop names the "group" that it performs`)
	case until.Value != nil && over.Value != nil:
		r.add(over, definition.ErrDuplicate, "a loop has until or over, not both: until repeats the group, over performs it once for each item")
	case over.Value != nil && len(loop.Items) > 0:
		r.add(over, definition.ErrUnsupported, "maxIterations, collect and delayMs are for a loop with until; one with over takes each item once and collects the outputs")
	case until.Value != nil && len(items.Items) > 0:
		r.add(until, definition.ErrUnsupported, "maxConcurrency is for a loop with over; one with until performs one iteration after the other")
	case over.Value != nil:
		return append(fields, body, named("map", items))
	case until.Value == nil:
		r.add(config, definition.ErrMissing, `a loop needs "until", the expression that ends it, or "over", the parameter with the items`)
	case most.Value == nil:
		r.add(config, definition.ErrMissing, `a loop with until needs "maxIterations", its bound`)
	default:
		return append(fields, body, named("loop", loop))
	}
	return nil
}
