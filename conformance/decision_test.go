package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// next expects that an event directly follows another event of the same node.
func (r trial) next(node string, kind, after event.Type) kahn.Event {
	r.t.Helper()
	for i, e := range r.events {
		if e.Path == node && e.Type == kind {
			if i == 0 || r.events[i-1].Type != after || r.events[i-1].Path != node {
				r.t.Errorf("%v comes after %v", e, r.events[max(i-1, 0)])
			}
			return r.events[i-1]
		}
	}
	r.t.Errorf("no %s of %s\n%s", kind, node, eventText(r.events))
	return kahn.Event{}
}

// decided compares the decision in a node's result and in the payload of node.signalled with the expected one.
func (r trial) decided(node, id string, n kahn.NodeResult, want kahn.Decision) {
	r.t.Helper()
	if n.Decision == nil || fmt.Sprint(*n.Decision) != fmt.Sprint(want) {
		r.t.Errorf("%s keeps %v, expected %v", node, n.Decision, want)
	}
	signalled := r.find(event.NodeSignalled, node)
	if len(signalled) != 1 {
		r.t.Fatalf("%d times node.signalled of %s\n%s", len(signalled), node, eventText(r.events))
	}
	if p := signalled[0].Payload.(event.Answer); fmt.Sprint(p) != fmt.Sprint(want) {
		r.t.Errorf("%s tells %v, expected %v", node, p, want)
	}
}

func TestDecision(t *testing.T) {
	ann := kahn.Decision{Value: "approve", Actor: "ann@example.com", Comment: "Looks good."}
	g := asked(nil, "approved", "rejected")

	for name, signal := range map[string]any{"a value": ann, "a pointer": &ann} {
		inBubble(t, "a gate that waits takes "+name, func(t *testing.T) {
			r := tryControlled(t, t.Context(), g, takes(0), func(run *kahn.Run) {
				synctest.Wait()
				if err := run.Signal(context.Background(), "G", kahn.Decision{Value: "aprove", Actor: "ann"}); !errors.Is(err, kahn.ErrChoice) {
					t.Error(err)
				}
				if err := run.Signal(context.Background(), "G", signal); err != nil {
					t.Error(err)
				}
			})
			r.expect("G:ok on approved:ok on rejected:S/br", "completed")
			if out := r.node("G").Output; out != "approve" {
				t.Errorf("the output is %v", out)
			}
			r.decided("G", "G", r.node("G"), ann)
			r.next("G", event.NodeCompleted, event.NodeSignalled)
		})
	}

	inBubble(t, "early, and a plain value", func(t *testing.T) {
		g := graph(after("A"), gate("G", "A"), gate("H", "A"), after("B", "G", "H"))
		r := try(t, g, takes(ms), kahn.EarlySignals(map[string]any{"G": kahn.Decision{Value: 1, Actor: "bob"}, "H": nil}))
		r.expect("A:ok G:ok H:ok B:ok", "completed")
		r.decided("G", "G", r.node("G"), kahn.Decision{Value: 1, Actor: "bob"})
		r.decided("H", "H", r.node("H"), kahn.Decision{})
		r.next("G", event.NodeCompleted, event.NodeSignalled)
		r.next("H", event.NodeCompleted, event.NodeSignalled)
	})

	inBubble(t, "a step goes on", func(t *testing.T) {
		waits := func(_ context.Context, s *kahn.Step) (any, error) {
			if v, ok := s.Resumed(); ok {
				return v, nil
			}
			return nil, kahn.Suspend("ticket", nil, nil)
		}
		for _, c := range []struct {
			g    *kahn.Graph
			path string
		}{{graph(after("A")), "A"}, {graph(subgraph("S", graph(after("A")))), "S/A"}} {
			r := tryControlled(t, t.Context(), c.g, waits, func(run *kahn.Run) {
				synctest.Wait()
				if err := run.Signal(context.Background(), "ticket", kahn.Decision{Value: 7, Actor: "bob", Comment: "seven"}); err != nil {
					t.Error(err)
				}
			})
			n := r.node(c.path[:1])
			if n.Sub != nil {
				n, _ = n.Sub.Node("A")
			}
			if n.Output != 7 {
				t.Errorf("the step was answered %v", n.Output)
			}
			r.decided(c.path, "A", n, kahn.Decision{Value: 7, Actor: "bob", Comment: "seven"})
			signalled := r.find(event.NodeSignalled, c.path)[0]
			if queued := r.events[signalled.ID]; queued.Type != event.NodeQueued || queued.Path != c.path || queued.Parent != signalled.ID {
				t.Errorf("%v is followed by %v", signalled, queued)
			}
		}
	})

	inBubble(t, "nobody has decided", func(t *testing.T) {
		g := graph(kahn.Node{ID: "G", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour, OnTimeout: kahn.GateLabel}}, after("B", "G"))
		for _, r := range []trial{try(t, graph(after("A"), gate("G", "A")), takes(0), kahn.TestMode{}), tryControlled(t, t.Context(), g, takes(0), func(*kahn.Run) {})} {
			if d := r.node("G").Decision; d != nil {
				t.Errorf("%v", d)
			}
			r.count(event.NodeSignalled, "G", 0)
		}
	})

	inBubble(t, "snapshots and stores keep it", func(t *testing.T) {
		// G is answered while W waits. W continues in another life with its own answer. H is answered before it waits.
		g := graph(gate("G"), gate("W"), gate("H", "W"), after("B", "H"))
		store := new(store.Memory)
		for name, first := range map[string][]kahn.Option{"snapshot": nil, "store": {kahn.Durable(store), kahn.RunID("r")}} {
			run, err := kahn.Start(t.Context(), g, neverStep(t), first...)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for id, d := range map[string]kahn.Decision{"G": ann, "H": {Value: "h", Actor: "bob", Comment: "early"}} {
				if err := run.Signal(context.Background(), id, d); err != nil {
					t.Error(err)
				}
			}
			run.Leave()
			left, err := run.Wait()
			if err != nil || left.Status != kahn.RunSuspended {
				t.Fatalf("%s: %v, %v", name, left.Status, err)
			}
			opts := []kahn.Option{kahn.Resume(reload(t, left.Snapshot())), kahn.EarlySignals(map[string]any{"W": kahn.Decision{Value: true, Actor: "eve"}})}
			if first != nil {
				opts = append(slices.Clone(first), kahn.EarlySignals(map[string]any{"W": kahn.Decision{Value: true, Actor: "eve"}}))
			}
			rec := newRecorder()
			res, err := kahn.Execute(t.Context(), g, takes(0), append(opts, kahn.OnEvent(rec.add))...)
			if err != nil || res.Status != kahn.RunCompleted {
				t.Fatalf("%s: %v", name, err)
			}
			for id, want := range map[string]kahn.Decision{"G": ann, "H": {Value: "h", Actor: "bob", Comment: "early"}, "W": {Value: true, Actor: "eve"}} {
				if n, _ := res.Node(id); n.Decision == nil || *n.Decision != want {
					t.Errorf("%s: %s keeps %v, expected %v", name, id, n.Decision, want)
				}
			}
			told := map[string]string{}
			for _, e := range rec.all() {
				if p, ok := e.Payload.(event.Answer); ok {
					told[e.Path] = p.Actor
				}
			}
			if fmt.Sprint(told) != "map[H:bob W:eve]" && name == "snapshot" {
				t.Errorf("%s: %v", name, told)
			}
		}
	})

	inBubble(t, "a value that cannot be encoded is refused", func(t *testing.T) {
		run, err := kahn.Start(t.Context(), graph(gate("G")), neverStep(t), kahn.Durable(new(store.Memory)))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := run.Signal(context.Background(), "G", kahn.Decision{Value: make(chan int)}); !errors.Is(err, kahn.ErrNotEncodable) {
			t.Error(err)
		}
		if err := run.Signal(context.Background(), "G", kahn.Decision{Value: "yes", Actor: "ann"}); err != nil {
			t.Error(err)
		}
		if _, err := run.Wait(); err != nil {
			t.Error(err)
		}
	})

	inBubble(t, "as JSON", func(t *testing.T) {
		e := kahn.Event{ID: 1, Type: event.NodeSignalled, Node: "G", Path: "G", Epoch: 1, Payload: event.Answer{Value: nil}}
		data, err := json.Marshal(e)
		var payload struct {
			Payload map[string]any `json:"payload"`
		}
		if err := errors.Join(err, json.Unmarshal(data, &payload)); err != nil {
			t.Fatal(err)
		}
		if _, ok := payload.Payload["value"]; !ok || payload.Payload["actor"] != nil {
			t.Errorf("%s", data)
		}
	})
}
