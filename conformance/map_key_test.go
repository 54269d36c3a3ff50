package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// fetches returns a map over addresses, with the host as the key.
func fetches(list []string, limit int) kahn.Node {
	return kahn.Node{ID: "M", Params: map[string]any{"list": list}, Map: &kahn.Map{Over: "list", Limit: limit, Key: func(item any) string {
		host, _, _ := strings.Cut(item.(string), "/")
		return host
	}}}
}

func TestMapKeys(t *testing.T) {
	list := []string{"a/1", "a/2", "b/1", "/1", "a/3", "/2", "b/2"}
	second := takes(time.Second)
	inBubble(t, "a limit for each key, and none for items without", func(t *testing.T) {
		r := try(t, graph(fetches(list, 0)), second, kahn.KeyLimit(1))
		r.expectSorted("M@0s M[0]@0s M[2]@0s M[3]@0s M[5]@0s M[1]@1s M[6]@1s M[4]@2s")
	})
	inBubble(t, "under the limits of map and run", func(t *testing.T) {
		try(t, graph(fetches(list, 2)), second, kahn.KeyLimit(1)).expectSorted("M@0s M[0]@0s M[2]@0s M[1]@1s M[3]@1s M[4]@2s M[5]@2s M[6]@3s")
		try(t, graph(fetches(list, 0)), second, kahn.KeyLimit(1), kahn.Limit(1)).expectStarts("M@0s M[0]@0s M[1]@1s M[2]@2s M[3]@3s M[4]@4s M[5]@5s M[6]@6s")
	})
	inBubble(t, "the keys are those of the whole run", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "A", Key: "a", Priority: 1}, fetches(list[:2], 0), kahn.Node{ID: "N", Sub: graph(fetches(list[:1], 0))}), second, kahn.KeyLimit(1))
		if r.Duration != 4*time.Second {
			t.Errorf("%v\n%s", r.Duration, eventText(r.events))
		}
	})
	inBubble(t, "a rate for each key", func(t *testing.T) {
		r := try(t, graph(fetches(list[:3], 0)), nop, kahn.KeyRate(kahn.Rate{Starts: 1, Per: time.Minute}))
		r.expectSorted("M@0s M[0]@0s M[2]@0s M[1]@1m0s")
	})
	inBubble(t, "after a resume", func(t *testing.T) {
		g := graph(fetches(list[:3], 0))
		run, err := kahn.Start(t.Context(), g, takes(time.Second), kahn.KeyLimit(1))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		run.Leave()
		res, err := run.Wait()
		if err != nil || res.Status != kahn.RunSuspended {
			t.Fatal(res.Status, err)
		}
		begin := time.Now()
		if res, err = kahn.Execute(t.Context(), g, second, kahn.KeyLimit(1), kahn.Resume(res.Snapshot())); err != nil || res.Status != kahn.RunCompleted {
			t.Fatal(res.Status, err)
		}
		if took := time.Since(begin); took != time.Second { // a/2 alone was left
			t.Errorf("it took %v", took)
		}
	})
	inBubble(t, "a panic fails the node", func(t *testing.T) {
		m := fetches(list, 0)
		m.Map.Key = func(any) string { panic("no key") }
		r := try(t, graph(m), second)
		r.expect("M:F", "failed")
		r.cause("M", kahn.CausePanic)
	})
	for name, node := range map[string]kahn.Node{
		"Map.Key is for maps of steps": {ID: "M", Sub: graph(after("x")), Map: fetches(nil, 0).Map},
		"both a Key and a Map.Key":     {ID: "M", Key: "k", Map: fetches(nil, 0).Map},
	} {
		if _, err := graph(node).Compile(); !errors.Is(err, kahn.ErrBadValue) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if p, err := graph(fetches(nil, 0)).Compile(); err != nil || p.Portable() == nil {
		t.Error(err, "a function is portable")
	}
}

func TestMapEstimates(t *testing.T) {
	durations := []int{1, 5, 2, 4, 3}
	m := kahn.Node{ID: "M", Params: map[string]any{"list": durations}, Map: &kahn.Map{Over: "list", Estimate: func(item any) time.Duration {
		return time.Duration(item.(int)) * time.Second
	}}, Do: func(ctx context.Context, s *kahn.Step) (any, error) {
		n, _ := s.Item()
		return takes(time.Duration(n.(int))*time.Second)(ctx, s)
	}}
	inBubble(t, "the longest first", func(t *testing.T) {
		r := try(t, graph(m), nil, kahn.Limit(2))
		r.expectSorted("M@0s M[1]@0s M[3]@0s M[4]@4s M[2]@5s M[0]@7s")
		if out := fmt.Sprint(r.node("M").Output); out != "[M M M M M]" && out != "[M[0] M[1] M[2] M[3] M[4]]" {
			t.Error(out)
		}
	})
}
