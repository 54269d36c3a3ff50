// Two processes perform one run with an approval. The first process performs the run up to the gate, and ends. The answer may come days later, in
// another process. That process continues the run from the file approval.db, and repeats no step.
//
//	go run ./examples/tour/17-approval           # asks
//	go run ./examples/tour/17-approval approve   # answers
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(answer []string) (err error) {
	db, err := sqlite.Open("approval.db", sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		fmt.Println("performing", s.ID())
		return nil, nil
	}
	invoice := new(kahn.Graph).Add(
		kahn.Node{ID: "check"},
		kahn.Node{ID: "approval", Kind: kahn.KindGate, After: []string{"check"}},
		kahn.Node{ID: "pay", In: []kahn.Edge{{From: "approval", Label: "approve"}}},
		kahn.Node{ID: "send back", In: []kahn.Edge{{From: "approval", Label: "reject"}}},
	)
	options := []kahn.Option{kahn.RunID("invoice-17"), kahn.Durable(db)}
	if len(answer) > 0 {
		options = append(options, kahn.EarlySignals(map[string]any{"approval": answer[0]}))
	}
	res, err := kahn.Execute(context.Background(), invoice, step, options...)
	if err != nil {
		return err
	}
	for _, w := range res.Waiting {
		fmt.Println("waiting for", w.Node)
	}
	fmt.Println("the run is", res.Status)
	return nil
}
