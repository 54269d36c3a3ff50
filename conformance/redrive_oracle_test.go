package conformance_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
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

// mender is a random nested graph. Whether a step fails depends on its path and on the round: in each round of redrives fewer steps fail.
type mender struct {
	seed     uint64
	g        *kahn.Graph
	expands  map[string]*kahn.Graph // the graphs that steps return, by id
	opts     []kahn.Option
	ids      int
	versions int
	memo     bool // whether each life has a memo
	stops    bool // whether a failure may stop nodes that run at the same time; the calls then depend on timing
	retries  bool // whether composites may be attempted again
	loops    bool
	last     map[string]int          // the current iteration of each loop, by path
	fresh    map[string]bool         // by path of a loop: whether no node of its current iteration has ended
	inner    map[string]*kahn.Result // Results of returned graphs, by path; absent from a life's Result if the node does not run in that life
	tries    map[string]int          // by path of a composite or an item: its number of attempts in the latest Result
	end      cutShort                // how the first run is cut short

	mu    sync.Mutex
	calls map[string]int
	fails func(path string) bool
}

func newMender(seed uint64) *mender {
	r := rand.New(rand.NewPCG(seed, 33))
	m := &mender{seed: seed, expands: map[string]*kahn.Graph{}, last: map[string]int{}, fresh: map[string]bool{}, inner: map[string]*kahn.Result{}, tries: map[string]int{}, retries: r.IntN(2) == 0}
	m.g = m.graph(r, 2+r.IntN(6), 1+r.IntN(3))
	aborts := []kahn.FailureMode{kahn.Continue, kahn.AbortRunning}[r.IntN(2)]
	m.stops = m.stops || aborts == kahn.AbortRunning
	m.g.Groups = []kahn.Group{{Name: "group", Limit: 1 + r.IntN(2)}}
	m.opts = []kahn.Option{[]kahn.Mode{kahn.Eager, kahn.Waves}[r.IntN(2)], kahn.Limit(r.IntN(3)), aborts}
	m.memo = r.IntN(4) == 0
	if r.IntN(4) == 0 {
		m.end.after = time.Duration(1+r.IntN(20)) * ms
	}
	return m
}

// cutShort is the time after which a run is cancelled or, if leave is set, left. If after is 0, the run ends by itself.
type cutShort struct {
	after time.Duration
	leave bool
}

func (m *mender) graph(r *rand.Rand, n, depth int) *kahn.Graph {
	g := new(kahn.Graph)
	var ids []string
	for range n {
		m.ids++
		node := kahn.Node{ID: fmt.Sprint("n", m.ids)}
		for _, from := range ids {
			if r.IntN(3) == 0 {
				node.After = append(node.After, from)
			}
		}
		if len(node.After) > 0 && r.IntN(6) == 0 {
			node.Join = kahn.AllDone
		}
		switch {
		case depth > 0 && r.IntN(2) == 0:
			m.composite(r, &node, depth)
		case r.IntN(5) == 0:
			node.Groups = []string{"group"}
		case r.IntN(4) == 0:
			node.Memo = "v1"
		}
		ids = append(ids, node.ID)
		g.Add(node)
	}
	if r.IntN(4) == 0 {
		m.ids++
		g.Add(kahn.Node{ID: fmt.Sprint("end", m.ids), Kind: kahn.KindEnd})
	}
	return g
}

func (m *mender) composite(r *rand.Rand, n *kahn.Node, depth int) {
	inner := func() *kahn.Graph { return m.graph(r, 1+r.IntN(4), depth-1) }
	tolerant := func() *kahn.Map {
		x := &kahn.Map{Over: "items", Limit: r.IntN(3), ToleratedCount: r.IntN(2), FailFast: r.IntN(3) == 0, Compact: r.IntN(3) == 0}
		m.stops = m.stops || x.FailFast
		return x
	}
	n.Params = map[string]any{"items": []string{"a", "b", "c", "d"}[:1+r.IntN(4)]}
	switch r.IntN(6) {
	case 0:
		n.Sub = inner()
	case 1:
		m.expands[n.ID] = inner()
	case 2:
		n.Map = tolerant()
	case 3, 4:
		n.Map, n.Sub = tolerant(), inner()
	case 5:
		m.loops = true
		times := 1 + r.IntN(3)
		n.Sub = inner()
		n.Loop = &kahn.Loop{MaxIterations: times, OnLimit: kahn.LoopStop, Collect: r.IntN(2) == 0, Pause: time.Duration(r.IntN(2)) * ms, While: func(kahn.View) (bool, error) { return true, nil }}
	}
	if r.IntN(4) == 0 && m.retries {
		n.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: ms, Jitter: kahn.JitterNone}
	}
}

// broken reports whether the step of a path fails in the given round.
func (m *mender) broken(path string, round int) bool {
	h := fnv.New64a()
	fmt.Fprint(h, m.seed, path)
	return h.Sum64()%6 == 0 && round < 1+int(h.Sum64()/6%2)
}

func (m *mender) step(ctx context.Context, s *kahn.Step) (any, error) {
	m.mu.Lock()
	m.calls[s.Path()]++
	fails := m.fails
	m.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(time.Duration(1+(len(s.Path())+s.Index())%3) * ms):
	}
	if fails(s.Path()) {
		return nil, errStep
	}
	if g := m.expands[s.ID()]; g != nil && s.Kind() != kahn.KindEnd {
		return nil, kahn.Expand(g, nil, nil)
	}
	item, _ := s.Item()
	previous, _ := s.Root("previous")
	up := s.UpstreamAll()
	text := fmt.Sprint(s.Path(), s.Config(), item, previous)
	for _, id := range slices.Sorted(maps.Keys(up)) {
		text += fmt.Sprint(" ", id, up[id])
	}
	return text[:min(len(text), 60)] + fmt.Sprint(len(text)), nil
}

// run performs a life and returns its Result and its calls.
func (m *mender) run(t *testing.T, end cutShort, fails func(path string) bool, opts ...kahn.Option) (*kahn.Result, map[string]int) {
	t.Helper()
	m.calls, m.fails = map[string]int{}, fails
	if m.memo {
		opts = append(opts, new(kahn.Memo))
	}
	run, err := kahn.Start(t.Context(), m.g, m.step, append(slices.Clone(m.opts), opts...)...)
	require.NoError(t, err)
	if end.after > 0 {
		time.Sleep(end.after)
		if end.leave {
			run.Leave()
		} else if err := run.Cancel(); err != nil {
			require.ErrorIs(t, err, kahn.ErrFinished)
		}
	}
	res, err := run.Wait()
	require.NotErrorIs(t, err, kahn.ErrStore)
	return res, m.calls
}

// kept contains the paths of the nodes, and of whole composites, that a redrive keeps.
type kept map[string]bool

func (k kept) has(path string) bool {
	if k[path] {
		return true
	}
	for i := range path {
		if strings.IndexByte("/[#", path[i]) >= 0 && k[path[:i]] {
			return true
		}
	}
	return false
}

func ranBadly(n kahn.NodeResult) bool {
	return n.Status == kahn.Failed || n.Status == kahn.Aborted || n.Status == kahn.Cancelled
}

// selection says which nodes a redrive, a fork or an adoption repeats.
type selection struct {
	failed  bool            // nodes that failed or were stopped
	names   []string        // the named nodes
	anew    bool            // whether the named composites start again
	strict  bool            // for a fork or an adoption: also nodes without a result
	fork    bool            // for a fork: expanded nodes start again
	changed map[string]bool // the nodes of the outermost graph whose declarations have changed
}

// between reports whether an attempt of a composite has ended and the next one has not begun.
func between(n kahn.NodeResult) bool { return n.Status == kahn.Retrying || n.Status == kahn.Ready }

// starts reports whether a composite begins its next attempt. An expanded node continues inside if only its step has to be called again.
func (m *mender) starts(id string, n kahn.NodeResult) bool {
	if m.expands[id] == nil {
		return between(n)
	}
	attempts := n.History()
	return between(n) && len(attempts) > 0 && attempts[len(attempts)-1].Delay > 0
}

// repeats reports whether a node exists and is repeated because of its status.
func (s selection) repeats(n kahn.NodeResult, ok bool) bool {
	return !ok || ranBadly(n) || s.strict && !n.Status.Terminal()
}

// goesOn reports whether a named composite continues inside: it has not completed, or a node inside is repeated because of its status.
func (s selection) goesOn(n kahn.NodeResult) bool { return s.repeats(n, true) || s.any(n.Sub) }

// any reports whether a node of res is repeated because of its status.
func (s selection) any(res *kahn.Result) bool {
	for n := range res.Nodes() {
		if s.repeats(n, true) {
			return true
		}
	}
	return false
}

func (s selection) String() string {
	return fmt.Sprintf("failed %t, names %q, anew %t", s.failed, s.names, s.anew)
}

func (s selection) has(path string) bool { return slices.Contains(s.names, path) }

// below reports whether a node inside the given composite is named.
func (s selection) below(path string) bool {
	return slices.ContainsFunc(s.names, func(name string) bool {
		rest, ok := strings.CutPrefix(name, path)
		return ok && rest != "" && strings.IndexByte("/[#", rest[0]) >= 0
	})
}

// iteration returns the first named iteration of a loop, or 0 if none is named.
func (s selection) iteration(loop string) (first int) {
	for _, name := range s.names {
		var n int
		if rest, ok := strings.CutPrefix(name, loop+"#"); ok && !strings.Contains(rest, "/") {
			if _, err := fmt.Sscan(rest, &n); err == nil && (first == 0 || n < first) {
				first = n
			}
		}
	}
	return first
}

// keeps adds to k the kept nodes of a graph: all nodes that have ended, except selected nodes and their descendants. Composites that are not kept
// continue inside.
func (m *mender) keeps(k kept, g *kahn.Graph, res *kahn.Result, prefix string, sel selection) {
	again, before := map[string]bool{}, map[string][]string{}
	for _, e := range g.Edges() {
		before[e.To] = append(before[e.To], e.From)
	}
	stays := true
	var end string
	for _, n := range g.Nodes() {
		r, ok := res.Node(n.ID)
		path := prefix + n.ID
		if n.Kind == kahn.KindEnd {
			end = n.ID
			stays = stays && !sel.has(path)
			continue
		}
		anew := sel.changed[path] || slices.ContainsFunc(before[n.ID], func(id string) bool { return again[id] })
		starts := m.starts(n.ID, r) || sel.fork && m.expands[n.ID] != nil
		if again[n.ID] = anew || sel.failed && sel.repeats(r, ok) || sel.has(path) || sel.below(path); !again[n.ID] {
			k[path] = true
			continue
		}
		if r.Sub == nil && m.inner[path] != nil {
			r.Sub = m.inner[path]
		}
		if stays = false; anew || starts || r.Sub == nil || sel.has(path) && (sel.anew || !sel.goesOn(r)) {
			m.forgets(path)
			continue
		}
		inside := sel
		inside.failed = sel.failed && sel.repeats(r, ok) || sel.has(path)
		switch inner := m.expands[n.ID]; {
		case n.Map != nil:
			for item := range r.Sub.Nodes() {
				at := prefix + item.ID
				if !(inside.failed && sel.repeats(item, true) || sel.has(at) || sel.below(at)) {
					k[at] = true
				} else if item.Sub != nil && n.Sub != nil && !between(item) && !(sel.has(at) && (sel.anew || !sel.goesOn(item))) {
					in := sel
					in.failed = inside.failed && sel.repeats(item, true) || sel.has(at)
					m.keeps(k, n.Sub, item.Sub, at+"/", in)
				} else {
					m.forgets(at)
				}
			}
		case n.Loop != nil:
			last := max(m.last[path], 1)
			first := sel.iteration(path)
			if first == 0 {
				if first = last; !m.fresh[path] {
					m.keeps(k, n.Sub, r.Sub, fmt.Sprintf("%s#%d/", path, last), inside)
				}
			}
			for i := 1; i < first; i++ {
				k[fmt.Sprintf("%s#%d", path, i)] = true
			}
			if sel.iteration(path) > 0 || m.fresh[path] {
				for i := first; i <= last; i++ {
					m.forgets(fmt.Sprintf("%s#%d", path, i))
				}
			}
		case n.Sub != nil:
			m.keeps(k, n.Sub, r.Sub, path+"/", inside)
		case inner != nil:
			m.keeps(k, inner, r.Sub, path+"/", inside)
		}
	}
	if end != "" && stays && prefix != "" {
		if r, _ := res.Node(end); !sel.repeats(r, true) {
			k[prefix+end] = true
		}
	}
}

// stands records the current iterations of loops from the Result, since an iteration may have been stopped before it called a step.
func (m *mender) stands(t *testing.T, res *kahn.Result) {
	m.anyNode(t, res, func(n kahn.SnapshotNode) bool {
		if n.Iteration > 0 && n.Inside != nil {
			m.last[n.ID] = n.Iteration
		}
		return false
	})
}

// anyNode reports whether holds is true for any node of a run, at any depth.
func (m *mender) anyNode(t *testing.T, res *kahn.Result, holds func(kahn.SnapshotNode) bool) bool {
	nodes, err := res.Snapshot().Nodes(nil) // nil: the graph may have changed
	require.NoError(t, err)
	var some func(nodes []kahn.SnapshotNode) bool
	some = func(nodes []kahn.SnapshotNode) bool {
		return slices.ContainsFunc(nodes, func(n kahn.SnapshotNode) bool { return holds(n) || some(n.Inside) })
	}
	return some(nodes)
}

// frozen describes the nodes inside a composite as a snapshot has them.
type frozen struct {
	Items     int
	Iteration int
	Nodes     []struct {
		ID     string
		Inside *frozen
	}
}

// pauses gets a run that was left, in the form of its snapshot, and records the current iterations of loops. Such an iteration may have called no
// step.
func (m *mender) pauses(in *frozen, prefix string) {
	for _, n := range in.Nodes {
		switch path := prefix + n.ID; {
		case n.Inside == nil:
		case n.Inside.Iteration > 0:
			m.last[path], m.fresh[path] = n.Inside.Iteration, len(n.Inside.Nodes) == 0
			m.pauses(n.Inside, fmt.Sprintf("%s#%d/", path, n.Inside.Iteration))
		case n.Inside.Items > 0:
			m.pauses(n.Inside, prefix)
		default:
			m.pauses(n.Inside, path+"/")
		}
	}
}

// notes records the Results of the graphs that steps returned, at every depth.
func (m *mender) notes(g *kahn.Graph, res *kahn.Result, prefix string) {
	for _, n := range g.Nodes() {
		r, _ := res.Node(n.ID)
		path := prefix + n.ID
		inner := m.expands[n.ID]
		m.attempted(path, r.Attempts)
		switch {
		case r.Sub == nil:
		case n.Map != nil && n.Sub != nil:
			for item := range r.Sub.Nodes() {
				if m.attempted(prefix+item.ID, item.Attempts); item.Sub != nil {
					m.notes(n.Sub, item.Sub, prefix+item.ID+"/")
				}
			}
		case n.Loop != nil:
			m.notes(n.Sub, r.Sub, fmt.Sprintf("%s#%d/", path, max(m.last[path], 1)))
		case n.Sub != nil:
			m.notes(n.Sub, r.Sub, path+"/")
		case inner != nil:
			m.inner[path] = r.Sub
			m.notes(inner, r.Sub, path+"/")
		}
	}
}

// attempted records the number of attempts of a node or an item. If there is a new attempt, it began without nodes inside, at every depth: the nodes
// inside count their attempts anew, and their steps may have been stopped before they returned a graph.
func (m *mender) attempted(path string, attempts int) {
	if attempts > m.tries[path] {
		m.forgets(path)
	}
	m.tries[path] = attempts
}

// forgets removes the Results of the graphs that a node's step, and the steps inside, have returned.
func (m *mender) forgets(path string) {
	maps.DeleteFunc(m.inner, func(at string, _ *kahn.Result) bool { return at == path || kept{path: true}.has(at) })
}

// paths lists the paths that a redrive may name. In a graph that a step returned these are only nodes that have ended.
func (m *mender) paths(list []string, g *kahn.Graph, res *kahn.Result, prefix string, returned bool) []string {
	for _, n := range g.Nodes() {
		r, _ := res.Node(n.ID)
		path := prefix + n.ID
		if returned && !r.Status.Terminal() {
			continue
		}
		list = append(list, path)
		if r.Sub == nil {
			r.Sub = m.inner[path]
		}
		if r.Sub == nil || m.starts(n.ID, r) { // the next attempt begins without nodes inside
			continue
		}
		switch inner := m.expands[n.ID]; {
		case n.Map != nil:
			for item := range r.Sub.Nodes() {
				list = append(list, prefix+item.ID)
				if item.Sub != nil && n.Sub != nil {
					list = m.paths(list, n.Sub, item.Sub, prefix+item.ID+"/", returned)
				}
			}
		case n.Loop != nil:
			last := max(m.last[path], 1)
			for i := range last {
				if i == 0 || i == last-1 || n.Loop.Collect {
					list = append(list, fmt.Sprintf("%s#%d", path, i+1))
				}
			}
			list = m.paths(list, n.Sub, r.Sub, fmt.Sprintf("%s#%d/", path, last), returned)
		case n.Sub != nil:
			list = m.paths(list, n.Sub, r.Sub, path+"/", returned)
		case inner != nil:
			list = m.paths(list, inner, r.Sub, path+"/", true)
		}
	}
	return list
}

// selects draws a random selection for a run.
func (m *mender) selects(r *rand.Rand, res *kahn.Result) selection {
	sel := selection{failed: true}
	m.notes(m.g, res, "")
	list := m.paths(nil, m.g, res, "", false)
	if m.end.after > 0 || m.stops || r.IntN(3) == 0 {
		return sel
	}
	for range 1 + r.IntN(3) {
		sel.names = append(sel.names, list[r.IntN(len(list))])
	}
	sel.failed, sel.anew = false, r.IntN(4) == 0
	return sel
}

// same compares the nodes of two Results, at every depth.
func same(a, b *kahn.Result, prefix string) error {
	for x := range a.Nodes() {
		y, ok := b.Node(x.ID)
		if !ok || x.Status != y.Status || x.Tolerated != y.Tolerated || fmt.Sprint(x.Output) != fmt.Sprint(y.Output) {
			return fmt.Errorf("%s%s is %v %v with %v, expected %v %v with %v", prefix, x.ID, x.Status, x.Tolerated, x.Output, y.Status, y.Tolerated, y.Output)
		}
		if x.Sub != nil && y.Sub != nil {
			if err := same(x.Sub, y.Sub, prefix+x.ID+"/"); err != nil {
				return err
			}
		}
	}
	if a.Status != b.Status || a.Degraded != b.Degraded {
		return fmt.Errorf("%s: %v %v, expected %v %v", prefix, a.Status, a.Degraded, b.Status, b.Degraded)
	}
	return nil
}

// TestRedriveOracle redrives random nested runs, from memory, from JSON and in a store. At every depth the redrive calls exactly the nodes that
// failed or were stopped, and their descendants. Its Result equals the Result of a run in which these nodes did not fail. A redrive that fails is
// redriven again. With a store, the test also continues the redrive after each of its writes, as after a crash.
func TestRedriveOracle(t *testing.T) {
	t.Parallel()
	redrives, cuts := 0, 0
	runs := size(40, 15, 2_000)
	for seed := range seeds(t, runs) {
		synctest.Test(t, func(t *testing.T) {
			r, c := newMender(seed).check(t, int(seed%3), fmt.Sprint("seed ", seed))
			redrives, cuts = redrives+r, cuts+c
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d runs, %d redrives, %d cuts", runs, redrives, cuts)
	if redrives < runs/2 || cuts < runs/2 {
		t.Errorf("only %d redrives and %d cuts of %d runs", redrives, cuts, runs)
	}
}

func (m *mender) check(t *testing.T, where int, name string) (redrives, cuts int) {
	db := new(journal)
	stored := func(s store.Store) []kahn.Option { return []kahn.Option{kahn.Durable(s), kahn.RunID("r")} }
	var opts []kahn.Option
	if where == 2 {
		opts = stored(db)
	}
	r := rand.New(rand.NewPCG(m.seed, 34))
	res, calls := m.run(t, m.end, func(path string) bool { return m.broken(path, 0) }, opts...)
	m.stands(t, res)
	failed := map[string]bool{} // by path: whether the last call failed
	for path := range calls {
		failed[path] = m.broken(path, 0)
	}
	for round := 1; round <= 3; round++ {
		sel := m.selects(r, res)
		if res.Status == kahn.RunCompleted && sel.names == nil {
			break
		}
		name := fmt.Sprintf("%s, round %d of %d, %v", name, round, where, sel)
		k := kept{}
		m.keeps(k, m.g, res, "", sel)
		fails := func(path string) bool { return m.broken(path, round) }
		s := res.Snapshot()
		var again, more []kahn.Option
		if sel.anew {
			more = append(more, kahn.Anew)
		}
		switch where {
		case 0:
			again = append([]kahn.Option{kahn.Redrive(s, sel.names)}, more...)
		case 1:
			again = append([]kahn.Option{kahn.Redrive(reload(t, s), sel.names)}, more...)
		default:
			again = append(append(stored(db), kahn.Redrive(nil, sel.names)), more...)
		}
		before := db.len()
		time.Sleep(time.Minute)
		next, called := m.run(t, cutShort{}, fails, again...)
		redrives++
		if where == 2 {
			counted(t, db)
		}
		// The new run fails where the redrive fails, and where the redrive has kept failures.
		want, expected := m.run(t, cutShort{}, func(path string) bool {
			if k.has(path) {
				return failed[path]
			}
			return fails(path)
		})
		maps.DeleteFunc(expected, func(path string, _ int) bool { return k.has(path) })
		failsAgain := false // a node fails again; this may have stopped other nodes, or a composite around it was attempted again
		for path := range called {
			failsAgain = failsAgain || fails(path)
		}
		for path, bad := range failed {
			failsAgain = failsAgain || bad && k.has(path)
		}
		// The calls also differ if a stop came before an iteration of a loop had called a step.
		exact := !failsAgain || !m.stops && !m.retries
		exact = exact && !(m.stops && m.loops && round > 1)
		if exact && !maps.Equal(called, expected) {
			t.Errorf("%s: called\n%v, expected\n%v, kept %v", name, called, expected, slices.Sorted(maps.Keys(k)))
		}
		if err := same(next, want, ""); err != nil && exact {
			t.Errorf("%s: %v", name, err)
		}
		for path := range called {
			if exact && k.has(path) {
				t.Errorf("%s: %s was called, and is kept", name, path)
			}
		}
		if where == 2 {
			for writes := before; writes < db.len(); writes++ {
				cut := db.replay(t, "r", writes)
				at, err := cut.Load(t.Context(), "r")
				require.NoError(t, err)
				opts := stored(cut)
				if writes == before {
					opts = append(append(opts, kahn.Redrive(nil, sel.names)), more...)
				} else if at.Status.Terminal() {
					continue
				}
				got, _ := m.run(t, cutShort{}, fails, opts...)
				if err := same(got, next, ""); err != nil && exact {
					t.Errorf("%s, after %d of %d writes: %v", name, writes-before, db.len()-before, err)
				}
				m.counts(t, cut, "r")
				cuts++
			}
		}
		if t.Failed() {
			return redrives, cuts
		}
		m.stands(t, next)
		for path := range called {
			failed[path] = fails(path)
		}
		res = next
	}
	return redrives, cuts
}
