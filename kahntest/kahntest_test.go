package kahntest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

var errBusy = errors.New("busy")

func TestParse(t *testing.T) {
	nodes, edges, err := kahntest.Parse("J{any,sat} A>B B-[yes]>J A-!>H A-*>Z A~>Z D J{req:B} Z{clean} B{when:0,up:prop} K{k3}  K gate{gate} gate-[no]>K")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, n := range nodes {
		ids = append(ids, n.ID)
	}
	if got := strings.Join(ids, " "); got != "A B J H Z D K gate" {
		t.Errorf("declared in the order %s", got)
	}
	want := []kahn.Edge{
		{From: "A", To: "B"}, {From: "B", To: "J", Label: "yes", Param: "from B"}, {From: "A", To: "H", On: kahn.OnFailure},
		{From: "A", To: "Z", On: kahn.OnAlways}, {From: "A", To: "Z", DataOnly: true}, {From: "gate", To: "K", Label: "no"},
	}
	if fmt.Sprint(edges) != fmt.Sprint(want) {
		t.Errorf("edges %v\nexpected %v", edges, want)
	}
	b, j, z, k, gate := nodes[1], nodes[2], nodes[4], nodes[6], nodes[7]
	if !b.Routes || b.When == nil || b.OnUpstreamFailure != kahn.UpstreamPropagate || !z.Cleanup || k.Join != kahn.AtLeast(3) ||
		j.Join != kahn.AnySucceeded || j.SkipMode != kahn.SkipSatisfy || len(j.Ports) != 1 || gate.Kind != kahn.KindGate || gate.Routes {
		t.Errorf("%+v", nodes)
	}
	for _, bad := range []string{"A>", ">A", "A>B>C", "A{any}", "A A{k0}", "A A{req:B}", "A A{nonsense}", "A}", "A-[x>B", "A>{"} {
		if _, _, err := kahntest.Parse(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	const forms = ": edges are written A>B, A-[label]>B, A-!>B, A-*>B, A~>B, without spaces"
	for text, want := range map[string]string{
		"A->B":          `"A->B" is neither a node nor an edge; did you mean "A>B"?` + forms,
		"A=>B":          `"A=>B" is neither a node nor an edge; did you mean "A>B"?` + forms,
		"A-->B":         `did you mean "A>B"?`,
		"A→B":           `did you mean "A>B"?`,
		"A -> B":        `"->" is neither a node nor an edge` + forms,
		"A A{anny}":     `unknown option "anny"; did you mean "any"? (known: 1done, 1fail, all,`,
		"fetch F{any}":  `"F{any}" has options, but no other word names the node "F" (known: fetch)`,
		"A any}":        `"any}" is neither a node nor an edge: edges`,
		"A{off}":        `"A{off}" has options, but no other word names the node "A": write "A A{off}"`,
		"A>B{off}":      `"A>B{off}" is neither a node nor an edge: the options of a node are a word of their own: write "A>B B{off}"`,
		"A-[x]>B{off}":  `write "A-[x]>B B{off}"`,
		"A A{off, any}": `"A{off," is neither a node nor an edge: options are written A{opt,opt}, without spaces`,
	} {
		if _, _, err := kahntest.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nexpected %s", text, err, want)
		}
	}
}

func TestStatuses(t *testing.T) {
	g := kahntest.Graph(t, "A>B A-!>C D{off} D>E F")
	inner := kahntest.Graph(t, "x>y")
	g.Add(kahn.Node{ID: "S", Sub: inner}, kahn.Node{ID: "M", Sub: inner, Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []int{1, 2}}})
	steps := &kahntest.Script{Acts: map[string][]kahntest.Act{"F": {{Err: errBusy}}, "M[1]/y": {{Err: kahn.Skip("enough")}}}}
	r := kahntest.Run(t, g, steps.Step)
	const all = "A:ok B:ok C:S/br D:S/ann E:S/up F:F S:ok M:ok"
	if got := kahntest.Statuses(r.Result); got != all {
		t.Errorf("%s\nexpected %s", got, all)
	}
	for _, row := range []struct{ want, problem string }{
		{all, ""},
		{"M:ok S:ok F:F E:S/up D:S/ann C:S/br B:ok A:ok S/x:ok M[0]/y:ok M[1]/y:S/self M[1]:ok", ""},
		{"B:ok ...", ""},
		{"...", ""},
		{"A:F B:ok F:ok ...", "A is ok, expected F\nF is F, expected ok (node \"F\": step_error: busy)"},
		{"C:S/when ...", "C is S/br, expected S/when (condition_branch"},
		{"S/x:F ...", "S/x is ok, expected F"},
		{"S/z:ok Z:ok M[2]:ok ...", "S/z: there is no such node\nZ: there is no such node\nM[2]: there is no such node"},
		{"A:ok A:ok ...", "A is named twice"},
		{"A:okk ...", `A: unknown status "okk"; did you mean "ok"? (known: idle, waiting, ready, running, retrying, suspended, ok, F, X, C, S/ann, S/when, S/br, S/null, S/up, S/pf, S/rule, S/self, S/superseded)`},
		{"C:S/bt ...", `C: unknown status "S/bt"; did you mean "S/br"?`},
		{"A:completed C:S/condition_branch B:running ...", "A: the status \"completed\" is written ok\nC: the status \"S/condition_branch\" is written S/br\nB is ok, expected running"},
		{"A ...", `"A" is not of the form node:status`},
		{strings.TrimSuffix(all, " M:ok"), "M is ok, expected nothing"},
	} {
		err := kahntest.CompareStatuses(r.Result, row.want)
		if row.problem == "" && err != nil || row.problem != "" && (err == nil || !strings.Contains(err.Error(), row.problem)) {
			t.Errorf("%s: %v, expected %q", row.want, err, row.problem)
		}
	}
	kahntest.RequireStatuses(t, r.Result, all)
	if text := fails(func(t testing.TB) { kahntest.RequireStatuses(t, r.Result, "A:F ...") }); !strings.HasPrefix(text, "A is ok, expected F\nactual   A:ok B:ok") {
		t.Errorf("it said %q", text)
	}
}

// CompareStatuses and RequireCalls accept ids with spaces: they compare the text with the ids of the graph.
func TestIDsWithSpaces(t *testing.T) {
	g := new(kahn.Graph).Add(kahn.Node{ID: "ask"}, kahn.Node{ID: "ask the bank", After: []string{"ask"}}, kahn.Node{ID: "a  tab\t: b", After: []string{"ask the bank"}},
		kahn.Node{ID: "S", After: []string{"a  tab\t: b"}, Sub: new(kahn.Graph).Add(kahn.Node{ID: "go on"})})
	steps := &kahntest.Script{Acts: map[string][]kahntest.Act{"S/go on": {{Err: errBusy}}}}
	r := kahntest.Run(t, g, steps.Step)
	for _, row := range []struct{ want, problem string }{
		{kahntest.Statuses(r.Result), ""},
		{"  a  tab\t: b:ok\n\task the bank:ok S:F S/go on:F ask:ok\n", ""},
		{"ask the bank:F ...", "ask the bank is ok, expected F"},
		{"ask the bnak:ok S:F ...", "ask the bnak: there is no such node"},
		{"S/go of:F S:F ...", "S/go of: there is no such node"},
		{"ask S:F ...", `"ask" is not of the form node:status`},
		{"S:F ask the ...", "\"ask\" is not of the form node:status\n\"the\" is not of the form node:status"},
	} {
		text := ""
		if err := kahntest.CompareStatuses(r.Result, row.want); err != nil {
			text = err.Error()
		}
		if text != row.problem {
			t.Errorf("%q: %q, expected %q", row.want, text, row.problem)
		}
	}
	kahntest.RequireCalls(t, steps, "ask ask the bank a tab : b S/go on")
	if text := fails(func(t testing.TB) { kahntest.RequireCalls(t, steps, "ask ask the bank S/go on a tab : b") }); !strings.HasPrefix(text, "called   ask ask the bank") {
		t.Errorf("it said %q", text)
	}
}

// fails runs a part of a test that must fail, and returns its error messages.
func fails(f func(testing.TB)) string {
	tb := &failing{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(tb)
	}()
	<-done
	return strings.Join(tb.said, "\n")
}

type failing struct {
	testing.TB
	said []string
}

func (f *failing) Helper()                  {}
func (f *failing) Context() context.Context { return context.Background() }
func (f *failing) Error(args ...any)        { f.said = append(f.said, fmt.Sprint(args...)) }
func (f *failing) Errorf(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}
func (f *failing) Fatal(args ...any)                 { f.Error(args...); runtime.Goexit() }
func (f *failing) Fatalf(format string, args ...any) { f.Errorf(format, args...); runtime.Goexit() }

func TestScript(t *testing.T) {
	kahntest.InFakeTime(t, func(t *testing.T) {
		nodes, edges, err := kahntest.Parse("A>B C>B D")
		if err != nil {
			t.Fatal(err)
		}
		nodes[0].Retry = kahn.Retry{MaxAttempts: 3, InitialDelay: time.Second, Jitter: kahn.JitterNone}
		nodes[1].Params = map[string]any{"p": 1}
		nodes[3].Timeout = time.Minute
		steps := &kahntest.Script{Acts: map[string][]kahntest.Act{
			"A": {{Err: errBusy, Delay: time.Second}, {Err: errBusy}, {Value: "rows"}},
			"C": {{Panic: "oh"}},
			"D": {{Delay: time.Hour}},
		}}
		r := kahntest.Run(t, new(kahn.Graph).Add(nodes...).Connect(edges...), steps.Step, kahn.Limit(1))
		kahntest.RequireStatuses(t, r.Result, "A:ok B:X C:F D:F")
		kahntest.RequireCalls(t, steps, "A C D A A")
		if n, _ := r.Node("C"); n.Cause.Kind != kahn.CausePanic {
			t.Errorf("C: %v", n.Err)
		}
		if n, _ := r.Node("D"); n.Cause.Kind != kahn.CauseTimeout || n.Duration != time.Minute {
			t.Errorf("D: %v after %v", n.Err, n.Duration)
		}
		calls := steps.CallsOf("A")
		if len(calls) != 3 || calls[2].Attempt != 3 || len(steps.CallsOf("B")) != 0 {
			t.Errorf("%v", calls)
		}
		if text := fails(func(t testing.TB) { kahntest.RequireCalls(t, steps, "A C") }); text != "called   A C D A A\nexpected A C" {
			t.Errorf("it said %q", text)
		}
	})
}

// A script with acts for an unknown node fails the test that runs the script.
func TestScriptCheck(t *testing.T) {
	inner := kahntest.Graph(t, "x>y")
	list := map[string]any{"list": []int{1, 2}}
	g := kahntest.Graph(t, "charge>ship G G{gate}").Add(kahn.Node{ID: "S1", Sub: inner}, kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: list},
		kahn.Node{ID: "N", Sub: inner, Map: &kahn.Map{Over: "list"}, Params: list},
		kahn.Node{ID: "L", Sub: inner, Loop: &kahn.Loop{MaxIterations: 2, While: func(kahn.View) (bool, error) { return false, nil }}})
	const all = " (known: charge, ship, S1/x, S1/y, M[0], N[0]/x, N[0]/y, L#1/x, L#1/y)"
	for path, want := range map[string]string{
		"charge": "", "S1/y": "", "M[1]": "", "N[12]/x": "", "L#2/y": "",
		"charge/of/a/graph/that/it/returns": "", "M[1]/too": "",
		"chagre": `"chagre"; did you mean "charge"?` + all,
		"S1/z":   `"S1/z"; did you mean "S1/x"?` + all,
		"S1":     `"S1"`, "G": `"G"` + all, "M": `"M"`, "L/x": `"L/x"` + all, "N[0]": `"N[0]"`,
	} {
		steps := &kahntest.Script{Acts: map[string][]kahntest.Act{path: {{}}}}
		err := steps.Check(g)
		if want == "" && err != nil || want != "" && (!errors.Is(err, kahn.ErrUnknownNode) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, expected %s", path, err, want)
		}
	}
	g = kahntest.Graph(t, "charge>ship")
	for path, want := range map[string]string{"charge": "", "chagre": `Script.Acts: unknown node that the step function performs: "chagre"; did you mean "charge"? (known: charge, ship)`} {
		steps := &kahntest.Script{Acts: map[string][]kahntest.Act{path: {{}}}}
		if text := fails(func(t testing.TB) { kahntest.Run(t, g, steps.Step) }); text != want {
			t.Errorf("%s: %q, expected %q", path, text, want)
		}
	}
	for range 50 {
		g = new(kahn.Graph).Add(kahn.Node{ID: "l", Sub: g}, kahn.Node{ID: "r", Sub: g})
	}
	if err := (&kahntest.Script{Acts: map[string][]kahntest.Act{"none": {{}}}}).Check(g); err != nil {
		t.Errorf("a graph with more paths than can be listed: %v", err)
	}
}

// Compensations follow the script, both if the step function performs them (CompensateBy) and if the script's method Undo does.
func TestScriptUndos(t *testing.T) {
	errShut := errors.New("shut")
	kahntest.InFakeTime(t, func(t *testing.T) {
		steps := &kahntest.Script{
			Acts: map[string][]kahntest.Act{"ship": {{Err: errBusy}}, "M[0]": {{Value: "first"}}},
			Undos: map[string][]kahntest.Act{
				"charge":  {{Err: errBusy}, {Err: errBusy}, {}},
				"reserve": {{Delay: time.Minute, Err: kahn.Permanent(errShut)}},
				"M[1]":    {{Err: kahn.Permanent(errShut)}},
				"S":       {{Do: func(_ context.Context, s *kahn.Step) (any, error) { _, _ = s.Compensated(); return nil, nil }}},
			},
		}
		by := &kahn.CompensateBy{Kind: "undo"}
		g := new(kahn.Graph).Add(
			kahn.Node{ID: "reserve", CompensateBy: by},
			kahn.Node{ID: "charge", Compensate: steps.Undo, CompensateRetry: kahn.Retry{InitialDelay: time.Second, Multiplier: 1, Jitter: kahn.JitterNone}, After: []string{"reserve"}},
			kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []int{1, 2}}, CompensateBy: by, After: []string{"charge"}},
			kahn.Node{ID: "S", Sub: kahntest.Graph(t, "x"), CompensateBy: by, After: []string{"M"}},
			kahn.Node{ID: "ship", Compensate: steps.Undo, After: []string{"S"}},
		)
		r := kahntest.Run(t, g, steps.Step, kahn.Limit(1))
		kahntest.RequireStatuses(t, r.Result, "reserve:ok charge:ok M:ok S:ok ship:F")
		if !errors.Is(r.Err, errShut) || !errors.Is(r.Err, kahn.ErrCompensation) || r.Duration != time.Minute+2*time.Second {
			t.Errorf("%v after %v", r.Err, r.Duration)
		}
		for id, want := range map[string]kahn.Compensation{"reserve": kahn.CompensationFailed, "charge": kahn.CompensationDone, "S": kahn.CompensationDone, "ship": kahn.CompensationDone} {
			if n, _ := r.Node(id); n.Compensation != want {
				t.Errorf("%s: %v, expected %v", id, n.Compensation, want)
			}
		}
		calls := slices.DeleteFunc(steps.Calls(), func(c kahntest.Call) bool { return strings.HasPrefix(c.Node, "M") }) // items are undone at the same time
		seq := &strings.Builder{}
		for _, c := range calls {
			fmt.Fprint(seq, c.Node, " ", c.Attempt, " ", c.Undo, "; ")
		}
		const want = "reserve 1 false; charge 1 false; S/x 1 false; ship 1 false; ship 1 true; S 1 true; charge 1 true; charge 2 true; charge 3 true; reserve 1 true; "
		if seq.String() != want {
			t.Errorf("called   %s\nexpected %s", seq, want)
		}
		if items := steps.CallsOf("M[1]"); len(items) != 2 || items[0].Undo || !items[1].Undo {
			t.Errorf("%v", items)
		}
	})
	steps := &kahntest.Script{Acts: map[string][]kahntest.Act{"B": {{Err: errBusy}}}}
	g := new(kahn.Graph).Add(kahn.Node{ID: "A", CompensateBy: &kahn.CompensateBy{Kind: "undo"}}, kahn.Node{ID: "B", After: []string{"A"}})
	kahntest.Run(t, g, steps.Step)
	kahntest.RequireCalls(t, steps, "A B undo:A")
	undone := 0
	steps = &kahntest.Script{Acts: steps.Acts, Else: func(_ context.Context, s *kahn.Step) (any, error) {
		if s.Kind() == "undo" {
			undone++
		}
		return nil, nil
	}}
	kahntest.Run(t, g, steps.Step)
	if undone != 1 {
		t.Errorf("Else has undone %d nodes", undone)
	}
}

// A script with Undos for a node without a compensation fails the test.
func TestScriptCheckUndos(t *testing.T) {
	undo := func(context.Context, *kahn.Step) error { return nil }
	list := map[string]any{"list": []int{1}}
	inner := new(kahn.Graph).Add(kahn.Node{ID: "x", Compensate: undo}, kahn.Node{ID: "y"})
	expands := func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "charge", CompensateBy: &kahn.CompensateBy{Kind: "refund"}}, kahn.Node{ID: "ship"}, kahn.Node{ID: "E", Do: expands},
		kahn.Node{ID: "S", Sub: inner, Compensate: undo}, kahn.Node{ID: "M", Compensate: undo, Map: &kahn.Map{Over: "list"}, Params: list},
		kahn.Node{ID: "L", Sub: inner, Compensate: undo, Loop: &kahn.Loop{MaxIterations: 2, While: func(kahn.View) (bool, error) { return false, nil }}})
	const all = " (known: charge, S/x, S, M[0], L#1/x, L)"
	for path, want := range map[string]string{
		"charge": "", "S": "", "S/x": "", "M[3]": "", "L": "", "L#2/x": "", "E/x": "",
		"chagre": `"chagre"; did you mean "charge"?` + all, "ship": `"ship"`, "S/y": `"S/y"`, "M": `"M"`, "L#1": `"L#1"`, "E": `"E"`,
	} {
		err := (&kahntest.Script{Undos: map[string][]kahntest.Act{path: {{}}}}).Check(g)
		if want == "" && err != nil || want != "" && (!errors.Is(err, kahn.ErrUnknownNode) || !strings.Contains(err.Error(), "Script.Undos: unknown node that has a Compensate: "+want)) {
			t.Errorf("%s: %v, expected %q", path, err, want)
		}
	}
}

func TestScriptElse(t *testing.T) {
	steps := &kahntest.Script{
		Acts: map[string][]kahntest.Act{"B": {{Do: func(_ context.Context, s *kahn.Step) (any, error) { v, _ := s.Upstream("A"); return v, nil }}}},
		Else: func(context.Context, *kahn.Step) (any, error) { return 42, nil },
	}
	g := kahntest.Graph(t, "A>B")
	if v, err := kahn.Output[int](kahntest.Run(t, g, steps.Step).Result, "B"); v != 42 || err != nil {
		t.Errorf("B = %v, %v", v, err)
	}
	if v, err := kahn.Output[string](kahntest.Run(t, g, (&kahntest.Script{}).Step).Result, "B"); v != "B" || err != nil {
		t.Errorf("B = %q, %v", v, err)
	}
	g.Add(kahn.Node{ID: "P", Params: map[string]any{"p": 7}})
	kahntest.Run(t, g, steps.Step)
	if calls := steps.CallsOf("P"); len(calls) != 1 || calls[0].Params["p"] != 7 || calls[0].Attempt != 1 {
		t.Errorf("%v", calls)
	}
}

func TestRunReports(t *testing.T) {
	g := kahntest.Graph(t, "A")
	text := fails(func(t testing.TB) {
		kahntest.Run(t, g, nil, kahn.TestMode{Mocks: map[string]kahn.Mock{"A": {}}, Assertions: []kahn.Assertion{kahn.AssertCalls("A", 2)}})
	})
	if text != `node "A": expected 2 calls: 1 calls` {
		t.Errorf("a failed assertion: %q", text)
	}
	if text := fails(func(t testing.TB) { kahntest.Run(t, g, nil) }); !strings.HasPrefix(text, "the run was refused: no step function") {
		t.Errorf("a refused run: %q", text)
	}
	if text := fails(func(t testing.TB) { kahntest.Graph(t, "A>B B>A") }); !strings.Contains(text, "cycle") {
		t.Errorf("a cycle: %q", text)
	}
	if text := fails(func(t testing.TB) { kahntest.Graph(t, "A>") }); !strings.Contains(text, `"A>"`) {
		t.Errorf("a bad word: %q", text)
	}
}

// TestCheckEventsFindsDamage: CheckEvents finds every single exchange, loss or repetition of events in a valid stream.
func TestCheckEventsFindsDamage(t *testing.T) {
	g := kahntest.Graph(t, "A>B A>C C-!>D")
	steps := &kahntest.Script{Acts: map[string][]kahntest.Act{"C": {{Err: errBusy}}}}
	r := kahntest.Run(t, g, steps.Step, kahn.Limit(1))
	if err := kahntest.CheckEvents(g, r.Result, r.Events); err != nil {
		t.Fatal(err)
	}
	renumbered := func(events []event.Event) []event.Event {
		for i := range events {
			events[i].ID = uint64(i + 1)
		}
		return events
	}
	for i := range r.Events {
		lost := renumbered(slices.Delete(slices.Clone(r.Events), i, i+1))
		if kahntest.CheckEvents(g, r.Result, lost) == nil {
			t.Errorf("the loss of %v was not found", r.Events[i])
		}
		twice := renumbered(slices.Insert(slices.Clone(r.Events), i, r.Events[i]))
		if kahntest.CheckEvents(g, r.Result, twice) == nil {
			t.Errorf("the repetition of %v was not found", r.Events[i])
		}
		bare := slices.Clone(r.Events)
		if bare[i].Payload = nil; r.Events[i].Type == event.RunStarted || r.Events[i].Type == event.NodeCompleted {
			if kahntest.CheckEvents(g, r.Result, bare) == nil {
				t.Errorf("%v without a payload was not found", r.Events[i])
			}
		}
	}
	other := kahntest.Run(t, g, (&kahntest.Script{}).Step, kahn.Limit(1))
	if kahntest.CheckEvents(g, other.Result, r.Events) == nil {
		t.Error("the result of another run was not found")
	}
	if kahntest.CheckEvents(nil, r.Result, r.Events) == nil || kahntest.CheckEvents(g, nil, r.Events) == nil || kahntest.CheckEvents(g, r.Result, nil) == nil {
		t.Error("nothing was taken for a stream")
	}
}

// TestGraphOfManyNodes reads a chain in which each node requires its predecessor. Reading 100,000 nodes is fast only if the parser does not
// search all earlier nodes or edges for each word.
func TestGraphOfManyNodes(t *testing.T) {
	t.Parallel()
	const n = 100_000
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "n%d>n%d n%d{req:n%d} ", i, i+1, i+1, i)
	}
	nodes, edges, err := kahntest.Parse(b.String())
	if err != nil || len(nodes) != n+1 || len(edges) != n {
		t.Fatal(len(nodes), len(edges), err)
	}
	for _, e := range edges {
		if e.Param != "from "+e.From {
			t.Fatalf("%+v", e)
		}
	}
}
