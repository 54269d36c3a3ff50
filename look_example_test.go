package kahn_test

import (
	"context"
	"fmt"

	"github.com/seed-c794f7ef/kahn"
)

// Why a node does not run, while the run is at work.
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
	// approve is suspended: it waits for a signal
	// choices: [ship hold]
	// store is waiting: it waits for approve
	// unknown node: "aprove"; did you mean "approve"? (there is "fetch", "approve", "store")
}

// What is inside of a composite, by path.
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
		in, _ := run.Inputs(item.ID)
		fmt.Println(item.ID, item.Status, in.Params["item"])
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

// What spans a run: here its name and its duration are logged, and the steps find what they need of it in their context.
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

// A page that lists the runs of a Runner, and redrives what has failed.
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
			if _, err := rn.Redrive(ctx, change.Run.ID(), nil); err != nil {
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
