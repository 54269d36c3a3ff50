package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// run is the stored state of a run that the process has leased, as far as the writer needs it to check a commit, see [store.Commit.Judge].
type run struct {
	number   int64
	id       string
	lease    store.Lease
	status   machine.RunStatus
	undoing  machine.Compensation
	sequence uint64
	wake     int64  // the run's WakeAt in milliseconds since 1970; 0 if there is none
	spec     uint32 // the checksum of the run's Spec; 0 if the Spec is blank
	record   uint32 // the checksum of the run's record
	rows     int64  // how many nodes the run had when the run's row was last written
	event    uint64 // the id of the last stored event; 0 if there is none
	nodes    map[string]*node
}

// node is the state of a node, without its record.
type node struct {
	store.State
	number int64  // the node's number within the run
	record uint32 // the checksum of the record's columns
	staged int    // the position of the node's change in the commit that is being checked, from 1; 0 if there is no such change
}

// nodesOfRun is how many rows of nodes a run may have.
const nodesOfRun = 1 << 24

var table = crc32.MakeTable(crc32.Castagnoli)

// summer computes a checksum over the parts of a row. It is reused, to avoid allocations.
type summer struct{ data []byte }

func (s *summer) ints(values ...int64) {
	for _, v := range values {
		s.data = binary.LittleEndian.AppendUint64(s.data, uint64(v))
	}
}

// The method `part` adds bytes with their length, so that the checksum changes if bytes move from one column to the next.
func (s *summer) part(data []byte) {
	if s.ints(int64(len(data))); len(data) > 1024 { // long data is replaced by its checksum, to avoid a copy
		s.ints(int64(crc32.Checksum(data, table)))
		return
	}
	s.data = append(s.data, data...)
}

func (s *summer) text(text string) {
	s.ints(int64(len(text)))
	s.data = append(s.data, text...)
}

// sum returns the checksum of the added parts, and removes the parts.
func (s *summer) sum() uint32 {
	c := crc32.Checksum(s.data, table)
	s.data = s.data[:0]
	return c
}

func toInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// checksum returns the checksum of the run's row.
func (r *run) checksum(s *summer) int64 {
	s.text(r.id)
	s.text(r.status.String())
	s.ints(int64(r.record), int64(r.sequence), r.wake, r.rows)
	if r.spec != 0 { // version 1 of the schema had no Spec, and its checksums must still match
		s.ints(int64(r.spec))
	}
	if r.undoing != machine.CompensationNone {
		s.text(r.undoing.String())
	}
	return int64(s.sum())
}

// checksum returns the checksum of the node's row.
func (n *node) checksum(s *summer, row int64, key string, sequence uint64) int64 {
	s.text(key)
	s.ints(int64(n.record), row, int64(sequence), int64(n.Attempt), toInt(n.Terminal), toInt(n.Queued), toInt(n.Completed), int64(n.Resolved), int64(n.Required))
	return int64(s.sum())
}

// recordSum returns the checksum of a run's record.
func recordSum(s *summer, record []byte) uint32 {
	if len(record) == 0 {
		return 0
	}
	s.part(record)
	return s.sum()
}

// wakeTime converts the time at which a run wakes, rounded up, so that the run is not due too early.
func wakeTime(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	wake := milli(t)
	if wake == 0 {
		wake = 1
	}
	return wake
}

// Load implements [store.Store].
func (s *Store) Load(ctx context.Context, id string) (stored *store.Run, err error) {
	var refused error
	err = s.view(ctx, func(do execution) (err error) {
		over := func(text string) func(func([]driver.Value) error, ...driver.Value) error {
			return func(f func([]driver.Value) error, values ...driver.Value) error { return do(text, f, values...) }
		}
		l := loader{run: over(runQuery), nodes: over(nodesQuery), lastEvent: over(lastEventQuery), sums: new(summer)}
		stored, _, refused, err = l.load(id)
		return err
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return nil, s.about("load", id, err)
	}
	return stored, nil
}

// view calls f with a read transaction. The transaction does not wait for the writer.
func (s *Store) view(ctx context.Context, f func(do execution) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return s.closed(err)
	}
	err = conn.Raw(func(c any) error {
		conn := c.(driver.Conn)
		if err := execute(conn, "BEGIN"); err != nil {
			return err
		}
		err := f(func(text string, f func(row []driver.Value) error, values ...driver.Value) error {
			return query(conn, text, f, values...)
		})
		if ended := execute(conn, "ROLLBACK"); err == nil {
			err = ended
		}
		return err
	})
	if closed := conn.Close(); err == nil {
		err = closed
	}
	return err
}

// The method `closed` returns err, or [ErrClosed] if the store was closed. A closed database itself would return another error.
func (s *Store) closed(err error) error {
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	if s.writer.closed {
		return ErrClosed
	}
	return err
}

// The queries that load a run.
const (
	runQuery   = "SELECT run, status, sequence, record, checksum, wake, nodes, created, ended, workflow, plan, inputs, labels, parent, run_key, priority, wakes, posted, taken, compensation, usage FROM kahn_runs WHERE id = ?"
	nodesQuery = "SELECT * FROM kahn_nodes WHERE node >= ? AND node < ? ORDER BY node"
	// LIMIT 1 makes SQLite read only the row of the last event.
	lastEventQuery = "SELECT event FROM kahn_events WHERE event >= ? AND event < ? ORDER BY event DESC LIMIT 1"
)

// loader loads runs over a connection.
type loader struct {
	run, nodes, lastEvent func(f func(row []driver.Value) error, values ...driver.Value) error
	sums                  *summer
}

// load reads a run. It runs within a transaction. If the run is not stored or is damaged, the error is in the result "refused".
func (l *loader) load(id string) (stored *store.Run, known *run, refused, err error) {
	err = l.run(func(row []driver.Value) error {
		known = &run{number: row[0].(int64), id: id, sequence: uint64(row[2].(int64)), nodes: map[string]*node{}}
		bytes, _ := row[3].([]byte)
		known.wake, _ = row[5].(int64)
		known.rows = row[6].(int64)
		stored = &store.Run{ID: id, Record: bytes, Created: timeOf(row[7]), Ended: timeOf(row[8]), WakeAt: timeOf(row[16]), Nodes: map[string]store.Node{}}
		stored.Posted, stored.Taken = uint64(row[17].(int64)), uint64(row[18].(int64))
		if stored.Spec, refused = readSpec(row[9:16]); refused != nil {
			return nil
		}
		if known.undoing, refused = compensationOf(row[19]); refused != nil {
			return nil
		}
		if stored.Usage, refused = usageOf(row[20]); refused != nil {
			return nil
		}
		stored.Compensation, known.spec = known.undoing, specSum(l.sums, &stored.Spec)
		refused = known.status.UnmarshalText([]byte(row[1].(string)))
		known.record = recordSum(l.sums, bytes)
		if refused != nil || known.checksum(l.sums) != row[4].(int64) {
			refused = fmt.Errorf("%w: the run's row", ErrDamaged)
		}
		return nil
	}, id)
	switch {
	case err != nil || refused != nil:
		return nil, nil, refused, err
	case known == nil:
		return nil, nil, store.ErrUnknownRun, nil
	}
	err = l.nodes(func(row []driver.Value) error {
		if refused == nil {
			refused = known.read(l.sums, row, stored)
		}
		return nil
	}, known.number*nodesOfRun, (known.number+1)*nodesOfRun)
	if refused == nil && int64(len(known.nodes)) < known.rows {
		refused = fmt.Errorf("%w: %d of at least %d nodes", ErrDamaged, len(known.nodes), known.rows)
	}
	if err != nil || refused != nil {
		return nil, nil, refused, err
	}
	err = l.lastEvent(func(row []driver.Value) error {
		known.event = uint64(row[0].(int64) - known.number*eventsOfRun)
		return nil
	}, known.number*eventsOfRun, (known.number+1)*eventsOfRun)
	if err != nil {
		return nil, nil, nil, err
	}
	stored.LastEvent = known.event
	stored.Status, stored.Sequence = known.status, known.sequence
	return stored, known, nil, nil
}

// The method `read` adds the node in a row of kahn_nodes to the run and to the parameter "stored".
func (r *run) read(sums *summer, row []driver.Value, stored *store.Run) error {
	integer := func(i int) int64 {
		v, _ := row[i].(int64)
		return v
	}
	number, sequence := integer(0), uint64(integer(2))
	key, _ := row[1].(string)
	n := &node{
		number: number - r.number*nodesOfRun,
		State: store.State{
			Attempt: int32(integer(3)), Terminal: integer(4) != 0, Queued: integer(5) != 0, Completed: integer(6) != 0,
			Resolved: int(integer(7)), Required: int(integer(8)),
		},
	}
	data, err := readColumns(row[9:16])
	n.record = checksum(sums, &data)
	if err != nil || n.number != int64(len(r.nodes)) || n.checksum(sums, number, key, sequence) != integer(16) || r.nodes[key] != nil {
		return fmt.Errorf("%w: row %d of the nodes, %s", ErrDamaged, number, strconv.Quote(key))
	}
	r.nodes[key] = n
	r.sequence = max(r.sequence, sequence)
	stored.Nodes[key] = store.Node{Columns: data, State: n.State}
	return nil
}
