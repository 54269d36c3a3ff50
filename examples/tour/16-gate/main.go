// While a gate waits for a person, it holds neither a goroutine nor a slot. This gate accepts an answer only if it is the label of a branch,
// and records who answered.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

func main() {
	nothing := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "draft", Do: nothing},
		kahn.Node{ID: "review", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: 24 * time.Hour}, After: []string{"draft"}},
		kahn.Node{ID: "publish", Do: nothing, In: []kahn.Edge{{From: "review", Label: "publish"}}},
		kahn.Node{ID: "archive", Do: nothing, In: []kahn.Edge{{From: "review", Label: "archive"}}},
	)
	ctx := context.Background()
	run, err := kahn.Start(ctx, g, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := run.WaitFor(ctx, "review", kahn.Suspended); err != nil {
		log.Fatal(err)
	}
	fmt.Println("waiting for", run.Waiting()[0].Node)
	fmt.Println(run.Signal(ctx, "review", "publsh"))
	if err := run.Signal(ctx, "review", kahn.Decision{Value: "publish", Actor: "Ada", Comment: "well done"}); err != nil {
		log.Fatal(err)
	}
	res, err := run.Wait()
	if err != nil {
		log.Fatal(err)
	}
	review, _ := res.Node("review")
	fmt.Printf("%s answered %v: %s\n", review.Decision.Actor, review.Output, review.Decision.Comment)
	for n := range res.Nodes() {
		fmt.Println(n.ID, n.Status)
	}
}
