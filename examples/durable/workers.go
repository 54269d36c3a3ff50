package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// Settings of several processes that share one ledger.
const (
	workerRuns  = 4           // a performer performs at most this many runs at once
	workerTime  = time.Minute // a process that takes longer fails
	workerPause = 5 * time.Millisecond
	performer   = "performer" // the prefix of the names of processes that perform orders
	desk        = "desk"      // the prefix of the names of processes that approve and cancel orders
)

// work describes the orders that the processes perform together.
type work struct {
	orders  int
	pause   time.Duration // how long each step takes
	options []kahn.Option
}

// fewOrders describes the orders that the processes over SQLite perform.
var fewOrders = work{orders: 30}

func performerName(i int) string { return fmt.Sprintf("%s-%d", performer, i) }

// deskName returns the name of desk i. The name contains the number of desks.
func deskName(i, desks int) string { return fmt.Sprintf("%s-%d/%d", desk, i, desks) }

func workerOrder(i int) string { return fmt.Sprintf("order-%02d", i) }

// isCancelled reports whether the desk of order i cancels the order. If not, the desk approves it.
func isCancelled(i int) bool { return i%5 == 0 }

// serveWorker runs one of several processes that share a ledger. The name of the process determines whether the process
// performs orders or decides about them.
func serveWorker(ctx context.Context, out io.Writer, p place, name string) (err error) {
	db, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, workerTime)
	defer cancel()
	w := fewOrders
	if p.url != "" {
		w = manyOrders
	}
	if strings.HasPrefix(name, performer) {
		return perform(ctx, out, db, w, name)
	}
	return decide(ctx, db, w, name)
}

// The function `perform` performs orders until all orders in the ledger have ended.
func perform(ctx context.Context, out io.Writer, db ledger, w work, name string) error {
	s := &shop{ledger: db, life: name, pause: w.pause}
	runner := kahn.Runner{MaxRuns: workerRuns, Options: append(w.options, kahn.Lease(name, 0))}
	var lost atomic.Int64
	service := kahn.Service{Store: db, Workflows: []kahn.Workflow{{Graph: s.workflow()}}, OnError: func(run string, _ store.Queue, err error) {
		if run == "" || !errors.Is(err, kahn.ErrStore) {
			fmt.Fprintln(os.Stderr, "durable:", name, err)
			return
		}
		lost.Add(1)
		if err := db.note(ctx, name, run, ""); err != nil {
			fmt.Fprintln(os.Stderr, "durable:", name, err)
		}
	}}
	served := make(chan error, 1)
	go func() { served <- runner.Serve(ctx, service) }()
	_, err := awaitEnds(ctx, db, w.orders)
	err = errors.Join(err, runner.Shutdown(ctx), <-served)
	if n := lost.Load(); n > 0 {
		fmt.Fprintf(out, "%s has lost %d orders to others, since its leases had run out\n", name, n)
	}
	return err
}

// awaitEnds waits until at least the given number of orders have ended. It returns how many orders have each status.
func awaitEnds(ctx context.Context, db ledger, ends int) (counts map[kahn.RunStatus]int, err error) {
	ended := 0
	for {
		list, err := db.Count(ctx, store.Filter{})
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%d orders have not ended: %v", ends-ended, counts)
		}
		if err != nil {
			return nil, err
		}
		ended = 0
		counts = map[kahn.RunStatus]int{}
		for _, c := range list {
			if counts[c.Status] += c.Runs; c.Status.Terminal() {
				ended += c.Runs
			}
		}
		if ended >= ends {
			return counts, nil
		}
		select {
		case <-time.After(workerPause):
		case <-ctx.Done():
		}
	}
}

// decide posts a decision about each order of one desk. It does not matter whether a process performs the order at that moment.
func decide(ctx context.Context, db ledger, w work, name string) error {
	own, desks, _ := strings.Cut(strings.TrimPrefix(name, desk+"-"), "/")
	number, err1 := strconv.Atoi(own)
	all, err2 := strconv.Atoi(desks)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for i := range w.orders {
		if i%all != number {
			continue
		}
		q := store.Request{ID: "decision", Kind: store.KindCancel, Actor: name}
		if !isCancelled(i) {
			var err error
			if q, err = kahn.PrepareSignal("approve", kahn.Decision{Value: true, Actor: name, ID: "decision"}); err != nil {
				return err
			}
		}
		if _, err := db.Post(ctx, workerOrder(i), q); err != nil {
			return err
		}
		time.Sleep(2 * workerPause)
	}
	return nil
}

// shared is a writer that several goroutines share. Each goroutine copies the output of one process.
type shared struct {
	mu sync.Mutex
	to io.Writer
}

func (s *shared) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Write(text)
}

// crew starts, kills and awaits the processes that share one ledger.
type crew struct {
	ctx       context.Context
	place     place
	out       io.Writer
	processes map[string]*exec.Cmd // the processes that were neither killed nor awaited, by name
}

func newCrew(ctx context.Context, p place, to io.Writer) *crew {
	return &crew{ctx: ctx, place: p, out: &shared{to: to}, processes: map[string]*exec.Cmd{}}
}

// begin starts a process.
func (c *crew) begin(name string) error {
	process, err := c.place.process(c.ctx, name)
	if err != nil {
		return err
	}
	process.Stdout, process.Stderr = c.out, c.out
	if err := process.Start(); err != nil {
		return err
	}
	c.processes[name] = process
	return nil
}

// The method `kill` kills a process, and waits until it has ended.
func (c *crew) kill(name string) error {
	process := c.processes[name]
	delete(c.processes, name)
	if err := process.Process.Kill(); err != nil {
		return err
	}
	if process.Wait() == nil {
		return fmt.Errorf("%s was not killed", name)
	}
	return nil
}

// The method `wait` waits until all processes have ended by themselves.
func (c *crew) wait() error {
	for name, process := range c.processes {
		if err := process.Wait(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		delete(c.processes, name)
	}
	return nil
}

// end kills the remaining processes.
func (c *crew) end() (err error) {
	for name := range c.processes {
		err = errors.Join(err, c.kill(name))
	}
	return err
}

// runWorkers starts processes that share one file. When a third of the orders have ended, it kills the performer and starts another one. When all
// processes have ended, it checks the orders.
func runWorkers(to io.Writer, processes int) (err error) {
	dir, err := os.MkdirTemp("", "durable")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder that cannot be removed does no harm
	ctx, cancel := context.WithTimeout(context.Background(), workerTime)
	defer cancel()
	p := place{dir: dir}
	db, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := createOrders(ctx, db, fewOrders); err != nil {
		return err
	}
	c := newCrew(ctx, p, to)
	defer func() { err = errors.Join(err, c.end()) }()
	if err := c.begin(performerName(1)); err != nil {
		return err
	}
	for i := range processes - 1 {
		if err := c.begin(deskName(i, processes-1)); err != nil {
			return err
		}
	}
	counts, err := awaitEnds(ctx, db, fewOrders.orders/3)
	if err != nil {
		return err
	}
	if err := c.kill(performerName(1)); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "the performer is killed: %d orders are completed, %d cancelled\n", counts[kahn.RunCompleted], counts[kahn.RunCancelled])
	if err := c.begin(performerName(2)); err != nil {
		return err
	}
	if err := c.wait(); err != nil {
		return err
	}
	return judgeWorkers(ctx, c.out, db, fewOrders, workerRuns)
}

// createOrders creates the run of each order. At this time no process performs the runs.
func createOrders(ctx context.Context, db ledger, w work) error {
	s := &shop{ledger: db}
	for i := range w.orders {
		n, err := kahn.Prepare(s.workflow(), kahn.RunID(workerOrder(i)))
		if err == nil {
			_, _, err = db.Create(ctx, n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// judgeWorkers is called when all processes have ended. It compares the orders in the ledger with the expectation. The killed and stopped processes
// had at most `inFlight` orders in flight, so at most this many steps were called again. On a busy machine a process may also lose orders because its
// leases run out. Then one more step may have been called again for each lost order.
func judgeWorkers(ctx context.Context, out io.Writer, db ledger, w work, inFlight int) error {
	counts, err := awaitEnds(ctx, db, w.orders)
	if err != nil {
		return err
	}
	cancelled := 0
	for i := range w.orders {
		r, err := db.Load(ctx, workerOrder(i))
		if err != nil {
			return err
		}
		want := kahn.RunCompleted
		if isCancelled(i) {
			want, cancelled = kahn.RunCancelled, cancelled+1
		}
		if r.Status != want {
			return fmt.Errorf("%s is %v, not %v: %s", r.ID, r.Status, want, r.Record)
		}
	}
	repeated, err1 := db.column(ctx, repeatedSteps)
	twice, err2 := db.column(ctx, "SELECT paid_for FROM payments GROUP BY paid_for HAVING count(*) > 1")
	finished, err3 := db.column(ctx, "SELECT run FROM calls WHERE step = 'mail' GROUP BY run")
	lost, err4 := db.column(ctx, "SELECT run FROM calls WHERE step = ''")
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d orders: %d completed, %d cancelled; %d steps were called again, no order was paid twice\n",
		w.orders, counts[kahn.RunCompleted], counts[kahn.RunCancelled], len(repeated))
	switch {
	case counts[kahn.RunCompleted] != w.orders-cancelled || counts[kahn.RunCancelled] != cancelled:
		return fmt.Errorf("the counts do not add up: %v", counts)
	case len(finished) < w.orders-cancelled:
		return fmt.Errorf("%d orders have their mail", len(finished))
	case len(repeated) > inFlight+len(lost):
		return fmt.Errorf("more steps were called again than were running: %s", strings.Join(repeated, ", "))
	case len(twice) > 0:
		return fmt.Errorf("paid twice: %s", strings.Join(twice, ", "))
	}
	return nil
}
