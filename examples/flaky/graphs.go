package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

const ms = time.Millisecond

// The times are short, but much longer than a local server needs for an answer.
const (
	firstDelay     = 150 * ms
	secondDelay    = 2 * firstDelay
	stallTimeout   = 300 * ms // the timeout of each attempt at the nodes "stock" and "legacy"
	overallTimeout = 400 * ms // the OverallTimeout of the node "reviews": the first delay fits into it, but both delays together do not
	cancelGrace    = 400 * ms
	exportTimeout  = 400 * ms // the timeout of the second run as a whole
)

// policy is the retry policy of every node without a policy of its own. A real program should keep the default jitter. Here jitter
// is off, so that every log shows the same delays.
var policy = kahn.Retry{MaxAttempts: 3, InitialDelay: firstDelay, MaxDelay: secondDelay, Jitter: kahn.JitterNone}

// Values that replace missing answers of the server.
const (
	fallbackOfAds  = "an ad of our own"
	starsByDefault = "3 stars for everything"
)

// parts contains the ids of the nodes that deliver the parts of the page, in the order in which these nodes run.
var parts = []string{"order", "stock", "prices", "coupon", "reviews", "ads", "stars", "legacy"}

// pageGraph returns the graph of the first run. This run builds a page from answers of the server. The label of a node describes the
// rule that the node shows.
//
// Most nodes could run at the same time. But each node waits until the previous node has ended, with or without success, so that the log
// shows all lines of a node together.
func pageGraph() *kahn.Graph {
	get := func(path string) request { return request{method: "GET", path: path} }
	then := func(from string) []kahn.Edge { return []kahn.Edge{{From: from, On: kahn.OnAlways}} }
	g := &kahn.Graph{Name: "page", Defaults: kahn.Defaults{Retry: policy}}
	return g.Add(
		kahn.Node{
			ID: "order", Kind: "http", Config: request{method: "POST", path: "/orders"},
			Label: "500, twice: retried after a delay that doubles, under one idempotency key",
		},
		kahn.Node{
			ID: "stock", Kind: "http", Config: get("/stock"), In: then("order"), Timeout: stallTimeout,
			Label: "a stall: cut by Timeout, and retried",
		},
		kahn.Node{
			ID: "prices", Kind: "http", Config: get("/prices"), In: then("stock"),
			Label: "429: waits as long as Retry-After says, not MaxDelay",
		},
		kahn.Node{
			ID: "coupon", Kind: "http", Config: get("/coupon"), In: then("prices"),
			Label: "404: Permanent, not retried",
		},
		kahn.Node{
			ID: "reviews", Kind: "http", Config: get("/reviews"), In: then("coupon"), OverallTimeout: overallTimeout,
			Label: "503: a wait that does not fit into OverallTimeout is not begun",
		},
		kahn.Node{
			ID: "ads", Kind: "http", Config: request{method: "GET", path: "/ads", dead: true}, In: then("reviews"),
			Retry:    kahn.Retry{MaxAttempts: 2, InitialDelay: firstDelay, Jitter: kahn.JitterNone},
			Fallback: func(context.Context, error) (any, error) { return fallbackOfAds, nil },
			Label:    "no server listens: its Fallback gives the output",
		},
		kahn.Node{
			ID: "ratings", Kind: "http", Config: get("/ratings"), In: then("ads"),
			Retry: kahn.Retry{MaxAttempts: 1}, ContinueOnFail: true,
			Label: "500, for ever: ContinueOnFail lets the next one run",
		},
		kahn.Node{ID: "stars", Do: stars, After: []string{"ratings"}, Label: "runs without the value of ratings"},
		kahn.Node{
			ID: "legacy", Kind: "legacy", Config: get("/legacy"), In: then("stars"), Timeout: stallTimeout,
			Label: "ignores the end of its context: abandoned after CancelGrace",
		},
		// With AllDone, the node "page" waits until all parts have ended, and then runs with the available parts. With kahn.Handles, the node handles
		// the failures of the other parts. Without kahn.Handles, the node would only observe these failures.
		kahn.Node{
			ID: "page", Do: page, After: parts, Join: kahn.AllDone, Handling: kahn.Handles,
			Label: "makes do with what there is",
		},
	)
}

// The function `stars` is the step of the node "stars". It runs whether or not the node "ratings" has an output.
func stars(_ context.Context, s *kahn.Step) (any, error) {
	if ratings, ok := s.Upstream("ratings"); ok {
		return ratings, nil
	}
	s.Log(slog.LevelWarn, "no ratings: "+starsByDefault)
	return starsByDefault, nil
}

// page lists the available parts and the missing parts.
func page(_ context.Context, s *kahn.Step) (any, error) {
	var have, miss []string
	for _, part := range parts {
		if _, ok := s.Upstream(part); ok {
			have = append(have, part)
		} else {
			miss = append(miss, part)
		}
	}
	text := "has " + strings.Join(have, ", ") + "; misses " + strings.Join(miss, ", ")
	s.Log(slog.LevelInfo, text)
	return text, nil
}

// exportGraph returns the graph of the second run. This run takes longer than its timeout allows.
func exportGraph() *kahn.Graph {
	g := &kahn.Graph{Name: "export", Defaults: kahn.Defaults{Retry: policy}}
	return g.Add(
		kahn.Node{
			ID: "lock", Kind: "http", Config: request{method: "POST", path: "/lock"},
			Label: "takes something that has to be given back",
		},
		kahn.Node{
			ID: "export", Kind: "http", Config: request{method: "GET", path: "/export"}, After: []string{"lock"},
			Label: "a stall: stopped by the Timeout of the run, and not retried",
		},
		kahn.Node{
			ID: "publish", Kind: "http", Config: request{method: "POST", path: "/publish"}, After: []string{"export"},
		},
		kahn.Node{
			ID: "unlock", Kind: "http", Config: request{method: "DELETE", path: "/lock"},
			After: []string{"lock", "export"}, Cleanup: true,
			Label: "Cleanup: runs although the run was stopped",
		},
	)
}
