package kahn

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// Resume goes on with a run from a snapshot: terminal nodes stay as they are, waiting nodes wait on unless signals answers
// them, nodes that back off do so until the time that they had, nodes that were ready or running are ready, and everything else follows. A node whose attempt was under
// way is attempted again: steps are called at least once, and [Step.IdempotencyKey] is the same. Guards and conditions that
// have answered are not evaluated again. Attempts, event ids and delta indices go on counting.
//
// A composite that was running goes on in the same attempt, and its nested run goes on like the outer one: finished items of
// a map are not performed again, a loop goes on at its iteration. As for any node OverallTimeout has gone on counting and
// Timeout begins anew. The option [Timeout], if it is given again, ends the run at the deadline of the life in which the run
// began; one that has passed ends it before any signal arrives. Snapshots of versions that did not keep that deadline load,
// and Timeout begins anew.
//
// signals answers nodes that wait, by id, inside composites by path, or by token, a part of them or none; it may also answer
// gates that the run has not reached, inside composites if these have begun; inside of a node that was expanded it answers
// only waiting nodes, and an answer is judged when the graph is known. Deadlines of gates are those of the first wait; one
// that has passed fails its gate before any signal arrives.
//
// The graph must be the one that the snapshot was taken of, see [Plan.Hash]; otherwise the error matches [ErrGraphChanged],
// unless the option [AllowGraphChange] is given. A signal for a node that does not wait is an error that matches
// [ErrUnknownGate] or [ErrAnswered], one that is none of the choices of a [Gate] a [*ChoiceError], two for the same node one
// that matches [ErrDuplicateGate], a snapshot of a run that is over one that matches [ErrFinished], and one of a state that
// no run can be in one that matches [ErrBadValue]. Nothing was run then. Apart from this, Resume is [Execute] with the
// option [ResumeFrom].
func Resume(ctx context.Context, g *Graph, step StepFunc, s *Snapshot, signals map[string]any, opts ...Option) (*Result, error) {
	return Execute(ctx, g, step, append(slices.Clone(opts), ResumeFrom(s, signals))...)
}

// Redrive runs a part of a run again, as a new epoch of it: the named nodes, or without names all that failed, were aborted
// or were cancelled, and all their descendants, or with [KeepDescendants] only those descendants that have neither completed
// nor were skipped. The other results are reused. The nodes start anew: attempts count from 1, guards and conditions are
// evaluated again, and composites begin anew with their whole inside. Names are those of the outermost graph; one that it
// does not have is an error that matches [ErrUnknownNode]. Apart from this, Redrive is [Execute] with the option
// [RedriveFrom].
//
// A nil snapshot stands for the run in the store of the option [Durable], with the id of the option [RunID]. The first transaction of
// the new epoch takes the results of the nodes that run again out of the store: before it the store has the run as it was, after
// it the redriven run, which goes on after a crash like any other. A run that is not stored is an error that matches
// [ErrUnknownRun], one that another owner holds an error that matches [ErrLeased]. If the store does not answer that first transaction,
// the Result is that of the new epoch, and the store may have the old one.
func Redrive(ctx context.Context, g *Graph, step StepFunc, s *Snapshot, nodes []string, opts ...Option) (*Result, error) {
	return Execute(ctx, g, step, append(slices.Clone(opts), RedriveFrom(s, nodes...))...)
}

// ResumeFrom makes the run go on from a snapshot. See [Resume].
func ResumeFrom(s *Snapshot, signals map[string]any) Option {
	return optionFunc(func(c *config) error {
		if s == nil {
			return fmt.Errorf("%w: ResumeFrom(nil)", ErrBadOption)
		}
		c.from, c.signals, c.redrive, c.redriven, c.fork = s, signals, false, nil, false
		return nil
	})
}

// RedriveFrom makes the run repeat a part of a snapshot's, or without a snapshot a part of that in its store. See [Redrive].
func RedriveFrom(s *Snapshot, nodes ...string) Option {
	return optionFunc(func(c *config) error {
		if c.from != nil { // else they are for this life
			c.signals = nil
		}
		c.from, c.redrive, c.redriven, c.fork = s, true, nodes, false
		return nil
	})
}

// KeepDescendants makes a redrive reset as little as possible: of the descendants of the nodes that run again, those that
// have completed or were skipped stay as they are, with their outputs, and only those that failed, were aborted or
// cancelled, or had not ended run again, too. The end node always does. A kept node does not belong to the new epoch: it
// handles no failure of a node that has run again. A run that is not redriven is refused with an error that matches
// [ErrBadOption].
func KeepDescendants() Option {
	return optionFunc(func(c *config) error { c.keep = true; return nil })
}

// RedriveBy tells who asks for a redrive, and why. The Result, the event run.status.changed that begins the new epoch, and the events
// node.invalidated carry it. A run that is not redriven is refused with an error that matches [ErrBadOption].
func RedriveBy(q Request) Option {
	return optionFunc(func(c *config) error {
		q := shortened(q)
		c.redrivenBy = &q
		return nil
	})
}

// AllowGraphChange lets a run go on from a snapshot of another version of the graph, as long as the versions differ only in
// nodes that were idle or, under [Redrive], are to run again: every other node must exist, with the same in-edges, and equal
// the old one in everything that [Plan.Hash] covers, including the inside of a composite. A node that is to run again must
// exist. Any other difference is an error that matches [ErrGraphChanged]. A run in a store may also go on under another Name of its graph,
// which is refused with ErrGraphChanged otherwise.
func AllowGraphChange() Option {
	return optionFunc(func(c *config) error { c.allowChange = true; return nil })
}

// restoration is a snapshot matched with the plan of the run that goes on from it.
type restoration struct {
	file    snapshotFile
	held    *held
	invalid []Ref // redriven nodes that were not idle, in the order of declaration
	crashed bool  // the snapshot was taken in the middle of the run
	anew    bool  // waves begin anew: there are redriven nodes, or the run was over

	answered      takenSignals // before this life, and when it was begun
	invalidLatest []uint64     // the ids of the last events of the invalid nodes

	stored *store.Run // for a run in a store
	taken  takenBack  // from that, for a redrive
}

// restoration checks, before anything runs, that the run can go on from the snapshot, which is that of a stored run unless stored is nil.
func (r *Run) restoration(stored *store.Run) (*restoration, error) {
	p, c := r.plan, r.cfg
	file, err := c.from.decode(c.codec)
	if err != nil {
		return nil, err
	}
	if seen := c.listed; seen != nil && (stored.Status != seen.Status || !stored.Ended.Equal(seen.Ended)) {
		return nil, fmt.Errorf("%w: run %s was %v when it was listed, and has changed: it is %v", ErrTransition, quoteID(stored.ID), seen.Status, stored.Status)
	}
	x := &restoration{file: file, crashed: file.Status == RunRunning, stored: stored}
	if file.Hash != p.Hash() && !c.allowChange && !c.fork && c.adopts == nil {
		return nil, fmt.Errorf("%w: run %s of workflow %s has a graph with the hash %s, this one has %s", ErrGraphChanged, quoteID(file.Run), quoteID(file.Graph),
			quoteID(file.Hash), p.Hash())
	}
	if file.Status.Terminal() && !c.redrive && !c.fork && !c.reads {
		return nil, fmt.Errorf("%w: %v", ErrFinished, file.Status)
	}
	file.Nodes = p.inOrder(file.Nodes) // those from a store are not
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
	x.answered = takenBefore(x.file.Answered, x.file.recorded)
	for _, name := range slices.Sorted(maps.Keys(c.signals)) {
		if err := x.answer(name, c.signals[name]); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// redrive forgets the nodes that are to run again, and matches the others with the plan. It does not compare a forgotten
// node with the plan, which may declare another node of that id by now.
func (x *restoration) redrive(p *Plan, c *config) error {
	names, keep := c.redriven, c.keep
	again, err := p.marked(names)
	if err != nil {
		return err
	}
	if p.end != noRef {
		again[p.end] = true
	}
	refs := make([]Ref, len(x.file.Nodes))
	seen := make([]bool, len(p.names))
	stays := make([]bool, len(p.names)) // also if it follows a node that is to run again
	for i := range x.file.Nodes {
		n := &x.file.Nodes[i]
		ref, ok := p.Ref(n.ID)
		switch {
		case !ok:
			return fmt.Errorf("%w: node %s is %v in the snapshot", ErrGraphChanged, quoteID(n.ID), n.Status)
		case seen[ref]:
			return fmt.Errorf("%w: snapshot: node %s is there twice", ErrBadValue, quoteID(n.ID))
		}
		refs[i], seen[ref] = ref, true
		if bad := n.Status == Failed || n.Status == Aborted || n.Status == Cancelled; bad && len(names) == 0 {
			again[ref] = true
		}
		stays[ref] = keep && (n.Status == Completed || n.Status == Skipped)
	}
	p.spread(again, stays)
	x.file.Stop, x.file.Asked, x.file.Cancelled, x.file.Failed, x.file.Deadline = nil, nil, false, nil, time.Time{}
	return x.forget(p, c, refs, again)
}

// forget takes the nodes that are to run again out of the file, and matches the others with the plan.
func (x *restoration) forget(p *Plan, c *config, refs []Ref, again []bool) (err error) {
	var kept []nodeState
	for i, ref := range refs {
		if again[ref] {
			x.invalid, x.invalidLatest = append(x.invalid, ref), append(x.invalidLatest, x.file.Nodes[i].Latest)
			continue
		}
		n := x.file.Nodes[i]
		if c.keep && n.Epoch == 0 {
			n.Epoch = x.file.Epoch
		}
		kept = append(kept, n)
	}
	if x.stored != nil {
		x.taken = takeBack(p, x.stored, again)
		if c.keep {
			x.file.Kept = append(x.file.Kept, keptEpoch{x.file.Epoch, x.file.LastEvent})
		}
	}
	x.file.Answered, x.file.recorded = withoutAgain(p, x.file.Answered, again), 0
	x.anew = len(x.invalid) > 0 || x.file.Status.Terminal()
	x.file.Epoch++
	x.crashed = false
	x.held, err = x.hold(p, c, kept)
	return err
}

// hold reads the values of the nodes that do not run again, and matches them with the plan.
func (x *restoration) hold(p *Plan, c *config, nodes []nodeState) (*held, error) {
	if err := decodeNodes(c.codec, nodes); err != nil {
		return nil, err
	}
	h, err := holdNodes(p, nodes, "", true)
	if err == nil && (c.fork || x.file.Hash != p.Hash()) {
		err = h.takeNewBranches()
	}
	return h, err
}

// takeNewBranches gives conditions whose output matched no branch of the graph before the branches of this one. It calls user code.
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

// restore puts the run where the snapshot left it, in place of beginning. It is called with the lock held, before anything
// has run.
func (r *Run) restore(x *restoration) {
	if len(x.answered.list) > 0 {
		r.waiters().answered = x.answered
	}
	r.epoch, r.cancelled, r.failedGroups = x.file.Epoch, x.file.Cancelled, failuresOf(x.file.Failed)
	if x.file.Asked != nil { // else somebody may have asked while the run was pending
		r.asked = boundedRequest(x.file.Asked)
	}
	if r.redrivenBy = boundedRequest(x.file.Redriven); r.cfg.redrive {
		r.redrivenBy = r.cfg.redrivenBy
	}
	if r.log != nil {
		r.scope = &eventScope{r.plan, "", r.epoch} // there is no event yet
	}
	observed := r.st.ObservedWords()                   // of a pending run
	x.held.each(func(h *held) { h.run.base = r.base }) // what functions of Around have put in after nested runs were made
	x.held.endBackoffs(r.wallClock())
	x.held.install()
	if d := r.durable; d != nil {
		d.holdStored(x.held)
		d.holdAnswers(&r.waiters().answered)
		d.kept, d.forked, d.deltas = x.file.Kept, x.file.Forked, x.file.counted
		switch {
		case r.cfg.redrive:
			d.takeBack(&x.taken)
			counts := readDeltas(x.file.Deltas) // records that count them are taken back
			d.deltas = map[string]int{}
			counts.addTo(d.deltas)
		case r.cfg.fork:
			d.keep(x.held)
		}
	}
	r.restoreEpochs(x)
	r.restoreRecorder(x)
	switch {
	case r.cfg.fork:
		r.event(entry{kind: evRunStarted, arg: x.file.Forked})
	case r.cfg.redrive:
		said := requestOf(r.redrivenBy)
		r.event(entry{kind: evRunStatus, arg: event.StatusChange{From: x.file.Status, To: RunRunning, TotalWaiting: x.held.waiting(), Request: said}})
		for _, ref := range x.invalid {
			r.event(entry{kind: evNodeInvalidated, ref: ref, arg: event.Invalidation{Reason: "redrive", Request: said}})
		}
	case x.crashed:
		r.event(entry{kind: evRunRecovered, arg: event.Recovery{From: x.file.LastEvent}})
	default:
		r.event(entry{kind: evRunStatus, arg: event.StatusChange{From: RunSuspended, To: RunRunning, TotalWaiting: x.held.waiting()}})
	}
	// In files without InWave a run is in a wave if a node is decided: the start of a wave decides its nodes.
	inWave := x.file.InWave || x.file.Mode == Waves && len(x.file.Nodes) > 0
	x.held.resume(x.file.Stop, inWave && !x.anew)
	if !x.crashed { // an event of the earlier life has named them
		waits := r.waiters()
		waits.began = nil
		for _, k := range waits.kept {
			k.told = true
		}
	}
	r.st.RestoredFrom(observed)
	r.flush(0)
}

// restoreEpochs sets the epochs in which the nodes have ended, if a redrive has kept descendants.
func (r *Run) restoreEpochs(x *restoration) {
	if !slices.ContainsFunc(x.held.nodes, func(n nodeState) bool { return n.Epoch != 0 }) {
		return
	}
	epochs := slices.Repeat([]int{r.epoch}, len(r.plan.names))
	for i, ref := range x.held.refs {
		if n := &x.held.nodes[i]; n.Epoch != 0 {
			epochs[ref] = n.Epoch
		}
	}
	r.st.SetEpochs(epochs)
}

// restoreRecorder restores the recorder: the last event of each invalid node, and the number of deltas.
func (r *Run) restoreRecorder(x *restoration) {
	if r.log == nil {
		return
	}
	for i, ref := range x.invalid {
		r.recorder.latest[ref].id = x.invalidLatest[i]
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
	if r.tree == nil { // a node that was expanded before may be expanded again
		r.makeTree()
	}
	r.tree.deltas = readDeltas(inside)
}

// restoreRecord restores the record of a node.
func (r *Run) restoreRecord(ref Ref, n *nodeState) {
	rec := &r.records[ref]
	rec.attempts, rec.fallback = n.Attempts, n.Fallback
	if !n.Start.IsZero() {
		rec.start = int64(n.Start.Sub(r.start))
		rec.end = max(rec.start, int64(n.End.Sub(r.start))) // the first attempt may not have ended
	}
	switch {
	case n.Value != nil:
		rec.value = n.Value.value
	case n.Err != nil:
		rec.value = n.Err.restore()
	}
	if ref == r.plan.end && n.Status == Completed {
		r.endOutput = rec.value
	}
	reentries := max(n.Entries, n.Started-n.Attempts)
	if n.Status.Terminal() || r.plan.net.Is(ref, machine.FlagGate) {
		reentries = 0
	}
	if n.LastErr == nil && n.GuardErr == nil && n.StopErr == nil && n.Errs == nil && n.Began.IsZero() && n.Merged == nil && n.Wait == nil &&
		n.Saved == nil && n.Signal == nil && !n.Signalled && n.Tokens == [2]int{} && n.Message == "" && n.Answer == "" && !n.Abandoned && !n.Memoized && reentries == 0 && n.Cut == 0 && n.Crashes == 0 && n.Refused == nil && n.Status != Retrying {
		return
	}
	x := r.extra(ref)
	x.lastErr, x.guardErr, x.stop = n.LastErr.restore(), n.GuardErr.restore(), n.StopErr.restore()
	x.tokens, x.cut, x.crashes, x.refused = n.Tokens, n.Cut, n.Crashes, n.Refused.restore()
	if n.Status == Retrying {
		x.due = int64(n.Due.Sub(r.start))
	}
	x.abandoned, x.memoized, x.skip, x.answer, x.reentries = n.Abandoned, n.Memoized, n.Message, n.Answer, reentries
	r.reentered = r.reentered || reentries > 0
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
	if n.Signalled || n.Signal != nil {
		x.decision = &Decision{Actor: n.Actor, Comment: n.Comment, ID: n.SignalID}
		if n.Signal != nil {
			x.decision.Value = n.Signal.value
		}
	}
	if n.Wait != nil && n.Status == Suspended {
		x.wait = &Wait{Node: n.ID, Token: n.Wait.Token, Info: n.Wait.Info.value, Since: n.Wait.Since, Deadline: n.Wait.Deadline}
		if !r.plan.net.Is(ref, machine.FlagGate) {
			if r.tokens == nil {
				r.tokens = map[string]Ref{}
			}
			r.tokens[x.wait.Token] = ref
			r.tree.addToken(x.wait.Token, r)
		}
	}
}
