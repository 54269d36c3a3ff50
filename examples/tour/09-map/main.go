// A map performs a step for each item of a list. Here a quarter of the items may fail, at most two items run at once, and each item has its
// own retries.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

func main() {
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "list", Do: func(context.Context, *kahn.Step) (any, error) {
			return []string{"cat.png", "dog.png", "cow.txt", "owl.png"}, nil
		}},
		kahn.Node{
			ID:    "resize",
			Map:   &kahn.Map{Over: "names", Limit: 2, ToleratedPercent: 25},
			Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Millisecond},
			In:    []kahn.Edge{{From: "list", Param: "names"}},
			Do: func(_ context.Context, s *kahn.Step) (any, error) {
				name, err := kahn.Param[string](s, "item")
				if err == nil && name[len(name)-4:] != ".png" {
					return nil, fmt.Errorf("%s is no picture", name)
				}
				return "small-" + name, err
			},
		},
	)
	res, err := kahn.Execute(context.Background(), g, nil)
	if err != nil {
		log.Fatal(err)
	}
	pictures, errs, err := kahn.OutputItems[string](res, "resize")
	for i := range pictures {
		fmt.Printf("%q %v\n", pictures[i], errs[i])
	}
	fmt.Println(res.Status, "degraded:", res.Degraded, err)
}
