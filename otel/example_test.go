package otelkahn_test

import (
	"context"
	"fmt"
	"net/http"
	"sort"

	"github.com/seed-c794f7ef/kahn"
	otelkahn "github.com/seed-c794f7ef/kahn/otel"
	"github.com/seed-c794f7ef/kahn/store"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// All runs of a Runner are traced and measured.
func ExampleNew() {
	recorder := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
	telemetry, err := otelkahn.New(otelkahn.Options{TracerProvider: provider}) // the global providers by default
	if err != nil {
		panic(err)
	}
	runner := kahn.Runner{Options: telemetry.Options()}

	g := (&kahn.Graph{Name: "report"}).Add(kahn.Node{ID: "fetch", Kind: "http"}, kahn.Node{ID: "store", Kind: "sql", After: []string{"fetch"}})
	run, err := runner.Start(context.Background(), g, func(ctx context.Context, s *kahn.Step) (any, error) {
		request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://example.com", nil)
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(request.Header)) // the server continues the trace
		return nil, nil
	})
	if err != nil {
		panic(err)
	}
	if _, err := run.Wait(); err != nil {
		panic(err)
	}
	var names []string
	for _, span := range recorder.Ended() {
		names = append(names, span.Name())
	}
	sort.Strings(names)
	fmt.Println(names)
	// Output: [attempt attempt fetch run report store]
}

// The calls of a store are measured, too.
func ExampleTelemetry_Store() {
	telemetry, err := otelkahn.New(otelkahn.Options{})
	if err != nil {
		panic(err)
	}
	db := &store.Memory{}
	runner := kahn.Runner{Options: append(telemetry.Options(), kahn.Durable(telemetry.Store(db)))}
	run, err := runner.Start(context.Background(), (&kahn.Graph{}).Add(kahn.Node{ID: "only"}), func(context.Context, *kahn.Step) (any, error) { return nil, nil })
	if err != nil {
		panic(err)
	}
	res, err := run.Wait()
	fmt.Println(res.Status, err)
	// Output: completed <nil>
}
