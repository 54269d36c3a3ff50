package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// The function `same` returns an error if the value "got" differs from the value "want".
func same[T any](what string, got, want T) error {
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s: %+v instead of %+v", what, got, want)
	}
	return nil
}

// normalSpec returns a Spec with its inputs in a normal form.
func normalSpec(s store.Spec) store.Spec {
	s.Inputs = compact(s.Inputs)
	return s
}

// aSpec returns a Spec with every part set. The parts depend on the text.
func aSpec(text string) store.Spec {
	return store.Spec{
		Workflow: "orders " + text, Plan: "plan-" + text, Inputs: json.RawMessage(fmt.Sprintf(`{"n": 12345678901234567890, "text": %q}`, text)),
		Labels: map[string]string{"tenant": text, "région": "Île"}, Parent: "parent of " + text,
		Key: "key of " + text, Priority: len(text) - 3,
	}
}

// specCommit returns a commit with a Spec. Only the first commit has a record of the run.
func specCommit(i int, s *store.Spec) store.Commit {
	c := store.Commit{Sequence: uint64(i + 1), Spec: s, Nodes: []store.NodeRecord{{Node: "a", Columns: data("running")}}}
	if i == 0 {
		c.Run = record("run")
	}
	return c
}

func specStored(ctx context.Context, s store.Store) error {
	lease, _, err := s.Acquire(ctx, "r", "owner", ttl)
	if err != nil {
		return err
	}
	spec := func(text string) *store.Spec {
		x := aSpec(text)
		switch text {
		case "":
			x = store.Spec{}
		case "without labels":
			x.Labels = nil
		}
		return &x
	}
	for i, row := range []struct {
		given *store.Spec
		want  string
	}{{spec("first"), "first"}, {nil, "first"}, {spec("without labels"), "without labels"}, {spec(""), ""}, {spec("last"), "last"}} {
		got, err := s.Commit(ctx, lease, specCommit(i, row.given))
		if err := expect(fmt.Sprint("commit ", i+1), got, err, store.AppliedNow); err != nil {
			return err
		}
		r, err := s.Load(ctx, "r")
		if err != nil {
			return err
		}
		if err := same("the Spec that is loaded", normalSpec(r.Spec), normalSpec(*spec(row.want))); err != nil {
			return err
		}
		if r.Labels["tenant"] != "" {
			r.Labels["tenant"] = "changed by who has loaded it"
		}
	}
	_ = s.Release(ctx, lease)
	_, r, err := s.Acquire(ctx, "r", "next", ttl)
	if err != nil {
		return err
	}
	return same("the Spec that the next owner gets", normalSpec(r.Spec), normalSpec(*spec("last")))
}

// The function `about` returns an error unless t lies between begin and now. It tolerates a difference of a minute, since the clock of a store may
// differ a little.
func about(what string, t, begin time.Time) error {
	if early, late := begin.Add(-time.Minute), time.Now().Add(time.Minute); t.Before(early) || t.After(late) {
		return fmt.Errorf("%s: %v instead of a time between %v and %v", what, t, early, late)
	}
	return nil
}

func runTimes(ctx context.Context, s store.Store) error {
	begin := time.Now()
	lease, made, err := s.Acquire(ctx, "r", "owner", ttl)
	if err != nil {
		return err
	}
	for i, status := range []machine.RunStatus{machine.RunRunning, machine.RunSuspended, machine.RunRunning, machine.RunFailed} {
		got, err := s.Commit(ctx, lease, store.Commit{Sequence: uint64(i + 1), Run: record("run"), Status: status})
		if err := expect(status.String(), got, err, store.AppliedNow); err != nil {
			return err
		}
		r, err := s.Load(ctx, "r")
		if err != nil {
			return err
		}
		err = same("Created of a later Load", r.Created.UTC().Truncate(time.Millisecond), made.Created.UTC().Truncate(time.Millisecond))
		if err == nil && status.Terminal() == r.Ended.IsZero() {
			err = fmt.Errorf("the run is %v, and has ended at %v", status, r.Ended)
		}
		if err != nil {
			return err
		}
		if status.Terminal() {
			err = about("Ended", r.Ended, begin)
		}
		if err := errors.Join(err, about("Created", r.Created, begin)); err != nil {
			return err
		}
	}
	return nil
}
