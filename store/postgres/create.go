package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// Create implements [store.Admin]. It executes one statement if the id is new.
func (s *Store) Create(ctx context.Context, n store.NewRun) (*store.Run, bool, error) {
	if err := errors.Join(n.Check(), s.check(ctx)); err != nil {
		return nil, false, about("create", n.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	stored, created, err := s.create(ctx, s.pool, &n)
	return stored, created, about("create", n.ID, err)
}

// CreateTx does the same as Create, but in a transaction that the program has begun in the store's database. The run exists once the transaction is
// committed. If CreateTx refuses the run with an error that [store.Admin] documents for Create, such as [store.ErrExists], the transaction remains
// usable. A call that creates or acquires a run of the same id waits until the transaction has ended. If that call is an Acquire, other acquisitions
// by the same process may wait, too, since they share a statement. If the run exists, CreateTx locks the row of the run, as [Store.PostTx] does.
func (s *Store) CreateTx(ctx context.Context, tx pgx.Tx, n store.NewRun) (*store.Run, bool, error) {
	if err := errors.Join(n.Check(), s.check(ctx)); err != nil {
		return nil, false, about("create", n.ID, err)
	}
	stored, created, err := s.create(ctx, tx, &n)
	return stored, created, about("create", n.ID, err)
}

// The method `create` does what Create and CreateTx do, in a pool or in a transaction.
func (s *Store) create(ctx context.Context, db queryer, n *store.NewRun) (*store.Run, bool, error) {
	return s.place(ctx, db, n, &store.Run{ID: n.ID, Spec: n.Spec, WakeAt: n.NotBefore})
}

// noVersion is a version that no row ever has.
const noVersion = "0"

// The method `place` inserts the run r. If the id is taken, `place` decides whether n may replace the stored run, and if so writes r over it. If the
// stored run changes between the decision and the write, `place` decides again. It returns the run that is stored afterwards.
func (s *Store) place(ctx context.Context, db queryer, n *store.NewRun, r *store.Run) (stored *store.Run, created bool, err error) {
	if err := errors.Join(checkTexts(r.ID), checkSpec(&r.Spec)); err != nil {
		return nil, false, err
	}
	for replaced := noVersion; ; {
		if stored, err = s.put(ctx, db, replaced, r); err != nil || stored != nil {
			return stored, err == nil, err
		}
		old, _, version, leased, err := s.head(ctx, db, r.ID)
		switch {
		case errors.Is(err, store.ErrUnknownRun): // the stored run was removed meanwhile, so the next try inserts r
			replaced = noVersion
			continue
		case err != nil:
			return nil, false, err
		}
		if write, err := n.Judge(old, leased); err != nil || !write {
			return old, false, err
		}
		replaced = version
	}
}

// The method `head` reads the row of a run without its record. The version changes with each change of the row.
func (s *Store) head(ctx context.Context, db queryer, id string) (stored *store.Run, number int64, version string, leased bool, err error) {
	if !storable(id) {
		return nil, 0, "", false, store.ErrUnknownRun
	}
	err = rowsOf(ctx, db, s.texts.head, []any{id}, func(rows pgx.Rows) error {
		var h head
		var sequence int64
		if err := scan(rows, []any{&number, &version, &leased, &sequence}, h.targets()); err != nil {
			return err
		}
		if stored, err = h.run(); err == nil {
			stored.Sequence = uint64(sequence)
		}
		return err
	})
	if err == nil && stored == nil {
		err = store.ErrUnknownRun
	}
	return stored, number, version, leased, err
}

// putText returns the statement that writes a whole run: as a new row, or in place of the given version of the row. A replaced row keeps its
// lease, which has ended, so that the next epoch is higher. The statement returns the stored run, or no row if it has written nothing.
func putText() string {
	const columns = "id, status, sequence, created, ended, wake, workflow, plan, parent, labels, inputs, record, compensation, usage, run_key, priority"
	nodes, next := unnest("n", 18, nodeColumns)
	events, _ := unnest("e", next+1, "event bigint, data bytea")
	return `WITH written AS (
	INSERT INTO $S.runs AS r (` + columns + `, epoch, owner, expires)
	VALUES ($2, $3, $4, coalesce($5, $NOW), $6, $7, $8, $9, $10, $11::text::jsonb, $12, $13, $14, $15::text::json, $16, $17, 0, '', '-infinity')
	ON CONFLICT (id) DO UPDATE SET (` + columns + `, posted, taken, urgent) = (excluded.` + strings.ReplaceAll(columns, ", ", ", excluded.") + `, 0, 0, false) WHERE r.xmin = $1::text::xid
	RETURNING r.*
),
nodes AS (` + putNodes("w.run", "written w CROSS JOIN "+nodes) + `),
linked AS (INSERT INTO $S.blobs SELECT b.key, w.run FROM written w CROSS JOIN unnest($` + fmt.Sprint(next) + `::text[]) AS b(key) ON CONFLICT DO NOTHING),
noted AS (INSERT INTO $S.blobs SELECT b.key, 0 FROM written JOIN $S.blobs b USING (run) WHERE b.key <> ALL ($` + fmt.Sprint(next) + `::text[]) ON CONFLICT DO NOTHING),
dropped AS (DELETE FROM $S.requests q USING written w WHERE q.run = w.run),
unlinked AS (DELETE FROM $S.blobs b USING written w WHERE b.run = w.run AND b.key <> ALL ($` + fmt.Sprint(next) + `::text[])),
events AS (INSERT INTO $S.events SELECT w.run, e.event, e.data FROM written w CROSS JOIN ` + events + `)
SELECT ` + headColumns + ` FROM written r WHERE r.ended IS NOT NULL OR ` + notified + ` IS NOT NULL`
}

// The constant `notified` is the SQL expression that notifies listening stores that the run r is due, may be due soon, or has a request. See
// [Store.NotifiesDue].
const notified = "pg_notify('$CHANNEL', r.id)::text"

// The method `put` writes a whole run, see putText. It returns the stored run without record and nodes, or nil if it has written nothing.
func (s *Store) put(ctx context.Context, db queryer, version string, r *store.Run) (stored *store.Run, err error) {
	var nodes nodeRows
	for i, key := range slices.Sorted(maps.Keys(r.Nodes)) {
		n := r.Nodes[key]
		nodes.add(0, int32(i), key, &n.State, &n.Columns)
	}
	args := append([]any{
		version, r.ID, r.Status.String(), int64(r.Sequence), instant(r.Created), instant(r.Ended), instant(r.WakeAt), r.Workflow, r.Plan,
		orNull(r.Parent), labelsText(r.Labels), bytesOrNull(r.Inputs), bytesOrNull(r.Record), compensationText(r.Compensation), usageText(r.Usage), r.Key, r.Priority,
	}, nodes.args()...)
	var events eventRows
	events.add(0, r.Events)
	err = rowsOf(ctx, db, s.texts.put, append(args, r.BlobKeys(), events.ids, events.data), func(rows pgx.Rows) error {
		var h head
		if err := scan(rows, h.targets()); err != nil {
			return err
		}
		stored, err = h.run()
		return err
	})
	return stored, err
}

// compensationText returns the value of the column compensation: NULL for CompensationNone.
func compensationText(c machine.Compensation) *string {
	if c == machine.CompensationNone {
		return nil
	}
	return orNull(c.String())
}

// usageText returns the value of the column usage: NULL for an empty map.
func usageText(usage map[string]float64) *string {
	if len(usage) == 0 {
		return nil
	}
	text, _ := json.Marshal(usage) // Marshal returns no error for finite numbers
	return orNull(string(text))
}

// Insert implements [store.Admin].
func (s *Store) Insert(ctx context.Context, r *store.Run) error {
	if err := errors.Join(r.Check(), s.check(ctx)); err != nil {
		return about("insert", r.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if r.Status.Terminal() {
		return about("insert", r.ID, s.insertEnded(ctx, r))
	}
	_, _, err := s.place(ctx, s.pool, &store.NewRun{ID: r.ID}, r)
	return about("insert", r.ID, err)
}
