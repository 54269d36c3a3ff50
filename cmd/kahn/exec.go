package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/cmd/kahn/internal/group"
)

// grace is the time within which a command must end after it was asked to stop.
const grace = 2 * time.Second

// The function `execute` runs a command and streams its output line by line. On Unix, when the attempt is stopped, execute sends SIGTERM to the
// command's process group, and SIGKILL after the time `grace`. When the command has ended, for whatever reason, execute kills the other
// processes of the group: at once or, if they still have an output of the command open, after at most 2*grace. So no process of the group outlives
// the step. On other systems, when the attempt is stopped, execute kills the command at once, and no other process.
func execute(ctx context.Context, s *kahn.Step) (any, error) {
	c, err := configured[struct {
		Command    []string
		Dir, Stdin string
		Env        map[string]string
	}](s)
	if err != nil {
		return nil, err
	}
	if len(c.Command) == 0 {
		return nil, kahn.Permanent(errors.New("config: there is no command"))
	}
	cmd := exec.CommandContext(ctx, c.Command[0], c.Command[1:]...)
	cmd.Dir, cmd.Stdin = c.Dir, strings.NewReader(c.Stdin)
	cmd.Env = os.Environ()
	for name, value := range c.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	stdout, stderr := lines{emit: s.Emit}, lines{emit: s.Emit}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 2 * grace // Run waits this long for processes that still have the command's outputs open
	end := group.Lead(cmd, grace)
	err = cmd.Run()
	end()
	stdout.end()
	stderr.end()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // the command succeeded, even if a child process still has an output open
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	default:
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(c.Command, " "), err, cmp.Or(stderr.tail(), stdout.tail()))
	}
	return map[string]any{"stdout": stdout.text(), "stderr": stderr.text(), "cut": stdout.isCut() || stderr.isCut()}, nil
}

// maxLine is a length in bytes. A longer line of an output is streamed in several parts.
const maxLine = 1 << 16

// The type `lines` streams the lines of one output of a command, and keeps the last maxText bytes.
type lines struct {
	emit func(any)

	mu   sync.Mutex // guards the fields below: package os/exec calls Write on a goroutine of its own
	kept []byte
	cut  bool   // whether the beginning of the output was dropped
	line []byte // the last line, until its end is read
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = append(l.kept, p...)
	if over := len(l.kept) - maxText; over > 0 {
		l.kept, l.cut = l.kept[over:], true
	}
	for part := range bytes.Lines(p) {
		l.line = append(l.line, part...)
		if bytes.HasSuffix(part, []byte("\n")) || len(l.line) >= maxLine {
			l.flush()
		}
	}
	return len(p), nil
}

// The method `end` streams the last line if it does not end with a newline.
func (l *lines) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.line) > 0 {
		l.flush()
	}
}

// flush streams the line. The caller holds l.mu. flush calls emit under this lock, since emit does not block.
func (l *lines) flush() {
	l.emit(strings.TrimRight(string(l.line), "\r\n"))
	l.line = l.line[:0]
}

// The method `text` returns the kept output. If the beginning was dropped, the text begins after the first newline, if there is one.
func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, rest, found := bytes.Cut(l.kept, []byte("\n")); l.cut && found {
		return string(rest)
	}
	return string(l.kept)
}

// isCut reports whether the beginning of the output was dropped.
func (l *lines) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

// tail returns the last 500 bytes of the output, for an error.
func (l *lines) tail() string {
	text := strings.TrimSpace(l.text())
	return strings.ToValidUTF8(text[max(0, len(text)-500):], "")
}
