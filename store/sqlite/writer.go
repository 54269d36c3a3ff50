package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// writer is the one connection that writes, and the line of requests to write. A goroutine that finds no leader becomes the leader, and performs all
// requests of the line in one transaction. If other requests have come meanwhile, the goroutine of the first of them becomes the next leader. So all
// runs of the process share transactions, and the longer a transaction takes, the more requests the next one has. No extra goroutine is needed for
// writing.
type writer struct {
	mu     sync.Mutex // guards line, led and closed
	line   []*request
	led    bool
	closed bool

	// The leader owns the fields below.
	conn     driver.Conn
	stmts    []driver.Stmt // all prepared statements
	patience time.Duration // how long a request waits for another process
	bounds   []string      // pragmas with bounds in pages, which every connection executes
	begin    *statement
	commit   *statement
	rollback *statement
	runs     map[string]*run // by id: the stored state of the runs that this process has leased
	loader   loader
	sums     summer
	values   []driver.Value // the arguments of the statement that is executed
	leases   leaseStatements
	rows     rowStatements
	inboxes  inboxStatements
}

// request is a part of a transaction. The function "do" changes the database and writer.runs together; if it returns an error, the
// transaction is rolled back.
type request struct {
	do    func() error
	turn  chan bool // receives true if the request becomes the leader, false if it has been performed
	until time.Time // when the request stops waiting for another process
	err   error
}

// The method `write` performs a request in a transaction, together with other requests. If ctx ends while the request is in the line, write
// withdraws the request.
func (w *writer) write(ctx context.Context, do func() error) error {
	r, err := w.enter(do, false)
	if err != nil {
		return err
	}
	select {
	case lead := <-r.turn:
		return w.take(ctx, r, lead)
	case <-ctx.Done():
	}
	w.mu.Lock()
	i := slices.Index(w.line, r)
	if i < 0 || len(r.turn) > 0 { // the request is being performed, or becomes the leader
		w.mu.Unlock()
		return w.take(ctx, r, <-r.turn)
	}
	w.line = slices.Delete(w.line, i, i+1)
	w.mu.Unlock()
	return ctx.Err()
}

// The method `enter` makes a request and puts it into the line. If there is no leader, the request becomes the leader. If the parameter "last" is
// set, the writer takes no more requests after this one.
func (w *writer) enter(do func() error, last bool) (*request, error) {
	r := &request{do: do, turn: make(chan bool, 1), until: time.Now().Add(w.patience)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, ErrClosed
	}
	w.closed = last
	w.line = append(w.line, r)
	if !w.led {
		w.led = true
		r.turn <- true
	}
	return r, nil
}

// The method `take` returns the error of the caller's request "own". If the parameter "lead" is set, this request is the leader, and take first
// performs all requests in the line. If the leader cannot begin a transaction, it leaves the line, and the next request becomes the leader.
func (w *writer) take(ctx context.Context, own *request, lead bool) error {
	if !lead {
		return own.err
	}
	runtime.Gosched() // lets requests that are about to come join this transaction
	var line []*request
	if own.err = w.open(ctx, own.until); own.err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.line = slices.DeleteFunc(w.line, func(r *request) bool { return r == own })
		w.handOver()
		return own.err
	}
	w.mu.Lock()
	line, w.line = w.line, nil
	w.mu.Unlock()
	w.perform(line)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range line {
		if r != own {
			r.turn <- false
		}
	}
	w.handOver()
	return own.err
}

// open begins a transaction. If another process is writing, open waits and tries again.
func (w *writer) open(ctx context.Context, until time.Time) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		_, err := w.begin.exec()
		if err == nil || !hasCode(err, lib.SQLITE_BUSY) {
			return err
		}
		if !time.Now().Before(until) {
			return fmt.Errorf("%w, for longer than %v", err, w.patience)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// handOver makes the first request in the line the leader. If the line is empty, the writer has no leader. The caller holds w.mu.
func (w *writer) handOver() {
	if w.led = len(w.line) > 0; w.led {
		w.line[0].turn <- true
	}
}

// The method `perform` performs the requests of the line in the open transaction. If one of several requests fails, perform repeats each request in
// a transaction of its own. If the commit of the transaction fails, all requests fail. The commit may have reached the disk in spite of the error,
// so perform does not repeat the requests. Their callers may repeat them.
func (w *writer) perform(line []*request) {
	done, err := w.transact(line)
	if err == nil {
		return
	}
	for _, r := range line {
		if r.err = err; len(line) > 1 && !done {
			if r.err = w.open(context.Background(), r.until); r.err == nil {
				_, r.err = w.transact([]*request{r})
			}
		}
	}
}

// transact performs either all requests or none of them in the open transaction. The result "done" is true if each
// request succeeded, even if the commit then failed.
func (w *writer) transact(line []*request) (done bool, err error) {
	for _, r := range line {
		// A panic becomes an error, so that the leader still performs the other requests in the line.
		if err = foreign.Contain(r.do, func(v any) error { return fmt.Errorf("panic: %v", v) }); err != nil {
			break
		}
	}
	if done = err == nil; done {
		_, err = w.commit.exec()
	}
	if err != nil {
		clear(w.runs)            // the cached runs may have changes that were rolled back
		_, _ = w.rollback.exec() // an error means that SQLite has already rolled back
	}
	return done, err
}

// close refuses new requests. It performs the requests in the line and then the request "last", and closes the connection. A second call returns
// ErrClosed.
func (w *writer) close(last func() error) error {
	r, err := w.enter(last, true)
	if err != nil {
		return err
	}
	err = w.take(context.Background(), r, <-r.turn)
	return errors.Join(err, w.disconnect())
}

// disconnect closes the statements and then the connection, since SQLite keeps the database open as long as there are statements.
func (w *writer) disconnect() (err error) {
	for _, s := range w.stmts {
		err = errors.Join(err, s.Close())
	}
	return errors.Join(err, w.conn.Close())
}

// statement is a prepared statement of the writer.
type statement struct {
	stmt driver.Stmt
	args []driver.NamedValue
}

// prepare adds a statement to the writer. If SQLite refuses the statement, prepare stores the error in *err. If *err is set already, prepare does
// nothing.
func (w *writer) prepare(err *error, query string) *statement {
	if *err != nil {
		return nil
	}
	stmt, failed := w.conn.Prepare(query)
	if failed != nil {
		*err = fmt.Errorf("%w, in %s", describe(failed), query)
		return nil
	}
	w.stmts = append(w.stmts, stmt)
	return &statement{stmt: stmt}
}

func (s *statement) bind(values []driver.Value) []driver.NamedValue {
	if len(s.args) != len(values) {
		s.args = make([]driver.NamedValue, len(values))
	}
	for i, v := range values {
		s.args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return s.args
}

// exec executes the statement and returns how many rows it has changed.
func (s *statement) exec(values ...driver.Value) (changed int64, err error) {
	result, err := s.stmt.(driver.StmtExecContext).ExecContext(context.Background(), s.bind(values))
	if err != nil {
		return 0, describe(err)
	}
	return result.RowsAffected()
}

// query executes the statement and calls f for each row.
func (s *statement) query(f func(row []driver.Value) error, values ...driver.Value) error {
	rows, err := s.stmt.(driver.StmtQueryContext).QueryContext(context.Background(), s.bind(values))
	if err != nil {
		return describe(err)
	}
	return each(rows, f)
}
