package trace_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/trace"
)

// gallery returns a graph with a node of every shape and an edge of every style.
func gallery() *kahn.Graph {
	g := &kahn.Graph{Name: "gallery", Groups: []kahn.Group{{Name: "disk", Limit: 1}, {Name: "empty"}}}
	return g.Add(
		kahn.Node{ID: "fetch", Groups: []string{"disk"}},
		kahn.If("ok?", func(kahn.View) (bool, error) { return true, nil }, "fetch"),
		kahn.Node{ID: "store", Label: "Store rows", In: []kahn.Edge{
			{From: "ok?", Label: "true"}, {From: "fetch", Param: "rows", DataOnly: true},
		}},
		kahn.Node{ID: "alert", In: []kahn.Edge{{From: "ok?", Label: "false"}}},
		kahn.Node{ID: "mail", In: []kahn.Edge{{From: "fetch", On: kahn.OnFailure, Causes: []kahn.CauseKind{kahn.CauseTimeout, kahn.CausePanic}}}},
		kahn.Node{ID: "wait", Kind: kahn.KindGate, After: []string{"store"}, Do: func(context.Context, *kahn.Step) (any, error) { return "", nil }},
		kahn.Node{ID: "close", Cleanup: true, After: []string{"alert"}, In: []kahn.Edge{{From: "store", On: kahn.OnAlways}}},
		kahn.Node{ID: "end", Kind: kahn.KindEnd},
	)
}

// The golden pictures were written by hand.
func TestPictures(t *testing.T) {
	plan, err := gallery().Compile()
	require.NoError(t, err)
	golden(t, "testdata/gallery.mmd", trace.Mermaid(plan, nil))
	golden(t, "testdata/gallery.dot", trace.DOT(plan, nil))
	res, _ := play(t, gallery(), lasts(nil, map[string]int{"store": 1}))
	golden(t, "testdata/gallery-run.mmd", trace.Mermaid(res.Plan(), res))
	golden(t, "testdata/gallery-run.dot", trace.DOT(res.Plan(), res))
}

// TestSideEdgesAreDotted: an edge that only delivers data is dotted, both if the graph declares it as data-only and if Compile
// finds that it is a side edge.
func TestSideEdgesAreDotted(t *testing.T) {
	g := new(kahn.Graph)
	for _, n := range gallery().Nodes() {
		g.Add(n)
	}
	g.Name, g.Groups = "gallery", gallery().Groups
	for _, e := range gallery().Edges() {
		e.DataOnly = false
		g.Connect(e)
	}
	plan, err := g.Compile()
	require.NoError(t, err)
	golden(t, "testdata/gallery.mmd", trace.Mermaid(plan, nil))
	golden(t, "testdata/gallery.dot", trace.DOT(plan, nil))
}

// hostile returns ids that are keywords or special characters in one of the notations, or that break a label in two.
func hostile() (ids []string) {
	for c := ' '; c <= '~'; c++ {
		ids = append(ids, string(c), "a"+string(c), string(c)+"a", "a"+string(c)+"b", strings.Repeat(string(c), 4))
	}
	return append(ids,
		"end", "End", "subgraph", "graph", "style a:#fff;", "classDef x fill:#fff;", "click a", "default", "node", "digraph",
		`"]`, `"]; n0 --> n1`, "<b>bold</b>", "<script>alert(1)</script>", "&amp;", "&#35;", "#quot;", "#35;", "`code`", "**bold**",
		"1. one", "- item", "# title", "http://example.com", "www.example.com", "a --> b", "%% comment", "%%{init: {}}%%", "{{a}}", "[/a/]",
		"日本語", "e\u0301", "👩‍👩‍👧", "\u202eabc", "a\nb", "a\tb", "\\n", `\`, `\"`, "\x00", "\x1b[0m", "\xff", "$$x$$", "fa:fa-car", "@{shape: rect}",
	)
}

// shown returns the expected text of a label: unprintable characters appear as escapes, and white space becomes a space.
func shown(id string) string {
	return strings.NewReplacer("\n", " ", "\t", " ", "\x00", `\x00`, "\x1b", `\x1b`, "\xff", `\xff`, "\u200d", `\u200d`,
		"\u202e", `\u202e`).Replace(id)
}

func hostileGraph() *kahn.Graph {
	g := &kahn.Graph{Name: `hostile "graph"`}
	seen := map[string]bool{}
	for _, id := range hostile() {
		if seen[id] {
			continue
		}
		seen[id] = true
		n := kahn.Node{ID: id, Routes: true}
		if ids := g.Nodes(); len(ids) > 0 {
			n.In = []kahn.Edge{{From: ids[len(ids)-1].ID, Label: "x" + strings.TrimSpace(id)}}
		}
		g.Add(n)
	}
	return g
}

// If a picture is parsed by the rules of its notation, every label contains the node's id.
func TestHostileIDs(t *testing.T) {
	g := hostileGraph()
	plan, err := g.Compile()
	require.NoError(t, err)

	label := regexp.MustCompile(`^    n(\d+)\{"((?:[^"#\\<>&;]|#\d+;)*)"\}$`)
	code := regexp.MustCompile(`#(\d+);`)
	lines := strings.Split(trace.Mermaid(plan, nil), "\n")
	for i, n := range g.Nodes() {
		m := label.FindStringSubmatch(lines[i+1])
		require.NotNil(t, m, "%s", lines[i+1])
		text := code.ReplaceAllStringFunc(m[2], func(c string) string {
			r, _ := strconv.Atoi(c[1 : len(c)-1])
			return string(rune(r))
		})
		require.Equal(t, []string{strconv.Itoa(i), shown(n.ID)}, []string{m[1], text})
	}

	label = regexp.MustCompile(`^    n(\d+) \[label="((?:[^"\\]|\\.)*)", shape=diamond\];$`)
	escape := regexp.MustCompile(`\\(.)|&amp;`)
	lines = strings.Split(trace.DOT(plan, nil), "\n")
	require.Equal(t, `digraph "hostile \"graph\"" {`, lines[0])
	for i, n := range g.Nodes() {
		m := label.FindStringSubmatch(lines[i+2])
		require.NotNil(t, m, "%s", lines[i+2])
		text := escape.ReplaceAllStringFunc(m[2], func(c string) string {
			require.Contains(t, []string{`\\`, `\"`, "&amp;"}, c)
			return map[string]string{`\\`: `\`, `\"`: `"`, "&amp;": "&"}[c]
		})
		require.Equal(t, []string{strconv.Itoa(i), shown(n.ID)}, []string{m[1], text})
	}
}

// The length of a label is bounded.
func TestLongIDs(t *testing.T) {
	plan, err := new(kahn.Graph).Add(kahn.Node{ID: strings.Repeat("ä", 10000)}).Compile()
	require.NoError(t, err)
	want := strings.Repeat("ä", 200)
	require.Contains(t, trace.Mermaid(plan, nil), want+"#46;#46;#46;\"")
	require.Contains(t, trace.DOT(plan, nil), fmt.Sprintf(`"%s..."`, want))
}

var picturesFile = flag.String("pictures", "", "write the pictures to this `file`, for testdata/render")

// exported is a picture with its expected content, for a program that renders the picture with Mermaid or Graphviz itself.
type exported struct {
	Name    string            `json:"name"`
	Mermaid string            `json:"mermaid"`
	DOT     string            `json:"dot"`
	Nodes   map[string]string `json:"nodes"`
	Edges   [][3]string       `json:"edges"`  // source, target, text
	Groups  [][]string        `json:"groups"` // the name, then its nodes
}

func TestExportPictures(t *testing.T) {
	hostilePlan, err := hostileGraph().Compile()
	require.NoError(t, err)
	gallery, _ := play(t, gallery(), lasts(nil, map[string]int{"store": 1}))
	pictures := []exported{
		{
			Name: "gallery", Mermaid: trace.Mermaid(gallery.Plan(), gallery), DOT: trace.DOT(gallery.Plan(), gallery),
			Nodes: map[string]string{
				"n0": "fetch\ncompleted", "n1": "ok?\ncompleted", "n2": "store\nStore rows\nfailed: step_error",
				"n3": "alert\nskipped: condition_branch(ok? answered \"true\", not \"false\")", "n4": "mail\nskipped: condition_branch(fetch)",
				"n5": "wait\naborted: upstream_failure of store", "n6": "close\ncompleted", "n7": "end\ncompleted",
			},
			Edges: [][3]string{
				{"n0", "n1", ""}, {"n1", "n2", "true"}, {"n0", "n2", "as rows"}, {"n1", "n3", "false"}, {"n0", "n4", "failure (timeout, panic)"},
				{"n2", "n5", ""}, {"n3", "n6", ""}, {"n2", "n6", "always"}, {"n4", "n7", ""}, {"n5", "n7", ""}, {"n6", "n7", ""},
			},
			Groups: [][]string{{"disk", "n0"}},
		},
		{
			Name: "hostile", Mermaid: trace.Mermaid(hostilePlan, nil), DOT: trace.DOT(hostilePlan, nil),
			Nodes: map[string]string{}, Groups: [][]string{},
		},
	}
	for i, n := range hostileGraph().Nodes() {
		p := &pictures[1]
		p.Nodes[fmt.Sprintf("n%d", i)] = shown(n.ID)
		if i > 0 {
			p.Edges = append(p.Edges, [3]string{fmt.Sprintf("n%d", i-1), fmt.Sprintf("n%d", i), shown("x" + strings.TrimSpace(n.ID))})
		}
	}
	text, err := json.Marshal(pictures)
	require.NoError(t, err)
	file := *picturesFile
	if file == "" {
		file = filepath.Join(t.TempDir(), "pictures.json")
	}
	require.NoError(t, os.WriteFile(file, text, 0o644))
}
