package temporal

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
)

// reason is a detail of an ApplicationError.
type reason struct {
	Code int
	Text string
}

func declined() error {
	return sdk.NewApplicationErrorWithOptions("card declined", "Declined", sdk.ApplicationErrorOptions{
		NonRetryable: true, Details: []any{reason{7, "limit"}, "again tomorrow"}, Cause: sdk.NewApplicationError("bank closed", "Bank", 3),
	})
}

// requireDeclined checks that errors.As finds the error of the function declined, with its details and its cause.
func requireDeclined(t *testing.T, err error) {
	t.Helper()
	var failed, cause *sdk.ApplicationError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, []any{"card declined", "Declined", true}, []any{failed.Message(), failed.Type(), failed.NonRetryable()})
	var r reason
	var text string
	require.NoError(t, failed.Details(&r, &text))
	require.Equal(t, []any{reason{7, "limit"}, "again tomorrow"}, []any{r, text})
	require.ErrorAs(t, errors.Unwrap(failed), &cause)
	require.Equal(t, []any{"bank closed", "Bank"}, []any{cause.Message(), cause.Type()})
	var n int
	require.NoError(t, cause.Details(&n))
	require.Equal(t, 3, n)
}

// An ApplicationError of a step, or of a workflow that performs a step, reaches the Result of a client with its type and its details: also from an item
// of a large map, and if the run has continued as a new execution since. The text of the error stays the same.
func TestApplicationErrors(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		node  kahn.Node
		kinds map[string]Kind
		nodes int
	}{
		"a step":                {kahn.Node{ID: "pay"}, nil, 1},
		"a local step":          {kahn.Node{ID: "pay", Kind: "local"}, map[string]Kind{"local": {Local: true}}, 1},
		"a workflow":            {kahn.Node{ID: "pay", Kind: "ship"}, map[string]Kind{"ship": {Workflow: func(*kahn.Step) (StepWorkflow, error) { return StepWorkflow{Type: "ship"}, nil }}}, 1},
		"an item of a map":      {kahn.Node{ID: "pay", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []any{1., 2., 3., 4., 5.}}}, nil, 6},
		"a node of a composite": {kahn.Node{ID: "S", Sub: new(kahn.Graph).Add(kahn.Node{ID: "pay"})}, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := row.node
			first.ContinueOnFail = true
			g := (&kahn.Graph{Name: "pays"}).Add(first, kahn.Node{ID: "b", After: []string{first.ID}}, kahn.Node{ID: "c", After: []string{"b"}}, kahn.Node{ID: "d", After: []string{"c"}})
			x := &trial{workflow: Workflow{ID: "order-17", Plan: plan(t, g), Settings: Settings{MapChildren: 4}}, options: Options{ContinueAfter: 1, Kinds: row.kinds, Step: func(_ context.Context, s *kahn.Step) (any, error) {
				if strings.Contains(s.Path(), "pay") {
					return nil, declined()
				}
				return nil, nil
			}}}
			x.ships(func(workflow.Context) error { return declined() })
			res, err := x.run(t)
			require.NoError(t, err, "the node has ContinueOnFail")
			require.Greater(t, x.executions, 1)
			var nodes []kahn.NodeResult
			n, _ := res.Node(first.ID)
			nodes = append(nodes, n)
			if n.Sub != nil {
				for inner := range n.Sub.Nodes() {
					nodes = append(nodes, inner)
				}
			}
			require.Len(t, nodes, row.nodes)
			for _, n := range nodes {
				requireDeclined(t, n.Err)
				require.ErrorContains(t, n.Err, declined().Error())
				require.LessOrEqual(t, n.Attempts, 1, "it is not retryable")
			}
		})
	}
}

// The next attempt of a step sees the ApplicationError of the attempt before.
func TestApplicationErrorOfTheLastAttempt(t *testing.T) {
	t.Parallel()
	seen := make(chan error, 1)
	x := &trial{workflow: Workflow{Plan: plan(t, new(kahn.Graph).Add(kahn.Node{ID: "a", Retry: kahn.Retry{MaxAttempts: 2}}))}, options: Options{Step: func(_ context.Context, s *kahn.Step) (any, error) {
		if s.Attempt() == 1 {
			return nil, sdk.NewApplicationError("busy", "Busy", 5)
		}
		seen <- s.LastErr()
		return nil, nil
	}}}
	_, err := x.run(t)
	require.NoError(t, err)
	var busy *sdk.ApplicationError
	require.ErrorAs(t, <-seen, &busy)
	require.Equal(t, "Busy", busy.Type())
}

// A parent sees which node of its run has failed, with the type and the details of the step's error: by Child.Wait, and by the SDK alone, as parents in
// other languages do. A step's error without a type has the cause of the node's failure as its type.
func TestFailureOfChild(t *testing.T) {
	t.Parallel()
	p := plan(t, orders(""))
	for name, row := range map[string]struct {
		err  error
		want string // the type
		text string
	}{
		"an application error": {declined(), "Declined", "card declined"}, "a plain error": {kahn.Permanent(errStep), "step_error", errStep.Error()},
	} {
		for _, alone := range []bool{false, true} {
			env := environment(t, Options{Plans: []*kahn.Plan{p}, Step: func(context.Context, *kahn.Step) (any, error) { return nil, row.err }})
			var got error
			env.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
				if !alone {
					_, got = ExecuteChild(ctx, Workflow{Plan: p}, map[string]any{"order": 17}).Wait(ctx)
					return nil
				}
				err := workflow.ExecuteChildWorkflow(ctx, "orders", map[string]any{"inputs": map[string]any{"order": 17}}).Get(ctx, nil)
				var failed *sdk.ApplicationError
				require.ErrorAs(t, err, &failed)
				require.Equal(t, failedRun, failed.Type())
				require.True(t, failed.NonRetryable())
				got = failed.Unwrap()
				return nil
			}, workflow.RegisterOptions{Name: "parent"})
			env.ExecuteWorkflow("parent")
			require.NoError(t, env.GetWorkflowError(), name)
			var cause *sdk.ApplicationError
			require.ErrorAs(t, got, &cause, name)
			require.Equal(t, row.want, cause.Type(), name)
			require.Contains(t, cause.Message(), `node "take"`, name)
			require.Contains(t, cause.Message(), row.text, name)
			if row.want == "Declined" {
				var r reason
				require.NoError(t, cause.Details(&r))
				require.Equal(t, 7, r.Code)
			}
			if !alone {
				var run *kahn.RunError
				require.ErrorAs(t, got, &run, name)
				require.Equal(t, run.Error(), got.Error(), name)
				require.Same(t, cause, errors.Unwrap(got), "a workflow that returns the error has the cause, too")
			}
		}
	}
}

// What travels with an error is bounded, and an error that cannot travel keeps its text.
func TestApplicationErrorBounds(t *testing.T) {
	t.Parallel()
	through := func(err error) *sdk.ApplicationError {
		t.Helper()
		data := writeApplication(err)
		require.NotNil(t, data)
		require.Less(t, len(data), 3*keptBytes)
		var got *sdk.ApplicationError
		require.ErrorAs(t, readApplication(data), &got)
		return got
	}
	long := through(sdk.NewApplicationError(strings.Repeat("m", 1<<20), "T", strings.Repeat("d", 1<<20)))
	require.Equal(t, "T", long.Type())
	require.False(t, long.HasDetails())
	require.False(t, through(sdk.NewApplicationError("m", "T", func() {})).HasDetails(), "a detail that cannot be encoded")
	deep := sdk.NewApplicationError("end", "T")
	for range 100 {
		deep = sdk.NewApplicationErrorWithCause("m", "T", deep)
	}
	require.Equal(t, "T", through(deep).Type(), "a chain of causes")
	wrapped := through(sdk.NewApplicationErrorWithCause("m", "T", errors.New("plain")))
	require.EqualError(t, wrapped.Unwrap(), "plain")
	require.Equal(t, sdk.NewApplicationErrorWithCause("m", "T", errors.New("plain")).Error(), wrapped.Error())
	require.Nil(t, writeApplication(errStep))
	for _, damaged := range []string{"", "7", `{"cause": 7}`} {
		require.Nil(t, readApplication([]byte(damaged)), damaged)
	}
	var many []any
	for i := range 40 {
		many = append(many, i)
	}
	var first int
	require.NoError(t, through(sdk.NewApplicationError("m", "T", many...)).Details(&first))
	coded := sdk.GetDefaultFailureConverter()
	received := coded.FailureToError(coded.ErrorToFailure(sdk.NewApplicationError("m", "T", many...)))
	require.NoError(t, through(received).Details(&first))
}

// The details of an error from an encoded history travel decoded, inside a payload that is encoded as a whole; the cause of a run's failure is encoded
// again.
func TestApplicationErrorCoded(t *testing.T) {
	t.Parallel()
	dc := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), converter.NewZlibCodec(converter.ZlibCodecOptions{AlwaysEncode: true}))
	coded := sdk.NewDefaultFailureConverter(sdk.DefaultFailureConverterOptions{DataConverter: dc, EncodeCommonAttributes: true})
	received := coded.FailureToError(coded.ErrorToFailure(declined()))
	requireDeclined(t, readApplication(writeApplication(received)))
	cause := coded.ErrorToFailure(causeOf(&kahn.RunError{Errs: []error{&kahn.NodeError{Node: "pay", Attempt: 1, Kind: kahn.CauseStepError, Err: received}}}))
	require.NotContains(t, cause.String(), "limit")
	require.NotContains(t, cause.String(), "declined")
	var again *sdk.ApplicationError
	require.ErrorAs(t, coded.FailureToError(cause), &again)
	var r reason
	require.NoError(t, again.Details(&r))
	require.Equal(t, reason{7, "limit"}, r)
}
