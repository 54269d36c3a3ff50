package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn/definition"
)

// scope holds the names that the templates of a node may use.
type scope struct {
	inputs *nameSet // the inputs that templates may name; nil means any
	params []string // the parameters, sorted
	closed bool     // whether the node has only the parameters in params
	free   bool     // whether the names in the field `inputs` are parameters of the node, too
	id     string
	wires  *wiring
	undo   bool // whether the config belongs to a compensation
}

// wiring describes the edges that the text of a graph contains. The graph need not compile.
type wiring struct {
	ids    map[string]int
	names  []string   // the ids, in document order
	params [][]string // by node: the parameters that edges deliver; nil if no edge leads to the node
	before [][]int    // by node: its direct predecessors
	partly []bool     // by node: whether some edges or parameters of the node may be unread
	open   bool       // whether unread edges may lead to any node

	above [][]uint64 // by node: its ancestors as bits, or nil if they are unknown; filled by the method `climb` on first use
}

// scopes holds the wiring and the inputs of each graph of a document.
type scopes struct {
	unread unread
	graphs map[*definition.Value]*wiring
	inputs map[*definition.Value]*nameSet // by graph
}

// scopesOf returns the scopes of a document. err is the Loader's error for the document, or nil.
func scopesOf(err error) *scopes {
	return &scopes{unreadOf(err), map[*definition.Value]*wiring{}, map[*definition.Value]*nameSet{}}
}

// nameSet is a set of names. It keeps the order in which the names were added.
type nameSet struct {
	list []string
	has  map[string]bool
}

func (s *nameSet) add(names ...string) {
	for _, name := range names {
		if !s.has[name] {
			s.has[name] = true
			s.list = append(s.list, name)
		}
	}
}

// inputsOf returns the inputs that the templates of a node may name: the inputs of the document, the inputs of the node's graph, the inputs that the
// map or loop around this graph adds, and the input "here" that this command adds. It returns nil if the graph or the document accepts any input.
func (s *scopes) inputsOf(root *definition.Value, at place) *nameSet {
	if known, ok := s.inputs[at.graph]; ok {
		return known
	}
	own, names := declared(at.graph), declared(root)
	var set *nameSet
	if own != nil && names != nil {
		set = &nameSet{has: map[string]bool{}}
		set.add(names...)
		set.add(own...)
		if member(at.outer, "map") != nil {
			set.add("item", "index")
		}
		if member(at.outer, "loop") != nil {
			set.add("iteration", "previous")
		}
		set.add(here)
	}
	s.inputs[at.graph] = set
	return set
}

// The method `of` returns the scope of a node. It does not set the fields `inputs` and `undo`.
func (s *scopes) of(at place, n *definition.Value) scope {
	w := s.graphs[at.graph]
	if w == nil {
		w = s.wiring(at)
		s.graphs[at.graph] = w
	}
	id := text(n, "id")
	index, known := w.ids[id]
	if !known || w.open || w.partly[index] {
		return scope{id: id, wires: w}
	}
	params := slices.Clone(w.params[index])
	for _, item := range fields(member(n, "params")) {
		params = append(params, item.Key)
	}
	ports := items(member(n, "ports"))
	for i := range ports {
		params = append(params, text(&ports[i], "name"))
	}
	if member(n, "map") != nil {
		params = append(params, "item", "index")
	}
	closed := w.params[index] != nil || len(ports) > 0
	slices.Sort(params)
	return scope{params: params, closed: closed, free: !closed && at.outer == nil, id: id, wires: w}
}

// delivers reports whether the node has or may have the parameter `name`. In the outermost graph, a node without in-edges and without ports gets the
// inputs of the graph as parameters.
func (s scope) delivers(name string) bool {
	if _, found := slices.BinarySearch(s.params, name); found || !s.closed && !s.free {
		return true
	}
	return s.free && s.inputs != nil && s.inputs.has[name]
}

// The function `fields` returns the members of an object.
func fields(v *definition.Value) []definition.Value {
	if v == nil || v.Type != definition.Object {
		return nil
	}
	return v.Items
}

// wiring reads the edges of the graph that contains a node.
func (s *scopes) wiring(at place) *wiring {
	graph := at.path[:strings.LastIndex(at.path, ".nodes[")]
	nodes := items(member(at.graph, "nodes"))
	w := &wiring{ids: make(map[string]int, len(nodes)), params: make([][]string, len(nodes)), before: make([][]int, len(nodes)), partly: make([]bool, len(nodes))}
	for i := range nodes {
		id := text(&nodes[i], "id")
		if _, twice := w.ids[id]; !twice && id != "" {
			w.ids[id] = i
			w.names = append(w.names, id)
		}
	}
	w.open = s.unread.other || s.unread.misses(graph, "nodes", "edges")
	for i := range nodes {
		n, path := &nodes[i], fmt.Sprintf("%s.nodes[%d]", graph, i)
		id := text(n, "id")
		for _, key := range []string{"after", "needs"} {
			s.edges(w, path+"."+key, member(n, key), edge{to: id})
		}
		s.edges(w, path+".next", member(n, "next"), edge{from: id})
		for _, branch := range fields(member(n, "branches")) {
			s.edges(w, path+".branches", &branch, edge{from: id})
		}
		w.open = w.open || s.unread.misses(path, "id", "next", "branches")
		w.partly[i] = w.partly[i] || s.unread.misses(path, "after", "needs") || s.unread.below(path+".params", path+".ports", path+".map")
	}
	s.edges(w, graph+".edges", member(at.graph, "edges"), edge{})
	return w
}

// edge holds the source and the target of an edge, as far as the place of the edge in the document determines them.
type edge struct{ from, to string }

// The method `edges` adds the edges that a part of a document describes. The part is one edge or a list of edges.
func (s *scopes) edges(w *wiring, path string, v *definition.Value, known edge) {
	if v == nil {
		return
	}
	unread := s.unread.below(path)
	if v.Type != definition.List {
		w.add(v, known, unread)
		return
	}
	for i := range v.Items {
		w.add(&v.Items[i], known, unread && s.unread.below(fmt.Sprintf("%s[%d]", path, i), path+"."))
	}
}

// The method `add` adds an edge. The parameter `unread` is true if parts of the edge could not be read.
func (w *wiring) add(v *definition.Value, e edge, unread bool) {
	end := func(known, key string) string {
		switch {
		case known != "":
			return known
		case v.Type == definition.Text:
			return v.Text
		}
		return text(v, key)
	}
	e.from, e.to = end(e.from, "from"), end(e.to, "to")
	to, ok := w.ids[e.to]
	if !ok { // the edge may be meant for any node
		w.open = true
		return
	}
	if w.params[to] == nil {
		w.params[to] = []string{}
	}
	if param := text(v, "param"); param != "" {
		w.params[to] = append(w.params[to], param)
	}
	from, ok := w.ids[e.from]
	if ok {
		w.before[to] = append(w.before[to], from)
	}
	w.partly[to] = w.partly[to] || unread || !ok
}

// The method `leads` reports whether edges lead from one node to another, directly or through other nodes. It also returns true if it cannot tell,
// for example because an edge could not be read.
func (w *wiring) leads(from, to string) bool {
	source, ok := w.ids[from]
	target, known := w.ids[to]
	if !ok || !known || w.open {
		return true
	}
	if w.above == nil {
		w.climb()
	}
	above := w.above[target]
	return above == nil || above[source/64]&(1<<(source%64)) != 0
}

// The method `climb` finds the ancestors of every node. It skips nodes that are in a cycle or have unread parts, and all nodes after them.
func (w *wiring) climb() {
	w.above = make([][]uint64, len(w.before))
	after, left := make([][]int, len(w.before)), make([]int, len(w.before))
	var ready []int
	for n, before := range w.before {
		for _, from := range before {
			after[from] = append(after[from], n)
		}
		if left[n] = len(before); left[n] == 0 {
			ready = append(ready, n)
		}
	}
	for len(ready) > 0 {
		n := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		above := make([]uint64, (len(w.before)+63)/64)
		for _, from := range w.before[n] {
			if w.above[from] == nil {
				above = nil
				break
			}
			above[from/64] |= 1 << (from % 64)
			for i, word := range w.above[from] {
				above[i] |= word
			}
		}
		if !w.partly[n] {
			w.above[n] = above
		}
		for _, to := range after[n] {
			if left[to]--; left[to] == 0 {
				ready = append(ready, to)
			}
		}
	}
}

// The type `unread` describes the parts of a document that could not be read.
type unread struct {
	paths   []string
	unknown map[string][]string // by path of an object: for each unknown field in it, the field that was probably meant; "" stands for any field
	other   bool                // whether there are unread parts that are neither in `paths` nor in `unknown`
}

func unreadOf(err error) unread {
	u := unread{unknown: map[string][]string{}}
	var all *definition.Error
	if !errors.As(err, &all) {
		return u
	}
	u.other = all.More > 0
	for _, p := range all.Problems {
		switch {
		case p.Kind == definition.ErrGraph || p.Kind == definition.ErrVersion:
		case p.Kind == definition.ErrLimit || strings.Contains(p.Path, "...("): // further parts are unread, or the path is unknown
			u.other = true
		case p.Kind == definition.ErrUnknownField && strings.ContainsAny(p.Path, ".["):
			object := p.Path[:strings.LastIndexAny(p.Path, ".[")]
			u.unknown[object] = append(u.unknown[object], p.Suggestion)
			fallthrough
		default:
			u.paths = append(u.paths, p.Path)
		}
	}
	return u
}

// The method `below` reports whether a part at or below one of the paths could not be read. A path that ends with a dot stands for the
// members of the object before the dot.
func (u *unread) below(paths ...string) bool {
	return slices.ContainsFunc(u.paths, func(unread string) bool {
		return slices.ContainsFunc(paths, func(path string) bool {
			rest, is := strings.CutPrefix(unread, path)
			return is && (rest == "" || rest[0] == '.' || rest[0] == '[' || strings.HasSuffix(path, "."))
		})
	})
}

// The method `misses` reports whether an object or one of its named fields could not be read. It also returns true if the object has an unknown
// field that may be a misspelling of a named field.
func (u *unread) misses(object string, names ...string) bool {
	return slices.ContainsFunc(u.paths, func(unread string) bool {
		name, is := strings.CutPrefix(unread, object)
		return is && (name == "" || slices.Contains(names, strings.TrimPrefix(name, ".")))
	}) || slices.ContainsFunc(u.unknown[object], func(meant string) bool { return meant == "" || slices.Contains(names, meant) })
}
