package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// file is a ledger in an SQLite file.
type file struct{ *sqlite.Store }

func openFile(dir string) (ledger, error) {
	s, err := sqlite.Open(filepath.Join(dir, "orders.db"), sqlite.Options{})
	if err != nil {
		return nil, err
	}
	if _, err := s.DB().Exec(fmt.Sprintf(tables, "INTEGER")); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return file{s}, nil
}

func (f file) note(ctx context.Context, life, run, step string) error {
	_, err := f.DB().ExecContext(ctx, "INSERT INTO calls VALUES (?, ?, ?)", life, run, step)
	return err
}

func (f file) pay(ctx context.Context, step *kahn.Step) (int64, error) {
	return sqlite.Once(ctx, f.Store, step, func(tx *sql.Tx) (int64, error) {
		result, err := tx.ExecContext(ctx, "INSERT INTO payments (paid_for) VALUES (?)", step.RunID())
		if err != nil {
			return 0, err
		}
		return result.LastInsertId()
	})
}

func (f file) column(ctx context.Context, query string) (list []string, err error) {
	rows, err := f.DB().QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, rows.Err()
}
