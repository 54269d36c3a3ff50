package sagas

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// Trial is a random saga over a store. Each process that performs the saga, except the last, dies at one of its writes (see Deaths), and the next
// process continues the run.
type Trial struct {
	Seed   uint64
	Depth  int    // the depth of nested composites
	Deaths []int  // by process: the number of the write at which the process dies, counted from 1; the process after the last entry does not die
	Kept   bool   // whether the store applies the write at which a process dies
	Run    string // the id of the run

	// Away returns when another process may take over the run. The parameter is the lease of the dead process.
	Away func(dead store.Lease)
	// CheckEvents is kahntest.CheckEvents.
	CheckEvents func(*kahn.Graph, *kahn.Result, []kahn.Event) error
}

// EachDeath performs each random saga many times. Each time the process dies at a different write. Sometimes the process that continues the run dies,
// too. If `every` is false, EachDeath skips most writes. It returns the number of runs in which a process died, and the number of nodes that were
// undone in those runs.
func EachDeath(first uint64, graphs int, every bool, perform func(Trial) *Outcome) (died, undone int) {
	for depth := range 3 {
		for i := range graphs {
			seed := first + uint64(i)
			writes := perform(Trial{Seed: seed, Depth: depth}).Writes
			r := rand.New(rand.NewPCG(seed, uint64(depth)))
			for at := 1; at <= writes; at++ {
				if !every && r.IntN(writes) > 3 {
					continue
				}
				deaths := []int{at}
				if r.IntN(3) == 0 {
					deaths = append(deaths, 1+r.IntN(8))
				}
				o := perform(Trial{Seed: seed, Depth: depth, Deaths: deaths, Kept: r.IntN(2) == 0})
				died++
				for n := range o.Result.Nodes() {
					if n.Compensation == kahn.CompensationDone {
						undone++
					}
				}
			}
		}
	}
	return died, undone
}

// Outcome describes how a Trial ended.
type Outcome struct {
	Writes int // the number of writes of the last process
	Result *kahn.Result
	Err    error // of the run
	Events []kahn.Event
	Wrong  []string
}

// String returns the defects and the events.
func (o *Outcome) String() string {
	var b strings.Builder
	if o.Result != nil {
		fmt.Fprintf(&b, "%v, %v\n", o.Result.Status, o.Err)
	}
	fmt.Fprintln(&b, strings.Join(o.Wrong, "\n"))
	for _, e := range o.Events {
		fmt.Fprintln(&b, "\t", e)
	}
	return b.String()
}

// Perform performs the saga over a store, and records the defects in the Outcome.
func (x *Trial) Perform(ctx context.Context, s store.EventStore) *Outcome {
	w := New(x.Seed)
	r := rand.New(rand.NewPCG(x.Seed, 7))
	g := w.Graph(r, x.Depth)
	opts, host := Conditions(r, func() {})
	o := new(Outcome)
	failed := func(err error) *Outcome {
		o.Wrong = append(o.Wrong, err.Error())
		return o
	}
	for life := 0; ; life++ {
		m := &doomed{EventStore: s, kept: x.Kept, dies: func() { w.dies(true) }}
		if life < len(x.Deaths) {
			m.last = x.Deaths[life]
		}
		run, err := kahn.Start(ctx, g, nil, append(slices.Clone(opts), kahn.Durable(m), kahn.RunID(x.Run), kahn.StoreEvents())...)
		switch {
		case errors.Is(err, kahn.ErrFinished): // the run had ended: the store applied the last write of the dead process
			o.Result, o.Err = kahn.ReadResult(ctx, g, s, x.Run, opts...)
		case err != nil:
			return failed(err)
		default:
			if life == 0 {
				host(run)
			}
			o.Result, o.Err = run.Wait()
		}
		if o.Wrong = append(o.Wrong, m.wrong...); m.dead {
			w.dies(false)
			x.Away(m.lease)
			continue
		}
		o.Writes = m.writes
		if o.Events, err = stored(ctx, s, x.Run); err != nil {
			return failed(err)
		}
		o.Wrong = append(o.Wrong, w.Check(g, o.Result, o.Err, o.Events)...)
		if err := x.CheckEvents(g, o.Result, o.Events); err != nil {
			return failed(err)
		}
		return o
	}
}

// The function `stored` returns the stored events of a run.
func stored(ctx context.Context, s store.EventStore, run string) (events []kahn.Event, err error) {
	for {
		page, err := store.ReadEvents(ctx, s, run, uint64(len(events)), 1000)
		if err != nil || len(page) == 0 {
			return events, err
		}
		events = append(events, page...)
	}
}

// The type `doomed` is the store of a process that dies at one write. The field `kept` is true if the store applies this write.
type doomed struct {
	store.EventStore
	lease  store.Lease
	writes int
	last   int // the write at which the process dies; 0 for none
	kept   bool
	dies   func()
	dead   bool
	wrong  []string // the differences that misledBy has found
}

var errDied = fmt.Errorf("%w: the process has died", store.ErrUnusable)

func (m *doomed) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (store.Lease, *store.Run, error) {
	l, stored, err := m.EventStore.Acquire(ctx, run, owner, ttl)
	if err == nil {
		m.lease = l
	}
	return l, stored, err
}

func (m *doomed) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if m.dead {
		return 0, errDied
	}
	if m.writes++; m.writes != m.last {
		a, err := m.EventStore.Commit(ctx, l, c)
		if wrong := misledBy(ctx, m.EventStore, l.Run); wrong != "" {
			m.wrong = append(m.wrong, fmt.Sprintf("write %d: %s", m.writes, wrong))
		}
		return a, err
	}
	m.dead = true
	if m.kept {
		_, _ = m.EventStore.Commit(ctx, l, c)
	}
	m.dies()
	return 0, errDied
}

func (m *doomed) Renew(ctx context.Context, l store.Lease, d time.Duration) error {
	if m.dead {
		return errDied
	}
	return m.EventStore.Renew(ctx, l, d)
}

func (m *doomed) Release(ctx context.Context, l store.Lease) error {
	if m.dead {
		return errDied
	}
	return m.EventStore.Release(ctx, l)
}

// misledBy checks whether the stored Compensation of a run agrees with the records of the run's nodes. If not, it describes the difference. List
// filters runs by Compensation, so a wrong value would mislead List.
func misledBy(ctx context.Context, s store.Store, run string) string {
	stored, err := s.Load(ctx, run)
	if err != nil {
		return err.Error()
	}
	has, keys := map[kahn.Status]bool{}, map[string]kahn.Status{}
	for key, n := range stored.Nodes {
		if strings.HasSuffix(key, "#undo") {
			keys[key] = n.Status
		}
	}
	for key, status := range keys {
		covered := slices.ContainsFunc(enclosing(strings.TrimSuffix(key, "#undo")), func(around string) bool { _, has := keys[around+"#undo"]; return has })
		// A node that is being undone does not count if a composite around it also has a record of a compensation.
		if status != kahn.Running || !covered {
			has[status] = true
		}
	}
	ended := kahn.CompensationNone
	switch {
	case has[kahn.Failed]:
		ended = kahn.CompensationFailed
	case has[kahn.Completed]:
		ended = kahn.CompensationDone
	}
	switch is := stored.Compensation; {
	case stored.Status.Terminal() && is == ended:
	case stored.Status.Terminal() || has[kahn.Running] && is != kahn.CompensationRunning,
		is == kahn.CompensationFailed && !has[kahn.Failed], is == kahn.CompensationDone && !has[kahn.Completed]:
		return fmt.Sprintf("the run is %v, its compensation %v, and its records are %v", stored.Status, is, keys)
	}
	return ""
}
