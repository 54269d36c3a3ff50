package notify

import (
	"slices"
	"sync"
)

// Watchers is a set of functions. Each function is called for one name or for all names. The zero value is ready for use.
type Watchers struct {
	mu    sync.Mutex
	names map[string][]*watcher // in the order of Add
	count int
}

type watcher struct{ tell func(name string) }

// Add registers the function `tell` for a name, or for all names if the name is empty. The function `stop` removes `tell`. When `stop` returns, a
// call of `tell` may still be running.
func (w *Watchers) Add(name string, tell func(name string)) (stop func()) {
	x := &watcher{tell}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.names == nil {
		w.names = map[string][]*watcher{}
	}
	w.names[name] = append(w.names[name], x)
	w.count++
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.count--
		rest := slices.DeleteFunc(w.names[name], func(y *watcher) bool { return x == y })
		if w.names[name] = rest; len(rest) == 0 {
			delete(w.names, name)
		}
	})
}

// Len returns the number of watchers.
func (w *Watchers) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// Tell calls the functions for a name and the functions for all names, on the caller's goroutine and without holding w.mu.
func (w *Watchers) Tell(name string) {
	for _, x := range w.of(name) {
		x.tell(name)
	}
}

func (w *Watchers) of(name string) []*watcher {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Concat(w.names[name], w.names[""])
}
