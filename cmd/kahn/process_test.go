//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// processVariable is the environment variable that makes the test binary run as the program.
const processVariable = "KAHN_TEST_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(processVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is the program in its own process.
type process struct {
	*exec.Cmd
	out lockedBuffer
}

// lockedBuffer is a buffer that is read while a process writes to it.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	own, err := os.Executable()
	require.NoError(t, err)
	p := &process{Cmd: exec.Command(own, args...)}
	p.Env = append(os.Environ(), processVariable+"=1")
	p.Stdout, p.Stderr = &p.out, &p.out
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() }) // the process has already ended, unless the test failed
	return p
}

// exit waits for the process and returns its exit code.
func (p *process) exit() int {
	_ = p.Wait() // the exit code contains the outcome
	return p.ProcessState.ExitCode()
}

// String returns what the process has written.
func (p *process) String() string { return p.out.String() }

func exists(path string) func() bool {
	return func() bool {
		_, err := os.Stat(path)
		return err == nil
	}
}

// pidIn returns the process id that a process has written to the file pid.
func pidIn(t *testing.T, p fmt.Stringer, dir string) (pid int) {
	t.Helper()
	until(t, p, "the process", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "pid"))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return bytes.HasSuffix(text, []byte("\n"))
	})
	return pid
}

// A process is killed in the middle of a step. The next process continues the run with the same inputs. It calls the interrupted step again,
// and does not repeat steps that have ended.
func TestCrash(t *testing.T) {
	t.Parallel()
	definition := file(t, "work.yaml", `
version: 1
nodes:
  - {id: first, kind: exec, config: {dir: '{{input "here"}}', command: [sh, -c, 'echo first >> log']}, next: second}
  - id: second
    kind: exec
    config: {dir: '{{input "here"}}', command: [sh, -c, 'echo second >> log; [ -e pid ] || { echo $$ > pid; exec sleep 1000; }']}
    next: third
  - {id: third, kind: exec, config: {dir: '{{input "here"}}', command: [sh, -c, 'echo {{input "who"}} >> log']}}
`)
	dir := filepath.Dir(definition)
	db, log := filepath.Join(dir, "runs.db"), filepath.Join(dir, "log")
	p := start(t, "run", "-store", db, "-lease", "3s", "-input", "who=third", definition)
	pid := pidIn(t, p, dir)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // ends the command that the killed process has started
	require.NoError(t, p.Process.Signal(syscall.SIGKILL))
	require.Equal(t, -1, p.exit())

	code, stdout, stderr := invoke(t, "", "run", "-store", db, "-lease", "500ms", definition)
	require.Equal(t, exitOK, code, stdout+stderr)
	require.Contains(t, stderr, "continues")
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, "first\nsecond\nsecond\nthird\n", string(text))
	code, _, stderr = invoke(t, "", "run", "-store", db, definition, "-input", "who=x") // a new run, since the first has ended
	require.Equal(t, exitOK, code)
	require.NotContains(t, stderr, "continues")
}

// The first Ctrl-C cancels the run, and its cleanup steps run.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	definition := file(t, "work.yaml", `
version: 1
nodes:
  - {id: long, kind: exec, config: {dir: '{{input "here"}}', command: [sh, -c, 'touch begun; sleep 1000']}}
  - {id: after, kind: exec, after: long, config: {dir: '{{input "here"}}', command: [touch, reached]}}
  - {id: clean, kind: exec, after: long, cleanup: true, config: {dir: '{{input "here"}}', command: [touch, cleaned]}}
`)
	dir := filepath.Dir(definition)
	p := start(t, "run", definition)
	until(t, p, "the step", exists(filepath.Join(dir, "begun")))
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.Equal(t, exitCancelled, p.exit(), p.out.String())
	require.Contains(t, p.out.String(), "run cancelled")
	require.FileExists(t, filepath.Join(dir, "cleaned"))
	missing(t, filepath.Join(dir, "reached"))
}

// Ctrl-C leaves a stored run: its step is interrupted, its cleanup step does not run, and the same command continues the run. With -cancel,
// Ctrl-C cancels the run.
func TestInterruptStored(t *testing.T) {
	t.Parallel()
	for _, cancels := range []bool{false, true} {
		definition := file(t, "work.yaml", `
version: 1
nodes:
  - {id: first, kind: exec, config: {dir: '{{input "here"}}', command: [sh, -c, 'echo first >> log']}, next: second}
  - id: second
    kind: exec
    config: {dir: '{{input "here"}}', command: [sh, -c, 'echo second >> log; [ -e pid ] || { echo $$ > pid; exec sleep 1000; }']}
  - {id: clean, kind: exec, after: second, cleanup: true, config: {dir: '{{input "here"}}', command: [sh, -c, 'echo clean >> log']}}
`)
		dir := filepath.Dir(definition)
		args := []string{"run", "-store", filepath.Join(dir, "runs.db"), "-run", "7", definition}
		first := args
		if cancels {
			first = slices.Insert(slices.Clone(args), 1, "-cancel")
		}
		p := start(t, first...)
		pid := pidIn(t, p, dir)
		require.NoError(t, p.Process.Signal(os.Interrupt))
		require.Equal(t, exitCancelled, p.exit(), p.out.String())
		require.False(t, alive(pid), "the command of a step that was interrupted")
		if cancels {
			require.Contains(t, p.out.String(), "run cancelled")
			contains(t, filepath.Join(dir, "log"), "first\nsecond\nclean\n")
			expect(t, exitCancelled, "had ended before", "", args...)
			continue
		}
		require.Contains(t, p.out.String(), "interrupted; to continue: kahn run -store "+filepath.Join(dir, "runs.db")+" -run 7 "+definition)
		expect(t, exitOK, "continues", "", args...)
		text, err := os.ReadFile(filepath.Join(dir, "log"))
		require.NoError(t, err)
		require.Equal(t, "first\nsecond\nsecond\nclean\n", string(text))
	}
}

// Ctrl-C at a question leaves a stored run unchanged, and another process answers. A run without a store is cancelled.
func TestInterruptWhileAsked(t *testing.T) {
	t.Parallel()
	const definition = "definitions/approval.yaml"
	out, db := t.TempDir(), filepath.Join(t.TempDir(), "runs.db")
	for _, row := range []struct {
		says string
		args []string
	}{
		{"interrupted; to continue: kahn run -store", []string{"-store", db}},
		{"run cancelled", nil},
	} {
		p := start(t, append([]string{"run", "-ui", "localhost:0", "-input", "out=" + out, definition}, row.args...)...)
		until(t, p, "the gate", func() bool { return strings.Contains(p.out.String(), "approve: suspended") })
		require.NoError(t, p.Process.Signal(os.Interrupt))
		require.Equal(t, exitCancelled, p.exit(), p.out.String())
		require.Contains(t, p.out.String(), row.says)
	}
	expect(t, exitOK, "run completed", "", "run", "-store", db, "-answer", "approve=yes", definition)
	contains(t, filepath.Join(out, "note.txt"), "version 2 is out")
}

// A run that was begun on the page is left when the command ends. Its step is interrupted, no child process remains, and another command
// continues the run.
func TestRunsOfThePageAreLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	definition := file(t, "work.yaml", `
version: 1
nodes:
  - {id: ask, kind: gate}
  - {id: work, kind: exec, after: ask, config: {dir: `+dir+`, command: [sh, -c, 'echo once >> log; [ ! -e long ] || { echo $$ > pid; exec sleep 1000; }']}}
`)
	args := []string{"-store", filepath.Join(dir, "runs.db"), definition}
	earlier := append([]string{"run", "-run", "earlier", "-answer", "ask=yes"}, args...)
	expect(t, exitOK, "run completed", "", earlier...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "long"), nil, 0o600))
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	url, code := shown(t, ctx, append(args, "-run", "present", "-ui", ":0")...)
	waiting(t, url)
	post(t, url+"api/v1/redrive?run=earlier", `{"nodes": ["work"]}`)
	pid := pidIn(t, nil, dir)
	interrupt()
	require.Equal(t, exitCancelled, <-code)
	require.False(t, alive(pid), "the command of a step that was left")
	require.NoError(t, os.Remove(filepath.Join(dir, "long")))
	expect(t, exitOK, "continues", "", earlier...)
	contains(t, filepath.Join(dir, "log"), "once\nonce\nonce\n")
}
