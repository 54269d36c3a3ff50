//go:build unix

package main

import (
	"os/exec"
	"syscall"
	"time"
)

// group makes the command the leader of a process group, and its end the end of the group. The function that it returns is
// to be called when the command has ended.
func group(cmd *exec.Cmd) (end func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	send := func(s syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, s) }
	var kill *time.Timer
	cmd.Cancel = func() error {
		kill = time.AfterFunc(grace, func() { _ = send(syscall.SIGKILL) }) // it may be gone already
		return send(syscall.SIGTERM)
	}
	return func() {
		if kill != nil { // Cancel has returned before Run does
			kill.Stop()
		}
		if cmd.Process != nil {
			_ = send(syscall.SIGKILL) // to processes that it has left behind
		}
	}
}
