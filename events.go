package kahn

import (
	"fmt"
	"log/slog"
	"time"
)

// EventType names what an event tells of.
type EventType string

// The types of event, with the type of their payload.
const (
	EventRunStarted    EventType = "run.started"        // RunStarted
	EventRunCompleted  EventType = "run.completed"      // RunEnded
	EventRunFailed     EventType = "run.failed"         // RunEnded
	EventRunCancelled  EventType = "run.cancelled"      // RunEnded
	EventRunTimedOut   EventType = "run.timed_out"      // RunEnded
	EventWaveStarted   EventType = "wave.started"       // Wave
	EventWaveCompleted EventType = "wave.completed"     // Wave
	EventNodeQueued    EventType = "node.queued"        // none
	EventNodeStarted   EventType = "node.started"       // none
	EventNodeDelta     EventType = "node.stream.delta"  // Delta
	EventNodeLog       EventType = "node.log"           // LogRecord
	EventNodeTimedOut  EventType = "node.timed_out"     // TimedOut
	EventNodeRetried   EventType = "node.retried"       // Retried
	EventNodeCompleted EventType = "node.completed"     // NodeCompleted
	EventNodeFailed    EventType = "node.failed"        // NodeEnded
	EventNodeAborted   EventType = "node.aborted"       // NodeEnded
	EventNodeCancelled EventType = "node.cancelled"     // NodeEnded
	EventNodeSkipped   EventType = "node.skipped"       // NodeSkipped
	EventNodeBlocked   EventType = "node.blocked"       // NodeBlocked
	EventNodeSuspended EventType = "node.suspended"     // NodeSuspended
	EventRunStatus     EventType = "run.status.changed" // RunStatusChanged
)

// Event is one fact about a run. The events of a run are in one total order: run.started comes first, the event that ends
// the run last, a node's events in the order of its life, and a predecessor's end before its consequences.
type Event struct {
	ID       uint64 // 1, 2, 3, ... without holes
	Type     EventType
	RunID    string
	Workflow string // the graph's Name
	Time     time.Time
	// Node, Attempt and Tier are set for node events.
	Node    string
	Attempt int
	Tier    int
	// Payload is of the type that the constant of the event's Type names, or nil.
	Payload any
}

// String renders the event as one line without its time, for logs and tests.
func (e Event) String() string {
	text := fmt.Sprintf("%d %s", e.ID, e.Type)
	if e.Node != "" {
		text += " " + e.Node
	}
	if e.Attempt > 1 {
		text += fmt.Sprintf(" #%d", e.Attempt)
	}
	if e.Payload != nil {
		text += fmt.Sprintf(" %+v", e.Payload)
	}
	return text
}

// RunStarted is the payload of run.started.
type RunStarted struct {
	TotalNodes int
	Mode       Mode
}

// RunEnded is the payload of the events that end a run.
type RunEnded struct {
	Status   RunStatus
	Degraded bool
	Cause    CauseKind
	// TotalSteps counts the nodes without the end node, FailedSteps those in status failed.
	TotalSteps  int
	FailedSteps int
	Failed      []string // their ids, in the order of declaration
	Duration    time.Duration
}

// Wave is the payload of wave events.
type Wave struct {
	Tier  int
	Nodes []string
}

// Delta is the payload of node.stream.delta. Index counts from 1 and goes on across attempts.
type Delta struct {
	Index int
	Chunk any
}

// LogRecord is the payload of node.log.
type LogRecord struct {
	Level   slog.Level
	Message string
}

// TimedOut is the payload of node.timed_out.
type TimedOut struct {
	Timeout time.Duration
	Overall bool // the node's overall timeout, not the attempt's
}

// Retried is the payload of node.retried: the attempt that the event names failed, and another one follows after Delay.
type Retried struct {
	Cause CauseKind
	Delay time.Duration
	Err   error
}

// NodeCompleted is the payload of node.completed.
type NodeCompleted struct {
	Duration time.Duration
	Labels   []string // the branches that a condition took
	Fallback bool     // the fallback produced the output
	Err      error    // what the fallback made up for
}

// NodeEnded is the payload of node.failed, node.aborted and node.cancelled. Origins are those known at the time; the
// Result names them all.
type NodeEnded struct {
	Cause     CauseKind
	Origins   []string
	Err       error
	Duration  time.Duration
	Abandoned bool // the step ignored the end of its context and was left behind
}

// NodeSkipped is the payload of node.skipped.
type NodeSkipped struct {
	Reason SkipReason
}

// NodeBlocked is the payload of node.blocked: predecessors have made the join impossible, and what the policy says comes
// next.
type NodeBlocked struct {
	Origins []string
	Policy  UpstreamPolicy
}

// NodeSuspended is the payload of node.suspended.
type NodeSuspended struct {
	Token    string    // under which the signal is to come
	Info     any       // what the step that suspended itself had to say
	Deadline time.Time // zero if there is none
}

// RunStatusChanged is the payload of run.status.changed: nothing is left to do until a signal comes, or one has come.
type RunStatusChanged struct {
	From, To RunStatus
	Waiting  []string // the nodes that wait, in the order of declaration
}

type eventKind uint8

const (
	evRunStarted eventKind = iota
	evRunCompleted
	evRunFailed
	evRunCancelled
	evRunTimedOut
	evWaveStarted
	evWaveCompleted
	evNodeQueued
	evNodeStarted
	evNodeDelta
	evNodeLog
	evNodeTimedOut
	evNodeRetried
	evNodeCompleted
	evNodeFailed
	evNodeAborted
	evNodeCancelled
	evNodeSkipped
	evNodeBlocked
	evNodeSuspended
	evRunStatus
)

var eventTypes = [...]EventType{
	EventRunStarted, EventRunCompleted, EventRunFailed, EventRunCancelled, EventRunTimedOut, EventWaveStarted,
	EventWaveCompleted, EventNodeQueued, EventNodeStarted, EventNodeDelta, EventNodeLog, EventNodeTimedOut,
	EventNodeRetried, EventNodeCompleted, EventNodeFailed, EventNodeAborted, EventNodeCancelled, EventNodeSkipped,
	EventNodeBlocked, EventNodeSuspended, EventRunStatus,
}

// endsRun reports whether the kind is that of a run's last event.
func (k eventKind) endsRun() bool {
	switch k {
	case evRunCompleted, evRunFailed, evRunCancelled, evRunTimedOut:
		return true
	}
	return false
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

// flush turns the state's changes into events, with the lock held.
func (r *Run) flush(now int64) {
	s := &r.st
	if len(s.changes) == 0 {
		return
	}
	l := r.log
	l.mu.Lock()
	for _, c := range s.changes {
		switch {
		case c.wave != 0:
			kind := evWaveStarted
			if c.wave < 0 {
				kind = evWaveCompleted
			}
			l.append(entry{kind: kind, ref: c.ref, at: now})
		case c.blocked:
			origins := s.knownOrigins(c.ref)
			l.append(entry{kind: evNodeBlocked, ref: c.ref, at: now, arg: origins})
		default:
			r.nodeEvent(c, now)
		}
	}
	l.unlock()
	s.changes = s.changes[:0]
}

// nodeEvent logs a transition, with the log's lock held. What it tells of other nodes is what is known now.
func (r *Run) nodeEvent(c change, now int64) {
	rec := &r.records[c.ref]
	e := entry{ref: c.ref, attempt: rec.attempts, at: now}
	switch c.status {
	case Ready:
		if r.plan.facts[c.ref].is(factInline) {
			return
		}
		e.kind = evNodeQueued
		e.attempt = r.attemptOf(c.ref, c.attempt+1) // by now it may have been started
	case Running:
		e.kind = evNodeStarted
	case Suspended:
		e.kind = evNodeSuspended
		if x := r.extras[c.ref]; x.wait != nil { // else it was answered in the same breath
			e.arg = NodeSuspended{Token: x.wait.Token, Info: x.wait.Info, Deadline: x.wait.Deadline}
		}
	case Completed:
		e.kind = evNodeCompleted
		if rec.fallback {
			e.arg = r.extras[c.ref].lastErr
		}
	case Failed, Aborted, Cancelled:
		e.kind = map[Status]eventKind{Failed: evNodeFailed, Aborted: evNodeAborted, Cancelled: evNodeCancelled}[c.status]
		w := r.st.words[c.ref]
		ended := NodeEnded{Cause: kindOf(w)}
		if isUpstream(ended.Cause) {
			origins := r.st.knownOrigins(c.ref)
			ended.Origins = r.names(origins)
		} else {
			ended.Err = r.nodeError(c.ref)
		}
		if rec.attempts > 0 {
			ended.Duration = time.Duration(rec.end - rec.start)
		}
		if x := r.extras[c.ref]; x != nil {
			ended.Abandoned = x.abandoned
		}
		e.arg = ended
	case Skipped:
		e.kind = evNodeSkipped
		e.arg = NodeSkipped{Reason: r.skipReason(c.ref)}
	default:
		return
	}
	r.log.append(e)
}

// knownOrigins returns the origins that the failed predecessors of a node name, one each, as known now, in the order of
// declaration. Unlike origins it looks no further than one edge, so that a cascade stays linear.
func (s *State) knownOrigins(r Ref) []Ref {
	var origins []Ref
	seen := map[Ref]bool{}
	for _, i := range s.plan.in.row(r) {
		e := &s.plan.edges[i]
		if e.DataOnly || !s.isF(e) {
			continue
		}
		if o := s.originOf(e.from); o != noRef && !seen[o] {
			seen[o] = true
			origins = append(origins, o)
		}
	}
	return origins
}

// emit publishes a delta of a running attempt.
func (r *Run) emit(s *Step, chunk any) {
	r.stepEvent(s, evNodeDelta, func(x *extra) any {
		x.deltas++
		return Delta{Index: x.deltas, Chunk: chunk}
	})
}

func (r *Run) logStep(s *Step, level slog.Level, message string) {
	r.stepEvent(s, evNodeLog, func(*extra) any { return LogRecord{Level: level, Message: message} })
}

func (r *Run) stepEvent(s *Step, kind eventKind, arg func(*extra) any) {
	if r.log == nil {
		return
	}
	now := r.now()
	r.st.mu.Lock()
	defer r.st.mu.Unlock()
	if r.records[s.ref].step == s {
		r.event(entry{kind: kind, ref: s.ref, attempt: s.attempt, at: now, arg: arg(r.extra(s.ref))})
	}
}

// make turns an entry into the event that readers see.
func (l *eventLog) make(id uint64, e *entry) Event {
	r := l.run
	ev := Event{
		ID: id, Type: eventTypes[e.kind], RunID: r.ID(), Workflow: r.plan.name,
		Time: r.start.Add(time.Duration(e.at)).UTC(), Payload: e.arg,
	}
	switch e.kind {
	case evRunStarted:
		ev.Payload = RunStarted{TotalNodes: len(r.plan.nodes), Mode: r.cfg.mode}
		return ev
	case evRunCompleted, evRunFailed, evRunCancelled, evRunTimedOut, evRunStatus:
		return ev
	case evWaveStarted, evWaveCompleted:
		wave := Wave{Tier: int(e.ref)}
		for ref := r.plan.tiers[e.ref]; ref < r.plan.tiers[e.ref+1]; ref++ {
			wave.Nodes = append(wave.Nodes, r.plan.nodes[ref].ID)
		}
		ev.Payload = wave
		return ev
	case evNodeBlocked:
		origins, _ := e.arg.([]Ref)
		ev.Payload = NodeBlocked{Origins: r.names(origins), Policy: r.plan.facts[e.ref].policy}
	case evNodeCompleted:
		// The node is terminal: its word and record do not change any more.
		rec := &r.records[e.ref]
		done := NodeCompleted{Duration: time.Duration(rec.end - rec.start), Fallback: rec.fallback}
		done.Err, _ = e.arg.(error)
		if f := &r.plan.facts[e.ref]; f.router >= 0 {
			for i, label := range r.plan.routers[f.router].labels {
				if r.st.taken[int(f.labels)+i] {
					done.Labels = append(done.Labels, label)
				}
			}
		}
		ev.Payload = done
	}
	ev.Node, ev.Attempt, ev.Tier = r.plan.nodes[e.ref].ID, int(e.attempt), r.plan.Tier(e.ref)
	return ev
}

// ended is the payload of the run's last event.
func (r *Run) endedPayload() RunEnded {
	p := RunEnded{
		Status: r.verdict.status, Degraded: r.verdict.degraded, Cause: r.verdict.cause,
		TotalSteps: len(r.plan.nodes), FailedSteps: r.verdict.failed, Duration: time.Duration(r.ended),
	}
	if r.plan.end != noRef {
		p.TotalSteps--
	}
	for _, ref := range r.plan.declared {
		if statusOf(r.st.words[ref]) == Failed && ref != r.plan.end {
			p.Failed = append(p.Failed, r.plan.nodes[ref].ID)
		}
	}
	return p
}
