package kahn_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/seed-c794f7ef/kahn"
)

// nothing is a step that does nothing.
func nothing(context.Context, *kahn.Step) (any, error) { return nil, nil }

// TestDefaultsAreShared: runs without options share their configuration, so nothing may write to it.
func TestDefaultsAreShared(t *testing.T) {
	before := kahn.SharedConfig()
	var inner, g kahn.Graph
	inner.Add(kahn.Node{ID: "x"}, kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"x"}})
	g.Add(kahn.Node{ID: "sub", Sub: &inner},
		kahn.Node{ID: "map", Map: &kahn.Map{Over: "list", Limit: 1}, Params: map[string]any{"list": []any{1, 2}}},
		kahn.Node{ID: "fails", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: -1}, ContinueOnFail: true},
		kahn.Node{ID: "after", After: []string{"fails"}})
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "fails" {
			return nil, errors.New("no")
		}
		return 1, nil
	}
	if res, err := kahn.Execute(t.Context(), &g, step); err != nil || res.Status != kahn.RunSuspended {
		t.Fatalf("%v, %v", res, err)
	}
	run, err := kahn.Start(t.Context(), &g, step)
	if err != nil {
		t.Fatal(err)
	}
	run.Cancel()
	if res, _ := run.Wait(); res.Status != kahn.RunCancelled {
		t.Fatalf("%v", res.Status)
	}
	if !reflect.DeepEqual(before, kahn.SharedConfig()) {
		t.Errorf("%+v became %+v", before, kahn.SharedConfig())
	}
}
