package kahn_test

import (
	"context"
	"errors"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestSlips shows where a slip is answered, and with which words.
func TestSlips(t *testing.T) {
	t.Parallel()
	steps := kahn.Mux{"http": nop, "sql": nop, "unset": nil}
	execute := func(g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) error {
		res, err := kahn.Execute(t.Context(), g, step, opts...)
		require.Nil(t, res, "something was run")
		return err
	}
	misspelt := graph(kahn.Node{ID: "A", Kind: "htpp"}, kahn.Node{ID: "B", Kind: "sql", After: []string{"A"}})
	for _, slip := range []struct {
		name string
		err  error
		is   error
		text string
	}{
		{"a kind that the Mux lacks, by Check", steps.Check(misspelt), kahn.ErrUnknownKind,
			`invalid graph: node "A": unknown kind: "htpp"; did you mean "http"? (there is "http", "sql")`},
		{"by the option Kinds", execute(misspelt, neverStep(t), kahn.Kinds(steps)), kahn.ErrUnknownKind,
			`invalid graph: node "A": unknown kind: "htpp"; did you mean "http"? (there is "http", "sql")`},
		{"a Mux without functions", kahn.Mux{}.Check(graph(kahn.Node{ID: "A"})), kahn.ErrUnknownKind,
			`invalid graph: node "A": unknown kind: "" (there are none)`},
		{"Kinds of nothing", execute(misspelt, nop, kahn.Kinds(nil)), kahn.ErrBadOption, `bad option: Kinds(nil)`},
		{"one node without a step function", execute(graph(after("A")), nil), kahn.ErrNoStep, `no step function: node "A" needs one`},
		{"two", execute(graph(after("A"), after("B")), nil), kahn.ErrNoStep, `no step function: node "A", the first of 2, needs one`},
		{"a node without a moderator", execute(graph(kahn.Node{ID: "A", Moderation: kahn.ModerateOutput}), nop), kahn.ErrNoModerator,
			`no moderator: node "A" asks for one`},
	} {
		t.Run(slip.name, func(t *testing.T) {
			require.ErrorIs(t, slip.err, slip.is)
			require.EqualError(t, slip.err, slip.text)
		})
	}
}

func TestKinds(t *testing.T) {
	steps := kahn.Mux{"a": func(context.Context, *kahn.Step) (any, error) { return 1, nil }}
	list := map[string]any{"l": []int{1}}
	sub := func() *kahn.Graph { return graph(kahn.Node{ID: "x", Kind: "a"}, kahn.Node{ID: "y", Kind: "b"}) }
	for _, row := range []struct {
		name string
		g    *kahn.Graph
		opts []kahn.Option
		want []string // the nodes that are reported
	}{
		{"known", graph(kahn.Node{ID: "A", Kind: "a"}), nil, nil},
		{"every node of an unknown kind", graph(kahn.Node{ID: "A", Kind: "b"}, kahn.Node{ID: "B"}), nil, []string{`"A"`, `"B"`}},
		{"those that need no kind", graph(
			kahn.Node{ID: "do", Do: nop}, kahn.If("if", func(kahn.View) (bool, error) { return true, nil }), kahn.Node{ID: "off", Disabled: true},
			kahn.Node{ID: "gate", Kind: kahn.KindGate, Disabled: true}), nil, nil},
		{"nested", graph(kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "T", Sub: sub()})}), nil, []string{`"S/T/y"`}},
		{"nested and disabled", graph(kahn.Node{ID: "S", Sub: sub(), Disabled: true}), nil, nil},
		{"a map of steps, a map of graphs and a loop", graph(kahn.Node{ID: "M", Kind: "b", Map: &kahn.Map{Over: "l"}, Params: list},
			kahn.Node{ID: "N", Sub: sub(), Map: &kahn.Map{Over: "l"}, Params: list},
			kahn.Node{ID: "L", Sub: sub(), Loop: &kahn.Loop{MaxIterations: 1, While: func(kahn.View) (bool, error) { return false, nil }}}), nil, []string{`"M`, `"N[]/y"`, `"L/y"`}},
		{"the end node", graph(kahn.Node{ID: "E", Kind: kahn.KindEnd}), nil, []string{`"E"`}},
		{"mocked", graph(kahn.Node{ID: "A", Kind: "b"}), []kahn.Option{kahn.Test{Mocks: mocks{"A": {}}}}, nil},
		{"mocked inside", graph(kahn.Node{ID: "S", Sub: sub()}), []kahn.Option{kahn.Test{Mocks: mocks{"S/y": {}}}}, nil},
		{"mocked inside, but another", graph(kahn.Node{ID: "S", Sub: sub()}), []kahn.Option{kahn.Test{Mocks: mocks{"S/x": {}}}}, []string{`"S/y"`}},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			calls := map[string]func(...kahn.Option) error{
				"Execute": func(o ...kahn.Option) error { _, err := kahn.Execute(t.Context(), row.g, steps.Step, o...); return err },
				"Runner": func(o ...kahn.Option) error {
					_, err := new(kahn.Runner).Execute(t.Context(), row.g, steps.Step, o...)
					return err
				},
			}
			for name, call := range calls {
				err := call(append(row.opts, kahn.Kinds(steps))...)
				var bad *kahn.GraphError
				if !errors.As(err, &bad) {
					require.Empty(t, row.want, name)
					require.NoError(t, err, name)
					continue
				}
				require.Len(t, bad.Problems, len(row.want), "%s: %v", name, err)
				for i, id := range row.want {
					require.ErrorIs(t, bad.Problems[i], kahn.ErrUnknownKind)
					require.ErrorContains(t, bad.Problems[i], "node "+id)
				}
			}
		})
	}
}

// A graph that contains another one twice, and so on, is looked at in a time that its paths do not double.
func TestKindsOfDeepGraphs(t *testing.T) {
	t.Parallel()
	g := graph(kahn.Node{ID: "x", Kind: "b"})
	for range 50 {
		g = graph(kahn.Node{ID: "l", Sub: g}, kahn.Node{ID: "r", Sub: g})
	}
	begun := time.Now()
	require.ErrorIs(t, kahn.Mux{"a": nop}.Check(g), kahn.ErrUnknownKind)
	require.Less(t, time.Since(begun), 10*time.Second)
}

// A delay that is longer than the default of its cap is waited for.
func TestInitialDelayAboveDefaultCap(t *testing.T) {
	inBubble(t, "no cap is set", func(t *testing.T) {
		policy := kahn.Retry{MaxAttempts: 3, InitialDelay: time.Minute, Jitter: kahn.JitterNone}
		r := try(t, graph(kahn.Node{ID: "A", Retry: policy}), always(errStep))
		r.expectDelays("A", time.Minute, time.Minute)
	})
	inBubble(t, "one is set", func(t *testing.T) {
		policy := kahn.Retry{MaxAttempts: 3, InitialDelay: time.Minute, MaxDelay: time.Second, Jitter: kahn.JitterNone}
		r := try(t, graph(kahn.Node{ID: "A", Retry: policy}), always(errStep))
		r.expectDelays("A", time.Second, time.Second)
	})
}

func TestErrorTexts(t *testing.T) {
	t.Run("none names the package, and none begins with a capital", func(t *testing.T) {
		files, err := filepath.Glob("*.go")
		require.NoError(t, err)
		exported := 0
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := goparser.ParseFile(token.NewFileSet(), file, nil, 0)
			require.NoError(t, err)
			ast.Inspect(parsed, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BasicLit:
					if n.Kind == token.STRING && strings.HasPrefix(n.Value, `"kahn:`) {
						t.Errorf("%s: %s", file, n.Value)
					}
				case *ast.ValueSpec:
					for i, name := range n.Names {
						if !strings.HasPrefix(name.Name, "Err") || i >= len(n.Values) {
							continue
						}
						exported++
						ast.Inspect(n.Values[i], func(v ast.Node) bool {
							if text, ok := v.(*ast.BasicLit); ok && unicode.IsUpper(rune(text.Value[1])) {
								t.Errorf("%s: %s is %s", file, name.Name, text.Value)
							}
							return true
						})
					}
				}
				return true
			})
		}
		require.Greater(t, exported, 40, "the errors of the package were not found")
	})
	inBubble(t, "a panic is called one once", func(t *testing.T) {
		r := try(t, graph(after("A")), func(context.Context, *kahn.Step) (any, error) { panic("oh") })
		require.EqualError(t, r.err, `run failed: node "A": panic: oh`)
	})
	inBubble(t, "a disabled node asks for nothing", func(t *testing.T) {
		off := kahn.Node{ID: "A", Disabled: true, Moderation: kahn.ModerateOutput, Ports: []kahn.Port{{Name: "p", Required: true}}}
		g := graph(off, kahn.Node{ID: "S", Disabled: true, Sub: graph(after("x"))})
		g.Inputs = []kahn.Input{{Name: "p", Optional: true}}
		try(t, g, nil).expect("A:S/ann S:S/ann", "completed")
	})
}
