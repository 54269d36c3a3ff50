package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

var testCommand = command{
	name: "test", args: "FILE...", least: 1, most: manyFiles,
	summary: "run the tests of definitions",
	text: `
The tests of release.yaml are in release.test.yaml, .yml or .json beside it; FILE is either of the two. A case runs the definition with mocks
in place of steps, and compares the statuses, outputs and errors of the run and its nodes. Guards, conditions, joins, retries, timeouts and
gates are real. No time passes: backoffs and timeouts are over at once. "kahn schema -test" prints the fields.

    cases:
      - name: a release whose tests fail
        mocks:
          vet: {output: {stdout: "", stderr: ""}}
          test: {error: exit status 1}
        expect:
          status: failed
          nodes: {linux: aborted, report: completed}

A step without a mock completes without an output, unless the case says otherwise with "missing" or lists it under "real": such a step is
called as in any run, and takes its time, which -timeout bounds.
A real step is undone as in any run. For a mocked node, "undos: {charge: {}}" is a compensation that succeeds, {error: busy} a compensation that fails, and
"nodes: {charge: {compensation: done}}" says how the compensation is expected to end.
With -kinds the definitions are those of a host: see "kahn help vet". Their steps cannot be called here, so a real one fails.

The exit code is 0 if all cases pass, 1 if one fails or a file has problems, and 2 if a file cannot be read.`,
	register: func(f *flags) action {
		o := &testOptions{}
		f.kinds(&o.by)
		f.StringVar(&o.only, "case", "", "run only the cases whose names contain this `text`")
		f.BoolVar(&o.verbose, "v", false, "show the status of each node")
		f.DurationVar(&o.timeout, "timeout", time.Minute, "stop, and fail, a case that takes longer than this; 0 means never")
		return o.run
	},
}

// testOptions holds the flags of the command `kahn test`.
type testOptions struct {
	only    string
	verbose bool
	timeout time.Duration
	by      performer
}

// run performs the command.
func (o *testOptions) run(ctx context.Context, t *terminal, files []string) int {
	if o.timeout < 0 {
		return t.refuse(errors.New("-timeout must not be negative"))
	}
	ran, failed, code := 0, 0, exitOK
	var all []string // the files with tests, each once: a pattern such as *.yaml matches both a definition and its tests
	for _, file := range files {
		if !isTests(file) {
			tests, err := testsOf(file)
			if err != nil {
				code = t.refuse(err)
				continue
			}
			file = tests
		}
		if file = filepath.Clean(file); !slices.Contains(all, file) {
			all = append(all, file)
		}
	}
	for _, file := range all {
		data, err := readFile(file)
		if err != nil {
			code = t.refuse(err)
			continue
		}
		s, found := o.by.vetTests(file, data)
		if s == nil {
			found.write(t.err)
			code = max(code, exitProblems)
			continue
		}
		b, before := strings.Builder{}, ran
		fmt.Fprintln(&b, file)
		for i := range s.Cases {
			c := &s.Cases[i]
			if !strings.Contains(c.Name, o.only) {
				continue
			}
			ran++
			res, failures := s.try(ctx, c, o.timeout)
			if len(failures) > 0 {
				failed++
			}
			writeCase(&b, c, res, failures, o.verbose)
		}
		if ran > before {
			t.write(b.String())
		}
	}
	switch {
	case ran > 0:
		t.write(fmt.Sprintf("%s, %d failed\n", count(ran, "case"), failed))
	case code == exitOK:
		return t.refuse(fmt.Errorf("there is no case whose name contains %q", o.only))
	}
	if failed > 0 {
		code = max(code, exitProblems)
	}
	return code
}

// writeCase reports a case.
func writeCase(b *strings.Builder, c *testCase, res *kahn.Result, failures []error, verbose bool) {
	verdict := "ok  "
	if len(failures) > 0 {
		verdict = "FAIL"
	}
	fmt.Fprintf(b, "  %s  %s\n", verdict, screenText(c.Name))
	for _, failure := range failures {
		fmt.Fprintf(b, "        %s\n", strings.ReplaceAll(screenText(failure.Error()), "\n", "\n    "))
	}
	if res == nil || res.Test == nil || len(failures) == 0 && !verbose {
		return
	}
	fmt.Fprintf(b, "        the run: %v\n", res.Status)
	for n := range res.Nodes() {
		outcome, _ := res.Test.Node(n.ID)
		fmt.Fprintf(b, "        %s: %s\n", screenText(n.ID), screenText(fate(n, outcome)))
	}
}

// The function `fate` returns the status of a node, the reason, and how often the step was called.
func fate(n kahn.NodeResult, outcome kahn.TestNode) string {
	text := n.Status.String()
	switch {
	case n.Status == kahn.Skipped:
		text += fmt.Sprintf(": %v", n.Skip)
	case n.Cause.Err != nil:
		text += fmt.Sprintf(": %v", n.Cause.Err)
	}
	return fmt.Sprintf("%s (%v, %s)", text, outcome.Outcome, count(outcome.Calls, "call"))
}
