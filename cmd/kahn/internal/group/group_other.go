//go:build !unix

package group

import (
	"os/exec"
	"time"
)

// Lead does nothing: without process groups only the command itself is killed.
func Lead(*exec.Cmd, time.Duration) (end func()) { return func() {} }
