package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// invoke runs the program. It returns its exit code and its output.
func invoke(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = kahnCommand(t.Context(), args, newTerminal(strings.NewReader(stdin), &out, &errs))
	return code, out.String(), errs.String()
}

// expect runs the program, and checks its exit code and that its output contains part.
func expect(t *testing.T, code int, part, stdin string, args ...string) {
	t.Helper()
	got, stdout, stderr := invoke(t, stdin, args...)
	if got != code || !strings.Contains(stdout+stderr, part) {
		t.Fatalf("exit code %d, not %d, or no %q in:\n%s%s", got, code, part, stdout, stderr)
	}
}

// file writes a file in a new folder.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// contains checks that a file contains part.
func contains(t *testing.T, path, part string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), part) {
		t.Errorf("%s has no %q:\n%s", path, part, text)
	}
}

func missing(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s: %v", path, err)
	}
}

// until waits until happened returns true. If happened does not return true within a time limit, the test fails with an error that includes
// shown.
func until(t *testing.T, shown fmt.Stringer, what string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s:\n%v", what, shown)
		}
	}
}
