package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// The check `inserted` loads runs that were inserted, and makes further commits to an inserted run that has not ended.
func inserted(ctx context.Context, s store.Admin) error {
	want := storedRun("r", 2) // the run with this number is suspended
	want.WakeAt = epoch.Add(time.Hour)
	if err := s.Insert(ctx, want); err != nil {
		return err
	}
	r, err := s.Load(ctx, "r")
	if err != nil {
		return err
	}
	if err := errors.Join(same("what is loaded", normal(r), normal(want)), same("Created", r.Created.UTC(), want.Created), same("Ended", r.Ended, time.Time{})); err != nil {
		return err
	}
	if err := unchanged(ctx, s, func() error {
		return expectError("Insert again", s.Insert(ctx, storedRun("r", 3)), store.ErrExists)
	}); err != nil {
		return err
	}
	lease, _, err := s.Acquire(ctx, "r", "owner", ttl)
	if err != nil {
		return err
	}
	for i, row := range []struct {
		c    store.Commit
		want store.Applied
	}{
		{store.Commit{Sequence: 5}, store.Duplicate},
		{store.Commit{Sequence: 6, Nodes: []store.NodeRecord{{Node: "a", Columns: data("again")}}}, store.Conflict},
		{store.Commit{Sequence: 6, Started: []store.Attempt{{Node: "b/x", Attempt: 2}}}, store.Conflict},
		{store.Commit{Sequence: 6, Started: []store.Attempt{{Node: "b/x", Attempt: 1}}, Readiness: []store.Readiness{{Node: "b/x", By: 1, Required: 2}}}, store.AppliedNow},
	} {
		got, err := s.Commit(ctx, lease, row.c)
		if err := expect(fmt.Sprint("commit ", i+1), got, err, row.want); err != nil {
			return err
		}
	}
	ended := storedRun("ended", 3)
	if err := s.Insert(ctx, ended); err != nil {
		return err
	}
	if r, err = s.Load(ctx, "ended"); err != nil {
		return err
	}
	return errors.Join(same("a run that has ended", normal(r), normal(ended)), same("Ended", r.Ended.UTC(), ended.Ended),
		expectNode(ctx, s, "r", "b/x", store.Node{Columns: data("ready"), State: store.State{Attempt: 1, Resolved: 2, Required: 2}}))
}

func insertBad(ctx context.Context, s store.Admin) error {
	for what, change := range map[string]func(r *store.Run){
		"no id": func(r *store.Run) { r.ID = "" }, "an unknown status": func(r *store.Run) { r.Status = 77 }, "no record": func(r *store.Run) { r.Record = nil },
		"no sequence": func(r *store.Run) { r.Sequence = 0 }, "an end that is missing": func(r *store.Run) { r.Status = machine.RunFailed },
		"an end that is too early": func(r *store.Run) { r.Ended = epoch }, "no time of creation": func(r *store.Run) { r.Created = time.Time{} },
		"inputs that are no object":    func(r *store.Run) { r.Inputs = json.RawMessage("7") },
		"too many predecessors":        func(r *store.Run) { r.Nodes["x"] = store.Node{State: store.State{Resolved: 2, Required: 1}} },
		"a negative attempt":           func(r *store.Run) { r.Nodes["x"] = store.Node{State: store.State{Attempt: -1}} },
		"an end without a start":       func(r *store.Run) { r.Nodes["x"] = store.Node{State: store.State{Completed: true}} },
		"an unknown node status":       func(r *store.Run) { r.Nodes["x"] = store.Node{Columns: store.Columns{Status: 99}} },
		"an unknown compensation":      func(r *store.Run) { r.Compensation = 9 },
		"a usage below zero":           func(r *store.Run) { r.Usage = map[string]float64{"tokens": -1} },
		"a usage that is not a number": func(r *store.Run) { r.Usage = map[string]float64{"tokens": math.NaN()} },
		"a pending run that has used something": func(r *store.Run) {
			r.Status, r.Sequence, r.Record, r.Nodes, r.Usage = machine.RunPending, 0, nil, nil, map[string]float64{"tokens": 1}
		},
		"a pending run with nodes": func(r *store.Run) { r.Status, r.Sequence, r.Record = machine.RunPending, 0, nil },
	} {
		r := storedRun("r", 2)
		change(r)
		if err := s.Insert(ctx, r); !errors.Is(err, machine.ErrBadValue) {
			return fmt.Errorf("%s: %v", what, err)
		}
	}
	_, err := s.Load(ctx, "r")
	return expectError("Load afterwards", err, store.ErrUnknownRun)
}

// The check `exported` copies a run twice. While the run waits, the check copies it to a second store, and continues the run there. After the end of
// the run, the check copies it to a third store, and reads the Result from the third store.
func exported(ctx context.Context, open func() store.Admin) error {
	from, to := open(), open()
	g := &kahn.Graph{Name: "copied"}
	g.Add(kahn.Node{ID: "a"}, kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []any{1, 2}}, After: []string{"a"}},
		kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"M"}}, kahn.Node{ID: "b", After: []string{"gate"}})
	calls := ""
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		calls += s.Path() + " "
		text, _ := s.Root("text") // the items of M have no root input with the name text
		return fmt.Sprint(s.Path(), " <", text, "> é"), ctx.Err()
	}
	perform := func(s store.Store, signals map[string]any, opts ...kahn.Option) (*kahn.Result, error) {
		return kahn.Execute(ctx, g, step, append(opts, kahn.Limit(1), kahn.RunID("r"), kahn.Durable(s), kahn.EarlySignals(signals))...)
	}
	if _, err := perform(from, nil, kahn.Inputs(map[string]any{"text": "x & y"})); err != nil {
		return err
	}
	carry := func(from, to store.Admin) error {
		var file bytes.Buffer
		if err := store.Export(ctx, from, "r", &file); err != nil {
			return err
		}
		text := file.String()
		id, err := store.Import(ctx, to, &file)
		if err != nil || id != "r" {
			return fmt.Errorf("what is imported: %q, %w, of %s", id, err, text)
		}
		before, failed := from.Load(ctx, "r")
		after, err := to.Load(ctx, "r")
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		_, err = store.Import(ctx, to, strings.NewReader(text))
		return errors.Join(same("the imported run", normal(after), normal(before)), expectError("Import again", err, store.ErrExists))
	}
	if err := carry(from, to); err != nil {
		return err
	}
	calls = ""
	res, err := perform(to, map[string]any{"gate": "yes"})
	if err != nil {
		return err
	}
	b, _ := res.Node("b")
	if err := errors.Join(same("the calls of the next life", calls, "b "), same[any]("the last output", b.Output, "b <x & y> é")); err != nil {
		return err
	}
	third := open()
	if err := carry(to, third); err != nil {
		return err
	}
	read, err := kahn.ReadResult(ctx, g, third, "r")
	if err != nil {
		return err
	}
	if b, _ = read.Node("b"); b.Output != "b <x & y> é" || read.Status != kahn.RunCompleted {
		return fmt.Errorf("the Result that is read is %v with %v", read.Status, b.Output)
	}
	for what, text := range map[string]string{
		"nothing": "", "no JSON": "{", "another file": `{"version": 1}`, "a later version": `{"kahn_run": 2, "run": {}}`, "no run": `{"kahn_run": 1}`,
		"an unknown member": `{"kahn_run": 1, "run": {"id": "x", "owner": "me"}}`, "two runs": `{"kahn_run": 1, "run": {"id": "x", "status": "pending", "created": "2026-01-02T03:04:05Z"}} {}`,
		"a run without an id": `{"kahn_run": 1, "run": {"status": "pending", "created": "2026-01-02T03:04:05Z"}}`, "an unknown status": `{"kahn_run": 1, "run": {"id": "x", "status": "dreaming"}}`,
	} {
		if _, err := store.Import(ctx, to, strings.NewReader(text)); !errors.Is(err, machine.ErrBadValue) {
			return fmt.Errorf("import of %s: %v", what, err)
		}
	}
	return expectError("Export of no run", store.Export(ctx, to, "nobody", new(bytes.Buffer)), store.ErrUnknownRun)
}
