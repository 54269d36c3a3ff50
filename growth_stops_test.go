package kahn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestGrowthOfStops stops a run n times while n steps run, which return one after the other. If all nodes are already stopped, a stop does not
// visit them again.
func TestGrowthOfStops(t *testing.T) {
	t.Parallel()
	fan := func(n int) *kahn.Graph {
		g := graph(after("Z", "n0")) // Z is stopped, regardless of the results of the steps
		for i := range n {
			g.Add(kahn.Node{ID: fmt.Sprint("n", i)})
		}
		return g
	}
	sub := func(n int) *kahn.Graph { return graph(subgraph("S", fan(n))) }
	items := func(n int) *kahn.Graph {
		return graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": make([]int, n)}}, after("Z", "M"))
	}
	subs := func(n int) *kahn.Graph {
		g := &kahn.Graph{}
		for i := range n {
			g.Add(subgraph(fmt.Sprint("S", i), graph(after("x"), after("y", "x"))))
		}
		return g
	}
	type asks func(run *kahn.Run, cancel func())
	ends := func(_ *kahn.Run, cancel func()) { cancel() }
	cancels := func(run *kahn.Run, _ func()) { run.Cancel() }
	aborts := func(run *kahn.Run, _ func()) { run.AbortAll(errHost) }
	for _, row := range []struct {
		name  string
		make  func(n int) *kahn.Graph
		first asks // calls while all steps run
		each  asks // calls in each step, before it returns; may be nil
		mode  kahn.StopMode
	}{
		{"the caller's context", fan, ends, nil, kahn.Interrupt},
		{"the caller's context, steps may finish", fan, ends, nil, kahn.Drain},
		{"the caller's context, in a sub-graph", sub, ends, nil, kahn.Interrupt},
		{"the caller's context, in the items of a map", items, ends, nil, kahn.Interrupt},
		{"the caller's context, in many sub-graphs", subs, ends, nil, kahn.Interrupt},
		{"each step cancels", fan, cancels, cancels, kahn.Interrupt},
		{"each step cancels, and may finish", fan, cancels, cancels, kahn.Drain},
		{"each step aborts", fan, aborts, aborts, kahn.Interrupt},
		{"each step aborts what is cancelled", items, cancels, aborts, kahn.Interrupt},
		{"each step cancels what may finish, in many sub-graphs", subs, aborts, cancels, kahn.Drain},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			doubles(t, 50, func(n int) (visits int64) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					g, release, rec := row.make(n), make(chan struct{}), newRecorder()
					var run *kahn.Run
					run, err := kahn.Start(ctx, g, func(context.Context, *kahn.Step) (any, error) {
						<-release
						if row.each != nil {
							row.each(run, cancel)
						}
						return nil, nil
					}, row.mode, kahn.OnEvent(rec.add))
					require.NoError(t, err)
					synctest.Wait()
					row.first(run, cancel)
					for range n {
						release <- struct{}{}
						synctest.Wait()
					}
					res, err := run.Wait()
					require.Error(t, err)
					require.NotEqual(t, kahn.RunCompleted, res.Status)
					checkEvents(t, g, res, rec.all())
					visits = res.EdgeVisits() + run.TreeSteps()
				})
				return visits
			})
		})
	}
}

// TestGrowthOfManyLines has n nodes that need slots and tokens of several groups, and in some cases of a key. One of these is always taken. So
// the slot or token that each node lacks changes repeatedly, and with it the line in which all nodes wait.
func TestGrowthOfManyLines(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		groups []string
		key    func(i int) string // key of the waiting nodes
		rate   kahn.Rate          // rate of the first group
	}{
		"two groups":                   {groups: []string{"g0", "g1"}},
		"three groups":                 {groups: []string{"g0", "g1", "g2"}},
		"two groups and a key of each": {groups: []string{"g0", "g1"}, key: func(i int) string { return fmt.Sprint("k", i) }},
		"a group and a key":            {groups: []string{"g0"}, key: func(int) string { return "k" }},
		"two groups and a key":         {groups: []string{"g0", "g1"}, key: func(int) string { return "k" }},
		"a rate and a group":           {groups: []string{"g0", "g1"}, rate: kahn.Rate{Starts: 1000, Per: time.Second, Burst: 1}},
		"a rate, a group and a key":    {groups: []string{"g0", "g1"}, key: func(int) string { return "k" }, rate: kahn.Rate{Starts: 1000, Per: time.Second, Burst: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			doubles(t, 64, func(n int) (visits int64) {
				synctest.Test(t, func(t *testing.T) {
					g := &kahn.Graph{}
					for _, name := range row.groups {
						g.Groups = append(g.Groups, kahn.Group{Name: name, Limit: 1})
					}
					g.Groups[0].Rate = row.rate
					// Two chains of steps alternately hold what the nodes need, with a pause after each step. Together the chains leave no gap.
					for c, member := range []kahn.Node{{Groups: row.groups[:1]}, {Groups: row.groups[1:]}} {
						if len(row.groups) == 1 && c == 1 {
							member.Groups, member.Key = nil, "k"
						}
						last := kahn.Node{ID: fmt.Sprint("offset", c), Kind: fmt.Sprint(5 * c)}
						g.Add(last)
						for i := range n / 4 {
							step, pause := member, kahn.Node{ID: fmt.Sprint("p", c, " ", i), Kind: "2", Priority: 9}
							step.ID, step.Kind, step.Priority, step.After = fmt.Sprint("x", c, " ", i), "10", 9, []string{last.ID}
							pause.After = []string{step.ID}
							g.Add(step, pause)
							last = pause
						}
					}
					for i := range n {
						d := kahn.Node{ID: fmt.Sprint("d", i), Groups: row.groups}
						if row.key != nil {
							d.Key = row.key(i)
						}
						g.Add(d)
					}
					rec := newRecorder()
					res, err := kahn.Execute(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
						if wait, err := strconv.Atoi(s.Kind()); err == nil {
							time.Sleep(time.Duration(wait) * ms)
						}
						return nil, nil
					}, kahn.KeyLimit(1), kahn.OnEvent(rec.add))
					require.NoError(t, err)
					require.Equal(t, len(g.Nodes()), res.Count(kahn.Completed))
					checkEvents(t, g, res, rec.all())
					visits = res.EdgeVisits()
				})
				return visits
			})
		})
	}
}

// TestGrowthOfHolds lets each of n nodes wait for a signal, while nodes that have not begun are held back: with one slot, or when each node fails
// once and is attempted again.
func TestGrowthOfHolds(t *testing.T) {
	t.Parallel()
	for _, attempts := range []int{1, 2} {
		doubles(t, 50, func(n int) (visits int64) {
			synctest.Test(t, func(t *testing.T) {
				g := &kahn.Graph{}
				for i := range n {
					g.Add(kahn.Node{ID: fmt.Sprint("n", i), Retry: kahn.Retry{MaxAttempts: attempts, InitialDelay: ms, Jitter: kahn.JitterNone}})
				}
				rec := newRecorder()
				run, err := kahn.Start(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
					if v, ok := s.Resumed(); ok {
						return v, nil
					}
					if s.Attempt() < attempts {
						return nil, errStep
					}
					return nil, kahn.Suspend("", nil, nil)
				}, kahn.SuspendStop, kahn.Limit(1), kahn.OnEvent(rec.add))
				require.NoError(t, err)
				for answered := 0; answered < n; {
					time.Sleep(ms)
					synctest.Wait()
					for _, wait := range run.Waiting() {
						require.NoError(t, run.Signal(context.Background(), wait.Node, true))
						answered++
						synctest.Wait()
					}
				}
				res, err := run.Wait()
				require.NoError(t, err)
				require.Equal(t, n, res.Count(kahn.Completed))
				checkEvents(t, g, res, rec.all())
				visits = res.EdgeVisits()
			})
			return visits
		})
	}
}

// weighed is a store that counts the bytes that it writes, without the outputs of nodes: a map's output contains all its items.
type weighed struct {
	store.Memory
	rows, bytes int64
}

func (s *weighed) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	s.rows += int64(len(c.Nodes) + len(c.Reset) + len(c.Readiness) + len(c.Started) + len(c.Completed) + len(c.Ready))
	bare := c
	bare.Nodes = slices.Clone(c.Nodes)
	for i := range bare.Nodes {
		bare.Nodes[i].Value = nil
	}
	data, err := json.Marshal(bare)
	if err != nil {
		return 0, err
	}
	s.bytes += int64(len(data))
	return s.Memory.Commit(ctx, l, c)
}

// TestGrowthOfRedrives redrives one failed node among many completed ones. The work grows with the number of nodes, but the number of written
// bytes does not. The test counts bytes, so it does not run in parallel.
func TestGrowthOfRedrives(t *testing.T) {
	items := func(n int, sub *kahn.Graph) *kahn.Graph {
		return graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": make([]int, n)}, Sub: sub}, after("Z", "M"))
	}
	fan := func(n int) *kahn.Graph {
		g := &kahn.Graph{}
		for i := range n {
			g.Add(after(fmt.Sprint("n", i)))
		}
		return g
	}
	for name, row := range map[string]struct {
		make  func(n int) *kahn.Graph
		bad   string
		names []string
		calls int // calls of the step during the redrive
		size  int
	}{
		"items":                   {func(n int) *kahn.Graph { return items(n, nil) }, "M[7]", nil, 2, 2_500},
		"a named item":            {func(n int) *kahn.Graph { return items(n, nil) }, "M[7]", []string{"M[7]"}, 2, 2_000},
		"items that are graphs":   {func(n int) *kahn.Graph { return items(n, graph(after("x"), after("y", "x"))) }, "M[7]/x", nil, 3, 500},
		"items of a map in a map": {func(n int) *kahn.Graph { return items(2, items(n, nil)) }, "M[1]/M[7]", nil, 3, 1_000},
		"a fan":                   {fan, "n7", nil, 1, 2_000},
		"a fan in a graph":        {func(n int) *kahn.Graph { return graph(subgraph("S", fan(n)), after("Z", "S")) }, "S/n7", nil, 2, 2_000},
		"a fan that a step has given": {func(n int) *kahn.Graph {
			return graph(kahn.Node{ID: "X", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(fan(n), nil, nil) }}, after("Z", "X"))
		}, "X/n7", nil, 2, 2_000},
	} {
		var written [2]int64
		n := size(row.size, row.size/2, 10*row.size) // in the long mode 100,000 items
		doubles(t, n, func(n int) (bytes int64) {
			db, broken := new(weighed), true
			var calls atomic.Int64
			step := func(_ context.Context, s *kahn.Step) (any, error) {
				if calls.Add(1); broken && s.Path() == row.bad {
					return nil, errStep
				}
				return nil, nil
			}
			g, opts := row.make(n), []kahn.Option{kahn.Durable(db), kahn.RunID("r")}
			_, err := kahn.Execute(t.Context(), g, step, opts...)
			require.ErrorIs(t, err, errStep, name)
			broken, db.rows, db.bytes = false, 0, 0
			calls.Store(0)
			bytes, _ = allocated(func() { _, err = kahn.Execute(t.Context(), g, step, append(opts, kahn.Redrive(nil, row.names))...) })
			require.NoError(t, err, name)
			require.EqualValues(t, row.calls, calls.Load(), name)
			t.Log(name, n, bytes, db.rows, db.bytes)
			if written == [2]int64{} {
				written = [2]int64{db.rows, db.bytes}
			}
			require.LessOrEqual(t, db.rows, written[0]+8, "%s: the rows that a redrive writes grow", name) // a few more rows if there are more transactions
			require.LessOrEqual(t, db.bytes, written[1]+1000, "%s: the bytes that a redrive writes grow", name)
			return bytes
		})
	}
}

// Each of n steps expands to a graph in which a compensation fails and a gate then waits. A later process calls each step again to get its graph. The
// work grows with n, although the run lists all n failures. The test counts bytes, so it does not run in parallel.
func TestGrowthOfFailedCompensations(t *testing.T) {
	undone := graph(
		kahn.Node{
			ID: "x", Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil },
			Compensate: func(context.Context, *kahn.Step) error { return errStep }, CompensateRetry: kahn.Retry{MaxAttempts: 1},
		},
		kahn.Node{ID: "y", After: []string{"x"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errStep }},
	)
	inner := graph(subgraph("S", undone), gate("G"))
	inner.Connect(kahn.Edge{From: "S", To: "G", On: kahn.OnFailure})
	doubles(t, size(1000, 500, 5000), func(n int) int64 {
		g := graph()
		for i := range n {
			g.Add(kahn.Node{ID: fmt.Sprint("n", i), Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }})
		}
		opts := []kahn.Option{kahn.Durable(new(store.Memory)), kahn.RunID("r")}
		bytes, _ := allocated(func() {
			for range 2 {
				res, err := kahn.Execute(t.Context(), g, nil, opts...)
				require.NoError(t, err)
				require.Len(t, res.Waiting, n)
			}
		})
		t.Log(n, bytes)
		return bytes
	})
}
