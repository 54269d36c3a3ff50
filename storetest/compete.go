package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/seed-c794f7ef/kahn/store"
)

// compete calls f from several goroutines at once and returns the answers.
func compete[T any](f func(i int) T) []T {
	answers := make([]T, competitors)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = f(i) })
	}
	wg.Wait()
	return answers
}

func competingCommits(ctx context.Context, s store.Store) error {
	lease, err := begun(ctx, s, "r")
	if err != nil {
		return err
	}
	type answer struct {
		store.Applied
		error
	}
	answers := compete(func(i int) answer {
		a, err := s.Commit(ctx, lease, store.Commit{Sequence: 2, Readiness: []store.Readiness{{Node: "c", By: 1, Required: competitors}}})
		return answer{a, err}
	})
	applied := 0
	for _, a := range answers {
		if a.error != nil {
			return a.error
		}
		if a.Applied == store.AppliedNow {
			applied++
		}
	}
	if applied != 1 {
		return fmt.Errorf("%d of %d commits with one sequence number were applied", applied, competitors)
	}
	return expectNode(ctx, s, "r", "c", store.Node{State: store.State{Resolved: 1, Required: competitors}})
}

func competingOwners(ctx context.Context, s store.Store) error {
	answers := compete(func(i int) error {
		_, _, err := s.Acquire(ctx, "r", fmt.Sprint("owner ", i), ttl)
		return err
	})
	winners := slices.DeleteFunc(answers, func(err error) bool { return errors.Is(err, store.ErrLeased) })
	if len(winners) != 1 || winners[0] != nil {
		return fmt.Errorf("of %d owners these did not find the run leased: %v", competitors, winners)
	}
	return nil
}
