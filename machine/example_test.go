package machine_test

import (
	"fmt"

	"github.com/seed-c794f7ef/kahn/machine"
)

// A coordinator performs a graph of four nodes. The second node fails, and the nodes after it do not run.
func Example() {
	ids := []string{"fetch", "parse", "count", "store"}
	net, err := machine.Build(ids, make([]machine.NodeSpec, len(ids)), []machine.Edge{
		{From: 0, To: 1}, {From: 0, To: 2}, {From: 1, To: 3},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	st := machine.New(net, &machine.Setup{Limit: 1})
	for t, ok := st.Next(); ok; t, ok = st.Next() {
		out := machine.Outcome{Status: machine.Completed}
		if net.ID(t.Ref) == "parse" {
			out = machine.Outcome{Status: machine.Failed, Cause: machine.CauseStepError}
		}
		if err := st.Settle(t.Token, out); err != nil {
			fmt.Println(err)
			return
		}
	}
	for i, id := range ids {
		r := machine.Ref(i) // the nodes are declared in topological order, so index i is also the Ref
		fmt.Println(id, st.Status(r))
	}
	status, _ := st.RunStatus(machine.StatusEscaped)
	fmt.Println("run", status)
	// Output:
	// fetch completed
	// parse failed
	// count completed
	// store aborted
	// run failed
}
