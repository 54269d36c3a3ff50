package definition_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
)

// Each problem that Compile reports has the position of the node, edge or field that it names.
func TestGraphProblemsHavePlaces(t *testing.T) {
	t.Parallel()
	_, err := definition.Loader{File: "build.json"}.Load([]byte(`{
  "version": 1,
  "groups": [{"name": "disk", "limit": 2}],
  "nodes": [
    {"id": "a", "kind": "text", "after": ["c"], "groups": ["disk", "dsik"]},
    {"id": "b", "kind": "text", "needs": "a", "branches": {"yes": "d", "no": {"to": "c"}}},
    {"id": "c", "kind": "text", "next": ["d"], "after": [{"from": "b", "param": "x"}]},
    {"id": "d", "kind": "gate", "timeout": "3s"},
    {"id": "e", "kind": "text", "join": "at_least(2)"},
    {"id": "f", "kind": "part", "graph": {"nodes": [
      {"id": "x", "merge": "concta"},
      {"id": "y", "after": "y"}
    ]}}
  ]
}`))
	var all *definition.Error
	require.ErrorAs(t, err, &all)
	var got []string
	for _, p := range all.Problems {
		got = append(got, fmt.Sprintf("%s:%d:%d %s %s: %s", p.File, p.Position.Line, p.Position.Column, p.Path, p.Node, p.Message))
	}
	require.Equal(t, []string{
		`build.json:5:68 $.nodes[0].groups[1] a: bad value: group "dsik" is not declared; did you mean "disk"? (there is "disk")`,
		`build.json:6:67 $.nodes[1].branches.yes b: edge "b" -> "d": bad edge: the edge has the label "yes", but the output of "b" is not a label (set routes, or kind "condition")`,
		`build.json:6:78 $.nodes[1].branches.no b: edge "b" -> "c": bad edge: the edge has the label "no", but the output of "b" is not a label (set routes, or kind "condition")`,
		`build.json:6:78 $.nodes[1].branches.no b: cycle: "c" -> "a" -> "b" -> "c"`,
		`build.json:8:12 $.nodes[3] d: bad value: a gate has no attempts: timeout, overall_timeout, retry, fallback and cleanup are not for it; see gate.timeout`,
		`build.json:9:41 $.nodes[4].join e: bad join: at_least(2), but the node has 0 control edges`,
		`build.json:11:28 $.nodes[5].graph.nodes[0].merge f/x: bad value: no merge strategy "concta"; did you mean "concat"? (there is "last_write_wins", "concat", "array", "json_object")`,
		`build.json:12:28 $.nodes[5].graph.nodes[1].after f/y: cycle: "y" -> "y"`,
	}, got)
	require.Equal(t, "concat", all.Problems[6].Suggestion)
	require.ErrorIs(t, all.Problems[5], definition.ErrGraph)
	require.ErrorIs(t, all.Problems[5], kahn.ErrBadJoin)
	var whole *kahn.GraphError
	require.ErrorAs(t, err, &whole)
	require.True(t, strings.HasPrefix(all.Problems[4].Error(), "definition: build.json:8:12: $.nodes[3]: node \"d\": bad value"), all.Problems[4].Error())
}

// The edge that Locate finds for a kahn.Problem is the edge with the Problem's number.
func TestEdgesHaveTheirPlaces(t *testing.T) {
	t.Parallel()
	doc, err := definition.Loader{}.Load([]byte(`{"version": 1, "nodes": [
{"id": "a", "routes": true, "branches": {"z": ["b", {"to": "c"}], "a": "d"}, "next": "c"},
{"id": "b", "after": {"from": "a", "param": "p"}},
{"id": "c", "needs": ["b"], "graph": {"nodes": [{"id": "x"}, {"id": "y", "after": ["x"]}], "edges": [{"from": "x", "to": "y", "param": "q"}]}},
{"id": "d"}],
"edges": [{"from": "c", "to": "d"}, {"from": "b", "to": "d"}]}`))
	require.NoError(t, err)
	check := func(graph string, g *kahn.Graph, paths ...string) {
		require.Len(t, paths, len(g.Edges()))
		for i, e := range g.Edges() {
			var p *definition.Problem
			require.ErrorAs(t, doc.Locate(&kahn.Problem{Graph: graph, Edge: i + 1, Err: errors.New("bad")}), &p)
			require.Equal(t, fmt.Sprintf("edge %q -> %q: bad", e.From, e.To), p.Message)
			require.Equal(t, paths[i], p.Path)
		}
	}
	check("", doc.Graph, "$.nodes[0].next", "$.nodes[0].branches.a", "$.nodes[0].branches.z[0]", "$.nodes[0].branches.z[1]", "$.nodes[1].after",
		"$.nodes[2].needs[0]", "$.edges[0]", "$.edges[1]")
	check("c", doc.Graph.Nodes()[2].Sub, "$.nodes[2].graph.nodes[1].after[0]", "$.nodes[2].graph.edges[0]")
}

// Locate also finds the places of problems that the host reports. If the document lacks such a place, Locate uses the innermost value around
// the place.
func TestLocate(t *testing.T) {
	t.Parallel()
	doc, err := definition.Loader{File: "f.json"}.Load([]byte(`{"version": 1, "nodes": [
  {"id": "a", "config": {"url": "x", "Headers": ["y"]}}
]}`))
	require.NoError(t, err)
	require.NoError(t, doc.Locate(nil))
	for _, c := range []struct {
		err  error
		want string
	}{
		{&kahn.Problem{Node: "a", Field: "Config.url", Err: errors.New("bad")}, `f.json:2:33: $.nodes[0].config.url: node "a": bad`},
		{&kahn.Problem{Node: "a", Field: "Config.Headers[0]", Err: errors.New("bad")}, `f.json:2:50: $.nodes[0].config.Headers[0]: node "a": bad`},
		{&kahn.Problem{Node: "a", Field: "Config.Headers[7]", Err: errors.New("bad")}, `f.json:2:49: $.nodes[0].config.Headers: node "a": bad`},
		{&kahn.Problem{Node: "a", Field: "Do", Err: errors.New("bad")}, `f.json:2:10: $.nodes[0]: node "a": bad`},
		{&kahn.Problem{Node: "added", Field: "Join", Err: errors.New("bad")}, `f.json:1:1: $: node "added": bad`},
		{&kahn.Problem{Edge: 7, Err: errors.New("bad")}, `f.json:1:1: $: bad`},
		{&kahn.Problem{}, `f.json:1:1: $: invalid`},
		{errors.New("bad"), `f.json:1:1: $: bad`},
	} {
		require.EqualError(t, doc.Locate(c.err), "definition: "+c.want)
	}
	check := func(err error, want string) { require.EqualError(t, doc.Locate(err), want) }
	check(kahn.Mux{}.Check(doc.Graph), `definition: f.json:2:10: $.nodes[0]: node "a": unknown kind: "" (there are none)`)
	check(&kahn.GraphError{Problems: []error{
		&kahn.Problem{Node: "a", Field: "Config.Headers", Err: errors.New("second")}, &kahn.Problem{Node: "a", Err: errors.New("first")},
	}, More: 3}, "definition: 5 problems\n\tf.json:2:10: $.nodes[0]: node \"a\": first\n\tf.json:2:49: $.nodes[0].config.Headers: node \"a\": second\n\tand 3 more")
}
