package riverkahn

import (
	"context"

	"github.com/riverqueue/river"

	"github.com/seed-c794f7ef/kahn/store"
)

// Retention says how long runs that have ended are kept.
type Retention = store.Retention

// pruneArgs are the arguments of the periodic job that removes runs.
type pruneArgs struct{}

// Kind implements [river.JobArgs].
func (pruneArgs) Kind() string { return "kahn_prune" }

// pruneWorker works the jobs that remove runs.
type pruneWorker struct {
	river.WorkerDefaults[pruneArgs]
	p *Performer
}

// Work removes the runs that ended longer ago than Performer.Retention allows. If Work exceeds the timeout of its job, the next job
// removes the remaining runs.
func (w *pruneWorker) Work(ctx context.Context, _ *river.Job[pruneArgs]) error {
	return store.Retain(ctx, w.p.Store, w.p.Retention, w.p.Blobs)
}
