package temporal

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/mocks"
	"go.temporal.io/sdk/testsuite"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// forwarding is a client that forwards updates to the run of a trial.
type forwarding struct {
	mocks.Client
	env *testsuite.TestWorkflowEnvironment
}

func (*forwarding) GetWorkflow(context.Context, string, string) client.WorkflowRun {
	return new(mocks.WorkflowRun)
}

// answeredUpdate is an update that the workflow has answered.
type answeredUpdate struct{ client.WorkflowUpdateHandle }

func (answeredUpdate) Get(context.Context, any) error { return nil }

func (f *forwarding) UpdateWorkflow(_ context.Context, o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	none := func(error) {}
	f.env.UpdateWorkflow(o.UpdateName, o.UpdateID, &testsuite.TestUpdateCallback{OnAccept: func() {}, OnReject: none, OnComplete: func(any, error) {}}, o.Args...)
	return answeredUpdate{}, nil
}

// A Store passes the requests of an operator to the run, with the actor and the reason.
func TestStoreRequests(t *testing.T) {
	t.Parallel()
	by := kahn.Request{Actor: "ann", Reason: "enough"}
	for name, c := range map[string]struct {
		ask      func(s Store) error
		statuses string
		run      kahn.RunStatus
		asked    kahn.Request
	}{
		"signal": {func(s Store) error {
			return s.Signal(t.Context(), "w", "ask", kahn.Decision{Value: "yes", Actor: "ann", ID: "1"})
		}, "a:ok ask:ok b:ok c:S/br", kahn.RunCompleted, kahn.Request{}},
		"cancel": {func(s Store) error { return s.Cancel(t.Context(), "w", by) }, "a:ok ask:C b:C c:C", kahn.RunCancelled, by},
		"abort":  {func(s Store) error { return s.Abort(t.Context(), "w", nil, by) }, "a:ok ask:X b:X c:X", kahn.RunFailed, by},
		"node":   {func(s Store) error { return s.CancelNode(t.Context(), "w", "ask") }, "a:ok ask:C b:X c:X", kahn.RunCancelled, kahn.Request{}},
	} {
		x := &trial{workflow: Workflow{ID: "w", Plan: plan(t, kahntest.Graph(t, "a>ask ask-[yes]>b ask-[no]>c ask{gate}"))}, options: Options{Step: recordedStep}}
		x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
			env.RegisterDelayedCallback(func() { require.NoError(t, c.ask(Store{Client: &forwarding{env: env}})) }, time.Hour)
		}
		res, _ := x.run(t)
		require.NotNil(t, res, name)
		require.Equal(t, []any{c.run, c.asked}, []any{res.Status, res.StopRequest}, name)
		kahntest.RequireStatuses(t, res, c.statuses)
		if ask, _ := res.Node("ask"); name == "signal" {
			require.Equal(t, &kahn.Decision{Value: "yes", Actor: "ann", ID: "1"}, ask.Decision)
		}
	}
}

// The error of a request matches kahn.ErrFinished if the run has ended, and kahn.ErrUnknownRun if the run does not exist. If the run refuses the
// request, the error matches the reason, such as kahn.ErrChoice. Any other error of the client is wrapped.
func TestStoreRequestsThatFail(t *testing.T) {
	t.Parallel()
	none := serviceerror.NewNotFound("workflow execution already completed")
	for _, c := range []struct {
		of    error
		about *workflowservice.DescribeWorkflowExecutionResponse
		want  error
	}{
		{none, &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Status: enums.WORKFLOW_EXECUTION_STATUS_COMPLETED}}, kahn.ErrFinished},
		{none, nil, kahn.ErrUnknownRun},
		{encodeRefusal(kahn.ErrChoice), nil, kahn.ErrChoice},
		{context.DeadlineExceeded, nil, context.DeadlineExceeded},
	} {
		s := new(mocks.Client)
		s.On("UpdateWorkflow", mock.Anything, mock.Anything).Return(nil, c.of)
		var lookErr error
		if c.about == nil {
			lookErr = none
		}
		s.On("DescribeWorkflowExecution", mock.Anything, "w", "").Return(c.about, lookErr)
		s.On("GetWorkflow", mock.Anything, "w", "").Return(new(mocks.WorkflowRun))
		shown := Store{Client: s}
		for _, err := range []error{
			shown.Signal(t.Context(), "w", "ask", "yes"), shown.Cancel(t.Context(), "w", kahn.Request{}), shown.Abort(t.Context(), "w", nil, kahn.Request{}), shown.CancelNode(t.Context(), "w", "a"),
		} {
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, `workflow "w"`)
		}
		require.ErrorIs(t, shown.Signal(t.Context(), "w", "ask", make(chan int)), kahn.ErrNotEncodable)
	}
}

// List returns the workflows that are runs, page by page, with the data from their memos.
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
	require.Equal(t, `WorkflowType NOT IN ('kahn.Batch', 'kahn.Items') AND ExecutionStatus != 'ContinuedAsNew' AND WorkflowId STARTS_WITH 'it\'s' AND (ExecutionStatus = 'Running') AND StartTime >= '2030-01-02T03:04:05Z'`, queries[0])

	counts, err := shown.Count(t.Context(), store.Filter{})
	require.NoError(t, err)
	require.Equal(t, []store.Count{
		{Workflow: "orders", Status: kahn.RunRunning, Runs: 2}, {Workflow: "orders", Status: kahn.RunCompleted, Runs: 1}, {Workflow: "orders", Status: kahn.RunFailed, Runs: 1},
	}, counts)
	_, err = shown.List(t.Context(), store.Query{After: "?"})
	require.ErrorIs(t, err, kahn.ErrBadValue)
	_, err = shown.List(t.Context(), store.Query{Limit: -1})
	require.ErrorIs(t, err, kahn.ErrBadValue)
	_, _, err = shown.Acquire(t.Context(), "a", "me", time.Second)
	require.ErrorIs(t, err, ErrReadOnly)
	require.ErrorIs(t, shown.Insert(t.Context(), nil), ErrReadOnly)
}
