package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
)

// Fault describes the failure of one call of a store. The zero value is a call without a failure.
type Fault struct {
	// Latency is a delay before the call. If the context ends meanwhile, the call returns the context's error.
	Latency time.Duration
	// If Before is set, the call has no effect and returns ErrInjected.
	Before bool
	// If After is set, the call takes effect, but returns ErrInjected, as if the answer was lost.
	After bool
}

// ErrInjected is returned by a call that fails because of a Fault.
var ErrInjected = errors.New("injected fault")

// WithFaults returns a store whose calls can fail. The store calls the function "next" with the name of a method before each call of the method. The
// result says whether and how this call fails. The caller's goroutine calls "next".
func WithFaults(s store.Store, next func(method string) Fault) store.Store { return &faulty{s, next} }

type faulty struct {
	store store.Store
	next  func(method string) Fault
}

// The function `do` makes a call with its fault.
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
