package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// TestScenarioResumeInside: a snapshot contains the same data about nodes inside composites as about outermost nodes.
func TestScenarioResumeInside(t *testing.T) {
	for _, inside := range []bool{false, true} {
		wrap := func(g *kahn.Graph) *kahn.Graph {
			if inside {
				return graph(subgraph("S", g))
			}
			return g
		}
		path, unwrap := func(id string) string { return id }, func(r *kahn.Result) *kahn.Result { return r }
		if inside {
			path = func(id string) string { return "S/" + id }
			unwrap = func(r *kahn.Result) *kahn.Result { n, _ := r.Node("S"); return n.Sub }
		}
		name := func(text string) string { return fmt.Sprintf("%s, inside %v", text, inside) }

		inBubble(t, name("the inputs of an early join stay frozen"), func(t *testing.T) {
			var seen []string
			g := wrap(graph(kahn.Node{ID: "A", Do: takes(0)}, kahn.Node{ID: "B", Do: takes(time.Second)}, kahn.Node{ID: "J", After: []string{"A", "B"}, Join: kahn.AnySucceeded,
				Do: func(_ context.Context, s *kahn.Step) (any, error) {
					_, a := s.Upstream("A")
					_, b := s.Upstream("B")
					seen = append(seen, fmt.Sprint(a, b))
					if _, ok := s.Resumed(); ok {
						return nil, nil
					}
					return nil, kahn.Suspend("", nil, nil)
				}}))
			pause(t, g, nil).resume(g, nil, map[string]any{path("J"): 1})
			if !slices.Equal(seen, []string{"true false", "true false"}) {
				t.Errorf("J has seen %v", seen)
			}
		})

		inBubble(t, name("a late failure does not come twice"), func(t *testing.T) {
			stubborn := func(context.Context, *kahn.Step) (any, error) { time.Sleep(3 * time.Second); return nil, errStep }
			g := wrap(graph(kahn.Node{ID: "A", Do: takes(0)}, kahn.Node{ID: "B", Do: func(context.Context, *kahn.Step) (any, error) {
				time.Sleep(time.Second)
				return nil, errStep
			}}, kahn.Node{ID: "J", After: []string{"A", "B"}, Join: kahn.AnySucceeded, CancelOnLateFailure: true, Do: stubborn},
				kahn.Node{ID: "K", After: []string{"A"}, Do: stubborn}))
			s := crashed(t, g, nil, 2*time.Second)
			res, _ := resumeRun(t, t.Context(), g, nil, s, nil)
			j, _ := unwrap(res).Node("J")
			if j.Status != kahn.Aborted || j.Cause.Kind != kahn.CauseUpstreamFailure {
				t.Errorf("J is %v %v", j.Status, j.Cause)
			}
		})

		inBubble(t, name("the port of a null"), func(t *testing.T) {
			g := wrap(graph(kahn.Node{ID: "A", Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }}, kahn.Node{ID: "B", Do: takes(0)},
				kahn.Node{ID: "N", Ports: []kahn.Port{{Name: "p", Required: true}, {Name: "q", Required: true}}, In: []kahn.Edge{{From: "B", Param: "p"}, {From: "A", Param: "q"}}},
				gate("G", "N", "A")))
			// Only a waiting gate G keeps the run from ending, so that there is a snapshot to continue from.
			g = wrapGate(g, inside)
			r := pause(t, g, neverStep(t))
			r = r.resume(g, neverStep(t), nil)
			n, _ := unwrap(r.Result).Node("N")
			if n.Skip.Kind != kahn.SkipNullPropagation || n.Skip.Port != "q" || n.Skip.Node != "A" {
				t.Errorf("N is %v %+v", n.Status, n.Skip)
			}
		})

		inBubble(t, name("the branch that was not taken"), func(t *testing.T) {
			g := wrapGate(wrap(graph(kahn.Node{ID: "?", Test: func(kahn.View) (any, error) { return "b", nil }}, branch("X", "?", "a"), branch("Y", "?", "b"), after("Z", "X"))), inside)
			r := pause(t, g, takes(0)).resume(g, neverStep(t), nil)
			for id, want := range map[string]string{"X": `condition_branch(? answered "b", not "a")`, "Z": "upstream_skipped(X)"} {
				if n, _ := unwrap(r.Result).Node(id); strings.ReplaceAll(n.Skip.String(), `"?"`, "?") != want {
					t.Errorf("%s is %v %v", id, n.Status, n.Skip)
				}
			}
		})

		inBubble(t, name("the branch that was taken, for who has yet to decide"), func(t *testing.T) {
			taken := func(label string) []kahn.Edge { return []kahn.Edge{{From: "?", Label: label}, {From: "G"}} }
			g := wrap(graph(kahn.Node{ID: "?", Test: func(kahn.View) (any, error) { return "b", nil }}, gate("G"),
				kahn.Node{ID: "X", In: taken("a"), Join: kahn.NoneSkipped}, kahn.Node{ID: "Y", In: taken("b")}))
			r := pause(t, g, neverStep(t)).resume(g, takes(0), map[string]any{path("G"): 1})
			for id, want := range map[string]kahn.Status{"X": kahn.Skipped, "Y": kahn.Completed} {
				if n, _ := unwrap(r.Result).Node(id); n.Status != want {
					t.Errorf("%s is %v %v", id, n.Status, n.Skip)
				}
			}
		})

		inBubble(t, name("tokens, fallbacks, guard errors and messages"), func(t *testing.T) {
			g := wrapGate(wrap(graph(
				kahn.Node{ID: "F", Do: func(context.Context, *kahn.Step) (any, error) { return nil, errStep }, Fallback: func(context.Context, error) (any, error) { return "f", nil }},
				kahn.Node{ID: "M", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Skip("words") }},
				kahn.Node{ID: "W", When: func(kahn.View) (bool, error) { return false, errStep }, Do: takes(0)},
				kahn.Node{ID: "T", Do: func(_ context.Context, s *kahn.Step) (any, error) {
					s.Tokens(3, 4)
					if _, ok := s.Resumed(); ok {
						return nil, nil
					}
					return nil, kahn.Suspend("", nil, nil)
				}})), inside)
			r := pause(t, g, nil).resume(g, nil, map[string]any{path("T"): 1})
			in := unwrap(r.Result)
			f, _ := in.Node("F")
			m, _ := in.Node("M")
			w, _ := in.Node("W")
			if !f.Fallback || f.Output != "f" || f.LastErr == nil || m.Skip.Message != "words" || w.GuardErr == nil {
				t.Errorf("%+v\n%+v\n%+v", f, m, w)
			}
			for _, e := range r.find(event.NodeCompleted, path("T")) {
				if p := e.Payload.(event.Completion); p.InputTokens != 6 || p.OutputTokens != 8 {
					t.Errorf("%+v", p)
				}
			}
		})
	}

	inBubble(t, "a node that was cancelled before a late failure stays cancelled", func(t *testing.T) {
		stubborn := func(context.Context, *kahn.Step) (any, error) { time.Sleep(3 * time.Second); return nil, errStep }
		g := graph(kahn.Node{ID: "A", Do: takes(0)}, kahn.Node{ID: "B", Do: func(context.Context, *kahn.Step) (any, error) {
			time.Sleep(time.Second)
			return nil, errStep
		}}, kahn.Node{ID: "J", After: []string{"A", "B"}, Join: kahn.AnySucceeded, CancelOnLateFailure: true, Do: stubborn})
		run, err := startRun(t, t.Context(), g, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * ms)
		if err := run.CancelNode("J"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		s := reload(t, run.Snapshot())
		_, _ = run.Wait()
		res, _ := resumeRun(t, t.Context(), g, nil, s, nil)
		if j, _ := res.Node("J"); j.Status != kahn.Cancelled || j.Cause.Kind != kahn.CauseCancelNode {
			t.Errorf("J is %v %v", j.Status, j.Cause)
		}
	})

	inBubble(t, "a failed item counts on", func(t *testing.T) {
		m := mapped("M", numbers(4), kahn.Map{FailFast: true, ToleratedCount: 1, Limit: 1})
		var c paths
		m.Do = c.count(func(_ context.Context, s *kahn.Step) (any, error) {
			if _, ok := s.Resumed(); !ok && s.Index() == 1 {
				return nil, kahn.Suspend("", nil, nil)
			}
			if s.Index() < 2 {
				return nil, errStep
			}
			return nil, kahn.Suspend("", nil, nil)
		})
		g := graph(m)
		r := pause(t, g, nil)
		c.n = nil
		r = r.resume(g, nil, map[string]any{"M[1]": 1})
		r.expect("M:F", "failed")
		if got := r.items("M"); got != "F F X X" {
			t.Errorf("items %s", got)
		}
		c.once(t, "M[1]")
	})

	inBubble(t, "an item that waits holds no slot of its map", func(t *testing.T) {
		m := mapped("M", numbers(5), kahn.Map{Limit: 2})
		m.Sub = graph(gate("g"), after("x", "g"))
		g := graph(m)
		r := pause(t, g, takes(0), kahn.SuspendStop)
		for range 2 {
			if got := r.items("M"); got != "suspended suspended ready ready ready" { // the waits hold back the nodes that have not started
				t.Errorf("items %s", got)
			}
			r = r.resume(g, takes(0), nil, kahn.SuspendStop)
		}
		r = r.resume(g, takes(0), map[string]any{"M[0]/g": 1})
		if got := r.items("M"); got != "ok suspended suspended suspended suspended" {
			t.Errorf("items %s", got)
		}
	})

	for _, mode := range []kahn.FailureMode{kahn.StopScheduling, kahn.AbortRunning} {
		inBubble(t, fmt.Sprint("a run that is stopped by a failure: ", mode), func(t *testing.T) {
			g := graph(subgraph("S", graph(after("x"), after("y", "x"))), kahn.Node{ID: "F", Do: func(context.Context, *kahn.Step) (any, error) {
				time.Sleep(time.Second)
				return nil, errStep
			}})
			slow := func(_ context.Context, s *kahn.Step) (any, error) { time.Sleep(3 * time.Second); return s.ID(), nil }
			s := crashed(t, g, slow, 2*time.Second, mode)
			res, _ := resumeRun(t, t.Context(), g, neverStep(t), s, nil, mode)
			n, _ := res.Node("S")
			if n.Status != kahn.Aborted || n.Cause.Kind != kahn.CauseFailFast || !slices.Equal(n.Cause.Origins, []string{"F"}) {
				t.Errorf("S is %v %v", n.Status, n.Cause)
			}
		})
	}
}

// wrapGate adds a gate, so that the run waits: next to the tested node or inside it.
func wrapGate(g *kahn.Graph, inside bool) *kahn.Graph {
	if !inside {
		return g.Add(gate("waits"))
	}
	for _, n := range g.Nodes() {
		n.Sub.Add(gate("waits"))
	}
	return g
}

func TestBadInsidesAreRefused(t *testing.T) {
	m := mapped("M", numbers(2), kahn.Map{})
	m.Sub = graph(gate("g"))
	g := graph(m, subgraph("S", graph(gate("g"))), kahn.Node{ID: "L", Sub: graph(gate("g")), Loop: &kahn.Loop{While: whileLess(2), MaxIterations: 2}})
	res, err := executeRun(t, t.Context(), g, neverStep(t))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(res.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	type node = map[string]any
	for name, change := range map[string]func(m, s, l node){
		"an item too many":     func(m, _, _ node) { m["items"] = 3 },
		"a negative number":    func(m, _, _ node) { m["items"] = -1 },
		"items of a sub-graph": func(_, s, _ node) { s["items"] = 1 },
		"a sub-graph iterates": func(_, s, _ node) { s["iteration"] = 1 },
		"a loop does not":      func(_, _, l node) { delete(l, "iteration") },
		"another node":         func(_, s, _ node) { s["nodes"].([]any)[0].(node)["id"] = "h" },
		"twice":                func(_, s, _ node) { s["nodes"] = append(s["nodes"].([]any), s["nodes"].([]any)[0]) },
		"waits for nothing": func(m, _, _ node) {
			delete(m["nodes"].([]any)[1].(node)["inside"].(node)["nodes"].([]any)[0].(node), "wait")
		},
	} {
		var doc struct {
			Nodes []node `json:"nodes"`
		}
		var whole node
		if err := errors.Join(json.Unmarshal(data, &doc), json.Unmarshal(data, &whole)); err != nil {
			t.Fatal(err)
		}
		change(doc.Nodes[0]["inside"].(node), doc.Nodes[1]["inside"].(node), doc.Nodes[2]["inside"].(node))
		whole["nodes"] = doc.Nodes
		changed, _ := json.Marshal(whole)
		s := new(kahn.Snapshot)
		if err := s.UnmarshalJSON(changed); err != nil {
			t.Fatal(err)
		}
		if res, err := resumeRun(t, t.Context(), g, neverStep(t), s, nil); res != nil || !errors.Is(err, kahn.ErrBadValue) && !errors.Is(err, kahn.ErrGraphChanged) {
			t.Errorf("%s: %v, %v", name, res, err)
		}
	}
	s := new(kahn.Snapshot)
	if err := s.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	if _, err := resumeRun(t, t.Context(), g, neverStep(t), s, nil); err != nil {
		t.Error(err)
	}
}
