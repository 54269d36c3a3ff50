package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// TestMigrations: the statements that Migrations returns make the same schema as Open. Several processes may call Open at once, and Open refuses
// a schema of an unknown version.
func TestMigrations(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), postgrestest.NewPool(t, database, func(c *pgxpool.Config) { c.MaxConns = 20 })
	opened, byHand := newSchema(), newSchema()
	var processes sync.WaitGroup
	for range 10 {
		processes.Go(func() {
			s, err := postgres.Open(ctx, pool, postgres.Options{Schema: opened})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	processes.Wait()
	for i, m := range postgres.Migrations(byHand) {
		require.Equal(t, i+1, m.Version)
		_, err := pool.Exec(ctx, m.SQL, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
	}
	require.Contains(t, postgres.Migrations("")[0].SQL, `CREATE TABLE "kahn".runs`)
	columns := func(schema string) []string {
		rows, err := pool.Query(ctx, `SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default) FROM information_schema.columns WHERE table_schema = $1
			UNION ALL SELECT replace(indexdef, quote_ident($1), 's') FROM pg_indexes WHERE schemaname = $1 ORDER BY 1`, schema)
		require.NoError(t, err)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return list
	}
	require.Greater(t, len(columns(opened)), 40)
	require.Equal(t, columns(byHand), columns(opened))
	openStore(t, pool, byHand)

	for _, row := range []struct {
		text string
		want error
	}{{"UPDATE %s SET version = 99", postgres.ErrSchema}, {"UPDATE %s SET version = -1", postgres.ErrSchema}, {"DELETE FROM %s", postgres.ErrDamaged}} {
		_, err := pool.Exec(ctx, fmt.Sprintf(row.text, table(byHand, "version")))
		require.NoError(t, err)
		_, err = postgres.Open(ctx, pool, postgres.Options{Schema: byHand})
		require.ErrorIs(t, err, row.want)
	}
	s := openStore(t, pool, opened)
	lease := begun(t, s, "r")
	_, err := pool.Exec(ctx, "ALTER TABLE "+table(opened, "nodes")+" RENAME TO other")
	require.NoError(t, err)
	_, err = s.Commit(ctx, lease, store.Commit{Sequence: 2, Ready: []string{"a"}})
	require.ErrorIs(t, err, postgres.ErrSchema)
	_, err = pool.Exec(ctx, "DROP SCHEMA "+pgx.Identifier{opened}.Sanitize()+" CASCADE")
	require.NoError(t, err)
	_, err = s.Load(ctx, "r")
	require.ErrorIs(t, err, postgres.ErrSchema)
}

// TestPrivileges: a role with only the documented privileges can use every method, but cannot make the schema.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	ctx, admin, schema := t.Context(), postgrestest.NewPool(t, database), newSchema()
	name := strings.NewReplacer(`"`, "", " ", "_").Replace(schema)
	app, none := "app_"+name, "none_"+name
	for _, role := range []string{app, none} {
		_, err := admin.Exec(ctx, "CREATE ROLE "+role+" LOGIN PASSWORD 'secret'")
		require.NoError(t, err)
		t.Cleanup(func() {
			_, err := admin.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role, pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
		})
	}
	as := func(role string) *pgxpool.Pool {
		u, err := url.Parse(database)
		require.NoError(t, err)
		u.User = url.UserPassword(role, "secret")
		return postgrestest.NewPool(t, u.String())
	}
	pool := as(app)
	_, err := postgres.Open(ctx, pool, postgres.Options{Schema: schema})
	require.ErrorIs(t, err, store.ErrUnusable)
	require.ErrorContains(t, err, "privilege")
	openStore(t, admin, schema)
	quoted := pgx.Identifier{schema}.Sanitize()
	grants := strings.ReplaceAll(strings.ReplaceAll(`GRANT USAGE ON SCHEMA kahn TO app;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kahn TO app;
		REVOKE INSERT, UPDATE, DELETE ON kahn.version FROM app;`, "app", app), "kahn", quoted)
	_, err = admin.Exec(ctx, grants, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	s := openStore(t, pool, schema)
	g := new(kahn.Graph).Add(kahn.Node{ID: "a", Do: func(ctx context.Context, step *kahn.Step) (any, error) {
		return postgres.Once(ctx, s, step, func(pgx.Tx) (int, error) { return 1, nil })
	}})
	_, err = kahn.Execute(ctx, g, nil, kahn.RunID("r"), kahn.Durable(s))
	require.NoError(t, err)
	_, _, err = s.Create(ctx, store.NewRun{ID: "s"})
	require.NoError(t, err)
	pruned, err := s.Prune(ctx, store.PruneQuery{EndedBefore: time.Now().Add(time.Hour), Blobs: new(store.MemoryBlobs)})
	require.NoError(t, err)
	require.Equal(t, 1, pruned.Runs)
	_, err = postgres.Open(ctx, as(none), postgres.Options{Schema: schema})
	require.ErrorIs(t, err, store.ErrUnusable)
}

// TestPruneLeavesNothing: after Prune no table has a row of the pruned run.
func TestPruneLeavesNothing(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	s := openStore(t, pool, schema)
	_, _, err := s.Create(t.Context(), store.NewRun{ID: "other"})
	require.NoError(t, err)
	pay := func(ctx context.Context, step *kahn.Step) (any, error) {
		return postgres.Once(ctx, s, step, func(pgx.Tx) (int, error) { return 1, nil })
	}
	waits := func(ctx context.Context, _ *kahn.Step) (any, error) { return kahn.AwaitRun(ctx, "other") }
	g := new(kahn.Graph).Add(kahn.Node{ID: "pay", Do: pay}, kahn.Node{ID: "waits", After: []string{"pay"}, Do: waits})
	opts := []kahn.Option{kahn.RunID("r"), kahn.Durable(s), kahn.StoreEvents()}
	res, err := kahn.Execute(t.Context(), g, nil, opts...)
	require.Equal(t, kahn.RunSuspended, res.Status, err)
	answer := store.Request{ID: "s", Kind: store.KindSignal, Node: "gate", Value: json.RawMessage(`{"$blob": "a"}`)}
	for _, q := range []store.Request{answer, cancels("stop")} {
		_, err = s.Post(t.Context(), "r", q)
		require.NoError(t, err)
	}
	rows := func() map[string]int {
		tables, err := pool.Query(t.Context(), "SELECT table_name::text FROM information_schema.columns WHERE table_schema = $1 AND column_name = 'run'", schema)
		require.NoError(t, err)
		list, err := pgx.CollectRows(tables, pgx.RowTo[string])
		require.NoError(t, err)
		count := map[string]int{}
		for _, name := range list {
			var n int
			require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table(schema, name)+" WHERE run = 2").Scan(&n))
			count[name] = n
		}
		return count
	}
	for name, n := range rows() {
		require.Positive(t, n, name)
	}
	res, err = kahn.Execute(t.Context(), g, nil, opts...)
	require.Equal(t, kahn.RunCancelled, res.Status, err)
	pruned, err := s.Prune(t.Context(), store.PruneQuery{EndedBefore: time.Now().Add(time.Hour), Blobs: new(store.MemoryBlobs)})
	require.NoError(t, err)
	require.Equal(t, 1, pruned.Runs)
	for name, n := range rows() {
		require.Zero(t, n, name)
	}
}

// TestOnce: the function of Once takes effect once, although the step is attempted three times.
func TestOnce(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	s := openStore(t, pool, schema)
	_, err := pool.Exec(t.Context(), "CREATE TABLE "+table(schema, "payments")+" (id integer GENERATED ALWAYS AS IDENTITY, amount integer)")
	require.NoError(t, err)
	broken := errors.New("broken")
	calls, results := 0, []int64(nil)
	pay := func(ctx context.Context, step *kahn.Step) (any, error) {
		id, err := postgres.Once(ctx, s, step, func(tx pgx.Tx) (id int64, err error) {
			calls++
			err = tx.QueryRow(ctx, "INSERT INTO "+table(schema, "payments")+" (amount) VALUES (42) RETURNING 1").Scan(&id)
			require.NoError(t, err)
			if calls == 1 {
				return 0, broken
			}
			return id, nil
		})
		if err == nil {
			results = append(results, id)
		} else {
			require.ErrorIs(t, err, broken)
		}
		return id, errors.Join(err, errors.New("the step fails behind its transaction"))
	}
	g := new(kahn.Graph).Add(kahn.Node{ID: "pay", Do: pay, Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: time.Millisecond}})
	res, err := kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(s))
	require.Error(t, err)
	require.Equal(t, kahn.RunFailed, res.Status)
	require.Equal(t, 2, calls)
	require.Equal(t, []int64{1, 1}, results)
	var paid int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table(schema, "payments")).Scan(&paid))
	require.Equal(t, 1, paid)
}

// onceStep implements postgres.Step.
type onceStep struct {
	run   string
	epoch uint64
}

func (s onceStep) RunID() string        { return s.run }
func (s onceStep) Epoch() uint64        { return s.epoch }
func (onceStep) Path() string           { return "a" }
func (onceStep) IdempotencyKey() string { return "key" }

// TestOnceFenced: Once writes nothing if another process takes over the run before or during the call. If two calls for a step run at once, the
// second one gets the result of the first.
func TestOnceFenced(t *testing.T) {
	t.Parallel()
	ctx, pool, schema := t.Context(), postgrestest.NewPool(t, database), newSchema()
	s := openStore(t, pool, schema)
	lease := begun(t, s, "r")
	step := onceStep{"r", lease.Epoch}
	var next store.Lease
	_, err := postgres.Once(ctx, s, step, func(pgx.Tx) (int, error) {
		var err error
		next, _, err = s.Acquire(ctx, "r", "owner", time.Minute)
		return 1, err
	})
	require.ErrorIs(t, err, store.ErrFenced)
	_, err = postgres.Once(ctx, s, step, func(pgx.Tx) (int, error) {
		t.Error("it was called")
		return 2, nil
	})
	require.ErrorIs(t, err, store.ErrFenced)
	_, err = postgres.Once(ctx, s, onceStep{"none", 1}, func(pgx.Tx) (int, error) { return 0, nil })
	require.ErrorIs(t, err, store.ErrUnknownRun)
	step.epoch = next.Epoch
	got := make(chan int, 2)
	begin := make(chan bool)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			n, err := postgres.Once(ctx, s, step, func(pgx.Tx) (int, error) {
				<-begin
				return 7 + len(got), nil
			})
			if err != nil {
				t.Error(err)
			}
			got <- n
		})
	}
	begin <- true // only the first call runs its function; the second one waits
	both.Wait()
	require.Equal(t, []int{7, 7}, []int{<-got, <-got})
}

// TestCreateTx: one transaction commits or rolls back both the new run and the program's own row.
func TestCreateTx(t *testing.T) {
	t.Parallel()
	ctx, pool, schema := t.Context(), postgrestest.NewPool(t, database), newSchema()
	s := openStore(t, pool, schema)
	orders := table(schema, "orders")
	_, err := pool.Exec(ctx, "CREATE TABLE "+orders+" (text text)")
	require.NoError(t, err)
	place := func(n store.NewRun, fails error) (created bool, err error) {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO "+orders+" VALUES ($1)", n.ID); err != nil {
				return err
			}
			var stored *store.Run
			stored, created, err = s.CreateTx(ctx, tx, n)
			if err != nil {
				var n int // the transaction must remain usable
				return errors.Join(err, tx.QueryRow(ctx, "SELECT count(*) FROM "+orders).Scan(&n))
			}
			require.Equal(t, n.ID, stored.ID)
			return fails
		})
		return created, err
	}
	storetest.RunCreateTx(t, s, place, func() (n int) {
		require.NoError(t, pool.QueryRow(ctx, "SELECT count(*) FROM "+orders).Scan(&n))
		return n
	})
}

// TestNamesOfSchemas: a schema's name may contain any characters, even the placeholders of the statements.
func TestNamesOfSchemas(t *testing.T) {
	t.Parallel()
	pool := postgrestest.NewPool(t, database)
	for _, name := range []string{`it's "one"`, `it's $S`, "$Q $NOW", `%d\'`, "$do$", "$ddo$do$TAG"} {
		s, err := postgres.Open(t.Context(), pool, postgres.Options{Schema: fmt.Sprint(name, newSchema())})
		require.NoError(t, err, name)
		begun(t, s, "r")
		require.NoError(t, s.Close(), name)
	}
}

// TestLongTexts: ids and names are stored up to the documented length, at which they always fit into a row of an index. Longer ones are refused,
// and the program's own transaction remains usable.
func TestLongTexts(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), postgrestest.NewPool(t, database)
	s := openStore(t, pool, newSchema())
	random := rand.New(rand.NewPCG(61, 67))
	long := func(n int) string { // random text, which the server cannot compress
		text := make([]byte, n)
		for i := range text {
			text[i] = byte('!' + random.IntN(90))
		}
		return string(text)
	}
	most := store.NewRun{ID: long(1000), Spec: store.Spec{Workflow: long(1000), Plan: long(600), Parent: long(1000), Labels: map[string]string{long(5000): long(5000)}}}
	_, created, err := s.Create(ctx, most)
	require.NoError(t, err)
	require.True(t, created)
	lease := begun(t, s, most.ID)
	commit(t, s, lease, store.Commit{Sequence: 2, Ready: []string{long(5000)}})
	page, err := s.List(ctx, store.Query{Filter: store.Filter{Labels: most.Labels}})
	require.NoError(t, err)
	require.Len(t, page.Runs, 1)
	require.NoError(t, s.Announce(ctx, store.Announcement{Process: long(1000), Owner: long(1000), TTL: time.Minute, Queues: []store.Queue{{Workflow: most.Workflow, Plan: most.Plan}, {Workflow: long(2000), Plan: long(2000)}}}))
	for _, a := range []store.Announcement{{Process: long(1001), TTL: time.Minute}, {Process: "p", Owner: long(1001), TTL: time.Minute}} {
		require.ErrorIs(t, s.Announce(ctx, a), store.ErrRejected)
	}
	request := store.Request{ID: long(100_000), Kind: store.KindCancel} // the id of a request may have any length
	for _, want := range []bool{true, false} {
		posted, err := s.Post(ctx, most.ID, request)
		require.NoError(t, err)
		require.Equal(t, want, posted)
	}
	_, err = s.FindRequest(ctx, most.ID, request.ID)
	require.NoError(t, err)
	require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, _, err := s.CreateTx(ctx, tx, store.NewRun{ID: "c", Spec: store.Spec{Plan: long(601)}})
		require.ErrorIs(t, err, store.ErrRejected)
		return tx.QueryRow(ctx, "SELECT 1").Scan(new(int))
	}))
	for what, n := range map[string]store.NewRun{
		"the id": {ID: long(1001)}, "the workflow": {ID: "a", Spec: store.Spec{Workflow: long(1001)}}, "the parent": {ID: "b", Spec: store.Spec{Parent: strings.Repeat("a", 1001)}},
	} {
		require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, _, err := s.CreateTx(ctx, tx, n)
			require.ErrorIs(t, err, store.ErrRejected, what)
			require.ErrorContains(t, err, "1001 bytes", what)
			return tx.QueryRow(ctx, "SELECT 1").Scan(new(int))
		}))
		_, err := s.Commit(ctx, lease, store.Commit{Sequence: 3, Spec: &n.Spec})
		if what != "the id" {
			require.ErrorIs(t, err, store.ErrRejected, what)
		}
		if _, _, err = s.Acquire(ctx, n.ID, "owner", time.Minute); what == "the id" {
			require.ErrorIs(t, err, store.ErrRejected)
			_, err = s.Load(ctx, n.ID)
			require.ErrorIs(t, err, store.ErrUnknownRun)
		}
	}
}

// TestFarthestTimes: the earliest and the latest time that package time can represent can bound a Filter, and a lease with the longest Duration
// does not overflow.
func TestFarthestTimes(t *testing.T) {
	t.Parallel()
	s := openStore(t, postgrestest.NewPool(t, database), newSchema())
	l, _, err := s.Acquire(t.Context(), "leased", "one", math.MaxInt64)
	require.NoError(t, err)
	require.NoError(t, s.Renew(t.Context(), l, math.MaxInt64))
	_, _, err = s.Acquire(t.Context(), "leased", "two", time.Minute)
	require.ErrorIs(t, err, store.ErrLeased)
	require.NoError(t, s.Insert(t.Context(), &store.Run{ID: "r", Spec: store.Spec{Workflow: "w"}, Created: time.Unix(5, 0), Ended: time.Unix(6, 0), Status: machine.RunCompleted,
		Sequence: 1, Record: []byte("{}"), Nodes: map[string]store.Node{}}))
	last, first := time.Unix(1<<63-62135596801, 999999999), time.Unix(-1<<62, 0)
	for want, filters := range map[int][]store.Filter{
		1: {{CreatedBefore: last}, {EndedBefore: last}, {CreatedFrom: first}, {EndedFrom: first}, {CreatedBefore: time.Unix(5, 1)}, {CreatedFrom: time.Unix(5, 0)}},
		0: {{CreatedFrom: last}, {EndedFrom: last}, {CreatedBefore: first}, {EndedBefore: first}, {CreatedBefore: time.Unix(5, 0)}, {CreatedFrom: time.Unix(5, 1)}},
	} {
		for _, f := range filters {
			f.Workflow = "w"
			page, err := s.List(t.Context(), store.Query{Filter: f})
			require.NoError(t, err)
			require.Len(t, page.Runs, want, "%+v", f)
		}
	}
	pruned, err := s.Prune(t.Context(), store.PruneQuery{EndedBefore: last})
	require.NoError(t, err)
	require.Equal(t, 1, pruned.Runs)
}

// TestNewerSchema: Announce returns ErrNewerSchema if a newer program has migrated the schema while the store is open. The store can still
// finish its runs.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	s := openStore(t, pool, schema)
	a := store.Announcement{Process: "p", Queues: []store.Queue{{Workflow: "w"}}, TTL: time.Minute}
	require.NoError(t, s.Announce(t.Context(), a))
	lease, _, err := s.Acquire(t.Context(), "r", "me", time.Minute)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "UPDATE "+table(schema, "version")+" SET version = version + 1")
	require.NoError(t, err)
	require.ErrorIs(t, s.Announce(t.Context(), a), store.ErrNewerSchema)
	a.Owner, a.Process = "me", "other"
	require.ErrorIs(t, s.Announce(t.Context(), a), store.ErrNewerSchema)
	var announced int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table(schema, "served")).Scan(&announced))
	require.Equal(t, 1, announced, "a refused announcement changes nothing")
	applied, err := s.Commit(t.Context(), lease, store.Commit{Sequence: 1, Status: kahn.RunCompleted})
	require.NoError(t, err)
	require.Equal(t, store.AppliedNow, applied)
}
