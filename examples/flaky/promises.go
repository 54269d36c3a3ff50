package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// The type `checks` contains the number of promises and the list of the broken ones.
type checks struct {
	made   int
	broken []error
}

// The method `that` counts a promise. If ok is false, the promise is broken, and the message describes the actual state.
func (c *checks) that(ok bool, format string, args ...any) bool {
	c.made++
	if !ok {
		c.broken = append(c.broken, fmt.Errorf(format, args...))
	}
	return ok
}

// promise is the expected outcome of a node.
type promise struct {
	node     string
	status   kahn.Status
	attempts int
	cause    kahn.CauseKind
	delays   []time.Duration // the delay before each attempt except the first
	timeouts int             // how many attempts timed out
}

var pagePromises = []promise{
	{node: "order", status: kahn.Completed, attempts: 3, delays: []time.Duration{firstDelay, secondDelay}},
	{node: "stock", status: kahn.Completed, attempts: 2, delays: []time.Duration{firstDelay}, timeouts: 1},
	{node: "prices", status: kahn.Completed, attempts: 2, delays: []time.Duration{patience}},
	{node: "coupon", status: kahn.Failed, attempts: 1, cause: kahn.CauseStepError},
	{node: "reviews", status: kahn.Failed, attempts: 2, cause: kahn.CauseStepError, delays: []time.Duration{firstDelay}},
	{node: "ads", status: kahn.Completed, attempts: 2, delays: []time.Duration{firstDelay}},
	{node: "ratings", status: kahn.Failed, attempts: 1, cause: kahn.CauseStepError},
	{node: "stars", status: kahn.Completed, attempts: 1},
	{node: "legacy", status: kahn.Failed, attempts: 1, cause: kahn.CauseTimeout, timeouts: 1},
	{node: "page", status: kahn.Completed, attempts: 1},
}

var exportPromises = []promise{
	{node: "lock", status: kahn.Completed, attempts: 1},
	{node: "export", status: kahn.Aborted, attempts: 1, cause: kahn.CauseRunTimeout},
	{node: "publish", status: kahn.Aborted, attempts: 0, cause: kahn.CauseRunTimeout},
	{node: "unlock", status: kahn.Completed, attempts: 1},
}

// requestPromises contains the expected number of requests to each endpoint of the server.
var requestPromises = map[string]int{
	"POST /orders": 3, "GET /stock": 2, "GET /prices": 2, "GET /coupon": 1, "GET /reviews": 2, "GET /ratings": 1,
	"GET /legacy": 1, "POST /lock": 1, "GET /export": 1, "DELETE /lock": 1,
}

// The method `check` checks the promises about the nodes of a run.
func (r *runReport) check(c *checks, promises []promise) {
	c.that(r.result.Len() == len(promises), "%d nodes, but %d promises", r.result.Len(), len(promises))
	for _, p := range promises {
		n, _ := r.result.Node(p.node)
		c.that(n.Status == p.status, "%s is %v, not %v", p.node, n.Status, p.status)
		c.that(n.Attempts == p.attempts, "%s took %d attempts, not %d", p.node, n.Attempts, p.attempts)
		c.that(n.Cause.Kind == p.cause, "%s has the cause %q, not %q", p.node, n.Cause.Kind, p.cause)

		var delays []time.Duration
		timeouts, lastErr := 0, ""
		for _, e := range r.events {
			if e.Node != p.node {
				continue
			}
			switch payload := e.Payload.(type) {
			case event.Retry:
				delays, lastErr = append(delays, payload.Delay), payload.Err.Error()
			case event.Timeout:
				timeouts++
			case event.LogRecord: // each attempt except the first logs the error of the previous attempt
				c.that(strings.Contains(payload.Message, lastErr), "%s: no %q in %q", p.node, lastErr, payload.Message)
			}
		}
		c.that(slices.Equal(delays, p.delays), "%s waited %v, not %v", p.node, delays, p.delays)
		c.that(timeouts == p.timeouts, "the time of %s was up %d times, not %d", p.node, timeouts, p.timeouts)
	}
}

// checkPage checks the first run: the promises about its nodes, and the special outcomes of some nodes.
func checkPage(c *checks, r *runReport) {
	r.check(c, pagePromises)
	c.that(r.err == nil && r.result.Status == kahn.RunCompleted && r.result.Degraded,
		"page: %v, degraded: %t, error %v", r.result.Status, r.result.Degraded, r.err)
	c.that(slices.Equal(r.result.Abandoned, []string{"legacy"}), "abandoned: %v", r.result.Abandoned)

	reviews, _ := r.result.Node("reviews")
	c.that(reviews.Duration < overallTimeout, "reviews gave up after %v only", reviews.Duration)
	ads, _ := r.result.Node("ads")
	c.that(ads.Fallback && ads.Output == fallbackOfAds && ads.LastErr != nil,
		"ads: %v, fallback: %t, LastErr %v", ads.Output, ads.Fallback, ads.LastErr)
	ratings, _ := r.result.Node("ratings")
	c.that(ratings.Tolerated, "the failure of ratings is not tolerated")
	stars, _ := r.result.Node("stars")
	c.that(stars.Output == starsByDefault, "stars: %v", stars.Output)
	legacy, _ := r.result.Node("legacy")
	c.that(legacy.Abandoned && legacy.Output == nil, "legacy: %v, abandoned: %t", legacy.Output, legacy.Abandoned)
}

// checkExport checks the second run: the promises about its nodes, and how the run ended.
func checkExport(c *checks, r *runReport) {
	r.check(c, exportPromises)
	c.that(r.result.Status == kahn.RunFailed && r.result.Cause.Kind == kahn.CauseRunTimeout,
		"export: %v, cause %q", r.result.Status, r.result.Cause.Kind)
	c.that(errors.Is(r.err, kahn.ErrRunTimeout) && errors.Is(r.err, context.DeadlineExceeded), "export: error %v", r.err)
	c.that(len(r.result.Abandoned) == 0, "abandoned: %v", r.result.Abandoned)
}
