package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
)

var _ store.GrantStore = (*Store)(nil)

// grantsOver is how many expired limits one call of Grant removes at most. An expired limit has no holders.
const grantsOver = 100

// Grant implements [store.GrantStore]. The grants of a dead process become free when their leases run out.
func (s *Store) Grant(ctx context.Context, holder string, ttl time.Duration, requests []store.GrantRequest) (answers []store.Granted, err error) {
	if err := errors.Join(store.CheckGrants(holder, ttl, requests), ctx.Err()); err != nil {
		return nil, err
	}
	w := s.writer
	err = w.write(ctx, func() (err error) {
		answers, err = w.grant(s.now, holder, ttl, requests)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("grants for %q: %w", holder, err)
	}
	return answers, nil
}

// grant does what Grant does, within a transaction.
func (w *writer) grant(clock, holder string, ttl time.Duration, requests []store.GrantRequest) ([]store.Granted, error) {
	var now int64
	if err := w.in("SELECT "+clock, func(row []driver.Value) error { now, _ = row[0].(int64); return nil }); err != nil {
		return nil, err
	}
	err := w.in("DELETE FROM kahn_grants WHERE name IN (SELECT name FROM kahn_grants WHERE expires <= ? ORDER BY expires LIMIT ?)", nil, now, int64(grantsOver))
	answers := make([]store.Granted, len(requests))
	for i := range requests {
		if err != nil {
			return nil, err
		}
		answers[i], err = w.grantOf(now, holder, ttl, &requests[i])
	}
	return answers, err
}

// grantOf answers one request.
func (w *writer) grantOf(now int64, holder string, ttl time.Duration, r *store.GrantRequest) (a store.Granted, err error) {
	var g store.Grants
	there := false
	err = w.in("SELECT state FROM kahn_grants WHERE name = ?", func(row []driver.Value) error {
		there = true
		text, _ := row[0].(string)
		if err := json.Unmarshal([]byte(text), &g); err != nil {
			return fmt.Errorf("%w: the grants of %q: %w", ErrDamaged, r.Limit, err)
		}
		return nil
	}, r.Limit)
	if err != nil {
		return a, err
	}
	a = g.Ask(timeOf(now), holder, ttl, *r)
	expires := milli(g.Expires().Add(time.Millisecond - 1))
	switch {
	case expires > now:
		state, err := json.Marshal(&g)
		if err != nil {
			return a, err
		}
		return a, w.in("INSERT INTO kahn_grants (name, expires, state) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET expires = excluded.expires, state = excluded.state", nil, r.Limit, expires, string(state))
	case there:
		return a, w.in("DELETE FROM kahn_grants WHERE name = ?", nil, r.Limit)
	}
	return a, nil
}
