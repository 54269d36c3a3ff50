package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/mocks"
	sdk "go.temporal.io/sdk/temporal"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// service stands for a Temporal service with one workflow, or with none.
type service struct {
	mocks.Client
	memo    map[string]any // the memo of the existing workflow; nil if there is none
	writes  converter.DataConverter
	started []client.StartWorkflowOptions
	input   input
}

func newService() *service {
	s := &service{writes: converter.GetDefaultDataConverter()}
	s.On("ExecuteWorkflow", mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(
		func(_ context.Context, o client.StartWorkflowOptions, _ any, args ...any) client.WorkflowRun {
			if s.memo != nil {
				return nil
			}
			s.started, s.memo, s.input = append(s.started, o), o.Memo, args[0].(input)
			return new(mocks.WorkflowRun)
		},
		func(context.Context, client.StartWorkflowOptions, any, ...any) error {
			if len(s.started) == 0 {
				return serviceerror.NewWorkflowExecutionAlreadyStarted("exists", "", "")
			}
			o := s.started[0]
			s.started = s.started[1:]
			if o.ID == "unreachable" {
				return errors.New("no connection")
			}
			return nil
		})
	s.On("DescribeWorkflowExecution", mock.Anything, mock.Anything, "").Return(func(context.Context, string, string) *workflowservice.DescribeWorkflowExecutionResponse {
		fields := map[string]*commonpb.Payload{}
		for name, v := range s.memo {
			fields[name], _ = s.writes.ToPayload(v)
		}
		return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Memo: &commonpb.Memo{Fields: fields}}}
	}, nil)
	s.On("GetWorkflow", mock.Anything, mock.Anything, "").Return(new(mocks.WorkflowRun))
	return s
}

// Start returns the existing run of an id if plan, settings and inputs are the same, and refuses the id if they differ.
func TestStart(t *testing.T) {
	t.Parallel()
	g := kahntest.Graph(t, "a")
	g.Inputs = []kahn.Input{{Name: "n"}}
	w := Workflow{ID: "w", TaskQueue: "q", Plan: plan(t, g)}
	in := map[string]any{"n": 1}
	start := func(s *service, w Workflow, in map[string]any) error {
		run, err := Start(t.Context(), s, w, in)
		if err == nil && run.ID() != w.ID {
			return fmt.Errorf("the run is %s", run.ID())
		}
		return err
	}
	s := newService()
	require.NoError(t, start(s, w, in))
	require.True(t, s.input.ShortCalls)
	require.NoError(t, start(s, w, map[string]any{"n": 1}), "it exists, and was asked the same")
	require.ErrorIs(t, start(s, w, map[string]any{"n": 2}), kahn.ErrKeyConflict)
	require.ErrorIs(t, start(s, w, map[string]any{"n": "1"}), kahn.ErrKeyConflict)
	other := w
	other.Settings.Limit = 1
	require.ErrorIs(t, start(s, other, in), kahn.ErrKeyConflict)
	other = w
	g.Add(kahn.Node{ID: "b"})
	other.Plan = plan(t, g)
	require.ErrorIs(t, start(s, other, in), kahn.ErrKeyConflict)
	foreign := newService()
	foreign.memo = map[string]any{"of": "another program"}
	require.ErrorIs(t, start(foreign, w, in), kahn.ErrKeyConflict)

	// The client can read a memo that it has written with the host's own data converter.
	s = newService()
	s.writes = converter.NewCodecDataConverter(s.writes, converter.NewZlibCodec(converter.ZlibCodecOptions{AlwaysEncode: true}))
	coded := w
	coded.DataConverter = s.writes
	require.NoError(t, start(s, coded, in))
	require.NoError(t, start(s, coded, in))
	require.ErrorIs(t, start(s, coded, map[string]any{"n": 2}), kahn.ErrKeyConflict)

	// Start starts nothing if the run cannot begin.
	s = newService()
	require.ErrorIs(t, start(s, w, nil), kahn.ErrMissingInput)
	require.ErrorIs(t, start(s, w, map[string]any{"n": 1, "m": 2}), kahn.ErrUnknownInput)
	require.ErrorIs(t, start(s, w, map[string]any{"n": make(chan int)}), kahn.ErrNotEncodable)
	require.ErrorIs(t, start(s, Workflow{ID: "w"}, nil), kahn.ErrNoGraph)
	bad := w
	bad.Settings.Limit = -1
	require.ErrorIs(t, start(s, bad, in), kahn.ErrBadOption)
	hasty := w
	hasty.ExecutionTimeout = 60
	require.ErrorIs(t, start(s, hasty, in), kahn.ErrBadOption)
	require.ErrorContains(t, start(s, hasty, in), "ExecutionTimeout 60ns: is its unit missing?")
	asked := 0
	guarded := plan(t, new(kahn.Graph).Add(kahn.Node{ID: "a", When: func(kahn.View) (bool, error) { asked++; return true, nil }}))
	require.NoError(t, start(newService(), Workflow{ID: "w", Plan: guarded}, nil))
	require.Zero(t, asked, "the functions of the plan are the workers' to call")
	moderated := plan(t, new(kahn.Graph).Add(kahn.Node{ID: "m", Moderation: kahn.ModerateInput}))
	require.ErrorIs(t, start(s, Workflow{ID: "w", Plan: moderated}, nil), ErrUnsupported)
	require.Nil(t, s.memo)
	lost := w
	lost.ID = "unreachable"
	require.ErrorContains(t, start(s, lost, in), `workflow "unreachable": no connection`)
}

// A program with another StateVersion finds an existing run, since the version is not part of the key.
func TestKeyOfAnotherVersion(t *testing.T) {
	t.Parallel()
	in, err := Workflow{Plan: plan(t, kahntest.Graph(t, "a"))}.input(nil)
	require.NoError(t, err)
	old := in
	old.StateVersion--
	require.Equal(t, old.key(), in.key())
	old.Settings.Limit = 1
	require.NotEqual(t, old.key(), in.key())
}

// RetryFailed decides whether Start may use the id of a workflow that has ended.
func TestRetryFailed(t *testing.T) {
	t.Parallel()
	for retry, want := range map[bool]enums.WorkflowIdReusePolicy{
		false: enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE, true: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY,
	} {
		s := new(mocks.Client)
		s.On("ExecuteWorkflow", mock.Anything, mock.MatchedBy(func(o client.StartWorkflowOptions) bool {
			return o.WorkflowIDReusePolicy == want && o.WorkflowExecutionErrorWhenAlreadyStarted
		}), UnnamedGraph, mock.Anything).Return(new(mocks.WorkflowRun), nil).Once()
		_, err := Start(t.Context(), s, Workflow{ID: "w", Plan: plan(t, kahntest.Graph(t, "a")), RetryFailed: retry}, nil)
		require.NoError(t, err)
		s.AssertExpectations(t)
	}
}

// Start adds its own memo and search attributes to the host's, and keeps the host's.
func TestStartOptions(t *testing.T) {
	t.Parallel()
	tenant := sdk.NewSearchAttributeKeyKeyword("Tenant")
	w := Workflow{ID: "w", Memo: map[string]any{"ticket": 7, memoName: "not the host's"}, Attributes: sdk.NewSearchAttributes(tenant.ValueSet("acme")), ExecutionTimeout: time.Hour, Priority: sdk.Priority{PriorityKey: 1}}
	for _, shown := range []bool{false, true} {
		o := w.startOptions(input{SearchAttributes: shown, Plan: planID{Name: "orders"}}, memo{Key: "k"})
		require.Equal(t, map[string]any{"ticket": 7, memoName: memo{Key: "k"}}, o.Memo)
		require.Equal(t, []any{time.Hour, 1}, []any{o.WorkflowExecutionTimeout, o.Priority.PriorityKey})
		got, _ := o.TypedSearchAttributes.GetKeyword(tenant)
		require.Equal(t, "acme", got)
		_, has := o.TypedSearchAttributes.GetKeyword(workflowAttribute)
		require.Equal(t, shown, has)
	}
}

// All Settings reach the workflow unchanged.
func TestSettings(t *testing.T) {
	t.Parallel()
	want := Settings{
		Mode: kahn.Waves, StatusRule: kahn.StatusStrict, OnFailure: kahn.AbortRunning, StopMode: kahn.Drain, OnSuspend: kahn.SuspendStop, Limit: 1, KeyLimit: 2,
		StartRate: kahn.Rate{Starts: 1, Per: time.Second}, KeyRate: kahn.Rate{Starts: 2, Per: time.Minute, Burst: 3},
		DefaultRetry: &kahn.Retry{MaxAttempts: 3, RetryOn: []kahn.CauseKind{}}, Timeout: 1, CancelGrace: 2, CleanupTimeout: 3, MaxCrashes: -1,
	}
	data, err := json.Marshal(want)
	require.NoError(t, err)
	var got Settings
	require.NoError(t, json.Unmarshal(data, &got))
	require.Equal(t, want, got)
	none, err := json.Marshal(Settings{})
	require.NoError(t, err)
	require.Equal(t, "{}", string(none))
	in, err := Workflow{Plan: plan(t, kahntest.Graph(t, "a")), Settings: want}.input(nil)
	require.NoError(t, err)
	require.Equal(t, want, in.Settings)
}

// When a run refuses a request, errors.Is finds the same error in the process that made the request. An error of Temporal stays unchanged.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, r := range refusals {
		err := decodeRefusal(encodeRefusal(fmt.Errorf("node %q: %w", "a", r.err)))
		require.ErrorIs(t, err, r.err)
		require.Equal(t, fmt.Sprintf("node %q: %v", "a", r.err), err.Error())
	}
	require.NoError(t, encodeRefusal(nil))
	require.NoError(t, decodeRefusal(nil))
	other := sdk.NewApplicationError("other", "of another workflow")
	require.Equal(t, other, decodeRefusal(other))
	require.ErrorContains(t, decodeRefusal(encodeRefusal(errors.New("unheard of"))), "unheard of")
}

// Wait returns the Result of any run that has ended, and an error if the workflow is not a run.
func TestWait(t *testing.T) {
	t.Parallel()
	of := Workflow{ID: "w", Plan: plan(t, kahntest.Graph(t, "a"))}
	run := new(mocks.WorkflowRun)
	terminated := errors.New("terminated")
	run.On("Get", mock.Anything, mock.Anything).Return(terminated)
	res, err := (&Run{of: of, get: run}).Wait(t.Context())
	require.Nil(t, res)
	require.ErrorIs(t, err, terminated)
	require.ErrorContains(t, err, `workflow "w"`)
}
