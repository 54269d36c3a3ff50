package expression_test

import (
	"context"
	"fmt"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/expression"
)

// A graph can be pure data: here a guard and a condition are texts.
func Example() {
	g := kahn.Graph{Evaluator: expression.Evaluator{}, StrictGuards: true}
	g.Add(
		kahn.Node{ID: "classify", Config: map[string]any{"score": 0.9, "needsPr": false}},
		kahn.Node{ID: "open-pr", After: []string{"classify"}, WhenExpr: "{{ nodes.classify.output.needsPr }}"},
		kahn.Node{ID: "size", After: []string{"classify"}, TestExpr: `$nodes.classify.output.score > 0.8 ? "large" : "small"`},
		kahn.Node{ID: "review", In: []kahn.Edge{{From: "size", Label: "large"}}},
		kahn.Node{ID: "merge", In: []kahn.Edge{{From: "size", Label: "small"}}},
	)
	res, err := kahn.Execute(context.Background(), &g, func(_ context.Context, s *kahn.Step) (any, error) { return s.Config(), nil })
	if err != nil {
		fmt.Println(err)
		return
	}
	for n := range res.Nodes() {
		fmt.Printf("%-9s %s\n", n.Status, n.ID)
	}
	// Output:
	// completed classify
	// skipped   open-pr
	// completed size
	// completed review
	// skipped   merge
}

// Parse reports a text that it cannot read, before anything runs.
func ExampleEvaluator_Parse() {
	_, err := expression.Evaluator{}.Parse("nodes.open-pr.status == 'completed'")
	fmt.Println(err)
	// Output: 1:11: a node has no value to subtract from; a node whose id has a dash is $nodes["my-id"]
}
