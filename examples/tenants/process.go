package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// process is one of the processes of the service: a Runner with its own connection to the file.
type process struct {
	db     *sqlite.Store
	runner *kahn.Runner
	served chan error // receives the result of Serve
}

// open connects a process to the file.
func open(file string, runner *kahn.Runner) (*process, error) {
	db, err := sqlite.Open(file, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	return &process{db: db, runner: runner}, nil
}

// serve calls f on a goroutine. The function f must perform the runs of the file until the Runner's Shutdown is called.
func (p *process) serve(f func() error) {
	p.served = make(chan error, 1)
	go func() { p.served <- f() }()
}

// close shuts the Runner down, waits until the goroutine of serve has ended, and closes the file.
func (p *process) close() error {
	grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := p.runner.Shutdown(grace)
	if p.served != nil {
		err = errors.Join(err, <-p.served)
	}
	return errors.Join(err, p.db.Close())
}

// The method `ended` waits until all runs of the file have completed. It returns an error if a run ends in another way.
func (p *process) ended(ctx context.Context) error {
	for {
		counts, err := p.db.Count(ctx, store.Filter{})
		if err != nil {
			return err
		}
		left := 0
		for _, c := range counts {
			switch {
			case !c.Status.Terminal():
				left += c.Runs
			case c.Status != kahn.RunCompleted:
				return fmt.Errorf("%d runs are %v", c.Runs, c.Status)
			}
		}
		if left == 0 {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// pause waits for the duration d. If ctx ends first, pause returns the cause.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// load is the number of runs of a tenant.
type load struct {
	tenant string
	runs   int
}

// work describes runs that several processes share, and the bounds on these runs.
type work struct {
	graph     *kahn.Graph
	processes int
	places    int // how many runs each process performs at once
	keyRuns   int
	shared    *kahn.Shared // bounds the steps of all processes together, or nil. The method `perform` gives each process a copy with that process's Store.
	keyless   bool         // the runs have no keys
	runs      []load
}

// perform creates the runs in the order of w.runs, and performs them. It returns an error if a run does not complete.
func (w *work) perform(ctx context.Context, file string) (err error) {
	processes := make([]*process, w.processes)
	for i := range processes {
		p, err := open(file, &kahn.Runner{MaxRuns: w.places})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.close()) }()
		if w.shared != nil {
			shared := *w.shared
			shared.Store, p.runner.Shared = p.db, &shared
		}
		processes[i] = p
	}
	for _, l := range w.runs {
		if err := w.create(ctx, processes[0].db, l); err != nil {
			return err
		}
	}
	for _, p := range processes {
		p.serve(func() error {
			return p.runner.Serve(ctx, kahn.Service{Store: p.db, Workflows: []kahn.Workflow{{Graph: w.graph}}, KeyRuns: w.keyRuns})
		})
	}
	return processes[0].ended(ctx)
}

// create creates the runs of one tenant. All these runs are due immediately.
func (w *work) create(ctx context.Context, db *sqlite.Store, l load) error {
	for i := range l.runs {
		options := []kahn.Option{kahn.RunID(fmt.Sprintf("%s-%d", l.tenant, i+1)), kahn.Inputs(map[string]any{"tenant": l.tenant})}
		if !w.keyless {
			options = append(options, kahn.RunKey(l.tenant))
		}
		n, err := kahn.Prepare(w.graph, options...)
		if err != nil {
			return err
		}
		if _, _, err := db.Create(ctx, n); err != nil {
			return err
		}
	}
	return nil
}
