// Flaky runs two graphs of HTTP calls against a server that fails, stalls and rejects requests. It is an example of kahn's rules for
// retries and timeouts: the nodes show these rules, in the log and in the table at the end.
//
//	go run ./examples/flaky
//
// The program needs no setup and no other machine: it starts the server itself, and ends in less than four seconds. It checks its own promises about
// statuses, attempts, delays and the requests that the server has received. If all promises were kept, it exits with 0. Otherwise it prints the
// broken promises, and exits with 1. It takes no arguments.
//
//	$ go run ./examples/flaky
//	  0.000 s  run      page started, 10 nodes
//	  0.000 s  order    # 500, twice: retried after a delay that doubles, under one idempotency key
//	  0.000 s  order    attempt 1: POST /orders
//	  0.001 s  order    failed (step_error): 500 Internal Server Error; again in 150ms
//	  0.153 s  order    attempt 2: POST /orders (LastErr: 500 Internal Server Error)
//	  0.153 s  order    failed (step_error): 500 Internal Server Error; again in 300ms
//	  0.454 s  order    attempt 3: POST /orders (LastErr: 500 Internal Server Error)
//	  0.454 s  order    completed
//	  0.454 s  stock    # a stall: cut by Timeout, and retried
//	  0.454 s  stock    attempt 1: GET /stock
//	  0.755 s  stock    time is up: 300ms for an attempt
//	  0.756 s  stock    failed (timeout): timed out after 300ms: timed out; again in 150ms
//	  0.907 s  stock    attempt 2: GET /stock (LastErr: timed out after 300ms: timed out)
//	  0.908 s  stock    completed
//	  0.908 s  prices   # 429: waits as long as Retry-After says, not MaxDelay
//	  0.908 s  prices   attempt 1: GET /prices
//	  0.908 s  prices   failed (rate_limit): 429 Too Many Requests; again in 1s
//	  1.909 s  prices   attempt 2: GET /prices (LastErr: 429 Too Many Requests)
//	  1.909 s  prices   completed
//	...
//	  1.910 s  reviews  # 503: a wait that does not fit into OverallTimeout is not begun
//	  1.910 s  reviews  attempt 1: GET /reviews
//	  1.910 s  reviews  failed (step_error): 503 Service Unavailable; again in 150ms
//	  2.061 s  reviews  attempt 2: GET /reviews (LastErr: 503 Service Unavailable)
//	  2.062 s  reviews  failed, no retry (step_error), attempt 2 of 3: 503 Service Unavailable
//	...
//	  2.215 s  legacy   # ignores the end of its context: abandoned after CancelGrace
//	  2.215 s  legacy   attempt 1: GET /legacy
//	  2.516 s  legacy   time is up: 300ms for an attempt
//	  2.916 s  legacy   failed, no retry (timeout), attempt 1 of 3: timed out: abandoned: the step ignored its context
//	  2.916 s  page     # makes do with what there is
//	  2.916 s  page     has order, stock, prices, ads, stars; misses coupon, reviews, legacy
//	  2.916 s  page     completed
//	  2.916 s  run      completed, degraded
//	the step of legacy has been released
//
//	  0.000 s  run      export started, 4 nodes
//	  0.000 s  lock     # takes something that has to be given back
//	  0.000 s  lock     attempt 1: POST /lock
//	  0.000 s  lock     completed
//	  0.000 s  export   # a stall: stopped by the Timeout of the run, and not retried
//	  0.000 s  export   attempt 1: GET /export
//	  0.401 s  publish  aborted (run_timeout): run timed out
//	  0.401 s  export   aborted (run_timeout): run timed out
//	  0.401 s  unlock   # Cleanup: runs although the run was stopped
//	  0.402 s  unlock   attempt 1: DELETE /lock
//	  0.402 s  unlock   completed
//	  0.402 s  run      failed (run_timeout)
//
//	node      status                attempts   cause
//	order     completed             3          -
//	stock     completed             2          -
//	prices    completed             2          -
//	coupon    failed                1          step_error
//	reviews   failed                2          step_error
//	ads       completed, fallback   2          -
//	ratings   failed, tolerated     1          step_error
//	stars     completed             1          -
//	legacy    failed, abandoned     1          timeout
//	page      completed             1          -
//	lock      completed             1          -
//	export    aborted               1          run_timeout
//	publish   aborted               0          run_timeout
//	unlock    completed             1          -
//
//	134 of 134 promises kept
//
// Start reading at graphs.go, which defines the nodes and their rules. client.go contains the steps, which decide whether a failed request is
// retried. server.go contains the server's faults, log.go the sink for events, and promises.go the checks.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/seed-c794f7ef/kahn"
)

func main() {
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

// command runs the program and returns the exit code.
func command(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		fmt.Fprintf(stderr, "flaky: unexpected argument %q; there are none\n", args[0])
		return 2
	}
	if err := run(stdout); err != nil {
		fmt.Fprintf(stderr, "flaky: %v\n", err)
		return 1
	}
	return 0
}

// The function `run` runs both graphs against a new shop. The returned error contains the broken promises.
func run(stdout io.Writer) error {
	s := newShop()
	return visit(stdout, s, s)
}

// runReport contains the result, the error and the events of a run.
type runReport struct {
	result *kahn.Result
	err    error
	events []kahn.Event
}

// visit executes both graphs against a server that serves h. It checks the results of the runs, and the requests that the shop has received.
func visit(stdout io.Writer, s *shop, h http.Handler) error {
	dead, err := deadURL()
	if err != nil {
		return err
	}
	url, stop, err := serve(h)
	if err != nil {
		return err
	}
	defer stop()
	c := newClient(url, dead)
	defer c.http.CloseIdleConnections()

	page, err := execute(stdout, pageGraph(), c, kahn.CancelGrace(cancelGrace))
	if err != nil {
		return err
	}
	// The abandoned step of the node "legacy" is still running. Its result comes too late to change anything.
	s.release()
	c.left.Wait()
	fmt.Fprint(stdout, "the step of legacy has been released\n\n")

	export, err := execute(stdout, exportGraph(), c, kahn.Timeout(exportTimeout))
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout)
	if err := writeTable(stdout, page, export); err != nil {
		return err
	}

	var promises checks
	checkPage(&promises, page)
	checkExport(&promises, export)
	s.account(&promises, requestPromises)
	fmt.Fprintf(stdout, "\n%d of %d promises kept\n", promises.made-len(promises.broken), promises.made)
	return errors.Join(promises.broken...)
}

// execute runs a graph. It returns an error if the run could not begin. If the run begins and fails, the report contains its error.
func execute(stdout io.Writer, g *kahn.Graph, c *client, opts ...kahn.Option) (*runReport, error) {
	r := &runReport{}
	// Each sink has its own goroutine, so a slow writer of the log does not delay the recording of the events.
	record := func(e kahn.Event) { r.events = append(r.events, e) }
	opts = append(opts, kahn.OnEvent(logTo(stdout, g)), kahn.OnEvent(record))
	r.result, r.err = kahn.Execute(context.Background(), g, c.steps().Step, opts...)
	if r.result == nil {
		return nil, r.err
	}
	return r, nil
}
