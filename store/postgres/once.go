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

// Step is what [Once] asks of a step: a *kahn.Step is one.
type Step interface {
	RunID() string
	Epoch() uint64
	Path() string
	IdempotencyKey() string
}

// Once performs a part of a step in a transaction of the store's database, in which f may change the program's own tables. The
// result of f is stored in the same transaction, under the step's idempotency key: when the step is called again, because it
// is retried or its process has died, Once returns the result that is stored and does not call f. So what f writes happens
// exactly once, whatever happens to the process. A step may have one such part.
//
// An error of f undoes the transaction, and is returned. The error matches [store.ErrFenced], and f has no effect, if another process
// takes the run over before f or while f runs. The result is encoded as JSON, and is not encrypted under [store.Sealed].
//
// While f is at work nobody but the same step waits for the transaction, in whichever process it is called. So a process that is stopped
// within f holds up that step until its connection ends; idle_in_transaction_session_timeout of the server bounds that.
//
// Once holds a connection of the pool while f is at work. Commits and the renewals of leases need a connection of the same pool, and
// wait for it no longer than [Options].Timeout. If as many calls of Once are at work as the pool has connections, and their f take longer than the
// leases last, all runs of the process lose their leases, and the calls are undone. So MaxConns of the pool must be greater than the number of
// steps that may be in Once at the same moment; pgxpool's default is the greater of 4 and the number of CPUs.
func Once[T any](ctx context.Context, s *Store, step Step, f func(tx pgx.Tx) (T, error)) (result T, err error) {
	if err := s.check(ctx); err != nil {
		return result, about("once", step.RunID(), err)
	}
	own := error(nil) // of f
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

// claim returns the number of the step's run, whose lease must hold, and the stored result of the step. If there is none, it
// makes a row for it; whoever does the same waits until this transaction has ended.
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
