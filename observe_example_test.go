package kahn_test

import (
	"fmt"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/reactive"
)

// A coordinator of its own: effects on the status of nodes begin them, and a failure cascades before the call that reports it
// returns.
func ExampleState_StatusSignal() {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "fetch"},
		kahn.Node{ID: "resize", After: []string{"fetch"}},
		kahn.Node{ID: "publish", After: []string{"resize"}},
	)
	plan, err := g.Compile()
	if err != nil {
		fmt.Println(err)
		return
	}
	st, err := kahn.NewState(plan)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer st.Dispose()
	var calls []machine.Task // on their way
	for ref, id := range plan.Declared() {
		status := st.StatusSignal(ref)
		_, err := reactive.NewEffect(st.Scope(), func(w reactive.Writer) {
			switch status.Get(w).CallAction() {
			case machine.CallStart:
				if task, err := st.Begin(ref); err == nil {
					fmt.Println("start", id)
					calls = append(calls, task)
				}
			case machine.CallAbort:
				fmt.Println("abort", id)
			}
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	_ = st.Settle(calls[0].Token, machine.Outcome{Status: kahn.Completed})
	_ = st.Settle(calls[1].Token, machine.Outcome{Status: kahn.Failed, Cause: kahn.CauseStepError})
	fmt.Println(st.RunStatusSignal().Load())
	// Output:
	// start fetch
	// start resize
	// abort publish
	// failed
}
