package trace_test

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/trace"
)

func release() *kahn.Graph {
	g := &kahn.Graph{Name: "release"}
	return g.Add(
		kahn.Node{ID: "build"},
		kahn.Node{ID: "test", After: []string{"build"}},
		kahn.Node{ID: "publish", After: []string{"test"}},
		kahn.Node{ID: "report", In: []kahn.Edge{{From: "test", On: kahn.OnFailure}}},
	)
}

func perform(_ context.Context, s *kahn.Step) (any, error) {
	if s.ID() == "test" {
		return nil, errors.New("2 tests failed")
	}
	return nil, nil
}

// Without a result the picture shows only the graph.
func ExampleMermaid() {
	plan, err := release().Compile()
	if err != nil {
		panic(err)
	}
	fmt.Print(trace.Mermaid(plan, nil))
	// Output:
	// flowchart TD
	//     n0["build"]
	//     n1["test"]
	//     n2["publish"]
	//     n3["report"]
	//     n0 --> n1
	//     n1 --> n2
	//     n1 --x|"failure"| n3
}

// With a result nodes have the colours of their statuses.
func ExampleDOT() {
	res, _ := kahn.Execute(context.Background(), release(), perform)
	fmt.Print(trace.DOT(res.Plan(), res))
	// Output:
	// digraph "release" {
	//     node [fontname="sans-serif", style=filled, fillcolor="#ffffff"];
	//     n0 [label="build\ncompleted", shape=box, fillcolor="#d3f9d8", color="#2b8a3e"];
	//     n1 [label="test\nfailed: step_error", shape=box, fillcolor="#ffc9c9", color="#c92a2a"];
	//     n2 [label="publish\nskipped: condition_branch(test)", shape=box, fillcolor="#f1f3f5", color="#868e96"];
	//     n3 [label="report\ncompleted", shape=box, fillcolor="#d3f9d8", color="#2b8a3e"];
	//     n0 -> n1;
	//     n1 -> n2;
	//     n1 -> n3 [label="failure", style=dashed, color="#c92a2a"];
	// }
}

// The events of the run become a timeline for ui.perfetto.dev.
func ExampleWritePerfetto() {
	var rec trace.Recorder
	res, _ := kahn.Execute(context.Background(), release(), perform, kahn.OnEvent(rec.Event))
	var file io.Writer = io.Discard // os.Create("run.json")
	fmt.Println(trace.WritePerfetto(file, res, rec.Events()))
	// Output: <nil>
}

// A report can be written as text, encoded as JSON, or used by a program.
func ExampleNewReport() {
	var rec trace.Recorder
	res, _ := kahn.Execute(context.Background(), release(), perform, kahn.OnEvent(rec.Event))
	report := trace.NewReport(res, rec.Events())
	for _, step := range report.CriticalPath {
		fmt.Println(step.Node)
	}
	for _, n := range report.Nodes {
		if n.Why != "" {
			fmt.Printf("%s did not run: %s\n", n.ID, n.Why)
		}
	}
	if err := report.WriteText(io.Discard); err != nil { // or os.Stdout
		fmt.Println(err)
	}
	// Output:
	// build
	// test
	// report
	// publish did not run: test failed: step_error, and only its success leads here
}
