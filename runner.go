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
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Runner holds what many runs share: options, a bound on how many are at work at once, and a registry of those that are live
// or were lately. The zero value bounds nothing and remembers 100 runs that have ended. Its fields must not be changed once
// it is in use. Execute and Start work without one.
type Runner struct {
	// Options are those of every run; the run's own come after them.
	Options []Option
	// MaxRuns bounds how many runs are at work at the same time. Further ones are pending, and begin in the order in which
	// they arrived, but none waits for the functions of another one's [Around]. A suspended run is not at work: when its signal comes it goes on at once, even above the bound. Zero
	// means no bound; runs are refused with [ErrBadOption] if MaxRuns, Limit or KeyLimit is negative.
	MaxRuns int
	// History is how many of the runs that have ended are remembered, the latest ones. Zero means 100, a negative number none.
	History int
	// Learn is the History of every run that has none of its own, which may be an option. Nil: none.
	Learn *History
	// CancelOnShutdown makes Shutdown cancel the runs that are still at work when its context ends, instead of interrupting
	// them: cleanup nodes run, and the runs are over. It is for hosts that keep neither stores nor snapshots, whose runs
	// cannot go on anywhere. A run with a store would be cancelled in its store, too, for good.
	CancelOnShutdown bool
	// Limit bounds how many steps of all runs together run at the same time, and Rate how often they start, as [Limit] and
	// a [Rate] do in one run; a run may have such bounds of its own as well. A run that lacks a slot or a token takes its
	// turn after the runs that have waited longer. The cleanup nodes and the end node of a run that is being stopped do not
	// wait for other runs: they start above these bounds, and those of KeyLimit and KeyRate.
	Limit int
	Rate  Rate
	// KeyLimit and KeyRate are the same for the nodes of one Key in all runs.
	KeyLimit int
	KeyRate  Rate
	// Shared are bounds that the Runners of several processes have in common, beside those above. Nil: none.
	Shared *Shared

	pooling sync.Once
	pool    *pool // the limits that the runs share, nil without any
	badPool error // the defect of MaxRuns, Limit, Rate, KeyLimit, KeyRate or Shared

	mu        sync.Mutex // guards what follows; a leaf: nothing else is locked under it
	entries   map[string]*runnerEntry
	reserved  map[string]bool // the ids of runs that take their leases, and are about to be admitted
	arrived   list.List       // of *runnerEntry, as are the next two: all, in the order of arrival
	ended     list.List       // those that have ended, in the order of their ends
	queue     list.List       // those that are pending, in the order of arrival
	active    int
	closed    bool
	over      chan struct{}  // see shutdownBegun
	due       []*runnerEntry // to be begun, by the launcher
	launching bool           // there is one
	watchers  []*runWatcher  // see Watch
	steps     int64          // entries visited, by which tests check that the work is linear
}

// runnerEntry is a run in the registry.
type runnerEntry struct {
	run   *Run
	id    string
	from  *restoration // for a pending run
	at    time.Time
	state runnerState

	inArrived, inEnded, inQueue *list.Element // its places; nil where it is not
}

// runnerState is the state of a run in its Runner.
type runnerState uint8

const (
	queued    runnerState = iota
	active                // counted
	asleep                // suspended: not counted
	forgotten             // it has ended
)

// runnerChange is a change that a run reports to its Runner, with the run's lock held.
type runnerChange uint8

const (
	rests runnerChange = iota
	wakes
	leftActive
)

const defaultHistory = 100

// Start is [Start] under the Runner: with its options, and pending while MaxRuns are at work. A pending run can be waited
// for, cancelled and left; without having begun it calls no step, cleanup nodes and the end node included. A run whose
// caller's context ends while it is pending is cancelled; a durable one stays pending in its store.
//
// Errors are those of Start; [ErrBadOption] if a bound or a rate of the Runner cannot be; [ErrDuplicateRun] if a run of this id is known and has not ended, and [ErrShutdown] after
// Shutdown.
func (rn *Runner) Start(ctx context.Context, g *Graph, step StepFunc, opts ...Option) (*Run, error) {
	return Start(ctx, g, step, rn.options(opts)...)
}

// options are those of a run under the Runner.
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

// Execute is Start and [Run.Wait]. Unlike [Execute] it waits for a suspended run to go on: the registry has it.
func (rn *Runner) Execute(ctx context.Context, g *Graph, step StepFunc, opts ...Option) (*Result, error) {
	p, err := g.compiled()
	if err != nil {
		return nil, err
	}
	return p.execute(ctx, step, rn.options(opts), true)
}

// Run returns a run that is live or remembered.
func (rn *Runner) Run(id string) (*Run, bool) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if e := rn.entries[id]; e != nil {
		return e.run, true
	}
	return nil, false
}

// Runs yields the runs that are live or remembered when Runs is called, with the times of their arrival, in the order of it. Runs that arrive
// later are not yielded, and runs that are forgotten later still are.
func (rn *Runner) Runs() iter.Seq2[*Run, time.Time] {
	rn.mu.Lock()
	all := make([]*runnerEntry, 0, rn.arrived.Len())
	for e := range entriesOf(&rn.arrived) {
		all = append(all, e)
	}
	rn.mu.Unlock()
	return func(yield func(*Run, time.Time) bool) {
		for _, e := range all {
			if !yield(e.run, e.at) {
				return
			}
		}
	}
}

// Shutdown ends the Runner: no run is begun any more, and the live ones are left, see [Run.Leave], so that they can go on
// elsewhere from their stores or from the snapshots of their Results, pending ones included. It returns when all have ended.
//
// When ctx ends first, Shutdown interrupts running attempts: their contexts end with the cause [ErrLeft]. A node whose step
// returns an error then is ready again when the run goes on, and the attempt does not count against MaxAttempts; the output
// of a step that completes all the same is kept. A step that ignores its context for longer than [CancelGrace] is left
// behind and named in Result.Abandoned, like a guard, a merge or a test that does not return: stop the process before the run goes on,
// or two attempts overlap. Neither cleanup nodes nor the end node are run, since the run is not over. Shutdown waits for all
// that and returns the cause of ctx's end.
//
// A run that was stopped, or is stopped meanwhile, is not left: it ends as usual, with its cleanup. Attempts that it lets
// finish, see [Drain], are interrupted when ctx ends.
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
	for e := range entriesOf(&rn.queue) {
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
					_ = run.Cancel() // it is not at rest
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

// live returns the runs that have not ended, with the lock held.
func (rn *Runner) live() (runs []*Run) {
	for e := range entriesOf(&rn.arrived) {
		if e.state != forgotten {
			runs = append(runs, e.run)
		}
	}
	return runs
}

// reserve reserves the id of a run that is about to be admitted, or refuses the run.
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

// admit registers a run whose id is reserved and that is about to begin, and reports whether it may: else it is pending now, or refused.
// The reservation ends unless the run is refused.
func (rn *Runner) admit(r *Run, from *restoration) (bool, error) {
	id := r.ID()
	e := &runnerEntry{run: r, id: id, from: from, at: r.start}
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if rn.closed {
		return false, ErrShutdown
	}
	if old := rn.entries[id]; old != nil { // it has ended
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

// changed records a change of a run's status, with the lock of the run held. Runs that may begin now do so on another
// goroutine, since beginning takes the lock of another run.
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

// begun tells the watchers of a run that is not pending any more.
func (rn *Runner) begun(r *Run) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if e := rn.entries[r.ID()]; e != nil && e.run == r {
		rn.note(e)
	}
}

// launch begins the runs that are due, in their order, and ends. Functions of Around keep no other run waiting.
func (rn *Runner) launch() {
	over := false
	defer func() {
		if !over { // the context of a caller has ended the goroutine
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
		if len(next.run.cfg.around) > 0 { // functions of the host, which may take long
			go next.run.begin(next.from, next.run.now())
			continue
		}
		next.run.begin(next.from, next.run.now())
	}
}

// trim forgets the runs that have ended first, beyond the history.
func (rn *Runner) trim() {
	history := rn.History
	if history == 0 {
		history = defaultHistory
	}
	for rn.ended.Len() > max(history, 0) {
		rn.forget(rn.ended.Front().Value.(*runnerEntry))
	}
}

// forget takes an ended run out of the registry.
func (rn *Runner) forget(e *runnerEntry) {
	rn.steps++
	if id := e.run.ID(); rn.entries[id] == e {
		delete(rn.entries, id)
	}
	rn.ended.Remove(e.inEnded)
	rn.arrived.Remove(e.inArrived)
	rn.note(e)
}

// unqueue takes a run out of those that are pending, if it is one.
func (rn *Runner) unqueue(e *runnerEntry) {
	rn.steps++
	if e.inQueue != nil {
		rn.queue.Remove(e.inQueue)
		e.inQueue = nil
	}
}

func entriesOf(l *list.List) iter.Seq[*runnerEntry] {
	return func(yield func(*runnerEntry) bool) {
		for x := l.Front(); x != nil; x = x.Next() {
			if !yield(x.Value.(*runnerEntry)) {
				return
			}
		}
	}
}

// Errors of a Runner.
var (
	// ErrDuplicateRun rejects a run of a Runner whose id is that of one that has not ended, and a fork whose id is that of another run.
	ErrDuplicateRun = errors.New("the id is that of another run")
	// ErrShutdown rejects a run that is started after Shutdown.
	ErrShutdown = errors.New("the runner was shut down")
)

// RunChange is a change in the list of a Runner's runs: see [Runner.Watch].
type RunChange struct {
	Run *Run
	// Arrived is when the run came to the Runner.
	Arrived time.Time
	// Status is that of the run now.
	Status RunStatus
	// Removed says that the Runner does not remember the run any more: see Runner.History.
	Removed bool
}

// Watch yields the runs that the Runner knows, in the order of their arrival, each with its status, and then, as it happens, each run that
// arrives, whose status has changed, or that is forgotten. It ends when ctx ends, or when all runs of a Runner that was shut down have
// ended. A slow consumer misses what a run was in between, never what it has become, and holds nobody up. The changes inside a run are
// told by [Run.Events] and [Run.Watch]. A nil ctx yields nothing.
func (rn *Runner) Watch(ctx context.Context) iter.Seq[RunChange] {
	return func(yield func(RunChange) bool) {
		if ctx == nil {
			return
		}
		w := &runWatcher{noted: map[*runnerEntry]bool{}, seen: map[*runnerEntry]RunStatus{}, wake: make(chan struct{}, 1)}
		rn.mu.Lock()
		for e := range entriesOf(&rn.arrived) {
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

// runWatcher collects the runs of which something has changed.
type runWatcher struct {
	queue []*runnerEntry // in the order of the changes, each once; guarded by the Runner's lock, as is noted
	noted map[*runnerEntry]bool
	wake  chan struct{}
	seen  map[*runnerEntry]RunStatus // the watcher's own
}

func (w *runWatcher) note(e *runnerEntry) {
	if e != nil && !w.noted[e] {
		w.noted[e] = true
		w.queue = append(w.queue, e)
	}
	select {
	case w.wake <- struct{}{}:
	default: // it is awake, or will find this when it is
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

// show yields what has become of a run, if that is new. It is called without
// the Runner's lock: Status takes the lock of the run, which comes before the Runner's.
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

// note tells the watchers of a run of which something has changed, with the Runner's lock held; of no run if it is the Runner itself.
func (rn *Runner) note(e *runnerEntry) {
	for _, w := range rn.watchers {
		w.note(e)
	}
}

// given is what a run was started with under a Runner, so that it can be redriven.
type given struct {
	plan *Plan
	step StepFunc
	opts []Option // without those of the Runner
}

// Redrive runs a part of a run again that has ended and that the Runner remembers: the named nodes, or without names all that failed,
// were aborted or were cancelled, and everything that follows them; see the option [Redrive]. The new run has the id, the graph, the
// step function and the options of the run, and takes its place; its log goes on where the old one has ended, and [Run.Events] yields
// the old events, too. If it has a key, see [Idempotent], it is the run of that key from now on. ctx is that of the new run, the [Request], which may be empty, tells who
// asks, and opts, such as [KeepDescendants] and [DespiteHandlers], are for this redrive alone.
//
// The error matches [ErrUnknownRun] if the Runner does not know the id, and [ErrDuplicateRun] if the run has not
// ended. A durable run is redriven in its store. Other errors are as for [Start] and the option Redrive.
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
	if e.run.cfg.store == nil { // else it is redriven in its store
		from = e.run.Snapshot()
	}
	again := slices.Concat(given.opts, []Option{RunID(id), Redrive(from, nodes, by), optionFunc(func(c *config) error {
		c.repeats, c.signals = 0, nil // of an earlier life
		c.replaces = e.run
		return nil
	})}, opts)
	return given.plan.Start(ctx, given.step, rn.options(again)...)
}

// deferrals are the runs that [Runner.Serve] does not ask its store for: it is starting them, or they came to rest or failed a moment ago.
// The loop of Serve and the goroutines of its runs use them.
type deferrals struct {
	mu   sync.Mutex
	runs map[string]deferral // by their ids
}

// deferral keeps a run from being started.
type deferral struct {
	failures int       // in a row
	until    time.Time // zero while the run is being started
	request  bool      // or until a request is posted for the run
}

// begin keeps a run apart that is being started, and returns how often in a row it has failed.
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

// begun forgets a run that has begun: its lease keeps it apart.
func (d *deferrals) begun(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.runs, id)
}

// pause keeps a run apart for some time. failures is how often in a row it has failed.
func (d *deferrals) pause(id string, failures int, pause time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs[id] = deferral{failures: failures, until: time.Now().Add(pause)}
}

// untilRequest has a run that is kept apart started when a request is posted for it.
func (d *deferrals) untilRequest(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.runs[id]; !p.until.IsZero() {
		p.request = true
		d.runs[id] = p
	}
}

// request has a run started for which a request was posted, if untilRequest was called.
func (d *deferrals) request(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.runs[id]; p.request {
		p.until, p.request = time.Now(), false
		d.runs[id] = p
	}
}

// except returns the ids of the runs that must not be started now, sorted, how many of them are being started, and the time until the
// first of the others may be started, or most if that is less. Failures of a run that has not been started again for mostRetry are
// forgotten: another process performs it.
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

// ErrKeyConflict rejects an idempotency key that was used for another graph or other inputs.
var ErrKeyConflict = errors.New("idempotency key was used for something else")

// IdempotencyKey returns a key that is equal for runs of the same graph with the same inputs: the hex SHA-256 of the
// workflow's id and of the inputs as canonical JSON, with sorted keys, no insignificant space and numbers in their shortest
// form. No inputs are an empty object, whether the map is nil or empty. Inputs with texts that are not UTF-8, which JSON cannot tell apart, are
// written as nil [Types] write them. The error matches [ErrNotEncodable] if an input has no such form.
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

// hasReplaced reports whether package json has written `\ufffd`, as it does for bytes that are not UTF-8, whatever they are. It writes that
// character, where a text has it, as it is.
func hasReplaced(text []byte) bool {
	for from := 0; ; from++ {
		i := bytes.Index(text[from:], []byte(`\ufffd`))
		if i < 0 {
			return false
		}
		from += i
		if before := bytes.TrimRight(text[:from], `\`); (from-len(before))%2 == 0 { // else the backslash is one of the text
			return true
		}
	}
}

// canonical is a JSON form of inputs that is the same for equal values. It calls user code.
func canonical(inputs map[string]any) ([]byte, error) { return canonicalBut(inputs, "") }

// canonicalBut is canonical without the member of objects that has a name, beside a member content.
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
	// Once more by way of maps, so that the fields of structs are sorted too.
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

// shortest brings the numbers of a JSON value into their shortest form, and removes a member of objects, in place. An integer keeps all its digits.
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

// IdempotencyStore starts only one run for each key, see [Idempotent]. The zero value is empty and ready for use, by any
// number of goroutines. It holds the runs, and so their Results, in memory.
type IdempotencyStore struct {
	// RetryFailed lets a key be used again, for the same graph and inputs, after a run that failed or was cancelled.
	RetryFailed bool

	mu       sync.Mutex // guards what follows; a run's own lock may be taken while it is held, never the other way around
	runs     map[string]*idempotent
	reserved map[string]chan struct{} // by key of a run that is about to begin; closed when it has begun or cannot begin
}

// idempotent is the run of a key, and the graph and inputs that it was started with.
type idempotent struct {
	run          *Run
	hash, inputs string
}

// newIdempotent describes a run. It calls user code (MarshalJSON).
func newIdempotent(r *Run) (*idempotent, error) {
	inputs, err := canonical(r.cfg.inputs)
	if err != nil {
		return nil, err
	}
	return &idempotent{r, r.plan.Hash(), string(inputs)}, nil
}

// goesOnWith reports whether another run goes on from a snapshot, or from the stored state of the run of the key.
func (i *idempotent) goesOnWith(r *Run) bool {
	return r.cfg.from != nil || r.cfg.store != nil && r.cfg.runID != "" && r.cfg.runID == i.run.ID()
}

// same reports whether a run may replace the run of the key, or join it: it has the same inputs, and the same graph unless
// it goes on from that run and was allowed to change the graph. A run of the same id in a store has its inputs from there if it is
// given none.
func (i *idempotent) same(r *idempotent) bool {
	c, goesOn := r.run.cfg, i.goesOnWith(r.run)
	return (i.inputs == r.inputs || goesOn && c.store != nil && c.inputs == nil) && (i.hash == r.hash || goesOn && c.allowChange)
}

// Idempotent makes the run the only run of its key in the store. If the key has a run that is at work, the caller joins it
// and waits for it; if that run has ended, the caller gets its Result, without any events. The caller's own options and step
// are not used then. If the caller's context ends while it waits, Execute returns a nil Result and the cause of that; the
// run goes on. A key whose run was of another graph or had other inputs is refused with [ErrKeyConflict]. A run that was
// suspended and left is replaced by one that goes on from its snapshot or its store. A durable run that was left because the context of its caller
// has ended goes on: with the callers that have joined it, or with the next one that has the key and the store, and no other [RunID].
func Idempotent(s *IdempotencyStore, key string) Option {
	return optionFunc(func(c *config) error {
		if s == nil || key == "" {
			return fmt.Errorf("%w: Idempotent(%v, %s)", ErrBadOption, s, quoteID(key))
		}
		c.idempotency, c.idempotencyKey = s, key
		return nil
	})
}

// Forget lets a key be used again. The run goes on.
func (s *IdempotencyStore) Forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, key)
}

// reserve returns the run of a key, or nil if there is none to be joined: the key is reserved for r then. While the key is reserved for
// another run, the caller waits: it must not join a run that is refused and never begins.
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

// tryReserve is one try of reserve. The channel is nil unless the key is reserved for another run.
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
		if left && r.cfg.from == nil && old.run.freesKey() && old.run.sharesStore(r.cfg) {
			select {
			case <-old.run.done:
			default:
				return nil, old.run.done, nil // it is about to release its lease
			}
			if r.cfg.runID == "" && old.same(claim) {
				r.cfg.runID = old.run.ID() // it goes on with that run
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

// settle ends the reservation of a run's key: claim is the run's from now on, unless it is nil.
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

// freesKey reports whether the run has ended because the context of its caller has ended, and can go on from its store.
func (r *Run) freesKey() bool {
	r.st.Lock()
	defer r.st.Unlock()
	return r.leftFor != nil && r.leaving && r.isPutAway()
}

// sharesStore reports whether a run with these options has the store of this run.
func (r *Run) sharesStore(c *config) bool {
	if r.cfg.store == nil || c.store == nil || !reflect.TypeOf(c.store).Comparable() {
		return false
	}
	return r.cfg.store == c.store
}

// hasLeft reports whether a suspended run has ended as it was.
func (r *Run) hasLeft() bool {
	r.st.Lock()
	defer r.st.Unlock()
	return r.concluded()
}
