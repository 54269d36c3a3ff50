// A graph can be data: each node names its kind, and the host has one function for each kind. If the host lacks the function for a kind, kahn
// refuses the graph before any step runs.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/seed-c794f7ef/kahn"
)

func main() {
	host := kahn.Mux{
		"greet": func(_ context.Context, s *kahn.Step) (any, error) { return fmt.Sprint("hello ", s.Config()), nil },
		"shout": func(_ context.Context, s *kahn.Step) (any, error) {
			text, err := kahn.Param[string](s, "text")
			return text + "!", err
		},
	}
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "greet Ada", Kind: "greet", Config: "Ada"},
		kahn.Node{ID: "loud", Kind: "shout", In: []kahn.Edge{{From: "greet Ada", Param: "text"}}},
	)
	res, err := kahn.Execute(context.Background(), g, host.Step, kahn.Kinds(host))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Output())

	g.Add(kahn.Node{ID: "quiet", Kind: "wisper", After: []string{"loud"}})
	_, err = kahn.Execute(context.Background(), g, host.Step, kahn.Kinds(host))
	fmt.Println(errors.Is(err, kahn.ErrUnknownKind), err)
}
