// Package storetest tests a [store.Store] against everything that the interface promises. The test of a store is:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return open(t) })
//	}
//
// [RunAdmin], [RunEvents], [RunInbox], [RunAwaits], [RunQueues], [RunTurns], [RunSchedules] and [RunGrants] test the other interfaces of
// package store.
//
// [Lives] performs random graphs over a store, and interrupts and continues each run many times. [Kill] performs a run in processes that it
// kills. [WithFaults] makes a store fail like real stores, for the tests of code that uses a store.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// Run runs all checks as subtests. For each check it calls the function "open", which returns a new and empty store.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	runAll(t, checks, open)
}

// Check does what [Run] does, but needs no testing.T: it returns the failures, each with the name of its check.
func Check(ctx context.Context, open func() store.Store) []error {
	return findAll(ctx, checks, open)
}

var checks = []check[store.Store]{
	{"a new run is empty", newRun},
	{"an unknown run", unknownRun},
	{"one owner at a time", oneOwner},
	{"a lease runs out", leaseExpires},
	{"a lease is renewed", leaseRenewed},
	{"a lease is read", leaseRead},
	{"a lease is released", leaseReleased},
	{"who was overtaken is fenced", fenced},
	{"whose lease has run out is fenced", expired},
	{"ids are kept apart", oddIDs},
	{"records are of any size", bigRecords},
	{"records are of any characters", anyText},
	{"values are checked as they are taken", checkedValues},
	{"every status of a run is stored", everyStatus},
	{"a run that has ended is acquired", endedAcquired},
	{"an acquisition under a context that has ended", deadAcquire},
	{"attempts are numbered", attemptNumbers},
	{"an attempt leaves the queue", attemptDequeues},
	{"commits are numbered", commitSequence},
	{"a commit is stored whole", commitStored},
	{"each part of a run is stored, whatever else a commit has", partsStored},
	{"a duplicate changes nothing", duplicateCommit},
	{"ends and starts of many nodes", manyNodes},
	{"a commit of many nodes is whole", wholeOrNothing},
	{"a completion needs the last attempt", completionToken},
	{"a completion happens once", completionOnce},
	{"a terminal node does not change", terminalNode},
	{"the time to wake a run is stored", wakeTime},
	{"what a run does is stored", specStored},
	{"when a run was created and has ended", runTimes},
	{"readiness is counted", readinessCounts},
	{"readiness above what is required", readinessOverflow},
	{"a refused commit changes nothing", refusedCommit},
	{"a run that has ended does not change", endedRun},
	{"a redrive takes nodes back", redriven},
	{"a redrive that is refused changes nothing", redriveWhole},
	{"runs are apart", runsApart},
	{"what is loaded is a copy", loadedCopy},
	{"of competing commits one is applied", competingCommits},
	{"of competing owners one acquires", competingOwners},
	{"a cancelled context changes nothing", cancelledContext},
	{"a run of kahn", engine},
	{"a run of kahn is redriven", engineRedrives},
}

const ttl = time.Minute

func record(text string) json.RawMessage { return json.RawMessage(fmt.Sprintf("{%q:1}", text)) }

// data returns the columns of a node. Which parts are set depends on the text.
func data(text string) store.Columns {
	d := store.Columns{Record: record(text), Hash: []byte{0, 0xff, byte(len(text))}}
	start := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	switch text {
	case "running":
		d.Status, d.Start = machine.Running, start
	case "done":
		d.Status, d.Start, d.End, d.Value = machine.Completed, start, start.Add(time.Hour+7*time.Microsecond), json.RawMessage(`[1,null,"\u0000 \u00e9"]`)
	case "stopped":
		d.Status, d.Cause, d.Start, d.End = machine.Cancelled, machine.CauseCancelNode, start, start
	case "ready":
		d.Status, d.Hash = machine.Ready, nil
	}
	return d
}

// expect returns an error unless a write succeeded with the answer "want".
func expect(what string, got store.Applied, err error, want store.Applied) error {
	if err != nil {
		return fmt.Errorf("%s: %w instead of %v", what, err, want)
	}
	if got != want {
		return fmt.Errorf("%s: %v instead of %v", what, got, want)
	}
	return nil
}

func expectError(what string, err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("%s: %v instead of %w", what, err, want)
	}
	return nil
}

// The function `begun` acquires a run and makes its first commit, which stores and queues the node a.
func begun(ctx context.Context, s store.Store, run string) (store.Lease, error) {
	lease, _, err := s.Acquire(ctx, run, "owner", ttl)
	if err != nil {
		return lease, err
	}
	got, err := s.Commit(ctx, lease, store.Commit{
		Sequence: 1, Run: record("run"), Status: machine.RunRunning, Ready: []string{"a"},
		Nodes: []store.NodeRecord{{Node: "a", Columns: data("ready")}},
	})
	return lease, expect("the first commit", got, err, store.AppliedNow)
}

// start returns a commit that starts an attempt.
func start(sequence uint64, node string, attempt int32) store.Commit {
	return store.Commit{
		Sequence: sequence, Started: []store.Attempt{{Node: node, Attempt: attempt}},
		Nodes: []store.NodeRecord{{Node: node, Columns: data("running")}},
	}
}

// completion returns the commit that ends the first attempt of node a. It follows the commit that starts this attempt.
func completion() store.Commit {
	return store.Commit{
		Sequence: 3, Completed: []store.Attempt{{Node: "a", Attempt: 1}}, Ready: []string{"b"},
		Nodes:     []store.NodeRecord{{Node: "a", Terminal: true, Columns: data("done")}, {Node: "b", Columns: data("ready")}},
		Readiness: []store.Readiness{{Node: "b", By: 1, Required: 1}, {Node: "c", By: 1, Required: 2}},
	}
}

// The function `completed` does what `begun` does, and then commits the start and the end of the first attempt of node a.
func completed(ctx context.Context, s store.Store) (store.Lease, error) {
	lease, err := begun(ctx, s, "r")
	if err != nil {
		return lease, err
	}
	got, err := s.Commit(ctx, lease, start(2, "a", 1))
	if err := expect("the start of a", got, err, store.AppliedNow); err != nil {
		return lease, err
	}
	got, err = s.Commit(ctx, lease, completion())
	return lease, expect("the completion of a", got, err, store.AppliedNow)
}

// The function `unchanged` calls f, and returns an error if f returns an error or changes the stored run.
func unchanged(ctx context.Context, s store.Store, f func() error) error {
	before, err := s.Load(ctx, "r")
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	after, err := s.Load(ctx, "r")
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(normal(before), normal(after)) {
		return fmt.Errorf("it changed the run from %+v to %+v", *before, *after)
	}
	return nil
}

// The function `normal` returns a stored run in a normal form, since stores may write the same JSON in different ways.
func normal(r *store.Run) store.Run {
	n := *r
	n.Record, n.WakeAt = compact(r.Record), r.WakeAt.UTC()
	n.Inputs, n.Created, n.Ended = compact(r.Inputs), time.Time{}, time.Time{} // other checks compare these times
	n.Nodes = map[string]store.Node{}
	for id, node := range r.Nodes {
		node.Columns = normalData(node.Columns)
		n.Nodes[id] = node
	}
	return n
}

func normalData(d store.Columns) store.Columns {
	d.Record, d.Value = compact(d.Record), compact(d.Value)
	d.Start, d.End = d.Start.UTC().Truncate(time.Microsecond), d.End.UTC().Truncate(time.Microsecond)
	return d
}

func compact(data json.RawMessage) json.RawMessage {
	if data == nil {
		return nil
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return data
	}
	text, err := json.Marshal(v)
	if err != nil {
		return data
	}
	return text
}

func expectNode(ctx context.Context, s store.Store, run, id string, want store.Node) error {
	r, err := s.Load(ctx, run)
	if err != nil {
		return err
	}
	want.Columns = normalData(want.Columns)
	if got := normal(r).Nodes[id]; !reflect.DeepEqual(got, want) {
		return fmt.Errorf("node %s is stored as %+v instead of %+v", id, got, want)
	}
	return nil
}

func newRun(ctx context.Context, s store.Store) error {
	lease, r, err := s.Acquire(ctx, "r", "owner", ttl)
	if err != nil {
		return err
	}
	if lease.Run != "r" || lease.Owner != "owner" || lease.Epoch == 0 {
		return fmt.Errorf("the lease is %+v", lease)
	}
	if r == nil || r.ID != "r" || r.Sequence != 0 || r.Status != machine.RunPending || r.Record != nil || len(r.Nodes) != 0 {
		return fmt.Errorf("the run is %+v", r)
	}
	return nil
}

func unknownRun(ctx context.Context, s store.Store) error {
	_, err := s.Load(ctx, "nobody")
	return expectError("Load", err, store.ErrUnknownRun)
}

func attemptNumbers(ctx context.Context, s store.Store) error {
	lease, err := begun(ctx, s, "r")
	if err != nil {
		return err
	}
	sequence := uint64(2)
	for i, row := range []struct {
		attempt int32
		want    store.Applied
	}{{2, store.Conflict}, {1, store.AppliedNow}, {1, store.Stale}, {3, store.Conflict}, {2, store.AppliedNow}, {1, store.Stale}, {2, store.Stale}} {
		c := start(sequence, "a", row.attempt)
		c.Nodes[0].Columns = data(fmt.Sprint(i))
		got, err := s.Commit(ctx, lease, c)
		if err := expect(fmt.Sprintf("call %d, attempt %d", i+1, row.attempt), got, err, row.want); err != nil {
			return err
		}
		if got == store.AppliedNow {
			sequence++
		}
	}
	return expectNode(ctx, s, "r", "a", store.Node{Columns: data("4"), State: store.State{Attempt: 2}})
}

func attemptDequeues(ctx context.Context, s store.Store) error {
	lease, err := begun(ctx, s, "r")
	if err != nil {
		return err
	}
	if err := expectNode(ctx, s, "r", "a", store.Node{Columns: data("ready"), State: store.State{Queued: true}}); err != nil {
		return err
	}
	got, err := s.Commit(ctx, lease, start(2, "a", 1))
	return errors.Join(expect("the start of a", got, err, store.AppliedNow),
		expectNode(ctx, s, "r", "a", store.Node{Columns: data("running"), State: store.State{Attempt: 1}}))
}

func commitSequence(ctx context.Context, s store.Store) error {
	lease, err := begun(ctx, s, "r")
	if err != nil {
		return err
	}
	for i, row := range []struct {
		sequence uint64
		want     store.Applied
	}{{3, store.Conflict}, {2, store.AppliedNow}, {2, store.Duplicate}, {1, store.Stale}, {3, store.AppliedNow}} {
		got, err := s.Commit(ctx, lease, store.Commit{Sequence: row.sequence, Run: record(fmt.Sprint(i))})
		if err := expect(fmt.Sprintf("call %d, sequence %d", i+1, row.sequence), got, err, row.want); err != nil {
			return err
		}
	}
	got, err := s.Commit(ctx, lease, store.Commit{Sequence: 4})
	if err := expect("a commit without changes", got, err, store.AppliedNow); err != nil {
		return err
	}
	r, err := s.Load(ctx, "r")
	if err != nil {
		return err
	}
	if r.Sequence != 4 || string(compact(r.Record)) != string(record("4")) || r.Status != machine.RunRunning {
		return fmt.Errorf("the run is %+v", *r)
	}
	return nil
}

func commitStored(ctx context.Context, s store.Store) error {
	lease, err := completed(ctx, s)
	if err != nil {
		return err
	}
	r, err := s.Load(ctx, "r")
	if err != nil {
		return err
	}
	want := store.Run{ID: "r", Record: record("run"), Status: machine.RunRunning, Sequence: 3, Nodes: map[string]store.Node{
		"a": {Columns: data("done"), State: store.State{Terminal: true, Attempt: 1, Completed: true}},
		"b": {Columns: data("ready"), State: store.State{Resolved: 1, Required: 1, Queued: true}},
		"c": {State: store.State{Resolved: 1, Required: 2}},
	}}
	want = normal(&want)
	if got := normal(r); !reflect.DeepEqual(got, want) {
		return fmt.Errorf("the run is stored as %+v instead of %+v", got, want)
	}
	_ = s.Release(ctx, lease)
	_, acquired, err := s.Acquire(ctx, "r", "next", ttl)
	if err != nil || !reflect.DeepEqual(normal(acquired), want) {
		return fmt.Errorf("the next owner gets %+v, %w", acquired, err)
	}
	return nil
}

func duplicateCommit(ctx context.Context, s store.Store) error {
	lease, err := completed(ctx, s)
	if err != nil {
		return err
	}
	return unchanged(ctx, s, func() error { // a duplicate does not count the readiness of c again
		got, err := s.Commit(ctx, lease, completion())
		return expect("the completion again", got, err, store.Duplicate)
	})
}

// manyNodes: one commit may end and start attempts of several nodes.
func manyNodes(ctx context.Context, s store.Store) error {
	lease, err := completed(ctx, s)
	if err != nil {
		return err
	}
	commits := []store.Commit{
		{
			Sequence: 4, Started: []store.Attempt{{Node: "b", Attempt: 1}, {Node: "c", Attempt: 1}},
			Nodes: []store.NodeRecord{{Node: "b", Columns: data("running")}, {Node: "c", Columns: data("running")}},
		},
		{ // the first attempts of b and c end; the second attempt of c and the first attempt of d begin; e is queued
			Sequence: 5, Completed: []store.Attempt{{Node: "c", Attempt: 1}, {Node: "b", Attempt: 1}},
			Started: []store.Attempt{{Node: "c", Attempt: 2}, {Node: "d", Attempt: 1}},
			Nodes: []store.NodeRecord{
				{Node: "c", Columns: data("again")}, {Node: "b", Terminal: true, Columns: data("done")}, {Node: "d", Columns: data("running")},
				{Node: "e", Columns: data("ready")},
			},
			Readiness: []store.Readiness{{Node: "d", By: 2, Required: 2}, {Node: "e", By: 1, Required: 1}}, Ready: []string{"e"},
		},
		{ // d was stopped before the step of its second attempt was called
			Sequence: 6, Completed: []store.Attempt{{Node: "d", Attempt: 1}}, Started: []store.Attempt{{Node: "d", Attempt: 2}},
			Nodes: []store.NodeRecord{{Node: "d", Terminal: true, Columns: data("stopped")}},
		},
	}
	for _, c := range commits {
		got, err := s.Commit(ctx, lease, c)
		if err := expect(fmt.Sprint("commit ", c.Sequence), got, err, store.AppliedNow); err != nil {
			return err
		}
	}
	return errors.Join(expectNode(ctx, s, "r", "b", store.Node{Columns: data("done"), State: store.State{Terminal: true, Attempt: 1, Completed: true, Resolved: 1, Required: 1}}),
		expectNode(ctx, s, "r", "c", store.Node{Columns: data("again"), State: store.State{Attempt: 2, Resolved: 1, Required: 2}}),
		expectNode(ctx, s, "r", "d", store.Node{Columns: data("stopped"), State: store.State{Terminal: true, Attempt: 2, Resolved: 2, Required: 2}}),
		expectNode(ctx, s, "r", "e", store.Node{Columns: data("ready"), State: store.State{Queued: true, Resolved: 1, Required: 1}}))
}

// wholeOrNothing: if the store refuses one attempt in a commit, the commit changes no node.
func wholeOrNothing(ctx context.Context, s store.Store) error {
	lease, err := completed(ctx, s)
	if err != nil {
		return err
	}
	for _, row := range []struct {
		name               string
		completed, started []store.Attempt
		want               store.Applied
	}{
		{"a start that is not the next", nil, []store.Attempt{{Node: "b", Attempt: 1}, {Node: "c", Attempt: 2}}, store.Conflict},
		{"a start of a terminal node", nil, []store.Attempt{{Node: "b", Attempt: 1}, {Node: "a", Attempt: 2}}, store.Conflict},
		{"a start after an end that is not due", []store.Attempt{{Node: "c", Attempt: 1}}, []store.Attempt{{Node: "b", Attempt: 1}}, store.Conflict},
		{"an end that was there already", []store.Attempt{{Node: "a", Attempt: 1}}, []store.Attempt{{Node: "b", Attempt: 1}}, store.Conflict},
	} {
		err := unchanged(ctx, s, func() error {
			got, err := s.Commit(ctx, lease, store.Commit{Sequence: 4, Completed: row.completed, Started: row.started, Ready: []string{"c"}})
			return expect(row.name, got, err, row.want)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func completionToken(ctx context.Context, s store.Store) error {
	lease, err := begun(ctx, s, "r")
	if err != nil {
		return err
	}
	for attempt := range int32(2) {
		got, err := s.Commit(ctx, lease, start(uint64(attempt+2), "a", attempt+1))
		if err := expect("the start of an attempt", got, err, store.AppliedNow); err != nil {
			return err
		}
	}
	return unchanged(ctx, s, func() error {
		past, future := completion(), completion()
		past.Sequence, future.Sequence = 4, 4
		old, err1 := s.Commit(ctx, lease, past)
		future.Completed[0].Attempt = 3
		got, err2 := s.Commit(ctx, lease, future)
		return errors.Join(expect("the end of attempt 1 of 2", old, err1, store.Stale), expect("the end of attempt 3 of 2", got, err2, store.Conflict))
	})
}

func completionOnce(ctx context.Context, s store.Store) error {
	lease, err := completed(ctx, s)
	if err != nil {
		return err
	}
	return unchanged(ctx, s, func() error {
		again := completion()
		again.Sequence, again.Nodes = 4, nil
		got, err := s.Commit(ctx, lease, again)
		return expect("another completion of the same attempt", got, err, store.Conflict)
	})
}

func terminalNode(ctx context.Context, s store.Store) error {
	lease, err := completed(ctx, s)
	if err != nil {
		return err
	}
	return unchanged(ctx, s, func() error {
		got, err1 := s.Commit(ctx, lease, store.Commit{Sequence: 4, Nodes: []store.NodeRecord{{Node: "d", Columns: data("new")}, {Node: "a", Columns: data("again")}}})
		another := start(4, "a", 2)
		another.Nodes = nil
		began, err2 := s.Commit(ctx, lease, another)
		return errors.Join(expect("a commit that changes a", got, err1, store.Conflict), expect("another attempt of a", began, err2, store.Conflict))
	})
}

func endedRun(ctx context.Context, s store.Store) error {
	lease, err := completed(ctx, s)
	if err != nil {
		return err
	}
	end := store.Commit{Sequence: 4, Status: machine.RunCompleted, Nodes: []store.NodeRecord{{Node: "b", Terminal: true, Columns: data("done")}}}
	got, err := s.Commit(ctx, lease, end)
	if err := expect("the end", got, err, store.AppliedNow); err != nil {
		return err
	}
	err = unchanged(ctx, s, func() error {
		again, err1 := s.Commit(ctx, lease, end)
		more, err2 := s.Commit(ctx, lease, store.Commit{Sequence: 5, Status: machine.RunFailed})
		begin, err3 := s.Commit(ctx, lease, start(5, "c", 1))
		return errors.Join(expect("the end again", again, err1, store.Duplicate), expect("a commit after the end", more, err2, store.Conflict),
			expect("an attempt after the end", begin, err3, store.Conflict))
	})
	if err != nil {
		return err
	}
	r, err := s.Load(ctx, "r")
	if err != nil || r.Status != machine.RunCompleted {
		return fmt.Errorf("the run is %+v, %w", r, err)
	}
	return nil
}

func runsApart(ctx context.Context, s store.Store) error {
	if _, err := completed(ctx, s); err != nil {
		return err
	}
	if _, err := begun(ctx, s, "other"); err != nil {
		return err
	}
	return errors.Join(expectNode(ctx, s, "r", "a", store.Node{Columns: data("done"), State: store.State{Terminal: true, Attempt: 1, Completed: true}}),
		expectNode(ctx, s, "other", "a", store.Node{Columns: data("ready"), State: store.State{Queued: true}}))
}

func loadedCopy(ctx context.Context, s store.Store) error {
	if _, err := completed(ctx, s); err != nil {
		return err
	}
	return unchanged(ctx, s, func() error {
		r, err := s.Load(ctx, "r")
		if err != nil {
			return err
		}
		r.Status, r.Sequence = machine.RunFailed, 99
		delete(r.Nodes, "a")
		r.Nodes["z"] = store.Node{State: store.State{Attempt: 7}}
		return nil
	})
}

const competitors = 16

func cancelledContext(ctx context.Context, s store.Store) error {
	lease, err := begun(ctx, s, "r")
	if err != nil {
		return err
	}
	dead, cancel := context.WithCancel(ctx)
	cancel()
	return unchanged(ctx, s, func() error {
		_, err1 := s.Commit(dead, lease, start(2, "a", 1))
		_, err2 := s.Commit(dead, lease, store.Commit{Sequence: 2, Status: machine.RunFailed})
		if err1 == nil || err2 == nil {
			return fmt.Errorf("no error: %v, %v", err1, err2)
		}
		return nil
	})
}

// The check `engine` performs a graph with a gate over the store in two parts, as two processes do. The second part begins with the answer to the
// gate.
func engine(ctx context.Context, s store.Store) error {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Millisecond}},
		kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"b"}}, kahn.Node{ID: "c", After: []string{"gate"}})
	var mu sync.Mutex
	calls := map[string]int{}
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		if calls[s.ID()]++; s.ID() == "b" && s.Attempt() == 1 {
			return nil, errors.New("not yet")
		}
		return s.ID(), nil
	}
	res, err := kahn.Execute(ctx, &g, step, kahn.RunID("r"), kahn.Durable(s))
	if err != nil || res.Status != machine.RunSuspended {
		return fmt.Errorf("the first process: %+v, %w", res, err)
	}
	res, err = kahn.Execute(ctx, &g, step, kahn.RunID("r"), kahn.Durable(s), kahn.EarlySignals(map[string]any{"gate": true}))
	if err != nil || res.Status != machine.RunCompleted || res.Output() != "c" {
		return fmt.Errorf("the second process: %+v, %w", res, err)
	}
	if want := map[string]int{"a": 1, "b": 2, "c": 1}; !reflect.DeepEqual(calls, want) {
		return fmt.Errorf("calls %v instead of %v", calls, want)
	}
	r, err := s.Load(ctx, "r")
	if err != nil || r.Status != machine.RunCompleted || !r.Nodes["c"].Terminal || r.Nodes["b"].Attempt != 2 {
		return fmt.Errorf("the run is stored as %+v, %w", r, err)
	}
	return nil
}
