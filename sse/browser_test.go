//go:build browser

package sse_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/sse"
)

// browserPage is a page that reads a run with the browser's own EventSource, and posts the events. It posts exactly the events that the
// EventSource delivers, in their order, duplicates included.
const browserPage = `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script>
const seen = [], types = %s
const source = new EventSource("/events")
for (const type of types) source.addEventListener(type, e => {
	const event = JSON.parse(e.data)
	seen.push({lastEventId: e.lastEventId, eventId: event.eventId, type: e.type, deltaIndex: event.payload.deltaIndex})
	if (type === "run.completed") {
		source.close()
		fetch("/report", {method: "POST", body: JSON.stringify({seen, agent: navigator.userAgent})})
	}
})
</script>`

// TestBrowser needs chromium in the PATH.
func TestBrowser(t *testing.T) {
	const events, every = 1000, 150

	// The events are run.started, node.queued, node.started, the deltas, node.completed, run.completed. Some events happen before the browser has
	// connected, and the remaining events while the browser reads.
	connected := make(chan struct{})
	run := start(t, chain(1), func(ctx context.Context, s *kahn.Step) (any, error) {
		for i := range events - 5 {
			if i == 400 {
				select {
				case <-connected:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			if i > 400 {
				time.Sleep(ms)
			}
			s.Emit(fmt.Sprint("part ", i))
		}
		return nil, nil
	})

	type report struct {
		Seen []struct {
			LastEventID string
			EventID     int
			Type        string
			DeltaIndex  int
		}
		Agent string
	}
	reports := make(chan report, 1)
	var connections atomic.Int32
	stream := cuts(&sse.Handler{Find: sse.Fixed(run), Retry: 10 * ms, Heartbeat: 20 * ms}, every)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		types, _ := json.Marshal([]event.Type{
			event.RunStarted, event.NodeQueued, event.NodeStarted, event.NodeDelta, event.NodeCompleted,
			event.RunCompleted,
		})
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, browserPage, types)
	})
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) {
		if connections.Add(1) == 3 {
			close(connected)
		}
		stream.ServeHTTP(w, r)
	})
	mux.HandleFunc("POST /report", func(w http.ResponseWriter, r *http.Request) {
		var got report
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &got)
		}
		if err != nil {
			t.Error(err)
		}
		reports <- got
	})
	server := httptest.NewUnstartedServer(mux)
	server.Config.WriteTimeout = time.Second // streams ignore it
	server.Start()
	defer server.Close()

	got := browse(t, server.URL, reports)
	if len(got.Seen) != events {
		t.Errorf("%d events, expected %d", len(got.Seen), events)
	}
	deltas := 0
	for i, e := range got.Seen {
		if e.EventID != i+1 || e.LastEventID != fmt.Sprint(i+1) {
			t.Fatalf("event %d is %+v", i+1, e)
		}
		if e.Type == string(event.NodeDelta) {
			if deltas++; e.DeltaIndex != deltas {
				t.Fatalf("delta %d is %+v", deltas, e)
			}
		}
	}
	if n := connections.Load(); n < events/every+1 {
		t.Errorf("%d connections: they were not cut", n)
	}
	t.Logf("%s: %d events over %d connections", got.Agent, len(got.Seen), connections.Load())
}

// browse opens a page in a browser and waits for its report.
func browse[T any](t *testing.T, url string, reports <-chan T) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	profile, err := os.MkdirTemp("", "browser")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir=" + profile,
		"--remote-debugging-port=0", // without this flag, or something to print, a headless browser exits at once
	}
	cmd := exec.CommandContext(ctx, "chromium", slices.Concat(args, []string{url})...)
	var log strings.Builder // written by one goroutine, and read after the browser has exited
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.WaitDelay = 5 * time.Second // child processes may hold the pipes open
	if err := cmd.Start(); err != nil {
		t.Fatalf("chromium: %v", err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		err = cmd.Wait()
	}()
	var got T
	reported := false
	select {
	case got = <-reports:
		reported = true
	case <-exited:
	case <-ctx.Done():
	}
	cancel()
	<-exited
	_ = os.RemoveAll(profile) // a child process that is still running may write to the profile
	if !reported {
		t.Fatalf("no report of the browser, which left with %v:\n%s", err, &log)
	}
	return got
}
