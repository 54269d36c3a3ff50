package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	pool := newPool(t, database)
	storetest.Run(t, func(t *testing.T) store.Store { return openStore(t, pool, newSchema()) })
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	pool := newPool(t, database)
	storetest.RunAdmin(t, func(t *testing.T) store.Admin { return openStore(t, pool, newSchema()) })
}

// TestModes: the store does not depend on how pgx executes statements, and so not on what a session keeps.
func TestModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, database, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			storetest.Run(t, func(t *testing.T) store.Store { return openStore(t, pool, newSchema()) })
		})
	}
}
