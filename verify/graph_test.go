package verify

import "slices"

// graph is the model's own form of a graph. The order of the slices is the declaration order.
type graph struct {
	nodes []*node
	edges []*edge
	// defaults holds the skip mode, the upstream policy and the guard policy for nodes that do not set them.
	defaults node
}

// node is one node with its planned outcome. Options and outcomes are written in the notation of notation_test.go.
type node struct {
	id       string
	join     string // "" any k done done1 1fail allfail nofail noskip allskip 1done bnd all
	k        int    // the number of the rule "k"
	skip     string // "" cascade sat strict
	up       string // "" abort skip prop def
	guard    string // "" 0 1 err panic
	guardErr string // "" allow skip fail
	handling string // "" handles observes
	fallback string // "" ok err
	merge    string // "" (last_write_wins) array bad
	tries    int    // the number of attempts that the retry policy allows; 0 means one

	cof     bool
	off     bool
	cleanup bool
	end     bool
	test    bool // a condition with a Go test
	routes  bool // a condition whose label is its step's output, even without a labelled edge
	nomatch bool // NoMatchFail

	ports []port
	sets  []static

	outcome string   // "" ok err skip cancel null panic goexit flaky label; the end node: completed failed
	labels  []string // the labels of the outcome "label"
	coding  int      // the number of the kind of output that contains the labels
	ms      int      // the duration of an attempt in milliseconds
}

type port struct {
	name     string
	required bool
	fallback bool // whether the port has a default
}

type static struct {
	name string
	null bool
}

type edge struct {
	from, to string
	on       byte     // 0 success, '!' failure, '*' always
	causes   []string // the causes of a catch edge
	label    string   // "" for an edge without a label
	data     bool
	key      string
	param    string
}

// rootInputs are the root inputs of every run: one is null and one has a value.
var rootInputs = map[string]any{"r0": nil, "r1": 1}

func (g *graph) node(id string) *node {
	for _, n := range g.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

func (g *graph) in(id string) (in []*edge) {
	for _, e := range g.edges {
		if e.to == id {
			in = append(in, e)
		}
	}
	return in
}

func (g *graph) out(id string) (out []*edge) {
	for _, e := range g.edges {
		if e.from == id {
			out = append(out, e)
		}
	}
	return out
}

// condition reports whether the node's output selects the labels of branches.
func (g *graph) condition(n *node) bool {
	return n.test || n.routes || slices.ContainsFunc(g.out(n.id), func(e *edge) bool { return e.label != "" })
}

// rule returns the node's join rule, with the default filled in.
func (n *node) rule() string {
	switch {
	case n.join != "":
		return n.join
	case n.cleanup || n.end:
		return "done"
	case n.test:
		return "bnd"
	}
	return "all"
}

// observer reports whether the node does not handle failures that reach it.
func (n *node) observer() bool {
	if n.handling != "" {
		return n.handling == "observes"
	}
	return n.observesByDefault()
}

func (n *node) observesByDefault() bool {
	return n.end || n.cleanup || n.rule() == "done" || n.rule() == "allskip"
}

func (g *graph) clone() *graph {
	c := &graph{defaults: g.defaults}
	for _, n := range g.nodes {
		copied := *n
		copied.ports = slices.Clone(n.ports)
		c.nodes = append(c.nodes, &copied)
	}
	for _, e := range g.edges {
		copied := *e
		c.edges = append(c.edges, &copied)
	}
	return c
}

// complete returns the graph with the defaults filled in, and with the implicit edges of the end node.
func (g *graph) complete() *graph {
	full := g.clone()
	for _, n := range full.nodes {
		for _, field := range []struct{ of, by *string }{
			{&n.skip, &g.defaults.skip}, {&n.up, &g.defaults.up}, {&n.guardErr, &g.defaults.guardErr},
		} {
			if *field.of == "" {
				*field.of = *field.by
			}
		}
	}
	for _, z := range g.nodes {
		if !z.end {
			continue
		}
		for _, n := range g.nodes {
			if !n.end && len(g.out(n.id)) == 0 {
				full.edges = append(full.edges, &edge{from: n.id, to: z.id})
			}
		}
	}
	return full
}

// sorted returns the nodes in topological order. The end node is the last.
func (g *graph) sorted() []*node {
	var order []*node
	placed := map[string]bool{}
	for len(order) < len(g.nodes) {
		before := len(order)
		for _, n := range g.nodes {
			if placed[n.id] || n.end && len(order) < len(g.nodes)-1 {
				continue
			}
			if !slices.ContainsFunc(g.in(n.id), func(e *edge) bool { return !placed[e.from] }) {
				order = append(order, n)
				placed[n.id] = true
			}
		}
		if len(order) == before {
			panic("the model was given a cycle")
		}
	}
	return order
}
