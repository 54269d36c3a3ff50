package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

func TestArguments(t *testing.T) {
	var out, errs bytes.Buffer
	if code := command([]string{"-fast"}, &out, &errs); code != 2 || out.Len() > 0 || !strings.Contains(errs.String(), `"-fast"`) {
		t.Errorf("exit code %d, %q, %q", code, &out, &errs)
	}
}

// noneLeft checks that f leaves no goroutine behind.
func noneLeft(t *testing.T, f func()) {
	t.Helper()
	before := runtime.NumGoroutine()
	f()
	// The goroutines of closed connections end once the network reports the close.
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("goroutines left:\n%s", stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// TestRun runs the program unchanged, with real time and a real network.
func TestRun(t *testing.T) {
	noneLeft(t, func() {
		var out bytes.Buffer
		start := time.Now()
		err := run(&out)
		if err != nil {
			t.Errorf("broken promises:\n%v\nin:\n%s", err, &out)
		}
		// The delays and timeouts add up to 3.3 s.
		if took := time.Since(start); took < 3*time.Second || took > 10*time.Second {
			t.Errorf("took %v", took)
		}
		rest := out.String()
		for _, want := range []string{
			"order    attempt 1: POST /orders\n",
			"order    failed (step_error): 500 Internal Server Error; again in 150ms\n",
			"order    failed (step_error): 500 Internal Server Error; again in 300ms\n",
			"order    attempt 3: POST /orders (LastErr: 500 Internal Server Error)\n",
			"order    completed\n",
			"stock    time is up: 300ms for an attempt\n",
			"stock    failed (timeout): ",
			"stock    completed\n",
			"prices   failed (rate_limit): 429 Too Many Requests; again in 1s\n",
			"coupon   failed, no retry (step_error), attempt 1 of 3: 404 Not Found\n",
			"reviews  failed, no retry (step_error), attempt 2 of 3: 503 Service Unavailable\n",
			"ads      completed by its fallback\n",
			"ratings  failed, no retry (step_error), attempt 1 of 1: 500 Internal Server Error\n",
			"stars    completed\n",
			"legacy   failed, no retry (timeout), attempt 1 of 3: ",
			"page     has order, stock, prices, ads, stars; misses coupon, reviews, legacy\n",
			"run      completed, degraded\n",
			"export   aborted (run_timeout)",
			"unlock   completed\n",
			"run      failed (run_timeout)\n",
			"promises kept\n",
		} {
			_, after, ok := strings.Cut(rest, want)
			if !ok {
				t.Fatalf("no %q, or not in its place, in:\n%s", want, &out)
			}
			rest = after
		}
	})
}

// Against a server without faults the program reports broken promises. This shows that the program checks its
// promises.
func TestHealthyServer(t *testing.T) {
	noneLeft(t, func() {
		var out bytes.Buffer
		healthy := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
		err := visit(&out, newShop(), healthy)
		if err == nil {
			t.Fatalf("nothing is wrong in:\n%s", &out)
		}
		for _, want := range []string{
			"order took 1 attempts, not 3", "stock waited [], not [150ms]", "the time of stock was up 0 times, not 1",
			"coupon is completed, not failed", "page: completed, degraded: false", "abandoned: []",
			"ratings is not tolerated", "POST /orders: 0 idempotency keys", "0 orders and 0 duplicates",
			`export has the cause "", not "run_timeout"`, "export: completed",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in:\n%v", want, err)
			}
		}
		if strings.Contains(err.Error(), "ads") {
			t.Errorf("ads has a server of its own:\n%v", err)
		}
	})
}

// The shop's account distinguishes correct clients from incorrect ones.
func TestAccount(t *testing.T) {
	s := newShop()
	s.count("GET /a", "1")
	s.count("GET /a", "2")
	s.count("GET /b", "3")
	s.count("GET /c", "3")
	s.count("GET /d", "")
	s.count("GET /e", "4")
	s.order("5")
	s.order("6")
	s.admit()
	s.admit()
	s.lock(true)
	var c checks
	s.account(&c, map[string]int{"GET /a": 2, "GET /b": 1, "GET /c": 1, "GET /d": 1, "GET /e": 2})
	var got []string
	for _, err := range c.broken {
		got = append(got, err.Error())
	}
	want := []string{
		"GET /a: 2 idempotency keys", "GET /c has the idempotency key of GET /b", "GET /d: 1 idempotency keys",
		"GET /e: 1 requests instead of 2", "2 orders and 0 duplicates", "1 requests before the time that Retry-After said",
		"the lock is still held",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestRefusal checks how kahn reacts to each answer of the server under a policy that retries at once.
func TestRefusal(t *testing.T) {
	for code, want := range map[int]struct {
		attempts int
		cause    kahn.CauseKind
	}{
		200: {1, kahn.CauseNone},
		204: {1, kahn.CauseNone},
		304: {1, kahn.CauseStepError},
		400: {1, kahn.CauseStepError},
		404: {1, kahn.CauseStepError},
		408: {2, kahn.CauseStepError},
		429: {2, kahn.CauseRateLimit},
		500: {2, kahn.CauseStepError},
		503: {2, kahn.CauseStepError},
	} {
		resp := &http.Response{StatusCode: code, Status: http.StatusText(code)}
		var g kahn.Graph
		g.Add(kahn.Node{ID: "a", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: -1}})
		result := kahntest.Run(t, &g, func(context.Context, *kahn.Step) (any, error) {
			return nil, refusal(resp)
		})
		if n, _ := result.Node("a"); n.Attempts != want.attempts || n.Cause.Kind != want.cause {
			t.Errorf("%d: %d attempts, cause %q", code, n.Attempts, n.Cause.Kind)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2015, time.October, 21, 7, 28, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"":                              0,
		"0":                             0,
		"120":                           2 * time.Minute,
		"Wed, 21 Oct 2015 07:28:30 GMT": 30 * time.Second,
		"Wed, 21 Oct 2015 07:27:00 GMT": 0, // past
		"-5":                            0,
		"99999999999999999999":          0,
		"soon":                          0,
	} {
		h := http.Header{}
		h.Set("Retry-After", text)
		if got := retryAfter(h, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// The program reports a log that cannot be written.
func TestUnwritable(t *testing.T) {
	if err := writeTable(badWriter{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("error %v", err)
	}
}

type badWriter struct{}

func (badWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
