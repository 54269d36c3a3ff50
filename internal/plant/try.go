package plant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Case is a bug and the test that must find it.
type Case struct {
	Bug
	Name string // the name of the bug; may be empty
	Test string // the name of the test; its subtests run, too
}

// Wanted skips a test that plants bugs, unless the environment variable KAHN_SAMPLE or KAHN_LONG is set. .ci/run sets KAHN_SAMPLE. Tests that plant
// bugs are slow: they compile the tests of a package once more, and run a test for each bug that they try.
func Wanted(t interface{ Skip(args ...any) }) {
	if os.Getenv("KAHN_SAMPLE") == "" && os.Getenv("KAHN_LONG") == "" {
		t.Skip("KAHN_SAMPLE=1 tries a third of the planted bugs, KAHN_LONG=1 all of them")
	}
}

// atOnce is the number of tests that run at the same time. It is large because tests mostly wait.
const atOnce = 6

// The function `spread` chooses elements of a list at equal distances, but at most the given number of elements.
func spread(list []int, most int) []int {
	if len(list) <= most {
		return list
	}
	chosen := make([]int, most)
	for i := range chosen {
		chosen[i] = list[i*len(list)/most]
	}
	return chosen
}

// Try compiles the tests of the package in the working folder, with all bugs. It then chooses at most the given number of bugs from the result of
// [Sample], and runs the test of each of these bugs. If a test passes in spite of its bug, Try returns an error, which names all these bugs. It also
// returns an error if one of the chosen bugs' tests fails without a bug. The parameter root is the folder of the repository. Try adds env to the
// environment of the tests.
func Try(ctx context.Context, root string, cases []Case, most int, env ...string) error {
	pkg, err := os.Getwd()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "planted")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover temporary folder does no harm
	var bugs []Bug
	var tests []string
	for _, c := range cases {
		bugs, tests = append(bugs, c.Bug), append(tests, c.Test)
	}
	binary := filepath.Join(dir, "planted.test")
	if err := Build(ctx, root, pkg, bugs, binary); err != nil {
		return err
	}
	run := func(bug int, test, timeout string) ([]byte, error) {
		cmd := Command(ctx, binary, pkg, bug, "-test.run=^("+test+")$", "-test.failfast", "-test.timeout="+timeout)
		cmd.Env = append(cmd.Environ(), env...)
		return cmd.CombinedOutput()
	}
	chosen, err := Sample(root, bugs)
	if err != nil {
		return err
	}
	chosen = spread(chosen, most)
	var needed []string
	for _, bug := range chosen {
		needed = append(needed, tests[bug])
	}
	slices.Sort(needed)
	if out, err := run(-1, strings.Join(slices.Compact(needed), "|"), "10m"); err != nil { // these are all tests, perhaps on a busy machine
		return fmt.Errorf("without a bug: %w\n%s", err, out)
	}
	missed := make([]error, len(chosen))
	var tries errgroup.Group
	tries.SetLimit(atOnce)
	for i, bug := range chosen {
		tries.Go(func() error {
			out, err := run(bug, tests[bug], "1m")
			if err == nil {
				missed[i] = fmt.Errorf("%s has not found %s %v\n%s", tests[bug], cases[bug].Name, bugs[bug], out)
			} else if !failed(err) {
				return fmt.Errorf("%s: %w", tests[bug], err)
			}
			return nil
		})
	}
	err = tries.Wait()
	return errors.Join(append(missed, err, ctx.Err())...)
}

// The function `failed` reports whether err means that a command ran and failed. A test that finds a bug fails in this way. Any other error means
// that the command did not start.
func failed(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit)
}
