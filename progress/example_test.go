package progress_test

import (
	"context"
	"fmt"
	"os"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/progress"
)

// Auto draws a picture on a terminal and writes lines elsewhere.
func Example() {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "fetch"}, kahn.Node{ID: "build", After: []string{"fetch"}})
	step := func(context.Context, *kahn.Step) (any, error) { return nil, nil }

	p := progress.New(os.Stderr, progress.Auto)
	res, err := kahn.Execute(context.Background(), &g, step, p.Options()...)
	fmt.Println(res.Status, err, p.Close())
	// Output: completed <nil> <nil>
}

// A Group shows the runs of a service one below the other.
func ExampleGroup() {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "fetch"}, kahn.Node{ID: "build", After: []string{"fetch"}})
	step := func(context.Context, *kahn.Step) (any, error) { return nil, nil }

	group := progress.NewGroup(os.Stderr, progress.Auto)
	runner := kahn.Runner{Options: group.Options()}
	for _, id := range []string{"web", "api"} {
		_, err := runner.Execute(context.Background(), &g, step, kahn.RunID(id))
		fmt.Println(err)
	}
	fmt.Println(group.Close())
	// Output:
	// <nil>
	// <nil>
	// <nil>
}
