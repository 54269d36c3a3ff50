package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/inspector"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// page holds the flags for the page that shows runs in a browser.
type page struct {
	addr         string // "" means no page
	remote, stay bool
	browse       bool // open the browser, if the command runs on a terminal
}

// listen listens on the address. Without -ui-remote, listen returns an error for an address that other machines may reach.
func (p page) listen() (net.Listener, error) {
	host, port, err := net.SplitHostPort(p.addr)
	if err != nil {
		return nil, fmt.Errorf("-ui: %w", err)
	}
	if host == "" && !p.remote {
		host = "localhost"
	}
	if addr, err := netip.ParseAddr(host); !p.remote && host != "localhost" && (err != nil || !addr.IsLoopback()) {
		return nil, fmt.Errorf("-ui: other machines may reach %s; use localhost, or add -ui-remote", host)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("-ui: %w", err)
	}
	return listener, nil
}

// The method `events` returns how many events of a run are kept in memory. Without a page it returns 0, since only the page reads earlier events.
// Each output line of a command is an event, so a run may have very many events.
func (p page) events() int {
	if p.addr == "" {
		return 0
	}
	return 20_000
}

// The method `hosts` returns the host names under which other machines may reach the page.
func (p page) hosts() (names []string) {
	if !p.remote {
		return nil
	}
	if host, _, err := net.SplitHostPort(p.addr); err == nil && host != "" {
		names = append(names, host)
	}
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	addrs, _ := net.InterfaceAddrs() // after an error the addresses of the machine are missing
	for _, addr := range addrs {
		if prefix, err := netip.ParsePrefix(addr.String()); err == nil {
			names = append(names, prefix.Addr().String())
		}
	}
	return names
}

// servePage serves a page with the runs of the Runner and, if there is a store, the runs in the store. The function `end` stops the server. Then it
// leaves the runs that were begun on the page: it interrupts steps that have not ended after the time `grace`. A later process can continue these
// runs from the store.
func (h *host) servePage(rn *kahn.Runner, db *sqlite.Store) (end func(), err error) {
	options := inspector.Options{Runner: rn}
	if db != nil {
		plan, err := h.graph.Compile()
		if err != nil {
			return nil, err
		}
		options.Store = db
		options.Workflows = []inspector.Workflow{{Plan: plan, Perform: func(ctx context.Context, opts ...kahn.Option) (*kahn.Run, error) {
			return rn.Start(ctx, h.graph, h.step, append(opts, kahn.Limit(h.limit), knowStoredRoots(h.t, h.graph, db))...)
		}}}
	}
	h.page.browse = !h.page.remote
	close, err := h.page.serve(h.t, options)
	if err != nil {
		return nil, err
	}
	return func() {
		close()
		leaving, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		_ = rn.Shutdown(leaving) // an error says that steps of runs begun on the page were interrupted; the command has not failed
	}, nil
}

// serve serves the page. The function `end` stops the server, and waits until the server has stopped.
func (p page) serve(t *terminal, options inspector.Options) (end func(), err error) {
	listener, err := p.listen()
	if err != nil {
		return nil, err
	}
	options.Hosts = p.hosts()
	options.Log = slog.New(slog.DiscardHandler) // no log is needed: the events of a run record each action of the page
	options.Token = rand.Text()
	mux := http.NewServeMux()
	mux.Handle("/", inspector.Handler(options))
	serving, stop := context.WithCancel(context.Background())
	server := &http.Server{
		Handler:           mux,
		BaseContext:       func(net.Listener) context.Context { return serving }, // when this context ends, streams end, so that Shutdown can return
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second, // ends requests whose bodies stall; requests for streams have no body
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.printf("kahn: -ui: %v\n", err)
		}
	}()
	link := fmt.Sprintf("http://%s/#token=%s", listener.Addr(), options.Token)
	t.printf("open %s\n", link)
	forget := func() {}
	if p.browse && isTerminal(t.err) {
		if forget, err = browse(link); err != nil {
			t.printf("kahn: -ui: the browser is not opened: %v\n", err)
		}
	}
	return func() {
		forget()
		stop()
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(closing) // if Shutdown times out, Close ends the connections that are still open
		_ = server.Close()
		<-served
	}, nil
}

// The method `linger` keeps the page open until Ctrl-C if -ui-stay is given.
func (h *host) linger(ctx context.Context) {
	if h.page.stay && ctx.Err() == nil {
		h.t.printf("the run is over; the page stays until Ctrl-C\n")
		<-ctx.Done()
	}
}
