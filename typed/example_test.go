package typed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/trace"
	"github.com/seed-c794f7ef/kahn/typed"
)

type Order struct {
	ID    string
	Total int
}

func load(_ context.Context, id string) (Order, error)   { return Order{ID: id, Total: 120}, nil }
func reserve(_ context.Context, o Order) (string, error) { return "shelf 3", nil }
func charge(_ context.Context, o Order) (int, error)     { return o.Total, nil }

func confirm(_ context.Context, o Order, shelf string, paid int) (string, error) {
	return fmt.Sprintf("order %s: %d paid, %s", o.ID, paid, shelf), nil
}

// Functions are connected by their values: the result of one function is an argument of the next. reserve and charge run at the same time.
func Example() {
	checkout := typed.New("checkout", func(b *typed.Block) typed.Val[string] {
		order := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
		shelf := typed.Do1(b, "reserve", reserve, order)
		paid := typed.Do1(b, "charge", charge, order).With(typed.Options{Retry: kahn.RetryStandard()})
		return typed.Do3(b, "confirm", confirm, order, shelf, paid)
	})
	fmt.Println(typed.Run(context.Background(), checkout, kahn.Inputs(map[string]any{"id": "7"})))
	// Output: order 7: 120 paid, shelf 3 <nil>
}

// The branches of a condition are blocks, to which nodes are added. Either has the value of the branch that was
// taken.
func ExampleIf() {
	p := typed.New("ship", func(b *typed.Block) typed.Val[string] {
		order := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
		dear, cheap := typed.If(typed.Do1(b, "dear?", func(_ context.Context, o Order) (bool, error) { return o.Total > 100, nil }, order))
		return typed.Either(b, "shipped",
			typed.Do1(dear, "insure", func(_ context.Context, o Order) (string, error) { return "insured parcel " + o.ID, nil }, order),
			typed.Do1(cheap, "pack", func(_ context.Context, o Order) (string, error) { return "parcel " + o.ID, nil }, order))
	})
	res, err := p.Execute(context.Background(), kahn.Inputs(map[string]any{"id": "7"}))
	fmt.Println(kahntest.Statuses(res), err)
	fmt.Println(p.Output(res))
	// Output:
	// load:ok dear?:ok insure:ok pack:S/br shipped:ok <nil>
	// insured parcel 7 <nil>
}

// The cases of a switch are constants of a type, so a misspelt case does not compile.
func ExampleSwitch() {
	p := typed.New("carrier", func(b *typed.Block) typed.Val[string] {
		by := typed.Do1(b, "carrier", func(_ context.Context, weight int) (carrier, error) {
			if weight > 1000 {
				return road, nil
			}
			return air, nil
		}, typed.Root[int](b, "weight"))
		sw := typed.Switch(by)
		return typed.Either(b, "label",
			typed.Do0(sw.Case(air), "fly", ret("by air")),
			typed.Do0(sw.Case(road), "drive", ret("by road")))
	})
	fmt.Println(typed.Run(context.Background(), p, kahn.Inputs(map[string]any{"weight": 5000})))
	// Output: by road <nil>
}

// An Either has the first of its values that exists; the last value here always exists.
func ExampleEither() {
	p := typed.New("price", func(b *typed.Block) typed.Val[int] {
		member, _ := typed.If(typed.Do1(b, "member?", same[bool], typed.Root[bool](b, "member")))
		return typed.Either(b, "price", typed.Do0(member, "discount", ret(80)), typed.Do0(b, "full", ret(100)))
	})
	fmt.Println(typed.Run(context.Background(), p, kahn.Inputs(map[string]any{"member": true})))
	fmt.Println(typed.Run(context.Background(), p, kahn.Inputs(map[string]any{"member": false})))
	// Output:
	// 80 <nil>
	// 100 <nil>
}

// Try turns a failure into a value, so the run completes.
func ExampleTry() {
	declined := errors.New("declined")
	p := typed.New("charge", func(b *typed.Block) typed.Val[string] {
		paid := typed.Do0(b, "charge", func(context.Context) (int, error) { return 0, kahn.Permanent(declined) })
		return typed.Do1(b, "tell", func(_ context.Context, paid typed.Tried[int]) (string, error) {
			if errors.Is(paid.Err, declined) {
				return "please use another card", nil
			}
			return fmt.Sprint(paid.Value, " paid"), paid.Err
		}, typed.Try(b, "charged", paid))
	})
	fmt.Println(typed.Run(context.Background(), p))
	// Output: please use another card <nil>
}

// Each calls a function for each item of a list. Here half of the items may fail.
func ExampleEach() {
	size := func(_ context.Context, page string) (int, error) {
		if page == "" {
			return 0, errors.New("not found")
		}
		return len(page), nil
	}
	p := typed.New("sizes", func(b *typed.Block) typed.Val[string] {
		sizes, errs := typed.Each(b, "size", typed.Root[[]string](b, "pages"), size, typed.Items[string]{Limit: 4, ToleratedPercent: 50})
		return typed.Do2(b, "report", func(_ context.Context, sizes []int, errs []error) (string, error) {
			return fmt.Sprint(sizes, errors.Join(errs...) != nil), nil
		}, sizes, errs)
	})
	fmt.Println(typed.Run(context.Background(), p, kahn.Inputs(map[string]any{"pages": []string{"abc", "", "de"}})))
	// Output: [3 2] true <nil>
}

// EachSub runs a sub-pipeline for each item; like a function literal, it can take values of the surrounding blocks.
func ExampleEachSub() {
	p := typed.New("mails", func(b *typed.Block) typed.Val[[]string] {
		from := typed.Root[string](b, "from")
		mails, _ := typed.EachSub(b, "mail", typed.Root[[]string](b, "to"), func(b *typed.Block, to typed.Val[string]) typed.Val[string] {
			text := typed.Do1(b, "text", func(_ context.Context, to string) (string, error) { return "Dear " + to, nil }, to)
			return typed.Do2(b, "sign", func(_ context.Context, text, from string) (string, error) { return text + " ... " + from, nil }, text, from)
		})
		return mails
	})
	fmt.Println(typed.Run(context.Background(), p, kahn.Inputs(map[string]any{"from": "Ada", "to": []string{"Bob", "Cy"}})))
	// Output: [Dear Bob ... Ada Dear Cy ... Ada] <nil>
}

// A function that adds nodes to a block can be used as a sub-pipeline any number of times.
func ExampleSub() {
	greet := func(b *typed.Block, name typed.Val[string]) typed.Val[string] {
		upper := typed.Do1(b, "upper", func(_ context.Context, s string) (string, error) { return strings.ToUpper(s), nil }, name)
		return typed.Do1(b, "greet", func(_ context.Context, s string) (string, error) { return "HELLO " + s, nil }, upper)
	}
	p := typed.New("both", func(b *typed.Block) typed.Val[string] {
		x, y := typed.Root[string](b, "x"), typed.Root[string](b, "y")
		first := typed.Sub(b, "first", func(b *typed.Block) typed.Val[string] { return greet(b, x) })
		second := typed.Sub(b, "second", func(b *typed.Block) typed.Val[string] { return greet(b, y) })
		return typed.Do2(b, "both", func(_ context.Context, a, b string) (string, error) { return a + ", " + b, nil }, first, second)
	})
	fmt.Println(typed.Run(context.Background(), p, kahn.Inputs(map[string]any{"x": "Ada", "y": "Bob"})))
	// Output: HELLO ADA, HELLO BOB <nil>
}

// A gate waits for an answer: the run is suspended, and another process continues it from the store.
func ExampleGate() {
	release := func() *typed.Pipeline[string] {
		return typed.New("release", func(b *typed.Block) typed.Val[string] {
			build := typed.Do0(b, "build", ret("v1.2.3"))
			yes, no := typed.If(typed.Gate[bool](b, "approve?", build))
			return typed.Either(b, "done",
				typed.Do1(yes, "publish", func(_ context.Context, v string) (string, error) { return v + " published", nil }, build),
				typed.Do1(no, "discard", func(_ context.Context, v string) (string, error) { return v + " discarded", nil }, build))
		})
	}
	ctx, runs := context.Background(), &store.Memory{}
	_, err := typed.Run(ctx, release(), kahn.Durable(runs), kahn.RunID("r1"))
	fmt.Println(err, errors.Is(err, kahn.ErrSuspended))
	fmt.Println(typed.Run(ctx, release(), kahn.Durable(runs), kahn.RunID("r1"), kahn.EarlySignals(map[string]any{"approve?": "yes"})))
	// Output:
	// output of "done": no value: it is idle: run suspended: it waits for "approve?" true
	// v1.2.3 published <nil>
}

// If a root input is misspelt or missing, the run does not begin.
func ExampleRoot() {
	p := typed.New("double", func(b *typed.Block) typed.Val[int] {
		return typed.Do1(b, "double", func(_ context.Context, n int) (int, error) { return 2 * n, nil }, typed.Root[int](b, "n"))
	})
	fmt.Println(typed.Run(context.Background(), p, kahn.Inputs(map[string]any{"n": 21})))
	_, err := typed.Run(context.Background(), p, kahn.Inputs(map[string]any{"m": 21}))
	fmt.Println(errors.Is(err, kahn.ErrUnknownInput), errors.Is(err, kahn.ErrMissingInput))
	// Output:
	// 42 <nil>
	// true true
}

// With sets the options of a node, which are fields of kahn.Node. close runs whether or not work succeeds.
func ExampleVal_With() {
	p := typed.New("session", func(b *typed.Block) typed.Val[int] {
		session := typed.Do0(b, "open", ret("session"))
		work := typed.Do1(b, "work", func(_ context.Context, s string) (int, error) { return 0, errors.New("broken") }, session).
			With(typed.Options{Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: -1}, Key: "db"})
		typed.Do1(b, "close", same[string], session).With(typed.Options{Cleanup: true, After: []typed.Handle{work}})
		return work
	})
	res, err := p.Execute(context.Background(), kahn.KeyLimit(1))
	fmt.Println(kahntest.Statuses(res), err != nil)
	// Output: open:ok work:F close:ok true
}

// A fallback produces the value when the step has failed after all retries.
func ExampleVal_Fallback() {
	p := typed.New("rate", func(b *typed.Block) typed.Val[float64] {
		return typed.Do0(b, "rate", func(context.Context) (float64, error) { return 0, errors.New("offline") }).
			Fallback(func(context.Context, error) (float64, error) { return 1.1, nil })
	})
	fmt.Println(typed.Run(context.Background(), p))
	// Output: 1.1 <nil>
}

// If the run fails, Compensate undoes the node with the values that it took and the value that it made.
func ExampleVal_Compensate() {
	charge := func(_ context.Context, order string) (int, error) { return 30, nil }
	refund := func(ctx context.Context, order string, sum int) error {
		_, certain := kahn.StepOf(ctx).Compensated()
		fmt.Println("refund", order, sum, certain)
		return nil
	}
	ship := func(context.Context, int) (string, error) { return "", errors.New("no truck") }
	p := typed.New("order", func(b *typed.Block) typed.Val[string] {
		order := typed.Do0(b, "order", ret("order 7"))
		paid := typed.Do1(b, "charge", charge, order).Compensate(typed.Undo1(refund, order))
		return typed.Do1(b, "ship", ship, paid)
	})
	res, _ := p.Execute(context.Background())
	fmt.Println(res.Status)
	// Output:
	// refund order 7 30 true
	// failed
}

// Code that works with graphs also works with the graph of a pipeline.
func ExamplePipeline_Plan() {
	p := typed.New("small", func(b *typed.Block) typed.Val[string] {
		big, small := typed.If(typed.Do1(b, "big", func(_ context.Context, n int) (bool, error) { return n > 9, nil }, typed.Root[int](b, "n")))
		return typed.Either(b, "out", typed.Do0(big, "split", ret("split")), typed.Do0(small, "pack", ret("packed")))
	})
	plan, err := p.Plan()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(trace.Mermaid(plan, nil))
	// Output:
	// flowchart TD
	//     n0{"big"}
	//     n1["split"]
	//     n2["pack"]
	//     n3["out"]
	//     n0 -->|"true"| n1
	//     n0 -->|"false"| n2
	//     n1 --> n3
	//     n2 --> n3
}

// Plan lists the mistakes that the compiler cannot find, before anything runs.
func ExampleNew() {
	p := typed.New("slips", func(b *typed.Block) typed.Val[int] {
		yes, _ := typed.If(typed.Do0(b, "ok?", ret(true)))
		x := typed.Do0(yes, "x", ret(1))
		typed.Do0(b, "x", ret(2))
		return typed.Do1(b, "y", same[int], x)
	})
	_, err := p.Plan()
	fmt.Println(err)
	// Output:
	// invalid graph "slips"
	// 	node "y": values and branches do not match: it takes "x", which exists only in the branch "true" of "ok?", but "y" is in the pipeline "slips": add "y" to that branch, or join the values of the branches by Either
	// 	duplicate node: "x" occurs twice in the pipeline "slips": nodes and root inputs have different names
}
