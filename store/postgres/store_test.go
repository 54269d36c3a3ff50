package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
	"github.com/seed-c794f7ef/kahn/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	open := newStores(postgrestest.NewPool(t, database))
	storetest.Run(t, func(t *testing.T) store.Store { return open(t) })
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	open := newStores(postgrestest.NewPool(t, database))
	storetest.RunAdmin(t, func(t *testing.T) store.Admin { return open(t) })
	storetest.RunQueues(t, func(t *testing.T) store.QueueStore { return open(t) })
	storetest.RunTurns(t, func(t *testing.T) store.TurnStore { return open(t) })
	storetest.RunSchedules(t, func(t *testing.T) store.ScheduleStore { return open(t) })
}

// TestGrants runs the tests of package storetest. It also tests that expired limits without holders are removed, and that other limits remain.
func TestGrants(t *testing.T) {
	t.Parallel()
	pool := postgrestest.NewPool(t, database)
	open := newStores(pool)
	storetest.RunGrants(t, func(t *testing.T) store.GrantStore { return open(t) })
	ctx, schema := t.Context(), newSchema()
	first := openStore(t, pool, schema)
	ask := func(s *postgres.Store, limit string, want int) store.Granted {
		answers, err := s.Grant(ctx, "holder", time.Minute, []store.GrantRequest{{Limit: limit, Most: 3, Want: want}, {Limit: limit + " too", Most: 3, Want: want}})
		require.NoError(t, err)
		return answers[1]
	}
	ask(first, "live", 2)
	ask(first, "over", 1)
	ask(first, "over", 0)
	_, err := pool.Exec(ctx, "UPDATE "+table(schema, "grants")+" SET expires = expires - interval '2 minutes' WHERE name LIKE 'over%'")
	require.NoError(t, err)
	require.Equal(t, 1, ask(openStore(t, pool, schema), "new", 1).Held)
	var names []string
	require.NoError(t, pool.QueryRow(ctx, "SELECT array_agg(name ORDER BY name) FROM "+table(schema, "grants")).Scan(&names))
	require.Equal(t, []string{"live", "live too", "new", "new too"}, names)
	_, err = pool.Exec(ctx, "DELETE FROM "+table(schema, "grants")+" WHERE name = 'live'")
	require.NoError(t, err)
	require.Equal(t, 2, ask(first, "live", 2).Held, "one of two has no row any more")
	_, err = pool.Exec(ctx, "UPDATE "+table(schema, "grants")+" SET state = '['")
	require.NoError(t, err)
	_, err = first.Grant(ctx, "holder", time.Minute, []store.GrantRequest{{Limit: "new", Most: 1, Want: 1}})
	require.ErrorIs(t, err, postgres.ErrDamaged)
}

func TestServeTogether(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	storetest.RunServe(t, func(t *testing.T) store.QueueStore { return openStore(t, pool, schema) })
}

// TestModes: the store works in other modes in which pgx executes statements, and so does not depend on the state of a session.
func TestModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool := postgrestest.NewPool(t, database, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			open := newStores(pool)
			storetest.Run(t, func(t *testing.T) store.Store { return open(t) })
		})
	}
}

// begun acquires a run and makes its first commit. commit makes a commit that must be applied.
var begun, commit = storetest.Begin, storetest.Commit

func TestOptions(t *testing.T) {
	t.Parallel()
	pool := postgrestest.NewPool(t, database)
	for name, o := range map[string]postgres.Options{
		"Timeout -1ns": {Timeout: -1}, "Timeout 5ns: is its unit missing?": {Timeout: 5}, "Poll 5ns: is its unit missing?": {Poll: 5},
		"Schema": {Schema: strings.Repeat("x", 64)}, `"a\x00"`: {Schema: "a\x00"},
	} {
		_, err := postgres.Open(t.Context(), pool, o)
		require.ErrorIs(t, err, machine.ErrBadValue)
		require.ErrorContains(t, err, name)
	}
	_, err := postgres.Open(t.Context(), nil, postgres.Options{})
	require.ErrorIs(t, err, machine.ErrBadValue)
	s := openStore(t, pool, newSchema())
	require.NoError(t, s.CheckValue(make([]byte, 250_000_000)))
	require.ErrorIs(t, s.CheckValue(make([]byte, 250_000_001)), store.ErrRejected)
}

// TestColumns: plain SQL can read the state of a run.
func TestColumns(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	s := openStore(t, pool, schema)
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "a", Do: func(context.Context, *kahn.Step) (any, error) { return map[string]any{"n": "x\x00"}, nil }},
		kahn.Node{ID: "b", After: []string{"a"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("broken") }},
		kahn.Node{ID: "c", After: []string{"b"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }},
	)
	_, err := kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(s))
	require.Error(t, err)
	rows, err := pool.Query(t.Context(), "SELECT concat_ws(' ', key, n.status, cause, convert_from(value, 'UTF8'), attempt, r.status) FROM "+
		table(schema, "nodes")+" n JOIN "+table(schema, "runs")+" r USING (run) WHERE id = 'r' ORDER BY key")
	require.NoError(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{`a completed {"n":"x\u0000"} 1 failed`, "b failed step_error 1 failed", "c aborted upstream_failure 0 failed"}, got)
}

// statements counts the statements of a pool.
type statements struct{ count atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.count.Add(1)
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestStatements: creating, acquiring, renewing and releasing a run take one statement each, and so does each commit of a chain.
func TestStatements(t *testing.T) {
	t.Parallel()
	counter := new(statements)
	s := openWith(t, postgrestest.NewPool(t, database, func(c *pgxpool.Config) { c.ConnConfig.Tracer = counter }), postgres.Options{Schema: newSchema(), Poll: time.Hour})
	takes := func(want int64, what string, f func()) {
		t.Helper()
		before := counter.count.Load()
		f()
		require.Equal(t, want, counter.count.Load()-before, what)
	}
	var lease store.Lease
	takes(2, "acquire and commit", func() { lease = begun(t, s, "r") })
	takes(1, "renew", func() { require.NoError(t, s.Renew(t.Context(), lease, time.Minute)) })
	takes(1, "release", func() { require.NoError(t, s.Release(t.Context(), lease)) })
	takes(2, "acquire and load", func() {
		var err error
		lease, _, err = s.Acquire(t.Context(), "r", "owner", time.Minute)
		require.NoError(t, err)
	})
	takes(2, "a duplicate is answered by what is stored", func() {
		a, err := s.Commit(t.Context(), lease, store.Commit{Sequence: 1})
		require.NoError(t, err)
		require.Equal(t, store.Duplicate, a)
		commit(t, s, lease, store.Commit{Sequence: 2})
	})
	n := store.NewRun{ID: "new", Spec: store.Spec{Workflow: "w", Labels: map[string]string{"a": "b"}}}
	takes(1, "create", func() {
		_, created, err := s.Create(t.Context(), n)
		require.NoError(t, err)
		require.True(t, created)
	})
	takes(1, "acquire what was created", func() {
		_, stored, err := s.Acquire(t.Context(), "new", "owner", time.Minute)
		require.NoError(t, err)
		require.Equal(t, n.Spec, stored.Spec)
	})
	// The run needs one statement for the acquisition, one for each step, one for the end, at most one more, and one for the release.
	const steps = 50
	before := counter.count.Load()
	_, err := kahn.Execute(t.Context(), row(steps), func(context.Context, *kahn.Step) (any, error) { return 1, nil }, kahn.RunID("row"), kahn.Durable(s))
	require.NoError(t, err)
	require.LessOrEqual(t, counter.count.Load()-before, int64(steps+4))
}

// TestStatementsAreShared: runs that commit at the same moment share a statement, and each commit gets its own answer.
func TestStatementsAreShared(t *testing.T) {
	t.Parallel()
	const runs, commits = 50, 20
	counter := new(statements)
	s := openStore(t, postgrestest.NewPool(t, database, func(c *pgxpool.Config) { c.ConnConfig.Tracer = counter }), newSchema())
	leases := make([]store.Lease, runs)
	for i := range leases {
		leases[i] = begun(t, s, fmt.Sprint("r", i))
	}
	require.NoError(t, s.Release(t.Context(), leases[7]))
	before := counter.count.Load()
	var wg sync.WaitGroup
	for i, lease := range leases {
		wg.Go(func() {
			for sequence := range uint64(commits) {
				applied, err := s.Commit(t.Context(), lease, store.Commit{
					Sequence: sequence + 2, Started: []store.Attempt{{Node: "a", Attempt: int32(sequence + 1)}},
				})
				if i == 7 {
					if !errors.Is(err, store.ErrFenced) {
						t.Errorf("a lease that was released: %v, %v", applied, err)
					}
				} else if err != nil || applied != store.AppliedNow {
					t.Errorf("run %d: %v, %v", i, applied, err)
				}
			}
		})
	}
	wg.Wait()
	if n := counter.count.Load() - before; n > runs*commits/4 {
		t.Errorf("%d statements for %d commits", n, runs*commits)
	}
	for i := range leases {
		r, err := s.Load(t.Context(), fmt.Sprint("r", i))
		require.NoError(t, err)
		if want := uint64(commits + 1); i != 7 && r.Sequence != want {
			t.Errorf("run %d is at commit %d of %d", i, r.Sequence, want)
		}
	}
}

// TestLocksInOrder: statements that write the same runs over several connections never deadlock.
func TestLocksInOrder(t *testing.T) {
	t.Parallel()
	const runs, rounds = 40, 40
	pool, schema := postgrestest.NewPool(t, database, func(c *pgxpool.Config) { c.MaxConns = 8 }), newSchema()
	stores := []*postgres.Store{openStore(t, pool, schema), openStore(t, pool, schema), openStore(t, pool, schema)}
	leases := make([]store.Lease, runs)
	for i := range leases {
		leases[i] = begun(t, stores[0], fmt.Sprint("r", i))
	}
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			for k := range uint64(rounds) {
				a, err := stores[0].Commit(t.Context(), leases[i], store.Commit{Sequence: k + 2, Ready: []string{"a"}})
				if err != nil || a != store.AppliedNow {
					t.Errorf("run %d: %v, %v", i, a, err)
				}
			}
		})
		for _, s := range stores[1:] {
			wg.Go(func() {
				for range rounds {
					if err := s.Renew(t.Context(), leases[runs-1-i], time.Minute); err != nil {
						t.Errorf("run %d: %v", i, err)
					}
				}
			})
		}
	}
	wg.Wait()
}

// TestOneCannotBeWritten: if the server refuses one commit, the other commits of the same statement are still applied.
func TestOneCannotBeWritten(t *testing.T) {
	t.Parallel()
	const runs = 20
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	s := openStore(t, pool, schema)
	leases := make([]store.Lease, runs)
	for i := range leases {
		leases[i] = begun(t, s, fmt.Sprint("r", i))
	}
	_, err := pool.Exec(t.Context(), "ALTER TABLE "+table(schema, "nodes")+" ADD CHECK (key <> 'n3')")
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i, lease := range leases {
		wg.Go(func() {
			for sequence := range uint64(5) {
				node := fmt.Sprint("n", i)
				switch i {
				case 3:
					sequence = 0 // repeat the same commit
				case 4:
					sequence, node = 0, "n\x004"
				}
				a, err := s.Commit(t.Context(), lease, store.Commit{Sequence: sequence + 2, Ready: []string{fmt.Sprint("m", sequence), node}})
				switch {
				case i == 3:
					var refused *pgconn.PgError
					if !errors.As(err, &refused) || errors.Is(err, store.ErrRejected) {
						t.Errorf("a commit that the server refuses: %v, %v", a, err)
					}
				case i == 4:
					if !errors.Is(err, store.ErrRejected) {
						t.Errorf("a commit that the server cannot hold: %v, %v", a, err)
					}
				case err != nil || a != store.AppliedNow:
					t.Errorf("run %d: %v, %v", i, a, err)
				}
			}
		})
	}
	wg.Wait()
	for i := range runs {
		r, err := s.Load(t.Context(), fmt.Sprint("r", i))
		require.NoError(t, err)
		want := uint64(6)
		if i == 3 || i == 4 {
			want = 1
		}
		require.Equal(t, want, r.Sequence, "run %d", i)
	}
}

// TestOddTexts: texts that the server cannot represent are rejected in writes, and match nothing in reads.
func TestOddTexts(t *testing.T) {
	t.Parallel()
	s := openStore(t, postgrestest.NewPool(t, database), newSchema())
	lease := begun(t, s, "r")
	for _, odd := range []string{"a\x00", "\xff"} {
		_, _, err := s.Acquire(t.Context(), odd, "owner", time.Minute)
		require.ErrorIs(t, err, store.ErrRejected)
		_, _, err = s.Acquire(t.Context(), "s", odd, time.Minute)
		require.ErrorIs(t, err, store.ErrRejected)
		_, _, err = s.Create(t.Context(), store.NewRun{ID: odd})
		require.ErrorIs(t, err, store.ErrRejected)
		_, err = s.Load(t.Context(), odd)
		require.ErrorIs(t, err, store.ErrUnknownRun)
		_, err = s.ListNodes(t.Context(), odd, store.NodeQuery{})
		require.ErrorIs(t, err, store.ErrUnknownRun)
		for _, f := range []store.Filter{{Workflow: odd}, {Parent: odd}, {Prefix: odd}, {Labels: map[string]string{odd: ""}}, {Labels: map[string]string{"": odd}}} {
			page, err := s.List(t.Context(), store.Query{Filter: f})
			require.NoError(t, err)
			require.Empty(t, page.Runs)
			counts, err := s.Count(t.Context(), f)
			require.NoError(t, err)
			require.Empty(t, counts)
		}
		_, err = s.Commit(t.Context(), lease, store.Commit{Sequence: 2, Spec: &store.Spec{Workflow: odd}})
		require.ErrorIs(t, err, store.ErrRejected)
	}
	_, _, err := s.Create(t.Context(), store.NewRun{ID: "l", Spec: store.Spec{Labels: map[string]string{"a": "\x00"}}})
	require.ErrorIs(t, err, store.ErrRejected)
	commit(t, s, lease, store.Commit{Sequence: 2, Nodes: []store.NodeRecord{{Node: "a", Columns: store.Columns{Value: []byte("\x00\xff")}}}})
	for i, prefix := range []string{"%", "_", `\`, "100%"} {
		_, _, err := s.Create(t.Context(), store.NewRun{ID: prefix + "x"})
		require.NoError(t, err)
		page, err := s.List(t.Context(), store.Query{Filter: store.Filter{Prefix: prefix}})
		require.NoError(t, err)
		require.Len(t, page.Runs, 1, "prefix %d", i)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	s, err := postgres.Open(t.Context(), pool, postgres.Options{Schema: schema})
	require.NoError(t, err)
	lease := begun(t, s, "r")
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, commits := s.Commit(t.Context(), lease, store.Commit{Sequence: 2})
	_, _, acquires := s.Acquire(t.Context(), "s", "owner", time.Minute)
	_, loads := s.Load(t.Context(), "r")
	_, lists := s.List(t.Context(), store.Query{})
	_, counts := s.Count(t.Context(), store.Filter{})
	_, nodes := s.ListNodes(t.Context(), "r", store.NodeQuery{})
	_, _, creates := s.Create(t.Context(), store.NewRun{ID: "new"})
	_, prunes := s.Prune(t.Context(), store.PruneQuery{EndedBefore: time.Now()})
	for what, err := range map[string]error{
		"Commit": commits, "Acquire": acquires, "Renew": s.Renew(t.Context(), lease, time.Minute), "Load": loads, "List": lists, "Count": counts, "ListNodes": nodes,
		"Create": creates, "Prune": prunes,
	} {
		require.ErrorIs(t, err, postgres.ErrClosed, what)
	}
	_, stored, err := openStore(t, pool, schema).Acquire(t.Context(), "r", "next", time.Minute)
	require.NoError(t, err, "the lease was given back")
	require.Equal(t, uint64(1), stored.Sequence)
}

// gate blocks the statements that load runs until its channel "open" is closed.
type gate struct{ reached, open chan struct{} }

func (g *gate) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "LEFT JOIN LATERAL") {
		close(g.reached)
		<-g.open
	}
	return ctx
}

func (*gate) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestClosedMeanwhile: Close releases the lease of a run that Acquire is loading, whether or not the run can be loaded.
func TestClosedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, damaged := range []bool{false, true} {
		pool, schema := postgrestest.NewPool(t, database), newSchema()
		other := openStore(t, pool, schema)
		lease := begun(t, other, "r")
		commit(t, other, lease, store.Commit{Sequence: 2, Ready: []string{"a"}})
		require.NoError(t, other.Release(t.Context(), lease))
		if damaged {
			_, err := pool.Exec(t.Context(), "UPDATE "+table(schema, "nodes")+" SET key = NULL")
			require.NoError(t, err)
		}
		g := &gate{make(chan struct{}), make(chan struct{})}
		s, err := postgres.Open(t.Context(), postgrestest.NewPool(t, database, func(c *pgxpool.Config) { c.ConnConfig.Tracer = g }), postgres.Options{Schema: schema})
		require.NoError(t, err)
		acquired, closed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, _, err := s.Acquire(t.Context(), "r", "one", time.Hour)
			acquired <- err
		}()
		<-g.reached
		go func() { closed <- s.Close() }()
		require.Eventually(t, func() bool {
			_, err := s.Count(t.Context(), store.Filter{})
			return errors.Is(err, postgres.ErrClosed)
		}, 10*time.Second, time.Millisecond)
		close(g.open)
		if err := <-acquired; damaged {
			require.ErrorIs(t, err, postgres.ErrDamaged)
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, <-closed)
		var owner string
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT owner FROM "+table(schema, "runs")).Scan(&owner))
		require.Empty(t, owner)
	}
}

// TestTwoProcesses: two Stores of one database, as in two processes, respect each other's leases.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	one, two := openStore(t, pool, schema), openStore(t, pool, schema)
	lease := begun(t, one, "r")
	_, _, err := two.Acquire(t.Context(), "r", "other", time.Minute)
	require.ErrorIs(t, err, store.ErrLeased)
	require.ErrorContains(t, err, `by "owner"`)
	again, _, err := two.Acquire(t.Context(), "r", "owner", time.Minute)
	require.NoError(t, err, "an owner that has a name finds its lease again")
	require.Equal(t, lease.Epoch+1, again.Epoch)
	_, err = one.Commit(t.Context(), lease, store.Commit{Sequence: 2})
	require.ErrorIs(t, err, store.ErrFenced)
	commit(t, two, again, store.Commit{Sequence: 2, Ready: []string{"a"}})
	_, err = one.Commit(t.Context(), again, store.Commit{Sequence: 2}) // this Store has not acquired the lease itself
	require.NoError(t, err)
	commit(t, one, again, store.Commit{Sequence: 3})
	a, err := two.Commit(t.Context(), again, store.Commit{Sequence: 3}) // this Store does not know that the commit is stored
	require.NoError(t, err)
	require.Equal(t, store.Duplicate, a)
	lease, stored, err := one.Acquire(t.Context(), "r", "owner", time.Minute)
	require.NoError(t, err)
	require.True(t, stored.Nodes["a"].Queued)
	commit(t, one, lease, store.Commit{Sequence: 4, Ready: []string{"b"}})
}

// counted is a connection that counts the bytes that it reads.
type counted struct {
	net.Conn
	bytes *atomic.Int64
}

func (c counted) Read(p []byte) (n int, err error) {
	n, err = c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// TestLoadOfManyNodes: the server sends the inputs and labels of a run once, not with each of its nodes.
func TestLoadOfManyNodes(t *testing.T) {
	t.Parallel()
	const large, nodes = 1 << 20, 50
	var read atomic.Int64
	s := openStore(t, postgrestest.NewPool(t, database, func(c *pgxpool.Config) {
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return counted{conn, &read}, err
		}
	}), newSchema())
	text := strings.Repeat("x", large)
	spec := store.Spec{Workflow: "w", Labels: map[string]string{"l": text}, Inputs: []byte(`{"i":"` + text + `"}`)}
	_, _, err := s.Create(t.Context(), store.NewRun{ID: "r", Spec: spec})
	require.NoError(t, err)
	lease, _, err := s.Acquire(t.Context(), "r", "owner", time.Minute)
	require.NoError(t, err)
	c := store.Commit{Sequence: 1}
	for i := range nodes {
		c.Ready = append(c.Ready, fmt.Sprint("n", i))
	}
	commit(t, s, lease, c)
	reads := func(what string, f func()) {
		t.Helper()
		before := read.Load()
		f()
		require.Less(t, read.Load()-before, int64(3*large), what)
	}
	reads("load", func() {
		r, err := s.Load(t.Context(), "r")
		require.NoError(t, err)
		require.Equal(t, spec, r.Spec)
		require.Len(t, r.Nodes, nodes)
	})
	reads("judge", func() {
		a, err := s.Commit(t.Context(), lease, c)
		require.NoError(t, err)
		require.Equal(t, store.Duplicate, a)
	})
}

// TestDamaged: a damaged row makes only its own run unreadable, and the run has no owner afterwards.
func TestDamaged(t *testing.T) {
	t.Parallel()
	for what, text := range map[string]string{
		"a status of the run": "UPDATE runs SET status = 'dreaming' WHERE id = 'r'", "a status of a node": "UPDATE nodes SET status = 'dreaming'",
		"a node that is missing": "DELETE FROM nodes WHERE node = 0", "a node without a key": "UPDATE nodes SET key = NULL WHERE node = 1",
		"two nodes of a key": "UPDATE nodes SET key = 'a'",
	} {
		pool, schema := postgrestest.NewPool(t, database), newSchema()
		s := openStore(t, pool, schema)
		lease := begun(t, s, "r")
		commit(t, s, lease, store.Commit{Sequence: 2, Ready: []string{"a", "b"}})
		require.NoError(t, s.Release(t.Context(), lease))
		_, err := pool.Exec(t.Context(), strings.NewReplacer("runs", table(schema, "runs"), "nodes", table(schema, "nodes")).Replace(text))
		require.NoError(t, err)
		_, err = s.Load(t.Context(), "r")
		require.ErrorIs(t, err, postgres.ErrDamaged, what)
		_, _, err = s.Acquire(t.Context(), "r", "one", time.Minute)
		require.ErrorIs(t, err, postgres.ErrDamaged, what)
		_, _, err = s.Acquire(t.Context(), "r", "two", time.Minute)
		require.ErrorIs(t, err, postgres.ErrDamaged, what)
		begun(t, s, "other")
	}
}

// TestHeadTx: HeadTx reads a run that was created in the same transaction.
func TestHeadTx(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	s := openStore(t, pool, schema)
	require.Same(t, pool, s.Pool())
	require.Equal(t, schema, s.Schema())
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = s.HeadTx(t.Context(), tx, "order-17")
	require.ErrorIs(t, err, store.ErrUnknownRun)
	_, _, err = s.CreateTx(t.Context(), tx, store.NewRun{ID: "order-17", Spec: store.Spec{Workflow: "order", Labels: map[string]string{"tenant": "acme"}}})
	require.NoError(t, err)
	r, err := s.HeadTx(t.Context(), tx, "order-17")
	require.NoError(t, err)
	require.Equal(t, "order", r.Workflow)
	require.Equal(t, "acme", r.Labels["tenant"])
	require.NoError(t, tx.Rollback(t.Context()))
	_, err = s.Load(t.Context(), "order-17")
	require.ErrorIs(t, err, store.ErrUnknownRun)
}
