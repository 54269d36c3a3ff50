package temporal

import (
	"context"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/sse"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/trace"
)

// log returns the event log of a trial. It queries the trial's executions as a client queries a service, in pages of few events.
func (x *trial) log(t testing.TB) *store.EventLog {
	t.Helper()
	var firsts []uint64
	log := eventLog{ask: func(_ context.Context, of execution, q eventsRequest) (a eventsAnswer, err error) {
		env := x.envs[len(x.envs)-1]
		if of != (execution{}) {
			env = x.envs[slices.Index(firsts, of.First)]
		}
		q.Limit = min(q.Limit, 3)
		value, err := env.QueryWorkflow(EventsQuery, q)
		if err != nil {
			return a, err
		}
		return a, value.Get(&a)
	}}
	for _, env := range x.envs {
		value, err := env.QueryWorkflow(EventsQuery, eventsRequest{})
		require.NoError(t, err)
		var a eventsAnswer
		require.NoError(t, value.Get(&a))
		firsts = append(firsts, a.Page.First)
	}
	answer, err := log.ask(t.Context(), execution{}, eventsRequest{})
	require.NoError(t, err)
	opened, err := store.OpenEvents(t.Context(), log, answer.RunID)
	require.NoError(t, err)
	return opened
}

// A run on Temporal has the same events as a run in one process, however many executions it has. The test reads them as a stream, as a trace,
// and from the middle.
func TestEvents(t *testing.T) {
	t.Parallel()
	for _, continueAfter := range []int{0, 1, 3} {
		g := inNotation("flaky>b b>bad bad-!>catch bad>never b>d d~>e e>ask ask>end2 ask{gate}")(true)
		x := &trial{workflow: Workflow{Plan: plan(t, g), Settings: Settings{DefaultRetry: retried, Limit: 1}}, options: Options{Step: recordedStep, ContinueAfter: continueAfter}}
		x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
			env.RegisterDelayedCallback(func() {
				value, err := env.QueryWorkflow(StateQuery)
				require.NoError(t, err)
				var s state
				if require.NoError(t, value.Get(&s)); len(s.Waiting) > 0 {
					update(t, env, SignalUpdate, signalRequest{Gate: "ask", Value: []byte(`"yes"`)})
				}
			}, time.Hour)
		}
		res, err := x.run(t)
		require.NoError(t, err)
		log := x.log(t)
		var events []event.Event
		for e, err := range log.Events(t.Context(), 0) {
			require.NoError(t, err)
			events = append(events, e)
		}
		require.NoError(t, kahntest.CheckEvents(g, res, events))
		require.Equal(t, event.RunCompleted, events[len(events)-1].Type)
		require.Equal(t, kahn.RunCompleted, log.Status())
		middle := uint64(len(events) / 2)
		for e, err := range log.Events(t.Context(), middle) {
			require.NoError(t, err)
			require.Equal(t, events[middle], e)
			middle++
		}
		require.EqualValues(t, len(events), middle)

		answer := httptest.NewRecorder()
		(&sse.Handler{Find: sse.Fixed(log)}).ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
		require.Contains(t, answer.Body.String(), string(event.RunCompleted))
		report := trace.NewReport(res, events)
		require.Equal(t, 2, report.Retries, "of flaky")
		require.NotEmpty(t, report.CriticalPath)

		value, err := x.envs[len(x.envs)-1].QueryWorkflow(SnapshotQuery)
		require.NoError(t, err)
		var p packed
		require.NoError(t, value.Get(&p))
		snapshot, err := p.open(x.workflow.texts())
		require.NoError(t, err)
		nodes, err := snapshot.Nodes(x.workflow.Plan)
		require.NoError(t, err)
		for _, n := range nodes {
			of, _ := res.Node(n.ID)
			require.Equal(t, of.Status, n.Status, n.ID)
		}
	}
}
