package kahn

import (
	"maps"
	"slices"

	"github.com/seed-c794f7ef/kahn/machine"
)

// Snapshot returns the run as it stands now. A run that is at work may be resumed from it as after a crash: attempts that
// are running now will be repeated.
func (r *Run) Snapshot() *Snapshot {
	r.plan.Hash() // calls user code (MarshalJSON), so not under the lock
	r.ID()
	r.st.Lock()
	defer r.st.Unlock()
	file := r.fileHeader()
	file.Inputs, file.Deltas = r.inputValues(), r.deltas()
	file.Nodes = append(file.Nodes, r.nodeStates()...)
	s := &Snapshot{file: file, codec: r.cfg.codec, log: r.log}
	if r.log == nil && r.cfg.from != nil {
		s.log = r.cfg.from.log
	}
	return s
}

// nodeStates are the states of all nodes, with the lock held.
func (r *Run) nodeStates() (nodes []nodeState) {
	for _, ref := range r.plan.declared {
		if w := r.st.Word(ref); w.Is(machine.WordDecided) && !r.isUntold(ref) {
			n := r.nodeState(ref)
			if x := r.extras[ref]; n.Inside != nil && x.comp != nil {
				n.Inside.Collected = x.comp.before.collected()
			}
			if n.Inside != nil && n.Inside.Due.IsZero() {
				n.Inside.Nodes = r.extras[ref].insideNodes()
				r.waiters().lend(place{r, ref})
			}
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// earlySignalStates are the signals for gates that were not reached yet.
func (r *Run) earlySignalStates() (list []signalState) {
	if len(r.signals) == 0 {
		return nil
	}
	for _, ref := range r.plan.declared {
		if a, ok := r.signals[ref]; ok {
			d := a.decision
			list = append(list, signalState{Node: r.plan.names[ref], Value: stored{d.Value, a.text}, Actor: d.Actor, Comment: d.Comment, ID: d.ID})
		}
	}
	return list
}

// stopState is the stop of the run, or nil.
func (r *Run) stopState() *stopState {
	if r.st.StoppedFor() == CauseNone {
		return nil
	}
	stop := &stopState{Kind: r.st.StoppedFor(), Drain: r.stopManner == machine.StopDraining, Err: storeError(r.stopError(r.st.StoppedFor()))}
	if r.stopOrigin != noRef {
		stop.Origin = r.plan.names[r.stopOrigin]
	}
	for _, kind := range slices.Sorted(maps.Keys(r.stopCauses)) {
		if kind != stop.Kind {
			stop.Later = append(stop.Later, laterStop{kind, storeError(r.stopError(kind))})
		}
	}
	return stop
}

// inputValues are the inputs of the run.
func (r *Run) inputValues() map[string]stored {
	if len(r.cfg.inputs) == 0 {
		return nil
	}
	values := make(map[string]stored, len(r.cfg.inputs))
	for name, v := range r.cfg.inputs {
		values[name] = stored{value: v}
	}
	return values
}

// fileHeader is the part of a snapshot beside the inputs, the nodes, and what is counted of them, with the lock held.
func (r *Run) fileHeader() snapshotFile {
	tier, _ := r.st.OpenTier()
	file := snapshotFile{
		Version: snapshotVersion, Graph: r.plan.name, Hash: r.plan.Hash(), Run: r.ID(), Epoch: r.epoch, Status: RunRunning,
		Taken: r.wallClock(), Cancelled: r.cancelled, Stop: r.stopState(), Asked: r.asked, Redriven: r.redrivenBy, Signals: r.earlySignalStates(), Mode: r.cfg.mode, InWave: r.cfg.mode == Waves && tier >= 0, Failed: r.failedGroups.all(), Estimates: r.estimates(), Nodes: []nodeState{},
	}
	switch {
	case r.concluded():
		file.Status = r.verdict.status
	case r.stage == stageResting:
		file.Status = RunSuspended
	}
	if r.durable != nil {
		file.Kept, file.Forked = r.durable.kept, r.durable.forked
	}
	if r.waits != nil {
		file.Answered = r.waits.answered.list
	}
	if r.bound != 0 {
		file.Deadline = r.timeAt(r.bound)
	}
	switch {
	case r.log != nil:
		file.LastEvent = r.log.lastID()
	case r.cfg.from != nil: // this life of the run has no events
		file.LastEvent = r.cfg.from.file.LastEvent
	}
	if f := r.cfg.fired; f != nil {
		file.Fired = &firedState{Trigger: f.trigger, Prune: r.cfg.prune, Payload: &stored{f.payload, f.text}}
	}
	return file
}

// Snapshot returns the final state of a run that is over: to be resumed if it is suspended, else to be redriven. It is nil for the zero
// Result.
func (r *Result) Snapshot() *Snapshot {
	if !r.hasRun() {
		return nil
	}
	return r.run.Snapshot()
}

// nodeState is the state of a node whose join has decided, with the lock held, without the nodes inside of a composite and the outputs that
// a loop has collected.
func (r *Run) nodeState(ref Ref) nodeState {
	rec, of := &r.records[ref], r.st.Saved(ref)
	n := nodeState{
		ID: r.plan.names[ref], Status: of.Status, Checking: of.Checking, Reached: of.Reached, Substituted: of.Substituted,
		Propagated: of.Propagated, Tolerated: of.Tolerated, Bypass: of.Bypass, Cause: of.Cause, Skip: of.Skip, By: of.By, Settled: of.Settled,
		Decided: of.Decided, Started: of.Started, Attempts: rec.attempts, Fallback: rec.fallback,
	}
	if of.Origin != noRef {
		n.Origin = r.plan.names[of.Origin]
	}
	for _, id := range of.Route {
		n.Labels = append(n.Labels, r.plan.labelsOf(ref)[id])
	}
	if r.outer == nil {
		n.Hash = r.plan.nodeHash(ref)
	}
	n.Epoch = r.st.Epoch(ref)
	if r.recorder != nil {
		n.Latest = r.recorder.latest[ref].id
	}
	if rec.attempts > 0 || n.Status.Terminal() {
		n.Start, n.End = r.timeAt(rec.start), r.timeAt(rec.end)
	}
	switch {
	case n.Status == Completed:
		n.Value = storedValue(rec.value)
	case rec.value != nil:
		n.Err = storeError(rec.errorOf())
	}
	if x := r.extras[ref]; x != nil {
		if !n.Status.Terminal() {
			n.Entries, n.Cut, n.Crashes, n.Refused = x.reentries, x.cut, x.crashes, storeError(x.refused)
			if n.Status == Retrying {
				n.Due = r.timeAt(x.due)
			}
		}
		r.extraState(&n, x)
		r.compositeState(&n, ref, x)
	}
	return n
}

func (r *Run) extraState(n *nodeState, x *extra) {
	n.Abandoned, n.Memoized, n.Message, n.Answer, n.Tokens = x.abandoned, x.memoized, x.skip, x.answer, x.tokens
	n.LastErr, n.GuardErr, n.StopErr = storeError(x.lastErr), storeError(x.guardErr), storeError(x.stop)
	for _, e := range x.errs {
		n.Errs = append(n.Errs, storeError(e.err))
		kept := retriedState{Number: e.number, Delay: e.delay}
		if e.number != 0 {
			kept.Start, kept.End = r.timeAt(e.start), r.timeAt(e.end)
		}
		n.Retried = append(n.Retried, kept)
	}
	if x.began != 0 {
		n.Began = r.timeAt(x.began)
	}
	if x.merged != nil {
		n.Merged = make(map[string]stored, len(x.merged))
		for name, v := range x.merged {
			n.Merged[name] = stored{value: v}
		}
	}
	text := x.texts.known()
	if x.wait != nil {
		n.Wait = &waitState{Token: x.wait.Token, Info: stored{x.wait.Info, text.info}, Since: x.wait.Since, Deadline: x.wait.Deadline}
	}
	if x.saved != nil {
		n.Saved = &stored{x.saved, text.saved}
	}
	if d := x.decision; d != nil {
		n.Signal, n.Signalled, n.Actor, n.Comment, n.SignalID = &stored{d.Value, text.signal}, true, d.Actor, d.Comment, d.ID
	}
}
