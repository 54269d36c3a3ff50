package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// A dying store is the store of a process that is about to die. Once the field "dead" is set, Commit, Renew and Release fail without reaching the
// inner store.
type dying struct {
	store.Store
	dead atomic.Bool
}

func (s *dying) alive() error {
	if s.dead.Load() {
		return fmt.Errorf("%w: the process has died", store.ErrUnusable)
	}
	return nil
}

func (s *dying) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if err := s.alive(); err != nil {
		return 0, err
	}
	return s.Store.Commit(ctx, l, c)
}

func (s *dying) Renew(ctx context.Context, l store.Lease, ttl time.Duration) error {
	if err := s.alive(); err != nil {
		return err
	}
	return s.Store.Renew(ctx, l, ttl)
}

func (s *dying) Release(ctx context.Context, l store.Lease) error {
	if err := s.alive(); err != nil {
		return err
	}
	return s.Store.Release(ctx, l)
}

// dyingInbox is a `dying` store whose inner store also takes requests.
type dyingInbox struct {
	*dying
	store.Inbox
}

func (s *dyingInbox) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (store.Lease, *store.Run, error) {
	return s.dying.Acquire(ctx, run, owner, ttl)
}

func (s *dyingInbox) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	return s.dying.Commit(ctx, l, c)
}

func (s *dyingInbox) Renew(ctx context.Context, l store.Lease, ttl time.Duration) error {
	return s.dying.Renew(ctx, l, ttl)
}

func (s *dyingInbox) Release(ctx context.Context, l store.Lease) error {
	return s.dying.Release(ctx, l)
}

func (s *dyingInbox) Load(ctx context.Context, run string) (*store.Run, error) {
	return s.dying.Load(ctx, run)
}

// The method `answered` performs the graph in many lives, and answers nodes at any depth by signals and by requests. Answers come between lives and
// during them. An answer may come while a step is called again in a new life, to return the graph of its node. A life ends by itself, by a leave,
// by a shutdown or by the death of the process. No node may ask again for an acknowledged answer, and the run must have the same outcome as without
// a store.
func (r *trial) answered(t *testing.T) {
	inner := r.open(t)
	inbox, _ := inner.(store.Inbox)
	answers := map[string]bool{} // by path: whether the answer was acknowledged
	posted := map[string]bool{}
	var acts []string
	said := func() string { return fmt.Sprintf("%s: %s", r.name, strings.Join(acts, ", ")) }
	did := func(what string, args ...any) { acts = append(acts, fmt.Sprintf(what, args...)) }
	for life := 1; ; life++ {
		if life > 300 {
			t.Fatalf("%s: the run does not get to its end", said())
		}
		did("life %d", life)
		waiting := r.unanswered(t, inner, answers, said)
		process := &dying{Store: inner}
		var mine store.Store = process
		if inbox != nil {
			mine = &dyingInbox{process, inbox}
		}
		if len(waiting) > 0 && inbox != nil && r.random.IntN(2) == 0 {
			path := waiting[r.random.IntN(len(waiting))]
			did("post %s", path)
			posted[path] = true
			r.post(t, inbox, path)
		}
		rn := new(kahn.Runner)
		var mu sync.Mutex
		var events []kahn.Event
		run, err := rn.Start(t.Context(), r.g, r.step, append(slices.Clone(r.opts), kahn.Durable(mine), kahn.RunID("r"), kahn.MaxCrashes(-1), kahn.OnEvent(func(e kahn.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		}))...)
		if err != nil {
			t.Fatalf("%s: %v", said(), err)
		}
		for range r.random.IntN(4) {
			pause := time.Duration(r.random.IntN(20+5*life)) * time.Millisecond // the pauses grow, so that late lives are long enough to end the run
			did("%v", pause)
			time.Sleep(pause)
			names := slices.Clone(waiting)
			for _, w := range run.Waiting() {
				names = append(names, w.Node)
			}
			if len(names) == 0 {
				continue
			}
			path := names[r.random.IntN(len(names))]
			if inbox != nil && r.random.IntN(2) == 0 {
				did("post %s", path)
				posted[path] = posted[path] || r.post(t, inbox, path)
				continue
			}
			if err := run.Signal(context.Background(), path, r.decision(path)); err == nil {
				did("signal %s", path)
				answers[path] = true
			}
		}
		switch kind := r.random.IntN(4); kind {
		case 0, 1:
			did("kill")
			process.dead.Store(kind == 0)
			if kind == 1 { // the process dies up to 2 ms later, maybe after further writes
				time.Sleep(time.Duration(r.random.IntN(3)) * time.Millisecond)
				process.dead.Store(true)
			}
			run.Leave()
		case 2:
			patience := time.Duration(r.random.IntN(20)) * time.Millisecond
			did("shut down, patience %v", patience)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			_ = rn.Shutdown(ctx) // an error means that ctx ended first
			cancel()
		default:
			did("leave")
			run.Leave()
		}
		res, err := run.Wait()
		switch {
		case process.dead.Load():
			time.Sleep(time.Minute) // the lease of the dead process expires
		case errors.Is(err, kahn.ErrStore) || len(res.Warnings) > 0:
			t.Errorf("%s: %v, warnings %v", said(), err, res.Warnings)
		}
		for path := range posted {
			if q, err := inbox.FindRequest(t.Context(), "r", path); err == nil && q.Status == store.RequestApplied {
				answers[path] = true
			}
		}
		stored, err := inner.Load(t.Context(), "r")
		if err == nil && stored.Status.Terminal() {
			if res.Status.Terminal() && !process.dead.Load() {
				r.compare(t, res)
				mu.Lock()
				err = r.check(r.g, res, events)
				mu.Unlock()
			} else if stored.Status != r.want.Status {
				err = fmt.Errorf("the run has ended as %v, expected %v", stored.Status, r.want.Status)
			}
		}
		if err != nil && !errors.Is(err, kahn.ErrUnknownRun) {
			t.Errorf("%s: %v", said(), err)
		}
		if t.Failed() {
			t.Log(said())
		}
		if t.Failed() || stored != nil && stored.Status.Terminal() {
			return
		}
	}
}

// decision returns the answer for a node. The answer is the same in every life.
func (r *trial) decision(path string) kahn.Decision {
	return kahn.Decision{Value: "answer to " + path, ID: path}
}

// The method `post` adds the answer of a node to the inbox, and reports whether the store has accepted the answer.
func (r *trial) post(t *testing.T, inbox store.Inbox, path string) bool {
	q, err := kahn.PrepareSignal(path, r.decision(path))
	if err == nil {
		_, err = inbox.Post(t.Context(), "r", q)
	}
	if err != nil && !errors.Is(err, store.ErrEnded) && !errors.Is(err, store.ErrUnknownRun) {
		t.Errorf("%s: %v", r.name, err)
	}
	return err == nil
}

// The method `unanswered` returns the paths of the nodes that wait according to the store. If a node waits although its answer was acknowledged,
// the answer was lost, and the method fails the test.
func (r *trial) unanswered(t *testing.T, s store.Store, answers map[string]bool, said func() string) []string {
	snapshot, err := kahn.ReadSnapshot(t.Context(), s, "r")
	if err != nil {
		return nil // the store has no run yet
	}
	waiting := snapshot.Waiting()
	for _, path := range waiting {
		if answers[path] {
			t.Errorf("%s: the answer for %s was acknowledged, and is lost", said(), path)
		}
	}
	return waiting
}
