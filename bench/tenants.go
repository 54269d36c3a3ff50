package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres/localserver"
)

// The function `tenants` measures how long Due takes over PostgreSQL, for several numbers of keys and of due runs. It also measures the cost of a
// limit that Runners share.
func tenants(out io.Writer, rounds int) error {
	t := table{header: []string{"keys", "runs of each that are due", "Due, ms"}}
	err := onServer(func(s *server) error {
		if err := sharedThroughput(out, s, rounds); err != nil {
			return err
		}
		for _, x := range []struct{ keys, runs int }{{0, 100_000}, {50, 20}, {50, 2_000}, {1_000, 100}} {
			took, err := s.dueOf(x.keys, x.runs, max(rounds, 5))
			if err != nil {
				return err
			}
			keys := fmt.Sprint(x.keys)
			if x.keys == 0 {
				keys = "none"
			}
			t.add(keys, thousands(x.runs), millis(took))
		}
		return nil
	})
	if errors.Is(err, localserver.ErrNoServer) {
		_, err = fmt.Fprintln(out, "It was left out, since there is no server of PostgreSQL.")
		return err
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n### PostgreSQL: a page of the runs that are due, by keys\n\n")
	t.print(out)
	return nil
}

// dueOf returns the median time of a call of Due. For each key the store contains the given number of pending runs of one workflow, and five
// completed runs, each with the time of its turn. If keys is 0, it contains these runs once, without a key.
func (s *server) dueOf(keys, runs, rounds int) (time.Duration, error) {
	ctx := context.Background()
	if err := s.clear(); err != nil {
		return 0, err
	}
	const text = `INSERT INTO kahn.runs (sequence, epoch, expires, created, ended, id, owner, status, workflow, plan, run_key, turn, record)
SELECT 0, 0, now(), now() - interval '1 day' + n * interval '1 ms', CASE WHEN n > $3 THEN now() END, 'run-' || k || '-' || n, '',
	CASE WHEN n > $3 THEN 'completed' ELSE 'pending' END, 'w', 'p', CASE WHEN $1 > 0 THEN 'tenant-' || k ELSE '' END,
	CASE WHEN n > $3 THEN now() - n * interval '1 s' END, '' FROM generate_series(1, greatest($1, 1)) k, generate_series(1, $2) n`
	if _, err := s.pool.Exec(ctx, text, keys, runs+5, runs); err != nil {
		return 0, err
	}
	if _, err := s.pool.Exec(ctx, "VACUUM ANALYZE kahn.runs", pgx.QueryExecModeSimpleProtocol); err != nil {
		return 0, err
	}
	var took []time.Duration
	for range rounds + 1 { // the first call prepares the statement
		began := time.Now()
		page, err := s.store.Due(ctx, store.DueQuery{Queues: []store.Queue{{Workflow: "w", Plan: "p"}}})
		if err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
		if len(page.Runs) != store.DefaultPage || page.Keyed != (keys > 0) {
			return 0, fmt.Errorf("of Due: %d runs, with keys: %v", len(page.Runs), page.Keyed)
		}
	}
	took = took[1:]
	slices.Sort(took)
	return took[len(took)/2], nil
}
