//go:build unix

// Package group ends a command together with the processes that it has started.
package group

import (
	"os/exec"
	"syscall"
	"time"
)

// Lead makes the command the leader of a process group. When the command is cancelled, Lead sends SIGTERM to the group, and after grace SIGKILL.
// The caller calls end when the command has ended: end kills the remaining processes of the group at once.
func Lead(cmd *exec.Cmd, grace time.Duration) (end func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	send := func(s syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, s) }
	var kill *time.Timer
	cmd.Cancel = func() error {
		kill = time.AfterFunc(grace, func() { _ = send(syscall.SIGKILL) }) // the group may be gone already
		return send(syscall.SIGTERM)
	}
	return func() {
		if kill != nil { // Cancel no longer sets the timer `kill`, since Run returns after Cancel
			kill.Stop()
		}
		if cmd.Process != nil {
			_ = send(syscall.SIGKILL) // kills the remaining processes of the group
		}
	}
}
