// Hub coordinates remote calls without kahn's executor. It observes the state of a graph, starts a call when a node is ready, aborts the call
// when the node is aborted, and reports the answers to the state. The calls use a fake RPC. Its answers come in any order, sometimes twice,
// and sometimes after the caller has aborted the call.
//
//	go run ./examples/hub
//	go run ./examples/hub -seed 7
//
// Nothing has to be set up. The program checks its own results, and exits with 0 if all are as expected.
//
//	$ go run ./examples/hub
//	A hub starts the calls of a graph's nodes by itself. thumbs fails and is not attempted again: publish cannot run, and audit is aborted.
//	fetch    start call fetch#1
//	fetch    completed
//	parse    start call parse#1
//	...
//	audit    abort call audit#1
//	...
//	run      failed; 7 calls, 5 answers that came twice or too late
//	As it should be: every node has ended as expected, and no answer that came twice or too late has changed anything.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/seed-c794f7ef/kahn"
)

func main() {
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

// command runs the program and returns the exit code.
func command(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("hub", flag.ContinueOnError)
	flags.SetOutput(stderr)
	seed := flags.Uint64("seed", 1, "the seed of the random order in which calls are answered")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "hub: unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	fmt.Fprintln(stdout, "A hub starts the calls of a graph's nodes by itself. thumbs fails and is not attempted again: publish cannot run, and audit is aborted.")
	if err := run(stdout, *seed); err != nil {
		fmt.Fprintln(stderr, "hub:", err)
		return 1
	}
	fmt.Fprintln(stdout, "As it should be: every node has ended as expected, and no answer that came twice or too late has changed anything.")
	return 0
}

// job returns the graph that the hub coordinates. The node "thumbs" fails for good in its first attempt, so the node "publish" is aborted.
func job() *kahn.Graph {
	g := &kahn.Graph{Name: "job"}
	return g.Add(
		kahn.Node{ID: "fetch"},
		kahn.Node{ID: "parse", After: []string{"fetch"}},
		kahn.Node{ID: "index", After: []string{"parse"}}, // the first call fails, so the node is attempted again
		kahn.Node{ID: "thumbs", After: []string{"parse"}},
		kahn.Node{ID: "draft", After: []string{"parse"}, Disabled: true},
		kahn.Node{ID: "publish", After: []string{"index", "thumbs"}},
		kahn.Node{ID: "audit"}, // the call does not end by itself; the hub aborts it when nothing can be published any more
	)
}

// The map `want` contains the expected statuses, which do not depend on the order of the answers.
var want = map[string]kahn.Status{
	"fetch": kahn.Completed, "parse": kahn.Completed, "index": kahn.Completed, "thumbs": kahn.Failed,
	"draft": kahn.Skipped, "publish": kahn.Aborted, "audit": kahn.Aborted,
}

func run(out io.Writer, seed uint64) error {
	h, err := newHub(out, job(), newRPC(seed))
	if err != nil {
		return err
	}
	if err := h.coordinate(); err != nil {
		return err
	}
	for ref, id := range h.plan.Declared() {
		if got := h.st.Status(ref); got != want[id] {
			return fmt.Errorf("node %s is %v, expected %v", id, got, want[id])
		}
	}
	if h.refused == 0 {
		return fmt.Errorf("no answer came twice or too late: there was nothing to refuse")
	}
	return nil
}
