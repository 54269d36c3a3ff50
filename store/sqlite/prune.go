package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/seed-c794f7ef/kahn/store"
)

// pruneBatch is how many runs one transaction removes. Between two transactions other runs can commit.
const pruneBatch = 16

// Prune implements [store.Admin]. Each of its transactions removes at most 16 runs.
func (s *Store) Prune(ctx context.Context, q store.PruneQuery) (pruned store.Pruned, err error) {
	if err := q.Check(); err != nil {
		return pruned, err
	}
	for pruned.More = true; pruned.More && pruned.Runs < q.Limit; {
		if err := ctx.Err(); err != nil {
			return pruned, err
		}
		var batch store.Pruned
		err := s.writer.write(ctx, func() (err error) {
			batch, err = s.prune(&q, min(pruneBatch, q.Limit-pruned.Runs))
			return err
		})
		if err != nil {
			return pruned, fmt.Errorf("prune: %w", err)
		}
		pruned.Runs, pruned.Nodes, pruned.More = pruned.Runs+batch.Runs, pruned.Nodes+batch.Nodes, batch.More
	}
	if q.Blobs == nil {
		return pruned, nil
	}
	if pruned.Blobs, err = s.sweep(ctx, &q); err != nil {
		return pruned, fmt.Errorf("prune: %w", err)
	}
	return pruned, nil
}

// pruneQuery returns the statement that finds the next `most` runs to be removed. The statement also finds the run after them, if there is one, which
// shows that Prune is not done.
func (s *Store) pruneQuery(q *store.PruneQuery, most int) (text string, values []driver.Value) {
	var c condition
	c.add("ended < ?", milli(q.EndedBefore))
	// Because of the plus signs, SQLite does not use an index of statuses or workflows. It then uses the index of the column "ended", which has the
	// order of the result.
	c.in("+status", q.Statuses)
	if q.Workflow != "" {
		c.add("+workflow = ?", q.Workflow)
	}
	c.add("NOT (owner <> '' AND expires > " + s.now + ")")
	c.add("posted <= taken") // while a redrive waits, the run must stay
	c.add("id NOT IN (SELECT tick FROM kahn_schedules)")
	return "SELECT run, id FROM kahn_runs" + c.where() + " ORDER BY ended, run LIMIT ?", append(c.values, int64(most+1))
}

// prune removes at most `most` runs. It runs within a transaction.
func (s *Store) prune(q *store.PruneQuery, most int) (pruned store.Pruned, err error) {
	w := s.writer
	text, values := s.pruneQuery(q, most)
	var numbers []int64
	var ids []string
	err = w.in(text, func(row []driver.Value) error {
		numbers, ids = append(numbers, row[0].(int64)), append(ids, row[1].(string))
		return nil
	}, values...)
	if err != nil {
		return pruned, err
	}
	if pruned.More = len(numbers) > most; pruned.More {
		numbers = numbers[:most]
	}
	for i, number := range numbers {
		delete(w.runs, ids[i])
		nodes := int64(0)
		err := w.in("SELECT count(*) FROM kahn_nodes WHERE node >= ? AND node < ?", func(row []driver.Value) error {
			nodes = row[0].(int64)
			return nil
		}, number*nodesOfRun, (number+1)*nodesOfRun)
		if err == nil {
			err = w.in("DELETE FROM kahn_nodes WHERE node >= ? AND node < ?", nil, number*nodesOfRun, (number+1)*nodesOfRun)
		}
		if err == nil {
			err = w.in("DELETE FROM kahn_runs WHERE run = ?", nil, number)
		}
		if err == nil {
			err = remove(w.in, number)
		}
		if err != nil {
			return pruned, err
		}
		pruned.Runs, pruned.Nodes = pruned.Runs+1, pruned.Nodes+int(nodes)
	}
	return pruned, nil
}

// sweep removes the blobs to which only pruned or replaced runs referred.
func (s *Store) sweep(ctx context.Context, q *store.PruneQuery) (removed int, err error) {
	w := s.writer
	var keys []string
	err = w.write(ctx, func() error {
		keys = nil
		// Rows with run = 0 list blobs that may be removed. Delete such a row if other runs still refer to its blob: when the last of these runs is
		// removed, the function `remove` inserts the row again.
		err := w.in("DELETE FROM kahn_blobs WHERE run = 0 AND EXISTS (SELECT 1 FROM kahn_blobs AS other WHERE other.key = kahn_blobs.key AND other.run > 0)", nil)
		if err != nil {
			return err
		}
		return w.in("SELECT key FROM kahn_blobs WHERE run = 0 ORDER BY key", func(row []driver.Value) error {
			keys = append(keys, row[0].(string))
			return nil
		})
	})
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	gone, swept := q.Sweep(ctx, keys)
	err = w.write(context.WithoutCancel(ctx), func() error {
		for _, key := range gone {
			if err := w.in("DELETE FROM kahn_blobs WHERE key = ? AND run = 0", nil, key); err != nil {
				return err
			}
		}
		return nil
	})
	if swept != nil {
		return len(gone), swept
	}
	return len(gone), err
}
