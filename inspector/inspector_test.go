package inspector

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/graphs"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// desk is a Runner with a run that has every kind of node, and an HTTP server for its handler.
type desk struct {
	t      *testing.T
	rn     *kahn.Runner
	run    *kahn.Run
	server *httptest.Server
	audit  *syncBuffer
	mended atomic.Bool
	opts   Options
	keys   atomic.Int64
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

var errBroken = errors.New("the disk is full\nsecond line")

func (d *desk) graph() *kahn.Graph {
	ok := func(context.Context, *kahn.Step) (any, error) { return "ok", nil }
	sub := &kahn.Graph{}
	sub.Add(kahn.Node{ID: "x", Do: ok}, kahn.Node{ID: "ask", Kind: kahn.KindGate, After: []string{"x"}})
	g := &kahn.Graph{Name: "orders"}
	return g.Add(
		kahn.Node{ID: "fetch", Label: "Fetch rows", Config: map[string]any{"table": "rows"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			s.Log(slog.LevelWarn, "slow <b>disk</b>")
			s.Emit("part")
			return []any{"a", "b", strings.Repeat("long", 20_000)}, nil
		}},
		kahn.Node{ID: "each", Map: &kahn.Map{Over: "rows"}, In: []kahn.Edge{{From: "fetch", Param: "rows"}}, Sub: sub},
		kahn.Node{ID: "approve", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"ship", "hold"}}, After: []string{"fetch"}},
		kahn.Node{ID: "flaky", After: []string{"fetch"}, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Hour}, Do: func(context.Context, *kahn.Step) (any, error) {
			if d.mended.Load() {
				return "mended", nil
			}
			return nil, errBroken
		}},
		kahn.Node{ID: "ship", In: []kahn.Edge{{From: "approve", Label: "ship"}}, Do: ok},
		kahn.Node{ID: "last", After: []string{"each", "flaky"}, Do: ok},
	)
}

// newDesk starts the run and waits until only waiting nodes are left.
func newDesk(t *testing.T, change func(*Options)) *desk {
	t.Helper()
	d := &desk{t: t, rn: &kahn.Runner{}, audit: &syncBuffer{}}
	var err error
	d.run, err = d.rn.Start(t.Context(), d.graph(), nil, kahn.RunID("r/1 ü"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.rn.Shutdown(context.Background()) })
	for _, path := range []string{"flaky", "each", "approve"} {
		_, err := d.run.WaitFor(t.Context(), path, kahn.Retrying, kahn.Suspended)
		require.NoError(t, err)
	}
	d.opts = Options{
		Runner: d.rn, Log: slog.New(slog.NewTextHandler(d.audit, nil)), Actor: func(r *http.Request) string { return r.Header.Get("X-User") },
		Store: storeOf(t, d.graph()),
		Start: map[string]StartFunc{"orders": func(ctx context.Context, inputs json.RawMessage) (*kahn.Run, error) {
			if string(inputs) == `"no"` {
				return nil, errors.New("no orders today")
			}
			return d.rn.Start(ctx, d.graph(), nil)
		}},
	}
	if change != nil {
		change(&d.opts)
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/kahn/", Handler(free(d.opts)))
	d.server = httptest.NewServer(mux)
	t.Cleanup(d.server.Close)
	return d
}

// storeOf returns a store with one run that no process has performed.
func storeOf(t *testing.T, g *kahn.Graph) store.Admin {
	t.Helper()
	memory := &store.Memory{}
	run, err := kahn.Prepare(g, kahn.RunID("stored"))
	require.NoError(t, err)
	_, _, err = memory.Create(t.Context(), run)
	require.NoError(t, err)
	return memory
}

// ask makes a request and returns its status and body.
func (d *desk) ask(method, path, body string, change ...func(*http.Request)) (int, []byte, http.Header) {
	d.t.Helper()
	q, err := http.NewRequestWithContext(d.t.Context(), method, d.server.URL+"/debug/kahn/"+path, strings.NewReader(body))
	require.NoError(d.t, err)
	if method == http.MethodPost {
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Idempotency-Key", fmt.Sprint("key ", d.keys.Add(1)))
	}
	for _, f := range change {
		f(q)
	}
	res, err := http.DefaultClient.Do(q)
	require.NoError(d.t, err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	require.NoError(d.t, err)
	return res.StatusCode, data, res.Header
}

// get decodes the response of an endpoint, and checks it against the OpenAPI description.
func get[T any](d *desk, path string, params ...string) (answer T) {
	d.t.Helper()
	code, body, _ := d.ask(http.MethodGet, path+queried(params...), "")
	require.Equal(d.t, http.StatusOK, code, "%s", body)
	requireConforms(d.t, http.MethodGet, path, body)
	require.NoError(d.t, json.Unmarshal(body, &answer))
	return answer
}

// refusal decodes an error response.
func (d *desk) refusal(want int, method, path, body string, change ...func(*http.Request)) *fault {
	d.t.Helper()
	code, data, _ := d.ask(method, path, body, change...)
	require.Equal(d.t, want, code, "%s %s: %s", method, path, data)
	var reply faultReply
	require.NoError(d.t, json.Unmarshal(data, &reply), "%s", data)
	require.NotNil(d.t, reply.Error)
	return reply.Error
}

// post performs an action that must be accepted.
func (d *desk) post(path, body string, params ...string) []byte {
	d.t.Helper()
	code, data, _ := d.ask(http.MethodPost, path+queried(params...), body, as("ann"))
	require.Equal(d.t, http.StatusAccepted, code, "%s", data)
	requireConforms(d.t, http.MethodPost, path, data)
	return data
}

func as(user string) func(*http.Request) {
	return func(q *http.Request) { q.Header.Set("X-User", user) }
}

func queried(params ...string) string {
	if len(params) == 0 {
		return ""
	}
	v := url.Values{}
	for i := 0; i < len(params); i += 2 {
		v.Add(params[i], params[i+1])
	}
	return "?" + v.Encode()
}

func (d *desk) id() string { return d.run.ID() }

// The state of a graph shows the progress of its composites: sub-graphs, maps, loops and expanded nodes.
func TestInsides(t *testing.T) {
	t.Parallel()
	rn := &kahn.Runner{}
	d := newDesk(t, func(o *Options) { o.Runner = rn })
	ok := func(context.Context, *kahn.Step) (any, error) { return "ok", nil }
	inner := (&kahn.Graph{}).Add(kahn.Node{ID: "x", Do: ok}, kahn.Node{ID: "y", Do: ok})
	g := (&kahn.Graph{}).Add(
		kahn.Node{ID: "plain", Do: ok},
		kahn.Node{ID: "sub", Sub: inner},
		kahn.Node{ID: "loop", Sub: inner, Loop: &kahn.Loop{MaxIterations: 3, OnLimit: kahn.LoopStop, While: func(kahn.View) (bool, error) { return true, nil }}},
		kahn.Node{ID: "expanded", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }},
		kahn.Node{ID: "never", After: []string{"broken"}, Sub: inner},
		kahn.Node{ID: "broken", Do: func(context.Context, *kahn.Step) (any, error) { return nil, errBroken }},
	)
	run, err := rn.Start(t.Context(), g, nil, kahn.RunID("composites"))
	require.NoError(t, err)
	_, _ = run.Wait()
	both := map[string]int{"completed": 2}
	require.Equal(t, map[int]insideCounts{1: {Counts: both}, 2: {Iteration: 3, Counts: both}, 3: {Counts: both}}, get[stateReply](d, "api/v1/state", "run", "composites").Insides)
}

// layered returns a graph with layers of nodes, each of which follows three nodes of the preceding layer.
func layered(name string, layers, width int, do kahn.StepFunc) *kahn.Graph {
	g := &kahn.Graph{Name: name}
	for id, after := range graphs.Layered(layers, width) {
		g.Add(kahn.Node{ID: id, After: after, Do: do})
	}
	return g
}

func TestList(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	for i := range 5 {
		g := &kahn.Graph{Name: fmt.Sprint("other ", i%2)}
		run, err := d.rn.Start(t.Context(), g.Add(kahn.Node{ID: "n", Do: func(context.Context, *kahn.Step) (any, error) { return nil, errBroken }}), nil, kahn.RunID(fmt.Sprint("o", i)))
		require.NoError(t, err)
		_, _ = run.Wait()
	}
	all := get[runsReply](d, "api/v1/runs")
	require.Len(t, all.Runs, 6)
	require.Equal(t, "o4", all.Runs[0].ID)
	require.Equal(t, "the disk is full", all.Runs[0].Error) // the first line of the error
	require.Equal(t, kahn.RunFailed, all.Runs[0].Status)
	first := all.Runs[5]
	require.Equal(t, d.id(), first.ID)
	require.Equal(t, map[string]int{"completed": 1, "suspended": 2, "retrying": 1, "waiting": 2}, first.Counts)
	require.Equal(t, 6, first.Nodes)
	require.Equal(t, 4, first.Waits)
	require.Contains(t, first.Waiting, "approve")

	var paged []string
	for before := ""; ; {
		params := []string{"limit", "2"}
		if before != "" {
			params = append(params, "before", before)
		}
		page := get[runsReply](d, "api/v1/runs", params...)
		for _, row := range page.Runs {
			paged = append(paged, row.ID)
		}
		if before = page.Next; before == "" {
			break
		}
	}
	require.Equal(t, []string{"o4", "o3", "o2", "o1", "o0", d.id()}, paged)
	require.Len(t, get[runsReply](d, "api/v1/runs", "status", "failed", "workflow", "other 1").Runs, 2)
	require.Len(t, get[runsReply](d, "api/v1/runs", "q", "ORD").Runs, 1)

	// If the client already has the response, it gets no body.
	code, _, header := d.ask(http.MethodGet, "api/v1/runs?status=failed", "")
	require.Equal(t, http.StatusOK, code)
	code, body, _ := d.ask(http.MethodGet, "api/v1/runs?status=failed", "", func(q *http.Request) { q.Header.Set("If-None-Match", header.Get("ETag")) })
	require.Equal(t, http.StatusNotModified, code)
	require.Empty(t, body)

	info := get[infoReply](d, "api/v1/info")
	require.Equal(t, []Action{View, ViewData, Signal, Cancel, Redrive, Start, Schedule}, info.Actions)
	require.Equal(t, []string{"orders", "other 0", "other 1"}, info.Known)
	require.Equal(t, []string{"orders"}, info.Workflows)
	require.Equal(t, counts{"failed": 5, "running": 1}, info.Counts)
}

func TestRunAndNodes(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	g := get[graphReply](d, "api/v1/graph", "run", d.id())
	kinds := map[string]string{}
	for _, n := range g.Nodes {
		kinds[n.ID] = n.Type
	}
	require.Equal(t, map[string]string{"fetch": "step", "each": "map", "approve": "gate", "flaky": "step", "ship": "step", "last": "step"}, kinds)
	require.Contains(t, g.Edges, graphEdge{From: 2, To: 4, Label: "ship"})
	require.Contains(t, g.Edges, graphEdge{From: 0, To: 1})
	state := get[stateReply](d, "api/v1/state", "run", d.id())
	require.Equal(t, "csstww", state.Status)
	require.Equal(t, map[int]insideCounts{1: {Counts: map[string]int{"suspended": 3}}}, state.Insides)
	items := get[graphReply](d, "api/v1/graph", "run", d.id(), "inside", "each")
	require.Len(t, items.Nodes, 3)
	require.Equal(t, graphNode{ID: "each[1]", Type: "sub", Composite: true}, items.Nodes[1])
	require.Equal(t, "sss", get[stateReply](d, "api/v1/state", "run", d.id(), "inside", "each").Status)
	require.Equal(t, "each[1]/", get[stateReply](d, "api/v1/state", "run", d.id(), "inside", "each[1]").Prefix)
	require.Equal(t, "each[1]/", get[graphReply](d, "api/v1/graph", "run", d.id(), "inside", "each[1]").Prefix)

	rows := get[nodesReply](d, "api/v1/nodes", "run", d.id(), "limit", "2")
	require.Equal(t, []string{"fetch", "each"}, []string{rows.Nodes[0].Path, rows.Nodes[1].Path})
	rows = get[nodesReply](d, "api/v1/nodes", "run", d.id(), "limit", "4", "after", fmt.Sprint(rows.Next))
	require.Equal(t, "approve", rows.Nodes[0].Path)
	require.Zero(t, rows.Next)
	rows = get[nodesReply](d, "api/v1/nodes", "run", d.id(), "status", "retrying", "q", "FLA")
	require.Len(t, rows.Nodes, 1)
	var order []string
	for after := 0; ; after = rows.Next { // a node that waits or retries comes first, and a completed node in its place in the graph
		rows = get[nodesReply](d, "api/v1/nodes", "run", d.id(), "order", "trouble", "limit", "4", "after", fmt.Sprint(after))
		for _, n := range rows.Nodes {
			order = append(order, n.Path)
		}
		if rows.Next == 0 {
			break
		}
	}
	require.Equal(t, []string{"each", "approve", "flaky", "fetch", "ship", "last"}, order)

	fetch := get[nodeReply](d, "api/v1/node", "run", d.id(), "path", "fetch")
	require.Equal(t, "Fetch rows", fetch.Label)
	require.Equal(t, "it has completed", fetch.Why.Text)
	require.JSONEq(t, `{"table":"rows"}`, string(fetch.Config.JSON))
	require.True(t, fetch.Output.Truncated)
	require.Len(t, fetch.Output.Text, shownValue)
	require.Equal(t, "taken", fetch.Following[0].Edge)
	code, whole, header := d.ask(http.MethodGet, "api/v1/value"+queried("run", d.id(), "path", "fetch", "of", "output"), "")
	require.Equal(t, http.StatusOK, code)
	require.Len(t, whole, fetch.Output.Bytes)
	require.Contains(t, header.Get("Content-Disposition"), "attachment")

	flaky := get[nodeReply](d, "api/v1/node", "run", d.id(), "path", "flaky")
	require.Equal(t, kahn.WhyBackoff, flaky.Why.Kind)
	require.Contains(t, flaky.Why.Text, "the disk is full")
	require.Len(t, flaky.Tries, 1)
	require.Equal(t, 1, flaky.Tries[0].Number)
	require.Contains(t, flaky.Tries[0].Error, "the disk is full")
	require.Equal(t, []string{"retry", "cancel"}, flaky.Actions)
	last := get[nodeReply](d, "api/v1/node", "run", d.id(), "path", "last")
	require.Equal(t, []string{"each", "flaky"}, last.Why.Nodes)
	require.Equal(t, "open", last.Upstream[0].Edge)

	deep := get[nodeReply](d, "api/v1/node", "run", d.id(), "path", "each[1]/ask")
	require.Equal(t, "each[1]", deep.Parent)
	require.Equal(t, []string{"signal"}, deep.Actions)
	item := get[nodeReply](d, "api/v1/node", "run", d.id(), "path", "each[1]")
	require.True(t, item.Composite)
	require.Equal(t, "each", item.Parent)
	require.JSONEq(t, `"b"`, string(item.Inputs[1].Value.JSON))

	gates := get[gatesReply](d, "api/v1/gates")
	require.Equal(t, 4, gates.Total)
	for _, g := range gates.Gates {
		if g.Path == "approve" {
			require.Equal(t, []string{"ship", "hold"}, g.Choices)
		}
	}
	require.Equal(t, "unknown_node", d.refusal(http.StatusNotFound, http.MethodGet, "api/v1/node"+queried("run", d.id(), "path", "flakey"), "").Code)
}

func TestLogAndTimeline(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	log := get[logReply](d, "api/v1/log", "run", d.id(), "path", "fetch", "level", "debug")
	var lines []string
	for _, line := range log.Lines {
		lines = append(lines, line.Level+" "+line.Text)
	}
	require.Len(t, lines, 5)
	require.Equal(t, []string{"debug queued", "info started", "warn slow <b>disk</b>", "debug part"}, lines[:4])
	require.Contains(t, lines[4], "info completed after")
	warn := get[logReply](d, "api/v1/log", "run", d.id(), "level", "warn", "q", "DISK")
	require.Len(t, warn.Lines, 2)
	page := get[logReply](d, "api/v1/log", "run", d.id(), "limit", "1")
	require.True(t, page.More)
	require.Equal(t, page.Lines[0].ID, page.After)
	next := get[logReply](d, "api/v1/log", "run", d.id(), "limit", "1", "after", fmt.Sprint(page.After))
	require.Greater(t, next.Lines[0].ID, page.After)

	spans := map[string]span{}
	for _, s := range get[timelineReply](d, "api/v1/timeline", "run", d.id()).Spans {
		require.LessOrEqual(t, s.Queued, s.Start)
		spans[s.Path] = s
	}
	require.Equal(t, "completed", spans["fetch"].Status)
	require.Equal(t, "retrying", spans["flaky"].Status)
	require.Equal(t, "suspended", spans["each"].Status)
	require.Contains(t, spans, "each[0]/x")
}

// If two clients answer a gate, the second one learns who was first, even for a gate in a map.
func TestSignal(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	f := d.refusal(http.StatusUnprocessableEntity, http.MethodPost, "api/v1/signal"+queried("run", d.id(), "path", "approve"), `{"value":"maybe"}`)
	require.Equal(t, "no_such_choice", f.Code)
	require.Equal(t, []string{"ship", "hold"}, f.Choices)
	for _, path := range []string{"approve", "each[1]/ask"} {
		d.post("api/v1/signal", `{"value":"ship","comment":"looks good"}`, "run", d.id(), "path", path)
		f := d.refusal(http.StatusConflict, http.MethodPost, "api/v1/signal"+queried("run", d.id(), "path", path), `{"value":"hold"}`, as("bob"))
		require.Equal(t, "answered", f.Code)
		require.Equal(t, "ann has answered", f.Message)
		require.Equal(t, &answered{By: "ann", Comment: "looks good", Value: &value{JSON: json.RawMessage(`"ship"`), Type: "string", Bytes: 6}}, f.Answered)
	}
	node := get[nodeReply](d, "api/v1/node", "run", d.id(), "path", "approve")
	require.Equal(t, "ann", node.Decision.By)
	require.Contains(t, d.audit.String(), `msg=inspector action=signal actor=ann`)
	require.Contains(t, d.audit.String(), `action=signal actor=bob`)
	require.Contains(t, d.audit.String(), "outcome=answered")
}

// A request that is repeated with its key is performed once, even concurrently.
func TestIdempotency(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	key := func(q *http.Request) { q.Header.Set("Idempotency-Key", "same") }
	answers := make(chan string, 8)
	for range cap(answers) {
		go func() {
			_, body, _ := d.ask(http.MethodPost, "api/v1/start?workflow=orders", `{}`, key)
			answers <- string(body)
		}()
	}
	first := <-answers
	require.Contains(t, first, `"run"`)
	for range cap(answers) - 1 {
		require.Equal(t, first, <-answers)
	}
	require.Len(t, get[runsReply](d, "api/v1/runs").Runs, 2)
	require.Equal(t, "key_reused", d.refusal(http.StatusUnprocessableEntity, http.MethodPost, "api/v1/start?workflow=orders", `{"inputs":1}`, key).Code)
	// The same key from another actor counts as a different key.
	d.ask(http.MethodPost, "api/v1/start?workflow=orders", `{}`, key, as("ann"))
	require.Len(t, get[runsReply](d, "api/v1/runs").Runs, 3)
	require.Equal(t, "no orders today", d.refusal(http.StatusConflict, http.MethodPost, "api/v1/start?workflow=orders", `{"inputs":"no"}`).Message)
}

func TestActions(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	require.Equal(t, "not_ended", d.refusal(http.StatusConflict, http.MethodPost, "api/v1/redrive"+queried("run", d.id()), `{}`).Code)
	require.Equal(t, "not_ended", d.refusal(http.StatusConflict, http.MethodGet, "api/v1/redrive"+queried("run", d.id()), ``).Code)
	d.post("api/v1/node/retry", `{}`, "run", d.id(), "path", "flaky")
	require.Equal(t, "wrong_status", d.refusal(http.StatusConflict, http.MethodPost, "api/v1/node/retry"+queried("run", d.id(), "path", "fetch"), `{}`).Code)
	d.post("api/v1/node/cancel", `{}`, "run", d.id(), "path", "each")
	d.post("api/v1/cancel", `{"reason":"wrong input"}`, "run", d.id())
	res, _ := d.run.Wait()
	require.Equal(t, kahn.Request{Actor: "ann", Reason: "wrong input"}, res.StopRequest)
	require.Equal(t, "finished", d.refusal(http.StatusConflict, http.MethodPost, "api/v1/cancel"+queried("run", d.id()), `{}`).Code)
	checkEvents(t, d, res)

	preview := get[previewReply](d, "api/v1/redrive", "run", d.id())
	require.Equal(t, []string{"each", "each[0]", "each[0]/ask", "each[1]", "each[1]/ask", "each[2]", "each[2]/ask", "approve", "flaky", "ship", "last"}, preview.Nodes)
	require.Equal(t, []string{"flaky", "last"}, get[previewReply](d, "api/v1/redrive", "run", d.id(), "node", "flaky").Nodes)
	d.mended.Store(true)
	d.post("api/v1/redrive", `{"nodes":["flaky"],"reason":"mended"}`, "run", d.id())
	again, _ := d.rn.Run(d.id())
	res, _ = again.Wait()
	require.Equal(t, kahn.Request{Actor: "ann", Reason: "mended"}, res.RedriveRequest)
	flaky, _ := res.Node("flaky")
	require.Equal(t, "mended", flaky.Output)

	for _, action := range []string{"abort", "leave"} {
		var started runReply
		require.NoError(t, json.Unmarshal(d.post("api/v1/start", `{}`, "workflow", "orders"), &started))
		run, _ := d.rn.Run(started.Run)
		d.post("api/v1/"+action, `{}`, "run", started.Run)
		res, err := run.Wait()
		require.Equal(t, action == "leave", err == nil)
		require.Equal(t, action == "leave", res.Left)
		require.Equal(t, action == "leave", get[runRow](d, "api/v1/run", "run", started.Run).Left)
	}
}

// checkEvents checks the stream of a run's events.
func checkEvents(t *testing.T, d *desk, res *kahn.Result) {
	t.Helper()
	var events []kahn.Event
	for e, err := range d.run.Events(t.Context(), 0) {
		require.NoError(t, err)
		events = append(events, e)
	}
	require.NoError(t, kahntest.CheckEvents(d.graph(), res, events))
}

// The response describes a failure with the run's own text. For clients that may not see data, this text lacks the
// error.
func TestWhyFailed(t *testing.T) {
	t.Parallel()
	var hide atomic.Bool
	d := newDesk(t, func(o *Options) {
		o.Authorize = func(_ *http.Request, a Action) error {
			if a == ViewData && hide.Load() {
				return errors.New("no")
			}
			return nil
		}
	})
	d.post("api/v1/node/retry", `{}`, "run", d.id(), "path", "flaky")
	_, err := d.run.WaitFor(t.Context(), "flaky", kahn.Failed)
	require.NoError(t, err)
	why, err := d.run.Why("flaky")
	require.NoError(t, err)
	require.Equal(t, why.String(), get[nodeReply](d, "api/v1/node", "run", d.id(), "path", "flaky").Why.Text)
	hide.Store(true)
	require.Equal(t, "it failed: step_error: an error that is not shown", get[nodeReply](d, "api/v1/node", "run", d.id(), "path", "flaky").Why.Text)
}
