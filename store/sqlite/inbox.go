package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/seed-c794f7ef/kahn/internal/notify"
	"github.com/seed-c794f7ef/kahn/store"
)

// requestsOfRun is one more than the highest number that a request of a run may have.
const requestsOfRun = 1 << 32

// inboxStatements are the statements with which a commit answers requests.
type inboxStatements struct {
	numbers *statement
	answer  *statement
	take    *statement
	end     *statement
	awaited *statement // the nodes that await a run
}

func (s *inboxStatements) prepare(w *writer, err *error) {
	s.numbers = w.prepare(err, "SELECT taken, posted FROM kahn_runs WHERE run = ?")
	s.answer = w.prepare(err, "UPDATE kahn_requests SET answer = ? WHERE request = ?")
	s.take = w.prepare(err, "UPDATE kahn_runs SET taken = taken + ? WHERE run = ?")
	s.awaited = w.prepare(err, "SELECT run, node FROM kahn_awaits WHERE awaited = ? ORDER BY run, node")
	s.end = w.prepare(err, "UPDATE kahn_runs SET taken = posted WHERE run = ? AND posted > taken")
}

// The method `follows` reports whether the answers of a commit are for the first unanswered requests of the run.
func (w *writer) follows(run int64, c *store.Commit) (follows bool, err error) {
	var taken, posted int64
	err = w.inboxes.numbers.query(func(row []driver.Value) error {
		taken, posted = row[0].(int64), row[1].(int64)
		return nil
	}, run)
	return c.TakenFollow(uint64(taken), uint64(posted)), err
}

// putAnswers writes the answers of a commit. If the commit ends the run, no request waits any more. The transaction has already checked the lease.
func (w *writer) putAnswers(run int64, c *store.Commit) error {
	for i := range c.Taken {
		t := &c.Taken[i]
		if _, err := w.inboxes.answer.exec(t.Refused, run*requestsOfRun+int64(t.Number)); err != nil {
			return err
		}
	}
	if len(c.Taken) > 0 {
		if _, err := w.inboxes.take.exec(int64(len(c.Taken)), run); err != nil {
			return err
		}
	}
	if !c.Status.Terminal() {
		return nil
	}
	_, err := w.inboxes.end.exec(run)
	return err
}

// Post implements [store.Inbox].
func (s *Store) Post(ctx context.Context, run string, q store.Request) (posted bool, err error) {
	if err := errors.Join(q.Check(), ctx.Err()); err != nil {
		return false, s.about("post for", run, err)
	}
	w := s.writer
	var refused error
	err = w.write(ctx, func() (err error) {
		posted, refused, err = s.post(w.in, run, &q)
		return err
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return false, s.about("post for", run, err)
	}
	if posted {
		s.requests.Tell(run)
	}
	return posted, nil
}

// PostTx does the same as Post in a transaction that the program has begun with [Store.DB]. The request exists once the transaction is committed.
// Then watchers find the request within [Options].Poll. If PostTx refuses the request with an error that [store.Inbox] documents for Post, such as
// [store.ErrEnded], it has changed nothing in the transaction.
func (s *Store) PostTx(ctx context.Context, tx *sql.Tx, run string, q store.Request) (posted bool, err error) {
	if err := q.Check(); err != nil {
		return false, s.about("post for", run, err)
	}
	posted, refused, err := s.post(func(text string, f func(row []driver.Value) error, values ...driver.Value) error {
		return queryTx(ctx, tx, text, f, values...)
	}, run, &q)
	if err == nil {
		err = refused
	}
	return posted, s.about("post for", run, describe(err))
}

// post does what Post does, within a transaction. If the result "refused" is not nil, post has written nothing, and the transaction can be committed.
func (s *Store) post(do execution, id string, q *store.Request) (posted bool, refused, err error) {
	run, number, last := store.Run{ID: id}, int64(0), int64(0)
	err = do("SELECT run, status, sequence, posted FROM kahn_runs WHERE id = ?", func(row []driver.Value) error {
		number, last = row[0].(int64), row[3].(int64)
		run.Sequence = uint64(row[2].(int64))
		return run.Status.UnmarshalText([]byte(row[1].(string)))
	}, id)
	if err != nil {
		return false, nil, err
	}
	if number == 0 {
		return false, store.ErrUnknownRun, nil
	}
	var stored *store.Request
	err = do(requestRows+" WHERE run = ? AND id = ?", func(row []driver.Value) error {
		r, err := readRequest(row, number, 0)
		stored = &r.Request
		return err
	}, number, q.ID)
	if err != nil {
		return false, nil, err
	}
	if write, refused := q.Judge(&run, stored); !write {
		return false, refused, nil
	}
	if last++; last == requestsOfRun {
		return false, fmt.Errorf("%w: a run of %d requests", store.ErrRejected, last), nil
	}
	err = s.putRequest(do, number, last, q)
	return err == nil, nil, err
}

// putRequest writes a request. The parameter "number" is the number of the run, and "last" is the number of the request.
func (s *Store) putRequest(do execution, number, last int64, q *store.Request) error {
	var sums summer
	row := number*requestsOfRun + last
	err := do(sqlAt("INSERT INTO kahn_requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, %s, NULL, ?)", s.now), nil,
		row, number, q.ID, q.Kind.String(), q.Node, textOrNull(q.Value), q.Actor, q.Comment, requestSum(&sums, row, q))
	if err == nil {
		err = do(sqlAt("UPDATE kahn_runs SET posted = ?, since = CASE WHEN posted > taken THEN since ELSE %s END, urgent = max(urgent, ?) WHERE run = ?", s.now), nil,
			last, toInt(q.Wakes(false)), number)
	}
	if err == nil {
		err = writeBlobs(do, number, store.BlobKeys(q.Value))
	}
	return err
}

// requestSum returns the checksum of the row of a request, without the columns "posted" and "answer".
func requestSum(s *summer, row int64, q *store.Request) int64 {
	s.ints(row, int64(q.Kind))
	for _, text := range []string{q.ID, q.Node, q.Actor, q.Comment} {
		s.text(text)
	}
	s.part(q.Value)
	return int64(s.sum())
}

const requestRows = "SELECT request, id, kind, node, value, actor, comment, posted, answer, checksum FROM kahn_requests"

// readRequest reads a row of requestRows. The parameter "taken" is the number of the run's last answered request.
func readRequest(row []driver.Value, run, taken int64) (q store.PostedRequest, err error) {
	number, _ := row[0].(int64)
	text := func(i int) string {
		v, _ := row[i].(string)
		return v
	}
	q.Number = uint64(number - run*requestsOfRun)
	q.ID, q.Node, q.Actor, q.Comment, q.Posted = text(1), text(3), text(5), text(6), timeOf(row[7])
	if value, ok := row[4].(string); ok {
		q.Value = json.RawMessage(value)
	}
	err = q.Kind.UnmarshalText([]byte(text(2)))
	if err != nil || requestSum(new(summer), number, &q.Request) != row[9] {
		return q, fmt.Errorf("%w: row %d of the requests", ErrDamaged, number)
	}
	var answer *string
	if a, ok := row[8].(string); ok {
		answer = &a
	}
	q.Settle(uint64(taken), answer)
	return q, nil
}

// viewRequests reads all requests of a run for which a condition holds. The function "where" returns the condition.
func (s *Store) viewRequests(ctx context.Context, id string, where func(run int64) (string, []driver.Value)) (list []store.PostedRequest, err error) {
	err = s.view(ctx, func(do execution) error {
		var number, taken int64
		err := do("SELECT run, taken FROM kahn_runs WHERE id = ?", func(row []driver.Value) error {
			number, taken = row[0].(int64), row[1].(int64)
			return nil
		}, id)
		if err == nil && number == 0 {
			err = store.ErrUnknownRun
		}
		if err != nil {
			return err
		}
		text, values := where(number)
		return do(requestRows+text, func(row []driver.Value) error {
			q, err := readRequest(row, number, taken)
			list = append(list, q)
			return err
		}, values...)
	})
	return list, err
}

// LoadRequests implements [store.Inbox].
func (s *Store) LoadRequests(ctx context.Context, run string, after uint64, limit int) ([]store.PostedRequest, error) {
	list, err := s.viewRequests(ctx, run, func(run int64) (string, []driver.Value) {
		first := run * requestsOfRun
		return " WHERE request > ? AND request < ? ORDER BY request LIMIT ?",
			[]driver.Value{first + int64(min(after, requestsOfRun-1)), first + requestsOfRun, int64(limit)}
	})
	if err != nil {
		return nil, s.about("load requests for", run, err)
	}
	return list, nil
}

// FindRequest implements [store.Inbox].
func (s *Store) FindRequest(ctx context.Context, run, id string) (store.PostedRequest, error) {
	list, err := s.viewRequests(ctx, run, func(run int64) (string, []driver.Value) {
		return " WHERE run = ? AND id = ?", []driver.Value{run, id}
	})
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%w: %s", store.ErrUnknownRequest, strconv.Quote(id))
	}
	if err != nil {
		return store.PostedRequest{}, s.about("find a request for", run, err)
	}
	return list[0], nil
}

// WatchRequests implements [store.Inbox]. Once per [Options].Poll, one goroutine looks for requests that other processes have posted for the watched
// runs. It reads the runs only if the database has changed or a watch has begun since its last look.
func (s *Store) WatchRequests(run string, arrived func(run string)) (stop func()) {
	return s.requests.Watch(run, arrived)
}

// lookout finds runs with waiting requests. It has a connection of its own, whose PRAGMA data_version changes when any other connection commits. Only
// the goroutine of the Poller uses the lookout.
type lookout struct {
	store *Store
	conn  *sql.Conn
	seen  int64 // the version of the data at the last look
}

// look implements the Look of the Poller.
func (l *lookout) look(ctx context.Context, asked notify.Question) (found []notify.Sighting, unchanged bool, err error) {
	if l.conn == nil {
		if l.conn, err = l.store.db.Conn(ctx); err != nil {
			return nil, false, err
		}
	}
	if found, unchanged, err = l.ask(ctx, asked); err != nil {
		l.rest()
	}
	return found, unchanged, err
}

func (l *lookout) ask(ctx context.Context, asked notify.Question) (found []notify.Sighting, unchanged bool, err error) {
	var version int64
	if err := l.conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version); err != nil {
		return nil, false, err
	}
	if version == l.seen && !asked.All && len(asked.Names) == 0 {
		return nil, true, nil
	}
	rows, err := l.conn.QueryContext(ctx, waitingQuery)
	if err != nil {
		return nil, false, err
	}
	err = scan(rows, func(row []driver.Value) error {
		found = append(found, notify.Sighting{Name: row[0].(string), Version: uint64(row[1].(int64))})
		return nil
	})
	if err == nil {
		l.seen = version
	}
	return found, false, err
}

// The method `rest` returns the connection to the pool. After an error the connection may be broken; the next look then takes another one.
func (l *lookout) rest() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
}

// waitingQuery finds the runs with waiting requests. It uses an index that contains only these runs.
const waitingQuery = "SELECT id, posted FROM kahn_runs WHERE posted > taken"
