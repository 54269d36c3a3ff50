// Live shows runs in a browser while they happen: a page of one file, without dependencies, that reads the events of a run
// with the browser's own EventSource.
//
//	go run ./examples/live              # then open http://localhost:8080
//	go run ./examples/live -check       # checks itself, with a Go client, and exits with 0 if all is well
//
// Try to stop the program's output with Ctrl-S, to close the lid, or to cut the network: the page goes on where it was.
//
// main.go has all that a host needs: it starts a run, keeps it, and hands its events to sse.Handler. graph.go has the graph,
// index.html the page, and check.go the client.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/sse"
)

//go:embed index.html
var index []byte

func main() {
	addr := flag.String("addr", "localhost:8080", "where to listen")
	checking := flag.Bool("check", false, "start a run, follow it with a client, and leave")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "live: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := run(*addr, *checking); err != nil {
		log.Fatal(err)
	}
}

// run serves, or checks itself, until it is interrupted.
func run(addr string, checking bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if checking {
		return check(ctx, os.Stdout)
	}
	return listen(ctx, addr)
}

func listen(ctx context.Context, addr string) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf("open http://%s\n", listener.Addr())
	return serve(ctx, listener, time.Second)
}

// serve serves until ctx ends. pace is how long a second of a step takes.
func serve(ctx context.Context, listener net.Listener, pace time.Duration) error {
	h, err := newHost(ctx, pace)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           http.NewCrossOriginProtection().Handler(h.routes()), // other pages must not start runs
		BaseContext:       func(net.Listener) context.Context { return ctx },   // streams end with it, and let Shutdown return
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      10 * time.Second, // streams have their own deadlines, and live longer
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return err
	}
	h.wait()
	return nil
}

// host is a service that runs one graph whenever it is asked to.
type host struct {
	ctx  context.Context // of the runs: they outlive the requests that start them
	plan *kahn.Plan

	mu   sync.Mutex
	runs map[string]*kahn.Run
	ids  []string // in the order of their start
}

// kept is how many runs can be looked at.
const kept = 100

func newHost(ctx context.Context, pace time.Duration) (*host, error) {
	plan, err := build(pace).Compile()
	if err != nil {
		return nil, err
	}
	return &host{ctx: ctx, plan: plan, runs: map[string]*kahn.Run{}}, nil
}

func (h *host) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(index)
	})
	mux.HandleFunc("GET /graph", h.graph)
	mux.HandleFunc("POST /runs", h.start)
	mux.HandleFunc("POST /runs/{id}/approve", h.approve)
	mux.Handle("/runs/{id}/events", &sse.Handler{
		Find: func(r *http.Request) (sse.Source, error) {
			run, err := h.find(r)
			return run, err
		},
		Retry:            500 * time.Millisecond,
		MaxStreamsPerKey: 20,
	})
	return mux
}

// start starts a run and answers with its id.
func (h *host) start(w http.ResponseWriter, _ *http.Request) {
	run, err := h.plan.Start(h.ctx, nil, kahn.Limit(4))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h.mu.Lock()
	h.runs[run.ID()] = run
	if h.ids = append(h.ids, run.ID()); len(h.ids) > kept {
		delete(h.runs, h.ids[0])
		h.ids = h.ids[1:]
	}
	h.mu.Unlock()
	reply(w, map[string]string{"id": run.ID()})
}

// find returns the run that a request names.
func (h *host) find(r *http.Request) (*kahn.Run, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	run, ok := h.runs[r.PathValue("id")]
	if !ok {
		return nil, errors.New("no such run")
	}
	return run, nil
}

// approve gives a run the signal that it waits for.
func (h *host) approve(w http.ResponseWriter, r *http.Request) {
	run, err := h.find(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	if err := run.Signal("approve", true); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

// graph answers with the nodes in the order of the graph, so that the page can show nodes without events.
func (h *host) graph(w http.ResponseWriter, _ *http.Request) {
	type node struct {
		ID   string `json:"id"`
		Tier int    `json:"tier"`
	}
	nodes := []node{}
	for ref, id := range h.plan.Declared() {
		nodes = append(nodes, node{ID: id, Tier: h.plan.Tier(ref)})
	}
	reply(w, nodes)
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		log.Print(err)
	}
}

// wait waits for the runs, which have been stopped.
func (h *host) wait() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, run := range h.runs {
		_, _ = run.Wait() // the page has shown the result
	}
}
