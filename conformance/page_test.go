package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// page is an HTTP handler that shows running runs of a Runner. It uses only net/http and exported methods of Run.
type page struct{ rn *kahn.Runner }

func newPage(rn *kahn.Runner) http.Handler {
	p, mux := page{rn}, http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.list)
	mux.HandleFunc("GET /changes", p.changes)
	for pattern, show := range map[string]func(http.ResponseWriter, *http.Request, *kahn.Run) error{
		"GET /runs/{id}": p.graph, "GET /runs/{id}/node": p.node, "GET /runs/{id}/why": p.why, "GET /runs/{id}/events": p.events,
		"POST /runs/{id}/retry": p.retry, "POST /runs/{id}/redrive": p.redrive,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, q *http.Request) {
			run, ok := rn.Run(q.PathValue("id"))
			if !ok {
				http.Error(w, "no such run", http.StatusNotFound)
			} else if err := show(w, q, run); errors.Is(err, kahn.ErrUnknownNode) {
				http.Error(w, err.Error(), http.StatusNotFound)
			} else if err != nil {
				http.Error(w, err.Error(), http.StatusConflict)
			}
		})
	}
	return mux
}

var listHTML = template.Must(template.New("list").Parse(`<table>{{range .}}<tr><td><a href="runs/{{.ID}}">{{.ID}}</a><td>{{.Name}}<td>{{.Status}}<td>{{.Started}}<td>{{.Counts}}<td>{{.Waiting}}
{{end}}</table>`))

func (p page) list(w http.ResponseWriter, _ *http.Request) {
	type row struct {
		ID, Name, Started string
		Status            kahn.RunStatus
		Counts            map[kahn.Status]int
		Waiting           []string
	}
	var rows []row
	for run := range p.rn.Runs() {
		r := row{ID: run.ID(), Name: run.Name(), Status: run.Status(), Counts: run.Counts()}
		if t := run.Started(); !t.IsZero() {
			r.Started = t.Format(time.TimeOnly)
		}
		for _, wait := range run.Waiting() {
			r.Waiting = append(r.Waiting, wait.Node)
		}
		rows = append(rows, r)
	}
	_ = listHTML.Execute(w, rows)
}

// stream writes a value as a line of JSON and flushes it.
func stream[T any](w http.ResponseWriter, value T) error {
	err := json.NewEncoder(w).Encode(value)
	return errors.Join(err, http.NewResponseController(w).Flush())
}

func (p page) changes(w http.ResponseWriter, q *http.Request) {
	for c := range p.rn.Watch(q.Context()) {
		if stream(w, map[string]any{"id": c.Run.ID(), "status": c.Status, "removed": c.Removed}) != nil {
			return
		}
	}
}

var graphHTML = template.Must(template.New("graph").Parse(`<h1>{{.Title}}</h1><ul>{{range .Nodes}}<li class="{{.Status}}">{{.ID}}: {{.Status}} (tier {{.Tier}}, {{.Attempts}} attempts): {{.Why}}{{if .Deep}} <a href="?in={{.ID}}">inside</a>{{end}}
{{end}}</ul><ul>{{if .Edges}}{{range $e, $side := .Edges}}<li>{{$e.From}} &rarr; {{$e.To}} {{$e.Label}}{{if $side}} (data){{end}}{{end}}{{end}}</ul>`))

func (page) graph(w http.ResponseWriter, q *http.Request, run *kahn.Run) error {
	type node struct {
		kahn.NodeResult
		Why  kahn.Why
		Deep bool
	}
	var data struct {
		Title string
		Nodes []node
		Edges iter.Seq2[kahn.Edge, bool]
	}
	plan, nodes := run.Plan(), run.Nodes()
	if data.Title = run.Name(); q.FormValue("in") != "" {
		in, err := run.Inside(q.FormValue("in"))
		if err != nil {
			return err
		}
		plan, data.Title, nodes = in.Plan, in.Prefix, slices.Values(in.Nodes)
	}
	for n := range nodes {
		why, _ := run.Why(n.ID)
		_, err := run.Inside(n.ID)
		data.Nodes = append(data.Nodes, node{n, why, err == nil})
	}
	if plan != nil {
		data.Edges = plan.Edges()
	}
	return graphHTML.Execute(w, data)
}

func (page) node(w http.ResponseWriter, q *http.Request, run *kahn.Run) error {
	path := q.FormValue("path")
	n, err := run.Node(path)
	params, open, err2 := run.Inputs(path)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	return stream(w, map[string]any{"path": n.ID, "label": n.Label, "status": n.Status, "output": n.Output, "inputs": params, "open": open,
		"error": fmt.Sprint(n.Err), "cause": n.Cause.Kind, "skip": n.Skip, "duration": n.Duration.String(), "attempts": n.History()})
}

func (page) why(w http.ResponseWriter, q *http.Request, run *kahn.Run) error {
	why, err := run.Why(q.FormValue("path"))
	if err == nil {
		err = stream(w, map[string]any{"kind": why.Kind, "text": why.String(), "nodes": why.Nodes, "until": why.Until, "choices": why.Choices, "bound": why.Bound})
	}
	return err
}

func (page) events(w http.ResponseWriter, q *http.Request, run *kahn.Run) error {
	after, _ := strconv.ParseUint(q.FormValue("after"), 10, 64)
	for e, err := range run.Events(q.Context(), after) {
		if err := errors.Join(err, stream(w, e)); err != nil {
			return err
		}
	}
	return nil
}

func (page) retry(_ http.ResponseWriter, q *http.Request, run *kahn.Run) error {
	return run.RetryNow(q.FormValue("path"))
}

func (p page) redrive(_ http.ResponseWriter, q *http.Request, run *kahn.Run) error {
	_, err := p.rn.Redrive(context.WithoutCancel(q.Context()), run.ID(), nil, kahn.Request{Actor: "the page"})
	return err
}
