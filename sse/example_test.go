package sse_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/sse"
)

// A server of a host's runs, and a program that follows one of them.
func Example() {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "fetch", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			s.Emit("half of it")
			s.Emit("all of it")
			return "text", nil
		}},
		kahn.Node{ID: "count", After: []string{"fetch"}, Do: nothing},
	)
	run, err := kahn.Start(context.Background(), &g, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	runs := map[string]*kahn.Run{"42": run}

	mux := http.NewServeMux()
	mux.Handle("/runs/{id}/events", &sse.Handler{
		Find: func(r *http.Request) (sse.Source, error) {
			run, ok := runs[r.PathValue("id")]
			if !ok {
				return nil, errors.New("no such run") // 404
			}
			return run, nil
		},
		Authorize: func(r *http.Request) error {
			if r.Header.Get("Authorization") != "Bearer secret" {
				return &sse.StatusError{Code: http.StatusUnauthorized}
			}
			return nil
		},
		Redact: func(_ *http.Request, e event.Event) (event.Event, bool) {
			if failed, ok := e.Payload.(event.NodeEnd); ok {
				failed.Err = nil // errors may contain secrets
				e.Payload = failed
			}
			return e, e.Type != event.NodeLog
		},
		MaxStreamsPerKey: 10,
	})
	server := httptest.NewServer(mux)
	defer server.Close()

	client := &sse.Client{
		URL:    server.URL + "/runs/42/events",
		Header: http.Header{"Authorization": {"Bearer secret"}},
	}
	for event, err := range client.Events(context.Background(), 0) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(event.ID, event.Type)
	}
	// Output:
	// 1 run.started
	// 2 node.queued
	// 3 node.started
	// 4 node.stream.delta
	// 5 node.stream.delta
	// 6 node.completed
	// 7 node.queued
	// 8 node.started
	// 9 node.completed
	// 10 run.completed
}

// A client begins to read after the run has dropped its first events, and starts from the oldest kept event.
func ExampleClient_Events_gap() {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "a", Do: nothing}, kahn.Node{ID: "b", After: []string{"a"}, Do: nothing})
	run, err := kahn.Start(context.Background(), &g, nil, kahn.Retain(3))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = run.Wait() // the example shows only the events
	server := httptest.NewServer(&sse.Handler{Find: sse.Fixed(run)})
	defer server.Close()

	client := &sse.Client{URL: server.URL}
	after := uint64(0)
	for done := false; !done; {
		done = true
		for e, err := range client.Events(context.Background(), after) {
			var gap *event.GapError
			switch {
			case errors.As(err, &gap):
				fmt.Println(err) // here a program drops the state that it built from earlier events
				after, done = gap.First-1, false
			case err != nil:
				fmt.Println(err)
			default:
				fmt.Println(e.ID, e.Type)
			}
		}
	}
	// Output:
	// events 1 to 5 are no longer kept
	// 6 node.started
	// 7 node.completed
	// 8 run.completed
}

// A host serves many runs: a list of them, and the events of each. A run that waits is saved, and continues later. Its readers see one
// uninterrupted stream.
func Example_runner() {
	ctx := context.Background()
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "build", Do: nothing},
		kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"build"}},
		kahn.Node{ID: "deploy", After: []string{"approve"}, Do: nothing},
	)
	runner := &kahn.Runner{MaxRuns: 2}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /runs", func(w http.ResponseWriter, _ *http.Request) {
		for run := range runner.Runs() {
			_, last := run.EventRange()
			fmt.Fprintf(w, "run %s is %v, %d events\n", run.ID(), run.Status(), last)
		}
	})
	mux.Handle("GET /runs/{id}/events", &sse.Handler{
		Find: func(r *http.Request) (sse.Source, error) { // called again when the run was left
			run, ok := runner.Run(r.PathValue("id"))
			if !ok {
				return nil, errors.New("no such run")
			}
			return run, nil
		},
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	list := func() {
		resp, err := http.Get(server.URL + "/runs")
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		fmt.Print(string(text))
	}

	run, err := runner.Start(ctx, &g, nil, kahn.RunID("42"))
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &sse.Client{URL: server.URL + "/runs/42/events"}
	for e, err := range client.Events(ctx, 0) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(e.ID, e.Type)
		if changed, ok := e.Payload.(event.StatusChange); ok && changed.To == kahn.RunSuspended {
			list()
			// The answer may come much later: the snapshot of the run goes into a database.
			run.Leave()
			left, _ := run.Wait()
			record, err := json.Marshal(left.Snapshot())
			if err != nil {
				fmt.Println(err)
				return
			}
			// The answer has come.
			snapshot := new(kahn.Snapshot)
			if err := json.Unmarshal(record, snapshot); err != nil {
				fmt.Println(err)
				return
			}
			if run, err = runner.Start(ctx, &g, nil, kahn.Resume(snapshot), kahn.EarlySignals(map[string]any{"approve": true})); err != nil {
				fmt.Println(err)
				return
			}
		}
	}
	list()
	// Output:
	// 1 run.started
	// 2 node.queued
	// 3 node.started
	// 4 node.completed
	// 5 node.suspended
	// 6 run.status.changed
	// run 42 is suspended, 6 events
	// 7 run.status.changed
	// 8 node.signalled
	// 9 node.completed
	// 10 node.queued
	// 11 node.started
	// 12 node.completed
	// 13 run.completed
	// run 42 is completed, 13 events
}
