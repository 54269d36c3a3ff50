package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/seed-c794f7ef/kahn/store"
)

// Step is what [Once] needs of a step; *kahn.Step implements it.
type Step interface {
	RunID() string
	Epoch() uint64
	Path() string
	IdempotencyKey() string
}

// Once performs a part of a step: it calls f with a transaction of the store's database, in which f may change the program's own tables. The result
// of f is stored in the same transaction, under the step's idempotency key. If the step is called again, because it is retried or its process has
// died, Once returns the stored result and does not call f. So f's writes take effect exactly once, even if the process dies. A step has one stored
// result, so it should call Once only once.
//
// If f returns an error, Once rolls the transaction back and returns the error. If another process has taken over the run, f is not called and the
// error matches [store.ErrFenced]. The result is encoded as JSON; [store.Sealed] does not encrypt it. While f runs, commits of runs wait; a commit
// fails when it has waited for [Options].BusyTimeout. So f should do nothing but read and write the database.
func Once[T any](ctx context.Context, s *Store, step Step, f func(tx *sql.Tx) (T, error)) (result T, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return result, s.about("once", step.RunID(), s.closed(describe(err)))
	}
	defer func() {
		if undone := tx.Rollback(); undone != nil && !errors.Is(undone, sql.ErrTxDone) && err == nil {
			err = describe(undone)
		}
	}()
	run, kept, err := s.effect(ctx, tx, step)
	if err != nil {
		return result, s.about("once", step.RunID(), describe(err))
	}
	if kept != nil {
		if err := json.Unmarshal(kept, &result); err != nil {
			return result, fmt.Errorf("once %s: the stored result: %w", strconv.Quote(step.Path()), err)
		}
		return result, nil
	}
	if result, err = f(tx); err != nil {
		return result, err
	}
	data, err := json.Marshal(result)
	if err != nil {
		return result, fmt.Errorf("once %s: the result: %w", strconv.Quote(step.Path()), err)
	}
	if _, err = tx.ExecContext(ctx, "INSERT INTO kahn_effects VALUES (?, ?, ?)", run, step.IdempotencyKey(), string(data)); err == nil {
		err = tx.Commit()
	}
	return result, s.about("once", step.RunID(), describe(err))
}

// effect returns the number of the step's run, and the stored result of the step, nil if there is none. The error matches [store.ErrFenced] if the
// lease of the step's run is not valid any more.
func (s *Store) effect(ctx context.Context, tx *sql.Tx, step Step) (run int64, kept []byte, err error) {
	held := false
	err = tx.QueryRowContext(ctx, "SELECT run, epoch = ? AND owner <> '' AND expires > "+s.now+" FROM kahn_runs WHERE id = ?", int64(step.Epoch()), step.RunID()).Scan(&run, &held)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, nil, store.ErrUnknownRun
	case err != nil:
		return 0, nil, err
	case !held:
		return 0, nil, fmt.Errorf("%w: epoch %d", store.ErrFenced, step.Epoch())
	}
	err = tx.QueryRowContext(ctx, "SELECT result FROM kahn_effects WHERE run = ? AND key = ?", run, step.IdempotencyKey()).Scan(&kept)
	if errors.Is(err, sql.ErrNoRows) {
		return run, nil, nil
	}
	return run, kept, err
}
