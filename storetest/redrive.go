package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// The function `ended` does what `completed` does, and then makes a commit that stops node b and ends the run as failed. It acquires the run again,
// and returns the new lease.
func ended(ctx context.Context, s store.Store) (store.Lease, error) {
	lease, err := completed(ctx, s)
	if err != nil {
		return lease, err
	}
	got, err := s.Commit(ctx, lease, store.Commit{
		Sequence: 4, Status: machine.RunFailed, Started: []store.Attempt{{Node: "b", Attempt: 1}},
		Nodes: []store.NodeRecord{{Node: "b", Terminal: true, Columns: data("stopped")}},
	})
	if err := expect("the end", got, err, store.AppliedNow); err != nil {
		return lease, err
	}
	if err := s.Release(ctx, lease); err != nil {
		return lease, err
	}
	lease, _, err = s.Acquire(ctx, "r", "operator", ttl)
	return lease, err
}

// The function `redrive` returns a commit that redrives node b: b begins again, and the counter of c goes down by one.
func redrive() store.Commit {
	return store.Commit{
		Sequence: 5, Reopen: true, Status: machine.RunRunning, Run: record("redriven"), Reset: []string{"nobody", "b"},
		Started: []store.Attempt{{Node: "b", Attempt: 1}}, Nodes: []store.NodeRecord{{Node: "b", Columns: data("running")}},
		Readiness: []store.Readiness{{Node: "b", By: 1, Required: 1}, {Node: "c", By: -1, Required: 2}},
	}
}

// The check `redriven` expects that a redrive resets the nodes in its field Reset, and no other node.
func redriven(ctx context.Context, s store.Store) error {
	lease, err := ended(ctx, s)
	if err != nil {
		return err
	}
	got, err := s.Commit(ctx, lease, redrive())
	if err := expect("the redrive", got, err, store.AppliedNow); err != nil {
		return err
	}
	r, err := s.Load(ctx, "r")
	if err != nil {
		return err
	}
	if r.Status != machine.RunRunning || r.Sequence != 5 || string(compact(r.Record)) != string(record("redriven")) {
		return fmt.Errorf("the run is %+v", *r)
	}
	err = errors.Join(expectNode(ctx, s, "r", "a", store.Node{Columns: data("done"), State: store.State{Terminal: true, Attempt: 1, Completed: true}}),
		expectNode(ctx, s, "r", "b", store.Node{Columns: data("running"), State: store.State{Attempt: 1, Resolved: 1, Required: 1}}),
		expectNode(ctx, s, "r", "c", store.Node{State: store.State{Resolved: 0, Required: 2}}), expectNode(ctx, s, "r", "nobody", store.Node{}))
	if err != nil {
		return err
	}
	err = unchanged(ctx, s, func() error {
		got, err := s.Commit(ctx, lease, redrive())
		return expect("the redrive again", got, err, store.Duplicate)
	})
	if err != nil {
		return err
	}
	for _, c := range []store.Commit{
		{
			Sequence: 6, Status: machine.RunCompleted, Completed: []store.Attempt{{Node: "b", Attempt: 1}},
			Nodes: []store.NodeRecord{{Node: "b", Terminal: true, Columns: data("done")}},
		},
		{Sequence: 7, Reopen: true, Status: machine.RunRunning, Reset: []string{"a", "b", "c"}},
	} {
		got, err := s.Commit(ctx, lease, c)
		if err := expect(fmt.Sprint("commit ", c.Sequence), got, err, store.AppliedNow); err != nil {
			return err
		}
	}
	return errors.Join(expectNode(ctx, s, "r", "a", store.Node{}), expectNode(ctx, s, "r", "b", store.Node{}), expectNode(ctx, s, "r", "c", store.Node{}))
}

// redriveWhole: a refused redrive resets no node.
func redriveWhole(ctx context.Context, s store.Store) error {
	lease, err := ended(ctx, s)
	if err != nil {
		return err
	}
	second, gap, past, closed, overflow := redrive(), redrive(), redrive(), redrive(), redrive()
	second.Started = []store.Attempt{{Node: "b", Attempt: 2}}
	gap.Sequence, past.Sequence, closed.Reopen = 6, 3, false
	overflow.Readiness = []store.Readiness{{Node: "b", By: 2, Required: 1}}
	err = unchanged(ctx, s, func() (err error) {
		for _, row := range []struct {
			name string
			c    store.Commit
			want store.Applied
		}{
			{"a redrive whose attempt is not the first one", second, store.Conflict}, {"a redrive with a gap before it", gap, store.Conflict},
			{"a redrive of the past", past, store.Stale}, {"a redrive that does not say so", closed, store.Conflict},
		} {
			got, failed := s.Commit(ctx, lease, row.c)
			err = errors.Join(err, expect(row.name, got, failed, row.want))
		}
		_, failed := s.Commit(ctx, lease, overflow)
		return errors.Join(err, expectError("a redrive with a counter that is too high", failed, store.ErrReadinessOverflow))
	})
	if err != nil {
		return err
	}
	got, err := s.Commit(ctx, lease, redrive())
	if err := expect("the redrive", got, err, store.AppliedNow); err != nil {
		return err
	}
	return unchanged(ctx, s, func() error { // only a commit with Reopen can reset nodes
		got, err := s.Commit(ctx, lease, store.Commit{Sequence: 6, Reset: []string{"a"}})
		return expect("a reset without a redrive", got, err, store.Conflict)
	})
}

// engineRedrives redrives a run twice: first after it has failed, and then after the redriven run has completed.
func engineRedrives(ctx context.Context, s store.Store) error {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "a"}, kahn.Node{ID: "s", After: []string{"a"}, Sub: new(kahn.Graph).Add(kahn.Node{ID: "x"})}, kahn.Node{ID: "b", After: []string{"s"}})
	broken, calls := true, ""
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if calls += " " + s.Path(); broken && s.ID() == "x" {
			return nil, errors.New("broken")
		}
		return s.ID(), nil
	}
	opts := []kahn.Option{kahn.RunID("r"), kahn.Durable(s)}
	if res, err := kahn.Execute(ctx, &g, step, opts...); res == nil || res.Status != kahn.RunFailed {
		return fmt.Errorf("the run: %+v, %w", res, err)
	}
	broken = false
	for _, nodes := range [][]string{nil, {"b"}} {
		res, err := kahn.Execute(ctx, &g, step, append(opts, kahn.Redrive(nil, nodes))...)
		if err != nil || res.Status != kahn.RunCompleted || res.Output() != "b" {
			return fmt.Errorf("the redrive of %v: %+v, %w", nodes, res, err)
		}
	}
	if want := " a s/x s/x b b"; calls != want {
		return fmt.Errorf("calls%s instead of%s", calls, want)
	}
	return nil
}

// The method `redrives` redrives a run that has ended. In the redrive, steps that failed in every attempt succeed. After each write of the redrive,
// or after a sample of the writes, the method then lets the process die and continues the run.
func (r *trial) redrives(t *testing.T) {
	old := r.goOn(t, nil)
	ended := r.want
	r.mended = true
	again := kahn.Redrive(nil, nil)
	s := &recorder{Store: r.after(t, old)}
	want, err := r.life(t, s, s, again)
	if want == nil || errors.Is(err, kahn.ErrStore) {
		t.Fatalf("%s: redriven: %v", r.name, err)
	}
	r.want = want
	for _, n := range r.cuts(len(s.commits)) {
		store := r.after(t, append(old[:len(old):len(old)], s.commits[:n]...))
		var opts []kahn.Option
		if stored, err := store.Load(t.Context(), "r"); n == 0 {
			if opts = append(opts, again); err != nil || stored.Status != ended.Status {
				t.Fatalf("%s: before the redrive the run is %v, %v", r.name, stored.Status, err)
			}
		}
		res, err := r.life(t, store, store, opts...)
		if errors.Is(err, kahn.ErrStore) || res == nil {
			t.Fatalf("%s: after %d writes of the redrive: %v", r.name, n, err)
		}
		if r.compare(t, res); t.Failed() {
			t.Logf("%s: after %d of %d writes of the redrive", r.name, n, len(s.commits))
			return
		}
	}
}
