package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-c794f7ef/kahn/store"
)

// The first statement removes at most pruneBatch runs. If a statement has removed fewer than fewPruned nodes, the next statement may remove twice as
// many runs, up to maxPruneBatch. Otherwise the next statement removes at most pruneBatch runs.
const (
	pruneBatch    = 16
	maxPruneBatch = 512
	fewPruned     = 2000
)

// Prune implements [store.Admin]. A statement removes at most 16 runs, or at most 512 runs if the runs have few nodes. Prune leaves out each run
// whose row another transaction has locked.
func (s *Store) Prune(ctx context.Context, q store.PruneQuery) (pruned store.Pruned, err error) {
	if err := q.Check(); err != nil {
		return pruned, err
	}
	size := pruneBatch
	for pruned.More = true; pruned.More && pruned.Runs < q.Limit; {
		batch, err := s.prune(ctx, &q, min(size, q.Limit-pruned.Runs))
		if err != nil {
			return pruned, fmt.Errorf("prune: %w", err)
		}
		pruned.Runs, pruned.Nodes, pruned.More = pruned.Runs+batch.Runs, pruned.Nodes+batch.Nodes, batch.More
		if size = pruneBatch; batch.Nodes < fewPruned {
			size = min(2*max(batch.Runs, pruneBatch), maxPruneBatch)
		}
		if batch.Runs == 0 {
			break // other transactions have locked the remaining runs
		}
	}
	if q.Blobs == nil {
		return pruned, nil
	}
	if pruned.Blobs, err = s.sweep(ctx, &q); err != nil {
		return pruned, fmt.Errorf("prune: %w", err)
	}
	return pruned, nil
}

// pruneText returns the statement that removes the next runs. The statement leaves out each run that a concurrent statement acquires: when this
// statement tries to lock the row, the row is still locked or has a new epoch.
func pruneText() string {
	return `WITH found AS MATERIALIZED (
	SELECT r.run, r.epoch FROM $S.runs r WHERE r.ended < $1 AND r.status = ANY ($2) AND ($4 = '' OR r.workflow = $4) AND NOT ` + leased + ` AND r.posted <= r.taken
		AND NOT EXISTS (SELECT FROM $S.schedules s WHERE s.tick = r.id) ORDER BY r.ended, r.run LIMIT $3 + 1
),
gone AS MATERIALIZED (
	SELECT r.run FROM (SELECT * FROM found LIMIT $3) f CROSS JOIN LATERAL (
		SELECT r.run FROM $S.runs r WHERE r.run = f.run AND r.epoch = f.epoch FOR UPDATE SKIP LOCKED
	) r
),
awaits AS (DELETE FROM $S.awaits a USING gone g WHERE a.run = g.run),
requests AS (DELETE FROM $S.requests q USING gone g WHERE q.run = g.run),
nodes AS (DELETE FROM $S.nodes n USING gone g WHERE n.run = g.run RETURNING n.run),
noted AS (INSERT INTO $S.blobs SELECT DISTINCT b.key, 0 FROM $S.blobs b JOIN gone USING (run) ON CONFLICT DO NOTHING),
blobs AS (DELETE FROM $S.blobs b USING gone g WHERE b.run = g.run),
events AS (DELETE FROM $S.events e USING gone g WHERE e.run = g.run),
effects AS (DELETE FROM $S.effects e USING gone g WHERE e.run = g.run),
runs AS (DELETE FROM $S.runs r USING gone g WHERE r.run = g.run RETURNING r.run)
SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM nodes), (SELECT count(*) FROM found) > $3`
}

// prune removes some runs.
func (s *Store) prune(ctx context.Context, q *store.PruneQuery, most int) (pruned store.Pruned, err error) {
	if err := s.check(ctx); err != nil {
		return pruned, err
	}
	err = s.do(ctx, s.sql(pruneText()), []any{instant(q.EndedBefore), names(q.Statuses), most, q.Workflow}, func(rows pgx.Rows) error {
		return rows.Scan(&pruned.Runs, &pruned.Nodes, &pruned.More)
	})
	return pruned, err
}

// The method `sweep` removes blobs of pruned and replaced runs, except blobs to which another run refers.
func (s *Store) sweep(ctx context.Context, q *store.PruneQuery) (removed int, err error) {
	// Forget each recorded blob to which a run still refers. When Prune removes a run that refers to the blob, it records the blob again.
	const settled = "DELETE FROM $S.blobs b WHERE b.run = 0 AND EXISTS (SELECT FROM $S.blobs o WHERE o.key = b.key AND o.run > 0)"
	nothing := func(pgx.Rows) error { return nil }
	if err := s.do(ctx, s.sql(settled), nil, nothing); err != nil {
		return 0, err
	}
	var keys []string
	err = s.do(ctx, s.sql("SELECT b.key FROM $S.blobs b WHERE b.run = 0 ORDER BY b.key"), nil, func(rows pgx.Rows) error {
		var key string
		err := rows.Scan(&key)
		keys = append(keys, key)
		return err
	})
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	gone, swept := q.Sweep(ctx, keys)
	err = s.do(context.WithoutCancel(ctx), s.sql("DELETE FROM $S.blobs b WHERE b.run = 0 AND b.key = ANY ($1)"), []any{gone}, nothing)
	if swept != nil {
		return len(gone), swept
	}
	return len(gone), err
}
