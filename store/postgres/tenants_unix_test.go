//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/postgres/localserver"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// TestTenant is the main function of the child processes of TestTenants.
func TestTenant(t *testing.T) {
	dir, task, url := os.Getenv("KAHN_POSTGRES_TENANTS"), os.Getenv(childTask), os.Getenv(postgrestest.DatabaseURL)
	if dir == "" {
		t.Skip("it is a process of another test")
	}
	pool := postgrestest.NewPool(t, url)
	var s *postgres.Store
	for s == nil { // the server may be restarting
		s, _ = postgres.Open(t.Context(), pool, postgres.Options{Schema: "tenants", Listen: url})
	}
	require.NoError(t, storetest.ServeTenants(t.Context(), dir, s, task == "alone"))
}

// TestTenants: the bounds for each key hold while processes are killed and stopped, and while the server cuts connections and restarts.
func TestTenants(t *testing.T) {
	t.Parallel()
	c, err := localserver.NewCluster(localserver.NoSync)
	if errors.Is(err, localserver.ErrNoServer) {
		t.Skip("there is no server of this machine to be stopped:", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Remove()) })
	url := c.URL("postgres")
	tenant := func(task string) func(dir string) *exec.Cmd {
		return func(dir string) *exec.Cmd {
			cmd := exec.Command(os.Args[0], "-test.run=^TestTenant$")
			cmd.Env = append(os.Environ(), postgrestest.DatabaseURL+"="+url, "KAHN_POSTGRES_TENANTS="+dir, childTask+"="+task)
			return cmd
		}
	}
	cut := func(string) error {
		conn, err := pgx.Connect(context.Background(), url)
		if err != nil {
			return err
		}
		_, err = conn.Exec(context.Background(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
		return errors.Join(err, conn.Close(context.Background()))
	}
	restart := func(signal syscall.Signal) func(string) error {
		return func(string) error { return errors.Join(c.Signal(signal), c.Start()) }
	}
	storetest.RunTenants(t, storetest.Tenants{Runs: size(60, 1000), Command: tenant("serve"), Faults: []func(string) error{cut, cut, restart(syscall.SIGINT), restart(syscall.SIGKILL)},
		Open: func(t *testing.T, _ string) storetest.TenantStore {
			pool := postgrestest.NewPool(t, url)
			_, err := pool.Exec(t.Context(), "DROP SCHEMA IF EXISTS tenants CASCADE")
			require.NoError(t, err)
			return openStore(t, pool, "tenants")
		}}, tenant("alone"))
}
