package kahn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/seed-c794f7ef/kahn/store"
)

// Service describes the store and the workflows for [Runner.Serve].
type Service struct {
	// Store contains the runs. Serve performs each run with the option [Durable] for this store. Serve returns [ErrBadOption] if the Runner or a
	// Workflow has a Durable for another store.
	Store store.QueueStore
	// Workflows lists the workflows that this process performs. It may contain several versions of a workflow: their graphs have the same name. The
	// version whose plan has the run's stored hash performs the run, see [Plan.Hash]. The first version performs the runs that were created without
	// a hash.
	Workflows []Workflow
	// Poll is the time between two queries for due runs. Serve queries earlier if it knows that a run becomes due, if a run has ended, or if a
	// request is posted. If the store notifies, see [store.DueNotifier], Serve also queries when another process has created a run. Otherwise Serve
	// finds the new runs of other processes only at its next query. Zero means 50 ms, or 10 s for a store that notifies. A negative Poll is
	// refused.
	Poll time.Duration
	// KeyRuns is the largest number of runs with the same key, see [RunKey], that may be leased at once. It bounds all processes that serve the store
	// together, so each of them should set the same bound. If KeyRunsOf is set, its result for a key is the bound for that key; the bound is 1 if
	// KeyRunsOf panics or returns a negative number. All calls of KeyRunsOf come from one goroutine. Zero means no bound. Runs without a key have no
	// bound. Serve checks the bound when it acquires a lease. A run counts until its lease is released or expires, even if its process has died. A
	// run that is at rest or due does not count. While a key has reached its bound, its other runs stay due. The Store must be a [store.TurnStore].
	KeyRuns   int
	KeyRunsOf func(key string) int
	// RestAfter is the longest time for which Serve keeps a run that has nothing to do. If more than this time remains until the run's next
	// backoff, pause, [SuspendUntil] or deadline ends, Serve leaves the run at once. When the run is due, this process or another one continues it.
	// Until then the run does not count towards MaxRuns, and costs one row in the store. Zero means 5 s. If RestAfter is negative, Serve leaves no
	// run for this reason. Serve also keeps a run if a Timeout bounds one of its composites, or if the run's rates will not have all their tokens
	// again when the run is due.
	RestAfter time.Duration
	// Admit, unless it is nil, is called before a run begins, while Serve holds the run's lease. If Admit returns a Request, this Request cancels
	// the run: no node is performed, not even a cleanup node or the end node. If Admit changes the labels of r, the store keeps the changed labels.
	// If Admit fails or panics, the run does not begin, and Serve tries it again later. Serve calls Admit from several goroutines. Until the run
	// has begun, this process or another one may call Admit for it again. ctx ends with the lease.
	Admit func(ctx context.Context, r *store.Run) (*Request, error)
	// Retention determines which ended runs Serve removes, together with their events. If it is empty, Serve removes no runs. Each process removes
	// runs in batches, at intervals of PruneEvery; zero means 1 min. All processes should set the same Retention. Before Serve returns, it waits
	// for the end of the current batch.
	Retention  []store.Retention
	PruneEvery time.Duration
	// Blobs is the blob store of the runs' codec. When Serve removes runs, it also removes the blobs to which no run refers any longer: see
	// [store.PruneQuery].
	Blobs store.BlobSweeper
	// OnError is called with each error that prevents runs from continuing. For example, a run cannot begin, Serve cannot read a request for a run,
	// no live process performs the runs of a workflow or a plan, the store does not answer, or another process has the same name, see [Lease]. The
	// error matches [ErrStore], [ErrUnclaimable], [ErrUndecoded] or [store.ErrOwnerInUse], or is an error of [Start] or KeyRunsOf. If an error
	// persists, OnError is called again after some time. Serve calls OnError from several goroutines. The argument run is the id of the run, or ""
	// if the error concerns no single run. The argument q is the run's queue, or zero if the error concerns no single queue. The text of err
	// contains the id and the queue. If OnError is nil, [slog.Default] logs the error as a warning.
	//
	// In each call of Serve, OnError is also called once with each warning about a version of a workflow. [Result.Warnings] contains the same
	// warnings. They concern a Key or a Memo that no option uses, times without a unit, and gates ([ErrGateOutlasts]). They include the warnings of
	// [Plan.Warnings], except warnings about triggers. OnError is also called once for each setting that has no effect, for example a KeyLimit if
	// no node has a Key. The text of each warning contains "warning".
	OnError func(run string, q store.Queue, err error)
}

// Workflow is a version of a workflow.
type Workflow struct {
	Graph *Graph
	// Step performs the nodes that have no Do.
	Step StepFunc
	// Options are the options of the workflow's runs. They are applied after Runner.Options. Serve refuses options for a single run: [RunID],
	// [Inputs], [Fire], [EarlySignals], [Resume], [Redrive] and [Fork]. It also refuses options that would change nothing: [AllowGraphChange],
	// [CancelWithContext], [Idempotent], [Describe], [RunKey] and [RunPriority].
	Options []Option
	// MaxRuns is the largest number of runs of the workflow that this process performs at the same time. The MaxRuns of the Runner also applies.
	// Other workflows can use the rest of the Runner's MaxRuns. Further runs of this workflow stay due, so that other processes can perform them.
	// Zero means no bound. All versions of a workflow share one bound; different or negative bounds are refused. If the name of the workflow is the
	// key of runs, see [RunKey], MaxRuns also bounds these runs in all processes together, like Service.KeyRuns.
	MaxRuns int
}

// ErrUnclaimable is matched by the error that Serve reports if runs have not ended and no live process performs their workflow and plan: see
// [store.Unclaimable].
var ErrUnclaimable = errors.New("no live process performs its runs")

const (
	defaultPoll = 50 * time.Millisecond
	// behindNotifier is the default Poll for a store that notifies of due runs.
	behindNotifier   = 10 * time.Second
	defaultRestAfter = 5 * time.Second
	// calmPause is the least time between two queries that notifications of a store cause.
	calmPause = 20 * time.Millisecond
	// reportPause is the time between two reports of the same unclaimable queue.
	reportPause = time.Minute
	// defaultPrune is the time between two removals of runs.
	defaultPrune = time.Minute
	// keyPause is the longest time between two queries while a key has reached its bound, since another process may free a place.
	keyPause = 500 * time.Millisecond
	// restPause is the time for which Serve ignores a run that has come to rest, since the clock of this process may be behind the store's clock.
	restPause = defaultPoll
	// startsAtOnce is the number of runs that are started together, so that a store can write their leases in one transaction.
	startsAtOnce = 8
)

// Serve performs the runs of a store: first all due runs, see [store.QueueStore], then each run when it becomes due. Runs with a higher
// [RunPriority] begin first. Among runs of the same priority, keys take turns; otherwise the run that has been due longest begins first. Serve
// performs at most MaxRuns runs at a time. Any number of processes may serve one store, but only one at a time performs a run. If this process
// dies, another process continues the run after the lease has expired. Serve ignores runs of workflows and plans that are not in s.Workflows.
// docs/durable.md describes how runs come to rest, and how Serve retries runs that could not begin.
//
// After [Runner.Shutdown], which leaves the runs, Serve returns nil. If ctx ends first, Serve returns ctx's cause, and the runs that it has begun
// continue until Shutdown: their contexts contain the values of ctx, but do not end with it. If a graph or an option is invalid, Serve performs
// nothing, and returns the error of [Graph.Compile] or [Start]. It returns [ErrBadOption] for an invalid Service, for example without a Store or
// Workflows, with a Poll other than 0 that is below 1 ms, with the same version twice, with two owners, or with an option for a single run. The error
// matches [ErrStore] if the store can no longer be used, see [ErrUnusable]. It also matches [store.ErrNewerSchema] if a newer program has migrated
// the schema; Serve returns this error when the runs that it has begun have ended or are at rest.
func (rn *Runner) Serve(ctx context.Context, s Service) error {
	if ctx == nil {
		return ErrNoContext
	}
	v, err := rn.newServing(ctx, s)
	if err != nil {
		return err
	}
	v.warnOfPlans(s.Workflows)
	over := rn.shutdownBegun()
	defer v.withdraw()
	defer v.startRetaining(ctx)()
	stop, err := v.watchRequests()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	defer stop()
	for {
		wait, err := v.turn(ctx)
		if errors.Is(err, ErrUnusable) {
			return fmt.Errorf("%w: %w", ErrStore, err)
		}
		if v.outdated != nil && v.held.Load() == 0 {
			return fmt.Errorf("%w: %w", ErrStore, v.outdated)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return bounded(context.Cause(ctx))
		case <-over:
			timer.Stop()
			return nil
		case <-v.wake:
			timer.Stop()
			v.takeAt = time.Time{}
		case <-v.told:
			timer.Stop()
			// After a notification, Serve queries as soon as v.calm has passed since the last query. Without this pause, other processes that keep
			// creating runs would cause a query for each run.
			if at := v.tookAt.Add(v.calm); at.Before(v.takeAt) {
				v.takeAt = at
			}
		case <-timer.C:
		}
	}
}

// shutdownBegun returns a channel that Shutdown closes.
func (rn *Runner) shutdownBegun() <-chan struct{} {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if rn.over == nil {
		if rn.over = make(chan struct{}); rn.closed {
			close(rn.over)
		}
	}
	return rn.over
}

// The method `free` returns the number of runs that may begin now, at most `most`.
func (rn *Runner) free(most int) int {
	if rn.MaxRuns == 0 {
		return most
	}
	rn.mu.Lock()
	defer rn.mu.Unlock()
	return min(most, rn.MaxRuns-rn.active-rn.queue.Len()-len(rn.reserved))
}

// The type `serving` is the state of one call of Serve. Its loop runs on the caller's goroutine. A separate goroutine starts each run, and waits
// for the end of the run.
type serving struct {
	rn        *Runner
	base      context.Context // the context of the runs
	service   Service
	versions  map[store.Queue]*version
	loads     map[string]*workload // by workflow
	announced store.Announcement
	turns     store.TurnStore // nil if the store does not implement store.TurnStore
	bounded   bool            // whether keys have bounds
	limited   bool            // whether the Runner or an option bounds the attempts of each key
	keyed     bool            // whether a node of the workflows has a key

	// Only the loop uses the fields below.
	announceAt time.Time     // when the next announcement is due
	reportAt   time.Time     // when unclaimable queues are reported next
	takeAt     time.Time     // when due runs are queried next
	calm       time.Duration // the least time between two queries that notifications cause
	tookAt     time.Time     // when due runs were queried last
	refused    bool          // whether the last announcement was refused because the owner is in use
	outdated   error         // not nil if the store's schema is newer than this program; then no more runs are started
	failures   int           // the number of successive failures of the store
	keysAt     time.Time     // when a failing KeyRunsOf is reported next
	keyless    bool          // whether the warning about a run without a key was reported

	held  atomic.Int64  // the number of runs that this Serve is starting or performing
	wake  chan struct{} // signalled when a run has ended or could not begin
	told  chan struct{} // signalled when the store has notified of a request or a run
	apart deferrals
}

// version is a compiled Workflow.
type version struct {
	plan *Plan
	Workflow
	*workload
	warnings []error     // about the plan
	outlasts atomic.Bool // whether a gate with a deadline beyond the run's Timeout was reported
}

// workload counts the runs of a workflow, in all versions, that this process is starting or performing.
type workload struct {
	most int // 0 means no bound
	now  atomic.Int64
}

// The method `room` returns the number of runs of the workflow that may begin now, at most `most`.
func (l *workload) room(most int) int {
	if l.most == 0 {
		return most
	}
	return min(most, l.most-int(l.now.Load()))
}

// newServing checks a Service.
func (rn *Runner) newServing(ctx context.Context, s Service) (*serving, error) {
	notifier, ok := s.Store.(store.DueNotifier)
	notifies := ok && notifier.NotifiesDue()
	switch {
	case s.Store == nil:
		return nil, fmt.Errorf("%w: Serve: Service.Store is nil", ErrBadOption)
	case len(s.Workflows) == 0:
		return nil, fmt.Errorf("%w: Serve: Service.Workflows is empty", ErrBadOption)
	case s.Poll < 0:
		return nil, fmt.Errorf("%w: Serve: Poll %v is negative", ErrBadOption, s.Poll)
	case s.KeyRuns < 0:
		return nil, fmt.Errorf("%w: Serve: KeyRuns %d is negative", ErrBadOption, s.KeyRuns)
	case s.PruneEvery < 0:
		return nil, fmt.Errorf("%w: Serve: PruneEvery %v is negative", ErrBadOption, s.PruneEvery)
	case unitless(s.Poll):
		return nil, tooShort("Poll", s.Poll)
	case unitless(s.PruneEvery):
		return nil, tooShort("PruneEvery", s.PruneEvery)
	case unitless(s.RestAfter):
		return nil, tooShort("RestAfter", s.RestAfter)
	case s.Poll == 0:
		s.Poll = defaultPoll
		if notifies {
			s.Poll = behindNotifier
		}
	}
	if err := store.CheckRetention(s.Retention); err != nil {
		return nil, fmt.Errorf("%w: Serve: %w", ErrBadOption, err)
	}
	switch {
	case s.RestAfter == 0:
		s.RestAfter = defaultRestAfter
	case s.RestAfter < 0:
		s.RestAfter = 0
	}
	v := &serving{
		rn: rn, base: context.WithoutCancel(ctx), service: s, versions: map[store.Queue]*version{}, loads: map[string]*workload{}, wake: make(chan struct{}, 1), told: make(chan struct{}, 1),
		bounded: s.KeyRuns > 0 || s.KeyRunsOf != nil, announced: store.Announcement{Process: machineAndProcess() + "/" + uuid.NewString()},
	}
	if notifies {
		v.calm = calmPause
	}
	host := byDefault[1]
	if err := host.apply(rn.Options); err != nil {
		return nil, err
	}
	if host.store != nil && !sameStore(host.store, s.Store) {
		return nil, fmt.Errorf("%w: Serve: the Runner has the option Durable of another store: Serve performs the runs in Service.Store", ErrBadOption)
	}
	for _, w := range s.Workflows {
		if err := v.add(w); err != nil {
			return nil, err
		}
	}
	v.turns, ok = s.Store.(store.TurnStore)
	if v.bounded && !ok {
		return nil, fmt.Errorf("%w: Serve: KeyRuns: %T does not implement store.TurnStore", ErrBadOption, s.Store)
	}
	for _, l := range v.loads {
		v.bounded = v.bounded || l.most > 0 && ok
	}
	return v, nil
}

// The function `unitless` reports whether a time is so short that the author probably forgot the unit, as in 30 for 30*time.Second.
func unitless(d time.Duration) bool { return 0 < d && d < time.Millisecond }

// tooShort returns the error for a time that is unitless.
func tooShort(name string, d time.Duration) error {
	return fmt.Errorf("%w: Serve: %s %v is below 1 ms; is its unit missing?", ErrBadOption, name, d)
}

// The method `add` adds a version of a workflow.
func (v *serving) add(w Workflow) error {
	p, err := w.Graph.Compile()
	if err != nil {
		return err
	}
	c, err := configure(v.rn.options(append(slices.Clone(w.Options), Durable(v.service.Store))), true)
	if err != nil {
		return err
	}
	if c.runID != "" || c.inputs != nil || c.fired != nil || c.from != nil || c.redrive || c.fork || c.signals != nil {
		return fmt.Errorf("%w: Serve: workflow %s has an option for a single run", ErrBadOption, quoteID(p.name))
	}
	if unitless(c.leaseTime) {
		return tooShort(fmt.Sprintf("workflow %s: Lease: the time", quoteID(p.name)), c.leaseTime)
	}
	of := v.loads[p.name]
	switch {
	case w.MaxRuns < 0:
		return fmt.Errorf("%w: Serve: workflow %s: MaxRuns %d is negative", ErrBadOption, quoteID(p.name), w.MaxRuns)
	case of == nil:
		of = &workload{most: w.MaxRuns}
		v.loads[p.name] = of
	case of.most != w.MaxRuns:
		return fmt.Errorf("%w: Serve: the versions of workflow %s have the MaxRuns %d and %d, but share one bound: give all versions the same MaxRuns", ErrBadOption, quoteID(p.name), of.most, w.MaxRuns)
	}
	own := byDefault[1]
	if err := own.apply(w.Options); err != nil {
		return err
	}
	for _, refused := range []struct {
		name, mend string
		set        bool
	}{
		{"AllowGraphChange", "list both versions of the graph among the Workflows, or see Adopt", own.allowChange},
		{"CancelWithContext", "a run that is served has no caller; see CancelOnShutdown", own.ctxCancels},
		{"Durable", "Serve performs the runs in Service.Store", own.store != nil && !sameStore(own.store, v.service.Store)}, // the same store does no harm
		{"Idempotent", "runs in a store are created once for each RunID", own.idempotency != nil},
		{"Describe", "runs are described when they are created, see Prepare", own.spec != nil && own.spec.Key == "" && own.spec.Priority == 0},
		{"RunKey or RunPriority", "runs have them when they are created, see Prepare", own.spec != nil},
	} {
		if refused.set {
			return fmt.Errorf("%w: Serve: workflow %s has the option %s, which changes nothing here: %s", ErrBadOption, quoteID(p.name), refused.name, refused.mend)
		}
	}
	r := newRun(p, c)
	r.stepless = w.Step == nil
	if err := r.checkPerformers(p, nil); err != nil {
		return err
	}
	plans, err := p.withPruned()
	if err != nil {
		return err
	}
	x := &version{plan: p, Workflow: w, workload: of, warnings: c.warnings(p)}
	for _, part := range plans {
		q := store.Queue{Workflow: p.name, Plan: part.Hash()}
		if other := v.versions[q]; other != nil && other != x {
			return fmt.Errorf("%w: Serve: workflow %s is listed twice with the plan %s", ErrBadOption, quoteID(q.Workflow), q.Plan)
		}
		v.versions[q] = x
		v.announced.Queues = append(v.announced.Queues, q)
	}
	if any := (store.Queue{Workflow: p.name}); p.name != "" && v.versions[any] == nil {
		v.versions[any] = x
		v.announced.Queues = append(v.announced.Queues, any)
	}
	if c.owner != "" {
		if other := v.announced.Owner; other != "" && other != c.owner {
			return fmt.Errorf("%w: Serve: the workflows have the owners %s and %s, but a process has only one", ErrBadOption, quoteID(other), quoteID(c.owner))
		}
		v.announced.Owner = c.owner
	}
	v.announced.TTL = max(v.announced.TTL, c.leaseTime)
	v.limited = v.limited || c.keyLimit > 0 || c.keyRate != Rate{} || c.pool.boundsKeys()
	v.keyed = v.keyed || p.keyed != nil
	return nil
}

// The method `turn` performs the due tasks of the loop: it announces the queues of this process, reports unclaimable queues, and starts due runs. It
// returns how long the loop may wait. If a task fails before ctx ends, `turn` reports the error to the host, and also returns it.
func (v *serving) turn(ctx context.Context) (wait time.Duration, err error) {
	now := time.Now()
	if v.outdated == nil && !now.Before(v.announceAt) {
		err = v.announce(ctx, now)
	}
	if v.outdated != nil { // the loop takes no more runs; it wakes when a run ends
		return reportPause, nil
	}
	if err == nil && !v.refused && !now.Before(v.reportAt) {
		v.reportAt = now.Add(reportPause)
		err = v.reportUnclaimable(ctx)
	}
	if err == nil && !v.refused && !now.Before(v.takeAt) {
		v.tookAt = now
		wait, err = v.take(ctx)
		v.takeAt = time.Now().Add(wait)
	}
	if err != nil && ctx.Err() == nil {
		v.failures++
		v.takeAt = now
		v.report("", store.Queue{}, fmt.Errorf("%w: %w", ErrStore, err))
		return retryPause(v.failures), err
	}
	v.failures = 0
	next := v.announceAt
	if !v.refused {
		next = slices.MinFunc([]time.Time{next, v.reportAt, v.takeAt}, time.Time.Compare)
	}
	return max(time.Until(next), time.Millisecond), nil
}

// startRetaining removes ended runs on a separate goroutine, as the Retention determines. The returned function stops that goroutine
// and waits until it has ended.
func (v *serving) startRetaining(ctx context.Context) (end func()) {
	if len(v.service.Retention) == 0 {
		return func() {}
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		v.retain(ctx)
	}()
	return func() {
		stop()
		<-done
	}
}

// retain removes runs periodically. Its first wait is random, so that processes that began together do not remove runs at the same time.
func (v *serving) retain(ctx context.Context) {
	every := cmp.Or(v.service.PruneEvery, defaultPrune)
	for timer := time.NewTimer(rand.N(every)); ; timer.Reset(every) {
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		err := guarded(func() error { return store.Retain(ctx, v.service.Store, v.service.Retention, v.service.Blobs) })
		if err != nil && ctx.Err() == nil {
			v.report("", store.Queue{}, fmt.Errorf("%w: remove runs: %w", ErrStore, err))
		}
	}
}

// watchRequests wakes the loop when a request is posted for a run, since the request makes a run at rest due.
func (v *serving) watchRequests() (stop func(), err error) {
	in, ok := v.service.Store.(store.Inbox)
	if !ok {
		return func() {}, nil
	}
	var end func()
	err = guarded(func() error {
		end = in.WatchRequests("", func(run string) {
			v.apart.request(run)
			signalOnce(v.told)
		})
		return nil
	})
	return func() {
		if err := guarded(func() error { end(); return nil }); err != nil {
			v.report("", store.Queue{}, fmt.Errorf("%w: the watch of requests: %w", ErrStore, err))
		}
	}, err
}

// look wakes the loop.
func (v *serving) look() { signalOnce(v.wake) }

func signalOnce(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // a wake-up of the loop is already pending
	}
}

// The method `announce` registers the queues of this process in the store. The loop calls `announce` again after a third of the TTL.
func (v *serving) announce(ctx context.Context, now time.Time) error {
	err := guarded(func() error { return v.service.Store.Announce(ctx, v.announced) })
	if errors.Is(err, store.ErrNewerSchema) {
		v.outdated = fmt.Errorf("no more runs begin here, and Serve returns when its runs have ended: %w", err)
		v.report("", store.Queue{}, v.outdated)
		return nil
	}
	was := v.refused
	if v.refused = errors.Is(err, store.ErrOwnerInUse); v.refused {
		v.announceAt = now.Add(min(leastRetry, v.announced.TTL/3))
		if !was || !now.Before(v.reportAt) {
			v.reportAt = now.Add(reportPause)
			v.report("", store.Queue{}, err)
		}
		return nil
	}
	if err == nil {
		v.announceAt = now.Add(v.announced.TTL / 3)
	}
	if was {
		v.reportAt = now
	}
	return err
}

// The method `withdraw` removes the queues that the method `announce` has registered.
func (v *serving) withdraw() {
	ctx, cancel := context.WithTimeout(v.base, v.announced.TTL)
	defer cancel()
	err := guarded(func() error {
		return v.service.Store.Announce(ctx, store.Announcement{Process: v.announced.Process})
	})
	// The errors of an outdated schema and of an unusable store are not reported here, since Serve returns them.
	if err != nil && v.outdated == nil && !errors.Is(err, ErrUnusable) {
		v.report("", store.Queue{}, fmt.Errorf("%w: %w", ErrStore, err))
	}
}

// reportUnclaimable reports the queues whose runs no live process performs.
func (v *serving) reportUnclaimable(ctx context.Context) error {
	var list []store.QueueState
	err := guarded(func() (err error) {
		list, err = store.Unclaimable(ctx, v.service.Store)
		return err
	})
	for _, q := range list {
		since := ""
		if !q.Served.IsZero() {
			since = " since " + q.Served.Format(time.RFC3339)
		}
		v.report("", q.Queue, fmt.Errorf("%w%s: unended runs: %d", ErrUnclaimable, since, q.Runs))
	}
	return err
}

// The method `take` starts due runs until no run is due or MaxRuns runs are running, and returns how long to wait before the next query.
func (v *serving) take(ctx context.Context) (wait time.Duration, err error) {
	wait = v.service.Poll*9/10 + rand.N(v.service.Poll/5+1) // a random pause, so that processes that began together do not query together
	for ctx.Err() == nil {
		except, starting, pause := v.apart.except(wait)
		wait = pause
		most := v.rn.free(store.DefaultPage) - starting
		if most <= 0 {
			return wait, nil // the end of a run also ends the wait
		}
		queues, most := v.open(most)
		if len(queues) == 0 {
			return wait, nil // the end of a run also ends the wait
		}
		keys, err := v.leasedKeys(ctx)
		if err != nil {
			return wait, err
		}
		if len(keys.full) > 0 {
			wait = min(wait, keyPause)
		}
		var page store.DuePage
		err = guarded(func() (err error) {
			page, err = v.service.Store.Due(ctx, store.DueQuery{Queues: queues, Except: except, Full: keys.full, Limit: most})
			return err
		})
		if err != nil {
			return wait, err
		}
		if page.Next > 0 {
			wait = min(wait, page.Next)
		}
		if started := v.start(v.turnsOf(page.Keyed, v.fitting(page.Runs, &keys))); started == 0 || page.Next != 0 {
			return wait, nil
		}
	}
	return wait, nil
}

// The method `open` returns the queues of the workflows for which more runs may begin. It also returns the number of runs that may begin in total,
// at most `most`.
func (v *serving) open(most int) (queues []store.Queue, runs int) {
	full, room := false, 0
	for _, l := range v.loads {
		n := l.room(most)
		full, room = full || n <= 0, min(most, room+max(n, 0))
	}
	if !full {
		return v.announced.Queues, room
	}
	for _, q := range v.announced.Queues {
		if v.loads[q.Workflow].room(1) > 0 {
			queues = append(queues, q)
		}
	}
	return queues, room
}

// leasedKeys contains the number of leased runs of each key, in all processes, and the keys that have reached their bounds.
type leasedKeys struct {
	runs map[string]int
	full []string // sorted
}

// leasedKeys asks the store how many runs of each key are leased, if keys have bounds.
func (v *serving) leasedKeys(ctx context.Context) (k leasedKeys, err error) {
	if !v.bounded {
		return k, nil
	}
	err = guarded(func() (err error) {
		k.runs, err = v.turns.LeasedKeys(ctx)
		return err
	})
	for _, key := range slices.Sorted(maps.Keys(k.runs)) {
		if most := v.mostOf(key); most > 0 && k.runs[key] >= most {
			k.full = append(k.full, key)
		}
	}
	return k, err
}

// mostOf returns how many runs of a key may be leased at once; 0 means any number.
func (v *serving) mostOf(key string) (most int) {
	if key == "" || !v.bounded {
		return 0
	}
	if most = v.service.KeyRuns; v.service.KeyRunsOf != nil {
		err := contain(func() error { most = v.service.KeyRunsOf(key); return nil })
		if err == nil && most < 0 {
			err = fmt.Errorf("%w: the result %d is negative", ErrBadOption, most)
		}
		if err != nil { // if KeyRunsOf fails, at most one run of the key may be leased at a time
			if most = 1; !time.Now().Before(v.keysAt) {
				v.keysAt = time.Now().Add(reportPause)
				v.report("", store.Queue{}, fmt.Errorf("KeyRunsOf(%s): %w", quoteID(key), bounded(err)))
			}
		}
	}
	if l := v.loads[key]; l != nil && l.most > 0 && (most == 0 || l.most < most) {
		most = l.most
	}
	return most
}

// The method `fitting` removes from a page the runs that would exceed the bounds of their workflows or keys.
func (v *serving) fitting(runs []store.Run, keys *leasedKeys) []store.Run {
	taken, ofKey := map[*workload]int{}, map[string]int{}
	return slices.DeleteFunc(runs, func(r store.Run) bool {
		if most := v.mostOf(r.Key); most > 0 {
			if keys.runs[r.Key]+ofKey[r.Key] >= most {
				return true
			}
			ofKey[r.Key]++
		}
		l := v.loads[r.Workflow]
		if l == nil || l.most == 0 {
			return false
		}
		taken[l]++
		return taken[l] > l.room(taken[l])
	})
}

// dueRun is a run to start. Since keys take turns, the start of the run also records a turn of the run's key: see [store.TurnStore].
type dueRun struct {
	store.Run
	turn *keyTurn // nil if turns are not recorded
}

// turnsOf adds to each run the turn of the run's key. The parameter `keyed` is true if a run of the queues has a key. If no run has a key, turns
// make no difference, and turnsOf adds none. If KeyRuns is set, turnsOf also warns once about a run without a key.
func (v *serving) turnsOf(keyed bool, runs []store.Run) []dueRun {
	list := make([]dueRun, len(runs))
	for i := range runs {
		if runs[i].Key == "" && v.service.KeyRuns > 0 && !v.keyless {
			v.keyless = true
			v.say(runs[i].ID, runs[i].Queue(), fmt.Errorf("serve: warning: %w: KeyRuns does not bound run %s: it has no key, see RunKey", ErrBadOption, quoteID(runs[i].ID)), "a served run has a warning")
		}
		if list[i].Run = runs[i]; keyed && v.turns != nil {
			list[i].turn = &keyTurn{v.turns, store.Turn{Key: runs[i].Key, Most: v.mostOf(runs[i].Key)}}
		}
	}
	return list
}

// The method `start` starts runs in batches of startsAtOnce, and returns how many runs have begun so far. Other processes may be starting runs of
// the same page. So if another process has leased one of the runs, `start` skips a random number of the following runs, to avoid further conflicts.
func (v *serving) start(runs []dueRun) (started int) {
	for i := 0; i < len(runs); {
		some := runs[i:min(i+startsAtOnce, len(runs))]
		i += len(some)
		results := make(chan error, len(some))
		for j := range some {
			v.held.Add(1)
			if l := v.loads[some[j].Workflow]; l != nil {
				l.now.Add(1)
			}
			go v.perform(&some[j], v.apart.begin(some[j].ID), results)
		}
		// The timer bounds the wait for the starts, since a function given to Around may take long.
		patience, leased := time.NewTimer(min(v.service.Poll, defaultPoll)), false
	waiting:
		for range some {
			select {
			case err := <-results:
				leased = leased || errors.Is(err, ErrLeased)
				if err == nil {
					started++
				}
			case <-patience.C:
				break waiting
			}
		}
		if patience.Stop(); leased {
			i += rand.IntN(len(runs) - i + 1)
		}
	}
	return started
}

// errNotBegun is the result of a start if code of the host has called Goexit during the start.
var errNotBegun = errors.New("the goroutine was ended before the run has begun")

// The method `perform` starts a run, sends the result of the start to the channel `begun`, and waits for the run's end. The parameter `failures` is
// the number of the run's successive failures.
func (v *serving) perform(r *dueRun, failures int, begun chan<- error) {
	defer v.look()
	defer v.held.Add(-1)
	if l := v.loads[r.Workflow]; l != nil {
		defer l.now.Add(-1)
	}
	var run *Run
	err := errNotBegun
	func() {
		defer func() { // deferred, in case a function of Around calls Goexit
			v.begun(&r.Run, failures, err)
			begun <- err
		}()
		run, err = v.begin(r)
	}()
	if err != nil {
		return
	}
	<-run.Done()
	res, err := run.Wait()
	v.warnOfGates(v.versions[r.Queue()], res)
	switch {
	case errors.Is(err, ErrStore):
		v.fail(&r.Run, failures, err)
	case errors.Is(err, ErrUndecoded): // the run stays due, since the request is still waiting
		v.fail(&r.Run, failures, err)
		v.apart.untilRequest(r.ID)
	case res.Status == RunSuspended && time.Duration(run.dozes) <= restPause:
		v.apart.pause(r.ID, 0, restPause)
	}
}

// The method `begin` starts a run with the plan that has the run's hash.
func (v *serving) begin(r *dueRun) (*Run, error) {
	x := v.versions[r.Queue()]
	if x == nil {
		return nil, fmt.Errorf("%w: Due has returned a run of a queue that it was not asked for", ErrStore)
	}
	opts := slices.Concat(x.Options, []Option{Durable(v.service.Store), RunID(r.ID), optionFunc(func(c *config) error {
		c.served, c.restAfter, c.report = true, v.service.RestAfter, func(err error) { v.report(r.ID, r.Queue(), err) }
		c.dueAt, c.admission, c.turn = r.WakeAt, v.service.Admit, r.turn
		return nil
	})})
	return x.plan.Start(v.base, x.Step, v.rn.options(opts)...)
}

// The list `quiet` contains errors that Serve does not report if a start returns them. Most of them mean that another process was first, or that
// the clock of this process is behind.
var quiet = []error{ErrLeased, store.ErrKeyFull, ErrDuplicateRun, ErrFinished, ErrNotDue, ErrShutdown, ErrUnknownRun}

// The method `begun` handles the result of a start.
func (v *serving) begun(r *store.Run, failures int, err error) {
	switch {
	case err == nil:
		v.apart.begun(r.ID)
	case !errors.Is(err, store.ErrOwnerInUse) && slices.ContainsFunc(quiet, func(q error) bool { return errors.Is(err, q) }):
		v.apart.pause(r.ID, 0, restPause)
	default:
		v.fail(r, failures, err)
	}
}

// The method `fail` reports a run that could not continue. Each successive failure defers the run for a longer time.
func (v *serving) fail(r *store.Run, failures int, err error) {
	v.apart.pause(r.ID, failures+1, retryPause(failures+1))
	v.report(r.ID, r.Queue(), err)
}

// warnOfPlans reports the warnings about the plans. It also reports a group of Runner.Shared that no graph declares, a KeyLimit or KeyRate if no
// node has a Key, and a Retention for a workflow that is not served.
func (v *serving) warnOfPlans(list []Workflow) {
	groups := map[string]bool{}
	for _, w := range list {
		p, _ := w.Graph.Compile() // the method `add` has already checked the error
		q := store.Queue{Workflow: p.name, Plan: p.Hash()}
		for _, warning := range v.versions[q].warnings {
			v.warn(q, warning)
		}
		for plans := []*Plan{p}; len(plans) > 0; {
			of := plans[len(plans)-1]
			plans = slices.AppendSeq(plans[:len(plans)-1], maps.Values(of.subs))
			for i := range of.groups {
				groups[of.groups[i].Name] = groups[of.groups[i].Name] || !of.groups[i].key && !of.groups[i].inherited
			}
		}
	}
	if shared := v.rn.Shared; shared != nil {
		known := slices.Sorted(maps.Keys(groups))
		known = slices.DeleteFunc(known, func(name string) bool { return !groups[name] })
		for _, g := range shared.Groups {
			if !groups[g.Name] {
				v.say("", store.Queue{}, fmt.Errorf("serve: warning: %w: group %s of Runner.Shared bounds nothing, unless steps return graphs: no graph of the workflows declares it%s",
					ErrBadOption, quoteID(g.Name), didYouMean(g.Name, known)), "a served workflow has a warning")
			}
		}
	}
	if v.limited && !v.keyed {
		v.say("", store.Queue{}, fmt.Errorf("serve: warning: %w: KeyLimit or KeyRate bounds nothing, unless steps return graphs: no node of the workflows has a Key", ErrBadOption),
			"a served workflow has a warning")
	}
	served := slices.Sorted(maps.Keys(v.loads))
	for i, r := range v.service.Retention {
		if r.Workflow != "" && !slices.Contains(served, r.Workflow) {
			v.say("", store.Queue{}, fmt.Errorf("serve: warning: %w: Retention %d is for runs of workflow %s, which is not served%s", ErrBadOption, i+1, quoteID(r.Workflow),
				didYouMean(r.Workflow, served)), "a retention has a warning")
		}
	}
}

// warnOfGates reports that a gate outlasts its run, once for each version of a workflow.
func (v *serving) warnOfGates(x *version, res *Result) {
	if i := slices.IndexFunc(res.Warnings, func(w error) bool { return errors.Is(w, ErrGateOutlasts) }); i >= 0 && !x.outlasts.Swap(true) {
		v.warn(store.Queue{Workflow: x.plan.name, Plan: x.plan.Hash()}, res.Warnings[i])
	}
}

func (v *serving) warn(q store.Queue, warning error) {
	v.say("", q, fmt.Errorf("serve workflow %s, plan %s: warning: %w", quoteID(q.Workflow), quoteID(q.Plan), warning), "a served workflow has a warning")
}

// The method `report` passes the error to the host.
func (v *serving) report(run string, q store.Queue, err error) {
	switch {
	case run != "":
		err = fmt.Errorf("serve run %s: %w", quoteID(run), err)
	case q != store.Queue{}:
		err = fmt.Errorf("serve workflow %s, plan %s: %w", quoteID(q.Workflow), quoteID(q.Plan), err)
	default:
		err = fmt.Errorf("serve: %w", err)
	}
	v.say(run, q, err, "a stored run is not performed")
}

// say calls OnError. If OnError is nil, `say` logs the error with the message.
func (v *serving) say(run string, q store.Queue, err error, message string) {
	tell := v.service.OnError
	if tell == nil {
		tell = func(_ string, _ store.Queue, err error) { slog.Warn(message, "error", err) }
	}
	if failed := contain(func() error { tell(run, q, err); return nil }); failed != nil {
		slog.Error("Service.OnError has failed", "error", failed, "unreported", err)
	}
}
