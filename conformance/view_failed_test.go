package conformance_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestPanicOfAConditionAfterAFailure: a condition panics because a failed node has no output. Its error contains the failure of that node and the
// panic.
func TestPanicOfAConditionAfterAFailure(t *testing.T) {
	t.Parallel()
	declined := errors.New("declined")
	node := func(test func(v kahn.View) (bool, error)) *kahn.Graph {
		return new(kahn.Graph).Add(kahn.Node{ID: "order", Do: func(_ context.Context, _ *kahn.Step) (any, error) { return nil, declined }},
			kahn.If("big?", test, "order"), kahn.Node{ID: "split", In: []kahn.Edge{{From: "big?", Label: "true"}}})
	}
	for name, opts := range map[string][]kahn.Option{"eager": nil, "waves": {kahn.Waves}} {
		res, err := kahn.Execute(t.Context(), node(func(v kahn.View) (bool, error) { return v.Output("order").(int) > 9, nil }), nothing, opts...)
		require.ErrorIs(t, err, kahn.ErrUnreadFailure, name)
		require.ErrorIs(t, err, declined, name)
		require.ErrorContains(t, err, `the output of node "order" was read, and it has none (node "order": step_error: declined)`, name)
		require.ErrorContains(t, err, "panic: interface conversion", name)
		n, _ := res.Node("big?")
		require.Equal(t, kahn.CauseConditionError, n.Cause.Kind, name)
		var panicked *kahn.PanicError
		require.ErrorAs(t, n.Err, &panicked, name)

		_, err = kahn.Execute(t.Context(), node(func(v kahn.View) (bool, error) {
			if v.Err("order") != nil {
				panic("oh")
			}
			return true, nil
		}), nothing, opts...)
		require.NotErrorIs(t, err, kahn.ErrUnreadFailure, name)
		require.ErrorContains(t, err, "panic: oh", name)
	}
}

// TestUpstreamErrOfNoAncestor: a step that asks for the error of a node that is not an ancestor gets an error that lists the ancestors, also
// if the node exists, and also in a map; a pruned node has no error.
func TestUpstreamErrOfNoAncestor(t *testing.T) {
	t.Parallel()
	asks := func(_ context.Context, s *kahn.Step) (any, error) {
		require.ErrorContains(t, s.UpstreamErr("pay"), "declined")
		require.NoError(t, s.UpstreamErr("web"))
		for id, want := range map[string]string{
			"pya":   `not an ancestor: "pya"; did you mean "pay"? (there is "pay", "mail")`,
			"later": `not an ancestor: "later": no edge leads from it to this node, directly or through others (ancestors: "pay", "mail")`,
		} {
			err := s.UpstreamErr(id)
			require.ErrorIs(t, err, kahn.ErrNotAncestor)
			require.EqualError(t, err, want)
		}
		_, _, err := kahn.UpstreamItems[int](s, "pya")
		require.ErrorIs(t, err, kahn.ErrNoValue)
		require.ErrorContains(t, err, `upstream "pya": no value: no edge from it leads to this node; did you mean "pay"?`)
		return nil, nil
	}
	caught := []kahn.Edge{{From: "pay", On: kahn.OnFailure}}
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "web", Kind: kahn.KindTrigger}, kahn.Node{ID: "mail", Kind: kahn.KindTrigger},
		kahn.Node{ID: "pay", After: []string{"mail"}, Do: func(_ context.Context, _ *kahn.Step) (any, error) { return nil, errors.New("declined") }},
		kahn.Node{ID: "sorry", Do: asks, In: append(caught, kahn.Edge{From: "web", DataOnly: true})},
		kahn.Node{ID: "each", Do: asks, In: append(caught, kahn.Edge{From: "web", DataOnly: true}), Params: map[string]any{"list": []int{1}}, Map: &kahn.Map{Over: "list"}},
		kahn.Node{ID: "later", After: []string{"sorry"}})
	res, err := kahn.Execute(t.Context(), g, nothing, kahn.Fire("mail", nil))
	require.NoError(t, err)
	for _, id := range []string{"sorry", "each"} {
		n, _ := res.Node(id)
		require.Equal(t, kahn.Completed, n.Status, id)
	}
}

// TestUpstreamErrOfACall: a step in another process does not know the graph. If it asks for a node that is not in the Call, this is logged.
func TestUpstreamErrOfACall(t *testing.T) {
	t.Parallel()
	var to logLines
	s := kahn.NewStep(t.Context(), kahn.Call{ID: "sorry", Predecessors: []kahn.Predecessor{{ID: "pay"}}}, &to)
	require.NoError(t, s.UpstreamErr("pay"))
	require.Empty(t, to)
	require.NoError(t, s.UpstreamErr("pya"))
	require.Equal(t, logLines{`WARN UpstreamErr: the call has no node "pya"; did you mean "pay"? (there is "pay")`}, to)
}

// logLines records what a step logs.
type logLines []string

func (n *logLines) Log(level slog.Level, message string) { *n = append(*n, level.String()+" "+message) }
func (*logLines) Emit(any)                               {}
func (*logLines) Tokens(int, int)                        {}
