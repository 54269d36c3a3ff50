package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// The function `ids` returns the ids of all runs, sorted.
func ids(ctx context.Context, s store.Admin) (list []string, err error) {
	page, err := s.List(ctx, store.Query{Limit: store.MaxPage})
	for _, r := range page.Runs {
		list = append(list, r.ID)
	}
	slices.Sort(list)
	return list, err
}

func prunedRuns(ctx context.Context, s store.Admin) error {
	runs, err := filled(ctx, s, 36) // the higher a run's number, the earlier it ended
	if err != nil {
		return err
	}
	left := map[string]*store.Run{}
	for _, r := range runs {
		left[r.ID] = r
	}
	for i, row := range []struct {
		q    store.PruneQuery
		want []int // the numbers of the runs
		more bool
	}{
		{store.PruneQuery{EndedBefore: epoch}, nil, false},
		{store.PruneQuery{EndedBefore: storedRun("", 33).Ended, Limit: 10}, []int{35, 34}, false},
		{store.PruneQuery{EndedBefore: future, Limit: 3, Statuses: []machine.RunStatus{machine.RunFailed}}, []int{28, 22, 16}, true},
		{store.PruneQuery{EndedBefore: future, Limit: 2}, []int{33, 29}, true},
		{store.PruneQuery{EndedBefore: future, Statuses: []machine.RunStatus{machine.RunFailed, machine.RunCompleted}}, []int{27, 21, 15, 10, 9, 4, 3}, false},
		{store.PruneQuery{EndedBefore: future, Workflow: "w1"}, []int{23, 11}, false},
		{store.PruneQuery{EndedBefore: future, Limit: 2}, []int{17, 5}, false},
	} {
		got, err := s.Prune(ctx, row.q)
		if err != nil {
			return err
		}
		if err := same(fmt.Sprint("call ", i+1), got, store.Pruned{Runs: len(row.want), Nodes: 2 * len(row.want), More: row.more}); err != nil {
			return err
		}
		for _, n := range row.want {
			delete(left, runs[len(runs)-1-n].ID)
		}
		have, err := ids(ctx, s)
		if err != nil {
			return err
		}
		var want []string
		for id := range left {
			want = append(want, id)
		}
		slices.Sort(want)
		if err := same(fmt.Sprint("the runs after call ", i+1), have, want); err != nil {
			return err
		}
	}
	for id, want := range left {
		r, err := s.Load(ctx, id)
		if err != nil {
			return err
		}
		if err := same("a run that is left", normal(r), normal(want)); err != nil {
			return err
		}
	}
	return nil
}

func pruneSpared(ctx context.Context, s store.Admin) error {
	for what, q := range map[string]store.PruneQuery{
		"no time": {}, "a run that waits": {EndedBefore: future, Statuses: []machine.RunStatus{machine.RunSuspended}}, "a pending run": {EndedBefore: future, Statuses: []machine.RunStatus{machine.RunPending}},
		"a limit that is too high": {EndedBefore: future, Limit: store.MaxPage + 1}, "a limit below 0": {EndedBefore: future, Limit: -1},
	} {
		if _, err := s.Prune(ctx, q); !errors.Is(err, machine.ErrBadValue) {
			return fmt.Errorf("%s: %v", what, err)
		}
	}
	for i, status := range []machine.RunStatus{machine.RunPending, machine.RunRunning, machine.RunSuspended} {
		id := status.String()
		lease, err := begunAs(ctx, s, aRun(id, "x", store.Refuse))
		if err != nil {
			return err
		}
		if _, err := s.Commit(ctx, lease, store.Commit{Sequence: 2, Status: status}); err != nil {
			return err
		}
		if err := s.Release(ctx, lease); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	if _, _, err := s.Create(ctx, store.NewRun{ID: "created"}); err != nil {
		return err
	}
	lease, err := begun(ctx, s, "ending") // the owner of this lease ends the run, and keeps the lease
	if err != nil {
		return err
	}
	if _, err := s.Commit(ctx, lease, store.Commit{Sequence: 2, Status: machine.RunCompleted}); err != nil {
		return err
	}
	got, err := s.Prune(ctx, store.PruneQuery{EndedBefore: future})
	if err := errors.Join(err, same("what is pruned", got, store.Pruned{})); err != nil {
		return err
	}
	if err := s.Release(ctx, lease); err != nil {
		return err
	}
	got, err = s.Prune(ctx, store.PruneQuery{EndedBefore: future})
	if err := errors.Join(err, same("what is pruned after the release", got, store.Pruned{Runs: 1, Nodes: 1})); err != nil {
		return err
	}
	have, err := ids(ctx, s)
	return errors.Join(err, same("the runs that are left", have, []string{"created", "pending", "running", "suspended"}))
}

func pruneWhole(ctx context.Context, s store.Admin) error {
	lease, err := completed(ctx, s)
	if err != nil {
		return err
	}
	spec := aSpec("old")
	if got, err := s.Commit(ctx, lease, store.Commit{Sequence: 4, Status: machine.RunFailed, Spec: &spec}); err != nil || got != store.AppliedNow {
		return fmt.Errorf("the end: %v, %w", got, err)
	}
	if err := s.Release(ctx, lease); err != nil {
		return err
	}
	got, err := s.Prune(ctx, store.PruneQuery{EndedBefore: future})
	if err := errors.Join(err, same("what is pruned", got, store.Pruned{Runs: 1, Nodes: 3})); err != nil {
		return err
	}
	_, err = s.Load(ctx, "r")
	_, nodes := s.ListNodes(ctx, "r", store.NodeQuery{})
	_, commit := s.Commit(ctx, lease, store.Commit{Sequence: 5})
	if err := errors.Join(expectError("Load", err, store.ErrUnknownRun), expectError("ListNodes", nodes, store.ErrUnknownRun)); err != nil || commit == nil {
		return fmt.Errorf("%w; a commit of the former run: %w", err, commit)
	}
	if err := newRun(ctx, s); err != nil { // the id of a removed run is free for a new run
		return err
	}
	next, err := s.Load(ctx, "r")
	if err != nil || len(next.Nodes) > 0 {
		return fmt.Errorf("the next run of this id: %+v, %w", next, err)
	}
	page, err := s.List(ctx, store.Query{Filter: store.Filter{Labels: spec.Labels}})
	return errors.Join(err, expectRuns("runs with its labels", page.Runs, nil))
}

// blobbed returns a run that refers to blobs: one in its inputs, one in its record, the others in its nodes.
func blobbed(id string, keys ...string) *store.Run {
	r := storedRun(id, 3)
	ref := func(key string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"list": [{"$blob": %q}]}`, key))
	}
	r.Inputs, r.Record = ref(keys[0]), ref(keys[1])
	for i, key := range keys[2:] {
		n := store.Node{Columns: data("done"), State: store.State{Terminal: true}}
		if i%2 == 0 {
			n.Value = ref(key)
		} else {
			n.Record = ref(key)
		}
		r.Nodes[fmt.Sprint("n", i)] = n
	}
	return r
}

func pruneBlobs(ctx context.Context, s store.Admin) error {
	blobs := new(store.MemoryBlobs)
	all := []string{"in1", "in2", "run1", "run2", "val1", "val2", "rec1", "rec2", "all", "foreign"}
	for _, key := range append(all, "own") {
		if err := blobs.Put(ctx, key, []byte(key)); err != nil {
			return err
		}
	}
	waiting := blobbed("waiting", "in2", "run2", "val2", "rec2", "all")
	waiting.Status, waiting.Ended = machine.RunSuspended, time.Time{}
	for _, r := range []*store.Run{blobbed("one", "own", "run1", "val1", "rec1", "all", "val2", "in1"), waiting} {
		if err := s.Insert(ctx, r); err != nil {
			return err
		}
	}
	lease, err := begun(ctx, s, "committed")
	if err != nil {
		return err
	}
	spec := store.Spec{Inputs: json.RawMessage(`{"x": {"$blob": "in1"}}`)}
	for i, c := range []store.Commit{
		{Spec: &spec, Run: json.RawMessage(`[{"$blob": "run1"}]`), Nodes: []store.NodeRecord{{Node: "x", Columns: store.Columns{Value: json.RawMessage(`{"$blob": "val1"}`), Record: json.RawMessage(`{"$blob": "rec1"}`)}}}},
		{Status: machine.RunCompleted},
	} {
		c.Sequence = uint64(i + 2)
		got, err := s.Commit(ctx, lease, c)
		if err := expect(fmt.Sprint("commit ", c.Sequence), got, err, store.AppliedNow); err != nil {
			return err
		}
	}
	has := func(what string, want ...string) error {
		var have []string
		for _, key := range append(all, "own") {
			if _, err := blobs.Get(ctx, key); err == nil {
				have = append(have, key)
			}
		}
		return same("the blobs "+what, have, want)
	}
	q := store.PruneQuery{EndedBefore: future, Blobs: blobs, Grace: -1}
	got, err := s.Prune(ctx, q) // removes the run "one" and the blob "own", to which no other run refers
	if err := errors.Join(err, same("the first call", got, store.Pruned{Runs: 1, Nodes: 7, Blobs: 1}), has("of a run that shares them", all...)); err != nil {
		return err
	}
	if err := s.Release(ctx, lease); err != nil {
		return err
	}
	q.Blobs = nil
	if _, err := s.Prune(ctx, q); err != nil { // removes the run "committed"; the query has no blob store
		return err
	}
	q.Blobs, q.Grace = blobs, 0
	got, err = s.Prune(ctx, q) // the blobs were put less than an hour ago, so the default grace keeps them
	if err := errors.Join(err, same("the call with a grace", got, store.Pruned{}), has("in their grace", all...)); err != nil {
		return err
	}
	q.Grace = -1
	got, err = s.Prune(ctx, q)
	kept := []string{"in2", "run2", "val2", "rec2", "all", "foreign"}
	if err := errors.Join(err, same("the last call", got, store.Pruned{Blobs: 4}), has("to which no run refers", kept...)); err != nil {
		return err
	}
	got, err = s.Prune(ctx, q)
	return errors.Join(err, same("another call", got, store.Pruned{}), has("afterwards", kept...))
}

// failingBlobs fails to remove the blob of one key.
type failingBlobs struct {
	*store.MemoryBlobs
	key string
}

var errBlobs = errors.New("the blob store is down")

func (b failingBlobs) Sweep(ctx context.Context, key string, before time.Time) (bool, error) {
	if key == b.key {
		return false, errBlobs
	}
	return b.MemoryBlobs.Sweep(ctx, key, before)
}

func pruneFaults(ctx context.Context, s store.Admin) error {
	blobs := new(store.MemoryBlobs)
	for _, key := range []string{"a", "b", "c", "d"} {
		if err := blobs.Put(ctx, key, []byte(key)); err != nil {
			return err
		}
	}
	if err := s.Insert(ctx, blobbed("r", "a", "b", "c", "d")); err != nil {
		return err
	}
	q := store.PruneQuery{EndedBefore: future, Blobs: failingBlobs{blobs, "c"}, Grace: -1}
	got, err := s.Prune(ctx, q)
	if err := errors.Join(expectError("a blob store that fails", err, errBlobs), same("what is gone nevertheless", got.Runs, 1), same("the blobs", blobs.Len(), 4-got.Blobs)); err != nil {
		return err
	}
	q.Blobs = blobs
	again, err := s.Prune(ctx, q)
	return errors.Join(err, same("the next call", again, store.Pruned{Blobs: 4 - got.Blobs}), same("the blobs that are left", blobs.Len(), 0))
}
