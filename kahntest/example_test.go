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

// checkout returns the workflow of a host under test.
func checkout() *kahn.Graph {
	return new(kahn.Graph).Add(
		kahn.Node{ID: "reserve"},
		kahn.Node{ID: "charge", After: []string{"reserve"}, Retry: kahn.RetryStandard()},
		kahn.Node{ID: "ship", After: []string{"charge"}},
		kahn.Node{ID: "release", In: []kahn.Edge{{From: "charge", On: kahn.OnFailure}}},
	)
}

// A host tests a declined card. The backoffs between attempts take no time.
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

// The notation describes small graphs in one line.
func ExampleParse() {
	nodes, edges, err := kahntest.Parse("A>C B>C C-!>H C{any}")
	for _, n := range nodes {
		fmt.Print(n.ID, " ")
	}
	fmt.Println(nodes[1].Join, len(edges), err)
	// Output: A C B H any_succeeded 3 <nil>
}

// The answer of an attempt is lost, and the attempt is repeated. Explore finds that a charge without a key is made twice.
func ExampleCheckExplored() {
	err := kahntest.CheckExplored(func() kahntest.Workflow {
		charged := 0
		return kahntest.Workflow{
			Graph: checkout(),
			Step: func(_ context.Context, s *kahn.Step) (any, error) {
				if s.ID() == "charge" {
					charged++
				}
				return nil, nil
			},
			Invariant: func(*kahn.Result, error) error {
				if charged > 1 {
					return fmt.Errorf("charged %d times", charged)
				}
				return nil
			},
		}
	}, 300)
	fmt.Println(err)
	// Output: charge#1 fails after its effect: charged 2 times
}

// Everything that was paid must be shipped. Explore finds a run that breaks this rule. If the payment can be undone, Explore finds no such run.
func ExampleCheckExplored_compensation() {
	for _, undoes := range []bool{false, true} {
		fmt.Println(kahntest.CheckExplored(func() kahntest.Workflow {
			paid, shipped := false, false
			pay := kahn.Node{ID: "pay", Do: func(context.Context, *kahn.Step) (any, error) { paid = true; return nil, nil }}
			if undoes {
				pay.Compensate = func(context.Context, *kahn.Step) error { paid = shipped; return nil }
			}
			ship := kahn.Node{ID: "ship", After: []string{"pay"}, Do: func(context.Context, *kahn.Step) (any, error) { shipped = true; return nil, nil }}
			return kahntest.Workflow{Graph: new(kahn.Graph).Add(pay, ship), Invariant: func(*kahn.Result, error) error {
				if paid != shipped {
					return fmt.Errorf("paid %v, shipped %v", paid, shipped)
				}
				return nil
			}}
		}, 300))
	}
	// Output:
	// pay#1 fails after its effect: paid true, shipped false
	// <nil>
}

// Joined returns what a join rule decides for edges of the given classes. The letters are as in [kahn.Join]: S for satisfied, N for neutral,
// X for dead, F for failed.
func ExampleJoined() {
	for _, letters := range []string{"SS", "SN", "SF", "NN"} {
		all, _ := kahntest.Joined(kahn.Node{}, letters)
		none, _ := kahntest.Joined(kahn.Node{Join: kahn.NoneFailed}, letters)
		fmt.Println(letters, all, none)
	}
	// Output:
	// SS ok ok
	// SN ok ok
	// SF X X
	// NN S/up ok
}

// A stream of events as text contains no ids or times, so a test can compare it with a file: see Golden.
func ExampleStream() {
	var events kahntest.Recorder
	_, err := kahn.Execute(context.Background(), new(kahn.Graph).Add(kahn.Node{ID: "build"}), new(kahntest.Script).Step, kahn.Limit(1), kahn.OnEvent(events.Add))
	fmt.Print(kahntest.Stream(events.Events()), err)
	// Output:
	// msg=run.started total=1 mode=eager
	// msg=node.queued node=build attempt=1 tier=0
	// msg=node.started node=build attempt=1 tier=0
	// msg=node.completed node=build attempt=1 tier=0
	// msg=run.completed status=completed total=1
	// <nil>
}

// The answer to the second write is lost. The run repeats the write and continues.
func ExampleFakeStore() {
	s := &kahntest.FakeStore{Script: map[string][]kahntest.StoreFault{
		"Commit": {{}, {Err: errors.New("connection reset"), Applied: true}},
	}}
	res, err := kahn.Execute(context.Background(), checkout(), new(kahntest.Script).Step, kahn.Durable(s), kahn.RunID("r1"))
	fmt.Println(kahntest.Statuses(res), err)
	// Output: reserve:ok charge:ok ship:ok release:S/br <nil>
}
