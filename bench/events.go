package main

import (
	"fmt"
	"io"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// sinkBudget is the budget, in ns per node, for delivering all events of a run to one sink.
const sinkBudget = 500

var (
	kahnSink  = contestant{"kahn, one sink", func(j job) (func() error, error) { return prepareKahn(j, kahn.OnEvent(func(kahn.Event) {})) }}
	kahnSinks = contestant{"kahn, four sinks", func(j job) (func() error, error) {
		sink := kahn.OnEvent(func(kahn.Event) {})
		return prepareKahn(j, sink, sink, sink, sink)
	}}
)

// The function `events` measures how much more a run costs if it delivers its events to one sink, and to four. Each sink runs on a separate
// goroutine, so another processor does a part of this work.
func events(out io.Writer, rounds int, target time.Duration) error {
	t := table{header: []string{"shape", "listeners", "ns/node", "more ns/node", "B/node", "allocs/node"}}
	for _, s := range []*shape{chain(1000), fan(1000), layered(10_000), bipartite(300)} {
		entries, err := contestOn(s, rounds, target, kahnEager, kahnSink, kahnSinks)
		if err != nil {
			return err
		}
		for i, e := range entries {
			more := ""
			if i > 0 {
				more = short(e.more(entries[0]))
			}
			t.add(s.name, e.name, short(e.ns()), more, short(e.bytes()), short(e.allocs()))
		}
	}
	fmt.Fprintf(out, "### Events; one sink at most %d ns a node more\n\n", sinkBudget)
	t.print(out)
	return nil
}
