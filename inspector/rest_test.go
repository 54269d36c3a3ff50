package inspector

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// manyGates returns a graph with gates in the graph itself, in a map, in a loop and in a graph that a step returns.
func manyGates() *kahn.Graph {
	ok := func(context.Context, *kahn.Step) (any, error) { return "ok", nil }
	gate := func(id string, choices ...string) kahn.Node {
		return kahn.Node{ID: id, Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: choices}}
	}
	signed := gate("sign")
	signed.Gate.Check = func(answer any) error {
		if answer == "nobody" {
			return errors.New("nobody may sign")
		}
		return nil
	}
	late := gate("late", "red", "blue")
	late.After = []string{"approve"}
	return (&kahn.Graph{Name: "many"}).Add(
		kahn.Node{ID: "pay", Do: ok},
		kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"pay"}},
		kahn.Node{ID: "a", In: []kahn.Edge{{From: "approve", Label: "approved"}}, Do: ok},
		kahn.Node{ID: "b", In: []kahn.Edge{{From: "approve", Label: "rejected"}}, Do: ok},
		signed, late,
		kahn.Node{ID: "each", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []string{"p", "q"}}, Sub: new(kahn.Graph).Add(gate("ask", "ship", "hold"))},
		kahn.Node{ID: "turn", Loop: &kahn.Loop{MaxIterations: 3, Until: func(kahn.View) (bool, error) { return false, nil }}, Sub: new(kahn.Graph).Add(gate("more", "on", "off"))},
		kahn.Node{ID: "plan", Do: func(context.Context, *kahn.Step) (any, error) {
			return nil, kahn.Expand(new(kahn.Graph).Add(gate("own", "up", "down")), nil, nil)
		}},
		kahn.Node{ID: "wrap", After: []string{"late"}, Sub: new(kahn.Graph).Add(gate("inner", "in", "out"))},
	)
}

// A resting is a run at rest in a store, whose gates wait for answers, and a handler for the store.
type resting struct {
	*desk
	memory  *store.Memory
	handler *handler
}

// newResting lets a Runner perform a run of manyGates() until only answers are missing. The handler gets the Runner, or another one if known is false.
func newResting(t *testing.T, known bool) *resting {
	t.Helper()
	x := &resting{memory: &store.Memory{}}
	rn := &kahn.Runner{}
	run, err := rn.Start(t.Context(), manyGates(), nil, kahn.RunID("r"), kahn.Durable(x.memory))
	require.NoError(t, err)
	for _, path := range []string{"approve", "sign", "each", "turn", "plan"} {
		_, err = run.WaitFor(t.Context(), path, kahn.Suspended)
		require.NoError(t, err, path)
	}
	run.Leave()
	_, _ = run.Wait()
	require.Equal(t, kahn.RunSuspended, run.Status())
	if !known {
		rn = &kahn.Runner{}
	}
	x.handler = Handler(free(Options{
		Runner: rn, Store: x.memory, Log: slog.New(slog.DiscardHandler), Actor: func(r *http.Request) string { return r.Header.Get("X-User") },
	})).(*handler)
	x.desk = &desk{t: t, rn: rn, server: httptest.NewServer(http.StripPrefix("/debug/kahn", x.handler))}
	t.Cleanup(x.server.Close)
	return x
}

// The method `signal` answers a node and returns the status and the error of the response.
func (x *resting) signal(path, value, key string) (int, *fault) {
	x.t.Helper()
	code, data, _ := x.ask(http.MethodPost, "api/v1/signal"+queried("run", "r", "path", path), `{"value":`+value+`}`, as("ann"), func(q *http.Request) {
		if key != "" {
			q.Header.Set("Idempotency-Key", key)
		}
	})
	var reply faultReply
	reply.Error = &fault{}
	require.NoError(x.t, json.Unmarshal(data, &reply))
	return code, reply.Error
}

// The method `goOn` lets another process continue the run, which takes the posted requests, until the store has applied or refused all of them.
func (x *resting) goOn() {
	x.t.Helper()
	stored, err := x.memory.Load(x.t.Context(), "r")
	require.NoError(x.t, err)
	_, err = kahn.Execute(x.t.Context(), manyGates(), nil, kahn.RunID("r"), kahn.Durable(x.memory))
	require.NoError(x.t, err)
	after, err := x.memory.Load(x.t.Context(), "r")
	require.NoError(x.t, err)
	require.Equal(x.t, stored.Posted, after.Taken)
	x.handler.changed("r") // otherwise the handler keeps what it has loaded for a second
}

var bothWays = []string{"approved", "rejected", "approve", "true", "yes", "reject", "false", "no"}

// A run at rest of the Runner is shown with its plan, although the state comes from the store: all nodes, edges, choices, and where each answer leads.
func TestRestingRunHasItsPlan(t *testing.T) {
	t.Parallel()
	x := newResting(t, true)
	g := get[graphReply](x.desk, "api/v1/graph", "run", "r")
	require.Equal(t, []any{"", 10, "gate"}, []any{g.Note, len(g.Nodes), g.Nodes[1].Kind})
	require.Contains(t, g.Edges, graphEdge{From: 1, To: 2, Label: "approved"})
	require.Len(t, get[graphReply](x.desk, "api/v1/graph", "run", "r", "inside", "wrap").Nodes, 1, "it has not begun")
	row := get[runRow](x.desk, "api/v1/run", "run", "r")
	require.Equal(t, []any{true, "", 10}, []any{row.Stored, row.Note, row.Nodes})
	a := get[nodeReply](x.desk, "api/v1/node", "run", "r", "path", "a")
	require.Equal(t, []any{kahn.Waiting, []string{"approve"}}, []any{a.Status, a.Why.Nodes})

	for _, inbox := range []gatesReply{get[gatesReply](x.desk, "api/v1/gates"), get[gatesReply](x.desk, "api/v1/gates", "run", "r")} {
		choices := map[string][]string{}
		for _, g := range inbox.Gates {
			if choices[g.Path] = g.Choices; g.Path == "approve" {
				require.Equal(t, []lead{{Answer: "approved", To: []string{"a", "late"}}, {Answer: "rejected", To: []string{"b", "late"}}}, g.Leads)
			}
		}
		require.Equal(t, map[string][]string{
			"approve": {"approved", "rejected"}, "sign": nil, "each[0]/ask": {"ship", "hold"}, "each[1]/ask": {"ship", "hold"}, "turn#1/more": {"on", "off"}, "plan/own": {"up", "down"},
		}, choices)
	}
}

// Without the plan, a stored gate has the choices that the store has.
func TestRestingRunWithoutItsPlan(t *testing.T) {
	t.Parallel()
	x := newResting(t, false)
	choices := map[string][]string{}
	for _, g := range get[gatesReply](x.desk, "api/v1/gates").Gates {
		choices[g.Path] = g.Choices
	}
	require.Equal(t, map[string][]string{
		"approve": bothWays, "sign": nil, "each[0]/ask": {"ship", "hold"}, "each[1]/ask": {"ship", "hold"}, "turn#1/more": {"on", "off"}, "plan/own": {"up", "down"},
	}, choices)
	require.Equal(t, bothWays, get[nodeReply](x.desk, "api/v1/node", "run", "r", "path", "approve").Gate.Choices)
	f := x.refusal(http.StatusNotFound, http.MethodGet, "api/v1/node"+queried("run", "r", "path", "aprove"), "")
	require.Equal(t, []any{"unknown_node", []string{"approve", "each", "pay", "plan", "sign", "turn"}}, []any{f.Code, f.Choices})
	require.Contains(t, f.Message, `did you mean "approve"?`)
}

// A wrong answer to a run at rest is refused at once, with the choices and the text of a live run. The right answer is then taken. This is so
// whether the Runner has the run or only the store knows the choices.
func TestWrongAnswerAtRest(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		x := newResting(t, known)
		for path, choices := range map[string][]string{
			"approve": bothWays, "each[1]/ask": {"ship", "hold"}, "turn#1/more": {"on", "off"}, "plan/own": {"up", "down"},
		} {
			code, f := x.signal(path, `"mabye"`, "")
			require.Equal(t, []any{http.StatusUnprocessableEntity, "no_such_choice", choices}, []any{code, f.Code, f.Choices}, path)
			require.Equal(t, (&kahn.ChoiceError{Node: path, Answer: "mabye", Choices: choices}).Error(), f.Message)
		}
		for path, value := range map[string]string{"approve": `"yes"`, "each[1]/ask": `"hold"`, "turn#1/more": `"on"`, "plan/own": `"up"`, "sign": `"ann"`} {
			code, f := x.signal(path, value, "")
			require.Equal(t, http.StatusAccepted, code, "%s: %v", path, f)
		}
		x.goOn()
		stored, err := kahn.ReadRun(t.Context(), x.memory, "r")
		require.NoError(t, err)
		var waits []string
		for _, w := range stored.Waiting {
			waits = append(waits, w.Node)
		}
		require.ElementsMatch(t, []string{"each[0]/ask", "late", "turn#2/more"}, waits)
	}
}

// The Runner's copy of a run at rest judges an answer by the gate's Check, and answers to gates that the run has not reached.
func TestRestingRunChecksAnswers(t *testing.T) {
	t.Parallel()
	x := newResting(t, true)
	for path, value := range map[string]string{"sign": `"nobody"`, "approve": `7`, "late": `"green"`} {
		code, f := x.signal(path, value, "")
		require.Equal(t, []any{http.StatusUnprocessableEntity, "no_such_choice"}, []any{code, f.Code}, path)
	}
	for path, value := range map[string]string{"sign": `"ann"`, "approve": `true`, "late": `"red"`} {
		code, f := x.signal(path, value, "")
		require.Equal(t, http.StatusAccepted, code, "%s: %v", path, f)
	}
	x.goOn()
	stored, err := x.memory.Load(t.Context(), "r")
	require.NoError(t, err)
	for _, id := range []string{"sign", "approve", "late"} {
		require.Equal(t, kahn.Completed, stored.Nodes[id].Status, id)
	}
}

// While an answer waits for the run, a second answer is refused, but not as too late: if the run refuses the first answer, the same request with the
// same key succeeds.
func TestAnswerBehindAWrongOne(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		x := newResting(t, known)
		q, err := kahn.PrepareSignal("approve", kahn.Decision{Value: "mabye", Actor: "bob", ID: "bob's"})
		require.NoError(t, err)
		_, err = x.memory.Post(t.Context(), "r", q)
		require.NoError(t, err)
		for range 2 {
			code, f := x.signal("approve", `"yes"`, "k")
			require.Equal(t, []any{http.StatusConflict, "answer_waits", "bob"}, []any{code, f.Code, f.Answered.By})
			require.Equal(t, "an answer by bob already waits for the run, which has not judged it yet", f.Message)
		}
		x.goOn()
		code, f := x.signal("approve", `"yes"`, "k")
		require.Equal(t, http.StatusAccepted, code, "%v", f)
		x.goOn()
		stored, err := x.memory.Load(t.Context(), "r")
		require.NoError(t, err)
		require.Equal(t, kahn.Completed, stored.Nodes["approve"].Status)
		code, f = x.signal("approve", `"no"`, "k2")
		require.Equal(t, []any{http.StatusConflict, "answered", "ann has answered"}, []any{code, f.Code, f.Message})
	}
}

// A refusal that can change is not kept: when the run has reached the node, the same request with the same key succeeds.
func TestAnswerBeforeItsNode(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		x := newResting(t, known)
		code, f := x.signal("wrap/inner", `"in"`, "k")
		require.Equal(t, []any{http.StatusNotFound, "unknown_node"}, []any{code, f.Code})
		code, f = x.signal("pay", `"in"`, "k2")
		require.Equal(t, []any{http.StatusNotFound, "unknown_gate"}, []any{code, f.Code})
		require.ElementsMatch(t, []string{"approve", "sign", "each[0]/ask", "each[1]/ask", "turn#1/more", "plan/own"}, f.Choices)
		_, _ = x.signal("approve", `"yes"`, "")
		x.goOn()
		_, _ = x.signal("late", `"red"`, "")
		x.goOn()
		code, f = x.signal("wrap/inner", `"in"`, "k")
		require.Equal(t, http.StatusAccepted, code, "%v", f)
	}
}

// A wrong path of a run at rest gets the same error as in a live run: the reason, or the paths to choose from and the most similar one.
func TestWrongPathAtRest(t *testing.T) {
	t.Parallel()
	live := &kahn.Runner{}
	run, err := live.Start(t.Context(), manyGates(), nil, kahn.RunID("r"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = live.Shutdown(context.Background()) })
	for _, path := range []string{"approve", "sign", "each", "turn", "plan"} {
		_, err = run.WaitFor(t.Context(), path, kahn.Suspended)
		require.NoError(t, err, path)
	}
	left := newResting(t, true)
	x := serveRunner(t, live, Options{})
	for _, path := range []string{"aprove", "each[0]/aks", "each[7]/ask", "turn#1/mre", "turn#2/more", "wrap/inner", "wrap/x", "pay/x", ""} {
		for _, at := range []struct{ method, path, body string }{
			{http.MethodGet, "api/v1/node", ""}, {http.MethodPost, "api/v1/signal", `{"value":"yes"}`}, {http.MethodPost, "api/v1/node/retry", "{}"},
		} {
			if path == "" || path == "wrap/inner" && at.path == "api/v1/node" {
				continue
			}
			want := x.refusal(http.StatusNotFound, at.method, at.path+queried("run", "r", "path", path), at.body)
			require.Equal(t, "unknown_node", want.Code, path)
			require.Equal(t, want, left.refusal(http.StatusNotFound, at.method, at.path+queried("run", "r", "path", path), at.body), "%s %s", at.path, path)
		}
	}
	f := left.refusal(http.StatusNotFound, http.MethodPost, "api/v1/node/cancel"+queried("run", "r", "path", "aprove"), "{}")
	require.Equal(t, "unknown_node", f.Code)
	require.Contains(t, f.Message, `did you mean "approve"?`)
	f = left.refusal(http.StatusConflict, http.MethodPost, "api/v1/node/retry"+queried("run", "r", "path", "approve"), "{}")
	require.Equal(t, []any{"not_here", "this process does not perform the run: the run is at rest, or another process performs it"}, []any{f.Code, f.Message})
}

// If another process has ended a run that the Runner remembers at rest, the handler previews a redrive, and posts it. A wrong node is refused.
func TestRedriveOfARunThatHasEndedElsewhere(t *testing.T) {
	t.Parallel()
	x := newResting(t, true)
	code, _, _ := x.ask(http.MethodPost, "api/v1/cancel?run=r", "{}")
	require.Equal(t, http.StatusAccepted, code)
	_, err := kahn.Execute(t.Context(), manyGates(), nil, kahn.RunID("r"), kahn.Durable(x.memory))
	require.ErrorIs(t, err, kahn.ErrCancelled)
	x.handler.changed("r")
	require.Contains(t, get[previewReply](x.desk, "api/v1/redrive", "run", "r").Asks, "approve")
	f := x.refusal(http.StatusNotFound, http.MethodPost, "api/v1/redrive?run=r", `{"nodes":["aprove"]}`)
	require.Equal(t, "unknown_node", f.Code)
	require.Contains(t, f.Message, `did you mean "approve"?`)
	code, data, _ := x.ask(http.MethodPost, "api/v1/redrive?run=r", `{"nodes":["approve"]}`)
	require.Equal(t, http.StatusAccepted, code)
	require.Contains(t, string(data), `"requested"`)
	f = x.refusal(http.StatusConflict, http.MethodPost, "api/v1/node/retry"+queried("run", "r", "path", "approve"), "{}")
	require.Equal(t, "finished", f.Code)
}

// If this process could continue the run, a wrong path does not make it do so.
func TestWrongPathDoesNotContinueTheRun(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), nil)
	for path, status := range map[string]int{"nobody": http.StatusNotFound, "review/approve": http.StatusNotFound, "fetch": http.StatusConflict} {
		_ = x.refusal(status, http.MethodPost, "api/v1/node/cancel"+queried("run", "order 17", "path", path), "{}")
		_, here := x.rn.Run("order 17")
		require.False(t, here, path)
	}
}
