//go:build unix

package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// When a command is stopped, the processes that it started end, too, even if they ignore SIGTERM. When a command ends by itself, its child
// processes end, too.
func TestExecLeavesNothingBehind(t *testing.T) {
	for name, row := range map[string]struct {
		script string
		stop   bool
	}{
		"asked":             {`sleep 1000 & echo $! > pid; wait`, true},
		"killed":            {`(trap '' TERM; sleep 1000) & echo $! > pid; trap '' TERM; wait`, true},
		"in the background": {`sleep 1000 > /dev/null 2>&1 & echo $! > pid`, false},
		"with an output":    {`sleep 1000 & echo $! > pid; echo done`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				_, err := perform(ctx, "exec", map[string]any{"command": []any{"sh", "-c", row.script}, "dir": dir}, nil)
				done <- err
			}()
			pid := pidIn(t, nil, dir)
			if row.stop {
				cancel()
			}
			if err := <-done; (err != nil) != row.stop {
				t.Error(err)
			}
			until(t, nil, "the end of the process", func() bool { return !alive(pid) })
		})
	}
}

// alive reports whether a process runs. It returns false for a zombie, which init has not waited for yet.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !strings.Contains(string(stat), ") Z ")
}
