package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// This file makes random graphs with all kinds of waits. Tests interrupt their runs at any moment and continue them.

// cutter is a random graph whose nodes have the same outcomes regardless of the interruptions of its runs. All nodes have different ids, even in different
// graphs.
type cutter struct {
	modes    *rand.Rand // draws the mode of each life; may be nil
	g        *kahn.Graph
	broken   map[string]bool // nodes that never succeed
	flaky    map[string]int  // the number of attempts that fail first
	suspends map[string]bool
	early    map[string]bool        // nodes whose join may be decided before all predecessors have ended
	retried  map[string]bool        // composites that are attempted again
	expands  map[string]*kahn.Graph // the graphs that steps return
	lists    map[string]bool        // maps whose items return graphs
	answers  map[string]any         // for gates
	opts     []kahn.Option
	more     []kahn.Option // of the following runs
	ids      int
	slow     time.Duration // how long each call of host code takes, so that a store can write between any two changes of a run

	mu     sync.Mutex
	called map[string]int
	cut    func()

	events []kahn.Event // of the last run
	res    *kahn.Result
}

func newCutter(seed uint64, depth int) *cutter {
	r := rand.New(rand.NewPCG(seed, 7))
	c := &cutter{
		broken: map[string]bool{}, flaky: map[string]int{}, suspends: map[string]bool{}, early: map[string]bool{}, retried: map[string]bool{},
		answers: map[string]any{}, expands: map[string]*kahn.Graph{}, lists: map[string]bool{},
	}
	c.opts = []kahn.Option{[]kahn.Mode{kahn.Eager, kahn.Waves}[r.IntN(2)], kahn.SuspendDrain, kahn.Limit(r.IntN(3))}
	c.g = c.graph(r, 3+r.IntN(9), depth)
	return c
}

// graph makes a graph of n nodes, with composites down to the given depth.
func (c *cutter) graph(r *rand.Rand, n, depth int) *kahn.Graph {
	g := new(kahn.Graph)
	var routers, ids []string
	for range n {
		id := fmt.Sprint("n", c.ids)
		c.ids++
		node := kahn.Node{ID: id, Merge: []string{"", kahn.MergeArray}[r.IntN(2)]}
		for _, from := range ids {
			if r.IntN(3) != 0 {
				continue
			}
			e := kahn.Edge{From: from, Param: []string{"", "p"}[r.IntN(2)]}
			switch {
			case slices.Contains(routers, from) && r.IntN(2) == 0:
				e.Label = []string{"true", "false"}[r.IntN(2)]
			case r.IntN(8) == 0:
				e.On = kahn.OnFailure
			case r.IntN(10) == 0:
				e.On = kahn.OnAlways
			default:
				e.DataOnly = r.IntN(10) == 0
			}
			node.In = append(node.In, e)
		}
		ids = append(ids, id)
		switch kind := r.IntN(6); {
		case depth > 0 && r.IntN(3) == 0:
			c.composite(r, &node, depth)
		case kind == 0:
			node.Test = func(v kahn.View) (any, error) { c.visit("test " + id); return len(id)%2 == 0, nil }
			routers = append(routers, id)
		case kind == 1:
			node.Kind = kahn.KindGate
			c.answers[id] = r.IntN(2) == 0
			routers = append(routers, id)
		case kind == 2:
			c.suspends[id] = true
		case kind == 3:
			c.flaky[id] = 1 + r.IntN(2)
			node.Retry = kahn.Retry{MaxAttempts: 3, InitialDelay: 2 * ms, Jitter: kahn.JitterNone}
		case kind == 4:
			c.broken[id] = true
			node.ContinueOnFail = r.IntN(3) == 0
		}
		if r.IntN(4) == 0 {
			pass := r.IntN(4) > 0
			node.When = func(kahn.View) (bool, error) { c.visit("guard " + id); return pass, nil }
		}
		if control := slices.DeleteFunc(slices.Clone(node.In), func(e kahn.Edge) bool { return e.DataOnly }); len(control) > 0 && node.Test == nil {
			node.Join = []kahn.Join{0, 0, 0, kahn.AnySucceeded, kahn.AllDone, kahn.NoneFailed, kahn.OneFailed, kahn.AtLeast(1)}[r.IntN(8)]
		}
		c.early[id] = node.Join == kahn.AnySucceeded || node.Join == kahn.OneFailed || node.Join == kahn.AtLeast(1)
		node.OnUpstreamFailure = []machine.UpstreamPolicy{0, 0, kahn.UpstreamSkip, kahn.UpstreamSubstitute, kahn.UpstreamPropagate}[r.IntN(5)]
		node.SkipMode = []machine.SkipMode{0, 0, kahn.SkipSatisfy, kahn.SkipStrict}[r.IntN(4)]
		node.Cleanup = node.Kind == "" && node.Test == nil && node.Join == 0 && r.IntN(12) == 0
		g.Add(node)
	}
	if r.IntN(3) == 0 {
		id := fmt.Sprint("end", c.ids)
		c.ids++
		g.Add(kahn.Node{ID: id, Kind: kahn.KindEnd})
	}
	return g
}

// composite turns a node into a composite.
func (c *cutter) composite(r *rand.Rand, n *kahn.Node, depth int) {
	n.Params = map[string]any{"items": []string{"a", "b", "c"}[:r.IntN(4)]}
	inner := func() *kahn.Graph { return c.graph(r, 1+r.IntN(4), depth-1) }
	switch r.IntN(5) {
	case 0:
		n.Sub = inner()
	case 1:
		c.expands[n.ID] = inner()
	case 2:
		n.Map = &kahn.Map{Over: "items", Limit: r.IntN(3), ToleratedCount: r.IntN(3), Compact: r.IntN(2) == 0}
		c.suspends[n.ID], c.broken[n.ID] = r.IntN(3) == 0, r.IntN(4) == 0
		if r.IntN(3) == 0 {
			c.expands[n.ID], c.lists[n.ID] = inner(), true
		}
	case 3:
		n.Map = &kahn.Map{Over: "items", Limit: r.IntN(3), ToleratedPercent: float64(r.IntN(101))}
		n.Sub = inner()
	case 4:
		times := 1 + r.IntN(3)
		n.Sub = inner()
		n.Loop = &kahn.Loop{MaxIterations: 1 + r.IntN(4), OnLimit: kahn.LoopLimit(r.IntN(2)), Collect: r.IntN(2) == 0}
		n.Loop.While = func(v kahn.View) (bool, error) { c.visit("loop"); return v.Iteration() < times, nil }
		n.Loop.Pause = time.Duration(times-1) * 3 * ms
	}
	switch r.IntN(4) {
	case 0:
		n.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: 2 * ms, Jitter: kahn.JitterNone}
		c.retried[n.ID] = true
	case 1:
		n.Fallback = func(context.Context, error) (any, error) { c.visit("fallback"); return "fallback", nil }
	}
}

// expanded reports whether the step of the node or of the item returns a graph.
func (c *cutter) expanded(id string) bool {
	id, _, item := strings.Cut(id, "[")
	return c.expands[id] != nil && (item || !c.lists[id])
}

// visit is called by all code of the host. Each call may interrupt the run.
func (c *cutter) visit(what string) {
	c.mu.Lock()
	c.called[what]++
	cut := c.cut
	c.mu.Unlock()
	if cut != nil {
		cut()
	}
	time.Sleep(c.slow)
}

func (c *cutter) step(_ context.Context, s *kahn.Step) (any, error) {
	id, _, _ := strings.Cut(lastOf(s.Path()), "[")
	c.visit("step " + s.Path())
	s.Emit("delta")
	time.Sleep(time.Duration(1+(len(s.Path())+s.Index())%3) * ms)
	c.visit("step " + s.Path())
	if err := s.LastErr(); err != nil && c.expands[id] == nil && (s.Attempt() == 1 || err.Error() != errStep.Error()) {
		return nil, kahn.Permanent(fmt.Errorf("attempt %d is told of %w", s.Attempt(), err))
	}
	switch _, resumed := s.Resumed(); {
	case c.broken[id] && (s.Index() < 0 || s.Index() == 1), s.Attempt() <= c.flaky[id]:
		return nil, errStep
	case c.suspends[id] && !resumed:
		return nil, kahn.Suspend("token "+s.Path(), nil, 1)
	}
	if g := c.expands[id]; g != nil {
		return nil, kahn.Expand(g, map[string]any{"path": s.Path()}, "state")
	}
	if c.decidedEarly(s.Path()) {
		return "output of " + id, nil // does not depend on the inputs, since an early join has inputs that depend on timing
	}
	p, _ := s.Param("p")
	list, _ := p.([]any)
	item, _ := s.Item()
	previous, _ := s.Root("previous")
	return fmt.Sprint(s.Path(), " got ", slices.Sorted(maps.Keys(s.UpstreamAll())), len(list), item, s.Iteration(), len(fmt.Sprint(previous))), nil
}

// decidedEarly reports whether a node, or a composite that passes inputs to it, has an early join. The inputs of an early join depend on the time
// of its decision, and therefore on the mode.
func (c *cutter) decidedEarly(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if i := strings.IndexAny(part, "[#"); i >= 0 {
			part = part[:i]
		}
		if c.early[part] {
			return true
		}
	}
	return false
}

// run performs the graph from the beginning or from a snapshot, and answers all waiting nodes. It returns the snapshots that it has taken.
func (c *cutter) run(t *testing.T, from *kahn.Snapshot, take bool) (snapshots [][]byte, _ outcome) {
	c.called, c.cut = map[string]int{}, nil
	rec := newRecorder()
	opts := append(slices.Concat(c.opts, c.more), kahn.OnEvent(rec.add))
	if from != nil {
		signals := map[string]any{}
		for i, path := range from.Waiting() {
			if (i+len(path))%2 == 0 { // answers half of the nodes now
				signals[path] = c.answer(path)
			}
		}
		opts = append(opts, kahn.Resume(from), kahn.EarlySignals(signals))
	}
	var run *kahn.Run
	var mu sync.Mutex
	seen := map[string]bool{}
	started := make(chan struct{})
	cut := func() {
		<-started
		s := run.Snapshot()
		if s.Status().Terminal() {
			return
		}
		data, err := json.Marshal(s)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if key := withoutTimes(data); !seen[key] {
			seen[key] = true
			snapshots = append(snapshots, data)
		}
	}
	if take {
		c.cut = cut
		opts = append(opts, kahn.OnEvent(func(kahn.Event) { cut() }))
	}
	run, err := kahn.Start(t.Context(), c.g, c.step, opts...)
	if err != nil {
		t.Fatal(err)
	}
	close(started)
	for done := false; !done; {
		select {
		case <-run.Done():
			done = true
		case <-time.After(500 * time.Microsecond):
			if take {
				cut()
			}
			for _, w := range run.Waiting() {
				if err := run.Signal(context.Background(), w.Token, c.answer(w.Node)); err != nil && !errors.Is(err, kahn.ErrAnswered) && !errors.Is(err, kahn.ErrStore) && !errors.Is(err, kahn.ErrFinished) {
					t.Errorf("signal for %s: %v", w.Node, err)
				}
			}
		}
	}
	res, _ := run.Wait()
	c.events, c.res = rec.all(), res
	out := outcome{Status: res.Status, Flags: [2]bool{res.Degraded, res.CancelRequested}}
	out.add(c, res, "")
	return snapshots, out
}

// answer returns the signal for a waiting node.
func (c *cutter) answer(path string) any {
	if v, ok := c.answers[lastOf(path)]; ok {
		return v
	}
	return 1
}

// repeated returns the name of a step or guard that was called although the snapshot says that the node had ended or the guard had answered. It
// checks guards only in the outermost graph, since guards do not know their paths. Steps inside a retried composite may be called again.
func (c *cutter) repeated(snapshot []byte) string {
	var file struct{ Nodes []cutNode }
	if err := json.Unmarshal(snapshot, &file); err != nil {
		return err.Error()
	}
	for _, n := range file.Nodes {
		if !n.Checking && c.called["guard "+n.ID] > 0 {
			return "the guard of " + n.ID
		}
		if n.Status.Terminal() && c.called["test "+n.ID] > 0 {
			return n.ID
		}
	}
	return c.repeatedIn(file.Nodes, "")
}

// repeatedKey returns a node that was called although it had ended in a store. A node inside a retried composite may be called again, and so may
// a node inside a redriven step that has not returned its graph yet.
func (c *cutter) repeatedKey(r *store.Run) string {
	for key, n := range r.Nodes {
		retried := false
		for at, sign := range key + "/" {
			if strings.ContainsRune("/[#", sign) {
				retried = retried || c.retried[lastOf(key[:at])] || strings.Contains(string(r.Nodes[key[:at]].Record), `"redo":`)
			}
		}
		if n.Terminal && !retried && c.called["step "+key]+c.called["test "+key] > 0 {
			return fmt.Sprintf("%s, in %+v", key, n)
		}
	}
	return ""
}

// outcome has the results that must be the same in all runs of a cutter.
type outcome struct {
	Status  kahn.RunStatus
	Flags   [2]bool
	Nodes   []string
	Outputs []any
}

// add adds the outcomes of the nodes of a run, and of the nodes inside them.
func (out *outcome) add(c *cutter, res *kahn.Result, prefix string) {
	for n := range res.Nodes() {
		attempts := 0
		inside := n.Sub != nil && !c.expanded(n.ID) // the nodes inside a node that ended in an earlier life are unknown
		if inside {                                 // count the attempts of composites: a composite that continues keeps its attempt
			attempts = n.Attempts
		}
		out.Nodes = append(out.Nodes, fmt.Sprint(prefix, n.ID, " ", n.Status, " ", n.Skip, " ", n.Cause.Kind, " ", n.Cause.Origins, " ", n.Tolerated, " ", n.Fallback, " ", attempts))
		out.Outputs = append(out.Outputs, n.Output)
		if inside {
			out.Nodes = append(out.Nodes, fmt.Sprint(n.Sub.Status, n.Sub.Degraded))
			out.add(c, n.Sub, prefix+n.ID+" ")
		}
	}
}

// lastOf returns the id at the end of a path.
func lastOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// withoutTimes returns a snapshot without times and other fields that differ between runs.
func withoutTimes(data []byte) string {
	var doc any
	if err := json.Unmarshal(data, &doc); err != nil {
		return err.Error()
	}
	var strip func(v any)
	strip = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range []string{"taken", "start", "end", "since", "last_event", "began", "ended"} {
				delete(v, key)
			}
			for _, x := range v {
				strip(x)
			}
		case []any:
			for _, x := range v {
				strip(x)
			}
		}
	}
	strip(doc)
	text, _ := json.Marshal(doc)
	return string(text)
}

// cutNode has the fields of a snapshot's node that the test reads.
type cutNode struct {
	ID       string
	Status   kahn.Status
	Checking bool
	Inside   *struct {
		Iteration, Items int
		Nodes            []cutNode
	}
}

func (c *cutter) repeatedIn(nodes []cutNode, prefix string) string {
	for _, n := range nodes {
		if n.Status.Terminal() && c.called["step "+prefix+n.ID] > 0 {
			return prefix + n.ID
		}
		if n.Inside == nil || c.retried[n.ID] && !n.Status.Terminal() {
			continue
		}
		inner := prefix + n.ID + "/"
		switch {
		case n.Inside.Items > 0:
			inner = prefix
		case n.Inside.Iteration > 0:
			inner = fmt.Sprintf("%s%s#%d/", prefix, n.ID, n.Inside.Iteration)
		}
		if again := c.repeatedIn(n.Inside.Nodes, inner); again != "" {
			return again
		}
	}
	return ""
}
