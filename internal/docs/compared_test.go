package docs

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README is read in one sitting.
func TestReadmeIsShort(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	require.Less(t, strings.Count(string(readme), "\n"), 150)
}

// Every feature in the comparison of the README names a command whose program exists, or an existing test.
func TestFeaturesAreShown(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(readme), "| | errgroup |")
	require.True(t, found)
	text, _, found = strings.Cut(text, "\n\n")
	require.True(t, found)
	shown := map[string]bool{} // by test name: whether the test exists
	rows := strings.Split(text, "\n")[2:]
	require.Greater(t, len(rows), 10)
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		require.Len(t, cells, 6, row)
		shower := strings.Trim(cells[5], "`")
		if command, ok := strings.CutPrefix(shower, "go run ./"); ok {
			require.FileExists(t, filepath.Join("../..", strings.Fields(command)[0], "main.go"))
			continue
		}
		require.True(t, strings.HasPrefix(shower, "Test"), row)
		shown[shower] = false
	}
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), ".git")):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for name := range shown {
			shown[name] = shown[name] || bytes.Contains(source, []byte("func "+name+"(t *testing.T)"))
		}
		return err
	}))
	for name, ok := range shown {
		require.True(t, ok, "there is no test %s", name)
	}
}
