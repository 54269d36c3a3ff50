//go:build unix

package main

import (
	"os"
	"syscall"
)

// pause suspends a process until it is resumed.
func pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
