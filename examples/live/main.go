// Live is a service that shows its runs on the page of package inspector. The page changes while the runs proceed. The runs contain a gate that
// waits for an answer, a failure, retries, a map of 200 items, sub-graphs and a graph of 1,000 nodes.
//
//	go run ./examples/live              # then open the link that it prints
//	go run ./examples/live -check       # checks itself, with a Go client, and exits with 0 if all is well
//
// main.go contains everything that a host needs: a Runner and one line that mounts the page. graph.go contains the workflows. check.go contains
// the client.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/inspector"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "listen on this address")
	checking := flag.Bool("check", false, "start a run, follow it with a client, and exit")
	slower := flag.Duration("pace", time.Second, "the real duration of a second of a step")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "live: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := run(*addr, *checking, pace(*slower)); err != nil {
		log.Fatal(err)
	}
}

// run serves until it is interrupted, or checks itself.
func run(addr string, checking bool, p pace) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if checking {
		return check(ctx, os.Stdout)
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	token := rand.Text()
	fmt.Printf("open http://%s/debug/kahn/#token=%s\n", listener.Addr(), token)
	return serve(ctx, listener, token, p)
}

// serve starts a run of each workflow, and serves the page until ctx ends.
func serve(ctx context.Context, listener net.Listener, token string, p pace) error {
	rn := &kahn.Runner{MaxRuns: 20, Options: []kahn.Option{kahn.Limit(24)}}
	start := map[string]inspector.StartFunc{}
	for name, g := range p.workflows() {
		start[name] = func(ctx context.Context, _ json.RawMessage) (*kahn.Run, error) { return rn.Start(ctx, g, nil) }
		if _, err := rn.Start(ctx, g, nil); err != nil {
			return err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/kahn/", inspector.Handler(inspector.Options{Runner: rn, Start: start, Token: token}))
	server := &http.Server{
		Handler:           mux,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // when ctx ends, streams end, so that Shutdown can return
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second, // ends requests whose bodies stall; requests for streams have no body
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
	return rn.Shutdown(grace)
}
