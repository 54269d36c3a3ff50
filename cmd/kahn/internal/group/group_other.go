//go:build !unix

package group

import (
	"os/exec"
	"time"
)

// Lead does nothing: there are no process groups here, and the command alone is killed.
func Lead(*exec.Cmd, time.Duration) (end func()) { return func() {} }
