package temporal

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// Lists have the workflows that are runs, page by page, with what Temporal keeps beside them.
func TestStoreList(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	s := newService()
	named, err := s.writes.ToPayload(memo{Plan: planID{Name: "orders"}})
	require.NoError(t, err)
	workflow := func(id string, status enums.WorkflowExecutionStatus, fields map[string]*commonpb.Payload) *workflowpb.WorkflowExecutionInfo {
		return &workflowpb.WorkflowExecutionInfo{
			Execution: &commonpb.WorkflowExecution{WorkflowId: id}, Status: status, StartTime: timestamppb.New(at), Memo: &commonpb.Memo{Fields: fields},
		}
	}
	pages := map[string]*workflowservice.ListWorkflowExecutionsResponse{
		"": {NextPageToken: []byte("2"), Executions: []*workflowpb.WorkflowExecutionInfo{
			workflow("a", enums.WORKFLOW_EXECUTION_STATUS_RUNNING, map[string]*commonpb.Payload{memoName: named}),
			workflow("b", enums.WORKFLOW_EXECUTION_STATUS_COMPLETED, map[string]*commonpb.Payload{memoName: named}),
		}},
		"2": {Executions: []*workflowpb.WorkflowExecutionInfo{
			workflow("c", enums.WORKFLOW_EXECUTION_STATUS_RUNNING, nil), workflow("d", enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, map[string]*commonpb.Payload{memoName: named}),
			workflow("e", enums.WORKFLOW_EXECUTION_STATUS_RUNNING, map[string]*commonpb.Payload{memoName: named}),
		}},
	}
	var queries []string
	s.On("ListWorkflow", mock.Anything, mock.Anything).Return(func(_ context.Context, r *workflowservice.ListWorkflowExecutionsRequest) *workflowservice.ListWorkflowExecutionsResponse {
		queries = append(queries, r.Query)
		return pages[string(r.NextPageToken)]
	}, nil)
	shown := Store{Client: s}
	var ids []string
	q := store.Query{Filter: store.Filter{Workflow: "orders", Statuses: []kahn.RunStatus{kahn.RunRunning}, Prefix: "it's", CreatedFrom: at}}
	for {
		page, err := shown.List(t.Context(), q)
		require.NoError(t, err)
		for _, r := range page.Runs {
			require.Equal(t, at, r.Created)
			ids = append(ids, r.ID)
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	require.Equal(t, []string(nil), ids, "none begins with the prefix")
	require.Equal(t, `WorkflowType = 'kahn.Run' AND ExecutionStatus != 'ContinuedAsNew' AND WorkflowId STARTS_WITH 'it\'s' AND StartTime >= '2030-01-02T03:04:05Z'`, queries[0])

	counts, err := shown.Count(t.Context(), store.Filter{})
	require.NoError(t, err)
	require.Equal(t, []store.Count{
		{Status: kahn.RunRunning, Runs: 1}, {Workflow: "orders", Status: kahn.RunRunning, Runs: 2}, {Workflow: "orders", Status: kahn.RunCompleted, Runs: 1}, {Workflow: "orders", Status: kahn.RunFailed, Runs: 1},
	}, counts)
	_, err = shown.List(t.Context(), store.Query{After: "?"})
	require.ErrorIs(t, err, kahn.ErrBadValue)
	_, err = shown.List(t.Context(), store.Query{Limit: -1})
	require.ErrorIs(t, err, kahn.ErrBadValue)
	_, _, err = shown.Acquire(t.Context(), "a", "me", time.Second)
	require.ErrorIs(t, err, ErrReadOnly)
	require.ErrorIs(t, shown.Insert(t.Context(), nil), ErrReadOnly)
}
