package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Store keeps runs durably: after a crash the next process loads the run and goes on from the last commit. It implements the
// readiness model: every node has a counter of predecessors that have resolved, and is queued when the counter reaches their
// number; an attempt is recorded before its step is called; all changes of a completion are in one transaction. A transaction
// may hold the starts and ends of any number of nodes. Package storetest tests what every Store must satisfy.
//
// A run belongs to the holder of its lease. Every write carries the lease, and a store rejects a lease that is not the
// newest, or has expired, with [ErrFenced]. Apart from fencing, a store answers a write with an [Applied]; an error means
// that the write may or may not have happened. The engine repeats it then, until the lease runs out, and the store must recognise
// it; only the first write of a life is not repeated. The engine does not repeat a write that was answered with [ErrRejected], for its data, or [ErrUnusable], for the store: an
// implementation returns these for errors that go on for ever, and nothing else in their place.
//
// The methods may be called from several goroutines. The slices and raw messages of the arguments belong to the store
// afterwards.
type Store interface {
	// Acquire takes the lease of a run for the given time, makes the run if there is none of this id, and returns what is
	// stored of it. The error matches ErrLeased if another owner has a lease that has not expired. Each acquisition has a
	// higher epoch than all before it.
	Acquire(ctx context.Context, run, owner string, ttl time.Duration) (Lease, *Run, error)
	// Renew extends a lease by ttl from now.
	Renew(ctx context.Context, lease Lease, ttl time.Duration) error
	// Release gives up a lease. One that has expired, or was taken over, is no error.
	Release(ctx context.Context, lease Lease) error
	// Commit applies a transaction as a whole, or not at all: its fields in their order, each list in its own. Its Sequence is
	// one above that of the last one applied, else nothing changes: that of the last one is Duplicate, a lower one Stale, a
	// higher one Conflict. Nor does anything change if an attempt in Completed is not the last one recorded of its node (lower:
	// Stale, higher: Conflict) or was completed before (Conflict), if one in Started is not the one after the last one recorded
	// (lower: Stale, higher: Conflict), if Started or Nodes names a node that is stored as terminal (Conflict), if the run
	// has ended and Reopen is not set (Conflict), unless it does nothing but refuse requests, or if there is a Reset without Reopen (Conflict). The error matches
	// ErrReadinessOverflow if a readiness counter would exceed what it requires. Commit.Judge decides all of this.
	Commit(ctx context.Context, lease Lease, c Commit) (Applied, error)
	// Load returns the stored data of a run, for reading alone. The error matches ErrUnknownRun if the
	// run is not stored.
	Load(ctx context.Context, run string) (*Run, error)
}

// Lease is the ownership of a run.
type Lease struct {
	Run   string `json:"run"`
	Owner string `json:"owner"`
	Epoch uint64 `json:"epoch"` // one more with each acquisition
}

// Commit is one transaction.
type Commit struct {
	// Sequence numbers the commits of a run from 1, over all its owners.
	Sequence uint64 `json:"sequence"`
	// Reopen begins a redrive: the transaction is applied to a run that has ended, too. The run then goes on, unless the transaction
	// ends it again.
	Reopen bool `json:"reopen,omitempty"`
	// Reset are the nodes that a redrive takes back, terminal ones among them. Each is then as if no commit had named it: it has no
	// record, no attempt, and a counter of zero. The rest of the transaction is applied to it like that. A store may return it as the
	// zero Node, or not at all.
	Reset []string `json:"reset,omitempty"`
	// Completed are the attempts that have ended. An attempt that was given up before its start was written has no end.
	Completed []Attempt `json:"completed,omitempty"`
	// Started are the attempts that begin: their steps are called when the transaction has been applied. The nodes leave the
	// queue.
	Started []Attempt `json:"started,omitempty"`
	// Nodes are the records of the nodes that changed, results included. They replace those that are stored.
	Nodes []NodeRecord `json:"nodes,omitempty"`
	// Readiness are the increments of the counters of the nodes that follow.
	Readiness []Readiness `json:"readiness,omitempty"`
	// Ready are the nodes to be queued.
	Ready []string `json:"ready,omitempty"`
	// Events are the next ones of the run's log, in order. Only an [EventStore] is given any. If they do not go on where the stored log
	// ends, see [Commit.EventsFollow], nothing changes (Conflict).
	Events []EventRecord `json:"events,omitempty"`
	// Taken answers requests: the run has refused each, or this transaction stores its effect. Only an [Inbox] is given any. If they are not the
	// next ones of the run, see [Commit.TakenFollow], nothing changes (Conflict). A transaction that ends the run refuses all others. One that does
	// nothing but refuse redrives of a run that has ended leaves the run as it is, when it ended included.
	Taken []TakenRequest `json:"taken,omitempty"`
	// Awaits are nodes of the run that await other runs, or do so no more. Only an [Awaiter] is given any. A run that the transaction ends awaits nothing.
	Awaits []Await `json:"awaits,omitempty"`
	// Spec replaces what the run was asked to do, if it is not nil: in the first commit of a run that was not created with it, and
	// when the run goes on with other inputs, under another plan or with other labels.
	Spec *Spec `json:"spec,omitempty"`
	// Run replaces the run's record, if it is not nil.
	Run json.RawMessage `json:"run,omitempty"`
	// Compensation replaces how far the run has come with undoing what its nodes have done, if it is not nil.
	Compensation *machine.Compensation `json:"compensation,omitempty"`
	// Usage replaces what the run has used, unless it is empty.
	Usage map[string]float64 `json:"usage,omitempty"`
	// Status is RunCompleted, RunFailed or RunCancelled if the transaction ends the run, RunSuspended or RunRunning if its
	// status changes, else RunPending.
	Status machine.RunStatus `json:"status"`
	// WakeAt is when the run goes on without a signal, as far as it is known now: when the first of its backoffs and pauses ends,
	// or the first deadline of its gates, of its nodes over all attempts, or of the run itself passes; of a run that was left with more to do than to
	// wait, when it was left. The zero time means never.
	// It replaces the stored one, also when it is zero: a run whose WakeAt has passed and that nobody holds is due. A store keeps
	// it at least to the millisecond. A time outside the years 1 to 9999, which JSON cannot express, is refused with ErrRejected.
	WakeAt time.Time `json:"wake_at,omitzero"`
}

// Attempt names an attempt of a node. Nodes that the engine evaluates or performs itself, conditions and composites among
// them, have none in a store.
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

// Columns is what a store keeps of a node, in parts for which a store may have columns. A store returns each as it was given; an empty one may come back as nil.
type Columns struct {
	Status machine.Status    `json:"status,omitempty"`
	Cause  machine.CauseKind `json:"cause,omitempty"` // of a node that failed or was stopped, or was asked to stop
	// Start and End are those of its attempts: of the first start and of the last end, as in kahn.NodeResult. Zero before the first start.
	// A store keeps them at least to the microsecond.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Hash identifies what the node is in its graph, with its in-edges and its inside; nil of nodes inside composites.
	Hash []byte `json:"hash,omitempty"`
	// Value is the output of a completed node, as the run's [Codec] has encoded it; nil of any other node.
	Value json.RawMessage `json:"value,omitempty"`
	// Record is everything else, in a form that only the engine reads.
	Record json.RawMessage `json:"record,omitempty"`
}

// Readiness counts predecessors of a node that have resolved.
type Readiness struct {
	Node     string `json:"node"`
	By       int    `json:"by"`       // how many resolved in this transaction; below zero if a redrive takes some of them back
	Required int    `json:"required"` // how many there are
}

// Spec is what a run was asked to do: what it performs, and by which a host finds it.
type Spec struct {
	Workflow string `json:"workflow,omitempty"` // the name of the graph
	Plan     string `json:"plan,omitempty"`     // the hash of the plan
	// Inputs is a JSON object of the run's inputs by name, each as the run's codec has encoded it; nil if there are none. Its member "#fire", if
	// there is one, is no input: it holds the trigger that fires the run, see kahn.Fire, and the payload.
	Inputs json.RawMessage   `json:"inputs,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Parent string            `json:"parent,omitempty"` // the id of the run that asked for this one
	// Key says whose run it is, such as a tenant's: runs that are due take turns by their keys, see [QueueStore]. "" is a key, too. Priority
	// orders the runs of a key that are due, higher ones first.
	Key      string `json:"key,omitempty"`
	Priority int    `json:"priority,omitempty"`
}

// Run is the stored data of a run.
type Run struct {
	ID string `json:"id"`
	Spec
	// Created and Ended are by the clock of the store, kept at least to the millisecond: when the run was created, or acquired for the
	// first time, and when a commit has ended it.
	Created  time.Time         `json:"created,omitzero"`
	Ended    time.Time         `json:"ended,omitzero"`
	Record   json.RawMessage   `json:"record,omitempty"` // nil until the first commit
	Status   machine.RunStatus `json:"status"`           // RunPending until the first commit
	Sequence uint64            `json:"sequence"`         // of the last commit, or 0
	// Compensation is how far the run has come with undoing what its nodes have done: see kahn.Run.Compensation.
	Compensation machine.Compensation `json:"compensation,omitzero"`
	// Usage is what the steps of the run have used in attempts that have ended, by name, in all its lives; nil for nothing. A store keeps it for lists alone.
	Usage  map[string]float64 `json:"usage,omitempty"`
	WakeAt time.Time          `json:"wake_at,omitzero"` // of the last commit; before the first one, when a run that was created may begin
	Nodes  map[string]Node    `json:"nodes"`
	// LastEvent is the id of the last stored event, 0 if none is stored.
	LastEvent uint64 `json:"last_event,omitempty"`
	// Posted and Taken are the numbers of the last request that was posted for the run, and of the last one that was answered: see [Inbox].
	// Those between them wait. Nothing of requests is exported or inserted.
	Posted uint64 `json:"-"`
	Taken  uint64 `json:"-"`
	// Events are those that [Admin].Insert stores with the run, from the first stored one to LastEvent. What Acquire and Load return has none:
	// see [EventStore].
	Events []EventRecord `json:"events,omitempty"`
}

// Node is the stored data of a node.
type Node struct {
	Columns // of the last commit that had a record of the node; zero if none had
	State
}

// State is what commits are judged by: see [Commit.Judge].
type State struct {
	Terminal  bool  `json:"terminal,omitempty"`
	Attempt   int32 `json:"attempt"`  // the last one recorded, or 0
	Resolved  int   `json:"resolved"` // the readiness counter
	Required  int   `json:"required"`
	Queued    bool  `json:"queued,omitempty"`    // it is ready and its attempt has not been recorded
	Completed bool  `json:"completed,omitempty"` // its last recorded attempt was completed
}

// Applied is a store's answer to a write that it understood.
type Applied uint8

// The answers of a store.
const (
	AppliedNow Applied = iota + 1 // it has been applied
	Duplicate                     // it had been applied already
	Stale                         // it is older than what is stored; nothing has changed
	Conflict                      // it contradicts what is stored; nothing has changed
)

var appliedNames = enum.Of[Applied]("answer", "", "applied", "duplicate", "stale", "conflict")

// String returns "applied", "duplicate", "stale" or "conflict".
func (a Applied) String() string { return appliedNames.Name(a) }

// MarshalText encodes a as its name. It returns an error that matches [machine.ErrBadValue] for a value outside the enum.
func (a Applied) MarshalText() ([]byte, error) { return appliedNames.Text(a) }

// UnmarshalText decodes a name. It returns an error that matches [machine.ErrBadValue] for anything else.
func (a *Applied) UnmarshalText(text []byte) error { return appliedNames.Parse(a, text) }

// LeaseReader is a [Store] that tells who holds a run. [Memory], store/sqlite and store/postgres are.
type LeaseReader interface {
	// ReadLease returns the owner of the run's lease, and when it runs out by the clock of the store; "" and the zero time if nobody holds the
	// run. The error matches ErrUnknownRun if the run is not stored.
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
	// ErrReadinessOverflow rejects a commit by which more predecessors would have resolved than a node has.
	ErrReadinessOverflow = errors.New("readiness above what is required")
	// ErrRejected rejects what the store cannot hold, whatever time passes: a value that is too large, or that has characters
	// which the store has no form for.
	ErrRejected = errors.New("the store rejects the data")
	// ErrUnusable tells that the store cannot answer, whatever time passes: it has no schema or that of another version, its
	// file is no database, or it may only be read. The engine does not repeat the call.
	ErrUnusable = errors.New("the store is unusable")
)

// ValueChecker is a [Store] that can tell beforehand which values it would reject. The engine asks before a node completes: a value that
// is refused fails its node with [machine.CauseStoreRejected], and the run goes on. Without it, or for what only the transaction shows to be
// too large, the engine finds the output of a step for which a commit was answered with [ErrRejected], by commits that hold one output each; the
// run is left then, and the node fails when it goes on. For anything else such an answer fails the run.
type ValueChecker interface {
	// CheckValue returns an error that matches [ErrRejected] if no record may contain the value, which a [Codec] has encoded. After any
	// other error the value is written, and the commit tells.
	// It is called from several goroutines, and must not keep or change the value.
	CheckValue(value json.RawMessage) error
}
