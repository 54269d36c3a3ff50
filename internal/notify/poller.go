package notify

import (
	"context"
	"sync"
	"time"
)

// Sighting is a name that a look has found. A [Poller] calls the watchers of a name once for each of its versions.
type Sighting struct {
	Name    string
	Version uint64
}

// Question is what a look is for, beside the names that have changed since the last one.
type Question struct {
	All   bool     // all names: it is the first look, or the last one has failed, or a watcher watches all names from now on
	Names []string // the names that are watched from now on
}

// Poller looks for names at intervals, and calls the watchers of each name whose version is new; [Poller.Tell] calls them at once. One goroutine
// looks as long as there are watchers. The fields are set before the first watcher comes.
type Poller struct {
	// Every is the time from one look to the next.
	Every time.Duration
	// Look returns the names that are to be reported, so far as it is asked for them. It may return others, too, and unchanged if it is asked for nothing
	// and nothing has changed. An error is followed by the next look, which is for all.
	Look func(ctx context.Context, asked Question) (found []Sighting, unchanged bool, err error)
	// Rest, if it is not nil, is called after the last look, when there are no watchers any more. The next look may follow.
	Rest func()

	watchers Watchers
	mu       sync.Mutex        // guards what follows
	told     map[string]uint64 // the versions of names that were found by the last look
	asked    Question          // what the next look is for
	now      chan struct{}     // has an element if the next look is due
	stop     context.CancelFunc
	over     chan struct{} // closed when the last goroutine that was started has returned
	closed   bool
}

// Watch calls tell when the next look finds the name, and whenever its version has changed; an empty name stands for all. stop ends the watch; a
// call may still be running then.
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

// hurry makes the next look due. The lock is held.
func (p *Poller) hurry() {
	if p.now == nil {
		p.now = make(chan struct{}, 1)
	}
	select {
	case p.now <- struct{}{}:
	default:
	}
}

// Hurry makes the next look due at once, for all names.
func (p *Poller) Hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked.All = true
	p.hurry()
}

// Tell calls the functions for a name.
func (p *Poller) Tell(name string) { p.watchers.Tell(name) }

// Close ends the looking, and waits for the goroutine.
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

// look looks until the context ends.
func (p *Poller) look(ctx context.Context, before <-chan struct{}, over chan<- struct{}) {
	defer close(over)
	if before != nil {
		<-before // two goroutines would not agree on what was reported
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

// news looks, and returns the names that have new versions.
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
