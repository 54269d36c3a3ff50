package kahn

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/saturate"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// Resume continues a run from a snapshot, in this process or another one. Terminal nodes stay unchanged. Waiting nodes keep waiting unless
// [EarlySignals] answers them. Nodes that back off keep the time of their next attempt. Nodes that were ready or running become ready. The states of
// all other nodes follow from these states. An attempt that was running is repeated with the same [Step.IdempotencyKey]: steps are called at least
// once. Guards and conditions that have answered are not evaluated again. The numbers of attempts, events and deltas continue. A composite that was
// running continues in the same attempt; for signals and deadlines see [EarlySignals] and [Timeout]. [Snapshot.Result] reads a snapshot of a run
// that has ended.
//
// The graph must be the graph of the snapshot, see [Plan.Hash]; otherwise the error matches [ErrGraphChanged], unless the option
// [AllowGraphChange] is given. The error matches [ErrFinished] if the run has ended, [ErrBadOption] if s is nil, and [ErrBadValue] if no run can
// be in the snapshot's state. After such an error, no step has run.
func Resume(s *Snapshot) Option {
	return optionFunc(func(c *config) error {
		if s == nil {
			return fmt.Errorf("%w: Resume(nil)", ErrBadOption)
		}
		c.from, c.redrive, c.redriven, c.redrivenBy, c.fork, c.adopts = s, false, nil, nil, false, nil
		return nil
	})
}

// Redrive reruns the named nodes and all their descendants, as a new epoch of the run. If no nodes are named, it reruns all nodes that failed, were
// aborted or were cancelled, and their descendants. Nodes that were undone rerun, too. With [KeepDescendants], descendants that completed or were
// skipped do not rerun. All other nodes keep their results. The nodes that rerun start from the beginning: attempts count from 1, guards and
// conditions are evaluated again. The argument `nodes` lists paths, see [Step.Path]: "charge", "S/charge", the item "M[3]", the iteration "L#2".
// Composites continue inside, unless [Anew] is given: see docs/errors.md.
//
// If s is nil, Redrive takes the run from the store of the option [Durable]; the option [RunID] gives its id. If the store does not answer the first
// transaction of the new epoch, the Result belongs to the new epoch, but the store may still contain the old epoch. A [Request] names the person or
// program that requests the redrive. The Result and the events run.status.changed and node.invalidated contain it.
//
// The error matches [ErrUnknownNode] if a path names no node, and [ErrHandlers] if the redrive would repeat failures that nodes have handled: see
// [DespiteHandlers]. It matches [ErrUnknownRun] if the run is not stored, and [ErrLeased] if another owner holds it.
func Redrive(s *Snapshot, nodes []string, by ...Request) Option {
	return optionFunc(func(c *config) error {
		c.from, c.redrive, c.redriven, c.redrivenBy, c.fork, c.adopts = s, true, nodes, nil, false, nil
		if q := asked(by); q != (Request{}) {
			c.redrivenBy = &q
		}
		return nil
	})
}

// AllowGraphChange lets a run continue from a snapshot of another version of the graph. The versions may differ only in nodes that were idle or that
// a [Redrive] runs again. Every other node must exist with the same in-edges, and must equal the old node in everything that [Plan.Hash] covers,
// including the nodes inside a composite. A node that runs again must still exist. Any other difference is refused with [ErrGraphChanged]. A stored
// run may also continue under another Name of its graph. Without this option, another Name is refused. The option has no effect on a run that
// begins. So a host can always set it, even if it does not know whether its store contains the run.
func AllowGraphChange() Option {
	return optionFunc(func(c *config) error { c.allowChange = true; return nil })
}

// restoration is a snapshot matched with the plan of the run that continues from this snapshot.
type restoration struct {
	file    snapshotFile
	held    *held
	crashed bool // whether the run was running, and not suspended, when the snapshot was taken; false for redrives, forks and adoptions
	anew    bool // whether waves begin again: nodes of the snapshot run again, the run had ended, or the run is a fork

	inFlight *flightState // the attempts in flight that continue, or nil
	recovers bool         // whether some attempts are missing in inFlight; the run repeats them

	answered takenSignals // the signals with IDs: those accepted before the run is continued, and those in its options

	stored *store.Run // the stored run from which the snapshot comes; nil without a store
	taken  takenBack  // the data that a redrive removes from the store
}

// The method `restoration` matches the snapshot with the plan, before any step runs. It returns an error if the run cannot continue from the
// snapshot. The parameter `stored` is the stored run from which the snapshot comes, or nil.
func (r *Run) restoration(stored *store.Run) (*restoration, error) {
	p, c := r.plan, r.cfg
	file, err := c.from.file, error(nil)
	if stored == nil {
		file = file.clone() // the snapshot belongs to the host, and must not change
	}
	if err = file.eachOfRun(decoder(c.codec)); err != nil {
		return nil, err
	}
	from := *c.from
	from.file.Nodes = nil // the run keeps c.from, but needs the nodes of c.from only here
	c.from = &from
	if seen := c.listed; seen != nil && (stored.Status != seen.Status || !stored.Ended.Equal(seen.Ended)) {
		return nil, fmt.Errorf("%w: run %s changed since it was listed (was %v, now %v)", ErrTransition, quoteID(stored.ID), seen.Status, stored.Status)
	}
	x := &restoration{file: file, crashed: file.Status == RunRunning, stored: stored}
	if c.inFlight(p) != nil {
		x.inFlight = file.InFlight
	}
	if file.Hash != p.Hash() && !c.allowChange && !c.fork && c.adopts == nil {
		return nil, fmt.Errorf("%w: the graph of run %s, workflow %s, has the hash %s, but this graph has %s: see AllowGraphChange, Adopt and Fork, or give another RunID", ErrGraphChanged,
			quoteID(file.Run), quoteID(file.Graph), quoteID(file.Hash), quoteID(p.Hash()))
	}
	if file.Status.Terminal() && !c.redrive && !c.fork && !c.reads {
		return nil, fmt.Errorf("%w: %v: see Redrive", ErrFinished, file.Status)
	}
	p.inOrder(file.Nodes) // a store returns nodes in any order
	if c.runID == "" && !c.fork {
		c.runID = file.Run
	}
	if c.inputs == nil && file.Inputs != nil {
		c.inputs = make(map[string]any, len(file.Inputs))
		for name, v := range file.Inputs {
			c.inputs[name] = v.value
		}
	}
	switch {
	case c.adopts != nil:
		if err = x.adopt(p, c); err == nil {
			x.held.early(x.file.Signals)
		}
	case c.redrive:
		err = x.redrive(p, c)
	case c.fork:
		err = x.fork(p, c)
	default:
		if x.held, err = x.hold(p, c, file.Nodes); err == nil {
			x.held.early(file.Signals)
		}
	}
	if err != nil {
		return nil, err
	}
	if stored != nil {
		x.held.storedAs(stored.Nodes)
	}
	x.answered = takenBefore(x.file.Answered, x.file.recorded)
	for _, name := range slices.Sorted(maps.Keys(c.signals)) {
		if err := x.answer(name, c.signals[name]); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// The method `redrive` removes the nodes that run again, and matches the other nodes with the plan. It does not compare a removed node with the plan,
// since the plan may now declare another node with that id.
func (x *restoration) redrive(p *Plan, c *config) error {
	if c.repeats&repairs != 0 {
		return x.repair(p, c)
	}
	a, err := p.redrives(x.file.Nodes, c)
	if err != nil {
		return err
	}
	x.file.Stop, x.file.Asked, x.file.Cancelled, x.file.Failed, x.file.Deadline, x.file.Undoing = nil, nil, false, nil, time.Time{}, nil
	return x.forget(p, c, a)
}

// The method `repair` makes the run continue, only to repeat compensations or to mark them as done by hand.
func (x *restoration) repair(p *Plan, c *config) error {
	if !x.file.Status.Terminal() {
		return fmt.Errorf("%w: run %s is %v", ErrNotEnded, quoteID(x.file.Run), x.file.Status)
	}
	a, err := p.repairs(x.file.Nodes, c)
	if err != nil {
		return err
	}
	if x.file.Undoing == nil || x.file.Undoing.Status == RunPending {
		x.file.Undoing = &undoingState{Status: x.file.Status}
	}
	x.file.Undoing = &undoingState{Status: x.file.Undoing.Status}
	if x.stored != nil {
		x.taken = takeUndos(x.stored.Nodes, a.paths, a.around)
	}
	x.file.Kept = append(slices.Clone(x.file.Kept), keptEpoch{x.file.Epoch, x.file.LastEvent})
	for i := range x.file.Nodes {
		if n := &x.file.Nodes[i]; n.Epoch == 0 {
			n.Epoch = x.file.Epoch
		}
	}
	x.file.Epoch++
	x.crashed = false
	x.held, err = x.hold(p, c, x.file.Nodes)
	return err
}

// The method `redrives` returns the nodes that a redrive runs again. It returns an error if the redrive is refused.
func (p *Plan) redrives(nodes []nodeState, c *config) (*again, error) {
	p.Hash() // also computes the hashes of the nodes
	d := redo{Keep: c.repeats&KeepDescendants != 0, Anew: c.repeats&Anew != 0, Despite: c.repeats&DespiteHandlers != 0}
	a, err := d.level(p, nodes, c.redriven, len(c.redriven) == 0, "", false)
	if err == nil && !d.Despite {
		err = refuseUndecided(nodes)
	}
	if err == nil && !d.Despite {
		err = a.handled(nil, nodes, "", true, false).refusal()
	}
	return a, err
}

// The method `forget` removes from the file the nodes that run again, and matches the other nodes with the plan.
func (x *restoration) forget(p *Plan, c *config, a *again) (err error) {
	keep := c.repeats&KeepDescendants != 0
	if x.stored != nil {
		x.taken = a.takeBack(x.file.Nodes, x.stored.Nodes)
		if keep {
			x.file.Kept = append(x.file.Kept, keptEpoch{x.file.Epoch, x.file.LastEvent})
		}
	}
	kept, dropped := a.take(x.file.Nodes, x.file.Epoch, keep)
	x.file.Answered, x.file.recorded = slices.DeleteFunc(slices.Clone(x.file.Answered), func(s answeredState) bool { return a.forgets(s.Gate) }), 0
	x.anew = a.any() || x.file.Status.Terminal()
	x.file.Epoch++
	x.crashed = false
	if x.held, err = x.hold(p, c, kept); err == nil {
		x.held.dropped = dropped
	}
	return err
}

// The method `hold` decodes the values of the nodes that do not run again, and matches these nodes with the plan.
func (x *restoration) hold(p *Plan, c *config, nodes []nodeState) (*held, error) {
	if err := decodeNodes(c.codec, nodes); err != nil {
		return nil, err
	}
	if x.inFlight != nil {
		if err := p.findGraphs(nodes, "", c.expanded); err != nil {
			return nil, err
		}
	}
	h, err := holdNodes(p, nodes, "", true)
	if x.inFlight != nil && err == nil && h.keepsSome() {
		x.recovers = true
	}
	if err == nil && (c.fork || x.file.Hash != p.Hash()) {
		err = h.takeNewBranches()
	}
	return h, err
}

// takeNewBranches makes completed conditions take branches of the new graph, if their outputs matched no branch of the old graph. It calls user
// code.
func (h *held) takeNewBranches() error {
	for i, ref := range h.refs {
		n := &h.nodes[i]
		if n.Status != Completed || len(n.Labels) > 0 || h.plan.net.Router(ref) < 0 || n.Value == nil {
			continue
		}
		err := contain(func() error {
			route, _ := h.plan.Route(ref, n.Value.value)
			for _, id := range route {
				n.Labels = append(n.Labels, h.plan.labelsOf(ref)[id])
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("snapshot: the branches of node %s: %w", quoteID(n.ID), err)
		}
	}
	return nil
}

// The method `restore` sets the run to the state of the snapshot, instead of beginning the run. The caller holds the run's lock; nothing has run
// yet.
func (r *Run) restore(x *restoration) {
	if len(x.answered.list) > 0 {
		r.waiters().answered = x.answered
	}
	r.epoch, r.cancelled = x.file.Epoch, x.file.Cancelled
	r.setFailedGroups(failuresOf(x.file.Failed))
	if x.file.Asked != nil { // this request precedes any request that a caller has sent while the run was pending
		r.rare().asked = boundedRequest(x.file.Asked)
	}
	redrivenBy := boundedRequest(x.file.Redriven)
	if r.cfg.redrive {
		redrivenBy = r.cfg.redrivenBy
	}
	if redrivenBy != nil {
		r.rare().redrivenBy = redrivenBy
	}
	if r.log != nil {
		r.scope = &eventScope{r.plan, "", r.epoch} // there are no events yet
	}
	r.restoreUndoing(&x.file)
	if !r.cfg.fork { // in contrast, a fork has used nothing yet
		r.restoreUsage(x.file.Usage)
		if first := x.held.firstStart(); !first.IsZero() && x.inFlight == nil {
			r.remark().first = first
		}
		if x.file.Labels != nil {
			r.remark().labels = x.file.Labels
		}
	}
	observed := r.st.ObservedWords() // the words of the pending run
	if x.inFlight != nil {
		r.manual.lands(x.inFlight)
	} else {
		x.held.endBackoffs(r.wallClock())
	}
	x.held.install()
	x.held.sortFailures()
	if d := r.durable; d != nil {
		d.holdStored(x.held)
		d.holdAnswers(&r.waiters().answered)
		d.kept, d.forked, d.deltas, d.undone = x.file.Kept, x.file.Forked, x.file.counted, maps.Clone(x.file.undone)
		switch {
		case r.cfg.redrive:
			d.takeBack(&x.taken)
			counts := readDeltas(x.file.Deltas) // the redrive removes records of nodes, so the run's record takes over all counts
			d.deltas = map[string]int{}
			counts.addTo(d.deltas)
		case r.cfg.fork:
			d.keep(x.held)
		}
	}
	x.held.restoreEpochs()
	r.restoreRecorder(x)
	switch {
	case x.inFlight != nil:
		r.resumeInFlight(x, observed)
		return
	case r.cfg.fork:
		r.event(entry{kind: evRunStarted, arg: x.file.Forked})
		x.held.beginInside()
	case r.cfg.redrive:
		said := requestOf(r.redrivenBy)
		r.event(entry{kind: evRunStatus, arg: event.StatusChange{From: x.file.Status, To: RunRunning, TotalWaiting: x.held.waiting(), Request: said}})
		x.held.invalidate(said)
		r.noteRepairs(x.held)
	case x.crashed:
		r.event(entry{kind: evRunRecovered, arg: event.Recovery{From: x.file.LastEvent}})
	default:
		r.event(entry{kind: evRunStatus, arg: event.StatusChange{From: RunSuspended, To: RunRunning, TotalWaiting: x.held.waiting()}})
	}
	// If InWave is missing in the file, the run was in a wave if any node was decided, since the start of a wave decides its nodes.
	inWave := x.file.InWave || x.file.Mode == Waves && len(x.file.Nodes) > 0
	x.held.resume(x.file.Stop, inWave && !x.anew)
	// An event named the waiting nodes before the run was continued, so no event names them again. After a crash that event may be lost.
	if !x.crashed {
		waits := r.waiters()
		waits.began = nil
		for _, k := range waits.kept {
			k.told = true
		}
	}
	r.st.RestoredFrom(observed)
	r.flush(0)
}

// The method `invalidate` logs the nodes that run again: the nodes of an outer run before the nodes of the runs nested in it.
func (h *held) invalidate(said event.Request) {
	h.each(func(h *held) {
		r := h.run
		for i := range h.dropped {
			n := &h.dropped[i]
			ref, ok := r.plan.Ref(n.ID)
			if !ok {
				continue
			}
			if r.recorder != nil {
				r.recorder.latest[ref].id = n.Latest
			}
			r.event(entry{kind: evNodeInvalidated, ref: ref, arg: event.Invalidation{Reason: "redrive", Request: said}})
		}
		for i, ref := range h.refs {
			if h.nodes[i].reopened {
				r.event(entry{kind: evNodeInvalidated, ref: ref, attempt: h.nodes[i].Attempts, arg: event.Invalidation{Reason: invalidInside, Request: said}})
			}
		}
	})
}

// invalidInside is the Reason of the event node.invalidated for a composite that had ended and now continues inside.
const invalidInside = "inside"

// restoreRecorder restores the number of deltas of each node.
func (r *Run) restoreRecorder(x *restoration) {
	if r.log == nil {
		return
	}
	inside := maps.Clone(x.file.Deltas)
	for path, n := range x.file.Deltas {
		if ref, ok := r.plan.Ref(path); ok {
			r.extra(ref).deltas = n
			delete(inside, path)
		}
	}
	if len(inside) == 0 {
		return
	}
	if r.tree == nil { // a node that was expanded may be expanded again, and then needs the counts
		r.makeTree()
	}
	r.tree.deltas = readDeltas(inside)
}

// restoreRecord restores the record of a node.
func (r *Run) restoreRecord(ref machine.Ref, n *nodeState) {
	rec := &r.records[ref]
	rec.attempts, rec.fallback = n.Attempts, n.Fallback
	if !n.Start.IsZero() {
		rec.start = int64(n.Start.Sub(r.start))
		rec.end = max(rec.start, int64(n.End.Sub(r.start))) // End is zero if the first attempt has not ended
	}
	if n.reopened {
		rec.start = r.now()
		rec.end = rec.start
	}
	switch {
	case n.Value != nil:
		rec.value = n.Value.value
	case n.Err != nil:
		rec.value = n.Err.restore()
	}
	// Each start that was not an attempt was a re-entry, and one more re-entry may be pending. In a damaged file, the number of re-entries may be
	// larger.
	reentries := min(max(n.Entries, n.Started-n.Attempts), max(n.Started-n.Attempts, 0)+1)
	if n.Status.Terminal() || r.plan.net.Is(ref, machine.FlagGate) {
		reentries = 0
	}
	if reentries == 0 && !n.needsExtra() {
		return
	}
	x := r.extra(ref)
	x.reentries = reentries
	r.reentered = r.reentered || reentries > 0
	r.restoreExtra(ref, x, n)
	r.restoreWait(ref, x, n)
}

// needsExtra reports whether a node has facts that are not part of its record.
func (n *nodeState) needsExtra() bool {
	return n.nodeFacts != (nodeFacts{}) || n.LastErr != nil || n.GuardErr != nil || n.StopErr != nil || n.Errs != nil || !n.Began.IsZero() || n.Merged != nil ||
		n.Asked != nil || n.Wait != nil || n.Saved != nil || n.Signal != nil || n.Signalled || n.Refused != nil || n.Status == Retrying || n.Awaited != nil
}

// restoreExtra restores the additional record of a node, except its wait.
func (r *Run) restoreExtra(ref machine.Ref, x *extra, n *nodeState) {
	x.lastErr, x.guardErr, x.stop = n.LastErr.restore(), n.GuardErr.restore(), n.StopErr.restore()
	x.nodeFacts, x.refused = n.nodeFacts, n.Refused.restore()
	x.Cut = min(x.Cut, n.Attempts) // a larger Cut in a damaged file would permit extra attempts
	r.restoreTokens(ref, x)
	r.bindKey(ref, n.Key)
	if n.Asked != nil {
		x.asked = slices.AppendSeq([]machine.Ref{}, r.plan.refsOf(n.Asked))
	}
	if x.guardErr != nil {
		r.warnOfGuard(ref, &guardProblem{path: r.path(ref), policy: r.plan.guard(ref), err: x.guardErr})
	}
	if n.Status == Retrying {
		x.due = int64(n.Due.Sub(r.start))
	}
	for i, e := range n.Errs {
		x.errs = append(x.errs, attemptError{err: e.restore()})
		if i < len(n.Retried) {
			kept, known := n.Retried[i], &x.errs[i]
			known.number, known.start, known.end, known.delay = kept.Number, int64(kept.Start.Sub(r.start)), int64(kept.End.Sub(r.start)), kept.Delay
		}
	}
	if !n.Began.IsZero() {
		x.began = int64(n.Began.Sub(r.start))
	}
	if n.Merged != nil {
		x.merged = make(map[string]any, len(n.Merged))
		for name, v := range n.Merged {
			x.merged[name] = v.value
		}
	}
	if n.Saved != nil {
		x.saved = n.Saved.value
	}
	x.awaited = slices.Clone(n.Awaited)
}

// restoreWait restores the wait of a node, or the signal that ended its last wait.
func (r *Run) restoreWait(ref machine.Ref, x *extra, n *nodeState) {
	if n.Signalled || n.Signal != nil {
		x.decision = &Decision{Actor: n.Actor, Comment: n.Comment, ID: n.SignalID}
		if n.Signal != nil {
			x.decision.Value = n.Signal.value
		}
	}
	if n.Wait == nil || n.Status != Suspended {
		return
	}
	x.wait = &Wait{Node: n.ID, Token: n.Wait.Token, Info: n.Wait.Info.value, Since: n.Wait.Since, Deadline: n.Wait.Deadline, Run: n.Wait.Run}
	if r.plan.net.Is(ref, machine.FlagGate) {
		x.wait.Choices = slices.Clone(r.plan.choices(ref)) // the snapshot may come from another version of the plan or of kahn
		return
	}
	if r.tokens == nil {
		r.rare().tokens = map[string]machine.Ref{}
	}
	r.tokens[x.wait.Token] = ref
	r.tree.addToken(x.wait.Token, r)
	if x.wait.Run != "" {
		r.awaitAgain(ref, x)
	}
}

// The type `held` contains the nodes of one run in a snapshot, matched with the run's plan.
type held struct {
	plan    *Plan
	nodes   []nodeState
	refs    []machine.Ref            // by node
	at      map[machine.Ref]int      // by ref: the index of the node in nodes
	tokens  map[string]machine.Ref   // the steps that wait, by token
	signals map[machine.Ref]Decision // signals for nodes that wait, and for gates that the run has not reached
	inside  []*held                  // the nodes inside composites, in the order of nodes
	kept    map[int]*nodeState       // the states of expanded nodes whose graphs are not known, by index
	former  map[int]*formerState     // the same for expanded nodes that wait for their next attempt
	named   *heldNames               // names in an outermost run; made when the first signal is looked up
	dropped []nodeState              // the nodes that run again

	within *nodeState      // the composite that contains these nodes; nil for the outermost run
	ref    machine.Ref     // the composite's ref
	list   *items          // the items of a map
	past   []*held         // the earlier iterations of a loop with nodes that may have to be undone
	ended  *endedExpansion // set if the nodes belong to an ended attempt of an expanded node that waits for its next attempt

	run      *Run // the continuing run; nil until it is made
	answers  map[machine.Ref]answer
	accepted map[machine.Ref]bool // the waiting nodes whose signals arrived in time
	refused  []error              // errors about signals with a value that is not one of the gate's choices
}

// holdNodes matches nodes with a plan. Only nodes of the outermost run have hashes; a hash also covers the nodes inside its node.
func holdNodes(p *Plan, nodes []nodeState, prefix string, outermost bool) (*held, error) {
	h := &held{plan: p, nodes: nodes, at: map[machine.Ref]int{}, tokens: map[string]machine.Ref{}, signals: map[machine.Ref]Decision{}, kept: map[int]*nodeState{}}
	for i := range nodes {
		n := &nodes[i]
		name := quoteID(prefix + n.ID)
		ref, ok := p.Ref(n.ID)
		if !ok || outermost && n.Hash != p.nodeHash(ref) {
			return nil, fmt.Errorf("%w: node %s is %v in the snapshot, but has changed or is not in the graph", ErrGraphChanged, name, n.Status)
		}
		if _, twice := h.at[ref]; twice || n.Status >= statusCount || n.Status == Waiting || n.Status == Idle && !n.Checking {
			return nil, fmt.Errorf("%w: snapshot: node %s occurs twice, or cannot be %v", ErrBadValue, name, n.Status)
		}
		if n.Status == Suspended && n.Wait == nil {
			return nil, fmt.Errorf("%w: snapshot: node %s is suspended, but the record of its wait is missing", ErrBadValue, name)
		}
		if !n.sound(p, ref) {
			return nil, fmt.Errorf("%w: snapshot: the state of node %s contradicts its status, %v", ErrBadValue, name, n.Status)
		}
		h.at[ref] = i
		h.refs = append(h.refs, ref)
		if n.Status == Suspended && !p.net.Is(ref, machine.FlagGate) {
			h.tokens[n.Wait.Token] = ref
		}
		if n.Former != nil {
			if err := h.holdFormer(i, ref, prefix); err != nil {
				return nil, err
			}
		}
		if n.expanded() {
			if n.Inside.plan != nil && (n.Inside.goesOn || n.Status.Terminal() && !n.Inside.isUnfinished()) {
				in, err := holdGraph(n.Inside.plan, ref, n, prefix)
				if err != nil {
					return nil, err
				}
				h.inside = append(h.inside, in)
			} else if err := h.keep(i, prefix); err != nil {
				return nil, err
			}
			continue
		}
		if !p.net.Is(ref, machine.FlagComposite) {
			n.Inside = nil // the node is mocked
			continue
		}
		in, err := holdInside(p, ref, n, prefix)
		if err != nil {
			return nil, err
		}
		if in != nil {
			h.inside = append(h.inside, in)
		}
	}
	return h, nil
}

// maxStored is the greatest value of the counters in a snapshot. A run that continues can count further from this value without an overflow.
const maxStored = 1 << 30

// The method `sound` reports whether the state of a node is consistent enough to make the node's word from it. The state may be inconsistent, since
// another program may have written the file.
func (n *nodeState) sound(p *Plan, ref machine.Ref) bool {
	for _, count := range []int32{n.Attempts, n.Cut, n.Crashes, n.Started, n.Entries, n.Settled, n.Decided} {
		if count < 0 || count > maxStored {
			return false
		}
	}
	deciders := len(p.net.In(ref))
	if n.Skip == SkipNullPropagation {
		deciders = len(p.node(ref).Ports)
	}
	stopped := n.Status == Failed || n.Status == Aborted || n.Status == Cancelled
	switch {
	case n.By < 0 || n.By > deciders || n.TimedOut > timeoutOverall || n.Checking && n.Status != Idle:
		return false
	case (n.Status == Skipped) != (n.Skip != SkipNone), n.Skip == SkipNullPropagation && n.By == 0:
		return false
	case n.Skip == SkipSuperseded:
		_, known := p.Ref(n.Origin)
		return known
	case p.net.Is(ref, machine.FlagGate) && (n.Started != 0 || n.Attempts != 0): // a gate has no attempts
		return false
	}
	return !n.Status.Terminal() || stopped == (n.Cause != CauseNone) // a node that has not ended may have a Cause: it may be about to stop
}

// inOrder sorts nodes into the order of declaration.
func (p *Plan) inOrder(nodes []nodeState) {
	type numbered struct{ at, i int32 }
	order := make([]numbered, len(nodes))
	for i := range nodes {
		order[i] = numbered{-1, int32(i)}
		if ref, ok := p.Ref(nodes[i].ID); ok {
			order[i].at = p.decl[ref]
		}
	}
	compare := func(a, b numbered) int { return cmp.Compare(a.at, b.at) }
	if slices.IsSortedFunc(order, compare) {
		return
	}
	slices.SortStableFunc(order, compare)
	at := make([]int32, len(nodes))
	for i, x := range order {
		at[x.i] = int32(i)
	}
	moveTo(nodes, at)
}

// The method `expanded` reports whether the node was expanded. Only snapshots taken in this process contain the expanded graph.
func (n *nodeState) expanded() bool { return n.Inside != nil && n.Inside.Expanded != "" }

// The method `keep` copies node i to h.kept, and moves the nodes inside it there. Node i is an expanded node whose graph is not known. If the nested
// run has not ended, the step is called again, in the same attempt.
func (h *held) keep(i int, prefix string) error {
	n := &h.nodes[i]
	if n.Inside.Items != 0 || n.Inside.Iteration != 0 || !n.Status.Terminal() && n.Status != Running && n.Status != Ready {
		return fmt.Errorf("%w: snapshot: the state of the nodes inside node %s is not valid", ErrBadValue, quoteID(prefix+n.ID))
	}
	kept := *n
	kept.Inside = kept.Inside.clone() // the copy may be needed after the file is no longer used
	h.kept[i], n.Inside = &kept, nil
	if n.Status == Running {
		n.Status, n.Entries = Ready, max(n.Entries, n.Started-n.Attempts)+1
	}
	if kept.Status == Ready {
		kept.Status = Running
	}
	kept.Draining, n.Dormant = false, false
	kept.Inside.deeper = kept.Inside.signalsDeeper(nil, "")
	return nil
}

// The method `begun` reports whether a nested run has begun.
func (h *held) begun() bool { return h.plan != nil }

// The method `continues` reports whether the nested run continues. If it has begun but does not continue, its composite has ended, and h is kept
// only for the results.
func (h *held) continues() bool { return h.begun() && h.within.Status == Running }

// The method `pauses` reports whether the composite is a loop that waits for its next iteration.
func (h *held) pauses() bool {
	return h.within != nil && h.within.Inside != nil && !h.within.Inside.Due.IsZero()
}

// The method `each` calls f for h and for the nested runs that continue: for an outer run before the runs nested in it.
func (h *held) each(f func(h *held)) {
	f(h)
	for _, in := range h.inside {
		if in.continues() {
			in.each(f)
		}
	}
}

// storedAs attaches the run's stored nodes to the expanded nodes whose graphs are not known. When a graph becomes known, the stored nodes are
// needed to determine which nodes inside it run again.
func (h *held) storedAs(nodes map[string]store.Node) {
	h.each(func(h *held) {
		for _, n := range h.kept {
			n.stored = nodes
		}
	})
}

// The method `waiting` counts the nodes that wait.
func (h *held) waiting() (n int) {
	h.each(func(h *held) {
		for i := range h.nodes {
			if h.nodes[i].Status == Suspended {
				n++
			}
			if kept := h.kept[i]; kept != nil && kept.Status == Running {
				n += len(kept.Inside.waiting(nil, "", false))
			}
		}
	})
	return n
}

// endBackoffs makes each node ready if its backoff has ended. A backoff without a recorded end counts as ended: an older version wrote the snapshot.
// Except for a SuspendUntil, endBackoffs bounds each remaining backoff by the node's policy, since the old process may have had a wrong clock. The
// bound matters most for a cleanup node, since nothing else ends the backoff of such a node.
func (h *held) endBackoffs(now time.Time) {
	h.each(func(h *held) {
		for i, ref := range h.refs {
			switch n := &h.nodes[i]; {
			case n.Status != Retrying:
			case !n.Due.After(now):
				n.Status, n.Sleeps = Ready, false
			case !n.Sleeps:
				n.Due = now.Add(h.plan.retryOf(ref, h.run.cfg.defaultRetry).bound(n.Due.Sub(now)))
			}
		}
	})
}

// continueWaits ends overdue waits and nodes, arms the other deadlines, and then delivers the signals in the order in which their nodes
// are declared. For an overall timeout, the time before the run was continued also counts.
func (h *held) continueWaits(now int64) {
	h.endDoomed(now)
	h.settleOverdue(now)
	h.each(func(h *held) { h.run.armWaits(now) })
	h.each(func(h *held) { h.run.deliver(h.answers, h.refused, now) })
	var inner []*held
	h.each(func(h *held) { inner = append(inner, h) })
	for _, in := range slices.Backward(inner) {
		if in.run.stage == stageResting && (in.run.st.MayGoOn() || in.run.st.HasEnded()) {
			in.run.wake(now)
		}
	}
	for _, in := range inner {
		if in.run.outer == nil || in.run.stage != stageResting {
			continue
		}
		in.run.st.HushReady() // these nodes are held back, and observers were already notified that they are Ready
	}
}

// The type `overdue` is a deadline that passed before the run was continued.
type overdue struct {
	run  *Run
	ref  machine.Ref // noRef for the whole run
	due  int64       // on the run's clock
	gate bool        // whether the deadline ends a wait of a gate or a step; false for the overall timeout of a node
}

// settleOverdue ends overdue waits and nodes, and stops the run if its timeout has passed, in the order of the deadlines. For equal deadlines, an
// outer run precedes the runs nested in it, the nodes of one run are in the order of declaration, and the timeout of the run is last. All this
// happens before kahn delivers signals and calls steps. settleOverdue does not end an overdue wait whose signal arrived in time.
func (h *held) settleOverdue(now int64) {
	var list []overdue
	h.each(func(h *held) {
		for _, ref := range h.run.plan.declared {
			if due, ok := h.run.waitEnds(ref); ok && due <= now {
				if _, answered := h.answers[ref]; !answered || !h.accepted[ref] {
					list = append(list, overdue{h.run, ref, due, true})
				}
			}
			due, gate, ok := h.run.dueAt(ref)
			if _, answered := h.answers[ref]; answered && gate && h.accepted[ref] {
				continue
			}
			if ok && due <= now {
				list = append(list, overdue{h.run, ref, due, gate})
			}
		}
	})
	if r := h.run; r.outer == nil && r.stage >= stageRunning && r.bound != 0 && r.bound <= now && !r.isUndoing() {
		list = append(list, overdue{r, noRef, r.bound, false})
	}
	slices.SortStableFunc(list, func(a, b overdue) int { return cmp.Compare(a.due, b.due) })
	for _, o := range list {
		if o.ref == noRef {
			o.run.timeUp()
			h.each(func(h *held) { h.run.collectStops() }) // the nested runs must also be stopped before a signal reaches them
			continue
		}
		_, _, ok := o.run.dueAt(o.ref)
		if o.gate && !o.run.plan.net.Is(o.ref, machine.FlagGate) {
			_, ok = o.run.waitEnds(o.ref)
		}
		if !ok {
			continue // an earlier deadline has already ended the wait
		}
		if o.gate {
			o.run.gateTimedOut(o.ref, now)
			continue
		}
		x := o.run.extra(o.ref)
		o.run.disarm(&x.overall)
		o.run.overallTimeOut(o.ref, x, o.run.plan.node(o.ref).OverallTimeout, now)
	}
}

// dueAt returns the time at which the wait of a gate ends. For any other node that has begun, it returns the time at which the node's overall timeout
// passes.
func (r *Run) dueAt(ref machine.Ref) (due int64, gate, ok bool) {
	status, x := r.st.Word(ref).Status(), r.extras[ref]
	if status.Terminal() {
		return 0, false, false
	}
	if r.plan.net.Is(ref, machine.FlagGate) {
		if status != Suspended || x.wait.Deadline.IsZero() {
			return 0, true, false
		}
		return int64(x.wait.Deadline.Sub(r.start)), true, true
	}
	timeout := r.plan.node(ref).OverallTimeout
	if timeout == 0 || r.records[ref].attempts == 0 || x != nil && x.timedOut == timeoutOverall || r.st.Word(ref).Is(machine.WordStopping) {
		return 0, false, false
	}
	return saturate.Add(r.records[ref].start, int64(timeout)), false, true
}

// waitEnds returns the deadline of a step's wait for a signal.
func (r *Run) waitEnds(ref machine.Ref) (due int64, ok bool) {
	x := r.extras[ref]
	if x == nil || x.wait == nil || x.wait.Deadline.IsZero() || r.st.Word(ref).Status() != Suspended || r.plan.net.Is(ref, machine.FlagGate) {
		return 0, false
	}
	return int64(x.wait.Deadline.Sub(r.start)), true
}

// armWaits arms the deadlines, pauses and backoffs of a continuing run.
func (r *Run) armWaits(now int64) {
	for _, ref := range r.plan.declared {
		due, gate, ok := r.dueAt(ref)
		switch {
		case !ok:
		case gate:
			r.armGate(ref, r.extras[ref], time.Duration(due-now))
			r.warnOfGate(ref, now, due)
		default:
			r.continueOverall(ref, now)
		}
		if x := r.extras[ref]; x != nil && x.comp != nil && x.comp.pause != nil && r.st.Word(ref).Status() == Running {
			r.continuePause(ref, x, now)
		}
		if due, ok := r.waitEnds(ref); ok {
			r.armGate(ref, r.extras[ref], time.Duration(due-now))
		}
		if r.st.Status(ref) == Retrying {
			r.awaitBackoff(ref, r.extras[ref], now)
		}
	}
}

// The method `deliver` delivers signals, and adds a warning for each refused signal.
func (r *Run) deliver(answers map[machine.Ref]answer, refused []error, now int64) {
	root := r.outermost()
	for _, err := range refused {
		root.warn(fmt.Errorf("signal: %w", err))
	}
	for _, ref := range r.plan.declared {
		if a, ok := answers[ref]; ok {
			if err := r.signal(ref, a, now); err != nil {
				root.warn(fmt.Errorf("signal for node %s: %w", quoteID(r.path(ref)), err))
			}
		}
	}
}

// continueOverall arms the overall timeout of a node, unless it is already armed. The time before the run was continued also counts.
func (r *Run) continueOverall(ref machine.Ref, now int64) {
	n := r.plan.node(ref)
	if n.OverallTimeout == 0 || r.records[ref].attempts == 0 || r.st.Word(ref).Status().Terminal() {
		return
	}
	if x := r.extra(ref); x.overall == nil {
		left := saturate.Add(saturate.Add(r.records[ref].start, int64(n.OverallTimeout)), -now)
		x.overall = r.afterAsStored(time.Duration(left), func(now int64) { r.overallTimeOut(ref, x, n.OverallTimeout, now) })
	}
}

// moveTo moves node i to position at[i]. It changes both slices.
func moveTo(nodes []nodeState, at []int32) {
	for i := range nodes {
		for j := at[i]; int(j) != i; j = at[i] {
			nodes[i], nodes[j] = nodes[j], nodes[i]
			at[i], at[j] = at[j], j
		}
	}
}
