package inspector_test

import (
	"errors"
	"net/http"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/inspector"
)

// A service mounts the page beside its own handlers. Without Authorize only clients on the same machine can reach it.
func Example() {
	rn := &kahn.Runner{MaxRuns: 8}
	mux := http.NewServeMux()
	mux.Handle("/debug/kahn/", inspector.Handler(inspector.Options{Runner: rn}))
}

// Operators may look and answer gates, nobody may start runs, and cards are never shown.
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
