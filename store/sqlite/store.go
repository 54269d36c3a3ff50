// Package sqlite is a [store.Store] in an SQLite file, for programs that run on one machine and have no database server. It needs no C
// compiler.
//
//	store, err := sqlite.Open("runs.db", sqlite.Options{})
//	…
//	defer store.Close()
//	res, err := kahn.Execute(ctx, graph, step, kahn.RunID("order-17"), kahn.Durable(store))
//
// If the process dies, the run continues when the next process opens the file and calls Execute with the same id. The next process need not wait
// until the leases of the dead process run out. Each process that has the database open holds a lock on a file beside the database file, and the
// operating system releases the lock of a dead process.
//
// All runs of a process write over one connection, and runs that write at the same moment share a transaction. Reads do not wait for
// writes, and writes do not wait for reads. Several processes may have the file open; they write in turn.
//
// The events of runs with the option kahn.StoreEvents are also in the database. Any process that has the database open can read them with
// [store.ReadEvents] and [store.OpenEvents].
//
// # What may be lost
//
// If only the process dies, no commit is lost. If the machine loses power, no commit is lost under the default, [Full], provided that the
// disk keeps what it has acknowledged. Under [Normal] the last commits before the power loss may be lost. The database is then still
// intact, but the runs continue from an earlier commit, so steps that had ended may be called again.
//
// # Errors
//
// A call returns an error if the disk is full, the file system fails, or another process writes for longer than [Options].BusyTimeout. The engine
// repeats the call until the lease runs out. An error that matches [store.ErrUnusable] is permanent: the data is damaged ([ErrDamaged]), the
// database has a later version ([ErrSchema]), or the file is not a database or cannot be written. The error matches [store.ErrRejected] if a value
// is too large for a record.
//
// # Time
//
// The SQL expression [Options].Now returns the current time, by which the store decides whether a lease has expired. The default is the clock of the
// machine. If the clock is set forward, leases end early, and writes of their owners return [store.ErrFenced]. If the clock is set back, leases last
// longer.
package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"

	"github.com/seed-c794f7ef/kahn/internal/notify"
	"github.com/seed-c794f7ef/kahn/internal/syncdir"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// Synchronous says when a commit waits for the disk.
type Synchronous uint8

// The ways to write to the disk.
const (
	// Full waits for the disk in every commit.
	Full Synchronous = iota
	// Normal waits for the disk only when SQLite moves the log into the database, after every 4,096,000 bytes of log.
	Normal
)

// DefaultBusyTimeout is the default of Options.BusyTimeout.
const DefaultBusyTimeout = 5 * time.Second

// DefaultPoll is the default of Options.Poll.
const DefaultPoll = 50 * time.Millisecond

// DefaultNow is the default of Options.Now: the clock of the machine, in milliseconds since 1970.
const DefaultNow = "CAST(unixepoch('subsec') * 1000 AS INTEGER)"

// Options are the options of [Open]. The zero value is right for most programs.
type Options struct {
	// Synchronous is Full by default.
	Synchronous Synchronous
	// BusyTimeout is how long a write waits while another process writes. 0 means DefaultBusyTimeout. Open refuses a time below 1 ms.
	BusyTimeout time.Duration
	// MaxBytes bounds the size of the database without its log. 0 means no bound.
	MaxBytes int64
	// Now is an SQL expression for the current time in milliseconds since 1970. If Now is empty, it is DefaultNow. All processes that use a
	// database must have the same Now.
	Now string
	// Poll is the interval at which the store looks for requests that other processes have posted. 0 means DefaultPoll. Open refuses an interval
	// below 1 ms.
	Poll time.Duration
}

// Store is a [store.Store] in a database of SQLite. Its methods may be called from several goroutines.
type Store struct {
	writer        *writer
	db            *sql.DB
	now           string // the current time, as SQL
	largest       int64  // how many bytes a value may have
	path          string // "" for a database in memory
	process       int64
	lock          *processLock // nil for a database in memory
	board         notify.Board // wakes readers of runs that have new events
	lookedForDead atomic.Int64 // when the store last looked for dead processes, in nanoseconds since 1970

	requests notify.Poller // looks for runs that have requests
}

var (
	_ store.Store         = (*Store)(nil)
	_ store.ValueChecker  = (*Store)(nil)
	_ store.EventNotifier = (*Store)(nil)
	_ store.Inbox         = (*Store)(nil)
)

// Open opens the database file at path, and creates the file if there is none. ":memory:" is a new database in memory, for tests. Open migrates an
// older schema, see [Migrations]; the error matches [ErrSchema] if the schema is newer.
func Open(path string, o Options) (*Store, error) {
	s, err := open(path, o)
	if err != nil {
		return nil, fmt.Errorf("store %q: %w", path, err)
	}
	return s, nil
}

var memories atomic.Int64

func open(path string, o Options) (*Store, error) {
	switch {
	case o.Synchronous > Normal:
		return nil, fmt.Errorf("%w: Synchronous(%d) is neither Full nor Normal", machine.ErrBadValue, o.Synchronous)
	case o.BusyTimeout < 0:
		return nil, fmt.Errorf("%w: BusyTimeout %v is negative", machine.ErrBadValue, o.BusyTimeout)
	case 0 < o.BusyTimeout && o.BusyTimeout < time.Millisecond:
		return nil, fmt.Errorf("%w: BusyTimeout %v: is its unit missing?", machine.ErrBadValue, o.BusyTimeout)
	case o.MaxBytes < 0:
		return nil, fmt.Errorf("%w: MaxBytes %d is negative", machine.ErrBadValue, o.MaxBytes)
	case o.Poll < 0:
		return nil, fmt.Errorf("%w: Poll %v is negative", machine.ErrBadValue, o.Poll)
	case 0 < o.Poll && o.Poll < time.Millisecond:
		return nil, fmt.Errorf("%w: Poll %v: is its unit missing?", machine.ErrBadValue, o.Poll)
	case path == "":
		return nil, fmt.Errorf("%w: the path is empty", machine.ErrBadValue)
	}
	if o.Poll == 0 {
		o.Poll = DefaultPoll
	}
	if o.Now == "" {
		o.Now = DefaultNow
	}
	if o.BusyTimeout == 0 {
		o.BusyTimeout = DefaultBusyTimeout
	}
	s := &Store{now: o.Now, largest: maxValue}
	l := &lookout{store: s}
	s.requests.Every, s.requests.Look, s.requests.Rest = o.Poll, l.look, l.rest
	if o.MaxBytes > 0 {
		s.largest = min(s.largest, o.MaxBytes)
	}
	dsn := fmt.Sprintf("file:/kahn-%d?vfs=memdb", memories.Add(1))
	if path != ":memory:" {
		var err error
		if s.path, err = realPath(path); err != nil {
			return nil, err
		}
		dsn = fileDSN(s.path, "rwc")
	}
	dsn += fmt.Sprintf("&_busy_timeout=%d", o.BusyTimeout.Milliseconds())
	if err := s.connect(dsn, o); err != nil {
		return nil, errors.Join(err, s.abandon())
	}
	return s, nil
}

// connect opens the connections.
func (s *Store) connect(dsn string, o Options) error {
	writing, err := sqlite.NewConnector(dsn)
	if err != nil {
		return err
	}
	conn, err := writing.Connect(context.Background())
	if err != nil {
		return describe(err)
	}
	s.writer = &writer{conn: conn, patience: o.BusyTimeout, runs: map[string]*run{}}
	if err := s.writer.setUp(s.path != "", o); err != nil {
		return err
	}
	if s.path != "" {
		if err := s.enter(); err != nil {
			return err
		}
	}
	dsn += fmt.Sprintf("&_txlock=immediate&_pragma=synchronous(%d)", o.Synchronous.level())
	for _, p := range s.writer.bounds {
		dsn += "&_pragma=" + p
	}
	using, err := sqlite.NewConnector(dsn)
	if err != nil {
		return err
	}
	s.db = sql.OpenDB(using)
	return describe(s.db.Ping()) // OpenDB opens no connection; Ping opens one, so Open can return the error
}

// abandon closes what connect has opened.
func (s *Store) abandon() (err error) {
	if s.writer != nil {
		err = s.writer.disconnect()
	}
	if s.db != nil {
		err = errors.Join(err, s.db.Close())
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.release())
	}
	return err
}

// level returns the number for s in the pragma "synchronous".
func (s Synchronous) level() int {
	if s == Normal {
		return 1
	}
	return 2
}

// pageSize is the page size of new databases. A commit writes whole pages to the log, so small commits write less if the pages are small.
const pageSize = 1024

// maxLog is the length of the log, in bytes, at which SQLite moves the log into the database. By then the log has several versions of most
// pages, but SQLite moves only the last version of each page.
const maxLog = 4000 * pageSize

// configure configures the connection. It computes the bounds from the page size of the database. This size differs from pageSize if another program
// has made the database.
func (w *writer) configure(file bool, o Options) error {
	pragmas := []string{fmt.Sprintf("page_size=%d", pageSize)}
	if file {
		pragmas = append(pragmas, "journal_mode=WAL", fmt.Sprintf("synchronous=%d", o.Synchronous.level()))
	}
	for _, p := range pragmas {
		answer, err := pragma(w.conn, p)
		// If two processes switch a database to write-ahead logging at the same moment, one of them gets SQLITE_BUSY at once, without
		// waiting for BusyTimeout.
		for end := time.Now().Add(o.BusyTimeout); isBusy(err) && time.Now().Before(end); answer, err = pragma(w.conn, p) {
			time.Sleep(5 * time.Millisecond)
		}
		if err != nil {
			return err
		}
		if text, _ := answer.(string); p == "journal_mode=WAL" && !strings.EqualFold(text, "wal") {
			return fmt.Errorf("the database cannot be written ahead: its journal is %q", text)
		}
	}
	answer, err := pragma(w.conn, "page_size")
	if err != nil {
		return err
	}
	size, _ := answer.(int64)
	if size <= 0 {
		return fmt.Errorf("the pages of the database have a size of %v", answer)
	}
	w.bounds = []string{fmt.Sprintf("wal_autocheckpoint=%d", max(1, maxLog/size))}
	if o.MaxBytes > 0 {
		w.bounds = append(w.bounds, fmt.Sprintf("max_page_count=%d", max(1, o.MaxBytes/size)))
	}
	for _, p := range w.bounds {
		if _, err := pragma(w.conn, p); err != nil {
			return err
		}
	}
	return nil
}

// setUp configures the connection, brings the schema up to date and prepares the statements.
func (w *writer) setUp(file bool, o Options) error {
	if err := w.configure(file, o); err != nil {
		return err
	}
	if err := w.migrate(); err != nil {
		return err
	}
	if file { // SQLite must not wait for other processes, because writer.open waits for them
		if _, err := pragma(w.conn, "busy_timeout=0"); err != nil {
			return err
		}
	}
	var err error
	w.begin, w.commit, w.rollback = w.prepare(&err, "BEGIN IMMEDIATE"), w.prepare(&err, "COMMIT"), w.prepare(&err, "ROLLBACK")
	w.leases.prepare(w, o.Now, &err)
	byID, nodes, lastEvent := w.prepare(&err, runQuery), w.prepare(&err, nodesQuery), w.prepare(&err, lastEventQuery)
	w.loader = loader{run: byID.query, nodes: nodes.query, lastEvent: lastEvent.query, sums: &w.sums}
	w.rows.prepare(w, o.Now, &err)
	w.inboxes.prepare(w, &err)
	return err
}

// pragma executes a pragma and returns its answer, nil if there is none.
func pragma(conn driver.Conn, text string) (answer driver.Value, err error) {
	err = query(conn, "PRAGMA "+text, func(row []driver.Value) error {
		answer = row[0]
		return nil
	})
	return answer, err
}

// query executes a statement and calls f for each row.
func query(conn driver.Conn, text string, f func(row []driver.Value) error, values ...driver.Value) error {
	args := new(statement).bind(values)
	rows, err := conn.(driver.QueryerContext).QueryContext(context.Background(), text, args)
	if err != nil {
		return describe(err)
	}
	return each(rows, f)
}

// execute executes statements without results.
func execute(conn driver.Conn, text string) error {
	_, err := conn.(driver.ExecerContext).ExecContext(context.Background(), text, nil)
	return describe(err)
}

// realPath returns the path of a file with all symbolic links resolved. All processes must compute the same path, because the lock files of the
// processes are beside the file at this path.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, filepath.Base(path))
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	return path, nil // the file does not exist yet
}

// fileDSN names a file for the driver. The parameter "mode" is "ro", "rw" or "rwc". The driver makes a missing file only with "rwc".
func fileDSN(path, mode string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // for a path that begins with a drive letter
	}
	return "file://" + (&url.URL{Path: path}).EscapedPath() + "?mode=" + mode
}

// maxValue is how many bytes a value may have. SQLite takes 1,000,000,000 bytes in one row; maxValue leaves room for the other columns of the row.
const maxValue = 900_000_000

// CheckValue implements [store.ValueChecker]: it rejects a value of more than 900,000,000 bytes. If [Options].MaxBytes is set, it also rejects a
// value of more than MaxBytes.
func (s *Store) CheckValue(value json.RawMessage) error {
	if int64(len(value)) > s.largest {
		return fmt.Errorf("%w: a value of %d bytes; the database takes up to %d", store.ErrRejected, len(value), s.largest)
	}
	return nil
}

// DB returns the database. The program may read all tables, and it may create tables of its own and write to them. It must not change the tables
// whose names begin with kahn_, because they belong to the store. Close closes the database.
func (s *Store) DB() *sql.DB { return s.db }

// Close waits for running writes, releases the leases that this process still holds, and closes the database. Later calls return [ErrClosed];
// another Close does nothing.
func (s *Store) Close() error {
	s.requests.Close() // the poller uses a connection, so it stops first
	err := s.writer.close(s.leave)
	if err == ErrClosed {
		return nil
	}
	err = errors.Join(err, s.db.Close())
	if s.lock != nil {
		err = errors.Join(err, s.lock.release())
	}
	return err
}

// Backup writes a consistent copy of the database to a new file at path. The file must not exist. Runs continue meanwhile. When Backup returns, the
// copy is complete and on the disk. If Backup fails, it removes the file that it has created.
func (s *Store) Backup(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) // O_EXCL, so that no other Backup uses the path
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	_, err = s.db.ExecContext(ctx, "VACUUM INTO ?", path)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = syncdir.Sync(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("backup: %w", errors.Join(describe(err), os.Remove(path)))
	}
	return nil
}
