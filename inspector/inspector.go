// Package inspector serves a page on which operators see the runs of a [kahn.Runner], answer gates, and cancel and redrive runs. A service
// mounts the handler as it mounts net/http/pprof:
//
//	rn := &kahn.Runner{MaxRuns: 50}
//	mux := http.NewServeMux()
//	mux.Handle("/debug/kahn/", inspector.Handler(inspector.Options{
//		Runner: rn,
//		Token:  os.Getenv("KAHN_TOKEN"),
//	}))
//
// The page shows what runs, what ran, and why a node does not run. The handler also serves the JSON endpoints from which the page reads. With
// Options.Store it also shows, or shows only, the runs of a store: runs of other processes, and runs that have ended.
//
// Without Options.Authorize the page asks for Options.Token. Scripts, styles and texts of the page are in the
// binary. The file openapi.json describes every endpoint; the handler serves it as api/v1/openapi.json.
//
// The names by task:
//
//   - The handler: [Handler], [Options].
//   - Who may do what: [Action]; who sees which run: [RunInfo]; which value is shown: [Value], [ValueKind].
//   - Runs of a store: [Workflow], and [Controller] for a store whose runs take requests themselves.
//   - Starting runs on the page: [StartFunc].
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

// Action is what a client wants to do: see Options.Authorize.
type Action string

// The actions.
const (
	View     Action = "view"      // see runs, graphs, names, statuses and times
	ViewData Action = "view_data" // see inputs, outputs, configurations, errors and logs
	Signal   Action = "signal"    // answer a gate, or a step that waits
	Cancel   Action = "cancel"    // cancel, abort or leave a run, cancel a node
	Redrive  Action = "redrive"   // repeat a part of a run that has ended, fork a run, end a backoff
	Start    Action = "start"     // start a run of Options.Start
	Schedule Action = "schedule"  // run a schedule of Options.Scheduler now, pause and resume it
)

// Options configures a handler. Runner or Store must be set.
type Options struct {
	// Runner has the runs that are shown live, and that actions are for: its unfinished runs, and the runs that it remembers.
	Runner *kahn.Runner
	// Store has runs of other processes, and the runs that the Runner has forgotten. They are shown as the store has them; of a Store that has a
	// method ReadSnapshot(context.Context, string) (*kahn.Snapshot, error), such as temporal.Store, as the snapshot has them. What operators ask
	// of a run that another process performs is posted as a request if the Store is a store.Inbox; a [Controller] is asked itself. Nil: none.
	Store store.Admin
	// Workflows are the workflows of the Store's runs: their plans, and how this process performs them. A run without one is
	// shown without edges, and this process does not continue it.
	Workflows []Workflow
	// Codec reads the values of the runs of the Store, writes the answers that are posted for them, and should be theirs. A value that it cannot read is shown as it is stored. Nil
	// means kahn.Types{}.
	Codec store.Codec
	// Authorize decides whether a request may do something; an error refuses it with 403, and its text is not shown. Each request is
	// asked for View, and for every further action that it needs. Its query has the id of a run as run, and the path of a node as path;
	// what a body names, such as the nodes of a redrive, is in the run. Lists are asked about once for all runs: see Visible. A stream is asked again
	// every Reauthorize. Nil lets a request do everything that has the Token.
	Authorize func(*http.Request, Action) error
	// Visible decides whether a client may know of a run, such as one of another tenant. Runs that it hides are missing in lists, in counts and in streams, and
	// answered as unknown; schedules, and the counts of queues that no process works, are then not shown at all, since they are of all runs. It is asked for each run and request, from several
	// goroutines, and should be quick; its panic hides the run. Nil: clients that may View know of all runs.
	Visible func(*http.Request, RunInfo) bool
	// Token is what a client has to know if Authorize is nil: nothing else shows who may be behind a proxy on this machine, or which of its users asks.
	// The page takes it from a link whose address ends in #token= and the token, or asks for it, and keeps it in a cookie; programs send the header
	// Authorization: Bearer and the token. It has at least 16 bytes. Empty: one is generated, and Log gets it when the handler is made.
	Token string
	// Actor names who makes a request, for events, results and the audit log. Nil: no actor is named.
	Actor func(*http.Request) string
	// Redact returns what the client may see in place of a value, an error or a line of the log. It is called before these are
	// encoded, and must not change the value that it is given. Nil: clients that may ViewData see everything.
	Redact func(*http.Request, Value) any
	// Start has the workflows that may be started from the page, by name. The context does not end with the request.
	Start map[string]StartFunc
	// Scheduler has schedules that are shown: their next ticks and last runs. Operators may run them now, pause and resume them. Nil: none.
	Scheduler *schedule.Scheduler
	// Hosts are the names, without a port, under which the handler may be reached, beside the loopback names. Requests for other
	// hosts are refused: another site may have made its name point at this server.
	Hosts []string
	// Log gets a record for each action. Nil: slog.Default().
	Log *slog.Logger
	// MaxStreams bounds how many pages are kept up to date at a time; further ones ask again and again. Zero means 100.
	MaxStreams int
	// Reauthorize is how often a stream asks Authorize again. Zero means 15 seconds.
	Reauthorize time.Duration
}

// RunInfo is what Options.Visible is asked about.
type RunInfo struct {
	ID       string
	Workflow string
	// Labels are the run's labels, from kahn.Describe and Step.SetLabel.
	Labels map[string]string
}

// StartFunc starts a run with the inputs that a user has typed, a JSON object or nothing.
type StartFunc func(ctx context.Context, inputs json.RawMessage) (*kahn.Run, error)

// Value is what Options.Redact is asked about.
type Value struct {
	RunID string
	// Path is the node's; empty for the run itself.
	Path string
	Kind ValueKind
	// Name is the name of the parameter, for an Input; see the kinds.
	Name string
	// Value is the value; of an error its text, of a line of the log the line.
	Value any
}

// ValueKind says what a Value is.
type ValueKind string

// The kinds of values.
const (
	Input  ValueKind = "input"
	Output ValueKind = "output"
	Config ValueKind = "config"
	Info   ValueKind = "info" // what a step has said with kahn.Suspend
	Error  ValueKind = "error"
	Line   ValueKind = "line"   // of the log
	Answer ValueKind = "answer" // to a gate; Name is "comment" for its comment, and for a request's
	Reason ValueKind = "reason" // of a skip: the message of the step, the answer of the condition, or the text of the guard
	Key    ValueKind = "key"    // of a node, or of an item of a map
	Label  ValueKind = "label"  // of a stored run, by Name
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
	byPlan  map[string]*Workflow         // by the hash
	byName  map[string]*Workflow         // the last one of each name
	replies replies
	hub     hub
	shelf   shelf
	queues  queues
	waits   waits
	turns   turns
	gate    *tokenGate // nil with Authorize
	defect  string     // of the options
}

// Handler returns the handler of the page and of its endpoints. It may be mounted at any pattern of an http.ServeMux that ends in a
// slash, with or without http.StripPrefix; behind another router it needs http.StripPrefix. If an option has no sense, such as a
// negative number, the handler answers every request with 500 and the name of the option.
func Handler(o Options) http.Handler {
	h := &handler{Options: o, origins: http.NewCrossOriginProtection(), routes: map[string]map[string]*route{}}
	switch {
	case o.Runner == nil && o.Store == nil:
		h.defect = "Options.Runner and Options.Store are nil"
	case o.Authorize != nil && o.Token != "":
		h.defect = "Options.Token is for a nil Options.Authorize"
	case o.Authorize == nil && o.Token != "" && len(o.Token) < leastToken:
		h.defect = fmt.Sprintf("Options.Token has fewer than %d bytes", leastToken)
	case o.MaxStreams < 0:
		h.defect = "Options.MaxStreams is negative"
	case o.Reauthorize < 0:
		h.defect = "Options.Reauthorize is negative"
	}
	for i, name := range o.Hosts {
		if hostname(name) == "" || strings.ContainsAny(name, "/@?# ") {
			h.defect = fmt.Sprintf("Options.Hosts[%d], %.60q, is no name of a host", i, name)
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
			h.log().Info("inspector: the page asks for a token, which a link has as #token= at its end", "token", h.gate.token)
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

// ServeHTTP answers one request: it is judged first, then found, then decoded, then served.
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
