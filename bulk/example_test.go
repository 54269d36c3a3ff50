package bulk_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/bulk"
	"github.com/seed-c794f7ef/kahn/store"
)

// After an outage all runs that have failed are redriven, page by page. A process that serves their workflow then performs these runs.
func ExampleRedrive() {
	var s store.Memory
	ctx := context.Background()
	g := (&kahn.Graph{Name: "letter"}).Add(kahn.Node{ID: "send"})
	down := func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("down") }
	for _, id := range []string{"letter-1", "letter-2"} {
		_, err := kahn.Execute(ctx, g, down, kahn.Durable(&s), kahn.RunID(id))
		fmt.Println(err)
	}
	b := bulk.Selection{Filter: store.Filter{Workflow: "letter", Prefix: "letter-"}, Limit: 1}
	for {
		report, err := bulk.Redrive(ctx, []*kahn.Graph{g}, &s, b, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(len(report.Runs), report.Runs[0].Err)
		if b.After = report.Next; b.After == "" {
			break
		}
	}
	counts, err := s.Count(ctx, store.Filter{})
	fmt.Println(counts, err)
	// Output:
	// run of "letter" failed: node "send": step_error: down
	// run of "letter" failed: node "send": step_error: down
	// 1 <nil>
	// 1 <nil>
	// [{letter suspended 2}] <nil>
}

// Cancel works on running, waiting and pending runs. Here two runs wait at a gate.
func ExampleCancel() {
	var s store.Memory
	ctx := context.Background()
	g := (&kahn.Graph{Name: "letter"}).Add(kahn.Node{ID: "approve", Kind: kahn.KindGate})
	for _, id := range []string{"letter-1", "letter-2"} {
		_, err := kahn.Execute(ctx, g, nil, kahn.Durable(&s), kahn.RunID(id))
		fmt.Println(err)
	}
	report, err := bulk.Cancel(ctx, &s, bulk.Selection{Filter: store.Filter{Workflow: "letter"}}, store.Request{ID: "stop-1", Actor: "ann", Comment: "sold out"})
	fmt.Println(len(report.Runs), report.Next == "", err)
	_, err = kahn.Execute(ctx, g, nil, kahn.Durable(&s), kahn.RunID("letter-1")) // as Runner.Serve does
	fmt.Println(err)
	// Output:
	// <nil>
	// <nil>
	// 2 true <nil>
	// run of "letter" cancelled (cancel_run) by "ann" because "sold out"
}

// Runs of last night are repeated with another model, each as a separate run.
func ExampleFork() {
	var s store.Memory
	ctx := context.Background()
	step := func(_ context.Context, step *kahn.Step) (any, error) {
		fmt.Println(step.RunID(), step.ID())
		return nil, nil
	}
	graph := func(model string) *kahn.Graph {
		return (&kahn.Graph{Name: "letter"}).Add(kahn.Node{ID: "fetch"}, kahn.Node{ID: "draft", After: []string{"fetch"}, Config: model})
	}
	_, err := kahn.Execute(ctx, graph("small"), step, kahn.Durable(&s), kahn.RunID("letter-1"))
	fmt.Println(err)
	id := func(run string) string { return run + "-large" }
	report, err := bulk.Fork(ctx, graph("large"), &s, bulk.Selection{Filter: store.Filter{Prefix: "letter-"}}, id, nil)
	fmt.Println(report.Runs, err)
	_, err = kahn.Execute(ctx, graph("large"), step, kahn.Durable(&s), kahn.RunID("letter-1-large")) // as Runner.Serve does
	fmt.Println(err)
	// Output:
	// letter-1 fetch
	// letter-1 draft
	// <nil>
	// [{letter-1 <nil>}] <nil>
	// letter-1-large draft
	// <nil>
}
