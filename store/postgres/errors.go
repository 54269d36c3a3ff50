package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-c794f7ef/kahn/store"
)

// Errors of a database, all of which match [store.ErrUnusable], too.
var (
	// ErrDamaged is the error of a run whose rows hold what this package has not written. Other runs may be sound.
	ErrDamaged = fmt.Errorf("%w: the stored data is damaged", store.ErrUnusable)
	// ErrSchema is the error of a database whose schema is missing or has a version that this package does not know.
	ErrSchema = fmt.Errorf("%w: unknown version of the schema", store.ErrUnusable)
	// ErrClosed is the error of a call of a store that was closed.
	ErrClosed = fmt.Errorf("%w: it is closed", store.ErrUnusable)
)

// lasting are what errors of PostgreSQL match that no repetition cures, by SQLSTATE or the class of it.
var lasting = []struct {
	code string
	err  error
}{
	{"0A", nil}, // a cached plan does not fit a migrated table any more: the next call makes another plan
	{"22", store.ErrRejected},
	{"54", store.ErrRejected}, // a limit of the program: a row that is too large
	{"25006", nil},            // a server that may only be read: the next connection may lead to one that may be written
	{"3D", fmt.Errorf("%w: there is no such database", store.ErrUnusable)},
	{"3F", fmt.Errorf("%w: the schema is missing", ErrSchema)},
	{"42P01", fmt.Errorf("%w: a table is missing", ErrSchema)},
	{"42703", fmt.Errorf("%w: a column is missing", ErrSchema)},
	{"42501", fmt.Errorf("%w: the role lacks a privilege", store.ErrUnusable)},
	{"42", store.ErrUnusable},
	{"XX001", ErrDamaged},
	{"XX002", ErrDamaged},
}

// describe says what an error of PostgreSQL means for a store.
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

// passing are the classes of SQLSTATE that say nothing about the statement: of connections, transactions that collide, resources, and
// servers that stop.
var passing = []string{"08", "25", "28", "40", "53", "55", "57", "58"}

// isVerdict reports whether the server has answered that it cannot execute the statement: nothing is written, and a part of the
// statement may be to blame for the others.
func isVerdict(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && !slices.ContainsFunc(passing, func(class string) bool { return strings.HasPrefix(answer.Code, class) })
}
