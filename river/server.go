package riverkahn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
)

// Server performs the steps that a [Remote] sends. A process may have both a Server and a [Performer].
type Server struct {
	// Store is the store of the runs, in the database of River's client. It is required.
	Store *postgres.Store
	// Step performs the steps. It is required.
	Step kahn.StepFunc
	// Kinds are the kinds of nodes that the process serves, each with the maximum number of steps that the process performs at the same time.
	Kinds map[string]int
	// Codec is the runs' codec, see [kahn.Encoding]. If Codec is nil, the Server uses an empty [kahn.Types].
	Codec kahn.Codec
	// RecoverEvery and Queue have the same meaning as in a [Performer], because the process of a Server also looks for lost runs. If a Performer was
	// registered with the same configuration before the Server, the search uses the Performer's values.
	RecoverEvery time.Duration
	Queue        string
}

// Register adds the workers, queues and periodic jobs of the Server to the configuration of a River client. Errors match
// [machine.ErrBadValue].
func (s *Server) Register(config *river.Config) error {
	switch {
	case config == nil:
		return fmt.Errorf("%w: riverkahn: the river.Config is nil", machine.ErrBadValue)
	case s.Store == nil || s.Step == nil || len(s.Kinds) == 0:
		return fmt.Errorf("%w: riverkahn: a Server needs a Store, a Step and Kinds", machine.ErrBadValue)
	case s.RecoverEvery < 0:
		return fmt.Errorf("%w: riverkahn: RecoverEvery %v is negative", machine.ErrBadValue, s.RecoverEvery)
	case unitless(s.RecoverEvery):
		return fmt.Errorf("%w: riverkahn: RecoverEvery %v: is its unit missing?", machine.ErrBadValue, s.RecoverEvery)
	}
	queue := cmp.Or(s.Queue, defaultQueue)
	queues := map[string]river.QueueConfig{queue: upkeep}
	for kind, most := range s.Kinds {
		if most < 1 {
			return fmt.Errorf("%w: riverkahn: Kinds[%q] is %d: it must be at least 1", machine.ErrBadValue, kind, most)
		}
		queues[KindQueue(kind)] = river.QueueConfig{MaxWorkers: most}
	}
	if err := register(config, queues, func(w *river.Workers) error { return river.AddWorkerSafely(w, &stepWorker{s: s}) }); err != nil {
		return err
	}
	addRecovery(config, s.Store, queue, s.RecoverEvery)
	return nil
}

// stepWorker works the jobs that perform steps.
type stepWorker struct {
	river.WorkerDefaults[stepArgs]
	s *Server
}

// Timeout returns -1, which means no timeout: the deadline of the call limits the step.
func (*stepWorker) Timeout(*river.Job[stepArgs]) time.Duration { return -1 }

// errUnwanted is the error of a job if the run no longer waits for the step. It is also the cause with which the step's context is then cancelled.
var errUnwanted = errors.New("the run does not wait for the step any more")

// Work checks that the run waits for the attempt, performs the attempt, and posts the reply. The job succeeds even if the step fails.
func (w *stepWorker) Work(ctx context.Context, job *river.Job[stepArgs]) error {
	x := &attempt{job: job, client: Client{Store: w.s.Store, River: river.ClientFromContext[pgx.Tx](ctx)}}
	switch wanted, err := x.isAwaited(ctx); {
	case errors.Is(err, errUnwanted):
		return river.JobCancel(err)
	case err != nil:
		return err
	case !wanted:
		return river.JobSnooze(awaitStart) // River tries the job again later; meanwhile this worker can work other jobs
	}
	reply, err := w.perform(ctx, x)
	switch {
	case errors.Is(err, errUnwanted):
		return river.JobCancel(err)
	case err != nil:
		return err
	}
	return x.answer(ctx, reply)
}

// perform calls the step function. It returns an error for the job if the run no longer waits for the step, or if the step fails while the client
// of River stops.
func (w *stepWorker) perform(ctx context.Context, x *attempt) (kahn.Reply, error) {
	call := kahn.Call{Codec: w.s.Codec}
	if err := json.Unmarshal(x.job.Args.Call, &call); err != nil {
		return kahn.Reply{Codec: w.s.Codec, Err: kahn.Permanent(err)}, nil
	}
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if !call.Deadline.IsZero() {
		var end context.CancelFunc
		work, end = context.WithDeadline(work, call.Deadline)
		defer end()
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		x.follow(work, stop)
	}()
	replies := make(chan kahn.Reply, 1)
	go func() {
		reply := kahn.Reply{Codec: w.s.Codec, Err: kahn.ErrGoexit}
		defer func() { replies <- reply }()
		reply = call.Perform(work, w.s.Step, unheard{})
	}()
	reply := <-replies
	cause := context.Cause(work)
	stop(nil)
	<-over
	switch {
	case errors.Is(cause, errUnwanted):
		return reply, cause
	case reply.Err != nil && errors.Is(context.Cause(ctx), river.ErrJobCancelledRemotely):
		return kahn.Reply{Codec: w.s.Codec, Err: errors.New("the job of the step was cancelled")}, nil
	case reply.Err != nil && ctx.Err() != nil:
		return reply, ctx.Err() // the client of River stops, so another process will perform the attempt
	}
	return reply, nil
}

// The type `attempt` is an attempt that a job performs.
type attempt struct {
	job    *river.Job[stepArgs]
	client Client
	run    int64 // the number of the run in the store, 0 if it is not known yet
	node   int32 // the number of the node within the run
}

const (
	// When the job begins, the store may not have recorded yet that the node waits for the reply. awaitStart is how long the job waits for this
	// record, and startPause is the pause between two looks at the store.
	awaitStart = 2 * time.Second
	startPause = 10 * time.Millisecond
	// answerPause is the pause before the next try to post a reply.
	answerPause = time.Second
	// beats is how many heartbeats a process sends in the time Remote.LostAfter.
	beats = 5
)

// isAwaited returns true when the store says that the run waits for the attempt. It returns false if this takes longer than awaitStart.
func (x *attempt) isAwaited(ctx context.Context) (bool, error) {
	for began := time.Now(); time.Since(began) < awaitStart; {
		if awaited, err := x.beat(ctx, x.client.Store.Pool()); err != nil || awaited {
			return awaited, err
		}
		select {
		case <-time.After(startPause):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return false, nil
}

// follow sends heartbeats until ctx ends, and calls stop when the run no longer waits for the attempt.
func (x *attempt) follow(ctx context.Context, stop context.CancelCauseFunc) {
	ticker := time.NewTicker(max(x.job.Args.LostAfter/beats, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if awaited, err := x.beat(ctx, x.client.Store.Pool()); errors.Is(err, errUnwanted) || err == nil && !awaited {
			stop(errUnwanted)
			return
		}
	}
}

// nodeQuery returns the number of a run, and the number of the run's node with a given path. It reads the keys of all nodes of the run, so the method
// beat keeps its result. If a composite is retried, each try has a new node with this path: the query returns the newest node.
const nodeQuery = `SELECT r.run, max(n.node) FROM %s r JOIN %s n USING (run)
WHERE r.id = $1 AND (n.key = $2 OR position('#try' IN n.key) > 0 AND regexp_replace(n.key, '#try[0-9]+', '', 'g') = $2) GROUP BY r.run`

// beatQuery records that the process of a job is alive. It returns three booleans. The first is true if this process still works the job and the node
// is not terminal. The second is true if the node is suspended. The third is true if the node's record contains the token of the job.
const beatQuery = `WITH beat AS (UPDATE %[1]s SET attempted_at = now() WHERE id = $1 AND attempt = $2 AND state = 'running' RETURNING id)
SELECT (SELECT count(*) FROM beat) = 1 AND NOT n.terminal, coalesce(n.status = 'suspended', false), coalesce(position(convert_to($5, 'UTF8') IN n.record) > 0, false)
FROM %[2]s r JOIN %[3]s n USING (run) WHERE r.run = $3 AND n.node = $4 AND r.ended IS NULL`

// querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, text string, args ...any) pgx.Row
}

// The method `beat` sends a heartbeat, and reports whether the run waits for the attempt. It returns errUnwanted if the run will never wait for the
// attempt again, or if this process no longer works the job.
func (x *attempt) beat(ctx context.Context, db querier) (awaited bool, err error) {
	a := &x.job.Args
	if x.run == 0 {
		text := fmt.Sprintf(nodeQuery, x.client.stored("runs"), x.client.stored("nodes"))
		err = db.QueryRow(ctx, text, a.Run, a.Path).Scan(&x.run, &x.node)
	}
	var open, waits, here bool
	if err == nil {
		text := fmt.Sprintf(beatQuery, x.client.jobs(), x.client.stored("runs"), x.client.stored("nodes"))
		err = db.QueryRow(ctx, text, x.job.ID, x.job.Attempt, x.run, x.node, a.Token).Scan(&open, &waits, &here)
	}
	if errors.Is(err, pgx.ErrNoRows) || err == nil && (!open || waits && !here) {
		return false, errUnwanted
	}
	return err == nil && waits, err
}

// The method `answer` completes the job and posts the reply, in one transaction. If the transaction fails, `answer` repeats it, so that the reply is
// not lost. If the store rejects the value of the reply, `answer` posts the store's error instead. It gives up if the run no longer waits for the
// reply, or if the transaction fails while the client of River stops.
func (x *attempt) answer(ctx context.Context, reply kahn.Reply) error {
	for {
		err := x.answerOnce(context.WithoutCancel(ctx), reply)
		switch {
		case errors.Is(err, errUnwanted), errors.Is(err, store.ErrEnded), errors.Is(err, store.ErrUnknownRun):
			return river.JobCancel(errUnwanted)
		case errors.Is(err, store.ErrRejected) && reply.Value != nil: // the store rejects the value
			reply = kahn.Reply{Codec: reply.Codec, Err: kahn.Permanent(err)}
			continue
		case err == nil:
			return nil
		}
		pause, stop := context.WithCancelCause(ctx)
		timer := time.AfterFunc(answerPause, func() { stop(nil) })
		x.follow(pause, stop) // without heartbeats this process would count as lost, and another process would perform the step again
		timer.Stop()
		stop(nil)
		switch {
		case errors.Is(context.Cause(pause), errUnwanted):
			return river.JobCancel(errUnwanted)
		case ctx.Err() != nil:
			return err
		}
	}
}

// answerOnce executes the transaction of the method `answer` once.
func (x *attempt) answerOnce(ctx context.Context, reply kahn.Reply) error {
	ctx, cancel := context.WithTimeout(ctx, giveBackTimeout)
	defer cancel()
	return pgx.BeginFunc(ctx, x.client.Store.Pool(), func(tx pgx.Tx) error {
		switch awaited, err := x.beat(ctx, tx); {
		case err != nil:
			return err
		case !awaited:
			return errUnwanted
		}
		if _, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, x.job); err != nil {
			return err
		}
		return x.client.reply(ctx, tx, &x.job.Args, reply)
	})
}

// The method `reply` posts the reply to an attempt. If the reply cannot be encoded, it posts the encoding error instead.
func (c Client) reply(ctx context.Context, tx pgx.Tx, a *stepArgs, reply kahn.Reply) error {
	text, err := json.Marshal(reply)
	if err != nil {
		if text, err = json.Marshal(kahn.Reply{Err: kahn.Permanent(err)}); err != nil {
			return err
		}
	}
	q, err := kahn.PrepareSignal(a.Token, kahn.Decision{Value: string(text), ID: a.Token})
	if err != nil {
		return err
	}
	_, err = c.PostTx(ctx, tx, a.Run, q)
	return err
}

// The type `unheard` drops everything that a step reports while a Server performs the step, for example logs. These reports do not reach the run.
type unheard struct{}

func (unheard) Emit(any)               {}
func (unheard) Log(slog.Level, string) {}
func (unheard) Tokens(int, int)        {}
func (unheard) Use(string, float64)    {}

// SetLabel returns an error, since the label would not reach the run.
func (unheard) SetLabel(name, _ string) error {
	return fmt.Errorf("riverkahn: a step in a job of its own cannot set a label, %q: %w", name, errors.ErrUnsupported)
}
