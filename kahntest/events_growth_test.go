package kahntest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// TestGrowthOfCheckEvents counts the items that CheckEvents looks at, for a stream of about 1,000 events and for one of about eight times as
// many. The number of items per event must not more than double.
func TestGrowthOfCheckEvents(t *testing.T) {
	t.Parallel()
	id := func(i int) string { return fmt.Sprint("n", i) }
	nop := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	errStep := errors.New("the step broke")
	slow := func(ctx context.Context, _ *kahn.Step) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	one := func() *kahn.Graph { return new(kahn.Graph).Add(kahn.Node{ID: "x"}) }
	type lives struct {
		g     *kahn.Graph
		steps []kahn.StepFunc // one per life: all lives but the last are shut down when every node waits
		opts  func(life int) []kahn.Option
	}
	whole := func(g *kahn.Graph, opts ...kahn.Option) lives {
		return lives{g, []kahn.StepFunc{nop}, func(int) []kahn.Option { return opts }}
	}
	none := func(int) []kahn.Option { return nil }
	for name, make := range map[string]func(n int) lives{
		"a chain": func(n int) lives {
			g := new(kahn.Graph).Add(kahn.Node{ID: id(0)})
			for i := range n / 3 {
				g.Add(kahn.Node{ID: id(i + 1), After: []string{id(i)}})
			}
			return whole(g)
		},
		"many predecessors, attempted again and again": func(n int) lives {
			g, z := new(kahn.Graph), kahn.Node{ID: "z", Retry: kahn.Retry{MaxAttempts: n / 12, InitialDelay: -1}}
			for i := range n / 6 {
				g.Add(kahn.Node{ID: id(i)})
				z.After = append(z.After, id(i))
			}
			z.Do = func(_ context.Context, s *kahn.Step) (any, error) {
				if s.Attempt() < n/12 {
					return nil, errStep
				}
				return nil, nil
			}
			return whole(g.Add(z), kahn.Waves)
		},
		"a loop that pauses": func(n int) lives {
			return whole(new(kahn.Graph).Add(kahn.Node{ID: "L", Sub: new(kahn.Graph).Add(kahn.Node{ID: "S", Sub: one()}), Loop: &kahn.Loop{
				MaxIterations: n / 8, OnLimit: kahn.LoopStop, While: func(kahn.View) (bool, error) { return true, nil }, Pause: time.Second,
			}}))
		},
		"a map of sub-graphs": func(n int) lives {
			return whole(new(kahn.Graph).Add(kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, Sub: one(), Params: map[string]any{"items": slices.Repeat([]int{0}, n/6)}}))
		},
		"a trigger that leaves most out": func(n int) lives {
			g := new(kahn.Graph).Add(kahn.Node{ID: "t", Kind: kahn.KindTrigger}, kahn.Node{ID: "u", Kind: kahn.KindTrigger})
			for i := range n / 4 {
				g.Add(kahn.Node{ID: "a" + id(i), After: []string{"t"}}, kahn.Node{ID: "b" + id(i), After: []string{"u", "a" + id(i)}})
				g.Add(kahn.Node{ID: "p" + id(i), After: []string{"u"}}, kahn.Node{ID: "c" + id(i), After: []string{"p" + id(i), "t"}})
			}
			return whole(g, kahn.Fire("t", nil))
		},
		"a run that is shut down": func(n int) lives {
			g := new(kahn.Graph)
			for i := range n / 6 {
				g.Add(kahn.Node{ID: id(i)})
			}
			return lives{g, []kahn.StepFunc{slow, nop}, none}
		},
		"many lives in different modes": func(n int) lives {
			g := new(kahn.Graph).Add(kahn.Node{ID: "w"})
			for i := range n / 8 {
				g.Add(kahn.Node{ID: id(i)}, kahn.Node{ID: "z" + id(i), After: []string{id(i), "w"}})
			}
			some := func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.ID() == "w" {
					return slow(ctx, s)
				}
				return nil, nil
			}
			l := lives{g: g, opts: func(life int) []kahn.Option { return []kahn.Option{kahn.Mode(life % 2)} }}
			for range n / 64 {
				l.steps = append(l.steps, some)
			}
			l.steps = append(l.steps, nop)
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var events, steps [2]int
			for i, n := range []int{1000, 8000} {
				synctest.Test(t, func(t *testing.T) {
					l := make(n)
					var all []event.Event
					var last *kahn.Snapshot
					for life, step := range l.steps {
						var rn kahn.Runner
						opts := append(slices.Clone(l.opts(life)), kahn.RunID("r"), kahn.OnEvent(func(e event.Event) { all = append(all, e) }))
						if last != nil {
							opts = append(opts, kahn.Resume(last))
						}
						run, err := rn.Start(t.Context(), l.g, step, opts...)
						require.NoError(t, err)
						if life < len(l.steps)-1 {
							synctest.Wait()
							ctx, cancel := context.WithCancel(t.Context())
							cancel()
							_ = rn.Shutdown(ctx)
						}
						res, err := run.Wait()
						require.NoError(t, err)
						last = res.Snapshot()
						if life == len(l.steps)-1 {
							steps[i], err = kahntest.EventSteps(l.g, res, all)
							require.NoError(t, err)
						}
					}
					events[i] = len(all)
				})
			}
			t.Log(events, steps)
			require.Greater(t, events[0], 500)
			require.Greater(t, events[1], 7*events[0])
			require.Positive(t, steps[0])
			require.LessOrEqual(t, steps[1]*events[0], 2*steps[0]*events[1])
		})
	}
}
