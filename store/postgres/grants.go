package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-c794f7ef/kahn/store"
)

var _ store.GrantStore = (*Store)(nil)

const (
	// A Store removes expired limits at most once per grantsPause. It removes only limits that expired at least grantsPause ago.
	grantsPause = time.Minute
	// grantsTries is how many times Grant tries at most. It tries again if a limit has no row, because the limit is new or another process has
	// removed the row.
	grantsTries = 5
)

// errNoRow ends a transaction that has not found the rows of all its limits.
var errNoRow = errors.New("the row of a limit was removed meanwhile")

// Grant implements [store.GrantStore]. It locks the rows of the limits, in the order of their names. The locks last until the transaction ends.
func (s *Store) Grant(ctx context.Context, holder string, ttl time.Duration, requests []store.GrantRequest) (answers []store.Granted, err error) {
	if err := errors.Join(store.CheckGrants(holder, ttl, requests), s.check(ctx)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err = s.removeGrants(ctx); err == nil {
		for range grantsTries {
			if answers, err = s.grant(ctx, holder, ttl, requests); !errors.Is(err, errNoRow) {
				break
			}
			if _, failed := s.pool.Exec(ctx, s.sql("INSERT INTO $S.grants (name, expires, state) SELECT n.name, $NOW, '{}' FROM unnest($1::text[]) AS n(name) ON CONFLICT DO NOTHING"), limitsOf(requests)); failed != nil {
				err = failed
				break
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("grants for %q: %w", holder, describe(err))
	}
	return answers, nil
}

// limitsOf returns the names of limits, sorted.
func limitsOf(requests []store.GrantRequest) []string {
	names := make([]string, len(requests))
	for i := range requests {
		names[i] = requests[i].Limit
	}
	slices.Sort(names)
	return names
}

// removeGrants removes limits that expired a while ago, unless the last removal was less than grantsPause ago.
func (s *Store) removeGrants(ctx context.Context) error {
	now, last := time.Now().UnixNano(), s.removedGrants.Load()
	if now-last < int64(grantsPause) || !s.removedGrants.CompareAndSwap(last, now) {
		return nil
	}
	_, err := s.pool.Exec(ctx, s.sql(`DELETE FROM $S.grants WHERE name IN (
	SELECT name FROM $S.grants WHERE expires < $NOW - $1 * interval '1 microsecond' ORDER BY expires LIMIT 10000 FOR UPDATE SKIP LOCKED
)`), microseconds(grantsPause))
	return err
}

// The method `grant` makes one try of Grant, in one transaction.
func (s *Store) grant(ctx context.Context, holder string, ttl time.Duration, requests []store.GrantRequest) (answers []store.Granted, err error) {
	answers = make([]store.Granted, len(requests))
	if len(requests) == 0 {
		return answers, nil
	}
	err = pgx.BeginTxFunc(ctx, s.pool, s.begins(), func(tx pgx.Tx) error {
		limits, now, err := s.lockGrants(ctx, tx, requests)
		if err != nil {
			return err
		}
		var names []string
		var expires []pgtype.Timestamptz
		var states [][]byte
		for i, r := range requests {
			g := limits[r.Limit]
			answers[i] = g.Ask(now, holder, ttl, r)
			state, err := json.Marshal(g)
			if err != nil {
				return err
			}
			last := g.Expires()
			if last.Before(now) {
				last = now
			}
			names, expires, states = append(names, r.Limit), append(expires, instant(last)), append(states, state)
		}
		const text = "UPDATE $S.grants g SET expires = n.expires, state = n.state FROM unnest($1::text[], $2::timestamptz[], $3::bytea[]) AS n(name, expires, state) WHERE g.name = n.name"
		_, err = tx.Exec(ctx, s.sql(text), names, expires, states)
		return err
	})
	return answers, err
}

// lockGrants locks limits, and returns them with the time of the server. It returns errNoRow if a limit has no row.
func (s *Store) lockGrants(ctx context.Context, tx pgx.Tx, requests []store.GrantRequest) (limits map[string]*store.Grants, now time.Time, err error) {
	limits = make(map[string]*store.Grants, len(requests))
	const text = "SELECT g.name, g.state, $NOW FROM $S.grants g WHERE g.name = ANY ($1) ORDER BY g.name FOR UPDATE"
	err = rowsOf(ctx, tx, s.sql(text), []any{limitsOf(requests)}, func(rows pgx.Rows) error {
		var name string
		var state []byte
		var at pgtype.Timestamptz
		if err := rows.Scan(&name, &state, &at); err != nil {
			return err
		}
		if read := timeOf(at); read.After(now) {
			now = read
		}
		g := new(store.Grants)
		if err := json.Unmarshal(state, g); err != nil {
			return fmt.Errorf("%w: the grants of %q: %w", ErrDamaged, name, err)
		}
		limits[name] = g
		return nil
	})
	if err == nil && len(limits) < len(requests) {
		err = errNoRow
	}
	return limits, now, err
}
