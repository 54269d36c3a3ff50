package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

var writeHashes = flag.Bool("write-hashes", false, "write testdata/hashes.txt anew, which strands stored runs")

// hashedGraphs returns graphs that together use every kind of field in the hash of a plan.
func hashedGraphs() map[string]*kahn.Graph {
	test := func(kahn.View) (bool, error) { return true, nil }
	step := func(context.Context, *kahn.Step) (any, error) { return 1, nil }
	label := func(kahn.View) (string, error) { return "a", nil }
	with := func(g *kahn.Graph, change func(*kahn.Graph)) *kahn.Graph { change(g); return g }
	all := map[string]*kahn.Graph{
		"empty":             graph(),
		"one node":          graph(kahn.Node{ID: "a"}),
		"chain":             graph(kahn.Node{ID: "a", Do: step}, kahn.Node{ID: "b", Kind: "k", Label: "l", After: []string{"a"}, Config: map[string]any{"x": 1}}),
		"edges":             graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b", In: []kahn.Edge{{From: "a", Param: "x"}, {From: "a", On: kahn.OnFailure}, {From: "a", On: kahn.OnAlways, Param: "y"}}}),
		"data edge":         graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "c", In: []kahn.Edge{{From: "a"}, {From: "b", DataOnly: true, Param: "x"}}}),
		"if":                graph(kahn.Node{ID: "a"}, kahn.If("c", test, "a"), kahn.Node{ID: "t", In: []kahn.Edge{{From: "c", Label: "true"}}}, kahn.Node{ID: "f", In: []kahn.Edge{{From: "c", Label: "no"}}}),
		"switch":            graph(kahn.Switch("c", label), kahn.Node{ID: "t", In: []kahn.Edge{{From: "c", Label: "a"}}}, kahn.Node{ID: "d", In: []kahn.Edge{{From: "c", Label: "default"}}}),
		"unlabelled if":     graph(kahn.If("c", test), kahn.Node{ID: "x", After: []string{"c"}}),
		"gate":              graph(kahn.Node{ID: "g", Kind: kahn.KindGate}, kahn.Node{ID: "x", After: []string{"g"}}),
		"gate, labels":      graph(kahn.Node{ID: "g", Kind: kahn.KindGate}, kahn.Node{ID: "x", In: []kahn.Edge{{From: "g", Label: "approved"}}}, kahn.Node{ID: "y", In: []kahn.Edge{{From: "g", Label: "later"}}}),
		"gate, choices":     graph(kahn.Node{ID: "g", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"yes", "no"}, Timeout: time.Hour}}, kahn.Node{ID: "x", After: []string{"g"}}),
		"guard":             graph(kahn.Node{ID: "a", When: test}),
		"sub":               graph(kahn.Node{ID: "s", Sub: graph(kahn.Node{ID: "a", When: test}, after("b", "a"))}),
		"map":               graph(kahn.Node{ID: "m", Map: &kahn.Map{Over: "of"}, Params: map[string]any{"of": []int{1}}}),
		"loop":              graph(kahn.Node{ID: "l", Sub: graph(kahn.Node{ID: "a"}), Loop: &kahn.Loop{Until: test, MaxIterations: 3}}),
		"continue":          graph(kahn.Node{ID: "a", ContinueOnFail: true, Critical: false}, kahn.Node{ID: "b", After: []string{"a"}, Cleanup: true}),
		"all done, handles": graph(kahn.Node{ID: "a"}, kahn.Node{ID: "j", After: []string{"a"}, Join: kahn.AllDone, Handling: kahn.Handles}),
		"catch, observes":   graph(kahn.Node{ID: "a"}, kahn.Node{ID: "h", In: []kahn.Edge{{From: "a", On: kahn.OnFailure}}, Handling: kahn.Observes}),
		"end, handles":      graph(kahn.Node{ID: "a"}, kahn.Node{ID: "z", Kind: kahn.KindEnd, CancelLosers: true, Handling: kahn.Handles}),
		"ports":             with(graph(kahn.Node{ID: "a", Ports: []kahn.Port{{Name: "n", Required: true}}}), func(g *kahn.Graph) { g.Inputs = []kahn.Input{{Name: "n", Default: 1}} }),
		"inputs":            with(graph(kahn.Node{ID: "a"}), func(g *kahn.Graph) { g.Inputs = []kahn.Input{{Name: "x"}} }),
		"trigger and end":   graph(kahn.Node{ID: "t", Kind: kahn.KindTrigger}, kahn.Node{ID: "a", After: []string{"t"}}, kahn.Node{ID: "end", Kind: kahn.KindEnd, After: []string{"a"}}),
		"merge":             graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "c", In: []kahn.Edge{{From: "a", Param: "x", Merge: "array"}, {From: "b", Param: "x", Merge: "array"}}}),
		"text":              with(graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}, WhenExpr: "yes"}), func(g *kahn.Graph) { g.Evaluator = fluent }),
		"text, strict":      with(graph(kahn.Node{ID: "b", WhenExpr: "size"}), func(g *kahn.Graph) { g.Evaluator = fluent; g.StrictGuards = true }),
		"text test":         with(graph(kahn.Node{ID: "a"}, kahn.Node{ID: "c", After: []string{"a"}, TestExpr: "size"}, kahn.Node{ID: "t", In: []kahn.Edge{{From: "c", Label: "true"}}}), func(g *kahn.Graph) { g.Evaluator = fluent }),
	}
	for i, text := range []string{`"quoted" \\ `, "<a> & b", "tab\tand\nline", "\x00\x1f\x7f", "grüße ☃ 𝄞", "not\xffUTF-8", "line\u2028separator\u2029", "\ufffd"} {
		all[fmt.Sprint("text ", i)] = graph(kahn.Node{ID: "a", Label: text, Kind: text, Config: text, Params: map[string]any{text: text}},
			kahn.Node{ID: "b", In: []kahn.Edge{{From: "a", Param: text, Default: text, Key: text}}})
	}
	for i, value := range []any{true, 0, -12, int64(1) << 62, uint8(3), 1.5, 1e21, float32(0.1), time.Second, []byte("x"), []string{"b", "a"}, map[string]any{"b": 1, "a": nil}, json.Number("1.0"),
		struct {
			A int `json:"a,omitempty"`
			b int
		}{1, 2}, test, struct{ F func() }{}, &struct{ X any }{[]any{1, "x"}}, make(chan int), errors.ErrUnsupported, machine.SkipMode(1), time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), json.RawMessage(`{"a" : 1}`), formless{}} {
		all[fmt.Sprint("value ", i)] = graph(kahn.Node{ID: "a", Config: value, Default: value, Params: map[string]any{"p": value}}, kahn.Node{ID: "b", In: []kahn.Edge{{From: "a", Param: "x", Default: value}}})
	}
	all["many fields"] = graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "c", Join: kahn.AtLeast(1), CancelLosers: true, CancelOnLateFailure: true, Critical: true, MergeJSON: true, Memo: "v1", Disabled: true, SkipMode: machine.SkipMode(1), NoMatch: 1,
		Merge: "array", Fallback: func(context.Context, error) (any, error) { return nil, nil }, Ports: []kahn.Port{{Name: "x", Default: 3}}, Routes: true,
		In: []kahn.Edge{{From: "a", On: kahn.OnFailure, Causes: []kahn.CauseKind{kahn.CausePanic, kahn.CauseTimeout}}, {From: "b", Param: "x", Merge: "array", DataOnly: true}}})
	for _, join := range []kahn.Join{kahn.AllSucceeded, kahn.AnySucceeded, kahn.AtLeast(2), kahn.AllDone, kahn.AllDoneMinOne, kahn.OneFailed, kahn.AllFailed, kahn.NoneFailed, kahn.NoneSkipped, kahn.AllSkipped, kahn.OneDone} {
		all["join "+join.String()] = graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "c", Join: join, After: []string{"a", "b"}})
	}
	for _, policy := range []machine.UpstreamPolicy{kahn.UpstreamAbort, kahn.UpstreamSkip, kahn.UpstreamPropagate, kahn.UpstreamSubstitute} {
		all["upstream "+policy.String()] = graph(kahn.Node{ID: "a"}, kahn.Node{ID: "c", OnUpstreamFailure: policy, Default: 7, After: []string{"a"}})
	}
	for _, policy := range []kahn.GuardPolicy{kahn.GuardAllow, kahn.GuardSkip, kahn.GuardFail} {
		all["guard errors "+policy.String()] = graph(kahn.Node{ID: "a", When: test, GuardErrors: policy})
		all["no guard, errors "+policy.String()] = graph(kahn.Node{ID: "a", GuardErrors: policy})
		all["guards by default "+policy.String()] = with(graph(kahn.Node{ID: "a", When: test}, kahn.Node{ID: "b"}), func(g *kahn.Graph) { g.Defaults.GuardErrors = policy })
		all["text guard errors "+policy.String()] = with(graph(kahn.Node{ID: "b", WhenExpr: "yes", GuardErrors: policy}), func(g *kahn.Graph) { g.Evaluator = fluent })
	}
	return all
}

// formless is a value that package json cannot encode.
type formless struct{}

func (formless) MarshalJSON() ([]byte, error) { panic("no") }

// A stored run can continue only with a graph that has the stored hash. If a version hashed graphs differently, it could not continue older runs.
// The hashes in the file come from a version before the defaults of guards changed.
func TestHashesStay(t *testing.T) {
	t.Parallel()
	const name = "testdata/hashes.txt"
	graphs := hashedGraphs()
	if *writeHashes {
		var b strings.Builder
		for _, g := range slices.Sorted(maps.Keys(graphs)) {
			plan, err := graphs[g].Compile()
			require.NoError(t, err, g)
			fmt.Fprintf(&b, "%s|%s\n", plan.Hash(), g)
		}
		require.NoError(t, os.WriteFile(name, []byte(b.String()), 0o666))
	}
	file, err := os.ReadFile(name)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(file)), "\n")
	require.Len(t, lines, len(graphs))
	for _, line := range lines {
		hash, g, _ := strings.Cut(line, "|")
		require.Contains(t, graphs, g)
		plan, err := graphs[g].Compile()
		require.NoError(t, err, g)
		require.Equal(t, hash, plan.Hash(), g)
	}
}
