// Workflow runs a definition: a graph of steps in a JSON or YAML file, with kinds of steps that need only the local machine.
// It is an example of a host that loads graphs as data and injects one step function.
//
//	go run ./examples/workflow [flags] file
//
//	-input name=value     a root input of the run; may be repeated
//	-answer gate=value    the answer for a gate that the run waits for; may be repeated
//	-ask                  ask for answers on the terminal
//	-state file           keep a run that waits in this file, and go on with it the next time
//	-limit n              run at most n steps at the same time (default: no limit)
//	-timeout d            stop, and fail, after this long
//	-v                    print what commands write, line by line
//	-progress m           show progress as auto (the default), tty, plain or json
//
// Three definitions are worth reading:
//
//	definitions/release.yaml    vets, tests and builds a Go module for three platforms, and reports what went wrong
//	definitions/survey.json     reads files at once, tolerates that one is missing, and sums up
//	definitions/approval.yaml   waits for an approval, in this process or in a later one
//
// The kinds of steps are in kinds.go. Every text in a step's config is a template: see template.go. Guards and conditions
// are expressions of package expression, contracts are JSON Schemas.
//
// The definition decides which commands run: run only those that you would run as a script.
//
// The exit code is 0 if the run completed, 1 if it failed, 3 if it waits for an answer, 130 if it was cancelled by Ctrl-C,
// and 2 if nothing was run, because of a bad flag or definition. (go run turns every code but 0 into 1.)
//
// Start reading at load in load.go, which makes a graph of a file, and execute in run.go.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/progress"
)

// The exit codes.
const (
	exitCompleted = 0
	exitFailed    = 1
	exitUsage     = 2
	exitWaiting   = 3
	exitCancelled = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // the first Ctrl-C cancels the run, a second one kills the process
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program without the process around it. It returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	h := host{answers: pairs{}, stdin: bufio.NewReader(stdin), stdout: stdout, stderr: stderr}
	inputs := pairs{}
	flags := flag.NewFlagSet("workflow", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: workflow [flags] file")
		flags.PrintDefaults()
	}
	flags.Var(inputs, "input", "a root input of the run, as `name=value`; may be repeated")
	flags.Var(h.answers, "answer", "the answer for a gate that the run waits for, as `gate=value`; may be repeated")
	flags.BoolVar(&h.ask, "ask", false, "ask for answers on the terminal")
	flags.StringVar(&h.state, "state", "", "keep a run that waits in this `file`, and go on with it the next time")
	limit := flags.Int("limit", 0, "run at most `n` steps at the same time; 0 means no limit")
	timeout := flags.Duration("timeout", 0, "stop, and fail, after this long; 0 means never")
	flags.BoolVar(&h.verbose, "v", false, "print what commands write, line by line")
	flags.TextVar(&h.show, "progress", progress.Auto, "show progress as `mode` auto, tty, plain or json")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return exitCompleted
	} else if err != nil {
		return exitUsage
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return exitUsage
	}
	file := flags.Arg(0)
	steps := kinds()
	g, err := load(file, steps)
	if err != nil {
		fmt.Fprintln(stderr, "workflow:", err)
		return exitUsage
	}
	if err := namesOf(g).check(h.answers, inputs); err != nil {
		fmt.Fprintln(stderr, "workflow:", err)
		return exitUsage
	}
	root := map[string]any{"here": filepath.Dir(file)}
	maps.Copy(root, inputs)
	h.opts = []kahn.Option{kahn.Inputs(root), kahn.Limit(*limit), kahn.Timeout(*timeout)}

	res, err := h.execute(ctx, g, steps.Step)
	if res == nil { // nothing was run
		fmt.Fprintln(stderr, "workflow:", err)
		return exitUsage
	}
	report(stdout, res)
	switch res.Status {
	case kahn.RunCompleted:
		return exitCompleted
	case kahn.RunCancelled:
		return exitCancelled
	case kahn.RunSuspended:
		if err == nil {
			return exitWaiting
		}
		fmt.Fprintln(stderr, "workflow:", err) // the state could not be kept
	}
	return exitFailed
}

// pairs is a flag that is given as name=value, any number of times.
type pairs map[string]any

// String implements flag.Value.
func (p pairs) String() string { return "" }

// Set implements flag.Value.
func (p pairs) Set(s string) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return errors.New("expected name=value")
	}
	p[name] = value
	return nil
}
