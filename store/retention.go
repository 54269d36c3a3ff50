package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
)

// Retention says how long runs are kept after their ends. For is at least 1 ms.
type Retention struct {
	Workflow string              // the workflow of the runs; empty means all workflows
	Statuses []machine.RunStatus // the terminal statuses of the runs; none means all terminal statuses
	For      time.Duration       // how long the runs are kept after their ends
}

// CheckRetention returns an error that matches [machine.ErrBadValue] if a Retention makes no sense.
func CheckRetention(list []Retention) error {
	for i, r := range list {
		if r.For <= 0 {
			return fmt.Errorf("%w: Retention %d keeps runs for %v, which is not longer than 0", machine.ErrBadValue, i+1, r.For)
		}
		if r.For < time.Millisecond {
			return fmt.Errorf("%w: Retention %d keeps runs for %v: is its unit missing?", machine.ErrBadValue, i+1, r.For)
		}
		q := PruneQuery{EndedBefore: time.Now(), Statuses: r.Statuses}
		if err := q.Check(); err != nil {
			return fmt.Errorf("Retention %d: %w", i+1, err)
		}
	}
	return nil
}

// Retain removes each run that ended longer ago than a Retention of the list says, and the events of the run. Unless blobs is nil, Retain also
// removes the blobs to which no run refers any more. It removes runs in batches of 100. After each batch it pauses for as long as the batch took,
// so that other statements can run. If ctx ends before all these runs are removed, the next call removes the remaining runs.
func Retain(ctx context.Context, in Admin, list []Retention, blobs BlobSweeper) error {
	var errs []error
	for _, r := range list {
		errs = append(errs, r.retain(ctx, in, blobs))
	}
	return errors.Join(errs...)
}

func (r *Retention) retain(ctx context.Context, in Admin, blobs BlobSweeper) error {
	q := PruneQuery{EndedBefore: time.Now().Add(-r.For), Workflow: r.Workflow, Statuses: r.Statuses, Blobs: blobs}
	for {
		begun := time.Now()
		pruned, err := in.Prune(ctx, q)
		if err != nil || !pruned.More || pruned.Runs == 0 {
			return err
		}
		rest := time.NewTimer(time.Since(begun))
		select {
		case <-rest.C:
		case <-ctx.Done():
			rest.Stop()
			return context.Cause(ctx)
		}
	}
}
