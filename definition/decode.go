package definition

import (
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition/internal/source"
)

// Version is the version of the documents that this package reads and writes.
const Version = 1

const versionText = "1"

// Decode reads a JSON document. It does not compile the graph, so the host may first set what is not data, such as the functions of merge
// strategies. See [Loader]. Decode checks the document's schedule but does not return it.
//
// The error is an [*Error] with a [*Problem] for each problem of the document. After a syntax problem, an unknown version, or an exceeded
// limit other than NameBytes, Decode looks for no further problems. errors.Is finds the kind of each problem, such as [ErrUnknownField].
func Decode(data []byte, limits Limits) (*kahn.Graph, error) {
	root, err := Parse(data, limits)
	if err != nil {
		return nil, err
	}
	return FromTree(root, limits)
}

// Read is Decode for the text of a reader. It reads at most one byte more than Limits.Bytes. It returns the reader's own
// errors unchanged.
func Read(r io.Reader, limits Limits) (*kahn.Graph, error) {
	limits = limits.Resolved()
	data, more, err := source.Read(r, limits.Bytes)
	switch {
	case err != nil:
		return nil, err
	case more:
		return nil, tooLong(limits)
	}
	return Decode(data, limits)
}

func tooLong(limits Limits) error {
	var r report
	r.add(Position{}, ErrLimit, "the document is longer than %d bytes", limits.Bytes)
	return r.result()
}

// FromTree is Decode for a document that was read from another format into a tree. The reader of the format must check
// Limits.Bytes and Limits.Aliases, and that all texts are valid UTF-8. FromTree checks everything else. Parts of the tree may be
// shared: each use counts against the limits. FromTree checks the document's schedule but does not return it; [NewDocument] does.
func FromTree(root *Value, limits Limits) (*kahn.Graph, error) {
	d := decoder{limits: limits.Resolved(), values: 1}
	g := d.document(root)
	if err := d.result(); err != nil {
		return nil, err
	}
	return g, nil
}

// NewDocument is like FromTree, but returns the whole document, with its schedule and its Aliases. It does not compile the graph;
// [Loader] does.
func NewDocument(root *Value, limits Limits) (*Document, error) {
	doc, err := partOf(root, limits)
	if err != nil {
		return nil, err
	}
	return doc, nil
}

// partOf is like NewDocument. But if the document has problems, partOf returns both the error and the parts that could be read. The graph is nil if
// the root is not an object, or if a problem ended the reading of the document.
func partOf(root *Value, limits Limits) (*Document, error) {
	d := decoder{limits: limits.Resolved(), values: 1, partial: true}
	g := d.document(root)
	if d.stopped {
		g = nil
	}
	return &Document{Graph: g, Root: root, Schedule: d.schedule, Aliases: d.aliases}, d.result()
}

// decoder turns a tree into a graph.
type decoder struct {
	report
	limits               Limits
	partial              bool // whether to keep the parts of a graph that could be read
	values, nodes, edges int
	ids                  map[string]bool   // the ids of the nodes of the current graph
	aliases              []*Problem        // uses of other engines' names
	forms                map[string]string // by the result of lookAlike: the non-ASCII ids of the current graph that were read so far
	schedule             *Schedule         // the schedule of the document
}

// enter begins to read an item of a list or an object. It returns false if the caller must skip the item. Otherwise the
// caller must call pop after it has read the item.
func (d *decoder) enter(v *Value, key string, index int) bool {
	d.push(key, index)
	d.values++
	switch {
	case d.stopped:
	case v.Problem != nil:
		d.found(v.Problem)
	case d.values > d.limits.Values:
		d.stop(v.At, ErrLimit, "more than %d values", d.limits.Values)
	case len(d.path) >= d.limits.Depth && v.Type >= List:
		d.stop(v.At, ErrLimit, "nested deeper than %d levels", d.limits.Depth)
	default:
		return true
	}
	d.pop()
	return false
}

// The method `found` reports a problem that the reader of the format put into the tree.
func (d *decoder) found(p *Problem) {
	if added := d.add(p.Position, p.Kind, "%s", p.Message); added != nil {
		added.Suggestion = p.Suggestion
		if p.Path != "" {
			added.Path = p.Path
		}
	}
}

// expect reports whether the type of the value is t. If it is not, expect adds a problem.
func (d *decoder) expect(v *Value, t Type) bool {
	if v.Type == t {
		return true
	}
	p := d.add(v.At, ErrType, "expected %s, got %s", t, v.describe())
	switch {
	case p == nil:
	case v.Type == Null:
		p.Message += "; leave the field out to have its default, or indent what belongs to it"
	case v.Type == Text && (t == Bool && plainBool[v.Text] == v.Text || t == Number && numberLength(v.Text) == len(v.Text) && v.Text != ""):
		p.Message += "; write it without quotes"
		p.Suggestion = v.Text
	case v.Type == Text && t == Bool:
		p.suggest(plainBool[strings.ToLower(v.Text)])
	case v.Type == Number && t == Bool && numberBool[v.Text] != "":
		p.suggest(numberBool[v.Text])
	case v.Type == Text && t == Number:
		p.Message += "; write it in digits"
	case v.Type == List && t == Text && len(v.Items) == 1 && v.Items[0].Type == Text:
		p.Message += "; write it without brackets, or in quotes if they belong to it"
		p.Suggestion = v.Items[0].Text
	case t == Text && (v.Type == Number || v.Type == Bool):
		p.Message += "; write it in quotes"
		p.Suggestion = strconv.Quote(v.Text)
	case t == Object && v.Type == Text && noSpace.MatchString(v.Text):
		key, value, _ := strings.Cut(v.Text, ":")
		p.Suggestion = key + ": " + value
		p.Message += "; a colon and a space separate a key from its value: " + p.Suggestion
	case t == List && v.Type != List:
		p.Message += "; write it as the only item of a list"
	}
	return false
}

// noSpace matches a text that consists of a key, a colon and a value, without a space after the colon.
var noSpace = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]{0,40}:[^\s/:][^\n]{0,200}$`)

// The method `list` reads the items of a list.
func (d *decoder) list(v *Value, each func(item *Value)) {
	if !d.expect(v, List) {
		return
	}
	for i := range v.Items {
		if !d.enter(&v.Items[i], "", i) {
			continue
		}
		each(&v.Items[i])
		d.pop()
	}
}

// The function `records` reads the items of a list of objects. If the value is an object instead of a list, the message depends on what the author
// probably meant. Either each member of the object is an item under its name, or the object is a single item without a list around it.
func records[T any](d *decoder, v *Value, r *record[T], each func(item *Value)) {
	isField := func(item Value) bool { return r.find(item.Key) >= 0 && item.Type != Object && item.Type != Null }
	if v.Type == Object && len(v.Items) > 0 && !slices.ContainsFunc(v.Items, isField) {
		d.add(v.At, ErrType, `expected a list, got an object; write each member as an item of a list, with its name in it: {"%s": %s, ...}`,
			r.required[0], quote(v.Items[0].Key))
		return
	}
	d.list(v, each)
}

// The method `document` reads the outermost object. If the object has a version other than Version, the method reports only this, since that
// version may have other rules. If the object has no version, the method reports this, and reads the object by the rules of Version.
func (d *decoder) document(v *Value) *kahn.Graph {
	if v.Problem != nil {
		d.found(v.Problem)
		return nil
	}
	if !d.expect(v, Object) {
		return nil
	}
	if version := members(v, "version"); len(version) > 0 && (version[0].Type != Number || version[0].Text != versionText) {
		d.push("version", -1)
		d.stop(version[0].At, ErrVersion, "expected version %s, got %s", versionText, version[0].describe())
		if version[0].Text == versionText {
			d.err.Problems[0].Message += "; write it without quotes"
			d.err.Problems[0].Suggestion = versionText
		}
		return nil
	}
	return d.graph(v, &documentRecord)
}

// graph reads the object of a graph.
func (d *decoder) graph(v *Value, r *record[graph]) *kahn.Graph {
	outer, outerForms := d.ids, d.forms
	d.ids, d.forms = nodeIDs(v), map[string]string{}
	g := graph{Graph: &kahn.Graph{}}
	r.read(d, v, &g)
	d.ids, d.forms = outer, outerForms
	if g.schedule != nil {
		d.schedule = g.schedule
	}
	if len(d.err.Problems) > 0 && !d.partial {
		return nil
	}
	nodes := make([]kahn.Node, len(g.nodes))
	for i := range g.nodes {
		nodes[i] = g.nodes[i].Node
	}
	return g.Add(nodes...).Connect(declare(g.nodes, g.edges)...)
}

// subgraph returns a field that holds a graph.
func subgraph[T any](key string, at func(*T) **kahn.Graph) field[T] {
	return field[T]{
		name: key,
		read: func(d *decoder, v *Value, to *T) { *at(to) = d.graph(v, &graphRecord) },
		show: func(e *encoder, from *T) (Value, bool) {
			if *at(from) == nil {
				return Value{}, false
			}
			return e.graph(*at(from), &graphRecord), true
		},
	}
}

// nodeList returns the field with a graph's nodes.
func nodeList(key string) field[graph] {
	f := field[graph]{name: key}
	f.read = func(d *decoder, v *Value, to *graph) {
		seen := map[string]bool{}
		records(d, v, &nodeRecord, func(item *Value) {
			if d.nodes++; d.nodes > d.limits.Nodes {
				d.stop(item.At, ErrLimit, "more than %d nodes", d.limits.Nodes)
				return
			}
			if id := members(item, "id"); len(id) > 0 && id[0].Type == Text {
				d.node = append(d.node, id[0].Text)
				defer func() { d.node = d.node[:len(d.node)-1] }()
				d.push("id", -1)
				if seen[id[0].Text] {
					d.add(id[0].At, ErrDuplicate, "there is a node with this id already")
				}
				seen[id[0].Text] = true
				d.checkAlike(id[0])
				d.pop()
			}
			var n node
			nodeRecord.read(d, item, &n)
			d.compute(item, &n)
			to.nodes = append(to.nodes, n)
		})
	}
	f.show = func(e *encoder, from *graph) (Value, bool) {
		v := Value{Type: List}
		seen := map[string]bool{}
		for i := range from.nodes {
			n := &from.nodes[i]
			e.push("", i)
			e.node = append(e.node, n.ID)
			if seen[n.ID] {
				e.add(Position{}, ErrDuplicate, "there is a node with this id already")
			}
			seen[n.ID] = true
			v.Items = append(v.Items, nodeRecord.show(e, n))
			e.node = e.node[:len(e.node)-1]
			e.pop()
		}
		return v, len(v.Items) > 0
	}
	return f
}

// checkAlike reports an id that looks like the id of an earlier node in the same graph.
func (d *decoder) checkAlike(id *Value) {
	if isASCII(id.Text) {
		return
	}
	form := lookAlike(id.Text)
	if other, known := d.forms[form]; known && other != id.Text {
		d.add(id.At, ErrValue, "the id %.60s looks the same as the id %.60s of another node", strconv.QuoteToASCII(id.Text), strconv.QuoteToASCII(other))
	}
	d.forms[form] = id.Text
}

// nodeIDs collects the ids before the nodes are read, because edges may name nodes that come later.
func nodeIDs(v *Value) map[string]bool {
	ids := map[string]bool{}
	for _, nodes := range members(v, "nodes") {
		for i := range nodes.Items {
			for _, id := range members(&nodes.Items[i], "id") {
				if id.Type == Text {
					ids[id.Text] = true
				}
			}
		}
	}
	return ids
}

// The function `members` returns all members of an object that have this key. There may be several, since an object in the
// tree may contain a key twice. The method `read` of a record reports such a key.
func members(v *Value, key string) (found []*Value) {
	if v.Type != Object {
		return nil
	}
	for i := range v.Items {
		if v.Items[i].Key == key {
			found = append(found, &v.Items[i])
		}
	}
	return found
}
