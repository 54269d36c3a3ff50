package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// The functions of this file make the runs that are stored in testdata/formats. Never change them: they use only features of the versions that
// wrote the files. Later features get new functions.

// plainLeft returns a graph with an example of each feature: data, a retry, a caught failure, a branch, a waiting step, a waiting gate, and
// a gate that was answered before it was reached.
func plainLeft() *kahn.Graph {
	return new(kahn.Graph).Add(
		kahn.Node{ID: "fetch"},
		kahn.Node{ID: "flaky", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Second, Jitter: kahn.JitterNone}},
		kahn.Node{ID: "scan"},
		kahn.Node{ID: "note", In: []kahn.Edge{{From: "scan", On: kahn.OnFailure}}},
		kahn.If("big", func(v kahn.View) (bool, error) {
			out, _ := v.Output("fetch").(map[string]any)
			files, _ := out["files"].([]string)
			return len(files) > 100, nil
		}, "fetch"),
		kahn.Node{ID: "split", In: []kahn.Edge{{From: "big", Label: "true"}}},
		kahn.Node{ID: "whole", In: []kahn.Edge{{From: "big", Label: "false"}}},
		kahn.Node{ID: "ask", After: []string{"whole", "flaky"}},
		kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"whole"}},
		kahn.Node{ID: "confirm", Kind: kahn.KindGate, After: []string{"approve"}},
		kahn.Node{ID: "publish", In: []kahn.Edge{
			{From: "fetch", Param: "fetched"}, {From: "flaky", Param: "flaky"}, {From: "note", Param: "note"},
			{From: "ask", Param: "choice"}, {From: "approve", Param: "answer"}, {From: "confirm", Param: "by"},
		}},
	)
}

func plainStep(_ context.Context, s *kahn.Step) (any, error) {
	switch s.ID() {
	case "fetch":
		s.Emit("half")
		return map[string]any{"version": int64(7), "files": []string{"a", "b"}}, nil
	case "flaky":
		time.Sleep(time.Second)
		if s.Attempt() == 1 {
			return nil, errors.New("connection reset")
		}
		return "steady", nil
	case "scan":
		return nil, errors.New("3 findings")
	case "note":
		return strings.HasSuffix(s.UpstreamErr("scan").Error(), "3 findings"), nil
	case "ask":
		if v, ok := s.Resumed(); ok {
			return fmt.Sprint(s.SavedState(), " ", v), nil
		}
		return nil, kahn.Suspend("question", map[string]any{"text": "which?"}, []int{1, 2})
	case "publish":
		return fmt.Sprint(s.Params()), nil
	}
	return nil, nil
}

// nestedLeft returns a graph of composites with waiting nodes inside: a sub-graph, a map with one waiting item, a loop in its second
// iteration.
func nestedLeft() *kahn.Graph {
	return new(kahn.Graph).Add(
		kahn.Node{ID: "S", Sub: new(kahn.Graph).Add(kahn.Node{ID: "x"}, kahn.Node{ID: "g", Kind: kahn.KindGate, After: []string{"x"}},
			kahn.Node{ID: "y", In: []kahn.Edge{{From: "g", Param: "answer"}}})},
		kahn.Node{ID: "list"},
		kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, In: []kahn.Edge{{From: "list", Param: "items"}}},
		kahn.Node{ID: "L", Sub: new(kahn.Graph).Add(kahn.Node{ID: "turn"}), Loop: &kahn.Loop{
			MaxIterations: 5, Collect: true, Until: func(v kahn.View) (bool, error) { return v.Iteration() == 3, nil }}},
		kahn.Node{ID: "sum", In: []kahn.Edge{{From: "S", Param: "s"}, {From: "M", Param: "m"}, {From: "L", Param: "l"}}},
	)
}

func nestedStep(_ context.Context, s *kahn.Step) (any, error) {
	switch at := s.Path(); {
	case at == "list":
		return []any{"a", "b", "c"}, nil
	case at == "sum":
		return fmt.Sprint(s.Params()), nil
	case at == "M[1]", at == "L#2/turn":
		if v, ok := s.Resumed(); ok {
			return v, nil
		}
		time.Sleep(time.Second)
		return nil, kahn.Suspend(at, nil, nil)
	case at == "S/y":
		v, _ := s.Param("answer")
		return v, nil
	case strings.HasPrefix(at, "M["):
		item, _ := s.Item()
		time.Sleep(time.Second)
		return item, nil
	default: // S/x and the other iterations of L
		time.Sleep(time.Second)
		return at, nil
	}
}

// firedLeft returns a graph of two parts, each behind its own trigger. A run that fires one trigger has only that trigger's part.
func firedLeft() *kahn.Graph {
	return new(kahn.Graph).Add(
		kahn.Node{ID: "push", Kind: kahn.KindTrigger},
		kahn.Node{ID: "build", In: []kahn.Edge{{From: "push", Param: "commit"}}},
		kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"build"}},
		kahn.Node{ID: "deploy", In: []kahn.Edge{{From: "approve", Param: "answer"}, {From: "build", Param: "built"}}},
		kahn.Node{ID: "nightly", Kind: kahn.KindTrigger},
		kahn.Node{ID: "clean", After: []string{"nightly"}},
	)
}

func firedStep(_ context.Context, s *kahn.Step) (any, error) {
	time.Sleep(time.Second)
	return fmt.Sprint(s.ID(), s.Params()), nil
}
