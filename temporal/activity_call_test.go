package temporal

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// manyCalls returns a graph whose attempts have all that a call can have: parameters, merges, composites, items, labels, early joins, failures,
// waits and compensations.
func manyCalls() *kahn.Graph {
	text := strings.Repeat("t", 100)
	inner := new(kahn.Graph).Add(kahn.Node{ID: "x", Kind: "k"}, kahn.Node{ID: "y", Label: "second", In: []kahn.Edge{{From: "x", Param: "text"}}})
	g := &kahn.Graph{Name: "many", Inputs: []kahn.Input{{Name: "text"}}}
	return g.Add(
		kahn.Node{ID: "first", Kind: "k", Label: "the first", CompensateBy: &kahn.CompensateBy{Kind: "undo"}},
		kahn.Node{ID: "second", In: []kahn.Edge{{From: "first", Param: "a"}, {From: "first", Param: "b", Merge: kahn.MergeArray}}, Params: map[string]any{"c": text}},
		kahn.Node{ID: "flaky", Retry: kahn.Retry{MaxAttempts: 3}, After: []string{"second"}},
		kahn.Node{ID: "bad", After: []string{"first"}},
		kahn.Node{ID: "caught", In: []kahn.Edge{{From: "bad", On: kahn.OnFailure}}},
		kahn.Node{ID: "early", Join: kahn.AnySucceeded, After: []string{"first", "flaky"}},
		kahn.Node{ID: "sub", In: []kahn.Edge{{From: "second", Param: "text"}}, Sub: inner},
		kahn.Node{ID: "each", In: []kahn.Edge{{From: "first", Param: "p"}}, Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []any{text + "1", 2.0}}},
		kahn.Node{ID: "nested", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []any{text + "2", 2.0}}, Sub: inner},
		kahn.Node{ID: "loop", After: []string{"first"}, Sub: inner, Loop: &kahn.Loop{MaxIterations: 3, Until: func(v kahn.View) (bool, error) { return v.Iteration() == 1, nil }}},
		kahn.Node{ID: "badly", After: []string{"caught", "early", "sub", "each", "nested", "loop", "flaky"}},
	)
}

// A worker reads from a short call what it would read from the whole call, and the short call is shorter.
func TestShortCalls(t *testing.T) {
	t.Parallel()
	p := plan(t, manyCalls())
	now := epoch
	c, err := kahn.NewCoordinator(p, now, kahn.RunID("r"), kahn.Inputs(map[string]any{"text": strings.Repeat("i", 100)}), kahn.Limit(2))
	require.NoError(t, err)
	h := newHost(Options{})
	h.add(p)
	id, wholes, shorts, attempts := idOf(p), 0, 0, 0
	for {
		s, more := c.Next()
		if !more {
			break
		}
		attempts++
		whole := s.CallWithoutView()
		whole.Config, whole.View.Config = nil, nil
		text, isShort, err := h.shortText(id, whole, now)
		require.NoError(t, err)
		require.True(t, isShort, "%s", s.Path())
		in := call{Path: s.Path(), Call: text, Short: true}.task(id, "r", "e")
		require.Equal(t, string(text) == emptyCall, in.Call == nil, "a task leaves an empty call out")
		got, err := h.read(in, "another", now)
		require.NoError(t, err)
		want, err := json.Marshal(whole)
		require.NoError(t, err)
		read, err := json.Marshal(got)
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(read), s.Path())
		wholes, shorts = wholes+len(want), shorts+len(text)
		now = now.Add(time.Second)
		c.Advance(now)
		reply := whole.Perform(t.Context(), recordedStep, nil)
		require.NoError(t, c.Return(s, reply.Value, reply.Err), s.Path())
	}
	res, err := c.Result()
	require.ErrorIs(t, err, errStep)
	require.GreaterOrEqual(t, attempts, 20, "%v", res)
	require.Less(t, shorts*3, wholes*2, "%d and %d bytes", shorts, wholes)
}

// A worker of a former version hands a short task back, since it cannot read it. A call that cannot be short is whole.
func TestShortTasks(t *testing.T) {
	t.Parallel()
	p := plan(t, manyCalls())
	h := newHost(Options{})
	h.add(p)
	data, err := json.Marshal(call{Path: "first", Call: json.RawMessage(emptyCall), Short: true}.task(idOf(p), "an execution", "an execution"))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf(`["%scution","first"]`, idOf(p).short()), string(data))
	var again task
	require.NoError(t, json.Unmarshal(data, &again))
	require.False(t, again.isOfAnother("an execution"))
	require.True(t, again.isOfAnother("the next one"))
	require.Error(t, json.Unmarshal(data, new(plainTask)), "a former version cannot read it, so Temporal gives it to another worker")
	_, err = newHost(Options{}).planOf(task{Of: idOf(p).short()})
	require.ErrorIs(t, err, ErrUnknownPlan)

	// The node "first" has a kind, and this call has none.
	odd := kahn.Call{RunID: "r", ID: "first", Path: "first", Attempt: 1}
	text, isShort, err := h.shortText(idOf(p), odd, epoch)
	require.NoError(t, err)
	require.False(t, isShort)
	in := call{Path: "first", Call: text}.task(idOf(p), "r", "e")
	require.Equal(t, task{Plan: idOf(p), Path: "first", Call: text, Remarks: true}, in)
	got, err := h.read(in, "another", epoch)
	require.NoError(t, err)
	require.Equal(t, "r", got.RunID)
	require.Empty(t, got.Kind)
}
