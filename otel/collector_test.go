package otelkahn_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	otelkahn "github.com/seed-c794f7ef/kahn/otel"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

var rewrite = flag.Bool("write", false, "write the golden files anew, to be read before they are committed")

// collector receives OTLP over HTTP and writes it as JSON. Like the receiver and the file exporter of the OpenTelemetry Collector, it uses the
// Collector's package pdata.
type collector struct {
	t       *testing.T
	mu      sync.Mutex // guards the fields below
	spans   ptrace.Traces
	metrics pmetric.Metrics
}

func newCollector(t *testing.T) (*collector, *httptest.Server) {
	t.Helper()
	c := &collector{t: t, spans: ptrace.NewTraces(), metrics: pmetric.NewMetrics()}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", c.receive(func(body []byte) ([]byte, error) {
		in := ptraceotlp.NewExportRequest()
		if err := in.UnmarshalProto(body); err != nil {
			return nil, err
		}
		in.Traces().ResourceSpans().MoveAndAppendTo(c.spans.ResourceSpans())
		return ptraceotlp.NewExportResponse().MarshalProto()
	}))
	mux.HandleFunc("POST /v1/metrics", c.receive(func(body []byte) ([]byte, error) {
		in := pmetricotlp.NewExportRequest()
		if err := in.UnmarshalProto(body); err != nil {
			return nil, err
		}
		in.Metrics().ResourceMetrics().MoveAndAppendTo(c.metrics.ResourceMetrics())
		return pmetricotlp.NewExportResponse().MarshalProto()
	}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return c, server
}

func (c *collector) receive(take func(body []byte) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		var answer []byte
		if err == nil {
			answer, err = take(body)
		}
		if err != nil {
			c.t.Error(err)
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(answer) // the client may have hung up
	}
}

// A collector receives the spans of nodes, attempts and lives, with links, events and statuses, and the metrics.
func TestCollector(t *testing.T) {
	t.Parallel()
	c, server := newCollector(t)
	spans, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(server.URL+"/v1/traces"))
	require.NoError(t, err)
	points, err := otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithEndpointURL(server.URL+"/v1/metrics"))
	require.NoError(t, err)
	of := resource.NewSchemaless(attribute.String("service.name", "shop"))
	tracers := trace.NewTracerProvider(trace.WithBatcher(spans), trace.WithResource(of))
	meters := metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(points, metric.WithInterval(time.Hour))), metric.WithResource(of))
	telemetry, err := otelkahn.New(otelkahn.Options{TracerProvider: tracers, MeterProvider: meters})
	require.NoError(t, err)

	sub := new(kahn.Graph).Add(kahn.Node{ID: "x", Kind: "sql"}, kahn.Node{ID: "y", Kind: "sql", After: []string{"x"}})
	report := (&kahn.Graph{Name: "report"}).Add(
		kahn.Node{ID: "fetch", Kind: "http", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Microsecond}},
		kahn.Node{ID: "load", Kind: "sql", Label: "load the table"},
		kahn.Node{ID: "sub", Sub: sub, After: []string{"fetch", "load"}},
		kahn.Node{ID: "each", Kind: "mail", Map: &kahn.Map{Over: "items"}, In: []kahn.Edge{{From: "load", Param: "items"}}},
		kahn.Node{ID: "bad", Kind: "http", After: []string{"load"}},
		kahn.Node{ID: "caught", In: []kahn.Edge{{From: "bad", On: kahn.OnFailure}}},
		kahn.Node{ID: "victim", After: []string{"bad"}},
		kahn.Node{ID: "off", Disabled: true},
	)
	approval := (&kahn.Graph{Name: "approval"}).Add(kahn.Node{ID: "ask", Kind: kahn.KindGate}, kahn.Node{ID: "do", Kind: "mail", After: []string{"ask"}})
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		switch {
		case s.ID() == "bad", s.ID() == "fetch" && s.Attempt() == 1:
			return nil, errStep
		case s.ID() == "load":
			return []any{"ann", "bob"}, nil
		}
		return nil, nil
	}
	var rec kahntest.Recorder
	options := append(telemetry.Options(), kahn.Limit(1))
	res, _ := kahn.Execute(t.Context(), report, step, append(options, kahn.RunID("run-1"), kahn.OnEvent(rec.Add))...)
	require.NoError(t, kahntest.CheckEvents(report, res, rec.Events()))
	res, err = kahn.Execute(t.Context(), approval, step, append(options, kahn.RunID("run-2"))...)
	require.NoError(t, err)
	_, err = kahn.Execute(t.Context(), approval, step, append(options, kahn.Resume(res.Snapshot()), kahn.EarlySignals(map[string]any{"ask": kahn.Decision{Value: "yes", Actor: "ann"}}))...)
	require.NoError(t, err)
	require.NoError(t, tracers.Shutdown(t.Context()))
	require.NoError(t, meters.Shutdown(t.Context()))

	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(c.spans)
	require.NoError(t, err)
	golden(t, "spans.jsonl", spanLines(t, text))
	text, err = (&pmetric.JSONMarshaler{}).MarshalMetrics(c.metrics)
	require.NoError(t, err)
	golden(t, "metrics.jsonl", metricLines(t, text))
}

// object is a JSON object.
type object = map[string]any

// each calls f with the objects in a list that is a member of an object.
func each(in object, member string, f func(object)) {
	list, _ := in[member].([]any)
	for _, item := range list {
		f(item.(object))
	}
}

func parse(t *testing.T, text []byte) (all object) {
	t.Helper()
	require.NoError(t, json.Unmarshal(text, &all))
	return all
}

// value returns an attribute as text, or "".
func value(of object, key string) (text string) {
	each(of, "attributes", func(a object) {
		if a["key"] == key {
			for _, v := range a["value"].(object) {
				text = fmt.Sprint(v)
			}
		}
	})
	return text
}

// spanLines returns the spans in a file, one per line, without times and with numbers instead of ids. Their order does not depend on times.
func spanLines(t *testing.T, text []byte) string {
	t.Helper()
	var spans []object
	var lines []string
	each(parse(t, text), "resourceSpans", func(r object) {
		each(r, "scopeSpans", func(s object) {
			each(s, "spans", func(x object) { spans = append(spans, x) })
			delete(s, "spans")
		})
		lines = append(lines, line(t, r))
	})
	lines = slices.Compact(lines)
	byID := map[any]object{}
	for _, x := range spans {
		byID[x["spanId"]] = x
	}
	key := func(x object) string { // sorts by run, life, node and attempt
		of, run := x, x
		for parent := byID[x["parentSpanId"]]; parent != nil; parent = byID[parent["parentSpanId"]] {
			if of == nil || value(of, "kahn.node.path") == "" {
				of = parent
			}
			run = parent
		}
		life := 0
		each(run, "links", func(object) { life++ })
		return fmt.Sprint(value(run, "kahn.run.id"), life, " ", value(of, "kahn.node.path"), " ", value(x, "kahn.attempt"))
	}
	slices.SortFunc(spans, func(a, b object) int { return cmp.Compare(key(a), key(b)) })
	ids := map[any]string{"": ""}
	for i, x := range spans {
		ids[x["spanId"]] = fmt.Sprint("span ", i+1)
		if ids[x["traceId"]] == "" {
			ids[x["traceId"]] = fmt.Sprint("trace ", len(ids)-i-1)
		}
	}
	var rename func(x object)
	rename = func(x object) {
		for _, field := range []string{"traceId", "spanId", "parentSpanId"} {
			if id, is := x[field]; is {
				require.Contains(t, ids, id, "%s of a span that is not there", field)
				x[field] = ids[id]
			}
		}
		for _, field := range []string{"startTimeUnixNano", "endTimeUnixNano", "timeUnixNano"} {
			if at, is := x[field]; is {
				require.Len(t, at, 19, field)
				delete(x, field)
			}
		}
		each(x, "links", rename)
		each(x, "events", rename)
		each(x, "attributes", func(a object) {
			if a["key"] == "kahn.plan.hash" || a["key"] == "kahn.backoff" {
				a["value"] = object{}
			}
		})
		list, _ := x["attributes"].([]any)
		slices.SortFunc(list, func(a, b any) int { return cmp.Compare(a.(object)["key"].(string), b.(object)["key"].(string)) })
	}
	for _, x := range spans {
		require.LessOrEqual(t, x["startTimeUnixNano"].(string), x["endTimeUnixNano"].(string))
		rename(x)
		lines = append(lines, line(t, x))
	}
	return strings.Join(lines, "")
}

// metricLines returns the metrics in a file, one per line, without times and durations.
func metricLines(t *testing.T, text []byte) string {
	t.Helper()
	var lines []string
	each(parse(t, text), "resourceMetrics", func(r object) {
		each(r, "scopeMetrics", func(s object) {
			each(s, "metrics", func(m object) {
				for _, kind := range []string{"sum", "histogram"} {
					data, _ := m[kind].(object)
					each(data, "dataPoints", func(p object) {
						if counts, is := p["bucketCounts"].([]any); is {
							require.Len(t, counts, len(p["explicitBounds"].([]any))+1)
						}
						for _, field := range []string{"startTimeUnixNano", "timeUnixNano", "min", "max", "sum", "bucketCounts", "explicitBounds", "exemplars"} {
							delete(p, field)
						}
						slices.SortFunc(p["attributes"].([]any), func(a, b any) int { return cmp.Compare(a.(object)["key"].(string), b.(object)["key"].(string)) })
					})
					list, _ := data["dataPoints"].([]any)
					slices.SortFunc(list, func(a, b any) int { return cmp.Compare(line(t, a.(object)), line(t, b.(object))) })
				}
				lines = append(lines, line(t, m))
			})
		})
	})
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func line(t *testing.T, v object) string {
	t.Helper()
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	require.NoError(t, encoder.Encode(v))
	return b.String()
}

// golden compares a text with a file.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := "testdata/" + name
	if *rewrite {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "go test -run %s -write writes %s anew", t.Name(), path)
}
