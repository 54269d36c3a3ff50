package kahn

import (
	"context"
	"fmt"
	"math"
)

// Result returns the Result of a run that has ended from its snapshot, in whatever process. The plan must be that of the run, see
// [Plan.Hash]; otherwise the error matches [ErrGraphChanged]. Of the options, [Encoding], [AllowGraphChange], and the status rule that the run
// had matter. The error of a run that failed or was cancelled is like that of [Execute]; a snapshot of a run that has not ended is an error
// that matches [ErrNotEnded].
// A changed graph with a node that the run has not ended is an error that matches [ErrBadValue]: no step is called.
//
// The Result is like that of Execute, without Warnings. It begins with the first attempt and lasts until the last one has ended. Of an
// expanded node it has no nested Result if the snapshot comes from a file.
func (s *Snapshot) Result(p *Plan, opts ...Option) (*Result, error) {
	switch {
	case !p.isCompiled():
		return nil, ErrNoGraph
	case !s.Status().Terminal():
		return nil, fmt.Errorf("%w: run %s is %v", ErrNotEnded, quoteID(s.RunID()), s.Status())
	}
	r, err := reader(p, s.RunID(), opts)
	if err != nil {
		return nil, err
	}
	r.cfg.from = s
	if err := r.fire(); err != nil {
		return nil, err
	}
	x, err := r.restoration(nil)
	if err != nil {
		return nil, err
	}
	return r.readEnded(x, s.Status())
}

// reader makes a Run that is restored to be read, and performs nothing.
func reader(p *Plan, id string, opts []Option) (*Run, error) {
	given, err := configure(opts, false)
	if err != nil {
		return nil, err
	}
	cfg := byDefault[0]
	cfg.codec, cfg.statusRule, cfg.allowChange, cfg.runID, cfg.reads = given.codec, given.statusRule, given.allowChange, id, true
	return &Run{
		runGiven:   runGiven{plan: p, stepless: true, ctx: context.Background(), base: context.Background(), cfg: &cfg, unheld: true},
		runNest:    runNest{instance: &notNested},
		runOutcome: runOutcome{done: make(chan struct{})},
	}, nil
}

// readEnded restores a run that had ended, and returns its Result.
func (r *Run) readEnded(x *restoration, status RunStatus) (*Result, error) {
	if !x.ended() { // a step would be called
		return nil, r.notOver(status)
	}
	r.cfg.mode = x.file.Mode
	r.prepare(x)
	r.open(x, nil, 0)
	return r.read(status)
}

// ended reports whether every node of the plan has ended. A run that was stopped does not perform its end node.
func (x *restoration) ended() bool {
	h := x.held
	for ref := range Ref(len(h.plan.names)) {
		i, known := h.at[ref]
		if over := known && h.nodes[i].Status.Terminal(); !over && (ref != h.plan.end || x.file.Stop == nil) {
			return false
		}
	}
	return true
}

// notOver is the error of a run that has ended and lacks the end of a node.
func (r *Run) notOver(status RunStatus) error {
	return fmt.Errorf("%w: run %s is %v, and some nodes of the graph have not ended in it", ErrBadValue, quoteID(r.ID()), status)
}

// read returns the Result of a run that was restored and had ended.
func (r *Run) read(status RunStatus) (*Result, error) {
	r.st.Lock()
	over := r.concluded()
	r.verdict.status = status // whatever rule was given
	r.began, r.ended = math.MaxInt64, math.MinInt64
	for ref := range r.records {
		if rec := &r.records[ref]; rec.attempts > 0 {
			r.began, r.ended = min(r.began, rec.start), max(r.ended, rec.end)
		}
	}
	if r.began > r.ended { // there was no attempt
		r.began, r.ended = 0, 0
	}
	r.st.Unlock()
	if !over {
		r.Cancel()
		<-r.done
		return nil, r.notOver(status)
	}
	return r.Wait()
}
