package kahn

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/seed-c794f7ef/kahn/store"
)

// ErrNotEnded rejects a request for the Result of a stored run that has not ended.
var ErrNotEnded = errors.New("the run has not ended")

// ReadSnapshot returns a stored run as a [Snapshot], whoever holds it: to be looked at, encoded as JSON, or repeated by [Redrive]. One
// that has not ended goes on from its store alone. A run that is not stored is an error that matches [ErrUnknownRun], and so
// is one of which nothing was written yet; one that was created and has not begun is an error that matches [ErrNotEnded].
func ReadSnapshot(ctx context.Context, s store.Store, run string) (*Snapshot, error) {
	stored, err := load(ctx, s, run)
	if err != nil {
		return nil, err
	}
	file, err := fileOf(stored)
	if err != nil {
		return nil, err
	}
	return &Snapshot{file: file}, nil
}

// ReadResult returns the Result of a stored run that has ended, in whatever process. The graph must be that of the run, see
// [Plan.Hash]; otherwise the error matches [ErrGraphChanged]. Of the options, [Encoding], [AllowGraphChange], and the status rule
// that the run had matter. The error of a run that failed or was cancelled is like that of [Execute]; a run that has not
// ended is an error that matches [ErrNotEnded], and one that is not stored one that matches [ErrUnknownRun]. A changed graph with a
// node that the run has not ended is an error that matches [ErrBadValue]: no step is called.
//
// The Result is like that of Execute, without Warnings, and without the nested Results of expanded nodes. It begins with the first
// attempt and lasts until the last one has ended.
func ReadResult(ctx context.Context, g *Graph, s store.Store, run string, opts ...Option) (*Result, error) {
	p, err := g.compiled()
	if err != nil {
		return nil, err
	}
	stored, err := load(ctx, s, run)
	if err != nil {
		return nil, err
	}
	if !stored.Status.Terminal() {
		return nil, fmt.Errorf("%w: run %s is %v", ErrNotEnded, quoteID(run), stored.Status)
	}
	given, err := configure(opts, false)
	if err != nil {
		return nil, err
	}
	cfg := byDefault[0]
	cfg.codec, cfg.statusRule, cfg.allowChange, cfg.runID, cfg.reads = given.codec, given.statusRule, given.allowChange, run, true
	r := &Run{
		runGiven:   runGiven{plan: p, stepless: true, ctx: ctx, base: ctx, cfg: &cfg, unheld: true},
		runNest:    runNest{instance: &notNested},
		runOutcome: runOutcome{done: make(chan struct{})},
	}
	x, err := r.restoreStored(stored)
	if err != nil {
		return nil, err
	}
	if !x.ended() { // a step would be called
		return nil, r.notOver(stored.Status)
	}
	cfg.mode = x.file.Mode
	r.prepare(x)
	r.open(x, nil, 0)
	return r.read(stored.Status)
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

// notOver is the error of a stored run that has ended and lacks the end of a node.
func (r *Run) notOver(status RunStatus) error {
	return fmt.Errorf("%w: stored run %s is %v, and some nodes of the graph have not ended in it", ErrBadValue, quoteID(r.ID()), status)
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

// load loads a run of which something was written.
func load(ctx context.Context, s store.Store, run string) (stored *store.Run, err error) {
	switch {
	case ctx == nil:
		return nil, ErrNoContext
	case s == nil:
		return nil, fmt.Errorf("%w: there is no store", ErrBadOption)
	}
	err = guarded(func() (err error) {
		stored, err = s.Load(ctx, run)
		return err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	case stored != nil && stored.Sequence == 0 && stored.Plan != "":
		return nil, fmt.Errorf("%w: run %s has not begun", ErrNotEnded, quoteID(run))
	case stored == nil || stored.Sequence == 0:
		return nil, fmt.Errorf("%w: %s", ErrUnknownRun, quoteID(run))
	}
	return stored, nil
}
