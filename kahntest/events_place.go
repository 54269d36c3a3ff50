package kahntest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

// The method `place` splits the path of a node. It returns the graph that contains the node, the part of the path before the node's id, and the id.
// For the path of an item, such as "M[2]", the id is the id of the map. The graph is nil if the node is inside an expanded node whose graph is
// unknown.
func (c *streamChecker) place(path string) (in *kahn.Graph, prefix, id string, ok bool) {
	return c.placeIn(c.g, "", path)
}

// placeIn does the same as the method `place`, but for a path relative to the graph g. The parameter "above" is the prefix of the full paths of g's
// nodes.
func (c *streamChecker) placeIn(g *kahn.Graph, above, path string) (in *kahn.Graph, prefix, id string, ok bool) {
	nodes := c.decls(g)
	if nodes[path] != nil {
		return g, "", path, true
	}
	for i := 1; i < len(path); i++ {
		n := nodes[path[:i]]
		if n == nil || !strings.ContainsRune("/[#", rune(path[i])) {
			continue
		}
		item, inner, deeper := strings.Cut(path[i:], "/")
		switch {
		case !deeper && path[i] == '[':
			return g, "", n.ID, true
		case deeper && n.Sub != nil:
			in, prefix, id, ok = c.placeIn(n.Sub, above+n.ID+item+"/", inner)
			return in, n.ID + item + "/" + prefix, id, ok
		case deeper && n.step():
			if sub := c.expanded[above+n.ID+item]; sub != nil {
				in, prefix, id, ok = c.placeIn(sub, above+n.ID+item+"/", inner)
				return in, n.ID + item + "/" + prefix, id, ok
			}
			at := strings.LastIndexByte(path, '/') + 1
			prefix, id = path[:at], path[at:]
			if base, _, isItem := strings.Cut(id, "["); isItem && c.nodes[above+prefix+base] != nil {
				id = base
			}
			return nil, prefix, id, true
		}
	}
	return nil, "", "", false
}

// decls returns the declarations of a graph's nodes, by id.
func (c *streamChecker) decls(g *kahn.Graph) map[string]*decl {
	if known := c.graphs[g]; known != nil {
		return known
	}
	nodes := map[string]*decl{}
	c.graphs[g] = nodes
	for _, n := range g.Nodes() {
		nodes[n.ID] = &decl{Node: n}
	}
	for _, e := range g.Edges() {
		if g == c.g && c.pruned[e.From] {
			continue
		}
		nodes[e.To].sources = append(nodes[e.To].sources, e.From)
	}
	return nodes
}

// The function `around` returns the path of the composite that contains a node, or "". The argument `path` is the node's path. The arguments `prefix`
// and `id` are the results of the method `place` for this path.
func around(path, prefix, id string) string {
	if strings.HasPrefix(path, prefix+id+"[") {
		return prefix + id // the node is an item: its composite is the map
	}
	within := strings.TrimSuffix(prefix, "/")
	if at := strings.LastIndexByte(within, '#'); at > strings.LastIndexByte(within, '/') {
		within = within[:at] // an iteration has no events
	}
	return within
}

// An interior lists those nodes of a composite for which the checker has read events. The nodes in an inner composite are listed in the interior of
// the inner composite.
type interior struct {
	around     *interior // the interior of the enclosing composite, or nil
	nodes      []string  // the paths of the nodes
	composites []string  // the paths of the nodes that are composites with an interior
	last       int       // for a loop: the number of the last iteration

	open   []string    // the paths of all nodes that have not ended, and of some ended nodes, which the method `unended` removes
	within []*interior // the interiors of composites directly in this composite, if they may contain, at any depth, a node that has not ended
	listed bool        // whether around.within contains this interior
}

// The method `interior` returns the interior of a composite. If there is none, it creates one, and lists the composite in the enclosing interior.
func (c *streamChecker) interior(path string) *interior {
	in := c.inside[path]
	if in == nil {
		in = &interior{}
		c.inside[path] = in
		if _, prefix, id, _ := c.place(path); prefix != "" || id != path {
			in.around = c.interior(around(path, prefix, id))
			in.around.composites = append(in.around.composites, path)
		}
	}
	return in
}

// The method `opened` records in the enclosing interiors that the interior `in` contains a node that has not ended.
func (c *streamChecker) opened(in *interior) {
	for ; in.around != nil && !in.listed; in = in.around {
		in.listed = true
		in.around.within = append(in.around.within, in)
	}
}

// The method `forget` deletes the records of the nodes in a composite.
func (c *streamChecker) forget(path string) {
	in := c.inside[path]
	if in == nil {
		return
	}
	c.steps += len(in.nodes)
	for _, node := range in.nodes {
		delete(c.nodes, node)
	}
	for _, inner := range in.composites {
		c.forget(inner)
		delete(c.inside, inner)
	}
	*in = interior{around: in.around, listed: in.listed}
}

// The method `unended` searches a composite for a node that had an event in this life of the run and has not ended, and returns the node's path. It
// also removes ended nodes from the interiors' lists of open nodes. So all calls together look at each ended node only once.
func (c *streamChecker) unended(composite string) (path string, ok bool) {
	if in := c.inside[composite]; in != nil {
		path = c.unendedIn(in)
	}
	return path, path != ""
}

func (c *streamChecker) unendedIn(in *interior) (path string) {
	c.steps += len(in.open) + len(in.within)
	in.open = slices.DeleteFunc(in.open, func(id string) bool {
		n := c.nodes[id]
		if n == nil || n.terminal != kahn.Idle {
			return true
		}
		if path == "" && n.last != "" && !c.again(n) {
			path = id
		}
		return false
	})
	in.within = slices.DeleteFunc(in.within, func(inner *interior) bool {
		if found := c.unendedIn(inner); path == "" {
			path = found
		}
		inner.listed = len(inner.open) > 0 || len(inner.within) > 0
		return !inner.listed
	})
	return path
}

// giveUp removes the nodes in a composite from c.waits and c.untold, and sets the field givenUp of these nodes.
func (c *streamChecker) giveUp(composite string) {
	in := c.inside[composite]
	c.steps += len(in.nodes)
	for _, path := range in.nodes {
		delete(c.waits, path)
		delete(c.untold, path)
		c.nodes[path].givenUp = true
	}
	for _, inner := range in.composites {
		c.giveUp(inner)
	}
}

// The method `quiet` reports whether nodes in a composite have had events, but none of these events came after the latest resumption.
func (c *streamChecker) quiet(composite string) bool {
	in := c.inside[composite]
	if in != nil {
		c.steps += len(in.nodes)
	}
	return in != nil && !slices.ContainsFunc(in.nodes, func(path string) bool { return !c.again(c.nodes[path]) }) &&
		!slices.ContainsFunc(in.composites, func(inner string) bool { return !c.quiet(inner) })
}

// decl is the declaration of a node.
type decl struct {
	kahn.Node
	sources []string // the predecessors of the node: their ids in the result of decls, their paths in a nodeLife
	within  string   // the path of the composite around the node, or ""
	item    bool     // whether the node is an item of a map; then the declaration is the map's
	unknown bool     // whether the node is inside an expanded node whose graph is unknown
}

// mockedInline reports whether the engine calls a mock of the node without queueing the node.
func (d *decl) mockedInline() bool { return d.inline() || d.isGate() || d.Sub != nil || d.Map != nil }

func (d *decl) inline() bool { return d.Test != nil || d.TestExpr != "" || d.Kind == kahn.KindTrigger }

// The method `step` reports whether a step performs the node. The step may return a graph.
func (d *decl) step() bool { return d.Sub == nil && !d.inline() && !d.isGate() }

func (d *decl) isGate() bool { return d.Kind == kahn.KindGate && d.Do == nil && !d.inline() }

// The method `early` reports whether the node may start before all its predecessors have ended.
func (d *decl) early() bool {
	return d.Join == kahn.AnySucceeded || d.Join == kahn.OneFailed || d.Join == kahn.OneDone || d.Join > 255 // AtLeast
}

// prefixInside returns the prefix of the paths of the nodes in a composite. For a loop it returns the prefix for the nodes of the last iteration.
func (c *streamChecker) prefixInside(r kahn.NodeResult, prefix string) string {
	in, _, id, ok := c.place(prefix + r.ID)
	if !ok || in == nil {
		return prefix + r.ID + "/"
	}
	switch n := c.decls(in)[id]; {
	case id != r.ID: // r.ID is the id of an item
	case n.Map != nil:
		return prefix // the paths of the items begin with the map's own path
	case n.Loop != nil:
		last := 0
		if in := c.inside[prefix+r.ID]; in != nil {
			last = in.last
		}
		return fmt.Sprintf("%s%s#%d/", prefix, r.ID, last)
	}
	return prefix + r.ID + "/"
}
