package sse_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/sse"
)

// A server of the runs of a host, and a program that follows one of them.
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
		Redact: func(_ *http.Request, e kahn.Event) (kahn.Event, bool) {
			if failed, ok := e.Payload.(kahn.NodeEnded); ok {
				failed.Err = nil // errors may name what is nobody's business
				e.Payload = failed
			}
			return e, e.Type != kahn.EventNodeLog
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

// A client that comes late for a run that keeps only its last events starts anew from the oldest that is kept.
func ExampleClient_Events_gap() {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "a", Do: nothing}, kahn.Node{ID: "b", After: []string{"a"}, Do: nothing})
	run, err := kahn.Start(context.Background(), &g, nil, kahn.Retain(3))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = run.Wait() // this is about the events
	server := httptest.NewServer(&sse.Handler{Find: sse.Fixed(run)})
	defer server.Close()

	client := &sse.Client{URL: server.URL}
	after := uint64(0)
	for done := false; !done; {
		done = true
		for event, err := range client.Events(context.Background(), after) {
			var gap *kahn.GapError
			switch {
			case errors.As(err, &gap):
				fmt.Println(err) // what was made of earlier events is to be thrown away here
				after, done = gap.First-1, false
			case err != nil:
				fmt.Println(err)
			default:
				fmt.Println(event.ID, event.Type)
			}
		}
	}
	// Output:
	// events 1 to 5 are no longer kept
	// 6 node.started
	// 7 node.completed
	// 8 run.completed
}
