// Package postgres is a [store.Store] in a database of PostgreSQL, for programs that run as several processes, on any number of machines.
//
//	pool, err := pgxpool.New(ctx, "postgres://…")
//	…
//	s, err := postgres.Open(ctx, pool, postgres.Options{})
//	…
//	defer s.Close()
//	res, err := kahn.Execute(ctx, graph, step, kahn.RunID("order-17"), kahn.Durable(s))
//
// If a process dies, its runs wait until their leases run out, see kahn.Lease. Then any process may continue these runs.
//
// A commit is one statement: it checks the lease, and writes the rows of the run and its nodes. While the statement is executed, new commits of the
// process wait. The next statement performs them together. Acquisitions, renewals and releases of leases are batched in the same way. Each of these
// statements is a whole transaction, so its locks do not remain if the process is stopped. Some transactions have several statements: an acquisition
// of a run whose key has a bound, a grant of shared limits, a write of a schedule, [Store.Announce] of a process with an owner, the insertion of an
// ended run, and a commit that begins an await, ends an awaited run or has more than 16 MiB, such as the cancel of a run of 100,000 nodes. If a
// process is stopped between two of these statements, the server ends the transaction after [Options].Timeout, and releases the locks. Before its
// last statement, a large commit locks only rows of nodes. The last statement checks the lease and writes the row of the run.
//
// [Once], [Store.CreateTx] and [Store.PostTx] work in transactions that stay open while code of the program runs. CreateTx and PostTx lock the row of
// the run until the transaction ends. Commits and renewals of that run wait meanwhile; other runs are not affected. If the transaction stays open for
// longer than the lease of the run lasts, the process that performs the run loses the lease of this run, but no other lease. If a process tries to
// acquire the run, this acquisition and all other acquisitions of that process wait until the transaction ends or the acquisition times out.
//
// # What may be lost
//
// The settings of the server decide what may be lost. The package does not change these settings. With synchronous_commit = on, the default, nothing
// is lost when a process, a server or its machine dies.
//
// # Errors
//
// A call returns an error if the connection is lost, or the server stops or does not answer within [Options].Timeout. The engine repeats the call
// until the lease runs out. If the answer to a commit was lost, the store recognises the repeated commit by its sequence. Errors that match
// [store.ErrUnusable] are permanent: the schema is missing or unknown ([ErrSchema]), the role lacks a privilege, or rows contain data that this
// package has not written ([ErrDamaged]). An error that matches [store.ErrRejected] means that the store cannot keep the data. A value may have at
// most 250,000,000 bytes. A run's id, a key, an owner, a process or the name of a workflow may have at most 1,000 bytes, and the hash of a plan may
// have at most 600 bytes. Ids, labels and names must be UTF-8 without the character U+0000. Values may contain any bytes.
//
// # Time
//
// The clock of the server decides when a lease runs out. The same clock gives the times at which a run was created and has ended.
//
// # Poolers
//
// The store works through PgBouncer in transaction mode, because the store keeps no state in a session. But pgx keeps prepared statements
// in a session. PgBouncer before 1.21, or with max_prepared_statements = 0, needs
//
//	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
//
// With this mode the server makes a plan for each execution of a statement, which takes some tenths of a millisecond.
//
// # Privileges
//
// The role that makes the tables, see [Migrations], owns them. Other roles need only
//
//	GRANT USAGE ON SCHEMA kahn TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kahn TO app;
//	REVOKE INSERT, UPDATE, DELETE ON kahn.version FROM app;
//
// A migration may add tables, so repeat the grants after it.
package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-c794f7ef/kahn/internal/notify"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// DefaultPoll is the poll interval of a store that does not listen, see [Options].Poll.
const DefaultPoll = 250 * time.Millisecond

// behindListener is the poll interval of a store that listens. This store polls only to find requests whose notifications were lost.
const behindListener = 10 * time.Second

// DefaultSchema is the schema of the tables.
const DefaultSchema = "kahn"

// DefaultTimeout is how long a statement may take.
const DefaultTimeout = 10 * time.Second

// maxName is how many bytes the name of a schema may have. The server would truncate a longer name.
const maxName = 63

// serverNow is the SQL expression for the current time of the server. Its value advances even within a statement, for example while the statement
// waits for a lock.
const serverNow = "clock_timestamp()"

// Options are the options of [Open]. The zero value is right for most programs.
type Options struct {
	// Schema is the schema of the tables, DefaultSchema if it is empty.
	Schema string
	// Timeout is how long a statement may take, DefaultTimeout if it is 0. If a statement takes longer, its connection is closed, and the call fails.
	// Timeout should be shorter than the leases, so that the engine has time for another attempt.
	Timeout time.Duration
	// Listen is the connection string of the store's own connection. Over this connection the server notifies the store when another process posts a
	// request, creates a run or stops performing a run. The connection must not go through PgBouncer in transaction mode, because LISTEN has no
	// effect there. If Listen is empty, the store only polls.
	Listen string
	// Poll is the interval at which the store asks for requests of other processes. Zero means DefaultPoll, or 10 s if Listen is set. Open
	// refuses an interval below 1 ms.
	Poll time.Duration
}

// Store is a [store.Store] in a database of PostgreSQL. Its methods may be called from several goroutines.
type Store struct {
	pool    *pgxpool.Pool
	schema  string
	now     string // the current time, as SQL
	timeout time.Duration
	texts   texts
	board   notify.Board // wakes readers of runs that have new events

	requests      notify.Poller      // looks for runs that have requests
	stopListening context.CancelFunc // nil if the store does not listen

	workers  sync.WaitGroup // Close waits for these: the goroutines of the lines, the listener, and the calls of Acquire and AcquireTurn
	commits  line[*commit]
	acquires line[*acquisition]
	renewals line[renewal]

	mu   sync.Mutex      // guards the fields below
	held map[string]*run // by id: the stored state of the runs that this process has acquired
	over bool            // Close was called

	parts         atomic.Bool  // whether the last query of Due has found that runs of its queues have keys or priorities
	removedGrants atomic.Int64 // when this Store last removed expired limits, in nanoseconds since 1970
}

var (
	_ store.Admin         = (*Store)(nil)
	_ store.EventNotifier = (*Store)(nil)
	_ store.ValueChecker  = (*Store)(nil)
	_ store.Inbox         = (*Store)(nil)
	_ store.TurnStore     = (*Store)(nil)
	_ store.LeaseReader   = (*Store)(nil)
)

// Open opens the store in the pool's database. It makes the schema if the database has none, and migrates an older schema, see [Migrations]. The
// error matches [ErrSchema] if the schema is newer than this package. The encoding of the database must be UTF8. The caller owns the pool, and must
// close the store before the pool. The store does not use the context after Open has returned.
func Open(ctx context.Context, pool *pgxpool.Pool, o Options) (*Store, error) {
	s, err := open(ctx, pool, o, serverNow)
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", describe(err))
	}
	return s, nil
}

func open(ctx context.Context, pool *pgxpool.Pool, o Options, now string) (*Store, error) {
	switch {
	case pool == nil:
		return nil, fmt.Errorf("%w: the pool is nil", machine.ErrBadValue)
	case len(o.Schema) > maxName || !storable(o.Schema):
		return nil, fmt.Errorf("%w: Schema %q is longer than %d bytes, not UTF-8, or contains a NUL byte", machine.ErrBadValue, o.Schema, maxName)
	case o.Poll < 0:
		return nil, fmt.Errorf("%w: Poll %v is negative", machine.ErrBadValue, o.Poll)
	case 0 < o.Poll && o.Poll < time.Millisecond:
		return nil, fmt.Errorf("%w: Poll %v: is its unit missing?", machine.ErrBadValue, o.Poll)
	case 0 < o.Timeout && o.Timeout < time.Millisecond:
		return nil, fmt.Errorf("%w: Timeout %v: is its unit missing?", machine.ErrBadValue, o.Timeout)
	case o.Timeout < 0:
		return nil, fmt.Errorf("%w: Timeout %v is negative", machine.ErrBadValue, o.Timeout)
	}
	if o.Schema == "" {
		o.Schema = DefaultSchema
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	s := &Store{pool: pool, schema: o.Schema, now: now, timeout: o.Timeout, held: map[string]*run{}}
	s.commits = line[*commit]{perform: s.performCommits, workers: &s.workers, timeout: s.timeout}
	s.acquires = line[*acquisition]{perform: s.performAcquires, workers: &s.workers, timeout: s.timeout}
	s.renewals = line[renewal]{perform: s.performRenewals, workers: &s.workers, timeout: s.timeout}
	s.texts = s.compose()
	var encoding string
	if err := pool.QueryRow(ctx, "SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()").Scan(&encoding); err != nil {
		return nil, err
	}
	if encoding != "UTF8" {
		return nil, fmt.Errorf("%w: the encoding of the database is %s, not UTF8", store.ErrUnusable, encoding)
	}
	if err := s.migrate(ctx); err != nil {
		return nil, err
	}
	return s, s.watchOthers(&o)
}

// watchOthers starts the listener, if Options.Listen is set, and sets the poll interval.
func (s *Store) watchOthers(o *Options) error {
	look := lookout{store: s}
	s.requests = notify.Poller{Every: DefaultPoll, Look: look.look, Rest: func() {}}
	if o.Listen != "" {
		config, err := pgx.ParseConfig(o.Listen)
		if err != nil {
			return fmt.Errorf("%w: Listen: %w", machine.ErrBadValue, err)
		}
		s.requests.Every = behindListener
		var ctx context.Context
		ctx, s.stopListening = context.WithCancel(context.Background())
		s.workers.Go(func() { s.listen(ctx, config) })
	}
	if o.Poll > 0 {
		s.requests.Every = max(o.Poll, time.Millisecond)
	}
	return nil
}

// queryer is a pool or a transaction.
type queryer interface {
	Query(ctx context.Context, text string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, text string, args ...any) pgx.Row
	Exec(ctx context.Context, text string, args ...any) (pgconn.CommandTag, error)
}

// rowsOf executes a statement and calls f for each row.
func rowsOf(ctx context.Context, db queryer, text string, args []any, f func(rows pgx.Rows) error) error {
	rows, err := db.Query(ctx, text, args...)
	if err != nil {
		return describe(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return describe(rows.Err())
}

// The method `do` executes a statement over the pool, within the timeout, and calls f for each row.
func (s *Store) do(ctx context.Context, text string, args []any, f func(rows pgx.Rows) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return rowsOf(ctx, s.pool, text, args, f)
}

// The method `check` returns an error if the store was closed or the context has ended.
func (s *Store) check(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return ErrClosed
	}
	return ctx.Err()
}

// The method `enter` begins a call for which Close waits. It returns an error if the store was closed. The caller of `enter` must call s.workers.Done
// before it returns.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return ErrClosed
	}
	s.workers.Add(1)
	return nil
}

// maxValue is how many bytes a value may have. The server makes several copies of a statement's data, and each copy must have less than 1 GB.
const maxValue = 250_000_000

// CheckValue implements [store.ValueChecker]: it rejects a value of more than 250,000,000 bytes.
func (s *Store) CheckValue(value json.RawMessage) error {
	if len(value) > maxValue {
		return fmt.Errorf("%w: a value of %d bytes; the store takes up to %d", store.ErrRejected, len(value), maxValue)
	}
	return nil
}

// Close waits for running writes and acquisitions, and releases the leases that were acquired through this Store and not released. Later calls of
// other methods return [ErrClosed]. A second call of Close does nothing. The pool stays open.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return nil
	}
	s.over = true
	s.mu.Unlock()
	if s.stopListening != nil {
		s.stopListening()
	}
	s.requests.Close()
	s.commits.close()
	s.renewals.close()
	s.workers.Wait()
	if err := s.releaseAll(); err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	return nil
}
