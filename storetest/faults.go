package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
)

// Fault describes the failure of one call of a store. The zero value is a call without a failure.
type Fault struct {
	// Latency is a delay before the call. If the context ends during the delay, the call has no effect and returns the context's error.
	Latency time.Duration
	// If Before is set, the call has no effect and returns ErrInjected.
	Before bool
	// If After is set and the call succeeds, it takes effect but returns ErrInjected, as if its answer was lost.
	After bool
}

// ErrInjected is the error of a call that fails because of Before or After.
var ErrInjected = errors.New("injected fault")

// WithFaults returns a store that calls s, and whose calls can fail. Before each call, the caller's goroutine calls the function "next" with the
// name of the method. The Fault that "next" returns says whether and how this call fails.
func WithFaults(s store.Store, next func(method string) Fault) store.Store { return &faulty{s, next} }

type faulty struct {
	store store.Store
	next  func(method string) Fault
}

// The method `do` gets a Fault from the function "next", and makes the call with this Fault.
func (f *faulty) do(ctx context.Context, method string, call func() error) error {
	fault := f.next(method)
	if fault.Latency > 0 {
		timer := time.NewTimer(fault.Latency)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if fault.Before {
		return ErrInjected
	}
	err := call()
	if fault.After && err == nil {
		return ErrInjected
	}
	return err
}

func (f *faulty) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (lease store.Lease, r *store.Run, err error) {
	err = f.do(ctx, "Acquire", func() (err error) {
		lease, r, err = f.store.Acquire(ctx, run, owner, ttl)
		return err
	})
	if err != nil {
		return store.Lease{}, nil, err
	}
	return lease, r, nil
}

func (f *faulty) Renew(ctx context.Context, lease store.Lease, ttl time.Duration) error {
	return f.do(ctx, "Renew", func() error { return f.store.Renew(ctx, lease, ttl) })
}

func (f *faulty) Release(ctx context.Context, lease store.Lease) error {
	return f.do(ctx, "Release", func() error { return f.store.Release(ctx, lease) })
}

func (f *faulty) Commit(ctx context.Context, lease store.Lease, c store.Commit) (a store.Applied, err error) {
	err = f.do(ctx, "Commit", func() (err error) {
		a, err = f.store.Commit(ctx, lease, c)
		return err
	})
	if err != nil {
		return 0, err
	}
	return a, nil
}

func (f *faulty) Load(ctx context.Context, run string) (r *store.Run, err error) {
	err = f.do(ctx, "Load", func() (err error) {
		r, err = f.store.Load(ctx, run)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}
