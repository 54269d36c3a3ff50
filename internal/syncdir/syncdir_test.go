package syncdir_test

import (
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/syncdir"
)

func TestSync(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, syncdir.Sync(dir))
	require.ErrorIs(t, syncdir.Sync(filepath.Join(dir, "none")), fs.ErrNotExist)
}
