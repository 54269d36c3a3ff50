package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// A View of a State may be created while nodes end. For each node it shows the status, the error and the output at one
// point of the run.
func TestValuesWhileTheStateGoesOn(t *testing.T) {
	t.Parallel()
	const nodes = 300
	g, last := graph(), kahn.Node{ID: "last", Join: kahn.AllDone}
	for i := range nodes {
		id := fmt.Sprint("n", i)
		g.Add(kahn.Node{ID: id})
		last.After = append(last.After, id)
	}
	plan, st := stateOf(t, g.Add(last))
	v := kahn.Values{Outputs: map[string]any{}}
	for _, id := range last.After {
		v.Outputs[id] = id
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for task, ok := st.Next(); ok && plan.ID(task.Ref) != "last"; task, ok = st.Next() {
			out := completed
			if task.Ref%2 == 1 {
				out = machine.Outcome{Status: kahn.Failed, Cause: kahn.CauseStepError}
			}
			if err := st.Settle(task.Token, out); err != nil {
				t.Error(err)
			}
		}
	})
	at := ref(t, plan, "last")
	for ended := 0; ended < nodes; {
		ended = 0
		for id, n := range plan.View(st, at, &v).Nodes {
			if (n.Err != nil) != (n.Status == kahn.Failed) || (n.Output != nil) != (n.Status == kahn.Completed) {
				t.Fatalf("%s: %+v", id, n)
			}
			if n.Status.Terminal() {
				ended++
			}
		}
	}
	wg.Wait()
}

// The View of a State has the defaults of the graph's inputs, but not inputs that nobody has given.
func TestInputsInTheViewOfAState(t *testing.T) {
	t.Parallel()
	g := graph(kahn.Node{ID: "A"})
	g.Inputs = []kahn.Input{{Name: "rows", Default: 7}, {Name: "note", Optional: true}, {Name: "region", Default: "eu"}, {Name: "none", Default: 1}}
	plan, st := stateOf(t, g)
	v := kahn.Values{Root: map[string]any{"region": "us", "none": nil}}
	require.Equal(t, map[string]any{"rows": 7, "region": "us", "none": nil}, plan.View(st, ref(t, plan, "A"), &v).Root)
}

// The cost of a guard on a State depends on what the guard reads, not on the number of ancestors. Data of the View returns all ancestors.
func TestGuardsBesideAState(t *testing.T) {
	calls := func(n int, asks func(v kahn.View)) float64 {
		g := chainGraph(n)
		g.Add(kahn.Node{ID: "guarded", After: []string{fmt.Sprint("n", n-1)}, When: func(v kahn.View) (bool, error) { asks(v); return true, nil }})
		plan, st := stateOf(t, g)
		v := kahn.Values{Outputs: map[string]any{"n0": "zero"}, Root: map[string]any{"in": 1}}
		for range n {
			task, ok := st.Next()
			require.True(t, ok)
			require.NoError(t, st.Settle(task.Token, completed))
		}
		guarded := ref(t, plan, "guarded")
		return testing.AllocsPerRun(10, func() {
			if verdict, _, err, _ := plan.Check(st, guarded, &v); verdict != (machine.CheckVerdict{}) || err != nil {
				t.Error(verdict, err)
			}
		})
	}
	ask := func(v kahn.View) {
		in, ok := v.Root("in")
		if v.Status("n0") != kahn.Completed || v.Output("n0") != "zero" || v.Err("n0") != nil || !v.Has("n1") || v.Has("guarded") || in != 1 || !ok {
			t.Error("the view does not show n0")
		}
	}
	require.InDelta(t, calls(10, ask), calls(1000, ask), 2)
	calls(10, func(v kahn.View) {
		d := v.Data()
		if len(d.Nodes) != 10 || d.Nodes["n0"].Output != "zero" || d.Root["in"] != 1 {
			t.Errorf("%+v", d)
		}
		require.Equal(t, kahn.Idle, kahn.NewView(d).Status("nobody"))
	})
}

// Every value in the JSON of a Call may be null.
func TestCallOfNulls(t *testing.T) {
	t.Parallel()
	full := kahn.Call{ID: "a", Path: "a", Config: 1, Params: map[string]any{"p": 1}, Upstream: map[string]any{"u": 1}, Root: map[string]any{"r": 1}, Item: 1,
		InMap: true, Signal: 1, SavedState: 1, LastErr: errStep, View: kahn.ViewData{ID: "a", Config: 1, Root: map[string]any{"r": 1}, Trigger: 1, Fired: true,
			Nodes: map[string]kahn.NodeData{"b": {Status: kahn.Failed, Output: 1, Err: errStep}}}}
	data, err := json.Marshal(full)
	require.NoError(t, err)
	var tree map[string]any
	require.NoError(t, json.Unmarshal(data, &tree))
	tried := 0
	var each func(at map[string]any)
	each = func(at map[string]any) {
		for key, was := range at {
			at[key] = nil
			data, err := json.Marshal(tree)
			require.NoError(t, err)
			var c kahn.Call
			if err := json.Unmarshal(data, &c); key == "$type" && err != nil {
				require.ErrorIs(t, err, kahn.ErrBadValue) // an error without its type is refused
			} else {
				require.NoError(t, err, key)
			}
			_ = kahn.NewView(c.View).Status("b")
			tried++
			at[key] = was
			if inner, ok := was.(map[string]any); ok {
				each(inner)
			}
		}
	}
	each(tree)
	require.Greater(t, tried, 20)
	var c kahn.Call
	require.NoError(t, json.Unmarshal([]byte(`{"view":null}`), &c))
	require.Empty(t, c.View)
}

// If a Step is created without a context, its context never ends.
func TestNewStepWithoutAContext(t *testing.T) {
	t.Parallel()
	var none context.Context
	s := kahn.NewStep(none, kahn.Call{ID: "a"}, nil)
	require.Nil(t, s.Done())
	require.NoError(t, s.Err())
	require.Nil(t, s.Value("key"))
	_, ok := s.Deadline()
	require.False(t, ok)
}

// If several values cannot be encoded or decoded, the error names the first of them by name.
func TestFirstErrorOfACall(t *testing.T) {
	t.Parallel()
	for range 20 {
		bad := func(name string) any { return codecTrouble(name) }
		for _, c := range []kahn.Call{
			{Params: map[string]any{"b": bad("b"), "a": bad("a"), "c": bad("c")}},
			{View: kahn.ViewData{Nodes: map[string]kahn.NodeData{"b": {Output: bad("b")}, "a": {Output: bad("a")}, "c": {Output: bad("c")}}}},
		} {
			c.Codec = troubled{}
			_, err := json.Marshal(c)
			require.ErrorContains(t, err, "trouble with a")
		}
		c := kahn.Call{Codec: troubled{}}
		err := json.Unmarshal([]byte(`{"params":{"b":"b","a":"a","c":"c"}}`), &c)
		require.ErrorContains(t, err, "trouble with a")
		c = kahn.Call{Codec: troubled{}}
		err = json.Unmarshal([]byte(`{"view":{"nodes":{"b":{"status":"completed","output":"b"},"a":{"status":"completed","output":"a"}}}}`), &c)
		require.ErrorContains(t, err, "trouble with a")
	}
}

// troubled is a Codec that fails to encode and to decode.
type troubled struct{}

type codecTrouble string

func (troubled) Encode(v any) (json.RawMessage, error) {
	return nil, errors.New("trouble with " + fmt.Sprint(v))
}

func (troubled) Decode(data json.RawMessage) (any, error) {
	return nil, errors.New("trouble with " + string(data[1:len(data)-1]))
}
