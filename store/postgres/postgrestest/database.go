// Package postgrestest gives tests a database of PostgreSQL: one of their own on a server that the environment names, or else on one that it
// starts on a port of this machine.
//
//	var database string
//
//	func TestMain(m *testing.M) { postgrestest.Main(m, &database) }
package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// ErrNoServer says that there are no programs of a server.
var ErrNoServer = errors.New("there is no PostgreSQL server")

// The environment variables with the URL of a server, and with that of the database of a test that has started this process.
const (
	ServerURL   = "KAHN_POSTGRES"
	DatabaseURL = "KAHN_POSTGRES_DATABASE"
)

// Main performs the tests of a package with a database that it makes for them, puts its URL into database, and ends the process. A process that a
// test has started gets the database of that test. Where there is no server the go command marks the package with "no tests to run", and the output
// of the tests, which go test -v prints, says in one line how to run them.
func Main(m *testing.M, database *string) {
	if *database = os.Getenv(DatabaseURL); *database != "" {
		os.Exit(m.Run())
	}
	var code int
	err := WithDatabase(func(url string) error {
		*database = url
		code = m.Run()
		return nil
	})
	switch {
	case errors.Is(err, ErrNoServer):
		fmt.Println("testing: warning: no tests to run") // by this line the go command knows
		fmt.Printf("%v: install it (apt-get install postgresql), or set %s to the URL of a role that may create databases.\n", err, ServerURL)
	case err != nil:
		fmt.Println("postgrestest:", err)
		code = 1
	}
	os.Exit(code)
}

// WithDatabase calls f with the URL of a database that it makes for it: on the server that the environment variable [ServerURL] names, or else on
// one that it starts. Without programs for that the error matches [ErrNoServer].
func WithDatabase(f func(url string) error) (err error) {
	server := os.Getenv(ServerURL)
	if server == "" {
		c, err := NewCluster()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Remove()) }()
		server = c.URL("postgres")
	}
	name := fmt.Sprintf("kahn_test_%d", os.Getpid())
	database, err := CreateDatabase(server, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, DropDatabase(server, name)) }()
	return f(database)
}

// CreateDatabase makes a database on the server of another one, and returns its URL.
func CreateDatabase(server, name string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), execute(server, "CREATE DATABASE "+name+" ENCODING 'UTF8' TEMPLATE template0")
}

// DropDatabase removes a database that [CreateDatabase] has made, and ends the connections to it.
func DropDatabase(server, name string) error {
	return execute(server, "DROP DATABASE "+name+" WITH (FORCE)")
}

// execute executes a statement over a connection of its own.
func execute(url, text string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, text)
	return errors.Join(err, conn.Close(ctx))
}

// NewPool opens a pool of a database, as configured, that is closed when the test has ended.
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
