package reactive

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// patience is the time for which a call in a callback waits for a lock, since its own goroutine may hold this lock.
const patience = 100 * time.Millisecond

// The method `lock` takes the scope's lock for a call from outside callbacks. In a callback of the same scope, the call would wait for its own
// goroutine forever, so lock returns an error instead. But Go does not report which goroutine holds a lock. Therefore, if the caller's stack shows
// a callback of any scope, lock waits for at most the time `patience`, and then returns the error. If another goroutine holds the lock, the lock
// usually becomes free in this time.
func (sc *Scope) lock() error {
	if sc.mu.TryLock() {
		return nil
	}
	if !inCallback() {
		sc.mu.Lock()
		return nil
	}
	for waited, pause := time.Duration(0), 10*time.Microsecond; waited < patience; waited, pause = waited+pause, 2*pause {
		time.Sleep(pause)
		if sc.mu.TryLock() {
			return nil
		}
	}
	return fmt.Errorf("%w: a callback of the scope calls a function that waits for the callback; in a callback use Get, Peek or Try instead of Load, "+
		"Set instead of Store, and the Writer instead of the scope", ErrTracker)
}

// inCallback reports whether the goroutine is in a callback of any scope. It examines the stack. In a callback, the stack shows that this package
// called a function of another package, and that this function called this package.
func inCallback() bool {
	var (
		pcs     [64]uintptr
		outside bool
	)
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		if n == 0 {
			return false
		}
		frames := runtime.CallersFrames(pcs[:n])
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			within := strings.HasPrefix(f.Function, "github.com/seed-c794f7ef/kahn/reactive.")
			if within && outside {
				return true
			}
			outside = outside || !within
		}
		if n < len(pcs) {
			return false
		}
	}
}
