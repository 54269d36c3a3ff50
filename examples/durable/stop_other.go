//go:build !unix

package main

import (
	"errors"
	"os"
)

// pause stops a process until it is resumed, which this system cannot do.
func pause(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }
