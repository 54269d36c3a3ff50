// Package syncdir makes the names in folders durable. A created or renamed file survives a power failure only if its folder was synced.
package syncdir

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// Sync makes the names in a folder durable, if the system can.
func Sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if runtime.GOOS == "windows" || errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil // the system cannot sync folders
	}
	return errors.Join(err, f.Close())
}
