// Kahn works with definitions: graphs of steps in JSON or YAML files. It checks them, draws them, runs them, and runs their tests.
//
//	kahn vet FILE...      report every problem, with file, line and column
//	kahn draw FILE        draw the graph in Mermaid, DOT or SVG
//	kahn run FILE         run it
//	kahn serve PATH...    run definitions at the times of their schedules
//	kahn list             list the runs of a store
//	kahn test FILE...     run the tests beside definitions
//	kahn schema           print the JSON Schema of definitions, for editors
//	kahn completion SHELL print the completions for bash, zsh or fish
//	kahn version          print the versions of the command, the library and Go
//	kahn help [COMMAND]
//
// The kinds of steps are listed in kinds.go. Every text in a step's config is a template, unless the kind is jq: see template.go. Guards
// and conditions are expressions of package expression. Contracts are JSON Schemas.
//
// A definition decides which commands are executed: run a definition only if you would run it as a script. Only kahn run, kahn serve and kahn test
// call steps. kahn test calls only the steps that a case lists under "real" and, if the case has "missing: real", the steps without a mock.
//
// To read the code, begin with the function `commands` in commands.go: it returns the table of commands and flags.
package main

import (
	"context"
	"os"
	"os/signal"
)

// The exit codes.
const (
	exitOK        = 0   // success; for run: the run completed
	exitProblems  = 1   // vet found problems, a test failed, the run failed
	exitUsage     = 2   // a bad flag, no such file; for run: nothing was run
	exitWaiting   = 3   // the run waits for an answer
	exitCancelled = 130 // the run was cancelled, or left after Ctrl-C
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // the first Ctrl-C cancels or leaves the run; the second kills the process
	os.Exit(kahnCommand(ctx, os.Args[1:], newTerminal(os.Stdin, os.Stdout, os.Stderr)))
}
