//go:build !unix

package group

import (
	"os/exec"
	"time"
)

// Lead does nothing. Without process groups, the end of the context kills the command, and no other process.
func Lead(*exec.Cmd, time.Duration) (end func()) { return func() {} }
