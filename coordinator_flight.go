package kahn

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
)

// Snapshot returns the current state of the run, including the attempts in flight. It may be called between any two calls of the Coordinator. If a
// second Coordinator resumes from the snapshot, in any process, it continues these attempts: its Next returns no attempt a second time, its
// [Coordinator.Attempt] finds the attempt to which a result belongs, and timeouts, limits and rates continue. So a host can load the snapshot for
// each message, apply the message, and store the next snapshot. Snapshots of [Run.Snapshot] and [Result.Snapshot] contain no attempts in flight.
//
// The second Coordinator must have the same graph and options. It begins at the time of the snapshot; then NewCoordinator sets its clock to `now`,
// like Advance. Its sinks get only the events after the snapshot. The snapshot contains neither a call of [Run.Leave] nor the Warnings of the Result.
// The new run repeats the attempts, as after a crash, if it has another graph (see [AllowGraphChange]), is made by [Redrive] or [Fork], or has no
// Coordinator. If the snapshot was read from JSON, the run also repeats the attempts inside expanded nodes, unless it has the option
// [ExpandedGraphs]. Snapshot and NewCoordinator take time linear in the number of nodes.
func (c *Coordinator) Snapshot() *Snapshot {
	defer c.enter()()
	r, h := c.run, c.h
	r.plan.Hash() // calls user code (MarshalJSON), so it is called without the lock
	r.ID()
	for {
		h.settle(r)
		r.lockHashed()
		if len(h.jobs)+len(h.undos) == 0 {
			break
		}
		r.st.Unlock() // another goroutine has signalled or stopped the run since settle
	}
	defer r.st.Unlock()
	s := r.takeSnapshot()
	if !r.concluded() {
		s.file.InFlight = h.flight(r)
	}
	return s
}

// flightState is the part of a snapshot with which a run continues the attempts in flight. In a field that is a number, a time is
// in nanoseconds since Start.
type flightState struct {
	Start       time.Time   `json:"start"` // the zero of the run's clock
	Clock       int64       `json:"clock"`
	Advanced    *int64      `json:"advanced,omitempty"` // see machine.Locked.Advanced; nil without rates, and in files of older versions
	First       time.Time   `json:"first,omitzero"`     // see remarks.first
	Count       uint64      `json:"count,omitempty"`
	Lapsed      []string    `json:"lapsed,omitempty"`
	Requests    uint8       `json:"requests,omitempty"`
	Abandoned   []string    `json:"abandoned,omitempty"` // the paths of nodes, see remarks.abandonedInside
	Began       []flightRef `json:"began,omitempty"`     // see waits.began
	Interrupted *flightRef  `json:"interrupted,omitempty"`
	Gated       []string    `json:"gated,omitempty"` // the runs of tree.gated
	Runs        []runFlight `json:"runs"`
	// NotUndone contains the paths of the nodes that could not be undone, in the order in which their compensations failed.
	NotUndone []string `json:"not_undone,omitempty"`
	// Keys contains the token bucket of each key. All runs of the tree share these buckets.
	Keys []machine.Tokens `json:"keys,omitempty"`
	// Alarms contains the armed alarms, in the order in which they ring. Alarms of compensations are not included.
	Alarms []alarmFlight `json:"alarms,omitempty"`
}

// flightRef names a node of a run in a flightState.
type flightRef struct {
	Run  string `json:"run,omitempty"` // see Run.flightKey
	Node string `json:"node"`
}

// runFlight is the state of one run of the tree of runs.
type runFlight struct {
	Run      string            `json:"run,omitempty"`
	First    uint64            `json:"first,omitempty"` // First, Wave and Ended are as in the recorder
	Wave     uint64            `json:"wave,omitempty"`
	Ended    uint64            `json:"ended,omitempty"`
	StopsAll bool              `json:"stops_all,omitempty"`
	Moment   uint8             `json:"moment,omitempty"`
	Gates    []string          `json:"gates,omitempty"`
	Tokens   []machine.Tokens  `json:"tokens,omitempty"`
	Lines    []lineFlight      `json:"lines,omitempty"`
	Offers   []lineFlight      `json:"offers,omitzero"`  // see machine.Locked.Offers; nil in files of older versions
	Held     []string          `json:"held,omitempty"`   // see machine.Locked.Held
	Inputs   map[string]stored `json:"inputs,omitempty"` // the inputs of an expanded node's graph
	Nodes    []nodeFlight      `json:"nodes,omitempty"`
	Undos    []nodeFlight      `json:"undos,omitempty"` // the attempts to undo nodes
}

// lineFlight is a machine.Line that contains the ids of the nodes instead of their Refs.
type lineFlight struct {
	Group   int32    `json:"group,omitempty"`
	Key     string   `json:"key,omitempty"`
	Token   bool     `json:"token,omitempty"`
	Arrival uint64   `json:"arrival,omitempty"`
	Nodes   []string `json:"nodes,omitempty"`
}

// nodeFlight is the state of a node, and of its attempt in flight if there is one.
type nodeFlight struct {
	ID       string            `json:"id"`
	Number   uint64            `json:"number,omitempty"`   // see inFlight; 0 if the host does not perform the node
	Begun    bool              `json:"begun,omitempty"`    // whether Next has not returned the attempt yet
	Alone    bool              `json:"alone,omitempty"`    // see single.alone
	Draining bool              `json:"draining,omitempty"` // Draining and Stopping are as in the word of the node
	Stopping bool              `json:"stopping,omitempty"`
	Stop     *flightStop       `json:"stop,omitempty"` // why the context of the attempt has ended; nil if it has not ended
	Deadline int64             `json:"deadline,omitempty"`
	Timeout  *int64            `json:"timeout,omitempty"` // Timeout and Grace are for a compensation: when its timeout and its grace end
	Grace    *int64            `json:"grace,omitempty"`
	TimedOut timeoutScope      `json:"timed_out,omitempty"` // TimedOut and Lasts are extra.timedOut and extra.timeout, except for composites
	Lasts    time.Duration     `json:"lasts,omitempty"`
	Ready    int64             `json:"ready,omitempty"` // Ready and Behind are as in extra
	Behind   bool              `json:"behind,omitempty"`
	Undoes   bool              `json:"undoes,omitempty"` // for a composite: whether its attempt has failed, and the nodes inside are being undone
	Labels   map[string]string `json:"labels,omitempty"`
	Using    Usage             `json:"using,omitempty"`
}

// flightStop is the stored form of a stopCause. It describes why the context of an attempt has ended.
type flightStop struct {
	Err      *storedError `json:"error"`
	Deadline bool         `json:"deadline,omitempty"` // whether the method Err of the context returns context.DeadlineExceeded
	Turn     int          `json:"turn,omitempty"`     // the position in manual.stops, from 1; 0 if NextStop has returned the attempt
}

// alarmFlight is an armed alarm.
type alarmFlight struct {
	Run  string        `json:"run,omitempty"`
	Node string        `json:"node,omitempty"`
	Kind alarmKind     `json:"kind"`
	Due  int64         `json:"due"`
	For  time.Duration `json:"for,omitempty"` // for alarmTimeout: the length of the Timeout
}

// alarmKind says which field of a run, a node or an attempt contains an alarm.
type alarmKind string

const (
	alarmRun     alarmKind = "run"
	alarmToken   alarmKind = "token"
	alarmTimeout alarmKind = "timeout"
	alarmOverall alarmKind = "overall"
	alarmGrace   alarmKind = "grace"
	alarmBackoff alarmKind = "backoff"
	alarmPause   alarmKind = "pause"
	alarmWait    alarmKind = "wait"
	alarmCleanup alarmKind = "cleanup" // see boundWait
)

// flightKey returns a name of the run. No other run in the tree of runs has the same name.
func (r *Run) flightKey() string {
	if r.items != nil {
		return r.outer.path(r.within.ref) + "["
	}
	return r.prefix
}

// flightTaker collects a flightState.
type flightTaker struct {
	*flightState
	h      *manual
	calls  map[*Run][]*Step // the attempts in flight
	begun  map[*Step]bool
	turns  map[*Step]int // the positions in manual.stops
	alarms []*alarm      // the alarms that flightState.Alarms describes, in the same order
	others int           // the number of alarms of compensations
}

// flight returns the state of the attempts in flight. The caller holds the run's lock.
func (h *manual) flight(root *Run) *flightState {
	f := &flightTaker{
		flightState: &flightState{
			Start: h.start, Clock: h.clock.Load(), First: root.remarked().first, Count: h.count, Requests: root.requests,
			Lapsed:    slices.Sorted(maps.Keys(h.lapsed)),
			Abandoned: append(root.names(root.remarked().abandoned), root.remarked().abandonedInside...),
		},
		h: h, calls: map[*Run][]*Step{}, begun: make(map[*Step]bool, len(h.begun)), turns: make(map[*Step]int, len(h.stops)),
	}
	for _, s := range h.begun {
		f.begun[s] = true
	}
	for i, s := range h.stops {
		if !h.calls[s].told && f.turns[s] == 0 {
			f.turns[s] = i + 1
		}
	}
	for s, x := range h.calls {
		if x.current(s) {
			f.calls[s.run] = append(f.calls[s.run], s)
		}
	}
	f.run(root)
	if at, ok := root.st.Advanced(); ok {
		f.Advanced = &at
	}
	if root.undo != nil {
		for _, failed := range root.undo.failed {
			if !failed.gone {
				f.NotUndone = append(f.NotUndone, failed.path)
			}
		}
	}
	if root.waits != nil {
		for _, at := range stillWaiting(slices.Clone(root.waits.began)) {
			f.Began = append(f.Began, at.flightRef())
		}
	}
	if q := root.single; q.interrupts() {
		at := place{q.interrupted.run, q.interrupted.ref}.flightRef()
		f.Interrupted = &at
	}
	if t := root.tree; t != nil {
		for _, of := range t.gated {
			f.Gated = append(f.Gated, of.flightKey())
		}
		for _, key := range slices.Sorted(maps.Keys(t.keys)) {
			if left, ok := root.st.TokensOf(t.keys[key]); ok {
				left.Key = key
				f.Keys = append(f.Keys, left)
			}
		}
	}
	if n := len(f.alarms) + f.others; n != h.timers.Len() {
		root.st.NoteBug(fmt.Errorf("internal error: the snapshot has %d of %d alarms", n, h.timers.Len()))
	}
	order := make([]int, len(f.alarms))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return h.timers.Compare(f.alarms[i].manual(), f.alarms[j].manual()) })
	sorted := make([]alarmFlight, len(order))
	for i, at := range order {
		sorted[i] = f.Alarms[at]
	}
	f.Alarms = sorted
	return f.flightState
}

func (at place) flightRef() flightRef {
	return flightRef{at.run.flightKey(), at.run.plan.names[at.ref]}
}

// manual returns the timer of an alarm in a run that a Coordinator drives.
func (a *alarm) manual() *manualTimer { return a.timer.(*manualTimer) }

// alarm adds an alarm if it is armed.
func (f *flightTaker) alarm(a *alarm, kind alarmKind, r *Run, node string) {
	if a == nil || a.over {
		return
	}
	f.alarms = append(f.alarms, a)
	f.Alarms = append(f.Alarms, alarmFlight{Run: r.flightKey(), Node: node, Kind: kind, Due: a.manual().Due, For: a.lasts})
}

// run adds a run and its nested runs.
func (f *flightTaker) run(r *Run) {
	x := runFlight{Run: r.flightKey(), StopsAll: r.stopsAll, Moment: r.st.Moment(), Tokens: r.st.TokensLeft()}
	if rec := r.recorder; rec != nil {
		x.First, x.Wave, x.Ended = rec.first, rec.wave, rec.ended
	}
	for _, ref := range r.st.Gates() {
		x.Gates = append(x.Gates, r.plan.names[ref])
	}
	for _, l := range r.st.Lines() {
		x.Lines = append(x.Lines, lineFlight{l.Group, l.Key, l.Token, l.Arrival, r.names(l.Nodes)})
	}
	if offers := r.st.Offers(); offers != nil {
		x.Offers = make([]lineFlight, len(offers))
		for i, l := range offers {
			x.Offers[i] = lineFlight{Group: l.Group, Key: l.Key}
		}
	}
	x.Held = r.names(r.st.Held())
	if r.rootInputs != nil {
		x.Inputs = make(map[string]stored, len(r.rootInputs))
		for name, v := range r.rootInputs {
			x.Inputs[name] = stored{value: v}
		}
	}
	f.alarm(r.deadline, alarmRun, r, "")
	f.alarm(r.tokenDue, alarmToken, r, "")
	calls := f.calls[r]
	refs := slices.Collect(maps.Keys(r.extras))
	for _, s := range calls {
		if f.h.calls[s].undo != nil {
			if s.flags&stepUndo == 0 {
				continue // this attempt does not undo the node: it calls the step again to get the graph
			}
			x.Undos = append(x.Undos, f.undo(s))
		} else if r.extras[s.ref] == nil {
			refs = append(refs, s.ref)
		}
	}
	slices.SortFunc(x.Undos, func(a, b nodeFlight) int { return int(a.Number) - int(b.Number) })
	slices.Sort(refs)
	for _, ref := range refs {
		f.node(&x, r, ref)
	}
	f.undoAlarms(r)
	f.Runs = append(f.Runs, x)
	for _, ref := range refs {
		of := r.extras[ref]
		if of == nil || of.comp == nil {
			continue
		}
		for _, c := range append(slices.Clone(of.comp.past), of.comp.child) {
			if c != nil && (!c.concluded() || c.undo != nil) {
				f.run(c)
			}
		}
	}
}

// The method `node` adds the part of a node's state that the rest of the snapshot does not contain.
func (f *flightTaker) node(to *runFlight, r *Run, ref machine.Ref) {
	x, s, w := r.extras[ref], r.current(ref), r.st.Word(ref)
	n := nodeFlight{ID: r.plan.names[ref]}
	kept := s != nil && s.flags&stepAgain == 0
	if kept {
		n = f.attempt(s)
		if of, known := f.h.calls[s]; known {
			n.Alone = of.worker.alone
		}
		n.Draining, n.Stopping = w.Is(machine.WordDraining), w.Is(machine.WordStopping)
	}
	if s != nil {
		if c := s.ctx.Load(); c != nil {
			f.alarm(c.timeout, alarmTimeout, r, n.ID)
		}
	}
	if x != nil {
		if x.comp == nil {
			n.TimedOut, n.Lasts = x.timedOut, x.timeout
		} else if failed := x.comp.failed; failed != nil && !failed.undone {
			n.Undoes = true
		}
		if n.Behind = x.behind; !w.Status().Terminal() {
			n.Ready = x.ready
		}
		if s != nil {
			n.Labels, n.Using = maps.Clone(x.labels), maps.Clone(x.using)
		}
		f.alarm(x.overall, alarmOverall, r, n.ID)
		f.alarm(x.grace, alarmGrace, r, n.ID)
		backoff, wait := alarmBackoff, alarmWait
		if x.pauses() {
			backoff = alarmPause
		}
		if x.wait != nil && x.wait.Deadline.IsZero() {
			wait = alarmCleanup
		}
		f.alarm(x.backoff, backoff, r, n.ID)
		f.alarm(x.gate, wait, r, n.ID)
	}
	if kept || n.Ready != 0 || n.Behind {
		to.Nodes = append(to.Nodes, n)
	}
}

// attempt returns the state of an attempt.
func (f *flightTaker) attempt(s *Step) nodeFlight {
	n := nodeFlight{ID: s.run.plan.names[s.ref], Number: f.h.calls[s].number, Begun: f.begun[s]}
	c := s.ctx.Load()
	if c == nil {
		return n
	}
	n.Deadline = c.deadline
	if cause := c.cause.Load(); cause != nil {
		n.Stop = &flightStop{Err: storeError(cause.err), Deadline: cause.is == context.DeadlineExceeded, Turn: f.turns[s]}
	}
	return n
}

// undo returns the state of an attempt to undo a node.
func (f *flightTaker) undo(s *Step) nodeFlight {
	n, u := f.attempt(s), f.h.calls[s].undo
	for _, x := range []struct {
		alarm *alarm
		due   **int64
	}{{u.attempt, &n.Timeout}, {u.grace, &n.Grace}} {
		if x.alarm != nil && !x.alarm.over {
			*x.due = new(int64)
			**x.due = x.alarm.manual().Due
		}
	}
	return n
}

// undoAlarms counts the armed alarms of the run's compensations.
func (f *flightTaker) undoAlarms(r *Run) {
	if r.undo == nil {
		return
	}
	for _, u := range r.undo.nodes {
		for _, a := range []*alarm{u.attempt, u.grace, u.backoff} {
			if a != nil && !a.over {
				f.others++
			}
		}
	}
}

// clone returns a copy of f. Encoding or decoding the copy does not change f.
func (f *flightState) clone() *flightState {
	if f = clonePtr(f); f == nil {
		return nil
	}
	f.Runs = slices.Clone(f.Runs)
	for i := range f.Runs {
		x := &f.Runs[i]
		x.Inputs, x.Nodes, x.Undos = maps.Clone(x.Inputs), cloneFlights(x.Nodes), cloneFlights(x.Undos)
	}
	return f
}

func cloneFlights(nodes []nodeFlight) []nodeFlight {
	nodes = slices.Clone(nodes)
	for i := range nodes {
		nodes[i].Stop = clonePtr(nodes[i].Stop)
	}
	return nodes
}

// render replaces each error with its text.
func (f *flightState) render() {
	if f == nil {
		return
	}
	for i := range f.Runs {
		for _, nodes := range [][]nodeFlight{f.Runs[i].Nodes, f.Runs[i].Undos} {
			for _, n := range nodes {
				if n.Stop != nil {
					n.Stop.Err = n.Stop.Err.text()
				}
			}
		}
	}
}
