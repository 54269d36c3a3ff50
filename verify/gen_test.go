package verify

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"
)

// This file draws random graphs with package rapid. If a graph fails a test, rapid tries simpler draws: fewer nodes, fewer edges, no options,
// the outcome ok.

// chance returns true in about n of sixteen calls.
func chance(t *rapid.T, n int, what string) bool {
	return rapid.IntRange(0, 15).Draw(t, what) >= 16-n
}

func pick[V any](t *rapid.T, what string, of ...V) V { return rapid.SampledFrom(of).Draw(t, what) }

var (
	edgeLabels    = []string{"a", "b", "true", "false", "yes", "no", "TRUE", "default"}
	outcomeLabels = [][]string{{"a"}, {"b"}, {"true"}, {"false"}, {"yes"}, {"TRUE"}, {"No"}, {"zzz"}, {"a", "b"}, {"true", "zzz"}}
	catchCauses   = [][]string{
		{"step_error"}, {"panic", "goexit"}, {"condition_error"}, {"no_branch_match", "merge_error"},
		// The two causes occur together, since it may be unknown which of them applies when the edge resolves.
		{"upstream_failure", "upstream_cancelled"},
		{"step_error", "condition_error", "upstream_failure", "upstream_cancelled"},
	}
	earlyRules = []string{"any", "k", "1fail", "1done"}
)

var (
	graphs = rapid.Custom(func(t *rapid.T) *graph {
		n := rapid.IntRange(1, 14).Draw(t, "nodes")
		if chance(t, 1, "large") {
			n = rapid.IntRange(15, 50).Draw(t, "nodes")
		}
		return drawGraph(t, n)
	})
	largeGraphs = rapid.Custom(func(t *rapid.T) *graph { return drawGraph(t, rapid.IntRange(150, 250).Draw(t, "nodes")) })
)

// GoString renders the graph for failure reports of package rapid.
func (g *graph) GoString() string { return g.String() }

func drawGraph(t *rapid.T, n int) *graph {
	g := &graph{}
	if chance(t, 3, "defaults") {
		g.defaults.skip = pick(t, "skip mode", "", "sat", "strict", "cascade")
		g.defaults.up = pick(t, "policy", "", "skip", "prop", "def", "abort")
		g.defaults.guardErr = pick(t, "guard errors", "", "skip", "fail", "allow")
	}
	conditions := map[string]bool{}
	for i := range n {
		drawNode(t, g, nodeName(i), conditions)
	}
	if chance(t, 4, "end") {
		z := &node{id: "Z", end: true, ms: rapid.IntRange(0, 3).Draw(t, "ms")}
		if chance(t, 8, "unusual end") {
			z.outcome = pick(t, "outcome", "err", "completed", "failed", "panic", "goexit", "null", "skip", "cancel")
		}
		// If a graph has an error boundary without successors, its end node gets no Handling: the semantics do not define whether the boundary
		// shields the edges into the end node.
		if chance(t, 2, "handling") && !slices.ContainsFunc(g.nodes, func(n *node) bool { return n.rule() == "bnd" }) {
			z.handling = pick(t, "handling", "handles", "handles", "observes")
		}
		drawEdges(t, g, z, conditions)
		for _, m := range g.nodes {
			if conditions[m.id] && chance(t, 4, "ends the run") {
				labels := edgeLabels
				if len(m.labels) > 0 && slices.ContainsFunc(g.out(m.id), func(e *edge) bool { return e.label == "default" }) {
					labels = m.labels
				}
				g.connect(&edge{from: m.id, to: z.id, label: pick(t, "label", labels...)})
			}
		}
		g.nodes = append(g.nodes, z)
	}
	for _, node := range g.nodes {
		node.routes = conditions[node.id] && !node.test && !g.condition(node)
		labelled := slices.ContainsFunc(g.out(node.id), func(e *edge) bool { return e.label != "" })
		node.nomatch = node.nomatch && labelled
		drawInputs(t, g, node)
	}
	if chance(t, 5, "shuffle") {
		g.nodes = rapid.Permutation(g.nodes).Draw(t, "declaration order")
		g.edges = rapid.Permutation(g.edges).Draw(t, "edge order")
	}
	return g
}

func nodeName(i int) string {
	if i < 25 {
		return string(rune('A' + i))
	}
	return fmt.Sprint("N", i)
}

func drawNode(t *rapid.T, g *graph, id string, conditions map[string]bool) {
	n := &node{id: id, ms: rapid.IntRange(0, 9).Draw(t, "ms")}
	kind := rapid.IntRange(0, 15).Draw(t, "kind")
	n.test = kind >= 14
	condition := kind >= 10
	conditions[id] = condition
	if condition && !n.test && chance(t, 5, "boundary") {
		n.join = "bnd"
	} else if chance(t, 8, "rule") {
		n.join = pick(t, "join", "any", "k", "done", "done1", "1fail", "allfail", "nofail", "noskip", "allskip", "1done", "bnd")
	}
	if chance(t, 5, "skip mode") {
		n.skip = pick(t, "skip mode", "sat", "strict", "cascade")
	}
	if chance(t, 6, "policy") {
		n.up = pick(t, "policy", "skip", "prop", "def", "abort")
	}
	if chance(t, 3, "guard") {
		n.guard = pick(t, "guard", "0", "1", "err", "panic")
		if n.guard != "0" && n.guard != "1" {
			n.guardErr = pick(t, "guard errors", "", "skip", "fail", "allow")
		}
	}
	n.cof = chance(t, 2, "cof")
	n.off = chance(t, 1, "off")
	if chance(t, 2, "handling") || (n.join == "done" || n.join == "allskip") && chance(t, 3, "handling") {
		n.handling = pick(t, "handling", "handles", "observes")
	}
	if n.join == "" && chance(t, 1, "cleanup") {
		n.cleanup = true
	}
	switch {
	case condition:
		n.nomatch = chance(t, 5, "no match")
		if chance(t, 13, "unusual outcome") {
			n.outcome = pick(t, "outcome", "label", "label", "label", "err", "label", "label", "label", "null", "panic", "skip", "cancel")
		}
		if n.outcome == "label" {
			n.labels = pick(t, "labels", outcomeLabels...)
			n.coding = rapid.IntRange(0, 7).Draw(t, "coding")
		}
	case chance(t, 7, "unusual outcome"):
		n.outcome = pick(t, "outcome", "err", "err", "skip", "cancel", "null", "panic", "goexit", "flaky")
		switch {
		case n.outcome == "flaky":
			n.tries = 2
		case chance(t, 2, "retry"):
			n.tries = rapid.IntRange(2, 3).Draw(t, "tries")
		}
		if chance(t, 2, "fallback") {
			switch n.outcome {
			case "err":
				n.fallback = pick(t, "fallback", "ok", "err")
			case "panic", "skip", "cancel":
				n.fallback = "ok"
			}
		}
	}
	if n.outcome == "cancel" && !n.test {
		n.coding = rapid.IntRange(externalCancel, keptCancel).Draw(t, "cancel")
	}
	drawEdges(t, g, n, conditions)
	control := 0
	for _, e := range g.in(id) {
		if !e.data {
			control++
		}
	}
	if n.join == "k" {
		n.join = ""
		if control > 0 {
			n.join, n.k = "k", rapid.IntRange(1, control).Draw(t, "k")
		}
	}
	g.nodes = append(g.nodes, n)
}

// drawEdges draws edges from the nodes that exist already.
func drawEdges(t *rapid.T, g *graph, n *node, conditions map[string]bool) {
	if len(g.nodes) == 0 {
		return
	}
	most := 3
	if chance(t, 2, "wide") {
		most = 7
	}
	for range rapid.IntRange(0, most).Draw(t, "in-edges") {
		// Near predecessors result in long chains, and far predecessors join early nodes.
		back := rapid.IntRange(0, len(g.nodes)-1).Draw(t, "back")
		e := &edge{from: g.nodes[len(g.nodes)-1-back].id, to: n.id}
		kind := rapid.IntRange(0, 15).Draw(t, "edge kind")
		switch {
		case kind >= 14:
			e.on = '!'
			if chance(t, 4, "filter") {
				e.causes = pick(t, "causes", catchCauses...)
			}
		case kind >= 12:
			e.on = '*'
		case kind >= 11:
			e.data = true
		}
		if conditions[e.from] && !e.data && e.on == 0 && chance(t, 12, "labelled") {
			e.label = pick(t, "label", edgeLabels...)
		}
		g.connect(e)
	}
	if chance(t, 5, "branch") {
		drawBranch(t, g, n, conditions)
	}
}

// drawBranch puts the node on a branch. It adds plain edges from the node that routes, from nodes before the routing node and from nodes after
// it.
func drawBranch(t *rapid.T, g *graph, n *node, conditions map[string]bool) {
	from := rapid.SampledFrom(g.nodes).Draw(t, "router").id
	switch {
	case !conditions[from] || chance(t, 3, "caught"):
		g.connect(&edge{from: from, to: n.id, on: '!'})
	default:
		g.connect(&edge{from: from, to: n.id, label: pick(t, "label", edgeLabels...)})
	}
	p := &prediction{g: g}
	p.findAncestors()
	var around []string
	for _, m := range g.nodes {
		if m.id == from || p.ancestors[from][m.id] || p.ancestors[m.id][from] {
			around = append(around, m.id)
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "beside") {
		g.connect(&edge{from: rapid.SampledFrom(around).Draw(t, "source"), to: n.id})
	}
	if chance(t, 5, "defaults") && !n.end { // a node on a branch that was not taken gets no defaults, unless an always edge or another rule requires them
		n.up = "def"
		if chance(t, 6, "always") {
			g.connect(&edge{from: rapid.SampledFrom(g.nodes).Draw(t, "source").id, to: n.id, on: '*'})
		}
	}
}

// connect adds the edge unless the graph has an equal edge.
func (g *graph) connect(e *edge) {
	if !slices.ContainsFunc(g.edges, func(o *edge) bool { return sameEdge(e, o) }) {
		g.edges = append(g.edges, e)
	}
}

func sameEdge(a, b *edge) bool {
	return a.from == b.from && a.to == b.to && a.on == b.on && a.label == b.label && a.param == b.param && a.key == b.key
}

// drawInputs declares ports and draws which edges feed them.
func drawInputs(t *rapid.T, g *graph, n *node) {
	if n.end || !chance(t, 4, "inputs") {
		return
	}
	names := []string{"p", "q", "r0", "r1"}
	for _, e := range g.in(n.id) {
		if chance(t, 9, "fed") {
			e.param = pick(t, "param", "p", "p", "q", "x", "r0", "r1")
			if chance(t, 2, "key") {
				e.key = pick(t, "key", "output", "k")
			}
		}
	}
	for _, name := range names[:rapid.IntRange(1, 4).Draw(t, "ports")] {
		p := port{name: name, required: chance(t, 12, "required"), fallback: chance(t, 3, "default")}
		if chance(t, 3, "static") {
			n.sets = append(n.sets, static{name, chance(t, 6, "null")})
		}
		if unset := len(n.sets) == 0 || n.sets[len(n.sets)-1] != (static{name, false}); unset && name[0] != 'r' && len((&prediction{g: g}).group(n, name)) == 0 {
			p.fallback = true // a port that neither an edge nor a static parameter feeds gets a default
		}
		n.ports = append(n.ports, p)
	}
	if chance(t, 8, "merge") {
		n.merge = pick(t, "merge", "array", "bad")
	}
	if n.merge != "bad" || !slices.Contains(earlyRules, n.rule()) {
		return
	}
	// A node with an early rule gets the inputs that exist when the rule decides. Only a required port is certain to have values to merge, since
	// the rule waits for its edges.
	for _, e := range g.in(n.id) {
		required := slices.ContainsFunc(n.ports, func(p port) bool { return p.name == e.param && p.required })
		if e.param != "" && !required {
			e.param, e.key = "", ""
		}
	}
}
