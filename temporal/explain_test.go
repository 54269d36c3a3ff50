package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/mocks"
	sdk "go.temporal.io/sdk/temporal"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// order is a type of the host.
type order struct{ Number int }

// compressing returns a data converter with a codec.
func compressing() converter.DataConverter {
	return converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), converter.NewZlibCodec(converter.ZlibCodecOptions{AlwaysEncode: true}))
}

// A part without the data converter, the Blobs or the Types of the writer returns an error that names the fields to set.
func TestMissingFields(t *testing.T) {
	t.Parallel()
	blobs := store.Dir(t.TempDir())
	coded := Workflow{Blobs: blobs, DataConverter: compressing()}
	value, err := coded.texts().Encode(strings.Repeat("long", inlineBytes))
	require.NoError(t, err)
	packed, err := coded.texts().write(json.RawMessage(`"` + strings.Repeat("whole", inlineBytes) + `"`))
	require.NoError(t, err)

	for name, w := range map[string]Workflow{"a program": {Blobs: blobs}, "a page": {Blobs: blobs}} {
		codec := w.texts().Codec
		if name == "a page" {
			codec = Store{Blobs: blobs}.Codec(nil)
		}
		_, err = codec.Decode(value)
		require.ErrorIs(t, err, store.ErrBlobDamaged, name)
		require.ErrorContains(t, err, "the writer had another data converter: set the field DataConverter of Options, Workflow, Store and BlobPrune", name)
	}
	_, err = newHost(Options{Blobs: blobs}).texts.read(packed)
	require.ErrorContains(t, err, "set the field DataConverter of Options, Workflow, Store and BlobPrune")

	_, err = Workflow{}.texts().Decode(value)
	require.ErrorIs(t, err, store.ErrNoBlob)
	require.ErrorContains(t, err, "the field Blobs of Options, Workflow or Store is nil")

	_, err = coded.texts().Decode(value)
	require.NoError(t, err)
	_, err = Workflow{}.texts().Encode(order{17})
	require.ErrorIs(t, err, kahn.ErrNotEncodable)
	require.ErrorContains(t, err, "set the field Types of both Options and Workflow")
	_, err = Workflow{}.texts().Decode(json.RawMessage(`[{"$type": "order", "value": {}}]`))
	require.ErrorIs(t, err, kahn.ErrBadValue)
	require.ErrorContains(t, err, `type "order" is not registered: set the field Types of both Options and Workflow`)
	_, err = Workflow{}.texts().Decode(json.RawMessage(`{`))
	require.NotContains(t, err.Error(), "set the field")
}

// A data converter that cannot decode a blob, for example because it has another key, names the fields.
func TestBlobOfAnotherConverter(t *testing.T) {
	t.Parallel()
	memory := store.Dir(t.TempDir())
	require.NoError(t, CodedBlobs(memory, compressing()).Put(t.Context(), "key", []byte("data")))
	_, err := CodedBlobs(memory, converter.GetDefaultDataConverter()).Get(t.Context(), "key")
	require.ErrorIs(t, err, converter.ErrEncodingIsNotSupported)
	require.ErrorContains(t, err, "set the field DataConverter of Options, Workflow, Store and BlobPrune")
}

// An unregistered type is reported with the input or the node that has it, and with the field to set: on a worker, and by a program that reads the
// Result.
func TestUnregisteredTypes(t *testing.T) {
	t.Parallel()
	g := (&kahn.Graph{Name: "orders", Inputs: []kahn.Input{{Name: "of"}}}).Add(kahn.Node{ID: "take"})
	p, types := plan(t, g), kahn.Types{"order": order{}}
	step := func(context.Context, *kahn.Step) (any, error) { return order{1}, nil }
	x := &trial{workflow: Workflow{Plan: p}, options: Options{Types: types, Step: step}, inputs: map[string]any{"of": order{17}}}
	_, err := x.run(t)
	require.NoError(t, err)
	_, err = Workflow{Plan: p}.result(x.out)
	require.ErrorIs(t, err, kahn.ErrBadValue)
	require.ErrorContains(t, err, `the run's input "of": bad value: type "order" is not registered: set the field Types of both Options and Workflow`)

	x.inputs, g.Inputs = nil, nil
	p = plan(t, g)
	x = &trial{workflow: Workflow{Plan: p}, options: Options{Types: types, Step: step}}
	_, err = x.run(t)
	require.NoError(t, err)
	_, err = Workflow{Plan: p}.result(x.out)
	require.ErrorContains(t, err, `node "take": bad value: type "order" is not registered: set the field Types of both Options and Workflow`)

	g.Inputs = []kahn.Input{{Name: "of"}}
	p = plan(t, g)
	in, err := Workflow{Plan: p, Types: types}.input(map[string]any{"of": order{17}})
	require.NoError(t, err)
	env := environment(t, Options{Plans: []*kahn.Plan{p}, Step: step})
	env.ExecuteWorkflow("orders", in)
	require.ErrorContains(t, env.GetWorkflowError(), `input "of": bad value: type "order" is not registered: set the field Types of both Options and Workflow`)

	x = &trial{workflow: Workflow{Plan: plan(t, (&kahn.Graph{Name: "orders"}).Add(kahn.Node{ID: "take"}))}, options: Options{Step: step}}
	_, err = x.run(t)
	require.ErrorContains(t, err, `node "take"`)
	require.ErrorContains(t, err, "set the field Types of both Options and Workflow")
}

// A program whose client or Workflow lacks the data converter of the workers gets an error that names the fields to set.
func TestMissingDataConverter(t *testing.T) {
	t.Parallel()
	w := Workflow{ID: "w", TaskQueue: "q", Plan: plan(t, kahntest.Graph(t, "a")), DataConverter: compressing()}
	s := newService()
	s.writes = w.DataConverter
	_, err := Start(t.Context(), s, w, nil)
	require.NoError(t, err)
	w.DataConverter = nil
	_, err = Start(t.Context(), s, w, nil)
	require.ErrorIs(t, err, kahn.ErrKeyConflict)
	require.ErrorContains(t, err, "its memo cannot be read")
	require.ErrorContains(t, err, "the field DataConverter of Options, Workflow and Store")

	coded := sdk.NewDefaultFailureConverter(sdk.DefaultFailureConverterOptions{DataConverter: compressing()})
	failure := coded.ErrorToFailure(sdk.NewApplicationError("m", failedRun, output{}))
	payload, err := compressing().ToPayload(output{})
	require.NoError(t, err)
	for name, of := range map[string]error{
		"a failed run":    sdk.GetDefaultFailureConverter().FailureToError(failure),
		"a completed run": converter.GetDefaultDataConverter().FromPayload(payload, new(output)),
		"a worker":        errors.New("unable to decode the workflow function input payload with error: ..."),
	} {
		run := new(mocks.WorkflowRun)
		run.On("Get", mock.Anything, mock.Anything).Return(of)
		_, err := (&Run{of: w, get: run}).Wait(t.Context())
		require.ErrorContains(t, err, "set the DataConverter and FailureConverter of client.Options", name)
	}
}
