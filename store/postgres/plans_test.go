package postgres_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/postgres/localserver"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
)

// fill adds runs to the tables, each with one node. A tenth of the runs are suspended, and the others have ended. A few runs have compensations.
func fill(t *testing.T, pool *pgxpool.Pool, schema string, runs int) {
	t.Helper()
	for _, text := range []string{
		"INSERT INTO runs (id, status, sequence, created, ended, epoch, owner, expires, workflow, parent, labels, compensation) " +
			"SELECT 'order-' || i, CASE WHEN i % 10 = 0 THEN 'suspended' ELSE 'completed' END, 1, now() - i * interval '1 second', CASE WHEN i % 10 > 0 THEN now() - i * interval '0.5 second' END, " +
			"1, '', '-infinity', 'w' || i % 20, 'p' || i / 10, jsonb_build_object('tenant', 't' || i % 1000), CASE i % 500 WHEN 1 THEN 'failed' WHEN 2 THEN 'running' WHEN 3 THEN 'done' END FROM generate_series(1, $1) i",
		"INSERT INTO nodes (run, node, attempt, resolved, required, terminal, queued, completed, key) SELECT run, 0, 1, 0, 0, true, false, true, 'n0' FROM runs WHERE $1 > 0",
	} {
		_, err := pool.Exec(t.Context(), strings.NewReplacer("INTO runs", "INTO "+table(schema, "runs"), "FROM runs", "FROM "+table(schema, "runs"), "INTO nodes", "INTO "+table(schema, "nodes")).Replace(text), runs)
		require.NoError(t, err)
	}
	for _, name := range []string{"runs", "nodes"} {
		_, err := pool.Exec(t.Context(), "VACUUM ANALYZE "+table(schema, name), pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
	}
}

// explain returns the plan of a statement: the plan for these arguments or, if kept is set, the generic plan of a prepared statement.
func explain(t *testing.T, pool *pgxpool.Pool, kept bool, text string, args ...any) (plan string) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if kept {
			nulls := "(NULL" + strings.Repeat(", NULL", len(args)-1) + ")"
			setUp := "SET LOCAL plan_cache_mode = force_generic_plan; PREPARE kept AS " + text
			if _, err := tx.Exec(t.Context(), setUp, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
			defer func() {
				_, err := tx.Exec(t.Context(), "DEALLOCATE kept")
				require.NoError(t, err)
			}()
			text, args = "EXECUTE kept"+nulls, []any{pgx.QueryExecModeSimpleProtocol}
		}
		rows, err := tx.Query(t.Context(), "EXPLAIN "+text, args...)
		if err != nil {
			return err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		plan = strings.Join(lines, "\n")
		return err
	})
	require.NoError(t, err)
	return plan
}

// TestPlans: every statement uses an index on large tables, and the usual lists need no sorting.
//
// The server estimates how many runs match from a random sample of the rows. If the sample happens to contain the one row with a label or a
// prefix, the server takes the label or prefix to be ten times as frequent as it is. So the test asks for a label and a prefix that no row has.
// The test has its own database. An index-only scan needs pages that VACUUM has marked as all-visible, and VACUUM marks no page while an older
// transaction of the database is open.
func TestPlans(t *testing.T) {
	t.Parallel()
	name := fmt.Sprintf("kahn_plans_%d", os.Getpid())
	own, err := localserver.CreateDatabase(database, name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, localserver.DropDatabase(database, name)) })
	pool, schema := postgrestest.NewPool(t, own), newSchema()
	s := openStore(t, pool, schema)
	fill(t, pool, schema, size(100_000, 1_100_000))
	page, err := s.List(t.Context(), store.Query{Limit: 1})
	require.NoError(t, err)
	type query func() (string, []any)
	day, long := time.Now().Add(-time.Hour), time.Now().AddDate(-1, 0, 0)
	list := func(q store.Query) query {
		return func() (string, []any) {
			text, args, err := s.ListQuery(&q)
			require.NoError(t, err)
			return text, args
		}
	}
	filter := func(f store.Filter) query { return list(store.Query{Filter: f}) }
	for name, row := range map[string]struct {
		q     query
		index string
		sorts bool
	}{
		"all":                     {list(store.Query{}), "runs_created", false},
		"the next page":           {list(store.Query{After: page.Next}), "runs_created", false},
		"created":                 {filter(store.Filter{CreatedFrom: day, CreatedBefore: time.Now()}), "runs_created", false},
		"a workflow":              {list(store.Query{After: page.Next, Filter: store.Filter{Workflow: "w3"}}), "runs_workflow", false},
		"a status":                {list(store.Query{After: page.Next, Filter: store.Filter{Statuses: []kahn.RunStatus{kahn.RunFailed}}}), "runs_status", false},
		"a workflow and a status": {filter(store.Filter{Workflow: "w3", Statuses: []kahn.RunStatus{kahn.RunCompleted}}), "runs_", false},
		"a parent":                {filter(store.Filter{Parent: "p7"}), "runs_parent", false},
		"a key":                   {list(store.Query{After: page.Next, Filter: store.Filter{Key: "none"}}), "runs_key", false},
		"compensating":            {list(store.Query{After: page.Next, Filter: store.Filter{Compensation: kahn.CompensationRunning}}), "runs_compensation", false},
		"compensation failed":     {filter(store.Filter{Compensation: kahn.CompensationFailed}), "runs_compensation", false},
		"ended long ago":          {filter(store.Filter{EndedBefore: long}), "runs_ended", true},
		"a label":                 {filter(store.Filter{Labels: map[string]string{"tenant": "none"}}), "runs_labels", true},
		"a prefix":                {filter(store.Filter{Prefix: "order-77777-"}), "runs_id_key", true},
		"prune": {func() (string, []any) {
			return s.PruneQuery(&store.PruneQuery{EndedBefore: day, Statuses: []kahn.RunStatus{kahn.RunFailed, kahn.RunCompleted}})
		}, "runs_ended", false},
		"events": {func() (string, []any) { return s.EventsQuery("order-7") }, "events_pkey", true},
		"nodes":  {func() (string, []any) { return s.NodesQuery(7) }, "nodes_pkey", false},
		"due": {func() (string, []any) {
			return s.DueQuery(&store.DueQuery{Queues: []store.Queue{{Workflow: "w3"}, {Workflow: "w4", Plan: "p"}}, Limit: 100})
		}, "runs_due", true},
		"load":   {func() (string, []any) { return s.LoadQuery("order-7") }, "runs_id_key", true},
		"renew":  {func() (string, []any) { return s.RenewQuery("order-7") }, "runs_id_key", false},
		"commit": {func() (string, []any) { return s.CommitQuery([2]int64{7, 8}) }, "runs_pkey", false},
	} {
		text, args := row.q()
		plans := []bool{false}
		if name == "due" || name == "load" || name == "renew" || name == "commit" { // these statements are prepared, and also have a generic plan
			plans = append(plans, true)
		}
		for _, kept := range plans {
			plan := explain(t, pool, kept, text, args...)
			require.Contains(t, plan, row.index, "%s: %s", name, plan)
			require.Equal(t, row.sorts, strings.Contains(plan, "Sort"), "%s: %s", name, plan)
			for line := range strings.Lines(plan) {
				if strings.Contains(line, "Seq Scan") {
					require.NotContains(t, line, " runs", "%s: %s", name, plan)
					require.NotContains(t, line, " nodes", "%s: %s", name, plan)
				}
			}
		}
	}
	text, args := s.CountQuery(&store.Filter{Workflow: "w3"})
	require.Contains(t, explain(t, pool, false, text, args...), "Index Only Scan using runs_workflow")
	text, args = s.CountQuery(&store.Filter{Compensation: kahn.CompensationFailed})
	require.Contains(t, explain(t, pool, false, text, args...), "Index Scan on runs_compensation")
}

// TestPlansOfSmallTables: a statement that was prepared while the tables were empty still uses the indexes when the tables have grown.
func TestPlansOfSmallTables(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	s := openStore(t, pool, schema)
	_, err := pool.Exec(t.Context(), "ALTER TABLE "+table(schema, "runs")+" SET (autovacuum_enabled = off)")
	require.NoError(t, err)
	for _, q := range []func() (string, []any){
		func() (string, []any) { return s.CommitQuery([2]int64{7, 8}) }, func() (string, []any) { return s.RenewQuery("order-7") },
		func() (string, []any) { return s.LoadQuery("order-7") },
	} {
		text, args := q()
		require.NotContains(t, explain(t, pool, true, text, args...), "Seq Scan")
	}
}

// TestClock: only the clock of the server decides whether a lease has run out, even if this clock jumps.
func TestClock(t *testing.T) {
	t.Parallel()
	ctx, pool, schema := context.Background(), postgrestest.NewPool(t, database), newSchema()
	openStore(t, pool, schema)
	clock := table(schema, "clock")
	_, err := pool.Exec(ctx, "CREATE TABLE "+clock+" (ahead interval)")
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "INSERT INTO "+clock+" VALUES ('0')")
	require.NoError(t, err)
	jump := func(by string) {
		_, err := pool.Exec(ctx, "UPDATE "+clock+" SET ahead = ahead + $1::text::interval", by)
		require.NoError(t, err)
	}
	s, err := postgres.OpenAt(ctx, pool, postgres.Options{Schema: schema}, "(clock_timestamp() + (SELECT ahead FROM "+clock+"))")
	require.NoError(t, err)
	lease, _, err := s.Acquire(ctx, "r", "one", time.Minute)
	require.NoError(t, err)
	jump("-1 hour")
	_, _, err = s.Acquire(ctx, "r", "two", time.Minute)
	require.ErrorIs(t, err, store.ErrLeased)
	commit(t, s, lease, store.Commit{Sequence: 1, Ready: []string{"a"}})
	jump("2 hours")
	_, err = s.Commit(ctx, lease, store.Commit{Sequence: 2})
	require.ErrorIs(t, err, store.ErrFenced)
	require.ErrorIs(t, s.Renew(ctx, lease, time.Minute), store.ErrFenced)
	next, stored, err := s.Acquire(ctx, "r", "two", time.Minute)
	require.NoError(t, err)
	require.True(t, stored.Nodes["a"].Queued)
	commit(t, s, next, store.Commit{Sequence: 2})
	require.NoError(t, s.Close())
}
