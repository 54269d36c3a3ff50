package inspector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// elsewhere has a run that another process began and left, and a handler for the store of that run.
type elsewhere struct {
	*desk
	memory *store.Memory
	graph  *kahn.Graph
	plan   *kahn.Plan
	rn     *kahn.Runner // the Runner of this process
}

// noInbox is a store that takes no requests.
type noInbox struct{ store.Admin }

// order returns a graph with a gate in a sub-graph, a map, a tolerated failure, a backoff, and a node that waits for
// all of these.
func order() *kahn.Graph {
	ok := func(_ context.Context, s *kahn.Step) (any, error) { return s.Path(), nil }
	inner := new(kahn.Graph).Add(
		kahn.Node{ID: "count", Do: ok},
		kahn.Node{ID: "approve", After: []string{"count"}, Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"ship", "hold"}}},
	)
	g := &kahn.Graph{Name: "order"}
	return g.Add(
		kahn.Node{ID: "fetch", Label: "Fetch rows", Config: map[string]any{"table": "rows"}, Do: func(context.Context, *kahn.Step) (any, error) {
			return map[string]any{"card": "4711", "rows": strings.Repeat("long", 20_000)}, nil
		}},
		kahn.Node{ID: "each", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []string{"p", "q"}}, Sub: new(kahn.Graph).Add(kahn.Node{ID: "x", Do: ok})},
		kahn.Node{ID: "review", After: []string{"fetch"}, Sub: inner},
		kahn.Node{ID: "mail", After: []string{"fetch"}, ContinueOnFail: true, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errBroken }},
		kahn.Node{ID: "flaky", After: []string{"fetch"}, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Hour, Jitter: kahn.JitterNone}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errBroken }},
		kahn.Node{ID: "last", After: []string{"review", "flaky"}, Do: ok},
	)
}

// newElsewhere performs the run until it waits, and leaves it.
func newElsewhere(t *testing.T, g *kahn.Graph, change func(*elsewhere, *Options)) *elsewhere {
	t.Helper()
	plan, err := g.Compile()
	require.NoError(t, err)
	x := &elsewhere{desk: &desk{t: t, audit: &syncBuffer{}}, memory: &store.Memory{}, graph: g, plan: plan, rn: &kahn.Runner{}}
	run, err := kahn.Start(t.Context(), g, nil, kahn.RunID("order 17"), kahn.Durable(x.memory))
	require.NoError(t, err)
	if _, known := run.NodeStatus("review"); known {
		for _, path := range []string{"review", "flaky", "each", "mail"} { // wait for these nodes, since no further node begins after Leave
			if _, known := run.NodeStatus(path); known {
				_, err = run.WaitFor(t.Context(), path, kahn.Suspended, kahn.Retrying, kahn.Completed, kahn.Failed)
				require.NoError(t, err)
			}
		}
		run.Leave()
	}
	_, _ = run.Wait()
	x.opts = Options{
		Runner: x.rn, Store: x.memory, Log: slog.New(slog.NewTextHandler(x.audit, nil)), Actor: func(r *http.Request) string { return r.Header.Get("X-User") },
		Workflows: []Workflow{{Plan: plan, Perform: func(ctx context.Context, opts ...kahn.Option) (*kahn.Run, error) {
			return x.rn.Start(ctx, g, nil, opts...)
		}}},
	}
	if change != nil {
		change(x, &x.opts)
	}
	x.server = httptest.NewServer(http.StripPrefix("/debug/kahn", Handler(free(x.opts))))
	t.Cleanup(func() {
		x.server.Close()
		_ = x.rn.Shutdown(context.Background())
	})
	return x
}

func (x *elsewhere) status(id string) kahn.RunStatus {
	x.t.Helper()
	stored, err := x.memory.Load(x.t.Context(), id)
	require.NoError(x.t, err)
	return stored.Status
}

// If the handler has the plan of a stored run, it shows the run like a run of the Runner.
func TestStoredRun(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), nil)
	row := get[runRow](x.desk, "api/v1/run", "run", "order 17")
	require.True(t, row.Stored)
	require.Empty(t, row.Note, "it is at rest")
	require.Empty(t, row.Gone)
	require.Equal(t, []any{"order", kahn.RunSuspended, 6, 3, []string{"review/approve"}}, []any{row.Workflow, row.Status, row.Nodes, row.Done, row.Waiting})
	require.Equal(t, []string{"cancel", "fork"}, row.Actions)
	g := get[graphReply](x.desk, "api/v1/graph", "run", "order 17")
	require.Equal(t, []any{true, 6, "", "Fetch rows"}, []any{g.Known, len(g.Nodes), g.Note, g.Nodes[0].Label})
	require.Contains(t, g.Edges, graphEdge{From: 0, To: 2})
	state := get[stateReply](x.desk, "api/v1/state", "run", "order 17")
	require.Equal(t, "ccsftw", state.Status)
	require.Equal(t, map[int]insideCounts{1: {Counts: map[string]int{"completed": 2}}, 2: {Counts: map[string]int{"completed": 1, "suspended": 1}}}, state.Insides)
	require.Equal(t, "cs", get[stateReply](x.desk, "api/v1/state", "run", "order 17", "inside", "review").Status)
	items := get[graphReply](x.desk, "api/v1/graph", "run", "order 17", "inside", "each")
	require.Equal(t, []any{"each[1]", true, ""}, []any{items.Nodes[1].ID, items.Nodes[1].Composite, items.Note})
	require.Equal(t, "each[1]/x", get[nodesReply](x.desk, "api/v1/nodes", "run", "order 17", "inside", "each[1]").Nodes[0].Path)

	for path, want := range map[string]string{
		"fetch": "ended: it has completed", "review": "signal: inside it review/approve waits for an answer", "review/approve": "signal: it waits for an answer",
		"mail": "ended: it failed: step_error: the disk is full", "last": "waiting: it waits for review, flaky", "each[0]/x": "ended: it has completed",
	} {
		n := get[nodeReply](x.desk, "api/v1/node", "run", "order 17", "path", path)
		require.True(t, strings.HasPrefix(n.Why.Kind.String()+": "+n.Why.Text, want), "%s: %v %s", path, n.Why.Kind, n.Why.Text)
	}
	flaky := get[nodeReply](x.desk, "api/v1/node", "run", "order 17", "path", "flaky")
	require.Equal(t, kahn.WhyBackoff, flaky.Why.Kind)
	require.NotEmpty(t, flaky.Why.Until)
	require.Equal(t, "the disk is full\nsecond line", flaky.Tries[0].Error)
	require.Equal(t, []string{"cancel"}, flaky.Actions)
	approve := get[nodeReply](x.desk, "api/v1/node", "run", "order 17", "path", "review/approve")
	require.Equal(t, []any{"gate", "review", []string{"ship", "hold"}, []string{"signal"}}, []any{approve.Type, approve.Parent, approve.Gate.Choices, approve.Actions})
	require.Equal(t, []neighbour{{Path: "review/count", Status: kahn.Completed, Edge: "taken"}}, approve.Upstream)
	require.Len(t, get[gatesReply](x.desk, "api/v1/gates", "run", "order 17").Gates, 1)
	fetch := get[nodeReply](x.desk, "api/v1/node", "run", "order 17", "path", "fetch")
	require.JSONEq(t, `{"table":"rows"}`, string(fetch.Config.JSON))
	require.True(t, fetch.Output.Truncated)
	require.Equal(t, "map[string]interface {}", fetch.Output.Type)
	code, whole, _ := x.ask(http.MethodGet, "api/v1/value"+queried("run", "order 17", "path", "fetch", "of", "output"), "")
	require.Equal(t, http.StatusOK, code)
	require.Len(t, whole, fetch.Output.Bytes)
	require.Equal(t, "no_value", x.refusal(http.StatusNotFound, http.MethodGet, "api/v1/value"+queried("run", "order 17", "path", "fetch", "of", "input", "name", "x"), "").Code)
	require.Contains(t, get[logReply](x.desk, "api/v1/log", "run", "order 17").Note, "does not have the events")
	spans := get[timelineReply](x.desk, "api/v1/timeline", "run", "order 17").Spans
	var failed int
	for i, s := range spans {
		require.True(t, i == 0 || s.Start >= spans[i-1].Start)
		if s.Path == "mail" {
			failed++
			require.Equal(t, "failed", s.Status)
		}
	}
	require.Equal(t, 1, failed)
	for _, path := range []string{"abort", "leave"} {
		require.Equal(t, "not_here", x.refusal(http.StatusConflict, http.MethodPost, "api/v1/"+path+queried("run", "order 17"), "{}").Code)
	}
	require.Equal(t, "unknown_run", x.refusal(http.StatusNotFound, http.MethodGet, "api/v1/run?run=nobody", "").Code)
	require.Equal(t, "unknown_node", x.refusal(http.StatusNotFound, http.MethodGet, "api/v1/node"+queried("run", "order 17", "path", "review/x"), "").Code)
}

// Without the plan, the handler shows a stored run as a list of nodes, and the response says what is missing and why. No action is possible.
func TestStoredRunWithoutPlan(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), func(x *elsewhere, o *Options) { o.Workflows, o.Runner, o.Store = nil, nil, noInbox{x.memory} })
	row := get[runRow](x.desk, "api/v1/run", "run", "order 17")
	require.Contains(t, row.Note, `Options.Workflows has no workflow "order" with the plan `)
	require.Empty(t, row.Actions)
	g := get[graphReply](x.desk, "api/v1/graph", "run", "order 17")
	require.Equal(t, []any{true, 5, 0}, []any{g.Known, len(g.Nodes), len(g.Edges)})
	require.Contains(t, g.Note, "The edges are not known")
	kinds := map[string]string{}
	for _, n := range g.Nodes {
		kinds[n.ID] = n.Type
	}
	require.Equal(t, map[string]string{"fetch": "step", "each": "map", "review": "sub", "mail": "step", "flaky": "step"}, kinds)
	require.Len(t, get[stateReply](x.desk, "api/v1/state", "run", "order 17").Status, 5)
	require.Len(t, get[graphReply](x.desk, "api/v1/graph", "run", "order 17", "inside", "review").Nodes, 2)
	approve := get[nodeReply](x.desk, "api/v1/node", "run", "order 17", "path", "review/approve")
	require.Equal(t, []any{"gate", "review", kahn.WhySignal, []string{}}, []any{approve.Type, approve.Parent, approve.Why.Kind, approve.Actions})
	for path, body := range map[string]string{"cancel": "{}", "fork": "{}"} {
		require.Equal(t, "not_performed", x.refusal(http.StatusConflict, http.MethodPost, "api/v1/"+path+queried("run", "order 17"), body).Code, path)
	}
	require.Equal(t, "not_performed", x.refusal(http.StatusConflict, http.MethodPost, "api/v1/signal"+queried("run", "order 17", "path", "review/approve"), `{"value":"ship"}`).Code)
	require.Equal(t, "plan_unknown", x.refusal(http.StatusConflict, http.MethodGet, "api/v1/fork"+queried("run", "order 17"), "").Code)
	require.Equal(t, kahn.RunSuspended, x.status("order 17"))
}

// An answer to a stored run is checked before the run continues, and is stored when it is accepted.
func TestStoredSignal(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), func(x *elsewhere, o *Options) { o.Store = noInbox{x.memory} })
	path := "api/v1/signal" + queried("run", "order 17", "path", "review/approve")
	f := x.refusal(http.StatusUnprocessableEntity, http.MethodPost, path, `{"value":"burn"}`)
	require.Equal(t, []any{"no_such_choice", []string{"ship", "hold"}}, []any{f.Code, f.Choices})
	_, here := x.rn.Run("order 17")
	require.False(t, here, "nothing was run")
	require.Equal(t, "unknown_gate", x.refusal(http.StatusNotFound, http.MethodPost, "api/v1/signal"+queried("run", "order 17", "path", "last"), `{"value":"ship"}`).Code)

	lease, _, err := x.memory.Acquire(t.Context(), "order 17", "another process", time.Hour)
	require.NoError(t, err)
	require.Equal(t, "leased", x.refusal(http.StatusConflict, http.MethodPost, path, `{"value":"ship"}`).Code)
	require.NoError(t, x.memory.Release(t.Context(), lease))

	x.post("api/v1/signal", `{"value":"ship","comment":"ok"}`, "run", "order 17", "path", "review/approve")
	stored, err := x.memory.Load(t.Context(), "order 17")
	require.NoError(t, err)
	require.Equal(t, kahn.Completed, stored.Nodes["review/approve"].Status)
	f = x.refusal(http.StatusConflict, http.MethodPost, path, `{"value":"hold"}`, as("bob"))
	require.Equal(t, []any{"answered", "ann"}, []any{f.Code, f.Answered.By})
	require.Contains(t, x.audit.String(), "action=signal actor=ann")
}

// A stored run that has not begun is cancelled without calling a step. A stored run that waits continues, and is then cancelled.
func TestStoredCancel(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), nil)
	n, err := kahn.Prepare(x.graph, kahn.RunID("pending"))
	require.NoError(t, err)
	_, _, err = x.memory.Create(t.Context(), n)
	require.NoError(t, err)
	n.ID, n.NotBefore = "tomorrow", time.Now().Add(24*time.Hour)
	_, _, err = x.memory.Create(t.Context(), n)
	require.NoError(t, err)

	require.Equal(t, "iiiiii", get[stateReply](x.desk, "api/v1/state", "run", "pending").Status)
	require.Equal(t, "the run is pending", get[nodeReply](x.desk, "api/v1/node", "run", "tomorrow", "path", "fetch").Why.Text)
	x.post("api/v1/cancel", `{"reason":"not needed"}`, "run", "pending")
	run, here := x.rn.Run("pending")
	require.True(t, here)
	res, _ := run.Wait()
	require.Equal(t, kahn.Request{Actor: "ann", Reason: "not needed"}, res.StopRequest)
	for n := range res.Nodes() {
		require.Zero(t, n.Attempts, n.ID)
	}
	require.Equal(t, kahn.RunCancelled, x.status("pending"))
	x.post("api/v1/cancel", `{}`, "run", "tomorrow")
	run, _ = x.rn.Run("tomorrow")
	_, _ = run.Wait()
	require.Equal(t, kahn.RunCancelled, x.status("tomorrow"))

	x.post("api/v1/cancel", `{}`, "run", "order 17")
	run, _ = x.rn.Run("order 17")
	_, _ = run.Wait()
	require.Equal(t, kahn.RunCancelled, x.status("order 17"))
	require.Equal(t, "finished", x.refusal(http.StatusConflict, http.MethodPost, "api/v1/cancel"+queried("run", "order 17"), "{}").Code)
}

// A stored run that was left while it was running does not count as waiting for an answer. This process can continue it.
func TestStoredRunThatWasLeft(t *testing.T) {
	t.Parallel()
	first := make(chan struct{})
	items := (&kahn.Graph{Name: "order"}).Add(
		kahn.Node{ID: "each", Map: &kahn.Map{Over: "list", Limit: 1}, Params: map[string]any{"list": []string{"p", "q", "r"}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if s.Index() == 0 {
				<-first
			}
			return s.Index(), nil
		}},
	)
	plan, err := items.Compile()
	require.NoError(t, err)
	x := newElsewhere(t, order(), func(x *elsewhere, o *Options) {
		o.Workflows = append(o.Workflows, Workflow{Plan: plan, Perform: func(ctx context.Context, opts ...kahn.Option) (*kahn.Run, error) {
			return x.rn.Start(ctx, items, nil, opts...)
		}})
		run, err := kahn.Start(t.Context(), items, nil, kahn.RunID("left"), kahn.Durable(x.memory))
		require.NoError(t, err)
		_, err = run.WaitFor(t.Context(), "each", kahn.Running)
		require.NoError(t, err)
		run.Leave()
		close(first)
		_, err = run.Wait()
		require.NoError(t, err)
	})
	row := get[runRow](x.desk, "api/v1/run", "run", "left")
	require.Equal(t, []any{kahn.RunSuspended, []string{"redrive", "cancel", "fork"}}, []any{row.Status, row.Actions})
	require.NotContains(t, get[runRow](x.desk, "api/v1/run", "run", "order 17").Actions, "redrive", "it waits for an answer")
	for _, path := range []string{"each", "each[1]"} {
		require.Equal(t, kahn.WhyHeld, get[nodeReply](x.desk, "api/v1/node", "run", "left", "path", path).Why.Kind, path)
	}
	require.Equal(t, []string{"each"}, get[previewReply](x.desk, "api/v1/redrive", "run", "left").Nodes)
	require.Equal(t, "not_ended", x.refusal(http.StatusConflict, http.MethodPost, "api/v1/redrive"+queried("run", "left"), `{"nodes":["each"]}`).Code)
	x.post("api/v1/redrive", `{}`, "run", "left")
	run, _ := x.rn.Run("left")
	res, err := run.Wait()
	require.NoError(t, err)
	require.Equal(t, []any{0, 1, 2}, res.Output())
}

// This process can redrive and fork a stored run that has ended, after a preview.
func TestStoredRedriveAndFork(t *testing.T) {
	t.Parallel()
	var mended sync.Map
	g := (&kahn.Graph{Name: "order"}).Add(
		kahn.Node{ID: "a", Do: func(context.Context, *kahn.Step) (any, error) { return 1, nil }},
		kahn.Node{ID: "b", After: []string{"a"}, Do: func(context.Context, *kahn.Step) (any, error) {
			if _, ok := mended.Load("b"); ok {
				return 2, nil
			}
			return nil, errBroken
		}},
		kahn.Node{ID: "c", After: []string{"b"}, Do: func(context.Context, *kahn.Step) (any, error) { return 3, nil }},
	)
	x := newElsewhere(t, g, nil)
	row := get[runRow](x.desk, "api/v1/run", "run", "order 17")
	require.Equal(t, []any{kahn.RunFailed, []string{"b"}, "the disk is full", []string{"redrive", "fork"}}, []any{row.Status, row.Failed, strings.TrimPrefix(row.Error, `node "b": step_error: `), row.Actions})
	require.Equal(t, "a failure upstream: b", get[nodeReply](x.desk, "api/v1/node", "run", "order 17", "path", "c").Why.Text)
	require.Equal(t, []string{"b", "c"}, get[previewReply](x.desk, "api/v1/redrive", "run", "order 17").Nodes)
	require.Equal(t, []string{"b", "c"}, get[previewReply](x.desk, "api/v1/fork", "run", "order 17").Nodes)
	require.Equal(t, []string{"a", "b", "c"}, get[previewReply](x.desk, "api/v1/fork", "run", "order 17", "node", "a").Nodes)
	mended.Store("b", true)
	var made runReply
	require.NoError(t, json.Unmarshal(x.post("api/v1/fork", `{"id":"order 18"}`, "run", "order 17"), &made))
	require.Equal(t, "order 18", made.Run)
	run, _ := x.rn.Run("order 18")
	_, err := run.Wait()
	require.NoError(t, err)
	require.Equal(t, []kahn.RunStatus{kahn.RunCompleted, kahn.RunFailed}, []kahn.RunStatus{x.status("order 18"), x.status("order 17")})
	x.post("api/v1/redrive", `{"reason":"mended"}`, "run", "order 17")
	run, _ = x.rn.Run("order 17")
	res, err := run.Wait()
	require.NoError(t, err)
	require.Equal(t, kahn.Request{Actor: "ann", Reason: "mended"}, res.RedriveRequest)
	require.Equal(t, kahn.RunCompleted, x.status("order 17"))
	// A run of the Runner can also be forked.
	require.NoError(t, json.Unmarshal(x.post("api/v1/fork", `{"nodes":["c"]}`, "run", "order 18"), &made))
	run, _ = x.rn.Run(made.Run)
	_, err = run.Wait()
	require.NoError(t, err)
	require.Equal(t, kahn.RunCompleted, x.status(made.Run))
	require.Equal(t, "unknown_node", x.refusal(http.StatusNotFound, http.MethodPost, "api/v1/fork"+queried("run", "order 17"), `{"nodes":["z"]}`).Code)
}

// Stored values are decoded by the codec, passed to Redact, and shown only to clients with ViewData.
func TestStoredValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		may   bool
		codec kahn.Codec
		want  string
	}{
		{true, nil, `"4711"`}, {false, nil, ""}, {true, brokenCodec{}, `"4711"`},
	} {
		var seen []Value
		x := newElsewhere(t, order(), func(_ *elsewhere, o *Options) {
			o.Codec = c.codec
			o.Redact = func(_ *http.Request, v Value) any {
				seen = append(seen, v)
				if m, ok := v.Value.(map[string]any); ok && m["card"] != nil {
					return m["card"]
				}
				if raw, ok := v.Value.(json.RawMessage); ok && strings.Contains(string(raw), "4711") {
					return "4711"
				}
				return v.Value
			}
			o.Authorize = func(_ *http.Request, a Action) error {
				if a == ViewData && !c.may {
					return errors.New("no")
				}
				return nil
			}
		})
		n := get[nodeReply](x.desk, "api/v1/node", "run", "order 17", "path", "fetch")
		require.Equal(t, c.want != "", n.Output != nil)
		if n.Output != nil {
			require.Equal(t, c.want, string(n.Output.JSON))
			require.Equal(t, "order 17", seen[0].RunID)
		}
		mail := get[nodeReply](x.desk, "api/v1/node", "run", "order 17", "path", "mail")
		require.Equal(t, c.may, mail.Error != "")
		require.Equal(t, c.may, strings.Contains(mail.Why.Text, "disk"))
	}
}

// brokenCodec fails to read values.
type brokenCodec struct{}

func (brokenCodec) Encode(any) (json.RawMessage, error) { return nil, kahn.ErrNotEncodable }
func (brokenCodec) Decode(json.RawMessage) (any, error) { panic("no") }

// A run of a graph without a name is forked with its own plan, even if other plans have no name either.
func TestForkWithoutAName(t *testing.T) {
	t.Parallel()
	ok := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	other, err := new(kahn.Graph).Add(kahn.Node{ID: "zzz", Do: ok}).Compile()
	require.NoError(t, err)
	x := newElsewhere(t, new(kahn.Graph).Add(kahn.Node{ID: "a", Do: ok}), func(_ *elsewhere, o *Options) { o.Workflows = append(o.Workflows, Workflow{Plan: other}) })
	require.Equal(t, []string{"a"}, get[previewReply](x.desk, "api/v1/fork", "run", "order 17", "node", "a").Nodes)
	unknown := newElsewhere(t, new(kahn.Graph).Add(kahn.Node{ID: "a", Do: ok}), func(_ *elsewhere, o *Options) { o.Workflows = []Workflow{{Plan: other}} })
	require.Equal(t, "plan_unknown", unknown.refusal(http.StatusConflict, http.MethodGet, "api/v1/fork"+queried("run", "order 17"), "").Code)
}

// If an answered run must wait for other runs before it continues, the answer is confirmed when the run begins. A pending run takes no answers
// before that.
func TestStoredSignalBehindOthers(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), func(x *elsewhere, _ *Options) { x.rn.MaxRuns = 1 })
	free := make(chan struct{})
	other, err := x.rn.Start(t.Context(), new(kahn.Graph).Add(kahn.Node{ID: "n", Do: func(context.Context, *kahn.Step) (any, error) { <-free; return nil, nil }}), nil)
	require.NoError(t, err)
	path := "api/v1/signal" + queried("run", "order 17", "path", "review/approve")
	answered := make(chan int, 1)
	go func() {
		code, _, _ := x.ask(http.MethodPost, path, `{"value":"ship"}`, as("ann"))
		answered <- code
	}()
	for change := range x.rn.Watch(t.Context()) {
		if change.Run.ID() == "order 17" {
			break
		}
	}
	require.Equal(t, "not_begun", x.refusal(http.StatusConflict, http.MethodPost, path, `{"value":"hold"}`).Code)
	require.Empty(t, answered)
	close(free)
	_, _ = other.Wait()
	require.Equal(t, http.StatusAccepted, <-answered)
	stored, err := x.memory.Load(t.Context(), "order 17")
	require.NoError(t, err)
	require.Equal(t, kahn.Completed, stored.Nodes["review/approve"].Status)
}

// If the store has the events of a run, its log and its timeline are the same as the live run's.
func TestStoredEvents(t *testing.T) {
	t.Parallel()
	memory := &store.Memory{}
	rn := &kahn.Runner{}
	g := (&kahn.Graph{Name: "order"}).Add(
		kahn.Node{ID: "a", Do: func(_ context.Context, s *kahn.Step) (any, error) { s.Log(slog.LevelWarn, "slow disk"); return 1, nil }},
		kahn.Node{ID: "b", After: []string{"a"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errBroken }},
	)
	run, err := rn.Start(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(memory), kahn.StoreEvents())
	require.NoError(t, err)
	_, _ = run.Wait()
	live, stored := serveRunner(t, rn, Options{}), serveRunner(t, nil, Options{Store: memory})
	want := get[logReply](live, "api/v1/log", "run", "r", "level", "debug")
	have := get[logReply](stored, "api/v1/log", "run", "r", "level", "debug")
	require.NotEmpty(t, want.Lines)
	for i := range want.Lines { // a stored event has the error of the step without the name of the node
		want.Lines[i].Text = strings.Replace(want.Lines[i].Text, `node "b": step_error: `, "", 1)
	}
	require.Equal(t, want, have)
	require.Equal(t, []logLine{want.Lines[slices.IndexFunc(want.Lines, func(l logLine) bool { return l.Text == "slow disk" })]}, get[logReply](stored, "api/v1/log", "run", "r", "q", "SLOW").Lines)
	spans := func(d *desk) (list []string) {
		for _, s := range get[timelineReply](d, "api/v1/timeline", "run", "r").Spans {
			require.True(t, 0 <= s.Queued && s.Queued <= s.Start && s.Start <= s.End, "%+v", s)
			list = append(list, fmt.Sprint(s.ID, s.Path, s.Attempt, s.Status))
		}
		return list
	}
	require.Len(t, spans(live), 2)
	require.Equal(t, spans(live), spans(stored))
	require.Equal(t, want.Last, get[runRow](stored, "api/v1/run", "run", "r").Last)
}

// states is a store that has snapshots of runs, but no records.
type states struct{ *store.Memory }

func (s states) Load(ctx context.Context, run string) (*store.Run, error) {
	row, err := s.Memory.Load(ctx, run)
	if err == nil {
		row.Record, row.Nodes = nil, nil
	}
	return row, err
}

func (s states) ReadSnapshot(ctx context.Context, run string) (*kahn.Snapshot, error) {
	return kahn.ReadSnapshot(ctx, s.Memory, run)
}

// If a store has no records, the handler shows the run's snapshot.
func TestStoreOfSnapshots(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), func(x *elsewhere, o *Options) { o.Store = states{x.memory} })
	y := newElsewhere(t, order(), nil)
	for _, inside := range []string{"", "review", "each[1]"} {
		params := []string{"run", "order 17"}
		if inside != "" {
			params = append(params, "inside", inside)
		}
		want := get[stateReply](y.desk, "api/v1/state", params...)
		require.Equal(t, want.Status, get[stateReply](x.desk, "api/v1/state", params...).Status)
		require.NotEmpty(t, want.Status)
	}
}

// mailing returns a graph that sends a letter for each item. The second item fails until it is marked in mended.
func mailing(mended *sync.Map) *kahn.Graph {
	return (&kahn.Graph{Name: "letters"}).Add(
		kahn.Node{ID: "each", Map: &kahn.Map{Over: "to"}, Params: map[string]any{"to": []string{"ann", "bob", "eve"}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if _, ok := mended.Load("bob"); !ok && s.Path() == "each[1]" {
				return nil, errBroken
			}
			return s.Path(), nil
		}},
		kahn.Node{ID: "sum", After: []string{"each"}, Do: func(context.Context, *kahn.Step) (any, error) { return 1, nil }},
	)
}

// In a redrive and in its preview, nodes inside composites are named by their paths. The page offers the redrive of a single item.
func TestRedriveByPath(t *testing.T) {
	t.Parallel()
	var mended sync.Map
	x := newElsewhere(t, mailing(&mended), nil)
	require.Equal(t, []string{"each", "each[1]", "sum"}, get[previewReply](x.desk, "api/v1/redrive", "run", "order 17").Nodes)
	require.Equal(t, []string{"each", "each[2]", "sum"}, get[previewReply](x.desk, "api/v1/redrive", "run", "order 17", "node", "each[2]").Nodes)
	require.Equal(t, "unknown_node", x.refusal(http.StatusNotFound, http.MethodGet, "api/v1/redrive"+queried("run", "order 17", "node", "each[3]"), ``).Code)
	require.Contains(t, get[nodeReply](x.desk, "api/v1/node", "run", "order 17", "path", "each[1]").Actions, "redrive")
	require.Equal(t, "unknown_node", x.refusal(http.StatusNotFound, http.MethodPost, "api/v1/redrive"+queried("run", "order 17"), `{"nodes":["each[3]"]}`).Code)
	mended.Store("bob", true)
	var reply redriveReply
	require.NoError(t, json.Unmarshal(x.post("api/v1/redrive", `{"nodes":["each[1]"]}`, "run", "order 17"), &reply))
	require.Equal(t, redriveReply{Run: "order 17", At: reply.At, Status: "accepted"}, reply)
	run, _ := x.rn.Run("order 17")
	res, err := run.Wait()
	require.NoError(t, err)
	require.Equal(t, 2, res.Count(kahn.Completed))
	require.Contains(t, get[nodeReply](x.desk, "api/v1/node", "run", "order 17", "path", "each[0]").Actions, "redrive")
	x.post("api/v1/redrive", `{"nodes":["each[0]"]}`, "run", "order 17")
}

// If another process performs a stored run, a redrive of the run is posted as a request. The page shows the request until that process has taken
// it.
func TestStoredRedriveByRequest(t *testing.T) {
	t.Parallel()
	var mended sync.Map
	g := mailing(&mended)
	x := newElsewhere(t, g, func(_ *elsewhere, o *Options) { o.Workflows[0].Perform = nil })
	require.Equal(t, []string{"redrive"}, get[runRow](x.desk, "api/v1/run", "run", "order 17").Actions)
	require.Contains(t, get[nodeReply](x.desk, "api/v1/node", "run", "order 17", "path", "each[1]").Actions, "redrive")
	require.Equal(t, "unknown_node", x.refusal(http.StatusNotFound, http.MethodPost, "api/v1/redrive"+queried("run", "order 17"), `{"nodes":["each[3]"]}`).Code)
	require.Empty(t, get[runRow](x.desk, "api/v1/run", "run", "order 17").Requests)
	mended.Store("bob", true)
	var reply redriveReply
	require.NoError(t, json.Unmarshal(x.post("api/v1/redrive", `{"nodes":["each[1]"],"reason":"he has moved"}`, "run", "order 17"), &reply))
	require.Equal(t, redriveReply{Run: "order 17", At: reply.At, Status: "requested"}, reply)
	require.Contains(t, x.audit.String(), "outcome=requested")
	rows := get[runRow](x.desk, "api/v1/run", "run", "order 17").Requests
	require.Len(t, rows, 1)
	require.Equal(t, []any{store.KindRedrive, store.RequestWaiting, "ann", "he has moved"}, []any{rows[0].Kind, rows[0].Status, rows[0].By, rows[0].Comment})
	res, err := kahn.Execute(t.Context(), g, nil, kahn.RunID("order 17"), kahn.Durable(x.memory)) // acts as the other process
	require.NoError(t, err)
	require.Equal(t, kahn.Request{Actor: "ann", Reason: "he has moved"}, res.RedriveRequest)
	require.Equal(t, kahn.RunCompleted, x.status("order 17"))
	require.Eventually(t, func() bool { return len(get[runRow](x.desk, "api/v1/run", "run", "order 17").Requests) == 0 }, 20*time.Second, 50*time.Millisecond)
}
