// A node can contain a graph. Here the node "draft" repeats its graph until the result is good enough. Each node inside has its own path,
// for example draft#2/review.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/seed-c794f7ef/kahn"
)

func main() {
	round := new(kahn.Graph).Add(
		kahn.Node{ID: "write", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if last, ok := s.Root("previous"); ok { // the output of the previous iteration
				return fmt.Sprint("very ", last), nil
			}
			return "good", nil
		}},
		kahn.Node{ID: "review", In: []kahn.Edge{{From: "write", Param: "text"}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			text, err := kahn.Param[string](s, "text")
			fmt.Printf("%s: %q\n", s.Path(), text)
			return text, err
		}},
	)
	g := new(kahn.Graph).Add(kahn.Node{ID: "draft", Sub: round, Loop: &kahn.Loop{
		MaxIterations: 5,
		Until:         func(v kahn.View) (bool, error) { return len(v.Output("review").(string)) > 10, nil },
	}})
	res, err := kahn.Execute(context.Background(), g, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the result:", res.Output())
}
