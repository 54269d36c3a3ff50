package kahn_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// A host that loads its graphs as data passes one step function, which calls a function for the node's kind.
func Example() {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "fetch", Kind: "fetch"},
		kahn.Node{ID: "count", Kind: "count", In: []kahn.Edge{{From: "fetch", Param: "text"}}},
		kahn.Node{ID: "shout", Kind: "shout", In: []kahn.Edge{{From: "fetch", Param: "text"}}},
	)
	step := kahn.Mux{
		"fetch": func(context.Context, *kahn.Step) (any, error) { return "one two three", nil },
		"count": func(_ context.Context, s *kahn.Step) (any, error) {
			text, err := kahn.Param[string](s, "text")
			return len(strings.Fields(text)), err
		},
		"shout": func(_ context.Context, s *kahn.Step) (any, error) {
			text, err := kahn.Param[string](s, "text")
			return strings.ToUpper(text), err
		},
	}.Step

	res, err := kahn.Execute(context.Background(), &g, step, kahn.Limit(8))
	if err != nil {
		fmt.Println(err)
		return
	}
	n, _ := kahn.Output[int](res, "count")
	fmt.Println(res.Status, n, res.Output())
	// Output: completed 3 map[count:3 shout:ONE TWO THREE]
}

// A condition with a Go test is an error boundary. It sees that the fetch failed and takes another branch, so the run completes.
func ExampleIf() {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "fetch", Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("no route to host") }},
		kahn.If("fetched?", func(v kahn.View) (bool, error) { return v.Status("fetch") == kahn.Completed, nil }, "fetch"),
		kahn.Node{ID: "store", In: []kahn.Edge{{From: "fetched?", Label: "true"}}, Do: nothing},
		kahn.Node{ID: "alert", In: []kahn.Edge{{From: "fetched?", Label: "false"}}, Do: nothing},
	)
	res, err := kahn.Execute(context.Background(), &g, nil)
	fmt.Println(res.Status, res.Degraded, err)
	for n := range res.Nodes() {
		fmt.Println(strings.TrimSpace(fmt.Sprint(n.ID, " ", n.Status, " ", n.Skip)))
	}
	// Output:
	// completed true <nil>
	// fetch failed
	// fetched? completed
	// store skipped condition_branch(fetched? answered "false", not "true")
	// alert completed
}

// A node on a branch may get data from any node, and runs only if the branch is taken.
func ExampleIf_data() {
	g := func(rows ...string) *kahn.Graph {
		return new(kahn.Graph).Add(
			kahn.Node{ID: "fetch", Do: func(context.Context, *kahn.Step) (any, error) { return rows, nil }},
			kahn.If("any?", func(v kahn.View) (bool, error) { return len(v.Output("fetch").([]string)) > 0, nil }, "fetch"),
			kahn.Node{ID: "store", In: []kahn.Edge{{From: "any?", Label: "true"}, {From: "fetch", Param: "rows"}},
				Do: func(_ context.Context, s *kahn.Step) (any, error) {
					rows, err := kahn.Param[[]string](s, "rows")
					return len(rows), err
				}},
			kahn.Node{ID: "alert", In: []kahn.Edge{{From: "any?", Label: "false"}}, Do: nothing},
		)
	}
	for _, graph := range []*kahn.Graph{g("a", "b"), g()} {
		res, err := kahn.Execute(context.Background(), graph, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		store, _ := res.Node("store")
		alert, _ := res.Node("alert")
		fmt.Println("store", store.Status, store.Output, "- alert", alert.Status)
	}
	// Output:
	// store completed 2 - alert skipped
	// store skipped <nil> - alert completed
}

// A catch edge is a branch, too: the refund gets the order as data, but runs only if the charge fails.
func ExampleEdge_refund() {
	refund := func(charge error) kahn.Status {
		var g kahn.Graph
		g.Add(
			kahn.Node{ID: "order", Do: nothing},
			kahn.Node{ID: "charge", After: []string{"order"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, charge }},
			kahn.Node{ID: "refund", In: []kahn.Edge{{From: "order", Param: "order"}, {From: "charge", On: kahn.OnFailure}}, Do: nothing},
		)
		res, err := kahn.Execute(context.Background(), &g, nil)
		if err != nil {
			fmt.Println(err)
		}
		n, _ := res.Node("refund")
		return n.Status
	}
	fmt.Println(refund(nil), refund(errors.New("declined")))
	// Output: skipped completed
}

// A failure that no node handles aborts the nodes that depend on the failed node, and no others.
func ExampleRunError() {
	broken := errors.New("disk full")
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "dump", Do: func(context.Context, *kahn.Step) (any, error) { return nil, broken }},
		kahn.Node{ID: "upload", After: []string{"dump"}, Do: nothing},
		kahn.Node{ID: "report", Do: nothing},
	)
	res, err := kahn.Execute(context.Background(), &g, nil)
	fmt.Println(err, errors.Is(err, broken))
	for n := range res.Nodes() {
		fmt.Println(n.ID, n.Status, n.Cause.Origins)
	}
	// Output:
	// run failed: node "dump": step_error: disk full true
	// dump failed [dump]
	// upload aborted [dump]
	// report completed []
}

// An edge that waits for failure catches it, and delivers the error as its value.
func ExampleEdge_catch() {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "charge", Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("card declined") }},
		kahn.Node{ID: "ship", After: []string{"charge"}, Do: nothing},
		kahn.Node{ID: "apologize", In: []kahn.Edge{{From: "charge", On: kahn.OnFailure, Param: "why"}},
			Do: func(_ context.Context, s *kahn.Step) (any, error) {
				why, err := kahn.Param[error](s, "why")
				fmt.Println(why)
				return nil, err
			}},
	)
	res, _ := kahn.Execute(context.Background(), &g, nil)
	ship, _ := res.Node("ship")
	fmt.Println(res.Status, ship.Status)
	// Output:
	// node "charge": step_error: card declined
	// completed skipped
}

// Several edges deliver values for one parameter. The values are merged in the order in which the edges were declared.
func ExampleGraph_RegisterMerge() {
	value := func(v int) kahn.StepFunc { return func(context.Context, *kahn.Step) (any, error) { return v, nil } }
	var g kahn.Graph
	g.RegisterMerge("sum", func(in []kahn.Contribution) (any, error) {
		sum := 0
		for _, c := range in {
			sum += c.Value.(int)
		}
		return sum, nil
	})
	g.Add(
		kahn.Node{ID: "a", Do: value(1)}, kahn.Node{ID: "b", Do: value(2)}, kahn.Node{ID: "c", Do: value(3)},
		kahn.Node{ID: "total", Merge: "sum",
			In: []kahn.Edge{{From: "a", Param: "n"}, {From: "b", Param: "n"}, {From: "c", Param: "n"}},
			Do: func(_ context.Context, s *kahn.Step) (any, error) { return kahn.Param[int](s, "n") }},
	)
	res, err := kahn.Execute(context.Background(), &g, nil)
	fmt.Println(res.Output(), err)
	// Output: 6 <nil>
}

// A sink gets the events of a run in order.
func ExampleOnEvent() {
	var g kahn.Graph
	g.Name = "demo"
	g.Add(kahn.Node{ID: "a", Do: nothing}, kahn.Node{ID: "b", After: []string{"a"}, Do: nothing})
	_, err := kahn.Execute(context.Background(), &g, nil, kahn.OnEvent(func(e kahn.Event) { fmt.Println(strings.TrimSpace(fmt.Sprint(e.ID, " ", e.Type, " ", e.Node))) }))
	fmt.Println(err)
	// Output:
	// 1 run.started
	// 2 node.queued a
	// 3 node.started a
	// 4 node.completed a
	// 5 node.queued b
	// 6 node.started b
	// 7 node.completed b
	// 8 run.completed
	// <nil>
}

// A host may drive a run itself: the State says which nodes are ready, and the host performs them where and when it wants.
func ExampleState() {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}}, kahn.Node{ID: "c", After: []string{"b"}})
	plan, _ := g.Compile()
	st, _ := kahn.NewState(plan)
	for t, ok := st.Next(); ok; t, ok = st.Next() {
		out := machine.Outcome{Status: kahn.Completed}
		if plan.ID(t.Ref) == "b" {
			out = machine.Outcome{Status: kahn.Failed, Cause: kahn.CauseStepError}
		}
		if err := st.Settle(t.Token, out); err != nil {
			fmt.Println(err)
		}
		fmt.Println("a duplicate is refused:", errors.Is(st.Settle(t.Token, out), kahn.ErrStale))
	}
	for r, id := range plan.Declared() {
		fmt.Println(id, st.Status(r))
	}
	status, _ := st.RunStatus(machine.StatusEscaped)
	fmt.Println(status)
	// Output:
	// a duplicate is refused: true
	// a duplicate is refused: true
	// a completed
	// b failed
	// c aborted
	// failed
}

// A step asks a model for a plan and expands into the plan's graph. It saves the plan as its state. If the run is left or its process dies while
// the plan is performed, the step is called again and need not ask the model.
func ExampleExpand() {
	plan := func(_ context.Context, s *kahn.Step) (any, error) {
		tasks, known := s.SavedState().([]string)
		if !known {
			tasks = []string{"search", "read", "write"} // the model's answer
		}
		g := new(kahn.Graph)
		for i, task := range tasks {
			n := kahn.Node{ID: task, Kind: "task"}
			if i > 0 {
				n.After = tasks[i-1 : i]
			}
			g.Add(n)
		}
		return nil, kahn.Expand(g, map[string]any{"goal": "a report"}, tasks)
	}
	steps := kahn.Mux{"plan": plan, "task": func(_ context.Context, s *kahn.Step) (any, error) {
		goal, _ := s.Root("goal")
		return fmt.Sprint(s.Path(), " for ", goal), nil
	}}
	g := new(kahn.Graph).Add(kahn.Node{ID: "agent", Kind: "plan"}, kahn.Node{ID: "publish", Kind: "task", After: []string{"agent"}})
	res, err := kahn.Execute(context.Background(), g, steps.Step, kahn.Kinds(steps))
	if err != nil {
		fmt.Println(err)
		return
	}
	agent, _ := res.Node("agent")
	for n := range agent.Sub.Nodes() {
		fmt.Println(n.ID, n.Status)
	}
	fmt.Println(agent.Output)
	// Output:
	// search completed
	// read completed
	// write completed
	// agent/write for a report
}
