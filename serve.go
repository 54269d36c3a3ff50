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

// Service names the store and the workflows for [Runner.Serve].
type Service struct {
	// Store has the runs. Serve performs them with [Durable] of it, which takes precedence over a store in the options.
	Store store.QueueStore
	// Workflows lists the workflows that this process performs. It may have several versions of one, whose graphs have the same name: each run
	// is performed by the version whose plan has the hash that the run has in the store, see [Plan.Hash]. A run that was created without a
	// hash is performed by the first of them.
	Workflows []Workflow
	// Poll is the time between two questions to the store for runs that are due. Serve also asks when it knows that a run becomes due, when a
	// run has ended, when a request is posted, and, of a [store.DueNotifier], when another process has created a run. Zero means 50 ms, or 10 s for a
	// store that notifies; a negative Poll is refused. A run that another process creates begins up to this time later if the store does not notify.
	Poll time.Duration
	// KeyRuns bounds how many runs with the same key, see [RunKey], are leased at once, in all processes that serve the store: each process should have the
	// same bound. KeyRunsOf, unless it is nil, returns the bound of a key in its place, and is called with each key anew, from one goroutine. Zero means no
	// bound, and none holds for runs without a key. The bound is checked where the lease is taken, so a process that has died gives its places back when its leases
	// run out. A key whose runs rest or wait to be due has these places. Runs of a key that is full stay due. The Store has to be a [store.TurnStore].
	KeyRuns   int
	KeyRunsOf func(key string) int
	// RestAfter is how long a run without anything to do keeps its place. Where its next backoff, pause, [SuspendUntil] or deadline ends later than that, the run
	// is left, and continues here or in another process when it is due: meanwhile it is none of the MaxRuns, and costs a row in the store. Zero means 5 s;
	// negative: runs keep their places. A run whose composite is bounded by a Timeout, or whose rates would have fewer tokens by then than at the beginning of a
	// life, keeps its place, too.
	RestAfter time.Duration
	// Admit, unless it is nil, is asked about each run that is about to begin, with the lease of the run held. With a Request the run does not begin: it
	// ends cancelled by that request, and performs nothing, not even cleanup nodes and the end node. Labels that Admit changes are stored with the run.
	// After an error, a panic among them, the run is tried again later, like a run that cannot begin. Admit is called from several goroutines, and may
	// be called again for a run that has not begun, here or in another process; never for a run that has. ctx ends with the lease.
	Admit func(ctx context.Context, r *store.Run) (*Request, error)
	// Retention says which runs are removed when they have ended, with their events; none if it is empty. Each process removes them every PruneEvery, in
	// batches; zero means 1 min. Each process should have the same Retention. Serve waits for the batch that is being removed when it returns.
	Retention  []store.Retention
	PruneEvery time.Duration
	// Blobs is the blob store of the runs' codec, from which blobs are removed to which no run refers any more: see [store.PruneQuery].
	Blobs store.BlobSweeper
	// OnError gets each error that keeps runs from continuing: a run cannot begin, or its store did not answer; no live process performs the runs of a workflow or a
	// plan; a request of a run cannot be read; the store does not answer at all; another process has the same name, see [Lease]. The causes match [ErrStore],
	// [ErrUnclaimable], [ErrUndecoded] or [store.ErrOwnerInUse], or are errors of [Start]. OnError is called again after a while if the error persists, and from
	// several goroutines. run is the id of the run, "" if the error is about a queue or about the store; q is the queue of the run, zero if the error is about the
	// store. The text of err names both. Nil: the error is a warning of [slog.Default].
	OnError func(run string, q store.Queue, err error)
}

// Workflow is a version of a workflow.
type Workflow struct {
	Graph *Graph
	// Step performs the nodes that have no Do of their own.
	Step StepFunc
	// Options are the options of its runs, after Runner.Options. Options about one run alone are refused: [RunID], [Inputs], [Fire],
	// [EarlySignals], [Resume], [Redrive] and [Fork]; and so are options that would change nothing: [AllowGraphChange], [CancelWithContext],
	// [Idempotent], [Describe], [RunKey] and [RunPriority].
	Options []Option
	// MaxRuns bounds how many runs of the workflow this process performs at the same time, beside the MaxRuns of the Runner: the places that it
	// leaves are for other workflows, and its other runs stay due for other processes. Zero means no bound. All versions of a workflow share one
	// bound; different ones, and a negative one, are refused. If its runs have the name of the workflow as their key, see [RunKey], the bound holds
	// for them in all processes, as Service.KeyRuns does.
	MaxRuns int
}

// ErrUnclaimable reports runs of a workflow and plan, not ended, that no live process performs: see [store.Unclaimable].
var ErrUnclaimable = errors.New("no live process performs its runs")

const (
	defaultPoll = 50 * time.Millisecond
	// behindNotifier is the Poll of a store that notifies of runs that are due.
	behindNotifier   = 10 * time.Second
	defaultRestAfter = 5 * time.Second
	// calmPause is the time between two questions to a store that notifies of each run that others create.
	calmPause = 20 * time.Millisecond
	// reportPause is the time between two reports of the same unclaimable queue.
	reportPause = time.Minute
	// defaultPrune is the time between two removals of runs.
	defaultPrune = time.Minute
	// keyPause is the longest time between two questions to the store while a key is full: another process may free a place.
	keyPause = 500 * time.Millisecond
	// restPause is how long Serve does not take up a run that has come to rest: the clock of this process may be behind the store's.
	restPause = defaultPoll
	// startsAtOnce is how many runs are started at the same time, so that a store can write their leases in one transaction.
	startsAtOnce = 8
)

// Serve performs the runs of a store: first everything that is due, see [store.QueueStore], and then what becomes due, the longest due first, in turns of
// their keys, and no more than MaxRuns at a time. Any number of processes may serve one store: one of them performs each run, and when a process has died
// and its leases have run out, its runs continue in another process.
//
// Serve returns nil after [Runner.Shutdown], which leaves the runs, and the cause of ctx's end when ctx ends. Then the runs in flight continue until
// Shutdown. Their contexts have the values of ctx, not its end. A run that rests, because it waits for a signal or a time, see Service.RestAfter, ends
// in this process with [RunSuspended], gives back its lease and costs nothing; it continues when it is due.
//
// Serve announces to the store which workflows and plans it performs. Runs of others are not touched. A name of [Lease] that another process
// uses is reported, and Serve performs nothing until that process is gone; a process has one name, which belongs into Runner.Options. A run
// that cannot begin, whose store fails, or that rests with a request that cannot be read, see [ErrUndecoded], is tried again after a second, and then
// after pauses that double, up to a minute; the last of these also when another request is posted for it.
//
// Before it performs anything, Serve returns an error that matches [ErrBadOption] for a Service without a Store or Workflows, with a negative Poll, with a
// version twice, with two Owners, or with an option that is about one run; and the errors of [Graph.Compile] and of [Start] about graphs and options. A
// store that cannot be used any more, see [ErrUnusable], ends Serve with an error that matches [ErrStore]; so does a store whose schema a newer program has
// brought up to date, which matches [store.ErrNewerSchema], too, once the runs in flight here have ended or rest.
func (rn *Runner) Serve(ctx context.Context, s Service) error {
	if ctx == nil {
		return ErrNoContext
	}
	v, err := rn.newServing(ctx, s)
	if err != nil {
		return err
	}
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
			if at := v.tookAt.Add(v.calm); at.Before(v.takeAt) { // at once, unless others create runs all the time
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

// free is how many runs may begin at once, at most as many as are given.
func (rn *Runner) free(most int) int {
	if rn.MaxRuns == 0 {
		return most
	}
	rn.mu.Lock()
	defer rn.mu.Unlock()
	return min(most, rn.MaxRuns-rn.active-rn.queue.Len()-len(rn.reserved))
}

// serving is a call of Serve. Its loop is the goroutine of the caller; each run that it performs has a goroutine that waits for the end.
type serving struct {
	rn        *Runner
	base      context.Context // of the runs
	service   Service
	versions  map[store.Queue]*version
	loads     map[string]*workload // by workflow
	announced store.Announcement
	turns     store.TurnStore // nil if the store is none
	bounded   bool            // keys have bounds

	// The loop owns what follows.
	announceAt time.Time     // the next announcement
	reportAt   time.Time     // the next report of unclaimable queues
	takeAt     time.Time     // the next question for runs that are due
	calm       time.Duration // between two questions because of what the store has notified of
	tookAt     time.Time     // the last one
	refused    bool          // the last announcement was refused: the owner is in use
	outdated   error         // why nothing new is taken: the schema of the store is newer than this program; nil if it is not
	failures   int           // of the store, in a row
	keysAt     time.Time     // the next report of a KeyRunsOf that fails

	held  atomic.Int64  // runs in flight here, or being started
	wake  chan struct{} // a run has ended or did not begin
	told  chan struct{} // the store has notified of a request or of a run
	apart deferrals
}

// version is a Workflow that is compiled.
type version struct {
	plan *Plan
	Workflow
	*workload
}

// workload counts the runs of a workflow, in all versions, that are in flight here or being started.
type workload struct {
	most int // 0 means no bound
	now  atomic.Int64
}

// room is how many runs of the workflow may begin at once, at most as many as are given.
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
		return nil, fmt.Errorf("%w: Serve without a Store", ErrBadOption)
	case len(s.Workflows) == 0:
		return nil, fmt.Errorf("%w: Serve without Workflows", ErrBadOption)
	case s.Poll < 0:
		return nil, fmt.Errorf("%w: Serve: Poll %v", ErrBadOption, s.Poll)
	case s.KeyRuns < 0:
		return nil, fmt.Errorf("%w: Serve: KeyRuns %d is negative", ErrBadOption, s.KeyRuns)
	case s.PruneEvery < 0:
		return nil, fmt.Errorf("%w: Serve: PruneEvery %v", ErrBadOption, s.PruneEvery)
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

// add adds a version of a workflow.
func (v *serving) add(w Workflow) error {
	p, err := w.Graph.compiled()
	if err != nil {
		return err
	}
	c, err := configure(v.rn.options(append(slices.Clone(w.Options), Durable(v.service.Store))), true)
	if err != nil {
		return err
	}
	if c.runID != "" || c.inputs != nil || c.fired != nil || c.from != nil || c.redrive || c.fork || c.signals != nil {
		return fmt.Errorf("%w: Serve: workflow %s has an option that is about one run alone", ErrBadOption, quoteID(p.name))
	}
	of := v.loads[p.name]
	switch {
	case w.MaxRuns < 0:
		return fmt.Errorf("%w: Serve: workflow %s: MaxRuns %d is negative", ErrBadOption, quoteID(p.name), w.MaxRuns)
	case of == nil:
		of = &workload{most: w.MaxRuns}
		v.loads[p.name] = of
	case of.most != w.MaxRuns:
		return fmt.Errorf("%w: Serve: workflow %s has the MaxRuns %d and %d; its versions share one", ErrBadOption, quoteID(p.name), of.most, w.MaxRuns)
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
		{"Idempotent", "runs in a store are created once for each RunID", own.idempotency != nil},
		{"Describe", "runs are described when they are created, see Prepare", own.spec != nil && own.spec.Key == "" && own.spec.Priority == 0},
		{"RunKey or RunPriority", "runs have them when they are created, see Prepare", own.spec != nil},
	} {
		if refused.set {
			return fmt.Errorf("%w: Serve: workflow %s has the option %s, which changes nothing here: %s", ErrBadOption, quoteID(p.name), refused.name, refused.mend)
		}
	}
	if err := (&Run{runGiven: runGiven{plan: p, stepless: w.Step == nil, cfg: c}}).checkPerformers(p, nil); err != nil {
		return err
	}
	plans, err := p.withPruned()
	if err != nil {
		return err
	}
	x := &version{p, w, of}
	for _, part := range plans {
		q := store.Queue{Workflow: p.name, Plan: part.Hash()}
		if other := v.versions[q]; other != nil && other != x {
			return fmt.Errorf("%w: Serve: workflow %s is there twice with the plan %s", ErrBadOption, quoteID(q.Workflow), q.Plan)
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
			return fmt.Errorf("%w: Serve: the owners %s and %s; a process has one", ErrBadOption, quoteID(other), quoteID(c.owner))
		}
		v.announced.Owner = c.owner
	}
	v.announced.TTL = max(v.announced.TTL, c.leaseTime)
	return nil
}

// turn announces, reports and takes runs as far as each is due, and returns how long the loop may wait. It has reported the error that it
// returns.
func (v *serving) turn(ctx context.Context) (wait time.Duration, err error) {
	now := time.Now()
	if v.outdated == nil && !now.Before(v.announceAt) {
		err = v.announce(ctx, now)
	}
	if v.outdated != nil { // the loop is woken when a run has ended
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

// startRetaining removes runs of the Retention in a goroutine of its own until end is called, which waits for it.
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

// retain removes runs again and again. Processes that began together do not do so together.
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

// watchRequests wakes the loop when a request is posted for a run: a resting run is due then.
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
	default: // the loop is about to look
	}
}

// announce registers in the store which queues the process works, and again when a third of the time has passed.
func (v *serving) announce(ctx context.Context, now time.Time) error {
	err := guarded(func() error { return v.service.Store.Announce(ctx, v.announced) })
	if errors.Is(err, store.ErrNewerSchema) {
		v.outdated = fmt.Errorf("nothing new is begun, and Serve returns when the runs at work here have ended: %w", err)
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

// withdraw removes the registration of announce.
func (v *serving) withdraw() {
	ctx, cancel := context.WithTimeout(v.base, v.announced.TTL)
	defer cancel()
	err := guarded(func() error {
		return v.service.Store.Announce(ctx, store.Announcement{Process: v.announced.Process})
	})
	if err != nil && v.outdated == nil && !errors.Is(err, ErrUnusable) { // then Serve has returned it
		v.report("", store.Queue{}, fmt.Errorf("%w: %w", ErrStore, err))
	}
}

// reportUnclaimable reports the queues that no live process works.
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
		v.report("", q.Queue, fmt.Errorf("%w%s: %d have not ended", ErrUnclaimable, since, q.Runs))
	}
	return err
}

// take starts due runs until none is left or MaxRuns are in flight, and returns when to ask again.
func (v *serving) take(ctx context.Context) (wait time.Duration, err error) {
	wait = v.service.Poll*9/10 + rand.N(v.service.Poll/5+1) // so that processes which began together do not ask together
	for ctx.Err() == nil {
		except, starting, pause := v.apart.except(wait)
		wait = pause
		most := v.rn.free(store.DefaultPage) - starting
		if most <= 0 {
			return wait, nil // or when a run has ended
		}
		queues, most := v.open(most)
		if len(queues) == 0 {
			return wait, nil // likewise
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

// open returns the queues of the workflows that have room for further runs, and how many runs may begin, at most as many as are given.
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

// leasedKeys are the keys with leased runs, in all processes, and the keys that have as many as they may have.
type leasedKeys struct {
	runs map[string]int
	full []string // sorted
}

// leasedKeys asks the store for the runs of keys that are leased, if keys have bounds.
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

// mostOf is how many runs of a key may be leased at once; 0 means any number.
func (v *serving) mostOf(key string) (most int) {
	if key == "" || !v.bounded {
		return 0
	}
	if most = v.service.KeyRuns; v.service.KeyRunsOf != nil {
		err := contain(func() error { most = v.service.KeyRunsOf(key); return nil })
		if err == nil && most < 0 {
			err = fmt.Errorf("%w: it has returned %d", ErrBadOption, most)
		}
		if err != nil { // one run at a time continues
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

// fitting leaves out the runs of a page for which their workflows or their keys have no room.
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

// dueRun is a run that is to be started, with the turn of its key.
type dueRun struct {
	store.Run
	turn *keyTurn // nil if no turn is noted, and the key has no bound
}

// turnsOf gives runs the turns of their keys. keyed says that there are runs with keys: else turns make no difference, and are not noted.
func (v *serving) turnsOf(keyed bool, runs []store.Run) []dueRun {
	list := make([]dueRun, len(runs))
	for i := range runs {
		if list[i].Run = runs[i]; keyed && v.turns != nil {
			list[i].turn = &keyTurn{v.turns, store.Turn{Key: runs[i].Key, Most: v.mostOf(runs[i].Key)}}
		}
	}
	return list
}

// start starts runs, some at a time, and returns how many have begun. Other processes start runs of the same page at the same moment:
// after a run that another process has leased, start continues at a random place behind it.
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
		patience, leased := time.NewTimer(min(v.service.Poll, defaultPoll)), false // a function of Around may take long
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

// errNotBegun is the result of a start whose goroutine was ended by code of the host.
var errNotBegun = errors.New("the goroutine was ended before the run has begun")

// perform starts a run, sends the result of the start to begun, and waits for the end of the run. failures is how often in a row it has
// failed before.
func (v *serving) perform(r *dueRun, failures int, begun chan<- error) {
	defer v.look()
	defer v.held.Add(-1)
	if l := v.loads[r.Workflow]; l != nil {
		defer l.now.Add(-1)
	}
	var run *Run
	err := errNotBegun
	func() {
		defer func() { // even if a function of Around ends the goroutine
			v.begun(&r.Run, failures, err)
			begun <- err
		}()
		run, err = v.begin(r)
	}()
	if err != nil {
		return
	}
	<-run.Done()
	switch res, err := run.Wait(); {
	case errors.Is(err, ErrStore):
		v.fail(&r.Run, failures, err)
	case errors.Is(err, ErrUndecoded): // it is due, since a request waits
		v.fail(&r.Run, failures, err)
		v.apart.untilRequest(r.ID)
	case res.Status == RunSuspended && time.Duration(run.dozes) <= restPause:
		v.apart.pause(r.ID, 0, restPause)
	}
}

// begin starts a run with the plan whose hash it has.
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

// quiet lists the errors of a start that nothing reports: another process was faster, or the clock of this process is behind.
var quiet = []error{ErrLeased, store.ErrKeyFull, ErrDuplicateRun, ErrFinished, ErrNotDue, ErrShutdown, ErrUnknownRun}

// begun takes the result of a start.
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

// fail reports a run that could not continue, and keeps it apart for longer than after earlier failures.
func (v *serving) fail(r *store.Run, failures int, err error) {
	v.apart.pause(r.ID, failures+1, retryPause(failures+1))
	v.report(r.ID, r.Queue(), err)
}

// report passes the error to the host.
func (v *serving) report(run string, q store.Queue, err error) {
	switch {
	case run != "":
		err = fmt.Errorf("serve run %s: %w", quoteID(run), err)
	case q != store.Queue{}:
		err = fmt.Errorf("serve workflow %s, plan %s: %w", quoteID(q.Workflow), quoteID(q.Plan), err)
	default:
		err = fmt.Errorf("serve: %w", err)
	}
	tell := v.service.OnError
	if tell == nil {
		tell = func(_ string, _ store.Queue, err error) { slog.Warn("a stored run is not performed", "error", err) }
	}
	if failed := contain(func() error { tell(run, q, err); return nil }); failed != nil {
		slog.Error("Service.OnError has failed", "error", failed, "told", err)
	}
}
