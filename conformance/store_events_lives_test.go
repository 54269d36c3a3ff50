package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestStoredEventsOfCrashes is TestEventsOfCrashes for runs whose events are stored. The process dies before each write, or before the write is
// acknowledged. Readers in that process have seen only stored events. After the next life the stored log is one stream.
func TestStoredEventsOfCrashes(t *testing.T) {
	t.Parallel()
	graphs, crashes := size(5, 1, 250), 0
	for seed := range seeds(t, graphs) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 12))
			c := newCutter(7000+seed, int(seed%2))
			c.slow = time.Duration(r.IntN(3)) * ms / 2
			crashes += c.crashWithStoredEvents(t, fmt.Sprint("seed ", seed), seed%3 == 0)
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d graphs, %d crashes", graphs, crashes)
}

func (c *cutter) crashWithStoredEvents(t *testing.T, name string, applied bool) (crashes int) {
	c.more = []kahn.Option{kahn.RunID("r")}
	_, want := c.run(t, nil, false)
	for failing := 1; !t.Failed(); failing++ {
		writes := 0
		db := &eventStore{commit: func(_ store.Commit, apply func() error) error {
			if writes++; writes < failing {
				return apply()
			}
			if writes == failing && applied {
				return errors.Join(apply(), errDisk)
			}
			return errDisk
		}}
		c.more = []kahn.Option{kahn.Durable(db), kahn.RunID("r"), kahn.Lease("", 20*ms), kahn.StoreEvents()}
		c.run(t, nil, false)
		if writes < failing {
			break // there are no more writes
		}
		crashes++
		seen := c.events
		before, err := db.Load(t.Context(), "r")
		require.NoError(t, err)
		kept := storedPrefix(t, db, before)
		if len(seen) > len(kept) || !applied && len(seen) < len(kept) {
			t.Errorf("%s, write %d: %d events were seen, and %d are stored", name, failing, len(seen), len(kept))
		} else if err := sameEvents(kept[:len(seen)], seen); err != nil {
			t.Errorf("%s, write %d: %v", name, failing, err)
		}
		db.commit = nil
		time.Sleep(time.Minute) // the lease ends
		if before.Status.Terminal() {
			continue
		}
		_, got := c.run(t, nil, false)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s, write %d:\ngot  %v\nwant %v", name, failing, got, want)
		}
		whole := storedEvents(t, db, "r")
		if err := errors.Join(sameEvents(whole, append(kept, c.events...)), kahntest.CheckEvents(c.g, c.res, whole)); err != nil {
			t.Errorf("%s, write %d: %v\n%s", name, failing, err, eventText(whole))
		}
	}
	return crashes
}

// emitting returns a graph with one step, which emits and logs n times.
func emitting(n int, pause time.Duration) *kahn.Graph {
	return graph(kahn.Node{ID: "A", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		for i := range n {
			s.Emit(i)
			s.Log(0, fmt.Sprint("message ", i))
			time.Sleep(pause)
		}
		return nil, nil
	}})
}

// TestDeltasShareTransactions: deltas and logs in quick succession are written together, 50 ms after the first of them or with the end of their
// step. A single delta is written 50 ms after it was emitted. Readers see deltas and logs only after they are written.
func TestDeltasShareTransactions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		n            int
		pause        time.Duration
		transactions int // in addition to the start and the end of the step
	}{{1000, ms, 19}, {10, 200 * ms, 10}, {1000, 0, 0}} {
		inBubble(t, fmt.Sprintf("%d with pauses of %v", row.n, row.pause), func(t *testing.T) {
			db := new(eventStore)
			var late time.Duration
			r := try(t, emitting(row.n, row.pause), nil, kahn.Durable(db), kahn.RunID("r"), kahn.StoreEvents(), kahn.OnEvent(func(e kahn.Event) {
				late = max(late, time.Since(e.Time))
				stored, err := db.Load(t.Context(), "r")
				require.NoError(t, err)
				require.GreaterOrEqual(t, stored.LastEvent, e.ID, "it was seen before it was stored")
			}))
			require.NoError(t, r.err)
			require.LessOrEqual(t, late, 50*ms)
			require.Equal(t, row.transactions+2, len(db.commits))
			require.NoError(t, sameEvents(storedEvents(t, db, "r"), r.events))
			require.Len(t, r.events, 2*row.n+5)
		})
	}
}

// TestStoreEventsRefused: StoreEvents is refused without a store, or with a store that cannot store events, before the first write. A run whose
// events are stored does not continue over such a store, and its lease is released.
func TestStoreEventsRefused(t *testing.T) {
	t.Parallel()
	g, memory := graph(after("A"), gate("G", "A")), new(store.Memory)
	_, err := kahn.Execute(t.Context(), g, neverStep(t), kahn.StoreEvents())
	require.ErrorIs(t, err, kahn.ErrBadOption)
	require.ErrorContains(t, err, "durable")
	_, err = kahn.Execute(t.Context(), g, neverStep(t), kahn.StoreEvents(), kahn.Durable(&brokenStore{Store: memory}), kahn.RunID("r"))
	require.ErrorIs(t, err, kahn.ErrBadOption)
	require.ErrorContains(t, err, "*conformance_test.brokenStore does not implement store.EventStore")
	require.Empty(t, memory.Runs())
	_, err = kahn.Execute(t.Context(), g, takes(0), kahn.StoreEvents(), kahn.Durable(memory), kahn.RunID("r"))
	require.NoError(t, err)
	_, err = kahn.Execute(t.Context(), g, neverStep(t), kahn.Durable(&brokenStore{Store: memory}), kahn.RunID("r"))
	require.ErrorIs(t, err, kahn.ErrBadOption)
	_, _, err = memory.Acquire(t.Context(), "r", "somebody else", time.Minute)
	require.NoError(t, err)
}

// TestStoredLogOfRedrivesAndForks: a redrive appends to the log of its run, and a fork has its own log.
func TestStoredLogOfRedrivesAndForks(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		db, broken := new(store.Memory), true
		step := func(_ context.Context, s *kahn.Step) (any, error) {
			s.Emit(s.ID())
			if s.ID() == "B" && broken {
				return nil, errStep
			}
			return s.ID(), nil
		}
		g := graph(after("A"), after("B", "A"))
		opts := []kahn.Option{kahn.Durable(db), kahn.RunID("r"), kahn.StoreEvents()}
		r := try(t, g, step, opts...)
		r.expect("A:ok B:F", "failed")
		broken = false
		r = r.redriveStored(g, step, opts[:2])
		r.expect("A:ok B:ok", "completed")
		require.NoError(t, sameEvents(storedEvents(t, db, "r"), r.events))

		snapshot, err := kahn.ReadSnapshot(t.Context(), db, "r")
		require.NoError(t, err)
		rec := newRecorder()
		res, err := kahn.Execute(t.Context(), g, step, kahn.Durable(db), kahn.RunID("f"), kahn.StoreEvents(), kahn.OnEvent(rec.add), kahn.Fork(snapshot, "B"))
		require.NoError(t, err)
		forked := storedEvents(t, db, "f")
		require.NoError(t, sameEvents(forked, rec.all()))
		checkEvents(t, g, res, forked)
		require.Equal(t, uint64(1), forked[0].ID)
		require.Len(t, storedEvents(t, db, "r"), len(r.events))
	})
}

// TestEventsStoredFromALaterLifeOn: the stored log begins with the first life that has the option StoreEvents. A reader of earlier events gets a
// GapError.
func TestEventsStoredFromALaterLifeOn(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		db, g := new(store.Memory), graph(after("A"), gate("G", "A"), after("B", "G"))
		opts := []kahn.Option{kahn.Durable(db), kahn.RunID("r")}
		first := pause(t, g, takes(0), opts...)
		_, err := store.ReadEvents(t.Context(), db, "r", 0, 0)
		require.ErrorIs(t, err, event.ErrNoLog)
		second := try2(t, g, takes(0), append(slices.Clone(opts), kahn.StoreEvents(), kahn.EarlySignals(map[string]any{"G": 1}))...)
		var gap *event.GapError
		_, err = store.ReadEvents(t.Context(), db, "r", 0, 0)
		require.ErrorAs(t, err, &gap)
		require.Equal(t, event.GapError{After: 0, First: uint64(len(first.events)) + 1}, *gap)
		stored, err := store.ReadEvents(t.Context(), db, "r", gap.First-1, 0)
		require.NoError(t, err)
		require.NoError(t, sameEvents(stored, second.events))
	})
}

// TestFencedEvents: a process that has lost the lease writes no events and no deltas.
func TestFencedEvents(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		db := new(store.Memory)
		g := emitting(40, 10*ms)
		run, err := kahn.Start(t.Context(), g, nil, kahn.Durable(db), kahn.RunID("r"), kahn.StoreEvents(), kahn.Lease("", time.Minute), kahn.Lease("first", 0))
		require.NoError(t, err)
		time.Sleep(175 * ms)
		kept := storedEvents(t, db, "r")
		require.NotEmpty(t, kept)
		_, _, err = db.Acquire(t.Context(), "r", "first", time.Minute) // under the same owner name, as if a process were started twice
		require.NoError(t, err)
		res, err := run.Wait()
		require.ErrorIs(t, err, kahn.ErrFenced)
		require.Equal(t, kahn.CauseStoreError, res.Cause.Kind)
		require.NoError(t, sameEvents(storedEvents(t, db, "r"), kept))
	})
}

// TestHiddenEventsAreKept: a run with Retain(1) is left while many of its events are unwritten. The run drops the unwritten events, and
// readers still get the last written event.
func TestHiddenEventsAreKept(t *testing.T) {
	for _, more := range [][]kahn.Option{nil, {kahn.StoreEvents()}} {
		inBubble(t, fmt.Sprint(len(more), " more options"), func(t *testing.T) {
			writes := 0
			db := &eventStore{commit: func(_ store.Commit, apply func() error) error {
				if writes++; writes > 1 {
					time.Sleep(time.Second)
					return fmt.Errorf("%w: %w", kahn.ErrUnusable, errDisk)
				}
				return apply()
			}}
			g := emitting(500, ms)
			g.Add(kahn.Node{ID: "B", Do: takes(10 * ms)})
			run, err := kahn.Start(t.Context(), g, nil, append(more, kahn.Durable(db), kahn.RunID("r"), kahn.Retain(1))...)
			require.NoError(t, err)
			res, err := run.Wait()
			require.ErrorIs(t, err, kahn.ErrStore)
			require.True(t, res.Left)
			var got []kahn.Event
			_, last := run.EventRange()
			for e, err := range run.Events(t.Context(), last-1) {
				require.NoError(t, err)
				got = append(got, e)
			}
			require.Len(t, got, 1)
		})
	}
}

// EventRange names only events that Events yields without waiting: events whose transaction is not durable yet are not among them.
func TestEventRangeBeforeTheWrite(t *testing.T) {
	t.Parallel()
	inBubble(t, "a slow store", func(t *testing.T) {
		db := &eventStore{commit: func(c store.Commit, apply func() error) error {
			if endsOf(c, "A") {
				time.Sleep(time.Minute)
			}
			return apply()
		}}
		run, err := kahn.Start(t.Context(), graph(after("A"), after("B", "A")), takes(time.Second), kahn.Durable(db), kahn.RunID("r"), kahn.Retain(100))
		require.NoError(t, err)
		time.Sleep(2 * time.Second) // A has ended, and the store is writing this
		asked := time.Now()
		_, last := run.EventRange()
		require.NotZero(t, last)
		for e, err := range run.Events(t.Context(), 0) {
			require.NoError(t, err)
			if e.ID == last {
				break
			}
		}
		require.Zero(t, time.Since(asked))
		_, err = run.Wait()
		require.NoError(t, err)
	})
}

// slowOutputs is a codec that takes some time for each value.
type slowOutputs struct{ kahn.Types }

func (c slowOutputs) Encode(v any) (json.RawMessage, error) {
	time.Sleep(10 * ms)
	return c.Types.Encode(v)
}

// TestEventsOfUndoneEnds: a run loses its lease while the events of a transaction are encoded, so the ends of nodes in this transaction do not
// count. Readers have seen exactly the stored events.
func TestEventsOfUndoneEnds(t *testing.T) {
	t.Parallel()
	for moment := range 30 {
		inBubble(t, fmt.Sprint(moment), func(t *testing.T) {
			fence := time.Now().Add(time.Duration(moment)*4*ms + ms/2)
			fenced := func() error {
				if time.Now().After(fence) {
					return kahn.ErrFenced
				}
				return nil
			}
			db := &eventStore{renew: fenced, commit: func(_ store.Commit, apply func() error) error {
				if err := fenced(); err != nil {
					return err
				}
				return apply()
			}}
			inner := graph(after("x"), after("y", "x"))
			g := graph(after("A"), subgraph("S", inner, "A"), after("B", "S"), kahn.Node{ID: "end", Kind: kahn.KindEnd})
			r := try(t, g, takes(ms), kahn.Durable(db), kahn.RunID("r"), kahn.StoreEvents(), kahn.EventOutputs(100), kahn.Encoding(slowOutputs{}), kahn.Lease("", 6*ms))
			stored, err := db.Load(t.Context(), "r")
			require.NoError(t, err)
			require.NoError(t, sameEvents(storedPrefix(t, db, stored), r.events[:stored.LastEvent]))
		})
	}
}
