package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// ledger records the calls of the steps of an order.
type ledger struct {
	mu    sync.Mutex
	lines []string
}

func (l *ledger) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *ledger) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, ", ")
}

func (l *ledger) does(_ context.Context, s *kahn.Step) (any, error) {
	l.add("%s", s.ID())
	return "receipt of " + s.ID(), nil
}

func (l *ledger) undoes(_ context.Context, s *kahn.Step) error {
	output, certain := s.Compensated()
	l.add("undo %s#%d %v %t", s.ID(), s.Attempt(), output, certain)
	return nil
}

// The steps of an order are undone in reverse order, by functions and by kinds, with retries. Each compensation learns whether the effect is
// certain. The same holds if the workflow continues as new after each attempt.
func TestCompensation(t *testing.T) {
	t.Parallel()
	for after := range 4 {
		var l ledger
		keys := map[string]bool{}
		step := kahn.Mux{
			"charge": l.does,
			"refund": func(_ context.Context, s *kahn.Step) (any, error) {
				output, certain := s.Compensated()
				l.add("refund %s#%d %v %t %v", s.ID(), s.Attempt(), output, certain, s.Config())
				keys[s.IdempotencyKey()] = true
				if s.Attempt() < 3 {
					return nil, errors.New("busy")
				}
				if s.LastErr() == nil {
					return nil, kahn.Permanent(errors.New("where is the last error?"))
				}
				return "dropped", nil
			},
			"doubtful": func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Permanent(errors.New("no answer")) },
			"declined": func(context.Context, *kahn.Step) (any, error) {
				return nil, kahn.NoEffect(kahn.Permanent(errors.New("declined")))
			},
		}.Step
		g := new(kahn.Graph).Add(
			kahn.Node{ID: "reserve", Do: l.does, Compensate: l.undoes},
			kahn.Node{ID: "charge", Kind: "charge", After: []string{"reserve"}, CompensateBy: &kahn.CompensateBy{Kind: "refund", Config: "slowly"},
				CompensateRetry: kahn.Retry{InitialDelay: time.Hour, MaxDelay: -1, Jitter: kahn.JitterNone}},
			kahn.Node{ID: "call", Kind: "doubtful", After: []string{"charge"}, Compensate: l.undoes},
			kahn.Node{ID: "ask", Kind: "declined", After: []string{"charge"}, Compensate: l.undoes},
		)
		x := &trial{workflow: Workflow{Plan: plan(t, g), Settings: Settings{Limit: 1}}, options: Options{Step: step, ContinueAfter: after}}
		res, err := x.run(t)
		require.Error(t, err)
		require.Equal(t, "reserve, charge, undo call#1 <nil> false, refund charge#1 receipt of charge true slowly, refund charge#2 receipt of charge true slowly, "+
			"refund charge#3 receipt of charge true slowly, undo reserve#1 receipt of reserve true", l.String(), "continued after %d", after)
		require.Len(t, keys, 1)
		for id, want := range map[string]kahn.Compensation{"reserve": kahn.CompensationDone, "charge": kahn.CompensationDone, "call": kahn.CompensationDone, "ask": kahn.CompensationNone} {
			n, _ := res.Node(id)
			require.Equal(t, want, n.Compensation, id)
		}
		require.GreaterOrEqual(t, x.executions, []int{1, 7, 4, 3}[after])
	}
}

// Cancelling the workflow starts the compensations of its run; cancelling it again does not stop them. A compensation that takes too long is asked
// to stop, and then retried.
func TestCompensationOfACancelledRun(t *testing.T) {
	t.Parallel()
	for _, after := range []int{0, 1} {
		var l ledger
		g := new(kahn.Graph).Add(
			kahn.Node{ID: "pay", Do: l.does, CompensateTimeout: 200 * time.Millisecond, CompensateRetry: kahn.Retry{InitialDelay: time.Hour, Jitter: kahn.JitterNone, RetryOn: []kahn.CauseKind{kahn.CauseTimeout}},
				Compensate: func(ctx context.Context, s *kahn.Step) error {
					if s.Attempt() == 1 { // the environment may end the first attempt before a worker has it
						<-ctx.Done()
						return context.Cause(ctx)
					}
					l.add("undo#%d after a timeout: %t", s.Attempt(), errors.Is(s.LastErr(), kahn.ErrTimeout))
					return nil
				}},
			kahn.Node{ID: "wait", Kind: kahn.KindGate, After: []string{"pay"}},
			kahn.Node{ID: "tidy", Cleanup: true, After: []string{"wait"}, Do: l.does},
		)
		x := &trial{workflow: Workflow{Plan: plan(t, g)}, options: Options{Step: nothing, ContinueAfter: after}}
		x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
			env.RegisterDelayedCallback(env.CancelWorkflow, time.Minute)
			env.RegisterDelayedCallback(env.CancelWorkflow, 10*time.Minute) // at this time the compensation waits for its retry
		}
		res, err := x.run(t)
		require.ErrorIs(t, err, kahn.ErrCancelled)
		require.Equal(t, kahn.RunCancelled, res.Status)
		require.Equal(t, "pay, undo#2 after a timeout: true, tidy", l.String())
		n, _ := res.Node("pay")
		require.Equal(t, kahn.CompensationDone, n.Compensation)
	}
}

// A compensation that panics or calls Goexit fails without retries. A compensation that takes too long is attempted as often as its policy
// says, whatever it returns.
func TestCompensationsThatMisbehave(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		do       func(ctx context.Context)
		attempts int
		says     string
		is       error
	}{
		"panics":             {func(context.Context) { panic("oh") }, 1, "oh", nil},
		"ends its goroutine": {func(context.Context) { runtime.Goexit() }, 1, "", kahn.ErrGoexit},
		"takes too long":     {func(ctx context.Context) { <-ctx.Done() }, 3, "", kahn.ErrTimeout},
	} {
		var l ledger
		g := new(kahn.Graph).Add(
			kahn.Node{ID: "look", Do: l.does, Compensate: l.undoes},
			kahn.Node{ID: "pay", Do: l.does, After: []string{"look"}, CompensateTimeout: 100 * time.Millisecond, CompensateRetry: kahn.Retry{MaxAttempts: 3, InitialDelay: time.Minute},
				Compensate: func(ctx context.Context, _ *kahn.Step) error {
					row.do(ctx)
					return nil
				}},
			kahn.Node{ID: "ship", After: []string{"pay"}, Do: func(context.Context, *kahn.Step) (any, error) {
				return nil, kahn.NoEffect(kahn.Permanent(errors.New("no truck")))
			}},
		)
		x := &trial{workflow: Workflow{Plan: plan(t, g)}, options: Options{Step: nothing}}
		res, err := x.run(t)
		require.ErrorIs(t, err, kahn.ErrCompensation, name)
		n, _ := res.Node("pay")
		require.Equal(t, kahn.CompensationFailed, n.Compensation, name)
		require.Equal(t, row.attempts, n.Undoing.Attempts, name)
		require.ErrorContains(t, n.CompensationErr, row.says, name)
		if row.is != nil {
			require.ErrorIs(t, n.CompensationErr, row.is, name)
		}
		require.Equal(t, "look, pay, undo look#1 receipt of look true", l.String(), name)
	}
}

func nothing(context.Context, *kahn.Step) (any, error) { return nil, nil }

// If the worker of an attempt is lost too often, the effect of the attempt is unknown, so its node is undone. If the worker of a compensation is
// lost too often, the compensation fails. Losses during the node's own attempts do not count.
func TestCompensationOfLostWorkers(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		losses map[string]int
		want   kahn.Compensation
		calls  string
	}{
		"the step's":         {map[string]int{"pay": 2}, kahn.CompensationDone, "undo pay#1 <nil> false"},
		"both, but few":      {map[string]int{"pay": 1, "undo pay": 1, "ship": 2}, kahn.CompensationDone, "pay, undo pay#1 receipt of pay true"},
		"the compensation's": {map[string]int{"undo pay": 2, "ship": 2}, kahn.CompensationFailed, "pay"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l ledger
			g := new(kahn.Graph).Add(kahn.Node{ID: "pay", MaxCrashes: 1, Do: l.does, Compensate: l.undoes}, kahn.Node{ID: "ship", MaxCrashes: 1, After: []string{"pay"}, Do: l.does})
			x := &trial{workflow: Workflow{Plan: plan(t, g)}, options: Options{Step: nothing}}
			x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
				env.SetWorkerOptions(once())
				h := newHost(x.options)
				h.add(x.workflow.Plan)
				h.Heartbeat, h.MaxBytes, h.stopAfter = time.Second, 100_000, -1
				env.OnActivity(ActivityName, mock.Anything, mock.Anything).Return(func(ctx context.Context, in task) (json.RawMessage, error) {
					c, err := callIn(in)
					if err != nil {
						return nil, err
					}
					what := c.ID
					if c.Compensating {
						what = "undo " + what
					}
					if row.losses[what]--; row.losses[what] >= 0 {
						return nil, sdk.NewHeartbeatTimeoutError()
					}
					return h.step(ctx, in)
				})
			}
			res, err := x.run(t)
			require.Error(t, err)
			require.Equal(t, row.calls, l.String())
			n, _ := res.Node("pay")
			require.Equal(t, row.want, n.Compensation)
			if row.want == kahn.CompensationFailed {
				require.ErrorIs(t, n.CompensationErr, kahn.ErrCrashed)
				require.Equal(t, kahn.CauseCompensationFailed, res.Cause.Kind)
			}
		})
	}
}

// Items of maps are undone with their indexes, even if child workflows perform the items.
func TestCompensationOfItems(t *testing.T) {
	t.Parallel()
	var l ledger
	undone := map[string]bool{}
	items := make([]any, 12)
	for i := range items {
		items[i] = i
	}
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "each", Params: map[string]any{"items": items}, Map: &kahn.Map{Over: "items"}, Do: func(_ context.Context, s *kahn.Step) (any, error) { return s.Index(), nil },
			Compensate: func(_ context.Context, s *kahn.Step) error {
				output, certain := s.Compensated()
				l.mu.Lock()
				defer l.mu.Unlock()
				undone[fmt.Sprint(s.Path(), " ", output, " ", certain)] = true
				return nil
			}},
		kahn.Node{ID: "fails", After: []string{"each"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.NoEffect(errors.New("no")) }},
	)
	for _, children := range []int{0, 4} {
		clear(undone)
		x := &trial{workflow: Workflow{Plan: plan(t, g), Settings: Settings{MapChildren: children}}, options: Options{Step: nothing}}
		x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) { new(shares).listen(t, env) }
		res, err := x.run(t)
		require.Error(t, err)
		require.Len(t, undone, 12, "%v", undone)
		require.True(t, undone["each[7] 7 true"], "%v", undone)
		kahntest.RequireStatuses(t, res, "each:ok fails:F")
	}
}
