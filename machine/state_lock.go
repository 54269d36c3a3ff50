package machine

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Locked is a State whose lock the caller holds. With a Locked, a coordinator can do several things in one critical section. Of its methods, only
// Lock, TryLock, LockYielding and PublishSignals take the lock, and only PublishSignals runs effects. Any goroutine may call the methods of [State].
type Locked State

// The method `lock` takes the lock.
func (st *State) lock() *Locked {
	st.mu.Lock()
	return (*Locked)(st)
}

// Lock takes the lock.
func (s *Locked) Lock() { s.mu.Lock() }

// TryLock takes the lock if it is free.
func (s *Locked) TryLock() bool { return s.mu.TryLock() }

// Unlock releases the lock. It runs no effects: see SignalsDue.
func (s *Locked) Unlock() { s.mu.Unlock() }

// LockYielding takes a lock that another goroutine holds. Before it blocks, it calls runtime.Gosched several times, unless maxYielding other
// workers are already doing so.
func (s *Locked) LockYielding() { s.mu.yieldAndLock() }

// stateLock is the lock of a State. It counts the workers that yield to the holder of the lock before they block.
type stateLock struct {
	sync.Mutex
	yielding atomic.Int32
}

// yieldAndLock takes a lock that another goroutine holds. Before it blocks, it calls runtime.Gosched several times, unless maxYielding other
// workers are already doing so.
//
//go:noinline
func (mu *stateLock) yieldAndLock() { // not inlined, so that its caller can be inlined
	if mu.yielding.Add(1) <= maxYielding {
		for yields := 8; yields <= 128; yields *= 2 {
			for range yields {
				runtime.Gosched()
			}
			if mu.TryLock() {
				mu.yielding.Add(-1)
				return
			}
		}
	}
	mu.yielding.Add(-1)
	mu.Lock()
}

// maxYielding is the greatest number of workers of a run that yield at the same time.
const maxYielding = 4
