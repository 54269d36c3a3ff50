package kahn

import (
	"bytes"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Runner executes many runs under common options and limits. It keeps a registry of the live runs and of the runs that ended last. The zero value
// sets no limit and remembers 100 ended runs. The fields of a Runner must not change once it is in use. The functions Execute and Start need no
// Runner.
type Runner struct {
	// Options apply to every run. They are applied before the run's own options.
	Options []Option
	// MaxRuns bounds how many runs may be running at the same time. Further runs are pending, and begin in the order of their arrival. No run waits
	// for another run's [Around] functions. A suspended run does not count: when its signal arrives, the run continues at once, even if MaxRuns
	// other runs are running. Zero means no bound. If MaxRuns, Limit or KeyLimit is negative, each run is refused with [ErrBadOption].
	MaxRuns int
	// History is the number of ended runs that the Runner remembers; it forgets the oldest first. Zero means 100, and a negative number means
	// none.
	History int
	// Learn is the [History] of each run whose options set no History. Nil means none.
	Learn *History
	// CancelOnShutdown changes what Shutdown does when its context ends: Shutdown then cancels the remaining runs instead of interrupting them.
	// Their cleanup nodes are performed, and then the runs end. The field is meant for hosts without stores and snapshots, since their runs cannot
	// continue anywhere. If a run has a store, the store records the cancellation, so it is permanent.
	CancelOnShutdown bool
	// Limit bounds how many steps may be running at the same time, in all runs together. Rate bounds how often steps start. Both follow the rules
	// of the options [Limit] and [Rate], which a run may set as well. A run that lacks a slot or a token queues behind the runs that already wait.
	// When a run is being stopped, its cleanup nodes and its end node do not wait for other runs: they start even if Limit, Rate, KeyLimit or
	// KeyRate leaves no slot or token.
	Limit int
	Rate  Rate
	// KeyLimit and KeyRate are like Limit and Rate, for all nodes with the same Key in all runs.
	KeyLimit int
	KeyRate  Rate
	// Shared contains bounds that the Runners of several processes share, in addition to the bounds above. Nil means none.
	Shared *Shared

	pooling sync.Once
	pool    *pool // the limits that the runs share; nil if there are none
	badPool error // what is wrong with MaxRuns, Limit, Rate, KeyLimit, KeyRate or Shared

	mu        sync.Mutex // guards the fields below; no other lock is taken while it is held
	entries   map[string]*runnerEntry
	reserved  map[string]bool // the ids of runs that are acquiring their leases and will then be admitted
	arrived   list.List       // all runs, in the order of arrival; the elements of arrived, ended and queue are of type *runnerEntry
	ended     list.List       // the ended runs, in the order in which they ended
	queue     list.List       // the pending runs, in the order of arrival
	active    int
	closed    bool
	over      chan struct{}  // see shutdownBegun
	due       []*runnerEntry // the runs that the launcher begins next
	launching bool           // whether the launcher is running
	watchers  []*runWatcher  // see Watch
	steps     int64          // the number of visits to entries; tests use it to check that the work is linear
}

// runnerEntry is a run in the registry.
type runnerEntry struct {
	run   *Run
	id    string
	from  *restoration // for a pending run: the snapshot from which the run begins, or nil
	at    time.Time
	state runnerState

	inArrived, inEnded, inQueue *list.Element // the entry's elements in the lists arrived, ended and queue; nil if a list does not contain the entry
}

// runnerState is the state of a run in its Runner.
type runnerState uint8

const (
	queued    runnerState = iota
	active                // the run counts towards MaxRuns
	asleep                // the run is suspended, and does not count
	forgotten             // the run has ended
)

// runnerChange is a change that a run reports to its Runner. The run's lock is held during the report.
type runnerChange uint8

const (
	rests runnerChange = iota
	wakes
	leftActive
)

const defaultHistory = 100

// Start starts a run like the function [Start], with the Runner's options. The run is pending while MaxRuns runs are running. A program can wait
// for a pending run, cancel it and leave it. If the run never begins, none of its nodes is performed, not even cleanup nodes and the end node. If
// the caller's context ends while the run is pending, the run is cancelled. A durable run is not cancelled then, but stays pending in its store.
//
// Start returns the errors of the function Start. It also returns [ErrBadOption] if a bound or a rate of the Runner is invalid,
// [ErrDuplicateRun] if the Runner already has a run with this id that has not ended, and [ErrShutdown] once Shutdown was called.
func (rn *Runner) Start(ctx context.Context, g *Graph, step StepFunc, opts ...Option) (*Run, error) {
	return Start(ctx, g, step, rn.options(opts)...)
}

// options returns the options of a run under the Runner.
func (rn *Runner) options(opts []Option) []Option {
	all := append(slices.Clone(rn.Options), opts...)
	return append(all, optionFunc(func(c *config) (err error) {
		c.runner, c.given = rn, &given{opts: opts}
		if c.history == nil {
			c.history = rn.Learn
		}
		c.pool, err = rn.limits()
		return err
	}))
}

// Execute calls Start and [Run.Wait]. Unlike the function [Execute], it does not return when the run is suspended, but waits on: other code can find
// the run in the registry and signal it.
func (rn *Runner) Execute(ctx context.Context, g *Graph, step StepFunc, opts ...Option) (*Result, error) {
	p, err := g.Compile()
	if err != nil {
		return nil, err
	}
	return p.execute(ctx, step, rn.options(opts), true)
}

// Run returns the run with this id if it is live or remembered.
func (rn *Runner) Run(id string) (*Run, bool) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if e := rn.entries[id]; e != nil {
		return e.run, true
	}
	return nil, false
}

// Runs yields the runs that are live or remembered when Runs is called, each with the time of its arrival, in the order of arrival. It does not
// yield runs that arrive later. It also yields a run that the Runner has forgotten since the call.
func (rn *Runner) Runs() iter.Seq2[*Run, time.Time] {
	rn.mu.Lock()
	all := entriesOf(&rn.arrived)
	rn.mu.Unlock()
	return func(yield func(*Run, time.Time) bool) {
		for _, e := range all {
			if !yield(e.run, e.at) {
				return
			}
		}
	}
}

// Shutdown leaves all live and pending runs, see [Run.Leave]. Once it is called, no run begins. Other processes can continue the runs that were left,
// from their stores or from the snapshots in their Results. Shutdown returns when all live and pending runs have ended.
//
// If ctx ends first and CancelOnShutdown is not set, Shutdown interrupts running attempts: their contexts are cancelled with the cause [ErrLeft]. It
// still waits for all runs, and then returns ctx's cause. If the step of an interrupted attempt then returns an error, its node is ready again when
// the run continues, and the attempt does not count towards MaxAttempts. If the step succeeds, its output is kept. Steps that ignore their context
// for longer than [CancelGrace] are abandoned and listed in Result.Abandoned. The same holds for guards, merges, and tests of conditions and loops
// that do not return. End this process before a run with abandoned calls is continued: otherwise two attempts may overlap. Cleanup nodes and the end
// node are not performed, since the run is not over.
//
// A run that was stopped before Shutdown, or is stopped during it, is not left: it ends as usual, with its cleanup. If the stop lets attempts finish,
// see [Drain], these attempts are interrupted when ctx ends.
func (rn *Runner) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return ErrNoContext
	}
	rn.mu.Lock()
	if rn.over != nil && !rn.closed {
		close(rn.over)
	}
	rn.closed = true
	rn.note(nil)
	for _, e := range entriesOf(&rn.queue) {
		e.inQueue = nil
	}
	rn.queue.Init()
	live := rn.live()
	rn.mu.Unlock()
	for _, run := range live {
		run.Leave()
	}
	var err error
	for _, run := range live {
		select {
		case <-run.Done():
			continue
		case <-ctx.Done():
		}
		if err == nil {
			err = bounded(context.Cause(ctx))
			for _, run := range live {
				if rn.CancelOnShutdown {
					_ = run.Cancel() // cannot fail, since the run is not at rest
				} else {
					run.interrupt()
				}
			}
		}
		<-run.Done()
	}
	for _, run := range live {
		if run.span.Load() != nil {
			_, _ = run.Wait()
		}
	}
	rn.giveBack(ctx)
	return err
}

// The method `live` returns the runs that have not ended. The caller holds rn.mu.
func (rn *Runner) live() (runs []*Run) {
	for _, e := range entriesOf(&rn.arrived) {
		if e.state != forgotten {
			runs = append(runs, e.run)
		}
	}
	return runs
}

// reserve reserves the id of a run that will be admitted, or returns an error.
func (rn *Runner) reserve(id string) error {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	old, reserved := rn.entries[id], rn.reserved[id]
	switch {
	case rn.closed:
		return ErrShutdown
	case reserved || old != nil && old.state != forgotten:
		return fmt.Errorf("%w: %s", ErrDuplicateRun, quoteID(id))
	}
	if rn.reserved == nil {
		rn.reserved = map[string]bool{}
	}
	rn.reserved[id] = true
	return nil
}

// unreserve ends a reservation.
func (rn *Runner) unreserve(id string) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	delete(rn.reserved, id)
}

// admit registers a run whose id is reserved. It returns true if the run may begin now, and false without an error if the run is pending. In both
// cases it ends the reservation; if admit returns an error, the id stays reserved.
func (rn *Runner) admit(r *Run, from *restoration) (bool, error) {
	id := r.ID()
	e := &runnerEntry{run: r, id: id, from: from, at: r.start}
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if rn.closed {
		return false, ErrShutdown
	}
	if old := rn.entries[id]; old != nil { // the old run has ended
		rn.forget(old)
	}
	delete(rn.reserved, id)
	if rn.entries == nil {
		rn.entries = map[string]*runnerEntry{}
	}
	rn.entries[id] = e
	e.inArrived = rn.arrived.PushBack(e)
	rn.note(e)
	if rn.MaxRuns == 0 || rn.active < rn.MaxRuns {
		e.state = active
		rn.active++
		return true, nil
	}
	e.inQueue = rn.queue.PushBack(e)
	return false, nil
}

// The method `changed` records a change of the run's status. The caller holds the run's lock. A pending run takes its own lock when it begins, and
// this lock must not be taken here. So pending runs begin on another goroutine.
func (rn *Runner) changed(r *Run, change runnerChange) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	e := rn.entries[r.ID()]
	if e == nil || e.run != r {
		return
	}
	rn.note(e)
	before := e.state == active
	switch change {
	case rests:
		e.state = asleep
	case wakes:
		e.state = active
	case leftActive:
		if e.state == forgotten {
			return
		}
		e.state = forgotten
		e.inEnded = rn.ended.PushBack(e)
		rn.unqueue(e)
		rn.trim()
	}
	if after := e.state == active; after && !before {
		rn.active++
	} else if before && !after {
		rn.active--
	}
	for rn.queue.Len() > 0 && rn.active < rn.MaxRuns {
		next := rn.queue.Front().Value.(*runnerEntry)
		rn.unqueue(next)
		next.state = active
		rn.active++
		rn.due = append(rn.due, next)
	}
	if len(rn.due) > 0 && !rn.launching {
		rn.launching = true
		go rn.launch()
	}
}

// The method `begun` notifies the watchers that the run is no longer pending.
func (rn *Runner) begun(r *Run) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if e := rn.entries[r.ID()]; e != nil && e.run == r {
		rn.note(e)
	}
}

// launch begins the due runs in order, and returns when none remains. Each run with Around functions begins on its own goroutine, so that these
// functions do not delay other runs.
func (rn *Runner) launch() {
	over := false
	defer func() {
		if !over { // a method of a caller's context has called Goexit
			go rn.launch()
		}
	}()
	for {
		rn.mu.Lock()
		if len(rn.due) == 0 {
			rn.launching, over = false, true
			rn.mu.Unlock()
			return
		}
		next := rn.due[0]
		rn.due = rn.due[1:]
		rn.mu.Unlock()
		if len(next.run.cfg.around) > 0 { // begin calls functions of Around, which may take long
			go next.run.begin(next.from, next.run.now())
			continue
		}
		next.run.begin(next.from, next.run.now())
	}
}

// trim forgets the oldest ended runs until the Runner remembers no more ended runs than History allows.
func (rn *Runner) trim() {
	history := rn.History
	if history == 0 {
		history = defaultHistory
	}
	for rn.ended.Len() > max(history, 0) {
		rn.forget(rn.ended.Front().Value.(*runnerEntry))
	}
}

// forget removes an ended run from the registry.
func (rn *Runner) forget(e *runnerEntry) {
	rn.steps++
	if id := e.run.ID(); rn.entries[id] == e {
		delete(rn.entries, id)
	}
	rn.ended.Remove(e.inEnded)
	rn.arrived.Remove(e.inArrived)
	rn.note(e)
}

// unqueue removes a run from the queue if it is pending.
func (rn *Runner) unqueue(e *runnerEntry) {
	rn.steps++
	if e.inQueue != nil {
		rn.queue.Remove(e.inQueue)
		e.inQueue = nil
	}
}

// entriesOf returns the entries of a list, in order.
func entriesOf(l *list.List) []*runnerEntry {
	all := make([]*runnerEntry, 0, l.Len())
	for x := l.Front(); x != nil; x = x.Next() {
		all = append(all, x.Value.(*runnerEntry))
	}
	return all
}

// The errors of a Runner.
var (
	// ErrDuplicateRun is returned if the Runner already has a run with the same id that has not ended, or if the id of a fork belongs to another run.
	ErrDuplicateRun = errors.New("the id belongs to another run")
	// ErrShutdown is returned for a run that is started after Shutdown was called.
	ErrShutdown = errors.New("the runner was shut down")
)

// RunChange is a change in a Runner's list of runs: see [Runner.Watch].
type RunChange struct {
	Run *Run
	// Arrived is the time when the Runner received the run.
	Arrived time.Time
	// Status is the run's status now.
	Status RunStatus
	// Removed reports whether the Runner has forgotten the run: see Runner.History.
	Removed bool
}

// Watch yields the Runner's runs in the order of their arrival, each with its status. Then it yields each run that arrives, changes its status or
// is forgotten. It ends when ctx ends, or when the Runner was shut down and all its runs have ended. A slow consumer delays no run: it misses
// intermediate statuses, but not the latest one. If ctx is nil, Watch yields nothing. See also [Run.Events] and [Run.Watch].
func (rn *Runner) Watch(ctx context.Context) iter.Seq[RunChange] {
	return func(yield func(RunChange) bool) {
		if ctx == nil {
			return
		}
		w := &runWatcher{noted: map[*runnerEntry]bool{}, seen: map[*runnerEntry]RunStatus{}, wake: make(chan struct{}, 1)}
		rn.mu.Lock()
		for _, e := range entriesOf(&rn.arrived) {
			w.note(e)
		}
		rn.watchers = append(rn.watchers, w)
		rn.mu.Unlock()
		defer func() {
			rn.mu.Lock()
			defer rn.mu.Unlock()
			rn.watchers = slices.DeleteFunc(rn.watchers, func(x *runWatcher) bool { return x == w })
		}()
		for ctx.Err() == nil {
			rn.mu.Lock()
			e := w.next()
			removed := e != nil && rn.entries[e.id] != e
			over := rn.closed && rn.arrived.Len() == rn.ended.Len()
			rn.mu.Unlock()
			switch {
			case e != nil:
				if !w.show(e, removed, yield) {
					return
				}
			case over:
				return
			default:
				select {
				case <-w.wake:
				case <-ctx.Done():
				}
			}
		}
	}
}

// runWatcher collects the runs that have changed.
type runWatcher struct {
	queue []*runnerEntry // in the order of the changes, each run once; rn.mu guards queue and noted
	noted map[*runnerEntry]bool
	wake  chan struct{}
	seen  map[*runnerEntry]RunStatus // used only by the goroutine of the watcher
}

func (w *runWatcher) note(e *runnerEntry) {
	if e != nil && !w.noted[e] {
		w.noted[e] = true
		w.queue = append(w.queue, e)
	}
	select {
	case w.wake <- struct{}{}:
	default: // the watcher is already awake, or its wake-up is pending
	}
}

func (w *runWatcher) next() *runnerEntry {
	if len(w.queue) == 0 {
		return nil
	}
	e := w.queue[0]
	w.queue = w.queue[1:]
	delete(w.noted, e)
	return e
}

// show yields the run's status if it is new, or the run's removal. The caller must not hold rn.mu, since Status takes the run's lock, which must be
// taken before rn.mu.
func (w *runWatcher) show(e *runnerEntry, removed bool, yield func(RunChange) bool) bool {
	status := e.run.Status()
	last, known := w.seen[e]
	switch {
	case removed && !known, !removed && known && last == status:
		return true
	case removed:
		delete(w.seen, e)
	default:
		w.seen[e] = status
	}
	return yield(RunChange{Run: e.run, Arrived: e.at, Status: status, Removed: removed})
}

// note notifies the watchers that the run of the entry e has changed. If e is nil, the Runner itself has changed. The caller holds rn.mu.
func (rn *Runner) note(e *runnerEntry) {
	for _, w := range rn.watchers {
		w.note(e)
	}
}

// The type `given` contains the arguments with which a run was started under a Runner, so that Redrive can start it again.
type given struct {
	plan *Plan
	step StepFunc
	opts []Option // without the Runner's options
}

// Redrive reruns the named nodes of an ended run that the Runner remembers, and all nodes that follow them: see the option [Redrive]. If `nodes` is
// empty, it reruns all nodes that failed, were aborted or were cancelled, and all nodes that follow them. The new run has the old run's id, graph,
// step function and options, and replaces the old run in the registry. Its log continues the old log, so [Run.Events] also yields the old events. If
// the old run has a key, see [Idempotent], the key now belongs to the new run. The new run's context is ctx. The Request names who requests the
// redrive, and may be empty. The options, such as [KeepDescendants], apply only to this redrive.
//
// The error matches [ErrUnknownRun] if the Runner does not know the id, and [ErrDuplicateRun] if the run has not ended. A durable run is
// redriven in its store. Other errors are as for [Start] and the option Redrive.
func (rn *Runner) Redrive(ctx context.Context, id string, nodes []string, by Request, opts ...Option) (*Run, error) {
	rn.mu.Lock()
	e := rn.entries[id]
	ended := e != nil && e.state == forgotten
	rn.mu.Unlock()
	switch {
	case e == nil:
		return nil, fmt.Errorf("%w: %s", ErrUnknownRun, quoteID(id))
	case !ended:
		return nil, fmt.Errorf("%w: %s", ErrDuplicateRun, quoteID(id))
	}
	given := e.run.cfg.given
	var from *Snapshot
	if e.run.cfg.store == nil { // a durable run is redriven in its store, without a snapshot
		from = e.run.Snapshot()
	}
	again := slices.Concat(given.opts, []Option{RunID(id), Redrive(from, nodes, by), optionFunc(func(c *config) error {
		c.repeats, c.signals = 0, nil // these were given for the old run
		c.replaces = e.run
		return nil
	})}, opts)
	return given.plan.Start(ctx, given.step, rn.options(again)...)
}

// deferrals contains the runs that [Runner.Serve] leaves out when it asks its store for due runs: Serve is starting these runs, or they came to rest
// or failed shortly before. Serve's loop and the goroutines of its runs use the deferrals.
type deferrals struct {
	mu   sync.Mutex
	runs map[string]deferral // by the id of the run
}

// deferral is the time for which Serve does not start a run.
type deferral struct {
	failures int       // the number of successive failures
	until    time.Time // zero while the run is being started
	request  bool      // whether a request that is posted for the run ends the deferral early
}

// begin defers a run that Serve is about to start, and returns the number of the run's successive failures.
func (d *deferrals) begin(id string) (failures int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.runs == nil {
		d.runs = map[string]deferral{}
	}
	failures = d.runs[id].failures
	d.runs[id] = deferral{}
	return failures
}

// The method `begun` removes a run that has begun. The run is leased now, and a store does not list a leased run as due.
func (d *deferrals) begun(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.runs, id)
}

// pause defers a run for the given time. failures is the number of the run's successive failures.
func (d *deferrals) pause(id string, failures int, pause time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs[id] = deferral{failures: failures, until: time.Now().Add(pause)}
}

// untilRequest marks the run's deferral: the next request that is posted for the run ends the deferral early.
func (d *deferrals) untilRequest(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.runs[id]; !p.until.IsZero() {
		p.request = true
		d.runs[id] = p
	}
}

// The method `request` is called after a request was posted for a run. It ends the run's deferral if untilRequest was called for the run.
func (d *deferrals) request(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.runs[id]; p.request {
		p.until, p.request = time.Now(), false
		d.runs[id] = p
	}
}

// The method `except` returns the sorted ids of the deferred runs, how many of these runs are being started, and the time until the first deferral
// ends (at most `most`). If a run has not been started within mostRetry after its pause, the method forgets the run's failures.
func (d *deferrals) except(most time.Duration) (ids []string, starting int, wait time.Duration) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, p := range d.runs {
		switch rest := p.until.Sub(now); {
		case p.until.IsZero():
			ids = append(ids, id)
			starting++
		case rest > 0:
			ids = append(ids, id)
			most = min(most, rest)
		case p.failures == 0 || -rest > mostRetry:
			delete(d.runs, id)
		}
	}
	slices.Sort(ids)
	return ids, starting, most
}

// ErrKeyConflict is matched by the error of a run whose idempotency key was already used for another graph or other inputs.
var ErrKeyConflict = errors.New("idempotency key was used for another graph or other inputs")

// IdempotencyKey returns a key that is equal for runs of the same graph with the same inputs. The key is the SHA-256, in hex, of the workflow's
// id and of the inputs as canonical JSON: sorted keys, no insignificant space, numbers in their shortest form. A nil map and an empty map both
// count as an empty object. Package json encodes different invalid UTF-8 texts alike, so a nil [Types] encodes inputs that contain invalid UTF-8. The
// error matches [ErrNotEncodable] if an input cannot be encoded.
func IdempotencyKey(workflow string, inputs map[string]any) (string, error) {
	data, err := canonical(inputs)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	h.Write([]byte(workflow))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// hasReplaced reports whether text contains `\ufffd` as an escape. Package json writes this escape for invalid UTF-8, and writes the character
// U+FFFD unescaped. A backslash begins an escape only if an even number of backslashes precedes it.
func hasReplaced(text []byte) bool {
	for from := 0; ; from++ {
		i := bytes.Index(text[from:], []byte(`\ufffd`))
		if i < 0 {
			return false
		}
		from += i
		if before := bytes.TrimRight(text[:from], `\`); (from-len(before))%2 == 0 {
			return true
		}
	}
}

// canonical encodes inputs as JSON such that equal values have equal texts. It calls user code.
func canonical(inputs map[string]any) ([]byte, error) { return canonicalBut(inputs, "") }

// canonicalBut is like canonical, but in each object with a member "content" it removes the member that `without` names.
func canonicalBut(inputs map[string]any, without string) ([]byte, error) {
	if inputs == nil {
		inputs = map[string]any{}
	}
	var text []byte
	err := contain(func() (err error) {
		text, err = json.Marshal(inputs)
		return err
	})
	if err == nil && hasReplaced(text) {
		text, err = encodeValue(nil, inputs)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotEncodable, err)
	}
	// The text is decoded into maps and encoded again, so that the fields of structs are sorted, too.
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var form any
	if err := d.Decode(&form); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotEncodable, err)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(shortest(form, without)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotEncodable, err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// The function `shortest` shortens the numbers of a JSON value in place. An integer keeps all its digits. If `without` is not empty, the function
// also removes the member with this name from each object that has a member "content".
func shortest(v any, without string) any {
	switch v := v.(type) {
	case map[string]any:
		if _, file := v["content"]; file && without != "" {
			delete(v, without)
		}
		for key, x := range v {
			v[key] = shortest(x, without)
		}
	case []any:
		for i, x := range v {
			v[i] = shortest(x, without)
		}
	case json.Number:
		text := string(v)
		if whole, fraction, ok := strings.Cut(text, "."); ok && strings.Trim(fraction, "0") == "" {
			text = whole
		}
		if strings.ContainsAny(text, ".eE") {
			if f, err := strconv.ParseFloat(text, 64); err == nil {
				return f
			}
		}
		if text == "-0" {
			text = "0"
		}
		return json.Number(text)
	}
	return v
}

// IdempotencyStore lets only one run start for each key, see [Idempotent]. The zero value is empty and ready for use. Any number of goroutines
// may use it. It keeps the runs, and so their Results, in memory.
type IdempotencyStore struct {
	// RetryFailed permits a new run for a key if the key's run failed or was cancelled. The new run must have the same graph and inputs.
	RetryFailed bool

	mu       sync.Mutex // guards the fields below; a run's lock may be taken while it is held, never the other way around
	runs     map[string]*idempotent
	reserved map[string]chan struct{} // maps a reserved key to a channel, which is closed when the key's run has begun or cannot begin
}

// idempotent contains the run of a key, the graph's hash, and the inputs with which the run was started.
type idempotent struct {
	run          *Run
	hash, inputs string
}

// newIdempotent returns the entry for a run and its key. It encodes the run's inputs, which calls user code (MarshalJSON).
func newIdempotent(r *Run) (*idempotent, error) {
	inputs, err := canonical(r.cfg.inputs)
	if err != nil {
		return nil, err
	}
	return &idempotent{r, r.plan.Hash(), string(inputs)}, nil
}

// goesOnWith reports whether r continues from a snapshot, or continues the stored run of this key.
func (i *idempotent) goesOnWith(r *Run) bool {
	return r.cfg.from != nil || r.cfg.store != nil && r.cfg.runID != "" && r.cfg.runID == i.run.ID()
}

// The method `same` reports whether the run r may replace or join the run of this key. r must have the same graph and inputs. If r
// continues that run, there are two exceptions: with [AllowGraphChange] the graph may differ, and with a store r needs no inputs of its own.
func (i *idempotent) same(r *idempotent) bool {
	c, goesOn := r.run.cfg, i.goesOnWith(r.run)
	return (i.inputs == r.inputs || goesOn && c.store != nil && c.inputs == nil) && (i.hash == r.hash || goesOn && c.allowChange)
}

// Idempotent makes the run the only run of its key in the IdempotencyStore. If the run of the key is still running, the caller joins it and waits
// for its end. If the run of the key has ended, the caller gets its Result, without events. In both cases the caller's own options and step are
// not used. If the caller's context ends during the wait, Execute returns a nil Result and the context's cause; the run continues. The run is
// refused with [ErrKeyConflict] if the run of the key has another graph or other inputs.
//
// A run that was suspended and left can be replaced: by a run that continues from a snapshot, or by a run with a store that continues the stored
// run. If a durable run was left because the context of its caller ended, a caller that has joined the run continues it. If no caller has joined
// it, the next caller with this key continues it. The continuing caller must set [Durable] with the same store, and must not set another [RunID].
func Idempotent(s *IdempotencyStore, key string) Option {
	return optionFunc(func(c *config) error {
		if s == nil || key == "" {
			return fmt.Errorf("%w: Idempotent: the store is nil, or the key is empty", ErrBadOption)
		}
		c.idempotency, c.idempotencyKey = s, key
		return nil
	})
}

// Forget permits a new run for the key. The current run of the key continues.
func (s *IdempotencyStore) Forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, key)
}

// reserve returns the run that the caller joins, or nil after it has reserved the key for r. While the key is reserved for another run, reserve
// waits, since a caller must not join a run that may still be refused.
func (s *IdempotencyStore) reserve(r *Run) (*Run, error) {
	claim, err := newIdempotent(r)
	if err != nil {
		return nil, err
	}
	for {
		other, reserved, err := s.tryReserve(claim)
		if reserved == nil {
			return other, err
		}
		select {
		case <-reserved:
		case <-r.ctx.Done():
			return nil, bounded(context.Cause(r.ctx))
		}
	}
}

// tryReserve makes one attempt for reserve. It returns a channel if the key is reserved for another run, or if the run of the key is about to
// release its lease. When the channel is closed, reserve must try again.
func (s *IdempotencyStore) tryReserve(claim *idempotent) (*Run, <-chan struct{}, error) {
	r := claim.run
	key := r.cfg.idempotencyKey
	s.mu.Lock()
	defer s.mu.Unlock()
	if reserved := s.reserved[key]; reserved != nil {
		return nil, reserved, nil
	}
	if old := s.runs[key]; old != nil {
		status := old.run.Status()
		left := status == RunSuspended && old.run.hasLeft()
		if left && r.cfg.from == nil && old.run.freesKey() && sameStore(old.run.cfg.store, r.cfg.store) {
			if !old.run.isOver() {
				return nil, old.run.Done(), nil // the run is about to release its lease
			}
			if r.cfg.runID == "" && old.same(claim) {
				r.cfg.runID = old.run.ID() // r continues the old run
			}
		}
		failed := status == RunFailed || status == RunCancelled
		switch {
		case left && old.goesOnWith(r), r.cfg.replaces == old.run:
		case !old.same(claim):
			return nil, nil, fmt.Errorf("%w: %s", ErrKeyConflict, quoteID(key))
		case failed && s.RetryFailed:
		default:
			return old.run, nil, nil
		}
	}
	if s.reserved == nil {
		s.reserved = map[string]chan struct{}{}
	}
	s.reserved[key] = make(chan struct{})
	return nil, nil, nil
}

// settle ends the reservation of the run's key. If `claim` is not nil, the key belongs to the run of `claim` from now on.
func (s *IdempotencyStore) settle(r *Run, claim *idempotent) {
	key := r.cfg.idempotencyKey
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.reserved[key])
	delete(s.reserved, key)
	if claim == nil {
		return
	}
	if s.runs == nil {
		s.runs = map[string]*idempotent{}
	}
	s.runs[key] = claim
}

// freesKey reports whether the run was left because its caller's context ended, and another Run can continue it from its store.
func (r *Run) freesKey() bool {
	r.st.Lock()
	defer r.st.Unlock()
	return r.leftFor != nil && r.leaving && r.isPutAway()
}

// hasLeft reports whether a suspended run was left, so that only another Run can continue it.
func (r *Run) hasLeft() bool {
	r.st.Lock()
	defer r.st.Unlock()
	return r.concluded()
}
