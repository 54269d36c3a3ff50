package kahntest

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-c794f7ef/kahn"
)

// Joined returns the status that a node gets if its in-edges have the given classes. The parameter "letters" has one letter for the class of each
// edge: S for satisfied, N for neutral, X for dead, F for failed. [kahn.Join] explains the classes. The returned status is in the notation of this
// package. Joined uses only the fields Join, SkipMode, OnUpstreamFailure and Cleanup of the node.
//
//	kahntest.Joined(kahn.Node{Join: kahn.NoneFailed}, "SNX") // "ok"
//
// The letters mean classes, not statuses. For example, a node that was skipped because of its predecessors has the status S/up, and its out-edges
// have the class N.
func Joined(n kahn.Node, letters string) (string, error) {
	const target = "T"
	t := kahn.Node{
		ID: target, Join: n.Join, SkipMode: n.SkipMode, OnUpstreamFailure: n.OnUpstreamFailure, Cleanup: n.Cleanup,
		Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil },
	}
	var g kahn.Graph
	for i, letter := range letters {
		source := kahn.Node{ID: fmt.Sprintf("%c%d", letter, i+1), Do: t.Do}
		edge := kahn.Edge{From: source.ID}
		switch letter {
		case 'S':
		case 'N':
			source.Disabled = true
		case 'X', 'F':
			source.Do = func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("failed") }
			if letter == 'X' { // a catch edge to another node handles the failure, so the edge to the target is dead
				g.Add(kahn.Node{ID: source.ID + " failed", Do: t.Do, In: []kahn.Edge{{From: source.ID, On: kahn.OnFailure}}})
			}
		default:
			return "", fmt.Errorf("%q: %q is no class of an edge: S, N, X or F", letters, letter)
		}
		g.Add(source)
		t.In = append(t.In, edge)
	}
	g.Add(t)
	res, err := kahn.Execute(context.Background(), &g, nil)
	if res == nil {
		return "", err
	}
	r, _ := res.Node(target)
	return Status(r.Status, r.Skip.Kind), nil
}
