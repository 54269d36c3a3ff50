package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-c794f7ef/kahn/store"
)

// A commit of more than maxStatement bytes is written in parts, for example the end of a step with 100,000 successors. The first statements write the
// rows of nodes and events. The last statement writes the row of the run if the lease is still valid. All these statements are in one transaction, so
// other transactions see nothing of the commit until the transaction is committed. The row of the run is not locked before the last statement, so the
// lease can be renewed meanwhile. If another process takes over the run, the last statement writes nothing, and the transaction is rolled back. If
// the process pauses between two statements for longer than a statement may take, the server ends the transaction.

// maxStatement is the size in bytes up to which one statement writes a whole commit. A statement for a batch of several commits has at most
// maxBatchBytes.
const maxStatement = 2 * maxBatchBytes

// maxPart is how many rows a part of a commit may have.
const maxPart = 5000

// The method `begins` returns the options of a transaction of several statements. If this process is stopped between two statements, the server ends
// the transaction after the time that a statement may take, and releases its locks. The query that begins the transaction sets this limit.
func (s *Store) begins() pgx.TxOptions {
	return pgx.TxOptions{BeginQuery: fmt.Sprintf("BEGIN; SET LOCAL idle_in_transaction_session_timeout = %d", s.timeout.Milliseconds()+1)}
}

// executeParts does what execute does, for one commit that is large or settles awaits.
func (s *Store) executeParts(c *call[*commit]) (written, locked map[int64]bool, err error) {
	m := c.arg
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	tx, err := s.pool.BeginTx(ctx, s.begins())
	cancel()
	if err != nil {
		return nil, nil, describe(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		defer cancel()
		_ = tx.Rollback(ctx) // after a commit, Rollback does nothing; if Rollback fails, the connection is closed
	}()
	p := &parts{s: s, tx: tx}
	settles := 0
	if m.settles() {
		settles = withAwaits
		p.lockAwaits(m.c.Awaits)
	}
	var nodes nodeRows
	for i := range m.stage.changes {
		ch := &m.stage.changes[i]
		nodes.add(m.run.number, ch.node.number, ch.key, &ch.next, ch.record)
		if p.add(sizeOfNode(ch.record)) || i == len(m.stage.changes)-1 {
			p.exec(s.texts.nodesPart, nodes.args()...)
			nodes = nodeRows{}
		}
	}
	var events eventRows
	for i := range m.c.Events {
		events.add(m.run.number, m.c.Events[i:i+1])
		if p.add(sizeOfEvent(&m.c.Events[i])) || i == len(m.c.Events)-1 {
			p.exec(s.texts.eventsPart, events.runs, events.ids, events.data)
			events = eventRows{}
		}
	}
	if p.err != nil {
		return nil, nil, p.err
	}
	last := *m
	last.c.Nodes, last.c.Events, last.stage = nil, nil, &stage{run: m.run}
	last.blobs = m.c.BlobKeys()
	for until, pause := time.Now().Add(s.timeout), minLockPause; ; pause = min(2*pause, maxLockPause) {
		written, locked, err = s.execute(tx, []*call[*commit]{{arg: &last}}, settles)
		if err != nil || len(written) > 0 {
			break
		}
		if len(locked) == 0 || !time.Now().Before(until) {
			return nil, locked, nil
		}
		time.Sleep(pause)
	}
	if err == nil && settles != 0 {
		if m.told, err = s.settleAwaits(tx, m); errors.Is(err, errLocked) {
			return nil, map[int64]bool{m.run.number: true}, nil
		}
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		defer cancel()
		err = describe(tx.Commit(ctx))
	}
	return written, nil, err
}

// The type `parts` executes the statements of a transaction, up to the first error.
type parts struct {
	s           *Store
	tx          pgx.Tx
	rows, bytes int // the rows and bytes that the next statement has so far
	err         error
}

// The method `add` adds a row to the size of the next statement, and reports whether the statement is now large enough to be executed.
func (p *parts) add(bytes int) bool {
	p.rows++
	p.bytes += bytes
	return p.rows >= maxPart || p.bytes >= maxBatchBytes
}

func (p *parts) exec(text string, args ...any) {
	p.rows, p.bytes = 0, 0
	if p.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.s.timeout)
	defer cancel()
	_, err := p.tx.Exec(ctx, text, args...)
	p.err = describe(err)
}

// sizeOfNode and sizeOfEvent estimate how many bytes a row has.
func sizeOfNode(c *store.Columns) int {
	if c == nil {
		return 100
	}
	return 100 + len(c.Value) + len(c.Record)
}

func sizeOfEvent(e *store.EventRecord) int { return 50 + len(e.Data) }
