package kahn

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// stateLock is the lock of a State. It counts the workers that yield to its holder before they block.
type stateLock struct {
	sync.Mutex
	yielding atomic.Int32
}

// yieldAndLock takes a lock that is taken: it yields for a while before it blocks, unless enough others do.
//
//go:noinline
func (mu *stateLock) yieldAndLock() { // not a part of its caller, which is inlined
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

// maxYielding is how many workers of a run yield at a time.
const maxYielding = 4
