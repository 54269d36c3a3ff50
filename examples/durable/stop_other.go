//go:build !unix

package main

import (
	"errors"
	"os"
)

// pause returns an error, since this system cannot suspend a process.
func pause(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }
