package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store/postgres"
)

// database is a ledger in a PostgreSQL schema.
type database struct{ *postgres.Store }

func openDatabase(ctx context.Context, p place) (d database, err error) {
	config, err := pgxpool.ParseConfig(p.url)
	if err != nil {
		return d, err
	}
	config.ConnConfig.RuntimeParams["search_path"] = p.schema // the shop's own tables are in this schema
	// Without this timeout, a process that is stopped in the middle of a payment would keep its transaction open, and block the process that takes
	// over the order.
	config.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "2s"
	// A performer may make payments for all its runs at the same moment. Each payment needs a connection. Commits and renewals of leases need
	// further connections.
	config.MaxConns = workerRuns + 4
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return d, err
	}
	if d.Store, err = postgres.Open(ctx, pool, postgres.Options{Schema: p.schema, Listen: p.url}); err != nil {
		pool.Close()
	}
	return d, err
}

func (d database) note(ctx context.Context, life, run, step string) error {
	_, err := d.Pool().Exec(ctx, "INSERT INTO calls VALUES ($1, $2, $3)", life, run, step)
	return err
}

func (d database) pay(ctx context.Context, step *kahn.Step) (int64, error) {
	return postgres.Once(ctx, d.Store, step, func(tx pgx.Tx) (number int64, err error) {
		err = tx.QueryRow(ctx, "INSERT INTO payments (paid_for) VALUES ($1) RETURNING number", step.RunID()).Scan(&number)
		return number, err
	})
}

func (d database) column(ctx context.Context, query string) ([]string, error) {
	rows, err := d.Pool().Query(ctx, query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Close closes the store and its pool.
func (d database) Close() error {
	defer d.Pool().Close()
	return d.Store.Close()
}
