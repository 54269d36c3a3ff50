package kahntest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// Process is one process in which [Crashes] performs the run. [Crashes] first uses a process that does not crash, and then pairs of processes: one
// process crashes, and the other continues the run.
type Process struct {
	restarted bool
	store     *dyingStore

	mu      sync.Mutex
	effects map[string][]string // the keys of each effect, in the order of the calls of Effect
}

// Restarted reports whether the process continues the run after a crash. If the steps use a fake of the outside world, such as a fake bank, make a
// new fake if Restarted returns false. If it returns true, use the same fake again.
func (p *Process) Restarted() bool { return p.restarted }

// Effect records an effect on the outside world, such as "charge order 7". The key, such as [kahn.Step.IdempotencyKey], lets the outside world
// recognize a repetition of the effect. Calls after the crash of the process are ignored.
func (p *Process) Effect(key, what string) {
	if p.store.isDead() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.effects[what] = append(p.effects[what], key)
}

// Post posts a request for the run, as if another process posted it. The crash of p does not undo the request. If the process that continues the run
// posts the same request again, nothing changes. After the crash of p, Post stores nothing and returns an error. Otherwise it returns the error of
// the method Post of [store.Inbox].
func (p *Process) Post(ctx context.Context, q store.Request) error {
	if p.store.isDead() {
		return errDead
	}
	_, err := p.store.Post(ctx, runID, q)
	return err
}

// Crashes tests that a workflow recovers. It first runs the workflow over a store without a crash. Then, for each write of that run, it runs the
// workflow twice more: in one run the process dies before the write, and in the other after it. Each time another process continues the run from the
// store. Crashes compares each of these runs with the run without a crash. It fails the test if the outcome of the run, of a node or of a request
// differs, if an effect happens under two keys, or if an effect is missing. If the run without a crash fails, the others must fail, too: Crashes logs
// the error. If it waits, for example at a gate, Crashes logs the names of the waiting nodes, and does not test the nodes after them.
//
// Crashes calls the function `start` for each process. This function must make a new graph and a new step function, so that nothing in memory
// survives the crash. The steps report their effects to the Process. opts are the options that the host passes to its runs, such as [kahn.Encoding]
// and [kahn.EarlySignals]. Crashes itself sets the store, the run's id and the owner. Steps should return the same outputs for the same inputs. At
// the crash the contexts of the running steps end, and the steps should then return soon. In [InFakeTime] backoffs take no time.
func Crashes(t testing.TB, start func(p *Process) (*kahn.Graph, kahn.StepFunc), opts ...kahn.Option) {
	t.Helper()
	crashes, base, err := checkCrashes(t.Context(), start, opts...)
	if err != nil {
		t.Error(err)
		return
	}
	t.Logf("%d crashes", crashes)
	if base.Err != nil {
		t.Logf("also without a crash: %v", base.Err)
	}
	if base.Status == kahn.RunSuspended {
		var nodes []string
		for _, w := range base.Waiting {
			nodes = append(nodes, strconv.Quote(w.Node))
		}
		t.Logf("nothing after %s is tested: the run waits there; the option EarlySignals answers", strings.Join(nodes, ", "))
	}
}

// CheckCrashes does the same as [Crashes] without a [testing.TB]. It returns the number of crashes, and an error that describes the first defects.
func CheckCrashes(ctx context.Context, start func(p *Process) (*kahn.Graph, kahn.StepFunc), opts ...kahn.Option) (crashes int, err error) {
	crashes, _, err = checkCrashes(ctx, start, opts...)
	return crashes, err
}

// checkCrashes does the same as CheckCrashes, and also returns the run without a crash.
func checkCrashes(ctx context.Context, start func(p *Process) (*kahn.Graph, kahn.StepFunc), opts ...kahn.Option) (crashes int, base Trial, err error) {
	if ctx == nil {
		return 0, base, kahn.ErrNoContext
	}
	c := &crasher{ctx: ctx, start: start, opts: opts}
	undisturbed := new(store.Memory)
	process, res, err := c.live(undisturbed, 0, false, false)
	if res == nil {
		return 0, base, fmt.Errorf("the run without a crash: %w", err)
	}
	base.Result, base.Err = res, err
	want := outcome{res: res, effects: process.effects}
	if err := repeated(want.effects); err != nil {
		return 0, base, fmt.Errorf("without a crash: %w", err)
	}
	if want.requests, err = requestsOf(ctx, undisturbed); err != nil {
		return 0, base, err
	}
	var errs []error
	for write := 1; len(errs) < 5; write++ {
		for _, applied := range []bool{false, true} {
			died, err := c.crash(write, applied, want)
			if died == "" {
				return crashes, base, errors.Join(errs...)
			}
			if crashes++; err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", died, err))
			}
		}
	}
	return crashes, base, errors.Join(errs...)
}

type crasher struct {
	ctx   context.Context
	start func(p *Process) (*kahn.Graph, kahn.StepFunc)
	opts  []kahn.Option
}

// The type `outcome` is the outcome of a run without a crash.
type outcome struct {
	res      *kahn.Result
	effects  map[string][]string            // as in Process
	requests map[string]store.RequestStatus // the final statuses of the requests, by id
}

// The method `crash` runs the workflow with a crash at one write, continues the run in a second process, and compares the outcome with `want`. The
// result `died` describes the crash. It is empty if the run ended before the write.
func (c *crasher) crash(write int, applied bool, want outcome) (died string, err error) {
	inner := new(store.Memory)
	first, _, _ := c.live(inner, write, applied, false)
	if !first.store.dead {
		return "", nil
	}
	died = first.store.died
	second, res, err := c.live(inner, 0, false, true)
	if errors.Is(err, kahn.ErrFinished) { // the run had ended: its last write was applied before the crash
		stored, err := inner.Load(c.ctx, runID)
		if err != nil {
			return died, fmt.Errorf("the run has ended and cannot be loaded: %w", err)
		}
		if stored.Status != want.res.Status {
			return died, fmt.Errorf("the run has ended as %v, expected %v", stored.Status, want.res.Status)
		}
	} else if res == nil {
		return died, fmt.Errorf("it does not continue: %w", err)
	} else if err := sameOutcome(res, want.res, ""); err != nil {
		return died, err
	}
	requests, err := requestsOf(c.ctx, inner)
	if err != nil {
		return died, err
	}
	if !maps.Equal(requests, want.requests) {
		return died, fmt.Errorf("the requests are %v, expected %v", requests, want.requests)
	}
	all := maps.Clone(first.effects)
	for what, keys := range second.effects {
		all[what] = append(slices.Clone(all[what]), keys...)
	}
	if err := repeated(all); err != nil {
		return died, err
	}
	for _, what := range slices.Sorted(maps.Keys(want.effects)) {
		if len(all[what]) == 0 {
			return died, fmt.Errorf("the effect %q is missing", what)
		}
	}
	return died, nil
}

const runID = "kahntest.Crashes"

// requestsOf returns the statuses of the run's requests.
func requestsOf(ctx context.Context, s *store.Memory) (map[string]store.RequestStatus, error) {
	list, err := s.LoadRequests(ctx, runID, 0, store.MaxPage)
	statuses := map[string]store.RequestStatus{}
	for _, q := range list {
		statuses[q.ID] = q.Status
	}
	return statuses, err
}

// The method `live` runs the workflow in one process. The process crashes at the write with the given number, counted from 1. If the number is 0, it
// does not crash.
func (c *crasher) live(inner *store.Memory, write int, applied, restarted bool) (*Process, *kahn.Result, error) {
	p := &Process{restarted: restarted, effects: map[string][]string{}}
	p.store = &dyingStore{Memory: inner, at: write, applied: applied}
	opts := append(slices.Clone(c.opts), kahn.Durable(p.store), kahn.RunID(runID), kahn.Lease(runID, 0))
	if stored, err := inner.Load(c.ctx, runID); err == nil && stored.Sequence > 0 {
		opts = append(opts, kahn.EarlySignals(nil)) // no early signals, since the store already contains the early signals of the first process
	}
	g, step := c.start(p)
	res, err := kahn.Execute(c.ctx, g, step, opts...)
	p.mu.Lock()
	defer p.mu.Unlock()
	effects := p.effects
	p.effects = map[string][]string{} // a step that has not returned yet may still call Effect: that effect does not count
	return &Process{restarted: restarted, store: p.store, effects: effects}, res, err
}

// The function `repeated` returns an error if an effect has two keys.
func repeated(effects map[string][]string) error {
	for _, what := range slices.Sorted(maps.Keys(effects)) {
		keys := effects[what]
		if i := slices.IndexFunc(keys, func(key string) bool { return key != keys[0] }); i > 0 {
			return fmt.Errorf("the effect %q is performed under the keys %q and %q", what, keys[0], keys[i])
		}
	}
	return nil
}

// sameValue compares two outputs, of which one may come from a store. Values of a type with a MarshalJSON method are equal if their JSON is equal,
// because an error in such a value loses its type in the store.
func sameValue(got, want any) bool {
	if reflect.DeepEqual(got, want) {
		return true
	}
	g, is := got.(json.Marshaler)
	w, alike := want.(json.Marshaler)
	if !is || !alike || reflect.TypeOf(got) != reflect.TypeOf(want) {
		return false
	}
	a, err := json.Marshal(g)
	b, errWanted := json.Marshal(w)
	return err == nil && errWanted == nil && bytes.Equal(a, b)
}

// sameOutcome compares the outcomes of two runs and of their nested runs. An expanded node that ended before the crash has no nested Result, so
// sameOutcome does not compare the nodes inside it.
func sameOutcome(got, want *kahn.Result, prefix string) error {
	if got.Status != want.Status || prefix == "" && !sameValue(got.Output(), want.Output()) {
		return fmt.Errorf("the run%s is %v with the output %v, expected %v with %v", of(prefix), got.Status, got.Output(), want.Status, want.Output())
	}
	for w := range want.Nodes() {
		g, _ := got.Node(w.ID)
		switch {
		case g.Status != w.Status || g.Skip != w.Skip || g.Cause.Kind != w.Cause.Kind:
			return fmt.Errorf("node %s is %s, expected %s", prefix+w.ID, shown(g), shown(w))
		case !sameValue(g.Output, w.Output):
			return fmt.Errorf("the output of node %s is %v, expected %v", prefix+w.ID, g.Output, w.Output)
		case g.Sub == nil || w.Sub == nil:
			continue
		}
		if err := sameOutcome(g.Sub, w.Sub, prefix+w.ID+"/"); err != nil {
			return err
		}
	}
	return nil
}

func of(prefix string) string {
	if prefix == "" {
		return ""
	}
	return " of " + strings.TrimSuffix(prefix, "/")
}

func shown(n kahn.NodeResult) string {
	switch {
	case n.Status == kahn.Skipped:
		return fmt.Sprintf("%v (%v)", n.Status, n.Skip)
	case n.Cause.Kind != kahn.CauseNone:
		return fmt.Sprintf("%v (%v)", n.Status, n.Cause.Kind)
	}
	return n.Status.String()
}

// dyingStore is the store of one process. After the process has died, Commit, Renew and Release have no effect.
type dyingStore struct {
	*store.Memory
	at      int  // the number of the write at which the process dies
	applied bool // whether the process dies after that write; if false, it dies before the write

	mu     sync.Mutex
	writes int
	dead   bool
	died   string
}

var errDead = fmt.Errorf("%w: the process has died", kahn.ErrUnusable)

func (s *dyingStore) isDead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

func (s *dyingStore) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return 0, errDead
	}
	if s.writes++; s.writes != s.at {
		return s.Memory.Commit(ctx, l, c)
	}
	when := "before"
	if s.applied {
		when = "after"
		if a, err := s.Memory.Commit(ctx, l, c); err != nil || a != store.AppliedNow {
			return a, err
		}
	}
	s.dead, s.died = true, fmt.Sprintf("a crash %s write %d (%s)", when, s.at, contents(c))
	return 0, errDead
}

// The function `contents` describes a write.
func contents(c store.Commit) string {
	var parts []string
	for what, list := range map[string][]store.Attempt{"end of ": c.Completed, "start of ": c.Started} {
		for _, a := range list {
			parts = append(parts, what+a.Node)
		}
	}
	slices.Sort(parts)
	if c.Status.Terminal() {
		parts = append(parts, "end of the run")
	}
	switch {
	case len(parts) == 0:
		return "no attempt begins or ends"
	case len(parts) > 4:
		parts = append(parts[:3], fmt.Sprintf("%d more", len(parts)-3))
	}
	return strings.Join(parts, ", ")
}

func (s *dyingStore) Renew(ctx context.Context, l store.Lease, ttl time.Duration) error {
	if s.isDead() {
		return errDead
	}
	return s.Memory.Renew(ctx, l, ttl)
}

func (s *dyingStore) Release(ctx context.Context, l store.Lease) error {
	if s.isDead() {
		return nil // a dead process does nothing
	}
	return s.Memory.Release(ctx, l)
}
