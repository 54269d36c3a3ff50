package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// What several processes do with one file.
const (
	workerOrders = 30
	workerRuns   = 4           // that the performer has at work at once
	workerTime   = time.Minute // after which something is wrong
	workerPause  = 5 * time.Millisecond
	performer    = "performer" // begins the names of processes that perform the orders
	desk         = "desk"      // begins the names of those that approve and cancel orders
)

func workerOrder(i int) string { return fmt.Sprintf("order-%02d", i) }

// isCancelled tells which orders a desk cancels; it approves the others.
func isCancelled(i int) bool { return i%5 == 0 }

// work is one of several processes over one file. Its name says what it does.
func work(ctx context.Context, dir, name string) (err error) {
	db, err := sqlite.Open(filepath.Join(dir, fileName), sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, workerTime)
	defer cancel()
	if strings.HasPrefix(name, performer) {
		return perform(ctx, db, name)
	}
	return decide(ctx, db, name)
}

// perform serves the orders until none is left.
func perform(ctx context.Context, db *sqlite.Store, name string) error {
	s := &shop{store: db, life: name}
	runner := kahn.Runner{MaxRuns: workerRuns}
	served := make(chan error, 1)
	go func() {
		served <- runner.Serve(ctx, kahn.Service{Store: db, Workflows: []kahn.Workflow{{Graph: s.workflow()}}})
	}()
	_, err := awaitEnds(ctx, db, workerOrders)
	return errors.Join(err, runner.Shutdown(ctx), <-served)
}

// awaitEnds waits until so many orders have ended, and counts the orders by status.
func awaitEnds(ctx context.Context, db *sqlite.Store, ends int) (counts map[kahn.RunStatus]int, err error) {
	for {
		list, err := db.Count(ctx, store.Filter{})
		if err != nil {
			return nil, err
		}
		ended := 0
		counts = map[kahn.RunStatus]int{}
		for _, c := range list {
			if counts[c.Status] += c.Runs; c.Status.Terminal() {
				ended += c.Runs
			}
		}
		if ended >= ends {
			return counts, nil
		}
		time.Sleep(workerPause)
	}
}

// decide posts a decision about each order of a desk, whether or not a process performs the order at that moment.
func decide(ctx context.Context, db *sqlite.Store, name string) error {
	own, desks, _ := strings.Cut(strings.TrimPrefix(name, desk+"-"), "/")
	number, err1 := strconv.Atoi(own)
	all, err2 := strconv.Atoi(desks)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for i := range workerOrders {
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

// shared is a writer of several goroutines: what each process writes is copied by one.
type shared struct {
	mu sync.Mutex
	to io.Writer
}

func (s *shared) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Write(text)
}

// runWorkers starts the processes over one file, kills the performer in the middle, and judges what they have left.
func runWorkers(to io.Writer, processes int) (err error) {
	out := &shared{to: to}
	dir, err := os.MkdirTemp("", "durable")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder that cannot be removed does no harm
	db, err := sqlite.Open(filepath.Join(dir, fileName), sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := createOrders(db); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), workerTime)
	defer cancel()
	begin := func(name string) (*exec.Cmd, error) {
		own, err := os.Executable()
		if err != nil {
			return nil, err
		}
		process := exec.CommandContext(ctx, own)
		process.Env = append(os.Environ(), dirVariable+"="+dir, lifeVariable+"="+name)
		process.Stdout, process.Stderr = out, out
		return process, process.Start()
	}
	first, err := begin(performer + "-1")
	if err != nil {
		return err
	}
	var rest []*exec.Cmd
	for i := range processes - 1 {
		p, err := begin(fmt.Sprintf("%s-%d/%d", desk, i, processes-1))
		if err != nil {
			return err
		}
		rest = append(rest, p)
	}
	counts, err := awaitEnds(ctx, db, workerOrders/3)
	if err != nil {
		return err
	}
	if err := first.Process.Kill(); err != nil {
		return err
	}
	if first.Wait() == nil {
		return errors.New("the first performer was not killed")
	}
	fmt.Fprintf(out, "the performer is killed: %d orders are completed, %d cancelled\n", counts[kahn.RunCompleted], counts[kahn.RunCancelled])
	second, err := begin(performer + "-2")
	if err != nil {
		return err
	}
	for _, p := range append(rest, second) {
		if err := p.Wait(); err != nil {
			return err
		}
	}
	return judgeWorkers(ctx, out, db)
}

// createOrders makes the tables, and the runs that nobody performs yet.
func createOrders(db *sqlite.Store) error {
	if _, err := db.DB().Exec(tables); err != nil {
		return err
	}
	s := &shop{store: db}
	for i := range workerOrders {
		n, err := kahn.Prepare(s.workflow(), kahn.RunID(workerOrder(i)))
		if err == nil {
			_, _, err = db.Create(context.Background(), n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// judgeWorkers compares what the processes have left with what has to be.
func judgeWorkers(ctx context.Context, out io.Writer, db *sqlite.Store) error {
	counts, err := awaitEnds(ctx, db, workerOrders)
	if err != nil {
		return err
	}
	cancelled := 0
	for i := range workerOrders {
		r, err := db.Load(ctx, workerOrder(i))
		if err != nil {
			return err
		}
		want := kahn.RunCompleted
		if isCancelled(i) {
			want, cancelled = kahn.RunCancelled, cancelled+1
		}
		if r.Status != want {
			return fmt.Errorf("%s is %v, not %v", r.ID, r.Status, want)
		}
	}
	repeated, err1 := column(db, "SELECT run || ' ' || step FROM calls GROUP BY run, step HAVING count(*) > 1 ORDER BY 1")
	twice, err2 := column(db, "SELECT paid_for FROM payments GROUP BY paid_for HAVING count(*) > 1")
	finished, err3 := column(db, "SELECT run FROM calls WHERE step = 'mail' GROUP BY run")
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d orders: %d completed, %d cancelled; %d steps were called again, no order was paid twice\n",
		workerOrders, counts[kahn.RunCompleted], counts[kahn.RunCancelled], len(repeated))
	switch {
	case counts[kahn.RunCompleted] != workerOrders-cancelled || counts[kahn.RunCancelled] != cancelled:
		return fmt.Errorf("the counts do not add up: %v", counts)
	case len(finished) < workerOrders-cancelled:
		return fmt.Errorf("%d orders have their mail", len(finished))
	case len(repeated) > workerRuns:
		return fmt.Errorf("more steps were called again than were under way: %s", strings.Join(repeated, ", "))
	case len(twice) > 0:
		return fmt.Errorf("paid twice: %s", strings.Join(twice, ", "))
	}
	return nil
}
