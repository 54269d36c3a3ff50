package sse

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
)

// Client reads the events of a run from the URL of a [Handler]. It continues after cut connections and server restarts. Do not change its fields
// while it reads. Several goroutines may read with one Client at the same time.
type Client struct {
	// URL is the address of the run's events, without afterEventId, since the client sends its cursor as a header.
	URL string
	// Header is added to each request, for example to identify the client.
	Header http.Header
	// HTTP makes the requests. Default: http.DefaultClient. If it has a Timeout, the Timeout cuts each stream that lasts longer, and the client
	// connects again.
	HTTP *http.Client
	// Wait is the time before the client connects again; the server's retry field overrides it. After further attempts in which nothing arrived, the time is
	// random: at least Wait, and at most a bound that doubles with each attempt, up to 30 s. A longer Retry-After takes precedence. Default: 1 s.
	Wait time.Duration
	// Attempts bounds the successive attempts in which nothing arrives: no new event, no heartbeat and no page. 0 means no bound: the client continues
	// until its context ends.
	Attempts int
	// MaxBytes bounds the size of a line of the stream, and of an event. Default: 1 MiB.
	MaxBytes int
}

const (
	defaultWait     = time.Second
	maxWait         = 30 * time.Second
	defaultMaxBytes = 1 << 20
)

// Events yields the events with ids greater than `after`, each once, in order and without gaps, and ends after the run's last event. If `after` is 0,
// Events begins with the first event. Events omits events that the server withholds. Leaving the loop closes the connection.
//
// An error ends the sequence, and comes with a zero Event. The error matches [machine.ErrBadValue] if a number of the Client is negative. If ctx
// ends, the error is its [context.Cause]. The error is a [*event.GapError] if the server no longer keeps the events after the cursor. To continue,
// reset the state and read Events(ctx, First-1). The error is a [*StatusError] if the server rejects the request, and a [*LostError] if the same
// events or deltas are missing on two successive connections. After Attempts successive attempts in which nothing arrived, the error is the error of the
// last attempt. The sequence also ends if the client cannot use the URL or the response, for example because an event exceeds MaxBytes. After any
// other error the client connects again.
func (c *Client) Events(ctx context.Context, after uint64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		if err := c.check(); err != nil {
			yield(event.Event{}, err)
			return
		}
		r := &reader{c: c, yield: yield, last: after, start: after, wait: cmp.Or(c.Wait, defaultWait), deltas: map[string]delta{}}
		for idle := 0; ; {
			r.alive = false
			err := r.connect(ctx)
			if r.alive {
				idle = 0
			}
			final, status := (*finalError)(nil), (*StatusError)(nil)
			switch {
			case err == errDone:
				return
			case ctx.Err() != nil:
				yield(event.Event{}, context.Cause(ctx))
				return
			case errors.As(err, &final):
				yield(event.Event{}, final.error)
				return
			case err == errMore:
				continue
			}
			if idle++; c.Attempts > 0 && idle >= c.Attempts {
				yield(event.Event{}, err)
				return
			}
			wait := backoff(r.wait, idle)
			if errors.As(err, &status) {
				wait = max(wait, status.RetryAfter)
			}
			if !sleep(ctx, wait) {
				yield(event.Event{}, context.Cause(ctx))
				return
			}
		}
	}
}

// backoff returns the time before the next connection. The parameter `idle` is the number of successive connections over which nothing arrived.
func backoff(wait time.Duration, idle int) time.Duration {
	longest := wait
	for i := 1; i < idle && longest < maxWait; i++ {
		longest = min(2*longest, maxWait)
	}
	return wait + rand.N(longest-wait+1) // random, so that clients that lost their connections at the same time do not reconnect at the same time
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// These errors end a response. After errDone the sequence of events ends. After errMore the client requests the next page at once. After errCut
// the client waits and connects again.
var (
	errDone = errors.New("done") // the run has ended, or the consumer has stopped reading
	errMore = errors.New("more") // there is another page
	errCut  = errors.New("sse: the stream has ended before the run")
)

// finalError wraps an error after which the client does not connect again.
type finalError struct{ error }

func final(err error) error { return &finalError{err} }

// The method `connect` requests the events after the last event, and reads until the response ends.
func (r *reader) connect(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.c.URL, nil)
	if err != nil {
		return final(err)
	}
	if req.URL.Host == "" {
		return final(fmt.Errorf("sse: the URL %q names no host", r.c.URL))
	}
	if r.c.Header != nil {
		req.Header = r.c.Header.Clone()
	}
	req.Header.Set("Accept", streamType)
	req.Header.Set("Cache-Control", "no-cache")
	if r.last > 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatUint(r.last, 10))
	}
	resp, err := cmp.Or(r.c.HTTP, http.DefaultClient).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // an error of Close adds no information, since the body was read, or reading it has failed
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNoContent:
		return errDone
	default:
		return r.refused(resp)
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == streamType:
		return r.stream(resp.Body)
	case err == nil && kind == jsonType:
		return r.page(resp.Body)
	}
	return final(fmt.Errorf("sse: the response has the type %q, not the type of an event stream", resp.Header.Get("Content-Type")))
}

// The method `refused` returns the error for a response other than a stream or a page.
func (r *reader) refused(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // if reading fails, body contains the bytes read before
	if resp.StatusCode == http.StatusGone {
		var g gone
		if json.Unmarshal(body, &g) == nil && g.First > 0 {
			return final(&event.GapError{After: r.last, First: g.First})
		}
	}
	err := &StatusError{
		Code: resp.StatusCode, Message: strings.TrimSpace(string(body)), RetryAfter: retryAfter(resp.Header.Get("Retry-After")),
	}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return err
	}
	return final(err)
}

// The method `stream` reads a stream to its end.
func (r *reader) stream(body io.Reader) error {
	p := newParser(body, cmp.Or(r.c.MaxBytes, defaultMaxBytes))
	for {
		m, err := p.next()
		if p.retry >= 0 {
			r.wait = p.retry
		}
		switch {
		case errors.Is(err, errTooLong):
			return final(err)
		case err == io.EOF:
			return errCut
		case err != nil:
			return err
		}
		if err := r.message(m); err != nil {
			return err
		}
	}
}

// The method `page` reads the response of a server that does not stream.
func (r *reader) page(body io.Reader) error {
	limit := cmp.Or(r.c.MaxBytes, defaultMaxBytes) + 2*pageSize
	data, err := io.ReadAll(io.LimitReader(body, int64(limit)+1))
	if err != nil {
		return err
	}
	if len(data) > limit {
		return final(errTooLong)
	}
	var p page
	if err := json.Unmarshal(data, &p); err != nil {
		return final(fmt.Errorf("sse: a page of events: %w", err))
	}
	r.alive = true
	for _, data := range p.Events {
		var e event.Event
		if err := e.UnmarshalJSON(data); err != nil {
			return final(fmt.Errorf("sse: an event of a page: %w", err))
		}
		if e.Type == "" {
			err = r.withheldEvent(e.ID)
		} else {
			err = r.event(e)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case p.Done:
		return errDone
	case p.More:
		return errMore
	}
	return errCut
}

// retryAfter parses a Retry-After header: seconds or a date. It returns at most maxRetry, and 0 if the text is neither.
func retryAfter(text string) time.Duration {
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, maxRetry)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(time.Until(at), 0), maxRetry)
	}
	return 0
}
