package riverkahn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// Retention says how long runs are kept that have ended.
type Retention struct {
	Workflow string              // whose runs; empty means all
	Statuses []machine.RunStatus // those in which the runs have ended; none means all
	For      time.Duration       // since their ends
}

// pruneArgs are the arguments of the periodic job that removes runs.
type pruneArgs struct{}

// Kind implements [river.JobArgs].
func (pruneArgs) Kind() string { return "kahn_prune" }

// pruneWorker works these jobs.
type pruneWorker struct {
	river.WorkerDefaults[pruneArgs]
	p *Performer
}

// Work removes the runs that have been kept for long enough. What its timeout leaves, the next job removes.
func (w *pruneWorker) Work(ctx context.Context, _ *river.Job[pruneArgs]) error {
	var errs []error
	for _, r := range w.p.Retention {
		errs = append(errs, w.prune(ctx, r))
	}
	return errors.Join(errs...)
}

func (w *pruneWorker) prune(ctx context.Context, r Retention) error {
	q := store.PruneQuery{EndedBefore: time.Now().Add(-r.For), Workflow: r.Workflow, Statuses: r.Statuses, Blobs: w.p.Blobs}
	for {
		if pruned, err := w.p.Store.Prune(ctx, q); err != nil || !pruned.More || pruned.Runs == 0 {
			return err
		}
	}
}

// checkRetention reports what is wrong with the Retention of a Performer.
func (p *Performer) checkRetention() error {
	for i, r := range p.Retention {
		if r.For <= 0 {
			return fmt.Errorf("%w: riverkahn: Retention %d keeps runs for %v, not for a time above 0", machine.ErrBadValue, i+1, r.For)
		}
		q := store.PruneQuery{EndedBefore: time.Now(), Statuses: r.Statuses}
		if err := q.Check(); err != nil {
			return fmt.Errorf("riverkahn: Retention %d: %w", i+1, err)
		}
	}
	return nil
}
