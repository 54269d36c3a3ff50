package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// This file has rules about groups, retries, compensations and errors whose node is one or two levels deeper than the node that it affects.

// A member of a group fails for good inside a composite that is not attempted again. The members outside are stopped at once, not at the end of the
// composite. An item of a map may be attempted again, but the map around it may not.
func TestMembersOutsideStopAtOnce(t *testing.T) {
	group := kahn.Group{Name: "g", CancelOnFailure: true}
	inside := graph(kahn.Node{ID: "m", Groups: []string{"g"}}, after("slow"))
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		switch {
		case s.ID() == "o":
			<-ctx.Done()
			return nil, ctx.Err()
		case s.ID() == "m" && !strings.HasPrefix(s.Path(), "X[1]"):
			time.Sleep(time.Second)
			return nil, errStep
		case s.ID() == "slow" && !strings.HasPrefix(s.Path(), "X[0]"):
			time.Sleep(time.Minute)
		}
		return nil, nil
	}
	for name, row := range map[string]struct {
		node kahn.Node
		at   time.Duration
	}{
		"no cause is retried": {kahn.Node{ID: "X", Sub: inside, Retry: kahn.Retry{MaxAttempts: 2, RetryOn: []kahn.CauseKind{}}}, time.Second},
		"an item": {
			kahn.Node{
				ID: "X", Sub: inside, Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": numbers(2)},
				Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Second, Jitter: kahn.JitterNone},
			},
			3 * time.Second,
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			g := graph(row.node, kahn.Node{ID: "o", Groups: []string{"g"}})
			g.Groups = []kahn.Group{group}
			r := try(t, g, step)
			r.cause("o", kahn.CauseSiblingFailure)
			require.Equal(t, row.at, r.at(event.NodeAborted, "o"))
		})
	}
}

// The Retry of a map belongs to its items: if the map fails as a whole, its items do not begin again.
func TestAMapIsNotAttemptedAgain(t *testing.T) {
	inBubble(t, "contract", func(t *testing.T) {
		m := mapped("M", numbers(2), kahn.Map{})
		m.Retry = kahn.Retry{MaxAttempts: 3, RetryOn: []kahn.CauseKind{kahn.CauseContractOutput}}
		m.OutputSchema = refusesAll{}
		calls := 0
		r := try(t, graph(m), func(_ context.Context, s *kahn.Step) (any, error) { calls++; return nil, nil }, kahn.Limit(1)) // one step at a time
		r.cause("M", kahn.CauseContractOutput)
		require.Equal(t, 2, calls)
	})
}

// The event node.compensating follows the end of the node that made the run undo its nodes, also if the undone node is inside a composite.
func TestNodesInsideAreUndoneAfterTheFailure(t *testing.T) {
	undone := kahn.Node{ID: "p", Compensate: succeedsUndo}
	item := mapped("V", numbers(2), kahn.Map{})
	item.Compensate = succeedsUndo
	for name, v := range map[string]kahn.Node{"sub": subgraph("V", graph(undone)), "deep": subgraph("V", graph(subgraph("W", graph(undone)))), "map": item} {
		inBubble(t, name, func(t *testing.T) {
			r := try(t, graph(v, after("a", "V"), after("b", "a")), func(_ context.Context, s *kahn.Step) (any, error) {
				if s.ID() == "a" {
					return nil, errStep
				}
				return nil, nil
			})
			first := slices.IndexFunc(r.events, func(e kahn.Event) bool { return e.Type == event.NodeCompensating })
			last := slices.IndexFunc(r.events, func(e kahn.Event) bool { return e.Type == event.NodeAborted && e.Node == "b" })
			require.Positive(t, last)
			require.Greater(t, first, last)
		})
	}
}

// If the failure that stopped the members of a group was handled, the run fails because of these members. Its error names the member that failed, also
// on another level.
func TestErrorOfAGroupOnTwoLevels(t *testing.T) {
	member := func(id string) kahn.Node { return kahn.Node{ID: id, Groups: []string{"g"}} }
	handler := kahn.Node{ID: "h", In: []kahn.Edge{{From: "m", On: kahn.OnFailure}}}
	stopped := func(member string) string {
		return `node "o": sibling_failure: run aborted: node "` + member + `" of group "g" failed`
	}
	for name, row := range map[string]struct {
		nodes []kahn.Node
		want  string
	}{
		"flat":              {[]kahn.Node{member("m"), handler, member("o")}, `run failed: node "m": step_error: ` + errStep.Error()},
		"failed inside":     {[]kahn.Node{subgraph("S", graph(member("m"), handler)), member("o")}, "run failed: " + stopped("S/m")},
		"stopped inside":    {[]kahn.Node{member("m"), handler, subgraph("S", graph(member("o")))}, `run failed: node "S": subrun: run failed: ` + stopped("m")},
		"in two composites": {[]kahn.Node{subgraph("S", graph(member("m"), handler)), subgraph("T", graph(member("o")))}, `run failed: node "T": subrun: run failed: ` + stopped("S/m")},
	} {
		inBubble(t, name, func(t *testing.T) {
			g := graph(row.nodes...)
			g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
			db := new(store.Memory)
			res, err := kahn.Execute(t.Context(), g, func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.ID() == "m" {
					time.Sleep(time.Second)
					return nil, errStep
				}
				if s.ID() == "o" {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return nil, nil
			}, kahn.Durable(db), kahn.RunID("r"))
			require.EqualError(t, err, row.want)
			require.Equal(t, kahn.RunFailed, res.Status)
			read, err := kahn.ReadResult(t.Context(), g, db, "r")
			require.EqualError(t, err, row.want)
			require.Equal(t, kahn.RunFailed, read.Status)
		})
	}
}

// A composite's own compensation has failed, and so has one inside it. A repair of one of the two leaves the other one as it is, for a later repair.
func TestRepairOfOneOfTwoLevels(t *testing.T) {
	for _, mode := range []kahn.RedriveMode{kahn.RepeatCompensations, kahn.CompensatedByHand} {
		for _, row := range [][2]string{{"S/a", "S"}, {"S", "S/a"}} {
			inBubble(t, row[0], func(t *testing.T) {
				var undone []string
				broken := true
				undo := func(_ context.Context, s *kahn.Step) error {
					undone = append(undone, s.Path())
					if broken {
						return kahn.Permanent(errStep)
					}
					return nil
				}
				g := graph(kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "a", Do: func(context.Context, *kahn.Step) (any, error) { return nil, errStep }, Compensate: undo}), Compensate: undo})
				opts := []kahn.Option{kahn.Durable(new(store.Memory)), kahn.RunID("r")}
				_, err := kahn.Execute(t.Context(), g, nil, opts...)
				require.ErrorIs(t, err, kahn.ErrCompensation)
				require.Equal(t, []string{"S/a", "S"}, undone)
				broken, undone = false, nil
				for _, node := range row {
					res, err := kahn.Execute(t.Context(), g, nil, append(opts, kahn.Redrive(nil, []string{node}), mode)...)
					require.ErrorContains(t, err, "node \"a\"")
					s := must(res.Node("S"))
					require.Equal(t, node == "S" || row[0] == "S", s.Compensation == kahn.CompensationDone, "S after the repair of %s", node)
					require.Equal(t, node == "S/a" || row[0] == "S/a", must(s.Sub.Node("a")).Compensation == kahn.CompensationDone, "S/a after the repair of %s", node)
				}
				if mode == kahn.RepeatCompensations {
					require.Equal(t, row[:], undone)
				} else {
					require.Empty(t, undone)
				}
			})
		}
	}
}

// The graph of an expanded node is not known while the run rests, but the store has the choices of the gates inside. A wrong answer is refused at once,
// and does not stand in the way of the right one.
func TestWrongAnswerInsideAnExpandedNodeAtRest(t *testing.T) {
	asks := func() *kahn.Graph {
		return graph(kahn.Node{ID: "g", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"red", "blue"}}})
	}
	for name, x := range map[string]func() (any, error){
		"expanded":          func() (any, error) { return nil, kahn.Expand(asks(), nil, nil) },
		"sub in expanded":   func() (any, error) { return nil, kahn.Expand(graph(subgraph("S", asks())), nil, nil) },
		"expanded in a sub": func() (any, error) { return nil, kahn.Expand(asks(), nil, nil) },
	} {
		inBubble(t, name, func(t *testing.T) {
			g, path := graph(after("X")), "X/g"
			switch name {
			case "sub in expanded":
				path = "X/S/g"
			case "expanded in a sub":
				g, path = graph(subgraph("T", graph(after("X")))), "T/X/g"
			}
			var called atomic.Int32
			again := make(chan struct{})
			step := func(context.Context, *kahn.Step) (any, error) {
				if called.Add(1) > 1 {
					<-again
				}
				return x()
			}
			opts := []kahn.Option{kahn.Durable(new(store.Memory)), kahn.RunID("r")}
			res, err := kahn.Execute(t.Context(), g, step, opts...)
			require.NoError(t, err)
			require.Equal(t, kahn.RunSuspended, res.Status)
			_, err = kahn.Execute(t.Context(), g, step, append(opts, kahn.EarlySignals(map[string]any{path: "green"}))...)
			require.ErrorIs(t, err, kahn.ErrChoice)
			require.EqualValues(t, 1, called.Load(), "nothing has begun")

			run, err := kahn.Start(t.Context(), g, step, opts...)
			require.NoError(t, err)
			synctest.Wait() // the step is called for its graph again
			require.ErrorIs(t, run.Signal(t.Context(), path, "green"), kahn.ErrChoice)
			require.NoError(t, run.Signal(t.Context(), path, "red"))
			close(again)
			res, err = run.Wait()
			require.NoError(t, err)
			require.Equal(t, kahn.RunCompleted, res.Status)
		})
	}
}

// Nodes inside an expanded node are undone. A redrive calls the same steps whether or not the run was left after the expanded node had completed.
func TestRedriveInsideAnExpandedNodeOfAnEarlierLife(t *testing.T) {
	calls := map[bool][]string{}
	for _, left := range []bool{false, true} {
		inBubble(t, fmt.Sprint("left ", left), func(t *testing.T) {
			var called []string
			broken := true
			step := func(ctx context.Context, s *kahn.Step) (any, error) {
				called = append(called, s.Path())
				switch s.Path() {
				case "X":
					return nil, kahn.Expand(graph(after("i"), kahn.Node{ID: "k", After: []string{"i"}, Compensate: succeedsUndo}, after("j", "k")), nil, nil)
				case "f":
					select {
					case <-time.After(time.Second):
					case <-ctx.Done():
						return nil, context.Cause(ctx)
					}
					if broken {
						return nil, errStep
					}
				}
				return nil, nil
			}
			g, opts := graph(after("X"), after("f", "X")), []kahn.Option{kahn.Durable(new(store.Memory)), kahn.RunID("r"), kahn.Limit(1)}
			if left {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
				_, err := kahn.Execute(ctx, g, step, opts...)
				cancel()
				require.ErrorIs(t, err, kahn.ErrLeft)
			}
			_, err := kahn.Execute(t.Context(), g, step, opts...)
			require.ErrorIs(t, err, errStep)
			broken, called = false, nil
			_, err = kahn.Execute(t.Context(), g, step, append(opts, kahn.Redrive(nil, nil))...)
			require.NoError(t, err)
			calls[left] = called
		})
	}
	require.Equal(t, []string{"X", "X/k", "X/j", "f"}, calls[false])
	require.Equal(t, calls[false], calls[true])
}
