// Tenants is a service with several tenants, one of which has too much work. Its processes share runs in an SQLite file. In this program each
// process is a Runner with its own connection to the file. The program checks five claims, and exits with code 1 if a claim is false.
//
//	go run ./examples/tenants
//	go run ./examples/tenants -without turns
//
// The second command leaves out the setting that makes the claim "turns" true, and so shows what the noisy tenant does without this setting. Instead
// of turns, you can name the claim runs, shared or nightly.
//
//	$ go run ./examples/tenants
//	turns:   200 runs of a are due before the one run of b, which begins as number 2
//	runs:    two processes perform 2 runs of a at once, 2 of b and 2 of c; 36 runs of a end after the last one of the others
//	shared:  two processes perform 2 fetches of a at once, 2 of b, 2 of c and 2 mails, and 5 steps in all
//	why:     fetch of b-2, in process 2: it waits for a slot of the key b in all processes: 1 of 1, held by run b-1
//	nightly: a, b and c have a run each at 02:00, with the key of the tenant: last night's has completed, the next one is pending
//	As it should be: no tenant has waited for all the work of another one, and no bound was exceeded.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// patience is the time that the program may take. If the program takes longer, something is wrong, and it gives up.
const patience = 5 * time.Minute

func main() {
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

// command runs the program and returns the exit code.
func command(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("tenants", flag.ContinueOnError)
	flags.SetOutput(stderr)
	without := flags.String("without", "", "leave out what makes this claim true: turns, runs, shared or nightly")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if flags.NArg() > 0 || !slices.Contains([]string{"", "turns", "runs", "shared", "nightly"}, *without) {
		fmt.Fprintf(stderr, "tenants: unexpected argument in %q\n", args)
		return 2
	}
	if err := run(stdout, *without); err != nil {
		fmt.Fprintln(stderr, "tenants:", err)
		return 1
	}
	fmt.Fprintln(stdout, "As it should be: no tenant has waited for all the work of another one, and no bound was exceeded.")
	return 0
}

// claims lists the claims, and for each claim the function that checks it. If the argument `with` is false, this function leaves out the setting that
// makes the claim true.
var claims = []struct {
	name  string
	check func(ctx context.Context, out io.Writer, file string, with bool) error
}{{"turns", takeTurns}, {"runs", boundRuns}, {"shared", shareLimits}, {"why", explain}, {"nightly", scheduleNightly}}

// run checks the claims in order, each with a new file, until a check returns an error.
func run(out io.Writer, without string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	dir, err := os.MkdirTemp("", "kahn-tenants-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, claim := range claims {
		if err := claim.check(ctx, out, filepath.Join(dir, claim.name+".db"), claim.name != without); err != nil {
			return fmt.Errorf("%s: %w", claim.name, err)
		}
	}
	return nil
}
