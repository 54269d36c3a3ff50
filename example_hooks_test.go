package kahn_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// Middleware wraps every attempt of every step, the first one outermost.
func ExampleUse() {
	logged := func(next kahn.StepFunc) kahn.StepFunc {
		return func(ctx context.Context, s *kahn.Step) (any, error) {
			v, err := next(ctx, s)
			fmt.Printf("%s, attempt %d: %v, %v\n", s.ID(), s.Attempt(), v, err)
			return v, err
		}
	}
	type tenant struct{}
	scoped := func(next kahn.StepFunc) kahn.StepFunc {
		return func(ctx context.Context, s *kahn.Step) (any, error) {
			return next(context.WithValue(ctx, tenant{}, "acme"), s)
		}
	}
	var g kahn.Graph
	g.Add(kahn.Node{ID: "greet", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
		return fmt.Sprint("hello ", ctx.Value(tenant{})), nil
	}})
	_, _ = kahn.Execute(context.Background(), &g, nil, kahn.Use(logged, scoped))
	// Output: greet, attempt 1: hello acme, <nil>
}

// A package counts the events of each run, and may be used for any number of runs.
func ExamplePerRun() {
	counts := kahn.PerRun(func() []kahn.Option {
		events := 0 // of one run
		return []kahn.Option{
			kahn.OnEvent(func(kahn.Event) { events++ }),
			kahn.Around(func(_ context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
				return nil, func(*kahn.Result) { fmt.Println(r.ID(), "has", events, "events") }
			}),
		}
	})
	rn := &kahn.Runner{Options: []kahn.Option{counts}}
	step := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	for i, g := range []*kahn.Graph{new(kahn.Graph).Add(kahn.Node{ID: "a"}), new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b"})} {
		if _, err := rn.Execute(context.Background(), g, step, kahn.RunID(fmt.Sprint("run ", i+1))); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// run 1 has 5 events
	// run 2 has 8 events
}

// An observer sees every node once, those included that no middleware sees.
func ExampleOnNode() {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "build"},
		kahn.Node{ID: "deploy", After: []string{"build"}},
		kahn.Node{ID: "benchmark", Disabled: true},
	)
	fail := func(context.Context, *kahn.Step) (any, error) { return nil, fmt.Errorf("no compiler") }
	_, _ = kahn.Execute(context.Background(), &g, fail, kahn.OnNode(func(n kahn.NodeResult) {
		fmt.Println(n.ID, n.Status, n.Attempts)
	}))
	// Output:
	// benchmark skipped 0
	// build failed 1
	// deploy aborted 0
}

// wordList is a moderator.
type wordList []string

func (w wordList) Check(_ context.Context, phase kahn.Phase, s *kahn.Step, value any) error {
	for _, word := range w {
		if strings.Contains(fmt.Sprint(value), word) {
			return kahn.Flag(word)
		}
	}
	return nil
}

// A moderator judges the parameters of the nodes that ask for it before they start, and their outputs before other nodes see
// them.
func ExampleModerate() {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "answer", Moderation: kahn.ModerateOutput})
	step := func(context.Context, *kahn.Step) (any, error) { return "the password is swordfish", nil }
	_, err := kahn.Execute(context.Background(), &g, step, kahn.Moderate(wordList{"password"}))
	fmt.Println(err)
	// Output: run failed: node "answer": moderation: output flagged: password
}

// positive is a contract in Go. Contracts as JSON Schema are in the module kahn/schema.
type positive struct{}

func (positive) Check(value any) []kahn.Violation {
	if n, ok := value.(int); !ok || n <= 0 {
		return []kahn.Violation{{Message: fmt.Sprintf("%v is not a positive number", value)}}
	}
	return nil
}

// An output that violates its contract fails the attempt, and is retried if the policy says so.
func ExampleContract() {
	var g kahn.Graph
	g.Add(kahn.Node{
		ID: "count", OutputSchema: positive{},
		Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: -1, RetryOn: []kahn.CauseKind{kahn.CauseContractOutput}},
	})
	step := func(_ context.Context, s *kahn.Step) (any, error) { return s.Attempt() - 2, nil }
	res, err := kahn.Execute(context.Background(), &g, step, kahn.OnEvent(func(e kahn.Event) {
		if v, ok := e.Payload.(event.Breach); ok {
			fmt.Println(e.Type, e.Attempt, v.Phase, v.Errors)
		}
	}))
	fmt.Println(res.Output, err)
	// Output:
	// contract.violated 1 output [-1 is not a positive number]
	// contract.violated 2 output [0 is not a positive number]
	// 1 <nil>
}
