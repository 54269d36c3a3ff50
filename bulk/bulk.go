// Package bulk redrives, cancels or forks many runs of a store. A filter selects the runs. Each call handles one page of runs. It returns a report
// about each run, and a cursor with which any process can continue. The package performs no run. A redriven run and a new fork are due afterwards. A
// request to cancel a run makes the run due if no process performs it. [kahn.Runner.Serve] or [kahn.Execute] performs due runs.
package bulk

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/store"
)

// Selection selects runs for [Redrive], [Cancel] or [Fork]: one page of a store's runs, the newest first. To select the next page, set the field
// After to the value of Report.Next.
type Selection struct {
	Filter store.Filter
	Limit  int    // the maximum number of runs; 0 means store.DefaultPage
	After  string // Report.Next of the previous page; "" means the first page
	DryRun bool   // whether to change nothing, and to report which runs would be changed
}

// Report lists the runs of one page.
type Report struct {
	Runs []Run
	// Next is the value of Selection.After for the next page, or "" if this page is the last one. Next stays valid while runs are created and
	// removed. Other processes can use it, too.
	Next string
}

// Run is the entry of a run in a Report.
type Run struct {
	Run string // the id of the run
	Err error  // why the run was not changed; nil if the run was changed or, in a dry run, would be changed
}

// The method `page` lists one page of runs, and calls the function `check` for each run. If `check` returns nil and this is not a dry run, page then
// calls the function `do` for the run.
func (b Selection) page(ctx context.Context, s store.Admin, statuses []kahn.RunStatus, check, do func(*store.Run) error) (report Report, err error) {
	switch {
	case ctx == nil:
		return report, kahn.ErrNoContext
	case s == nil:
		return report, fmt.Errorf("%w: there is no store", kahn.ErrBadOption)
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
		return report, fmt.Errorf("%w: %w", kahn.ErrStore, err)
	}
	for i := range page.Runs {
		r := &page.Runs[i]
		err := check(r)
		if err == nil && !b.DryRun {
			if err = do(r); ctx.Err() != nil { // ctx has ended; the next call for this page handles the run again
				return report, bounded(context.Cause(ctx))
			}
		}
		report.Runs = append(report.Runs, Run{r.ID, err})
	}
	report.Next = page.Next
	return report, nil
}

// Redrive redrives the selected runs of a store. If Filter.Statuses is empty, only failed runs are selected. In each run, the given nodes and their
// descendants run again. If nodes is empty, all failed, aborted and cancelled nodes and their descendants run again: see [kahn.Redrive]. Redrive
// uses the graph whose name is the run's workflow and whose plan has the hash of the run's plan. If a trigger started the run, the run's plan is a
// part of a graph's plan, and Redrive uses this graph. If no graph fits, the error of the run matches [kahn.ErrGraphChanged]. Useful options are
// [kahn.Encoding], [kahn.Lease], [kahn.KeepDescendants], [kahn.Anew] and [kahn.DespiteHandlers].
//
// The report contains the error of each run, as [kahn.Redrive] returns it. If another process has redriven a run after Redrive had listed it, the run
// is not changed, and its error matches [kahn.ErrTransition]. Redrive itself returns an error if a graph does not compile, the runs cannot be listed,
// or ctx ends. The report then lists only the runs that were handled before the error, and has no Next. The caller may ask for the same page again.
func Redrive(ctx context.Context, graphs []*kahn.Graph, s store.Admin, b Selection, nodes []string, opts ...kahn.Option) (Report, error) {
	plans, err := plansOf(graphs)
	if err != nil {
		return Report{}, err
	}
	check := func(r *store.Run) error {
		switch {
		case !r.Status.Terminal():
			return fmt.Errorf("%w: run %s is %v", kahn.ErrNotEnded, foreign.Quote(r.ID), r.Status)
		case plans[r.Queue()] == nil:
			return fmt.Errorf("%w: run %s has the plan %s of the workflow %s", kahn.ErrGraphChanged, foreign.Quote(r.ID), r.Plan, foreign.Quote(r.Workflow))
		}
		return nil
	}
	dry := func(r *store.Run, old *kahn.Snapshot) error {
		_, err := kahn.RedrivePreview(plans[r.Queue()], old, nodes, opts...)
		return err
	}
	return b.page(ctx, s, []kahn.RunStatus{kahn.RunFailed}, b.looking(ctx, s, check, dry), func(r *store.Run) error {
		return plans[r.Queue()].Enqueue(ctx, r, append(slices.Clone(opts), kahn.Durable(s), kahn.RunID(r.ID), kahn.Redrive(nil, nodes))...)
	})
}

// The method `looking` returns the function that the method `page` calls to check a run. If this is not a dry run, that function is `check`. In a dry
// run, the function calls `check`, then reads the snapshot of the run, and passes the run and the snapshot to the function `look`.
func (b Selection) looking(ctx context.Context, s store.Admin, check func(*store.Run) error, look func(*store.Run, *kahn.Snapshot) error) func(*store.Run) error {
	if !b.DryRun {
		return check
	}
	return func(r *store.Run) error {
		if err := check(r); err != nil {
			return err
		}
		old, err := kahn.ReadSnapshot(ctx, s, r.ID)
		if err != nil {
			return err
		}
		return look(r, old)
	}
}

// plansOf maps the queues of runs to the plans of the graphs. A queue is the name of a workflow and the hash of a plan. If a trigger starts a run,
// the run's plan contains only a part of the graph, and has another hash than the plan of the whole graph. So a graph with triggers has several
// entries in the map, each with the plan of the whole graph.
func plansOf(graphs []*kahn.Graph) (map[store.Queue]*kahn.Plan, error) {
	plans := map[store.Queue]*kahn.Plan{}
	for _, g := range graphs {
		if g == nil {
			return nil, kahn.ErrNoGraph
		}
		p, err := g.Compile()
		if err != nil {
			return nil, err
		}
		plans[store.Queue{Workflow: p.Name(), Plan: p.Hash()}] = p
		for ref, id := range p.Declared() {
			if p.Node(ref).Kind != kahn.KindTrigger {
				continue
			}
			for mode := kahn.PruneForward; ; mode++ {
				if _, err := mode.MarshalText(); err != nil { // mode is not a PruneMode: the loop has handled all modes
					break
				}
				part, err := p.Prune(id, mode)
				if err != nil {
					return nil, err
				}
				plans[store.Queue{Workflow: p.Name(), Plan: part.Hash()}] = p
			}
		}
	}
	return plans, nil
}

// Cancel cancels the selected runs of a store. If Filter.Statuses is empty, only unfinished runs are selected. For each run, Cancel posts the
// request q with the kind [store.KindCancel] to the store, which must be a [store.Inbox]. The process that performs the run then cancels the run, and
// performs its cleanup nodes. If no process performs the run, the request makes the run due. q.ID may be empty. If it is set, the caller may repeat
// the call with the same q.ID, even if the first call has succeeded for some runs.
func Cancel(ctx context.Context, s store.Admin, b Selection, q store.Request) (Report, error) {
	in, ok := s.(store.Inbox)
	if !ok {
		return Report{}, fmt.Errorf("%w: Cancel: the store does not implement store.Inbox", kahn.ErrBadOption)
	}
	if q.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return Report{}, err
		}
		q.ID = id.String()
	}
	q.Kind = store.KindCancel
	if err := q.Check(); err != nil {
		return Report{}, err
	}
	check := func(r *store.Run) error {
		if r.Status.Terminal() {
			return fmt.Errorf("%w: run %s is %v", store.ErrEnded, foreign.Quote(r.ID), r.Status)
		}
		return nil
	}
	return b.page(ctx, s, []kahn.RunStatus{kahn.RunPending, kahn.RunRunning, kahn.RunSuspended}, check, func(r *store.Run) error {
		return guarded(func() error { _, err := in.Post(ctx, r.ID, q); return err })
	})
}

// Fork forks the selected runs of a store. If Filter.Statuses is empty, only ended runs are selected. A fork keeps each result of the old run that
// still fits the graph, except the results of the given nodes and their descendants: see [kahn.Fork]. The function `id` gets the id of a run and
// returns the id of its fork. It should always return the same id for a run, so that a repeated call of Fork makes no second fork. opts are options
// for the forks; a [kahn.Describe] applies to every fork.
func Fork(ctx context.Context, g *kahn.Graph, s store.Admin, b Selection, id func(run string) string, nodes []string, opts ...kahn.Option) (Report, error) {
	if g == nil {
		return Report{}, kahn.ErrNoGraph
	}
	p, err := g.Compile()
	if err != nil {
		return Report{}, err
	}
	if id == nil {
		return Report{}, fmt.Errorf("%w: Fork without ids", kahn.ErrBadOption)
	}
	check := func(r *store.Run) error {
		if r.Workflow != p.Name() {
			return fmt.Errorf("%w: run %s belongs to workflow %s, not %s", kahn.ErrGraphChanged, foreign.Quote(r.ID), foreign.Quote(r.Workflow), foreign.Quote(p.Name()))
		}
		return nil
	}
	dry := func(_ *store.Run, old *kahn.Snapshot) error {
		_, err := kahn.ForkPreview(p, old, nodes, opts...)
		return err
	}
	return b.page(ctx, s, []kahn.RunStatus{kahn.RunCompleted, kahn.RunFailed, kahn.RunCancelled}, b.looking(ctx, s, check, dry), func(r *store.Run) error {
		snapshot, err := kahn.ReadSnapshot(ctx, s, r.ID)
		if err != nil {
			return err
		}
		var own string
		if err := guarded(func() error { own = id(r.ID); return nil }); err != nil {
			return err
		}
		if own == "" { // with an empty id kahn would choose a new id in each call, and a repeated call would make a second fork
			return fmt.Errorf("%w: Fork: the id of the fork of %s is empty", kahn.ErrBadOption, foreign.Quote(r.ID))
		}
		return p.Enqueue(ctx, nil, append(slices.Clone(opts), kahn.Durable(s), kahn.RunID(own), kahn.Fork(snapshot, nodes...))...)
	})
}

// guarded calls a function of the host. If the function panics, guarded returns the panic as an error.
func guarded(f func() error) error {
	return bounded(foreign.Contain(f, func(v any) error {
		if err, ok := v.(error); ok {
			v = bounded(err)
		}
		return foreign.NewPanicError(v)
	}))
}

// The function `bounded` wraps an error of the host. errors.Is and errors.As always return when they inspect the wrapper, and the wrapper's method
// Error does not panic.
func bounded(err error) error {
	return foreign.Bounded(err, func(error) foreign.Next { return foreign.Descend }, foreign.Renders)
}
