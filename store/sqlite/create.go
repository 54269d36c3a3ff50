package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

var _ store.Admin = (*Store)(nil)

// Create implements [store.Admin].
func (s *Store) Create(ctx context.Context, n store.NewRun) (stored *store.Run, created bool, err error) {
	if err := errors.Join(n.Check(), ctx.Err()); err != nil {
		return nil, false, s.about("create", n.ID, err)
	}
	w := s.writer
	var refused error
	err = w.write(ctx, func() (err error) {
		delete(w.runs, n.ID) // the run may change, so its cached state is dropped
		stored, created, refused, err = s.creation(w.in, &n)
		return err
	})
	if err == nil {
		err = refused
	}
	return stored, created, s.about("create", n.ID, err)
}

// CreateTx does the same as Create in a transaction that the program has begun with [Store.DB]. The run exists once the transaction is committed. If
// CreateTx refuses the run with an error that [store.Admin] documents for Create, such as [store.ErrExists], it has changed nothing in the
// transaction.
func (s *Store) CreateTx(ctx context.Context, tx *sql.Tx, n store.NewRun) (stored *store.Run, created bool, err error) {
	if err := n.Check(); err != nil {
		return nil, false, s.about("create", n.ID, err)
	}
	stored, created, refused, err := s.creation(func(text string, f func(row []driver.Value) error, values ...driver.Value) error {
		return queryTx(ctx, tx, text, f, values...)
	}, &n)
	if err == nil {
		err = refused
	}
	return stored, created, s.about("create", n.ID, describe(err))
}

// queryTx executes a statement in the program's transaction.
func queryTx(ctx context.Context, tx *sql.Tx, text string, f func(row []driver.Value) error, values ...driver.Value) error {
	if f == nil {
		_, err := tx.ExecContext(ctx, text, anys(values)...)
		return err
	}
	rows, err := tx.QueryContext(ctx, text, anys(values)...)
	if err != nil {
		return err
	}
	return scan(rows, f)
}

// anys converts values for database/sql.
func anys(values []driver.Value) []any {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = v
	}
	return args
}

// scan calls f for each row, and closes the rows.
func scan(rows *sql.Rows, f func(row []driver.Value) error) (err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	row, to := make([]driver.Value, len(columns)), make([]any, len(columns))
	for i := range row {
		to[i] = (*any)(&row[i])
	}
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			return err
		}
		if err := f(row); err != nil {
			return err
		}
	}
	return rows.Err()
}

// headQuery reads the columns of a run for the result of Create, and whether the run is leased. %s is the time.
const headQuery = "SELECT run, owner <> '' AND expires > %s, id, status, created, ended, wakes, workflow, plan, inputs, labels, parent, run_key, priority, compensation, usage, sequence, posted FROM kahn_runs WHERE id = ?"

// The method `head` reads a run by its id, see headQuery. If there is no such run, the result "stored" is nil.
func (s *Store) head(do execution, id string) (number int64, stored *store.Run, leased bool, err error) {
	err = do(sqlAt(headQuery, s.now), func(row []driver.Value) (err error) {
		number, _ = row[0].(int64)
		held, _ := row[1].(int64)
		leased = held != 0
		stored, err = readHead(row[2:16])
		if stored != nil {
			sequence, _ := row[16].(int64)
			posted, _ := row[17].(int64)
			stored.Sequence, stored.Posted = uint64(sequence), uint64(posted)
		}
		return err
	}, id)
	return number, stored, leased, err
}

// creation does what Create does, within a transaction. If the result "refused" is not nil, creation has written nothing, and the transaction can be
// committed.
func (s *Store) creation(do execution, n *store.NewRun) (stored *store.Run, created bool, refused, err error) {
	number, stored, leased, err := s.head(do, n.ID)
	if err != nil {
		return nil, false, nil, err
	}
	if stored != nil {
		write, refused := n.Judge(stored, leased)
		if refused != nil || !write {
			return stored, false, refused, nil
		}
		if err := remove(do, number); err != nil {
			return nil, false, nil, err
		}
	}
	if _, err = s.put(do, number, &store.Run{ID: n.ID, Spec: n.Spec, WakeAt: n.NotBefore}); err != nil {
		return nil, false, nil, err
	}
	_, stored, _, err = s.head(do, n.ID)
	return stored, true, nil, err
}

// remove removes the rows of a run in all tables except kahn_runs and kahn_nodes, resets the counts of its requests, and records the blobs to which
// the run referred.
func remove(do execution, number int64) error {
	for _, text := range []string{
		"INSERT OR IGNORE INTO kahn_blobs SELECT key, 0 FROM kahn_blobs WHERE run = ?",
		"DELETE FROM kahn_labels WHERE run = ?", "DELETE FROM kahn_blobs WHERE run = ?", "DELETE FROM kahn_effects WHERE run = ?", "DELETE FROM kahn_awaits WHERE run = ?", "UPDATE kahn_runs SET posted = 0, taken = 0, urgent = 0 WHERE run = ?",
	} {
		if err := do(text, nil, number); err != nil {
			return err
		}
	}
	if err := do("DELETE FROM kahn_requests WHERE request >= ? AND request < ?", nil, number*requestsOfRun, (number+1)*requestsOfRun); err != nil {
		return err
	}
	return do("DELETE FROM kahn_events WHERE event >= ? AND event < ?", nil, number*eventsOfRun, (number+1)*eventsOfRun)
}

// put writes the row and the labels of a run, records its blobs, and returns its number. If the parameter "number" is not 0, put overwrites the row
// that has this number. The row keeps its lease, which has ended.
func (s *Store) put(do execution, number int64, r *store.Run) (int64, error) {
	var sums summer
	known := run{id: r.ID, status: r.Status, undoing: r.Compensation, sequence: r.Sequence, wake: wakeTime(r.WakeAt), rows: int64(len(r.Nodes)),
		spec: specSum(&sums, &r.Spec), record: recordSum(&sums, r.Record)}
	created, ended := driver.Value(nil), driver.Value(nil)
	if !r.Created.IsZero() {
		created = r.Created.UnixMilli()
	}
	if !r.Ended.IsZero() {
		ended = r.Ended.UnixMilli()
	}
	values := append([]driver.Value{r.ID, known.status.String(), int64(known.sequence), known.rows, created, ended, known.wake, bytesOrNull(r.Record),
		known.checksum(&sums), compensationText(r.Compensation), usageText(r.Usage)}, specColumns(&r.Spec)...)
	const columns = "id, status, sequence, nodes, created, ended, wake, record, checksum, compensation, usage, workflow, plan, inputs, labels, parent, run_key, priority"
	const places = "?, ?, ?, ?, coalesce(?, %s), ?, nullif(?, 0), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?"
	text := sqlAt("INSERT INTO kahn_runs ("+columns+", epoch, owner, expires, process) VALUES ("+places+", 0, '', 0, 0) RETURNING run", s.now)
	if number != 0 {
		text = sqlAt("UPDATE kahn_runs SET ("+columns+") = ("+places+") WHERE run = ? RETURNING run", s.now)
		values = append(values, number)
	}
	err := do(text, func(row []driver.Value) error {
		number = row[0].(int64)
		return nil
	}, values...)
	if err != nil {
		return 0, err
	}
	if err := writeLabels(do, number, r.Labels, false); err != nil {
		return 0, err
	}
	return number, writeBlobs(do, number, r.BlobKeys())
}

// Insert implements [store.Admin].
func (s *Store) Insert(ctx context.Context, r *store.Run) error {
	if err := errors.Join(r.Check(), ctx.Err()); err != nil {
		return s.about("insert", r.ID, err)
	}
	w := s.writer
	var refused error
	var posted []string
	err := w.write(ctx, func() error {
		delete(w.runs, r.ID)
		number, old, leased, err := s.head(w.in, r.ID)
		refused = nil
		if err == nil && old != nil {
			_, refused = (&store.NewRun{ID: r.ID}).Judge(old, leased)
		}
		if err != nil || refused != nil {
			return err
		}
		if number, err = s.put(w.in, number, r); err != nil {
			return err
		}
		if err = w.putNodes(number, r); err != nil {
			return err
		}
		if err = w.putEvents(number, r.Events); err == nil && r.Status.Terminal() {
			posted, err = s.endAwaits(w.in, w.inboxes.awaited.query, r.ID, r.Status)
		}
		return err
	})
	if err == nil {
		err = refused
	}
	for _, run := range posted {
		s.requests.Tell(run)
	}
	return s.about("insert", r.ID, err)
}

// putNodes writes the nodes of a run that has no rows of nodes yet.
func (w *writer) putNodes(run int64, r *store.Run) error {
	for i, key := range slices.Sorted(maps.Keys(r.Nodes)) {
		n := r.Nodes[key]
		ch := change{key: key, record: &n.Columns, next: node{State: n.State, record: checksum(&w.sums, &n.Columns)}}
		if _, err := w.rows.whole.exec(ch.columns(nil, &w.sums, run*nodesOfRun+int64(i), r.Sequence, true)...); err != nil {
			return err
		}
	}
	return nil
}

// readHead reads the columns id, status, created, ended, wake, workflow, plan, inputs, labels, parent, run_key, priority, compensation, usage.
func readHead(row []driver.Value) (*store.Run, error) {
	var r store.Run
	r.ID, _ = row[0].(string)
	status, _ := row[1].(string)
	if err := r.Status.UnmarshalText([]byte(status)); err != nil || r.Status > machine.RunCancelled {
		return nil, errors.Join(ErrDamaged, err)
	}
	r.Created, r.Ended, r.WakeAt = timeOf(row[2]), timeOf(row[3]), timeOf(row[4])
	var err error
	if r.Compensation, err = compensationOf(row[12]); err != nil {
		return nil, err
	}
	if r.Usage, err = usageOf(row[13]); err != nil {
		return nil, err
	}
	r.Spec, err = readSpec(row[5:12])
	return &r, err
}

// compensationText returns the value of the column compensation: NULL for CompensationNone.
func compensationText(c machine.Compensation) driver.Value {
	if c == machine.CompensationNone {
		return nil
	}
	return c.String()
}

// compensationOf is the reverse of compensationText.
func compensationOf(column driver.Value) (c machine.Compensation, err error) {
	if text, ok := column.(string); ok {
		if err = c.UnmarshalText([]byte(text)); err != nil {
			err = errors.Join(ErrDamaged, err)
		}
	}
	return c, err
}

// usageText returns the value of the column usage: NULL for an empty map.
func usageText(usage map[string]float64) driver.Value {
	if len(usage) == 0 {
		return nil
	}
	text, _ := json.Marshal(usage) // Marshal returns no error for finite numbers
	return string(text)
}

// usageOf is the reverse of usageText.
func usageOf(column driver.Value) (usage map[string]float64, err error) {
	if text, ok := column.(string); ok {
		if err = json.Unmarshal([]byte(text), &usage); err != nil {
			err = fmt.Errorf("%w: usage: %w", ErrDamaged, err)
		}
	}
	return usage, err
}

// milli converts t to milliseconds since 1970, rounded up. So a time in a column of kahn_runs is at or after t exactly if the column is at least
// the result. If t is too early or too late for an int64, milli returns the smallest or the largest int64.
func milli(t time.Time) int64 {
	const most = math.MaxInt64 / 1000 // seconds
	switch s := t.Unix(); {
	case s >= most:
		return math.MaxInt64
	case s <= -most:
		return math.MinInt64
	}
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) {
		ms++
	}
	return ms
}
