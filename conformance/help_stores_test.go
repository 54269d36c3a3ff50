package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// This file has stores that count, record, refuse or lose writes, and functions that run graphs over them.

// journal is a store that records its commits.
type journal struct {
	store.Memory
	mu     sync.Mutex
	writes []store.Commit // the applied commits
}

func (j *journal) len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.writes)
}

func (j *journal) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	a, err := j.Memory.Commit(ctx, l, c)
	j.mu.Lock()
	defer j.mu.Unlock()
	if a == store.AppliedNow {
		j.writes = append(j.writes, c)
	}
	return a, err
}

// replay returns a store with only the first writes, as if the process had died after these writes.
func (j *journal) replay(t *testing.T, run string, writes int) *journal {
	t.Helper()
	copied := new(journal)
	lease, _, err := copied.Acquire(t.Context(), run, "replay", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	j.mu.Lock()
	list := slices.Clone(j.writes[:writes])
	j.mu.Unlock()
	for _, w := range list {
		a, err := copied.Commit(t.Context(), lease, w)
		if err != nil || a != store.AppliedNow {
			t.Fatalf("%+v: %v, %v", w, a, err)
		}
	}
	if err := copied.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	return copied
}

// eventStore is a store of events whose commits and renewals may fail.
type eventStore struct {
	store.Memory
	commit func(c store.Commit, apply func() error) error
	renew  func() error

	mu      sync.Mutex
	commits []store.Commit // the applied commits
}

func (s *eventStore) Commit(ctx context.Context, l store.Lease, c store.Commit) (applied store.Applied, err error) {
	apply := func() (err error) {
		if applied, err = s.Memory.Commit(ctx, l, c); applied == store.AppliedNow {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.commits = append(s.commits, c)
		}
		return err
	}
	if s.commit != nil {
		err = s.commit(c, apply)
	} else {
		err = apply()
	}
	return applied, err
}

func (s *eventStore) Renew(ctx context.Context, l store.Lease, ttl time.Duration) error {
	if s.renew != nil {
		if err := s.renew(); err != nil {
			return err
		}
	}
	return s.Memory.Renew(ctx, l, ttl)
}

// brokenStore is a store for which the test chooses the errors: one for each start in a commit, and one for the commit.
type brokenStore struct {
	store.Store
	start  func(store.Attempt) error
	commit func(store.Commit) error
}

func (b *brokenStore) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	for _, s := range c.Started {
		if b.start != nil {
			if err := b.start(s); err != nil {
				return 0, err
			}
		}
	}
	if b.commit != nil {
		if err := b.commit(c); err != nil {
			return 0, err
		}
	}
	return b.Store.Commit(ctx, l, c)
}

// endsOf reports whether a commit contains the end of an attempt of a node.
func endsOf(c store.Commit, node string) bool {
	return slices.ContainsFunc(c.Completed, func(a store.Attempt) bool { return a.Node == node })
}

var errDisk = errors.New("disk full")

// outage is a store that does not answer for some time.
type outage struct {
	*store.Memory
	from, to time.Time
	err      error
	all      bool // whether renewals of leases fail, too

	mu    sync.Mutex
	calls int // calls during the outage
}

func (o *outage) down() bool {
	now := time.Now()
	down := !now.Before(o.from) && now.Before(o.to)
	if down {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.calls++
	}
	return down
}

func (o *outage) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if o.down() {
		return 0, o.err
	}
	return o.Memory.Commit(ctx, l, c)
}

func (o *outage) Renew(ctx context.Context, l store.Lease, ttl time.Duration) error {
	if o.all && o.down() {
		return o.err
	}
	return o.Memory.Renew(ctx, l, ttl)
}

// storedEvents reads the whole stored log of a run.
func storedEvents(t testing.TB, s store.EventStore, run string) (events []kahn.Event) {
	t.Helper()
	for {
		page, err := store.ReadEvents(t.Context(), s, run, uint64(len(events)), 7)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return events
		}
		events = append(events, page...)
	}
}

// versionOf returns a graph whose first node has the given config.
func versionOf(config string, more ...kahn.Node) *kahn.Graph {
	g := &kahn.Graph{Name: "letter"}
	g.Add(kahn.Node{ID: "fetch"}, kahn.Node{ID: "draft", After: []string{"fetch"}, Config: config}, kahn.Node{ID: "check", After: []string{"draft"}},
		kahn.Node{ID: "ask", Kind: kahn.KindGate, After: []string{"check"}}, kahn.Node{ID: "send", After: []string{"ask"}})
	return g.Add(more...)
}

// post posts a signal for the run "r", as another process would.
func post(t testing.TB, db store.Inbox, gate string, value any) (id string) {
	t.Helper()
	q, err := kahn.PrepareSignal(gate, value)
	require.NoError(t, err)
	postRequest(t, db, q)
	return q.ID
}

func postRequest(t testing.TB, db store.Inbox, q store.Request) {
	t.Helper()
	posted, err := db.Post(context.Background(), "r", q)
	require.NoError(t, err)
	require.True(t, posted)
}

var cancelRun = store.Request{ID: "cancel", Kind: store.KindCancel, Actor: "ann", Comment: "enough"}

// became returns the status of a request for the run "r", and the reason if it was refused.
func became(t testing.TB, db store.Inbox, id string) (store.RequestStatus, string) {
	t.Helper()
	q, err := db.FindRequest(context.Background(), "r", id)
	require.NoError(t, err)
	return q.Status, q.Refused
}

// counted fails the test if a readiness counter of the ended run "r" has not reached its required value.
func counted(t *testing.T, s store.Store) {
	t.Helper()
	countedRun(t, s, "r")
}

func countedRun(t *testing.T, s store.Store, id string) {
	t.Helper()
	r, err := s.Load(t.Context(), id)
	require.NoError(t, err)
	require.True(t, r.Status.Terminal())
	for key, n := range r.Nodes {
		if n.Resolved != n.Required {
			t.Errorf("of %d predecessors of %s %d have resolved", n.Required, key, n.Resolved)
		}
	}
}

// served is a store that counts its calls, lets some fail, and records calls and reported errors in a diary.
type served struct {
	store.Memory
	fail func(call, run string) error // the caller holds s.mu

	mu    sync.Mutex
	diary []string
	dues  int
}

func (s *served) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.diary = append(s.diary, fmt.Sprintf(format, args...))
}

// take returns the entries of the diary since the last call.
func (s *served) take() (diary []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	diary, s.diary = s.diary, nil
	return diary
}

func (s *served) step(_ context.Context, step *kahn.Step) (any, error) {
	s.note("%s %s", step.RunID(), step.ID())
	return nil, nil
}

func (s *served) told(what string, q store.Queue, e error) {
	if what == "" {
		what = q.Workflow
	}
	for _, known := range []error{kahn.ErrUnclaimable, store.ErrOwnerInUse, kahn.ErrUnusable, kahn.ErrLeased, kahn.ErrStore} {
		if errors.Is(e, known) {
			s.note("told %s: %v", what, known)
			return
		}
	}
	s.note("told %v", e)
}

func (s *served) try(call, run string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail == nil {
		return nil
	}
	return s.fail(call, run)
}

func (s *served) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	s.mu.Lock()
	s.dues++
	s.mu.Unlock()
	if err := s.try("due", ""); err != nil {
		return store.DuePage{}, err
	}
	return s.Memory.Due(ctx, q)
}

func (s *served) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (store.Lease, *store.Run, error) {
	if err := s.try("acquire", run); err != nil {
		return store.Lease{}, nil, err
	}
	return s.Memory.Acquire(ctx, run, owner, ttl)
}

func (s *served) Announce(ctx context.Context, a store.Announcement) error {
	if err := s.try("announce", ""); err != nil {
		return err
	}
	return s.Memory.Announce(ctx, a)
}

// create creates runs of a graph.
func (s *served) create(t *testing.T, g *kahn.Graph, before time.Time, ids ...string) {
	t.Helper()
	for _, id := range ids {
		n, err := kahn.Prepare(g, kahn.RunID(id))
		require.NoError(t, err)
		n.NotBefore = before
		_, _, err = s.Create(t.Context(), n)
		require.NoError(t, err)
		time.Sleep(ms) // makes the order of creation unique
	}
}

// status returns the status of a run in the store.
func (s *served) status(t *testing.T, id string) kahn.RunStatus {
	t.Helper()
	r, err := s.Load(t.Context(), id)
	require.NoError(t, err)
	return r.Status
}

// service returns a Service that serves graphs over the store.
func (s *served) service(graphs ...*kahn.Graph) kahn.Service {
	x := kahn.Service{Store: s, OnError: s.told, Poll: 300 * time.Millisecond} // at the default interval an hour in a bubble would take 72,000 calls
	for _, g := range graphs {
		x.Workflows = append(x.Workflows, kahn.Workflow{Graph: g, Step: s.step})
	}
	return x
}

// serve calls Serve in the background. end shuts the Runner down and checks that Serve returns nil.
func serve(t *testing.T, rn *kahn.Runner, s kahn.Service) (end func()) {
	t.Helper()
	over := make(chan error, 1)
	go func() { over <- rn.Serve(t.Context(), s) }()
	synctest.Wait()
	return func() {
		t.Helper()
		require.NoError(t, rn.Shutdown(t.Context()))
		require.NoError(t, <-over)
	}
}

// try2 is try for a run that continues from a store, so its events begin in the middle.
func try2(t testing.TB, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) trial {
	t.Helper()
	rec := newRecorder()
	res, err := kahn.Execute(t.Context(), g, step, append(opts, kahn.OnEvent(rec.add))...)
	if res == nil {
		t.Fatal(err)
	}
	checkEvents(t, g, res, rec.all())
	return trial{res, t, err, rec.all()}
}

// mortal is the store of a process that dies. After the death, when dead is set, calls no longer reach the store.
type mortal struct {
	eternal
	dead atomic.Bool
}

func (s *mortal) alive() error {
	if s.dead.Load() {
		return kahn.ErrFenced
	}
	return nil
}

func (s *mortal) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if err := s.alive(); err != nil {
		return 0, err
	}
	return s.eternal.Commit(ctx, l, c)
}

func (s *mortal) Renew(ctx context.Context, l store.Lease, d time.Duration) error {
	return errors.Join(s.alive(), s.eternal.Renew(ctx, l, d))
}

func (s *mortal) Release(ctx context.Context, l store.Lease) error {
	if err := s.alive(); err != nil {
		return err
	}
	return s.eternal.Release(ctx, l)
}

type eternal interface {
	store.Inbox
	store.EventStore
}

// Prune fails if the test's fail function returns an error.
func (s *served) Prune(ctx context.Context, q store.PruneQuery) (store.Pruned, error) {
	if err := s.try("prune", ""); err != nil {
		return store.Pruned{}, err
	}
	return s.Memory.Prune(ctx, q)
}
