package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// A web server creates each run once, even if a client repeats its request. A worker finds the runs that have not begun, and performs them.
func ExampleAdmin() {
	ctx := context.Background()
	db := new(store.Memory) // or sqlite.Open
	for _, customer := range []string{"ann", "bob", "ann"} {
		inputs := map[string]any{"customer": customer}
		n, err := kahn.Prepare(invoice, kahn.RunID("invoice-"+customer), kahn.Inputs(inputs), kahn.Describe(store.Spec{Labels: map[string]string{"region": "north"}}))
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

// Two processes serve a store, one after the other. The first process stops during a run, and the second one continues the run.
func Example_goingOn() {
	ctx, db := context.Background(), new(store.Memory) // or sqlite.Open, or postgres.Open
	order := (&kahn.Graph{Name: "order"}).Add(kahn.Node{ID: "pay"}, kahn.Node{ID: "ship", After: []string{"pay"}})
	n, err := kahn.Prepare(order, kahn.RunID("order-17"))
	if err == nil {
		_, _, err = db.Create(ctx, n)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	process := func(ship func(context.Context) error, until <-chan struct{}) {
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			fmt.Println(s.RunID(), s.ID())
			if s.ID() == "ship" {
				return nil, ship(ctx)
			}
			return nil, nil
		}
		var runner kahn.Runner
		served := make(chan error)
		go func() {
			served <- runner.Serve(ctx, kahn.Service{Store: db, Workflows: []kahn.Workflow{{Graph: order, Step: step}}})
		}()
		<-until
		stopped, stop := context.WithCancel(ctx)
		stop()                                                                                // Shutdown does not wait for the steps in flight
		if err := runner.Shutdown(stopped); err != nil && !errors.Is(err, context.Canceled) { // nil if the run has ended by itself
			fmt.Println(err)
		}
		fmt.Println("stopped:", <-served)
	}
	begun, shipped := make(chan struct{}), make(chan struct{})
	process(func(ctx context.Context) error { close(begun); <-ctx.Done(); return ctx.Err() }, begun)
	process(func(context.Context) error { close(shipped); return nil }, shipped)
	// Output:
	// order-17 pay
	// order-17 ship
	// stopped: <nil>
	// order-17 ship
	// stopped: <nil>
}

// Execute refuses a run before its NotBefore, with kahn.ErrNotDue.
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

// Export and Import copy a run to another store.
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

// The content of a file is encrypted, too. Another process restores the file with the codec's Contents.
func ExampleBlobs_Contents() {
	folder, err := os.MkdirTemp("", "files")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	key := bytes.Repeat([]byte{7}, 32) // a real host loads the key from its secret store
	codec := &store.Blobs{
		Codec: &store.Sealed{Codec: kahn.Types{}, Keys: map[string][]byte{"2026": key}, Current: "2026"},
		Store: new(store.MemoryBlobs),
	}
	path := filepath.Join(folder, "report.txt")
	_ = os.WriteFile(path, []byte("a report"), 0o600)
	file, err := kahn.File(path)
	if err != nil {
		panic(err)
	}
	if _, err := codec.Encode(file); err != nil { // as a run does with an output
		panic(err)
	}
	_ = os.Remove(path)
	fmt.Println(file.Restore(context.Background(), codec.Contents()))
	text, _ := os.ReadFile(path)
	fmt.Println(string(text))
	// Output:
	// <nil>
	// a report
}
