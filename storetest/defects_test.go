package storetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// lossy is a correct store behind a layer that changes what is written and read.
type lossy struct {
	*store.Memory
	run, node, owner func(string) string // change the ids that callers pass
	record           func(json.RawMessage) json.RawMessage
	status           func(kahn.RunStatus) kahn.RunStatus
	lives            bool // an expired lease stays valid until another owner acquires the run
	deaf             bool // Acquire ignores its context
	late             bool // Acquire checks its context only after it has taken the lease
	final            bool // a run that has ended is not acquired

	held map[string]store.Lease
}

func through[T any](f func(T) T, x T) T {
	if f == nil {
		return x
	}
	return f(x)
}

func (s *lossy) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (store.Lease, *store.Run, error) {
	inner := ctx
	if s.deaf || s.late {
		inner = context.WithoutCancel(ctx)
	}
	l, r, err := s.Memory.Acquire(inner, through(s.run, run), through(s.owner, owner), ttl)
	switch {
	case err != nil:
		return l, nil, err
	case s.late && ctx.Err() != nil:
		return l, nil, ctx.Err()
	case s.final && r.Status.Terminal():
		_ = s.Memory.Release(inner, l)
		return store.Lease{}, nil, fmt.Errorf("%w: it is %v", kahn.ErrFinished, r.Status)
	}
	r.ID = run
	outer := store.Lease{Run: run, Owner: owner, Epoch: l.Epoch}
	if s.held == nil {
		s.held = map[string]store.Lease{}
	}
	s.held[fmt.Sprint(outer)] = l
	return outer, r, nil
}

// inner returns the lease in the store behind the layer. If s.lives is set, it acquires that lease again.
func (s *lossy) inner(ctx context.Context, l store.Lease) store.Lease {
	l, ok := s.held[fmt.Sprint(l)]
	if !ok || !s.lives {
		return l
	}
	again, _, err := s.Memory.Acquire(context.WithoutCancel(ctx), l.Run, l.Owner, time.Minute)
	if err != nil {
		return l
	}
	return again
}

func (s *lossy) Renew(ctx context.Context, l store.Lease, ttl time.Duration) error {
	return s.Memory.Renew(ctx, s.inner(ctx, l), ttl)
}

func (s *lossy) Release(ctx context.Context, l store.Lease) error {
	return s.Memory.Release(ctx, s.held[fmt.Sprint(l)])
}

func (s *lossy) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	c.Run, c.Status = through(s.record, c.Run), through(s.status, c.Status)
	nodes := make([]store.NodeRecord, len(c.Nodes))
	for i, n := range c.Nodes {
		n.Node, n.Record, n.Value = through(s.node, n.Node), through(s.record, n.Record), through(s.record, n.Value)
		nodes[i] = n
	}
	c.Nodes = nodes
	return s.Memory.Commit(ctx, s.inner(ctx, l), c)
}

func (s *lossy) Load(ctx context.Context, run string) (*store.Run, error) {
	r, err := s.Memory.Load(ctx, through(s.run, run))
	if err == nil {
		r.ID = run
	}
	return r, err
}

// TestBreadthDefects plants defects of stores that do not keep everything they are given; the named check must find each of them.
func TestBreadthDefects(t *testing.T) {
	t.Parallel()
	ascii := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r > 127 {
				return '?'
			}
			return r
		}, s)
	}
	short := func(most int) func(json.RawMessage) json.RawMessage {
		return func(data json.RawMessage) json.RawMessage {
			if len(data) > most {
				return data[:most]
			}
			return data
		}
	}
	lost := func(which kahn.RunStatus) func(kahn.RunStatus) kahn.RunStatus {
		return func(s kahn.RunStatus) kahn.RunStatus {
			if s == which {
				return kahn.RunPending
			}
			return s
		}
	}
	const apart = "ids are kept apart"
	for _, row := range []struct {
		name  string
		store lossy
		check string
	}{
		{"no defect", lossy{}, ""},
		{"an expired lease still writes", lossy{lives: true}, "whose lease has run out is fenced"},
		{"ids of runs are folded by case", lossy{run: strings.ToLower}, apart},
		{"ids of nodes are folded by case", lossy{node: strings.ToUpper}, apart},
		{"owners are folded by case", lossy{owner: strings.ToLower}, apart},
		{"ids of runs are ASCII", lossy{run: ascii}, apart},
		{"ids of nodes are ASCII", lossy{node: ascii}, apart},
		{"ids lose spaces at their end", lossy{node: func(s string) string { return strings.TrimRight(s, " ") }}, apart},
		{"ids are cut", lossy{node: func(s string) string { return s[:min(len(s), 100)] }}, apart},
		{"records are cut at 64 KiB", lossy{record: short(64 << 10)}, "records are of any size"},
		{"records are cut at 1 MiB", lossy{record: short(1 << 20)}, "records are of any size"},
		{"records are ASCII", lossy{record: func(d json.RawMessage) json.RawMessage { return json.RawMessage(ascii(string(d))) }}, "records are of any characters"},
		{"RunSuspended is lost", lossy{status: lost(kahn.RunSuspended)}, "every status of a run is stored"},
		{"RunCancelled is lost", lossy{status: lost(kahn.RunCancelled)}, "every status of a run is stored"},
		{"RunFailed is lost", lossy{status: lost(kahn.RunFailed)}, "every status of a run is stored"},
		{"RunRunning is lost", lossy{status: lost(kahn.RunRunning)}, "every status of a run is stored"},
		{"Acquire under a dead context", lossy{deaf: true}, "an acquisition under a context that has ended"},
		{"Acquire looks at its context too late", lossy{late: true}, "an acquisition under a context that has ended"},
		{"an ended run is not acquired", lossy{final: true}, "a run that has ended is acquired"},
	} {
		expectFound(t, row.name, row.check, storetest.Check, func() store.Store {
			s := row.store
			s.Memory = new(store.Memory)
			return &s
		})
	}
}

// expectFound checks stores with a defect, and fails unless the check of the given name finds it. Without a name it fails if any check
// finds something.
func expectFound[S any](t *testing.T, defect, check string, checks func(ctx context.Context, open func() S) []error, open func() S) {
	t.Run(defect, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			errs := checks(t.Context(), open)
			found := check == "" && len(errs) == 0
			for _, err := range errs {
				found = found || check != "" && strings.HasPrefix(err.Error(), check+": ")
			}
			if !found {
				t.Errorf("expected the check %q to find it, found %.2000v", check, fmt.Sprint(errs))
			}
		})
	})
}
