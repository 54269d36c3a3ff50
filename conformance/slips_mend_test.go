package conformance_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// Error texts say how to correct the mistake, with every driver.
func TestErrorsNameTheMend(t *testing.T) {
	t.Parallel()
	one := func(context.Context, *kahn.Step) (any, error) { return 1, nil }
	bad := func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("broken") }
	param := func(name string) kahn.StepFunc {
		return func(_ context.Context, s *kahn.Step) (any, error) { return kahn.Param[int](s, name) }
	}
	fails := kahn.Switch("k", func(kahn.View) (string, error) { return "smal", nil })
	fails.NoMatch = kahn.NoMatchFail
	for _, c := range []struct {
		name    string
		g       *kahn.Graph
		text    string
		unknown string // text that a Call's error does not contain
	}{
		{"the id of a node as a parameter", graph(kahn.Node{ID: "x", Do: one}, kahn.Node{ID: "a", After: []string{"x"}, Do: param("x")}),
			`run failed: node "a": step_error: parameter "x": no value: the node has no such parameter (there are none); the edge from "x" needs a Param to deliver a parameter`, "\x00"},
		{"the same for an item", graph(kahn.Node{ID: "x", Do: one}, kahn.Node{ID: "a", After: []string{"x"}, Params: map[string]any{"l": []int{1}}, Map: &kahn.Map{Over: "l"}, Do: param("x")}),
			`run failed: node "a": map_items: 1 of 1 items failed, the first: node "a[0]": step_error: parameter "x": no value: the node has no such parameter (there is "index", "item", "l"); the edge from "x" needs a Param to deliver a parameter`, "\x00"},
		{"a node outside of the graph", graph(kahn.Node{ID: "x", Do: one}, kahn.Node{ID: "s", After: []string{"x"}, Sub: graph(kahn.Node{ID: "a", Do: func(_ context.Context, s *kahn.Step) (any, error) { return kahn.Root[int](s, "x") }})}),
			`run failed: node "s": subrun: run failed: node "a": step_error: root input "x": no value: the run has no such input (there are none); the inputs of a graph inside another one are the parameters of its node`, "; the inputs of a graph inside another one are the parameters of its node"},
		{"the value of a node that failed", graph(kahn.Node{ID: "x", Do: bad}, kahn.Node{ID: "a", In: []kahn.Edge{{From: "x", On: kahn.OnFailure}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			return kahn.Upstream[string](s, "x")
		}}), `run failed: node "a": step_error: upstream "x": wrong type: *event.NodeError instead of string: the node has failed, and the edge delivers its error, see UpstreamErr`, "\x00"},
		{"a label that is none of the cases", graph(fails, kahn.Node{ID: "a", Do: one, In: []kahn.Edge{{From: "k", Label: "small"}}}),
			`run failed: node "k": no_branch_match: no branch matches: node "k": no such choice: "smal"; choose one of "small"; did you mean "small"?`, "\x00"},
	} {
		for driver, drive := range drivers {
			_, err := drive(t, c.g, nop)
			text := c.text
			if strings.HasPrefix(driver, "Coordinator") { // the step knows only its Call
				text = strings.NewReplacer("the node has no such", "the call has no such", "the run has no such", "the call has no such", c.unknown, "").Replace(text)
			}
			require.EqualError(t, err, text, "%s, %s", c.name, driver)
		}
	}
	_, err := graph(kahn.Node{ID: "x"}, kahn.Node{ID: "a", After: []string{"x"}, Map: &kahn.Map{Over: "x"}}).Compile()
	require.EqualError(t, err, `invalid graph: node "a": bad value: Map.Over names the parameter "x", which nothing provides (there are none); the edge from "x" needs a Param to deliver a parameter`)
}

// The error about an answer that is not a label names the type of the answer, and does not print the answer like a choice.
func TestAnswersWithoutLabelAreTold(t *testing.T) {
	t.Parallel()
	const text = `node "k": no such choice: 3 of type int, which is not a label; choose one of "3"`
	g := graph(kahn.Node{ID: "k", Test: func(kahn.View) (any, error) { return 3, nil }}, kahn.Node{ID: "a", In: []kahn.Edge{{From: "k", Label: "3"}}})
	for driver, drive := range drivers {
		res, err := drive(t, g, nop)
		require.NoError(t, err, driver)
		require.Len(t, res.Warnings, 1, driver)
		require.EqualError(t, res.Warnings[0], "no branch matches: "+text, driver)
	}
	run, err := kahn.Start(t.Context(), graph(kahn.Node{ID: "k", Kind: kahn.KindGate}, kahn.Node{ID: "a", In: []kahn.Edge{{From: "k", Label: "3"}}}), nop)
	require.NoError(t, err)
	require.EqualError(t, run.Signal(t.Context(), "k", 3), text)
	require.NoError(t, run.Signal(t.Context(), "k", "3"))
	_, err = run.Wait()
	require.NoError(t, err)
}

// The error about an unknown path lists existing paths.
func TestUnknownPathsNameTheOthers(t *testing.T) {
	t.Parallel()
	g := graph(
		kahn.Node{ID: "M", Params: map[string]any{"l": []int{1, 2, 3}}, Map: &kahn.Map{Over: "l"}},
		kahn.Node{ID: "E", Params: map[string]any{"l": []int{}}, Map: &kahn.Map{Over: "l"}},
		kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "charge"}, after("ship", "charge"))},
		kahn.Node{ID: "L", Loop: &kahn.Loop{MaxIterations: 3, While: func(v kahn.View) (bool, error) { return v.Iteration() < 2, nil }}, Sub: graph(kahn.Node{ID: "x"})},
		kahn.Node{ID: "N", Params: map[string]any{"l": []int{1, 2}}, Map: &kahn.Map{Over: "l"}, Sub: graph(kahn.Node{ID: "p"}, after("q", "p"))},
	)
	res, err := kahn.Execute(t.Context(), g, nop)
	require.NoError(t, err)
	plan, err := g.Compile()
	require.NoError(t, err)
	for path, text := range map[string]string{
		"M[3]":     `the map has 3 items, "M[0]" to "M[2]"`,
		"M/2":      `the map has 3 items, "M[0]" to "M[2]"`,
		"S/chrage": `no path leads there; did you mean "S/charge"? (there is "S/charge", "S/ship")`,
		"S/x":      `no path leads there (there is "S/charge", "S/ship")`,
		"charge":   `did you mean "S/charge"?`,
		"q":        `did you mean "N[0]/q"?`,
		"x":        `did you mean "L#1/x"?`,
		"L#3":      `an iteration of "L" that has begun is for example "L#1"`,
		"L/x":      `an iteration of "L" that has begun is for example "L#1"`,
		"L#1/y":    `no path leads there (there is "L#1/x")`,
		"N[2]/p":   `the map has 2 items, "N[0]" to "N[1]"`,
		"N[1]/pp":  `no path leads there (there is "N[1]/p", "N[1]/q")`,
		"T/charge": `no path leads there (there is "M", "E", "S", "L", "N")`,
	} {
		_, err := kahn.RedrivePreview(plan, res.Snapshot(), []string{path})
		require.ErrorIs(t, err, kahn.ErrUnknownNode, path)
		require.EqualError(t, err, `unknown node: "`+path+`": `+text)
	}
}

// The error about a run that cannot continue says what to do instead.
func TestRunsThatCannotGoOnNameTheMend(t *testing.T) {
	t.Parallel()
	db, id := kahn.Durable(new(store.Memory)), kahn.RunID("1")
	g := graph(kahn.Node{ID: "a"}, kahn.Node{ID: "ask", Kind: kahn.KindGate})
	_, err := kahn.Execute(t.Context(), g, nop, db, id)
	require.NoError(t, err)
	_, err = kahn.Execute(t.Context(), graph(kahn.Node{ID: "b"}), nop, db, id)
	require.ErrorIs(t, err, kahn.ErrGraphChanged)
	require.ErrorContains(t, err, "see AllowGraphChange, Adopt and Fork, or give another RunID")
	res, err := kahn.Execute(t.Context(), g, nop, db, id, kahn.EarlySignals(map[string]any{"ask": 1}))
	require.NoError(t, err)
	_, err = kahn.Execute(t.Context(), g, nop, db, id)
	require.EqualError(t, err, `the run has ended: run "1" is completed: see ReadResult and Redrive, or give another RunID`)
	_, err = kahn.Execute(t.Context(), g, nop, kahn.Resume(res.Snapshot()))
	require.EqualError(t, err, `the run has ended: completed: see Redrive`)
}
