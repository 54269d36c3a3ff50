package kahn_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// A run that has failed in its store is redriven there, by any process that knows its id. Steps that had completed are not called
// again.
func ExampleRedrive_store() {
	var s store.Memory // a program has one that survives, such as store/sqlite
	reachable := false
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "ship" && !reachable {
			return nil, errors.New("the carrier is out of reach")
		}
		fmt.Println(s.ID())
		return nil, nil
	}
	g := new(kahn.Graph).Add(kahn.Node{ID: "charge"}, kahn.Node{ID: "ship", After: []string{"charge"}}, kahn.Node{ID: "thank", After: []string{"ship"}})
	opts := []kahn.Option{kahn.Durable(&s), kahn.RunID("order-17")}

	_, err := kahn.Execute(context.Background(), g, step, opts...)
	fmt.Println(err)
	reachable = true
	res, err := kahn.Redrive(context.Background(), g, step, nil, nil, opts...)
	fmt.Println(res.Status, err)
	// Output:
	// charge
	// run failed: node "ship": step_error: the carrier is out of reach
	// ship
	// thank
	// completed <nil>
}
