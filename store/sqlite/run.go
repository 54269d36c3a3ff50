package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// run is what the writer knows of a run that the process has leased: all that a commit is judged by.
type run struct {
	number   int64
	id       string
	lease    kahn.Lease
	status   kahn.RunStatus
	sequence uint64
	wake     int64  // in milliseconds since 1970; 0 if it is not known
	record   uint32 // the checksum of the run's record
	rows     int64  // nodes in the commit that changed the run's row last
	nodes    map[string]*node
}

// node is the state of a node, without its record.
type node struct {
	number    int64 // within the run
	attempt   int32
	resolved  int
	required  int
	terminal  bool
	queued    bool
	completed bool
	record    uint32 // the checksum of the record's columns
	staged    int    // the place among the changes of the commit that is being judged, from 1
}

// nodesOfRun is the number of rows that a run may have.
const nodesOfRun = 1 << 24

var table = crc32.MakeTable(crc32.Castagnoli)

// sum adds a part to a checksum, with its length: parts that are moved from one column to the next change it.
func sum(c uint32, part []byte) uint32 {
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(part)))
	return crc32.Update(crc32.Update(c, table, length[:]), table, part)
}

func sumInts(c uint32, values ...int64) uint32 {
	var data [80]byte
	for i, v := range values {
		binary.LittleEndian.PutUint64(data[8*i:], uint64(v))
	}
	return crc32.Update(c, table, data[:8*len(values)])
}

func toInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// checksum is that of the run's row.
func (r *run) checksum() int64 {
	c := sum(r.record, []byte(r.id))
	return int64(sumInts(sum(c, []byte(r.status.String())), int64(r.sequence), r.wake, r.rows))
}

// checksum is that of the node's row.
func (n *node) checksum(row int64, key string, sequence uint64) int64 {
	c := sum(n.record, []byte(key))
	return int64(sumInts(c, row, int64(sequence), int64(n.attempt), toInt(n.terminal), toInt(n.queued), toInt(n.completed), int64(n.resolved), int64(n.required)))
}

// wakeTime is when a run is to wake, rounded up: it is not due before.
func wakeTime(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	wake := t.UnixMilli()
	if time.UnixMilli(wake).Before(t) {
		wake++
	}
	if wake == 0 {
		wake = 1
	}
	return wake
}

// Load implements [kahn.Store].
func (s *Store) Load(ctx context.Context, id string) (stored *kahn.StoredRun, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, about("load", id, s.closed(err))
	}
	var refused error
	err = conn.Raw(func(c any) error {
		conn := c.(driver.Conn)
		if err := execute(conn, "BEGIN"); err != nil {
			return err
		}
		stored, _, refused, err = load(conn, id)
		if ended := execute(conn, "ROLLBACK"); err == nil {
			err = ended
		}
		return err
	})
	if closed := conn.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = refused
	}
	if err != nil {
		return nil, about("load", id, err)
	}
	return stored, nil
}

// closed replaces the error of a connection that a closed database cannot give.
func (s *Store) closed(err error) error {
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	if s.writer.closed {
		return ErrClosed
	}
	return err
}

// load reads a run in a transaction. refused is the error of a run that is not stored or is damaged.
func load(conn driver.Conn, id string) (stored *kahn.StoredRun, known *run, refused, err error) {
	err = query(conn, "SELECT run, status, sequence, record, checksum, wake, nodes FROM kahn_runs WHERE id = ?", func(row []driver.Value) error {
		known = &run{number: row[0].(int64), id: id, sequence: uint64(row[2].(int64)), nodes: map[string]*node{}}
		bytes, _ := row[3].([]byte)
		known.wake, _ = row[5].(int64)
		known.rows = row[6].(int64)
		stored = &kahn.StoredRun{ID: id, Record: bytes, Nodes: map[string]kahn.StoredNode{}}
		refused = known.status.UnmarshalText([]byte(row[1].(string)))
		known.record = sum(0, bytes)
		if bytes == nil {
			known.record = 0
		}
		if refused != nil || known.checksum() != row[4].(int64) {
			refused = fmt.Errorf("%w: the run's row", ErrDamaged)
		}
		return nil
	}, id)
	switch {
	case err != nil || refused != nil:
		return nil, nil, refused, err
	case known == nil:
		return nil, nil, kahn.ErrUnknownRun, nil
	}
	err = query(conn, "SELECT * FROM kahn_nodes WHERE node >= ? AND node < ? ORDER BY node", func(row []driver.Value) error {
		if refused == nil {
			refused = known.read(row, stored)
		}
		return nil
	}, known.number*nodesOfRun, (known.number+1)*nodesOfRun)
	if refused == nil && int64(len(known.nodes)) < known.rows {
		refused = fmt.Errorf("%w: %d of at least %d nodes", ErrDamaged, len(known.nodes), known.rows)
	}
	if err != nil || refused != nil {
		return nil, nil, refused, err
	}
	stored.Status, stored.Sequence = known.status, known.sequence
	if known.wake != 0 {
		stored.WakeAt = time.UnixMilli(known.wake)
	}
	return stored, known, nil, nil
}

// read adds a row of kahn_nodes to the run.
func (r *run) read(row []driver.Value, stored *kahn.StoredRun) error {
	integer := func(i int) int64 {
		v, _ := row[i].(int64)
		return v
	}
	number, sequence := integer(0), uint64(integer(2))
	key, _ := row[1].(string)
	n := &node{
		number: number - r.number*nodesOfRun, attempt: int32(integer(3)), terminal: integer(4) != 0, queued: integer(5) != 0, completed: integer(6) != 0,
		resolved: int(integer(7)), required: int(integer(8)),
	}
	data, err := readColumns(row[9:16])
	n.record = checksum(&data)
	if err != nil || n.number != int64(len(r.nodes)) || n.checksum(number, key, sequence) != integer(16) || r.nodes[key] != nil {
		return fmt.Errorf("%w: row %d of the nodes, %s", ErrDamaged, number, strconv.Quote(key))
	}
	r.nodes[key] = n
	r.sequence = max(r.sequence, sequence)
	stored.Nodes[key] = kahn.StoredNode{
		NodeColumns: data, Terminal: n.terminal, Attempt: n.attempt, Resolved: n.resolved, Required: n.required, Queued: n.queued, Completed: n.completed,
	}
	return nil
}
