package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-c794f7ef/kahn/store"
)

// Pool is the pool that the store was opened with.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Schema is the name of the schema of the tables, see [Options].
func (s *Store) Schema() string { return s.schema }

// HeadTx reads a run in a transaction of the program's own: what [store.Admin].List returns of it, and its Inputs and its Sequence. A run that
// is not stored is an error that matches [store.ErrUnknownRun]; the transaction stays as it was.
func (s *Store) HeadTx(ctx context.Context, tx pgx.Tx, id string) (*store.Run, error) {
	if err := s.check(ctx); err != nil {
		return nil, about("read", id, err)
	}
	stored, _, _, _, err := s.head(ctx, tx, id)
	return stored, about("read", id, err)
}
