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

// Decode reads a JSON document. The graph is not compiled: the host may still set what is not data, such as merge
// strategies, and then compile or execute it; see [Loader]. The schedule of a document is checked and left out.
//
// Every problem of the document is reported, in an [*Error] with a [*Problem] each; only a problem of syntax or of a
// limit ends the search. errors.Is finds the kind of each problem, such as [ErrUnknownField].
func Decode(data []byte, limits Limits) (*kahn.Graph, error) {
	root, err := Parse(data, limits)
	if err != nil {
		return nil, err
	}
	return FromTree(root, limits)
}

// Read is Decode for the text of a reader. It does not read more than Limits.Bytes and one byte. It returns an error of the
// reader as it is.
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

// FromTree is Decode of a document that was read from another format into a tree. Readers of such formats are
// responsible for Limits.Bytes and for strings being valid UTF-8; everything else is checked here. Parts of the tree may be
// shared: each use counts. The schedule of a document is checked and left out; [NewDocument] returns it.
func FromTree(root *Value, limits Limits) (*kahn.Graph, error) {
	d := decoder{limits: limits.Resolved(), values: 1}
	g := d.document(root)
	if err := d.result(); err != nil {
		return nil, err
	}
	return g, nil
}

// NewDocument is FromTree that returns all of the document: its schedule, too, and what stands behind aliases. The graph is not compiled; [Loader] does that.
func NewDocument(root *Value, limits Limits) (*Document, error) {
	doc, err := partOf(root, limits)
	if err != nil {
		return nil, err
	}
	return doc, nil
}

// partOf is NewDocument that also returns a document with problems, without what could not be read. Its graph is nil after a problem that ended the
// search.
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
	partial              bool // graphs with problems are read, too
	values, nodes, edges int
	ids                  map[string]bool   // of the nodes of the graph that is being read
	aliases              []*Problem        // names of other engines that were read
	forms                map[string]string // the ids of earlier nodes that are not ASCII, by lookAlike
	schedule             *Schedule         // of the document
}

// enter begins to read an item of a list or an object. It returns false if the item must be passed over; otherwise pop ends
// the item.
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

// found reports what the reader of the format found.
func (d *decoder) found(p *Problem) {
	if added := d.add(p.Position, p.Kind, "%s", p.Message); added != nil {
		added.Suggestion = p.Suggestion
		if p.Path != "" {
			added.Path = p.Path
		}
	}
}

// expect reports a value that is not of the type.
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

// noSpace matches a text that is a key and a value with nothing but a colon between them.
var noSpace = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]{0,40}:[^\s/:][^\n]{0,200}$`)

// list reads the items of a list.
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

// records reads the items of a list of objects. For an object in place of the list whose members are the items, each under its name, the mend is
// another one than for an item alone.
func records[T any](d *decoder, v *Value, r *record[T], each func(item *Value)) {
	isField := func(item Value) bool { return r.find(item.Key) >= 0 && item.Type != Object && item.Type != Null }
	if v.Type == Object && len(v.Items) > 0 && !slices.ContainsFunc(v.Items, isField) {
		d.add(v.At, ErrType, `expected a list, got an object; write each member as an item of a list, with its name in it: {"%s": %s, ...}`,
			r.required[0], quote(v.Items[0].Key))
		return
	}
	d.list(v, each)
}

// document reads the outermost object. Of a document with another version it reports the version alone, since that version may have other
// rules. One without a version is read by the rules of this one.
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

// subgraph is a field that holds a graph.
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

// nodeList is the list of a graph's nodes.
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

// checkAlike reports an id that looks the same as the id of an earlier node.
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

// nodeIDs reads the ids in advance: edges may name nodes that come later.
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

// members returns the members of an object that have the key; more than one is a mistake that is reported later.
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
