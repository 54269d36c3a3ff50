package otelkahn_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	otelkahn "github.com/seed-c794f7ef/kahn/otel"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"
)

// bench is a Telemetry that records its spans and metrics.
type bench struct {
	*otelkahn.Telemetry
	t        *testing.T
	spans    *tracetest.SpanRecorder
	provider *trace.TracerProvider
	metrics  *metric.ManualReader
}

func newBench(t *testing.T, o otelkahn.Options) *bench {
	t.Helper()
	b := &bench{t: t, spans: tracetest.NewSpanRecorder(), metrics: metric.NewManualReader()}
	b.provider = trace.NewTracerProvider(trace.WithSpanProcessor(b.spans))
	o.TracerProvider, o.MeterProvider = b.provider, metric.NewMeterProvider(metric.WithReader(b.metrics))
	var err error
	b.Telemetry, err = otelkahn.New(o)
	require.NoError(t, err)
	return b
}

// run performs a graph. It returns the Result and the spans, which must all have ended.
func (b *bench) run(g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) (*kahn.Result, spans) {
	b.t.Helper()
	var events []kahn.Event
	opts = append(append(b.Options(), opts...), kahn.OnEvent(func(e kahn.Event) { events = append(events, e) }))
	res, err := kahn.Execute(b.t.Context(), g, step, opts...)
	require.NotNil(b.t, res, "%v", err)
	require.NoError(b.t, kahntest.CheckEvents(g, res, events))
	require.Len(b.t, b.spans.Started(), len(b.spans.Ended()), "a span has not ended")
	return res, b.ended()
}

// spans holds the spans of one run.
type spans struct {
	t     *testing.T
	run   trace.ReadOnlySpan
	nodes map[string]trace.ReadOnlySpan
	tries map[string][]trace.ReadOnlySpan // by path of the node
	undos map[string][]trace.ReadOnlySpan
}

func (b *bench) ended() spans {
	s := spans{b.t, nil, map[string]trace.ReadOnlySpan{}, map[string][]trace.ReadOnlySpan{}, map[string][]trace.ReadOnlySpan{}}
	byID := map[api.SpanID]trace.ReadOnlySpan{}
	for _, x := range b.spans.Ended() {
		byID[x.SpanContext().SpanID()] = x
	}
	for _, x := range b.spans.Ended() {
		switch path, isNode := attr(x, "kahn.node.path"); {
		case strings.HasPrefix(x.Name(), "compensate "):
			s.undos[path] = append(s.undos[path], x)
		case isNode:
			require.NotContains(b.t, s.nodes, path, "a second span of one node")
			s.nodes[path] = x
		case x.Name() == "attempt":
			path, _ := attr(byID[x.Parent().SpanID()], "kahn.node.path")
			s.tries[path] = append(s.tries[path], x)
		case strings.HasPrefix(x.Name(), "run "):
			s.run = x
		}
	}
	require.NotNil(b.t, s.run)
	return s
}

func attr(x trace.ReadOnlySpan, key attribute.Key) (string, bool) {
	for _, a := range x.Attributes() {
		if a.Key == key {
			return a.Value.String(), true
		}
	}
	return "", false
}

func (s spans) attr(path string, key attribute.Key) string {
	s.t.Helper()
	require.Contains(s.t, s.nodes, path)
	value, _ := attr(s.nodes[path], key)
	return value
}

func (s spans) parent(path string) api.SpanID { return s.nodes[path].Parent().SpanID() }

var errStep = errors.New("no such table")

// An attempt to undo a node has a span with the same parent as the node's span, and a link to it. The metrics of attempts do not count this
// attempt.
func TestSpansOfCompensations(t *testing.T) {
	t.Parallel()
	b := newBench(t, otelkahn.Options{})
	undo := func(_ context.Context, s *kahn.Step) error {
		if s.ID() == "pay" && s.Attempt() == 1 {
			return errStep
		}
		return nil
	}
	do := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	sub := new(kahn.Graph).Add(kahn.Node{ID: "pay", Kind: "bank", Do: do, Compensate: undo, CompensateRetry: kahn.Retry{InitialDelay: -1}})
	g := (&kahn.Graph{Name: "order"}).Add(
		kahn.Node{ID: "book", Kind: "shop", Do: do, CompensateBy: &kahn.CompensateBy{Kind: "unbook"}},
		kahn.Node{ID: "S", Sub: sub, After: []string{"book"}},
		kahn.Node{ID: "ship", Kind: "shop", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.NoEffect(errStep) }, After: []string{"S"}},
	)
	_, s := b.run(g, do)
	require.Len(t, s.tries, 3)
	require.Len(t, s.undos["S/pay"], 2)
	require.Len(t, s.undos["book"], 1)
	first, second := s.undos["S/pay"][0], s.undos["S/pay"][1]
	require.Equal(t, s.nodes["S"].SpanContext().SpanID(), first.Parent().SpanID())
	require.Equal(t, s.run.SpanContext().SpanID(), s.undos["book"][0].Parent().SpanID())
	require.Equal(t, s.nodes["S/pay"].SpanContext().SpanID(), first.Links()[0].SpanContext.SpanID())
	require.Equal(t, "compensate pay", first.Name())
	require.Equal(t, codes.Error, first.Status().Code)
	require.Equal(t, codes.Unset, second.Status().Code)
	for span, want := range map[trace.ReadOnlySpan][4]string{first: {"1", "step_error", "true", "bank"}, second: {"2", "ok", "true", "bank"}, s.undos["book"][0]: {"1", "ok", "true", "unbook"}} {
		for i, key := range []attribute.Key{"kahn.attempt", "kahn.outcome", "kahn.certain", "kahn.node.kind"} {
			got, _ := attr(span, key)
			require.Equal(t, want[i], got, "%s of %s", key, span.Name())
		}
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, b.metrics.Collect(t.Context(), &all))
	counts := map[string]uint64{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if h, is := m.Data.(metricdata.Histogram[float64]); is {
			for _, p := range h.DataPoints {
				counts[m.Name] += p.Count
			}
		}
	}
	require.Equal(t, uint64(3), counts["kahn.compensation.duration"])
	require.Equal(t, uint64(3), counts["kahn.attempt.duration"])
}

// TestSpansOfUsage: the spans of nodes and of the run contain the usage of all attempts.
func TestSpansOfUsage(t *testing.T) {
	t.Parallel()
	b := newBench(t, otelkahn.Options{})
	g := (&kahn.Graph{Name: "chat"}).Add(kahn.Node{ID: "ask", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: -1}}, kahn.Node{ID: "sum", After: []string{"ask"}})
	_, s := b.run(g, func(_ context.Context, s *kahn.Step) (any, error) {
		s.Tokens(1000, 200)
		s.Use("cents", 0.25)
		if s.ID() == "ask" && s.Attempt() == 1 {
			return nil, errStep
		}
		return nil, nil
	})
	for path, want := range map[string][3]string{"ask": {"2000", "400", "0.5"}, "sum": {"1000", "200", "0.25"}} {
		for i, name := range []string{"input_tokens", "output_tokens", "cents"} {
			require.Equal(t, want[i], s.attr(path, attribute.Key("kahn.usage."+name)), "%s of %s", name, path)
		}
	}
	all, _ := attr(s.run, "kahn.usage.input_tokens")
	require.Equal(t, "3000", all)
}

func TestSpansOfARun(t *testing.T) {
	t.Parallel()
	b := newBench(t, otelkahn.Options{})
	client := b.provider.Tracer("client")
	g := (&kahn.Graph{Name: "report"}).Add(
		kahn.Node{ID: "fetch", Kind: "http", Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: time.Nanosecond}},
		kahn.Node{ID: "load", Kind: "sql"},
		kahn.Node{ID: "join", Kind: "sql", Label: "join the tables", After: []string{"fetch", "load"}},
		kahn.Node{ID: "bad", After: []string{"load"}},
		kahn.Node{ID: "victim", After: []string{"bad"}},
		kahn.Node{ID: "off", Disabled: true},
	)
	ctx, caller := b.provider.Tracer("caller").Start(t.Context(), "GET /report")
	res, err := kahn.Execute(ctx, g, func(ctx context.Context, s *kahn.Step) (any, error) {
		_, span := client.Start(ctx, "call of "+s.ID())
		defer span.End()
		switch {
		case s.ID() == "bad", s.ID() == "fetch" && s.Attempt() < 3:
			return nil, errStep
		}
		return nil, nil
	}, b.Options()...)
	require.ErrorIs(t, err, errStep)
	caller.End()

	s := b.ended()
	require.Equal(t, "run report", s.run.Name())
	require.Equal(t, caller.SpanContext().SpanID(), s.run.Parent().SpanID())
	require.Equal(t, codes.Error, s.run.Status().Code)
	require.Equal(t, "failed: bad", s.run.Status().Description)
	id, _ := attr(s.run, "kahn.run.id")
	require.Equal(t, res.ID(), id)
	for path, status := range map[string]string{"fetch": "completed", "load": "completed", "join": "completed", "bad": "failed", "victim": "aborted", "off": "skipped"} {
		require.Equal(t, status, s.attr(path, "kahn.status"), path)
		require.Equal(t, s.run.SpanContext().SpanID(), s.parent(path), path)
	}
	require.Equal(t, "join the tables", s.attr("join", "kahn.node.label"))
	require.Equal(t, "upstream_failure", s.attr("victim", "kahn.cause"))
	require.Equal(t, `["bad"]`, s.attr("victim", "kahn.origins"))
	require.Equal(t, "annotation", s.attr("off", "kahn.skip.reason"))
	require.Equal(t, codes.Error, s.nodes["bad"].Status().Code)
	require.Equal(t, codes.Unset, s.nodes["victim"].Status().Code, "the failure is that of another node")

	var links []api.SpanID
	for _, l := range s.nodes["join"].Links() {
		links = append(links, l.SpanContext.SpanID())
	}
	require.Equal(t, []api.SpanID{s.nodes["fetch"].SpanContext().SpanID(), s.nodes["load"].SpanContext().SpanID()}, links)

	require.Len(t, s.tries["fetch"], 3)
	require.Len(t, s.nodes["fetch"].Events(), 2, "retries")
	require.Equal(t, "retry", s.nodes["fetch"].Events()[0].Name)
	for i, x := range s.tries["fetch"] {
		number, _ := attr(x, "kahn.attempt")
		outcome, _ := attr(x, "kahn.outcome")
		require.Equal(t, fmt.Sprint(i+1), number)
		require.Equal(t, []string{"step_error", "step_error", "ok"}[i], outcome)
	}
	var calls int
	for _, x := range b.spans.Ended() {
		if x.InstrumentationScope().Name == "client" {
			calls++
			found := false
			for _, try := range s.tries[strings.TrimPrefix(x.Name(), "call of ")] {
				found = found || try.SpanContext().SpanID() == x.Parent().SpanID()
			}
			require.True(t, found, "%s is not below an attempt", x.Name())
		}
	}
	require.Equal(t, 6, calls)
}

func TestSpansInsideOfComposites(t *testing.T) {
	t.Parallel()
	b := newBench(t, otelkahn.Options{})
	sub := (&kahn.Graph{}).Add(kahn.Node{ID: "a/b"}, kahn.Node{ID: "c", After: []string{"a/b"}})
	g := (&kahn.Graph{Name: "w"}).Add(
		kahn.Node{ID: "list", Do: func(context.Context, *kahn.Step) (any, error) { return []any{1, 2}, nil }},
		kahn.Node{ID: "each", Sub: sub, Map: &kahn.Map{Over: "items"}, In: []kahn.Edge{{From: "list", Param: "items"}}},
		kahn.Node{ID: "plain", Map: &kahn.Map{Over: "items"}, In: []kahn.Edge{{From: "list", Param: "items"}}},
		kahn.Node{ID: "sub", Sub: sub, After: []string{"each"}},
		kahn.Node{ID: "loop", Sub: sub, Loop: &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < 2, nil }, MaxIterations: 5}},
		kahn.Node{ID: "grown", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(sub, nil, nil) }},
	)
	res, s := b.run(g, func(context.Context, *kahn.Step) (any, error) { return nil, nil })
	require.Equal(t, kahn.RunCompleted, res.Status)
	for path, parent := range map[string]string{
		"each[0]": "each", "each[1]/a/b": "each[1]", "each[1]/c": "each[1]", "plain[1]": "plain", "sub/a/b": "sub", "sub/c": "sub",
		"loop#1/a/b": "loop", "loop#2/c": "loop", "grown/c": "grown",
	} {
		require.Contains(t, s.nodes, path)
		require.Equal(t, s.nodes[parent].SpanContext().SpanID(), s.parent(path), "%s is not below %s", path, parent)
	}
	require.Equal(t, "plain", s.nodes["plain[1]"].Name())
	require.Len(t, s.nodes["loop#2/c"].Links(), 1)
	require.Equal(t, s.nodes["loop#2/a/b"].SpanContext().SpanID(), s.nodes["loop#2/c"].Links()[0].SpanContext.SpanID())
}

// TestSpansOfACompositeThatIsAttemptedAgain: in each attempt of a composite the nodes inside have new spans.
func TestSpansOfACompositeThatIsAttemptedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, otelkahn.Options{})
	sub := (&kahn.Graph{}).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}})
	g := (&kahn.Graph{Name: "w"}).Add(kahn.Node{ID: "S", Sub: sub, Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: time.Nanosecond}})
	var calls int
	res, err := kahn.Execute(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "b" {
			if calls++; calls < 3 {
				return nil, errStep
			}
		}
		return nil, nil
	}, b.Options()...)
	require.NoError(t, err)
	require.Equal(t, kahn.RunCompleted, res.Status)
	require.Len(t, b.spans.Started(), len(b.spans.Ended()))
	statuses, parents, tries := map[string][]string{}, map[api.SpanID]bool{}, map[api.SpanID]int{}
	for _, x := range b.spans.Ended() {
		if path, is := attr(x, "kahn.node.path"); is {
			status, _ := attr(x, "kahn.status")
			statuses[path] = append(statuses[path], status)
			if path != "S" {
				parents[x.Parent().SpanID()] = true
			}
		} else if x.Name() == "attempt" {
			tries[x.Parent().SpanID()]++
		}
	}
	require.Equal(t, map[string][]string{"S": {"completed"}, "S/a": {"completed", "completed", "completed"}, "S/b": {"failed", "failed", "completed"}}, statuses)
	require.Len(t, parents, 1)
	require.Len(t, tries, 6, "an attempt is below the span of another one's node")
}

// TestSpansOfRandomRuns: every node has one span with the right parent, every attempt has a span below its node's span, and the times of children
// lie within their parents'.
func TestSpansOfRandomRuns(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := newBench(t, otelkahn.Options{})
		g := &kahn.Graph{Name: "random"}
		n := 1 + rng.IntN(25)
		for i := range n {
			node := kahn.Node{ID: fmt.Sprint("n", i), Retry: kahn.Retry{MaxAttempts: 1 + rng.IntN(3), InitialDelay: time.Nanosecond}, Disabled: rng.IntN(12) == 0}
			for range min(i, rng.IntN(4)) {
				if from := fmt.Sprint("n", rng.IntN(i)); len(node.After) == 0 || node.After[0] != from {
					node.After = append([]string{from}, node.After[:min(len(node.After), 1)]...)
				}
			}
			g.Add(node)
		}
		fails := map[string]int{}
		for i := range n {
			fails[fmt.Sprint("n", i)] = rng.IntN(4) * rng.IntN(2)
		}
		res, s := b.run(g, func(_ context.Context, st *kahn.Step) (any, error) {
			if st.Attempt() <= fails[st.ID()] {
				return nil, errStep
			}
			return nil, nil
		})
		require.Len(t, s.nodes, n, "seed %d", seed)
		for node := range res.Nodes() {
			require.Equal(t, node.Status.String(), s.attr(node.ID, "kahn.status"), "seed %d, node %s", seed, node.ID)
			require.Equal(t, s.run.SpanContext().SpanID(), s.parent(node.ID))
			require.Len(t, s.tries[node.ID], node.Attempts, "seed %d, node %s", seed, node.ID)
			x := s.nodes[node.ID]
			require.False(t, x.EndTime().Before(x.StartTime()), "seed %d, node %s", seed, node.ID)
			for _, try := range s.tries[node.ID] {
				require.False(t, try.StartTime().Before(x.StartTime()), "seed %d: an attempt of %s began before the node", seed, node.ID)
			}
			if node.Attempts > 0 {
				for _, from := range g.Edges() {
					if from.To == node.ID {
						linked := false
						for _, l := range x.Links() {
							linked = linked || l.SpanContext.SpanID() == s.nodes[from.From].SpanContext().SpanID()
						}
						require.Equal(t, s.attr(from.From, "kahn.status") == "completed", linked, "seed %d: the link of %s to %s", seed, node.ID, from.From)
					}
				}
			}
		}
	}
}

// TestLives: the span of a life links to the span of the previous life.
func TestLives(t *testing.T) {
	t.Parallel()
	b := newBench(t, otelkahn.Options{})
	g := (&kahn.Graph{Name: "approval"}).Add(kahn.Node{ID: "ask", Kind: kahn.KindGate}, kahn.Node{ID: "do", After: []string{"ask"}})
	step := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	res, first := b.run(g, step)
	require.Equal(t, kahn.RunSuspended, res.Status)
	require.Empty(t, first.run.Links())
	require.Equal(t, "suspended", first.attr("ask", "kahn.status"))

	res, err := kahn.Execute(t.Context(), g, step, append(b.Options(), kahn.Resume(res.Snapshot()), kahn.EarlySignals(map[string]any{"ask": kahn.Decision{Value: "yes", Actor: "ann"}}))...)
	require.NoError(t, err)
	require.Equal(t, kahn.RunCompleted, res.Status)
	var second trace.ReadOnlySpan
	for _, x := range b.spans.Ended() {
		if strings.HasPrefix(x.Name(), "run ") && x.SpanContext().SpanID() != first.run.SpanContext().SpanID() {
			second = x
		}
	}
	require.Len(t, second.Links(), 1)
	require.Equal(t, first.run.SpanContext().SpanID(), second.Links()[0].SpanContext.SpanID())
}

// TestAttemptsOfALaterLife: if a composite continues in a later life, attempts of the nodes inside it have spans there.
func TestAttemptsOfALaterLife(t *testing.T) {
	t.Parallel()
	b := newBench(t, otelkahn.Options{})
	step := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	sub := (&kahn.Graph{}).Add(kahn.Node{ID: "ask", Kind: kahn.KindGate}, kahn.Node{ID: "do", After: []string{"ask"}})
	g := (&kahn.Graph{Name: "approval"}).Add(kahn.Node{ID: "S", Sub: sub})
	res, _ := b.run(g, step)
	require.Equal(t, kahn.RunSuspended, res.Status)
	b.spans.Reset()
	_, err := kahn.Execute(t.Context(), g, step, append(b.Options(), kahn.Resume(res.Snapshot()), kahn.EarlySignals(map[string]any{"S/ask": "yes"}))...)
	require.NoError(t, err)
	s := b.ended()
	require.Len(t, s.tries["S/do"], 1)
	require.Equal(t, s.nodes["S"].SpanContext().SpanID(), s.parent("S/do"))
}

// TestHostileErrors: an error whose methods panic does not change the outcome.
func TestHostileErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t, otelkahn.Options{})
	g := (&kahn.Graph{Name: "w"}).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "c"})
	res, s := b.run(g, func(_ context.Context, st *kahn.Step) (any, error) {
		switch st.ID() {
		case "a":
			return nil, hostile{}
		case "b":
			panic("b")
		}
		return nil, errors.New(strings.Repeat("x", 1<<20) + "\nsecond line")
	})
	for id, cause := range map[string]kahn.CauseKind{"a": kahn.CauseStepError, "b": kahn.CausePanic, "c": kahn.CauseStepError} {
		node, _ := res.Node(id)
		require.Equal(t, cause, node.Cause.Kind, id)
		outcome, _ := attr(s.tries[id][0], "kahn.outcome")
		require.Equal(t, cause.String(), outcome, id)
	}
	require.Len(t, s.tries["c"][0].Status().Description, 1000)
}

type hostile struct{}

func (hostile) Error() string { panic("Error") }

// TestMetrics: the attributes of metrics include the workflow and the kind, and never the id of a run or a node.
func TestMetrics(t *testing.T) {
	t.Parallel()
	b := newBench(t, otelkahn.Options{OnlyStarted: true})
	g := (&kahn.Graph{Name: "w"}).Add(
		kahn.Node{ID: "a", Kind: "http", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Nanosecond}},
		kahn.Node{ID: "b", Kind: "sql", After: []string{"a"}}, kahn.Node{ID: "off", Kind: "sql", Disabled: true},
	)
	_, s := b.run(g, func(_ context.Context, st *kahn.Step) (any, error) {
		if st.ID() == "a" && st.Attempt() == 1 {
			return nil, errStep
		}
		return nil, nil
	})
	require.NotContains(t, s.nodes, "off")
	require.Equal(t, map[string]int64{
		"kahn.runs.active ": 0, "kahn.run.duration completed": 1,
		"kahn.attempts.active http": 0, "kahn.attempts.active sql": 0, "kahn.node.retries http": 1,
		"kahn.attempt.duration http ok": 1, "kahn.attempt.duration http step_error": 1, "kahn.attempt.duration sql ok": 1,
		"kahn.attempt.queue.duration http": 2, "kahn.attempt.queue.duration sql": 1,
		"kahn.node.duration http completed": 1, "kahn.node.duration sql completed": 1,
		"kahn.nodes.ended http completed": 1, "kahn.nodes.ended sql completed": 1, "kahn.nodes.ended sql skipped": 1,
	}, b.counts(t))
}

// counts returns the values of the metrics by name and attributes. For histograms it returns the counts.
func (b *bench) counts(t *testing.T) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, b.metrics.Collect(t.Context(), &all))
	got := map[string]int64{}
	note := func(name string, of attribute.Set, n int64) {
		var attrs []string
		for _, a := range of.ToSlice() {
			require.NotContains(t, []attribute.Key{"kahn.run.id", "kahn.node.path"}, a.Key)
			if a.Key != "kahn.workflow" {
				attrs = append(attrs, a.Value.String())
			}
		}
		got[name+" "+strings.Join(attrs, " ")] = n
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				note(m.Name, p.Attributes, p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				note(m.Name, p.Attributes, int64(p.Count))
			}
		}
	}
	return got
}

// A step that suspends is called again in the same attempt. This call does not count as a retry.
func TestRetriesOfSuspendedSteps(t *testing.T) {
	t.Parallel()
	b := newBench(t, otelkahn.Options{})
	g := (&kahn.Graph{Name: "w"}).Add(kahn.Node{ID: "a", Kind: "ask", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Nanosecond}})
	run, err := kahn.Start(t.Context(), g, func(_ context.Context, st *kahn.Step) (any, error) {
		switch _, resumed := st.Resumed(); {
		case st.Attempt() == 1:
			return nil, errStep
		case resumed:
			return nil, nil
		}
		return nil, kahn.Suspend("", nil, nil)
	}, b.Options()...)
	require.NoError(t, err)
	_, err = run.WaitFor(t.Context(), "a", kahn.Suspended)
	require.NoError(t, err)
	require.NoError(t, run.Signal(context.Background(), "a", true))
	_, err = run.Wait()
	require.NoError(t, err)
	counts := b.counts(t)
	require.EqualValues(t, 1, counts["kahn.node.retries ask"])
	require.EqualValues(t, 3, counts["kahn.attempt.queue.duration ask"])
}

// TestStore: a measured store passes the same tests as the store itself.
func TestStore(t *testing.T) {
	t.Parallel()
	b := newBench(t, otelkahn.Options{})
	storetest.Run(t, func(*testing.T) store.Store { return b.Store(&store.Memory{}) })
	for _, s := range []store.Store{&store.Memory{}, struct{ store.Store }{&store.Memory{}}, struct{ store.EventStore }{&store.Memory{}}, struct{ store.Inbox }{&store.Memory{}}} {
		measured := b.Store(s)
		_, keeps := s.(store.EventStore)
		_, takes := s.(store.Inbox)
		_, measuredKeeps := measured.(store.EventStore)
		_, measuredTakes := measured.(store.Inbox)
		require.Equal(t, []bool{keeps, takes}, []bool{measuredKeeps, measuredTakes}, "%T: events, requests", s)
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, b.metrics.Collect(t.Context(), &all))
	calls := map[string]bool{}
	for _, p := range all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Histogram[float64]).DataPoints {
		operation, _ := p.Attributes.Value("kahn.store.operation")
		outcome, _ := p.Attributes.Value("kahn.outcome")
		calls[operation.String()+" "+outcome.String()] = true
	}
	for _, want := range []string{"acquire ok", "acquire leased", "renew ok", "release ok", "commit ok", "commit fenced", "load ok", "load unknown run"} {
		require.Contains(t, calls, want)
	}
}

// linked returns the paths of the nodes to whose spans a node's span links.
func (s spans) linked(path string) []string {
	s.t.Helper()
	require.Contains(s.t, s.nodes, path)
	list := []string{}
	for _, l := range s.nodes[path].Links() {
		to := "?"
		for other, x := range s.nodes {
			if x.SpanContext().SpanID() == l.SpanContext.SpanID() {
				to = other
			}
		}
		list = append(list, to)
	}
	return list
}

// TestLinksOfComposites: composites, gates and conditions, like steps, link to the performed nodes that they follow, also inside composites.
// Items of maps, and the first nodes inside a composite, have no links.
func TestLinksOfComposites(t *testing.T) {
	t.Parallel()
	b := newBench(t, otelkahn.Options{})
	inner := (&kahn.Graph{}).Add(kahn.Node{ID: "x"})
	sub := (&kahn.Graph{}).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "in", Sub: inner, After: []string{"a", "b"}})
	g := (&kahn.Graph{Name: "w"}).Add(
		kahn.Node{ID: "list", Do: func(context.Context, *kahn.Step) (any, error) { return []any{1}, nil }},
		kahn.Node{ID: "other"},
		kahn.Node{ID: "off", Disabled: true, SkipMode: kahn.SkipSatisfy},
		kahn.Node{ID: "sub", Sub: sub, After: []string{"list", "other", "off"}},
		kahn.Node{ID: "each", Sub: sub, Map: &kahn.Map{Over: "items"}, In: []kahn.Edge{{From: "list", Param: "items"}, {From: "list", Param: "again"}, {From: "sub"}}},
		kahn.Node{ID: "loop", Sub: sub, After: []string{"each"}, Loop: &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < 2, nil }, MaxIterations: 5}},
		kahn.Node{ID: "test", After: []string{"loop", "sub"}, Test: func(kahn.View) (any, error) { return true, nil }},
		kahn.Node{ID: "none", Sub: sub, Map: &kahn.Map{Over: "items"}, After: []string{"test"}, Params: map[string]any{"items": []any{}}},
		kahn.Node{ID: "last", After: []string{"none"}},
		kahn.Node{ID: "ask", Kind: kahn.KindGate, After: []string{"last", "test"}},
	)
	res, s := b.run(g, func(context.Context, *kahn.Step) (any, error) { return nil, nil })
	require.Equal(t, kahn.RunSuspended, res.Status)
	for path, want := range map[string][]string{
		"sub": {"list", "other"}, "sub/a": {}, "sub/in": {"sub/a", "sub/b"}, "sub/in/x": {}, "each": {"list", "sub"}, "each[0]": {}, "each[0]/in": {"each[0]/a", "each[0]/b"},
		"loop": {"each"}, "loop#2/in": {"loop#2/a", "loop#2/b"}, "test": {"loop", "sub"}, "none": {"test"}, "last": {"none"}, "ask": {"last", "test"}, "off": {},
	} {
		require.Equal(t, want, s.linked(path), path)
	}
}
