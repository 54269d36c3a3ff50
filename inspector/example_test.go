package inspector_test

import (
	"context"
	"errors"
	"net/http"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/inspector"
	"github.com/seed-c794f7ef/kahn/store"
)

// A service mounts the page beside its own handlers. Without Authorize and Token, the page asks for a token, which the handler writes to the
// service's log.
func Example() {
	rn := &kahn.Runner{MaxRuns: 8}
	mux := http.NewServeMux()
	mux.Handle("/debug/kahn/", inspector.Handler(inspector.Options{Runner: rn}))
}

// Without a Runner, the page shows the runs of a store: runs of other processes, and runs that have ended.
func Example_store() {
	db := &store.Memory{} // or a store of store/sqlite or store/postgres
	mux := http.NewServeMux()
	mux.Handle("/debug/kahn/", inspector.Handler(inspector.Options{Store: db}))
}

// With the plan of a stored run, the page shows the run as a graph. With a function that performs the run, operators can also answer the run's
// gates and redrive the run.
func ExampleWorkflow() {
	graph := &kahn.Graph{Name: "orders"}
	graph.Add(kahn.Node{ID: "approve", Kind: kahn.KindGate})
	plan, err := graph.Compile()
	if err != nil {
		panic(err)
	}
	rn, db := &kahn.Runner{}, &store.Memory{}
	mux := http.NewServeMux()
	mux.Handle("/debug/kahn/", inspector.Handler(inspector.Options{
		Runner: rn,
		Store:  db,
		Workflows: []inspector.Workflow{{Plan: plan, Perform: func(ctx context.Context, opts ...kahn.Option) (*kahn.Run, error) {
			return rn.Start(ctx, graph, nil, opts...)
		}}},
	}))
}

// Operators may view runs and answer gates. No client may start runs, and card numbers are never shown.
func Example_options() {
	rn := &kahn.Runner{}
	user := func(r *http.Request) string { name, _, _ := r.BasicAuth(); return name }
	mux := http.NewServeMux()
	mux.Handle("/ops/", inspector.Handler(inspector.Options{
		Runner: rn,
		Hosts:  []string{"ops.example.com"},
		Actor:  user,
		Authorize: func(r *http.Request, a inspector.Action) error {
			if user(r) == "" || a == inspector.Start {
				return errors.New("not allowed")
			}
			return nil
		},
		Redact: func(_ *http.Request, v inspector.Value) any {
			if v.Kind == inspector.Input && v.Name == "card" {
				return "hidden"
			}
			return v.Value
		},
	}))
}
