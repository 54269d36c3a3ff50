package kahn

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-c794f7ef/kahn/store"
)

// Bulk selects the runs that [RedriveAll], [CancelAll] or [ForkAll] works on: one page of the runs of a store, the newest first. The next call
// goes on with After.
type Bulk struct {
	Filter store.Filter
	Limit  int    // how many runs at most; 0 means store.DefaultPage
	After  string // Next of the report before; "" is the first page
	DryRun bool   // changes nothing; the report lists the runs that would be changed
}

// BulkReport lists the runs of one page.
type BulkReport struct {
	Runs []BulkRun
	// Next is what Bulk.After is for the next page, "" if this is the last one. It stays valid while runs are created and removed, and in
	// another process.
	Next string
}

// BulkRun is a run in a BulkReport.
type BulkRun struct {
	Run string
	Err error // why the run was left as it is; nil if it was changed, or would be
}

// bulk calls check, and then do, for each run of a page. A dry run calls check alone.
func (b Bulk) bulk(ctx context.Context, s store.Admin, statuses []RunStatus, check func(*store.Run) error, do func(*store.Run) error) (report BulkReport, err error) {
	switch {
	case ctx == nil:
		return report, ErrNoContext
	case s == nil:
		return report, fmt.Errorf("%w: there is no store", ErrBadOption)
	}
	if len(b.Filter.Statuses) == 0 {
		b.Filter.Statuses = statuses
	}
	var page store.Page
	err = guarded(func() (err error) {
		page, err = s.List(ctx, store.Query{Filter: b.Filter, Limit: b.Limit, After: b.After})
		return err
	})
	if err != nil {
		return report, fmt.Errorf("%w: %w", ErrStore, err)
	}
	for i := range page.Runs {
		r := &page.Runs[i]
		err := check(r)
		if err == nil && !b.DryRun {
			if err = do(r); ctx.Err() != nil { // the page is done again
				return report, bounded(context.Cause(ctx))
			}
		}
		report.Runs = append(report.Runs, BulkRun{r.ID, err})
	}
	report.Next = page.Next
	return report, nil
}

// RedriveAll redrives runs of a store: without Filter.Statuses those that have failed. The named nodes run again, or without names all that failed,
// were aborted or were cancelled, and everything that follows them, see [Redrive]. Nothing is performed: each run is due afterwards, for
// [Runner.Serve] or Execute. Each is redriven with the graph whose hash it has; one of another graph is reported with an error that matches
// [ErrGraphChanged]. Of the options [Encoding], [KeepDescendants], [Owner] and [LeaseTime] matter.
//
// An error of a run is in the report, and is one of those of Redrive, or matches [ErrTransition] for a run that somebody else has redriven since
// it was listed: it is left as it is. RedriveAll itself returns an error if the runs cannot be listed, or if ctx
// ends: then the report lists the runs that were done before, and has no Next; the call for the same page may be repeated.
func RedriveAll(ctx context.Context, graphs []*Graph, s store.Admin, b Bulk, nodes []string, opts ...Option) (BulkReport, error) {
	plans, err := plansOf(graphs)
	if err != nil {
		return BulkReport{}, err
	}
	check := func(r *store.Run) error {
		switch {
		case !r.Status.Terminal():
			return fmt.Errorf("%w: run %s is %v", ErrNotEnded, quoteID(r.ID), r.Status)
		case plans[r.Queue()] == nil:
			return fmt.Errorf("%w: run %s has the plan %s of the workflow %s", ErrGraphChanged, quoteID(r.ID), r.Plan, quoteID(r.Workflow))
		}
		return nil
	}
	return b.bulk(ctx, s, []RunStatus{RunFailed}, check, func(r *store.Run) error {
		listed := optionFunc(func(c *config) error { c.listed = r; return nil })
		return plans[r.Queue()].write(ctx, append(slices.Clone(opts), Durable(s), RunID(r.ID), Redrive(nil, nodes), listed))
	})
}

// plansOf are the plans of graphs, and the parts that their triggers lead to.
func plansOf(graphs []*Graph) (map[store.Queue]*Plan, error) {
	plans := map[store.Queue]*Plan{}
	for _, g := range graphs {
		p, err := g.compiled()
		if err != nil {
			return nil, err
		}
		parts, err := p.withPruned()
		if err != nil {
			return nil, err
		}
		for _, part := range parts {
			plans[store.Queue{Workflow: p.name, Plan: part.Hash()}] = p
		}
	}
	return plans, nil
}

// write writes the first transaction of a life, performs nothing, and gives the lease back.
func (p *Plan) write(ctx context.Context, opts []Option) error {
	r, _, err := p.run(ctx, nil, append(opts, optionFunc(func(c *config) error {
		c.idle = true
		return nil
	})), false)
	if err == nil {
		_, err = r.Wait()
	}
	return err
}

// CancelAll cancels runs of a store: without Filter.Statuses all that have not ended. It posts q for each, which is a [store.KindCancel]: see
// [store.Inbox], which the store must be. Whoever performs a run cancels it, with its cleanup. A run that nobody performs is due then. q.ID may be
// empty; with an ID CancelAll may be repeated, whatever has happened to the call before.
func CancelAll(ctx context.Context, s store.Admin, b Bulk, q store.Request) (BulkReport, error) {
	in, ok := s.(store.Inbox)
	if !ok {
		return BulkReport{}, fmt.Errorf("%w: CancelAll: the store is no store.Inbox", ErrBadOption)
	}
	if q.ID == "" {
		q.ID = newRunID()
	}
	q.Kind = store.KindCancel
	if err := q.Check(); err != nil {
		return BulkReport{}, err
	}
	check := func(r *store.Run) error {
		if r.Status.Terminal() {
			return fmt.Errorf("%w: run %s is %v", store.ErrEnded, quoteID(r.ID), r.Status)
		}
		return nil
	}
	return b.bulk(ctx, s, []RunStatus{RunPending, RunRunning, RunSuspended}, check, func(r *store.Run) error {
		return guarded(func() error { _, err := in.Post(ctx, r.ID, q); return err })
	})
}

// ForkAll forks runs of a store: without Filter.Statuses all that have ended. Each fork begins with the results that its run and the graph have in
// common, but for those of the named nodes and of what follows these, see [Fork]. id returns the id of the fork of a run; it should
// return the same one each time, so that a call that is repeated makes no second fork. Nothing is performed: each fork is due afterwards. Options
// are those of Fork; [RunLabels] and [ParentRun] are those of all forks.
func ForkAll(ctx context.Context, g *Graph, s store.Admin, b Bulk, id func(run string) string, nodes []string, opts ...Option) (BulkReport, error) {
	p, err := g.compiled()
	if err != nil {
		return BulkReport{}, err
	}
	if id == nil {
		return BulkReport{}, fmt.Errorf("%w: ForkAll without ids", ErrBadOption)
	}
	check := func(r *store.Run) error {
		if r.Workflow != p.name {
			return otherWorkflow(r.ID, r.Workflow, p)
		}
		return nil
	}
	return b.bulk(ctx, s, []RunStatus{RunCompleted, RunFailed, RunCancelled}, check, func(r *store.Run) error {
		snapshot, err := ReadSnapshot(ctx, s, r.ID)
		if err != nil {
			return err
		}
		var own string
		if err := contain(func() error { own = id(r.ID); return nil }); err != nil {
			return err
		}
		if own == "" { // which would be a new id with each call
			return fmt.Errorf("%w: ForkAll: the id of the fork of %s is empty", ErrBadOption, quoteID(r.ID))
		}
		return p.write(ctx, append(slices.Clone(opts), Durable(s), RunID(own), Fork(snapshot, nodes...)))
	})
}
