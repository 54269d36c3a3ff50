package kahntest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
)

// StoreFault describes how one call of a [FakeStore] fails. The zero value lets the call succeed.
type StoreFault struct {
	// Delay is the time that passes before the call. If the context ends during this time, the call returns the context's error. In [InFakeTime] the
	// Delay takes no time.
	Delay time.Duration
	// Err is the error that the call returns.
	Err error
	// Applied means that the call takes effect although it returns Err, as if only the store's answer were lost.
	Applied bool
}

// FakeStore is a store in memory whose calls fail as a script says. Use it to test how a program handles a store that fails. With the zero value, no
// call fails. Several runs may use a FakeStore at once.
type FakeStore struct {
	store.Memory
	// Script maps the name of a method to the faults of the method's first call, its second call, and so on. Further calls have no faults. The methods
	// are Acquire, Renew, Release, Commit and Load. If Script contains any other name, every call of these methods fails with an error that lists them.
	Script map[string][]StoreFault

	mu    sync.Mutex
	calls map[string]int
}

// Calls returns how often a method was called.
func (s *FakeStore) Calls(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

var storeMethods = []string{"Acquire", "Renew", "Release", "Commit", "Load"}

// The method `do` performs a call with the fault that the script gives for this call.
func (s *FakeStore) do(ctx context.Context, method string, call func() error) error {
	for name := range s.Script {
		if !slices.Contains(storeMethods, name) {
			return fmt.Errorf("kahntest.FakeStore: the script has faults for %q, which is none of %s%s", name, strings.Join(storeMethods, ", "), instead(name, storeMethods))
		}
	}
	s.mu.Lock()
	if s.calls == nil {
		s.calls = map[string]int{}
	}
	n := s.calls[method]
	s.calls[method]++
	s.mu.Unlock()
	var f StoreFault
	if n < len(s.Script[method]) {
		f = s.Script[method][n]
	}
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if f.Err != nil && !f.Applied {
		return f.Err
	}
	if err := call(); err != nil {
		return err
	}
	return f.Err
}

// Acquire implements [store.Store].
func (s *FakeStore) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (lease store.Lease, r *store.Run, err error) {
	err = s.do(ctx, "Acquire", func() (err error) {
		lease, r, err = s.Memory.Acquire(ctx, run, owner, ttl)
		return err
	})
	if err != nil {
		return store.Lease{}, nil, err
	}
	return lease, r, nil
}

// Renew implements [store.Store].
func (s *FakeStore) Renew(ctx context.Context, lease store.Lease, ttl time.Duration) error {
	return s.do(ctx, "Renew", func() error { return s.Memory.Renew(ctx, lease, ttl) })
}

// Release implements [store.Store].
func (s *FakeStore) Release(ctx context.Context, lease store.Lease) error {
	return s.do(ctx, "Release", func() error { return s.Memory.Release(ctx, lease) })
}

// Commit implements [store.Store].
func (s *FakeStore) Commit(ctx context.Context, lease store.Lease, c store.Commit) (a store.Applied, err error) {
	err = s.do(ctx, "Commit", func() (err error) {
		a, err = s.Memory.Commit(ctx, lease, c)
		return err
	})
	if err != nil {
		return 0, err
	}
	return a, nil
}

// Load implements [store.Store].
func (s *FakeStore) Load(ctx context.Context, run string) (r *store.Run, err error) {
	err = s.do(ctx, "Load", func() (err error) {
		r, err = s.Memory.Load(ctx, run)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}
