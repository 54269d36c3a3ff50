package conformance_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestForkOracle forks random nested runs that have ended, were cancelled or were left, under the same graph or a later version. At every depth
// the fork calls exactly the nodes without a valid result, and its Result equals the Result of a new run. A fork that fails is forked again. With
// a store, the test also continues the fork after each of its writes, as after a crash.
func TestForkOracle(t *testing.T) {
	t.Parallel()
	versions := 0
	oracle(t, func(t *testing.T, seed uint64) (again, cuts int) {
		m := newMender(seed)
		again, cuts, more := m.forks(t, int(seed%3), fmt.Sprint("seed ", seed))
		versions += more
		return again, cuts
	})
	if t.Logf("%d times under a later version", versions); versions == 0 {
		t.Error("no fork has another graph")
	}
}

// TestAdoptOracle leaves random nested runs in a store, and lets several later versions of their graphs adopt them. At every depth nodes with a
// valid result are kept, all other nodes are called, and the Result equals the Result of a new run.
func TestAdoptOracle(t *testing.T) {
	t.Parallel()
	oracle(t, func(t *testing.T, seed uint64) (again, cuts int) {
		return newMender(seed).adopts(t, fmt.Sprint("seed ", seed))
	})
}

// oracle calls f for many seeds, and adds up the numbers of runs that f repeated and interrupted. It fails if either sum is less than half of the
// number of seeds.
func oracle(t *testing.T, f func(t *testing.T, seed uint64) (again, cuts int)) {
	t.Helper()
	again, cuts := 0, 0
	runs := size(25, 5, 2_000)
	for seed := range seeds(t, runs) {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Log("seed", seed)
				}
			}()
			a, c := f(t, seed)
			again, cuts = again+a, cuts+c
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d runs, repeated %d times, with %d cuts", runs, again, cuts)
	if again < runs/2 || cuts < runs/2 {
		t.Errorf("only %d repetitions and %d cuts of %d runs", again, cuts, runs)
	}
}

// changes makes a later version of the graph. It changes the Config or the predecessors of nodes, and removes and adds nodes. It returns the
// outermost nodes that are affected, also by a change inside.
func (m *mender) changes(r *rand.Rand) map[string]bool {
	old, changed, gone, follows := m.g, map[string]bool{}, map[string]bool{}, map[string]bool{}
	edges := old.Edges()
	for _, e := range edges {
		follows[e.From] = true
	}
	m.versions++
	other := fmt.Sprint("version ", m.versions)
	m.g = &kahn.Graph{Groups: old.Groups}
	nodes := old.Nodes()
	for i := range nodes {
		n := &nodes[i]
		for _, e := range edges {
			if e.To != n.ID || gone[e.From] {
				continue
			}
			if r.IntN(12) == 0 {
				changed[n.ID] = true
				continue
			}
			n.After = append(n.After, e.From)
		}
		switch r.IntN(12) {
		case 0:
			changed[n.ID], n.Config = true, other
		case 1:
			if n.Sub != nil {
				changed[n.ID], n.Sub = true, withConfig(n.Sub, other)
			}
		case 2:
			if gone[n.ID] = !follows[n.ID] && len(nodes) > 1 && n.Kind != kahn.KindEnd; gone[n.ID] {
				continue
			}
		}
		m.g.Add(*n)
	}
	if r.IntN(3) == 0 {
		m.ids++
		n := kahn.Node{ID: fmt.Sprint("n", m.ids)}
		if len(nodes) > 0 && !gone[nodes[0].ID] && r.IntN(2) == 0 {
			n.After = []string{nodes[0].ID}
		}
		m.g.Add(n)
	}
	return changed
}

// withConfig returns a graph whose first node has another Config.
func withConfig(g *kahn.Graph, config string) *kahn.Graph {
	nodes := g.Nodes()
	nodes[0].Config = config
	return (&kahn.Graph{Groups: g.Groups}).Add(nodes...).Connect(g.Edges()...)
}

// named draws nodes to repeat from the entries of list that the graph still has.
func (m *mender) named(r *rand.Rand, list []string) (names []string) {
	if r.IntN(2) == 0 || len(list) == 0 {
		return nil
	}
	p, err := m.g.Compile()
	if err != nil {
		return nil
	}
	for range 1 + r.IntN(2) {
		name := list[r.IntN(len(list))]
		top, _, _ := strings.Cut(strings.NewReplacer("[", "/", "#", "/").Replace(name), "/")
		if _, ok := p.Ref(top); ok {
			names = append(names, name)
		}
	}
	return names
}

// holds compares a life with a new run: the life must make the same calls, except for kept nodes, and must have the same Result. exact reports
// whether the calls had to be equal.
func (m *mender) holds(t *testing.T, name string, k kept, failed map[string]bool, fails func(string) bool, before, next *kahn.Result, called map[string]int) (exact bool) {
	t.Helper()
	want, expected := m.run(t, cutShort{}, func(path string) bool {
		if k.has(path) {
			return failed[path]
		}
		return fails(path)
	})
	maps.DeleteFunc(expected, func(path string, _ int) bool { return k.has(path) })
	exact = true
	if m.stops || m.retries { // a failure may have stopped other nodes, or a composite around it was attempted again
		for path := range called {
			exact = exact && !fails(path)
		}
		for path, bad := range failed {
			exact = exact && !(bad && k.has(path))
		}
		exact = exact && !m.anyNode(t, before, func(n kahn.SnapshotNode) bool {
			return k.has(n.ID) && n.Status != kahn.Failed && ranBadly(n.NodeResult)
		})
	}
	if exact && !maps.Equal(called, expected) {
		t.Errorf("%s: called\n%v, expected\n%v, kept %v", name, called, expected, slices.Sorted(maps.Keys(k)))
	}
	if err := same(next, want, ""); err != nil && exact {
		t.Errorf("%s: %v", name, err)
	}
	for path := range called {
		if k.has(path) && exact {
			t.Errorf("%s: %s was called, and is kept", name, path)
		}
	}
	return exact
}

// previewed compares the list of a preview with the kept nodes and the calls.
func previewed(t *testing.T, name string, list []string, k kept, called map[string]int) {
	t.Helper()
	again := kept{}
	for _, path := range list {
		if again[path] = true; k.has(path) {
			t.Errorf("%s: the preview has %s, which is kept", name, path)
		}
	}
	for path := range called {
		if !again.has(path) {
			t.Errorf("%s: %s was called, and the preview has only %v", name, path, list)
		}
	}
}

// counts checks the counters of a run that continued after a crash. If a stop precedes the return of a step with its graph, the records of the
// nodes inside are unchanged.
func (m *mender) counts(t *testing.T, s store.Store, id string) {
	t.Helper()
	if !m.stops || len(m.expands) == 0 {
		countedRun(t, s, id)
	}
}

func (m *mender) forks(t *testing.T, where int, name string) (again, cuts, versions int) {
	db := new(journal)
	stored := func(s store.Store, id string) []kahn.Option {
		if where != 2 {
			return nil
		}
		return []kahn.Option{kahn.Durable(s), kahn.RunID(id)}
	}
	r := rand.New(rand.NewPCG(m.seed, 35))
	m.end.leave = r.IntN(2) == 0
	res, calls := m.run(t, m.end, func(path string) bool { return m.broken(path, 0) }, stored(db, "run 0")...)
	failed := map[string]bool{}
	for round := 1; round <= 3; round++ {
		m.stands(t, res)
		for path := range calls {
			failed[path] = m.broken(path, round-1)
		}
		old := fmt.Sprint("run ", round-1)
		s := res.Snapshot()
		switch where {
		case 1:
			s = reload(t, s)
		case 2:
			var err error
			s, err = kahn.ReadSnapshot(t.Context(), db, old)
			require.NoError(t, err)
		}
		m.frozen(t, s)
		if where == 2 { // for a kept expanded node the store of a fork contains only the result
			maps.DeleteFunc(m.inner, func(path string, _ *kahn.Result) bool { return calls[path] == 0 })
		}
		sel := selection{failed: true, strict: true, fork: true, anew: r.IntN(4) == 0}
		m.notes(m.g, res, "")
		list := m.paths(nil, m.g, res, "", false)
		if r.IntN(2) == 0 {
			sel.changed = m.changes(r)
			versions++
		}
		sel.names = m.named(r, list)
		name := fmt.Sprintf("%s, round %d of %d, %v, changed %v", name, round, where, sel, slices.Sorted(maps.Keys(sel.changed)))
		k := kept{}
		m.keeps(k, m.g, res, "", sel)
		var more []kahn.Option
		if sel.anew {
			more = append(more, kahn.Anew)
		}
		preview, err := kahn.ForkPreview(compiled(t, m.g), s, sel.names, more...)
		require.NoError(t, err, name)
		more = append(more, kahn.Fork(s, sel.names...))
		fails := func(path string) bool { return m.broken(path, round) }
		from := db
		db = new(journal)
		time.Sleep(time.Minute)
		id := fmt.Sprint("run ", round)
		next, called := m.run(t, cutShort{}, fails, append(stored(db, id), more...)...)
		again++
		previewed(t, name, preview, k, called)
		exact := m.holds(t, name, k, failed, fails, res, next, called)
		if where == 2 {
			countedRun(t, db, id)
			for writes := range db.len() {
				cut := db.replay(t, id, writes)
				if at, err := cut.Load(t.Context(), id); err == nil && at.Status.Terminal() {
					continue
				}
				got, _ := m.run(t, cutShort{}, fails, append(stored(cut, id), more...)...)
				if err := same(got, next, ""); err != nil && exact {
					t.Errorf("%s, after %d of %d writes: %v", name, writes, db.len(), err)
				}
				m.counts(t, cut, id)
				cuts++
			}
			unchanged, err := kahn.ReadSnapshot(t.Context(), from, old)
			require.NoError(t, err)
			require.Equal(t, s, unchanged, "the run that was forked is as it was")
		}
		if t.Failed() {
			return again, cuts, versions
		}
		for path := range failed {
			if !k.has(path) {
				delete(failed, path)
			}
		}
		res, calls = next, called
	}
	return again, cuts, versions
}

// frozen records which iterations of loops a snapshot contains.
func (m *mender) frozen(t *testing.T, s *kahn.Snapshot) {
	t.Helper()
	data, err := json.Marshal(s)
	require.NoError(t, err)
	in := new(frozen)
	require.NoError(t, json.Unmarshal(data, in))
	m.pauses(in, "")
}

func (m *mender) adopts(t *testing.T, name string) (again, cuts int) {
	db := new(journal)
	stored := func(s store.Store) []kahn.Option { return []kahn.Option{kahn.Durable(s), kahn.RunID("r")} }
	r := rand.New(rand.NewPCG(m.seed, 36))
	end := cutShort{time.Duration(1+r.IntN(12)) * ms, true}
	res, calls := m.run(t, end, func(path string) bool { return m.broken(path, 0) }, stored(db)...)
	failed := map[string]bool{}
	for round := 1; round <= 3 && !res.Status.Terminal(); round++ {
		m.stands(t, res)
		for path := range calls {
			failed[path] = m.broken(path, round-1)
		}
		s, err := kahn.ReadSnapshot(t.Context(), db, "r")
		require.NoError(t, err)
		m.frozen(t, s)
		m.notes(m.g, res, "") // a life that was left early has no Results of returned graphs
		was := m.g
		sel := selection{failed: true, strict: true, changed: m.changes(r)}
		name := fmt.Sprintf("%s, round %d, changed %v", name, round, slices.Sorted(maps.Keys(sel.changed)))
		k := kept{}
		m.keeps(k, m.g, res, "", sel)
		preview, err := kahn.AdoptPreview(compiled(t, m.g), s)
		require.NoError(t, err, name)
		before := db.len()
		time.Sleep(time.Minute)
		adopted, err := kahn.Adopt(t.Context(), m.g, db, "r")
		require.NoError(t, err, name)
		require.Equal(t, preview, adopted, name)
		var list, keep []string
		for _, n := range adopted.Run {
			list = append(list, n.Node)
		}
		for _, n := range m.g.Nodes() {
			if k[n.ID] {
				keep = append(keep, n.ID)
			}
		}
		require.Equal(t, keep, adopted.Keep, name)
		for _, id := range adopted.Dropped {
			_, had := compiled(t, was).Ref(id)
			_, has := compiled(t, m.g).Ref(id)
			require.True(t, had && !has, "%s: %s is dropped", name, id)
		}
		fails := func(path string) bool { return m.broken(path, round) }
		var cut cutShort
		if round < 3 && r.IntN(3) == 0 {
			cut = cutShort{time.Duration(1+r.IntN(8)) * ms, true}
		}
		again++
		if at, err := db.Load(t.Context(), "r"); err != nil || at.Status.Terminal() {
			require.NoError(t, err)
			require.Empty(t, list, "%s: nothing is left to do", name)
			require.Equal(t, kahn.RunCompleted, at.Status, name)
			return again, cuts
		}
		next, called := m.run(t, cut, fails, stored(db)...)
		previewed(t, name, list, k, called)
		if next.Status.Terminal() {
			m.counts(t, db, "r")
			exact := m.holds(t, name, k, failed, fails, res, next, called)
			for writes := before; writes < db.len(); writes++ {
				cut := db.replay(t, "r", writes)
				at, err := cut.Load(t.Context(), "r")
				require.NoError(t, err)
				if at.Status.Terminal() {
					continue
				}
				if at.Plan != compiled(t, m.g).Hash() || writes == before {
					_, err := kahn.Adopt(t.Context(), m.g, cut, "r")
					require.NoError(t, err, name)
				}
				got, _ := m.run(t, cutShort{}, fails, stored(cut)...)
				if err := same(got, next, ""); err != nil && exact {
					t.Errorf("%s, after %d of %d writes: %v", name, writes-before, db.len()-before, err)
				}
				m.counts(t, cut, "r")
				cuts++
			}
		}
		if t.Failed() {
			return again, cuts
		}
		for path := range failed {
			if !k.has(path) {
				delete(failed, path)
			}
		}
		res, calls = next, called
	}
	return again, cuts
}
