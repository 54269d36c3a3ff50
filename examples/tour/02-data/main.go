// An edge carries the output of one step to a parameter of another. A value from outside the graph is a root input of the run.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/seed-c794f7ef/kahn"
)

// measure reads a root input of the run.
func measure(_ context.Context, s *kahn.Step) (any, error) {
	city, err := kahn.Root[string](s, "city")
	return len(city) * 4, err
}

// advise reads the output of another step, and a static parameter of its own node.
func advise(_ context.Context, s *kahn.Step) (any, error) {
	degrees, err := kahn.Param[int](s, "degrees")
	if err != nil {
		return nil, err
	}
	warm, err := kahn.Param[int](s, "warm")
	if err != nil {
		return nil, err
	}
	if degrees < warm {
		return "take a coat", nil
	}
	return "take sunglasses", nil
}

func main() {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "measure", Do: measure},
		kahn.Node{ID: "advise", Do: advise, Params: map[string]any{"warm": 18}, In: []kahn.Edge{{From: "measure", Param: "degrees"}}},
	)
	for _, city := range []string{"Oslo", "Palermo"} {
		res, err := kahn.Execute(context.Background(), &g, nil, kahn.Inputs(map[string]any{"city": city}))
		if err != nil {
			log.Fatal(err)
		}
		degrees, err := kahn.Output[int](res, "measure")
		fmt.Println(city, degrees, res.Output(), err)
	}
}
