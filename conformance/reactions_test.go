package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// reaction is a setting that decides what a failure does to nodes that do not follow the failed node, with the expected statuses of these
// nodes.
type reaction struct {
	name string
	opts []kahn.Option
	node func(x *kahn.Node) // sets up the failing node; may be nil
	// `want` lists the final statuses of four nodes: R, which is running, and its successor L; M, which is running in the group of the
	// failing node, and its successor K. The test expects `early` instead if no node has started when the node fails, and `inside` instead if
	// the node fails in a sub-graph beside these nodes. Where `early` or `inside` is empty, the test expects `want`.
	want, early, inside string
	group               bool // whether the group stops its members
	spares              bool // whether the group spares its members after this failure
}

const goesOn = "ok ok ok ok"

func reactions() []reaction {
	critical := func(x *kahn.Node) { x.Critical = true }
	tolerant := func(x *kahn.Node) { x.ContinueOnFail = true }
	member := func(x *kahn.Node) { x.Groups = []string{"g"} }
	return []reaction{
		{name: "none", want: goesOn},
		{name: "StopScheduling", opts: []kahn.Option{kahn.StopScheduling}, want: "ok X ok X", early: "X X X X"},
		{name: "StopScheduling, Drain", opts: []kahn.Option{kahn.StopScheduling, kahn.Drain}, want: "ok X ok X", early: "X X X X"},
		{name: "AbortRunning", opts: []kahn.Option{kahn.AbortRunning}, want: "X X X X"},
		{name: "AbortRunning, Drain", opts: []kahn.Option{kahn.AbortRunning, kahn.Drain}, want: "ok X ok X", early: "X X X X"},
		{name: "Critical", node: critical, want: "X X X X", inside: goesOn},
		{name: "Critical, Drain", opts: []kahn.Option{kahn.Drain}, node: critical, want: "ok X ok X", early: "X X X X", inside: goesOn},
		{name: "a group", node: member, group: true, want: "ok ok X X"},
		{name: "a group, Drain", opts: []kahn.Option{kahn.Drain}, node: member, group: true, want: "ok ok ok X", early: "ok ok X X"},
		{name: "a group and AbortRunning", opts: []kahn.Option{kahn.AbortRunning}, node: member, group: true, want: "X X X X"},
		{name: "AbortRunning, tolerated", opts: []kahn.Option{kahn.AbortRunning}, node: tolerant, want: goesOn},
		{name: "a group, tolerated", node: func(x *kahn.Node) { member(x); tolerant(x) }, group: true, spares: true, want: goesOn},
	}
}

// failing is a way in which node X fails, 10 ms after the run has begun.
type failing struct {
	name  string
	cause kahn.CauseKind
	// add sets the fields of X and returns the nodes that X needs.
	add  func(x *kahn.Node) []kahn.Node
	opts []kahn.Option
	host func(run *kahn.Run)
	// restored: the node fails at the start of the run's second life.
	restored bool
	// asked: the step itself stops the run, as a Critical node does.
	asked bool
}

func failings() []failing {
	do := func(f kahn.StepFunc) func(*kahn.Node) []kahn.Node {
		return func(x *kahn.Node) []kahn.Node { x.Do = f; return nil }
	}
	later := func(f func() (any, error)) kahn.StepFunc {
		return func(context.Context, *kahn.Step) (any, error) { time.Sleep(10 * ms); return f() }
	}
	err10 := fails(10 * ms)
	hangs := func(context.Context, *kahn.Step) (any, error) { time.Sleep(50 * ms); return nil, nil }
	waits := func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("", nil, nil) }
	before := kahn.Node{ID: "A", Do: takes(10 * ms)}
	behind := func(set func(x *kahn.Node)) func(*kahn.Node) []kahn.Node {
		return func(x *kahn.Node) []kahn.Node {
			x.After = []string{"A"}
			set(x)
			return []kahn.Node{before}
		}
	}
	brittle := func(kahn.View) (bool, error) { return false, errStep }
	answered := func(x *kahn.Node) []kahn.Node { // the choice red has no branch
		x.Kind, x.NoMatch, x.Gate = kahn.KindGate, kahn.NoMatchFail, &kahn.Gate{Choices: []string{"red", "green"}}
		return []kahn.Node{{ID: "green", In: []kahn.Edge{{From: "X", Label: "green"}}, Do: nop}}
	}
	return []failing{
		{name: "an error", cause: kahn.CauseStepError, add: do(err10)},
		{name: "a panic", cause: kahn.CausePanic, add: do(later(func() (any, error) { panic("x") }))},
		{name: "a Goexit", cause: kahn.CauseGoexit, add: do(later(func() (any, error) { runtime.Goexit(); return nil, nil }))},
		{name: "AbortRun", cause: kahn.CauseStepError, asked: true, add: do(later(func() (any, error) { return nil, kahn.AbortRun(errStep) }))},
		{name: "a timeout", cause: kahn.CauseTimeout, add: func(x *kahn.Node) []kahn.Node { x.Timeout, x.Do = 10*ms, untilStopped; return nil }},
		{name: "an abandoned attempt", cause: kahn.CauseTimeout, opts: []kahn.Option{kahn.CancelGrace(ms)}, add: func(x *kahn.Node) []kahn.Node { x.Timeout, x.Do = 9*ms, hangs; return nil }},
		{name: "an overall timeout, at work", cause: kahn.CauseTimeout, add: func(x *kahn.Node) []kahn.Node { x.OverallTimeout, x.Do = 10*ms, untilStopped; return nil }},
		{name: "an overall timeout, waiting", cause: kahn.CauseTimeout, add: func(x *kahn.Node) []kahn.Node { x.OverallTimeout, x.Do = 10*ms, waits; return nil }},
		{name: "the last retry", cause: kahn.CauseStepError, add: func(x *kahn.Node) []kahn.Node {
			x.Retry, x.Do = kahn.Retry{MaxAttempts: 2, InitialDelay: 10 * ms, Jitter: kahn.JitterNone}, always(errStep)
			return nil
		}},
		{name: "a fallback", cause: kahn.CauseStepError, add: func(x *kahn.Node) []kahn.Node {
			x.Do, x.Fallback = err10, func(context.Context, error) (any, error) { return nil, errStep }
			return nil
		}},
		{name: "an input contract", cause: kahn.CauseContractInput, add: behind(func(x *kahn.Node) { x.InputSchema, x.Do = wants("else"), nop })},
		{name: "an output contract", cause: kahn.CauseContractOutput, add: func(x *kahn.Node) []kahn.Node { x.OutputSchema, x.Do = wants("else"), takes(10*ms); return nil }},
		{name: "a guard", cause: kahn.CauseConditionError, add: behind(func(x *kahn.Node) { x.When, x.GuardErrors, x.Do = brittle, kahn.GuardFail, nop })},
		{name: "a merge", cause: kahn.CauseMergeError, add: func(x *kahn.Node) []kahn.Node {
			x.In, x.Do = []kahn.Edge{{From: "A", Param: "p", Merge: "broken"}, {From: "B", Param: "p", Merge: "broken"}}, nop
			return []kahn.Node{before, {ID: "B", Do: nop}}
		}},
		{name: "a condition", cause: kahn.CauseConditionError, add: behind(func(x *kahn.Node) { x.Test = func(kahn.View) (any, error) { return nil, errStep } })},
		{name: "no branch", cause: kahn.CauseNoBranchMatch, add: func(x *kahn.Node) []kahn.Node {
			x.Routes, x.NoMatch, x.Do = true, kahn.NoMatchFail, takes(10*ms)
			return []kahn.Node{{ID: "green", In: []kahn.Edge{{From: "X", Label: "green"}}, Do: nop}}
		}},
		{name: "a gate that nobody answers", cause: kahn.CauseGateTimeout, add: func(x *kahn.Node) []kahn.Node {
			x.Kind, x.Gate = kahn.KindGate, &kahn.Gate{Timeout: 10 * ms}
			return nil
		}},
		{name: "a gate's answer without a branch", cause: kahn.CauseNoBranchMatch, add: answered, host: func(run *kahn.Run) {
			time.Sleep(10 * ms)
			if err := errors.Join(run.Signal(context.Background(), "X", "red")); err != nil && run.Signal(context.Background(), "S/X", "red") != nil {
				panic(err)
			}
		}},
		{name: "a map", cause: kahn.CauseMapItems, add: func(x *kahn.Node) []kahn.Node {
			x.Map, x.Params, x.Do = &kahn.Map{Over: "items"}, map[string]any{"items": []int{1, 2}}, err10
			return nil
		}},
		{name: "an item that asks for the end", cause: kahn.CauseMapItems, asked: true, add: func(x *kahn.Node) []kahn.Node {
			x.Map, x.Params = &kahn.Map{Over: "items", ToleratedCount: 5}, map[string]any{"items": []int{1, 2}}
			return do(later(func() (any, error) { return nil, kahn.AbortRun(errStep) }))(x)
		}},
		{name: "a map without a list", cause: kahn.CauseContractInput, add: func(x *kahn.Node) []kahn.Node {
			x.Map, x.In, x.Do = &kahn.Map{Over: "items"}, []kahn.Edge{{From: "A", Param: "items"}}, nop
			return []kahn.Node{before}
		}},
		{name: "a sub-graph", cause: kahn.CauseSubrun, add: func(x *kahn.Node) []kahn.Node { x.Sub = graph(kahn.Node{ID: "x", Do: err10}); return nil }},
		{name: "a loop at its limit", cause: kahn.CauseLoopLimit, add: func(x *kahn.Node) []kahn.Node {
			x.Sub, x.Loop = graph(kahn.Node{ID: "x", Do: takes(5 * ms)}), &kahn.Loop{While: func(kahn.View) (bool, error) { return true, nil }, MaxIterations: 2}
			return nil
		}},
		{name: "the test of a loop", cause: kahn.CauseConditionError, add: func(x *kahn.Node) []kahn.Node {
			x.Sub, x.Loop = graph(kahn.Node{ID: "x", Do: takes(10 * ms)}), &kahn.Loop{While: brittle, MaxIterations: 2}
			return nil
		}},
		{name: "an expansion", cause: kahn.CauseSubrun, add: do(func(context.Context, *kahn.Step) (any, error) {
			return nil, kahn.Expand(graph(kahn.Node{ID: "x", Do: err10}), nil, nil)
		})},
		{name: "an expansion that is refused", cause: kahn.CauseContractOutput, add: do(later(func() (any, error) { return nil, kahn.Expand(nil, nil, nil) }))},
		{name: "a crash", cause: kahn.CauseCrashed, restored: true, opts: []kahn.Option{kahn.MaxCrashes(0)}, add: do(takes(time.Hour))},
		{name: "a crash, with a fallback", cause: kahn.CauseCrashed, opts: []kahn.Option{kahn.MaxCrashes(0)}, restored: true, add: func(x *kahn.Node) []kahn.Node {
			x.Do, x.Fallback = takes(time.Hour), func(context.Context, error) (any, error) { time.Sleep(10 * ms); return nil, errStep }
			return nil
		}},
		{name: "an overdue gate", cause: kahn.CauseGateTimeout, restored: true, add: func(x *kahn.Node) []kahn.Node {
			x.Kind, x.Gate = kahn.KindGate, &kahn.Gate{Timeout: 20 * ms}
			return nil
		}},
		{name: "an overdue node", cause: kahn.CauseTimeout, restored: true, add: func(x *kahn.Node) []kahn.Node { x.Do, x.OverallTimeout = takes(time.Hour), 20*ms; return nil }},
	}
}

// TestReactions combines each way in which a node can fail with each setting of a run, a node or a group that decides what the failure does
// to nodes that do not follow the failed node.
func TestReactions(t *testing.T) {
	t.Parallel()
	row, every := 0, size(1, 5, 1)
	for _, f := range failings() {
		for _, re := range reactions() {
			for _, inside := range []bool{false, true} {
				if row++; row%every != 0 {
					continue
				}
				name := fmt.Sprint(f.name, ", ", re.name)
				if inside {
					name += ", in a sub-graph"
				}
				inBubble(t, name, func(t *testing.T) { tryReaction(t, &f, &re, inside) })
			}
		}
	}
}

func tryReaction(t *testing.T, f *failing, re *reaction, inside bool) {
	x := kahn.Node{ID: "X"}
	if re.node != nil {
		re.node(&x)
	}
	beside := []kahn.Node{
		{ID: "R", Do: takes(100 * ms), MaxCrashes: -1}, {ID: "L", After: []string{"R"}, Do: takes(ms)},
		{ID: "M", Groups: []string{"g"}, Do: takes(100 * ms), MaxCrashes: -1}, {ID: "K", After: []string{"M"}, Groups: []string{"g"}, Do: takes(ms)},
	}
	more := f.add(&x)
	g, at := graph(append(more, x)...), "X"
	merge := func(g *kahn.Graph) {
		g.RegisterMerge("broken", func([]kahn.Contribution) (any, error) { return nil, errStep })
	}
	if merge(g); inside {
		g, at = graph(kahn.Node{ID: "S", Sub: g}), "S"
	}
	g.Add(beside...)
	g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: re.group}}
	opts := append(append([]kahn.Option{}, f.opts...), re.opts...)
	var r trial
	if f.restored {
		db := dies(t, g, nil, new(journal), 10*ms, opts...)
		time.Sleep(time.Minute)
		r = try2(t, g, nil, append(opts, kahn.Durable(db), kahn.RunID("r"))...)
	} else {
		r = tryControlled(t, t.Context(), g, nil, f.host, opts...)
	}

	time.Sleep(time.Second) // abandoned attempts return

	want := re.want
	switch {
	case f.asked && !inside && strings.Contains(re.name, "Drain"):
		want = "ok X ok X"
	case f.asked && !inside:
		want = "X X X X"
	case inside && re.inside != "":
		want = re.inside
	case inside && !re.group: // the sub-graph ends after other nodes have started
	case f.restored && re.early != "" && !strings.Contains(f.name, "fallback"):
		want = re.early
	}
	var got []string
	for _, id := range []string{"R", "L", "M", "K"} {
		n := r.node(id)
		got = append(got, shortStatus(n))
		kind := kahn.CauseNone
		switch {
		case n.Status != kahn.Aborted:
		case re.group && !re.spares && (id == "M" || id == "K"):
			kind = kahn.CauseSiblingFailure
		default:
			kind = kahn.CauseFailFast
		}
		if n.Cause.Kind != kind && (id != "K" || !f.restored) { // M, which never started, may be the cause of K's stop
			t.Errorf("the cause of %s is %v, expected %v", id, n.Cause.Kind, kind)
		}
	}
	if text := strings.Join(got, " "); text != want {
		t.Errorf("R, L, M and K are %s, expected %s", text, want)
	}
	n := r.node(at)
	if inside && n.Sub != nil {
		n, _ = n.Sub.Node("X")
	}
	if n.Status != kahn.Failed || n.Cause.Kind != f.cause {
		t.Errorf("X is %v because of %v, expected %v", n.Status, n.Cause.Kind, f.cause)
	}
}

// TestReactionsOfAState: a State without a Run reacts to a failure in the same way, whichever method reports the end of the failed node.
func TestReactionsOfAState(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *machine.State, x machine.Token) error{
		"Settle": func(s *machine.State, x machine.Token) error {
			return s.Settle(x, machine.Outcome{Status: kahn.Failed, Cause: kahn.CauseStepError})
		},
		"SettleNext": func(s *machine.State, x machine.Token) error {
			_, _, err := s.SettleNext(x, machine.Outcome{Status: kahn.Failed, Cause: kahn.CauseStepError})
			return err
		},
		"Checked": func(s *machine.State, x machine.Token) error {
			return s.Checked(x, machine.CheckVerdict{Fail: kahn.CauseConditionError})
		},
		"Fail": func(s *machine.State, x machine.Token) error {
			return errors.Join(s.Retry(x), s.Fail(x, kahn.CauseTimeout))
		},
	} {
		for _, re := range reactions() {
			if re.name == "AbortRunning" || strings.Contains(re.name, "Drain") {
				continue // running nodes are stopped at once, or the result is the same
			}
			x := kahn.Node{ID: "X", Do: nop}
			if re.node != nil {
				re.node(&x)
			}
			if name == "Checked" {
				x.When = func(kahn.View) (bool, error) { return false, errStep }
			}
			g := graph(x, kahn.Node{ID: "R", Do: nop}, kahn.Node{ID: "L", After: []string{"R"}, Do: nop},
				kahn.Node{ID: "M", Groups: []string{"g"}, Do: nop}, kahn.Node{ID: "K", After: []string{"M"}, Groups: []string{"g"}, Do: nop})
			g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: re.group}}
			p := compiled(t, g)
			s, err := kahn.NewState(p, re.opts...)
			require.NoError(t, err)
			ref, _ := p.Ref("X")
			var token machine.Token
			for task, ok := s.Next(); ok; task, ok = s.Next() {
				if task.Ref == ref {
					token = task.Token
				}
			}
			require.NoError(t, end(s, token), name)
			l, _ := p.Ref("L")
			k, _ := p.Ref("K")
			want := strings.Fields(re.want)
			if got := []kahn.Status{s.Status(l), s.Status(k)}; (got[0] == kahn.Aborted) != (want[1] == "X") || (got[1] == kahn.Aborted) != (want[3] == "X") {
				t.Errorf("%s, %s: L is %v and K is %v", name, re.name, got[0], got[1])
			}
		}
	}
}

// TestReactionsHeldBack: a member's failure does not always stop the other members at once. If a composite around the member may be attempted
// again, members outside stop when the composite ends. Members inside an expanded node stop when the node's step returns its graph again.
func TestReactionsHeldBack(t *testing.T) {
	t.Parallel()
	inBubble(t, "a composite that was not attempted again", func(t *testing.T) {
		inner := graph(kahn.Node{ID: "X", Groups: []string{"g"}, Do: fails(10 * ms)}, kahn.Node{ID: "H", In: []kahn.Edge{{From: "X", On: kahn.OnFailure}}, Do: takes(10 * ms)})
		g := graph(kahn.Node{ID: "S", Sub: inner, Retry: kahn.Retry{MaxAttempts: 2}}, kahn.Node{ID: "M", Groups: []string{"g"}, Do: takes(time.Hour)})
		g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
		r := try(t, g, nil)
		r.expect("S:ok M:X", "failed")
		r.cause("M", kahn.CauseSiblingFailure)
		require.Equal(t, 20*ms, r.Duration)
	})
	inBubble(t, "a graph that is known again", func(t *testing.T) {
		lives := 0
		inner := graph(kahn.Node{ID: "M", Groups: []string{"g"}, MaxCrashes: -1, Do: takes(time.Hour)})
		g := graph(
			kahn.Node{ID: "E", MaxCrashes: -1, Do: func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.SavedState() != nil { // the step returns its graph after X has failed
					if _, err := takes(time.Second)(ctx, s); err != nil {
						return nil, err
					}
				}
				return nil, kahn.Expand(inner, nil, "state")
			}},
			kahn.Node{ID: "X", Groups: []string{"g"}, MaxCrashes: -1, Do: func(ctx context.Context, s *kahn.Step) (any, error) {
				if lives++; lives == 1 {
					return takes(time.Hour)(ctx, s)
				}
				return nil, errStep
			}},
		)
		g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
		db := dies(t, g, nil, new(journal), 10*ms)
		r := try2(t, g, nil, kahn.Durable(db), kahn.RunID("r"))
		e := r.node("E")
		require.NotNil(t, e.Sub)
		m, _ := e.Sub.Node("M")
		require.Equal(t, kahn.Aborted, m.Status)
		require.Equal(t, kahn.CauseSiblingFailure, m.Cause.Kind)
		require.Equal(t, time.Second, r.Duration)
	})
}
