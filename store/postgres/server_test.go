package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/store/postgres"
)

// errNoServer says that there are no programs of a server.
var errNoServer = errors.New("there is no PostgreSQL server")

// The environment variables with the URL of a server, and with that of the database of a test that has started this process.
const (
	serverURL   = "KAHN_POSTGRES"
	databaseURL = "KAHN_POSTGRES_DATABASE"
)

// database is the URL of the tests' database.
var database string

// TestMain makes a database for the tests: on the server of the environment, or else on one that it starts.
func TestMain(m *testing.M) {
	if database = os.Getenv(databaseURL); database != "" {
		os.Exit(m.Run())
	}
	code, err := withServer(m.Run)
	if err != nil {
		fmt.Println("store/postgres:", err)
		code = 1
		if errors.Is(err, errNoServer) {
			fmt.Printf("No test was run. Install PostgreSQL (apt-get install postgresql), or set %s to the URL of a role that may create databases.\n", serverURL)
			code = 0
		}
	}
	os.Exit(code)
}

func withServer(f func() int) (code int, err error) {
	server := os.Getenv(serverURL)
	if server == "" {
		c, err := newCluster()
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, c.remove()) }()
		server = c.url("postgres")
	}
	name := fmt.Sprintf("kahn_test_%d", os.Getpid())
	if database, err = createDatabase(server, name); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dropDatabase(server, name)) }()
	return f(), nil
}

// createDatabase makes a database on the server of another one, and returns its URL.
func createDatabase(server, name string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), execute(server, "CREATE DATABASE "+name+" ENCODING 'UTF8' TEMPLATE template0")
}

// dropDatabase removes a database that [createDatabase] has made, and ends the connections to it.
func dropDatabase(server, name string) error {
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

// newPool opens a pool of a database, as configured.
func newPool(t *testing.T, url string, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
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

var schemas atomic.Int64

// newSchema is the name of a schema that no test has used.
func newSchema() string { return fmt.Sprintf(`runs "%d" of %d`, schemas.Add(1), os.Getpid()) }

// openStore opens a store with the given pool.
func openStore(t *testing.T, pool *pgxpool.Pool, schema string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), pool, postgres.Options{Schema: schema})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// table is the name of a table for a statement.
func table(schema, name string) string { return pgx.Identifier{schema, name}.Sanitize() }

// size chooses how much of a search is done: usually, or at full length.
func size(usual, full int) int {
	if os.Getenv("KAHN_LONG") != "" {
		return full
	}
	return usual
}
