package kahn

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/once"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Event reports one fact about a run: see package event.
type Event = event.Event

// Events yields, in order, the events of the run that follow the event with the given id: first the past events, then each event as it happens. With
// the id 0, Events begins with the first event of the run. The sequence ends after the last event. Several readers may read at the same time, each at
// its own pace. No reader delays the run. A second loop over the sequence begins again at the same event.
//
// If a run was resumed or redriven, Events also yields its earlier events, but only if this process has them. This is the case if the run continues
// from a [Snapshot] that was taken in this process, or if the [Runner] of the new Run still has the earlier Run. In any case the new events continue
// the ids of the earlier events. If the run stores its events (see [StoreEvents]), store.OpenEvents yields all stored events.
//
// An error comes with a zero Event, and ends the sequence. The error is the cause of ctx if ctx has ended, a [*event.GapError] if the log no longer
// keeps the next event (see [Retain]), [event.ErrNoLog] if the run keeps no events, or [ErrNoContext] if ctx is nil.
func (r *Run) Events(ctx context.Context, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		switch {
		case ctx == nil:
			yield(Event{}, ErrNoContext)
			return
		case r.log == nil || r.cfg.retain == 0:
			yield(Event{}, event.ErrNoLog)
			return
		}
		maker := r.eventMaker()
		for next := after + 1; next > after; { // next overflows only if `after` is the greatest id, and then no event follows
			if ctx.Err() != nil {
				yield(Event{}, bounded(context.Cause(ctx)))
				return
			}
			batch, more, gap := r.log.readFrom(next)
			switch {
			case gap != nil:
				yield(Event{}, gap)
				return
			case more != nil:
				select {
				case <-more:
				case <-ctx.Done():
				}
				continue
			case len(batch.lines) == 0:
				return
			}
			for i := range batch.lines {
				ev := maker.head
				maker.make(&ev, &batch, i, next)
				if !yield(ev, nil) {
					return
				}
				next++
			}
		}
	}
}

// EventRange returns the ids of the first and the last event that [Run.Events] can yield now without waiting. If there is no such event, because
// nothing has happened yet or the run keeps no events, `first` is greater than `last`.
func (r *Run) EventRange() (first, last uint64) {
	l := r.log
	if l == nil {
		return 1, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first(), l.last - l.hidden
}

// entry holds the data from which an Event is made when a reader or a sink gets the entry.
type entry struct {
	kind    eventKind
	attempt int32
	ref     machine.Ref // the node, or the tier of a wave
	back    uint32      // the id of this event minus the id of the event that led to it; 0 if no event did
	at      int64       // when the entry was created, in ns since the run's start
	arg     any
	run     *Run // the run in which the event happened: the log's run, or a run nested in it
}

// logLine is an entry as the log stores it: without pointers, so that the garbage collector skips most of the log.
type logLine struct {
	at      int64
	ref     machine.Ref
	back    uint32
	attempt int32
	kind    eventKind
	rest    uint8 // the position of the entry's logRest, from 1 on; 0 if the entry belongs to the log's run and has no arg
}

// logRest holds the fields of an entry that do not fit into a line. It must not keep a nested run in memory longer than the observers need it, since
// a run may have many nested runs, one after the other.
type logRest struct {
	arg   any
	scope *eventScope // the scope of a nested run; nil for the log's run
	run   *Run        // the nested run of the scope, until all observers have seen the entry; nil without observers, or if the entry ends no node
}

// eventScope holds the facts about one run, the log's run or a nested run, that the events of the run's nodes contain. It is immutable.
type eventScope struct {
	plan   *Plan
	prefix string // the prefix of the paths of the nodes
	epoch  int
}

// block is a part of a log. A reader gets a copy of the block's fields. An entry keeps its index in `lines`, and its logRest keeps its index in
// `rests`. After an entry was read, only the field `run` of its logRest changes.
type block struct {
	lines []logLine // its capacity is blockSize
	rests []logRest
	run   *Run // the log's run; entries of nested runs have a logRest with their scope
}

// fill writes an entry into the last line, whose time is set.
func (b *block) fill(e *entry, observed bool) {
	l := &b.lines[len(b.lines)-1]
	l.ref, l.back, l.attempt, l.kind = e.ref, e.back, e.attempt, e.kind
	if nested := e.run != b.run; nested || e.arg != nil {
		rest := logRest{arg: e.arg}
		if nested {
			rest.scope = e.run.scope
			if observed && e.kind.endsNode() {
				rest.run = e.run
			}
		}
		b.rests = append(b.rests, rest)
		l.rest = uint8(len(b.rests))
	}
}

// removeLast removes the last entry. No reader and no sink may have seen this entry.
func (b *block) removeLast() {
	n := len(b.lines) - 1
	if i := b.lines[n].rest; i > 0 {
		b.rests[i-1] = logRest{}
		b.rests = b.rests[:i-1]
	}
	b.lines = b.lines[:n]
}

// The method `scope` returns the scope of the run in which the event of entry i happened.
func (b *block) scope(i int) *eventScope {
	if l := &b.lines[i]; l.rest > 0 {
		if s := b.rests[l.rest-1].scope; s != nil {
			return s
		}
	}
	return b.run.scope
}

// The method `end` is for observers of node ends. It returns the node that entry i ended, with the node's run, and the payload of the event. If the
// entry ended no node, ok is false.
func (b *block) end(i int) (r *Run, ref machine.Ref, arg any, ok bool) {
	l := &b.lines[i]
	if !l.kind.endsNode() {
		return nil, noRef, nil, false
	}
	r = b.run
	if l.rest > 0 {
		rest := &b.rests[l.rest-1]
		if arg = rest.arg; rest.scope != nil {
			r = rest.run
		}
	}
	return r, l.ref, arg, true
}

// eventLog is the append-only log of a run. Each time the run is continued, a new life of the run begins, with its own log. The critical sections
// that change the run's state append to the log. Readers and sinks read the log at their own pace. A reader or sink holds the log's lock only while
// it gets the next entries, and not while it handles the entries.
type eventLog struct {
	run    *Run
	mu     sync.Mutex    // guards the fields below, and the unused part of the last block; code that holds mu takes no other lock
	blocks []block       // each block but the last has blockSize entries; the last one grows
	base   uint64        // the id of the first entry, minus one
	last   uint64        // the id of the last entry
	retain uint64        // the number of events that are kept for readers
	now    int64         // the time of the last entry
	hidden uint64        // the number of hidden entries: they are the last entries, and the store has not confirmed their changes yet
	hides  bool          // whether new entries are hidden
	closed bool          // whether no entry will follow
	more   chan struct{} // closed when there are more entries; nil if no reader waits
	sinks  []*sink

	start   uint64      // the id of the last event before this life of the run
	oldest  uint64      // readers get only events with greater ids, from this log or from an earlier one
	earlier []*eventLog // the logs of earlier lives, if this process has them, in order; they contain events up to start; see goOn

	observers int    // the number of sinks that observe node ends; these sinks are the last elements of `sinks`
	released  uint64 // entries with ids up to this one no longer keep nested runs in memory

	waited once.Once // the method `wait` waits for stuck sinks only once, however often the host waits for the end of the run
}

const blockSize = 64 // small enough for logLine.rest

// keepAll is the default retention: all events.
const keepAll = math.MaxInt

type sink struct {
	f    func(id uint64, b block) // id is the id of the first entry
	done chan struct{}            // closed when the sink has seen the last event, or will get no more events
	next uint64                   // the id of the next event that the sink takes; the log's lock guards next and err
	err  error                    // why the sink was disabled
}

// newEventLog returns a log that continues after the event with the given id.
func newEventLog(r *Run, last uint64) *eventLog {
	l := &eventLog{run: r, retain: uint64(r.cfg.retain), base: last, last: last, start: last, oldest: last}
	for _, f := range r.cfg.sinks {
		maker := sync.OnceValue(r.eventMaker)
		l.attach(func(id uint64, b block) {
			maker := maker()
			ev := maker.head
			for i := range b.lines {
				maker.make(&ev, &b, i, id+uint64(i))
				f(ev)
			}
		}, last)
	}
	for _, f := range r.cfg.observers {
		l.attach(observe(f), last)
		l.observers++
	}
	l.released = last
	// The goroutines of the sinks start only now, when all fields that they read are set. A run without goroutines calls feedReady instead.
	if r.manual == nil {
		for _, k := range l.sinks {
			go l.feed(k)
		}
	}
	return l
}

func (l *eventLog) attach(f func(id uint64, b block), last uint64) {
	l.sinks = append(l.sinks, &sink{f: f, done: make(chan struct{}), next: last + 1})
}

// The method `first` returns the id of the first event that readers may get. The caller holds l.mu.
func (l *eventLog) first() uint64 {
	oldest := l.oldest
	if l.base > l.start {
		oldest = l.base
	}
	if shown := l.last - l.hidden; shown > l.retain { // hidden events do not count: readers can still get the last l.retain of the other events
		oldest = max(oldest, shown-l.retain)
	}
	return oldest + 1
}

// goOn connects the log to the log of an earlier life of the run, so that a reader can continue with events of the earlier life. Sinks see only the
// events of this life. The earlier life should have ended, but goOn does not check this. The event with the id l.start should be the last event of
// the earlier life. If readers of the earlier log cannot get this event, goOn does nothing.
func (l *eventLog) goOn(old *eventLog) {
	if old == nil {
		return
	}
	old.mu.Lock()
	first, last := old.first(), old.last-old.hidden
	earlier := append(slices.Clip(old.earlier), old)
	old.mu.Unlock()
	if last < l.start || first > l.start {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.earlier, l.oldest = earlier, first-1
}

// earlierLog returns the log of the earlier life from which the run continues, or nil if this process does not have the log. A snapshot that was
// taken in this process contains the log. If the snapshot comes from a file or a store, the log comes from the Runner's run with the same id, if
// there is one.
func (r *Run) earlierLog() *eventLog {
	if from := r.cfg.from; from != nil && from.log != nil {
		return from.log
	}
	if r.cfg.runner == nil {
		return nil
	}
	if old, ok := r.cfg.runner.Run(r.ID()); ok && old != r {
		return old.log
	}
	return nil
}

// The method `life` returns the log of the earlier life to which the event with the given id belongs. The result `last` is the id of the last event
// before the next life.
func (l *eventLog) life(id uint64) (of *eventLog, last uint64) {
	last = l.start
	for _, of := range slices.Backward(l.earlier) {
		if of.start < id {
			return of, last
		}
		last = of.start
	}
	return nil, 0
}

// readEarlier does the same as readFrom, but for an event of an earlier life, whose log is `of`. The caller does not hold l.mu, so that it never
// holds the locks of two logs.
func (l *eventLog) readEarlier(of *eventLog, next, last uint64) (block, error) {
	of.mu.Lock()
	defer of.mu.Unlock()
	if next <= of.base || next > of.last-of.hidden {
		return block{}, &event.GapError{After: next - 1, First: last + 1} // the earlier log has dropped the event meanwhile
	}
	batch, _ := of.read(next)
	if n := last - next + 1; uint64(len(batch.lines)) > n {
		batch.lines = batch.lines[:n:n]
	}
	return batch, nil
}

// append adds an entry. The caller holds l.mu.
func (l *eventLog) append(e *entry) {
	if l.closed {
		return // no entry follows the last event of the log
	}
	b := l.extend(e.at)
	e.at = l.now
	b.fill(e, l.observers > 0)
	l.closed = e.kind.endsRun()
}

// extend adds a line that has only a time, and returns its block, of which it is the last line. The caller holds l.mu, and the log is not closed.
func (l *eventLog) extend(at int64) *block {
	// Two workers may read the clock in one order, and get the lock in the other order. The log has the order of the lock, and the times in the log must
	// not decrease.
	l.now = max(l.now, at)
	n := len(l.blocks)
	if n == 0 || len(l.blocks[n-1].lines) == blockSize {
		if l.trim(); l.blocks == nil { // most nodes have three events
			l.blocks = make([]block, 0, 1+min(3*len(l.run.plan.names)/blockSize, 1024))
		}
		l.blocks = append(l.blocks, block{lines: make([]logLine, 0, blockSize), run: l.run})
		n = len(l.blocks)
	}
	l.last++
	if l.hides {
		l.hidden++
	}
	b := &l.blocks[n-1]
	b.lines = append(b.lines, logLine{at: l.now})
	return b
}

// upTo returns the entries with the ids `next` to `last`, including hidden entries. The result may end before `last`. The caller holds the run's
// lock: without this lock, another goroutine could drop hidden entries meanwhile.
func (l *eventLog) upTo(next, last uint64) block {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.batch(next, last)
}

// batch returns the entries with the ids `next` to `last`, but only the entries in the block that contains `next`.
func (l *eventLog) batch(next, last uint64) block {
	i := next - l.base - 1
	b := l.blocks[i/blockSize]
	end := min(uint64(len(b.lines)), last-l.base-i/blockSize*blockSize)
	b.lines = b.lines[i%blockSize : end : end]
	return b
}

// publish shows the entries up to the given id to readers and sinks.
func (l *eventLog) publish(id uint64) {
	l.mu.Lock()
	if id > l.last-l.hidden {
		l.hidden = l.last - id
	}
	l.unlock()
}

// retract drops the hidden entries. The log hides no entries from then on. retract returns the id of the last remaining entry.
func (l *eventLog) retract() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; l.hidden > 0; l.hidden-- {
		n := len(l.blocks) - 1
		if l.blocks[n].removeLast(); len(l.blocks[n].lines) == 0 {
			l.blocks = l.blocks[:n]
		}
		l.last--
	}
	l.hides, l.closed = false, false
	return l.last
}

// release drops the references to nested runs in each block whose entries all observers have handled.
func (l *eventLog) release() {
	if l.observers == 0 {
		return
	}
	seen := l.last
	for _, k := range l.sinks[len(l.sinks)-l.observers:] {
		if k.err == nil {
			seen = min(seen, k.next-1)
		}
	}
	// An observer may still be handling the entries that it took last. When it takes an entry that follows a block, it has handled the whole block.
	for l.released = max(l.released, l.base); l.released+blockSize < seen; {
		rests := l.blocks[(l.released-l.base)/blockSize].rests
		for i := range rests {
			rests[i].run = nil
		}
		l.released += blockSize
	}
}

// trim drops a block if readers may no longer get its entries, and every enabled sink has taken the entries.
func (l *eventLog) trim() {
	l.release()
	keep := l.first()
	for len(l.earlier) > 0 { // drop the earlier logs whose events readers may no longer get, and so their runs
		last := l.start
		if len(l.earlier) > 1 {
			last = l.earlier[1].start
		}
		if last >= keep {
			break
		}
		l.earlier = l.earlier[1:]
	}
	for _, k := range l.sinks {
		if k.err == nil {
			keep = min(keep, k.next)
		}
	}
	for len(l.blocks) > 0 && l.base+blockSize < keep {
		l.blocks[0] = block{}
		l.blocks = l.blocks[1:]
		l.base += blockSize
	}
}

// unlock releases l.mu after a change of the log. It wakes the waiting readers and sinks, so that they look at the log again.
func (l *eventLog) unlock() {
	more := l.more
	l.more = nil
	l.mu.Unlock()
	if more != nil {
		close(more)
	}
}

func (l *eventLog) lastID() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// close ends the log of a run that this process stops performing before the run has ended. In this case the log has no event that ends the run.
func (l *eventLog) close() {
	l.mu.Lock()
	l.closed = true
	l.unlock()
}

// readFrom returns events, beginning with the event that has the given id. If this event has not happened yet, readFrom returns a channel that is
// closed when the log changes. If the log no longer has the event, readFrom returns a GapError. If the log has ended before this event, all results
// are nil or empty.
func (l *eventLog) readFrom(next uint64) (batch block, more <-chan struct{}, gap error) {
	l.mu.Lock()
	if first := l.first(); next < first {
		l.mu.Unlock()
		return block{}, nil, &event.GapError{After: next - 1, First: first}
	}
	if next > l.start {
		batch, more = l.read(next)
		l.mu.Unlock()
		return batch, more, nil
	}
	of, last := l.life(next)
	l.mu.Unlock()
	batch, gap = l.readEarlier(of, next, last)
	return batch, nil, gap
}

// take does the same as readFrom for a sink. It returns no error, since the log keeps each event until all sinks have taken it.
func (l *eventLog) take(k *sink) (batch block, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// By now the sink has handled the events that it took before, so take calls release. The method `append` also calls release, but no longer after the
	// last event of the run.
	l.release()
	batch, more = l.read(k.next)
	k.next += uint64(len(batch.lines))
	return batch, more
}

func (l *eventLog) read(next uint64) (batch block, more <-chan struct{}) {
	switch {
	case next <= l.last-l.hidden:
		return l.batch(next, l.last-l.hidden), nil
	case l.closed && l.hidden == 0:
		return block{}, nil
	case l.more == nil:
		l.more = make(chan struct{})
	}
	return block{}, l.more
}

// feed passes events to a sink until the log has ended, or until the sink panics.
func (l *eventLog) feed(k *sink) {
	err := fmt.Errorf("event sink: %w", ErrGoexit)
	defer func() {
		if err != nil {
			l.mu.Lock()
			k.err = err
			l.mu.Unlock()
		}
		close(k.done)
	}()
	if err = contain(func() error { l.feedAll(k); return nil }); err != nil {
		err = fmt.Errorf("event sink disabled: %w", err)
	}
}

func (l *eventLog) feedAll(k *sink) {
	for {
		next := k.next // only this goroutine writes k.next
		batch, more := l.take(k)
		switch {
		case more != nil:
			<-more
			continue
		case len(batch.lines) == 0:
			return
		}
		k.f(next, batch)
	}
}

// feedReady is for a run without goroutines. It passes the existing events to the sinks.
func (l *eventLog) feedReady() {
	for _, k := range l.sinks {
		select {
		case <-k.done:
			continue
		default:
		}
		ended := false
		err := contain(func() error {
			for {
				next := k.next
				batch, more := l.take(k)
				if ended = more == nil && len(batch.lines) == 0; ended || more != nil {
					return nil
				}
				k.f(next, batch)
			}
		})
		if err != nil {
			l.mu.Lock()
			k.err = fmt.Errorf("event sink disabled: %w", err)
			l.mu.Unlock()
		}
		if ended || err != nil {
			close(k.done)
		}
	}
}

// The method `wait` waits until the sinks have handled the last event. It waits at most for the time `grace`, for all sinks together.
func (l *eventLog) wait(grace time.Duration) { l.waited.Do(func() { l.waitOnce(grace) }) }

func (l *eventLog) waitOnce(grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for _, k := range l.sinks {
		select {
		case <-k.done:
		case <-timer.C:
			timer.Reset(0) // the grace is over for all sinks, so for each further sink the timer fires at once
			select {
			case <-k.done:
				continue
			default:
			}
			l.mu.Lock()
			k.err = cmp.Or(k.err, errStuckSink)
			l.mu.Unlock()
		}
	}
}

var errStuckSink = fmt.Errorf("event sink: it was still busy with an event when the grace after the end of the run was over")

// The method `problems` returns the errors of the sinks.
func (l *eventLog) problems() (errs []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.sinks {
		if k.err != nil {
			errs = append(errs, k.err)
		}
	}
	return errs
}

// LogTo logs the events of the run in the form of [event.LogTo]. If a node has a kind or a label, LogTo adds it as an attribute to each line about
// the node. It adds none for nodes of a graph that a step has returned. A nil logger means [slog.Default].
func LogTo(logger *slog.Logger) Option {
	return PerRun(func() []Option {
		var plan atomic.Pointer[Plan] // set by Around, since a sink gets only events
		return []Option{
			Around(func(_ context.Context, r *Run) (context.Context, func(*Result)) {
				plan.Store(r.Plan())
				return nil, nil
			}),
			OnEvent(event.LogTo(logger, func(e Event) []slog.Attr { return plan.Load().describe(cmp.Or(e.Path, e.Node)) })),
		}
	})
}

// describe returns, as attributes, the kind and the label of the node with the given path. p may be nil.
func (p *Plan) describe(path string) (attrs []slog.Attr) {
	n, ok := p.At(path)
	if ok && n.Kind != "" {
		attrs = append(attrs, slog.String("kind", n.Kind))
	}
	if ok && n.Label != "" {
		attrs = append(attrs, slog.String("label", n.Label))
	}
	return attrs
}

// deltaCounts maps the path of each node in a nested run to the number of deltas that the node has emitted, in all attempts of the node and its
// composites. The counts live as long as the run, since any of these nodes may be attempted again. To save memory, consecutive iterations of a loop
// share one count if a node has emitted the same number of deltas in each of these iterations.
type deltaCounts struct {
	nodes map[string]int // the counts of nodes that are in no loop
	loops map[loopNode][]deltaSpan
}

// loopNode is a node in a loop: the path of the innermost loop around the node, and the rest of the node's path after the iteration.
type loopNode struct{ loop, path string }

// deltaSpan is a range of iterations, and the number of deltas that a node has emitted in each iteration of the range. The spans of a node are
// ordered. If one span directly follows another, their numbers differ.
type deltaSpan struct{ from, to, n int }

// inLoop splits the path of a node in a loop, such as L#3/x, or of a span, such as L#3-7/x. For any other path, ok is false.
func inLoop(path string) (of loopNode, from, to int, ok bool) {
	for end := len(path); ; {
		at := strings.LastIndexByte(path[:end], '#')
		if at < 0 {
			return of, 0, 0, false
		}
		number, rest, found := strings.Cut(path[at+1:], "/")
		first, last, ranges := strings.Cut(number, "-")
		from, to = iterationNumber(first), iterationNumber(last)
		if !ranges {
			to = from
		}
		if found && 0 < from && from <= to {
			return loopNode{path[:at], rest}, from, to, true
		}
		end = at
	}
}

// iterationNumber parses the number of an iteration, in the form that the engine writes. It returns 0 for any other text.
func iterationNumber(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n == math.MaxInt || text[0] == '0' || text[0] == '+' {
		return 0
	}
	return n
}

// spanAt returns the index of the first span that ends with the given iteration or a later one.
func spanAt(spans []deltaSpan, iteration int) int {
	i, _ := slices.BinarySearchFunc(spans, iteration, func(x deltaSpan, iteration int) int { return cmp.Compare(x.to, iteration) })
	return i
}

// The method `of` returns the count of the node with the given path.
func (x *deltaCounts) of(path string) int {
	of, iteration, _, ok := inLoop(path)
	if !ok {
		return x.nodes[path]
	}
	spans := x.loops[of]
	if i := spanAt(spans, iteration); i < len(spans) && spans[i].from <= iteration {
		return spans[i].n
	}
	return 0
}

// set stores the count of a node.
func (x *deltaCounts) set(path string, n int) {
	of, iteration, _, ok := inLoop(path)
	if !ok {
		if x.nodes == nil {
			x.nodes = map[string]int{}
		}
		x.nodes[path] = n
		return
	}
	if x.loops == nil {
		x.loops = map[loopNode][]deltaSpan{}
	}
	spans := x.loops[of]
	i := spanAt(spans, iteration)
	one := []deltaSpan{{iteration, iteration, n}}
	first, last := i, i // the range of spans to replace
	if i < len(spans) && spans[i].from <= iteration {
		s := spans[i]
		last++
		if s.from < iteration {
			one = slices.Insert(one, 0, deltaSpan{s.from, iteration - 1, s.n})
		}
		if s.to > iteration {
			one = append(one, deltaSpan{iteration + 1, s.to, s.n})
		}
	}
	if first > 0 {
		first--
		one = slices.Insert(one, 0, spans[first])
	}
	if last < len(spans) {
		one = append(one, spans[last])
		last++
	}
	joined := one[:1]
	for _, s := range one[1:] {
		if end := &joined[len(joined)-1]; end.to+1 == s.from && end.n == s.n {
			end.to = s.to
		} else {
			joined = append(joined, s)
		}
	}
	x.loops[of] = slices.Replace(spans, first, last, joined...)
}

// isEmpty reports whether x contains no counts.
func (x *deltaCounts) isEmpty() bool { return len(x.nodes)+len(x.loops) == 0 }

// addTo adds the counts to the map of a snapshot. In this map, a span has one path, such as L#3-7/x.
func (x *deltaCounts) addTo(counts map[string]int) {
	maps.Copy(counts, x.nodes)
	for of, spans := range x.loops {
		for _, s := range spans {
			number := strconv.Itoa(s.from)
			if s.to > s.from {
				number = fmt.Sprintf("%d-%d", s.from, s.to)
			}
			counts[of.loop+"#"+number+"/"+of.path] = s.n
		}
	}
}

// readDeltas is the reverse of addTo: it reads the counts of a snapshot, or of the records in a store. If a node has a count of its own and a count
// from a span, readDeltas uses the higher one.
func readDeltas(counts map[string]int) (x deltaCounts) {
	type span struct {
		deltaSpan
		of   loopNode
		path string
	}
	var spans []span
	for path, n := range counts {
		if of, from, to, ok := inLoop(path); ok {
			spans = append(spans, span{deltaSpan{from, to, n}, of, path})
		} else {
			x.set(path, n)
		}
	}
	// Ranges come first, in the order of their first iterations: the loop below appends each range to the list of its node, and this list must stay
	// ordered. After the ranges, the loop inserts the single iterations with the method `set`.
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(-cmp.Compare(min(a.to-a.from, 1), min(b.to-b.from, 1)), cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.n, b.n))
	})
	for _, s := range spans {
		if s.from == s.to {
			x.set(s.path, max(s.n, x.of(s.path)))
			continue
		}
		if x.loops == nil {
			x.loops = map[loopNode][]deltaSpan{}
		}
		known := x.loops[s.of]
		if len(known) > 0 { // if the snapshot is damaged, s may overlap the last known span
			s.from = max(s.from, known[len(known)-1].to+1)
		}
		if s.from <= s.to {
			x.loops[s.of] = append(known, s.deltaSpan)
		}
	}
	return x
}

// observe returns a sink that calls the observer for each end of a node.
func observe(observer func(NodeResult)) func(uint64, block) {
	return func(_ uint64, b block) {
		for i := range b.lines {
			if r, ref, arg, ok := b.end(i); ok {
				res := r.endOf(ref, arg)
				res.RunID = r.ID()
				observer(res)
			}
		}
	}
}

// endOf returns the result of an ended node; the run itself may still be running. The parameter `payload` is the payload of the event that ended the
// node.
func (r *Run) endOf(ref machine.Ref, payload any) NodeResult {
	r.st.Lock()
	res := r.nodeResult(ref)
	res.ID = r.path(ref)
	origin := r.st.OriginOf(ref)
	r.st.Unlock()
	end, ok := payload.(event.NodeEnd)
	if !ok {
		return res
	}
	res.Err = end.Err
	res.Cause = Cause{Kind: end.Cause, Origins: end.Origins}
	switch {
	case machine.IsUpstream(end.Cause):
		res.Err = &UpstreamError{Node: r.plan.ID(ref), Kind: end.Cause, Origins: end.Origins}
	case origin != noRef && end.Cause != CauseContext && end.Cause != CauseCancelRun:
		res.Cause.Origins = r.names([]machine.Ref{origin})
	}
	res.Cause.Err = res.Err
	return res
}
