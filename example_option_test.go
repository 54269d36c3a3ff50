package kahn_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// printID is a step function that prints the ids of the nodes that it performs.
func printID(_ context.Context, s *kahn.Step) (any, error) {
	fmt.Println(s.ID())
	return nil, nil
}

func ExampleBudget() {
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "draft"},
		kahn.Node{ID: "polish", After: []string{"draft"}},
		kahn.Node{ID: "send", After: []string{"polish"}},
	)
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		s.Use("cents", 3)
		return s.ID(), nil
	}
	res, err := kahn.Execute(context.Background(), g, step, kahn.Budget(func(used kahn.Usage) error {
		if used["cents"] > 5 {
			return fmt.Errorf("%v cents of 5", used["cents"])
		}
		return nil
	}))
	fmt.Println(res.Cause.Kind, errors.Is(err, kahn.ErrBudget), res.Cause.Err)
	fmt.Println(res.Usage())
	// Output:
	// budget true over budget: 6 cents of 5
	// map[cents:6]
}

func ExampleExecute() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "build"}, kahn.Node{ID: "test", After: []string{"build"}})
	res, err := kahn.Execute(context.Background(), g, printID)
	fmt.Println(res.Status, err)
	// Output:
	// build
	// test
	// completed <nil>
}

// Start returns at once. The caller then waits for the run.
func ExampleStart() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "build"}, kahn.Node{ID: "test", After: []string{"build"}})
	ctx := context.Background()
	run, err := kahn.Start(ctx, g, nothing)
	if err != nil {
		fmt.Println(err)
		return
	}
	for e, err := range run.Events(ctx, 0) {
		fmt.Println(e.ID, e.Type, e.Node, err)
	}
	res, err := run.Wait()
	fmt.Println(res.Status, err)
	// Output:
	// 1 run.started  <nil>
	// 2 node.queued build <nil>
	// 3 node.started build <nil>
	// 4 node.completed build <nil>
	// 5 node.queued test <nil>
	// 6 node.started test <nil>
	// 7 node.completed test <nil>
	// 8 run.completed  <nil>
	// completed <nil>
}

// The branch is the label that the function returns.
func ExampleSwitch() {
	g := new(kahn.Graph).Add(
		kahn.Switch("size", func(v kahn.View) (string, error) {
			n, _ := v.Root("bytes")
			if n.(int) > 1000 {
				return "large", nil
			}
			return "small", nil
		}),
		kahn.Node{ID: "split", In: []kahn.Edge{{From: "size", Label: "large"}}},
		kahn.Node{ID: "send", In: []kahn.Edge{{From: "size", Label: "default"}}},
	)
	for _, n := range []int{10, 5000} {
		_, err := kahn.Execute(context.Background(), g, printID, kahn.Inputs(map[string]any{"bytes": n}))
		fmt.Println(err)
	}
	// Output:
	// send
	// <nil>
	// split
	// <nil>
}

// Two of three replicas are enough.
func ExampleAtLeast() {
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "Oslo", Do: nothing}, kahn.Node{ID: "Rome", Do: failsWith(errors.New("out of reach"))}, kahn.Node{ID: "Lima", Do: nothing},
		kahn.Node{ID: "acknowledge", Join: kahn.AtLeast(2), After: []string{"Oslo", "Rome", "Lima"}},
	)
	res, err := kahn.Execute(context.Background(), g, printID)
	fmt.Println(res.Status, res.Degraded, err)
	// Output:
	// acknowledge
	// completed true <nil>
}

func ExampleInputs() {
	g := &kahn.Graph{Inputs: []kahn.Input{{Name: "city"}}}
	g.Add(kahn.Node{ID: "forecast", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		city, _ := s.Param("city")
		return fmt.Sprint("rain in ", city), nil
	}})
	res, err := kahn.Execute(context.Background(), g, nil, kahn.Inputs(map[string]any{"city": "Oslo"}))
	fmt.Println(res.Output(), err)
	_, err = kahn.Execute(context.Background(), g, nil, kahn.Inputs(map[string]any{"town": "Oslo"}))
	fmt.Println(errors.Is(err, kahn.ErrUnknownInput))
	// Output:
	// rain in Oslo <nil>
	// true
}

// Steps get copies of root inputs and outputs, so no step sees changes that another step makes.
func ExampleCloneInputs() {
	change := func(_ context.Context, s *kahn.Step) (any, error) {
		list, err := kahn.Root[[]int](s, "list")
		if err == nil {
			list[0]++
		}
		return list[0], err
	}
	g := new(kahn.Graph).Add(kahn.Node{ID: "a", Do: change}, kahn.Node{ID: "b", Do: change})
	clone := func(v any) any {
		if list, ok := v.([]int); ok {
			return slices.Clone(list)
		}
		return v
	}
	res, err := kahn.Execute(context.Background(), g, nil, kahn.Inputs(map[string]any{"list": []int{1, 2}}), kahn.CloneInputs(clone))
	fmt.Println(res.Output(), err)
	// Output: map[a:2 b:2] <nil>
}

// If the host lacks a kind of the graph, Execute returns an error before the run starts.
func ExampleKinds() {
	host := kahn.Mux{"build": nothing, "test": nothing}
	g := new(kahn.Graph).Add(kahn.Node{ID: "a", Kind: "build"}, kahn.Node{ID: "b", Kind: "tset", After: []string{"a"}})
	_, err := kahn.Execute(context.Background(), g, host.Step, kahn.Kinds(host))
	fmt.Println(err)
	// Output: invalid graph: node "b": unknown kind: "tset"; did you mean "test"? (there is "build", "test")
}

// With one slot, the ready nodes run one after the other, nodes with the highest priority first.
func ExampleLimit() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", Priority: 1}, kahn.Node{ID: "c", Priority: 2})
	_, err := kahn.Execute(context.Background(), g, printID, kahn.Limit(1))
	fmt.Println(err)
	// Output:
	// c
	// b
	// a
	// <nil>
}

// All nodes with the same key share a limit, for example all nodes that use the same database.
func ExampleKeyLimit() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "orders", Key: "db"}, kahn.Node{ID: "customers", Key: "db"}, kahn.Node{ID: "invoices", Key: "db"})
	_, err := kahn.Execute(context.Background(), g, printID, kahn.KeyLimit(1))
	fmt.Println(err)
	// Output:
	// orders
	// customers
	// invoices
	// <nil>
}

// The members of a group share a limit. A node in several groups waits until all of them have a free slot.
func ExampleGroup() {
	g := &kahn.Graph{Groups: []kahn.Group{{Name: "licence", Limit: 1}}}
	g.Add(kahn.Node{ID: "render", Groups: []string{"licence"}}, kahn.Node{ID: "encode", Groups: []string{"licence"}})
	_, err := kahn.Execute(context.Background(), g, printID)
	fmt.Println(err)
	// Output:
	// render
	// encode
	// <nil>
}

// At most 100 attempts start per second, evenly spaced.
func ExampleRate() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "c"})
	res, err := kahn.Execute(context.Background(), g, nothing, kahn.Rate{Starts: 100, Per: time.Second})
	fmt.Println(res.Duration >= 20*time.Millisecond, err)
	// Output: true <nil>
}

// The key of each node is a host, and each host gets at most 100 requests per second.
func ExampleKeyRate() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "a", Key: "example.org"}, kahn.Node{ID: "b", Key: "example.org"}, kahn.Node{ID: "c", Key: "example.com"})
	res, err := kahn.Execute(context.Background(), g, nothing, kahn.KeyRate(kahn.Rate{Starts: 100, Per: time.Second}))
	fmt.Println(res.Duration >= 10*time.Millisecond, err)
	// Output: true <nil>
}

func ExampleTimeout() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "search", Do: untilStopped}, kahn.Node{ID: "answer", After: []string{"search"}, Do: nothing})
	res, err := kahn.Execute(context.Background(), g, nil, kahn.Timeout(5*time.Millisecond))
	fmt.Println(res.Status, res.Cause.Kind, errors.Is(err, kahn.ErrRunTimeout))
	// Output: failed run_timeout true
}

// Cleanup nodes also run when the run is stopped, but for a limited time.
func ExampleCleanupTimeout() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "work", Do: nothing}, kahn.Node{ID: "unlock", Cleanup: true, After: []string{"work"}, Do: untilStopped})
	res, _ := kahn.Execute(context.Background(), g, nil, kahn.CleanupTimeout(5*time.Millisecond))
	unlock, _ := res.Node("unlock")
	fmt.Println(unlock.Status, unlock.Cause.Kind)
	// Output: failed timeout
}

// When its context ends, a durable run is left and can continue later. With CancelWithContext it is cancelled instead.
func ExampleCancelWithContext() {
	db := new(store.Memory)
	var end context.CancelFunc
	var g kahn.Graph
	g.Add(kahn.Node{ID: "wait", Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
		end() // in a program, Ctrl-C ends the context: see signal.NotifyContext
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	execute := func(opts ...kahn.Option) (*kahn.Result, error) {
		var ctx context.Context
		ctx, end = context.WithCancel(context.Background())
		defer end()
		return kahn.Execute(ctx, &g, nil, append(opts, kahn.Durable(db), kahn.RunID("7"))...)
	}
	res, err := execute()
	fmt.Println(res.Status, errors.Is(err, kahn.ErrLeft))
	res, err = execute(kahn.CancelWithContext())
	fmt.Println(res.Status, errors.Is(err, kahn.ErrLeft))
	// Output:
	// suspended true
	// cancelled false
}

// A step that ignores the end of its context is abandoned, and the Result names it.
func ExampleCancelGrace() {
	end := make(chan struct{})
	defer close(end)
	g := new(kahn.Graph).Add(kahn.Node{ID: "deaf", Timeout: time.Millisecond, Do: func(context.Context, *kahn.Step) (any, error) {
		<-end
		return nil, nil
	}})
	res, _ := kahn.Execute(context.Background(), g, nil, kahn.CancelGrace(time.Millisecond))
	fmt.Println(res.Status, res.Abandoned)
	// Output: failed [deaf]
}

// The option sets the policy of all nodes that have no policy, in graphs that have no default.
func ExampleRetry_option() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "call", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		if s.Attempt() < 3 {
			return nil, errors.New("connection refused")
		}
		return s.Attempt(), nil
	}})
	res, err := kahn.Execute(context.Background(), g, nil, kahn.Retry{MaxAttempts: 5, InitialDelay: -1})
	fmt.Println(res.Output(), err)
	// Output: 3 <nil>
}

func ExampleRetryStandard() {
	policy := kahn.RetryStandard()
	for attempt := 1; attempt <= 3; attempt++ {
		delay, refused := policy.Next(attempt, kahn.CauseTimeout, nil, 0)
		fmt.Println(delay, refused == 0)
	}
	// Output:
	// 1s true
	// 2s true
	// 0s false
}

// The last argument of Next is the random number from which the jitter is computed.
func ExampleRetryJittered() {
	policy := kahn.RetryJittered(10)
	for _, u := range []float64{0, 0.5, 0.999} {
		delay, _ := policy.Next(3, kahn.CauseTimeout, nil, u)
		fmt.Println(delay.Round(10 * time.Millisecond))
	}
	// Output:
	// 1s
	// 1.5s
	// 2s
}

// With fixed numbers instead of random ones, the jitter is the same in each run.
func ExampleRandom() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "call", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 8 * time.Millisecond}, Do: failsWith(errors.New("no luck"))})
	res, _ := kahn.Execute(context.Background(), g, nil, kahn.Random(func() float64 { return 0.5 }))
	call, _ := res.Node("call")
	fmt.Println(call.History()[0].Delay)
	// Output: 6ms
}

// The second run starts with the node that took longest in the first run.
func ExampleEstimates() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "quick"}, kahn.Node{ID: "slow"})
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "slow" {
			time.Sleep(200 * time.Millisecond) // longer than any delay on a busy machine
		}
		fmt.Println(s.ID())
		return nil, nil
	}
	first, err := kahn.Execute(context.Background(), g, step, kahn.Limit(1))
	fmt.Println(err)
	_, err = kahn.Execute(context.Background(), g, step, kahn.Limit(1), kahn.Estimates(first))
	fmt.Println(err)
	// Output:
	// quick
	// slow
	// <nil>
	// slow
	// quick
	// <nil>
}

// A run that lasts for days keeps only its last events. A reader that is too late gets an error.
func ExampleRetain() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "build"}, kahn.Node{ID: "test", After: []string{"build"}})
	ctx := context.Background()
	run, err := kahn.Start(ctx, g, nothing, kahn.Retain(2))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = run.Wait()
	for e, err := range run.Events(ctx, 0) {
		fmt.Println(e.Type, err)
	}
	first, last := run.EventRange()
	for e, err := range run.Events(ctx, first-1) {
		fmt.Println(e.ID, "of", last, e.Type, err)
	}
	// Output:
	//  events 1 to 6 are no longer kept
	// 7 of 8 node.completed <nil>
	// 8 of 8 run.completed <nil>
}

// Each event contains the ids of the run and of its trace.
func ExampleTraceID() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "build", Disabled: true})
	print := func(e kahn.Event) { fmt.Println(e.RunID, e.TraceID, e.Type) }
	_, err := kahn.Execute(context.Background(), g, nil, kahn.RunID("build-7"), kahn.TraceID("4bf92f3577b34da6a3ce929d0e0e4736"), kahn.OnEvent(print))
	fmt.Println(err)
	// Output:
	// build-7 4bf92f3577b34da6a3ce929d0e0e4736 run.started
	// build-7 4bf92f3577b34da6a3ce929d0e0e4736 node.skipped
	// build-7 4bf92f3577b34da6a3ce929d0e0e4736 run.completed
	// <nil>
}

// The host names the run, so that it can find the run in logs, in a store, or in a Runner.
func ExampleRunID() {
	res, err := kahn.Execute(context.Background(), new(kahn.Graph).Add(kahn.Node{ID: "build", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		return "build of " + s.RunID(), nil
	}}), nil, kahn.RunID("release-7"))
	fmt.Println(res.ID(), res.Output(), err)
	// Output: release-7 build of release-7 <nil>
}

// Events contain outputs of up to 10 bytes. For a longer output they contain only the length.
func ExampleEventOutputs() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "short", Do: gives("hi")}, kahn.Node{ID: "long", After: []string{"short"}, Do: gives("a long story")})
	_, err := kahn.Execute(context.Background(), g, nil, kahn.EventOutputs(10), kahn.OnEvent(func(e kahn.Event) {
		if done, ok := e.Payload.(event.Completion); ok {
			fmt.Printf("%s %s %d\n", e.Node, done.Output.Value, done.Output.Bytes)
		}
	}))
	fmt.Println(err)
	// Output:
	// short "hi" 4
	// long  14
	// <nil>
}

// A host records the results of guards, tests and fallbacks. It can then replay the run without calling them.
func ExampleGraphCalls() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "weekly", When: func(kahn.View) (bool, error) { return time.Now().IsZero(), nil }})
	var recorded []any
	_, err := kahn.Execute(context.Background(), g, printID, kahn.GraphCalls(func(path, field string, call func() (any, error)) (any, error) {
		value, err := call()
		fmt.Println(field, "of", path, "returned", value)
		recorded = append(recorded, value)
		return value, err
	}))
	fmt.Println(err)
	res, err := kahn.Execute(context.Background(), g, printID, kahn.GraphCalls(func(string, string, func() (any, error)) (any, error) { return recorded[0], nil }))
	fmt.Println(res.Count(kahn.Skipped), err)
	// Output:
	// When of weekly returned false
	// <nil>
	// 1 <nil>
}

// Each event is a record of package log/slog, with the kind and the label of its node.
func ExampleLogTo() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if slices.Contains([]string{slog.TimeKey, "trace_id", "duration"}, a.Key) {
			return slog.Attr{} // differs from run to run
		}
		return a
	}}))
	g := new(kahn.Graph).Add(kahn.Node{ID: "pay", Kind: "bank", Label: "Pay the order", Do: failsWith(errors.New("declined")), ContinueOnFail: true})
	_, err := kahn.Execute(context.Background(), g, nil, kahn.RunID("7"), kahn.LogTo(logger))
	fmt.Println(err)
	// Output:
	// level=ERROR msg=node.failed run_id=7 event_id=4 node=pay attempt=1 tier=0 cause=step_error error=declined no_retry=no_policy kind=bank label="Pay the order"
	// <nil>
}
