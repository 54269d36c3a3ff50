package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/store"
)

// The method `remember` stores the state of an acquired run in s.held.
func (s *Store) remember(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[r.lease.Run] = r
}

// The method `known` returns the remembered state of the run of a lease, or nil if no state was remembered under this lease.
func (s *Store) known(l store.Lease) *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.held[l.Run]; r != nil && r.lease == l {
		return r
	}
	return nil
}

// The method `forget` drops the state of a run that was remembered under a lease. The next commit loads the state again.
func (s *Store) forget(l store.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.held[l.Run]; r != nil && r.lease == l {
		delete(s.held, l.Run)
	}
}

// Load implements [store.Store].
func (s *Store) Load(ctx context.Context, id string) (*store.Run, error) {
	if err := s.check(ctx); err != nil {
		return nil, about("load", id, err)
	}
	stored, _, _, err := s.load(ctx, s.texts.load, id)
	if err != nil {
		return nil, about("load", id, err)
	}
	return stored, nil
}

// The method `load` reads a run in one statement, so the result is consistent. The result "held" says whether the run has a lease that has not
// expired.
func (s *Store) load(ctx context.Context, text, id string) (stored *store.Run, r *run, held bool, err error) {
	if !storable(id) {
		return nil, nil, false, store.ErrUnknownRun
	}
	err = s.do(ctx, text, []any{id}, func(rows pgx.Rows) error {
		var h head
		var n nodeRow
		var number, epoch, sequence int64
		var owner string
		var last *int64
		var record []byte
		if err := scan(rows, []any{&number, &owner, &epoch, &held, &sequence, &last, &record}, h.targets(), n.targets()); err != nil {
			return err
		}
		if stored == nil {
			if stored, err = h.run(); err != nil {
				return fmt.Errorf("%w: the run's row", err)
			}
			stored.Record, stored.Sequence, stored.LastEvent = record, uint64(sequence), idOf(last)
			r = newRun(number, store.Lease{Run: id, Owner: owner, Epoch: uint64(epoch)}, stored)
		}
		return r.read(&n, stored)
	})
	if err == nil && stored == nil {
		err = store.ErrUnknownRun
	}
	return stored, r, held, err
}

// The method `read` adds the node of a row to the run, unless the row has no node.
func (r *run) read(n *nodeRow, stored *store.Run) error {
	if n.node == nil {
		return nil
	}
	l, err := n.listed()
	if err != nil || r.nodes[l.Key] != nil || int(*n.node) != len(r.nodes) {
		return fmt.Errorf("%w: node %d, %s", ErrDamaged, *n.node, foreign.Quote(l.Key))
	}
	stored.Nodes[l.Key] = l.Node
	r.nodes[l.Key] = &node{State: l.State, number: *n.node}
	return nil
}

// The function `about` adds the name of the call and the run's id to an error.
func about(call, id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s run %s: %w", call, foreign.Quote(id), err)
}
