// A run reports what happens as a sequence of events. Any number of readers can follow the events, during the run or later. While a step
// runs, it can publish pieces of its output.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

func main() {
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "answer", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			s.Log(slog.LevelInfo, "the model has been asked")
			words := []string{"The ", "sky ", "is ", "blue."}
			for _, word := range words {
				s.Emit(word)
			}
			return strings.Join(words, ""), nil
		}},
		kahn.Node{ID: "translate", Disabled: true, After: []string{"answer"}},
	)
	ctx := context.Background()
	run, err := kahn.Start(ctx, g, nil)
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range run.Events(ctx, 0) { // 0 asks for the events from the beginning
		if err != nil {
			log.Fatal(err)
		}
		switch payload := e.Payload.(type) {
		case event.Delta:
			fmt.Printf("%d %s %q\n", e.ID, e.Node, payload.Chunk)
		case event.LogRecord:
			fmt.Println(e.ID, e.Node, "logs:", payload.Message)
		default:
			fmt.Println(e.ID, e.Type, e.Node)
		}
	}
}
