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
		found, err := c.recover(ctx, orDefault(w.p.RecoverEvery, defaultRecover))
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

// uniqueKey is the key that River makes of the arguments of the job of the run r, in SQL.
const uniqueKey = `sha256(convert_to('&kind=kahn_run&args={"key":"' || encode(sha256(convert_to(r.id, 'UTF8')), 'hex') || '"}', 'UTF8'))`

// lost is a job whose process has lost its run.
type lost struct {
	run       string
	job       int64
	attempt   int
	scheduled time.Time
}

// recover discards jobs that are lost and inserts new ones, and returns how many runs it has found.
func (c Client) recover(ctx context.Context, age time.Duration) (found int, err error) {
	err = pgx.BeginFunc(ctx, c.Store.Pool(), func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, fmt.Sprintf(lostQuery, c.table("river_job"), c.stored("runs")), age, recoverBatch)
		if err != nil {
			return err
		}
		jobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l lost, err error) {
			err = row.Scan(&l.run, &l.job, &l.attempt, &l.scheduled)
			return l, err
		})
		if err != nil {
			return err
		}
		if rows, err = tx.Query(ctx, fmt.Sprintf(strayQuery, c.table("river_job"), c.stored("runs"), uniqueKey), recoverBatch); err != nil {
			return err
		}
		runs, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		if err := c.discard(ctx, tx, jobs); err != nil {
			return err
		}
		for _, l := range jobs {
			runs = append(runs, l.run)
		}
		found = len(runs)
		for _, run := range runs {
			if err := c.resume(ctx, tx, run); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("recover runs: %w", err)
	}
	return found, nil
}

// discard ends jobs that are lost. Their processes, if they go on, cannot change them any more.
func (c Client) discard(ctx context.Context, tx pgx.Tx, jobs []lost) error {
	if len(jobs) == 0 {
		return nil
	}
	now := time.Now().UTC()
	params := riverdriver.JobRescueManyParams{Schema: c.River.Schema(), StuckHorizon: now}
	for _, l := range jobs {
		text, err := json.Marshal(rivertype.AttemptError{At: now, Attempt: l.attempt, Error: "the lease of the run has run out: another job goes on with the run"})
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

// resume inserts the job of a run that was lost. One at rest goes on when it is due.
func (c Client) resume(ctx context.Context, tx pgx.Tx, run string) error {
	r, err := c.Store.HeadTx(ctx, tx, run)
	if err != nil || !goesOn(r) {
		return err
	}
	return c.enqueue(ctx, tx, r, r.WakeAt)
}

// goesOn reports whether a run has something to do without a signal, now or later.
func goesOn(r *store.Run) bool {
	return !r.Status.Terminal() && (!r.WakeAt.IsZero() || r.Status != machine.RunSuspended)
}
