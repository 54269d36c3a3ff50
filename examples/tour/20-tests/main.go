// TestMode runs a graph with mocks instead of steps; the graph's joins, conditions and policies are real. For Go tests, package kahntest has
// more: fake time, scripted steps, many orders of steps, and a crash at every write.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/seed-c794f7ef/kahn"
)

func main() {
	order := new(kahn.Graph).Add(
		kahn.Node{ID: "charge", Kind: "bank", Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: -1}},
		kahn.Node{ID: "ship", Kind: "carrier", After: []string{"charge"}},
		kahn.Node{ID: "apologise", Kind: "mail", In: []kahn.Edge{{From: "charge", On: kahn.OnFailure}}},
	)
	busy := errors.New("the bank is busy")
	res, err := kahn.Execute(context.Background(), order, nil, kahn.TestMode{
		OnMissing: kahn.MissingStub, // steps without a mock complete without an output
		Mocks:     map[string]kahn.Mock{"charge": {Sequence: []kahn.Mock{{Err: busy}, {Err: busy}, {Value: "receipt"}}}},
		Assertions: []kahn.Assertion{
			kahn.AssertStatus("ship", kahn.Completed),
			kahn.AssertSkip("apologise", kahn.SkipConditionBranch),
			kahn.AssertStatus("charge", kahn.Failed), // this assertion fails: the third attempt succeeds
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("assertions that hold:", res.Test.Passed)
	for _, failure := range res.Test.Failures {
		fmt.Println(failure)
	}
}
