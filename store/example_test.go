package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// invoice is a workflow of one step.
var invoice = (&kahn.Graph{Name: "invoice", Inputs: []kahn.Input{{Name: "customer"}}}).Add(kahn.Node{ID: "send"})

func send(_ context.Context, s *kahn.Step) (any, error) {
	customer, err := kahn.Root[string](s, "customer")
	return "sent to " + customer, err
}

// A web server creates runs, each once, however often it is asked. A worker finds those that have not begun, and performs them.
func ExampleAdmin() {
	ctx := context.Background()
	db := new(store.Memory) // or sqlite.Open
	for _, customer := range []string{"ann", "bob", "ann"} {
		inputs := map[string]any{"customer": customer}
		n, err := kahn.Prepare(invoice, kahn.RunID("invoice-"+customer), kahn.Inputs(inputs), kahn.RunLabels(map[string]string{"region": "north"}))
		if err != nil {
			fmt.Println(err)
			return
		}
		n.IfExists = store.Reuse
		_, created, err := db.Create(ctx, n)
		fmt.Println(n.ID, created, err)
	}
	page, err := db.List(ctx, store.Query{Filter: store.Filter{Workflow: "invoice", Statuses: []machine.RunStatus{machine.RunPending}, Prefix: "invoice-a"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range page.Runs {
		res, err := kahn.Execute(ctx, invoice, send, kahn.RunID(r.ID), kahn.Durable(db))
		if err != nil {
			fmt.Println(err)
			return
		}
		n, _ := res.Node("send")
		fmt.Println(n.Output)
	}
	counts, err := db.Count(ctx, store.Filter{Labels: map[string]string{"region": "north"}})
	fmt.Println(counts, err)
	pruned, err := db.Prune(ctx, store.PruneQuery{EndedBefore: time.Now().Add(time.Second)})
	fmt.Println(pruned.Runs, err)
	// Output:
	// invoice-ann true <nil>
	// invoice-bob true <nil>
	// invoice-ann false <nil>
	// sent to ann
	// [{invoice pending 1} {invoice completed 1}] <nil>
	// 1 <nil>
}

// A process that stops leaves its runs, and another one goes on with those that are due.
func Example_goingOn() {
	ctx, db := context.Background(), new(store.Memory)
	stopped := make(chan struct{})
	order := (&kahn.Graph{Name: "order"}).Add(
		kahn.Node{ID: "pay", Do: func(context.Context, *kahn.Step) (any, error) { <-stopped; return nil, nil }},
		kahn.Node{ID: "ship", After: []string{"pay"}, Do: func(context.Context, *kahn.Step) (any, error) { return "shipped", nil }},
	)
	first := kahn.Runner{Options: []kahn.Option{kahn.Durable(db)}}
	run, err := first.Start(ctx, order, nil, kahn.RunID("order-17"))
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := run.WaitFor(ctx, "pay", kahn.Running); err != nil {
		fmt.Println(err)
		return
	}
	run.Leave() // as Runner.Shutdown does with all runs
	close(stopped)
	res, err := run.Wait()
	fmt.Println(res.Status, err)

	second := kahn.Runner{Options: []kahn.Option{kahn.Durable(db)}}
	page, err := db.List(ctx, store.Query{Filter: store.Filter{Statuses: []machine.RunStatus{machine.RunPending, machine.RunRunning, machine.RunSuspended}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range page.Runs {
		due := r.Status == machine.RunRunning || !r.WakeAt.IsZero() && time.Now().After(r.WakeAt) || r.Status == machine.RunPending && r.WakeAt.IsZero()
		if !due {
			continue // it waits for an answer
		}
		run, err := second.Start(ctx, order, nil, kahn.RunID(r.ID))
		if err != nil {
			fmt.Println(err)
			return
		}
		res, err := run.Wait()
		fmt.Println(r.ID, res.Output, err)
	}
	// Output:
	// suspended <nil>
	// order-17 shipped <nil>
}

// A run that is not due is refused, with an error that says when it is.
func ExampleNewRun() {
	ctx, db := context.Background(), new(store.Memory)
	n, err := kahn.Prepare(invoice, kahn.RunID("invoice-eve"), kahn.Inputs(map[string]any{"customer": "eve"}))
	if err != nil {
		fmt.Println(err)
		return
	}
	n.NotBefore = time.Now().Add(24 * time.Hour)
	if _, _, err := db.Create(ctx, n); err != nil {
		fmt.Println(err)
		return
	}
	_, err = kahn.Execute(ctx, invoice, send, kahn.RunID(n.ID), kahn.Durable(db))
	fmt.Println(errors.Is(err, kahn.ErrNotDue))
	// Output: true
}

// A run is taken to another store.
func ExampleExport() {
	ctx := context.Background()
	here, there := new(store.Memory), new(store.Memory)
	_, err := kahn.Execute(ctx, invoice, send, kahn.RunID("invoice-ann"), kahn.Durable(here), kahn.Inputs(map[string]any{"customer": "ann"}))
	if err != nil {
		fmt.Println(err)
		return
	}
	var file bytes.Buffer
	if err := store.Export(ctx, here, "invoice-ann", &file); err != nil {
		fmt.Println(err)
		return
	}
	id, err := store.Import(ctx, there, &file)
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := kahn.ReadResult(ctx, invoice, there, id)
	if err != nil {
		fmt.Println(err)
		return
	}
	n, _ := res.Node("send")
	fmt.Println(id, res.Status, n.Output)
	// Output: invoice-ann completed sent to ann
}
