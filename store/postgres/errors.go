package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-c794f7ef/kahn/store"
)

// Errors of a database. All of them match [store.ErrUnusable], too.
var (
	// ErrDamaged is returned if the rows of a run contain data that this package has not written. Other runs may be intact.
	ErrDamaged = fmt.Errorf("%w: the stored data is damaged", store.ErrUnusable)
	// ErrSchema is returned if the schema of the database is missing or has a version that this package does not know.
	ErrSchema = fmt.Errorf("%w: unknown version of the schema", store.ErrUnusable)
	// ErrClosed is returned by calls of a store that was closed.
	ErrClosed = fmt.Errorf("%w: it is closed", store.ErrUnusable)
)

// The variable `lasting` maps SQLSTATEs and classes of SQLSTATEs to errors of the store; the first match applies. After one of these errors,
// repeating the call does not help. If the mapped error is nil, the store returns the error of the server, and repeating the call may help.
var lasting = []struct {
	code string
	err  error
}{
	{"0A", nil}, // a cached plan no longer fits a migrated table, but the next call makes a new plan
	{"22", store.ErrRejected},
	{"54", store.ErrRejected}, // a limit of the server, such as the size of a row
	{"25006", nil},            // a read-only server: the next connection may lead to a writable one
	{"3D", fmt.Errorf("%w: there is no such database", store.ErrUnusable)},
	{"3F", fmt.Errorf("%w: the schema is missing", ErrSchema)},
	{"42P01", fmt.Errorf("%w: a table is missing", ErrSchema)},
	{"42703", fmt.Errorf("%w: a column is missing", ErrSchema)},
	{"42501", fmt.Errorf("%w: the role lacks a privilege", store.ErrUnusable)},
	{"42", store.ErrUnusable},
	{"XX001", ErrDamaged},
	{"XX002", ErrDamaged},
}

// describe wraps an error of PostgreSQL in the error to which the variable `lasting` maps it, if there is one.
func describe(err error) error {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return err
	}
	for _, l := range lasting {
		if strings.HasPrefix(answer.Code, l.code) {
			if l.err == nil {
				return err
			}
			return fmt.Errorf("%w: %w", l.err, err)
		}
	}
	return err
}

// The variable `passing` lists the classes of SQLSTATE that say nothing about the statement itself: errors of connections, colliding transactions,
// missing resources, and servers that stop.
var passing = []string{"08", "25", "28", "40", "53", "55", "57", "58"}

// isVerdict reports whether the server has answered that it cannot execute the statement. If so, the server has written nothing, and the cause may
// be a single row or commit in the statement.
func isVerdict(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && !slices.ContainsFunc(passing, func(class string) bool { return strings.HasPrefix(answer.Code, class) })
}
