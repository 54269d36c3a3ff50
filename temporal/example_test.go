package temporal_test

import (
	"context"
	"fmt"
	"log"

	"go.temporal.io/sdk/client"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/temporal"
)

// This example has one worker and one run. A real system has many workers, each in its own process.
func Example() {
	var g kahn.Graph
	g.Name = "greeting"
	g.Add(
		kahn.Node{ID: "greet", Kind: "greet"},
		kahn.Node{ID: "send", Kind: "send", In: []kahn.Edge{{From: "greet", Param: "text"}}, Retry: kahn.Retry{MaxAttempts: 5}},
	)
	plan, err := g.Compile()
	if err != nil {
		log.Fatal(err)
	}
	steps := kahn.Mux{
		"greet": func(context.Context, *kahn.Step) (any, error) { return "hello", nil },
		"send":  func(_ context.Context, s *kahn.Step) (any, error) { return kahn.Param[string](s, "text") },
	}

	if err := greet(context.Background(), plan, steps.Step); err != nil {
		log.Fatal(err)
	}
}

func greet(ctx context.Context, plan *kahn.Plan, step kahn.StepFunc) error {
	c, err := client.Dial(client.Options{HostPort: "localhost:7233"})
	if err != nil {
		return err
	}
	defer c.Close()
	w, err := temporal.NewWorker(c, "greetings", temporal.Options{Plans: []*kahn.Plan{plan}, Step: step})
	if err != nil {
		return err
	}
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()

	res, err := temporal.Execute(ctx, c, temporal.Workflow{ID: "greeting-1", TaskQueue: "greetings", Plan: plan}, nil)
	if err != nil {
		return err
	}
	fmt.Println(res.Status, res.Output())
	return nil
}

func ExampleCheck() {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "a", Moderation: kahn.ModerateOutput})
	plan, err := g.Compile()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(temporal.Check(plan))
	// Output:
	// kahn/temporal: node "a": it does not carry over to Temporal: Moderation asks for a Moderator of the run, and a workflow has none
}
