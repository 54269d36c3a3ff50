package importer

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn/definition"
)

// A transition leads from a step to a following step.
type transition struct {
	place
	from, to  string
	condition place            // its Value is nil if the transition has no condition
	keys      []string         // the keys of params, in document order
	params    map[string]place // the parameters for the target step
}

// resultOf matches a parameter that refers to a step's result, or to a part of the result, such as {{ fetch.result.name }}.
var resultOf = regexp.MustCompile(`^\{\{-?\s*(?:nodes\.)?([^\s.{}]+)((?:\.[A-Za-z0-9_-]+)*)\s*-?\}\}$`)

// The method `playbook` converts a playbook.
func (r *reader) playbook(top place) *definition.Value {
	var workflow, workload place
	var name, path string
	ignored := func(place) {}
	r.read(top, format{
		fields: map[string]func(place){
			"apiVersion": ignored, "kind": ignored, "version": ignored,
			"name": func(p place) { name = p.text() }, "path": func(p place) { path = p.text() },
			"metadata": func(p place) {
				r.read(p, format{fields: map[string]func(place){
					"name": func(p place) { name = p.text() }, "path": func(p place) { path = p.text() }, "version": ignored,
				}, refused: map[string]string{"description": "workflows have no descriptions"}})
			},
			"workload": func(p place) { workload = p },
			"workflow": func(p place) { workflow = p },
		},
		refused: map[string]string{"workbook": "tools by name have no equivalent; write the tool in the step that uses it"},
	})
	if !r.expect(workflow, definition.List) {
		return nil
	}
	if name == "" {
		name = path
	}
	steps := workflow.items()
	r.findIDs(steps, "step")
	var all []transition
	var nodes []definition.Value
	for _, p := range steps {
		nodes = append(nodes, r.playbookStep(p, &all))
	}
	nodes = r.withEnd(workflow, nodes)
	nodes, edges := r.transitions(nodes, all)
	var rest []definition.Value
	if workload.Value != nil {
		rest = append(rest, r.workload(workload))
	}
	return document(top, name, append(rest, list(workflow, "nodes", nodes), edgeList(workflow, edges))...)
}

// The method `workload` converts a playbook's initial values to inputs. An initial value becomes the default of its input.
// For the value null, the input is optional instead.
func (r *reader) workload(p place) definition.Value {
	var inputs []definition.Value
	r.read(p, format{rest: func(p place) {
		input := object(p, text(p, "name", p.Key))
		if p.Type == definition.Null {
			put(&input, scalar(p, "optional", definition.Bool, "true"))
		} else {
			put(&input, copied(p, "default"))
		}
		inputs = append(inputs, input)
	}})
	return list(p, "inputs", inputs)
}

// playbookStep converts a step to a node, and appends the step's transitions to the list `all`.
func (r *reader) playbookStep(p place, all *[]transition) definition.Value {
	node := object(p)
	id := p.member("step").text()
	r.node = id
	defer func() { r.node = "" }()
	r.read(p, format{
		fields: map[string]func(place){
			"step":  func(p place) { put(&node, copied(p, "id")) },
			"desc":  func(p place) { put(&node, copied(p, "label")) },
			"tool":  func(p place) { put(&node, r.tool(p, isEnd(id))...) },
			"retry": func(p place) { put(&node, r.playbookRetry(p)) },
			"next": func(p place) {
				r.one(p, func(p place) { r.transition(transition{place: p, from: id}, all) })
			},
		},
		refused: map[string]string{
			"loop":  "a step with a loop has no equivalent here: the names of its item and its result are known to the tool only; write a node with a map",
			"vars":  "steps have no variables: what follows reads the results of the steps before",
			"when":  "a step has no condition of its own; write it in the transition that leads to the step",
			"args":  "the arguments of a step stand in its tool",
			"on":    "a step has no handlers: a failure ends at the step end",
			"end":   "the end of a playbook is the step called end",
			"start": "no transition leads to the first steps",
		},
	})
	if !p.has("step") && p.Type == definition.Object {
		r.add(p, definition.ErrMissing, `the field "step" is missing`)
	}
	switch {
	case isEnd(id):
		put(&node, text(p, "kind", "end"))
	case !p.has("tool"): // a step without a tool becomes an empty graph
		put(&node, named("graph", object(p)))
	}
	return node
}

// The method `tool` converts a step's tool to the kind and the config of the node. For the end node, whose kind is always
// "end", the whole tool becomes the config.
func (r *reader) tool(p place, end bool) (fields []definition.Value) {
	if p.Type == definition.Text && !end {
		return append(fields, copied(p, "kind"))
	}
	if end {
		return append(fields, copied(p, "config"))
	}
	config := object(p)
	r.read(p, format{
		fields: map[string]func(place){"kind": func(p place) {
			if r.expect(p, definition.Text) {
				fields = append(fields, *p.Value)
			}
		}},
		rest: func(p place) { put(&config, *p.Value) },
	})
	if p.Type == definition.Object && !p.has("kind") {
		r.add(p, definition.ErrMissing, `the field "kind" is missing`)
	}
	if len(config.Items) > 0 {
		fields = append(fields, named("config", config))
	}
	return fields
}

// playbookRetry converts the retry of a step: a number of attempts, or an object with delays in seconds.
func (r *reader) playbookRetry(p place) definition.Value {
	retry := object(p)
	seconds := func(key string) func(place) {
		return func(p place) {
			if !r.expect(p, definition.Number) {
				return
			}
			if n, err := strconv.ParseFloat(p.Text, 64); err != nil || n < 0 || n > 1e9 {
				r.add(p, definition.ErrValue, "expected a number of seconds, got %.60s", p.Text)
			} else {
				put(&retry, text(p, key, strconv.FormatFloat(n, 'f', -1, 64)+"s"))
			}
		}
	}
	if p.Type == definition.Number {
		put(&retry, copied(p, "max_attempts"))
		return named("retry", retry)
	}
	r.read(p, format{
		fields: map[string]func(place){
			"max_attempts":       func(p place) { put(&retry, copied(p, "max_attempts")) },
			"initial_delay":      seconds("initial_delay"),
			"max_delay":          seconds("max_delay"),
			"backoff_multiplier": func(p place) { put(&retry, copied(p, "multiplier")) },
		},
		refused: map[string]string{
			"retry_when": "whether a step is tried again is decided by the cause of its failure, not by an expression",
			"stop_when":  "whether a step is tried again is decided by the cause of its failure, not by an expression",
		},
	})
	return named("retry", retry)
}

// The method `transition` reads a transition: its target, its condition and its parameters. If the transition has the field "then", the method reads
// several transitions that share the condition.
func (r *reader) transition(t transition, all *[]transition) {
	if t.Type == definition.Text {
		if id, ok := r.reference(t.place); ok {
			t.to = id
			*all = append(*all, t)
		}
		return
	}
	target := func(p place) { t.to, _ = r.reference(p) }
	condition := func(p place) {
		if p.Type != definition.Null && r.expect(p, definition.Text) {
			t.condition = p
		}
	}
	params := func(p place) {
		if p.Type != definition.Null {
			t.params = map[string]place{}
			r.read(p, format{rest: func(p place) {
				t.keys = append(t.keys, p.Key)
				t.params[p.Key] = p
			}})
		}
	}
	var then place
	fields := map[string]func(place){"then": func(p place) { then = p }}
	for _, words := range []struct {
		names []string
		read  func(place)
	}{{[]string{"step", "to_step"}, target}, {[]string{"when", "condition"}, condition}, {[]string{"with", "args", "with_params"}, params}} {
		before := "" // the synonym that has occurred already, or ""
		for _, name := range words.names {
			fields[name] = func(p place) {
				if before != "" && before != name {
					r.add(p, definition.ErrDuplicate, "%s and %s mean the same; use one of them", before, name)
					return
				}
				before = name
				words.read(p)
			}
		}
	}
	r.read(t.place, format{
		fields:  fields,
		refused: map[string]string{"else": "all transitions are judged on their own; write the opposite condition in another transition"},
	})
	switch {
	case t.Type != definition.Object:
	case then.Value != nil && (t.to != "" || len(t.params) > 0):
		r.add(then, definition.ErrDuplicate, "a transition has either a step or then")
	case then.Value != nil:
		before := len(*all)
		r.one(then, func(p place) { r.transition(transition{place: p, from: t.from}, all) })
		for i := range (*all)[before:] {
			inner := &(*all)[before+i]
			if inner.condition.Value != nil {
				r.add(inner.condition, definition.ErrUnsupported, "the condition stands beside then")
			}
			inner.condition = t.condition
		}
	case !t.has("step") && !t.has("to_step"):
		r.add(t.place, definition.ErrMissing, `the field "step" is missing`)
	case t.to != "":
		*all = append(*all, t)
	}
}

// The method `transitions` converts the transitions to edges. A transition with a condition gets a condition node of its own, and leads through this
// node. If the preceding step fails, the condition node is blocked. A parameter that refers to the result of the preceding step becomes an edge. Any
// other parameter becomes one of the target step's params.
func (r *reader) transitions(nodes []definition.Value, all []transition) (_, edges []definition.Value) {
	into := map[string][]transition{}
	for _, t := range all {
		into[t.to] = append(into[t.to], t)
	}
	fixed := constants{into, map[[2]string]bool{}, map[string][]definition.Value{}}
	numbers := map[string]int{} // by condition id: how many numbers conditionID has tried because a node had the id already
	for _, t := range all {
		r.node = t.from
		control := true // an edge without a parameter is needed
		source := t.from
		if t.condition.Value != nil {
			source = r.conditionID(t, numbers)
			nodes = append(nodes, object(t.place, text(t.condition, "id", source), text(t.condition, "kind", "condition"),
				text(t.condition, "test", t.condition.Text), text(t.condition, "join", "all_succeeded"), text(t.condition, "after", t.from)))
		}
		for _, name := range t.keys {
			p := t.params[name]
			key, isResult := r.result(t, p)
			switch {
			case !isResult:
				fixed.add(r, t, p)
				continue
			case t.condition.Value == nil:
				control = false
			case len(into[t.to]) > 1:
				r.add(p, definition.ErrUnsupported, "the step %.60q has other transitions, too: it would get the parameter %.60q although this transition is not taken", t.to, p.Key)
				continue
			}
			edge := object(p, text(p, "from", t.from), text(p, "to", t.to), text(p, "param", p.Key))
			if key != "" {
				put(&edge, text(p, "key", key))
			}
			if t.condition.Value != nil {
				put(&edge, scalar(p, "data_only", definition.Bool, "true"))
			}
			edges = append(edges, edge)
		}
		if control {
			edge := object(t.place, text(t.place, "from", source), text(t.place, "to", t.to))
			if t.condition.Value != nil {
				put(&edge, text(t.condition, "label", "true"))
			}
			edges = append(edges, edge)
		}
	}
	r.node = ""
	for i := range nodes {
		id := place{&nodes[i], ""}.member("id").text()
		if params := fixed.values[id]; len(params) > 0 {
			put(&nodes[i], definition.Value{Type: definition.Object, Key: "params", Items: params, At: params[0].At, KeyAt: params[0].KeyAt})
		}
	}
	return nodes, edges
}

// conditionID returns an id for the condition node of a transition. If another node has the id already, conditionID adds a number to make it unique.
func (r *reader) conditionID(t transition, numbers map[string]int) string {
	first := t.from + "." + t.to + "?"
	id := first
	for r.ids[id] {
		numbers[first]++
		id = t.from + "." + t.to + "." + strconv.Itoa(numbers[first]+1) + "?"
	}
	r.ids[id] = true
	return id
}

// The method `result` returns the key of the edge that delivers a parameter. The result `ok` reports whether the parameter
// refers to the result of the preceding step, or to a part of this result.
func (r *reader) result(t transition, p place) (key string, ok bool) {
	match := resultOf.FindStringSubmatch(p.text())
	if match == nil || match[1] != t.from && match[1] != "result" {
		return "", false
	}
	path := strings.TrimPrefix(match[2], ".")
	if match[1] == t.from {
		if whole, rest, _ := strings.Cut(path, "."); whole == "result" || whole == wholeOutput {
			path = rest
		}
	}
	return path, true
}

// The type constants collects the parameters that are fixed values, not results of steps. If one transition to a step gives
// a fixed value, all transitions to this step must give the same value.
type constants struct {
	into   map[string][]transition
	agreed map[[2]string]bool            // by id of a step and name of a parameter: whether all transitions to the step give the same value
	values map[string][]definition.Value // the params of the steps, by id
}

// add adds a parameter to the params of the transition's target. If this is impossible, it reports a problem.
func (c *constants) add(r *reader, t transition, p place) {
	if strings.Contains(p.text(), "{{") {
		r.add(p, definition.ErrUnsupported, "the parameter %.60q is neither a value nor the result of the step before, such as {{ %.60s.result.name }}", p.Key, t.from)
		return
	}
	of := [2]string{t.to, p.Key}
	agreed, found := c.agreed[of]
	if !found {
		agreed = !slices.ContainsFunc(c.into[t.to], func(other transition) bool {
			value := other.params[p.Key]
			return value.Value == nil || !same(*value.Value, *p.Value)
		})
		c.agreed[of] = agreed
		if agreed {
			c.values[t.to] = append(c.values[t.to], *p.Value)
		}
	}
	if !agreed {
		r.add(p, definition.ErrUnsupported, "the transitions to the step %.60q do not agree about the parameter %.60q, which has one value", t.to, p.Key)
	}
}

// The function `same` reports whether two values are equal; their places in the document may differ.
func same(a, b definition.Value) bool {
	return a.Type == b.Type && a.Text == b.Text && a.Key == b.Key && slices.EqualFunc(a.Items, b.Items, same)
}
