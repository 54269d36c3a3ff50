package inspector

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/store"
)

// A shelf caches runs that were just loaded from the store, because a page asks for several parts of a run at once, and many pages ask for the same
// run repeatedly.
type shelf struct {
	mu    sync.Mutex
	loads map[string]*loading
}

// The type `loading` is a load of a run, in progress or done.
type loading struct {
	done chan struct{} // closed when the other fields are set
	run  *storedRun
	err  error
}

const (
	shelfTime = time.Second      // how long a loaded run is kept
	mostLoads = 8                // maximum number of runs that are kept
	loadTime  = 30 * time.Second // how long a load may wait for the store
)

// fromStore returns a run of the store. If another request is loading the run or has just loaded it, fromStore returns the result of that load.
// Otherwise it loads the run.
func (h *handler) fromStore(ctx context.Context, id string) (*storedRun, error) {
	s := &h.shelf
	s.mu.Lock()
	x := s.loads[id]
	if x == nil {
		x = &loading{done: make(chan struct{})}
		if s.loads == nil {
			s.loads = map[string]*loading{}
		}
		// If the shelf has mostLoads loads already, this load is not shared: each request loads the run for itself.
		if len(s.loads) < mostLoads {
			s.loads[id] = x
		}
		s.mu.Unlock()
		h.load(ctx, id, x)
		return x.run, x.err
	}
	s.mu.Unlock()
	select {
	case <-x.done:
		return x.run, x.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// The method `load` loads a run for all requests that wait for it. The argument ctx is the context of the first request. The end of ctx does not stop
// the load, because other requests may still wait for the run.
func (h *handler) load(ctx context.Context, id string, x *loading) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTime)
	defer cancel()
	x.err = errNoAnswer
	defer func() { // deferred, since a method of the store may end this goroutine
		close(x.done)
		time.AfterFunc(shelfTime, func() { h.shelf.forget(id, x) })
	}()
	err := foreign.Contain(func() (err error) {
		x.run, err = h.read(ctx, id)
		return err
	}, func(v any) error { return foreign.NewPanicError(v) })
	x.err = err
	if err != nil {
		x.err = h.storeFault(ctx, err)
	}
}

// The method `forget` removes a run from the shelf. But if x is not nil, and the shelf has another load of the run by now, forget does nothing.
func (s *shelf) forget(id string, x *loading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x == nil || s.loads[id] == x {
		delete(s.loads, id)
	}
}

// The method `changed` drops the cached data of a run, since an action may have changed the run.
func (h *handler) changed(id string) {
	h.shelf.forget(id, nil)
	h.waits.forget(id)
}

// The type `loaded` is a Store whose method Load returns a run that was loaded before.
type loaded struct {
	store.Store
	run *store.Run
}

// Load returns the run.
func (l loaded) Load(context.Context, string) (*store.Run, error) { return l.run, nil }

// The method `read` loads a run and decodes it. It also opens the events of the run, and reads the unserved queues and the run's place in the line.
func (h *handler) read(ctx context.Context, id string) (*storedRun, error) {
	s, err := h.glance(ctx, id)
	if events, ok := h.Store.(store.EventStore); ok && err == nil {
		s.events, err = store.OpenEvents(ctx, events, id)
	}
	if err == nil {
		s.unclaimable, err = h.unserved(ctx)
	}
	if err == nil {
		s.line, err = h.storedLineOf(ctx, s.row)
	}
	return s, err
}

// The interface `snapshots` is for a Store that returns the state of a run as a snapshot instead of records.
type snapshots interface {
	ReadSnapshot(ctx context.Context, run string) (*kahn.Snapshot, error)
}

// snapshotOf reads the state of a run; nil if the run has not begun.
func (h *handler) snapshotOf(ctx context.Context, row *store.Run) (*kahn.Snapshot, error) {
	if row.Sequence == 0 {
		return nil, nil
	}
	if s, ok := h.Store.(snapshots); ok {
		return s.ReadSnapshot(ctx, row.ID)
	}
	return kahn.ReadSnapshot(ctx, loaded{run: row}, row.ID)
}

// Clients get one of these errors in place of an error of the store.
var (
	errNoAnswer = &fault{Status: http.StatusBadGateway, Code: "store", Message: "the store has not answered"}
	errDamaged  = &fault{Status: http.StatusBadGateway, Code: "damaged", Message: "the stored run cannot be read"}
)

// storeFault returns the error that the client gets in place of an error of the store. It logs the store's error, unless this error matches
// kahn.ErrUnknownRun.
func (h *handler) storeFault(ctx context.Context, err error) error {
	if errors.Is(err, kahn.ErrUnknownRun) {
		return &fault{Status: http.StatusNotFound, Code: "unknown_run", Message: "the store has no such run"}
	}
	h.log().LogAttrs(ctx, slog.LevelError, "inspector", slog.String("store", text(err)))
	if errors.Is(err, kahn.ErrBadValue) {
		return errDamaged
	}
	return errNoAnswer
}
