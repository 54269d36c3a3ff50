package postgres_test

import (
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

// table is the name of a table for a statement.
func table(schema, name string) string { return pgx.Identifier{schema, name}.Sanitize() }

// size chooses how much of a search is done: usually, or at full length.
func size(usual, full int) int {
	if os.Getenv("KAHN_LONG") != "" {
		return full
	}
	return usual
}
