// Package notify wakes goroutines of this process when something with a given name has changed.
package notify

import "sync"

// Board holds a channel for each name for which a goroutine waits. The zero value is ready for use.
type Board struct {
	mu    sync.Mutex
	names map[string]*entry
}

type entry struct {
	changed chan struct{}
	waiting int
}

// Wait returns a channel. The next call of Notify with the same name closes this channel. When the caller stops waiting, it must call the function
// `stop`.
func (b *Board) Wait(name string) (changed <-chan struct{}, stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.names == nil {
		b.names = map[string]*entry{}
	}
	e := b.names[name]
	if e == nil {
		e = &entry{changed: make(chan struct{})}
		b.names[name] = e
	}
	e.waiting++
	return e.changed, sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if e.waiting--; e.waiting == 0 && b.names[name] == e {
			delete(b.names, name)
		}
	})
}

// Notify wakes the goroutines that wait for a name.
func (b *Board) Notify(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.names[name]; e != nil {
		delete(b.names, name)
		close(e.changed)
	}
}
