package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Store keeps runs durably: after a crash the next process loads the run and continues from the last commit. It implements the readiness
// model. Every node has a counter of resolved predecessors, and is queued when the counter reaches the number of its predecessors. An
// attempt is recorded before its step is called. All changes of a completion are in one transaction. A transaction may hold the starts
// and ends of any number of nodes. Package storetest tests what every Store must satisfy.
//
// A run belongs to the holder of its lease. Every write carries the lease, and a store rejects a lease that is not the newest, or has expired,
// with [ErrFenced]. Otherwise a store answers a write with an [Applied]. After another error the write may or may not have happened. The
// engine then repeats the write until the lease runs out, except for the first write of a life, and the store must recognise the repeated
// write. The engine does not repeat a write after [ErrRejected], if the data is at fault, or [ErrUnusable], if the store is: an
// implementation returns these two for permanent errors, and only for them.
//
// The methods may be called from several goroutines. Slices and raw messages in arguments belong to the store after the call.
type Store interface {
	// Acquire takes the lease of a run for the given time, makes the run if there is none of this id, and returns the stored run. The error
	// matches ErrLeased if another owner has a lease that has not expired. Each acquisition has a higher epoch than all earlier ones.
	Acquire(ctx context.Context, run, owner string, ttl time.Duration) (Lease, *Run, error)
	// Renew extends a lease by ttl from now.
	Renew(ctx context.Context, lease Lease, ttl time.Duration) error
	// Release gives up a lease. It returns no error if the lease has expired or was taken over.
	Release(ctx context.Context, lease Lease) error
	// Commit applies a transaction as a whole, or not at all: its fields in their order, and each list in its own order. Its Sequence must be one
	// above the last applied Sequence; an equal one returns Duplicate, a lower one Stale, a higher one Conflict, and nothing changes. Nor does
	// anything change in these cases, in which the store returns the answer in parentheses:
	//
	//   - An attempt in Completed is below the last recorded attempt of its node (Stale), is above it, or was completed before (Conflict).
	//   - An attempt in Started is not above the last recorded attempt of its node (Stale), or is more than one above it (Conflict).
	//   - Started or Nodes names a node that is stored as terminal (Conflict).
	//   - The run has ended and Reopen is not set (Conflict), unless the commit only refuses requests.
	//   - There is a Reset without Reopen (Conflict).
	//
	// The error matches ErrReadinessOverflow if a readiness counter would exceed the node's Required. Commit.Judge decides all of this.
	Commit(ctx context.Context, lease Lease, c Commit) (Applied, error)
	// Load returns the stored data of a run, for reading only. The error matches ErrUnknownRun if the run is not stored.
	Load(ctx context.Context, run string) (*Run, error)
}

// Lease identifies an ownership of a run.
type Lease struct {
	Run   string `json:"run"`
	Owner string `json:"owner"`
	Epoch uint64 `json:"epoch"` // grows by one with each acquisition
}

// Commit is one transaction.
type Commit struct {
	// Sequence numbers the commits of a run from 1, over all its owners.
	Sequence uint64 `json:"sequence"`
	// Reopen begins a redrive: the transaction is applied even if the run has ended. The run then continues, unless the transaction ends it
	// again.
	Reopen bool `json:"reopen,omitempty"`
	// Reset are the nodes that a redrive takes back, terminal ones among them. Afterwards each is as if no commit had named it: it has no record,
	// no attempt, and a counter of zero. The rest of the transaction applies to this state. A store may return such a node as the zero
	// Node, or not at all.
	Reset []string `json:"reset,omitempty"`
	// Completed are the attempts that have ended. An attempt whose start was never written has no end here.
	Completed []Attempt `json:"completed,omitempty"`
	// Started are the attempts that begin: their steps are called once the transaction is applied. The nodes leave the queue.
	Started []Attempt `json:"started,omitempty"`
	// Nodes are the records of the nodes that changed, results included. They replace those that are stored.
	Nodes []NodeRecord `json:"nodes,omitempty"`
	// Readiness are the increments of the counters of successor nodes.
	Readiness []Readiness `json:"readiness,omitempty"`
	// Ready are the nodes to be queued.
	Ready []string `json:"ready,omitempty"`
	// Events are the next events of the run's log, in order. Only an [EventStore] gets any. If they do not follow the end of the stored log, see
	// [Commit.EventsFollow], nothing changes (Conflict).
	Events []EventRecord `json:"events,omitempty"`
	// Taken answers requests: this transaction stores the effect of each request, or the run has refused it. Only an [Inbox] gets any. If
	// they are not the next requests of the run, see [Commit.TakenFollow], nothing changes (Conflict). A transaction that ends the run
	// refuses all other requests. A transaction that only refuses redrives of a run that has ended leaves the run and its time of end as
	// they are.
	Taken []TakenRequest `json:"taken,omitempty"`
	// Awaits are nodes of the run that begin or cease to await other runs. Only an [Awaiter] gets any. A transaction that ends the run begins no
	// awaits.
	Awaits []Await `json:"awaits,omitempty"`
	// Spec, if not nil, replaces what the run was asked to do. It is set in the first commit of a run that was created without a Spec,
	// and when the run continues with other inputs, under another plan or with other labels.
	Spec *Spec `json:"spec,omitempty"`
	// Run, if not nil, replaces the run's record.
	Run json.RawMessage `json:"run,omitempty"`
	// Compensation, if not nil, replaces how far the run has come with undoing what its nodes did.
	Compensation *machine.Compensation `json:"compensation,omitempty"`
	// Usage, if not empty, replaces what the run has used.
	Usage map[string]float64 `json:"usage,omitempty"`
	// Status is RunCompleted, RunFailed or RunCancelled if the transaction ends the run, RunSuspended or RunRunning if its
	// status changes, else RunPending.
	Status machine.RunStatus `json:"status"`
	// WakeAt is when the run continues without a signal, as far as is known now: when its first backoff or pause ends, or its first
	// deadline passes. The deadlines are those of its gates, of its nodes over all attempts, and of the run itself. If the process left
	// the run with work to do, WakeAt is the time at which it left the run. The zero time means never. WakeAt replaces the stored one,
	// even if it is zero: a run whose WakeAt has passed and that is not leased is due. A store keeps it at least to the millisecond, and
	// refuses a time outside the years 1 to 9999, which JSON cannot express, with ErrRejected.
	WakeAt time.Time `json:"wake_at,omitzero"`
}

// Attempt names an attempt of a node. Nodes that the engine evaluates or performs itself, such as conditions and composites, have none in a
// store.
type Attempt struct {
	// Node is the node's id, inside composites its path: see kahn.Durable.
	Node    string `json:"node"`
	Attempt int32  `json:"attempt"` // from 1
}

// NodeRecord is the record of a node.
type NodeRecord struct {
	// Node is the node's id, inside composites its path: see kahn.Durable.
	Node string `json:"node"`
	// Terminal nodes never change again.
	Terminal bool `json:"terminal,omitempty"`
	Columns
}

// Columns is what a store keeps of a node, in parts for which a store may have columns. A store returns each part as it was given; an empty one
// may come back as nil.
type Columns struct {
	Status machine.Status    `json:"status,omitempty"`
	Cause  machine.CauseKind `json:"cause,omitempty"` // why the node failed, was stopped, or was asked to stop
	// Start is when its first attempt started and End when its last attempt ended, as in kahn.NodeResult; zero before the first start. A store
	// keeps them at least to the microsecond.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Hash identifies the node's definition in its graph, with its in-edges and the nodes inside it; nil for nodes inside composites.
	Hash []byte `json:"hash,omitempty"`
	// Value is the output of a completed node, as the run's [Codec] has encoded it; nil for any other node.
	Value json.RawMessage `json:"value,omitempty"`
	// Record is everything else, in a form that only the engine reads.
	Record json.RawMessage `json:"record,omitempty"`
}

// Readiness counts predecessors of a node that have resolved.
type Readiness struct {
	Node     string `json:"node"`
	By       int    `json:"by"`       // how many predecessors resolved in this transaction; below zero if a redrive takes some back
	Required int    `json:"required"` // how many predecessors the node has
}

// Spec says what a run was asked to do, and has the labels and keys by which a host finds it.
type Spec struct {
	Workflow string `json:"workflow,omitempty"` // the name of the graph
	Plan     string `json:"plan,omitempty"`     // the hash of the plan
	// Inputs is a JSON object of the run's inputs by name, each as the run's codec has encoded it; nil if there are none. Its member "#fire", if
	// present, is not an input: it holds the trigger that fires the run, see kahn.Fire, and the payload.
	Inputs json.RawMessage   `json:"inputs,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Parent string            `json:"parent,omitempty"` // the id of the run that asked for this one
	// Key groups runs, for example by tenant: runs that are due take turns by their keys, see [QueueStore]. "" is a key, too. Priority orders the
	// due runs of a key, higher ones first.
	Key      string `json:"key,omitempty"`
	Priority int    `json:"priority,omitempty"`
}

// Run is the stored data of a run.
type Run struct {
	ID string `json:"id"`
	Spec
	// Created is when the run was created, or acquired for the first time, and Ended when a commit ended it, by the clock of the store, at least
	// to the millisecond.
	Created  time.Time         `json:"created,omitzero"`
	Ended    time.Time         `json:"ended,omitzero"`
	Record   json.RawMessage   `json:"record,omitempty"` // nil until the first commit
	Status   machine.RunStatus `json:"status"`           // RunPending until the first commit
	Sequence uint64            `json:"sequence"`         // the sequence of the last commit, or 0
	// Compensation is how far the run has come with undoing what its nodes have done: see kahn.Run.Compensation.
	Compensation machine.Compensation `json:"compensation,omitzero"`
	// Usage is what the run's steps have used, by name, in all attempts that have ended, over all its lives; nil for nothing. A store keeps it
	// only for lists.
	Usage  map[string]float64 `json:"usage,omitempty"`
	WakeAt time.Time          `json:"wake_at,omitzero"` // as the last commit says; before the first commit, the time at which a created run may begin
	Nodes  map[string]Node    `json:"nodes"`
	// LastEvent is the id of the last stored event, 0 if none is stored.
	LastEvent uint64 `json:"last_event,omitempty"`
	// Posted and Taken are the numbers of the last posted and of the last answered request of the run, see [Inbox]; the
	// requests above Taken wait. Requests are neither exported nor inserted.
	Posted uint64 `json:"-"`
	Taken  uint64 `json:"-"`
	// Events are the events that [Admin].Insert stores with the run, from the first stored one to LastEvent. A run that Acquire or Load returns
	// has none: see [EventStore].
	Events []EventRecord `json:"events,omitempty"`
}

// Node is the stored data of a node.
type Node struct {
	Columns // as in the last commit that has a record of the node; zero if there was no such commit
	State
}

// State is the part of a node by which commits are judged: see [Commit.Judge].
type State struct {
	Terminal  bool  `json:"terminal,omitempty"`
	Attempt   int32 `json:"attempt"`  // the last recorded attempt, or 0
	Resolved  int   `json:"resolved"` // the readiness counter
	Required  int   `json:"required"`
	Queued    bool  `json:"queued,omitempty"`    // the node is ready, and its attempt has not been recorded
	Completed bool  `json:"completed,omitempty"` // the node's last recorded attempt was completed
}

// Applied is a store's answer to a write.
type Applied uint8

// The answers of a store.
const (
	AppliedNow Applied = iota + 1 // the write was applied
	Duplicate                     // the write had been applied before
	Stale                         // the write is older than the stored state; nothing changed
	Conflict                      // the write contradicts the stored state; nothing changed
)

var appliedNames = enum.Of[Applied]("answer", "", "applied", "duplicate", "stale", "conflict")

// String returns "applied", "duplicate", "stale" or "conflict".
func (a Applied) String() string { return appliedNames.Name(a) }

// MarshalText encodes a as its name. It returns an error that matches [machine.ErrBadValue] for a value outside the enum.
func (a Applied) MarshalText() ([]byte, error) { return appliedNames.Text(a) }

// UnmarshalText decodes a name. It returns an error that matches [machine.ErrBadValue] for anything else.
func (a *Applied) UnmarshalText(text []byte) error { return appliedNames.Parse(a, text) }

// LeaseReader is a [Store] that can read who holds a run. [Memory], store/sqlite and store/postgres implement it.
type LeaseReader interface {
	// ReadLease returns the owner of the run's lease, and when it runs out by the clock of the store; "" and the zero time if the run is not
	// leased. The error matches ErrUnknownRun if the run is not stored.
	ReadLease(ctx context.Context, run string) (owner string, until time.Time, err error)
}

// Errors of stores.
var (
	// ErrFenced rejects a write under a lease that has expired or was taken over.
	ErrFenced = errors.New("the lease is not the newest")
	// ErrLeased rejects an acquisition of a run that another owner holds.
	ErrLeased = errors.New("the run is leased")
	// ErrKeyFull rejects an acquisition of a run whose key has as many leased runs as it may have: see [TurnStore].
	ErrKeyFull = errors.New("the key has as many runs as it may have")
	// ErrUnknownRun rejects a request for a run that is not stored.
	ErrUnknownRun = errors.New("unknown run")
	// ErrReadinessOverflow rejects a commit that would count more resolved predecessors than a node has.
	ErrReadinessOverflow = errors.New("readiness above what is required")
	// ErrRejected rejects data that the store can never hold: a value that is too large, or has characters that the store cannot represent.
	ErrRejected = errors.New("the store rejects the data")
	// ErrUnusable is returned if the store can never answer: it has no schema or one of another version, its file is not a database, or it is
	// read-only. The engine does not repeat the call.
	ErrUnusable = errors.New("the store is unusable")
)

// ValueChecker is a [Store] that knows beforehand which values it would reject. The engine asks before a node completes: a refused value fails
// its node with [machine.CauseStoreRejected], and the run continues. If the store is no ValueChecker, or only the transaction shows that a value
// is too large, Commit returns [ErrRejected] for a commit with such a value. The engine then commits the outputs one by one to find the
// rejected one, and leaves the run. The node of the rejected output fails when the run continues. If no output is to blame, the run
// fails.
type ValueChecker interface {
	// CheckValue returns an error that matches [ErrRejected] if no record may contain the value, which a [Codec] has encoded. After any other
	// error the value is written, and the commit shows whether the store accepts it. CheckValue is called from several goroutines, and must not
	// keep or change the value.
	CheckValue(value json.RawMessage) error
}
