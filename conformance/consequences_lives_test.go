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
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestStatusAfterStoreError: a run whose store fails ends as failed, regardless of the statuses of its nodes and the verdict of its end node.
func TestStatusAfterStoreError(t *testing.T) {
	for _, last := range []string{"B", "Z"} {
		inBubble(t, "the end of "+last+" is not written", func(t *testing.T) { statusAfterStoreError(t, last) })
	}
}

func statusAfterStoreError(t *testing.T, last string) {
	broken := &brokenStore{Store: new(store.Memory), commit: func(c store.Commit) error {
		if endsOf(c, last) {
			return kahn.ErrFenced
		}
		return nil
	}}
	end := kahn.Node{ID: "Z", Kind: kahn.KindEnd, Do: func(context.Context, *kahn.Step) (any, error) {
		if last == "B" {
			t.Error("the end node was started")
		}
		return kahn.EndVerdict{Status: kahn.RunCompleted}, nil
	}}
	r := try(t, graph(
		kahn.Node{ID: "A", ContinueOnFail: true, Do: always(errStep)},
		kahn.Node{ID: "B", After: []string{"A"}, Do: takes(ms)},
		kahn.Node{ID: "H", In: []kahn.Edge{{From: "B", On: kahn.OnFailure}}, Do: neverStep(t)}, end,
	), nil, kahn.Durable(broken), kahn.RunID("one"))
	if r.Status != kahn.RunFailed || r.Degraded || r.Cause.Kind != kahn.CauseStoreError || !errors.Is(r.err, kahn.ErrStore) {
		t.Errorf("%v, degraded %v, %v, %v", r.Status, r.Degraded, r.Cause, r.err)
	}
	if z := r.node("Z"); z.Status == kahn.Completed {
		t.Errorf("the end node is %v", z.Status)
	}
}

// TestNodesAfterStoreError: the store refuses a transaction with the ends of nodes. A node whose attempt had returned fails with the store's
// error, regardless of the attempt's result. A node that ended in this transaction without an attempt, or had not ended, is aborted. Earlier writes
// remain.
func TestNodesAfterStoreError(t *testing.T) {
	for name, returns := range map[string]kahn.StepFunc{
		"completed": always(nil),
		"failed":    always(errStep),
		"skipped":   always(kahn.Skip("no")),
	} {
		for _, limit := range []int{0, 1} {
			inBubble(t, fmt.Sprint(name, ", limit ", limit), func(t *testing.T) {
				broken := &brokenStore{Store: new(store.Memory), commit: func(c store.Commit) error {
					if endsOf(c, "A") {
						return kahn.ErrFenced
					}
					return nil
				}}
				r := try(t, graph(
					after("first"),
					kahn.Node{ID: "A", After: []string{"first"}, Routes: true, Do: func(ctx context.Context, s *kahn.Step) (any, error) {
						_, err := returns(ctx, s)
						return "left", err
					}},
					kahn.Node{ID: "L", In: []kahn.Edge{{From: "A", Label: "left"}}, Do: neverStep(t)},
					kahn.Node{ID: "R", In: []kahn.Edge{{From: "A", Label: "right"}}, Do: neverStep(t)}, // ends in the same transaction as A
					kahn.Node{ID: "S", After: []string{"A"}, When: func(kahn.View) (bool, error) { return false, nil }, Do: neverStep(t)},
				), takes(ms), kahn.Durable(broken), kahn.RunID("one"), kahn.Limit(limit))
				require.Equal(t, kahn.RunFailed, r.Status)
				require.Equal(t, kahn.Completed, r.node("first").Status)
				a := r.node("A")
				require.Equal(t, kahn.Failed, a.Status)
				require.Equal(t, kahn.CauseStoreError, a.Cause.Kind)
				require.ErrorIs(t, a.Err, kahn.ErrFenced)
				require.NotErrorIs(t, a.Err, errStep)
				require.Equal(t, 1, a.Attempts)
				for _, id := range []string{"L", "R", "S"} {
					n := r.node(id)
					require.Equal(t, kahn.Aborted, n.Status, id)
					require.Equal(t, kahn.CauseStoreError, n.Cause.Kind, id)
					require.Zero(t, n.Attempts, id)
				}
			})
		}
	}
}

// TestWavesAfterStoreError: the store fails to write the end of a wave's last node, so the wave has not ended when the run fails. The end of
// this wave, and of each later wave, is still announced once.
func TestWavesAfterStoreError(t *testing.T) {
	for _, last := range []string{"A", "B", "Z", ""} {
		inBubble(t, fmt.Sprintf("the end of %q is not written", last), func(t *testing.T) {
			broken := &brokenStore{Store: new(store.Memory), commit: func(c store.Commit) error {
				if endsOf(c, last) {
					return kahn.ErrFenced
				}
				return nil
			}}
			for _, end := range []kahn.Node{{ID: "Z", Kind: kahn.KindEnd}, after("Z", "B")} {
				r := try(t, graph(after("A"), after("B", "A"), end), takes(ms), kahn.Durable(broken), kahn.RunID("ending by "+end.Kind), kahn.Waves)
				if want := map[bool]kahn.RunStatus{false: kahn.RunFailed, true: kahn.RunCompleted}[last == ""]; r.Status != want || len(r.Warnings) > 0 {
					t.Errorf("it is %v, %v", r.Status, r.Warnings)
				}
				var told []string
				for _, e := range r.events {
					if w, ok := e.Payload.(event.Wave); ok {
						told = append(told, fmt.Sprint(w.Tier))
					}
				}
				if got := strings.Join(told, " "); got != "0 0 1 1 2 2" {
					t.Errorf("waves %s\n%s", got, eventText(r.events))
				}
			}
		})
	}
}

// TestChosenBranchAfterResume: a branch was chosen before the run was left. The next life takes this branch.
func TestChosenBranchAfterResume(t *testing.T) {
	for _, label := range []string{"left", "right"} {
		inBubble(t, label, func(t *testing.T) {
			g := graph(
				kahn.Node{ID: "C", Routes: true, Do: func(context.Context, *kahn.Step) (any, error) { return label, nil }},
				gate("G"),
				kahn.Node{ID: "L", In: []kahn.Edge{{From: "C", Label: "left"}, {From: "G", DataOnly: true}}},
				kahn.Node{ID: "R", In: []kahn.Edge{{From: "C", Label: "right"}, {From: "G", DataOnly: true}}},
			)
			r := pause(t, g, takes(0)).resume(g, takes(0), map[string]any{"G": "yes"})
			r.expect(map[string]string{"left": "C:ok G:ok L:ok R:S/br", "right": "C:ok G:ok L:S/br R:ok"}[label], "completed")
		})
	}
}

// TestTimesAfterResume: events that are logged when a run continues have the time at which the run continues.
func TestTimesAfterResume(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		g := graph(gate("G"), after("B", "G"), after("C", "B"))
		first := pause(t, g, neverStep(t))
		time.Sleep(time.Hour)
		begin := time.Now()
		r := first.resume(g, takes(5*ms), map[string]any{"G": "yes"})
		r.expect("G:ok B:ok C:ok", "completed")
		for _, e := range r.events[len(first.events):] {
			want := begin
			switch {
			case e.Type == event.NodeCompleted && e.Node == "B", e.Node == "C" && e.Type != event.NodeCompleted:
				want = begin.Add(5 * ms)
			case e.Node == "C" || e.Type == event.RunCompleted:
				want = begin.Add(10 * ms)
			}
			if !e.Time.Equal(want) {
				t.Errorf("%v is %v after the run went on, expected %v", e, e.Time.Sub(begin), want.Sub(begin))
			}
		}
	})
}

// TestLeftAtEveryDepth: a run is left while it has ready nodes. The run suspends together with its nested runs at any depth, and the next life
// performs the remaining nodes.
func TestLeftAtEveryDepth(t *testing.T) {
	for _, limit := range []int{0, 1} {
		inBubble(t, fmt.Sprint("limit ", limit), func(t *testing.T) {
			g := graph(subgraph("S", graph(subgraph("T", graph(subgraph("U", graph(after("x"), after("y", "x"))))))), after("Z", "S"))
			var c paths
			run, err := kahn.Start(t.Context(), g, c.count(takes(10*ms)), kahn.Limit(limit))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * ms)
			run.Leave()
			res, err := run.Wait()
			if err != nil || res.Status != kahn.RunSuspended || res.Duration != 10*ms {
				t.Fatalf("%v after %v, %v", res.Status, res.Duration, err)
			}
			c.once(t, "S/T/U/x")
			for _, path := range []string{"S", "S/T", "S/T/U"} {
				if n := statusAt(res, path); n.Status != kahn.Suspended {
					t.Errorf("%s is %v", path, n.Status)
				}
			}
			c.n = nil
			res, err = kahn.Execute(t.Context(), g, c.count(takes(10*ms)), kahn.Resume(reload(t, res.Snapshot())))
			if err != nil || res.Status != kahn.RunCompleted {
				t.Errorf("%v, %v", res.Status, err)
			}
			c.once(t, "S/T/U/y", "Z")
		})
	}
}
