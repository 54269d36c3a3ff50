// If a node fails, the nodes that depend on it do not run, and all others do. A catch edge leads to a node that handles the failure. A cleanup
// node always runs, however the other nodes end. If all failures of a run were handled, the run completes and is degraded.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-c794f7ef/kahn"
)

func main() {
	for _, card := range []string{"good", "expired"} {
		g := new(kahn.Graph).Add(
			kahn.Node{ID: "reserve", Do: nothing},
			kahn.Node{ID: "charge", After: []string{"reserve"}, Do: func(context.Context, *kahn.Step) (any, error) {
				if card != "good" {
					return nil, errors.New("the card is " + card)
				}
				return nil, nil
			}},
			kahn.Node{ID: "ship", After: []string{"charge"}, Do: nothing},
			kahn.Node{ID: "give back", In: []kahn.Edge{{From: "charge", On: kahn.OnFailure}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
				return fmt.Sprint("because ", s.UpstreamErr("charge")), nil
			}},
			kahn.Node{ID: "unlock", Cleanup: true, After: []string{"ship", "give back"}, Do: nothing},
		)
		res, err := kahn.Execute(context.Background(), g, nil)
		fmt.Printf("a card that is %s: %v, degraded: %v, error: %v\n", card, res.Status, res.Degraded, err)
		for n := range res.Nodes() {
			fmt.Printf("  %s %v", n.ID, n.Status)
			if n.Output != nil {
				fmt.Printf(", %v", n.Output)
			}
			fmt.Println()
		}
	}
}

func nothing(context.Context, *kahn.Step) (any, error) { return nil, nil }
