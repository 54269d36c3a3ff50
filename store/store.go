package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Store stores runs durably: after a crash the next process loads the run and continues from the last commit. A Store implements the readiness
// model: every node has a counter of resolved predecessors, and is queued when the counter reaches the number of its predecessors. An attempt is
// recorded before its step is called. One transaction contains all changes that follow from the end of an attempt. A transaction may contain the
// starts and ends of any number of attempts. Package storetest tests what every Store must satisfy.
//
// A run belongs to the holder of its lease. Every write carries the lease. A store returns [ErrFenced] if the lease has expired or is not the
// newest. Otherwise it answers with an [Applied] or returns another error. After an error other than ErrFenced, the write may or may not have
// happened, so the engine repeats the write until the lease runs out, and the store must recognise a repeated write. The engine does not repeat the
// first write after Acquire, nor a write that has returned [ErrUnknownRun], [ErrReadinessOverflow], [ErrRejected] or [ErrUnusable]. If the same
// write can never succeed, a store returns ErrRejected if the fault is in the data, and ErrUnusable if it is in the store.
//
// The methods may be called from several goroutines. Slices and raw messages in arguments belong to the store after the call.
type Store interface {
	// Acquire takes the lease of a run for the given time, creates the run if it is not stored, and returns the stored run. The error matches ErrLeased
	// if another owner has a lease that has not expired. Each acquisition has a higher epoch than all earlier ones.
	Acquire(ctx context.Context, run, owner string, ttl time.Duration) (Lease, *Run, error)
	// Renew extends a lease by ttl from now.
	Renew(ctx context.Context, lease Lease, ttl time.Duration) error
	// Release gives up a lease. It returns no error if the lease has expired or was taken over.
	Release(ctx context.Context, lease Lease) error
	// Commit applies all of a transaction, or nothing. It applies the fields of c in their order, and the entries of each list in their order. The
	// Sequence of c must be one above the last applied Sequence. Otherwise nothing changes: the answer is Duplicate if the Sequence is the last applied
	// one, Stale if it is lower, and Conflict if it is higher. The store also changes nothing in the following cases, and gives the answer in
	// parentheses:
	//
	//   - An attempt in Completed is below its node's last recorded attempt (Stale), or above it (Conflict), or its end is stored already (Conflict).
	//   - An attempt in Started is not above the last recorded attempt of its node (Stale), or is above it by more than one (Conflict).
	//   - Started or Nodes names a node that is stored as terminal (Conflict).
	//   - The run has ended, Reopen is not set, and the commit does more than refuse requests (Conflict).
	//   - Reset names nodes, but Reopen is not set (Conflict).
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
	// Sequence is the number of the commit among all commits of the run, from 1. A new owner continues the numbers of the former owner.
	Sequence uint64 `json:"sequence"`
	// Reopen begins a redrive: the transaction is applied even if the run has ended. The run then continues, unless the transaction ends it
	// again.
	Reopen bool `json:"reopen,omitempty"`
	// Reset are the nodes that a redrive resets; they may be terminal. Afterwards each node is as if no commit had named it: it has no record
	// and no attempt, and its counter is zero. The rest of the transaction applies to this state. A store may return such a node as the zero
	// Node, or not at all.
	Reset []string `json:"reset,omitempty"`
	// Completed are the attempts that have ended. The engine leaves out an attempt whose start was never written.
	Completed []Attempt `json:"completed,omitempty"`
	// Started are the attempts that begin: their steps are called once the transaction is applied. Their nodes leave the queue.
	Started []Attempt `json:"started,omitempty"`
	// Nodes are the new records of the nodes that changed. They include the results, and replace the stored records.
	Nodes []NodeRecord `json:"nodes,omitempty"`
	// Readiness lists the changes of the counters of nodes whose predecessors were resolved.
	Readiness []Readiness `json:"readiness,omitempty"`
	// Ready are the nodes to be queued.
	Ready []string `json:"ready,omitempty"`
	// Events are the next events of the run's log, in order. Only an [EventStore] gets events. If the events do not follow the end of the stored
	// log, see [Commit.EventsFollow], the store changes nothing and returns Conflict.
	Events []EventRecord `json:"events,omitempty"`
	// Taken has the answers to requests. For each request, the transaction either stores the effect, or says that the run refuses the request. Only an
	// [Inbox] gets answers. If Taken does not answer the next requests of the run, see [Commit.TakenFollow], the store changes nothing and returns
	// Conflict. A transaction that ends the run refuses every waiting request that it does not answer. If the run has ended and the transaction only
	// refuses redrives, the Status and the Ended of the run do not change.
	Taken []TakenRequest `json:"taken,omitempty"`
	// Awaits are nodes of the run that begin or cease to await other runs. Only an [Awaiter] gets awaits. A transaction that ends the run begins
	// no awaits.
	Awaits []Await `json:"awaits,omitempty"`
	// Spec, if not nil, replaces the run's Spec. It is set in the first commit of a run that was created without a Spec. It is also set when the
	// run continues with other inputs, under another plan or with other labels.
	Spec *Spec `json:"spec,omitempty"`
	// Run, if not nil, replaces the run's record.
	Run json.RawMessage `json:"run,omitempty"`
	// Compensation, if not nil, is the new state of the run's compensations.
	Compensation *machine.Compensation `json:"compensation,omitempty"`
	// Usage, if not empty, replaces the Usage of the run.
	Usage map[string]float64 `json:"usage,omitempty"`
	// Status is the new status of the run. If the transaction ends the run, it is RunCompleted, RunFailed or RunCancelled. It is RunSuspended if the
	// run is suspended, and RunRunning if the run begins or continues. RunPending means that the status does not change.
	Status machine.RunStatus `json:"status"`
	// WakeAt is the next known time at which the run continues without a signal. At this time a backoff or pause ends, or a deadline passes: the
	// deadline of a gate, of all attempts of a node together, or of the run itself. If a process leaves a run that has work to do, WakeAt is the time
	// at which the process leaves the run. The zero time means never. WakeAt replaces the stored time, even if it is zero. A run is due if its WakeAt
	// has passed and the run is not leased. A store stores WakeAt at least to the millisecond. It refuses a time outside the years 1 to 9999 with
	// ErrRejected, since JSON cannot express such a time.
	WakeAt time.Time `json:"wake_at,omitzero"`
}

// Attempt names an attempt of a node. Nodes that the engine evaluates or performs itself, such as conditions and composites, have no
// attempts in a store.
type Attempt struct {
	// Node is the node's id, or its path if the node is inside a composite: see kahn.Durable.
	Node    string `json:"node"`
	Attempt int32  `json:"attempt"` // from 1
}

// NodeRecord is the record of a node.
type NodeRecord struct {
	// Node is the node's id, or its path if the node is inside a composite: see kahn.Durable.
	Node string `json:"node"`
	// Terminal says that the node has ended. Only a redrive can change a terminal node, see Commit.Reset.
	Terminal bool `json:"terminal,omitempty"`
	Columns
}

// Columns is the stored data of a node, in parts. A store may have a column for each part. A store returns each part unchanged, but may return nil
// for an empty part.
type Columns struct {
	Status machine.Status    `json:"status,omitempty"`
	Cause  machine.CauseKind `json:"cause,omitempty"` // why the node failed, was stopped, or was asked to stop
	// Start is when the node's first attempt started, and End when its last attempt ended, as in kahn.NodeResult. Both times are zero before
	// the first start. A store keeps these times at least to the microsecond.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Hash identifies the node's definition in its graph, its in-edges and the nodes inside it. It is nil for nodes inside composites.
	Hash []byte `json:"hash,omitempty"`
	// Value is the output of a completed node, as the run's [Codec] has encoded it; nil for any other node.
	Value json.RawMessage `json:"value,omitempty"`
	// Record is everything else, in a form that only the engine reads.
	Record json.RawMessage `json:"record,omitempty"`
}

// Readiness is a change of a node's counter of resolved predecessors.
type Readiness struct {
	Node     string `json:"node"`
	By       int    `json:"by"`       // how many predecessors resolved in this transaction; negative if a redrive resets predecessors
	Required int    `json:"required"` // how many predecessors the node has
}

// Spec says what a run has to do, and has the labels and keys by which a host finds the run.
type Spec struct {
	Workflow string `json:"workflow,omitempty"` // the name of the graph
	Plan     string `json:"plan,omitempty"`     // the hash of the plan
	// Inputs is a JSON object that maps the name of each input to its value, as the run's codec has encoded the value. It is nil if there are no
	// inputs. The member "#fire" is not an input. It contains the trigger that fires the run and the trigger's payload, see kahn.Fire.
	Inputs json.RawMessage   `json:"inputs,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Parent string            `json:"parent,omitempty"` // the id of the run that asked for this one
	// Key groups runs, for example by tenant. Due runs of different keys take turns, see [QueueStore]. The empty text is also a key. Priority orders
	// the due runs of a key: runs with higher priorities come first.
	Key      string `json:"key,omitempty"`
	Priority int    `json:"priority,omitempty"`
}

// Run is the stored data of a run.
type Run struct {
	ID string `json:"id"`
	Spec
	// Created is when [Admin].Create created the run. If the run began without Create, it is when the run was first acquired. Ended is when a commit
	// ended the run. Both times are by the clock of the store, which keeps them at least to the millisecond.
	Created  time.Time         `json:"created,omitzero"`
	Ended    time.Time         `json:"ended,omitzero"`
	Record   json.RawMessage   `json:"record,omitempty"` // nil until the first commit
	Status   machine.RunStatus `json:"status"`           // RunPending until the first commit
	Sequence uint64            `json:"sequence"`         // the sequence of the last commit, or 0
	// Compensation is the state of the run's compensations, which undo what its nodes have done: see kahn.Run.Compensation.
	Compensation machine.Compensation `json:"compensation,omitzero"`
	// Usage maps the name of each resource to the amount that the run's steps have used. It counts all attempts that have ended, including the attempts
	// before a redrive. It is nil if the attempts used nothing. A store keeps Usage for lists and for programs that read the run; the engine continues
	// from the amounts in the records.
	Usage  map[string]float64 `json:"usage,omitempty"`
	WakeAt time.Time          `json:"wake_at,omitzero"` // the WakeAt of the last commit, or earlier if a request waits; before the first commit, when the run may begin
	Nodes  map[string]Node    `json:"nodes"`
	// LastEvent is the id of the last stored event, 0 if none is stored.
	LastEvent uint64 `json:"last_event,omitempty"`
	// Posted is the number of the run's last posted request, and Taken the number of its last answered request, see [Inbox]. The requests with
	// numbers above Taken wait. Requests are neither exported nor inserted.
	Posted uint64 `json:"-"`
	Taken  uint64 `json:"-"`
	// Events are the events that [Admin].Insert stores with the run, from the first stored event to LastEvent. Acquire and Load return a run without
	// Events: see [EventStore].
	Events []EventRecord `json:"events,omitempty"`
}

// Node is the stored data of a node.
type Node struct {
	Columns // as in the last commit that has a record of the node; zero if there was no such commit
	State
}

// State is the part of a node that [Commit.Judge] reads and changes.
type State struct {
	Terminal  bool  `json:"terminal,omitempty"`
	Attempt   int32 `json:"attempt"`  // the last recorded attempt, or 0
	Resolved  int   `json:"resolved"` // the readiness counter
	Required  int   `json:"required"`
	Queued    bool  `json:"queued,omitempty"`    // the node is ready, and its attempt has not been recorded
	Completed bool  `json:"completed,omitempty"` // a commit has stored the end of the last recorded attempt
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

// UnmarshalText decodes a name. It returns an error that matches [machine.ErrBadValue] for any other text.
func (a *Applied) UnmarshalText(text []byte) error { return appliedNames.Parse(a, text) }

// LeaseReader is a [Store] that can read who has the lease of a run. [Memory], store/sqlite and store/postgres implement it.
type LeaseReader interface {
	// ReadLease returns the owner of the run's lease, and when the lease runs out by the clock of the store. It returns "" and the zero time if
	// the run is not leased. The error matches ErrUnknownRun if the run is not stored.
	ReadLease(ctx context.Context, run string) (owner string, until time.Time, err error)
}

// Errors of stores.
var (
	// ErrFenced rejects a write under a lease that has expired or was taken over.
	ErrFenced = errors.New("the lease is not the newest")
	// ErrLeased rejects an acquisition of a run whose lease another owner has.
	ErrLeased = errors.New("the run is leased")
	// ErrKeyFull rejects an acquisition of a run whose key has as many leased runs as it may have: see [TurnStore].
	ErrKeyFull = errors.New("the key has as many runs as it may have")
	// ErrUnknownRun rejects a request for a run that is not stored.
	ErrUnknownRun = errors.New("unknown run")
	// ErrReadinessOverflow rejects a commit that would count more resolved predecessors than a node has.
	ErrReadinessOverflow = errors.New("readiness above what is required")
	// ErrRejected is returned for data that the store can never keep: a value is too large, or has characters that the store cannot represent.
	ErrRejected = errors.New("the store rejects the data")
	// ErrUnusable is returned if the store can never answer: its schema is missing or of another version, its file is not a database, or it
	// is read-only. The engine does not repeat the call.
	ErrUnusable = errors.New("the store is unusable")
)

// ValueChecker is a [Store] that can say before a commit whether it would reject a value. The engine calls CheckValue with the output of a node
// before the node completes. If CheckValue rejects the output, the node fails with [machine.CauseStoreRejected], and the run continues. Some stores
// cannot judge a value before the commit. If they cannot keep the value, Commit returns [ErrRejected]. The engine then commits the outputs one by
// one to find the rejected one, and leaves the run. The node of the rejected output fails when the run continues. If no output is to blame, the run
// fails.
type ValueChecker interface {
	// CheckValue returns an error that matches [ErrRejected] if no record can contain the value, for example because the value is too large. A
	// [Codec] has encoded the value. If CheckValue returns any other error, the engine ignores the error and commits the value; Commit then shows
	// whether the store accepts the value. CheckValue is called from several goroutines, and must not keep or change the value.
	CheckValue(value json.RawMessage) error
}
