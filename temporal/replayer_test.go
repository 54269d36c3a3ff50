package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
)

// historyOf reads a recorded history.
func historyOf(t *testing.T, name string) *historypb.History {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "histories", name))
	require.NoError(t, err)
	history := new(historypb.History)
	require.NoError(t, temporalproto.CustomJSONUnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, history))
	return history
}

// returns records the error of a workflow.
type returns struct {
	interceptor.WorkerInterceptorBase
	err error
}

type returningWorkflow struct {
	interceptor.WorkflowInboundInterceptorBase
	of *returns
}

func (e *returns) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &returningWorkflow{interceptor.WorkflowInboundInterceptorBase{Next: next}, e}
}

func (e *returningWorkflow) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (result any, err error) {
	result, err = e.Next.ExecuteWorkflow(ctx, in)
	e.of.err = err
	return result, err
}

// If Temporal cancels the workflow in the task whose result would make the run continue as new, the run is cancelled. The test itself checks how
// the workflow ends, since the SDK's replayer does not compare the end of a cancelled workflow.
func TestCancelAtTheEnd(t *testing.T) {
	t.Parallel()
	r, noted := earlier["cancelatend"], new(returns)
	o := r.options
	o.Step, o.Plans = recordedStep, []*kahn.Plan{plan(t, r.graph(true))}
	o.Worker = worker.Options{Interceptors: []interceptor.WorkerInterceptor{noted}}
	replayer, err := o.Replayer()
	require.NoError(t, err)
	require.NoError(t, replayer.ReplayWorkflowHistory(discard, historyOf(t, "cancelatend-0.json")))
	require.True(t, sdk.IsCanceledError(noted.err), "%v", noted.err)
}

// secret is a codec whose payloads the default data converter cannot read.
type secret struct{}

func (secret) Encode(list []*commonpb.Payload) ([]*commonpb.Payload, error) {
	coded := make([]*commonpb.Payload, len(list))
	for i, p := range list {
		data, err := p.Marshal()
		if err != nil {
			return nil, err
		}
		for j := range data {
			data[j] ^= 0x5a
		}
		coded[i] = &commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("binary/secret")}, Data: data}
	}
	return coded, nil
}

func (secret) Decode(list []*commonpb.Payload) ([]*commonpb.Payload, error) {
	plain := make([]*commonpb.Payload, len(list))
	for i, p := range list {
		if plain[i] = p; string(p.GetMetadata()["encoding"]) != "binary/secret" {
			continue
		}
		data := make([]byte, len(p.Data))
		for j := range data {
			data[j] = p.Data[j] ^ 0x5a
		}
		if plain[i] = new(commonpb.Payload); plain[i].Unmarshal(data) != nil {
			return nil, errors.New("another key")
		}
	}
	return plain, nil
}

// The encrypted history of a failed run replays with the right data converter; without it the replay returns an error. A replay that cannot read the
// inputs must not succeed just because the recorded run failed, too.
func TestReplayerReads(t *testing.T) {
	encrypted := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), secret{})
	r := records["plain"] // the recorded run completes; the test changes its history so that it fails
	replay := func(o Options, change func(*historypb.History)) error {
		o.Step = recordedStep
		history := historyOf(t, "plain-0.json")
		for _, e := range history.Events {
			for _, p := range []*commonpb.Payloads{
				e.GetWorkflowExecutionStartedEventAttributes().GetInput(), e.GetActivityTaskCompletedEventAttributes().GetResult(),
				e.GetActivityTaskFailedEventAttributes().GetFailure().GetApplicationFailureInfo().GetDetails(),
			} {
				if p != nil && (o.FailureConverter != nil || e.GetActivityTaskFailedEventAttributes() == nil) {
					coded, err := secret{}.Encode(p.Payloads)
					require.NoError(t, err)
					p.Payloads = coded
				}
			}
		}
		change(history)
		replayer, err := o.Replayer()
		require.NoError(t, err)
		return replayer.ReplayWorkflowHistory(discard, history)
	}
	asItIs := func(*historypb.History) {}
	failed := func(h *historypb.History) { // the form in which the SDK records a failed run
		data, err := json.Marshal(map[string]any{"eventId": h.Events[len(h.Events)-1].GetEventId(), "eventType": "EVENT_TYPE_WORKFLOW_EXECUTION_FAILED", "workflowExecutionFailedEventAttributes": map[string]any{}})
		require.NoError(t, err)
		last := new(historypb.HistoryEvent)
		require.NoError(t, temporalproto.CustomJSONUnmarshalOptions{}.Unmarshal(data, last))
		h.Events[len(h.Events)-1] = last
	}
	own := []*kahn.Plan{plan(t, r.graph(true))}
	for name, change := range map[string]func(*historypb.History){"completed": asItIs, "failed": failed} {
		require.NoError(t, replay(Options{Plans: own, DataConverter: encrypted}, change), name)
		failures := sdk.NewDefaultFailureConverter(sdk.DefaultFailureConverterOptions{DataConverter: encrypted})
		require.NoError(t, replay(Options{Plans: own, DataConverter: encrypted, FailureConverter: failures}, change), name)
		require.ErrorContains(t, replay(Options{Plans: own}, change), "Options.DataConverter", name)
		other := []*kahn.Plan{plan(t, inNotation("a>b")(true))}
		require.ErrorContains(t, replay(Options{Plans: other, DataConverter: encrypted}, change), "does not have the plan", name)
	}
}

// aware is a data converter that depends on its context, as the SDK allows.
type aware struct {
	converter.DataConverter
	asked *int
}

func (a aware) WithWorkflowContext(workflow.Context) converter.DataConverter { *a.asked++; return a }
func (a aware) WithContext(context.Context) converter.DataConverter          { *a.asked++; return a }

func TestReplayerContext(t *testing.T) {
	asked := 0
	o := Options{Step: recordedStep, Plans: []*kahn.Plan{plan(t, records["plain"].graph(true))}, DataConverter: aware{converter.GetDefaultDataConverter(), &asked}}
	replayer, err := o.Replayer()
	require.NoError(t, err)
	require.NoError(t, replayer.ReplayWorkflowHistory(discard, historyOf(t, "plain-0.json")))
	require.NotZero(t, asked)
}
