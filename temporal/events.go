package temporal

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// The names of the queries for the events and for the snapshot of a run.
const (
	EventsQuery   = "kahn.Events"
	SnapshotQuery = "kahn.Snapshot"
)

// maxPageBytes bounds a page: a page that reaches maxPageBytes gets no further events. Temporal refuses 2 MiB.
const maxPageBytes = 1 << 20

// eventsRequest is the argument of EventsQuery.
type eventsRequest struct {
	After uint64 `json:"after"`
	Limit int    `json:"limit"`
}

// eventsAnswer is the answer to EventsQuery: the events of one execution of the workflow.
type eventsAnswer struct {
	RunID   string          `json:"run_id"`
	Plan    string          `json:"plan"` // the hash of the plan
	Page    store.EventPage `json:"page"`
	Earlier []execution     `json:"earlier,omitempty"`
}

// execution identifies an earlier execution of the workflow. The run has continued in a later execution.
type execution struct {
	ID    string `json:"id"`    // its run id, as Temporal calls it
	First uint64 `json:"first"` // the id of its first event
}

// The method events answers EventsQuery.
func (x *interpreter) events(r eventsRequest) (eventsAnswer, error) {
	run := x.c.Run()
	// The code reads the status before the range. So if the status is terminal, the range is final.
	page := store.EventPage{Begun: true, Status: run.Status(), Workflow: run.Name()}
	page.First, page.Last = run.EventRange()
	answer := eventsAnswer{RunID: run.ID(), Plan: x.plan.Hash(), Earlier: x.in.Earlier}
	size := 0
	if r.After+1 >= page.First && r.After < page.Last {
		for e, err := range run.Events(context.Background(), r.After) {
			if err != nil {
				return answer, err
			}
			data, err := e.MarshalStored()
			if err != nil {
				return answer, err
			}
			page.Events = append(page.Events, store.EventRecord{ID: e.ID, Data: data})
			if size += len(data); e.ID == page.Last || len(page.Events) >= r.Limit || size >= maxPageBytes {
				break
			}
		}
	}
	answer.Page = page
	return answer, nil
}

// snapshot answers SnapshotQuery. If the BlobStore returns an error, the query fails, but the workflow task does not.
func (x *interpreter) snapshot() (*packed, error) {
	defer func(before error) { x.broken = before }(x.broken)
	return x.host.texts.pack(x.c.Run().Snapshot())
}

// Events returns the events of the run. Any number of readers in any process may read them. The EventLog is a Source of package sse. A new
// execution of the workflow does not restart the ids of the events. To get events, a reader queries the executions of the workflow. A query
// needs a live worker, and fails if Temporal has removed the history of the execution.
func (r *Run) Events(ctx context.Context) (*store.EventLog, error) {
	log := r.log()
	answer, err := log.ask(ctx, execution{}, eventsRequest{})
	if err != nil {
		return nil, err
	}
	return store.OpenEvents(ctx, log, answer.RunID)
}

func (r *Run) log() eventLog {
	return eventLog{ask: func(ctx context.Context, of execution, q eventsRequest) (a eventsAnswer, err error) {
		return a, r.query(ctx, of.ID, EventsQuery, &a, q)
	}}
}

// Snapshot queries the current state of the run. The status of each node is in [kahn.Snapshot.Nodes].
func (r *Run) Snapshot(ctx context.Context) (*kahn.Snapshot, error) {
	var p packed
	if err := r.query(ctx, "", SnapshotQuery, &p); err != nil {
		return nil, err
	}
	return p.open(r.of.texts())
}

// The method query sends a query to an execution of the workflow, or to the last execution if the parameter "execution" is empty.
func (r *Run) query(ctx context.Context, execution, name string, answer any, args ...any) error {
	value, err := r.client.QueryWorkflow(ctx, r.of.ID, execution, name, args...)
	if err == nil {
		err = undecoded(value.Get(answer))
	}
	if err != nil {
		return fmt.Errorf("kahn/temporal: workflow %q: %w", r.of.ID, err)
	}
	return nil
}

// eventLog reads the events of a run from the executions of its workflow. It implements LoadEvents alone, since readers call no other method of
// an EventStore.
type eventLog struct {
	store.Store // nil, since readers call only LoadEvents
	ask         func(ctx context.Context, of execution, r eventsRequest) (eventsAnswer, error)
}

// LoadEvents implements [store.EventStore]. It asks the last execution for its events, the status and the list of earlier executions. If an earlier
// execution has the wanted events, LoadEvents then asks that execution for them.
func (l eventLog) LoadEvents(ctx context.Context, _ string, after uint64, limit int) (store.EventPage, error) {
	q := eventsRequest{after, limit}
	last, err := l.ask(ctx, execution{}, q)
	page := last.Page
	if err != nil || len(last.Earlier) == 0 {
		return page, err
	}
	end := page.First // the id after the last event of the execution that has the wanted events
	page.First = last.Earlier[0].First
	for _, e := range slices.Backward(last.Earlier) {
		if after+1 >= end {
			break
		}
		if e.First > after+1 {
			end = e.First
			continue
		}
		old, err := l.ask(ctx, e, q)
		if err != nil {
			return page, err
		}
		page.Events = slices.DeleteFunc(old.Page.Events, func(r store.EventRecord) bool { return r.ID >= end })
		break
	}
	return page, nil
}
