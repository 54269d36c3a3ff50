package sse_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

const ms = time.Millisecond

func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// network is a network in memory, whose connections can stall and time out in fake time. Its pipes have no buffers: if the client does not read,
// the server blocks at once.
type network struct {
	conns chan net.Conn
	done  chan struct{}
	close sync.Once
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error   { n.close.Do(func() { close(n.done) }); return nil }
func (n *network) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func (n *network) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case n.conns <- server:
		return client, nil
	case <-n.done:
		return nil, errors.New("connection refused")
	}
}

// serve starts a server and returns its network and a client for it. serve closes the network and the client when the test ends, since their
// goroutines must end before the synctest bubble ends.
func serve(t *testing.T, server *http.Server) (*network, *http.Client) {
	t.Helper()
	n := &network{conns: make(chan net.Conn), done: make(chan struct{})}
	server.ErrorLog = log.New(io.Discard, "", 0)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(n); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	transport := &http.Transport{DialContext: n.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		<-ended
	})
	return n, &http.Client{Transport: transport}
}

// frame is a block of a stream as it was sent.
type frame struct{ id, event, data string }

// frames reads a stream line by line, without the parser under test, until the stream ends. It returns the error that ended the stream.
func frames(body io.Reader, take func(frame) bool) error {
	var f frame
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			f.id = value
		case "event":
			f.event = value
		case "data":
			f.data += value
		case "":
			if f != (frame{}) && !take(f) {
				return nil
			}
			f = frame{}
		}
	}
}

// ids reads the ids of a stream until it ends.
func ids(t testing.TB, body io.Reader) string {
	t.Helper()
	var got []string
	err := frames(body, func(f frame) bool {
		if f.id != "" {
			got = append(got, f.id)
		}
		return true
	})
	if err != io.EOF {
		t.Errorf("the stream ended with %v", err)
	}
	return strings.Join(got, " ")
}

func nothing(context.Context, *kahn.Step) (any, error) { return nil, nil }

func takes(d time.Duration) kahn.StepFunc {
	return func(_ context.Context, s *kahn.Step) (any, error) {
		select {
		case <-time.After(d):
		case <-s.Done():
		}
		return nil, s.Err()
	}
}

// chain returns a chain of n nodes. Its run has 3n + 2 events.
func chain(n int) *kahn.Graph {
	var g kahn.Graph
	for i := range n {
		node := kahn.Node{ID: fmt.Sprint("n", i)}
		if i > 0 {
			node.After = []string{fmt.Sprint("n", i-1)}
		}
		g.Add(node)
	}
	return &g
}

// start starts a run. At the end of the test it checks the run's events against the rules for every run, even if the run's log keeps only some of
// them. By then the run must have ended, or have been left.
func start(t testing.TB, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) *kahn.Run {
	t.Helper()
	var rec kahntest.Recorder
	run, err := kahn.Start(context.WithoutCancel(t.Context()), g, step, append(opts, kahn.OnEvent(rec.Add))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-run.Done():
		default:
			t.Error("the test has left a run behind")
			return
		}
		res, _ := run.Wait()
		if err := kahntest.CheckEvents(g, res, rec.Events()); err != nil {
			t.Errorf("the events of the run: %v", err)
		}
	})
	return run
}

// finished returns a run that has ended.
func finished(t testing.TB, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) *kahn.Run {
	t.Helper()
	run := start(t, g, step, opts...)
	_, _ = run.Wait()
	return run
}
