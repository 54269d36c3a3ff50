package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-c794f7ef/kahn/store"
)

// Pool returns the pool with which the store was opened.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Schema returns the name of the schema that contains the tables, see [Options].
func (s *Store) Schema() string { return s.schema }

// Head reads a run without Record and Nodes, within [Options].Timeout. The run has Inputs and Sequence, which [store.Admin].List leaves out. The
// error matches [store.ErrUnknownRun] if the run is not stored.
func (s *Store) Head(ctx context.Context, id string) (*store.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.readHead(ctx, s.pool, id)
}

// HeadTx does the same as Head, but in a transaction of the program and without a timeout. The transaction remains usable after an ErrUnknownRun.
func (s *Store) HeadTx(ctx context.Context, tx pgx.Tx, id string) (*store.Run, error) {
	return s.readHead(ctx, tx, id)
}

func (s *Store) readHead(ctx context.Context, db queryer, id string) (*store.Run, error) {
	if err := s.check(ctx); err != nil {
		return nil, about("read", id, err)
	}
	stored, _, _, _, err := s.head(ctx, db, id)
	return stored, about("read", id, err)
}
