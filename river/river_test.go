package riverkahn_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	riverkahn "github.com/seed-c794f7ef/kahn/river"
	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
)

// database is the URL of the tests' database.
var database string

func TestMain(m *testing.M) { postgrestest.Main(m, &database) }

var schemas atomic.Int64

// tables gives one test its own tables of the store and of River.
type tables struct {
	pool   *pgxpool.Pool
	schema string // the schema of River; the name of the store's schema contains this name
	store  *postgres.Store
}

func newTables(t *testing.T) *tables {
	t.Helper()
	pool := postgrestest.NewPool(t, database, func(c *pgxpool.Config) { c.MaxConns = 20 })
	schema := fmt.Sprintf("river_%d_%d", os.Getpid(), schemas.Add(1))
	_, err := pool.Exec(t.Context(), "CREATE SCHEMA "+schema)
	require.NoError(t, err)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: schema, Logger: quiet})
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(t, err)
	return openTables(t, pool, schema)
}

func openTables(t *testing.T, pool *pgxpool.Pool, schema string) *tables {
	t.Helper()
	s, err := postgres.Open(t.Context(), pool, postgres.Options{Schema: `runs "of" ` + schema})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return &tables{pool: pool, schema: schema, store: s}
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// config returns a configuration for a client of River.
func (x *tables) config() *river.Config {
	return &river.Config{Schema: x.schema, Logger: quiet, TestOnly: true}
}

// client returns a Client that works no jobs.
func (x *tables) client(t *testing.T) riverkahn.Client {
	t.Helper()
	c, err := river.NewClient(riverpgxv5.New(x.pool), x.config())
	require.NoError(t, err)
	return riverkahn.Client{Store: x.store, River: c}
}

// perform starts a client of River with a Performer, and stops it when the test ends.
func (x *tables) perform(t *testing.T, p *riverkahn.Performer, configure ...func(*river.Config)) riverkahn.Client {
	t.Helper()
	p.Store = x.store
	if p.RecoverEvery == 0 {
		p.RecoverEvery = 200 * time.Millisecond
	}
	config := x.config()
	for _, c := range configure {
		c(config)
	}
	require.NoError(t, p.Register(config))
	c, err := river.NewClient(riverpgxv5.New(x.pool), config)
	require.NoError(t, err)
	require.NoError(t, p.Start(context.Background(), c))
	t.Cleanup(func() { require.NoError(t, p.Stop(context.Background(), c)) })
	return riverkahn.Client{Store: x.store, River: c}
}

// create prepares a run and creates it.
func create(t *testing.T, c riverkahn.Client, g *kahn.Graph, id string) {
	t.Helper()
	n, err := kahn.Prepare(g, kahn.RunID(id))
	require.NoError(t, err)
	_, created, err := c.Create(t.Context(), n, riverkahn.CreateOptions{})
	require.NoError(t, err)
	require.True(t, created)
}

// reaches waits until a stored run has a status.
func (x *tables) reaches(t *testing.T, id string, status kahn.RunStatus) {
	t.Helper()
	require.Eventually(t, func() bool {
		r, err := x.store.Head(t.Context(), id)
		require.NoError(t, err)
		return r.Status == status
	}, 15*time.Second, 5*time.Millisecond, "run %s is not %v", id, status)
}

// jobs returns the jobs of a run, the oldest first.
func (x *tables) jobs(t *testing.T, id string) (list []rivertype.JobRow) {
	t.Helper()
	rows, err := x.pool.Query(t.Context(), "SELECT state, queue, priority, attempt, scheduled_at, cardinality(errors) FROM "+pgx.Identifier{x.schema, "river_job"}.Sanitize()+
		" WHERE kind = 'kahn_run' AND args->>'run' = $1 ORDER BY id", id)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var j rivertype.JobRow
		var failures *int
		require.NoError(t, rows.Scan(&j.State, &j.Queue, &j.Priority, &j.Attempt, &j.ScheduledAt, &failures))
		if failures != nil {
			j.Errors = make([]rivertype.AttemptError, *failures)
		}
		list = append(list, j)
	}
	require.NoError(t, rows.Err())
	return list
}

// states waits until the jobs of a run have the given states.
func (x *tables) states(t *testing.T, id string, want ...rivertype.JobState) {
	t.Helper()
	require.Eventually(t, func() bool {
		jobs := x.jobs(t, id)
		if len(jobs) != len(want) {
			return false
		}
		for i, j := range jobs {
			if j.State != want[i] {
				return false
			}
		}
		return true
	}, time.Minute, 20*time.Millisecond, "run %s: jobs %v", id, want)
}

func echo(_ context.Context, s *kahn.Step) (any, error) { return s.ID(), nil }

// order returns a graph of two steps.
func order() *kahn.Graph {
	return (&kahn.Graph{Name: "order"}).Add(kahn.Node{ID: "pay"}, kahn.Node{ID: "ship", After: []string{"pay"}})
}

// TestPerform: one client creates runs, and another performs them.
func TestPerform(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	c := x.client(t)
	for i := range 20 {
		create(t, c, order(), fmt.Sprint("order-", i))
	}
	x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: order(), Step: echo}}})
	for i := range 20 {
		id := fmt.Sprint("order-", i)
		x.reaches(t, id, kahn.RunCompleted)
		res, err := kahn.ReadResult(t.Context(), order(), x.store, id)
		require.NoError(t, err)
		require.Equal(t, 2, res.Count(kahn.Completed))
		x.states(t, id, rivertype.JobStateCompleted)
	}
}
