package kahn

import (
	"context"
	"fmt"

	"github.com/seed-c794f7ef/kahn/store"
)

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
	r, err := reader(p, run, opts)
	if err != nil {
		return nil, err
	}
	x, err := r.restoreStored(stored)
	if err != nil {
		return nil, err
	}
	return r.readEnded(x, stored.Status)
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
