package kahntest

import (
	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// EventSteps calls CheckEvents, and also returns the number of visits to items other than events.
func EventSteps(g *kahn.Graph, res *kahn.Result, events []event.Event) (steps int, err error) {
	c := new(streamChecker)
	err = c.check(g, res, events)
	return c.steps, err
}

var SameValue = sameValue
