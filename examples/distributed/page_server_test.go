//go:build server

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/temporal"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/inspector"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/temporal"
)

// The page shows a run whose payloads and blobs have a codec, and answers its gate. It needs the client's data converter for this: without it, the
// page cannot name the run's workflow. KAHN_TEMPORAL_DEV names the binary of cmd/temporal-dev.
func TestServerSealedPage(t *testing.T) {
	server := exec.CommandContext(context.Background(), os.Getenv("KAHN_TEMPORAL_DEV"))
	out, err := server.StdoutPipe()
	check(t, err)
	check(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait() // the error says that the process was killed
	})
	var address, namespace string
	_, err = fmt.Fscanln(out, &address, &namespace)
	check(t, err)

	dc := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), converter.NewZlibCodec(converter.ZlibCodecOptions{AlwaysEncode: true}))
	failures := sdk.NewDefaultFailureConverter(sdk.DefaultFailureConverterOptions{DataConverter: dc, EncodeCommonAttributes: true})
	c, err := client.Dial(client.Options{HostPort: address, Namespace: namespace, DataConverter: dc, FailureConverter: failures})
	check(t, err)
	t.Cleanup(c.Close)
	long := "hidden " + strings.Repeat("output ", 10_000)
	g := (&kahn.Graph{Name: "sealed"}).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "ask", Kind: kahn.KindGate, After: []string{"a"}}, kahn.Node{ID: "bad", After: []string{"ask"}})
	plan, err := g.Compile()
	check(t, err)
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "bad" {
			return nil, fmt.Errorf("hidden error")
		}
		return long, nil
	}
	blobs := store.Dir(t.TempDir())
	w, err := temporal.NewWorker(c, "sealed", temporal.Options{Plans: []*kahn.Plan{plan}, Step: step, Blobs: blobs, DataConverter: dc})
	check(t, err)
	check(t, w.Start())
	t.Cleanup(w.Stop)
	run, err := temporal.Start(t.Context(), c, temporal.Workflow{ID: "sealed-1", TaskQueue: "sealed", Plan: plan, Blobs: blobs, DataConverter: dc}, nil)
	check(t, err)

	const token = "a token of the test's page"
	page := func(s temporal.Store) func(method, path, body string) string {
		h := inspector.Handler(inspector.Options{Token: token, Store: s, Codec: s.Codec(nil), Workflows: []inspector.Workflow{{Plan: plan}}})
		return func(method, path, body string) string {
			q := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
			q.Host = "localhost"
			q.Header.Set("Authorization", "Bearer "+token)
			q.Header.Set("Content-Type", "application/json")
			q.Header.Set("Idempotency-Key", "1")
			r := httptest.NewRecorder()
			h.ServeHTTP(r, q)
			text, err := io.ReadAll(r.Body)
			check(t, err)
			return fmt.Sprint(r.Code, " ", string(text))
		}
	}
	reads := page(temporal.Store{Client: c, Blobs: blobs, DataConverter: dc})
	of := "?run=" + url.QueryEscape(run.ID())
	holds := func(path, want string) {
		t.Helper()
		var got string
		for range 100 {
			if got = reads(http.MethodGet, path, ""); strings.HasPrefix(got, "200 ") && strings.Contains(got, want) {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Fatalf("%s: %.1000s", path, got)
	}
	holds("/api/v1/stored", `"sealed"`)
	holds("/api/v1/node"+of+"&path=a", "hidden output")
	holds("/api/v1/node"+of+"&path=ask", "waiting")
	if got := reads(http.MethodPost, "/api/v1/signal"+of+"&path=ask", `{"value":"hidden answer"}`); !strings.HasPrefix(got, "202 ") {
		t.Fatal(got)
	}
	holds("/api/v1/node"+of+"&path=ask", "hidden answer")
	holds("/api/v1/node"+of+"&path=bad", "hidden error")
	holds("/api/v1/log"+of, "bad")

	blind := page(temporal.Store{Client: c, Blobs: blobs})
	if got := blind(http.MethodGet, "/api/v1/stored", ""); strings.Contains(got, `"sealed"`) {
		t.Fatalf("the page can read the memo without the data converter: %.1000s", got)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
