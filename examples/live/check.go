package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/sse"
)

// check serves on a port of its own, makes the requests of the page, and compares the events that it receives with the
// expected ones.
func check(ctx context.Context, out io.Writer) (err error) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		stop()
		return err
	}
	served := make(chan error, 1)
	go func() { served <- serve(ctx, listener, 20*time.Millisecond) }()
	defer func() {
		stop()
		err = errors.Join(err, <-served)
		http.DefaultClient.CloseIdleConnections()
	}()
	base := "http://" + listener.Addr().String()

	if _, err := request(ctx, http.MethodGet, base+"/"); err != nil {
		return err
	}
	body, err := request(ctx, http.MethodPost, base+"/runs")
	if err != nil {
		return err
	}
	var run struct{ ID string }
	if err := json.Unmarshal(body, &run); err != nil {
		return err
	}
	statuses := map[string]event.Type{}
	client := &sse.Client{URL: base + "/runs/" + run.ID + "/events"}
	for e, err := range client.Events(ctx, 0) {
		if err != nil {
			return err
		}
		fmt.Fprintln(out, e)
		switch e.Type {
		case event.NodeDelta, event.NodeLog:
			continue
		case event.NodeSuspended:
			if _, err := request(ctx, http.MethodPost, base+"/runs/"+run.ID+"/approve"); err != nil {
				return err
			}
		}
		statuses[e.Node] = e.Type
	}
	for node, want := range map[string]event.Type{
		"": event.RunCompleted, "lint": event.NodeFailed, "test": event.NodeCompleted, "tidy": event.NodeCompleted,
	} {
		if statuses[node] != want {
			return fmt.Errorf("the last event of node %q is %q, expected %q", node, statuses[node], want)
		}
	}
	return nil
}

func request(ctx context.Context, method, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it has been read, or the error returned
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return body, err
}
