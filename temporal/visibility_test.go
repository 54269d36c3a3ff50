package temporal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// The search attribute of a run is set whenever the run's status changes, in each execution.
func TestStatusAttribute(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		asked         bool
		continueAfter int
		want          []string
	}{
		"not asked": {},
		"asked":     {asked: true, want: []string{"suspended", "running", "completed"}},
		"continued": {asked: true, continueAfter: 1, want: []string{"suspended", "running", "completed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := &trial{workflow: Workflow{Plan: plan(t, kahntest.Graph(t, "a>ask ask>b ask{gate}")), SearchAttributes: row.asked}}
			x.options = Options{Step: recordedStep, ContinueAfter: row.continueAfter}
			var shown []string
			x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
				env.OnUpsertTypedSearchAttributes(mock.Anything).Run(func(args mock.Arguments) {
					status, ok := args.Get(0).(sdk.SearchAttributes).GetKeyword(statusAttribute)
					require.True(t, ok)
					shown = append(shown, status)
				}).Return(nil).Maybe()
				env.RegisterDelayedCallback(func() {
					value, err := env.QueryWorkflow(StateQuery)
					require.NoError(t, err)
					var s state
					if require.NoError(t, value.Get(&s)); len(s.Waiting) > 0 {
						update(t, env, SignalUpdate, signalRequest{Gate: "ask"})
					}
				}, time.Hour)
			}
			_, err := x.run(t)
			require.NoError(t, err)
			require.Equal(t, row.want, shown)
			if row.continueAfter > 0 {
				require.Greater(t, x.executions, 1)
			}
		})
	}
	with, err := Workflow{Plan: plan(t, kahntest.Graph(t, "a")), SearchAttributes: true}.input(nil)
	require.NoError(t, err)
	without, err := Workflow{Plan: plan(t, kahntest.Graph(t, "a"))}.input(nil)
	require.NoError(t, err)
	require.Equal(t, with.key(), without.key(), "they are asked to do the same")
}

// Lists select runs with search attributes by workflow and status, and other runs by what the service knows of any workflow.
func TestStoreQueries(t *testing.T) {
	t.Parallel()
	const of = "WorkflowType NOT IN ('kahn.Batch', 'kahn.Items') AND ExecutionStatus != 'ContinuedAsNew'"
	for _, row := range []struct {
		filter        store.Filter
		without, with string
	}{
		{store.Filter{}, "", ""},
		{store.Filter{Workflow: `it's\`}, "", ` AND KahnWorkflow = 'it\'s\\'`},
		{store.Filter{Statuses: []kahn.RunStatus{kahn.RunSuspended}}, " AND (ExecutionStatus = 'Running')", " AND (ExecutionStatus = 'Running' AND KahnStatus = 'suspended')"},
		{
			store.Filter{Statuses: []kahn.RunStatus{kahn.RunRunning, kahn.RunSuspended, kahn.RunCancelled}},
			" AND (ExecutionStatus = 'Canceled' OR ExecutionStatus = 'Running')",
			" AND (ExecutionStatus = 'Canceled' OR ExecutionStatus = 'Running' AND KahnStatus = 'running' OR ExecutionStatus = 'Running' AND KahnStatus = 'suspended')",
		},
		{
			store.Filter{Statuses: []kahn.RunStatus{kahn.RunFailed}},
			" AND (ExecutionStatus IN ('Failed', 'Terminated', 'TimedOut'))", " AND (ExecutionStatus IN ('Failed', 'Terminated', 'TimedOut'))",
		},
	} {
		require.Equal(t, of+row.without, Store{}.visible(row.filter))
		require.Equal(t, of+row.with, Store{SearchAttributes: true}.visible(row.filter))
	}
}

// The status of a running workflow comes from the search attribute. After Temporal has ended the workflow, the attribute is out of date and ignored.
func TestStatusOfRows(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		attribute any
		status    enums.WorkflowExecutionStatus
		want      kahn.RunStatus
	}{
		{nil, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, kahn.RunRunning},
		{"suspended", enums.WORKFLOW_EXECUTION_STATUS_RUNNING, kahn.RunSuspended},
		{"running", enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, kahn.RunFailed},
		{"of others", enums.WORKFLOW_EXECUTION_STATUS_RUNNING, kahn.RunRunning},
		{7, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, kahn.RunRunning},
	} {
		w := &workflowpb.WorkflowExecutionInfo{Status: row.status}
		if row.attribute != nil {
			p, err := converter.GetDefaultDataConverter().ToPayload(row.attribute)
			require.NoError(t, err)
			w.SearchAttributes = &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{StatusAttribute: p}}
		}
		require.Equal(t, row.want, Store{}.row(w).Status, "%v", row)
	}
}
