// Package postgres is a [store.Store] in a database of PostgreSQL: the store of programs that run as several processes, on any
// number of machines.
//
//	pool, err := pgxpool.New(ctx, "postgres://…")
//	…
//	s, err := postgres.Open(ctx, pool, postgres.Options{})
//	…
//	defer s.Close()
//	res, err := kahn.Execute(ctx, graph, step, kahn.RunID("order-17"), kahn.Durable(s))
//
// A process that has died holds its runs until their leases run out (kahn.Lease); then any process may go on with them.
//
// A commit is one statement: it checks the lease, and writes the row of the run and those of its nodes. The commits of all
// runs of the process that come while a statement is under way are the next statement, and so are the acquisitions, the renewals and the
// releases of leases. None of these transactions stays open between two statements, so a process that is stopped at any moment holds none of
// their locks. [Store.Announce] has a transaction of two statements; processes of one owner wait for one another there. A commit of more than 16 MiB, such as
// the cancel of a run of 100,000 nodes, is a transaction of several statements, of which the last checks the lease and writes the row of the run. If the process is
// stopped between two of them, the server ends the transaction after [Options].Timeout; until then its locks are those of the run's nodes alone.
//
// [Once], [Store.CreateTx] and [Store.PostTx] work in transactions that stay open while code of the program runs. CreateTx and PostTx lock the row of the run
// until the transaction ends. Commits and renewals of that run wait meanwhile; those of other runs go on. So a transaction that stays open for longer than
// the lease of the run lasts costs the process that performs the run this one lease. An acquisition of the run waits, too, together with the
// other acquisitions of its process.
//
// # What may be lost
//
// What the server has committed. The package changes no setting: with synchronous_commit = on, the default, nothing is lost when a process,
// a server or its machine dies.
//
// # Errors
//
// A connection that is lost, a server that stops, and one that does not answer within [Options].Timeout are errors of the call, which the
// engine repeats until the lease runs out. A commit whose answer was lost is recognised by its sequence when it is repeated. Errors that match
// [store.ErrUnusable] go on for ever: the schema is missing or unknown ([ErrSchema]), the role lacks a privilege, rows hold what
// nobody has written ([ErrDamaged]). What PostgreSQL cannot hold is refused with [store.ErrRejected]: a value of more than
// 250,000,000 bytes, an id of a run, an owner, a process or the name of a workflow of more than 1,000 bytes, the hash of a plan of more than 600, and an id, a label or a name that has the
// character U+0000 or is not UTF-8. Values are bytes, and may have any characters.
//
// # Time
//
// Leases are judged by the clock of the server, and so are the times at which runs were created and have ended.
//
// # Poolers
//
// The store works through PgBouncer in transaction mode: it has no state in a session. Prepared statements are the one thing
// that pgx itself keeps there. PgBouncer before 1.21, or with max_prepared_statements = 0, needs
//
//	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
//
// with which the server makes a plan for each statement: that takes some tenths of a millisecond.
//
// # Privileges
//
// The role that makes the tables, see [Migrations], owns them. Others need no more than
//
//	GRANT USAGE ON SCHEMA kahn TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kahn TO app;
//	REVOKE INSERT, UPDATE, DELETE ON kahn.version FROM app;
//
// A migration may add tables: grant again after it.
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

// DefaultPoll is how often a process that does not listen looks for requests that others have posted.
const DefaultPoll = 250 * time.Millisecond

// behindListener is the poll interval of a store that listens: polling finds requests whose notification was lost.
const behindListener = 10 * time.Second

// DefaultSchema is the schema of the tables.
const DefaultSchema = "kahn"

// DefaultTimeout is how long a statement may take.
const DefaultTimeout = 10 * time.Second

// maxName is how many bytes a name may have. The server cuts longer ones.
const maxName = 63

// serverNow is the clock of the server. It goes on while a statement waits for a lock.
const serverNow = "clock_timestamp()"

// Options are the options of [Open]. The zero value is right for most programs.
type Options struct {
	// Schema is the schema of the tables, DefaultSchema if it is empty.
	Schema string
	// Timeout is how long a statement may take, DefaultTimeout if it is 0. Its connection is closed then, and the call fails. It
	// should be shorter than leases last, so that there is time for another attempt.
	Timeout time.Duration
	// Listen is the connection string of one connection of the store's own, over which the server notifies of requests that other processes have
	// posted, and of runs that they have created or left. It must not lead through PgBouncer in transaction mode, where LISTEN has no effect. If it is empty, the store polls alone.
	Listen string
	// Poll is the interval at which the store asks for requests that other processes have posted. Zero means DefaultPoll, or 10 s if Listen is set. An interval
	// below 1 ms counts as 1 ms.
	Poll time.Duration
}

// Store is a [store.Store] in a database of PostgreSQL. Its methods may be called from several goroutines.
type Store struct {
	pool    *pgxpool.Pool
	schema  string
	now     string // the time, in SQL
	timeout time.Duration
	texts   texts
	board   notify.Board // of runs with new events

	requests      notify.Poller      // of runs with requests
	stopListening context.CancelFunc // nil if nobody listens

	workers  sync.WaitGroup // the goroutines of the lines, and the calls of Acquire
	commits  line[*commit]
	acquires line[*acquisition]
	renewals line[renewal]

	mu   sync.Mutex      // guards what follows
	held map[string]*run // what is stored of runs, by their ids: those that this process has acquired
	over bool            // Close was called

	parts         atomic.Bool  // runs of the queues that were asked for last have keys or priorities
	removedGrants atomic.Int64 // when limits of which nobody has anything were removed last, in nanoseconds since 1970
}

var (
	_ store.Admin         = (*Store)(nil)
	_ store.EventNotifier = (*Store)(nil)
	_ store.ValueChecker  = (*Store)(nil)
	_ store.Inbox         = (*Store)(nil)
	_ store.TurnStore     = (*Store)(nil)
	_ store.LeaseReader   = (*Store)(nil)
)

// Open makes a store of the pool's database. The schema is made if there is none, and migrated if it is older than this version's, see
// [Migrations]; the error matches [ErrSchema] if it is newer. The encoding of the database must be UTF8. The pool remains the
// caller's, who closes it after the store. The context bounds Open alone.
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
		return nil, fmt.Errorf("%w: no pool", machine.ErrBadValue)
	case len(o.Schema) > maxName || !storable(o.Schema):
		return nil, fmt.Errorf("%w: Schema %q: at most %d bytes of UTF-8", machine.ErrBadValue, o.Schema, maxName)
	case o.Poll < 0:
		return nil, fmt.Errorf("%w: Poll %v: at least 0", machine.ErrBadValue, o.Poll)
	case o.Timeout < 0:
		return nil, fmt.Errorf("%w: Timeout %v: at least 0", machine.ErrBadValue, o.Timeout)
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

// do executes a statement over the pool, within the timeout, and calls f for each row.
func (s *Store) do(ctx context.Context, text string, args []any, f func(rows pgx.Rows) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return rowsOf(ctx, s.pool, text, args, f)
}

// check refuses a call of a store that was closed, or under a context that has ended.
func (s *Store) check(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return ErrClosed
	}
	return ctx.Err()
}

// enter begins a call for which Close waits, unless the store was closed. The caller calls s.workers.Done when it ends.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return ErrClosed
	}
	s.workers.Add(1)
	return nil
}

// maxValue is what a value may have. The server holds several copies of a statement's data, each below 1 GB.
const maxValue = 250_000_000

// CheckValue implements [store.ValueChecker]: it rejects a value of more than 250,000,000 bytes.
func (s *Store) CheckValue(value json.RawMessage) error {
	if len(value) > maxValue {
		return fmt.Errorf("%w: a value of %d bytes; the store takes up to %d", store.ErrRejected, len(value), maxValue)
	}
	return nil
}

// Close waits for the writes and the acquisitions under way, and gives back the leases that were not released. Calls that come later return
// [ErrClosed]; another Close does nothing. The pool stays open.
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
