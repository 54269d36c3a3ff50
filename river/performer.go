package riverkahn

import (
	"cmp"
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
	"github.com/seed-c794f7ef/kahn/internal/owned"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
)

// Performer performs the runs of workflows in a process, as jobs of River. Its fields must not be changed after Register.
type Performer struct {
	// Store is the store of the runs, in the database of River's client. It is required.
	Store *postgres.Store
	// Workflows are the plans that the process performs. Keep a former version of a workflow in the list until its runs have ended.
	Workflows []Workflow
	// RecoverEvery is how often one of the processes looks for runs whose lease has run out because their process died or hangs. It then also
	// looks for steps whose process is silent, see [Remote]. Zero means 5 s. In every twelfth interval one of the processes also looks for due runs
	// that have no job, and for attempts of a [Remote] whose job is gone.
	RecoverEvery time.Duration
	// Retention says when runs that have ended are removed. If it is empty, no run is removed. PruneEvery is how often River's leader inserts a job
	// that removes runs and blobs. Zero means 1 min. All Performers should have the same values. If a process has only a [Server], also
	// register a Performer without Workflows. Otherwise nothing inserts this job while the client of this process is the leader.
	Retention  []Retention
	PruneEvery time.Duration
	// Blobs is the blob store of the runs' codec. If Retention is not empty, the Performer removes the blobs to which no run refers any more: see
	// [store.PruneQuery].
	Blobs store.BlobSweeper
	// Queue is the queue of the jobs that recover and remove runs. If it is empty, this is "kahn".
	Queue string

	byQueue map[string]*Workflow
	plans   []store.Queue // the plans of the Workflows, as the store names them
	owner   string        // the owner of leases that the options of the Workflows set; "" if they set none
	silent  chan struct{} // closed after the last announcement of the process; nil before Start
	mu      sync.Mutex    // guards the fields below
	atWork  map[*kahn.Run]bool
	over    bool // Stop was called
}

// Workflow is a plan that a process performs.
type Workflow struct {
	Graph *kahn.Graph // must have a Name
	Step  kahn.StepFunc
	// Options are the options of the plan's runs. The Performer adds kahn.Durable and kahn.RunID.
	Options []kahn.Option
	// MaxRuns is how many of the plan's runs the process performs at the same time. Zero means 100.
	MaxRuns int
}

const (
	defaultQueue   = "kahn"
	defaultMaxRuns = 100
	defaultRecover = 5 * time.Second
	defaultPrune   = time.Minute
	// These say how often River fetches jobs. In each cooldown a client sends at most one notification per queue. So if the client inserts two
	// jobs within one cooldown, River may find the second job only when it polls.
	fetchCooldown     = time.Millisecond
	fetchPollInterval = 250 * time.Millisecond
)

// upkeep is the configuration of the queue of the jobs that recover and remove runs.
var upkeep = river.QueueConfig{MaxWorkers: 2}

// The function `unitless` reports whether a time is so short that the author probably forgot the unit, as in 30 for 30*time.Second.
func unitless(d time.Duration) bool { return 0 < d && d < time.Millisecond }

// Register adds workers, queues and periodic jobs to the configuration of a client of River. If FetchCooldown is 0, Register sets it to 1 ms. If
// FetchPollInterval is 0, Register sets it to 250 ms. If FetchPollInterval is then shorter than FetchCooldown, Register sets it to FetchCooldown.
// Register also sets SkipUnknownJobCheck. An error matches [machine.ErrBadValue], or comes from [kahn.Graph.Compile].
func (p *Performer) Register(config *river.Config) error {
	switch {
	case config == nil:
		return fmt.Errorf("%w: riverkahn: the river.Config is nil", machine.ErrBadValue)
	case p.Store == nil:
		return fmt.Errorf("%w: riverkahn: the Store of the Performer is nil", machine.ErrBadValue)
	case p.RecoverEvery < 0 || p.PruneEvery < 0:
		return fmt.Errorf("%w: riverkahn: RecoverEvery %v or PruneEvery %v is negative", machine.ErrBadValue, p.RecoverEvery, p.PruneEvery)
	case unitless(p.RecoverEvery) || unitless(p.PruneEvery):
		return fmt.Errorf("%w: riverkahn: RecoverEvery %v or PruneEvery %v: is its unit missing?", machine.ErrBadValue, p.RecoverEvery, p.PruneEvery)
	case p.byQueue != nil:
		return fmt.Errorf("%w: riverkahn: the Performer is registered already", machine.ErrBadValue)
	}
	if err := store.CheckRetention(p.Retention); err != nil {
		return fmt.Errorf("riverkahn: %w", err)
	}
	queue := cmp.Or(p.Queue, defaultQueue)
	byQueue, queues, plans, err := p.queues()
	if err != nil {
		return err
	}
	queues[queue] = upkeep
	err = register(config, queues, func(w *river.Workers) error {
		return errors.Join(river.AddWorkerSafely(w, &runWorker{p: p}), river.AddWorkerSafely(w, &pruneWorker{p: p}))
	})
	if err != nil {
		return err
	}
	p.byQueue, p.plans, p.atWork = byQueue, plans, map[*kahn.Run]bool{}
	addRecovery(config, p.Store, queue, p.RecoverEvery)
	if len(p.Retention) > 0 {
		config.PeriodicJobs = append(slices.Clip(config.PeriodicJobs), periodic(queue, cmp.Or(p.PruneEvery, defaultPrune), pruneArgs{}))
	}
	return nil
}

// The function `register` adds queues and workers to a configuration.
func register(config *river.Config, queues map[string]river.QueueConfig, add func(w *river.Workers) error) error {
	if config.Workers == nil {
		config.Workers = river.NewWorkers()
	}
	if err := add(config.Workers); err != nil {
		return fmt.Errorf("%w: riverkahn: %w", machine.ErrBadValue, err)
	}
	all := map[string]river.QueueConfig{}
	maps.Copy(all, config.Queues)
	maps.Copy(all, queues)
	config.Queues = all
	config.SkipUnknownJobCheck = true // this client inserts jobs of steps, but the workers of these jobs may be in other processes
	config.FetchCooldown = cmp.Or(config.FetchCooldown, fetchCooldown)
	config.FetchPollInterval = max(cmp.Or(config.FetchPollInterval, fetchPollInterval), config.FetchCooldown)
	return nil
}

// The method `queues` returns the queues of the workflows: the workflow of each queue, River's configuration of each queue, and the plans.
func (p *Performer) queues() (byQueue map[string]*Workflow, queues map[string]river.QueueConfig, plans []store.Queue, err error) {
	byQueue, queues = map[string]*Workflow{}, map[string]river.QueueConfig{}
	for i := range p.Workflows {
		w := &p.Workflows[i]
		switch {
		case w.Graph == nil || w.Graph.Name == "":
			return nil, nil, nil, fmt.Errorf("%w: riverkahn: workflow %d needs a Graph with a Name", machine.ErrBadValue, i+1)
		case w.MaxRuns < 0:
			return nil, nil, nil, fmt.Errorf("%w: riverkahn: workflow %s: MaxRuns %d is negative", machine.ErrBadValue, w.Graph.Name, w.MaxRuns)
		}
		plan, err := w.Graph.Compile()
		if err == nil {
			err = checkRemote(plan, w.Step)
		}
		if err != nil {
			return nil, nil, nil, fmt.Errorf("riverkahn: workflow %s: %w", w.Graph.Name, err)
		}
		name := owned.Of(w.Options)
		if name != "" && p.owner != "" && name != p.owner {
			return nil, nil, nil, fmt.Errorf("%w: riverkahn: workflow %s: the lease owners are %q and %q, but a process has only one: give all workflows the same owner", machine.ErrBadValue, w.Graph.Name, p.owner, name)
		}
		p.owner = cmp.Or(p.owner, name)
		queue := QueueOf(plan.Name(), plan.Hash())
		if byQueue[queue] != nil {
			return nil, nil, nil, fmt.Errorf("%w: riverkahn: workflow %s is listed twice with the same plan", machine.ErrBadValue, w.Graph.Name)
		}
		most := w.MaxRuns
		if most == 0 {
			most = defaultMaxRuns
		}
		byQueue[queue], queues[queue] = w, river.QueueConfig{MaxWorkers: most}
		plans = append(plans, store.Queue{Workflow: plan.Name(), Plan: plan.Hash()})
	}
	return byQueue, queues, plans, nil
}

// The method `client` returns a Client with the Performer's Store and the River client that works the job with the context ctx.
func (p *Performer) client(ctx context.Context) Client {
	return Client{Store: p.Store, River: river.ClientFromContext[pgx.Tx](ctx)}
}

// The method `enter` records a run that begins. If Stop was called before, enter leaves the run at once.
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

// Stop stops the client of River, and leaves the runs: the process begins no further steps, and Stop waits for the running steps. Other processes
// continue the runs. If ctx ends before the steps end, Stop cancels their contexts, see [kahn.Runner.Shutdown]. It then still waits for the
// steps, and returns the cause of ctx's end. In contrast, the Stop of the client lets each run continue until the run ends, waits for a signal, or
// backs off or pauses for more than 5 s. The StopAndCancel of the client cancels the contexts of the steps at once.
func (p *Performer) Stop(ctx context.Context, client *river.Client[pgx.Tx]) error {
	if client == nil {
		return fmt.Errorf("%w: riverkahn: the client of River is nil", machine.ErrBadValue)
	}
	p.mu.Lock()
	p.over = true
	runs := slices.Collect(maps.Keys(p.atWork))
	p.mu.Unlock()
	for _, run := range runs {
		run.Leave()
	}
	err := client.Stop(ctx)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), client.StopAndCancel(context.WithoutCancel(ctx)))
	}
	if p.silent != nil && err == nil {
		<-p.silent
	}
	return err
}
