package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// lateStore is a store that refuses values with a certain word, but only in Commit.
type lateStore struct {
	store.Memory
	header bool // whether it also refuses records of runs
}

func (s *lateStore) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	for i := range c.Nodes {
		if n := &c.Nodes[i]; strings.Contains(string(n.Value)+string(n.Record), "huge") {
			return 0, fmt.Errorf("%w: %s is too large", kahn.ErrRejected, n.Node)
		}
	}
	if s.header && c.Run != nil && c.Sequence > 1 {
		return 0, fmt.Errorf("%w: the record of the run", kahn.ErrRejected)
	}
	return s.Memory.Commit(ctx, l, c)
}

// TestRefusedByCommit: the store refuses an output in Commit, and the run is resumed. Only the node of this output fails.
func TestRefusedByCommit(t *testing.T) {
	t.Parallel()
	says := func(v any) kahn.StepFunc { return func(context.Context, *kahn.Step) (any, error) { return v, nil } }
	fallback := func(v any) func(ctx context.Context, err error) (any, error) {
		return func(context.Context, error) (any, error) { return v, nil }
	}
	huge := says("huge")
	for name, row := range map[string]struct {
		a    kahn.Node
		path string
		want string // statuses of A, of B, which starts with A, of H, which handles A's failure, and of C, which follows A
		run  string
	}{
		"an output":                 {kahn.Node{Do: huge}, "A", "A:F B:ok H:ok C:S/br", "completed+d"},
		"of a step that is retried": {kahn.Node{Do: huge, Retry: kahn.RetryStandard()}, "A", "A:F B:ok H:ok C:S/br", "completed+d"},
		"its fallback has another":  {kahn.Node{Do: huge, Fallback: fallback("small")}, "A", "A:ok B:ok H:S/br C:ok", "completed"},
		"that of its fallback, too": {kahn.Node{Do: huge, Fallback: fallback("huge too")}, "A", "A:F B:ok H:ok C:S/br", "completed+d"},
		"that of the fallback":      {kahn.Node{Do: breaks("A"), Fallback: fallback("huge")}, "A", "A:F B:ok H:ok C:S/br", "completed+d"},
		"inside of a sub-graph":     {kahn.Node{Sub: graph(kahn.Node{ID: "x", Do: huge})}, "A/x", "A:F B:ok H:ok C:S/br", "completed+d"},
		"of an item":                {kahn.Node{Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []int{1, 2}}, Do: huge}, "A[0]", "A:F B:ok H:ok C:S/br", "completed+d"},
	} {
		inBubble(t, name, func(t *testing.T) {
			row.a.ID = "A"
			g := graph(row.a, kahn.Node{ID: "B", Do: says("b")}, kahn.Node{ID: "H", Do: says("h"), In: []kahn.Edge{{From: "A", On: kahn.OnFailure}}}, kahn.Node{ID: "C", Do: says("c"), After: []string{"A"}})
			s := new(lateStore)
			opts := []kahn.Option{kahn.Durable(s), kahn.RunID("r")}
			rec := newRecorder()
			res, err := kahn.Execute(t.Context(), g, nil, append(opts, kahn.OnEvent(rec.add))...)
			require.True(t, res.Left)
			require.ErrorIs(t, err, kahn.ErrStore)
			require.ErrorIs(t, err, kahn.ErrRejected)
			all := trial{res, t, err, rec.all()}
			for lives := 0; res.Left; lives++ {
				require.Less(t, lives, 4, "it does not end")
				next := newRecorder()
				res, err = kahn.Execute(t.Context(), g, nil, append(opts, kahn.OnEvent(next.add))...)
				all = trial{res, t, err, append(all.events, next.all()...)}
				checkEvents(t, g, res, next.all())
			}
			for i, e := range all.events {
				require.Equal(t, uint64(i+1), e.ID)
			}
			checkEvents(t, g, res, all.events)
			all.expect(row.want, row.run)
			stored, err := s.Load(t.Context(), "r")
			require.NoError(t, err)
			require.Equal(t, kahn.RunCompleted, stored.Status)
			if strings.HasPrefix(row.want, "A:F") {
				require.Equal(t, kahn.CauseStoreRejected, stored.Nodes[row.path].Cause)
				if row.path == "A" {
					require.ErrorIs(t, all.node("A").Err, kahn.ErrRejected)
					attempts := 1
					if name == "that of its fallback, too" {
						attempts = 2 // the fallback had its own attempt
					}
					require.Equal(t, attempts, all.node("A").Attempts)
				}
			}
			counted(t, s)
		})
	}

	inBubble(t, "another step fails in the same transaction", func(t *testing.T) {
		late := new(lateStore)
		s := &brokenStore{Store: late, commit: func(c store.Commit) error {
			if endsOf(c, "tick") {
				time.Sleep(time.Second) // meanwhile A and X end
			}
			return nil
		}}
		g := graph(kahn.Node{ID: "tick", Do: takes(100 * ms)}, kahn.Node{ID: "A", Do: yields(200*ms, "huge")}, kahn.Node{ID: "X", Do: fails(200 * ms)})
		res, err := kahn.Execute(t.Context(), g, nil, kahn.Durable(s), kahn.RunID("r"))
		require.True(t, res.Left)
		require.ErrorIs(t, err, kahn.ErrRejected)
		r := try2(t, g, nil, kahn.Durable(s), kahn.RunID("r"))
		r.expect("tick:ok A:F X:F", "failed")
		r.cause("A", kahn.CauseStoreRejected)
		r.cause("X", kahn.CauseStepError)
		require.Equal(t, 2, r.node("X").Attempts) // the end of the first attempt was in the transaction that was not written
		counted(t, late)
	})

	inBubble(t, "what is no output of a step fails the run", func(t *testing.T) {
		s := &lateStore{header: true}
		run, err := kahn.Start(t.Context(), graph(gate("G"), after("B")), takes(time.Second), kahn.Durable(s), kahn.RunID("r"))
		require.NoError(t, err)
		time.Sleep(100 * ms)
		err = run.Signal(context.Background(), "G", kahn.Decision{Value: 1, ID: "1"})
		require.ErrorIs(t, err, kahn.ErrRejected)
		res, err := run.Wait()
		require.False(t, res.Left)
		require.Equal(t, kahn.RunFailed, res.Status)
		require.True(t, errors.Is(err, kahn.ErrStore) && errors.Is(err, kahn.ErrRejected))
	})
}

// TestRefusedAndCrashes: the store has refused an output, and the process dies again and again during the node's Fallback. After
// MaxCrashes+1 such crashes the node fails; if MaxCrashes is negative, the Fallback is called again after any number of crashes.
func TestRefusedAndCrashes(t *testing.T) {
	t.Parallel()
	for most, crashes := range map[int]int{0: 1, 1: 2, 2: 3, -1: 7} {
		inBubble(t, fmt.Sprint(most), func(t *testing.T) {
			s, fallbacks := new(lateStore), 0
			g := graph(kahn.Node{ID: "A", Do: func(context.Context, *kahn.Step) (any, error) { return "huge", nil }, Fallback: func(ctx context.Context, _ error) (any, error) {
				fallbacks++
				return takes(time.Minute)(ctx, kahn.StepOf(ctx))
			}})
			opts := []kahn.Option{kahn.RunID("r"), kahn.Lease("us", 0), kahn.MaxCrashes(most)}
			_, err := kahn.Execute(t.Context(), g, nil, append(opts, kahn.Durable(s))...)
			require.ErrorIs(t, err, kahn.ErrRejected)
			for range crashes {
				process := &mortal{eternal: s}
				run, err := kahn.Start(t.Context(), g, nil, append(opts, kahn.Durable(process))...)
				require.NoError(t, err)
				time.Sleep(time.Second)
				process.dead.Store(true)
				run.Cancel()
				_, _ = run.Wait()
			}
			require.Equal(t, crashes, fallbacks)
			r := try2(t, g, nil, append(opts, kahn.Durable(s))...)
			if most < 0 {
				r.expect("A:ok", "completed")
				return
			}
			r.cause("A", kahn.CauseStoreRejected)
			require.Equal(t, crashes, fallbacks)
		})
	}
}
