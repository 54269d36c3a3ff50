package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
)

// newest returns the query for the latest runs with a status.
func newest(status kahn.RunStatus) store.Query {
	return store.Query{Filter: store.Filter{Statuses: []kahn.RunStatus{status}}, Limit: 20}
}

// oldest returns the query that prunes 16 ended runs.
func oldest() store.PruneQuery { return store.PruneQuery{EndedBefore: time.Now(), Limit: 16} }

// rowsRead returns for each statement how many rows the server reads without an index and how many by indexes. The tables have the given number
// of runs.
func rowsRead(t *testing.T, pool *pgxpool.Pool, runs int) map[string][2]int {
	t.Helper()
	schema := newSchema()
	s := openStore(t, pool, schema)
	fill(t, pool, schema, runs)
	read := map[string][2]int{}
	count := func(what string, f func(tx pgx.Tx) error) {
		undone := errors.New("undone")
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			so := func() (whole, found int, err error) { // the counters of this connection that the server has not yet added to its statistics; earlier transactions count, too
				err = tx.QueryRow(t.Context(), "SELECT coalesce(sum(seq_tup_read), 0), coalesce(sum(idx_tup_fetch), 0) FROM pg_stat_xact_user_tables WHERE schemaname = $1", schema).Scan(&whole, &found)
				return whole, found, err
			}
			wholeBefore, foundBefore, failed := so()
			if err := f(tx); err != nil {
				return err
			}
			whole, found, err := so()
			read[what] = [2]int{whole - wholeBefore, found - foundBefore}
			return errors.Join(failed, err, undone)
		})
		require.ErrorIs(t, err, undone, what)
	}
	execute := func(what, text string, args []any) {
		count(what, func(tx pgx.Tx) error {
			rows, err := tx.Query(t.Context(), text, args...)
			if err == nil {
				rows.Close()
				err = rows.Err()
			}
			return err
		})
	}
	count("create", func(tx pgx.Tx) error {
		_, _, err := s.CreateTx(t.Context(), tx, store.NewRun{ID: "new", Spec: store.Spec{Workflow: "w"}})
		return err
	})
	for what, q := range map[string]func(id string) (string, []any){"acquire": s.AcquireQuery, "load": s.LoadQuery, "renew": s.RenewQuery} {
		text, args := q("order-10")
		execute(what, text, args)
	}
	text, args := s.CommitQuery([2]int64{7, 8})
	execute("commit", text, args)
	due := store.DueQuery{Queues: []store.Queue{{Workflow: "w3"}, {Workflow: "w4", Plan: "p"}}, Limit: 20}
	text, args = s.DueQuery(&due)
	execute("due", text, args)
	list := newest(kahn.RunSuspended)
	text, args, err := s.ListQuery(&list)
	require.NoError(t, err)
	execute("list", text, args)
	prune := oldest()
	require.NoError(t, prune.Check())
	text, args = s.PruneQuery(&prune)
	execute("prune", text, args)
	return read
}

// TestRowsRead: no statement reads a whole table, and no statement reads many more rows when the tables have more runs.
func TestRowsRead(t *testing.T) {
	t.Parallel()
	pool := postgrestest.NewPool(t, database)
	few, many := rowsRead(t, pool, 2000), rowsRead(t, pool, size(10_000, 1_120_000))
	t.Logf("rows read without an index, and by one: %v", many)
	for what, rows := range many {
		require.Zero(t, rows[0], "%s: rows that no index has led to", what)
		require.LessOrEqual(t, rows[1], 2*few[what][1], what) // the server may choose another plan
	}
}

// speedsOf returns functions that perform calls of a store. The tables have the given number of runs.
func speedsOf(t *testing.T, pool *pgxpool.Pool, runs int) map[string]func(i int) error {
	t.Helper()
	ctx, schema := t.Context(), newSchema()
	s := openStore(t, pool, schema)
	fill(t, pool, schema, runs)
	return map[string]func(i int) error{
		"create": func(i int) error {
			_, _, err := s.Create(ctx, store.NewRun{ID: fmt.Sprint("new-", i), Spec: store.Spec{Workflow: "w"}})
			return err
		},
		"wake": func(i int) error {
			lease, stored, err := s.Acquire(ctx, fmt.Sprintf("order-%d", 10*(i+1)), "owner", time.Minute)
			if err == nil {
				_, err = s.Commit(ctx, lease, store.Commit{Sequence: stored.Sequence + 1, Status: kahn.RunRunning})
			}
			return err
		},
		"list": func(int) error {
			_, err := s.List(ctx, newest(kahn.RunCompleted))
			return err
		},
		"prune": func(int) error {
			pruned, err := s.Prune(ctx, oldest())
			if err == nil && pruned.Runs != 16 {
				err = fmt.Errorf("%d runs were pruned", pruned.Runs)
			}
			return err
		},
	}
}

// TestSpeeds: with 1,120,000 stored runs, creating, waking, listing and pruning are about as fast as with 2000. In each of 50 rounds the test performs
// a call with few runs and then the same call with many runs, so that other load of the machine slows down both. The median of the rounds' ratios is
// about 1, and at most 2. It is above 70 if a Prune reads the whole table of runs or of nodes. Without KAHN_LONG the tables are small, and the test
// only logs the ratios.
func TestSpeeds(t *testing.T) {
	t.Parallel()
	pool := postgrestest.NewPool(t, database)
	few, many := speedsOf(t, pool, 2000), speedsOf(t, pool, size(4000, 1_120_000))
	for what := range few {
		var ratios []float64
		for i := range 50 {
			began := time.Now()
			require.NoError(t, few[what](i), what)
			between := time.Now()
			require.NoError(t, many[what](i), what)
			ratios = append(ratios, float64(time.Since(between))/float64(between.Sub(began)))
		}
		slices.Sort(ratios)
		t.Logf("%s takes %.2f times as long with many runs; from %.2f to %.2f in half of the rounds", what, ratios[25], ratios[12], ratios[37])
		if size(0, 1) == 1 {
			require.Less(t, ratios[25], 5.0, what)
		}
	}
}

// inUse returns how many bytes the process uses for the heap and the stacks, and how many objects are on the heap.
func inUse() (bytes, values int64) {
	runtime.GC()
	runtime.GC() // frees the objects whose finalizers ran in the first collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse), int64(m.HeapObjects)
}

// TestMemoryOfRuns bounds the memory of a running run, and checks that a suspended run uses no memory. No other test may run at the same time.
func TestMemoryOfRuns(t *testing.T) {
	s := openStore(t, postgrestest.NewPool(t, database), newSchema())
	runs := size(1000, 10_000)
	g := new(kahn.Graph).Add(kahn.Node{ID: "work"}, kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"work"}})
	plan, err := g.Compile()
	require.NoError(t, err)
	perform := func(prefix string, step kahn.StepFunc) *sync.WaitGroup {
		var at sync.WaitGroup
		for i := range runs {
			at.Go(func() {
				if _, err := plan.Execute(context.Background(), step, kahn.RunID(fmt.Sprint(prefix, i)), kahn.Durable(s)); err != nil {
					t.Error(err)
				}
			})
		}
		return &at
	}
	nothing := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	perform("warm", nothing).Wait()
	const rounds = 3
	var atWork []int64
	_, first := inUse()
	for round := range rounds {
		before, _ := inUse()
		var working sync.WaitGroup
		working.Add(runs)
		goOn := make(chan bool)
		open := perform(fmt.Sprint("r", round, "-"), func(context.Context, *kahn.Step) (any, error) {
			working.Done()
			<-goOn
			return nil, nil
		})
		working.Wait()
		bytes, _ := inUse()
		atWork = append(atWork, (bytes-before)/int64(runs))
		close(goOn)
		open.Wait()
	}
	_, rest := inUse()
	t.Logf("%d bytes a run at work, and %d values more after %d runs", atWork, rest-first, rounds*runs)
	require.Less(t, slices.Max(atWork), int64(40<<10))
	require.Less(t, rest-first, int64(runs)) // less than a third of an object for each suspended run
	counts, err := s.Count(t.Context(), store.Filter{Prefix: "r"})
	require.NoError(t, err)
	require.Equal(t, []store.Count{{Status: kahn.RunSuspended, Runs: rounds * runs}}, counts)
}
