package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// ledger is the database of the shop. It contains the runs, and the shop's own tables.
type ledger interface {
	store.Inbox
	store.QueueStore
	// The method `note` records that a process calls a step of a run. If the parameter `step` is "", `note` records that the process has lost the run to
	// another process.
	note(ctx context.Context, life, run, step string) error
	// pay makes the payment for the run of a step, and stores the number of the payment in the same transaction. If the run already has a payment,
	// pay returns the number of this payment.
	pay(ctx context.Context, step *kahn.Step) (int64, error)
	// column returns the first column of the rows that a query returns.
	column(ctx context.Context, query string) ([]string, error)
	Close() error
}

// tables creates the shop's own tables. The database generates the payment numbers; %s is their type.
const tables = "CREATE TABLE IF NOT EXISTS calls (life TEXT, run TEXT, step TEXT); CREATE TABLE IF NOT EXISTS payments (number %s PRIMARY KEY, paid_for TEXT)"

var orders = []string{"order-1", "order-2", "order-3", "order-4"}

// shop serves orders in one process.
type shop struct {
	ledger ledger
	life   string
	pause  time.Duration // how long each step takes
	doom   *doom         // nil except in the process that kills itself
}

// doom kills the first process when all events that the WaitGroup counts have happened.
type doom struct {
	sync.WaitGroup
	out io.Writer
}

// await reports one event to the WaitGroup. It never returns, so the step that calls it is still running when the process is killed.
func (d *doom) await() {
	d.Done()
	select {}
}

// The method `strike` waits for all events. Then it kills the process without warning, like a fault of the machine.
func (d *doom) strike() error {
	d.Wait()
	fmt.Fprintln(d.out, "process 1 is killed: order-1 has ended, order-2 is being shipped, order-3 waits for approval, order-4 has been paid a moment ago")
	own, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	if err := own.Kill(); err != nil {
		return err
	}
	select {}
}

// workflow returns the graph of an order.
func (s *shop) workflow() *kahn.Graph {
	return (&kahn.Graph{Name: "order"}).Add(
		kahn.Node{ID: "reserve", Do: s.step(nil)},
		kahn.Node{ID: "pay", Do: s.step(s.pay), After: []string{"reserve"}},
		kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"pay"}},
		kahn.Node{ID: "ship", Do: s.step(s.ship), After: []string{"approve"}},
		kahn.Node{ID: "mail", Do: s.step(nil), After: []string{"ship"}},
	)
}

// The method `step` returns a step function. This function first records its call in the ledger, then waits for s.pause, and then calls f if f is not
// nil.
func (s *shop) step(f kahn.StepFunc) kahn.StepFunc {
	return func(ctx context.Context, step *kahn.Step) (any, error) {
		if err := s.ledger.note(ctx, s.life, step.RunID(), step.ID()); err != nil {
			return nil, err
		}
		select {
		case <-time.After(s.pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if f == nil {
			return step.ID() + " done", nil
		}
		return f(ctx, step)
	}
}

func (s *shop) pay(ctx context.Context, step *kahn.Step) (any, error) {
	number, err := s.ledger.pay(ctx, step)
	if err == nil && s.doom != nil && step.RunID() == "order-4" {
		s.doom.await()
	}
	return number, err
}

func (s *shop) ship(_ context.Context, step *kahn.Step) (any, error) {
	if s.doom != nil && step.RunID() == "order-2" {
		s.doom.await()
	}
	return "shipped", nil
}

// unfinished returns the sorted ids of the orders that have not ended.
func unfinished(ctx context.Context, db ledger) (ids []string, err error) {
	page, err := db.List(ctx, store.Query{Filter: store.Filter{Prefix: "order-", Statuses: []kahn.RunStatus{kahn.RunPending, kahn.RunRunning, kahn.RunSuspended}}})
	for _, r := range page.Runs {
		ids = append(ids, r.ID)
	}
	slices.Sort(ids)
	return ids, err
}

// serve runs one process. It continues the orders that have not ended. If the ledger has no such orders, serve starts all orders.
func serve(ctx context.Context, out io.Writer, p place, life string) (err error) {
	db, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s := &shop{ledger: db, life: life}
	open, err := unfinished(ctx, db)
	if err != nil {
		return err
	}
	if len(open) == 0 {
		open = orders
		s.doom = &doom{out: out}
		s.doom.Add(4)
		fmt.Fprintf(out, "process %s serves %s\n", life, strings.Join(open, ", "))
	} else {
		fmt.Fprintf(out, "process %s continues %s\n", life, strings.Join(open, ", "))
	}
	runs := map[string]*kahn.Run{}
	for _, id := range open {
		opts := []kahn.Option{kahn.RunID(id), kahn.Durable(db)}
		// The first process approves all orders except order-3. The second process approves order-3, and finds the other approvals in the ledger.
		if (id == "order-3") == (s.doom == nil) {
			opts = append(opts, kahn.EarlySignals(map[string]any{"approve": true}))
		}
		if runs[id], err = kahn.Start(ctx, s.workflow(), nil, opts...); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	if s.doom != nil {
		return s.perish(runs)
	}
	for _, id := range open {
		if _, err := runs[id].Wait(); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

// perish waits until order-1 has ended, order-3 is suspended and two steps have called doom.await, and then kills the process.
func (s *shop) perish(runs map[string]*kahn.Run) error {
	if _, err := runs["order-1"].Wait(); err != nil {
		return err
	}
	s.doom.Done()
	for runs["order-3"].Status() != kahn.RunSuspended {
		time.Sleep(time.Millisecond)
	}
	s.doom.Done()
	return s.doom.strike()
}

// repeatedSteps is a query. It returns the steps that were called more than once.
const repeatedSteps = "SELECT run || ' ' || step FROM calls WHERE step <> '' GROUP BY run, step HAVING count(*) > 1 ORDER BY 1"

// judge prints the repeated steps, and how many steps were not repeated. It returns an error if the steps, the payments or the orders are not as
// expected.
func judge(ctx context.Context, out io.Writer, p place) (err error) {
	db, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	repeated, err1 := db.column(ctx, repeatedSteps)
	single, err2 := db.column(ctx, "SELECT run || ' ' || step FROM calls GROUP BY run, step HAVING count(*) = 1 ORDER BY 1")
	paid, err3 := db.column(ctx, "SELECT paid_for FROM payments ORDER BY 1")
	ended, err4 := db.column(ctx, "SELECT id FROM kahn_runs WHERE status = 'completed' ORDER BY 1")
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	fmt.Fprintf(out, "repeated: %s; their attempts were running\n", strings.Join(repeated, ", "))
	fmt.Fprintf(out, "not repeated: %d steps\n", len(single))
	fmt.Fprintf(out, "paid: %d orders, each once\n", len(paid))
	all := strings.Join(orders, ", ")
	switch {
	case strings.Join(repeated, ", ") != "order-2 ship, order-4 pay":
		return errors.New("the repeated steps are not the steps that were running")
	case len(single) != 4*len(orders)-2:
		return fmt.Errorf("%d steps were called once, expected %d", len(single), 4*len(orders)-2)
	case strings.Join(paid, ", ") != all:
		return fmt.Errorf("payments for %s", strings.Join(paid, ", "))
	case strings.Join(ended, ", ") != all:
		return fmt.Errorf("only these have ended: %s", strings.Join(ended, ", "))
	}
	return nil
}
