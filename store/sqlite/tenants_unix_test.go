//go:build unix

package sqlite_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/store/sqlite"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// TestTenant is the main function of the child processes of TestTenants.
func TestTenant(t *testing.T) {
	dir, task := os.Getenv("KAHN_SQLITE_TENANTS"), os.Getenv(childTask)
	if dir == "" {
		t.Skip("it is a process of another test")
	}
	if task == "full" {
		limitFiles(t, 1<<20)
	}
	s, err := sqlite.Open(filepath.Join(dir, "runs.db"), sqlite.Options{})
	require.NoError(t, err)
	require.NoError(t, storetest.ServeTenants(t.Context(), dir, s, task == "alone"))
}

// tenant returns a function that makes commands that start TestTenant.
func tenant(task string) func(dir string) *exec.Cmd {
	return func(dir string) *exec.Cmd {
		cmd := exec.Command(os.Args[0], "-test.run=^TestTenant$")
		cmd.Env = append(os.Environ(), "KAHN_SQLITE_TENANTS="+dir, childTask+"="+task)
		return cmd
	}
}

// TestTenants: the bounds for each key hold while processes are killed and stopped, and while some processes find the disk full.
func TestTenants(t *testing.T) {
	t.Parallel()
	storetest.RunTenants(t, storetest.Tenants{Runs: size(60, 1000), Command: tenant("serve"), Full: tenant("full"), Open: func(t *testing.T, dir string) storetest.TenantStore {
		return openStore(t, filepath.Join(dir, "runs.db"), sqlite.Options{})
	}}, tenant("alone"))
}
