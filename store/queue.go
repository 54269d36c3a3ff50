package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

// QueueStore is an [Admin] over which processes share runs. Each process announces the queues that it serves, and asks for due runs in them.
// [Memory], store/sqlite and store/postgres implement it; other stores need not. kahn.Runner.Serve needs it.
//
// A leased run is not due. An unended run is due if its WakeAt has passed, if its status is RunRunning, or if its status is RunPending and it has no
// WakeAt. A run that has ended is due if a redrive waits for it, see [Inbox]. The store's clock decides when a time has passed.
type QueueStore interface {
	Admin
	// Due returns due runs of the given queues, in rounds: the first run of each key, then the second run of each key, and so on. The runs of one key
	// are sorted by priority, highest first, then by the time at which they became due, then by id. In each round the keys are sorted by their latest
	// turns, see [TurnStore]: the key with the oldest latest turn comes first. Keys that have had no turn come before all others; the runs of these
	// keys are sorted like the runs of one key. Runs have the fields that List returns. If many keys have due runs, a page may have fewer runs than
	// q.Limit although more runs are due. Then Next is zero.
	Due(ctx context.Context, q DueQuery) (DuePage, error)
	// Announce stores that a process performs the runs of some queues until a.TTL has passed on the clock of the store. It replaces the
	// former announcement of the process. The error matches [ErrOwnerInUse] if another process has announced the same Owner, and this announcement
	// is still valid for more than half of a.TTL. It matches [ErrNewerSchema] if the schema is newer than this program. In both cases nothing changes.
	Announce(ctx context.Context, a Announcement) error
	// Queues returns each queue that has an unended run, or a run for which a redrive waits. The queues are sorted by workflow and plan. A run
	// that Acquire has made is in no queue until its first commit.
	Queues(ctx context.Context) ([]QueueState, error)
}

// DueNotifier is a [QueueStore] whose WatchRequests, see [Inbox], also reports runs that other processes create, and due runs that other
// processes stop performing. store/postgres implements it; other stores need not.
type DueNotifier interface {
	QueueStore
	// NotifiesDue reports whether WatchRequests also reports runs that other processes create or stop performing. If so, a process needs to ask for
	// due runs only now and then.
	NotifiesDue() bool
}

// TurnStore is a [QueueStore] that records the turns of keys, and counts the leased runs of each key. [Memory], store/sqlite and store/postgres
// implement it; with any other store keys take turns only within each page of Due, and the number of leased runs of a key cannot be limited.
type TurnStore interface {
	QueueStore
	// AcquireTurn acquires a stored run with the key t.Key as Acquire does, and records this acquisition as the latest turn of the key. The error
	// matches [ErrKeyFull] if t.Most is above zero and at least t.Most other unended runs of the key are leased. It matches [ErrUnknownRun] if the
	// run has another key or is not stored. If two calls are concurrent, the second one sees the lease of the first.
	AcquireTurn(ctx context.Context, run, owner string, ttl time.Duration, t Turn) (Lease, *Run, error)
	// LeasedKeys returns for each key how many of its unended runs are leased. The key "" is left out.
	LeasedKeys(ctx context.Context) (map[string]int, error)
}

// Turn says for which key AcquireTurn acquires a run, and how many runs of this key may be leased.
type Turn struct {
	Key  string
	Most int // how many runs of the key may be leased at once; 0 means any number
}

// KeyFull returns the error that refuses a run because t.Most other runs of its key are leased. KeyFull is for implementations of [TurnStore].
func KeyFull(t Turn) error {
	return fmt.Errorf("%w: key %s, at most %d runs", ErrKeyFull, foreign.Quote(t.Key), t.Most)
}

// ErrNewerSchema is returned by Announce if a newer program has upgraded the schema since this program opened the store. The process may finish
// the runs that it has leased, but acquires no more runs.
var ErrNewerSchema = errors.New("the schema of the store is newer than this program")

// ErrOwnerInUse is returned if another living process, or another Serve of this process, already uses the name of the owner for its leases.
// An error of store/sqlite's Acquire that matches ErrOwnerInUse also matches [ErrLeased].
var ErrOwnerInUse = errors.New("another process, or another Serve of this one, has an owner of the same name")

// OwnerInUse returns the error that refuses an owner because another process uses its name. OwnerInUse is for implementations of [Store] and
// [QueueStore].
func OwnerInUse(owner string) error {
	return fmt.Errorf("%w: %s: give each of them an owner of its own", ErrOwnerInUse, foreign.Quote(owner))
}

// Queue identifies a version of a workflow. Only a process that has this version can perform the runs of the queue.
type Queue struct {
	Workflow string // the name of the graph
	Plan     string // the hash of the plan; "" for runs that were created without one
}

// Compare orders queues by workflow and plan.
func (q Queue) Compare(o Queue) int {
	return cmp.Or(strings.Compare(q.Workflow, o.Workflow), strings.Compare(q.Plan, o.Plan))
}

// Queue returns the queue that the run is in.
func (s *Spec) Queue() Queue { return Queue{s.Workflow, s.Plan} }

// DueQuery asks for runs that are due.
type DueQuery struct {
	Queues []Queue  // if there are none, no run matches
	Except []string // the ids of runs that are left out
	Full   []string // the keys whose runs are left out
	Limit  int      // how many runs at most; 0 means DefaultPage
}

// Check completes the query: it sets Limit, sorts Queues and removes duplicates. The error matches [machine.ErrBadValue] if the query makes no sense.
// Check is for implementations of [QueueStore].
func (q *DueQuery) Check() (err error) {
	q.Limit, err = limit(q.Limit)
	q.Queues = uniqueQueues(q.Queues)
	return err
}

func uniqueQueues(list []Queue) []Queue {
	list = slices.Clone(list)
	slices.SortFunc(list, Queue.Compare)
	return slices.Compact(list)
}

// DuePage is the answer to a DueQuery.
type DuePage struct {
	Runs []Run
	// Next is the time until the next run that is not in Runs becomes due, as far as the store knows. It is zero if such a run is due already, and
	// negative if no such run becomes due by itself. A leased run counts as due when its lease runs out.
	Next time.Duration
	// Keyed is set if one of the queues has a run with a key. The caller then acquires runs with AcquireTurn if the store is a [TurnStore].
	Keyed bool
}

// DueRun is a run that is due, or will be. It is for implementations of [QueueStore].
type DueRun struct {
	Run  Run
	At   int64         // when the run is due, in the unit of the store
	Wait time.Duration // the time until the run is due; zero or less if it is due now
	Turn int64         // a number that grows with each turn of the run's key; 0 if the key has had no turn
}

// Fill fills the page with runs from a list, in the order of Due. The page has at most `most` runs. Fill sorts the list. An `each` of 0 means
// that the list is complete. Otherwise the list has at most each+1 unended runs of each key and priority: the runs that become due first.
// The page then has at most `each` runs of a key. Fill is for implementations of [QueueStore].
func (p *DuePage) Fill(list []DueRun, most, each int) {
	slices.SortFunc(list, func(a, b DueRun) int {
		if a.Wait > 0 || b.Wait > 0 { // runs that are not due yet come last
			return cmp.Or(cmp.Compare(max(a.Wait, 0), max(b.Wait, 0)), strings.Compare(a.Run.ID, b.Run.ID))
		}
		return cmp.Or(cmp.Compare(b.Run.Priority, a.Run.Priority), cmp.Compare(a.At, b.At), strings.Compare(a.Run.ID, b.Run.ID))
	})
	due := len(list)
	for due > 0 && list[due-1].Wait > 0 {
		due--
	}
	p.Next = Never
	if due < len(list) {
		p.Next = list[due].Wait
	}
	list, cut := inTurns(list[:due], each)
	if len(list) > most {
		list, cut = list[:most], true
	}
	for i := range list {
		p.Runs, p.Keyed = append(p.Runs, list[i].Run), p.Keyed || list[i].Run.Key != ""
	}
	if cut {
		p.Next = 0
	}
}

// inTurns reorders due runs so that their keys take turns, see Due. The list must be sorted by priority and time. Unless `each` is 0, inTurns keeps
// only the first `each` runs of each key, since runs that are missing in the list may come before the later runs. The result "cut" says whether
// inTurns has left out a run.
func inTurns(list []DueRun, each int) (_ []DueRun, cut bool) {
	ranks, places := map[string]int{}, make([]int, 0, len(list))
	kept := list[:0]
	for _, r := range list {
		rank := ranks[r.Run.Key]
		ranks[r.Run.Key]++
		if each > 0 && rank >= each {
			cut = true
			continue
		}
		kept, places = append(kept, r), append(places, rank)
	}
	if len(ranks) < 2 {
		return kept, cut
	}
	order := make([]int, len(kept))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(places[a], places[b]), cmp.Compare(kept[a].Turn, kept[b].Turn))
	})
	sorted := make([]DueRun, len(kept))
	for i, at := range order {
		sorted[i] = kept[at]
	}
	return sorted, cut
}

// Never is the Next of a DuePage if no further run becomes due by itself.
const Never time.Duration = -1

// Announcement lists the queues that a process serves.
type Announcement struct {
	Process string        // identifies the process; it is unique
	Owner   string        // the owner of the process's leases if its name stays the same over restarts; else ""
	Queues  []Queue       // if empty, the process serves no queues from now on
	TTL     time.Duration // how long the announcement is valid; a process that does not repeat it in time counts as dead
}

// Check completes the announcement: it sorts Queues and removes duplicates. The error matches [machine.ErrBadValue] if the announcement makes no
// sense. Check is for implementations of [QueueStore].
func (a *Announcement) Check() error {
	switch {
	case a.Process == "":
		return fmt.Errorf("%w: the Process of the Announcement is empty", machine.ErrBadValue)
	case a.TTL <= 0 && len(a.Queues) > 0:
		return fmt.Errorf("%w: the TTL of the Announcement, %v, must be longer than 0", machine.ErrBadValue, a.TTL)
	}
	for _, q := range a.Queues {
		if !utf8.ValidString(q.Workflow) || !utf8.ValidString(q.Plan) {
			return fmt.Errorf("%w: Announcement: the queue %s, %s is not UTF-8", machine.ErrBadValue, foreign.Quote(q.Workflow), foreign.Quote(q.Plan))
		}
	}
	a.Queues = uniqueQueues(a.Queues)
	return nil
}

// QueueState describes the runs of a queue that have not ended or have a waiting redrive: how many they are, when they are due, and whether
// a process performs them.
type QueueState struct {
	Queue
	Runs int // how many runs of the queue have not ended, or have a waiting redrive
	// Due is the earliest time at which a run of the queue became due. If no run is due, Due is the time at which the next run becomes due, or zero
	// if all runs wait for an answer.
	Due time.Time
	// Live is set if a living process has announced that it serves the queue.
	Live bool
	// Served is the time at which the last announcement for the queue expires or expired. It is zero if no process has announced that it serves
	// the queue.
	Served time.Time
}

// UnclaimableStore is a [QueueStore] that finds the queues that no living process serves. store/sqlite and store/postgres implement it; other stores
// need not. With any other store [Unclaimable] lists all queues, so its cost grows with the number of all unended runs.
type UnclaimableStore interface {
	QueueStore
	// Unclaimable returns what the method Queues returns, without the queues that are Live.
	Unclaimable(ctx context.Context) ([]QueueState, error)
}

// Unclaimable returns the queues that no living process serves, for example because no process has their version of the workflow any more.
// [QueueState].Served says when the last announcement for a queue expired. [Admin].List with the Workflow and the Plan of a queue returns its runs,
// including the runs that have ended.
func Unclaimable(ctx context.Context, s QueueStore) ([]QueueState, error) {
	if own, ok := s.(UnclaimableStore); ok {
		return own.Unclaimable(ctx)
	}
	list, err := s.Queues(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(q QueueState) bool { return q.Live }), nil
}
