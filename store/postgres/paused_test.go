package postgres_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
)

// paused stops a process between the first two statements of a transaction, until the channel "open" is closed.
type paused struct {
	armed         atomic.Bool
	statements    atomic.Int64
	reached, open chan struct{}
}

func (p *paused) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	switch {
	case !p.armed.Load():
	case strings.HasPrefix(strings.ToUpper(q.SQL), "BEGIN"):
		p.statements.Store(0)
	case p.statements.Add(1) == 2:
		p.armed.Store(false)
		close(p.reached)
		<-p.open
	}
	return ctx
}

func (*paused) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestPausedBetweenStatements: if a process is stopped within a transaction of several statements, its locks keep another process waiting only for
// Options.Timeout of the stopped process.
func TestPausedBetweenStatements(t *testing.T) {
	t.Parallel()
	queues := []store.Queue{{Workflow: "order"}}
	for what, call := range map[string]func(ctx context.Context, s *postgres.Store, who string) error{
		"acquire within a bound": func(ctx context.Context, s *postgres.Store, who string) error {
			_, _, err := s.AcquireTurn(ctx, "of "+who, who, time.Minute, store.Turn{Key: "acme", Most: 5})
			return err
		},
		"grant": func(ctx context.Context, s *postgres.Store, who string) error {
			_, err := s.Grant(ctx, who, time.Minute, []store.GrantRequest{{Limit: "all", Most: 5, Want: 1}})
			return err
		},
		"announce an owner": func(ctx context.Context, s *postgres.Store, who string) error {
			return s.Announce(ctx, store.Announcement{Process: "one", Owner: "owner", Queues: queues, TTL: time.Minute})
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			schema, p := newSchema(), &paused{reached: make(chan struct{}), open: make(chan struct{})}
			other := openWith(t, postgrestest.NewPool(t, database), postgres.Options{Schema: schema, Timeout: 15 * time.Second})
			pool := postgrestest.NewPool(t, database, func(c *pgxpool.Config) { c.ConnConfig.Tracer = p })
			s := openWith(t, pool, postgres.Options{Schema: schema, Timeout: time.Second})
			for _, who := range []string{"one", "two"} {
				_, _, err := s.Create(t.Context(), store.NewRun{ID: "of " + who, Spec: store.Spec{Workflow: "order", Key: "acme"}})
				require.NoError(t, err)
			}
			_, err := other.Grant(t.Context(), "zero", time.Minute, []store.GrantRequest{{Limit: "all", Most: 5, Want: 1}}) // stores the row of the limit
			require.NoError(t, err)
			p.armed.Store(true)
			stopped := make(chan error, 1)
			go func() { stopped <- call(t.Context(), s, "one") }()
			<-p.reached
			begun := time.Now()
			require.NoError(t, call(t.Context(), other, "two"))
			require.Greater(t, time.Since(begun), 500*time.Millisecond, "the stopped process holds no lock here, so this proves nothing")
			close(p.open)
			_ = answer(t, stopped) // an error, unless the store has tried again
		})
	}
}
