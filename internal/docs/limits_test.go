package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests that docs/limits.md names exist.
func TestLimitsAreTested(t *testing.T) {
	guide, err := os.ReadFile("../../docs/limits.md")
	require.NoError(t, err)
	rows := table(t, string(guide), "# Limits")
	require.Greater(t, len(rows), 10)
	for _, row := range rows {
		folder, test, _ := strings.Cut(strings.Trim(row[3], "`"), ": ")
		if folder == "kahn" {
			folder = "."
		}
		files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
		require.NoError(t, err)
		var found bool
		for _, file := range files {
			code, err := os.ReadFile(file)
			require.NoError(t, err)
			found = found || strings.Contains(string(code), "func "+test+"(t *testing.T)")
		}
		require.True(t, found, "%s: there is no %s in %s", row[0], test, folder)
	}
}
