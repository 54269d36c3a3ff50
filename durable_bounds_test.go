package kahn_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestTransactionsOfManyRoots: the store of a run with many roots fails at any of its transactions. The run then has the results that were
// stored, and the next life does not call the step of a node whose end was stored. The failing transaction may have been applied, so that only its
// acknowledgement is lost.
func TestTransactionsOfManyRoots(t *testing.T) {
	t.Parallel()
	g := fan(40)
	g.Add(after("last", "n0", "n39"))
	for i := range 6 {
		limit, applied := i/2, i%2 == 1
		synctest.Test(t, func(t *testing.T) {
			for failing := 1; ; failing++ {
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
				opts := []kahn.Option{kahn.Durable(db), kahn.RunID("r"), kahn.Lease("", 20*ms), kahn.StoreEvents(), kahn.Bounds(4, 40), kahn.Limit(limit)}
				r := try(t, g, takes(0), opts...)
				if writes < failing {
					if r.err != nil {
						t.Error(r.err)
					}
					return
				}
				before, err := db.Load(t.Context(), "r")
				require.NoError(t, err)
				for n := range r.Nodes() {
					if applied {
						break // the run does not know which writes were applied
					}
					want := before.Nodes[n.ID].Status
					if want == kahn.Running {
						want = kahn.Ready // the node is attempted again
					}
					if got := n.Status; failing > 1 && got != want && (got != kahn.Waiting || want != kahn.Idle) {
						t.Errorf("write %d: %s is %v, and stored as %v", failing, n.ID, got, want)
					}
				}
				db.commit = nil
				time.Sleep(time.Minute) // the lease expires
				if before.Status.Terminal() {
					continue // the last transaction was applied
				}
				res, err := kahn.Execute(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
					if before.Nodes[s.ID()].Terminal {
						t.Errorf("write %d: %s is called again", failing, s.ID())
					}
					return s.ID(), nil
				}, opts...)
				require.NoError(t, err)
				if err := kahntest.CheckEvents(g, res, storedEvents(t, db, "r")); err != nil {
					t.Errorf("write %d: %v", failing, err)
				}
			}
		})
	}
}

// TestTimesWhileAttemptsWait: the step of an attempt has returned, and the attempt waits for room in a transaction. Neither a timeout nor a stop
// ends the attempt, and it is not abandoned. After OverallTimeout, however, a failure is not retried.
func TestTimesWhileAttemptsWait(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		host     func(*kahn.Run) // 12 s after the start
		nodes    string
		run      string
		attempts int // of D
	}{
		{"nothing happens", func(*kahn.Run) {}, "A:ok B:ok C:ok D:F E:ok", "failed", 1},
		{"the run is cancelled", func(r *kahn.Run) { r.Cancel() }, "A:ok B:ok C:ok D:C E:ok", "cancelled", 1},
		{"the run is left", func(r *kahn.Run) { r.Leave() }, "A:ok B:ok C:ok D:F E:ok", "failed", 1},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			db := &eventStore{commit: func(_ store.Commit, apply func() error) error {
				time.Sleep(10 * time.Second)
				return apply()
			}}
			retry := kahn.Retry{MaxAttempts: 3, InitialDelay: ms}
			g := graph(kahn.Node{ID: "A"}, kahn.Node{ID: "B"}, kahn.Node{ID: "C", Timeout: 2 * time.Second},
				kahn.Node{ID: "D", Retry: retry, OverallTimeout: 15 * time.Second}, kahn.Node{ID: "E", OverallTimeout: 15 * time.Second})
			r := tryControlled(t, t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
				time.Sleep(time.Second + time.Duration(s.ID()[0]-'A')*ms) // the steps return one after the other
				if s.ID() == "D" {
					return nil, errStep
				}
				return strings.Repeat(s.ID(), 30), nil
			}, func(run *kahn.Run) {
				time.Sleep(12 * time.Second)
				row.host(run)
			}, kahn.Durable(db), kahn.RunID("one"), kahn.CancelGrace(time.Second), kahn.Bounds(100, 40), kahn.Lease("", time.Hour))
			r.expect(row.nodes, row.run)
			if d := r.node("D"); d.Attempts != row.attempts || len(r.Abandoned) > 0 {
				t.Errorf("%d attempts of D, expected %d; abandoned: %v", d.Attempts, row.attempts, r.Abandoned)
			}
			if row.run == "failed" {
				r.cause("D", kahn.CauseTimeout)
			}
			if c := r.node("C"); c.Duration > 12*time.Second {
				t.Errorf("C took %v, without the time for which it waited at most 12 s", c.Duration)
			}
		})
	}
}
