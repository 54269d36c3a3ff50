package kahn_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// Any process that knows the id of a failed run can redrive the run in its store. Completed steps are not called again.
func ExampleRedrive_store() {
	var s store.Memory // use a persistent store in a program, such as store/sqlite
	reachable := false
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "ship" && !reachable {
			return nil, errors.New("the carrier is out of reach")
		}
		fmt.Println(s.ID())
		return nil, nil
	}
	g := new(kahn.Graph).Add(kahn.Node{ID: "charge"}, kahn.Node{ID: "ship", After: []string{"charge"}}, kahn.Node{ID: "thank", After: []string{"ship"}})
	opts := []kahn.Option{kahn.Durable(&s), kahn.RunID("order-17")}

	_, err := kahn.Execute(context.Background(), g, step, opts...)
	fmt.Println(err)
	reachable = true
	res, err := kahn.Execute(context.Background(), g, step, append(opts, kahn.Redrive(nil, nil))...)
	fmt.Println(res.Status, err)
	// Output:
	// charge
	// run failed: node "ship": step_error: the carrier is out of reach
	// ship
	// thank
	// completed <nil>
}

// A fork repeats a part of a run as a new run. Here a step has changed.
func ExampleFork() {
	var s store.Memory
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		fmt.Println(s.RunID(), s.ID())
		return nil, nil
	}
	graph := func(model string) *kahn.Graph {
		return new(kahn.Graph).Add(kahn.Node{ID: "fetch"}, kahn.Node{ID: "summarise", After: []string{"fetch"}, Config: model}, kahn.Node{ID: "send", After: []string{"summarise"}})
	}
	ctx := context.Background()
	_, err := kahn.Execute(ctx, graph("small"), step, kahn.Durable(&s), kahn.RunID("monday"))
	fmt.Println(err)

	snapshot, err := kahn.ReadSnapshot(ctx, &s, "monday")
	fmt.Println(err)
	plan, err := graph("large").Compile()
	fmt.Println(err)
	fmt.Println(kahn.ForkPreview(plan, snapshot, nil))
	_, err = kahn.Execute(ctx, graph("large"), step, kahn.Durable(&s), kahn.RunID("tuesday"), kahn.Fork(snapshot))
	fmt.Println(err)
	// Output:
	// monday fetch
	// monday summarise
	// monday send
	// <nil>
	// <nil>
	// <nil>
	// [summarise send] <nil>
	// tuesday summarise
	// tuesday send
	// <nil>
}

// The store contains the events of a run. Their ids continue when the run is continued. Here the first call of Execute returns while the run waits
// for an answer, and the second call passes the answer.
func ExampleStoreEvents() {
	var s store.Memory // use a persistent store in a program, such as store/sqlite
	ctx := context.Background()
	g := new(kahn.Graph).Add(kahn.Node{ID: "draft"}, kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"draft"}})
	step := func(_ context.Context, step *kahn.Step) (any, error) {
		step.Emit("Dear customer")
		return nil, nil
	}
	last := uint64(0)
	for _, signals := range []map[string]any{nil, {"approve": "yes"}} {
		_, err := kahn.Execute(ctx, g, step, kahn.Durable(&s), kahn.RunID("letter-1"), kahn.StoreEvents(), kahn.EarlySignals(signals))
		if err != nil {
			fmt.Println(err)
			return
		}
		events, err := store.ReadEvents(ctx, &s, "letter-1", last, 0) // in any process
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, e := range events {
			fmt.Println(e.ID, e.Type)
			last = e.ID
		}
	}
	// Output:
	// 1 run.started
	// 2 node.queued
	// 3 node.started
	// 4 node.stream.delta
	// 5 node.completed
	// 6 node.suspended
	// 7 run.status.changed
	// 8 run.status.changed
	// 9 node.signalled
	// 10 node.completed
	// 11 run.completed
}

// A process answers a gate while no process performs the run. The process that continues the run takes the answer.
func ExamplePrepareSignal() {
	ctx, db := context.Background(), new(store.Memory)
	g := new(kahn.Graph).Add(kahn.Node{ID: "approve", Kind: kahn.KindGate}, kahn.Node{ID: "ship", After: []string{"approve"}})
	step := func(context.Context, *kahn.Step) (any, error) { return "shipped", nil }
	perform := func() {
		res, err := kahn.Execute(ctx, g, step, kahn.RunID("order-17"), kahn.Durable(db))
		fmt.Println(res.Status, err)
	}
	perform()

	q, err := kahn.PrepareSignal("approve", kahn.Decision{Value: "yes", Actor: "ann", ID: "message-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	posted, err := db.Post(ctx, "order-17", q)
	fmt.Println(posted, err)
	posted, err = db.Post(ctx, "order-17", q) // the message arrives twice
	fmt.Println(posted, err)

	perform()
	answered, err := db.FindRequest(ctx, "order-17", "message-1")
	fmt.Println(answered.Status, err)
	// Output:
	// suspended <nil>
	// true <nil>
	// false <nil>
	// completed <nil>
	// applied <nil>
}

// A process without the graph requests a redrive of the failed item.
func ExamplePrepareRedrive() {
	ctx, db := context.Background(), new(store.Memory)
	g := new(kahn.Graph).Add(kahn.Node{ID: "send", Map: &kahn.Map{Over: "letters"}, Params: map[string]any{"letters": []string{"ann", "bob", "eve"}}})
	known := map[string]bool{"ann": true, "eve": true}
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		to, err := kahn.Param[string](s, "item")
		if err == nil && !known[to] {
			return nil, errors.New("nobody knows " + to)
		}
		return "sent", err
	}
	perform := func() {
		res, err := kahn.Execute(ctx, g, step, kahn.RunID("letters-17"), kahn.Durable(db), kahn.Limit(1))
		if res != nil {
			fmt.Println(res.Status)
		}
		if errors.Is(err, kahn.ErrFinished) {
			fmt.Println("nothing is done")
		}
	}
	perform()

	known["bob"] = true
	for _, path := range []string{"send[7]", "send[1]"} {
		q, err := kahn.PrepareRedrive([]string{path}, kahn.Request{Actor: "ann"})
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := db.Post(ctx, "letters-17", q); err != nil {
			fmt.Println(err)
			return
		}
		perform()
		answered, err := db.FindRequest(ctx, "letters-17", q.ID)
		fmt.Println(answered.Status, answered.Refused, err)
	}
	// Output:
	// failed
	// nothing is done
	// refused unknown node: "send[7]": the map has 3 items, "send[0]" to "send[2]" <nil>
	// completed
	// applied  <nil>
}

// A run waits while a new version of its graph is deployed. It continues with the new version and keeps the results of unchanged nodes.
func ExampleAdopt() {
	var s store.Memory // use a persistent store in a program, such as store/sqlite
	ctx := context.Background()
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		fmt.Println(s.ID())
		return nil, nil
	}
	version := func(model string) *kahn.Graph {
		return (&kahn.Graph{Name: "letter"}).Add(kahn.Node{ID: "fetch"}, kahn.Node{ID: "draft", After: []string{"fetch"}, Config: model},
			kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"draft"}}, kahn.Node{ID: "send", After: []string{"approve"}})
	}
	opts := []kahn.Option{kahn.Durable(&s), kahn.RunID("letter-1")}
	_, err := kahn.Execute(ctx, version("small"), step, opts...)
	fmt.Println("waits", err)

	preview, err := kahn.Adopt(ctx, version("large"), &s, "letter-1")
	fmt.Println("keeps", preview.Keep, err)
	for _, n := range preview.Run {
		fmt.Println("runs", n.Node, n.Reason)
	}
	_, err = kahn.Execute(ctx, version("large"), step, append(opts, kahn.EarlySignals(map[string]any{"approve": "yes"}))...)
	fmt.Println(err)
	// Output:
	// fetch
	// draft
	// waits <nil>
	// keeps [fetch] <nil>
	// runs draft changed
	// runs approve no_result
	// runs send no_result
	// draft
	// send
	// <nil>
}

// The preview changes nothing.
func ExampleAdoptPreview() {
	var s store.Memory
	ctx := context.Background()
	step := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	version := func(nodes ...kahn.Node) *kahn.Graph {
		return (&kahn.Graph{Name: "letter"}).Add(kahn.Node{ID: "fetch"}, kahn.Node{ID: "ok", Kind: kahn.KindGate, After: []string{"fetch"}}).Add(nodes...)
	}
	_, err := kahn.Execute(ctx, version(kahn.Node{ID: "log", After: []string{"fetch"}}), step, kahn.Durable(&s), kahn.RunID("letter-1"))
	fmt.Println(err)
	snapshot, err := kahn.ReadSnapshot(ctx, &s, "letter-1")
	fmt.Println(err)
	plan, err := version().Compile()
	fmt.Println(err)
	preview, err := kahn.AdoptPreview(plan, snapshot)
	fmt.Println(preview.Keep, preview.Dropped, err)
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// [fetch] [log] <nil>
}

// A host that keeps the snapshots of its runs continues a run with a new version of its graph.
func ExampleAdoptSnapshot() {
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		fmt.Println(s.ID(), s.Config())
		return nil, nil
	}
	version := func(model string) *kahn.Graph {
		return (&kahn.Graph{Name: "letter"}).Add(kahn.Node{ID: "fetch"}, kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"fetch"}},
			kahn.Node{ID: "send", After: []string{"approve"}, Config: model})
	}
	res, err := kahn.Execute(context.Background(), version("by post"), step)
	fmt.Println(res.Status, err)

	adopt := kahn.AdoptSnapshot(res.Snapshot(), kahn.Request{Actor: "ann"})
	res, err = kahn.Execute(context.Background(), version("by mail"), step, adopt, kahn.EarlySignals(map[string]any{"approve": "yes"}))
	fmt.Println(res.Status, err)
	// Output:
	// fetch <nil>
	// suspended <nil>
	// send by mail
	// completed <nil>
}

func ExampleReadRun() {
	db := new(store.Memory)
	var g kahn.Graph
	g.Add(kahn.Node{ID: "draft", Do: func(context.Context, *kahn.Step) (any, error) { return "text", nil }}, kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"draft"}})
	_, _ = kahn.Execute(context.Background(), &g, nil, kahn.Durable(db), kahn.RunID("7"))

	run, err := kahn.ReadRun(context.Background(), db, "7")
	fmt.Println(run.Status, run.Counts[kahn.Completed], run.Waiting[0].Node, err)
	// Output: suspended 1 approve <nil>
}
