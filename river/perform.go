package riverkahn

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

const (
	// leasedPause is how long a job pauses before its next try if another process performs its run, or if the store fails.
	leasedPause = 2 * time.Second
	// giveBackTimeout is how long the transaction of giveBack may take. If it takes longer, the job fails, and River retries the job. The
	// transaction that posts the reply of a step has the same timeout.
	giveBackTimeout = 15 * time.Second
	// schedulerInterval is how often River looks for due jobs. During a shorter wait, a run keeps its job.
	schedulerInterval = 5 * time.Second
)

// runWorker works the jobs that perform runs.
type runWorker struct {
	river.WorkerDefaults[RunArgs]
	p *Performer
}

// Timeout returns -1, which means no timeout: the run has its own timeouts. River's rescuer leaves jobs without a timeout alone.
func (*runWorker) Timeout(*river.Job[RunArgs]) time.Duration { return -1 }

// Work performs a run until the run ends, is left, or has to wait for more than 5 s. Then Work completes the job with giveBack. The job succeeds even
// if the run fails.
func (w *runWorker) Work(ctx context.Context, job *river.Job[RunArgs]) error {
	switch err := w.perform(ctx, job); {
	case err == nil, errors.Is(err, kahn.ErrFinished), errors.Is(err, kahn.ErrNotDue):
		return w.giveBack(ctx, job)
	case errors.Is(err, kahn.ErrGraphChanged):
		moved, failed := w.moved(ctx, job)
		if failed != nil || !moved {
			return errors.Join(err, failed)
		}
		return w.giveBack(ctx, job)
	case errors.Is(err, store.ErrLeased), errors.Is(err, kahn.ErrStore):
		return river.JobSnooze(leasedPause)
	default:
		return err
	}
}

// perform performs a run in this process. It returns an error if the run cannot begin, and kahn.ErrStore if the store fails. It returns
// kahn.ErrUndecoded if the run rests with a request that cannot be read: this request keeps the run due. River then reports the error. It
// retries the job after a pause, or when another request is posted.
func (w *runWorker) perform(ctx context.Context, job *river.Job[RunArgs]) error {
	flow := w.p.byQueue[job.Queue]
	if flow == nil {
		return kahn.ErrGraphChanged // the process has no Workflow for the queue that the job is in
	}
	var work workMeter
	runner := kahn.Runner{Options: slices.Concat(flow.Options, []kahn.Option{kahn.RunID(job.Args.Run), kahn.Durable(w.p.Store), kahn.Use(work.measure)})}
	// The run gets a context that does not end with ctx. Otherwise the end of ctx would interrupt the run's steps.
	run, err := runner.Start(context.WithoutCancel(ctx), flow.Graph, flow.Step)
	if err != nil {
		return err
	}
	w.p.enter(run)
	defer w.p.leave(run)
	for ctx.Err() == nil && !w.rests(ctx, &runner, run, &work) {
	}
	switch {
	case ctx.Err() == nil:
		run.Leave()
	case errors.Is(context.Cause(ctx), river.ErrJobCancelledRemotely):
		if err := run.Cancel(kahn.Request{Reason: "its job was cancelled"}); err != nil {
			return err
		}
	default:
		_ = runner.Shutdown(ctx) // returns an error only if ctx ends
	}
	if _, err := run.Wait(); errors.Is(err, kahn.ErrStore) || errors.Is(err, kahn.ErrUndecoded) {
		return err
	}
	return nil
}

// The method `rests` reports whether the run has ended, or has nothing to do for longer than River needs to begin a due job. If neither is true yet,
// it first waits, for about half a schedulerInterval at most.
func (w *runWorker) rests(ctx context.Context, runner *kahn.Runner, run *kahn.Run, work *workMeter) bool {
	calls := work.calls.Load()
	round, cancel := context.WithTimeout(ctx, schedulerInterval/2)
	defer cancel()
	for change := range runner.Watch(round) {
		if change.Status.Terminal() || change.Status == kahn.RunSuspended && !restsBriefly(run) {
			return true
		}
	}
	if ctx.Err() != nil || work.atWork.Load() > 0 || work.calls.Load() != calls {
		return false
	}
	stored, err := w.p.Store.Head(ctx, run.ID())
	return err == nil && stored.WakeAt.After(time.Now().Add(schedulerInterval)) // a node backs off, or a loop pauses, for more than 5 s
}

// workMeter counts the calls of a run's steps: atWork counts the running calls, and calls counts all calls so far.
type workMeter struct{ atWork, calls atomic.Int64 }

func (m *workMeter) measure(next kahn.StepFunc) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		m.calls.Add(1)
		m.atWork.Add(1)
		defer m.atWork.Add(-1)
		return next(ctx, s)
	}
}

// restsBriefly reports whether the deadline of one of the run's waits passes before River would notice a due job.
func restsBriefly(run *kahn.Run) bool {
	soon := time.Now().Add(schedulerInterval)
	return slices.ContainsFunc(run.Waiting(), func(w kahn.Wait) bool { return !w.Deadline.IsZero() && w.Deadline.Before(soon) })
}

// The method `moved` reports whether the job's run belongs to another queue now, for example because the run has another plan.
func (w *runWorker) moved(ctx context.Context, job *river.Job[RunArgs]) (bool, error) {
	r, err := w.p.Store.Head(ctx, job.Args.Run)
	return err == nil && QueueOf(r.Workflow, r.Plan) != job.Queue, err
}

// giveBack completes the job of a run, in one transaction. If the run continues without a signal, the transaction also inserts the next job. If the
// job is no longer running, for example because recoverRuns has discarded it, giveBack does nothing.
func (w *runWorker) giveBack(ctx context.Context, job *river.Job[RunArgs]) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	return pgx.BeginFunc(ctx, w.p.Store.Pool(), func(tx pgx.Tx) error {
		// JobCompleteTx waits for each transaction in which enqueue has locked the job. So goOn sees what these transactions wrote.
		done, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		if errors.Is(err, river.ErrNotFound) || err == nil && done.State != rivertype.JobStateCompleted {
			return nil
		}
		if err != nil {
			return err
		}
		if err = w.p.client(ctx).goOn(ctx, tx, job.Args.Run); errors.Is(err, store.ErrUnknownRun) { // the run was pruned
			return nil
		}
		return err
	})
}
