package kahntest

import "github.com/seed-c794f7ef/kahn"

// EventSteps is CheckEvents, and counts what it has looked at beside the events themselves.
func EventSteps(g *kahn.Graph, res *kahn.Result, events []kahn.Event) (steps int, err error) {
	c := new(streamChecker)
	err = c.check(g, res, events)
	return c.steps, err
}
