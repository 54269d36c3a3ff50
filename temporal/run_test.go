package temporal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

var errStep = errors.New("the step broke")

// The Result has the values, errors, retries and routes of the run.
func TestRun(t *testing.T) {
	t.Parallel()
	var g kahn.Graph
	g.Name = "orders"
	g.Add(
		kahn.Node{ID: "fetch", Kind: "fetch", Config: func() {}, Params: map[string]any{"n": 2}},
		kahn.Node{ID: "pay", Kind: "pay", In: []kahn.Edge{{From: "fetch", Param: "order"}}, Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: time.Hour, Jitter: kahn.JitterNone}},
		kahn.Node{ID: "refund", Kind: "refund", In: []kahn.Edge{{From: "pay", On: kahn.OnFailure}}},
		kahn.Node{ID: "each", Kind: "each", Map: &kahn.Map{Over: "list"}, In: []kahn.Edge{{From: "fetch", Param: "list"}}},
	)
	step := kahn.Mux{
		"fetch": func(_ context.Context, s *kahn.Step) (any, error) {
			n, err := kahn.Param[int](s, "n")
			return []int{n, n + 1}, err
		},
		"pay": func(_ context.Context, s *kahn.Step) (any, error) {
			if s.Attempt() < 3 {
				return nil, errStep
			}
			if s.LastErr() == nil || s.LastErr().Error() != errStep.Error() {
				return nil, errors.New("where is the last error?")
			}
			return nil, kahn.Permanent(errors.New("declined"))
		},
		"refund": func(_ context.Context, s *kahn.Step) (any, error) {
			failed, _ := s.Upstream("pay")
			var of *kahn.NodeError
			if err, is := failed.(error); !is || !errors.As(err, &of) {
				return nil, errors.New("where is the error of pay?")
			}
			return of.Node + " refunded", nil
		},
		"each": func(_ context.Context, s *kahn.Step) (any, error) {
			n, err := kahn.Param[int](s, "item")
			return n * 10, err
		},
	}.Step
	x := &trial{workflow: Workflow{Plan: plan(t, &g)}, options: Options{Step: step}}
	res, err := x.run(t)
	require.NoError(t, err)
	require.Equal(t, kahn.RunCompleted, res.Status)
	require.True(t, res.Degraded)
	each, err := kahn.Output[[]any](res, "each")
	require.NoError(t, err)
	require.Equal(t, []any{20, 30}, each)
	pay, _ := res.Node("pay")
	require.Equal(t, 3, pay.Attempts)
	require.ErrorContains(t, pay.Err, "declined")
	require.Equal(t, 2*time.Hour, pay.Duration.Round(time.Minute))
	kahntest.RequireStatuses(t, res, "fetch:ok pay:F refund:ok each:ok")
}

// A sleeping step is called again at the end of its sleep, in the same attempt. A step that waits for a signal until a given time is called again at
// that time, too.
func TestSleep(t *testing.T) {
	t.Parallel()
	g := kahntest.Graph(t, "a>b")
	var said []string
	var mu sync.Mutex
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		value, resumed := s.Resumed()
		said = append(said, fmt.Sprint(s.ID(), s.Attempt(), " ", s.SavedState(), value, resumed))
		switch {
		case s.SavedState() != nil:
			return nil, nil
		case s.ID() == "a":
			return nil, kahn.SuspendUntil(time.Now().Add(time.Hour), "slept")
		}
		return nil, kahn.SuspendFor("token", nil, "waited", time.Now().Add(2*time.Hour))
	}
	x := &trial{workflow: Workflow{Plan: plan(t, g)}, options: Options{Step: step}}
	res, err := x.run(t)
	require.NoError(t, err)
	kahntest.RequireStatuses(t, res, "a:ok b:ok")
	require.Equal(t, []string{"a1 <nil> <nil> false", "a1 slept<nil> false", "b1 <nil> <nil> false", "b1 waited<nil> false"}, said)
}

// A gate waits for an update. An answer that is not one of its choices is refused before it enters the history, and the gate keeps waiting.
func TestGate(t *testing.T) {
	t.Parallel()
	g := kahntest.Graph(t, "a>ask ask-[yes]>b ask-[no]>c ask{gate}")
	var refused, unknown, late error
	accepted := 0
	x := &trial{workflow: Workflow{Plan: plan(t, g)}, options: Options{Step: func(context.Context, *kahn.Step) (any, error) { return nil, nil }}}
	x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		ask := func(after time.Duration, r signalRequest, err *error) {
			env.RegisterDelayedCallback(func() {
				env.UpdateWorkflow(SignalUpdate, "", &testsuite.TestUpdateCallback{
					OnReject: func(e error) { *err = decodeRefusal(e) },
					OnAccept: func() { accepted++ },
					OnComplete: func(_ any, e error) {
						if e != nil {
							t.Error(e)
						}
					},
				}, r)
			}, after)
		}
		var none error
		ask(time.Hour, signalRequest{Gate: "ask", Value: []byte(`"perhaps"`)}, &refused)
		ask(2*time.Hour, signalRequest{Gate: "b"}, &unknown)
		ask(3*time.Hour, signalRequest{Gate: "ask", Value: []byte(`"yes"`), Actor: "me", ID: "1"}, &none)
		ask(3*time.Hour, signalRequest{Gate: "ask", Value: []byte(`"no"`)}, &late)
	}
	res, err := x.run(t)
	require.NoError(t, err)
	kahntest.RequireStatuses(t, res, "a:ok ask:ok b:ok c:S/br")
	ask, _ := res.Node("ask")
	require.Equal(t, &kahn.Decision{Value: "yes", Actor: "me", ID: "1"}, ask.Decision)
	require.ErrorIs(t, refused, kahn.ErrChoice)
	require.ErrorContains(t, refused, "yes")
	require.ErrorIs(t, unknown, kahn.ErrUnknownGate)
	require.Equal(t, 1, accepted, "the history has the answer alone")
	require.True(t, errors.Is(late, kahn.ErrAnswered) || errors.Is(late, kahn.ErrFinished), "%v", late)
}

// A trigger starts only the part of the graph behind it, even if the run continues as new.
func TestFire(t *testing.T) {
	t.Parallel()
	g := kahntest.Graph(t, "T>a a>b U>c x>b T{trigger} U{trigger}")
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		payload, _ := s.Upstream("T")
		return payload, nil
	}
	for prune, pruned := range map[kahn.PruneMode][]string{kahn.PruneForward: {"U", "c", "x"}, kahn.PruneClosure: {"U", "c"}} {
		x := &trial{workflow: Workflow{Plan: plan(t, g), Fire: &Fire{Trigger: "T", Payload: 7, Prune: prune}}, options: Options{Step: step, ContinueAfter: 1}}
		res, err := x.run(t)
		require.NoError(t, err)
		require.Equal(t, pruned, res.Pruned)
		a, _ := res.Node("a")
		require.Equal(t, 7, a.Output)
		require.Greater(t, x.executions, 1)
	}
	_, err := Workflow{Plan: plan(t, g), Fire: &Fire{Trigger: "T", Payload: make(chan int)}}.input(nil)
	require.ErrorIs(t, err, kahn.ErrNotEncodable)
	one, err := Workflow{Plan: plan(t, g), Fire: &Fire{Trigger: "T", Payload: 1}}.input(nil)
	require.NoError(t, err)
	two, err := Workflow{Plan: plan(t, g), Fire: &Fire{Trigger: "T", Payload: 2}}.input(nil)
	require.NoError(t, err)
	require.NotEqual(t, one.key(), two.key(), "they are asked to do different things")
}
