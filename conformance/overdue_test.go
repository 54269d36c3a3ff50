package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// TestOverdueFirst: if the deadline of a wait or a node has passed between two lives, the next life ends the node before it does anything else.
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
		order        string // of the nodes that end at once
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
					opts = append(opts, kahn.EarlySignals(signals))
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
						case event.NodeStarted:
							if len(ended) < len(strings.Fields(row.order)) {
								t.Errorf("%s was started before\n%s", e.Path, eventText(rec.all()))
							}
						case event.NodeFailed:
							if e.Time.Equal(rec.all()[0].Time) {
								ended = append(ended, e.Path)
							}
						}
					}
					if n := len(strings.Fields(row.order)); len(ended) > n && row.name == "inside" {
						ended = ended[:n] // the ends of the composites follow
					}
					if got := strings.Join(ended, " "); got != row.order {
						t.Errorf("got %s, expected %s\n%s", got, row.order, eventText(rec.all()))
					}
				})
			}
		}
	}
}

// TestTimeoutOfAllLives: the timeout of a run includes the time between lives. After the timeout no signal is delivered and no step is called.
func TestTimeoutOfAllLives(t *testing.T) {
	gated := func() *kahn.Graph {
		return graph(gate("G"), after("B", "G"), after("A"), kahn.Node{ID: "C", Cleanup: true, After: []string{"A"}})
	}
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "C" {
			return nil, nil
		}
		return takes(5*time.Hour)(ctx, s)
	}
	for prefix, g := range map[string]*kahn.Graph{
		"":       gated(),
		"S/":     graph(subgraph("S", gated())),
		"S/T/":   graph(subgraph("S", graph(subgraph("T", gated())))),
		"S/T/U/": graph(subgraph("S", graph(subgraph("T", graph(subgraph("U", gated()))))), gate("other")),
	} {
		for _, limit := range []int{0, 1, 2} {
			for _, durable := range []bool{false, true} {
				for _, away := range []time.Duration{10 * time.Minute, 40 * time.Minute, 3 * time.Hour} {
					inBubble(t, fmt.Sprintf("%s limit %d, durable %t, away for %v", prefix, limit, durable, away), func(t *testing.T) {
						begin := time.Now()
						opts := crash(t, g, step, durable, lasting(20*time.Minute), kahn.Limit(limit), kahn.Timeout(time.Hour))
						again := time.Since(begin) + away
						time.Sleep(away)
						opts = append(opts, kahn.EarlySignals(map[string]any{prefix + "G": 1}))
						rec := newRecorder()
						res, err := kahn.Execute(t.Context(), g, func(ctx context.Context, s *kahn.Step) (any, error) {
							if again >= time.Hour && s.ID() != "C" {
								t.Errorf("%s was called", s.Path())
							}
							return step(ctx, s)
						}, append(opts, kahn.OnEvent(rec.add))...)
						checkEvents(t, g, res, rec.all())
						if !errors.Is(err, kahn.ErrRunTimeout) || res.Cause.Kind != kahn.CauseRunTimeout {
							t.Errorf("%v: %v", res.Cause, err)
						}
						if took := time.Since(begin); took != max(again, time.Hour) {
							t.Errorf("it ended after %v", took)
						}
						var answered, cleaned bool
						for _, e := range rec.all() {
							answered = answered || e.Type == event.NodeSignalled
							cleaned = cleaned || e.Type == event.NodeCompleted && strings.HasSuffix(e.Path, "C")
						}
						if answered != (again < time.Hour) || !cleaned {
							t.Errorf("answered %t, cleaned up %t\n%s", answered, cleaned, eventText(rec.all()))
						}
					})
				}
			}
		}
	}

	inBubble(t, "what was due before comes first", func(t *testing.T) {
		g := graph(kahn.Node{ID: "early", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: 30 * time.Minute}},
			kahn.Node{ID: "late", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: 90 * time.Minute}})
		r := pause(t, g, nil, kahn.Timeout(time.Hour))
		time.Sleep(2 * time.Hour)
		r = r.resume(g, nil, nil, kahn.Timeout(time.Hour))
		r.expect("early:F late:X", "failed")
		r.cause("early", kahn.CauseGateTimeout)
		r.cause("late", kahn.CauseRunTimeout)
	})
	inBubble(t, "without the option, of older snapshots and in a new epoch", func(t *testing.T) {
		g := graph(gate("G"), after("A", "G"))
		signal := map[string]any{"G": 1}
		r := pause(t, g, nop, kahn.Timeout(time.Hour))
		time.Sleep(2 * time.Hour)
		r.resume(g, nop, signal).expect("G:ok A:ok", "completed")
		data, err := json.Marshal(r.Snapshot())
		require.NoError(t, err)
		var file map[string]any
		require.NoError(t, json.Unmarshal(data, &file))
		require.Contains(t, file, "deadline")
		delete(file, "deadline")
		data, err = json.Marshal(file)
		require.NoError(t, err)
		var old kahn.Snapshot
		require.NoError(t, json.Unmarshal(data, &old))
		begin := time.Now()
		res, err := kahn.Execute(t.Context(), g, takes(3*time.Hour), kahn.Timeout(time.Hour), kahn.Resume(&old), kahn.EarlySignals(signal))
		require.ErrorIs(t, err, kahn.ErrRunTimeout)
		require.Equal(t, time.Hour, time.Since(begin))
		begin = time.Now()
		_, err = kahn.Execute(t.Context(), g, takes(3*time.Hour), kahn.Timeout(time.Hour), kahn.Redrive(res.Snapshot(), nil))
		require.ErrorIs(t, err, kahn.ErrRunTimeout)
		require.Equal(t, time.Hour, time.Since(begin))
	})
	inBubble(t, "left while it is pending", func(t *testing.T) {
		g := graph(gate("G"), after("A", "G"))
		r := pause(t, g, nop, kahn.Timeout(time.Hour))
		rn := &kahn.Runner{MaxRuns: 1}
		other, err := rn.Start(t.Context(), graph(after("O")), takes(100*time.Hour))
		require.NoError(t, err)
		run, err := rn.Start(t.Context(), g, nop, kahn.Resume(reload(t, r.Snapshot())), kahn.Timeout(time.Hour))
		require.NoError(t, err)
		run.Leave()
		res, err := run.Wait()
		require.NoError(t, err)
		time.Sleep(2 * time.Hour)
		_, err = kahn.Execute(t.Context(), g, nop, kahn.Timeout(time.Hour), kahn.Resume(reload(t, res.Snapshot())), kahn.EarlySignals(map[string]any{"G": 1}))
		require.ErrorIs(t, err, kahn.ErrRunTimeout)
		other.Cancel()
		_, _ = other.Wait()
	})
}
