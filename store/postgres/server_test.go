package postgres_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
)

// database is the URL of the tests' database.
var database string

func TestMain(m *testing.M) { postgrestest.Main(m, &database) }

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

// newStores returns a function that opens a store without runs. When a test ends, its schema is emptied and used again, since making a schema
// takes longer than most tests.
func newStores(pool *pgxpool.Pool) func(t *testing.T) *postgres.Store {
	var free []string
	return func(t *testing.T) *postgres.Store {
		t.Helper()
		if len(free) == 0 {
			free = append(free, newSchema())
		}
		last := len(free) - 1
		schema := free[last]
		free = free[:last]
		t.Cleanup(func() { // runs after the store is closed
			ctx := context.Background()
			var text string
			require.NoError(t, pool.QueryRow(ctx, "SELECT string_agg(format('DELETE FROM %I.%I', schemaname, tablename), '; ') FROM pg_tables WHERE schemaname = $1 AND tablename <> 'version'", schema).Scan(&text))
			_, err := pool.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
			free = append(free, schema)
		})
		return openStore(t, pool, schema)
	}
}

// table returns the quoted name of a table.
func table(schema, name string) string { return pgx.Identifier{schema, name}.Sanitize() }

// size returns how many cases a random test tries: full if KAHN_LONG is set, else usual.
func size(usual, full int) int {
	if os.Getenv("KAHN_LONG") != "" {
		return full
	}
	return usual
}
