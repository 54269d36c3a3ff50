// Package inspector serves a page on which operators see the runs of a [kahn.Runner], answer gates, and cancel and redrive runs. A service
// mounts the handler like net/http/pprof:
//
//	rn := &kahn.Runner{MaxRuns: 50}
//	mux := http.NewServeMux()
//	mux.Handle("/debug/kahn/", inspector.Handler(inspector.Options{
//		Runner: rn,
//		Token:  os.Getenv("KAHN_TOKEN"),
//	}))
//
// The page shows running runs, earlier runs, and why a node does not run. The handler also serves the JSON endpoints that the page reads.
// With Options.Store the page also shows the runs of a store: runs of other processes, and runs that have ended. Options.Runner may be
// nil then.
//
// Without Options.Authorize the page asks for Options.Token. The binary contains the page's scripts, styles and texts. The file
// openapi.json describes every endpoint; the handler serves it as api/v1/openapi.json.
//
// The exported names, by task, are:
//
//   - The handler: [Handler], [Options].
//   - Who may do what: [Action]; who sees which run: [RunInfo]; which value is shown: [Value], [ValueKind].
//   - Runs of a store: [Workflow], and [Controller] for a store that can itself signal and cancel its runs.
//   - Starting runs from the page: [StartFunc].
package inspector

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/schedule"
	"github.com/seed-c794f7ef/kahn/store"
)

// Action is something that a client may do: see Options.Authorize.
type Action string

// The actions.
const (
	View     Action = "view"      // see runs, graphs, names, statuses and times
	ViewData Action = "view_data" // see inputs, outputs, configurations, errors, logs, comments and keys
	Signal   Action = "signal"    // answer a gate, or a step that waits
	Cancel   Action = "cancel"    // cancel, abort or leave a run, cancel a node
	Redrive  Action = "redrive"   // redrive an ended run, continue a stored run, fork a run, end a backoff
	Start    Action = "start"     // start a run of a workflow in Options.Start
	Schedule Action = "schedule"  // run a schedule of Options.Scheduler at once, pause it, resume it
)

// Options configures a handler. Runner or Store must be set.
type Options struct {
	// Runner performs the runs of this process. The page shows the Runner's unfinished runs live, and the ended runs that the Runner still
	// remembers.
	Runner *kahn.Runner
	// Store contains runs of other processes, and runs that the Runner has forgotten. For these runs, the page shows the state that the store
	// has. If the Store has a method ReadSnapshot(context.Context, string) (*kahn.Snapshot, error), like temporal.Store, the handler reads the
	// state from this snapshot. An operator may act on a run of another process. If the Store is a [Controller], it performs the action itself.
	// If it is a store.Inbox but no Controller, the handler posts a request. Nil: the page shows only the runs of the Runner.
	Store store.Admin
	// Workflows lists the workflows of the Store's runs: their plans, and how this process performs their runs. A run without a Workflow is shown
	// without edges, unless the Runner remembers it, and this process does not continue it.
	Workflows []Workflow
	// Codec decodes the values of the Store's runs, and encodes the answers that are posted to those runs. It should be the codec with which the
	// runs were stored. A value that the Codec cannot decode is shown in its stored form. Nil means kahn.Types{}.
	Codec store.Codec
	// Authorize decides whether a request may perform an Action. If Authorize returns an error, the response is 403, without the error's text.
	// But if Authorize refuses only ViewData, most responses merely lack the values. The handler calls Authorize with View for each request, and
	// with every further Action that the request needs. The query parameter "run" is the id of the run, and the parameter "path" is the path of
	// the node. The body of a redrive or a fork may name nodes of the run, too. For a list, Authorize is called once for all runs: see Visible.
	// For a stream, it is called again at the interval Reauthorize. Nil: a request with the Token may do everything.
	Authorize func(*http.Request, Action) error
	// Visible decides whether a client may know of a run. It can hide the runs of other tenants. Lists, counts and streams leave out hidden runs,
	// and a request for a hidden run gets the response for an unknown run. If Visible is set, the page shows neither schedules, nor unserved
	// queues, nor the place of a pending run in its line: all of these concern runs of several clients. The handler calls Visible for each run
	// and request, so Visible should be fast. Several goroutines may call Visible at once. If Visible panics, the run is hidden. Nil: clients
	// that may View know of all runs.
	Visible func(*http.Request, RunInfo) bool
	// Token is the secret that clients need if Authorize is nil. If Authorize is set, Token must be empty. Clients on this machine need the
	// Token, too, because a request through a local proxy looks like a request from this machine. The page reads the token from a link that ends
	// in #token=TOKEN, or asks the user for it. A cookie then admits the browser. Programs send the header "Authorization: Bearer TOKEN". The
	// Token must have at least 16 bytes. If Token and Authorize are both unset, Handler generates a token and writes it to Log.
	Token string
	// Actor returns the name of the client that makes a request. Events, results and the audit log contain the name. If Actor is nil, they contain no
	// name.
	Actor func(*http.Request) string
	// Redact returns what the client may see in place of a value, an error or a line of the log. The handler calls Redact before it encodes the
	// value. Redact must not change the value. Nil: clients that may ViewData see everything.
	Redact func(*http.Request, Value) any
	// Start contains the workflows that can be started from the page, by name. The context of a StartFunc does not end with the request.
	Start map[string]StartFunc
	// Scheduler manages the schedules that the page shows, with their next ticks and last runs. Operators may run a schedule at once, pause it or
	// resume it. The Scheduler should use the store in the option Store: then the page can mark the schedules whose runs no process serves. Nil:
	// no schedules are shown.
	Scheduler *schedule.Scheduler
	// Hosts are the names, without ports, by which clients may reach the handler. Loopback names are always allowed. The handler rejects requests
	// for other hosts, because another site may have pointed the name of its own host at this server.
	Hosts []string
	// Log gets a record of each action, of each error of the Store, and of each panic of a function in these Options. Nil: slog.Default().
	Log *slog.Logger
	// MaxStreams is the maximum number of pages that get changes through a stream at the same time. Further pages poll. Zero means 100.
	MaxStreams int
	// Reauthorize is the interval at which a stream calls Authorize again. Zero means 15 seconds.
	Reauthorize time.Duration
}

// RunInfo describes a run to Options.Visible.
type RunInfo struct {
	ID       string
	Workflow string
	// Labels are the run's labels, from kahn.Describe and Step.SetLabel.
	Labels map[string]string
}

// StartFunc starts a run with the inputs that a user typed: any JSON value, or nil if the user typed nothing.
type StartFunc func(ctx context.Context, inputs json.RawMessage) (*kahn.Run, error)

// Value is a value that Options.Redact may replace.
type Value struct {
	RunID string
	// Path is the node's path; empty for the run itself.
	Path string
	Kind ValueKind
	// Name is the name of the parameter if Kind is Input. For Answer and Label, see the comments of these constants.
	Name string
	// Value is the value itself. For an Error it is the text of the error, and for a Line it is the text of the line.
	Value any
}

// ValueKind is the kind of a Value.
type ValueKind string

// The kinds of values.
const (
	Input  ValueKind = "input"
	Output ValueKind = "output"
	Config ValueKind = "config"
	Info   ValueKind = "info" // what a step passed to kahn.Suspend
	Error  ValueKind = "error"
	Line   ValueKind = "line"   // a line of the log
	Answer ValueKind = "answer" // the answer to a gate; if Name is "comment", the comment of an answer or of a request
	Reason ValueKind = "reason" // why a node was skipped: the step's message, the condition's answer, or the guard's text
	Key    ValueKind = "key"    // the concurrency key of a node or of an item of a map; the kahn.RunKey of a stored run
	Label  ValueKind = "label"  // a label of a stored run; Name is the name of the label
)

const (
	defaultMaxStreams  = 100
	defaultReauthorize = 15 * time.Second
)

// handler serves the page and the endpoints.
type handler struct {
	Options
	origins *http.CrossOriginProtection
	routes  map[string]map[string]*route // by path and method
	byPlan  map[string]*Workflow         // by hash
	byName  map[string]*Workflow         // the last Workflow of each name
	replies replies
	hub     hub
	shelf   shelf
	queues  queues
	waits   waits
	turns   turns
	gate    *tokenGate // nil if Options.Authorize is set, or if an option is invalid
	defect  string     // what is wrong with the options, or ""
}

// Handler returns the handler of the page and its endpoints. An http.ServeMux may serve it at any pattern that ends in a slash, with or without
// http.StripPrefix. Other routers need http.StripPrefix. If an option is invalid, such as a negative number, the response to every request is 500
// and names the option.
func Handler(o Options) http.Handler {
	h := &handler{Options: o, origins: http.NewCrossOriginProtection(), routes: map[string]map[string]*route{}}
	switch {
	case o.Runner == nil && o.Store == nil:
		h.defect = "Options.Runner and Options.Store are both nil: set at least one of them"
	case o.Authorize != nil && o.Token != "":
		h.defect = "Options.Token and Options.Authorize are both set: set only one of them"
	case o.Authorize == nil && o.Token != "" && len(o.Token) < leastToken:
		h.defect = fmt.Sprintf("Options.Token has fewer than %d bytes", leastToken)
	case o.MaxStreams < 0:
		h.defect = "Options.MaxStreams is negative"
	case o.Reauthorize < 0:
		h.defect = "Options.Reauthorize is negative"
	case 0 < o.Reauthorize && o.Reauthorize < time.Millisecond:
		h.defect = fmt.Sprintf("Options.Reauthorize %v: is its unit missing?", o.Reauthorize)
	}
	for i, name := range o.Hosts {
		if hostname(name) == "" || strings.ContainsAny(name, "/@?# ") {
			h.defect = fmt.Sprintf("Options.Hosts[%d], %.60q, is not a host name", i, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Start)) {
		if name == "" || o.Start[name] == nil {
			h.defect = fmt.Sprintf("Options.Start[%.60q] has no name or no function", name)
		}
	}
	if h.Codec == nil {
		h.Codec = kahn.Types{}
	}
	h.Workflows = slices.Clone(o.Workflows)
	h.addWorkflows()
	if h.Runner == nil {
		h.Runner = &kahn.Runner{}
	}
	if h.MaxStreams == 0 {
		h.MaxStreams = defaultMaxStreams
	}
	if h.Reauthorize == 0 {
		h.Reauthorize = defaultReauthorize
	}
	h.Hosts = slices.Clone(o.Hosts)
	h.hub.handler = h
	if o.Authorize == nil && h.defect == "" {
		h.gate = newTokenGate(o.Token)
		if o.Token == "" {
			h.log().Info("inspector: the page asks for this token; a link that ends in #token= and the token skips the question", "token", h.gate.token)
		}
	}
	for i := range routes {
		x := &routes[i]
		if h.routes[x.path] == nil {
			h.routes[x.path] = map[string]*route{}
		}
		h.routes[x.path][x.method] = x
	}
	return h
}

func (h *handler) log() *slog.Logger {
	if h.Log != nil {
		return h.Log
	}
	return slog.Default()
}

// ServeHTTP serves one request. It checks whether the request is allowed, finds the route, and then decodes the request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	if h.defect != "" {
		refuse(w, &fault{Status: http.StatusInternalServerError, Code: "misconfigured", Message: "inspector: " + h.defect})
		return
	}
	if err := h.admit(r); err != nil {
		refuse(w, err)
		return
	}
	path, ok := below(r, func(path string) bool { return asset(path) || h.routes[path] != nil })
	if !ok {
		w.Header().Set("Location", slashed(r.RequestURI))
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	if err := h.pass(r, path); err != nil {
		refuse(w, err)
		return
	}
	if err := h.serve(w, r, path); err != nil {
		refuse(w, err)
	}
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request, path string) error {
	if asset(path) {
		return serveAsset(w, r, path)
	}
	methods := h.routes[path]
	if methods == nil {
		return &fault{Status: http.StatusNotFound, Code: "not_found", Message: "there is no such page"}
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	x := methods[method]
	if x == nil {
		w.Header().Set("Allow", allowed(methods))
		return &fault{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Message: fmt.Sprintf("choose one of %s", allowed(methods))}
	}
	c := &call{h: h, w: w, r: r, route: x}
	if x.open {
		return c.openSession()
	}
	if x.method == http.MethodPost {
		return c.write()
	}
	if err := c.prepare(); err != nil {
		return err
	}
	answer, err := x.serve(c)
	if err != nil || answer == nil {
		return err
	}
	return c.reply(http.StatusOK, answer)
}
