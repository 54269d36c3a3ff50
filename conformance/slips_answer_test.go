package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// If a branch was not taken, the skip reason of its node contains the condition's answer and the label of the branch.
func TestSkipAnswer(t *testing.T) {
	long := fmt.Sprintf("%04096d", 1)
	for _, row := range []struct {
		name   string
		output any
		labels []string
		skip   string // the label of the branch that was not taken
		answer string
	}{
		{"a label", "rejected", []string{"approved", "rejected"}, "approved", "rejected"},
		{"a bool without an else", false, []string{"true"}, "true", "false"},
		{"an alias", "YES", []string{"true", "false"}, "false", "YES"},
		{"the default", "gren", []string{"red", "default"}, "red", "gren"},
		{"two labels", []string{"b", "a"}, []string{"a", "b", "c"}, "c", "b, a"},
		{"two labels, one of which is none", []string{"a", "x"}, []string{"a", "c"}, "c", "a, x"},
		{"a field", map[string]any{"branch": "b"}, []string{"a", "b"}, "a", "b"},
		{"no label", 7, []string{"a"}, "a", "7"},
		{"nothing, with a default", nil, []string{"a", "default"}, "a", "null"},
		{"an empty text", "", []string{"a", "default"}, "a", `""`},
		{"a Labeler", labelled{"b"}, []string{"a", "b"}, "a", "b"},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			nodes := []kahn.Node{{ID: "?", Routes: true, Do: yields(0, row.output)}}
			for _, label := range row.labels {
				nodes = append(nodes, branch("on "+label, "?", label))
			}
			g := graph(append(nodes, gate("G", "?"))...)
			want := event.SkipReason{Kind: kahn.SkipConditionBranch, Node: "?", Label: row.skip, Answer: row.answer}
			id := "on " + row.skip
			paused := pause(t, g, takes(0))
			require.Equal(t, want, paused.node(id).Skip)
			require.Equal(t, want, paused.find(event.NodeSkipped, id)[0].Payload.(event.Skip).Reason)
			require.Equal(t, fmt.Sprintf("condition_branch(? answered %q, not %q)", row.answer, row.skip), want.String())

			if _, isLabeler := row.output.(labelled); isLabeler {
				return // no codec can decode the type labelled
			}
			snapshot := reload(t, paused.Snapshot())
			res, err := kahn.Execute(t.Context(), g, takes(0), kahn.Resume(snapshot), kahn.EarlySignals(map[string]any{"G": 1}))
			require.NoError(t, err)
			again, _ := res.Node(id)
			require.Equal(t, want, again.Skip, "after a restart")
		})
	}
	inBubble(t, "a long answer", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "?", Routes: true, Do: yields(0, long)}, branch("A", "?", "a")), takes(0))
		require.Less(t, len(r.node("A").Skip.Answer), 1200)
	})
	inBubble(t, "a gate, and one inside", func(t *testing.T) {
		inner := graph(gate("G"), branch("on", "G", "approved"), branch("off", "G", "rejected"))
		r := tryControlled(t, t.Context(), graph(subgraph("S", inner)), takes(0), func(run *kahn.Run) {
			for run.Signal(context.Background(), "S/G", kahn.Decision{Value: "no", Actor: "ann"}) != nil { // until the sub-graph has started
			}
		})
		require.Equal(t, `condition_branch(G answered "no", not "approved")`, r.find(event.NodeSkipped, "S/on")[0].Payload.(event.Skip).Reason.String())
	})
	inBubble(t, "a condition inside", func(t *testing.T) {
		inner := graph(kahn.If("?", func(kahn.View) (bool, error) { return true, nil }), branch("A", "?", "true"))
		r := try(t, graph(subgraph("S", inner)), takes(0))
		require.Equal(t, []string{"true"}, r.find(event.NodeCompleted, "S/?")[0].Payload.(event.Completion).Labels)
	})
	inBubble(t, "a condition that failed, and a catch edge", func(t *testing.T) {
		bad := kahn.Node{ID: "?", Routes: true, ContinueOnFail: true, Do: fails(0)}
		r := try(t, graph(bad, branch("A", "?", "a"), after("B"), kahn.Node{ID: "C", In: []kahn.Edge{{From: "B", On: kahn.OnFailure}}}), takes(0))
		require.Equal(t, `condition_branch(? not "a")`, r.node("A").Skip.String())
		require.Equal(t, `condition_branch(B)`, r.node("C").Skip.String())
	})
	inBubble(t, "a State knows the branches", func(t *testing.T) {
		plan, err := graph(kahn.Node{ID: "?", Routes: true}, branch("A", "?", "a"), branch("B", "?", "default")).Compile()
		require.NoError(t, err)
		st, err := kahn.NewState(plan)
		require.NoError(t, err)
		task, _ := st.Next()
		for _, id := range []int32{-1, 2} {
			require.ErrorIs(t, st.Settle(task.Token, machine.Outcome{Status: kahn.Completed, Route: []int32{id}}), kahn.ErrBadValue)
		}
		route, _ := plan.Route(task.Ref, "x")
		err = st.Settle(task.Token, machine.Outcome{Status: kahn.Completed, Route: route})
		require.NoError(t, err)
		ref, _ := plan.Ref("A")
		require.Equal(t, `condition_branch(? answered "default", not "a")`, plan.SkipReason(st, ref).String())
	})
	data, err := json.Marshal(event.SkipReason{Kind: kahn.SkipConditionBranch, Node: "?", Label: "a", Answer: "b"})
	require.NoError(t, err)
	require.JSONEq(t, `{"kind":"condition_branch","conditionNodeId":"?","label":"a","answer":"b"}`, string(data))
}
