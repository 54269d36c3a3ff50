// A condition takes one of its branches, and kahn skips the first nodes of the other branch. kahn also skips a node if all its predecessors were
// skipped. If only some were skipped, the node runs without their outputs, unless its SkipMode is kahn.SkipStrict. "pay" gets its data from "order",
// but runs only if the branch "true" is taken. By default a condition runs even if its predecessor fails. The condition here needs the output of
// "order", so its join rule is AllSucceeded.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/seed-c794f7ef/kahn"
)

func main() {
	affordable := kahn.If("affordable?", func(v kahn.View) (bool, error) { return v.Output("order").(int) <= 100, nil }, "order")
	affordable.Join = kahn.AllSucceeded // if "order" fails, this condition does not run
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "order", Do: func(_ context.Context, s *kahn.Step) (any, error) { return kahn.Root[int](s, "price") }},
		affordable,
		kahn.Node{ID: "pay", Do: pay, In: []kahn.Edge{{From: "affordable?", Label: "true"}, {From: "order", Param: "price"}}},
		kahn.Node{ID: "ask the bank", Do: nothing, In: []kahn.Edge{{From: "affordable?", Label: "false"}}},
		kahn.Node{ID: "thank", Do: nothing, After: []string{"pay"}},
	)
	for _, price := range []int{80, 900} {
		res, err := kahn.Execute(context.Background(), &g, nil, kahn.Inputs(map[string]any{"price": price}))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("an order of", price)
		for n := range res.Nodes() {
			why, err := res.Why(n.ID)
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("  %s: %v\n", n.ID, why)
		}
	}
}

func pay(_ context.Context, s *kahn.Step) (any, error) {
	price, err := kahn.Param[int](s, "price")
	return fmt.Sprint("paid ", price), err
}

func nothing(context.Context, *kahn.Step) (any, error) { return nil, nil }
