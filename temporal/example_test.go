package temporal_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

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

// A step that is a workflow of the host's own: it may wait for signals and timers, and call activities.
func ExampleStepWorkflow() {
	var g kahn.Graph
	g.Name = "orders"
	g.Add(kahn.Node{ID: "take", Kind: "take"}, kahn.Node{ID: "ship", Kind: "ship", In: []kahn.Edge{{From: "take", Param: "order"}}, Retry: kahn.Retry{MaxAttempts: 3}})
	plan, err := g.Compile()
	if err != nil {
		log.Fatal(err)
	}
	options := temporal.Options{
		Plans: []*kahn.Plan{plan},
		Step:  func(context.Context, *kahn.Step) (any, error) { return "order 17", nil },
		Kinds: map[string]temporal.Kind{"ship": {Workflow: func(s *kahn.Step) (temporal.StepWorkflow, error) {
			order, err := kahn.Param[string](s, "order")
			return temporal.StepWorkflow{Type: "Ship", Args: []any{order}}, err
		}}},
	}

	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	if err := options.Register(env); err != nil {
		log.Fatal(err)
	}
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, order string) (string, error) {
		err := workflow.Sleep(ctx, 24*time.Hour) // to the customer
		fmt.Println("ships", order)
		return "receipt", err
	}, workflow.RegisterOptions{Name: "Ship"})
	in, err := temporal.Workflow{Plan: plan}.Input(nil)
	if err != nil {
		log.Fatal(err)
	}
	env.ExecuteWorkflow("orders", in)
	fmt.Println(env.GetWorkflowError())
	// Output:
	// ships order 17
	// <nil>
}

// An operator moves a waiting run to a new version of its plan. Unchanged nodes keep their results.
func ExampleRun_Adopt() {
	adopt := func(ctx context.Context, c client.Client, orderV2 *kahn.Plan) error {
		run := temporal.Attach(c, temporal.Workflow{ID: "order-17", Plan: orderV2})
		snapshot, err := run.Snapshot(ctx)
		if err != nil {
			return err
		}
		preview, err := kahn.AdoptPreview(orderV2, snapshot)
		if err != nil {
			return err
		}
		fmt.Println("keeps", preview.Keep)
		return run.Adopt(ctx, kahn.Request{Actor: "ann", Reason: "release 2"})
	}
	_ = adopt // it needs a service
}

// An operator moves all running runs of a graph to a new version of its plan.
func ExampleRun_Adopt_many() {
	adoptAll := func(ctx context.Context, c client.Client, orderV2 *kahn.Plan) error {
		q := &workflowservice.ListWorkflowExecutionsRequest{Query: "WorkflowType = 'orders' AND ExecutionStatus = 'Running'"}
		var errs []error
		for {
			page, err := c.ListWorkflow(ctx, q)
			if err != nil {
				return errors.Join(append(errs, err)...)
			}
			for _, w := range page.GetExecutions() {
				run := temporal.Attach(c, temporal.Workflow{ID: w.GetExecution().GetWorkflowId(), Plan: orderV2}) // and Types, Blobs and DataConverter of the workers
				err := run.Adopt(ctx, kahn.Request{Actor: "ann", Reason: "release 2"})
				if err != nil && !errors.Is(err, kahn.ErrFinished) { // the run has ended since it was listed
					errs = append(errs, err)
				}
			}
			if q.NextPageToken = page.GetNextPageToken(); len(q.NextPageToken) == 0 {
				return errors.Join(errs...)
			}
		}
	}
	_ = adoptAll // it needs a service
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
	// kahn/temporal: node "a": unsupported on Temporal: Moderation needs a moderator, which a workflow cannot have
}

// A test of the host refuses Kinds that no attempt has.
func ExampleOptions_Warnings() {
	var g kahn.Graph
	g.Name = "images"
	g.Add(kahn.Node{ID: "resize", Kind: "gpu"})
	plan, err := g.Compile()
	if err != nil {
		log.Fatal(err)
	}
	o := temporal.Options{Plans: []*kahn.Plan{plan}, Kinds: map[string]temporal.Kind{"gpus": {TaskQueue: "gpu"}}}
	for _, w := range o.Warnings() {
		fmt.Println(w)
	}
	// Output:
	// kahn/temporal: unknown kind: Options.Kinds["gpus"] has no effect, because the plans have no attempts of this kind; did you mean "gpu"?; they have attempts of the kinds "gpu"
}
