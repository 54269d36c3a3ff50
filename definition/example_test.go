package definition_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
)

// step performs the kinds of nodes in these tests.
var step = kahn.Mux{
	"text": func(_ context.Context, s *kahn.Step) (any, error) { return s.ID(), nil },
	"join": func(_ context.Context, s *kahn.Step) (any, error) { return kahn.Param[string](s, "p") },
}.Step

// A host reads a document, and runs it with a step function for its kinds.
func ExampleLoad() {
	document := `{
	  "version": 1,
	  "name": "greeting",
	  "nodes": [
	    {"id": "hello", "kind": "text", "next": {"to": "greet", "param": "p"}},
	    {"id": "world", "kind": "text", "next": {"to": "greet", "param": "p"}},
	    {"id": "greet", "kind": "join", "merge": "concat"}
	  ]
	}`
	g, err := definition.Load([]byte(document), definition.Limits{}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := kahn.Execute(context.Background(), g, step)
	fmt.Printf("%q %v\n", res.Output(), err)
	// Output: "hello\n\nworld" <nil>
}

// Problems name their places; all of them are found at once.
func ExampleDecode() {
	_, err := definition.Decode([]byte(`{
  "version": 1,
  "nodes": [
    {"id": "build", "timeout": 30},
    {"id": "test", "After": ["build"]}
  ]
}`), definition.Limits{})
	fmt.Println(err)
	// Output:
	// definition: 2 problems
	// 	line 4, column 32: $.nodes[0].timeout: node "build": expected a duration with a unit, such as "30s", got 30
	// 	line 5, column 20: $.nodes[1].After: node "test": unknown field "After"; did you mean "after"?
}

func ExampleEncode() {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "build", Kind: "exec", Config: map[string]any{"command": []any{"go", "build"}}, Timeout: time.Minute},
		kahn.Node{ID: "test", Kind: "exec", After: []string{"build"}, Retry: kahn.Retry{MaxAttempts: 2}},
	)
	text, err := definition.Encode(&g)
	fmt.Println(string(text), err)
	// Output:
	// {
	//   "version": 1,
	//   "nodes": [
	//     {
	//       "id": "build",
	//       "kind": "exec",
	//       "config": {"command": ["go", "build"]},
	//       "timeout": "1m"
	//     },
	//     {"id": "test", "kind": "exec", "after": ["build"], "retry": {"max_attempts": 2}}
	//   ]
	// }
	//  <nil>
}
