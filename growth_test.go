package kahn_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// The tests of this file count steps: visited edges and entries. The cost of a run must grow with its work, with an exponent of at most 1.25.
// This allows for a logarithm and fixed costs, but not for quadratic growth or an exponent of 1.5.

const mostExponent = 1.25

// grows fails if count grows much faster than n over three doublings of n.
func grows(t *testing.T, n int, count func(n int) int64) {
	t.Helper()
	exponents(t, count, n, 8*n)
}

// doubles is grows with two single doublings, for counts that do not depend on chance.
func doubles(t *testing.T, n int, count func(n int) int64) {
	t.Helper()
	exponents(t, count, n, 2*n, 4*n)
}

// exponents fails if, between two successive sizes, count grows with an exponent above mostExponent.
func exponents(t *testing.T, count func(n int) int64, sizes ...int) {
	t.Helper()
	counts := make([]int64, len(sizes))
	for i, n := range sizes {
		counts[i] = count(n)
		require.Positive(t, counts[i], "nothing was counted")
	}
	for i := range len(sizes) - 1 {
		exponent := math.Log(float64(counts[i+1])/float64(counts[i])) / math.Log(float64(sizes[i+1])/float64(sizes[i]))
		require.LessOrEqual(t, exponent, mostExponent, "%d steps for sizes of %d", counts, sizes)
	}
}

func compiled(t *testing.T, g *kahn.Graph) *kahn.Plan {
	t.Helper()
	p, err := g.Compile()
	require.NoError(t, err)
	return p
}

// TestGrowthOfPending: runs wait for other runs, are cancelled while they wait, begin in order, end, and are removed.
func TestGrowthOfPending(t *testing.T) {
	t.Parallel()
	grows(t, 100, func(n int) int64 {
		rn := &kahn.Runner{MaxRuns: 1, History: 10}
		gate := make(chan struct{})
		var order []int
		var runs []*kahn.Run
		for i := range n {
			run, err := rn.Start(t.Context(), graph(kahn.Node{ID: "A", Do: func(context.Context, *kahn.Step) (any, error) {
				<-gate
				order = append(order, i) // one run at a time
				return nil, nil
			}}), nil, kahn.Retain(0))
			require.NoError(t, err)
			runs = append(runs, run)
		}
		var want []int
		for i, run := range runs {
			if i%3 == 1 {
				run.Cancel()
			} else {
				want = append(want, i)
			}
		}
		close(gate)
		for i, run := range runs {
			res, _ := run.Wait()
			require.Equal(t, i%3 == 1, res.Status == kahn.RunCancelled)
		}
		require.Equal(t, want, order)
		return rn.Steps()
	})
}

// TestGrowthOfTokens: steps inside the items of a map wait under the same token. Each answer goes to the first waiting step.
func TestGrowthOfTokens(t *testing.T) {
	t.Parallel()
	grows(t, 100, func(n int) (steps int64) {
		synctest.Test(t, func(t *testing.T) {
			g := graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": make([]int, n)},
				Sub: graph(kahn.Node{ID: "x", Do: func(_ context.Context, s *kahn.Step) (any, error) {
					if value, ok := s.Resumed(); ok {
						return value, nil
					}
					return nil, kahn.Suspend("t", nil, nil)
				}})})
			run, err := kahn.Start(t.Context(), g, nil, kahn.Retain(0))
			require.NoError(t, err)
			synctest.Wait()
			require.Len(t, run.Waiting(), n)
			var want []any
			for i := range n {
				require.NoError(t, run.Signal(context.Background(), "t", i))
				want = append(want, i)
			}
			res, err := run.Wait()
			require.NoError(t, err)
			require.Equal(t, want, res.Output())
			steps = run.TreeSteps()
		})
		return steps
	})
}

// TestGrowthOfClaims: runs wait for shared slots, are cancelled while they wait, and get slots in turn.
func TestGrowthOfClaims(t *testing.T) {
	t.Parallel()
	for name, share := range map[string]func(rn *kahn.Runner, n int){
		"one slot":   func(rn *kahn.Runner, _ int) { rn.Limit = 1 },
		"many slots": func(rn *kahn.Runner, n int) { rn.Limit = n / 10 },
		"a key":      func(rn *kahn.Runner, _ int) { rn.KeyLimit = 1 },
	} {
		grows(t, 100, func(n int) (steps int64) {
			synctest.Test(t, func(t *testing.T) {
				rn := new(kahn.Runner)
				share(rn, n)
				var runs []*kahn.Run
				for range n {
					run, err := rn.Start(t.Context(), graph(kahn.Node{ID: "A", Key: "k"}), takes(time.Second), kahn.Retain(0))
					require.NoError(t, err)
					runs = append(runs, run)
				}
				synctest.Wait()
				for i, run := range runs {
					if i%3 == 1 {
						run.Cancel()
					}
				}
				for _, run := range runs {
					_, _ = run.Wait()
				}
				steps = rn.SharedSteps()
				t.Log(name, n, steps)
			})
			return steps
		})
	}
}

// failedComb returns the Result of a chain of n victims, each of which also follows its own failed node.
func failedComb(t *testing.T, n int) *kahn.Result {
	g := &kahn.Graph{}
	for i := range n {
		v := kahn.Node{ID: fmt.Sprint("v", i), After: []string{fmt.Sprint("f", i)}}
		if i > 0 {
			v.After = append(v.After, fmt.Sprint("v", i-1))
		}
		g.Add(kahn.Node{ID: fmt.Sprint("f", i)}, v)
	}
	res, err := kahn.Execute(t.Context(), g, always(errStep))
	require.ErrorIs(t, err, errStep)
	require.Equal(t, n, res.Count(kahn.Aborted))
	return res
}

// TestGrowthOfOrigins reads the origins of the last of many victims, and the origins of all victims when they have the same origins.
func TestGrowthOfOrigins(t *testing.T) {
	t.Parallel()
	grows(t, 250, func(n int) int64 {
		res := failedComb(t, n)
		before := res.EdgeVisits()
		first, _ := res.Node("v0")
		require.Equal(t, []string{"f0"}, first.Cause.Origins)
		require.LessOrEqual(t, res.EdgeVisits()-before, int64(2), "the origins of other nodes were looked for")
		last, _ := res.Node(fmt.Sprint("v", n-1))
		require.Len(t, last.Cause.Origins, n)
		for i, id := range last.Cause.Origins {
			require.Equal(t, fmt.Sprint("f", i), id)
		}
		for i := range n {
			node, _ := res.Node(fmt.Sprint("v", i))
			require.Equal(t, last.Cause.Origins[:i+1], node.Cause.Origins)
		}
		return res.EdgeVisits() - before
	})
	grows(t, 250, func(n int) int64 { // n failures, one node that follows them all, and a chain of n victims
		g := &kahn.Graph{}
		join := kahn.Node{ID: "v0"}
		for i := range n {
			g.Add(kahn.Node{ID: fmt.Sprint("f", i)})
			join.After = append(join.After, fmt.Sprint("f", i))
		}
		g.Add(join)
		for i := range n {
			g.Add(kahn.Node{ID: fmt.Sprint("v", i+1), After: []string{fmt.Sprint("v", i)}})
		}
		res, err := kahn.Execute(t.Context(), g, always(errStep))
		require.ErrorIs(t, err, errStep)
		before := res.EdgeVisits()
		for node := range res.Nodes() {
			if node.Status == kahn.Aborted {
				require.Len(t, node.Cause.Origins, n)
			}
		}
		return res.EdgeVisits() - before
	})
}

// TestGrowthOfVictimsErrors: while the run continues, observers read the error of every victim of a cascade of failures. In the second graph a
// running node precedes all victims, so the victims may get more origins.
func TestGrowthOfVictimsErrors(t *testing.T) {
	t.Parallel()
	for _, pending := range []bool{false, true} {
		grows(t, 250, func(n int) int64 {
			g := &kahn.Graph{}
			asked := make(chan struct{}, n)
			if pending {
				g.Add(kahn.Node{ID: "slow", Do: func(context.Context, *kahn.Step) (any, error) {
					for range n {
						<-asked
					}
					return nil, errStep
				}})
			}
			for i := range n {
				a := kahn.Node{ID: fmt.Sprint("n", i)}
				if i > 0 {
					a.After = []string{fmt.Sprint("n", i-1)}
					if pending {
						a.After = append(a.After, "slow")
					}
				}
				g.Add(a, kahn.Node{ID: fmt.Sprint("o", i), In: []kahn.Edge{{From: a.ID, On: kahn.OnAlways}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
					err, _ := s.Upstream(a.ID)
					asked <- struct{}{}
					return err, nil
				}})
			}
			res, err := kahn.Execute(t.Context(), g, always(errStep), kahn.Limit(2))
			require.ErrorIs(t, err, errStep)
			for i := 1; i < n; i++ {
				got, err := kahn.Output[*kahn.UpstreamError](res, fmt.Sprint("o", i))
				require.NoError(t, err)
				require.Equal(t, []string{"n0"}, got.Origins)
			}
			visits := res.EdgeVisits()
			last, _ := res.Node(fmt.Sprint("n", n-1))
			want := []string{"n0"}
			if pending {
				want = []string{"slow", "n0"}
			}
			require.Equal(t, want, last.Cause.Origins)
			return visits
		})
	}
}

// TestVisitsOfLosers: the search for losers counts the edges that it visits: the edges into a node that was decided early, and the edges out of a
// node that may be a loser. A loser is a node whose result no other node needs any more.
func TestVisitsOfLosers(t *testing.T) {
	t.Parallel()
	const n = 50
	visits := func(cancelLosers bool) int64 {
		g := graph(after("a"), after("b"))
		for i := range n {
			g.Add(kahn.Node{ID: fmt.Sprint("any", i), After: []string{"a", "b"}, Join: kahn.AnySucceeded, CancelLosers: cancelLosers})
		}
		plan, st := stateOf(t, g)
		var tasks []machine.Task
		for task, ok := st.Next(); ok; task, ok = st.Next() {
			tasks = append(tasks, task)
		}
		require.NoError(t, st.Settle(tasks[0].Token, completed))
		_, stopped := st.NextStop()
		require.Equal(t, cancelLosers, stopped)
		require.Equal(t, kahn.Ready, st.Status(ref(t, plan, "any0")))
		return kahn.StateVisits(st)
	}
	require.GreaterOrEqual(t, visits(true)-visits(false), int64(2*n+n))
}

// TestGrowthOfLosers makes many early decisions whose nodes have the same slow ancestors. The last decision cancels losers.
func TestGrowthOfLosers(t *testing.T) {
	t.Parallel()
	grows(t, 100, func(n int) int64 {
		g := &kahn.Graph{}
		blocked := make(chan struct{})
		g.Add(kahn.Node{ID: "f"})
		for i := range n {
			s := kahn.Node{ID: fmt.Sprint("s", i)}
			if i == 0 {
				s.Do = func(ctx context.Context, _ *kahn.Step) (any, error) {
					<-blocked
					return nil, nil
				}
			} else {
				s.After = []string{fmt.Sprint("s", i-1)}
			}
			g.Add(s, kahn.Node{ID: fmt.Sprint("any", i), After: []string{"f", s.ID}, Join: kahn.AnySucceeded, CancelLosers: i == n-1, Do: func(context.Context, *kahn.Step) (any, error) {
				if i == n-1 {
					close(blocked)
				}
				return nil, nil
			}})
		}
		p := compiled(t, g)
		res, err := p.Execute(t.Context(), nothing, kahn.Limit(2))
		require.NoError(t, err)
		require.Equal(t, 2*n+1, res.Count(kahn.Completed)+res.Count(kahn.Skipped))
		require.Equal(t, n-1, res.Count(kahn.Skipped))
		last, _ := res.Node(fmt.Sprint("s", n-1))
		require.Equal(t, kahn.SkipSuperseded, last.Skip.Kind)
		return res.EdgeVisits()
	})
}

// gates returns a graph of n gates that all wait at once.
func gates(n int) *kahn.Graph {
	g := &kahn.Graph{}
	for i := range n {
		g.Add(gate(fmt.Sprint("g", i)))
	}
	return g
}

// TestGrowthOfStatusChanges answers many gates one after the other. Each change of the run's status lists the new waits, and counts all waits.
func TestGrowthOfStatusChanges(t *testing.T) {
	t.Parallel()
	grows(t, 50, func(n int) int64 {
		sub := (&kahn.Graph{}).Add(gate("x"), kahn.Node{ID: "y", After: []string{"x"}})
		g := gates(n).Add(kahn.Node{ID: "S", Sub: sub})
		rec := newRecorder()
		run, err := kahn.Start(t.Context(), g, nothing, kahn.OnEvent(rec.add))
		require.NoError(t, err)
		answers := []string{"S/x"}
		for i := range n {
			answers = append(answers, fmt.Sprint("g", i))
		}
		for _, name := range answers {
			for run.Status() != kahn.RunSuspended {
				runtime.Gosched()
			}
			require.NoError(t, run.Signal(context.Background(), name, true))
		}
		res, err := run.Wait()
		require.NoError(t, err)
		checkEvents(t, g, res, rec.all())
		named, first := int64(0), true
		for _, e := range rec.all() {
			if p, ok := e.Payload.(event.StatusChange); ok {
				named += int64(len(p.Waiting))
				if first {
					require.Equal(t, append(answers[1:], "S/x"), p.Waiting, "in the order of declaration")
					require.Equal(t, n+1, p.TotalWaiting)
					first = false
				}
			}
		}
		require.Equal(t, int64(n+1), named, "each gate is named once")
		return named
	})
}

func items(t *testing.T, res *kahn.Result, id string) *kahn.Result {
	t.Helper()
	node, ok := res.Node(id)
	require.True(t, ok)
	require.NotNil(t, node.Sub)
	return node.Sub
}

// TestNodesOfItems: the items of a map share their declaration, except for ids, keys and estimates.
func TestNodesOfItems(t *testing.T) {
	t.Parallel()
	g := graph(kahn.Node{ID: "M", Kind: "k", Do: nothing, Params: map[string]any{"items": []int{3, 1, 2}}, Map: &kahn.Map{
		Over: "items", Key: func(item any) string { return fmt.Sprint("key", item) },
		Estimate: func(item any) time.Duration { return time.Duration(item.(int)) * time.Second },
	}}, kahn.Node{ID: "N", Do: nothing, Estimate: time.Hour, Key: "all", Params: map[string]any{"items": []int{3, 1, 2}}, Map: &kahn.Map{Over: "items"}})
	res, err := kahn.Execute(t.Context(), g, nil)
	require.NoError(t, err)
	own, common := items(t, res, "M").Plan(), items(t, res, "N").Plan()
	require.Equal(t, 3, own.Len())
	require.Equal(t, own.Hash(), items(t, res, "M").Plan().Hash())
	require.NotEqual(t, own.Hash(), common.Hash())
	for i, item := range []int{3, 1, 2} {
		node := own.Node(machine.Ref(i))
		require.Equal(t, fmt.Sprintf("M[%d]", i), node.ID)
		require.Equal(t, node.ID, own.ID(machine.Ref(i)))
		require.Equal(t, "k", node.Kind)
		require.Equal(t, fmt.Sprint("key", item), node.Key)
		require.Equal(t, time.Duration(item)*time.Second, node.Estimate)
		node = common.Node(machine.Ref(i))
		require.Equal(t, fmt.Sprintf("N[%d]", i), node.ID)
		require.Equal(t, "all", node.Key)
		require.Equal(t, time.Hour, node.Estimate)
	}
}

// mutedStore is a store that blocks every write with a start until held is closed.
type mutedStore struct {
	store.Store
	held chan struct{}
}

func (s mutedStore) Commit(ctx context.Context, lease store.Lease, c store.Commit) (store.Applied, error) {
	if len(c.Started) > 0 {
		<-s.held
	}
	return s.Store.Commit(ctx, lease, c)
}

// TestGrowthOfOutbox begins many attempts while the store does not answer.
func TestGrowthOfOutbox(t *testing.T) {
	t.Parallel()
	grows(t, 50, func(n int) (steps int64) {
		synctest.Test(t, func(t *testing.T) {
			g := &kahn.Graph{}
			for i := range n {
				g.Add(kahn.Node{ID: fmt.Sprint("n", i)})
			}
			rec, store := newRecorder(), mutedStore{&store.Memory{}, make(chan struct{})}
			run, err := kahn.Start(t.Context(), g, nothing, kahn.Durable(store), kahn.OnEvent(rec.add))
			require.NoError(t, err)
			synctest.Wait()
			close(store.held)
			res, err := run.Wait()
			require.NoError(t, err)
			require.Equal(t, n, res.Count(kahn.Completed))
			checkEvents(t, g, res, rec.all())
			steps = run.OutboxSteps()
		})
		return steps
	})
}

// TestGrowthOfGroupFailures: all members of a group with CancelOnFailure fail. The stop lets running members finish.
func TestGrowthOfGroupFailures(t *testing.T) {
	t.Parallel()
	grows(t, 50, func(n int) (visits int64) {
		synctest.Test(t, func(t *testing.T) {
			begun, g := make(chan struct{}), &kahn.Graph{}
			g.Groups = []kahn.Group{{Name: "G", CancelOnFailure: true}}
			sub := (&kahn.Graph{}).Add(kahn.Node{ID: "x"})
			for i := range n {
				g.Add(kahn.Node{ID: fmt.Sprint("n", i), Groups: []string{"G"}}, kahn.Node{ID: fmt.Sprint("s", i), Groups: []string{"G"}, Sub: sub})
			}
			rec := newRecorder()
			run, err := kahn.Start(t.Context(), g, func(context.Context, *kahn.Step) (any, error) {
				<-begun
				return nil, errStep
			}, kahn.Drain, kahn.OnEvent(rec.add))
			require.NoError(t, err)
			synctest.Wait()
			close(begun)
			res, err := run.Wait()
			require.ErrorIs(t, err, errStep)
			require.Equal(t, 2*n, res.Count(kahn.Failed))
			checkEvents(t, g, res, rec.all())
			visits = res.EdgeVisits() + run.TreeSteps()
		})
		return visits
	})
}

// TestGrowthOfFailedGroups: each of n groups has a member that fails, and a member inside a composite. The test also counts bytes, so it does not
// run in parallel.
func TestGrowthOfFailedGroups(t *testing.T) {
	for _, expanded := range []bool{false, true} {
		var visits []int64
		grows(t, 100, func(n int) int64 {
			begun, g := make(chan struct{}), &kahn.Graph{}
			var asked sync.WaitGroup
			asked.Add(n)
			for i := range n {
				group := []string{fmt.Sprint("G", i)}
				g.Groups = append(g.Groups, kahn.Group{Name: group[0], CancelOnFailure: true})
				inner := graph(kahn.Node{ID: "x", Groups: group, Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
					asked.Done()
					<-ctx.Done()
					return nil, ctx.Err()
				}})
				s := kahn.Node{ID: fmt.Sprint("s", i), Sub: inner}
				if expanded {
					s = kahn.Node{ID: s.ID, Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }}
				}
				g.Add(s, kahn.Node{ID: fmt.Sprint("f", i), Groups: group, Do: func(context.Context, *kahn.Step) (any, error) {
					<-begun
					return nil, errStep
				}})
			}
			p, rec := compiled(t, g), newRecorder()
			var run *kahn.Run
			bytes, _ := allocated(func() {
				var err error
				run, err = p.Start(t.Context(), nil, kahn.OnEvent(rec.add), kahn.Retain(0))
				require.NoError(t, err)
				asked.Wait()
				close(begun)
				_, _ = run.Wait()
			})
			res, err := run.Wait()
			require.ErrorIs(t, err, errStep)
			require.Equal(t, 2*n, res.Count(kahn.Failed)) // the failed nodes and the composites
			for i := range n {
				s, _ := res.Node(fmt.Sprint("s", i))
				x, _ := s.Sub.Node("x")
				require.Equal(t, kahn.CauseSiblingFailure, x.Cause.Kind)
			}
			checkEvents(t, g, res, rec.all())
			visits = append(visits, run.TreeSteps())
			return bytes
		})
		require.LessOrEqual(t, visits[1], 13*visits[0])
	}
}

// TestGrowthOfStoppedGroups: a host that drives a State stops the members of many groups, of two nodes each, one after the
// other.
func TestGrowthOfStoppedGroups(t *testing.T) {
	t.Parallel()
	grows(t, 100, func(n int) int64 {
		g := &kahn.Graph{}
		for i := range n {
			group := []string{fmt.Sprint("G", i)}
			g.Groups = append(g.Groups, kahn.Group{Name: group[0], CancelOnFailure: true})
			g.Add(kahn.Node{ID: fmt.Sprint("bad", i), Groups: group}, kahn.Node{ID: fmt.Sprint("other", i), Groups: group})
		}
		plan, st := stateOf(t, g)
		for i := range n {
			task, ok := st.Next()
			require.True(t, ok)
			require.Equal(t, ref(t, plan, fmt.Sprint("bad", i)), task.Ref, "the other node of the group before was stopped")
			require.NoError(t, st.Settle(task.Token, machine.Outcome{Status: kahn.Failed, Cause: kahn.CauseStepError}))
		}
		require.True(t, st.Done())
		require.Equal(t, kahn.Aborted, st.Status(ref(t, plan, fmt.Sprint("other", n-1))))
		return kahn.StateVisits(st)
	})
}

// TestGrowthOfBoundedWaits: in a stopped run, cleanup nodes suspend one after the other.
func TestGrowthOfBoundedWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		grows(t, 100, func(n int) int64 {
			g := graph(kahn.Node{ID: "bad", Critical: true, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errStep }})
			for i := range n {
				g.Add(kahn.Node{ID: fmt.Sprint("c", i), After: []string{"bad"}, Cleanup: true, Do: func(context.Context, *kahn.Step) (any, error) {
					return nil, kahn.Suspend("", nil, nil)
				}})
			}
			run, err := kahn.Start(t.Context(), g, nil, kahn.Limit(1))
			require.NoError(t, err)
			synctest.Wait()
			require.Len(t, run.Waiting(), n)
			looked := run.Visits()
			res, err := run.Wait() // the waits are bounded
			require.ErrorIs(t, err, errStep)
			require.Equal(t, n+1, res.Count(kahn.Failed))
			return looked
		})
	})
}
