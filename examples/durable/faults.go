package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store/postgres/audit"
)

// manyOrders describes the orders that the processes over PostgreSQL perform.
var manyOrders = work{orders: 100, pause: 20 * time.Millisecond, options: []kahn.Option{kahn.Lease("", time.Second)}}

// runPostgres starts processes that perform orders in a new schema, and removes the schema afterwards. It stops one process until the leases of
// this process have run out, and kills another process.
func runPostgres(to io.Writer, url string, workers int) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), workerTime)
	defer cancel()
	p := place{url: url, schema: fmt.Sprintf("kahn_durable_%d", os.Getpid())}
	db, err := openDatabase(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	defer func() {
		_, dropped := db.Pool().Exec(context.WithoutCancel(ctx), "DROP SCHEMA "+p.schema+" CASCADE")
		err = errors.Join(err, dropped)
	}()
	if _, err := db.Pool().Exec(ctx, fmt.Sprintf(tables, "bigint GENERATED ALWAYS AS IDENTITY"), pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	if err := audit.Begin(ctx, db.Pool(), p.schema); err != nil {
		return err
	}
	if err := createOrders(ctx, db, manyOrders); err != nil {
		return err
	}
	c := newCrew(ctx, p, to)
	inFlight, err := c.share(db, workers)
	if err := errors.Join(err, c.end()); err != nil {
		return err
	}
	if err := judgeWorkers(ctx, c.out, db, manyOrders, inFlight); err != nil {
		return err
	}
	return judgeAudit(ctx, c.out, db, p.schema)
}

// share starts the processes that perform the orders. It stops one process, kills another, and returns how many orders these two had in flight.
func (c *crew) share(db database, workers int) (inFlight int, err error) {
	for i := range workers {
		if err := c.begin(performerName(i + 1)); err != nil {
			return 0, err
		}
	}
	if err := c.begin(deskName(0, 1)); err != nil {
		return 0, err
	}
	if _, err := awaitEnds(c.ctx, db, manyOrders.orders/3); err != nil {
		return 0, err
	}
	stopped, killed := performerName(1), performerName(2)
	ofStopped, err := c.stop(db, stopped)
	if err != nil {
		return 0, err
	}
	ofKilled, err := c.stop(db, killed)
	if err != nil {
		return 0, err
	}
	if err := c.kill(killed); err != nil {
		return 0, err
	}
	fmt.Fprintf(c.out, "%s is stopped with %d orders in flight, and %s is killed with %d\n", stopped, ofStopped, killed, ofKilled)
	if _, err := awaitEnds(c.ctx, db, manyOrders.orders); err != nil {
		return 0, err
	}
	fmt.Fprintf(c.out, "the others have ended all orders; %s continues\n", stopped)
	if err := resume(c.processes[stopped].Process); err != nil {
		return 0, err
	}
	return ofStopped + ofKilled, c.wait()
}

// The method `stop` stops a process at a moment when the process has orders in flight. It returns the number of these orders.
func (c *crew) stop(db database, name string) (orders int, err error) {
	process := c.processes[name].Process
	for {
		if err := pause(process); err != nil {
			return 0, err
		}
		held, err := db.column(c.ctx, "SELECT id FROM runs WHERE owner = '"+name+"' AND status = 'running'")
		if err != nil || len(held) > 0 {
			return len(held), err
		}
		if err := resume(process); err != nil {
			return 0, err
		}
		select {
		case <-time.After(workerPause):
		case <-c.ctx.Done():
			return 0, fmt.Errorf("%s has no orders in flight: %w", name, c.ctx.Err())
		}
	}
}

// judgeAudit compares the server's record of all writes with the stored data.
func judgeAudit(ctx context.Context, out io.Writer, db database, schema string) error {
	report, err := audit.Read(ctx, db.Pool(), schema)
	if err != nil {
		return err
	}
	calls, err := db.column(ctx, "SELECT step FROM calls WHERE step <> ''")
	if err != nil {
		return err
	}
	nodes := 0
	for i := range manyOrders.orders {
		r, err := db.Load(ctx, workerOrder(i))
		if err != nil {
			return err
		}
		for _, n := range r.Nodes {
			if n.State.Attempt > 0 && n.State.Completed {
				nodes++
			}
		}
	}
	fmt.Fprintf(out, "%d nodes, recorded as ended %d times; %d calls; recorded twice: %d\n", nodes, report.Completions, len(calls), len(report.Faults))
	if report.Completions != nodes || len(report.Faults) > 0 {
		return fmt.Errorf("what was recorded does not add up: %v", report.Faults)
	}
	return nil
}
