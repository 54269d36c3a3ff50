// A redrive continues a failed run: it performs the failed nodes and the nodes after them, and keeps the outputs of all other nodes.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/seed-c794f7ef/kahn"
)

func main() {
	full := true
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		fmt.Println("  performing", s.ID())
		if s.ID() == "upload" && full {
			return nil, errors.New("the disk is full")
		}
		return "done", nil
	}
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "extract"},
		kahn.Node{ID: "transform", After: []string{"extract"}},
		kahn.Node{ID: "upload", After: []string{"transform"}},
		kahn.Node{ID: "notify", After: []string{"upload"}},
	)
	ctx := context.Background()
	res, err := kahn.Execute(ctx, g, step)
	fmt.Println(err)

	full = false
	res, err = kahn.Execute(ctx, g, step, kahn.Redrive(res.Snapshot(), nil))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("redriven:", res.Status)
}
