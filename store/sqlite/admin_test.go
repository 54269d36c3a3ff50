package sqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// TestCreateTx: one transaction commits or rolls back both the new run and the program's own row.
func TestCreateTx(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := openStore(t, file(t), sqlite.Options{})
	_, err := s.DB().Exec("CREATE TABLE orders (id INTEGER PRIMARY KEY, text TEXT)")
	require.NoError(t, err)
	place := func(n store.NewRun, fails error) (created bool, err error) {
		tx, err := s.DB().BeginTx(ctx, nil)
		require.NoError(t, err)
		defer func() {
			if undone := tx.Rollback(); undone != nil {
				require.ErrorIs(t, undone, sql.ErrTxDone)
			}
		}()
		_, err = tx.Exec("INSERT INTO orders (text) VALUES (?)", n.ID)
		require.NoError(t, err)
		stored, created, err := s.CreateTx(ctx, tx, n)
		if err != nil || fails != nil {
			return created, errors.Join(err, fails)
		}
		require.Equal(t, n.ID, stored.ID)
		return created, tx.Commit()
	}
	storetest.RunCreateTx(t, s, place, func() (n int) {
		require.NoError(t, s.DB().QueryRow("SELECT count(*) FROM orders").Scan(&n))
		return n
	})
	var calls []string
	res, err := kahn.Execute(ctx, fixtureGraph(), fixtureStep(&calls), kahn.RunID("a"), kahn.Durable(s), kahn.AllowGraphChange(), kahn.EarlySignals(map[string]any{"gate": 1}))
	require.NoError(t, err)
	require.Equal(t, kahn.RunCompleted, res.Status)
}

// TestQueryPlans: every query of runs uses an index, and the usual lists need no sorting.
func TestQueryPlans(t *testing.T) {
	t.Parallel()
	s := openStore(t, ":memory:", sqlite.Options{})
	day := time.Now()
	after, err := firstPage(t, s)
	require.NoError(t, err)
	for name, row := range map[string]struct {
		q     store.Query
		index string
		sorts bool
	}{
		"all":                     {store.Query{}, "kahn_runs_created", false},
		"the next page":           {store.Query{After: after}, "kahn_runs_created", false},
		"created":                 {store.Query{Filter: store.Filter{CreatedFrom: day, CreatedBefore: day}}, "kahn_runs_created", false},
		"a workflow":              {store.Query{After: after, Filter: store.Filter{Workflow: "w"}}, "kahn_runs_workflow", false},
		"a status":                {store.Query{After: after, Filter: store.Filter{Statuses: []kahn.RunStatus{kahn.RunFailed}}}, "kahn_runs_status", false},
		"a workflow and a status": {store.Query{Filter: store.Filter{Workflow: "w", Statuses: []kahn.RunStatus{kahn.RunFailed}}}, "kahn_runs_", false},
		"a key":                   {store.Query{After: after, Filter: store.Filter{Key: "k"}}, "kahn_runs_key", false},
		"a parent":                {store.Query{Filter: store.Filter{Parent: "p"}}, "kahn_runs_parent", false},
		"compensating":            {store.Query{After: after, Filter: store.Filter{Compensation: kahn.CompensationRunning}}, "kahn_runs_compensation", false},
		"compensation failed":     {store.Query{Filter: store.Filter{Compensation: kahn.CompensationFailed}}, "kahn_runs_compensation", false},
		"ended":                   {store.Query{Filter: store.Filter{EndedFrom: day, EndedBefore: day}}, "kahn_runs_ended", true},
		"a label":                 {store.Query{Filter: store.Filter{Labels: map[string]string{"tenant": "x"}}}, "kahn_labels_value", true},
		"a prefix":                {store.Query{Filter: store.Filter{Prefix: "order-"}}, "sqlite_autoindex_kahn_runs", true},
	} {
		text, values, err := sqlite.ListQuery(&row.q)
		require.NoError(t, err)
		plan := explain(t, s.DB(), text, values...)
		require.Contains(t, plan, row.index, "%s: %s", name, plan)
		require.Equal(t, row.sorts, strings.Contains(plan, "TEMP B-TREE"), "%s: %s", name, plan)
		for line := range strings.Lines(plan) {
			if strings.Contains(line, "SCAN kahn_runs") {
				require.Contains(t, line, "USING INDEX", "%s: %s", name, plan)
			}
		}
	}
	text, list, err := sqlite.RecentQuery(&store.Query{After: after, Filter: store.Filter{Workflow: "w", Labels: map[string]string{"tenant": "x"}}})
	require.NoError(t, err)
	recent := explain(t, s.DB(), text, list...)
	require.Contains(t, recent, "kahn_runs USING INDEX kahn_runs_workflow")
	require.Contains(t, recent, "kahn_labels EXISTS USING COVERING INDEX kahn_labels_value (name=? AND value=? AND run=?)")
	require.Contains(t, explain(t, s.DB(), sqlite.CountQuery(&store.Filter{})), "COVERING INDEX kahn_runs_workflow")
	require.Contains(t, explain(t, s.DB(), sqlite.CountQuery(&store.Filter{Compensation: kahn.CompensationFailed}), "failed"), "INDEX kahn_runs_compensation (compensation=?)")
	text, values := sqlite.PruneQuery(s, &store.PruneQuery{EndedBefore: day, Statuses: []kahn.RunStatus{kahn.RunFailed, kahn.RunCompleted}})
	plan := explain(t, s.DB(), text, values...)
	require.Contains(t, plan, "USING INDEX kahn_runs_ended")
	require.NotContains(t, plan, "TEMP B-TREE")
	plan = explain(t, s.DB(), sqlite.PartsQuery(s), "[]")
	for _, search := range []string{
		"(workflow=? AND plan=?)", "(workflow=? AND plan=? AND run_key>?)", "(workflow=? AND plan=? AND run_key=?)", "(workflow=? AND plan=? AND run_key=? AND priority<?)", "(workflow=? AND plan=? AND run_key=? AND priority=? AND due>?)",
	} { // each search jumps to the next part without reading the runs of a part
		require.Contains(t, plan, "SEARCH n USING INDEX kahn_runs_due "+search, plan)
	}
	require.Contains(t, plan, "SEARCH t USING COVERING INDEX kahn_runs_turn (run_key=? AND turn>?)", plan)
	require.NotContains(t, plan, "SCAN n", plan)
	require.NotContains(t, plan, "SCAN t", plan)
	require.NotContains(t, plan, "TEMP B-TREE", plan)
	require.Contains(t, explain(t, s.DB(), fmt.Sprintf(sqlite.KeyLeases, sqlite.DefaultNow), "a", "r"), "INDEX kahn_runs_leased (run_key=? AND expires>?)")
	require.Contains(t, explain(t, s.DB(), fmt.Sprintf(sqlite.AllKeys, sqlite.DefaultNow)), "INDEX kahn_runs_leased")
	plan = explain(t, s.DB(), sqlite.DueQuery, 1, "w", "p", "k", 0, "[]", 10)
	require.Contains(t, plan, "INDEX kahn_runs_due (workflow=? AND plan=? AND run_key=? AND priority=? AND due<?)")
	require.NotContains(t, plan, "USE TEMP B-TREE FOR ORDER BY")
	plan = explain(t, s.DB(), sqlite.QueuesQuery(s))
	require.Contains(t, plan, "INDEX kahn_runs_due")
	require.NotContains(t, plan, "USE TEMP B-TREE FOR GROUP BY")
	plan = explain(t, s.DB(), sqlite.DeadQuery(s))
	for _, search := range []string{"(workflow>?)", "(workflow=? AND plan>?)", "(workflow=? AND plan=?)"} { // no search reads a queue that a process serves
		require.Contains(t, plan, "SEARCH n USING", plan)
		require.Contains(t, plan, search, plan)
	}
	require.NotContains(t, plan, "SCAN n", plan)
	plan = explain(t, s.DB(), fmt.Sprintf(sqlite.NodesPage, "NULL, NULL"), 1, 2, 3)
	require.Contains(t, plan, "USING INTEGER PRIMARY KEY")
}

// TestPagesOfLabels: the pages of List together have exactly the runs with a label, whether all runs have the label, a few, or only the oldest
// run.
func TestPagesOfLabels(t *testing.T) {
	t.Parallel()
	s := openStore(t, ":memory:", sqlite.Options{})
	const n = 300
	want := map[string][]string{}
	for i := range n {
		labels := map[string]string{"every": "run"}
		if i%50 == 0 {
			labels["some"] = "runs"
		}
		if i == 0 {
			labels["only"] = "run"
		}
		id := fmt.Sprintf("run-%03d", i)
		_, _, err := s.Create(t.Context(), store.NewRun{ID: id, Spec: store.Spec{Labels: labels}})
		require.NoError(t, err)
		for name := range labels {
			want[name] = append(want[name], id)
		}
	}
	for name, ids := range want {
		value := "run"
		if name == "some" {
			value = "runs"
		}
		var got []string
		q := store.Query{Limit: 4, Filter: store.Filter{Labels: map[string]string{name: value, "every": "run"}}}
		for more := true; more; more = q.After != "" {
			page, err := s.List(t.Context(), q)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page.Runs), 4)
			for _, r := range page.Runs {
				got = append(got, r.ID)
			}
			q.After = page.Next
		}
		require.ElementsMatch(t, ids, got, name)
	}
}

// firstPage creates two runs and returns the cursor of the page after the first one.
func firstPage(t *testing.T, s *sqlite.Store) (string, error) {
	for _, id := range []string{"a", "b"} {
		if _, _, err := s.Create(t.Context(), store.NewRun{ID: id}); err != nil {
			return "", err
		}
	}
	page, err := s.List(t.Context(), store.Query{Limit: 1})
	return page.Next, err
}

func explain(t *testing.T, db *sql.DB, text string, values ...any) (plan string) {
	t.Helper()
	rows, err := db.Query("EXPLAIN QUERY PLAN "+text, values...)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
		plan += detail + "\n"
	}
	require.NoError(t, rows.Err())
	return plan
}
