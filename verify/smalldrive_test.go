package verify

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// smallVerdict is the whole result of a State for a run of three nodes.
type smallVerdict struct {
	nodes    [3]smallNodeVerdict // in the order of their names
	run      [3]kahn.RunStatus   // by status rule
	degraded [3]bool
}

type smallNodeVerdict struct {
	status  kahn.Status
	skip    event.SkipReason
	cause   kahn.CauseKind
	origins [3]byte // the names of the origins, in order
}

// String renders the verdict for a message.
func (v smallVerdict) String() string {
	var b strings.Builder
	for i, n := range v.nodes {
		fmt.Fprintf(&b, "%c %v", 'A'+i, n.status)
		if n.skip.Kind != kahn.SkipNone {
			fmt.Fprintf(&b, " (%v)", n.skip)
		}
		if n.cause != kahn.CauseNone {
			fmt.Fprintf(&b, " (%v, origins %q)", n.cause, strings.Trim(string(n.origins[:]), "\x00"))
		}
		b.WriteString(", ")
	}
	fmt.Fprintf(&b, "run by status rule %v, degraded %v", v.run, v.degraded)
	return b.String()
}

var statusRules = [3]kahn.StatusRule{kahn.StatusEscaped, kahn.StatusLeaves, kahn.StatusStrict}

// smallPlan is a compiled graph, all of whose runs are tried.
type smallPlan struct {
	g        *graph
	plan     *kahn.Plan
	refs     [3]machine.Ref // by node name
	outcomes [3][]smallOutcome
	reported [3][]machine.Outcome
	node     []int // by Ref
}

// compileSmall compiles the graph, without the steps, guards and ports of the property tests: a State does not use them.
func compileSmall(g *graph) (*smallPlan, error) {
	k := &kahn.Graph{}
	for _, n := range g.nodes {
		k.Add(kahn.Node{
			ID: n.id, Join: n.kahnJoin(), SkipMode: skipModes[n.skip], OnUpstreamFailure: policies[n.up],
			ContinueOnFail: n.cof, Disabled: n.off, Routes: g.condition(n),
		})
	}
	for _, e := range g.edges {
		k.Connect(kahn.Edge{From: e.from, To: e.to, On: triggers[e.on], Label: e.label, DataOnly: e.data})
	}
	plan, err := k.Compile()
	if err != nil {
		return nil, err
	}
	s := &smallPlan{g: g, plan: plan, node: make([]int, plan.Len())}
	for _, n := range g.nodes {
		i := int(n.id[0] - 'A')
		s.refs[i], _ = plan.Ref(n.id)
		s.node[s.refs[i]] = i
		s.outcomes[i] = smallOutcomes(g, n)
		for _, o := range s.outcomes[i] {
			s.reported[i] = append(s.reported[i], s.report(s.refs[i], o))
		}
	}
	return s, nil
}

// report converts an outcome for a State.
func (s *smallPlan) report(r machine.Ref, o smallOutcome) machine.Outcome {
	switch o.outcome {
	case "err":
		return machine.Outcome{Status: kahn.Failed, Cause: kahn.CauseStepError}
	case "skip":
		return machine.Outcome{Status: kahn.Skipped}
	case "cancel":
		return machine.Outcome{Status: kahn.Cancelled, Cause: kahn.CauseExternal}
	}
	route, _ := s.plan.Route(r, o.labels)
	return machine.Outcome{Status: kahn.Completed, Route: route}
}

// notStarted is the outcome of a node that never started.
const notStarted = -1

// smallRun is one possible run of a plan.
type smallRun struct {
	outcomes [3]int // the indices of the nodes' outcomes
	ended    []byte // the names of the nodes that started, in the order in which they ended
}

// runs performs the plan with every outcome of the nodes that start and, if orders is true, with every order in which nodes that run at the same
// time may end.
func (s *smallPlan) runs(mode kahn.Mode, orders bool, visit func(smallRun, *machine.State) error) error {
	type choice struct{ taken, of int }
	var script []choice
	running := make([]machine.Task, 0, 3)
	run := smallRun{ended: make([]byte, 0, 3)}
	for {
		st, err := kahn.NewState(s.plan, mode)
		if err != nil {
			return err
		}
		step := 0
		choose := func(of int) int {
			if of == 1 {
				return 0
			}
			if step == len(script) {
				script = append(script, choice{0, of})
			}
			step++
			return script[step-1].taken
		}
		run.outcomes, run.ended = [3]int{notStarted, notStarted, notStarted}, run.ended[:0]
		for {
			for t, ok := st.Next(); ok; t, ok = st.Next() {
				if t.Check {
					if err := st.Checked(t.Token, machine.CheckVerdict{}); err != nil {
						return err
					}
					continue
				}
				running = append(running, t)
			}
			if len(running) == 0 {
				break
			}
			next := 0
			if orders {
				next = choose(len(running))
			}
			t := running[next]
			running = slices.Delete(running, next, next+1)
			i := s.node[t.Ref]
			run.outcomes[i] = choose(len(s.outcomes[i]))
			run.ended = append(run.ended, 'A'+byte(i))
			if err := st.Settle(t.Token, s.reported[i][run.outcomes[i]]); err != nil {
				return fmt.Errorf("%s: settling %c: %w", s.describe(run), 'A'+i, err)
			}
		}
		if !st.Done() {
			return fmt.Errorf("%s: %s: nothing is left to do, and the run is not over", disagreement, s.describe(run))
		}
		if err := visit(run, st); err != nil {
			return err
		}
		for len(script) > 0 && script[len(script)-1].taken+1 == script[len(script)-1].of {
			script = script[:len(script)-1]
		}
		if len(script) == 0 {
			return nil
		}
		script[len(script)-1].taken++
	}
}

// withOutcomes returns the graph with the outcomes of one run.
func (s *smallPlan) withOutcomes(outcomes [3]int) *graph {
	g := s.g.clone()
	for i, o := range outcomes {
		if o != notStarted {
			s.outcomes[i][o].set(g.node(string(rune('A' + i))))
		}
	}
	return g
}

func (s *smallPlan) describe(run smallRun) string {
	return fmt.Sprintf("%v, ended in the order %q", s.withOutcomes(run.outcomes), run.ended)
}

// verdict reads the result from the State.
func (s *smallPlan) verdict(st *machine.State) (v smallVerdict) {
	for i, r := range s.refs {
		n := &v.nodes[i]
		n.status = st.Status(r)
		switch n.status {
		case kahn.Completed:
			continue
		case kahn.Skipped:
			n.skip = s.plan.SkipReason(st, r)
			continue
		}
		var origins []machine.Ref
		n.cause, origins = st.Cause(r)
		for at, origin := range origins {
			n.origins[at] = 'A' + byte(s.node[origin])
		}
	}
	for i, rule := range statusRules {
		v.run[i], v.degraded[i] = st.RunStatus(machine.StatusRule(rule))
	}
	return v
}

// verdict returns the result that the model predicts for a State.
func (p *prediction) verdict() (v smallVerdict) {
	for _, node := range p.g.nodes {
		f := p.fates[node.id]
		n := &v.nodes[node.id[0]-'A']
		n.status = statusWords[f.status]
		if f.status == "S" {
			n.skip = event.SkipReason{Kind: reasonWords[f.reason], Node: f.source, Label: f.label}
			if f.label != "" { // a State also knows the labels of the taken branches
				n.skip.Answer = strings.Join(p.fates[f.source].taken, ", ")
			}
			if f.reason == "rule" {
				n.skip.Rule = node.kahnJoin().String()
			}
		}
		if f.cause != "" {
			if err := n.cause.UnmarshalText([]byte(f.cause)); err != nil {
				panic(err)
			}
		}
		for at, origin := range f.origins {
			n.origins[at] = origin[0]
		}
	}
	for i, rule := range statusRules {
		v.run[i], v.degraded[i] = runWords[p.status[rule.String()]], p.degraded[rule.String()]
	}
	return v
}

// judge compares a run with the model.
func (s *smallPlan) judge(run smallRun, st *machine.State, want *smallVerdict) error {
	if got := s.verdict(st); got != *want {
		return fmt.Errorf("%s: %s\n\tkahn says      %v\n\tthe model says %v", disagreement, s.describe(run), got, *want)
	}
	return nil
}

// ordersMatter reports whether A and B, which may run at the same time, both lead to C.
func (s *smallPlan) ordersMatter() bool {
	return slices.ContainsFunc(s.g.in("C"), func(e *edge) bool { return e.from == "A" }) &&
		slices.ContainsFunc(s.g.in("C"), func(e *edge) bool { return e.from == "B" })
}

// TestSmallScope tries a few thousand of the combinations, in every order and in both modes. The combinations are always the same unless
// KAHN_SEED is set. TestSmallScope executes some of the combinations as whole runs with events.
func TestSmallScope(t *testing.T) {
	t.Parallel()
	const combinations, executed = 6000, 20
	rng := rand.New(rand.NewPCG(seed(t), 0))
	families := [2][]*graph{smallGraphs(false), smallGraphs(true)}
	runs := 0
	for i := range combinations {
		few := i%3 == 2
		edges := families[0]
		if few {
			edges = families[1]
		}
		g := edges[rng.IntN(len(edges))]
		var options [3]smallNode
		for n, id := range []string{"A", "B", "C"} {
			all := smallNodes(g, id, few && i%2 == 0)
			options[n] = all[rng.IntN(len(all))]
			if i%8 == 0 { // every eighth graph gets modes that should make no difference
				options[n].skip = []string{"", "sat", "strict"}[rng.IntN(3)]
				options[n].up = []string{"", "skip", "prop", "def"}[rng.IntN(4)]
				options[n].cof = rng.IntN(2) == 0
			}
		}
		s, err := compileSmall(smallCase(g, options, rng.IntN(2) == 0))
		require.NoError(t, err)
		predicted := map[[3]int]*smallVerdict{}
		visit := func(run smallRun, st *machine.State) error {
			runs++
			want := predicted[run.outcomes]
			if want == nil {
				v := predict(s.withOutcomes(run.outcomes)).verdict()
				want = &v
				predicted[run.outcomes] = want
			}
			return s.judge(run, st, want)
		}
		require.NoError(t, s.runs(kahn.Eager, true, visit))
		require.NoError(t, s.runs(kahn.Waves, false, visit))
		if i%executed != 0 {
			continue
		}
		var outcomes [3]int
		for n := range outcomes {
			outcomes[n] = rng.IntN(len(s.outcomes[n]))
		}
		w := way{kahn.Mode(rng.IntN(2)), rng.IntN(3), statusRules[rng.IntN(3)]}
		declared := s.withOutcomes(outcomes)
		for _, n := range declared.nodes {
			n.ms = rng.IntN(4)
		}
		require.NoError(t, check(t, declared, w), "%v: %v", w, declared)
	}
	t.Logf("%d runs of %d combinations of options", runs, combinations)
}

// long reports whether tests run at full length.
func long() bool { return os.Getenv("KAHN_LONG") != "" }

// shard returns the part of a long search that KAHN_SHARD selects: "2/8" is the second of eight parts. Without KAHN_SHARD it returns the whole
// search.
func shard(t *testing.T) (part, of int) {
	t.Helper()
	text := os.Getenv("KAHN_SHARD")
	if text == "" {
		return 0, 1
	}
	_, err := fmt.Sscanf(text, "%d/%d", &part, &of)
	require.NoError(t, err)
	require.True(t, 1 <= part && part <= of, "KAHN_SHARD is %q", text)
	return part - 1, of
}

// TestSmallScopeInFull tries all combinations if KAHN_LONG is 1. This takes a quarter of an hour of CPU time, which KAHN_SHARD divides.
func TestSmallScopeInFull(t *testing.T) {
	if !long() {
		t.Skip("TestSmallScope tries some of the graphs; KAHN_LONG=1 tries all")
	}
	part, of := shard(t)
	began := time.Now()
	var total smallTotal
	for _, parallel := range []bool{false, true} {
		for i, edges := range smallGraphs(parallel) {
			if i%of == part {
				total.graphs++
				require.NoError(t, total.everything(edges, parallel, i))
			}
		}
	}
	t.Logf("%+v in %v", total, time.Since(began).Round(time.Second))
}

// smallTotal counts what was tried.
type smallTotal struct{ graphs, combinations, runs, predictions int }

// fateKey holds the properties of B and of B's end on which C and the status of the run depend.
type fateKey struct {
	status, reason, rule, source, label, cause, origins, taken string
	routing, tolerated, ready, observer, boundary              bool
}

func (p *prediction) fateKey(id string) fateKey {
	f, n := p.fates[id], p.g.node(id)
	rule := ""
	if f.reason == "rule" {
		rule = n.kahnJoin().String()
	}
	return fateKey{
		f.status, f.reason, rule, f.source, f.label, f.cause, strings.Join(f.origins, ""), strings.Join(f.taken, " "),
		f.routing, f.tolerated, f.ready, n.observer(), n.rule() == "bnd",
	}
}

// everything tries the edges with all options. Variants of B with the same fateKey share their predictions for C. For some of the variants, the
// search checks that the shared predictions are right.
func (total *smallTotal) everything(edges *graph, few bool, number int) error {
	type situation struct {
		a, outA, b, outC int // b is the number of a fateKey
	}
	type before struct {
		backwards  bool
		a, b       int
		outA, outB int
	}
	numbers := map[fateKey]int{}
	fates := map[before]int{} // values are numbers of fateKeys
	as, bs, cs := smallNodes(edges, "A", few), smallNodes(edges, "B", few), smallNodes(edges, "C", few)
	for ic, c := range cs {
		backwards := (number+ic)%2 == 1
		predicted := map[situation]*smallVerdict{}
		for ia, a := range as {
			for ib, b := range bs {
				s, err := compileSmall(smallCase(edges, [3]smallNode{a, b, c}, backwards))
				if err != nil {
					return err
				}
				total.combinations++
				visit := func(run smallRun, st *machine.State) error {
					total.runs++
					past := before{backwards, ia, ib, run.outcomes[0], run.outcomes[1]}
					fate, ok := fates[past]
					if !ok {
						key := predict(s.withOutcomes(run.outcomes)).fateKey("B")
						if fate, ok = numbers[key]; !ok {
							fate = len(numbers)
							numbers[key] = fate
						}
						fates[past] = fate
					}
					now := situation{ia, run.outcomes[0], fate, run.outcomes[2]}
					want := predicted[now]
					if want == nil || total.runs%1000 == 0 {
						total.predictions++
						v := predict(s.withOutcomes(run.outcomes)).verdict()
						if want != nil && v != *want {
							return fmt.Errorf("%s: not as in other cases with the same situation", s.describe(run))
						}
						want = &v
						predicted[now] = want
					}
					return s.judge(run, st, want)
				}
				if err := s.runs(kahn.Eager, s.ordersMatter(), visit); err != nil {
					return err
				}
				if total.combinations%4 == 0 {
					if err := s.runs(kahn.Waves, false, visit); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// seed returns the seed of all random choices in this file: the value of KAHN_SEED if this variable is set. Otherwise it returns 1 or, in the
// long mode, a new seed, which it logs.
func seed(t *testing.T) (seed uint64) {
	t.Helper()
	if text := os.Getenv("KAHN_SEED"); text != "" {
		_, err := fmt.Sscan(text, &seed)
		require.NoError(t, err)
		return seed
	}
	if long() {
		seed = rand.Uint64()
		t.Logf("KAHN_SEED=%d", seed)
		return seed
	}
	return 1
}
