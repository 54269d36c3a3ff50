// Package once calls a function once, as sync.Once does, but lets concurrent callers wait on a channel. Concurrent callers of sync.Once wait for a
// mutex. Under testing/synctest, a goroutine that waits for a mutex keeps the clock from advancing, but the function may need the clock to advance.
package once

import "sync"

// A Once calls one function. Its zero value is ready for use.
type Once struct {
	mu   sync.Mutex
	done chan struct{} // closed when the function has returned; nil until it is called
}

// The first call of Do calls f. All other calls of Do wait until f has returned, panicked or called Goexit.
func (o *Once) Do(f func()) {
	o.mu.Lock()
	done := o.done
	if done == nil {
		o.done = make(chan struct{})
		defer close(o.done)
	}
	o.mu.Unlock()
	if done != nil {
		<-done
		return
	}
	f()
}
