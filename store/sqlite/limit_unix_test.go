//go:build unix

package sqlite_test

import (
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// limitFiles bounds the size of the files that this process writes. A longer write returns an error.
func limitFiles(t *testing.T, size uint64) {
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	limit.Cur = min(size, limit.Max)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
}

// becomeNobody gives up superuser rights, since the superuser can write to every file.
func becomeNobody(t *testing.T) {
	if syscall.Getuid() == 0 {
		require.NoError(t, syscall.Setuid(65534))
	}
}
