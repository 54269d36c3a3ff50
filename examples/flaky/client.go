package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// request is the Config of a node that calls the server.
type request struct {
	method, path string
	dead         bool // whether the request goes to a port on which no server listens
}

// client provides the steps that call the server. Its code decides after which responses a step may be retried. The retry policies of the nodes
// decide how often and when kahn retries the step.
type client struct {
	http      *http.Client
	url, dead string
	left      sync.WaitGroup // counts the requests that may outlive their attempts
}

func newClient(url, dead string) *client {
	return &client{http: &http.Client{Transport: &http.Transport{}}, url: url, dead: dead}
}

func (c *client) steps() kahn.Mux { return kahn.Mux{"http": c.call, "legacy": c.callLegacy} }

// call is the step of nearly every node. It sends one request, which ends at the latest when the attempt's context ends.
func (c *client) call(ctx context.Context, s *kahn.Step) (any, error) {
	req := s.Config().(request)
	text := fmt.Sprintf("attempt %d: %s %s", s.Attempt(), req.method, req.path)
	if err := s.LastErr(); err != nil {
		text += fmt.Sprintf(" (LastErr: %v)", err)
	}
	s.Log(slog.LevelInfo, text)
	return c.send(ctx, req, s.IdempotencyKey())
}

// callLegacy behaves like a library without a context parameter: its request continues after the end of the attempt.
func (c *client) callLegacy(_ context.Context, s *kahn.Step) (any, error) {
	c.left.Add(1)
	defer c.left.Done()
	return c.call(context.Background(), s)
}

func (c *client) send(ctx context.Context, r request, key string) (any, error) {
	base := c.url
	if r.dead {
		base = c.dead
	}
	req, err := http.NewRequestWithContext(ctx, r.method, base+r.path, nil)
	if err != nil {
		return nil, kahn.Permanent(err)
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := c.http.Do(req)
	if err != nil {
		if e := (*url.Error)(nil); errors.As(err, &e) {
			err = e.Err // e.Err lacks the method and the path, which are in the log already
		}
		return nil, err
	}
	defer resp.Body.Close()
	if err := refusal(resp); err != nil {
		return nil, err
	}
	const most = 1 << 20
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	return string(body), err
}

// The function `refusal` returns nil for a success. Otherwise it returns an error that tells kahn whether and when to retry.
func refusal(resp *http.Response) error {
	err := errors.New(resp.Status)
	switch code := resp.StatusCode; {
	case code < 300:
		return nil
	case code == http.StatusTooManyRequests:
		return kahn.RateLimited(err, retryAfter(resp.Header, time.Now()))
	case code < 500 && code != http.StatusRequestTimeout:
		return kahn.Permanent(err) // the request itself is wrong, so another attempt would fail, too
	}
	return err
}

// retryAfter returns the delay from the header Retry-After, which contains a number of seconds or a date. Without this header retryAfter returns 0,
// and the retry policy decides.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(text); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}
