package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// unusable is a store that fails permanently once dead is set.
type unusable struct {
	store.Store
	dead atomic.Bool
}

func (s *unusable) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if s.dead.Load() {
		return 0, fmt.Errorf("%w: it has died", store.ErrUnusable)
	}
	return s.Store.Commit(ctx, l, c)
}

// Signal acknowledges a repeated signal only if its answer is stored.
func TestSignalAgainThatIsNotStored(t *testing.T) {
	t.Parallel()
	for range size(30, 10, 300) {
		g, db := graph(gate("G")), &unusable{Store: new(store.Memory)}
		run, err := kahn.Start(t.Context(), g, nothing, kahn.Durable(db), kahn.RunID("r"))
		require.NoError(t, err)
		_, err = run.WaitFor(t.Context(), "G", kahn.Suspended)
		require.NoError(t, err)
		db.dead.Store(true)
		d := kahn.Decision{ID: "1", Value: "yes"}
		require.ErrorIs(t, run.Signal(context.Background(), "G", d), kahn.ErrStore)
		require.ErrorIs(t, run.Signal(context.Background(), "G", d), kahn.ErrStore)
		_, _ = run.Wait()
		require.ErrorIs(t, run.Signal(context.Background(), "G", d), kahn.ErrStore)
		require.ErrorIs(t, run.Signal(context.Background(), "G", kahn.Decision{ID: "1", Value: "no"}), kahn.ErrStore, "nobody knows that it contradicts")

		res, err := kahn.Execute(t.Context(), g, nothing, kahn.Durable(db.Store), kahn.RunID("r"))
		require.NoError(t, err)
		require.Equal(t, kahn.RunSuspended, res.Status)
	}
}

// A run that starts or resumes with an answer and cannot store it does not acknowledge the answer either.
func TestEarlySignalThatIsNotStored(t *testing.T) {
	t.Parallel()
	d := kahn.Decision{ID: "1", Value: "yes"}
	fresh := &unusable{Store: new(store.Memory)}
	fresh.dead.Store(true)
	began, err := kahn.Start(t.Context(), graph(gate("G")), nothing, kahn.Durable(fresh), kahn.RunID("r"), kahn.EarlySignals(map[string]any{"G": d}))
	require.NoError(t, err)
	_, _ = began.Wait()
	require.ErrorIs(t, began.Signal(context.Background(), "G", d), kahn.ErrStore)

	g, db := graph(gate("G"), gate("H")), &unusable{Store: new(store.Memory)}
	_, err = kahn.Execute(t.Context(), g, nothing, kahn.Durable(db), kahn.RunID("r"))
	require.NoError(t, err)
	db.dead.Store(true)
	run, err := kahn.Start(t.Context(), g, nothing, kahn.Durable(db), kahn.RunID("r"), kahn.EarlySignals(map[string]any{"G": d}))
	require.NoError(t, err)
	_, _ = run.Wait()
	require.ErrorIs(t, run.Signal(context.Background(), "G", d), kahn.ErrStore)
}

// If many callers send the same signal, the gate gets one answer, even if this answer ends the run.
func TestSameSignalByMany(t *testing.T) {
	t.Parallel()
	for n := range size(400, 100, 4000) {
		var opts []kahn.Option
		if n%2 == 0 {
			opts = append(opts, kahn.Durable(new(store.Memory)))
		}
		run, err := kahn.Start(t.Context(), graph(gate("G")), nothing, opts...)
		require.NoError(t, err)
		errs := make([]error, 6)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = run.Signal(context.Background(), "G", kahn.Decision{ID: "1", Value: "yes"}) })
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		res, err := run.Wait()
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
	}
}

// A signal ID that JSON cannot represent is refused, since the next life could not read it.
func TestSignalIDThatIsNoText(t *testing.T) {
	t.Parallel()
	run, err := kahn.Start(t.Context(), graph(gate("G")), nothing)
	require.NoError(t, err)
	require.ErrorIs(t, run.Signal(context.Background(), "G", kahn.Decision{ID: "\xff", Value: "yes"}), kahn.ErrBadValue)
	require.NoError(t, run.Signal(context.Background(), "G", "yes"))
	_, err = run.Wait()
	require.NoError(t, err)
}

// A node's id may equal the key under which the record of a signal is stored.
func TestSignalsBesideANodeOfTheirName(t *testing.T) {
	t.Parallel()
	g, db := graph(gate("G"), gate("#signal1"), gate("##signal1"), gate("H")), new(store.Memory)
	signals := map[string]any{"G": kahn.Decision{ID: "1", Value: "yes"}, "H": kahn.Decision{ID: "1", Value: "no"}}
	for range 2 { // the second time the signals are repetitions
		res, err := kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(db), kahn.EarlySignals(signals))
		require.NoError(t, err)
		require.Equal(t, []string{"#signal1", "##signal1"}, res.Snapshot().Waiting())
	}
	for _, more := range []map[string]any{{"#signal1": kahn.Decision{ID: "2", Value: "one"}}, {"##signal1": "two"}} {
		_, err := kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(db), kahn.EarlySignals(more))
		require.NoError(t, err)
	}
	res, err := kahn.ReadResult(t.Context(), g, db, "r")
	require.NoError(t, err)
	require.Equal(t, "G:ok #signal1:ok ##signal1:ok H:ok", kahntest.Statuses(res))
	n, _ := res.Node("#signal1")
	require.Equal(t, "one", n.Output)
}

// TestSignalIDsOfFormerRecords: a run recognizes a repeated signal whether the signal is in its own record or, as in former versions, in the
// run's record. This also holds after a redrive. A redrive forgets the signals of nodes that run again.
func TestSignalIDsOfFormerRecords(t *testing.T) {
	t.Parallel()
	g := graph(gate("G"), gate("H"), gate("I"))
	of := func(id string, value any) kahn.Decision { return kahn.Decision{ID: id, Value: value} }
	life := func(t *testing.T, db store.Store, signals map[string]any) *store.Run {
		t.Helper()
		_, err := kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(db), kahn.EarlySignals(signals))
		require.NoError(t, err)
		stored, err := db.Load(t.Context(), "r")
		require.NoError(t, err)
		return stored
	}
	both := map[string]any{"G": of("1", "yes"), "H": of("2", "no")}
	stored := life(t, new(store.Memory), both)

	// Rewrite the record in the form of a former version.
	var header map[string]any
	require.NoError(t, json.Unmarshal(stored.Record, &header))
	require.NotContains(t, header, "answered")
	require.EqualValues(t, 2, header["version"], "older readers do not know the records of signals")
	header["version"] = 1
	var list []any
	for _, key := range []string{"#signal1", "#signal2"} {
		var record map[string]any
		require.NoError(t, json.Unmarshal(stored.Nodes[key].Record, &record))
		list = append(list, record["taken"])
		delete(stored.Nodes, key)
	}
	header["answered"] = list
	var err error
	stored.Record, err = json.Marshal(header)
	require.NoError(t, err)

	db := storeWith(t, *stored)
	for _, more := range []map[string]any{both, {"I": of("1", "late")}, {"I": of("1", "late")}} {
		stored = life(t, db, more)
		_, err := kahn.Start(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(db), kahn.EarlySignals(map[string]any{"G": of("1", "another")}))
		if stored.Status == kahn.RunSuspended {
			require.ErrorIs(t, err, kahn.ErrSignalConflict)
		} else {
			require.ErrorIs(t, err, kahn.ErrFinished)
			break
		}
	}
	require.Equal(t, kahn.RunCompleted, stored.Status)
	require.Len(t, stored.Nodes, 6, "three gates, three signals")

	_, err = kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(db), kahn.Redrive(nil, []string{"G"}))
	require.NoError(t, err)
	run, err := kahn.Start(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(db))
	require.NoError(t, err)
	require.NoError(t, run.Signal(context.Background(), "H", of("2", "no")))
	require.ErrorIs(t, run.Signal(context.Background(), "H", of("2", "yes")), kahn.ErrSignalConflict)
	require.NoError(t, run.Signal(context.Background(), "G", of("1", "another")))
	_, err = run.Wait()
	require.NoError(t, err)
}

// If a nested run has not reached a gate, an early answer for the gate is stored at once, even if nothing else happens in the run.
func TestEarlySignalInsideIsStoredAtOnce(t *testing.T) {
	for limit := 1; limit <= 2; limit++ {
		inBubble(t, fmt.Sprintf("limit %d", limit), func(t *testing.T) {
			begun := time.Now()
			g := graph(subgraph("S", graph(kahn.Node{ID: "x", Do: takes(time.Minute)}, gate("g", "x"))))
			run, err := kahn.Start(t.Context(), g, nothing, kahn.Durable(new(store.Memory)), kahn.RunID("r"), kahn.Limit(limit))
			require.NoError(t, err)
			time.Sleep(time.Second)
			require.NoError(t, run.Signal(t.Context(), "S/g", true))
			require.Equal(t, time.Second, time.Since(begun))
			_, err = run.Wait()
			require.NoError(t, err)
		})
	}
}
