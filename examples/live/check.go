package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// check serves on a free port, starts a release, answers its gate, and checks what the endpoints return.
func check(ctx context.Context, out io.Writer) (err error) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		stop()
		return err
	}
	token := rand.Text()
	served := make(chan error, 1)
	go func() { served <- serve(ctx, listener, token, pace(5*time.Millisecond)) }()
	defer func() {
		stop()
		err = errors.Join(err, <-served)
		http.DefaultClient.CloseIdleConnections()
	}()
	c := client{ctx, "http://" + listener.Addr().String() + "/debug/kahn/", token}

	if err := c.ask(http.MethodGet, "", nil, "", nil); err != nil {
		return err
	}
	var started struct{ Run string }
	if err := c.ask(http.MethodPost, "api/v1/start", url.Values{"workflow": {"release"}}, `{}`, &started); err != nil {
		return err
	}
	run := url.Values{"run": {started.Run}}
	var row struct {
		Status  string
		Waiting []string
	}
	for row.Status != "completed" {
		if err := c.ask(http.MethodGet, "api/v1/run", run, "", &row); err != nil {
			return err
		}
		if len(row.Waiting) > 0 {
			fmt.Fprintln(out, "answered", row.Waiting[0])
			if err := c.ask(http.MethodPost, "api/v1/signal", url.Values{"run": {started.Run}, "path": row.Waiting[:1]}, `{"value":"ship"}`, nil); err != nil {
				return err
			}
			row.Waiting = nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	var list struct {
		Nodes []struct {
			Path, Status string
			Attempts     int
		}
	}
	if err := c.ask(http.MethodGet, "api/v1/nodes", run, "", &list); err != nil {
		return err
	}
	have := map[string]string{}
	for _, n := range list.Nodes {
		have[n.Path] = fmt.Sprint(n.Status, n.Attempts)
		fmt.Fprintln(out, n.Path, n.Status, n.Attempts)
	}
	for path, want := range map[string]string{"lint": "failed1", "test": "completed2", "deploy": "completed1", "postpone": "skipped0", "tidy": "completed1"} {
		if have[path] != want {
			return fmt.Errorf("node %s is %q, expected %q", path, have[path], want)
		}
	}
	return nil
}

// client sends requests to the endpoints.
type client struct {
	ctx         context.Context
	base, token string
}

func (c client) ask(method, path string, params url.Values, body string, into any) error {
	req, err := http.NewRequestWithContext(c.ctx, method, c.base+path+"?"+params.Encode(), strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", path+params.Encode())
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // ignore the error: the body has been read, or ReadAll has returned an error
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, data)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(data, into)
}
