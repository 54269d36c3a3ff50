package notify

import (
	"context"
	"sync"
	"time"
)

// Sighting is a name that Look has found. A [Poller] calls the watchers of a name when the version of the name has changed, or when the name has a
// new watcher.
type Sighting struct {
	Name    string
	Version uint64
}

// Question lists names that a call of Look must report even if they have not changed since the last call.
type Question struct {
	All   bool     // Look must report all names: a new watcher watches all names, or the last call failed, or Hurry was called
	Names []string // the names of new watchers
}

// Poller calls Look at intervals, and calls the watchers of each name whose version is new. [Poller.Tell] calls the watchers of a name at once.
// One goroutine polls as long as there are watchers. The fields must be set before the first call of Watch.
type Poller struct {
	// Every is the interval between calls of Look.
	Every time.Duration
	// Look returns the names that the parameter `asked` lists, and the names that have changed. If `asked` is empty and no name has changed, Look may
	// return no names, and true for `unchanged`. If Look returns an error, the Poller asks for all names in the next call.
	Look func(ctx context.Context, asked Question) (found []Sighting, unchanged bool, err error)
	// Rest, if not nil, is called when the polling ends: when the last watcher has left, or in Close. After the last watcher has left, a new watcher
	// starts the polling again.
	Rest func()

	watchers Watchers
	mu       sync.Mutex        // guards the fields below
	told     map[string]uint64 // the versions of the names in the latest result of Look, without the names that have a new watcher
	asked    Question          // for the next call of Look
	now      chan struct{}     // contains a value if the next call of Look is due
	stop     context.CancelFunc
	over     chan struct{} // closed when the latest polling goroutine has returned
	closed   bool
}

// Watch calls the function `tell` when the next call of Look finds the name, and whenever the version of the name has changed. An empty name means
// all names. The function `stop` ends the watch. When `stop` returns, a call of `tell` may still be running.
func (p *Poller) Watch(name string, tell func(name string)) (stop func()) {
	remove := p.watchers.Add(name, tell)
	p.mu.Lock()
	defer p.mu.Unlock()
	if name == "" {
		p.told, p.asked.All = nil, true
	} else {
		delete(p.told, name)
		p.asked.Names = append(p.asked.Names, name)
	}
	p.hurry()
	if p.stop == nil && !p.closed {
		ctx, cancel := context.WithCancel(context.Background())
		before := p.over
		p.stop, p.over = cancel, make(chan struct{})
		go p.look(ctx, before, p.over)
	}
	return sync.OnceFunc(func() {
		remove()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.watchers.Len() == 0 && p.stop != nil {
			p.stop()
			p.stop = nil
		}
	})
}

// The method `hurry` makes the next call of Look due. The caller holds p.mu.
func (p *Poller) hurry() {
	if p.now == nil {
		p.now = make(chan struct{}, 1)
	}
	select {
	case p.now <- struct{}{}:
	default:
	}
}

// Hurry makes the next call of Look due at once, for all names.
func (p *Poller) Hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked.All = true
	p.hurry()
}

// Tell calls the watchers of a name.
func (p *Poller) Tell(name string) { p.watchers.Tell(name) }

// Close ends the polling, and returns when the goroutine has returned.
func (p *Poller) Close() {
	p.mu.Lock()
	p.closed = true
	stop, over := p.stop, p.over
	p.stop = nil
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
	if over != nil {
		<-over
	}
}

// The method `look` polls until the context ends.
func (p *Poller) look(ctx context.Context, before <-chan struct{}, over chan<- struct{}) {
	defer close(over)
	if before != nil {
		<-before // wait until the previous goroutine has returned: only one goroutine at a time may use p.told
	}
	if p.Rest != nil {
		defer p.Rest()
	}
	timer := time.NewTimer(p.Every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-p.now:
		}
		for _, name := range p.news(ctx) {
			p.watchers.Tell(name)
		}
		timer.Reset(p.Every)
	}
}

// The method `news` calls Look, and returns the names with new versions.
func (p *Poller) news(ctx context.Context) (names []string) {
	p.mu.Lock()
	asked := p.asked
	p.asked = Question{}
	p.mu.Unlock()
	found, unchanged, err := p.Look(ctx, asked)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.asked.All = true
		return nil
	}
	if unchanged {
		return nil
	}
	told := make(map[string]uint64, len(found))
	for _, s := range found {
		if told[s.Name] = s.Version; p.told[s.Name] != s.Version {
			names = append(names, s.Name)
		}
	}
	p.told = told
	return names
}
