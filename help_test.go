package kahn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/race"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// isStatic reports whether a warning is about the graph, and so comes from Compile.
func isStatic(warning error) bool { return errors.As(warning, new(*kahn.Problem)) }

// checkEvents checks the events of an ended run by the rules for every run.
func checkEvents(t testing.TB, g *kahn.Graph, res *kahn.Result, events []kahn.Event) {
	t.Helper()
	if err := kahntest.CheckEvents(g, res, events); err != nil {
		t.Errorf("event stream: %v\n%s", err, eventText(events))
	}
}

// suspends is a step that waits for a signal.
func suspends(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("", nil, nil) }

var errStep = errors.New("the step broke")

func shortStatus(n kahn.NodeResult) string { return kahntest.Status(n.Status, n.Skip.Kind) }

// recorder is a sink that keeps the events.
type recorder struct {
	mu     sync.Mutex
	events []kahn.Event
}

func newRecorder() *recorder { return &recorder{} }

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

func eventText(events []kahn.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintln(&b, "\t", e)
	}
	return b.String()
}

var errHost = errors.New("the host has had enough")

func gate(id string, sources ...string) kahn.Node {
	return kahn.Node{ID: id, Kind: kahn.KindGate, After: sources}
}

// subgraph returns a sub-graph node.
func subgraph(id string, sub *kahn.Graph, sources ...string) kahn.Node {
	return kahn.Node{ID: id, Sub: sub, After: sources}
}

// reload encodes a snapshot as JSON and decodes it, as if another process read it.
func reload(t testing.TB, s *kahn.Snapshot) *kahn.Snapshot {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	back := new(kahn.Snapshot)
	if err := json.Unmarshal(data, back); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return back
}

// script returns a step whose attempts fail with the given errors, one per attempt. The next attempt completes.
func script(errs ...error) kahn.StepFunc {
	return func(_ context.Context, s *kahn.Step) (any, error) {
		if k := s.Attempt(); k <= len(errs) {
			return nil, errs[k-1]
		}
		return "done", nil
	}
}

// always returns a step that fails with err in every attempt.
func always(err error) kahn.StepFunc {
	return func(context.Context, *kahn.Step) (any, error) { return nil, err }
}

// random returns an option that makes every random number equal to u.
func random(u float64) kahn.Option { return kahn.Random(func() float64 { return u }) }

const ms = time.Millisecond

// inBubble runs a subtest in fake time. The subtest fails if a goroutine outlives it.
func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// trial is an ended run, with its events.
type trial struct {
	*kahn.Result
	t      testing.TB
	err    error
	events []kahn.Event
}

// try executes a graph and checks its events by the rules for every run.
func try(t testing.TB, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) trial {
	t.Helper()
	return tryControlled(t, t.Context(), g, step, nil, opts...)
}

// tryControlled is try with a context. If host is not nil, it is called with the run as soon as the run has started.
func tryControlled(t testing.TB, ctx context.Context, g *kahn.Graph, step kahn.StepFunc, host func(*kahn.Run), opts ...kahn.Option) trial {
	t.Helper()
	rec := newRecorder()
	opts = append(slices.Clone(opts), kahn.OnEvent(rec.add))
	run, err := kahn.Start(ctx, g, step, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if host != nil {
		host(run)
	}
	res, err := run.Wait()
	r := trial{res, t, err, rec.all()}
	if !errors.Is(err, kahn.ErrStore) { // otherwise the store did not answer
		var runErr *kahn.RunError
		if (err == nil) != (res.Status == kahn.RunCompleted) || err != nil && (!errors.As(err, &runErr) || runErr.Status != res.Status) {
			t.Errorf("status %v with error %v", res.Status, err)
		}
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

// cause checks the kind of a node's cause, and that the node's error has the same kind.
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

// count checks the number of events of one type and one node.
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

// graph builds a graph from the given nodes.
func graph(nodes ...kahn.Node) *kahn.Graph { return new(kahn.Graph).Add(nodes...) }

// after returns a node that follows the sources and does nothing else.
func after(id string, sources ...string) kahn.Node { return kahn.Node{ID: id, After: sources} }

// takes returns a step that completes with the node's id after d, unless it is stopped.
func takes(d time.Duration) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		select {
		case <-time.After(d):
			return s.ID(), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// fails returns a step that fails after d.
func fails(d time.Duration) kahn.StepFunc {
	return func(context.Context, *kahn.Step) (any, error) {
		time.Sleep(d)
		return nil, errStep
	}
}

// untilStopped is a step that waits to be stopped.
func untilStopped(ctx context.Context, _ *kahn.Step) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// long reports whether long tests run at full length.
func long() bool { return os.Getenv("KAHN_LONG") != "" }

// size returns the size of a search: usual, raced under the slow race detector, or full in the long mode.
func size(usual, raced, full int) int {
	switch {
	case long():
		return full
	case race.Enabled:
		return raced
	}
	return usual
}

// firstSeed returns the first seed of a search: 0. In the long mode it returns a random seed below 1e9, or the value of KAHN_FIRST, and logs it.
func firstSeed(t *testing.T) uint64 {
	t.Helper()
	if !long() {
		return 0
	}
	first := rand.Uint64N(1e9)
	if text := os.Getenv("KAHN_FIRST"); text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		first = n
	}
	t.Logf("KAHN_FIRST=%d", first)
	return first
}

// seeds yields n seeds from firstSeed on.
func seeds(t *testing.T, n int) iter.Seq[uint64] {
	t.Helper()
	first := firstSeed(t)
	return func(yield func(uint64) bool) {
		for seed := range uint64(n) {
			if !yield(first + seed) {
				return
			}
		}
	}
}

// chainGraph returns a chain of n nodes: n0, n1, n2 and so on.
func chainGraph(n int) *kahn.Graph {
	var g kahn.Graph
	for i := range n {
		node := kahn.Node{ID: fmt.Sprint("n", i)}
		if i > 0 {
			node.After = []string{fmt.Sprint("n", i-1)}
		}
		g.Add(node)
	}
	return &g
}

func stateOf(t testing.TB, g *kahn.Graph, opts ...kahn.Option) (*kahn.Plan, *machine.State) {
	t.Helper()
	plan, err := g.Compile()
	require.NoError(t, err)
	st, err := kahn.NewState(plan, opts...)
	require.NoError(t, err)
	return plan, st
}

func ref(t testing.TB, p *kahn.Plan, id string) machine.Ref {
	t.Helper()
	r, ok := p.Ref(id)
	require.True(t, ok)
	return r
}

var completed = machine.Outcome{Status: kahn.Completed}

// eventStore is a store with events, whose commits may fail.
type eventStore struct {
	store.Memory
	commit func(c store.Commit, apply func() error) error

	mu      sync.Mutex
	commits []store.Commit // the commits that were applied
}

func (s *eventStore) Commit(ctx context.Context, l store.Lease, c store.Commit) (applied store.Applied, err error) {
	apply := func() (err error) {
		if applied, err = s.Memory.Commit(ctx, l, c); applied == store.AppliedNow {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.commits = append(s.commits, c)
		}
		return err
	}
	if s.commit != nil {
		err = s.commit(c, apply)
	} else {
		err = apply()
	}
	return applied, err
}

// storedEvents returns the whole stored log of a run.
func storedEvents(t testing.TB, s store.EventStore, run string) (events []kahn.Event) {
	t.Helper()
	for {
		page, err := store.ReadEvents(t.Context(), s, run, uint64(len(events)), 7)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return events
		}
		events = append(events, page...)
	}
}

// fan returns a graph of n nodes without edges.
func fan(n int) *kahn.Graph {
	g := &kahn.Graph{}
	for i := range n {
		g.Add(kahn.Node{ID: fmt.Sprint("n", i)})
	}
	return g
}

var errDisk = errors.New("disk full")
