package riverkahn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
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

// recoverArgs are the arguments of the periodic jobs that look for lost runs and steps.
type recoverArgs struct {
	Strays bool `json:"strays,omitempty"` // the job looks for runs without a job, and for steps whose job is gone
}

// Kind implements [river.JobArgs].
func (recoverArgs) Kind() string { return "kahn_recover" }

// recoverWorker works the jobs that look for lost runs and steps.
type recoverWorker struct {
	river.WorkerDefaults[recoverArgs]
	store *postgres.Store
	age   time.Duration // see lostQuery

	mu   sync.Mutex // guards seen
	seen place      // the last run that the previous search for steps without a job has inspected
}

// addRecovery adds a worker and periodic jobs to a configuration of River. They recover runs and steps. If a Performer or a Server of the same client
// has already added them, addRecovery does nothing. Each client that may become River's leader needs them, since the leader inserts only its own
// periodic jobs.
func addRecovery(config *river.Config, s *postgres.Store, queue string, every time.Duration) {
	every = cmp.Or(every, defaultRecover)
	if river.AddWorkerSafely(config.Workers, &recoverWorker{store: s, age: every}) != nil {
		return // the only possible error: the client already has a worker of this kind
	}
	config.PeriodicJobs = append(slices.Clip(config.PeriodicJobs), periodic(queue, every, recoverArgs{}), periodic(queue, strayRounds*every, recoverArgs{Strays: true}))
}

// The function `periodic` returns a periodic job, which River's leader inserts.
func periodic(queue string, every time.Duration, args river.JobArgs) *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(every), func() (river.JobArgs, *river.InsertOpts) {
		return args, &river.InsertOpts{Queue: queue, MaxAttempts: 1}
	}, &river.PeriodicJobOpts{RunOnStart: true})
}

// Work recovers runs whose process has died or hangs, and steps whose process is silent. If the job's argument Strays is set, Work instead recovers
// due runs without a job, and steps whose job is gone. Each of these four searches has its own transactions, to avoid deadlocks. A process that posts
// a request first locks the row of the run, and then the run's job. A transaction with both recoverRuns and recoverSteps would lock them in the
// opposite order: first jobs of runs, and then rows of runs.
func (w *recoverWorker) Work(ctx context.Context, job *river.Job[recoverArgs]) error {
	c := Client{Store: w.store, River: river.ClientFromContext[pgx.Tx](ctx)}
	if job.Args.Strays {
		return errors.Join(c.inBatches(ctx, c.recoverStrays), w.refuseGone(ctx, c))
	}
	return errors.Join(
		c.inBatches(ctx, func(ctx context.Context, tx pgx.Tx) (int, error) { return c.recoverRuns(ctx, tx, w.age) }),
		c.inBatches(ctx, c.recoverSteps),
	)
}

const (
	// recoverBatch is how many runs or steps one transaction recovers.
	recoverBatch = 100
	// The search for runs without a job has an interval that is strayRounds times as long as the interval of the search for lost runs. It is rarer
	// because it reads all due runs.
	strayRounds = 12
)

// lostQuery finds runs that are not leased although their jobs are in the state running. It skips jobs that began less than $1 ago: their processes
// may not have acquired the runs yet. When a process releases a lease, the time in the column "expires" is usually still in the future. So the
// query does not find the job that this process is about to complete.
const lostQuery = `SELECT r.id, j.id, j.attempt, j.scheduled_at FROM %[1]s j JOIN %[2]s r ON r.id = j.args->>'run'
WHERE j.kind = 'kahn_run' AND j.state = 'running' AND j.attempted_at < now() - $1::interval AND r.expires < now()
ORDER BY r.id LIMIT $2 FOR UPDATE OF j SKIP LOCKED`

// strayQuery finds due runs that are not leased and have no job. For example, the job was cancelled, discarded or deleted, or the program called
// [postgres.Store.Post] instead of [Client.Post]. A job that is scheduled for a later time does not count. A waiting job in the queue of another plan
// does not count either: [kahn.Adopt] has given the run a new plan, and there may be no process with the former plan. But if the program has moved
// the job into a queue whose name does not begin with kahn_, the job counts.
const strayQuery = `SELECT r.id FROM %[2]s r WHERE (r.status IN ('pending', 'running', 'suspended') OR r.posted > r.taken) AND (r.owner = '' OR r.expires < now())
AND (r.status = 'running' OR r.wake <= now() OR r.wake IS NULL AND r.status = 'pending' OR r.posted > r.taken AND (r.status <> 'pending' OR r.urgent))
AND NOT EXISTS (SELECT FROM %[1]s j WHERE j.unique_key = %[3]s AND (j.state = 'running' OR
	(j.queue NOT LIKE 'kahn\_%%' OR right(j.queue, 32) = %[4]s) AND (j.state IN ('available', 'pending', 'retryable') OR j.state = 'scheduled' AND j.scheduled_at <= now())))
ORDER BY r.id LIMIT $1`

// uniqueKey computes in SQL the unique key of the run r's job. River computes the same key from the job's arguments.
const uniqueKey = `sha256(convert_to('&kind=kahn_run&args={"key":"' || encode(sha256(convert_to(r.id, 'UTF8')), 'hex') || '"}', 'UTF8'))`

// queueHash computes in SQL the hash at the end of the name of the run r's queue, see QueueOf.
const queueHash = `left(encode(sha256(convert_to(r.workflow || E'\n' || r.plan, 'UTF8')), 'hex'), 32)`

// silentQuery finds the jobs of steps whose processes have sent no heartbeat for too long. It sorts the jobs by the ids of their runs:
// recoverSteps and refuseSomeGone lock the rows of runs in this order.
const silentQuery = `SELECT j.id, j.attempt, j.scheduled_at, j.queue, j.priority, j.args FROM %s j
WHERE j.kind = 'kahn_step' AND j.state = 'running' AND j.attempted_at < now() - (j.args->>'lost_after')::bigint / 1000 * interval '1 microsecond'
ORDER BY j.args->>'run' COLLATE "C", j.id LIMIT $1 FOR UPDATE SKIP LOCKED`

// The type `place` records the last run that a search has inspected.
type place struct {
	status  int // the index of the status in atWork
	created time.Time
	run     string
}

// The variable atWork contains the statuses of runs that may wait for the reply of a job.
var atWork = []string{"suspended", "running"}

// The function `newest` returns the place before the newest run with a status. A search of the runs with this status begins at this place.
func newest(status int) place {
	return place{status: status, created: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
}

const (
	// A search for steps without a job has at most goneBatches transactions. Each of them inspects at most goneBatch runs. The next search continues
	// after the last inspected run. So the cost of a search does not grow with the number of runs.
	goneBatch, goneBatches = 500, 20
)

// goneQuery finds the next runs with a given status, the newest first. For each run it returns tokens of nodes. Each of these nodes waits for the
// reply of a job, but no reply will come: the job was deleted or has ended, and no reply with the token was posted. A process posts the reply and
// completes the job in one transaction, so no process posts a reply after the job has ended.
const goneQuery = `WITH looked AS MATERIALIZED (
	SELECT r.run, r.id, r.created FROM %[2]s r WHERE r.status = $1 AND r.created <= $2 AND (r.created < $2 OR r.id > $3) ORDER BY r.created DESC, r.id LIMIT $4
),
waits AS MATERIALIZED (
	SELECT s.run, s.id, substring(convert_from(n.record, 'UTF8') FROM '"token":"(` + sent + `[0-9]+ [A-Z2-7]+)"') AS token
	FROM looked s CROSS JOIN LATERAL (SELECT n.record FROM %[3]s n WHERE n.run = s.run AND n.status = 'suspended' AND position('"token":"` + sent + `'::bytea IN n.record) > 0 OFFSET 0) n
)
SELECT s.id, s.created, (SELECT array_agg(w.token ORDER BY w.token) FROM waits w WHERE w.run = s.run AND w.token IS NOT NULL
	AND NOT EXISTS (SELECT FROM %[1]s j WHERE j.args @> jsonb_build_object('token', w.token) AND j.state IN ('available', 'pending', 'retryable', 'running', 'scheduled'))
	AND NOT EXISTS (SELECT FROM %[4]s q WHERE q.run = w.run AND sha256(q.id) = sha256(convert_to(w.token, 'UTF8')) AND q.id = convert_to(w.token, 'UTF8')))
FROM looked s ORDER BY s.created DESC, s.id`

// The type `lost` is a job whose process has died, hangs or is silent.
type lost struct {
	job       int64
	attempt   int
	scheduled time.Time
}

// inBatches calls recoverSome repeatedly, each time in a new transaction, until a call finds fewer than recoverBatch runs or steps.
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

// recoverRuns discards the jobs of runs whose processes have died or hang, and inserts new jobs for the runs.
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
		err = c.rescue(ctx, tx, "the lease of the run has run out: another job continues the run", jobs)
	}
	if err == nil {
		err = c.enqueueAll(ctx, tx, runs)
	}
	return len(runs), err
}

// recoverStrays inserts jobs for runs that have none, and moves jobs into the queues of their runs' plans.
func (c Client) recoverStrays(ctx context.Context, tx pgx.Tx) (found int, err error) {
	var runs []string
	err = each(ctx, tx, fmt.Sprintf(strayQuery, c.jobs(), c.stored("runs"), uniqueKey, queueHash), []any{recoverBatch}, func(row pgx.CollectableRow) error {
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

// enqueueAll inserts a job for each of the runs that can continue without a signal.
func (c Client) enqueueAll(ctx context.Context, tx pgx.Tx, runs []string) error {
	for _, run := range runs {
		if err := c.goOn(ctx, tx, run); err != nil && !errors.Is(err, store.ErrUnknownRun) {
			return err
		}
	}
	return nil
}

// recoverSteps discards the jobs of steps whose processes are silent, and inserts new jobs. But if mostLosses processes were lost during an attempt,
// recoverSteps replies to the attempt with an error instead.
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
			err = c.refuse(ctx, tx, &args, fmt.Errorf("the step was given up, since %d processes that performed it were lost", args.Losses))
		}
	}
	return len(jobs), err
}

// refuseGone fails the attempts whose jobs are gone: no process performs these attempts, so no reply would ever come. Each call inspects a limited
// number of runs, and the next call continues after the last of them.
func (w *recoverWorker) refuseGone(ctx context.Context, c Client) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen.created.IsZero() {
		w.seen = newest(0)
	}
	for range goneBatches {
		next := w.seen
		err := pgx.BeginFunc(ctx, c.Store.Pool(), func(tx pgx.Tx) (err error) {
			next, err = c.refuseSomeGone(ctx, tx, w.seen)
			return err
		})
		if err != nil {
			return fmt.Errorf("recover steps: %w", err)
		}
		if w.seen = next; next.status == len(atWork) {
			w.seen = place{}
			return nil
		}
	}
	return nil
}

// refuseSomeGone does in one transaction what refuseGone does, for the next goneBatch runs after a place. It returns the place at which the next
// transaction continues.
func (c Client) refuseSomeGone(ctx context.Context, tx pgx.Tx, after place) (last place, err error) {
	found, gone := 0, map[string][]string{}
	last = after
	text := fmt.Sprintf(goneQuery, c.jobs(), c.stored("runs"), c.stored("nodes"), c.stored("requests"))
	err = each(ctx, tx, text, []any{atWork[after.status], after.created, after.run, goneBatch}, func(row pgx.CollectableRow) error {
		var tokens []string
		err := row.Scan(&last.run, &last.created, &tokens)
		if found++; len(tokens) > 0 {
			gone[last.run] = tokens
		}
		return err
	})
	if found < goneBatch {
		last = newest(after.status + 1)
	}
	for _, run := range slices.Sorted(maps.Keys(gone)) { // recoverSteps locks the rows of runs in the same order
		for _, token := range gone[run] {
			if err == nil {
				err = c.refuse(ctx, tx, &stepArgs{Run: run, Token: token}, errGone)
			}
		}
	}
	return last, err
}

// errGone is the error of an attempt if its job was deleted, or ended without a reply.
var errGone = errors.New("the job of the step is gone: it was deleted or cancelled before it was performed, or it could not begin")

// The method `refuse` posts an error as the reply to an attempt. If the run has ended or is not stored any more, refuse does nothing, since no node
// waits for the reply.
func (c Client) refuse(ctx context.Context, tx pgx.Tx, a *stepArgs, why error) error {
	err := c.reply(ctx, tx, a, kahn.Reply{Err: why})
	if errors.Is(err, store.ErrEnded) || errors.Is(err, store.ErrUnknownRun) {
		return nil
	}
	return err
}

// The function `each` calls f for each row of a query.
func each(ctx context.Context, tx pgx.Tx, text string, args []any, f func(row pgx.CollectableRow) error) error {
	rows, err := tx.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (none struct{}, err error) { return none, f(row) })
	return err
}

// rescue discards jobs whose processes are lost. If a lost process recovers, it cannot change the discarded job: River changes only running jobs.
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

// goesOn reports whether a run continues without a further request, now or later. A run that has ended continues if a redrive waits.
func goesOn(r *store.Run) bool {
	return r.Status.Terminal() && r.Posted > r.Taken || !r.Status.Terminal() && (!r.WakeAt.IsZero() || r.Status != machine.RunSuspended)
}
