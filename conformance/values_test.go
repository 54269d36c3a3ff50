package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/race"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/machine"
)

// ledger performs a plan on a State without a Run, with the plan's pure functions, like a coordinator that stores the values itself.
type ledger struct {
	t    testing.TB
	plan *kahn.Plan
	st   *machine.State
	v    kahn.Values
	step kahn.StepFunc
	pick func(n int) int
	cut  func(st *machine.State) *machine.State // replaces the State by an equal one; may be nil
}

func (l *ledger) perform() {
	l.v.Outputs, l.v.Errs, l.v.Merged = map[string]any{}, map[string]error{}, map[string]map[string]any{}
	var running []machine.Task
	for {
		if l.cut != nil {
			l.st = l.cut(l.st)
		}
		for t, ok := l.st.Next(); ok; t, ok = l.st.Next() {
			switch n := l.plan.Node(t.Ref); {
			case t.Check:
				verdict, merged, err, _ := l.plan.Check(l.st, t.Ref, &l.v)
				if merged != nil {
					l.v.Merged[n.ID] = merged
				}
				if err != nil {
					l.v.Errs[n.ID] = err
				}
				require.NoError(l.t, l.st.Checked(t.Token, verdict))
			case t.Gate:
				l.settle(t, true, nil)
			case n.Test != nil:
				value, out, err := l.plan.Evaluate(l.st, t.Ref, &l.v)
				l.report(t, value, out, err)
			default:
				running = append(running, t)
			}
		}
		if len(running) == 0 {
			return
		}
		i := l.pick(len(running))
		t := running[i]
		running = slices.Delete(running, i, i+1)
		reply := l.call(t)
		l.settle(t, reply.Value, reply.Err)
	}
}

// call performs an attempt, whose Call and Reply it encodes and decodes as JSON.
func (l *ledger) call(t machine.Task) (reply kahn.Reply) {
	n := l.plan.Node(t.Ref)
	call := kahn.Call{ID: n.ID, Path: n.ID, Kind: n.Kind, Attempt: int(t.Attempt), Root: l.v.Root, View: l.plan.View(l.st, t.Ref, &l.v)}
	call.Params, call.Upstream = l.plan.Inputs(l.st, t.Ref, &l.v)
	data, err := json.Marshal(call)
	require.NoError(l.t, err)
	var away kahn.Call
	require.NoError(l.t, json.Unmarshal(data, &away))
	data, err = json.Marshal(away.Perform(l.t.Context(), l.step, nil))
	require.NoError(l.t, err)
	require.NoError(l.t, json.Unmarshal(data, &reply))
	return reply
}

func (l *ledger) settle(t machine.Task, value any, err error) {
	out, err := l.plan.Conclude(t.Ref, value, err)
	if out.Status == kahn.Failed {
		if _, refused := l.plan.Node(t.Ref).Retry.Next(int(t.Attempt), out.Cause, err, 0.5); refused == 0 {
			require.NoError(l.t, l.st.Retry(t.Token))
			require.NoError(l.t, l.st.Requeue(t.Token))
			return
		}
	}
	l.report(t, value, out, err)
}

func (l *ledger) report(t machine.Task, value any, out machine.Outcome, err error) {
	id := l.plan.ID(t.Ref)
	if err != nil {
		l.v.Errs[id] = &kahn.NodeError{Node: id, Attempt: int(t.Attempt), Kind: out.Cause, Err: err}
	} else {
		l.v.Outputs[id] = value
	}
	require.NoError(l.t, l.st.Settle(t.Token, out))
}

// nameless is a contract that refuses one value.
type nameless struct{}

func (nameless) Check(value any) []kahn.Violation {
	if strings.Contains(fmt.Sprint(value), "n1 0") {
		return []kahn.Violation{{Path: "/n1", Message: "not so"}}
	}
	return nil
}

func prude(_ context.Context, phase event.Phase, s *kahn.Step, value any) error {
	switch text := fmt.Sprint(s.Path(), value, len(s.UpstreamAll())); {
	case strings.Contains(text, "n2 0"):
		return kahn.Flag("rude", phase.String())
	case strings.Contains(text, "n0 1"):
		return errors.New("asleep")
	}
	return nil
}

// ledgerGraph draws a graph without composites in which values decide: guards, conditions, merges, ports, contracts, moderation.
func ledgerGraph(rng *rand.Rand, stops bool) *kahn.Graph {
	g := graph()
	if stops {
		g.Groups = []kahn.Group{{Name: "x", CancelOnFailure: true}, {Name: "y", CancelOnFailure: rng.IntN(2) == 0}}
	}
	g.RegisterMerge("list", func(in []kahn.Contribution) (any, error) {
		text := ""
		for _, c := range in {
			text += fmt.Sprint(c.From, "=", c.Value, " ")
		}
		if len(in) > 1 {
			panic("two are too many")
		}
		return text, nil
	})
	if rng.IntN(2) == 0 {
		g.Inputs = []kahn.Input{{Name: "in"}, {Name: "extra", Default: "e"}, {Name: "none", Optional: true}}
	}
	one := func(n int) bool { return rng.IntN(n) == 0 }
	// ask draws a predecessor of the node, or the node itself, which is not an ancestor. It draws no other ancestor, since that ancestor may
	// still be running.
	ask := func(n *kahn.Node) string {
		if one(4) || len(n.In) == 0 {
			return n.ID
		}
		return n.In[rng.IntN(len(n.In))].From
	}
	for i := range 2 + rng.IntN(7) {
		n := kahn.Node{ID: fmt.Sprint("n", i), ContinueOnFail: one(6), Default: []any{nil, "d"}[rng.IntN(2)]}
		for j := range i {
			if !one(2) {
				continue
			}
			e := kahn.Edge{From: fmt.Sprint("n", j), On: []kahn.On{kahn.OnSuccess, kahn.OnSuccess, kahn.OnSuccess, kahn.OnFailure, kahn.OnAlways}[rng.IntN(5)]}
			if e.On == kahn.OnSuccess && one(8) {
				e.DataOnly = true
			}
			if one(2) {
				e.Param = []string{"a", "b", "c"}[rng.IntN(3)]
			}
			n.In = append(n.In, e)
		}
		if stops {
			n.Critical, n.Cleanup = one(8), one(8)
			for _, group := range g.Groups {
				if one(4) {
					n.Groups = append(n.Groups, group.Name)
				}
			}
		}
		n.Merge = []string{"", "", kahn.MergeArray, kahn.MergeConcat, kahn.MergeObject, "list"}[rng.IntN(6)]
		n.OnUpstreamFailure = machine.UpstreamPolicy(rng.IntN(5))
		n.SkipMode = machine.SkipMode(rng.IntN(4))
		n.Join = []kahn.Join{kahn.AllSucceeded, kahn.AllSucceeded, kahn.AllDone, kahn.AllDoneMinOne, kahn.NoneFailed, kahn.AllFailed}[rng.IntN(6)]
		if one(3) {
			n.Ports = []kahn.Port{{Name: "a", Required: one(2)}, {Name: "in"}, {Name: "p", Default: "port"}}
			if n.Ports[0].Required && one(2) {
				n.Params = map[string]any{"a": []any{"static", 7}[rng.IntN(2)]}
			}
		}
		if one(3) {
			asked := ask(&n)
			n.GuardErrors = kahn.GuardPolicy(rng.IntN(4))
			n.When = func(v kahn.View) (bool, error) {
				root, _ := v.Root("in")
				switch status := v.Status(asked); {
				case status == kahn.Skipped:
					panic("a guard")
				case v.Err(asked) != nil:
					return false, nil
				}
				return fmt.Sprint(v.Output(asked), root) != "", nil
			}
		}
		if one(5) {
			asked := ask(&n)
			n.Test = func(v kahn.View) (any, error) {
				return map[string]any{"branch": "yes", "saw": fmt.Sprint(v.Output(asked))}, v.Err(asked)
			}
			n.Join = kahn.Join(0)
			g.Add(n)
			continue
		}
		if one(4) && !stops { // a Run judges inputs later, when the node has its slot
			n.InputSchema = nameless{}
		}
		if one(6) {
			n.OutputSchema = nameless{}
		}
		if one(4) && !stops {
			n.Moderation = kahn.ModerateInput
		}
		if one(3) && !stops { // during a backoff other nodes run first
			n.Retry = kahn.Retry{MaxAttempts: 2 + rng.IntN(2), InitialDelay: ms}
			if one(2) {
				n.Retry.RetryOn = []kahn.CauseKind{kahn.CausePanic, kahn.CauseContractOutput}
			}
		}
		g.Add(n)
	}
	if one(3) {
		g.Add(kahn.Node{ID: "end", Kind: kahn.KindEnd})
	}
	return g
}

// knownOrigins matches the origins in the error of a node that could not run, as a step sees it. If the node's join decides early, these are the origins
// that were known when the step began, so they depend on the order in which nodes end. The length of an error that was cut may contain such an error.
var knownOrigins = regexp.MustCompile(`upstream_(failure|cancelled) of ("[a-z0-9]+"(, )?)+|\([0-9]+ bytes\)`)

// TestValuesAgree compares random runs by Execute with runs by a coordinator that drives a State and stores the values itself.
func TestValuesAgree(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for seed := range seeds(t, size(1000, 100, 20_000)) {
		rng := rand.New(rand.NewPCG(11, seed))
		stops := seed%3 == 0 // with one slot, since the order decides which nodes are stopped
		g := ledgerGraph(rng, stops)
		plan, err := g.Compile()
		if err != nil && !errors.Is(err, kahn.ErrMergeConflict) { // the graph is invalid
			continue
		}
		require.NoError(t, err)
		opts := []kahn.Option{kahn.Mode(rng.IntN(2)), kahn.Limit(rng.IntN(3))}
		if stops {
			opts = append(opts, kahn.Limit(1), kahn.FailureMode(rng.IntN(3)), kahn.StopMode(rng.IntN(2)))
		}
		rule := kahn.StatusRule(rng.IntN(3))
		root := map[string]any{"in": "root"}
		salt := rng.Uint64()
		step := func(x *deskWorld) kahn.StepFunc {
			return func(_ context.Context, s *kahn.Step) (any, error) {
				x.mu.Lock()
				n := x.returned[s.ID()]
				x.returned[s.ID()]++
				x.mu.Unlock()
				sees := fmt.Sprint(s.ID(), " ", n, s.Params(), s.UpstreamAll(), s.View().Has("n0"))
				if stops { // the error of a stopped node names the node that failed
					sees = fmt.Sprint(s.ID(), n, len(s.Params()), len(s.UpstreamAll()))
				}
				r := x.draw(s.ID(), n)
				if s.ID() == "end" && r.IntN(2) == 0 {
					return kahn.EndVerdict{Status: []kahn.RunStatus{kahn.RunPending, kahn.RunCompleted, kahn.RunFailed}[r.IntN(3)], Output: s.View().RunStatus().String()}, nil
				}
				if stops && r.IntN(20) == 0 {
					return nil, kahn.AbortRun(errStep)
				}
				switch r.IntN(9) {
				case 0, 1:
					return nil, fmt.Errorf("%w: %s", errStep, sees)
				case 2:
					return nil, kahn.Skip("no")
				case 3:
					if stops {
						panic("a step") // in a merged value the error would have a stack
					}
					return nil, kahn.Permanent(errStep)
				case 4:
					return nil, kahn.ErrCallAborted
				}
				return sees, nil
			}
		}
		var want []string
		synctest.Test(t, func(t *testing.T) {
			res, _ := plan.Execute(t.Context(), step(newDeskWorld(salt)), append(opts, kahn.Inputs(root), kahn.Moderate(prude), rule)...)
			want = append(want, fmt.Sprint(res.Status, res.Degraded, res.Cause.Kind))
			seen["run "+res.Status.String()+" "+res.Cause.Kind.String()]++
			for n := range res.Nodes() {
				want = append(want, fmt.Sprintf("%s %s %v %v", n.ID, kahntest.Status(n.Status, n.Skip.Kind), n.Cause.Kind, n.Output))
				seen[kahntest.Status(n.Status, n.Skip.Kind)+" "+n.Cause.Kind.String()]++
			}
		})
		st, err := kahn.NewState(plan, append(opts, rule)...)
		require.NoError(t, err)
		l := ledger{t: t, plan: plan, st: st, v: kahn.Values{Root: root, Moderator: prude}, step: step(newDeskWorld(salt)), pick: rng.IntN}
		if seed%2 == 1 {
			l.cut = func(st *machine.State) *machine.State { return cutState(t, plan, st, append(opts, rule)...) }
		}
		l.perform()
		st = l.st
		status, degraded, cause := plan.RunStatus(st, &l.v, rule)
		got := []string{fmt.Sprint(status, degraded, cause)}
		for ref, id := range plan.Declared() {
			var output any
			if st.Status(ref) == kahn.Completed {
				output = l.v.Outputs[id]
			}
			got = append(got, fmt.Sprintf("%s %s %v %v", id, kahntest.Status(st.Status(ref), plan.SkipReason(st, ref).Kind), causeOf(st, ref), output))
		}
		for _, lines := range [][]string{want, got} {
			for i := range lines {
				lines[i] = knownOrigins.ReplaceAllString(lines[i], "upstream")
			}
		}
		if !slices.Equal(want, got) {
			t.Fatalf("seed %d: by Execute\n%s\nby a coordinator of the State\n%s", seed, strings.Join(want, "\n"), strings.Join(got, "\n"))
		}
	}
	if race.Enabled {
		return // under the race detector there are too few runs for all cases
	}
	for _, what := range []string{"ok ", "F step_error", "F panic", "F merge_error", "F contract_violated_input", "F contract_violated_output", "F moderation",
		"F condition_error", "S/when ", "S/null ", "S/self ", "X upstream_failure", "C external", "X fail_fast", "X sibling_failure",
		"run completed ", "run failed ", "run cancelled ", "run failed fail_fast", "run failed end_failed"} {
		require.Positive(t, seen[what], "%s: %v", what, seen)
	}
}

func causeOf(st *machine.State, ref machine.Ref) kahn.CauseKind {
	kind, _ := st.Cause(ref)
	return kind
}
