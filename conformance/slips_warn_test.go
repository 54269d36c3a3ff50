package conformance_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// named is an evaluator. Each word of a text is the id of a node that the text reads, but a text that begins with "?" does not report its nodes.
// Every text is true.
type named struct{}

func (named) Parse(text string) (kahn.Expression, error) {
	if text[0] == '?' {
		return silent{}, nil
	}
	return namedNode(text), nil
}

type silent struct{}

func (silent) Evaluate(context.Context, kahn.View) (any, error) { return true, nil }

const unusedText = "nothing uses its answer: none of its edges has a label or a Param, and no guard or test names it"

// A graph is valid, but probably contains a mistake: its plan and the Result of each run have a warning, with every driver.
func TestWarningsOfGraphs(t *testing.T) {
	t.Parallel()
	yes := kahn.If("ok?", func(kahn.View) (bool, error) { return true, nil })
	declared := kahn.Node{ID: "ok?", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"approved", "rejected"}}}
	early := func(join kahn.Join, ports ...kahn.Port) *kahn.Graph {
		return graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "sum", Join: join, Ports: ports, In: []kahn.Edge{{From: "a", Param: "x"}, {From: "b", Param: "y"}, {From: "a", Param: "z"}, {From: "b", Param: "z"}}})
	}
	text := func(g *kahn.Graph) *kahn.Graph { g.Evaluator = named{}; return g }
	looks := func(kahn.View) (bool, error) { return true, nil }
	loop := func(l kahn.Loop) *kahn.Graph {
		l.MaxIterations = 3
		return text(graph(kahn.Node{ID: "loop", Loop: &l, Sub: graph(yes, after("x", "ok?"))}))
	}
	both := func(sum kahn.Node, others ...kahn.Node) *kahn.Graph { // a and b both deliver the parameter x of sum
		sum.ID, sum.In = "sum", append([]kahn.Edge{{From: "a", Param: "x"}, {From: "b", Param: "x"}}, sum.In...)
		for _, id := range []string{"a", "b"} {
			if !slices.ContainsFunc(others, func(n kahn.Node) bool { return n.ID == id }) {
				others = append(others, kahn.Node{ID: id})
			}
		}
		return graph(append(others, sum)...)
	}
	past := func(edge kahn.Edge, send kahn.Node, others ...kahn.Node) *kahn.Graph { // send takes the rows of split, which is on a branch
		edge.Param = "rows"
		send.ID, send.In = "send", append([]kahn.Edge{edge, {From: "ok?"}}, send.In...)
		return graph(append(others, yes, branch("split", "ok?", "true"), after("mid", "split"), send)...)
	}
	const absentText = `node "send": bad edge: it lacks the parameter "rows" whenever "split" is skipped, since "split" is on a branch: give the edge a Default, or declare a port "rows" that is not required`
	splitRows := kahn.Edge{From: "split", DataOnly: true}
	const lostText = `node "sum": merge conflict: "a", "b" deliver the parameter "x", and all values but the last are lost: set Merge, or set it to last_write_wins if you want only the last value`
	const earlyText = `node "sum": bad join: any_succeeded would let it run early, but "a", "b" feed its required ports, and it waits for all of them: join by all_done_min_one to take what succeeded`
	for _, c := range []struct {
		name    string
		g       *kahn.Graph
		warning string // "" if there is no warning
		is      error
	}{
		{"5 If with After instead of Label", graph(yes, after("x", "ok?")), `node "ok?": ` + unusedText, kahn.ErrNoMatch},
		{"5 Switch", graph(kahn.Switch("c", func(kahn.View) (string, error) { return "a", nil }), after("x", "c")), `node "c": ` + unusedText, kahn.ErrNoMatch},
		{"5 a step that routes", graph(kahn.Node{ID: "c", Routes: true}, after("x", "c")), `node "c": ` + unusedText, kahn.ErrNoMatch},
		{"5 a condition", graph(kahn.Node{ID: "c", Kind: kahn.KindCondition}, after("x", "c")), `node "c": ` + unusedText, kahn.ErrNoMatch},
		{"5 a text", text(graph(kahn.Node{ID: "c", TestExpr: "?"}, after("x", "c"))), `node "c": ` + unusedText, kahn.ErrNoMatch},
		{"5 a gate with choices", graph(declared, after("x", "ok?")), `node "ok?": ` + unusedText, kahn.ErrNoMatch},
		{"5 a catch edge beside", graph(yes, after("x", "ok?"), kahn.Node{ID: "h", In: []kahn.Edge{{From: "ok?", On: kahn.OnFailure}}}), `node "ok?": ` + unusedText, kahn.ErrNoMatch},
		{"5 an edge into the end beside", graph(yes, after("x", "ok?"), kahn.Node{ID: "end", Kind: kahn.KindEnd, After: []string{"ok?"}}), `node "ok?": ` + unusedText, kahn.ErrNoMatch},
		{"5 a text that names another", text(graph(yes, kahn.Node{ID: "a"}, kahn.Node{ID: "x", WhenExpr: "a", After: []string{"ok?", "a"}})), `node "ok?": ` + unusedText, kahn.ErrNoMatch},
		{"5 a function before it", graph(kahn.Node{ID: "a", When: looks}, kahn.If("ok?", looks, "a"), after("x", "ok?")), `node "ok?": ` + unusedText, kahn.ErrNoMatch},
		{"5 inside", graph(kahn.Node{ID: "s", Sub: graph(yes, after("x", "ok?"))}), `in "s": node "ok?": ` + unusedText, kahn.ErrNoMatch},
		{"5 inside a loop", loop(kahn.Loop{UntilExpr: "x"}), `in "loop": node "ok?": ` + unusedText, kahn.ErrNoMatch},
		{"both outcomes", graph(kahn.Node{ID: "a"}, kahn.Node{ID: "x", After: []string{"a"}, In: []kahn.Edge{{From: "a", On: kahn.OnFailure}}}),
			`node "x": bad edge: it runs whether "a" succeeds or fails, since edges for both outcomes lead here: remove one of them, or use always`, kahn.ErrBadEdge},
		{"both outcomes, with parameters", graph(kahn.Node{ID: "a"}, kahn.Node{ID: "x", In: []kahn.Edge{{From: "a", Param: "out"}, {From: "a", On: kahn.OnFailure, Param: "err"}}}), "", nil},
		{"success and one cause", graph(kahn.Node{ID: "a"}, kahn.Node{ID: "x", After: []string{"a"}, In: []kahn.Edge{{From: "a", On: kahn.OnFailure, Causes: []kahn.CauseKind{kahn.CauseTimeout}}}}), "", nil},
		{"3 two required ports", early(kahn.AnySucceeded, kahn.Port{Name: "x", Required: true}, kahn.Port{Name: "y", Required: true}), earlyText, kahn.ErrBadJoin},
		{"3 one port that two feed", early(kahn.AnySucceeded, kahn.Port{Name: "z", Required: true, Default: 1}), earlyText, kahn.ErrBadJoin},
		{"a retry without attempts", graph(kahn.Node{ID: "a", Retry: kahn.Retry{InitialDelay: time.Second}}), `node "a": bad value: retry: MaxAttempts is not set: there is a single attempt`, kahn.ErrBadValue},
		{"a retry of some causes without attempts", graph(kahn.Node{ID: "a", Retry: kahn.Retry{RetryOn: []kahn.CauseKind{kahn.CauseTimeout}}}), `node "a": bad value: retry: MaxAttempts is not set: there is a single attempt`, kahn.ErrBadValue},
		{"a first delay above its bound", graph(kahn.Node{ID: "a", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Minute, MaxDelay: time.Second}}),
			`node "a": bad value: retry: MaxDelay 1s is shorter than InitialDelay 1m0s, and bounds every delay`, kahn.ErrBadValue},
		{"a retry inside", graph(kahn.Node{ID: "m", Params: map[string]any{"l": []int{1}}, Map: &kahn.Map{Over: "l"}, Sub: graph(kahn.Node{ID: "a", Retry: kahn.Retry{MaxDelay: time.Second}})}),
			`in "m": node "a": bad value: retry: MaxAttempts is not set: there is a single attempt`, kahn.ErrBadValue},
		{"a retry of items", graph(kahn.Node{ID: "m", Params: map[string]any{"l": []int{1}}, Map: &kahn.Map{Over: "l"}, Retry: kahn.Retry{MaxDelay: time.Second}}),
			`node "m": bad value: retry: MaxAttempts is not set: there is a single attempt`, kahn.ErrBadValue},
		{"two values for one parameter", both(kahn.Node{}), lostText, kahn.ErrMergeConflict},
		{"two values for one parameter, joined as by default", both(kahn.Node{Join: kahn.AllSucceeded}), lostText, kahn.ErrMergeConflict},
		{"two values for one parameter, far behind", both(kahn.Node{}, after("b", "z"), after("z", "y"), kahn.Node{ID: "y"}), lostText, kahn.ErrMergeConflict},
		{"two values and one of a branch", both(kahn.Node{In: []kahn.Edge{{From: "c", Param: "x"}}}, kahn.Node{ID: "c", When: looks}), lostText, kahn.ErrMergeConflict},
		{"two values, one that is data alone", graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "sum", In: []kahn.Edge{{From: "a", Param: "x", DataOnly: true}, {From: "b", Param: "x"}}}), lostText, kahn.ErrMergeConflict},
		{"data from a branch", past(splitRows, kahn.Node{}), absentText, kahn.ErrBadEdge},
		{"data from behind a branch", past(kahn.Edge{From: "mid", DataOnly: true}, kahn.Node{}), strings.ReplaceAll(absentText, "split", "mid"), kahn.ErrBadEdge},
		{"data from two nodes of a branch", past(splitRows, kahn.Node{Merge: kahn.MergeArray, In: []kahn.Edge{{From: "mid", DataOnly: true, Param: "rows"}}}), absentText, kahn.ErrBadEdge},
		{"data from a branch, inside", graph(subgraph("s", past(splitRows, kahn.Node{}))), `in "s": ` + absentText, kahn.ErrBadEdge},

		{"data from a branch, or a default", past(kahn.Edge{From: "split", DataOnly: true, Default: 1}, kahn.Node{}), "", nil},
		{"data from a branch, for a port", past(splitRows, kahn.Node{Ports: []kahn.Port{{Name: "rows"}}}), "", nil},
		{"data from a branch, or a parameter", past(splitRows, kahn.Node{Params: map[string]any{"rows": 1}}), "", nil},
		{"data from a branch, without which the node does not run", past(kahn.Edge{From: "split"}, kahn.Node{}), "", nil},
		{"data from a branch, or from elsewhere", past(splitRows, kahn.Node{In: []kahn.Edge{{From: "a", Param: "rows", DataOnly: true, Merge: kahn.MergeArray}}}, kahn.Node{ID: "a"}), "", nil},
		{"data from a branch, for that branch", past(splitRows, kahn.Node{In: []kahn.Edge{{From: "ok?", Label: "true"}}}), "", nil},
		{"data from a branch, behind that branch", past(splitRows, kahn.Node{After: []string{"mid"}}), "", nil},
		{"data from a node that may be skipped by a guard", past(kahn.Edge{From: "g", DataOnly: true}, kahn.Node{}, kahn.Node{ID: "g", When: looks}), "", nil},
		{"data from a node that joins a branch", past(kahn.Edge{From: "g", DataOnly: true}, kahn.Node{}, kahn.Node{ID: "g", Join: kahn.AllDone, After: []string{"mid"}}), "", nil},
		{"a policy that keeps the default away", graph(kahn.Node{ID: "a", Retry: kahn.Retry{RetryOn: []kahn.CauseKind{}}}), "", nil},
		{"a single attempt that is asked for", graph(kahn.Node{ID: "a", Retry: kahn.Retry{MaxAttempts: 1, InitialDelay: time.Minute, MaxDelay: time.Second}}), "", nil},
		{"no bound of delays", graph(kahn.Node{ID: "a", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Minute, MaxDelay: -1}}), "", nil},
		{"the last value, as asked for by the node", both(kahn.Node{Merge: kahn.MergeLast}), "", nil},
		{"the last value, as asked for by an edge", graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "sum", In: []kahn.Edge{{From: "a", Param: "x"}, {From: "b", Param: "x", Merge: kahn.MergeLast}}}), "", nil},
		{"all values", both(kahn.Node{Merge: kahn.MergeArray}), "", nil},
		{"values of which one may fail", both(kahn.Node{Join: kahn.AllDoneMinOne}), "", nil},
		{"the first value", both(kahn.Node{Join: kahn.AnySucceeded}), "", nil},
		{"a value behind a guard", both(kahn.Node{}, kahn.Node{ID: "b", When: looks}), "", nil},
		{"a value that is disabled", both(kahn.Node{}, kahn.Node{ID: "b", Disabled: true}), "", nil},
		{"a value behind a required port", both(kahn.Node{}, kahn.Node{ID: "b", Ports: []kahn.Port{{Name: "p", Required: true}}, Params: map[string]any{"p": 1}}), "", nil},
		{"a value of a branch", both(kahn.Node{}, yes, kahn.Node{ID: "b", In: []kahn.Edge{{From: "ok?", Label: "true"}}}), "", nil},
		{"a value behind a branch", both(kahn.Node{}, yes, kahn.Node{ID: "z", In: []kahn.Edge{{From: "ok?", Label: "true"}}}, after("b", "z")), "", nil},
		{"a value instead of another", both(kahn.Node{}, kahn.Node{ID: "b", In: []kahn.Edge{{From: "a", On: kahn.OnFailure}}}), "", nil},
		{"values of triggers", both(kahn.Node{}, after("a", "t"), after("b", "u"), kahn.Node{ID: "t", Kind: kahn.KindTrigger}, kahn.Node{ID: "u", Kind: kahn.KindTrigger}), "", nil},
		{"two ports of one node", graph(kahn.Node{ID: "a"}, kahn.Node{ID: "sum", In: []kahn.Edge{{From: "a", Key: "p", Param: "x"}, {From: "a", Key: "q", Param: "x"}}}), "", nil},
		{"a label", graph(yes, after("x", "ok?"), kahn.Node{ID: "y", In: []kahn.Edge{{From: "ok?", Label: "true"}}}), "", nil},
		{"a label into the end", graph(yes, after("x", "ok?"), kahn.Node{ID: "end", Kind: kahn.KindEnd, In: []kahn.Edge{{From: "ok?", Label: "true"}}}), "", nil},
		{"a parameter", graph(yes, kahn.Node{ID: "x", In: []kahn.Edge{{From: "ok?", Param: "big"}}}), "", nil},
		{"data", graph(yes, kahn.Node{ID: "x", In: []kahn.Edge{{From: "ok?", DataOnly: true}}}), "", nil},
		{"a leaf", graph(yes), "", nil},
		{"before the end node alone", graph(yes, kahn.Node{ID: "end", Kind: kahn.KindEnd, After: []string{"ok?"}}), "", nil},
		{"a gate that anything opens", graph(kahn.Node{ID: "ok?", Kind: kahn.KindGate}, after("x", "ok?")), "", nil},
		{"a gate whose answer is data", graph(func() kahn.Node { n := declared; n.Outputs = []string{"output"}; return n }(), after("x", "ok?")), "", nil},
		{"a guard may look", graph(yes, kahn.Node{ID: "x", When: looks, After: []string{"ok?"}}), "", nil},
		{"a test far away may look", graph(yes, after("x", "ok?"), kahn.If("c", looks, "x")), "", nil},
		{"a text names it", text(graph(yes, after("x", "ok?"), kahn.Node{ID: "y", WhenExpr: "ok?", After: []string{"x"}})), "", nil},
		{"a text may name it", text(graph(yes, kahn.Node{ID: "x", WhenExpr: "?", After: []string{"ok?"}})), "", nil},
		{"a computed value", text(graph(kahn.Node{ID: "c", Kind: "expression", TestExpr: "?", Join: kahn.AllSucceeded}, after("x", "c"))), "", nil},
		{"the text of a loop names it", loop(kahn.Loop{UntilExpr: "ok?"}), "", nil},
		{"the text of a loop may name it", loop(kahn.Loop{UntilExpr: "?"}), "", nil},
		{"the test of a loop may look", loop(kahn.Loop{Until: looks}), "", nil},
		{"one required port", early(kahn.AnySucceeded, kahn.Port{Name: "x", Required: true}, kahn.Port{Name: "y"}), "", nil},
		{"a rule that waits", early(kahn.AllDoneMinOne, kahn.Port{Name: "x", Required: true}, kahn.Port{Name: "y", Required: true}), "", nil},
	} {
		plan, err := c.g.Compile()
		require.NoError(t, err, c.name)
		requireWarning(t, c.name, plan.Warnings(), c.warning, c.is)
		signals := map[string]any{}
		if ref, ok := plan.Ref("ok?"); ok && plan.Node(ref).Kind == kahn.KindGate {
			signals["ok?"] = "approved"
		}
		for driver, drive := range drivers {
			res, err := drive(t, c.g, nop, kahn.EarlySignals(signals))
			require.NoError(t, err, "%s, %s", c.name, driver)
			requireWarning(t, c.name+", "+driver, res.Warnings, c.warning, c.is)
		}
	}
}

func requireWarning(t *testing.T, name string, warnings []error, text string, is error) {
	t.Helper()
	if text == "" {
		require.Empty(t, warnings, name)
		return
	}
	require.Len(t, warnings, 1, name)
	require.EqualError(t, warnings[0], text, name)
	require.ErrorIs(t, warnings[0], is, name)
	var problem *kahn.Problem
	require.True(t, errors.As(warnings[0], &problem), name)
	require.NotEmpty(t, problem.Node, name)
}

// Warnings about the graph as a whole name no node.
func TestWarningsOfTheWholeGraph(t *testing.T) {
	t.Parallel()
	defaults := graph(kahn.Node{ID: "a"})
	defaults.Defaults.Retry = kahn.Retry{InitialDelay: time.Second}
	group := func(db kahn.Group) *kahn.Graph {
		g := graph(kahn.Node{ID: "a", Groups: []string{"db"}})
		db.Name = "db"
		g.Groups = []kahn.Group{{Name: "disk", Limit: 1}, db}
		return g
	}
	const bounds = `group "db": bad value: the group has no effect unless Runner.Shared bounds it: it has no limit and no rate, and a failure in it does not stop its other nodes`
	for _, c := range []struct {
		name           string
		g              *kahn.Graph
		warning, field string
	}{
		{"the default policy", defaults, `Defaults: bad value: retry: MaxAttempts is not set: there is a single attempt`, "Defaults.Retry.MaxAttempts"},
		{"a group", group(kahn.Group{}), bounds, "Groups[1]"},
		{"a group inside", graph(kahn.Node{ID: "s", Sub: group(kahn.Group{})}), `in "s": ` + bounds, "Groups[1]"},
		{"a limit", group(kahn.Group{Limit: 1}), "", ""},
		{"a rate", group(kahn.Group{Rate: kahn.Rate{Starts: 1, Per: time.Second}}), "", ""},
		{"members that stop", group(kahn.Group{CancelOnFailure: true}), "", ""},
	} {
		plan, err := c.g.Compile()
		require.NoError(t, err, c.name)
		for driver, drive := range drivers {
			res, err := drive(t, c.g, nop)
			require.NoError(t, err, "%s, %s", c.name, driver)
			require.Equal(t, plan.Warnings(), res.Warnings, "%s, %s", c.name, driver)
		}
		if c.warning == "" {
			require.Empty(t, plan.Warnings(), c.name)
			continue
		}
		require.Len(t, plan.Warnings(), 1, c.name)
		require.EqualError(t, plan.Warnings()[0], c.warning, c.name)
		require.ErrorIs(t, plan.Warnings()[0], kahn.ErrBadValue, c.name)
		var problem *kahn.Problem
		require.ErrorAs(t, plan.Warnings()[0], &problem, c.name)
		require.Equal(t, c.field, problem.Field, c.name)
	}
}

// The graph that a step returns causes the same warnings.
func TestWarningsOfExpansions(t *testing.T) {
	t.Parallel()
	yes := kahn.If("ok?", func(kahn.View) (bool, error) { return true, nil })
	g := graph(kahn.Node{ID: "x", Do: func(context.Context, *kahn.Step) (any, error) {
		return nil, kahn.Expand(graph(yes, kahn.Node{ID: "y", After: []string{"ok?"}, Do: nop}), nil, nil)
	}})
	res, err := kahn.Execute(t.Context(), g, nop)
	require.NoError(t, err)
	requireWarning(t, "expansion", res.Warnings, `in "x": node "ok?": `+unusedText, kahn.ErrNoMatch)
}

// TestWarningsOfTimeoutEdges: if a gate's time is up, an edge labelled "timeout" is taken only if OnTimeout says so. Otherwise there is a
// warning.
func TestWarningsOfTimeoutEdges(t *testing.T) {
	t.Parallel()
	const text = `node "g": bad value: when its timeout passes, the gate fails, so the edge labelled "timeout" is never taken: set OnTimeout to label`
	for name, row := range map[string]struct {
		gate *kahn.Gate
		want []string
	}{
		"it fails":   {&kahn.Gate{Timeout: time.Hour}, []string{text}},
		"it answers": {&kahn.Gate{Timeout: time.Hour, OnTimeout: kahn.GateLabel}, nil},
		"no timeout": {&kahn.Gate{}, nil},
		"declared":   {&kahn.Gate{Timeout: time.Hour, Choices: []string{"timeout"}}, nil},
	} {
		late := []kahn.Edge{{From: "g", Label: "timeout"}}
		p := compiled(t, graph(kahn.Node{ID: "g", Kind: kahn.KindGate, Gate: row.gate}, kahn.Node{ID: "x", In: late}, kahn.Node{ID: "y", In: late}))
		var got []string
		for _, w := range p.Warnings() {
			require.ErrorIs(t, w, kahn.ErrBadValue)
			got = append(got, w.Error())
		}
		require.Equal(t, row.want, got, name)
	}
}

// TestTextsOfSlips tests details: a stored gate without Info is read without Info, Why says that no answer came before a gate's deadline, and
// the error about a pointer names the registered type behind the pointer.
func TestTextsOfSlips(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, g := new(store.Memory), graph(kahn.Node{ID: "g", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour}})
		run, err := kahn.Start(t.Context(), g, nil, kahn.Durable(db), kahn.RunID("r"))
		require.NoError(t, err)
		synctest.Wait()
		stored, err := kahn.ReadRun(t.Context(), db, "r")
		require.NoError(t, err)
		require.Len(t, stored.Waiting, 1)
		require.Nil(t, stored.Waiting[0].Info)
		res, err := run.Wait()
		require.Error(t, err)
		y, err := res.Why("g")
		require.NoError(t, err)
		require.Equal(t, "no answer came in time", y.String())
	})
	type order struct{ ID int }
	g := graph(kahn.Node{ID: "a", Do: func(context.Context, *kahn.Step) (any, error) { return &order{1}, nil }})
	_, err := kahn.Execute(t.Context(), g, nil, kahn.Durable(new(store.Memory)), kahn.Encoding(kahn.Types{"order": order{}}))
	require.ErrorContains(t, err, "type *conformance_test.order is not registered: but conformance_test.order is: return a conformance_test.order in place of the pointer, or register the pointer")
}
