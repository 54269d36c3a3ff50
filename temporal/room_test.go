package temporal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// noise returns a text that compresses to three quarters of its length.
func noise(seed uint64, bytes int) string {
	rng := rand.New(rand.NewPCG(seed, 0))
	text := make([]byte, bytes)
	for i := range text {
		text[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[rng.IntN(64)]
	}
	return string(text)
}

// If the results of a run become larger than Temporal takes, the node whose output does not fit fails, in any execution. The Result has all
// earlier outputs.
func TestRoom(t *testing.T) {
	t.Parallel()
	g := new(kahn.Graph)
	for i := range 30 {
		n := kahn.Node{ID: fmt.Sprint("n", i)}
		if i > 0 {
			n.After = []string{fmt.Sprint("n", i-1)}
		}
		g.Add(n)
	}
	for name, after := range map[string]int{"one execution": 100, "many": 4} {
		calls := 0
		x := &trial{workflow: Workflow{Plan: plan(t, g)}, options: Options{ContinueAfter: after, Step: func(context.Context, *kahn.Step) (any, error) {
			calls++
			return noise(uint64(calls), 100_000), nil
		}}}
		res, err := x.run(t)
		require.ErrorContains(t, err, "do not fit into the results of the run", name)
		kept := res.Count(kahn.Completed)
		require.InDelta(t, roomBytes/75_000, kept, 1, name)
		require.Equal(t, kept+1, calls, "%s: the next node fails", name)
		for i := range kept {
			n, _ := res.Node(fmt.Sprint("n", i))
			require.Equal(t, noise(uint64(i+1), 100_000), n.Output, name)
		}
		failed, _ := res.Node(fmt.Sprint("n", kept))
		require.Equal(t, kahn.CauseStepError, failed.Cause.Kind, name)
	}
}

// Outputs that compress well fit, even if their JSON is longer than the bound.
func TestRoomForTexts(t *testing.T) {
	t.Parallel()
	long := noise(1, 30_000)
	text := ""
	for range 20 {
		text += long // repeats within the window of gzip
	}
	x := &trial{workflow: Workflow{Plan: plan(t, kahntest.Graph(t, "a>b b>c c>d"))}, options: Options{Step: func(context.Context, *kahn.Step) (any, error) { return text, nil }}}
	res, err := x.run(t)
	require.NoError(t, err)
	require.Equal(t, 4, res.Count(kahn.Completed))
}

// If the snapshot of a run is too large for a reason other than a step's output, the Result has no outputs. The run notices this at its end, or
// when it has to continue as new.
func TestResultWithoutOutputs(t *testing.T) {
	t.Parallel()
	large := func(kahn.View) (any, error) {
		return map[string]any{"text": noise(7, 1_200_000), "branch": "left"}, nil
	}
	node := func(id string, after ...string) kahn.Node { return kahn.Node{ID: id, Test: large, After: after} }
	for name, row := range map[string]struct {
		after  int
		status kahn.RunStatus
		want   string
	}{"at the end": {100, kahn.RunCompleted, "a:ok b:ok c:ok z:ok"}, "in the middle": {1, kahn.RunFailed, "a:ok b:ok c:ok z:X"}} {
		g := new(kahn.Graph).Add(node("b"), node("c"), kahn.Node{ID: "a"}, kahn.Node{ID: "z", After: []string{"a"}})
		x := &trial{workflow: Workflow{Plan: plan(t, g)}, options: Options{Pure: true, ContinueAfter: row.after, Step: func(context.Context, *kahn.Step) (any, error) { return 7, nil }}}
		res, err := x.run(t)
		require.ErrorIs(t, err, ErrTooLarge, name)
		require.NotNil(t, res, name)
		require.Equal(t, row.status, res.Status, name)
		kahntest.RequireStatuses(t, res, row.want)
		for n := range res.Nodes() {
			require.Nil(t, n.Output, name)
		}
	}
}

// An answer that does not fit into the snapshot is refused, and the node keeps waiting.
func TestRoomForAnswers(t *testing.T) {
	t.Parallel()
	x := &trial{workflow: Workflow{Plan: plan(t, kahntest.Graph(t, "a b c b{gate} c{gate}"))}, options: Options{Step: func(context.Context, *kahn.Step) (any, error) { return noise(1, 1_000_000), nil }}}
	answers := map[string]error{}
	x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		for i, r := range []signalRequest{{Gate: "b", Value: []byte(`"` + noise(2, 300_000) + `"`)}, {Gate: "c", Value: []byte(`"` + noise(3, 300_000) + `"`)}, {Gate: "c", Value: []byte(`"short"`)}} {
			env.RegisterDelayedCallback(func() {
				env.UpdateWorkflow(SignalUpdate, "", &testsuite.TestUpdateCallback{
					OnReject: func(err error) { answers[fmt.Sprint(r.Gate, i)] = decodeRefusal(err) }, OnAccept: func() {}, OnComplete: func(_ any, err error) {
						if err != nil {
							t.Error(err)
						}
					},
				}, r)
			}, time.Duration(i+1)*time.Hour)
		}
	}
	res, err := x.run(t)
	require.NoError(t, err)
	require.Len(t, answers, 1)
	require.ErrorIs(t, answers["c1"], ErrTooLarge)
	kahntest.RequireStatuses(t, res, "a:ok b:ok c:ok")
}

// If a step panics, calls Goexit, waits or skips while its worker stops, this counts as its result. An error does not count as a result, since the
// step may have returned the error only because its context ended.
func TestCutShort(t *testing.T) {
	t.Parallel()
	h := newHost(Options{MaxBytes: defaultMaxBytes})
	for _, row := range []struct {
		err error
		cut bool
	}{
		{context.Canceled, true}, {errStep, true}, {kahn.Permanent(errStep), true}, {kahn.RateLimited(errStep, 1), true}, {context.DeadlineExceeded, true}, {kahn.ErrCallAborted, true},
		{kahn.Skip("no need"), false}, {kahn.Suspend("t", nil, nil), false}, {&kahn.PanicError{Value: "oh"}, false}, {kahn.ErrGoexit, false},
	} {
		require.Equal(t, row.cut, h.isCutShort("a", kahn.Reply{Err: row.err}), "%v", row.err)
	}
}
