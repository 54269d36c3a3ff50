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

// A place is a value of the document, together with the path of the value.
type place struct {
	*definition.Value
	path string
}

func (p place) has(key string) bool { return p.member(key).Value != nil }

// The method `member` returns the first member with the key, or a place without a value if there is no such member.
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

// The method `text` returns the text of the place, or "" if its value is not a text.
func (p place) text() string {
	if p.Value == nil || p.Type != definition.Text {
		return ""
	}
	return p.Text
}

// maxProblems is the largest number of problems that a reader keeps.
const maxProblems = 100

// A reader converts a document, and collects the problems of the document.
type reader struct {
	err  definition.Error
	node string // the id of the current node
	scope
	groups   map[string]*group // the groups of steps, by id
	members  map[string]string // by id of a step: the id of its group
	compared int               // how many input ports have been compared with outputs
	nested   int               // how many nested groups are being converted
}

// scope holds the possible targets of a graph's edges.
type scope struct {
	ids    map[string]bool     // the ids of all nodes
	end    string              // the id of the end node, "" if there is none
	inputs map[string][]string // the input ports of steps, by step id
	group  string              // the id of the group whose graph this is, "" for the outermost graph
}

// add reports a problem. If the reader has maxProblems problems already, add counts the new problem without keeping it, and returns nil.
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

// suggest adds a suggestion to a problem, if one of the choices is similar to the written text. If the problem is nil, it does nothing.
func suggest[V any](p *definition.Problem, written string, choices map[string]V) {
	const most = 1000 // if there are more choices, suggest does nothing
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

// A format lists the fields of an object. For each field it has the function that converts the field's value.
type format struct {
	fields  map[string]func(place)
	refused map[string]string // the reasons why fields have no equivalent, by the name of the field
	rest    func(place)       // converts any field that is in neither map; if nil, such a field is a problem
}

// read reads the fields of an object as the format says.
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

// addTypo checks a field of an object whose fields may have any name. If the name of the field is similar to a known
// name, addTypo adds a problem and returns true.
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

// The method `milliseconds` reads a number of milliseconds, and returns the text of a duration, such as "250ms".
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

// The method `reference` reads the id of a node, and adds a problem if no edge can lead to this node. Any spelling of "end", such as "END", names
// the end node.
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

// The function `named` sets the key of a value, and returns the value.
func named(key string, v definition.Value) definition.Value {
	v.Key = key
	return v
}

// The function `copied` copies a value of the document, and sets the key of the copy.
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

// nodeList returns the list of nodes, with the end node that withEnd may add.
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
