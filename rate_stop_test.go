package kahn_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// A run that is being stopped ends in a time that its own options bound, whatever it shares with other runs, and however rare its
// tokens are: cleanup nodes and the end node wait for neither.
func TestStoppedRunWaitsForNobody(t *testing.T) {
	rare := kahn.Rate{Starts: 1, Per: time.Hour}
	clean := func(n kahn.Node) kahn.Node { n.ID, n.Key, n.Cleanup = "C", "k", true; return n }
	flaky := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.Attempt() == 1 {
			return nil, errStep
		}
		return nil, nil
	}
	cleanups := map[string]kahn.Node{
		"step":  {After: []string{"A"}},
		"early": {},
		"retry": {Do: flaky, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 10 * ms}},
		"sub":   {Sub: graph(kahn.Node{ID: "x", Key: "k", Groups: []string{"g"}}, kahn.Node{ID: "y", Key: "k", After: []string{"x"}})},
		"map":   {Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []any{1, 2, 3}}},
		"loop":  {Sub: graph(kahn.Node{ID: "x", Key: "k"}), Loop: &kahn.Loop{MaxIterations: 3, OnLimit: kahn.LoopStop, While: func(kahn.View) (bool, error) { return true, nil }}},
	}
	for name, node := range cleanups {
		for bound, limited := range map[string]struct {
			runner *kahn.Runner
			opts   []kahn.Option
			rate   kahn.Rate
		}{
			"StartRate":  {opts: []kahn.Option{kahn.StartRate(rare)}},
			"KeyRate":    {opts: []kahn.Option{kahn.KeyRate(rare)}},
			"Group.Rate": {rate: rare},
			"Rate":       {runner: &kahn.Runner{Rate: rare}},
			"KeyRate'":   {runner: &kahn.Runner{KeyRate: rare}},
			"Limit":      {runner: &kahn.Runner{Limit: 1}},
			"KeyLimit":   {runner: &kahn.Runner{KeyLimit: 1}},
		} {
			for stop, end := range map[string]func(*kahn.Run){"cancel": func(r *kahn.Run) { r.Cancel() }, "abort": func(r *kahn.Run) { r.AbortAll(nil) }} {
				for _, one := range []int{0, 1} {
					inBubble(t, fmt.Sprint(name, " ", bound, " ", stop, " ", one), func(t *testing.T) {
						g := graph(kahn.Node{ID: "A", Key: "k", Groups: []string{"g"}, Priority: 1}, after("B", "A"), clean(node), kahn.Node{ID: "end", Kind: kahn.KindEnd, Key: "k"})
						g.Groups = []kahn.Group{{Name: "g", Rate: limited.rate}}
						rn := limited.runner
						if rn == nil {
							rn = new(kahn.Runner)
						} else {
							rn = &kahn.Runner{Rate: rn.Rate, KeyRate: rn.KeyRate, Limit: rn.Limit, KeyLimit: rn.KeyLimit}
						}
						if rn.Limit+rn.KeyLimit > 0 { // another run has the slot
							other, err := rn.Start(t.Context(), graph(kahn.Node{ID: "A", Key: "k"}), takes(time.Hour))
							if err != nil {
								t.Fatal(err)
							}
							defer func() {
								other.Cancel()
								_, _ = other.Wait()
								idle(t, rn)
							}()
							synctest.Wait()
						}
						rec := newRecorder()
						run, err := rn.Start(t.Context(), g, takes(time.Second), append(limited.opts, kahn.Limit(one), kahn.OnEvent(rec.add))...)
						if err != nil {
							t.Fatal(err)
						}
						time.Sleep(500 * ms)
						synctest.Wait()
						begin := time.Now()
						end(run)
						res, err := run.Wait()
						if took := time.Since(begin); took > 10*time.Second {
							t.Errorf("the run took %v to stop: %v %v\n%s", took, res.Status, err, eventText(rec.all()))
						}
						checkEvents(t, g, res, rec.all())
						if left := run.Leftovers(); left != "" {
							t.Error(left)
						}
						for _, id := range []string{"C", "end"} {
							if n, _ := res.Node(id); n.Status != kahn.Completed {
								t.Errorf("%s is %v: %v\n%s", id, n.Status, n.Err, eventText(rec.all()))
							}
						}
					})
				}
			}
		}
	}
}
