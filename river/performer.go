package riverkahn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
)

// Performer performs the runs of workflows in a process, as jobs of River. Its fields must not be changed after Register.
type Performer struct {
	// Store has the runs. It is in the database of River's client. It is required.
	Store *postgres.Store
	// Workflows are the plans that the process performs: as long as runs of a former version have not ended, that version, too.
	Workflows []Workflow
	// RecoverEvery is how often one of the processes looks for runs whose lease has run out, since their process has died or hangs: 5 s if it is
	// 0.
	RecoverEvery time.Duration
	// Retention says which runs are removed when they have ended; none if it is empty. Runs and blobs are removed every PruneEvery, a minute if
	// that is 0. Each process should have the same.
	Retention  []Retention
	PruneEvery time.Duration
	// Blobs is the blob store of the runs' codec, from which those are removed to which no run refers any more: see [store.PruneQuery].
	Blobs store.BlobSweeper
	// Queue is the queue of the jobs that look after runs, "kahn" if it is empty.
	Queue string

	byQueue map[string]*Workflow
	mu      sync.Mutex // guards what follows
	atWork  map[*kahn.Run]bool
	over    bool // Stop was called
}

// Workflow is a plan that a process performs.
type Workflow struct {
	Graph *kahn.Graph // with a name
	Step  kahn.StepFunc
	// Options are those of its runs, without kahn.Durable and kahn.RunID.
	Options []kahn.Option
	// MaxRuns is how many of its runs the process performs at the same time, 100 if it is 0.
	MaxRuns int
}

const (
	defaultQueue   = "kahn"
	defaultMaxRuns = 100
	defaultRecover = 5 * time.Second
	defaultPrune   = time.Minute
	// The fetches of River. A client sends one notification of a queue in the time of a cooldown, so what it inserts shortly after another job may wait
	// for the interval.
	fetchCooldown     = time.Millisecond
	fetchPollInterval = 250 * time.Millisecond
)

// Register adds to the configuration of a client of River what performs the runs: workers, the queues of the workflows, and the periodic jobs.
// FetchCooldown and FetchPollInterval are set to 1 ms and 250 ms if they are 0, and SkipUnknownJobCheck is set. Errors match [machine.ErrBadValue]; those of a graph are
// those of [kahn.Graph.Compile].
func (p *Performer) Register(config *river.Config) error {
	switch {
	case config == nil:
		return fmt.Errorf("%w: riverkahn: no river.Config", machine.ErrBadValue)
	case p.Store == nil:
		return fmt.Errorf("%w: riverkahn: a Performer without a Store", machine.ErrBadValue)
	case p.RecoverEvery < 0 || p.PruneEvery < 0:
		return fmt.Errorf("%w: riverkahn: RecoverEvery %v or PruneEvery %v is negative", machine.ErrBadValue, p.RecoverEvery, p.PruneEvery)
	case p.byQueue != nil:
		return fmt.Errorf("%w: riverkahn: the Performer is registered already", machine.ErrBadValue)
	}
	if err := p.checkRetention(); err != nil {
		return err
	}
	queues, err := p.queues()
	if err != nil {
		return err
	}
	err = register(config, queues, func(w *river.Workers) error {
		return errors.Join(river.AddWorkerSafely(w, &runWorker{p: p}), river.AddWorkerSafely(w, &recoverWorker{p: p}), river.AddWorkerSafely(w, &pruneWorker{p: p}))
	})
	if err != nil {
		return err
	}
	config.PeriodicJobs = append(slices.Clip(config.PeriodicJobs), p.periodic(orDefault(p.RecoverEvery, defaultRecover), RecoverArgs{}))
	if len(p.Retention) > 0 {
		config.PeriodicJobs = append(config.PeriodicJobs, p.periodic(orDefault(p.PruneEvery, defaultPrune), PruneArgs{}))
	}
	return nil
}

// register adds queues and workers to a configuration.
func register(config *river.Config, queues map[string]river.QueueConfig, add func(w *river.Workers) error) error {
	if config.Workers == nil {
		config.Workers = river.NewWorkers()
	}
	if err := add(config.Workers); err != nil {
		return err
	}
	all := map[string]river.QueueConfig{}
	maps.Copy(all, config.Queues)
	maps.Copy(all, queues)
	config.Queues = all
	config.SkipUnknownJobCheck = true // the jobs of steps may be worked by other processes than those of runs
	config.FetchCooldown = orDefault(config.FetchCooldown, fetchCooldown)
	config.FetchPollInterval = max(orDefault(config.FetchPollInterval, fetchPollInterval), config.FetchCooldown)
	return nil
}

// queues are those of the workflows, and that of the jobs that look after runs.
func (p *Performer) queues() (map[string]river.QueueConfig, error) {
	if p.Queue == "" {
		p.Queue = defaultQueue
	}
	byQueue, queues := map[string]*Workflow{}, map[string]river.QueueConfig{p.Queue: {MaxWorkers: 2}}
	for i := range p.Workflows {
		w := &p.Workflows[i]
		switch {
		case w.Graph == nil || w.Graph.Name == "":
			return nil, fmt.Errorf("%w: riverkahn: workflow %d has no graph with a name", machine.ErrBadValue, i+1)
		case w.MaxRuns < 0:
			return nil, fmt.Errorf("%w: riverkahn: workflow %s: MaxRuns %d is negative", machine.ErrBadValue, w.Graph.Name, w.MaxRuns)
		}
		plan, err := w.Graph.Compile()
		if err != nil {
			return nil, fmt.Errorf("riverkahn: workflow %s: %w", w.Graph.Name, err)
		}
		queue := QueueOf(plan.Name(), plan.Hash())
		if byQueue[queue] != nil {
			return nil, fmt.Errorf("%w: riverkahn: workflow %s is listed twice in one version", machine.ErrBadValue, w.Graph.Name)
		}
		most := w.MaxRuns
		if most == 0 {
			most = defaultMaxRuns
		}
		byQueue[queue], queues[queue] = w, river.QueueConfig{MaxWorkers: most}
	}
	p.byQueue, p.atWork = byQueue, map[*kahn.Run]bool{}
	return queues, nil
}

// periodic is a periodic job of River's leader, in the queue of the Performer.
func (p *Performer) periodic(every time.Duration, args river.JobArgs) *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(every), func() (river.JobArgs, *river.InsertOpts) {
		return args, &river.InsertOpts{Queue: p.Queue, MaxAttempts: 1}
	}, &river.PeriodicJobOpts{RunOnStart: true})
}

// client is the Client of the process whose River works a job.
func (p *Performer) client(ctx context.Context) Client {
	return Client{Store: p.Store, River: river.ClientFromContext[pgx.Tx](ctx)}
}

// enter notes a run that begins. One that begins after Stop is left at once.
func (p *Performer) enter(run *kahn.Run) {
	p.mu.Lock()
	p.atWork[run] = true
	over := p.over
	p.mu.Unlock()
	if over {
		run.Leave()
	}
}

func (p *Performer) leave(run *kahn.Run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.atWork, run)
}

// Stop stops the client of River, and leaves the runs at work: steps that are being performed end, no further one begins, and other processes go
// on with the runs. When ctx ends first, the contexts of the steps end, see [kahn.Runner.Shutdown]; Stop then waits for them and returns the cause. The client's own
// Stop waits until the runs come to rest, and its StopAndCancel interrupts them like Stop under a context that has ended.
func (p *Performer) Stop(ctx context.Context, client *river.Client[pgx.Tx]) error {
	p.mu.Lock()
	p.over = true
	runs := slices.Collect(maps.Keys(p.atWork))
	p.mu.Unlock()
	for _, run := range runs {
		run.Leave()
	}
	err := client.Stop(ctx)
	if err != nil && ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), client.StopAndCancel(context.WithoutCancel(ctx)))
	}
	return err
}
