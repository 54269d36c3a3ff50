package conformance_test

import (
	"context"
	"encoding/json"
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

// lookOf renders what a snapshot and its run must both report about a node. It uses wall-clock times.
func lookOf(n kahn.NodeResult) string {
	decision := ""
	if n.Decision != nil {
		decision = fmt.Sprint(*n.Decision)
	}
	text := fmt.Sprintf("%s %s %q tier %d %v attempts %d cause %v of %v skip %v error %v guard %v last %v labels %v output %v decision %s flags %v", n.ID, n.Kind, n.Label, n.Tier,
		n.Status, n.Attempts, n.Cause.Kind, n.Cause.Origins, n.Skip, n.Err, n.GuardErr, n.LastErr, n.Labels, n.Output, decision, []bool{n.Memoized, n.Fallback, n.Tolerated, n.Abandoned})
	for _, a := range n.History() {
		text += fmt.Sprintf(" [%d: %v to %v, %v, %v]", a.Number, a.Start.UnixNano(), a.End.UnixNano(), a.Err, a.Delay)
	}
	return text
}

// snapshotDiffers compares the nodes of a snapshot with the nodes of the Result.
func snapshotDiffers(res *kahn.Result) (problems []string) {
	nodes, err := res.Snapshot().Nodes(res.Plan())
	if err != nil {
		return []string{err.Error()}
	}
	i := 0
	for want := range res.Nodes() {
		if i == len(nodes) {
			return []string{fmt.Sprintf("it has %d nodes", i)}
		}
		if have := lookOf(nodes[i].NodeResult); have != lookOf(want) {
			problems = append(problems, have+", in the result "+lookOf(want))
		}
		i++
	}
	return problems
}

// treeOf renders the nodes of a snapshot with their statuses. Nodes in composites are in brackets.
func treeOf(nodes []kahn.SnapshotNode) (text string) {
	for _, n := range nodes {
		text += " " + n.ID + ":" + statusText(n.Status)
		if n.Inside != nil {
			text += " {" + n.Prefix + treeOf(n.Inside) + " }"
		}
	}
	return text
}

func statusText(s kahn.Status) string {
	if s == kahn.Completed {
		return "ok"
	}
	return s.String()
}

// Another process reads the snapshot of a stored, waiting run: with the run's plan, without a plan, and with the plan of another graph.
func TestSnapshotNodes(t *testing.T) {
	t.Parallel()
	inBubble(t, "a stored run", func(t *testing.T) {
		waits := graph(kahn.Node{ID: "x", Do: takes(20 * ms)}, kahn.Node{ID: "y", After: []string{"x"}, Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"go", "hold"}}})
		g := graph(
			kahn.Node{ID: "S", Label: "sub", Sub: waits},
			kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []string{"p", "q"}}, Sub: waits},
			kahn.Node{ID: "L", Sub: graph(kahn.Node{ID: "z", Do: takes(15 * ms)}), Loop: &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < 3, nil }, MaxIterations: 9}},
			kahn.Node{ID: "E", Do: func(context.Context, *kahn.Step) (any, error) {
				return nil, kahn.Expand(graph(kahn.Node{ID: "in", Sub: waits}), nil, nil)
			}},
			kahn.Node{ID: "late", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Hour, Jitter: kahn.JitterNone}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, fmt.Errorf("too early") }},
			kahn.Node{ID: "after", After: []string{"S"}, Sub: waits},
			kahn.Node{ID: "idle", After: []string{"after"}},
		)
		memory := &store.Memory{}
		run, err := kahn.Start(t.Context(), g, nothing, kahn.RunID("r"), kahn.Durable(memory))
		require.NoError(t, err)
		time.Sleep(time.Second)

		s, err := kahn.ReadSnapshot(t.Context(), memory, "r")
		require.NoError(t, err)
		nodes, err := s.Nodes(run.Plan())
		require.NoError(t, err)
		require.Equal(t, " S:suspended {S/ S/x:ok S/y:suspended } M:suspended { M[0]:suspended {M[0]/ M[0]/x:ok M[0]/y:suspended } M[1]:suspended {M[1]/ M[1]/x:ok M[1]/y:suspended } }"+
			" L:ok {L#3/ L#3/z:ok } E:suspended {E/ E/in:suspended {E/in/ E/in/x:ok E/in/y:suspended } } late:retrying after:waiting idle:idle", treeOf(nodes))
		byID := map[string]kahn.SnapshotNode{}
		for _, n := range nodes {
			byID[n.ID] = n
		}
		require.Equal(t, "sub", byID["S"].Label)
		require.Equal(t, 3, byID["L"].Iteration)
		require.Equal(t, []any{true, "after/", 2}, []any{byID["after"].Composite, byID["after"].Prefix, byID["after"].Plan.Len()})
		gate := byID["S"].Inside[1]
		require.Equal(t, []any{"S/y", []string{"go", "hold"}}, []any{gate.Wait.Node, gate.Choices})
		require.Nil(t, byID["E"].Plan, "the store does not have the graph that the step returned")
		late := byID["late"]
		require.Len(t, late.History(), 1)
		require.ErrorContains(t, late.History()[0].Err, "too early")
		require.Equal(t, time.Hour, late.Until.Sub(late.History()[0].End))

		bare, err := s.Nodes(nil)
		require.NoError(t, err)
		require.Len(t, bare, 5, "those that are not idle")
		require.Empty(t, bare[4].Label)
		_, err = s.Nodes(compiled(t, waits))
		require.ErrorIs(t, err, kahn.ErrGraphChanged)

		// A snapshot taken in this process contains Go values. A decoded snapshot contains their JSON.
		run.Cancel(kahn.Request{Actor: "ann"})
		res, _ := run.Wait()
		require.Empty(t, snapshotDiffers(res))
		s, err = kahn.ReadSnapshot(t.Context(), memory, "r")
		require.NoError(t, err)
		nodes, err = s.Nodes(run.Plan())
		require.NoError(t, err)
		at := slices.IndexFunc(nodes, func(n kahn.SnapshotNode) bool { return n.ID == "L" })
		require.IsType(t, json.RawMessage{}, nodes[at].Output)
		require.ErrorIs(t, nodes[0].Err, kahn.ErrCancelled)
	})
}

// Sleeps is true for a node that sleeps. It is false for a node that backs off, and after the node has ended, even if it slept at its end.
func TestSnapshotOfSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := graph(after("asleep"), after("awake"), kahn.Node{ID: "late", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Hour}})
		run, err := kahn.Start(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
			switch {
			case s.ID() == "late":
				return nil, errStep
			case s.SavedState() != nil:
				return nil, nil
			}
			return nil, kahn.SuspendUntil(time.Now().Add(map[string]time.Duration{"asleep": time.Hour, "awake": ms}[s.ID()]), "slept")
		})
		require.NoError(t, err)
		sleeps := func() (ids []string) {
			nodes, err := run.Snapshot().Nodes(run.Plan())
			require.NoError(t, err)
			for _, n := range nodes {
				if n.Sleeps {
					ids = append(ids, n.ID)
				}
			}
			return ids
		}
		time.Sleep(time.Second)
		require.Equal(t, []string{"asleep"}, sleeps())
		run.Cancel()
		_, _ = run.Wait()
		require.Empty(t, sleeps())
	})
}

// In a snapshot a node is waiting if a predecessor has started or ended. A predecessor that is ready but lacks a slot has done neither.
func TestSnapshotNodesBehindReadyOnes(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		g := graph(after("A"), after("B"), after("behind A", "A"), after("behind B", "B"), after("far behind", "behind A"))
		run, err := kahn.Start(t.Context(), g, takes(time.Second), kahn.Limit(1))
		require.NoError(t, err)
		synctest.Wait()
		nodes, err := run.Snapshot().Nodes(run.Plan())
		require.NoError(t, err)
		require.Equal(t, " A:running B:ready behind A:waiting behind B:idle far behind:idle", treeOf(nodes))
		_, err = run.Wait()
		require.NoError(t, err)
	})
}

// A snapshot is refused if it says that a node was skipped for a required port without a value and does not name the port.
func TestSkipWithoutItsPort(t *testing.T) {
	t.Parallel()
	g := graph(kahn.Node{ID: "a"}, kahn.Node{ID: "b", Ports: []kahn.Port{{Name: "rows", Required: true}}, In: []kahn.Edge{{From: "a", Param: "rows"}}})
	res, err := kahn.Execute(t.Context(), g, func(context.Context, *kahn.Step) (any, error) { return nil, nil })
	require.NoError(t, err)
	require.Empty(t, snapshotDiffers(res))
	data, err := json.Marshal(res.Snapshot())
	require.NoError(t, err)
	var file map[string]any
	require.NoError(t, json.Unmarshal(data, &file))
	node := file["nodes"].([]any)[1].(map[string]any)
	require.Equal(t, "null_propagation", node["skip"])
	delete(node, "by")
	data, err = json.Marshal(file)
	require.NoError(t, err)
	forged := new(kahn.Snapshot)
	require.NoError(t, json.Unmarshal(data, forged))
	nodes, err := forged.Nodes(compiled(t, g))
	require.NoError(t, err)
	require.Equal(t, kahn.Skipped, nodes[1].Status)
	_, err = kahn.Execute(t.Context(), g, nothing, kahn.Redrive(forged, []string{"a"}))
	require.NoError(t, err)
	g.Add(kahn.Node{ID: "c"})
	_, err = kahn.Execute(t.Context(), g, nothing, kahn.RunID("fork"), kahn.Fork(forged, "c"))
	require.ErrorIs(t, err, kahn.ErrBadValue)
}

// A damaged snapshot has a node that was skipped because of a condition's branch, but lacks the condition. The nodes of this snapshot can
// still be listed.
func TestSkipWithoutItsBranch(t *testing.T) {
	t.Parallel()
	g := graph(kahn.Node{ID: "which", Kind: kahn.KindCondition}, kahn.Node{ID: "b", In: []kahn.Edge{{From: "which", Label: "left"}}}, kahn.Node{ID: "c", In: []kahn.Edge{{From: "which", Label: "right"}}})
	res, err := kahn.Execute(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "which" {
			return "left", nil
		}
		return nil, nil
	})
	require.NoError(t, err)
	data, err := json.Marshal(res.Snapshot())
	require.NoError(t, err)
	var file map[string]any
	require.NoError(t, json.Unmarshal(data, &file))
	file["nodes"] = slices.DeleteFunc(file["nodes"].([]any), func(n any) bool { return n.(map[string]any)["id"] == "which" })
	data, err = json.Marshal(file)
	require.NoError(t, err)
	forged := new(kahn.Snapshot)
	require.NoError(t, json.Unmarshal(data, forged))
	nodes, err := forged.Nodes(compiled(t, g))
	require.NoError(t, err)
	require.Equal(t, []kahn.Status{0, kahn.Completed, kahn.Skipped}, []kahn.Status{nodes[0].Status, nodes[1].Status, nodes[2].Status})
	require.Equal(t, kahn.SkipConditionBranch, nodes[2].Skip.Kind)
}

// The nodes of a snapshot have causes with the errors that the causes of the Result's nodes have.
func TestCausesOfSnapshotNodes(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		g := graph(after("fine"), kahn.Node{ID: "fails", Do: always(errStep)}, after("victim", "fails"),
			kahn.Node{ID: "slow", Do: untilStopped, OverallTimeout: time.Second}, kahn.Node{ID: "stopped", Do: untilStopped}, kahn.Node{ID: "skipped", Disabled: true},
			subgraph("S", graph(kahn.Node{ID: "fails", Do: always(errStep)})))
		r := tryControlled(t, t.Context(), g, nothing, func(run *kahn.Run) {
			time.Sleep(time.Minute)
			run.Cancel()
		})
		r.expect("fine:ok fails:F victim:X slow:F stopped:C skipped:S/ann S:F", "failed")
		for _, s := range []*kahn.Snapshot{r.Snapshot(), reload(t, r.Snapshot())} {
			nodes, err := s.Nodes(r.Plan())
			require.NoError(t, err)
			for _, n := range nodes {
				want := r.node(n.ID).Cause
				require.Equal(t, want.Err != nil, n.Cause.Err != nil, n.ID)
				if want.Err == nil {
					continue
				}
				require.Equal(t, want.Err.Error(), n.Cause.Err.Error(), n.ID)
				var own *kahn.NodeError
				var upstream *kahn.UpstreamError
				require.Equal(t, n.ID != "victim", errors.As(n.Cause.Err, &own), n.ID)
				require.Equal(t, n.ID == "victim", errors.As(n.Cause.Err, &upstream), n.ID)
			}
			require.Error(t, nodes[1].Cause.Err)
			require.Error(t, nodes[2].Cause.Err)
			require.Error(t, nodes[len(nodes)-1].Inside[0].Cause.Err)
		}
	})
}

// A forged snapshot of a gate can be looked at, even if it has no wait although the gate is suspended, or a wait although the gate is not.
func TestSnapshotNodesWithForgedWaits(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		g := graph(gate("G"), gate("H"))
		r := pause(t, g, nothing)
		data, err := json.Marshal(r.Snapshot())
		require.NoError(t, err)
		var file map[string]any
		require.NoError(t, json.Unmarshal(data, &file))
		states := file["nodes"].([]any)
		require.Len(t, states, 2)
		G, H := states[0].(map[string]any), states[1].(map[string]any)
		require.Contains(t, G, "wait")
		delete(G, "wait")
		H["status"] = "completed"
		data, err = json.Marshal(file)
		require.NoError(t, err)
		s := new(kahn.Snapshot)
		require.NoError(t, json.Unmarshal(data, s))
		for _, p := range []*kahn.Plan{nil, r.Plan()} {
			nodes, err := s.Nodes(p)
			require.NoError(t, err)
			require.Equal(t, " G:suspended H:ok", treeOf(nodes))
			require.Nil(t, nodes[0].Wait)
			require.Nil(t, nodes[1].Wait)
		}
		_, err = executeRun(t, t.Context(), g, neverStep(t), kahn.Resume(s))
		require.ErrorIs(t, err, kahn.ErrBadValue)
	})
}
