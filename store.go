package kahn

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
)

// MemoryStore is a [store.Store] in memory, for tests and for runs that need to survive no more than their Run. The zero value is
// empty and ready for use.
type MemoryStore = store.Memory

// Errors of stores. All but ErrStore are those of package store.
var (
	// ErrFenced rejects a write under a lease that has expired or was taken over.
	ErrFenced = store.ErrFenced
	// ErrLeased rejects an acquisition of a run that another owner holds.
	ErrLeased = store.ErrLeased
	// ErrUnknownRun rejects a request for a run that is not stored.
	ErrUnknownRun = store.ErrUnknownRun
	// ErrRejected rejects what the store cannot hold, whatever time passes: a value that is too large, or that has characters
	// which the store has no form for.
	ErrRejected = store.ErrRejected
	// ErrUnusable tells that the store cannot answer, whatever time passes: it has no schema or that of another version, its
	// file is no database, or it may only be read. The engine does not repeat the call.
	ErrUnusable = store.ErrUnusable
	// ErrStore is matched by the error of a run that was left because its store did not answer, or that its store has failed.
	ErrStore = errors.New("store")
)

// Durable makes the run durable. If the store has a run of this id, see [RunID], that has not ended, the run goes on from
// there, as [Resume] does from a snapshot; one that has ended is an error that matches [ErrFinished], see [ReadResult]. The host's signals for
// nodes that wait are those of the option [EarlySignals].
//
// Each attempt is recorded before its step is called, and the consequences of its end become visible, to readers of events
// and to the steps of other nodes, when its transaction has been committed. What has changed while a transaction was being
// written is in the next one: the end of a step and the starts of the nodes that it made ready are one, and the ends and starts
// of many nodes are, too.
//
// A write that the store does not answer is repeated until the lease runs out, see [LeaseTime]; only the first write of a life is not,
// and none that was answered with [ErrUnusable]. Then the run is left, as by [Run.Leave] but with an error that matches [ErrStore]:
// uncommitted changes are not published and did not happen, nothing is started any more, not even cleanup nodes and the end node,
// and the Result tells what the store has. Whoever starts the run again goes on from there. If the store has answered that the run
// belongs to another owner, or that the write contradicts what it has, the run fails with [CauseStoreError]. If it has answered with
// [ErrRejected] because of the output of a step, the run is left, too, and when it is started again the node of that step fails with
// [CauseStoreRejected], once and for all; because of anything else, the run fails.
//
// The nodes inside of composites are stored one by one as well, under their paths, with "#try2" after the composite for its
// second attempt and so on: "S/x", "M[2]", "L#3/x", "S#try2/x"; "L#3" has the output that a loop
// with Collect has from its third iteration. A composite that was running goes on in the same attempt, so
// a crash repeats only attempts that were under way. An attempt that a crash cut short keeps its number, and does not count against
// [Retry].MaxAttempts; [MaxCrashes] bounds how often that happens to a node in a row. Records of former attempts and iterations stay in the store.
//
// Values are encoded as under [Encoding], whose default is nil [Types].
func Durable(s store.Store) Option {
	return optionFunc(func(c *config) error {
		if s == nil {
			return fmt.Errorf("%w: Durable(nil)", ErrBadOption)
		}
		c.store, c.checkValues = s, true
		return nil
	})
}

// EarlySignals answers nodes that wait when the run begins: those of a run that goes on from a store, or gates that a new run, or the nodes
// of a redrive that run again, have yet to reach. It replaces the signals of [ResumeFrom]; errors are those of [Resume].
func EarlySignals(signals map[string]any) Option {
	return optionFunc(func(c *config) error { c.signals = signals; return nil })
}

// leastRetry and mostRetry bound the pause after a failure of the store. It doubles with each failure in a row.
const (
	leastRetry = time.Second
	mostRetry  = time.Minute
)

// retryPause is the pause after a number of failures in a row.
func retryPause(failures int) time.Duration {
	return min(leastRetry<<min(failures-1, 10), mostRetry)
}
