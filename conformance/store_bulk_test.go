package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/bulk"
	"github.com/seed-c794f7ef/kahn/store"
)

// runsOf returns the ids of a report's runs that were not refused, and the errors of the refused runs by id.
func runsOf(r bulk.Report) (done []string, refused map[string]error) {
	refused = map[string]error{}
	for _, x := range r.Runs {
		if x.Err != nil {
			refused[x.Run] = x.Err
		} else {
			done = append(done, x.Run)
		}
	}
	slices.Sort(done)
	return done, refused
}

// everything calls f page after page. It passes only the cursor, as another process could.
func everything(t *testing.T, f func(after string) (bulk.Report, error)) (whole bulk.Report, pages int) {
	t.Helper()
	for {
		r, err := f(whole.Next)
		require.NoError(t, err)
		pages++
		whole.Runs, whole.Next = append(whole.Runs, r.Runs...), r.Next
		if r.Next == "" {
			return whole, pages
		}
	}
}

// A bulk redrive redrives all failed runs of a workflow, each with its own graph. It reports runs that a process is performing, and runs whose
// graph is missing.
func TestBulkRedrive(t *testing.T) {
	t.Parallel()
	inBubble(t, "runs", func(t *testing.T) {
		s := new(served)
		v1, v2, gone := flow("w", kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}}), flow("w", kahn.Node{ID: "c"}), flow("w", kahn.Node{ID: "d"})
		fails := func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("down") }
		begin := func(g *kahn.Graph, step kahn.StepFunc, id string, opts ...kahn.Option) {
			_, err := kahn.Execute(t.Context(), g, step, append(opts, kahn.RunID(id), kahn.Durable(s))...)
			require.Equal(t, id == "well", err == nil)
			time.Sleep(ms)
		}
		for i := range 5 {
			begin(v1, func(ctx context.Context, step *kahn.Step) (any, error) {
				if step.ID() == "b" {
					return nil, errors.New("down")
				}
				return nil, nil
			}, fmt.Sprint("one-", i))
		}
		begin(v2, fails, "two")
		begin(gone, fails, "gone")
		begin(v1, fails, "held")
		begin(v1, nothing, "well")
		_, _, err := s.Memory.Acquire(t.Context(), "held", "somebody", time.Hour)
		require.NoError(t, err)
		redrive := func(dry bool) (bulk.Report, int) {
			return everything(t, func(after string) (bulk.Report, error) {
				return bulk.Redrive(t.Context(), []*kahn.Graph{v1, v2}, s, bulk.Selection{Filter: store.Filter{Workflow: "w"}, Limit: 3, After: after, DryRun: dry}, nil)
			})
		}
		dry, pages := redrive(true)
		done, refused := runsOf(dry)
		require.Equal(t, 3, pages)
		require.Equal(t, []string{"held", "one-0", "one-1", "one-2", "one-3", "one-4", "two"}, done)
		require.ErrorIs(t, refused["gone"], kahn.ErrGraphChanged)
		require.Equal(t, kahn.RunFailed, s.status(t, "two"), "nothing was done")

		whole, _ := redrive(false)
		done, refused = runsOf(whole)
		require.Equal(t, []string{"one-0", "one-1", "one-2", "one-3", "one-4", "two"}, done)
		require.Len(t, refused, 2)
		require.ErrorIs(t, refused["held"], kahn.ErrLeased)
		require.Empty(t, s.take(), "nothing is performed")
		again, _ := redrive(false)
		done, _ = runsOf(again)
		require.Empty(t, done, "they have not ended any more")

		end := serve(t, new(kahn.Runner), s.service(v1, v2))
		time.Sleep(time.Second)
		end()
		got := slices.DeleteFunc(s.take(), func(line string) bool { return line[:4] == "told" })
		require.ElementsMatch(t, []string{"one-0 b", "one-1 b", "one-2 b", "one-3 b", "one-4 b", "two c"}, got)
		require.Equal(t, kahn.RunCompleted, s.status(t, "one-3"))
	})
}

// A bulk cancel cancels runs that are not due yet, runs at rest, and runs that a process is performing.
func TestBulkCancel(t *testing.T) {
	t.Parallel()
	inBubble(t, "runs", func(t *testing.T) {
		s := new(served)
		g := flow("w", kahn.Node{ID: "g", Kind: kahn.KindGate}, kahn.Node{ID: "slow", After: []string{"g"}, Do: takes(time.Hour)}, kahn.Node{ID: "k", Cleanup: true, After: []string{"slow"}})
		s.create(t, g, time.Time{}, "resting", "at work")
		s.create(t, g, time.Now().Add(time.Hour), "pending")
		s.create(t, flow("other", kahn.Node{ID: "g", Kind: kahn.KindGate}), time.Time{}, "other")
		end := serve(t, new(kahn.Runner), s.service(g))
		q, err := kahn.PrepareSignal("g", "yes")
		require.NoError(t, err)
		_, err = s.Post(t.Context(), "at work", q)
		require.NoError(t, err)
		time.Sleep(time.Second)
		cancel := func(dry bool) []string {
			r, err := bulk.Cancel(t.Context(), s, bulk.Selection{Filter: store.Filter{Workflow: "w"}, DryRun: dry}, store.Request{ID: "stop", Actor: "ann"})
			require.NoError(t, err)
			done, refused := runsOf(r)
			require.Empty(t, refused)
			time.Sleep(time.Second)
			return done
		}
		all := []string{"at work", "pending", "resting"}
		require.Equal(t, all, cancel(true))
		require.Equal(t, kahn.RunSuspended, s.status(t, "resting"))
		require.Equal(t, all, cancel(false))
		for _, id := range all {
			require.Equal(t, kahn.RunCancelled, s.status(t, id))
		}
		require.ElementsMatch(t, []string{"resting k", "at work k", "told other: no live process performs its runs"}, s.take())
		require.Equal(t, kahn.RunPending, s.status(t, "other"))
		require.Empty(t, cancel(false))
		end()
	})
}

// A bulk fork forks each run once, however often it is called. The processes that serve the store perform the forks.
func TestBulkFork(t *testing.T) {
	t.Parallel()
	inBubble(t, "runs", func(t *testing.T) {
		s, v1, v2 := new(served), versionOf("small"), versionOf("large")
		for i := range 3 {
			_, err := kahn.Execute(t.Context(), v1, s.step, kahn.RunID(fmt.Sprint("r", i)), kahn.Durable(s), kahn.EarlySignals(map[string]any{"ask": 1}))
			require.NoError(t, err)
		}
		_, err := kahn.Execute(t.Context(), flow("other"), s.step, kahn.RunID("other"), kahn.Durable(s))
		require.NoError(t, err)
		s.take()
		fork := func(dry bool) ([]string, map[string]error) {
			r, err := bulk.Fork(t.Context(), v2, s, bulk.Selection{Filter: store.Filter{Prefix: ""}, DryRun: dry}, func(run string) string { return "fork-" + run }, nil)
			require.NoError(t, err)
			done, refused := runsOf(r)
			require.ErrorIs(t, refused["other"], kahn.ErrGraphChanged)
			return done, refused
		}
		for _, dry := range []bool{true, false, false} {
			done, refused := fork(dry)
			require.Equal(t, []string{"r0", "r1", "r2"}, done)
			require.Len(t, refused, 1)
		}
		require.Empty(t, s.take(), "nothing is performed")
		require.Len(t, s.Runs(), 7)
		end := serve(t, new(kahn.Runner), s.service(v2))
		time.Sleep(time.Second)
		end()
		require.ElementsMatch(t, []string{"fork-r0 draft", "fork-r0 check", "fork-r1 draft", "fork-r1 check", "fork-r2 draft", "fork-r2 check"}, s.take())
	})
}

// Bulk functions return an error for invalid parameters and for a store that cannot list its runs.
func TestBulkRefuses(t *testing.T) {
	t.Parallel()
	s, g := new(store.Memory), flow("w")
	id := func(run string) string { return run }
	for i, row := range []struct {
		f    func() (bulk.Report, error)
		want error
	}{
		{func() (bulk.Report, error) {
			return bulk.Redrive(t.Context(), []*kahn.Graph{nil}, s, bulk.Selection{}, nil)
		}, kahn.ErrNoGraph},
		{func() (bulk.Report, error) {
			return bulk.Redrive(t.Context(), []*kahn.Graph{g}, nil, bulk.Selection{}, nil)
		}, kahn.ErrBadOption},
		{func() (bulk.Report, error) {
			return bulk.Redrive(t.Context(), []*kahn.Graph{g}, s, bulk.Selection{Limit: -1}, nil)
		}, kahn.ErrBadValue},
		{func() (bulk.Report, error) {
			return bulk.Cancel(t.Context(), s, bulk.Selection{After: "nowhere"}, store.Request{})
		}, kahn.ErrBadValue},
		{func() (bulk.Report, error) {
			return bulk.Cancel(t.Context(), s, bulk.Selection{}, store.Request{Node: "a"})
		}, kahn.ErrBadValue},
		{func() (bulk.Report, error) {
			return bulk.Cancel(t.Context(), struct{ store.Admin }{s}, bulk.Selection{}, store.Request{})
		}, kahn.ErrBadOption},
		{func() (bulk.Report, error) { return bulk.Fork(t.Context(), nil, s, bulk.Selection{}, id, nil) }, kahn.ErrNoGraph},
		{func() (bulk.Report, error) { return bulk.Fork(t.Context(), g, s, bulk.Selection{}, nil, nil) }, kahn.ErrBadOption},
	} {
		_, err := row.f()
		require.ErrorIs(t, err, row.want, "row %d", i)
	}
}

// competed is a store in which another process redrives and performs the runs of a page before List returns the page.
type competed struct {
	*store.Memory
	before func()
}

func (c *competed) List(ctx context.Context, q store.Query) (store.Page, error) {
	page, err := c.Memory.List(ctx, q)
	c.before()
	return page, err
}

// A bulk redrive skips a run that another process has redriven since the run was listed, whatever its status is now.
func TestBulkRedriveBesideAnother(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		performed, fails bool
		want             kahn.RunStatus
	}{{false, false, kahn.RunSuspended}, {true, false, kahn.RunCompleted}, {true, true, kahn.RunFailed}} {
		inBubble(t, row.want.String(), func(t *testing.T) {
			mem, calls, fails := new(store.Memory), 0, true
			g := flow("order", kahn.Node{ID: "pay", Do: func(context.Context, *kahn.Step) (any, error) {
				calls++
				if fails {
					return nil, errors.New("down")
				}
				return nil, nil
			}})
			perform := func() { _, _ = kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(mem)) }
			perform()
			fails = row.fails
			s := &competed{mem, func() {
				time.Sleep(time.Second)
				r, err := bulk.Redrive(t.Context(), []*kahn.Graph{g}, mem, bulk.Selection{}, []string{"pay"})
				require.NoError(t, err)
				require.NoError(t, r.Runs[0].Err)
				if row.performed {
					perform()
				}
				calls = 0
			}}
			r, err := bulk.Redrive(t.Context(), []*kahn.Graph{g}, s, bulk.Selection{}, []string{"pay"})
			require.NoError(t, err)
			require.ErrorIs(t, r.Runs[0].Err, kahn.ErrTransition)
			stored, err := mem.Load(t.Context(), "r")
			require.NoError(t, err)
			require.Equal(t, row.want, stored.Status)
			require.Zero(t, calls)
		})
	}
}

// A bulk fork needs an id for the forks: with an empty id, each call would make another fork.
func TestBulkForkNeedsIDs(t *testing.T) {
	t.Parallel()
	s, g := new(store.Memory), flow("w")
	_, err := kahn.Execute(t.Context(), g, nothing, kahn.RunID("r"), kahn.Durable(s))
	require.NoError(t, err)
	r, err := bulk.Fork(t.Context(), g, s, bulk.Selection{}, func(string) string { return "" }, nil)
	require.NoError(t, err)
	require.ErrorIs(t, r.Runs[0].Err, kahn.ErrBadOption)
	page, err := s.List(t.Context(), store.Query{})
	require.NoError(t, err)
	require.Len(t, page.Runs, 1)
}

// Enqueue makes a run due if no process is performing it. It skips a run that has changed since it was listed.
func TestEnqueue(t *testing.T) {
	t.Parallel()
	inBubble(t, "runs", func(t *testing.T) {
		s := new(served)
		g := flow("w", kahn.Node{ID: "a"})
		p, err := g.Compile()
		require.NoError(t, err)
		ctx := t.Context()
		require.NoError(t, p.Enqueue(ctx, nil, kahn.Durable(s), kahn.RunID("new"), kahn.Inputs(map[string]any{"x": 1})))
		require.Empty(t, s.take(), "nothing is performed")
		end := serve(t, new(kahn.Runner), s.service(g))
		time.Sleep(time.Second)
		end()
		require.Equal(t, []string{"new a"}, s.take())
		require.Equal(t, kahn.RunCompleted, s.status(t, "new"))

		listed, err := s.List(ctx, store.Query{})
		require.NoError(t, err)
		again := []kahn.Option{kahn.Durable(s), kahn.RunID("new"), kahn.Redrive(nil, []string{"a"})}
		require.NoError(t, p.Enqueue(ctx, &listed.Runs[0], again...))
		require.ErrorIs(t, p.Enqueue(ctx, &listed.Runs[0], again...), kahn.ErrTransition)
		require.ErrorIs(t, p.Enqueue(ctx, nil, kahn.RunID("new")), kahn.ErrBadOption)
		require.ErrorIs(t, new(kahn.Plan).Enqueue(ctx, nil, again...), kahn.ErrNoGraph)
		end = serve(t, new(kahn.Runner), s.service(g))
		time.Sleep(time.Second)
		end()
		require.Equal(t, []string{"new a"}, s.take())
	})
}

// If a trigger fired a run, the run's plan covers a part of its graph. A bulk redrive uses the whole graph.
func TestBulkRedriveFired(t *testing.T) {
	t.Parallel()
	s := new(store.Memory)
	g := flow("w", kahn.Node{ID: "hook", Kind: kahn.KindTrigger}, kahn.Node{ID: "other"}, kahn.Node{ID: "a", After: []string{"hook"}}, kahn.Node{ID: "b", After: []string{"a", "other"}})
	for _, mode := range []kahn.PruneMode{kahn.PruneForward, kahn.PruneClosure} {
		fails := func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("down") }
		_, err := kahn.Execute(t.Context(), g, fails, kahn.Durable(s), kahn.RunID(mode.String()), kahn.Fire("hook", 1), mode)
		require.Error(t, err)
	}
	r, err := bulk.Redrive(t.Context(), []*kahn.Graph{g}, s, bulk.Selection{}, nil)
	require.NoError(t, err)
	done, refused := runsOf(r)
	require.Empty(t, refused)
	require.Equal(t, []string{"closure", "forward"}, done)
}

// In each run, a bulk redrive repeats the failed nodes at every depth, and the nodes of the given paths. It reports runs that lack a path.
func TestBulkRedriveInside(t *testing.T) {
	t.Parallel()
	list := func(n int) *kahn.Graph {
		g := graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": make([]int, n)}, Sub: graph(kahn.Node{ID: "S", Sub: graph(after("x"), after("y", "x"))})}, after("Z", "M"))
		g.Name = fmt.Sprint("list of ", n)
		return g
	}
	inBubble(t, "items of maps", func(t *testing.T) {
		s, graphs := new(store.Memory), []*kahn.Graph{list(5), list(2)}
		broken := map[string]bool{"M[1]/S/x": true, "M[4]/S/y": true}
		var c paths
		step := c.count(func(_ context.Context, s *kahn.Step) (any, error) {
			if broken[s.Path()] {
				return nil, errStep
			}
			return nil, nil
		})
		perform := func(want kahn.RunStatus) map[string]int {
			c = paths{}
			for i := range 4 {
				res, _ := kahn.Execute(t.Context(), graphs[i%2], step, kahn.Durable(s), kahn.RunID(fmt.Sprint("r", i)))
				require.NotNil(t, res)
				require.Equal(t, want, res.Status)
			}
			return c.n
		}
		perform(kahn.RunFailed)
		clear(broken)
		report, err := bulk.Redrive(t.Context(), graphs, s, bulk.Selection{DryRun: true}, []string{"M[4]/S/y"})
		require.NoError(t, err)
		done, refused := runsOf(report)
		require.ElementsMatch(t, []string{"r0", "r2"}, done)
		for _, run := range []string{"r1", "r3"} {
			require.ErrorIs(t, refused[run], kahn.ErrUnknownNode, "its list is shorter")
		}
		report, err = bulk.Redrive(t.Context(), graphs, s, bulk.Selection{}, nil)
		require.NoError(t, err)
		done, refused = runsOf(report)
		require.Len(t, done, 4)
		require.Empty(t, refused)
		require.Equal(t, map[string]int{"M[1]/S/x": 4, "M[1]/S/y": 4, "M[4]/S/y": 2, "Z": 4}, perform(kahn.RunCompleted))
		for i := range 4 {
			countedRun(t, s, fmt.Sprint("r", i))
		}
	})
}
