package definition_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
)

// decode reads a valid document.
func decode(t *testing.T, text string) *kahn.Graph {
	t.Helper()
	g, err := definition.Decode([]byte(text), definition.Limits{})
	require.NoError(t, err)
	return g
}

// encode writes a graph that a document can express.
func encode(t *testing.T, g *kahn.Graph) string {
	t.Helper()
	text, err := definition.Encode(g)
	require.NoError(t, err)
	return string(text)
}

// The golden files are byte for byte what Encode writes.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		root, err := definition.Parse(text, definition.Limits{})
		require.NoError(t, err)
		doc, err := definition.NewDocument(root, definition.Limits{})
		require.NoError(t, err)
		got, err := doc.Encode()
		require.NoError(t, err)
		require.Equal(t, string(text), string(got), file)
	}
}

// All spellings of the same edges give the same graph: edges are in the order of the document, and branches in the order of their labels.
func TestSpellingsOfEdges(t *testing.T) {
	edges := func(nodes, outside string) []kahn.Edge {
		return decode(t, `{"version": 1, "nodes": [`+nodes+`], "edges": [`+outside+`]}`).Edges()
	}
	ab, ac, bc := kahn.Edge{From: "a", To: "b"}, kahn.Edge{From: "a", To: "c"}, kahn.Edge{From: "b", To: "c", Param: "p"}
	for name, row := range map[string]struct {
		nodes, outside string
		want           []kahn.Edge
	}{
		"after": {`{"id": "a"}, {"id": "b", "after": ["a"]}, {"id": "c", "after": ["a", {"from": "b", "param": "p"}]}`, ``, []kahn.Edge{ab, ac, bc}},
		"needs": {`{"id": "a"}, {"id": "b", "needs": "a"}, {"id": "c", "needs": ["a", {"from": "b", "param": "p"}]}`, ``, []kahn.Edge{ab, ac, bc}},
		"next":  {`{"id": "a", "next": ["b", "c"]}, {"id": "b", "next": {"to": "c", "param": "p"}}, {"id": "c"}`, ``, []kahn.Edge{ab, ac, bc}},
		"edges": {`{"id": "a"}, {"id": "b"}, {"id": "c"}`, `{"from": "a", "to": "b"}, {"from": "a", "to": "c"}, {"from": "b", "to": "c", "param": "p"}`, []kahn.Edge{ab, ac, bc}},
		"mixed": {`{"id": "a", "next": "b"}, {"id": "b"}, {"id": "c", "after": "a"}`, `{"from": "b", "to": "c", "param": "p"}`, []kahn.Edge{ab, ac, bc}},
		"by node": {`{"id": "c", "after": "b"}, {"id": "a", "next": ["c", "b"]}, {"id": "b"}`, ``,
			[]kahn.Edge{{From: "b", To: "c"}, ac, ab}},
		"in a node": {`{"next": ["y"], "branches": {"no": ["x", {"to": "y", "key": "k"}], "default": "y"}, "after": "s", "id": "a"}, {"id": "s"}, {"id": "x"}, {"id": "y"}`, ``,
			[]kahn.Edge{{From: "s", To: "a"}, {From: "a", To: "y"}, {From: "a", To: "y", Label: "default"},
				{From: "a", To: "x", Label: "no"}, {From: "a", To: "y", Label: "no", Key: "k"}}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, row.want, edges(row.nodes, row.outside)) })
	}
}

// A document that lists successors compiles to the same plan as a document that lists predecessors.
func TestSpellingsCompileToTheSamePlan(t *testing.T) {
	hash := func(nodes string) string {
		g, err := definition.Load([]byte(`{"version": 1, "name": "x", "nodes": [`+nodes+`]}`), definition.Limits{}, nil)
		require.NoError(t, err)
		plan, err := g.Compile()
		require.NoError(t, err)
		return plan.Hash()
	}
	steps := hash(`{"id": "ask", "kind": "condition", "next": "log", "branches": {"yes": ["do", "tell"], "default": "tell"}},
		{"id": "log"}, {"id": "do", "next": "tell"}, {"id": "tell"}`)
	needs := hash(`{"id": "ask", "kind": "condition"}, {"id": "log", "needs": ["ask"]}, {"id": "do", "needs": [{"from": "ask", "label": "yes"}]},
		{"id": "tell", "needs": [{"from": "ask", "label": "default"}, {"from": "ask", "label": "yes"}, "do"]}`)
	other := hash(`{"id": "ask", "kind": "condition"}, {"id": "log", "needs": ["ask"]}, {"id": "do", "needs": [{"from": "ask", "label": "yes"}]},
		{"id": "tell", "needs": ["do", {"from": "ask", "label": "default"}, {"from": "ask", "label": "yes"}]}`)
	require.Equal(t, needs, steps)
	require.NotEqual(t, other, steps, "the order of fan-in is a part of the plan")
}

// A document may write a root input as a name or as an object.
func TestInputs(t *testing.T) {
	g := decode(t, `{"version": 1, "inputs": ["a", {"name": "b"}, {"optional": true, "name": "c"}, {"name": "d", "default": [1, null]}]}`)
	require.Equal(t, []kahn.Input{{Name: "a"}, {Name: "b"}, {Name: "c", Optional: true}, {Name: "d", Default: []any{int64(1), nil}}}, g.Inputs)
	require.Equal(t, g.Inputs, decode(t, encode(t, g)).Inputs)
	require.Equal(t, "{\"version\": 1, \"inputs\": [\"a\"]}\n", encode(t, &kahn.Graph{Inputs: []kahn.Input{{Name: "a"}}}))
	for text, want := range map[string]string{
		`[1]`:                              `expected the name of an input or an object, got 1`,
		`[""]`:                             `$.inputs[0]`,
		`[{"optional": true}]`:             `the field "name" is missing`,
		`[{"name": "a", "defualt": 1}]`:    `unknown field "defualt"; did you mean "default"?`,
		`[{"name": "a", "default": null}]`: `null is the same as nothing here`,
		`{"a": true}`:                      `expected a list`,
	} {
		_, err := definition.Decode([]byte(`{"version": 1, "inputs": `+text+`}`), definition.Limits{})
		require.ErrorContains(t, err, want, text)
	}
	_, err := definition.Load([]byte(`{"version": 1, "inputs": ["rows", "rows"]}`), definition.Limits{}, nil)
	require.ErrorIs(t, err, kahn.ErrBadValue)
}

// The order of an object's keys does not matter, since a tool may sort them.
func TestOrderOfKeys(t *testing.T) {
	one := decode(t, `{"version": 1, "name": "x", "nodes": [{"id": "a", "routes": true, "branches": {"z": "b", "a": "b"}}, {"id": "b"}]}`)
	two := decode(t, `{"nodes": [{"branches": {"a": "b", "z": "b"}, "routes": true, "id": "a"}, {"id": "b"}], "name": "x", "version": 1}`)
	require.Equal(t, one.Edges(), two.Edges())
	require.Equal(t, encode(t, one), encode(t, two))
}

// Encode keeps the order of edges of a graph that was built with Add and Connect, in any order.
func TestOrderOfEdgesSurvives(t *testing.T) {
	var g kahn.Graph
	g.Connect(kahn.Edge{From: "b", To: "c"})
	g.Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}}, kahn.Node{ID: "c", After: []string{"a"}})
	g.Connect(kahn.Edge{From: "a", To: "c", Param: "x"}, kahn.Edge{From: "a", To: "b", Param: "y"}, kahn.Edge{From: "a", To: "c", Param: "z"})
	again := decode(t, encode(t, &g))
	require.Equal(t, g.Edges(), again.Edges())
	require.Equal(t, encode(t, &g), encode(t, again))
}

// Encode keeps the order of nodes and edges, whatever order they were declared in.
func TestAnyOrderOfEdgesSurvives(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n := 1 + random.IntN(6)
		id := func() string { return string(rune('a' + random.IntN(n))) }
		var g kahn.Graph
		for _, i := range random.Perm(n) {
			node := kahn.Node{ID: string(rune('a' + i)), Routes: true}
			for range random.IntN(3) {
				node.In = append(node.In, kahn.Edge{From: id(), Label: "l"[:random.IntN(2)], Param: "p"[:random.IntN(2)]})
			}
			if random.IntN(3) == 0 {
				g.Connect(kahn.Edge{From: id(), To: id()})
			}
			g.Add(node)
		}
		text := encode(t, &g)
		again := decode(t, text)
		require.Equal(t, g.Nodes(), again.Nodes())
		require.Equal(t, g.Edges(), again.Edges(), text)
		require.Equal(t, text, encode(t, again))
	}
}

// A decoded graph runs like a graph that was built in Go.
func TestLoadAndExecute(t *testing.T) {
	text := `{"version": 1, "nodes": [{"id": "a", "kind": "text"}, {"id": "b", "kind": "text"},
		{"id": "c", "kind": "join", "merge": "concat", "after": [{"from": "b", "param": "p"}, {"from": "a", "param": "p"}]}]}`
	g, err := definition.Load([]byte(text), definition.Limits{}, nil)
	require.NoError(t, err)
	res, err := kahn.Execute(t.Context(), g, step)
	require.NoError(t, err)
	require.Equal(t, "b\n\na", res.Output())
}

// Load compiles the graph after prepare has set the fields that are not data.
func TestLoad(t *testing.T) {
	text := []byte(`{"version": 1, "nodes": [{"id": "a", "merge": "mine"}]}`)
	_, err := definition.Load(text, definition.Limits{}, nil)
	require.ErrorIs(t, err, kahn.ErrBadValue)
	g, err := definition.Load(text, definition.Limits{}, func(g *kahn.Graph) {
		g.RegisterMerge("mine", func([]kahn.Contribution) (any, error) { return nil, nil })
	})
	require.NoError(t, err)
	require.Len(t, g.Nodes(), 1)
	_, err = definition.Load([]byte(`{"version": 1, "nodes": [{"id": "a", "next": "b"}, {"id": "b", "next": "a"}]}`), definition.Limits{}, nil)
	require.ErrorIs(t, err, kahn.ErrCycle)
	_, err = definition.Load([]byte(`[]`), definition.Limits{}, func(*kahn.Graph) { t.Error("called for nothing") })
	require.ErrorIs(t, err, definition.ErrType)
}

// Encode and Decode keep the digits of numbers, and keep integers apart from other numbers.
func TestNumbers(t *testing.T) {
	for text, want := range map[string]any{
		"9007199254740993": int64(9007199254740993), "-9223372036854775808": int64(-1 << 63), "1.0": 1.0, "1e3": 1000.0,
		"-0.5": -0.5, "5": int64(5),
	} {
		require.Equal(t, want, decode(t, `{"version": 1, "nodes": [{"id": "a", "config": `+text+`}]}`).Nodes()[0].Config, text)
	}
}

// Encode and Decode keep every retry policy; a delay of "none" is minus one nanosecond. Encode writes every negative delay as "none".
func TestDelays(t *testing.T) {
	g := decode(t, `{"version": 1, "nodes": [{"id": "a", "retry": {"initial_delay": "none", "max_delay": "none", "retry_on": []}}]}`)
	r := g.Nodes()[0].Retry
	require.Less(t, r.InitialDelay, kahn.Retry{}.InitialDelay)
	require.Less(t, r.MaxDelay, kahn.Retry{}.MaxDelay)
	require.NotNil(t, r.RetryOn)
	require.Contains(t, encode(t, g), `"retry": {"initial_delay": "none", "max_delay": "none", "retry_on": []}`)
	negative := new(kahn.Graph).Add(kahn.Node{ID: "a", Retry: kahn.Retry{InitialDelay: -time.Second}})
	require.Contains(t, encode(t, negative), `"retry": {"initial_delay": "none"}`)
}

func TestRead(t *testing.T) {
	text := `{"version": 1, "nodes": [{"id": "a"}]}`
	g, err := definition.Read(iotest.OneByteReader(strings.NewReader(text)), definition.Limits{Bytes: len(text)})
	require.NoError(t, err)
	require.Len(t, g.Nodes(), 1)
	_, err = definition.Read(iotest.DataErrReader(strings.NewReader(text)), definition.Limits{Bytes: len(text) - 1})
	require.ErrorIs(t, err, definition.ErrLimit)
	broken := errors.New("broken")
	_, err = definition.Read(iotest.ErrReader(broken), definition.Limits{})
	require.Same(t, broken, err)
	_, err = definition.Read(endless{}, definition.Limits{})
	require.ErrorIs(t, err, definition.ErrLimit)
}

// endless is a Reader that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '"'
	}
	return len(p), nil
}

// TestOtherNames: for a Go field, or a name of another tool, the error suggests the document's field.
func TestOtherNames(t *testing.T) {
	for field, meant := range map[string]string{
		`"when_expr": "x"`: "when", `"test_expr": "x"`: "test", `"sub": {}`: "graph", `"depends_on": "b"`: "after", `"name": "b"`: "id",
		`"loop": {"until_expr": "x", "max_iterations": 2}`: "until", `"after": [{"from": "b", "on": "failure"}]`: "outcome",
	} {
		_, err := definition.Decode([]byte(`{"version": 1, "nodes": [{"id": "a", `+field+`}, {"id": "b"}]}`), definition.Limits{})
		require.ErrorIs(t, err, definition.ErrUnknownField, field)
		require.ErrorContains(t, err, `; did you mean "`+meant+`"?`, field)
	}
	_, err := definition.Decode([]byte(`{"version": 1, "steps": []}`), definition.Limits{})
	require.ErrorContains(t, err, `unknown field "steps"; did you mean "nodes"?`)
	_, err = definition.Decode([]byte(`{"version": 1, "nodes": [], "depends_on": []}`), definition.Limits{})
	require.ErrorContains(t, err, `unknown field "depends_on"`)
	require.NotContains(t, err.Error(), "did you mean")
}

// Decode accepts other engines' names of causes, and records their places; Encode writes this package's names.
func TestAliasesOfCauses(t *testing.T) {
	text := `{"version": 1,
"nodes": [
  {"id": "a", "retry": {"retry_on": ["step_error", "provider_error", "timeout", "contract_violated"]}},
  {"id": "b", "after": [{"from": "a", "outcome": "failure", "causes": ["contract_violated"]}]}
]}`
	doc, err := definition.Loader{File: "a.json"}.Load([]byte(text))
	require.NoError(t, err)
	require.Equal(t, []kahn.CauseKind{kahn.CauseStepError, kahn.CauseTimeout, kahn.CauseContractOutput}, doc.Graph.Nodes()[0].Retry.RetryOn)
	require.Equal(t, []kahn.CauseKind{kahn.CauseContractInput, kahn.CauseContractOutput}, doc.Graph.Edges()[0].Causes)
	var notes []string
	for _, p := range doc.Aliases {
		notes = append(notes, p.Error()+" ~> "+p.Suggestion)
	}
	require.Equal(t, []string{
		`definition: a.json:3:52: $.nodes[0].retry.retry_on[1]: node "a": "provider_error" is read as step_error ~> step_error`,
		`definition: a.json:3:81: $.nodes[0].retry.retry_on[3]: node "a": "contract_violated" is read as contract_violated_output ~> contract_violated_output`,
		`definition: a.json:4:72: $.nodes[1].after[0].causes[0]: node "b": "contract_violated" is read as contract_violated_input, contract_violated_output ~> contract_violated_input, contract_violated_output`,
	}, notes)
	canonical := encode(t, doc.Graph)
	require.NotContains(t, canonical, "provider_error")
	doc, err = definition.Loader{}.Load([]byte(canonical))
	require.NoError(t, err)
	require.Empty(t, doc.Aliases)

	_, err = definition.Decode([]byte(`{"version": 1, "nodes": [{"id": "a", "retry": {"retry_on": ["contract_violated", "tmeout"]}}]}`), definition.Limits{})
	require.ErrorContains(t, err, `$.nodes[0].retry.retry_on[1]: node "a": "tmeout" is none of step_error, timeout, rate_limit, contract_violated_output, panic; did you mean "timeout"?`)
}

// The message for a cause that is not retried lists exactly the causes that a retry policy may have.
func TestRetryCauses(t *testing.T) {
	_, err := definition.Decode([]byte(`{"version": 1, "nodes": [{"id": "a", "retry": {"retry_on": ["x"]}}]}`), definition.Limits{})
	_, list, _ := strings.Cut(err.Error(), `"x" is none of `)
	choices := strings.Split(list, ", ")
	for k := kahn.CauseNone + 1; k.String() != ""; k++ {
		if _, err := k.MarshalText(); err != nil {
			break
		}
		g := new(kahn.Graph).Add(kahn.Node{ID: "a", Retry: kahn.Retry{MaxAttempts: 2, RetryOn: []kahn.CauseKind{k}}})
		_, err := g.Compile()
		require.Equal(t, slices.Contains(choices, k.String()), err == nil, "%v", k)
		if err != nil {
			require.ErrorContains(t, err, "is never retried (choose from ")
		}
	}
}

func TestFallbackIsAFunction(t *testing.T) {
	_, err := definition.Decode([]byte(`{"version": 1, "nodes": [{"id": "a", "fallback": "b"}]}`), definition.Limits{})
	require.ErrorContains(t, err, `unknown field "fallback"; did you mean "after"?`)
	require.ErrorContains(t, err, `a fallback is a Go function; an edge in the after of the node that handles the failure has the outcome "failure"`)
}
