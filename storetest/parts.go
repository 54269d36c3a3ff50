package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// runParts are the parts of a commit that change the run. Each function sets one part of a commit and the same part of the run that must then be
// stored. The parts depend on the number of the commit.
var runParts = []struct {
	name string
	set  func(i int, c *store.Commit, r *store.Run)
}{
	{"Run", func(i int, c *store.Commit, r *store.Run) {
		c.Run = record(fmt.Sprint("run ", i))
		r.Record = c.Run
	}},
	{"Status", func(_ int, c *store.Commit, r *store.Run) {
		c.Status = machine.RunSuspended
		if r.Status == machine.RunSuspended {
			c.Status = machine.RunRunning
		}
		r.Status = c.Status
	}},
	{"WakeAt", func(i int, c *store.Commit, r *store.Run) {
		c.WakeAt = time.Date(2031, 2, 3, 4, 5, i, 0, time.UTC)
		r.WakeAt = c.WakeAt
	}},
	{"Compensation", func(_ int, c *store.Commit, r *store.Run) {
		r.Compensation = (r.Compensation + 1) % (machine.CompensationFailed + 1)
		c.Compensation = undoing(r.Compensation)
	}},
	{"Usage", func(i int, c *store.Commit, r *store.Run) {
		c.Usage, r.Usage = map[string]float64{"tokens": float64(i)}, map[string]float64{"tokens": float64(i)}
	}},
	{"Spec", func(i int, c *store.Commit, r *store.Run) {
		given := aSpec(fmt.Sprint(i))
		c.Spec, r.Spec = &given, aSpec(fmt.Sprint(i))
	}},
}

// partsStored commits to many runs at once, since a store may write their commits together, see partsOfRun.
func partsStored(ctx context.Context, s store.Store) error {
	leases := make([]store.Lease, competitors)
	for i := range leases {
		var err error
		if leases[i], err = begun(ctx, s, fmt.Sprint("r", i)); err != nil {
			return err
		}
	}
	return errors.Join(compete(func(i int) error {
		if err := partsOfRun(ctx, s, leases[i], 7*i); err != nil {
			return fmt.Errorf("run %d: %w", i, err)
		}
		return nil
	})...)
}

// partsOfRun: a commit replaces each part of the run that it has, and leaves the other parts unchanged, except WakeAt, which it always replaces. It makes
// no difference whether the commit also writes the record of a node, only a counter of a node, or no node. The parameter "first" is the position of
// the first commit in the list of commits.
func partsOfRun(ctx context.Context, s store.Store, lease store.Lease, first int) error {
	node := store.Node{Columns: data("ready"), State: store.State{Queued: true}}
	want := store.Run{ID: lease.Run, Record: record("run"), Status: machine.RunRunning, Sequence: 1}
	all := 1<<len(runParts) - 1 // a set of parts is a number that has a bit for each part
	sets := []int{all}
	for part := range runParts {
		sets = append(sets, 0, 1<<part, all&^(1<<part)) // the empty set removes WakeAt, so the next commit does not change WakeAt
	}
	kinds := []string{"no node", "the record of a node", "a counter of a node"}
	for i := range len(kinds) * len(sets) {
		at := (first + i) % (len(kinds) * len(sets))
		nodes, set := kinds[at/len(sets)], sets[at%len(sets)]
		want.Sequence++
		want.WakeAt = time.Time{}
		c, what := store.Commit{Sequence: want.Sequence}, "a commit of "+nodes
		for part, p := range runParts {
			if set&(1<<part) != 0 {
				p.set(int(want.Sequence), &c, &want)
				what += ", " + p.name
			}
		}
		switch nodes {
		case "the record of a node":
			node.Columns = data(fmt.Sprint(c.Sequence))
			c.Nodes = []store.NodeRecord{{Node: "a", Columns: node.Columns}}
		case "a counter of a node":
			node.Resolved, node.Required = node.Resolved+1, 1000
			c.Readiness = []store.Readiness{{Node: "a", By: 1, Required: 1000}}
		}
		want.Nodes = map[string]store.Node{"a": node}
		got, err := s.Commit(ctx, lease, c)
		if err := expect(what, got, err, store.AppliedNow); err != nil {
			return err
		}
		r, err := s.Load(ctx, lease.Run)
		if err != nil {
			return err
		}
		if err := same(what, normal(r), normal(&want)); err != nil {
			return err
		}
	}
	return nil
}
