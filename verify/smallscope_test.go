package verify

import (
	"slices"
	"strings"
)

// This file enumerates all graphs of three nodes A, B and C, whose edges lead from earlier to later nodes. Most bugs in decisions show in such
// small graphs, and with so few nodes all options of nodes and edges can be tried. If several variants have the same effect, only one of them is
// tried. Variants have the same effect if they differ only in:
//
//   - the names of nodes and labels: A and B change places if there is no edge between them, the first label is a;
//   - rule, skip mode and policy of a node without control edges, or of a disabled node (except whether the rule is an error boundary,
//     which shields edges);
//   - the policy under a rule that is never blocked, or if no edge can fail; "strict" under other rules than AllSucceeded;
//   - the outcome of a node that never starts; ContinueOnFail of a node that started and did not fail.

// smallArrows lists the kinds of edges between two nodes, "" for no edge. smallPairs lists pairs of edges between two nodes.
var (
	smallArrows = []string{"", ">", "-!>", "-*>", "~>", "-[a]>", "-[b]>", "-[default]>"}
	smallPairs  = []string{"> -!>", "> -*>", "> -[a]>", "-!> -*>", "-!> -[a]>", "-*> -[a]>", "-[a]> -[b]>", "-[a]> -[default]>", "> -[default]>"}
)

// smallGraphs returns the edges of all graphs with these arrows. If parallel is true, it returns only graphs with two edges between the same
// nodes.
func smallGraphs(parallel bool) (all []*graph) {
	arrows := smallArrows
	if parallel {
		arrows = slices.Concat(smallArrows, smallPairs)
	}
	for ab, first := range arrows {
		for ac, second := range arrows {
			for bc, third := range arrows {
				pairs := strings.Contains(first+second+third, " ")
				if pairs != parallel || ab == 0 && ac > bc || !namedInOrder(first+second) || !namedInOrder(third) {
					continue
				}
				words := []string{"A B C"}
				for _, pair := range []struct{ from, arrows, to string }{{"A", first, "B"}, {"A", second, "C"}, {"B", third, "C"}} {
					for _, arrow := range strings.Fields(pair.arrows) {
						words = append(words, pair.from+arrow+pair.to)
					}
				}
				g, err := parse(strings.Join(words, " "), "", "")
				if err != nil {
					panic(err)
				}
				all = append(all, g)
			}
		}
	}
	return all
}

// namedInOrder reports whether the label b does not occur, or comes after the label a.
func namedInOrder(arrows string) bool {
	a, b := strings.Index(arrows, "[a]"), strings.Index(arrows, "[b]")
	return b < 0 || a >= 0 && a < b
}

// smallNode holds the options of one node.
type smallNode struct {
	join     string
	k        int
	skip, up string
	cof, off bool
}

func (o smallNode) set(n *node) {
	n.join, n.k, n.skip, n.up, n.cof, n.off = o.join, o.k, o.skip, o.up, o.cof, o.off
}

// smallNodes returns all options of a node that can make a difference. If few is true, it returns only rules, modes and policies that treat plain
// edges next to branches specially.
func smallNodes(g *graph, id string, few bool) (all []smallNode) {
	control, fails := 0, false
	for _, e := range g.in(id) {
		if !e.data {
			control++
			fails = fails || e.on != '*'
		}
	}
	shields := len(g.in(id)) > 0 && len(g.out(id)) > 0
	switch {
	case control > 0:
		all = smallJoins(control, fails, few)
	case shields:
		all = []smallNode{{}, {join: "bnd"}}
	default:
		all = []smallNode{{}}
	}
	for _, o := range slices.Clone(all) {
		if o.cof = true; !few {
			all = append(all, o)
		}
	}
	all = append(all, smallNode{off: true})
	if shields {
		all = append(all, smallNode{off: true, join: "bnd"})
	}
	return all
}

func smallJoins(control int, fails, few bool) (all []smallNode) {
	rules := []smallNode{{}}
	for _, word := range joinWords {
		rules = append(rules, smallNode{join: word})
	}
	for k := range control {
		rules = append(rules, smallNode{join: "k", k: k + 1})
	}
	for _, o := range rules {
		blocks := fails && slices.Contains([]string{"", "any", "k", "done1", "nofail"}, o.join)
		if few && !slices.Contains([]string{"", "any", "k", "nofail", "bnd"}, o.join) || few && o.join == "k" && o.k == 1 {
			continue
		}
		for _, skip := range []string{"", "sat", "strict"} {
			for _, up := range []string{"", "skip", "prop", "def"} {
				if skip == "strict" && (o.join != "" || few) || up != "" && !blocks || few && (up == "skip" || up == "prop") {
					continue
				}
				o.skip, o.up = skip, up
				all = append(all, o)
			}
		}
	}
	return all
}

// smallOutcome is a possible end of a node that starts.
type smallOutcome struct {
	outcome string
	labels  []string
}

func (o smallOutcome) set(n *node) { n.outcome, n.labels = o.outcome, o.labels }

// smallOutcomes returns all outcomes of the node that can make a difference.
func smallOutcomes(g *graph, n *node) []smallOutcome {
	broken := smallOutcome{outcome: "err"}
	if n.cof {
		return []smallOutcome{broken}
	}
	all := []smallOutcome{{}, broken, {outcome: "skip"}, {outcome: "cancel"}}
	var labels []string
	for _, e := range g.out(n.id) {
		if e.label != "" && e.label != "default" && !slices.Contains(labels, e.label) {
			labels = append(labels, e.label)
			all = append(all, smallOutcome{"label", []string{e.label}})
		}
	}
	if len(labels) > 1 {
		all = append(all, smallOutcome{"label", labels})
	}
	return all
}

// smallCase returns a graph with all its options and without outcomes.
func smallCase(edges *graph, options [3]smallNode, backwards bool) *graph {
	g := edges.clone()
	for i, n := range g.nodes {
		options[i].set(n)
	}
	if backwards {
		slices.Reverse(g.nodes)
		slices.Reverse(g.edges)
	}
	return g
}
