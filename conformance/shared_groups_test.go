package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// groupOf returns a step that takes d. It counts members of the group db, at any depth, under the key db.
func (g *gaugeOfKeys) groupOf(d time.Duration) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		key := "free"
		if strings.HasPrefix(s.ID(), "db-") {
			key = "db"
		}
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

// deepMembers is the number of members of the group db in a run of deepGroups.
const deepMembers = 29

// deepGroups returns a graph with members of the group db: in the graph itself; in a sub-graph and a map, which use the graph's group; and in a
// map, a loop, an expansion and a sub-graph that declare a group of that name themselves.
func deepGroups(own kahn.Group) *kahn.Graph {
	own.Name = "db"
	member := func(id string) kahn.Node { return kahn.Node{ID: id, Groups: []string{"db"}} }
	inside := func(groups ...kahn.Group) *kahn.Graph {
		return (&kahn.Graph{Groups: groups}).Add(member("db-0"), member("db-1"), kahn.Node{ID: "other"})
	}
	items := member("db-items")
	items.Map = &kahn.Map{Over: "items"}
	return (&kahn.Graph{Name: "deep", Groups: []kahn.Group{own}, Inputs: []kahn.Input{{Name: "items"}}}).Add(member("db-0"), member("db-1"), items,
		kahn.Node{ID: "sub", Sub: inside()},
		kahn.Node{ID: "subs", Sub: inside(), Map: &kahn.Map{Over: "items"}},
		kahn.Node{ID: "map", Sub: inside(own), Map: &kahn.Map{Over: "items"}},
		kahn.Node{ID: "loop", Sub: inside(own), Loop: &kahn.Loop{MaxIterations: 3, OnLimit: kahn.LoopStop, While: func(kahn.View) (bool, error) { return true, nil }}},
		kahn.Node{ID: "deeper", Sub: (&kahn.Graph{Groups: []kahn.Group{own}}).Add(kahn.Node{ID: "in", Sub: inside()})},
		kahn.Node{ID: "expand", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inside(own), nil, nil) }},
	)
}

// TestSharedGroups: a group that Runners share limits its members at every depth, in all processes together. The limits of the graphs' own groups
// apply, too. The Runners use the whole limit, and return every slot.
func TestSharedGroups(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		own   kahn.Group // the group that each graph declares
		limit int        // limit of the run
		lease time.Duration
		most  int
	}{
		"no limit of the graph":    {most: 4},
		"a wider one":              {own: kahn.Group{Limit: 20}, most: 4},
		"one step of a run":        {limit: 1, most: 3},
		"a store without failures": {lease: 2 * time.Second, most: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, m := new(store.Memory), new(gaugeOfKeys)
				var all sync.WaitGroup
				for range 3 {
					rn := &kahn.Runner{Shared: &kahn.Shared{Store: db, Name: "n", Groups: []kahn.Group{{Name: "db", Limit: 4}}, Lease: row.lease}}
					all.Go(func() {
						opts := []kahn.Option{kahn.Inputs(map[string]any{"items": []int{1, 2, 3}})}
						if row.limit > 0 {
							opts = append(opts, kahn.Limit(row.limit))
						}
						res, err := rn.Execute(t.Context(), deepGroups(row.own), m.groupOf(20*time.Millisecond), opts...)
						require.NoError(t, err)
						require.Equal(t, kahn.RunCompleted, res.Status)
						require.NoError(t, rn.Shutdown(t.Context()))
					})
				}
				all.Wait()
				require.Equal(t, row.most, m.most["db"])
				require.Greater(t, m.calls, 3*deepMembers)
				require.Empty(t, others(t, db, "n/group/db"))
			})
		})
	}
}

// TestSharedGroupOwnLimit: a graph's own group limits the run even if the shared group of that name has more slots.
func TestSharedGroupOwnLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := new(gaugeOfKeys)
		rn := &kahn.Runner{Shared: &kahn.Shared{Store: new(store.Memory), Groups: []kahn.Group{{Name: "db", Limit: 10}}}}
		g := &kahn.Graph{Groups: []kahn.Group{{Name: "db", Limit: 2}}}
		for i := range 12 {
			g.Add(kahn.Node{ID: fmt.Sprint("db-", i), Groups: []string{"db"}})
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				_, err := rn.Execute(t.Context(), g, m.groupOf(100*time.Millisecond))
				require.NoError(t, err)
			})
		}
		all.Wait()
		require.Equal(t, 6, m.most["db"])
		require.NoError(t, rn.Shutdown(t.Context()))
	})
}

// TestSharedGroupWhy: Why names the shared group and the run that holds its slot.
func TestSharedGroupWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, m := new(store.Memory), new(gaugeOfKeys)
		shared := func() *kahn.Runner {
			return &kahn.Runner{Shared: &kahn.Shared{Store: db, Groups: []kahn.Group{{Name: "db", Limit: 1}}}}
		}
		a, b := shared(), shared()
		g := (&kahn.Graph{Groups: []kahn.Group{{Name: "db"}}}).Add(
			kahn.Node{ID: "sub", Sub: new(kahn.Graph).Add(kahn.Node{ID: "db-0", Groups: []string{"db"}, Timeout: time.Second})})
		first, err := a.Start(t.Context(), g, m.groupOf(900*time.Millisecond), kahn.RunID("run-7"))
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)
		second, err := b.Start(t.Context(), g, m.groupOf(900*time.Millisecond))
		require.NoError(t, err)
		time.Sleep(500 * time.Millisecond)
		y, err := second.Why("sub/db-0")
		require.NoError(t, err)
		require.Equal(t, kahn.Bound{Scope: kahn.BoundSharedGroup, Name: "db", Limit: 1, Used: 1}, y.Bound)
		require.Equal(t, "it waits for a slot of the group db in all processes: 1 of 1, held by run run-7", y.String())
		for _, run := range []*kahn.Run{first, second} {
			_, err := run.Wait()
			require.NoError(t, err)
		}
		require.Equal(t, 1, m.most["db"])
		require.NoError(t, a.Shutdown(t.Context()))
		require.NoError(t, b.Shutdown(t.Context()))
	})
}

// TestSharedGroupRate: a shared rate limits the starts of a group's members in all processes together.
func TestSharedGroupRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, m, begun := new(store.Memory), new(gaugeOfKeys), time.Now()
		var all sync.WaitGroup
		for range 2 {
			rn := &kahn.Runner{Shared: &kahn.Shared{Store: db, Groups: []kahn.Group{{Name: "db", Rate: kahn.Rate{Starts: 10, Per: time.Second, Burst: 5}}}}}
			all.Go(func() {
				_, err := rn.Execute(t.Context(), deepGroups(kahn.Group{}), m.groupOf(time.Millisecond), kahn.Inputs(map[string]any{"items": []int{1, 2, 3}}))
				require.NoError(t, err)
				require.NoError(t, rn.Shutdown(t.Context()))
			})
		}
		all.Wait()
		const starts = 2*deepMembers - 5 // the burst costs no time
		require.GreaterOrEqual(t, time.Since(begun), starts*100*time.Millisecond)
		require.Less(t, time.Since(begun), (starts+30)*100*time.Millisecond)
	})
}

// TestSharedGroupOfCancelledRuns: runs that are cancelled, fail, suspend or are left, at any depth, return the group's slots.
func TestSharedGroupOfCancelledRuns(t *testing.T) {
	t.Parallel()
	for i := range 12 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, m := new(store.Memory), new(gaugeOfKeys)
				rn := &kahn.Runner{Shared: &kahn.Shared{Store: db, Groups: []kahn.Group{{Name: "db", Limit: 3}}}}
				step := m.groupOf(20 * time.Millisecond)
				run, err := rn.Start(t.Context(), deepGroups(kahn.Group{Limit: 2}), func(ctx context.Context, s *kahn.Step) (any, error) {
					switch out, err := step(ctx, s); {
					case i%4 == 1 && s.Path() == "loop#2/db-1":
						return nil, errors.New("refused")
					case i%4 == 2 && s.Path() == "deeper/in/db-0":
						return nil, kahn.Suspend("t", nil, nil)
					default:
						return out, err
					}
				}, kahn.Inputs(map[string]any{"items": []int{1, 2, 3}}))
				require.NoError(t, err)
				time.Sleep(time.Duration(10+30*(i/4)) * time.Millisecond)
				switch i % 4 {
				case 0:
					require.NoError(t, run.Cancel())
				case 2:
					time.Sleep(time.Minute) // the run waits for an answer
					run.Leave()
				case 3:
					run.Leave()
				}
				res, _ := run.Wait()
				require.NotEqual(t, kahn.RunCompleted, res.Status)
				require.LessOrEqual(t, m.most["db"], 3)
				other, err := rn.Execute(t.Context(), deepGroups(kahn.Group{}), step, kahn.Inputs(map[string]any{"items": []int{1}}))
				require.NoError(t, err)
				require.Equal(t, kahn.RunCompleted, other.Status)
				require.NoError(t, rn.Shutdown(t.Context()))
				require.Empty(t, others(t, db, "/group/db"))
			})
		})
	}
}

// TestSharedThroughput: a shared limit that is as high as the limits of all Runners together costs less than a tenth of the throughput. This
// holds for fast and slow steps and stores, for few runs and for many. Short runs over a slow store are not tested.
func TestSharedThroughput(t *testing.T) {
	t.Parallel()
	const runners, places = 3, 8
	bounds := map[string]kahn.Shared{
		"all": {Limit: runners * places}, "key": {KeyLimit: runners * places}, "group": {Groups: []kahn.Group{{Name: "db", Limit: runners * places}}},
	}
	for name, bound := range bounds {
		for _, latency := range []time.Duration{0, 500 * time.Microsecond, 2 * time.Millisecond} {
			for _, lasts := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond} {
				for _, runs := range []int{1, 4, 40} {
					if runs == 40 && latency > lasts/100 { // such a run is shorter than its first call to the store
						continue
					}
					t.Run(fmt.Sprint(name, latency, lasts, runs), func(t *testing.T) {
						t.Parallel()
						g := &kahn.Graph{Groups: []kahn.Group{{Name: "db"}}}
						for i := range 2000 / runs {
							g.Add(kahn.Node{ID: fmt.Sprint("a-", i), Key: "a", Groups: []string{"db"}})
						}
						takes := func(shares bool) (took time.Duration) {
							synctest.Test(t, func(t *testing.T) {
								db, begun := new(store.Memory), time.Now()
								var all sync.WaitGroup
								for range runners {
									rn := &kahn.Runner{Limit: places}
									if shares {
										of := bound
										of.Store, rn.Shared = &sharer{Memory: db, latency: latency}, &of
									}
									all.Go(func() {
										for range runs {
											_, err := rn.Execute(t.Context(), g, new(gaugeOfKeys).step(lasts))
											require.NoError(t, err)
										}
									})
									defer func() { require.NoError(t, rn.Shutdown(t.Context())) }()
								}
								all.Wait()
								took = time.Since(begun)
							})
							return took
						}
						require.Greater(t, float64(takes(false)), 0.9*float64(takes(true)))
					})
				}
			}
		}
	}
}

// TestSharedGroupOfCompensations: a compensation takes a slot of the shared group, even if the nested run whose graph declares the group has
// ended. The nested run belongs to a sub-graph, a map, a loop or an expansion.
func TestSharedGroupOfCompensations(t *testing.T) {
	t.Parallel()
	group := []kahn.Group{{Name: "db"}}
	for name, within := range map[string]func(n *kahn.Node, inner *kahn.Graph){
		"sub": func(n *kahn.Node, inner *kahn.Graph) { n.Sub = inner },
		"map": func(n *kahn.Node, inner *kahn.Graph) {
			n.Sub, n.Map, n.Params = inner, &kahn.Map{Over: "list"}, map[string]any{"list": []int{1, 2}}
		},
		"loop": func(n *kahn.Node, inner *kahn.Graph) {
			n.Sub, n.Loop = inner, &kahn.Loop{MaxIterations: 2, OnLimit: kahn.LoopStop, While: func(kahn.View) (bool, error) { return true, nil }}
		},
		"expand": func(n *kahn.Node, inner *kahn.Graph) {
			n.Do = func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }
		},
		"deeper": func(n *kahn.Node, inner *kahn.Graph) { n.Sub = new(kahn.Graph).Add(kahn.Node{ID: "in", Sub: inner}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, m, inner := new(store.Memory), new(gaugeOfKeys), &kahn.Graph{Groups: group}
				for i := range 6 {
					inner.Add(kahn.Node{ID: fmt.Sprint("db-", i), Groups: []string{"db"}, Do: succeeds(1), Compensate: func(context.Context, *kahn.Step) error {
						m.add("undo", 1)
						defer m.add("undo", -1)
						time.Sleep(100 * time.Millisecond)
						return nil
					}})
				}
				n := kahn.Node{ID: "whole"}
				within(&n, inner)
				g := (&kahn.Graph{Groups: group}).Add(n, kahn.Node{ID: "fail", After: []string{"whole"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("no") }})
				rn := &kahn.Runner{Shared: &kahn.Shared{Store: db, Groups: []kahn.Group{{Name: "db", Limit: 2}}}}
				res, err := rn.Execute(t.Context(), g, nil)
				require.ErrorContains(t, err, "no")
				require.Equal(t, kahn.RunFailed, res.Status)
				require.GreaterOrEqual(t, m.calls, 6)
				require.Equal(t, 2, m.most["undo"])
				require.NoError(t, rn.Shutdown(t.Context()))
				require.Empty(t, others(t, db, "/group/db"))
			})
		})
	}
}

// TestFullMap: a map whose Limit is reached does not keep a slot or a token of a group for its next item. Nodes outside the map, and nodes inside its
// items, take the slot or the token.
func TestFullMap(t *testing.T) {
	lasts := func(n kahn.Node, d time.Duration, groups ...string) kahn.Node {
		n.Do, n.Groups = takes(d), groups
		return n
	}
	items := func(n kahn.Node) kahn.Node {
		n.Map, n.Params = &kahn.Map{Over: "items", Limit: 1}, map[string]any{"items": []any{1, 2}}
		return n
	}
	inBubble(t, "a token for the graph of an item", func(t *testing.T) {
		m := items(after("M", "A"))
		m.Do = func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(graph(after("X")), nil, nil) }
		for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
			try(t, graph(after("A"), m), nop, mode, kahn.Rate{Starts: 1, Per: time.Second}).expectStarts("A@0s M@0s M[0]@1s M[0]/X@2s M[1]@3s M[1]/X@4s")
		}
	})
	for _, of := range []struct {
		name   string
		b      time.Duration
		starts string
	}{
		{"a slot that becomes free while the map is full", 20 * ms, "S@0s T@0s A@0s B@0s M@5ms W@6ms M[0]@10ms W/Z@20ms M[1]@1h0m0.01s"},
		{"two slots that become free at once", 10 * ms, "S@0s T@0s A@0s B@0s M@5ms W@6ms M[0]@10ms W/Z@10ms M[1]@1h0m0.01s"},
	} {
		inBubble(t, of.name, func(t *testing.T) {
			g := graph(lasts(after("A"), 10*ms, "g"), lasts(after("B"), of.b, "g"), lasts(after("S"), 5*ms), lasts(after("T"), 6*ms),
				lasts(items(after("M", "S")), time.Hour, "g"), kahn.Node{ID: "W", After: []string{"T"}, Sub: graph(lasts(after("Z"), time.Hour, "g"))})
			g.Groups = []kahn.Group{{Name: "g", Limit: 2}}
			try(t, g, nop).expectStarts(of.starts)
		})
	}
}
