package sqlite

import (
	"database/sql/driver"
	"fmt"

	"github.com/seed-c794f7ef/kahn/store"
)

// migrate brings the schema up to date.
func (w *writer) migrate() (err error) {
	version, err := schemaVersion(w.conn)
	if err != nil || version == int64(len(migrations)) {
		return err
	}
	if version > int64(len(migrations)) {
		return fmt.Errorf("%w: version %d; this program knows versions up to %d", ErrSchema, version, len(migrations))
	}
	if err := execute(w.conn, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = execute(w.conn, "ROLLBACK") // if ROLLBACK fails, SQLite has already rolled back
		}
	}()
	if version, err = schemaVersion(w.conn); err != nil { // the version is read again, since another process may have migrated first
		return err
	}
	for _, m := range Migrations()[min(version, int64(len(migrations))):] {
		if err := execute(w.conn, m.SQL); err != nil {
			return fmt.Errorf("migration %d: %w", m.Version, err)
		}
	}
	return execute(w.conn, "COMMIT")
}

// newerSchema returns the error for a program that is older than the schema.
func newerSchema(version int64) error {
	return fmt.Errorf("%w: the schema has version %d, but this program knows versions up to %d", store.ErrNewerSchema, version, len(migrations))
}

// schemaVersion returns the version of the database's schema, 0 if it has none.
func schemaVersion(conn driver.Conn) (version int64, err error) {
	there := false
	err = query(conn, "SELECT 1 FROM sqlite_schema WHERE name = 'kahn_schema'", func([]driver.Value) error {
		there = true
		return nil
	})
	if err != nil || !there {
		return 0, err
	}
	version = -1
	err = query(conn, "SELECT version FROM kahn_schema", func(row []driver.Value) error {
		version, _ = row[0].(int64)
		return nil
	})
	if err == nil && version < 0 {
		err = fmt.Errorf("%w: the schema has no version", ErrDamaged)
	}
	return version, err
}
