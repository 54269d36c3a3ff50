package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
)

// Cache is a cache for a [kahn.Memo]. It has a database file of its own, and any number of processes may use it at the same time. It records
// when an entry was last used, with a precision of one hour. It grows until [Cache.Prune] is called.
type Cache struct{ db *sql.DB }

// cacheID is the application id of the file of a cache.
const cacheID = 0x6b61686d

const (
	usedWithin  = time.Hour // a use is not recorded within this time after the last recorded use
	pruneInOnce = 500       // how many entries one statement removes; other processes can write between two statements
)

// OpenCache opens the cache in the file at path. It makes the cache if there is no file. The error matches [ErrSchema] if the file is a database
// that is not a cache.
func OpenCache(path string) (*Cache, error) {
	c, err := openCache(path)
	if err != nil {
		return nil, fmt.Errorf("cache %q: %w", path, err)
	}
	return c, nil
}

func openCache(path string) (*Cache, error) {
	if path == "" || path == ":memory:" {
		return nil, fmt.Errorf("%w: a cache needs the path of a file", machine.ErrBadValue)
	}
	path, err := realPath(path)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", fileDSN(path, "rwc")+fmt.Sprintf("&_busy_timeout=%d&_txlock=immediate&_pragma=synchronous(1)", DefaultBusyTimeout.Milliseconds()))
	if err != nil {
		return nil, err
	}
	c := &Cache{db}
	if err := c.setUp(); err != nil {
		return nil, errors.Join(describe(err), db.Close())
	}
	return c, nil
}

// setUp makes the table in a new file.
func (c *Cache) setUp() error {
	ctx := context.Background()
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var id, tables int
	if err := tx.QueryRowContext(ctx, "SELECT a.application_id, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id AS a").Scan(&id, &tables); err != nil {
		return err
	}
	switch {
	case id == cacheID:
		return nil
	case tables > 0 || id != 0:
		return fmt.Errorf("%w: the file holds a database that is not a cache", ErrSchema)
	}
	for _, text := range []string{
		fmt.Sprintf("PRAGMA application_id = %d", cacheID),
		"CREATE TABLE cache (key TEXT PRIMARY KEY, data BLOB NOT NULL, used INTEGER NOT NULL)",
		"CREATE INDEX cache_used ON cache (used)",
	} {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	_, err = c.db.ExecContext(ctx, "PRAGMA journal_mode = WAL")
	return err
}

// Close closes the file.
func (c *Cache) Close() error { return c.db.Close() }

// Get returns the entry of a key, and records this use of the entry.
func (c *Cache) Get(ctx context.Context, key string) (data []byte, ok bool, err error) {
	var used int64
	switch err := c.db.QueryRowContext(ctx, "SELECT data, used FROM cache WHERE key = ?", key).Scan(&data, &used); {
	case errors.Is(err, sql.ErrNoRows):
		return nil, false, nil
	case err != nil:
		return nil, false, describe(err)
	}
	if now := time.Now(); now.Sub(time.Unix(used, 0)) > usedWithin {
		_, err = c.db.ExecContext(ctx, "UPDATE cache SET used = ? WHERE key = ?", now.Unix(), key)
	}
	return data, true, describe(err)
}

// Put keeps data under a key.
func (c *Cache) Put(ctx context.Context, key string, data []byte) error {
	if data == nil {
		data = []byte{}
	}
	_, err := c.db.ExecContext(ctx, "INSERT INTO cache VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET data = excluded.data, used = excluded.used",
		key, data, time.Now().Unix())
	return describe(err)
}

// Prune removes the entries that were not used for the given time. Then it removes the least recently used entries, until the remaining entries
// together have at most the given number of bytes. A zero argument means no bound. Prune returns how many entries it has removed. Each transaction
// removes a few hundred entries.
func (c *Cache) Prune(ctx context.Context, unused time.Duration, bytes int64) (removed int, err error) {
	if unused < 0 || bytes < 0 {
		return 0, fmt.Errorf("%w: Prune(%v, %d) of a cache: a bound is negative", machine.ErrBadValue, unused, bytes)
	}
	if unused > 0 {
		before := time.Now().Add(-unused).Unix()
		n, err := c.remove(ctx, "SELECT key FROM cache WHERE used < ? ORDER BY used LIMIT ?", before, pruneInOnce)
		if removed += n; err != nil {
			return removed, err
		}
	}
	if bytes > 0 {
		// The query finds an entry if its bytes and the bytes of all entries that were used after it together exceed the bound.
		n, err := c.remove(ctx, `SELECT key FROM (SELECT key, used, sum(length(data)) OVER (ORDER BY used DESC, key DESC) AS total FROM cache)
			WHERE total > ? ORDER BY used, key LIMIT ?`, bytes, pruneInOnce)
		if removed += n; err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// remove repeats a query and removes the entries that it finds, until the query finds no more entries.
func (c *Cache) remove(ctx context.Context, query string, args ...any) (removed int, err error) {
	for {
		result, err := c.db.ExecContext(ctx, "DELETE FROM cache WHERE key IN ("+query+")", args...)
		if err != nil {
			return removed, describe(err)
		}
		n, err := result.RowsAffected()
		if err != nil {
			return removed, err
		}
		if removed += int(n); n < pruneInOnce {
			return removed, nil
		}
	}
}
