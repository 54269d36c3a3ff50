package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// labelled is an output whose branch label is its first element. BranchLabels panics if there is no element.
type labelled []string

func (l labelled) BranchLabels() []string { return []string{l[0]} }

// TestChoices lists which answers a gate accepts.
func TestChoices(t *testing.T) {
	t.Parallel()
	words := []string{"approved", "approve", "true", "yes", "rejected", "reject", "false", "no"}
	after := func(first ...string) []string {
		list := slices.Clone(first)
		for _, w := range words {
			if !slices.Contains(first, w) {
				list = append(list, w)
			}
		}
		return list
	}
	for _, row := range []struct {
		name     string
		declared []string
		labels   []string
		takes    []any
		refuses  []any
		choices  []string // that the error lists
	}{
		{"labels", nil, []string{"red", "green"}, []any{"red", " green ", []string{"red", "green"}, map[string]any{"branch": "red"}, labelled{"red"}},
			[]any{"Red", "blue", "", nil, 7, true, "yes", []string{}, []string{"red", "blue"}, map[string]any{"colour": "red"}, labelled{"blue"}}, []string{"red", "green"}},
		{"a label with an alias", nil, []string{"approved"}, []any{"approved", "APPROVE", true, false, "no", "Rejected", "yes"},
			[]any{"aproved", "perhaps", nil, map[string]any{"ok": true}}, after("approved")},
		{"an alias in another case", nil, []string{"Yes"}, []any{"Yes", "yes", true, "reject"}, []any{"Later", "maybe"}, after("Yes")},
		{"an alias beside another label", nil, []string{"Yes", "later"}, []any{"Yes", "yes", true, "Approve", "later"}, []any{"Later", "maybe", "reject", false},
			[]string{"Yes", "later", "approved", "approve", "true", "yes"}},
		{"a near miss beside an alias", nil, []string{"aproved", "rejected"}, []any{"aproved", "rejected", "no", false}, []any{"approved", true, "yes"},
			[]string{"aproved", "rejected", "reject", "false", "no"}},
		{"declared near miss", []string{"approved", "rejectd"}, nil, []any{"approved", "rejectd", true}, []any{"rejected", "no"},
			[]string{"approved", "rejectd", "approve", "true", "yes"}},
		{"declared, both meanings", []string{"yes", "no", "later"}, nil, []any{"later", "reject", true}, []any{"never"}, after("yes", "no", "later")},
		{"declared", []string{"red", "green", "blue"}, []string{"red"}, []any{"red", "blue"}, []any{"rde", true}, []string{"red", "green", "blue"}},
		{"declared without branches", []string{"yes", "no"}, nil, []any{true, "reject"}, []any{"never"}, after("yes", "no")},
		{"default", nil, []string{"red", "default"}, []any{"blue", nil, 7, ""}, nil, nil},
		{"nothing to choose", nil, nil, []any{"blue", nil, map[string]any{"n": 1}, true}, nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := asked(row.declared, row.labels...)
			for _, value := range row.takes {
				res, err := kahn.Execute(t.Context(), g, takes(0), kahn.EarlySignals(map[string]any{"G": value}))
				require.NoError(t, err, "%v", value)
				require.Equal(t, kahn.RunCompleted, res.Status, "%v", value)
			}
			for _, value := range row.refuses {
				_, err := kahn.Execute(t.Context(), g, neverStep(t), kahn.EarlySignals(map[string]any{"G": value}))
				var refused *kahn.ChoiceError
				require.ErrorAs(t, err, &refused, "%v", value)
				require.ErrorIs(t, err, kahn.ErrChoice)
				require.Equal(t, "G", refused.Node)
				require.Equal(t, row.choices, refused.Choices)
			}
		})
	}
}

// The answer to a gate may be a label on an edge into the end node, or on a branch that a trigger prunes.
func TestChoicesBeyondTheBranchesThatRun(t *testing.T) {
	t.Parallel()
	g := graph(gate("G"), branch("on", "G", "go"), kahn.Node{ID: "end", Kind: kahn.KindEnd, In: []kahn.Edge{{From: "G", Label: "stop"}}})
	r := try(t, g, takes(0), kahn.EarlySignals(map[string]any{"G": "stop"}))
	r.expect("G:ok on:S/br end:ok", "completed")

	g = graph(kahn.Node{ID: "T", Kind: kahn.KindTrigger}, gate("G"), branch("A", "G", "red"), branch("B", "G", "green"))
	g.Connect(kahn.Edge{From: "T", To: "A"})
	opts := []kahn.Option{kahn.Fire("T", nil), kahn.PruneClosure}
	_, err := kahn.Execute(t.Context(), g, neverStep(t), append(opts, kahn.EarlySignals(map[string]any{"G": "greeen"}))...)
	require.EqualError(t, err, `node "G": no such choice: "greeen"; choose one of "red", "green"; did you mean "green"?`)
	res, err := kahn.Execute(t.Context(), g, neverStep(t), append(opts, kahn.EarlySignals(map[string]any{"G": "green"}))...)
	require.NoError(t, err)
	require.Equal(t, []string{"B"}, res.Pruned)
	a, _ := res.Node("A")
	require.Equal(t, kahn.Skipped, a.Status)
}

const aproved = `no such choice: "aproved"; choose one of "approved", "rejected", "approve", "true", "yes", "reject", "false", "no"; did you mean "approved"?`

// Every way to answer a gate refuses a value that is not among the choices, and the gate accepts a valid answer afterwards.
func TestChoiceRefused(t *testing.T) {
	g := asked(nil, "approved", "rejected")
	nested := graph(subgraph("S", graph(after("x"), kahn.Node{ID: "G", Kind: kahn.KindGate, After: []string{"x"}}, branch("on", "G", "approved"), branch("off", "G", "rejected"))))
	for _, row := range []struct {
		name  string
		graph *kahn.Graph
		path  string
		early bool
	}{
		{"waiting", g, "G", false}, {"early", g, "G", true}, {"inside", nested, "S/G", false}, {"inside, early", nested, "S/G", true},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			r := tryControlled(t, t.Context(), row.graph, takes(time.Second), func(run *kahn.Run) {
				if row.early {
					time.Sleep(ms) // the sub-graph has started
				} else {
					time.Sleep(time.Hour)
				}
				synctest.Wait()
				err := run.Signal(context.Background(), row.path, "aproved")
				if want := fmt.Sprintf("node %q: %s", row.path, aproved); err == nil || err.Error() != want || !errors.Is(err, kahn.ErrChoice) {
					t.Errorf("refused with %v", err)
				}
				if row.early == slices.ContainsFunc(run.Waiting(), func(w kahn.Wait) bool { return w.Node == row.path }) && row.path != "G" {
					t.Errorf("%v wait", run.Waiting())
				}
				if err := run.Signal(context.Background(), row.path, "yes"); err != nil {
					t.Error(err)
				}
			})
			if r.Status != kahn.RunCompleted || len(r.Warnings) > 0 {
				t.Errorf("%v, %v", r.Status, r.Warnings)
			}
		})
	}

	inBubble(t, "Resume and From refuse before anything runs", func(t *testing.T) {
		for _, row := range []struct {
			graph *kahn.Graph
			path  string
		}{{g, "G"}, {nested, "S/G"}} {
			r := pause(t, row.graph, takes(ms))
			for _, s := range []*kahn.Snapshot{r.Snapshot(), reload(t, r.Snapshot())} {
				_, err := kahn.Execute(t.Context(), row.graph, neverStep(t), kahn.OnEvent(func(e kahn.Event) { t.Error(e) }), kahn.Resume(s), kahn.EarlySignals(map[string]any{row.path: "aproved"}))
				if err == nil || err.Error() != fmt.Sprintf("node %q: %s", row.path, aproved) {
					t.Errorf("refused with %v", err)
				}
				if res, err := kahn.Execute(t.Context(), row.graph, takes(ms), kahn.Resume(s), kahn.EarlySignals(map[string]any{row.path: "no"})); err != nil || res.Status != kahn.RunCompleted {
					t.Errorf("%v", err)
				}
			}
		}
	})

	inBubble(t, "an early answer that another version of the graph does not take", func(t *testing.T) {
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if _, ok := s.Resumed(); ok {
				return nil, nil
			}
			return nil, kahn.Suspend("", nil, nil)
		}
		was := graph(after("A"), gate("G", "A"), branch("on", "G", "ship"))
		run, err := kahn.Start(t.Context(), was, step)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := run.Signal(context.Background(), "G", "ship"); err != nil {
			t.Error(err)
		}
		run.Leave()
		r, err := run.Wait()
		if err != nil {
			t.Fatal(err)
		}
		is := graph(after("A"), gate("G", "A"), branch("on", "G", "send"))
		res, err := kahn.Execute(t.Context(), is, step, kahn.AllowGraphChange(), kahn.Resume(r.Snapshot()), kahn.EarlySignals(map[string]any{"A": 1}))
		if err != nil || res.Status != kahn.RunSuspended || len(res.Waiting) != 1 || res.Waiting[0].Node != "G" {
			t.Fatalf("%v, %v, %v", res, err, res.Waiting)
		}
		if len(res.Warnings) != 1 || !errors.Is(res.Warnings[0], kahn.ErrChoice) {
			t.Errorf("%v", res.Warnings)
		}
	})

	inBubble(t, "a Labeler that panics fails the gate", func(t *testing.T) {
		r := try(t, g, takes(0), kahn.EarlySignals(map[string]any{"G": labelled(nil)}))
		r.expect("G:F on approved:X on rejected:X", "failed")
		r.cause("G", kahn.CauseConditionError)
	})

	inBubble(t, "a choice without an edge takes no branch", func(t *testing.T) {
		r := try(t, asked(nil, "approved"), takes(0), kahn.EarlySignals(map[string]any{"G": "reject"}))
		r.expect("G:ok on approved:S/br", "completed")
		if len(r.Warnings) > 0 {
			t.Error(r.Warnings)
		}
	})

	inBubble(t, "the answer of the gate's timeout is no choice of people", func(t *testing.T) {
		g := graph(kahn.Node{ID: "G", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"go"}, Timeout: time.Hour, OnTimeout: kahn.GateLabel}},
			branch("on", "G", "go"), branch("late", "G", "timeout"))
		r := tryControlled(t, t.Context(), g, takes(0), func(run *kahn.Run) {
			synctest.Wait()
			if err := run.Signal(context.Background(), "G", "timeout"); !errors.Is(err, kahn.ErrChoice) {
				t.Error(err)
			}
		})
		r.expect("G:ok on:S/br late:ok", "completed")
	})
}

// Execute reports mocks whose value is no valid answer of their gate, before the run starts.
func TestChoicesInTestMode(t *testing.T) {
	t.Parallel()
	g := asked(nil, "red", "green")
	nested := graph(kahn.Node{ID: "S", Sub: g}, kahn.Node{ID: "M", Sub: asked(nil, "ship"), Map: &kahn.Map{Over: "n"}, Params: map[string]any{"n": []int{1, 2}}})
	for _, row := range []struct {
		name  string
		graph *kahn.Graph
		test  kahn.TestMode
		is    error
		text  string // "" if the run completes
	}{
		{"a slip", g, kahn.TestMode{Mocks: mocks{"G": {Value: "gren"}}}, kahn.ErrChoice,
			`bad option: TestMode.Mocks: node "G": no such choice: "gren"; choose one of "red", "green"; did you mean "green"?`},
		{"a slip in a sequence", g, kahn.TestMode{Mocks: mocks{"G": {Sequence: []kahn.Mock{{Err: errStep}, {Value: "gren"}}}}}, kahn.ErrChoice, `"gren"`},
		{"nothing", g, kahn.TestMode{Mocks: mocks{"G": {}}}, kahn.ErrChoice, `no such choice: null; choose`},
		{"no mock", g, kahn.TestMode{}, kahn.ErrNoMock, `bad option: TestMode.Mocks: no mock for gate "G": node "G": no such choice: "approved"; choose one of "red", "green"`},
		{"no mock inside", nested, kahn.TestMode{Mocks: mocks{"S": {}}}, kahn.ErrNoMock, `no mock for gate "M/G"`},
		{"a mock", g, kahn.TestMode{Mocks: mocks{"G": {Value: "green"}}}, nil, ""},
		{"an error", g, kahn.TestMode{Mocks: mocks{"G": {Err: kahn.Skip("later")}}}, nil, ""},
		{"unmocked", nested, kahn.TestMode{Mocks: mocks{"M/G": {Value: "ship"}, "S": {}}}, nil, ""},
		{"composites that are mocked", nested, kahn.TestMode{Mocks: mocks{"S": {}, "M": {}}}, nil, ""},
		{"an alias", asked(nil, "No"), kahn.TestMode{}, nil, ""},
		{"anything", asked(nil), kahn.TestMode{}, nil, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var called atomic.Bool
			res, err := kahn.Execute(t.Context(), row.graph, func(context.Context, *kahn.Step) (any, error) { called.Store(true); return nil, nil }, row.test)
			if row.text == "" {
				require.NoError(t, err)
				require.Equal(t, kahn.RunCompleted, res.Status)
				return
			}
			require.ErrorIs(t, err, row.is)
			require.ErrorIs(t, err, kahn.ErrBadOption)
			require.Contains(t, err.Error(), row.text)
			require.False(t, called.Load())
		})
	}
	t.Run("what the Do of a mock returns", func(t *testing.T) {
		t.Parallel()
		r := try(t, g, takes(0), kahn.TestMode{Mocks: mocks{"G": {Do: func(context.Context, *kahn.Step) (any, error) { return "gren", nil }}}})
		r.expect("G:F on red:X on green:X", "failed")
		r.cause("G", kahn.CauseConditionError)
		require.ErrorIs(t, r.err, kahn.ErrChoice)
	})
}

// Compile reports invalid labels and invalid choices.
func TestChoicesCompile(t *testing.T) {
	t.Parallel()
	yes := func(kahn.View) (bool, error) { return true, nil }
	colour := func(kahn.View) (string, error) { return "red", nil }
	of := func(n kahn.Node, choices ...string) kahn.Node { n.Choices = choices; return n }
	timed := func(choices ...string) kahn.Node {
		return kahn.Node{ID: "?", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour, OnTimeout: kahn.GateLabel, Choices: choices}}
	}
	bools := `the label "ture" can never match: the choices of "?" are "true", "false", "yes", "no"; did you mean "true"?`
	for _, row := range []struct {
		name   string
		node   kahn.Node
		labels []string
		is     error
		text   string // "" if the graph compiles
	}{
		{"a slip at an If", kahn.If("?", yes), []string{"ture"}, kahn.ErrBadEdge, `edge "?" -> "on ture": bad edge: ` + bools},
		{"words of an If", kahn.If("?", yes), []string{"True", "no", "default"}, nil, ""},
		{"a gate's word at an If", kahn.If("?", yes), []string{"approved"}, kahn.ErrBadEdge, `the label "approved" can never match`},
		{"a Switch that declares nothing", kahn.Switch("?", colour), []string{"rde"}, nil, ""},
		{"a Switch that declares its labels", of(kahn.Switch("?", colour), "red", "green"), []string{"red", "green", "default"}, nil, ""},
		{"a slip at a Switch", of(kahn.Switch("?", colour), "red", "green"), []string{"rde"}, kahn.ErrBadEdge,
			`the label "rde" can never match: the choices of "?" are "red", "green"; did you mean "red"?`},
		{"another case at a Switch", of(kahn.Switch("?", colour), "red", "green"), []string{"Red"}, kahn.ErrBadEdge, `did you mean "red"?`},
		{"a step", of(kahn.Node{ID: "?", Routes: true}, "red"), []string{"blue"}, kahn.ErrBadEdge, `the label "blue" can never match: the choices of "?" are "red"`},
		{"a gate", kahn.Node{ID: "?", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"approved"}}}, []string{"rejcted"}, kahn.ErrBadEdge, `did you mean "rejected"?`},
		{"a timeout without an edge", timed(), []string{"go"}, kahn.ErrBadValue,
			`node "?": bad value: the gate answers "timeout" when its timeout passes, but no edge has this label, nor "default"; its labels are "go"`},
		{"a timeout with its edge", timed("go"), []string{"go", "timeout"}, nil, ""},
		{"a timeout with a default", timed(), []string{"go", "default"}, nil, ""},
		{"a timeout without branches", timed(), nil, nil, ""},
		{"choices of a plain step", of(after("?"), "red"), nil, kahn.ErrBadValue, `it has Choices, but its output is not a label`},
		{"choices of a gate in the wrong place", of(gate("?"), "red"), nil, kahn.ErrBadValue, `a gate declares its choices in Gate.Choices`},
		{"twice", of(kahn.Switch("?", colour), "red", "red"), nil, kahn.ErrBadValue, `Choices: "red" is declared twice`},
		{"empty", of(kahn.Switch("?", colour), ""), nil, kahn.ErrBadValue, `Choices: "" is empty`},
		{"default", timed("go", "default"), nil, kahn.ErrBadValue, `Gate.Choices: "default" is the branch of all other answers`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			nodes := []kahn.Node{row.node}
			for _, label := range row.labels {
				nodes = append(nodes, branch("on "+label, "?", label))
			}
			_, err := graph(nodes...).Compile()
			if row.text == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, row.is)
			require.Contains(t, err.Error(), row.text)
		})
	}
	_, err := graph(kahn.If("?", yes), kahn.Node{ID: "end", Kind: kahn.KindEnd, In: []kahn.Edge{{From: "?", Label: "ture"}}}).Compile()
	require.ErrorContains(t, err, strings.Replace(bools, `"?" ->`, `"?" -> "end"`, 1))
}

// Only Compile uses the declared choices of a condition, so a graph without the choices can continue a snapshot of a graph with them.
func TestChoicesAndHash(t *testing.T) {
	t.Parallel()
	hash := func(n kahn.Node) string {
		p, err := graph(n).Compile()
		require.NoError(t, err)
		return p.Hash()
	}
	a := kahn.Switch("?", func(kahn.View) (string, error) { return "red", nil })
	b := a
	b.Choices = []string{"red"}
	require.Equal(t, hash(a), hash(b))
	c, d := gate("G"), gate("G")
	c.Gate, d.Gate = &kahn.Gate{}, &kahn.Gate{Choices: []string{"red"}}
	require.NotEqual(t, hash(c), hash(d), "the choices of a gate decide what it takes")
}

// If the answer of a condition, or of a step with Routes, matches no edge and no declared choice, the Result has one warning for the node.
func TestAnswerMeetsNoEdge(t *testing.T) {
	answers := func(answer any) kahn.Node {
		return kahn.Node{ID: "?", Test: func(kahn.View) (any, error) { return answer, nil }}
	}
	routes := kahn.Node{ID: "?", Routes: true, Do: yields(0, "gren")}
	declared := answers("blue")
	declared.Choices = []string{"red", "green", "blue"}
	fails := answers("gren")
	fails.NoMatch = kahn.NoMatchFail
	const warning = `no branch matches: node "?": no such choice: "gren"; choose one of "red", "green"; did you mean "green"?`
	for _, row := range []struct {
		name   string
		node   kahn.Node
		labels []string
		want   string
	}{
		{"a Test", answers("gren"), []string{"red", "green"}, warning},
		{"a step", routes, []string{"red", "green"}, warning},
		{"nothing", answers(nil), []string{"red"}, `no branch matches: node "?": no such choice: null; choose one of "red"`},
		{"a default", answers("gren"), []string{"red", "default"}, ""},
		{"a declared choice", declared, []string{"red", "green"}, ""},
		{"an If without an else", kahn.If("?", func(kahn.View) (bool, error) { return false, nil }), []string{"true"}, ""},
		{"a bool without an else", answers(false), []string{"yes"}, ""},
		{"NoMatchFail", fails, []string{"red", "green"}, ""},
		{"no labels", answers("gren"), nil, ""},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			nodes := []kahn.Node{row.node}
			for _, label := range row.labels {
				nodes = append(nodes, branch("on "+label, "?", label))
			}
			r := try(t, graph(nodes...), takes(0))
			var logged []string
			for _, e := range r.find(event.NodeLog, "?") {
				logged = append(logged, e.Payload.(event.LogRecord).Message)
			}
			switch {
			case row.want == "" && len(r.Warnings)+len(logged) > 0:
				t.Errorf("%v, %v", r.Warnings, logged)
			case row.want != "" && (len(r.Warnings) != 1 || r.Warnings[0].Error() != row.want || !errors.Is(r.Warnings[0], kahn.ErrNoMatch) ||
				len(logged) != 1 || logged[0] != row.want):
				t.Errorf("%v, %q", r.Warnings, logged)
			}
		})
	}
	inBubble(t, "once for all items", func(t *testing.T) {
		body := graph(answers("gren"), branch("on", "?", "green"))
		r := try(t, graph(kahn.Node{ID: "M", Sub: body, Map: &kahn.Map{Over: "n"}, Params: map[string]any{"n": []int{1, 2, 3}}}), takes(0))
		if len(r.Warnings) != 1 {
			t.Errorf("%v", r.Warnings)
		}
	})
}
