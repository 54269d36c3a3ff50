package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

var errKilled = errors.New("the process was killed")

// sharer is the store as one process sees it. The process may be killed, or cut off from the store for a while.
type sharer struct {
	*store.Memory
	dead  atomic.Bool
	mu    sync.Mutex
	cut   chan struct{} // closed when the process is no longer cut off; nil if it is not cut off
	calls atomic.Int64  // calls of Grant
	fails atomic.Bool   // whether Grant fails

	latency time.Duration // total delay of a Grant
}

// sever cuts the process off from the store until mend is called.
func (p *sharer) sever() (mend func()) {
	cut := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cut = nil
		close(cut)
	}
}

// reach waits until the process is no longer cut off.
func (p *sharer) reach(ctx context.Context) error {
	p.mu.Lock()
	cut := p.cut
	p.mu.Unlock()
	if cut != nil {
		select {
		case <-cut:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if p.dead.Load() {
		return errKilled
	}
	return nil
}

func (p *sharer) Grant(ctx context.Context, holder string, ttl time.Duration, requests []store.GrantRequest) ([]store.Granted, error) {
	p.calls.Add(1)
	if p.fails.Load() {
		return nil, errKilled
	}
	if err := p.reach(ctx); err != nil {
		return nil, err
	}
	time.Sleep(p.latency)
	answers, err := p.Memory.Grant(ctx, holder, ttl, requests)
	time.Sleep(p.latency)
	return answers, err
}

func (p *sharer) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (store.Lease, *store.Run, error) {
	if err := p.reach(ctx); err != nil {
		return store.Lease{}, nil, err
	}
	return p.Memory.Acquire(ctx, run, owner, ttl)
}

func (p *sharer) AcquireTurn(ctx context.Context, run, owner string, ttl time.Duration, turn store.Turn) (store.Lease, *store.Run, error) {
	if err := p.reach(ctx); err != nil {
		return store.Lease{}, nil, err
	}
	return p.Memory.AcquireTurn(ctx, run, owner, ttl, turn)
}

func (p *sharer) Renew(ctx context.Context, l store.Lease, ttl time.Duration) error {
	if err := p.reach(ctx); err != nil {
		return err
	}
	return p.Memory.Renew(ctx, l, ttl)
}

func (p *sharer) Release(ctx context.Context, l store.Lease) error {
	if err := p.reach(ctx); err != nil {
		return err
	}
	return p.Memory.Release(ctx, l)
}

func (p *sharer) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if err := p.reach(ctx); err != nil {
		return 0, err
	}
	return p.Memory.Commit(ctx, l, c)
}

func (p *sharer) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	if err := p.reach(ctx); err != nil {
		return store.DuePage{}, err
	}
	return p.Memory.Due(ctx, q)
}

func (p *sharer) Announce(ctx context.Context, a store.Announcement) error {
	if err := p.reach(ctx); err != nil {
		return err
	}
	return p.Memory.Announce(ctx, a)
}

// gaugeOfKeys counts the running steps of each key, and of all keys together.
type gaugeOfKeys struct {
	mu        sync.Mutex
	now, most map[string]int
	runs      map[string]map[string]int // the number of running steps, by key and run
	calls     int
	starts    []time.Time
	above     func(key string, n int) // if not nil, called when a step begins, with the number of running steps of its key; the caller holds mu
}

func (g *gaugeOfKeys) add(key string, by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now == nil {
		g.now, g.most = map[string]int{}, map[string]int{}
	}
	for _, k := range []string{key, ""} {
		g.now[k] += by
		g.most[k] = max(g.most[k], g.now[k])
		if by > 0 && g.above != nil {
			g.above(k, g.now[k])
		}
	}
	if by > 0 {
		g.calls++
		g.starts = append(g.starts, time.Now())
	}
}

// run changes the number of running steps of a run and a key by the given amount.
func (g *gaugeOfKeys) run(key, run string, by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runs == nil {
		g.runs = map[string]map[string]int{}
	}
	of := g.runs[key]
	if of == nil {
		of = map[string]int{}
		g.runs[key] = of
	}
	if of[run] += by; of[run] == 0 {
		delete(of, run)
	}
	if by > 0 && g.above != nil {
		g.above(key, len(of))
	}
}

// step returns a step that takes d. A node's key is its id up to the first dash.
func (g *gaugeOfKeys) step(d time.Duration) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		key, _, _ := strings.Cut(s.ID(), "-")
		g.add(key, 1)
		defer g.add(key, -1)
		select {
		case <-time.After(d):
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// keyedFan returns a graph of n nodes for each key. Each node has a Timeout.
func keyedFan(n int, timeout time.Duration, keys ...string) *kahn.Graph {
	g := &kahn.Graph{Name: "fan"}
	for i := range n {
		for _, key := range keys {
			g.Add(kahn.Node{ID: fmt.Sprint(key, "-", i), Key: key, Timeout: timeout})
		}
	}
	return g
}

// others returns the holders of a limit in a store.
func others(t *testing.T, db store.GrantStore, limit string) []store.GrantHolder {
	t.Helper()
	answers, err := db.Grant(t.Context(), "looks", time.Millisecond, []store.GrantRequest{{Limit: limit, Most: 1}})
	require.NoError(t, err)
	return answers[0].Others
}

// TestSharedBounds: Runners of one store share limits, per key and in total. They use the whole limits, no node waits inside an attempt, and the
// Runners return every slot.
func TestSharedBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, m, begun := new(store.Memory), new(gaugeOfKeys), time.Now()
		var all sync.WaitGroup
		for range 3 {
			p := &sharer{Memory: db}
			rn := &kahn.Runner{Shared: &kahn.Shared{Store: p, Name: "n", KeyLimit: 2, Limit: 5}}
			all.Go(func() {
				res, err := rn.Execute(t.Context(), keyedFan(33, 100*time.Millisecond, "a", "b", "c"), m.step(20*time.Millisecond))
				require.NoError(t, err)
				require.Equal(t, kahn.RunCompleted, res.Status)
				require.NoError(t, rn.Shutdown(t.Context()))
				require.Less(t, p.calls.Load(), int64(200), "a call is about many nodes")
			})
		}
		all.Wait()
		require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2, "": 5}, m.most)
		require.Equal(t, 297, m.calls)
		require.Less(t, time.Since(begun), 2400*time.Millisecond, "297 steps of 20 ms, five at once, take 1.2 s")
		for _, limit := range []string{"n/all", "n/key/a", "n/key/b", "n/key/c"} {
			require.Empty(t, others(t, db, limit), limit)
		}
	})
}

// TestSharedReuse: the only Runner of a store keeps and reuses its slots. It calls the store at intervals, however many nodes it runs.
func TestSharedReuse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, m, begun := &sharer{Memory: new(store.Memory)}, new(gaugeOfKeys), time.Now()
		rn := &kahn.Runner{Shared: &kahn.Shared{Store: p, KeyLimit: 8}}
		_, err := rn.Execute(t.Context(), keyedFan(4000, 0, "a"), m.step(10*time.Millisecond))
		require.NoError(t, err)
		took := time.Since(begun)
		require.Less(t, took, 5500*time.Millisecond, "4000 steps of 10 ms, eight at once, take 5 s")
		require.NoError(t, rn.Shutdown(t.Context()))
		// While nodes wait, the Runner asks every 250 ms for more slots.
		require.LessOrEqual(t, p.calls.Load(), int64(took/(200*time.Millisecond))+12)
		require.Equal(t, 8, m.most["a"])
	})
}

// TestSharedTurns: two Runners take turns with one slot, even if one of them is always busy.
func TestSharedTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, m := new(store.Memory), new(gaugeOfKeys)
		at := make([]time.Duration, 2)
		begun := time.Now()
		var all sync.WaitGroup
		for i := range 2 {
			n := []int{1000, 20}[i]
			rn := &kahn.Runner{Shared: &kahn.Shared{Store: db, KeyLimit: 1}}
			all.Go(func() {
				time.Sleep(time.Duration(i) * 300 * time.Millisecond)
				_, err := rn.Execute(t.Context(), keyedFan(n, 100*time.Millisecond, "a"), m.step(20*time.Millisecond))
				require.NoError(t, err)
				at[i] = time.Since(begun)
			})
		}
		all.Wait()
		require.Less(t, at[1], 4*time.Second, "20 steps beside a Runner that is busy for 20 s: a turn takes a second")
		require.Less(t, at[0], 23*time.Second)
		require.Equal(t, 1, m.most["a"])
	})
}

// TestSharedNews: a Runner with one slot gets a second, free slot as soon as a node needs it. The Runner then soon learns that another Runner
// wants the slot.
func TestSharedNews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, m, own := new(store.Memory), new(gaugeOfKeys), new(gaugeOfKeys)
		a, b := &kahn.Runner{Shared: &kahn.Shared{Store: db, KeyLimit: 2}}, &kahn.Runner{Shared: &kahn.Shared{Store: db, KeyLimit: 2}}
		long, err := a.Start(t.Context(), keyedFan(1, 0, "a"), m.step(10*time.Second))
		require.NoError(t, err)
		time.Sleep(5 * time.Second) // without news the Runner calls the store rarely
		many, err := a.Start(t.Context(), keyedFan(100, 0, "a"), m.step(20*time.Millisecond))
		require.NoError(t, err)
		time.Sleep(50 * time.Millisecond)
		m.mu.Lock()
		most := m.most["a"]
		m.mu.Unlock()
		begun := time.Now()
		_, err = b.Execute(t.Context(), keyedFan(1, 0, "a"), own.step(10*time.Millisecond))
		require.NoError(t, err)
		require.Less(t, own.starts[0].Sub(begun), 350*time.Millisecond)
		for _, run := range []*kahn.Run{many, long} {
			_, err := run.Wait()
			require.NoError(t, err)
		}
		require.NoError(t, a.Shutdown(t.Context()))
		require.NoError(t, b.Shutdown(t.Context()))
		require.Equal(t, 2, most)
	})
}

// TestSharedBeyondItsPart: a Runner uses more slots than its part of the limit. While its steps run it calls the store at most twice a second,
// and the other Runner gets the first slot that becomes free.
func TestSharedBeyondItsPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, m, own := new(store.Memory), new(gaugeOfKeys), new(gaugeOfKeys)
		p := &sharer{Memory: db}
		a, b := &kahn.Runner{Shared: &kahn.Shared{Store: p, KeyLimit: 2}}, &kahn.Runner{Shared: &kahn.Shared{Store: db, KeyLimit: 2}}
		begun := time.Now()
		var runs []*kahn.Run
		for _, lasts := range []time.Duration{20 * time.Second, 40 * time.Second} {
			run, err := a.Start(t.Context(), keyedFan(1, 0, "a"), m.step(lasts))
			require.NoError(t, err)
			runs = append(runs, run)
		}
		time.Sleep(time.Second)
		_, err := b.Execute(t.Context(), keyedFan(1, 0, "a"), own.step(ms))
		require.NoError(t, err)
		require.Less(t, own.starts[0].Sub(begun), 20300*ms)
		require.Less(t, p.calls.Load(), int64(2*20+12))
		for _, run := range runs {
			_, err := run.Wait()
			require.NoError(t, err)
		}
		require.NoError(t, a.Shutdown(t.Context()))
		require.NoError(t, b.Shutdown(t.Context()))
	})
}

// TestSharedWait: while a node waits for a slot of another process, it has no attempt and its Timeout does not run. Why names the run that holds
// the slot, and waiting costs few calls. Cancel and Leave end the wait. The slots of a run that is cancelled, left or shut down are free at once.
func TestSharedWait(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"ends", "cancel", "leave", "shutdown"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, m := new(store.Memory), new(gaugeOfKeys)
				a, second := &kahn.Runner{Shared: &kahn.Shared{Store: db, KeyLimit: 1, Limit: 9}}, &sharer{Memory: db}
				b := &kahn.Runner{Shared: &kahn.Shared{Store: second, KeyLimit: 1, Limit: 9}}
				first, err := a.Start(t.Context(), keyedFan(1, 0, "acme"), m.step(20*time.Second), kahn.RunID("run-7"))
				require.NoError(t, err)
				time.Sleep(100 * time.Millisecond)
				run, err := b.Start(t.Context(), keyedFan(1, 200*time.Millisecond, "acme"), m.step(100*time.Millisecond))
				require.NoError(t, err)
				time.Sleep(10 * time.Second)
				y, err := run.Why("acme-0")
				require.NoError(t, err)
				require.Equal(t, kahn.WhySlot, y.Kind)
				require.Equal(t, kahn.Bound{Scope: kahn.BoundSharedKey, Name: "acme", Limit: 1, Used: 1}, y.Bound)
				require.Equal(t, "it waits for a slot of the key acme in all processes: 1 of 1, held by run run-7", y.String())
				n, _ := run.Node("acme-0")
				require.Equal(t, kahn.Ready, n.Status)
				require.Less(t, second.calls.Load(), int64(80))
				begun := time.Now()
				switch how {
				case "cancel":
					require.NoError(t, first.Cancel())
				case "leave":
					run.Leave()
					res, err := run.Wait()
					require.NoError(t, err)
					require.Equal(t, kahn.RunSuspended, res.Status)
					run, err = b.Start(t.Context(), keyedFan(1, 200*time.Millisecond, "acme"), m.step(100*time.Millisecond))
					require.NoError(t, err)
					_, _ = first.Cancel(), begun
				case "shutdown":
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
					defer cancel()
					require.Error(t, a.Shutdown(ctx))
				}
				res, err := run.Wait()
				require.NoError(t, err)
				require.Equal(t, kahn.RunCompleted, res.Status)
				node, _ := res.Node("acme-0")
				require.Equal(t, 1, node.Attempts)
				if how != "ends" {
					require.Less(t, time.Since(begun), time.Second)
				}
				require.Equal(t, 1, m.most["acme"])
				_, _ = first.Wait()
			})
		})
	}
}

// TestSharedRate: Runners share a rate, and return unused tokens.
func TestSharedRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, m, begun := new(store.Memory), new(gaugeOfKeys), time.Now()
		rate := kahn.Rate{Starts: 10, Per: time.Second, Burst: 5}
		var all sync.WaitGroup
		for i := range 3 {
			rn := &kahn.Runner{Shared: &kahn.Shared{Store: db, KeyRate: rate}}
			all.Go(func() {
				res, err := rn.Execute(t.Context(), keyedFan([]int{20, 20, 1}[i], 100*time.Millisecond, "a"), m.step(20*time.Millisecond))
				require.NoError(t, err)
				require.Equal(t, kahn.RunCompleted, res.Status)
				require.NoError(t, rn.Shutdown(t.Context()))
			})
		}
		all.Wait()
		require.Equal(t, 41, m.calls)
		slices.SortFunc(m.starts, time.Time.Compare)
		for i, at := range m.starts {
			require.GreaterOrEqual(t, at.Sub(begun), time.Duration(i-4)*100*time.Millisecond, "start %d", i)
		}
		require.Less(t, time.Since(begun), 4200*time.Millisecond, "41 tokens of which five are there at once take 3.6 s")
	})
}

// TestSharedStoreFails: while the store fails, nodes wait, the Runner reports the error at intervals, and no limit is exceeded. Then the nodes
// continue.
func TestSharedStoreFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, m := new(store.Memory), new(gaugeOfKeys)
		p := &sharer{Memory: db}
		var told []error
		rn := &kahn.Runner{Shared: &kahn.Shared{Store: p, KeyLimit: 2, OnError: func(err error) { told = append(told, err); panic("of OnError") }}}
		p.fails.Store(true)
		run, err := rn.Start(t.Context(), keyedFan(6, 0, "a"), m.step(time.Second))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, m.calls)
		require.NotEmpty(t, told)
		require.Less(t, len(told), 10)
		require.ErrorIs(t, told[0], kahn.ErrStore)
		require.ErrorIs(t, told[0], errKilled)
		p.fails.Store(false)
		res, err := run.Wait()
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
		require.Equal(t, map[string]int{"a": 2, "": 2}, m.most)
		// A slot that cannot be returned becomes free when its lease expires, and Shutdown does not wait for this.
		p.fails.Store(true)
		begun := time.Now()
		require.NoError(t, rn.Shutdown(t.Context()))
		require.Less(t, time.Since(begun), 5*time.Second)
	})
}

// TestSharedLeases: when the lease of a killed process expires, its slots become free. A process that is cut off from the store starts no step
// after its lease has expired.
func TestSharedLeases(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		t.Run(strconv.FormatBool(cut), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, m := new(store.Memory), new(gaugeOfKeys)
				p := &sharer{Memory: db}
				shared := func(s store.Store) *kahn.Shared {
					return &kahn.Shared{Store: s, KeyLimit: 3, Lease: 10 * time.Second, OnError: func(error) {}}
				}
				a, b := &kahn.Runner{Shared: shared(p)}, &kahn.Runner{Shared: shared(db)}
				first, err := a.Start(t.Context(), keyedFan(1500, 0, "a"), m.step(100*time.Millisecond))
				require.NoError(t, err)
				time.Sleep(time.Second)
				mend := p.sever()
				lost := time.Now()
				if !cut {
					p.dead.Store(true)
					mend()
				}
				own := new(gaugeOfKeys)
				run, err := b.Start(t.Context(), keyedFan(1, time.Second, "a"), own.step(10*time.Millisecond))
				require.NoError(t, err)
				_, err = run.Wait()
				require.NoError(t, err)
				require.Greater(t, own.starts[0].Sub(lost), 9*time.Second)
				require.Less(t, own.starts[0].Sub(lost), 11*time.Second)
				m.mu.Lock()
				calls := m.calls
				m.mu.Unlock()
				time.Sleep(10 * time.Second)
				require.Equal(t, calls, m.calls, "nothing begins without a grant")
				require.Less(t, m.starts[calls-1].Sub(lost), 10*time.Second)
				p.dead.Store(false)
				if cut {
					mend()
				}
				_, err = first.Wait()
				require.NoError(t, err)
				require.Equal(t, 3, m.most["a"])
			})
		})
	}
}

// TestSharedBadBounds: the first run and Serve return an error for invalid limits.
func TestSharedBadBounds(t *testing.T) {
	t.Parallel()
	db, g := new(store.Memory), new(kahn.Graph).Add(kahn.Node{ID: "a"})
	for want, s := range map[string]kahn.Shared{
		"Store is nil":                        {Limit: 1},
		"does not implement store.GrantStore": {Store: plainStore{db}, Limit: 1},
		"Limit -1 is negative":                {Store: db, Limit: -1, KeyLimit: 1},
		"KeyLimit -2 is negative":             {Store: db, KeyLimit: -2},
		"none of Limit, KeyLimit, Rate, KeyRate and Groups is set":               {Store: db},
		"Lease -1s is less than the minimum, 1s":                                 {Store: db, Limit: 1, Lease: -time.Second},
		"Lease 10ms is less than the minimum, 1s":                                {Store: db, Limit: 1, Lease: 10 * time.Millisecond},
		"Runner.Shared.Rate: bad value":                                          {Store: db, Rate: kahn.Rate{Starts: 1}},
		"Runner.Shared.KeyRate: bad value":                                       {Store: db, KeyRate: kahn.Rate{Starts: -1, Per: time.Second}},
		"group number 2 has no name":                                             {Store: db, Groups: []kahn.Group{{Name: "a", Limit: 1}, {Limit: 1}}},
		`group "a" is declared twice`:                                            {Store: db, Groups: []kahn.Group{{Name: "a", Limit: 1}, {Name: "a", Limit: 1}}},
		`group "a": Limit -1 is negative`:                                        {Store: db, Groups: []kahn.Group{{Name: "a", Limit: -1}}},
		`group "a": bad value`:                                                   {Store: db, Groups: []kahn.Group{{Name: "a", Rate: kahn.Rate{Per: time.Second}}}},
		`group "a": CancelOnFailure is for`:                                      {Store: db, Groups: []kahn.Group{{Name: "a", Limit: 1, CancelOnFailure: true}}},
		`group "a" has neither Limit nor Rate`:                                   {Store: db, Groups: []kahn.Group{{Name: "a"}}},
		`Name "a/b" contains a slash`:                                            {Store: db, Limit: 1, Name: "a/b"},
		`Name "a\x00" is not UTF-8, contains a NUL byte, or is longer than 200 `: {Store: db, Limit: 1, Name: "a\x00"},
		`Name "a\xff" is not UTF-8, contains a NUL byte, or is longer than 200 `: {Store: db, Limit: 1, Name: "a\xff"},
	} {
		rn := &kahn.Runner{Shared: &s}
		for range 2 {
			_, err := rn.Execute(t.Context(), g, nil)
			require.ErrorIs(t, err, kahn.ErrBadOption)
			require.ErrorContains(t, err, want)
		}
		err := rn.Serve(t.Context(), kahn.Service{Store: db, Workflows: []kahn.Workflow{{Graph: g}}})
		require.ErrorIs(t, err, kahn.ErrBadOption)
		require.ErrorContains(t, err, want)
		require.NoError(t, rn.Shutdown(t.Context()))
	}
}

// plainStore is a store that does not implement GrantStore.
type plainStore struct{ store.Store }

// TestSharedUnderKills: processes that serve a store are killed, or cut off for up to three lease durations. The limits of keys, of groups, of all
// steps, and of the runs of a key hold for all processes together. After the lease of a cut-off process has expired, its running steps may exceed
// a limit for one more lease duration. All runs end.
func TestSharedUnderKills(t *testing.T) {
	t.Parallel()
	worlds := uint64(6)
	if os.Getenv("KAHN_LONG") != "" {
		worlds = 1000
	}
	for seed := range worlds {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { sharedUnderKills(t, rand.New(rand.NewPCG(seed, 35))) })
		})
	}
}

func sharedUnderKills(t *testing.T, rnd *rand.Rand) {
	const lease = 10 * time.Second
	db, keys := new(store.Memory), []string{"a", "b", "c"}[:1+rnd.IntN(3)]
	keyLimit, limit := 1+rnd.IntN(3), 2+rnd.IntN(5)
	groupLimit, keyRuns := 1+rnd.IntN(2), 1+rnd.IntN(2)
	g := keyedFan(1+rnd.IntN(6), 0, keys...)
	inside := &kahn.Graph{Groups: []kahn.Group{{Name: "db"}}}
	for i := range rnd.IntN(4) {
		inside.Add(kahn.Node{ID: fmt.Sprint("db-", i), Groups: []string{"db"}})
	}
	g.Add(kahn.Node{ID: "sub", Sub: inside, After: []string{keys[0] + "-0"}[:rnd.IntN(2)]})
	_, err := g.Compile()
	require.NoError(t, err)
	var cuts [][2]time.Time // the begin and the end of each cut
	m := new(gaugeOfKeys)
	m.above = func(key string, n int) {
		most := keyLimit
		switch key {
		case "":
			most = limit
		case "db":
			most = groupLimit
		}
		if strings.HasPrefix(key, "runs ") {
			most = keyRuns
		}
		if n <= most {
			return
		}
		now := time.Now()
		for _, c := range cuts {
			if c[1].Sub(c[0]) >= lease*9/10 && now.Sub(c[0]) >= lease*9/10 && now.Sub(c[0]) <= 2*lease {
				return
			}
		}
		t.Errorf("%d steps of the key %q at once, of %d", n, key, most)
	}
	runs := 5 + rnd.IntN(20)
	for i := range runs {
		_, _, err := db.Create(t.Context(), store.NewRun{ID: fmt.Sprint("r", i), Spec: store.Spec{Workflow: "fan", Key: fmt.Sprint("runs ", i%3)}})
		require.NoError(t, err)
	}
	var zombies sync.WaitGroup
	begin := func() (p *sharer, kill func()) {
		p = &sharer{Memory: db, latency: time.Duration(rnd.IntN(100)) * time.Millisecond}
		ctx, die := context.WithCancelCause(t.Context())
		d := time.Duration(1+rnd.IntN(3000)) * time.Millisecond
		step := func(own context.Context, s *kahn.Step) (any, error) {
			if p.dead.Load() {
				return nil, errKilled
			}
			both, end := context.WithCancelCause(own)
			defer context.AfterFunc(ctx, func() { end(errKilled) })()
			number, _ := strconv.Atoi(strings.TrimPrefix(s.RunID(), "r"))
			m.run(fmt.Sprint("runs ", number%3), s.RunID(), 1)
			defer m.run(fmt.Sprint("runs ", number%3), s.RunID(), -1)
			return m.step(d)(both, s)
		}
		rn := &kahn.Runner{MaxRuns: 4, Options: []kahn.Option{kahn.Lease("", lease)},
			Shared: &kahn.Shared{Store: p, KeyLimit: keyLimit, Limit: limit, Groups: []kahn.Group{{Name: "db", Limit: groupLimit}}, Lease: lease, OnError: func(error) {}}}
		zombies.Go(func() {
			_ = rn.Serve(ctx, kahn.Service{Store: p, KeyRuns: keyRuns, Workflows: []kahn.Workflow{{Graph: g, Step: step}}, OnError: func(string, store.Queue, error) {}})
			over, cancel := context.WithCancel(context.Background())
			cancel()
			_ = rn.Shutdown(over)
		})
		return p, func() {
			p.dead.Store(true)
			die(errKilled)
		}
	}
	type life struct {
		*sharer
		kill  func()
		mend  time.Time
		mends func()
	}
	var lives []*life
	add := func() {
		p, kill := begin()
		lives = append(lives, &life{sharer: p, kill: kill})
	}
	for range 2 + rnd.IntN(3) {
		add()
	}
	open := func() int {
		n := 0
		counts, err := db.Count(t.Context(), store.Filter{})
		require.NoError(t, err)
		for _, c := range counts {
			if !c.Status.Terminal() {
				n += c.Runs
			}
		}
		return n
	}
	for begun := time.Now(); open() > 0; {
		if time.Since(begun) > 2*time.Hour {
			t.Errorf("%d of %d runs have not ended", open(), runs)
			break
		}
		time.Sleep(time.Duration(rnd.IntN(5000)) * time.Millisecond)
		x := lives[rnd.IntN(len(lives))]
		switch what := rnd.IntN(6); {
		case x.mends != nil:
			if time.Now().After(x.mend) {
				x.mends()
				x.mends = nil
			}
		case what == 0:
			x.kill()
			lives = slices.DeleteFunc(lives, func(o *life) bool { return o == x })
			add()
		case what == 1:
			d := time.Duration(rnd.Int64N(int64(3 * lease)))
			m.mu.Lock()
			cuts = append(cuts, [2]time.Time{time.Now(), time.Now().Add(d)})
			m.mu.Unlock()
			x.mend, x.mends = time.Now().Add(d), x.sever()
		}
	}
	for _, x := range lives {
		if x.mends != nil {
			x.mends()
		}
		x.kill()
	}
	zombies.Wait()
	time.Sleep(time.Minute) // grants are returned in the background; after a minute no call is in flight
	require.ElementsMatch(t, []int{0}, slices.Compact(slices.Sorted(maps.Values(m.now))), "no step is at work")
}
