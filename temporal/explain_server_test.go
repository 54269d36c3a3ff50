//go:build server

package temporal

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/temporal"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// On a service with encrypted payloads, each part that lacks the data converter returns an error that names the fields to set. With the converter a
// program reads the type and the details of a step's error, and the history has neither the message nor the details in the clear.
func TestServerMissingDataConverter(t *testing.T) {
	dc := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), newEncryption(t))
	sealed, failures := dialSealed(t, dc)
	blobs := store.Dir(t.TempDir())
	g := (&kahn.Graph{Name: "missing"}).Add(
		kahn.Node{ID: "long", Do: func(context.Context, *kahn.Step) (any, error) { return long("x"), nil }},
		kahn.Node{ID: "ask", Kind: kahn.KindGate, After: []string{"long"}},
		kahn.Node{ID: "bad", After: []string{"ask"}, Do: func(context.Context, *kahn.Step) (any, error) {
			return nil, sdk.NewNonRetryableApplicationError(hidden("message"), "Address", nil, reason{7, hidden("detail")})
		}})
	p := plan(t, g)
	w := serve(t, sealed, p, Options{Blobs: blobs, DataConverter: dc, FailureConverter: failures})
	w.Blobs, w.DataConverter = blobs, dc
	run, err := Start(t.Context(), sealed, w, nil)
	require.NoError(t, err)
	first := run.get.GetRunID()

	lacks := w
	lacks.DataConverter = nil
	_, err = Start(t.Context(), sealed, lacks, nil)
	require.ErrorIs(t, err, kahn.ErrKeyConflict)
	require.ErrorContains(t, err, "its memo cannot be read")
	require.NoError(t, run.Signal(t.Context(), "ask", "yes"))

	res, err := run.Wait(t.Context())
	require.Error(t, err)
	bad, _ := res.Node("bad")
	var failed *sdk.ApplicationError
	require.ErrorAs(t, bad.Err, &failed)
	var r reason
	require.NoError(t, failed.Details(&r))
	require.Equal(t, []any{"Address", hidden("message"), reason{7, hidden("detail")}}, []any{failed.Type(), failed.Message(), r})
	for _, h := range histories(t, sealed, w.ID, first) {
		requireSealed(t, h)
	}

	_, err = Attach(sealed, lacks).Wait(t.Context())
	require.ErrorContains(t, err, setDataConverter, "the result has a blob")
	plain := dial(t)
	_, err = Attach(plain, lacks).Wait(t.Context())
	require.ErrorContains(t, err, dialWith, "the client has no data converter")
	_, err = Attach(plain, lacks).Snapshot(t.Context())
	require.ErrorContains(t, err, dialWith)
	_, err = Attach(sealed, lacks).Redrive(t.Context(), nil, kahn.Request{})
	require.ErrorContains(t, err, dialWith)

	// A worker whose client has no data converter fails the workflow, because the SDK cannot read its input.
	other := serve(t, plain, p, Options{Blobs: blobs})
	other.Blobs, other.DataConverter = blobs, dc
	_, err = Execute(t.Context(), sealed, other, nil)
	require.ErrorContains(t, err, "unable to decode the workflow function input")
	require.ErrorContains(t, err, dialWith)
}
