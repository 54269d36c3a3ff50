package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/seed-c794f7ef/kahn/store"
)

// Errors of a database. All of them match [store.ErrUnusable], too.
var (
	// ErrDamaged is returned if stored data differs from what was written, for instance because the disk has changed a page. Other runs of the
	// database may be intact.
	ErrDamaged = fmt.Errorf("%w: the stored data is damaged", store.ErrUnusable)
	// ErrSchema is returned if a later version of this package has made the schema of the database. OpenCache returns it for a database that is
	// not a cache.
	ErrSchema = fmt.Errorf("%w: unknown version of the schema", store.ErrUnusable)
	// ErrClosed is returned by calls of a store that was closed.
	ErrClosed = fmt.Errorf("%w: it is closed", store.ErrUnusable)
)

// conditions maps some codes of SQLite to their meanings. A call that has failed with one of these codes may succeed later.
var conditions = map[int]string{
	lib.SQLITE_FULL:     "there is no space for the database",
	lib.SQLITE_IOERR:    "the file system has failed",
	lib.SQLITE_CANTOPEN: "the database cannot be opened",
	lib.SQLITE_BUSY:     "another process is writing to the database",
	lib.SQLITE_LOCKED:   "another connection is writing to the database",
}

// lasting maps other codes of SQLite to errors of the store. A call that has failed with one of these codes fails again if it is repeated.
var lasting = map[int]error{
	lib.SQLITE_CORRUPT:  ErrDamaged,
	lib.SQLITE_NOTADB:   fmt.Errorf("%w: the file is not a database", store.ErrUnusable),
	lib.SQLITE_READONLY: fmt.Errorf("%w: the database cannot be written", store.ErrUnusable),
	lib.SQLITE_PERM:     fmt.Errorf("%w: the database may not be opened", store.ErrUnusable),
	lib.SQLITE_ERROR:    store.ErrUnusable, // an error in SQL, such as a missing table
	lib.SQLITE_TOOBIG:   fmt.Errorf("%w: a record is larger than the database can hold", store.ErrRejected),
}

// describe joins an error of SQLite with the store's error for its code, see lasting, or adds the meaning of its code, see conditions.
func describe(err error) error {
	var own *sqlite.Error
	if !errors.As(err, &own) {
		return err
	}
	code := own.Code() & 0xff
	switch text := conditions[code]; {
	case lasting[code] != nil:
		return fmt.Errorf("%w: %w", lasting[code], err)
	case text != "":
		return fmt.Errorf("%s: %w", text, err)
	}
	return err
}

// isBusy reports whether SQLite has refused a call because another connection, usually of another process, holds a lock.
func isBusy(err error) bool {
	var own *sqlite.Error
	return errors.As(err, &own) && own.Code()&0xff == lib.SQLITE_BUSY
}

// The function `each` calls f for each row, and closes the rows. The values are valid until f returns.
func each(rows driver.Rows, f func(row []driver.Value) error) (err error) {
	defer func() {
		if closed := rows.Close(); err == nil && closed != nil {
			err = describe(closed)
		}
	}()
	row := make([]driver.Value, len(rows.Columns()))
	for {
		switch err := rows.Next(row); {
		case err == io.EOF:
			return nil
		case err != nil:
			return describe(err)
		}
		if err := f(row); err != nil {
			return err
		}
	}
}
