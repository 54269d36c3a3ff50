package kahn

import (
	"cmp"
	"log/slog"
	"maps"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/once"
	"github.com/seed-c794f7ef/kahn/machine"
)

// eventKind is a one-byte code for an [event.Type].
type eventKind uint8

const (
	evRunStarted eventKind = iota
	evRunStatus
	evRunRecovered
	evRunCompleted
	evRunFailed
	evRunCancelled
	evRunTimedOut
	evWaveStarted
	evWaveCompleted
	evNodeQueued // from here on: events of nodes
	evNodeStarted
	evNodeDelta
	evNodeLog
	evContractViolated
	evModerationFlagged
	evNodeTimedOut
	evNodeRetried
	evNodeBlocked
	evNodePaused
	evNodeSuspended
	evNodeSignalled
	evNodeMocked
	evNodeInvalidated
	evNodeCompensating
	evNodeCompensated
	evNodeCompleted // from here on: events that report the end of a node
	evNodeFailed
	evNodeAborted
	evNodeCancelled
	evNodeSkipped
)

var eventTypes = [...]event.Type{
	evRunStarted: event.RunStarted, evRunStatus: event.RunStatusChanged, evRunRecovered: event.RunRecovered,
	evRunCompleted: event.RunCompleted, evRunFailed: event.RunFailed, evRunCancelled: event.RunCancelled,
	evRunTimedOut: event.RunTimedOut, evWaveStarted: event.WaveStarted, evWaveCompleted: event.WaveCompleted,
	evNodeQueued: event.NodeQueued, evNodeStarted: event.NodeStarted, evNodeDelta: event.NodeDelta, evNodeLog: event.NodeLog,
	evContractViolated: event.ContractViolated, evModerationFlagged: event.ModerationFlagged,
	evNodeTimedOut: event.NodeTimedOut, evNodeRetried: event.NodeRetried, evNodeBlocked: event.NodeBlocked,
	evNodePaused: event.NodePaused, evNodeSuspended: event.NodeSuspended, evNodeSignalled: event.NodeSignalled, evNodeMocked: event.NodeMocked, evNodeInvalidated: event.NodeInvalidated,
	evNodeCompensating: event.NodeCompensating, evNodeCompensated: event.NodeCompensated,
	evNodeCompleted: event.NodeCompleted, evNodeFailed: event.NodeFailed, evNodeAborted: event.NodeAborted,
	evNodeCancelled: event.NodeCancelled, evNodeSkipped: event.NodeSkipped,
}

func (k eventKind) ofNode() bool   { return k >= evNodeQueued }
func (k eventKind) endsNode() bool { return k >= evNodeCompleted }
func (k eventKind) endsRun() bool  { return k >= evRunCompleted && k <= evRunTimedOut }

// The method `passing` reports whether an event of this kind belongs to a node, and is never the Parent of a later event.
func (k eventKind) passing() bool {
	return k == evNodeDelta || k == evNodeLog || k == evNodeCompensating || k == evNodeCompensated
}

// terminalEvents maps each terminal status of a node to the kind of event that reports this status.
var terminalEvents = [statusCount]eventKind{
	Completed: evNodeCompleted, Failed: evNodeFailed, Aborted: evNodeAborted, Cancelled: evNodeCancelled, Skipped: evNodeSkipped,
}

func (v *verdict) event() eventKind {
	switch {
	case v.status == RunCompleted:
		return evRunCompleted
	case v.status == RunCancelled:
		return evRunCancelled
	case v.cause == CauseRunTimeout:
		return evRunTimedOut
	}
	return evRunFailed
}

// runReports contains a run's log, recorder and scope. All runs without a log share notReported, which never changes.
type runReports struct {
	log      *eventLog   // the log of the outermost run; nil if the run logs no events
	recorder *recorder   // nil without a log
	scope    *eventScope // nil without a log
}

var notReported runReports

// reports returns the runReports of a run that logs its events to the given log. It allocates the runReports, the recorder
// and the scope as one object.
func (r *Run) reports(log *eventLog, rec recorder) *runReports {
	rec.latest = make([]latest, len(r.plan.names))
	x := &struct {
		runReports
		recorder recorder
		scope    eventScope
	}{recorder: rec, scope: eventScope{r.plan, r.prefix, r.epoch}}
	x.runReports = runReports{log, &x.recorder, &x.scope}
	return &x.runReports
}

// recorder stores the ids of some events of a run. With these ids, the method `append` finds the earlier event that led to a new event.
// The run's lock guards the recorder.
type recorder struct {
	first  uint64   // the id of the run's first event; in a nested run, the id of the event that started the composite
	wave   uint64   // the id of the last wave event; if there is none, the value of `first`
	ended  uint64   // the id of the last event that ended a node; if there is none, the value of `first`
	latest []latest // by Ref

	restored bool // set when the run is restored from a snapshot; cleared by the next call of the method `tell` at the latest
}

// latest describes the last event of a node. Events of a passing kind do not count: see eventKind.passing.
type latest struct {
	id  uint64 // 0 if there is no event
	end bool   // whether the event ended the node
}

// The method `note` updates the recorder with the event that has the given id.
func (rec *recorder) note(id uint64, e *entry) {
	switch {
	case e.kind == evNodeInvalidated:
		if rec.latest[e.ref] = (latest{}); e.attempt > 0 { // a composite that continues; a node that begins again has the attempt 0
			rec.latest[e.ref].id = id
		}
	case e.kind.ofNode():
		if !e.kind.passing() {
			rec.latest[e.ref] = latest{id, e.kind.endsNode()}
		}
		if e.kind.endsNode() {
			rec.ended = id
		}
	case e.kind == evWaveStarted || e.kind == evWaveCompleted:
		rec.wave = id
	}
}

// retract drops the hidden events of the log, and rebuilds the recorders of the given runs from the remaining events.
func (r *Run) retract(runs []*Run) {
	left := r.log.retract()
	of := make(map[*eventScope]*Run, len(runs))
	for _, r := range runs {
		of[r.scope] = r
		rec := r.recorder
		if rec.first > left {
			rec.first = 0
			if r.outer != nil { // the log has dropped the event that started the composite around r, so r logs no more events
				r.st.DropLog()
			}
		}
		rec.wave, rec.ended = rec.first, rec.first
		clear(rec.latest)
	}
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	id := r.log.base
	for i := range r.log.blocks {
		b := &r.log.blocks[i]
		for i := range b.lines {
			id++
			if in := of[b.scope(i)]; in != nil {
				in.recorder.note(id, &entry{kind: b.lines[i].kind, ref: b.lines[i].ref, attempt: b.lines[i].attempt})
			}
		}
	}
}

// The method `event` logs an event that is not a transition of the State. It first logs the transitions that came before this event. The caller holds
// the run's lock.
func (r *Run) event(e entry) {
	if !r.st.IsLogged() {
		return
	}
	e.run = r
	r.flush(e.at)
	r.log.mu.Lock()
	r.append(&e, 0)
	r.log.unlock()
	if d := r.durable; d != nil {
		d.told(r, &e)
		d.show(r.log)
	}
}

// flush turns the State's changes into events. The caller holds the run's lock.
func (r *Run) flush(now int64) {
	changes := r.st.Changes()
	if len(changes) == 0 {
		return
	}
	if r.durable != nil {
		changes = r.inTurn(changes)
	}
	r.tell(changes, now)
	r.st.DropChanges()
}

// tell logs the given changes as events. If the run is durable, tell also adds the changes to the outbox.
func (r *Run) tell(changes []machine.Change, now int64) {
	s := &r.st
	r.log.mu.Lock()
	ends := 0 // how many of the changes so far have ended a node
	if r.recorder.restored {
		ends, r.recorder.restored = 2, false // all ended nodes of the snapshot count, too; 2 stands for any number above 1
	}
	plain := r.outer == nil && r.cfg.eventOutputs == 0 && r.cfg.mode != Waves
	for _, c := range changes {
		if plain && c.Wave == 0 && !c.Blocked && !c.Quiet && r.tellPlain(c, now, ends) {
			if c.Status == Completed {
				ends++
			}
			continue
		}
		e := entry{ref: c.Ref, at: now, run: r}
		switch {
		case c.Quiet:
			continue
		case c.Wave != 0 && r.outer != nil:
			continue // nested runs log no wave events
		case c.Wave > 0:
			e.kind = evWaveStarted
		case c.Wave < 0:
			e.kind = evWaveCompleted
		case c.Blocked:
			e.kind, e.arg = evNodeBlocked, s.KnownOrigins(c.Ref)
		default:
			if !r.transition(&e, c) {
				continue
			}
		}
		r.append(&e, ends)
		if e.kind.endsNode() {
			ends++
		}
	}
	r.log.unlock()
	if r.durable != nil {
		r.durable.add(r, changes)
	}
}

// tellPlain logs the most frequent changes in half the time that transition and append would take: a node is queued, starts, or completes with an
// event that contains only times. It returns false for all other changes. The run is not nested, has no waves and logs no outputs. The caller holds
// the run's lock and the log's lock.
func (r *Run) tellPlain(c machine.Change, now int64, ends int) bool {
	rec, log := r.recorder, r.log
	own := &rec.latest[c.Ref]
	kind, attempt, parent := evNodeStarted, c.Attempt+1, own.id
	switch c.Status {
	case Ready:
		if kind = evNodeQueued; r.plan.net.Is(c.Ref, machine.FlagInline) || len(r.extras) > 0 {
			return false
		}
		if parent == 0 && len(r.plan.net.In(c.Ref)) == 0 {
			parent = rec.first
		} else if parent == 0 && ends == 1 {
			parent = rec.ended
		}
	case Running:
		if attempt = r.records[c.Ref].attempts; r.plan.net.Is(c.Ref, machine.FlagMocked) {
			return false
		}
	case Completed:
		if kind, attempt = evNodeCompleted, r.records[c.Ref].attempts; r.extras[c.Ref] != nil {
			return false
		}
	default:
		return false
	}
	if parent == 0 || log.closed {
		return false
	}
	id := log.last + 1
	*own = latest{id, kind == evNodeCompleted}
	if own.end {
		rec.ended = id
	}
	b := log.extend(now)
	line := &b.lines[len(b.lines)-1]
	line.ref, line.back, line.attempt, line.kind = c.Ref, uint32(id-parent), attempt, kind
	return true
}

// The method `append` finds the event that led to an entry, sets e.back, and adds the entry to the log. The caller holds the run's lock and the
// log's lock. If the entry is for a change of the State, `ends` is the number of nodes that ended earlier in the same critical section.
func (r *Run) append(e *entry, ends int) {
	rec := r.recorder
	id := r.log.last + 1
	var parent uint64
	switch {
	case rec.first == 0:
		rec.first, rec.wave, rec.ended = id, id, id
	case e.kind.ofNode():
		parent = r.parent(e, ends)
	case e.kind == evWaveStarted || e.kind == evWaveCompleted:
		parent = rec.wave
	default:
		parent = rec.ended
	}
	rec.note(id, e)
	if parent != 0 {
		e.back = uint32(id - parent)
	}
	r.log.append(e)
}

// The method `parent` returns the id of the event that led to an event of a node, or 0 if no logged event did.
func (r *Run) parent(e *entry, ends int) uint64 {
	rec, own, w := r.recorder, r.recorder.latest[e.ref].id, r.st.Word(e.ref)
	switch {
	case (e.kind == evNodeAborted || e.kind == evNodeCancelled) && !machine.IsUpstream(w.Kind()):
		if id := r.parentByOrigin(e.ref, w); id != 0 {
			return id
		}
		return own // a request or a timeout has stopped the node
	case e.kind == evNodeSkipped && machine.SkipKind(w.Kind()) == SkipAnnotation:
		return rec.first
	case e.kind == evNodeSkipped && machine.SkipKind(w.Kind()) == SkipSuperseded:
		// The early join of another node has stopped this node. If that other node has no event yet, the last end of any node is the parent.
		return cmp.Or(r.parentByOrigin(e.ref, w), rec.ended)
	case own != 0:
		return own
	case r.cfg.mode == Waves:
		return rec.wave
	case len(r.plan.net.In(e.ref)) == 0:
		return rec.first
	case ends == 1 && (e.kind == evNodeQueued || e.kind == evNodeBlocked || e.kind == evNodeSkipped):
		return rec.ended // if exactly one node has ended in the critical section, its end has caused the other changes
	}
	return cmp.Or(r.parentBySource(e, w), rec.first)
}

// parentByOrigin returns 0 if no other node caused the end of the node `ref`. Otherwise it returns the id of that other node's last event.
func (r *Run) parentByOrigin(ref machine.Ref, w machine.Word) uint64 {
	origin := w.By()
	if origin == noRef || origin == ref {
		return 0
	}
	return r.recorder.latest[origin].id
}

// parentBySource returns the id of the last event that ended a predecessor, or 0 if no predecessor has ended. If the event follows from failures of
// predecessors, parentBySource returns the id of the last of these failures.
func (r *Run) parentBySource(e *entry, w machine.Word) uint64 {
	var latest, failure uint64
	for _, i := range r.plan.net.In(e.ref) {
		edge := r.plan.edgeAt(i)
		source := r.recorder.latest[edge.From]
		if !source.end {
			continue
		}
		latest = max(latest, source.id)
		if e.kind.followsFailure(w) && r.st.Carries(i) {
			failure = max(failure, source.id)
		}
	}
	return cmp.Or(failure, latest)
}

// followsFailure reports whether an event of this kind follows from failures of the node's predecessors. w is the word of the node.
func (k eventKind) followsFailure(w machine.Word) bool {
	switch k {
	case evNodeBlocked:
		return true
	case evNodeAborted, evNodeCancelled, evNodeFailed:
		return machine.IsUpstream(w.Kind())
	case evNodeSkipped:
		return machine.SkipKind(w.Kind()) == SkipParentFailure
	}
	return false
}

// The method `transition` fills in the entry for a transition. It returns false if the transition needs no entry. If failed predecessors ended the
// node, the entry lists their origins as far as they are known now.
func (r *Run) transition(e *entry, c machine.Change) bool {
	if c.Status == Ready { // do not read the node's record here: it may not be in the CPU cache yet
		if r.plan.net.Is(c.Ref, machine.FlagInline) && !r.plan.net.Is(c.Ref, machine.FlagComposite) {
			return false
		}
		e.kind = evNodeQueued
		e.attempt = r.attemptOf(c.Ref, c.Attempt+1) // not from the record, which may already count this attempt
		return true
	}
	rec := &r.records[c.Ref]
	e.attempt = rec.attempts
	switch c.Status {
	case Running:
		if e.kind = evNodeStarted; r.plan.net.Is(c.Ref, machine.FlagMocked) {
			e.kind = evNodeMocked
		}
		return true
	case Suspended:
		e.kind = evNodeSuspended
		var wait event.Suspension
		if x := r.extras[c.Ref]; x.wait != nil { // x.wait is nil if the node was answered in the same critical section
			wait = event.Suspension{Token: x.wait.Token, Info: x.wait.Info, Deadline: x.wait.Deadline}
		}
		e.arg = wait
		return true
	case Completed:
		x := r.extras[c.Ref]
		special := x != nil && (rec.fallback || x.Memoized || x.Usage.own() != nil)
		var done event.Completion
		if special {
			done = event.Completion{Fallback: rec.fallback, Memoized: x.Memoized && !rec.fallback, Hit: r.hitOf(c.Ref, x), InputTokens: int(x.Usage.own()[UsageInputTokens]), OutputTokens: int(x.Usage.own()[UsageOutputTokens]), Usage: x.Usage.own()}
			if rec.fallback {
				done.Err = x.lastErr
			}
			e.arg = done
		}
		if r.outer != nil || r.cfg.eventOutputs > 0 { // the log outlives a nested run, so the entry must not refer to the nested run
			if r.completed(c.Ref, &done); special || len(done.Labels) > 0 {
				e.arg = done
			} else {
				e.arg = done.Duration
			}
			if r.cfg.eventOutputs > 0 {
				e.arg = &completedWith{Completion: done, value: rec.value}
			}
		}
	case Failed, Aborted, Cancelled:
		ended := event.NodeEnd{Cause: r.st.Word(c.Ref).Kind()}
		ended.Request = r.requestFor(ended.Cause)
		if machine.IsUpstream(ended.Cause) {
			ended.Origins = r.names(r.st.KnownOrigins(c.Ref))
		} else {
			ended.Err = r.nodeError(c.Ref)
		}
		if c.Status == Failed {
			if ended.RoutedToEnd = r.st.Unhandled(c.Ref); ended.RoutedToEnd {
				ended.OriginalFailedStep = r.path(c.Ref)
				if len(ended.Origins) > 0 {
					ended.OriginalFailedStep = r.prefix + ended.Origins[0]
				}
			}
			ended.NoRetry = noRetryOr(rec.noRetry, ended.Cause)
		}
		if rec.attempts > 0 {
			ended.Duration = time.Duration(rec.end - rec.start)
		}
		if x := r.extras[c.Ref]; x != nil {
			ended.Abandoned, ended.Usage = x.Abandoned, x.Usage.own()
		}
		e.arg = ended
	case Skipped:
		e.arg = event.Skip{Reason: r.skipReason(c.Ref)}
	default:
		return false
	}
	e.kind = terminalEvents[c.Status]
	return true
}

// emit logs a delta of a running attempt.
func (r *Run) emit(s *Step, chunk any) {
	if s.flags&stepUndo != 0 {
		r.logStep(s, slog.LevelWarn, "Emit is not for compensations, which have no output: use Log")
		return
	}
	r.stepEvent(s, evNodeDelta, func(x *extra) any { return event.Delta{Index: r.countDelta(s.ref, x), Chunk: chunk} })
}

// countDelta counts a new delta of a node, and returns the delta's index. A nested run does not outlive the attempt of its composite. The tree
// therefore counts the deltas of nodes in nested runs, by path.
func (r *Run) countDelta(ref machine.Ref, x *extra) int {
	r.noteDelta(ref, x)
	if r.outer == nil {
		x.deltas++
		return x.deltas
	}
	path := r.path(ref)
	n := r.tree.deltas.of(path) + 1
	r.tree.deltas.set(path, n)
	return n
}

// The method `deltas` returns how many deltas each node has emitted, by path. The result includes the nodes of nested runs.
func (r *Run) deltas() map[string]int {
	switch {
	case r.log != nil:
	case r.cfg.from != nil: // without a log this life emits no deltas, so the counts of the snapshot still apply
		return r.cfg.from.file.Deltas
	default:
		return nil
	}
	counts := map[string]int{}
	for ref, x := range r.extras {
		if x.deltas > 0 {
			counts[r.plan.names[ref]] = x.deltas
		}
	}
	if r.tree != nil {
		r.tree.deltas.addTo(counts)
	}
	return counts
}

// deltasOf returns the number of deltas that a node has emitted.
func (r *Run) deltasOf(ref machine.Ref) int {
	switch x := r.extras[ref]; {
	case r.outer != nil && !r.tree.deltas.isEmpty():
		return r.tree.deltas.of(r.path(ref))
	case r.outer == nil && x != nil:
		return x.deltas
	}
	return 0
}

func (r *Run) logStep(s *Step, level slog.Level, message string) {
	r.stepEvent(s, evNodeLog, func(*extra) any { return event.LogRecord{Level: level, Message: message} })
}

// isAtWork reports whether the step of an attempt may still log events and report usage. Both end when the attempt ends or is abandoned, or when the
// step returns a graph. The caller holds the run's lock.
func (r *Run) isAtWork(s *Step) bool { return r.current(s.ref) == s && !r.st.IsExpanded(s.ref) }

// stepEvent logs an event of a running attempt. If arg returns nil, stepEvent logs nothing.
func (r *Run) stepEvent(s *Step, kind eventKind, arg func(*extra) any) {
	if r.log == nil {
		return
	}
	now := r.now()
	r.st.Lock()
	defer r.st.Unlock()
	if s.flags&stepUndo != 0 {
		if u := r.undo.nodes[s.ref]; u != nil && u.step == s {
			r.event(entry{kind: kind, ref: s.ref, attempt: s.attempt, at: now, arg: arg(nil)})
		}
		return
	}
	if !r.isAtWork(s) || kind == evNodeDelta && (r.st.Word(s.ref).Is(machine.WordAdmitting) || s.flags&stepAgain != 0) {
		return // the attempt is over or has not started, or an earlier life has logged the event
	}
	if payload := arg(r.extra(s.ref)); payload != nil {
		r.event(entry{kind: kind, ref: s.ref, attempt: r.records[s.ref].attempts, at: now, arg: payload})
	}
}

// eventMaker turns the log entries of a run and of its nested runs into events for one reader.
type eventMaker struct {
	head  Event // the fields that all events share, and the time of the last event
	start time.Time
	at    int64 // the time of the last event, in ns since start
	run   *Run  // the outermost run of the life in which the last event happened
}

func (r *Run) eventMaker() *eventMaker {
	r = r.outermost()
	m := &eventMaker{head: Event{RunID: r.ID(), Workflow: r.plan.name, TraceID: r.traceID()}}
	m.enter(r)
	return m
}

// enter prepares m for the events of one life of the run. The times of this life's entries count from its start.
func (m *eventMaker) enter(r *Run) {
	m.run, m.start, m.at = r, r.start.Round(0).UTC(), 0 // Round strips the reading of the monotonic clock
	m.head.Time = m.start
}

// The method `make` writes the event for entry i of a block, with the given id, into ev. It does not write the fields that all events share: before
// the call, ev must contain a copy of m.head, or the event that m made last. The caller holds no locks, so the method `make` reads only those fields
// of the run that no longer change.
func (m *eventMaker) make(ev *Event, b *block, i int, id uint64) {
	m.draft(ev, b, i, id)
	ev.Payload = b.run.withOutput(ev.Payload)
}

// The method `draft` does the same as the method `make`, but does not call the codec. So the caller may hold the run's lock. After it has released
// the lock, the caller calls withOutput, which encodes the output in the payload.
func (m *eventMaker) draft(ev *Event, b *block, i int, id uint64) {
	e := &b.lines[i]
	scope, arg := b.scope(i), any(nil)
	if e.rest > 0 {
		arg = b.rests[e.rest-1].arg
	}
	p := scope.plan
	if b.run != m.run {
		m.enter(b.run)
	}
	if e.at != m.at {
		m.at, m.head.Time = e.at, m.start.Add(time.Duration(e.at))
	}
	ev.ID, ev.Type, ev.Time, ev.Parent = id, eventTypes[e.kind], m.head.Time, 0
	if e.back > 0 {
		ev.Parent = id - uint64(e.back)
	}
	if e.kind.ofNode() {
		name := p.names[e.ref]
		ev.Node, ev.Path, ev.Attempt, ev.Tier, ev.Epoch = name, name, int(e.attempt), p.Tier(e.ref), scope.epoch
		if scope.prefix != "" {
			ev.Path = scope.prefix + name
		}
	} else {
		ev.Node, ev.Path, ev.Attempt, ev.Tier, ev.Epoch = "", "", 0, 0, 0
	}
	switch e.kind {
	case evRunStarted:
		forked, _ := arg.(string)
		arg = event.Start{TotalNodes: len(p.names), Waves: b.run.cfg.mode == Waves, Test: b.run.cfg.test != nil, Forked: forked}
	case evWaveStarted, evWaveCompleted:
		wave := event.Wave{Tier: int(e.ref)}
		lo, hi := p.net.TierRange(int32(e.ref))
		wave.Nodes = append(wave.Nodes, p.names[lo:hi]...)
		arg = wave
	case evNodeBlocked:
		origins, _ := arg.([]machine.Ref)
		_, _, policy := p.net.Rules(e.ref)
		blocked := event.Block{Policy: policy}
		for _, ref := range origins {
			blocked.Origins = append(blocked.Origins, p.ID(ref))
		}
		arg = blocked
	case evNodeCompleted:
		switch done := arg.(type) {
		case time.Duration:
			arg = event.Completion{Duration: done}
		case event.Completion:
			if scope == b.run.scope {
				b.run.completed(e.ref, &done)
				arg = done
			}
		case *completedWith:
		default:
			var plain event.Completion
			b.run.completed(e.ref, &plain)
			arg = plain
		}
	}
	ev.Payload = arg
}

// completedWith is the payload of node.completed, together with the output of the node. The first call of the method `of` encodes the output.
type completedWith struct {
	event.Completion
	value any
	once  once.Once
}

func (c *completedWith) of(r *Run) event.Completion {
	c.once.Do(func() { c.Output, c.value = r.eventOutput(c.value), nil })
	return c.Completion
}

// endedWith is the payload of the run's last event, together with the output of the run. The first call of the method `of` encodes the output.
type endedWith struct {
	event.RunEnd
	value any
	once  once.Once
}

func (e *endedWith) of(r *Run) event.RunEnd {
	e.once.Do(func() { e.Aggregation, e.value = r.eventOutput(e.value), nil })
	return e.RunEnd
}

// withOutput encodes the output in a payload. It returns a payload without an output unchanged. The caller holds no locks.
func (r *Run) withOutput(payload any) any {
	switch p := payload.(type) {
	case *completedWith:
		return p.of(r)
	case *endedWith:
		return p.of(r)
	}
	return payload
}

// eventOutput encodes an output for an event. The caller holds no locks, since the codec is user code.
func (r *Run) eventOutput(value any) (out event.Output) {
	data, err := plainValue(r.cfg.codec, value)
	if out.Bytes, out.Err = len(data), err; err == nil && len(data) <= r.cfg.eventOutputs {
		out.Value = data
	}
	return out
}

// The method `completed` fills in the payload of node.completed. The node is terminal, so its word and record no longer change. The payload is passed
// by its address, since it has 144 bytes.
func (r *Run) completed(ref machine.Ref, done *event.Completion) {
	if rec := &r.records[ref]; rec.attempts > 0 { // a node without attempts has no duration, for example a gate that a signal has completed
		done.Duration = time.Duration(rec.end - rec.start)
	}
	done.Labels = r.branchesOf(ref)
}

// endedPayload returns the payload of the run's last event.
func (r *Run) endedPayload() event.RunEnd {
	p := event.RunEnd{
		Status: r.verdict.status, Degraded: r.verdict.degraded, Cause: r.verdict.cause,
		CancellationRequested: r.cancelled, TotalSteps: len(r.plan.names), FailedSteps: r.verdict.failed, Duration: time.Duration(r.ended), Request: requestOf(r.asked),
	}
	if x := r.remarked().usage; x != nil {
		p.Usage = maps.Clone(x.live)
	}
	if p.Cause == CauseRunTimeout {
		p.Timeout = r.cfg.timeout
	}
	if r.plan.end != noRef {
		p.TotalSteps--
	}
	for _, ref := range r.plan.declared {
		if r.st.Word(ref).Status() == Failed && ref != r.plan.end {
			p.Failed = append(p.Failed, r.plan.names[ref])
		}
	}
	return p
}

// traceID returns the value of the option TraceID. Without this option, it returns the trace id that event.TraceID derives from the run's id.
func (r *Run) traceID() string {
	r = r.outermost()
	if known := r.trace.Load(); known != nil {
		return *known
	}
	id := r.cfg.traceID
	if id == "" {
		id = event.TraceID(r.ID())
	}
	r.trace.Store(&id) // a concurrent caller stores the same id
	return id
}

// Heartbeat returns an event which reports that the run is alive. This event has no id and is not in the log, so Events does not yield it. A host
// sends the event over a connection that must not stay silent for long.
func (r *Run) Heartbeat() Event {
	_, last := r.EventRange()
	return Event{
		Type: event.Heartbeat, RunID: r.ID(), Workflow: r.plan.name, TraceID: r.traceID(), Time: r.wallClock().UTC(),
		Payload: event.Beat{Last: last},
	}
}
