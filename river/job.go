package riverkahn

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/seed-c794f7ef/kahn/store"
)

// RunArgs are the arguments of the job that performs a run. A run has at most one such job that has not ended.
type RunArgs struct {
	Run string `json:"run"`                // the id of the run
	Key string `json:"key" river:"unique"` // the SHA-256 of the id in hex: its JSON is the same in every language
}

// Kind implements [river.JobArgs].
func (RunArgs) Kind() string { return "kahn_run" }

func argsOf(run string) RunArgs { return RunArgs{Run: run, Key: digest(run)} }

// PriorityLabel is the name of a label of runs. The label's value is the priority of the run's jobs.
const PriorityLabel = "river.priority"

// The variable `live` contains the states of the jobs that have not ended.
var live = []rivertype.JobState{rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable, rivertype.JobStateRunning, rivertype.JobStateScheduled}

// maxReadable is how many characters of a workflow's name a queue's name contains at most. River limits a queue's name to 64 characters.
const maxReadable = 24

var unreadable = regexp.MustCompile("[^A-Za-z0-9]+")

// QueueOf returns the name of the queue for the runs of a plan. The argument "workflow" is the name of the graph, and "plan" is the hash of the plan.
// The queue's name consists of the prefix kahn_, a readable form of the workflow's name, and a hash.
func QueueOf(workflow, plan string) string {
	return queueName("kahn_", maxReadable, workflow, workflow+"\n"+plan)
}

// KindQueue returns the name of the queue for the steps of a kind, see [kahn.Node]. The queue's name consists of the prefix kahn_step_, a readable
// form of the kind, and a hash.
func KindQueue(kind string) string {
	return queueName("kahn_step_", maxReadable-len("step_"), kind, kind)
}

// queueName returns the name of a queue. The name consists of the prefix, at most `most` readable characters of the parameter "name", and a hash of
// the parameter "hashed". The hash identifies the queue.
func queueName(prefix string, most int, name, hashed string) string {
	readable := strings.Trim(strings.ToLower(unreadable.ReplaceAllString(name, "_")), "_")
	readable = strings.TrimRight(readable[:min(len(readable), most)], "_")
	if readable != "" {
		readable += "_"
	}
	return prefix + readable + digest(hashed)[:32]
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// priorityOf returns the priority of the jobs of a run.
func priorityOf(labels map[string]string) int {
	n, err := strconv.Atoi(labels[PriorityLabel])
	if err != nil || n < 1 || n > maxPriority {
		return river.PriorityDefault
	}
	return n
}

const maxPriority = 4

// enqueue makes sure that a run has a job that begins at the given time. If this time has passed, the job begins at once. A job that is available
// in the right queue then stays. A running job always stays: giveBack completes it later, and inserts the next job if the run has more to do.
// giveBack waits for the end of tx, because the insertion in tx has locked the running job. enqueue replaces a job in any other state or queue.
func (c Client) enqueue(ctx context.Context, tx pgx.Tx, r *store.Run, at time.Time) error {
	opts := &river.InsertOpts{
		Queue: QueueOf(r.Workflow, r.Plan), Priority: priorityOf(r.Labels), MaxAttempts: river.MaxAttemptsDefault,
		UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: live},
	}
	if at.After(time.Now()) {
		opts.ScheduledAt = at
	}
	for {
		inserted, err := c.River.InsertTx(ctx, tx, argsOf(r.ID), opts)
		if err != nil || !inserted.UniqueSkippedAsDuplicate {
			return err
		}
		has := inserted.Job
		if has.State == rivertype.JobStateRunning || has.State == rivertype.JobStateAvailable && has.Queue == opts.Queue && opts.ScheduledAt.IsZero() {
			return nil
		}
		if _, err := c.River.JobDeleteTx(ctx, tx, has.ID); err != nil {
			return err
		}
	}
}

// The method `jobs` returns the quoted name of River's table of jobs.
func (c Client) jobs() string {
	if schema := c.River.Schema(); schema != "" {
		return pgx.Identifier{schema, "river_job"}.Sanitize()
	}
	return pgx.Identifier{"river_job"}.Sanitize()
}

// The method `stored` returns the quoted name of a table of the store.
func (c Client) stored(name string) string { return pgx.Identifier{c.Store.Schema(), name}.Sanitize() }
