package kahntest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// checkout is the workflow of a host that is to be tested.
func checkout() *kahn.Graph {
	return new(kahn.Graph).Add(
		kahn.Node{ID: "reserve"},
		kahn.Node{ID: "charge", After: []string{"reserve"}, Retry: kahn.RetryStandard()},
		kahn.Node{ID: "ship", After: []string{"charge"}},
		kahn.Node{ID: "release", In: []kahn.Edge{{From: "charge", On: kahn.OnFailure}}},
	)
}

// TestDeclined is a host's test of a declined card. The waits between attempts take no time.
func TestDeclined(t *testing.T) {
	kahntest.InFakeTime(t, func(t *testing.T) {
		steps := &kahntest.Script{Acts: map[string][]kahntest.Act{
			"charge": {{Err: errors.New("busy")}, {Err: kahn.Permanent(errors.New("declined"))}},
		}}
		r := kahntest.Run(t, checkout(), steps.Step)
		kahntest.RequireStatuses(t, r.Result, "reserve:ok charge:F ship:S/br release:ok")
		kahntest.RequireCalls(t, steps, "reserve charge charge release")
		if !r.Degraded || r.Duration != time.Second {
			t.Errorf("degraded %v, after %v", r.Degraded, r.Duration)
		}
	})
}

// A script decides the result of each attempt of a step, and records the calls.
func ExampleScript() {
	steps := &kahntest.Script{Acts: map[string][]kahntest.Act{
		"charge": {{Err: kahn.Permanent(errors.New("declined"))}},
	}}
	res, err := kahn.Execute(context.Background(), checkout(), steps.Step)
	fmt.Println(res.Status, err)
	fmt.Println(kahntest.Statuses(res))
	for _, c := range steps.Calls() {
		fmt.Println("called", c.Node, c.Attempt)
	}
	// Output:
	// completed <nil>
	// reserve:ok charge:F ship:S/br release:ok
	// called reserve 1
	// called charge 1
	// called release 1
}

// CompareStatuses reports every difference.
func ExampleCompareStatuses() {
	steps := &kahntest.Script{Acts: map[string][]kahntest.Act{"reserve": {{Err: errors.New("sold out")}}}}
	res, _ := kahn.Execute(context.Background(), checkout(), steps.Step)
	fmt.Println(kahntest.Statuses(res))
	fmt.Println(kahntest.CompareStatuses(res, "reserve:F charge:S/up ship:X ..."))
	// Output:
	// reserve:F charge:X ship:S/br release:ok
	// charge is X, expected S/up (node "charge": upstream_failure of "reserve")
	// ship is S/br, expected X (condition_branch(charge))
}

// The notation makes small graphs short.
func ExampleParse() {
	nodes, edges, err := kahntest.Parse("A>C B>C C-!>H C{any}")
	for _, n := range nodes {
		fmt.Print(n.ID, " ")
	}
	fmt.Println(nodes[1].Join, len(edges), err)
	// Output: A C B H any_succeeded 3 <nil>
}
