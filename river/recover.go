package riverkahn

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// RecoverArgs are the arguments of the periodic job that looks for runs whose lease has run out.
type RecoverArgs struct{}

// Kind implements [river.JobArgs].
func (RecoverArgs) Kind() string { return "kahn_recover" }

// recoverWorker works these jobs.
type recoverWorker struct {
	river.WorkerDefaults[RecoverArgs]
	p *Performer
}

// Work lets runs go on elsewhere whose process has died, or hangs.
func (w *recoverWorker) Work(ctx context.Context, _ *river.Job[RecoverArgs]) error {
	c := w.p.client(ctx)
	for {
		found, err := c.recoverLost(ctx, orDefault(w.p.RecoverEvery, defaultRecover))
		if err != nil || found < recoverBatch {
			return err
		}
	}
}

// recoverBatch is how many runs one transaction recovers.
const recoverBatch = 100

// lostQuery finds runs that nobody holds although a job of River performs them, and runs at work that have neither. $1 is the age that a job has to have:
// a process that has just begun it may not have acquired the run yet. A lease that was given back lasts, as expires tells, for most of its time yet,
// so a job that is just being given back is not among those found.
const lostQuery = `SELECT r.id, j.id, j.attempt, j.scheduled_at FROM %[1]s j JOIN %[2]s r ON r.id = j.args->>'run'
WHERE j.kind = 'kahn_run' AND j.state = 'running' AND j.attempted_at < now() - $1::interval AND r.expires < now()
ORDER BY r.id LIMIT $2 FOR UPDATE OF j SKIP LOCKED`

const strayQuery = `SELECT r.id FROM %[2]s r WHERE r.status = 'running' AND r.expires < now()
AND NOT EXISTS (SELECT FROM %[1]s j WHERE j.unique_key = %[3]s AND j.state IN ('available', 'pending', 'retryable', 'running', 'scheduled'))
ORDER BY r.id LIMIT $1`

// uniqueKey computes in SQL the key that River derives from the arguments of the job of the run r.
const uniqueKey = `sha256(convert_to('&kind=kahn_run&args={"key":"' || encode(sha256(convert_to(r.id, 'UTF8')), 'hex') || '"}', 'UTF8'))`

// silentQuery finds the jobs of steps whose processes have not been heard for too long.
const silentQuery = `SELECT j.id, j.attempt, j.scheduled_at, j.queue, j.priority, j.args FROM %s j
WHERE j.kind = 'kahn_step' AND j.state = 'running' AND j.attempted_at < now() - (j.args->>'lost_after')::bigint / 1000 * interval '1 microsecond'
ORDER BY j.id LIMIT $1 FOR UPDATE SKIP LOCKED`

// lost is a job whose process has lost it.
type lost struct {
	job       int64
	attempt   int
	scheduled time.Time
}

// recoverLost recovers runs and steps, and returns how many it has found.
func (c Client) recoverLost(ctx context.Context, age time.Duration) (found int, err error) {
	err = pgx.BeginFunc(ctx, c.Store.Pool(), func(tx pgx.Tx) error {
		runs, err := c.recoverRuns(ctx, tx, age)
		if err != nil {
			return err
		}
		steps, err := c.recoverSteps(ctx, tx)
		found = max(runs, steps)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("recover runs: %w", err)
	}
	return found, nil
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
	if err != nil {
		return 0, err
	}
	err = each(ctx, tx, fmt.Sprintf(strayQuery, c.jobs(), c.stored("runs"), uniqueKey), []any{recoverBatch}, func(row pgx.CollectableRow) error {
		var run string
		err := row.Scan(&run)
		runs = append(runs, run)
		return err
	})
	if err != nil {
		return 0, err
	}
	if err := c.rescue(ctx, tx, "the lease of the run has run out: another job goes on with the run", jobs); err != nil {
		return 0, err
	}
	for _, run := range runs {
		r, err := c.Store.HeadTx(ctx, tx, run)
		if err == nil && goesOn(r) {
			err = c.enqueue(ctx, tx, r, r.WakeAt)
		}
		if err != nil {
			return 0, err
		}
	}
	return len(runs), nil
}

// recoverSteps discards jobs of steps whose processes are silent, and inserts new ones. The reply to an attempt that was lost too often is an error.
func (c Client) recoverSteps(ctx context.Context, tx pgx.Tx) (found int, err error) {
	var jobs []lost
	var steps []river.InsertManyParams
	err = each(ctx, tx, fmt.Sprintf(silentQuery, c.jobs()), []any{recoverBatch}, func(row pgx.CollectableRow) error {
		var l lost
		var args StepArgs
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
		if args := step.Args.(StepArgs); args.Losses < mostLosses {
			_, err = c.River.InsertTx(ctx, tx, args, step.InsertOpts)
		} else {
			err = c.reply(ctx, tx, &args, kahn.Reply{Err: fmt.Errorf("%d processes that performed the step were lost", args.Losses)})
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

// goesOn reports whether a run has something to do without a signal, now or later.
func goesOn(r *store.Run) bool {
	return !r.Status.Terminal() && (!r.WakeAt.IsZero() || r.Status != machine.RunSuspended)
}
