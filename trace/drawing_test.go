package trace_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/trace"
)

// shortcuts returns a chain of four nodes with plain edges for all shorter paths, and one edge of each kind that carries information.
func shortcuts(t *testing.T) *kahn.Plan {
	g := &kahn.Graph{Name: "shortcuts"}
	plan, err := g.Add(
		kahn.Node{ID: "a"},
		kahn.Node{ID: "b", After: []string{"a"}},
		kahn.Node{ID: "c", After: []string{"a", "b"}},
		kahn.Node{ID: "d", After: []string{"a", "b", "c"}},
		kahn.Node{ID: "e", After: []string{"d"}, In: []kahn.Edge{{From: "a", Param: "rows"}, {From: "b", On: kahn.OnAlways}, {From: "c", DataOnly: true}}},
	).Compile()
	require.NoError(t, err)
	return plan
}

// Reduced removes the plain edges that a longer path replaces, and no other edges.
func TestReduced(t *testing.T) {
	t.Parallel()
	plan := shortcuts(t)
	edges := func(text string) (list []string) {
		for _, m := range regexp.MustCompile(`(?m)^    n(\d) (\S+?)(?:\|.*\|)? n(\d)$`).FindAllStringSubmatch(text, -1) {
			list = append(list, m[1]+m[2]+m[3])
		}
		return list
	}
	require.ElementsMatch(t, []string{"0-->1", "0-->2", "1-->2", "0-->3", "1-->3", "2-->3", "3-->4", "0-->4", "1==>4", "2-.->4"}, edges(trace.Mermaid(plan, nil)))
	require.ElementsMatch(t, []string{"0-->1", "1-->2", "2-->3", "3-->4", "0-->4", "1==>4", "2-.->4"}, edges(trace.Drawing{Reduced: true}.Mermaid(plan, nil)))
	require.Equal(t, 7, strings.Count(trace.Drawing{Reduced: true}.DOT(plan, nil), "->"))
	require.Equal(t, 7, strings.Count(trace.Drawing{Reduced: true}.SVG(plan, nil), "marker-end"))
}

// In random graphs, the edges that Reduced keeps connect the same nodes by paths as all edges do, and none of the kept edges is redundant.
func TestReducedIsTheTransitiveReduction(t *testing.T) {
	t.Parallel()
	for seed := range 40 {
		const n = 14
		g := &kahn.Graph{}
		for i := range n {
			node := kahn.Node{ID: strconv.Itoa(i)}
			for j := range i {
				if (i*7+j*13+seed*(i+3)*(j+5))%5 < 2 {
					node.After = append(node.After, strconv.Itoa(j))
				}
			}
			g.Add(node)
		}
		plan, err := g.Compile()
		require.NoError(t, err)
		var whole, reduced [n][n]bool
		for e := range plan.Edges() {
			from, _ := strconv.Atoi(e.From)
			to, _ := strconv.Atoi(e.To)
			whole[from][to] = true
		}
		for _, m := range regexp.MustCompile(`n(\d+) --> n(\d+)`).FindAllStringSubmatch(trace.Drawing{Reduced: true}.Mermaid(plan, nil), -1) {
			from, _ := strconv.Atoi(m[1])
			to, _ := strconv.Atoi(m[2])
			reduced[from][to] = true
		}
		closed := func(edges [n][n]bool) [n][n]bool {
			for k := range n {
				for i := range n {
					for j := range n {
						edges[i][j] = edges[i][j] || edges[i][k] && edges[k][j]
					}
				}
			}
			return edges
		}
		want := closed(whole)
		require.Equal(t, want, closed(reduced), "seed %d", seed)
		for i := range n {
			for j := range n {
				if reduced[i][j] {
					less := reduced
					less[i][j] = false
					require.NotEqual(t, want, closed(less), "seed %d: %d -> %d is needless", seed, i, j)
				}
			}
		}
	}
}

func TestDrawingOptions(t *testing.T) {
	t.Parallel()
	d := trace.Drawing{LeftToRight: true, Errors: true}
	g := &kahn.Graph{Name: "copy"}
	g.Add(kahn.Node{ID: "read"}, kahn.Node{ID: "write", After: []string{"read"}}, kahn.Node{ID: "close", After: []string{"write"}})
	res, _ := play(t, g, lasts(nil, map[string]int{"write": 1}))
	first, _ := res.Node("write")
	require.ErrorContains(t, first.Err, "broken\x1b")
	mermaid, dot, svg := d.Mermaid(res.Plan(), res), d.DOT(res.Plan(), res), d.SVG(res.Plan(), res)
	require.True(t, strings.HasPrefix(mermaid, "flowchart LR\n"))
	require.Contains(t, dot, "    rankdir=LR;\n")
	require.Contains(t, dot, `[label="write\nfailed: step_error\nbroken\\x1b"`)
	require.Contains(t, mermaid, "broken#92;x1b")
	require.Equal(t, 1, strings.Count(svg, "broken\\x1b"), "only the node that failed by itself")
	require.NotContains(t, trace.DOT(res.Plan(), res), "broken")
}

// boxes reads an SVG picture, which must be well-formed XML. It returns the left, top, right and bottom of each box by the first line of its
// label.
func boxes(t *testing.T, svg string) map[string][4]float64 {
	t.Helper()
	found := map[string][4]float64{}
	var last [4]float64
	number := func(e xml.StartElement, name string) float64 {
		for _, a := range e.Attr {
			if a.Name.Local == name {
				v, err := strconv.ParseFloat(a.Value, 64)
				require.NoError(t, err)
				return v
			}
		}
		return 0
	}
	in := xml.NewDecoder(strings.NewReader(svg))
	bold := false
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		switch e := token.(type) {
		case xml.StartElement:
			require.Contains(t, []string{"svg", "title", "defs", "marker", "path", "rect", "polygon", "text", "tspan"}, e.Name.Local)
			switch e.Name.Local {
			case "rect":
				x, y := number(e, "x"), number(e, "y")
				last = [4]float64{x, y, x + number(e, "width"), y + number(e, "height")}
			case "polygon":
				last = [4]float64{1e9, 1e9, -1e9, -1e9}
				for _, point := range strings.Fields(e.Attr[0].Value) {
					var x, y float64
					_, err := fmt.Sscanf(point, "%f,%f", &x, &y)
					require.NoError(t, err)
					last = [4]float64{min(last[0], x), min(last[1], y), max(last[2], x), max(last[3], y)}
				}
			}
			bold = e.Name.Local == "tspan" && len(e.Attr) == 3
		case xml.CharData:
			if bold {
				found[string(e)] = last
				bold = false
			}
		}
	}
}

// Boxes do not overlap, lie within the picture, and come after their predecessors, in both directions.
func TestSVGLayout(t *testing.T) {
	t.Parallel()
	g := gallery()
	for i := range 40 {
		n := kahn.Node{ID: fmt.Sprint("extra", i), After: []string{"fetch"}}
		if i > 3 {
			n.After = append(n.After, fmt.Sprint("extra", i/2))
		}
		g.Add(n)
	}
	plan, err := g.Compile()
	require.NoError(t, err)
	for _, d := range []trace.Drawing{{}, {LeftToRight: true}, {LeftToRight: true, Reduced: true}} {
		svg := d.SVG(plan, nil)
		require.Equal(t, svg, d.SVG(plan, nil))
		at := boxes(t, svg)
		require.Len(t, at, plan.Len())
		var w, h float64
		_, frame, _ := strings.Cut(svg, "viewBox=")
		_, err := fmt.Sscanf(frame, `"0 0 %f %f"`, &w, &h)
		require.NoError(t, err)
		for a, x := range at {
			require.True(t, x[0] >= 0 && x[1] >= 0 && x[2] <= w && x[3] <= h, a)
			for b, y := range at {
				require.True(t, a == b || x[2] <= y[0] || y[2] <= x[0] || x[3] <= y[1] || y[3] <= x[1], "%s and %s overlap", a, b)
			}
		}
		for e := range plan.Edges() {
			if d.LeftToRight {
				require.Less(t, at[e.From][2], at[e.To][0], "%s -> %s", e.From, e.To)
			} else {
				require.Less(t, at[e.From][3], at[e.To][1], "%s -> %s", e.From, e.To)
			}
		}
	}
}

// The SVG picture of any graph is well-formed XML, and contains only the elements that the function SVG uses.
func TestSVGOfHostileGraphs(t *testing.T) {
	t.Parallel()
	plan, err := hostileGraph().Compile()
	require.NoError(t, err)
	require.NotEmpty(t, boxes(t, trace.SVG(plan, nil)))
	empty, err := new(kahn.Graph).Add(kahn.Node{ID: strings.Repeat("<script>", 5_000)}).Compile()
	require.NoError(t, err)
	require.NotContains(t, trace.SVG(empty, nil), "<script")
	boxes(t, trace.SVG(empty, nil))
}

// Large graphs take seconds at most, and space in proportion to their edges: a chain in which every node also follows the first, with and without
// groups, and a graph of many layers. A picture of a very deep graph is possible, too.
func TestSVGOfLargeGraphs(t *testing.T) {
	t.Parallel()
	n := 2_000
	if os.Getenv("KAHN_LONG") != "" {
		n = 10_000
	}
	g := &kahn.Graph{Groups: []kahn.Group{{Name: "a"}, {Name: "b"}}}
	for i := range n {
		node := kahn.Node{ID: fmt.Sprint("n", i), Groups: []string{g.Groups[i%2].Name}}
		if i > 0 {
			node.After = []string{fmt.Sprint("n", i-1)}
		}
		if i > 1 {
			node.After = append(node.After, "n0") // an edge across the whole picture
		}
		g.Add(node)
	}
	plan, err := g.Compile()
	require.NoError(t, err)
	require.Less(t, len(trace.SVG(plan, nil)), 1_000*n)
	require.Less(t, len(trace.Drawing{Reduced: true}.SVG(plan, nil)), 600*n)

	layered := &kahn.Graph{}
	const width = 20
	for i := range n {
		node := kahn.Node{ID: fmt.Sprint("n", i)}
		for k := range 3 {
			if from := i - width + k*7 - i%width; from >= 0 && from < i {
				node.After = append(node.After, fmt.Sprint("n", from))
			}
		}
		layered.Add(node)
	}
	plan, err = layered.Compile()
	require.NoError(t, err)
	require.Len(t, boxes(t, trace.SVG(plan, nil)), n)
}

// DependencyTime is the time that the run would have taken without a limit, even if nodes waited for slots.
func TestDependencyPath(t *testing.T) {
	t.Parallel()
	g := &kahn.Graph{}
	g.Add(kahn.Node{ID: "long"}, kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}}, kahn.Node{ID: "c", After: []string{"a", "b"}}, kahn.Node{ID: "off", Disabled: true, After: []string{"c"}})
	for _, limit := range []int{1, 2, 10} {
		res, events := play(t, g, lasts(map[string]time.Duration{"long": 4000 * ms, "a": 1000 * ms, "b": 2000 * ms, "c": 1500 * ms}, nil), kahn.Limit(limit))
		r := trace.NewReport(res, events)
		var path []string
		for _, s := range r.DependencyPath {
			path = append(path, s.Node)
		}
		require.Equal(t, []string{"a", "b", "c"}, path, "limit %d", limit)
		require.Equal(t, 4500*ms, r.DependencyTime)
	}
}

// Long durations are written in hours.
func TestLongTimes(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		1500 * ms: "1.500000s", 59*time.Second + 999*ms: "59.999000s", time.Minute: "1m00.00s", 61*time.Second + 234*ms: "1m01.23s",
		2*time.Hour + 3*time.Minute + 4*time.Second: "2h03m04s", 100 * time.Hour: "100h00m00s", time.Hour - time.Nanosecond: "1h00m00s",
	} {
		res, events := play(t, new(kahn.Graph).Add(kahn.Node{ID: "n"}), lasts(map[string]time.Duration{"n": d}, nil))
		var text strings.Builder
		require.NoError(t, trace.NewReport(res, events).WriteText(&text))
		require.Contains(t, text.String(), " in "+want+"\n")
	}
}
