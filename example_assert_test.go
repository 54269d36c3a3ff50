package kahn_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-c794f7ef/kahn"
)

var errDeclined = errors.New("card declined")

// judged runs an order whose first attempt to charge is declined, and prints the results of the assertions.
func judged(assertions ...kahn.Assertion) {
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "charge", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: -1}},
		kahn.Node{ID: "ship", After: []string{"charge"}},
		kahn.Node{ID: "refund", In: []kahn.Edge{{From: "charge", On: kahn.OnFailure}}},
	)
	res, err := kahn.Execute(context.Background(), g, nil, kahn.TestMode{
		OnMissing:  kahn.MissingStub,
		Mocks:      map[string]kahn.Mock{"charge": {Sequence: []kahn.Mock{{Err: errDeclined}, {Value: map[string]any{"cents": 1200}}}}},
		Assertions: assertions,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("passed:", res.Test.Passed)
	for _, failure := range res.Test.Failures {
		fmt.Println(failure)
	}
}

func ExampleAssertStatus() {
	judged(kahn.AssertStatus("charge", kahn.Completed), kahn.AssertStatus("ship", kahn.Failed))
	// Output:
	// passed: 1
	// node "ship": expected status failed: completed
}

func ExampleAssertSkip() {
	judged(kahn.AssertSkip("refund", kahn.SkipConditionBranch), kahn.AssertSkip("ship", kahn.SkipConditionBranch))
	// Output:
	// passed: 1
	// node "ship": expected skip reason condition_branch: completed
}

func ExampleAssertCalls() {
	judged(kahn.AssertCalls("charge", 2), kahn.AssertCalls("refund", 1))
	// Output:
	// passed: 1
	// node "refund": expected 1 calls: 0 calls
}

func ExampleAssertError() {
	judged(kahn.AssertError("charge", nil), kahn.AssertError("charge", errDeclined))
	// Output:
	// passed: 1
	// node "charge": expected error card declined: completed
}

func ExampleAssertOutput() {
	judged(kahn.AssertOutput("charge", "cents", 1200), kahn.AssertOutput("charge", "cents", 5))
	// Output:
	// passed: 1
	// node "charge": expected output 5 at "cents": 1200
}

// A host passes its own check to Assert.
func ExampleAssert() {
	judged(kahn.Assert("charge", "an earlier error", func(n kahn.NodeResult) error {
		if !errors.Is(n.LastErr, errDeclined) {
			return fmt.Errorf("it was %v", n.LastErr)
		}
		return nil
	}))
	// Output: passed: 1
}

// In test mode a mocked node, such as charge here, is undone only by a mock of its compensation.
func ExampleAssertCompensation() {
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "charge", CompensateBy: &kahn.CompensateBy{Kind: "refund"}},
		kahn.Node{ID: "ship", After: []string{"charge"}},
	)
	res, err := kahn.Execute(context.Background(), g, nil, kahn.TestMode{
		Mocks:      map[string]kahn.Mock{"charge": {Value: "receipt"}, "ship": {Err: errors.New("no truck")}},
		Undos:      map[string]kahn.Mock{"charge": {Err: kahn.Permanent(errors.New("the account is closed"))}},
		Assertions: []kahn.Assertion{kahn.AssertCompensation("charge", kahn.CompensationFailed)},
	})
	fmt.Println(errors.Is(err, kahn.ErrCompensation), res.Test.Passed, res.Test.Err())
	// Output: true 1 <nil>
}

// Mocks replace the step functions of a graph, and assertions check the result.
func ExampleTestMode() {
	declined := errors.New("card declined")
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "order"},
		kahn.Node{ID: "charge", After: []string{"order"}, Retry: kahn.RetryStandard()},
		kahn.Node{ID: "ship", After: []string{"charge"}},
		kahn.Node{ID: "apologize", In: []kahn.Edge{{From: "charge", On: kahn.OnFailure}}},
	)
	res, err := kahn.Execute(context.Background(), &g, nil, kahn.TestMode{
		Mocks:     map[string]kahn.Mock{"charge": {Err: declined}},
		OnMissing: kahn.MissingStub,
		Assertions: []kahn.Assertion{
			kahn.AssertSkip("ship", kahn.SkipConditionBranch),
			kahn.AssertCalls("apologize", 2),
		},
	})
	fmt.Println(res.Status, err)
	fmt.Println(res.Test.Passed, "passed,", res.Test.Failed, "failed:", res.Test.Err())
	for _, n := range res.Test.Nodes {
		fmt.Println(n.Path, n.Outcome)
	}
	// Output:
	// completed <nil>
	// 1 passed, 1 failed: node "apologize": expected 2 calls: 1 calls
	// order mocked
	// charge mocked
	// ship skipped
	// apologize mocked
}
