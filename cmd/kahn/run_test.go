package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// If a release fails, the step after the error boundary reports it, nothing is built, and the run fails.
func TestReleaseThatFails(t *testing.T) {
	t.Parallel()
	module, out := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module example.com/broken\n\ngo 1.25.0\n",
		"main.go":      "package main\n\nfunc main() {}\n",
		"main_test.go": "package main\n\nimport \"testing\"\n\nfunc TestMain2(t *testing.T) { t.Error(\"it is broken\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, exitProblems, "the release failed: see "+out, "", "run", "-input", "module="+module, "-input", "out="+out, "definitions/release.yaml")
	contains(t, filepath.Join(out, "report.txt"), "test      failed")
	contains(t, filepath.Join(out, "report.txt"), "it is broken")
	contains(t, filepath.Join(out, "report.txt"), "linux     aborted")
	missing(t, filepath.Join(out, "SHA256SUMS"))
	missing(t, filepath.Join(out, "release-linux-amd64"))
}

// One file of the survey does not exist. The run still completes, and reports the missing file.
func TestSurvey(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := invoke(t, "", "run", "definitions/survey.json")
	if code != exitOK {
		t.Fatal(code, stdout, stderr)
	}
	for _, part := range []string{"roadmap: failed", "run completed, in spite of failures", "readme: ", "all: "} {
		if !strings.Contains(stdout, part) {
			t.Errorf("no %q in:\n%s", part, stdout)
		}
	}
}

// A gate can be answered by a flag, on the terminal, or in a later process, with all spellings that gates accept.
func TestApproval(t *testing.T) {
	t.Parallel()
	const definition = "definitions/approval.yaml"
	note := func(out string) string { return filepath.Join(out, "note.txt") }
	t.Run("flag", func(t *testing.T) {
		out := t.TempDir()
		expect(t, exitOK, "run completed", "", "run", "-input", "out="+out, "-input", "reader=Ada", "-answer", "approve=yes", definition)
		contains(t, note(out), "Dear Ada, version 2 is out.")
	})
	t.Run("terminal", func(t *testing.T) {
		out := t.TempDir()
		expect(t, exitOK, "run completed", "approved\n", "run", "-input", "out="+out, "-ask", definition)
		contains(t, note(out), "Dear reader")
	})
	t.Run("no", func(t *testing.T) {
		out := t.TempDir()
		expect(t, exitOK, "Not published: not yet", "\nnot yet\n", "run", "-input", "out="+out, "-ask", definition)
		missing(t, note(out))
	})
	t.Run("end of input", func(t *testing.T) {
		expect(t, exitWaiting, "approve: waits for an answer", "", "run", "-ask", definition)
	})
	t.Run("later", func(t *testing.T) {
		out, db := t.TempDir(), filepath.Join(t.TempDir(), "runs.db")
		args := []string{"run", "-input", "out=" + out, "-store", db, definition}
		expect(t, exitWaiting, "run suspended", "", args...)
		expect(t, exitWaiting, "run suspended", "", args...) // the run is still suspended
		missing(t, note(out))
		expect(t, exitOK, "run completed", "", "run", "-answer", "approve=true", "-store", db, definition) // the run continues with its stored inputs
		contains(t, note(out), "version 2 is out")
		expect(t, exitWaiting, "run suspended", "", args...) // a new run
	})
}

// If a gate refuses an answer, the command asks again. The label of the gate precedes each question.
func TestAskedAgain(t *testing.T) {
	t.Parallel()
	definition := file(t, "choices.yaml", `
version: 1
nodes:
  - {id: S, graph: {nodes: [{id: g, label: Where to?, kind: gate, gate: {choices: [left, right]}}]}}
`)
	code, stdout, stderr := invoke(t, "lefft\nleft\n", "run", "-ask", "-progress", "plain", definition)
	if code != exitOK || !strings.Contains(stdout, "left") {
		t.Errorf("exit code %d\n%s", code, stdout)
	}
	if got := strings.Count(stderr, "Where to?\nS/g: "); got != 2 {
		t.Errorf("%d questions", got)
	}
	if !strings.Contains(stderr, `no such choice: "lefft"; choose one of "left", "right"; did you mean "left"?`) {
		t.Error(stderr)
	}
	if code, _, stderr := invoke(t, "left\n", "run", "-ask", "-answer", "S/g=lefft", definition); code != exitWaiting || strings.Contains(stderr, "Where to?") {
		t.Errorf("a refused answer of a flag: exit code %d\n%s", code, stderr)
	}
}

// If a gate times out while the user is asked, the run continues. Later input is not taken as an answer.
func TestAskedTooLate(t *testing.T) {
	t.Parallel()
	definition := file(t, "late.yaml", `
version: 1
nodes:
  - {id: ask, kind: gate, gate: {timeout: 50ms, on_timeout: label}, branches: {approved: good, default: late}}
  - {id: good, kind: template, config: {text: good}}
  - {id: late, kind: template, config: {text: nobody came}}
`)
	stdin, write := io.Pipe()
	defer func() { _ = write.Close() }() // a pipe's end never fails
	var out, errs bytes.Buffer
	code := kahnCommand(t.Context(), []string{"run", "-ask", "-progress", "plain", definition}, newTerminal(stdin, &out, &errs))
	if code != exitOK || !strings.Contains(out.String(), "nobody came") || strings.Count(errs.String(), "too late") != 1 {
		t.Errorf("exit code %d\n%s%s", code, &out, &errs)
	}
}

// Ctrl-C at a question ends a run that is not stored.
func TestInterruptedQuestion(t *testing.T) {
	t.Parallel()
	stdin, write := io.Pipe()
	defer func() { _ = write.Close() }() // a pipe's end never fails
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out bytes.Buffer
	code := kahnCommand(ctx, []string{"run", "-ask", "definitions/approval.yaml"}, newTerminal(stdin, &out, onPrompt{"approve: ", interrupt}))
	if code != exitCancelled {
		t.Errorf("exit code %d\n%s", code, &out)
	}
}

// onPrompt is a writer that calls a function when text is written to it.
type onPrompt struct {
	text string
	call func()
}

func (o onPrompt) Write(p []byte) (int, error) {
	if string(p) == o.text {
		o.call()
	}
	return len(p), nil
}
