package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestJoinDurable: a caller that starts a durable run under the key of a known run joins that run, before and after its end, and does not
// acquire the lease again.
func TestJoinDurable(t *testing.T) {
	t.Parallel()
	for name, owner := range map[string][]kahn.Option{"an owner of its own": nil, "the same owner": {kahn.Lease("us", 0)}} {
		inBubble(t, name, func(t *testing.T) {
			acquired := 0
			db := &acquisitions{Store: new(store.Memory), seen: func(string, time.Duration) {
				acquired++
				time.Sleep(time.Second) // the other callers call Execute meanwhile
			}}
			opts := slices.Concat(owner, []kahn.Option{kahn.Durable(db), kahn.RunID("r"), kahn.Idempotent(new(kahn.IdempotencyStore), "k")})
			g := graph(after("A"), after("B", "A"))
			var c calls
			results := make(chan *kahn.Result)
			for range 3 {
				go func() {
					res, err := kahn.Execute(t.Context(), g, c.count(takes(time.Minute)), opts...)
					if err != nil {
						t.Error(err)
					}
					results <- res
				}()
			}
			first, second, third := <-results, <-results, <-results
			later, err := kahn.Execute(t.Context(), g, neverStep(t), opts...)
			require.NoError(t, err)
			require.Same(t, first, second)
			require.Same(t, first, third)
			require.Same(t, first, later)
			require.Equal(t, kahn.RunCompleted, first.Status)
			require.Equal(t, []int{1, 1, 1}, []int{acquired, c.of("A"), c.of("B")})
		})
	}

	inBubble(t, "the first is refused, the second runs", func(t *testing.T) {
		first := true
		db := &acquireFault{Store: new(store.Memory), fail: func() error {
			time.Sleep(time.Second)
			if first {
				first = false
				return errDisk
			}
			return nil
		}}
		opts := []kahn.Option{kahn.Durable(db), kahn.RunID("r"), kahn.Idempotent(new(kahn.IdempotencyStore), "k")}
		refused := make(chan error)
		go func() {
			_, err := kahn.Execute(t.Context(), graph(after("A")), neverStep(t), opts...)
			refused <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errHost)
		defer cancel()
		_, err := kahn.Execute(ctx, graph(after("A")), neverStep(t), opts...)
		require.Equal(t, errHost, err) // a caller that joins waits only until its own context ends
		res, err := kahn.Execute(t.Context(), graph(after("A")), takes(0), opts...)
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
		require.ErrorIs(t, <-refused, errDisk)
	})

	inBubble(t, "it goes on with the inputs of the store", func(t *testing.T) {
		db, keys := new(store.Memory), new(kahn.IdempotencyStore)
		g := graph(gate("G"), after("B", "G"))
		opts := []kahn.Option{kahn.Durable(db), kahn.RunID("r"), kahn.Idempotent(keys, "k")}
		inputs := kahn.Inputs(map[string]any{"n": 1})
		_, err := kahn.Execute(t.Context(), g, takes(0), append(opts, inputs)...)
		require.NoError(t, err)
		again := slices.Concat(opts, []kahn.Option{kahn.EarlySignals(map[string]any{"G": true})})
		res, err := kahn.Execute(t.Context(), g, takes(0), again...)
		require.NoError(t, err)
		for _, more := range [][]kahn.Option{nil, {inputs}} {
			joined, err := kahn.Execute(t.Context(), g, neverStep(t), append(again, more...)...)
			require.NoError(t, err)
			require.Same(t, res, joined)
		}
		_, err = kahn.Execute(t.Context(), g, neverStep(t), append(again, kahn.Inputs(map[string]any{"n": 2}))...)
		require.ErrorIs(t, err, kahn.ErrKeyConflict)
	})
}

// acquireFault is a store whose Acquire fails if fail returns an error.
type acquireFault struct {
	store.Store
	fail func() error
}

func (s *acquireFault) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (store.Lease, *store.Run, error) {
	if err := s.fail(); err != nil {
		return store.Lease{}, nil, err
	}
	return s.Store.Acquire(ctx, run, owner, ttl)
}

// TestDuplicateDurable: a Runner refuses a second run with the same id and does not touch the lease of the first run, even before the first run
// is registered.
func TestDuplicateDurable(t *testing.T) {
	t.Parallel()
	inBubble(t, "", func(t *testing.T) {
		db := &acquisitions{Store: new(store.Memory), seen: func(string, time.Duration) { time.Sleep(time.Second) }}
		rn := &kahn.Runner{Options: []kahn.Option{kahn.Durable(db), kahn.RunID("r"), kahn.Lease("us", 0)}}
		ended := make(chan error)
		go func() {
			_, err := rn.Execute(t.Context(), graph(after("A"), after("B", "A")), takes(time.Minute))
			ended <- err
		}()
		for range 3 {
			synctest.Wait()
			_, err := rn.Start(t.Context(), graph(after("A")), neverStep(t))
			require.ErrorIs(t, err, kahn.ErrDuplicateRun)
			time.Sleep(time.Second)
		}
		require.NoError(t, <-ended)
		_, err := rn.Start(t.Context(), graph(after("A"), after("B", "A")), neverStep(t))
		require.ErrorIs(t, err, kahn.ErrFinished) // the refused call does not reserve the id
		_, err = rn.Start(t.Context(), graph(after("A"), after("B", "A")), neverStep(t))
		require.ErrorIs(t, err, kahn.ErrFinished)
	})
}

// tardyCodec is a codec that needs some time to decode a value.
type tardyCodec struct {
	kahn.Types
	takes time.Duration
}

func (c *tardyCodec) Decode(data json.RawMessage) (any, error) {
	time.Sleep(c.takes)
	return c.Types.Decode(data)
}

// TestLeaseWhileLoading: a run keeps its lease while it loads stored values, even if a renewal fails meanwhile.
func TestLeaseWhileLoading(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]time.Duration{"": 0, "the store does not answer for 15 s": 15 * time.Second} {
		inBubble(t, name, func(t *testing.T) {
			db, codec := new(store.Memory), &tardyCodec{}
			g := graph(after("A"), gate("G", "A"), after("B", "G"))
			opts := []kahn.Option{kahn.RunID("r"), kahn.Encoding(codec)}
			pause(t, g, takes(0), append(opts, kahn.Durable(db))...)
			codec.takes = 5 * time.Minute
			now := time.Now()
			slow := &outage{Memory: db, err: errDisk, all: true, from: now.Add(time.Minute), to: now.Add(time.Minute + fails)}
			taken := make(chan error, 14)
			go func() {
				for range cap(taken) {
					time.Sleep(20 * time.Second)
					_, _, err := db.Acquire(t.Context(), "r", "another", time.Hour)
					taken <- err
				}
				close(taken)
			}()
			try2(t, g, takes(time.Minute), append(opts, kahn.Durable(slow), kahn.EarlySignals(map[string]any{"G": true}))...).expect("A:ok G:ok B:ok", "completed")
			for err := range taken {
				require.ErrorIs(t, err, kahn.ErrLeased)
			}
		})
	}
}

// TestShortLease: if the lease expires before the run has started, the run is left, and the next life continues it.
func TestShortLease(t *testing.T) {
	t.Parallel()
	db := new(store.Memory)
	g := graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": numbers(20)}, Sub: graph(after("x"), gate("G", "x"))})
	opts := []kahn.Option{kahn.Durable(db), kahn.RunID("r")}
	pause(t, g, takes(0), opts...)
	for range 5 {
		_, err := kahn.Execute(t.Context(), g, takes(0), append(opts, kahn.Lease("", time.Microsecond))...)
		require.ErrorIs(t, err, kahn.ErrStore)
	}
	signals := map[string]any{}
	for i := range 20 {
		signals[fmt.Sprintf("M[%d]/G", i)] = true
	}
	require.Equal(t, kahn.RunCompleted, try2(t, g, takes(0), append(opts, kahn.EarlySignals(signals))...).Status)
}

// releaseFault is a store whose Release first calls a function of the test.
type releaseFault struct {
	store.Memory
	release func(ctx context.Context) error
}

func (s *releaseFault) Release(ctx context.Context, _ store.Lease) error { return s.release(ctx) }

// TestReleaseFails: a lease that cannot be released expires. The run still ends, at the latest when its lease expires.
func TestReleaseFails(t *testing.T) {
	t.Parallel()
	for name, release := range map[string]func(ctx context.Context) error{
		"an error": func(context.Context) error { return errDisk },
		"a panic":  func(context.Context) error { panic("release") },
		"no answer": func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("%w: %w", errDisk, ctx.Err())
		},
		"no return": func(context.Context) error {
			runtime.Goexit()
			return nil
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			db := &releaseFault{release: release}
			r := try(t, graph(after("A")), takes(0), kahn.Durable(db), kahn.RunID("r"))
			r.expect("A:ok", "completed")
			require.NoError(t, r.err)
			require.Len(t, r.Warnings, 1)
			require.ErrorIs(t, r.Warnings[0], kahn.ErrStore)
			stored, err := db.Load(t.Context(), "r")
			require.NoError(t, err)
			require.Equal(t, kahn.RunCompleted, stored.Status)
		})
	}

	inBubble(t, "of a run that is refused", func(t *testing.T) {
		db := &releaseFault{release: func(ctx context.Context) error {
			<-ctx.Done()
			return errDisk
		}}
		begin := time.Now()
		_, err := kahn.Execute(t.Context(), graph(after("A")), neverStep(t), kahn.Durable(db), kahn.EarlySignals(map[string]any{"G": 1}))
		require.ErrorIs(t, err, kahn.ErrUnknownGate)
		require.ErrorIs(t, err, errDisk)
		require.Equal(t, 30*time.Second, time.Since(begin))
	})
}

// TestRefusedLeavesNothing: a call that is refused because of its inputs stores no run.
func TestRefusedLeavesNothing(t *testing.T) {
	t.Parallel()
	db := new(store.Memory)
	g := graph(after("A"))
	g.Inputs = []kahn.Input{{Name: "n"}}
	for _, inputs := range []map[string]any{{"n": 1, "m": 2}, {"m": 2}, {}} {
		_, err := kahn.Execute(t.Context(), g, neverStep(t), kahn.Durable(db), kahn.Inputs(inputs))
		var bad *kahn.InputError
		require.True(t, errors.As(err, &bad), "%v", err)
	}
	require.Empty(t, db.Runs())
}

// TestStoredRunIsGone: a write is not repeated if the store no longer contains the run.
func TestStoredRunIsGone(t *testing.T) {
	t.Parallel()
	inBubble(t, "", func(t *testing.T) {
		writes := 0
		db := &brokenStore{Store: new(store.Memory), commit: func(c store.Commit) error {
			if c.Sequence > 1 {
				writes++
				return kahn.ErrUnknownRun
			}
			return nil
		}}
		r := try(t, graph(after("A"), after("B", "A")), takes(0), kahn.Durable(db))
		require.Equal(t, kahn.RunFailed, r.Status)
		require.ErrorIs(t, r.err, kahn.ErrUnknownRun)
		require.Equal(t, 1, writes)
	})
}
