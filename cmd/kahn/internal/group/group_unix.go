//go:build unix

// Package group ends a command together with the processes that the command has started.
package group

import (
	"os/exec"
	"syscall"
	"time"
)

// Lead makes the command the leader of a process group, and sets cmd.Cancel. When the context of the command ends, Cancel sends SIGTERM to the group,
// and SIGKILL after the time `grace`. When cmd.Run has returned, the caller must call `end`, which kills the rest of the group at once.
func Lead(cmd *exec.Cmd, grace time.Duration) (end func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	send := func(s syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, s) }
	var kill *time.Timer
	cmd.Cancel = func() error {
		kill = time.AfterFunc(grace, func() { _ = send(syscall.SIGKILL) }) // the group may be gone already
		return send(syscall.SIGTERM)
	}
	return func() {
		if kill != nil { // Run returns only after Cancel has returned, so Cancel no longer sets the timer `kill`
			kill.Stop()
		}
		if cmd.Process != nil {
			_ = send(syscall.SIGKILL) // kills the remaining processes of the group
		}
	}
}
