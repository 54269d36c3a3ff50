//go:build server

package temporal

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/temporal"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// encryption is a codec that encrypts payloads with AES-GCM.
type encryption struct{ aead cipher.AEAD }

func newEncryption(t testing.TB) encryption {
	t.Helper()
	key := make([]byte, 32)
	_, err := rand.Read(key)
	require.NoError(t, err)
	block, err := aes.NewCipher(key)
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	return encryption{aead}
}

// Encode implements [converter.PayloadCodec].
func (e encryption) Encode(list []*commonpb.Payload) ([]*commonpb.Payload, error) {
	coded := make([]*commonpb.Payload, len(list))
	for i, p := range list {
		text, err := p.Marshal()
		if err != nil {
			return nil, err
		}
		nonce := make([]byte, e.aead.NonceSize())
		if _, err := rand.Read(nonce); err != nil {
			return nil, err
		}
		coded[i] = &commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("binary/encrypted")}, Data: e.aead.Seal(nonce, nonce, text, nil)}
	}
	return coded, nil
}

// Decode implements [converter.PayloadCodec].
func (e encryption) Decode(list []*commonpb.Payload) ([]*commonpb.Payload, error) {
	plain := make([]*commonpb.Payload, len(list))
	for i, p := range list {
		if plain[i] = p; string(p.GetMetadata()["encoding"]) != "binary/encrypted" {
			continue
		}
		n := e.aead.NonceSize()
		text, err := e.aead.Open(nil, p.Data[:n], p.Data[n:], nil)
		if err != nil {
			return nil, err
		}
		plain[i] = new(commonpb.Payload)
		if err := plain[i].Unmarshal(text); err != nil {
			return nil, err
		}
	}
	return plain, nil
}

// mark is a part of every secret text of the test.
const mark = "hidden"

func hidden(text string) string { return mark + " " + text }

// secretStep uses everything through which a step passes values on.
func secretStep(ctx context.Context, s *kahn.Step) (any, error) {
	activity.RecordHeartbeat(ctx, hidden("heartbeat"))
	s.Log(slog.LevelInfo, hidden("message"))
	s.Emit(hidden("chunk"))
	switch {
	case s.ID() == "flaky" && s.Attempt() == 1:
		time.Sleep(1200 * time.Millisecond) // so that a heartbeat is sent
		return nil, errors.New(hidden("first error"))
	case s.ID() == "bad":
		return nil, kahn.Permanent(errors.New(hidden("error")))
	case s.ID() == "panics":
		panic(hidden("panic"))
	case s.ID() == "waits" && s.Attempt() == 1:
		if _, ok := s.Resumed(); !ok {
			return nil, kahn.Suspend(hidden("token"), hidden("info"), hidden("state"))
		}
	case s.ID() == "long":
		return hidden(strings.Repeat("long ", 500_000)), nil
	case s.ID() == "list":
		return []any{hidden("item 1"), hidden("item 2"), hidden("item 3"), hidden("item 4"), hidden("item 5")}, nil
	}
	return hidden("output of " + s.ID()), nil
}

func secretGraph() *kahn.Graph {
	g := &kahn.Graph{Name: "sealed", Inputs: []kahn.Input{{Name: "text"}}}
	text := []kahn.Edge{{From: "list", Param: "items"}}
	return g.Add(
		kahn.Node{ID: "list", Params: map[string]any{"text": "a parameter of the plan"}},
		kahn.Node{ID: "long"}, kahn.Node{ID: "reads", In: []kahn.Edge{{From: "long", Param: "text"}}},
		kahn.Node{ID: "flaky", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 10 * time.Millisecond}, Compensate: func(context.Context, *kahn.Step) error { return nil }},
		kahn.Node{ID: "bad"}, kahn.Node{ID: "caught", In: []kahn.Edge{{From: "bad", On: kahn.OnFailure}}},
		kahn.Node{ID: "panics", ContinueOnFail: true},
		kahn.Node{ID: "guarded", After: []string{"flaky"}, When: func(v kahn.View) (bool, error) { return false, errors.New(hidden("guard")) }, GuardErrors: kahn.GuardSkip},
		kahn.Node{ID: "test", After: []string{"flaky"}, Test: func(v kahn.View) (any, error) { return hidden("test"), nil }},
		kahn.Node{ID: "each", In: text, Map: &kahn.Map{Over: "items"}},
		kahn.Node{ID: "ask", Kind: kahn.KindGate, After: []string{"reads"}}, kahn.Node{ID: "waits"},
		kahn.Node{ID: "last", After: []string{"ask", "waits", "each", "caught"}, ContinueOnFail: true},
		kahn.Node{ID: "worse", After: []string{"last"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New(hidden("end")) }},
	)
}

// dialSealed returns a client that encodes payloads and failures with dc.
func dialSealed(t *testing.T, dc converter.DataConverter) (client.Client, converter.FailureConverter) {
	t.Helper()
	failures := sdk.NewDefaultFailureConverter(sdk.DefaultFailureConverterOptions{DataConverter: dc, EncodeCommonAttributes: true})
	c, err := client.Dial(client.Options{
		HostPort: os.Getenv("KAHN_TEMPORAL"), Namespace: os.Getenv("KAHN_TEMPORAL_NAMESPACE"), Logger: discard, Identity: "test", DataConverter: dc, FailureConverter: failures,
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, failures
}

// With an encrypting codec neither the histories of Temporal nor blobs contain what a run works with: inputs, outputs, errors, answers, events,
// heartbeats. The Result, the Replayer, the Store and PruneBlobs read the run.
func TestServerSealed(t *testing.T) {
	code := newEncryption(t)
	remote := httptest.NewServer(converter.NewPayloadCodecHTTPHandler(code))
	t.Cleanup(remote.Close)
	local := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), code)
	byServer := converter.NewRemoteDataConverter(converter.GetDefaultDataConverter(), converter.RemoteDataConverterOptions{Endpoint: remote.URL})
	dir := t.TempDir()
	blobs := store.Dir(dir)
	for name, row := range map[string]struct {
		dc   converter.DataConverter
		view bool
	}{
		"short calls": {dc: local}, "with views": {local, true}, "a codec server": {dc: byServer},
	} {
		t.Run(name, func(t *testing.T) {
			dc := row.dc
			c, failures := dialSealed(t, dc)
			o := Options{Step: secretStep, Blobs: blobs, DataConverter: dc, FailureConverter: failures, View: row.view}
			p := plan(t, secretGraph())
			w := serve(t, c, p, o)
			w.Blobs, w.DataConverter, w.Settings.MapChildren, w.Memo = blobs, dc, 4, map[string]any{"note": hidden("memo")}
			run, err := Start(t.Context(), c, w, map[string]any{"text": hidden("input")})
			require.NoError(t, err)
			first := run.get.GetRunID()
			for _, gate := range []string{"ask", "waits"} {
				require.Eventually(t, func() bool {
					return run.Signal(t.Context(), gate, kahn.Decision{Value: hidden("answer"), Actor: hidden("actor"), Comment: hidden("comment")}) == nil
				}, 20*time.Second, 50*time.Millisecond, gate)
			}
			require.ErrorIs(t, run.Signal(t.Context(), "nobody", hidden("refused")), kahn.ErrUnknownGate)
			res, err := run.Wait(t.Context())
			require.ErrorContains(t, err, hidden("end"))
			bad, _ := res.Node("bad")
			require.ErrorContains(t, bad.Err, hidden("error"))
			ask, _ := res.Node("ask")
			require.Equal(t, hidden("answer"), ask.Output)
			again, err := run.Redrive(t.Context(), []string{"worse"}, kahn.Request{Actor: hidden("actor"), Reason: hidden("reason")}, kahn.DespiteHandlers)
			require.NoError(t, err)
			_, err = again.Wait(t.Context())
			require.ErrorContains(t, err, hidden("end"))

			all := append(histories(t, c, w.ID, first), histories(t, c, w.ID, again.get.GetRunID())...)
			children := childrenIn(all)
			require.NotEmpty(t, children)
			o.Plans = []*kahn.Plan{p}
			for _, child := range children {
				all = append(all, histories(t, c, child.id, child.run)...)
			}
			found := 0
			for _, h := range all {
				requireSealed(t, h)
				r, err := o.Replayer()
				require.NoError(t, err)
				require.NoError(t, r.ReplayWorkflowHistory(discard, h))
				found += len(h.Events)
			}
			require.Greater(t, found, 100)

			s := Store{Client: c, Blobs: blobs, DataConverter: dc}
			page, err := s.List(t.Context(), store.Query{Filter: store.Filter{Prefix: w.ID}, Limit: 100})
			require.NoError(t, err)
			require.Len(t, page.Runs, 2, "two executions")
			require.Equal(t, "sealed", page.Runs[0].Workflow)
			loaded, err := s.Load(t.Context(), w.ID)
			require.NoError(t, err)
			require.Equal(t, kahn.RunFailed, loaded.Status)
			log, err := run.Events(t.Context())
			require.NoError(t, err)
			var events strings.Builder
			for e, err := range log.Events(t.Context(), 0) {
				require.NoError(t, err)
				fmt.Fprintln(&events, e)
			}
			require.Contains(t, events.String(), hidden("message"))
			snapshot, err := run.Snapshot(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, snapshot)
		})
	}
	files := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		require.False(t, bytes.Contains(data, []byte(mark)), path)
		return err
	}))
	require.Positive(t, files)
	c, _ := dialSealed(t, local)
	removed, err := BlobPrune{Blobs: blobs, Clients: []client.Client{c}, DataConverter: local, Query: "WorkflowId STARTS_WITH 'TestServerSealed'"}.removeBefore(t.Context(), time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Zero(t, removed, "all blobs are in use")
}

// requireSealed checks that a history contains no secret.
func requireSealed(t *testing.T, h *historypb.History) {
	t.Helper()
	for _, e := range h.Events {
		data, err := e.Marshal()
		require.NoError(t, err)
		require.False(t, bytes.Contains(data, []byte(mark)), "%.3000v", e)
	}
}

// Blobs of runs stay as long as Temporal has the histories of the runs, open or ended, and as long as they are young.
func TestServerPruneBlobs(t *testing.T) {
	c := dial(t)
	blobs := store.Dir(t.TempDir())
	step := func(_ context.Context, s *kahn.Step) (any, error) { return strings.Repeat(s.RunID(), 10_000), nil }
	g := (&kahn.Graph{Name: "pruned"}).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "ask", Kind: kahn.KindGate, After: []string{"a"}}, kahn.Node{ID: "b", In: []kahn.Edge{{From: "a", Param: "text"}, {From: "ask", Param: "answer"}}})
	w := serve(t, c, plan(t, g), Options{Step: step, Blobs: blobs})
	w.Blobs = blobs
	id := w.ID
	start := func(name string) *Run {
		w.ID = id + name
		run, err := Start(t.Context(), c, w, nil)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, waits, err := run.Waiting(t.Context())
			return err == nil && len(waits) == 1
		}, 10*time.Second, 20*time.Millisecond)
		return run
	}
	open, ended := start("open"), start("ended")
	require.NoError(t, ended.Signal(t.Context(), "ask", long("answer")))
	_, err := ended.Wait(t.Context())
	require.NoError(t, err)
	count := func() (n int) {
		for _, err := range blobs.Keys(t.Context()) {
			require.NoError(t, err)
			n++
		}
		return n
	}
	all := count()
	require.Equal(t, 3, all, "the output of each run, and the answer")
	prune := BlobPrune{Blobs: blobs, Clients: []client.Client{c}, Query: fmt.Sprintf("WorkflowId STARTS_WITH '%s'", id)}
	require.Eventually(t, func() bool {
		page, err := Store{Client: c}.List(t.Context(), store.Query{Filter: store.Filter{Prefix: id}, Limit: 100})
		return err == nil && len(page.Runs) == 2
	}, 20*time.Second, 50*time.Millisecond)
	later := time.Now().Add(time.Hour)
	removed, err := prune.removeBefore(t.Context(), later)
	require.NoError(t, err)
	require.Zero(t, removed, "both runs have histories")

	prune.Query = fmt.Sprintf("WorkflowId = '%s'", open.ID()) // as if Temporal had removed the ended run after the retention period
	removed, err = prune.removeBefore(t.Context(), time.Now().Add(-time.Hour))
	require.NoError(t, err)
	require.Zero(t, removed, "the blobs are young")
	removed, err = prune.removeBefore(t.Context(), later)
	require.NoError(t, err)
	require.Equal(t, 2, removed)
	require.Equal(t, 1, count())

	require.NoError(t, open.Signal(t.Context(), "ask", "yes"))
	res, err := open.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, strings.Repeat(res.ID(), 10_000), res.Output())
	prune.Query = "WorkflowId = 'none'"
	_, err = prune.removeBefore(t.Context(), later)
	require.NoError(t, err)
	require.Zero(t, count())
}

// Outputs of 2 MB: with Blobs the run completes and its history stays short. Without Blobs the node fails with the choices, and its catch edge is
// taken.
func TestServerLongOutputs(t *testing.T) {
	c := dial(t)
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "long" {
			return strings.Repeat("long", 500_000), nil
		}
		text, _ := kahn.Param[string](s, "text")
		return len(text), nil
	}
	g := func() *kahn.Graph {
		return (&kahn.Graph{Name: "longs", Inputs: []kahn.Input{{Name: "input", Optional: true}}}).Add(
			kahn.Node{ID: "long", Retry: kahn.Retry{MaxAttempts: 3}}, kahn.Node{ID: "reads", In: []kahn.Edge{{From: "long", Param: "text"}}},
			kahn.Node{ID: "handles", In: []kahn.Edge{{From: "long", On: kahn.OnFailure}}})
	}
	blobs := store.Dir(t.TempDir())
	w := serve(t, c, plan(t, g()), Options{Step: step, Blobs: blobs})
	w.Blobs = blobs
	res, err := Execute(t.Context(), c, w, map[string]any{"input": strings.Repeat("i", 3<<20)})
	require.NoError(t, err)
	reads, _ := res.Node("reads")
	require.Equal(t, 2_000_000, reads.Output)
	about, err := c.DescribeWorkflowExecution(t.Context(), w.ID, "")
	require.NoError(t, err)
	require.Less(t, about.GetWorkflowExecutionInfo().GetHistorySizeBytes(), int64(10_000))

	for _, most := range []int{0, 1900 << 10} {
		w = serve(t, c, plan(t, g()), Options{Step: step, MaxBytes: most})
		res, err = Execute(t.Context(), c, w, nil)
		require.NoError(t, err)
		long, _ := res.Node("long")
		require.Equal(t, kahn.Failed, long.Status)
		require.Equal(t, 1, long.Attempts, "another attempt would be as long")
		require.ErrorContains(t, long.Err, `node "long": the result is 2000`)
		require.ErrorContains(t, long.Err, "see Options.Blobs and Options.MaxBytes")
		handles, _ := res.Node("handles")
		require.Equal(t, kahn.Completed, handles.Status)
		about, err = c.DescribeWorkflowExecution(t.Context(), w.ID, "")
		require.NoError(t, err)
		require.Less(t, about.GetWorkflowExecutionInfo().GetHistorySizeBytes(), int64(10_000))
	}

	w.ID += "-input"
	_, err = Start(t.Context(), c, w, map[string]any{"input": strings.Repeat("i", 3<<20)})
	require.ErrorIs(t, err, ErrTooLarge)
	require.ErrorContains(t, err, "see Workflow.Blobs")
	_, err = c.DescribeWorkflowExecution(t.Context(), w.ID, "")
	require.Error(t, err, "nothing was started")
}
