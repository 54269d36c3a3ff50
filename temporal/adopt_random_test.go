package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/seed-c794f7ef/kahn"
)

// most is a source of the greatest number. With it no node can be undone, since the order in which nodes are undone would be in the errors.
type most struct{}

func (most) Uint64() uint64 { return math.MaxUint64 }

// versions makes two versions of a random graph. The younger has a node less, a node more, a changed node, and a node that follows the changed node.
func versions(t *testing.T, seed uint64) (old, young *kahn.Plan, x subject, w *world) {
	build := func(change func(*kahn.Graph)) *kahn.Plan {
		rng := rand.New(rand.NewPCG(24, seed))
		g := graphs{rng: rng, undoes: rand.New(most{})}
		x.settings, x.inputs = g.settings(), map[string]any{"in": float64(seed)}
		w = &world{salt: seed, saw: map[string][]string{}}
		for {
			all := g.graph(2)
			graph := &kahn.Graph{Name: "versions", Groups: all.Groups, Defaults: all.Defaults}
			for _, n := range all.Nodes() {
				n.Critical = false // whether the added nodes begin before a failure must not matter
				graph.Add(n)
			}
			graph.Connect(all.Edges()...).Add(kahn.Node{ID: "wait", Kind: kahn.KindGate})
			change(graph)
			if p, err := graph.Compile(); err == nil {
				return p
			}
		}
	}
	at := func(_ context.Context, s *kahn.Step) (any, error) { return []any{s.Path(), s.Config()}, nil } // takes no time, so the order of other nodes is the same
	old = build(func(g *kahn.Graph) {
		g.Add(kahn.Node{ID: "gone", Do: at}, kahn.Node{ID: "changed", Config: 1, Do: at}, kahn.Node{ID: "follows", After: []string{"changed"}, Do: at})
	})
	young = build(func(g *kahn.Graph) {
		g.Add(kahn.Node{ID: "new", Do: at}, kahn.Node{ID: "changed", Config: 2, Do: at}, kahn.Node{ID: "follows", After: []string{"changed"}, Do: at})
	})
	x.seed = seed
	x.answer = func(gate string) any { return []string{"yes", "no"}[fate(seed, gate, 0)%2] }
	x.step = w.step
	x.options = Options{Pure: seed%2 == 0}
	return old, young, x, w
}

// adoptedHere performs a run in this process. When it waits for signals alone, it is left, and continues with another plan.
func (x subject) adoptedHere(t *testing.T, old, young *kahn.Plan) (lines []string, adopted bool) {
	asked := false
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		run, err := old.Start(t.Context(), x.step, append(x.settings.options(), kahn.Inputs(x.inputs))...)
		require.NoError(t, err)
		for !run.Status().Terminal() {
			time.Sleep(untilLook(time.Since(began)))
			synctest.Wait()
			if !asked && run.Status() == kahn.RunSuspended {
				asked = true
				if _, err := kahn.AdoptPreview(young, run.Snapshot()); err != nil {
					require.ErrorIs(t, err, kahn.ErrFinished)
					continue
				}
				adopted = true
				run.Leave()
				res, err := run.Wait()
				require.NoError(t, err)
				run, err = young.Start(t.Context(), x.step, append(x.settings.options(), kahn.AdoptSnapshot(res.Snapshot()))...)
				require.NoError(t, err)
			} else if gate, ok := first(run.Waiting()); ok {
				require.NoError(t, run.Signal(context.Background(), gate, x.answer(gate)))
			}
		}
		res, _ := run.Wait()
		last := old
		if adopted {
			last = young
		}
		data, err := json.Marshal(res.Snapshot()) // from which clients of Temporal read the Result
		require.NoError(t, err)
		s := new(kahn.Snapshot)
		require.NoError(t, json.Unmarshal(data, s))
		res, _ = s.Result(last, x.settings.StatusRule)
		lines = describe(res, "")
	})
	return lines, adopted
}

// adoptedThere performs the run on Temporal, and asks for the adoption at the same time.
func (x subject) adoptedThere(t *testing.T, old, young *kahn.Plan) ([]string, *trial) {
	on := &trial{workflow: Workflow{Plan: old, Settings: x.settings}, options: x.options, inputs: x.inputs}
	on.options.Step, on.options.Plans = x.step, []*kahn.Plan{young}
	asked := false
	on.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		var look func()
		look = func() {
			value, err := env.QueryWorkflow(StateQuery)
			var s state
			if err == nil {
				err = value.Get(&s)
			}
			waits, waitsErr := s.waits(kahn.Types(nil))
			if err != nil || waitsErr != nil {
				t.Error(err, waitsErr)
				return
			}
			if !asked && s.Status == kahn.RunSuspended {
				asked = true
				env.UpdateWorkflow(AdoptUpdate, "", &testsuite.TestUpdateCallback{
					OnReject: func(err error) {
						if !errors.Is(decodeRefusal(err), kahn.ErrFinished) {
							t.Error(err)
						}
					},
					OnAccept: func() { on.workflow.Plan = young }, OnComplete: func(any, error) {},
				}, adoptRequest{Plan: idOf(young)})
			} else if gate, ok := first(waits); ok {
				answer, err := json.Marshal(x.answer(gate))
				if err != nil {
					t.Error(err)
				}
				update(t, env, SignalUpdate, signalRequest{Gate: gate, Value: answer})
			}
			if !s.Status.Terminal() {
				env.RegisterDelayedCallback(look, untilLook(env.Now().Sub(epoch)))
			}
		}
		env.RegisterDelayedCallback(look, untilLook(env.Now().Sub(epoch)))
	}
	res, err := on.run(t)
	require.NotNil(t, res, "seed %d: %v", x.seed, err)
	return describe(res, ""), on
}

// TestRandomAdopted compares adoptions of random runs on Temporal with adoptions in one process: what is kept, what runs, and how the runs end.
func TestRandomAdopted(t *testing.T) {
	t.Parallel()
	n, from := seeds(t, 60, 1000)
	moved := uint64(0)
	for seed := from; seed != from+n; seed++ {
		old, young, x, home := versions(t, seed)
		want, adopted := x.adoptedHere(t, old, young)
		_, _, x, away := versions(t, seed)
		got, on := x.adoptedThere(t, old, young)
		if adopted {
			moved++
		}
		require.Equal(t, adopted, on.in.Plan == idOf(young), "seed %d", seed)
		if !same(want, got, home, away) {
			require.Equal(t, want, got, "seed %d", seed)
			require.Equal(t, home.saw, away.saw, "seed %d", seed)
		}
		require.NotEqual(t, adopted, slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, "gone ") }), "seed %d", seed)
	}
	require.Greater(t, moved, n/4)
}
