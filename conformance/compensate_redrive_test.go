package conformance_test

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
	"github.com/seed-c794f7ef/kahn/store"
)

// shop is a saga whose step ship fails until the goods have arrived. shop records its calls, with the first eight digits of their keys.
type shop struct {
	calls  []string
	keys   map[string]string // the last key, by call
	sells  bool
	refund error
}

func (s *shop) note(step *kahn.Step) {
	verb := ""
	if step.Compensating() {
		verb = "un"
	}
	s.calls = append(s.calls, verb+step.Path())
	s.keys[verb+step.Path()] = step.IdempotencyKey()
}

func (s *shop) graph() *kahn.Graph {
	s.keys = map[string]string{}
	do := func(_ context.Context, step *kahn.Step) (any, error) {
		s.note(step)
		if step.ID() == "ship" && !s.sells {
			return nil, kahn.NoEffect(errSoldOut)
		}
		return step.ID(), nil
	}
	undo := func(_ context.Context, step *kahn.Step) error {
		s.note(step)
		if step.ID() == "pay" {
			return s.refund
		}
		return nil
	}
	return graph(kahn.Node{ID: "look", Do: do}, kahn.Node{ID: "pay", After: []string{"look"}, Do: do, Compensate: undo},
		kahn.Node{ID: "ship", After: []string{"pay"}, Do: do, Compensate: undo})
}

// While a redriven run performs undone nodes again, the run reports that nodes were undone, not that they are being undone.
func TestCompensationOfARedrivenRun(t *testing.T) {
	inBubble(t, "it runs again", func(t *testing.T) {
		sells := false
		g := graph(kahn.Node{ID: "pay", Do: succeeds(1), Compensate: func(context.Context, *kahn.Step) error { return nil }},
			kahn.Node{ID: "ship", After: []string{"pay"}, Do: func(ctx context.Context, s *kahn.Step) (any, error) {
				if !sells {
					return nil, errSoldOut
				}
				return takes(time.Second)(ctx, s)
			}})
		res, err := kahn.Execute(t.Context(), g, nil, kahn.RunID("r"))
		require.ErrorIs(t, err, errSoldOut)
		sells = true
		run, err := kahn.Start(t.Context(), g, nil, kahn.RunID("r"), kahn.Redrive(res.Snapshot(), nil))
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, kahn.RunRunning, run.Status())
		require.Equal(t, kahn.CompensationDone, run.Compensation())
		_, err = run.Wait()
		require.NoError(t, err)
	})
}

// A redrive performs undone nodes again, under new keys, and keeps the other nodes. The test redrives from a snapshot and over a store.
func TestRedriveOfCompensatedRun(t *testing.T) {
	for _, durable := range []bool{false, true} {
		for _, names := range [][]string{nil, {"ship"}} {
			t.Run(fmt.Sprint(durable, names), func(t *testing.T) {
				s := new(shop)
				g, memory := s.graph(), new(store.Memory)
				opts := []kahn.Option{kahn.RunID("r")}
				if durable {
					opts = append(opts, kahn.Durable(memory))
				}
				redrive := func(res *kahn.Result) (*kahn.Result, error) {
					var from *kahn.Snapshot
					if !durable {
						from = reload(t, res.Snapshot())
					}
					return kahn.Execute(t.Context(), g, nil, append(opts, kahn.Redrive(from, names))...)
				}
				res, err := kahn.Execute(t.Context(), g, nil, opts...)
				require.ErrorIs(t, err, errSoldOut)
				require.Equal(t, []string{"look", "pay", "ship", "unpay"}, s.calls)
				first := []string{s.keys["pay"], s.keys["unpay"]}
				preview, err := kahn.RedrivePreview(compiled(t, g), res.Snapshot(), names)
				require.NoError(t, err)
				require.Equal(t, []string{"pay", "ship"}, preview)
				s.calls = nil
				res, err = redrive(res)
				require.ErrorIs(t, err, errSoldOut)
				require.Equal(t, []string{"pay", "ship", "unpay"}, s.calls)
				second := []string{s.keys["pay"], s.keys["unpay"]}
				require.NotContains(t, first, second[0])
				require.NotContains(t, first, second[1])
				s.calls, s.sells = nil, true
				res, err = redrive(res)
				require.NoError(t, err)
				require.Equal(t, []string{"pay", "ship"}, s.calls)
				require.NotContains(t, append(first, second...), s.keys["pay"])
				require.Equal(t, kahn.RunCompleted, res.Status)
			})
		}
	}
}

// A redrive also performs undone nodes again inside a node whose step returned a graph, and the preview lists them.
func TestPreviewOfUndoneNodesInside(t *testing.T) {
	t.Parallel()
	var calls []string
	do := func(_ context.Context, s *kahn.Step) (any, error) {
		calls = append(calls, s.Path())
		return nil, nil
	}
	node := func(id string, undone bool) kahn.Node {
		n := kahn.Node{ID: id, Do: do}
		if undone {
			n.Compensate = func(context.Context, *kahn.Step) error { return nil }
		}
		return n
	}
	inner := graph(node("pay", true), node("look", false), subgraph("S", graph(node("book", true), node("read", false))))
	fails := true
	g := graph(kahn.Node{ID: "E", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }},
		kahn.Node{ID: "last", After: []string{"E"}, Do: func(ctx context.Context, s *kahn.Step) (any, error) {
			if fails {
				return nil, kahn.NoEffect(errSoldOut)
			}
			return do(ctx, s)
		}})
	res, err := kahn.Execute(t.Context(), g, nil, kahn.Limit(1))
	require.ErrorIs(t, err, errSoldOut)
	s := reload(t, res.Snapshot())
	preview, err := kahn.RedrivePreview(compiled(t, g), s, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"E", "E/S", "E/S/book", "E/pay", "last"}, slices.Sorted(slices.Values(preview)))
	fails, calls = false, nil
	_, err = kahn.Execute(t.Context(), g, nil, kahn.Limit(1), kahn.Redrive(s, nil))
	require.NoError(t, err)
	require.Equal(t, []string{"E/S/book", "E/pay", "last"}, slices.Sorted(slices.Values(calls)))
}

// A redrive is refused if a compensation of the run has failed.
func TestRedriveOfFailedCompensation(t *testing.T) {
	s := &shop{refund: kahn.Permanent(errors.New("no such charge"))}
	g, memory := s.graph(), new(store.Memory)
	opts := []kahn.Option{kahn.RunID("r"), kahn.Durable(memory)}
	_, err := kahn.Execute(t.Context(), g, nil, opts...)
	require.ErrorIs(t, err, kahn.ErrCompensation)
	key := s.keys["pay"]
	_, err = kahn.Execute(t.Context(), g, nil, append(opts, kahn.Redrive(nil, nil))...)
	require.ErrorIs(t, err, kahn.ErrCompensation)
	require.ErrorContains(t, err, `"pay"`)
	s.sells, s.calls = true, nil
	_, err = kahn.Execute(t.Context(), g, nil, append(opts, kahn.Redrive(nil, nil), kahn.DespiteHandlers)...)
	require.NoError(t, err)
	require.Equal(t, []string{"pay", "ship"}, s.calls)
	require.Equal(t, key, s.keys["pay"]) // pay was not undone
}

// A fork performs undone nodes again, and does not undo the nodes that it keeps.
func TestForkOfCompensatedRun(t *testing.T) {
	for _, durable := range []bool{false, true} {
		s := new(shop)
		g := s.graph()
		res, _ := kahn.Execute(t.Context(), g, nil)
		s.calls = nil
		opts := []kahn.Option{kahn.Fork(reload(t, res.Snapshot())), kahn.RunID("fork")}
		memory := new(store.Memory)
		if durable {
			opts = append(opts, kahn.Durable(memory))
		}
		res, err := kahn.Execute(t.Context(), g, nil, opts...)
		require.ErrorIs(t, err, errSoldOut)
		require.Equal(t, []string{"pay", "ship", "unpay"}, s.calls)
		require.Equal(t, kahn.CompensationDone, must(res.Node("pay")).Compensation)

		s.sells = true
		done, err := kahn.Execute(t.Context(), g, nil)
		require.NoError(t, err)
		s.sells, s.calls = false, nil
		res, err = kahn.Execute(t.Context(), g, nil, kahn.Fork(done.Snapshot(), "ship"), kahn.RunID("another"))
		require.ErrorIs(t, err, errSoldOut)
		require.Equal(t, []string{"ship"}, s.calls)
		require.Equal(t, kahn.CompensationNone, must(res.Node("pay")).Compensation)
	}
}

func must[T any](v T, ok bool) T {
	if !ok {
		panic("it is not there")
	}
	return v
}

// A redrive from an iteration of a loop replaces that iteration and the later ones. If a later node fails, each iteration is undone once.
func TestRedriveFromAnIterationUndoesEachOnce(t *testing.T) {
	for _, where := range []string{"in memory", "from JSON", "in a store"} {
		t.Run(where, func(t *testing.T) {
			var undone []string
			sold := true
			undo := func(_ context.Context, step *kahn.Step) error {
				undone = append(undone, step.Path())
				return nil
			}
			loop := kahn.Loop{MaxIterations: 4, Collect: true, OnLimit: kahn.LoopStop, While: func(kahn.View) (bool, error) { return true, nil }}
			g := graph(kahn.Node{ID: "L", Sub: graph(kahn.Node{ID: "x", Compensate: undo}), Loop: &loop}, after("ship", "L"))
			step := func(_ context.Context, step *kahn.Step) (any, error) {
				if step.ID() == "ship" && !sold {
					return nil, kahn.NoEffect(errSoldOut)
				}
				return nil, nil
			}
			opts := []kahn.Option{kahn.RunID("r")}
			if where == "in a store" {
				opts = append(opts, kahn.Durable(new(store.Memory)))
			}
			res, err := kahn.Execute(t.Context(), g, step, opts...)
			require.NoError(t, err)
			var from *kahn.Snapshot
			switch where {
			case "in memory":
				from = res.Snapshot()
			case "from JSON":
				from = reload(t, res.Snapshot())
			}
			sold = false
			_, err = kahn.Execute(t.Context(), g, step, append(opts, kahn.Redrive(from, []string{"L#2"}))...)
			require.ErrorIs(t, err, errSoldOut)
			require.Equal(t, []string{"L#4/x", "L#3/x", "L#2/x", "L#1/x"}, undone)
		})
	}
}
