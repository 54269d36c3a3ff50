package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/store"
)

// Step has the methods of a step that [Once] needs. The type *kahn.Step implements it.
type Step interface {
	RunID() string
	Epoch() uint64
	Path() string
	IdempotencyKey() string
}

// Once calls f in a transaction in the store's database. In this transaction f may change the program's own tables. Once stores the result of f in
// the same transaction, under the step's idempotency key. If the step is called again, because it is retried or its process has died, Once returns
// the stored result and does not call f. So f's writes take effect exactly once. A step has only one stored result, so its code should call Once at
// most once.
//
// If f returns an error, Once rolls the transaction back and returns the error. If another process takes over the run before or while f runs, f
// has no effect, and the error matches [store.ErrFenced]. The result is encoded as JSON; [store.Sealed] does not encrypt it.
//
// While f runs, only other calls for the same step, in any process, wait for the transaction. If the process is stopped while f runs, these calls
// wait until the server ends the transaction, see its idle_in_transaction_session_timeout. Once holds a connection of the pool while f runs. If calls
// of Once hold all connections for longer than the leases last, all runs of the process lose their leases. So MaxConns of the pool must be greater
// than the number of concurrent calls of Once; pgxpool's default is the greater of 4 and the number of CPUs.
func Once[T any](ctx context.Context, s *Store, step Step, f func(tx pgx.Tx) (T, error)) (result T, err error) {
	if err := s.check(ctx); err != nil {
		return result, about("once", step.RunID(), err)
	}
	own := error(nil) // the error of f
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		run, kept, err := s.claim(ctx, tx, step)
		if err != nil {
			return err
		}
		if kept != nil {
			return json.Unmarshal(kept, &result)
		}
		if result, own = f(tx); own != nil {
			return own
		}
		data, err := json.Marshal(result)
		if err != nil {
			return fmt.Errorf("the result of %s: %w", foreign.Quote(step.Path()), err)
		}
		tag, err := tx.Exec(ctx, s.sql("UPDATE $S.effects SET result = $3 WHERE run = $1 AND key = $2 AND EXISTS (SELECT FROM $S.runs r WHERE r.run = $1 AND r.epoch = $4 AND "+leased+")"),
			run, step.IdempotencyKey(), data, int64(step.Epoch()))
		if err == nil && tag.RowsAffected() == 0 {
			err = fencedAt(step.Epoch())
		}
		return err
	})
	if own != nil {
		return result, own
	}
	return result, about("once", step.RunID(), describe(err))
}

// The method `claim` returns the number of the step's run, and the stored result of the step. If the lease under which the step runs is no longer
// valid, the error matches ErrFenced. If there is no stored result, `claim` inserts a row for the result. Then another call for the same step waits
// until this transaction has ended.
func (s *Store) claim(ctx context.Context, tx pgx.Tx, step Step) (run int64, kept []byte, err error) {
	held := false
	err = tx.QueryRow(ctx, s.sql("SELECT r.run, r.epoch = $2 AND "+leased+" FROM $S.runs r WHERE r.id = $1"), step.RunID(), int64(step.Epoch())).Scan(&run, &held)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, nil, store.ErrUnknownRun
	case err != nil:
		return 0, nil, err
	case !held:
		return 0, nil, fencedAt(step.Epoch())
	}
	tag, err := tx.Exec(ctx, s.sql("INSERT INTO $S.effects (run, key) VALUES ($1, $2) ON CONFLICT DO NOTHING"), run, step.IdempotencyKey())
	if err != nil || tag.RowsAffected() == 1 {
		return run, nil, err
	}
	err = tx.QueryRow(ctx, s.sql("SELECT result FROM $S.effects WHERE run = $1 AND key = $2"), run, step.IdempotencyKey()).Scan(&kept)
	return run, kept, err
}
