package kahn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// letter is a graph with a gate between two steps.
func letter() *kahn.Graph {
	return (&kahn.Graph{Name: "letter"}).Add(
		kahn.Node{ID: "draft"},
		kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"draft"}},
		kahn.Node{ID: "send", After: []string{"approve"}},
	)
}

// The run is in a store. The second call continues where the first call ended, in the same process or in another process.
func ExampleDurable() {
	var db store.Memory // use a persistent store in a program, such as store/sqlite
	ctx := context.Background()
	options := []kahn.Option{kahn.Durable(&db), kahn.RunID("letter-7")}
	res, err := kahn.Execute(ctx, letter(), printID, options...)
	fmt.Println(res.Status, err)
	res, err = kahn.Execute(ctx, letter(), printID, append(options, kahn.EarlySignals(map[string]any{"approve": true}))...)
	fmt.Println(res.Status, err)
	// Output:
	// draft
	// suspended <nil>
	// send
	// completed <nil>
}

// The answer is given before the run reaches the gate.
func ExampleEarlySignals() {
	res, err := kahn.Execute(context.Background(), letter(), printID, kahn.EarlySignals(map[string]any{"approve": kahn.Decision{Value: true, Actor: "Ada"}}))
	fmt.Println(res.Status, err)
	approve, _ := res.Node("approve")
	fmt.Println(approve.Decision.Actor)
	// Output:
	// draft
	// send
	// completed <nil>
	// Ada
}

// A web server stores a run, and a worker performs it later, in the same or another process.
func ExamplePrepare() {
	var db store.Memory
	ctx := context.Background()
	n, err := kahn.Prepare(letter(), kahn.RunID("letter-7"), kahn.Describe(store.Spec{Labels: map[string]string{"tenant": "acme"}}))
	fmt.Println(err)
	stored, created, err := db.Create(ctx, n)
	fmt.Println(stored.Status, created, err)

	res, err := kahn.Execute(ctx, letter(), printID, kahn.RunID("letter-7"), kahn.Durable(&db)) // the worker
	fmt.Println(res.Status, err)
	// Output:
	// <nil>
	// pending true <nil>
	// draft
	// suspended <nil>
}

// Runs can be found by their labels.
func ExampleDescribe() {
	var db store.Memory
	ctx := context.Background()
	for id, tenant := range map[string]string{"letter-7": "acme", "letter-8": "globex"} {
		if _, err := kahn.Execute(ctx, letter(), nothing, kahn.RunID(id), kahn.Durable(&db), kahn.Describe(store.Spec{Labels: map[string]string{"tenant": tenant}})); err != nil {
			fmt.Println(err)
		}
	}
	page, err := db.List(ctx, store.Query{Filter: store.Filter{Labels: map[string]string{"tenant": "acme"}}})
	for _, r := range page.Runs {
		fmt.Println(r.ID, r.Status)
	}
	fmt.Println(err)
	// Output:
	// letter-7 suspended
	// <nil>
}

// The due runs of different tenants take turns, so a tenant with one run does not wait for all runs of another tenant.
func ExampleRunKey() {
	var db store.Memory
	ctx := context.Background()
	g := (&kahn.Graph{Name: "report"}).Add(kahn.Node{ID: "write", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		fmt.Println(s.RunID())
		return nil, nil
	}}, kahn.Node{ID: "end", After: []string{"write"}})
	create := func(id, tenant string, priority int) {
		n, err := kahn.Prepare(g, kahn.RunID(id), kahn.RunKey(tenant), kahn.RunPriority(priority))
		if err == nil {
			_, _, err = db.Create(ctx, n)
		}
		if err != nil {
			fmt.Println(err)
		}
	}
	for i := range 3 {
		create(fmt.Sprint("acme-", i), "acme", 0)
	}
	create("globex-0", "globex", 0)
	create("acme-urgent", "acme", 1)

	runner := &kahn.Runner{MaxRuns: 1}
	over := make(chan error)
	go func() {
		over <- runner.Serve(ctx, kahn.Service{Store: &db, KeyRuns: 2, Workflows: []kahn.Workflow{{Graph: g, Step: nothing}}})
	}()
	for done := 0; done < 5; time.Sleep(time.Millisecond) {
		page, err := db.List(ctx, store.Query{Filter: store.Filter{Statuses: []kahn.RunStatus{kahn.RunCompleted}}})
		if err != nil {
			fmt.Println(err)
		}
		done = len(page.Runs)
	}
	fmt.Println(runner.Shutdown(ctx), <-over)
	// Output:
	// acme-urgent
	// globex-0
	// acme-0
	// acme-1
	// acme-2
	// <nil> <nil>
}

// Two processes, each with its own Runner, together run one step of a tenant at a time.
func ExampleShared() {
	var db store.Memory
	ctx := context.Background()
	var at, most atomic.Int64
	g := &kahn.Graph{Name: "calls"}
	for i := range 5 {
		g.Add(kahn.Node{ID: fmt.Sprint("call-", i), Key: "acme"})
	}
	call := func(context.Context, *kahn.Step) (any, error) {
		most.Store(max(most.Load(), at.Add(1)))
		defer at.Add(-1)
		return nil, nil
	}
	var processes sync.WaitGroup
	for range 2 {
		runner := &kahn.Runner{Shared: &kahn.Shared{Store: &db, KeyLimit: 1}}
		processes.Go(func() {
			if _, err := runner.Execute(ctx, g, call); err != nil {
				fmt.Println(err)
			}
			if err := runner.Shutdown(ctx); err != nil { // releases the grants
				fmt.Println(err)
			}
		})
	}
	processes.Wait()
	fmt.Println("at once:", most.Load())
	// Output: at once: 1
}

// Of a tenant's due runs, the run with the highest priority begins first.
func ExampleRunPriority() {
	var db store.Memory
	ctx := context.Background()
	for i, priority := range []int{-5, 0, 10} {
		n, err := kahn.Prepare(letter(), kahn.RunID(fmt.Sprint("letter-", i)), kahn.RunKey("acme"), kahn.RunPriority(priority))
		if err == nil {
			_, _, err = db.Create(ctx, n)
		}
		if err != nil {
			fmt.Println(err)
		}
	}
	p, err := letter().Compile()
	if err != nil {
		fmt.Println(err)
	}
	page, err := db.Due(ctx, store.DueQuery{Queues: []store.Queue{{Workflow: p.Name(), Plan: p.Hash()}}})
	for _, r := range page.Runs {
		fmt.Println(r.ID, r.Key, r.Priority)
	}
	fmt.Println(err)
	// Output:
	// letter-2 acme 10
	// letter-1 acme 0
	// letter-0 acme -5
	// <nil>
}

// A step starts another run, whose Parent is the run of the step.
func ExampleDescribe_parent() {
	var db store.Memory
	g := new(kahn.Graph).Add(kahn.Node{ID: "ask", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
		_, err := kahn.Execute(ctx, letter(), nothing, kahn.RunID("letter-7"), kahn.Describe(store.Spec{Parent: s.RunID()}), kahn.Durable(&db))
		return nil, err
	}})
	_, err := kahn.Execute(context.Background(), g, nil, kahn.RunID("case-1"), kahn.Durable(&db))
	fmt.Println(err)
	page, err := db.List(context.Background(), store.Query{Filter: store.Filter{Parent: "case-1"}})
	fmt.Println(page.Runs[0].ID, err)
	// Output:
	// <nil>
	// letter-7 <nil>
}

// The Result of an ended run can be read in another process, at any later time.
func ExampleReadResult() {
	var db store.Memory
	ctx := context.Background()
	g := new(kahn.Graph).Add(kahn.Node{ID: "count"})
	_, err := kahn.Execute(ctx, g, gives(20), kahn.RunID("r1"), kahn.Durable(&db))
	fmt.Println(err)
	res, err := kahn.ReadResult(ctx, g, &db, "r1")
	fmt.Println(res.Status, res.Output(), err)
	_, err = kahn.ReadResult(ctx, g, &db, "r2")
	fmt.Println(errors.Is(err, kahn.ErrUnknownRun))
	// Output:
	// <nil>
	// completed 20 <nil>
	// true
}

// A process inspects a run that another process performs.
func ExampleReadSnapshot() {
	var db store.Memory
	ctx := context.Background()
	_, err := kahn.Execute(ctx, letter(), nothing, kahn.RunID("letter-7"), kahn.Durable(&db))
	fmt.Println(err)
	snapshot, err := kahn.ReadSnapshot(ctx, &db, "letter-7")
	fmt.Println(err)
	plan, err := letter().Compile()
	fmt.Println(err)
	nodes, err := snapshot.Nodes(plan)
	for _, n := range nodes {
		fmt.Println(n.ID, n.Status)
	}
	fmt.Println(err)
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// draft completed
	// approve suspended
	// send waiting
	// <nil>
}

// Values of the host's own types keep their types in the store, since the types are registered.
func ExampleEncoding() {
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "place", Do: gives(url.URL{Scheme: "https", Host: "example.org"})},
		kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"place"}},
		kahn.Node{ID: "visit", After: []string{"approve"}, In: []kahn.Edge{{From: "place", Param: "url"}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			place, err := kahn.Param[url.URL](s, "url")
			return place.Host, err
		}},
	)
	var db store.Memory
	options := []kahn.Option{kahn.Durable(&db), kahn.RunID("r1"), kahn.Encoding(kahn.Types{"url": url.URL{}})}
	res, err := kahn.Execute(context.Background(), g, nil, options...)
	fmt.Println(res.Status, err)
	res, err = kahn.Execute(context.Background(), g, nil, append(options, kahn.EarlySignals(map[string]any{"approve": true}))...)
	visit, _ := res.Node("visit")
	fmt.Println(visit.Output, err)
	// Output:
	// suspended <nil>
	// example.org <nil>
}

// A library that runs graphs for its callers registers its types with Types. A caller may replace them with Encoding.
func ExampleTypes() {
	g := letter()
	g.Add(kahn.Node{ID: "place", Do: gives(url.URL{Host: "example.org"})})
	res, err := kahn.Execute(context.Background(), g, nothing, kahn.Types{"url": url.URL{}})
	fmt.Println(err)
	_, err = json.Marshal(res.Snapshot())
	fmt.Println(err)
	res, err = kahn.Execute(context.Background(), g, nothing)
	fmt.Println(err)
	_, err = json.Marshal(res.Snapshot())
	fmt.Println(errors.Is(err, kahn.ErrNotEncodable))
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// true
}

// A new version of the program has an additional node. Runs of the old version continue only if the host allows it.
func ExampleAllowGraphChange() {
	ctx := context.Background()
	res, err := kahn.Execute(ctx, letter(), nothing)
	fmt.Println(err)
	changed := letter()
	changed.Add(kahn.Node{ID: "file", After: []string{"send"}})
	signals := map[string]any{"approve": true}
	_, err = kahn.Execute(ctx, changed, printID, kahn.Resume(res.Snapshot()), kahn.EarlySignals(signals))
	fmt.Println(errors.Is(err, kahn.ErrGraphChanged), strings.Contains(err.Error(), `workflow "letter"`))
	res, err = kahn.Execute(ctx, changed, printID, kahn.AllowGraphChange(), kahn.Resume(res.Snapshot()), kahn.EarlySignals(signals))
	fmt.Println(res.Status, err)
	// Output:
	// <nil>
	// true true
	// send
	// file
	// completed <nil>
}

// Two processes cannot perform the same run at the same time.
func ExampleLease() {
	var db store.Memory
	ctx := context.Background()
	run, err := kahn.Start(ctx, letter(), nothing, kahn.RunID("letter-7"), kahn.Durable(&db), kahn.Lease("worker-1", 0))
	fmt.Println(err)
	_, err = kahn.Execute(ctx, letter(), nothing, kahn.RunID("letter-7"), kahn.Durable(&db), kahn.Lease("worker-2", 0))
	fmt.Println(errors.Is(err, kahn.ErrLeased))
	run.Leave()
	_, err = run.Wait()
	fmt.Println(err)
	// Output:
	// <nil>
	// true
	// <nil>
}

// broken returns a step function that fails the step "upload" once.
func broken() kahn.StepFunc {
	failed := false
	return func(_ context.Context, s *kahn.Step) (any, error) {
		fmt.Println(s.ID())
		if s.ID() == "upload" && !failed {
			failed = true
			return nil, errors.New("the disk is full")
		}
		return nil, nil
	}
}

// The report tolerates the failure of the upload and has completed. The redrive keeps the report.
func ExampleKeepDescendants() {
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "upload"},
		kahn.Node{ID: "report", After: []string{"upload"}, Join: kahn.AllDone},
		kahn.Node{ID: "notify", After: []string{"upload"}},
	)
	step := broken()
	res, err := kahn.Execute(context.Background(), g, step)
	fmt.Println(err)
	res, err = kahn.Execute(context.Background(), g, step, kahn.KeepDescendants, kahn.Redrive(res.Snapshot(), nil))
	fmt.Println(res.Status, err)
	// Output:
	// upload
	// report
	// run failed: node "upload": step_error: the disk is full
	// upload
	// notify
	// completed <nil>
}

// The redrive of a map performs only the failed items. With Anew it performs all items.
func ExampleAnew() {
	mended := false
	g := new(kahn.Graph).Add(kahn.Node{ID: "send", Map: &kahn.Map{Over: "to"}, Params: map[string]any{"to": []string{"ann", "bob", "cy"}},
		Do: func(_ context.Context, s *kahn.Step) (any, error) {
			fmt.Println(s.Path())
			if s.Index() == 1 && !mended {
				return nil, errors.New("no such mailbox")
			}
			return nil, nil
		}})
	res, _ := kahn.Execute(context.Background(), g, nil, kahn.Limit(1))
	mended = true
	failed := res.Snapshot()
	fmt.Println("again:")
	_, err := kahn.Execute(context.Background(), g, nil, kahn.Limit(1), kahn.Redrive(failed, nil))
	fmt.Println(err)
	_, err = kahn.Execute(context.Background(), g, nil, kahn.Limit(1), kahn.Redrive(failed, []string{"send"}), kahn.Anew)
	fmt.Println(err)
	// Output:
	// send[0]
	// send[1]
	// send[2]
	// again:
	// send[1]
	// <nil>
	// send[0]
	// send[1]
	// send[2]
	// <nil>
}

// The goods could not be sent, and the payment was refunded. The redrive is refused, since sending the goods now would give them away. With the
// option DespiteHandlers the host confirms that it has considered this.
func ExampleDespiteHandlers() {
	mended := false
	ship := func(context.Context, *kahn.Step) (any, error) {
		if !mended {
			return nil, errors.New("no carrier")
		}
		return "sent", nil
	}
	done := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "charge", Do: done},
		kahn.Node{ID: "ship", After: []string{"charge"}, Do: ship},
		kahn.Node{ID: "refund", In: []kahn.Edge{{From: "ship", On: kahn.OnFailure}}, Do: done},
	)
	res, _ := kahn.Execute(context.Background(), g, nil)
	mended = true
	_, err := kahn.Execute(context.Background(), g, nil, kahn.Redrive(res.Snapshot(), nil))
	fmt.Println(errors.Is(err, kahn.ErrHandlers))
	res, err = kahn.Execute(context.Background(), g, nil, kahn.Redrive(res.Snapshot(), nil), kahn.DespiteHandlers)
	refund, _ := res.Node("refund")
	fmt.Println(res.Status, refund.Status, err)
	// Output:
	// true
	// completed skipped <nil>
}

// A preview lists the nodes that a redrive would run again, and says why the redrive would be refused.
func ExampleRedrivePreview() {
	bad := func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("no carrier") }
	done := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	g := new(kahn.Graph).Add(kahn.Node{ID: "ship", Do: bad}, kahn.Node{ID: "refund", In: []kahn.Edge{{From: "ship", On: kahn.OnFailure}}, Do: done})
	plan, err := g.Compile()
	if err != nil {
		panic(err)
	}
	res, _ := plan.Execute(context.Background(), nil)
	nodes, err := kahn.RedrivePreview(plan, res.Snapshot(), nil)
	fmt.Println(nodes, errors.Is(err, kahn.ErrHandlers))
	// Output: [ship refund] true
}

// A Request names who requests the redrive, and the reason.
func ExampleRequest() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "extract"}, kahn.Node{ID: "upload", After: []string{"extract"}})
	step := broken()
	res, err := kahn.Execute(context.Background(), g, step)
	fmt.Println(err)
	res, err = kahn.Execute(context.Background(), g, step, kahn.Redrive(res.Snapshot(), nil, kahn.Request{Actor: "Ada", Reason: "the disk is larger now"}))
	fmt.Println(res.Status, res.RedriveRequest, err)
	// Output:
	// extract
	// upload
	// run failed: node "upload": step_error: the disk is full
	// upload
	// completed by "Ada" because "the disk is larger now" <nil>
}

// A service performs its runs in a Runner, which limits their number and lists them. When the service stops, the Runner leaves the runs.
func ExampleRunner() {
	ctx := context.Background()
	runner := kahn.Runner{MaxRuns: 10, Options: []kahn.Option{kahn.Limit(4)}}
	for _, id := range []string{"letter-7", "letter-8"} {
		if _, err := runner.Start(ctx, letter(), nothing, kahn.RunID(id)); err != nil {
			fmt.Println(err)
		}
	}
	run, _ := runner.Run("letter-8")
	fmt.Println(run.Signal(context.Background(), "approve", true))
	_, err := run.Wait()
	fmt.Println(err)
	fmt.Println(runner.Shutdown(ctx))
	for run := range runner.Runs() {
		fmt.Println(run.ID(), run.Status())
	}
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// letter-7 suspended
	// letter-8 completed
}

// The same request arrives twice, but the order is charged once.
func ExampleIdempotent() {
	var requests kahn.IdempotencyStore
	g := &kahn.Graph{Name: "order"}
	g.Add(kahn.Node{ID: "charge"})
	for range 2 {
		res, err := kahn.Execute(context.Background(), g, printID, kahn.Idempotent(&requests, "request-17"))
		fmt.Println(res.Status, err)
	}
	// Output:
	// charge
	// completed <nil>
	// completed <nil>
}

// Equal inputs result in equal keys, in any order of their fields.
func ExampleIdempotencyKey() {
	a, err := kahn.IdempotencyKey("order", map[string]any{"item": "apple", "count": 2})
	fmt.Println(len(a), err)
	b, err := kahn.IdempotencyKey("order", map[string]any{"count": 2.0, "item": "apple"})
	fmt.Println(a == b, err)
	// Output:
	// 64 <nil>
	// true <nil>
}

// The output of an expensive step depends only on the content of a file. While the content is the same, the step is not called again.
func ExampleFile() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	name := filepath.Join(dir, "in.txt")
	write := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	g := new(kahn.Graph).Add(kahn.Node{ID: "count", Memo: "v1", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		file, err := kahn.Root[kahn.FileRef](s, "file")
		if err != nil {
			return nil, err
		}
		text, err := file.Content()
		fmt.Println("counting")
		return len(text), err
	}})
	memo := new(kahn.Memo)
	for _, text := range []string{"five!", "five!", "sixsix"} {
		write(text) // the content is the same the second time
		file, err := kahn.File(name)
		if err != nil {
			log.Fatal(err)
		}
		res, err := kahn.Execute(context.Background(), g, nil, memo, kahn.Inputs(map[string]any{"file": file}))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Output())
	}
	if err := os.RemoveAll(dir); err != nil {
		log.Fatal(err)
	}
	// Output:
	// counting
	// 5
	// 5
	// counting
	// 6
}

func ExampleMemo() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "embed", Memo: "v1", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		text, err := kahn.Root[string](s, "text")
		fmt.Println("embed", text)
		return len(text), err
	}})
	var memo kahn.Memo
	for i, text := range []string{"a cat", "a dog", "a cat"} {
		res, err := kahn.Execute(context.Background(), g, nil, &memo, kahn.Inputs(map[string]any{"text": text, "request": i}))
		embed, _ := res.Node("embed")
		fmt.Println(text, embed.Memoized, err)
	}
	// Output:
	// embed a cat
	// a cat false <nil>
	// embed a dog
	// a dog false <nil>
	// a cat true <nil>
}

// The code that the steps use was fixed, so the run calls all steps again.
func ExampleRefresh() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "embed", Memo: "v1"})
	var memo kahn.Memo
	for _, opts := range [][]kahn.Option{{&memo}, {&memo}, {&memo, kahn.Refresh()}} {
		_, err := kahn.Execute(context.Background(), g, printID, opts...)
		fmt.Println(err)
	}
	// Output:
	// embed
	// <nil>
	// <nil>
	// embed
	// <nil>
}

// A host moves a State that it drives to another process.
func ExampleRestoreState() {
	plan, err := new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}}).Compile()
	fmt.Println(err)
	st, err := kahn.NewState(plan)
	fmt.Println(err)
	a, _ := st.Next()
	fmt.Println(st.Settle(a.Token, machine.Outcome{Status: kahn.Completed}))
	data, err := json.Marshal(st.Snapshot())
	fmt.Println(err)

	var snapshot machine.StateSnapshot
	fmt.Println(json.Unmarshal(data, &snapshot))
	st, err = kahn.RestoreState(plan, snapshot)
	fmt.Println(err)
	b, ok := st.Next()
	fmt.Println(plan.ID(b.Ref), ok)
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// <nil>
	// <nil>
	// <nil>
	// b true
}

func ExampleHistory() {
	g := &kahn.Graph{Name: "nightly"}
	g.Add(kahn.Node{ID: "quick"}, kahn.Node{ID: "slow"})
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "slow" {
			time.Sleep(20 * time.Millisecond)
		}
		fmt.Println(s.ID())
		return nil, nil
	}
	var history kahn.History
	for range 2 { // the second run has learned which node takes long, and begins with this node
		if _, err := kahn.Execute(context.Background(), g, step, kahn.Limit(1), &history); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// quick
	// slow
	// slow
	// quick
}

// With a History, or with declared durations as here, a run knows about how long it will take.
func ExampleRun_Forecast() {
	g := &kahn.Graph{Name: "nightly"}
	g.Add(kahn.Node{ID: "load", Estimate: 20 * time.Minute}, kahn.Node{ID: "check", Estimate: 5 * time.Minute}, kahn.Node{ID: "report", Estimate: 10 * time.Minute, After: []string{"load", "check"}})
	run, err := kahn.Start(context.Background(), g, func(ctx context.Context, _ *kahn.Step) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if forecast, ok := run.Forecast(); ok {
		fmt.Println("about", forecast.Left.Round(time.Minute), "left")
	}
	load, ok := run.Estimate("load")
	fmt.Println(load, ok)
	run.Cancel()
	_, _ = run.Wait() // it was cancelled
	// Output:
	// about 30m0s left
	// 20m0s true
}
