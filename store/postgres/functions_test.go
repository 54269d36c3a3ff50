package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// foreign is a store whose Post calls the SQL functions.
type foreign struct{ *postgres.Store }

// conditions maps SQLSTATEs of the functions to the errors of Inbox.Post.
var conditions = map[string]error{
	"P0002": store.ErrUnknownRun, "55000": store.ErrEnded, "23505": store.ErrRequestConflict, "22023": kahn.ErrBadValue, "22P02": kahn.ErrBadValue,
}

func (f foreign) Post(ctx context.Context, run string, q store.Request) (posted bool, err error) {
	what, unsaid := q.Redriving()
	if strings.Contains(q.ID, "\x00") || q.Kind > store.KindRedrive || q.Kind == 0 || q.Kind == store.KindRedrive && (q.Node != "" || unsaid != nil) || q.Kind == store.KindCancel && q.Node != "" {
		return f.Store.Post(ctx, run, q) // the SQL functions cannot post such a request
	}
	call, args := "post_cancel(run => $1, request => $2, actor => $3, comment => $4)", []any{run, q.ID, q.Actor, q.Comment}
	switch q.Kind {
	case store.KindSignal:
		var value *string
		if q.Value != nil {
			text := string(q.Value)
			value = &text
		}
		call, args = "post_signal(run => $1, request => $2, actor => $3, comment => $4, gate => $5, value => $6::text::json)", append(args, q.Node, value)
	case store.KindCancelNode:
		call, args = "post_cancel_node(run => $1, request => $2, actor => $3, comment => $4, node => $5)", append(args, q.Node)
	case store.KindRedrive:
		call = "post_redrive(run => $1, request => $2, actor => $3, comment => $4, nodes => $5, anew => $6, despite_handlers => $7, keep_descendants => $8)"
		args = append(args, what.Nodes, what.Anew, what.DespiteHandlers, what.KeepDescendants)
		if what.RepeatCompensations || what.CompensatedByHand {
			call = "post_compensation(run => $1, request => $2, actor => $3, comment => $4, nodes => $5, by_hand => $6)"
			args = append(args[:5], what.CompensatedByHand)
		}
	}
	err = f.Pool().QueryRow(ctx, "SELECT "+pgx.Identifier{f.Schema()}.Sanitize()+"."+call, args...).Scan(&posted)
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		kind := conditions[answer.Code]
		if q.Kind == store.KindRedrive && kind == store.ErrEnded {
			kind = store.ErrNotEnded
		}
		err = errors.Join(kind, err)
		if answer.Code == "22021" { // the text is not valid in the encoding of the server
			err = errors.Join(kahn.ErrBadValue, err)
		}
	}
	return posted, err
}

func openForeign(t *testing.T, pool *pgxpool.Pool, schema string) foreign {
	t.Helper()
	s := openWith(t, pool, postgres.Options{Schema: schema, Listen: database, Poll: time.Hour})
	for range 2 { // the second time replaces the functions
		_, err := pool.Exec(t.Context(), postgres.Functions(schema), pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
	}
	return foreign{s}
}

// TestFunctions: requests that SQL functions post pass the tests of Inbox.Post.
func TestFunctions(t *testing.T) {
	t.Parallel()
	pool := postgrestest.NewPool(t, database)
	storetest.RunInbox(t, func(t *testing.T) store.Inbox { return openForeign(t, pool, newSchema()) })
}

// TestFunctionsOfAnotherProcess: a running run takes a request that an SQL function posts.
func TestFunctionsOfAnotherProcess(t *testing.T) {
	t.Parallel()
	f := openForeign(t, postgrestest.NewPool(t, database), newSchema())
	storetest.RunPost(t, f.Store, f)
}

// TestFunctionsInATransaction: one transaction commits or rolls back both the posted request and the program's own change.
func TestFunctionsInATransaction(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	f := openForeign(t, pool, schema)
	storetest.Begin(t, f, "r")
	for _, end := range []string{"ROLLBACK", "COMMIT"} {
		text := "BEGIN; CREATE TABLE " + table(schema, "answers") + " (id text); SELECT " + table(schema, "post_cancel_node") + "('r', 'a', 'm'); " + end
		_, err := pool.Exec(t.Context(), text, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		q, err := f.FindRequest(t.Context(), "r", "m")
		if end == "ROLLBACK" {
			require.ErrorIs(t, err, store.ErrUnknownRequest)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, store.Request{ID: "m", Kind: store.KindCancelNode, Node: "a"}, q.Request)
	}
}

// TestFunctionArguments: a refused call changes nothing, and a repeated request is recognized.
func TestFunctionArguments(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	f := openForeign(t, pool, schema)
	lease := storetest.Begin(t, f, "ended")
	storetest.Commit(t, f, lease, store.Commit{Sequence: 2, Status: kahn.RunCompleted})
	storetest.Begin(t, f, "r")
	type row struct{ call, want string }
	rows := []row{
		{`post_signal('r', 'gate', '{"n": [1, 1.0, "\u0000"]}', 's')`, "true"},
		{`post_signal('r', 'gate', '{"n": [1, 1.0, "\u0000"]}', 's')`, "false"},
		{`post_signal('r', 'gate', '{"n": [1, 1.0, "\u0001"]}', 's')`, "23505: request s was posted for run r with another content"},
		{`post_signal('r', 'gate', '{"a": 1, "b": 1.0}', 't')`, "true"},
		{`post_signal('r', 'gate', '{"b":1.0,"a":1}', 't', 'ann', 'another comment')`, "false"},
		{`post_signal('r', 'gate', '{"b":1,"a":1}', 't')`, "23505: request t was posted for run r with another content"},
		{`post_signal('r', 'other', '{"a": 1, "b": 1.0}', 't')`, "23505: request t was posted for run r with another content"},
		{`post_cancel('r', 't')`, "23505: request t was posted for run r with another content"},
		{`post_signal('r', 'gate', 'null', 'u')`, "true"},
		{`post_signal('r', 'gate', NULL, 'v')`, "22023: request v: the value of a signal is NULL"},
		{`post_signal('r', 'gate', '{', 'v')`, "22P02: invalid input syntax for type json"},
		{`post_signal('r', 'gate', 'yes', 'v')`, "22P02: invalid input syntax for type json"},
		{`post_signal('r', NULL, 'true', 'v')`, "22023: request v: a signal needs a node"},
		{`post_signal('r', 'gate', 'true', '')`, "22023: a request for run r without an id"},
		{`post_signal('nobody', 'gate', 'true', 'v')`, "P0002: unknown run nobody"},
		{`post_cancel(NULL, 'v')`, "P0002: unknown run <NULL>"},
		{`post_cancel('ended', 'v')`, "55000: run ended has ended: it is completed"},
		{`post_redrive('r', 'v')`, "55000: run r has not ended: it is running"},
		{`post_redrive('nobody', 'v')`, "P0002: unknown run nobody"},
		{`post_redrive('ended', '')`, "22023: a request for run ended without an id"},
		{`post_redrive('ended', 'v', '{a,NULL}')`, "22023: request v: a redrive of a node without a name"},
		{`post_redrive('ended', 'v', ARRAY['a', ''])`, "22023: request v: a redrive of a node without a name"},
		{`post_redrive('ended', 'all')`, "true"},
		{`post_redrive('ended', 'all', '{}', NULL)`, "false"},
		{`post_redrive('ended', 'all', actor => 'ann', comment => 'again')`, "false"},
		{`post_redrive('ended', 'all', '{a}')`, "23505: request all was posted for run ended with another content"},
		{`post_redrive('ended', 'some', '{M[3],S/charge}', anew => true, despite_handlers => true, keep_descendants => true)`, "true"},
		{`post_redrive('ended', 'some', '{M[3],S/charge}', anew => true)`, "23505: request some was posted for run ended with another content"},
		{`post_compensation('r', 'v')`, "55000: run r has not ended: it is running"},
		{`post_compensation('nobody', 'v')`, "P0002: unknown run nobody"},
		{`post_compensation('ended', 'v', '{a,NULL}')`, "22023: request v: a compensation of a node without a name"},
		{`post_compensation('ended', 'undo')`, "true"},
		{`post_compensation('ended', 'undo', '{}', false, 'ann', 'again')`, "false"},
		{`post_compensation('ended', 'undo', by_hand => true)`, "23505: request undo was posted for run ended with another content"},
		{`post_compensation('ended', 'hand', '{S/charge}', by_hand => true, actor => 'ann', comment => 'called the bank')`, "true"},
		{`post_redrive('ended', 'hand', '{S/charge}')`, "23505: request hand was posted for run ended with another content"},
		{`post_cancel('r', NULL)`, "22023: a request for run r without an id"},
		{`post_cancel_node('r', '', 'v')`, "22023: request v: a cancel_node needs a node"},
		{`post_request('r', 'v', 'stop', 'a', NULL, '', '')`, "22023: request v: stop is no kind of request"},
	}
	if size(0, 1) > 0 { // this row takes seconds
		rows = append(rows, row{`post_signal('r', 'gate', to_json(repeat('x', 250000000)), 'v')`, "54000: request v: a value of 250000002 bytes; the store takes up to 250000000"})
	}
	for _, row := range rows {
		var posted bool
		err := pool.QueryRow(t.Context(), "SELECT "+pgx.Identifier{schema}.Sanitize()+"."+row.call).Scan(&posted)
		got := fmt.Sprint(posted)
		var answer *pgconn.PgError
		if errors.As(err, &answer) {
			got, err = answer.Code+": "+answer.Message, nil
		}
		require.NoError(t, err, row.call)
		require.Equal(t, row.want, got, row.call)
	}
	list, err := f.LoadRequests(t.Context(), "r", 0, store.MaxPage)
	require.NoError(t, err)
	require.Len(t, list, 3)
	redrives, err := f.LoadRequests(t.Context(), "ended", 0, store.MaxPage)
	require.NoError(t, err)
	wanted := []store.Redriving{{}, {Nodes: []string{"M[3]", "S/charge"}, Anew: true, DespiteHandlers: true, KeepDescendants: true},
		{RepeatCompensations: true}, {Nodes: []string{"S/charge"}, CompensatedByHand: true}}
	require.Len(t, redrives, len(wanted))
	for i, want := range wanted {
		what, err := redrives[i].Redriving()
		require.NoError(t, err)
		require.Equal(t, want, what)
	}
	posted, err := f.Store.Post(t.Context(), "ended", store.Request{ID: "all", Kind: store.KindRedrive, Value: json.RawMessage("{}")})
	require.NoError(t, err)
	require.False(t, posted, "Go and SQL say the same")
	require.Equal(t, json.RawMessage("null"), list[2].Value)
}

// TestFunctionsCompensate: an SQL function repeats a failed compensation, or records that it was done by hand.
func TestFunctionsCompensate(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	f := openForeign(t, pool, schema)
	refused, calls := errors.New("no such charge"), 0
	g := (&kahn.Graph{Name: "order"}).Add(
		kahn.Node{ID: "pay", Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }, Compensate: func(context.Context, *kahn.Step) error {
			calls++
			return kahn.Permanent(refused)
		}},
		kahn.Node{ID: "ship", After: []string{"pay"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("no truck") }},
	)
	perform := func() error {
		_, err := kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(f.Store))
		return err
	}
	require.ErrorIs(t, perform(), refused)
	for _, row := range []struct {
		call  string
		calls int
		state kahn.Compensation
	}{
		{`post_compensation('r', 'again', actor => 'ann')`, 2, kahn.CompensationFailed},
		{`post_compensation('r', 'hand', '{pay}', by_hand => true, actor => 'ann', comment => 'called the bank')`, 2, kahn.CompensationDone},
	} {
		var posted bool
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT "+pgx.Identifier{schema}.Sanitize()+"."+row.call).Scan(&posted))
		require.True(t, posted)
		require.Error(t, perform())
		require.Equal(t, row.calls, calls)
		page, err := f.List(t.Context(), store.Query{Filter: store.Filter{Compensation: row.state}})
		require.NoError(t, err)
		require.Len(t, page.Runs, 1)
	}
	res, err := kahn.ReadResult(t.Context(), g, f.Store, "r")
	require.Error(t, err)
	pay, _ := res.Node("pay")
	require.Equal(t, kahn.Request{Actor: "ann", Reason: "called the bank"}, *pay.Undoing.By)
}

// TestFunctionBlobs: the blobs in the value of a posted request are recorded for the run.
func TestFunctionBlobs(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	f := openForeign(t, pool, schema)
	storetest.Begin(t, f, "r")
	value := json.RawMessage(`[{"$blob": "a"}, {"x": {"$blob": "b"}}, {"$blob": "a"}, {"$blob": 1}, {"$blob": "no", "more": 1}, "$blob"]`)
	require.Equal(t, []string{"a", "b"}, store.BlobKeys(value))
	_, err := f.Post(t.Context(), "r", store.Request{ID: "s", Kind: store.KindSignal, Node: "gate", Value: value})
	require.NoError(t, err)
	rows, err := pool.Query(t.Context(), "SELECT key FROM "+table(schema, "blobs")+" ORDER BY key")
	require.NoError(t, err)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, store.BlobKeys(value), keys)
}

// TestCreateRun: a run without a plan that create_run has created is performed with its inputs, key and priority. Bad arguments are refused and
// change nothing.
func TestCreateRun(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	f := openForeign(t, pool, schema)
	_, _, err := f.Acquire(t.Context(), "leased", "owner", time.Minute)
	require.NoError(t, err)
	lease, _, err := f.Acquire(t.Context(), "left", "owner", time.Minute)
	require.NoError(t, err)
	require.NoError(t, f.Release(t.Context(), lease))
	storetest.Begin(t, f, "begun")
	long := strings.Repeat("k", 201)
	for _, row := range []struct{ call, want string }{
		{`create_run('w', 'r', '{"customer": "acme", "n": 1.0}', '{"region": "eu"}', 'acme', 3)`, "true"},
		{`create_run('w', 'r', '{"n":1.0,"customer":"acme"}', NULL, 'other')`, "false"},
		{`create_run('w', 'r', '{"n":2,"customer":"acme"}')`, "23505: run r exists, and has other inputs; it is pending"},
		{`create_run('v', 'r', '{"n":1.0,"customer":"acme"}')`, "23505: run r exists, and its workflow is w, not v"},
		{`create_run('w', 'left', priority => -100, not_before => '2100-01-01')`, "true"},
		{`create_run('w', 'left', '{}')`, "false"},
		{`create_run('w', 'left', 'null', 'null')`, "false"},
		{`create_run('w', 'leased')`, "55006: run leased is leased: another process is about to begin it"},
		{`create_run('w', 'begun')`, "23505: run begun exists, and its workflow is , not w"},
		{`create_run('w', NULL)`, "22023: a run without an id"},
		{`create_run('', 'x')`, "22023: run x: the name of the workflow is missing"},
		{`create_run('w', 'x', '[]')`, "22023: run x: the inputs are no JSON object, but of the type array"},
		{`create_run('w', 'x', '{"#fire": 1}')`, "22023: run x: no input is called #fire"},
		{`create_run('w', 'x', '{')`, "22P02: invalid input syntax for type json"},
		{`create_run('w', 'x', NULL, '"a"')`, "22023: run x: the labels are no JSON object, but of the type string"},
		{`create_run('w', 'x', NULL, '{"a": 1}')`, "22023: run x: a label is no text"},
		{`create_run('w', 'x', NULL, NULL, '` + long + `')`, "22023: run x: the key has 201 bytes; a key has up to 200"},
		{`create_run('w', 'x', priority => 101)`, "22023: run x: the priority 101: -100 to 100"},
		{`create_run('w', 'x', not_before => 'infinity')`, "22023: run x: not_before is infinite"},
		{`create_run(repeat('w', 1001), 'x')`, "54000: run x: the id has 1 bytes, and the workflow 1001; the store takes up to 1000"},
	} {
		var created bool
		err := pool.QueryRow(t.Context(), "SELECT "+pgx.Identifier{schema}.Sanitize()+"."+row.call).Scan(&created)
		got := fmt.Sprint(created)
		var answer *pgconn.PgError
		if errors.As(err, &answer) {
			got, err = answer.Code+": "+answer.Message, nil
		}
		require.NoError(t, err, row.call)
		require.Equal(t, row.want, got, row.call)
	}
	_, err = f.Load(t.Context(), "x")
	require.ErrorIs(t, err, store.ErrUnknownRun)
	r, err := f.Load(t.Context(), "left")
	require.NoError(t, err)
	require.Equal(t, 2100, r.WakeAt.Year())
	require.Equal(t, []any{"w", "", -100}, []any{r.Workflow, r.Key, r.Priority})
	r, err = f.Load(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, []any{"w", "", "acme", 3, map[string]string{"region": "eu"}}, []any{r.Workflow, r.Plan, r.Key, r.Priority, r.Labels})

	g := &kahn.Graph{Name: "w", Inputs: []kahn.Input{{Name: "customer"}, {Name: "n"}}}
	got := make(chan any, 1)
	g.Add(kahn.Node{ID: "a", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		customer, _ := s.Root("customer")
		got <- customer
		return nil, nil
	}})
	rn := new(kahn.Runner)
	over := make(chan error, 1)
	go func() {
		over <- rn.Serve(t.Context(), kahn.Service{Store: f.Store, Workflows: []kahn.Workflow{{Graph: g}}, KeyRuns: 1})
	}()
	require.Equal(t, "acme", <-got)
	require.NoError(t, rn.Shutdown(t.Context()))
	require.NoError(t, <-over)
	res, err := kahn.ReadResult(t.Context(), g, f.Store, "r")
	require.NoError(t, err)
	require.Equal(t, kahn.RunCompleted, res.Status)
	var created bool
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT "+pgx.Identifier{schema}.Sanitize()+`.create_run('w', 'r', '{"customer": "acme", "n": 1}')`).Scan(&created))
	require.False(t, created, "the same run, after it has ended")
}
