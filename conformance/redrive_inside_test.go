package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

func TestRedriveGoesOnInside(t *testing.T) {
	t.Parallel()
	inner := func() *kahn.Graph { return graph(after("x"), after("y", "x"), after("z", "y"), after("w")) }
	again := func(kahn.View) (bool, error) { return true, nil }
	for _, row := range []struct {
		name   string
		g      *kahn.Graph
		broken []string
		names  []string
		opts   []kahn.Option
		calls  []string // nil if the error is ErrUnknownNode
	}{
		{"a sub-graph", graph(subgraph("S", inner()), after("T", "S")), []string{"S/y"}, nil, nil, []string{"S/y", "S/z", "T"}},
		{"an item", graph(mapped("M", []int{1, 2, 3}, kahn.Map{}), after("T", "M")), []string{"M[1]"}, nil, nil, []string{"M[1]", "T"}},
		{"a map of graphs", graph(kahn.Node{ID: "M", Params: map[string]any{"l": []int{1, 2}}, Map: &kahn.Map{Over: "l"}, Sub: inner()}, after("T", "M")), []string{"M[1]/y"}, nil, nil, []string{"M[1]/y", "M[1]/z", "T"}},
		{"a loop", graph(kahn.Node{ID: "L", Sub: inner(), Loop: &kahn.Loop{MaxIterations: 3, OnLimit: kahn.LoopStop, While: again, Collect: true}}, after("T", "L")), []string{"L#2/y"}, nil, nil, []string{"L#2/y", "L#2/z", "L#3/w", "L#3/x", "L#3/y", "L#3/z", "T"}},
		{"a named node", graph(subgraph("S", inner()), after("T", "S")), []string{"S/y", "S/w"}, []string{"S/w"}, nil, []string{"S/w"}},
		{"a named item", graph(mapped("M", []int{1, 2, 3}, kahn.Map{}), after("T", "M")), nil, []string{"M[2]"}, nil, []string{"M[2]", "T"}},
		{"a named composite that failed", graph(subgraph("S", inner()), after("T", "S")), []string{"S/y"}, []string{"S"}, nil, []string{"S/y", "S/z", "T"}},
		{"anew", graph(subgraph("S", inner()), after("T", "S")), []string{"S/y"}, []string{"S"}, []kahn.Option{kahn.Anew}, []string{"S/w", "S/x", "S/y", "S/z", "T"}},
		{"a completed composite", graph(subgraph("S", inner()), after("T", "S")), nil, []string{"S"}, nil, []string{"S/w", "S/x", "S/y", "S/z", "T"}},
		{"a degraded map", graph(mapped("M", []int{1, 2, 3}, kahn.Map{ToleratedCount: 2}), after("T", "M")), []string{"M[1]"}, []string{"M"}, nil, []string{"M[1]", "T"}},
		{"a degraded map that is not named", graph(mapped("M", []int{1, 2, 3}, kahn.Map{ToleratedCount: 2}), after("T", "M")), []string{"M[1]"}, nil, nil, []string{}},
		{"an iteration", graph(kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 3, OnLimit: kahn.LoopStop, While: again, Collect: true}}, after("T", "L")), nil, []string{"L#2"}, nil, []string{"L#2/x", "L#3/x", "T"}},
		{"two iterations", graph(kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 3, OnLimit: kahn.LoopStop, While: again, Collect: true}}, after("T", "L")), nil, []string{"L#2", "L#3"}, nil, []string{"L#2/x", "L#3/x", "T"}},
		{"two iterations, the later one first", graph(kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 3, OnLimit: kahn.LoopStop, While: again, Collect: true}}, after("T", "L")), nil, []string{"L#3", "L#2"}, nil, []string{"L#2/x", "L#3/x", "T"}},
		{"a composite and a node inside", graph(subgraph("S", inner())), nil, []string{"S", "S/x"}, nil, []string{"S/w", "S/x", "S/y", "S/z"}},
		{"a failed composite and a node inside", graph(subgraph("S", inner())), []string{"S/y"}, []string{"S", "S/w"}, nil, []string{"S/w", "S/y", "S/z"}},
		{"a map and an item", graph(mapped("M", []int{1, 2}, kahn.Map{})), nil, []string{"M[1]", "M"}, nil, []string{"M[0]", "M[1]"}},
		{"anew, with a node in an iteration", graph(kahn.Node{ID: "L", Sub: graph(after("x"), after("w")), Loop: &kahn.Loop{MaxIterations: 2, OnLimit: kahn.LoopStop, While: again}}), []string{"L#2/x"},
			[]string{"L", "L#2/x"}, []kahn.Option{kahn.Anew}, []string{"L#1/w", "L#1/x", "L#2/w", "L#2/x"}},
		{"a node that a step in a loop has returned", graph(kahn.Node{ID: "L", Sub: graph(after("X")), Loop: &kahn.Loop{MaxIterations: 1, OnLimit: kahn.LoopStop, While: again}}), nil,
			[]string{"L#1/X/y"}, nil, []string{"L#1/X", "L#1/X/y", "L#1/X/z"}},
		{"a node that a step inside has returned, anew", graph(subgraph("S", graph(after("X")))), nil, []string{"S", "S/X/y"}, []kahn.Option{kahn.Anew}, []string{"S/X", "S/X/w", "S/X/x", "S/X/y", "S/X/z"}},
		{"an iteration in a graph that a step has returned", graph(after("XL")), nil, []string{"XL/L#2"}, nil, []string{"XL", "XL/L#2/x"}},
		{"no such iteration in a graph that a step has returned", graph(after("XL")), nil, []string{"XL/L#02"}, nil, nil},
		{"a node in a graph that a step has returned, anew", graph(after("X")), nil, []string{"X", "X/y"}, []kahn.Option{kahn.Anew}, []string{"X", "X/w", "X/x", "X/y", "X/z"}},
		{"no item of an empty list", graph(mapped("M", []int{}, kahn.Map{})), nil, []string{"M[0]"}, nil, nil},
		{"another way to write a number", graph(mapped("M", []int{1, 2, 3}, kahn.Map{})), nil, []string{"M[01]"}, nil, nil},
		{"a node in a map of steps", graph(mapped("M", []int{1, 2, 3}, kahn.Map{})), nil, []string{"M[1]/x"}, nil, nil},
		{"another way to write the number of an iteration", graph(kahn.Node{ID: "L", Sub: inner(), Loop: &kahn.Loop{MaxIterations: 3, OnLimit: kahn.LoopStop, While: again}}), nil, []string{"L#03"}, nil, nil},
		{"no iteration before the first", graph(kahn.Node{ID: "L", Sub: inner(), Loop: &kahn.Loop{MaxIterations: 3, OnLimit: kahn.LoopStop, While: again}}), nil, []string{"L#0"}, nil, nil},
		{"no node before the first iteration", graph(kahn.Node{ID: "L", Sub: inner(), Loop: &kahn.Loop{MaxIterations: 3, OnLimit: kahn.LoopStop, While: again}}), nil, []string{"L#0/y"}, nil, nil},
		{"no iteration of a negative number", graph(kahn.Node{ID: "L", Sub: inner(), Loop: &kahn.Loop{MaxIterations: 3, OnLimit: kahn.LoopStop, While: again}}), nil, []string{"L#-1/y"}, nil, nil},
		{"a slash at the end", graph(subgraph("S", inner())), nil, []string{"S/"}, nil, nil},
		{"a path into a step", graph(after("x")), nil, []string{"x/y"}, nil, nil},
		{"an empty name", graph(after("x")), nil, []string{""}, nil, nil},
		{"no such item", graph(mapped("M", []int{1, 2, 3}, kahn.Map{})), []string{"M[1]"}, []string{"M[3]"}, nil, nil},
		{"no such node", graph(subgraph("S", inner())), []string{"S/y"}, []string{"S/q"}, nil, nil},
		{"no such iteration", graph(kahn.Node{ID: "L", Sub: inner(), Loop: &kahn.Loop{MaxIterations: 3, While: again}}), []string{"L#2/y"}, []string{"L#3"}, nil, nil},
	} {
		for _, where := range []string{"in memory", "from JSON", "in a store"} {
			inBubble(t, row.name+", "+where, func(t *testing.T) {
				var opts []kahn.Option
				db := new(store.Memory)
				if where == "in a store" {
					opts = []kahn.Option{kahn.Durable(db), kahn.RunID("r")}
				}
				broken := row.broken
				var c paths
				step := c.count(func(ctx context.Context, s *kahn.Step) (any, error) {
					switch s.ID() {
					case "X":
						return nil, kahn.Expand(inner(), nil, nil)
					case "XL":
						return nil, kahn.Expand(graph(kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 2, OnLimit: kahn.LoopStop, While: again}}), nil, nil)
					}
					return breaks(broken...)(ctx, s)
				})
				r := try(t, row.g, step, opts...)
				before := r.Status
				broken, c = nil, paths{}
				s := r.Snapshot()
				switch where {
				case "from JSON":
					s = reload(t, s)
				case "in a store":
					s = nil
				}
				time.Sleep(time.Second)
				if row.calls == nil {
					_, err := kahn.Execute(t.Context(), row.g, step, append(append(opts, kahn.Redrive(s, row.names)), row.opts...)...)
					require.ErrorIs(t, err, kahn.ErrUnknownNode)
					return
				}
				r = r.goOn(row.g, step, append(append(opts, kahn.Redrive(s, row.names)), row.opts...))
				want := map[string]int{}
				for _, p := range row.calls {
					want[p]++
				}
				if len(want) == 0 {
					want = nil
				}
				require.Equal(t, want, c.n)
				if len(row.broken) < 2 && before != kahn.RunCompleted {
					require.Equal(t, kahn.RunCompleted, r.Status)
				}
				if where == "in a store" {
					counted(t, db)
				}
			})
		}
	}
}

// Modes can be passed as separate options or combined by |. An unknown mode, or a mode for another kind of run, is refused.
func TestRedriveModes(t *testing.T) {
	t.Parallel()
	g := graph(subgraph("S", graph(after("x"), after("y", "x"))), after("T", "S"), kahn.Node{ID: "A", ContinueOnFail: true})
	res, err := kahn.Execute(t.Context(), g, breaks("S/y"))
	require.Error(t, err)
	for _, modes := range [][]kahn.Option{
		{kahn.KeepDescendants, kahn.Anew}, {kahn.Anew | kahn.KeepDescendants}, {kahn.KeepDescendants | kahn.DespiteHandlers, kahn.Anew | kahn.KeepDescendants},
	} {
		var c paths
		next, err := kahn.Execute(t.Context(), g, c.count(takes(0)), append(modes, kahn.Redrive(res.Snapshot(), []string{"S"}))...)
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, next.Status)
		require.Equal(t, map[string]int{"S/x": 1, "S/y": 1, "T": 1}, c.n)
	}
	redrive, fork := kahn.Redrive(res.Snapshot(), nil), kahn.Fork(res.Snapshot())
	for name, opts := range map[string][]kahn.Option{
		"none": {redrive, kahn.RedriveMode(0)}, "unknown": {redrive, kahn.RedriveMode(32)}, "unknown among known": {redrive, kahn.Anew | 128},
		"of a fork": {fork, kahn.Anew | kahn.KeepDescendants}, "of a resumption": {kahn.Resume(res.Snapshot()), kahn.Anew}, "of a run": {kahn.DespiteHandlers},
	} {
		_, err := kahn.Execute(t.Context(), g, neverStep(t), opts...)
		require.ErrorIs(t, err, kahn.ErrBadOption, name)
	}
}

// The modes of a Runner's redrive apply only to this redrive: after a redrive with Anew, the next redrive without Anew continues inside
// composites.
func TestRedriveModesOfRunner(t *testing.T) {
	t.Parallel()
	g := graph(subgraph("S", graph(after("x"), after("y", "x"))))
	var c paths
	rn := new(kahn.Runner)
	_, err := rn.Execute(t.Context(), g, c.count(breaks("S/y")), kahn.RunID("r"))
	require.Error(t, err)
	for _, row := range []struct {
		opts []kahn.Option
		want map[string]int
	}{{[]kahn.Option{kahn.Anew}, map[string]int{"S/x": 1, "S/y": 1}}, {nil, map[string]int{"S/y": 1}}} {
		c.n = nil
		run, err := rn.Redrive(t.Context(), "r", []string{"S"}, kahn.Request{}, row.opts...)
		require.NoError(t, err)
		_, err = run.Wait()
		require.Error(t, err)
		require.Equal(t, row.want, c.n)
	}
}

// A few of the 10,000 items of a map in a store fail. The redrive calls only these items. The first write of the redrive, which resets
// these items, is as large as for a map with few items.
func TestRedriveOfManyItems(t *testing.T) {
	t.Parallel()
	redrive := func(t *testing.T, items, failures int) (calls, first int) {
		db := new(journal)
		opts := []kahn.Option{kahn.Durable(db), kahn.RunID("r"), kahn.Limit(64)}
		list := make([]string, items)
		for i := range list {
			list[i] = "the quick brown fox jumps over the lazy dog"
		}
		broken := true
		step := func(_ context.Context, s *kahn.Step) (any, error) {
			calls++
			if broken && s.Index()%(items/failures) == 7 {
				return nil, errStep
			}
			return nil, nil
		}
		locked := kahn.StepFunc(step)
		var mu sync.Mutex
		g := graph(mapped("M", list, kahn.Map{}))
		serial := func(ctx context.Context, s *kahn.Step) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			return locked(ctx, s)
		}
		res, err := kahn.Execute(t.Context(), g, serial, opts...)
		require.Error(t, err)
		require.Equal(t, kahn.RunFailed, res.Status)
		before := db.len()
		broken, calls = false, 0
		res, err = kahn.Execute(t.Context(), g, serial, append(opts, kahn.Redrive(nil, nil))...)
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
		counted(t, db)
		data, err := json.Marshal(db.writes[before])
		require.NoError(t, err)
		return calls, len(data)
	}
	calls, small := redrive(t, 100, 1)
	require.Equal(t, 1, calls)
	calls, large := redrive(t, 10_000, 1)
	require.Equal(t, 1, calls)
	require.Less(t, large, small+250, "the first write grows with the items")
	calls, _ = redrive(t, 10_000, 100)
	require.Equal(t, 100, calls)
}

// conflicting is a store that refuses one commit once it is switched on.
type conflicting struct {
	store.Memory
	on    bool
	n, at int
}

func (s *conflicting) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if s.on {
		if s.n++; s.n == s.at {
			return store.Conflict, nil
		}
	}
	return s.Memory.Commit(ctx, l, c)
}

// A redrive that continues inside a composite ends if the store refuses any write of the redrive.
func TestRedriveInsideRefusedByTheStore(t *testing.T) {
	t.Parallel()
	for at := 1; at <= 4; at++ {
		inBubble(t, fmt.Sprint("write ", at), func(t *testing.T) {
			s := &conflicting{at: at}
			g := graph(subgraph("S", graph(after("x"))), after("b", "S"))
			opts := []kahn.Option{kahn.Durable(s), kahn.RunID("r")}
			res, _ := kahn.Execute(t.Context(), g, breaks("S/x"), opts...)
			require.Equal(t, kahn.RunFailed, res.Status)
			s.on = true
			res, err := kahn.Execute(t.Context(), g, takes(ms), append(opts, kahn.Redrive(nil, nil))...)
			require.ErrorIs(t, err, kahn.ErrStore)
			require.Equal(t, kahn.RunFailed, res.Status)
		})
	}
}

// A step returns a graph, in which a step returns a graph. Each redrive continues inside the innermost graph.
func TestRedriveExpandedInExpanded(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"in memory", "from JSON", "in a store"} {
		inBubble(t, where, func(t *testing.T) {
			db := new(store.Memory)
			var opts []kahn.Option
			if where == "in a store" {
				opts = []kahn.Option{kahn.Durable(db), kahn.RunID("r")}
			}
			broken := []string{"X/X/y", "X/X/z"}
			var c paths
			step := c.count(func(ctx context.Context, s *kahn.Step) (any, error) {
				switch s.Path() {
				case "X":
					return nil, kahn.Expand(graph(after("a"), after("X", "a"), after("b", "X")), nil, nil)
				case "X/X":
					return nil, kahn.Expand(graph(after("x"), after("y", "x"), after("z", "y")), nil, nil)
				}
				return breaks(broken...)(ctx, s)
			})
			g := graph(after("X"))
			r := try(t, g, step, opts...)
			for _, want := range [][]string{{"X", "X/X", "X/X/y", "X/X/z"}, {"X", "X/X", "X/X/z", "X/b"}} {
				require.Equal(t, kahn.RunFailed, r.Status)
				time.Sleep(time.Second)
				broken, c = broken[1:], paths{}
				s := r.Snapshot()
				switch where {
				case "from JSON":
					s = reload(t, s)
				case "in a store":
					s = nil
				}
				r = r.goOn(g, step, append(opts, kahn.Redrive(s, nil)))
				c.once(t, want...)
				if where == "in a store" {
					counted(t, db)
				}
			}
			require.Equal(t, kahn.RunCompleted, r.Status)
		})
	}
}

// A redrive begins a loop again with a given iteration. Whether the loop is degraded depends on the kept iterations before it and on the new
// iterations.
func TestRedriveDegradedLoop(t *testing.T) {
	t.Parallel()
	again := func(kahn.View) (bool, error) { return true, nil }
	body := graph(kahn.Node{ID: "x", ContinueOnFail: true}, kahn.Node{ID: "y", Join: kahn.AllDone, After: []string{"x"}})
	g := graph(kahn.Node{ID: "L", Sub: body, Loop: &kahn.Loop{MaxIterations: 3, OnLimit: kahn.LoopStop, While: again, Collect: true}})
	for name, row := range map[string]struct {
		broken   string
		from     string
		degraded bool
	}{
		"the first, from the first":   {"L#1/x", "L#1", false},
		"the first, from the second":  {"L#1/x", "L#2", true},
		"the second, from the first":  {"L#2/x", "L#1", false},
		"the second, from the second": {"L#2/x", "L#2", false},
		"the second, from the third":  {"L#2/x", "L#3", true},
		"the third, from the third":   {"L#3/x", "L#3", false},
	} {
		inBubble(t, name, func(t *testing.T) {
			db := new(store.Memory)
			for where, opts := range map[string][]kahn.Option{"JSON": nil, "a store": {kahn.Durable(db), kahn.RunID("r")}} {
				res, err := kahn.Execute(t.Context(), g, breaks(row.broken), opts...)
				require.NoError(t, err)
				require.True(t, res.Degraded, where)
				s := reload(t, res.Snapshot())
				if opts != nil {
					s = nil
				}
				res, err = kahn.Execute(t.Context(), g, nop, append(opts, kahn.Redrive(s, []string{row.from}))...)
				require.NoError(t, err)
				require.Equal(t, row.degraded, res.Degraded, where)
			}
		})
	}
}

// A waiting run may be redriven. If a node that waited runs again, it waits for an answer again, and the events report the new wait.
func TestRedriveOfAWaitingRun(t *testing.T) {
	t.Parallel()
	asks := func() *kahn.Graph { return graph(after("x"), gate("g", "x"), after("y", "g"), after("w")) }
	for name, row := range map[string]struct {
		g      *kahn.Graph
		names  []string
		calls  []string
		waits  []string
		answer map[string]any
		then   []string
	}{
		"a gate":                 {asks(), []string{"g"}, nil, []string{"g"}, map[string]any{"g": 1}, []string{"y"}},
		"what is before a gate":  {asks(), []string{"x"}, []string{"x"}, []string{"g"}, map[string]any{"g": 1}, []string{"y"}},
		"beside a gate":          {asks(), []string{"w"}, []string{"w"}, []string{"g"}, map[string]any{"g": 1}, []string{"y"}},
		"a gate inside":          {graph(subgraph("S", asks()), after("T", "S")), []string{"S/g"}, nil, []string{"S/g"}, map[string]any{"S/g": 1}, []string{"S/y", "T"}},
		"before a gate inside":   {graph(subgraph("S", asks()), after("T", "S")), []string{"S/x"}, []string{"S/x"}, []string{"S/g"}, map[string]any{"S/g": 1}, []string{"S/y", "T"}},
		"beside a gate inside":   {graph(subgraph("S", asks()), after("T", "S")), []string{"S/w"}, []string{"S/w"}, []string{"S/g"}, map[string]any{"S/g": 1}, []string{"S/y", "T"}},
		"around a gate inside":   {graph(after("a"), subgraph("S", asks(), "a")), []string{"a"}, []string{"S/w", "S/x", "a"}, []string{"S/g"}, map[string]any{"S/g": 1}, []string{"S/y"}},
		"an item with a gate":    {graph(kahn.Node{ID: "M", Params: map[string]any{"l": []int{1, 2}}, Map: &kahn.Map{Over: "l"}, Sub: asks()}), []string{"M[1]/x"}, []string{"M[1]/x"}, []string{"M[0]/g", "M[1]/g"}, map[string]any{"M[0]/g": 1, "M[1]/g": 1}, []string{"M[0]/y", "M[1]/y"}},
		"another item":           {graph(kahn.Node{ID: "M", Params: map[string]any{"l": []int{1, 2}}, Map: &kahn.Map{Over: "l"}, Sub: asks()}), []string{"M[0]"}, []string{"M[0]/w", "M[0]/x"}, []string{"M[0]/g", "M[1]/g"}, map[string]any{"M[0]/g": 1, "M[1]/g": 1}, []string{"M[0]/y", "M[1]/y"}},
		"an iteration":           {graph(kahn.Node{ID: "L", Sub: asks(), Loop: &kahn.Loop{MaxIterations: 1, Until: func(kahn.View) (bool, error) { return true, nil }}}), []string{"L#1"}, []string{"L#1/w", "L#1/x"}, []string{"L#1/g"}, map[string]any{"L#1/g": 1}, []string{"L#1/y"}},
		"a graph that is made":   {graph(after("X")), []string{"X/x"}, []string{"X", "X/x"}, []string{"X/g"}, map[string]any{"X/g": 1}, []string{"X/y"}},
		"a node before such one": {graph(after("a"), after("X", "a")), []string{"a"}, []string{"X", "X/w", "X/x", "a"}, []string{"X/g"}, map[string]any{"X/g": 1}, []string{"X/y"}},
	} {
		for _, where := range []string{"in memory", "from JSON", "in a store"} {
			inBubble(t, name+", "+where, func(t *testing.T) {
				var opts []kahn.Option
				if where == "in a store" {
					opts = []kahn.Option{kahn.Durable(new(store.Memory)), kahn.RunID("r")}
				}
				var c paths
				step := c.count(func(_ context.Context, s *kahn.Step) (any, error) {
					if s.ID() == "X" {
						return nil, kahn.Expand(asks(), nil, nil)
					}
					return s.ID(), nil
				})
				r := pause(t, row.g, step, opts...)
				require.Equal(t, kahn.RunSuspended, r.Status)
				c = paths{}
				s := r.Snapshot()
				switch where {
				case "from JSON":
					s = reload(t, s)
				case "in a store":
					s = nil
				}
				time.Sleep(time.Second)
				r = r.goOn(row.g, step, append(opts, kahn.Redrive(s, row.names)))
				c.once(t, row.calls...)
				require.Equal(t, row.waits, waitIDs(r.Waiting))
				c = paths{}
				last := []kahn.Option{kahn.EarlySignals(row.answer)}
				if where != "in a store" {
					last = append(last, kahn.Resume(reload(t, r.Snapshot())))
				}
				r = r.goOn(row.g, step, append(opts, last...))
				require.Equal(t, kahn.RunCompleted, r.Status)
				then := row.then
				if len(then) > 0 && then[0] == "X/y" {
					then = append([]string{"X"}, then...)
				}
				c.once(t, then...)
			})
		}
	}
}

// A loop that pauses has not begun its next iteration. A redrive or a fork may name nodes of that iteration: these nodes run as if
// they had not been named.
func TestRedriveOfALoopThatPauses(t *testing.T) {
	t.Parallel()
	again := func(kahn.View) (bool, error) { return true, nil }
	g := graph(kahn.Node{ID: "L", Sub: graph(after("x"), after("y", "x")), Loop: &kahn.Loop{MaxIterations: 2, OnLimit: kahn.LoopStop, While: again, Pause: time.Hour}})
	for _, where := range []string{"in memory", "from JSON", "in a store"} {
		for name, redo := range map[string]func(s *kahn.Snapshot, names ...string) []kahn.Option{
			"redrive": func(s *kahn.Snapshot, names ...string) []kahn.Option { return []kahn.Option{kahn.Redrive(s, names)} },
			"fork":    func(s *kahn.Snapshot, names ...string) []kahn.Option { return []kahn.Option{kahn.Fork(s, names...)} },
		} {
			inBubble(t, name+", "+where, func(t *testing.T) {
				db, opts := new(store.Memory), []kahn.Option(nil)
				if where == "in a store" {
					opts = []kahn.Option{kahn.Durable(db), kahn.RunID("r")}
				}
				var c paths
				step := c.count(nothing)
				run, err := kahn.Start(t.Context(), g, step, opts...)
				require.NoError(t, err)
				time.Sleep(time.Minute)
				run.Leave()
				res, err := run.Wait()
				require.NoError(t, err)
				require.Equal(t, kahn.RunSuspended, res.Status)
				c.once(t, "L#1/x", "L#1/y")
				s := res.Snapshot()
				switch {
				case where == "from JSON":
					s = reload(t, s)
				case where == "in a store" && name == "fork":
					s, err = kahn.ReadSnapshot(t.Context(), db, "r")
					require.NoError(t, err)
					opts[1] = kahn.RunID("fork")
				case where == "in a store":
					s = nil
				}
				for _, path := range []string{"L#2/q", "L#3/x", "L#02/x"} {
					_, err = kahn.Execute(t.Context(), g, step, append(opts, redo(s, path)...)...)
					require.ErrorIs(t, err, kahn.ErrUnknownNode, path)
				}
				c = paths{}
				_, err = kahn.Execute(t.Context(), g, step, append(opts, redo(s, "L#2/y")...)...)
				require.NoError(t, err)
				c.once(t, "L#2/x", "L#2/y")
			})
		}
	}
}

// A path may name a node in an item that starts again or has never started, even if the node is deeper inside, in a composite of the item.
func TestRedrivePathsIntoItemsThatBeginAnew(t *testing.T) {
	t.Parallel()
	list := map[string]any{"l": []int{1, 2}}
	inner := graph(kahn.Node{ID: "K", Params: list, Map: &kahn.Map{Over: "l"}, Sub: graph(kahn.Node{ID: "x"})}, kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "y"})})
	g := graph(kahn.Node{ID: "M", Params: list, Map: &kahn.Map{Over: "l", Limit: 1, FailFast: true}, Sub: inner})
	res, err := kahn.Execute(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) { return nil, errors.New("broken") })
	require.Error(t, err)
	p := compiled(t, g)
	for _, path := range []string{"M[1]/K", "M[1]/K[0]", "M[1]/K[1]/x", "M[1]/S/y", "M[0]/K[0]/x"} {
		for _, modes := range [][]kahn.Option{nil, {kahn.Anew}} {
			list, err := kahn.RedrivePreview(p, res.Snapshot(), []string{path}, modes...)
			require.NoError(t, err, path)
			require.NotEmpty(t, list, path)
		}
	}
	for _, path := range []string{"M[1]/K[0]/y", "M[1]/S/x", "M[1]/L", "M[1]/K#1"} {
		_, err := kahn.RedrivePreview(p, res.Snapshot(), []string{path})
		require.ErrorIs(t, err, kahn.ErrUnknownNode, path)
	}
}

// If a redrive continues inside a node, the node's Duration starts from 0, and is not negative before the node's step has returned the graph
// again.
func TestRedriveInsideStartsAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ends := errStep
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "X" {
				return nil, kahn.Expand(graph(after("y")), nil, nil)
			}
			_, _ = takes(time.Second)(ctx, s)
			return nil, ends
		}
		g := graph(kahn.Node{ID: "first", Priority: 1}, after("X"))
		res, err := kahn.Execute(t.Context(), g, step, kahn.Limit(1))
		require.Error(t, err)
		ends = nil
		time.Sleep(time.Minute)
		begun := time.Now()
		run, err := kahn.Start(t.Context(), g, step, kahn.Limit(1), kahn.Redrive(reload(t, res.Snapshot()), nil))
		require.NoError(t, err)
		time.Sleep(ms)
		n, err := run.Node("X")
		require.NoError(t, err)
		require.Equal(t, []any{kahn.Ready, 1, begun, time.Duration(0)}, []any{n.Status, n.Attempts, n.Start, n.Duration})
		_, err = run.Wait()
		require.NoError(t, err)
	})
}

// Nodes that had not ended inside a failed expanded node start again, too: their attempts count from 1.
func TestRedriveUnendedInsideExpanded(t *testing.T) {
	inBubble(t, "a running step", func(t *testing.T) {
		plans := func(y kahn.StepFunc) kahn.StepFunc {
			return expands(takes(10*ms), expansions{"E": graph(after("x"), kahn.Node{ID: "y", Do: y})})
		}
		g := graph(after("E"))
		res, err := resumeRun(t, t.Context(), g, fails(0), crashed(t, g, plans(fails(0)), 5*ms), nil) // the step does not return its graph again
		require.ErrorIs(t, err, errStep)
		res, err = executeRun(t, t.Context(), g, plans(fails(0)), kahn.Redrive(reload(t, res.Snapshot()), nil))
		require.ErrorIs(t, err, errStep)
		require.Equal(t, 1, statusAt(res, "E/x").Attempts)
	})
}

// Snapshots of former versions lack the list of a map that has ended. A redrive of this map begins the map anew, also after a later life.
func TestRedriveOfAMapWithoutItsList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c paths
		g := graph(mapped("M", numbers(2), kahn.Map{}), gate("G"))
		r := pause(t, g, c.count(breaks("M[1]")))
		data, err := json.Marshal(r.Snapshot())
		require.NoError(t, err)
		list := regexp.MustCompile(`,"list":\{[^}]*\}`)
		require.Len(t, list.FindAll(data, -1), 1, string(data))
		var former kahn.Snapshot
		require.NoError(t, json.Unmarshal(list.ReplaceAll(data, nil), &former))
		res, err := kahn.Execute(t.Context(), g, neverStep(t), kahn.Resume(&former), kahn.EarlySignals(map[string]any{"G": 1}))
		require.ErrorContains(t, err, "1 of 2 items failed")
		c.n = nil
		res, err = kahn.Execute(t.Context(), g, c.count(nop), kahn.Redrive(res.Snapshot(), nil))
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
		c.once(t, "M[0]", "M[1]")
	})
}

// TestRedriveFromAForgottenIteration: a loop without Collect keeps only the outputs of its first and last iterations. The error names the
// iteration whose output is missing.
func TestRedriveFromAForgottenIteration(t *testing.T) {
	t.Parallel()
	again := func(kahn.View) (bool, error) { return true, nil }
	g := graph(kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 5, OnLimit: kahn.LoopStop, While: again}})
	res, err := kahn.Execute(t.Context(), g, nop)
	require.NoError(t, err)
	_, err = kahn.Execute(t.Context(), g, nop, kahn.Redrive(res.Snapshot(), []string{"L#4"}))
	require.ErrorIs(t, err, kahn.ErrBadOption)
	require.ErrorContains(t, err, `the output of iteration 3 of loop "L" is no longer known`)
	for _, name := range []string{"L#1", "L#5"} {
		_, err = kahn.Execute(t.Context(), g, nop, kahn.Redrive(res.Snapshot(), []string{name}))
		require.NoError(t, err, name)
	}
}

// A gate was waiting inside an expanded node that failed. After a redrive the gate waits its full time again, and events report the wait.
func TestRedriveGateInsideFailedExpansion(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("stored %v", stored), func(t *testing.T) {
			asks := gate("g")
			asks.Gate = &kahn.Gate{Timeout: time.Hour}
			plans, g, db := expands(nothing, expansions{"E": graph(asks)}), graph(after("E")), new(store.Memory)
			var opts, how []kahn.Option
			if stored {
				opts = []kahn.Option{kahn.Durable(db), kahn.RunID("r")}
			}
			r := pause(t, g, plans, opts...)
			next := opts
			if !stored {
				next = []kahn.Option{kahn.Resume(reload(t, r.Snapshot()))}
			}
			r = r.goOn(g, fails(0), slices.Clone(next)) // the step does not return its graph again
			r.expect("E:F", "failed")
			list, err := kahn.RedrivePreview(compiled(t, g), reload(t, r.Snapshot()), nil)
			require.NoError(t, err)
			require.Equal(t, []string{"E", "E/g"}, list)
			time.Sleep(30 * time.Minute)
			begun := time.Now()
			if how = append(slices.Clone(opts), kahn.Redrive(nil, nil)); !stored {
				how = []kahn.Option{kahn.Redrive(reload(t, r.Snapshot()), nil)}
			}
			r = r.goOn(g, plans, how)
			require.Equal(t, kahn.RunSuspended, r.Status)
			require.Len(t, r.Waiting, 1)
			require.Equal(t, time.Hour, r.Waiting[0].Deadline.Sub(begun))
			r.count(event.NodeSuspended, "E/g", 2)
			if how = opts; !stored {
				how = []kahn.Option{kahn.Resume(reload(t, r.Snapshot()))}
			}
			r = r.goOn(g, plans, append(slices.Clone(how), kahn.EarlySignals(map[string]any{"E/g": "yes"})))
			r.expect("E:ok", "completed")
			if stored {
				counted(t, db)
			}
		})
	}
}

// A redrive of a run that has not ended names nodes inside composites that cannot continue inside: one backs off, so it begins again at once, and
// one has not begun.
func TestRedriveBeforeTheEnd(t *testing.T) {
	inBubble(t, "before the end", func(t *testing.T) {
		var mu sync.Mutex
		var calls []string
		began := time.Now()
		step := func(_ context.Context, s *kahn.Step) (any, error) {
			mu.Lock()
			calls = append(calls, fmt.Sprint(time.Since(began), " ", s.Path(), " ", s.Attempt()))
			mu.Unlock()
			if s.ID() == "x" && time.Since(began) < time.Second {
				return nil, errStep
			}
			time.Sleep(time.Minute)
			return 1, nil
		}
		retry := kahn.Retry{MaxAttempts: 3, InitialDelay: time.Hour, Jitter: kahn.JitterNone}
		g := graph(kahn.Node{ID: "S", Sub: graph(after("x")), Retry: retry}, after("a"), kahn.Node{ID: "T", Sub: graph(after("y")), After: []string{"a"}})
		run, err := kahn.Start(t.Context(), g, step)
		require.NoError(t, err)
		time.Sleep(time.Second)
		snapshot := reload(t, run.Snapshot())
		_ = run.Cancel()
		_, _ = run.Wait()
		calls, began = nil, time.Now().Add(-time.Second)
		_, err = kahn.Execute(t.Context(), g, step, kahn.Redrive(snapshot, []string{"S/x", "T/y"}))
		require.NoError(t, err)
		require.Equal(t, []string{"1m1s T/y 1", "1s S/x 1", "1s a 2"}, slices.Sorted(slices.Values(calls)))
	})
}

// A redrive inside a map forgets the answers of the gates that wait again, and no others: such an answer counts once more under the same ID.
func TestRedriveForgetsAnswersInMaps(t *testing.T) {
	for _, stored := range []bool{false, true} {
		inBubble(t, fmt.Sprint("stored ", stored), func(t *testing.T) {
			bad := true
			step := func(_ context.Context, s *kahn.Step) (any, error) {
				if bad && s.Path() == "M[1]/S/x" {
					return nil, errStep
				}
				return 1, nil
			}
			inner := graph(subgraph("S", graph(kahn.Node{ID: "G", Kind: kahn.KindGate}, after("x", "G"))))
			g := graph(kahn.Node{ID: "M", Params: map[string]any{"l": []int{1, 2}}, Map: &kahn.Map{Over: "l"}, Sub: inner})
			opts := []kahn.Option{kahn.RunID("r")}
			if stored {
				opts = append(opts, kahn.Durable(new(store.Memory)))
			}
			answer := func(run *kahn.Run, i int) error {
				return run.Signal(t.Context(), fmt.Sprintf("M[%d]/S/G", i), kahn.Decision{ID: fmt.Sprint("answer ", i), Value: "approved"})
			}
			run, err := kahn.Start(t.Context(), g, step, opts...)
			require.NoError(t, err)
			synctest.Wait()
			for i := range 2 {
				require.NoError(t, answer(run, i))
			}
			res, err := run.Wait()
			require.ErrorIs(t, err, errStep)
			bad = false
			from := reload(t, res.Snapshot())
			if stored {
				from = nil
			}
			run, err = kahn.Start(t.Context(), g, step, append(opts, kahn.Redrive(from, []string{"M[1]/S/G"}))...)
			require.NoError(t, err)
			synctest.Wait()
			require.NoError(t, answer(run, 0), "it is known, and changes nothing")
			require.Len(t, run.Waiting(), 1)
			require.Equal(t, "M[1]/S/G", run.Waiting()[0].Node)
			require.NoError(t, answer(run, 1))
			_, err = run.Wait()
			require.NoError(t, err)
			require.Equal(t, kahn.RunCompleted, run.Status())
		})
	}
}

// A composite that continues inside after a redrive has the attempts of its policy again, and the redrive begins the first of them.
func TestAttemptsOfACompositeThatContinuesInside(t *testing.T) {
	inBubble(t, "attempts", func(t *testing.T) {
		g := graph(kahn.Node{ID: "S", Sub: graph(after("x")), Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: ms}})
		calls := 0
		step := func(context.Context, *kahn.Step) (any, error) { calls++; return nil, errStep }
		res, err := kahn.Execute(t.Context(), g, step)
		require.ErrorIs(t, err, errStep)
		require.Equal(t, 3, calls)
		calls = 0
		_, err = kahn.Execute(t.Context(), g, step, kahn.Redrive(reload(t, res.Snapshot()), []string{"S/x"}))
		require.ErrorIs(t, err, errStep)
		require.Equal(t, 3, calls)
	})
}
