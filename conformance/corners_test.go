package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/bulk"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// This file tests edge cases that the tests of the features do not cover: the first node, the second edge, the empty id.

// If no edge delivers a parameter, the error lists the members of the outputs that lack an edge's key. It omits the outputs of edges that
// are not taken.
func TestMissingParameterOfACatchEdge(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "A", Do: yields(0, map[string]any{"rows": 1})}, kahn.Node{ID: "Z", Do: takes(time.Second)}, kahn.Node{ // Z ends after A
			ID: "B", Join: kahn.AnySucceeded, In: []kahn.Edge{{From: "A", On: kahn.OnFailure, Key: "rosw", Param: "p"}, {From: "Z"}},
			Do: func(_ context.Context, s *kahn.Step) (any, error) { return kahn.Param[int](s, "p") },
		}), nop)
		require.ErrorIs(t, r.node("B").Err, kahn.ErrNoValue)
		require.NotContains(t, r.node("B").Err.Error(), "rows")
	})
}

// Plan.Sub returns the plan of each node's sub-graph, including the first node's.
func TestSubOfEveryNode(t *testing.T) {
	inner := graph(after("x"))
	p := compiled(t, graph(subgraph("first", inner), after("plain"), subgraph("last", inner)))
	for ref, id := range p.Declared() {
		require.Equal(t, id != "plain", p.Sub(ref) != nil, id)
	}
	require.Nil(t, p.Sub(-1))
	require.Nil(t, p.Sub(3))
}

// A gate has choices only while it waits: none before, and none after its answer.
func TestChoicesOfAGateThatDoesNotWait(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		g := graph(kahn.Node{ID: "A", Do: takes(time.Second)}, kahn.Node{ID: "G", After: []string{"A"}, Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"go", "hold"}}},
			kahn.Node{ID: "B", After: []string{"G"}, Do: takes(time.Second)})
		run, err := new(kahn.Runner).Start(t.Context(), g, nil)
		require.NoError(t, err)
		choices := func() []string {
			synctest.Wait()
			w, err := run.Why("G")
			require.NoError(t, err)
			require.Equal(t, len(w.Choices) > 0, w.Kind == kahn.WhySignal)
			return w.Choices
		}
		require.Empty(t, choices())
		time.Sleep(time.Second)
		require.Equal(t, []string{"go", "hold"}, choices())
		require.NoError(t, run.Signal(context.Background(), "G", "go"))
		require.Empty(t, choices())
		_, err = run.Wait()
		require.NoError(t, err)
	})
}

// A memoized result takes no rate token: the next node starts as if the memoized node did not exist.
func TestMemoTakesNoToken(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		memo := new(kahn.Memo)
		try(t, graph(kahn.Node{ID: "A", Memo: "v1", Do: takes(0)}), nil, memo)
		began := map[string]time.Duration{}
		start := time.Now()
		step := func(_ context.Context, s *kahn.Step) (any, error) { began[s.ID()] = time.Since(start); return nil, nil }
		g := graph(kahn.Node{ID: "A", Memo: "v1", Do: neverStep(t)}, after("B", "A"), after("C", "B"))
		r := try(t, g, step, memo, kahn.Rate{Starts: 1, Per: time.Minute, Burst: 1})
		r.expect("A:ok B:ok C:ok", "completed")
		require.Equal(t, map[string]time.Duration{"B": 0, "C": time.Minute}, began)
	})
}

// Several edges that disagree about one parameter are reported as one problem.
func TestMergeConflictIsToldOnce(t *testing.T) {
	in := func(from, merge string) kahn.Edge { return kahn.Edge{From: from, Param: "p", Merge: merge} }
	_, err := graph(after("A"), after("B"), after("C"), kahn.Node{ID: "J", In: []kahn.Edge{in("A", kahn.MergeArray), in("B", kahn.MergeConcat), in("C", kahn.MergeArray)}}).Compile()
	require.ErrorIs(t, err, kahn.ErrMergeConflict)
	require.Equal(t, 1, strings.Count(err.Error(), kahn.ErrMergeConflict.Error()), err)
}

// If several parameters cannot be merged, the failure names the first one.
func TestFirstMergeThatFails(t *testing.T) {
	bothModes(t, "", func(t *testing.T, mode kahn.Mode) {
		in := func(from, param string) kahn.Edge {
			return kahn.Edge{From: from, Param: param, Merge: "fails " + param}
		}
		g := graph(after("A"), after("B"), kahn.Node{ID: "J", In: []kahn.Edge{in("A", "p"), in("B", "p"), in("A", "q"), in("B", "q")}})
		for _, param := range []string{"p", "q"} {
			g.RegisterMerge("fails "+param, func([]kahn.Contribution) (any, error) { return nil, errors.New("no " + param) })
		}
		r := try(t, g, nop, mode)
		r.cause("J", kahn.CauseMergeError)
		require.ErrorContains(t, r.node("J").Err, `parameter "p": `)
		require.ErrorContains(t, r.node("J").Err, "no p")
	})
}

// An idempotency key belongs to one graph. AllowGraphChange lets a run continue with another graph, but does not let another run use the key.
func TestKeyOfAnotherGraph(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		s := new(kahn.IdempotencyStore)
		try(t, graph(after("A")), nop, kahn.Idempotent(s, "k"))
		_, err := kahn.Execute(t.Context(), graph(after("A"), after("B")), nop, kahn.Idempotent(s, "k"), kahn.AllowGraphChange())
		require.ErrorIs(t, err, kahn.ErrKeyConflict)
	})
}

// A caller with another graph does not join the run of a key, even if the caller also names the id of the stored run.
func TestKeyOfAnotherGraphWithTheRunsID(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		opts := []kahn.Option{kahn.Idempotent(new(kahn.IdempotencyStore), "k"), kahn.Durable(new(store.Memory)), kahn.RunID("r")}
		try(t, graph(after("A")), nop, opts...)
		_, err := kahn.Execute(t.Context(), graph(after("A"), after("B")), nop, opts...)
		require.ErrorIs(t, err, kahn.ErrKeyConflict)
	})
}

// A cleanup node may set the join rule that cleanup nodes have by default.
func TestCleanupWithItsOwnRule(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		g := graph(after("A"), kahn.Node{ID: "K", After: []string{"A"}, Cleanup: true, Join: kahn.AllDone})
		try(t, g, fails(0)).expect("A:F K:F", "failed")
	})
}

// Encoding a snapshot does not change the snapshot. A run that continues from it in the same process has the same payload value, including fields
// that JSON omits.
func TestEncodingKeepsThePayload(t *testing.T) {
	type parcel struct {
		ID   int
		open bool
	}
	types := kahn.Encoding(kahn.Types{"parcel": parcel{}})
	inBubble(t, "", func(t *testing.T) {
		g := graph(trigger("T"), gate("G", "T"), kahn.Node{ID: "A", After: []string{"G"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			payload, _ := s.View().Trigger()
			return payload, nil
		}})
		r := pause(t, g, nop, kahn.Fire("T", parcel{1, true}), types)
		s := r.Snapshot()
		_, err := json.Marshal(s)
		require.NoError(t, err)
		res, err := kahn.Execute(t.Context(), g, nop, types, kahn.Resume(s), kahn.EarlySignals(map[string]any{"G": 1}))
		require.NoError(t, err)
		require.Equal(t, parcel{1, true}, must(res.Node("A")).Output)
	})
}

// A sub-graph without a schema compiler uses the compiler of the enclosing graph, at any depth. A sub-graph with a compiler uses its own.
func TestSchemasOfSubGraphs(t *testing.T) {
	schema := func() *kahn.Graph { return graph(kahn.Node{ID: "A", InputSchema: map[string]any{}}) }
	g := graph(subgraph("S", graph(subgraph("T", schema()))))
	_, err := g.Compile()
	require.ErrorIs(t, err, kahn.ErrNoSchemas)
	g.Schemas = shapes{}
	_, err = g.Compile()
	require.NoError(t, err)
	own := schema()
	own.Schemas = noShapes{}
	g.Add(subgraph("own", own))
	_, err = g.Compile()
	require.ErrorIs(t, err, kahn.ErrBadSchema)
	require.ErrorContains(t, err, "own")
}

// noShapes is a schema compiler that refuses every schema.
type noShapes struct{}

func (noShapes) Compile(any) (kahn.Contract, error) { return nil, errors.New("own rules") }

// A call of bulk.Cancel without a request id creates one new id, which it uses for all runs of the call.
func TestBulkCancelWithoutAnID(t *testing.T) {
	s := new(postings)
	for _, id := range []string{"a", "b"} {
		run, err := kahn.Prepare(graph(gate("G")), kahn.RunID(id))
		require.NoError(t, err)
		_, _, err = s.Create(t.Context(), run)
		require.NoError(t, err)
	}
	for range 2 {
		_, err := bulk.Cancel(t.Context(), s, bulk.Selection{}, store.Request{})
		require.NoError(t, err)
	}
	require.Len(t, s.ids, 4)
	require.NotContains(t, s.ids, "")
	require.Equal(t, s.ids[0], s.ids[1])
	require.NotEqual(t, s.ids[1], s.ids[2])
}

// postings is a store that records the ids of requests.
type postings struct {
	store.Memory
	ids []string
}

func (s *postings) Post(ctx context.Context, run string, q store.Request) (bool, error) {
	s.ids = append(s.ids, q.ID)
	return s.Memory.Post(ctx, run, q)
}

// A run that has not ended has the status running, is not degraded, and has no cause.
func TestRunStatusBeforeTheEnd(t *testing.T) {
	p := compiled(t, graph(after("A"), after("B", "A")))
	st, err := kahn.NewState(p)
	require.NoError(t, err)
	status, degraded, cause := p.RunStatus(st, &kahn.Values{}, kahn.StatusEscaped)
	require.Equal(t, []any{kahn.RunRunning, false, kahn.CauseNone}, []any{status, degraded, cause})
}

// A coordinator of a State gets the same outcome for a step's result as a Run does: an end node can neither wait nor be skipped.
func TestConcludeSuspension(t *testing.T) {
	p := compiled(t, graph(after("A"), kahn.Node{ID: "Z", Kind: kahn.KindEnd, After: []string{"A"}}))
	for id, want := range map[string]map[error]kahn.Status{
		"A": {kahn.Suspend("", nil, nil): kahn.Suspended, kahn.Skip(""): kahn.Skipped, errStep: kahn.Failed},
		"Z": {kahn.Suspend("", nil, nil): kahn.Failed, kahn.Skip(""): kahn.Failed, errStep: kahn.Failed},
	} {
		ref, _ := p.Ref(id)
		for err, status := range want {
			out, _ := p.Conclude(ref, nil, err)
			require.Equal(t, status, out.Status, "%s: %v", id, err)
		}
	}
}

// A path to a node inside a composite must be exact: only loops have iterations, and only maps have items.
func TestPathsThatLookAlmostRight(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		inner := func() *kahn.Graph { return graph(kahn.Node{ID: "x", Do: takes(time.Second)}) }
		g := graph(subgraph("S", inner()), kahn.Node{ID: "M", Sub: inner(), Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []int{1}}},
			kahn.Node{ID: "L", Sub: inner(), Loop: &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < 2, nil }, MaxIterations: 2}})
		run, err := kahn.Start(t.Context(), g, nil)
		require.NoError(t, err)
		synctest.Wait()
		for _, path := range []string{"S/x", "M[0]/x", "L#1/x"} {
			_, err := run.Node(path)
			require.NoError(t, err, path)
		}
		for path, choice := range map[string]string{"S#0/x": "", "S#1/x": "", "S/y": "S/x", "M/x": "", "M(0)/x": "", "M#1/x": "", "L/x": "", "L#0/x": ""} {
			_, err := run.Node(path)
			var wrong *kahn.PathError
			require.ErrorAs(t, err, &wrong, path)
			if choice != "" {
				require.Empty(t, wrong.Reason, path)
				require.Equal(t, []string{choice}, wrong.Choices, path)
			}
		}
		_, err = run.Wait()
		require.NoError(t, err)
	})
}

// If one item of a map is degraded, the map and the run are degraded, too.
func TestDegradedItem(t *testing.T) {
	for _, bad := range []int{0, 1, 2} {
		bothModes(t, fmt.Sprint("item ", bad), func(t *testing.T, mode kahn.Mode) {
			inner := graph(kahn.Node{ID: "x", ContinueOnFail: true})
			g := graph(kahn.Node{ID: "M", Sub: inner, Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []int{0, 1, 2}}})
			r := try(t, g, func(_ context.Context, s *kahn.Step) (any, error) {
				if item, _ := s.Root("item"); item == bad {
					return nil, errStep
				}
				return nil, nil
			}, mode)
			r.expect("M:ok", "completed+d")
		})
	}
}

// A cleanup node that runs after a failure does not handle the failure, even if a catch edge leads to the cleanup node.
func TestCleanupHandlesNothing(t *testing.T) {
	bothModes(t, "", func(t *testing.T, mode kahn.Mode) {
		catch := kahn.Node{ID: "C", In: []kahn.Edge{{From: "A", On: kahn.OnFailure}}}
		try(t, graph(kahn.Node{ID: "A", Do: always(errStep)}, catch), nop, mode).expect("A:F C:ok", "completed+d")
		catch.Cleanup = true
		try(t, graph(kahn.Node{ID: "A", Do: always(errStep)}, catch), nop, mode).expect("A:F C:ok", "failed")
	})
}

// A condition has no context, so leaving a run cannot interrupt it. An error that the condition returns meanwhile counts, and the condition is
// not evaluated again.
func TestConditionThatFailsWhileTheRunIsLeft(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		goOn := make(chan bool)
		g := graph(kahn.Node{ID: "C", Kind: kahn.KindCondition, Test: func(kahn.View) (any, error) { <-goOn; return nil, errStep }})
		rn := new(kahn.Runner)
		run, err := rn.Start(t.Context(), g, nil)
		require.NoError(t, err)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		go func() { time.Sleep(ms); close(goOn) }()
		_ = rn.Shutdown(ctx) // returns an error, because Shutdown interrupted the run
		res, _ := run.Wait()
		n, _ := res.Node("C")
		require.Equal(t, []any{kahn.Failed, kahn.CauseConditionError}, []any{n.Status, n.Cause.Kind})
	})
}

// Serve polls the store once per interval, with a jitter of a tenth.
func TestServePollsEvenly(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		s, g := new(served), flow("w")
		x := s.service(g)
		x.Poll = time.Minute
		end := serve(t, new(kahn.Runner), x)
		time.Sleep(time.Minute + 6*time.Second) // the first two polls
		s.mu.Lock()
		before := s.dues
		s.mu.Unlock()
		time.Sleep(1000 * time.Minute)
		s.mu.Lock()
		require.InDelta(t, 1000, s.dues-before, 20)
		s.mu.Unlock()
		end()
	})
}

// A node follows a failed node and an error boundary below this failed node. Only the boundary judges the failure, even if the node follows many
// such pairs.
func TestManyBoundariesAboveANode(t *testing.T) {
	for _, n := range []int{1, 4, 12} {
		bothModes(t, fmt.Sprint(n), func(t *testing.T, mode kahn.Mode) {
			g, last := graph(), kahn.Node{ID: "last"}
			for i := range n {
				f, above, c := fmt.Sprint("f", i), fmt.Sprint("above", i), fmt.Sprint("c", i)
				g.Add(kahn.Node{ID: f, Do: always(errStep)}, after(above, f), kahn.Node{ID: c, Join: kahn.Boundary, After: []string{above}})
				last.After = append(last.After, c, f)
			}
			r := try(t, g.Add(last), nop, mode)
			if status := r.node("last").Status; status != kahn.Completed {
				t.Errorf("%d boundaries: the node behind them is %v", n, status)
			}
		})
	}
}

// If a coordinator reports a check for a node that waits for none, the report has no effect and counts as stale.
func TestStaleChecksAreCounted(t *testing.T) {
	p := compiled(t, graph(after("A")))
	st, err := kahn.NewState(p)
	require.NoError(t, err)
	ref, _ := p.Ref("A")
	require.ErrorIs(t, st.Checked(machine.Token{Ref: ref}, machine.CheckVerdict{}), machine.ErrStale)
	locked := (*machine.Locked)(st)
	locked.Lock()
	defer locked.Unlock()
	require.Equal(t, 1, locked.StaleOutcomes())
}
