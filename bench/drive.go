package main

import (
	"fmt"
	"io"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// driveBudget bounds the time of State.Drive divided by the time of Execute, per node: see checkDrive.
const driveBudget = 4

// driven performs a graph with State.Drive. It calls no steps: it settles each task that Drive begins with the status Completed.
var driven = contestant{"State.Drive", func(j job) (func() error, error) {
	plan, err := kahnGraph(j.shape, false).Compile()
	if err != nil {
		return nil, err
	}
	return func() error {
		st, err := kahn.NewState(plan)
		if err != nil {
			return err
		}
		var open []machine.Token
		err = st.Drive(func(t machine.Task) { open = append(open, t.Token) }, func(machine.Token) {})
		for ; err == nil && len(open) > 0; open = open[1:] {
			err = st.Settle(open[0], machine.Outcome{Status: machine.Completed})
		}
		if err == nil && !st.Done() {
			err = fmt.Errorf("a State that is driven did not end")
		}
		return err
	}, nil
}}

// checkDrive measures the time of Drive divided by the time of Execute, for several shapes. ok is false if one of these ratios exceeds driveBudget.
func checkDrive(out io.Writer, rounds int, target time.Duration) (ok bool, err error) {
	ok = true
	t := table{header: []string{"State.Drive / Execute", "ns/node", "measured", "fails above", "verdict"}}
	for _, s := range []*shape{chain(1000), fan(1000), layered(10_000)} {
		var e, base *entry
		for try := 0; try < tries; try++ {
			entries, err := contestOn(s, rounds*(1+try), target, kahnEager, driven)
			if err != nil {
				return false, err
			}
			if base, e = entries[0], entries[1]; e.over(base) <= driveBudget {
				break
			}
		}
		verdict := "ok"
		if e.over(base) > driveBudget {
			verdict, ok = "TOO MUCH", false
		}
		t.add(s.name, short(e.ns()), times(e.over(base)), times(driveBudget), verdict)
	}
	fmt.Fprintln(out)
	t.print(out)
	return ok, nil
}
