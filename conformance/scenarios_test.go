package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// The scenarios are the rows of the conformance list that need a clock, data or a host. The name of each subtest begins with the number of its
// row. Expected statuses are written as in testdata/matrix.txt.

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
				time.Sleep(time.Second) // meanwhile B completes, too late to be an input
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
		r.order("node.queued J", "node.completed B", "node.started J") // J waits for the slot that B holds
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
			var cycle *kahn.Problem
			if res != nil || !errors.Is(err, kahn.ErrCycle) || !errors.As(err, &cycle) {
				t.Fatalf("Execute = %v, %v", res, err)
			}
			if got := slices.Sorted(slices.Values(cycle.Cycle)); !slices.Equal(got, row.nodes) {
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
