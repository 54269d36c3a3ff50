package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// RunEvents tests what [store.EventStore] promises beyond [store.Store]. Like [Run] it runs each check as a subtest. If the store is also a
// [store.Admin] or a [store.EventNotifier], RunEvents tests how the methods of these interfaces treat events.
func RunEvents(t *testing.T, open func(t *testing.T) store.EventStore) {
	runAll(t, eventChecks, func(t *testing.T) func() store.EventStore { return func() store.EventStore { return open(t) } })
}

// CheckEvents checks what [store.EventStore] promises beyond [store.Store], and returns the failures as [Check] does.
func CheckEvents(ctx context.Context, open func() store.EventStore) []error {
	return findAll(ctx, eventChecks, func() func() store.EventStore { return open })
}

// eventChecks get a function that opens new and empty stores.
var eventChecks = []check[func() store.EventStore]{
	{"events are stored", onEvents(eventsStored)},
	{"events are loaded in pages", onEvents(eventPages)},
	{"events of any size and characters", onEvents(anyEvents)},
	{"a log begins with any id", onEvents(eventsBegin)},
	{"ids of events have no hole", onEvents(eventsFollow)},
	{"events and facts are one transaction", onEvents(eventsWhole)},
	{"a duplicate stores no event twice", onEvents(eventsOnce)},
	{"who was overtaken stores no event", onEvents(eventsFenced)},
	{"the next owner learns the last event", onEvents(eventsGoOn)},
	{"a redrive goes on in the log", onEvents(eventsRedriven)},
	{"logs of runs are apart", onEvents(eventsApart)},
	{"a run without events", onEvents(eventsNone)},
	{"events of an unknown run", onEvents(eventsUnknown)},
	{"a cancelled context ends the loading of events", onEvents(eventsCancelled)},
	{"a page shows the run at one moment", onEvents(eventsOneMoment)},
	{"readers are notified of new events", onEvents(eventsNotified)},
	{"pruned events are gone", onEvents(eventsPruned)},
	{"events are exported and imported", eventsExported},
	{"the events of a run of kahn", onEvents(engineEvents)},
}

func onEvents(f func(ctx context.Context, s store.EventStore) error) func(context.Context, func() store.EventStore) error {
	return func(ctx context.Context, open func() store.EventStore) error { return f(ctx, open()) }
}

// anEvent returns a stored event whose data depends on the id.
func anEvent(id uint64) store.EventRecord {
	return store.EventRecord{ID: id, Data: json.RawMessage(fmt.Sprintf(`{"type":"node.log","timestamp":"2026-01-02T03:04:05Z","payload":{"level":"info","message":"message %d"}}`, id))}
}

// someEvents returns the events whose ids lie between "from" and "to", both included.
func someEvents(from, to uint64) (events []store.EventRecord) {
	for id := from; id <= to; id++ {
		events = append(events, anEvent(id))
	}
	return events
}

// logEvents commits, in one transaction, the events whose ids lie between "from" and "to", both included.
func logEvents(ctx context.Context, s store.Store, lease store.Lease, sequence, from, to uint64) error {
	got, err := s.Commit(ctx, lease, store.Commit{Sequence: sequence, Events: someEvents(from, to)})
	return expect(fmt.Sprintf("events %d to %d", from, to), got, err, store.AppliedNow)
}

// The function `logged` begins a run with events 1 to 3, and returns its lease.
func logged(ctx context.Context, s store.Store, run string) (store.Lease, error) {
	lease, _, err := s.Acquire(ctx, run, "owner", ttl)
	if err != nil {
		return lease, err
	}
	spec := aSpec(run)
	got, err := s.Commit(ctx, lease, store.Commit{
		Sequence: 1, Run: record("run"), Spec: &spec, Status: machine.RunRunning, Events: someEvents(1, 3),
		Nodes: []store.NodeRecord{{Node: "a", Columns: data("ready")}},
	})
	return lease, expect("the first commit", got, err, store.AppliedNow)
}

// expectLog returns an error unless LoadEvents returns exactly the events with the ids from "first" to "last", and Load returns "last" as the
// LastEvent.
func expectLog(ctx context.Context, s store.EventStore, run string, first, last uint64) error {
	r, err := s.Load(ctx, run)
	if err != nil {
		return err
	}
	page, err := s.LoadEvents(ctx, run, 0, store.MaxPage)
	if err != nil {
		return err
	}
	for i := range page.Events {
		page.Events[i].Data = compact(page.Events[i].Data)
	}
	var want []store.EventRecord
	for _, e := range someEvents(first, last) {
		want = append(want, store.EventRecord{ID: e.ID, Data: compact(e.Data)})
	}
	return errors.Join(same("the events of run "+run, page.Events, want), same("First", page.First, first), same("Last", page.Last, last),
		same("LastEvent of the loaded run", r.LastEvent, last), same("the events of the loaded run", len(r.Events), 0))
}

func eventsStored(ctx context.Context, s store.EventStore) error {
	lease, err := logged(ctx, s, "r")
	if err != nil {
		return err
	}
	if err := expectLog(ctx, s, "r", 1, 3); err != nil {
		return err
	}
	if err := logEvents(ctx, s, lease, 2, 4, 4); err != nil {
		return err
	}
	got, err := s.Commit(ctx, lease, store.Commit{Sequence: 3, Status: machine.RunCompleted, Events: someEvents(5, 7)})
	if err := expect("the end", got, err, store.AppliedNow); err != nil {
		return err
	}
	return expectLog(ctx, s, "r", 1, 7)
}

func eventPages(ctx context.Context, s store.EventStore) error {
	lease, err := logged(ctx, s, "r")
	if err == nil {
		err = logEvents(ctx, s, lease, 2, 4, 40)
	}
	if err != nil {
		return err
	}
	for _, limit := range []int{1, 2, 7, 40, store.MaxPage} {
		for after := uint64(0); after < 40; {
			page, err := s.LoadEvents(ctx, "r", after, limit)
			if err != nil {
				return err
			}
			if len(page.Events) == 0 || len(page.Events) > limit || page.Last != 40 {
				return fmt.Errorf("after %d with limit %d: %d events of those up to %d", after, limit, len(page.Events), page.Last)
			}
			for _, e := range page.Events {
				if after++; e.ID != after {
					return fmt.Errorf("limit %d: event %d instead of %d", limit, e.ID, after)
				}
			}
		}
	}
	for _, after := range []uint64{40, 41, 1 << 32, 1<<64 - 1} {
		page, err := s.LoadEvents(ctx, "r", after, 10)
		if err != nil || len(page.Events) > 0 || page.Last != 40 {
			return fmt.Errorf("after %d: %d events, up to %d, %w", after, len(page.Events), page.Last, err)
		}
	}
	return nil
}

func anyEvents(ctx context.Context, s store.EventStore) error {
	lease, err := logged(ctx, s, "r")
	if err != nil {
		return err
	}
	var events []store.EventRecord
	for i, text := range []string{"", `"\`, "é ü 東京 🚀", strings.Repeat("x", 70<<10), strings.Repeat("é", 100<<10), "a\u0000b\u2028<>&"} {
		quoted, err := json.Marshal(text)
		if err != nil {
			return err
		}
		events = append(events, store.EventRecord{ID: uint64(4 + i), Data: quoted})
	}
	got, err := s.Commit(ctx, lease, store.Commit{Sequence: 2, Events: events})
	if err := expect("events of many kinds", got, err, store.AppliedNow); err != nil {
		return err
	}
	page, err := s.LoadEvents(ctx, "r", 3, 100)
	if err != nil {
		return err
	}
	for i := range page.Events {
		page.Events[i].Data = compact(page.Events[i].Data)
		events[i].Data = compact(events[i].Data)
	}
	return same("events of many kinds", page.Events, events)
}

func eventsBegin(ctx context.Context, s store.EventStore) error {
	lease, err := begun(ctx, s, "r")
	if err == nil {
		err = logEvents(ctx, s, lease, 2, 21, 23)
	}
	if err == nil {
		err = logEvents(ctx, s, lease, 3, 24, 24)
	}
	if err == nil {
		err = expectLog(ctx, s, "r", 21, 24)
	}
	if err != nil {
		return err
	}
	var gap *event.GapError
	if _, err := store.ReadEvents(ctx, s, "r", 19, 10); !errors.As(err, &gap) || gap.First != 21 {
		return fmt.Errorf("events before the first one: %w", err)
	}
	return nil
}

func eventsFollow(ctx context.Context, s store.EventStore) error {
	lease, err := logged(ctx, s, "r")
	if err != nil {
		return err
	}
	return unchanged(ctx, s, func() error {
		for what, events := range map[string][]store.EventRecord{
			"a hole": someEvents(5, 6), "an event again": someEvents(3, 4), "the log again": someEvents(1, 4), "no id": {{Data: anEvent(1).Data}},
			"a hole within": {anEvent(4), anEvent(6)}, "an event twice": {anEvent(4), anEvent(4)}, "a wrong order": {anEvent(5), anEvent(4)},
		} {
			got, err := s.Commit(ctx, lease, store.Commit{Sequence: 2, Events: events, Nodes: []store.NodeRecord{{Node: "b", Columns: data("ready")}}})
			if err := expect(what, got, err, store.Conflict); err != nil {
				return err
			}
		}
		return expectLog(ctx, s, "r", 1, 3)
	})
}

func eventsWhole(ctx context.Context, s store.EventStore) error {
	lease, err := logged(ctx, s, "r")
	if err != nil {
		return err
	}
	next := someEvents(4, 5)
	for what, c := range map[string]store.Commit{
		"a gap in the sequence": {Sequence: 3}, "an attempt that has not begun": {Sequence: 2, Completed: []store.Attempt{{Node: "a", Attempt: 1}}},
		"a reset without a redrive": {Sequence: 2, Reset: []string{"a"}}, "the second attempt": {Sequence: 2, Started: []store.Attempt{{Node: "a", Attempt: 2}}},
	} {
		c.Events = next
		if got, err := s.Commit(ctx, lease, c); err != nil || got == store.AppliedNow {
			return fmt.Errorf("%s: %v, %w", what, got, err)
		}
	}
	_, err = s.Commit(ctx, lease, store.Commit{Sequence: 2, Events: next, Readiness: []store.Readiness{{Node: "a", By: 2, Required: 1}}})
	if err := expectError("too many predecessors", err, store.ErrReadinessOverflow); err != nil {
		return err
	}
	if err := expectLog(ctx, s, "r", 1, 3); err != nil {
		return err
	}
	return errors.Join(logEvents(ctx, s, lease, 2, 4, 5), expectLog(ctx, s, "r", 1, 5))
}

func eventsOnce(ctx context.Context, s store.EventStore) error {
	lease, err := logged(ctx, s, "r")
	if err != nil {
		return err
	}
	again := store.Commit{Sequence: 2, Events: someEvents(4, 5)}
	for _, want := range []store.Applied{store.AppliedNow, store.Duplicate, store.Duplicate} {
		again.Events = someEvents(4, 5)
		got, err := s.Commit(ctx, lease, again)
		if err := expect("the same commit again", got, err, want); err != nil {
			return err
		}
	}
	got, err := s.Commit(ctx, lease, store.Commit{Sequence: 1, Events: someEvents(6, 6)})
	if err := expect("an old commit", got, err, store.Stale); err != nil {
		return err
	}
	return expectLog(ctx, s, "r", 1, 5)
}

func eventsFenced(ctx context.Context, s store.EventStore) error {
	old, err := logged(ctx, s, "r")
	if err != nil {
		return err
	}
	if err := s.Release(ctx, old); err != nil {
		return err
	}
	lease, _, err := s.Acquire(ctx, "r", "next", ttl)
	if err != nil {
		return err
	}
	if _, err := s.Commit(ctx, old, store.Commit{Sequence: 2, Events: someEvents(4, 6)}); !errors.Is(err, store.ErrFenced) {
		return fmt.Errorf("events of the former owner: %v", err)
	}
	if err := expectLog(ctx, s, "r", 1, 3); err != nil {
		return err
	}
	return errors.Join(logEvents(ctx, s, lease, 2, 4, 4), expectLog(ctx, s, "r", 1, 4))
}

func eventsGoOn(ctx context.Context, s store.EventStore) error {
	for sequence, last := uint64(1), uint64(3); sequence < 5; sequence, last = sequence+1, last+2 {
		lease, r, err := s.Acquire(ctx, "r", "owner", ttl)
		if err != nil {
			return err
		}
		want := last
		if sequence == 1 {
			if _, err := logged(ctx, s, "r"); err != nil { // acquires the run again
				return err
			}
			want = 0
			lease.Epoch++
		}
		if err := same("LastEvent of the acquired run", r.LastEvent, want); err != nil {
			return err
		}
		if err := logEvents(ctx, s, lease, sequence+1, last+1, last+2); err != nil {
			return err
		}
		if err := s.Release(ctx, lease); err != nil {
			return err
		}
	}
	return expectLog(ctx, s, "r", 1, 11)
}

func eventsRedriven(ctx context.Context, s store.EventStore) error {
	lease, err := logged(ctx, s, "r")
	if err != nil {
		return err
	}
	for i, c := range []store.Commit{
		{Status: machine.RunFailed, Events: someEvents(4, 4)},
		{Reopen: true, Reset: []string{"a"}, Status: machine.RunRunning, Events: someEvents(5, 6)},
		{Status: machine.RunCompleted, Events: someEvents(7, 7)},
	} {
		c.Sequence = uint64(i + 2)
		got, err := s.Commit(ctx, lease, c)
		if err := expect(c.Status.String(), got, err, store.AppliedNow); err != nil {
			return err
		}
	}
	return expectLog(ctx, s, "r", 1, 7)
}

func eventsApart(ctx context.Context, s store.EventStore) error {
	for i, run := range []string{"r", "R", "é", "r2"} {
		lease, err := logged(ctx, s, run)
		if err == nil && i > 0 {
			err = logEvents(ctx, s, lease, 2, 4, uint64(3+i))
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(expectLog(ctx, s, "r", 1, 3), expectLog(ctx, s, "R", 1, 4), expectLog(ctx, s, "é", 1, 5), expectLog(ctx, s, "r2", 1, 6))
}

func eventsNone(ctx context.Context, s store.EventStore) error {
	lease, _, err := s.Acquire(ctx, "r", "owner", ttl)
	if err != nil {
		return err
	}
	page, err := s.LoadEvents(ctx, "r", 0, 10)
	if err := errors.Join(err, same("of a run that has not begun", page, store.EventPage{})); err != nil {
		return err
	}
	spec := aSpec("r")
	got, err := s.Commit(ctx, lease, store.Commit{Sequence: 1, Run: record("run"), Spec: &spec, Status: machine.RunRunning})
	if err := expect("the first commit", got, err, store.AppliedNow); err != nil {
		return err
	}
	page, err = s.LoadEvents(ctx, "r", 0, 10)
	return errors.Join(err, same("of a run without events", page, store.EventPage{Begun: true, Status: machine.RunRunning, Workflow: spec.Workflow}))
}

func eventsUnknown(ctx context.Context, s store.EventStore) error {
	_, err := s.LoadEvents(ctx, "nobody", 0, 10)
	return expectError("LoadEvents", err, store.ErrUnknownRun)
}

func eventsCancelled(ctx context.Context, s store.EventStore) error {
	if _, err := logged(ctx, s, "r"); err != nil {
		return err
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err := s.LoadEvents(ended, "r", 0, 10)
	return expectError("LoadEvents", err, context.Canceled)
}

// eventsOneMoment: each page that LoadEvents returns shows the run at one moment, even while commits log events and change the status of the run.
func eventsOneMoment(ctx context.Context, s store.EventStore) error {
	const commits = 60
	lease, err := logged(ctx, s, "r")
	if err != nil {
		return err
	}
	written := make(chan error, 1)
	go func() {
		for i := range uint64(commits) {
			status := []machine.RunStatus{machine.RunSuspended, machine.RunRunning}[i%2]
			got, err := s.Commit(ctx, lease, store.Commit{Sequence: i + 2, Status: status, Events: someEvents(i+4, i+4)})
			if err := expect("a commit", got, err, store.AppliedNow); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	for over := false; ; {
		page, err := s.LoadEvents(ctx, "r", 0, store.MaxPage)
		if err == nil {
			want := []machine.RunStatus{machine.RunRunning, machine.RunSuspended}[(page.Last+1)%2]
			if len(page.Events) != int(page.Last) || page.Status != want || over && page.Last != commits+3 {
				err = fmt.Errorf("%d events up to %d, and the run is %v instead of %v", len(page.Events), page.Last, page.Status, want)
			}
		}
		switch {
		case over:
			return err
		case err != nil:
			return errors.Join(err, <-written)
		}
		select {
		case err := <-written:
			if over = true; err != nil {
				return err
			}
		default:
		}
	}
}

func eventsNotified(ctx context.Context, s store.EventStore) error {
	n, ok := s.(store.EventNotifier)
	if !ok {
		return nil
	}
	lease, err := logged(ctx, s, "r")
	if err != nil {
		return err
	}
	other, err := logged(ctx, s, "other")
	if err != nil {
		return err
	}
	changed, stop := n.NotifyEvents("r")
	defer stop()
	if err := logEvents(ctx, s, other, 2, 4, 4); err != nil {
		return err
	}
	select {
	case <-changed:
		return errors.New("a reader was notified of the events of another run")
	default:
	}
	if err := logEvents(ctx, s, lease, 2, 4, 4); err != nil {
		return err
	}
	select {
	case <-changed:
		return nil
	default:
		return errors.New("a reader was not notified of stored events")
	}
}

func eventsPruned(ctx context.Context, s store.EventStore) error {
	admin, ok := s.(store.Admin)
	if !ok {
		return nil
	}
	for _, run := range []string{"kept", "r"} { // r is created last: a store may reuse the row number of the newest run once that run is pruned
		lease, err := logged(ctx, s, run)
		if err != nil {
			return err
		}
		c := store.Commit{Sequence: 2, Events: someEvents(4, 5)}
		if run == "r" {
			c.Status = machine.RunFailed
		}
		got, err := s.Commit(ctx, lease, c)
		if err := errors.Join(expect("the end", got, err, store.AppliedNow), s.Release(ctx, lease)); err != nil {
			return err
		}
	}
	if _, err := admin.Prune(ctx, store.PruneQuery{EndedBefore: future}); err != nil {
		return err
	}
	_, err := s.LoadEvents(ctx, "r", 0, 10)
	if err := errors.Join(expectError("events of the pruned run", err, store.ErrUnknownRun), expectLog(ctx, s, "kept", 1, 5)); err != nil {
		return err
	}
	_, _, err = admin.Create(ctx, aRun("r", "again", store.Refuse))
	if err != nil {
		return err
	}
	page, err := s.LoadEvents(ctx, "r", 0, 10)
	if err := errors.Join(err, same("the log of the next run of this id", page, store.EventPage{Workflow: aSpec("again").Workflow})); err != nil {
		return err
	}
	if _, _, err = admin.Create(ctx, aRun("r", "replaced", store.Replace)); err != nil {
		return err
	}
	if _, err := logged(ctx, s, "r"); err != nil {
		return err
	}
	return expectLog(ctx, s, "r", 1, 3)
}

func eventsExported(ctx context.Context, open func() store.EventStore) error {
	from, to := open(), open()
	admin, ok := to.(store.Admin)
	if !ok {
		return nil
	}
	lease, err := begun(ctx, from, "r")
	if err == nil {
		err = logEvents(ctx, from, lease, 2, 11, 11+store.MaxPage) // one more than a page
	}
	if err != nil {
		return err
	}
	var file bytes.Buffer
	if err := store.Export(ctx, from, "r", &file); err != nil {
		return err
	}
	if _, err := store.Import(ctx, admin, &file); err != nil {
		return err
	}
	before, failed := from.Load(ctx, "r")
	after, err := to.Load(ctx, "r")
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if err := same("the imported run", normal(after), normal(before)); err != nil {
		return err
	}
	for _, id := range []uint64{10, 10 + store.MaxPage} { // before the first and before the last event
		page, err := to.LoadEvents(ctx, "r", id, 1)
		if err != nil || len(page.Events) != 1 || page.First != 11 || page.Events[0].ID != id+1 {
			return fmt.Errorf("the imported event after %d: %+v, %w", id, page, err)
		}
		if string(compact(page.Events[0].Data)) != string(compact(anEvent(id+1).Data)) {
			return fmt.Errorf("event %d is imported as %s", id+1, page.Events[0].Data)
		}
	}
	next, _, err := to.Acquire(ctx, "r", "owner", ttl)
	if err != nil {
		return err
	}
	return logEvents(ctx, to, next, before.Sequence+1, before.LastEvent+1, before.LastEvent+1)
}

// engineEvents performs a run by two calls of Execute. The second call has the signal for the gate. Then engineEvents compares the stored log with
// the events that OnEvent received.
func engineEvents(ctx context.Context, s store.EventStore) error {
	g := (&kahn.Graph{Name: "logged"}).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"a"}}, kahn.Node{ID: "b", After: []string{"gate"}})
	step := func(_ context.Context, step *kahn.Step) (any, error) {
		step.Emit("é of " + step.ID())
		return step.ID(), nil
	}
	opts := []kahn.Option{kahn.RunID("r"), kahn.Durable(s), kahn.StoreEvents()}
	var seen []string
	for _, signals := range []map[string]any{nil, {"gate": "yes"}} {
		_, err := kahn.Execute(ctx, g, step, append(opts, kahn.EarlySignals(signals), kahn.OnEvent(func(e kahn.Event) { seen = append(seen, e.String()) }))...)
		if err != nil {
			return err
		}
	}
	log, err := store.OpenEvents(ctx, s, "r")
	if err != nil {
		return err
	}
	following, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var stored []string
	for e, err := range log.Events(following, 0) {
		if err != nil {
			return err
		}
		stored = append(stored, e.String())
	}
	return same("the events that are stored", stored, seen)
}
