package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/race"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// types returns the types of events, with their nodes.
func types(events []kahn.Event) (list []string) {
	for _, e := range events {
		text := string(e.Type)
		if e.Node != "" {
			text += " " + e.Node
		}
		list = append(list, text)
	}
	return list
}

func TestScenarioEvents(t *testing.T) {
	inBubble(t, "254 the events of a run that retries, times out, skips, routes and fails", func(t *testing.T) {
		r := try(t, graph(
			kahn.Node{ID: "A", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: ms, Jitter: kahn.JitterNone}, Timeout: 10 * ms},
			kahn.Node{ID: "ok?", After: []string{"A"}, Test: func(v kahn.View) (any, error) { return v.Status("A") == kahn.Completed, nil }},
			kahn.Node{ID: "Y", In: []kahn.Edge{{From: "ok?", Label: "true"}}},
			kahn.Node{ID: "N", In: []kahn.Edge{{From: "ok?", Label: "false"}}},
		), func(ctx context.Context, s *kahn.Step) (any, error) {
			s.Emit("begun")
			if s.ID() == "A" {
				s.Log(slog.LevelInfo, "hanging")
				<-ctx.Done()
				return nil, ctx.Err()
			}
			s.Tokens(3, 4)
			s.Tokens(3, 0)
			return nil, nil
		}, kahn.TraceID("0af7651916cd43dd8448eb211c80319c"))
		r.expect("A:F ok?:ok Y:S/br N:ok", "completed+d")
		want := strings.Split("run.started|node.queued A|node.started A|node.stream.delta A|node.log A|node.timed_out A|node.retried A|"+
			"node.queued A|node.started A|node.stream.delta A|node.log A|node.timed_out A|node.failed A|node.started ok?|node.completed ok?|"+
			"node.skipped Y|node.queued N|node.started N|node.stream.delta N|node.completed N|run.completed", "|")
		if got := types(r.events); !slices.Equal(got, want) {
			t.Errorf("got      %q\nexpected %q", got, want)
		}
		// The parent of each event. A's events have A's previous event as their parent, the condition's first event has the end of A, and the
		// first events of the branches have the end of the condition.
		parents := []uint64{0, 1, 2, 3, 3, 3, 6, 7, 8, 9, 9, 9, 12, 13, 14, 15, 15, 17, 18, 18, 20}
		for i, e := range r.events {
			if e.Parent != parents[i] {
				t.Errorf("%v was led to by %d, expected %d", e, e.Parent, parents[i])
			}
			if e.TraceID != "0af7651916cd43dd8448eb211c80319c" {
				t.Errorf("%v is of trace %s", e, e.TraceID)
			}
		}
		for i, e := range r.find(event.NodeDelta, "A") {
			if d := e.Payload.(event.Delta); d.Index != i+1 || e.Attempt != i+1 {
				t.Errorf("delta %d is %v, of attempt %d", i+1, d, e.Attempt)
			}
		}
		if p := r.find(event.NodeCompleted, "N")[0].Payload.(event.Completion); p.InputTokens != 6 || p.OutputTokens != 4 {
			t.Errorf("%d and %d tokens", p.InputTokens, p.OutputTokens)
		}
		if p := r.find(event.NodeSkipped, "Y")[0].Payload.(event.Skip); p.Reason.Node != "ok?" || p.Reason.Label != "true" {
			t.Errorf("skipped for %v", p.Reason)
		}
	})

	inBubble(t, "254 in waves, each wave follows from the one before and leads to its nodes", func(t *testing.T) {
		r := try(t, graph(after("A"), after("B"), after("C", "A", "B")), nothing, kahn.Waves, kahn.Limit(1))
		want := []string{
			"run.started", "wave.started", "node.queued A", "node.queued B", "node.started A", "node.completed A", "node.started B",
			"node.completed B", "wave.completed", "wave.started", "node.queued C", "node.started C", "node.completed C",
			"wave.completed", "run.completed",
		}
		if got := types(r.events); !slices.Equal(got, want) {
			t.Errorf("got      %q\nexpected %q", got, want)
		}
		for i, parent := range []uint64{0, 1, 2, 2, 3, 5, 4, 7, 2, 9, 10, 11, 12, 10, 13} {
			if e := r.events[i]; e.Parent != parent {
				t.Errorf("%v was led to by %d, expected %d", e, e.Parent, parent)
			}
		}
	})

	inBubble(t, "254 fail-fast: what is stopped was led to by the failure", func(t *testing.T) {
		r := try(t, graph(after("A"), after("B"), after("C", "B")), func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "A" {
				return nil, errors.New("no")
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}, kahn.AbortRunning)
		r.expect("A:F B:X C:X", "failed")
		failed := r.find(event.NodeFailed, "A")[0].ID
		for _, id := range []string{"B", "C"} {
			if e := r.find(event.NodeAborted, id)[0]; e.Parent != failed {
				t.Errorf("%v was led to by %d, expected %d", e, e.Parent, failed)
			}
		}
	})

	inBubble(t, "254 a bystander of a failure leads to nothing", func(t *testing.T) {
		slow := func(kahn.View) (bool, error) { time.Sleep(time.Second); return true, nil }
		aside := kahn.Node{ID: "aside", After: []string{"bad"}, OnUpstreamFailure: kahn.UpstreamSkip}
		in := []kahn.Edge{{From: "ok"}, {From: "bad"}, {From: "aside", DataOnly: true}}
		r := try(t, graph(after("ok"), kahn.Node{ID: "bad", Do: fails(ms)}, aside,
			kahn.Node{ID: "late", In: in, Join: kahn.AnySucceeded, CancelOnLateFailure: true, When: slow},
			kahn.Node{ID: "blocked", In: in},
			kahn.Node{ID: "skipped", In: in, OnUpstreamFailure: kahn.UpstreamSkip},
			kahn.Node{ID: "failed", In: in, OnUpstreamFailure: kahn.UpstreamPropagate},
		), nothing)
		r.expect("ok:ok bad:F aside:S/pf late:X blocked:X skipped:S/pf failed:F", "failed")
		failed := r.find(event.NodeFailed, "bad")[0].ID
		for _, id := range []string{"late", "blocked", "skipped", "failed"} {
			for _, e := range r.events {
				if e.Node == id { // the node's first event
					if e.Parent != failed {
						t.Errorf("%v was led to by %d, expected %d\n%s", e, e.Parent, failed, eventText(r.events))
					}
					break
				}
			}
		}
	})

	inBubble(t, "256 what a step says after its end is dropped", func(t *testing.T) {
		var late *kahn.Step
		r := try(t, graph(after("A"), after("B", "A")), func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "A" {
				late = s
				return nil, nil
			}
			late.Emit("too late")
			late.Log(slog.LevelInfo, "too late")
			late.Tokens(1, 1)
			return nil, nil
		})
		late.Emit("much too late")
		r.count(event.NodeDelta, "A", 0)
		r.count(event.NodeLog, "A", 0)
		if last := r.events[len(r.events)-1]; last.Type != event.RunCompleted {
			t.Errorf("the last event is %v", last)
		}
	})

	inBubble(t, "257 failed, blocked, aborted, and only then the end of the run", func(t *testing.T) {
		r := try(t, graph(after("A"), after("B", "A")), fails(ms))
		want := []string{"run.started", "node.queued A", "node.started A", "node.failed A", "node.blocked B", "node.aborted B", "run.failed"}
		if got := types(r.events); !slices.Equal(got, want) {
			t.Errorf("got      %q\nexpected %q", got, want)
		}
		for i, parent := range []uint64{0, 1, 2, 3, 4, 5, 6} {
			if e := r.events[i]; e.Parent != parent {
				t.Errorf("%v was led to by %d, expected %d", e, e.Parent, parent)
			}
		}
	})

	inBubble(t, "264 heartbeats have no ids and are not kept", func(t *testing.T) {
		release := make(chan struct{})
		run, err := startRun(t, t.Context(), graph(after("A")), func(context.Context, *kahn.Step) (any, error) {
			<-release
			return nil, nil
		}, kahn.RunID("run 7"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for range 3 {
			beat := run.Heartbeat()
			data, err := json.Marshal(beat)
			if err != nil || beat.Type != event.Heartbeat || beat.ID != 0 || beat.Payload.(event.Beat).Last != 3 || strings.Contains(string(data), "eventId") {
				t.Errorf("%v: %s, %v", beat, data, err)
			}
		}
		close(release)
		if _, err := run.Wait(); err != nil {
			t.Fatal(err)
		}
		events, err := read(t, run, 0)
		if ids(events) != "1 2 3 4 5" || err != nil || slices.ContainsFunc(events, func(e kahn.Event) bool { return e.Type == event.Heartbeat }) {
			t.Errorf("%v, %v", types(events), err)
		}
	})
}

// If the host gives no trace, the trace id of a run comes from the run id: the digits of a UUID, or a hash of any other id.
func TestTraceID(t *testing.T) {
	for id, want := range map[string]string{
		"018f3c1e-7a2b-7c3d-8e4f-5a6b7c8d9e0f": "018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f",
		"order 7":                              "0fc89f8ae19394b48debd6353bb9ad33",
	} {
		run, err := kahn.Start(t.Context(), graph(after("A")), nothing, kahn.RunID(id))
		if err != nil {
			t.Fatal(err)
		}
		if got := run.Heartbeat().TraceID; got != want {
			t.Errorf("the trace of run %q is %s, expected %s", id, got, want)
		}
		if _, err := run.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// A stalled sink does not delay the run. The stall is reported, and the sink gets all events once it continues.
func TestStalledSink(t *testing.T) {
	inBubble(t, "an hour", func(t *testing.T) {
		rec := newRecorder()
		stalled := kahn.OnEvent(func(e kahn.Event) {
			if e.ID == 3 {
				time.Sleep(time.Hour)
			}
			rec.add(e)
		})
		g := graph(after("A"), after("B", "A"), after("C", "B"))
		begun := time.Now()
		r := try(t, g, takes(ms), stalled, kahn.CancelGrace(2*time.Second))
		if r.Duration != 3*ms || time.Since(begun) != 3*ms+2*time.Second {
			t.Errorf("the run took %v, the wait %v", r.Duration, time.Since(begun))
		}
		if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0].Error(), "sink") {
			t.Errorf("warnings %v", r.Warnings)
		}
		if ids(rec.all()) != "1 2" {
			t.Errorf("the sink has seen %s", ids(rec.all()))
		}
		time.Sleep(time.Hour)
		if !slices.EqualFunc(rec.all(), r.events, sameEvent) {
			t.Errorf("the sink has seen %s", ids(rec.all()))
		}
	})
}

// The checker of event streams finds each error that is planted in a stream.
func TestEventChecker(t *testing.T) {
	g := graph(
		kahn.Node{ID: "A", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: ms}},
		after("B", "A"), after("C", "B"), kahn.Node{ID: "D", After: []string{"A"}, Disabled: true},
	)
	var r trial
	inBubble(t, "run", func(t *testing.T) {
		r = try(t, g, func(_ context.Context, s *kahn.Step) (any, error) {
			s.Emit("x")
			s.Emit("y")
			if s.ID() == "A" && s.Attempt() == 1 || s.ID() == "B" {
				return nil, errors.New("no")
			}
			return nil, nil
		})
	})
	find := func(kind event.Type, node string, n int) int {
		for i, e := range r.events {
			if e.Type == kind && e.Node == node {
				if n--; n == 0 {
					return i
				}
			}
		}
		t.Fatalf("no %s of %s", kind, node)
		return 0
	}
	drop := func(i int) func([]kahn.Event) []kahn.Event {
		return func(events []kahn.Event) []kahn.Event { return slices.Delete(events, i, i+1) }
	}
	alter := func(i int, change func(*kahn.Event)) func([]kahn.Event) []kahn.Event {
		return func(events []kahn.Event) []kahn.Event { change(&events[i]); return events }
	}
	started := find(event.NodeStarted, "A", 1)
	delta := find(event.NodeDelta, "A", 2)
	for name, bug := range map[string]func([]kahn.Event) []kahn.Event{
		"no queued":           drop(find(event.NodeQueued, "A", 1)),
		"no started":          drop(started),
		"no retried":          drop(find(event.NodeRetried, "A", 1)),
		"no delta":            drop(find(event.NodeDelta, "A", 1)),
		"no end":              drop(find(event.NodeCompleted, "A", 1)),
		"no aborted":          drop(find(event.NodeAborted, "C", 1)),
		"no end of the run":   drop(len(r.events) - 1),
		"no start of the run": drop(0),
		"twice": func(events []kahn.Event) []kahn.Event {
			return slices.Insert(events, started, events[started])
		},
		"two ends": func(events []kahn.Event) []kahn.Event {
			end := find(event.NodeCompleted, "A", 1)
			return slices.Insert(events, end, events[end])
		},
		"after the end": func(events []kahn.Event) []kahn.Event { return append(events, events[delta]) },
		"swapped": func(events []kahn.Event) []kahn.Event {
			events[started], events[delta] = events[delta], events[started]
			return events
		},
		"attempt":        alter(started, func(e *kahn.Event) { e.Attempt = 2 }),
		"delta reset":    alter(find(event.NodeDelta, "A", 3), func(e *kahn.Event) { e.Payload = event.Delta{Index: 1} }),
		"back in time":   alter(delta, func(e *kahn.Event) { e.Time = e.Time.Add(-time.Hour) }),
		"of another run": alter(delta, func(e *kahn.Event) { e.RunID = "other" }),
		"no trace":       alter(delta, func(e *kahn.Event) { e.TraceID = "" }),
		"no cause":       alter(started, func(e *kahn.Event) { e.Parent = 0 }),
		"another cause":  alter(find(event.NodeQueued, "B", 1), func(e *kahn.Event) { e.Parent = 1 }),
		"its own cause":  alter(delta, func(e *kahn.Event) { e.Parent = e.ID }),
		"no such node":   alter(delta, func(e *kahn.Event) { e.Node, e.Path = "X", "X" }),
		"another status": alter(find(event.NodeAborted, "C", 1), func(e *kahn.Event) { e.Type = event.NodeCancelled }),
	} {
		events := bug(slices.Clone(r.events))
		for i := range events { // new ids, which do not reveal the planted error
			events[i].ID = uint64(i + 1)
		}
		if err := kahntest.CheckEvents(g, r.Result, events); err == nil {
			t.Errorf("%s: not found\n%s", name, eventText(events))
		}
	}
	holes := slices.Clone(r.events)
	for i := range holes[5:] {
		holes[5+i].ID++
	}
	if kahntest.CheckEvents(g, r.Result, holes) == nil {
		t.Error("a hole: not found")
	}
}

// Without readers of events, a run allocates nothing for events. With a sink, it allocates once per node, for node.completed, and one block of the
// log per 64 events.
func TestAllocationsOfEvents(t *testing.T) {
	const nodes = 1000
	var g kahn.Graph
	for i := range nodes {
		n := kahn.Node{ID: strconv.Itoa(i)}
		if i > 0 {
			n.After = []string{strconv.Itoa(i - 1)}
		}
		g.Add(n)
	}
	plan, err := g.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		most float64
		opts []kahn.Option
	}{
		{"nobody", 0.05, nil},
		{"one sink", 1.2, []kahn.Option{kahn.OnEvent(func(kahn.Event) {})}},
	} {
		allocs := testing.AllocsPerRun(20, func() {
			if _, err := plan.Execute(t.Context(), nothing, row.opts...); err != nil {
				t.Fatal(err)
			}
		}) / nodes
		if allocs > row.most && !race.Enabled { // the race detector allocates, too
			t.Errorf("%s: %.2f allocations a node, expected at most %.2f", row.name, allocs, row.most)
		}
	}
}
