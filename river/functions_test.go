package riverkahn_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	riverkahn "github.com/seed-c794f7ef/kahn/river"
)

// withFunctions creates the SQL functions.
func (x *tables) withFunctions(t *testing.T) (schema string) {
	t.Helper()
	for range 2 { // the second execution replaces the functions
		_, err := x.pool.Exec(t.Context(), riverkahn.Functions(x.store.Schema(), x.schema), pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
	}
	return pgx.Identifier{x.store.Schema()}.Sanitize()
}

// TestFunctionQueue: SQL and Go compute the same names of queues.
func TestFunctionQueue(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	schema := x.withFunctions(t)
	for _, name := range []string{"", "order", "Order 66", "ÄÖİK", "___", "a_", "_", strings.Repeat("long Name ", 50), "x--y", `"'\`} {
		for _, plan := range []string{"", "0123"} {
			var queue string
			require.NoError(t, x.pool.QueryRow(t.Context(), "SELECT "+schema+".queue_of($1, $2)", name, plan).Scan(&queue))
			require.Equal(t, riverkahn.QueueOf(name, plan), queue, name)
		}
	}
}

// TestFunctionWake: if another program wakes a run by SQL, the run gets the same job as from Client.Wake, and begins at once.
func TestFunctionWake(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	schema := x.withFunctions(t)
	wake := func(id string) error {
		_, err := x.pool.Exec(t.Context(), "SELECT "+schema+".wake_run($1)", id)
		return err
	}
	c := x.client(t)
	n, err := kahn.Prepare(order(), kahn.RunID(`"order" of <ö>`))
	require.NoError(t, err)
	_, _, err = x.store.Create(t.Context(), n) // creates the run without a job
	require.NoError(t, err)
	require.NoError(t, wake(n.ID))
	jobs := x.jobs(t, n.ID)
	require.Len(t, jobs, 1)
	require.NoError(t, c.Wake(t.Context(), n.ID))
	require.Len(t, x.jobs(t, n.ID), 1, "Go and SQL differ in the unique key")
	require.Equal(t, rivertype.JobStateAvailable, jobs[0].State)
	require.Equal(t, riverkahn.QueueOf(n.Workflow, n.Plan), jobs[0].Queue)

	later, err := kahn.Prepare(order(), kahn.RunID("later"))
	require.NoError(t, err)
	later.NotBefore = time.Now().Add(time.Hour)
	_, _, err = c.Create(t.Context(), later, riverkahn.CreateOptions{Priority: 4})
	require.NoError(t, err)
	require.NoError(t, wake("later"))
	require.NoError(t, wake("later"))
	jobs = x.jobs(t, "later")
	require.Len(t, jobs, 1)
	require.Equal(t, rivertype.JobStateAvailable, jobs[0].State)
	require.Equal(t, 4, jobs[0].Priority)

	x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: order(), Step: echo}}})
	x.reaches(t, n.ID, kahn.RunCompleted)
	require.NoError(t, wake(n.ID))
	require.Len(t, x.jobs(t, n.ID), 1, "the run has ended")
	require.ErrorContains(t, wake("no such run"), "unknown run no such run")
}

// TestFunctionPost: a request that another program posts by SQL wakes a waiting run, once, in the same transaction. If the run has not begun,
// its job keeps its scheduled time after a signal, and begins at once after a cancel.
func TestFunctionPost(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	schema := x.withFunctions(t)
	g := gated(time.Hour)
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: echo}}})
	call := func(text string) {
		t.Helper()
		_, err := x.pool.Exec(t.Context(), strings.ReplaceAll(text, "$S", schema), pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
	}
	for _, id := range []string{"answered", "cancelled"} {
		create(t, c, g, id)
		x.reaches(t, id, kahn.RunSuspended)
		x.states(t, id, rivertype.JobStateCompleted, rivertype.JobStateScheduled)
	}
	call(`BEGIN; SELECT $S.post_signal('answered', 'approve', '"no"', '1'); ROLLBACK`)
	x.states(t, "answered", rivertype.JobStateCompleted, rivertype.JobStateScheduled)
	for range 2 {
		call(`SELECT $S.post_signal('answered', 'approve', '"yes"', '1', actor => 'ann')`)
		x.reaches(t, "answered", kahn.RunCompleted)
	}
	x.states(t, "answered", rivertype.JobStateCompleted, rivertype.JobStateCompleted)
	res, err := kahn.ReadResult(t.Context(), g, x.store, "answered")
	require.NoError(t, err)
	gate, _ := res.Node("approve")
	require.Equal(t, "yes", gate.Output)
	call(`SELECT $S.post_cancel('cancelled', '1', comment => 'out of stock')`)
	x.reaches(t, "cancelled", kahn.RunCancelled)

	later, err := kahn.Prepare(g, kahn.RunID("later"))
	require.NoError(t, err)
	later.NotBefore = time.Now().Add(time.Hour)
	_, _, err = c.Create(t.Context(), later, riverkahn.CreateOptions{})
	require.NoError(t, err)
	call(`SELECT $S.post_signal('later', 'approve', '"yes"', '1')`)
	x.states(t, "later", rivertype.JobStateScheduled)
	call(`SELECT $S.post_cancel('later', '2')`)
	x.reaches(t, "later", kahn.RunCancelled)
}
