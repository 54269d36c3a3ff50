package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

func leaseExpires(ctx context.Context, s store.Store) error {
	first, _, err := s.Acquire(ctx, "r", "one", time.Millisecond)
	if err != nil {
		return err
	}
	second, err := takeOver(ctx, s, "two")
	if err != nil || second.Epoch <= first.Epoch {
		return fmt.Errorf("%+v after %+v, %w", second, first, err)
	}
	return nil
}

// leaseRead: a [store.LeaseReader] returns the owner and the end of a lease. If the lease was released or has expired, it returns no owner and the
// zero time.
func leaseRead(ctx context.Context, s store.Store) error {
	leases, ok := s.(store.LeaseReader)
	if !ok {
		return nil
	}
	if _, _, err := leases.ReadLease(ctx, "r"); !errors.Is(err, store.ErrUnknownRun) {
		return fmt.Errorf("the lease of a run that is not stored: %v", err)
	}
	before := time.Now()
	lease, _, err := s.Acquire(ctx, "r", "one", ttl)
	if err != nil {
		return err
	}
	owner, until, err := leases.ReadLease(ctx, "r")
	if err != nil || owner != "one" || until.Before(before.Add(ttl/2)) || until.After(before.Add(2*ttl)) {
		return fmt.Errorf("the lease of a run that is held: %q, until %v, %w", owner, until, err)
	}
	if err := s.Release(ctx, lease); err != nil {
		return err
	}
	if owner, until, err = leases.ReadLease(ctx, "r"); err != nil || owner != "" || !until.IsZero() {
		return fmt.Errorf("a lease that was released: %q, until %v, %w", owner, until, err)
	}
	if _, _, err = s.Acquire(ctx, "r", "two", time.Millisecond); err != nil {
		return err
	}
	time.Sleep(50 * time.Millisecond)
	if owner, until, err = leases.ReadLease(ctx, "r"); err != nil || owner != "" || !until.IsZero() {
		return fmt.Errorf("a lease that has run out: %q, until %v, %w", owner, until, err)
	}
	return nil
}

func leaseRenewed(ctx context.Context, s store.Store) error {
	lease, _, err := s.Acquire(ctx, "r", "one", time.Second)
	if err != nil {
		return err
	}
	if err := s.Renew(ctx, lease, ttl); err != nil {
		return err
	}
	time.Sleep(1100 * time.Millisecond)
	if _, _, err := s.Acquire(ctx, "r", "two", ttl); !errors.Is(err, store.ErrLeased) {
		return fmt.Errorf("a renewed lease was given to another: %v", err)
	}
	return nil
}

func leaseReleased(ctx context.Context, s store.Store) error {
	lease, _, err := s.Acquire(ctx, "r", "one", ttl)
	if err != nil {
		return err
	}
	for range 2 {
		if err := s.Release(ctx, lease); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	second, _, err := s.Acquire(ctx, "r", "two", ttl)
	if err != nil {
		return fmt.Errorf("after the release: %w", err)
	}
	if err := s.Release(ctx, lease); err != nil {
		return fmt.Errorf("release of an old lease: %w", err)
	}
	if err := s.Renew(ctx, second, ttl); err != nil {
		return fmt.Errorf("the release of an old lease released the new one: %w", err)
	}
	return nil
}

func oneOwner(ctx context.Context, s store.Store) error {
	first, _, err := s.Acquire(ctx, "r", "one", ttl)
	if err != nil {
		return err
	}
	if _, _, err = s.Acquire(ctx, "r", "two", ttl); !errors.Is(err, store.ErrLeased) {
		return fmt.Errorf("a second owner: %v", err)
	}
	again, _, err := s.Acquire(ctx, "r", "one", ttl)
	if err != nil || again.Epoch <= first.Epoch {
		return fmt.Errorf("the same owner again: %+v after %+v, %w", again, first, err)
	}
	return nil
}

// takeOver waits until the present lease of the run expires, and acquires the run for another owner.
func takeOver(ctx context.Context, s store.Store, owner string) (store.Lease, error) {
	for range 5000 {
		lease, _, err := s.Acquire(ctx, "r", owner, ttl)
		if !errors.Is(err, store.ErrLeased) {
			return lease, err
		}
		time.Sleep(time.Millisecond) // the clock of the server may be slower than the clock of this process
	}
	return store.Lease{}, errors.New("the lease does not run out")
}

func fenced(ctx context.Context, s store.Store) error {
	lease, err := begun(ctx, s, "r")
	if err != nil {
		return err
	}
	if err := s.Renew(ctx, lease, time.Millisecond); err != nil {
		return err
	}
	if _, err := takeOver(ctx, s, "other"); err != nil {
		return err
	}
	return unchanged(ctx, s, func() error {
		_, begin := s.Commit(ctx, lease, start(2, "a", 1))
		_, end := s.Commit(ctx, lease, store.Commit{Sequence: 2, Status: machine.RunFailed})
		return errors.Join(expectError("the start of an attempt", begin, store.ErrFenced), expectError("the end of the run", end, store.ErrFenced),
			expectError("Renew", s.Renew(ctx, lease, ttl), store.ErrFenced))
	})
}

// expired: an expired lease is invalid, even if no other owner has acquired the run.
func expired(ctx context.Context, s store.Store) error {
	lease, err := begun(ctx, s, "r")
	if err != nil {
		return err
	}
	if err := s.Renew(ctx, lease, time.Millisecond); err != nil {
		return err
	}
	time.Sleep(100 * time.Millisecond) // a store may round times to coarser units than milliseconds
	err = unchanged(ctx, s, func() error {
		_, begin := s.Commit(ctx, lease, start(2, "a", 1))
		_, end := s.Commit(ctx, lease, store.Commit{Sequence: 2, Status: machine.RunFailed})
		return errors.Join(expectError("the start of an attempt", begin, store.ErrFenced), expectError("the end of the run", end, store.ErrFenced),
			expectError("Renew", s.Renew(ctx, lease, ttl), store.ErrFenced))
	})
	if err != nil {
		return err
	}
	if err := s.Release(ctx, lease); err != nil {
		return fmt.Errorf("Release: %w", err)
	}
	_, _, err = s.Acquire(ctx, "r", "two", ttl)
	return err
}
