// Gocheck type-checks Go packages and all packages that they import, from source and in parallel. It is an example of a program that uses kahn: each
// package is a node of a graph, each import is an edge, and the step of a node checks its package.
//
//	go run ./examples/gocheck [flags] packages...
//
//	-C directory   find the packages in this directory, as go list -C does
//	-limit n       check at most n packages at the same time (default: GOMAXPROCS)
//	-waves         check tier by tier, instead of each package as soon as its imports are checked
//	-timeout d     fail if the checks take longer than this
//	-cache folder  keep results in this folder, and check only packages that have changed since then, see cache.go
//	-json          write the report as JSON
//	-progress m    show progress as auto (the default), tty, plain or json
//	-trace file    write the timeline of the run to a file, to be opened in ui.perfetto.dev
//
// The arguments name packages in the same way as the arguments of the go command. Gocheck runs go list to find the packages, and needs no other
// program. It writes progress to standard error, and the report to standard output. This is its output for the standard library, on two processors:
//
//	$ go run ./examples/gocheck std
//	[360/360] run completed 00:01
//	360 packages with 2544 imports: 360 completed
//	run completed
//
//	wall time        1.15 s  eager, limit 2
//	work             2.13 s
//	critical path    0.68 s  22 packages, unsafe to net/http/httputil
//	speed-up         1.85    of at most 2.00
//
//	slowest          0.25 s  runtime
//	                 0.14 s  crypto/internal/fips140/nistec
//	                 0.10 s  net/http
//	                 0.09 s  go/types
//	                 0.06 s  crypto/tls
//
// The work is the sum of the times of all packages. The critical path is the chain of imports with the greatest sum of times. The speed-up is work /
// wall time. With any number of processors, it is at most the limit, and at most work / critical path. If the limit is above the number of
// processors, the times include waits for a processor, and mean little.
//
// If a package has errors, it fails, and the packages that depend on it are aborted. All other packages are still checked:
//
//	$ go run ./examples/gocheck -C ~/src/m ./...
//	example.com/m/b: failed (dependents aborted: 1)
//		/home/me/src/m/b/b.go:5:26: cannot use a.Name (untyped string constant "a") as int value ...
//	4 packages with 3 imports: 2 completed, 1 failed, 1 aborted
//	run failed
//	...
//
// The exit code is 0 if the run completed, 1 if it failed, and 130 if Ctrl-C cancelled it. It is 2 if a bad flag or unknown packages prevented the
// check, or if the report or the timeline could not be written. (go run exits with 1 if the program exits with any code except 0.)
//
// Start reading at the function `run` in main.go. The file load.go builds the graph, check.go contains the step, and report.go reads the result.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/progress"
	"github.com/seed-c794f7ef/kahn/trace"
)

// The exit codes.
const (
	exitCompleted = 0   // every package is fine
	exitFailed    = 1   // a package has errors, or the timeout passed
	exitUsage     = 2   // nothing was checked (bad flags, or packages that cannot be listed), or a result could not be written
	exitCancelled = 130 // interrupted; the code that shells use for Ctrl-C
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // the first Ctrl-C cancels the run, the second kills the process
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// The function `run` runs the program and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("gocheck", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: gocheck [flags] packages...")
		flags.PrintDefaults()
	}
	dir := flags.String("C", "", "find the packages in this `directory`, as go list -C does")
	limit := flags.Int("limit", 0, "check at most `n` packages at the same time; 0 means GOMAXPROCS")
	waves := flags.Bool("waves", false, "check tier by tier, instead of each package as soon as its imports are checked")
	timeout := flags.Duration("timeout", 0, "fail if the checks take longer than this; 0 means no bound")
	cache := flags.String("cache", "", "keep results in this `folder`, and check only packages that have changed since then")
	asJSON := flags.Bool("json", false, "write the report as JSON")
	timeline := flags.String("trace", "", "write the timeline of the run to this `file`, to be opened in ui.perfetto.dev")
	var show progress.Mode
	flags.TextVar(&show, "progress", progress.Auto, "show progress as `mode` auto, tty, plain or json")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return exitCompleted
	} else if err != nil {
		return exitUsage
	}
	if flags.NArg() == 0 {
		flags.Usage()
		return exitUsage
	}
	if *limit == 0 {
		*limit = runtime.GOMAXPROCS(0) // type-checking never waits, so more checks at once would gain nothing
	}
	mode := kahn.Eager
	if *waves {
		mode = kahn.Waves
	}

	var timelineFile *os.File
	if *timeline != "" { // open the file before the work, to fail early; its old content stays until the new timeline is written
		var err error
		if timelineFile, err = os.OpenFile(*timeline, os.O_WRONLY|os.O_CREATE, 0o666); err != nil {
			fmt.Fprintln(stderr, "gocheck:", err)
			return exitUsage
		}
		defer func() { _ = timelineFile.Close() }() // needed if run returns before it calls writeTrace, which also closes the file
	}
	packages, err := list(ctx, *dir, flags.Args(), stderr)
	if err != nil {
		fmt.Fprintln(stderr, "gocheck:", err)
		if ctx.Err() != nil {
			return exitCancelled
		}
		return exitUsage
	}

	g := graph(packages, nil)
	display := progress.New(stderr, show)
	opts := []kahn.Option{mode, kahn.Limit(*limit), kahn.Timeout(*timeout), kahn.OnEvent(display.Event)}
	check := newChecker().check
	if *cache != "" {
		cached := newCachedChecker(*cache)
		check, g = cached.check, graph(packages, keeps)
		opts = append(opts, cached.memo)
	}
	var recorder trace.Recorder
	if *timeline != "" {
		opts = append(opts, kahn.OnEvent(recorder.Event))
	}
	result, err := kahn.Execute(ctx, g, check, opts...)
	_ = display.Close() // if the display has failed, the report is still written
	if result == nil {  // nothing was run, because of a bad option or a cycle in the graph
		fmt.Fprintln(stderr, "gocheck:", err)
		return exitUsage
	}

	if *timeline != "" {
		if err := writeTrace(timelineFile, result, recorder.Events()); err != nil {
			fmt.Fprintln(stderr, "gocheck:", err)
			return exitUsage
		}
	}

	// The report contains the errors of the nodes. The error of the run adds nothing to them.
	rep := newReport(g, result, mode, *limit)
	write := rep.writeText
	if *asJSON {
		write = rep.writeJSON
	}
	if err := write(stdout); err != nil {
		fmt.Fprintln(stderr, "gocheck:", err)
		return exitUsage
	}
	switch result.Status {
	case kahn.RunCompleted:
		return exitCompleted
	case kahn.RunCancelled:
		return exitCancelled
	}
	return exitFailed
}

func writeTrace(file *os.File, result *kahn.Result, events []kahn.Event) error {
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		if err := file.Truncate(0); err != nil {
			return err
		}
	}
	return errors.Join(trace.WritePerfetto(file, result, events), file.Close())
}
