package metrics_test

import (
	"context"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/metrics"
)

// scrape returns the metrics as Prometheus gets them, without buckets and comments.
func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, nil)
	require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", w.Header().Get("Content-Type"))
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "_bucket{") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// order returns a graph with a step that is retried after a second, a step that waits for the slot, a skipped node, a map, and a gate.
func order() *kahn.Graph {
	return (&kahn.Graph{Name: `or"der`}).Add(
		kahn.Node{ID: "charge", Kind: "bank", Priority: 1, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Second, Jitter: kahn.JitterNone}},
		kahn.Node{ID: "pack", Kind: "hand"},
		kahn.Node{ID: "gift", Kind: "hand", Disabled: true},
		kahn.Node{ID: "tell", Kind: "mail", Map: &kahn.Map{Over: "to"}, Params: map[string]any{"to": []string{"a", "b"}}, After: []string{"charge"}},
		kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"tell", "pack"}},
		kahn.Node{ID: "lose", Kind: "hand", After: []string{"approve"}},
	)
}

// step takes two seconds. The first attempt of charge fails, and so does lose.
func step(_ context.Context, s *kahn.Step) (any, error) {
	time.Sleep(2 * time.Second)
	if s.ID() == "charge" && s.Attempt() == 1 || s.ID() == "lose" {
		return nil, errors.New("no luck")
	}
	return nil, nil
}

// Compensations are timed by outcome, and count in no other metric.
func TestMetricsOfCompensations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m metrics.Metrics
		undo := func(_ context.Context, s *kahn.Step) error {
			time.Sleep(2 * time.Second)
			if s.ID() == "pack" || s.Attempt() == 1 {
				return errors.New("no luck")
			}
			return nil
		}
		g := (&kahn.Graph{Name: "order"}).Add(
			kahn.Node{ID: "hold", Kind: "bank", Compensate: undo, CompensateRetry: kahn.Retry{InitialDelay: time.Second, Jitter: kahn.JitterNone}},
			kahn.Node{ID: "pack", Kind: "hand", Compensate: undo, CompensateRetry: kahn.Retry{MaxAttempts: 1}},
			kahn.Node{ID: "lose", Kind: "hand", After: []string{"hold", "pack"}},
		)
		_, err := kahn.Execute(context.Background(), g, step, m.Options()...)
		require.ErrorIs(t, err, kahn.ErrCompensation)
		require.Equal(t, `kahn_runs_active{workflow="order"} 0
kahn_run_duration_seconds_sum{workflow="order",status="failed"} 9
kahn_run_duration_seconds_count{workflow="order",status="failed"} 1
kahn_attempts_active{workflow="order",kind="bank"} 0
kahn_attempts_active{workflow="order",kind="hand"} 0
kahn_attempt_queue_seconds_sum{workflow="order",kind="bank"} 0
kahn_attempt_queue_seconds_count{workflow="order",kind="bank"} 1
kahn_attempt_queue_seconds_sum{workflow="order",kind="hand"} 0
kahn_attempt_queue_seconds_count{workflow="order",kind="hand"} 2
kahn_attempt_duration_seconds_sum{workflow="order",kind="bank",outcome="ok"} 2
kahn_attempt_duration_seconds_count{workflow="order",kind="bank",outcome="ok"} 1
kahn_attempt_duration_seconds_sum{workflow="order",kind="hand",outcome="ok"} 2
kahn_attempt_duration_seconds_count{workflow="order",kind="hand",outcome="ok"} 1
kahn_attempt_duration_seconds_sum{workflow="order",kind="hand",outcome="step_error"} 2
kahn_attempt_duration_seconds_count{workflow="order",kind="hand",outcome="step_error"} 1
kahn_nodes_total{workflow="order",kind="bank",status="completed"} 1
kahn_nodes_total{workflow="order",kind="hand",status="completed"} 1
kahn_nodes_total{workflow="order",kind="hand",status="failed"} 1
kahn_compensation_duration_seconds_sum{workflow="order",kind="bank",status="done"} 5
kahn_compensation_duration_seconds_count{workflow="order",kind="bank",status="done"} 1
kahn_compensation_duration_seconds_sum{workflow="order",kind="hand",status="failed"} 2
kahn_compensation_duration_seconds_count{workflow="order",kind="hand",status="failed"} 1
`, scrape(t, &m))
	})
}

// With one slot, steps of two seconds and a retry after one second, all times are known.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m metrics.Metrics
		var events []event.Event
		g := order()
		opts := append(m.Options(), kahn.Limit(1), kahn.OnEvent(func(e kahn.Event) { events = append(events, e) }))
		run, err := kahn.Start(context.Background(), g, step, opts...)
		require.NoError(t, err)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, `kahn_runs_active{workflow="or\"der"} 1
kahn_attempts_active{workflow="or\"der",kind="bank"} 1
kahn_attempt_queue_seconds_sum{workflow="or\"der",kind="bank"} 0
kahn_attempt_queue_seconds_count{workflow="or\"der",kind="bank"} 1
kahn_nodes_total{workflow="or\"der",kind="hand",status="skipped"} 1
`, scrape(t, &m))
		time.Sleep(29 * time.Second) // charge 0-2, pack 2-4, charge 4-6, tell 6-10
		require.NoError(t, run.Signal(context.Background(), "approve", "yes"))
		res, _ := run.Wait()
		require.NoError(t, kahntest.CheckEvents(g, res, events))
		require.Equal(t, kahn.RunFailed, res.Status)
		w := `workflow="or\"der"`
		for _, line := range []string{
			`kahn_runs_active{` + w + `} 0`, `kahn_run_duration_seconds_sum{` + w + `,status="failed"} 32`, `kahn_run_duration_seconds_count{` + w + `,status="failed"} 1`,
			`kahn_attempts_active{` + w + `,kind="bank"} 0`, `kahn_attempts_active{` + w + `,kind="hand"} 0`,
			`kahn_attempt_queue_seconds_sum{` + w + `,kind="hand"} 2`,
			`kahn_attempt_duration_seconds_count{` + w + `,kind="bank",outcome="ok"} 1`, `kahn_attempt_duration_seconds_sum{` + w + `,kind="bank",outcome="step_error"} 2`,
			`kahn_attempt_duration_seconds_sum{` + w + `,kind="hand",outcome="ok"} 2`, `kahn_attempt_duration_seconds_sum{` + w + `,kind="hand",outcome="step_error"} 2`,
			`kahn_nodes_total{` + w + `,kind="bank",status="completed"} 1`, `kahn_nodes_total{` + w + `,kind="hand",status="failed"} 1`,
			`kahn_nodes_total{` + w + `,kind="gate",status="completed"} 1`, `kahn_nodes_total{` + w + `,kind="mail",status="completed"} 3`,
			`kahn_node_retries_total{` + w + `,kind="bank"} 1`,
		} {
			require.Equal(t, 1, strings.Count("\n"+scrape(t, &m), "\n"+line+"\n"), "%s in\n%s", line, scrape(t, &m))
		}

		var object map[string]any
		require.NoError(t, json.Unmarshal([]byte(expvar.Var(&m).String()), &object))
		require.Equal(t, 3.0, object[`kahn_nodes_total{`+w+`,kind="mail",status="completed"}`])
		require.Equal(t, map[string]any{"count": 1.0, "sum": 32.0}, object[`kahn_run_duration_seconds{`+w+`,status="failed"}`])
	})
}

// TestMetricsOfUsage: the usage of steps counts once, by workflow, kind and name. This includes failed attempts and composites.
func TestMetricsOfUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m metrics.Metrics
		g := (&kahn.Graph{Name: "chat"}).Add(
			kahn.Node{ID: "ask", Kind: "model", Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: time.Second}},
			kahn.Node{ID: "each", Kind: "model", Map: &kahn.Map{Over: "to"}, Params: map[string]any{"to": []string{"a", "b"}}, After: []string{"ask"}},
			kahn.Node{ID: "lose", Kind: "hand", After: []string{"each"}},
		)
		_, err := kahn.Execute(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
			s.Tokens(1000, 200)
			s.Use("US\"cents", 0.25)
			if s.ID() == "ask" && s.Attempt() < 3 || s.ID() == "lose" {
				return nil, errors.New("no luck")
			}
			return nil, nil
		}, m.Options()...)
		require.Error(t, err)
		text := scrape(t, &m)
		for _, line := range []string{
			`kind="model",name="input_tokens"} 5000`, `kind="model",name="output_tokens"} 1000`, `kind="model",name="US\"cents"} 1.25`,
			`kind="hand",name="input_tokens"} 1000`, `kind="hand",name="output_tokens"} 200`, `kind="hand",name="US\"cents"} 0.25`,
		} {
			require.Contains(t, text, `kahn_usage_total{workflow="chat",`+line+"\n")
		}
		require.Equal(t, 6, strings.Count(text, "kahn_usage_total{"))
		var object map[string]any
		require.NoError(t, json.Unmarshal([]byte(m.String()), &object))
		require.Equal(t, 1.25, object[`kahn_usage_total{workflow="chat",kind="model",name="US\"cents"}`])
	})
}

// The buckets of a histogram are cumulative, and each metric has its comments once.
func TestBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m metrics.Metrics
		for _, d := range []time.Duration{time.Millisecond, 2 * time.Millisecond, 3 * time.Hour} {
			_, err := kahn.Execute(t.Context(), new(kahn.Graph).Add(kahn.Node{ID: "a"}), func(context.Context, *kahn.Step) (any, error) {
				time.Sleep(d)
				return nil, nil
			}, m.Options()...)
			require.NoError(t, err)
		}
		w := httptest.NewRecorder()
		m.ServeHTTP(w, nil)
		text := w.Body.String()
		require.Equal(t, 1, strings.Count(text, "# TYPE kahn_run_duration_seconds histogram\n"))
		for _, line := range []string{`le="0.001"} 1`, `le="0.005"} 2`, `le="7200"} 2`, `le="+Inf"} 3`} {
			require.Contains(t, text, `kahn_run_duration_seconds_bucket{workflow="",status="completed",`+line+"\n")
		}
	})
}

// A step that suspends is called again in the same attempt. This call does not count as a retry.
func TestRetriesOfSuspendedSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m metrics.Metrics
		var events []event.Event
		g := (&kahn.Graph{Name: "g"}).Add(kahn.Node{ID: "a", Kind: "k", Retry: kahn.Retry{MaxAttempts: 2}})
		answers := 0
		run, err := kahn.Start(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
			switch _, resumed := s.Resumed(); {
			case s.Attempt() == 1:
				return nil, errors.New("no luck")
			case resumed && answers == 2:
				return "done", nil
			}
			return nil, kahn.Suspend("", nil, nil)
		}, append(m.Options(), kahn.OnEvent(func(e event.Event) { events = append(events, e) }))...)
		require.NoError(t, err)
		for range 2 {
			_, err := run.WaitFor(t.Context(), "a", kahn.Suspended)
			require.NoError(t, err)
			answers++
			require.NoError(t, run.Signal(context.Background(), "a", answers))
		}
		res, err := run.Wait()
		require.NoError(t, err)
		require.NoError(t, kahntest.CheckEvents(g, res, events))
		require.Contains(t, scrape(t, &m), `kahn_node_retries_total{workflow="g",kind="k"} 1`+"\n")
		require.Contains(t, scrape(t, &m), `kahn_attempt_duration_seconds_count{workflow="g",kind="k",outcome="suspended"} 2`+"\n")
	})
}

// Two Runners may perform two runs with the same id at the same time. They count as two runs.
func TestRunsOfOneID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m metrics.Metrics
		opts := append(m.Options(), kahn.RunID("r"))
		var runs []*kahn.Run
		for i, name := range []string{"one", "two"} {
			g := (&kahn.Graph{Name: name}).Add(kahn.Node{ID: "a", Kind: name})
			run, err := kahn.Start(t.Context(), g, func(context.Context, *kahn.Step) (any, error) {
				time.Sleep(time.Duration(2-i) * time.Minute)
				return nil, nil
			}, opts...)
			require.NoError(t, err)
			runs = append(runs, run)
			time.Sleep(time.Second)
		}
		for _, run := range runs {
			_, err := run.Wait()
			require.NoError(t, err)
		}
		text := scrape(t, &m)
		for i, name := range []string{"one", "two"} {
			for _, line := range []string{
				`kahn_runs_active{workflow="%s"} 0`, `kahn_attempts_active{workflow="%s",kind="%[1]s"} 0`,
				`kahn_nodes_total{workflow="%s",kind="%[1]s",status="completed"} 1`,
				`kahn_attempt_duration_seconds_sum{workflow="%s",kind="%[1]s",outcome="ok"} ` + fmt.Sprint(60*(2-i)),
			} {
				require.Contains(t, "\n"+text, "\n"+fmt.Sprintf(line, name)+"\n")
			}
		}
	})
}

// Runs that are suspended, left, cancelled or abandoned do not count as active afterwards. Runs may be scraped at any time.
func TestNothingStaysActive(t *testing.T) {
	var m metrics.Metrics
	runner := kahn.Runner{Options: append(m.Options(), kahn.CancelGrace(time.Millisecond))}
	deaf := make(chan struct{})
	var all sync.WaitGroup
	for i := range 20 {
		g := &kahn.Graph{Name: "g"}
		g.Add(kahn.Node{ID: "a", Kind: "k"}, kahn.Node{ID: "ask", Kind: kahn.KindGate, After: []string{"a"}}, kahn.Node{ID: "b", Kind: "k", After: []string{"a"}})
		run, err := runner.Start(context.Background(), g, func(_ context.Context, s *kahn.Step) (any, error) {
			if i%4 == 3 && s.ID() == "b" {
				<-deaf
			}
			return nil, nil
		})
		require.NoError(t, err)
		all.Go(func() {
			_, _ = run.WaitFor(context.Background(), "ask", kahn.Suspended)
			switch i % 4 {
			case 0:
				run.Leave()
			case 1:
				_ = run.Signal(context.Background(), "ask", true)
			default:
				run.Cancel()
			}
			_, _ = run.Wait()
			_ = m.String()
		})
	}
	all.Wait()
	close(deaf)
	text := scrape(t, &m)
	for line := range strings.Lines(text) {
		require.False(t, strings.Contains(line, "_active{") && !strings.HasSuffix(line, " 0\n"), line)
	}
	total := 0
	for _, status := range []string{"suspended", "completed", "cancelled"} {
		_, rest, _ := strings.Cut(text, `kahn_run_duration_seconds_count{workflow="g",status="`+status+`"} `)
		n := 0
		_, _ = fmt.Sscan(rest, &n)
		require.GreaterOrEqual(t, n, 5, status)
		total += n
	}
	require.Equal(t, 20, total)
}
