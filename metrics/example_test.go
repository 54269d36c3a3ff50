package metrics_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/metrics"
)

func Example() {
	var m metrics.Metrics
	runner := kahn.Runner{Options: m.Options()}
	g := &kahn.Graph{Name: "nightly"}
	g.Add(kahn.Node{ID: "fetch", Kind: "http"}, kahn.Node{ID: "store", Kind: "sql", After: []string{"fetch"}})
	_, err := runner.Execute(context.Background(), g, func(context.Context, *kahn.Step) (any, error) { return nil, nil })
	fmt.Println(err)

	w := httptest.NewRecorder() // in a service: http.Handle("/metrics", &m)
	m.ServeHTTP(w, nil)
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "kahn_nodes_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// <nil>
	// kahn_nodes_total{workflow="nightly",kind="http",status="completed"} 1
	// kahn_nodes_total{workflow="nightly",kind="sql",status="completed"} 1
}
