// This program is an HTTP service. POST /orders/7 begins the run of order 7, or continues the run after a restart of the service.
// GET /orders/7/events streams the run's events, and POST /orders/7/paid answers the run's gate. After Ctrl-C, running steps have ten seconds to
// finish. The unfinished runs are in orders.db, and can continue after a restart.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/sse"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

func step(_ context.Context, s *kahn.Step) (any, error) {
	fmt.Println(s.ID(), "order", s.RunID())
	return nil, nil
}

func main() {
	addr := flag.String("addr", "localhost:8080", "listen on this address")
	flag.Parse()
	stop, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	db, err := sqlite.Open("orders.db", sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	order := new(kahn.Graph).Add(
		kahn.Node{ID: "pack"},
		kahn.Node{ID: "paid", Kind: kahn.KindGate, After: []string{"pack"}},
		kahn.Node{ID: "ship", After: []string{"paid"}},
	)
	runner := kahn.Runner{Options: []kahn.Option{kahn.Durable(db), kahn.StoreEvents()}}
	http.HandleFunc("POST /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		// When the context of a durable run ends, kahn interrupts the run's steps. So the run gets a context that never ends, not the context of the
		// request or the signal.
		if _, err := runner.Start(context.Background(), order, step, kahn.RunID(r.PathValue("id"))); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	http.HandleFunc("POST /orders/{id}/paid", func(w http.ResponseWriter, r *http.Request) {
		if run, ok := runner.Run(r.PathValue("id")); !ok || run.Signal(r.Context(), "paid", true) != nil {
			http.Error(w, "there is no such order, or it has been paid", http.StatusConflict)
		}
	})
	http.Handle("GET /orders/{id}/events", &sse.Handler{Find: func(r *http.Request) (sse.Source, error) {
		return store.OpenEvents(r.Context(), db, r.PathValue("id")) // also yields the events from before a restart
	}})
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	log.Print("listening on ", listener.Addr())
	server := &http.Server{BaseContext: func(net.Listener) context.Context { return stop }} // the signal ends the streams of events
	go func() { log.Print(server.Serve(listener)) }()
	<-stop.Done()
	grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println("stopped:", errors.Join(server.Shutdown(grace), runner.Shutdown(grace), db.Close()))
}
