// A run that fails undoes its steps, the last step first. It also undoes a step whose answer was lost, since this step may have had an
// effect. The graph says how to undo each step, but not when: a run undoes its steps whenever it fails, is cancelled or times out.
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
		res, _ := kahn.Execute(context.Background(), order(last), nil) // the error is ignored, since two of the runs fail as expected
		charge, _ := res.Node("charge")
		fmt.Println(res.Status, "| charge:", charge.Status, "| compensation:", charge.Compensation)
	}
}
