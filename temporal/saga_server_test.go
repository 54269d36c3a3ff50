//go:build server

package temporal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// saga makes a random graph whose nodes have compensations. If cancelled is set, the graph waits at its end until the run is cancelled.
func saga(rng *rand.Rand) (g *kahn.Graph, cancelled bool) {
	g = &kahn.Graph{Name: "saga"}
	again := kahn.Retry{MaxAttempts: 2, InitialDelay: time.Millisecond}
	var after []string
	for i := range 2 + rng.IntN(7) {
		n := kahn.Node{ID: fmt.Sprint("n", i), Retry: again}
		if rng.IntN(5) > 0 {
			n.CompensateBy, n.CompensateRetry = &kahn.CompensateBy{Kind: "undo"}, again
		}
		for j := range i {
			if rng.IntN(3) == 0 {
				n.After = append(n.After, fmt.Sprint("n", j))
			}
		}
		g.Add(n)
		after = append(after, n.ID)
	}
	if cancelled = rng.IntN(3) == 0; cancelled {
		return g.Add(kahn.Node{ID: "wait", Kind: kahn.KindGate, After: after, Join: kahn.AllDone}), true
	}
	return g.Add(kahn.Node{ID: "bad", After: after, Join: kahn.AllDone}), false
}

// effects records what the steps of a saga did, and when their effects were undone.
type effects struct {
	salt uint64
	mu   sync.Mutex
	did  map[string]bool
	undo map[string]int // when the last attempt to undo a node began, by path
	done map[string]int // when the undoing of a node ended, by path
	at   int
}

func (e *effects) step(_ context.Context, s *kahn.Step) (any, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at++
	if s.Compensating() {
		e.undo[s.Path()] = e.at
		switch fate(e.salt, "undo "+s.Path(), s.Attempt()) {
		case 0, 1:
			return nil, errors.New("busy")
		case 2:
			return nil, kahn.Permanent(errors.New("closed"))
		}
		delete(e.did, s.Path())
		e.at++
		e.done[s.Path()] = e.at
		return nil, nil
	}
	f := fate(e.salt, s.Path(), s.Attempt())
	if f == 0 {
		return nil, kahn.NoEffect(errors.New("before the effect"))
	}
	e.did[s.Path()] = true
	if f == 1 || s.ID() == "bad" {
		return nil, errors.New("after the effect")
	}
	return s.Path(), nil
}

// Runs with compensations end on a real service as in one process, with the same statuses, compensations and numbers of attempts. Each effect is
// undone or reported as not undone, and the successors of a node are undone before the node.
func TestServerCompensation(t *testing.T) {
	c := dial(t)
	n, from := seeds(t, 12, 200)
	seen := map[kahn.Compensation]int{}
	for seed := from; seed != from+n; seed++ {
		g, cancelled := saga(rand.New(rand.NewPCG(31, seed)))
		p := plan(t, g)
		home, away := &effects{salt: seed, did: map[string]bool{}, undo: map[string]int{}, done: map[string]int{}}, &effects{salt: seed, did: map[string]bool{}, undo: map[string]int{}, done: map[string]int{}}
		here, err := p.Start(t.Context(), home.step)
		require.NoError(t, err)
		w := serve(t, c, p, Options{Step: away.step, ContinueAfter: []int{0, 3}[seed%2]})
		there, err := Start(t.Context(), c, w, nil)
		require.NoError(t, err)
		if cancelled {
			require.Eventually(t, func() bool { return len(here.Waiting()) == 1 }, 10*time.Second, time.Millisecond)
			require.NoError(t, here.Cancel())
			require.Eventually(t, func() bool {
				_, waits, err := there.Waiting(t.Context())
				return err == nil && len(waits) == 1
			}, 20*time.Second, 20*time.Millisecond)
			require.NoError(t, there.Cancel(t.Context(), kahn.Request{}))
		}
		want, _ := here.Wait()
		got, err := there.Wait(t.Context())
		require.NotNil(t, got, "seed %d: %v", seed, err)
		require.Equal(t, describe(want, ""), describe(got, ""), "seed %d", seed)
		require.Equal(t, home.did, away.did, "seed %d", seed)
		for n := range got.Nodes() {
			seen[n.Compensation]++
			node, _ := p.At(n.ID)
			if away.did[n.ID] && node.CompensateBy != nil {
				require.Error(t, n.CompensationErr, "seed %d: the effect of %s is neither undone nor reported", seed, n.ID)
			}
			for _, before := range node.After {
				if away.done[n.ID] > 0 && away.undo[before] > 0 {
					require.Less(t, away.done[n.ID], away.undo[before], "seed %d: %s was undone before %s", seed, before, n.ID)
				}
			}
		}
	}
	require.Greater(t, seen[kahn.CompensationDone], int(n), "%v", seen)
	require.Positive(t, seen[kahn.CompensationFailed], "%v", seen)
}

// An operator repeats a failed compensation, in a new execution of the workflow. A reader of the run's events gets the events of both
// executions.
func TestServerRedrive(t *testing.T) {
	c := dial(t)
	r := records["saga"]
	w := serve(t, c, plan(t, r.graph(true)), Options{Step: recordedStep})
	w.Settings = r.settings
	run, err := Start(t.Context(), c, w, nil)
	require.NoError(t, err)
	res, err := run.Wait(t.Context())
	require.ErrorIs(t, err, kahn.ErrCompensation)
	log, err := run.Events(t.Context())
	require.NoError(t, err)
	before := 0
	for _, err := range log.Events(t.Context(), 0) {
		require.NoError(t, err)
		before++
	}
	_, err = run.Redrive(t.Context(), []string{"reserve"}, kahn.Request{}, kahn.RepeatCompensations)
	require.ErrorIs(t, err, kahn.ErrUnknownNode, "its compensation has not failed")
	again, err := r.redrive(t.Context(), run)
	require.NoError(t, err)
	repeated, err := again.Wait(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, kahn.ErrCompensation)
	require.Equal(t, res.ID(), repeated.ID())
	charge, _ := repeated.Node("charge")
	require.Equal(t, []any{kahn.CompensationDone, 2}, []any{charge.Compensation, charge.Undoing.Attempts})
	_, err = again.Redrive(t.Context(), nil, kahn.Request{}, kahn.RepeatCompensations)
	require.ErrorIs(t, err, kahn.ErrUnknownNode, "nothing is left to be undone")
	log, err = again.Events(t.Context())
	require.NoError(t, err)
	after, last := 0, uint64(0)
	for e, err := range log.Events(t.Context(), 0) {
		require.NoError(t, err)
		require.Equal(t, last+1, e.ID)
		last = e.ID
		after++
	}
	require.Greater(t, after, before)

	gate := serve(t, c, plan(t, r.graph(true)), Options{Step: func(ctx context.Context, s *kahn.Step) (any, error) {
		if s.Compensating() {
			return nil, nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	waits, err := Start(t.Context(), c, gate, nil)
	require.NoError(t, err)
	_, err = waits.Redrive(t.Context(), nil, kahn.Request{})
	require.ErrorIs(t, err, kahn.ErrTransition, "it has not ended")
	require.NoError(t, waits.Cancel(t.Context(), kahn.Request{}))
	_, err = waits.Wait(t.Context())
	require.Error(t, err)
}

// If an attempt succeeds after its Timeout, or ignores the end of its context for longer than CancelGrace, its effect is unknown, so the node is
// undone. The step is never called again. A compensation that succeeds too late is called again with the same idempotency key. A compensation
// that ignores the end of its context fails, but the other nodes are still undone.
func TestServerLateSaga(t *testing.T) {
	c := dial(t)
	late := func(ctx context.Context, _ chan struct{}) { <-ctx.Done() }
	deaf := func(_ context.Context, release chan struct{}) { <-release }
	for name, row := range map[string]struct {
		what      string // the call that takes too long
		how       func(ctx context.Context, release chan struct{})
		times     int
		calls     string
		undone    kahn.Compensation
		abandoned bool
	}{
		"the step, always":          {"pay", late, 2, "look, pay, pay, undo pay#1 <nil> false, undo look#1 receipt of look true", kahn.CompensationDone, false},
		"the step, once":            {"pay", late, 1, "look, pay, pay, undo pay#1 receipt of pay true, undo look#1 receipt of look true", kahn.CompensationDone, false},
		"the step, deaf":            {"pay", deaf, 2, "look, pay, undo pay#1 <nil> false, undo look#1 receipt of look true", kahn.CompensationDone, true},
		"the compensation, once":    {"undo pay", late, 1, "look, pay, undo pay#1 receipt of pay true, undo pay#2 receipt of pay true, undo look#1 receipt of look true", kahn.CompensationDone, false},
		"the compensation, always":  {"undo pay", late, 2, "look, pay, undo pay#1 receipt of pay true, undo pay#2 receipt of pay true, undo look#1 receipt of look true", kahn.CompensationFailed, false},
		"the compensation, deaf":    {"undo pay", deaf, 2, "look, pay, undo pay#1 receipt of pay true, undo look#1 receipt of look true", kahn.CompensationFailed, false},
		"the compensation, in time": {"", late, 0, "look, pay, undo pay#1 receipt of pay true, undo look#1 receipt of look true", kahn.CompensationDone, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l ledger
			release := make(chan struct{})
			keys := map[string]bool{}
			again := kahn.Retry{MaxAttempts: 2, InitialDelay: time.Millisecond, Jitter: kahn.JitterNone}
			g := new(kahn.Graph).Add(
				kahn.Node{ID: "look", Do: l.does, Compensate: l.undoes},
				kahn.Node{ID: "pay", After: []string{"look"}, Timeout: 2 * time.Second, Retry: again, CompensateTimeout: 2 * time.Second, CompensateRetry: again,
					Do: func(ctx context.Context, s *kahn.Step) (any, error) {
						receipt, err := l.does(ctx, s)
						if row.what == "pay" && s.Attempt() <= row.times {
							row.how(ctx, release)
						}
						return receipt, err
					},
					Compensate: func(ctx context.Context, s *kahn.Step) error {
						err := l.undoes(ctx, s)
						l.mu.Lock()
						keys[s.IdempotencyKey()] = true
						l.mu.Unlock()
						if row.what == "undo pay" && s.Attempt() <= row.times {
							row.how(ctx, release)
						}
						return err
					}},
				kahn.Node{ID: "ship", After: []string{"pay"}, Do: func(context.Context, *kahn.Step) (any, error) {
					return nil, kahn.NoEffect(kahn.Permanent(errors.New("no truck")))
				}})
			w := serve(t, c, plan(t, g), Options{Step: nothing, Heartbeat: 200 * time.Millisecond})
			t.Cleanup(func() { close(release) }) // before the worker stops
			w.Settings.CancelGrace = 3 * time.Second
			res, err := Execute(t.Context(), c, w, nil)
			require.Error(t, err)
			require.Equal(t, row.calls, l.String())
			l.mu.Lock()
			require.Len(t, keys, 1)
			l.mu.Unlock()
			n, _ := res.Node("pay")
			require.Equal(t, row.undone, n.Compensation)
			require.Equal(t, row.abandoned, n.Abandoned)
			require.Equal(t, row.undone == kahn.CompensationFailed, errors.Is(err, kahn.ErrCompensation))
			if row.undone == kahn.CompensationFailed {
				require.ErrorIs(t, n.CompensationErr, kahn.ErrTimeout)
			}
			look, _ := res.Node("look")
			require.Equal(t, kahn.CompensationDone, look.Compensation)
		})
	}
}
