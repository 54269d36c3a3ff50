package temporal

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// Store gives programs that read stored runs, such as the page of module inspector, access to the runs of a namespace. It also passes the
// requests of operators on to these runs:
//
//	inspector.Handler(inspector.Options{Store: temporal.Store{Client: c}, Workflows: []inspector.Workflow{{Plan: plan}}})
//
// The id of a run is the id of its workflow. Store reads the nodes and the events of a run by queries, which need a live worker that has the
// plan. Signal, Cancel, Abort and CancelNode send updates to the run, see [Run]; the page of the inspector calls these methods. ListNodes and
// the methods that would write records return [ErrReadOnly].
type Store struct {
	Client client.Client
	// Blobs is the store of the workers, see Options.Blobs.
	Blobs store.BlobStore
	// DataConverter is the client's data converter, see Workflow.DataConverter.
	DataConverter converter.DataConverter
	// Types are the workflow types for which List asks Temporal, see Options.WorkflowType; [WorkflowName] is the type of the runs that former
	// versions started. If Types is nil, List reads all workflows of the namespace, and drops the workflows that are not runs.
	Types []string
	// If SearchAttributes is set, the service selects runs by their search attributes, see Workflow.SearchAttributes. If
	// the filter names a workflow or a status of runs that have not ended, List then does not find runs that were started without search attributes.
	// If SearchAttributes is false, the service uses only properties that every workflow has, and List drops the runs that do not match the filter.
	SearchAttributes bool
}

// ErrReadOnly is returned by ListNodes, and by the methods of Store that would write records.
var ErrReadOnly = errors.New("the store is read-only: only workers write the runs of a Temporal service")

var (
	_ store.Admin      = Store{}
	_ store.EventStore = Store{}
)

// The map statuses maps the status of a workflow to the status of its run.
var statuses = map[enums.WorkflowExecutionStatus]kahn.RunStatus{
	enums.WORKFLOW_EXECUTION_STATUS_RUNNING: kahn.RunRunning, enums.WORKFLOW_EXECUTION_STATUS_COMPLETED: kahn.RunCompleted,
	enums.WORKFLOW_EXECUTION_STATUS_FAILED: kahn.RunFailed, enums.WORKFLOW_EXECUTION_STATUS_CANCELED: kahn.RunCancelled,
	enums.WORKFLOW_EXECUTION_STATUS_TERMINATED: kahn.RunFailed, enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT: kahn.RunFailed,
}

// run returns the run of a workflow.
func (s Store) run(id string) *Run {
	return Attach(s.Client, Workflow{ID: id, Blobs: s.Blobs, DataConverter: s.DataConverter})
}

// Codec returns the codec of the runs; types are the host's own types of values. If a page shows values of Blobs, its inspector.Options need
// this Codec.
func (s Store) Codec(types kahn.Types) kahn.Codec {
	return Workflow{Types: types, Blobs: s.Blobs, DataConverter: s.DataConverter}.texts().Codec
}

// The function known returns the error err. If err says that a workflow does not exist, the returned error also matches
// kahn.ErrUnknownRun.
func known(err error) error {
	var none *serviceerror.NotFound
	if errors.As(err, &none) {
		return fmt.Errorf("%w: %w", kahn.ErrUnknownRun, err)
	}
	return err
}

// Load implements [store.Store]. The returned Run has neither a record nor nodes: see ReadSnapshot.
func (s Store) Load(ctx context.Context, id string) (*store.Run, error) {
	about, err := s.Client.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return nil, known(err)
	}
	answer, err := s.run(id).log().ask(ctx, execution{}, eventsRequest{})
	if err != nil {
		return nil, err
	}
	row := s.row(about.GetWorkflowExecutionInfo())
	row.Status, row.Plan, row.Workflow = answer.Page.Status, answer.Plan, answer.Page.Workflow
	row.Sequence, row.LastEvent = answer.Page.Last, answer.Page.Last
	return &row, nil
}

// ReadSnapshot returns the state of a run.
func (s Store) ReadSnapshot(ctx context.Context, id string) (*kahn.Snapshot, error) {
	snapshot, err := s.run(id).Snapshot(ctx)
	return snapshot, known(err)
}

// LoadEvents implements [store.EventStore].
func (s Store) LoadEvents(ctx context.Context, id string, after uint64, limit int) (store.EventPage, error) {
	page, err := s.run(id).log().LoadEvents(ctx, id, after, limit)
	return page, known(err)
}

// Signal answers a waiting node of a run, as [Run.Signal] does.
func (s Store) Signal(ctx context.Context, id, gate string, value any) error {
	return s.run(id).Signal(ctx, gate, value)
}

// Cancel asks a run to stop, as [Run.Cancel] does.
func (s Store) Cancel(ctx context.Context, id string, q kahn.Request) error {
	return s.run(id).Cancel(ctx, q)
}

// Abort stops a run because of a failure, as [Run.Abort] does.
func (s Store) Abort(ctx context.Context, id string, err error, q kahn.Request) error {
	return s.run(id).Abort(ctx, err, q)
}

// CancelNode asks one node of a run to stop, as [Run.CancelNode] does.
func (s Store) CancelNode(ctx context.Context, id, node string) error {
	return s.run(id).CancelNode(ctx, node)
}

// The method row converts an entry of Temporal's list into a run.
func (s Store) row(w *workflowpb.WorkflowExecutionInfo) store.Run {
	var m memo
	read := s.DataConverter
	if read == nil {
		read = converter.GetDefaultDataConverter()
	}
	row := store.Run{ID: w.GetExecution().GetWorkflowId(), Status: statuses[w.GetStatus()]}
	if status, ok := shownStatus(w); ok && row.Status == kahn.RunRunning {
		row.Status = status
	}
	if read.FromPayload(w.GetMemo().GetFields()[memoName], &m) == nil { // if there is no memo, the name stays empty
		row.Workflow = m.Plan.Name
	}
	if t := w.GetStartTime(); t != nil {
		row.Created = t.AsTime()
	}
	if t := w.GetCloseTime(); t != nil {
		row.Ended = t.AsTime()
	}
	return row
}

// List implements [store.Admin]. A page may have fewer runs than the limit.
func (s Store) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	most, err := q.Bound()
	if err != nil {
		return page, err
	}
	token, err := base64.URLEncoding.DecodeString(q.After)
	if err != nil {
		return page, fmt.Errorf("kahn/temporal: %w: After is not a cursor of this list", kahn.ErrBadValue)
	}
	found, err := s.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{PageSize: int32(most), NextPageToken: token, Query: s.visible(q.Filter)})
	if err != nil {
		return page, err
	}
	for _, w := range found.GetExecutions() {
		if _, is := w.GetMemo().GetFields()[memoName]; !is {
			continue // the workflow is not a run
		}
		if row := s.row(w); q.Matches(&row) {
			page.Runs = append(page.Runs, row)
		}
	}
	page.Next = base64.URLEncoding.EncodeToString(found.GetNextPageToken())
	return page, nil
}

// Count implements [store.Admin]. It reads all pages of the list.
func (s Store) Count(ctx context.Context, f store.Filter) ([]store.Count, error) {
	type kind struct {
		workflow string
		status   kahn.RunStatus
	}
	runs := map[kind]int{}
	for q := (store.Query{Filter: f, Limit: store.MaxPage}); ; {
		page, err := s.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Runs {
			runs[kind{r.Workflow, r.Status}]++
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	var counts []store.Count
	for k, n := range runs {
		counts = append(counts, store.Count{Workflow: k.workflow, Status: k.status, Runs: n})
	}
	store.SortCounts(counts)
	return counts, nil
}

// The methods below would write records, or read records that Temporal does not have. They return ErrReadOnly.

// Acquire implements [store.Store].
func (Store) Acquire(context.Context, string, string, time.Duration) (store.Lease, *store.Run, error) {
	return store.Lease{}, nil, ErrReadOnly
}

// Renew implements [store.Store].
func (Store) Renew(context.Context, store.Lease, time.Duration) error { return ErrReadOnly }

// Release implements [store.Store].
func (Store) Release(context.Context, store.Lease) error { return ErrReadOnly }

// Commit implements [store.Store].
func (Store) Commit(context.Context, store.Lease, store.Commit) (store.Applied, error) {
	return 0, ErrReadOnly
}

// Create implements [store.Admin].
func (Store) Create(context.Context, store.NewRun) (*store.Run, bool, error) {
	return nil, false, ErrReadOnly
}

// ListNodes implements [store.Admin].
func (Store) ListNodes(context.Context, string, store.NodeQuery) (store.NodePage, error) {
	return store.NodePage{}, ErrReadOnly
}

// Insert implements [store.Admin].
func (Store) Insert(context.Context, *store.Run) error { return ErrReadOnly }

// Prune implements [store.Admin].
func (Store) Prune(context.Context, store.PruneQuery) (store.Pruned, error) {
	return store.Pruned{}, ErrReadOnly
}
