package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// replacedBlobs checks that Prune removes the blobs of events. Prune must also remove a blob if a commit or a new run has replaced the reference to
// the blob.
func replacedBlobs(ctx context.Context, s store.Admin) error {
	blobs := new(store.MemoryBlobs)
	ref := func(key string) json.RawMessage { return json.RawMessage(fmt.Sprintf(`{"x": {"$blob": %q}}`, key)) }
	keys := []string{"created", "replaced", "record", "value", "redriven"}
	var events []store.EventRecord
	if _, ok := s.(store.EventStore); ok {
		keys, events = append(keys, "event"), []store.EventRecord{{ID: 1, Data: ref("event")}}
	}
	for _, key := range keys {
		if err := blobs.Put(ctx, key, []byte(key)); err != nil {
			return err
		}
	}
	for _, key := range []string{"created", "replaced"} {
		n := store.NewRun{ID: "r", Spec: store.Spec{Inputs: ref(key)}, IfExists: store.Replace}
		if _, _, err := s.Create(ctx, n); err != nil {
			return err
		}
	}
	lease, _, err := s.Acquire(ctx, "r", "owner", ttl)
	if err != nil {
		return err
	}
	node := func(value json.RawMessage) []store.NodeRecord {
		return []store.NodeRecord{{Node: "x", Terminal: true, Columns: store.Columns{Status: machine.Completed, Value: value}}}
	}
	for i, c := range []store.Commit{
		{Run: ref("record"), Nodes: node(ref("value")), Status: machine.RunCompleted, Events: events},
		{Run: record("done"), Reopen: true, Reset: []string{"x"}, Nodes: node(ref("redriven")), Status: machine.RunCompleted},
		{Run: record("done"), Reopen: true, Reset: []string{"x"}, Nodes: node(data("small").Value), Status: machine.RunCompleted},
	} {
		c.Sequence = uint64(i + 1)
		got, err := s.Commit(ctx, lease, c)
		if err := expect(fmt.Sprint("commit ", c.Sequence), got, err, store.AppliedNow); err != nil {
			return err
		}
	}
	if err := s.Release(ctx, lease); err != nil {
		return err
	}
	q := store.PruneQuery{EndedBefore: future, Blobs: blobs, Grace: -1}
	first, err := s.Prune(ctx, q)
	if err != nil {
		return err
	}
	second, err := s.Prune(ctx, q)
	return errors.Join(err, same("the blobs that are removed", first.Blobs+second.Blobs, len(keys)), same("the blobs that are left", blobs.Len(), 0))
}
