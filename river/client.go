package riverkahn

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
)

// Client creates and wakes runs, which processes with a [Performer] perform. The store and River must be in the same database. The River client
// need not have Workers. If it has Workers, it needs the workers of [Performer.Register], or [river.Config].SkipUnknownJobCheck.
type Client struct {
	Store *postgres.Store
	River *river.Client[pgx.Tx]
}

// CreateOptions are the options of [Client.Create].
type CreateOptions struct {
	// Priority is the priority of the run's jobs, from 1 to 4. Jobs with priority 1, River's default, come first. If Priority is 0, the run's own
	// priority decides, see [kahn.RunPriority]: a run priority of 0 means priority 1 in River, and -1 to -3 mean 2 to 4. Unless both are 0, the
	// run's label [PriorityLabel] contains the priority of its jobs.
	Priority int
}

// Create stores a run and its job in one transaction. See [postgres.Store.Create] for the use of n and for the errors. If the run exists already, it
// gets no new job. The job is scheduled for n.NotBefore.
func (c Client) Create(ctx context.Context, n store.NewRun, o CreateOptions) (stored *store.Run, created bool, err error) {
	err = pgx.BeginFunc(ctx, c.Store.Pool(), func(tx pgx.Tx) error {
		stored, created, err = c.CreateTx(ctx, tx, n, o)
		return err
	})
	if err != nil {
		return nil, false, err // nothing was created, even if only the commit failed
	}
	return stored, created, nil
}

// CreateTx does the same as Create, but in the program's own transaction: the run and its job exist once the transaction is committed.
func (c Client) CreateTx(ctx context.Context, tx pgx.Tx, n store.NewRun, o CreateOptions) (stored *store.Run, created bool, err error) {
	switch {
	case n.Key != "":
		return nil, false, fmt.Errorf("%w: run %q has the key %q: River does not order jobs by key: leave out RunKey, or perform the run under Runner.Serve", machine.ErrBadValue, n.ID, n.Key)
	case n.Priority != 0 && o.Priority != 0:
		return nil, false, fmt.Errorf("%w: run %q has the RunPriority %d, and its jobs the Priority %d: give one of them", machine.ErrBadValue, n.ID, n.Priority, o.Priority)
	case n.Priority > 0 || n.Priority <= -maxPriority:
		return nil, false, fmt.Errorf("%w: run %q has the RunPriority %d: under River it must be from 0, which comes first, down to %d", machine.ErrBadValue, n.ID, n.Priority, 1-maxPriority)
	case n.Priority < 0:
		o.Priority = 1 - n.Priority
	}
	switch {
	case o.Priority < 0 || o.Priority > maxPriority:
		return nil, false, fmt.Errorf("%w: Priority %d: it must be from 1 to %d, or 0 for River's default", machine.ErrBadValue, o.Priority, maxPriority)
	case o.Priority > 0:
		n.Labels = maps.Clone(n.Labels)
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[PriorityLabel] = strconv.Itoa(o.Priority)
	}
	stored, created, err = c.Store.CreateTx(ctx, tx, n)
	if err == nil && created {
		err = c.enqueue(ctx, tx, stored, stored.WakeAt)
	}
	if err != nil {
		return nil, false, err
	}
	return stored, created, nil
}

// Adopt makes a run continue with another version of its graph. It also moves the run's job into the queue of that version, since there may be no
// process that serves the old queue. Options and errors are as for [kahn.Adopt]. A running job notices the change by itself. The program may die
// before it has moved the job, or a program without River may adopt the run. Then a process that looks for runs without a job moves the job when the
// run is due.
func (c Client) Adopt(ctx context.Context, g *kahn.Graph, run string, opts ...kahn.Option) (*kahn.Adoption, error) {
	a, err := kahn.Adopt(ctx, g, c.Store, run, opts...)
	if err != nil {
		return nil, err
	}
	err = pgx.BeginFunc(ctx, c.Store.Pool(), func(tx pgx.Tx) error { return c.goOn(ctx, tx, run) })
	if err != nil {
		return a, fmt.Errorf("the run is adopted, but its job is still in the former queue: %w", err)
	}
	return a, nil
}

// goOn inserts the job of a run that continues without a signal. The job begins at the time when the run continues. For other runs goOn does
// nothing. If the run was left while it was running, or was adopted, it continues at once, even if its nodes wait.
func (c Client) goOn(ctx context.Context, tx pgx.Tx, run string) error {
	r, err := c.Store.HeadTx(ctx, tx, run)
	if err != nil || !goesOn(r) {
		return err
	}
	at := r.WakeAt
	if r.Status == machine.RunRunning {
		at = r.Created
	}
	return c.enqueue(ctx, tx, r, at)
}

// Wake makes a waiting run continue: it inserts the job of the run, or makes a scheduled job of the run begin at once. It does nothing if the run's
// job is running, or if the run has ended and no redrive waits. The error matches [store.ErrUnknownRun] if the run is not stored.
func (c Client) Wake(ctx context.Context, run string) error {
	return pgx.BeginFunc(ctx, c.Store.Pool(), func(tx pgx.Tx) error { return c.WakeTx(ctx, tx, run) })
}

// WakeTx does the same as Wake, but in the program's own transaction.
func (c Client) WakeTx(ctx context.Context, tx pgx.Tx, run string) error {
	r, err := c.Store.HeadTx(ctx, tx, run)
	if err != nil || r.Status.Terminal() && !goesOn(r) {
		return err
	}
	return c.enqueue(ctx, tx, r, r.Created)
}
