package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/sse"
)

// The function `streams` measures what it costs to send the events of a run to many clients: the processor time of the serving process, in user mode
// and in the kernel. The clients are in another process, and discard the events. The run is a chain whose steps wait.
func streams(out io.Writer, quick bool) error {
	const nodes, wait = 200, 10 * time.Millisecond
	counts := []int{0, 1, 50, 200}
	if quick {
		counts = counts[:2]
	}
	t := table{header: []string{"clients", "run ms", "events sent", "user ms", "kernel ms", "more user ms", "user us an event sent"}}
	var alone time.Duration
	for i, clients := range counts {
		r, err := stream(clients, nodes, wait)
		if err != nil {
			return err
		}
		if i == 0 {
			alone = r.user
		}
		more, each := "-", "-"
		if clients > 0 {
			more, each = short(float64(r.user-alone)/1e6), short(float64(r.user-alone)/1e3/float64(r.sent))
		}
		t.add(fmt.Sprint(clients), short(float64(r.took)/1e6), thousands(r.sent), short(float64(r.user)/1e6), short(float64(r.kernel)/1e6), more, each)
	}
	fmt.Fprintf(out, "### streams of a run of %d nodes that wait %v each, by number of clients\n\n", nodes, wait)
	t.print(out)
	return nil
}

type streaming struct {
	took, user, kernel time.Duration
	sent               int
}

// The function `stream` performs a run while the given number of clients read its events.
func stream(clients, nodes int, wait time.Duration) (r streaming, err error) {
	begin := make(chan struct{})
	run, err := kahn.Start(context.Background(), kahnGraph(chain(nodes), false), func(ctx context.Context, s *kahn.Step) (any, error) {
		<-begin
		time.Sleep(wait)
		return nil, nil
	})
	if err != nil {
		return r, err
	}
	var connected sync.WaitGroup
	connected.Add(clients)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return r, err
	}
	server := &http.Server{Handler: &sse.Handler{Authorize: func(*http.Request) error { connected.Done(); return nil }, Find: sse.Fixed(run)}, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	var child *exec.Cmd
	if clients > 0 {
		self, err := os.Executable()
		if err != nil {
			return r, err
		}
		child = exec.Command(self)
		child.Env = append(os.Environ(), drainURL+"=http://"+listener.Addr().String(), drainClients+"="+strconv.Itoa(clients))
		child.Stderr = os.Stderr
		if err := child.Start(); err != nil {
			return r, err
		}
		connected.Wait()
	}
	user, kernel, err := processTimes()
	if err != nil {
		return r, err
	}
	began := time.Now()
	close(begin)
	if _, err := run.Wait(); err != nil {
		return r, err
	}
	if child != nil { // the clients' process ends when all clients have read all events
		if err := child.Wait(); err != nil {
			return r, fmt.Errorf("the clients: %w", err)
		}
	}
	r.took = time.Since(began)
	u, k, err := processTimes()
	r.user, r.kernel = u-user, k-kernel
	_, last := run.EventRange()
	r.sent = int(last) * clients
	if e := errors.Join(err, server.Close()); e != nil {
		return r, e
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return r, err
	}
	return r, nil
}

// processTimes returns the processor time that this process has used, in user mode and in the kernel.
func processTimes() (user, kernel time.Duration, err error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0, err
	}
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano()), nil
}

// The environment variables by which the clients' process gets its task.
const (
	drainURL     = "KAHN_BENCH_DRAIN_URL"
	drainClients = "KAHN_BENCH_DRAIN_CLIENTS"
)

// The function `drain` does the work of the clients' process.
func drain(url, clients string) error {
	n, err := strconv.Atoi(clients)
	if err != nil {
		return err
	}
	failed := make(chan error, n)
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: n}}
	for range n {
		go func() {
			res, err := client.Get(url)
			if err == nil {
				_, err = io.Copy(io.Discard, res.Body)
				err = errors.Join(err, res.Body.Close())
			}
			failed <- err
		}()
	}
	for range n {
		err = errors.Join(err, <-failed)
	}
	return err
}
