// Package postgrestest gives the tests of a package a database of PostgreSQL. Package localserver makes the database.
//
//	var database string
//
//	func TestMain(m *testing.M) { postgrestest.Main(m, &database) }
package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/store/postgres/localserver"
)

// DatabaseURL is an environment variable. A test sets it to the URL of its database for the processes that it starts.
const DatabaseURL = "KAHN_POSTGRES_DATABASE"

// Main makes a database, stores its URL in *database, runs the tests of a package, and ends the process. If the environment variable [DatabaseURL] is
// set, Main makes no database, and uses that URL. If there is no server, the go command reports "no tests to run" for the package, and go test -v
// prints a line that says how to run the tests.
func Main(m *testing.M, database *string) {
	if *database = os.Getenv(DatabaseURL); *database != "" {
		os.Exit(m.Run())
	}
	var code int
	err := localserver.WithDatabase(func(url string) error {
		*database = url
		code = m.Run()
		return nil
	}, localserver.NoSync)
	switch {
	case errors.Is(err, localserver.ErrNoServer):
		fmt.Println("testing: warning: no tests to run") // the go command recognises this line
		fmt.Printf("%v: install it (apt-get install postgresql), or set %s to the URL of a role that may create databases.\n", err, localserver.ServerURL)
	case err != nil:
		fmt.Println("postgrestest:", err)
		code = 1
	}
	os.Exit(code)
}

// NewPool opens a pool of connections to a database, and closes the pool when the test has ended. The functions "configure" may change the
// configuration of the pool.
func NewPool(t testing.TB, url string, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	for _, c := range configure {
		c(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}
