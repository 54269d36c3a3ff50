package postgres_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
)

// counter counts the statements of a pool.
type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestIdleProcesses: idle processes that listen send few statements, fewer than 20 a second for 50 processes. They begin a run at once when
// another process creates it.
func TestIdleProcesses(t *testing.T) {
	t.Parallel()
	pool := postgrestest.NewPool(t, database)
	schema := schemaOf(t.Name())
	creator := openWith(t, pool, postgres.Options{Schema: schema})
	const processes = 5
	idle, samples := 4*time.Second, 20
	if os.Getenv("KAHN_LONG") != "" {
		idle, samples = 60*time.Second, 1000
	}
	began := make(chan time.Time, processes)
	g := (&kahn.Graph{Name: "idle"}).Add(kahn.Node{ID: "only"})
	var asked counter
	var runners []*kahn.Runner
	ended := make(chan error, processes)
	for range processes {
		config, err := pgxpool.ParseConfig(database)
		require.NoError(t, err)
		config.ConnConfig.Tracer, config.MaxConns = &asked, 2
		own, err := pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		t.Cleanup(own.Close)
		s := openWith(t, own, postgres.Options{Schema: schema, Listen: database})
		require.True(t, s.NotifiesDue())
		rn := &kahn.Runner{}
		runners = append(runners, rn)
		go func() {
			ended <- rn.Serve(t.Context(), kahn.Service{Store: s, Workflows: []kahn.Workflow{{Graph: g, Step: func(context.Context, *kahn.Step) (any, error) {
				began <- time.Now()
				return nil, nil
			}}}})
		}()
	}
	create := func(id string) time.Duration {
		n, err := kahn.Prepare(g, kahn.RunID(id))
		require.NoError(t, err)
		created := time.Now()
		_, _, err = creator.Create(t.Context(), n)
		require.NoError(t, err)
		select {
		case at := <-began:
			return at.Sub(created)
		case <-time.After(5 * time.Second):
			t.Fatalf("run %s has not begun", id)
		}
		return 0
	}
	create("first") // by now all processes, or nearly all, have started
	time.Sleep(500 * time.Millisecond)
	before := asked.n.Load()
	time.Sleep(idle)
	each := float64(asked.n.Load()-before) / idle.Seconds() / processes
	var list []time.Duration
	for i := range samples {
		list = append(list, create(fmt.Sprint("r", i)))
		time.Sleep(100 * time.Millisecond) // wait until the processes are idle again
	}
	slices.Sort(list)
	t.Logf("%.2f statements a second of an idle process, %.0f of 50; create to first step: median %v, 99th percentile %v", each, 50*each, list[len(list)/2], list[len(list)*99/100])
	require.Less(t, 50*each, 20.0*2) // in a short time announcements may be more than their average share
	require.Less(t, list[len(list)/2], time.Second)
	for _, rn := range runners {
		require.NoError(t, rn.Shutdown(context.Background()))
		require.NoError(t, <-ended)
	}
}
