package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// call is the config of the kind http.
type call struct {
	Method, URL string
	Headers     map[string]string
	Body        any
	Expect      any
	Timeout     string
}

// request is the step of kind http.
func request(ctx context.Context, s *kahn.Step) (any, error) {
	c, err := configured[call](s)
	if err != nil {
		return nil, err
	}
	if c.Timeout != "" {
		bound, err := time.ParseDuration(c.Timeout)
		if err != nil {
			return nil, kahn.Permanent(fmt.Errorf("config: timeout: %w", err))
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, bound, fmt.Errorf("no response within %v: %w", bound, context.DeadlineExceeded))
		defer cancel()
	}
	req, err := c.request(ctx)
	if err != nil {
		return nil, kahn.Permanent(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, ended(ctx, err)
	}
	defer resp.Body.Close()
	if ok, err := c.expects(resp.StatusCode); err != nil {
		return nil, kahn.Permanent(err)
	} else if !ok {
		return nil, unexpected(req, resp)
	}
	text, err := limited(resp.Body, fmt.Sprintf("the body of %s %s", req.Method, req.URL.Redacted()))
	if err != nil {
		return nil, ended(ctx, err)
	}
	headers := map[string]any{}
	for name := range resp.Header {
		headers[name] = resp.Header.Get(name)
	}
	return map[string]any{"status": resp.StatusCode, "headers": headers, "body": parsed(resp.Header.Get("Content-Type"), text)}, nil
}

// The function `ended` returns the reason why a request ended: the cause of its context if the context has ended, and otherwise err.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// request makes the HTTP request that the config describes.
func (c *call) request(ctx context.Context) (*http.Request, error) {
	body, kind := io.Reader(nil), ""
	switch b := c.Body.(type) {
	case nil:
	case string:
		body = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		body, kind = bytes.NewReader(text), "application/json"
	}
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, cmp.Or(c.Method, method), c.URL, body)
	if err != nil {
		return nil, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	for name, value := range c.Headers {
		req.Header.Set(name, value)
	}
	return req, nil
}

// The method `expects` reports whether a status is expected. The field `expect` of the config lists the expected statuses. Without this field,
// all statuses below 400 are expected.
func (c *call) expects(status int) (bool, error) {
	if c.Expect == nil {
		return status < 400, nil
	}
	list, several := c.Expect.([]any)
	if !several {
		list = []any{c.Expect}
	}
	for _, item := range list {
		text := fmt.Sprint(item)
		switch digits := strconv.Itoa(status); {
		case len(text) != 3:
			return false, fmt.Errorf("config: expect: %q is neither a status nor a class of statuses such as 2xx", text)
		case text == digits, text[1:] == "xx" && text[0] == digits[0]:
			return true, nil
		}
	}
	return false, nil
}

// unexpected returns the error for an unexpected status, with the beginning of the body. The error is permanent, except for the statuses 5xx and
// 429.
func unexpected(req *http.Request, resp *http.Response) error {
	text := fmt.Sprintf("%s %s: %s", req.Method, req.URL.Redacted(), resp.Status)
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 500)) // if the body cannot be read to its end, the error has the part that was read
	if body := strings.TrimSpace(strings.ToValidUTF8(string(body), "")); body != "" {
		text += "\n" + body
	}
	failure := errors.New(text)
	delay := retryAfter(resp.Header.Get("Retry-After"), time.Now())
	switch {
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusServiceUnavailable && delay > 0:
		return kahn.RateLimited(failure, delay)
	case resp.StatusCode >= 500:
		return failure
	}
	return kahn.Permanent(failure)
}

// maxRetryAfter bounds the delay that a server can request.
const maxRetryAfter = 24 * time.Hour

// retryAfter returns the delay that a header Retry-After requests, in seconds or by a date. It returns at most maxRetryAfter, and 0 if the header is
// empty or invalid.
func retryAfter(header string, now time.Time) time.Duration {
	seconds, _ := strconv.ParseInt(header, 10, 64) // the greatest or least integer if the number is out of range, and 0 if the text is no number
	if at, err := http.ParseTime(header); err == nil {
		seconds = int64(at.Sub(now).Seconds())
	}
	return time.Duration(min(max(seconds, 0), int64(maxRetryAfter/time.Second))) * time.Second
}

// The function `parsed` returns the body of a response: as a value if the content type is JSON and the body is valid JSON, otherwise as text.
func parsed(contentType, text string) any {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return text
	}
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil || d.Decode(new(any)) != io.EOF {
		return text
	}
	return plain(v)
}

// The function `plain` converts each json.Number in a value to the first of these types that can hold the number: int64, float64, string.
func plain(v any) any {
	return withNumbers(v, func(n json.Number) any {
		if i, err := n.Int64(); err == nil {
			return i
		}
		if f, err := n.Float64(); err == nil {
			return f
		}
		return n.String()
	})
}

// withNumbers replaces each number in a value by the result of the function `number`.
func withNumbers(v any, number func(json.Number) any) any {
	switch v := v.(type) {
	case json.Number:
		return number(v)
	case []any:
		for i := range v {
			v[i] = withNumbers(v[i], number)
		}
	case map[string]any:
		for key := range v {
			v[key] = withNumbers(v[key], number)
		}
	}
	return v
}
