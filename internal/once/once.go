// Package once is like sync.Once, but its concurrent callers wait on a channel, not on a mutex. Under testing/synctest, the clock does not advance
// while a goroutine waits for a mutex. But the function that Once calls may need the clock to advance.
package once

import "sync"

// A Once calls one function. Its zero value is ready for use.
type Once struct {
	mu   sync.Mutex
	done chan struct{} // closed when the function has returned; nil until the first call of Do
}

// Do calls f if no call of Do came before. All later calls of Do wait until this f has returned, panicked or called Goexit, and call nothing.
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
