package kahn_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// TestOverdueFirst: what was due while the run was away has ended before anything else happens.
func TestOverdueFirst(t *testing.T) {
	timed := func(id string, overall time.Duration) kahn.Node {
		return kahn.Node{ID: id, OverallTimeout: overall, Retry: kahn.Retry{MaxAttempts: 100, InitialDelay: time.Minute, MaxDelay: time.Minute, Jitter: kahn.JitterNone}}
	}
	waiting := func(id string, timeout time.Duration) kahn.Node {
		return kahn.Node{ID: id, Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: timeout}}
	}
	inner := func() *kahn.Graph {
		return graph(timed("backoff", 2*time.Hour), timed("wait", 3*time.Hour), waiting("gate", 90*time.Minute), timed("run", time.Hour), timed("late", 30*time.Hour))
	}
	life := func(ctx context.Context, s *kahn.Step) (any, error) {
		switch s.ID() {
		case "backoff":
			return nil, errStep
		case "wait":
			return nil, kahn.Suspend("", nil, nil)
		}
		return takes(time.Hour/2)(ctx, s)
	}
	for _, row := range []struct {
		name, prefix string
		graph        func() *kahn.Graph
		order        string // of what ends at once
	}{
		{"at the top", "", inner, "run gate backoff wait"},
		{"inside", "S/", func() *kahn.Graph { return graph(subgraph("S", inner())) }, "S/run S/gate S/backoff S/wait"},
		{"a composite", "S/", func() *kahn.Graph {
			s := subgraph("S", graph(after("run"), waiting("gate", 90*time.Minute)))
			s.OverallTimeout = time.Hour
			return graph(s)
		}, "S"},
		{"a composite, after what is inside of it", "S/", func() *kahn.Graph {
			s := subgraph("S", graph(after("run"), waiting("gate", 30*time.Minute)))
			s.OverallTimeout = time.Hour
			return graph(s)
		}, "S/gate S"},
	} {
		for _, limit := range []int{0, 1, 2} {
			for _, durable := range []bool{false, true} {
				inBubble(t, fmt.Sprintf("%s, limit %d, durable %t", row.name, limit, durable), func(t *testing.T) {
					var opts []kahn.Option
					if limit > 0 {
						opts = append(opts, kahn.Limit(limit))
					}
					g := row.graph()
					opts = crash(t, g, life, durable, lasting(20*time.Minute), opts...)
					time.Sleep(5 * time.Hour)
					signals := map[string]any{row.prefix + "gate": 1}
					opts = append(opts, kahn.Signals(signals))
					rec := newRecorder()
					res, _ := kahn.Execute(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
						if s.ID() != "late" {
							t.Errorf("%s was called", s.Path())
						}
						return nil, nil
					}, append(opts, kahn.OnEvent(rec.add))...)
					checkEvents(t, g, res, rec.all())
					var ended []string
					for _, e := range rec.all() {
						switch e.Type {
						case kahn.EventNodeStarted:
							if len(ended) < len(strings.Fields(row.order)) {
								t.Errorf("%s was started before\n%s", e.Path, eventText(rec.all()))
							}
						case kahn.EventNodeFailed:
							if e.Time.Equal(rec.all()[0].Time) {
								ended = append(ended, e.Path)
							}
						}
					}
					if n := len(strings.Fields(row.order)); len(ended) > n && row.name == "inside" {
						ended = ended[:n] // the composite follows
					}
					if got := strings.Join(ended, " "); got != row.order {
						t.Errorf("got %s, expected %s\n%s", got, row.order, eventText(rec.all()))
					}
				})
			}
		}
	}
}
