package conformance_test

import (
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

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// The scenarios are the rows of the conformance list that need a clock, data or a host. Each subtest begins with the number
// of its row; the notation of expected statuses is that of testdata/matrix.txt.

const ms = time.Millisecond

// inBubble runs a subtest in fake time. The bubble also finds goroutines that outlive the test.
func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// trial is a run that is over, with its events.
type trial struct {
	*kahn.Result
	t      testing.TB
	err    error
	events []kahn.Event
}

// try executes a graph and checks its events against the rules of every stream.
func try(t testing.TB, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) trial {
	t.Helper()
	return tryControlled(t, t.Context(), g, step, nil, opts...)
}

// tryControlled is try under a given context. host, if it is not nil, is called with the run as soon as it has started.
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
	if res.Left && res.Cause.Kind == kahn.CauseStoreError { // its store did not answer
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

// expect compares the statuses of all nodes, given as "A:ok B:F", and of the run, given as "completed+d".
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

// cause expects the kind of a node's cause, and that its error tells the same.
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

// find returns the events of one type and node, in order.
func (r trial) find(kind event.Type, node string) (found []kahn.Event) {
	for _, e := range r.events {
		if e.Type == kind && e.Path == node {
			found = append(found, e)
		}
	}
	return found
}

// count expects a number of events of one type and node.
func (r trial) count(kind event.Type, node string, n int) {
	r.t.Helper()
	if got := len(r.find(kind, node)); got != n {
		r.t.Errorf("%d %s of %s, expected %d\n%s", got, kind, node, n, eventText(r.events))
	}
}

// at tells when, after the start of the run, the only event of one type and node happened.
func (r trial) at(kind event.Type, node string) time.Duration {
	r.t.Helper()
	found := r.find(kind, node)
	if len(found) != 1 {
		r.t.Fatalf("%d events %s of %s\n%s", len(found), kind, node, eventText(r.events))
	}
	return r.since(found[0])
}

func (r trial) since(e kahn.Event) time.Duration { return e.Time.Sub(r.Start) }

// order expects that events, given as "node.started A", are all there, in this order.
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

// graph builds a graph from the given nodes.
func graph(nodes ...kahn.Node) *kahn.Graph { return new(kahn.Graph).Add(nodes...) }

// inputs declares inputs that a run must be given.
func inputs(names ...string) (list []kahn.Input) {
	for _, name := range names {
		list = append(list, kahn.Input{Name: name})
	}
	return list
}

// after is a node without properties that follows others.
func after(id string, sources ...string) kahn.Node { return kahn.Node{ID: id, After: sources} }

// takes is a step that takes a while, unless it is stopped, and completes with the node's id.
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

// fails is a step that takes a while and fails.
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

// neverStep is for nodes that must not be started.
func neverStep(t testing.TB) kahn.StepFunc {
	return func(_ context.Context, s *kahn.Step) (any, error) {
		t.Errorf("%s was started", s.ID())
		return nil, nil
	}
}

// calls counts the calls of each node's step.
type calls struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *calls) count(step kahn.StepFunc) kahn.StepFunc { return c.by((*kahn.Step).ID, step) }

// by counts calls by a name of the node.
func (c *calls) by(name func(*kahn.Step) string, step kahn.StepFunc) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		c.mu.Lock()
		if c.n == nil {
			c.n = map[string]int{}
		}
		c.n[name(s)]++
		c.mu.Unlock()
		return step(ctx, s)
	}
}

func (c *calls) of(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[id]
}

func TestScenarioScheduling(t *testing.T) {
	twoPairs := func() *kahn.Graph {
		return graph(kahn.Node{ID: "A", Do: takes(10 * ms)}, kahn.Node{ID: "B", Do: takes(100 * ms)}, after("C", "A"), after("D", "B"))
	}

	inBubble(t, "116 eager starts on the last predecessor", func(t *testing.T) {
		r := try(t, twoPairs(), takes(0), kahn.Eager)
		r.expect("A:ok B:ok C:ok D:ok", "completed")
		r.order("node.started C", "node.completed B")
		if at := r.at(event.NodeStarted, "C"); at != 10*ms {
			t.Errorf("C started at %v", at)
		}
	})

	inBubble(t, "117 waves start when the tier has settled", func(t *testing.T) {
		r := try(t, twoPairs(), takes(0), kahn.Waves)
		r.expect("A:ok B:ok C:ok D:ok", "completed")
		r.order("node.completed B", "node.started C")
		r.order("wave.started", "node.started A", "node.completed B", "wave.completed", "wave.started", "node.started C", "wave.completed")
		var waves []string
		for _, e := range r.events {
			if w, ok := e.Payload.(event.Wave); ok {
				waves = append(waves, fmt.Sprintf("%s %d %v", e.Type, w.Tier, w.Nodes))
			}
			if e.Type == event.NodeStarted && e.Tier != map[string]int{"A": 0, "B": 0, "C": 1, "D": 1}[e.Node] {
				t.Errorf("%v is of tier %d", e, e.Tier)
			}
			data, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			if text := fmt.Sprintf(`"wave":%d,`, e.Tier); e.Type == event.NodeStarted && !strings.Contains(string(data), text) {
				t.Errorf("%s lacks %s", data, text)
			}
		}
		want := []string{"wave.started 0 [A B]", "wave.completed 0 [A B]", "wave.started 1 [C D]", "wave.completed 1 [C D]"}
		if !slices.Equal(waves, want) {
			t.Errorf("waves %q, expected %q", waves, want)
		}
	})

	inBubble(t, "118 an early join freezes its inputs", func(t *testing.T) {
		var upstream map[string]any
		r := try(t, graph(
			kahn.Node{ID: "A", Do: takes(10 * ms)},
			kahn.Node{ID: "B", Do: takes(100 * ms)},
			kahn.Node{ID: "J", After: []string{"A", "B"}, Join: kahn.AnySucceeded, Do: func(_ context.Context, s *kahn.Step) (any, error) {
				time.Sleep(time.Second) // B completes meanwhile, too late to be an input
				upstream = s.UpstreamAll()
				return nil, nil
			}}), nil)
		r.expect("A:ok B:ok J:ok", "completed")
		if at := r.at(event.NodeStarted, "J"); at != 10*ms {
			t.Errorf("J started at %v", at)
		}
		if len(upstream) != 1 || upstream["A"] != "A" {
			t.Errorf("J got %v", upstream)
		}
	})

	inBubble(t, "118 inputs are those of the decision, not of the start", func(t *testing.T) {
		var upstream map[string]any
		r := try(t, graph(
			kahn.Node{ID: "A", Priority: 2, Do: takes(10 * ms)},
			kahn.Node{ID: "B", Priority: 1, Do: takes(10 * ms)},
			kahn.Node{ID: "J", After: []string{"A", "B"}, Join: kahn.AnySucceeded, Do: func(_ context.Context, s *kahn.Step) (any, error) {
				upstream = s.UpstreamAll()
				return nil, nil
			}}), nil, kahn.Limit(1))
		r.expect("A:ok B:ok J:ok", "completed")
		r.order("node.queued J", "node.completed B", "node.started J") // J waits for the slot that B has
		if len(upstream) != 1 || upstream["A"] != "A" {
			t.Errorf("J got %v", upstream)
		}
	})

	inBubble(t, "124 priority orders the start", func(t *testing.T) {
		r := try(t, graph(after("A"), after("B"), kahn.Node{ID: "C", Priority: 5}), takes(10*ms), kahn.Limit(1))
		r.expect("A:ok B:ok C:ok", "completed")
		if got := r.started(); got != "C A B" {
			t.Errorf("started in the order %s", got)
		}
	})

	for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
		inBubble(t, fmt.Sprintf("128 empty graph, %v", mode), func(t *testing.T) {
			r := try(t, graph(), nil, mode)
			r.expect("", "completed")
			if len(r.events) != 2 || r.events[0].Type != event.RunStarted || r.events[1].Type != event.RunCompleted {
				t.Errorf("events:\n%s", eventText(r.events))
			}
		})
	}

	for _, row := range []struct {
		name  string
		graph *kahn.Graph
		nodes []string
	}{
		{"129 cycle", graph(after("A", "B"), after("B", "A")), []string{"A", "B"}},
		{"130 self edge", graph(after("A", "A")), []string{"A"}},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			rec := newRecorder()
			res, err := kahn.Execute(t.Context(), row.graph, neverStep(t), kahn.OnEvent(rec.add))
			synctest.Wait()
			var cycle *kahn.CycleError
			if res != nil || !errors.Is(err, kahn.ErrCycle) || !errors.As(err, &cycle) {
				t.Fatalf("Execute = %v, %v", res, err)
			}
			if got := slices.Sorted(slices.Values(cycle.Nodes)); !slices.Equal(got, row.nodes) {
				t.Errorf("the cycle is %v, expected %v", got, row.nodes)
			}
			for _, id := range row.nodes {
				if !strings.Contains(err.Error(), id) {
					t.Errorf("%q does not name %s", err, id)
				}
			}
			if events := rec.all(); len(events) > 0 {
				t.Errorf("events:\n%s", eventText(events))
			}
		})
	}

	inBubble(t, "132 a thousand predecessors that end together", func(t *testing.T) {
		const roots = 1000
		g := graph()
		sink := kahn.Node{ID: "sink"}
		for i := range roots {
			id := fmt.Sprint("root", i)
			g.Add(after(id))
			sink.After = append(sink.After, id)
		}
		g.Add(sink)
		var c calls
		r := try(t, g, c.count(takes(10*ms)))
		if r.Status != kahn.RunCompleted || r.Count(kahn.Completed) != roots+1 || len(r.Warnings) > 0 {
			t.Errorf("status %v, %d completed, warnings %v", r.Status, r.Count(kahn.Completed), r.Warnings)
		}
		r.count(event.NodeStarted, "sink", 1)
		if c.of("sink") != 1 {
			t.Errorf("sink was called %d times", c.of("sink"))
		}
		if at := r.at(event.NodeStarted, "sink"); at != 10*ms {
			t.Errorf("sink started at %v", at)
		}
	})

	t.Run("134 a completion delivered twice", func(t *testing.T) {
		p, err := graph(after("A"), after("B", "A")).Compile()
		if err != nil {
			t.Fatal(err)
		}
		st, err := kahn.NewState(p)
		if err != nil {
			t.Fatal(err)
		}
		done := machine.Outcome{Status: kahn.Completed}
		begun := map[string]int{}
		stale := 0
		for task, ok := st.Next(); ok; task, ok = st.Next() {
			begun[p.ID(task.Ref)]++
			if err := st.Settle(task.Token, done); err != nil {
				t.Fatal(err)
			}
			for _, late := range []machine.Outcome{done, {Status: kahn.Failed, Cause: kahn.CauseStepError}} {
				if err := st.Settle(task.Token, late); !errors.Is(err, kahn.ErrStale) {
					t.Errorf("the second %v of %s: %v", late.Status, p.ID(task.Ref), err)
				}
				if stale++; (*machine.Locked)(st).StaleOutcomes() != stale {
					t.Errorf("%d stale outcomes were counted, expected %d", (*machine.Locked)(st).StaleOutcomes(), stale)
				}
			}
		}
		for _, id := range []string{"A", "B"} {
			ref, _ := p.Ref(id)
			if begun[id] != 1 || st.Status(ref) != kahn.Completed {
				t.Errorf("%s was begun %d times and is %v", id, begun[id], st.Status(ref))
			}
		}
	})
}
