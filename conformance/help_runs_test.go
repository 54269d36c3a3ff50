package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// This file runs graphs, and checks finished runs.

const ms = time.Millisecond

// inBubble runs a subtest in fake time. The subtest fails if a goroutine outlives it.
func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// bothModes runs a subtest in eager mode and in waves: the values of a run must not depend on the mode.
func bothModes(t *testing.T, name string, f func(t *testing.T, mode kahn.Mode)) {
	t.Helper()
	for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
		inBubble(t, fmt.Sprintf("%s, %v", name, mode), func(t *testing.T) { f(t, mode) })
	}
}

// trial is a finished run, with its events.
type trial struct {
	*kahn.Result
	t      testing.TB
	err    error
	events []kahn.Event
}

// try executes a graph and checks the events by the rules for every run.
func try(t testing.TB, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) trial {
	t.Helper()
	return tryControlled(t, t.Context(), g, step, nil, opts...)
}

// tryControlled is try with a context. If host is not nil, it is called with the run as soon as the run has started.
func tryControlled(t testing.TB, ctx context.Context, g *kahn.Graph, step kahn.StepFunc, host func(*kahn.Run), opts ...kahn.Option) trial {
	t.Helper()
	rec := newRecorder()
	opts = append(slices.Clone(opts), kahn.OnEvent(rec.add))
	ends := alone
	if host != nil {
		ends = hosted
	}
	run, err := startTo(t, ctx, g, step, ends, opts)
	if err != nil {
		t.Fatal(err)
	}
	if host != nil {
		host(run)
	}
	res, err := run.Wait()
	r := trial{res, t, err, rec.all()}
	if res.Left && res.Cause.Kind == kahn.CauseStoreError { // the store did not answer
		if res.Status != kahn.RunSuspended || !errors.Is(err, kahn.ErrStore) {
			t.Errorf("status %v with error %v", res.Status, err)
		}
		checkEvents(t, g, res, r.events)
		return r
	}
	var runErr *kahn.RunError
	if (err == nil) != (res.Status == kahn.RunCompleted) || err != nil && (!errors.As(err, &runErr) || runErr.Status != res.Status) {
		t.Errorf("status %v with error %v", res.Status, err)
	}
	last := r.events[len(r.events)-1]
	if ended, ok := last.Payload.(event.RunEnd); !ok || ended.Status != res.Status || ended.Degraded != res.Degraded {
		t.Errorf("the last event is %v, the result %v, degraded %v", last, res.Status, res.Degraded)
	}
	checkEvents(t, g, res, r.events)
	return r
}

// expect compares the statuses of all nodes, written as "A:ok B:F", and of the run, written as "completed+d".
func (r trial) expect(nodes, run string) {
	r.t.Helper()
	var got []string
	for n := range r.Nodes() {
		got = append(got, n.ID+":"+shortStatus(n))
	}
	status := r.Status.String()
	if r.Degraded {
		status += "+d"
	}
	if strings.Join(got, " ") != nodes || status != run {
		r.t.Errorf("got      %s | %s\nexpected %s | %s\n%s", strings.Join(got, " "), status, nodes, run, eventText(r.events))
	}
}

func (r trial) node(id string) kahn.NodeResult {
	r.t.Helper()
	n, ok := r.Node(id)
	if !ok {
		r.t.Fatalf("no node %s", id)
	}
	return n
}

// cause expects the kind of a node's cause, and that the node's error has the same cause.
func (r trial) cause(id string, kind kahn.CauseKind) {
	r.t.Helper()
	n := r.node(id)
	if n.Cause.Kind != kind {
		r.t.Errorf("the cause of %s is %q, expected %q", id, n.Cause.Kind, kind)
	}
	var own *kahn.NodeError
	if errors.As(n.Err, &own) && own.Kind != kind {
		r.t.Errorf("the error of %s is of kind %q, expected %q", id, own.Kind, kind)
	}
}

// find returns the events of one type and one node, in order.
func (r trial) find(kind event.Type, node string) (found []kahn.Event) {
	for _, e := range r.events {
		if e.Type == kind && e.Path == node {
			found = append(found, e)
		}
	}
	return found
}

// count expects n events of one type and one node.
func (r trial) count(kind event.Type, node string, n int) {
	r.t.Helper()
	if got := len(r.find(kind, node)); got != n {
		r.t.Errorf("%d %s of %s, expected %d\n%s", got, kind, node, n, eventText(r.events))
	}
}

// at returns the time of the only event of one type and one node, from the start of the run.
func (r trial) at(kind event.Type, node string) time.Duration {
	r.t.Helper()
	found := r.find(kind, node)
	if len(found) != 1 {
		r.t.Fatalf("%d events %s of %s\n%s", len(found), kind, node, eventText(r.events))
	}
	return r.since(found[0])
}

func (r trial) since(e kahn.Event) time.Duration { return e.Time.Sub(r.Start) }

// order expects that the events, written as "node.started A", exist in this order.
func (r trial) order(want ...string) {
	r.t.Helper()
	next := 0
	for _, e := range r.events {
		text := string(e.Type)
		if e.Node != "" {
			text += " " + e.Path
		}
		if next < len(want) && text == want[next] {
			next++
		}
	}
	if next < len(want) {
		r.t.Errorf("no %q after %q\n%s", want[next], want[:next], eventText(r.events))
	}
}

// started lists the nodes in the order of their starts.
func (r trial) started() string {
	var ids []string
	for _, e := range r.events {
		if e.Type == event.NodeStarted {
			ids = append(ids, e.Path)
		}
	}
	return strings.Join(ids, " ")
}

func (r trial) last() event.Type { return r.events[len(r.events)-1].Type }

// items lists the statuses of the items of a map.
func (r trial) items(id string) string {
	r.t.Helper()
	var got []string
	sub := r.node(id).Sub
	if sub == nil {
		return ""
	}
	for n := range sub.Nodes() {
		got = append(got, shortStatus(n))
	}
	return strings.Join(got, " ")
}

// delays returns the delays that node.retried announces for a node. It also checks that each next attempt starts exactly after its delay.
func (r trial) delays(node string) (delays []time.Duration) {
	r.t.Helper()
	retried, started := r.find(event.NodeRetried, node), r.find(event.NodeStarted, node)
	for i, e := range retried {
		d := e.Payload.(event.Retry).Delay
		delays = append(delays, d)
		if e.Attempt != i+1 {
			r.t.Errorf("%v is of attempt %d, expected %d", e, e.Attempt, i+1)
		}
		if i+1 < len(started) && started[i+1].Time.Sub(e.Time) != d {
			r.t.Errorf("attempt %d of %s started %v after the failure, announced were %v", i+2, node, started[i+1].Time.Sub(e.Time), d)
		}
	}
	return delays
}

func (r trial) expectDelays(node string, want ...time.Duration) {
	r.t.Helper()
	if got := r.delays(node); !slices.Equal(got, want) {
		r.t.Errorf("delays %v, expected %v\n%s", got, want, eventText(r.events))
	}
}

func shortStatus(n kahn.NodeResult) string { return kahntest.Status(n.Status, n.Skip.Kind) }

// recorder is a sink that records the events.
type recorder struct {
	mu     sync.Mutex
	events []kahn.Event
}

func (r *recorder) add(e kahn.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) all() []kahn.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

func newRecorder() *recorder { return &recorder{} }

func eventText(events []kahn.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintln(&b, "\t", e)
	}
	return b.String()
}

// readAll returns the events of an ended run after a cursor.
func readAll(t testing.TB, run *kahn.Run, after uint64) (events []kahn.Event) {
	t.Helper()
	for e, err := range run.Events(t.Context(), after) {
		require.NoError(t, err)
		events = append(events, e)
	}
	return events
}

// checkEvents checks the events of a finished run by the rules for every run.
func checkEvents(t testing.TB, g *kahn.Graph, res *kahn.Result, events []kahn.Event) {
	t.Helper()
	err := kahntest.CheckEvents(g, res, events)
	for i, size := 0, 0; i < len(events) && err == nil && size < 1<<20; i++ { // some tests use names of megabytes
		var data []byte
		data, err = surviveJSON(events[i])
		size += len(data)
	}
	if err != nil {
		t.Errorf("event stream: %v\n%s", err, eventText(events))
	}
}

// surviveJSON encodes an event, decodes it, encodes it again, and compares the two texts.
func surviveJSON(e kahn.Event) ([]byte, error) {
	first, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", e, err)
	}
	var again kahn.Event
	if err := json.Unmarshal(first, &again); err != nil {
		return nil, fmt.Errorf("%s: %w", first, err)
	}
	if second, err := json.Marshal(again); err != nil || !bytes.Equal(first, second) {
		return nil, fmt.Errorf("%s became %s, %w", first, second, err)
	}
	return first, nil
}

// startRun is [kahn.Start]. In the tests that TestScenariosByCoordinator repeats, a Coordinator performs the run if it can.
func startRun(t testing.TB, ctx context.Context, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) (*kahn.Run, error) {
	return startTo(t, ctx, g, step, hosted, opts)
}

// startTo is startRun for a run that ends as the given lifetime says.
func startTo(t testing.TB, ctx context.Context, g *kahn.Graph, step kahn.StepFunc, ends lifetime, opts []kahn.Option) (*kahn.Run, error) {
	if run, err := byCoordinatorTo(t, ctx, g, step, ends, opts); run != nil || err != nil {
		return run, err
	}
	return kahn.Start(ctx, g, step, opts...)
}

// lifetime says when a run of a test ends.
type lifetime uint8

const (
	hosted lifetime = iota // when the test ends it
	alone                  // when it can do nothing more
	leaves                 // when it only waits for signals, as under Execute
)

// executeRun is [kahn.Execute]. See startRun.
func executeRun(t testing.TB, ctx context.Context, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) (*kahn.Result, error) {
	switch run, err := byCoordinatorTo(t, ctx, g, step, leaves, opts); {
	case err != nil:
		return nil, err
	case run != nil:
		return run.Wait()
	}
	return kahn.Execute(ctx, g, step, opts...)
}

// resumeRun is [kahn.Resume]. See startRun.
func resumeRun(t testing.TB, ctx context.Context, g *kahn.Graph, step kahn.StepFunc, s *kahn.Snapshot, signals map[string]any, opts ...kahn.Option) (*kahn.Result, error) {
	return executeRun(t, ctx, g, step, append(slices.Clone(opts), kahn.Resume(s), kahn.EarlySignals(signals))...)
}

// soon returns a host that calls do 10 ms after the start of the run.
func soon(do func(*kahn.Run)) func(*kahn.Run) {
	return func(run *kahn.Run) {
		time.Sleep(10 * ms)
		synctest.Wait()
		do(run)
	}
}

var errHost = errors.New("the host has had enough")

// endsWithin waits at most d of fake time for a stopped run, and returns its Result.
func endsWithin(t *testing.T, run *kahn.Run, d time.Duration) *kahn.Result {
	t.Helper()
	select {
	case <-run.Done():
	case <-time.After(d):
		t.Errorf("%v after the stop the run is %v", d, run.Status())
		run.Leave()
		run.Cancel()
		<-run.Done()
	}
	res, _ := run.Wait()
	if left := leftovers(run); left != "" && res.Status.Terminal() {
		t.Errorf("left over: %s", left)
	}
	return res
}

// within runs f outside a bubble and fails the test if f does not return: in fake time an endless loop that does not block would never time out.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		t.Fatal("it does not return")
	}
}

var (
	runTerminal  = []event.Type{event.RunCompleted, event.RunFailed, event.RunCancelled, event.RunTimedOut}
	nodeTerminal = map[event.Type]kahn.Status{
		event.NodeCompleted: kahn.Completed, event.NodeFailed: kahn.Failed, event.NodeAborted: kahn.Aborted,
		event.NodeCancelled: kahn.Cancelled, event.NodeSkipped: kahn.Skipped,
	}
)
