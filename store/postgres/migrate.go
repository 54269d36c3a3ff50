package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-c794f7ef/kahn/store"
)

// The method `migrate` brings the schema up to date. If several processes call it at once, one of them migrates while the others wait.
func (s *Store) migrate(ctx context.Context) error {
	version, err := s.version(ctx, s.pool)
	if err != nil || version == len(migrations) {
		return err
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// The lock ends with the transaction, so a pooler may use a different connection for each transaction.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", "kahn "+s.schema); err != nil {
			return err
		}
		version, err := s.version(ctx, tx)
		if err != nil {
			return err
		}
		for _, m := range Migrations(s.schema)[version:] {
			if _, err := tx.Exec(ctx, m.SQL, pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("migration %d: %w", m.Version, err)
			}
		}
		return nil
	})
}

// newerSchema returns an error if the program is older than the schema.
func newerSchema(version int) error {
	if version <= len(migrations) {
		return nil
	}
	return fmt.Errorf("%w: the schema has version %d, but this program knows versions up to %d", store.ErrNewerSchema, version, len(migrations))
}

// The method `version` returns the version of the schema, or 0 if the database does not have the schema. It returns an error if this package does not
// know the version.
func (s *Store) version(ctx context.Context, db queryer) (version int, err error) {
	// This statement does not call to_regclass, because to_regclass may miss a table that another process has made since the transaction began.
	var there bool
	err = db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = 'version')", s.schema).Scan(&there)
	if err != nil || !there {
		return 0, err
	}
	err = db.QueryRow(ctx, s.sql("SELECT version FROM $S.version")).Scan(&version)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, fmt.Errorf("%w: the schema has no version", ErrDamaged)
	case err == nil && (version < 0 || version > len(migrations)):
		err = fmt.Errorf("%w: version %d; this program knows versions up to %d", ErrSchema, version, len(migrations))
	}
	return version, err
}
