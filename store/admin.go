package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/internal/keyset"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Admin is a [Store] that can create a run that no process performs yet. It can also list, copy and remove runs. [Memory], store/sqlite and
// store/postgres implement it; other stores need not. The error of a method matches [machine.ErrBadValue] if an argument is invalid, such as a
// negative limit or a bad cursor.
type Admin interface {
	Store
	// Create stores a run that no process performs yet: its status is RunPending, and its WakeAt is n.NotBefore. If the policy Reuse accepts a run that
	// is stored already, Create stores nothing, and "created" is false. The result "stored" is the new or the reused run, without its record and nodes.
	Create(ctx context.Context, n NewRun) (stored *Run, created bool, err error)
	// List returns a page of the runs that match, the newest first. Runs with the same time of creation are in the order of their ids. The runs
	// in a page have no Inputs, Sequence, Record and Nodes. If Acquire has made a run, the run has no Spec until its first commit.
	List(ctx context.Context, q Query) (Page, error)
	// Count returns the number of matching runs for each workflow and status, sorted by workflow and status. It leaves out a Count of zero runs.
	Count(ctx context.Context, f Filter) ([]Count, error)
	// ListNodes returns a page of the nodes of a run, in the order in which they were first written. The list also contains other records of the
	// engine, such as compensations. The error matches ErrUnknownRun if the run is not stored.
	ListNodes(ctx context.Context, run string, q NodeQuery) (NodePage, error)
	// Insert stores a whole run that Load of this or another store has returned. If the store is an EventStore, Insert also stores the run's
	// Events. The error matches ErrExists if a run of this id is stored already. It matches [machine.ErrBadValue] if Load cannot return a
	// run in this state, or if the run has a LastEvent and an Event up to it is missing.
	Insert(ctx context.Context, r *Run) error
	// Prune removes ended runs that match q, and all that is stored for them. It begins with the runs that ended first. It does not remove
	// leased runs, runs with a waiting redrive, see [Inbox], and the latest run of each schedule, see [ScheduleStore].
	Prune(ctx context.Context, q PruneQuery) (Pruned, error)
}

// Errors of [Admin].
var (
	// ErrExists is returned if the id of a run that is created or inserted is taken.
	ErrExists = errors.New("the run exists")
	// ErrMismatch is returned if the stored run with this id was created with another workflow, plan or inputs.
	ErrMismatch = errors.New("the run was created with another workflow, plan or inputs")
)

// NewRun is a run to be created. Package kahn makes one from a graph and options: see kahn.Prepare.
type NewRun struct {
	ID string
	Spec
	// NotBefore is the earliest time at which the run may begin. Zero means at once.
	NotBefore time.Time
	// IfExists says what to do if the id is taken. The zero value is Refuse.
	IfExists Policy
}

// Policy says what [Admin].Create does if the id of the new run is taken. If Acquire has made the stored run and the run has no commit, the id
// counts as free after the lease of this run has ended. Before that, the error matches [ErrLeased].
type Policy uint8

// The policies.
const (
	// Refuse returns [ErrExists].
	Refuse Policy = iota
	// Reuse returns the stored run, whatever its status is. If the stored run was created with another workflow, plan or inputs, the error
	// matches [ErrMismatch].
	Reuse
	// Replace replaces a run that has not begun. The error matches [ErrExists] if the stored run has begun. It matches [ErrLeased] if the stored
	// run is leased, since the owner of the lease is about to begin the run.
	Replace
	// ReplaceUnasked is like Replace, but the error also matches [ErrExists] if a request was posted for the stored run, see
	// [Inbox].
	ReplaceUnasked

	policyCount
)

var policyNames = enum.Of[Policy]("policy", "refuse", "reuse", "replace", "replace_unasked")

// String returns "refuse", "reuse", "replace" or "replace_unasked".
func (p Policy) String() string { return policyNames.Name(p) }

// Check returns an error that matches [machine.ErrBadValue] if the run has no ID, or if a field has an invalid value.
func (n *NewRun) Check() error {
	if n.IfExists >= policyCount {
		return fmt.Errorf("%w: IfExists %d is none of %s", machine.ErrBadValue, n.IfExists, strings.Join(policyNames.Names(), ", "))
	}
	if n.ID == "" {
		return fmt.Errorf("%w: a run without an id", machine.ErrBadValue)
	}
	if err := checkTime(n.NotBefore); err != nil {
		return fmt.Errorf("NotBefore: %w", err)
	}
	return n.Spec.check()
}

// The bounds of the key and of the priority of a run.
const (
	MaxKey      = 200 // bytes
	MaxPriority = 100 // a priority is at least -MaxPriority
)

// CheckKey returns an error that matches [machine.ErrBadValue] if a run cannot have this key.
func CheckKey(key string) error {
	switch {
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: the key %s is not UTF-8", machine.ErrBadValue, foreign.Quote(key))
	case len(key) > MaxKey:
		return fmt.Errorf("%w: the key %s has %d bytes; a key has up to %d", machine.ErrBadValue, foreign.Quote(key), len(key), MaxKey)
	}
	return nil
}

// CheckPriority returns an error that matches [machine.ErrBadValue] if a run cannot have this priority.
func CheckPriority(priority int) error {
	if priority < -MaxPriority || priority > MaxPriority {
		return fmt.Errorf("%w: the priority %d is not from -%d to %d", machine.ErrBadValue, priority, MaxPriority, MaxPriority)
	}
	return nil
}

func (s *Spec) check() error {
	if err := cmp.Or(CheckKey(s.Key), CheckPriority(s.Priority)); err != nil {
		return err
	}
	texts := []string{s.Workflow, s.Plan, s.Parent}
	for name, value := range s.Labels {
		texts = append(texts, name, value)
	}
	slices.Sort(texts) // the error names the first bad text, whatever the map iteration order
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%w: %s is not UTF-8", machine.ErrBadValue, foreign.Quote(text))
		}
	}
	var inputs map[string]json.RawMessage
	if s.Inputs == nil {
		return nil
	}
	if err := json.Unmarshal(s.Inputs, &inputs); err != nil || inputs == nil {
		return fmt.Errorf("%w: the inputs are not a JSON object", machine.ErrBadValue)
	}
	return nil
}

// Same reports whether two runs have the same workflow, plan and inputs.
func (s *Spec) Same(o *Spec) bool {
	return s.Workflow == o.Workflow && s.Plan == o.Plan && SameInputs(s.Inputs, o.Inputs)
}

// SameInputs reports whether two JSON objects are equal. A nil object equals an object without members.
func SameInputs(a, b json.RawMessage) bool {
	return bytes.Equal(a, b) || bytes.Equal(canonical(a), canonical(b))
}

// The function `canonical` returns the same JSON with sorted keys and without white space. Numbers keep their digits.
func canonical(data json.RawMessage) []byte {
	if len(data) == 0 {
		return []byte("{}")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return data
	}
	text, err := json.Marshal(v)
	if err != nil {
		return data
	}
	return text
}

// Judge reports whether the new run replaces the stored run with the same id. The parameter "leased" says whether the stored run has an unexpired
// lease. Judge is for implementations of [Admin].
func (n *NewRun) Judge(stored *Run, leased bool) (write bool, err error) {
	blank := stored.Sequence == 0 && stored.Spec.blank()
	replaces := stored.Sequence == 0 && n.IfExists >= Replace
	switch {
	case (blank || replaces) && leased:
		return false, fmt.Errorf("%w: %s", ErrLeased, foreign.Quote(n.ID))
	case replaces && n.IfExists == ReplaceUnasked && stored.Posted > 0:
		return false, fmt.Errorf("%w: run %s has requests", ErrExists, foreign.Quote(n.ID))
	case blank || replaces:
		return true, nil
	case n.IfExists != Reuse:
		return false, fmt.Errorf("%w: run %s is %v", ErrExists, foreign.Quote(n.ID), stored.Status)
	case !n.Spec.Same(&stored.Spec):
		return false, fmt.Errorf("%w: %s%s", ErrMismatch, foreign.Quote(n.ID), n.Spec.differences(&stored.Spec))
	}
	return false, nil
}

// The method `blank` reports whether the Spec is empty. If Acquire has made a run, the run's Spec is empty until the first commit.
func (s *Spec) blank() bool {
	return s.Workflow == "" && s.Plan == "" && s.Inputs == nil && s.Labels == nil && s.Parent == "" && s.Key == "" && s.Priority == 0
}

// The method `differences` returns a text that says which of the workflow, the plan and the inputs differ between two runs.
func (s *Spec) differences(stored *Spec) string {
	var list []string
	if s.Workflow != stored.Workflow {
		list = append(list, fmt.Sprintf("its workflow is %s, not %s", foreign.Quote(stored.Workflow), foreign.Quote(s.Workflow)))
	}
	if s.Plan != stored.Plan {
		list = append(list, fmt.Sprintf("its plan is %s, not %s", foreign.Quote(stored.Plan), foreign.Quote(s.Plan)))
	}
	if !SameInputs(s.Inputs, stored.Inputs) {
		list = append(list, "it has other inputs")
	}
	return ": " + strings.Join(list, ", ")
}

// The bounds of a page.
const (
	DefaultPage = 100  // the largest number of entries in a page if the Limit of the query is 0
	MaxPage     = 1000 // the largest Limit of a query
)

// The function `limit` returns how many entries a page may have if n is the Limit of the query. It returns an error if n is negative or above
// MaxPage.
func limit(n int) (int, error) {
	switch {
	case n < 0 || n > MaxPage:
		return 0, fmt.Errorf("%w: Limit %d is not from 0 to %d", machine.ErrBadValue, n, MaxPage)
	case n == 0:
		return DefaultPage, nil
	}
	return n, nil
}

// Filter selects the runs that match all of its fields. A zero field matches all runs.
type Filter struct {
	Workflow string
	Plan     string              // the hash of the plan
	Statuses []machine.RunStatus // the run has one of these statuses
	Labels   map[string]string   // the run has all of these labels
	Parent   string
	Key      string // the run has this key, see Spec
	Prefix   string // the prefix of the run's id
	// Compensation selects runs by the state of their compensations, see [Run].Compensation. The zero value selects all.
	Compensation machine.Compensation
	// The run was created at or after CreatedFrom and before CreatedBefore. It ended at or after EndedFrom and before EndedBefore. If EndedFrom
	// or EndedBefore is set, a run that has not ended does not match.
	CreatedFrom, CreatedBefore, EndedFrom, EndedBefore time.Time
}

// Matches reports whether the filter selects the run.
func (f *Filter) Matches(r *Run) bool {
	for name, value := range f.Labels {
		if has, ok := r.Labels[name]; !ok || has != value {
			return false
		}
	}
	return (f.Workflow == "" || r.Workflow == f.Workflow) && (f.Plan == "" || r.Plan == f.Plan) && (f.Parent == "" || r.Parent == f.Parent) && (f.Key == "" || r.Key == f.Key) && strings.HasPrefix(r.ID, f.Prefix) &&
		(f.Compensation == machine.CompensationNone || f.Compensation == r.Compensation) && (len(f.Statuses) == 0 || slices.Contains(f.Statuses, r.Status)) &&
		within(r.Created, f.CreatedFrom, f.CreatedBefore) && within(r.Ended, f.EndedFrom, f.EndedBefore)
}

func within(t, from, before time.Time) bool {
	if t.IsZero() {
		return from.IsZero() && before.IsZero()
	}
	return !t.Before(from) && (before.IsZero() || t.Before(before))
}

// Query asks for a page of runs.
type Query struct {
	Filter
	Limit int    // the largest number of runs in the page; 0 means DefaultPage
	After string // Next of the preceding page; "" for the first page
}

// Bound returns the Limit, or DefaultPage if it is 0. It returns an error if the Limit is negative or above MaxPage.
func (q *Query) Bound() (int, error) { return limit(q.Limit) }

// Page is one page of a list of runs.
type Page struct {
	Runs []Run
	// Next is the Query.After for the next page. It is "" if this page is the last one. If runs are created or removed between two calls of List,
	// each other run is still on exactly one page.
	Next string
}

// Cut shortens Runs to the length `most`, and sets Next if Runs was longer. So a store must read one run more than a page may have. The function
// "unit" converts a time of creation to the number that the store keeps for it, such as time.Time.UnixMilli. Cut is for implementations of [Admin].
func (p *Page) Cut(most int, unit func(time.Time) int64) {
	if len(p.Runs) > most {
		p.Runs = p.Runs[:most]
		last := &p.Runs[most-1]
		p.Next = keyset.Encode(unit(last.Created), last.ID)
	}
}

// Count is the number of runs that have the same workflow and status.
type Count struct {
	Workflow string
	Status   machine.RunStatus
	Runs     int
}

// SortCounts sorts counts by workflow and status. It is for implementations of [Admin].
func SortCounts(counts []Count) {
	slices.SortFunc(counts, func(a, b Count) int {
		return cmp.Or(strings.Compare(a.Workflow, b.Workflow), cmp.Compare(a.Status, b.Status))
	})
}

// NodeQuery asks for a page of the nodes of a run.
type NodeQuery struct {
	Limit  int    // the largest number of nodes in the page; 0 means DefaultPage
	After  string // Next of the preceding page; "" for the first page
	Values bool   // whether the nodes in the page have their Value and their Record
}

// Range returns the number of the first node of the page, counted from 0, and the largest number of nodes in the page. It returns an error if Limit
// or After is invalid. It is for implementations of [Admin].
func (q *NodeQuery) Range() (first int64, most int, err error) {
	if most, err = limit(q.Limit); err == nil && q.After != "" {
		first, _, err = keyset.Decode(q.After)
	}
	return max(first, 0), most, err
}

// NodePage is one page of a run's nodes.
type NodePage struct {
	Nodes []ListedNode
	Next  string // the NodeQuery.After for the next page; "" if this page is the last one
}

// Cut shortens Nodes to the length `most`, and sets Next if Nodes was longer. So a store must read one node more than a page may have. The
// parameter "first" is the number of the first node in Nodes. Cut is for implementations of [Admin].
func (p *NodePage) Cut(first int64, most int) {
	if len(p.Nodes) > most {
		p.Nodes = p.Nodes[:most]
		p.Next = keyset.Encode(first+int64(most), "")
	}
}

// ListedNode is a node in a list.
type ListedNode struct {
	Key string // the node's id, or its path if it is inside a composite: see kahn.Durable
	Node
}

// PruneQuery selects runs to be removed.
type PruneQuery struct {
	// EndedBefore is required: Prune removes runs that ended before this time.
	EndedBefore time.Time
	// Statuses are terminal statuses. Prune removes runs with one of them. An empty list means all terminal statuses.
	Statuses []machine.RunStatus
	// Workflow is the workflow of the runs; "" means all workflows.
	Workflow string
	// Limit is the largest number of runs that one call removes; 0 means DefaultPage.
	Limit int
	// Blobs is the blob store of the runs' codec, see [Blobs]. When no run refers to a blob any more, Prune removes the blob from Blobs, unless it
	// was put less than Grace ago. If Blobs is nil, Prune removes no blobs; a later call with Blobs removes them.
	Blobs BlobSweeper
	// Grace protects blobs to which a run is about to refer. A process puts a step's output as a blob before it makes the commit that refers to the
	// blob. It repeats a failed commit until its lease expires, so Grace must be longer than the duration of a lease. Zero means an hour. Negative
	// means that Prune protects no blob.
	Grace time.Duration
}

const defaultGrace = time.Hour

// Check sets Limit and Statuses to their defaults if they are not set. The error matches [machine.ErrBadValue] if the query is invalid. Check is
// for implementations of [Admin].
func (q *PruneQuery) Check() (err error) {
	if q.Limit, err = limit(q.Limit); err != nil {
		return err
	}
	if q.EndedBefore.IsZero() {
		return fmt.Errorf("%w: Prune needs EndedBefore", machine.ErrBadValue)
	}
	for _, s := range q.Statuses {
		if !s.Terminal() {
			return fmt.Errorf("%w: Prune of runs that are %v: only runs that have ended are removed", machine.ErrBadValue, s)
		}
	}
	if len(q.Statuses) == 0 {
		q.Statuses = []machine.RunStatus{machine.RunCompleted, machine.RunFailed, machine.RunCancelled}
	}
	return nil
}

// Sweep removes the blobs with the given keys from q.Blobs, and returns the keys that are gone. The caller has checked that no run refers to these
// blobs. Sweep leaves blobs that were put less than q.Grace ago. It stops at the first error. Sweep is for implementations of [Admin].
func (q *PruneQuery) Sweep(ctx context.Context, keys []string) (gone []string, err error) {
	grace := q.Grace
	switch {
	case grace == 0:
		grace = defaultGrace
	case grace < 0:
		grace = 0
	}
	before := time.Now().Add(-grace)
	for _, key := range keys {
		removed, err := q.Blobs.Sweep(ctx, key, before)
		if err != nil {
			return gone, fmt.Errorf("blob %s: %w", key, err)
		}
		if removed {
			gone = append(gone, key)
		}
	}
	return gone, nil
}

// Pruned counts what a call of Prune has removed.
type Pruned struct {
	Runs, Nodes, Blobs int
	More               bool // whether there may be more runs that match
}

// BlobKeys returns the keys of the blobs to which the commit's data refers. The keys are sorted and distinct.
func (c *Commit) BlobKeys() []string {
	data := make([]json.RawMessage, 0, 2+2*len(c.Nodes)+len(c.Events))
	data = append(data, c.Run)
	if c.Spec != nil {
		data = append(data, c.Spec.Inputs)
	}
	for i := range c.Nodes {
		data = append(data, c.Nodes[i].Value, c.Nodes[i].Record)
	}
	for i := range c.Events {
		data = append(data, c.Events[i].Data)
	}
	return BlobKeys(data...)
}

// BlobKeys returns the keys of the blobs to which the run refers. The keys are sorted and distinct.
func (r *Run) BlobKeys() []string {
	data := []json.RawMessage{r.Inputs, r.Record}
	for _, n := range r.Nodes {
		data = append(data, n.Value, n.Record)
	}
	for _, e := range r.Events {
		data = append(data, e.Data)
	}
	return BlobKeys(data...)
}
