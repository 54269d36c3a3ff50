package kahn_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// Middleware wraps every attempt of every step. The first argument of Use is the outermost middleware.
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

// A package counts the events of each run. Several runs may share its option.
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

// OnNode reports every node once, including nodes that no middleware sees.
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

// wordList is a list of forbidden words, with a moderator.
type wordList []string

func (w wordList) check(_ context.Context, phase event.Phase, s *kahn.Step, value any) error {
	for _, word := range w {
		if strings.Contains(fmt.Sprint(value), word) {
			return kahn.Flag(word)
		}
	}
	return nil
}

// A moderator judges the values that the field Moderation of a node selects, here the output. It judges an output before other nodes get it.
func ExampleModerate() {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "answer", Moderation: kahn.ModerateOutput})
	step := func(context.Context, *kahn.Step) (any, error) { return "the password is swordfish", nil }
	_, err := kahn.Execute(context.Background(), &g, step, kahn.Moderate(wordList{"password"}.check))
	fmt.Println(err)
	// Output: run failed: node "answer": moderation: output flagged: password
}

// positive is a contract in Go. The module kahn/schema has contracts as JSON Schema.
type positive struct{}

func (positive) Check(value any) []kahn.Violation {
	if n, ok := value.(int); !ok || n <= 0 {
		return []kahn.Violation{{Message: fmt.Sprintf("%v is not a positive number", value)}}
	}
	return nil
}

// An output that violates its contract fails the attempt. Here the node is retried, because its policy lists this cause.
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
	fmt.Println(res.Output(), err)
	// Output:
	// contract.violated 1 output [-1 is not a positive number]
	// contract.violated 2 output [0 is not a positive number]
	// 1 <nil>
}

// While the run continues, Why returns the reason why a node does not run.
func ExampleRun_Why() {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "fetch", Do: func(context.Context, *kahn.Step) (any, error) { return "rows", nil }},
		kahn.Node{ID: "approve", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"ship", "hold"}}, After: []string{"fetch"}},
		kahn.Node{ID: "store", After: []string{"approve"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }},
	)
	ctx := context.Background()
	run, err := kahn.Start(ctx, &g, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := run.WaitFor(ctx, "approve", kahn.Suspended); err != nil {
		fmt.Println(err)
	}
	for n := range run.Nodes() {
		why, _ := run.Why(n.ID)
		fmt.Printf("%s is %v: %v\n", n.ID, n.Status, why)
		if why.Kind == kahn.WhySignal {
			fmt.Println("choices:", why.Choices)
		}
	}
	_, err = run.Why("aprove")
	fmt.Println(err)
	_ = run.Signal(context.Background(), "approve", "ship")
	_, _ = run.Wait()
	// Output:
	// fetch is completed: it has completed
	// approve is suspended: it waits for an answer
	// choices: [ship hold]
	// store is waiting: it waits for approve
	// unknown node: "aprove"; did you mean "approve"? (there is "fetch", "approve", "store")
}

// Inside returns the nodes inside a composite, by path.
func ExampleRun_Inside() {
	var orders kahn.Graph
	orders.Add(kahn.Node{ID: "ask", Kind: kahn.KindGate}, kahn.Node{ID: "ship", After: []string{"ask"}})
	var g kahn.Graph
	g.Add(kahn.Node{ID: "each", Map: &kahn.Map{Over: "orders"}, Params: map[string]any{"orders": []string{"o1", "o2"}}, Sub: &orders})
	ctx := context.Background()
	run, err := kahn.Start(ctx, &g, func(context.Context, *kahn.Step) (any, error) { return nil, nil })
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := run.WaitFor(ctx, "each", kahn.Suspended); err != nil {
		fmt.Println(err)
	}
	items, _ := run.Inside("each")
	for _, item := range items.Nodes {
		params, _, _ := run.Inputs(item.ID)
		fmt.Println(item.ID, item.Status, params["item"])
	}
	ship, _ := run.Node("each[1]/ship")
	fmt.Println(ship.ID, ship.Status)
	fmt.Println(run.Counts())
	run.Cancel()
	_, _ = run.Wait()
	// Output:
	// each[0] suspended o1
	// each[1] suspended o2
	// each[1]/ship waiting
	// map[suspended:1]
}

// Around encloses a run: here it logs the run's name and status, and passes a value to the steps in their context.
func ExampleAround() {
	type traceKey struct{}
	span := func(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
		fmt.Println("begin", r.Name())
		return context.WithValue(ctx, traceKey{}, "trace of "+r.Name()), func(res *kahn.Result) { fmt.Println("end", res.Status) }
	}
	g := kahn.Graph{Name: "nightly"}
	g.Add(kahn.Node{ID: "a", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
		fmt.Println(s.ID(), "in the", ctx.Value(traceKey{}))
		return nil, nil
	}})
	_, err := kahn.Execute(context.Background(), &g, nil, kahn.Around(span))
	fmt.Println(err)
	// Output:
	// begin nightly
	// a in the trace of nightly
	// end completed
	// <nil>
}

// A page lists the runs of a Runner and redrives a failed run.
func ExampleRunner_Watch() {
	var g kahn.Graph
	fail := true
	g.Add(kahn.Node{ID: "a", Do: func(context.Context, *kahn.Step) (any, error) {
		if fail {
			return nil, fmt.Errorf("no luck")
		}
		return nil, nil
	}})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var rn kahn.Runner
	run, err := rn.Start(ctx, &g, nil, kahn.RunID("r1"))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = run.Wait()
	for change := range rn.Watch(ctx) {
		switch {
		case change.Removed:
			fmt.Println("an old run is forgotten")
		case change.Status == kahn.RunFailed:
			fmt.Println(change.Run.ID(), "has failed and is redriven")
			fail = false
			if _, err := rn.Redrive(ctx, change.Run.ID(), nil, kahn.Request{}); err != nil {
				fmt.Println(err)
			}
		case change.Status == kahn.RunCompleted:
			fmt.Println(change.Run.ID(), "has completed")
			cancel()
		}
	}
	// Output:
	// r1 has failed and is redriven
	// an old run is forgotten
	// r1 has completed
}
