package temporal

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// An operator repeats a failed compensation with the same idempotency key, or reports that it was done by hand. The run then ends with the same
// status, but without the failed compensation. No other step is called, even if the workflow continues as new after each attempt.
func TestRedriveOfCompensations(t *testing.T) {
	t.Parallel()
	for _, mode := range []kahn.RedriveMode{kahn.RepeatCompensations, kahn.CompensatedByHand} {
		for _, after := range []int{0, 1} {
			var l ledger
			keys := map[string]bool{}
			g := new(kahn.Graph).Add(kahn.Node{ID: "reserve", Do: l.does, Compensate: l.undoes},
				kahn.Node{ID: "charge", Do: l.does, After: []string{"reserve"}, Compensate: func(ctx context.Context, s *kahn.Step) error {
					keys[s.IdempotencyKey()] = true
					if s.Attempt() == 1 {
						return kahn.Permanent(errors.New("closed"))
					}
					return l.undoes(ctx, s)
				}},
				kahn.Node{ID: "ship", After: []string{"charge"}, Do: func(context.Context, *kahn.Step) (any, error) {
					return nil, kahn.NoEffect(kahn.Permanent(errors.New("no truck")))
				}})
			what, err := prepareRedrive([]string{"charge"}, kahn.Request{Actor: "ann", Reason: "called"}, []kahn.Option{mode})
			require.NoError(t, err)
			x := &trial{workflow: Workflow{Plan: plan(t, g)}, options: Options{Step: nothing, ContinueAfter: after}, redrive: what}
			res, err := x.run(t)
			require.ErrorContains(t, err, "no truck")
			require.NotErrorIs(t, err, kahn.ErrCompensation)
			require.NotEqual(t, kahn.CauseCompensationFailed, res.Cause.Kind)
			n, _ := res.Node("charge")
			require.Equal(t, kahn.CompensationDone, n.Compensation)
			require.Len(t, keys, 1, "one compensation has one key")
			want := "reserve, charge, undo reserve#1 receipt of reserve true"
			if mode == kahn.RepeatCompensations {
				want += ", undo charge#2 receipt of charge true"
			} else {
				require.Equal(t, &kahn.Request{Actor: "ann", Reason: "called"}, n.Undoing.By)
			}
			require.Equal(t, want, l.String())
		}
	}
}

// A redrive of a failed run performs the failed nodes again. Completed nodes, the run's id and the idempotency keys are kept.
func TestRedrive(t *testing.T) {
	t.Parallel()
	down := true
	seen := map[string]map[string]bool{}
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if seen[s.Path()] == nil {
			seen[s.Path()] = map[string]bool{}
		}
		seen[s.Path()][s.RunID()+" "+s.IdempotencyKey()] = true
		if s.ID() == "b" && down {
			down = false
			return nil, kahn.Permanent(errStep)
		}
		return s.Attempt(), nil
	}
	what, err := prepareRedrive(nil, kahn.Request{}, nil)
	require.NoError(t, err)
	x := &trial{workflow: Workflow{Plan: plan(t, kahntest.Graph(t, "a>b b>c a>d")), Settings: Settings{Limit: 1}}, options: Options{Step: step}, redrive: what}
	res, err := x.run(t)
	require.NoError(t, err)
	kahntest.RequireStatuses(t, res, "a:ok b:ok c:ok d:ok")
	a, _ := res.Node("a")
	require.Equal(t, 1, a.Attempts)
	require.Equal(t, 2, x.executions)
	for path, keys := range seen {
		require.Len(t, keys, 1, path)
	}
}

// A redrive that the run would refuse starts nothing.
func TestRedriveRefused(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		nodes []string
		opts  []kahn.Option
		is    error
	}{
		"an unknown node":                   {[]string{"nobody"}, nil, kahn.ErrUnknownNode},
		"no compensation":                   {nil, []kahn.Option{kahn.RepeatCompensations}, kahn.ErrUnknownNode},
		"two modes that exclude each other": {nil, []kahn.Option{kahn.RepeatCompensations, kahn.Anew}, kahn.ErrBadOption},
	} {
		what, err := prepareRedrive(row.nodes, kahn.Request{}, row.opts)
		if err == nil {
			x := &trial{workflow: Workflow{Plan: plan(t, kahntest.Graph(t, "bad>b"))}, options: Options{Step: recordedStep}}
			res, _ := x.run(t)
			require.Equal(t, kahn.RunFailed, res.Status)
			_, err = lastExecution{in: x.in, out: x.out}.redriven(x.workflow, what)
		}
		require.ErrorIs(t, err, row.is, name)
	}
}

// asked records the paths of the attempts that a workflow starts, in order.
type asked struct {
	interceptor.WorkflowOutboundInterceptorBase
	t    *testing.T
	list []string
}

func (a *asked) follow(next interceptor.WorkflowOutboundInterceptor) interceptor.WorkflowOutboundInterceptor {
	a.Next = next
	return a
}

func (a *asked) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	a.list = append(a.list, nameInTask(a.t, args[0].(task)))
	return a.WorkflowOutboundInterceptorBase.ExecuteActivity(ctx, name, args...)
}

func nameInTask(t *testing.T, in task) string {
	t.Helper()
	c, err := callIn(in)
	require.NoError(t, err)
	if c.Compensating {
		return undoPrefix + in.Path
	}
	return in.Path
}

// scheduled returns the attempts in a history, in order.
func scheduled(t *testing.T, h *historypb.History) (list []string) {
	t.Helper()
	for _, e := range h.Events {
		if a := e.GetActivityTaskScheduledEventAttributes(); a != nil {
			var in task
			require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(a.Input, &in))
			list = append(list, nameInTask(t, in))
		}
	}
	return list
}

// swap exchanges two attempts in a history.
func swap(t *testing.T, h *historypb.History, one, other string) {
	t.Helper()
	names := scheduled(t, h)
	var events []*historypb.HistoryEvent
	for _, e := range h.Events {
		if e.GetEventType() == enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED {
			events = append(events, e)
		}
	}
	a, b := events[slices.Index(names, one)].GetActivityTaskScheduledEventAttributes(), events[slices.Index(names, other)].GetActivityTaskScheduledEventAttributes()
	a.Input, b.Input, a.ActivityType, b.ActivityType = b.Input, a.Input, b.ActivityType, a.ActivityType
}

// A replay repeats the compensations in the order of the history, including the compensation that the operator repeated. A replay fails if the
// order differs: if compensations that followed one another begin at once, or if two of them have changed places.
func TestReplayOfCompensations(t *testing.T) {
	t.Parallel()
	r := records["saga"]
	replay := func(p *kahn.Plan, h *historypb.History) ([]string, error) {
		a := &asked{t: t}
		replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{Interceptors: before(a.follow)})
		require.NoError(t, err)
		o := r.options
		o.Step, o.Plans = recordedStep, []*kahn.Plan{plan(t, r.graph(true))}
		host := newHost(o)
		host.MaxBytes, host.ContinueAfter, host.LostAfter = defaultMaxBytes, defaultContinueAfter, defaultLostAfter
		host.plans[idOf(o.Plans[0])] = p
		replayer.RegisterWorkflowWithOptions(host.run, workflow.RegisterOptions{Name: WorkflowName})
		err = replayer.ReplayWorkflowHistory(discard, h)
		return a.list, err
	}
	for file, want := range map[string][]string{
		"saga-0.json": {"reserve", "charge", "pack", "badly", "undo:pack", "undo:charge", "undo:reserve"},
		"saga-1.json": {"undo:charge"},
	} {
		h := historyOf(t, file)
		require.Equal(t, want, scheduled(t, h), file)
		got, err := replay(plan(t, r.graph(true)), h)
		require.NoError(t, err, file)
		require.Equal(t, want, got, file)
	}
	_, err := replay(plan(t, r.graph(false)), historyOf(t, "saga-0.json"))
	require.ErrorContains(t, err, "TMPRL1100", "charge and reserve would be undone at once")
	h := historyOf(t, "saga-0.json")
	swap(t, h, "undo:charge", "undo:reserve")
	got, err := replay(plan(t, r.graph(true)), h)
	require.NoError(t, err, "to the replayer all attempts are alike")
	require.NotEqual(t, scheduled(t, h), got)

	o := r.options
	o.Step, o.Plans = recordedStep, []*kahn.Plan{plan(t, r.graph(true))}
	replayer, err := o.Replayer()
	require.NoError(t, err)
	h = historyOf(t, namedHistories+"/saga-0.json")
	require.NoError(t, replayer.ReplayWorkflowHistory(discard, h))
	swap(t, h, "undo:charge", "undo:reserve")
	require.ErrorContains(t, replayer.ReplayWorkflowHistory(discard, h), "TMPRL1100", "their kinds are the types of their activities")
}
