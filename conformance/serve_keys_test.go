package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// tenants is a store that counts the acquisitions of its runs.
type tenants struct {
	store.Memory
	plain, turns int
	mu           sync.Mutex
}

func (s *tenants) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (store.Lease, *store.Run, error) {
	s.mu.Lock()
	s.plain++
	s.mu.Unlock()
	return s.Memory.Acquire(ctx, run, owner, ttl)
}

func (s *tenants) AcquireTurn(ctx context.Context, run, owner string, ttl time.Duration, t store.Turn) (store.Lease, *store.Run, error) {
	s.mu.Lock()
	s.turns++
	s.mu.Unlock()
	return s.Memory.AcquireTurn(ctx, run, owner, ttl, t)
}

// create creates n runs with a key.
func (s *tenants) create(t *testing.T, g *kahn.Graph, key string, n int, opts ...kahn.Option) {
	t.Helper()
	for i := range n {
		r, err := kahn.Prepare(g, append(opts, kahn.RunID(fmt.Sprintf("%s-%03d", key, i)), kahn.RunKey(key))...)
		require.NoError(t, err)
		_, _, err = s.Create(t.Context(), r)
		require.NoError(t, err)
		time.Sleep(time.Millisecond) // makes the order of creation unique
	}
}

// gauge records which runs run at the same time.
type gauge struct {
	mu    sync.Mutex
	now   map[string]int
	most  map[string]int
	order []string
}

// step is a step that takes a second, and counts itself as running for the key with which the run's id begins.
func (g *gauge) step(ctx context.Context, s *kahn.Step) (any, error) {
	key, _, _ := strings.Cut(s.RunID(), "-")
	g.mu.Lock()
	if g.now == nil {
		g.now, g.most = map[string]int{}, map[string]int{}
	}
	g.order = append(g.order, s.RunID())
	g.now[key]++
	g.most[key] = max(g.most[key], g.now[key])
	g.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now[key]--
	return nil, nil
}

func oneStep(name string) *kahn.Graph {
	return (&kahn.Graph{Name: name}).Add(kahn.Node{ID: "a"})
}

// ended waits until all runs of the store have ended.
func (s *tenants) ended(t *testing.T) {
	t.Helper()
	for range 10_000 {
		counts, err := s.Count(t.Context(), store.Filter{Statuses: []kahn.RunStatus{kahn.RunPending, kahn.RunRunning, kahn.RunSuspended}})
		require.NoError(t, err)
		if len(counts) == 0 {
			return
		}
		time.Sleep(time.Second)
	}
	t.Fatal("the runs do not end")
}

// TestServeTurns: keys take turns. 200 runs of key a are due before the only run of key b, but this run begins after one run of key a. Runs with
// higher priorities begin before other runs of their key.
func TestServeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, g, m := new(tenants), oneStep("w"), new(gauge)
		db.create(t, g, "a", 200)
		db.create(t, g, "b", 1)
		db.create(t, g, "c", 3)
		n, err := kahn.Prepare(g, kahn.RunID("c-urgent"), kahn.RunKey("c"), kahn.RunPriority(1))
		require.NoError(t, err)
		_, _, err = db.Create(t.Context(), n)
		require.NoError(t, err)
		rn := &kahn.Runner{MaxRuns: 1}
		end := serve(t, rn, kahn.Service{Store: db, Workflows: []kahn.Workflow{{Graph: g, Step: m.step}}})
		db.ended(t)
		end()
		require.Equal(t, []string{"c-urgent", "a-000", "b-000", "c-000", "a-001", "c-001", "a-002", "c-002", "a-003", "a-004"}, m.order[:10])
		require.Len(t, m.order, 205)
		require.Zero(t, db.plain)
	})
}

// TestServeWithoutKeys: if no run has a key, the store records no turns of keys.
func TestServeWithoutKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, g, m := new(tenants), oneStep("w"), new(gauge)
		for i := range 5 {
			n, err := kahn.Prepare(g, kahn.RunID(fmt.Sprint(i)), kahn.RunPriority(i))
			require.NoError(t, err)
			_, _, err = db.Create(t.Context(), n)
			require.NoError(t, err)
		}
		end := serve(t, &kahn.Runner{MaxRuns: 1}, kahn.Service{Store: db, Workflows: []kahn.Workflow{{Graph: g, Step: m.step}}})
		db.ended(t)
		end()
		require.Equal(t, []string{"4", "3", "2", "1", "0"}, m.order)
		require.Equal(t, 5, db.plain)
		require.Zero(t, db.turns)
	})
}

// TestServeKeyRuns: two processes together perform exactly as many runs of a key as its limit allows. Runs of other keys, and runs without a
// key, can run beside them.
func TestServeKeyRuns(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		s    kahn.Service
		max  int // limit of the workflow w
		keys map[string]int
		want map[string]int
	}{
		"a number":             {kahn.Service{KeyRuns: 2}, 0, map[string]int{"a": 12, "b": 5, "": 6}, map[string]int{"a": 2, "b": 2, "": 6}},
		"a function":           {kahn.Service{KeyRuns: 1, KeyRunsOf: func(key string) int { return map[string]int{"a": 3, "b": 1}[key] }}, 0, map[string]int{"a": 12, "b": 5, "c": 4}, map[string]int{"a": 3, "b": 1, "c": 4}},
		"the workflow's own":   {kahn.Service{}, 3, map[string]int{"w": 12}, map[string]int{"w": 3}},
		"the lower one holds":  {kahn.Service{KeyRuns: 2}, 3, map[string]int{"w": 12}, map[string]int{"w": 2}},
		"the lower one of two": {kahn.Service{KeyRuns: 5}, 3, map[string]int{"w": 12}, map[string]int{"w": 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, g, m := new(tenants), oneStep("w"), new(gauge)
				for _, key := range slices.Sorted(mapKeys(row.keys)) {
					db.create(t, g, key, row.keys[key])
				}
				var ends []func()
				for range 2 {
					s := row.s
					s.Store, s.Workflows = db, []kahn.Workflow{{Graph: g, Step: m.step, MaxRuns: row.max}}
					ends = append(ends, serve(t, &kahn.Runner{}, s))
				}
				begun := time.Now()
				db.ended(t)
				for _, end := range ends {
					end()
				}
				require.Equal(t, row.want, m.most)
				longest := 0
				for key, n := range row.keys {
					require.Equal(t, n, count(m.order, key+"-"))
					longest = max(longest, (n+row.want[key]-1)/row.want[key])
				}
				// When a run ends, its process begins another run at once, or another process does so after half a second.
				require.LessOrEqual(t, time.Since(begun), time.Duration(longest)*1600*time.Millisecond+2*time.Second)
			})
		})
	}
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func count(ids []string, prefix string) (n int) {
	for _, id := range ids {
		if strings.HasPrefix(id, prefix) {
			n++
		}
	}
	return n
}

// TestServeKeyOfTheDead: runs of a dead process count against the limits of their keys until their leases expire. A run that comes to rest does
// not count any more.
func TestServeKeyOfTheDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, m := new(tenants), new(gauge)
		g := oneStep("w")
		sleeps := (&kahn.Graph{Name: "sleeps"}).Add(kahn.Node{ID: "gate", Kind: kahn.KindGate})
		db.create(t, g, "a", 3)
		n, err := kahn.Prepare(sleeps, kahn.RunID("rests"), kahn.RunKey("a"), kahn.RunPriority(9))
		require.NoError(t, err)
		_, _, err = db.Create(t.Context(), n)
		require.NoError(t, err)
		_, _, err = db.Acquire(t.Context(), "a-000", "dead", time.Minute)
		require.NoError(t, err)
		begun := time.Now()
		end := serve(t, &kahn.Runner{}, kahn.Service{Store: db, KeyRuns: 1, Workflows: []kahn.Workflow{{Graph: g, Step: m.step}, {Graph: sleeps}}})
		time.Sleep(59 * time.Second)
		require.Empty(t, m.order, "the key has one place, which the dead process has")
		for range 100 {
			if m.mu.Lock(); len(m.order) == 3 {
				m.mu.Unlock()
				break
			}
			m.mu.Unlock()
			time.Sleep(100 * time.Millisecond)
		}
		require.Less(t, time.Since(begun), 70*time.Second)
		require.Equal(t, map[string]int{"a": 1}, m.most)
		r, err := db.Load(t.Context(), "rests")
		require.NoError(t, err)
		require.Equal(t, kahn.RunSuspended, r.Status)
		end()
	})
}

// TestServeKeyRunsOfFails: if KeyRunsOf panics or returns an invalid number, Serve reports this, and performs the runs of the key one at a time.
func TestServeKeyRunsOfFails(t *testing.T) {
	t.Parallel()
	for _, of := range []func(string) int{func(string) int { panic("KeyRunsOf") }, func(string) int { return -1 }} {
		synctest.Test(t, func(t *testing.T) {
			db, g, m := new(tenants), oneStep("w"), new(gauge)
			db.create(t, g, "a", 3)
			var told []error
			end := serve(t, &kahn.Runner{}, kahn.Service{Store: db, KeyRunsOf: of, Workflows: []kahn.Workflow{{Graph: g, Step: m.step}}, OnError: func(_ string, _ store.Queue, err error) { told = append(told, err) }})
			db.ended(t)
			end()
			require.Len(t, told, 1)
			require.ErrorContains(t, told[0], `KeyRunsOf("a")`)
			require.Equal(t, map[string]int{"a": 1}, m.most)
		})
	}
}

// noTurns is a store that does not implement TurnStore.
type noTurns struct{ store.QueueStore }

// TestKeysRefused: invalid keys, priorities and limits are refused.
func TestKeysRefused(t *testing.T) {
	t.Parallel()
	g := oneStep("w")
	for want, o := range map[string]kahn.Option{
		"RunKey: bad value: the key":       kahn.RunKey(strings.Repeat("k", store.MaxKey+1)),
		"is not UTF-8":                     kahn.RunKey("\xff"),
		"the priority 101":                 kahn.RunPriority(101),
		"the priority -101":                kahn.RunPriority(-101),
		"are given by RunKey and RunPrior": kahn.Describe(store.Spec{Key: "a"}),
		"the Priority of a run are given":  kahn.Describe(store.Spec{Priority: 1}),
	} {
		_, err := kahn.Prepare(g, o)
		require.ErrorIs(t, err, kahn.ErrBadOption)
		require.ErrorContains(t, err, want)
	}
	one := []kahn.Workflow{{Graph: g, Step: func(context.Context, *kahn.Step) (any, error) { return nil, nil }}}
	keyed, urgent := one[0], one[0]
	keyed.Options, urgent.Options = []kahn.Option{kahn.RunKey("a")}, []kahn.Option{kahn.RunPriority(1)}
	for want, s := range map[string]kahn.Service{
		"KeyRuns -1 is negative":                    {Store: new(store.Memory), Workflows: one, KeyRuns: -1},
		"noTurns does not implement store.TurnStor": {Store: noTurns{new(store.Memory)}, Workflows: one, KeyRuns: 1},
		"RunKey or RunPriority, which changes":      {Store: new(store.Memory), Workflows: []kahn.Workflow{keyed}},
		"RunPriority, which changes nothing here":   {Store: new(store.Memory), Workflows: []kahn.Workflow{urgent}},
	} {
		err := new(kahn.Runner).Serve(t.Context(), s)
		require.ErrorIs(t, err, kahn.ErrBadOption)
		require.ErrorContains(t, err, want)
	}
}

// TestKeysOfLives: a run keeps its key and its priority in all lives, whichever process performs it. Options of a later life replace them.
func TestKeysOfLives(t *testing.T) {
	t.Parallel()
	g := (&kahn.Graph{Name: "w"}).Add(kahn.Node{ID: "gate", Kind: kahn.KindGate}, kahn.Node{ID: "b", In: []kahn.Edge{{From: "gate"}}})
	step := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	for _, created := range []bool{false, true} {
		db := new(store.Memory)
		opts := []kahn.Option{kahn.RunID("r"), kahn.RunKey("acme"), kahn.RunPriority(-3)}
		if created {
			n, err := kahn.Prepare(g, opts...)
			require.NoError(t, err)
			_, _, err = db.Create(t.Context(), n)
			require.NoError(t, err)
			opts = []kahn.Option{kahn.RunID("r")}
		}
		expect := func(key string, priority int) {
			t.Helper()
			r, err := db.Load(t.Context(), "r")
			require.NoError(t, err)
			require.Equal(t, []any{key, priority}, []any{r.Key, r.Priority})
		}
		for _, life := range []struct {
			more     []kahn.Option
			key      string
			priority int
		}{
			{opts, "acme", -3},
			{[]kahn.Option{kahn.Describe(store.Spec{Labels: map[string]string{"l": "1"}})}, "acme", -3},
			{[]kahn.Option{kahn.RunKey(""), kahn.RunPriority(0)}, "acme", -3},
			{[]kahn.Option{kahn.RunKey("other")}, "other", -3},
			{[]kahn.Option{kahn.EarlySignals(map[string]any{"gate": "yes"})}, "other", -3},
		} {
			_, err := kahn.Execute(t.Context(), g, step, append(life.more, kahn.RunID("r"), kahn.Durable(db))...)
			require.NoError(t, err)
			expect(life.key, life.priority)
		}
		_, err := kahn.Execute(t.Context(), g, step, kahn.Durable(db), kahn.RunID("r"), kahn.Redrive(nil, []string{"b"}))
		require.NoError(t, err)
		expect("other", -3)
	}
	// A run that is left before its first write also keeps its key and priority.
	synctest.Test(t, func(t *testing.T) {
		db := new(store.Memory)
		ctx, cancel := context.WithCancelCause(t.Context())
		rn := &kahn.Runner{MaxRuns: 1}
		first, err := rn.Start(t.Context(), g, step, kahn.Durable(db), kahn.RunID("first"))
		require.NoError(t, err)
		_ = first
		_, err = rn.Start(ctx, g, step, kahn.Durable(db), kahn.RunID("r"), kahn.RunKey("acme"), kahn.RunPriority(5))
		require.NoError(t, err)
		cancel(errors.New("over"))
		synctest.Wait()
		require.NoError(t, rn.Shutdown(t.Context()))
		r, err := db.Load(t.Context(), "r")
		require.NoError(t, err)
		require.Equal(t, []any{"acme", 5}, []any{r.Key, r.Priority})
	})
}
