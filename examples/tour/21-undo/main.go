// A run that fails undoes its steps, the last step first. This includes a step whose answer was lost, since the step may have had its
// effect. The graph need not say when to undo: a run undoes its steps after a failure, a cancellation or a timeout.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-c794f7ef/kahn"
)

func main() {
	do := func(_ context.Context, s *kahn.Step) (any, error) {
		fmt.Println("  ", s.ID())
		switch s.ID() {
		case "ship":
			return nil, kahn.NoEffect(errors.New("no truck")) // certainly nothing was shipped
		case "invoice":
			return nil, errors.New("the answer was lost") // the invoice may have been sent
		}
		return "receipt of " + s.ID(), nil
	}
	undo := func(_ context.Context, s *kahn.Step) error {
		receipt, certain := s.Compensated()
		fmt.Println("  undo", s.ID(), "| receipt:", receipt, "| certain:", certain)
		return nil
	}
	order := func(last string) *kahn.Graph {
		return new(kahn.Graph).Add(
			kahn.Node{ID: "reserve", Do: do, Compensate: undo},
			kahn.Node{ID: "charge", Do: do, Compensate: undo, After: []string{"reserve"}},
			kahn.Node{ID: last, Do: do, Compensate: undo, After: []string{"charge"}},
		)
	}
	for _, last := range []string{"mail", "ship", "invoice"} {
		fmt.Println("an order that ends with", last)
		res, _ := kahn.Execute(context.Background(), order(last), nil) // the error that Execute returns is the error of the step, which is expected
		charge, _ := res.Node("charge")
		fmt.Println(res.Status, "| charge:", charge.Status, "| compensation:", charge.Compensation)
	}
}
