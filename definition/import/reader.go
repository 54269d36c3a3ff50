package importer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/internal/nearest"
)

// A place is a value of the document with its path.
type place struct {
	*definition.Value
	path string
}

func (p place) has(key string) bool { return p.member(key).Value != nil }

// The method `member` returns the first member with the key, or a place without a value.
func (p place) member(key string) place {
	if p.Value == nil || p.Type != definition.Object {
		return place{}
	}
	for i := range p.Items {
		if p.Items[i].Key == key {
			return p.item(i)
		}
	}
	return place{}
}

func (p place) item(i int) place {
	item := &p.Items[i]
	switch {
	case p.Type == definition.List:
		return place{item, p.path + "[" + strconv.Itoa(i) + "]"}
	case strings.Trim(item.Key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_") == "" && item.Key != "":
		return place{item, p.path + "." + item.Key}
	}
	return place{item, fmt.Sprintf("%s[%.40q]", p.path, item.Key)}
}

func (p place) items() (items []place) {
	if p.Value != nil {
		for i := range p.Items {
			items = append(items, p.item(i))
		}
	}
	return items
}

// The method `text` returns the text of the place, or "" if the place is not a text.
func (p place) text() string {
	if p.Value == nil || p.Type != definition.Text {
		return ""
	}
	return p.Text
}

// maxProblems is how many problems are kept.
const maxProblems = 100

// A reader collects the problems of a document.
type reader struct {
	err  definition.Error
	node string // the id of the current node
	scope
	groups   map[string]*group // the groups of steps, by id
	members  map[string]string // the group of a step, by the id of the step
	compared int               // how many ports have been compared with outputs
	nested   int               // how many nested groups are being converted
}

// scope holds the possible targets of a graph's edges.
type scope struct {
	ids    map[string]bool     // the ids of all nodes
	end    string              // the id of the end node, "" if there is none
	inputs map[string][]string // the input ports of steps, by step id
	group  string              // the id of the group whose graph this is, "" for the outermost graph
}

// add reports a problem. If there are maxProblems already, it only counts the problem, and returns nil.
func (r *reader) add(p place, kind definition.ErrorKind, format string, args ...any) *definition.Problem {
	if len(r.err.Problems) == maxProblems {
		r.err.More++
		return nil
	}
	problem := &definition.Problem{Kind: kind, Path: p.path, Node: r.node, Message: fmt.Sprintf(format, args...)}
	if p.Value != nil {
		problem.Position = p.At
	}
	r.err.Problems = append(r.err.Problems, problem)
	return problem
}

// suggest adds a suggestion to a problem, if one of the choices is similar to the written text. It accepts a nil problem.
func suggest[V any](p *definition.Problem, written string, choices map[string]V) {
	const most = 1000 // no suggestion from a larger set
	if p == nil || len(choices) > most {
		return
	}
	if meant, ok := nearest.Name(written, slices.Sorted(maps.Keys(choices))); ok {
		p.Suggestion = meant
		p.Message += fmt.Sprintf("; did you mean %q?", meant)
	}
}

func (r *reader) expect(p place, t definition.Type) bool {
	switch {
	case p.Problem != nil:
		if problem := r.add(p, p.Problem.Kind, "%s", p.Problem.Message); problem != nil {
			problem.Position, problem.Suggestion = p.Problem.Position, p.Problem.Suggestion
			problem.Path = cmp.Or(p.Problem.Path, problem.Path)
		}
		return false
	case p.Type != t:
		r.add(p, definition.ErrType, "expected %v, got %v", t, p.Type)
		return false
	}
	return true
}

// A format lists the fields of an object, and has for each field the function that converts it.
type format struct {
	fields  map[string]func(place)
	refused map[string]string // fields without an equivalent, with the reason
	rest    func(place)       // converts fields that are in neither map; if nil, such fields are reported
}

// read reads an object.
func (r *reader) read(p place, f format) {
	if !r.expect(p, definition.Object) {
		return
	}
	seen := map[string]bool{}
	for i := range p.Items {
		item := p.item(i)
		atKey := place{&definition.Value{At: item.KeyAt}, item.path}
		read, known := f.fields[item.Key]
		reason, refused := f.refused[item.Key]
		switch {
		case item.Problem != nil:
			r.expect(item, definition.Null) // expect reports the problem of the item
		case seen[item.Key]:
			r.add(atKey, definition.ErrDuplicate, "the field occurs twice")
		case known:
			read(item)
		case refused:
			r.add(atKey, definition.ErrUnsupported, "%s", reason)
		case f.rest != nil:
			f.rest(item)
		default:
			r.addUnknown(atKey, item.Key, f.fields)
		}
		seen[item.Key] = true
	}
}

func (r *reader) addUnknown(atKey place, key string, known map[string]func(place)) {
	suggest(r.add(atKey, definition.ErrUnknownField, "unknown field %.60q", key), key, known)
}

// addTypo is called for a field in an object whose fields may have any name. It reports the field if its name is
// similar to the name of a known field.
func (r *reader) addTypo(p place, known map[string]func(place)) bool {
	_, similar := nearest.Name(p.Key, slices.Sorted(maps.Keys(known)))
	if similar {
		r.addUnknown(place{&definition.Value{At: p.KeyAt}, p.path}, p.Key, known)
	}
	return similar
}

// The method `list` reads the items of a list.
func (r *reader) list(p place, each func(place)) {
	if r.expect(p, definition.List) {
		for _, item := range p.items() {
			each(item)
		}
	}
}

// The method `one` reads a value or, if the value is a list, each item of the list.
func (r *reader) one(p place, each func(place)) {
	if p.Type == definition.List {
		r.list(p, each)
	} else {
		each(p)
	}
}

// The method `choice` reads a text that must be a key of choices, and returns the value of this key.
func (r *reader) choice(p place, choices map[string]string) (string, bool) {
	if !r.expect(p, definition.Text) {
		return "", false
	}
	value, ok := choices[p.Text]
	if !ok {
		problem := r.add(p, definition.ErrValue, "%.60q is none of %s", p.Text, strings.Join(slices.Sorted(maps.Keys(choices)), ", "))
		suggest(problem, p.Text, choices)
	}
	return value, ok
}

// The method `milliseconds` reads a number of milliseconds, and returns a duration.
func (r *reader) milliseconds(p place) (string, bool) {
	if !r.expect(p, definition.Number) {
		return "", false
	}
	if n, err := strconv.ParseUint(p.Text, 10, 42); err == nil {
		return strconv.FormatUint(n, 10) + "ms", true
	}
	r.add(p, definition.ErrValue, "expected a whole number of milliseconds, got %.60s", p.Text)
	return "", false
}

// The method `reference` reads the id of a node.
func (r *reader) reference(p place) (string, bool) {
	switch {
	case !r.expect(p, definition.Text):
		return "", false
	case isEnd(p.Text):
		if r.end == "" {
			r.end = endID
		}
		return r.end, true
	case !r.ids[p.Text] && r.members[p.Text] != "":
		r.add(p, definition.ErrReference, "the step %.60q is in the group %.60q; lead to the step that performs the group", p.Text, r.members[p.Text])
		return "", false
	case !r.ids[p.Text] && r.group != "":
		suggest(r.add(p, definition.ErrReference, "there is no step %.60q in the group %.60q, whose steps lead to one another; what follows the group is in the next of the step that performs it",
			p.Text, r.group), p.Text, r.ids)
		return "", false
	case !r.ids[p.Text]:
		suggest(r.add(p, definition.ErrReference, "there is no node %.60q", p.Text), p.Text, r.ids)
		return "", false
	}
	return p.Text, true
}

// The following functions make values of the converted document. Each value gets the position of the
// original value from which it is made.

func object(from place, items ...definition.Value) definition.Value {
	return definition.Value{Type: definition.Object, Items: items, At: from.At, KeyAt: from.KeyAt}
}

func scalar(from place, key string, t definition.Type, s string) definition.Value {
	return definition.Value{Type: t, Text: s, Key: key, At: from.At, KeyAt: from.KeyAt}
}

func text(from place, key, s string) definition.Value { return scalar(from, key, definition.Text, s) }

func list(from place, key string, items []definition.Value) definition.Value {
	return definition.Value{Type: definition.List, Key: key, Items: items, At: from.At, KeyAt: from.KeyAt}
}

// The function `named` returns the value with this key, as a member of an object.
func named(key string, v definition.Value) definition.Value {
	v.Key = key
	return v
}

// The function `copied` returns a value of the document with another key, as a member of an object.
func copied(from place, key string) definition.Value { return named(key, *from.Value) }

// The function `put` adds members to an object.
func put(to *definition.Value, members ...definition.Value) { to.Items = append(to.Items, members...) }

// document returns a converted document.
func document(from place, name string, rest ...definition.Value) *definition.Value {
	d := object(from, scalar(from, "version", definition.Number, strconv.Itoa(definition.Version)))
	if name != "" {
		put(&d, text(from, "name", name))
	}
	put(&d, rest...)
	return &d
}

// nodeList returns the list of nodes.
func (r *reader) nodeList(from place, nodes []definition.Value) definition.Value {
	return list(from, "nodes", r.withEnd(from, nodes))
}

// withEnd adds an end node if edges lead to an end node that the document does not list.
func (r *reader) withEnd(from place, nodes []definition.Value) []definition.Value {
	if r.end != "" && !r.ids[r.end] {
		nodes = append(nodes, object(from, text(from, "id", r.end), text(from, "kind", "end")))
	}
	return nodes
}

// findIDs collects the ids of the nodes before the nodes are converted, because edges may name nodes that come later.
func (r *reader) findIDs(nodes []place, key string) {
	for _, n := range nodes {
		id := n.member(key).text()
		r.ids[id] = true
		if isEnd(id) && r.end == "" {
			r.end = id
		}
	}
	delete(r.ids, "")
}
