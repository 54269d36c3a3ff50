package temporal

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// randomGraph makes a graph of a few nodes with composites down to the given depth, gates, guards, retries, groups and keys. How it ends
// does not depend on which node ends first.
func randomGraph(rng *rand.Rand, depth int) *kahn.Graph {
	g := new(kahn.Graph)
	g.Groups = []kahn.Group{{Name: "g", Limit: 1 + rng.IntN(2)}}
	for i := range 1 + rng.IntN(6) {
		n := kahn.Node{ID: fmt.Sprint("n", i), Priority: rng.IntN(3), ContinueOnFail: rng.IntN(5) == 0, Cleanup: rng.IntN(12) == 0}
		for j := range i {
			if rng.IntN(3) == 0 {
				on := []kahn.On{kahn.OnSuccess, kahn.OnSuccess, kahn.OnFailure, kahn.OnAlways}[rng.IntN(4)]
				n.In = append(n.In, kahn.Edge{From: fmt.Sprint("n", j), On: on, DataOnly: on == kahn.OnSuccess && rng.IntN(6) == 0})
			}
		}
		if rng.IntN(3) == 0 {
			n.Retry = kahn.Retry{MaxAttempts: 2 + rng.IntN(2), InitialDelay: time.Duration(rng.IntN(100)) * time.Second}
		}
		if depth > 0 && rng.IntN(4) == 0 {
			n.Groups = []string{"g"}
		}
		if rng.IntN(5) == 0 {
			n.Key = "k"
		}
		if len(n.In) > 1 && !n.Cleanup && rng.IntN(3) == 0 {
			n.Join = kahn.AnySucceeded
		} else {
			for e := range n.In {
				if rng.IntN(2) == 0 {
					n.In[e].Param = []string{"a", "b"}[rng.IntN(2)]
				}
			}
			n.Merge = []string{kahn.MergeArray, kahn.MergeObject, kahn.MergeConcat}[rng.IntN(3)]
		}
		shape(rng, depth, &n)
		g.Add(n)
	}
	if rng.IntN(3) == 0 {
		g.Add(kahn.Node{ID: "end", Kind: kahn.KindEnd})
	}
	return g
}

// shape makes a node a composite, a gate or a condition, or gives it a guard.
func shape(rng *rand.Rand, depth int, n *kahn.Node) {
	pass, kind := rng.IntN(4) > 0, rng.IntN(14)
	if kind < 5 && depth > 0 {
		n.Params = map[string]any{"items": []any{"x", "y", "z"}[:rng.IntN(4)]}
		switch kind {
		case 0, 1:
			n.Sub = randomGraph(rng, depth-1)
		case 2:
			n.Map = &kahn.Map{Over: "items", Limit: rng.IntN(3), ToleratedCount: rng.IntN(3), Compact: rng.IntN(2) == 0}
		case 3:
			n.Map = &kahn.Map{Over: "items", Limit: rng.IntN(3), ToleratedPercent: float64(rng.IntN(101))}
			n.Sub = randomGraph(rng, depth-1)
		case 4:
			times := 1 + rng.IntN(3)
			n.Sub = randomGraph(rng, depth-1)
			n.Loop = &kahn.Loop{
				While: func(v kahn.View) (bool, error) { return v.Iteration() < times, nil }, MaxIterations: 1 + rng.IntN(4),
				OnLimit: kahn.LoopLimit(rng.IntN(2)), Pause: time.Duration(rng.IntN(2)) * time.Minute,
			}
		}
		return
	}
	switch kind {
	case 5, 6:
		n.When = func(kahn.View) (bool, error) { return pass, nil }
	case 7:
		if !n.Cleanup {
			*n = kahn.Node{ID: n.ID, In: n.In, Test: func(kahn.View) (any, error) { return pass, nil }}
		}
	case 8:
		if !n.Cleanup {
			*n = kahn.Node{ID: n.ID, In: n.In, Kind: kahn.KindGate}
		}
	}
}

// fate is what an attempt does, and an answer is: it follows from the path and the number of the attempt alone.
func fate(salt uint64, path string, attempt int) int {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s %d", salt, path, attempt)
	return rand.New(rand.NewPCG(h.Sum64(), 1)).IntN(10)
}

func fatedStep(salt uint64) kahn.StepFunc {
	return func(_ context.Context, s *kahn.Step) (any, error) {
		switch fate(salt, s.Path(), s.Attempt()) {
		case 0, 1:
			return nil, fmt.Errorf("attempt %d of %s failed", s.Attempt(), s.Path())
		case 2:
			return nil, kahn.Permanent(errors.New("for good"))
		case 3:
			return nil, kahn.Skip("no")
		case 4:
			panic("in " + s.Path())
		}
		return map[string]any{"path": s.Path(), "attempt": s.Attempt(), "a": s.Params()["a"], "b": s.Params()["b"]}, nil
	}
}

// errorsInText is a text from the first error on, of a value that MergeConcat has written as JSON: the error behind a NodeError keeps its text alone on the
// way through Temporal, and that of a panic has the stack of the process.
var errorsInText = regexp.MustCompile(`(?s)"Err":\{.*`)

// describe tells all of a Result that does not depend on when things happened.
func describe(res *kahn.Result, prefix string) (lines []string) {
	lines = append(lines, fmt.Sprintf("%s: %v degraded=%t output=%v", prefix, res.Status, res.Degraded, res.Output))
	for n := range res.Nodes() {
		err := ""
		if n.Err != nil {
			err = n.Err.Error()
		}
		lines = append(lines, fmt.Sprintf("%s%s %s attempts=%d cause=%v origins=%v labels=%v tolerated=%t output=%v err=%s", prefix, n.ID,
			kahntest.Status(n.Status, n.Skip.Kind), n.Attempts, n.Cause.Kind, n.Cause.Origins, n.Labels, n.Tolerated, n.Output, err))
		if n.Sub != nil {
			lines = append(lines, describe(n.Sub, prefix+n.ID+"/")...)
		}
	}
	for i := range lines {
		lines[i] = errorsInText.ReplaceAllString(lines[i], "an error")
	}
	return lines
}

// here performs a run in this process, and answers its gates.
func here(t *testing.T, g *kahn.Graph, salt uint64, s Settings) (lines []string) {
	synctest.Test(t, func(t *testing.T) {
		run, err := kahn.Start(t.Context(), g, fatedStep(salt), s.options()...)
		require.NoError(t, err)
		for !run.Status().Terminal() {
			time.Sleep(time.Hour)
			for _, w := range run.Waiting() {
				require.NoError(t, run.Signal(w.Node, fate(salt, w.Node, 0) < 5))
			}
		}
		res, _ := run.Wait()
		lines = describe(res, "")
	})
	return lines
}

// there performs it on Temporal.
func there(t *testing.T, g *kahn.Graph, salt uint64, s Settings, continueAfter int, by *shares) (lines []string, x *trial) {
	x = &trial{workflow: Workflow{Plan: plan(t, g), Settings: s}, options: Options{Pure: salt%2 == 0, Step: fatedStep(salt), ContinueAfter: continueAfter}}
	x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		by.listen(t, env)
		var look func()
		look = func() {
			value, err := env.QueryWorkflow(StateQuery)
			if err != nil {
				t.Error(err)
				return
			}
			var s state
			if err := value.Get(&s); err != nil {
				t.Error(err)
				return
			}
			for _, w := range s.Waiting {
				env.UpdateWorkflow(SignalUpdate, "", &testsuite.TestUpdateCallback{
					OnAccept: func() {}, OnReject: func(err error) { t.Error(err) }, OnComplete: func(_ any, err error) {
						if err != nil {
							t.Error(err)
						}
					},
				}, signalRequest{Gate: w.Node, Value: fmt.Appendf(nil, "%t", fate(salt, w.Node, 0) < 5)})
			}
			if !s.Status.Terminal() {
				env.RegisterDelayedCallback(look, time.Hour)
			}
		}
		env.RegisterDelayedCallback(look, time.Hour)
	}
	res, err := x.run(t)
	require.NotNil(t, res, "%v", err)
	return describe(res, ""), x
}

// TestRandom compares runs of random graphs on Temporal with those in one process: statuses, reasons of skips, causes, attempts, outputs and
// errors are equal, at every depth.
func TestRandom(t *testing.T) {
	t.Parallel()
	n := 100
	if os.Getenv("KAHN_LONG") != "" {
		n = 2000
	}
	composites, continued := 0, 0
	for seed := range uint64(n) {
		rng := rand.New(rand.NewPCG(22, seed))
		g := randomGraph(rng, 2)
		s := Settings{Limit: rng.IntN(4), KeyLimit: rng.IntN(2), Mode: kahn.Mode(rng.IntN(2)), StatusRule: kahn.StatusRule(rng.IntN(3)), CleanupTimeout: 10_000 * time.Hour}
		if rng.IntN(2) == 0 {
			s.DefaultRetry = &kahn.Retry{MaxAttempts: 2}
		}
		want := here(t, g, seed, s)
		got, x := there(t, g, seed, s, []int{0, 1, 5}[rng.IntN(3)], new(shares))
		slices.Sort(want)
		slices.Sort(got)
		require.Len(t, got, len(want), "seed %d", seed)
		for i := range want {
			require.Equal(t, want[i], got[i], "seed %d", seed)
		}
		if len(want) > plan(t, g).Len()+1 {
			composites++
		}
		if x.executions > 1 {
			continued++
		}
	}
	require.Greater(t, composites, n/4)
	require.Greater(t, continued, n/10)
}
