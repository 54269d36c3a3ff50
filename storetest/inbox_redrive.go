package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// aRedrive returns a request for a redrive of the node b.
func aRedrive(id string) store.Request {
	return store.Request{ID: id, Kind: store.KindRedrive, Value: json.RawMessage(`{"nodes": ["b"]}`), Actor: "ann", Comment: "mended"}
}

// The function `over` begins a run, ends it as failed with the second commit, acquires the run for another owner, and returns the new lease.
func over(ctx context.Context, s store.Inbox, run string) (store.Lease, error) {
	lease, err := begun(ctx, s, run)
	if err != nil {
		return lease, err
	}
	got, err := s.Commit(ctx, lease, store.Commit{Sequence: 2, Status: machine.RunFailed, Run: record("failed")})
	if err := errors.Join(expect("the end", got, err, store.AppliedNow), s.Release(ctx, lease)); err != nil {
		return lease, err
	}
	lease, _, err = s.Acquire(ctx, run, "operator", ttl)
	return lease, err
}

// dueToServe returns two numbers. The number "runs" counts the due runs in the queue without a workflow and in the queue "another". The number
// "queued" counts all runs in the queue without a workflow. Both are -1 if the store is not a QueueStore.
func dueToServe(ctx context.Context, s store.Inbox) (runs, queued int, err error) {
	queues, ok := s.(store.QueueStore)
	if !ok {
		return -1, -1, nil
	}
	page, err := queues.Due(ctx, store.DueQuery{Queues: []store.Queue{{}, {Workflow: "another"}}})
	if err != nil {
		return 0, 0, err
	}
	list, err := queues.Queues(ctx)
	for _, q := range list {
		if (q.Queue == store.Queue{}) {
			queued = q.Runs
		}
	}
	return len(page.Runs), queued, err
}

func redrivesPosted(ctx context.Context, s store.Inbox) error {
	if _, err := begun(ctx, s, "r"); err != nil {
		return err
	}
	_, err := s.Post(ctx, "r", aRedrive("early"))
	if err := errors.Join(expectError("a redrive of a run that has not ended", err, store.ErrNotEnded), expectRequests(ctx, s, "r")); err != nil {
		return err
	}
	if _, err := over(ctx, s, "x"); err != nil {
		return err
	}
	if err := errors.Join(dueNow(ctx, s, "x", false), postTo(ctx, s, "x", aRedrive("1")), dueNow(ctx, s, "x", true)); err != nil {
		return err
	}
	again := aRedrive("1")
	again.Value, again.Actor = json.RawMessage(`{"nodes":["b"]}`), "somebody else"
	posted, err := s.Post(ctx, "x", again)
	if err != nil || posted {
		return fmt.Errorf("the same redrive again is posted: %v, %w", posted, err)
	}
	again.Value = json.RawMessage(`{"nodes":["b"],"anew":true}`)
	_, err = s.Post(ctx, "x", again)
	_, signalled := s.Post(ctx, "x", aSignal(1))
	all := store.Request{ID: "all", Kind: store.KindRedrive, Value: json.RawMessage("{}")}
	err = errors.Join(expectError("another redrive of the same id", err, store.ErrRequestConflict), expectError("a signal for a run that has ended", signalled, store.ErrEnded),
		postTo(ctx, s, "x", all), expectRequests(ctx, s, "x", "1 waiting", "2 waiting"))
	if err != nil {
		return err
	}
	list, err := s.LoadRequests(ctx, "x", 0, 10)
	if err != nil {
		return err
	}
	first, second := list[0].Request, list[1].Request
	first.Value = compact(first.Value)
	want := aRedrive("1")
	want.Value = compact(want.Value)
	return errors.Join(same("a redrive of a node", first, want), same("a redrive of all", second, all))
}

func redrivesRefused(ctx context.Context, s store.Inbox) error {
	lease, err := over(ctx, s, "r")
	for _, id := range []string{"1", "2", "3"} {
		err = errors.Join(err, postTo(ctx, s, "r", aRedrive(id)))
	}
	before, loaded := s.Load(ctx, "r")
	if err := errors.Join(err, loaded); err != nil {
		return err
	}
	for what, change := range map[string]func(c *store.Commit){
		"an answer without its effect":   func(c *store.Commit) { c.Taken[0].Refused = "" },
		"a refusal with a node":          func(c *store.Commit) { c.Nodes = []store.NodeRecord{{Node: "b", Columns: data("running")}} },
		"a refusal of a later request":   func(c *store.Commit) { c.Taken[0].Number = 2 },
		"a refusal that goes on":         func(c *store.Commit) { c.Status = machine.RunRunning },
		"a refusal with another record":  func(c *store.Commit) { c.Run = record("other") },
		"nothing at all":                 func(c *store.Commit) { c.Taken = nil },
		"a refusal with a later attempt": func(c *store.Commit) { c.Started = []store.Attempt{{Node: "b", Attempt: 1}} },
	} {
		c := answering(3, "1: no such node")
		change(&c)
		got, err := s.Commit(ctx, lease, c)
		if err := expect(what, got, err, store.Conflict); err != nil {
			return err
		}
	}
	c := answering(3, "1: no such node")
	for _, want := range []store.Applied{store.AppliedNow, store.Duplicate} {
		got, err := s.Commit(ctx, lease, c)
		if err := errors.Join(expect("a refusal", got, err, want), expectRequests(ctx, s, "r", "1 refused: no such node", "2 waiting", "3 waiting"), dueNow(ctx, s, "r", true)); err != nil {
			return err
		}
	}
	got, err := s.Commit(ctx, lease, answering(4, "2: no", "3: never"))
	after, loaded := s.Load(ctx, "r")
	if err := errors.Join(expect("two refusals", got, err, store.AppliedNow), loaded); err != nil {
		return err
	}
	return errors.Join(expectRequests(ctx, s, "r", "1 refused: no such node", "2 refused: no", "3 refused: never"), dueNow(ctx, s, "r", false),
		same("the status", after.Status, machine.RunFailed), same("when it ended", after.Ended.UnixMilli(), before.Ended.UnixMilli()), same("that it has ended", after.Ended.IsZero(), false),
		same("the record", string(compact(after.Record)), string(compact(before.Record))))
}

func redrivesApplied(ctx context.Context, s store.Inbox) error {
	lease, err := over(ctx, s, "r")
	for _, id := range []string{"1", "2"} {
		err = errors.Join(err, postTo(ctx, s, "r", aRedrive(id)))
	}
	if err != nil {
		return err
	}
	c := answering(3, "1")
	c.Reopen, c.Status = true, machine.RunRunning
	got, err := s.Commit(ctx, lease, c)
	r, loaded := s.Load(ctx, "r")
	if err := errors.Join(expect("the redrive", got, err, store.AppliedNow), loaded); err != nil {
		return err
	}
	if err := errors.Join(expectRequests(ctx, s, "r", "1 applied", "2 waiting"), same("the status", r.Status, machine.RunRunning), same("that it goes on", r.Ended.IsZero(), true)); err != nil {
		return err
	}
	_, err = s.Post(ctx, "r", aRedrive("3"))
	if err := expectError("a redrive of a run that goes on", err, store.ErrNotEnded); err != nil {
		return err
	}
	got, err = s.Commit(ctx, lease, store.Commit{Sequence: 4, Status: machine.RunCompleted})
	return errors.Join(expect("its end", got, err, store.AppliedNow), expectRequests(ctx, s, "r", "1 applied", "2 refused: "+store.ErrEnded.Error()), dueNow(ctx, s, "r", false),
		postTo(ctx, s, "r", aRedrive("4")), dueNow(ctx, s, "r", true))
}

func redrivesServed(ctx context.Context, s store.Inbox) error {
	lease, err := over(ctx, s, "r")
	if err != nil {
		return err
	}
	due := func(what string, want, inQueue int) error {
		runs, queued, err := dueToServe(ctx, s)
		if runs < 0 {
			return nil
		}
		return errors.Join(err, same("runs that are due "+what, runs, want), same("runs of the queue "+what, queued, inQueue))
	}
	if err := errors.Join(due("without a redrive", 0, 0), postTo(ctx, s, "r", aRedrive("1")), due("while somebody has the run", 0, 1), s.Release(ctx, lease), due("with a redrive", 1, 1)); err != nil {
		return err
	}
	if queues, ok := s.(store.QueueStore); ok {
		page, err := queues.Due(ctx, store.DueQuery{Queues: []store.Queue{{}}, Except: []string{"r"}})
		other, failed := queues.Due(ctx, store.DueQuery{Queues: []store.Queue{{Workflow: "another"}}})
		if err := errors.Join(err, failed, same("runs but for those that are left out", len(page.Runs), 0), same("runs of another queue", len(other.Runs), 0)); err != nil {
			return err
		}
	}
	if admin, ok := s.(store.Admin); ok {
		pruned, err := admin.Prune(ctx, store.PruneQuery{EndedBefore: future})
		if err := errors.Join(err, same("runs that were pruned although a redrive waits", pruned.Runs, 0)); err != nil {
			return err
		}
	}
	lease, _, err = s.Acquire(ctx, "r", "operator", ttl)
	if err != nil {
		return err
	}
	got, err := s.Commit(ctx, lease, answering(3, "1: no"))
	if err := errors.Join(expect("the refusal", got, err, store.AppliedNow), s.Release(ctx, lease), due("after the answer", 0, 0)); err != nil {
		return err
	}
	if admin, ok := s.(store.Admin); ok {
		pruned, err := admin.Prune(ctx, store.PruneQuery{EndedBefore: future})
		return errors.Join(err, same("runs that were pruned", pruned.Runs, 1))
	}
	return nil
}

// engineRedriveRequests posts two redrives for a failed run. The first names an item that the map does not have; the second names a failed item.
func engineRedriveRequests(ctx context.Context, s store.Inbox) error {
	var calls []string
	broken := true
	g := (&kahn.Graph{Name: "asked"}).Add(kahn.Node{ID: "list"}, kahn.Node{ID: "M", In: []kahn.Edge{{From: "list", Param: "items"}}, Map: &kahn.Map{Over: "items"}},
		kahn.Node{ID: "sum", After: []string{"M"}})
	step := func(_ context.Context, step *kahn.Step) (any, error) {
		switch calls = append(calls, step.Path()); {
		case step.ID() == "list":
			return []int{1, 2, 3}, nil
		case broken && step.Path() == "M[1]":
			return nil, errors.New("broken")
		}
		return step.Path(), nil
	}
	opts := []kahn.Option{kahn.RunID("r"), kahn.Durable(s), kahn.Limit(1)}
	if res, err := kahn.Execute(ctx, g, step, opts...); res == nil || res.Status != kahn.RunFailed {
		return fmt.Errorf("the run: %+v, %w", res, err)
	}
	broken, calls = false, nil
	for i, row := range []struct {
		nodes   []string
		refused string
	}{{[]string{"M[7]"}, "M[7]"}, {[]string{"M[1]"}, ""}} {
		q, err := kahn.PrepareRedrive(row.nodes, kahn.Request{Actor: "ann", Reason: "mended"})
		if err != nil {
			return err
		}
		if err := postTo(ctx, s, "r", q); err != nil {
			return err
		}
		res, err := kahn.Execute(ctx, g, step, opts...)
		answer, found := s.FindRequest(ctx, "r", q.ID)
		if found != nil {
			return found
		}
		if row.refused != "" {
			if !errors.Is(err, kahn.ErrFinished) || answer.Status != store.RequestRefused || !strings.Contains(answer.Refused, row.refused) {
				return fmt.Errorf("redrive %d is %v, %q, and Execute returns %w", i, answer.Status, answer.Refused, err)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("redrive %d: %w", i, err)
		}
		by := res.RedriveRequest
		if err := errors.Join(same("the status", res.Status, kahn.RunCompleted), same("the answer", answer.Status, store.RequestApplied), same("the calls", calls, []string{"M[1]", "sum"}),
			same("who asked", by, kahn.Request{Actor: "ann", Reason: "mended"})); err != nil {
			return err
		}
	}
	return nil
}
