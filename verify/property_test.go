package verify

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/seed-c794f7ef/kahn"
)

// checks returns the number of graphs on which a property is tried, unless the flag -rapid.checks or its environment variable sets the number.
func checks() string {
	if long() {
		return "30000"
	}
	return "1000"
}

func TestMain(m *testing.M) {
	flag.Parse()
	given := os.Getenv("RAPID_CHECKS") != ""
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		if err := flag.Set("rapid.checks", checks()); err != nil {
			panic(err)
		}
	}
	if f := flag.Lookup("rapid.seed"); f.Value.String() == f.DefValue && !long() { // the long mode uses a new seed, which a failure prints
		if err := f.Value.Set("1"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// disagreement begins every report of TestProperty. It distinguishes a disagreement from a broken test.
const disagreement = "kahn and the model disagree"

// check runs the graph in one way and compares the whole Result and the events with the model.
func check(t *testing.T, g *graph, w way) error {
	p := predict(g)
	r, err := execute(t, g, p, w)
	if err != nil {
		return err
	}
	problems := r.differences(p, w)
	if len(problems) == 0 {
		problems = checkEvents(p, w, r)
	}
	if len(problems) == 0 {
		return nil
	}
	var events strings.Builder
	for _, e := range r.events {
		fmt.Fprintf(&events, "\n\t%6v %v", e.Time.Sub(r.start), e)
	}
	return fmt.Errorf("%s\n\t%s\nevents:%s", disagreement, strings.Join(problems, "\n\t"), events.String())
}

// TestProperty: for every graph, mode, limit and timing, kahn agrees with the model.
func TestProperty(t *testing.T) {
	var failed *graph
	var how way
	defer func() {
		if failed != nil {
			logSmallest(t, failed, how)
		}
	}()
	rapid.Check(t, func(rt *rapid.T) {
		g := graphs.Draw(rt, "graph")
		requireRoundTrip(rt, g)
		for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
			w := way{mode, rapid.IntRange(0, 3).Draw(rt, "limit"), pick(rt, "rule", kahn.StatusEscaped, kahn.StatusLeaves, kahn.StatusStrict)}
			if err := check(t, g, w); err != nil {
				failed, how = g, w
				rt.Fatalf("%v: %v\n%v", w, g, err)
			}
		}
	})
}

// TestLargeGraphs tries a few large graphs, which are always the same.
func TestLargeGraphs(t *testing.T) {
	for seed := range 6 {
		g := largeGraphs.Example(seed)
		for _, w := range []way{{kahn.Eager, 0, kahn.StatusEscaped}, {kahn.Waves, 2, kahn.StatusStrict}} {
			if err := check(t, g, w); err != nil {
				t.Errorf("%v: %v\n%v", w, g, err)
				logSmallest(t, g, w)
				return
			}
		}
	}
}

// TestKnownGraphs tries every row of the matrix, and every graph that once failed, in every way.
func TestKnownGraphs(t *testing.T) {
	for _, file := range append(matrixFiles(), "testdata/graphs.txt") {
		rows, err := matrix(file)
		require.NoError(t, err)
		for _, r := range rows {
			t.Run(fmt.Sprintf("%s:%d", file, r.line), func(t *testing.T) {
				for durations := range 4 {
					for i, n := range r.g.nodes {
						if durations > 0 { // the first run uses the durations of the row
							n.ms = (i*5 + durations*durations*7) % 9
						}
					}
					everyWay(t, r.g)
				}
			})
		}
	}
}

func everyWay(t *testing.T, g *graph) {
	for mode := range kahn.Waves + 1 {
		for limit := range 4 {
			for rule := range kahn.StatusStrict + 1 {
				w := way{mode, limit, rule}
				if err := check(t, g, w); err != nil {
					t.Fatalf("%v: %v\n%v", w, g, err)
				}
			}
		}
	}
}

func requireRoundTrip(t require.TestingT, g *graph) {
	fields := strings.SplitN(g.String(), "|", 3)
	again, err := parse(fields[0], fields[1], fields[2])
	require.NoError(t, err)
	require.Equal(t, g, again)
}

// logSmallest shrinks a graph that failed, as long as rapid may shrink failures, and logs the result.
func logSmallest(t *testing.T, g *graph, w way) {
	budget := flag.Lookup("rapid.shrinktime").Value.(flag.Getter).Get().(time.Duration)
	if budget == 0 {
		return // for planted bugs, a small graph is not needed
	}
	deadline := time.Now().Add(budget)
	g = reduce(g, func(g *graph) bool {
		if time.Now().After(deadline) {
			return false
		}
		err := check(t, g, w)
		return err != nil && !errors.Is(err, errCompile)
	})
	t.Logf("smallest graph found, %v; keep it in testdata/graphs.txt:\n|%v|||\n%v", w, g, check(t, g, w))
}

// reduce removes the parts of a graph that are not needed for its failure. It works on the graph itself, and thereby removes more than rapid,
// which works on random draws.
func reduce(g *graph, fails func(*graph) bool) *graph {
	for {
		smaller := slices.IndexFunc(simpler(g), fails)
		if smaller < 0 {
			return g
		}
		g = simpler(g)[smaller]
	}
}

// simpler returns copies of the graph that each lack one part, large parts first.
func simpler(g *graph) (all []*graph) {
	for i, n := range g.nodes {
		c := g.clone()
		c.nodes = slices.Delete(c.nodes, i, i+1)
		c.edges = slices.DeleteFunc(c.edges, func(e *edge) bool { return e.from == n.id || e.to == n.id })
		all = append(all, c)
	}
	for i := range g.edges {
		c := g.clone()
		c.edges = slices.Delete(c.edges, i, i+1)
		all = append(all, c)
	}
	if len(g.defaults.options()) > 0 {
		c := g.clone()
		c.defaults = node{}
		all = append(all, c)
	}
	for i, n := range g.nodes {
		plain := node{id: n.id, end: n.end}
		simplify := func(change func(*node)) {
			c := g.clone()
			change(c.nodes[i])
			if !sameNode(c.nodes[i], n) {
				all = append(all, c)
			}
		}
		simplify(func(n *node) { *n = plain })
		simplify(func(n *node) { n.join, n.k = "", 0 })
		simplify(func(n *node) { n.skip = "" })
		simplify(func(n *node) { n.up = "" })
		simplify(func(n *node) { n.guard, n.guardErr = "", "" })
		simplify(func(n *node) { n.guardErr = "" })
		simplify(func(n *node) { n.fallback = "" })
		simplify(func(n *node) { n.merge = "" })
		simplify(func(n *node) { n.tries = 0 })
		simplify(func(n *node) { n.cof = false })
		simplify(func(n *node) { n.off = false })
		simplify(func(n *node) { n.cleanup = false })
		simplify(func(n *node) { n.handling = "" })
		simplify(func(n *node) { n.test, n.routes = false, false })
		simplify(func(n *node) { n.nomatch = false })
		simplify(func(n *node) { n.ports, n.sets = nil, nil })
		simplify(func(n *node) { n.sets = nil })
		simplify(func(n *node) { n.outcome, n.labels, n.coding = "", nil, 0 })
		simplify(func(n *node) { n.coding = 0 })
		simplify(func(n *node) { n.ms = 0 })
		for j := range n.ports {
			simplify(func(n *node) { n.ports = slices.Delete(n.ports, j, j+1) })
		}
	}
	for i, e := range g.edges {
		simplify := func(change func(*edge)) {
			c := g.clone()
			change(c.edges[i])
			if c.edges[i].String() != e.String() {
				all = append(all, c)
			}
		}
		simplify(func(e *edge) { *e = edge{from: e.from, to: e.to} })
		simplify(func(e *edge) { e.param, e.key = "", "" })
		simplify(func(e *edge) { e.key = "" })
		simplify(func(e *edge) { e.causes = nil })
		simplify(func(e *edge) { e.on = 0 })
		simplify(func(e *edge) { e.label = "" })
	}
	return all
}

func sameNode(a, b *node) bool {
	return a.outcome == b.outcome && slices.Equal(a.labels, b.labels) && a.coding == b.coding &&
		slices.Equal(a.options(), b.options())
}
