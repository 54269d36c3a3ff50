package kahn_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// gives returns a step with the output v.
func gives(v any) kahn.StepFunc {
	return func(context.Context, *kahn.Step) (any, error) { return v, nil }
}

// failsWith returns a step that fails with the error err.
func failsWith(err error) kahn.StepFunc {
	return func(context.Context, *kahn.Step) (any, error) { return nil, err }
}

// An edge delivers the output of another node to a parameter.
func ExampleParam() {
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "count", Do: gives(20)},
		kahn.Node{ID: "double", In: []kahn.Edge{{From: "count", Param: "n"}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			n, err := kahn.Param[int](s, "n")
			if err != nil {
				return nil, err
			}
			_, err = kahn.Param[string](s, "n")
			return 2 * n, err
		}},
	)
	_, err := kahn.Execute(context.Background(), g, nil)
	fmt.Println(errors.Is(err, kahn.ErrType))
	fmt.Println(err)
	// Output:
	// true
	// run failed: node "double": step_error: parameter "n": wrong type: int instead of string
}

func ExampleRoot() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "greet", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		name, err := kahn.Root[string](s, "name")
		return "hello " + name, err
	}})
	res, err := kahn.Execute(context.Background(), g, nil, kahn.Inputs(map[string]any{"name": "Ada"}))
	fmt.Println(res.Output(), err)
	// Output: hello Ada <nil>
}

// A step may also read a value by the id of the node that delivers it.
func ExampleUpstream() {
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "count", Do: gives(20)},
		kahn.Node{ID: "double", After: []string{"count"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			n, err := kahn.Upstream[int](s, "count")
			return 2 * n, err
		}},
	)
	res, err := kahn.Execute(context.Background(), g, nil)
	fmt.Println(res.Output(), err)
	// Output: 40 <nil>
}

// A step that follows a map gets the outputs of the items, and the errors of the failed items.
func ExampleUpstreamItems() {
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "halve", Map: &kahn.Map{Over: "numbers", ToleratedCount: 1}, Params: map[string]any{"numbers": []int{4, 5, 6}},
			Do: func(_ context.Context, s *kahn.Step) (any, error) {
				n, err := kahn.Param[int](s, "item")
				if err == nil && n%2 == 1 {
					err = fmt.Errorf("%d is odd", n)
				}
				return n / 2, err
			}},
		kahn.Node{ID: "print", After: []string{"halve"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			halves, errs, err := kahn.UpstreamItems[int](s, "halve")
			for i := range halves {
				fmt.Println(halves[i], errs[i])
			}
			return nil, err
		}},
	)
	_, err := kahn.Execute(context.Background(), g, nil)
	fmt.Println(err)
	// Output:
	// 2 <nil>
	// 0 node "halve[1]": step_error: 5 is odd
	// 3 <nil>
	// <nil>
}

func ExampleOutput() {
	res, err := kahn.Execute(context.Background(), new(kahn.Graph).Add(kahn.Node{ID: "count", Do: gives(20)}), nil)
	fmt.Println(err)
	n, err := kahn.Output[int](res, "count")
	fmt.Println(n, err)
	_, err = kahn.Output[string](res, "count")
	fmt.Println(errors.Is(err, kahn.ErrType))
	// Output:
	// <nil>
	// 20 <nil>
	// true
}

func ExampleOutputItems() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "measure", Map: &kahn.Map{Over: "words"}, Params: map[string]any{"words": []string{"a", "bb"}},
		Do: func(_ context.Context, s *kahn.Step) (any, error) {
			word, err := kahn.Param[string](s, "item")
			return len(word), err
		}})
	res, err := kahn.Execute(context.Background(), g, nil)
	fmt.Println(err)
	lengths, errs, err := kahn.OutputItems[int](res, "measure")
	fmt.Println(lengths, errs, err) // errs is nil if no item failed
	// Output:
	// <nil>
	// [1 2] [] <nil>
}

// A test calls a step function without a run.
func ExampleNewStep() {
	double := func(_ context.Context, s *kahn.Step) (any, error) {
		n, err := kahn.Param[int](s, "n")
		return 2 * n, err
	}
	s := kahn.NewStep(context.Background(), kahn.Call{ID: "double", Params: map[string]any{"n": 21}}, nil)
	fmt.Println(double(s, s))
	// Output: 42 <nil>
}

// A test calls a condition without a run.
func ExampleNewView() {
	many := func(v kahn.View) (bool, error) {
		return v.Status("count") == kahn.Completed && v.Output("count").(int) > 10, nil
	}
	fmt.Println(many(kahn.NewView(kahn.ViewData{Nodes: map[string]kahn.NodeData{"count": {Status: kahn.Completed, Output: 20}}})))
	fmt.Println(many(kahn.NewView(kahn.ViewData{Nodes: map[string]kahn.NodeData{"count": {Status: kahn.Failed, Err: errors.New("no luck")}}})))
	// Output:
	// true <nil>
	// false <nil>
}

func ExampleTruthy() {
	for _, v := range []any{true, "yes", 1, nil, "", "false", 0, []int{}} {
		fmt.Printf("%#v: %v\n", v, kahn.Truthy(v))
	}
	// Output:
	// true: true
	// "yes": true
	// 1: true
	// <nil>: false
	// "": false
	// "false": false
	// 0: false
	// []int{}: false
}

// A wrong password is not retried.
func ExamplePermanent() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "login", Retry: kahn.RetryStandard(), Do: failsWith(kahn.Permanent(errors.New("wrong password")))})
	res, err := kahn.Execute(context.Background(), g, nil)
	login, _ := res.Node("login")
	fmt.Println(login.Attempts, err)
	// Output: 1 run failed: node "login": step_error: wrong password
}

// An order that cannot be shipped is refunded. The shop refused the shipment and sent nothing, so the shipment is not undone.
func ExampleNoEffect() {
	ok := func(output any) kahn.StepFunc {
		return func(context.Context, *kahn.Step) (any, error) { return output, nil }
	}
	undo := func(_ context.Context, s *kahn.Step) error {
		paid, certain := s.Compensated()
		fmt.Println("undo", s.ID(), paid, certain)
		return nil
	}
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "reserve", Do: ok("two seats"), Compensate: undo},
		kahn.Node{ID: "pay", Do: ok("receipt 7"), Compensate: undo, After: []string{"reserve"}},
		kahn.Node{ID: "ship", Do: failsWith(kahn.NoEffect(errors.New("sold out"))), Compensate: undo, After: []string{"pay"}},
	)
	_, err := kahn.Execute(context.Background(), g, nil)
	fmt.Println(err)
	// Output:
	// undo pay receipt 7 true
	// undo reserve two seats true
	// run failed: node "ship": step_error: sold out
}

// A service that answers 429 says how long to wait.
func ExampleRateLimited() {
	g := new(kahn.Graph).Add(kahn.Node{ID: "call", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: -1}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
		if s.Attempt() == 1 {
			return nil, kahn.RateLimited(errors.New("429 Too Many Requests"), 5*time.Millisecond)
		}
		return "hello", nil
	}})
	res, err := kahn.Execute(context.Background(), g, nil)
	call, _ := res.Node("call")
	first := call.History()[0]
	fmt.Printf("%v, and the next attempt after %v: %v, %v\n", first.Err, first.Delay, call.Output, err)
	// Output: 429 Too Many Requests, and the next attempt after 5ms: hello, <nil>
}

// A step finds that it has no work, and skips itself.
func ExampleSkip() {
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "sync", Do: failsWith(kahn.Skip("nothing has changed"))},
		kahn.Node{ID: "report", After: []string{"sync"}, Do: nothing},
	)
	res, err := kahn.Execute(context.Background(), g, nil)
	for n := range res.Nodes() {
		fmt.Println(n.ID, n.Status, n.Skip)
	}
	fmt.Println(res.Status, err)
	// Output:
	// sync skipped self(nothing has changed)
	// report skipped upstream_skipped(sync)
	// completed <nil>
}

// One failure makes all other work pointless, including work that does not depend on the failed node.
func ExampleAbortRun() {
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "licence", Do: failsWith(kahn.AbortRun(errors.New("the licence has expired")))},
		kahn.Node{ID: "train", Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}},
	)
	res, err := kahn.Execute(context.Background(), g, nil)
	train, _ := res.Node("train")
	fmt.Println(train.Status, err)
	// Output: aborted run failed (fail_fast): node "licence": step_error: the licence has expired
}

// A moderator refuses a value with a reason.
func ExampleFlag() {
	err := kahn.Flag("address", "telephone number")
	fmt.Println(err)
	// Output: flagged: address; telephone number
}

// A host that performs attempts itself finds the cause that an error stands for.
func ExampleCauseOf() {
	for _, err := range []error{errors.New("no luck"), context.DeadlineExceeded, kahn.RateLimited(nil, 0), kahn.ErrCallAborted} {
		fmt.Println(kahn.CauseOf(err))
	}
	// Output:
	// step_error
	// timeout
	// rate_limit
	// external
}

// A function that gets only a context finds the attempt in the context. A context that middleware or the step has derived contains the attempt, too.
func ExampleStepOf() {
	charge := func(ctx context.Context) string { // uses only the context
		return "charged under " + kahn.StepOf(ctx).Path()
	}
	step := func(ctx context.Context, _ *kahn.Step) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return charge(ctx), nil
	}
	type user struct{}
	res, err := kahn.Execute(context.Background(), new(kahn.Graph).Add(kahn.Node{ID: "card"}), step, kahn.Use(func(next kahn.StepFunc) kahn.StepFunc {
		return func(ctx context.Context, s *kahn.Step) (any, error) {
			return next(context.WithValue(ctx, user{}, "ann"), s)
		}
	}))
	fmt.Println(res.Output(), err)
	// Output: charged under card <nil>
}

// A step requests a report that takes time, and sleeps before it looks again. While the step sleeps, it holds no slot. Under Serve, a run that only
// sleeps for long does not count towards MaxRuns.
func ExampleSuspendUntil() {
	asked := 0
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if asked++; asked < 3 {
			return nil, kahn.SuspendUntil(time.Now().Add(time.Millisecond), "order 7")
		}
		return fmt.Sprint("report of ", s.SavedState(), " in attempt ", s.Attempt()), nil
	}
	res, err := kahn.Execute(context.Background(), new(kahn.Graph).Add(kahn.Node{ID: "report"}), step)
	fmt.Println(res.Output(), err)
	// Output: report of order 7 in attempt 1 <nil>
}

// An order waits for its shipment, which is a separate run that any process may perform.
func ExampleAwaitRun() {
	var db store.Memory
	ship, order := &kahn.Graph{Name: "ship"}, &kahn.Graph{Name: "order"}
	ship.Add(kahn.Node{ID: "deliver", Kind: kahn.KindGate})
	order.Add(kahn.Node{ID: "delivered", Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
		status, err := kahn.AwaitRun(ctx, "shipment-7")
		return status.String(), err
	}})
	ctx := context.Background()
	shipment, err := kahn.Start(ctx, ship, nil, kahn.Durable(&db), kahn.RunID("shipment-7"))
	if err != nil {
		panic(err)
	}
	run, err := kahn.Start(ctx, order, nil, kahn.Durable(&db), kahn.RunID("order-7"))
	if err != nil {
		panic(err)
	}
	if err := shipment.Signal(ctx, "deliver", true); err != nil {
		panic(err)
	}
	res, err := run.Wait()
	fmt.Println(res.Output(), err)
	// Output: completed <nil>
}

// A step waits for a callback, and continues without it after a deadline.
func ExampleSuspendFor() {
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if answer, ok := s.Resumed(); ok {
			return answer, nil
		}
		if s.SavedState() == nil {
			return nil, kahn.SuspendFor("callback", nil, "asked", time.Now().Add(time.Millisecond))
		}
		return "no answer", nil
	}
	run, err := kahn.Start(context.Background(), new(kahn.Graph).Add(kahn.Node{ID: "ask"}), step)
	if err != nil {
		panic(err)
	}
	res, err := run.Wait()
	fmt.Println(res.Output(), err)
	// Output: no answer <nil>
}
