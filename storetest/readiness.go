package storetest

import (
	"context"
	"errors"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

func readinessCounts(ctx context.Context, s store.Store) error {
	lease, err := completed(ctx, s)
	if err != nil {
		return err
	}
	got, err := s.Commit(ctx, lease, store.Commit{Sequence: 4, Readiness: []store.Readiness{{Node: "c", By: 1, Required: 2}, {Node: "d", By: 2, Required: 3}}})
	return errors.Join(expect("Commit", got, err, store.AppliedNow), expectNode(ctx, s, "r", "c", store.Node{State: store.State{Resolved: 2, Required: 2}}),
		expectNode(ctx, s, "r", "d", store.Node{State: store.State{Resolved: 2, Required: 3}}))
}

func overflow() store.Commit {
	return store.Commit{
		Sequence: 4, Run: record("changed"), Status: machine.RunFailed, Ready: []string{"d"}, Nodes: []store.NodeRecord{{Node: "d", Columns: data("new")}},
		Readiness: []store.Readiness{{Node: "d", By: 1, Required: 1}, {Node: "c", By: 1, Required: 2}, {Node: "e", By: 1, Required: 2}, {Node: "b", By: 1, Required: 1}},
	}
}

func readinessOverflow(ctx context.Context, s store.Store) error {
	lease, err := completed(ctx, s)
	if err != nil {
		return err
	}
	_, err = s.Commit(ctx, lease, overflow())
	if err := expectError("one predecessor more than there are", err, store.ErrReadinessOverflow); err != nil {
		return err
	}
	_, err = s.Commit(ctx, lease, store.Commit{Sequence: 4, Readiness: []store.Readiness{{Node: "c", By: 1, Required: 2}, {Node: "c", By: 1, Required: 2}}})
	return expectError("two in one commit", err, store.ErrReadinessOverflow)
}

func refusedCommit(ctx context.Context, s store.Store) error {
	lease, err := completed(ctx, s)
	if err != nil {
		return err
	}
	err = unchanged(ctx, s, func() error {
		if _, err := s.Commit(ctx, lease, overflow()); err == nil {
			return errors.New("the commit was not refused")
		}
		return nil
	})
	if err != nil {
		return err
	}
	fixed := overflow()
	fixed.Readiness = fixed.Readiness[:3]
	got, err := s.Commit(ctx, lease, fixed)
	return errors.Join(expect("the commit without its fault", got, err, store.AppliedNow), expectNode(ctx, s, "r", "e", store.Node{State: store.State{Resolved: 1, Required: 2}}))
}
