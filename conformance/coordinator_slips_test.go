package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// A worker in another language writes replies by hand. The Coordinator reads such JSON as a reply, or returns an error that names the defect. It
// never reads a failure as a success.
func TestRepliesOfOtherMakes(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                                      `<nil>, <nil>`,
		`{"value": {"rows": [1, "x", null]}}`:     `map[rows:[1 x <nil>]], <nil>`,
		`{"error": "disk full"}`:                  `<nil>, disk full`,
		`{"error": "disk full", "value": 7}`:      `7, disk full`,
		`{"error": "no", "permanent": true}`:      `<nil>, no`,
		`{"skip": "no rows"}`:                     `<nil>, skipped: no rows`,
		`{"goexit": true}`:                        `<nil>, runtime.Goexit called`,
		`{"panic": {"text": "out of paper"}}`:     `<nil>, panic: out of paper`,
		`{"rate_limited": true}`:                  `<nil>, rate limited`,
		`{"value": {"$type": "int", "value": 7}}`: `7, <nil>`,
	} {
		var r kahn.Reply
		require.NoError(t, json.Unmarshal([]byte(text), &r), text)
		require.Equal(t, want, fmt.Sprintf("%v, %v", r.Value, r.Err), text)
	}
	for text, want := range map[string]string{
		`null`:               "a reply is an object, not null",
		`[]`:                 "cannot unmarshal array",
		`{"vlue": 1}`:        `unknown field "vlue"`,
		`{"error": 7}`:       "float64 is neither an error nor the text of one",
		`{"error": {}}`:      "map[string]interface {} is neither an error nor the text of one",
		`{"permanent":true}`: "the reply has no error, so permanent",
		`{"abort_run":true}`: "the reply has no error, so permanent, abort_run",
		`{"retry_after":5}`:  "and retry_after must not be set",
		`{"value": {"$type": "order", "value": {}}}`:          `value: bad value: type "order" is not registered`,
		`{"suspend": {"info": {"$type": "order"}}}`:           `suspend info: bad value: type "order" is not registered`,
		`{"error": {"$type": "error", "value": {"text": 5}}}`: "error: bad value",
	} {
		var r kahn.Reply
		err := json.Unmarshal([]byte(text), &r)
		require.ErrorContains(t, err, want, text)
		require.ErrorIs(t, err, kahn.ErrBadValue, text)
	}
	var r kahn.Reply
	require.NoError(t, json.Unmarshal([]byte(`{"suspend": {"token": "t"}}`), &r))
	c := coordinate(t, graph(after("a")))
	require.NoError(t, c.Return(nextOf(t, c, "a"), r.Value, r.Err))
	require.Equal(t, "t", c.Run().Waiting()[0].Token)
}

// The error for a value that cannot be encoded names the field, and for a map the first bad key.
func TestCallsThatCannotBeEncoded(t *testing.T) {
	for want, v := range map[string]any{
		`params "b": value cannot be encoded: type func()`:         kahn.Call{Params: map[string]any{"a": 1, "b": func() {}, "c": func() {}}},
		`item: value cannot be encoded: type chan int`:             kahn.Call{Item: make(chan int)},
		`output of node "x": value cannot be encoded: type func()`: kahn.Call{View: kahn.ViewData{Nodes: map[string]kahn.NodeData{"x": {Output: func() {}}}}},
		`value: value cannot be encoded: type chan int`:            kahn.Reply{Value: make(chan int)},
	} {
		_, err := json.Marshal(v)
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, kahn.ErrNotEncodable)
	}
	var c kahn.Call
	require.ErrorContains(t, json.Unmarshal([]byte(`{"upstream": {"a": 1, "b": {"$type": "order"}}}`), &c), `upstream "b": bad value: type "order" is not registered`)
}

// The error for a call that cannot be decoded names the exported type and its field, and no unexported type.
func TestCallsThatCannotBeRead(t *testing.T) {
	for text, want := range map[string]string{
		`{"attempt": "one"}`:     "cannot unmarshal string into Go struct field kahn.Call.attempt of type int",
		`[]`:                     "cannot unmarshal array into Go value of type kahn.Call",
		`{"view": {"id": 3}}`:    "cannot unmarshal number into Go struct field kahn.Call.view.id of type string",
		`{"view": []}`:           "cannot unmarshal array into Go struct field kahn.Call.view of type kahn.ViewData",
		`{"view": {"nodes": 3}}`: "cannot unmarshal number into Go struct field kahn.Call.view.nodes of type ",
	} {
		require.ErrorContains(t, json.Unmarshal([]byte(text), new(kahn.Call)), want, text)
	}
	for text, want := range map[string]string{
		`{"id": 3}`:    "cannot unmarshal number into Go struct field kahn.ViewData.id of type string",
		`{"nodes": 3}`: "cannot unmarshal number into Go struct field kahn.ViewData.nodes of type ",
		`[]`:           "cannot unmarshal array into Go value of type kahn.ViewData",
	} {
		require.ErrorContains(t, json.Unmarshal([]byte(text), new(kahn.ViewData)), want, text)
	}
}

func TestCoordinatorSlips(t *testing.T) {
	plan, err := graph(after("a"), after("b", "a")).Compile()
	require.NoError(t, err)
	_, err = kahn.NewCoordinator(nil, deskEpoch)
	require.ErrorIs(t, err, kahn.ErrNoGraph)
	_, err = kahn.NewCoordinator(plan, deskEpoch, nil)
	require.ErrorIs(t, err, kahn.ErrBadOption)
	for _, at := range []time.Time{time.Unix(math.MaxInt64, 0), time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		_, err = kahn.NewCoordinator(plan, at)
		require.ErrorIs(t, err, kahn.ErrBadOption)
		require.ErrorContains(t, err, "which is not from 1 to 9999")
	}
	require.PanicsWithValue(t, "the zero Coordinator was used: call NewCoordinator", func() { new(kahn.Coordinator).Next() })

	c := coordinate(t, graph(after("a"), after("b", "a")))
	a := nextOf(t, c, "a")
	require.EqualError(t, c.Return(nil, 1, nil), "stale token: the Step is nil")
	require.EqualError(t, c.Return(new(kahn.Step), 1, nil), "stale token: the run does not wait for the result of kahn.Step of no run")
	require.NoError(t, c.Return(a, 1, nil))
	require.EqualError(t, c.Return(a, 1, nil), `stale token: the run does not wait for the result of kahn.Step("a", attempt 1)`)
	other, err := graph(after("z")).Compile()
	require.NoError(t, err)
	_, err = kahn.NewCoordinator(other, deskEpoch, kahn.Resume(c.Run().Snapshot()))
	require.ErrorIs(t, err, kahn.ErrGraphChanged)

	reply := kahn.Call{Path: "S/x"}.Perform(t.Context(), nil, nil)
	require.ErrorIs(t, reply.Err, kahn.ErrNoStep)
	require.ErrorContains(t, reply.Err, `node "S/x"`)
	var none context.Context
	reply = kahn.Call{}.Perform(none, nothing, nil)
	require.ErrorIs(t, reply.Err, kahn.ErrNoContext)

	st, err := kahn.NewState(plan)
	require.NoError(t, err)
	require.ErrorIs(t, st.Drive(nil, func(machine.Token) {}), kahn.ErrBadValue)
	require.ErrorIs(t, st.Drive(func(machine.Task) {}, nil), kahn.ErrBadValue)
}

// The Coordinator's cost per step does not grow with the number of steps: for parallel steps, chains, items, and steps with deadlines and
// retries.
func TestCoordinatorGrowth(t *testing.T) {
	policy := kahn.Retry{MaxAttempts: 2, InitialDelay: time.Second, Jitter: kahn.JitterNone}
	shapes := map[string]func(n int) *kahn.Graph{
		"chain": chainGraph,
		"fan": func(n int) *kahn.Graph {
			g := graph()
			for i := range n {
				g.Add(kahn.Node{ID: fmt.Sprint("n", i), Timeout: time.Hour, Retry: policy})
			}
			return g
		},
		"items": func(n int) *kahn.Graph {
			return graph(kahn.Node{ID: "m", Map: &kahn.Map{Over: "list", Limit: 10}, Params: map[string]any{"list": numbers(n)}})
		},
	}
	perform := func(g *kahn.Graph, n int) {
		c := coordinate(t, g)
		fails := g.Nodes()[0].Retry.MaxAttempts > 0
		returned := 0
		for c.Run().Status() == kahn.RunRunning {
			s, ok := c.Next()
			if !ok {
				at, ok := c.Due()
				require.True(t, ok)
				c.Advance(at)
				continue
			}
			_ = s.CallWithoutView()
			var err error
			if fails && s.Attempt() == 1 {
				err = errStep
			}
			require.NoError(t, c.Return(s, nil, err))
			returned++
		}
		_, err := c.Result()
		require.NoError(t, err)
		require.GreaterOrEqual(t, returned, n)
	}
	sizes := [2]int{1000, size(10_000, 10_000, 100_000)}
	for name, shape := range shapes {
		var objects, took [2]float64
		for i, n := range sizes {
			g := shape(n)
			begun := time.Now()
			objects[i] = testing.AllocsPerRun(1, func() { perform(g, n) }) / float64(n)
			took[i] = time.Since(begun).Seconds() / float64(2*n)
		}
		t.Logf("%s: %.1f objects and %.2f us a step of %d, %.1f and %.2f of %d", name, objects[0], 1e6*took[0], sizes[0], objects[1], 1e6*took[1], sizes[1])
		require.Less(t, objects[1], 1.5*objects[0], "%s: the objects that a step takes grow with their number", name)
		if long() { // time is measured only in the long mode, where no other test uses the processors
			require.Less(t, took[1], 6*took[0], "%s: the time that a step takes grows with their number", name)
		}
	}
}
