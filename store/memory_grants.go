package store

import (
	"context"
	"maps"
	"time"
)

var _ GrantStore = (*Memory)(nil)

// Grant implements [GrantStore].
func (m *Memory) Grant(ctx context.Context, holder string, ttl time.Duration, requests []GrantRequest) ([]Granted, error) {
	if err := CheckGrants(holder, ttl, requests); err != nil {
		return nil, err
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	now, answers := time.Now(), make([]Granted, len(requests))
	if m.grants == nil {
		m.grants = map[string]*Grants{}
	}
	for i, r := range requests {
		g := m.grants[r.Limit]
		if g == nil {
			g = new(Grants)
			m.grants[r.Limit] = g
		}
		if answers[i] = g.Ask(now, holder, ttl, r); !g.Expires().After(now) {
			delete(m.grants, r.Limit)
		}
	}
	if len(m.grants) >= 2*m.swept+64 {
		maps.DeleteFunc(m.grants, func(_ string, g *Grants) bool { return !g.Expires().After(now) })
		m.swept = len(m.grants)
	}
	return answers, nil
}
