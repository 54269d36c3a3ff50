package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/postgres/localserver"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// The function `operating` measures the delays that the operator of a store notices. It times the calls that concern many runs, such as Count. One
// run in ten of the store is suspended, and the others have ended. Over PostgreSQL it also measures how long a new run waits for its first step.
func operating(out io.Writer, runs int) error {
	if err := operatingSQLite(out, runs); err != nil {
		return err
	}
	err := onServer(func(s *server) error {
		if err := s.latencies(out, 300); err != nil {
			return err
		}
		return s.counts(out, runs)
	})
	if errors.Is(err, localserver.ErrNoServer) {
		_, err = fmt.Fprintln(out, "It was left out, since there is no server of PostgreSQL.")
	}
	return err
}

// latencies measures how long a call of Create takes, and how much time passes from the beginning of the call to the first step of the created run.
// One Runner serves the runs of the first row, and five Runners serve the runs of the second row. Each Runner stands for an idle process.
func (s *server) latencies(out io.Writer, samples int) error {
	t := table{header: []string{"serving processes", "Create, p50", "to the first step, p50", "p99"}}
	for _, processes := range []int{1, 5} {
		created, began, err := s.latency(processes, samples)
		if err != nil {
			return err
		}
		t.add(fmt.Sprint(processes), millis(created[samples/2]), millis(began[samples/2]), millis(began[samples*99/100]))
	}
	fmt.Fprintf(out, "\n### PostgreSQL: from Create to the first step, ms\n\n")
	t.print(out)
	return nil
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) }

func (s *server) latency(processes, samples int) (created, began []time.Duration, err error) {
	ctx := context.Background()
	if err := s.clear(); err != nil {
		return nil, nil, err
	}
	called := make(chan time.Time, 1)
	g := (&kahn.Graph{Name: "latency"}).Add(kahn.Node{ID: "only"})
	step := func(ctx context.Context, _ *kahn.Step) (any, error) {
		at := time.Now()
		called <- at
		return at.Unix(), ctx.Err()
	}
	ended := make(chan error, processes)
	var runners []*kahn.Runner
	for range processes {
		pool, err := pgxpool.New(ctx, s.pool.Config().ConnString())
		if err != nil {
			return nil, nil, err
		}
		defer pool.Close()
		own, err := postgres.Open(ctx, pool, postgres.Options{Listen: s.pool.Config().ConnString()})
		if err != nil {
			return nil, nil, err
		}
		rn := new(kahn.Runner)
		runners = append(runners, rn)
		go func() {
			err := rn.Serve(ctx, kahn.Service{Store: own, Workflows: []kahn.Workflow{{Graph: g, Step: step}}})
			ended <- errors.Join(err, own.Close())
		}()
	}
	for i := -10; i < samples && err == nil; i++ { // the first ten runs do not count, because some Runners may not listen yet
		time.Sleep(30 * time.Millisecond)
		var n store.NewRun
		if n, err = kahn.Prepare(g, kahn.RunID(fmt.Sprintf("%d-%d", processes, i))); err != nil {
			break
		}
		start := time.Now()
		if _, _, err = s.store.Create(ctx, n); err != nil {
			break
		}
		stored := time.Now()
		if first := <-called; i >= 0 {
			created, began = append(created, stored.Sub(start)), append(began, first.Sub(start))
		}
	}
	for _, rn := range runners {
		err = errors.Join(err, rn.Shutdown(ctx), <-ended)
	}
	slices.Sort(created)
	slices.Sort(began)
	return created, began, err
}

// counts measures, over PostgreSQL, the calls that concern many runs. It also prints the size of the tables before and after new runs replace the
// pruned runs.
func (s *server) counts(out io.Writer, runs int) error {
	if err := s.clear(); err != nil {
		return err
	}
	if err := s.fill(0, runs); err != nil {
		return err
	}
	filled, err := s.size()
	if err != nil {
		return err
	}
	if err := countsOf(out, "PostgreSQL", s.store, runs); err != nil {
		return err
	}
	var left int
	if err := s.pool.QueryRow(context.Background(), "SELECT count(*) FROM kahn.runs").Scan(&left); err != nil {
		return err
	}
	if err := s.fill(runs, 2*runs-left); err != nil {
		return err
	}
	refilled, err := s.size()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\nThe tables and their indexes take %d MB; %d MB after %s runs were pruned and as many added.\n", filled>>20, refilled>>20, thousands(runs-left))
	return err
}

// size returns how many bytes the tables of runs and nodes take, including their indexes.
func (s *server) size() (bytes int64, err error) {
	err = s.pool.QueryRow(context.Background(), "SELECT pg_total_relation_size('kahn.runs') + pg_total_relation_size('kahn.nodes')").Scan(&bytes)
	return bytes, err
}

// countsOf measures the calls that concern many runs, and prints their times. The heading of the table contains the name.
func countsOf(out io.Writer, name string, db store.QueueStore, runs int) error {
	ctx := context.Background()
	t := table{header: []string{"call", "ms"}}
	timed := func(name string, f func() error) error {
		var took []time.Duration
		for range 5 {
			start := time.Now()
			if err := f(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		t.add(name, millis(took[len(took)/2]))
		return nil
	}
	count := func(f store.Filter) func() error {
		return func() error { _, err := db.Count(ctx, f); return err }
	}
	queue := store.Queue{Workflow: "w1", Plan: "p1"}
	err := errors.Join(
		timed("Count of all", count(store.Filter{})),
		timed("Count of one workflow", count(store.Filter{Workflow: "w1"})),
		timed("Count of open runs", count(store.Filter{Statuses: []kahn.RunStatus{kahn.RunPending, kahn.RunRunning, kahn.RunSuspended}})),
		timed("Queues", func() error { _, err := db.Queues(ctx); return err }),
		timed("Unclaimable, which Serve asks each minute", func() error { _, err := store.Unclaimable(ctx, db); return err }),
		timed("Due", func() error { _, err := db.Due(ctx, store.DueQuery{Queues: []store.Queue{queue}}); return err }),
		timed("List, the first page", func() error { _, err := db.List(ctx, store.Query{}); return err }),
		timed("Prune of 1,000 runs", func() error {
			_, err := db.Prune(ctx, store.PruneQuery{EndedBefore: time.Now(), Limit: 1000})
			return err
		}),
	)
	if many := 50_000; err == nil && runs >= 10*many {
		start := time.Now()
		for range many / store.MaxPage {
			_, failed := db.Prune(ctx, store.PruneQuery{EndedBefore: time.Now(), Limit: store.MaxPage})
			err = errors.Join(err, failed)
		}
		t.add(fmt.Sprintf("Prune of %s runs, %s in a call", thousands(many), thousands(store.MaxPage)), millis(time.Since(start)))
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n### %s: %s runs of two nodes, a tenth of which has not ended, of 10 workflows\n\n", name, thousands(runs))
	t.print(out)
	return nil
}

// operatingSQLite measures, over an SQLite file, the calls that concern many runs.
func operatingSQLite(out io.Writer, runs int) (err error) {
	dir, err := os.MkdirTemp("", "kahn-operating-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := sqlite.Open(filepath.Join(dir, "runs.db"), sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var all errgroup.Group
	all.SetLimit(64) // many goroutines, so that several inserts share a transaction
	began := time.Now().Add(-24 * time.Hour)
	for i := range runs {
		all.Go(func() error { return db.Insert(context.Background(), filled(i, began)) })
	}
	if err := all.Wait(); err != nil {
		return err
	}
	return countsOf(out, "SQLite", db, runs)
}

// filled returns run i of the runs that fill a store. Every tenth run is suspended. The method `fill` writes similar runs.
func filled(i int, began time.Time) *store.Run {
	r := &store.Run{
		ID: fmt.Sprint("run-", i), Sequence: 4, Status: kahn.RunCompleted, Created: began.Add(time.Duration(i) * time.Millisecond), Record: json.RawMessage(`"` + strings.Repeat("x", 300) + `"`),
		Spec: store.Spec{Workflow: fmt.Sprint("w", i/10%10), Plan: fmt.Sprint("p", i/10%10)}, Nodes: map[string]store.Node{},
	}
	if r.Ended = began.Add(23*time.Hour + time.Duration(i)*time.Millisecond); i%10 == 0 {
		r.Status, r.Ended = kahn.RunSuspended, time.Time{}
	}
	for n := range 2 {
		r.Nodes[fmt.Sprint("node", n)] = store.Node{State: store.State{Terminal: true, Attempt: 1, Completed: true}, Columns: store.Columns{
			Status: kahn.Completed, Value: json.RawMessage("1"), Record: json.RawMessage(`"` + strings.Repeat("x", 200) + `"`)}}
	}
	return r
}

// The method `fill` writes the rows of the runs with the numbers first+1 to last, and vacuums the tables. Every tenth run is suspended.
func (s *server) fill(first, last int) error {
	ctx := context.Background()
	for _, text := range []string{
		`INSERT INTO kahn.runs (sequence, epoch, expires, created, ended, id, owner, status, workflow, plan, record)
SELECT 4, 1, now(), now() - interval '1 day' + n * interval '1 ms', CASE WHEN n % 10 > 0 THEN now() - interval '1 hour' + n * interval '1 ms' END, 'run-' || n, '',
	CASE WHEN n % 10 > 0 THEN 'completed' ELSE 'suspended' END, 'w' || n / 10 % 10, 'p' || n / 10 % 10, repeat('x', 300)::bytea FROM generate_series($1::int + 1, $2::int) n`,
		`INSERT INTO kahn.nodes (run, node, attempt, resolved, required, terminal, queued, completed, key, status, value, record)
SELECT r.run, n, 1, 0, 0, true, false, true, 'node' || n, 'completed', '1', repeat('x', 200)::bytea FROM kahn.runs r, generate_series(0, 1) n WHERE substr(r.id, 5)::int BETWEEN $1::int + 1 AND $2::int`,
	} {
		if _, err := s.pool.Exec(ctx, text, first, last); err != nil {
			return err
		}
	}
	_, err := s.pool.Exec(ctx, "VACUUM ANALYZE kahn.runs, kahn.nodes", pgx.QueryExecModeSimpleProtocol)
	return err
}
