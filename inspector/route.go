package inspector

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

// A route is an endpoint: a row of the table that the handler, openapi.json and the tests share.
type route struct {
	method, path string
	action       Action // the Action that the endpoint needs besides View; "" if View is enough
	summary      string
	params       []param
	body         func() any // returns a pointer to a new variable for the decoded body of a POST
	reply        any        // a value of the response's type; nil if the endpoint writes the response itself: then media is the content type
	media        string
	serve        func(*call) (any, error)
	live         bool // whether the endpoint works only for runs of the Runner
	open         bool // if true, the endpoint needs neither a token nor an idempotency key
}

// These are the parameters that several routes have.
var (
	runParam    = param{Name: "run", Required: true, Note: "id of the run"}
	pathParam   = param{Name: "path", Required: true, Note: "path of the node, such as S/x, M[2] or L#1/x"}
	insideParam = param{Name: "inside", Note: "path of the composite to look into; without it the graph of the run"}
	textParam   = param{Name: "q", Note: "text to look for; upper and lower case count as the same"}
)

func limitParam(usual, most int) param {
	return param{Name: "limit", Number: true, Least: 1, Most: most, Default: usual, Note: "the maximum number of results"}
}

func afterParam(note string) param {
	return param{Name: "after", Number: true, Most: math.MaxInt32, Note: note}
}

var compensationParam = param{Name: "compensation", Choices: undoStates, Note: "only runs with this status of their compensations"}

var (
	runStatuses  = names(kahn.RunPending, kahn.RunCancelled)
	nodeStatuses = names(kahn.Idle, kahn.Skipped)
	undoStates   = names(kahn.CompensationRunning, kahn.CompensationFailed)
	levels       = []string{"debug", "info", "warn", "error"}
)

// The function `names` lists the names of an enum's values from first to last.
func names[T interface {
	~uint8
	String() string
}](first, last T) (list []string) {
	for x := first; x <= last; x++ {
		list = append(list, x.String())
	}
	return list
}

// orPosted is appended to the summary of an action that the handler may post as a request to another process.
const orPosted = " If another process performs the run and the store is a store.Inbox, the request is stored for that process: the response then has the status requested, and the run lists the request until the process takes it."

// routes are the endpoints. Their paths are relative to the mount.
var routes []route

func init() {
	routes = []route{
		{method: "GET", path: "", summary: "The page.", media: "text/html", serve: (*call).page},
		{method: "GET", path: "api/v1/openapi.json", summary: "This description.", media: jsonType, serve: (*call).openAPI},
		{method: "POST", path: sessionPath, open: true, summary: "Checks the token, if the handler asks for one, and sets a cookie, so that further requests need no token.", body: func() any { return &sessionBody{} }, reply: doneReply{}},
		{method: "GET", path: "api/v1/info", summary: "What the client may do, the limits of the Runner, the workflows that can be started.", reply: infoReply{}, serve: (*call).info},
		{method: "GET", path: "api/v1/runs", summary: "The runs, latest first.", params: []param{
			{Name: "status", Many: true, Choices: runStatuses, Note: "only runs in one of these statuses"},
			{Name: "order", Choices: []string{"trouble"}, Note: "trouble: first the runs that have failed or were left, then runs that wait for an answer, running runs with failed nodes, other running runs, pending runs, and ended runs"},
			compensationParam, {Name: "workflow", Note: "only runs of this workflow"}, textParam,
			{Name: "before", Note: "the cursor for the next page, from the page before"}, limitParam(50, 500),
		}, reply: runsReply{}, serve: (*call).runs},
		{method: "GET", path: "api/v1/run", summary: "One run.", params: []param{runParam}, reply: runRow{}, serve: (*call).run},
		{method: "GET", path: "api/v1/graph", summary: "Nodes and edges of a run's graph, or of the graph inside a composite.", params: []param{runParam, insideParam}, reply: graphReply{}, serve: (*call).graph},
		{method: "GET", path: "api/v1/state", summary: "The statuses of all nodes of a graph, one letter each, in the order in which graph lists them.", params: []param{runParam, insideParam}, reply: stateReply{}, serve: (*call).state},
		{method: "GET", path: "api/v1/nodes", summary: "The nodes of a graph as rows, in the order of declaration unless order is given.", params: []param{
			runParam, insideParam, {Name: "status", Many: true, Choices: nodeStatuses, Note: "only nodes in one of these statuses"}, textParam,
			{Name: "order", Choices: []string{"trouble"}, Note: "trouble: first the nodes that have failed, then nodes that wait for a signal or for their next attempt, running nodes, and nodes that wait for a slot"},
			afterParam("how many nodes to pass over"), limitParam(100, 1_000),
		}, reply: nodesReply{}, serve: (*call).nodes},
		{method: "GET", path: "api/v1/node", summary: "One node: its status and the reason, its neighbours and attempts; with view_data its inputs, output, configuration and errors, too.", params: []param{runParam, pathParam}, reply: nodeReply{}, serve: (*call).node},
		{method: "GET", path: "api/v1/value", action: ViewData, summary: "A value as a whole, as a download.", params: []param{
			runParam, pathParam, {Name: "of", Required: true, Choices: []string{string(Input), string(Output), string(Config), string(Info)}, Note: "which value"}, {Name: "name", Note: "name of the input, if of is input"},
		}, media: "application/octet-stream", serve: (*call).value},
		{method: "GET", path: "api/v1/log", action: ViewData, summary: "The log of a run: its events as lines.", params: []param{
			runParam, {Name: "path", Note: "only lines of this node and of the nodes inside it"}, {Name: "level", Choices: levels, Note: "only lines of this level or above; info without it"}, textParam,
			afterParam("the id of the last event that was seen"), {Name: "before", Number: true, Most: math.MaxInt32, Note: "only the last lines of events below this id; 0: no limit"}, limitParam(200, 1_000),
		}, reply: logReply{}, serve: (*call).log},
		{method: "GET", path: "api/v1/logfile", action: ViewData, summary: "All lines of the log of a run, as a download.", params: []param{
			runParam, {Name: "path", Note: "only lines of this node and of the nodes inside it"}, {Name: "level", Choices: levels, Note: "only lines of this level or above; info without it"}, textParam,
			{Name: "format", Choices: []string{"text", "jsonl"}, Note: "text, the default, or jsonl, which is one JSON object per line"},
		}, media: "text/plain", serve: (*call).logFile},
		{method: "GET", path: "api/v1/timeline", summary: "When each attempt was queued, began and ended.", params: []param{runParam, limitParam(5_000, 20_000)}, reply: timelineReply{}, serve: (*call).timeline},
		{method: "GET", path: "api/v1/gates", summary: "What waits for people, in all runs or in one: gates, and runs with failed compensations.", params: []param{{Name: "run", Note: "only of this run"}, limitParam(100, 500)}, reply: gatesReply{}, serve: (*call).gates},
		{method: "GET", path: "api/v1/stored", summary: "The runs of the store, the newest first.", params: []param{
			{Name: "status", Many: true, Choices: runStatuses, Note: "only runs in one of these statuses"}, compensationParam, {Name: "workflow", Note: "only runs of this workflow"}, {Name: "prefix", Note: "the beginning of the id"},
			{Name: "key", Note: "only runs with this key; for clients that may view_data"},
			{Name: "queue", Choices: []string{"unclaimable"}, Note: "unclaimable: only unfinished runs in queues that no live process serves, one queue after the other"},
			{Name: "after", Note: "next of the page before"}, limitParam(50, 500),
		}, reply: storedReply{}, serve: (*call).listStored},
		{method: "GET", path: "api/v1/stored/count", summary: "The number of runs of the store that match.", params: []param{
			{Name: "status", Many: true, Choices: runStatuses, Note: "only runs in one of these statuses"}, compensationParam, {Name: "workflow", Note: "only runs of this workflow"}, {Name: "prefix", Note: "the beginning of the id"},
			{Name: "key", Note: "only runs with this key; for clients that may view_data"},
		}, reply: storedCount{}, serve: (*call).countStored},
		{method: "GET", path: "api/v1/stream", summary: "A stream of server-sent events: hello, runs (rows of the list that have changed), nodes (what has changed in the given run), and reset, after which the client reads everything again.", params: []param{{Name: "run", Note: "a run whose nodes the stream also reports"}}, media: "text/event-stream", serve: (*call).stream},
		{method: "GET", path: "api/v1/redrive", summary: "The nodes that a redrive would run again. If the run would continue instead: the nodes that have begun, are ready or wait.", params: []param{
			runParam, {Name: "node", Many: true, Note: "paths of nodes to begin with; without it all nodes that failed, were aborted or were cancelled"},
			{Name: "compensations", Choices: []string{string(undoAgain), string(undoByHand)}, Note: "what to do about failed compensations; no node runs again then"}}, reply: previewReply{}, serve: (*call).preview},
		{method: "POST", path: "api/v1/redrive", action: Redrive, summary: "Runs a part of an ended run again, or repeats its failed compensations; or continues a stored run that was left or whose process has died.", params: []param{runParam}, body: func() any { return &redriveBody{} }, reply: redriveReply{}, serve: (*call).redrive},
		{method: "GET", path: "api/v1/fork", summary: "What a fork would run. The other nodes keep their results.", params: []param{runParam, {Name: "node", Many: true, Note: "nodes that run in any case"}}, reply: previewReply{}, serve: (*call).previewFork},
		{method: "POST", path: "api/v1/fork", action: Redrive, summary: "Begins a new run with results of this one, which it does not change.", params: []param{runParam}, body: func() any { return &forkBody{} }, reply: runReply{}, serve: (*call).fork},
		{method: "POST", path: "api/v1/signal", action: Signal, summary: "Answers a gate, or a step that waits." + orPosted, params: []param{runParam, pathParam}, body: func() any { return &signalBody{} }, reply: doneReply{}, serve: (*call).signal},
		{method: "POST", path: "api/v1/cancel", action: Cancel, summary: "Asks a run to stop: its cleanup nodes still run." + orPosted, params: []param{runParam}, body: func() any { return &reasonBody{} }, reply: doneReply{}, serve: (*call).cancel},
		{method: "POST", path: "api/v1/abort", action: Cancel, summary: "Stops a run as failed: its cleanup nodes still run.", params: []param{runParam}, body: func() any { return &reasonBody{} }, reply: doneReply{}, serve: (*call).abort},
		{method: "POST", path: "api/v1/leave", action: Cancel, summary: "Leaves a run in its present state, so that it can continue elsewhere.", params: []param{runParam}, body: func() any { return &emptyBody{} }, reply: doneReply{}, serve: (*call).leave, live: true},
		{method: "POST", path: "api/v1/node/cancel", action: Cancel, summary: "Asks one node to stop." + orPosted, params: []param{runParam, pathParam}, body: func() any { return &emptyBody{} }, reply: doneReply{}, serve: (*call).cancelNode},
		{method: "POST", path: "api/v1/node/retry", action: Redrive, summary: "Ends the backoff of a node: its next attempt begins at once.", params: []param{runParam, pathParam}, body: func() any { return &emptyBody{} }, reply: doneReply{}, serve: (*call).retry, live: true},
		{method: "POST", path: "api/v1/start", action: Start, summary: "Starts a run of a workflow that the host has named.", params: []param{{Name: "workflow", Required: true, Note: "name of the workflow"}}, body: func() any { return &startBody{} }, reply: runReply{}, serve: (*call).start},
		{method: "GET", path: "api/v1/schedules", summary: "The schedules by name, each with its next ticks and its latest runs.", reply: schedulesReply{}, serve: (*call).schedules},
		{method: "POST", path: "api/v1/schedule/run", action: Schedule, summary: "Creates a run of a schedule that is due at once.", params: []param{scheduleParam}, body: func() any { return &emptyBody{} }, reply: runReply{}, serve: (*call).runSchedule},
		{method: "POST", path: "api/v1/schedule/pause", action: Schedule, summary: "Keeps the ticks of a schedule from running.", params: []param{scheduleParam}, body: func() any { return &emptyBody{} }, reply: doneReply{}, serve: (*call).pauseSchedule},
		{method: "POST", path: "api/v1/schedule/resume", action: Schedule, summary: "Ends the pause of a schedule. Ticks of the pause are not missed.", params: []param{scheduleParam}, body: func() any { return &emptyBody{} }, reply: doneReply{}, serve: (*call).resumeSchedule},
	}
}

// A call is a request, with what the handler has found out about the request.
type call struct {
	h      *handler
	w      http.ResponseWriter
	r      *http.Request
	route  *route
	query  query
	body   any       // a pointer to the decoded body of a POST
	target subject   // the run that the query names; nil if the query names no run
	who    *string   // the name of the client that makes the request; nil until the method `actor` is called
	edges  adjacency // for gates: a cache of the edges of plans; nil otherwise
	looked looked    // for a list of gates or a preview: a cache of the graphs inside composites; nil otherwise
	waits  int       // for a log: the number of gates for which the method `waited` was called
	data   *bool     // whether the client may ViewData; nil until mayViewData is called
}

// The method `prepare` authorizes a request, decodes its query and, if it is not a POST, finds its run.
func (c *call) prepare() (err error) {
	if a := c.route.action; a != "" {
		if err := c.h.authorize(c.r, a); err != nil {
			return err
		}
	}
	if c.query, err = parseQuery(c.route.params, c.r.URL.RawQuery); err != nil {
		return err
	}
	if c.route.method == http.MethodPost {
		return nil // for a POST, the method `accept` finds the run, after it has looked for a kept response
	}
	return c.findRun()
}

// findRun sets target to the run that the query names. If the Runner does not have the run or has left it, findRun takes the state from the store.
func (c *call) findRun() error {
	id := c.query.text("run")
	run, ok := c.h.Runner.Run(id)
	switch {
	case id == "":
		return nil
	case ok && (c.h.Store == nil || !wasLeft(run)):
		c.target = run
	case c.h.Store == nil:
		return &fault{Status: http.StatusNotFound, Code: "unknown_run", Message: fmt.Sprintf("there is no run %.60q", id)}
	default:
		s, err := c.h.fromStore(c.r.Context(), id)
		switch {
		case err == nil:
			c.target = s
		case ok: // the store failed to load the run, but the Runner has the run
			c.target = run
		default:
			return err
		}
	}
	if !c.seesTarget() {
		c.target = nil
		return &fault{Status: http.StatusNotFound, Code: "unknown_run", Message: fmt.Sprintf("there is no run %.60q", id)}
	}
	if s := c.stored(); c.route.live && s != nil {
		if path := c.query.text("path"); path != "" {
			if _, err := s.place(path); err != nil {
				return err
			}
		}
		return cmp.Or(c.going(), error(errNotHere))
	}
	return nil
}

var errNotHere = &fault{Status: http.StatusConflict, Code: "not_here", Message: "this process does not perform the run: the run is at rest, or another process performs it"}

// mayViewData reports whether the client may see values.
func (c *call) mayViewData() bool {
	if c.data == nil {
		may := c.h.allows(c.r, ViewData)
		c.data = &may
	}
	return *c.data
}

// The method `reply` responds with JSON. The response to a GET has an ETag. If the client already has the body, the response has none.
func (c *call) reply(status int, answer any) error {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(answer); err != nil {
		return &fault{Status: http.StatusInternalServerError, Code: "not_encodable", Message: "the answer cannot be encoded"}
	}
	header := c.w.Header()
	header.Set("Content-Type", jsonType)
	if c.route.method == http.MethodGet {
		sum := sha256.Sum256(buf.Bytes())
		tag := `"` + hex.EncodeToString(sum[:12]) + `"`
		header.Set("ETag", tag)
		header.Set("Cache-Control", "no-cache, private")
		if known(c.r.Header.Get("If-None-Match"), tag) {
			c.w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	c.w.WriteHeader(status)
	_, _ = c.w.Write(buf.Bytes()) // an error means that the client is gone
	return nil
}

// The function `known` reports whether the header If-None-Match lists a tag.
func known(header, tag string) bool {
	for candidate := range strings.SplitSeq(header, ",") {
		candidate = strings.TrimPrefix(strings.TrimSpace(candidate), "W/")
		if candidate == tag || candidate == "*" {
			return true
		}
	}
	return false
}

// The function `allowed` returns the methods of a path as the value of the header Allow.
func allowed(methods map[string]*route) string {
	list := slices.Collect(maps.Keys(methods))
	if methods[http.MethodGet] != nil {
		list = append(list, http.MethodHead)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
