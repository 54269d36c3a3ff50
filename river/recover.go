package riverkahn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
)

// recoverArgs are the arguments of the periodic jobs that look for runs and steps that were lost.
type recoverArgs struct {
	Strays bool `json:"strays,omitempty"` // it looks for runs without a job
}

// Kind implements [river.JobArgs].
func (recoverArgs) Kind() string { return "kahn_recover" }

// recoverWorker works these jobs.
type recoverWorker struct {
	river.WorkerDefaults[recoverArgs]
	store *postgres.Store
	age   time.Duration // see lostQuery
}

// addRecovery adds the worker and the periodic jobs that recover runs and steps to a configuration of River, unless a Performer or a Server of the same
// client has added them. River's leader inserts its own periodic jobs alone, so each client that may be elected needs them.
func addRecovery(config *river.Config, s *postgres.Store, queue string, every time.Duration) {
	every = cmp.Or(every, defaultRecover)
	if river.AddWorkerSafely(config.Workers, &recoverWorker{store: s, age: every}) != nil {
		return // its only error: there is a worker of this kind
	}
	config.PeriodicJobs = append(slices.Clip(config.PeriodicJobs), periodic(queue, every, recoverArgs{}), periodic(queue, strayRounds*every, recoverArgs{Strays: true}))
}

// periodic is a periodic job of River's leader.
func periodic(queue string, every time.Duration, args river.JobArgs) *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(every), func() (river.JobArgs, *river.InsertOpts) {
		return args, &river.InsertOpts{Queue: queue, MaxAttempts: 1}
	}, &river.PeriodicJobOpts{RunOnStart: true})
}

// Work lets runs go on whose process has died or hangs, and steps whose process is silent, or runs that have no job. Each of the three has transactions
// of its own: recoverSteps locks rows of runs, and who posts a request locks the row of the run before the job of the run, which recoverRuns locks.
func (w *recoverWorker) Work(ctx context.Context, job *river.Job[recoverArgs]) error {
	c := Client{Store: w.store, River: river.ClientFromContext[pgx.Tx](ctx)}
	if job.Args.Strays {
		return c.inBatches(ctx, c.recoverStrays)
	}
	return errors.Join(
		c.inBatches(ctx, func(ctx context.Context, tx pgx.Tx) (int, error) { return c.recoverRuns(ctx, tx, w.age) }),
		c.inBatches(ctx, c.recoverSteps),
	)
}

const (
	// recoverBatch is how many runs, or steps, one transaction recovers.
	recoverBatch = 100
	// strayRounds is how many times the interval of the look for lost runs that of the look for runs without a job is, which reads all runs that are due.
	strayRounds = 12
)

// lostQuery finds runs that nobody holds although a job of River performs them. $1 is the age that a job has to have:
// a process that has just begun it may not have acquired the run yet. A lease that was given back lasts, as expires tells, for most of its time yet,
// so a job that is just being given back is not among those found.
const lostQuery = `SELECT r.id, j.id, j.attempt, j.scheduled_at FROM %[1]s j JOIN %[2]s r ON r.id = j.args->>'run'
WHERE j.kind = 'kahn_run' AND j.state = 'running' AND j.attempted_at < now() - $1::interval AND r.expires < now()
ORDER BY r.id LIMIT $2 FOR UPDATE OF j SKIP LOCKED`

// strayQuery finds runs that are due, and have neither a holder nor a job that begins: their job was cancelled, discarded or deleted, or they have become due
// without a [Client], because of a request, say.
const strayQuery = `SELECT r.id FROM %[2]s r WHERE (r.status IN ('pending', 'running', 'suspended') OR r.posted > r.taken) AND (r.owner = '' OR r.expires < now())
AND (r.status = 'running' OR r.wake <= now() OR r.wake IS NULL AND r.status = 'pending' OR r.posted > r.taken AND (r.status <> 'pending' OR r.urgent))
AND NOT EXISTS (SELECT FROM %[1]s j WHERE j.unique_key = %[3]s AND (j.state IN ('available', 'pending', 'retryable', 'running') OR j.state = 'scheduled' AND j.scheduled_at <= now()))
ORDER BY r.id LIMIT $1`

// uniqueKey computes in SQL the key that River derives from the arguments of the job of the run r.
const uniqueKey = `sha256(convert_to('&kind=kahn_run&args={"key":"' || encode(sha256(convert_to(r.id, 'UTF8')), 'hex') || '"}', 'UTF8'))`

// silentQuery finds the jobs of steps whose processes have not been heard for too long, by the ids of their runs: in this order the rows of runs are locked.
const silentQuery = `SELECT j.id, j.attempt, j.scheduled_at, j.queue, j.priority, j.args FROM %s j
WHERE j.kind = 'kahn_step' AND j.state = 'running' AND j.attempted_at < now() - (j.args->>'lost_after')::bigint / 1000 * interval '1 microsecond'
ORDER BY j.args->>'run' COLLATE "C", j.id LIMIT $1 FOR UPDATE SKIP LOCKED`

// lost is a job whose process has lost it.
type lost struct {
	job       int64
	attempt   int
	scheduled time.Time
}

// inBatches recovers in one transaction after the other, until one has found less than a batch.
func (c Client) inBatches(ctx context.Context, recoverSome func(context.Context, pgx.Tx) (found int, err error)) error {
	for {
		var found int
		err := pgx.BeginFunc(ctx, c.Store.Pool(), func(tx pgx.Tx) (err error) {
			found, err = recoverSome(ctx, tx)
			return err
		})
		if err != nil {
			return fmt.Errorf("recover runs: %w", err)
		}
		if found < recoverBatch {
			return nil
		}
	}
}

// recoverRuns discards jobs of runs that are lost, and inserts new ones.
func (c Client) recoverRuns(ctx context.Context, tx pgx.Tx, age time.Duration) (found int, err error) {
	var runs []string
	var jobs []lost
	err = each(ctx, tx, fmt.Sprintf(lostQuery, c.jobs(), c.stored("runs")), []any{age, recoverBatch}, func(row pgx.CollectableRow) error {
		var run string
		var l lost
		err := row.Scan(&run, &l.job, &l.attempt, &l.scheduled)
		runs, jobs = append(runs, run), append(jobs, l)
		return err
	})
	if err == nil {
		err = c.rescue(ctx, tx, "the lease of the run has run out: another job goes on with the run", jobs)
	}
	if err == nil {
		err = c.enqueueAll(ctx, tx, runs)
	}
	return len(runs), err
}

// recoverStrays inserts jobs of runs that have none.
func (c Client) recoverStrays(ctx context.Context, tx pgx.Tx) (found int, err error) {
	var runs []string
	err = each(ctx, tx, fmt.Sprintf(strayQuery, c.jobs(), c.stored("runs"), uniqueKey), []any{recoverBatch}, func(row pgx.CollectableRow) error {
		var run string
		err := row.Scan(&run)
		runs = append(runs, run)
		return err
	})
	if err == nil {
		err = c.enqueueAll(ctx, tx, runs)
	}
	return len(runs), err
}

// enqueueAll inserts jobs of runs, unless they have nothing to do or wait for a signal.
func (c Client) enqueueAll(ctx context.Context, tx pgx.Tx, runs []string) error {
	for _, run := range runs {
		r, err := c.Store.HeadTx(ctx, tx, run)
		if err == nil && goesOn(r) {
			err = c.enqueue(ctx, tx, r, r.WakeAt)
		}
		if err != nil && !errors.Is(err, store.ErrUnknownRun) {
			return err
		}
	}
	return nil
}

// recoverSteps discards jobs of steps whose processes are silent, and inserts new ones. The reply to an attempt that was lost too often is an error.
func (c Client) recoverSteps(ctx context.Context, tx pgx.Tx) (found int, err error) {
	var jobs []lost
	var steps []river.InsertManyParams
	err = each(ctx, tx, fmt.Sprintf(silentQuery, c.jobs()), []any{recoverBatch}, func(row pgx.CollectableRow) error {
		var l lost
		var args stepArgs
		opts := river.InsertOpts{MaxAttempts: river.MaxAttemptsDefault}
		err := row.Scan(&l.job, &l.attempt, &l.scheduled, &opts.Queue, &opts.Priority, &args)
		args.Losses++
		jobs, steps = append(jobs, l), append(steps, river.InsertManyParams{Args: args, InsertOpts: &opts})
		return err
	})
	if err == nil {
		err = c.rescue(ctx, tx, "the process of the step is silent: another job performs the step", jobs)
	}
	for _, step := range steps {
		if err != nil {
			return 0, err
		}
		if args := step.Args.(stepArgs); args.Losses < mostLosses {
			_, err = c.River.InsertTx(ctx, tx, args, step.InsertOpts)
		} else {
			err = c.reply(ctx, tx, &args, kahn.Reply{Err: fmt.Errorf("%d processes that performed the step were lost", args.Losses)})
			if errors.Is(err, store.ErrEnded) || errors.Is(err, store.ErrUnknownRun) { // nobody waits for the reply
				err = nil
			}
		}
	}
	return len(jobs), err
}

// each calls f for each row of a query.
func each(ctx context.Context, tx pgx.Tx, text string, args []any, f func(row pgx.CollectableRow) error) error {
	rows, err := tx.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (none struct{}, err error) { return none, f(row) })
	return err
}

// rescue discards jobs whose processes are lost. If these go on, they cannot change the jobs any more: River changes jobs that are running.
func (c Client) rescue(ctx context.Context, tx pgx.Tx, why string, jobs []lost) error {
	if len(jobs) == 0 {
		return nil
	}
	now := time.Now().UTC()
	params := riverdriver.JobRescueManyParams{Schema: c.River.Schema(), StuckHorizon: now}
	for _, l := range jobs {
		text, err := json.Marshal(rivertype.AttemptError{At: now, Attempt: l.attempt, Error: why})
		if err != nil {
			return err
		}
		params.ID, params.Error = append(params.ID, l.job), append(params.Error, text)
		params.FinalizedAt, params.ScheduledAt = append(params.FinalizedAt, &now), append(params.ScheduledAt, l.scheduled)
		params.State = append(params.State, string(rivertype.JobStateDiscarded))
	}
	_, err := c.River.Driver().UnwrapExecutor(tx).JobRescueMany(ctx, &params)
	return err
}

// goesOn reports whether a run has something to do without a signal, now or later. Of a run that has ended a redrive is left to do.
func goesOn(r *store.Run) bool {
	return r.Status.Terminal() && r.Posted > r.Taken || !r.Status.Terminal() && (!r.WakeAt.IsZero() || r.Status != machine.RunSuspended)
}
