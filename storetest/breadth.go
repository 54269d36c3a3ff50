package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// odd contains ids. A careless store takes some of them for equal, or changes some of them.
var odd = []string{
	"r", "R", "é", "e\u0301", "É", "straße", "STRASSE", "跑", "🏃", "a b", "a b ", " a b", "a%b", "a_b", `a'b"c`, `a\b`, "a\nb", "a/b[1]#2",
	"0", "00", "0.0", "null", "true", strings.Repeat("long ", 40),
}

// oddIDs: two ids of runs, nodes or owners are the same only if all their bytes are equal.
func oddIDs(ctx context.Context, s store.Store) error {
	for i, run := range odd {
		lease, stored, err := s.Acquire(ctx, run, run, ttl)
		if err != nil {
			return fmt.Errorf("run %q: %w", run, err)
		}
		if lease.Run != run || lease.Owner != run || stored.ID != run || stored.Sequence != 0 {
			return fmt.Errorf("run %q: the lease is %+v, the run is %q after %d commits", run, lease, stored.ID, stored.Sequence)
		}
		c := store.Commit{Sequence: 1, Status: machine.RunRunning, Run: record(fmt.Sprint("run ", i))}
		for k, node := range odd {
			c.Nodes = append(c.Nodes, store.NodeRecord{Node: node, Columns: store.Columns{Record: record(fmt.Sprint(i, " ", k))}})
			c.Readiness = append(c.Readiness, store.Readiness{Node: node, By: k, Required: len(odd)})
		}
		got, err := s.Commit(ctx, lease, c)
		if err := expect(fmt.Sprintf("the first commit of run %q", run), got, err, store.AppliedNow); err != nil {
			return err
		}
	}
	for i, run := range odd {
		stored, err := s.Load(ctx, run)
		if err != nil {
			return fmt.Errorf("run %q: %w", run, err)
		}
		if stored.ID != run || !sameJSON(stored.Record, record(fmt.Sprint("run ", i))) || len(stored.Nodes) != len(odd) {
			return fmt.Errorf("run %q is stored as %q with the record %s and %d nodes", run, stored.ID, stored.Record, len(stored.Nodes))
		}
		for k, node := range odd {
			if n := stored.Nodes[node]; !sameJSON(n.Record, record(fmt.Sprint(i, " ", k))) || n.Resolved != k || n.Required != len(odd) {
				return fmt.Errorf("run %q: node %q is stored as %+v, the record is %s", run, node, n, n.Record)
			}
		}
	}
	if _, _, err := s.Acquire(ctx, "r", "R", ttl); !errors.Is(err, store.ErrLeased) {
		return fmt.Errorf("run %q, which %q holds, was given to %q: %w", "r", "r", "R", err)
	}
	return nil
}

// sameJSON reports whether two texts are the same JSON, apart from white space.
func sameJSON(got, want json.RawMessage) bool {
	return bytes.Equal(got, want) || bytes.Equal(compact(got), compact(want))
}

// bigRecords: a store keeps large records of a run and of nodes, and large values. It may change their white space.
func bigRecords(ctx context.Context, s store.Store) error {
	lease, err := begun(ctx, s, "r")
	if err != nil {
		return err
	}
	for i, size := range []int{64<<10 - 1, 64 << 10, 64<<10 + 1, 300_000, 1<<20 + 1} {
		text := record(strings.Repeat("x", size-6))
		if len(text) != size {
			return fmt.Errorf("a record of %d bytes, meant to have %d", len(text), size)
		}
		d := store.Columns{Status: machine.Running, Record: text, Value: text}
		got, err := s.Commit(ctx, lease, store.Commit{Sequence: uint64(2 + i), Run: text, Nodes: []store.NodeRecord{{Node: "a", Columns: d}}})
		if err := expect(fmt.Sprintf("a commit of %d bytes", size), got, err, store.AppliedNow); err != nil {
			return err
		}
		r, err := s.Load(ctx, "r")
		if err != nil {
			return err
		}
		if a := r.Nodes["a"]; !sameJSON(r.Record, text) || !sameJSON(a.Record, text) || !sameJSON(a.Value, text) {
			return fmt.Errorf("of %d bytes there are %d of the run's record, %d of the node's, and %d of its value", size, len(r.Record), len(a.Record), len(a.Value))
		}
	}
	return nil
}

// anyText: a store keeps each text in JSON, whatever characters the text has.
func anyText(ctx context.Context, s store.Store) error {
	lease, err := begun(ctx, s, "r")
	if err != nil {
		return err
	}
	list := append([]string{"", "\t\r\n", "\u2028", "\u00a0", "\ufeff", "\U0010ffff", `\\x00`, "${x} $1 :x ?1 @x", "--", "/*"}, odd...)
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	want := store.Columns{Record: text, Value: text}
	got, err := s.Commit(ctx, lease, store.Commit{Sequence: 2, Run: text, Nodes: []store.NodeRecord{{Node: "b", Columns: want}}})
	if err := expect("Commit", got, err, store.AppliedNow); err != nil {
		return err
	}
	r, err := s.Load(ctx, "r")
	if err != nil {
		return err
	}
	for what, data := range map[string]json.RawMessage{"the run's record": r.Record, "a node's record": r.Nodes["b"].Record, "a value": r.Nodes["b"].Value} {
		var back []string
		if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back, list) {
			return fmt.Errorf("%s has become %s, %w", what, data, err)
		}
	}
	return nil
}

// everyStatus: a store keeps each status of a run, and a commit without a status does not change the status.
func everyStatus(ctx context.Context, s store.Store) error {
	for _, last := range []machine.RunStatus{machine.RunCompleted, machine.RunFailed, machine.RunCancelled} {
		lease, err := begun(ctx, s, last.String())
		if err != nil {
			return err
		}
		stored := machine.RunRunning
		for i, status := range []machine.RunStatus{machine.RunSuspended, machine.RunPending, machine.RunRunning, machine.RunPending, machine.RunSuspended, last} {
			if status != machine.RunPending {
				stored = status
			}
			got, err := s.Commit(ctx, lease, store.Commit{Sequence: uint64(2 + i), Status: status})
			if err := expect(fmt.Sprintf("the commit of status %v", status), got, err, store.AppliedNow); err != nil {
				return err
			}
			if r, err := s.Load(ctx, last.String()); err != nil || r.Status != stored {
				return fmt.Errorf("after status %v the run is %+v, %w", status, r, err)
			}
		}
	}
	return nil
}

// endedAcquired: a run that has ended can be acquired like any run, and its owner sees how it ended.
func endedAcquired(ctx context.Context, s store.Store) error {
	lease, err := completed(ctx, s)
	if err != nil {
		return err
	}
	got, err := s.Commit(ctx, lease, store.Commit{Sequence: 4, Status: machine.RunFailed})
	if err := expect("the end", got, err, store.AppliedNow); err != nil {
		return err
	}
	if err := s.Renew(ctx, lease, ttl); err != nil {
		return fmt.Errorf("the lease of a run that has ended is not renewed: %w", err)
	}
	if err := s.Release(ctx, lease); err != nil {
		return err
	}
	next, r, err := s.Acquire(ctx, "r", "next", ttl)
	if err != nil {
		return fmt.Errorf("a run that has ended is not acquired: %w", err)
	}
	if next.Epoch <= lease.Epoch || r == nil || r.Status != machine.RunFailed || r.Sequence != 4 || !r.Nodes["a"].Terminal {
		return fmt.Errorf("the lease %+v after %+v, of the run %+v", next, lease, r)
	}
	return nil
}

// deadAcquire: Acquire under a context that has ended takes no lease and creates no run.
func deadAcquire(ctx context.Context, s store.Store) error {
	dead, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := s.Acquire(dead, "r", "one", ttl); err == nil {
		return errors.New("a run was acquired under a context that had ended")
	}
	if _, err := s.Load(ctx, "r"); !errors.Is(err, store.ErrUnknownRun) {
		return fmt.Errorf("the run was made: %w", err)
	}
	if _, _, err := s.Acquire(ctx, "r", "two", ttl); err != nil {
		return fmt.Errorf("the next owner: %w", err)
	}
	return nil
}
