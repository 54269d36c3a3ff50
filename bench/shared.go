package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// sharers is the number of Runners that share a limit. Each Runner opens the store itself, like a Runner in a process of its own. sharerPlaces is the
// limit of each Runner.
const sharers, sharerPlaces = 3, 8

// sharedThroughput measures the cost of a shared limit. This limit equals the sum of the Runners' own limits. sharedThroughput divides the time of
// the runs without the shared limit by the time of the runs with it.
func sharedThroughput(out io.Writer, s *server, rounds int) (err error) {
	dir, err := os.MkdirTemp("", "kahn-bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	stores := []struct {
		name string
		open func() (store.Store, func() error, error)
	}{
		{"SQLite", func() (store.Store, func() error, error) {
			db, err := sqlite.Open(filepath.Join(dir, "grants.db"), sqlite.Options{})
			if err != nil {
				return nil, nil, err
			}
			return db, db.Close, nil
		}},
		{"PostgreSQL", func() (store.Store, func() error, error) {
			pool, err := pgxpool.NewWithConfig(context.Background(), s.pool.Config())
			if err != nil {
				return nil, nil, err
			}
			db, err := postgres.Open(context.Background(), pool, postgres.Options{})
			if err != nil {
				pool.Close()
				return nil, nil, err
			}
			return db, func() error { defer pool.Close(); return db.Close() }, nil
		}},
	}
	t := table{header: []string{"store", "runs of each Runner", "a step takes, ms", "throughput / without the limit"}}
	for _, st := range stores {
		opened := make([]store.Store, 0, sharers)
		for range sharers {
			db, closes, err := st.open()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, closes()) }()
			opened = append(opened, db)
		}
		for _, x := range []struct {
			runs  int
			lasts time.Duration
		}{{1, 5 * time.Millisecond}, {40, 5 * time.Millisecond}, {1, 20 * time.Millisecond}} {
			var ratios []float64
			for range rounds {
				without, err := performShared(nil, x.runs, x.lasts)
				if err != nil {
					return err
				}
				with, err := performShared(opened, x.runs, x.lasts)
				if err != nil {
					return err
				}
				ratios = append(ratios, without.Seconds()/with.Seconds())
			}
			t.add(st.name, fmt.Sprint(x.runs), fmt.Sprint(x.lasts.Milliseconds()), fmt.Sprintf("%.2f", median(ratios)))
		}
	}
	fmt.Fprintf(out, "\n### A limit that %d Runners share, equal to their %d places each\n\n", sharers, sharerPlaces)
	t.print(out)
	return nil
}

// performShared returns how long the Runners take for their runs. Each Runner performs 2,000 steps, in the given number of runs, one run after the
// other. The Runners share a limit if `stores` is not nil.
func performShared(stores []store.Store, runs int, lasts time.Duration) (time.Duration, error) {
	g := new(kahn.Graph)
	for i := range 2000 / runs {
		g.Add(kahn.Node{ID: fmt.Sprint("n", i)})
	}
	step := func(ctx context.Context, _ *kahn.Step) (any, error) {
		time.Sleep(lasts)
		return true, ctx.Err()
	}
	errs := make([]error, sharers)
	var all sync.WaitGroup
	began := time.Now()
	for i := range sharers {
		rn := &kahn.Runner{Limit: sharerPlaces}
		if stores != nil {
			rn.Shared = &kahn.Shared{Store: stores[i], Name: "bench", Limit: sharers * sharerPlaces}
		}
		all.Go(func() {
			for range runs {
				if _, err := rn.Execute(context.Background(), g, step); err != nil {
					errs[i] = err
					return
				}
			}
		})
		defer func() { _ = rn.Shutdown(context.Background()) }() // all runs have ended, so Shutdown returns no error
	}
	all.Wait()
	return time.Since(began), errors.Join(errs...)
}
