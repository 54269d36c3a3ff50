// A graph says which steps each step waits for. kahn begins a step as soon as these steps are done: the toast is made while the water boils,
// and breakfast is served when both the tea and the toast are ready.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/seed-c794f7ef/kahn"
)

func main() {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "boil water", Do: makes("hot water")},
		kahn.Node{ID: "tea", After: []string{"boil water"}, Do: makes("a cup of tea")},
		kahn.Node{ID: "toast", Do: makes("two slices")},
		kahn.Node{ID: "serve", After: []string{"tea", "toast"}, Do: makes("breakfast")},
	)
	res, err := kahn.Execute(context.Background(), &g, nil)
	if err != nil {
		log.Fatal(err)
	}
	for n := range res.Nodes() {
		fmt.Printf("%s: %v, %v\n", n.ID, n.Status, n.Output)
	}
	fmt.Println("the run is", res.Status)
}

// The function `makes` returns a step. A step is a Go function that returns an output or an error.
func makes(what string) kahn.StepFunc {
	return func(context.Context, *kahn.Step) (any, error) { return what, nil }
}
