package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// compareIDs compares ids by bytes, the order in which rows are locked.
func compareIDs(a, b string) int { return strings.Compare(a, b) }

// storable reports whether the server can store a text. The ids of all stored runs are storable.
func storable(id string) bool { return utf8.ValidString(id) && strings.IndexByte(id, 0) < 0 }

// maxText is how many bytes an id or a name in an index may have. maxPlan is how many bytes the hash of a plan may have. The server allows 2,704
// bytes for a row of an index. The longest row is in the index runs_due: a workflow, a plan, a key and an id. checkSpec limits the workflow, the plan
// and the key together to maxText+maxPlan bytes.
const (
	maxText = 1000
	maxPlan = 600
)

// checkTexts refuses ids and names that the server cannot store, or that do not fit into a row of its indexes.
func checkTexts(texts ...string) error {
	for _, text := range texts {
		switch {
		case !storable(text):
			return fmt.Errorf("%w: PostgreSQL cannot store the text %s", store.ErrRejected, foreign.Quote(text))
		case len(text) > maxText:
			return fmt.Errorf("%w: %s has %d bytes; the store takes ids and names of up to %d", store.ErrRejected, foreign.Quote(text), len(text), maxText)
		}
	}
	return nil
}

// checkSpec refuses a Spec whose texts the server cannot store.
func checkSpec(spec *store.Spec) error {
	if err := checkTexts(spec.Workflow, spec.Parent, spec.Plan, spec.Key); err != nil {
		return err
	}
	if n := len(spec.Workflow) + len(spec.Plan) + len(spec.Key); spec.Key != "" && n > maxText+maxPlan {
		return fmt.Errorf("%w: the workflow, the plan and the key of a run have %d bytes; the store takes up to %d", store.ErrRejected, n, maxText+maxPlan)
	}
	if len(spec.Plan) > maxPlan {
		return fmt.Errorf("%w: the plan %s has %d bytes; the store takes up to %d", store.ErrRejected, foreign.Quote(spec.Plan), len(spec.Plan), maxPlan)
	}
	return nil
}

// The first and the last year that this package stores. The server supports a few earlier years and a few later ones.
const (
	firstYear = -4000
	lastYear  = 290000
)

// instant converts a time for the server. It rounds up to microseconds, so that nothing happens too early. A time before firstYear becomes -infinity,
// a time after lastYear becomes infinity, and the zero time becomes NULL.
func instant(t time.Time) pgtype.Timestamptz {
	switch {
	case t.IsZero():
		return pgtype.Timestamptz{}
	case t.UTC().Year() < firstYear:
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	case t.UTC().Year() > lastYear:
		return pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
	}
	us := t.Truncate(time.Microsecond)
	if us.Before(t) {
		us = us.Add(time.Microsecond)
	}
	return pgtype.Timestamptz{Time: us.UTC(), Valid: true}
}

// timeOf returns the time in a column, or the zero time if the column is NULL. Package store accepts only times that the
// server supports, so the time in the column is finite.
func timeOf(t pgtype.Timestamptz) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

// bytesOrNull returns the data, or nil, which is NULL in SQL, if the data is empty.
func bytesOrNull(data []byte) []byte {
	if len(data) == 0 {
		return nil
	}
	return data
}

// orNull returns a pointer to the text, or nil, which is NULL in SQL, if the text is empty.
func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// nodeRows holds rows of nodes, one slice for each column. A row whose key is NULL changes only the
// columns from attempt to completed of a stored node, and keeps the other columns.
type nodeRows struct {
	runs                        []int64
	nodes                       []int32
	attempts                    []int32
	resolved, required          []int32
	terminal, queued, completed []bool
	started, ended              []pgtype.Timestamptz
	keys, statuses, causes      []*string
	hashes, values, records     [][]byte
}

// nodeColumns are the columns of nodeRows with their types.
const nodeColumns = "run bigint, node integer, attempt integer, resolved integer, required integer, terminal boolean, queued boolean, completed boolean, " +
	"started timestamptz, ended timestamptz, key text, status text, cause text, hash bytea, value bytea, record bytea"

func (n *nodeRows) args() []any {
	return []any{n.runs, n.nodes, n.attempts, n.resolved, n.required, n.terminal, n.queued, n.completed, n.started, n.ended, n.keys, n.statuses, n.causes, n.hashes, n.values, n.records}
}

// add adds a row. If c is nil, the row changes only the counters.
func (n *nodeRows) add(run int64, number int32, key string, s *store.State, c *store.Columns) {
	n.runs, n.nodes, n.attempts = append(n.runs, run), append(n.nodes, number), append(n.attempts, s.Attempt)
	n.resolved, n.required = append(n.resolved, int32(s.Resolved)), append(n.required, int32(s.Required))
	n.terminal, n.queued, n.completed = append(n.terminal, s.Terminal), append(n.queued, s.Queued), append(n.completed, s.Completed)
	var name, status, cause *string
	if c == nil {
		c = new(store.Columns)
	} else {
		name = &key
	}
	if c.Status != machine.Idle {
		status = orNull(c.Status.String())
	}
	if c.Cause != machine.CauseNone {
		cause = orNull(c.Cause.String())
	}
	n.started, n.ended = append(n.started, instant(c.Start)), append(n.ended, instant(c.End))
	n.keys, n.statuses, n.causes = append(n.keys, name), append(n.statuses, status), append(n.causes, cause)
	n.hashes, n.values, n.records = append(n.hashes, bytesOrNull(c.Hash)), append(n.values, bytesOrNull(c.Value)), append(n.records, bytesOrNull(c.Record))
}

// nodeRow receives the row of a node. It has all columns of nodeColumns except "run". If the run has no nodes, all columns are NULL.
type nodeRow struct {
	node, attempt, resolved, required *int32
	terminal, queued, completed       *bool
	started, ended                    pgtype.Timestamptz
	key, status, cause                *string
	hash, value, record               []byte
}

func (n *nodeRow) targets() []any {
	return []any{&n.node, &n.attempt, &n.resolved, &n.required, &n.terminal, &n.queued, &n.completed, &n.started, &n.ended, &n.key, &n.status, &n.cause, &n.hash, &n.value, &n.record}
}

// The method `listed` returns the node of the row.
func (n *nodeRow) listed() (l store.ListedNode, err error) {
	if n.key == nil {
		return l, ErrDamaged
	}
	l.Key = *n.key
	if n.status != nil {
		err = l.Status.UnmarshalText([]byte(*n.status))
	}
	if n.cause != nil {
		err = errors.Join(err, l.Cause.UnmarshalText([]byte(*n.cause)))
	}
	if err != nil {
		return l, errors.Join(ErrDamaged, err)
	}
	l.Start, l.End, l.Hash, l.Value, l.Record = timeOf(n.started), timeOf(n.ended), n.hash, n.value, n.record
	l.Attempt, l.Resolved, l.Required = *n.attempt, int(*n.resolved), int(*n.required)
	l.Terminal, l.Queued, l.Completed = *n.terminal, *n.queued, *n.completed
	return l, nil
}

// These are the columns of a head: the small ones, and the two columns that may be large, labels and inputs.
const (
	smallColumns = "r.id, r.status, r.created, r.ended, " + wakesAt + " AS wake, r.workflow, r.plan, r.parent, r.run_key, r.priority, r.posted, r.taken, r.compensation, r.usage"
	headColumns  = smallColumns + ", r.labels, r.inputs"
	// listedColumns are the columns of a head in a list, which has no inputs.
	listedColumns = smallColumns + ", r.labels, NULL::bytea"
)

// The type `head` is a row of a run without its record.
type head struct {
	id, status, workflow, plan, key string
	priority                        int
	created, ended, wake            pgtype.Timestamptz
	parent, compensation            *string
	labels                          map[string]string
	usage                           []byte
	inputs                          []byte
	posted, taken                   uint64
}

func (h *head) targets() []any {
	return []any{&h.id, &h.status, &h.created, &h.ended, &h.wake, &h.workflow, &h.plan, &h.parent, &h.key, &h.priority, &h.posted, &h.taken, &h.compensation, &h.usage, &h.labels, &h.inputs}
}

// The method `run` returns the run of the row, without nodes.
func (h *head) run() (*store.Run, error) {
	r := &store.Run{ID: h.id, Created: timeOf(h.created), Ended: timeOf(h.ended), WakeAt: timeOf(h.wake), Nodes: map[string]store.Node{}}
	r.Workflow, r.Plan, r.Labels, r.Inputs = h.workflow, h.plan, h.labels, h.inputs
	r.Key, r.Priority = h.key, h.priority
	r.Posted, r.Taken = h.posted, h.taken
	if h.parent != nil {
		r.Parent = *h.parent
	}
	if h.compensation != nil {
		if err := r.Compensation.UnmarshalText([]byte(*h.compensation)); err != nil {
			return nil, errors.Join(ErrDamaged, err)
		}
	}
	if h.usage != nil {
		if err := json.Unmarshal(h.usage, &r.Usage); err != nil {
			return nil, errors.Join(ErrDamaged, err)
		}
	}
	if err := r.Status.UnmarshalText([]byte(h.status)); err != nil || r.Status > machine.RunCancelled {
		return nil, errors.Join(ErrDamaged, err)
	}
	return r, nil
}

// The function `scan` reads a row into targets.
func scan(rows pgx.Rows, targets ...[]any) error {
	var all []any
	for _, t := range targets {
		all = append(all, t...)
	}
	return rows.Scan(all...)
}

// labelsText returns the labels as JSON, or nil if there are no labels.
func labelsText(labels map[string]string) *string {
	if len(labels) == 0 {
		return nil
	}
	text, _ := json.Marshal(labels) // Marshal returns no error for texts
	return orNull(string(text))
}
